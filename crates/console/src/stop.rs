//! Signals: the first SIGINT or SIGTERM requests an orderly end, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use crate::error::{CliError, CliResult};

/// How often a waiting command checks for a signal.
pub const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Whether a signal has requested the end.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Handles the signals.
    pub fn on_signals() -> CliResult<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: a second signal finds the flag set and ends the process at once.
            let taken = flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)));
            taken.map_err(|e| CliError::Failure(format!("cannot handle signal {signal}: {e}")))?;
        }
        Ok(Self(asked))
    }

    /// Whether the end was requested.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if the end was requested.
    pub fn check(&self) -> CliResult {
        if self.asked() { Err(CliError::Interrupted) } else { Ok(()) }
    }

    /// Resets the request and returns whether there was one, for programs that continue after an
    /// interrupted operation.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// SIGTERM alone, for a program that SIGINT does not end.
pub fn on_sigterm() -> CliResult<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    let taken = flag::register(SIGTERM, Arc::clone(&asked));
    taken.map_err(|e| CliError::Failure(format!("cannot handle signal {SIGTERM}: {e}")))?;
    Ok(asked)
}

/// A write beyond the limit of a file's size (`ulimit -f`) fails as one on a full disk does, with a
/// message; by default its signal ends the process.
pub(crate) fn survive_file_limits() -> CliResult {
    let taken = flag::register(SIGXFSZ, Arc::default());
    taken.map_err(|e| CliError::Failure(format!("cannot handle signal {SIGXFSZ}: {e}")))?;
    Ok(())
}

/// The end of a command that otherwise runs for ever: a given time, or a signal.
pub struct Until {
    end: Option<Instant>,
    timed: bool,
    stop: Stop,
}

impl Until {
    /// The time counts from now.
    pub fn new(time: Option<Duration>, stop: &Stop) -> Self {
        let end = time.and_then(|time| Instant::now().checked_add(time));
        Self { end, timed: time.is_some(), stop: stop.clone() }
    }

    /// Whether the end has come.
    pub fn is_over(&self) -> bool {
        self.stop.asked() || self.end.is_some_and(|end| end <= Instant::now())
    }

    /// Waits for the given time; returns whether the end came first.
    pub fn is_over_within(&self, pause: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let left = pause.saturating_sub(begun.elapsed());
            if self.is_over() || left.is_zero() {
                return self.is_over();
            }
            std::thread::sleep(left.min(self.left()));
        }
    }

    /// The longest wait until the next check.
    pub fn left(&self) -> Duration {
        self.end.map_or(STOP_POLL_INTERVAL, |end| {
            end.saturating_duration_since(Instant::now()).min(STOP_POLL_INTERVAL)
        })
    }

    /// The result: a signal before the given time is an interruption.
    pub fn result(&self) -> CliResult {
        if self.timed { self.stop.check() } else { Ok(()) }
    }
}
