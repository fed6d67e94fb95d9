//! Converts records to syslog messages.

use std::borrow::Cow;

use helio_core::Tai;

use super::{FACILITIES, FACILITY, RAW};
use crate::fields::{RecordColumn, TextField};
use crate::formats::utc::{self, Digits};
use crate::level::Level;
use crate::record::Record;
use crate::value::Value;

/// The elements of structured data for fields without a place in the header, and for data pairs.
/// The number is the one reserved for examples (RFC 5612), until the project has its own.
pub(super) const FIELDS: &str = "record@32473";
pub(super) const DATA: &str = "data@32473";
/// The elements that need no number (RFC 5424, section 7).
const REGISTERED: [&str; 3] = ["timeQuality", "origin", "meta"];

/// The header's fields in order, HOSTNAME, APP-NAME, PROCID and MSGID, and the most characters of
/// each (RFC 5424, section 6).
const HEADER: [(TextField, usize); 4] = [
    (TextField::Host, 255),
    (TextField::Logger, 48),
    (TextField::Process, 128),
    (TextField::LogId, 32),
];
/// The most characters of a name in structured data.
const NAME: usize = 32;

/// A parameter of structured data: its name and value.
type Parameter<'a> = (&'a str, Cow<'a, str>);

/// Adds a record as a message of RFC 5424, without a frame. A message may contain line breaks; in a
/// stream it must be framed by its length.
///
/// Header fields are printable ASCII and truncated at their limits. A field that does not fit is
/// written in full to the structured data.
pub fn write(record: &Record, into: &mut Vec<u8>) {
    let facility = record.data.iter().find(|(name, _)| name == FACILITY);
    let facility = facility.and_then(|(_, value)| match value {
        Value::Text(name) => FACILITIES.iter().position(|known| known == name),
        _ => None,
    });
    // Facility 1 is for user programs.
    let priority = facility.unwrap_or(1) * 8 + usize::from(record.level.syslog());
    into.extend_from_slice(format!("<{priority}>1 ").as_bytes());
    put_time(into, record.time);
    let mut more = Vec::new();
    for (field, limit) in HEADER {
        let text = field.text(record);
        into.push(b' ');
        let written = printable(&text, limit, "");
        into.extend_from_slice(if written.is_empty() { b"-" } else { written.as_bytes() });
        if written != text || text == "-" {
            more.push((field.name(), text));
        }
    }
    more.extend(fields(record));
    into.push(b' ');
    put_structured_data(into, record, more);
    let message = record.message();
    if !message.is_empty() || record.text.is_some() {
        into.push(b' ');
        if !message.is_ascii() {
            into.extend_from_slice("\u{feff}".as_bytes());
        }
        into.extend_from_slice(message.as_bytes());
    }
}

/// RFC 5424 has six digits and no leap seconds: a leap second becomes the last instant before it.
fn put_time(into: &mut Vec<u8>, time: Tai) {
    let start = into.len();
    utc::put(into, time, Digits::Six);
    let leap = start + "2016-12-31T23:59:".len();
    if into[leap] == b'6' {
        into.truncate(leap);
        into.extend_from_slice(b"59.999999");
    }
    into.push(b'Z');
}

/// A text as printable ASCII without these characters.
fn printable(text: &str, limit: usize, none_of: &str) -> String {
    let right = |c: char| c.is_ascii_graphic() && !none_of.contains(c);
    text.chars().take(limit).map(|c| if right(c) { c } else { '_' }).collect()
}

/// The fields that have no place in a message outside the structured data.
fn fields(record: &Record) -> impl Iterator<Item = Parameter<'_>> {
    use RecordColumn::{Data, Level as LevelColumn, Observed, Text, Time};
    let columns = RecordColumn::all().filter(|column| match column {
        Time | Observed | Data | Text(TextField::Message) => false,
        LevelColumn => Level::from_syslog(record.level.syslog()) != record.level,
        Text(field) => HEADER.iter().all(|(known, _)| known != field),
        _ => true,
    });
    let fields = columns.map(|column| (column.name(), column.text(record)));
    fields.filter(|(_, text)| !text.is_empty())
}

/// Writes these fields and the data pairs. Pairs that were read from structured data are written as
/// such.
fn put_structured_data(into: &mut Vec<u8>, record: &Record, fields: Vec<Parameter<'_>>) {
    let mut elements: Vec<(&str, Vec<Parameter<'_>>)> = Vec::new();
    let mut add =
        |id, parameter: Option<_>| match elements.iter_mut().find(|(known, _)| *known == id) {
            Some((_, parameters)) => parameters.extend(parameter),
            None => elements.push((id, parameter.into_iter().collect())),
        };
    fields.into_iter().for_each(|field| add(FIELDS, Some(field)));
    for (name, value) in &record.data {
        match (element(name), value) {
            (_, _) if name == FACILITY || name == RAW => {}
            (Some((id, None)), Value::Null) => add(id, None),
            (Some((id, Some(name))), value) => add(id, Some((name, value.to_string().into()))),
            (_, value) => add(DATA, Some((name, value.to_string().into()))),
        }
    }
    if elements.is_empty() {
        into.push(b'-');
    }
    for (id, parameters) in elements {
        into.extend_from_slice(format!("[{id}").as_bytes());
        for (name, value) in parameters {
            let name = printable(name, NAME, "=]\"");
            let name = if name.is_empty() { "_" } else { &name };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace(']', "\\]");
            into.extend_from_slice(format!(" {name}=\"{value}\"").as_bytes());
        }
        into.push(b']');
    }
}

/// The element and the parameter that a data pair of this name was read from; none for any other
/// pair.
fn element(name: &str) -> Option<(&str, Option<&str>)> {
    let end = match name.split_once('@') {
        Some((id, rest)) => {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            (!id.is_empty() && digits > 0).then_some(id.len() + 1 + digits)?
        }
        None => name.find('.').unwrap_or(name.len()),
    };
    let id = &name[..end];
    let right = id.contains('@') || REGISTERED.contains(&id);
    if !right || id.len() > NAME || printable(id, NAME, "=]\"") != id {
        return None;
    }
    match &name[end..] {
        "" => Some((id, None)),
        parameter => Some((id, Some(parameter.strip_prefix('.')?))),
    }
}
