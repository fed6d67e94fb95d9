//! Queries of a topic's metadata.

use std::time::{Duration, Instant};

use helio_bus::TransportError;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::client::error::{failed, outage, refused};
use crate::client::fetcher::Fetcher;
use crate::client::ffi::{self, TopicMetadata};
use crate::client::options::BROKER_TIMEOUT;

/// How often a topic that does not exist yet is queried.
const TOPIC_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long a new topic may be without leaders while the brokers answer. Beside a build on two
/// cores, a broker with hundreds of new topics took more than 10 s.
const LEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the answer to a query of the brokers' health may take.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// The most brokers that are queried at once when one has not answered.
const MAX_QUERIED_BROKERS: usize = 16;

impl Fetcher {
    /// Whether any broker answers; the error is that of the one queried first. librdkafka asks the
    /// most recently used broker for metadata, which may be the only one that is frozen.
    pub(crate) fn answers(&self, topic: &str) -> Result<(), KafkaError> {
        let answer = self.fetch_metadata(Some(topic), HEALTH_TIMEOUT).map(drop);
        answer.or_else(|error| {
            let client = self.consumer.client();
            let mut brokers = ffi::brokers(client);
            brokers.truncate(MAX_QUERIED_BROKERS);
            match ffi::any_answers(client, &brokers, HEALTH_TIMEOUT) {
                true => Ok(()),
                false => Err(error),
            }
        })
    }

    /// The number of a Kafka topic's partitions; `None` if it does not exist.
    pub(crate) fn partitions(&self, name: &str) -> Result<Option<u32>, TransportError> {
        let what = format!("find the topic {name}");
        let metadata = self.fetch_metadata(Some(name), BROKER_TIMEOUT).map_err(failed(&what))?;
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
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
            let Some(topics) = ffi::describe(&self.consumer, asked, left) else {
                // A lost broker gives no answer, and does so before the timeout.
                if Instant::now() >= answered_by {
                    return Err(outage(format!("no broker has described the topic {name}")));
                }
                std::thread::sleep(TOPIC_POLL_INTERVAL);
                continue;
            };
            answered_by = Instant::now() + BROKER_TIMEOUT;
            if let Some(described) = topics.get(name) {
                return Ok(Some(*described));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(TOPIC_POLL_INTERVAL);
        }
    }

    /// Waits until every partition of a new topic has a leader. Brokers that do not answer are an
    /// outage after [`BROKER_TIMEOUT`].
    pub(crate) fn wait_until_created(&self, name: &str) -> Result<(), TransportError> {
        let until = Instant::now() + LEADER_TIMEOUT;
        let mut pause = Duration::from_millis(1);
        loop {
            let metadata = self.fetch_metadata(Some(name), BROKER_TIMEOUT);
            let metadata = metadata.map_err(failed("wait for a new topic"))?;
            let topic = metadata.topics().iter().find(|topic| topic.name() == name);
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
                    LEADER_TIMEOUT.as_secs()
                )));
            }
            // Brokers learn of a new topic from their controller; there is nothing to wait on.
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}
