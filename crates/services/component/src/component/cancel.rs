//! A flag that ends waits: the cancellation of a command, and the end of the periodic tasks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use helio_bus::transport::locked;

/// A flag that is set once and wakes the threads that wait for it.
#[derive(Debug, Default)]
pub(super) struct Cancel {
    set: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Cancel {
    pub(super) fn set(&self) {
        let lock = locked(&self.lock);
        self.set.store(true, Ordering::Release);
        drop(lock);
        self.changed.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Waits until the flag is set, at most for `time`; returns whether it is set.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let lock = locked(&self.lock);
        let unset = |(): &mut ()| !self.is_set();
        drop(self.changed.wait_timeout_while(lock, time, unset));
        self.is_set()
    }
}
