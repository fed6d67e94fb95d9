//! Compares the contents of ready services. If a writer saw only one of two services, that one
//! acknowledged its samples alone, and the writer does not send them to the other one.
//!
//! Operation. Each service requests the other services' positions of each producer, periodically.
//! Samples that another service has had for a while, and that have not arrived here since, are
//! fetched from it. They are fetched once, because the other service may not have them any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::TransportError;

use super::acks::AckQueue;
use super::history_server::ServedTopic;
use super::{ProducerKey, SequencePosition};
use crate::peer_messages::{HistoryRequest, POSITIONS_ONLY};
use crate::topic::TopicState;

/// The interval of requests for the other services' positions.
const POSITIONS_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long samples of another service may be in flight to this one.
const IN_TRANSIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The positions of the other services.
pub(super) struct AntiEntropy {
    topic: Arc<TopicState>,
    /// The number of the page queue, after the first request.
    number: Option<u64>,
    asked: Option<Instant>,
    ahead: PeerLead,
}

/// Samples that other services have and this one lacks.
#[derive(Default)]
struct PeerLead {
    /// The first position that was received, and when.
    since: HashMap<ProducerKey, (SequencePosition, Instant)>,
    /// The positions that were fetched.
    fetched: HashMap<ProducerKey, SequencePosition>,
}

impl AntiEntropy {
    pub(super) fn new(topic: &Arc<TopicState>) -> Self {
        Self { topic: Arc::clone(topic), number: None, asked: None, ahead: PeerLead::default() }
    }

    /// Requests the other services' positions when due. True if one of them has samples that will
    /// not arrive by themselves, and must be fetched. `empty`: when all received samples were last
    /// taken.
    pub(super) fn poll<'a>(
        &mut self,
        served_topic: &ServedTopic,
        others: impl Iterator<Item = &'a String>,
        acks: &AckQueue,
        empty: Option<Instant>,
    ) -> Result<bool, TransportError> {
        let (now, connection) = (Instant::now(), &self.topic.connection);
        let next = |number| connection.messages.next_page(number, &connection.announcements);
        while let Some(page) = self.number.and_then(next) {
            for position in page.head.positions {
                let (producer_key, order) =
                    ((position.partition, position.producer.clone()), position.order());
                // Refused samples would be fetched again and again.
                if !acks.refuses(&producer_key) {
                    self.ahead.heard(producer_key, order, now);
                }
            }
        }
        let has = |(partition, producer): &ProducerKey| served_topic.order(*partition, producer);
        if self.ahead.is_to_be_fetched(has, empty) {
            return Ok(true);
        }
        if self.asked.is_none_or(|asked| asked.elapsed() >= POSITIONS_POLL_INTERVAL) {
            self.ask(served_topic, others)?;
        }
        Ok(false)
    }

    fn ask<'a>(
        &mut self,
        served_topic: &ServedTopic,
        others: impl Iterator<Item = &'a String>,
    ) -> Result<(), TransportError> {
        let (connection, topic) = (&self.topic.connection, &self.topic.name);
        self.asked = Some(Instant::now());
        let mut others = others.peekable();
        if others.peek().is_none() {
            return Ok(());
        }
        let number = match self.number {
            Some(number) => number,
            // Responses are read with each poll, so they need no notification.
            None => connection
                .messages
                .open_page_queue(|kind| connection.message_topic(kind), Arc::new(|| ()))?,
        };
        self.number = Some(number);
        for to in others {
            connection.messages.send_request(&HistoryRequest {
                service: to.clone(),
                reader: number,
                page: POSITIONS_ONLY,
                topic: topic.clone(),
                partitions: Vec::new(),
                last: None,
                required_positions: Vec::new(),
                received_positions: Vec::new(),
                digest: served_topic.digest(),
            });
        }
        Ok(())
    }
}

impl Drop for AntiEntropy {
    fn drop(&mut self) {
        self.number
            .into_iter()
            .for_each(|number| self.topic.connection.messages.close_page_queue(number));
    }
}

impl PeerLead {
    /// Records a position of another service. The first one is kept, because only an old one
    /// triggers a fetch.
    fn heard(&mut self, producer_key: ProducerKey, order: SequencePosition, now: Instant) {
        if self.fetched.get(&producer_key) < Some(&order) {
            self.since.entry(producer_key).or_insert((order, now));
        }
    }

    /// Whether a position has been known for long and has not been reached since.
    fn is_to_be_fetched(
        &mut self,
        has: impl Fn(&ProducerKey) -> Option<SequencePosition>,
        empty: Option<Instant>,
    ) -> bool {
        self.since.retain(|producer_key, (order, _)| has(producer_key) < Some(*order));
        self.fetched.retain(|producer_key, order| has(producer_key) < Some(*order));
        let old = |since: &Instant| empty.is_some_and(|empty| empty >= *since + IN_TRANSIT_TIMEOUT);
        if !self.since.values().any(|(_, since)| old(since)) {
            return false;
        }
        self.fetched
            .extend(self.since.drain().map(|(producer_key, (order, _))| (producer_key, order)));
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn what_another_one_has_and_does_not_come_is_fetched_once() {
        let (mut ahead, mount): (_, ProducerKey) =
            (PeerLead::default(), (0, "Mount".parse().unwrap()));
        let (begun, later) = (Instant::now(), Instant::now() + IN_TRANSIT_TIMEOUT);
        let has = |order| move |_: &ProducerKey| Some(order);
        ahead.heard(mount.clone(), (7, 150), begun);
        assert!(!ahead.is_to_be_fetched(has((7, 150)), Some(later)), "it has come");
        ahead.heard(mount.clone(), (7, 200), begun);
        assert!(!ahead.is_to_be_fetched(has((7, 150)), Some(begun)), "it may be on its way");
        assert!(!ahead.is_to_be_fetched(has((7, 150)), None), "what has come was not taken");
        // A newer position does not restart the timeout.
        ahead.heard(mount.clone(), (7, 400), later);
        assert!(ahead.is_to_be_fetched(has((7, 150)), Some(later)));
        ahead.heard(mount.clone(), (7, 200), later);
        assert!(
            !ahead.is_to_be_fetched(has((7, 150)), Some(later + IN_TRANSIT_TIMEOUT)),
            "in vain"
        );
        ahead.heard(mount, (7, 201), later);
        assert!(
            ahead.is_to_be_fetched(has((7, 150)), Some(later + IN_TRANSIT_TIMEOUT)),
            "there is more"
        );
    }
}
