//! Syslog: messages in, as RFC 5424 has them and as RFC 3164 found them, and RFC 5424 out; frames
//! of a TCP stream (RFC 6587).
//!
//! Constraints. What is read is a record or an error that says why; nothing of a message is dropped
//! unsaid, and what is no UTF-8 is kept as bytes beside its text. There is no clock: the time of
//! arrival is given, and so is the zone of senders that tell none.
//!
//! Format: `docs/logging.md`, "Syslog". APP-NAME is the logger, HOSTNAME the host, PROCID the
//! process, MSGID the log id; a parameter of structured data is the data pair `SDID.param`.
//!
//! Operation. A [`Framer`] cuts a stream into messages; a datagram is one already.
//! [`read`](fn@read) makes a record of one, [`write`](fn@write) a message of a record.
//!
//! The crate `syslog_loose` (0.23) is not used, as it leaves out malformed elements of structured
//! data, makes a line break of `\n` in them, takes the process `007` for 7, and trims messages.

mod frame;
mod parse;
mod write;

use helio_core::Tai;
use thiserror::Error;

pub use frame::{FrameError, Framer};
pub use parse::read;
pub use write::write;

/// The longest message that is read, in bytes: as long as a datagram can be, and eight times what
/// receivers should take (RFC 5425, section 4.3.1).
pub const MAX_MESSAGE_BYTES: usize = 65_535;

/// The data pair that has a message's facility.
const FACILITY: &str = "syslog.facility";
/// The data pair that has a message's bytes where they are no UTF-8.
const RAW: &str = "syslog.raw";
/// The facilities by their numbers (RFC 5424, table 1), by the names that syslog programs have.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// What is known of a message besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When it came: the record's observed time, and its time where the message has none. The year
    /// of a time without one is that which is next to it.
    pub now: Tai,
    /// How many seconds the sender's clock is ahead of UTC, where it does not say so itself.
    pub offset_s: i32,
}

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SyslogError {
    /// It is too long.
    #[error("the message has {0} bytes, the limit is {MAX_MESSAGE_BYTES}")]
    TooLarge(usize),
    /// It does not begin with its priority.
    #[error("the message {0} does not begin with a priority from <0> to <191>")]
    Priority(String),
    /// A field of RFC 5424's header is missing or malformed.
    #[error("the message {message} has no right {field} (RFC 5424)")]
    Header {
        /// The field's name in the RFC.
        field: &'static str,
        /// How the message begins.
        message: String,
    },
}

#[cfg(test)]
mod tests;
