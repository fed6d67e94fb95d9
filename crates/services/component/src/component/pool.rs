//! Threads that run handlers.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use helio_bus::transport::locked;

/// How long a thread waits for work before it ends: longer than the pauses between a script's
/// commands, short enough to release the threads of a busy minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A job.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// A bounded number of threads, started on demand.
///
/// The protocol bounds the waiting jobs: each lane of commands has one in flight, a concurrent one
/// [`MAX_CONCURRENT`](crate::protocol::controller::MAX_CONCURRENT).
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    name: String,
    most: usize,
    jobs: Mutex<Jobs>,
    more: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    /// A pool of at most `most` threads.
    pub(super) fn new(name: &str, most: usize) -> Self {
        let (name, jobs, more) = (name.to_owned(), Mutex::default(), Condvar::new());
        Self(Arc::new(Inner { name, most: most.max(1), jobs, more }))
    }

    /// Runs a job as soon as a thread is free, or on the caller's thread if no thread can be
    /// started. After closing, jobs are dropped.
    pub(super) fn run(&self, job: Job) {
        let mut jobs = locked(&self.0.jobs);
        if jobs.closed {
            return;
        }
        jobs.waiting.push_back(job);
        if jobs.idle >= jobs.waiting.len() || jobs.threads == self.0.most {
            self.0.more.notify_one();
            return;
        }
        // Without a new thread, the existing ones take it in turn.
        if self.add_thread(&mut jobs).is_err() && jobs.threads == 0 {
            let job = jobs.waiting.pop_back();
            drop(jobs);
            job.into_iter().for_each(|job| job());
        }
    }

    /// Runs a job that does not end by itself on an additional thread. After closing, it is
    /// dropped.
    ///
    /// # Errors
    /// The operating system refused a thread; the job does not run.
    pub(super) fn begin(&self, job: Job) -> io::Result<()> {
        let mut jobs = locked(&self.0.jobs);
        if !jobs.closed {
            self.add_thread(&mut jobs)?;
            jobs.waiting.push_back(job);
        }
        Ok(())
    }

    /// Starts a thread; it takes work when the lock is free.
    fn add_thread(&self, jobs: &mut Jobs) -> io::Result<()> {
        let inner = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name(self.0.name.clone());
        thread.spawn(move || inner.work())?;
        jobs.threads += 1;
        Ok(())
    }

    /// Ends the threads when their current jobs are done.
    pub(super) fn close(&self) {
        let mut jobs = locked(&self.0.jobs);
        jobs.closed = true;
        jobs.waiting.clear();
        self.0.more.notify_all();
    }

    /// Waits until all threads have ended, at most for `timeout`; returns how many have not.
    pub(super) fn join(&self, timeout: Duration) -> usize {
        let jobs = locked(&self.0.jobs);
        let busy = |jobs: &mut Jobs| jobs.threads > 0;
        let waited = self.0.more.wait_timeout_while(jobs, timeout, busy);
        waited.unwrap_or_else(PoisonError::into_inner).0.threads
    }
}

impl Inner {
    fn work(&self) {
        let mut jobs = locked(&self.jobs);
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                drop(jobs);
                job();
                jobs = locked(&self.jobs);
            } else if jobs.closed {
                jobs.threads -= 1;
                self.more.notify_all();
                return;
            } else {
                jobs.idle += 1;
                let waited = self.more.wait_timeout(jobs, IDLE_TIMEOUT);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                jobs = woken;
                jobs.idle -= 1;
                if timeout.timed_out() && jobs.waiting.is_empty() && !jobs.closed {
                    jobs.threads -= 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_run_side_by_side_up_to_the_bound() {
        let pool = Pool::new("test", 2);
        let (said, heard) = channel();
        let (go, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for number in 0..4 {
            let (said, gate) = (said.clone(), Arc::clone(&gate));
            pool.run(Box::new(move || {
                said.send(number).unwrap();
                gate.lock().unwrap().recv().unwrap();
            }));
        }
        let mut first = [heard.recv().unwrap(), heard.recv().unwrap()];
        first.sort_unstable();
        assert_eq!(first, [0, 1]);
        assert!(heard.try_recv().is_err());
        (0..4).for_each(|_| go.send(()).unwrap());
        assert_eq!([heard.recv().unwrap(), heard.recv().unwrap()].iter().sum::<i32>(), 5);
        pool.close();
        assert_eq!(pool.join(Duration::from_secs(60)), 0);
        pool.run(Box::new(|| panic!("it is closed")));
    }
}
