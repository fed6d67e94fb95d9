//! The work that every mechanism is given, in two processes, and how it is measured.
//!
//! Latency: an open loop at a given rate; each payload begins with its *intended* send time on the
//! machine's monotonic clock (8 bytes, little-endian nanoseconds) and its number (8 bytes). The
//! sender sleeps to just before the time and then spins, so that a sleep's overshoot is not taken
//! for latency. Throughput: one writer as fast as the mechanism takes it without loss, one reader;
//! rates by the reader's and the writer's own clocks from the first message to the last one, which
//! for the writer has been taken when its engine says so.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Bytes at the start of each payload: intended send time and number.
pub const STAMP_BYTES: usize = 16;

/// Longest silence that a subscriber accepts before it counts the rest as lost.
const SILENCE: Duration = Duration::from_secs(5);

/// Longest wait for the first message: engines find each other in seconds, and a publisher that has
/// died sends none.
const OPENING: Duration = Duration::from_secs(60);

/// The longest latency that is told apart: a minute.
const LONGEST_NANOS: u64 = 60_000_000_000;

/// What is sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    /// `latency` or `throughput`.
    pub kind: Kind,
    /// Payload size in bytes, at least [`STAMP_BYTES`].
    pub payload_bytes: usize,
    /// Messages a second (latency only).
    pub rate_hz: f64,
    /// Number of messages.
    pub count: u64,
    /// A name for this run's topic, unique on the machine.
    pub topic: String,
    /// How many messages may be without their engine's report or acknowledgement (Kafka, DDS).
    pub window: Option<u64>,
    /// Where the engine's servers are, `HOST:PORT,…`; empty for engines that have none.
    pub brokers: String,
    /// Settings by the engine's own names.
    pub settings: Vec<(String, String)>,
    /// How many copies the servers keep.
    pub replication: i32,
}

impl Work {
    /// That much of it, without servers.
    pub fn new(kind: Kind, payload_bytes: usize, count: u64) -> Self {
        Self {
            kind,
            payload_bytes,
            rate_hz: 20.0,
            count,
            topic: format!("helio_compare_{}_{}", std::process::id(), now()),
            window: None,
            brokers: String::new(),
            settings: Vec::new(),
            replication: 1,
        }
    }
}

/// Which of the two measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Paced messages, one way.
    Latency,
    /// As many as the mechanism takes.
    Throughput,
}

/// One end that sends.
pub trait Publish {
    /// Waits until the subscriber is there.
    fn wait_for_subscriber(&mut self);
    /// Hands over one payload; waits where the mechanism is full, loses nothing.
    fn send(&mut self, payload: &[u8]);
    /// Waits until what was sent has left this process.
    fn finish(&mut self) {}
}

/// One end that receives.
pub trait Subscribe {
    /// Blocks until something is there or `limit` has passed; calls `each` for every payload it
    /// then has.
    fn receive(&mut self, limit: Duration, each: &mut dyn FnMut(&[u8]));
}

/// What one end reports.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// Messages sent or received.
    pub count: u64,
    /// Messages received twice or out of order (subscriber).
    pub duplicated: u64,
    /// Seconds from the first to the last message.
    pub seconds: f64,
    /// Processor time of the process over the run, in seconds.
    pub cpu_s: f64,
    /// Peak resident memory in MB.
    pub rss_mb: f64,
    /// Latencies in microseconds: mean, stdev, min, p50, p99, p99.9, max (subscriber).
    pub latency_us: [f64; 7],
}

/// Nanoseconds of the monotonic clock, comparable across processes.
pub fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the call's result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn until(at: u64) {
    const SPIN_NANOS: u64 = 200_000;
    std::thread::sleep(Duration::from_nanos(at.saturating_sub(now() + SPIN_NANOS)));
    while now() < at {
        std::hint::spin_loop();
    }
}

fn usage() -> libc::rusage {
    // SAFETY: a zeroed rusage is a valid place for the call's result.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    }
}

fn cpu_seconds() -> f64 {
    let usage = usage();
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn peak_mb() -> f64 {
    usage().ru_maxrss as f64 / 1024.0
}

/// Runs the sending end.
pub fn publish(work: &Work, publisher: &mut dyn Publish) -> End {
    publisher.wait_for_subscriber();
    std::thread::sleep(Duration::from_millis(100));
    let mut body = vec![7u8; work.payload_bytes.max(STAMP_BYTES)];
    let step = (1e9 / work.rate_hz) as u64;
    let lead = if work.kind == Kind::Latency { 50_000_000 } else { 0 };
    let (cpu, start) = (cpu_seconds(), now() + lead);
    for number in 0..work.count {
        let at = match work.kind {
            Kind::Latency => start + number * step,
            Kind::Throughput => now(),
        };
        if work.kind == Kind::Latency {
            until(at);
        }
        body[..8].copy_from_slice(&at.to_le_bytes());
        body[8..16].copy_from_slice(&number.to_le_bytes());
        publisher.send(&body);
    }
    publisher.finish();
    let seconds = now().saturating_sub(start) as f64 * 1e-9;
    let cpu_s = cpu_seconds() - cpu;
    End { count: work.count, seconds, cpu_s, rss_mb: peak_mb(), ..End::default() }
}

/// What the subscriber learns from the payloads.
struct Tally {
    histogram: Histogram<u64>,
    received: u64,
    duplicated: u64,
    next: u64,
    last: u64,
    first_at: u64,
    last_at: u64,
    last_number: u64,
}

impl Tally {
    fn new(count: u64) -> Self {
        let histogram = Histogram::new_with_max(LONGEST_NANOS, 3).expect("legal bounds");
        let (received, duplicated, next, last) = (0, 0, 0, count - 1);
        Self {
            histogram,
            received,
            duplicated,
            next,
            last,
            first_at: 0,
            last_at: 0,
            last_number: 0,
        }
    }

    fn take(&mut self, payload: &[u8]) {
        let word = |at: usize| {
            u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes were asked for"))
        };
        let (stamp, number, at) = (word(0), word(8), now());
        if self.received == 0 {
            self.first_at = stamp;
        }
        (self.last_at, self.last_number) = (at, number);
        self.received += 1;
        if number < self.next {
            self.duplicated += 1;
        }
        self.next = self.next.max(number + 1);
        self.histogram.saturating_record(at.saturating_sub(stamp));
    }

    fn latency_us(&self) -> [f64; 7] {
        let h = &self.histogram;
        let q = |q: f64| h.value_at_quantile(q) as f64 / 1e3;
        let (mean, stdev) = (h.mean() / 1e3, h.stdev() / 1e3);
        [mean, stdev, h.min() as f64 / 1e3, q(0.5), q(0.99), q(0.999), h.max() as f64 / 1e3]
    }
}

/// Runs the receiving end until the last number came, or nothing came for too long.
pub fn subscribe(work: &Work, subscriber: &mut dyn Subscribe) -> End {
    let mut tally = Tally::new(work.count);
    let cpu = cpu_seconds();
    let mut quiet_since = now();
    while tally.received == 0 || tally.last_number != tally.last {
        let before = tally.received;
        subscriber.receive(Duration::from_millis(500), &mut |payload| tally.take(payload));
        let patience = if tally.received == 0 { OPENING } else { SILENCE };
        if tally.received > before {
            quiet_since = now();
        } else if now() - quiet_since > patience.as_nanos() as u64 {
            break;
        }
    }
    End {
        count: tally.received - tally.duplicated,
        duplicated: tally.duplicated,
        seconds: tally.last_at.saturating_sub(tally.first_at) as f64 * 1e-9,
        cpu_s: cpu_seconds() - cpu,
        rss_mb: peak_mb(),
        latency_us: tally.latency_us(),
    }
}
