//! Finds the beginnings and ends of elements in a stream of bytes, well-formed or not.
//!
//! Each byte is examined once, however the stream is split. After an error the search continues
//! from there to the next tag that begins an entry.

use std::ops::Range;

use super::{ELEMENTS, MAX_ELEMENT_BYTES, OTHERS, XmlError, XmlProblem};
use crate::formats::shown;

/// The position relative to tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Section {
    /// Between entries.
    #[default]
    Outside,
    /// In a document's header.
    Header,
    /// In an entry.
    Entry,
    /// In a Data of an entry.
    Data,
    /// After an error, which was reported.
    Lost,
}

/// The position within a tag or section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Inside {
    #[default]
    Text,
    /// In a tag, and the open quote of an attribute's value.
    Tag(usize, Option<u8>),
    /// In a comment, an instruction or a CDATA section, and its end.
    Until(&'static str),
}

/// The result of a step.
enum Step {
    On,
    Starved,
    Found(Range<usize>),
    Wrong(usize, XmlProblem),
}

/// Finds entries in a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    buffer: Vec<u8>,
    /// The position of the buffer's first byte in the stream.
    base: u64,
    /// The start of the current part.
    start: usize,
    /// The end of the examined bytes.
    at: usize,
    place: Section,
    inside: Inside,
    ended: bool,
}

impl Splitter {
    /// Adds bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.base += self.start as u64;
        self.at -= self.start;
        if let Inside::Tag(opened, _) = &mut self.inside {
            *opened -= self.start;
        }
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Marks the end of the stream.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the position is between entries and outside of tags.
    pub(super) fn is_between(&self) -> bool {
        self.place == Section::Outside
            && self.inside == Inside::Text
            && self.buffer[self.start..].iter().all(|byte| is_blank(*byte))
    }

    /// The bytes of a range that [`Self::entry`] gave, until it is fed again.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The position of a place in the buffer.
    pub(super) fn position(&self, place: usize) -> u64 {
        self.base + place as u64
    }

    /// The next entry, from its first tag to its last; none until there are more bytes.
    pub(super) fn entry(&mut self) -> Option<Result<Range<usize>, XmlError>> {
        loop {
            let step = match self.inside {
                Inside::Text => self.text(),
                Inside::Tag(opened, quote) => self.tag(opened, quote),
                Inside::Until(end) => self.until(end),
            };
            let step = match step {
                Step::Starved => self.starved(),
                other => other,
            };
            match step {
                Step::On => {}
                Step::Starved => return None,
                Step::Found(range) if range.len() > MAX_ELEMENT_BYTES => {
                    return Some(Err(self.error(range.start, XmlProblem::TooLarge)));
                }
                Step::Found(range) => return Some(Ok(range)),
                Step::Wrong(place, problem) => return Some(Err(self.error(place, problem))),
            }
        }
    }

    fn error(&self, place: usize, problem: XmlProblem) -> XmlError {
        XmlError { position: self.position(place), problem }
    }

    /// Abandons the current part; the search continues from there.
    fn lose(&mut self, on: usize, problem: XmlProblem) -> Step {
        let began = self.start;
        (self.place, self.inside) = (Section::Lost, Inside::Text);
        (self.start, self.at) = (on, on);
        Step::Wrong(began, problem)
    }

    /// Called without further bytes: abandons an element that is too large or cut.
    fn starved(&mut self) -> Step {
        let end = self.buffer.len();
        if matches!(self.place, Section::Lost | Section::Header) && self.inside == Inside::Text {
            self.start = self.at;
        }
        if self.place == Section::Outside && self.inside == Inside::Text {
            self.start = self.visible(self.start, self.at);
            if self.start < end && (self.ended || end - self.start > MAX_ELEMENT_BYTES) {
                let problem = XmlProblem::Text(shown(&self.buffer[self.start..]));
                let began = self.start;
                (self.start, self.at) = (end, end);
                return Step::Wrong(began, problem);
            }
            return Step::Starved;
        }
        if self.start == end || (self.ended && self.place == Section::Header) {
            return Step::Starved;
        }
        match self.ended {
            true if self.place == Section::Lost => Step::Starved,
            true => self.lose(end, XmlProblem::Cut),
            false if end - self.start > MAX_ELEMENT_BYTES => self.lose(end, XmlProblem::TooLarge),
            false => Step::Starved,
        }
    }

    /// The first of some bytes that is not blank, nor of a byte order mark.
    fn visible(&self, start: usize, end: usize) -> usize {
        let text = &self.buffer[start..end];
        let first = self.base + start as u64 == 0;
        let mark = if first && text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let blank = text[mark..].iter().take_while(|byte| is_blank(**byte)).count();
        start + mark + blank
    }

    /// Advances to the next bracket.
    fn text(&mut self) -> Step {
        let Some(found) = memchr::memchr(b'<', &self.buffer[self.at..]) else {
            self.at = self.buffer.len();
            return Step::Starved;
        };
        let open = self.at + found;
        self.at = open;
        if self.place == Section::Outside {
            let began = self.start;
            self.start = open;
            let text = self.visible(began, open);
            if text < open {
                return Step::Wrong(text, XmlProblem::Text(shown(&self.buffer[text..open])));
            }
        } else if matches!(self.place, Section::Lost | Section::Header) {
            self.start = open;
        }
        self.markup(open)
    }

    /// Handles the part that begins with a bracket.
    fn markup(&mut self, open: usize) -> Step {
        const COMMENT: &[u8] = b"<!--";
        const CDATA: &[u8] = b"<![CDATA[";
        let rest = &self.buffer[open..];
        if [COMMENT, CDATA].iter().any(|whole| rest.len() < whole.len() && whole.starts_with(rest))
        {
            return Step::Starved;
        }
        let (inside, length) = match rest {
            [b'<', b'?', ..] => (Inside::Until("?>"), 2),
            [b'<', b'!', ..] if rest.starts_with(COMMENT) => (Inside::Until("-->"), 4),
            [b'<', b'!', ..] if rest.starts_with(CDATA) && self.place != Section::Outside => {
                (Inside::Until("]]>"), CDATA.len())
            }
            [b'<', b'/' | b'_' | b':' | b'A'..=b'Z' | b'a'..=b'z' | 0x80.., ..] => {
                (Inside::Tag(open, None), 1)
            }
            _ if self.place == Section::Lost => (Inside::Text, 1),
            [b'<', b'!', next, ..] if *next != b'[' => return self.lose(open + 1, XmlProblem::Dtd),
            _ => {
                let tag = XmlProblem::Tag(shown(&rest[..2]));
                return self.lose(open + 1, tag);
            }
        };
        (self.inside, self.at) = (inside, open + length);
        Step::On
    }

    fn until(&mut self, end: &'static str) -> Step {
        match memchr::memmem::find(&self.buffer[self.at..], end.as_bytes()) {
            Some(found) => {
                self.at += found + end.len();
                self.inside = Inside::Text;
                if matches!(self.place, Section::Outside | Section::Lost | Section::Header) {
                    self.start = self.at;
                }
                Step::On
            }
            None => {
                // All but the bytes that may begin the end.
                self.at = self.at.max((self.buffer.len() + 1).saturating_sub(end.len()));
                Step::Starved
            }
        }
    }

    /// Advances to the end of a tag.
    fn tag(&mut self, opened: usize, mut quote: Option<u8>) -> Step {
        for place in self.at..self.buffer.len() {
            match (quote, self.buffer[place]) {
                // Not even a value may contain it. A tag that was cut therefore costs no other
                // entry.
                (_, b'<') if self.place == Section::Lost => {
                    (self.inside, self.at, self.start) = (Inside::Text, place, place);
                    return Step::On;
                }
                (_, b'<') => {
                    let tag = XmlProblem::Tag(shown(&self.buffer[opened..place]));
                    return self.lose(place, tag);
                }
                (None, b'>') => {
                    (self.inside, self.at) = (Inside::Text, place + 1);
                    return self.tagged(opened..place + 1);
                }
                (None, other @ (b'"' | b'\'')) => quote = Some(other),
                (Some(open), other) if open == other => quote = None,
                _ => {}
            }
        }
        (self.inside, self.at) = (Inside::Tag(opened, quote), self.buffer.len());
        Step::Starved
    }

    /// Handles a tag at its position.
    fn tagged(&mut self, range: Range<usize>) -> Step {
        let tag = &self.buffer[range.clone()];
        let (closes, empty) = (tag[1] == b'/', tag.ends_with(b"/>"));
        let inner = &tag[1 + usize::from(closes)..tag.len() - 1];
        let ends = |byte: &u8| is_blank(*byte) || *byte == b'/';
        let name = &inner[..inner.iter().position(ends).unwrap_or(inner.len())];
        let document = matches!(name, b"Log" | b"Header");
        let begins = !closes && is_entry(name);
        match self.place {
            Section::Header if name == b"Header" => self.place = Section::Outside,
            Section::Header | Section::Lost if !begins => {}
            Section::Outside if document => {
                if name == b"Header" && !closes && !empty {
                    self.place = Section::Header;
                }
            }
            Section::Entry if !closes && name == b"Data" => {
                if !empty {
                    self.place = Section::Data;
                }
                return Step::On;
            }
            Section::Data if closes => {
                self.place = Section::Entry;
                return Step::On;
            }
            Section::Entry if closes => {
                let began = self.start;
                (self.place, self.start) = (Section::Outside, range.end);
                return Step::Found(began..range.end);
            }
            Section::Entry | Section::Data => {
                let tag = XmlProblem::Tag(shown(tag));
                // Another entry begins and is read.
                return self.lose(range.start, tag);
            }
            _ if closes => {
                let tag = XmlProblem::Tag(shown(tag));
                (self.start, self.place) = (range.start, Section::Outside);
                return self.lose(range.end, tag);
            }
            _ if empty => {
                (self.place, self.start) = (Section::Outside, range.end);
                return Step::Found(range);
            }
            _ => {
                (self.place, self.start) = (Section::Entry, range.start);
                return Step::On;
            }
        }
        self.start = range.end;
        Step::On
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Whether ACS has a log entry of this name.
fn is_entry(name: &[u8]) -> bool {
    ELEMENTS.iter().any(|(known, _)| known.as_bytes() == name)
        || OTHERS.iter().any(|known| known.as_bytes() == name)
}
