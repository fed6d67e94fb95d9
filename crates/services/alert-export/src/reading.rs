//! A partition, read up to an offset.

use std::time::{Duration, Instant};

use helio_bus::{Event, Lagging, Sample, Start, Subscribe, Subscription, Topic};

use crate::ExportError;

/// How long a stored sample may take to arrive: longer than a broker is away for a restart.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// The time between two checks of the position, where samples at the end may be dropped ones.
const POSITION_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The bytes of the log that a partition's payloads may hold in place.
const PINNED_BYTES: u64 = 64 << 20;

/// A reader of one partition.
pub(crate) struct PartitionReader {
    topic: String,
    partition: u32,
    subscription: Subscription,
    /// The offset behind the last sample.
    next: u64,
    /// A sample behind the offset that was asked for.
    pending: Option<Sample>,
    lost: u64,
}

/// The next event of a partition.
pub(crate) enum Next {
    /// A sample below the end.
    Sample(Sample),
    /// All below the end was read.
    End,
}

impl PartitionReader {
    pub(crate) fn open(topic: &Topic, partition: u32, offset: u64) -> Result<Self, ExportError> {
        let options = Subscribe::from(Start::Offset { partition, offset })
            .partitions([partition])
            .lagging(Lagging::Lossless)
            .lifespan(Duration::MAX)
            .pinned(PINNED_BYTES);
        let subscription = topic.subscribe(options)?;
        let topic = topic.name().to_string();
        Ok(Self { topic, partition, subscription, next: offset, pending: None, lost: 0 })
    }

    /// Samples that the log has no more.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// The next sample below an offset.
    pub(crate) fn next_before(&mut self, end: u64) -> Result<Next, ExportError> {
        let deadline = Instant::now() + READ_TIMEOUT;
        loop {
            if self.next >= end {
                return Ok(Next::End);
            }
            if let Some(sample) = self.pending.take() {
                return Ok(self.below(sample, end));
            }
            match self.subscription.next_timeout(POSITION_CHECK_INTERVAL) {
                Ok(Some(Event::Sample(sample))) => return Ok(self.below(sample, end)),
                Ok(Some(Event::Gap(gap))) => self.lost += gap.lost,
                Ok(Some(_)) => {}
                Ok(None) if Instant::now() < deadline => self.catch_up(),
                Ok(None) => return Err(self.stalled()),
                Err(cause) => {
                    let topic = self.topic.clone();
                    return Err(ExportError::Read { topic, cause });
                }
            }
        }
    }

    fn below(&mut self, sample: Sample, end: u64) -> Next {
        if sample.offset >= end {
            self.next = sample.offset;
            self.pending = Some(sample);
            return Next::End;
        }
        self.next = sample.offset + 1;
        Next::Sample(sample)
    }

    /// Takes the subscription's position, which is behind samples that it has dropped.
    fn catch_up(&mut self) {
        let positions = self.subscription.positions();
        let ours = positions.iter().find(|position| position.partition == self.partition);
        self.next = ours.map_or(self.next, |position| position.next.max(self.next));
    }

    fn stalled(&self) -> ExportError {
        let positions = self.subscription.positions();
        let end = positions.first().map_or(self.next, |position| position.end);
        let topic = self.topic.clone();
        ExportError::Stalled { topic, partition: self.partition, offset: self.next, end }
    }
}
