//! Converts records to elements.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use helio_core::Tai;

use super::{ELEMENTS, ESCAPE, is_forbidden};
use crate::fields::TextField;
use crate::formats::json;
use crate::formats::utc::{self, Digits};
use crate::level::Level;
use crate::record::{Record, Style, audience};
use crate::value::Value;

/// The text before the entries of a document.
pub const DOCUMENT_START: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Log>\n\
     <Header Name=\"Heliograph\" Type=\"LOGFILE\" />\n";
/// The text after the entries.
pub const DOCUMENT_END: &str = "</Log>\n";

/// Adds a record as one element and a line end.
pub fn write(record: &Record, into: &mut Vec<u8>) {
    let name = element(record.level);
    into.push(b'<');
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b" TimeStamp=\"");
    utc::put(into, record.time, Digits::Three);
    into.push(b'"');
    write_fields(record, into);
    write_more(record, into);
    into.push(b'>');
    write_message(record, into);
    for (name, value) in &record.data {
        into.extend_from_slice(b"<Data");
        put_attribute(into, "Name", name);
        into.push(b'>');
        put_data(into, value);
        into.extend_from_slice(b"</Data>");
    }
    into.extend_from_slice(b"</");
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b">\n");
}

/// The element's name. ACS has none for the reserved level, so it is written as an Error, which no
/// filter drops, with the Priority 7.
fn element(level: Level) -> &'static str {
    ELEMENTS.iter().find(|(_, known)| *known == level).map_or("Error", |(name, _)| name)
}

/// The texts that ACS has attributes for, in the order in which it writes them.
const ACS_TEXTS: [TextField; 12] = [
    TextField::File,
    TextField::Routine,
    TextField::Host,
    TextField::Process,
    TextField::Thread,
    TextField::Context,
    TextField::Logger,
    TextField::Array,
    TextField::Antenna,
    TextField::Stack,
    TextField::LogId,
    TextField::Uri,
];

/// Writes ACS's attributes.
fn write_fields(record: &Record, into: &mut Vec<u8>) {
    for field in ACS_TEXTS {
        match (field, &record.stack) {
            (TextField::Stack, Some(stack)) => {
                put_attribute(into, field.acs_name(), &stack.id);
                put_attribute(into, "StackLevel", &stack.level.to_string());
            }
            _ => put_there(into, field.acs_name(), &field.text(record)),
        }
        match field {
            TextField::File => put_count(into, "Line", record.site.line.into()),
            TextField::Logger => write_audiences(record, into),
            _ => {}
        }
    }
    if !Level::ALL.contains(&record.level) {
        put_count(into, "Priority", record.level.number().into());
    }
}

/// ACS has one audience: the first is written there, and the full list in `Audiences`.
fn write_audiences(record: &Record, into: &mut Vec<u8>) {
    let audiences = &record.audiences;
    if audiences.is_empty() {
        return;
    }
    if audiences.everyone {
        // Only the operator's viewer of ACS would hide it otherwise.
        put_attribute(into, "Audience", audience::OPERATOR);
        put_attribute(into, "Everyone", "true");
    } else {
        put_attribute(into, "Audience", &audiences.names[0]);
    }
    if audiences.everyone || audiences.names.len() > 1 || audiences.names[0].is_empty() {
        put_list(into, "Audiences", &audiences.names);
    }
}

/// Writes the attributes that ACS does not have. Its readers skip them.
fn write_more(record: &Record, into: &mut Vec<u8>) {
    if !is_in_milliseconds(record.time) {
        put_attribute(into, "TimeTai", &record.time.nanos().to_string());
    }
    if let Some(observed) = record.observed {
        put_attribute(into, "ObservedTai", &observed.nanos().to_string());
    }
    for field in TextField::ALL.into_iter().filter(|field| !ACS_TEXTS.contains(field)) {
        put_there(into, field.acs_name(), field.member(record).map_or("", |text| text));
    }
    put_count(into, "Sequence", record.sequence);
    for field in [TextField::Trace, TextField::Span] {
        put_there(into, field.acs_name(), &field.text(record));
    }
    put_count(into, "TraceFlags", record.flags.into());
    put_there(into, "Template", &record.site.template);
    if record.site.style == Style::Percent {
        put_attribute(into, "TemplateStyle", "percent");
    }
    if !record.site.names.is_empty() {
        put_list(into, "TemplateNames", &record.site.names);
    }
    if !record.arguments.is_empty() {
        put_json(into, "Arguments", &Value::Array(record.arguments.clone()));
    }
    let types: Vec<_> = record.data.iter().map(|(_, value)| type_of(value)).collect();
    if types.iter().any(|name| *name != "text") {
        put_attribute(into, "DataTypes", &types.join(" "));
    }
}

/// Whether a time round-trips through its time stamp.
fn is_in_milliseconds(time: Tai) -> bool {
    time.nanos() % 1_000_000 == 0 && {
        let mut text = Vec::with_capacity(23);
        utc::put(&mut text, time, Digits::Three);
        std::str::from_utf8(&text).ok().and_then(utc::parse_utc) == Some(time)
    }
}

fn write_message(record: &Record, into: &mut Vec<u8>) {
    match &record.text {
        Some(text) => put_cdata(into, text),
        None => {
            let message = record.message();
            if !message.is_empty() {
                // The attribute belongs into the closed tag, whose last byte is the bracket.
                into.pop();
                put_attribute(into, "Filled", "true");
                into.push(b'>');
                put_cdata(into, &message);
            }
        }
    }
}

/// The name of a value's type in DataTypes.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Text(text) if text.is_empty() => "empty",
        Value::Text(_) => "text",
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Double(_) => "double",
        Value::Bytes(_) => "bytes",
        Value::Array(_) | Value::Map(_) => "json",
    }
}

fn put_data(into: &mut Vec<u8>, value: &Value) {
    match value {
        // ACS writes N/A, since some of its readers reject empty elements.
        Value::Text(text) if text.is_empty() => into.extend_from_slice(b"N/A"),
        Value::Text(text) => put_cdata(into, text),
        Value::Bytes(bytes) => put_cdata(into, &BASE64.encode(bytes)),
        Value::Double(number) => put_cdata(into, &format!("{number:?}")),
        Value::Array(_) | Value::Map(_) => put_cdata(into, &json_of(value)),
        value => put_cdata(into, &value.to_string()),
    }
}

fn json_of(value: &Value) -> String {
    let mut bytes = Vec::new();
    json::put_value(&mut bytes, value);
    String::from_utf8(bytes).expect("JSON is text")
}

fn put_json(into: &mut Vec<u8>, name: &str, value: &Value) {
    put_attribute(into, name, &json_of(value));
}

fn put_list(into: &mut Vec<u8>, name: &str, texts: &[String]) {
    let texts = texts.iter().map(|text| Value::from(text.as_str())).collect();
    put_json(into, name, &Value::Array(texts));
}

fn put_there(into: &mut Vec<u8>, name: &str, text: &str) {
    if !text.is_empty() {
        put_attribute(into, name, text);
    }
}

fn put_count(into: &mut Vec<u8>, name: &str, count: u64) {
    if count > 0 {
        put_attribute(into, name, &count.to_string());
    }
}

fn put_attribute(into: &mut Vec<u8>, name: &str, text: &str) {
    into.push(b' ');
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b"=\"");
    put_escaped(into, text, |byte| match byte {
        b'&' => Some("&amp;"),
        b'<' => Some("&lt;"),
        b'>' => Some("&gt;"),
        b'"' => Some("&quot;"),
        b'\t' => Some("&#9;"),
        b'\n' => Some("&#10;"),
        b'\r' => Some("&#13;"),
        _ => None,
    });
    into.push(b'"');
}

fn put_cdata(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(b"<![CDATA[");
    let mut rest = text;
    while let Some(at) = rest.find("]]>") {
        put_escaped(into, &rest[..at + 2], |_| None);
        into.extend_from_slice(b"]]><![CDATA[");
        rest = &rest[at + 2..];
    }
    put_escaped(into, rest, |_| None);
    into.extend_from_slice(b"]]>");
}

/// Writes a text with these replacements. Characters that XML forbids are escaped by [`ESCAPE`].
fn put_escaped(into: &mut Vec<u8>, text: &str, replaced: impl Fn(u8) -> Option<&'static str>) {
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        // The first bytes of U+241B, U+FFFE and U+FFFF in UTF-8.
        let suspect = byte < b' ' || byte == 0xe2 || byte == 0xef;
        let replacement = replaced(byte);
        if replacement.is_none() && !suspect {
            continue;
        }
        let c = text[at..].chars().next().expect("these are first bytes of characters");
        let forbidden = is_forbidden(c) || c == ESCAPE;
        if replacement.is_none() && !forbidden {
            continue;
        }
        into.extend_from_slice(&text.as_bytes()[start..at]);
        match replacement {
            Some(replacement) => into.extend_from_slice(replacement.as_bytes()),
            None => into.extend_from_slice(format!("{ESCAPE}{:x};", u32::from(c)).as_bytes()),
        }
        start = at + c.len_utf8();
    }
    into.extend_from_slice(&text.as_bytes()[start..]);
}
