//! The newest samples of each key, for late joiners.
//!
//! Constraints. The result is exact as of an offset at which the reader continues: no update of a
//! key falls between the two. The number of records read is limited.
//!
//! Operation. A topic's companion has the newest sample of each key, but a copy may still be in
//! flight. So the newest [`TAIL_RECORDS`] records of the log itself are read as well: there cannot
//! be more between a record and its copy unless a writer has more in flight. For more than one
//! sample per key, and for topics without a companion, the newest [`MAX_SCANNED_RECORDS`] records
//! of each partition are read instead; older keys are not found.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use helio_bus::TransportError;
use helio_bus::transport::{Ends, Producers, order_by_producer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;

use crate::SCHEME;
use crate::client::error::{failed, outage};
use crate::client::fetcher::SampleQueue;
use crate::client::options::{BROKER_TIMEOUT, FetchPace};
use crate::client::signal::ReaderSignal;
use crate::topic::sample::{NextForeignSequence, OwnedSample};
use crate::topic::start::StartPosition;
use crate::topic::state::TopicState;

/// The maximum number of samples in a late joiner's history; beyond it the log must be read.
const MAX_HISTORY_SAMPLES: usize = 1_000_000;
/// The newest samples of each key of one partition, in the log's order.
#[derive(Default)]
pub(crate) struct NewestByKey {
    keys: HashMap<Vec<u8>, VecDeque<OwnedSample>>,
    /// The newest incarnation and sequence of each producer.
    producers: HashMap<String, (u64, u64)>,
}

impl NewestByKey {
    fn add(&mut self, kept: OwnedSample, n: usize) {
        let order = kept.order();
        let name = kept.meta.producer.name.as_str();
        let newest = self.producers.entry(name.to_owned()).or_insert(order);
        // A fenced incarnation's later samples do not replace its successor's.
        if order.0 < newest.0 {
            return;
        }
        *newest = order.max(*newest);
        let of_key = self.keys.entry(kept.key().to_vec()).or_default();
        // A null deletes what is older, and has no place beside what is newer.
        if kept.is_null() || of_key.back().is_some_and(OwnedSample::is_null) {
            of_key.clear();
        }
        of_key.push_back(kept);
        if of_key.len() > n {
            of_key.pop_front();
        }
    }

    /// These, and those that only the companion has, ordered so that each producer's sequences
    /// increase.
    fn with(mut self, companion: Self) -> Vec<OwnedSample> {
        let mut all = Vec::new();
        for copy in companion.keys.into_values().flatten() {
            let Some(of_key) = self.keys.get_mut(copy.key()) else {
                all.push(copy);
                continue;
            };
            // Published after the log was read: it belongs to the same state as that producer's
            // other samples since then.
            let producer = copy.meta.producer.name.as_str();
            let read = self.producers.get(producer).copied();
            if read.is_some_and(|newest| copy.order() > newest) {
                of_key.pop_front();
                of_key.push_back(copy);
            }
        }
        all.sort_unstable_by_key(|kept| kept.offset);
        let mut log: Vec<_> = self.keys.into_values().flatten().collect();
        log.sort_unstable_by_key(|kept| kept.offset);
        all.append(&mut log);
        // A null deletes its key.
        all.retain(|kept| !kept.is_null());
        let who = |kept: &OwnedSample| kept.meta.producer.name.to_string();
        order_by_producer(&mut all, who, OwnedSample::order);
        all
    }
}

/// The samples of partitions' companions, in the partitions' order; empty ones if there is none.
pub(crate) fn companions(
    topic: &TopicState,
    partitions: &[u32],
) -> Result<Vec<NewestByKey>, TransportError> {
    let mut newest: Vec<_> = partitions.iter().map(|_| NewestByKey::default()).collect();
    let Some(companion) = &topic.companion else { return Ok(newest) };
    let mut ranges = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let (first, end) = topic.link.client.ends(companion, *partition, BROKER_TIMEOUT)?;
        ranges.push((*partition, first, end));
    }
    scan(topic, companion, &ranges, |place, queue| {
        let (_, first, end) = ranges[place];
        read(topic, queue, (first, end), (&mut newest[place], 1))
    })?;
    Ok(newest)
}

/// A late joiner's history of partitions, from their logs and companions: each up to its start's
/// end.
pub(crate) fn of(
    topic: &TopicState,
    starts: &[StartPosition],
    (n, companions): (u32, Vec<NewestByKey>),
) -> Result<VecDeque<OwnedSample>, TransportError> {
    let mut logs: Vec<_> = starts.iter().map(|_| NewestByKey::default()).collect();
    let range = |start: &StartPosition| (start.partition, start.offset, start.end);
    let ranges: Vec<_> = starts.iter().map(range).collect();
    scan(topic, &topic.kafka, &ranges, |place, queue| {
        let (_, first, end) = ranges[place];
        read(topic, queue, (first, end), (&mut logs[place], n as usize))
    })?;
    let mut all = VecDeque::new();
    for ((log, companion), (partition, first, end)) in logs.into_iter().zip(companions).zip(ranges)
    {
        let mut history = log.with(companion);
        for kept in &mut history {
            kept.partition = partition;
            if kept.offset < first || kept.offset >= end {
                // An offset that continues the log: a reader that resumes behind it misses nothing.
                kept.offset = end.saturating_sub(1);
            }
        }
        all.extend(history);
    }
    Ok(all)
}

/// Reads each non-empty partition of a topic.
fn scan(
    topic: &TopicState,
    name: &str,
    ranges: &[(u32, u64, u64)],
    mut read: impl FnMut(usize, &SampleQueue) -> Result<(), TransportError>,
) -> Result<(), TransportError> {
    let places: Vec<_> = (0..ranges.len()).filter(|n| ranges[*n].1 < ranges[*n].2).collect();
    if places.is_empty() {
        return Ok(());
    }
    let partitions: Vec<_> = places.iter().map(|place| ranges[*place].0).collect();
    let starts: Vec<_> = places.iter().map(|place| (ranges[*place].0, ranges[*place].1)).collect();
    let id = topic.link.client.described(name, BROKER_TIMEOUT)?.map(|described| described.id);
    let mut lent = topic.link.scans.lend((name, id), &partitions, FetchPace::Prompt)?;
    let queues = lent.assign(&starts, &Arc::<ReaderSignal>::default())?;
    places.iter().zip(&queues).try_for_each(|(place, queue)| read(*place, queue))
}

/// Reads a partition from one offset to another.
fn read(
    topic: &TopicState,
    queue: &SampleQueue,
    (first, end): (u64, u64),
    (newest, n): (&mut NewestByKey, usize),
) -> Result<(), TransportError> {
    let (mut producers, mut foreign) = (Producers::default(), NextForeignSequence::None);
    let mut next = first;
    let mut until = Instant::now() + BROKER_TIMEOUT;
    while next < end {
        let left = until.saturating_duration_since(Instant::now());
        let Some(message) = queue.poll(left) else {
            return Err(outage("the history has not arrived in time".to_owned()));
        };
        let message = match message {
            // The end may follow transaction markers, which no reader receives.
            Err(KafkaError::PartitionEOF(_)) => return Ok(()),
            message => message.map_err(failed("read the history"))?,
        };
        next = u64::try_from(message.offset()).unwrap_or(0) + 1;
        if next > end {
            break;
        }
        let mut kept = OwnedSample::of(&message, &mut producers, &mut foreign);
        topic.format.learn(&mut kept.meta, &kept.payload, until)?;
        newest.add(kept, n);
        if newest.keys.len() > MAX_HISTORY_SAMPLES {
            return Err(too_many());
        }
        until = Instant::now() + BROKER_TIMEOUT;
    }
    Ok(())
}

/// The ends of partitions for readers at these places: each behind the newest record that a reader
/// can still receive. The log may end with transaction markers, or with offsets that compaction
/// emptied; no reader passes those.
pub(crate) fn newest_ends(
    topic: &TopicState,
    places: &[(u32, u64)],
) -> Result<Ends, TransportError> {
    let mut ends = Ends::with_capacity(places.len());
    for (partition, next) in places {
        let (first, end) = topic.link.client.ends(&topic.kafka, *partition, BROKER_TIMEOUT)?;
        ends.push((*partition, newest_end(topic, *partition, (first.max(*next), end))?));
    }
    Ok(ends)
}

/// Behind the newest record of a partition from `first` on; `first` if there is none. It reads from
/// the end backwards, twice as far each time.
fn newest_end(
    topic: &TopicState,
    partition: u32,
    (first, end): (u64, u64),
) -> Result<u64, TransportError> {
    let mut from = end;
    while from > first {
        from = from.saturating_sub((end - from).max(1)).max(first);
        let mut newest = None;
        scan(topic, &topic.kafka, &[(partition, from, end)], |_, queue| {
            newest = newest_record(queue, end)?;
            Ok(())
        })?;
        if let Some(newest) = newest {
            return Ok(newest + 1);
        }
    }
    Ok(first)
}

/// The offset of the newest record before `end` in a queue.
fn newest_record(queue: &SampleQueue, end: u64) -> Result<Option<u64>, TransportError> {
    let mut newest = None;
    while newest.is_none_or(|newest| newest + 1 < end) {
        let message = match queue.poll(BROKER_TIMEOUT) {
            None => return Err(outage("the end of a log has not arrived in time".to_owned())),
            Some(Err(KafkaError::PartitionEOF(_))) => break,
            Some(message) => message.map_err(failed("read the end of a log"))?,
        };
        let offset = u64::try_from(message.offset()).unwrap_or(0);
        if offset >= end {
            break;
        }
        newest = Some(offset);
    }
    Ok(newest)
}

fn too_many() -> TransportError {
    TransportError::Unsupported {
        transport: SCHEME.to_owned(),
        what: format!("return the last values of more than {MAX_HISTORY_SAMPLES} keys"),
        remedy: "start at the earliest sample and read the log".to_owned(),
    }
}
