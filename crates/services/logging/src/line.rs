//! Formats a record as a line.

use std::fmt::Write as _;
use std::io::IsTerminal;

use crate::level::Level;
use crate::record::Record;

/// Whether lines are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Coloured by level.
    Yes,
    /// Without colours, for a file or another program.
    No,
}

impl Colours {
    /// Colours on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb` or missing.
    #[must_use]
    pub fn of(output: &impl IsTerminal) -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let shows = set("TERM").is_some_and(|term| term != "dumb") && set("NO_COLOR").is_none();
        if shows && output.is_terminal() { Self::Yes } else { Self::No }
    }
}

/// A level's colours (ECMA-48, Select Graphic Rendition).
fn colour(level: Level) -> &'static str {
    match level {
        level if level >= Level::ALERT => "1;37;41",
        level if level >= Level::CRITICAL => "1;31",
        level if level >= Level::ERROR => "31",
        level if level >= Level::WARNING => "33",
        level if level >= Level::NOTICE => "36",
        level if level >= Level::INFO => "32",
        _ => "2",
    }
}

/// A record as one line: time (UTC, microseconds), level, logger, message, data. Control characters
/// are escaped.
#[must_use]
pub fn line(record: &Record, colours: Colours) -> String {
    let time = record.time.to_utc_string();
    // Lines show microseconds.
    let mut out = format!("{}Z ", time.get(..time.len() - 4).unwrap_or(&time));
    let level = record.level;
    match colours {
        Colours::Yes => _ = write!(out, "\x1b[{}m{level:<9}\x1b[0m ", colour(level)),
        Colours::No => _ = write!(out, "{level:<9} "),
    }
    plain(&mut out, &record.logger);
    out.push_str(": ");
    plain(&mut out, &record.message());
    for (name, value) in &record.data {
        out.push(' ');
        plain(&mut out, name);
        out.push('=');
        plain(&mut out, &value.to_string());
    }
    out
}

fn plain(out: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::Tai;

    fn record(level: Level, text: &str) -> Record {
        let time: Tai = "2026-11-21T03:00:00.123456789Z".parse().unwrap();
        Record::new(time, level, "CONTROL/DV11", text)
    }

    #[test]
    fn a_record_is_one_line_whatever_is_in_it() {
        let mut record = record(Level::WARNING, "axis\n\x1b[2Joff\u{202e}\u{9b}");
        record.data = vec![("a".to_owned(), 3_i64.into()), ("b".to_owned(), "x y".into())];
        assert_eq!(
            line(&record, Colours::No),
            "2026-11-21T03:00:00.123456Z WARNING   CONTROL/DV11: \
             axis\\n\\u{1b}[2Joff\\u{202e}\\u{9b} a=3 b=x y"
        );
    }

    #[test]
    fn what_is_grave_stands_out() {
        let shown = |level| line(&record(level, "m"), Colours::Yes);
        assert!(shown(Level::EMERGENCY).contains("\x1b[1;37;41mEMERGENCY\x1b[0m CONTROL"));
        let colours: Vec<_> = (1..=11).filter_map(Level::new).map(colour).collect();
        let expected = ["2", "2", "2", "32", "36", "33", "33", "31", "1;31", "1;37;41", "1;37;41"];
        assert_eq!(colours, expected);
    }
}
