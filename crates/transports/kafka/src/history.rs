//! The newest samples of each key, for those who join late.
//!
//! Constraints. Exact as of a place in the log, at which the reader goes on: no update of a key
//! falls between the two. What is read for it is bounded.
//!
//! Operation. Where a topic has a companion, that has the newest sample of each key, and a copy may
//! be on its way still. So the newest [`TAIL`] records of the log itself are read as well: more
//! cannot be between a record and its copy unless a writer has more than that under way. For more
//! than one sample a key, and for topics without a companion, the newest [`SCAN`] records of each
//! partition are read instead, and keys that are further back are not found.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use helio_bus::TransportError;
use helio_bus::transport::{Producers, order_by_producer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;

use crate::SCHEME;
use crate::error::{failed, outage};
use crate::fetcher::{Pace, Queue, Wake};
use crate::options::PATIENCE;
use crate::reader::Start;
use crate::sample::{Foreign, Kept};
use crate::topic::TopicState;

/// The records of the log that are read beside a companion, a partition.
const TAIL: u64 = 1_000;
/// The records of the log that are read where there is no companion, a partition.
const SCAN: u64 = 1_000_000;
/// The most samples that a late joiner gets as history: beyond it the log is to be read.
const MAX_SAMPLES: usize = 1_000_000;
/// How many records of the log are to be read for the newest `n` of each key.
pub(crate) fn depth(topic: &TopicState, n: u32) -> u64 {
    if n == 1 && topic.companion.is_some() { TAIL } else { SCAN }
}

/// The newest samples of each key of one partition, gathered in the order of a log.
#[derive(Default)]
pub(crate) struct Newest {
    keys: HashMap<Vec<u8>, VecDeque<Kept>>,
    /// The newest incarnation and sequence of each producer.
    producers: HashMap<String, (u64, u64)>,
}

impl Newest {
    fn add(&mut self, kept: Kept, n: usize) {
        let order = kept.order();
        let name = kept.meta.producer.name.as_str();
        let newest = self.producers.entry(name.to_owned()).or_insert(order);
        // A replaced incarnation that writes on does not replace its successor's samples.
        if order.0 < newest.0 {
            return;
        }
        *newest = order.max(*newest);
        let of_key = self.keys.entry(kept.key().to_vec()).or_default();
        of_key.push_back(kept);
        if of_key.len() > n {
            of_key.pop_front();
        }
    }

    /// These, and what the companion has besides; in an order in which each producer's numbers
    /// rise.
    fn with(mut self, companion: Self) -> Vec<Kept> {
        let mut all = Vec::new();
        for copy in companion.keys.into_values().flatten() {
            let Some(of_key) = self.keys.get_mut(copy.key()) else {
                all.push(copy);
                continue;
            };
            // Published after the log was looked at: with what else that producer has published
            // since it makes one state, so it counts.
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
        let who = |kept: &Kept| kept.meta.producer.name.to_string();
        order_by_producer(&mut all, who, Kept::order);
        all
    }
}

/// What the companions of partitions have, in the partitions' order; nothing where there are none.
pub(crate) fn companions(
    topic: &TopicState,
    partitions: &[u32],
) -> Result<Vec<Newest>, TransportError> {
    let mut newest: Vec<_> = partitions.iter().map(|_| Newest::default()).collect();
    let Some(companion) = &topic.companion else { return Ok(newest) };
    let mut ranges = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let (first, end) = topic.connection.client.ends(companion, *partition, PATIENCE)?;
        ranges.push((*partition, first, end));
    }
    scan(topic, companion, &ranges, |place, queue| {
        let (_, first, end) = ranges[place];
        read(topic, queue, (first, end), (&mut newest[place], 1))
    })?;
    Ok(newest)
}

/// A late joiner's history of partitions, out of their logs and companions: each up to the end that
/// its start names.
pub(crate) fn of(
    topic: &TopicState,
    starts: &[Start],
    (n, companions): (u32, Vec<Newest>),
) -> Result<VecDeque<Kept>, TransportError> {
    let mut logs: Vec<_> = starts.iter().map(|_| Newest::default()).collect();
    let range = |start: &Start| (start.partition, start.offset, start.end);
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
                // A place that continues the log: who goes on behind it misses nothing.
                kept.offset = end.saturating_sub(1);
            }
        }
        all.extend(history);
    }
    Ok(all)
}

/// Has each of a topic's partitions read that is not empty.
fn scan(
    topic: &TopicState,
    name: &str,
    ranges: &[(u32, u64, u64)],
    mut read: impl FnMut(usize, &Queue) -> Result<(), TransportError>,
) -> Result<(), TransportError> {
    let places: Vec<_> = (0..ranges.len()).filter(|n| ranges[*n].1 < ranges[*n].2).collect();
    if places.is_empty() {
        return Ok(());
    }
    let partitions: Vec<_> = places.iter().map(|place| ranges[*place].0).collect();
    let starts: Vec<_> = places.iter().map(|place| (ranges[*place].0, ranges[*place].1)).collect();
    let id = topic.connection.described(name, PATIENCE)?.map(|described| described.id);
    let mut lent = topic.connection.scans.lend((name, id), &partitions, Pace::Prompt)?;
    let queues = lent.assign(&starts, &Arc::<Wake>::default())?;
    places.iter().zip(&queues).try_for_each(|(place, queue)| read(*place, queue))
}

/// Reads a partition from one place to another.
fn read(
    topic: &TopicState,
    queue: &Queue,
    (first, end): (u64, u64),
    (newest, n): (&mut Newest, usize),
) -> Result<(), TransportError> {
    let (mut producers, mut foreign) = (Producers::default(), Foreign::None);
    let mut next = first;
    let mut until = Instant::now() + PATIENCE;
    while next < end {
        let left = until.saturating_duration_since(Instant::now());
        let Some(message) = queue.poll(left) else {
            return Err(outage("the history does not come".to_owned()));
        };
        let message = match message {
            // Before the end may lie marks of transactions, which no reader gets.
            Err(KafkaError::PartitionEOF(_)) => return Ok(()),
            message => message.map_err(failed("read the history"))?,
        };
        next = u64::try_from(message.offset()).unwrap_or(0) + 1;
        if next > end {
            break;
        }
        let mut kept = Kept::of(&message, &mut producers, &mut foreign);
        topic.wire.learn(&mut kept.meta, &kept.payload, until)?;
        newest.add(kept, n);
        if newest.keys.len() > MAX_SAMPLES {
            return Err(too_many());
        }
        until = Instant::now() + PATIENCE;
    }
    Ok(())
}

fn too_many() -> TransportError {
    TransportError::Unsupported {
        transport: SCHEME.to_owned(),
        what: format!("give the last values of more than {MAX_SAMPLES} keys"),
        remedy: "start at the earliest sample and read the log".to_owned(),
    }
}
