//! Readers of alerts: what was read, and the reader that a thread of Python waits in.
//!
//! Constraints. A subscription's own thread makes all calls. It reads in slices of [`SLICE`], and
//! returns after one if another call is queued, or if the subscription is closed. Packets become
//! columns in that thread, without the interpreter lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use helio_alerts::reader::{
    AlertReader, DropCause, Dropped, Drops, Read, ReaderError, ReaderOptions, Stamps, Start,
    Stream, VisitEvent,
};
use helio_alerts::visit::{Audit, DetectorAudit, Digest, Finding, Position};
use helio_bus::transport::locked;
use helio_bus::{Bus, Event};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyString;

use super::alert::{Alert, SchemaCache};
use super::batch::Batch;
use super::columns::Columns;
use crate::bus::RawBus;
use crate::errors;
use crate::fork::{Generation, Owned};
use crate::receipt::seconds;
use crate::sample::{self, SampleContext};

const OBJECT: &str = "subscription of alerts";
/// How long a thread reads without looking for queued calls.
const SLICE: Duration = Duration::from_millis(100);

/// A dropped packet: partition, offset, the alert, the cause, the reason.
type DroppedRow = (u32, u64, Option<i64>, &'static str, String);
/// An audit: equal, found, decided, and of each detector: number, announced, found, finding.
type AuditRow = (bool, String, Option<String>, Vec<(i32, Option<String>, String, &'static str)>);

/// Reads alerts, driven by the package's own classes.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawAlertReader")]
pub(crate) struct RawAlertReader {
    reader: Mutex<Owned<AlertReader>>,
    columns: Mutex<Columns>,
    schemas: SchemaCache,
    dropped: Mutex<BTreeMap<&'static str, u64>>,
    /// Calls that are queued behind a read.
    queued: AtomicUsize,
    closed: AtomicBool,
    generation: Generation,
}

/// What one call has read: alerts, then events.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawRead")]
pub(crate) struct RawRead(Mutex<Read>);

fn refused(error: &ReaderError) -> PyErr {
    match error {
        ReaderError::Topic(error) => errors::topic(error, "SubscribeError"),
        ReaderError::Read(error) => errors::read(error),
        ReaderError::Transport(error) => errors::transport(error),
        ReaderError::NotAccepted(error) => errors::publish(error),
        other => errors::raise("SubscribeError", &other.to_string()),
    }
}

fn stamps(name: &str) -> PyResult<Stamps> {
    match name {
        "none" => Ok(Stamps::None),
        "linked" => Ok(Stamps::Linked),
        "inline" => Ok(Stamps::Inline),
        _ => {
            let message = format!("stamps={name:?}: use none, linked, inline or url");
            Err(PyValueError::new_err(message))
        }
    }
}

/// A start from its text, such as `visit:3`.
fn start(text: &str) -> PyResult<Start> {
    let wrong = || {
        PyValueError::new_err(format!(
            "start={text:?}: use latest, earliest, committed, visit:3, night:2026-11-25, \
             time:2026-11-25T04:00:00Z, alert:17 or checkpoint:name"
        ))
    };
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    Ok(match kind {
        "latest" if rest.is_empty() => Start::Latest,
        "earliest" if rest.is_empty() => Start::Earliest,
        "committed" if rest.is_empty() => Start::Committed,
        "visit" => Start::Visit(rest.parse().map_err(|_| wrong())?),
        "night" => Start::Night(rest.parse().map_err(|_| wrong())?),
        "time" => Start::Time(rest.parse().map_err(|_| wrong())?),
        "alert" => Start::Alert(rest.parse().map_err(|_| wrong())?),
        "checkpoint" if !rest.is_empty() => Start::Checkpoint(rest.to_owned()),
        _ => return Err(wrong()),
    })
}

/// Moves a group without live members to a start.
#[pyfunction]
pub(crate) fn rewind_alerts(
    py: Python<'_>,
    bus: &RawBus,
    topic: &str,
    group: &str,
    to: &str,
) -> PyResult<()> {
    let (bus, to) = (bus.bus(py)?, start(to)?);
    py.detach(|| Stream { bus: &bus, name: topic }.rewind_group(group, &to))
        .map_err(|error| refused(&error))
}

impl RawAlertReader {
    fn check(&self) -> PyResult<()> {
        self.generation.check(OBJECT)?;
        if self.closed.load(Ordering::SeqCst) {
            return Err(errors::raise("ClosedError", "the subscription is closed"));
        }
        Ok(())
    }

    /// Calls the reader without the interpreter lock.
    fn engine<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut AlertReader) -> Result<T, ReaderError> + Send,
    ) -> PyResult<T> {
        self.check()?;
        py.detach(|| {
            let mut guard = locked(&self.reader);
            call(guard.get_mut(OBJECT)?).map_err(|error| refused(&error))
        })
    }

    /// Reads until there is something, the time is over, or another call is queued.
    fn read_until(
        &self,
        max_alerts: usize,
        max_bytes: usize,
        until: Option<Instant>,
    ) -> PyResult<Option<Read>> {
        loop {
            self.check()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            let mut guard = locked(&self.reader);
            let read = guard.get_mut(OBJECT)?.read(max_alerts, max_bytes, slice);
            drop(guard);
            let read = read.map_err(|error| refused(&error))?;
            if !read.is_empty() {
                self.count(&read.dropped);
                return Ok(Some(read));
            }
            let is_over = until.is_some_and(|until| until <= Instant::now());
            if is_over || self.queued.load(Ordering::SeqCst) > 0 {
                return Ok(None);
            }
        }
    }

    fn count(&self, drops: &Drops) {
        let mut dropped = locked(&self.dropped);
        for (cause, count) in drops.counts() {
            *dropped.entry(cause.name()).or_default() += count;
        }
        *dropped.entry("without_stamps").or_default() += drops.without_stamps;
    }
}

#[pymethods]
impl RawAlertReader {
    /// Opens a stream; it may wait for the engine.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "private to the package")]
    fn new(
        py: Python<'_>,
        bus: &RawBus,
        topic: &str,
        columns: Option<Vec<String>>,
        with_stamps: &str,
        group: Option<String>,
        from: &str,
        pinned_bytes: Option<u64>,
        visits: usize,
    ) -> PyResult<Self> {
        let defaults = ReaderOptions::default();
        let options = ReaderOptions {
            group,
            stamps: stamps(with_stamps)?,
            start: start(from)?,
            pinned_bytes: pinned_bytes.unwrap_or(defaults.pinned_bytes),
            visits,
            ..defaults
        };
        let bus = bus.bus(py)?;
        let paths = columns.unwrap_or_else(|| vec!["*".to_owned()]);
        let (reader, columns) = py.detach(|| open(&bus, topic, options, paths))?;
        Ok(Self {
            reader: Mutex::new(Owned::new(reader)),
            columns: Mutex::new(columns),
            schemas: SchemaCache::default(),
            dropped: Mutex::default(),
            queued: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            generation: Generation::current(),
        })
    }

    /// Waits in this thread until something was read; `None` after the timeout.
    fn read(
        &self,
        py: Python<'_>,
        max_alerts: usize,
        max_bytes: usize,
        timeout_s: Option<f64>,
    ) -> PyResult<Option<RawRead>> {
        let until = seconds(timeout_s)?.and_then(|left| Instant::now().checked_add(left));
        let read = py.detach(|| self.read_until(max_alerts, max_bytes, until))?;
        Ok(read.map(|read| RawRead(Mutex::new(read))))
    }

    /// The columns of what was read: batches, and the packets that they lack. What was read keeps
    /// its alerts if no schema has the columns.
    fn batches(&self, py: Python<'_>, read: &RawRead) -> PyResult<(Vec<Batch>, Vec<DroppedRow>)> {
        let alerts = std::mem::take(&mut locked(&read.0).alerts);
        if let Err(error) = py.detach(|| locked(&self.columns).prepare(&alerts)) {
            locked(&read.0).alerts = alerts;
            return Err(error);
        }
        let (batches, rejected) = py.detach(|| locked(&self.columns).batches(alerts))?;
        if !rejected.is_empty() {
            *locked(&self.dropped).entry("columns").or_default() += rejected.len() as u64;
        }
        Ok((batches, rejected))
    }

    /// The alerts of what was read.
    fn alerts(&self, py: Python<'_>, read: &RawRead) -> PyResult<Vec<Alert>> {
        let alerts = std::mem::take(&mut locked(&read.0).alerts);
        alerts.into_iter().map(|alert| Alert::new(py, alert, &self.schemas)).collect()
    }

    /// Counts a packet that Python could not decode.
    fn count_undecodable(&self) {
        *locked(&self.dropped).entry("undecodable").or_default() += 1;
    }

    /// Packets that were dropped so far, by cause.
    fn dropped(&self) -> BTreeMap<&'static str, u64> {
        let dropped = locked(&self.dropped);
        dropped.iter().filter(|(_, count)| **count > 0).map(|(c, n)| (*c, *n)).collect()
    }

    /// Commits the positions behind what was returned, without alerts at these positions and what
    /// follows them.
    fn commit(&self, py: Python<'_>, unread: Vec<(u32, u64)>) -> PyResult<()> {
        let unread: Vec<_> =
            unread.into_iter().map(|(partition, offset)| Position { partition, offset }).collect();
        self.engine(py, |reader| reader.commit_before(&unread))
    }

    /// Sets a checkpoint, likewise.
    fn checkpoint(&self, py: Python<'_>, name: &str, unread: Vec<(u32, u64)>) -> PyResult<()> {
        let unread: Vec<_> =
            unread.into_iter().map(|(partition, offset)| Position { partition, offset }).collect();
        self.engine(py, |reader| reader.checkpoint_before(name, &unread))
    }

    /// Stored samples that were not returned.
    fn lag(&self, py: Python<'_>) -> PyResult<u64> {
        self.engine(py, |reader| Ok(reader.lag()))
    }

    /// For each partition: its number, the next offset, the end of the log.
    fn positions(&self, py: Python<'_>) -> PyResult<Vec<(u32, u64, u64)>> {
        let positions = self.engine(py, |reader| Ok(reader.positions()))?;
        Ok(positions.into_iter().map(|at| (at.partition, at.next, at.end)).collect())
    }

    /// Compares what was read of a visit with its manifests.
    fn audit(&self, py: Python<'_>, visit: i64) -> PyResult<AuditRow> {
        self.engine(py, |reader| reader.audit(visit)).map(|audit| audit_row(&audit))
    }

    /// Moves it to another start.
    fn rewind(&self, py: Python<'_>, to: &str) -> PyResult<()> {
        let to = start(to)?;
        self.engine(py, |reader| reader.rewind(to))
    }

    /// Lets a read return early, as another call is queued behind it.
    fn interrupt(&self) {
        self.queued.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends what `interrupt` began.
    fn resume(&self) {
        self.queued.fetch_sub(1, Ordering::SeqCst);
    }

    /// Refuses all further calls; a reading thread returns.
    fn mark_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Closes it; a thread that reads returns first.
    fn close(&self, py: Python<'_>) {
        self.closed.store(true, Ordering::SeqCst);
        if self.generation.is_current() {
            py.detach(|| drop(locked(&self.reader).take()));
        }
    }
}

fn open(
    bus: &Bus,
    topic: &str,
    options: ReaderOptions,
    paths: Vec<String>,
) -> PyResult<(AlertReader, Columns)> {
    let reader = AlertReader::open(bus, topic, options).map_err(|error| refused(&error))?;
    Ok((reader, Columns::open(bus, topic, paths)?))
}

fn audit_row(audit: &Audit) -> AuditRow {
    let text = |digest: Digest| digest.to_string();
    let finding = |finding| match finding {
        Finding::Equal => "equal",
        Finding::NoManifest => "no_manifest",
        Finding::Short => "short",
        Finding::Excess => "excess",
        Finding::Differs => "differs",
    };
    let detector = |one: &DetectorAudit| {
        (one.detector, one.announced.map(text), text(one.found), finding(one.finding))
    };
    let detectors = audit.detectors.iter().map(detector).collect();
    (audit.is_equal(), text(audit.found), audit.decided.map(text), detectors)
}

pub(super) fn dropped_row(dropped: &Dropped) -> DroppedRow {
    let Dropped { at, id, cause, reason } = dropped;
    (at.partition, at.offset, *id, DropCause::name(*cause), reason.clone())
}

#[pymethods]
impl RawRead {
    /// The number of alerts that were not taken from it.
    fn __len__(&self) -> usize {
        locked(&self.0).alerts.len()
    }

    /// The positions of the first alert in each partition that was not taken from it.
    fn unread(&self) -> Vec<(u32, u64)> {
        let mut first = BTreeMap::new();
        for alert in &locked(&self.0).alerts {
            first.entry(alert.at.partition).or_insert(alert.at.offset);
        }
        first.into_iter().collect()
    }

    /// Named packets that were dropped.
    fn dropped(&self) -> Vec<DroppedRow> {
        locked(&self.0).dropped.named.iter().map(dropped_row).collect()
    }

    /// What happened after the alerts, as events of the package.
    fn events(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let guard = self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let events = guard.events.clone();
        drop(guard);
        events.into_iter().map(|event| event_object(py, event)).collect()
    }
}

fn event_object(py: Python<'_>, event: VisitEvent) -> PyResult<Py<PyAny>> {
    let class = |name: &str| py.import("heliograph.alerts._events")?.getattr(name);
    let mut context = SampleContext::new(PyString::new(py, "").unbind(), None);
    let made = match event {
        VisitEvent::Opened(opening) => {
            let of =
                (opening.visit, opening.detectors, opening.shutter_close_ns, opening.window_ns);
            class("opened")?.call1(of)?
        }
        VisitEvent::Decided { closing, late } => {
            let (digest, lists) =
                (closing.totals.to_string(), (closing.missing, closing.short, closing.repeated));
            class("decided")?.call1((closing.visit, closing.closer, digest, lists, late))?
        }
        VisitEvent::Rejected { visit, cause } => {
            class("VisitRejected")?.call1((visit, format!("{cause:?}")))?
        }
        VisitEvent::Gap { gap, .. } => return sample::event(py, Event::Gap(gap), &mut context),
        VisitEvent::Assigned(partitions) => {
            return sample::event(py, Event::Assigned(partitions), &mut context);
        }
        VisitEvent::Outage(outage) => {
            return sample::event(py, Event::Outage(outage), &mut context);
        }
        other => class("unknown")?.call1((format!("{other:?}"),))?,
    };
    Ok(made.unbind())
}
