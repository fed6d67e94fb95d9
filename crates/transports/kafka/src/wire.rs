//! What stands between a sample and its record besides the header: the number of its schema.

use std::sync::{Arc, Weak};
use std::time::Instant;

use helio_bus::transport::{Record, RegisterError};
use helio_bus::{SchemaId, SchemaText, TransportError};
use helio_core::confluent::{self, FRAME_BYTES};

use crate::connection::Connection;
use crate::fetcher::Wake;
use crate::header::Frame;
use crate::producer::Notify;
use crate::registry::{Look, Registry};
use crate::sample::{Form, Meta};

/// How a topic's samples are written and read.
pub(crate) struct Wire {
    /// The Kafka topic.
    kafka: String,
    registry: Option<Arc<Registry>>,
    connection: Weak<Connection>,
}

impl Wire {
    pub(crate) fn new(connection: &Arc<Connection>, kafka: &str) -> Self {
        let (kafka, registry) = (kafka.to_owned(), connection.registry.clone());
        Self { kafka, registry, connection: Arc::downgrade(connection) }
    }

    /// Makes a schema known to the registry, and waits for it.
    pub(crate) fn register(&self, schema: &SchemaText) -> Result<(), RegisterError> {
        match &self.registry {
            Some(registry) => registry.register(&self.kafka, schema.id, &schema.text),
            None => Ok(()),
        }
    }

    /// Writes a sample's payload with its schema's number, if it is to have one. None where the
    /// number is being asked for; `notify` is called when it is known.
    pub(crate) fn frame(
        &self,
        record: &Record<'_>,
        notify: Option<&Notify>,
        into: &mut Vec<u8>,
    ) -> Result<Option<Frame>, TransportError> {
        let Some(registry) = self.registry.as_ref().filter(|_| record.schema != SchemaId::BYTES)
        else {
            return Ok(Some(Frame::Plain));
        };
        let text = || self.connection.upgrade()?.tables.known_schema(record.schema);
        let number = registry.number(&self.kafka, record.schema, notify, text)?;
        Ok(number.map(|number| {
            confluent::frame(number, record.payload, into);
            Frame::Framed
        }))
    }

    /// Whether it is known how a record's payload is read. If not, `wake` is rung when it is.
    pub(crate) fn knows(&self, meta: &mut Meta, payload: &[u8], wake: &Arc<Wake>) -> bool {
        let Some((registry, number)) = self.unknown(meta, payload) else { return true };
        match registry.look(number, wake) {
            Look::Wait => false,
            look => {
                take(meta, look);
                true
            }
        }
    }

    /// The same for who may wait, until then.
    pub(crate) fn learn(
        &self,
        meta: &mut Meta,
        payload: &[u8],
        until: Instant,
    ) -> Result<(), TransportError> {
        if let Some((registry, number)) = self.unknown(meta, payload) {
            take(meta, registry.wait(number, until)?);
        }
        Ok(())
    }

    fn unknown(&self, meta: &mut Meta, payload: &[u8]) -> Option<(&Registry, u32)> {
        if meta.form != Form::Foreign {
            return None;
        }
        let framed = self.registry.as_ref().zip(confluent::unframe(payload));
        if framed.is_none() {
            meta.form = Form::Behind(0);
        }
        framed.map(|(registry, (number, _))| (&**registry, number))
    }
}

/// A sample whose number nobody knows is what it is: bytes, the number among them.
fn take(meta: &mut Meta, look: Look) {
    meta.form = match look {
        Look::Known(known) => {
            meta.schema = known.id;
            Form::Behind(FRAME_BYTES)
        }
        Look::Unknown | Look::Wait => Form::Behind(0),
    };
}
