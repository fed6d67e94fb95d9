//! Prints the process's own records as lines on its standard error.
//!
//! Constraints. The publishing thread formats and writes the lines, never a thread that logs.
//! Standard error may be a pipe that nobody reads: it is polled before each write. Lines that it
//! does not accept wait, up to a limit.

use std::io::Write as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::body::Fields;
use crate::line::{Colours, line};
use crate::record::Record;

/// The most bytes of waiting lines: more than a flood produces in a turn.
const MAX_WAITING: usize = 1 << 20;
/// The bytes that a ready pipe accepts without blocking (POSIX's PIPE_BUF on Linux).
const PIPE_BYTES: usize = 4_096;
/// The time that closing waits for a blocked pipe.
const STDERR_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct Printer {
    colours: Colours,
    waiting: Vec<u8>,
    /// Lines that were dropped.
    pub(super) lost: u64,
    /// The number of dropped lines that was reported.
    told: u64,
}

impl Printer {
    pub(super) fn new() -> Self {
        let colours = Colours::of(&std::io::stderr());
        Self { colours, waiting: Vec::new(), lost: 0, told: 0 }
    }

    /// Adds a record with its encoded body.
    pub(super) fn print(&mut self, mut record: Record, body: &[u8]) {
        if self.waiting.len() >= MAX_WAITING {
            self.lost += 1;
            return;
        }
        // A body of this process is well-formed.
        Fields::of(body).flatten().for_each(|field| record.take(field));
        self.waiting.extend_from_slice(line(&record, self.colours).as_bytes());
        self.waiting.push(b'\n');
    }

    /// Writes the lines that standard error accepts without blocking.
    pub(super) fn write(&mut self) {
        self.write_within(Duration::ZERO);
    }

    /// Writes the lines, and waits a little if standard error blocks.
    pub(super) fn end(&mut self) {
        self.write_within(STDERR_CLOSE_TIMEOUT);
    }

    fn write_within(&mut self, patience: Duration) {
        let mut written = 0;
        while written < self.waiting.len() && is_ready(patience) {
            let piece = piece(&self.waiting[written..]);
            if std::io::stderr().write_all(piece).is_err() {
                // The reader has closed it.
                self.waiting.clear();
                return;
            }
            written += piece.len();
        }
        self.waiting.drain(..written);
        if self.lost > self.told && self.waiting.is_empty() {
            let lines = self.lost - self.told;
            self.told = self.lost;
            let text =
                format!("helio: {lines} log records more were not printed, for want of room");
            self.waiting = text.into_bytes();
            self.waiting.push(b'\n');
        }
    }
}

/// As many whole lines as a ready pipe accepts, or the beginning of a longer line.
fn piece(lines: &[u8]) -> &[u8] {
    let most = &lines[..lines.len().min(PIPE_BYTES)];
    let end = most.iter().rposition(|byte| *byte == b'\n');
    end.map_or(most, |end| &most[..=end])
}

fn is_ready(patience: Duration) -> bool {
    let stderr = std::io::stderr();
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
    poll(&mut fds, Some(&timeout)) == Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_lines_where_they_can_be() {
        let lines = format!("{}\n{}\n{}", "a".repeat(1_000), "b".repeat(2_000), "c".repeat(9_000));
        let first = piece(lines.as_bytes());
        assert_eq!(first.len(), 3_002);
        assert_eq!(piece(&lines.as_bytes()[3_002..]).len(), PIPE_BYTES);
        assert_eq!(piece(b"x"), b"x");
    }
}
