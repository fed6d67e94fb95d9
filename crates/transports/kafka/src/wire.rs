//! What stands between a sample and its record besides the header: the number of its schema, and
//! SAL's key.

use std::sync::{Arc, Weak};
use std::time::Instant;

use helio_bus::transport::{Record, RegisterError};
use helio_bus::{SchemaId, SchemaText, TransportError};
use helio_core::confluent::{self, FRAME_BYTES};
use helio_core::sal::{self, SalKeys};

use crate::connection::Connection;
use crate::fetcher::Wake;
use crate::header::{Frame, Key};
use crate::producer::Notify;
use crate::registry::{Look, Registry};
use crate::sample::{Form, Meta};

/// How a topic's samples are written and read.
pub(crate) struct Wire {
    /// The Kafka topic.
    kafka: String,
    registry: Option<Arc<Registry>>,
    connection: Weak<Connection>,
    /// The keys, where SAL's naming has them.
    sal: Option<SalKeys>,
}

/// How a sample is written.
pub(crate) struct Written {
    frame: Frame,
    /// SAL's, where it has one.
    key: Option<String>,
}

impl Written {
    /// What the header says of it.
    pub(crate) fn forms(&self, record: &Record<'_>) -> (Frame, Key) {
        let key = match &self.key {
            None => Key::Own,
            Some(_) if record.key.is_empty() => Key::Without,
            Some(_) => Key::Index,
        };
        (self.frame, key)
    }

    /// The record's payload.
    pub(crate) fn payload<'a>(&self, record: &Record<'a>, framed: &'a [u8]) -> &'a [u8] {
        match self.frame {
            Frame::Plain => record.payload,
            Frame::Framed => framed,
        }
    }

    /// The record's key.
    pub(crate) fn key<'a>(&'a self, record: &Record<'a>) -> Option<&'a [u8]> {
        match &self.key {
            Some(key) => Some(key.as_bytes()),
            None => Some(record.key).filter(|key| !key.is_empty()),
        }
    }
}

impl Wire {
    pub(crate) fn new(connection: &Arc<Connection>, kafka: &str, sal: Option<SalKeys>) -> Self {
        let (kafka, registry) = (kafka.to_owned(), connection.registry.clone());
        Self { kafka, registry, connection: Arc::downgrade(connection), sal }
    }

    /// Whether writers that are no bus's are to be expected.
    pub(crate) fn is_sal(&self) -> bool {
        self.sal.is_some()
    }

    /// The text that others know a schema by.
    fn text(&self, ours: &Arc<str>) -> Arc<str> {
        let sal = self.sal.as_ref().and_then(|_| sal::sal_text(ours));
        sal.map_or_else(|| Arc::clone(ours), Arc::from)
    }

    /// Makes a schema known to the registry, and waits for it.
    pub(crate) fn register(&self, schema: &SchemaText) -> Result<(), RegisterError> {
        match &self.registry {
            Some(registry) => registry.register(&self.kafka, schema.id, &self.text(&schema.text)),
            None => Ok(()),
        }
    }

    /// How a sample is written: with its schema's number before its payload, if it is to have one,
    /// in `framed`. None where the number is being asked for; `notify` is called when it is known.
    pub(crate) fn write(
        &self,
        record: &Record<'_>,
        notify: Option<&Notify>,
        framed: &mut Vec<u8>,
    ) -> Result<Option<Written>, TransportError> {
        let key = self.key(record)?;
        let Some(registry) = self.registry.as_ref().filter(|_| record.schema != SchemaId::BYTES)
        else {
            return Ok(Some(Written { frame: Frame::Plain, key }));
        };
        let text = || {
            let ours = self.connection.upgrade()?.tables.known_schema(record.schema)?;
            Some(self.text(&ours.into()))
        };
        let number = registry.number(&self.kafka, record.schema, notify, text)?;
        Ok(number.map(|number| {
            confluent::frame(number, record.payload, framed);
            Written { frame: Frame::Framed, key }
        }))
    }

    /// The key of a sample's record, if it is not the sample's own.
    fn key(&self, record: &Record<'_>) -> Result<Option<String>, TransportError> {
        let Some(sal) = &self.sal else { return Ok(None) };
        let is_index = record.key.is_empty() || record.payload.starts_with(record.key);
        match sal.to_kafka(record.key).filter(|_| is_index) {
            Some(key) => Ok(Some(key)),
            None => Err(TransportError::Unsupported {
                transport: crate::SCHEME.to_owned(),
                what: format!("write to {} with such a key", self.kafka),
                remedy: "the key of a SAL topic is the salIndex that its samples begin with, or \
                         none"
                    .to_owned(),
            }),
        }
    }

    /// Whether it is known how a record's payload is read. If not, `wake` is rung when it is.
    pub(crate) fn knows(&self, meta: &mut Meta, payload: &[u8], wake: &Arc<Wake>) -> bool {
        let Some((registry, number)) = self.unknown(meta, payload) else { return true };
        match registry.look(number, wake) {
            Look::Wait => false,
            look => {
                self.take(meta, look);
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
            self.take(meta, registry.wait(number, until)?);
        }
        Ok(())
    }

    fn unknown(&self, meta: &mut Meta, payload: &[u8]) -> Option<(&Registry, u32)> {
        if meta.form != Form::Foreign {
            return None;
        }
        let framed = self.registry.as_ref().zip(confluent::unframe(payload));
        if framed.is_none() {
            meta.form = Form::Known(0, Key::Own);
        }
        framed.map(|(registry, (number, _))| (&**registry, number))
    }

    /// A sample whose number nobody knows is what it is: bytes, the number among them.
    fn take(&self, meta: &mut Meta, look: Look) {
        let Look::Known(known) = look else {
            meta.form = Form::Known(0, Key::Own);
            return;
        };
        meta.schema = known.id;
        meta.form = match (&self.sal, known.indexed) {
            (None, _) => Form::Known(FRAME_BYTES, Key::Own),
            (Some(_), true) => Form::Known(FRAME_BYTES, Key::Index),
            (Some(_), false) => Form::Known(FRAME_BYTES, Key::Without),
        };
    }
}
