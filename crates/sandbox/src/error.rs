//! What keeps a filter from starting, and what ends one.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use crate::filter::MAX_TEXT_BYTES;

/// Why a filter did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The interpreter is missing, or cannot be run.
    #[error("{program} cannot be started: {source}; name an interpreter that is installed")]
    Spawn {
        /// The program that was to run.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The worker refused: a library or a guard is missing. In its own words.
    #[error("the worker refused to start: {0}")]
    Refused(String),
    /// A guard does not hold; no text was sent.
    #[error(
        "{guard} does not guard the worker ({found}); filters in Python need Linux 5.13 or newer \
         with seccomp and Landlock enabled"
    )]
    Unguarded {
        /// The guard.
        guard: &'static str,
        /// What was seen in its place.
        found: String,
    },
    /// The text is too long.
    #[error("the filter's text has {0} bytes, {MAX_TEXT_BYTES} at most")]
    TextSize(usize),
    /// The text does not compile, or its top level raised an exception; Python's report.
    #[error("the filter's text failed: {0}")]
    Text(String),
    /// The worker ended before it was ready.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Why a filter selected nothing.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// `select` raised an exception; Python's report, at most 4,096 bytes. The worker stays.
    #[error("the filter raised an exception: {0}")]
    Raised(String),
    /// `select` returned no mask of the batch's rows. The worker stays.
    #[error("the filter's result is wrong: {0}")]
    Wrong(String),
    /// The worker ended. The next request starts another.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The worker had ended, and no other one started.
    #[error("the filter did not restart: {0}")]
    Restart(#[from] StartError),
    /// The filter restarted too often and waits.
    #[error(
        "the filter is suspended for {} s, as its process ended {restarts} times; mend its text",
        .retry_after.as_secs_f64().ceil()
    )]
    Suspended {
        /// The restarts that were allowed.
        restarts: usize,
        /// The time until the next restart is allowed.
        retry_after: Duration,
    },
}

/// What ended a worker.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// Its anonymous memory (`RssAnon`, and what of it was swapped) exceeded the limit.
    #[error("the filter was ended: {bytes} bytes of memory, {limit_bytes} at most")]
    Memory {
        /// The bytes found.
        bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The request used too much processor time.
    #[error(
        "the filter was ended: {} ms of processor time for a request, {} at most",
        .used.as_millis(), .limit.as_millis()
    )]
    Cpu {
        /// The time used.
        used: Duration,
        /// The limit.
        limit: Duration,
    },
    /// The request took too long.
    #[error(
        "the filter was ended: {} ms for a request, {} at most",
        .used.as_millis(), .limit.as_millis()
    )]
    Time {
        /// The time taken.
        used: Duration,
        /// The limit.
        limit: Duration,
    },
    /// It exited, crashed, or closed its connection.
    #[error("the filter's process ended by itself ({0})")]
    Exited(ExitStatus),
    /// It sent what is no answer.
    #[error("the filter was ended: it sent {0} to the supervisor")]
    Garbage(String),
    /// The supervisor cannot observe it or talk to it.
    #[error("the filter was ended, as its process cannot be supervised: {0}")]
    Io(#[from] io::Error),
}
