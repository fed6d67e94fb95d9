//! A bus in memory that refuses records and schemas by rules, and whose schemas cannot be read for
//! a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::transport::{
    Decorator, Published, Record, RegisterError, TopicDecorator, Transport, TransportTopic, Writer,
    WriterRequest,
};
use helio_bus::{
    Builder, Bus, Guarantee, PendingReceipt, Producer, PublishError, SchemaId, SchemaText,
    TopicName, TransportError,
};

/// Why a record of a topic is refused; `None` if it is accepted.
type Rule = Arc<dyn Fn(&str, &Record<'_>) -> Option<PublishError> + Send + Sync + 'static>;

/// Why a schema of a topic is refused, as by a registry.
type SchemaRule = Arc<dyn Fn(&str, &SchemaText) -> Option<String> + Send + Sync + 'static>;

/// The transport.
pub(crate) struct Faulty {
    inner: Arc<FaultTransport>,
    rule: Rule,
    schema_rule: SchemaRule,
    /// The look-ups of schemas that fail.
    pub(crate) schema_failures: AtomicU64,
    /// All look-ups of schemas.
    pub(crate) lookups: AtomicU64,
}

impl Faulty {
    pub(crate) fn new(
        rule: impl Fn(&str, &Record<'_>) -> Option<PublishError> + Send + Sync + 'static,
    ) -> (Arc<Self>, Bus) {
        Self::over(Bus::builder(), rule, |_, _| None)
    }

    /// The same with a rule for schemas that publishers register.
    pub(crate) fn over(
        builder: Builder,
        rule: impl Fn(&str, &Record<'_>) -> Option<PublishError> + Send + Sync + 'static,
        schema_rule: impl Fn(&str, &SchemaText) -> Option<String> + Send + Sync + 'static,
    ) -> (Arc<Self>, Bus) {
        let inner = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
        let (schema_failures, lookups) = (AtomicU64::new(0), AtomicU64::new(0));
        let (rule, schema_rule) = (Arc::new(rule), Arc::new(schema_rule));
        let faulty = Arc::new(Self { inner, rule, schema_rule, schema_failures, lookups });
        let bus = builder.over(Arc::clone(&faulty) as Arc<dyn Transport>).unwrap();
        (faulty, bus)
    }
}

impl Decorator for Faulty {
    fn inner(&self) -> &dyn Transport {
        &*self.inner
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, name: &TopicName) -> Arc<dyn TransportTopic> {
        let (rule, schema_rule) = (Arc::clone(&self.rule), Arc::clone(&self.schema_rule));
        Arc::new(FaultyTopic { inner, name: name.to_string(), rule, schema_rule })
    }

    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let fewer = |left: u64| left.checked_sub(1);
        match self.schema_failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer) {
            Ok(_) => Err(TransportError::Outage {
                transport: "faulty".to_owned(),
                cause: "no schemas at present".to_owned(),
            }),
            Err(_) => self.inner().schema(id),
        }
    }
}

struct FaultyTopic {
    inner: Arc<dyn TransportTopic>,
    name: String,
    rule: Rule,
    schema_rule: SchemaRule,
}

impl TopicDecorator for FaultyTopic {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.inner
    }

    fn register_schema(&self, schema: &SchemaText) -> Result<(), RegisterError> {
        match (self.schema_rule)(&self.name, schema) {
            Some(reason) => Err(RegisterError::Refused(reason)),
            None => self.inner.register_schema(schema),
        }
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        let inner = self.inner.writer(request)?;
        let (name, rule) = (self.name.clone(), Arc::clone(&self.rule));
        Ok(Box::new(FaultyWriter { inner, name, rule }))
    }
}

struct FaultyWriter {
    inner: Box<dyn Writer>,
    name: String,
    rule: Rule,
}

impl Writer for FaultyWriter {
    fn producer(&self) -> &Producer {
        self.inner.producer()
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        match (self.rule)(&self.name, record) {
            Some(error) => Err(error),
            None => self.inner.publish(record, guarantee),
        }
    }

    fn assert_alive(&mut self) -> Result<(), TransportError> {
        self.inner.assert_alive()
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.inner.flush(guarantee)
    }
}
