//! A pool of threads for tasks that block on a disk, a broker or an application's code.
//!
//! Threads start on demand, up to the pool's limit, and end when they are idle. The queue has no
//! limit of its own: a caller bounds it by the number of tasks that it has pending at a time.
//! Tasks start in order and run side by side.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use crate::bell::locked;

/// How long an idle thread waits for work before it ends. This is longer than the pauses between a
/// script's commands, and releases the threads of a busy minute soon.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// A bounded pool of threads. Dropping it closes it.
///
/// ```
/// use std::{sync::mpsc::channel, task::Poll};
///
/// let (finished, notified) = channel();
/// let pool = helio_bus::ThreadPool::new("sums", 4, move || _ = finished.send(()));
/// let sum = pool.run(|| (1..=100).sum::<u32>());
/// notified.recv()?;
/// assert_eq!(sum.poll(), Poll::Ready(Some(5050)));
/// # Ok::<(), std::sync::mpsc::RecvError>(())
/// ```
pub struct ThreadPool(Arc<Shared>);

struct Shared {
    name: &'static str,
    max_threads: usize,
    finished: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
    /// A job was queued, or the pool was closed.
    work: Condvar,
    /// A thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// The outcome of a task that may still be running.
#[derive(Debug)]
pub struct PendingTask<T>(Receiver<T>);

impl<T> PendingTask<T> {
    /// The outcome, once; `None` if the task panicked, or was discarded when the pool was closed.
    pub fn poll(&self) -> Poll<Option<T>> {
        match self.0.try_recv() {
            Ok(outcome) => Poll::Ready(Some(outcome)),
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
            Err(TryRecvError::Empty) => Poll::Pending,
        }
    }
}

impl ThreadPool {
    /// A pool of at most `max_threads` threads of this name. `finished` is called after each task,
    /// also after one that panicked, in the task's thread.
    #[must_use]
    pub fn new(
        name: &'static str,
        max_threads: usize,
        finished: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (state, work, ended) = Default::default();
        let (max_threads, finished) = (max_threads.max(1), Box::new(finished));
        Self(Arc::new(Shared { name, max_threads, finished, state, work, ended }))
    }

    /// Runs a task as soon as a thread is free. If the operating system refuses the first thread,
    /// the task runs in the caller's. After closing, tasks are discarded.
    pub fn run<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> PendingTask<T> {
        let (sender, outcome) = channel();
        let job: Job = Box::new(move || _ = sender.send(task()));
        let mut state = locked(&self.0.state);
        if state.closed {
            drop(state);
            return PendingTask(outcome);
        }
        state.queue.push_back(job);
        if state.idle >= state.queue.len() || state.threads >= self.0.max_threads {
            self.0.work.notify_one();
        } else if self.add_thread(&mut state).is_err() && state.threads == 0 {
            let job = state.queue.pop_back();
            drop(state);
            job.into_iter().for_each(|job| self.0.execute(job));
        }
        PendingTask(outcome)
    }

    /// Runs a task that does not end by itself, on a thread beyond the limit. After closing, it is
    /// discarded.
    ///
    /// # Errors
    /// The operating system refused a thread; the task does not run.
    pub fn run_on_new_thread(&self, task: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = locked(&self.0.state);
        if !state.closed {
            self.add_thread(&mut state)?;
            state.queue.push_front(Box::new(task));
        }
        Ok(())
    }

    /// Starts a thread, which takes a job when the lock is released.
    fn add_thread(&self, state: &mut State) -> io::Result<()> {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name(self.0.name.to_owned());
        thread.spawn(move || shared.work())?;
        state.threads += 1;
        Ok(())
    }

    /// Discards queued tasks; running ones finish.
    pub fn close(&self) {
        let mut state = locked(&self.0.state);
        state.closed = true;
        let discarded = std::mem::take(&mut state.queue);
        drop(state);
        // Dropping a task runs the caller's code: never under the lock.
        drop(discarded);
        self.0.work.notify_all();
    }

    /// Waits until the threads of a closed pool have ended, at most for `timeout`; returns how many
    /// have not. Not to be called by a task of the pool.
    pub fn join(&self, timeout: Duration) -> usize {
        let running = |state: &mut State| state.threads > 0;
        let waited = self.0.ended.wait_timeout_while(locked(&self.0.state), timeout, running);
        waited.unwrap_or_else(PoisonError::into_inner).0.threads
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadPool").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            self.execute(job);
        }
    }

    fn execute(&self, job: Job) {
        // A panic drops the sender of the outcome.
        let _ = catch_unwind(AssertUnwindSafe(job));
        (self.finished)();
    }

    /// The next job; `None` ends the thread.
    fn next(&self) -> Option<Job> {
        let mut state = locked(&self.state);
        state.idle += 1;
        let idle = |state: &mut State| state.queue.is_empty() && !state.closed;
        let waited = self.work.wait_timeout_while(state, IDLE_TIMEOUT, idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.idle -= 1;
        let job = state.queue.pop_front();
        if job.is_none() {
            state.threads -= 1;
            self.ended.notify_all();
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn pool(max_threads: usize) -> (ThreadPool, Receiver<()>) {
        let (finished, notified) = channel();
        (ThreadPool::new("test", max_threads, move || _ = finished.send(())), notified)
    }

    fn outcome<T>(task: &PendingTask<T>) -> Option<T> {
        task.0.recv_timeout(LONG).ok()
    }

    /// A running task, which ends when its sender is dropped.
    fn blocked(pool: &ThreadPool) -> (Sender<()>, PendingTask<bool>) {
        let (open, gate) = channel();
        let (started, start) = channel();
        let task = pool.run(move || started.send(()).is_ok() && gate.recv().is_err());
        start.recv_timeout(LONG).unwrap();
        (open, task)
    }

    #[test]
    fn a_panic_is_contained_and_notified() {
        let (pool, notified) = pool(1);
        let failed = pool.run(|| assert_eq!(1, 2, "on purpose"));
        notified.recv_timeout(LONG).unwrap();
        assert_eq!(failed.poll(), Poll::Ready(None));
        assert_eq!(outcome(&pool.run(|| 7)), Some(7));
        notified.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn blocked_tasks_leave_the_other_threads_to_others() {
        let (pool, _notified) = pool(8);
        let gates: Vec<_> = (0..7).map(|_| blocked(&pool)).collect();
        let done: Vec<_> = (0..100).map(|n| pool.run(move || n)).collect();
        assert!(done.iter().map(outcome).eq((0..100).map(Some)));
        for (open, task) in gates {
            assert!(task.poll().is_pending());
            drop(open);
            assert_eq!(outcome(&task), Some(true));
        }
    }

    #[test]
    fn the_limit_holds_except_for_tasks_with_threads_of_their_own() {
        let (pool, _notified) = pool(2);
        let (started, starts) = channel();
        let (open, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let task = |number| {
            let (started, gate) = (started.clone(), Arc::clone(&gate));
            move || {
                started.send(number).unwrap();
                let _ = gate.lock().unwrap().recv();
            }
        };
        (0..4).for_each(|number| drop(pool.run(task(number))));
        let mut first = [starts.recv_timeout(LONG).unwrap(), starts.recv_timeout(LONG).unwrap()];
        first.sort_unstable();
        assert_eq!(first, [0, 1]);
        assert!(starts.try_recv().is_err());
        pool.run_on_new_thread(task(4)).unwrap();
        assert_eq!(starts.recv_timeout(LONG), Ok(4));
        drop(open);
        assert_eq!([(); 2].map(|()| starts.recv_timeout(LONG).unwrap()).iter().sum::<i32>(), 5);
    }

    #[test]
    fn closing_discards_what_is_queued_and_waits_for_what_runs() {
        let (pool, _notified) = pool(1);
        let (open, running) = blocked(&pool);
        let (started, starts) = channel();
        let first = pool.run(move || started.send(()));
        pool.close();
        assert_eq!(first.poll(), Poll::Ready(None));
        assert_eq!(pool.join(Duration::ZERO), 1);
        drop(open);
        assert_eq!(pool.join(LONG), 0);
        assert_eq!(outcome(&running), Some(true));
        assert_eq!(pool.run(|| ()).poll(), Poll::Ready(None));
        assert!(starts.try_recv().is_err());
    }
}
