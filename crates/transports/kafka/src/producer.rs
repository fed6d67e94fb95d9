//! The producer that all writers of a connection share, and what is under way to the brokers.
//!
//! Constraints. What is under way is bounded, in records and bytes, by counts of our own:
//! librdkafka frees a place in its queue only after all reports of a batch were told, too late for
//! telling those who wait that there is room. Each report is told once, in the order of a
//! partition.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helio_bus::transport::locked;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{Message as _, OwnedHeaders};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig, ThreadedProducer,
};

use crate::monitor::Health;
use crate::options::{Limits, Options};

/// How long closing waits for what is under way.
const CLOSING: Duration = Duration::from_secs(5);

/// Who is told that there is room.
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

/// Who is told what became of a record.
pub(crate) trait Delivered: Send + Sync {
    /// The record's offset, as far as the brokers tell it (with `acks=0` they do not, nor for one
    /// that was repeated), or why it is not there. Called from the producer's thread.
    fn delivered(&self, part: Part, outcome: Result<Option<u64>, KafkaError>);
}

/// Which of a sample's records it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The one in the topic.
    Topic,
    /// The copy in the companion.
    Companion,
    /// That its writer lives.
    Word,
}

/// A record under way.
pub(crate) struct Delivery {
    bytes: usize,
    part: Part,
    told: Arc<dyn Delivered>,
}

/// A record as it goes to librdkafka.
pub(crate) struct Outgoing<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: u32,
    /// Kafka makes a difference between no key and an empty one.
    pub(crate) key: Option<&'a [u8]>,
    /// None takes the key's value back, in a compacted topic.
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) headers: Option<OwnedHeaders>,
    /// Milliseconds of UTC since 1970, at least 1; none is now.
    pub(crate) timestamp: Option<i64>,
}

/// What is under way, counted.
pub(crate) struct Flight {
    limits: Limits,
    records: AtomicUsize,
    bytes: AtomicUsize,
    anybody_waits: AtomicBool,
    waiting: Mutex<Vec<Notify>>,
}

impl Flight {
    /// Takes room for records; false where there is none. What is larger than all the room there
    /// is goes alone.
    fn take(&self, records: usize, bytes: usize) -> bool {
        let before = self.records.fetch_add(records, Ordering::SeqCst);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::SeqCst);
        let fits = before == 0
            || (before + records <= self.limits.records
                && bytes_before + bytes <= self.limits.bytes);
        if !fits {
            self.give_back(records, bytes);
        }
        fits
    }

    fn give_back(&self, records: usize, bytes: usize) {
        self.records.fetch_sub(records, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Tells those who wait that there is room.
    fn tell(&self) {
        if self.anybody_waits.swap(false, Ordering::SeqCst) {
            let waiting = std::mem::take(&mut *locked(&self.waiting));
            waiting.iter().for_each(|notify| notify());
        }
    }

    fn wait(&self, notify: &Notify) {
        let mut waiting = locked(&self.waiting);
        if !waiting.iter().any(|other| Arc::ptr_eq(other, notify)) {
            waiting.push(Arc::clone(notify));
        }
        drop(waiting);
        self.anybody_waits.store(true, Ordering::SeqCst);
    }
}

/// What the producer's callbacks know.
pub(crate) struct Reports {
    flight: Arc<Flight>,
    health: Arc<Health>,
}

impl ClientContext for Reports {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.health.complained(&error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Delivery>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Box<Delivery>) {
        let outcome = match result {
            Ok(message) => Ok(u64::try_from(message.offset()).ok()),
            Err((error, _)) => Err(error.clone()),
        };
        self.flight.give_back(1, delivery.bytes);
        delivery.told.delivered(delivery.part, outcome);
        self.flight.tell();
    }
}

/// The one producer.
pub(crate) struct Producer {
    /// There until this is dropped.
    inner: Option<ThreadedProducer<Reports>>,
    flight: Arc<Flight>,
}

impl Producer {
    pub(crate) fn start(options: &Options, health: &Arc<Health>) -> KafkaResult<Self> {
        let flight = Arc::new(Flight {
            limits: options.limits,
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            anybody_waits: AtomicBool::new(false),
            waiting: Mutex::default(),
        });
        let reports = Reports { flight: Arc::clone(&flight), health: Arc::clone(health) };
        let inner = options.producer().create_with_context(reports)?;
        Ok(Self { inner: Some(inner), flight })
    }

    fn inner(&self) -> &ThreadedProducer<Reports> {
        self.inner.as_ref().expect("it is there until this is dropped")
    }

    /// Takes room for records. Where there is none, `notify` is called when there is.
    pub(crate) fn room(&self, records: usize, bytes: usize, notify: Option<&Notify>) -> bool {
        if self.flight.take(records, bytes) {
            return true;
        }
        let Some(notify) = notify else { return false };
        self.flight.wait(notify);
        // Everything may have been reported in between; nobody would tell of it any more.
        self.flight.take(records, bytes)
    }

    /// Gives room back that was not needed.
    pub(crate) fn no_room_needed(&self, records: usize, bytes: usize) {
        self.flight.give_back(records, bytes);
        self.flight.tell();
    }

    /// How many records are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.flight.records.load(Ordering::Relaxed)
    }

    /// Sends a record that room was taken for. `told` hears what becomes of it, unless this is an
    /// error; the room is given back with it.
    pub(crate) fn send(
        &self,
        record: Outgoing<'_>,
        (bytes, part): (usize, Part),
        told: Arc<dyn Delivered>,
    ) -> Result<(), KafkaError> {
        let delivery = Box::new(Delivery { bytes, part, told });
        let partition = i32::try_from(record.partition).unwrap_or(i32::MAX);
        let mut base = BaseRecord::<[u8], [u8], _>::with_opaque_to(record.topic, delivery);
        base = base.partition(partition);
        base.key = record.key;
        base.payload = record.payload;
        base.headers = record.headers;
        base.timestamp = record.timestamp;
        self.inner().send(base).map_err(|(error, _)| {
            self.no_room_needed(1, bytes);
            self.cause(error)
        })
    }

    /// Why a record failed: where the producer cannot go on at all, why it cannot says more than
    /// that it cannot, or that what was queued was thrown away.
    pub(crate) fn cause(&self, error: KafkaError) -> KafkaError {
        let fatal = self.inner().client().fatal_error();
        fatal.map_or(error, |(code, _)| KafkaError::MessageProduction(code))
    }

    /// Has the producer know a topic, so that the first record does not wait for it.
    pub(crate) fn learn(&self, topic: &str, patience: Duration) -> KafkaResult<Metadata> {
        self.inner().client().fetch_metadata(Some(topic), patience)
    }

    /// Waits a while for what is under way, and gives the rest up.
    pub(crate) fn close(&self, outage: bool) {
        if !outage && self.inner().flush(CLOSING).is_ok() {
            return;
        }
        self.inner().purge(PurgeConfig::default().queue().inflight());
        // What was purged is reported in the producer's own thread.
        let _ = self.inner().flush(Duration::from_millis(500));
    }
}

impl Drop for Producer {
    /// Ends in a thread of its own: this may be dropped in the producer's, by whom is told of room,
    /// and that cannot wait for itself.
    fn drop(&mut self) {
        let inner = self.inner.take();
        let end = std::thread::Builder::new().name("kafka-producer-end".to_owned());
        let ended = end.spawn(move || drop(inner));
        debug_assert!(ended.is_ok(), "{ended:?}");
    }
}
