//! The transport, and a topic of it, behind the bus's traits.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use helio_bus::transport::{
    Capabilities, Declared, Granted, GroupState, OwnerOrder, PartitionInfo, Reader, ReaderRequest,
    RegisterError, Transport, TransportTopic, Writer, WriterInfo, WriterRequest, first_difference,
    locked,
};
use helio_bus::{Bell, LocalBell, Producer, Qos, SchemaId, SchemaText, TopicName, TransportError};

use crate::SCHEME;
use crate::client::error::failed;
use crate::client::options::BROKER_TIMEOUT;
use crate::client::topic_config;
use crate::internal::internal_topics::{TopicDeclaration, TopicOrigin};
use crate::internal::producers;
use crate::topic::connection::Connection;
use crate::topic::create_topics::WantedTopic;
use crate::topic::grants;
use crate::topic::group;
use crate::topic::reader::KafkaReader;
use crate::topic::record_format::RecordFormat;
use crate::topic::sample;
use crate::topic::state::TopicState;
use crate::topic::writer::KafkaWriter;

pub(crate) struct KafkaTransport {
    pub(crate) connection: Arc<Connection>,
    pub(crate) capabilities: Capabilities,
    /// Topics that were created together and need no further check.
    pub(crate) made: Mutex<HashSet<TopicName>>,
}

impl KafkaTransport {
    fn opened(
        &self,
        name: &TopicName,
        kafka: String,
        TopicDeclaration { qos, origin }: TopicDeclaration,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        let has_companion = origin == TopicOrigin::Bus && topic_config::has_companion(&qos);
        let companion =
            has_companion.then(|| self.connection.link.names.companion(name)).transpose()?;
        let Connection { link, tables, registry, .. } = &*self.connection;
        let state = TopicState {
            format: RecordFormat::new(tables, registry.as_ref(), &kafka, link.names.sal_keys(name)),
            link: Arc::clone(link),
            tables: Arc::clone(tables),
            name: name.clone(),
            kafka,
            companion,
            qos,
            batch: OnceLock::new(),
        };
        let connection = Arc::clone(&self.connection);
        Ok(Arc::new(KafkaTopic { connection, state: Arc::new(state) }))
    }
}

impl Transport for KafkaTransport {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn identity(&self) -> Result<Option<String>, TransportError> {
        self.connection.link.check_open()?;
        let cluster = self.connection.link.client.cluster(BROKER_TIMEOUT)?;
        let legal = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
        let cluster: String = cluster.chars().map(legal).collect();
        Ok(Some(format!("{SCHEME}-{cluster}.{}", self.connection.link.options.names.prefix())))
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        self.connection.link.check_open()?;
        let kafka = self.connection.link.names.kafka(name)?;
        let Some(partitions) = self.connection.link.client.partitions(&kafka)? else {
            return Ok(None);
        };
        let described = self.connection.tables.description(name)?;
        let description = match described {
            Some(description) => description,
            None => {
                let config = self.connection.link.admin.describe(&kafka)?;
                let qos = topic_config::foreign(&config, partitions);
                TopicDeclaration { qos, origin: TopicOrigin::Foreign }
            }
        };
        self.opened(name, kafka, description).map(Some)
    }

    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        self.connection.link.check_open()?;
        let kafka = self.connection.link.names.kafka(name)?;
        let tables = &self.connection.tables;
        let there = self.connection.link.client.partitions(&kafka)?;
        let mut named = tables.description(name)?;
        if there.is_none() && named.as_ref().is_some_and(|named| named.qos != *qos) {
            // Another program has deleted it: it may be recreated.
            tables.forget(name)?;
            named = None;
        }
        if let (None, Some(partitions)) = (&named, there)
            && partitions != qos.partitions
        {
            return Err(TransportError::Differs {
                topic: name.clone(),
                field: "partitions".to_owned(),
                existing: partitions.to_string(),
                asked: qos.partitions.to_string(),
            });
        }
        let holds = match named {
            Some(named) => named,
            None => {
                producers::possible(name, qos)?;
                let description = self.connection.declaration(name, qos, there);
                let declared = tables.describe(&[(name, description.clone())])?;
                declared.into_iter().next().unwrap_or(Ok(description))?
            }
        };
        if let Some(error) = first_difference(name, &holds.qos, qos) {
            return Err(error);
        }
        if there.is_none() {
            let refused =
                self.connection.create(&[WantedTopic { name, kafka: &kafka, qos }], &mut |_| {})?;
            refused.into_iter().next().map_or(Ok(()), Err)?;
        }
        self.opened(name, kafka, holds)
    }

    fn make_topics(
        &self,
        topics: &[(TopicName, Qos)],
        made: &mut dyn FnMut(usize),
    ) -> Result<(), TransportError> {
        self.connection.link.check_open()?;
        let new = |(name, _): &&(TopicName, Qos)| !locked(&self.made).contains(name);
        let topics: Vec<_> = topics.iter().filter(new).cloned().collect();
        if topics.is_empty() {
            return Ok(());
        }
        let missing = self.connection.missing(&topics)?;
        let there = topics.len() - missing.len();
        let wanted = missing.iter().map(|(kafka, (name, qos))| WantedTopic { name, kafka, qos });
        let wanted = self.connection.agree(wanted.collect())?;
        made(there);
        // Rejected topics report their errors when they are opened.
        let _ = self.connection.create(&wanted, &mut |n| made(there + n))?;
        locked(&self.made).extend(topics.into_iter().map(|(name, _)| name));
        Ok(())
    }

    fn grant(
        &self,
        user: &str,
        topic: &TopicName,
        password: Option<&str>,
    ) -> Result<Granted, TransportError> {
        self.connection.link.check_open()?;
        grants::grant(&self.connection.link, user, topic, password)
    }

    fn revoke(&self, user: &str, topic: &TopicName) -> Result<bool, TransportError> {
        self.connection.link.check_open()?;
        grants::revoke(&self.connection.link, user, topic)
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.connection.link.check_open()?;
        let metadata = self.connection.link.client.fetch_metadata(None, BROKER_TIMEOUT);
        let metadata = metadata.map_err(failed("list the topics"))?;
        let names = metadata.topics().iter().map(|topic| topic.name());
        let mut names: Vec<_> =
            names.filter_map(|name| self.connection.link.names.bus(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        self.connection.tables.put_schema(id, text)
    }

    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        if let Some(registry) = &self.connection.registry
            && let Some(text) = registry.text(id)
        {
            return Ok(Some(text));
        }
        self.connection.tables.schema(id)
    }

    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError> {
        Ok(LocalBell::new())
    }

    fn close(&self) {
        self.connection.close();
    }
}

/// One topic.
struct KafkaTopic {
    /// Kept open.
    connection: Arc<Connection>,
    state: Arc<TopicState>,
}

impl KafkaTopic {
    /// Opens a writer; for samples of another bus, with their producer's incarnation there.
    fn opened(
        &self,
        request: &WriterRequest<'_>,
        forwarded: Option<u64>,
    ) -> Result<Box<dyn Writer>, TransportError> {
        let (topic, link) = (&self.state, &self.state.link);
        link.check_open()?;
        topic.partitions(&[request.partition])?;
        let producer = match forwarded {
            None => link.producer()?,
            Some(_) => {
                topic.learn_batch()?;
                link.forwarding(topic.batch())?
            }
        };
        for name in [Some(&topic.kafka), topic.companion.as_ref()].into_iter().flatten() {
            let learned = producer.learn(name, BROKER_TIMEOUT);
            learned.map_err(failed("fetch the topic's metadata"))?;
        }
        let claim = self.connection.claim(topic, request, forwarded)?;
        Ok(Box::new(KafkaWriter::new(&self.connection, topic, request.partition, claim)))
    }
}

impl TransportTopic for KafkaTopic {
    fn qos(&self) -> &Qos {
        &self.state.qos
    }

    fn schemas(&self) -> Result<Vec<SchemaId>, TransportError> {
        self.connection.tables.schemas_of(&self.state.name)
    }

    fn declare_schema(&self, id: SchemaId, after: usize) -> Result<Declared, TransportError> {
        self.connection.tables.declare(&self.state.name, id, after)
    }

    fn register_schema(&self, schema: &SchemaText) -> Result<(), RegisterError> {
        self.state.format.register(schema)
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        self.opened(request, None)
    }

    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        self.opened(request, Some(incarnation))
    }

    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        self.connection.link.check_open()?;
        Ok(Box::new(KafkaReader::open(&self.connection, &self.state, request)?))
    }

    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError> {
        self.connection.link.check_open()?;
        let info = |partition| {
            let client = &self.state.link.client;
            let (first, end) = client.ends(&self.state.kafka, partition, BROKER_TIMEOUT)?;
            // A partition's size on disk and its newest timestamp are not available.
            Ok(PartitionInfo {
                partition,
                first,
                end,
                durable: end,
                bytes: None,
                missing: 0,
                missing_from: 0,
                last_time: None,
                taken: None,
                log: None,
            })
        };
        (0..self.state.qos.partitions).map(info).collect()
    }

    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        self.connection.link.check_open()?;
        let topic = &self.state;
        let mut writers = producers::writers(&topic.tables, &topic.name, &topic.qos)?;
        if self.state.format.is_sal() {
            writers.extend(sample::unknown_writer(self.state.qos.partitions));
        }
        Ok(writers)
    }

    /// Samples of another bus keep their incarnations there, and plain clients have none.
    fn owners_in_order(&self, producer: &Producer, since: Instant) -> OwnerOrder {
        if sample::is_unknown(producer) {
            return OwnerOrder::Unknown;
        }
        self.connection.tables.owners_in_order(&self.state.name, since)
    }

    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        self.connection.link.check_open()?;
        group::committed(&self.state, group)
    }

    fn groups(&self) -> Result<Vec<GroupState>, TransportError> {
        self.connection.link.check_open()?;
        group::groups(&self.state)
    }
}
