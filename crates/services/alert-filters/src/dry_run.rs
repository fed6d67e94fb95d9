//! Dry runs: a filter over a stored night, before it goes live.
//!
//! A stored packet has the history with which it was published, and points after the alert never
//! count in functions of light curves: nothing of the future is seen.

use std::collections::BTreeMap;
use std::time::Duration;

use helio_bus::{Event, Lagging, Sample, Start, Subscribe, Tai, Topic};

use crate::decisions::{BUS_TIMEOUT, published_at};
use crate::engine::Prepared;
use crate::error::{ChangeError, ServiceError};
use crate::names::{FilterId, spec};
use crate::python::{PythonOptions, Pythons};
use crate::records::{ActiveSet, Cost, Language, Report};
use crate::store::FilterStore;

/// The alerts of a visit, for which limits of time are given.
const VISIT_ALERTS: u64 = 10_000;
/// The part of the alerts that a filter may match.
pub const MAX_SELECTIVITY: f64 = 0.05;
/// Processor time for a visit of 10,000 alerts with flat columns.
pub const MAX_FLAT_CPU: Duration = Duration::from_millis(5);
/// The same with light curves, or in Python.
pub const MAX_HISTORY_CPU: Duration = Duration::from_millis(50);
/// Alerts of a dry run, unless it is given another number: those of a hundred visits.
pub const MAX_ALERTS: u64 = 1_000_000;
/// Bytes of packets of a batch.
const BATCH_BYTES: usize = 64 << 20;

/// The stored alerts of a dry run, by the times of their publishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first time; `None` for the oldest alert.
    pub from: Option<Tai>,
    /// The time before which alerts are read; `None` for all.
    pub until: Option<Tai>,
    /// The most alerts.
    pub max_alerts: u64,
}

impl Default for Span {
    /// All that is stored, [`MAX_ALERTS`] at most.
    fn default() -> Self {
        Self { from: None, until: None, max_alerts: MAX_ALERTS }
    }
}

impl Report {
    /// The part of the alerts that matched, 0 to 1; 0 without alerts.
    #[must_use]
    pub fn selectivity(&self) -> f64 {
        if self.alerts == 0 { 0.0 } else { self.matches as f64 / self.alerts as f64 }
    }

    /// The filter's processor time for a visit of 10,000 alerts.
    #[must_use]
    pub fn cpu_of_visit(&self) -> Duration {
        Duration::from_nanos(self.of_visit(self.cpu_ns))
    }

    /// The bytes of the columns that it reads for a visit of 10,000 alerts.
    #[must_use]
    pub fn bytes_of_visit(&self) -> u64 {
        self.of_visit(self.column_bytes)
    }

    fn of_visit(&self, sum: u64) -> u64 {
        (u128::from(sum) * u128::from(VISIT_ALERTS) / u128::from(self.alerts.max(1))) as u64
    }
}

/// The limits that a dry run found exceeded, in sentences; none if it may go live.
#[must_use]
pub fn excesses(report: &Report) -> Vec<String> {
    let mut excesses = Vec::new();
    if report.alerts == 0 {
        excesses.push("the dry run had no alerts".to_owned());
    }
    if report.selectivity() > MAX_SELECTIVITY {
        excesses.push(format!(
            "it matches {:.1} % of the alerts, {} at most",
            report.selectivity() * 100.0,
            MAX_SELECTIVITY * 100.0
        ));
    }
    let limit = if report.cost == Cost::Flat { MAX_FLAT_CPU } else { MAX_HISTORY_CPU };
    if report.cpu_of_visit() > limit {
        excesses.push(format!(
            "it takes {:.1} ms of processor for a visit, {} at most",
            report.cpu_of_visit().as_secs_f64() * 1e3,
            limit.as_millis()
        ));
    }
    excesses.extend(report.failure.as_ref().map(|failure| format!("it failed: {failure}")));
    excesses
}

impl FilterStore {
    /// Runs a text over stored alerts.
    ///
    /// # Errors
    /// [`ChangeError`]; a filter in Python that fails is in the report.
    pub fn dry_run(
        &mut self,
        language: Language,
        text: &str,
        span: Span,
        python: &PythonOptions,
    ) -> Result<Report, ChangeError> {
        let checked = self.check(language, text)?;
        let mut run = DryRun::new(self, language, text, python)?;
        run.report.cost = checked.cost;
        run.read(self, span)?;
        Ok(run.report)
    }

    /// Runs a version over stored alerts, and stores the report for its activation.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn dry_run_version(
        &mut self,
        id: &FilterId,
        span: Span,
        python: &PythonOptions,
    ) -> Result<Report, ChangeError> {
        self.refresh()?;
        let version = self.definitions().version(id).cloned();
        let version = version.ok_or_else(|| ChangeError::Unknown(id.clone()))?;
        let report = self.dry_run(version.language, &version.text, span, python)?;
        self.add_report(id, &report)?;
        Ok(report)
    }
}

/// The time before which a partition has lost alerts of a span; the latest of all partitions.
fn removed_before(topic: &Topic, span: Span, now: Tai) -> Result<Option<i64>, ServiceError> {
    let Some(from) = span.from else { return Ok(None) };
    let mut latest = None;
    for partition in topic.partitions()?.iter().filter(|partition| partition.first > 0) {
        let oldest = published_at(topic, partition.partition, partition.first)?;
        // Of an empty partition nothing is left.
        let oldest = oldest.unwrap_or_else(|| span.until.unwrap_or(now));
        latest = latest.max(Some(oldest).filter(|oldest| *oldest > from));
    }
    Ok(latest.map(|time: Tai| time.nanos()))
}

struct DryRun {
    prepared: Prepared,
    pythons: Pythons,
    report: Report,
    /// The matches of each visit.
    visits: BTreeMap<i64, u64>,
}

impl DryRun {
    fn new(
        store: &mut FilterStore,
        language: Language,
        text: &str,
        python: &PythonOptions,
    ) -> Result<Self, ServiceError> {
        let id = FilterId { user: "dry".into(), name: "run".into(), version: 0 };
        let mut pythons = Pythons::new(store.bus(), python.clone());
        let active = ActiveSet::from([("dry".to_owned(), [("run".to_owned(), 0)].into())]);
        let prepared = store.with_version(&id, language, text, |store| {
            Prepared::new(store, &active, &mut pythons)
        })?;
        let report = Report {
            alerts: 0,
            matches: 0,
            errors: 0,
            rejected: 0,
            lost: 0,
            removed_before_ns: None,
            visits: 0,
            most_matches: 0,
            cpu_ns: 0,
            bytes: 0,
            column_bytes: 0,
            cost: Cost::Flat,
            failure: pythons.failure(&id),
        };
        Ok(Self { prepared, pythons, report, visits: BTreeMap::new() })
    }

    fn read(&mut self, store: &mut FilterStore, span: Span) -> Result<(), ServiceError> {
        let topic = store.bus().topic(spec(store.topics().alerts())?)?;
        self.report.removed_before_ns = removed_before(&topic, span, store.bus().clock().now())?;
        let start = span.from.map_or(Start::Earliest, Start::Time);
        let options = Subscribe::from(start).lagging(Lagging::Lossless).pinned(256 << 20);
        let mut stored = topic.subscribe(options)?;
        stored.set_fence()?;
        let (mut samples, mut bytes) = (Vec::new(), 0);
        while self.report.alerts + (samples.len() as u64) < span.max_alerts {
            let Some(event) = stored.next_stored(BUS_TIMEOUT)? else { break };
            let sample = match event {
                Event::Sample(sample) => sample,
                Event::Gap(gap) => {
                    self.report.lost += gap.lost;
                    continue;
                }
                _ => continue,
            };
            if span.until.is_some_and(|until| sample.header.time >= until) {
                continue;
            }
            bytes += sample.payload.len();
            samples.push(sample);
            if bytes > BATCH_BYTES {
                self.run(store, &samples)?;
                (bytes, _) = (0, samples.clear());
            }
        }
        self.run(store, &samples)?;
        self.report.visits = self.visits.len() as u64;
        self.report.most_matches = self.visits.values().copied().max().unwrap_or(0);
        Ok(())
    }

    fn run(&mut self, store: &mut FilterStore, samples: &[Sample]) -> Result<(), ServiceError> {
        let (mut packets, mut visits) = (Vec::new(), Vec::new());
        for sample in samples {
            self.report.bytes += sample.payload.len() as u64;
            let packet = store.stream.packet(sample.header.schema, &sample.payload)?;
            let identity =
                packet.and_then(|packet| Ok((packet.identity(sample.headers.as_ref())?, packet)));
            match identity {
                Ok((identity, packet)) => {
                    visits.push(identity.visit);
                    packets.push(packet);
                }
                Err(_) => self.report.rejected += 1,
            }
        }
        let evaluated = self.prepared.run(&packets, &mut self.pythons)?;
        let report = &mut self.report;
        report.alerts += (packets.len() - evaluated.rejected.len()) as u64;
        report.rejected += evaluated.rejected.len() as u64;
        report.column_bytes += evaluated.column_bytes;
        visits.iter().for_each(|visit| _ = self.visits.entry(*visit).or_default());
        for outcome in evaluated.outcomes {
            report.matches += outcome.matches.len() as u64;
            report.errors += outcome.errors;
            report.cpu_ns += u64::try_from(outcome.cpu.as_nanos()).unwrap_or(u64::MAX);
            report.failure = outcome.failure.or(report.failure.take());
            for (packet, _) in outcome.matches {
                *self.visits.entry(visits[packet]).or_default() += 1;
            }
        }
        Ok(())
    }
}
