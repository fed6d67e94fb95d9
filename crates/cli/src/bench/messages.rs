//! What the processes of a bench tell each other.

use std::path::PathBuf;

use helio_core::Qos;
use helio_core::qos::Guarantee;
use serde::{Deserialize, Serialize};

/// Publish times are kept of every so many samples where there is no schedule to compute them from.
pub(crate) const STAMP_EVERY: u64 = 64;

/// What is published.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Content {
    /// So many bytes.
    Bytes(usize),
    /// Messages of a topic of a folder of interfaces, encoded by the writer and decoded by readers.
    Typed {
        /// The interface folder.
        interfaces: PathBuf,
        /// The topic's name there.
        topic: String,
    },
}

/// A bench's bus and topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BenchTopic {
    /// The bus.
    pub(crate) url: String,
    /// The topic, which no other run uses.
    pub(crate) topic: String,
    /// Its quality of service.
    pub(crate) qos: Qos,
    /// What is published.
    pub(crate) content: Content,
}

/// A publisher process's task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PublisherTask {
    /// Where.
    pub(crate) place: BenchTopic,
    /// Its number among the writers.
    pub(crate) writer: u32,
    /// When messages are due; as fast as possible where there is none.
    pub(crate) schedule: Option<Schedule>,
    /// How many messages.
    pub(crate) count: u64,
    /// How many are handed over at once.
    pub(crate) batch: usize,
    /// What each receipt is to promise.
    pub(crate) guarantee: Guarantee,
    /// How many messages may wait for their receipts.
    pub(crate) window: usize,
}

/// What a subscriber process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// Reads what comes, sleeping where there is nothing.
    Reads,
    /// Subscribes and never reads.
    Stalled,
}

/// A subscriber process's task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SubscriberTask {
    /// Where.
    pub(crate) place: BenchTopic,
    /// What it does.
    pub(crate) pace: Pace,
    /// How many messages will be published by all writers.
    pub(crate) expected: u64,
    /// When each writer's messages are due, where there is a schedule.
    pub(crate) schedule: Option<Schedule>,
}

/// The order to begin.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Go {
    /// When the first message is due, on the monotonic clock.
    pub(crate) start_ns: u64,
}

/// What one process has used.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    /// CPU seconds from the order to begin to the end.
    pub(crate) cpu_s: f64,
    /// Peak memory in MB.
    pub(crate) rss_mb: f64,
}

/// What a publisher reports.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PublisherReport {
    /// Messages that have a receipt.
    pub(crate) acknowledged: u64,
    /// When the last receipt had come.
    pub(crate) end_ns: u64,
    /// When every [`STAMP_EVERY`]th message was handed over, where there is no schedule.
    pub(crate) stamps: Vec<u64>,
    /// The size of the last payload.
    pub(crate) payload_bytes: usize,
    /// What it used.
    pub(crate) used: Used,
}

/// What a subscriber reports.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SubscriberReport {
    /// Messages received once.
    pub(crate) received: u64,
    /// Messages that came again.
    pub(crate) duplicated: u64,
    /// When the last message was received.
    pub(crate) end_ns: u64,
    /// Latencies in nanoseconds with their counts.
    pub(crate) latencies: Vec<(u64, u64)>,
    /// Sequence number and time of every [`STAMP_EVERY`]th message of the first writer, where there
    /// is no schedule.
    pub(crate) stamps: Vec<(u64, u64)>,
    /// What it used.
    pub(crate) used: Used,
}

/// The name that a writer publishes under.
pub(crate) fn writer_name(writer: u32) -> String {
    format!("bench-{writer}")
}

/// When messages are due.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Schedule {
    step_ns: u64,
    burst: u64,
}

impl Schedule {
    /// Messages at a rate, of which so many are due at once.
    pub(crate) fn new(rate_hz: f64, burst: u64) -> Self {
        Self { step_ns: (1e9 / rate_hz).round() as u64, burst: burst.max(1) }
    }

    /// When a message by its number from 0 is due, if the first is at `start_ns`.
    pub(crate) fn due(&self, start_ns: u64, number: u64) -> u64 {
        start_ns + number / self.burst * self.burst * self.step_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_keep_the_rate() {
        let due = |burst| {
            let schedule = Schedule::new(1e6, burst);
            [0, 1, 2, 3, 4].map(|number| schedule.due(7, number))
        };
        assert_eq!(due(1), [7, 1_007, 2_007, 3_007, 4_007]);
        assert_eq!(due(2), [7, 7, 2_007, 2_007, 4_007]);
    }
}
