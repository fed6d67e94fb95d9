//! Kafka by librdkafka and nothing else, through the crate rdkafka: a topic of one partition,
//! librdkafka's own settings but those that are given, a producer that waits where its queue is
//! full, a consumer without a group.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::harness::{Publish, Subscribe, Work};

/// Longest wait for the brokers: ample on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(work: &Work) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &work.brokers);
    for (name, value) in &work.settings {
        config.set(name, value);
    }
    config
}

fn create(work: &Work, name: &str) {
    let admin: AdminClient<DefaultClientContext> =
        config(work).create().expect("the settings are librdkafka's");
    let topic = NewTopic::new(name, 1, TopicReplication::Fixed(work.replication));
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let made = futures_executor::block_on(admin.create_topics([&topic], &options));
    if let Err((_, code)) = &made.expect("the brokers answer")[0] {
        panic!("topic {name}: {code}");
    }
}

/// The topic that says that the subscriber reads.
fn ready(work: &Work) -> String {
    format!("{}.ready", work.topic)
}

/// Counts delivery reports.
#[derive(Default)]
struct Reports {
    count: Mutex<u64>,
    more: Condvar,
}

impl Reports {
    fn wait_for(&self, count: u64) {
        let reported = self.count.lock().expect("its holders do not panic");
        let waited = self.more.wait_timeout_while(reported, PATIENCE, |now| *now < count);
        let (_reported, timeout) = waited.expect("its holders do not panic");
        assert!(!timeout.timed_out(), "the brokers do not answer");
    }
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            panic!("a message was not delivered: {error}");
        }
        *self.count.lock().expect("its holders do not panic") += 1;
        self.more.notify_one();
    }
}

/// The sending end.
pub struct Sender<'a> {
    work: &'a Work,
    producer: ThreadedProducer<Reports>,
    sent: u64,
}

impl<'a> Sender<'a> {
    /// Connects.
    pub fn open(work: &'a Work) -> Self {
        let producer = config(work).create_with_context(Reports::default());
        Self { work, producer: producer.expect("the settings are librdkafka's"), sent: 0 }
    }

    fn reports(&self) -> &Reports {
        self.producer.context()
    }
}

impl Publish for Sender<'_> {
    fn wait_for_subscriber(&mut self) {
        let until = Instant::now() + PATIENCE;
        for name in [ready(self.work), self.work.topic.clone()] {
            loop {
                // Of all topics: brokers make one that is asked for by name.
                let found = self.producer.client().fetch_metadata(None, PATIENCE);
                let there = |topic: &rdkafka::metadata::MetadataTopic| {
                    topic.name() == name && topic.partitions().iter().any(|p| p.leader() >= 0)
                };
                if found.is_ok_and(|found| found.topics().iter().any(there)) {
                    break;
                }
                assert!(Instant::now() < until, "the subscriber is not there");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn send(&mut self, payload: &[u8]) {
        let mut record = BaseRecord::<(), [u8]>::to(&self.work.topic).payload(payload);
        while let Err((error, again)) = self.producer.send(record) {
            let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
            assert_eq!(error, full, "nothing else is in the way of a message");
            std::thread::sleep(Duration::from_millis(1));
            record = again;
        }
        self.sent += 1;
        if let Some(window) = self.work.window {
            self.reports().wait_for((self.sent + 1).saturating_sub(window));
        }
    }

    fn finish(&mut self) {
        self.reports().wait_for(self.sent);
    }
}

/// The receiving end.
pub struct Receiver<'a> {
    work: &'a Work,
    consumer: BaseConsumer,
    told: bool,
}

impl<'a> Receiver<'a> {
    /// Makes the topic, and reads it from its beginning.
    pub fn open(work: &'a Work) -> Self {
        create(work, &work.topic);
        let mut config = config(work);
        config.set("group.id", &work.topic).set("enable.auto.commit", "false");
        let consumer: BaseConsumer = config.create().expect("the settings are librdkafka's");
        let mut begin = TopicPartitionList::new();
        begin.add_partition_offset(&work.topic, 0, Offset::Beginning).expect("a legal offset");
        consumer.assign(&begin).expect("the partition is there");
        Self { work, consumer, told: false }
    }

    fn take(&self, limit: Duration, each: &mut dyn FnMut(&[u8])) -> bool {
        match self.consumer.poll(limit) {
            Some(Ok(message)) => {
                each(message.payload().unwrap_or_default());
                true
            }
            // Brokers that have just made a topic do not all know it yet.
            Some(Err(_)) | None => false,
        }
    }
}

impl Subscribe for Receiver<'_> {
    fn receive(&mut self, limit: Duration, each: &mut dyn FnMut(&[u8])) {
        if self.take(limit, each) {
            while self.take(Duration::ZERO, each) {}
        } else if !self.told {
            // It has fetched, and there was nothing yet.
            create(self.work, &ready(self.work));
            self.told = true;
        }
    }
}
