//! The body of a record: tagged, optional fields without a fixed position in the packet.
//!
//! A body is self-contained. The producer writes it in the logging thread; packets, spill files and
//! archives copy it unchanged.

use helio_core::{Tai, TraceId};

use crate::fields::{Position, TextField};
use crate::record::{Record, Stack};
use crate::value::{Value, put_double, put_int, put_text};
use crate::wire::{Bytes, Malformed, put_bytes, put_signed, put_varint};

const TEXT: u8 = 1;
const ARGUMENT: u8 = 2;
const OBSERVED: u8 = 3;
const STACK: u8 = 8;
const TRACE: u8 = 11;
const SPAN: u8 = 12;
const FLAGS: u8 = 13;
const DATA: u8 = 14;
/// From this tag on a field's content is its length and that many bytes. Readers skip the tags that
/// they do not know.
pub(crate) const FIRST_SKIPPED_TAG: u8 = 128;

/// A field of a body.
#[derive(Debug, Clone, PartialEq)]
pub enum Field<'a> {
    /// The formatted message.
    Text(&'a str),
    /// The message's next argument.
    Argument(Value),
    /// The time when a collector first received the record.
    Observed(Tai),
    /// One of the texts that are [in the body](TextField::is_in_body).
    Member(TextField, &'a str),
    /// The error: the stack's id, and the place in the stack.
    Stack(&'a str, i32),
    /// The trace.
    Trace(TraceId),
    /// The span in the trace.
    Span([u8; 8]),
    /// The trace's flags.
    Flags(u8),
    /// A typed value by name.
    Data(&'a str, Value),
}

/// Iterates over the fields of a body, in the order in which they were written.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a>(Bytes<'a>);

impl<'a> Fields<'a> {
    pub(crate) fn of(body: &'a [u8]) -> Self {
        Self(Bytes(body))
    }

    /// The next field; none for one that is skipped.
    fn field(bytes: &mut Bytes<'a>) -> Result<Option<Field<'a>>, Malformed> {
        Ok(Some(match bytes.byte()? {
            TEXT => Field::Text(bytes.text()?),
            ARGUMENT => Field::Argument(Value::read(bytes)?),
            OBSERVED => Field::Observed(Tai::from_nanos(bytes.i64()?)),
            STACK => {
                let id = bytes.text()?;
                let level = i32::try_from(bytes.signed()?).map_err(|_| Malformed)?;
                Field::Stack(id, level)
            }
            TRACE => Field::Trace(TraceId(bytes.array()?)),
            SPAN => Field::Span(bytes.array()?),
            FLAGS => Field::Flags(bytes.byte()?),
            DATA => {
                let name = bytes.text()?;
                Field::Data(name, Value::read(bytes)?)
            }
            tag => match TextField::of_tag(tag) {
                Some(field) => Field::Member(field, bytes.text()?),
                None if tag >= FIRST_SKIPPED_TAG => {
                    bytes.bytes()?;
                    return Ok(None);
                }
                None => return Err(Malformed),
            },
        }))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match Self::field(&mut self.0) {
                Ok(Some(field)) => return Some(Ok(field)),
                Ok(None) => {}
                Err(malformed) => {
                    self.0 = Bytes(&[]);
                    return Some(Err(malformed));
                }
            }
        }
        None
    }
}

/// Writes a body. Each call adds a field. Fields that occur once, such as the thread, must be added
/// once.
///
/// ```
/// use helio_logging::{Body, TextField};
///
/// let mut body = Body::default();
/// body.argument_int(7).argument_text("DV11").member(TextField::Antenna, "DV11");
/// assert!(body.as_bytes().len() < 32);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Body(Vec<u8>);

impl Body {
    /// An empty body.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Removes all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn put(&mut self, tag: u8, bytes: &[u8]) -> &mut Self {
        self.0.push(tag);
        put_bytes(&mut self.0, bytes);
        self
    }

    /// Adds the formatted message.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.put(TEXT, text.as_bytes())
    }

    /// Adds the message and formats it in place.
    pub fn shown(&mut self, message: &dyn std::fmt::Display) -> &mut Self {
        self.0.push(TEXT);
        self.put_shown(message)
    }

    fn put_shown(&mut self, shown: &dyn std::fmt::Display) -> &mut Self {
        use std::io::Write as _;
        // Most texts are shorter than 16 kB: the length takes two bytes, even if one is enough.
        let start = self.0.len();
        self.0.extend_from_slice(&[0x80, 0]);
        // Writing to a vector fails only if the value's formatting does; the text is then
        // incomplete.
        _ = write!(self.0, "{shown}");
        let length = self.0.len() - start - 2;
        if length < 1 << 14 {
            self.0[start] = length as u8 | 0x80;
            self.0[start + 1] = (length >> 7) as u8;
            return self;
        }
        let mut count = Vec::with_capacity(9);
        put_varint(&mut count, length as u64);
        self.0.splice(start..start + 2, count);
        self
    }

    /// Adds the message's next argument.
    pub fn argument(&mut self, value: &Value) -> &mut Self {
        self.0.push(ARGUMENT);
        value.write(&mut self.0);
        self
    }

    /// Adds an integer as the next argument.
    pub fn argument_int(&mut self, value: i64) -> &mut Self {
        self.0.push(ARGUMENT);
        put_int(&mut self.0, value);
        self
    }

    /// Adds a floating-point number as the next argument.
    pub fn argument_double(&mut self, value: f64) -> &mut Self {
        self.0.push(ARGUMENT);
        put_double(&mut self.0, value);
        self
    }

    /// Adds a text as the next argument.
    pub fn argument_text(&mut self, value: &str) -> &mut Self {
        self.0.push(ARGUMENT);
        put_text(&mut self.0, value);
        self
    }

    /// Adds the time when a collector first received the record.
    pub fn observed(&mut self, time: Tai) -> &mut Self {
        self.0.push(OBSERVED);
        self.0.extend_from_slice(&time.nanos().to_le_bytes());
        self
    }

    /// Adds a text, if it is not empty. A field that is not
    /// [in the body](TextField::is_in_body) becomes a data pair of its name.
    pub fn member(&mut self, field: TextField, text: &str) -> &mut Self {
        match field.position() {
            _ if text.is_empty() => self,
            Position::Body(tag) => self.put(tag, text.as_bytes()),
            _ => self.data_text(field.name(), text),
        }
    }

    /// Adds the error's place in a stack.
    pub fn stack(&mut self, stack: &Stack) -> &mut Self {
        self.put(STACK, stack.id.as_bytes());
        put_signed(&mut self.0, stack.level.into());
        self
    }

    /// Adds the trace.
    pub fn trace(&mut self, trace: TraceId) -> &mut Self {
        self.0.push(TRACE);
        self.0.extend_from_slice(&trace.0);
        self
    }

    /// Adds the span.
    pub fn span(&mut self, span: [u8; 8]) -> &mut Self {
        self.0.push(SPAN);
        self.0.extend_from_slice(&span);
        self
    }

    /// Adds the trace's flags, if they are not 0.
    pub fn flags(&mut self, flags: u8) -> &mut Self {
        if flags != 0 {
            self.0.extend_from_slice(&[FLAGS, flags]);
        }
        self
    }

    /// Adds a typed value by name.
    pub fn data(&mut self, name: &str, value: &Value) -> &mut Self {
        self.put(DATA, name.as_bytes());
        value.write(&mut self.0);
        self
    }

    /// Adds an integer by name.
    pub fn data_int(&mut self, name: &str, value: i64) -> &mut Self {
        self.put(DATA, name.as_bytes());
        put_int(&mut self.0, value);
        self
    }

    /// Adds a floating-point number by name.
    pub fn data_double(&mut self, name: &str, value: f64) -> &mut Self {
        self.put(DATA, name.as_bytes());
        put_double(&mut self.0, value);
        self
    }

    /// Adds a text by name.
    pub fn data_text(&mut self, name: &str, value: &str) -> &mut Self {
        self.put(DATA, name.as_bytes());
        put_text(&mut self.0, value);
        self
    }

    /// Adds a value's text by name and formats it in place.
    pub fn data_shown(&mut self, name: &str, value: &dyn std::fmt::Display) -> &mut Self {
        self.put(DATA, name.as_bytes());
        self.0.push(crate::value::TEXT);
        self.put_shown(value)
    }

    /// Adds a call site as data, under OpenTelemetry's names, for a record without a site number.
    pub fn site(&mut self, file: &str, line: u32) -> &mut Self {
        let file_name = TextField::File.otlp_name().unwrap_or_default();
        self.data_text(file_name, file).data_int("code.line.number", line.into())
    }

    /// Adds all fields of a record that belong to the body.
    pub fn record(&mut self, record: &Record) -> &mut Self {
        if let Some(text) = &record.text {
            self.text(text);
        }
        record.arguments.iter().for_each(|argument| _ = self.argument(argument));
        record.observed.iter().for_each(|time| _ = self.observed(*time));
        for field in TextField::ALL {
            // In the order of the tags.
            if field == TextField::Stack {
                record.stack.iter().for_each(|stack| _ = self.stack(stack));
            }
            if let Some(text) = field.member(record).filter(|_| field.is_in_body()) {
                self.member(field, text);
            }
        }
        record.trace.iter().for_each(|trace| _ = self.trace(*trace));
        record.span.iter().for_each(|span| _ = self.span(*span));
        self.flags(record.flags);
        record.data.iter().for_each(|(name, value)| _ = self.data(name, value));
        self
    }
}

impl Record {
    /// Sets a field from its body.
    pub(crate) fn take(&mut self, field: Field<'_>) {
        match field {
            Field::Text(text) => self.text = Some(text.to_owned()),
            Field::Argument(value) => self.arguments.push(value),
            Field::Observed(time) => self.observed = Some(time),
            Field::Member(field, text) => {
                if let Some(member) = field.member_mut(self) {
                    text.clone_into(member);
                }
            }
            Field::Stack(id, level) => self.stack = Some(Stack { id: id.to_owned(), level }),
            Field::Trace(trace) => self.trace = Some(trace),
            Field::Span(span) => self.span = Some(span),
            Field::Flags(flags) => self.flags = flags,
            Field::Data(name, value) => self.data.push((name.to_owned(), value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_length_are_written_as_they_are_shown() {
        for length in [0, 1, 127, 128, (1 << 14) - 1, 1 << 14, 1 << 20] {
            let message = "m".repeat(length);
            let mut body = Body::default();
            body.shown(&message).member(TextField::Thread, "t");
            let fields: Vec<_> = Fields::of(body.as_bytes()).collect();
            let thread = Field::Member(TextField::Thread, "t");
            assert_eq!(fields, [Ok(Field::Text(&message)), Ok(thread)], "{length}");
        }
    }

    #[test]
    fn typed_data_are_those_of_their_values() {
        let long = "m".repeat(1 << 14);
        let mut body = Body::default();
        body.data_int("i", -7).data_double("d", 0.5).data_text("t", "x");
        body.data_shown("s", &format_args!("{}", 1)).data_shown("l", &long);
        let fields: Vec<_> = Fields::of(body.as_bytes()).map(Result::unwrap).collect();
        let text = |text: &str| Value::Text(text.to_owned());
        let expected = [
            ("i", Value::Int(-7)),
            ("d", Value::Double(0.5)),
            ("t", text("x")),
            ("s", text("1")),
            ("l", text(&long)),
        ];
        assert_eq!(fields, expected.map(|(name, value)| Field::Data(name, value)));
    }

    #[test]
    fn a_damaged_body_ends_with_that() {
        let mut body = Body::default();
        body.member(TextField::Thread, "t").stack(&Stack { id: "s".to_owned(), level: -2 });
        let whole = body.as_bytes();
        for length in 1..whole.len() {
            let fields: Vec<_> = Fields::of(&whole[..length]).collect();
            let cut_between = length == 3;
            assert_eq!(fields.last() == Some(&Err(Malformed)), !cut_between, "{length}");
        }
        assert_eq!(Fields::of(&[99]).collect::<Vec<_>>(), [Err(Malformed)]);
    }

    #[test]
    fn fields_of_later_versions_are_skipped() {
        let mut body = Body::default();
        body.put(u8::MAX, b"\xff bytes of any kind").member(TextField::Thread, "t");
        body.put(FIRST_SKIPPED_TAG + 99, &[]).member(TextField::Antenna, "a");
        body.put(u8::MAX, &[7; 300]);
        let fields: Vec<_> = Fields::of(body.as_bytes()).collect();
        let member = |field, text| Ok(Field::Member(field, text));
        assert_eq!(fields, [member(TextField::Thread, "t"), member(TextField::Antenna, "a")]);
        let cut = &body.as_bytes()[..body.as_bytes().len() - 1];
        assert_eq!(Fields::of(cut).last(), Some(Err(Malformed)));
    }
}
