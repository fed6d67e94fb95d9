//! A producer process: logs by a schedule, or as fast as its records are accepted.
//!
//! A schedule has ticks: the records due in a tick are logged together at its beginning, and the
//! process sleeps between ticks. Each record carries its due time.

use std::time::Duration;

use helio_bus::Bus;
use helio_logging::{Audiences, Body, Level, LogError, LogOptions, Logger, Logging, audience, log};

use super::messages::{Content, Go, Offered, ProducerReport, ProducerTask, Spent, Urgent, Way};
use super::syslog;
use crate::args::batch::Batch;
use crate::clock::{cpu_s, monotonic_ns, peak_rss_mb, thread_cpu_s};
use crate::error::{CliError, CliResult};
use crate::service_error::{ServiceError, ServiceResult};
use crate::worker::{hear, say};

/// The length of a schedule's tick.
const TICK_NS: u64 = 1_000_000;
const TICKS_PER_S: f64 = 1e3;
/// Records between two readings of the clock, without a schedule.
const RECORDS_PER_CLOCK_READ: u64 = 64;
/// Bytes of a packet's entry besides the record's body (docs/formats/log.md).
const ENTRY_BYTES: usize = 28;
/// A due time with as many bytes as on a machine that has run for less than three days.
const TYPICAL_DUE_NS: i64 = 1 << 47;
/// Where there is no schedule, the ring, and the most bytes of it that wait: from half of the ring
/// on the library hurries, from 70 % on it sheds.
const RING_BYTES: usize = 8 << 20;
const WINDOW_BYTES: usize = 5 << 20;
/// How long a producer without a schedule waits when that many are pending.
const PAUSE_NS: u64 = 100_000;
/// The timeout of the last records' acknowledgement.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the process.
pub(crate) fn run(task: &ProducerTask) -> CliResult {
    match &task.way {
        Way::Bus { batch } => {
            let mut bus = OnBus::open(task, *batch)?;
            play(task, &mut bus)
        }
        Way::Syslog { address } => play(task, &mut syslog::Sender::open(task, address)?),
    }
}

/// The destination of records.
pub(super) trait Sink {
    /// An ordinary record; the level of its lane.
    fn one(&mut self, number: u64, due_ns: u64) -> CliResult<Level>;
    /// An urgent record.
    fn urgent(&mut self, level: Level, due_ns: u64) -> CliResult;
    /// Sends the records of a tick.
    fn turn(&mut self) -> CliResult;
    /// Whether too many records are pending to log more, without a schedule.
    fn is_full(&self, logged: u64) -> bool;
    /// Waits until all records are accepted; returns their number and bytes.
    fn finish(&mut self) -> CliResult<(u64, u64)>;
}

fn play(task: &ProducerTask, sink: &mut impl Sink) -> CliResult {
    say(&())?;
    let Some(go) = hear::<Go>()? else { return Ok(()) };
    let cpu = cpu_s();
    let mut play = Play {
        task,
        start_ns: go.start_ns,
        logged: 0,
        urgent: 0,
        offered: [0; 12],
        pacing_cpu_s: 0.0,
    };
    match task.rate_hz {
        Some(rate) => play.paced(sink, rate)?,
        None => play.fast(sink)?,
    }
    let (published, bytes) = sink.finish()?;
    say(&ProducerReport {
        offered: play.offered(),
        published,
        bytes,
        end_ns: monotonic_ns(),
        used: Spent { cpu_s: cpu_s() - cpu, rss_mb: peak_rss_mb() },
        pacing_cpu_s: play.pacing_cpu_s,
    })?;
    // It stays until all have read: on some transports the samples end with the process.
    hear::<()>()?;
    Ok(())
}

struct Play<'a> {
    task: &'a ProducerTask,
    start_ns: u64,
    logged: u64,
    /// Urgent records so far.
    urgent: u64,
    /// By level.
    offered: [u64; 12],
    /// CPU time of pacing.
    pacing_cpu_s: f64,
}

impl Play<'_> {
    fn paced(&mut self, sink: &mut impl Sink, rate_hz: f64) -> CliResult {
        let ticks = self.task.time_ns.div_ceil(TICK_NS);
        for tick in 0..ticks {
            let due_ns = self.start_ns + tick * TICK_NS;
            self.sleep_until(due_ns);
            self.urgent(sink, due_ns)?;
            let by_now = ((tick + 1) as f64 * rate_hz / TICKS_PER_S) as u64;
            while self.logged < by_now {
                self.one(sink, due_ns)?;
            }
            sink.turn()?;
        }
        Ok(())
    }

    fn fast(&mut self, sink: &mut impl Sink) -> CliResult {
        self.sleep_until(self.start_ns);
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= self.end_ns() {
                return Ok(());
            }
            self.urgent(sink, now_ns)?;
            for _ in 0..RECORDS_PER_CLOCK_READ {
                self.one(sink, now_ns)?;
            }
            sink.turn()?;
            while sink.is_full(self.logged + self.urgent) {
                let now_ns = monotonic_ns();
                // Urgent records do not wait for the others.
                self.urgent(sink, now_ns)?;
                self.sleep_until(now_ns + PAUSE_NS);
            }
        }
    }

    fn one(&mut self, sink: &mut impl Sink, due_ns: u64) -> CliResult {
        let level = sink.one(self.logged, due_ns)?;
        self.offered[usize::from(level.number())] += 1;
        self.logged += 1;
        Ok(())
    }

    /// Logs the urgent records that are due by now.
    fn urgent(&mut self, sink: &mut impl Sink, now_ns: u64) -> CliResult {
        let Some(Urgent { level, first_ns, every_ns }) = self.task.urgent else { return Ok(()) };
        loop {
            let after = match (self.urgent, every_ns) {
                (0, _) => 0,
                (1.., None) => return Ok(()),
                (before, Some(every_ns)) => before.saturating_mul(every_ns),
            };
            let due_ns = (self.start_ns + first_ns).saturating_add(after);
            if due_ns > now_ns || due_ns >= self.end_ns() {
                return Ok(());
            }
            let level = Level::new(level).unwrap_or(Level::ALERT);
            sink.urgent(level, due_ns)?;
            self.offered[usize::from(level.number())] += 1;
            self.urgent += 1;
        }
    }

    fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.task.time_ns)
    }

    /// Sleeps instead of spinning, because CPU time is measured. The CPU time of sleeping is the
    /// schedule's and is measured apart.
    fn sleep_until(&mut self, at_ns: u64) {
        let left = at_ns.saturating_sub(monotonic_ns());
        if left > 0 {
            let before = thread_cpu_s();
            std::thread::sleep(Duration::from_nanos(left));
            self.pacing_cpu_s += thread_cpu_s() - before;
        }
    }

    fn offered(&self) -> Offered {
        let levels = (0_u8..).zip(self.offered).filter(|(_, records)| *records > 0);
        levels.collect()
    }
}

/// A producer with a bus of its own.
struct OnBus {
    logging: Logging,
    mount: Logger,
    operator: Logger,
    science: Logger,
    developer: Logger,
    everyone: Logger,
    content: Content,
    /// The filler of a record.
    filling: String,
    /// The most pending records, without a schedule.
    window: u64,
}

impl OnBus {
    fn open(task: &ProducerTask, batch: Batch) -> CliResult<Self> {
        let bus = Bus::builder().producer(&task.name).connect(&task.url)?;
        let defaults = LogOptions::default();
        let options = LogOptions {
            lanes: super::lanes(&task.prefix, task.ordinary.as_ref()),
            batch_age: batch.age.unwrap_or(defaults.batch_age),
            batch_records: batch.records.unwrap_or(defaults.batch_records),
            ring_bytes: if task.rate_hz.is_some() { defaults.ring_bytes } else { RING_BYTES },
            ..defaults
        };
        let logging = Logging::start(bus, options).or_cli()?;
        let mount = logging.logger(&format!("CONTROL/{}/Mount", task.name));
        let to = |name: &str| mount.to(&Audiences::of([name]));
        let size = match task.content {
            Content::Night => 0,
            Content::Bytes(size) => size,
        };
        Ok(Self {
            operator: to(audience::OPERATOR),
            science: to(audience::SCILOG),
            developer: to(audience::DEVELOPER),
            everyone: mount.to(&Audiences::everyone()),
            mount,
            logging,
            content: task.content,
            filling: "x".repeat(filling_bytes(size)),
            window: (WINDOW_BYTES / (size.max(64) + 32)) as u64,
        })
    }
}

/// The length of a record's text argument for a record of this many bytes.
fn filling_bytes(size: usize) -> usize {
    let bytes = |filling: usize| {
        let mut body = Body::new();
        body.argument_int(TYPICAL_DUE_NS).argument_text(&"x".repeat(filling));
        ENTRY_BYTES + body.as_bytes().len()
    };
    // A longer text has a longer length before it.
    let guess = size.saturating_sub(bytes(0));
    guess.saturating_sub(bytes(guess).saturating_sub(size))
}

impl Sink for OnBus {
    fn one(&mut self, number: u64, due_ns: u64) -> CliResult<Level> {
        let due = due_ns as i64;
        if let Content::Bytes(_) = self.content {
            log!(self.mount, Level::INFO, "due {}: {}", due, self.filling);
            return Ok(Level::INFO);
        }
        Ok(match number % 1_000 {
            999 => {
                log!(self.operator, Level::ERROR, "due {}: axis {} is off", due, "azimuth");
                Level::ERROR
            }
            499 => {
                log!(self.developer, Level::WARNING, "due {}: retried {} times", due, 3);
                Level::WARNING
            }
            n if n % 125 == 0 => {
                log!(self.science, Level::NOTICE, "due {}: exposure {} done", due, number);
                Level::NOTICE
            }
            n if n % 20 == 1 => {
                log!(self.operator, Level::INFO, "due {}: {}", due, "on target"; settled = true);
                Level::INFO
            }
            _ => {
                let (azimuth, elevation) = (number as f64 * 1e-3, 45.0);
                log!(self.mount, Level::DEBUG, "due {}: at {} {}", due, azimuth, elevation);
                Level::DEBUG
            }
        })
    }

    fn urgent(&mut self, level: Level, due_ns: u64) -> CliResult {
        log!(self.everyone, level, "due {}: wind of {} m/s, park now", due_ns as i64, 31.5);
        Ok(())
    }

    fn turn(&mut self) -> CliResult {
        Ok(())
    }

    fn is_full(&self, logged: u64) -> bool {
        // Records are shed, so that this ends even if the bus accepts none.
        let figures = self.logging.figures();
        logged.saturating_sub(figures.published + figures.shed) > self.window
    }

    fn finish(&mut self) -> CliResult<(u64, u64)> {
        if !self.logging.flush(FLUSH_TIMEOUT) {
            let why = self.logging.trouble().unwrap_or_else(|| "it is slow".to_owned());
            let what = "the bus has not taken all log records within a minute";
            return Err(CliError::Failure(format!("{what}: {why}")));
        }
        let figures = self.logging.figures();
        Ok((figures.published, figures.bytes))
    }
}

impl ServiceError for LogError {
    fn into_cli(self) -> CliError {
        match self {
            LogError::Connect(error) => error.into(),
            LogError::Topic(error) => error.into(),
            error => CliError::Failure(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_size_that_is_asked_for() {
        for size in [64, 300, 1_000, 100_000] {
            let mut body = Body::new();
            body.argument_int(TYPICAL_DUE_NS).argument_text(&"x".repeat(filling_bytes(size)));
            assert_eq!(ENTRY_BYTES + body.as_bytes().len(), size);
        }
        assert_eq!(filling_bytes(1), 0);
    }
}
