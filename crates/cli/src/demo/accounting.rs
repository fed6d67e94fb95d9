//! Accounting of the demo: acknowledged samples of writers, received samples of readers, and the
//! difference, without I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::messages::Called;

/// One producer's incarnation on one topic; the demo's topics have one partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) topic: String,
    pub(crate) producer: String,
    pub(crate) incarnation: u64,
}

/// A reader's counts of one source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceCounts {
    /// Samples, each counted once.
    pub(crate) count: u64,
    /// Their payloads.
    pub(crate) bytes: u64,
    /// The highest sequence number.
    pub(crate) last: u64,
    /// Skipped numbers.
    pub(crate) holes: u64,
    /// Duplicate or late numbers.
    pub(crate) repeats: u64,
}

impl SourceCounts {
    /// Counts a sample.
    pub(crate) fn note(&mut self, sequence: u64, bytes: usize) {
        if sequence <= self.last {
            self.repeats += 1;
            return;
        }
        self.count += 1;
        self.bytes += bytes as u64;
        self.holes += sequence - self.last - 1;
        self.last = sequence;
    }

    /// The number of missing samples, given the acknowledged ones.
    pub(crate) fn lost(&self, acknowledged: u64) -> u64 {
        self.holes + acknowledged.saturating_sub(self.last)
    }
}

/// A reader's counts by source.
pub(crate) type CountsBySource = Vec<(Source, SourceCounts)>;

/// The last sequence number with a receipt of each writer; the first is 1.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct AckedSequences(pub(crate) Vec<(Source, u64)>);

impl AckedSequences {
    /// Records a receipt.
    pub(crate) fn note(&mut self, source: Source, sequence: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == source) {
            Some((_, last)) => *last = sequence.max(*last),
            None => self.0.push((source, sequence)),
        }
    }

    /// The number of samples of a topic that a reader lacks. Sources without receipts, such as a
    /// component's heartbeat, count by the gaps in their numbers.
    pub(crate) fn lost(&self, seen: &CountsBySource, topic: &str) -> u64 {
        let ours = self.0.iter().filter(|(source, _)| source.topic == topic);
        let mut missing: BTreeMap<&Source, u64> =
            ours.map(|(source, last)| (source, *last)).collect();
        for (source, seen) in seen.iter().filter(|(source, _)| source.topic == topic) {
            let acknowledged = missing.get(source).copied().unwrap_or(0);
            missing.insert(source, seen.lost(acknowledged));
        }
        missing.values().sum()
    }

    /// Whether a reader has all acknowledged samples of its topics.
    pub(crate) fn all_in(&self, seen: &CountsBySource, topics: &[String]) -> bool {
        let reached = |source: &Source, last: u64| {
            seen.iter().any(|(known, seen)| known == source && seen.last >= last)
        };
        let ours = self.0.iter().filter(|(source, _)| topics.contains(&source.topic));
        ours.filter(|(_, last)| *last > 0).all(|(source, last)| reached(source, *last))
    }
}

/// SAL's numbers of one producer on one topic, over all its incarnations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Numbering {
    /// Each with its first and last `private_seqNum`.
    pub(crate) incarnations: Vec<(u64, i64, i64)>,
    /// How often a number did not follow the last one.
    pub(crate) breaks: u64,
}

impl Numbering {
    /// Takes note of a sample.
    pub(crate) fn note(&mut self, incarnation: u64, number: i64) {
        let before = self.incarnations.last().map(|(_, _, last)| *last);
        if before.is_some_and(|last| last + 1 != number) {
            self.breaks += 1;
        }
        match self.incarnations.last_mut() {
            Some((known, _, last)) if *known == incarnation => *last = number,
            _ => self.incarnations.push((incarnation, number, number)),
        }
    }

    /// Whether the numbers continued from one incarnation to the next.
    pub(crate) fn goes_on(&self) -> bool {
        let grows = self.incarnations.windows(2).all(|pair| pair[0].0 < pair[1].0);
        self.incarnations.len() > 1 && grows && self.breaks == 0
    }
}

/// A command's identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CommandId {
    pub(crate) component: String,
    pub(crate) index: i32,
    pub(crate) identity: String,
    pub(crate) origin: i32,
    pub(crate) seq_num: i32,
}

/// The recorder's counts of commands.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Commands {
    pub(crate) sent: Vec<CommandId>,
    /// Final acknowledgements, with their codes.
    pub(crate) acks: Vec<(CommandId, i32)>,
    /// Ends in the audit, with their codes.
    pub(crate) audits: Vec<(CommandId, i32)>,
}

/// The faults of a run's commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Faults {
    /// Commands with an unexpected outcome.
    pub(crate) unexpected: u64,
    /// Sent and not recorded, or recorded and not sent.
    pub(crate) unrecorded: u64,
    /// Ended by an acknowledgement that was not recorded once and with the same code.
    pub(crate) unacknowledged: u64,
    /// Acknowledged, and not in the audit once and with the same code.
    pub(crate) unaudited: u64,
}

impl Faults {
    /// Compares the callers' reports with the recorded commands.
    pub(crate) fn of(calls: &[Called], recorded: &Commands) -> Self {
        let sent: BTreeSet<&CommandId> = calls.iter().filter_map(|call| call.id.as_ref()).collect();
        let seen: BTreeSet<&CommandId> = recorded.sent.iter().collect();
        let repeated = recorded.sent.len() - seen.len();
        let ended = || calls.iter().filter(|call| call.acknowledged);
        let once = |list: &[(CommandId, i32)]| {
            let mut codes: BTreeMap<&CommandId, Vec<i32>> = BTreeMap::new();
            list.iter().for_each(|(id, code)| codes.entry(id).or_default().push(*code));
            let told = |call: &&Called| {
                let id = call.id.as_ref();
                id.and_then(|id| codes.get(id)).is_some_and(|codes| *codes == [call.code])
            };
            ended().filter(|call| !told(call)).count() as u64
        };
        Self {
            unexpected: calls.iter().filter(|call| !call.met).count() as u64,
            unrecorded: (sent.symmetric_difference(&seen).count() + repeated) as u64,
            unacknowledged: once(&recorded.acks),
            unaudited: once(&recorded.audits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(incarnation: u64) -> Source {
        Source { topic: "a".into(), producer: "p".into(), incarnation }
    }

    fn seen(sequences: &[u64]) -> SourceCounts {
        let mut seen = SourceCounts::default();
        sequences.iter().for_each(|s| seen.note(*s, 10));
        seen
    }

    #[test]
    fn holes_repeats_and_missing_ends_are_told_apart() {
        assert_eq!(seen(&[1, 2, 3, 4, 5]).lost(5), 0);
        assert_eq!(seen(&[1, 2, 4, 5]).lost(5), 1);
        assert_eq!(seen(&[3, 4, 5]).lost(5), 2);
        assert_eq!(seen(&[1, 2, 3]).lost(5), 2);
        assert_eq!(seen(&[1, 2, 3, 4, 5, 6]).lost(5), 0, "stored, not yet told");
        assert_eq!(seen(&[1, 2, 2, 1]).repeats, 2);
        assert_eq!(seen(&[1, 2, 2]).bytes, 20);
    }

    #[test]
    fn every_incarnation_has_its_own_account() {
        let mut books = AckedSequences::default();
        books.note(source(1), 3);
        books.note(source(2), 1);
        books.note(source(2), 2);
        let one = vec![(source(1), seen(&[1, 2, 3]))];
        assert_eq!(books.lost(&one, "a"), 2, "the second incarnation was never seen");
        assert!(!books.all_in(&one, &["a".into()]));
        let both = vec![(source(1), seen(&[1, 2, 3])), (source(2), seen(&[1, 2]))];
        assert_eq!(books.lost(&both, "a"), 0);
        assert!(books.all_in(&both, &["a".into()]));
        let more = vec![(source(3), seen(&[1, 3]))];
        assert_eq!(AckedSequences::default().lost(&more, "a"), 1, "holes count without receipts");
    }

    #[test]
    fn numbers_go_on_or_break() {
        let noted = |samples: &[(u64, i64)]| {
            let mut numbering = Numbering::default();
            samples.iter().for_each(|(incarnation, number)| numbering.note(*incarnation, *number));
            numbering
        };
        let goes_on = noted(&[(1, 7), (1, 8), (2, 9)]);
        assert!(goes_on.goes_on());
        assert_eq!(goes_on.incarnations, [(1, 7, 8), (2, 9, 9)]);
        assert!(!noted(&[(1, 7), (1, 8)]).goes_on(), "there was one life only");
        assert!(!noted(&[(1, 7), (1, 8), (2, 1)]).goes_on());
        assert!(!noted(&[(2, 7), (1, 8)]).goes_on());
    }

    #[test]
    fn a_command_is_followed_through_its_life() {
        let id = |seq_num| CommandId {
            component: "Dome".into(),
            index: 0,
            identity: "me".into(),
            origin: 1,
            seq_num,
        };
        let call = |seq_num, code| Called {
            id: Some(id(seq_num)),
            command: "open".into(),
            code,
            acknowledged: true,
            met: true,
            took_ns: 1,
        };
        let calls = [call(1, 303), call(2, -302)];
        let recorded = Commands {
            sent: vec![id(1), id(2)],
            acks: vec![(id(1), 303), (id(2), -302)],
            audits: vec![(id(1), 303), (id(2), -302)],
        };
        assert_eq!(Faults::of(&calls, &recorded), Faults::default());
        let twice = Commands { acks: vec![(id(1), 303), (id(1), 303)], ..recorded.clone() };
        let faults = Faults { unacknowledged: 2, ..Faults::default() };
        assert_eq!(Faults::of(&calls, &twice), faults);
        let other = Commands { audits: vec![(id(1), 303), (id(2), 303)], ..recorded.clone() };
        assert_eq!(Faults::of(&calls, &other), Faults { unaudited: 1, ..Faults::default() });
        let fewer = Faults { unrecorded: 1, ..Faults::default() };
        assert_eq!(Faults::of(&calls[..1], &recorded), fewer);
    }
}
