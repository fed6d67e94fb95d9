//! Threads for calls that wait for a bus: opening, reading positions, querying liveliness, closing.
//!
//! The bridge's own thread waits only for samples and acknowledgements, so that one topic's broker
//! blocks no other topic and no lease. A pool starts a thread whenever none is idle, up to a limit,
//! so that blocked calls delay no others.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};

use helio_bus::transport::locked;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs from one queue.
pub(crate) struct Pool {
    queue: Arc<Queue>,
    waker: Waker,
    most: usize,
    name: &'static str,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    more: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
    ended: bool,
}

/// A pending job.
pub(crate) struct Running<T>(Receiver<T>);

impl Pool {
    /// Starts a pool of up to `most` threads. Each finished job wakes `waker`.
    pub(crate) fn start(most: usize, name: &'static str, waker: &Waker) -> io::Result<Self> {
        let pool = Self { queue: Arc::default(), waker: waker.clone(), most, name };
        // Fails here if the system refuses threads.
        locked(&pool.queue.jobs).threads = 1;
        pool.spawn()?;
        Ok(pool)
    }

    fn spawn(&self) -> io::Result<()> {
        let queue = Arc::clone(&self.queue);
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        thread.spawn(move || queue.work()).map(drop)
    }

    /// Queues a job for the next free thread.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Running<T> {
        let (told, done) = channel();
        let waker = self.waker.clone();
        let job: Job = Box::new(move || {
            match catch_unwind(AssertUnwindSafe(work)) {
                // If the result is no longer wanted, what was opened is closed here.
                Ok(done) => _ = told.send(done),
                // Dropping the sender reports the panic; the thread continues with other jobs.
                Err(_) => drop(told),
            }
            waker.wake();
        });
        let mut jobs = locked(&self.queue.jobs);
        jobs.waiting.push_back(job);
        let one_more = jobs.waiting.len() > jobs.idle && jobs.threads < self.most;
        jobs.threads += usize::from(one_more);
        drop(jobs);
        self.queue.more.notify_one();
        if one_more && self.spawn().is_err() {
            // The existing threads do the job.
            locked(&self.queue.jobs).threads -= 1;
        }
        Running(done)
    }
}

impl Drop for Pool {
    /// Queued jobs are dropped; running ones finish by themselves.
    fn drop(&mut self) {
        let mut jobs = locked(&self.queue.jobs);
        jobs.ended = true;
        let waiting = std::mem::take(&mut jobs.waiting);
        drop(jobs);
        drop(waiting);
        self.queue.more.notify_all();
    }
}

impl Queue {
    fn work(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = locked(&self.jobs);
        jobs.idle += 1;
        let idle = |jobs: &mut Jobs| jobs.waiting.is_empty() && !jobs.ended;
        let waited = self.more.wait_while(jobs, idle);
        let mut jobs = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        jobs.idle -= 1;
        jobs.waiting.pop_front()
    }
}

impl<T> Running<T> {
    /// The result; none if the job panicked or was dropped.
    pub(crate) fn poll(&self) -> Poll<Option<T>> {
        match self.0.try_recv() {
            Ok(done) => Poll::Ready(Some(done)),
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
            Err(TryRecvError::Empty) => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_job_that_panics_takes_no_thread_with_it() {
        let pool = Pool::start(1, "test", Waker::noop()).unwrap();
        let failed = pool.run(|| assert_eq!(1, 2, "on purpose"));
        assert_eq!(pool.run(|| 7).0.recv_timeout(Duration::from_secs(60)), Ok(7));
        assert_eq!(failed.poll(), Poll::Ready(None));
    }

    #[test]
    fn those_that_wait_for_ever_keep_no_thread_from_others() {
        let pool = Pool::start(8, "test", Waker::noop()).unwrap();
        let gates: Vec<_> = (0..7)
            .map(|_| {
                let (open, gate) = channel::<()>();
                (open, pool.run(move || gate.recv().is_err()))
            })
            .collect();
        assert_eq!(pool.run(|| 7).0.recv_timeout(Duration::from_secs(60)), Ok(7));
        for (open, held) in gates {
            assert!(held.poll().is_pending());
            drop(open);
            assert_eq!(held.0.recv_timeout(Duration::from_secs(60)), Ok(true));
        }
    }

    #[test]
    fn jobs_run_beside_each_other_and_in_turn() {
        let pool = Pool::start(2, "test", Waker::noop()).unwrap();
        let (open, gate) = channel::<()>();
        let held = pool.run(move || gate.recv_timeout(Duration::from_secs(60)).is_ok());
        let done: Vec<_> = (0..100).map(|n| pool.run(move || n)).collect();
        for (n, job) in done.iter().enumerate() {
            assert_eq!(job.0.recv_timeout(Duration::from_secs(60)), Ok(n));
        }
        assert!(held.poll().is_pending(), "it holds up nobody");
        open.send(()).unwrap();
        assert_eq!(held.0.recv_timeout(Duration::from_secs(60)), Ok(true));
    }
}
