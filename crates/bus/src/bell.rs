//! Waiting: one bell a waiting thread, rung by whoever has something for one of its readers.
//!
//! A reader that has nothing is *armed* with a bell and a token. What comes later rings the bell,
//! and the thread learns which tokens may have something. Rings are remembered, so nothing is
//! missed between the look and the wait; they may be spurious, so whoever wakes looks again.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a thread waits on for any number of readers of one transport.
pub trait Bell: Send + Sync + 'static {
    /// Waits until it rings or `timeout` is over (`None`: no limit), and adds the tokens of the
    /// readers that may have something to `ready`, each once.
    fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>);
    /// Waits as [`Bell::wait`] does, for a thread that has one reader and looks for itself.
    fn sleep(&self, timeout: Option<Duration>) {
        self.wait(timeout, &mut Vec::new());
    }
    /// Rings from this process; with a token, as if that reader had something.
    fn ring(&self, token: Option<u64>);
    /// For event loops: a descriptor that becomes readable with the first ring after each
    /// [`Bell::listen`]. `None` where a thread has to wait.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// What [`Bell::wait`] does, without waiting: from now on the next ring makes the descriptor
    /// readable.
    fn listen(&self, ready: &mut Vec<u64>) {
        self.wait(Some(Duration::ZERO), ready);
    }
    /// For the transport that made it.
    fn as_any(&self) -> &dyn Any;
}

/// The bell of transports whose samples arrive in this process's own memory.
#[derive(Debug, Default)]
pub struct LocalBell {
    state: Mutex<RingState>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct RingState {
    rung: bool,
    tokens: HashSet<u64>,
}

impl LocalBell {
    /// A bell that nobody has rung yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }
}

impl Bell for LocalBell {
    fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = locked(&self.state);
        while !state.rung {
            state = match until {
                None => self.rung.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.rung.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.rung = false;
        ready.extend(state.tokens.drain());
    }

    fn ring(&self, token: Option<u64>) {
        let mut state = locked(&self.state);
        state.tokens.extend(token);
        if !std::mem::replace(&mut state.rung, true) {
            self.rung.notify_one();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Readers that were armed, each once: what transports in this process's memory keep beside their
/// samples.
#[derive(Default)]
pub struct Waiters(HashMap<(usize, u64), Arc<dyn Bell>>);

impl Waiters {
    /// Adds an armed reader.
    pub fn add(&mut self, bell: &Arc<dyn Bell>, token: u64) {
        self.0.entry((address(bell), token)).or_insert_with(|| Arc::clone(bell));
    }

    /// Takes a reader out that is gone or waits elsewhere.
    pub fn remove(&mut self, bell: &Arc<dyn Bell>, token: u64) {
        self.0.remove(&(address(bell), token));
    }

    /// Takes all out, to be rung outside the lock.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Rings for every reader.
    pub fn ring(self) {
        self.0.into_iter().for_each(|((_, token), bell)| bell.ring(Some(token)));
    }
}

impl std::fmt::Debug for Waiters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiters({})", self.0.len())
    }
}

fn address(bell: &Arc<dyn Bell>) -> usize {
    Arc::as_ptr(bell).cast::<()>() as usize
}

/// Takes a lock whose holder may have panicked: the state behind our locks is whole between
/// statements.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_missed() {
        let bell = LocalBell::new();
        bell.ring(Some(3));
        bell.ring(Some(3));
        bell.ring(None);
        let mut ready = Vec::new();
        bell.wait(None, &mut ready);
        assert_eq!(ready, [3]);
        bell.wait(Some(Duration::ZERO), &mut ready);
        assert_eq!(ready, [3]);
    }

    #[test]
    fn a_waiter_is_woken_by_another_thread() {
        let bell = LocalBell::new();
        let other = Arc::clone(&bell);
        let ringer = std::thread::spawn(move || other.ring(Some(1)));
        let mut ready = Vec::new();
        bell.wait(None, &mut ready);
        assert_eq!(ready, [1]);
        ringer.join().unwrap();
    }
}
