//! What the streams of the demo carry.

use helio_bus::SchemaText;
use helio_core::schema::Schema;

use super::packet::Packets;
use super::plan::Body;
use crate::error::{CliError, CliResult};
use crate::packets::{Packet, read_all};
use crate::typed::Messages;
use crate::value::schema_text;

/// Makes the samples of one stream.
pub(crate) enum Bodies {
    /// Messages of a topic of the interfaces.
    Typed(SchemaText, Box<Messages>),
    /// Synthetic alert packets.
    Synthetic(Box<Packets>),
    /// The packets of a file, in turn.
    Replayed(Option<SchemaText>, Vec<Packet>),
}

impl Bodies {
    /// Prepares a stream's samples.
    pub(crate) fn new(body: &Body) -> CliResult<Self> {
        match body {
            Body::Typed { schema } => {
                let schema = Schema::parse(schema).map_err(|e| CliError::Failure(e.to_string()))?;
                Ok(Self::Typed(schema_text(&schema), Box::new(Messages::new(&schema)?)))
            }
            Body::Alerts(None) => Ok(Self::Synthetic(Box::new(Packets::new()?))),
            Body::Alerts(Some(path)) => {
                let (schema, packets) = read_all(path)?;
                Ok(Self::Replayed(schema, packets))
            }
        }
    }

    /// The schema of the samples; none where they are bytes.
    pub(crate) fn schema(&self) -> Option<SchemaText> {
        match self {
            Self::Typed(schema, _) => Some(schema.clone()),
            Self::Synthetic(packets) => Some(schema_text(packets.schema())),
            Self::Replayed(schema, _) => schema.clone(),
        }
    }

    /// The sample of a number from 0, of a component's index.
    pub(crate) fn write(&mut self, number: u64, index: i32) -> CliResult<&[u8]> {
        match self {
            Self::Typed(_, messages) => messages.write(number, index),
            Self::Synthetic(packets) => packets.write(number),
            Self::Replayed(_, packets) => {
                let at = (number % packets.len().max(1) as u64) as usize;
                Ok(packets.get(at).map_or(&[], |packet| &packet.payload))
            }
        }
    }
}
