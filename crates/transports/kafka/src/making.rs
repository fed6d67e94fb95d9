//! Making topics: one, or many at once.
//!
//! A broker takes some ten milliseconds to begin a partition, whoever asks. What else there is to
//! it (questions, words in the tables, waiting for a leader) costs several times that, and here it
//! is done once for many.

use std::collections::HashSet;
use std::time::Duration;

use helio_bus::transport::first_difference;
use helio_bus::{Qos, TopicName, TransportError};

use crate::admin::Made;
use crate::claims;
use crate::error::failed;
use crate::options::PATIENCE;
use crate::tables::Description;
use crate::topic::{Kafka, Origin};
use crate::topic_config;

/// The most partitions that brokers are asked for at once: a second's work of a small broker, so
/// that others have their turn in between, and it can be told how far it is.
const AT_ONCE: u32 = 100;
/// What a broker that has much to do may take for each partition, besides the usual patience.
const EACH: Duration = Duration::from_millis(200);

/// A topic's name with its quality of service.
type Named = (TopicName, Qos);

/// A topic that is to be there.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a TopicName,
    pub(crate) kafka: &'a str,
    pub(crate) qos: &'a Qos,
}

impl Kafka {
    /// The topics of which nothing is there, by their names on Kafka.
    pub(crate) fn missing<'a>(
        &self,
        topics: &'a [(TopicName, Qos)],
    ) -> Result<Vec<(String, &'a Named)>, TransportError> {
        let connection = &self.connection;
        let told = connection.client.fetch_metadata(None, PATIENCE);
        let told = told.map_err(failed("list the topics"))?;
        let there: HashSet<_> = told.topics().iter().map(|topic| topic.name()).collect();
        let mut seen = HashSet::new();
        let missing = topics.iter().filter(|(name, _)| seen.insert(name)).filter_map(|topic| {
            // What cannot be made, or have a name on Kafka, is told of when it is opened.
            claims::possible(&topic.0, &topic.1).ok()?;
            let kafka = connection.names.kafka(&topic.0).ok()?;
            (!there.contains(&*kafka)).then_some((kafka, topic))
        });
        Ok(missing.collect())
    }

    /// What holds of each of these topics, as far as it is the same as what is wanted; where
    /// nothing was said of it, this is.
    pub(crate) fn agree<'a>(
        &self,
        topics: Vec<Wanted<'a>>,
    ) -> Result<Vec<Wanted<'a>>, TransportError> {
        let connection = &self.connection;
        let known = connection.tables.descriptions(connection, topics.iter().map(|t| t.name))?;
        let unknown = topics.iter().zip(&known).filter(|(_, known)| known.is_none());
        let unknown: Vec<_> = unknown
            .map(|(topic, _)| (topic.name, self.described(topic.name, topic.qos, None)))
            .collect();
        let mut said = connection.tables.describe(connection, &unknown)?.into_iter();
        let holds = known.into_iter().map(|known| known.or_else(|| said.next()));
        let same = |(topic, holds): (Wanted<'a>, Option<Description>)| {
            let holds = holds?;
            first_difference(topic.name, &holds.qos, topic.qos).is_none().then_some(topic)
        };
        Ok(topics.into_iter().zip(holds).filter_map(same).collect())
    }

    /// What is said of a topic that nothing was said of, where it has so many partitions already.
    pub(crate) fn described(&self, name: &TopicName, qos: &Qos, there: Option<u32>) -> Description {
        // What others have made keeps its retention, and has no companion.
        let others = there.is_some() || self.connection.names.sal_keys(name).is_some();
        let origin = if others { Origin::Foreign } else { Origin::Bus };
        Description { qos: qos.clone(), origin }
    }

    /// Makes what topics with these qualities of service consist of, as far as it is not there, and
    /// waits for it. `made` hears for how many of them that is done. Gives why topics are refused;
    /// that hits no others.
    pub(crate) fn make(
        &self,
        topics: &[Wanted<'_>],
        made: &mut dyn FnMut(usize),
    ) -> Result<Vec<TransportError>, TransportError> {
        let (mut left, mut refused) = (topics, Vec::new());
        while !left.is_empty() {
            let mut partitions = 0;
            let fits = |topic: &&Wanted<'_>| {
                partitions += 2 * topic.qos.partitions;
                partitions <= AT_ONCE
            };
            let (now, later) = left.split_at(left.iter().take_while(fits).count().max(1));
            refused.extend(self.make_at_once(now)?);
            left = later;
            made(topics.len() - left.len());
        }
        Ok(refused)
    }

    fn make_at_once(&self, topics: &[Wanted<'_>]) -> Result<Vec<TransportError>, TransportError> {
        let (mut companions, mut logs, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for topic in topics {
            let (name, partitions) = (topic.kafka.to_owned(), topic.qos.partitions);
            let sal = self.connection.names.sal_keys(topic.name);
            let mut companion = None;
            if sal.is_none() && topic_config::has_companion(topic.qos) {
                match self.connection.names.companion(topic.name) {
                    Ok(name) => companion = Some(name),
                    Err(error) => {
                        refused.push(error);
                        continue;
                    }
                }
            }
            companions.extend(companion.clone().map(|name| {
                let config = topic_config::companion();
                Made { name, partitions, config }
            }));
            let config = match sal {
                Some(keys) => topic_config::sal(keys.kind()),
                None => topic_config::of(topic.qos),
            };
            logs.push((companion, Made { name, partitions, config }));
        }
        // The topics come last: whoever sees one finds all of it.
        let without = self.make_all(companions)?;
        logs.retain(|(companion, _)| {
            without.iter().all(|(name, _)| companion.as_ref() != Some(name))
        });
        let not = self.make_all(logs.into_iter().map(|(_, log)| log).collect())?;
        refused.extend(without.into_iter().chain(not).map(|(_, error)| error));
        Ok(refused)
    }

    /// Makes Kafka topics, and waits for those that are not refused; gives the others, by name.
    fn make_all(
        &self,
        mut all: Vec<Made>,
    ) -> Result<Vec<(String, TransportError)>, TransportError> {
        let connection = &self.connection;
        let patience = PATIENCE + EACH * all.iter().map(|made| made.partitions).sum();
        let refused = connection.admin.create(&all, patience)?;
        all.retain(|made| refused.iter().all(|(name, _)| *name != made.name));
        all.iter().try_for_each(|made| connection.settled(&made.name, patience))?;
        Ok(refused)
    }
}
