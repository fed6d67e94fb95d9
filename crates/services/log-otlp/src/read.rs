//! Converts OTLP's messages to records.
//!
//! Constraints. Input is foreign: its size, depth and number of records are bounded. A malformed
//! record is refused individually.

use bytes::Bytes;
use helio_core::{Tai, TraceId};
use helio_logging::{MAX_RECORD_BYTES, Record, Stack, Style, Value};
use prost::Message as _;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::names;
use crate::proto::{AnyValue, KeyValue, Kind, LogRecord, Resource, Scope, Values, lazy, raw};
use crate::value::{level, map_of, value_of};

/// The most records of a request. By default SDKs send 512, and collectors 8,192.
pub const MAX_REQUEST_RECORDS: usize = 65_536;
/// The most bytes of an encoded record: an escaped control character has six in JSON.
pub const MAX_LOG_RECORD_BYTES: usize = 6 * MAX_RECORD_BYTES;
/// The most bytes of a request's records, each with a copy of its resource's attributes: many times
/// a normal request, but small for a service's memory.
pub const MAX_EXPANDED_BYTES: usize = 64 << 20;
/// The approximate overhead of a record.
const RECORD_OVERHEAD_BYTES: usize = 512;
/// The most bytes of a reported reason.
const MAX_REASON_BYTES: usize = 300;

/// A request that cannot be read. None of its records is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The request is malformed.
    #[error("invalid ExportLogsServiceRequest in {format}: {cause}")]
    Malformed {
        /// Protobuf or JSON.
        format: &'static str,
        /// What is wrong.
        cause: String,
    },
    /// The request has too many records.
    #[error("the request has more than {MAX_REQUEST_RECORDS} log records; send smaller batches")]
    TooMany,
}

/// The contents of a request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Received {
    /// The records.
    pub records: Vec<Record>,
    /// The number of malformed records.
    pub refused: u64,
    /// The reason for the first of these.
    pub reason: Option<String>,
}

/// Reads an `ExportLogsServiceRequest`, or a `LogsData`, in Protobuf. A record without a time gets
/// its observed time, or else `now`.
///
/// # Errors
/// [`ReadError`].
pub fn from_protobuf(bytes: Bytes, now: Tai) -> Result<Received, ReadError> {
    let wrong = |error: prost::DecodeError| malformed("Protobuf", &error);
    let mut reading = RequestReader::at(now);
    for logs in lazy::Request::decode(bytes).map_err(wrong)?.resource_logs {
        let logs = lazy::ResourceLogs::decode(logs).map_err(wrong)?;
        let of_resource = ResourceFields::of(logs.resource.unwrap_or_default(), logs.schema_url);
        for logs in logs.scope_logs {
            let logs = lazy::ScopeLogs::decode(logs).map_err(wrong)?;
            let shared =
                ScopeFields::of(&of_resource, logs.scope.unwrap_or_default(), logs.schema_url);
            for bytes in logs.log_records {
                let length = bytes.len();
                reading.record(&shared, length, || {
                    LogRecord::decode(bytes).map_err(|error| error.to_string())
                })?;
            }
        }
    }
    Ok(reading.received)
}

/// Reads the same in OTLP's JSON.
///
/// # Errors
/// [`ReadError`].
pub fn from_json(bytes: &[u8], now: Tai) -> Result<Received, ReadError> {
    let wrong = |error: serde_json::Error| malformed("JSON", &error);
    let mut reading = RequestReader::at(now);
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(malformed("JSON", &"it is not an object"));
    }
    let request: raw::Request<'_> = serde_json::from_slice(bytes).map_err(wrong)?;
    for logs in request.resource_logs {
        let logs: raw::ResourceLogs<'_> = serde_json::from_str(logs.get()).map_err(wrong)?;
        let of_resource = ResourceFields::of(logs.resource.unwrap_or_default(), logs.schema_url);
        for logs in logs.scope_logs {
            let logs: raw::ScopeLogs<'_> = serde_json::from_str(logs.get()).map_err(wrong)?;
            let shared =
                ScopeFields::of(&of_resource, logs.scope.unwrap_or_default(), logs.schema_url);
            for text in logs.log_records {
                let text = RawValue::get(text);
                reading.record(&shared, text.len(), || {
                    serde_json::from_str(text).map_err(|error| error.to_string())
                })?;
            }
        }
    }
    Ok(reading.received)
}

fn malformed(format: &'static str, cause: &dyn std::fmt::Display) -> ReadError {
    ReadError::Malformed { format, cause: reason(cause.to_string()) }
}

/// Truncates a reason for responses and logs.
pub(crate) fn reason(mut text: String) -> String {
    if text.len() > MAX_REASON_BYTES {
        let whole = (0..=MAX_REASON_BYTES).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(whole.unwrap_or(0));
        text.push_str("...");
    }
    text
}

struct RequestReader {
    now: Tai,
    seen: usize,
    bytes: usize,
    received: Received,
}

impl RequestReader {
    fn at(now: Tai) -> Self {
        Self { now, seen: 0, bytes: 0, received: Received::default() }
    }

    fn record(
        &mut self,
        shared: &ScopeFields,
        length: usize,
        decode: impl FnOnce() -> Result<LogRecord, String>,
    ) -> Result<(), ReadError> {
        self.seen += 1;
        if self.seen > MAX_REQUEST_RECORDS {
            return Err(ReadError::TooMany);
        }
        let whole = length + shared.bytes + RECORD_OVERHEAD_BYTES;
        let read = if length > MAX_LOG_RECORD_BYTES {
            Err(format!("it has {length} bytes, the limit is {MAX_LOG_RECORD_BYTES}; shorten it"))
        } else if self.bytes.saturating_add(whole) > MAX_EXPANDED_BYTES {
            Err(format!(
                "with what their resource says, the records come to more than \
                 {MAX_EXPANDED_BYTES} bytes; send smaller batches"
            ))
        } else {
            decode()
        };
        match read {
            Ok(log_record) => {
                self.bytes += whole;
                self.received.records.push(record(shared, log_record, self.now));
            }
            Err(cause) => {
                self.received.refused += 1;
                let place = self.seen;
                let told = || reason(format!("log record {place} of the request: {cause}"));
                self.received.reason.get_or_insert_with(told);
            }
        }
        Ok(())
    }
}

/// The fields and data shared by a resource's records.
struct ResourceFields {
    record: Record,
    data: Vec<(String, Value)>,
    bytes: usize,
}

impl ResourceFields {
    fn of(resource: Resource, schema_url: String) -> Self {
        let bytes = resource.encoded_len() + schema_url.len();
        let mut record = Record::default();
        let (mut program, mut pid) = (String::new(), None);
        let mut others = Vec::new();
        for KeyValue { key, value } in resource.attributes {
            let field = match key.as_str() {
                names::HOST => Some(&mut record.host),
                names::SERVICE => Some(&mut record.producer),
                names::PROGRAM => Some(&mut program),
                _ => None,
            };
            match (field, value) {
                (Some(field), Some(AnyValue { value: Some(Kind::Text(text)) }))
                    if field.is_empty() && !text.is_empty() =>
                {
                    *field = text;
                }
                (None, Some(AnyValue { value: Some(Kind::Int(number)) }))
                    if key == names::PID && pid.is_none() && u32::try_from(number).is_ok() =>
                {
                    pid = Some(number);
                }
                (_, value) => others.push(KeyValue { key, value }),
            }
        }
        record.process = match pid {
            Some(pid) if program.is_empty() => pid.to_string(),
            Some(pid) => format!("{program}:{pid}"),
            None => program,
        };
        let mut data = Vec::new();
        push_text(&mut data, names::RESOURCE_SCHEMA, schema_url);
        push_map(&mut data, names::RESOURCE_ATTRIBUTES, others);
        Self { record, data, bytes }
    }
}

fn push_text(data: &mut Vec<(String, Value)>, name: &str, text: String) {
    if !text.is_empty() {
        data.push((name.to_owned(), Value::Text(text)));
    }
}

fn push_map(data: &mut Vec<(String, Value)>, name: &str, pairs: Vec<KeyValue>) {
    if !pairs.is_empty() {
        data.push((name.to_owned(), Value::Map(map_of(pairs))));
    }
}

/// The fields and data shared by a logger's records.
struct ScopeFields {
    record: Record,
    /// Their last data pairs.
    data: Vec<(String, Value)>,
    bytes: usize,
}

impl ScopeFields {
    fn of(resource: &ResourceFields, scope: Scope, schema_url: String) -> Self {
        let bytes = resource.bytes + scope.encoded_len() + schema_url.len();
        let record = Record { logger: scope.name, ..resource.record.clone() };
        let mut data = Vec::new();
        push_text(&mut data, names::SCOPE_VERSION, scope.version);
        push_text(&mut data, names::SCOPE_SCHEMA, schema_url);
        push_map(&mut data, names::SCOPE_ATTRIBUTES, scope.attributes);
        data.extend(resource.data.iter().cloned());
        Self { record, data, bytes }
    }
}

fn record(shared: &ScopeFields, from: LogRecord, now: Tai) -> Record {
    let (level, number, severity_text) = level(from.severity_number, &from.severity_text);
    let mut record = Record {
        level,
        log_id: from.event_name,
        flags: (from.flags & 0xff) as u8,
        ..shared.record.clone()
    };
    let mut fields = Fields { record: &mut record, filled: false, time: None, hard: Vec::new() };
    for KeyValue { key, value } in from.attributes {
        fields.attribute(key, value);
    }
    let Fields { filled, time, hard, .. } = fields;
    record.data = merged(std::mem::take(&mut record.data), hard);
    let mut wrong = Vec::new();
    record.observed = record.observed.or_else(|| tai(from.observed_time_unix_nano));
    let unix = tai(from.time_unix_nano);
    if unix.is_none() && from.time_unix_nano != 0 {
        wrong.push((names::WRONG_TIME, Value::from(from.time_unix_nano)));
    }
    record.time = time.or(unix).or(record.observed).unwrap_or(now);
    record.trace = id(from.trace_id, names::WRONG_TRACE, &mut wrong).map(TraceId);
    record.span = id(from.span_id, names::WRONG_SPAN, &mut wrong);
    let wrong = wrong.into_iter().map(|(name, value)| (name.to_owned(), value));
    record.data.extend(wrong);
    let mut last = |name: &str, value| record.data.push((name.to_owned(), value));
    if let Some(number) = number {
        last(names::SEVERITY_NUMBER, Value::from(number));
    }
    if let Some(text) = severity_text {
        last(names::SEVERITY_TEXT, Value::Text(text));
    }
    record.text = match value_of(from.body) {
        _ if filled => None,
        Value::Null => None,
        Value::Text(text) => Some(text),
        body => {
            let text = body.to_string();
            last(names::BODY, body);
            Some(text)
        }
    };
    if from.dropped_attributes_count > 0 {
        last(names::DROPPED, Value::from(from.dropped_attributes_count));
    }
    record.data.extend(shared.data.iter().cloned());
    record
}

/// Inserts data pairs at their indices.
fn merged(
    plain: Vec<(String, Value)>,
    mut hard: Vec<(usize, String, Value)>,
) -> Vec<(String, Value)> {
    if hard.is_empty() {
        return plain;
    }
    hard.sort_by_key(|(place, ..)| *place);
    let (mut all, mut plain) = (Vec::with_capacity(plain.len() + hard.len()), plain.into_iter());
    for (place, name, value) in hard {
        let before = place.saturating_sub(all.len());
        all.extend(plain.by_ref().take(before));
        all.push((name, value));
    }
    all.extend(plain);
    all
}

/// A time of OTLP; 0 is none.
fn tai(unix: u64) -> Option<Tai> {
    let unix = i64::try_from(unix).ok().filter(|unix| *unix > 0)?;
    Some(Tai::from_unix_nanos(unix))
}

/// An id. Zeros mean none; an id of another length becomes data.
fn id<const N: usize>(
    bytes: Vec<u8>,
    name: &'static str,
    wrong: &mut Vec<(&'static str, Value)>,
) -> Option<[u8; N]> {
    match <[u8; N]>::try_from(bytes) {
        Ok(id) => Some(id).filter(|id| *id != [0; N]),
        Err(bytes) if bytes.is_empty() => None,
        Err(bytes) => {
            wrong.push((name, Value::Bytes(bytes)));
            None
        }
    }
}

/// Converts attributes to fields.
struct Fields<'a> {
    record: &'a mut Record,
    filled: bool,
    time: Option<Tai>,
    /// Data pairs, with their indices among all.
    hard: Vec<(usize, String, Value)>,
}

impl Fields<'_> {
    /// Sets an attribute's field if it is not set yet; otherwise adds data.
    fn attribute(&mut self, key: String, value: Option<AnyValue>) {
        let left = match value.and_then(|value| value.value) {
            None => None,
            Some(Kind::Text(text)) => match self.text(&key, text) {
                Some(text) => Some(Kind::Text(text)),
                None => return,
            },
            Some(Kind::Int(number)) if self.int(&key, number) => return,
            Some(Kind::Bool(true)) if self.flag(&key) => return,
            Some(Kind::Array(values)) => match self.array(&key, values) {
                Some(values) => Some(Kind::Array(values)),
                None => return,
            },
            other => other,
        };
        self.record.data.push((key, value_of(Some(AnyValue { value: left }))));
    }

    /// Sets a text field; returns the text if it is not one.
    fn text(&mut self, key: &str, text: String) -> Option<String> {
        let record = &mut *self.record;
        let field = match key {
            names::TEMPLATE => &mut record.site.template,
            names::STACK_ID if record.stack.is_none() => {
                record.stack = Some(Stack { id: text, level: 0 });
                return None;
            }
            names::STYLE if record.site.style == Style::Braces && text == names::PERCENT => {
                record.site.style = Style::Percent;
                return None;
            }
            // A sequence that is too large for an integer.
            names::SEQUENCE if record.sequence == 0 => {
                let number = text.parse().ok().filter(|number| *number > i64::MAX as u64);
                record.sequence = number.unwrap_or(0);
                return number.is_none().then_some(text);
            }
            key => match names::text_field(key).and_then(|field| field.member_mut(record)) {
                Some(member) => member,
                None => return Some(text),
            },
        };
        if text.is_empty() || !field.is_empty() {
            return Some(text);
        }
        *field = text;
        None
    }

    /// Sets a numeric field; returns whether it is one.
    fn int(&mut self, key: &str, number: i64) -> bool {
        let record = &mut *self.record;
        match key {
            names::LINE | names::LINE_OLD if record.site.line == 0 && number > 0 => {
                u32::try_from(number).map(|line| record.site.line = line).is_ok()
            }
            names::STACK_LEVEL => match (&mut record.stack, i32::try_from(number)) {
                (Some(stack), Ok(level)) if stack.level == 0 => {
                    stack.level = level;
                    true
                }
                _ => false,
            },
            names::SEQUENCE if record.sequence == 0 && number > 0 => {
                record.sequence = number.unsigned_abs();
                true
            }
            names::TIME if self.time.is_none() => {
                self.time = Some(Tai::from_nanos(number));
                true
            }
            names::OBSERVED if record.observed.is_none() => {
                record.observed = Some(Tai::from_nanos(number));
                true
            }
            _ => false,
        }
    }

    /// Sets a flag; returns whether it is one.
    fn flag(&mut self, key: &str) -> bool {
        let field = match key {
            names::EVERYONE => &mut self.record.audiences.everyone,
            names::FILLED => &mut self.filled,
            _ => return false,
        };
        !std::mem::replace(field, true)
    }

    /// Sets a list field; returns the values if it is not one.
    fn array(&mut self, key: &str, values: Values) -> Option<Values> {
        let record = &mut *self.record;
        let field = match key {
            names::AUDIENCES => &mut record.audiences.names,
            names::NAMES => &mut record.site.names,
            names::ARGUMENTS if record.arguments.is_empty() && !values.values.is_empty() => {
                let values = values.values.into_iter();
                record.arguments = values.map(|value| value_of(Some(value))).collect();
                return None;
            }
            names::DATA if self.hard.is_empty() => {
                let pairs: Option<Vec<_>> = values.values.iter().map(hard).collect();
                self.hard = pairs.unwrap_or_default();
                return self.hard.is_empty().then_some(values);
            }
            _ => return Some(values),
        };
        let texts = values.values.iter().map(|value| match &value.value {
            // In packets line breaks separate the names of arguments.
            Some(Kind::Text(text)) if !text.contains('\n') => Some(text.clone()),
            _ => None,
        });
        let texts: Option<Vec<_>> = texts.collect();
        match texts.filter(|texts| field.is_empty() && !texts.is_empty()) {
            Some(texts) => *field = texts,
            None => return Some(values),
        }
        None
    }
}

/// A data pair that could not be an attribute: its index among all, its name and its value.
fn hard(value: &AnyValue) -> Option<(usize, String, Value)> {
    let Some(Kind::Array(Values { values })) = &value.value else { return None };
    let [place, name, value] = values.as_slice() else { return None };
    let (Some(Kind::Int(place)), Some(Kind::Text(name))) = (&place.value, &name.value) else {
        return None;
    };
    Some((usize::try_from(*place).ok()?, name.clone(), value_of(Some(value.clone()))))
}
