//! The transport, and a topic of it, as the bus sees them.

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
use crate::claims;
use crate::connection::Connection;
use crate::error::failed;
use crate::fetcher::Pace;
use crate::group;
use crate::making::Wanted;
use crate::options::{BATCHES, PATIENCE};
use crate::reader::KafkaReader;
use crate::sample;
use crate::tables::Description;
use crate::topic_config;
use crate::wire::Wire;
use crate::writer::KafkaWriter;

pub(crate) struct Kafka {
    pub(crate) connection: Arc<Connection>,
    pub(crate) capabilities: Capabilities,
    /// Topics that need not be looked for again when others are made.
    pub(crate) made: Mutex<HashSet<TopicName>>,
}

/// Who has made a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// A bus: its writers keep the companion.
    Bus,
    /// Others, or it is written by others too: there is no companion.
    Foreign,
}

/// What a topic's writers and readers know of it.
pub(crate) struct TopicState {
    pub(crate) connection: Arc<Connection>,
    pub(crate) name: TopicName,
    pub(crate) kafka: String,
    pub(crate) companion: Option<String>,
    pub(crate) qos: Qos,
    pub(crate) wire: Wire,
    /// The batches of forwarders, by their place in [`BATCHES`], once that was asked for.
    batch: OnceLock<usize>,
}

impl Kafka {
    fn opened(
        &self,
        name: &TopicName,
        kafka: String,
        Description { qos, origin }: Description,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        let has_companion = origin == Origin::Bus && topic_config::has_companion(&qos);
        let companion = has_companion.then(|| self.connection.names.companion(name)).transpose()?;
        let connection = Arc::clone(&self.connection);
        let wire = Wire::new(&connection, &kafka, connection.names.sal_keys(name));
        let name = name.clone();
        let batch = OnceLock::new();
        let state = TopicState { connection, name, kafka, companion, qos, wire, batch };
        Ok(Arc::new(KafkaTopic(Arc::new(state))))
    }
}

impl Transport for Kafka {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn identity(&self) -> Result<Option<String>, TransportError> {
        self.connection.check_open()?;
        let cluster = self.connection.client.cluster(PATIENCE)?;
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
                Description { qos, origin: Origin::Foreign }
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
            // Somebody has deleted it by other means: it may be made anew.
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
                claims::possible(name, qos)?;
                let description = self.described(name, qos, there);
                let said = tables.describe(&self.connection, &[(name, description.clone())])?;
                said.into_iter().next().unwrap_or(description)
            }
        };
        if let Some(error) = first_difference(name, &holds.qos, qos) {
            return Err(error);
        }
        if there.is_none() {
            let refused = self.make(&[Wanted { name, kafka: &kafka, qos }], &mut |_| {})?;
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
        let wanted = missing.iter().map(|(kafka, (name, qos))| Wanted { name, kafka, qos });
        let wanted = self.agree(wanted.collect())?;
        made(there);
        // Those that are refused are told when they are opened.
        let _ = self.make(&wanted, &mut |n| made(there + n))?;
        locked(&self.made).extend(topics.into_iter().map(|(name, _)| name));
        Ok(())
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.connection.check_open()?;
        let told = self.connection.client.fetch_metadata(None, PATIENCE);
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
    /// Asks the brokers once how large forwarders' batches may be: the largest that the topic lets
    /// in. Where they do not say, the largest there is. All forwarders keep to the first answer:
    /// each size has a producer of its own, and what two of them send comes in no order.
    fn learn_batch(&self) -> Result<(), TransportError> {
        if self.batch.get().is_some() {
            return Ok(());
        }
        let config = match self.connection.admin.describe(&self.kafka) {
            Err(outage @ TransportError::Outage { .. }) => return Err(outage),
            // Not everybody is let in to configurations.
            told => told.unwrap_or_default(),
        };
        let most = config.get("max.message.bytes").and_then(|most| most.parse::<u32>().ok());
        let fits = |bytes: &u32| most.is_none_or(|most| *bytes <= most);
        let place = BATCHES.iter().position(fits).unwrap_or(BATCHES.len() - 1);
        // Who was first has said it.
        let _ = self.batch.set(place);
        Ok(())
    }

    /// The batches of forwarders, by their place in [`BATCHES`].
    pub(crate) fn batch(&self) -> usize {
        self.batch.get().copied().unwrap_or(0)
    }

    /// How it is fetched: what may be dropped for newer samples is measured at a regular rate.
    pub(crate) fn pace(&self) -> Pace {
        if self.qos.overload == Overload::DropOldest { Pace::Busy } else { Pace::Patient }
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
    /// A writer; of samples of another bus with the incarnation that their producer has there.
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
            let learned = producer.learn(name, PATIENCE);
            learned.map_err(failed("have the producer know the topic"))?;
        }
        let claim = claims::claim(topic, request.partition, request.producer, elsewhere)?;
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
            let (first, end) = client.ends(&self.0.kafka, partition, PATIENCE)?;
            // What a partition takes on its brokers' disks, and its newest stamp, are not told.
            Ok(PartitionInfo { partition, first, end, durable: end, bytes: 0, last_time: None })
        };
        (0..self.0.qos.partitions).map(info).collect()
    }

    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        self.0.connection.check_open()?;
        let mut writers = claims::writers(&self.0)?;
        if self.0.wire.is_sal() {
            writers.extend(sample::unknown_writer(self.0.qos.partitions));
        }
        Ok(writers)
    }

    /// What comes from another bus keeps the incarnations that it has there, and plain clients have
    /// none.
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
