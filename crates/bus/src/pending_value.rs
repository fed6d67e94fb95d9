//! A value that another thread supplies once, for a waiting thread or an awaiting task.

use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::bell::locked;

/// Callers read the value by a closure, which clones or takes it.
#[derive(Debug)]
pub(crate) struct PendingValue<T> {
    state: Mutex<State<T>>,
    completed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Default for PendingValue<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { value: None, waker: None }), completed: Condvar::new() }
    }
}

impl<T> PendingValue<T> {
    pub(crate) fn complete(&self, value: T) {
        let mut state = locked(&self.state);
        state.value = Some(value);
        let waker = state.waker.take();
        drop(state);
        self.completed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn try_read<R>(&self, read: impl FnOnce(&mut Option<T>) -> Option<R>) -> Option<R> {
        read(&mut locked(&self.state).value)
    }

    /// Reads the value, or has the task woken when it is complete.
    pub(crate) fn poll<R>(
        &self,
        context: &mut Context<'_>,
        read: impl FnOnce(&mut Option<T>) -> Option<R>,
    ) -> Poll<R> {
        let mut state = locked(&self.state);
        if let Some(value) = read(&mut state.value) {
            return Poll::Ready(value);
        }
        let before = state.waker.replace(context.waker().clone());
        // Dropping a waker runs its executor's code: never under the lock.
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Blocks until the value is complete; `None` after the timeout.
    pub(crate) fn wait<R>(
        &self,
        timeout: Option<Duration>,
        read: impl Fn(&mut Option<T>) -> Option<R>,
    ) -> Option<R> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = locked(&self.state);
        loop {
            if let Some(value) = read(&mut state.value) {
                return Some(value);
            }
            state = match until {
                None => self.completed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = self.completed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
