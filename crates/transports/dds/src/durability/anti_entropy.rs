//! Compares the contents of ready services. A writer that saw only one of two services had its
//! samples acknowledged by that one alone, and does not send them to the other one.
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

/// How often others are asked.
const POSITIONS_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long what another one has may be on its way here.
const IN_TRANSIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How far others are.
pub(super) struct AntiEntropy {
    topic: Arc<TopicState>,
    /// The number by which answers come, once somebody was asked.
    number: Option<u64>,
    asked: Option<Instant>,
    ahead: PeerLead,
}

/// What others have and is not here.
#[derive(Default)]
struct PeerLead {
    /// Since when that is known.
    since: HashMap<ProducerKey, (SequencePosition, Instant)>,
    /// What was fetched from them.
    fetched: HashMap<ProducerKey, SequencePosition>,
}

impl AntiEntropy {
    pub(super) fn new(topic: &Arc<TopicState>) -> Self {
        Self { topic: Arc::clone(topic), number: None, asked: None, ahead: PeerLead::default() }
    }

    /// Asks others how far they are, where it is time to. True where one of them has what will not
    /// come by itself: it is to be fetched. `empty`: when nothing that had come was left to take.
    pub(super) fn poll<'a>(
        &mut self,
        served_topic: &ServedTopic,
        others: impl Iterator<Item = &'a String>,
        (acks, empty): (&AckQueue, Option<Instant>),
    ) -> Result<bool, TransportError> {
        let (now, messages) = (Instant::now(), &self.topic.connection.messages);
        while let Some(page) = self.number.and_then(|number| messages.next_page(number)) {
            for position in page.head.positions {
                let (producer_key, order) =
                    ((position.partition, position.producer.clone()), position.order());
                // Here they cannot be kept: they would be fetched again and again.
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
            // It is looked for answers at each look.
            None => connection
                .messages
                .open_page_queue(|kind| connection.message_topic(kind), Arc::new(|| ()))?,
        };
        self.number = Some(number);
        for to in others {
            connection.messages.send_request(&HistoryRequest {
                to: to.clone(),
                number,
                page: POSITIONS_ONLY,
                topic: topic.clone(),
                partitions: Vec::new(),
                last: None,
                until: Vec::new(),
                have: Vec::new(),
                known: served_topic.digest(),
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
    /// Another one has that. It is remembered as it was heard first: only so can it be old.
    fn heard(&mut self, producer_key: ProducerKey, order: SequencePosition, now: Instant) {
        if self.fetched.get(&producer_key) < Some(&order) {
            self.since.entry(producer_key).or_insert((order, now));
        }
    }

    /// Whether some of it has been known for long, and what has come here since has it not.
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
        // Whoever writes on does not make it young again.
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
