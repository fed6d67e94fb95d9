//! What a partition of the target has of the source, held against what the source hands out: a new
//! bridge reads its predecessor's last samples once more.
//!
//! What is there is passed over. What is not, though others behind it are, was refused and not
//! given again before that bridge was killed. And where the source has another sample at the place
//! of one that is there, its log was cut or made anew, and its offsets say nothing: it is read from
//! further back, each sample is known by itself only, and of those that are not known the ones that
//! are older than all that the target has are those of before.

use std::collections::BTreeMap;

use helio_bus::{Bus, ProducerName, Tai};

use crate::hops::Mark;
use crate::lane::Order;

/// The most samples that are held against the source.
pub(crate) const MAX_HELD: usize = 16_384;

/// Who has published on a bus what has no producer of ours.
#[derive(Debug, Clone)]
pub(crate) struct Nameless {
    /// What they are called on other buses: the bus.
    pub(crate) name: ProducerName,
    /// What the engine calls them, which is the same on all its buses.
    stand_in: String,
}

impl Nameless {
    pub(crate) fn of(bus: &Bus, name: &str) -> Self {
        Self::new(name, &bus.capabilities().transport)
    }

    fn new(bus: &str, stand_in: &str) -> Self {
        let name = ProducerName::new(bus).or_else(|_| ProducerName::new(&legal(bus)));
        let name = name.expect("letters, digits and what stands between them are a name");
        Self { name, stand_in: stand_in.to_owned() }
    }

    /// Whether these are who the engine calls so.
    pub(crate) fn are(&self, name: &ProducerName) -> bool {
        name.as_str() == self.stand_in
    }

    /// What somebody is called on other buses.
    pub(crate) fn named(&self, name: &ProducerName) -> ProducerName {
        if self.are(name) { self.name.clone() } else { name.clone() }
    }
}

/// A bus's name as a producer's: what is not allowed there by its numbers.
fn legal(bus: &str) -> String {
    let mut name = String::from("bus-");
    for byte in bus.bytes().take(MAX_BUS_NAME) {
        match byte {
            b'-' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => name.push(byte.into()),
            _ => name.push_str(&format!(":{byte:02x}")),
        }
    }
    name
}

/// How much of a bus's name is told where it is no producer's: with all by their numbers it fits.
const MAX_BUS_NAME: usize = 64;

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
    /// Of a sample of the source, by the name there or by that on other buses.
    pub(crate) fn new(
        name: &ProducerName,
        (order, time): (Order, Tai),
        nameless: &Nameless,
    ) -> Self {
        let name = nameless.named(name);
        let is_nameless = name == nameless.name;
        Self { name, order, time, is_nameless }
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
    /// Another one of this offset is there, or none was.
    Other,
    /// Of a log that is another one: it is newer than all that is there.
    New,
    /// Of a log that is another one: it is not, and was forwarded from the one before.
    Older,
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
    /// When the newest of them was published; what is older was forwarded, or was not to be.
    newest: Option<Tai>,
    /// Whether a sample of the source is the one that is there.
    agrees: bool,
    /// The source's log is another one: its offsets say nothing.
    is_other: bool,
}

impl Found {
    /// Nothing but a position, and the newest sample below it, or since when it begins there, where
    /// that is known.
    pub(crate) fn kept(next: u64, last: Option<(u64, Who)>, since: Option<Tai>) -> Self {
        let newest = last.as_ref().map(|(_, who)| who.time).or(since);
        let there: BTreeMap<_, _> = last.into_iter().collect();
        let begin = there.keys().next().copied().unwrap_or(next);
        let (low, upto, agrees, is_other) = (next, next, false, false);
        Self { there, low, upto, begin, newest, agrees, is_other }
    }

    /// What samples say, newest first; none where there are none.
    pub(crate) fn of(samples: impl IntoIterator<Item = (Mark, Who)>) -> Option<Self> {
        let mut samples = samples.into_iter().peekable();
        let (newest, _) = *samples.peek().map(|(mark, who)| (mark, who)).as_ref()?;
        let Mark { low, high, .. } = *newest;
        let mut found = Self::kept(low, None, None);
        for (mark, who) in samples.take(MAX_HELD) {
            found.newest = found.newest.max(Some(who.time));
            // Of two with one offset the newer one is that of the log as it is now.
            found.there.entry(mark.offset).or_insert(who);
        }
        found.upto = high + 1;
        found.begin = found.newest_below();
        Some(found)
    }

    /// Where it is to be read from: with the newest that is there and before which all is settled.
    fn newest_below(&self) -> u64 {
        // What lies behind it is another log's.
        let below = self.there.range(..self.upto.min(self.low.saturating_add(1)));
        below.last().map_or(self.low, |(offset, _)| *offset)
    }

    /// With a position that was kept; of another log it says nothing.
    pub(crate) fn with(mut self, kept: Self) -> Self {
        let same = |(at, who)| self.there.get(at).is_none_or(|there| there == who);
        if !kept.there.iter().all(same) {
            return self;
        }
        // What retention or compaction has taken out of the target since is settled.
        (self.low, self.upto) = (self.low.max(kept.low), self.upto.max(kept.upto));
        self.newest = self.newest.max(kept.newest);
        self.there.extend(kept.there);
        self.begin = self.newest_below();
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
        if end < self.upto && !self.is_other {
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

    /// Whether it says nothing of what comes from a position on.
    pub(crate) fn is_past(&self, next: u64) -> bool {
        next >= self.upto
    }

    /// Whether the log is known to be another one.
    pub(crate) fn is_other(&self) -> bool {
        self.is_other
    }

    /// The log is another one. Begins further back: with the oldest that is remembered, then with
    /// the first there is.
    pub(crate) fn back(&mut self) {
        self.is_other = true;
        let oldest = self.there.keys().next().copied().unwrap_or(0);
        self.begin = if oldest < self.begin { oldest } else { 0 };
    }

    /// What a sample of the source is; none behind all that the target has.
    pub(crate) fn check(&mut self, offset: u64, who: &Who) -> Option<Verdict> {
        if offset >= self.upto {
            return None;
        }
        Some(match self.there.get(&offset) {
            Some(there) if there == who => {
                self.agrees = true;
                Verdict::There
            }
            Some(_) => Verdict::Other,
            None if self.is_other && self.newest.is_some_and(|newest| who.time <= newest) => {
                Verdict::Older
            }
            None if self.is_other => Verdict::New,
            None if offset >= self.low => Verdict::Missing,
            // If its log is another one, that shows at a later place, and it is read once more.
            None if self.there.range(offset..).next().is_some() => Verdict::There,
            None => Verdict::Other,
        })
    }

    /// The source has another log from here on: whether it is read again, now that this is known.
    /// Otherwise it was.
    pub(crate) fn differs(&mut self) -> bool {
        let again = !self.is_other || (!self.agrees && self.begin > 0);
        if again && !self.agrees {
            self.back();
        }
        self.is_other = true;
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample that was published then, with that number.
    fn who(number: u64) -> Who {
        by("Mount", number)
    }

    fn by(name: &str, number: u64) -> Who {
        let time = Tai::from_nanos(number.try_into().unwrap());
        Who::new(
            &ProducerName::new(name).unwrap(),
            ((1, number), time),
            &Nameless::new("kafka-x.", "kafka"),
        )
    }

    fn found(offsets: impl IntoIterator<Item = u64>) -> Found {
        Found::of(offsets.into_iter().map(|at| (Mark::alone(at), who(at)))).unwrap()
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
        let mut found = found((0..20).rev());
        assert_eq!(found.start(0, 25), 19);
        assert_eq!(found.check(19, &who(99)), Some(Verdict::Other));
        assert!(found.differs(), "it is read from further back");
        assert_eq!(found.start(0, 25), 0);
        assert_eq!(found.check(14, &who(14)), Some(Verdict::There));
        assert_eq!(found.check(15, &who(90)), Some(Verdict::Other));
        assert!(!found.differs(), "here it was cut");
    }

    #[test]
    fn of_a_log_that_was_cut_nothing_is_passed_for_its_place() {
        // What had come from the target lay between.
        let mut found = found([18, 14, 12, 10]);
        assert_eq!(found.start(0, 40), 18);
        assert_eq!(found.check(18, &by("New", 98)), Some(Verdict::Other));
        assert!(found.differs());
        assert_eq!(found.start(0, 40), 10);
        let mut check = |at, who: &Who| found.check(at, who);
        assert_eq!(check(10, &who(10)), Some(Verdict::There));
        assert_eq!(check(11, &by("Other", 11)), Some(Verdict::Older), "from before it was cut");
        assert_eq!(check(12, &who(12)), Some(Verdict::There));
        assert_eq!(check(13, &by("New", 93)), Some(Verdict::New));
        assert_eq!(check(14, &by("New", 94)), Some(Verdict::Other));
        assert!(!found.differs(), "it is not read once more");
        assert_eq!(found.check(15, &by("New", 95)), Some(Verdict::New));
    }

    #[test]
    fn what_was_passed_for_its_place_is_looked_at_again_where_the_log_differs() {
        let samples = [(18, 14), (10, 10)];
        let samples = samples.map(|(at, low)| (Mark { offset: at, low, high: at }, who(at)));
        let mut found = Found::of(samples).unwrap();
        assert_eq!(found.start(0, 40), 10);
        assert_eq!(found.check(10, &who(10)), Some(Verdict::There));
        assert_eq!(found.check(11, &by("New", 91)), Some(Verdict::There));
        assert_eq!(found.check(18, &by("New", 98)), Some(Verdict::Other));
        assert!(found.differs());
        assert_eq!(found.start(0, 40), 10);
        assert_eq!(found.check(11, &by("New", 91)), Some(Verdict::New));
    }

    #[test]
    fn of_a_log_that_lost_its_end_what_is_old_is_not_new() {
        // One sample is known only, or none and since when.
        let last = Found::kept(20, Some((19, who(19))), None);
        let since = Found::kept(20, None, Some(Tai::from_nanos(19)));
        for mut found in [last, since] {
            assert_eq!(found.start(0, 15), 0);
            assert_eq!(found.check(0, &by("Other", 5)), Some(Verdict::Older));
            assert_eq!(found.check(14, &by("Other", 20)), Some(Verdict::New));
            assert_eq!(found.check(20, &by("Other", 21)), None);
        }
    }

    #[test]
    fn where_nothing_was_is_another_log() {
        let mut found = Found::kept(20, Some((15, who(15))), None);
        assert_eq!(found.start(0, 40), 15);
        assert_eq!(found.check(15, &who(15)), Some(Verdict::There));
        assert_eq!(found.check(16, &by("New", 90)), Some(Verdict::Other));
        assert!(found.differs());
        assert_eq!(found.check(16, &by("New", 90)), Some(Verdict::New));
    }

    #[test]
    fn what_older_bridges_called_otherwise_is_the_same() {
        let new = by("kafka", 7);
        assert_eq!(new.name.as_str(), "kafka-x.");
        let mut old = by("kafka-x.", 3);
        assert_ne!(new, old);
        old.time = new.time;
        assert_eq!(new, old, "the bridge has numbered it");
        assert_ne!(by("Mount", 7), Who { time: new.time, ..by("Mount", 3) });
    }

    #[test]
    fn each_bus_is_somebody() {
        let buses = [("kafka-x.", "kafka-x."), ("dds/a b.", "bus-dds:2fa:20b:2e"), ("", "bus-")];
        for (bus, name) in buses {
            assert_eq!(Nameless::new(bus, "kafka").name.as_str(), name);
        }
        Nameless::new(&" ".repeat(500), "kafka");
    }

    #[test]
    fn what_retention_took_is_no_reason_to_begin_anew() {
        let mut found = found((0..20).rev());
        assert_eq!(found.start(30, 40), 20, "the gap is told from here");
        let kept = |at| Found::kept(at + 1, Some((at, who(at))), None);
        assert_eq!(found.clone().with(kept(24)).start(0, 40), 24);
        assert_eq!(found.clone().with(kept(14)).start(0, 40), 19);
        let other = Found::kept(30, Some((12, by("Other", 12))), None);
        assert_eq!(found.with(other).start(0, 40), 19, "it is of another log");
        // Behind the newest lie those of the log before.
        let samples = [4, 3, 2, 1, 0, 9, 8, 7, 6, 5].map(|at| (Mark::alone(at), who(at)));
        let found = Found::of(samples).unwrap();
        assert_eq!(found.with(kept(4)).start(0, 40), 4);
    }

    #[test]
    fn what_compaction_took_is_not_missing_behind_an_orderly_end() {
        let samples = [(18, 10), (10, 10)];
        let samples = samples.map(|(at, low)| (Mark { offset: at, low, high: at }, who(at)));
        let found = Found::of(samples).unwrap();
        assert_eq!(found.clone().check(14, &who(14)), Some(Verdict::Missing));
        let mut found = found.with(Found::kept(19, Some((18, who(18))), None));
        assert_eq!(found.start(0, 40), 18);
        assert_eq!(found.check(14, &who(14)), Some(Verdict::There));
    }
}
