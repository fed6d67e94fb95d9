//! Where a topic goes on: read from the samples that were forwarded before.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use helio_bus::transport::PartitionInfo;
use helio_bus::{EventRef, Lagging, ReadError, Start, Subscribe, Topic, TopicError};
use helio_core::qos::History;
use thiserror::Error;

use crate::hops::Hops;

/// Samples that are looked at first, from the end back.
const WINDOW: u64 = 256;
/// How many times more are looked at next, where none of them was forwarded from the source.
const WIDER: u64 = 16;
/// How long the target may be silent while it is read.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a topic begins of which the target has nothing yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Begin {
    /// As a late joiner would: from the oldest sample, or, where the topic promises no history,
    /// with what is published from now on. Old commands are not given again so.
    #[default]
    AsPromised,
    /// From the oldest sample that is kept.
    Earliest,
    /// With what is published from now on.
    Latest,
}

impl Begin {
    pub(crate) fn is_earliest(self, history: History) -> bool {
        match self {
            Self::AsPromised => history != History::None,
            Self::Earliest => true,
            Self::Latest => false,
        }
    }
}

/// Why a position cannot be read.
#[derive(Debug, Error)]
pub(crate) enum PositionError {
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the target does not hand out its own samples; it is tried again")]
    Silent,
}

/// A subscription to what there is, as it was written.
pub(crate) fn everything(start: Start) -> Subscribe {
    Subscribe::from(start).as_written().lagging(Lagging::Lossless).lifespan(Duration::MAX)
}

/// The offset behind the newest sample that a partition of the target has from the source; none
/// where it has none. It looks back from the end, further and further.
pub(crate) fn of(
    target: &Topic,
    partition: &PartitionInfo,
    source: &str,
) -> Result<Option<u64>, PositionError> {
    let (mut upto, mut window) = (partition.end, WINDOW);
    while upto > partition.first {
        let from = upto.saturating_sub(window).max(partition.first);
        if let Some(found) = look(target, partition.partition, (from, upto), source)? {
            return Ok(Some(found + 1));
        }
        (upto, window) = (from, window.saturating_mul(WIDER));
    }
    Ok(None)
}

/// The newest position among the samples of these offsets.
fn look(
    target: &Topic,
    partition: u32,
    (offset, upto): (u64, u64),
    source: &str,
) -> Result<Option<u64>, PositionError> {
    let options = everything(Start::Offset { partition, offset }).partitions([partition]);
    let mut samples = target.subscribe(options)?;
    let mut found = None;
    let mut until = Instant::now() + PATIENCE;
    loop {
        let mut past = false;
        let seen = samples.visit(1024, |event| {
            let EventRef::Sample(sample) = event else { return ControlFlow::Continue(()) };
            if sample.offset >= upto {
                past = true;
                return ControlFlow::Break(());
            }
            if let Some((bus, offset)) = Hops::of(sample.headers).last()
                && bus == source
            {
                found = found.max(Some(offset));
            }
            ControlFlow::Continue(())
        })?;
        let read =
            samples.positions().iter().all(|at| at.partition != partition || at.next >= upto);
        if past || read {
            return Ok(found);
        }
        if seen > 0 {
            until = Instant::now() + PATIENCE;
        } else if !samples.wait_until(Some(until))? {
            return Err(PositionError::Silent);
        }
    }
}
