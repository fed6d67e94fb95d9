//! Groups: one of Kafka's consumer groups for each group of a topic.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use helio_bus::TransportError;
use helio_bus::transport::{
    Begin, GroupMember as GroupMemberState, GroupRequest, GroupState, locked, not_ours,
};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::groups::GroupMemberInfo;
use rdkafka::topic_partition_list::{TopicPartitionList, TopicPartitionListElem};

use crate::SCHEME;
use crate::client::context::{Consumer, Context, GroupEvents};
use crate::client::error::{failed, is_gone, is_reassigned, outage};
use crate::client::fetcher::{Fetcher, NO_GROUP, NamedTopic, SampleQueue, partition_list, place};
use crate::client::ffi::{self, TopicId, TopicMetadata};
use crate::client::options::BROKER_TIMEOUT;
use crate::client::signal::ReaderSignal;
use crate::topic::sample::{SampleMeta, is_unknown};
use crate::topic::start::{StartPosition, starts};
use crate::topic::state::TopicState;

/// How long a member waits before it retries to find its start positions.
const REBALANCE_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A group, and the name of its member.
#[derive(Debug, Clone)]
pub(crate) struct GroupMember {
    group: String,
    member: String,
    /// Its positions before.
    at: Vec<(u32, u64)>,
}

impl GroupMember {
    pub(crate) fn new(request: &GroupRequest<'_>) -> Self {
        let (group, member) = (request.name.to_owned(), request.member.to_owned());
        Self { group, member, at: Vec::new() }
    }

    /// Starts at these positions in partitions without a committed one.
    pub(crate) fn at(self, at: Vec<(u32, u64)>) -> Self {
        Self { at, ..self }
    }
}

/// A sample that a member has processed: its offset, and its producer's numbers. A log in which
/// another one is at that offset has lost its end, and reuses the offsets: an unclean election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessedSample {
    pub(crate) offset: u64,
    /// Incarnation and sequence.
    pub(crate) order: (u64, u64),
}

/// What a member's cursor knows of processed samples.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GroupProgress {
    /// The newest delivered sample.
    pub(crate) delivered: Option<ProcessedSample>,
    /// The sample before the committed position, which is fetched first, to compare it.
    pub(crate) processed: Option<ProcessedSample>,
}

impl GroupProgress {
    /// A sample was delivered. Those of other programs have no numbers of their own.
    pub(crate) fn pass(&mut self, offset: u64, meta: &SampleMeta) {
        let sample = ProcessedSample { offset, order: meta.order() };
        self.delivered = (!is_unknown(&meta.producer)).then_some(sample);
    }

    /// Whether another sample has the offset of the one that the group has processed.
    pub(crate) fn is_replaced(&mut self, offset: u64, order: impl FnOnce() -> (u64, u64)) -> bool {
        let at_offset = self.processed.take().filter(|processed| processed.offset == offset);
        at_offset.is_some_and(|processed| processed.order != order())
    }
}

/// An assigned partition.
pub(crate) struct AssignedPartition {
    pub(crate) start: StartPosition,
    /// The newest sample before the committed position, from which it is fetched: the reader
    /// compares and skips it.
    pub(crate) processed: Option<ProcessedSample>,
    pub(crate) queue: SampleQueue,
    /// Whether it has been this member's ever since the reader's last poll.
    pub(crate) kept: bool,
}

/// The group's notifications to a member, between librdkafka's callbacks and the reader.
pub(crate) struct Membership {
    topic: Arc<TopicState>,
    begin: Begin,
    /// Its earlier positions, in partitions without a committed one.
    at: Vec<(u32, u64)>,
    /// The topic's identifier, once it exists.
    id: OnceLock<TopicId>,
    /// The number of partitions when this joined: later partitions are read from their first
    /// record.
    partitions: u32,
    signal: Arc<ReaderSignal>,
    state: Mutex<MembershipState>,
}

#[derive(Default)]
struct MembershipState {
    /// The partitions of the newest assignment, and those of them that have been this member's ever
    /// since the reader's last poll.
    own: Vec<u32>,
    kept: Vec<u32>,
    news: Option<Result<Vec<AssignedPartition>, TransportError>>,
    /// The last reported refusal of the group, which librdkafka repeats.
    refused: Option<KafkaError>,
    /// The reader was dropped.
    ended: bool,
}

impl Membership {
    fn is_over(&self) -> bool {
        locked(&self.state).ended || self.topic.link.is_closed()
    }

    fn begin_at(
        &self,
        consumer: &Arc<Consumer>,
        list: &TopicPartitionList,
    ) -> Result<Vec<(StartPosition, Option<ProcessedSample>, SampleQueue)>, TransportError> {
        let own = partitions(list);
        let CommittedPositions { mut here, former, processed } =
            committed_of(consumer, (&self.topic.kafka, self.id()?), &own)?;
        let is_open = |(stood, _): &&(u32, u64)| {
            let is_known = here.iter().any(|(partition, _)| partition == stood);
            own.contains(stood) && !is_known && !former.contains(stood)
        };
        let stood: Vec<_> = self.at.iter().filter(is_open).copied().collect();
        here.extend(stood);
        let is_fresh = |own: &u32| !here.iter().any(|(partition, _)| partition == own);
        // Partitions that are new to the members are read from their first record.
        let (there, whole): (Vec<u32>, Vec<u32>) = own
            .into_iter()
            .filter(is_fresh)
            .partition(|own| *own < self.partitions && !former.contains(own));
        let mut all = starts(&self.topic, &self.begin, &there)?;
        all.extend(starts(&self.topic, &Begin::Earliest, &whole)?);
        for (partition, offset) in here {
            let mut begin = starts(&self.topic, &Begin::Offset(partition, offset), &[partition])?;
            if begin.iter().any(|start| start.offset < offset) {
                // Beyond its end: the log was recreated or truncated.
                begin = starts(&self.topic, &Begin::Earliest, &[partition])?;
            }
            all.append(&mut begin);
        }
        let queue =
            |start: &StartPosition| Fetcher::queue(consumer, (&self.topic.kafka, start.partition));
        let queues = all.iter().map(queue).collect::<Result<Vec<_>, _>>()?;
        let processed: Vec<_> =
            all.iter().map(|start| processed_before(&processed, start)).collect();
        let from = |(start, processed): (&StartPosition, &Option<ProcessedSample>)| {
            (start.partition, processed.map_or(start.offset, |processed| processed.offset))
        };
        let places = partition_list(&self.topic.kafka, all.iter().zip(&processed).map(from))?;
        consumer.assign(&places).map_err(failed("take partitions over"))?;
        let each = all.into_iter().zip(processed).zip(queues);
        Ok(each.map(|((start, processed), queue)| (start, processed, queue)).collect())
    }

    /// The topic's identifier; it is requested if the topic did not exist when this joined.
    fn id(&self) -> Result<Option<TopicId>, TransportError> {
        let TopicState { kafka, link, .. } = &*self.topic;
        if self.id.get().is_none()
            && let Some(described) = link.client.described(kafka, Duration::ZERO)?
        {
            self.id.get_or_init(|| described.id);
        }
        Ok(self.id.get().copied())
    }
}

impl GroupEvents for Membership {
    /// Takes partitions over. The member resumes at its own position if no other member read in
    /// between.
    fn assign(&self, consumer: &Arc<Consumer>, list: &TopicPartitionList) {
        let news = loop {
            match self.begin_at(consumer, list) {
                // The group assumes that this member has its partitions: it must retry.
                Err(TransportError::Outage { .. }) if !self.is_over() => {
                    std::thread::sleep(REBALANCE_RETRY_INTERVAL)
                }
                other => break other,
            }
        };
        if news.is_err() {
            // It fails if the consumer is closed already, which has the same effect.
            let _ = consumer.unassign();
        }
        let mut state = locked(&self.state);
        if state.ended {
            return;
        }
        state.refused = None;
        let own: Vec<u32> = partitions(list);
        if news.is_ok() && !own.is_empty() {
            self.signal.topic_exists();
        }
        state.kept.retain(|partition| own.contains(partition));
        state.own = own;
        let kept = state.kept.clone();
        let news = news.map(|news| {
            let each = news.into_iter().map(|(start, processed, queue)| {
                let kept = kept.contains(&start.partition);
                AssignedPartition { start, processed, queue, kept }
            });
            each.collect()
        });
        let before = state.news.replace(news);
        drop(state);
        drop(before);
        self.signal.ring();
    }

    /// The topic was deleted.
    fn gone(&self) {
        if !self.is_over() {
            self.signal.topic_missing(&format!("the topic {}", self.topic.kafka));
        }
    }

    /// Reports a refusal of the group, once.
    fn refused(&self, error: &KafkaError) {
        let mut state = locked(&self.state);
        if state.ended || state.refused.as_ref() == Some(error) {
            return;
        }
        state.refused = Some(error.clone());
        let before = state.news.replace(Err(failed("read in a group")(error.clone())));
        drop(state);
        drop(before);
        self.signal.ring();
    }

    /// Partitions are revoked for a rebalance; if they were lost, other members have them.
    fn revoke(&self, lost: bool) {
        if lost {
            locked(&self.state).kept.clear();
        }
    }
}

fn partitions(list: &TopicPartitionList) -> Vec<u32> {
    list.elements().iter().filter_map(|own| u32::try_from(own.partition()).ok()).collect()
}

/// A reader's membership. It ends when this is dropped.
pub(crate) struct Member {
    membership: Arc<Membership>,
    /// Present until this is dropped.
    fetcher: Option<Fetcher>,
}

impl Member {
    pub(crate) fn join(
        (topic, described): (&Arc<TopicState>, Option<TopicMetadata>),
        GroupMember { group, member, at }: GroupMember,
        (begin, signal): (&Begin, &Arc<ReaderSignal>),
    ) -> Result<Self, TransportError> {
        let membership = Arc::new(Membership {
            topic: Arc::clone(topic),
            begin: begin.clone(),
            at,
            id: described.map(|described| described.id.into()).unwrap_or_default(),
            partitions: described.map_or(0, |described| described.partitions),
            signal: Arc::clone(signal),
            state: Mutex::default(),
        });
        let link = &topic.link;
        let mut options = link.options.clone();
        options.client_id = member;
        let events: Option<Arc<dyn GroupEvents>> = Some(Arc::clone(&membership) as _);
        let group = group_id(topic, &group);
        let fetcher = Fetcher::start(&options, &link.health, (&group, events))?;
        fetcher.consumer.subscribe(&[&topic.kafka]).map_err(failed("join the group"))?;
        Ok(Self { membership, fetcher: Some(fetcher) })
    }

    pub(crate) fn consumer(&self) -> &Arc<Consumer> {
        &self.fetcher.as_ref().expect("it is there until this is dropped").consumer
    }

    /// The assignment since the last poll.
    pub(crate) fn news(&self) -> Option<Result<Vec<AssignedPartition>, TransportError>> {
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

    /// Commits a position, with the newest sample before it, and waits for the brokers' answer.
    pub(crate) fn commit(
        &self,
        (partition, offset): (u32, u64),
        processed: Option<ProcessedSample>,
    ) -> Result<(), TransportError> {
        if !locked(&self.membership.state).own.contains(&partition) {
            return Err(not_ours(SCHEME, partition));
        }
        let Membership { topic, id, .. } = &*self.membership;
        let list = partition_list(&topic.kafka, [(partition, offset)])?;
        if let Some(id) = id.get() {
            list.elements().iter_mut().for_each(|place| place.set_metadata(note(*id, processed)));
        }
        match ffi::commit(self.consumer(), &list, BROKER_TIMEOUT) {
            Some(Err(error)) if is_reassigned(&error) || is_gone(&error) => {
                Err(not_ours(SCHEME, partition))
            }
            Some(committed) => committed.map_err(failed("commit a position")),
            None => Err(outage("commit a position: no broker has acknowledged it".to_owned())),
        }
    }
}

impl Member {
    /// Leaves without waiting.
    pub(crate) fn quit(mut self) {
        self.end();
    }

    /// Discards notifications from now on; drops the consumer.
    fn end(&mut self) -> Option<Fetcher> {
        // Queues hold their consumer, which holds the membership.
        let mut state = locked(&self.membership.state);
        state.ended = true;
        let news = state.news.take();
        drop(state);
        drop(news);
        self.fetcher.take()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end().into_iter().for_each(Fetcher::leave);
    }
}

/// Kafka's groups span topics; a group of the bus belongs to one.
fn group_id(topic: &TopicState, group: &str) -> String {
    format!("{}.{group}", topic.kafka)
}

/// The prefix of a committed position's metadata: it marks the position as one in this topic, not
/// in a recreated one of the same name.
const TOPIC_PREFIX: &str = "topic=";
/// The prefix of the newest sample before the position, behind the topic.
const PROCESSED_PREFIX: &str = " after=";
/// How far the newest sample may lie before a committed position, behind transaction markers.
const MAX_MARKERS: u64 = 1_000;

/// The metadata of a committed position.
fn note(id: TopicId, processed: Option<ProcessedSample>) -> String {
    let after = processed.map(|ProcessedSample { offset, order: (incarnation, sequence) }| {
        format!("{PROCESSED_PREFIX}{offset}:{incarnation}:{sequence}")
    });
    format!("{TOPIC_PREFIX}{id}{}", after.unwrap_or_default())
}

/// The topic and the processed sample of our metadata; `None` for that of other programs.
fn parse_note(metadata: &[u8]) -> Option<(&str, Option<ProcessedSample>)> {
    let text = std::str::from_utf8(metadata).ok()?.strip_prefix(TOPIC_PREFIX)?;
    let Some((topic, after)) = text.split_once(PROCESSED_PREFIX) else { return Some((text, None)) };
    let mut numbers = after.split(':').map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    let processed = (|| Some(ProcessedSample { offset: next()?, order: (next()?, next()?) }))();
    Some((topic, processed))
}

/// The processed sample with which a start can be compared.
fn processed_before(
    processed: &[(u32, u64, ProcessedSample)],
    start: &StartPosition,
) -> Option<ProcessedSample> {
    let at = (start.partition, start.offset);
    let of_start = processed.iter().find(|(partition, offset, _)| (*partition, *offset) == at);
    let (.., processed) = of_start?;
    let is_near = start.offset.saturating_sub(processed.offset) <= MAX_MARKERS;
    (processed.offset < start.offset && is_near).then_some(*processed)
}

/// A group's committed position in each partition that has one.
pub(crate) fn committed(
    topic: &TopicState,
    group: &str,
) -> Result<Vec<(u32, u64)>, TransportError> {
    let link = &topic.link;
    let consumer = idle_consumer(topic, &group_id(topic, group))?;
    let id = link.client.described(&topic.kafka, Duration::ZERO)?.map(|described| described.id);
    Ok(committed_of(&consumer, (&topic.kafka, id), &topic.partitions(&[])?)?.here)
}

/// A consumer for queries about groups.
fn idle_consumer(topic: &TopicState, id: &str) -> Result<Consumer, TransportError> {
    let link = &topic.link;
    let context = Context::new(&link.health, None);
    let config = link.options.consumer(id);
    config.create_with_context(context).map_err(failed("start a consumer for a group"))
}

/// The groups of this topic that have committed positions or members with partitions here.
pub(crate) fn groups(topic: &TopicState) -> Result<Vec<GroupState>, TransportError> {
    let consumer = idle_consumer(topic, NO_GROUP)?;
    let listed = consumer.fetch_group_list(None, BROKER_TIMEOUT).map_err(failed("list groups"))?;
    let prefix = group_id(topic, "");
    let mut found = Vec::new();
    for group in listed.groups() {
        // It may be a group of another topic, whose name continues with a dot.
        let Some(name) = group.name().strip_prefix(&prefix) else { continue };
        let members: Vec<_> = group.members().iter().map(|of| member(of, &topic.kafka)).collect();
        let committed = committed(topic, name)?;
        if !committed.is_empty() || members.iter().any(|member| !member.partitions.is_empty()) {
            found.push(GroupState { name: name.to_owned(), members, committed });
        }
    }
    Ok(found)
}

fn member(info: &GroupMemberInfo, topic: &str) -> GroupMemberState {
    let assigned = info.assignment().and_then(|bytes| assigned(bytes, topic));
    GroupMemberState {
        name: info.client_id().to_owned(),
        process: None,
        host: Some(info.client_host().trim_start_matches('/').to_owned()),
        partitions: assigned.unwrap_or_default(),
    }
}

/// The partitions of a topic in a member's assignment, as Kafka's consumer protocol encodes it: a
/// version, then the topics, each with its name and its partitions. `None` if it is cut short.
fn assigned(mut bytes: &[u8], topic: &str) -> Option<Vec<u32>> {
    fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = bytes.split_at_checked(count)?;
        *bytes = rest;
        Some(taken)
    }
    fn number(bytes: &mut &[u8], size: usize) -> Option<u32> {
        let digit = |number: u32, byte: &u8| number << 8 | u32::from(*byte);
        Some(take(bytes, size)?.iter().fold(0, digit))
    }
    let bytes = &mut bytes;
    let _version = number(bytes, 2)?;
    let mut partitions = Vec::new();
    for _ in 0..number(bytes, 4)? {
        let length = number(bytes, 2)?;
        let name = take(bytes, length as usize)?;
        for _ in 0..number(bytes, 4)? {
            let partition = number(bytes, 4)?;
            partitions.extend((name == topic.as_bytes()).then_some(partition));
        }
    }
    Some(partitions)
}

/// A group's committed positions.
#[derive(Debug, Default)]
struct CommittedPositions {
    /// The position in each partition that has one.
    here: Vec<(u32, u64)>,
    /// Partitions whose position belongs to a former topic of this name.
    former: Vec<u32>,
    /// The newest sample before the position of a partition, where that is known.
    processed: Vec<(u32, u64, ProcessedSample)>,
}

fn committed_of(
    consumer: &Consumer,
    (name, id): NamedTopic<'_>,
    partitions: &[u32],
) -> Result<CommittedPositions, TransportError> {
    let list = partition_list(name, partitions.iter().map(|partition| (*partition, 0)))?;
    let positions = consumer.committed_offsets(list, BROKER_TIMEOUT).and_then(|positions| {
        // A partition without an answer may have a position.
        positions.elements().iter().try_for_each(TopicPartitionListElem::error)?;
        Ok(positions)
    });
    let positions = positions.map_err(failed("read a group's positions"))?;
    let id = id.map(|id| id.to_string());
    let mut committed = CommittedPositions::default();
    for (position, metadata) in positions.elements().iter().zip(ffi::notes(&positions)) {
        let Some((partition, offset)) = place(position) else { continue };
        // Metadata of other programs is ignored.
        let (topic, processed) = parse_note(metadata).unzip();
        if topic.zip(id.as_deref()).is_some_and(|(topic, id)| topic != id) {
            committed.former.push(partition);
            continue;
        }
        committed.here.push((partition, offset));
        let processed = processed.flatten().map(|processed| (partition, offset, processed));
        committed.processed.extend(processed);
    }
    Ok(committed)
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientConfig;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::DefaultProducerContext;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;
    use crate::client::fetcher::{self, Sought};

    const TOPIC: &str = "t";

    /// A mock cluster with a topic of one partition, and a consumer of it.
    fn cluster() -> (MockCluster<'static, DefaultProducerContext>, Consumer) {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, 1, 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", "t.g");
        let consumer = config.create_with_context(Context::new(&Arc::default(), None)).unwrap();
        (cluster, consumer)
    }

    /// A rebalance takes all partitions away until the last member has joined.
    #[test]
    fn a_seek_between_two_assignments_waits_for_nothing() {
        let (_cluster, consumer) = cluster();
        let seek = || fetcher::seek(&consumer, TOPIC, 0, 0).unwrap();
        consumer.assign(&partition_list(TOPIC, [(0, 0)]).unwrap()).unwrap();
        assert_eq!(seek(), Sought::Moved);
        consumer.unassign().unwrap();
        assert_eq!(seek(), Sought::Unassigned);
        consumer.assign(&partition_list(TOPIC, [(0, 0)]).unwrap()).unwrap();
        assert_eq!(seek(), Sought::Moved);
    }

    #[test]
    fn the_partitions_of_a_topic_are_found_in_an_assignment() {
        let topic = |name: &str, partitions: &[u32]| {
            let mut bytes = (name.len() as u16).to_be_bytes().to_vec();
            bytes.extend(name.as_bytes());
            bytes.extend((partitions.len() as u32).to_be_bytes());
            bytes.extend(partitions.iter().flat_map(|partition| partition.to_be_bytes()));
            bytes
        };
        let head = [&[0, 1][..], &[0, 0, 0, 2]].concat();
        let user_data = [0xff; 4];
        let bytes = [head, topic("other", &[7]), topic(TOPIC, &[0, 300]), user_data.to_vec()];
        let bytes = bytes.concat();
        assert_eq!(assigned(&bytes, TOPIC), Some(vec![0, 300]));
        assert_eq!(assigned(&bytes, "unknown"), Some(vec![]));
        for cut in 0..bytes.len() - user_data.len() {
            assert_eq!(assigned(&bytes[..cut], TOPIC), None);
        }
    }

    #[test]
    fn what_is_committed_beside_a_position_is_that_of_the_format() {
        let id = TopicId(0x1f, -1);
        let topic = "000000000000001fffffffffffffffff";
        let processed = ProcessedSample { offset: 7, order: (3, 12) };
        assert_eq!(note(id, None), format!("topic={topic}"));
        assert_eq!(note(id, Some(processed)), format!("topic={topic} after=7:3:12"));
        assert_eq!(parse_note(note(id, None).as_bytes()), Some((topic, None)));
        assert_eq!(
            parse_note(note(id, Some(processed)).as_bytes()),
            Some((topic, Some(processed)))
        );
        let odd = format!("topic={topic} after=7:x:12");
        assert_eq!(parse_note(odd.as_bytes()), Some((topic, None)));
        assert_eq!((parse_note(b"other"), parse_note(b"\xff")), (None, None));
        let start = |offset| StartPosition::at(0, offset);
        let stored = [(0, 9, processed), (1, 9, processed)];
        assert_eq!(processed_before(&stored, &start(9)), Some(processed));
        assert_eq!(processed_before(&stored, &start(0)), None, "the log was shorter");
        assert_eq!(processed_before(&[(0, 7, processed)], &start(7)), None);
    }

    #[test]
    fn positions_that_the_coordinator_does_not_tell_while_it_moves_are_asked_for_again() {
        let (cluster, consumer) = cluster();
        let asked = || committed_of(&consumer, (TOPIC, None), &[0]);
        for error in [
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
        ] {
            assert!(asked().unwrap().here.is_empty());
            // More errors than librdkafka's retries.
            cluster.request_errors(RDKafkaApiKey::OffsetFetch, &[error; 20]);
            let positions = asked();
            cluster.clear_request_errors(RDKafkaApiKey::OffsetFetch);
            assert!(
                matches!(positions, Err(TransportError::Outage { .. })),
                "{error:?}: {positions:?}"
            );
        }
        assert!(asked().unwrap().here.is_empty());
    }

    #[test]
    fn a_partition_that_is_not_answered_for_is_not_one_without_a_position() {
        let (_cluster, consumer) = cluster();
        let positions = committed_of(&consumer, (TOPIC, None), &[0, 1]);
        assert!(positions.is_err(), "{positions:?}");
    }
}
