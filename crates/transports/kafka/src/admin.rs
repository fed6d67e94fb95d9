//! Making topics and reading their configuration.

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

use crate::connection::Connection;
use crate::error::{failed, outage, refused};
use crate::monitor::Health;
use crate::native::{self, Described};
use crate::options::{Options, PATIENCE};
use crate::topic_config::Config;

/// How long it is waited before it is asked again for a topic that is not there yet.
const AGAIN: Duration = Duration::from_millis(5);

type Client = AdminClient<DefaultClientContext>;

/// A client for the few things that only an administrator's client can, made when first needed.
pub(crate) struct Admin {
    options: Options,
    health: Arc<Health>,
    client: Mutex<Option<Arc<Client>>>,
}

/// A topic to be made.
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) partitions: u32,
    pub(crate) config: Config,
}

impl Made {
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

    pub(crate) fn client(&self) -> Result<Arc<Client>, TransportError> {
        let mut client = locked(&self.client);
        if let Some(client) = &*client {
            return Ok(Arc::clone(client));
        }
        let made: Client =
            self.options.admin().create().map_err(failed("start an administrator's client"))?;
        let made = Arc::new(made);
        self.health.clients.add(&made);
        Ok(Arc::clone(client.insert(made)))
    }

    /// Gives the client up: nobody serves what it would gather during an outage.
    pub(crate) fn forget(&self) {
        drop(locked(&self.client).take());
    }

    /// Makes topics, as far as nobody else has made them before; gives those that are refused, by
    /// name. What takes too long may be there nevertheless, and is none of them:
    /// [`Connection::settled`] tells.
    pub(crate) fn create(
        &self,
        topics: &[Made],
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
        let made = block_on(made, patience + PATIENCE).ok_or_else(late)?;
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
        let patience = AdminOptions::new().request_timeout(Some(PATIENCE));
        let client = self.client()?;
        let topic = ResourceSpecifier::Topic(name);
        let told = client.describe_configs([&topic], &patience);
        let told = block_on(told, 2 * PATIENCE).ok_or_else(late)?.map_err(failed(&what))?;
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
    outage("no broker answered an administrator's question".to_owned())
}

impl Connection {
    /// How many partitions a Kafka topic has; none where it does not exist.
    pub(crate) fn partitions(&self, name: &str) -> Result<Option<u32>, TransportError> {
        let what = format!("look for the topic {name}");
        let told = self.client.fetch_metadata(Some(name), PATIENCE).map_err(failed(&what))?;
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

    /// What the brokers say of a topic, which one that was just made may take a moment for; none
    /// where it is not there.
    pub(crate) fn described(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Option<Described>, TransportError> {
        let until = Instant::now() + patience;
        let mut answered_by = Instant::now() + PATIENCE;
        loop {
            let asked = std::iter::once(name.to_owned());
            let left = answered_by.saturating_duration_since(Instant::now());
            let Some(told) = native::describe(&self.client.consumer, asked, left) else {
                // A broker that was lost on the way is no answer, and comes before its time.
                if Instant::now() >= answered_by {
                    return Err(outage(format!("no broker says what {name} is")));
                }
                std::thread::sleep(AGAIN);
                continue;
            };
            answered_by = Instant::now() + PATIENCE;
            if let Some(described) = told.get(name) {
                return Ok(Some(*described));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Waits until every partition of a topic that was just made has a leader.
    pub(crate) fn settled(&self, name: &str, patience: Duration) -> Result<(), TransportError> {
        let until = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            let told = self.client.fetch_metadata(Some(name), PATIENCE);
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
                    "the topic {name} is made, and has no leader after {} s; look what the brokers \
                     are busy with, and try again",
                    patience.as_secs()
                )));
            }
            // Brokers hear of a new topic from their controller; there is nothing to wait on.
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

/// Runs a future in this thread; none where it takes longer than that.
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
