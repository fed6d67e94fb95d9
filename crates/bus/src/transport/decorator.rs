//! Transports that wrap others: a method that the decorator does not override is the inner one's.
//!
//! For fault injection, and for test doubles that change one method.

use std::sync::Arc;
use std::time::Instant;

use helio_core::qos::Retention;
use helio_core::{Producer, Qos, SchemaId, TopicName};

use super::{
    Capabilities, Carried, Declared, Granted, GroupState, OwnerOrder, PartitionInfo, Reader,
    ReaderRequest, RegisterError, Transport, TransportTopic, Writer, WriterInfo, WriterRequest,
};
use crate::bell::Bell;
use crate::error::TransportError;
use crate::exclusive::{ExclusiveError, ExclusiveLog, LogOptions};
use crate::schema_text::SchemaText;

/// A [`Transport`] that wraps another. Methods default to the inner transport's; its topics are
/// wrapped by [`topic`](Decorator::topic).
#[expect(missing_docs, reason = "its methods are those of Transport")]
#[expect(clippy::missing_errors_doc, reason = "its methods are those of Transport")]
pub trait Decorator: Send + Sync + 'static {
    /// The inner one.
    fn inner(&self) -> &dyn Transport;
    /// Wraps a topic of the inner transport.
    fn topic(&self, inner: Arc<dyn TransportTopic>, _name: &TopicName) -> Arc<dyn TransportTopic> {
        inner
    }
    fn capabilities(&self) -> &Capabilities {
        self.inner().capabilities()
    }
    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        Ok(self.inner().open_topic(name)?.map(|topic| self.topic(topic, name)))
    }
    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        Ok(self.topic(self.inner().create_topic(name, qos)?, name))
    }
    fn make_topics(
        &self,
        topics: &[(TopicName, Qos)],
        made: &mut dyn FnMut(usize),
    ) -> Result<(), TransportError> {
        self.inner().make_topics(topics, made)
    }
    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.inner().topics()
    }
    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        self.inner().schema(id)
    }
    fn close(&self) {
        self.inner().close();
    }
}

impl<T: Decorator> Transport for T {
    fn capabilities(&self) -> &Capabilities {
        Decorator::capabilities(self)
    }

    fn prepare(&self, qos: &Qos) {
        self.inner().prepare(qos);
    }

    fn identity(&self) -> Result<Option<String>, TransportError> {
        self.inner().identity()
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        Decorator::open_topic(self, name)
    }

    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        Decorator::create_topic(self, name, qos)
    }

    fn make_topics(
        &self,
        topics: &[(TopicName, Qos)],
        made: &mut dyn FnMut(usize),
    ) -> Result<(), TransportError> {
        Decorator::make_topics(self, topics, made)
    }

    fn remove_topic(&self, name: &TopicName) -> Result<bool, TransportError> {
        self.inner().remove_topic(name)
    }

    fn purge_topic(&self, name: &TopicName) -> Result<bool, TransportError> {
        self.inner().purge_topic(name)
    }

    fn alter_topic(&self, name: &TopicName, retention: &Retention) -> Result<bool, TransportError> {
        self.inner().alter_topic(name, retention)
    }

    fn grant(
        &self,
        user: &str,
        topic: &TopicName,
        password: Option<&str>,
    ) -> Result<Granted, TransportError> {
        self.inner().grant(user, topic, password)
    }

    fn revoke(&self, user: &str, topic: &TopicName) -> Result<bool, TransportError> {
        self.inner().revoke(user, topic)
    }

    fn exclusive_log(
        &self,
        name: &TopicName,
        options: &LogOptions,
    ) -> Result<Arc<dyn ExclusiveLog>, ExclusiveError> {
        self.inner().exclusive_log(name, options)
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        Decorator::topics(self)
    }

    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        self.inner().put_schema(id, text)
    }

    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        Decorator::schema(self, id)
    }

    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError> {
        self.inner().bell()
    }

    fn remedy(&self, policy: &str) -> Option<String> {
        self.inner().remedy(policy)
    }

    fn close(&self) {
        Decorator::close(self);
    }
}

/// A [`TransportTopic`] that wraps another. Methods default to the inner topic's.
#[expect(missing_docs, reason = "its methods are those of TransportTopic")]
#[expect(clippy::missing_errors_doc, reason = "its methods are those of TransportTopic")]
pub trait TopicDecorator: Send + Sync + 'static {
    /// The inner one.
    fn inner(&self) -> &dyn TransportTopic;
    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        self.inner().writer(request)
    }
    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        self.inner().forwarder(request, incarnation)
    }
    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        self.inner().reader(request)
    }
    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError> {
        self.inner().partitions()
    }
    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        self.inner().writers()
    }
    fn owners_in_order(&self, producer: &Producer, since: Instant) -> OwnerOrder {
        self.inner().owners_in_order(producer, since)
    }
    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        self.inner().committed(group)
    }
    fn register_schema(&self, schema: &SchemaText) -> Result<(), RegisterError> {
        self.inner().register_schema(schema)
    }
}

impl<T: TopicDecorator> TransportTopic for T {
    fn is_current(&self) -> bool {
        self.inner().is_current()
    }

    fn qos(&self) -> &Qos {
        self.inner().qos()
    }

    fn retention(&self) -> Result<Retention, TransportError> {
        self.inner().retention()
    }

    fn schemas(&self) -> Result<Vec<SchemaId>, TransportError> {
        self.inner().schemas()
    }

    fn declare_schema(&self, id: SchemaId, after: usize) -> Result<Declared, TransportError> {
        self.inner().declare_schema(id, after)
    }

    fn register_schema(&self, schema: &SchemaText) -> Result<(), RegisterError> {
        TopicDecorator::register_schema(self, schema)
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        TopicDecorator::writer(self, request)
    }

    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        TopicDecorator::forwarder(self, request, incarnation)
    }

    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        TopicDecorator::reader(self, request)
    }

    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError> {
        TopicDecorator::partitions(self)
    }

    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        TopicDecorator::writers(self)
    }

    fn carried(&self) -> Result<Option<Carried>, TransportError> {
        self.inner().carried()
    }

    fn owners_in_order(&self, producer: &Producer, since: Instant) -> OwnerOrder {
        TopicDecorator::owners_in_order(self, producer, since)
    }

    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        TopicDecorator::committed(self, group)
    }

    fn groups(&self) -> Result<Vec<GroupState>, TransportError> {
        self.inner().groups()
    }
}
