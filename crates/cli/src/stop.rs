//! Signals: the first SIGINT or SIGTERM asks for a clean end, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{CliError, CliResult};

/// The longest that a waiting command goes without looking whether it should stop.
pub(crate) const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Whether a signal has asked this process to stop.
#[derive(Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes the signals over.
    pub(crate) fn on_signals() -> CliResult<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: a second signal finds the flag set and ends the process at once.
            let taken = flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)));
            taken.map_err(|e| CliError::Failure(format!("cannot take signal {signal}: {e}")))?;
        }
        Ok(Self(asked))
    }

    /// Whether the end was asked for.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error where the end was asked for.
    pub(crate) fn check(&self) -> CliResult {
        if self.asked() { Err(CliError::Interrupted) } else { Ok(()) }
    }

    /// Takes the wish back and says whether there was one: of a program that goes on when what it
    /// was doing has been interrupted.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// SIGTERM alone, for a program that SIGINT does not end.
pub(crate) fn on_sigterm() -> CliResult<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    let taken = flag::register(SIGTERM, Arc::clone(&asked));
    taken.map_err(|e| CliError::Failure(format!("cannot take signal {SIGTERM}: {e}")))?;
    Ok(asked)
}

/// How long a command goes on that has no end of its own: for the time that was given, until a
/// signal.
pub(crate) struct Until {
    end: Option<Instant>,
    timed: bool,
    stop: Stop,
}

impl Until {
    /// The time counts from now.
    pub(crate) fn new(time: Option<Duration>, stop: &Stop) -> Self {
        let end = time.and_then(|time| Instant::now().checked_add(time));
        Self { end, timed: time.is_some(), stop: stop.clone() }
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.asked() || self.end.is_some_and(|end| end <= Instant::now())
    }

    /// How long to wait before looking again, where nothing else is due before.
    pub(crate) fn left(&self) -> Duration {
        self.end.map_or(STOP_POLL_INTERVAL, |end| {
            end.saturating_duration_since(Instant::now()).min(STOP_POLL_INTERVAL)
        })
    }

    /// How it ended: a signal is an interruption where there was a time to come.
    pub(crate) fn result(&self) -> CliResult {
        if self.timed { self.stop.check() } else { Ok(()) }
    }
}
