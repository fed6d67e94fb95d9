//! Samples that a reader took from Cyclone and has not delivered yet: ordered, numbered, bounded.
//!
//! Constraints. Cyclone delivers samples by key, and a bus topic has two DDS topics. The queue
//! restores the order of each producer's numbers. A sample whose predecessor comes by the other DDS
//! topic waits for it while it can still arrive. A slow reader must not block other readers
//! (Cyclone would block all readers of the process) nor writers. Above the limits the oldest
//! samples are skipped and reported as a gap.

mod behind;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::transport::{Origin, Position, order_by_producer};
use helio_bus::{Gap, GapCause};
use helio_core::{Producer, ProducerName, Tai};

pub(crate) use behind::ReaderBehind;

use crate::announcements::{ProducerPosition, unix_nanos};
use crate::endpoints::{ReaderEndpoints, TypedTopic};
use crate::entity::{DdsError, Guid, Reader, Sample};
use crate::envelope::{self, Header, OLDEST_UNACKED, OTHER_TOPIC, RESENT, RETENTION_GAP};

/// The most queued samples.
const MAX_QUEUED_SAMPLES: usize = 262_144;
/// The most queued bytes, unless it is one sample.
const MAX_QUEUED_BYTES: usize = 256 << 20;
/// The most producers whose numbers are remembered.
const MAX_REMEMBERED_PRODUCERS: usize = 1_024;
/// How long a sample waits for its predecessor on the other topic, which may be lost.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for reliable topics, while the writer lives. Longer than a network outage that leaves
/// the writer alive, plus the time until the writer resends.
const RELIABLE_PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(20);
/// The most departed writers whose partitions are remembered.
const MAX_DEPARTED_WRITERS: usize = 4_096;
/// The most rounds over both DDS topics in one pull.
const MAX_PULL_ROUNDS: usize = 16;
/// Incarnations so many nanoseconds ahead of this host's clock are rejected: they would fence later
/// ones.
const MAX_INCARNATION_AHEAD_NANOS: u64 = 86_400_000_000_000;
/// The producer name of foreign writers.
const FOREIGN_PRODUCER: &str = "dds";

/// The bytes of a sample.
#[derive(Debug)]
pub(crate) enum SampleBytes {
    /// A sample as its writer sent it.
    Own(Sample),
    /// A sample in a page of history.
    Page(Arc<Sample>, Range<usize>),
    /// Bytes, and the handle of their key.
    #[cfg(test)]
    Bytes(Vec<u8>, u64),
}

impl SampleBytes {
    pub(crate) fn cdr(&self) -> &[u8] {
        match self {
            Self::Own(sample) => sample.cdr(),
            Self::Page(page, place) => page.cdr().get(place.clone()).unwrap_or_default(),
            #[cfg(test)]
            Self::Bytes(bytes, _) => bytes,
        }
    }
}

/// A sample with its position.
#[derive(Debug)]
pub(crate) struct QueuedSample {
    pub(crate) sample: SampleBytes,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    /// The producer's number, or a count for foreign writers.
    pub(crate) sequence: u64,
    pub(crate) origin: Origin,
    /// The typed topic that it came by; `None` for envelopes.
    typed: Option<Arc<TypedTopic>>,
    time: Tai,
    pub(crate) incarnation: u64,
    /// The key of a foreign writer's sample.
    foreign: Option<Vec<u8>>,
    /// The number that its producer wrote before; 0 is unknown.
    pub(crate) previous: u64,
    /// The previous sample came by the other topic.
    follows_other_topic: bool,
    /// It was resent.
    resent: bool,
    /// The DDS topic that it came by: 0 for envelopes, 1 for typed samples.
    topic_index: usize,
    /// The handle of its DDS writer.
    writer: u64,
    /// When it was queued.
    since: Instant,
    /// Its writer has no older sample to send.
    pub(crate) base: bool,
    /// It is history from a durability service.
    pub(crate) past: bool,
    /// Whether this reader was too slow for the numbers that are missing before it.
    pub(crate) behind: ReaderBehind,
}

impl QueuedSample {
    /// The handle of its key; 0 in a page.
    fn instance(&self) -> u64 {
        match &self.sample {
            SampleBytes::Own(sample) => sample.instance,
            SampleBytes::Page(..) => 0,
            #[cfg(test)]
            SampleBytes::Bytes(_, instance) => *instance,
        }
    }

    /// Whether a foreign writer wrote it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Whether it is history from a durability service.
    pub(crate) fn is_history(&self) -> bool {
        self.past
    }

    /// Whether it has no value: it deletes its key's last value. A null is always an envelope.
    pub(crate) fn is_null(&self) -> bool {
        self.typed.is_none()
            && envelope::parse(self.sample.cdr())
                .is_some_and(|(header, payload)| payload.is_empty() && header.headers.mark_null())
    }

    pub(crate) fn producer<'a>(&self, header: &Header<'a>) -> &'a str {
        if self.foreign.is_some() { FOREIGN_PRODUCER } else { header.producer }
    }

    /// Header and payload; `avro` receives the payload of a typed sample.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(crate) fn read<'a>(
        &'a self,
        avro: &'a mut Vec<u8>,
    ) -> Result<(Header<'a>, &'a [u8]), String> {
        let Some(typed) = &self.typed else {
            return envelope::parse(self.sample.cdr())
                .ok_or_else(|| "it is not an envelope".to_owned());
        };
        let header = envelope::header(self.sample.cdr());
        let header = header.ok_or_else(|| "it does not begin with a header".to_owned())?;
        let key = self.foreign.as_deref().unwrap_or(header.key);
        avro.clear();
        let read = typed.of.from_cdr(self.sample.cdr(), avro, &mut Vec::new());
        read.map_err(|error| error.to_string())?;
        Ok((Header { schema: typed.schema, key, ..header }, avro))
    }

    /// The order of one producer's samples.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.incarnation, self.sequence)
    }

    /// Key and producer.
    pub(crate) fn names(&self) -> (&[u8], &str) {
        let header = envelope::header(self.sample.cdr());
        header.map_or((&[], FOREIGN_PRODUCER), |header| {
            (self.foreign.as_deref().unwrap_or(header.key), self.producer(&header))
        })
    }

    /// When it was published.
    pub(crate) fn published(&self) -> Tai {
        self.time
    }
}

/// The state of a partition: its samples are numbered in the order of arrival.
#[derive(Debug, Clone, Copy)]
struct PartitionState {
    partition: u32,
    next: u64,
    end: u64,
    /// The number of samples of foreign writers.
    foreign: u64,
}

/// The newest number of a producer in a partition.
#[derive(Debug)]
struct NewestSequences {
    partition: u32,
    producer: String,
    /// Of its envelopes and of its typed samples: each topic delivers them in order.
    order: [(u64, u64); 2],
    /// The first new ones of the newest incarnation of each topic.
    first: [(u64, u64); 2],
    /// The last resent ones of each topic.
    resent: [(u64, u64); 2],
}

/// A DDS writer that is matched, or was.
#[derive(Debug)]
struct MatchedWriter {
    topic_index: usize,
    participant: Guid,
    partitions: Vec<String>,
    /// It is still matched.
    live: bool,
}

/// One producer's blocked samples in a partition, in order. The first one waits for its predecessor
/// on the other topic, the others for the first one.
#[derive(Debug)]
struct ProducerQueue {
    partition: u32,
    producer: String,
    waiting: VecDeque<QueuedSample>,
    /// The other topic's writers that may still send the predecessor.
    awaited: Option<Vec<u64>>,
}

impl NewestSequences {
    fn newest(&self) -> (u64, u64) {
        self.order[0].max(self.order[1])
    }
}

/// The queue of a reader.
pub(crate) struct ReorderQueue {
    pub(crate) gaps: VecDeque<Gap>,
    queue: VecDeque<QueuedSample>,
    bytes: usize,
    places: Vec<PartitionState>,
    seen: Vec<NewestSequences>,
    /// By the handle of the DDS writer.
    writers: HashMap<u64, MatchedWriter>,
    /// Whether writers resend lost samples.
    reliable: bool,
    /// Whether writers drop samples that this reader was too slow for.
    drops: bool,
    /// Whether writers that are matched send their newest sample, although it is not new.
    newest: bool,
    /// The incarnation of foreign writers' samples. They are numbered on arrival, so each
    /// subscription needs a newer incarnation.
    since: u64,
    /// Which resent samples are accepted.
    take: AcceptResent,
    taken: Vec<Sample>,
    past: Option<HistoryPhase>,
    /// Whether new samples are checked for order; the history that writers keep has holes.
    checks_order: bool,
    /// The positions when the reader joined: earlier samples may never arrive.
    before: Vec<ProducerPosition>,
    /// Producers were forgotten: one of them would be taken for new.
    forgot: bool,
    blocked: Vec<ProducerQueue>,
    /// The positions of each producer in the service that sent last values.
    covered: HashMap<(u32, String), (u64, u64)>,
}

/// Which resent samples are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptResent {
    /// None that is older than the first received one.
    New,
    /// Those that were not received yet.
    History,
    /// All of them: the caller checks.
    Everything,
}

/// The state while history arrives in pages: what has arrived, and the new samples that wait for
/// its end.
#[derive(Debug, Default)]
struct HistoryPhase {
    seen: HashMap<(u32, String), (u64, u64)>,
    /// The last values that have arrived: their numbers have holes.
    values: HashSet<(u32, String, (u64, u64))>,
    blocked: VecDeque<QueuedSample>,
    bytes: usize,
    /// By partition and producer, the new samples above the limit.
    skipped: HashMap<(u32, String), SkippedSamples>,
}

/// Last values of one service, set aside while another one is requested, which may have no more.
#[derive(Debug)]
pub(crate) struct SetAsideHistory {
    samples: Vec<QueuedSample>,
    seen: HashMap<(u32, String), (u64, u64)>,
    values: HashSet<(u32, String, (u64, u64))>,
    covered: HashMap<(u32, String), (u64, u64)>,
}

/// The skipped new samples of one producer: how many, from the first to the last.
#[derive(Debug)]
struct SkippedSamples {
    count: u64,
    first: (u64, u64),
    last: (u64, u64),
}

impl HistoryPhase {
    /// The gap of a producer, up to its position or to its first waiting sample.
    fn gap(&self, position: &ProducerPosition) -> Option<Gap> {
        let ProducerPosition { partition, incarnation, .. } = *position;
        let name = position.producer.as_str();
        let seen = self.seen.get(&(partition, name.to_owned()));
        let from = match seen {
            Some((newest, _)) if *newest > incarnation => return None,
            Some((newest, sequence)) if *newest == incarnation => sequence.saturating_add(1),
            _ => 1,
        };
        let waits = self.blocked.iter().filter(|blocked| {
            (blocked.partition, blocked.incarnation) == (partition, incarnation)
                && blocked.names().1 == name
        });
        let waits =
            waits.map(|blocked| blocked.sequence).filter(|sequence| *sequence >= from).min();
        let end = position.sequence.saturating_add(1);
        let to = waits.map_or(end, |first| first.min(end));
        let producer = Producer { name: position.producer.clone(), incarnation };
        let cause = GapCause::Sequence { producer, from, to };
        (from < to).then(|| Gap { partition, lost: to - from, cause })
    }

    /// The number of skipped samples that did not arrive in pages either.
    fn lost(&self, who: &(u32, String), skipped: &SkippedSamples) -> u64 {
        let within = |order: &(u64, u64)| skipped.first <= *order && *order <= skipped.last;
        if !self.values.is_empty() {
            let received = self.values.iter().filter(|(partition, producer, order)| {
                (partition, producer) == (&who.0, &who.1) && within(order)
            });
            return skipped.count.saturating_sub(received.count() as u64);
        }
        match self.seen.get(who) {
            Some(seen) if *seen >= skipped.last => 0,
            Some(seen) if within(seen) && seen.0 == skipped.last.0 => {
                skipped.count.min(skipped.last.1 - seen.1)
            }
            _ => skipped.count,
        }
    }
}

impl ReorderQueue {
    pub(crate) fn new(partitions: &[u32], take: AcceptResent) -> Self {
        let place =
            |partition: &u32| PartitionState { partition: *partition, next: 0, end: 0, foreign: 0 };
        Self {
            gaps: VecDeque::new(),
            queue: VecDeque::new(),
            bytes: 0,
            places: partitions.iter().map(place).collect(),
            seen: Vec::new(),
            writers: HashMap::new(),
            reliable: true,
            drops: false,
            newest: false,
            since: 1,
            take,
            taken: Vec::new(),
            past: None,
            checks_order: take != AcceptResent::History,
            before: Vec::new(),
            forgot: false,
            blocked: Vec::new(),
            covered: HashMap::new(),
        }
    }

    /// Sets when the subscription was opened, in nanoseconds since 1970.
    pub(crate) fn since(self, since: u64) -> Self {
        Self { since, ..self }
    }

    /// For a topic whose writers do not resend lost samples.
    pub(crate) fn best_effort(self, best_effort: bool) -> Self {
        Self { reliable: !best_effort, ..self }
    }

    /// For a topic whose writers wait for no reader: `drops`. `newest`: those that are matched late
    /// send their newest sample.
    pub(crate) fn may_fall_behind(self, drops: bool, newest: bool) -> Self {
        Self { drops, newest, ..self }
    }

    /// Updates the matched writers. Departed ones are remembered: their samples may still be read.
    pub(crate) fn update_writers(&mut self, endpoints: &ReaderEndpoints) {
        let typed = endpoints.typed();
        let readers = [Some(&endpoints.envelopes), typed.as_ref().map(|typed| &typed.reader)];
        for (topic_index, reader) in readers.into_iter().enumerate() {
            let Some(Ok(live)) = reader.map(Reader::writers) else { continue };
            let live: HashSet<_> = live.into_iter().collect();
            let of_it =
                self.writers.iter_mut().filter(|(_, wrote)| wrote.topic_index == topic_index);
            of_it.for_each(|(handle, wrote)| wrote.live = live.contains(handle));
            for handle in live {
                self.add_writer(handle, topic_index, reader);
            }
        }
        if self.writers.len() > MAX_DEPARTED_WRITERS
            && self.writers.values().filter(|w| !w.live).count() > MAX_DEPARTED_WRITERS
        {
            self.writers.retain(|_, wrote| wrote.live);
        }
    }

    fn add_writer(&mut self, handle: u64, topic_index: usize, reader: Option<&Reader>) {
        if !self.writers.contains_key(&handle)
            && let Some(found) = reader.and_then(|reader| reader.publication(handle))
        {
            let (participant, partitions) = (found.participant, found.partitions);
            self.writers
                .insert(handle, MatchedWriter { topic_index, participant, partitions, live: true });
        }
    }

    /// Takes all samples that have arrived.
    pub(crate) fn pull(&mut self, endpoints: &ReaderEndpoints) -> Result<(), DdsError> {
        let (mut received, mut outcome) = (Vec::new(), Ok(()));
        for end in endpoints.former() {
            outcome = outcome.and(self.take(&end.reader, Some(&end.of), &mut received));
        }
        let typed = endpoints.typed();
        let topic_sequences =
            [typed.as_ref().map(|t| (&t.reader, Some(&t.of))), Some((&endpoints.envelopes, None))];
        let topic_sequences: Vec<_> = topic_sequences.into_iter().flatten().collect();
        // Samples that arrived on one topic before those just taken from the other one precede
        // them, whoever wrote them. So both are taken in turns until nothing is left.
        for turn in 0..if topic_sequences.len() > 1 { MAX_PULL_ROUNDS } else { 1 } {
            let (before, (reader, of)) =
                (received.len(), topic_sequences[turn % topic_sequences.len()]);
            outcome = outcome.and(self.take(reader, of, &mut received));
            if turn > 0 && received.len() == before {
                break;
            }
        }
        self.admit(received, Instant::now());
        self.enforce_limits();
        outcome
    }

    fn take(
        &mut self,
        reader: &Reader,
        typed: Option<&Arc<TypedTopic>>,
        into: &mut Vec<QueuedSample>,
    ) -> Result<(), DdsError> {
        let mut taken = std::mem::take(&mut self.taken);
        let outcome = reader.take(&mut taken);
        let valid = taken.drain(..).filter(|sample| sample.valid);
        into.extend(valid.filter_map(|sample| self.accept(sample, reader, typed)));
        self.taken = taken;
        outcome.map(drop)
    }

    /// Queues received samples in order, except those that must wait.
    fn admit(&mut self, mut received: Vec<QueuedSample>, now: Instant) {
        // The samples of one key on one topic are in their writers' order. (Two topics' handles of
        // a key may be equal.)
        let one = |queued: &QueuedSample| (queued.instance(), queued.topic_index);
        let first = received.first().map(one);
        if !received.iter().all(|queued| Some(one(queued)) == first) {
            received.sort_by_key(|queued| queued.time);
            order_by_producer(&mut received, |q| q.names().1.to_owned(), QueuedSample::order);
        }
        for mut queued in received {
            queued.since = now;
            if queued.is_foreign() && queued.sequence == 0 {
                queued.sequence = self.count_foreign(queued.partition);
            }
            self.arrange(queued);
        }
        self.release(now);
    }

    /// The number of a foreign writer's sample: counted per partition, so that none has holes.
    fn count_foreign(&mut self, partition: u32) -> u64 {
        self.place(partition).map_or(1, |place| {
            place.foreign += 1;
            place.foreign
        })
    }

    /// Queues a sample, or blocks it if it or an earlier one of its producer must wait.
    fn arrange(&mut self, queued: QueuedSample) {
        if self.blocked.is_empty() && !queued.follows_other_topic {
            return self.add(queued);
        }
        let (partition, producer) = (queued.partition, queued.names().1);
        let own = |line: &ProducerQueue| line.partition == partition && line.producer == producer;
        if !queued.is_foreign()
            && let Some(place) = self.blocked.iter().position(own)
        {
            let ProducerQueue { waiting, awaited, .. } = &mut self.blocked[place];
            let place = waiting.partition_point(|before| before.order() <= queued.order());
            if place == 0 {
                *awaited = None;
            }
            waiting.insert(place, queued);
        } else if self.waits(&queued) {
            let producer = producer.to_owned();
            let waiting = VecDeque::from([queued]);
            self.blocked.push(ProducerQueue { partition, producer, waiting, awaited: None });
        } else {
            self.add(queued);
        }
    }

    /// Queues blocked samples whose predecessor has arrived or will not arrive. Above the limit it
    /// queues all of them; the missing ones are gaps in their producers' numbers.
    fn release(&mut self, now: Instant) {
        if self.blocked.is_empty() {
            return;
        }
        let mut blocked = std::mem::take(&mut self.blocked);
        let samples: usize = blocked.iter().map(|line| line.waiting.len()).sum();
        let waiting = blocked.iter().flat_map(|line| &line.waiting);
        let full = samples > MAX_QUEUED_SAMPLES
            || waiting.map(|queued| queued.sample.cdr().len()).sum::<usize>() > MAX_QUEUED_BYTES;
        blocked.retain_mut(|line| {
            while let Some(first) = line.waiting.front() {
                if !full && self.waits(first) {
                    let awaited = line.awaited.get_or_insert_with(|| self.others_of(first));
                    if self.may_come(awaited, now.duration_since(first.since)) {
                        return true;
                    }
                }
                line.awaited = None;
                line.waiting.pop_front().into_iter().for_each(|queued| self.add(queued));
            }
            false
        });
        self.blocked = blocked;
    }

    /// Whether a sample must wait for its predecessor, by its own header.
    fn waits(&self, queued: &QueuedSample) -> bool {
        let waits = queued.follows_other_topic && (queued.origin == Origin::Log || queued.resent);
        if !self.checks_order || !waits {
            return false;
        }
        let producer = queued.names().1;
        let before = (queued.incarnation, queued.previous);
        let of = |seen: &&NewestSequences| {
            seen.partition == queued.partition && seen.producer == producer
        };
        let received = self.seen.iter().find(of).map_or((0, 0), |seen| {
            let by = if queued.resent { &seen.resent } else { &seen.order };
            by[1 - queued.topic_index]
        });
        let was_there = |position: &ProducerPosition| {
            position.partition == queued.partition
                && position.producer.as_str() == producer
                && (position.incarnation, position.sequence) >= before
        };
        received < before && !self.before.iter().any(was_there)
    }

    /// The writers that may send a sample's predecessor: those of the other topic in the same
    /// process.
    fn others_of(&self, queued: &QueuedSample) -> Vec<u64> {
        let Some(own) = self.writers.get(&queued.writer) else { return Vec::new() };
        let others = self.writers.iter().filter(|(_, other)| {
            other.live
                && other.topic_index != own.topic_index
                && other.participant == own.participant
                && other.partitions == own.partitions
        });
        others.map(|(handle, _)| *handle).collect()
    }

    /// Whether one of these writers may still send the predecessor after such a wait.
    fn may_come(&self, awaited: &[u64], waited: Duration) -> bool {
        let lives = |writer: &u64| self.writers.get(writer).is_some_and(|writer| writer.live);
        waited < PREDECESSOR_TIMEOUT
            || (self.reliable && waited < RELIABLE_PREDECESSOR_TIMEOUT && awaited.iter().any(lives))
    }

    /// Whether samples wait for predecessors.
    pub(crate) fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Whether samples are ready for delivery.
    pub(crate) fn has_samples(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether samples or gaps are ready for delivery.
    pub(crate) fn has_any(&self) -> bool {
        !self.queue.is_empty() || !self.gaps.is_empty()
    }

    /// Makes new samples wait until the history has arrived, including those that were received and
    /// not delivered.
    pub(crate) fn begin_history(&mut self) {
        let (before, behind) = self.queue.drain(..).partition(QueuedSample::is_history);
        self.queue = before;
        self.bytes = self.queue.iter().map(|queued| queued.sample.cdr().len()).sum();
        self.past = Some(HistoryPhase::default());
        let behind: VecDeque<_> = behind;
        behind.into_iter().for_each(|queued| self.add(queued));
    }

    /// Makes the sample that was delivered last the next one again.
    pub(crate) fn put_back(&mut self, queued: QueuedSample) {
        self.bytes += queued.sample.cdr().len();
        if let Some(place) = self.place(queued.partition) {
            place.next = queued.offset;
        }
        self.queue.push_front(queued);
    }

    /// Whether the next sample is history from a durability service.
    pub(crate) fn begins_with_history(&self) -> bool {
        self.queue.front().is_some_and(QueuedSample::is_history)
    }

    /// Drops all undelivered samples and history: they arrive again.
    pub(crate) fn discard(&mut self) {
        self.past = None;
        self.blocked.clear();
        self.gaps.clear();
        self.take_all();
    }

    /// Queues a sample of a page of history, unless it arrived before. `last`: it is a last value.
    pub(crate) fn add_history(&mut self, page: &Arc<Sample>, place: Range<usize>, last: bool) {
        let body = SampleBytes::Page(Arc::clone(page), place);
        let Some((header, _)) = envelope::parse(body.cdr()) else { return };
        let holes = last || header.flags & RETENTION_GAP != 0;
        let origin = if holes { Origin::History } else { Origin::Log };
        let (partition, order) = (header.partition, header.order());
        let key = (partition, header.producer.to_owned());
        let (time, sequence, incarnation) = (header.time, header.sequence, header.incarnation);
        let previous = header.previous;
        let Some(past) = &mut self.past else { return };
        if last {
            past.values.insert((partition, key.1.clone(), order));
        } else if past.seen.get(&key).is_some_and(|seen| *seen >= order) {
            return;
        }
        let seen = past.seen.entry(key).or_default();
        *seen = order.max(*seen);
        let (typed, foreign, since) = (None, None, Instant::now());
        self.push(QueuedSample {
            sample: body,
            partition,
            offset: 0,
            sequence,
            origin,
            typed,
            time,
            incarnation,
            foreign,
            previous,
            follows_other_topic: false,
            resent: true,
            topic_index: 0,
            writer: 0,
            since,
            base: true,
            past: true,
            behind: ReaderBehind::No,
        });
    }

    /// Sets the positions of the service that sent last values. Samples below them that are in no
    /// page are older than those in pages.
    pub(crate) fn set_covered(&mut self, positions: Vec<ProducerPosition>) {
        let covered = positions.into_iter().map(|position| {
            let ProducerPosition { partition, producer, incarnation, sequence, .. } = position;
            ((partition, producer.as_str().to_owned()), (incarnation, sequence))
        });
        self.covered = covered.collect();
    }

    /// Whether a sample is not newer than the service's position.
    pub(crate) fn is_covered(&self, queued: &QueuedSample) -> bool {
        let who = (queued.partition, queued.names().1.to_owned());
        self.covered.get(&who).is_some_and(|covered| queued.order() <= *covered)
    }

    /// Sets a position that the caller has already.
    pub(crate) fn set_known(&mut self, position: &ProducerPosition) {
        let order = (position.incarnation, position.sequence);
        for topic_index in [0, 1] {
            self.record_sequence(
                position.partition,
                position.producer.as_str(),
                order,
                topic_index,
            );
        }
    }

    /// The number of samples that wait for delivery.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Sets aside the history that has arrived; it is requested again from its beginning.
    pub(crate) fn set_history_aside(&mut self) -> SetAsideHistory {
        let (samples, covered) = (self.take_all(), std::mem::take(&mut self.covered));
        let (seen, values) = match &mut self.past {
            Some(past) => (std::mem::take(&mut past.seen), std::mem::take(&mut past.values)),
            None => Default::default(),
        };
        SetAsideHistory { samples, seen, values, covered }
    }

    /// Restores the history that was set aside, because no service has more.
    pub(crate) fn restore_history(&mut self, aside: SetAsideHistory) {
        self.take_all();
        let SetAsideHistory { samples, seen, values, covered } = aside;
        samples.into_iter().for_each(|queued| self.push(queued));
        self.covered = covered;
        if let Some(past) = &mut self.past {
            (past.seen, past.values) = (seen, values);
        }
    }

    /// The positions of the history that has arrived: it need not be sent again.
    pub(crate) fn history_positions(&self) -> Vec<ProducerPosition> {
        let seen = self.past.iter().flat_map(|past| &past.seen);
        let position = |((partition, producer), order): (&(u32, String), &(u64, u64))| {
            Some(ProducerPosition::new(*partition, ProducerName::new(producer).ok()?, *order))
        };
        seen.filter_map(position).collect()
    }

    /// Reports history that will not arrive as gaps, as far as the writers' positions show it;
    /// returns the partitions with gaps.
    pub(crate) fn report_missing_until(&mut self, until: &[ProducerPosition]) -> HashSet<u32> {
        let Some(past) = &self.past else { return HashSet::new() };
        let gaps: Vec<_> = until.iter().filter_map(|position| past.gap(position)).collect();
        let told = gaps.iter().map(|gap| gap.partition).collect();
        self.gaps.extend(gaps);
        told
    }

    /// Reports that the rest of the history will not arrive. The losses of departed writers are
    /// unknown; they are a gap of unknown size.
    pub(crate) fn report_missing_history(&mut self, until: &[ProducerPosition]) {
        let told = self.report_missing_until(until);
        let rest = self.places.iter().filter(|place| !told.contains(&place.partition));
        let rest = rest.map(|place| Gap::retention(place.partition, place.end, place.end));
        self.gaps.extend(rest);
    }

    /// Ends the history: the new samples follow it. `alone`: writers send no history of their own.
    pub(crate) fn end_history(&mut self, alone: bool) {
        let Some(past) = self.past.take() else { return };
        let mut all = BTreeMap::new();
        for (who, skipped) in &past.skipped {
            *all.entry(who.0).or_default() += past.lost(who, skipped);
        }
        for (partition, lost) in all.into_iter().filter(|(_, lost)| *lost > 0) {
            let Some(place) = self.place(partition) else { continue };
            let (from, to) = (place.end, place.end + lost);
            place.end = to;
            let cause = GapCause::Overload { from, to };
            self.gaps.push_back(Gap { partition, lost, cause });
        }
        for queued in past.blocked {
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
            // Live writers send their own history, which has not arrived yet.
            return;
        }
        for ((partition, producer), order) in past.seen {
            for topic_index in [0, 1] {
                self.record_sequence(partition, &producer, order, topic_index);
            }
        }
    }

    fn add(&mut self, queued: QueuedSample) {
        let Some(past) = &mut self.past else { return self.push(queued) };
        past.bytes += queued.sample.cdr().len();
        past.blocked.push_back(queued);
        while past.blocked.len() > MAX_QUEUED_SAMPLES
            || (past.bytes > MAX_QUEUED_BYTES && past.blocked.len() > 1)
        {
            let Some(oldest) = past.blocked.pop_front() else { break };
            past.bytes -= oldest.sample.cdr().len();
            let who = (oldest.partition, oldest.names().1.to_owned());
            let order = oldest.order();
            let skipped = past.skipped.entry(who);
            let skipped = skipped.or_insert(SkippedSamples { count: 0, first: order, last: order });
            skipped.count += 1;
            (skipped.first, skipped.last) = (order.min(skipped.first), order.max(skipped.last));
        }
    }

    /// Accepts a received sample, unless it is known or of another partition.
    fn accept(
        &mut self,
        sample: Sample,
        reader: &Reader,
        typed: Option<&Arc<TypedTopic>>,
    ) -> Option<QueuedSample> {
        let topic_index = usize::from(typed.is_some());
        let Some(header) =
            envelope::header(sample.cdr()).filter(|h| self.is_plausible(h.incarnation))
        else {
            let partition = self.partition_of_writer(reader, &sample, topic_index);
            self.report_unreadable(partition);
            return None;
        };
        let (partition, foreign) = match header.sequence {
            // Foreign writers leave the header empty; the partition is their writer's.
            0 => {
                let partition = self.partition_of_writer(reader, &sample, topic_index);
                (partition, Some(foreign_key(&sample, typed)))
            }
            _ => (header.partition, None),
        };
        self.place(partition)?;
        let (sequence, incarnation, time) = if foreign.is_some() {
            // It is numbered when it is queued.
            (0, self.since, Tai::from_unix_nanos(sample.source_time))
        } else {
            (header.sequence, header.incarnation, header.time)
        };
        let resent = header.flags & RESENT != 0;
        let (origin, behind) = match foreign {
            Some(_) => (Origin::Log, ReaderBehind::No),
            None => self.origin(&header, topic_index)?,
        };
        let base = foreign.is_some() || header.flags & OLDEST_UNACKED != 0;
        let (previous, follows_other_topic) = (header.previous, header.flags & OTHER_TOPIC != 0);
        Some(QueuedSample {
            partition,
            offset: 0,
            sequence,
            origin,
            typed: typed.cloned(),
            time,
            incarnation,
            foreign,
            previous,
            follows_other_topic,
            resent,
            topic_index,
            writer: sample.writer,
            since: Instant::now(),
            base,
            past: false,
            behind,
            sample: SampleBytes::Own(sample),
        })
    }

    /// Records a bus writer's sample; returns where it comes from, and whether the reader is
    /// behind. `None` if the sample is known or not wanted.
    fn origin(
        &mut self,
        header: &Header<'_>,
        topic_index: usize,
    ) -> Option<(Origin, ReaderBehind)> {
        let (partition, order) = (header.partition, header.order());
        let before = self.record_sequence(partition, header.producer, order, topic_index);
        if header.flags & RESENT == 0 {
            if self.newest && self.is_old(header, before) {
                return None;
            }
            let checks = self.reliable && self.take == AcceptResent::New;
            let behind =
                if checks { self.behind(header, topic_index, before) } else { ReaderBehind::No };
            return Some((Origin::Log, behind));
        }
        self.record_resent(partition, header.producer, order, topic_index);
        let known = before.is_some_and(|before| before >= order);
        let wanted = match self.take {
            AcceptResent::New => before.is_some() && !known,
            AcceptResent::History => !known,
            AcceptResent::Everything => true,
        };
        wanted.then_some((Origin::History, ReaderBehind::No))
    }

    /// Whether a sample arrived before, or was published before the reader joined.
    fn is_old(&self, header: &Header<'_>, before: Option<(u64, u64)>) -> bool {
        let was_there = |position: &ProducerPosition| {
            position.partition == header.partition
                && position.producer.as_str() == header.producer
                && position.order() >= header.order()
        };
        before.is_some_and(|before| before >= header.order()) || self.before.iter().any(was_there)
    }

    /// Whether an incarnation is plausible: a start time by a roughly correct clock, or a small
    /// number.
    fn is_plausible(&self, incarnation: u64) -> bool {
        incarnation <= self.since.saturating_add(MAX_INCARNATION_AHEAD_NANOS)
            || incarnation <= unix_nanos().saturating_add(MAX_INCARNATION_AHEAD_NANOS)
    }

    /// Reports a sample whose header is neither ours nor empty.
    fn report_unreadable(&mut self, partition: u32) {
        let Some(place) = self.place(partition) else { return };
        let from = place.end;
        place.end += 1;
        for gap in self.gaps.iter_mut().rev() {
            if let GapCause::Damaged { to, .. } = &mut gap.cause
                && (gap.partition, *to) == (partition, from)
            {
                *to += 1;
                gap.lost += 1;
                return;
            }
        }
        let cause = GapCause::Damaged { from, to: from + 1 };
        self.gaps.push_back(Gap { partition, lost: 1, cause });
    }

    fn partition_of_writer(&mut self, reader: &Reader, sample: &Sample, topic_index: usize) -> u32 {
        match self.places[..] {
            [PartitionState { partition, .. }] => partition,
            _ => {
                // The writer may have left since.
                self.add_writer(sample.writer, topic_index, Some(reader));
                let live = self.writers.get(&sample.writer).map(|writer| &writer.partitions[..]);
                self.partition_of(live.unwrap_or_default())
            }
        }
    }

    /// The partition that DDS partition names stand for: the first one that is read here.
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

    fn record_resent(
        &mut self,
        partition: u32,
        producer: &str,
        order: (u64, u64),
        topic_index: usize,
    ) {
        let same =
            |seen: &&mut NewestSequences| seen.partition == partition && seen.producer == producer;
        if let Some(seen) = self.seen.iter_mut().find(same) {
            seen.resent[topic_index] = order;
        }
    }

    /// Records a producer's newest number on one topic. Returns the previous one on that topic, or
    /// that of a newer incarnation; `None` if the producer is new.
    fn record_sequence(
        &mut self,
        partition: u32,
        producer: &str,
        order: (u64, u64),
        topic_index: usize,
    ) -> Option<(u64, u64)> {
        let same =
            |seen: &NewestSequences| seen.partition == partition && seen.producer == producer;
        if let Some(place) = self.seen.iter().position(same) {
            // Busy producers are found first.
            self.seen.swap(0, place);
            let newest = self.seen[0].newest();
            let same_way = self.seen[0].order[topic_index];
            let before = if newest.0 > order.0 { newest } else { same_way };
            let newest = &mut self.seen[0].order[topic_index];
            *newest = order.max(*newest);
            return Some(before);
        }
        if self.seen.len() == MAX_REMEMBERED_PRODUCERS {
            self.seen.truncate(MAX_REMEMBERED_PRODUCERS / 2);
            self.forgot = true;
        }
        let (none, producer) = ([(0, 0); 2], producer.to_owned());
        let mut seen =
            NewestSequences { partition, producer, order: none, first: none, resent: none };
        seen.order[topic_index] = order;
        self.seen.push(seen);
        None
    }

    /// Whether all samples up to a position have arrived, on both topics.
    pub(crate) fn has_seen(&self, position: &ProducerPosition) -> bool {
        position.is_reached(self.received(position))
    }

    /// The same; samples from before this reader joined have passed.
    pub(crate) fn has_passed(&self, position: &ProducerPosition) -> bool {
        let mut passed = self.received(position);
        let of = |before: &&ProducerPosition| {
            before.partition == position.partition && before.producer == position.producer
        };
        if let Some(joined) = self.before.iter().find(of) {
            for (passed, sequence) in passed.iter_mut().zip(joined.topic_sequences) {
                *passed = (joined.incarnation, sequence).max(*passed);
            }
        }
        position.is_reached(passed)
    }

    /// What has arrived on both topics of a position's producer.
    fn received(&self, position: &ProducerPosition) -> [(u64, u64); 2] {
        let of = |seen: &&NewestSequences| {
            seen.partition == position.partition && seen.producer == position.producer.as_str()
        };
        self.seen.iter().find(of).map_or([(0, 0); 2], |seen| seen.order)
    }

    /// Whether new samples wait until the history has arrived.
    pub(crate) fn awaits_history(&self) -> bool {
        self.past.is_some()
    }

    fn push(&mut self, mut queued: QueuedSample) {
        let Some(place) = self.place(queued.partition) else { return };
        queued.offset = place.end;
        place.end += 1;
        self.bytes += queued.sample.cdr().len();
        self.queue.push_back(queued);
    }

    fn place(&mut self, partition: u32) -> Option<&mut PartitionState> {
        self.places.iter_mut().find(|place| place.partition == partition)
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedSample> {
        let Some(mut first) = self.queue.pop_front() else {
            if self.gaps.is_empty() {
                // Positions that were reported as gaps have passed.
                self.places.iter_mut().for_each(|place| place.next = place.end);
            }
            return None;
        };
        self.bytes -= first.sample.cdr().len();
        if let Some(place) = self.place(first.partition) {
            place.next = first.offset + 1;
        }
        if first.behind == ReaderBehind::First {
            first.behind = self.lost_since_join(&first);
        }
        Some(first)
    }

    /// Skips the oldest samples above the limits. Skipped samples are one gap for each partition
    /// until it is reported.
    fn enforce_limits(&mut self) {
        while self.queue.len() > MAX_QUEUED_SAMPLES
            || (self.bytes > MAX_QUEUED_BYTES && self.queue.len() > 1)
        {
            let Some(QueuedSample { partition, offset, .. }) = self.pop() else { break };
            self.report_skipped(partition, offset);
        }
    }

    fn report_skipped(&mut self, of: u32, offset: u64) {
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

    /// The gap of an unreadable sample.
    pub(crate) fn damaged(of: &QueuedSample) -> Gap {
        let (partition, from) = (of.partition, of.offset);
        Gap { partition, lost: 1, cause: GapCause::Damaged { from, to: from + 1 } }
    }

    pub(crate) fn positions(&self, visit: &mut dyn FnMut(Position)) {
        for PartitionState { partition, next, end, .. } in self.places.iter().copied() {
            visit(Position { partition, next, end });
        }
    }

    /// Continues at an offset of a partition: false if it has passed, `None` if the partition is
    /// not read.
    pub(crate) fn skip_to(&mut self, partition: u32, offset: u64) -> Option<bool> {
        let place = self.place(partition)?;
        if offset < place.next {
            return Some(false);
        }
        place.next = offset.min(place.end);
        let skipped =
            |queued: &QueuedSample| queued.partition == partition && queued.offset < offset;
        self.queue.retain(|queued| !skipped(queued));
        self.bytes = self.queue.iter().map(|queued| queued.sample.cdr().len()).sum();
        Some(true)
    }

    /// Removes all samples, to queue them again in another order.
    pub(crate) fn take_all(&mut self) -> Vec<QueuedSample> {
        self.bytes = 0;
        for place in &mut self.places {
            (place.next, place.end) = (0, 0);
        }
        self.queue.drain(..).collect()
    }

    /// Begins with history, followed by the samples that arrived since.
    pub(crate) fn begin(&mut self, past: Vec<QueuedSample>, since: Vec<QueuedSample>) {
        past.into_iter().for_each(|queued| self.push(queued));
        self.covered = HashMap::new();
        self.checks_order = true;
        self.admit(since, Instant::now());
    }

    /// Sets the writers' positions when the reader joined: earlier samples are not waited for.
    /// Those that writers sent although they are not new are dropped.
    pub(crate) fn set_join_positions(&mut self, positions: Vec<ProducerPosition>) {
        self.before = positions;
        if self.newest {
            let arrived = self.take_all();
            let new = |queued: &QueuedSample| {
                let header = envelope::header(queued.sample.cdr());
                header.is_none_or(|header| !self.is_old(&header, None))
            };
            let new: Vec<_> = arrived.into_iter().filter(new).collect();
            new.into_iter().for_each(|queued| self.push(queued));
        }
    }

    /// Checks the order of new samples from now on.
    pub(crate) fn begin_live(&mut self) {
        self.checks_order = true;
    }
}

/// The key of a foreign writer's sample: key fields of the type, or the header's key.
fn foreign_key(sample: &Sample, typed: Option<&Arc<TypedTopic>>) -> Vec<u8> {
    let mut key = Vec::new();
    match typed {
        // Unreadable samples are reported on delivery.
        Some(typed) => _ = typed.of.from_cdr(sample.cdr(), &mut Vec::new(), &mut key),
        None => key.extend(envelope::header(sample.cdr()).iter().flat_map(|header| header.key)),
    }
    key
}

#[cfg(test)]
mod tests;
