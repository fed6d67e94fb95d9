//! Whether services that are ready have the same. What a writer had acknowledged by one of them
//! while it did not see the other one, nobody sends to that one any more: it comes to know so here.
//!
//! Operation. Each asks the others, each so often, how far they have each producer's samples. What
//! another one has had for a while, and what has come here since is not, is fetched from it: once,
//! as the other one may have it no more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::TransportError;

use super::letters::Letters;
use super::serve::Shelf;
use super::{Order, Who};
use crate::post::{Fetch, STANDS};
use crate::topic::TopicState;

/// How often others are asked.
const EVERY: Duration = Duration::from_secs(5);
/// How long what another one has may be on its way here.
const COMES: Duration = Duration::from_secs(10);

/// How far others are.
pub(super) struct Level {
    topic: Arc<TopicState>,
    /// The number by which answers come, once somebody was asked.
    number: Option<u64>,
    asked: Option<Instant>,
    ahead: Ahead,
}

/// What others have and is not here.
#[derive(Default)]
struct Ahead {
    /// Since when that is known.
    since: HashMap<Who, (Order, Instant)>,
    /// What was fetched from them.
    fetched: HashMap<Who, Order>,
}

impl Level {
    pub(super) fn new(topic: &Arc<TopicState>) -> Self {
        Self { topic: Arc::clone(topic), number: None, asked: None, ahead: Ahead::default() }
    }

    /// Asks others how far they are, where it is time to. True where one of them has what will not
    /// come by itself: it is to be fetched. `empty`: when nothing that had come was left to take.
    pub(super) fn look<'a>(
        &mut self,
        shelf: &Shelf,
        others: impl Iterator<Item = &'a String>,
        (letters, empty): (&Letters, Option<Instant>),
    ) -> Result<bool, TransportError> {
        let (now, post) = (Instant::now(), &self.topic.connection.post);
        while let Some(page) = self.number.and_then(|number| post.next_page(number)) {
            for stand in page.head.stands {
                let (who, order) = ((stand.partition, stand.producer.clone()), stand.order());
                // Here they cannot be kept: they would be fetched again and again.
                if !letters.refuses(&who) {
                    self.ahead.heard(who, order, now);
                }
            }
        }
        let has = |(partition, producer): &Who| shelf.order(*partition, producer);
        if self.ahead.is_to_be_fetched(has, empty) {
            return Ok(true);
        }
        if self.asked.is_none_or(|asked| asked.elapsed() >= EVERY) {
            self.ask(shelf, others)?;
        }
        Ok(false)
    }

    fn ask<'a>(
        &mut self,
        shelf: &Shelf,
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
            None => connection.post.lane(|kind| connection.letters(kind), Arc::new(|| ()))?,
        };
        self.number = Some(number);
        for to in others {
            connection.post.ask(&Fetch {
                to: to.clone(),
                number,
                page: STANDS,
                topic: topic.clone(),
                partitions: Vec::new(),
                last: None,
                until: Vec::new(),
                have: Vec::new(),
                known: shelf.digest(),
            });
        }
        Ok(())
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.number.into_iter().for_each(|number| self.topic.connection.post.end_lane(number));
    }
}

impl Ahead {
    /// Another one has that. It is remembered as it was heard first: only so can it be old.
    fn heard(&mut self, who: Who, order: Order, now: Instant) {
        if self.fetched.get(&who) < Some(&order) {
            self.since.entry(who).or_insert((order, now));
        }
    }

    /// Whether some of it has been known for long, and what has come here since has it not.
    fn is_to_be_fetched(
        &mut self,
        has: impl Fn(&Who) -> Option<Order>,
        empty: Option<Instant>,
    ) -> bool {
        self.since.retain(|who, (order, _)| has(who) < Some(*order));
        self.fetched.retain(|who, order| has(who) < Some(*order));
        let old = |since: &Instant| empty.is_some_and(|empty| empty >= *since + COMES);
        if !self.since.values().any(|(_, since)| old(since)) {
            return false;
        }
        self.fetched.extend(self.since.drain().map(|(who, (order, _))| (who, order)));
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn what_another_one_has_and_does_not_come_is_fetched_once() {
        let (mut ahead, mount): (_, Who) = (Ahead::default(), (0, "Mount".parse().unwrap()));
        let (begun, later) = (Instant::now(), Instant::now() + COMES);
        let has = |order| move |_: &Who| Some(order);
        ahead.heard(mount.clone(), (7, 150), begun);
        assert!(!ahead.is_to_be_fetched(has((7, 150)), Some(later)), "it has come");
        ahead.heard(mount.clone(), (7, 200), begun);
        assert!(!ahead.is_to_be_fetched(has((7, 150)), Some(begun)), "it may be on its way");
        assert!(!ahead.is_to_be_fetched(has((7, 150)), None), "what has come was not taken");
        // Whoever writes on does not make it young again.
        ahead.heard(mount.clone(), (7, 400), later);
        assert!(ahead.is_to_be_fetched(has((7, 150)), Some(later)));
        ahead.heard(mount.clone(), (7, 200), later);
        assert!(!ahead.is_to_be_fetched(has((7, 150)), Some(later + COMES)), "in vain");
        ahead.heard(mount, (7, 201), later);
        assert!(ahead.is_to_be_fetched(has((7, 150)), Some(later + COMES)), "there is more");
    }
}
