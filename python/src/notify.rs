//! Connects wakers to an event loop with at most two file descriptors per bus.
//!
//! A waker is a token. Another thread that wakes it (for receipts, or for samples if the bus has a
//! waiting thread) appends the token to a list. If the list was empty, a descriptor becomes
//! readable, and the loop's callback drains the list. So many wake-ups cost one system call. If the
//! bus has an event source, samples make that readable instead, without a thread in between.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Instant;

use helio_bus::EventSource;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::bus::RawBus;
use crate::errors;
use crate::fork::Owned;

#[derive(Debug)]
struct WakeQueue {
    event: OwnedFd,
    woken: Mutex<WokenTokens>,
}

#[derive(Debug, Default)]
struct WokenTokens {
    tokens: Vec<u64>,
    /// The loop is about to take the tokens, so no wake-up is needed.
    polling: bool,
}

impl WakeQueue {
    fn woken(&self) -> MutexGuard<'_, WokenTokens> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event loop's side of all wakers of one bus.
#[pyclass(frozen, module = "heliograph._heliograph", name = "Notifier")]
#[derive(Debug)]
pub(crate) struct Notifier {
    queue: Arc<WakeQueue>,
    source: Option<Mutex<Owned<EventSource>>>,
}

struct TokenWaker {
    token: u64,
    queue: Arc<WakeQueue>,
}

impl Wake for TokenWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut woken = self.queue.woken();
        let tell = woken.tokens.is_empty() && !woken.polling;
        woken.tokens.push(self.token);
        drop(woken);
        if tell {
            // It fails only if the counter is full; then the loop is woken anyway.
            let _ = rustix::io::write(&self.queue.event, &1_u64.to_ne_bytes());
        }
    }
}

impl Notifier {
    /// A waker that reports `token`.
    pub(crate) fn waker(&self, token: u64) -> Waker {
        Arc::new(TokenWaker { token, queue: Arc::clone(&self.queue) }).into()
    }
}

#[pymethods]
impl Notifier {
    #[new]
    fn new(py: Python<'_>, bus: &RawBus) -> PyResult<Self> {
        let bus = bus.bus(py)?;
        let source = py.detach(|| bus.event_source()).map_err(|error| errors::transport(&error))?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|error| PyOSError::new_err(error.to_string()))?;
        let queue = Arc::new(WakeQueue { event, woken: Mutex::default() });
        Ok(Self { queue, source: source.map(|source| Mutex::new(Owned::new(source))) })
    }

    /// The descriptor that is readable while tokens are pending: call `drain` then.
    fn fileno(&self) -> i32 {
        self.queue.event.as_raw_fd()
    }

    /// The descriptor that is readable when samples may be available: call `turn` then, and once at
    /// the beginning. None if the bus has a waiting thread.
    fn source_fileno(&self) -> PyResult<Option<i32>> {
        let Some(source) = &self.source else { return Ok(None) };
        let source = source.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(source.get("bus")?.as_fd().as_raw_fd()))
    }

    /// The tokens that were woken since the last call.
    fn drain(&self) -> Vec<u64> {
        // First the descriptor, then the list: a token that is added in between is either taken
        // here, or makes the descriptor readable again.
        let _ = rustix::io::read(&self.queue.event, &mut [0_u8; 8]);
        std::mem::take(&mut self.queue.woken().tokens)
    }

    /// The tokens of subscriptions that may have samples, and the seconds until the next call at
    /// the latest, if any.
    fn turn(&self) -> PyResult<(Vec<u64>, Option<f64>)> {
        let Some(source) = &self.source else { return Ok((self.drain(), None)) };
        let source = source.lock().unwrap_or_else(PoisonError::into_inner);
        let source = source.get("bus")?;
        self.queue.woken().polling = true;
        let due = source.turn();
        let mut woken = self.queue.woken();
        woken.polling = false;
        let left = due.map(|due| due.saturating_duration_since(Instant::now()).as_secs_f64());
        Ok((std::mem::take(&mut woken.tokens), left))
    }

    /// Releases the bus.
    fn close(&self, py: Python<'_>) {
        let Some(source) = &self.source else { return };
        let taken = source.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(taken));
    }
}
