//! The registry's topic: a change is durable before it is applied.

use std::sync::Mutex;
use std::time::Duration;

use helio_bus::transport::{Position, locked};
use helio_bus::{
    Bus, Event, Message, Publisher, ReadError, Start, Subscribe, Topic, TopicError, TopicSpec,
};
use helio_core::Qos;
use helio_core::qos::Guarantee;
use thiserror::Error;

use crate::catalog::{Catalog, Change};
use crate::refusal::Refusal;

/// The topic that stores the registry.
pub const TOPIC: &str = "_schemas";
/// How long a change may take to become durable, and the next stored change to be read.
const BUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the registry cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The topic cannot be opened.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The topic cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A sample of the topic is not a change of a registry.
    #[error("sample {offset} of {TOPIC} is not a change of a registry: {reason}; use another bus")]
    Foreign {
        /// Its offset.
        offset: u64,
        /// The cause.
        reason: String,
    },
    /// Some changes cannot be read, so that identifiers would be assigned twice.
    #[error("{missing} samples of {TOPIC} cannot be read: {reason}")]
    Incomplete {
        /// The number of missing samples.
        missing: u64,
        /// The cause.
        reason: &'static str,
    },
}

/// A registry that is stored in a topic of a bus.
pub struct Registry {
    topic: Topic,
    publisher: Publisher,
    state: Mutex<State>,
}

struct State {
    catalog: Catalog,
    /// Whether the catalog may lack a change, as the outcome of a publish is unknown.
    is_uncertain: bool,
}

impl Registry {
    /// Opens the registry of a bus, or creates it. It is held exclusively until dropped.
    ///
    /// # Errors
    /// [`OpenError`]; [`TransportError::Owned`](helio_bus::TransportError::Owned) if another
    /// registry has it.
    pub fn open(bus: &Bus) -> Result<Self, OpenError> {
        let spec = TopicSpec::new(TOPIC)?.qos(Qos::state());
        let topic = bus.topic(spec)?;
        // From here on an earlier owner is fenced.
        let publisher = topic.publisher()?;
        let catalog = read(&topic)?;
        let state = Mutex::new(State { catalog, is_uncertain: false });
        Ok(Self { topic, publisher, state })
    }

    /// Queries the catalog.
    pub(crate) fn query<R>(
        &self,
        query: impl FnOnce(&Catalog) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        query(&locked(&self.state).catalog)
    }

    /// Decides on a change and applies it; it is durable on return.
    pub(crate) fn change<R>(
        &self,
        decide: impl FnOnce(&Catalog) -> Result<(R, Option<Change>), Refusal>,
    ) -> Result<R, Refusal> {
        let mut state = locked(&self.state);
        if state.is_uncertain {
            state.catalog = read(&self.topic).map_err(|error| Refusal::Store(error.to_string()))?;
            state.is_uncertain = false;
        }
        let (result, change) = decide(&state.catalog)?;
        if let Some(change) = change {
            let failed = |error: &dyn std::fmt::Display| Refusal::Store(error.to_string());
            let text = serde_json::to_vec(&change).map_err(|error| failed(&error))?;
            let message = Message::new(&text).guarantee(Guarantee::Durable);
            let published = self.publisher.publish(message).wait_timeout(BUS_TIMEOUT);
            if let Err(error) = published {
                // The change may be stored nevertheless.
                state.is_uncertain = true;
                return Err(failed(&error));
            }
            state.catalog.apply(&change);
        }
        Ok(result)
    }
}

/// Reads all changes into a catalog.
fn read(topic: &Topic) -> Result<Catalog, OpenError> {
    let mut catalog = Catalog::default();
    let ends: Vec<u64> = topic.partitions()?.iter().map(|partition| partition.end).collect();
    let end: u64 = ends.iter().sum();
    let mut changes = topic.subscribe(Subscribe::from(Start::Earliest))?;
    let next = |positions: &[Position]| positions.iter().map(|at| at.next).sum::<u64>();
    while next(&changes.positions()) < end {
        match changes.next_timeout(BUS_TIMEOUT)? {
            Some(Event::Sample(sample)) => {
                let change: Change = serde_json::from_slice(&sample.payload).map_err(|error| {
                    OpenError::Foreign { offset: sample.offset, reason: error.to_string() }
                })?;
                catalog.apply(&change);
            }
            Some(Event::Gap(gap)) => {
                let reason = "they were removed or are damaged";
                return Err(OpenError::Incomplete { missing: gap.lost, reason });
            }
            Some(_) => {}
            None => {
                let missing = end - next(&changes.positions());
                return Err(OpenError::Incomplete {
                    missing,
                    reason: "the bus does not deliver them",
                });
            }
        }
    }
    Ok(catalog)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::catalog::Given;

    const A: &str = r#"{"type": "record", "name": "W", "fields": []}"#;

    #[test]
    fn what_was_answered_is_there_again_and_one_has_it_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("journal:{}", folder.path().display());
        let bus = |name: &str| Bus::builder().producer(name).connect(&url).unwrap();
        let first = bus("one");
        let registry = Registry::open(&first).unwrap();
        assert_eq!(registry.change(|catalog| catalog.register("s", A, Given::default())), Ok(1));
        let second = bus("two");
        let refused = Registry::open(&second).map(drop).unwrap_err().to_string();
        assert!(refused.contains("has a live writer"), "{refused}");
        drop(registry);
        drop(first);
        let registry = Registry::open(&second).unwrap();
        assert_eq!(
            registry.query(|catalog| catalog.text(1).map(|text| text.to_string())),
            Ok(A.to_owned())
        );
    }

    #[test]
    fn a_topic_of_somebody_else_s_is_refused() {
        let bus = Bus::builder().producer("x").connect("memory:").unwrap();
        let topic = bus.topic(TopicSpec::new(TOPIC).unwrap().qos(Qos::state())).unwrap();
        topic.publisher().unwrap().publish(Message::new(b"7")).wait().unwrap();
        let refused = Registry::open(&bus).map(drop).unwrap_err().to_string();
        assert!(refused.contains("sample 0 of _schemas is not a change"), "{refused}");
    }

    #[test]
    fn numbers_are_not_given_where_a_change_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("journal:{}", folder.path().display());
        let bus = || Bus::builder().producer("x").connect(&url).unwrap();
        let registry = Registry::open(&bus()).unwrap();
        for subject in ["first", "second"] {
            registry.change(|catalog| catalog.register(subject, A, Given::default())).unwrap();
        }
        drop(registry);
        let damaged = segments(folder.path()).into_iter().filter(|path| damage(path)).count();
        assert_eq!(damaged, 1);
        let refused = Registry::open(&bus()).map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Incomplete { missing: 1, .. }), "{refused}");
    }

    fn segments(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        folders.iter().flat_map(|folder| segments(folder)).chain(files).collect()
    }

    /// Changes a byte of the first change, if the file contains it.
    fn damage(path: &Path) -> bool {
        let Ok(mut bytes) = fs::read(path) else { return false };
        let Some(at) = bytes.windows(5).position(|at| at == b"first") else { return false };
        bytes[at] = b'g';
        fs::write(path, bytes).is_ok()
    }
}
