//! Limits of texts whose conversion has a precision: with `%.5s` and `%.*s` a text need not end
//! with a NUL, so nothing behind the precision may be read.

/// The readable extent of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Up to its NUL.
    End,
    /// Up to its NUL, at most this many bytes.
    Bytes(usize),
    /// The same; the number is another argument.
    Argument(usize),
}

/// Whether a message has a text with a precision.
pub(crate) fn has_precision(template: &[u8]) -> bool {
    Directives { rest: template, next: 0 }.any(|(_, reach)| reach != Reach::End)
}

/// The extent of an argument, by its index.
pub(crate) fn reach(template: &[u8], argument: usize) -> Reach {
    let mut directives = Directives { rest: template, next: 0 };
    directives.find_map(|(place, reach)| (place == argument).then_some(reach)).unwrap_or(Reach::End)
}

/// The directives of a message that take an argument: its index and extent.
struct Directives<'a> {
    rest: &'a [u8],
    next: usize,
}

impl Directives<'_> {
    fn take(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn skip(&mut self, which: &[u8]) -> usize {
        let length = self.rest.iter().take_while(|byte| which.contains(byte)).count();
        self.rest = &self.rest[length..];
        length
    }

    /// Parses a width or a precision; a star takes an argument.
    fn number(&mut self) -> Reach {
        if let Some(rest) = self.rest.strip_prefix(b"*") {
            self.rest = rest;
            return Reach::Argument(self.take());
        }
        let digits = self.rest;
        let digits = &digits[..self.skip(b"0123456789")];
        let add =
            |sum: usize, digit: &u8| sum.saturating_mul(10).saturating_add((digit - b'0').into());
        Reach::Bytes(digits.iter().fold(0, add))
    }
}

impl Iterator for Directives<'_> {
    type Item = (usize, Reach);

    fn next(&mut self) -> Option<(usize, Reach)> {
        loop {
            let at = self.rest.iter().position(|byte| *byte == b'%')?;
            self.rest = &self.rest[at + 1..];
            if let Some(rest) = self.rest.strip_prefix(b"%") {
                self.rest = rest;
                continue;
            }
            self.skip(b"-+ #0'");
            self.number();
            let mut reach = Reach::End;
            if let Some(rest) = self.rest.strip_prefix(b".") {
                self.rest = rest;
                reach = self.number();
            }
            self.skip(b"hlLqjzt");
            let (kind, rest) = self.rest.split_first()?;
            self.rest = rest;
            if kind.is_ascii_alphabetic() && *kind != b'm' {
                return Some((self.take(), reach));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_precision_says_how_far_a_text_reaches() {
        let reaches = |template: &str| {
            let reach = |argument| reach(template.as_bytes(), argument);
            [reach(0), reach(1), reach(2), reach(3)]
        };
        use Reach::{Argument, Bytes, End};
        assert_eq!(reaches("%s %d"), [End; 4]);
        assert_eq!(reaches("100%% %.5s|%-8.12s"), [Bytes(5), Bytes(12), End, End]);
        assert_eq!(reaches("%.*s %s"), [End, Argument(0), End, End]);
        assert_eq!(reaches("%*.*f %.s"), [End, End, Argument(1), Bytes(0)]);
        assert_eq!(reaches("%5ld %m %.3s"), [End, Bytes(3), End, End]);
        assert_eq!(reaches("%.99999999999999999999s"), [Bytes(usize::MAX), End, End, End]);
    }

    #[test]
    fn a_message_without_one_is_not_read_again() {
        for with in ["%.5s", "%-8.5s", "%.*s", "%5.s", "%.s"] {
            assert!(has_precision(with.as_bytes()), "{with}");
        }
        for without in ["", "%s", "Done. %d of %s", "."] {
            assert!(!has_precision(without.as_bytes()), "{without}");
        }
    }

    #[test]
    fn no_message_is_too_much() {
        let alphabet = b"%.*s0d9l-m h";
        // Every message of five of these bytes.
        for mut number in 0..alphabet.len().pow(5) {
            let mut text = [0; 5];
            for byte in &mut text {
                *byte = alphabet[number % alphabet.len()];
                number /= alphabet.len();
            }
            let directives = Directives { rest: &text, next: 0 };
            let mut before = None;
            for (place, reach) in directives {
                assert!(before.is_none_or(|before| before < place));
                if let Reach::Argument(star) = reach {
                    assert!(star < place);
                }
                before = Some(place);
            }
        }
    }
}
