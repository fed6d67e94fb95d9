//! Events by the clock: missed deadlines of keys, and writers' liveliness.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;
use helio_core::qos::Liveliness as Policy;
use helio_core::{Producer, ProducerName, Tai};

use crate::clock::Clock;
use crate::error::TransportError;
use crate::event::{DeadlineMissed, Event, Liveliness};
use crate::transport::{Alive, TransportTopic, WriterInfo};

/// The most keys whose deadlines one subscription monitors; later keys are not monitored.
pub const MAX_DEADLINE_KEYS: usize = 65_536;

/// The shortest interval between two queries of a transport's writers.
const WRITERS_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The retry interval of a caller that waits for an engine's answer.
const UNANSWERED_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The deadlines of a subscription's keys. A key is monitored from its first sample on.
#[derive(Debug)]
pub(crate) struct Deadlines {
    deadline: Duration,
    keys: HashMap<Bytes, KeyDeadline>,
    /// No key is due before this.
    next: Duration,
}

#[derive(Debug)]
struct KeyDeadline {
    at: Duration,
    missed: u64,
}

impl Deadlines {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { deadline, keys: HashMap::new(), next: Duration::MAX }
    }

    pub(crate) fn restart(&mut self, key: &[u8], now: Duration) {
        let at = now.saturating_add(self.deadline);
        if let Some(due) = self.keys.get_mut(key) {
            *due = KeyDeadline { at, missed: 0 };
        } else if self.keys.len() < MAX_DEADLINE_KEYS {
            self.keys.insert(Bytes::copy_from_slice(key), KeyDeadline { at, missed: 0 });
            self.next = self.next.min(at);
        }
    }

    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Reports every overdue key and restarts its deadline.
    pub(crate) fn check(&mut self, now: Duration, mut report: impl FnMut(Event)) -> u64 {
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
            report(Event::DeadlineMissed(DeadlineMissed { key, deadline, in_a_row }));
        }
        self.next = self.keys.values().map(|due| due.at).min().unwrap_or(Duration::MAX);
        missed
    }
}

/// A subscription's known writers and their liveliness.
#[derive(Debug)]
pub(crate) struct LivelinessMonitor {
    lease: Option<Duration>,
    every: Duration,
    next: Duration,
    /// `None` before the first query: writers gone by then are not reported.
    known: Option<BTreeMap<ProducerName, WriterState>>,
}

/// The last reported state of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WriterState {
    incarnation: u64,
    alive: Alive,
}

impl LivelinessMonitor {
    pub(crate) fn new(policy: Policy) -> Self {
        let lease = lease(policy);
        let every =
            lease.map_or(WRITERS_POLL_INTERVAL, |lease| (lease / 4).min(WRITERS_POLL_INTERVAL));
        Self { lease, every, next: Duration::ZERO, known: None }
    }

    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Postpones the next query.
    pub(crate) fn postpone(&mut self, now: Duration) {
        self.next = now.saturating_add(self.every);
    }

    /// Compares with the transport's writers. A writer that appeared and was gone between two
    /// queries is reported twice: alive, then gone.
    pub(crate) fn check(
        &mut self,
        writers: &[WriterInfo],
        now: Duration,
        time: Tai,
        mut report: impl FnMut(Event),
    ) {
        self.postpone(now);
        let newest = newest_of(writers, self.lease, time);
        let mut report = |name: &ProducerName, incarnation: u64, alive| {
            let producer = Producer { name: name.clone(), incarnation };
            report(Event::Liveliness(Liveliness { producer, alive }));
        };
        let first = self.known.is_none();
        let known = self.known.take().unwrap_or_default();
        let changed = |(name, is): &(&ProducerName, &WriterState)| {
            let was = known.get(*name);
            was != Some(*is) && !(was.is_none() && first && is.alive == Alive::No)
        };
        // Gone ones first: a predecessor's end precedes its successor.
        for (name, is) in newest.iter().filter(changed) {
            if let Some(was) = known.get(name).filter(|was| was.alive == Alive::Yes)
                && (was.incarnation != is.incarnation || is.alive == Alive::No)
            {
                report(name, was.incarnation, Alive::No);
            }
        }
        for (name, is) in newest.iter().filter(changed) {
            if known.get(name).map(|was| was.incarnation) != Some(is.incarnation) {
                report(name, is.incarnation, Alive::Yes);
                if is.alive == Alive::No {
                    report(name, is.incarnation, Alive::No);
                }
            } else if is.alive == Alive::Yes {
                report(name, is.incarnation, Alive::Yes);
            }
        }
        self.known = Some(newest);
    }
}

/// Each producer's newest incarnation, which is alive if it is alive in any partition.
fn newest_of(
    writers: &[WriterInfo],
    lease: Option<Duration>,
    time: Tai,
) -> BTreeMap<ProducerName, WriterState> {
    let mut newest = BTreeMap::new();
    for writer in writers {
        let alive = if lives(writer, lease, time) { Alive::Yes } else { Alive::No };
        let incarnation = writer.producer.incarnation;
        let is = WriterState { incarnation, alive };
        let entry = newest.entry(writer.producer.name.clone()).or_insert(is);
        let replaces = incarnation > entry.incarnation
            || incarnation == entry.incarnation && alive == Alive::Yes;
        if replaces {
            *entry = is;
        }
    }
    newest
}

fn lives(writer: &WriterInfo, lease: Option<Duration>, time: Tai) -> bool {
    match (writer.alive, lease, writer.seen) {
        // A transport that can tell has checked the lease, by a clock that is never set.
        (Some(alive), ..) => alive == Alive::Yes,
        (None, None, _) => true,
        (None, Some(lease), Some(seen)) => {
            let since = time.nanos().saturating_sub(seen.nanos());
            u128::try_from(since).unwrap_or(0) <= lease.as_nanos()
        }
        (None, Some(_), None) => false,
    }
}

fn lease(policy: Policy) -> Option<Duration> {
    match policy {
        Policy::Lease(lease) => Some(lease),
        Policy::Automatic => None,
    }
}

/// A topic's writers for applications: the newest incarnation of each name, with the liveliness of
/// [`LivelinessMonitor`].
pub(crate) fn newest_writers(
    topic: &dyn TransportTopic,
    time: Tai,
) -> Result<Vec<WriterInfo>, TransportError> {
    let mut writers = topic.writers()?;
    let newest = newest_of(&writers, lease(topic.qos().liveliness), time);
    writers.retain_mut(|writer| {
        let known = newest.get(&writer.producer.name);
        let known = known.filter(|known| known.incarnation == writer.producer.incarnation);
        if let Some(known) = known.filter(|_| writer.alive.is_some()) {
            writer.alive = Some(known.alive);
        }
        known.is_some()
    });
    writers.sort_by(|a, b| a.producer.cmp(&b.producer).then(b.seen.cmp(&a.seen)));
    writers.dedup_by(|next, first| next.producer == first.producer);
    Ok(writers)
}

/// The same, but an engine that does not answer is queried again until the timeout.
pub(crate) fn newest_within(
    topic: &dyn TransportTopic,
    clock: &dyn Clock,
    timeout: Duration,
) -> Result<Vec<WriterInfo>, TransportError> {
    let until = Instant::now() + timeout;
    loop {
        match newest_writers(topic, clock.now()) {
            Err(TransportError::Outage { .. }) if Instant::now() < until => {
                std::thread::sleep(UNANSWERED_RETRY_INTERVAL);
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(name: &str, incarnation: u64, alive: Alive) -> WriterInfo {
        let name = ProducerName::new(name).unwrap();
        let producer = Producer { name, incarnation };
        WriterInfo { producer, partition: 0, alive: Some(alive), seen: None }
    }

    fn look(watch: &mut LivelinessMonitor, writers: &[WriterInfo]) -> Vec<(u64, Alive)> {
        let mut told = Vec::new();
        watch.check(writers, Duration::ZERO, Tai::from_nanos(0), |event| match event {
            Event::Liveliness(is) => told.push((is.producer.incarnation, is.alive)),
            other => panic!("{other:?}"),
        });
        told
    }

    #[test]
    fn writers_are_told_once_even_if_they_came_and_went_unseen() {
        use Alive::{No, Yes};
        let mut watch = LivelinessMonitor::new(Policy::Automatic);
        assert_eq!(look(&mut watch, &[writer("gone", 4, No), writer("a", 1, Yes)]), [(1, Yes)]);
        assert_eq!(look(&mut watch, &[writer("gone", 4, No), writer("a", 1, Yes)]), []);
        assert_eq!(look(&mut watch, &[writer("a", 1, No)]), [(1, No)]);
        assert_eq!(look(&mut watch, &[writer("a", 2, No)]), [(2, Yes), (2, No)]);
        assert_eq!(look(&mut watch, &[writer("a", 3, Yes)]), [(3, Yes)]);
        assert_eq!(look(&mut watch, &[writer("a", 4, Yes)]), [(3, No), (4, Yes)]);
        // The newest incarnation counts, and is alive if it is alive in any partition.
        let several = [writer("a", 4, No), writer("a", 4, Yes), writer("a", 3, Yes)];
        assert_eq!(look(&mut watch, &several), []);
    }

    #[test]
    fn a_key_is_told_once_a_deadline() {
        let second = Duration::from_secs(1);
        let mut deadlines = Deadlines::new(second);
        let told = |deadlines: &mut Deadlines, at: Duration| {
            let mut told = Vec::new();
            deadlines.check(at, |event| match event {
                Event::DeadlineMissed(missed) => told.push((missed.key, missed.in_a_row)),
                other => panic!("{other:?}"),
            });
            told
        };
        deadlines.restart(b"a", Duration::ZERO);
        deadlines.restart(b"b", second / 2);
        assert_eq!(told(&mut deadlines, second * 9 / 10), []);
        assert_eq!(told(&mut deadlines, second), [(Bytes::from_static(b"a"), 1)]);
        assert_eq!(deadlines.next(), second * 3 / 2);
        deadlines.restart(b"b", second);
        assert_eq!(told(&mut deadlines, second * 19 / 10), []);
        assert_eq!(told(&mut deadlines, second * 2).len(), 2);
    }
}
