//! The report of a bench: the keys of the benchmarks' page, from the processes' reports.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::messages::{PublisherReport, STAMP_EVERY, SubscriberReport};
use crate::error::CliResult;
use crate::out::Out;

/// The longest latency of the histogram: ten minutes.
const LONGEST_NS: u64 = 600_000_000_000;

/// An empty histogram of nanoseconds with three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are in order")
}

/// Latency in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) stdev: f64,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Latency {
    /// The figures of a histogram of nanoseconds; `None` if it is empty.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let us = |ns: f64| (ns / 100.0).round() / 10.0;
        let at = |quantile: f64| us(histogram.value_at_quantile(quantile) as f64);
        (!histogram.is_empty()).then(|| Self {
            mean: us(histogram.mean()),
            stdev: us(histogram.stdev()),
            min: us(histogram.min() as f64),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: us(histogram.max() as f64),
        })
    }
}

/// Times of several rounds in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// The figures of some rounds; `None` without rounds.
    pub(crate) fn of(mut rounds_ms: Vec<f64>) -> Option<Self> {
        rounds_ms.sort_by(f64::total_cmp);
        let rounded = |ms: &f64| (ms * 1e3).round() / 1e3;
        Some(Self {
            min: rounds_ms.first().map(rounded)?,
            p50: rounds_ms.get(rounds_ms.len() / 2).map(rounded)?,
            max: rounds_ms.last().map(rounded)?,
        })
    }

    /// As text.
    pub(crate) fn text(&self) -> String {
        format!("{:.1} ({:.1} to {:.1})", self.p50, self.min, self.max)
    }
}

/// Prints a report: one JSON object, or names and values for people.
pub(crate) fn print(report: &impl Serialize, json: bool, rows: &[(&str, String)]) -> CliResult {
    let mut out = Out::new();
    if json {
        out.json(report)?;
    } else {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        rows.iter().try_for_each(|(name, value)| out.line(&format!("{name:<width$}  {value}")))?;
    }
    out.flush()
}

/// CPU seconds from the first message's time to the end.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cpu {
    /// All publisher processes together.
    pub(crate) publisher: f64,
    /// All reading subscriber processes together.
    pub(crate) subscriber: f64,
}

/// The one object that a bench prints.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) workload: &'static str,
    pub(crate) url: String,
    pub(crate) payload_bytes: usize,
    pub(crate) rate_hz: Option<f64>,
    pub(crate) count: u64,
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) latency_us: Option<Latency>,
    pub(crate) write_per_s: f64,
    pub(crate) read_per_s: f64,
    pub(crate) cpu_s: Cpu,
    pub(crate) rss_mb: f64,
    pub(crate) load: f64,
    pub(crate) version: &'static str,
    pub(crate) receipt: String,
    #[serde(flatten)]
    pub(crate) shape: Shape,
}

/// Options that differ from one writer, one reader and one message per call; others are omitted.
#[derive(Debug, Default, Clone, Serialize)]
pub(crate) struct Shape {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) writers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) readers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stalled: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) burst: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batch: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<usize>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) volatile: bool,
}

/// All latencies of all readers. Without a schedule they are those of the first writer's messages
/// whose times both ends recorded.
pub(crate) fn latencies(
    publishers: &[PublisherReport],
    subscribers: &[SubscriberReport],
) -> Histogram<u64> {
    let mut all = histogram();
    let sent = publishers.first().map_or(&[][..], |first| &first.stamps);
    for subscriber in subscribers {
        for &(value, count) in &subscriber.latencies {
            all.saturating_record_n(value, count);
        }
        for &(sequence, received_ns) in &subscriber.stamps {
            let at = (sequence / STAMP_EVERY - 1) as usize;
            if let Some(sent_ns) = sent.get(at) {
                all.saturating_record(received_ns.saturating_sub(*sent_ns).max(1));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_come_from_the_schedule_or_from_both_ends() {
        let publisher = PublisherReport {
            acknowledged: 128,
            end_ns: 0,
            stamps: vec![1_000, 2_000],
            payload_bytes: 8,
            used: Default::default(),
        };
        let scheduled =
            SubscriberReport { latencies: vec![(500, 2)], ..SubscriberReport::default() };
        let stamped =
            SubscriberReport { stamps: vec![(128, 2_900)], ..SubscriberReport::default() };
        let all = latencies(&[publisher], &[scheduled, stamped]);
        assert_eq!((all.len(), all.max()), (3, 900));
        let figures = Latency::of(&all).unwrap();
        assert_eq!((figures.p50, figures.max), (0.5, 0.9));
        assert!(Latency::of(&histogram()).is_none());
    }
}
