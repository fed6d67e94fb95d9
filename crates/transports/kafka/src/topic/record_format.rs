//! The differences between a sample and its record besides the header: the schema's number, and
//! SAL's key.

use std::sync::Arc;
use std::time::Instant;

use helio_bus::transport::{Record, RegisterError};
use helio_bus::{SchemaId, SchemaText, TransportError};
use helio_core::confluent::{self, FRAME_BYTES};
use helio_core::sal::{self, SalKeys};

use crate::client::signal::{Notify, ReaderSignal};
use crate::internal::internal_topics::InternalTopics;
use crate::registry::{NumberLookup, Registry};
use crate::topic::header::{Frame, KeySource};
use crate::topic::sample::{RecordForm, SampleMeta};

/// How a topic's samples are written and read.
pub(crate) struct RecordFormat {
    /// The Kafka topic.
    kafka: String,
    registry: Option<Arc<Registry>>,
    tables: Arc<InternalTopics>,
    /// The keys, if SAL's naming has them.
    sal: Option<SalKeys>,
}

/// How a sample is written.
pub(crate) struct RecordEncoding {
    frame: Frame,
    /// SAL's key, if there is one.
    key: Option<String>,
}

impl RecordEncoding {
    /// The header's fields for it.
    pub(crate) fn forms(&self, record: &Record<'_>) -> (Frame, KeySource) {
        let key = match &self.key {
            None => KeySource::Own,
            Some(_) if record.key.is_empty() => KeySource::Without,
            Some(_) => KeySource::Index,
        };
        (self.frame, key)
    }

    /// The record's payload; `None` is a null, which is a tombstone in a compacted topic.
    pub(crate) fn payload<'a>(&self, record: &Record<'a>, framed: &'a [u8]) -> Option<&'a [u8]> {
        match self.frame {
            Frame::Plain if record.is_null() => None,
            Frame::Plain => Some(record.payload),
            Frame::Framed => Some(framed),
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

impl RecordFormat {
    pub(crate) fn new(
        tables: &Arc<InternalTopics>,
        registry: Option<&Arc<Registry>>,
        kafka: &str,
        sal: Option<SalKeys>,
    ) -> Self {
        let (tables, registry) = (Arc::clone(tables), registry.map(Arc::clone));
        Self { kafka: kafka.to_owned(), registry, tables, sal }
    }

    /// Whether writers without our header are to be expected.
    pub(crate) fn is_sal(&self) -> bool {
        self.sal.is_some()
    }

    /// The schema's text for other programs.
    fn text(&self, ours: &Arc<str>) -> Arc<str> {
        let sal = self.sal.as_ref().and_then(|_| sal::sal_text(ours));
        sal.map_or_else(|| Arc::clone(ours), Arc::from)
    }

    /// Registers a schema with the registry, and waits for it.
    pub(crate) fn register(&self, schema: &SchemaText) -> Result<(), RegisterError> {
        match &self.registry {
            Some(registry) => registry.register(&self.kafka, schema.id, &self.text(&schema.text)),
            None => Ok(()),
        }
    }

    /// How a sample is written: with its schema's number before its payload, if there is a
    /// registry, in `framed`. `None` if the number is being requested; `notify` is called when it
    /// is known.
    pub(crate) fn write(
        &self,
        record: &Record<'_>,
        notify: Option<&Notify>,
        framed: &mut Vec<u8>,
    ) -> Result<Option<RecordEncoding>, TransportError> {
        let key = self.key(record)?;
        let framed_by = |_: &&Arc<_>| record.schema != SchemaId::BYTES && !record.is_null();
        let Some(registry) = self.registry.as_ref().filter(framed_by) else {
            return Ok(Some(RecordEncoding { frame: Frame::Plain, key }));
        };
        let text = || {
            let ours = self.tables.known_schema(record.schema)?;
            Some(self.text(&ours.into()))
        };
        let number = registry.number(&self.kafka, record.schema, notify, text)?;
        Ok(number.map(|number| {
            confluent::frame(number, record.payload, framed);
            RecordEncoding { frame: Frame::Framed, key }
        }))
    }

    /// The key of a sample's record, if it is not the sample's own.
    fn key(&self, record: &Record<'_>) -> Result<Option<String>, TransportError> {
        let Some(sal) = &self.sal else { return Ok(None) };
        let is_index =
            record.key.is_empty() || record.is_null() || record.payload.starts_with(record.key);
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

    /// Whether a record's payload can be read. If not, `wake` is signalled when it can.
    pub(crate) fn knows(
        &self,
        meta: &mut SampleMeta,
        payload: &[u8],
        wake: &Arc<ReaderSignal>,
    ) -> bool {
        let Some((registry, number)) = self.unknown(meta, payload) else { return true };
        match registry.lookup(number, wake) {
            NumberLookup::Wait => false,
            found => {
                self.take(meta, found);
                true
            }
        }
    }

    /// The same for callers that may wait, until then.
    pub(crate) fn learn(
        &self,
        meta: &mut SampleMeta,
        payload: &[u8],
        until: Instant,
    ) -> Result<(), TransportError> {
        if let Some((registry, number)) = self.unknown(meta, payload) {
            self.take(meta, registry.wait(number, until)?);
        }
        Ok(())
    }

    fn unknown(&self, meta: &mut SampleMeta, payload: &[u8]) -> Option<(&Registry, u32)> {
        if meta.form != RecordForm::Foreign {
            return None;
        }
        let framed = self.registry.as_ref().zip(confluent::unframe(payload));
        if framed.is_none() {
            meta.form = RecordForm::Known(0, KeySource::Own);
        }
        framed.map(|(registry, (number, _))| (&**registry, number))
    }

    /// A sample with an unknown number is delivered as bytes, including the number.
    fn take(&self, meta: &mut SampleMeta, found: NumberLookup) {
        let NumberLookup::Known(known) = found else {
            meta.form = RecordForm::Known(0, KeySource::Own);
            return;
        };
        meta.schema = known.id;
        meta.form = match (&self.sal, known.indexed) {
            (None, _) => RecordForm::Known(FRAME_BYTES, KeySource::Own),
            (Some(_), true) => RecordForm::Known(FRAME_BYTES, KeySource::Index),
            (Some(_), false) => RecordForm::Known(FRAME_BYTES, KeySource::Without),
        };
    }
}
