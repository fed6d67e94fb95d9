//! Files of samples: Avro containers, Confluent-framed packets, lines of JSON, recognized by their
//! first bytes.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use helio_bus::SchemaText;
use helio_core::codec::{Codec, wire};
use helio_core::container::Container;
use helio_core::schema::Schema;
use serde_json::Value;

use crate::envelope::{self, Form, SampleMetadata};
use crate::error::{CliError, CliResult};
use crate::key::KeyFields;
use crate::value::{Encoder, schema_text};

/// The first bytes of a container file.
const MAGIC: &[u8] = b"Obj\x01";
/// The schema of untyped values.
const BYTES: &str = r#""bytes""#;
/// A Confluent frame: a zero byte, and the schema's registry number, big-endian.
const FRAME_BYTES: usize = 5;
/// The largest file: it is read whole and must fit in memory.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// One sample of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The datum, or untyped bytes.
    pub(crate) payload: Vec<u8>,
    /// The key of named fields or of an envelope, and the envelope's other fields.
    pub(crate) belongings: SampleMetadata,
}

/// Options for reading files.
#[derive(Default)]
pub(crate) struct Reading {
    /// The schema of files without one.
    pub(crate) schema: Option<Schema>,
    /// The fields that are the key.
    pub(crate) key_fields: Vec<String>,
}

/// A file's contents.
pub(crate) struct Input {
    name: String,
    bytes: Vec<u8>,
}

impl Input {
    /// Reads a file whole.
    pub(crate) fn read(path: &Path) -> CliResult<Self> {
        let failed = |e: std::io::Error| CliError::file(path, &e);
        let file = File::open(path).map_err(failed)?;
        let kind = file.metadata().map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_fifo() && !file.is_terminal() {
            let name = path.display();
            return Err(CliError::Refused(format!("{name} is no file: give one, or a pipe")));
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        let name = path.display().to_string();
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(CliError::Refused(format!(
                "{name} has more than {FILE_BYTES_MAX} bytes; split it (record has --rotate)"
            )));
        }
        Ok(Self { name, bytes })
    }
}

enum Kind<'a> {
    Container(Box<Container<'a>>),
    Framed,
    Lines(u64),
}

/// The samples of a file, one after the other.
pub(crate) struct Packets<'a> {
    name: &'a str,
    rest: &'a [u8],
    kind: Kind<'a>,
    codec: Option<Codec>,
    encoder: Option<Encoder>,
    key_fields: Option<KeyFields>,
    envelope: Option<(Enveloped, Form)>,
}

/// The contents of envelopes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Enveloped {
    /// Typed values.
    Values,
    /// Untyped bytes.
    Bytes,
}

impl<'a> Packets<'a> {
    /// Recognizes a file's format.
    pub(crate) fn of(input: &'a Input, reading: &Reading) -> CliResult<Self> {
        let (mut schema, mut envelope) = (reading.schema.clone(), None);
        let kind = if input.bytes.starts_with(MAGIC) {
            let container = Container::open(&input.bytes);
            let container =
                container.map_err(|e| CliError::Failure(format!("{}: {e}", input.name)))?;
            (schema, envelope) = contents(container.schema());
            Kind::Container(Box::new(container))
        } else if input.bytes.first() == Some(&0) {
            Kind::Framed
        } else {
            Kind::Lines(0)
        };
        Ok(Self {
            name: &input.name,
            rest: &input.bytes,
            kind,
            codec: schema.as_ref().map(Codec::new),
            encoder: schema.as_ref().map(Encoder::of),
            key_fields: KeyFields::new(schema.as_ref(), &reading.key_fields)?,
            envelope,
        })
    }

    /// The samples' schema; `None` for untyped bytes.
    pub(crate) fn schema(&self) -> Option<&Schema> {
        self.codec.as_ref().map(Codec::schema)
    }

    /// The next sample; `None` at the end.
    pub(crate) fn next(&mut self) -> CliResult<Option<Packet>> {
        let Some(datum) = self.payload()? else { return Ok(None) };
        let (mut belongings, payload) = match self.envelope {
            None => (SampleMetadata::default(), datum),
            Some((kind, form)) => unwrapped(&datum, kind, form)
                .map_err(|what| CliError::Failure(format!("{}: {what}", self.name)))?,
        };
        if let Some(fields) = &self.key_fields {
            belongings.key = fields.of(&payload)?;
        }
        Ok(Some(Packet { payload, belongings }))
    }

    fn payload(&mut self) -> CliResult<Option<Vec<u8>>> {
        let name = self.name;
        match &mut self.kind {
            Kind::Container(container) => match container.next_datum() {
                Ok(datum) => Ok(datum.map(<[u8]>::to_vec)),
                Err(error) => Err(CliError::Failure(format!("{name}: {error}"))),
            },
            Kind::Framed if self.rest.is_empty() => Ok(None),
            Kind::Framed => {
                let (packet, length) = framed(self.rest, self.codec.as_ref())
                    .map_err(|what| CliError::Refused(format!("{name}: {what}")))?;
                self.rest = &self.rest[length..];
                Ok(Some(packet))
            }
            Kind::Lines(number) => {
                let Some(line) = line(&mut self.rest, number) else { return Ok(None) };
                match &self.encoder {
                    None => Ok(Some(line.to_vec())),
                    Some(encoder) => datum(line, encoder)
                        .map(Some)
                        .map_err(|e| CliError::Refused(format!("{name}, line {number}: {e}"))),
                }
            }
        }
    }
}

/// The schema of a container's values, and their envelope if any.
fn contents(schema: &Schema) -> (Option<Schema>, Option<(Enveloped, Form)>) {
    match envelope::value_schema(schema) {
        None => (Some(schema.clone()), None),
        Some((value, form)) if value.canonical_form() == BYTES => {
            (None, Some((Enveloped::Bytes, form)))
        }
        Some((value, form)) => (Some(value), Some((Enveloped::Values, form))),
    }
}

/// Opens an envelope.
fn unwrapped(
    datum: &[u8],
    kind: Enveloped,
    form: Form,
) -> Result<(SampleMetadata, Vec<u8>), String> {
    let (belongings, value) = envelope::open(datum, form)?;
    let payload = match kind {
        Enveloped::Values => value,
        Enveloped::Bytes => wire::Reader::new(value).bytes().map_err(|e| e.to_string())?,
    };
    Ok((belongings, payload.to_vec()))
}

/// The first packet of some bytes, and its length. With a schema it is the datum without its frame,
/// else all bytes unchanged.
fn framed(bytes: &[u8], codec: Option<&Codec>) -> Result<(Vec<u8>, usize), String> {
    let Some(codec) = codec else { return Ok((bytes.to_vec(), bytes.len())) };
    let (frame, rest) = bytes.split_at_checked(FRAME_BYTES).ok_or("it ends in a frame")?;
    if frame[0] != 0 {
        return Err("a packet's frame does not begin with a zero".to_owned());
    }
    let mut reader = wire::Reader::new(rest);
    codec.skip(&mut reader).map_err(|e| format!("a packet does not fit the schema: {e}"))?;
    let length = rest.len() - reader.rest().len();
    let checked = codec.check(&rest[..length]);
    checked.map_err(|e| format!("a packet does not fit the schema: {e}"))?;
    Ok((rest[..length].to_vec(), FRAME_BYTES + length))
}

/// The next non-empty line, without trailing white space.
fn line<'a>(rest: &mut &'a [u8], number: &mut u64) -> Option<&'a [u8]> {
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let line = rest[..end].trim_ascii_end();
        *rest = rest.get(end + 1..).unwrap_or_default();
        *number += 1;
        if !line.is_empty() {
            return Some(line);
        }
    }
    None
}

fn datum(text: &[u8], encoder: &Encoder) -> CliResult<Vec<u8>> {
    let json: Value =
        serde_json::from_slice(text).map_err(|e| CliError::Refused(format!("no JSON: {e}")))?;
    let mut payload = Vec::new();
    encoder.encode(&json, &mut payload)?;
    Ok(payload)
}

/// All samples of a file, to be played repeatedly.
pub(crate) fn read_all(path: &Path) -> CliResult<(Option<SchemaText>, Vec<Packet>)> {
    let input = Input::read(path)?;
    let mut file = Packets::of(&input, &Reading::default())?;
    let mut packets = Vec::new();
    while let Some(packet) = file.next()? {
        packets.push(packet);
    }
    if packets.is_empty() {
        return Err(CliError::Refused(format!("{} has no samples", path.display())));
    }
    Ok((file.schema().map(schema_text), packets))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type": "record", "name": "a", "fields": [
        {"name": "id", "type": "long"}, {"name": "text", "type": "string"}]}"#;

    fn read(bytes: &[u8], reading: &Reading) -> CliResult<Vec<Packet>> {
        let input = Input { name: "a file".to_owned(), bytes: bytes.to_vec() };
        let mut packets = Packets::of(&input, reading)?;
        let mut all = Vec::new();
        while let Some(packet) = packets.next()? {
            all.push(packet);
        }
        Ok(all)
    }

    fn reading() -> Reading {
        Reading { schema: Some(Schema::parse(SCHEMA).unwrap()), key_fields: vec!["id".into()] }
    }

    #[test]
    fn framed_packets_follow_each_other() {
        let two = b"\0\0\0\0\x07\x02\x04ab\0\0\0\0\x07\x04\x02c";
        let packets = read(two, &reading()).unwrap();
        assert_eq!(packets[0].payload, b"\x02\x04ab");
        assert_eq!(packets[1].payload, b"\x04\x02c");
        assert_eq!(packets[1].belongings.key, b"\x04");
        assert!(read(&two[..12], &reading()).is_err(), "the second is cut");
        let whole = read(two, &Reading::default()).unwrap();
        assert_eq!((whole.len(), &whole[0].payload[..]), (1, &two[..]), "bytes as they are");
    }

    #[test]
    fn lines_are_encoded_or_stay_what_they_are() {
        let lines = b"{\"id\": 1, \"text\": \"ab\"}\n\n{\"id\": 2, \"text\": \"c\"}";
        let packets = read(lines, &reading()).unwrap();
        assert_eq!((packets.len(), &packets[0].payload[..]), (2, &b"\x02\x04ab"[..]));
        let plain = read(b"one\r\ntwo\n", &Reading::default()).unwrap();
        assert_eq!((&plain[0].payload[..], &plain[1].payload[..]), (&b"one"[..], &b"two"[..]));
        let told = read(b"\n{\"id\": 1}\n", &reading()).unwrap_err().to_string();
        assert!(told.contains("line 2") && told.contains("text"), "{told}");
    }
}
