//! A producer without a bus: it sends its records to a service by syslog over TCP.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use helio_bus::{Clock as _, SystemClock};
use helio_logging::Level;

use super::client::DUE_PARAMETER;
use super::messages::{Content, ProducerTask};
use super::producer::Sink;
use crate::error::{CliError, CliResult};

/// The largest number of bytes that are gathered before they are sent.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// Facility local0 (RFC 5424, table 1), in a priority.
const LOCAL0: u8 = 16 * 8;
/// Severities of RFC 5424, table 2.
const ALERT: u8 = 1;
const INFORMATIONAL: u8 = 6;

/// A connection.
pub(super) struct Sender {
    stream: TcpStream,
    clock: SystemClock,
    /// The text of each message between its time and the due time.
    from: String,
    filling: String,
    frames: Vec<u8>,
    message: Vec<u8>,
    records: u64,
    bytes: u64,
}

impl Sender {
    /// Connects.
    pub(super) fn open(task: &ProducerTask, address: &str) -> CliResult<Self> {
        let stream = TcpStream::connect(address)
            .map_err(|e| CliError::Failure(format!("nobody takes syslog at {address}: {e}")))?;
        let (name, process) = (&task.name, std::process::id());
        let [element, due] = DUE_PARAMETER;
        let from = format!(" localhost {name} {process} - [{element} {due}=\"");
        let size = match task.content {
            Content::Night => 0,
            Content::Bytes(size) => size,
        };
        let mut sender = Self {
            stream,
            clock: SystemClock::new(),
            from,
            filling: String::new(),
            frames: Vec::new(),
            message: Vec::new(),
            records: 0,
            bytes: 0,
        };
        sender.add(INFORMATIONAL, u64::MAX >> 8)?;
        let without = std::mem::take(&mut sender.frames).len();
        sender.filling = "x".repeat(size.saturating_sub(without));
        sender.records = 0;
        Ok(sender)
    }

    fn add(&mut self, severity: u8, due_ns: u64) -> CliResult {
        let time = self.clock.now().to_utc_string();
        // RFC 5424 has six digits.
        let time = time.get(..time.len() - 4).unwrap_or(&time);
        let (priority, from, filling) = (LOCAL0 + severity, &self.from, &self.filling);
        self.message.clear();
        let written = write!(self.message, "<{priority}>1 {time}Z{from}{due_ns}\"] {filling}")
            .and_then(|()| write!(self.frames, "{} ", self.message.len()));
        // Writing to memory cannot fail.
        written.map_err(|e| CliError::Failure(e.to_string()))?;
        self.frames.extend_from_slice(&self.message);
        self.records += 1;
        if self.frames.len() < SEND_BUFFER_BYTES { Ok(()) } else { self.send() }
    }

    fn send(&mut self) -> CliResult {
        let sent = self.stream.write_all(&self.frames);
        sent.map_err(|e| CliError::Failure(format!("the service takes no more syslog: {e}")))?;
        self.bytes += self.frames.len() as u64;
        self.frames.clear();
        Ok(())
    }
}

impl Sink for Sender {
    fn one(&mut self, _: u64, due_ns: u64) -> CliResult<Level> {
        self.add(INFORMATIONAL, due_ns)?;
        Ok(Level::INFO)
    }

    fn urgent(&mut self, level: Level, due_ns: u64) -> CliResult {
        self.add(if level >= Level::EMERGENCY { 0 } else { ALERT }, due_ns)?;
        self.send()
    }

    fn turn(&mut self) -> CliResult {
        self.send()
    }

    fn is_full(&self, _: u64) -> bool {
        // The connection blocks it.
        false
    }

    fn finish(&mut self) -> CliResult<(u64, u64)> {
        self.send()?;
        let closed = self.stream.shutdown(Shutdown::Write);
        closed.map_err(|e| CliError::Failure(format!("the service's connection: {e}")))?;
        Ok((self.records, self.bytes))
    }
}
