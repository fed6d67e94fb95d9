//! The bus's subscription for Python: looking never blocks, waiting lets other threads run.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Instant;

use helio_bus::{Event, EventRef, ReadError, Subscription};
use helio_component::{Loss, Losses};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyEllipsis, PyList};

use crate::errors;
use crate::fork::{Maker, Owned};
use crate::notify::Notifier;
use crate::receipt::{SIGNALS_EVERY, seconds};
use crate::sample::{self, Sample, Shared};
use crate::schema::Schema;

/// How many items are passed over (keys that are not wanted, say) before the caller gets its turn.
const PASSED_MAX: usize = 1024;

/// How many bytes are taken at once: a batch of large samples must not hold up an event loop.
const AT_ONCE_BYTES: usize = 4 << 20;

/// A subscription, driven by the package's own classes.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawSubscription")]
pub(crate) struct RawSubscription {
    inner: Mutex<Owned<Inner>>,
    maker: Maker,
}

struct Inner {
    subscription: Subscription,
    shared: Shared,
    /// What came up when the event loop's waker was set.
    early: Option<Event>,
    /// Of a component's topic: what is missing by the samples' own numbers.
    losses: Option<Losses>,
}

/// What a subscription has counted so far, in samples.
///
/// ``lost``: never to be had (retention, overload, damage, holes in a producer's numbers);
/// ``conflated``: replaced by a newer one of their key; ``fenced``: of replaced incarnations;
/// ``duplicates``; ``expired``: older than their lifespan; ``shed``: dropped for their level;
/// ``filtered``: of keys that are not wanted; ``undecodable``; ``lag``: ahead, unread.
#[pyclass(frozen, get_all, module = "heliograph", name = "Stats")]
#[derive(Debug)]
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

/// What [`Inner::collect`] found.
enum Found {
    Sample(Sample),
    Other(Event),
    Lost(Loss),
}

impl Inner {
    /// Takes up to `max` samples or other events; the number of items that the transport had.
    fn collect(
        &mut self,
        py: Python<'_>,
        max: usize,
        sink: &mut dyn FnMut(Found),
    ) -> Result<usize, ReadError> {
        if let Some(event) = self.early.take() {
            if let Some(loss) = self.losses.as_mut().and_then(|losses| losses.event(&event)) {
                sink(Found::Lost(loss));
            }
            match event {
                Event::Sample(sample) => {
                    sink(Found::Sample(self.shared.sample(py, &sample.as_ref())));
                }
                other => sink(Found::Other(other)),
            }
            return Ok(1);
        }
        let (shared, losses) = (&mut self.shared, &mut self.losses);
        let mut bytes = 0;
        self.subscription.visit(max, |event| {
            if let Some(loss) = losses.as_mut().and_then(|losses| losses.see(&event)) {
                sink(Found::Lost(loss));
            }
            sink(match event {
                EventRef::Sample(sample) => {
                    bytes += sample.payload.len();
                    Found::Sample(shared.sample(py, &sample))
                }
                EventRef::Other(event) => Found::Other(event),
            });
            if bytes < AT_ONCE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }
}

impl RawSubscription {
    pub(crate) fn new(subscription: Subscription, shared: Shared) -> Self {
        let (early, losses) = (None, None);
        let inner = Mutex::new(Owned::new(Inner { subscription, shared, early, losses }));
        Self { inner, maker: Maker::this() }
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Owned<Inner>>> {
        self.maker.check(WHAT)?;
        Ok(self.inner.lock_py_attached(py).unwrap_or_else(|error| error.into_inner()))
    }
}

const WHAT: &str = "subscription";

#[pymethods]
impl RawSubscription {
    /// The next sample or other event, `None` where there is none now, `...` where many were
    /// passed over and there may be more.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut guard = self.lock(py)?;
        let inner = guard.get_mut(WHAT)?;
        for _ in 0..PASSED_MAX {
            let mut found = None;
            let seen = inner.collect(py, 1, &mut |item| found = Some(item));
            match (found, seen.map_err(|error| errors::read(&error))?) {
                (Some(Found::Sample(sample)), _) => return Ok(Py::new(py, sample)?.into_any()),
                (Some(Found::Other(event)), _) => {
                    return sample::event(py, event, &mut inner.shared);
                }
                (None, 0) => return Ok(py.None()),
                (None | Some(Found::Lost(_)), _) => {}
            }
        }
        Ok(PyEllipsis::get(py).to_owned().into_any().unbind())
    }

    /// Up to `max` samples, what else happened before or between them, and how many items the
    /// transport had.
    fn take_many<'py>(
        &self,
        py: Python<'py>,
        max: usize,
    ) -> PyResult<(Bound<'py, PyList>, Vec<Py<PyAny>>, usize)> {
        let mut guard = self.lock(py)?;
        let inner = guard.get_mut(WHAT)?;
        let samples = PyList::empty(py);
        let mut others = Vec::new();
        let mut failed = Ok(());
        let seen = inner.collect(py, max, &mut |item| match item {
            Found::Sample(sample) => {
                let added = Py::new(py, sample).and_then(|sample| samples.append(sample));
                if added.is_err() {
                    failed = added;
                }
            }
            other => others.push(other),
        });
        let seen = seen.map_err(|error| errors::read(&error))?;
        failed?;
        let told = others.into_iter().map(|other| match other {
            Found::Other(event) => sample::event(py, event, &mut inner.shared),
            Found::Lost(loss) => sample::loss(py, &loss),
            Found::Sample(sample) => Ok(Py::new(py, sample)?.into_any()),
        });
        let events = told.collect::<PyResult<_>>()?;
        Ok((samples, events, seen))
    }

    /// Counts from now on what is missing by the samples' own numbers, for a component's topic of
    /// that schema: a gap tells it, and the counters have it.
    fn count_losses(&self, py: Python<'_>, schema: &Schema) -> PyResult<()> {
        self.lock(py)?.get_mut(WHAT)?.losses = Some(Losses::new(schema.schema()));
        Ok(())
    }

    /// Has `token` reported when there may be something; true where there may be already.
    fn arm(&self, py: Python<'_>, notifier: &Bound<'_, Notifier>, token: u64) -> PyResult<bool> {
        let mut guard = self.lock(py)?;
        let inner = guard.get_mut(WHAT)?;
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

    /// Waits in this thread until there may be something; false where the time is over.
    #[pyo3(signature = (timeout_s = None))]
    fn wait(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<bool> {
        self.maker.check(WHAT)?;
        let until = seconds(timeout_s)?.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let slice = Instant::now().checked_add(SIGNALS_EVERY);
            let slice = until.into_iter().chain(slice).min();
            let waited = py.detach(|| {
                let mut guard = self.inner.lock().unwrap_or_else(|error| error.into_inner());
                let inner = guard.get_mut(WHAT)?;
                if inner.early.is_some() {
                    return Ok(true);
                }
                inner.subscription.wait_until(slice).map_err(|error| errors::read(&error))
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

    /// What it has counted so far.
    #[getter]
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        let guard = self.lock(py)?;
        let inner = guard.get(WHAT)?;
        let of = inner.subscription.stats();
        let by_number = inner.losses.as_ref().map(Losses::stats).unwrap_or_default();
        Ok(Stats {
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
        })
    }

    /// For each partition: its number, the next offset, the end of the log.
    fn positions(&self, py: Python<'_>) -> PyResult<Vec<(u32, u64, u64)>> {
        let guard = self.lock(py)?;
        let positions = guard.get(WHAT)?.subscription.positions();
        Ok(positions.into_iter().map(|p| (p.partition, p.next, p.end)).collect())
    }

    /// Goes to an offset of a partition.
    fn seek(&self, py: Python<'_>, partition: u32, offset: u64) -> PyResult<()> {
        let mut guard = self.lock(py)?;
        let inner = guard.get_mut(WHAT)?;
        if matches!(&inner.early, Some(Event::Sample(early)) if early.partition == partition) {
            inner.early = None;
        }
        inner.subscription.seek(partition, offset).map_err(|error| errors::read(&error))
    }

    /// Commits a position of the group, or without one everything that was handed out.
    #[pyo3(signature = (position = None))]
    fn commit(&self, py: Python<'_>, position: Option<(u32, u64)>) -> PyResult<()> {
        let mut guard = self.lock(py)?;
        let inner = guard.get_mut(WHAT)?;
        let done = match (position, &inner.early) {
            (Some((partition, offset)), _) => inner.subscription.commit_at(partition, offset),
            // It was not handed out yet; the other partitions wait for the next commit.
            (None, Some(Event::Sample(early))) => {
                inner.subscription.commit_at(early.partition, early.offset)
            }
            (None, _) => inner.subscription.commit(),
        };
        done.map_err(|error| errors::read(&error))
    }

    /// Closes it; whoever waits on it is let go within the time of one look for signals.
    fn close(&self, py: Python<'_>) {
        let taken = self.lock(py).ok().and_then(|mut inner| inner.take());
        py.detach(|| drop(taken.map(|inner| inner.subscription)));
    }
}
