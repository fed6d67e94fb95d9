//! What the kept topics are in the domain: `_helio/kept` of the journal has one sample a topic,
//! whose key is its name and whose payload is JSON; `null` is a topic that was forgotten.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use helio_bus::transport::locked;
use helio_bus::{
    Bus, Event, Guarantee, Message, PublishError, Publisher, Qos, Start, Subscribe, TopicError,
    TopicName, TopicSpec,
};
use helio_core::qos::{History, Overload};
use serde::{Deserialize, Serialize};

use super::DurabilityError;
use crate::error::engine;
use crate::tables::Origin;

const NAME: &str = "_helio/kept";

/// What a topic is in the domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) qos: Qos,
    pub(super) origin: Origin,
    /// Whether its samples are kept, or last values alone: nobody misses those.
    #[serde(default = "yes")]
    pub(super) kept: bool,
}

fn yes() -> bool {
    true
}

/// The catalogue of one folder. While it is open nobody else has it.
pub(super) struct Catalogue {
    topics: Mutex<BTreeMap<TopicName, Known>>,
    publisher: Publisher,
}

impl Catalogue {
    pub(super) fn open(journal: &Bus) -> Result<Self, DurabilityError> {
        let qos = Qos { history: History::KeepLast(1), overload: Overload::Block, ..Qos::state() };
        let topic = journal.topic(TopicSpec::new(NAME)?.qos(qos))?;
        let publisher = topic.publisher()?;
        let mut topics = BTreeMap::new();
        let mut samples = topic.subscribe(Subscribe::from(Start::Last(1)))?;
        while let Some(event) = samples.try_next()? {
            let Event::Sample(sample) = event else { continue };
            let name = String::from_utf8_lossy(&sample.key).into_owned();
            let wrong = |reason: String| DurabilityError::Catalogue { topic: name.clone(), reason };
            let topic = TopicName::new(&name).map_err(|error| wrong(error.to_string()))?;
            let known: Option<Known> = serde_json::from_slice(&sample.payload)
                .map_err(|error| wrong(error.to_string()))?;
            known.map(|known| topics.insert(topic, known));
        }
        Ok(Self { topics: Mutex::new(topics), publisher })
    }

    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<TopicName, Known>> {
        locked(&self.topics)
    }

    /// Keeps what a topic is, durably: who waits for the disk at the same moment shares it.
    pub(super) fn put(&self, topic: &TopicName, known: Known) -> Result<(), DurabilityError> {
        if self.known().get(topic) == Some(&known) {
            return Ok(());
        }
        self.write(topic, &serde_json::to_vec(&known).unwrap_or_default())?;
        self.known().insert(topic.clone(), known);
        Ok(())
    }

    /// Forgets a topic; whether it was there.
    pub(super) fn forget(&self, topic: &TopicName) -> Result<bool, DurabilityError> {
        let known = self.known().remove(topic).is_some();
        if known {
            self.write(topic, b"null")?;
        }
        Ok(known)
    }

    fn write(&self, topic: &TopicName, value: &[u8]) -> Result<(), DurabilityError> {
        let key = topic.as_str().as_bytes();
        let message = Message::new(value).key(key).guarantee(Guarantee::Durable);
        let stored = self.publisher.publish(message).wait();
        stored.map(drop).map_err(|error| match error {
            PublishError::Transport(error) => TopicError::from(error).into(),
            // What it says is whole: it is the disk.
            other => engine("write the catalogue", other).into(),
        })
    }
}
