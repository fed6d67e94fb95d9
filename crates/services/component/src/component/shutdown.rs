//! The end of a component: any thread requests it, and the command thread carries it out.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use helio_bus::WaitSetWaker;

use super::cancel::Cancel;

/// The progress of a component's end.
#[derive(Default)]
pub(super) struct Shutdown {
    requested: AtomicBool,
    /// Wakes the command thread.
    waker: OnceLock<WaitSetWaker>,
    /// Ends the periodic tasks.
    pub ended: Cancel,
}

impl Shutdown {
    /// Sets the waker of the command thread.
    pub(super) fn set_waker(&self, waker: WaitSetWaker) {
        self.waker.get_or_init(|| waker);
    }

    /// Requests the end and returns at once.
    pub(super) fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Wakes the command thread.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}
