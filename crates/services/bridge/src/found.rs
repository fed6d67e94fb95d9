//! What a partition of the target has of the source, held against what the source hands out: a new
//! bridge reads its predecessor's last samples once more.
//!
//! What is there is passed over. What is not, though others behind it are, was refused and not
//! given again before that bridge was killed. And where the source has another sample at the place
//! of one that is there, its log was cut or made anew, and its offsets say nothing.

use std::collections::BTreeMap;

use helio_bus::{ProducerName, Tai};

use crate::hops::Mark;
use crate::lane::Order;

/// The most samples that are held against the source.
const MAX_HELD: usize = 16_384;

/// Whose sample it is, as far as two buses agree on that.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) name: ProducerName,
    pub(crate) order: Order,
    pub(crate) time: Tai,
    /// Who goes by the bus's own name has no numbers of his own.
    is_nameless: bool,
}

impl Who {
    /// Of a sample of this bus.
    pub(crate) fn new(name: &ProducerName, (order, time): (Order, Tai), bus: &str) -> Self {
        Self { name: name.clone(), order, time, is_nameless: name.as_str() == bus }
    }
}

impl PartialEq for Who {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.time == other.time
            && (self.is_nameless || self.order == other.order)
    }
}

/// What a sample of the source is to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was settled before.
    There,
    /// It is not there, and later ones are.
    Missing,
    /// It lies before all that is remembered.
    Older,
    /// Another one of this offset is there.
    Other,
}

/// Samples of the source that are on the target.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    there: BTreeMap<u64, Who>,
    /// All below was settled.
    low: u64,
    /// The first that was never given to the target.
    upto: u64,
    /// Where it is read from.
    begin: u64,
    /// Whether a sample of the source is the one that is there.
    agrees: bool,
}

impl Found {
    /// Nothing but a position, and the newest sample below it where that is known.
    pub(crate) fn kept(next: u64, last: Option<(u64, Who)>) -> Self {
        let there: BTreeMap<_, _> = last.into_iter().collect();
        let begin = there.keys().next().copied().unwrap_or(next);
        Self { there, low: next, upto: next, begin, agrees: false }
    }

    /// What samples say, newest first; none where there are none.
    pub(crate) fn of(samples: impl IntoIterator<Item = (Mark, Who)>) -> Option<Self> {
        let mut samples = samples.into_iter().peekable();
        let (newest, _) = *samples.peek().map(|(mark, who)| (mark, who)).as_ref()?;
        let Mark { low, high, .. } = *newest;
        let mut there = BTreeMap::new();
        for (mark, who) in samples.take(MAX_HELD) {
            // Of two with one offset the newer one is that of the log as it is now.
            there.entry(mark.offset).or_insert(who);
        }
        let begin = there.range(..=low).next_back().map_or(low, |(offset, _)| *offset);
        Some(Self { there, low, upto: high + 1, begin, agrees: false })
    }

    /// Goes on behind a position that was kept, where that is newer.
    pub(crate) fn or_later(mut self, kept: Self) -> Self {
        if kept.low <= self.upto {
            return self;
        }
        (self.low, self.upto, self.begin) = (kept.low, kept.upto, kept.begin);
        self.there.extend(kept.there);
        self
    }

    /// The newest that was given to the target.
    pub(crate) fn high(&self) -> Option<u64> {
        self.upto.checked_sub(1).filter(|_| !self.there.is_empty())
    }

    /// Whose samples are there.
    pub(crate) fn orders(&self) -> impl Iterator<Item = (&ProducerName, Order)> {
        self.there.values().map(|who| (&who.name, who.order))
    }

    /// Where a log of the source from `first` to `end` is read from.
    pub(crate) fn start(&mut self, first: u64, end: u64) -> u64 {
        if end < self.upto {
            // It has lost some, or is another one.
            self.back();
        }
        while self.begin > end && self.begin > 0 {
            self.back();
        }
        match self.begin {
            begin if begin >= first => begin,
            _ if first < self.upto => first,
            // What was removed before it was forwarded is told as a gap.
            _ => self.upto,
        }
    }

    /// Begins further back: with the oldest that is remembered, then with the first there is.
    fn back(&mut self) {
        let oldest = self.there.keys().next().copied().unwrap_or(0);
        self.begin = if oldest < self.begin { oldest } else { 0 };
    }

    /// What a sample of the source is; none behind all that the target has.
    pub(crate) fn check(&mut self, offset: u64, who: &Who) -> Option<Verdict> {
        if offset >= self.upto {
            return None;
        }
        let oldest = self.there.keys().next().copied();
        Some(match self.there.get(&offset) {
            Some(there) if there == who => {
                self.agrees = true;
                Verdict::There
            }
            Some(_) => Verdict::Other,
            None if offset >= self.low => Verdict::Missing,
            None if oldest.is_some_and(|oldest| oldest < offset) => Verdict::There,
            None => Verdict::Older,
        })
    }

    /// The source has another log from here on: whether it is read from further back. Otherwise all
    /// that comes is new.
    pub(crate) fn differs(&mut self) -> bool {
        let again = !self.agrees && self.begin > 0;
        if again {
            self.back();
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(number: u64) -> Who {
        let name = ProducerName::new("Mount").unwrap();
        Who::new(&name, ((1, number), Tai::from_nanos(0)), "bus")
    }

    fn mark(offset: u64, low: u64) -> Mark {
        Mark { offset, low, high: offset }
    }

    #[test]
    fn what_was_settled_is_passed_and_what_is_missing_is_seen() {
        let samples = [(14, 11), (13, 11), (12, 11), (10, 10)];
        let samples = samples.map(|(offset, low)| (mark(offset, low), who(offset)));
        let mut found = Found::of(samples).unwrap();
        assert_eq!(found.start(0, 20), 10);
        let verdicts: Vec<_> = (10..16).map(|at| found.check(at, &who(at))).collect();
        let there = Some(Verdict::There);
        assert_eq!(verdicts, [there, Some(Verdict::Missing), there, there, there, None]);
    }

    #[test]
    fn a_log_that_was_cut_is_gone_on_with_where_it_was_cut() {
        let samples = (0..20).rev().map(|at| (Mark::alone(at), who(at)));
        let mut found = Found::of(samples).unwrap();
        assert_eq!(found.start(0, 25), 19);
        assert_eq!(found.check(19, &who(99)), Some(Verdict::Other));
        assert!(found.differs(), "it is read from further back");
        assert_eq!(found.start(0, 25), 0);
        assert_eq!(found.check(14, &who(14)), Some(Verdict::There));
        assert_eq!(found.check(15, &who(90)), Some(Verdict::Other));
        assert!(!found.differs(), "here it was cut");
        // Fewer than there were.
        let mut found = Found::kept(20, Some((19, who(19))));
        assert_eq!(found.start(0, 5), 0);
        assert_eq!(found.check(0, &who(90)), Some(Verdict::Older));
    }

    #[test]
    fn what_retention_took_is_no_reason_to_begin_anew() {
        let samples = (0..20).rev().map(|at| (Mark::alone(at), who(at)));
        let mut found = Found::of(samples).unwrap();
        assert_eq!(found.start(30, 40), 20, "the gap is told from here");
        assert_eq!(found.clone().or_later(Found::kept(25, None)).start(0, 40), 25);
        assert_eq!(found.or_later(Found::kept(15, None)).start(0, 40), 19);
    }
}
