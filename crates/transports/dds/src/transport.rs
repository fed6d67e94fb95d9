//! The bus's transport and topics on DDS.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use helio_bus::transport::{
    Alive, Capabilities, Carried, Declared, PartitionInfo, Reader, ReaderRequest, Transport,
    TransportTopic, Writer, WriterInfo, WriterRequest, first_difference,
};
use helio_bus::{Bell, LocalBell, Qos, SchemaId, TopicName, TransportError};
use helio_core::qos::History;
use helio_core::{Producer, Tai};

use crate::announcements::{self, Announcement, ObservedWriter, Origin, RequestKind};
use crate::connection::{Connection, withdraw_topic};
use crate::error::unsupported;
use crate::forwarder::DdsForwarder;
use crate::names::INTERNAL_PREFIX;
use crate::reader::DdsReader;
use crate::topic::{TopicState, start_one};
use crate::writer::DdsWriter;

pub(crate) struct DdsTransport {
    pub(crate) connection: Arc<Connection>,
    /// Without a durability service, and with one.
    capabilities: [Capabilities; 2],
    /// Whether a durability service was ever discovered.
    served: AtomicBool,
}

/// A topic, as the bus uses it.
struct DdsTopic(Arc<TopicState>);

impl DdsTransport {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        let capabilities = [crate::capabilities(), crate::served()];
        let served = connection.announcements.with_state(|state| state.has_services());
        Self { connection, capabilities, served: AtomicBool::new(served) }
    }

    /// Opens a topic that a session has announced.
    fn open_topic_state(
        &self,
        name: &TopicName,
        origin: Origin,
        qos: Qos,
    ) -> Result<Arc<TopicState>, TransportError> {
        let announcement = Announcement::Topic { topic: name.clone(), qos: qos.clone(), origin };
        // This session repeats the topic's announcement, so that the topic outlives the session
        // that created it.
        let open = self.connection.open_topic_state(name, || {
            self.connection.announcements.announce(announcement)?;
            Ok(TopicState::new(&self.connection, name, qos))
        })?;
        self.connection.announce_schemas(name);
        Ok(open)
    }

    /// The state of an announced topic.
    pub(crate) fn state(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<TopicState>>, TransportError> {
        let announced = self.announced(name);
        announced.map(|(origin, qos)| self.open_topic_state(name, origin, qos)).transpose()
    }

    /// The same, without announcing that this session has the topic open.
    pub(crate) fn unannounced(&self, name: &TopicName) -> Option<Arc<TopicState>> {
        let (_, qos) = self.announced(name)?;
        Some(TopicState::new(&self.connection, name, qos))
    }

    /// Whether a durability service was ever discovered.
    fn is_served(&self) -> bool {
        let seen = || self.connection.announcements.with_state(|state| state.has_services());
        if !self.served.load(Ordering::Acquire) && seen() {
            self.served.store(true, Ordering::Release);
        }
        self.served.load(Ordering::Acquire)
    }

    fn announced(&self, name: &TopicName) -> Option<(Origin, Qos)> {
        self.connection.announcements.with_state(|state| {
            state.topic(name).map(|(origin, qos)| (origin.clone(), qos.clone()))
        })
    }
}

impl Transport for DdsTransport {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities[usize::from(self.is_served())]
    }

    fn prepare(&self, qos: &Qos) {
        let plain = self.capabilities[0].durability >= qos.durability
            && self.capabilities[0].guarantee >= qos.guarantee
            && qos.history != History::KeepAll;
        if !plain && !self.is_served() && self.connection.has_service() {
            self.served.store(true, Ordering::Release);
        }
    }

    fn identity(&self) -> Result<Option<String>, TransportError> {
        Ok(Some(self.connection.name.clone()))
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        self.connection.check_open()?;
        if self.announced(name).is_none() {
            // The topic's announcement may be in flight.
            self.connection.announcements.request(None, RequestKind::Nothing)?;
        }
        let Some(topic) = self.state(name)? else { return Ok(None) };
        self.prepare(&topic.qos);
        Ok(Some(Arc::new(DdsTopic(topic))))
    }

    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        self.connection.check_open()?;
        if name.as_str().starts_with(INTERNAL_PREFIX) {
            let remedy = format!("names that begin with {INTERNAL_PREFIX} are reserved");
            return Err(unsupported(format!("create the topic {name}"), &remedy));
        }
        let mut announced = self.announced(name);
        if announced.is_none() {
            let origin = self.connection.announcements.origin();
            let announcement =
                Announcement::Topic { topic: name.clone(), qos: qos.clone(), origin };
            self.connection.announcements.announce(announcement.clone())?;
            self.connection.announcements.request(None, RequestKind::Nothing)?;
            announced = self.announced(name);
            let lost = announced.as_ref().is_some_and(|(_, holds)| holds != qos);
            if lost {
                withdraw_topic(&self.connection, &announcement);
            }
        }
        let (origin, announced) = announced.ok_or(TransportError::Closed)?;
        if let Some(error) = first_difference(name, &announced, qos) {
            return Err(error);
        }
        Ok(Arc::new(DdsTopic(self.open_topic_state(name, origin, announced)?)))
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.connection.check_open()?;
        self.connection.announcements.request(None, RequestKind::Nothing)?;
        Ok(self.connection.announcements.with_state(|state| state.topics()))
    }

    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        self.connection.check_open()?;
        let announcements = &self.connection.announcements;
        announcements.with_state(|state| state.put_text(id, text));
        announcements.announce(Announcement::SchemaText {
            schema: announcements::hex(id),
            text: text.to_owned(),
        })
    }

    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        self.connection.check_open()?;
        let announcements = &self.connection.announcements;
        let announced = || announcements.with_state(|state| state.text(id).cloned());
        if let Some(text) = announced() {
            return Ok(Some(text));
        }
        // The text may be in flight if a topic's schemas are known.
        announcements.request(None, RequestKind::Nothing)?;
        Ok(announced())
    }

    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError> {
        Ok(LocalBell::new())
    }

    fn remedy(&self, policy: &str) -> Option<String> {
        // These policies need a participant that outlives the writers.
        matches!(policy, "durability" | "guarantee" | "history").then(|| {
            format!(
                "no durability service is there: {}, or override {policy} in the topic's quality \
                 of service",
                start_one(&self.connection)
            )
        })
    }

    fn close(&self) {
        self.connection.close();
    }
}

impl TransportTopic for DdsTopic {
    fn qos(&self) -> &Qos {
        &self.0.qos
    }

    fn schemas(&self) -> Result<Vec<SchemaId>, TransportError> {
        self.0.connection.check_open()?;
        let all =
            self.0.connection.announcements.with_fresh_state(|state| state.schemas(&self.0.name));
        Ok(all.into_iter().map(|(id, _)| id).collect())
    }

    fn declare_schema(&self, id: SchemaId, after: usize) -> Result<Declared, TransportError> {
        let topic = &self.0;
        let announced = self.schemas()?;
        if announced.len() != after || announced.contains(&id) {
            return Ok(Declared::Behind);
        }
        let announcements = &topic.connection.announcements;
        let (name, schema) = (topic.name.clone(), announcements::hex(id));
        let announcement = Announcement::TopicSchema {
            topic: name,
            schema,
            after,
            origin: announcements.origin(),
        };
        announcements.announce(announcement.clone())?;
        let holders = announcements.with_state(|state| state.holders(&topic.name));
        announcements.request(Some(holders), RequestKind::Nothing)?;
        if self.schemas()?.get(after) == Some(&id) {
            topic.adopt_schema()?;
            return Ok(Declared::Yes);
        }
        withdraw_topic(&topic.connection, &announcement);
        Ok(Declared::Behind)
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        self.0.connection.check_open()?;
        Ok(Box::new(DdsWriter::open(&self.0, request)?))
    }

    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        self.0.connection.check_open()?;
        Ok(Box::new(DdsForwarder::open(&self.0, request, incarnation)?))
    }

    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        self.0.connection.check_open()?;
        Ok(Box::new(DdsReader::open(&self.0, request)?))
    }

    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError> {
        // DDS has no offsets: the positions of partitions are unknown.
        self.0.connection.check_open().map(|()| Vec::new())
    }

    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        let topic = &self.0;
        topic.connection.check_open()?;
        let own = topic.connection.writers_of(&topic.name);
        own.iter().for_each(|writer| writer.is_known_here());
        Ok(topic.connection.announcements.with_fresh_state(|state| {
            let info = |(session, w): (&str, &ObservedWriter)| WriterInfo {
                producer: Producer {
                    name: w.announcement.producer.clone(),
                    incarnation: w.announcement.incarnation,
                },
                partition: w.announcement.partition,
                alive: Some(if topic.lives(state, session, w) { Alive::Yes } else { Alive::No }),
                seen: Some(Tai::from_nanos(w.announcement.last_active_tai_ns)),
            };
            state.observed_writers(&topic.name).map(info).collect()
        }))
    }

    fn carried(&self) -> Result<Option<Carried>, TransportError> {
        self.0.connection.check_open()?;
        Ok(Some(self.0.type_name().map_or(Carried::Enveloped, Carried::Typed)))
    }

    fn committed(&self, _: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        self.0.connection.check_open().map(|()| Vec::new())
    }
}
