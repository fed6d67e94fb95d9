//! The state that all topics of a bridge share: options, buses, checkpoints and threads.

use std::task::Waker;

use helio_bus::{Bus, ThreadPool};

use crate::checkpoints::CheckpointStore;
use crate::overrides::Override;
use crate::position::Begin;
use crate::target::TopicCreator;
use crate::types::AnonymousProducer;

/// Which topics a bridge forwards, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The topics, as patterns in which `*` stands for anything.
    pub topics: Vec<String>,
    /// Patterns of topics that are excluded.
    pub not: Vec<String>,
    /// Where a topic begins that has no forwarded sample on the target yet.
    pub begin: Begin,
    /// Fields of the quality of service that replace the source's on created topics.
    pub overrides: Vec<Override>,
}

/// Both buses with their identities, and what the topics share.
pub(crate) struct BridgeContext {
    pub(crate) from: Bus,
    pub(crate) to: Bus,
    pub(crate) from_name: String,
    pub(crate) to_name: String,
    /// The name, on other buses, of producers that have none.
    pub(crate) anonymous: AnonymousProducer,
    /// When the bridge was started: POSIX time in nanoseconds, comparable with other incarnations.
    pub(crate) started: u64,
    pub(crate) options: Options,
    /// The checkpoints; or why neither bus can store them.
    pub(crate) checkpoints: Result<CheckpointStore, String>,
    pub(crate) creator: TopicCreator,
    /// Ends the bridge's wait.
    pub(crate) waker: Waker,
    pub(crate) openers: ThreadPool,
    pub(crate) preparers: ThreadPool,
    pub(crate) lease_renewers: ThreadPool,
}

/// Whether a bus's topics can be read again.
pub(crate) fn rewinds(bus: &Bus) -> bool {
    bus.capabilities().rewind.is_yes()
}
