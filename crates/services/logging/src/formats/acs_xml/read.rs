//! Converts elements to records.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use helio_core::{Tai, TraceId};
use quick_xml::Reader as Events;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::split::Splitter;
use super::{ELEMENTS, ESCAPE, MAX_ATTRIBUTES, XmlError, XmlProblem, is_forbidden};
use crate::fields::TextField;
use crate::formats::json::{from_hex, value_of};
use crate::formats::{shown, utc};
use crate::level::Level;
use crate::record::{Record, Style};
use crate::value::Value;

/// Reads records from a stream of XML: documents, or elements one after the other.
///
/// ```
/// use helio_logging::formats::acs_xml::Reader;
///
/// let mut reader = Reader::default();
/// reader.feed(b"<Info TimeStamp=\"2026-11-21T03:00:00.123\"><![CDATA[on sky]]></In");
/// assert!(reader.record().is_none());
/// reader.feed(b"fo>\n");
/// assert_eq!(reader.record().unwrap().unwrap().message(), "on sky");
/// reader.end();
/// assert!(reader.record().is_none());
/// ```
#[derive(Debug, Default)]
pub struct Reader(Splitter);

impl Reader {
    /// Adds the stream's next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.0.feed(bytes);
    }

    /// Marks the end of the stream.
    pub fn end(&mut self) {
        self.0.end();
    }

    /// Whether the bytes so far end between records.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.0.is_between()
    }

    /// The next record or error; none until more bytes are added.
    pub fn record(&mut self) -> Option<Result<Record, XmlError>> {
        let range = match self.0.entry()? {
            Ok(range) => range,
            Err(error) => return Some(Err(error)),
        };
        let position = self.0.position(range.start);
        let problem = |problem| XmlError { position, problem };
        Some(record(&text_of(self.0.bytes(range))).map_err(problem))
    }
}

/// The records and errors of a complete input.
pub fn read(bytes: &[u8]) -> impl Iterator<Item = Result<Record, XmlError>> {
    let mut reader = Reader::default();
    reader.feed(bytes);
    reader.end();
    std::iter::from_fn(move || reader.record())
}

/// Text that is not UTF-8 is read as ISO 8859-1: ACS's documents declare it, but write raw bytes.
fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into(),
    }
}

/// The entry that is read.
#[derive(Default)]
struct AcsEntry {
    record: Record,
    /// Unknown attributes.
    more: Vec<(String, Value)>,
    types: String,
    filled: bool,
}

/// The record of one element.
fn record(element: &str) -> Result<Record, XmlProblem> {
    let mut events = Events::from_str(element);
    // ACS does not escape attributes.
    events.config_mut().allow_dangling_amp = true;
    let mut entry = AcsEntry::default();
    let mut message = Text::default();
    let mut data: Option<(String, Text)> = None;
    let mut pairs = Vec::new();
    loop {
        let event = events.read_event();
        let event = event.map_err(|error| XmlProblem::Malformed(error.to_string()))?;
        let text = data.as_mut().map_or(&mut message, |(_, text)| text);
        match event {
            Event::Start(tag) if tag.name().as_ref() == "Data" => {
                message.flush();
                data = Some((data_name(&tag)?, Text::default()));
            }
            Event::Empty(tag) if tag.name().as_ref() == "Data" => {
                text.flush();
                pairs.push((data_name(&tag)?, String::new()));
            }
            Event::Start(tag) | Event::Empty(tag) => entry.attributes(&tag)?,
            Event::End(_) => {
                text.flush();
                if let Some((name, text)) = data.take() {
                    pairs.push((name, text.whole.unwrap_or_default()));
                }
            }
            Event::Text(piece) => text.run.push_str(&piece.into_inner()),
            Event::GeneralRef(reference) => text.run.push(referred(&reference)?),
            Event::CData(piece) => text.cdata(&piece.into_inner()),
            Event::Eof => break,
            _ => {}
        }
    }
    Ok(entry.whole(message, pairs))
}

/// Text in an element: sections of CDATA, and any text between them that is not blank.
#[derive(Default)]
struct Text {
    whole: Option<String>,
    run: String,
}

impl Text {
    fn cdata(&mut self, piece: &str) {
        self.flush();
        self.whole.get_or_insert_default().push_str(piece);
    }

    fn flush(&mut self) {
        if !self.run.trim().is_empty() {
            self.whole.get_or_insert_default().push_str(&self.run);
        }
        self.run.clear();
    }
}

/// The character of a reference.
fn referred(reference: &BytesRef<'_>) -> Result<char, XmlProblem> {
    let malformed = |error: quick_xml::Error| XmlProblem::Malformed(error.to_string());
    if let Some(c) = reference.resolve_char_ref().map_err(malformed)? {
        return Ok(c);
    }
    let name = reference.clone().into_inner();
    entity(&name).ok_or_else(|| XmlProblem::Entity(shown(name.as_bytes())))
}

fn entity(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => return None,
    })
}

/// An attribute's value. An ampersand that begins no reference is kept, as ACS does not escape it.
fn unescaped(value: &str) -> Result<Cow<'_, str>, XmlProblem> {
    if !value.contains('&') {
        return Ok(original(value));
    }
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '#');
        match end.filter(|end| *end > 0 && behind[*end..].starts_with(';')) {
            Some(end) => {
                let name = &behind[..end];
                let c = entity(name).or_else(|| numbered(name));
                out.push(c.ok_or_else(|| XmlProblem::Entity(shown(name.as_bytes())))?);
                rest = &behind[end + 1..];
            }
            None => {
                out.push('&');
                rest = behind;
            }
        }
    }
    out.push_str(rest);
    Ok(original(&out).into_owned().into())
}

/// The character of a reference by its number.
fn numbered(name: &str) -> Option<char> {
    let digits = name.strip_prefix('#')?;
    let number = match digits.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    char::from_u32(number.ok()?)
}

/// A text with its [`ESCAPE`] sequences decoded.
fn original(text: &str) -> Cow<'_, str> {
    if !text.contains(ESCAPE) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(ESCAPE) {
        out.push_str(&rest[..at]);
        let behind = &rest[at + ESCAPE.len_utf8()..];
        let escaped = behind.split_once(';').and_then(|(digits, after)| {
            let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
            let ours = (is_forbidden(c) || c == ESCAPE) && format!("{:x}", u32::from(c)) == digits;
            ours.then_some((c, after))
        });
        let (c, after) = escaped.unwrap_or((ESCAPE, behind));
        out.push(c);
        rest = after;
    }
    out.push_str(rest);
    out.into()
}

fn data_name(tag: &BytesStart<'_>) -> Result<String, XmlProblem> {
    for attribute in tag.attributes().take(MAX_ATTRIBUTES) {
        let attribute = attribute.map_err(|error| XmlProblem::Malformed(error.to_string()))?;
        if attribute.key.as_ref() == "Name" {
            return Ok(unescaped(&attribute.value)?.into_owned());
        }
    }
    Ok(String::new())
}

impl AcsEntry {
    fn attributes(&mut self, tag: &BytesStart<'_>) -> Result<(), XmlProblem> {
        let element = tag.name().into_inner().to_owned();
        let (mut time, mut exact, mut priority) = (None, None, None);
        for (count, attribute) in tag.attributes().enumerate() {
            if count == MAX_ATTRIBUTES {
                return Err(XmlProblem::Attributes);
            }
            let attribute = attribute.map_err(|error| XmlProblem::Malformed(error.to_string()))?;
            let value = unescaped(&attribute.value)?;
            match attribute.key.as_ref() {
                "TimeStamp" => {
                    let read = utc::parse_utc(&value);
                    time = Some(read.ok_or_else(|| XmlProblem::Time(shown(value.as_bytes())))?);
                }
                "TimeTai" if value.parse::<i64>().is_ok() => exact = value.parse().ok(),
                "Priority" if value.parse::<u8>().is_ok() => priority = value.parse().ok(),
                name => {
                    if self.attribute(name, &value).is_none() {
                        self.more.push((name.to_owned(), value.into_owned().into()));
                    }
                }
            }
        }
        let time = time.ok_or_else(|| XmlProblem::NoTime(element.clone()))?;
        self.record.time = exact.map_or(time, Tai::from_nanos);
        self.level(&element, priority);
        Ok(())
    }

    /// In ACS an entry's level is its element; Priority is a separate number and may differ. An
    /// element without a level has the level of its Priority.
    fn level(&mut self, element: &str, priority: Option<u8>) {
        let named = ELEMENTS.iter().find(|(name, _)| *name == element).map(|(_, level)| *level);
        let said = priority.and_then(Level::new);
        let reserved = said.filter(|level| !Level::ALL.contains(level));
        self.record.level = reserved.or(named).or(said).unwrap_or_default();
        let mut told = Vec::new();
        if named.is_none() {
            told.push(("Element".to_owned(), element.into()));
        }
        if let Some(number) = priority.filter(|number| *number != self.record.level.number()) {
            told.push(("Priority".to_owned(), Value::Int(number.into())));
        }
        self.more.splice(..0, told);
    }

    /// Sets an attribute's field; none for an unknown attribute or an invalid value.
    fn attribute(&mut self, name: &str, value: &str) -> Option<()> {
        let record = &mut self.record;
        let text = || value.to_owned();
        match name {
            "Line" => record.site.line = value.parse().ok()?,
            // The attribute Audiences, if present, follows and has them all.
            "Audience" if value.is_empty() => {}
            "Audience" => record.audiences.names = vec![text()],
            "StackId" => record.stack.get_or_insert_default().id = text(),
            "StackLevel" => record.stack.get_or_insert_default().level = value.parse().ok()?,
            _ => match TextField::of_acs_name(name).and_then(|field| field.member_mut(record)) {
                Some(member) => value.clone_into(member),
                None => return self.ours(name, value),
            },
        }
        Some(())
    }

    /// Sets the field of an attribute that only Heliograph writes.
    fn ours(&mut self, name: &str, value: &str) -> Option<()> {
        let record = &mut self.record;
        match name {
            "ObservedTai" => record.observed = Some(Tai::from_nanos(value.parse().ok()?)),
            "Sequence" => record.sequence = value.parse().ok()?,
            "TraceId" => record.trace = Some(TraceId(from_hex(value)?)),
            "SpanId" => record.span = Some(from_hex(value)?),
            "TraceFlags" => record.flags = value.parse().ok()?,
            "Template" => record.site.template = value.to_owned(),
            "TemplateStyle" if value == "percent" => record.site.style = Style::Percent,
            "TemplateNames" => record.site.names = texts(value)?,
            "Arguments" => match json(value)? {
                Value::Array(values) => record.arguments = values,
                _ => return None,
            },
            "Everyone" if value == "true" => {
                record.audiences.everyone = true;
                record.audiences.names.clear();
            }
            "Audiences" => record.audiences.names = texts(value)?,
            "Filled" if value == "true" => self.filled = true,
            "DataTypes" => self.types = value.to_owned(),
            _ => return None,
        }
        Some(())
    }

    fn whole(self, message: Text, pairs: Vec<(String, String)>) -> Record {
        let mut record = self.record;
        if !self.filled {
            record.text = message.whole.map(|text| original(&text).into_owned());
        }
        if record.stack.as_ref().is_some_and(|stack| {
            // ACS's way to write that there is no stack.
            stack.id.is_empty() && matches!(stack.level, 0 | -1)
        }) {
            record.stack = None;
        }
        let mut types = self.types.split(' ');
        record.data = self.more;
        record.data.extend(pairs.into_iter().map(|(name, text)| {
            let text = original(&text).into_owned();
            let value = typed(types.next().unwrap_or("text"), &text);
            (name, value.unwrap_or(Value::Text(text)))
        }));
        record
    }
}

/// A data pair's value; none if it is not of its type.
fn typed(name: &str, text: &str) -> Option<Value> {
    Some(match name {
        "empty" => Value::Text(String::new()),
        "null" => Value::Null,
        "bool" => Value::Bool(text.parse().ok()?),
        "int" => Value::Int(text.parse().ok()?),
        "double" => Value::Double(text.parse().ok()?),
        "bytes" => Value::Bytes(BASE64.decode(text).ok()?),
        "json" => json(text)?,
        _ => return None,
    })
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().map(value_of)
}

fn texts(json_text: &str) -> Option<Vec<String>> {
    serde_json::from_str(json_text).ok()
}
