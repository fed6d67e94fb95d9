//! Visitors of fields: for an event's overrides, for an event's record, and for a span's stored
//! fields.

use std::error::Error;
use std::fmt::{self, Debug};

use helio_bus::TraceId;
use helio_logging::{Audiences, Body, Level, Site, Value};
use tracing_core::Event;
use tracing_core::field::{Field, Visit};

use crate::callsites::{CallsiteInfo, Heading, Role};
use crate::layer::SpanFields;

/// A visited value of a field.
#[derive(Clone, Copy)]
enum FieldValue<'a> {
    Int(i64),
    Number(u64),
    /// An integer that is too large for a record's type.
    Long(i128),
    VeryLong(u128),
    Double(f64),
    Bool(bool),
    Text(&'a str),
    Bytes(&'a [u8]),
    Shown(&'a dyn Debug),
}

impl FieldValue<'_> {
    fn value(self) -> Value {
        match self {
            Self::Int(value) => Value::Int(value),
            Self::Number(value) => Value::from(value),
            Self::Long(value) => whole(value, i64::try_from(value).ok()),
            Self::VeryLong(value) => whole(value, i64::try_from(value).ok()),
            Self::Double(value) => Value::Double(value),
            Self::Bool(value) => Value::Bool(value),
            Self::Text(value) => Value::from(value),
            Self::Bytes(value) => Value::Bytes(value.to_vec()),
            Self::Shown(value) => Value::Text(format!("{value:?}")),
        }
    }

    fn text(self) -> String {
        self.value().to_string()
    }

    /// Parses an id in hexadecimal digits; none if it is malformed or zero (W3C Trace Context,
    /// 3.2.2).
    fn id<const BYTES: usize>(self) -> Option<[u8; BYTES]> {
        let text = self.text();
        let (digits, rest) = text.as_bytes().as_chunks::<2>();
        if digits.len() != BYTES || !rest.is_empty() {
            return None;
        }
        let mut id = [0; BYTES];
        for (byte, [high, low]) in id.iter_mut().zip(digits) {
            let digit = |digit: &u8| char::from(*digit).to_digit(16);
            *byte = (digit(high)? * 16 + digit(low)?) as u8;
        }
        (id != [0; BYTES]).then_some(id)
    }
}

fn whole(value: impl ToString, fits: Option<i64>) -> Value {
    fits.map_or_else(|| Value::Text(value.to_string()), Value::Int)
}

/// Receives values of fields.
trait TakeField {
    fn take(&mut self, field: &Field, seen: FieldValue<'_>);
}

macro_rules! visits {
    ($($visitor:ty),*) => {
        $(impl Visit for $visitor {
            fn record_f64(&mut self, field: &Field, value: f64) {
                self.take(field, FieldValue::Double(value));
            }

            fn record_i64(&mut self, field: &Field, value: i64) {
                self.take(field, FieldValue::Int(value));
            }

            fn record_u64(&mut self, field: &Field, value: u64) {
                self.take(field, FieldValue::Number(value));
            }

            fn record_i128(&mut self, field: &Field, value: i128) {
                self.take(field, FieldValue::Long(value));
            }

            fn record_u128(&mut self, field: &Field, value: u128) {
                self.take(field, FieldValue::VeryLong(value));
            }

            fn record_bool(&mut self, field: &Field, value: bool) {
                self.take(field, FieldValue::Bool(value));
            }

            fn record_str(&mut self, field: &Field, value: &str) {
                self.take(field, FieldValue::Text(value));
            }

            fn record_bytes(&mut self, field: &Field, value: &[u8]) {
                self.take(field, FieldValue::Bytes(value));
            }

            fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
                self.take(field, FieldValue::Shown(&Causes(value)));
            }

            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                self.take(field, FieldValue::Shown(value));
            }
        })*
    };
}

visits!(OverrideVisitor<'_>, EventVisitor<'_>, SpanVisitor<'_>);

/// An error with its causes, separated by colons.
struct Causes<'a>(&'a (dyn Error + 'static));

impl Debug for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// An event's overrides of logger, level, audiences and site.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) level: Option<Level>,
    pub(crate) logger: Option<String>,
    pub(crate) audiences: Option<Audiences>,
    /// The target of a record of `log`, whose site is in `site`.
    pub(crate) target: Option<String>,
    pub(crate) site: Site,
}

struct OverrideVisitor<'a> {
    roles: &'a [Role],
    choice: Overrides,
}

impl Overrides {
    pub(crate) fn of(event: &Event<'_>, roles: &[Role]) -> Self {
        let mut chooser = OverrideVisitor { roles, choice: Self::default() };
        event.record(&mut chooser);
        chooser.choice
    }
}

impl TakeField for OverrideVisitor<'_> {
    fn take(&mut self, field: &Field, seen: FieldValue<'_>) {
        let choice = &mut self.choice;
        match self.roles[field.index()] {
            Role::Level => choice.level = seen.text().parse().ok(),
            Role::Logger => choice.logger = Some(seen.text()).filter(|name| !name.is_empty()),
            Role::Audience => choice.audiences = Some(audiences(&seen.text())),
            Role::LogTarget => choice.target = Some(seen.text()),
            Role::LogModule => choice.site.routine = seen.text(),
            Role::LogFile => choice.site.file = seen.text(),
            Role::LogLine => choice.site.line = seen.text().parse().unwrap_or_default(),
            Role::Message | Role::Trace | Role::Span | Role::Data => {}
        }
    }
}

fn audiences(text: &str) -> Audiences {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let (everyone, names): (Vec<_>, Vec<_>) = names.partition(|name| *name == "*");
    Audiences { everyone: !everyone.is_empty(), ..Audiences::of(names) }
}

/// Writes an event's record.
pub(crate) struct EventVisitor<'a> {
    roles: &'a [Role],
    is_level_data: bool,
    body: &'a mut Body,
    pub(crate) has_trace: bool,
    pub(crate) has_span: bool,
}

impl<'a> EventVisitor<'a> {
    pub(crate) fn new(place: &'a CallsiteInfo, heading: &Heading, body: &'a mut Body) -> Self {
        let is_level_data = heading.is_level_data;
        Self { roles: &place.roles, is_level_data, body, has_trace: false, has_span: false }
    }
}

impl TakeField for EventVisitor<'_> {
    fn take(&mut self, field: &Field, seen: FieldValue<'_>) {
        match self.roles[field.index()] {
            Role::Message => match seen {
                FieldValue::Text(text) => _ = self.body.text(text),
                FieldValue::Shown(shown) => _ = self.body.shown(&format_args!("{shown:?}")),
                other => _ = self.body.text(&other.text()),
            },
            Role::Data => self.data(field, seen),
            Role::Level if self.is_level_data => self.data(field, seen),
            Role::Trace => match seen.id() {
                Some(id) => {
                    self.body.trace(TraceId(id));
                    self.has_trace = true;
                }
                None => self.data(field, seen),
            },
            Role::Span => match seen.id() {
                Some(id) => {
                    self.body.span(id);
                    self.has_span = true;
                }
                None => self.data(field, seen),
            },
            _ => {}
        }
    }
}

impl EventVisitor<'_> {
    fn data(&mut self, field: &Field, seen: FieldValue<'_>) {
        let name = name(field);
        match seen {
            FieldValue::Int(value) => self.body.data_int(name, value),
            FieldValue::Double(value) => self.body.data_double(name, value),
            FieldValue::Text(value) => self.body.data_text(name, value),
            FieldValue::Shown(value) => self.body.data_shown(name, &format_args!("{value:?}")),
            other => self.body.data(name, &other.value()),
        };
    }
}

/// A field's name; `r#type` is `type`.
fn name(field: &Field) -> &'static str {
    let name = field.name();
    name.strip_prefix("r#").unwrap_or(name)
}

/// Stores the values of a span.
pub(crate) struct SpanVisitor<'a> {
    pub(crate) span: &'static str,
    pub(crate) kept: &'a mut SpanFields,
}

impl TakeField for SpanVisitor<'_> {
    fn take(&mut self, field: &Field, seen: FieldValue<'_>) {
        let is_id = match field.name() {
            "trace_id" => {
                self.kept.trace = seen.id().map(TraceId);
                self.kept.trace.is_some()
            }
            "span_id" => {
                self.kept.span = seen.id();
                self.kept.span.is_some()
            }
            _ => false,
        };
        if is_id {
            return;
        }
        let name = format!("{}.{}", self.span, name(field));
        let known = self.kept.data.iter_mut().find(|(known, _)| *known == name);
        match known {
            Some((_, value)) => *value = seen.value(),
            None => self.kept.data.push((name, seen.value())),
        }
    }
}
