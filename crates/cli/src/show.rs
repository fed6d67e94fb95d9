//! Samples, gaps and other events of a subscription as text and JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use helio_bus::{Event, GapCause, Origin, Sample};
use serde_json::{Map, Value, json};

use crate::error::CliResult;
use crate::value::Values;

/// Bytes as text, if they are printable UTF-8. Keys of typed values may look like text.
fn text_of(bytes: &[u8]) -> Option<&str> {
    let strange = |c: char| c.is_control() && !c.is_ascii_whitespace();
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains(strange))
}

/// Adds bytes as text under `name`, else as base64 under `name_base64`.
fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match text_of(bytes) {
        Some(text) => object.insert(name.to_owned(), text.into()),
        None => object.insert(format!("{name}_base64"), BASE64.encode(bytes).into()),
    };
}

/// Adds a header; the values of a name that other programs repeat become a list.
fn put_again(headers: &mut Map<String, Value>, name: String, value: Value) {
    let value = match headers.remove(&name) {
        None => value,
        Some(Value::Array(mut all)) => {
            all.push(value);
            all.into()
        }
        Some(first) => vec![first, value].into(),
    };
    headers.insert(name, value);
}

/// A sample as one JSON object: its header's fields, then `value` (typed) or `payload` (bytes). The
/// value of a null is null.
pub(crate) fn sample_json(sample: &Sample, values: &mut Values) -> CliResult<Value> {
    let header = &sample.header;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("topic", sample.topic.as_str().into());
    put("partition", sample.partition.into());
    put("offset", sample.offset.into());
    put("producer", header.producer.name.as_str().into());
    put("incarnation", header.producer.incarnation.into());
    put("sequence", header.sequence.into());
    put("time", header.time.to_utc_string().into());
    put("tai_ns", header.time.nanos().into());
    if header.schema.0 != 0 {
        put("schema", header.schema.to_string().into());
    }
    if header.level != 0 {
        put("level", header.level.into());
    }
    if let Some(trace) = header.trace {
        let hex: String = trace.0.iter().map(|b| format!("{b:02x}")).collect();
        put("trace", hex.into());
    }
    if sample.origin == Origin::History {
        put("history", true.into());
    }
    if !sample.key.is_empty() {
        put_bytes(&mut object, "key", &sample.key);
    }
    if !sample.headers.is_empty() {
        let mut headers = Map::new();
        for (name, value) in sample.headers.as_ref() {
            let mut one = Map::new();
            put_bytes(&mut one, name, value);
            one.into_iter().for_each(|(name, value)| put_again(&mut headers, name, value));
        }
        object.insert("headers".to_owned(), headers.into());
    }
    if sample.is_null() {
        object.insert("value".to_owned(), Value::Null);
        return Ok(Value::Object(object));
    }
    match values.decode(header.schema, &sample.payload)? {
        Some(value) => drop(object.insert("value".to_owned(), value)),
        None => put_bytes(&mut object, "payload", &sample.payload),
    }
    Ok(Value::Object(object))
}

/// A sample as one line of text.
pub(crate) fn sample_line(sample: &Sample, values: &mut Values) -> CliResult<String> {
    let header = &sample.header;
    let producer = &header.producer;
    let key = match text_of(&sample.key) {
        Some("") => String::new(),
        Some(text) => format!(" [{}]", text.escape_debug()),
        None => format!(" [base64:{}]", BASE64.encode(&sample.key)),
    };
    let decoded = match sample.is_null() {
        true => Some(Value::Null),
        false => values.decode(header.schema, &sample.payload)?,
    };
    let value = match decoded {
        Some(value) => value.to_string(),
        None => match text_of(&sample.payload) {
            Some(text) => text.escape_debug().to_string(),
            None => format!("{} bytes", sample.payload.len()),
        },
    };
    let (time, name) = (header.time, &producer.name);
    Ok(format!("{time} {name}#{}.{}{key} {value}", producer.incarnation, header.sequence))
}

/// Another event of a subscription as JSON; `None` for internal events.
pub(crate) fn event_json(event: &Event) -> Option<Value> {
    Some(match event {
        Event::Gap(gap) => {
            let (cause, from, to) = match &gap.cause {
                GapCause::Retention { from, to } => ("retention", from, to),
                GapCause::Overload { from, to } => ("overload", from, to),
                GapCause::Damaged { from, to } => ("damaged", from, to),
                GapCause::Replaced { from, to } => ("replaced", from, to),
                GapCause::Sequence { from, to, .. } => ("sequence", from, to),
                GapCause::Behind { from, to, .. } => ("behind", from, to),
                _ => ("other", &0, &0),
            };
            let (partition, lost) = (gap.partition, gap.lost);
            json!({"gap": {
                "partition": partition, "lost": lost, "cause": cause, "from": from, "to": to,
            }})
        }
        Event::Undecodable(undecodable) => json!({"undecodable": {
            "partition": undecodable.sample.partition,
            "offset": undecodable.sample.offset,
            "schema": undecodable.schema.to_string(),
            "reason": undecodable.reason,
        }}),
        Event::Fenced(fenced) => json!({"fenced": {
            "partition": fenced.partition,
            "producer": fenced.producer.name.as_str(),
            "incarnation": fenced.producer.incarnation,
            "newer": fenced.newer,
        }}),
        Event::DeadlineMissed(missed) => json!({"deadline_missed": {
            "key": String::from_utf8_lossy(&missed.key),
            "deadline_s": missed.deadline.as_secs_f64(),
            "in_a_row": missed.in_a_row,
        }}),
        Event::Liveliness(liveliness) => json!({"liveliness": {
            "producer": liveliness.producer.name.as_str(),
            "incarnation": liveliness.producer.incarnation,
            "alive": liveliness.alive == helio_bus::Alive::Yes,
        }}),
        Event::Outage(outage) => json!({"outage": match outage {
            helio_bus::Outage::Lost { cause } => json!({"reachable": false, "cause": cause}),
            helio_bus::Outage::Restored => json!({"reachable": true}),
        }}),
        Event::Incompatible(told) => json!({"incompatible": {"policy": told.policy}}),
        Event::Assigned(partitions) => json!({"assigned": partitions}),
        _ => return None,
    })
}
