//! Splits a stream into messages (RFC 6587): by octet counts or by lines.

use thiserror::Error;

use super::MAX_MESSAGE_BYTES;

/// Why a part of a stream is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The message is too long; it is passed over.
    #[error("a message has more than {MAX_MESSAGE_BYTES} bytes; it is passed over")]
    TooLarge,
    /// The stream ends in a message.
    #[error("the stream ends within a message")]
    Cut,
}

/// What has to be passed over of a message that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Over {
    #[default]
    Nothing,
    /// So many bytes.
    Octets(usize),
    /// All up to the end of the line.
    Line,
}

/// Cuts a stream into messages: each has the number of its bytes before it, or a line's end behind
/// it; a sender may mix them.
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
    /// Up to where a line's end was looked for.
    at: usize,
    over: Over,
    ended: bool,
}

/// Where a message lies, and where the next one begins.
type Cut = (std::ops::Range<usize>, usize);

impl Framer {
    /// Takes the stream's next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.at = self.at.saturating_sub(self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Says that there are no more.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether what it was fed ends where a message does.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.start == self.buffer.len() && self.over == Over::Nothing
    }

    /// The next message, or why there is none; nothing until it is fed.
    pub fn message(&mut self) -> Option<Result<&[u8], FrameError>> {
        if !self.pass_over() {
            return None;
        }
        // What some senders have between messages.
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

    /// Passes over what has to be; false where that is not all there yet.
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

    /// A message behind its length; none where it does not begin with one.
    fn octets(&mut self) -> Option<Option<Result<Cut, FrameError>>> {
        // More than any length that is passed over rather than taken for a line.
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

    /// A message up to its line's end.
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
