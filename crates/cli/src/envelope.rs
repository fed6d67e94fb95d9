//! Samples in a file together with their metadata: `helio record --envelope`.
//!
//! A datum is an Avro record of the name [`NAME`], outside any namespace, so that the names in the
//! value's schema do not change:
//!
//! | field | type | contents |
//! | --- | --- | --- |
//! | `key` | bytes | empty for none |
//! | `tai_ns` | long | time of publication, TAI nanoseconds since 1970 |
//! | `level` | int | the routing byte |
//! | `trace` | bytes | sixteen bytes, or none |
//! | `producer`, `incarnation`, `sequence` | string, long, long | as in the sample's header |
//! | `partition`, `offset` | int, long | its position |
//! | `headers` | map of bytes | the sample's headers; files of earlier versions lack the field |
//! | `value` | the topic's schema, or bytes | the rest of the datum |

use helio_bridge::hops;
use helio_bus::{Sample, Tai, TraceId};
use helio_core::Headers;
use helio_core::codec::wire::{Reader, put_bytes, put_long};
use helio_core::schema::Schema;
use serde_json::{Value, json};

use crate::error::{CliError, CliResult};

/// The record's name.
const NAME: &str = "HeliographSample";
/// The fields before the value, with their types.
const FIELDS: [(&str, &str); 10] = [
    ("key", "bytes"),
    ("tai_ns", "long"),
    ("level", "int"),
    ("trace", "bytes"),
    ("producer", "string"),
    ("incarnation", "long"),
    ("sequence", "long"),
    ("partition", "int"),
    ("offset", "long"),
    (HEADERS, "map"),
];
/// The last field before the value.
const HEADERS: &str = "headers";

/// The metadata that `play` restores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SampleMetadata {
    /// Its key; empty is none.
    pub(crate) key: Vec<u8>,
    /// The time of publication, if known.
    pub(crate) time: Option<Tai>,
    /// The routing byte.
    pub(crate) level: u8,
    /// The trace identity.
    pub(crate) trace: Option<TraceId>,
    /// The sample's headers.
    pub(crate) headers: Headers,
}

/// The schema of enveloped values.
pub(crate) fn schema(value: &Schema) -> CliResult<Schema> {
    let refused = |e: &dyn std::fmt::Display| {
        CliError::Refused(format!("the topic's schema does not fit an envelope: {e}"))
    };
    let value: Value =
        serde_json::from_str(&value.to_json().to_string()).map_err(|e| refused(&e))?;
    let mut fields: Vec<Value> =
        FIELDS.iter().map(|(name, kind)| json!({"name": name, "type": type_of(kind)})).collect();
    fields.push(json!({"name": "value", "type": value}));
    let whole = json!({"type": "record", "name": NAME, "fields": fields});
    Schema::parse(&whole.to_string()).map_err(|e| refused(&e))
}

/// A field's type in JSON.
fn type_of(kind: &str) -> Value {
    if kind == "map" { json!({"type": kind, "values": "bytes"}) } else { kind.into() }
}

/// The fields before an envelope's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// All fields.
    Whole,
    /// No headers, as earlier versions wrote.
    Headerless,
}

/// The schema of the values and the fields before them, if a schema is an envelope's.
pub(crate) fn value_schema(schema: &Schema) -> Option<(Schema, Form)> {
    if schema.name() != Some(NAME) {
        return None;
    }
    let whole: Value = serde_json::from_str(&schema.to_json().to_string()).ok()?;
    let (value, before) = whole["fields"].as_array()?.split_last()?;
    let same = |(field, (name, kind)): (&Value, &(&str, &str))| {
        field["name"] == *name && field["type"] == type_of(kind)
    };
    let form = match FIELDS.len() - before.len().min(FIELDS.len()) {
        0 => Form::Whole,
        1 => Form::Headerless,
        _ => return None,
    };
    let ours = before.len() <= FIELDS.len() && before.iter().zip(&FIELDS).all(same);
    if !ours || value["name"] != "value" {
        return None;
    }
    Some((Schema::parse(&value["type"].to_string()).ok()?, form))
}

/// Appends the fields before a sample's value.
pub(crate) fn put(out: &mut Vec<u8>, sample: &Sample) {
    let header = &sample.header;
    put_bytes(out, &sample.key);
    put_long(out, header.time.nanos());
    put_long(out, header.level.into());
    put_bytes(out, header.trace.as_ref().map_or(&[], |trace| &trace.0));
    put_bytes(out, header.producer.name.as_str().as_bytes());
    let words =
        [header.producer.incarnation, header.sequence, sample.partition.into(), sample.offset];
    words.into_iter().for_each(|word| put_long(out, word as i64));
    let headers = sample.headers.as_ref();
    // A map is blocks of so many entries, up to an empty one.
    if !headers.is_empty() {
        put_long(out, headers.raw().count() as i64);
    }
    for (name, value) in headers.raw() {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value);
    }
    put_long(out, 0);
}

/// The metadata and the value's own datum.
pub(crate) fn open(datum: &[u8], form: Form) -> Result<(SampleMetadata, &[u8]), String> {
    let mut reader = Reader::new(datum);
    let belongings = belongings(&mut reader, form).map_err(|e| format!("an envelope: {e}"))?;
    Ok((belongings, reader.rest()))
}

fn belongings(
    reader: &mut Reader<'_>,
    form: Form,
) -> Result<SampleMetadata, Box<dyn std::error::Error>> {
    let key = reader.bytes()?.to_vec();
    let time = Some(Tai::from_nanos(reader.long()?));
    let level = u8::try_from(reader.int()?)?;
    let trace = match reader.bytes()? {
        [] => None,
        bytes => Some(TraceId(bytes.try_into()?)),
    };
    reader.string()?;
    for _ in ["incarnation", "sequence", "partition", "offset"] {
        reader.long()?;
    }
    let headers = if form == Form::Whole { headers(reader)? } else { Headers::new() };
    Ok(SampleMetadata { key, time, level, trace, headers })
}

fn headers(reader: &mut Reader<'_>) -> Result<Headers, Box<dyn std::error::Error>> {
    let mut headers = Headers::new();
    loop {
        let count = match reader.long()? {
            0 => return Ok(headers),
            // The block's size in bytes may precede it.
            count @ ..0 => reader.long().map(|_| count.unsigned_abs())?,
            count => count as u64,
        };
        // Each entry adds to the headers, which are bounded.
        for _ in 0..count {
            let (name, value) = (reader.string()?, reader.bytes()?);
            // A played sample has not passed the recorded sample's buses. With its hops a bridge
            // would not forward it there, and would resume from a wrong position.
            if name != hops::NAME {
                headers = headers.with(name, value)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NESTED: &str = r#"{"type": "record", "name": "A", "fields": [
        {"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["P"]}},
        {"name": "y", "type": "E", "units": "m"}]}"#;

    #[test]
    fn the_value_s_schema_comes_back_as_it_was() {
        for text in [NESTED, r#""bytes""#, r#"["null", "string"]"#] {
            let value = Schema::parse(text).unwrap();
            let whole = schema(&value).unwrap();
            let (back, form) = value_schema(&whole).unwrap();
            assert_eq!(form, Form::Whole);
            assert_eq!((back.id(), back.to_json()), (value.id(), value.to_json()));
            assert!(value_schema(&value).is_none());
            assert!(schema(&whole).is_err(), "an envelope in an envelope has the name twice");
        }
        let other = r#"{"type": "record", "name": "HeliographSample", "fields": []}"#;
        assert!(value_schema(&Schema::parse(other).unwrap()).is_none());
    }

    #[test]
    fn damaged_envelopes_are_refused() {
        let whole = b"\x02k\x08\x06\0\x02p\x02\x04\0\x0a\x02\x02n\x02v\0value";
        let (belongings, value) = open(whole, Form::Whole).unwrap();
        let headers = Headers::new().with("n", "v").unwrap();
        let key = b"k".to_vec();
        let time = Some(Tai::from_nanos(4));
        assert_eq!(belongings, SampleMetadata { key, time, level: 3, trace: None, headers });
        assert_eq!(value, b"value");
        let (earlier, _) =
            open(b"\x02k\x08\x06\0\x02p\x02\x04\0\x0avalue", Form::Headerless).unwrap();
        assert_eq!(earlier, SampleMetadata { headers: Headers::new(), ..belongings });
        let open = |bytes| open(bytes, Form::Whole);
        assert!(open(&whole[..8]).is_err());
        assert!(open(&whole[..15]).is_err());
        assert!(open(b"\0\0\x80\x04\0\0\0\0\0\0\0").is_err(), "level 256");
        assert!(open(b"\0\0\0\x02t\0\0\0\0\0\0").is_err(), "a trace of one byte");
        assert!(open(b"\0\0\0\0\0\0\0\0\0\x02\x02N\0\0").is_err(), "a header of another name");
    }
}
