//! Reads the fields of records: of values, and of records in their packets.

use std::borrow::Cow;
use std::cell::OnceCell;

use helio_core::{Tai, TraceId};

use super::compare::{inside, named};
use super::select::{AudienceTest, BodyTest, PlaceTest};
use super::tree::{Field, Path, Root};
use super::words::has_phrase;
use crate::body::Field as InBody;
use crate::fields::{TextField, hex};
use crate::level::Level;
use crate::packet::RecordRef;
use crate::record::{Record, Site};
use crate::template::{fill, place};
use crate::value::Value;

/// Access to the fields of a record in any form.
pub(super) trait FieldAccess {
    fn level(&self) -> Level;
    fn time(&self) -> Tai;
    fn audience(&self, test: &AudienceTest) -> bool;
    fn place(&self, test: &PlaceTest) -> bool;
    /// None if the body is not decoded.
    fn body(&self, test: &BodyTest) -> Option<bool>;
}

/// A record as an owned value.
pub(super) struct WholeRecord<'a> {
    record: &'a Record,
    body: Body<'a>,
}

impl<'a> WholeRecord<'a> {
    pub(super) fn new(record: &'a Record) -> Self {
        Self { record, body: Body::of_record(record) }
    }
}

impl FieldAccess for WholeRecord<'_> {
    fn level(&self) -> Level {
        self.record.level
    }

    fn time(&self) -> Tai {
        self.record.time
    }

    fn audience(&self, test: &AudienceTest) -> bool {
        let audiences = &self.record.audiences;
        let names = audiences.names.iter().map(String::as_str);
        test.holds(test.found(audiences.everyone, names))
    }

    fn place(&self, test: &PlaceTest) -> bool {
        test.holds(self.record.site.line, |field| field.member(self.record).map_or("", |text| text))
    }

    fn body(&self, test: &BodyTest) -> Option<bool> {
        Some(self.body.holds(test))
    }
}

/// The text of a record's field.
pub(super) fn shown(field: &Field, record: &Record) -> Option<String> {
    match field {
        Field::Level => Some(record.level.to_string()),
        Field::Time => Some(record.time.to_string()),
        Field::Line => (record.site.line > 0).then(|| record.site.line.to_string()),
        Field::Audience => record.audiences.names.first().cloned(),
        Field::Text(field) => Some(field.text(record).into_owned()),
        Field::Value(path) => Body::of_record(record).values(path).first().map(ToString::to_string),
    }
}

/// The decoded body of a record, and the site that formats its message.
pub(super) struct Body<'a> {
    site: &'a Site,
    text: Option<&'a str>,
    arguments: Cow<'a, [Value]>,
    pub(super) data: Vec<(&'a str, Cow<'a, Value>)>,
    /// The texts that lie in the body, by their fields.
    texts: [&'a str; TextField::ALL.len()],
    trace: Option<TraceId>,
    span: Option<[u8; 8]>,
    message: OnceCell<Cow<'a, str>>,
}

impl<'a> Body<'a> {
    fn empty(site: &'a Site) -> Self {
        Self {
            site,
            text: None,
            arguments: Cow::Borrowed(&[]),
            data: Vec::new(),
            texts: [""; _],
            trace: None,
            span: None,
            message: OnceCell::new(),
        }
    }

    fn of_record(record: &'a Record) -> Self {
        let data = record.data.iter();
        let mut texts = TextField::ALL.map(|field| match field.member(record) {
            Some(text) if field.is_in_body() => text.as_str(),
            _ => "",
        });
        texts[TextField::Stack as usize] = record.stack.as_ref().map_or("", |stack| &stack.id);
        Self {
            text: record.text.as_deref(),
            arguments: Cow::Borrowed(&record.arguments),
            data: data.map(|(name, value)| (name.as_str(), Cow::Borrowed(value))).collect(),
            texts,
            trace: record.trace,
            span: record.span,
            ..Self::empty(&record.site)
        }
    }

    /// Decodes the body; a malformed one up to the damage.
    pub(super) fn of_packet(record: RecordRef<'a>, site: &'a Site) -> Self {
        let mut body = Self::empty(site);
        for field in record.fields().map_while(Result::ok) {
            match field {
                InBody::Text(text) => body.text = Some(text),
                InBody::Argument(value) => body.arguments.to_mut().push(value),
                InBody::Data(name, value) => body.data.push((name, Cow::Owned(value))),
                InBody::Member(field, text) => body.texts[field as usize] = text,
                InBody::Stack(id, _) => body.texts[TextField::Stack as usize] = id,
                InBody::Trace(trace) => body.trace = Some(trace),
                InBody::Span(span) => body.span = Some(span),
                InBody::Observed(_) | InBody::Flags(_) => {}
            }
        }
        body
    }

    pub(super) fn holds(&self, test: &BodyTest) -> bool {
        match test {
            BodyTest::Text(field, test) => test.holds(&self.text_of(*field)),
            BodyTest::Value(path, test) => test.holds(&self.values(path)),
            BodyTest::Words(words) => has_phrase(self.message(), words),
        }
    }

    pub(super) fn message(&self) -> &str {
        self.message.get_or_init(|| match self.text {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(fill(self.site, &self.arguments)),
        })
    }

    pub(super) fn text_of(&self, field: TextField) -> Cow<'_, str> {
        match (field, self.trace, self.span) {
            (TextField::Message, ..) => self.message().into(),
            (TextField::Trace, Some(id), _) => hex(&id.0).into(),
            (TextField::Span, _, Some(id)) => hex(&id).into(),
            (field, ..) => self.texts[field as usize].into(),
        }
    }

    fn values(&self, path: &Path) -> Vec<&Value> {
        match (path.root, path.names.as_slice()) {
            (Root::Arguments, [name, names @ ..]) => {
                let found = place(&self.site.names, name).and_then(|at| self.arguments.get(at));
                found.map_or_else(Vec::new, |value| inside(value, names))
            }
            (_, names) => named(self.data.iter().map(|(name, value)| (*name, &**value)), names),
        }
    }
}
