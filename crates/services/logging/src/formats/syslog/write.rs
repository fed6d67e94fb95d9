//! Converts records to syslog messages.

use helio_core::Tai;

use super::{FACILITIES, FACILITY, RAW};
use crate::formats::json::hex;
use crate::formats::utc::{self, Digits};
use crate::level::Level;
use crate::record::Record;
use crate::value::Value;

/// The elements of structured data for what a header has no place for, and for data pairs. The
/// number is the one that is reserved for examples (RFC 5612) until the project has one of its own.
pub(super) const FIELDS: &str = "record@32473";
pub(super) const DATA: &str = "data@32473";
/// The elements that need no number (RFC 5424, section 7).
const REGISTERED: [&str; 3] = ["timeQuality", "origin", "meta"];

/// The header's limits (RFC 5424, section 6).
const HOSTNAME: usize = 255;
const APP_NAME: usize = 48;
const PROCID: usize = 128;
const MSGID: usize = 32;
const NAME: usize = 32;

/// Adds a record as a message of RFC 5424, without a frame. A message may have line breaks in it:
/// in a stream it is to be sent with its length before it.
///
/// Header fields have printable ASCII only and are cut at their limits; one that is not whole there
/// is in the structured data.
pub fn write(record: &Record, into: &mut Vec<u8>) {
    let facility = record.data.iter().find(|(name, _)| name == FACILITY);
    let facility = facility.and_then(|(_, value)| match value {
        Value::Text(name) => FACILITIES.iter().position(|known| known == name),
        _ => None,
    });
    // 1 is what user programs have.
    let priority = facility.unwrap_or(1) * 8 + usize::from(record.level.syslog());
    into.extend_from_slice(format!("<{priority}>1 ").as_bytes());
    put_time(into, record.time);
    let header = [
        ("host", &record.host, HOSTNAME),
        ("logger", &record.logger, APP_NAME),
        ("process", &record.process, PROCID),
        ("log_id", &record.log_id, MSGID),
    ];
    let mut more = Vec::new();
    for (name, text, limit) in header {
        into.push(b' ');
        let written = printable(text, limit, "");
        into.extend_from_slice(if written.is_empty() { b"-" } else { written.as_bytes() });
        if written != *text || text == "-" {
            more.push((name.to_owned(), text.clone()));
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

/// RFC 5424 has six digits, and no leap seconds: of one it is the last instant before.
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

/// A text for where only printable ASCII may be, and none of these.
fn printable(text: &str, limit: usize, none_of: &str) -> String {
    let right = |c: char| c.is_ascii_graphic() && !none_of.contains(c);
    text.chars().take(limit).map(|c| if right(c) { c } else { '_' }).collect()
}

/// What a header has no place for, where it is there.
fn fields(record: &Record) -> Vec<(String, String)> {
    let number = |number: u64| if number == 0 { String::new() } else { number.to_string() };
    let stack = record.stack.as_ref();
    let told = Level::from_syslog(record.level.syslog()) == record.level;
    let audiences = if record.audiences.everyone { "*" } else { &record.audiences.names.join(" ") };
    let fields = [
        ("level", if told { String::new() } else { record.level.to_string() }),
        ("thread", record.thread.clone()),
        ("context", record.context.clone()),
        ("file", record.site.file.clone()),
        ("line", number(record.site.line.into())),
        ("routine", record.site.routine.clone()),
        ("audiences", audiences.to_owned()),
        ("array", record.array.clone()),
        ("antenna", record.antenna.clone()),
        ("stack_id", stack.map(|stack| stack.id.clone()).unwrap_or_default()),
        ("stack_level", stack.map(|stack| stack.level.to_string()).unwrap_or_default()),
        ("uri", record.uri.clone()),
        ("trace_id", record.trace.map(|trace| hex(&trace.0)).unwrap_or_default()),
        ("span_id", record.span.map(|span| hex(&span)).unwrap_or_default()),
        ("producer", record.producer.clone()),
        ("sequence", number(record.sequence)),
    ];
    let there = fields.into_iter().filter(|(_, text)| !text.is_empty());
    there.map(|(name, text)| (name.to_owned(), text)).collect()
}

/// Writes these fields, and data pairs: those that came as structured data as they came.
fn put_structured_data(into: &mut Vec<u8>, record: &Record, fields: Vec<(String, String)>) {
    let mut elements: Vec<(&str, Vec<(&str, String)>)> = Vec::new();
    let mut add =
        |id, parameter: Option<_>| match elements.iter_mut().find(|(known, _)| *known == id) {
            Some((_, parameters)) => parameters.extend(parameter),
            None => elements.push((id, parameter.into_iter().collect())),
        };
    for (name, text) in &fields {
        add(FIELDS, Some((name.as_str(), text.clone())));
    }
    for (name, value) in &record.data {
        match (element(name), value) {
            (_, _) if name == FACILITY || name == RAW => {}
            (Some((id, None)), Value::Null) => add(id, None),
            (Some((id, Some(name))), value) => add(id, Some((name, value.to_string()))),
            (_, value) => add(DATA, Some((name, value.to_string()))),
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

/// The element and the parameter that a data pair of this name came from; none where it came from
/// elsewhere.
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
