//! The night's log: what the players have to say to people, on the same bus.
//!
//! A process has one producer of log records, which ends with it. What it logged is part of its
//! last word; a reader of the demo's own holds that against what came.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helio_bus::{Bus, TopicName};
use helio_logging::{Audiences, Level, LogOptions, Logger, Logging, audience, log};
use serde::{Deserialize, Serialize};

use crate::error::CliResult;

/// What the names of its topics begin with.
pub(crate) const PREFIX: &str = "log";
/// How long the last records may take to be acknowledged: what has not come then is unaccounted.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);

static NIGHT: Mutex<Option<Night>> = Mutex::new(None);

struct Night {
    logging: Logging,
    logger: Logger,
    operator: Logger,
    producer: String,
    records: u64,
}

/// What a process has logged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Logged {
    /// The name of its producer on the bus, which no other process has.
    pub(crate) producer: String,
    pub(crate) records: u64,
}

fn night() -> MutexGuard<'static, Option<Night>> {
    NIGHT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins this process's log.
pub(crate) fn begin(bus: &Bus, name: &str) -> CliResult {
    let logging = Logging::start(bus.clone(), LogOptions::default())?;
    let logger = logging.logger(name);
    let operator = logger.to(&Audiences::of([audience::OPERATOR]));
    let producer = bus.producer().to_string();
    *night() = Some(Night { logging, logger, operator, producer, records: 0 });
    Ok(())
}

/// Logs a record; from NOTICE on it is for operators.
pub(crate) fn note(level: Level, text: &str) {
    if let Some(night) = night().as_mut() {
        let logger = if level >= Level::NOTICE { &night.operator } else { &night.logger };
        log!(*logger, level, "{}", text);
        night.records += 1;
    }
}

/// Ends this process's log once all of it is acknowledged.
pub(crate) fn end() -> Logged {
    let Some(night) = night().take() else { return Logged::default() };
    // What is missing then is missed by the reader.
    let _ = night.logging.flush(FLUSH_TIMEOUT);
    Logged { producer: night.producer, records: night.records }
}

/// Whether a topic is one of a log.
pub(crate) fn is_log(topic: &TopicName) -> bool {
    topic.as_str().strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('/'))
}
