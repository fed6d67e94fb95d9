//! Decides which levels a logger has.
//!
//! Settings made at run time come first, then the settings file, then the level that the program
//! sets for the logger, then the default for all loggers. Of several patterns the most specific one
//! decides: a name without a star, then the pattern with the most characters besides stars, then
//! the newest. A pattern without a local level leaves it to the next pattern.

use std::cmp::Reverse;

use super::LevelEntry;
use crate::level::{Level, Threshold};
use crate::predicate::Glob;

/// The levels of a pattern's loggers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) glob: Glob,
    /// The lowest level that is published.
    pub(crate) remote: Option<Level>,
    /// The lowest level that is printed.
    pub(crate) local: Option<Threshold>,
}

/// All rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The most specific first; settings of run time before those of the file.
    rules: Vec<Rule>,
    remote: Level,
    local: Threshold,
}

fn specific(glob: &Glob) -> (bool, usize) {
    let text = glob.as_str();
    let stars = text.bytes().filter(|byte| *byte == b'*').count();
    (stars == 0, text.chars().count() - stars)
}

impl Rules {
    /// Combines the settings of run time, the file's in its order, and the defaults.
    pub(crate) fn new<'a>(
        run_time: impl IntoIterator<Item = &'a LevelEntry>,
        file: &[Rule],
        remote: Level,
        local: Threshold,
    ) -> Self {
        let mut entries: Vec<_> = run_time.into_iter().collect();
        entries.sort_by_key(|entry| {
            let pattern = &entry.pattern;
            Reverse((specific(pattern), entry.when, pattern.as_str()))
        });
        let rule = |entry: &LevelEntry| Rule {
            glob: entry.pattern.clone(),
            remote: Some(entry.remote),
            local: entry.local,
        };
        let mut rules: Vec<_> = entries.into_iter().map(rule).collect();
        let mut file: Vec<_> = file.iter().enumerate().collect();
        file.sort_by_key(|(place, rule)| Reverse((specific(&rule.glob), *place)));
        rules.extend(file.into_iter().map(|(_, rule)| rule.clone()));
        Self { rules, remote, local }
    }

    /// The levels of a logger; the program may have set one.
    pub(crate) fn of(&self, name: &str, own: Option<Level>) -> (Level, Threshold) {
        let local = self.matching(name).find_map(|rule| rule.local);
        (self.remote(name).or(own).unwrap_or(self.remote), local.unwrap_or(self.local))
    }

    /// The lowest published level according to a pattern; none if no pattern matches.
    pub(crate) fn remote(&self, name: &str) -> Option<Level> {
        self.matching(name).find_map(|rule| rule.remote)
    }

    fn matching(&self, name: &str) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.glob.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;
    use helio_core::Tai;

    fn rule(glob: &str, remote: Option<Level>, local: Option<Threshold>) -> Rule {
        Rule { glob: glob.parse().unwrap(), remote, local }
    }

    #[test]
    fn the_most_specific_pattern_decides_and_run_time_goes_first() {
        let warning = Threshold::From(Level::WARNING);
        let mut entries = vec![
            entry("CONTROL/*", Level::INFO),
            entry("CONTROL/DV11/*", Level::DEBUG),
            entry("**/Mount", Level::TRACE),
            entry("CONTROL/DV12", Level::ERROR),
            entry("CONTROL/**", Level::ALERT),
        ];
        entries[0].local = Some(warning);
        // Of two that are as specific, the newer one.
        entries[0].when = Tai::from_nanos(8);
        let file = [
            rule("*", Some(Level::NOTICE), Some(Threshold::Off)),
            rule("Dome", None, Some(Threshold::From(Level::DEBUG))),
            rule("*", Some(Level::CRITICAL), None),
        ];
        let rules = Rules::new(&entries, &file, Level::DELOUSE, Threshold::Off);
        let remote = |name: &str| rules.of(name, Some(Level::TRACE)).0;
        assert_eq!(remote("CONTROL/DV11/Mount"), Level::DEBUG);
        assert_eq!(remote("Any/Mount"), Level::TRACE);
        assert_eq!(remote("CONTROL/DV12"), Level::ERROR);
        assert_eq!(remote("CONTROL/DV13"), Level::INFO);
        // Of two in the file, the later one.
        assert_eq!(remote("Dome"), Level::CRITICAL);
        // What is not said by one is said by the next.
        assert_eq!(rules.of("CONTROL/DV11/Mount", None).1, warning);
        assert_eq!(rules.of("Any/Mount", None).1, Threshold::Off);
        assert_eq!(rules.of("Dome", None).1, Threshold::From(Level::DEBUG));
    }

    #[test]
    fn without_a_pattern_the_program_decides() {
        let rules = Rules::new([], &[], Level::INFO, Threshold::Off);
        assert_eq!(rules.of("a", None), (Level::INFO, Threshold::Off));
        assert_eq!(rules.of("a", Some(Level::DEBUG)), (Level::DEBUG, Threshold::Off));
    }

    /// Whatever order it is said in, the same holds.
    #[test]
    fn the_order_of_arrival_does_not_matter() {
        let entries = [entry("a/*", Level::INFO), entry("a/**", Level::DEBUG)];
        let of = |entries: [&LevelEntry; 2]| {
            Rules::new(entries, &[], Level::default(), Threshold::default())
        };
        assert_eq!(of([&entries[0], &entries[1]]), of([&entries[1], &entries[0]]));
    }
}
