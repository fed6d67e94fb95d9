//! Threads for tasks that wait for the disk or for other sessions, so that no topic delays the
//! receipts of the others.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use helio_bus::transport::locked;
use helio_bus::{Bell, TransportError};

use crate::error::engine;

/// The result of a task; disconnected if the task panicked.
pub(super) type Task<T> = Receiver<T>;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads.
pub(super) struct WorkerPool {
    queue: Arc<TaskQueue>,
    bell: Arc<dyn Bell>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct TaskQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    over: bool,
}

impl WorkerPool {
    /// Starts `count` threads. The bell rings after each task.
    pub(super) fn start(bell: &Arc<dyn Bell>, count: usize) -> Result<Arc<Self>, TransportError> {
        let queue = Arc::<TaskQueue>::default();
        let (threads, bell) = (Mutex::default(), Arc::clone(bell));
        let this = Arc::new(Self { queue, bell, threads });
        for _ in 0..count {
            let queue = Arc::clone(&this.queue);
            let thread = std::thread::Builder::new().name("helio-workers".to_owned());
            let thread = thread.spawn(move || while queue.next().map(run).is_some() {});
            // Dropping the pool ends the threads that have started.
            let thread = thread.map_err(|error| engine("start a thread", error))?;
            locked(&this.threads).push(thread);
        }
        Ok(this)
    }

    /// Queues a task.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Task<T> {
        let (sender, outcome) = mpsc::channel();
        let bell = Arc::clone(&self.bell);
        let job = move || {
            // The receiver may have been dropped.
            let _ = sender.send(job());
            drop(sender);
            bell.ring(None);
        };
        locked(&self.queue.state).jobs.push_back(Box::new(job));
        self.queue.changed.notify_one();
        outcome
    }

    /// Finishes the running tasks and drops the queued ones. No task may call it.
    pub(super) fn end(&self) {
        self.queue.end();
        for thread in locked(&self.threads).drain(..) {
            // Panics of tasks are caught.
            let _ = thread.join();
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.queue.end();
    }
}

impl TaskQueue {
    /// The next task; `None` at the end.
    fn next(&self) -> Option<Job> {
        let waits = |state: &mut QueueState| state.jobs.is_empty() && !state.over;
        let state = self.changed.wait_while(locked(&self.state), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.over { None } else { state.jobs.pop_front() }
    }

    fn end(&self) {
        let mut state = locked(&self.state);
        state.over = true;
        let left = std::mem::take(&mut state.jobs);
        drop(state);
        drop(left);
        self.changed.notify_all();
    }
}

fn run(job: Job) {
    // The receiver is disconnected, and reports it.
    let _ = catch_unwind(AssertUnwindSafe(job));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use helio_bus::LocalBell;
    use std::time::Duration;

    const THREADS: usize = 24;

    #[test]
    fn one_that_waits_does_not_hold_up_the_others_and_one_that_panics_ends_alone() {
        const TEST_TIMEOUT: Duration = Duration::from_secs(60);
        let bell: Arc<dyn Bell> = LocalBell::new();
        let workers = WorkerPool::start(&bell, THREADS).unwrap();
        let (release, released) = mpsc::channel::<()>();
        let waits = workers.run(move || released.recv().is_ok());
        let panics: Vec<_> = (0..THREADS).map(|_| workers.run(|| panic!("wanted"))).collect();
        for panicked in panics {
            let outcome: Result<(), _> = panicked.recv_timeout(TEST_TIMEOUT);
            assert_eq!(outcome, Err(mpsc::RecvTimeoutError::Disconnected));
        }
        assert_eq!(workers.run(|| 7).recv_timeout(TEST_TIMEOUT), Ok(7));
        assert!(waits.try_recv().is_err());
        release.send(()).unwrap();
        assert_eq!(waits.recv_timeout(TEST_TIMEOUT), Ok(true));
        bell.wait(Some(TEST_TIMEOUT), &mut Vec::new());
        workers.end();
        assert!(workers.run(|| ()).try_recv().is_err(), "nobody does it any more");
    }
}
