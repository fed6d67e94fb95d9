//! What a reader has taken from Cyclone and not handed out yet: in order, numbered, bounded.
//!
//! Constraints. Cyclone hands out samples by key; here each producer's come in the order of their
//! numbers again. A reader that does not keep up must not hold up others, neither their delivery
//! (Cyclone would do that for all readers of a process) nor their writers: what is too much is
//! passed over, oldest first, and told as a gap.

use std::collections::VecDeque;

use helio_bus::transport::{Origin, Position, order_by_producer};
use helio_bus::{Gap, GapCause};
use helio_core::{ProducerName, Tai};

use crate::entity::{DdsError, Reader, Sample};
use crate::envelope::{self, Header, RE_SERVED};
use crate::tables::Stand;

/// The most samples that lie here.
const MAX_SAMPLES: usize = 262_144;
/// The most bytes that lie here, unless it is one sample.
const MAX_BYTES: usize = 256 << 20;
/// The most producers whose numbers are remembered.
const MAX_PRODUCERS: usize = 1_024;
/// Who writes without being a bus.
const FOREIGN: &str = "dds";

/// A sample with its place.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) sample: Sample,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    /// The producer's number, or what was counted for others than a bus.
    pub(crate) sequence: u64,
    pub(crate) origin: Origin,
    time: Tai,
    pub(crate) incarnation: u64,
    foreign: bool,
}

impl Queued {
    pub(crate) fn producer<'a>(&self, header: &Header<'a>) -> &'a str {
        if self.foreign { FOREIGN } else { header.producer }
    }

    pub(crate) fn time(&self, _: &Header<'_>) -> Tai {
        self.time
    }

    /// The order of one producer's samples.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.incarnation, self.sequence)
    }

    /// Key and producer.
    pub(crate) fn names(&self) -> (&[u8], &str) {
        let header = envelope::parse(self.sample.cdr()).map(|(header, _)| header);
        header.map_or((&[], FOREIGN), |header| (header.key, self.producer(&header)))
    }

    /// When it was published.
    pub(crate) fn published(&self) -> Tai {
        self.time
    }
}

/// Where a partition stands: samples are numbered as they come.
#[derive(Debug, Clone, Copy)]
struct Place {
    partition: u32,
    next: u64,
    end: u64,
}

/// The newest number of a producer in a partition.
#[derive(Debug)]
struct Seen {
    partition: u32,
    producer: String,
    order: (u64, u64),
}

/// What has come.
pub(crate) struct Inbox {
    pub(crate) gaps: VecDeque<Gap>,
    queue: VecDeque<Queued>,
    bytes: usize,
    places: Vec<Place>,
    seen: Vec<Seen>,
    foreign: u64,
    /// Whether late joiners' samples are asked for.
    history: bool,
    taken: Vec<Sample>,
}

impl Inbox {
    pub(crate) fn new(partitions: &[u32], history: bool) -> Self {
        let place = |partition: &u32| Place { partition: *partition, next: 0, end: 0 };
        Self {
            gaps: VecDeque::new(),
            queue: VecDeque::new(),
            bytes: 0,
            places: partitions.iter().map(place).collect(),
            seen: Vec::new(),
            foreign: 0,
            history,
            taken: Vec::new(),
        }
    }

    /// Takes all that has come.
    pub(crate) fn pull(&mut self, reader: &Reader) -> Result<(), DdsError> {
        let mut taken = std::mem::take(&mut self.taken);
        let outcome = reader.take(&mut taken);
        let first = taken.first().map(|sample| sample.instance);
        let one_key = taken.iter().all(|sample| Some(sample.instance) == first);
        let known = taken.drain(..).filter(|sample| sample.valid);
        let mut come: Vec<_> = known.filter_map(|sample| self.sorted_in(sample, reader)).collect();
        self.taken = taken;
        if !one_key {
            come.sort_by_key(|queued| queued.time);
            order_by_producer(&mut come, |q| q.names().1.to_owned(), Queued::order);
        }
        come.into_iter().for_each(|queued| self.push(queued));
        self.keep_bounds();
        outcome.map(drop)
    }

    /// A sample that was taken, unless it is known or nobody's.
    fn sorted_in(&mut self, sample: Sample, reader: &Reader) -> Option<Queued> {
        let (header, _) = envelope::parse(sample.cdr())?;
        let foreign = header.sequence == 0;
        let partition = if foreign {
            // Others leave the header empty; they write where their writer does.
            match self.places[..] {
                [Place { partition, .. }] => partition,
                _ => {
                    let there = reader.publication(sample.writer).map(|writer| writer.partitions);
                    self.partition_of(&there.unwrap_or_default())
                }
            }
        } else {
            header.partition
        };
        self.place(partition)?;
        let (sequence, incarnation, time) = if foreign {
            self.foreign += 1;
            (self.foreign, 1, Tai::from_unix_nanos(sample.source_time))
        } else {
            (header.sequence, header.incarnation, header.time)
        };
        let mut origin = Origin::Log;
        if !foreign {
            let order = (incarnation, sequence);
            let before = self.saw(partition, header.producer, order);
            if header.flags & RE_SERVED != 0 {
                origin = Origin::History;
                let known = before.is_some_and(|before| before >= order);
                if known || (before.is_none() && !self.history) {
                    return None;
                }
            }
        }
        Some(Queued { sample, partition, offset: 0, sequence, origin, time, incarnation, foreign })
    }

    /// The partition of the topic that DDS partitions stand for: the first that is one and is read.
    fn partition_of(&self, names: &[String]) -> u32 {
        let numbers = names.iter().filter_map(|name| name.parse().ok());
        let mut read = numbers.filter(|n| self.places.iter().any(|place| place.partition == *n));
        read.next().unwrap_or(0)
    }

    /// The newest incarnation of a producer; 0 is none.
    pub(crate) fn newest(&self, producer: &ProducerName) -> u64 {
        let own = self.seen.iter().filter(|seen| seen.producer == producer.as_str());
        own.map(|seen| seen.order.0).max().unwrap_or(0)
    }

    /// Remembers a producer's newest number; gives the one before.
    fn saw(&mut self, partition: u32, producer: &str, order: (u64, u64)) -> Option<(u64, u64)> {
        let same = |seen: &Seen| seen.partition == partition && seen.producer == producer;
        if let Some(place) = self.seen.iter().position(same) {
            // Whoever writes most is found first.
            self.seen.swap(0, place);
            let before = self.seen[0].order;
            self.seen[0].order = before.max(order);
            return Some(before);
        }
        if self.seen.len() == MAX_PRODUCERS {
            self.seen.truncate(MAX_PRODUCERS / 2);
        }
        self.seen.push(Seen { partition, producer: producer.to_owned(), order });
        None
    }

    /// Whether everything has come that a producer had written.
    pub(crate) fn has_seen(&self, stand: &Stand) -> bool {
        let name: &ProducerName = &stand.producer;
        self.seen.iter().any(|seen| {
            seen.partition == stand.partition
                && seen.producer == name.as_str()
                && seen.order >= (stand.incarnation, stand.sequence)
        })
    }

    fn push(&mut self, mut queued: Queued) {
        let Some(place) = self.place(queued.partition) else { return };
        queued.offset = place.end;
        place.end += 1;
        self.bytes += queued.sample.cdr().len();
        self.queue.push_back(queued);
    }

    fn place(&mut self, partition: u32) -> Option<&mut Place> {
        self.places.iter_mut().find(|place| place.partition == partition)
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let first = self.queue.pop_front()?;
        self.bytes -= first.sample.cdr().len();
        if let Some(place) = self.place(first.partition) {
            place.next = first.offset + 1;
        }
        Some(first)
    }

    /// Passes over the oldest where there are too many. What is not told yet of a partition is one
    /// gap, however much is passed over.
    fn keep_bounds(&mut self) {
        while self.queue.len() > MAX_SAMPLES || (self.bytes > MAX_BYTES && self.queue.len() > 1) {
            let Some(Queued { partition, offset, .. }) = self.pop() else { break };
            self.missed(partition, offset);
        }
    }

    fn missed(&mut self, of: u32, offset: u64) {
        for Gap { partition, lost, cause } in self.gaps.iter_mut().rev() {
            if let GapCause::Overload { to, .. } = cause
                && *partition == of
                && *to == offset
            {
                *to += 1;
                *lost += 1;
                return;
            }
        }
        let cause = GapCause::Overload { from: offset, to: offset + 1 };
        self.gaps.push_back(Gap { partition: of, lost: 1, cause });
    }

    pub(crate) fn positions(&self, visit: &mut dyn FnMut(Position)) {
        for Place { partition, next, end } in self.places.iter().copied() {
            visit(Position { partition, next, end });
        }
    }

    /// Goes on at an offset of a partition; false where that lies behind, none where it is not
    /// read.
    pub(crate) fn pass_over(&mut self, partition: u32, offset: u64) -> Option<bool> {
        let place = self.place(partition)?;
        if offset < place.next {
            return Some(false);
        }
        place.next = offset.min(place.end);
        let passed = |queued: &Queued| queued.partition == partition && queued.offset < offset;
        self.queue.retain(|queued| !passed(queued));
        self.bytes = self.queue.iter().map(|queued| queued.sample.cdr().len()).sum();
        Some(true)
    }

    /// Takes everything out, to be put in again in another order.
    pub(crate) fn take_all(&mut self) -> Vec<Queued> {
        self.bytes = 0;
        for place in &mut self.places {
            (place.next, place.end) = (0, 0);
        }
        self.queue.drain(..).collect()
    }

    /// Puts samples in.
    pub(crate) fn put(&mut self, queued: impl IntoIterator<Item = Queued>) {
        queued.into_iter().for_each(|queued| self.push(queued));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_over_is_one_gap_of_a_partition_until_it_is_told() {
        let mut inbox = Inbox::new(&[0, 1], false);
        for offset in 0..5 {
            inbox.missed(0, offset);
            inbox.missed(1, offset + 7);
        }
        let gap = |partition, from| {
            let cause = GapCause::Overload { from, to: from + 5 };
            Gap { partition, lost: 5, cause }
        };
        assert_eq!(inbox.gaps, [gap(0, 0), gap(1, 7)]);
    }

    #[test]
    fn others_write_the_partitions_that_their_writer_names() {
        let inbox = Inbox::new(&[1, 3], false);
        let of = |names: &[&str]| {
            inbox.partition_of(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!([of(&["3"]), of(&["site", "2", "1"]), of(&["*"]), of(&[])], [3, 1, 0, 0]);
    }
}
