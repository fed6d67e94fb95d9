//! Packets of the log by their positions.

use std::collections::BTreeMap;

use helio_bus::{Event, Lagging, Sample, Start, Subscribe, Subscription, Topic};

use crate::decisions::BUS_TIMEOUT;
use crate::error::ServiceError;

/// Samples between two wanted ones that are read over: a seek costs as much.
const MAX_SKIPPED: u64 = 8;

/// Reads single samples of the topic of alerts.
pub(crate) struct Fetcher {
    topic: Topic,
    pinned_bytes: u64,
    partitions: BTreeMap<u32, Subscription>,
}

impl Fetcher {
    pub(crate) fn new(topic: Topic, pinned_bytes: u64) -> Self {
        Self { topic, pinned_bytes, partitions: BTreeMap::new() }
    }

    /// The samples at some offsets of a partition, ascending, so far as they are stored.
    pub(crate) fn read(
        &mut self,
        partition: u32,
        offsets: &[u64],
        mut take: impl FnMut(Sample) -> Result<(), ServiceError>,
    ) -> Result<(), ServiceError> {
        let Some(first) = offsets.first() else { return Ok(()) };
        let options = Subscribe::from(Start::Offset { partition, offset: *first });
        let options = options.partitions([partition]).lagging(Lagging::Lossless);
        let reader = match self.partitions.get_mut(&partition) {
            Some(reader) => {
                reader.seek(partition, *first)?;
                reader
            }
            None => {
                let reader = self.topic.subscribe(options.pinned(self.pinned_bytes))?;
                self.partitions.entry(partition).or_insert(reader)
            }
        };
        let mut next = *first;
        // One that was read behind a hole in the log, where retention removed what was wanted.
        let mut ahead: Option<Sample> = None;
        for offset in offsets {
            if ahead.as_ref().is_some_and(|sample| sample.offset > *offset) {
                continue;
            }
            if *offset > next + MAX_SKIPPED {
                reader.seek(partition, *offset)?;
                ahead = None;
            }
            while ahead.as_ref().is_none_or(|sample| sample.offset < *offset) {
                match reader.next_timeout(BUS_TIMEOUT)? {
                    Some(Event::Sample(sample)) => ahead = Some(sample),
                    Some(_) => {}
                    None => return Ok(()),
                }
            }
            if let Some(sample) = ahead.take_if(|sample| sample.offset == *offset) {
                take(sample)?;
            }
            next = *offset + 1;
        }
        Ok(())
    }
}
