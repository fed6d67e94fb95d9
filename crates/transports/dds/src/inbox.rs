//! What a reader has taken from Cyclone and not handed out yet: in order, numbered, bounded.
//!
//! Constraints. Cyclone hands out samples by key, and those of a bus topic come by two DDS topics;
//! here each producer's come in the order of their numbers again. One whose predecessor comes by
//! the other topic waits for it, a bounded time. A reader that does not keep up must not hold up
//! others, neither their delivery (Cyclone would do that for all readers of a process) nor their
//! writers: what is too much is passed over, oldest first, and told as a gap.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::transport::{Origin, Position, order_by_producer};
use helio_bus::{Gap, GapCause};
use helio_core::{ProducerName, Tai};

use crate::ends::{Readers, Typed};
use crate::entity::{DdsError, Reader, Sample};
use crate::envelope::{self, BASE, ELSEWHERE, Header, RE_SERVED};
use crate::tables::Stand;

/// The most samples that lie here.
const MAX_SAMPLES: usize = 262_144;
/// The most bytes that lie here, unless it is one sample.
const MAX_BYTES: usize = 256 << 20;
/// The most producers whose numbers are remembered.
const MAX_PRODUCERS: usize = 1_024;
/// How long a sample waits for its predecessor by the other topic: it may have been lost.
const HOLD: Duration = Duration::from_secs(1);
/// The most samples that wait so.
const MAX_HELD: usize = 4_096;
/// The most looks at both topics for what has come meanwhile.
const MAX_TURNS: usize = 16;
/// Who writes without being a bus.
const FOREIGN: &str = "dds";

/// Where a sample lies.
#[derive(Debug)]
pub(crate) enum Body {
    /// By itself, as its writer sent it.
    Own(Sample),
    /// In a page of history.
    Page(Arc<Sample>, Range<usize>),
}

impl Body {
    pub(crate) fn cdr(&self) -> &[u8] {
        match self {
            Self::Own(sample) => sample.cdr(),
            Self::Page(page, place) => page.cdr().get(place.clone()).unwrap_or_default(),
        }
    }
}

/// A sample with its place.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) sample: Body,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    /// The producer's number, or what was counted for others than a bus.
    pub(crate) sequence: u64,
    pub(crate) origin: Origin,
    /// The topic that it came by; none: of envelopes.
    typed: Option<Arc<Typed>>,
    time: Tai,
    pub(crate) incarnation: u64,
    /// The key, of others' samples.
    foreign: Option<Vec<u8>>,
    /// Its predecessor came by the other topic.
    elsewhere: bool,
    /// Since when it waits.
    since: Option<Instant>,
    /// Nothing that is older comes from its writer any more.
    pub(crate) base: bool,
}

impl Queued {
    /// The key's handle, of what came by itself.
    fn instance(&self) -> u64 {
        match &self.sample {
            Body::Own(sample) => sample.instance,
            Body::Page(..) => 0,
        }
    }

    /// Whether it was written by others than a bus.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Whether it is history, as a durability service has it.
    pub(crate) fn is_past(&self) -> bool {
        matches!(self.sample, Body::Page(..))
    }

    pub(crate) fn producer<'a>(&self, header: &Header<'a>) -> &'a str {
        if self.foreign.is_some() { FOREIGN } else { header.producer }
    }

    /// Header and payload; `avro` is where that of a typed sample is put. What cannot be read of it
    /// is told by who decodes: no bytes are no datum.
    pub(crate) fn read<'a>(&'a self, avro: &'a mut Vec<u8>) -> Option<(Header<'a>, &'a [u8])> {
        let Some(typed) = &self.typed else {
            let (header, payload) = envelope::parse(self.sample.cdr())?;
            return Some((header, payload));
        };
        let header = envelope::header(self.sample.cdr())?;
        let key = self.foreign.as_deref().unwrap_or(header.key);
        avro.clear();
        let _ = typed.of.from_cdr(self.sample.cdr(), avro, &mut Vec::new());
        Some((Header { schema: typed.schema, key, ..header }, avro))
    }

    /// The order of one producer's samples.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.incarnation, self.sequence)
    }

    /// Key and producer.
    pub(crate) fn names(&self) -> (&[u8], &str) {
        let header = envelope::header(self.sample.cdr());
        header.map_or((&[], FOREIGN), |header| {
            (self.foreign.as_deref().unwrap_or(header.key), self.producer(&header))
        })
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
    /// Of those that have come as envelopes, and typed: on each way they come in order.
    order: [(u64, u64); 2],
}

impl Seen {
    fn newest(&self) -> (u64, u64) {
        self.order[0].max(self.order[1])
    }
}

/// What has come.
pub(crate) struct Inbox {
    pub(crate) gaps: VecDeque<Gap>,
    queue: VecDeque<Queued>,
    bytes: usize,
    places: Vec<Place>,
    seen: Vec<Seen>,
    foreign: u64,
    /// The incarnation of what others write: their samples are numbered as they come, so that each
    /// subscription's numbers are of a newer one.
    since: u64,
    /// What repeats, and whether late joiners' samples are asked for.
    take: Take,
    taken: Vec<Sample>,
    past: Option<Past>,
    /// Whether what comes now is in order; what was kept for late joiners has holes.
    begun: bool,
    /// What was written before it came, which it does not get all of.
    before: Vec<Stand>,
    held: Vec<Queued>,
}

/// Which samples that were sent again are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// None that is older than the first that came.
    New,
    /// Those that are not known.
    History,
    /// All of them: who takes them looks himself.
    Everything,
}

/// While history comes in pages: what has come of it, and what waits until it is over.
#[derive(Debug, Default)]
struct Past {
    seen: HashMap<(u32, String), (u64, u64)>,
    /// Last values have holes: which of them have come.
    values: HashSet<(u32, String, (u64, u64))>,
    held: VecDeque<Queued>,
    bytes: usize,
    /// By partition, how many were too many.
    passed: HashMap<u32, u64>,
}

impl Inbox {
    pub(crate) fn new(partitions: &[u32], take: Take) -> Self {
        let place = |partition: &u32| Place { partition: *partition, next: 0, end: 0 };
        Self {
            gaps: VecDeque::new(),
            queue: VecDeque::new(),
            bytes: 0,
            places: partitions.iter().map(place).collect(),
            seen: Vec::new(),
            foreign: 0,
            since: 1,
            take,
            taken: Vec::new(),
            past: None,
            begun: take != Take::History,
            before: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Opened then, in nanoseconds since 1970.
    pub(crate) fn since(self, since: u64) -> Self {
        Self { since, ..self }
    }

    /// Takes all that has come.
    pub(crate) fn pull(&mut self, ends: &Readers) -> Result<(), DdsError> {
        let (mut come, mut outcome) = (Vec::new(), Ok(()));
        let typed = ends.typed();
        let ways =
            [typed.as_ref().map(|t| (&t.reader, Some(&t.of))), Some((&ends.envelopes, None))];
        let ways: Vec<_> = ways.into_iter().flatten().collect();
        // What had come by one before what was just taken from the other stands before it, whoever
        // has written it: so the other is looked at again, until nothing has come.
        for turn in 0..if ways.len() > 1 { MAX_TURNS } else { 1 } {
            let (before, (reader, of)) = (come.len(), ways[turn % ways.len()]);
            outcome = outcome.and(self.take(reader, of, &mut come));
            if turn > 0 && come.len() == before {
                break;
            }
        }
        self.admit(come, Instant::now());
        self.keep_bounds();
        outcome
    }

    fn take(
        &mut self,
        reader: &Reader,
        typed: Option<&Arc<Typed>>,
        into: &mut Vec<Queued>,
    ) -> Result<(), DdsError> {
        let mut taken = std::mem::take(&mut self.taken);
        let outcome = reader.take(&mut taken);
        let valid = taken.drain(..).filter(|sample| sample.valid);
        into.extend(valid.filter_map(|sample| self.sorted_in(sample, reader, typed)));
        self.taken = taken;
        outcome.map(drop)
    }

    /// Puts in what has come, in order, but for what has to wait.
    fn admit(&mut self, mut come: Vec<Queued>, now: Instant) {
        let first = come.first().map(Queued::instance);
        if !come.iter().all(|queued| Some(queued.instance()) == first) {
            come.sort_by_key(|queued| queued.time);
            order_by_producer(&mut come, |q| q.names().1.to_owned(), Queued::order);
        }
        if self.held.is_empty() && !come.iter().any(|queued| queued.elsewhere) {
            come.into_iter().for_each(|queued| self.add(queued));
            return;
        }
        let all = std::mem::take(&mut self.held).into_iter().chain(come);
        let mut all: Vec<_> = all.collect();
        order_by_producer(&mut all, |q| q.names().1.to_owned(), Queued::order);
        let full = all.len() > MAX_HELD;
        for queued in all {
            if !full && self.waits(&queued, now) {
                let since = queued.since.or(Some(now));
                self.held.push(Queued { since, ..queued });
            } else {
                self.add(queued);
            }
        }
    }

    /// Whether a sample has to wait for one before it: it says so itself, or another of its
    /// producer's waits already.
    fn waits(&self, queued: &Queued, now: Instant) -> bool {
        let over = queued.since.is_some_and(|since| now.duration_since(since) >= HOLD);
        if !self.begun || over || queued.foreign.is_some() || queued.origin == Origin::History {
            return false;
        }
        let (producer, (incarnation, sequence)) = (queued.names().1, queued.order());
        let of = |seen: &&Seen| seen.partition == queued.partition && seen.producer == producer;
        let other = usize::from(queued.typed.is_none());
        let come = self.seen.iter().find(of).map_or((0, 0), |seen| seen.order[other]);
        let was_there = |stand: &Stand| {
            stand.partition == queued.partition
                && stand.producer.as_str() == producer
                && (stand.incarnation, stand.sequence) >= (incarnation, sequence - 1)
        };
        let follows = come >= (incarnation, sequence - 1) || self.before.iter().any(was_there);
        let behind = |held: &Queued| {
            held.partition == queued.partition
                && held.names().1 == producer
                && held.order() < queued.order()
        };
        (queued.elsewhere && !follows) || self.held.iter().any(behind)
    }

    /// Whether samples wait for others.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether there is something to be handed out.
    pub(crate) fn has_any(&self) -> bool {
        !self.queue.is_empty() || !self.gaps.is_empty()
    }

    /// From now on what comes waits until the past has come.
    pub(crate) fn begin_past(&mut self) {
        self.past = Some(Past::default());
    }

    /// A sample of a page of history, unless it has come before.
    pub(crate) fn add_past(&mut self, page: &Arc<Sample>, place: Range<usize>, origin: Origin) {
        let body = Body::Page(Arc::clone(page), place);
        let Some((header, _)) = envelope::parse(body.cdr()) else { return };
        let (partition, order) = (header.partition, header.order());
        let key = (partition, header.producer.to_owned());
        let (time, sequence, incarnation) = (header.time, header.sequence, header.incarnation);
        let Some(past) = &mut self.past else { return };
        if origin == Origin::History {
            past.values.insert((partition, key.1.clone(), order));
        } else if past.seen.get(&key).is_some_and(|seen| *seen >= order) {
            return;
        }
        let seen = past.seen.entry(key).or_default();
        *seen = order.max(*seen);
        let (typed, foreign, since) = (None, None, None);
        self.push(Queued {
            sample: body,
            partition,
            offset: 0,
            sequence,
            origin,
            typed,
            time,
            incarnation,
            foreign,
            elsewhere: false,
            since,
            base: true,
        });
    }

    /// What whoever reads has had before.
    pub(crate) fn knows(&mut self, stand: &Stand) {
        let order = (stand.incarnation, stand.sequence);
        for way in [0, 1] {
            self.saw(stand.partition, stand.producer.as_str(), order, way);
        }
    }

    /// How many samples wait to be handed out.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Forgets the past that has come so far: it comes again from its beginning.
    pub(crate) fn forget_past(&mut self) {
        self.take_all();
        if let Some(past) = &mut self.past {
            past.seen.clear();
            past.values.clear();
        }
    }

    /// The past has come: what has come meanwhile is behind it. `alone`: writers have none of it.
    pub(crate) fn end_past(&mut self, alone: bool) {
        let Some(past) = self.past.take() else { return };
        for (partition, lost) in past.passed {
            let Some(place) = self.place(partition) else { continue };
            let (from, to) = (place.end, place.end + lost);
            place.end = to;
            let cause = GapCause::Overload { from, to };
            self.gaps.push_back(Gap { partition, lost, cause });
        }
        for queued in past.held {
            let (partition, producer) = (queued.partition, queued.names().1.to_owned());
            let order = queued.order();
            let known = if past.values.is_empty() {
                past.seen.get(&(partition, producer)).is_some_and(|seen| *seen >= order)
            } else {
                past.values.contains(&(partition, producer, order))
            };
            if !known {
                self.push(queued);
            }
        }
        if !alone {
            // Those that live hand out their own: that has not come yet.
            return;
        }
        for ((partition, producer), order) in past.seen {
            for way in [0, 1] {
                self.saw(partition, &producer, order, way);
            }
        }
    }

    fn add(&mut self, queued: Queued) {
        let Some(past) = &mut self.past else { return self.push(queued) };
        past.bytes += queued.sample.cdr().len();
        past.held.push_back(queued);
        while past.held.len() > MAX_SAMPLES || (past.bytes > MAX_BYTES && past.held.len() > 1) {
            let Some(oldest) = past.held.pop_front() else { break };
            past.bytes -= oldest.sample.cdr().len();
            *past.passed.entry(oldest.partition).or_default() += 1;
        }
    }

    /// A sample that was taken, unless it is known or nobody's.
    fn sorted_in(
        &mut self,
        sample: Sample,
        reader: &Reader,
        typed: Option<&Arc<Typed>>,
    ) -> Option<Queued> {
        let header = envelope::header(sample.cdr())?;
        let (partition, foreign) = match header.sequence {
            // Others leave the header empty; they write where their writer does.
            0 => (self.partition_of_writer(reader, &sample), Some(foreign_key(&sample, typed))),
            _ => (header.partition, None),
        };
        self.place(partition)?;
        let (sequence, incarnation, time) = if foreign.is_some() {
            self.foreign += 1;
            (self.foreign, self.since, Tai::from_unix_nanos(sample.source_time))
        } else {
            (header.sequence, header.incarnation, header.time)
        };
        let mut origin = Origin::Log;
        if foreign.is_none() {
            let order = (incarnation, sequence);
            let way = usize::from(typed.is_some());
            let before = self.saw(partition, header.producer, order, way);
            if header.flags & RE_SERVED != 0 {
                origin = Origin::History;
                let known = before.is_some_and(|before| before >= order);
                let wanted = match self.take {
                    Take::New => before.is_some() && !known,
                    Take::History => !known,
                    Take::Everything => true,
                };
                if !wanted {
                    return None;
                }
            }
        }
        let base = foreign.is_some() || header.flags & BASE != 0;
        let elsewhere = header.flags & ELSEWHERE != 0;
        let (sample, typed, since) = (Body::Own(sample), typed.cloned(), None);
        Some(Queued {
            sample,
            partition,
            offset: 0,
            sequence,
            origin,
            typed,
            time,
            incarnation,
            foreign,
            elsewhere,
            since,
            base,
        })
    }

    fn partition_of_writer(&self, reader: &Reader, sample: &Sample) -> u32 {
        match self.places[..] {
            [Place { partition, .. }] => partition,
            _ => {
                let there = reader.publication(sample.writer).map(|writer| writer.partitions);
                self.partition_of(&there.unwrap_or_default())
            }
        }
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
        own.map(|seen| seen.newest().0).max().unwrap_or(0)
    }

    /// Remembers a producer's newest number; gives the one before.
    fn saw(
        &mut self,
        partition: u32,
        producer: &str,
        order: (u64, u64),
        way: usize,
    ) -> Option<(u64, u64)> {
        let same = |seen: &Seen| seen.partition == partition && seen.producer == producer;
        if let Some(place) = self.seen.iter().position(same) {
            // Whoever writes most is found first.
            self.seen.swap(0, place);
            let before = self.seen[0].newest();
            let newest = &mut self.seen[0].order[way];
            *newest = order.max(*newest);
            return Some(before);
        }
        if self.seen.len() == MAX_PRODUCERS {
            self.seen.truncate(MAX_PRODUCERS / 2);
        }
        let mut seen = Seen { partition, producer: producer.to_owned(), order: [(0, 0); 2] };
        seen.order[way] = order;
        self.seen.push(seen);
        None
    }

    /// Whether everything has come that a producer had written, by both topics.
    pub(crate) fn has_seen(&self, stand: &Stand) -> bool {
        let of = |seen: &&Seen| {
            seen.partition == stand.partition && seen.producer == stand.producer.as_str()
        };
        let come = self.seen.iter().find(of).map_or([(0, 0); 2], |seen| seen.order);
        let whole =
            |way: usize| stand.ways[way] == 0 || come[way] >= (stand.incarnation, stand.ways[way]);
        whole(0) && whole(1)
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

    /// Begins with samples of the past, and those that have come since.
    pub(crate) fn begin(&mut self, past: Vec<Queued>, since: Vec<Queued>) {
        past.into_iter().for_each(|queued| self.push(queued));
        self.begun = true;
        self.admit(since, Instant::now());
    }

    /// What was written before it came is not waited for: who joins does not get all of it.
    pub(crate) fn came_behind(&mut self, stands: Vec<Stand>) {
        self.before = stands;
    }

    /// What comes is in order from now on.
    pub(crate) fn begin_with_what_comes(&mut self) {
        self.begun = true;
    }
}

/// The key of a sample without our header: in a type of a schema's it may be fields.
fn foreign_key(sample: &Sample, typed: Option<&Arc<Typed>>) -> Vec<u8> {
    let mut key = Vec::new();
    match typed {
        // What cannot be read is told when it is handed out.
        Some(typed) => _ = typed.of.from_cdr(sample.cdr(), &mut Vec::new(), &mut key),
        None => key.extend(envelope::header(sample.cdr()).iter().flat_map(|header| header.key)),
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_over_is_one_gap_of_a_partition_until_it_is_told() {
        let mut inbox = Inbox::new(&[0, 1], Take::New);
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
        let inbox = Inbox::new(&[1, 3], Take::New);
        let of = |names: &[&str]| {
            inbox.partition_of(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!([of(&["3"]), of(&["site", "2", "1"]), of(&["*"]), of(&[])], [3, 1, 0, 0]);
    }
}
