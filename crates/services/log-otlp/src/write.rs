//! Converts records to OTLP's messages.

use std::collections::HashMap;

use helio_core::Tai;
use helio_logging::{Record, Style, TextField, Value};
use prost::Message as _;

use crate::names;
use crate::proto::{
    AnyValue, KeyValue, Kind, LogRecord, Request, Resource, ResourceLogs, Scope, ScopeLogs, Values,
};
use crate::value::{any_value, array, attribute, attributes, int, level, text};

/// Encodes records as an `ExportLogsServiceRequest` in Protobuf, which is also a `LogsData`.
/// Records of one resource and one logger are grouped, in their order.
#[must_use]
pub fn to_protobuf(records: &[Record]) -> Vec<u8> {
    request(records).encode_to_vec()
}

/// Encodes records in OTLP's JSON.
#[must_use]
pub fn to_json(records: &[Record]) -> Vec<u8> {
    serde_json::to_vec(&request(records)).expect("all its maps have texts as names")
}

fn request(records: &[Record]) -> Request {
    let mut request = Request::default();
    // The index in the request, by the encoded resource or scope.
    let mut resources: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut scopes: HashMap<(usize, Vec<u8>), usize> = HashMap::new();
    for record in records {
        let (resource, scope, log_record) = split(record);
        let all = &mut request.resource_logs;
        let place = *resources.entry(resource.encode_to_vec()).or_insert(all.len());
        if place == all.len() {
            all.push(resource);
        }
        let of_resource = &mut all[place].scope_logs;
        let scope_key = (place, scope.encode_to_vec());
        let place = *scopes.entry(scope_key).or_insert(of_resource.len());
        if place == of_resource.len() {
            of_resource.push(scope);
        }
        of_resource[place].log_records.push(log_record);
    }
    request
}

/// Splits a record into resource, scope and log record.
fn split(record: &Record) -> (ResourceLogs, ScopeLogs, LogRecord) {
    let (data, of_otlp) = OtlpOnlyData::taken_from(record);
    let mut scope = Scope { name: record.logger.clone(), ..Scope::default() };
    scope.version = of_otlp.scope_version.unwrap_or_default().to_owned();
    scope.attributes = attributes(of_otlp.scope_attributes);
    let scope = ScopeLogs {
        scope: Some(scope),
        schema_url: of_otlp.scope_schema.unwrap_or_default().to_owned(),
        ..ScopeLogs::default()
    };
    let mut resource = resource(record);
    resource.extend(attributes(of_otlp.resource_attributes));
    let resource = ResourceLogs {
        resource: Some(Resource { attributes: resource }),
        schema_url: of_otlp.resource_schema.unwrap_or_default().to_owned(),
        ..ResourceLogs::default()
    };
    let number = of_otlp.severity_number.unwrap_or(record.level.severity().into());
    let severity_text = of_otlp.severity_text.unwrap_or(record.level.name());
    let log_record = LogRecord {
        time_unix_nano: unix(record.time).unwrap_or(0),
        observed_time_unix_nano: record.observed.and_then(unix).unwrap_or(0),
        severity_number: number,
        severity_text: severity_text.to_owned(),
        body: of_otlp.body.map(any_value).or_else(|| body(record)),
        attributes: of_record(record, data),
        dropped_attributes_count: of_otlp.dropped.unwrap_or(0),
        flags: record.flags.into(),
        trace_id: record.trace.map(|id| id.0.to_vec()).unwrap_or_default(),
        span_id: record.span.map(|id| id.to_vec()).unwrap_or_default(),
        event_name: record.log_id.clone(),
    };
    (resource, scope, log_record)
}

/// The time in OTLP; none if it does not round-trip, as in a leap second.
fn unix(time: Tai) -> Option<u64> {
    let unix = time.unix_nanos();
    let same = unix > 0 && Tai::from_unix_nanos(unix) == time;
    same.then(|| unix.unsigned_abs())
}

/// The body; an empty text is present if it is not formatted from a template.
fn body(record: &Record) -> Option<AnyValue> {
    match &record.text {
        Some(message) => Some(text(message)),
        None => Some(record.message()).filter(|message| !message.is_empty()).map(|m| text(&m)),
    }
}

/// The sender as attributes of a resource.
fn resource(record: &Record) -> Vec<KeyValue> {
    let mut all = Vec::new();
    put_text(&mut all, names::SERVICE, &record.producer);
    put_text(&mut all, names::HOST, &record.host);
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| n.to_string() == *text);
    let process = record.process.as_str();
    let (program, pid) = match process.rsplit_once(':') {
        Some((program, pid)) if !program.is_empty() && number(pid).is_some() => {
            (program, number(pid))
        }
        _ if number(process).is_some() => ("", number(process)),
        _ => (process, None),
    };
    put_text(&mut all, names::PROGRAM, program);
    if let Some(pid) = pid {
        all.push(attribute(names::PID, int(pid.into())));
    }
    all
}

fn put_text(all: &mut Vec<KeyValue>, name: &str, value: &str) {
    if !value.is_empty() {
        all.push(attribute(name, text(value)));
    }
}

fn texts(all: &[String]) -> AnyValue {
    let values = all.iter().map(|value| text(value)).collect();
    AnyValue { value: Some(Kind::Array(Values { values })) }
}

fn flag() -> AnyValue {
    AnyValue { value: Some(Kind::Bool(true)) }
}

/// The attributes: fields that OTLP does not have, and the data.
fn of_record(record: &Record, data: &[(String, Value)]) -> Vec<KeyValue> {
    let mut all = Vec::new();
    let site = &record.site;
    for of_site in [true, false] {
        for field in TextField::ALL.into_iter().filter(|field| field.is_of_site() == of_site) {
            if let Some(name) = field.otlp_name() {
                put_text(&mut all, name, &field.text(record));
            }
        }
    }
    put_text(&mut all, names::TEMPLATE, &site.template);
    let mut put = |name, value| all.push(attribute(name, value));
    if site.line > 0 {
        put(names::LINE, int(site.line.into()));
    }
    if let Some(stack) = &record.stack {
        put(names::STACK_ID, text(&stack.id));
        put(names::STACK_LEVEL, int(stack.level.into()));
    }
    if !record.audiences.names.is_empty() {
        put(names::AUDIENCES, texts(&record.audiences.names));
    }
    if record.audiences.everyone {
        put(names::EVERYONE, flag());
    }
    if site.style == Style::Percent {
        put(names::STYLE, text(names::PERCENT));
    }
    if !site.names.is_empty() {
        put(names::NAMES, texts(&site.names));
    }
    if !record.arguments.is_empty() {
        put(names::ARGUMENTS, AnyValue { value: Some(Kind::Array(array(&record.arguments))) });
    }
    if record.text.is_none() && body(record).is_some() {
        put(names::FILLED, flag());
    }
    if record.sequence > 0 {
        put(names::SEQUENCE, any_value(&Value::from(record.sequence)));
    }
    if unix(record.time).is_none() {
        put(names::TIME, int(record.time.nanos()));
    }
    if let Some(observed) = record.observed.filter(|time| unix(*time).is_none()) {
        put(names::OBSERVED, int(observed.nanos()));
    }
    put_data(&mut all, data);
    all
}

/// Adds data as attributes. Pairs with an empty, repeated or reserved name are collected in one
/// attribute, with their indices among all.
fn put_data(all: &mut Vec<KeyValue>, data: &[(String, Value)]) {
    let mut others = Vec::new();
    let mut there = std::collections::HashSet::new();
    for (place, (name, value)) in data.iter().enumerate() {
        let taken = names::is_field(name);
        if name.is_empty() || taken || !there.insert(name.as_str()) {
            let values = vec![int(place as i64), text(name), any_value(value)];
            others.push(AnyValue { value: Some(Kind::Array(Values { values })) });
        } else {
            all.push(attribute(name, any_value(value)));
        }
    }
    if !others.is_empty() {
        let value = Some(Kind::Array(Values { values: others }));
        all.push(attribute(names::DATA, AnyValue { value }));
    }
}

/// OTLP's values without a field: the last data pairs of a record that was received by OTLP. They
/// are restored.
#[derive(Default)]
struct OtlpOnlyData<'a> {
    severity_number: Option<i32>,
    severity_text: Option<&'a str>,
    body: Option<&'a Value>,
    dropped: Option<u32>,
    scope_version: Option<&'a str>,
    scope_schema: Option<&'a str>,
    scope_attributes: &'a [(String, Value)],
    resource_schema: Option<&'a str>,
    resource_attributes: &'a [(String, Value)],
}

impl<'a> OtlpOnlyData<'a> {
    /// Splits the data. Pairs that only resemble such values remain data.
    fn taken_from(record: &'a Record) -> (&'a [(String, Value)], Self) {
        let mut last = TrailingPairs(&record.data);
        let mut all = Self::default();
        let known = |pairs: &[(String, Value)]| {
            pairs.iter().any(|(name, _)| names::OF_RESOURCES.contains(&name.as_str()))
        };
        let pairs = last.take(names::RESOURCE_ATTRIBUTES, map).filter(|pairs| !known(pairs));
        all.resource_attributes = last.keep(pairs).unwrap_or_default();
        let schema = last.take(names::RESOURCE_SCHEMA, whole_text);
        all.resource_schema = last.keep(schema);
        let pairs = last.take(names::SCOPE_ATTRIBUTES, map);
        all.scope_attributes = last.keep(pairs).unwrap_or_default();
        let schema = last.take(names::SCOPE_SCHEMA, whole_text);
        all.scope_schema = last.keep(schema);
        let version = last.take(names::SCOPE_VERSION, whole_text);
        all.scope_version = last.keep(version);
        let dropped = last.take(names::DROPPED, |value| match value {
            Value::Int(count) => u32::try_from(*count).ok().filter(|count| *count > 0),
            _ => None,
        });
        all.dropped = last.keep(dropped);
        let shown = |value: &Value| record.text.as_ref() == Some(&value.to_string());
        let body = last.take(names::BODY, |value| match value {
            Value::Text(_) | Value::Null => None,
            value => Some(value).filter(|value| shown(value)),
        });
        all.body = last.keep(body);
        let before = last.0;
        let severity_text = last.take(names::SEVERITY_TEXT, whole_text);
        all.severity_text = last.keep(severity_text);
        let number = last.take(names::SEVERITY_NUMBER, |value| match value {
            Value::Int(number) => i32::try_from(*number).ok(),
            _ => None,
        });
        all.severity_number = last.keep(number);
        if !all.says_level(record) {
            (all.severity_number, all.severity_text, last.0) = (None, None, before);
        }
        (last.0, all)
    }

    /// Whether the severity reads back as the record's level and the same pairs.
    fn says_level(&self, record: &Record) -> bool {
        let number = self.severity_number.unwrap_or(record.level.severity().into());
        let text = self.severity_text.unwrap_or(record.level.name());
        let expected = self.severity_text.map(str::to_owned);
        level(number, text) == (record.level, self.severity_number, expected)
    }
}

/// The remaining data, taken from the end.
struct TrailingPairs<'a>(&'a [(String, Value)]);

impl<'a> TrailingPairs<'a> {
    fn take<T>(&self, name: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Option<T> {
        let (last, value) = self.0.last()?;
        if last == name { read(value) } else { None }
    }

    /// Removes the last pair if it was taken.
    fn keep<T>(&mut self, taken: Option<T>) -> Option<T> {
        if taken.is_some() {
            self.0 = &self.0[..self.0.len() - 1];
        }
        taken
    }
}

fn map(value: &Value) -> Option<&[(String, Value)]> {
    match value {
        Value::Map(pairs) if !pairs.is_empty() => Some(pairs),
        _ => None,
    }
}

fn whole_text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}
