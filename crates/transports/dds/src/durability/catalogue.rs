//! The catalogue: each stored topic's quality of service and origin in the domain.
//!
//! Format. The journal's topic `_helio/kept` has one sample for each stored topic. The key is the
//! topic's name, the payload is JSON; `null` marks a topic that was forgotten. Old names of members
//! are aliases.

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
use crate::announcements::Origin;
use crate::error::engine;

/// Folders have this topic, so its name does not change.
const CATALOGUE_TOPIC: &str = "_helio/kept";

/// A topic's properties in the domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CatalogueEntry {
    pub(super) qos: Qos,
    pub(super) origin: Origin,
    /// Whether all samples are stored, or last values alone, which may be lost.
    #[serde(default = "yes", alias = "kept")]
    pub(super) all_samples: bool,
}

fn yes() -> bool {
    true
}

/// The catalogue of one folder, locked while it is open.
pub(super) struct Catalogue {
    topics: Mutex<BTreeMap<TopicName, CatalogueEntry>>,
    publisher: Publisher,
}

impl Catalogue {
    pub(super) fn open(journal: &Bus) -> Result<Self, DurabilityError> {
        let qos = Qos { history: History::KeepLast(1), overload: Overload::Block, ..Qos::state() };
        let topic = journal.topic(TopicSpec::new(CATALOGUE_TOPIC)?.qos(qos))?;
        let publisher = topic.publisher()?;
        let mut topics = BTreeMap::new();
        let mut samples = topic.subscribe(Subscribe::from(Start::Last(1)))?;
        while let Some(event) = samples.try_next()? {
            let Event::Sample(sample) = event else { continue };
            let name = String::from_utf8_lossy(&sample.key).into_owned();
            let wrong = |reason: String| DurabilityError::Catalogue { topic: name.clone(), reason };
            let topic = TopicName::new(&name).map_err(|error| wrong(error.to_string()))?;
            let known: Option<CatalogueEntry> = serde_json::from_slice(&sample.payload)
                .map_err(|error| wrong(error.to_string()))?;
            known.map(|known| topics.insert(topic, known));
        }
        Ok(Self { topics: Mutex::new(topics), publisher })
    }

    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<TopicName, CatalogueEntry>> {
        locked(&self.topics)
    }

    /// Stores a topic's properties durably. Concurrent calls share one sync.
    pub(super) fn put(
        &self,
        topic: &TopicName,
        known: CatalogueEntry,
    ) -> Result<(), DurabilityError> {
        if self.known().get(topic) == Some(&known) {
            return Ok(());
        }
        self.write(topic, &serde_json::to_vec(&known).unwrap_or_default())?;
        self.known().insert(topic.clone(), known);
        Ok(())
    }

    /// Forgets a topic; true if it was known.
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
            // The error names the disk and needs no further context.
            other => engine("write the catalogue", other).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// The JSON is literal: a field that is renamed in Rust must still be read under its old name.
    #[test]
    fn the_json_on_the_disk() {
        let qos = serde_json::to_string(&Qos::event()).unwrap();
        let origin = Origin { time_nanos: 1_700_000_000_000_000_000, session: "01ff".to_owned() };
        let of = r#""origin":{"time_nanos":1700000000000000000,"session":"01ff"}"#;
        let old_of = r#""origin":{"at":1700000000000000000,"by":"01ff"}"#;
        let entry =
            |all_samples| CatalogueEntry { qos: Qos::event(), origin: origin.clone(), all_samples };
        let reads = |text: &str, all_samples| {
            let read = serde_json::from_str::<CatalogueEntry>(text).unwrap();
            assert_eq!(read, entry(all_samples), "{text}");
        };
        for all_samples in [false, true] {
            let text = format!(r#"{{"qos":{qos},{of},"all_samples":{all_samples}}}"#);
            assert_eq!(serde_json::to_string(&entry(all_samples)).unwrap(), text);
            reads(&text, all_samples);
            reads(&format!(r#"{{"qos":{qos},{old_of},"kept":{all_samples}}}"#), all_samples);
        }
        reads(&format!(r#"{{"qos":{qos},{old_of}}}"#), true);
        assert_eq!(CATALOGUE_TOPIC, "_helio/kept");
    }
}
