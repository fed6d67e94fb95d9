//! Signals: the first SIGINT or SIGTERM asks for a clean end, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{CliError, CliResult};

/// The longest that a waiting command goes without looking whether it should stop.
pub(crate) const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

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
}
