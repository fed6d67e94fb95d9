//! A signal to a background thread: work is available, or the thread must end.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A flag with a condition variable, for one background thread.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    wanted: bool,
    over: bool,
}

impl Signal {
    pub(crate) fn want(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).wanted = true;
        self.changed.notify_one();
    }

    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.changed.notify_all();
    }

    /// Waits for work, at most `limit`. Returns `None` once the thread must end, else whether work
    /// was requested.
    pub(crate) fn wait(&self, limit: Duration) -> Option<bool> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, limit, |s| !s.wanted && !s.over);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let wanted = std::mem::take(&mut state.wanted);
        (!state.over).then_some(wanted)
    }
}
