//! The demo's books: what writers say was acknowledged, what readers say they got, and the
//! difference. No bus, no clock: numbers in, verdicts out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One producer's incarnation on one topic; the demo's topics have one partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) topic: String,
    pub(crate) producer: String,
    pub(crate) incarnation: u64,
}

/// What a writer has receipts for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Acknowledged {
    /// The last acknowledged sequence number; the first is 1.
    pub(crate) last: u64,
    /// Payload bytes so far.
    pub(crate) bytes: u64,
}

/// What a reader saw of one source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Samples, each counted once.
    pub(crate) count: u64,
    /// The highest sequence number.
    pub(crate) last: u64,
    /// Numbers that were passed over.
    pub(crate) holes: u64,
    /// Numbers that came again or too late.
    pub(crate) repeats: u64,
}

impl Seen {
    /// Takes note of a sample.
    pub(crate) fn note(&mut self, sequence: u64) {
        if sequence <= self.last {
            self.repeats += 1;
            return;
        }
        self.count += 1;
        self.holes += sequence - self.last - 1;
        self.last = sequence;
    }

    /// How many acknowledged samples are missing.
    pub(crate) fn lost(&self, acknowledged: Acknowledged) -> u64 {
        self.holes + acknowledged.last.saturating_sub(self.last)
    }
}

/// What all writers have said.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Books(pub(crate) Vec<(Source, Acknowledged)>);

impl Books {
    /// Takes note of a receipt.
    pub(crate) fn note(&mut self, source: &Source, acknowledged: Acknowledged) {
        match self.0.iter_mut().find(|(known, _)| known == source) {
            Some((_, before)) => *before = acknowledged,
            None => self.0.push((source.clone(), acknowledged)),
        }
    }

    /// What was acknowledged on a topic, over all its sources.
    pub(crate) fn of_topic(&self, topic: &str) -> Acknowledged {
        let ours = self.0.iter().filter(|(source, _)| source.topic == topic);
        ours.fold(Acknowledged::default(), |sum, (_, one)| Acknowledged {
            last: sum.last + one.last,
            bytes: sum.bytes + one.bytes,
        })
    }

    /// All acknowledged samples.
    pub(crate) fn samples(&self) -> u64 {
        self.0.iter().map(|(_, one)| one.last).sum()
    }
}

/// What a reader saw, by source.
pub(crate) type SeenBySource = Vec<(Source, Seen)>;

/// How many acknowledged samples of a topic a reader misses. A source that it never saw is missing
/// whole.
pub(crate) fn lost(books: &Books, seen: &SeenBySource, topic: &str) -> u64 {
    let seen: BTreeMap<&Source, &Seen> = seen.iter().map(|(source, seen)| (source, seen)).collect();
    let ours = books.0.iter().filter(|(source, _)| source.topic == topic);
    ours.map(|(source, acknowledged)| match seen.get(source) {
        Some(seen) => seen.lost(*acknowledged),
        None => acknowledged.last,
    })
    .sum()
}

/// Whether a reader has everything that was acknowledged on the topics that it reads.
pub(crate) fn complete(books: &Books, seen: &SeenBySource, topics: &[String]) -> bool {
    let reached = |source: &Source, last: u64| {
        seen.iter().any(|(known, seen)| known == source && seen.last >= last)
    };
    let ours = books.0.iter().filter(|(source, _)| topics.contains(&source.topic));
    ours.filter(|(_, one)| one.last > 0).all(|(source, one)| reached(source, one.last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(incarnation: u64) -> Source {
        Source { topic: "a".into(), producer: "p".into(), incarnation }
    }

    fn seen(sequences: &[u64]) -> Seen {
        let mut seen = Seen::default();
        sequences.iter().for_each(|s| seen.note(*s));
        seen
    }

    #[test]
    fn holes_repeats_and_missing_ends_are_told_apart() {
        let acknowledged = Acknowledged { last: 5, bytes: 0 };
        assert_eq!(seen(&[1, 2, 3, 4, 5]).lost(acknowledged), 0);
        assert_eq!(seen(&[1, 2, 4, 5]).lost(acknowledged), 1);
        assert_eq!(seen(&[3, 4, 5]).lost(acknowledged), 2);
        assert_eq!(seen(&[1, 2, 3]).lost(acknowledged), 2);
        assert_eq!(seen(&[1, 2, 3, 4, 5, 6]).lost(acknowledged), 0, "stored, not yet told");
        assert_eq!(seen(&[1, 2, 2, 1]).repeats, 2);
    }

    #[test]
    fn every_incarnation_has_its_own_account() {
        let mut books = Books::default();
        books.note(&source(1), Acknowledged { last: 3, bytes: 30 });
        books.note(&source(2), Acknowledged { last: 1, bytes: 10 });
        books.note(&source(2), Acknowledged { last: 2, bytes: 20 });
        assert_eq!(books.of_topic("a"), Acknowledged { last: 5, bytes: 50 });
        let one = vec![(source(1), seen(&[1, 2, 3]))];
        assert_eq!(lost(&books, &one, "a"), 2, "the second incarnation was never seen");
        assert!(!complete(&books, &one, &["a".into()]));
        let both = vec![(source(1), seen(&[1, 2, 3])), (source(2), seen(&[1, 2]))];
        assert_eq!((lost(&books, &both, "a"), books.samples()), (0, 5));
        assert!(complete(&books, &both, &["a".into()]));
    }
}
