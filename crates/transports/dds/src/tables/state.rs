//! What all sessions say, folded: topics, schemas, writers.
//!
//! Constraints. Everybody who has heard the same comes to the same: of what is said at once the
//! smaller [`Origin`] holds, whoever has heard it when. What a session says ends with it, but for
//! its writers, which stay as gone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use helio_core::{ProducerName, Qos, Schema, SchemaId, TopicName};

use super::words::{Ask, Keeps, Origin, Word, WriterWord, schema_id};

/// The most writers that have gone and are remembered, a topic.
const MAX_GONE: usize = 1_024;

/// Everything that was heard.
#[derive(Default)]
pub(crate) struct State {
    /// The sessions that live.
    pub(crate) live: HashSet<String>,
    /// The number of the newest word of each session.
    said: HashMap<String, u64>,
    topics: HashMap<TopicName, Topic>,
    texts: HashMap<SchemaId, String>,
    /// The sessions that are durability services.
    keepers: HashSet<String>,
}

#[derive(Default)]
struct Topic {
    /// By session.
    holders: HashMap<String, (Origin, Qos)>,
    /// By session and schema.
    schemas: HashMap<(String, SchemaId), (usize, Origin)>,
    /// By partition, producer and session.
    writers: BTreeMap<(u32, ProducerName, String), Heeded>,
    /// The durability services that keep it, by session.
    keepers: BTreeMap<String, Keeps>,
    /// The sessions that want it kept.
    wanted: HashSet<String>,
}

/// A writer, as it was heard of.
#[derive(Debug, Clone)]
pub(crate) struct Heeded {
    pub(crate) word: WriterWord,
    /// When it was heard, by [`helio_bus::Clock::uptime`] of who has heard it.
    heard: Duration,
}

impl Heeded {
    /// How long it has shown no life.
    pub(crate) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.heard) + Duration::from_nanos(self.word.quiet)
    }
}

/// What a word brings about.
pub(crate) enum Heard {
    Nothing,
    /// A topic's schemas changed.
    Schemas(TopicName),
    /// A topic's writers changed.
    Writers(TopicName),
    /// A durability service is ready that was not, and may have missed what it has not
    /// acknowledged.
    Ready(TopicName),
    Asked(Ask),
}

impl State {
    /// Takes a word of a session, or takes one back by its key; `now` is the hearer's uptime.
    pub(crate) fn hear(
        &mut self,
        session: &str,
        key: &str,
        word: Option<Word>,
        now: Duration,
    ) -> Heard {
        match word {
            None => self.take_back(session, key),
            Some(Word::Topic { topic, qos, origin }) => {
                let of = self.topics.entry(topic).or_default();
                of.holders.insert(session.to_owned(), (origin, qos));
                Heard::Nothing
            }
            Some(Word::Text { schema, text }) => {
                if let Some(id) = schema_id(&schema) {
                    // Who says another text than was said before may be the one who is right.
                    let known = self.texts.get(&id);
                    if known.is_none_or(|known| *known != text && is_text_of(id, &text)) {
                        self.texts.insert(id, text);
                    }
                }
                Heard::Nothing
            }
            Some(Word::Of { topic, schema, after, origin }) => {
                let Some(id) = schema_id(&schema) else { return Heard::Nothing };
                let of = self.topics.entry(topic.clone()).or_default();
                of.schemas.insert((session.to_owned(), id), (after, origin));
                Heard::Schemas(topic)
            }
            Some(Word::Writer { topic, writer }) => {
                let of = self.topics.entry(topic.clone()).or_default();
                let place = (writer.partition, writer.producer.clone(), session.to_owned());
                let gone = !writer.open;
                of.writers.insert(place, Heeded { word: writer, heard: now });
                if gone {
                    of.forget();
                }
                Heard::Writers(topic)
            }
            Some(Word::Keeper { .. }) => {
                self.keepers.insert(session.to_owned());
                Heard::Nothing
            }
            Some(Word::Keeps { topic, keeps }) => {
                let of = self.topics.entry(topic.clone()).or_default();
                let (ready, turn) = (keeps.ready, keeps.turn);
                let before = of.keepers.insert(session.to_owned(), keeps);
                let known = before.is_some_and(|before| before.ready && before.turn == turn);
                if ready && !known { Heard::Ready(topic) } else { Heard::Nothing }
            }
            Some(Word::Wanted { topic }) => {
                let of = self.topics.entry(topic).or_default();
                of.wanted.insert(session.to_owned());
                Heard::Nothing
            }
            Some(Word::Ask(ask)) => Heard::Asked(ask),
        }
    }

    fn take_back(&mut self, session: &str, key: &str) -> Heard {
        let words: Vec<_> = key.split(' ').collect();
        let topic = |name: &str| TopicName::new(name).ok();
        match words[..] {
            ["topic", name] => {
                if let Some(of) = topic(name).and_then(|topic| self.topics.get_mut(&topic)) {
                    of.holders.remove(session);
                }
            }
            ["of", name, schema] => {
                let (Some(topic), Some(id)) = (topic(name), schema_id(schema)) else {
                    return Heard::Nothing;
                };
                if let Some(of) = self.topics.get_mut(&topic) {
                    of.schemas.remove(&(session.to_owned(), id));
                }
                return Heard::Schemas(topic);
            }
            ["keeps", name] => {
                if let Some(of) = topic(name).and_then(|topic| self.topics.get_mut(&topic)) {
                    of.keepers.remove(session);
                }
            }
            _ => {}
        }
        Heard::Nothing
    }

    /// A session has ended, or was lost.
    pub(crate) fn end(&mut self, session: &str) {
        self.live.remove(session);
        self.said.remove(session);
        self.keepers.remove(session);
        for topic in self.topics.values_mut() {
            topic.holders.remove(session);
            topic.keepers.remove(session);
            topic.wanted.remove(session);
            topic.schemas.retain(|(by, _), _| by != session);
            let gone = topic.writers.iter_mut().filter(|((.., by), _)| by == session);
            gone.for_each(|(_, writer)| writer.word.open = false);
            topic.forget();
        }
        self.topics.retain(|_, topic| !topic.holders.is_empty() || !topic.keepers.is_empty());
    }

    /// What a topic is, and where that comes from.
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
    pub(crate) fn is_kept_by_anybody(&self) -> bool {
        !self.keepers.is_empty()
    }

    /// Whether a session wants a topic kept whose quality of service does not say so.
    pub(crate) fn is_wanted(&self, name: &TopicName) -> bool {
        self.topics.get(name).is_some_and(|topic| !topic.wanted.is_empty())
    }

    /// The durability services that keep a topic, by session.
    pub(crate) fn keepers(&self, name: &TopicName) -> impl Iterator<Item = (&String, &Keeps)> {
        let keepers = self.topics.get(name).into_iter().flat_map(|topic| &topic.keepers);
        keepers.filter(|(_, keeps)| !keeps.refused)
    }

    /// Why no durability service can keep a topic, where none can.
    pub(crate) fn trouble(&self, name: &TopicName) -> Option<String> {
        let keepers = self.topics.get(name)?.keepers.values();
        let mut troubles = keepers.filter(|keeps| !keeps.last_values).map(|keeps| &keeps.trouble);
        let first = troubles.next()?.clone()?;
        troubles.all(Option::is_some).then_some(first)
    }

    /// Those that keep all of it, and not last values alone.
    pub(crate) fn full_keepers(&self, name: &TopicName) -> impl Iterator<Item = (&String, &Keeps)> {
        self.keepers(name).filter(|(_, keeps)| !keeps.last_values)
    }

    /// Whether a durability service is there that has not said whether it keeps a topic.
    pub(crate) fn has_silent_keepers(&self, name: &TopicName) -> bool {
        let topic = self.topics.get(name);
        let keeps = |session| topic.is_some_and(|topic| topic.keepers.contains_key(session));
        !self.keepers.iter().all(keeps)
    }

    /// The sessions that have a topic open.
    pub(crate) fn holders(&self, name: &TopicName) -> Vec<String> {
        let topic = self.topics.get(name);
        topic.into_iter().flat_map(|topic| topic.holders.keys().cloned()).collect()
    }

    /// A topic's schemas, oldest first, with where each comes from.
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

    /// Whether a session says that a topic has a schema.
    pub(crate) fn has_said(&self, session: &str, topic: &TopicName, id: SchemaId) -> bool {
        let place = (session.to_owned(), id);
        self.topics.get(topic).is_some_and(|topic| topic.schemas.contains_key(&place))
    }

    pub(crate) fn text(&self, id: SchemaId) -> Option<&String> {
        self.texts.get(&id)
    }

    /// Keeps a text that nobody has said.
    pub(crate) fn put_text(&mut self, id: SchemaId, text: &str) {
        self.texts.entry(id).or_insert_with(|| text.to_owned());
    }

    /// A topic's writers, with their sessions.
    pub(crate) fn heeded(&self, name: &TopicName) -> impl Iterator<Item = (&str, &Heeded)> {
        let topic = self.topics.get(name);
        let writers = topic.into_iter().flat_map(|topic| &topic.writers);
        writers.map(|((.., session), writer)| (session.as_str(), writer))
    }

    /// What they say.
    pub(crate) fn writers(&self, name: &TopicName) -> impl Iterator<Item = (&str, &WriterWord)> {
        self.heeded(name).map(|(session, writer)| (session, &writer.word))
    }

    /// What those say that write one partition as one producer.
    pub(crate) fn writers_of(
        &self,
        name: &TopicName,
        (partition, producer): (u32, &ProducerName),
    ) -> impl Iterator<Item = (&str, &WriterWord)> {
        let first = (partition, producer.clone(), String::new());
        let topic = self.topics.get(name);
        let behind = topic.into_iter().flat_map(move |topic| topic.writers.range(first.clone()..));
        let of = behind.take_while(move |((p, name, _), _)| (*p, name) == (partition, producer));
        of.map(|((.., session), writer)| (session.as_str(), &writer.word))
    }

    /// A producer's newest incarnation on a topic; 0 is none.
    pub(crate) fn newest(&self, topic: &TopicName, producer: &ProducerName) -> u64 {
        let own = self.writers(topic).filter(|(_, writer)| writer.producer == *producer);
        own.map(|(_, writer)| writer.incarnation).max().unwrap_or(0)
    }

    /// A session has said so many words.
    pub(crate) fn heard_up_to(&mut self, session: &str, number: u64) {
        match self.said.get_mut(session) {
            Some(said) => *said = number.max(*said),
            None => _ = self.said.insert(session.to_owned(), number),
        }
    }

    /// The number of a session's newest word.
    pub(crate) fn said(&self, session: &str) -> u64 {
        self.said.get(session).copied().unwrap_or(0)
    }
}

/// Whether a text is that of the schema.
pub(crate) fn is_text_of(id: SchemaId, text: &str) -> bool {
    Schema::parse(text).is_ok_and(|schema| schema.id() == id)
}

impl Topic {
    /// Forgets those who went first, where many have gone.
    fn forget(&mut self) {
        let mut gone: Vec<_> = self
            .writers
            .iter()
            .filter(|(_, writer)| !writer.word.open)
            .map(|(place, writer)| (writer.word.incarnation, place.clone()))
            .collect();
        if gone.len() > MAX_GONE {
            gone.sort_unstable_by_key(|(incarnation, _)| *incarnation);
            gone.truncate(gone.len() - MAX_GONE);
            gone.iter().for_each(|(_, place)| _ = self.writers.remove(place));
        }
    }
}
