//! Where a topic goes on: read from the samples that were forwarded before.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use helio_bus::transport::PartitionInfo;
use helio_bus::{
    EventRef, Lagging, ProducerName, ReadError, SampleRef, Start, Subscribe, Topic, TopicError,
};
use helio_core::qos::History;
use thiserror::Error;

use crate::hops::Hops;
use crate::lane::Order;

/// Samples that are looked at first, from the end back.
const WINDOW: u64 = 256;
/// How many times more are looked at next, where none of them was forwarded from the source.
const WIDER: u64 = 16;
/// How many of the newest samples of a partition are looked at for the producers of a source that
/// has no places. What lies further back may be forwarded again, and is dropped by readers.
const MAX_LOOKED_AT: u64 = 1_000_000;
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
    places: (u64, u64),
    source: &str,
) -> Result<Option<u64>, PositionError> {
    let mut found = None;
    visit(target, partition, places, |sample| {
        if let Some((bus, offset)) = Hops::of(sample.headers).last()
            && bus == source
        {
            found = found.max(Some(offset));
        }
    })?;
    Ok(found)
}

/// The newest incarnation and number that a partition of the target has of each producer of the
/// source, among its newest samples: for sources without places.
pub(crate) fn of_producers(
    target: &Topic,
    partition: &PartitionInfo,
    source: &str,
) -> Result<HashMap<ProducerName, Order>, PositionError> {
    producers(target, partition, |hops| hops.last().is_some_and(|(bus, _)| bus == source))
}

/// The same of a partition of the source, of samples that were never on the target before.
pub(crate) fn of_own(
    source: &Topic,
    partition: &PartitionInfo,
    target: &str,
) -> Result<HashMap<ProducerName, Order>, PositionError> {
    producers(source, partition, |hops| !hops.visited(target))
}

fn producers(
    topic: &Topic,
    partition: &PartitionInfo,
    counts: impl Fn(Hops<'_>) -> bool,
) -> Result<HashMap<ProducerName, Order>, PositionError> {
    let from = partition.end.saturating_sub(MAX_LOOKED_AT).max(partition.first);
    let mut newest = HashMap::new();
    visit(topic, partition.partition, (from, partition.end), |sample| {
        if counts(Hops::of(sample.headers)) {
            let order = (sample.producer.incarnation, sample.sequence);
            let known = newest.entry(sample.producer.name.clone()).or_insert(order);
            *known = order.max(*known);
        }
    })?;
    Ok(newest)
}

/// Visits the samples of these offsets.
fn visit(
    target: &Topic,
    partition: u32,
    (offset, upto): (u64, u64),
    mut visit: impl FnMut(&SampleRef<'_>),
) -> Result<(), PositionError> {
    if offset >= upto {
        return Ok(());
    }
    let options = everything(Start::Offset { partition, offset }).partitions([partition]);
    let mut samples = target.subscribe(options)?;
    let mut until = Instant::now() + PATIENCE;
    loop {
        let mut past = false;
        let seen = samples.visit(1024, |event| {
            let EventRef::Sample(sample) = event else { return ControlFlow::Continue(()) };
            if sample.offset >= upto {
                past = true;
                return ControlFlow::Break(());
            }
            visit(&sample);
            ControlFlow::Continue(())
        })?;
        let read =
            samples.positions().iter().all(|at| at.partition != partition || at.next >= upto);
        if past || read {
            return Ok(());
        }
        if seen > 0 {
            until = Instant::now() + PATIENCE;
        } else if !samples.wait_until(Some(until))? {
            return Err(PositionError::Silent);
        }
    }
}
