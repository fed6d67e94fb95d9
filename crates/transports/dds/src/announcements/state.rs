//! The merged announcements of all sessions: topics, schemas, writers.
//!
//! Constraints. Sessions that received the same announcements have the same state: of conflicting
//! announcements the one with the smaller [`Origin`] holds, whatever the order of arrival. A
//! session's announcements end with the session, except its writers, which remain as gone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use helio_core::{ProducerName, Qos, Schema, SchemaId, TopicName};

use super::messages::{Announcement, Origin, Request, ServiceState, WriterAnnouncement, schema_id};

/// The most departed writers that are remembered per topic.
const MAX_DEPARTED_WRITERS: usize = 1_024;

/// The merged announcements.
#[derive(Default)]
pub(crate) struct SharedState {
    /// The live sessions.
    pub(crate) live: HashSet<String>,
    /// The number of the newest announcement of each session.
    said: HashMap<String, u64>,
    topics: HashMap<TopicName, Topic>,
    texts: HashMap<SchemaId, String>,
    /// How many messages of each session could not be read.
    unreadable: HashMap<String, u64>,
    /// The sessions that are durability services.
    services: HashSet<String>,
}

#[derive(Default)]
struct Topic {
    /// By session.
    holders: HashMap<String, (Origin, Qos)>,
    /// By session and schema.
    schemas: HashMap<(String, SchemaId), (usize, Origin)>,
    /// By partition, producer and session.
    writers: BTreeMap<(u32, ProducerName, String), ObservedWriter>,
    /// The durability services that store it, by session.
    services: BTreeMap<String, ServiceState>,
    /// The sessions that want it stored.
    storage_requests: HashSet<String>,
}

/// A writer, as announced.
#[derive(Debug, Clone)]
pub(crate) struct ObservedWriter {
    pub(crate) announcement: WriterAnnouncement,
    /// When it was received, by the receiver's [`helio_bus::Clock::uptime`].
    received_at: Duration,
}

impl ObservedWriter {
    /// The time since it last published or asserted.
    pub(crate) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.received_at) + Duration::from_nanos(self.announcement.idle_nanos)
    }
}

/// The effect of an announcement.
pub(crate) enum Effect {
    Nothing,
    /// A topic's schemas changed.
    Schemas(TopicName),
    /// A topic's writers changed.
    Writers(TopicName),
    /// A durability service became ready, and may lack samples that it has not acknowledged.
    Ready(TopicName),
    Requested(Request),
}

impl SharedState {
    /// Applies an announcement of a session, or withdraws one by its key; `now` is the receiver's
    /// uptime.
    pub(crate) fn receive(
        &mut self,
        session: &str,
        key: &str,
        announcement: Option<Announcement>,
        now: Duration,
    ) -> Effect {
        match announcement {
            None => self.withdraw(session, key),
            Some(Announcement::Topic { topic, qos, origin }) => {
                let of = self.topics.entry(topic).or_default();
                of.holders.insert(session.to_owned(), (origin, qos));
                Effect::Nothing
            }
            Some(Announcement::SchemaText { schema, text }) => {
                if let Some(id) = schema_id(&schema) {
                    // A different text than the known one may be the right one.
                    let known = self.texts.get(&id);
                    if known.is_none_or(|known| *known != text && is_text_of(id, &text)) {
                        self.texts.insert(id, text);
                    }
                }
                Effect::Nothing
            }
            Some(Announcement::TopicSchema { topic, schema, after, origin }) => {
                let Some(id) = schema_id(&schema) else { return Effect::Nothing };
                let of = self.topics.entry(topic.clone()).or_default();
                of.schemas.insert((session.to_owned(), id), (after, origin));
                Effect::Schemas(topic)
            }
            Some(Announcement::Writer { topic, writer }) => {
                let of = self.topics.entry(topic.clone()).or_default();
                let place = (writer.partition, writer.producer.clone(), session.to_owned());
                let gone = !writer.open;
                of.writers.insert(place, ObservedWriter { announcement: writer, received_at: now });
                if gone {
                    of.forget();
                }
                Effect::Writers(topic)
            }
            Some(Announcement::Service { .. }) => {
                self.services.insert(session.to_owned());
                Effect::Nothing
            }
            Some(Announcement::ServiceState { topic, service_state }) => {
                let of = self.topics.entry(topic.clone()).or_default();
                let (ready, count) = (service_state.ready, service_state.ready_count);
                let before = of.services.insert(session.to_owned(), service_state);
                let known =
                    before.is_some_and(|before| before.ready && before.ready_count == count);
                if ready && !known { Effect::Ready(topic) } else { Effect::Nothing }
            }
            Some(Announcement::StorageRequest { topic }) => {
                let of = self.topics.entry(topic).or_default();
                of.storage_requests.insert(session.to_owned());
                Effect::Nothing
            }
            Some(Announcement::Request(ask)) => Effect::Requested(ask),
        }
    }

    fn withdraw(&mut self, session: &str, key: &str) -> Effect {
        let words: Vec<_> = key.split(' ').collect();
        let topic = |name: &str| TopicName::new(name).ok();
        match words[..] {
            ["topic", name] => {
                if let Some(of) = topic(name).and_then(|topic| self.topics.get_mut(&topic)) {
                    of.holders.remove(session);
                }
            }
            ["topic_schema", name, schema] => {
                let (Some(topic), Some(id)) = (topic(name), schema_id(schema)) else {
                    return Effect::Nothing;
                };
                if let Some(of) = self.topics.get_mut(&topic) {
                    of.schemas.remove(&(session.to_owned(), id));
                }
                return Effect::Schemas(topic);
            }
            ["service_state", name] => {
                if let Some(of) = topic(name).and_then(|topic| self.topics.get_mut(&topic)) {
                    of.services.remove(session);
                }
            }
            _ => {}
        }
        Effect::Nothing
    }

    /// A session ended, or was lost.
    pub(crate) fn end(&mut self, session: &str) {
        self.live.remove(session);
        self.said.remove(session);
        self.unreadable.remove(session);
        self.services.remove(session);
        for topic in self.topics.values_mut() {
            topic.holders.remove(session);
            topic.services.remove(session);
            topic.storage_requests.remove(session);
            topic.schemas.retain(|(by, _), _| by != session);
            let gone = topic.writers.iter_mut().filter(|((.., by), _)| by == session);
            gone.for_each(|(_, writer)| writer.announcement.open = false);
            topic.forget();
        }
        self.topics.retain(|_, topic| !topic.holders.is_empty() || !topic.services.is_empty());
    }

    /// A topic's quality of service, and the origin of that.
    pub(crate) fn topic(&self, name: &TopicName) -> Option<(&Origin, &Qos)> {
        let holders = &self.topics.get(name)?.holders;
        holders.values().map(|(origin, qos)| (origin, qos)).min_by_key(|(origin, _)| *origin)
    }

    /// All topics.
    pub(crate) fn topics(&self) -> Vec<TopicName> {
        let held = self.topics.iter().filter(|(_, topic)| !topic.holders.is_empty());
        let mut names: Vec<_> = held.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Whether there is a durability service.
    pub(crate) fn has_services(&self) -> bool {
        !self.services.is_empty()
    }

    /// Whether a session wants a topic stored although its quality of service does not require it.
    pub(crate) fn is_storage_requested(&self, name: &TopicName) -> bool {
        self.topics.get(name).is_some_and(|topic| !topic.storage_requests.is_empty())
    }

    /// The durability services that store a topic, by session.
    pub(crate) fn services(
        &self,
        name: &TopicName,
    ) -> impl Iterator<Item = (&String, &ServiceState)> {
        let services = self.topics.get(name).into_iter().flat_map(|topic| &topic.services);
        services.filter(|(_, service_state)| !service_state.refused)
    }

    /// The cause why no durability service can store a topic, if none can.
    pub(crate) fn trouble(&self, name: &TopicName) -> Option<String> {
        let services = self.topics.get(name)?.services.values();
        let mut troubles = services
            .filter(|service_state| !service_state.last_values)
            .map(|service_state| &service_state.error);
        let first = troubles.next()?.clone()?;
        troubles.all(Option::is_some).then_some(first)
    }

    /// The services that store all of it, and not last values alone.
    pub(crate) fn complete_services(
        &self,
        name: &TopicName,
    ) -> impl Iterator<Item = (&String, &ServiceState)> {
        self.services(name).filter(|(_, service_state)| !service_state.last_values)
    }

    /// Whether a live durability service has not announced its state of a topic.
    pub(crate) fn has_unannounced_services(&self, name: &TopicName) -> bool {
        let topic = self.topics.get(name);
        let service_state =
            |session| topic.is_some_and(|topic| topic.services.contains_key(session));
        !self.services.iter().all(service_state)
    }

    /// The sessions that have a topic open.
    pub(crate) fn holders(&self, name: &TopicName) -> Vec<String> {
        let topic = self.topics.get(name);
        topic.into_iter().flat_map(|topic| topic.holders.keys().cloned()).collect()
    }

    /// A topic's schemas, oldest first, each with its origin.
    pub(crate) fn schemas(&self, name: &TopicName) -> Vec<(SchemaId, Origin)> {
        let Some(topic) = self.topics.get(name) else { return Vec::new() };
        let mut all: Vec<(SchemaId, Origin)> = Vec::new();
        loop {
            let next = topic.schemas.iter().filter(|((_, id), (after, _))| {
                *after == all.len() && all.iter().all(|(known, _)| known != id)
            });
            match next.min_by_key(|(_, (_, origin))| origin) {
                Some(((_, id), (_, origin))) => all.push((*id, origin.clone())),
                None => return all,
            }
        }
    }

    /// Whether a session announces a schema of a topic.
    pub(crate) fn announces_schema(&self, session: &str, topic: &TopicName, id: SchemaId) -> bool {
        let place = (session.to_owned(), id);
        self.topics.get(topic).is_some_and(|topic| topic.schemas.contains_key(&place))
    }

    pub(crate) fn text(&self, id: SchemaId) -> Option<&String> {
        self.texts.get(&id)
    }

    /// Stores a text that was not announced.
    pub(crate) fn put_text(&mut self, id: SchemaId, text: &str) {
        self.texts.entry(id).or_insert_with(|| text.to_owned());
    }

    /// A topic's writers, with their sessions.
    pub(crate) fn observed_writers(
        &self,
        name: &TopicName,
    ) -> impl Iterator<Item = (&str, &ObservedWriter)> {
        let topic = self.topics.get(name);
        let writers = topic.into_iter().flat_map(|topic| &topic.writers);
        writers.map(|((.., session), writer)| (session.as_str(), writer))
    }

    /// Their announcements.
    pub(crate) fn writers(
        &self,
        name: &TopicName,
    ) -> impl Iterator<Item = (&str, &WriterAnnouncement)> {
        self.observed_writers(name).map(|(session, writer)| (session, &writer.announcement))
    }

    /// The announcements of the writers of one partition and producer.
    pub(crate) fn writers_of(
        &self,
        name: &TopicName,
        partition: u32,
        producer: &ProducerName,
    ) -> impl Iterator<Item = (&str, &WriterAnnouncement)> {
        let first = (partition, producer.clone(), String::new());
        let topic = self.topics.get(name);
        let behind = topic.into_iter().flat_map(move |topic| topic.writers.range(first.clone()..));
        let of = behind.take_while(move |((p, name, _), _)| (*p, name) == (partition, producer));
        of.map(|((.., session), writer)| (session.as_str(), &writer.announcement))
    }

    /// A producer's newest incarnation on a topic; 0 is none.
    pub(crate) fn newest(&self, topic: &TopicName, producer: &ProducerName) -> u64 {
        let own = self.writers(topic).filter(|(_, writer)| writer.producer == *producer);
        own.map(|(_, writer)| writer.incarnation).max().unwrap_or(0)
    }

    /// Counts a message of a session that could not be read, and returns the session's count.
    /// Nothing else changes: an announcement may replace one that could be read, and withdraws
    /// nothing.
    pub(crate) fn count_unreadable(&mut self, session: &str) -> u64 {
        let count = self.unreadable.entry(session.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// How many messages of a session could not be read.
    #[cfg(test)]
    pub(crate) fn unreadable(&self, session: &str) -> u64 {
        self.unreadable.get(session).copied().unwrap_or(0)
    }

    /// All of a session's announcements up to a number were received.
    pub(crate) fn received_up_to(&mut self, session: &str, number: u64) {
        match self.said.get_mut(session) {
            Some(said) => *said = number.max(*said),
            None => _ = self.said.insert(session.to_owned(), number),
        }
    }

    /// The number of a session's newest announcement.
    pub(crate) fn said(&self, session: &str) -> u64 {
        self.said.get(session).copied().unwrap_or(0)
    }
}

/// Whether a text is that of the schema.
pub(crate) fn is_text_of(id: SchemaId, text: &str) -> bool {
    Schema::parse(text).is_ok_and(|schema| schema.id() == id)
}

impl Topic {
    /// Forgets the oldest departed writers above the limit.
    fn forget(&mut self) {
        let mut gone: Vec<_> = self
            .writers
            .iter()
            .filter(|(_, writer)| !writer.announcement.open)
            .map(|(place, writer)| (writer.announcement.incarnation, place.clone()))
            .collect();
        if gone.len() > MAX_DEPARTED_WRITERS {
            gone.sort_unstable_by_key(|(incarnation, _)| *incarnation);
            gone.truncate(gone.len() - MAX_DEPARTED_WRITERS);
            gone.iter().for_each(|(_, place)| _ = self.writers.remove(place));
        }
    }
}
