//! Creating topics and reading their configuration.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use helio_bus::TransportError;
use helio_bus::transport::locked;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::RDKafkaErrorCode;

use crate::client::error::{failed, outage, refused};
use crate::client::ffi::{self, TopicMetadata};
use crate::client::health::Health;
use crate::client::options::{BROKER_TIMEOUT, Options};
use crate::client::topic_config::Config;
use crate::topic::connection::Connection;

/// How often a topic that does not exist yet is queried.
const TOPIC_POLL_INTERVAL: Duration = Duration::from_millis(5);

type NativeAdmin = AdminClient<DefaultClientContext>;

/// An administrator's client, started when first needed.
pub(crate) struct Admin {
    options: Options,
    health: Arc<Health>,
    client: Mutex<Option<Arc<NativeAdmin>>>,
}

/// A topic to be created.
pub(crate) struct TopicToCreate {
    pub(crate) name: String,
    pub(crate) partitions: u32,
    pub(crate) config: Config,
}

impl TopicToCreate {
    fn new_topic(&self, copies: i32) -> NewTopic<'_> {
        let partitions = i32::try_from(self.partitions).unwrap_or(i32::MAX);
        let topic = NewTopic::new(&self.name, partitions, TopicReplication::Fixed(copies));
        self.config.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
    }
}

impl Admin {
    pub(crate) fn new(options: &Options, health: &Arc<Health>) -> Self {
        Self { options: options.clone(), health: Arc::clone(health), client: Mutex::default() }
    }

    pub(crate) fn client(&self) -> Result<Arc<NativeAdmin>, TransportError> {
        let mut client = locked(&self.client);
        if let Some(client) = &*client {
            return Ok(Arc::clone(client));
        }
        let made: NativeAdmin =
            self.options.admin().create().map_err(failed("start an administrator's client"))?;
        let made = Arc::new(made);
        self.health.clients.add(&made);
        Ok(Arc::clone(client.insert(made)))
    }

    /// Drops the client: during an outage nothing would serve its queue.
    pub(crate) fn forget(&self) {
        drop(locked(&self.client).take());
    }

    /// Creates topics that do not exist; returns the rejected ones, by name. A topic whose creation
    /// timed out may exist nevertheless and is not returned; [`Connection::wait_until_created`]
    /// tells.
    pub(crate) fn create(
        &self,
        topics: &[TopicToCreate],
        patience: Duration,
    ) -> Result<Vec<(String, TransportError)>, TransportError> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        let copies = self.options.replication.unwrap_or(-1);
        let topics: Vec<_> = topics.iter().map(|made| made.new_topic(copies)).collect();
        let options = AdminOptions::new().operation_timeout(Some(patience));
        let options = options.request_timeout(Some(patience));
        let client = self.client()?;
        let made = client.create_topics(&topics, &options);
        let made = block_on(made, patience + BROKER_TIMEOUT).ok_or_else(late)?;
        let named = |name: &str| format!("create the topic {name}");
        let made = made.map_err(|error| failed(&named(topics[0].name))(error))?;
        let made = made.into_iter().filter_map(Result::err);
        let there = [RDKafkaErrorCode::TopicAlreadyExists, RDKafkaErrorCode::RequestTimedOut];
        let refusals = made.filter(|(_, code)| !there.contains(code));
        let told = |(name, code): (String, RDKafkaErrorCode)| {
            let error = refused(&named(&name), code);
            (name, error)
        };
        Ok(refusals.map(told).collect())
    }

    /// A topic's configuration, by the names of Kafka's documentation.
    pub(crate) fn describe(&self, name: &str) -> Result<HashMap<String, String>, TransportError> {
        let what = format!("read the configuration of {name}");
        let patience = AdminOptions::new().request_timeout(Some(BROKER_TIMEOUT));
        let client = self.client()?;
        let topic = ResourceSpecifier::Topic(name);
        let told = client.describe_configs([&topic], &patience);
        let told = block_on(told, 2 * BROKER_TIMEOUT).ok_or_else(late)?.map_err(failed(&what))?;
        let mut config = HashMap::new();
        for resource in told {
            let resource = resource.map_err(|code| refused(&what, code))?;
            let set = resource.entries.into_iter();
            config.extend(set.filter_map(|entry| Some((entry.name, entry.value?))));
        }
        Ok(config)
    }
}

fn late() -> TransportError {
    outage("no broker answered an administrative request".to_owned())
}

impl Connection {
    /// The number of a Kafka topic's partitions; `None` if it does not exist.
    pub(crate) fn partitions(&self, name: &str) -> Result<Option<u32>, TransportError> {
        let what = format!("find the topic {name}");
        let told = self.client.fetch_metadata(Some(name), BROKER_TIMEOUT).map_err(failed(&what))?;
        let Some(topic) = told.topics().iter().find(|topic| topic.name() == name) else {
            return Ok(None);
        };
        match topic.error().map(RDKafkaErrorCode::from) {
            None | Some(RDKafkaErrorCode::LeaderNotAvailable) => {
                let partitions = u32::try_from(topic.partitions().len()).unwrap_or(0);
                Ok((partitions > 0).then_some(partitions))
            }
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                Ok(None)
            }
            Some(code) => Err(refused(&what, code)),
        }
    }

    /// The brokers' description of a topic, which may take a moment after its creation; `None` if
    /// it does not exist.
    pub(crate) fn described(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Option<TopicMetadata>, TransportError> {
        let until = Instant::now() + patience;
        let mut answered_by = Instant::now() + BROKER_TIMEOUT;
        loop {
            let asked = std::iter::once(name.to_owned());
            let left = answered_by.saturating_duration_since(Instant::now());
            let Some(told) = ffi::describe(&self.client.consumer, asked, left) else {
                // A lost broker gives no answer, and does so before the timeout.
                if Instant::now() >= answered_by {
                    return Err(outage(format!("no broker has described the topic {name}")));
                }
                std::thread::sleep(TOPIC_POLL_INTERVAL);
                continue;
            };
            answered_by = Instant::now() + BROKER_TIMEOUT;
            if let Some(described) = told.get(name) {
                return Ok(Some(*described));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(TOPIC_POLL_INTERVAL);
        }
    }

    /// Waits until every partition of a new topic has a leader.
    pub(crate) fn wait_until_created(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<(), TransportError> {
        let until = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            let told = self.client.fetch_metadata(Some(name), BROKER_TIMEOUT);
            let told = told.map_err(failed("wait for a new topic"))?;
            let topic = told.topics().iter().find(|topic| topic.name() == name);
            let leads = |topic: &rdkafka::metadata::MetadataTopic| {
                let partitions = topic.partitions();
                topic.error().is_none()
                    && !partitions.is_empty()
                    && partitions.iter().all(|partition| partition.leader() >= 0)
            };
            if topic.is_some_and(leads) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(outage(format!(
                    "the topic {name} was created, and has no leader after {} s; check the load of \
                     the brokers, and try again",
                    patience.as_secs()
                )));
            }
            // Brokers learn of a new topic from their controller; there is nothing to wait on.
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread; `None` on a timeout.
fn block_on<F: Future>(future: F, patience: Duration) -> Option<F::Output> {
    let until = Instant::now() + patience;
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}
