//! Topics: their specification, and the publishers and subscriptions opened on them.

use std::sync::Arc;
use std::time::Duration;

use helio_core::qos::{History, Liveliness};
use helio_core::{Producer, ProducerName, Qos, SchemaId, TopicName};

use crate::error::TopicError;
use crate::evolution::{Evolution, SchemaRules};
use crate::forwarder::Forwarder;
use crate::grants::Granted;
use crate::groups::GroupInfo;
use crate::publisher::Publisher;
use crate::resolve::{Resolver, UndecodableReports};
use crate::schema_text::SchemaText;
use crate::subscribe::Subscribe;
use crate::subscription::Subscription;
use crate::topic_core::TopicCore;
use crate::transport::{Carried, PartitionInfo, WriterInfo};

/// The specification of a topic to open.
#[derive(Debug, Clone)]
pub struct TopicSpec {
    pub(crate) name: TopicName,
    pub(crate) qos: Option<Qos>,
    pub(crate) schema: Option<SchemaText>,
    pub(crate) rules: SchemaRules,
    pub(crate) producer: Option<ProducerName>,
}

impl TopicSpec {
    /// A topic by name. Without [`TopicSpec::qos`] it must exist and is opened as it is.
    ///
    /// # Errors
    /// [`TopicError::Name`].
    pub fn new(name: &str) -> Result<Self, TopicError> {
        Ok(Self::of(TopicName::new(name)?))
    }

    /// The same, from a parsed name.
    #[must_use]
    pub fn of(name: TopicName) -> Self {
        Self { name, qos: None, schema: None, rules: SchemaRules::default(), producer: None }
    }

    /// The quality of service. An existing topic must have been created with the same.
    #[must_use]
    pub fn qos(mut self, qos: Qos) -> Self {
        self.qos = Some(qos);
        self
    }

    /// The schema that publishers write and subscriptions read. Without it, payloads are bytes.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<SchemaText>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The required compatibility of this handle's schema with the topic's, if not the default of
    /// [`Evolution`].
    #[must_use]
    pub fn evolution(mut self, policy: Evolution) -> Self {
        self.rules.evolution = Some(policy);
        self
    }

    /// Fields of this handle's schema for which a default is not a value. A sample whose writer's
    /// schema lacks one of them is reported as
    /// [`Event::Undecodable`](crate::Event::Undecodable).
    #[must_use]
    pub fn required_fields<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.rules.required = names.into_iter().map(str::to_owned).collect();
        self
    }

    /// The producer that publishes through this handle, if not the bus's. Several components of one
    /// process can thus share a bus. Handles of one producer share its writers.
    #[must_use]
    pub fn producer(mut self, producer: ProducerName) -> Self {
        self.producer = Some(producer);
        self
    }

    pub(crate) fn validate(&self) -> Result<(), TopicError> {
        let Some(qos) = &self.qos else { return Ok(()) };
        let wrong = |field, value: String, reason| {
            Err(TopicError::Invalid { topic: self.name.clone(), field, value, reason })
        };
        if !(1..=1024).contains(&qos.partitions) {
            return wrong("partitions", qos.partitions.to_string(), "1 to 1,024 are possible");
        }
        if qos.history == History::KeepLast(0) {
            return wrong("history", "keep_last(0)".to_owned(), "1 to 255, or history none");
        }
        let durations = [
            ("deadline", qos.deadline),
            ("lifespan", qos.lifespan),
            ("retention.age", qos.retention.age),
            (
                "liveliness",
                match qos.liveliness {
                    Liveliness::Lease(lease) => Some(lease),
                    Liveliness::Automatic => None,
                },
            ),
        ];
        match durations.into_iter().find(|(_, time)| time.is_some_and(|time| time.is_zero())) {
            Some((field, _)) => wrong(field, "0 s".to_owned(), "a time must be longer than zero"),
            None => Ok(()),
        }
    }
}

/// A topic's description and state.
#[derive(Debug, Clone)]
pub struct TopicInfo {
    /// The name.
    pub name: TopicName,
    /// The quality of service.
    pub qos: Qos,
    /// The declared schemas, oldest first.
    pub schemas: Vec<SchemaId>,
    /// The state of each partition.
    pub partitions: Vec<PartitionInfo>,
    /// The encoding of its samples, if the engine has several.
    pub carried: Option<Carried>,
    /// Its present and former writers.
    pub writers: Vec<WriterInfo>,
}

/// An open topic. Cloning shares it.
#[derive(Clone)]
pub struct Topic {
    core: Arc<TopicCore>,
    schema: Option<SchemaText>,
    rules: SchemaRules,
}

impl Topic {
    pub(crate) fn opened(core: Arc<TopicCore>, spec: TopicSpec) -> Self {
        Self { core, schema: spec.schema, rules: spec.rules }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.core.name
    }

    /// The quality of service that it was created with.
    #[must_use]
    pub fn qos(&self) -> &Qos {
        self.core.transport.qos()
    }

    /// The producer that publishes through this handle.
    #[must_use]
    pub fn producer(&self) -> &ProducerName {
        &self.core.producer
    }

    /// The schema that this handle writes and reads.
    #[must_use]
    pub fn schema(&self) -> Option<&SchemaText> {
        self.schema.as_ref()
    }

    /// Opens a publisher. The publishers of one producer on one topic of a bus share an
    /// incarnation, which ends with the last of them. Keep one instead of opening one for each
    /// sample.
    ///
    /// # Errors
    /// [`TopicError::Incompatible`] if the schema does not fit the topic's (see [`Evolution`]);
    /// [`TransportError::Owned`](crate::TransportError::Owned) if the topic is exclusive and has a
    /// live writer.
    pub fn publisher(&self) -> Result<Publisher, TopicError> {
        self.declare()?;
        let schema = self.schema.as_ref().map_or(SchemaId::BYTES, |schema| schema.id);
        Ok(Publisher::new(self.core.writers()?, Arc::clone(&self.core), schema))
    }

    /// Opens a forwarder, which publishes a producer's samples from another bus into a partition.
    /// Their schemas must be [declared](Self::declare) before.
    ///
    /// # Errors
    /// [`TransportError::Owned`](crate::TransportError::Owned) if the topic is exclusive and has a
    /// live writer, or if another process forwards that producer;
    /// [`TransportError::Fenced`](crate::TransportError::Fenced) if the producer publishes here
    /// itself; [`TransportError::Unsupported`](crate::TransportError::Unsupported).
    pub fn forwarder(&self, producer: &Producer, partition: u32) -> Result<Forwarder, TopicError> {
        Ok(Forwarder::open(&self.core, producer, partition)?)
    }

    /// Adds the handle's schema to the topic's, as opening a publisher does. A reader of many
    /// writers, such as a component that reads commands, thus binds the writers to its schema.
    ///
    /// # Errors
    /// [`TopicError::Incompatible`] as [`publisher`](Self::publisher); the topic is unchanged then.
    pub fn declare(&self) -> Result<(), TopicError> {
        match &self.schema {
            None => Ok(()),
            Some(schema) => crate::resolve::declare(&self.core, schema, self.rules.evolution),
        }
    }

    /// Opens a subscription.
    ///
    /// # Errors
    /// [`TopicError::Incompatible`] if its schema does not fit the topic's newest (see
    /// [`Evolution`]); [`TopicError::Refused`] if the transport cannot start there, or has no
    /// groups.
    pub fn subscribe(&self, options: Subscribe) -> Result<Subscription, TopicError> {
        let schema = self.schema.as_ref().map(|schema| (schema, &self.rules));
        Subscription::open(&self.core, schema, options)
    }

    /// Converts a payload of another schema of this topic to this handle's, for payloads nested in
    /// others. Subscriptions convert their samples themselves.
    ///
    /// # Errors
    /// [`TopicError::Schema`], with the field's name, if the payload cannot be resolved, the
    /// handle's policy forbids it, or a [required
    /// field](TopicSpec::required_fields) is missing.
    pub fn resolve(&self, schema: SchemaId, payload: &[u8]) -> Result<Vec<u8>, TopicError> {
        let Some(own) = self.schema.as_ref().filter(|own| own.id != schema) else {
            return Ok(payload.to_vec());
        };
        let reports = UndecodableReports::Each;
        let mut resolver = Resolver::new(&self.core, own, &self.rules, reports)?;
        match resolver.resolve(&*self.core.bus.transport, schema, payload) {
            Ok((_, payload)) => Ok(payload.to_vec()),
            Err(unread) => {
                let topic = self.core.name.clone();
                Err(TopicError::Schema { topic, schema, reason: unread.into_reason() })
            }
        }
    }

    /// The state of each partition.
    ///
    /// # Errors
    /// The transport's error.
    pub fn partitions(&self) -> Result<Vec<PartitionInfo>, TopicError> {
        Ok(self.core.transport.partitions()?)
    }

    /// The topic's writers by name: each producer's newest incarnation, and whether it is alive (as
    /// `watch_writers` reports it). The query is cheap enough for a caller to make before each
    /// command: it reads shared memory and the state of each process.
    ///
    /// # Errors
    /// The transport's error; an [outage](TopicError::is_outage) if the engine does not answer at
    /// once, so that liveliness is unknown.
    pub fn writers(&self) -> Result<Vec<WriterInfo>, TopicError> {
        Ok(crate::status_events::newest_writers(&*self.core.transport, self.core.bus.clock.now())?)
    }

    /// The same, but an engine that does not answer is queried again until the timeout.
    ///
    /// # Errors
    /// As [`writers`](Self::writers).
    pub fn writers_within(&self, timeout: Duration) -> Result<Vec<WriterInfo>, TopicError> {
        let clock = &*self.core.bus.clock;
        Ok(crate::status_events::newest_within(&*self.core.transport, clock, timeout)?)
    }

    /// Lets a user read this topic and write nothing. On a journal it is a user of the machine, by
    /// name or number, who opens the journal for reading; all others are excluded, except the
    /// journal's owner and earlier grants. On Kafka it is a principal, which gets a login (SCRAM)
    /// with the given password, or with a generated one if it has none yet; groups of the topic are
    /// included. It waits for the engine.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`](crate::TransportError::Unsupported) on transports without
    /// [grants](crate::Capabilities::grants), on brokers without access control, and for a password
    /// on a journal; the transport's error.
    pub fn grant(&self, user: &str, password: Option<&str>) -> Result<Granted, TopicError> {
        Ok(self.core.bus.transport.grant(user, &self.core.name, password)?)
    }

    /// Ends a user's [grant](Self::grant); returns whether there was one.
    ///
    /// # Errors
    /// As [`grant`](Self::grant).
    pub fn revoke(&self, user: &str) -> Result<bool, TopicError> {
        Ok(self.core.bus.transport.revoke(user, &self.core.name)?)
    }

    /// A group's committed position in each partition.
    ///
    /// # Errors
    /// The transport's error.
    pub fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TopicError> {
        Ok(self.core.transport.committed(group)?)
    }

    /// The topic's groups: members, committed positions and lag, by name. On Kafka these are the
    /// groups of Heliograph's subscriptions.
    ///
    /// # Errors
    /// [`TopicError::Refused`] if the transport has no groups; the transport's error.
    pub fn groups(&self) -> Result<Vec<GroupInfo>, TopicError> {
        let can = self.core.bus.transport.capabilities();
        can.need(&self.core.name, "group", "a group", can.groups)?;
        let mut states = self.core.transport.groups()?;
        states.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        // Queried afterwards: no committed position lies behind these ends.
        let partitions = self.core.transport.partitions()?;
        Ok(states.into_iter().map(|state| GroupInfo::of(state, &partitions)).collect())
    }
}

impl std::fmt::Debug for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topic").field("name", &self.core.name).finish_non_exhaustive()
    }
}
