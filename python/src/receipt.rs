//! Receipts of published samples, complete or pending.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use helio_bus::{Guarantee, PendingBatch, PendingPublish, PublishError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::errors;
use crate::notify::Notifier;

/// The interval of a waiting thread's checks for signals (Ctrl-C): Rust's waits resume after a
/// signal by themselves.
pub(crate) const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The result of a publish.
///
/// ``offset`` is the position in the partition (``None`` if the engine has no offsets).
/// ``sequence`` is the producer's number of the sample there. ``guarantee`` is the reached one:
/// accepted, stored or durable.
#[pyclass(frozen, module = "heliograph", name = "Receipt")]
#[derive(Debug, Clone)]
pub(crate) struct Receipt(helio_bus::Receipt);

/// A guarantee's name, as Python's enumeration has it.
pub(crate) fn guarantee_name(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::Accepted => "accepted",
        Guarantee::Stored => "stored",
        Guarantee::Durable => "durable",
    }
}

/// The guarantee of that name.
pub(crate) fn guarantee(name: &str) -> PyResult<Guarantee> {
    match name {
        "accepted" => Ok(Guarantee::Accepted),
        "stored" => Ok(Guarantee::Stored),
        "durable" => Ok(Guarantee::Durable),
        _ => Err(pyo3::exceptions::PyValueError::new_err(format!(
            "no guarantee is called {name:?}; use accepted, stored or durable"
        ))),
    }
}

impl From<helio_bus::Receipt> for Receipt {
    fn from(receipt: helio_bus::Receipt) -> Self {
        Self(receipt)
    }
}

#[pymethods]
impl Receipt {
    #[getter]
    fn partition(&self) -> u32 {
        self.0.partition
    }

    #[getter]
    fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    #[getter]
    fn sequence(&self) -> u64 {
        self.0.sequence
    }

    #[getter]
    fn guarantee<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let name = guarantee_name(self.0.guarantee);
        py.import("heliograph._qos")?.getattr("Guarantee")?.call1((name,))
    }

    fn __repr__(&self) -> String {
        let offset = self.0.offset.map_or_else(|| "None".to_owned(), |offset| offset.to_string());
        format!(
            "Receipt(partition={}, offset={offset}, sequence={}, guarantee={:?})",
            self.0.partition,
            self.0.sequence,
            guarantee_name(self.0.guarantee)
        )
    }
}

/// The outcome of each sample, or an error of all.
type Outcome = Result<Vec<helio_bus::Outcome>, PublishError>;
type ReceiptsFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

enum ReceiptState {
    InFlight(ReceiptsFuture),
    Done(Outcome),
}

/// Pending receipts: of one sample, or of a batch (the last receipt of each partition, or the
/// outcome of each sample).
#[pyclass(frozen, module = "heliograph._heliograph", name = "Pending")]
pub(crate) struct Pending(Mutex<ReceiptState>);

impl Pending {
    pub(crate) fn one(publishing: PendingPublish) -> Self {
        Self::of(async move { publishing.await.map(|receipt| vec![Ok(receipt)]) })
    }

    pub(crate) fn batch(batching: PendingBatch) -> Self {
        let all = |receipts: Vec<_>| receipts.into_iter().map(Ok).collect();
        Self::of(async move { batching.receipts().await.map(all) })
    }

    pub(crate) fn each(batching: PendingBatch) -> Self {
        Self::of(async move { Ok(batching.outcomes().await) })
    }

    fn of(receipts: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self(Mutex::new(ReceiptState::InFlight(Box::pin(receipts))))
    }

    fn poll_with(&self, py: Python<'_>, waker: &Waker) -> Option<Outcome> {
        let mut state = self.0.lock_py_attached(py).unwrap_or_else(|e| e.into_inner());
        if let ReceiptState::InFlight(receipts) = &mut *state {
            match receipts.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Pending => return None,
                Poll::Ready(outcome) => *state = ReceiptState::Done(outcome),
            }
        }
        match &*state {
            ReceiptState::Done(outcome) => Some(outcome.clone()),
            ReceiptState::InFlight(_) => None,
        }
    }

    /// Waits in this thread without the interpreter lock, and checks for signals.
    pub(crate) fn block(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let waker = Arc::new(Unpark(std::thread::current())).into();
        loop {
            if let Some(outcome) = self.poll_with(py, &waker) {
                return objects(py, outcome);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(errors::publish(&PublishError::Timeout));
            }
            let slice = left.unwrap_or(SIGNAL_CHECK_INTERVAL).min(SIGNAL_CHECK_INTERVAL);
            py.detach(|| std::thread::park_timeout(slice));
            py.check_signals()?;
        }
    }
}

/// A receipt or an exception for each outcome.
fn objects(py: Python<'_>, outcome: Outcome) -> PyResult<Vec<Py<PyAny>>> {
    let object = |each: helio_bus::Outcome| match each {
        Ok(receipt) => Ok(Py::new(py, Receipt(receipt))?.into_any()),
        Err(error) => Ok(errors::publish(&error).into_value(py).into_any()),
    };
    outcome.map_err(|error| errors::publish(&error))?.into_iter().map(object).collect()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[pymethods]
impl Pending {
    /// The receipts if they are complete; otherwise `token` is reported when they are.
    fn poll(
        &self,
        py: Python<'_>,
        notifier: &Bound<'_, Notifier>,
        token: u64,
    ) -> PyResult<Option<Vec<Py<PyAny>>>> {
        match self.poll_with(py, &notifier.get().waker(token)) {
            None => Ok(None),
            Some(outcome) => objects(py, outcome).map(Some),
        }
    }

    /// Waits in this thread.
    #[pyo3(signature = (timeout_s = None))]
    fn wait(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Vec<Py<PyAny>>> {
        self.block(py, seconds(timeout_s)?)
    }
}

/// Seconds from Python; `None` is no limit.
pub(crate) fn seconds(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    let wrong =
        || pyo3::exceptions::PyValueError::new_err(format!("{seconds} s is not a valid timeout"));
    if seconds.is_nan() {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds.max(0.0)).map(Some).map_err(|_| wrong())
}
