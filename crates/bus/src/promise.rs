//! A value that comes later, once: from any thread, to a thread or a task.

use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::bell::locked;

#[derive(Debug)]
pub(crate) struct Promise<T> {
    state: Mutex<State<T>>,
    kept: Condvar,
}

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Default for Promise<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { value: None, waker: None }), kept: Condvar::new() }
    }
}

impl<T> Promise<T> {
    pub(crate) fn keep(&self, value: T) {
        let mut state = locked(&self.state);
        state.value = Some(value);
        let waker = state.waker.take();
        drop(state);
        self.kept.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Looks at the value where it has come.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Option<T>) -> Option<R>) -> Option<R> {
        look(&mut locked(&self.state).value)
    }

    /// The same, and has the task woken when it comes.
    pub(crate) fn poll<R>(
        &self,
        context: &mut Context<'_>,
        look: impl FnOnce(&mut Option<T>) -> Option<R>,
    ) -> Poll<R> {
        let mut state = locked(&self.state);
        if let Some(seen) = look(&mut state.value) {
            return Poll::Ready(seen);
        }
        let before = state.waker.replace(context.waker().clone());
        // Wakers of others run others' code: never under the lock.
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// The same, and blocks until it has come; `None` where the time is over.
    pub(crate) fn wait<R>(
        &self,
        timeout: Option<Duration>,
        look: impl Fn(&mut Option<T>) -> Option<R>,
    ) -> Option<R> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = locked(&self.state);
        loop {
            if let Some(seen) = look(&mut state.value) {
                return Some(seen);
            }
            state = match until {
                None => self.kept.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = self.kept.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
