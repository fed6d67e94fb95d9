//! Files of samples: Avro containers, Confluent-framed packets, lines of JSON, told apart by how
//! they begin.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use helio_bus::SchemaText;
use helio_core::codec::{Codec, wire};
use helio_core::schema::Schema;
use serde_json::Value;

use crate::container::{self, MAGIC};
use crate::error::{CliError, CliResult};
use crate::publish::key_of;
use crate::value::{Encoder, schema_text};

/// A Confluent frame: a zero, and the schema's number in a registry, big-endian.
const FRAME_BYTES: usize = 5;
/// The largest file of framed packets: they have no marks between them, so it is read whole.
const FRAMED_BYTES_MAX: u64 = 1 << 30;
/// The longest line of JSON.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of packets that are kept in memory to be played again and again.
const KEPT_BYTES_MAX: usize = 1 << 30;

/// One sample of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The datum, or bytes that have no schema.
    pub(crate) payload: Vec<u8>,
    /// Its key, where a field was named for it.
    pub(crate) key: Option<String>,
}

/// How files are to be read.
#[derive(Default)]
pub(crate) struct Reading {
    /// The schema of files that do not carry one.
    pub(crate) schema: Option<Schema>,
    /// The field that is the key.
    pub(crate) key_field: Option<String>,
}

enum Kind {
    Container(Box<container::Reader>),
    /// All packets, and how far they are read.
    Framed(Vec<u8>, usize),
    Lines(BufReader<File>, u64),
}

/// An open file of samples.
pub(crate) struct Packets {
    name: String,
    kind: Kind,
    codec: Option<Codec>,
    encoder: Option<Encoder>,
    key_field: Option<String>,
}

impl Packets {
    /// Opens a file.
    pub(crate) fn open(path: &Path, reading: &Reading) -> CliResult<Self> {
        let failed = |e: std::io::Error| CliError::file(path, &e);
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let head = file.fill_buf().map_err(failed)?;
        let (is_container, is_framed) = (head.starts_with(&MAGIC), head.first() == Some(&0));
        let mut schema = reading.schema.clone();
        let kind = if is_container {
            let reader = container::Reader::open(path)?;
            schema = Some(reader.schema().clone());
            Kind::Container(Box::new(reader))
        } else if is_framed {
            let mut bytes = Vec::new();
            file.take(FRAMED_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
            if bytes.len() as u64 > FRAMED_BYTES_MAX {
                let text = format!("{}: more than {FRAMED_BYTES_MAX} bytes", path.display());
                return Err(CliError::Refused(text));
            }
            Kind::Framed(bytes, 0)
        } else {
            Kind::Lines(file, 0)
        };
        Ok(Self {
            name: path.display().to_string(),
            kind,
            codec: schema.as_ref().map(Codec::new),
            encoder: schema.as_ref().map(Encoder::of),
            key_field: reading.key_field.clone(),
        })
    }

    /// The schema of its samples; none where they are bytes.
    pub(crate) fn schema(&self) -> Option<&Schema> {
        self.codec.as_ref().map(Codec::schema)
    }

    /// The next sample; `None` at the end.
    pub(crate) fn next(&mut self) -> CliResult<Option<Packet>> {
        let Some(payload) = self.payload()? else { return Ok(None) };
        let key = match (&self.key_field, &self.codec) {
            (None, _) => None,
            (Some(field), codec) => Some(key(codec.as_ref(), &payload, field)?),
        };
        Ok(Some(Packet { payload, key }))
    }

    fn payload(&mut self) -> CliResult<Option<Vec<u8>>> {
        match &mut self.kind {
            Kind::Container(reader) => Ok(reader.next()?.map(<[u8]>::to_vec)),
            Kind::Framed(bytes, at) => {
                let rest = &bytes[*at..];
                if rest.is_empty() {
                    return Ok(None);
                }
                let packet = framed(rest, self.codec.as_ref());
                let (packet, length) = packet.map_err(|what| {
                    CliError::Refused(format!("{} at byte {at}: {what}", self.name))
                })?;
                *at += length;
                Ok(Some(packet))
            }
            Kind::Lines(file, number) => {
                *number += 1;
                let line = line(file).and_then(|line| match (line, &self.encoder) {
                    (None, _) => Ok(None),
                    (Some(text), None) => Ok(Some(text)),
                    (Some(text), Some(encoder)) => datum(&text, encoder).map(Some),
                });
                line.map_err(|e| CliError::Refused(format!("{}, line {number}: {e}", self.name)))
            }
        }
    }
}

/// The first packet of some bytes, and how many it takes. With a schema it is the datum without its
/// frame; without one it is everything, as it is.
fn framed(bytes: &[u8], codec: Option<&Codec>) -> Result<(Vec<u8>, usize), String> {
    let Some(codec) = codec else { return Ok((bytes.to_vec(), bytes.len())) };
    let (frame, rest) = bytes.split_at_checked(FRAME_BYTES).ok_or("it ends in a frame")?;
    if frame[0] != 0 {
        return Err("a packet's frame does not begin with a zero".to_owned());
    }
    let mut reader = wire::Reader::new(rest);
    codec.skip(&mut reader).map_err(|e| format!("it does not fit the schema: {e}"))?;
    let length = rest.len() - reader.rest().len();
    codec.check(&rest[..length]).map_err(|e| format!("it does not fit the schema: {e}"))?;
    Ok((rest[..length].to_vec(), FRAME_BYTES + length))
}

/// The next line that is not empty.
fn line(file: &mut BufReader<File>) -> CliResult<Option<Vec<u8>>> {
    loop {
        let mut line = Vec::new();
        let read = file.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(|e| CliError::Failure(e.to_string()))? == 0 {
            return Ok(None);
        }
        while line.last().is_some_and(u8::is_ascii_whitespace) {
            line.pop();
        }
        if !line.is_empty() {
            return Ok(Some(line));
        }
    }
}

fn datum(text: &[u8], encoder: &Encoder) -> CliResult<Vec<u8>> {
    let json: Value =
        serde_json::from_slice(text).map_err(|e| CliError::Refused(format!("no JSON: {e}")))?;
    let mut payload = Vec::new();
    encoder.encode(&json, &mut payload)?;
    Ok(payload)
}

fn key(codec: Option<&Codec>, payload: &[u8], field: &str) -> CliResult<String> {
    let refused = |e: &dyn std::fmt::Display| CliError::Refused(format!("no key: {e}"));
    let json = match codec {
        Some(codec) => {
            let value = codec.decode(payload).map_err(|e| refused(&e))?;
            codec.value_to_json(&value).map_err(|e| refused(&e))?
        }
        None => serde_json::from_slice(payload).map_err(|e| refused(&e))?,
    };
    key_of(&json, field)
}

/// All samples of a file that is small enough to be played again and again.
pub(crate) fn read_all(path: &Path) -> CliResult<(Option<SchemaText>, Vec<Packet>)> {
    let mut file = Packets::open(path, &Reading::default())?;
    let (mut packets, mut bytes) = (Vec::new(), 0);
    while let Some(packet) = file.next()? {
        bytes += packet.payload.len();
        if bytes > KEPT_BYTES_MAX {
            let text = format!("{}: more than {KEPT_BYTES_MAX} bytes", path.display());
            return Err(CliError::Refused(text));
        }
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
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let mut packets = Packets::open(file.path(), reading)?;
        let mut all = Vec::new();
        while let Some(packet) = packets.next()? {
            all.push(packet);
        }
        Ok(all)
    }

    fn reading() -> Reading {
        Reading { schema: Some(Schema::parse(SCHEMA).unwrap()), key_field: Some("id".into()) }
    }

    #[test]
    fn framed_packets_follow_each_other() {
        let two = b"\0\0\0\0\x07\x02\x04ab\0\0\0\0\x07\x04\x02c";
        let packets = read(two, &reading()).unwrap();
        assert_eq!(packets[0].payload, b"\x02\x04ab");
        assert_eq!(packets[1].payload, b"\x04\x02c");
        assert_eq!(packets[1].key.as_deref(), Some("2"));
        assert!(read(&two[..12], &reading()).is_err(), "the second is cut");
        let whole = read(two, &Reading::default()).unwrap();
        assert_eq!((whole.len(), &whole[0].payload[..]), (1, &two[..]), "bytes as they are");
    }

    #[test]
    fn lines_are_encoded_or_stay_what_they_are() {
        let lines = b"{\"id\": 1, \"text\": \"ab\"}\n\n{\"id\": 2, \"text\": \"c\"}";
        let packets = read(lines, &reading()).unwrap();
        assert_eq!((packets.len(), &packets[0].payload[..]), (2, &b"\x02\x04ab"[..]));
        let plain = read(b"one\ntwo\n", &Reading::default()).unwrap();
        assert_eq!(plain[1].payload, b"two");
        let told = read(b"{\"id\": 1}\n", &reading()).unwrap_err().to_string();
        assert!(told.contains("line 1") && told.contains("text"), "{told}");
    }
}
