//! JSON lines: one record per line, without loss (RFC 8259; <https://jsonlines.org>).
//!
//! Constraints. Any JSON reader can read the output. Times are texts; integers that a JavaScript
//! program would round are texts in an object that marks them; there is no NaN. A record that is
//! written and read is the same record.
//!
//! Format: `docs/logging.md`, "JSON lines". One object, without empty fields. A value that JSON
//! cannot represent is an object with one member: `$int`, `$double`, `$bytes` (RFC 4648, section 4)
//! or `$map`.
//!
//! Operation. [`write`](fn@write) adds a line; [`read`] parses one. Members with unknown names
//! become data pairs. [`read_foreign`] also reads lines of other programs, which need no time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use helio_core::{Tai, TraceId};
use serde_json::{Map, Value as Json};
use thiserror::Error;

pub use super::json_foreign::read as read_foreign;
use super::{shown, utc};
use crate::fields::{TextField, hex};
use crate::level::Level;
use crate::packet::MAX_RECORD_BYTES;
use crate::record::{Record, Stack, Style};
use crate::value::{MAX_DEPTH, Value};

/// The longest line that is read, in bytes: an escaped control character has six.
pub const MAX_LINE_BYTES: usize = 6 * MAX_RECORD_BYTES;

/// Doubles represent all integers up to this one.
const EXACT: u64 = 1 << 53;

/// An error in a line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonError {
    /// The line is too long.
    #[error("the line has {0} bytes, the limit is {MAX_LINE_BYTES}")]
    TooLarge(usize),
    /// The line is not a JSON object.
    #[error("the line {line} is not a JSON object: {cause}")]
    Malformed {
        /// How it begins.
        line: String,
        /// The parser's error.
        cause: String,
    },
    /// The object has no time.
    #[error("the object has no \"time\"; give it one like \"2026-11-21T03:00:00Z\"")]
    NoTime,
    /// A member has an invalid value.
    #[error("{name:?} is {value}, not {expected}")]
    Member {
        /// The member's name.
        name: String,
        /// The beginning of its value.
        value: String,
        /// The expected value.
        expected: &'static str,
    },
}

/// Adds a record as one line, with its line end.
pub fn write(record: &Record, into: &mut Vec<u8>) {
    into.push(b'{');
    write_head(record, into);
    write_message(record, into);
    for of_site in [false, true] {
        let fields = TextField::ALL.into_iter().filter(|field| field.is_of_site() == of_site);
        for field in fields.filter(|field| *field != TextField::Logger) {
            put_text_member(into, field.name(), field.member(record).map_or("", |text| text));
        }
    }
    put_count_member(into, "line", record.site.line.into());
    put_count_member(into, "sequence", record.sequence);
    write_audiences(record, into);
    write_trace(record, into);
    if !record.data.is_empty() {
        put_name(into, "data");
        put_data(into, &record.data);
    }
    into.extend_from_slice(b"}\n");
}

fn write_head(record: &Record, into: &mut Vec<u8>) {
    into.extend_from_slice(b"\"time\":");
    put_time(into, record.time);
    put_text_member(into, "level", record.level.name());
    put_text_member(into, "logger", &record.logger);
    if let Some(observed) = record.observed {
        put_name(into, "observed");
        put_time(into, observed);
    }
}

fn write_message(record: &Record, into: &mut Vec<u8>) {
    match &record.text {
        Some(text) => {
            put_name(into, "message");
            put_text(into, text);
        }
        None => {
            let message = record.message();
            put_text_member(into, "message", &message);
            if !message.is_empty() {
                into.extend_from_slice(b",\"filled\":true");
            }
        }
    }
    put_text_member(into, "template", &record.site.template);
    if record.site.style == Style::Percent {
        put_text_member(into, "style", "percent");
    }
    if !record.site.names.is_empty() {
        put_name(into, "names");
        put_list(into, &record.site.names, |into, name| put_text(into, name));
    }
    if !record.arguments.is_empty() {
        put_name(into, "args");
        put_list(into, &record.arguments, put_value);
    }
}

fn write_audiences(record: &Record, into: &mut Vec<u8>) {
    if !record.audiences.names.is_empty() {
        put_name(into, "audiences");
        put_list(into, &record.audiences.names, |into, name| put_text(into, name));
    }
    if record.audiences.everyone {
        into.extend_from_slice(b",\"everyone\":true");
    }
}

fn write_trace(record: &Record, into: &mut Vec<u8>) {
    if let Some(Stack { id, level }) = &record.stack {
        into.extend_from_slice(b",\"stack\":{\"id\":");
        put_text(into, id);
        into.extend_from_slice(format!(",\"level\":{level}}}").as_bytes());
    }
    if let Some(TraceId(id)) = record.trace {
        put_text_member(into, "trace_id", &hex(&id));
    }
    if let Some(id) = record.span {
        put_text_member(into, "span_id", &hex(&id));
    }
    put_count_member(into, "trace_flags", record.flags.into());
}

fn put_name(into: &mut Vec<u8>, name: &str) {
    into.extend_from_slice(b",\"");
    into.extend_from_slice(name.as_bytes());
    into.extend_from_slice(b"\":");
}

fn put_text_member(into: &mut Vec<u8>, name: &str, text: &str) {
    if !text.is_empty() {
        put_name(into, name);
        put_text(into, text);
    }
}

fn put_count_member(into: &mut Vec<u8>, name: &str, count: u64) {
    if count == 0 {
        return;
    }
    put_name(into, name);
    let quote = if count > EXACT { "\"" } else { "" };
    into.extend_from_slice(format!("{quote}{count}{quote}").as_bytes());
}

fn put_list<T>(into: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    into.push(b'[');
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            into.push(b',');
        }
        put(into, item);
    }
    into.push(b']');
}

/// Writes a text with its quotes.
pub(crate) fn put_text(into: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(into, text).expect("a vector takes all that is written into it");
}

fn put_time(into: &mut Vec<u8>, time: Tai) {
    // The round trip is checked only before the table of leap seconds and near the end of 64 bits.
    const NEAR: std::ops::Range<i64> = 100_000_000_000_000_000..8_500_000_000_000_000_000;
    into.push(b'"');
    let start = into.len();
    utc::put(into, time, utc::Digits::Nine);
    into.push(b'Z');
    let back = || std::str::from_utf8(&into[start..]).ok().and_then(utc::parse_utc);
    if !NEAR.contains(&time.nanos()) && back() != Some(time) {
        into.truncate(start);
        into.extend_from_slice(format!("{} ns TAI", time.nanos()).as_bytes());
    }
    into.push(b'"');
}

/// Writes a value. Values below [`MAX_DEPTH`] are written as their text.
pub(crate) fn put_value(into: &mut Vec<u8>, value: &Value) {
    put_value_at(into, value, 1);
}

fn put_value_at(into: &mut Vec<u8>, value: &Value, depth: usize) {
    match value {
        Value::Null => into.extend_from_slice(b"null"),
        Value::Bool(true) => into.extend_from_slice(b"true"),
        Value::Bool(false) => into.extend_from_slice(b"false"),
        Value::Int(number) if number.unsigned_abs() <= EXACT => {
            into.extend_from_slice(number.to_string().as_bytes());
        }
        Value::Int(number) => put_tagged(into, "$int", &number.to_string()),
        Value::Double(number) => put_double(into, *number),
        Value::Text(text) => put_text(into, text),
        Value::Bytes(bytes) => put_tagged(into, "$bytes", &BASE64.encode(bytes)),
        Value::Array(_) | Value::Map(_) if depth == MAX_DEPTH => put_text(into, &value.to_string()),
        Value::Array(values) => {
            put_list(into, values, |into, value| put_value_at(into, value, depth + 1));
        }
        Value::Map(pairs) => {
            let tag = matches!(pairs.as_slice(), [(name, _)] if name.starts_with('$'));
            match !tag && are_distinct(pairs) {
                true => put_object(into, pairs, depth),
                false => {
                    into.extend_from_slice(b"{\"$map\":");
                    put_pairs(into, pairs, depth);
                    into.push(b'}');
                }
            }
        }
    }
}

fn put_tagged(into: &mut Vec<u8>, tag: &str, text: &str) {
    into.extend_from_slice(format!("{{\"{tag}\":\"{text}\"}}").as_bytes());
}

fn put_double(into: &mut Vec<u8>, number: f64) {
    let name = match number {
        number if number.is_finite() => {
            // Debug writes the shortest digits that round-trip, always with a point or an exponent.
            return into.extend_from_slice(format!("{number:?}").as_bytes());
        }
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    };
    put_tagged(into, "$double", name);
}

fn put_data(into: &mut Vec<u8>, pairs: &[(String, Value)]) {
    match are_distinct(pairs) {
        true => put_object(into, pairs, 0),
        false => put_pairs(into, pairs, 0),
    }
}

fn are_distinct(pairs: &[(String, Value)]) -> bool {
    let mut names: Vec<_> = pairs.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.windows(2).all(|two| two[0] != two[1])
}

fn put_object(into: &mut Vec<u8>, pairs: &[(String, Value)], depth: usize) {
    into.push(b'{');
    for (place, (name, value)) in pairs.iter().enumerate() {
        if place > 0 {
            into.push(b',');
        }
        put_text(into, name);
        into.push(b':');
        put_value_at(into, value, depth + 1);
    }
    into.push(b'}');
}

fn put_pairs(into: &mut Vec<u8>, pairs: &[(String, Value)], depth: usize) {
    put_list(into, pairs, |into, (name, value)| {
        into.push(b'[');
        put_text(into, name);
        into.push(b',');
        put_value_at(into, value, depth + 1);
        into.push(b']');
    });
}

/// The bytes of hexadecimal digits; none if their number is not `N`.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(*high)? * 16 + digit(*low)?) as u8;
    }
    Some(bytes)
}

/// Reads a record from a line, with or without its line end.
///
/// # Errors
/// [`JsonError`].
pub fn read(line: &[u8]) -> Result<Record, JsonError> {
    let object = object(line)?;
    if !object.contains_key("time") {
        return Err(JsonError::NoTime);
    }
    let mut record = Record::default();
    let mut filled = false;
    for (name, value) in object {
        if name == "filled" && value.is_boolean() {
            filled = value == Json::Bool(true);
        } else {
            read_member(&mut record, name, value)?;
        }
    }
    if filled {
        record.text = None;
    }
    Ok(record)
}

/// The members of a line.
pub(super) fn object(line: &[u8]) -> Result<Map<String, Json>, JsonError> {
    if line.len() > MAX_LINE_BYTES {
        return Err(JsonError::TooLarge(line.len()));
    }
    serde_json::from_slice(line)
        .map_err(|cause| JsonError::Malformed { line: shown(line), cause: cause.to_string() })
}

pub(super) fn read_member(record: &mut Record, name: String, value: Json) -> Result<(), JsonError> {
    match name.as_str() {
        "time" => record.time = time(&name, &value)?,
        "observed" => record.observed = Some(time(&name, &value)?),
        "level" => record.level = level(&name, &value)?,
        "message" => record.text = Some(text(&name, value)?),
        "template" => record.site.template = text(&name, value)?,
        "style" => record.site.style = style(&name, &value)?,
        "names" => record.site.names = texts(&name, value)?,
        "args" => record.arguments = list(&name, value)?.into_iter().map(value_of).collect(),
        "line" => record.site.line = number(&name, &value)?,
        "sequence" => record.sequence = number(&name, &value)?,
        "audiences" => record.audiences.names = texts(&name, value)?,
        "everyone" => record.audiences.everyone = boolean(&name, &value)?,
        "stack" => record.stack = Some(stack(&name, &value)?),
        "trace_id" => record.trace = Some(TraceId(digits(&name, &value, "32 hex digits")?)),
        "span_id" => record.span = Some(digits(&name, &value, "16 hex digits")?),
        "trace_flags" => record.flags = number(&name, &value)?,
        "data" => record.data.extend(pairs(&name, value)?),
        _ => match TextField::of_name(&name).and_then(|field| field.member_mut(record)) {
            Some(member) => *member = text(&name, value)?,
            None => record.data.push((name, value_of(value))),
        },
    }
    Ok(())
}

fn wrong(name: &str, value: &Json, expected: &'static str) -> JsonError {
    let value = shown(value.to_string().as_bytes());
    JsonError::Member { name: name.to_owned(), value, expected }
}

fn text(name: &str, value: Json) -> Result<String, JsonError> {
    match value {
        Json::String(text) => Ok(text),
        other => Err(wrong(name, &other, "a text")),
    }
}

fn list(name: &str, value: Json) -> Result<Vec<Json>, JsonError> {
    match value {
        Json::Array(values) => Ok(values),
        other => Err(wrong(name, &other, "an array")),
    }
}

fn texts(name: &str, value: Json) -> Result<Vec<String>, JsonError> {
    list(name, value)?.into_iter().map(|value| text(name, value)).collect()
}

fn boolean(name: &str, value: &Json) -> Result<bool, JsonError> {
    value.as_bool().ok_or_else(|| wrong(name, value, "true or false"))
}

/// An integer, or its text.
fn number<N: std::str::FromStr + TryFrom<u64>>(name: &str, value: &Json) -> Result<N, JsonError> {
    let number = match value {
        Json::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|number| number.try_into().ok()),
    };
    number.ok_or_else(|| wrong(name, value, "a whole number from 0 on within its range"))
}

pub(super) fn time(name: &str, value: &Json) -> Result<Tai, JsonError> {
    let time = value.as_str().and_then(|text| match text.strip_suffix(" ns TAI") {
        Some(nanos) => nanos.parse().ok().map(Tai::from_nanos),
        None => utc::parse_utc(text),
    });
    time.ok_or_else(|| wrong(name, value, "a time like \"2026-11-21T03:00:00Z\""))
}

pub(super) fn level(name: &str, value: &Json) -> Result<Level, JsonError> {
    let level = match value {
        Json::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|number| Level::new(u8::try_from(number).ok()?)),
    };
    level.ok_or_else(|| wrong(name, value, "a level's name or number"))
}

fn style(name: &str, value: &Json) -> Result<Style, JsonError> {
    match value.as_str() {
        Some("percent") => Ok(Style::Percent),
        Some("braces") => Ok(Style::Braces),
        _ => Err(wrong(name, value, "\"percent\" or \"braces\"")),
    }
}

fn stack(name: &str, value: &Json) -> Result<Stack, JsonError> {
    let wrong = || wrong(name, value, "{\"id\": a text, \"level\": a whole number}");
    let id = value.get("id").and_then(Json::as_str).ok_or_else(wrong)?;
    let level = value.get("level").and_then(Json::as_i64).ok_or_else(wrong)?;
    Ok(Stack { id: id.to_owned(), level: level.try_into().map_err(|_| wrong())? })
}

fn digits<const N: usize>(
    name: &str,
    value: &Json,
    expected: &'static str,
) -> Result<[u8; N], JsonError> {
    value.as_str().and_then(from_hex).ok_or_else(|| wrong(name, value, expected))
}

fn pairs(name: &str, value: Json) -> Result<Vec<(String, Value)>, JsonError> {
    match value {
        Json::Object(object) => {
            Ok(object.into_iter().map(|(name, value)| (name, value_of(value))).collect())
        }
        other => pairs_of(&other, 0)
            .ok_or_else(|| wrong(name, &other, "an object, or an array of [name, value]")),
    }
}

/// The pairs of an array of `[name, value]`.
fn pairs_of(value: &Json, depth: usize) -> Option<Vec<(String, Value)>> {
    let pair = |pair: &Json| match pair.as_array()?.as_slice() {
        [Json::String(name), value] => Some((name.clone(), value_at(value.clone(), depth + 1))),
        _ => None,
    };
    value.as_array()?.iter().map(pair).collect()
}

/// Reads a value in the form of [`put_value`].
pub(crate) fn value_of(json: Json) -> Value {
    value_at(json, 1)
}

fn value_at(json: Json, depth: usize) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::Text(text),
        Json::Object(object) if object.len() == 1 => match tagged(&object, depth) {
            Some(value) => value,
            None => map_at(object, depth),
        },
        Json::Object(object) => map_at(object, depth),
        Json::Array(_) if depth == MAX_DEPTH => Value::Text(json.to_string()),
        Json::Array(values) => {
            Value::Array(values.into_iter().map(|value| value_at(value, depth + 1)).collect())
        }
    }
}

fn map_at(object: Map<String, Json>, depth: usize) -> Value {
    if depth == MAX_DEPTH {
        return Value::Text(Json::Object(object).to_string());
    }
    let pair = |(name, value)| (name, value_at(value, depth + 1));
    Value::Map(object.into_iter().map(pair).collect())
}

/// The value of an object with one of our tags; none for any other object.
fn tagged(object: &Map<String, Json>, depth: usize) -> Option<Value> {
    let (tag, value) = object.iter().next()?;
    match (tag.as_str(), value.as_str()) {
        ("$int", Some(text)) => text.parse().ok().map(Value::Int),
        ("$double", Some("NaN")) => Some(Value::Double(f64::NAN)),
        ("$double", Some("Infinity")) => Some(Value::Double(f64::INFINITY)),
        ("$double", Some("-Infinity")) => Some(Value::Double(f64::NEG_INFINITY)),
        ("$bytes", Some(text)) => BASE64.decode(text).ok().map(Value::Bytes),
        ("$map", None) if depth < MAX_DEPTH => pairs_of(value, depth).map(Value::Map),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::tests::{any_records, same};
    use proptest::prelude::*;

    fn line(record: &Record) -> String {
        let mut bytes = Vec::new();
        write(record, &mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    fn value_line(value: Value) -> String {
        let mut bytes = Vec::new();
        put_value(&mut bytes, &value);
        String::from_utf8(bytes).unwrap()
    }

    proptest! {
        #[test]
        fn records_come_back(record in any_records()) {
            let line = line(&record);
            prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
            let read = read(line.as_bytes()).unwrap();
            prop_assert!(same(&read, &record), "{:?}\n{:?}\n{}", read, record, line);
        }

        #[test]
        fn foreign_lines_are_a_record_or_an_error(
            bytes: Vec<u8>,
            more in "(,\"[a-z$]{1,5}\":[\\[\\]{}0-9\",:$]{1,8}){0,3}",
        ) {
            let like = format!("{{\"time\":\"2026-11-21T03:00:00Z\"{more}}}");
            for line in [bytes, like.into_bytes()] {
                if let Ok(record) = read(&line) {
                    let mut again = Vec::new();
                    write(&record, &mut again);
                    prop_assert!(same(&super::read(&again).unwrap(), &record));
                }
            }
        }
    }

    #[test]
    fn values_have_their_defined_forms() {
        for (value, form) in [
            (Value::Null, "null"),
            (Value::Int(1 << 53), "9007199254740992"),
            (Value::Int((1 << 53) + 1), r#"{"$int":"9007199254740993"}"#),
            (Value::Int(i64::MIN), r#"{"$int":"-9223372036854775808"}"#),
            (Value::Double(1.0), "1.0"),
            (Value::Double(-0.0), "-0.0"),
            (Value::Double(1e300), "1e300"),
            (Value::Double(f64::NAN), r#"{"$double":"NaN"}"#),
            (Value::Double(f64::NEG_INFINITY), r#"{"$double":"-Infinity"}"#),
            (Value::Bytes(vec![0, 1]), r#"{"$bytes":"AAE="}"#),
            (Value::Map(vec![]), "{}"),
            (Value::Map(vec![("a".to_owned(), 1_i64.into())]), r#"{"a":1}"#),
            (Value::Map(vec![("$int".to_owned(), "1".into())]), r#"{"$map":[["$int","1"]]}"#),
        ] {
            assert_eq!(value_line(value.clone()), form);
            let read = value_of(serde_json::from_str(form).unwrap());
            assert_eq!(read.to_string(), value.to_string(), "{form}");
        }
        let twice = ["a", "a"].map(|name| (name.to_owned(), Value::Null));
        assert_eq!(value_line(Value::Map(twice.to_vec())), r#"{"$map":[["a",null],["a",null]]}"#);
    }

    #[test]
    fn what_lies_too_deep_becomes_the_text_that_shows_it() {
        let deep = (0..40).fold(Value::Int(7), |inner, _| Value::Array(vec![inner]));
        let read = value_of(serde_json::from_str(&value_line(deep.clone())).unwrap());
        assert_eq!((read.depth(), read.to_string()), (MAX_DEPTH, deep.to_string()));
        let nested = format!("{}7{}", "[".repeat(40), "]".repeat(40));
        let read = value_of(serde_json::from_str(&nested).unwrap());
        assert_eq!((read.depth(), read.to_string()), (MAX_DEPTH, nested));
        let hostile = format!(r#"{{"time":"2026-11-21T03:00:00Z","a":{}"#, "[".repeat(100_000));
        assert!(matches!(super::read(hostile.as_bytes()), Err(JsonError::Malformed { .. })));
    }

    #[test]
    fn members_of_others_become_data() {
        let line = br#"{"time":"2026-11-21T03:00:00Z","level":6,"msg":"x","n":{"a":[1,2.5]}}"#;
        let record = read(line).unwrap();
        assert_eq!(record.level, Level::WARNING);
        assert_eq!(record.time, "2026-11-21T03:00:00Z".parse().unwrap());
        assert_eq!(record.data[0], ("msg".to_owned(), "x".into()));
        assert_eq!(record.data[1].1.to_string(), "{a: [1, 2.5]}");
    }

    #[test]
    fn a_wrong_line_says_what_is_wrong() {
        let time = r#""time":"2026-11-21T03:00:00Z""#;
        for (line, expected) in [
            ("[1]".to_owned(), "the line \"[1]\" is not a JSON object"),
            ("{}".to_owned(), "the object has no \"time\""),
            (r#"{"time":5}"#.to_owned(), "\"time\" is \"5\", not a time like"),
            (format!(r#"{{{time},"level":12}}"#), "\"level\" is \"12\", not a level's"),
            (format!(r#"{{{time},"trace_id":"0g"}}"#), "not 32 hex digits"),
            (format!(r#"{{{time},"line":-1}}"#), "\"line\" is \"-1\", not a whole number"),
            (format!(r#"{{{time},"data":[1]}}"#), "not an object, or an array"),
            (" ".repeat(MAX_LINE_BYTES + 1), "the limit is 1500000"),
        ] {
            let told = read(line.as_bytes()).unwrap_err().to_string();
            assert!(told.contains(expected), "{told}");
        }
    }
}
