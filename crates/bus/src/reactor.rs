//! Turns a bell's rings into wake-ups of tasks, for all asynchronous subscriptions of a bus. It
//! runs in a thread of its own, or in an event loop that watches the bell's descriptor.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::bell::{Bell, locked};
use crate::error::{TransportError, engine};

/// The thread's longest wait, which bounds the delay by a lost ring.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The waiting tasks, woken by the thread or by an event loop's turns.
pub(crate) struct Reactor {
    bell: Arc<dyn Bell>,
    tasks: Mutex<Tasks>,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Tasks {
    waiting: HashMap<u64, Task>,
    /// No task is due earlier.
    earliest: Option<Instant>,
}

struct Task {
    waker: Waker,
    due: Option<Instant>,
}

impl Reactor {
    /// Without a thread, to be driven by turns.
    fn new(bell: Arc<dyn Bell>) -> Arc<Self> {
        Arc::new(Self { bell, tasks: Mutex::default(), stopped: AtomicBool::new(false) })
    }

    pub(crate) fn start(bell: Arc<dyn Bell>, transport: &str) -> Result<Arc<Self>, TransportError> {
        let reactor = Self::new(bell);
        let running = Arc::clone(&reactor);
        std::thread::Builder::new()
            .name("helio-bridge".to_owned())
            .spawn(move || running.run())
            .map_err(|error| engine(transport, "start the waiting thread", error))?;
        Ok(reactor)
    }

    pub(crate) fn bell(&self) -> &Arc<dyn Bell> {
        &self.bell
    }

    /// Registers a task to be woken when its token rings, or when it is due. Call before arming the
    /// reader.
    pub(crate) fn register(&self, token: u64, waker: &Waker, due: Option<Instant>) {
        let mut tasks = locked(&self.tasks);
        let before = tasks.waiting.insert(token, Task { waker: waker.clone(), due });
        let sooner = due.filter(|due| tasks.earliest.is_none_or(|earliest| *due < earliest));
        tasks.earliest = sooner.or(tasks.earliest);
        drop(tasks);
        // Dropping a waker runs its executor's code: never under the lock.
        drop(before);
        if sooner.is_some() {
            self.bell.ring(None);
        }
    }

    /// Removes a dropped subscription's task.
    pub(crate) fn forget(&self, token: u64) {
        let gone = locked(&self.tasks).waiting.remove(&token);
        drop(gone);
    }

    /// Ends the thread, and wakes every task, which then finds the bus closed.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.bell.ring(None);
    }

    fn run(&self) {
        let mut ready = Vec::new();
        while !self.stopped.load(Ordering::Acquire) {
            ready.clear();
            self.bell.wait(Some(self.timeout()), &mut ready);
            self.wake(&ready);
        }
        self.wake_all();
    }

    fn wake_all(&self) {
        let tasks = std::mem::take(&mut *locked(&self.tasks));
        tasks.waiting.into_values().for_each(|task| task.waker.wake());
    }

    fn turn(&self) -> Option<Instant> {
        let mut ready = Vec::new();
        self.bell.listen(&mut ready);
        self.wake(&ready);
        if self.stopped.load(Ordering::Acquire) {
            self.wake_all();
        }
        locked(&self.tasks).earliest
    }

    fn timeout(&self) -> Duration {
        let earliest = locked(&self.tasks).earliest;
        let left = earliest.map(|due| due.saturating_duration_since(Instant::now()));
        left.unwrap_or(MAX_WAIT).min(MAX_WAIT)
    }

    fn wake(&self, ready: &[u64]) {
        let now = Instant::now();
        let mut tasks = locked(&self.tasks);
        let mut woken: Vec<Task> =
            ready.iter().filter_map(|token| tasks.waiting.remove(token)).collect();
        if tasks.earliest.is_some_and(|earliest| earliest <= now) {
            let over = |task: &Task| task.due.is_some_and(|due| due <= now);
            let due = tasks.waiting.extract_if(|_, task| over(task));
            woken.extend(due.map(|(_, task)| task));
            tasks.earliest = tasks.waiting.values().filter_map(|task| task.due).min();
        }
        drop(tasks);
        woken.into_iter().for_each(|task| task.waker.wake());
    }
}

/// Wakes the asynchronous subscriptions of a bus in the thread of a program's event loop. The loop
/// watches one descriptor for any number of subscriptions.
///
/// Without it, a thread of the bus does so, which costs a thread switch for each sample.
pub struct EventSource(Arc<Reactor>);

impl EventSource {
    /// `None` if the bell has no descriptor.
    pub(crate) fn new(bell: Arc<dyn Bell>) -> Option<(Self, Arc<Reactor>)> {
        bell.descriptor()?;
        let reactor = Reactor::new(bell);
        Some((Self(Arc::clone(&reactor)), reactor))
    }

    /// Wakes the tasks of ready subscriptions. Call it once at the beginning, then whenever the
    /// descriptor is readable, and at the returned time, if any.
    pub fn turn(&self) -> Option<Instant> {
        self.0.turn()
    }
}

impl AsFd for EventSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.descriptor().expect("it had one when the source was made, and keeps it")
    }
}

impl std::fmt::Debug for EventSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSource").finish_non_exhaustive()
    }
}
