//! Lines of a stream, up to a limit.

use crate::sender::Cause;

/// Splits a stream into lines without their ends.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    start: usize,
    /// The end of the bytes searched for a line end.
    at: usize,
    most: usize,
    /// The line was too long, and its rest is skipped.
    over: bool,
    ended: bool,
}

impl Lines {
    /// Accepts lines of at most this many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, at: 0, most, over: false, ended: false }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.at -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the bytes so far end between lines.
    pub(crate) fn is_between(&self) -> bool {
        self.start == self.buffer.len() && !self.over
    }

    /// The next line that is not blank; none until more bytes are added.
    pub(crate) fn line(&mut self) -> Option<Result<&[u8], Cause>> {
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.at..]);
            let end = found.map_or(self.buffer.len(), |found| self.at + found);
            let whole = found.is_some() || self.ended && self.start < end;
            let (start, over) = (self.start, self.over);
            let too_long = !over && end - start > self.most;
            if whole || over || too_long {
                self.start = if found.is_some() { end + 1 } else { end };
                self.over = found.is_none() && !self.ended;
                self.at = self.start;
            } else {
                self.at = end;
            }
            if too_long {
                return Some(Err(Cause::TooLarge));
            }
            if !whole {
                return None;
            }
            if !over && !self.buffer[start..end].trim_ascii().is_empty() {
                return Some(Ok(&self.buffer[start..end]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]], most: usize) -> Vec<Result<String, Cause>> {
        let mut lines = Lines::new(most);
        let mut all = Vec::new();
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        for piece in pieces {
            lines.feed(piece);
            while let Some(line) = lines.line() {
                all.push(line.map(text));
            }
        }
        lines.end();
        while let Some(line) = lines.line() {
            all.push(line.map(text));
        }
        all
    }

    #[test]
    fn lines_are_cut_and_those_too_long_are_told_once() {
        let all = cut(&[b"ab\n\n \r\ncd\r\nabcdef\nabc", b"def\nab", b"c"], 4);
        let line = |text: &str| Ok(text.to_owned());
        let long = || Err(Cause::TooLarge);
        assert_eq!(all, [line("ab"), line("cd\r"), long(), long(), line("abc")]);
        let mut lines = Lines::new(4);
        assert!(lines.is_between());
        lines.feed(b"ab");
        assert!(lines.line().is_none() && !lines.is_between());
        lines.feed(b"\n");
        assert!(lines.line().is_some() && lines.is_between());
    }

    proptest! {
        #[test]
        fn however_a_stream_is_cut_its_lines_are_the_same(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), Just(b' ')], 0..80),
            at in any::<prop::sample::Index>(),
        ) {
            let (first, second) = bytes.split_at(at.index(bytes.len() + 1));
            let expected: Vec<Result<String, Cause>> = bytes
                .split(|byte| *byte == b'\n')
                .filter(|line| line.len() > 8 || !line.trim_ascii().is_empty())
                .map(|line| match line.len() > 8 {
                    true => Err(Cause::TooLarge),
                    false => Ok(String::from_utf8_lossy(line).into_owned()),
                })
                .collect();
            prop_assert_eq!(cut(&[first, second], 8), expected.clone());
            prop_assert_eq!(cut(&bytes.chunks(1).collect::<Vec<_>>(), 8), expected);
        }
    }
}
