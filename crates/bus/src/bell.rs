//! Bells: wake-up primitives, one per waiting thread. Writers ring the bells of waiting readers.
//!
//! A reader without a pending item is *armed* with a bell and a token. The next item rings the
//! bell, and the wait returns the tokens of readers that may have items. A ring before the wait
//! ends the wait at once, so none is missed. Rings may be spurious: poll again after each wait.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A wake-up primitive for a thread that waits for any number of readers of one transport.
pub trait Bell: Send + Sync + 'static {
    /// Waits for a ring, at most for `timeout` (`None`: no limit), and adds the tokens of readers
    /// that may have items to `ready`, each once.
    fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>);
    /// Waits as [`Bell::wait`] does, for a thread with one reader, which it polls afterwards.
    fn sleep(&self, timeout: Option<Duration>) {
        self.wait(timeout, &mut Vec::new());
    }
    /// Rings from this process; with a token, as if that reader had an item.
    fn ring(&self, token: Option<u64>);
    /// For event loops: a descriptor that becomes readable with the first ring after each
    /// [`Bell::listen`]. `None` if only a thread can wait.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Does what [`Bell::wait`] does, without waiting. The next ring makes the descriptor readable.
    fn listen(&self, ready: &mut Vec<u64>) {
        self.wait(Some(Duration::ZERO), ready);
    }
    /// For downcasts by the transport that created it.
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
    /// A bell without a ring.
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

/// The armed readers of a transport in this process's memory, each once.
#[derive(Default)]
pub struct Waiters(HashMap<(usize, u64), Arc<dyn Bell>>);

impl Waiters {
    /// Adds an armed reader.
    pub fn add(&mut self, bell: &Arc<dyn Bell>, token: u64) {
        self.0.entry((address(bell), token)).or_insert_with(|| Arc::clone(bell));
    }

    /// Removes a reader.
    pub fn remove(&mut self, bell: &Arc<dyn Bell>, token: u64) {
        self.0.remove(&(address(bell), token));
    }

    /// Removes all readers, to be rung outside the lock.
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

/// Acquires a lock, also after a panic of its holder: the state behind our locks is consistent
/// between statements.
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
