//! Messages between the processes of a bench.

use std::path::PathBuf;

use helio_core::Qos;
use helio_core::qos::Guarantee;
use serde::{Deserialize, Serialize};

/// Without a schedule, the publish time of every so many samples is recorded.
pub(crate) const STAMP_EVERY: u64 = 64;

/// The contents of messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Content {
    /// This many bytes.
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
    /// The contents of its messages.
    pub(crate) content: Content,
}

/// A publisher process's task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PublisherTask {
    /// Where.
    pub(crate) place: BenchTopic,
    /// Its number among the writers.
    pub(crate) writer: u32,
    /// The schedule; `None` for full speed.
    pub(crate) schedule: Option<Schedule>,
    /// The number of messages.
    pub(crate) count: u64,
    /// Messages per publish call.
    pub(crate) batch: usize,
    /// The guarantee of each receipt.
    pub(crate) guarantee: Guarantee,
    /// The largest number of messages in flight.
    pub(crate) window: usize,
}

/// The role of a subscriber process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// Reads all samples, and sleeps while there are none.
    Reads,
    /// Subscribes and never reads.
    Stalled,
}

/// A subscriber process's task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SubscriberTask {
    /// Where.
    pub(crate) place: BenchTopic,
    /// Its role.
    pub(crate) pace: Pace,
    /// The number of messages of all writers.
    pub(crate) expected: u64,
    /// The schedule of each writer, if any.
    pub(crate) schedule: Option<Schedule>,
}

/// The order to begin.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Go {
    /// When the first message is due, on the monotonic clock.
    pub(crate) start_ns: u64,
}

/// The resources that a process has used.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    /// CPU seconds from the order to begin to the end.
    pub(crate) cpu_s: f64,
    /// Peak memory in MB.
    pub(crate) rss_mb: f64,
}

/// A publisher's report.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PublisherReport {
    /// Messages with a receipt.
    pub(crate) acknowledged: u64,
    /// The time of the last receipt.
    pub(crate) end_ns: u64,
    /// Without a schedule: the publish time of every [`STAMP_EVERY`]th message.
    pub(crate) stamps: Vec<u64>,
    /// The size of the last payload.
    pub(crate) payload_bytes: usize,
    /// What it used.
    pub(crate) used: Used,
}

/// A subscriber's report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SubscriberReport {
    /// Messages received once.
    pub(crate) received: u64,
    /// Duplicate messages.
    pub(crate) duplicated: u64,
    /// When the last message was received.
    pub(crate) end_ns: u64,
    /// Latencies in nanoseconds with their counts.
    pub(crate) latencies: Vec<(u64, u64)>,
    /// Without a schedule: sequence number and time of every [`STAMP_EVERY`]th message of the first
    /// writer.
    pub(crate) stamps: Vec<(u64, u64)>,
    /// What it used.
    pub(crate) used: Used,
}

/// A writer's producer name.
pub(crate) fn writer_name(writer: u32) -> String {
    format!("bench-{writer}")
}

/// A schedule of messages.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Schedule {
    step_ns: u64,
    burst: u64,
}

impl Schedule {
    /// Messages at a rate, with `burst` due at once.
    pub(crate) fn new(rate_hz: f64, burst: u64) -> Self {
        Self { step_ns: (1e9 / rate_hz).round() as u64, burst: burst.max(1) }
    }

    /// The due time of a message by its number from 0, if the first is due at `start_ns`.
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
