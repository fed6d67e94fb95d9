//! What all topics of a bridge share: options, buses, checkpoints and threads.

use std::task::Waker;

use helio_bus::Bus;

use crate::checkpoints::CheckpointStore;
use crate::overrides::Override;
use crate::pool::Pool;
use crate::position::Begin;
use crate::target::TopicCreator;
use crate::types::AnonymousProducer;

/// What is to be forwarded, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The topics: patterns in which `*` stands for anything.
    pub topics: Vec<String>,
    /// Topics that are not forwarded though they fit.
    pub not: Vec<String>,
    /// Where a topic begins of which the target has nothing yet.
    pub begin: Begin,
    /// What of the quality of service is not carried over to topics that are created.
    pub overrides: Vec<Override>,
}

/// Both ends, and what they call themselves.
pub(crate) struct BridgeContext {
    pub(crate) from: Bus,
    pub(crate) to: Bus,
    pub(crate) from_name: String,
    pub(crate) to_name: String,
    /// Who has published what has no producer, on other buses.
    pub(crate) anonymous: AnonymousProducer,
    /// When the bridge was started: POSIX time in nanoseconds, as other incarnations are.
    pub(crate) started: u64,
    pub(crate) options: Options,
    /// Where topics stand; or why no bus can keep it.
    pub(crate) checkpoints: Result<CheckpointStore, String>,
    pub(crate) creator: TopicCreator,
    /// Ends the bridge's wait.
    pub(crate) waker: Waker,
    pub(crate) openers: Pool,
    pub(crate) preparers: Pool,
    pub(crate) lease_renewers: Pool,
}

/// Whether a bus's topics can be read again.
pub(crate) fn rewinds(bus: &Bus) -> bool {
    bus.capabilities().rewind.is_yes()
}
