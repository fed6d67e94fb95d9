//! Groups: Kafka's own consumer groups, one for each group of a topic.

use std::sync::{Arc, Mutex};

use helio_bus::TransportError;
use helio_bus::transport::{Begin, GroupRequest, locked, not_ours};
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::SCHEME;
use crate::context::{Consumer, Context};
use crate::error::failed;
use crate::fetcher::{Fetcher, Queue, Wake, partition_list};
use crate::options::PATIENCE;
use crate::reader::{Start, starts};
use crate::topic::TopicState;

/// What a member was assigned.
pub(crate) struct Assigned {
    pub(crate) start: Start,
    pub(crate) queue: Queue,
    /// Whether it has been this member's all the time since the reader has looked.
    pub(crate) kept: bool,
}

/// What the group tells a member, between its callbacks and its reader.
pub(crate) struct Membership {
    topic: Arc<TopicState>,
    begin: Begin,
    wake: Arc<Wake>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The partitions of the newest assignment, and those that were this member's ever since the
    /// reader has looked.
    own: Vec<u32>,
    kept: Vec<u32>,
    news: Option<Result<Vec<Assigned>, TransportError>>,
}

impl Membership {
    /// Takes partitions over: where this member has read them before nobody else has, it goes on.
    pub(crate) fn assign(&self, consumer: &Arc<Consumer>, list: &TopicPartitionList) {
        let news = self.begin_at(consumer, list);
        let mut state = locked(&self.state);
        let own: Vec<u32> = partitions(list);
        state.kept.retain(|partition| own.contains(partition));
        state.own = own;
        let kept = state.kept.clone();
        let news = news.map(|news| {
            let each = news.into_iter().map(|(start, queue)| {
                let kept = kept.contains(&start.partition);
                Assigned { start, queue, kept }
            });
            each.collect()
        });
        let before = state.news.replace(news);
        drop(state);
        drop(before);
        self.wake.ring();
    }

    fn begin_at(
        &self,
        consumer: &Arc<Consumer>,
        list: &TopicPartitionList,
    ) -> Result<Vec<(Start, Queue)>, TransportError> {
        let own = partitions(list);
        let committed = committed_of(consumer, &self.topic, &own)?;
        let fresh: Vec<u32> = own
            .iter()
            .copied()
            .filter(|own| !committed.iter().any(|(partition, _)| partition == own))
            .collect();
        let mut all = starts(&self.topic, &self.begin, &fresh)?;
        for (partition, offset) in committed {
            let begin = Begin::Offset(partition, offset);
            all.extend(starts(&self.topic, &begin, &[partition])?);
        }
        let queue = |start: &Start| {
            Fetcher::queue(consumer, (&self.topic.kafka, start.partition), &self.wake)
        };
        let queues = all.iter().map(queue).collect::<Result<Vec<_>, _>>()?;
        let places = all.iter().map(|start| (start.partition, start.offset));
        let places = partition_list(&self.topic.kafka, places)?;
        consumer.assign(&places).map_err(failed("take partitions over"))?;
        Ok(all.into_iter().zip(queues).collect())
    }

    /// Partitions are taken away, to be shared out anew; where they were lost, others have them.
    pub(crate) fn revoke(&self, lost: bool) {
        if lost {
            locked(&self.state).kept.clear();
        }
    }
}

fn partitions(list: &TopicPartitionList) -> Vec<u32> {
    list.elements().iter().filter_map(|own| u32::try_from(own.partition()).ok()).collect()
}

/// A reader's membership. It ends with this.
pub(crate) struct Member {
    membership: Arc<Membership>,
    pub(crate) fetcher: Fetcher,
}

impl Member {
    pub(crate) fn join(
        topic: &Arc<TopicState>,
        request: &GroupRequest<'_>,
        (begin, wake): (&Begin, &Arc<Wake>),
    ) -> Result<Self, TransportError> {
        let membership = Arc::new(Membership {
            topic: Arc::clone(topic),
            begin: begin.clone(),
            wake: Arc::clone(wake),
            state: Mutex::default(),
        });
        let connection = &topic.connection;
        let mut options = connection.options.clone();
        options.client_id = request.member.to_owned();
        let told = Some(Arc::clone(&membership));
        let group = group_id(topic, request.name);
        let fetcher = Fetcher::start(&options, &connection.health, (&group, told))?;
        fetcher.consumer.subscribe(&[&topic.kafka]).map_err(failed("join the group"))?;
        Ok(Self { membership, fetcher })
    }

    /// What was assigned since the last look.
    pub(crate) fn news(&self) -> Option<Result<Vec<Assigned>, TransportError>> {
        let mut state = locked(&self.membership.state);
        let news = state.news.take();
        if news.is_some() {
            state.kept = state.own.clone();
        }
        news
    }

    pub(crate) fn has_news(&self) -> bool {
        locked(&self.membership.state).news.is_some()
    }

    /// Commits a position, and waits for the brokers' word.
    pub(crate) fn commit(&self, partition: u32, offset: u64) -> Result<(), TransportError> {
        if !locked(&self.membership.state).own.contains(&partition) {
            return Err(not_ours(SCHEME, partition));
        }
        let place = partition_list(&self.membership.topic.kafka, [(partition, offset)])?;
        let committed = self.fetcher.consumer.commit(&place, CommitMode::Sync);
        committed.map_err(failed("commit a position"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Queues hold their consumer, which holds the membership.
        drop(locked(&self.membership.state).news.take());
    }
}

/// Kafka's groups span topics, the bus's belong to one.
fn group_id(topic: &TopicState, group: &str) -> String {
    format!("{}.{group}", topic.kafka)
}

/// The committed position of a group in each partition that has one.
pub(crate) fn committed(
    topic: &TopicState,
    group: &str,
) -> Result<Vec<(u32, u64)>, TransportError> {
    let connection = &topic.connection;
    let context = Context::new(&connection.health, None);
    let config = connection.options.consumer(&group_id(topic, group));
    let consumer: Consumer =
        config.create_with_context(context).map_err(failed("look at a group"))?;
    committed_of(&consumer, topic, &topic.partitions(&[])?)
}

fn committed_of(
    consumer: &Consumer,
    topic: &TopicState,
    partitions: &[u32],
) -> Result<Vec<(u32, u64)>, TransportError> {
    let list = partition_list(&topic.kafka, partitions.iter().map(|partition| (*partition, 0)))?;
    let told = consumer.committed_offsets(list, PATIENCE);
    let told = told.map_err(failed("read a group's positions"))?;
    let position = |told: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
        let Offset::Offset(offset) = told.offset() else { return None };
        Some((u32::try_from(told.partition()).ok()?, u64::try_from(offset).ok()?))
    };
    Ok(told.elements().iter().filter_map(position).collect())
}
