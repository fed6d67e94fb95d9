//! Shared by the tests on real brokers: the brokers, a registry, and plain clients.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

pub(crate) mod apicurio;
mod broker;

use std::ops::Deref;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic};
use rdkafka::admin::{ResourceSpecifier, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::error::KafkaResult;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

pub(crate) use broker::{Broker, broker, shared_broker, skipped, unique};

impl Broker {
    /// Sets a topic's property.
    pub(crate) fn set(&self, topic: &str, name: &str, value: &str) {
        let config = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
        let altered = done(admin(self).alter_configs([&config], &AdminOptions::new()));
        let altered = altered.expect("the broker answers");
        assert!(altered.iter().all(Result::is_ok), "{altered:?}");
    }
}

/// A plain client of the broker.
pub(crate) fn config(broker: &Broker) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker.servers());
    config
}

/// A plain client for topics, and what makes another one like it.
pub(crate) struct Admin {
    config: ClientConfig,
    client: AdminClient<DefaultClientContext>,
}

impl Deref for Admin {
    type Target = AdminClient<DefaultClientContext>;

    fn deref(&self) -> &Self::Target {
        &self.client
    }
}

impl Admin {
    fn new(config: ClientConfig) -> Self {
        let client = config.create().expect("librdkafka knows its options");
        Self { config, client }
    }
}

pub(crate) fn admin(broker: &Broker) -> Admin {
    Admin::new(config(broker))
}

/// How long a test waits for an event. It guards against hanging and is no expectation.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// How long one request may take. If a frozen broker has lost it, the client repeats it on a new
/// connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates a topic, and waits until its broker has it and it is empty. Brokers learn of changes
/// later, and until then accept records for a deleted topic. A client that was told that its only
/// broker is out of its cluster, as after a freeze, may never ask it again: another one looks.
pub(crate) fn make(admin: &Admin, name: &str, options: &[(&str, &str)]) {
    let topic = NewTopic::new(name, 1, TopicReplication::Fixed(1));
    let topic = options.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
    let until = Instant::now() + HANG_TIMEOUT;
    let made = || done(admin.create_topics([&topic], &AdminOptions::new())).unwrap().pop();
    // The name of a deleted topic is free a little later.
    while let Some(Err(error)) = made() {
        assert!(Instant::now() < until, "{error:?}");
    }
    let look = |admin: &Admin| admin.inner().fetch_watermarks(name, 0, ANSWER_TIMEOUT);
    let mut seen = look(admin);
    while !matches!(seen, Ok((_, 0))) {
        assert!(Instant::now() < until, "the broker does not know {name}: {seen:?}");
        std::thread::sleep(Duration::from_millis(10));
        seen = look(&Admin::new(admin.config.clone()));
    }
}

/// A plain producer that stores its delivery reports.
pub(crate) type Plain = BaseProducer<Reports>;

/// The results of deliveries: offsets or errors.
#[derive(Default)]
pub(crate) struct Reports(Mutex<Vec<KafkaResult<i64>>>);

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let told = result.as_ref().map(Message::offset).map_err(|(error, _)| error.clone());
        self.0.lock().unwrap().push(told);
    }
}

pub(crate) fn plain(broker: &Broker) -> Plain {
    config(broker).create_with_context(Reports::default()).expect("librdkafka knows its options")
}

/// Writes a record, and waits until the broker has it; returns its offset.
pub(crate) fn deliver(
    producer: &Plain,
    (topic, partition): (&str, i32),
    payload: &[u8],
) -> KafkaResult<i64> {
    deliver_keyed(producer, (topic, partition), (b"k", payload))
}

/// The same with a key.
pub(crate) fn deliver_keyed(
    producer: &Plain,
    (topic, partition): (&str, i32),
    (key, payload): (&[u8], &[u8]),
) -> KafkaResult<i64> {
    let record = BaseRecord::<[u8], [u8]>::to(topic).key(key).payload(payload);
    producer.send(record.partition(partition)).map_err(|(error, _)| error)?;
    producer.flush(HANG_TIMEOUT)?;
    producer.context().0.lock().unwrap().pop().expect("it was reported")
}

/// Runs an administrator's future; its client has a thread of its own.
pub(crate) fn done<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}

/// The full name of a test of a module, by its `module_path!()`: for processes that run this
/// binary again.
pub(crate) fn test_in(module: &str, test: &str) -> String {
    let (_, module) = module.split_once("::").expect("the module lies in a crate");
    format!("{module}::{test}")
}
