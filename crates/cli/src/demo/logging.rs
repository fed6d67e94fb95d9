//! Log records of the demo's processes, on the same bus.
//!
//! A process has one producer of log records, which ends with it. Its last message reports the
//! number of records; the demo's log reader compares it with the received ones.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helio_bus::{Bus, TopicName};
use helio_logging::{Audiences, Level, LogOptions, Logger, Logging, audience, log};
use serde::{Deserialize, Serialize};

use crate::error::CliResult;
use crate::service_error::ServiceResult;

/// The prefix of the log topics.
pub(crate) const PREFIX: &str = "log";
/// The timeout of the last records' acknowledgement.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);

static NIGHT: Mutex<Option<Night>> = Mutex::new(None);

struct Night {
    logging: Logging,
    logger: Logger,
    operator: Logger,
    producer: String,
    records: u64,
}

/// The log records of a process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Logged {
    /// The unique name of its producer.
    pub(crate) producer: String,
    pub(crate) records: u64,
}

fn night() -> MutexGuard<'static, Option<Night>> {
    NIGHT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins this process's log.
pub(crate) fn begin(bus: &Bus, name: &str) -> CliResult {
    let logging = Logging::start(bus.clone(), LogOptions::default()).or_cli()?;
    let logger = logging.logger(name);
    let operator = logger.to(&Audiences::of([audience::OPERATOR]));
    let producer = bus.producer().to_string();
    *night() = Some(Night { logging, logger, operator, producer, records: 0 });
    Ok(())
}

/// Logs a record; NOTICE and above address operators.
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
    // The reader reports missing records.
    let _ = night.logging.flush(FLUSH_TIMEOUT);
    Logged { producer: night.producer, records: night.records }
}

/// Whether a topic is one of a log.
pub(crate) fn is_log(topic: &TopicName) -> bool {
    topic.as_str().strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('/'))
}
