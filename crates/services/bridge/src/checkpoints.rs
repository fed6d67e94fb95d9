//! Checkpoints: topics' positions that the target's samples cannot show.
//!
//! The target's samples name their source offsets while they are stored. A checkpoint serves where
//! a topic has none yet, retention has removed them, or the target cannot be read again.
//! Checkpoints are in a topic of their own: on the target, or on the source if only that can be
//! read again.
//!
//! Format: the topic is `helio-bridge/from/SOURCE` on the target, or `helio-bridge/to/TARGET` on
//! the source, with the bus's identity. Key: the topic's name, a space, and the partition. Value:
//! JSON, [`Checkpoint`]. The newest value of each key counts. The key `format` has the value 1.
//!
//! A checkpoint describes acknowledged samples. It may be older than the samples on the target, and
//! of another log if the source was recreated, cut or restored from a copy since: it names the
//! log's identity where the source has one.

use std::collections::HashMap;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{
    Bus, Event, Lagging, Message, PendingPublish, Publisher, Qos, Start, Subscribe, Topic,
    TopicError, TopicName, TopicSpec,
};
use helio_core::qos::{Guarantee, History, Ownership, Retention};
use helio_core::{ProducerName, Tai};
use serde::{Deserialize, Serialize};

use crate::reconcile::Reconciler;
use crate::target::OpenError;
use crate::types::{AnonymousProducer, ProducerSequence, SampleIdentity};

/// Prefix of checkpoint topics, which no bridge forwards.
const TOPIC_PREFIX: &str = "helio-bridge/";
/// Overwritten checkpoints that are kept, for late joiners that are about to read them.
const MAX_OVERWRITTEN_BYTES: u64 = 16 << 20;
/// How long the bus may take to deliver or store checkpoints.
const BUS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a failure to open the store is returned to all topics; otherwise each would wait for
/// the bus, one after the other.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_secs(4);

/// The position in a partition of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// All samples below were forwarded or given up; with none, the partition begins here.
    next: u64,
    /// The newest sample below that was read.
    last: Option<LastSample>,
    /// If there is none, the time at which the partition begins here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_tai_ns: Option<i64>,
    /// The identity of the source's log, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log: Option<u64>,
}

/// A sample of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LastSample {
    offset: u64,
    producer: String,
    incarnation: u64,
    #[serde(alias = "number")]
    sequence: u64,
    time_tai_ns: i64,
}

impl Checkpoint {
    /// Where a partition begins that has no forwarded sample, and since when, if known.
    pub(crate) fn starting_at(next: u64, since: Option<Tai>) -> Self {
        Self { next, last: None, since_tai_ns: since.map(Tai::nanos), log: None }
    }

    pub(crate) fn after(next: u64, offset: u64, identity: &SampleIdentity) -> Self {
        let last = LastSample {
            offset,
            producer: identity.name.to_string(),
            incarnation: identity.sequence.incarnation,
            sequence: identity.sequence.number,
            time_tai_ns: identity.time.nanos(),
        };
        Self { next, last: Some(last), since_tai_ns: None, log: None }
    }

    /// The same, of a log with an identity.
    pub(crate) fn of_log(self, log: Option<u64>) -> Self {
        Self { log, ..self }
    }

    /// The identity of its log, if known.
    pub(crate) fn log(&self) -> Option<u64> {
        self.log
    }

    /// Whether a sample of the partition was forwarded or given up.
    pub(crate) fn has_begun(&self) -> bool {
        self.last.is_some()
    }

    /// A reconciler that knows only this checkpoint.
    pub(crate) fn reconciler(self, anonymous: &AnonymousProducer) -> Reconciler {
        let last = self.last.and_then(|last| {
            let name = ProducerName::new(&last.producer).ok()?;
            let sequence =
                ProducerSequence { incarnation: last.incarnation, number: last.sequence };
            let identity =
                SampleIdentity::new(&name, sequence, Tai::from_nanos(last.time_tai_ns), anonymous);
            Some((last.offset, identity))
        });
        Reconciler::from_position(self.next, last, self.since_tai_ns.map(Tai::from_nanos))
    }
}

/// The checkpoints of one bridge.
pub(crate) struct CheckpointStore {
    bus: Bus,
    name: TopicName,
    /// How often changed checkpoints are stored.
    pub(crate) interval: Duration,
    open: Mutex<Option<OpenStore>>,
    /// When opening failed last.
    failed: Mutex<Option<Instant>>,
}

struct OpenStore {
    publisher: Publisher,
    checkpoints: HashMap<(TopicName, u32), Checkpoint>,
}

fn qos() -> Qos {
    Qos {
        history: History::KeepLast(1),
        ownership: Ownership::Shared,
        guarantee: Guarantee::Stored,
        retention: Retention {
            bytes: Some(MAX_OVERWRITTEN_BYTES),
            age: None,
            last_value: true,
            default: false,
        },
        ..Qos::event()
    }
}

/// Whether a topic holds checkpoints.
pub(crate) fn is_checkpoint_topic(name: &TopicName) -> bool {
    name.as_str().starts_with(TOPIC_PREFIX)
}

impl CheckpointStore {
    /// The store of a bridge; or why neither bus can hold it.
    pub(crate) fn new(
        (from, from_name): (&Bus, &str),
        (to, to_name): (&Bus, &str),
    ) -> Result<Self, String> {
        let rewinds = |bus: &Bus| bus.capabilities().rewind.is_yes();
        // A position is only meaningful for samples with offsets.
        let (bus, name, interval) = match (rewinds(from), rewinds(to)) {
            (false, _) => return Err("the source cannot be read again".to_owned()),
            (true, true) => (to, format!("{TOPIC_PREFIX}from/{from_name}"), 10),
            (true, false) => (from, format!("{TOPIC_PREFIX}to/{to_name}"), 1),
        };
        let name = TopicName::new(&name).map_err(|error| error.to_string())?;
        bus.capabilities().check(&name, &qos()).map_err(|error| error.to_string())?;
        let (bus, interval) = (bus.clone(), Duration::from_secs(interval));
        Ok(Self { bus, name, interval, open: Mutex::default(), failed: Mutex::default() })
    }

    /// The stored checkpoints of a topic, by partition. The first call waits for the bus.
    pub(crate) fn load(&self, topic: &TopicName) -> Result<HashMap<u32, Checkpoint>, OpenError> {
        let mut open = locked(&self.open);
        let of = |open: &OpenStore| {
            let own = open.checkpoints.iter().filter(|((name, _), _)| name == topic);
            own.map(|((_, partition), checkpoint)| (*partition, checkpoint.clone())).collect()
        };
        if let Some(open) = &*open {
            return Ok(of(open));
        }
        let mut failed = locked(&self.failed);
        if failed.is_some_and(|at| at.elapsed() < OPEN_RETRY_INTERVAL) {
            return Err(OpenError::Failed("the checkpoints cannot be read".to_owned()));
        }
        let opened = self.opened().inspect_err(|_| *failed = Some(Instant::now()))?;
        Ok(of(open.insert(opened)))
    }

    fn opened(&self) -> Result<OpenStore, OpenError> {
        let spec = TopicSpec::of(self.name.clone());
        let made = match self.bus.topic(spec.clone()) {
            // An existing topic keeps its quality of service, which may be an older version's.
            Err(TopicError::NoSuchTopic(_)) => self.bus.topic(spec.qos(qos()))?,
            made => made?,
        };
        let checkpoints = read_checkpoints(&made)?;
        let publisher = made.publisher()?;
        // Opens the writer, so that no later publish waits for it.
        wait_for_all([publisher.publish(Message::new(b"1").key(b"format"))])?;
        Ok(OpenStore { publisher, checkpoints })
    }

    /// Stores checkpoints of a topic, and waits for the receipts.
    pub(crate) fn store_and_wait(
        &self,
        topic: &TopicName,
        checkpoints: &[(u32, Checkpoint)],
    ) -> Result<(), OpenError> {
        let publishing: Vec<_> = {
            let mut open = locked(&self.open);
            let Some(open) = &mut *open else { return Ok(()) };
            checkpoints
                .iter()
                .map(|(partition, checkpoint)| open.publish(topic, *partition, checkpoint))
                .collect()
        };
        wait_for_all(publishing)
    }

    /// Stores a checkpoint without waiting; none if another thread uses the store.
    pub(crate) fn store(
        &self,
        topic: &TopicName,
        partition: u32,
        checkpoint: &Checkpoint,
    ) -> Option<PendingPublish> {
        match self.open.try_lock() {
            Ok(mut open) => open.as_mut().map(|open| open.publish(topic, partition, checkpoint)),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => None,
        }
    }
}

impl OpenStore {
    fn publish(
        &mut self,
        topic: &TopicName,
        partition: u32,
        checkpoint: &Checkpoint,
    ) -> PendingPublish {
        self.checkpoints.insert((topic.clone(), partition), checkpoint.clone());
        let value = serde_json::to_vec(checkpoint).expect("a checkpoint has a JSON form");
        let key = format!("{topic} {partition}");
        self.publisher.publish(Message::new(&value).key(key.as_bytes()))
    }
}

fn wait_for_all(publishing: impl IntoIterator<Item = PendingPublish>) -> Result<(), OpenError> {
    let until = Instant::now() + BUS_TIMEOUT;
    for one in publishing {
        let left = until.saturating_duration_since(Instant::now());
        let failed = |error| OpenError::Failed(format!("the checkpoint cannot be stored: {error}"));
        one.wait_timeout(left).map_err(failed)?;
    }
    Ok(())
}

fn read_checkpoints(topic: &Topic) -> Result<HashMap<(TopicName, u32), Checkpoint>, OpenError> {
    let failed = |error: &dyn std::fmt::Display| {
        OpenError::Failed(format!("the checkpoints cannot be read: {error}"))
    };
    let options = Subscribe::from(Start::Last(1)).lagging(Lagging::Lossless);
    let mut samples = topic.subscribe(options)?;
    let mut checkpoints = HashMap::new();
    samples.set_fence().map_err(|error| failed(&error))?;
    while let Some(event) = samples.next_stored(BUS_TIMEOUT).map_err(|error| failed(&error))? {
        let Event::Sample(sample) = event else { continue };
        let Some((topic, partition)) = parse_key(&sample.key) else { continue };
        if let Ok(checkpoint) = serde_json::from_slice::<Checkpoint>(&sample.payload) {
            checkpoints.insert((topic, partition), checkpoint);
        }
    }
    Ok(checkpoints)
}

/// The topic and partition of a key; none for other keys.
fn parse_key(key: &[u8]) -> Option<(TopicName, u32)> {
    let (topic, partition) = std::str::from_utf8(key).ok()?.rsplit_once(' ')?;
    Some((TopicName::new(topic).ok()?, partition.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: ProducerSequence = ProducerSequence { incarnation: 2, number: 5 };

    #[test]
    fn what_older_bridges_have_made_is_taken_as_it_is() {
        let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
        let retention = Retention { bytes: None, ..qos().retention };
        let spec = TopicSpec::new("helio-bridge/from/one").unwrap();
        drop(to.topic(spec.qos(Qos { retention, ..qos() })).unwrap());
        let book = CheckpointStore::new((&from, "one"), (&to, "other")).unwrap();
        assert!(book.load(&TopicName::new("a").unwrap()).unwrap().is_empty());
        let old = br#"{"next":7,"last":null}"#;
        assert_eq!(
            serde_json::from_slice::<Checkpoint>(old).unwrap(),
            Checkpoint::starting_at(7, None)
        );
    }

    #[test]
    fn why_there_is_none_is_known() {
        let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
        let long = "x".repeat(300);
        let reason = CheckpointStore::new((&from, &long), (&to, "other")).err().unwrap();
        assert!(reason.contains("bytes"), "{reason}");
    }

    #[test]
    fn what_is_written_is_read_by_the_next_bridge() {
        let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
        let topic = TopicName::new("a/b").unwrap();
        let book = || CheckpointStore::new((&from, "one"), (&to, "other")).unwrap();
        let first = book();
        assert!(first.load(&topic).unwrap().is_empty());
        let start = Checkpoint::starting_at(9, Some(Tai::from_nanos(5)));
        first
            .store_and_wait(&topic, &[(0, Checkpoint::starting_at(7, None)), (3, start.clone())])
            .unwrap();
        let name = ProducerName::new("Mount").unwrap();
        let anonymous = AnonymousProducer::of(&from, "one");
        let identity = SampleIdentity::new(&name, SEQUENCE, Tai::from_nanos(11), &anonymous);
        let stands = Checkpoint::after(12, 10, &identity);
        first.store(&topic, 0, &stands).unwrap().wait().unwrap();
        let checkpoints = book().load(&topic).unwrap();
        assert_eq!(checkpoints[&0], stands);
        assert!(stands.has_begun() && !checkpoints[&3].has_begun());
        assert_eq!(checkpoints[&3], start);
        assert_eq!(stands.reconciler(&anonymous).start_offset(0, 20), 10);
        assert!(book().load(&TopicName::new("a").unwrap()).unwrap().is_empty());
    }

    /// The names on disk; renaming a field must not change them.
    #[test]
    fn the_format_of_a_checkpoint() {
        const GOLDEN: &str = concat!(
            r#"{"next":12,"last":{"offset":10,"producer":"Mount","#,
            r#""incarnation":2,"sequence":5,"time_tai_ns":11}}"#
        );
        const OLD_NAMES: &str = concat!(
            r#"{"next":12,"last":{"offset":10,"producer":"Mount","#,
            r#""incarnation":2,"number":5,"time_tai_ns":11}}"#
        );
        const BEGINS: &str = r#"{"next":9,"last":null,"since_tai_ns":5}"#;
        let bus = Bus::connect("memory:").unwrap();
        let name = ProducerName::new("Mount").unwrap();
        let identity = SampleIdentity::new(
            &name,
            SEQUENCE,
            Tai::from_nanos(11),
            &AnonymousProducer::of(&bus, "one"),
        );
        let stands = Checkpoint::after(12, 10, &identity);
        assert_eq!(serde_json::from_str::<Checkpoint>(OLD_NAMES).unwrap(), stands);
        for (checkpoint, golden) in
            [(stands, GOLDEN), (Checkpoint::starting_at(9, Some(Tai::from_nanos(5))), BEGINS)]
        {
            assert_eq!(serde_json::to_string(&checkpoint).unwrap(), golden);
            assert_eq!(serde_json::from_str::<Checkpoint>(golden).unwrap(), checkpoint);
        }
        let from = CheckpointStore::new((&bus, "one"), (&bus, "other")).unwrap();
        assert_eq!(from.name.as_str(), "helio-bridge/from/one");
        assert_eq!(parse_key(b"a/b 3"), Some((TopicName::new("a/b").unwrap(), 3)));
        assert_eq!(parse_key(b"format"), None);
    }
}
