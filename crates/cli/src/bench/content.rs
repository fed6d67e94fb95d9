//! The payloads of a bench: bytes, or real messages that are encoded and decoded.

use helio_bus::{SchemaText, TopicSpec};

use super::messages::{BenchTopic, Content};
use crate::error::{CliError, CliResult};
use crate::sal;
use crate::typed::Messages;
use crate::value::schema_text;

/// Encodes and decodes payloads.
pub(crate) enum Payloads {
    /// Constant bytes, and the buffer to which a reader copies them.
    Bytes { body: Vec<u8>, copy: Vec<u8> },
    /// Messages of a topic of an interface folder.
    Typed(SchemaText, Box<Messages>),
}

impl Payloads {
    /// Prepares the content.
    pub(crate) fn new(content: &Content) -> CliResult<Self> {
        match content {
            Content::Bytes(bytes) => {
                Ok(Self::Bytes { body: vec![7; *bytes], copy: vec![0; *bytes] })
            }
            Content::Typed { interfaces, topic } => {
                let interfaces = sal::folder(interfaces)?;
                let schema = sal::topic(&interfaces, topic)?.schema();
                let schema = schema.map_err(|e| CliError::Refused(format!("{topic}: {e}")))?;
                Ok(Self::Typed(schema_text(&schema), Box::new(Messages::new(&schema)?)))
            }
        }
    }

    /// The topic with this content's schema.
    pub(crate) fn spec(&self, place: &BenchTopic) -> CliResult<TopicSpec> {
        let spec = TopicSpec::new(&place.topic)?.qos(place.qos.clone());
        match self {
            Self::Bytes { .. } => Ok(spec),
            Self::Typed(schema, _) => Ok(spec.schema(schema.clone())),
        }
    }

    /// The payload of a message by its number from 0.
    #[inline]
    pub(crate) fn write(&mut self, number: u64) -> CliResult<&[u8]> {
        match self {
            Self::Bytes { body, .. } => {
                if let Some(head) = body.first_chunk_mut() {
                    *head = number.to_le_bytes();
                }
                Ok(body)
            }
            Self::Typed(_, messages) => messages.write(number, 1),
        }
    }

    /// Reads a whole payload.
    #[inline]
    pub(crate) fn read(&mut self, payload: &[u8]) -> CliResult {
        match self {
            Self::Bytes { copy, .. } => {
                if payload.len() != copy.len() {
                    let (is, was) = (payload.len(), copy.len());
                    let text = format!("a payload came with {is} bytes, {was} were sent");
                    return Err(CliError::Failure(text));
                }
                copy.copy_from_slice(payload);
                Ok(())
            }
            Self::Typed(_, messages) => messages.read(payload).map(drop),
        }
    }

    /// The size of the last payload.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Bytes { body, .. } => body.len(),
            Self::Typed(_, messages) => messages.bytes(),
        }
    }
}
