//! An administrator's client: creates topics and reads their configuration.

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
use crate::client::health::Health;
use crate::client::options::{BROKER_TIMEOUT, Options};
use crate::client::topic_config::Config;

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

    /// Drops the client: during an outage its queue is not served.
    pub(crate) fn forget(&self) {
        drop(locked(&self.client).take());
    }

    /// Creates topics that do not exist; returns the rejected ones, by name. A topic whose creation
    /// timed out may exist nevertheless and is not returned: `Fetcher::wait_until_created` checks.
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
