//! What a topic's writers are told of their samples: how far they are in the journal and on the
//! disk, and what is missing.
//!
//! Constraints. By what is so, not by what has happened: each writer that lives is told how far it
//! is durable unless it was told that already, so that no lost word, late writer or session that
//! was away for a while leaves one that is never told. All of them are gone through at each look;
//! between two looks those alone of whom something is new.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use helio_core::TopicName;

use super::{Order, Who};
use crate::post::{Stored, Verdict};
use crate::tables::{Stand, State, WriterWord};

/// How soon a writer is asked again to send what is missing: twice as long each time, up to the
/// longest, while nothing of it comes.
const MISSING: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// How long after a producer's samples could not be kept it is tried again.
const REFUSED: Duration = Duration::from_secs(10);
/// The most producers of which it is remembered that something is to be told.
const MAX_PRODUCERS: usize = 65_536;

/// The letters of one topic.
#[derive(Default)]
pub(super) struct Letters {
    /// What each writer was told last, by session.
    told: HashMap<(String, Who), Stored>,
    /// Who does not know what it was told.
    repeats: HashSet<Who>,
    /// Whose samples are missing, to be asked for.
    missing: HashSet<Who>,
    /// When they were asked for, and how long they are waited for.
    asked: HashMap<Who, (Instant, Duration)>,
    /// Whose samples cannot be kept, since when, and why.
    refused: HashMap<Who, (Instant, String)>,
    /// Incarnations that have taken over without having a sample here.
    fenced: HashMap<Who, u64>,
    /// Who may have to be told something, and whether everybody may.
    due: HashSet<Who>,
    all: bool,
}

/// How far each producer's samples are.
pub(super) struct Marks<'a> {
    /// In the journal; none where nobody waits for that.
    pub(super) appended: Option<&'a HashMap<Who, Order>>,
    /// On the disk.
    pub(super) durable: &'a HashMap<Who, Order>,
}

impl Letters {
    /// Everybody may have to be told something.
    pub(super) fn look(&mut self) {
        self.all = true;
        for waiting in [&mut self.repeats, &mut self.missing] {
            if waiting.len() > MAX_PRODUCERS {
                waiting.clear();
            }
        }
        if self.asked.len() > MAX_PRODUCERS {
            self.asked.clear();
        }
        // What was asked for and has not come may have been lost, and nothing comes that says so.
        let now = Instant::now();
        let over = self.asked.iter_mut();
        for (who, (at, patience)) in over.filter(|(_, (at, of))| now.duration_since(*at) >= *of) {
            (*at, *patience) = (now, MISSING[1].min(*patience * 2));
            self.missing.insert(who.clone());
        }
    }

    /// Whether somebody may have to be told something.
    pub(super) fn is_due(&self) -> bool {
        self.all || !self.due.is_empty()
    }

    /// More of a producer's is on the disk.
    pub(super) fn synced(&mut self, who: Who) {
        self.due.insert(who);
    }

    /// What a producer has sent was known: it is told once more.
    pub(super) fn repeat(&mut self, who: Who) {
        self.due.insert(who.clone());
        self.repeats.insert(who);
    }

    /// Samples of a producer are missing; they are asked for, not too often.
    pub(super) fn ask(&mut self, who: Who) {
        let now = Instant::now();
        let patience = match self.asked.get(&who) {
            Some((at, patience)) if now.duration_since(*at) < *patience => return,
            Some((_, patience)) => MISSING[1].min(*patience * 2),
            None => MISSING[0],
        };
        self.asked.insert(who.clone(), (now, patience));
        self.due.insert(who.clone());
        self.missing.insert(who);
    }

    /// A sample of a producer was taken.
    pub(super) fn took(&mut self, who: &Who) {
        self.asked.remove(who);
        self.refused.remove(who);
        self.due.insert(who.clone());
    }

    /// A producer's samples cannot be kept. True where that is new.
    pub(super) fn refuse(&mut self, who: Who, cause: &str) -> bool {
        let before = self.refused.insert(who.clone(), (Instant::now(), cause.to_owned()));
        self.repeat(who);
        before.is_none_or(|(_, before)| before != cause)
    }

    /// Whether a producer is not to be tried again yet.
    pub(super) fn is_refused(&self, who: &Who) -> bool {
        self.refused.get(who).is_some_and(|(since, _)| since.elapsed() < REFUSED)
    }

    /// Whether its samples could not be kept the last time.
    pub(super) fn refuses(&self, who: &Who) -> bool {
        self.refused.contains_key(who)
    }

    /// A newer incarnation of a producer has taken over.
    pub(super) fn fence(&mut self, who: Who, newer: u64) {
        self.due.insert(who.clone());
        self.fenced.insert(who, newer);
    }

    /// A letter that did not go out.
    pub(super) fn untold(&mut self, session: &str, letter: &Stored) {
        let stand = &letter.stand;
        let who = (stand.partition, stand.producer.clone());
        if letter.verdict == Some(Verdict::Again) {
            self.missing.insert(who.clone());
        }
        self.told.remove(&(session.to_owned(), who));
    }

    /// Adds what is to be told, each with the writer's session.
    pub(super) fn write(
        &mut self,
        topic: &TopicName,
        marks: &Marks<'_>,
        state: &State,
        into: &mut Vec<(String, Stored)>,
    ) {
        let due = std::mem::take(&mut self.due);
        if std::mem::take(&mut self.all) {
            self.told.retain(|(session, _), _| state.live.contains(session));
            let live = state.writers(topic).filter(|(session, _)| state.live.contains(*session));
            live.for_each(|writer| self.tell(topic, writer, marks, into));
            return;
        }
        for (partition, producer) in &due {
            let writers = state.writers_of(topic, (*partition, producer));
            let live = writers.filter(|(session, _)| state.live.contains(*session));
            live.for_each(|writer| self.tell(topic, writer, marks, into));
        }
    }

    /// Adds what one writer is to be told, if anything.
    fn tell(
        &mut self,
        topic: &TopicName,
        (session, writer): (&str, &WriterWord),
        marks: &Marks<'_>,
        into: &mut Vec<(String, Stored)>,
    ) {
        let who = (writer.partition, writer.producer.clone());
        let letter = writer.open.then(|| self.letter(topic, writer, &who, marks)).flatten();
        let Some(letter) = letter else { return };
        // Each time that it is asked, though it was so before.
        let again = letter.verdict == Some(Verdict::Again);
        let repeats = self.repeats.remove(&who) || again;
        let place = (session.to_owned(), who);
        if repeats || self.told.get(&place) != Some(&letter) {
            into.push((place.0.clone(), letter.clone()));
            self.told.insert(place, letter);
        }
    }

    fn letter(
        &mut self,
        topic: &TopicName,
        writer: &WriterWord,
        who: &Who,
        marks: &Marks<'_>,
    ) -> Option<Stored> {
        let incarnation = writer.incarnation;
        let durable = marks.durable.get(who);
        let newest = durable.map_or(0, |order| order.0);
        let newer = newest.max(self.fenced.get(who).copied().unwrap_or(0));
        let of_its = |order: Option<&Order>| {
            order.filter(|order| order.0 == incarnation).map_or(0, |order| order.1)
        };
        let sequence = of_its(durable);
        let appended = of_its(marks.appended.and_then(|appended| appended.get(who)));
        // Where it is no more than what is durable, it says nothing.
        let appended = if appended > sequence { appended } else { 0 };
        let verdict = if newer > incarnation {
            Some(Verdict::Fenced { newer })
        } else if let Some((_, cause)) = self.refused.get(who) {
            Some(Verdict::Refused { cause: cause.clone() })
        } else {
            self.missing.remove(who).then_some(Verdict::Again)
        };
        if verdict.is_none() && sequence == 0 && appended == 0 {
            return None;
        }
        let (partition, producer) = who.clone();
        let stand = Stand { partition, producer, incarnation, sequence, ways: [0; 2] };
        Some(Stored { topic: topic.clone(), stand, appended, verdict })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use crate::tables::Word;

    fn who() -> Who {
        (0, "Mount".parse().unwrap())
    }

    /// A writer's word is heard.
    fn hear(state: &mut State, session: &str, incarnation: u64, open: bool) {
        let (partition, producer) = who();
        let (seen, quiet, claim) = (0, 0, None);
        let writer = WriterWord { partition, producer, incarnation, open, seen, quiet, claim };
        let word = Word::Writer { topic: "kept".parse().unwrap(), writer };
        let key = word.key();
        state.live.insert(session.to_owned());
        state.hear(session, &key, Some(word), Duration::ZERO);
    }

    fn written(letters: &mut Letters, state: &State, order: Order) -> Vec<(String, u64, bool)> {
        letters.look();
        let all = told(letters, state, (order, order));
        let fenced = |letter: &Stored| matches!(letter.verdict, Some(Verdict::Fenced { .. }));
        let all = all.into_iter();
        all.map(|(to, letter)| (to, letter.stand.sequence, fenced(&letter))).collect()
    }

    /// What is told by what is in the journal, and on the disk.
    fn told(
        letters: &mut Letters,
        state: &State,
        (appended, durable): (Order, Order),
    ) -> Vec<(String, Stored)> {
        let mut all = Vec::new();
        let [appended, durable] = [appended, durable].map(|order| HashMap::from([(who(), order)]));
        let marks = Marks { appended: Some(&appended), durable: &durable };
        letters.write(&"kept".parse().unwrap(), &marks, state, &mut all);
        all
    }

    #[test]
    fn what_is_in_the_journal_is_said_before_it_is_on_the_disk_and_neither_twice() {
        let (mut letters, mut state) = (Letters::default(), State::default());
        hear(&mut state, "a", 7, true);
        let marks = |letters: &mut Letters, appended, durable| {
            let told = told(letters, &state, ((7, appended), (7, durable)));
            let of = |(_, letter): (String, Stored)| (letter.appended, letter.stand.sequence);
            told.into_iter().map(of).collect::<Vec<_>>()
        };
        letters.took(&who());
        assert_eq!(marks(&mut letters, 3, 1), [(3, 1)]);
        assert_eq!(marks(&mut letters, 3, 3), [], "nobody is due");
        letters.synced(who());
        assert_eq!(marks(&mut letters, 3, 3), [(0, 3)]);
        letters.synced(who());
        letters.took(&who());
        assert_eq!(marks(&mut letters, 3, 3), []);
        letters.took(&(1, who().1));
        assert_eq!(marks(&mut letters, 4, 3), [], "another partition's is none of its business");
    }

    #[test]
    fn an_older_services_letter_says_what_is_durable_alone() {
        let old = r#"{"topic":"kept","stand":{"partition":0,"producer":"Mount","incarnation":7,
            "sequence":3}}"#;
        let Stored { stand, appended, .. } = serde_json::from_str(old).unwrap();
        assert_eq!((stand.sequence, appended), (3, 0));
    }

    #[test]
    fn a_writer_that_is_heard_of_late_is_told_and_nobody_twice() {
        let (mut letters, mut state) = (Letters::default(), State::default());
        assert_eq!(written(&mut letters, &state, (7, 3)), [], "nobody is known");
        hear(&mut state, "a", 7, true);
        assert_eq!(written(&mut letters, &state, (7, 3)), [("a".to_owned(), 3, false)]);
        assert_eq!(written(&mut letters, &state, (7, 3)), []);
        letters.repeat(who());
        assert_eq!(written(&mut letters, &state, (7, 3)), [("a".to_owned(), 3, false)]);
        // It was away, and came back with the same name.
        state.end("a");
        assert_eq!(written(&mut letters, &state, (7, 3)), []);
        hear(&mut state, "a", 7, true);
        assert_eq!(written(&mut letters, &state, (7, 3)), [("a".to_owned(), 3, false)]);
        hear(&mut state, "a", 7, false);
        assert_eq!(written(&mut letters, &state, (7, 4)), [], "it has closed");
    }

    #[test]
    fn an_incarnation_below_what_is_here_is_told_that_it_is_fenced() {
        let (mut letters, mut state) = (Letters::default(), State::default());
        hear(&mut state, "late", 6, true);
        hear(&mut state, "new", 8, true);
        assert_eq!(written(&mut letters, &state, (7, 3)), [("late".to_owned(), 0, true)]);
    }

    #[test]
    fn what_is_missing_is_asked_for_ever_more_seldom() {
        let (mut letters, mut state) = (Letters::default(), State::default());
        hear(&mut state, "a", 7, true);
        letters.ask(who());
        letters.ask(who());
        assert_eq!(written(&mut letters, &state, (7, 3)).len(), 1);
        assert_eq!(letters.asked[&who()].1, MISSING[0], "once for all that come too early");
        letters.asked.get_mut(&who()).unwrap().0 -= MISSING[0];
        letters.ask(who());
        assert_eq!(letters.asked[&who()].1, 2 * MISSING[0]);
        letters.took(&who());
        assert!(letters.asked.is_empty());
    }

    #[test]
    fn a_writer_of_which_nothing_is_there_is_asked_until_something_comes() {
        let (mut letters, mut state) = (Letters::default(), State::default());
        hear(&mut state, "a", 7, true);
        letters.ask(who());
        for _ in 0..3 {
            assert_eq!(written(&mut letters, &state, (6, 9)), [("a".to_owned(), 0, false)]);
            let asked = letters.asked.get_mut(&who()).unwrap();
            asked.0 -= asked.1;
        }
        letters.took(&who());
        assert_eq!(written(&mut letters, &state, (7, 1)), [("a".to_owned(), 1, false)]);
        assert_eq!(written(&mut letters, &state, (7, 1)), []);
    }
}
