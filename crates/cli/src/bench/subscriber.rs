//! A bench's subscriber process: counts the received messages and their latencies.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use helio_bus::{Bus, EventRef, Producer, SampleRef, Start, Subscribe, Subscription};

use super::content::Payloads;
use super::messages::{
    Go, Pace, STAMP_EVERY, Schedule, SubscriberReport, SubscriberTask, Used, writer_name,
};
use super::report::histogram;
use crate::clock::{cpu_s, monotonic_ns, peak_rss_mb};
use crate::error::{CliError, CliResult};
use crate::worker::{hear, say};

/// The silence after which missing messages count as lost.
const SILENCE: Duration = Duration::from_secs(5);
/// Samples per read.
const TAKE: usize = 1024;
/// Polls of a reader before it sleeps, while the writer does not pause.
const SPINS: u32 = 100;

/// Runs the process.
pub(crate) fn run(task: &SubscriberTask) -> CliResult {
    let bus = Bus::connect(&task.place.url)?;
    let mut payloads = Payloads::new(&task.place.content)?;
    let topic = bus.topic(payloads.spec(&task.place)?)?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Latest))?;
    say(&())?;
    let Some(go) = hear::<Go>()? else { return Ok(()) };
    if task.pace == Pace::Stalled {
        // Until the orders end.
        hear::<()>()?;
        return say(&SubscriberReport::default());
    }
    let cpu = cpu_s();
    let schedule = task.schedule.map(|schedule| (go.start_ns, schedule));
    let mut counts = Received::new(schedule, &mut payloads);
    read(&mut samples, task.expected, &mut counts)?;
    let used = Used { cpu_s: cpu_s() - cpu, rss_mb: peak_rss_mb() };
    say(&counts.report(used, samples.stats().duplicates))
}

fn read(samples: &mut Subscription, expected: u64, counts: &mut Received<'_>) -> CliResult {
    let spins = if counts.schedule.is_some() { 0 } else { SPINS };
    let mut heard = Instant::now();
    let mut looks = 0;
    while counts.received < expected && counts.failed.is_none() {
        if samples.visit(TAKE, |event| counts.event(&event))? > 0 {
            (heard, looks) = (Instant::now(), 0);
        } else if looks < spins {
            looks += 1;
            std::hint::spin_loop();
        } else if !samples.wait_until(Some(heard + SILENCE))? {
            break;
        }
    }
    counts.failed.take().map_or(Ok(()), Err)
}

/// Counts of received messages, independent of the bus's statistics.
struct Received<'a> {
    schedule: Option<(u64, Schedule)>,
    payloads: &'a mut Payloads,
    first: String,
    producers: Vec<(Producer, u64)>,
    received: u64,
    duplicated: u64,
    end_ns: u64,
    latencies: Histogram<u64>,
    stamps: Vec<(u64, u64)>,
    failed: Option<CliError>,
}

impl<'a> Received<'a> {
    fn new(schedule: Option<(u64, Schedule)>, payloads: &'a mut Payloads) -> Self {
        Self {
            schedule,
            payloads,
            first: writer_name(0),
            producers: Vec::new(),
            received: 0,
            duplicated: 0,
            end_ns: 0,
            latencies: histogram(),
            stamps: Vec::new(),
            failed: None,
        }
    }

    fn event(&mut self, event: &EventRef<'_>) -> ControlFlow<()> {
        let EventRef::Sample(sample) = event else { return ControlFlow::Continue(()) };
        if let Err(error) = self.payloads.read(sample.payload) {
            self.failed = Some(error);
            return ControlFlow::Break(());
        }
        if self.schedule.is_some() {
            self.end_ns = monotonic_ns();
        }
        self.sample(sample);
        ControlFlow::Continue(())
    }

    fn sample(&mut self, sample: &SampleRef<'_>) {
        if !self.is_new(sample) {
            self.duplicated += 1;
            return;
        }
        self.received += 1;
        if let Some((start, schedule)) = self.schedule {
            let due = schedule.due(start, sample.sequence - 1);
            // A sample cannot be there before it was due; 1 ns is the least that a histogram holds.
            self.latencies.saturating_record(self.end_ns.saturating_sub(due).max(1));
        } else if sample.sequence.is_multiple_of(STAMP_EVERY) {
            self.end_ns = monotonic_ns();
            if sample.producer.name.as_str() == self.first {
                self.stamps.push((sample.sequence, self.end_ns));
            }
        }
    }

    /// Whether the sample's number is above all earlier ones of its producer.
    fn is_new(&mut self, sample: &SampleRef<'_>) -> bool {
        let known = self.producers.iter_mut().find(|(producer, _)| producer == sample.producer);
        match known {
            Some((_, last)) if sample.sequence <= *last => false,
            Some((_, last)) => {
                *last = sample.sequence;
                true
            }
            None => {
                self.producers.push((sample.producer.clone(), sample.sequence));
                true
            }
        }
    }

    fn report(self, used: Used, dropped: u64) -> SubscriberReport {
        let counts = self.latencies.iter_recorded();
        SubscriberReport {
            received: self.received,
            duplicated: self.duplicated + dropped,
            end_ns: if self.schedule.is_some() { self.end_ns } else { monotonic_ns() },
            latencies: counts.map(|v| (v.value_iterated_to(), v.count_at_value())).collect(),
            stamps: self.stamps,
            used,
        }
    }
}
