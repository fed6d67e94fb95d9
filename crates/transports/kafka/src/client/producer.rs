//! The producer that all writers of a connection share. Its records in flight are in `in_flight`.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
};

use crate::client::first_record_gate::{FailedRecords, FirstRecordGate};
use crate::client::health::Health;
use crate::client::in_flight::{
    DeliveryReceiver, InFlightKey, InFlightQueue, OutgoingRecord, RecordRole,
};
use crate::client::options::Options;
use crate::client::polled_producer::PolledProducer;
use crate::client::signal::Notify;

/// How long closing waits for records in flight.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long librdkafka may take to report purged records.
const PURGE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often closing checks whether all records were reported.
const FLUSH_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The state that the producer's callbacks share.
pub(crate) struct DeliveryContext {
    flight: Arc<InFlightQueue>,
    firsts: FirstRecordGate,
    health: Arc<Health>,
    /// Sends the records that waited for a first record.
    producer: OnceLock<Weak<NativeProducer>>,
}

/// librdkafka's producer.
type NativeProducer = PolledProducer<DeliveryContext>;

impl DeliveryContext {
    /// A record was reported: records behind a partition's first one are sent. Returns those that
    /// cannot be sent.
    fn follow(
        &self,
        message: &BorrowedMessage<'_>,
        report: (usize, Option<&KafkaError>),
    ) -> FailedRecords {
        let producer = self.producer.get().and_then(Weak::upgrade);
        let hand_over = |record: OutgoingRecord<'_>, opaque| match &producer {
            Some(producer) => hand_over(producer, record, opaque),
            None => Err(purged()),
        };
        let partition = u32::try_from(message.partition()).unwrap_or(u32::MAX);
        let failed = self.firsts.reported((message.topic(), partition), report, &hand_over);
        // This is the producer's own thread.
        if let Some(last) = producer.and_then(Arc::into_inner) {
            end(last);
        }
        failed
    }

    /// Reports records that could not be sent.
    fn failed(&self, failed: FailedRecords) {
        for (opaque, error) in failed {
            let (taken, part) = InFlightKey::of(opaque);
            self.flight.reported(taken, part, Err(error));
        }
    }
}

/// librdkafka's error for records that were purged before they were sent.
fn purged() -> KafkaError {
    KafkaError::MessageProduction(RDKafkaErrorCode::PurgeQueue)
}

fn hand_over(
    producer: &NativeProducer,
    record: OutgoingRecord<'_>,
    opaque: usize,
) -> Result<(), KafkaError> {
    let partition = i32::try_from(record.partition).unwrap_or(i32::MAX);
    let mut base = BaseRecord::<[u8], [u8], _>::with_opaque_to(record.topic, opaque);
    base = base.partition(partition);
    base.key = record.key;
    base.payload = record.payload;
    base.headers = record.headers;
    base.timestamp = record.timestamp;
    producer.send(base).map_err(|(error, _)| cause(producer, error))
}

/// A record's error. If the producer has a fatal error, that is returned: it has the cause that
/// "fatal" and "purged from the queue" lack.
fn cause(producer: &NativeProducer, error: KafkaError) -> KafkaError {
    let fatal = producer.client().fatal_error();
    fatal.map_or(error, |(code, _)| KafkaError::MessageProduction(code))
}

/// Destroys the producer on another thread: its destructor joins the producer's own thread, on
/// which this may run.
fn end<T: Send + 'static>(producer: T) {
    let thread = std::thread::Builder::new().name("kafka-producer-end".to_owned());
    let ended = thread.spawn(move || drop(producer));
    debug_assert!(ended.is_ok(), "{ended:?}");
}

impl ClientContext for DeliveryContext {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.health.complained(&error, reason);
    }
}

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let (message, outcome) = match result {
            Ok(message) => (message, Ok(u64::try_from(message.offset()).ok())),
            Err((error, message)) => (message, Err(error.clone())),
        };
        // Before its key can be reused.
        let failed = match outcome.as_ref().err() {
            None if !self.firsts.is_any_alone() => FailedRecords::new(),
            error => self.follow(message, (opaque, error)),
        };
        let (taken, part) = InFlightKey::of(opaque);
        self.flight.reported(taken, part, outcome);
        self.failed(failed);
    }
}

/// The shared producer.
pub(crate) struct Producer {
    /// Present until this is dropped.
    inner: Option<Arc<NativeProducer>>,
    flight: Arc<InFlightQueue>,
}

impl Producer {
    pub(crate) fn start(options: &Options, health: &Arc<Health>) -> KafkaResult<Self> {
        let flight = Arc::new(InFlightQueue::new(options.limits));
        let reports = DeliveryContext {
            flight: Arc::clone(&flight),
            firsts: FirstRecordGate::new(options.message_timeout()),
            health: Arc::clone(health),
            producer: OnceLock::new(),
        };
        let base: BaseProducer<_> = options.producer().create_with_context(reports)?;
        let inner = Arc::new(NativeProducer::start(base)?);
        _ = inner.context().producer.set(Arc::downgrade(&inner));
        health.clients.add(&inner);
        Ok(Self { inner: Some(inner), flight })
    }

    fn inner(&self) -> &NativeProducer {
        self.inner.as_ref().expect("it is there until this is dropped")
    }

    /// Reserves room for a sample of so many records, each of so many bytes. `receiver` gets the
    /// result when all of them were reported; each must be sent. If there is no room, `notify` is
    /// called when there is.
    pub(crate) fn take(
        &self,
        (records, bytes): (u8, usize),
        notify: Option<&Notify>,
        receiver: impl FnOnce() -> DeliveryReceiver,
    ) -> Option<InFlightKey> {
        self.flight.reserve((records, bytes), notify, receiver)
    }

    /// The number of records in flight.
    pub(crate) fn under_way(&self) -> usize {
        self.flight.len()
    }

    /// Sends the sample's first record. On an error nothing is reported, and the room is released.
    pub(crate) fn send(
        &self,
        record: OutgoingRecord<'_>,
        taken: InFlightKey,
    ) -> Result<(), KafkaError> {
        let sent = self.hand_over(record, taken.with(RecordRole::Topic));
        sent.inspect_err(|_| self.flight.cancel(taken))
    }

    /// Sends another record of a sample; an error is reported as its result.
    pub(crate) fn send_beside(&self, record: OutgoingRecord<'_>, taken: InFlightKey) {
        if let Err(error) = self.hand_over(record, taken.with(RecordRole::Beside)) {
            self.flight.reported(taken, RecordRole::Beside, Err(error));
        }
    }

    fn hand_over(&self, record: OutgoingRecord<'_>, opaque: usize) -> Result<(), KafkaError> {
        let inner = self.inner();
        let hand_over = |record: OutgoingRecord<'_>, opaque| hand_over(inner, record, opaque);
        inner.context().firsts.send(record, opaque, &hand_over)
    }

    /// See [`cause`].
    pub(crate) fn cause(&self, error: KafkaError) -> KafkaError {
        cause(self.inner(), error)
    }

    /// Purges unreported records.
    fn purge(&self) {
        let reports = self.inner().context();
        reports.failed(reports.firsts.purge(&purged()));
        self.inner().purge(PurgeConfig::default().queue().inflight());
    }

    /// Makes the producer fetch a topic's metadata, so that the first record does not wait for it.
    pub(crate) fn learn(&self, topic: &str, patience: Duration) -> KafkaResult<Metadata> {
        self.inner().client().fetch_metadata(Some(topic), patience)
    }

    /// Waits until then for all records in flight to be reported; returns whether they were. They
    /// are reported on the producer's thread: a flush that waits would also report on this one.
    fn is_reported_by(&self, until: Instant) -> bool {
        loop {
            if self.under_way() == 0 && self.inner().flush(Duration::ZERO).is_ok() {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(FLUSH_POLL_INTERVAL);
        }
    }
}

/// Waits until then for the records in flight of all these producers, and purges the rest; returns
/// whether there was none.
pub(crate) fn close<'a>(producers: impl Iterator<Item = &'a Producer>, until: Instant) -> bool {
    let late: Vec<_> = producers.filter(|producer| !producer.is_reported_by(until)).collect();
    late.iter().for_each(|producer| producer.purge());
    let until = Instant::now() + PURGE_TIMEOUT;
    late.iter().for_each(|producer| _ = producer.is_reported_by(until));
    late.is_empty()
}

impl Drop for Producer {
    /// A room callback may drop this on the producer's own thread.
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

    /// A broker that rejects a request for a partition that it does not know yet and accepts the
    /// next one, which was in flight already, as brokers do before Kafka 4.5 (KAFKA-15591).
    #[test]
    fn what_a_broker_refuses_at_first_is_written_before_what_is_behind_it() {
        let broker = MockCluster::new(1).unwrap();
        broker.create_topic("t", 2, 1).unwrap();
        let url = format!("kafka://{}", broker.bootstrap_servers()).parse().unwrap();
        let opening = Opening { url, clock: Arc::new(SystemClock::new()) };
        let options = Options::parse(&opening).unwrap();
        let producer = Producer::start(&options, &Arc::default()).unwrap();
        producer.learn("t", FLUSH_TIMEOUT).unwrap();
        let send = |partition: u32, number: u8| {
            let (told, outcome) = sync_channel(1);
            let taken = producer.take((1, 1), None, || DeliveryReceiver::Table(told)).unwrap();
            let (payload, key, headers) = ([number], None, None);
            let payload = Some(&payload[..]);
            let (topic, timestamp) = ("t", None);
            let record = OutgoingRecord { topic, partition, key, payload, headers, timestamp };
            producer.send(record, taken).unwrap();
            outcome
        };
        // The producer has its identifier from the brokers now.
        send(1, 0).recv_timeout(HANG_TIMEOUT).unwrap().unwrap();
        // Each answer is so late that the next request is in flight.
        broker.broker_round_trip_time(1, ROUND_TRIP_TIME).unwrap();
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
            assert!(matches!(outcome.recv_timeout(HANG_TIMEOUT), Ok(Ok(_))));
        }
        assert!(since.elapsed() > ROUND_TRIP_TIME, "nothing was refused");
        assert_eq!(written(&broker), (0..30).collect::<Vec<_>>());
    }

    const HANG_TIMEOUT: Duration = Duration::from_secs(60);
    const ROUND_TRIP_TIME: Duration = Duration::from_millis(300);

    /// The records in the broker's topic.
    fn written(broker: &MockCluster<'_, impl ClientContext>) -> Vec<u8> {
        let mut config = rdkafka::ClientConfig::new();
        config.set("bootstrap.servers", broker.bootstrap_servers()).set("group.id", "g");
        let reader: BaseConsumer = config.create().unwrap();
        let (_, end) = reader.fetch_watermarks("t", 0, HANG_TIMEOUT).unwrap();
        let mut places = TopicPartitionList::new();
        places.add_partition_offset("t", 0, Offset::Beginning).unwrap();
        reader.assign(&places).unwrap();
        let next = |_| reader.poll(HANG_TIMEOUT).unwrap().unwrap().payload().unwrap()[0];
        (0..end).map(next).collect()
    }
}
