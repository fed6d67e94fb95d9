//! What a subscription notices by the clock: keys that fall silent, writers that come and go.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use helio_core::qos::Liveliness as Policy;
use helio_core::{ProducerName, Tai};

use crate::event::{DeadlineMissed, Event, Liveliness};
use crate::transport::{Alive, WriterInfo};

/// The most keys whose deadlines are watched by one subscription; those that come later are not.
pub const MAX_DEADLINE_KEYS: usize = 65_536;

/// How often a transport is asked about its writers at the most, where it does not tell by itself.
const WRITERS_EVERY: Duration = Duration::from_millis(100);

/// The deadlines of a subscription's keys. A key is watched from its first sample on.
#[derive(Debug)]
pub(crate) struct Deadlines {
    deadline: Duration,
    keys: HashMap<Bytes, Due>,
    /// No key is due before this.
    next: Duration,
}

#[derive(Debug)]
struct Due {
    at: Duration,
    missed: u64,
}

impl Deadlines {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { deadline, keys: HashMap::new(), next: Duration::MAX }
    }

    pub(crate) fn saw(&mut self, key: &[u8], now: Duration) {
        let at = now.saturating_add(self.deadline);
        if let Some(due) = self.keys.get_mut(key) {
            *due = Due { at, missed: 0 };
        } else if self.keys.len() < MAX_DEADLINE_KEYS {
            self.keys.insert(Bytes::copy_from_slice(key), Due { at, missed: 0 });
            self.next = self.next.min(at);
        }
    }

    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Tells every key that is overdue, and winds it up again.
    pub(crate) fn check(&mut self, now: Duration, mut tell: impl FnMut(Event)) -> u64 {
        if now < self.next {
            return 0;
        }
        let mut missed = 0;
        for (key, due) in self.keys.iter_mut().filter(|(_, due)| due.at <= now) {
            let late = (now - due.at).as_nanos() / self.deadline.as_nanos().max(1);
            let rounds = u64::try_from(late).unwrap_or(u64::MAX).saturating_add(1);
            due.missed = due.missed.saturating_add(rounds);
            due.at = now.saturating_add(self.deadline);
            missed += rounds;
            let (key, deadline, in_a_row) = (key.clone(), self.deadline, due.missed);
            tell(Event::DeadlineMissed(DeadlineMissed { key, deadline, in_a_row }));
        }
        self.next = self.keys.values().map(|due| due.at).min().unwrap_or(Duration::MAX);
        missed
    }
}

/// The writers that a subscription knows to live.
#[derive(Debug)]
pub(crate) struct WriterWatch {
    lease: Option<Duration>,
    every: Duration,
    next: Duration,
    known: HashMap<ProducerName, u64>,
}

impl WriterWatch {
    pub(crate) fn new(policy: Policy) -> Self {
        let lease = match policy {
            Policy::Lease(lease) => Some(lease),
            Policy::Automatic => None,
        };
        let every = lease.map_or(WRITERS_EVERY, |lease| (lease / 4).min(WRITERS_EVERY));
        Self { lease, every, next: Duration::ZERO, known: HashMap::new() }
    }

    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Compares with what the transport knows.
    pub(crate) fn check(
        &mut self,
        writers: &[WriterInfo],
        (now, time): (Duration, Tai),
        mut tell: impl FnMut(Event),
    ) {
        self.next = now.saturating_add(self.every);
        let mut alive: HashMap<ProducerName, u64> = HashMap::new();
        for writer in writers.iter().filter(|writer| self.lives(writer, time)) {
            let newest = alive.entry(writer.producer.name.clone()).or_default();
            *newest = writer.producer.incarnation.max(*newest);
        }
        let told = |name: &ProducerName, incarnation: u64, alive| {
            let producer = helio_core::Producer { name: name.clone(), incarnation };
            Event::Liveliness(Liveliness { producer, alive })
        };
        for (name, incarnation) in &self.known {
            if alive.get(name) != Some(incarnation) {
                tell(told(name, *incarnation, Alive::No));
            }
        }
        for (name, incarnation) in &alive {
            if self.known.get(name) != Some(incarnation) {
                tell(told(name, *incarnation, Alive::Yes));
            }
        }
        self.known = alive;
    }

    fn lives(&self, writer: &WriterInfo, time: Tai) -> bool {
        let in_lease = match (self.lease, writer.seen) {
            (None, _) => true,
            (Some(lease), Some(seen)) => {
                let since = time.nanos().saturating_sub(seen.nanos());
                u128::try_from(since).unwrap_or(0) <= lease.as_nanos()
            }
            (Some(_), None) => false,
        };
        in_lease && writer.alive != Some(Alive::No)
    }
}
