//! The bus's subscription for Python: polling never blocks, waiting releases the interpreter lock.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use helio_bus::{Event, EventRef, ReadError, Subscription, TransportError};
use helio_component::{Loss, Losses};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyEllipsis, PyList};

use crate::errors;
use crate::fork::{Generation, Owned};
use crate::notify::Notifier;
use crate::receipt::{SIGNAL_CHECK_INTERVAL, seconds};
use crate::sample::{self, Sample, SampleContext};
use crate::schema::Schema;

/// The most skipped items (of unwanted keys, for instance) in one call.
const SKIPPED_MAX: usize = 1024;

/// How often an engine's answer is polled.
const FENCE_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The most bytes of one batch: a batch of large samples must not block an event loop.
const BATCH_MAX_BYTES: usize = 4 << 20;

/// A subscription, driven by the package's own classes.
///
/// A commit or a seek holds it for as long as the engine takes. In the meantime its counters and
/// positions are those from before, and `close` leaves the closing to that call: an event loop
/// calls these, and must not wait.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawSubscription")]
pub(crate) struct RawSubscription {
    inner: Mutex<Owned<OpenSubscription>>,
    /// The counters and positions when the pending commit or seek began, if one is pending.
    before: Mutex<Option<Known>>,
    closed: AtomicBool,
    generation: Generation,
}

#[derive(Debug, Clone)]
struct Known {
    stats: Stats,
    positions: Vec<PositionRow>,
}

/// A partition's number, the next offset, the end of the log.
type PositionRow = (u32, u64, u64);

struct OpenSubscription {
    subscription: Subscription,
    context: SampleContext,
    /// An event that arrived while the event loop's waker was registered.
    early: Option<Event>,
    /// Losses by the samples' own numbers, of a component's topic.
    losses: Option<Losses>,
}

/// The counters of a subscription, in samples.
///
/// ``lost``: will never be received (retention, overload, damage, holes in a producer's sequences);
/// ``conflated``: replaced by a newer sample of the key; ``fenced``: of fenced incarnations;
/// ``duplicates``; ``expired``: older than their lifespan; ``shed``: dropped for their level;
/// ``filtered``: of unwanted keys; ``undecodable``; ``lag``: stored and unread.
#[pyclass(frozen, get_all, module = "heliograph", name = "Stats")]
#[derive(Debug, Clone)]
pub(crate) struct Stats {
    received: u64,
    lost: u64,
    conflated: u64,
    fenced: u64,
    duplicates: u64,
    expired: u64,
    shed: u64,
    filtered: u64,
    undecodable: u64,
    deadlines_missed: u64,
    lag: u64,
}

#[pymethods]
impl Stats {
    fn __repr__(&self) -> String {
        format!("{self:?}")
            .replace(" {", "(")
            .replace(" }", ")")
            .replace(": ", "=")
            .replace("( ", "(")
    }
}

/// The result of [`OpenSubscription::collect`].
enum Item {
    Sample(PyResult<Sample>),
    Other(Event),
    Lost(Loss),
}

impl OpenSubscription {
    /// Takes up to `max` samples or other events; returns the number of items that the transport
    /// had.
    fn collect(
        &mut self,
        py: Python<'_>,
        max: usize,
        sink: &mut dyn FnMut(Item),
    ) -> Result<usize, ReadError> {
        if let Some(event) = self.early.take() {
            if let Some(loss) = self.losses.as_mut().and_then(|losses| losses.event(&event)) {
                sink(Item::Lost(loss));
            }
            match event {
                Event::Sample(sample) => {
                    let pinned = self.context.pins.then(|| sample.payload.clone());
                    sink(Item::Sample(self.context.sample(py, &sample.as_ref(), pinned)));
                }
                other => sink(Item::Other(other)),
            }
            return Ok(1);
        }
        let (context, losses) = (&mut self.context, &mut self.losses);
        let mut bytes = 0;
        self.subscription.visit(max, |event| {
            if let Some(loss) = losses.as_mut().and_then(|losses| losses.see(&event)) {
                sink(Item::Lost(loss));
            }
            sink(match event {
                EventRef::Sample(sample) => {
                    bytes += sample.payload.len();
                    Item::Sample(context.sample(py, &sample, None))
                }
                EventRef::Other(event) => Item::Other(event),
            });
            if bytes < BATCH_MAX_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }
}

impl OpenSubscription {
    fn stats(&self) -> Stats {
        let of = self.subscription.stats();
        let by_number = self.losses.as_ref().map(Losses::stats).unwrap_or_default();
        Stats {
            received: of.received,
            lost: of.lost + by_number.lost,
            conflated: of.conflated,
            fenced: of.fenced,
            duplicates: of.duplicates + by_number.repeated,
            expired: of.expired,
            shed: of.shed,
            filtered: of.filtered,
            undecodable: of.undecodable,
            deadlines_missed: of.deadlines_missed,
            lag: of.lag,
        }
    }

    fn positions(&self) -> Vec<PositionRow> {
        let positions = self.subscription.positions();
        positions.into_iter().map(|p| (p.partition, p.next, p.end)).collect()
    }
}

impl RawSubscription {
    pub(crate) fn new(subscription: Subscription, context: SampleContext) -> Self {
        let (early, losses) = (None, None);
        let inner =
            Mutex::new(Owned::new(OpenSubscription { subscription, context, early, losses }));
        let (before, closed) = (Mutex::new(None), AtomicBool::new(false));
        Self { inner, before, closed, generation: Generation::current() }
    }

    /// Rejects calls of a forked child, and those after its closing.
    fn check(&self) -> PyResult<()> {
        self.generation.check(OBJECT)?;
        if self.closed.load(Ordering::SeqCst) {
            return Err(errors::raise("ClosedError", "the subscription is closed"));
        }
        Ok(())
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Owned<OpenSubscription>>> {
        self.check()?;
        Ok(self.inner.lock_py_attached(py).unwrap_or_else(|error| error.into_inner()))
    }

    /// Calls the engine without the interpreter lock, for as long as that takes.
    fn engine<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut OpenSubscription) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        self.check()?;
        py.detach(|| {
            let mut guard = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let inner = guard.get_mut(OBJECT)?;
            let known = Known { stats: inner.stats(), positions: inner.positions() };
            *self.before() = Some(known);
            let outcome = call(inner);
            *self.before() = None;
            self.leave(guard);
            outcome
        })
    }

    fn before(&self) -> MutexGuard<'_, Option<Known>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks it; if it was closed meanwhile, closes it.
    fn leave(&self, mut guard: MutexGuard<'_, Owned<OpenSubscription>>) {
        let closed = self.closed.load(Ordering::SeqCst);
        let taken = if closed { guard.take() } else { None };
        drop(guard);
        drop(taken);
        // A close between the two finds it unlocked only now.
        if !closed && self.closed.load(Ordering::SeqCst) {
            self.close_now();
        }
    }

    /// Closes it, unless a call of the engine holds it: then that does, when it ends.
    fn close_now(&self) {
        let taken = match self.inner.try_lock() {
            Ok(mut guard) => guard.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        drop(taken);
    }

    /// What `read` returns; while a commit or a seek is pending, what was `known` before.
    fn look<T>(
        &self,
        py: Python<'_>,
        read: fn(&OpenSubscription) -> T,
        known: fn(&Known) -> T,
    ) -> PyResult<T> {
        self.check()?;
        if let Ok(guard) = self.inner.try_lock() {
            return guard.get(OBJECT).map(read);
        }
        if let Some(before) = &*self.before() {
            return Ok(known(before));
        }
        self.lock(py)?.get(OBJECT).map(read)
    }
}

const OBJECT: &str = "subscription";

#[pymethods]
impl RawSubscription {
    /// The next sample or other event. `None` if there is none now, `...` if many were skipped and
    /// there may be more.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut guard = self.lock(py)?;
        let inner = guard.get_mut(OBJECT)?;
        for _ in 0..SKIPPED_MAX {
            let mut found = None;
            let seen = inner.collect(py, 1, &mut |item| found = Some(item));
            match (found, seen.map_err(|error| errors::read(&error))?) {
                (Some(Item::Sample(sample)), _) => return Ok(Py::new(py, sample?)?.into_any()),
                (Some(Item::Other(event)), _) => {
                    return sample::event(py, event, &mut inner.context);
                }
                (None, 0) => return Ok(py.None()),
                (None | Some(Item::Lost(_)), _) => {}
            }
        }
        Ok(PyEllipsis::get(py).to_owned().into_any().unbind())
    }

    /// Up to `max` samples, other events before or between them, and the number of items that the
    /// transport had.
    fn take_many<'py>(
        &self,
        py: Python<'py>,
        max: usize,
    ) -> PyResult<(Bound<'py, PyList>, Vec<Py<PyAny>>, usize)> {
        let mut guard = self.lock(py)?;
        let inner = guard.get_mut(OBJECT)?;
        let samples = PyList::empty(py);
        let mut others = Vec::new();
        let mut failed = Ok(());
        let seen = inner.collect(py, max, &mut |item| match item {
            Item::Sample(sample) => {
                let added = sample.and_then(|sample| Py::new(py, sample));
                let added = added.and_then(|sample| samples.append(sample));
                if added.is_err() {
                    failed = added;
                }
            }
            other => others.push(other),
        });
        let seen = seen.map_err(|error| errors::read(&error))?;
        failed?;
        let told = others.into_iter().map(|other| match other {
            Item::Other(event) => sample::event(py, event, &mut inner.context),
            Item::Lost(loss) => sample::loss(py, &loss),
            Item::Sample(sample) => Ok(Py::new(py, sample?)?.into_any()),
        });
        let events = told.collect::<PyResult<_>>()?;
        Ok((samples, events, seen))
    }

    /// Sets a fence behind everything that is stored now. It waits until the engine has answered
    /// where that is, for at most this time.
    fn set_fence(&self, py: Python<'_>, timeout_s: f64) -> PyResult<()> {
        let until = seconds(Some(timeout_s))?.and_then(|left| Instant::now().checked_add(left));
        let mut guard = self.lock(py)?;
        let subscription = &mut guard.get_mut(OBJECT)?.subscription;
        subscription.set_fence().map_err(|error| errors::read(&error))?;
        while !subscription.knows_fence().map_err(|error| errors::read(&error))?
            && until.is_none_or(|until| Instant::now() < until)
        {
            py.detach(|| std::thread::sleep(FENCE_POLL_INTERVAL));
        }
        Ok(())
    }

    /// Up to `max` samples before the fence, other events, and whether it was passed: then samples
    /// behind it are unread, as far as the partitions' order allows.
    fn take_stored<'py>(
        &self,
        py: Python<'py>,
        max: usize,
    ) -> PyResult<(Bound<'py, PyList>, Vec<Py<PyAny>>, bool)> {
        let samples = PyList::empty(py);
        let mut events = Vec::new();
        while samples.len() + events.len() < max {
            if self.has_passed_fence(py)? {
                return Ok((samples, events, true));
            }
            let (taken, others, seen) = self.take_many(py, 1)?;
            taken.iter().try_for_each(|sample| samples.append(sample))?;
            events.extend(others);
            if seen == 0 {
                let passed = self.has_passed_fence(py)?;
                return Ok((samples, events, passed));
            }
        }
        Ok((samples, events, false))
    }

    /// Whether everything before the fence was taken; true without a fence.
    fn has_passed_fence(&self, py: Python<'_>) -> PyResult<bool> {
        let mut guard = self.lock(py)?;
        let OpenSubscription { subscription, early, .. } = guard.get_mut(OBJECT)?;
        let passed = subscription.has_passed_fence().map_err(|error| errors::read(&error))?;
        Ok(passed
            && match early {
                None => true,
                Some(Event::Sample(early)) => {
                    !subscription.is_before_fence(early.partition, early.offset)
                }
                Some(_) => false,
            })
    }

    /// Starts to count losses by the samples' own numbers, for a component's topic of that schema;
    /// gaps and counters report them.
    fn count_losses(&self, py: Python<'_>, schema: &Schema) -> PyResult<()> {
        self.lock(py)?.get_mut(OBJECT)?.losses = Some(Losses::new(schema.schema()));
        Ok(())
    }

    /// Registers `token` to be reported when samples may be available; true if they may be already.
    fn arm(&self, py: Python<'_>, notifier: &Bound<'_, Notifier>, token: u64) -> PyResult<bool> {
        let mut guard = self.lock(py)?;
        let inner = guard.get_mut(OBJECT)?;
        if inner.early.is_some() {
            return Ok(true);
        }
        let waker = notifier.get().waker(token);
        let next = pin!(inner.subscription.next());
        match next.poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(event)) => {
                inner.early = Some(event);
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(errors::read(&error)),
        }
    }

    /// Waits in this thread until samples may be available; false after the timeout.
    #[pyo3(signature = (timeout_s = None))]
    fn wait(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<bool> {
        self.check()?;
        let until = seconds(timeout_s)?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let slice = Instant::now().checked_add(SIGNAL_CHECK_INTERVAL);
            let slice = until.into_iter().chain(slice).min();
            let waited = py.detach(|| {
                let mut guard = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
                let inner = guard.get_mut(OBJECT)?;
                if inner.early.is_some() {
                    return Ok(true);
                }
                let waited = inner.subscription.wait_until(slice);
                self.leave(guard);
                waited.map_err(|error| errors::read(&error))
            });
            py.check_signals()?;
            if waited? {
                return Ok(true);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(false);
            }
        }
    }

    /// The counters.
    #[getter]
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        self.look(py, OpenSubscription::stats, |known| known.stats.clone())
    }

    /// For each partition: its number, the next offset, the end of the log.
    fn positions(&self, py: Python<'_>) -> PyResult<Vec<PositionRow>> {
        self.look(py, OpenSubscription::positions, |known| known.positions.clone())
    }

    /// Seeks to an offset of a partition.
    fn seek(&self, py: Python<'_>, partition: u32, offset: u64) -> PyResult<()> {
        self.engine(py, |inner| {
            if matches!(&inner.early, Some(Event::Sample(early)) if early.partition == partition) {
                inner.early = None;
            }
            inner.subscription.seek(partition, offset).map_err(|error| errors::read(&error))
        })
    }

    /// Commits a position of the group, by default the one after the last returned sample.
    #[pyo3(signature = (position = None))]
    fn commit(&self, py: Python<'_>, position: Option<(u32, u64)>) -> PyResult<()> {
        self.engine(py, |inner| {
            let done = match (position, &inner.early) {
                (Some((partition, offset)), _) => inner.subscription.commit_at(partition, offset),
                // It was not returned yet; the other partitions wait for the next commit.
                (None, Some(Event::Sample(early))) => {
                    match inner.subscription.commit_at(early.partition, early.offset) {
                        Err(ReadError::Transport(TransportError::NotAssigned { .. })) => Ok(()),
                        committed => committed,
                    }
                }
                (None, _) => inner.subscription.commit(),
            };
            done.map_err(|error| errors::read(&error))
        })
    }

    /// Refuses all further calls but `close`, which an event loop leaves to a thread.
    fn mark_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Closes it; a thread that waits or commits returns first, and closes it then.
    fn close(&self, py: Python<'_>) {
        if self.generation.is_current() {
            self.closed.store(true, Ordering::SeqCst);
            py.detach(|| self.close_now());
        }
    }
}
