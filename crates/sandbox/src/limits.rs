//! Limits of a filter, what a request used, and how often a worker may restart.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What a filter may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Anonymous memory of the worker in bytes: interpreter and libraries take about 20 MB of it.
    /// Batches are shared and do not count. The address space is limited to twice this and one
    /// largest batch more than the worker has when it is ready.
    pub memory_bytes: u64,
    /// Processor time of a request.
    pub cpu: Duration,
    /// Time of a request.
    pub time: Duration,
    /// Time until the worker is ready: the interpreter's start and its libraries.
    pub start: Duration,
    /// Restarts within [`restart_window`](Self::restart_window).
    pub restarts: usize,
    /// The time over which restarts are counted.
    pub restart_window: Duration,
}

impl Default for Limits {
    /// 256 MiB; 5 s of processor and 20 s of time a request, half of a visit's cadence; 60 s to
    /// start; 3 restarts in 10 minutes.
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            cpu: Duration::from_secs(5),
            time: Duration::from_secs(20),
            start: Duration::from_secs(60),
            restarts: 3,
            restart_window: Duration::from_secs(600),
        }
    }
}

/// What a request used, as the kernel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Processor time.
    pub cpu: Duration,
    /// Time from request to answer.
    pub time: Duration,
    /// Anonymous memory of the worker after the request, in bytes.
    pub memory_bytes: u64,
}

/// The restarts of the last window.
#[derive(Debug, Default)]
pub(crate) struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// Counts a restart at `now`; otherwise returns the time until one is allowed.
    pub(crate) fn take(&mut self, now: Instant, limits: &Limits) -> Result<(), Duration> {
        let age = |start: &Instant| now.saturating_duration_since(*start);
        while self.0.front().is_some_and(|oldest| age(oldest) >= limits.restart_window) {
            self.0.pop_front();
        }
        if self.0.len() >= limits.restarts {
            return Err(self.0.front().map_or(limits.restart_window, |oldest| {
                limits.restart_window.saturating_sub(age(oldest))
            }));
        }
        self.0.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_counted_over_a_window() {
        let window = Duration::from_secs(10);
        let limits = Limits { restarts: 2, restart_window: window, ..Limits::default() };
        let (mut restarts, start) = (Restarts::default(), Instant::now());
        let mut take = |s| restarts.take(start + Duration::from_secs(s), &limits);
        assert_eq!([take(0), take(4)], [Ok(()), Ok(())]);
        assert_eq!(take(7), Err(Duration::from_secs(3)));
        assert_eq!(take(10), Ok(()));
        assert_eq!(take(10), Err(Duration::from_secs(4)));
        let none = Limits { restarts: 0, ..limits };
        assert_eq!(Restarts::default().take(start, &none), Err(window));
    }
}
