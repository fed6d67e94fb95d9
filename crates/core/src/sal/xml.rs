//! Bounded reading of XML: a thin layer over `roxmltree` with errors that name file and line.
//!
//! Document types are rejected, so there are no entities to expand. The parser does not recurse.
//! Its superlinear work (comparing a tag's attributes with each other, copying name spaces into
//! nested elements) is bounded by a check of the text beforehand.

use std::borrow::Cow;

use roxmltree::{Document, Node, ParsingOptions};

use super::{MAX_FILE_BYTES, MAX_NODES, SalCause, SalError};

/// The most attributes of a tag: each is compared with all others of its tag.
const MAX_ATTRIBUTES: usize = 64;
/// The limit of `xmlns` in a file: each declaration costs memory in each nested one.
const MAX_NAMESPACES: usize = 64;

/// An error at a place in a file.
pub(super) fn error_at(file: &str, line: u32, cause: SalCause) -> SalError {
    SalError { file: file.to_owned(), line, cause }
}

/// The text of a file, without a byte order mark.
pub(super) fn text<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, SalError> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(error_at(file, 1, SalCause::FileTooLarge(bytes.len())));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count() as u32;
        error_at(file, line + 1, SalCause::NotUtf8)
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Parses a file.
pub(super) fn parse<'a>(file: &str, text: &'a str) -> Result<Document<'a>, SalError> {
    let too_much = |what, limit| error_at(file, 1, SalCause::XmlTooMuch { what, limit });
    if text.split('<').any(|tag| attributes(tag) > MAX_ATTRIBUTES) {
        return Err(too_much("attributes in a tag", MAX_ATTRIBUTES));
    }
    if text.matches("xmlns").count() > MAX_NAMESPACES {
        return Err(too_much("name spaces in a file", MAX_NAMESPACES));
    }
    let options =
        ParsingOptions { allow_dtd: false, nodes_limit: MAX_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| {
        // The parser's message may quote the file's text.
        let message: String = error.to_string().chars().take(200).collect();
        error_at(file, error.pos().row, SalCause::Xml(message))
    })
}

/// Returns the greatest possible number of attributes of a tag, which begins after its `<`. A tag
/// contains no `<`: the parser rejects one in an attribute's value.
fn attributes(tag: &str) -> usize {
    let (mut count, mut quote) = (0, None);
    if tag.starts_with('!') {
        return 0; // a comment or the like
    }
    for byte in tag.bytes() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'>') => break,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'=') => count += 1,
            (None, _) => {}
        }
    }
    count
}

/// An element and its file.
#[derive(Clone, Copy)]
pub(super) struct Element<'a> {
    file: &'a str,
    node: Node<'a, 'a>,
}

impl<'a> Element<'a> {
    /// The root of a document.
    pub(super) fn root(file: &'a str, document: &'a Document<'a>) -> Self {
        Self { file, node: document.root_element() }
    }

    /// The element's name, without a name space.
    pub(super) fn name(self) -> &'a str {
        self.node.tag_name().name()
    }

    /// Iterates over its child elements.
    pub(super) fn children(self) -> impl Iterator<Item = Self> {
        self.node
            .children()
            .filter(Node::is_element)
            .map(move |node| Self { file: self.file, node })
    }

    /// Returns the child element of that name.
    pub(super) fn child(self, name: &str) -> Result<Option<Self>, SalError> {
        let mut found = None;
        for child in self.children().filter(|child| child.name() == name) {
            if found.replace(child).is_some() {
                let (element, within) = (name.to_owned(), self.name().to_owned());
                return Err(child.error(SalCause::Twice { element, within }));
            }
        }
        Ok(found)
    }

    /// Returns the child element of that name, which must exist.
    pub(super) fn required(self, element: &'static str) -> Result<Self, SalError> {
        let within = || self.name().to_owned();
        self.child(element)?
            .ok_or_else(|| self.error(SalCause::NoElement { element, within: within() }))
    }

    /// Returns the text of the child element of that name, if it exists.
    pub(super) fn child_text(self, name: &str) -> Result<Option<Cow<'a, str>>, SalError> {
        Ok(self.child(name)?.map(Self::text))
    }

    /// Returns its text unchanged, without comments.
    pub(super) fn text(self) -> Cow<'a, str> {
        let mut parts = self.node.children().filter(Node::is_text).filter_map(|n| n.text());
        let first = parts.next().unwrap_or_default();
        match parts.next() {
            None => Cow::Borrowed(first),
            Some(second) => {
                let rest = std::iter::once(second).chain(parts);
                Cow::Owned(std::iter::once(first).chain(rest).collect())
            }
        }
    }

    /// Returns its first line. Counting is slow: not for each element of a file.
    pub(super) fn line(self) -> u32 {
        self.node.document().text_pos_at(self.node.range().start).row
    }

    /// An error at this element.
    pub(super) fn error(self, cause: SalCause) -> SalError {
        error_at(self.file, self.line(), cause)
    }

    /// An error for a misplaced element.
    pub(super) fn unexpected(self, expected: &'static str) -> SalError {
        self.error(SalCause::Unexpected { found: self.name().to_owned(), expected })
    }
}
