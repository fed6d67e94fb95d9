//! What of a topic outlives a failure: where it is, what is in hand, and who writes on the target.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use helio_bus::{Forwarder, PendingPublish, Producer, Sample, Subscription, Tai};

use crate::bridge::Ends;
use crate::found::{Found, Nameless, Verdict, Who};
use crate::hops::Mark;
use crate::lane::{Key, Order, Place};
use crate::opening::rewinds;
use crate::position::Had;

/// The most producers of a topic whose newest number is remembered, as readers do.
const MAX_KNOWN: usize = 16_384;

/// Why a sample that the target had taken was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It was too much, or its company was: it is given again alone.
    Refused,
    /// No permission, no room: no fault of the sample's, and waited for.
    Failed,
    /// Nobody knows whether the target has it.
    Unknown,
}

impl Trouble {
    /// Why it cannot be given again once later ones of its producer are there.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Refused | Self::Failed => LATER,
            Self::Unknown => {
                "the target did not say whether it took it, and has later ones of its producer"
            }
        }
    }
}

/// The number of a sample that has none yet: theirs begin at 1.
pub(crate) const UNNUMBERED: u64 = 0;

/// Why a sample cannot be given once later ones of its producer are there.
pub(crate) const LATER: &str = "the target did not take it, and has later ones of its producer";

/// Why a sample of a log that was cut cannot be given.
pub(crate) const ANOTHER: &str = "the target has another sample of that number";

/// A producer's writer on the target.
pub(crate) struct Held {
    /// Locked while its lease is asserted in another thread.
    pub(crate) forwarder: Arc<Mutex<Forwarder>>,
    pub(crate) incarnation: u64,
    pub(crate) used: u64,
}

/// Who has samples on the target, and may live on the source without a word.
pub(crate) struct Rests {
    pub(crate) partition: u32,
    pub(crate) producer: Producer,
    /// When that was found.
    pub(crate) since: Instant,
}

/// What the target has of each producer, as far as this bridge knows.
#[derive(Default)]
struct Known {
    newest: HashMap<Key, (Order, u64)>,
    clock: u64,
}

impl Known {
    fn has(&self, key: &Key, order: Order) -> bool {
        self.newest.get(key).is_some_and(|(newest, _)| *newest >= order)
    }

    fn add(&mut self, key: Key, order: Order) {
        self.clock += 1;
        if self.newest.len() >= MAX_KNOWN && !self.newest.contains_key(&key) {
            // Those that were silent longest; what comes twice of them is dropped by readers.
            let mut seen: Vec<_> = self.newest.values().map(|(_, seen)| *seen).collect();
            let (_, middle, _) = seen.select_nth_unstable(MAX_KNOWN / 2);
            let middle = *middle;
            self.newest.retain(|_, (_, seen)| *seen > middle);
        }
        let newest = self.newest.entry(key).or_insert((order, 0));
        *newest = (order.max(newest.0), self.clock);
    }
}

/// What of a topic outlives a failure.
#[derive(Default)]
pub(crate) struct Kept {
    /// The source's subscription, where it is not waited for.
    pub(crate) samples: Option<Subscription>,
    /// Where each partition of the source is read on; empty before it was first opened.
    pub(crate) next: HashMap<u32, u64>,
    /// When that was first asked for.
    pub(crate) since: Option<Tai>,
    /// The newest of each partition that was read, of a source that can be read again.
    read: HashMap<u32, (u64, Who)>,
    /// The newest of each partition that was given to the target.
    pub(crate) high: HashMap<u32, u64>,
    /// The newest of each partition that nothing is to be done for any more.
    pub(crate) settled: HashMap<u32, (u64, Who)>,
    /// What is written of that, and what is being written.
    pub(crate) written: HashMap<u32, u64>,
    pub(crate) writing: Vec<(Place, PendingPublish)>,
    /// When that was written last; none where it is to be written at once.
    pub(crate) wrote: Option<Instant>,
    /// Whether the target was asked what it has.
    pub(crate) asked: bool,
    /// What it has, until the source has been held against it.
    pub(crate) found: HashMap<u32, Found>,
    /// Numbers that the target has not, though it has later ones: of sources without places.
    pub(crate) holes: HashMap<Key, Had>,
    /// Whether the source is to be read elsewhere.
    pub(crate) astray: bool,
    /// Read, and not taken by the target; oldest first.
    pub(crate) ahead: VecDeque<Sample>,
    /// What the target has not acknowledged though it had taken it, and why.
    pub(crate) trouble: HashMap<Place, Trouble>,
    known: Known,
    /// Of who has no name of its own: which incarnation came, and which one it is here.
    nameless: HashMap<u32, (u64, u64)>,
    /// The newest number that this bridge has given those.
    numbers: HashMap<u32, u64>,
    /// Where the source's partitions ended when it was subscribed to.
    pub(crate) goals: Vec<Place>,
    /// Who writes on the target.
    pub(crate) forwarders: HashMap<Key, Held>,
    /// Writers that are to be closed before others are opened.
    pub(crate) closing: Vec<Held>,
    /// Whose samples the target has from a bridge before, and who may live.
    pub(crate) idle: Vec<Rests>,
}

impl Kept {
    /// How much was read and is not forwarded.
    pub(crate) fn behind(&self) -> usize {
        self.ahead.len()
    }

    /// Its writer is to be open on the target if it lives.
    pub(crate) fn rests(&mut self, partition: u32, producer: Producer) {
        // The newest counts; others of its name are older.
        self.idle
            .retain(|other| other.partition != partition || other.producer.name != producer.name);
        self.idle.push(Rests { partition, producer, since: Instant::now() });
    }

    pub(crate) fn knows(&mut self, key: Key, order: Order) {
        self.known.add(key, order);
    }

    /// Whether the target has this number of a producer, or a later one.
    pub(crate) fn has(&self, key: &Key, order: Order) -> bool {
        self.known.has(key, order)
    }

    /// Whether it is known to be missing among later ones.
    pub(crate) fn is_missing(&self, key: &Key, order: Order) -> bool {
        let had = self.holes.get(key).filter(|had| had.newest.0 == order.0);
        had.is_some_and(|had| had.holes.iter().any(|hole| hole.contains(&order.1)))
    }

    /// The target has these samples.
    pub(crate) fn finds(&mut self, partition: u32, found: Found) {
        for (name, order) in found.orders() {
            self.known.add((partition, name.clone()), order);
        }
        self.high.extend(found.high().map(|high| (partition, high)));
        self.found.insert(partition, found);
    }

    /// What a sample of the source is, as far as the target had it when this bridge began.
    pub(crate) fn verdict(&mut self, sample: &Sample, nameless: &Nameless) -> Option<Verdict> {
        let found = self.found.get_mut(&sample.partition)?;
        let verdict = found.check(sample.offset, &who(sample, nameless));
        if verdict.is_none() {
            self.found.remove(&sample.partition);
        }
        verdict
    }

    /// The source has another log; whether it is read again.
    pub(crate) fn differs(&mut self, partition: u32) -> bool {
        let Some(found) = self.found.get_mut(&partition) else { return false };
        let again = found.differs();
        if again {
            self.ahead.retain(|sample| sample.partition != partition);
            self.trouble.retain(|(at, _), _| *at != partition);
            self.next.remove(&partition);
            self.astray = true;
            self.forgets(partition);
        }
        again
    }

    /// What was known of the log's offsets says nothing any more.
    fn forgets(&mut self, partition: u32) {
        self.high.remove(&partition);
        self.settled.remove(&partition);
        self.read.remove(&partition);
        self.wrote = None;
    }

    /// Where a partition of the source, from `first` to `end`, is read on. What was read last is
    /// read once more, for by now it may be another log; not while samples are in hand: they would
    /// be held against themselves.
    pub(crate) fn goes_on(&mut self, partition: u32, (first, end): (u64, u64)) -> Option<u64> {
        let next = self.next.get(&partition).copied();
        if let Some(next) = next
            && !self.holds(partition)
            && self.found.get(&partition).is_none_or(|found| found.is_past(next))
        {
            let last = self.read.get(&partition).cloned();
            self.found.insert(partition, Found::kept(next, last, self.since));
        } else if let Some(next) = next.filter(|next| *next <= end) {
            return Some(next);
        }
        let Some(found) = self.found.get_mut(&partition) else { return next.map(|_| first) };
        let begin = found.start(first, end);
        if found.is_other() {
            self.forgets(partition);
        }
        Some(begin)
    }

    /// Whether samples of a partition are in hand.
    fn holds(&self, partition: u32) -> bool {
        self.ahead.iter().any(|sample| sample.partition == partition)
    }

    /// Keeps a sample that was read, under the name that it has on other buses: those that have no
    /// producer are the bus's own.
    pub(crate) fn read(&mut self, ends: &Ends, mut sample: Sample) {
        let (partition, offset) = (sample.partition, sample.offset);
        let before = self.next.insert(partition, offset + 1);
        let again = rewinds(&ends.from);
        let producer = &mut sample.header.producer;
        if ends.nameless.are(&producer.name) {
            producer.name = ends.nameless.name.clone();
            if again {
                // Where it lies is no number: it gets one when it is known whether the target has
                // it. With each bridge they are somebody new, for none knows how far the one
                // before has counted.
                sample.header.sequence = UNNUMBERED;
                producer.incarnation = ends.started;
            }
            producer.incarnation = self.incarnation(partition, producer);
        }
        if again {
            if let Some(next) = before.filter(|next| offset < *next) {
                self.goes_back(partition, next);
            }
            self.read.insert(partition, (offset, who(&sample, &ends.nameless)));
        }
        self.ahead.push_back(sample);
    }

    /// The source hands out samples from further back than the next one: its log is another one.
    fn goes_back(&mut self, partition: u32, next: u64) {
        let last = self.read.get(&partition).cloned();
        self.forgets(partition);
        if !self.holds(partition) {
            let new = || Found::kept(next, last, self.since);
            self.found.entry(partition).or_insert_with(new).back();
        }
    }

    /// The incarnation of who has none but the time at which it was first read: newer than what the
    /// target has, whatever that host's clock said.
    fn incarnation(&mut self, partition: u32, producer: &Producer) -> u64 {
        let came = producer.incarnation;
        if let Some((before, here)) = self.nameless.get(&partition)
            && *before == came
        {
            return *here;
        }
        let newest = self.known.newest.get(&(partition, producer.name.clone()));
        let here = newest.map_or(came, |((newest, _), _)| came.max(newest + 1));
        self.nameless.insert(partition, (came, here));
        here
    }

    /// Numbers a sample that has none.
    pub(crate) fn number(&mut self, sample: &mut Sample) {
        if sample.header.sequence != UNNUMBERED {
            return;
        }
        let newest = self.numbers.entry(sample.partition).or_default();
        *newest += 1;
        sample.header.sequence = *newest;
    }

    /// Samples are lost: those that have no numbers have a hole in them for it, as others have.
    pub(crate) fn misses(&mut self, partition: u32, lost: u64) {
        if let Some(newest) = self.numbers.get_mut(&partition) {
            *newest += lost;
        }
    }

    /// Nothing is to be done any more for a sample. One that was in trouble comes behind others.
    pub(crate) fn settles(&mut self, (partition, offset): Place, who: Who) {
        let newest = self.settled.get(&partition);
        if newest.is_none_or(|(newest, _)| *newest <= offset) {
            self.settled.insert(partition, (offset, who));
        }
    }

    /// The mark of a sample that is given to the target while all below `low` is settled.
    pub(crate) fn mark(&self, sample: &Sample, low: u64) -> Mark {
        let offset = sample.offset;
        let high = self.high.get(&sample.partition).copied().unwrap_or(offset);
        Mark { offset, low: low.min(offset), high: high.max(offset) }
    }
}

pub(crate) fn who(sample: &Sample, nameless: &Nameless) -> Who {
    Who::new(&sample.header.producer.name, (order(sample), sample.header.time), nameless)
}

pub(crate) fn key(sample: &Sample) -> Key {
    (sample.partition, sample.header.producer.name.clone())
}

pub(crate) fn order(sample: &Sample) -> Order {
    (sample.header.producer.incarnation, sample.header.sequence)
}

#[cfg(test)]
mod tests {
    use helio_bus::ProducerName;

    use super::*;

    #[test]
    fn who_has_no_incarnation_is_newer_than_before_whatever_the_clock_says() {
        let mut kept = Kept::default();
        let name = ProducerName::new("dds-0").unwrap();
        let came = |incarnation| Producer { name: name.clone(), incarnation };
        assert_eq!(kept.incarnation(0, &came(40)), 40);
        kept.knows((1, name.clone()), (100, 7));
        assert_eq!(kept.incarnation(1, &came(50)), 101);
        kept.knows((1, name.clone()), (101, 3));
        assert_eq!(kept.incarnation(1, &came(50)), 101, "it is the same one");
        assert_eq!(kept.incarnation(1, &came(200)), 200);
    }

    fn who(name: &str, time: i64) -> Who {
        let name = ProducerName::new(name).unwrap();
        let bus = helio_bus::Bus::connect("memory:").unwrap();
        Who::new(&name, ((1, 1), Tai::from_nanos(time)), &Nameless::of(&bus, "bus"))
    }

    #[test]
    fn what_was_read_last_is_held_against_the_log_as_it_is_when_it_is_read_again() {
        let mut kept = Kept::default();
        assert_eq!(kept.goes_on(0, (0, 9)), None, "it was never read");
        kept.next.insert(0, 100);
        assert_eq!(kept.goes_on(0, (0, 120)), Some(100), "nothing was read yet");
        kept.next.insert(0, 101);
        kept.read.insert(0, (100, who("Mount", 7)));
        assert_eq!(kept.goes_on(0, (0, 120)), Some(100));
        let found = kept.found.get_mut(&0).unwrap();
        assert_eq!(found.check(100, &who("Mount", 7)), Some(Verdict::There));
        // It was cut, and has grown again.
        assert_eq!(found.check(100, &who("Mount", 8)), Some(Verdict::Other));
        assert!(kept.differs(0) && kept.next.is_empty());
    }

    #[test]
    fn a_log_that_is_shorter_is_read_from_its_beginning_and_what_is_old_is_passed() {
        let mut kept = Kept::default();
        kept.next.insert(0, 101);
        kept.read.insert(0, (100, who("Mount", 7)));
        kept.high.insert(0, 100);
        assert_eq!(kept.goes_on(0, (3, 90)), Some(3));
        assert!(kept.high.is_empty());
        let found = kept.found.get_mut(&0).unwrap();
        assert_eq!(found.check(3, &who("Dome", 6)), Some(Verdict::Older));
        assert_eq!(found.check(89, &who("Dome", 8)), Some(Verdict::New));
    }

    #[test]
    fn the_newest_that_is_settled_is_no_older_one_that_came_later() {
        let mut kept = Kept::default();
        for (offset, newest) in [(5, 5), (9, 9), (7, 9)] {
            kept.settles((0, offset), who("Mount", 1));
            assert_eq!(kept.settled[&0].0, newest);
        }
    }

    #[test]
    fn of_many_producers_those_that_were_silent_longest_are_forgotten() {
        let mut kept = Kept::default();
        let name = |n: usize| (0, ProducerName::new(&format!("p{n}")).unwrap());
        (0..=MAX_KNOWN).for_each(|n| kept.knows(name(n), (1, 1)));
        assert!(!kept.has(&name(0), (1, 1)));
        assert!(kept.has(&name(MAX_KNOWN - 1), (1, 1)) && kept.has(&name(MAX_KNOWN), (1, 1)));
        assert!(kept.known.newest.len() <= MAX_KNOWN);
    }
}
