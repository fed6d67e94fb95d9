//! Splits a stream into messages (RFC 6587): by octet counts or by lines.

use thiserror::Error;

use super::MAX_MESSAGE_BYTES;

/// An error in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The message is too long and is skipped.
    #[error("a message has more than {MAX_MESSAGE_BYTES} bytes; it is passed over")]
    TooLarge,
    /// The stream ends in a message.
    #[error("the stream ends within a message")]
    Cut,
}

/// The rest of a message that is too long, to be skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Over {
    #[default]
    Nothing,
    /// This many bytes.
    Octets(usize),
    /// Everything up to the end of the line.
    Line,
}

/// Splits a stream into messages. Each is preceded by its length or followed by a line end; a
/// sender may mix both.
///
/// ```
/// use helio_logging::formats::syslog::Framer;
///
/// let mut framer = Framer::default();
/// framer.feed(b"5 <0>a\n<0>b\n<0>");
/// assert_eq!(framer.message(), Some(Ok(&b"<0>a\n"[..])));
/// assert_eq!(framer.message(), Some(Ok(&b"<0>b"[..])));
/// assert_eq!(framer.message(), None);
/// ```
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    start: usize,
    /// The end of the bytes searched for a line end.
    at: usize,
    over: Over,
    ended: bool,
}

/// The range of a message, and the start of the next one.
type Cut = (std::ops::Range<usize>, usize);

impl Framer {
    /// Adds the stream's next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.at = self.at.saturating_sub(self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Marks the end of the stream.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the bytes so far end between messages.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.start == self.buffer.len() && self.over == Over::Nothing
    }

    /// The next message or error; none until more bytes are added.
    pub fn message(&mut self) -> Option<Result<&[u8], FrameError>> {
        if !self.pass_over() {
            return None;
        }
        // Some senders write these between messages.
        while matches!(self.buffer.get(self.start), Some(b'\n' | b'\r' | b'\0')) {
            self.start += 1;
        }
        let found = match self.octets() {
            Some(found) => found,
            None => self.line(),
        };
        match found? {
            Ok((range, next)) => {
                (self.start, self.at) = (next, next);
                Some(Ok(&self.buffer[range]))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Skips the rest of a long message; false if more bytes are needed.
    fn pass_over(&mut self) -> bool {
        let there = &self.buffer[self.start..];
        let (passed, done) = match self.over {
            Over::Nothing => return true,
            Over::Octets(count) => (count.min(there.len()), count <= there.len()),
            Over::Line => match memchr::memchr(b'\n', there) {
                Some(end) => (end + 1, true),
                None => (there.len(), false),
            },
        };
        self.start += passed;
        self.at = self.start;
        self.over = match self.over {
            Over::Octets(count) if !done => Over::Octets(count - passed),
            Over::Line if !done => Over::Line,
            _ => Over::Nothing,
        };
        done
    }

    /// A message after its length; none if there is no length.
    fn octets(&mut self) -> Option<Option<Result<Cut, FrameError>>> {
        // More digits than any length that is skipped rather than read as a line.
        const MOST_DIGITS: usize = 9;
        let there = &self.buffer[self.start..];
        let count = there.iter().take(MOST_DIGITS).take_while(|c| c.is_ascii_digit()).count();
        if count == 0 || there[0] == b'0' {
            return None;
        }
        match there.get(count) {
            None if count < MOST_DIGITS && !self.ended => return Some(None),
            Some(b' ') => {}
            _ => return None,
        }
        let digit = |length, digit: &u8| length * 10 + usize::from(digit - b'0');
        let length = there[..count].iter().fold(0, digit);
        let from = self.start + count + 1;
        if length > MAX_MESSAGE_BYTES {
            (self.start, self.over) = (from, Over::Octets(length));
            return Some(Some(Err(FrameError::TooLarge)));
        }
        if self.buffer.len() - from >= length {
            return Some(Some(Ok((from..from + length, from + length))));
        }
        if !self.ended {
            return Some(None);
        }
        self.start = self.buffer.len();
        Some(Some(Err(FrameError::Cut)))
    }

    /// A message up to its line end.
    fn line(&mut self) -> Option<Result<Cut, FrameError>> {
        self.at = self.at.max(self.start);
        let found = memchr::memchr(b'\n', &self.buffer[self.at..]);
        let end = found.map_or(self.buffer.len(), |found| self.at + found);
        self.at = end;
        if end - self.start > MAX_MESSAGE_BYTES {
            self.over = Over::Line;
            self.start = end;
            return Some(Err(FrameError::TooLarge));
        }
        let last = found.is_none() && self.ended && self.start < end;
        let next = if found.is_some() { end + 1 } else { end };
        (found.is_some() || last).then_some(Ok((self.start..end, next)))
    }
}
