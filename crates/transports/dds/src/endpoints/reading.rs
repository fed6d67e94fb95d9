//! The DDS readers of a bus reader.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use helio_bus::transport::locked;
use helio_bus::{SchemaText, TransportError};

use super::TypedTopic;
use crate::announcements::{self, EndpointGuids};
use crate::entity::{self, Listener};
use crate::error::failed;
use crate::topic::TopicState;

/// Makes the listener of an endpoint: each one needs its own.
type ListenerFactory = Box<dyn Fn() -> Listener + Send + Sync>;

/// The DDS readers of a bus reader.
pub(crate) struct ReaderEndpoints {
    pub(crate) envelopes: entity::Reader,
    typed: Mutex<Option<Arc<TypedReader>>>,
    /// The schema that the subscription reads: the typed endpoint's while the topic has none.
    expected: Option<SchemaText>,
    /// The typed endpoint could not be opened.
    failed: AtomicBool,
    /// Endpoints of schemas that were taken for the first one; their samples are still read.
    former: Mutex<Vec<Arc<TypedReader>>>,
    /// An empty list is all partitions.
    partitions: Vec<u32>,
    history: bool,
    listening: ListenerFactory,
}

pub(crate) struct TypedReader {
    pub(crate) of: Arc<TypedTopic>,
    pub(crate) reader: entity::Reader,
    /// Its schema is the subscription's, and not the topic's yet, which has none.
    expected: AtomicBool,
}

impl TypedReader {
    fn is_expected(&self) -> bool {
        self.expected.load(Ordering::Acquire)
    }
}

/// What a reader reads.
pub(crate) struct ReaderScope<'a> {
    /// An empty list is all partitions.
    pub(crate) partitions: &'a [u32],
    /// Whether it requests the samples that writers keep.
    pub(crate) history: bool,
    /// Whether it requests the newest of them in envelopes, as log packets are.
    pub(crate) newest: bool,
    /// The subscription's schema.
    pub(crate) schema: Option<&'a SchemaText>,
}

impl ReaderEndpoints {
    pub(crate) fn open(
        topic: &TopicState,
        scope: &ReaderScope<'_>,
        listening: ListenerFactory,
    ) -> Result<Self, TransportError> {
        let ReaderScope { partitions, history, newest, schema } = *scope;
        let qos = topic.reader_qos(partitions, history || newest)?;
        let envelopes = entity::Reader::open(&topic.envelopes()?, &qos, Some(listening()));
        let envelopes = envelopes.map_err(failed("open the reader"))?;
        let (partitions, expected) = (partitions.to_vec(), schema.cloned());
        let (typed, failed, former) = Default::default();
        let this =
            Self { envelopes, typed, expected, failed, former, partitions, history, listening };
        this.adopt_schema(topic)?;
        Ok(this)
    }

    /// Opens the typed endpoint if the topic's first schema has changed; true if it has.
    pub(crate) fn adopt_schema(&self, topic: &TopicState) -> Result<bool, TransportError> {
        let adopted = self.try_to_adopt_schema(topic);
        self.failed.store(adopted.is_err(), Ordering::Release);
        adopted
    }

    /// Retries after a failure; the subscription receives the error.
    pub(crate) fn retry_adopting_schema(&self, topic: &TopicState) -> Result<(), TransportError> {
        if self.failed.load(Ordering::Acquire) {
            self.adopt_schema(topic).map(drop)
        } else {
            Ok(())
        }
    }

    fn try_to_adopt_schema(&self, topic: &TopicState) -> Result<bool, TransportError> {
        let first = topic.typed()?;
        let expected = if first.is_none() { topic.expected(self.expected.as_ref())? } else { None };
        let is_expected = expected.is_some();
        let typed = first.or(expected);
        let mut own = locked(&self.typed);
        let schema = |end: &Arc<TypedReader>| end.of.schema;
        if own.as_ref().map(schema) == typed.as_ref().map(|typed| typed.schema) {
            let was = own.as_ref().map(|own| own.expected.swap(is_expected, Ordering::AcqRel));
            return Ok(was.is_some_and(|was| was != is_expected));
        }
        // Samples of foreign writers that fit both types would come twice, so the expected one
        // leaves.
        locked(&self.former).extend(own.take().filter(|own| !own.is_expected()));
        let Some(of) = typed else { return Ok(true) };
        let qos = topic.reader_qos(&self.partitions, self.history)?;
        let reader = entity::Reader::open(&of.topic, &qos, Some((self.listening)()));
        let reader = reader.map_err(failed("open the typed reader"))?;
        *own = Some(Arc::new(TypedReader { of, reader, expected: is_expected.into() }));
        Ok(true)
    }

    pub(crate) fn typed(&self) -> Option<Arc<TypedReader>> {
        locked(&self.typed).clone()
    }

    /// The endpoints of schemas that were taken for the first one.
    pub(crate) fn former(&self) -> Vec<Arc<TypedReader>> {
        locked(&self.former).clone()
    }

    pub(crate) fn guids(&self) -> EndpointGuids {
        EndpointGuids {
            envelopes: announcements::guid(self.envelopes.guid()),
            typed: self
                .typed()
                .filter(|typed| !typed.is_expected())
                .map(|typed| announcements::guid(typed.reader.guid())),
        }
    }

    /// The writers that its endpoints have matched.
    pub(crate) fn matched(&self) -> Vec<String> {
        let typed = self.typed();
        let typed = typed.iter().flat_map(|typed| matched(&typed.reader));
        matched(&self.envelopes).into_iter().chain(typed).collect()
    }

    /// Whether it has matched a bus writer.
    pub(crate) fn has_matched(&self, writer: &EndpointGuids) -> bool {
        let typed = self.typed().map(|typed| matched(&typed.reader)).unwrap_or_default();
        writer.are_matched(&self.guids(), &matched(&self.envelopes), &typed)
    }
}

/// The writers that an endpoint has matched.
fn matched(reader: &entity::Reader) -> Vec<String> {
    let writers = reader.writers().unwrap_or_default();
    let endpoints = writers.into_iter().filter_map(|writer| reader.publication(writer));
    endpoints.map(|end| announcements::guid(end.guid)).collect()
}
