//! Acknowledgements to a topic's writers: the positions in the journal and on the disk, and which
//! samples are missing.
//!
//! Constraints. Acks follow the state, not the events. Each live writer is sent its durable
//! position unless that position was its last ack. So a lost message, a late writer or a session
//! that was away leaves no writer without its ack. Each poll checks all writers; between two polls
//! only the writers with news are checked.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use helio_core::TopicName;

use super::{ProducerKey, SequencePosition};
use crate::announcements::{ProducerPosition, SharedState, WriterAnnouncement};
use crate::peer_messages::{Ack, NackReason};

/// How soon a writer is asked again to resend missing samples: the interval doubles up to the
/// longest while none arrive.
const RESEND_REQUEST_INTERVALS: [Duration; 2] =
    [Duration::from_millis(500), Duration::from_secs(30)];
/// How long to wait before a refused producer's samples are tried again.
const REFUSED_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The most producers with pending acks that are remembered.
const MAX_REMEMBERED_PRODUCERS: usize = 65_536;

/// The acks of one topic.
#[derive(Default)]
pub(super) struct AckQueue {
    /// The last ack of each writer, by session.
    last_acks: HashMap<(String, ProducerKey), Ack>,
    /// Producers whose last ack must be repeated.
    repeats: HashSet<ProducerKey>,
    /// Producers that must resend missing samples.
    missing: HashSet<ProducerKey>,
    /// When samples were requested, and the interval until the next request.
    requested: HashMap<ProducerKey, (Instant, Duration)>,
    /// Producers whose samples cannot be stored, since when, and why.
    refused: HashMap<ProducerKey, (Instant, String)>,
    /// Newer incarnations that have no sample here yet.
    fenced: HashMap<ProducerKey, u64>,
    /// Producers with news, and whether to check all of them.
    due: HashSet<ProducerKey>,
    all: bool,
}

/// The positions of each producer's samples.
pub(super) struct StoredPositions<'a> {
    /// In the journal; `None` if no receipt waits for the journal.
    pub(super) appended: Option<&'a HashMap<ProducerKey, SequencePosition>>,
    /// On the disk.
    pub(super) durable: &'a HashMap<ProducerKey, SequencePosition>,
}

impl AckQueue {
    /// Checks all writers with the next acks.
    pub(super) fn poll(&mut self) {
        self.all = true;
        for waiting in [&mut self.repeats, &mut self.missing] {
            if waiting.len() > MAX_REMEMBERED_PRODUCERS {
                waiting.clear();
            }
        }
        if self.requested.len() > MAX_REMEMBERED_PRODUCERS {
            self.requested.clear();
        }
        // Requested samples may be lost without a trace, so the request is repeated.
        let now = Instant::now();
        let over = self.requested.iter_mut();
        for (producer_key, (at, interval)) in
            over.filter(|(_, (at, of))| now.duration_since(*at) >= *of)
        {
            (*at, *interval) = (now, RESEND_REQUEST_INTERVALS[1].min(*interval * 2));
            self.missing.insert(producer_key.clone());
        }
    }

    /// Whether there may be acks to send.
    pub(super) fn is_due(&self) -> bool {
        self.all || !self.due.is_empty()
    }

    /// More samples of a producer are on the disk.
    pub(super) fn synced(&mut self, producer_key: ProducerKey) {
        self.due.insert(producer_key);
    }

    /// Repeats a producer's last ack, because it resent known samples.
    pub(super) fn repeat(&mut self, producer_key: ProducerKey) {
        self.due.insert(producer_key.clone());
        self.repeats.insert(producer_key);
    }

    /// Requests the missing samples of a producer, at limited intervals.
    pub(super) fn request_resend(&mut self, producer_key: ProducerKey) {
        let now = Instant::now();
        let interval = match self.requested.get(&producer_key) {
            Some((at, interval)) if now.duration_since(*at) < *interval => return,
            Some((_, interval)) => RESEND_REQUEST_INTERVALS[1].min(*interval * 2),
            None => RESEND_REQUEST_INTERVALS[0],
        };
        self.requested.insert(producer_key.clone(), (now, interval));
        self.due.insert(producer_key.clone());
        self.missing.insert(producer_key);
    }

    /// A sample of a producer was stored.
    pub(super) fn stored(&mut self, producer_key: &ProducerKey) {
        self.requested.remove(producer_key);
        self.refused.remove(producer_key);
        self.due.insert(producer_key.clone());
    }

    /// Refuses a producer whose samples cannot be stored; true if that or its cause is new.
    pub(super) fn refuse(&mut self, producer_key: ProducerKey, cause: &str) -> bool {
        let before = self.refused.insert(producer_key.clone(), (Instant::now(), cause.to_owned()));
        self.repeat(producer_key);
        before.is_none_or(|(_, before)| before != cause)
    }

    /// Whether it is too early to try a refused producer again.
    pub(super) fn is_refused(&self, producer_key: &ProducerKey) -> bool {
        self.refused
            .get(producer_key)
            .is_some_and(|(since, _)| since.elapsed() < REFUSED_RETRY_INTERVAL)
    }

    /// Whether the last sample of a producer could not be stored.
    pub(super) fn refuses(&self, producer_key: &ProducerKey) -> bool {
        self.refused.contains_key(producer_key)
    }

    /// A newer incarnation of a producer replaced its earlier ones.
    pub(super) fn fence(&mut self, producer_key: ProducerKey, newer: u64) {
        self.due.insert(producer_key.clone());
        self.fenced.insert(producer_key, newer);
    }

    /// Queues an ack again that could not be sent.
    pub(super) fn retry_ack(&mut self, session: &str, ack: &Ack) {
        let position = &ack.position;
        let producer_key = (position.partition, position.producer.clone());
        if ack.nack == Some(NackReason::Missing) {
            self.missing.insert(producer_key.clone());
        }
        self.last_acks.remove(&(session.to_owned(), producer_key));
    }

    /// Adds the acks to send, each with the writer's session.
    pub(super) fn write(
        &mut self,
        topic: &TopicName,
        marks: &StoredPositions<'_>,
        state: &SharedState,
        into: &mut Vec<(String, Ack)>,
    ) {
        let due = std::mem::take(&mut self.due);
        if std::mem::take(&mut self.all) {
            self.last_acks.retain(|(session, _), _| state.live.contains(session));
            let live = state.writers(topic).filter(|(session, _)| state.live.contains(*session));
            live.for_each(|(to, writer)| self.ack_writer(topic, to, writer, marks, into));
            return;
        }
        for (partition, producer) in &due {
            let writers = state.writers_of(topic, *partition, producer);
            let live = writers.filter(|(session, _)| state.live.contains(*session));
            live.for_each(|(to, writer)| self.ack_writer(topic, to, writer, marks, into));
        }
    }

    /// Adds the ack of one writer, if it has news.
    fn ack_writer(
        &mut self,
        topic: &TopicName,
        session: &str,
        writer: &WriterAnnouncement,
        marks: &StoredPositions<'_>,
        into: &mut Vec<(String, Ack)>,
    ) {
        let producer_key = (writer.partition, writer.producer.clone());
        let ack = writer.open.then(|| self.ack(topic, writer, &producer_key, marks)).flatten();
        let Some(ack) = ack else { return };
        // A request to resend is sent each time, even if it equals the last ack.
        let again = ack.nack == Some(NackReason::Missing);
        let repeats = self.repeats.remove(&producer_key) || again;
        let place = (session.to_owned(), producer_key);
        if repeats || self.last_acks.get(&place) != Some(&ack) {
            into.push((place.0.clone(), ack.clone()));
            self.last_acks.insert(place, ack);
        }
    }

    fn ack(
        &mut self,
        topic: &TopicName,
        writer: &WriterAnnouncement,
        producer_key: &ProducerKey,
        marks: &StoredPositions<'_>,
    ) -> Option<Ack> {
        let incarnation = writer.incarnation;
        let durable = marks.durable.get(producer_key);
        let newest = durable.map_or(0, |order| order.0);
        let newer = newest.max(self.fenced.get(producer_key).copied().unwrap_or(0));
        let of_its = |order: Option<&SequencePosition>| {
            order.filter(|order| order.0 == incarnation).map_or(0, |order| order.1)
        };
        let sequence = of_its(durable);
        let appended = of_its(marks.appended.and_then(|appended| appended.get(producer_key)));
        // 0 says that it is not above the durable position.
        let appended = if appended > sequence { appended } else { 0 };
        let nack = if newer > incarnation {
            Some(NackReason::Fenced { newer_incarnation: newer })
        } else if let Some((_, cause)) = self.refused.get(producer_key) {
            Some(NackReason::Refused { cause: cause.clone() })
        } else {
            self.missing.remove(producer_key).then_some(NackReason::Missing)
        };
        if nack.is_none() && sequence == 0 && appended == 0 {
            return None;
        }
        let (partition, producer) = producer_key.clone();
        let position = ProducerPosition::new(partition, producer, (incarnation, sequence));
        Some(Ack { topic: topic.clone(), position, appended, nack })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use crate::announcements::Announcement;

    fn producer_key() -> ProducerKey {
        (0, "Mount".parse().unwrap())
    }

    /// Receives an announcement of a writer.
    fn receive(state: &mut SharedState, session: &str, incarnation: u64, open: bool) {
        let (partition, producer) = producer_key();
        let (last_active_tai_ns, idle_nanos, claim) = (0, 0, None);
        let writer = WriterAnnouncement {
            partition,
            producer,
            incarnation,
            open,
            last_active_tai_ns,
            idle_nanos,
            claim,
        };
        let announcement = Announcement::Writer { topic: "kept".parse().unwrap(), writer };
        let key = announcement.key();
        state.live.insert(session.to_owned());
        state.receive(session, &key, Some(announcement), Duration::ZERO);
    }

    fn written(
        acks: &mut AckQueue,
        state: &SharedState,
        order: SequencePosition,
    ) -> Vec<(String, u64, bool)> {
        acks.poll();
        let all = acks_at(acks, state, (order, order));
        let fenced = |ack: &Ack| matches!(ack.nack, Some(NackReason::Fenced { .. }));
        let all = all.into_iter();
        all.map(|(to, ack)| (to, ack.position.sequence, fenced(&ack))).collect()
    }

    /// The acks at given positions in the journal and on the disk.
    fn acks_at(
        acks: &mut AckQueue,
        state: &SharedState,
        (appended, durable): (SequencePosition, SequencePosition),
    ) -> Vec<(String, Ack)> {
        let mut all = Vec::new();
        let [appended, durable] =
            [appended, durable].map(|order| HashMap::from([(producer_key(), order)]));
        let marks = StoredPositions { appended: Some(&appended), durable: &durable };
        acks.write(&"kept".parse().unwrap(), &marks, state, &mut all);
        all
    }

    #[test]
    fn what_is_in_the_journal_is_said_before_it_is_on_the_disk_and_neither_twice() {
        let (mut acks, mut state) = (AckQueue::default(), SharedState::default());
        receive(&mut state, "a", 7, true);
        let marks = |acks: &mut AckQueue, appended, durable| {
            let sent = acks_at(acks, &state, ((7, appended), (7, durable)));
            let of = |(_, ack): (String, Ack)| (ack.appended, ack.position.sequence);
            sent.into_iter().map(of).collect::<Vec<_>>()
        };
        acks.stored(&producer_key());
        assert_eq!(marks(&mut acks, 3, 1), [(3, 1)]);
        assert_eq!(marks(&mut acks, 3, 3), [], "nobody is due");
        acks.synced(producer_key());
        assert_eq!(marks(&mut acks, 3, 3), [(0, 3)]);
        acks.synced(producer_key());
        acks.stored(&producer_key());
        assert_eq!(marks(&mut acks, 3, 3), []);
        acks.stored(&(1, producer_key().1));
        assert_eq!(marks(&mut acks, 4, 3), [], "another partition's is none of its business");
    }

    #[test]
    fn an_ack_without_appended_says_what_is_durable_alone() {
        let ack = br#"{"v":2,"topic":"kept","position":{"partition":0,"producer":"Mount",
            "incarnation":7,"sequence":3}}"#;
        let Ack { position, appended, .. } =
            helio_bus::transport::versioned_json::decode(ack).unwrap();
        assert_eq!((position.sequence, appended), (3, 0));
    }

    #[test]
    fn a_writer_that_is_heard_of_late_is_told_and_nobody_twice() {
        let (mut acks, mut state) = (AckQueue::default(), SharedState::default());
        assert_eq!(written(&mut acks, &state, (7, 3)), [], "nobody is known");
        receive(&mut state, "a", 7, true);
        assert_eq!(written(&mut acks, &state, (7, 3)), [("a".to_owned(), 3, false)]);
        assert_eq!(written(&mut acks, &state, (7, 3)), []);
        acks.repeat(producer_key());
        assert_eq!(written(&mut acks, &state, (7, 3)), [("a".to_owned(), 3, false)]);
        // It left, and returned under the same name.
        state.end("a");
        assert_eq!(written(&mut acks, &state, (7, 3)), []);
        receive(&mut state, "a", 7, true);
        assert_eq!(written(&mut acks, &state, (7, 3)), [("a".to_owned(), 3, false)]);
        receive(&mut state, "a", 7, false);
        assert_eq!(written(&mut acks, &state, (7, 4)), [], "it has closed");
    }

    #[test]
    fn an_incarnation_below_what_is_here_is_told_that_it_is_fenced() {
        let (mut acks, mut state) = (AckQueue::default(), SharedState::default());
        receive(&mut state, "late", 6, true);
        receive(&mut state, "new", 8, true);
        assert_eq!(written(&mut acks, &state, (7, 3)), [("late".to_owned(), 0, true)]);
    }

    #[test]
    fn what_is_missing_is_asked_for_ever_more_seldom() {
        let (mut acks, mut state) = (AckQueue::default(), SharedState::default());
        receive(&mut state, "a", 7, true);
        acks.request_resend(producer_key());
        acks.request_resend(producer_key());
        assert_eq!(written(&mut acks, &state, (7, 3)).len(), 1);
        assert_eq!(
            acks.requested[&producer_key()].1,
            RESEND_REQUEST_INTERVALS[0],
            "once for all that come too early"
        );
        acks.requested.get_mut(&producer_key()).unwrap().0 -= RESEND_REQUEST_INTERVALS[0];
        acks.request_resend(producer_key());
        assert_eq!(acks.requested[&producer_key()].1, 2 * RESEND_REQUEST_INTERVALS[0]);
        acks.stored(&producer_key());
        assert!(acks.requested.is_empty());
    }

    #[test]
    fn a_writer_of_which_nothing_is_there_is_asked_until_something_comes() {
        let (mut acks, mut state) = (AckQueue::default(), SharedState::default());
        receive(&mut state, "a", 7, true);
        acks.request_resend(producer_key());
        for _ in 0..3 {
            assert_eq!(written(&mut acks, &state, (6, 9)), [("a".to_owned(), 0, false)]);
            let requested = acks.requested.get_mut(&producer_key()).unwrap();
            requested.0 -= requested.1;
        }
        acks.stored(&producer_key());
        assert_eq!(written(&mut acks, &state, (7, 1)), [("a".to_owned(), 1, false)]);
        assert_eq!(written(&mut acks, &state, (7, 1)), []);
    }
}
