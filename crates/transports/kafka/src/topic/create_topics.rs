//! Creating topics: one, or many at once.
//!
//! A broker takes about ten milliseconds to create a partition. The rest (queries, records in the
//! internal topics, waiting for a leader) costs several times that, and is done here once for many.

use std::collections::HashSet;
use std::time::Duration;

use helio_bus::transport::first_difference;
use helio_bus::{Qos, TopicName, TransportError};

use crate::client::admin::TopicToCreate;
use crate::client::error::failed;
use crate::client::options::BROKER_TIMEOUT;
use crate::client::topic_config;
use crate::internal::internal_topics::{TopicDeclaration, TopicOrigin};
use crate::internal::producers;
use crate::topic::connection::Connection;

/// The maximum number of partitions per request: one second's work of a small broker, so that
/// others are served in between, and progress can be reported.
const MAX_PARTITIONS_PER_REQUEST: u32 = 100;
/// Additional time for each partition on a busy broker, besides the usual timeout.
const PARTITION_CREATION_ALLOWANCE: Duration = Duration::from_millis(200);

/// A topic's name with its quality of service.
type TopicWithQos = (TopicName, Qos);

/// A topic that is to exist.
#[derive(Clone, Copy)]
pub(crate) struct WantedTopic<'a> {
    pub(crate) name: &'a TopicName,
    pub(crate) kafka: &'a str,
    pub(crate) qos: &'a Qos,
}

impl Connection {
    /// The topics that do not exist, by their names on Kafka.
    pub(crate) fn missing<'a>(
        &self,
        topics: &'a [(TopicName, Qos)],
    ) -> Result<Vec<(String, &'a TopicWithQos)>, TransportError> {
        let metadata = self.link.client.fetch_metadata(None, BROKER_TIMEOUT);
        let metadata = metadata.map_err(failed("list the topics"))?;
        let there: HashSet<_> = metadata.topics().iter().map(|topic| topic.name()).collect();
        let mut seen = HashSet::new();
        let missing = topics.iter().filter(|(name, _)| seen.insert(name)).filter_map(|topic| {
            // Impossible topics report their errors when they are opened.
            producers::possible(&topic.0, &topic.1).ok()?;
            let kafka = self.link.names.kafka(&topic.0).ok()?;
            (!there.contains(&*kafka)).then_some((kafka, topic))
        });
        Ok(missing.collect())
    }

    /// Those of these topics whose valid declaration equals the wanted one; topics without a
    /// declaration get it. Others report their errors when they are opened.
    pub(crate) fn agree<'a>(
        &self,
        topics: Vec<WantedTopic<'a>>,
    ) -> Result<Vec<WantedTopic<'a>>, TransportError> {
        let known = self.tables.descriptions(topics.iter().map(|t| t.name))?;
        let unknown = topics.iter().zip(&known).filter(|(_, known)| matches!(known, Ok(None)));
        let unknown: Vec<_> = unknown
            .map(|(topic, _)| (topic.name, self.declaration(topic.name, topic.qos, None)))
            .collect();
        let mut declared = self.tables.describe(&unknown)?.into_iter();
        let same = |(topic, known): (WantedTopic<'a>, Result<Option<TopicDeclaration>, _>)| {
            let holds = known.ok()?.map_or_else(|| declared.next()?.ok(), Some)?;
            first_difference(topic.name, &holds.qos, topic.qos).is_none().then_some(topic)
        };
        Ok(topics.into_iter().zip(known).filter_map(same).collect())
    }

    /// The declaration of a topic without one, which may have partitions already.
    pub(crate) fn declaration(
        &self,
        name: &TopicName,
        qos: &Qos,
        there: Option<u32>,
    ) -> TopicDeclaration {
        // A topic of another program keeps its retention, and has no companion.
        let others = there.is_some() || self.link.names.sal_keys(name).is_some();
        let origin = if others { TopicOrigin::Foreign } else { TopicOrigin::Bus };
        TopicDeclaration { qos: qos.clone(), origin }
    }

    /// Creates the missing Kafka topics of these topics, and waits for them. `made` is called with
    /// the number of finished ones. Returns the errors of rejected topics; they do not affect
    /// others.
    pub(crate) fn create(
        &self,
        topics: &[WantedTopic<'_>],
        made: &mut dyn FnMut(usize),
    ) -> Result<Vec<TransportError>, TransportError> {
        let (mut left, mut refused) = (topics, Vec::new());
        while !left.is_empty() {
            let mut partitions = 0;
            let fits = |topic: &&WantedTopic<'_>| {
                partitions += 2 * topic.qos.partitions;
                partitions <= MAX_PARTITIONS_PER_REQUEST
            };
            let (now, later) = left.split_at(left.iter().take_while(fits).count().max(1));
            refused.extend(self.create_batch(now)?);
            left = later;
            made(topics.len() - left.len());
        }
        Ok(refused)
    }

    fn create_batch(
        &self,
        topics: &[WantedTopic<'_>],
    ) -> Result<Vec<TransportError>, TransportError> {
        let (mut companions, mut logs, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for topic in topics {
            let (name, partitions) = (topic.kafka.to_owned(), topic.qos.partitions);
            let sal = self.link.names.sal_keys(topic.name);
            let mut companion = None;
            if sal.is_none() && topic_config::has_companion(topic.qos) {
                match self.link.names.companion(topic.name) {
                    Ok(name) => companion = Some(name),
                    Err(error) => {
                        refused.push(error);
                        continue;
                    }
                }
            }
            companions.extend(companion.clone().map(|name| {
                let config = topic_config::companion();
                TopicToCreate { name, partitions, config }
            }));
            let config = match sal {
                Some(keys) => topic_config::sal(keys.kind()),
                None => topic_config::of(topic.qos),
            };
            logs.push((companion, TopicToCreate { name, partitions, config }));
        }
        // The topics come last: a visible topic is complete.
        let without = self.make_all(companions)?;
        logs.retain(|(companion, _)| {
            without.iter().all(|(name, _)| companion.as_ref() != Some(name))
        });
        let not = self.make_all(logs.into_iter().map(|(_, log)| log).collect())?;
        refused.extend(without.into_iter().chain(not).map(|(_, error)| error));
        Ok(refused)
    }

    /// Creates Kafka topics, and waits for those that are not rejected; returns the others, by
    /// name.
    fn make_all(
        &self,
        mut all: Vec<TopicToCreate>,
    ) -> Result<Vec<(String, TransportError)>, TransportError> {
        let patience = BROKER_TIMEOUT
            + PARTITION_CREATION_ALLOWANCE * all.iter().map(|made| made.partitions).sum();
        let refused = self.link.admin.create(&all, patience)?;
        all.retain(|made| refused.iter().all(|(name, _)| *name != made.name));
        all.iter().try_for_each(|made| self.link.client.wait_until_created(&made.name))?;
        Ok(refused)
    }
}
