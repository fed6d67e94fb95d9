//! The producer that all writers of a connection share, and what is under way to the brokers.
//!
//! Constraints. What is under way is bounded, in records and bytes, by counts of our own:
//! librdkafka frees a place in its queue only after all reports of a batch were told, too late for
//! telling those who wait that there is room. Each report is told once, in the order of a
//! partition.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _, OwnedHeaders};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig, ThreadedProducer,
};
use slab::Slab;

use crate::firsts::{Failed, Firsts};
use crate::monitor::Health;
use crate::options::{Limits, Options};
use crate::writer::Sample;

/// How long who closes waits for what is under way.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);
/// How long what was given up then may take to be reported.
const GIVING_UP: Duration = Duration::from_millis(500);
/// How long between two looks whether all of it was.
const TURN: Duration = Duration::from_millis(2);

/// Who is told that there is room.
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

/// What became of a record: its offset, as far as the brokers tell it (with `acks=0` they do not,
/// nor for one that was repeated), or why it is not there.
pub(crate) type Outcome = Result<Option<u64>, KafkaError>;

/// Which of a sample's records it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The one in the topic.
    Topic,
    /// The copy in the companion, or the word that its writer lives.
    Beside,
}

/// Who is told when all records of a sample were reported, in the producer's thread: the offset of
/// the one in the topic, or the first error.
pub(crate) enum Told {
    Writer(Sample),
    Table(SyncSender<Outcome>),
}

impl Told {
    fn tell(self, outcome: Outcome) {
        match self {
            Self::Writer(sample) => sample.delivered(outcome),
            // Who waited may have given up.
            Self::Table(sender) => _ = sender.try_send(outcome),
        }
    }
}

/// The records of a sample under way.
struct Underway {
    /// How many were not reported yet.
    left: u8,
    /// What room each of them has.
    bytes: usize,
    outcome: Outcome,
    told: Told,
}

/// Names a sample under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken(usize);

impl Taken {
    /// As librdkafka carries it with a record.
    fn with(self, part: Part) -> usize {
        self.0 << 1 | usize::from(part == Part::Topic)
    }

    fn of(opaque: usize) -> (Self, Part) {
        let part = if opaque & 1 == 1 { Part::Topic } else { Part::Beside };
        (Self(opaque >> 1), part)
    }
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
    /// In one place, for a record of its own on the heap costs as much as sending it.
    samples: Mutex<Slab<Underway>>,
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

    /// One record of a sample was reported. Reports come in the order of a partition.
    fn reported(&self, taken: Taken, part: Part, outcome: Outcome) {
        let mut samples = locked(&self.samples);
        let Some(sample) = samples.get_mut(taken.0) else { return };
        if sample.outcome.is_ok() && (part == Part::Topic || outcome.is_err()) {
            sample.outcome = outcome;
        }
        sample.left -= 1;
        let bytes = sample.bytes;
        let whole = (sample.left == 0).then(|| samples.remove(taken.0));
        drop(samples);
        self.give_back(1, bytes);
        if let Some(sample) = whole {
            sample.told.tell(sample.outcome);
        }
        self.tell();
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
    firsts: Firsts,
    health: Arc<Health>,
    /// Who sends what waits for a first record.
    producer: OnceLock<Weak<Native>>,
}

/// librdkafka's, with the thread that serves its callbacks.
type Native = ThreadedProducer<Reports>;

impl Reports {
    /// A record was reported: what is behind a partition's first one is sent. Gives what cannot be.
    fn follow(
        &self,
        message: &BorrowedMessage<'_>,
        report: (usize, Option<&KafkaError>),
    ) -> Failed {
        let producer = self.producer.get().and_then(Weak::upgrade);
        let hand_over = |record: Outgoing<'_>, opaque| match &producer {
            Some(producer) => hand_over(producer, record, opaque),
            None => Err(given_up()),
        };
        let partition = u32::try_from(message.partition()).unwrap_or(u32::MAX);
        let failed = self.firsts.reported((message.topic(), partition), report, &hand_over);
        // This is its own thread.
        if let Some(last) = producer.and_then(Arc::into_inner) {
            end(last);
        }
        failed
    }

    /// Reports what could not be sent.
    fn failed(&self, failed: Failed) {
        for (opaque, error) in failed {
            let (taken, part) = Taken::of(opaque);
            self.flight.reported(taken, part, Err(error));
        }
    }
}

/// As librdkafka says of what it was made to throw away before it was sent.
fn given_up() -> KafkaError {
    KafkaError::MessageProduction(RDKafkaErrorCode::PurgeQueue)
}

fn hand_over(producer: &Native, record: Outgoing<'_>, opaque: usize) -> Result<(), KafkaError> {
    let partition = i32::try_from(record.partition).unwrap_or(i32::MAX);
    let mut base = BaseRecord::<[u8], [u8], _>::with_opaque_to(record.topic, opaque);
    base = base.partition(partition);
    base.key = record.key;
    base.payload = record.payload;
    base.headers = record.headers;
    base.timestamp = record.timestamp;
    producer.send(base).map_err(|(error, _)| cause(producer, error))
}

/// Why a record failed: where the producer cannot go on at all, why it cannot says more than that
/// it cannot, or that what was queued was thrown away.
fn cause(producer: &Native, error: KafkaError) -> KafkaError {
    let fatal = producer.client().fatal_error();
    fatal.map_or(error, |(code, _)| KafkaError::MessageProduction(code))
}

/// Ends in a thread of its own: it cannot wait for itself in its own.
fn end<T: Send + 'static>(producer: T) {
    let thread = std::thread::Builder::new().name("kafka-producer-end".to_owned());
    let ended = thread.spawn(move || drop(producer));
    debug_assert!(ended.is_ok(), "{ended:?}");
}

impl ClientContext for Reports {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.health.complained(&error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let (message, outcome) = match result {
            Ok(message) => (message, Ok(u64::try_from(message.offset()).ok())),
            Err((error, message)) => (message, Err(error.clone())),
        };
        // Before others may have its name.
        let failed = match outcome.as_ref().err() {
            None if !self.firsts.is_any_alone() => Failed::new(),
            error => self.follow(message, (opaque, error)),
        };
        let (taken, part) = Taken::of(opaque);
        self.flight.reported(taken, part, outcome);
        self.failed(failed);
    }
}

/// The one producer.
pub(crate) struct Producer {
    /// There until this is dropped.
    inner: Option<Arc<Native>>,
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
            samples: Mutex::default(),
        });
        let reports = Reports {
            flight: Arc::clone(&flight),
            firsts: Firsts::new(options.message_timeout()),
            health: Arc::clone(health),
            producer: OnceLock::new(),
        };
        let inner: Native = options.producer().create_with_context(reports)?;
        let inner = Arc::new(inner);
        _ = inner.context().producer.set(Arc::downgrade(&inner));
        health.clients.add(&inner);
        Ok(Self { inner: Some(inner), flight })
    }

    fn inner(&self) -> &Native {
        self.inner.as_ref().expect("it is there until this is dropped")
    }

    /// Takes room for a sample of so many records, of so many bytes each; `told` hears when all of
    /// them were reported, and each has to be sent. Where there is no room, `notify` is called when
    /// there is.
    pub(crate) fn take(
        &self,
        (records, bytes): (u8, usize),
        notify: Option<&Notify>,
        told: impl FnOnce() -> Told,
    ) -> Option<Taken> {
        let room = || self.flight.take(usize::from(records), usize::from(records) * bytes);
        let has_room = room()
            || notify.is_some_and(|notify| {
                self.flight.wait(notify);
                // Everything may have been reported in between; nobody would tell of it any more.
                room()
            });
        let sample = || Underway { left: records, bytes, outcome: Ok(None), told: told() };
        has_room.then(|| Taken(locked(&self.flight.samples).insert(sample())))
    }

    /// How many records are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.flight.records.load(Ordering::Relaxed)
    }

    /// Sends the sample's first record. Where that is an error nobody is told, and the room is
    /// given back.
    pub(crate) fn send(&self, record: Outgoing<'_>, taken: Taken) -> Result<(), KafkaError> {
        self.hand_over(record, taken.with(Part::Topic)).inspect_err(|_| {
            let sample = locked(&self.flight.samples).remove(taken.0);
            let records = usize::from(sample.left);
            self.flight.give_back(records, records * sample.bytes);
            self.flight.tell();
        })
    }

    /// Sends another record of a sample; where that is an error it was reported so.
    pub(crate) fn send_beside(&self, record: Outgoing<'_>, taken: Taken) {
        if let Err(error) = self.hand_over(record, taken.with(Part::Beside)) {
            self.flight.reported(taken, Part::Beside, Err(error));
        }
    }

    fn hand_over(&self, record: Outgoing<'_>, opaque: usize) -> Result<(), KafkaError> {
        let inner = self.inner();
        let hand_over = |record: Outgoing<'_>, opaque| hand_over(inner, record, opaque);
        inner.context().firsts.send(record, opaque, &hand_over)
    }

    /// See [`cause`].
    pub(crate) fn cause(&self, error: KafkaError) -> KafkaError {
        cause(self.inner(), error)
    }

    /// Throws away what was not reported.
    fn give_up(&self) {
        let reports = self.inner().context();
        reports.failed(reports.firsts.give_up(&given_up()));
        self.inner().purge(PurgeConfig::default().queue().inflight());
    }

    /// Has the producer know a topic, so that the first record does not wait for it.
    pub(crate) fn learn(&self, topic: &str, patience: Duration) -> KafkaResult<Metadata> {
        self.inner().client().fetch_metadata(Some(topic), patience)
    }

    /// Waits until then for everything that is under way to be reported; whether it was. It is
    /// reported in the producer's own thread: a flush that waits would do so in this one, too.
    fn is_reported_by(&self, until: Instant) -> bool {
        loop {
            if self.under_way() == 0 && self.inner().flush(Duration::ZERO).is_ok() {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(TURN);
        }
    }
}

/// Waits until then for what is under way in all of these, and gives the rest up.
pub(crate) fn close<'a>(producers: impl Iterator<Item = &'a Producer>, until: Instant) {
    let late: Vec<_> = producers.filter(|producer| !producer.is_reported_by(until)).collect();
    late.iter().for_each(|producer| producer.give_up());
    let until = Instant::now() + GIVING_UP;
    late.iter().for_each(|producer| _ = producer.is_reported_by(until));
}

impl Drop for Producer {
    /// This may be dropped in the producer's own thread, by whom is told of room.
    fn drop(&mut self) {
        end(self.inner.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use helio_bus::SystemClock;
    use helio_bus::transport::Opening;
    use rdkafka::bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION;
    use rdkafka::consumer::{BaseConsumer, Consumer as _};
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::RDKafkaApiKey;
    use rdkafka::{Offset, TopicPartitionList};

    use super::*;

    /// A broker that refuses a request of a partition that it has not heard of yet, and takes the
    /// next one, which was sent meanwhile, as brokers do before Kafka 4.5.
    #[test]
    fn what_a_broker_refuses_at_first_is_written_before_what_is_behind_it() {
        let broker = MockCluster::new(1).unwrap();
        broker.create_topic("t", 2, 1).unwrap();
        let url = format!("kafka://{}", broker.bootstrap_servers()).parse().unwrap();
        let opening = Opening { url, clock: Arc::new(SystemClock::new()) };
        let options = Options::parse(&opening).unwrap();
        let producer = Producer::start(&options, &Arc::default()).unwrap();
        producer.learn("t", CLOSING).unwrap();
        let send = |partition: u32, number: u8| {
            let (told, outcome) = sync_channel(1);
            let taken = producer.take((1, 1), None, || Told::Table(told)).unwrap();
            let (payload, key, headers) = ([number], None, None);
            let payload = Some(&payload[..]);
            let (topic, timestamp) = ("t", None);
            let record = Outgoing { topic, partition, key, payload, headers, timestamp };
            producer.send(record, taken).unwrap();
            outcome
        };
        // It has the number that brokers know it by.
        send(1, 0).recv_timeout(GRACE).unwrap().unwrap();
        // Each request is answered so late that the next one is under way.
        broker.broker_round_trip_time(1, LATE).unwrap();
        let refused = [RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION];
        broker.request_errors(RDKafkaApiKey::Produce, &refused);
        let told: Vec<_> = (0..30)
            .map(|number| {
                std::thread::sleep(Duration::from_millis(2));
                send(0, number)
            })
            .collect();
        let since = Instant::now();
        for outcome in told {
            assert!(matches!(outcome.recv_timeout(GRACE), Ok(Ok(_))));
        }
        assert!(since.elapsed() > LATE, "nothing was refused");
        assert_eq!(written(&broker), (0..30).collect::<Vec<_>>());
    }

    const GRACE: Duration = Duration::from_secs(60);
    const LATE: Duration = Duration::from_millis(300);

    /// What a broker has in its topic.
    fn written(broker: &MockCluster<'_, impl ClientContext>) -> Vec<u8> {
        let mut config = rdkafka::ClientConfig::new();
        config.set("bootstrap.servers", broker.bootstrap_servers()).set("group.id", "g");
        let reader: BaseConsumer = config.create().unwrap();
        let (_, end) = reader.fetch_watermarks("t", 0, GRACE).unwrap();
        let mut places = TopicPartitionList::new();
        places.add_partition_offset("t", 0, Offset::Beginning).unwrap();
        reader.assign(&places).unwrap();
        let next = |_| reader.poll(GRACE).unwrap().unwrap().payload().unwrap()[0];
        (0..end).map(next).collect()
    }
}
