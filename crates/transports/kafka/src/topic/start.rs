//! Where a reader starts in each partition.

use helio_bus::transport::Begin;
use helio_bus::{Tai, TransportError};

use crate::client::options::BROKER_TIMEOUT;
use crate::topic::state::TopicState;

/// The number of the log's records that are read beside a companion, per partition.
const TAIL_RECORDS: u64 = 1_000;
/// The number of the log's records that are read without a companion, per partition.
const MAX_SCANNED_RECORDS: u64 = 1_000_000;

/// A reader's start in a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartPosition {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) end: u64,
    /// Leading samples before this time are skipped.
    pub(crate) after: Option<Tai>,
}

impl StartPosition {
    /// At the first record of a partition whose end is unknown.
    pub(crate) fn first(partition: u32) -> Self {
        Self::at(partition, 0)
    }

    /// At an offset of a partition whose end is unknown.
    pub(crate) fn at(partition: u32, offset: u64) -> Self {
        Self { partition, offset, end: offset, after: None }
    }
}

/// A reader's starts in partitions, as the brokers answer now.
pub(crate) fn starts(
    topic: &TopicState,
    begin: &Begin,
    partitions: &[u32],
) -> Result<Vec<StartPosition>, TransportError> {
    let mut starts = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let (first, end) = topic.link.client.ends(&topic.kafka, *partition, BROKER_TIMEOUT)?;
        let offset = match begin {
            Begin::Latest | Begin::Time(_) => end,
            Begin::Earliest => first,
            Begin::LastPerKey(n) => end.saturating_sub(history_depth(topic, *n)).max(first),
            // An offset before the first is reported as a gap.
            Begin::Offset(at, offset) if at == partition => (*offset).min(end),
            Begin::Offset(..) => first,
        };
        starts.push(StartPosition { partition: *partition, offset, end, after: None });
    }
    // librdkafka sends no request for an empty list.
    if let (Begin::Time(time), false) = (begin, starts.is_empty()) {
        at_time(topic, *time, &mut starts)?;
    }
    Ok(starts)
}

/// Kafka finds the millisecond; within it, the timestamps themselves are compared.
fn at_time(
    topic: &TopicState,
    time: Tai,
    starts: &mut [StartPosition],
) -> Result<(), TransportError> {
    let millis = u64::try_from(time.unix_nanos().div_euclid(1_000_000)).unwrap_or(0);
    let partitions: Vec<_> = starts.iter().map(|start| start.partition).collect();
    let client = &topic.link.client;
    let found = client.at_time(&topic.kafka, (&partitions, millis), BROKER_TIMEOUT)?;
    for start in starts {
        start.after = Some(time);
        let found = found.iter().find(|(partition, _)| *partition == start.partition);
        if let Some((_, offset)) = found {
            start.offset = start.end.min(*offset);
        }
    }
    Ok(())
}

/// How many records of the log are read for the newest `n` of each key.
pub(crate) fn history_depth(topic: &TopicState, n: u32) -> u64 {
    if n == 1 && topic.companion.is_some() { TAIL_RECORDS } else { MAX_SCANNED_RECORDS }
}
