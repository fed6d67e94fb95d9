//! Syslog: reads messages of RFC 5424 and RFC 3164, writes RFC 5424; frames of a TCP stream (RFC
//! 6587).
//!
//! Constraints. Reading gives a record or an error with the reason. No part of a message is dropped
//! silently; bytes that are not UTF-8 are kept beside the text. There is no clock: the caller
//! supplies the time of arrival, and the zone of senders that give none.
//!
//! Format: `docs/logging.md`, "Syslog". APP-NAME is the logger, HOSTNAME the host, PROCID the
//! process, MSGID the log id. A parameter of structured data is the data pair `SDID.param`.
//!
//! Operation. A [`Framer`] splits a stream into messages; a datagram is one message.
//! [`read`](fn@read) converts a message to a record, [`write`](fn@write) a record to a message.
//!
//! The crate `syslog_loose` (0.23) is not used: it omits malformed elements of structured data,
//! turns `\n` in them into a line break, reads the process `007` as 7, and trims messages.

mod frame;
mod parse;
mod write;

use helio_core::Tai;
use thiserror::Error;

pub use frame::{FrameError, Framer};
pub use parse::read;
pub use write::write;

/// The longest message that is read, in bytes: the longest datagram, and eight times the size that
/// receivers should accept (RFC 5425, section 4.3.1).
pub const MAX_MESSAGE_BYTES: usize = 65_535;

/// The data pair with a message's facility.
const FACILITY: &str = "syslog.facility";
/// The data pair with the bytes of a message that is not UTF-8.
const RAW: &str = "syslog.raw";
/// The facilities by number (RFC 5424, table 1), with the usual names.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// The circumstances of a message's arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The time of arrival: the record's observed time, and its time if the message has none. A
    /// time without a year gets the year closest to it.
    pub now: Tai,
    /// The seconds that the sender's clock is ahead of UTC, for messages without a zone.
    pub offset_s: i32,
}

/// An error in a message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SyslogError {
    /// The message is too long.
    #[error("the message has {0} bytes, the limit is {MAX_MESSAGE_BYTES}")]
    TooLarge(usize),
    /// The message does not begin with its priority.
    #[error("the message {0} does not begin with a priority from <0> to <191>")]
    Priority(String),
    /// A field of RFC 5424's header is missing or malformed.
    #[error("the message {message} has no right {field} (RFC 5424)")]
    Header {
        /// The field's name in the RFC.
        field: &'static str,
        /// The beginning of the message.
        message: String,
    },
}

#[cfg(test)]
mod tests;
