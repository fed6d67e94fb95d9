//! Options of a process of the service.

use std::time::Duration;

use helio_bus::Start;

use crate::python::PythonOptions;

/// The limit of stored bytes of a user's results, if nothing else is said: 30,000 whole packets.
pub const RESULTS_BYTES: u64 = 4 << 30;

/// Options of a process of the service. All processes of a topic of alerts have the same group.
#[derive(Debug, Clone)]
pub struct Options {
    /// The topic of alerts.
    pub topic: String,
    /// The group whose members share the partitions.
    pub group: String,
    /// Where the group starts before its first commit.
    pub start: Start,
    /// Bytes of packets of a batch: what is copied on engines that cannot deliver in place.
    pub batch_bytes: usize,
    /// Bytes of the engine's memory that packets of a batch may pin.
    pub pinned_bytes: u64,
    /// How filters in Python run.
    pub python: PythonOptions,
    /// How often a process that is not the publisher tries to become it.
    pub takeover_interval: Duration,
    /// The limit of stored bytes of a user's results.
    pub results_bytes: u64,
}

impl Options {
    /// Those of a topic: the group `alert-filters` from the oldest alert on, 64 MiB a batch, 256
    /// MiB pinned, an attempt to become the publisher every 100 ms, 4 GiB of results a user.
    #[must_use]
    pub fn of(topic: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            group: "alert-filters".to_owned(),
            start: Start::Earliest,
            batch_bytes: 64 << 20,
            pinned_bytes: 256 << 20,
            python: PythonOptions::default(),
            takeover_interval: Duration::from_millis(100),
            results_bytes: RESULTS_BYTES,
        }
    }
}
