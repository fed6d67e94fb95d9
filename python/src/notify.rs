//! From wakers to an event loop: one file descriptor a bus, however many tasks wait.
//!
//! A waker is a token. What is woken puts its token in a list and, if the list was empty, makes the
//! descriptor readable; the loop's callback drains the list. So many wake-ups cost one system call.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

#[derive(Debug)]
struct Shared {
    event: OwnedFd,
    woken: Mutex<Vec<u64>>,
}

/// The event loop's end of all the wakers of one bus.
#[pyclass(frozen, module = "heliograph._heliograph", name = "Notifier")]
#[derive(Debug)]
pub(crate) struct Notifier(Arc<Shared>);

struct Token {
    token: u64,
    shared: Arc<Shared>,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut woken = self.shared.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let first = woken.is_empty();
        woken.push(self.token);
        drop(woken);
        if first {
            // It can only fail where the counter is full, and then the loop is woken anyway.
            let _ = rustix::io::write(&self.shared.event, &1_u64.to_ne_bytes());
        }
    }
}

impl Notifier {
    /// A waker that reports `token`.
    pub(crate) fn waker(&self, token: u64) -> Waker {
        Arc::new(Token { token, shared: Arc::clone(&self.0) }).into()
    }
}

#[pymethods]
impl Notifier {
    #[new]
    fn new() -> PyResult<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(Self(Arc::new(Shared { event, woken: Mutex::default() })))
    }

    /// The descriptor that is readable while something is woken.
    fn fileno(&self) -> i32 {
        self.0.event.as_raw_fd()
    }

    /// The tokens that were woken since the last call.
    fn drain(&self) -> Vec<u64> {
        // First the descriptor, then the list: what is woken in between makes it readable again
        // only if the list is empty by then, and otherwise is in what is taken here.
        let _ = rustix::io::read(&self.0.event, &mut [0_u8; 8]);
        std::mem::take(&mut *self.0.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports a token from Python.
    fn wake(&self, token: u64) {
        self.waker(token).wake();
    }
}
