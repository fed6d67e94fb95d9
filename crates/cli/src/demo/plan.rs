//! What the small observatory consists of: its streams, who writes them and who reads them.

use std::path::PathBuf;

use helio_core::Qos;
use helio_core::qos::Guarantee;
use serde::{Deserialize, Serialize};

use super::account::{Acknowledged, Books, SeenBySource, Source};

/// What a stream's samples are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Body {
    /// Messages of a schema, each encoded when it is due, decoded by every reader.
    Typed {
        /// The schema's text.
        schema: String,
    },
    /// Alert packets: those of a file, or synthetic ones.
    Alerts(Option<PathBuf>),
}

/// One topic at a rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stream {
    /// The topic.
    pub(crate) topic: String,
    /// Its quality of service.
    pub(crate) qos: Qos,
    /// Samples a second.
    pub(crate) rate_hz: f64,
    /// What they are.
    pub(crate) body: Body,
    /// Indices of the component that are published in turn, each under its own key; empty is none.
    pub(crate) indices: Vec<i32>,
}

/// A writer process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WriterTask {
    pub(crate) url: String,
    /// The producer's name, the same after a restart.
    pub(crate) producer: String,
    pub(crate) streams: Vec<Stream>,
}

/// What a writer is told.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum WriterOrder {
    /// Publish by the schedule, the first samples at this time of the monotonic clock.
    Begin { start_ns: u64 },
    /// Publish so many samples of the first stream as fast as the bus takes them.
    Burst { samples: u64 },
    /// Publish nothing by the schedule any more.
    Rest,
    /// End.
    End,
}

/// What a writer says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum WriterWord {
    /// It is there, with everything opened.
    Ready,
    /// A receipt has come, of a sample of this key.
    Receipt(Source, Acknowledged, Vec<u8>),
    /// The burst is over: when it began and when its last receipt had come.
    Burst { begin_ns: u64, end_ns: u64, samples: u64, bytes: u64 },
    /// The last word.
    End { guarantee: Guarantee, cpu_s: f64, rss_mb: f64 },
}

/// A reader process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReaderTask {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) topics: Vec<String>,
    pub(crate) role: Role,
}

/// What a reader does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Reads everything from the beginning until it is told what there is to have.
    Follows,
    /// Joins late, takes the newest sample of every key, and goes.
    JoinsLate,
}

/// What a reader is told: what it should have by the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Drain(pub(crate) Books);

/// What a reader says at the end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ReaderReport {
    /// By source.
    pub(crate) seen: SeenBySource,
    /// Latencies of scheduled samples in nanoseconds with their counts, by topic.
    pub(crate) latencies: Vec<(String, Vec<(u64, u64)>)>,
    /// The burst: its samples and when the last one was read.
    pub(crate) burst: Option<(u64, u64)>,
    /// The newest sequence of every (topic, key) as it joined late.
    pub(crate) newest: Vec<(Source, Vec<u8>, u64)>,
    /// Samples that the bus told were lost.
    pub(crate) told_lost: u64,
    /// Samples that still lay ahead at the end.
    pub(crate) lag: u64,
    /// CPU seconds.
    pub(crate) cpu_s: f64,
    /// Peak memory.
    pub(crate) rss_mb: f64,
}

/// The mark of a sample's trace, which carries when it was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// By the schedule, due at this time of the monotonic clock.
    Scheduled(u64),
    /// Of the burst.
    Burst,
}

impl Mark {
    const BURST: u64 = u64::MAX;

    /// As the trace of a sample: the time, then eight bytes that say whose it is.
    pub(crate) fn trace(self) -> helio_bus::TraceId {
        let time = match self {
            Self::Scheduled(due_ns) => due_ns,
            Self::Burst => Self::BURST,
        };
        let mut bytes = *b"........heliodem";
        bytes[..8].copy_from_slice(&time.to_le_bytes());
        helio_bus::TraceId(bytes)
    }

    /// The mark of a trace that the demo made.
    pub(crate) fn of(trace: Option<helio_bus::TraceId>) -> Option<Self> {
        let bytes = trace?.0;
        let (time, whose) = bytes.split_first_chunk()?;
        match (whose == b"heliodem", u64::from_le_bytes(*time)) {
            (false, _) => None,
            (true, Self::BURST) => Some(Self::Burst),
            (true, due_ns) => Some(Self::Scheduled(due_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_the_trace() {
        for mark in [Mark::Scheduled(1_234_567), Mark::Burst] {
            assert_eq!(Mark::of(Some(mark.trace())), Some(mark));
        }
        assert_eq!(Mark::of(None), None);
        assert_eq!(Mark::of(Some(helio_bus::TraceId([7; 16]))), None);
    }
}
