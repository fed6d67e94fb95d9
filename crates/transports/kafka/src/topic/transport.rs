//! The transport, and a topic of it, behind the bus's traits.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use helio_bus::transport::{
    Capabilities, Declared, OwnerOrder, PartitionInfo, Reader, ReaderRequest, RegisterError,
    Transport, TransportTopic, Writer, WriterInfo, WriterRequest, first_difference, locked,
};
use helio_bus::{Bell, LocalBell, Producer, Qos, SchemaId, SchemaText, TopicName, TransportError};
use helio_core::qos::Overload;
use serde::{Deserialize, Serialize};

use crate::SCHEME;
use crate::client::error::failed;
use crate::client::fetcher::FetchPace;
use crate::client::options::{BROKER_TIMEOUT, FORWARDING_BATCH_BYTES};
use crate::client::topic_config;
use crate::internal::internal_topics::Description;
use crate::internal::producers;
use crate::topic::connection::Connection;
use crate::topic::create_topics::WantedTopic;
use crate::topic::group;
use crate::topic::reader::KafkaReader;
use crate::topic::record_format::RecordFormat;
use crate::topic::sample;
use crate::topic::writer::KafkaWriter;

pub(crate) struct KafkaTransport {
    pub(crate) connection: Arc<Connection>,
    pub(crate) capabilities: Capabilities,
    /// Topics that were created together and need no further check.
    pub(crate) made: Mutex<HashSet<TopicName>>,
}

/// The creator of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TopicOrigin {
    /// A bus: its writers maintain the companion.
    Bus,
    /// Another program created it, or writes it too: there is no companion.
    Foreign,
}

/// The state that a topic's writers and readers share.
pub(crate) struct TopicState {
    pub(crate) connection: Arc<Connection>,
    pub(crate) name: TopicName,
    pub(crate) kafka: String,
    pub(crate) companion: Option<String>,
    pub(crate) qos: Qos,
    pub(crate) wire: RecordFormat,
    /// The forwarders' batch size, by its index in [`FORWARDING_BATCH_BYTES`], once that was
    /// queried.
    batch: OnceLock<usize>,
}

impl KafkaTransport {
    fn opened(
        &self,
        name: &TopicName,
        kafka: String,
        Description { qos, origin }: Description,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        let has_companion = origin == TopicOrigin::Bus && topic_config::has_companion(&qos);
        let companion = has_companion.then(|| self.connection.names.companion(name)).transpose()?;
        let connection = Arc::clone(&self.connection);
        let wire = RecordFormat::new(&connection, &kafka, connection.names.sal_keys(name));
        let name = name.clone();
        let batch = OnceLock::new();
        let state = TopicState { connection, name, kafka, companion, qos, wire, batch };
        Ok(Arc::new(KafkaTopic(Arc::new(state))))
    }
}

impl Transport for KafkaTransport {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn identity(&self) -> Result<Option<String>, TransportError> {
        self.connection.check_open()?;
        let cluster = self.connection.client.cluster(BROKER_TIMEOUT)?;
        let legal = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
        let cluster: String = cluster.chars().map(legal).collect();
        Ok(Some(format!("{SCHEME}-{cluster}.{}", self.connection.options.names.prefix())))
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        self.connection.check_open()?;
        let kafka = self.connection.names.kafka(name)?;
        let Some(partitions) = self.connection.partitions(&kafka)? else { return Ok(None) };
        let described = self.connection.tables.description(&self.connection, name)?;
        let description = match described {
            Some(description) => description,
            None => {
                let config = self.connection.admin.describe(&kafka)?;
                let qos = topic_config::foreign(&config, partitions);
                Description { qos, origin: TopicOrigin::Foreign }
            }
        };
        self.opened(name, kafka, description).map(Some)
    }

    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        self.connection.check_open()?;
        let kafka = self.connection.names.kafka(name)?;
        let tables = &self.connection.tables;
        let there = self.connection.partitions(&kafka)?;
        let mut named = tables.description(&self.connection, name)?;
        if there.is_none() && named.as_ref().is_some_and(|named| named.qos != *qos) {
            // Another program has deleted it: it may be recreated.
            tables.forget(&self.connection, name)?;
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
                let description = self.described(name, qos, there);
                let said = tables.describe(&self.connection, &[(name, description.clone())])?;
                said.into_iter().next().unwrap_or(description)
            }
        };
        if let Some(error) = first_difference(name, &holds.qos, qos) {
            return Err(error);
        }
        if there.is_none() {
            let refused = self.make(&[WantedTopic { name, kafka: &kafka, qos }], &mut |_| {})?;
            refused.into_iter().next().map_or(Ok(()), Err)?;
        }
        self.opened(name, kafka, holds)
    }

    fn make_topics(
        &self,
        topics: &[(TopicName, Qos)],
        made: &mut dyn FnMut(usize),
    ) -> Result<(), TransportError> {
        self.connection.check_open()?;
        let new = |(name, _): &&(TopicName, Qos)| !locked(&self.made).contains(name);
        let topics: Vec<_> = topics.iter().filter(new).cloned().collect();
        if topics.is_empty() {
            return Ok(());
        }
        let missing = self.missing(&topics)?;
        let there = topics.len() - missing.len();
        let wanted = missing.iter().map(|(kafka, (name, qos))| WantedTopic { name, kafka, qos });
        let wanted = self.agree(wanted.collect())?;
        made(there);
        // Rejected topics report their errors when they are opened.
        let _ = self.make(&wanted, &mut |n| made(there + n))?;
        locked(&self.made).extend(topics.into_iter().map(|(name, _)| name));
        Ok(())
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.connection.check_open()?;
        let told = self.connection.client.fetch_metadata(None, BROKER_TIMEOUT);
        let told = told.map_err(failed("list the topics"))?;
        let names = told.topics().iter().map(|topic| topic.name());
        let mut names: Vec<_> = names.filter_map(|name| self.connection.names.bus(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        self.connection.tables.put_schema(&self.connection, id, text)
    }

    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        if let Some(registry) = &self.connection.registry
            && let Some(text) = registry.text(id)
        {
            return Ok(Some(text));
        }
        self.connection.tables.schema(&self.connection, id)
    }

    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError> {
        Ok(LocalBell::new())
    }

    fn close(&self) {
        self.connection.close();
    }
}

/// One topic.
struct KafkaTopic(Arc<TopicState>);

impl TopicState {
    /// Queries once how large forwarders' batches may be: the largest size that the topic admits.
    /// Without an answer it is the largest of all. All forwarders keep the first answer: each size
    /// has a producer of its own, and records of two producers have no order.
    fn learn_batch(&self) -> Result<(), TransportError> {
        if self.batch.get().is_some() {
            return Ok(());
        }
        let config = match self.connection.admin.describe(&self.kafka) {
            Err(outage @ TransportError::Outage { .. }) => return Err(outage),
            // Reading configurations may be forbidden.
            told => told.unwrap_or_default(),
        };
        let most = config.get("max.message.bytes").and_then(|most| most.parse::<u32>().ok());
        let fits = |bytes: &u32| most.is_none_or(|most| *bytes <= most);
        let place = FORWARDING_BATCH_BYTES
            .iter()
            .position(fits)
            .unwrap_or(FORWARDING_BATCH_BYTES.len() - 1);
        // The first answer is kept.
        let _ = self.batch.set(place);
        Ok(())
    }

    /// The forwarders' batch size, by its index in [`FORWARDING_BATCH_BYTES`].
    pub(crate) fn batch(&self) -> usize {
        self.batch.get().copied().unwrap_or(0)
    }

    /// The pace of fetching: samples that newer ones may replace are written at a regular rate.
    pub(crate) fn pace(&self) -> FetchPace {
        if self.qos.overload == Overload::DropOldest { FetchPace::Busy } else { FetchPace::Patient }
    }

    /// The partitions that a request names, or all.
    pub(crate) fn partitions(&self, named: &[u32]) -> Result<Vec<u32>, TransportError> {
        let partitions = self.qos.partitions;
        if let Some(wrong) = named.iter().find(|partition| **partition >= partitions) {
            return Err(TransportError::Unsupported {
                transport: SCHEME.to_owned(),
                what: format!("open partition {wrong} of {}", self.name),
                remedy: format!("the topic has {partitions} partitions"),
            });
        }
        Ok(if named.is_empty() { (0..partitions).collect() } else { named.to_vec() })
    }
}

impl KafkaTopic {
    /// Opens a writer; for samples of another bus, with their producer's incarnation there.
    fn opened(
        &self,
        request: &WriterRequest<'_>,
        elsewhere: Option<u64>,
    ) -> Result<Box<dyn Writer>, TransportError> {
        let topic = &self.0;
        let connection = &topic.connection;
        connection.check_open()?;
        topic.partitions(&[request.partition])?;
        let producer = match elsewhere {
            None => connection.producer()?,
            Some(_) => {
                topic.learn_batch()?;
                connection.forwarding(topic.batch())?
            }
        };
        for name in [Some(&topic.kafka), topic.companion.as_ref()].into_iter().flatten() {
            let learned = producer.learn(name, BROKER_TIMEOUT);
            learned.map_err(failed("fetch the topic's metadata"))?;
        }
        let claim = producers::claim(topic, request.partition, request.producer, elsewhere)?;
        Ok(Box::new(KafkaWriter::new(topic, request.partition, claim)))
    }
}

impl TransportTopic for KafkaTopic {
    fn qos(&self) -> &Qos {
        &self.0.qos
    }

    fn schemas(&self) -> Result<Vec<SchemaId>, TransportError> {
        self.0.connection.tables.schemas_of(&self.0.connection, &self.0.name)
    }

    fn declare_schema(&self, id: SchemaId, after: usize) -> Result<Declared, TransportError> {
        self.0.connection.tables.declare(&self.0.connection, &self.0.name, (id, after))
    }

    fn register_schema(&self, schema: &SchemaText) -> Result<(), RegisterError> {
        self.0.wire.register(schema)
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
        self.0.connection.check_open()?;
        Ok(Box::new(KafkaReader::open(&self.0, request)?))
    }

    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError> {
        self.0.connection.check_open()?;
        let info = |partition| {
            let client = &self.0.connection.client;
            let (first, end) = client.ends(&self.0.kafka, partition, BROKER_TIMEOUT)?;
            // A partition's size on disk and its newest timestamp are not available.
            Ok(PartitionInfo { partition, first, end, durable: end, bytes: 0, last_time: None })
        };
        (0..self.0.qos.partitions).map(info).collect()
    }

    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        self.0.connection.check_open()?;
        let mut writers = producers::writers(&self.0)?;
        if self.0.wire.is_sal() {
            writers.extend(sample::unknown_writer(self.0.qos.partitions));
        }
        Ok(writers)
    }

    /// Samples of another bus keep their incarnations there, and plain clients have none.
    fn owners_in_order(&self, producer: &Producer, since: Instant) -> OwnerOrder {
        if sample::is_unknown(producer) {
            return OwnerOrder::Unknown;
        }
        self.0.connection.tables.owners_in_order(&self.0.connection, (&self.0.name, since))
    }

    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        self.0.connection.check_open()?;
        group::committed(&self.0, group)
    }
}
