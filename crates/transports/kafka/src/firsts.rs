//! A producer's first record in a partition goes alone.
//!
//! A broker that knows nothing of a producer in a partition takes any number for its first one
//! (KAFKA-15591; from Kafka 4.5 on not in partitions that never had a record). Where it refuses a
//! request, for the partition was just made or moves, and takes the next one, which was under way
//! already, it never takes what it has refused; and librdkafka reports that as written, for what is
//! behind it was. So what is behind a producer's first record waits here until that was
//! acknowledged. From then on brokers know the producer's numbers and refuse what is not the next.
//!
//! Constraints. A broker forgets a producer whose newest record in a partition is a day old
//! (`producer.id.expiration.ms`; it goes by the stamps of the records, so what is forwarded late is
//! forgotten soon), and with a topic that is deleted. That is noticed here only where a record
//! fails. A record may be under way for twice its time: behind a first one that fails, and then as
//! the first.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;
use rdkafka::message::OwnedHeaders;

use crate::monitor::utc_millis;
use crate::producer::Outgoing;

/// Records that are handed over while others wait for their turns.
const AT_ONCE: usize = 64;

/// Hands a record to librdkafka, with what its report is to carry.
pub(crate) trait HandOver: Fn(Outgoing<'_>, usize) -> Result<(), KafkaError> {}

impl<F: Fn(Outgoing<'_>, usize) -> Result<(), KafkaError>> HandOver for F {}

/// What became of records that were kept and cannot be sent: what their reports carry, and why.
pub(crate) type Failed = Vec<(usize, KafkaError)>;

/// The partitions that a producer writes to.
pub(crate) struct Firsts {
    /// How long a record may be under way.
    timeout: Duration,
    topics: RwLock<Topics>,
    /// In how many partitions the first record is under way.
    alone: AtomicUsize,
}

type Topics = HashMap<String, HashMap<u32, Partition>>;

enum Partition {
    /// The first record, as its report names it, is under way; these are behind it.
    Alone { first: usize, behind: VecDeque<Kept> },
    /// A record was acknowledged, and none has failed since.
    Known,
}

/// What a report means for a partition.
enum Turn {
    /// Nobody waits for it.
    Nothing,
    /// The first record was acknowledged, or failed.
    First,
    /// A later one failed: nothing is known any more.
    Forget,
}

/// A record that waits, as [`Outgoing`] names its parts.
struct Kept {
    since: Instant,
    key: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
    headers: Option<OwnedHeaders>,
    timestamp: Option<i64>,
    opaque: usize,
}

impl Kept {
    fn of(record: Outgoing<'_>, opaque: usize) -> Self {
        let Outgoing { key, payload, headers, timestamp, .. } = record;
        let own = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
        let (key, payload) = (own(key), own(payload));
        // One without a stamp is of now, not of when it is sent.
        let timestamp = timestamp.or_else(|| Some(utc_millis()));
        Self { since: Instant::now(), key, payload, headers, timestamp, opaque }
    }

    fn send(
        self,
        (topic, partition): (&str, u32),
        hand_over: &impl HandOver,
    ) -> Result<(), (usize, KafkaError)> {
        let Self { key, payload, headers, timestamp, opaque, .. } = self;
        let (key, payload) = (key.as_deref(), payload.as_deref());
        let record = Outgoing { topic, partition, key, payload, headers, timestamp };
        hand_over(record, opaque).map_err(|error| (opaque, error))
    }
}

impl Firsts {
    /// Of a producer whose records may be under way for so long.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, topics: RwLock::default(), alone: AtomicUsize::new(0) }
    }

    /// Hands a record over, or keeps it until the first one of its partition was acknowledged.
    pub(crate) fn send(
        &self,
        record: Outgoing<'_>,
        opaque: usize,
        hand_over: &impl HandOver,
    ) -> Result<(), KafkaError> {
        let (topic, partition) = (record.topic, record.partition);
        if matches!(place(&self.read(), (topic, partition)), Some(Partition::Known)) {
            return hand_over(record, opaque);
        }
        let mut topics = self.write();
        match topics.entry(topic.to_owned()).or_default().entry(partition) {
            Entry::Occupied(mut there) => match there.get_mut() {
                Partition::Alone { behind, .. } => behind.push_back(Kept::of(record, opaque)),
                Partition::Known => return hand_over(record, opaque),
            },
            Entry::Vacant(place) => {
                // Whoever reports it sees that one is alone, and then waits for this lock.
                self.alone.fetch_add(1, Ordering::SeqCst);
                if let Err(refused) = hand_over(record, opaque) {
                    self.alone.fetch_sub(1, Ordering::SeqCst);
                    return Err(refused);
                }
                place.insert(Partition::Alone { first: opaque, behind: VecDeque::new() });
            }
        }
        Ok(())
    }

    /// A record was reported. Where it was a first one, those behind it are handed over: all of
    /// them where it was acknowledged, else one that is the first then. Gives those that failed,
    /// in their order.
    pub(crate) fn reported(
        &self,
        at: (&str, u32),
        (opaque, error): (usize, Option<&KafkaError>),
        hand_over: &impl HandOver,
    ) -> Failed {
        let mut failed = Vec::new();
        let turn = match (place(&self.read(), at), error) {
            (Some(Partition::Alone { first, .. }), _) if *first == opaque => Turn::First,
            (Some(Partition::Known), Some(_)) => Turn::Forget,
            _ => Turn::Nothing,
        };
        match turn {
            Turn::Nothing => {}
            // Others have their turns in between.
            Turn::First => while !self.follow(at, error, hand_over, &mut failed) {},
            Turn::Forget => self.forget(at),
        }
        failed
    }

    fn forget(&self, (topic, partition): (&str, u32)) {
        let mut topics = self.write();
        let Some(of_topic) = topics.get_mut(topic) else { return };
        if let Some(Partition::Known) = of_topic.get(&partition) {
            of_topic.remove(&partition);
        }
    }

    /// Hands over some of those behind a first record that was reported; whether that is all.
    fn follow(
        &self,
        (topic, partition): (&str, u32),
        error: Option<&KafkaError>,
        hand_over: &impl HandOver,
        failed: &mut Failed,
    ) -> bool {
        let mut topics = self.write();
        let Some(of_topic) = topics.get_mut(topic) else { return true };
        let Some(Partition::Alone { first, behind }) = of_topic.get_mut(&partition) else {
            return true;
        };
        for _ in 0..AT_ONCE {
            let Some(next) = behind.pop_front() else {
                match error {
                    None => _ = of_topic.insert(partition, Partition::Known),
                    Some(_) => _ = of_topic.remove(&partition),
                }
                self.alone.fetch_sub(1, Ordering::SeqCst);
                return true;
            };
            let opaque = next.opaque;
            // As long under way as the first one was.
            if let Some(error) = error.filter(|_| next.since.elapsed() >= self.timeout) {
                failed.push((opaque, error.clone()));
                continue;
            }
            match next.send((topic, partition), hand_over) {
                Ok(()) if error.is_some() => {
                    *first = opaque;
                    return true;
                }
                Ok(()) => {}
                Err(refused) => failed.push(refused),
            }
        }
        false
    }

    /// Whether a report may be that of a first record.
    pub(crate) fn is_any_alone(&self) -> bool {
        self.alone.load(Ordering::SeqCst) > 0
    }

    /// Gives up all that are behind a first record, for this reason.
    pub(crate) fn give_up(&self, error: &KafkaError) -> Failed {
        let mut topics = self.write();
        let partitions = topics.values_mut().flat_map(HashMap::values_mut);
        let kept = partitions.filter_map(|partition| match partition {
            Partition::Alone { behind, .. } => Some(std::mem::take(behind)),
            Partition::Known => None,
        });
        kept.flatten().map(|kept| (kept.opaque, error.clone())).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Topics> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Topics> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place<'a>(topics: &'a Topics, (topic, partition): (&str, u32)) -> Option<&'a Partition> {
    topics.get(topic)?.get(&partition)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rdkafka::error::RDKafkaErrorCode;

    use super::*;

    const TIMED_OUT: KafkaError = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
    const TOO_LARGE: KafkaError =
        KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge);

    /// What was handed over; it refuses what is said to be too large.
    #[derive(Default)]
    struct Client(Mutex<Vec<usize>>);

    impl Client {
        fn take(&self, record: &Outgoing<'_>, opaque: usize) -> Result<(), KafkaError> {
            if record.payload == Some(b"large") {
                return Err(TOO_LARGE);
            }
            self.0.lock().unwrap().push(opaque);
            Ok(())
        }

        fn took(&self) -> Vec<usize> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    fn record(partition: u32, payload: &[u8]) -> Outgoing<'_> {
        let (key, headers, timestamp) = (Some(&b"k"[..]), None, Some(1));
        Outgoing { topic: "t", partition, key, payload: Some(payload), headers, timestamp }
    }

    fn send(firsts: &Firsts, client: &Client, partition: u32, opaques: std::ops::Range<usize>) {
        for opaque in opaques {
            let take = |record: Outgoing<'_>, opaque| client.take(&record, opaque);
            firsts.send(record(partition, b"x"), opaque, &take).unwrap();
        }
    }

    fn report(firsts: &Firsts, client: &Client, of: usize, error: Option<&KafkaError>) -> Failed {
        let take = |record: Outgoing<'_>, opaque| client.take(&record, opaque);
        firsts.reported(("t", 0), (of, error), &take)
    }

    #[test]
    fn what_is_behind_the_first_follows_when_that_was_acknowledged() {
        let (firsts, client) = (Firsts::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..5);
        send(&firsts, &client, 1, 5..7);
        assert_eq!(client.took(), [1, 5], "of each partition the first");
        assert!(report(&firsts, &client, 1, None).is_empty());
        assert_eq!(client.took(), [2, 3, 4]);
        send(&firsts, &client, 0, 7..9);
        assert_eq!(client.took(), [7, 8]);
        assert!(report(&firsts, &client, 2, None).is_empty());
        assert!(firsts.is_any_alone(), "the other partition's");
        assert_eq!(firsts.give_up(&TIMED_OUT), [(6, TIMED_OUT)]);
    }

    #[test]
    fn where_the_first_failed_the_next_goes_alone() {
        let (firsts, client) = (Firsts::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..4);
        assert!(report(&firsts, &client, 1, Some(&TOO_LARGE)).is_empty());
        assert_eq!(client.took(), [1, 2]);
        assert!(report(&firsts, &client, 2, None).is_empty());
        assert_eq!(client.took(), [3]);
        assert!(!firsts.is_any_alone());
        let (firsts, client) = (Firsts::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..2);
        assert!(report(&firsts, &client, 1, Some(&TIMED_OUT)).is_empty());
        assert!(!firsts.is_any_alone());
        send(&firsts, &client, 0, 2..4);
        assert_eq!(client.took(), [1, 2], "nothing is known of it still");
    }

    #[test]
    fn where_a_record_has_failed_the_next_one_goes_alone_again() {
        let (firsts, client) = (Firsts::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..2);
        report(&firsts, &client, 1, None);
        send(&firsts, &client, 0, 2..5);
        assert!(report(&firsts, &client, 2, Some(&TIMED_OUT)).is_empty());
        send(&firsts, &client, 0, 5..7);
        assert_eq!(client.took(), [1, 2, 3, 4, 5]);
        // Of those before it nothing follows.
        report(&firsts, &client, 3, None);
        report(&firsts, &client, 4, Some(&TIMED_OUT));
        assert!(client.took().is_empty());
        report(&firsts, &client, 5, None);
        assert_eq!(client.took(), [6]);
    }

    #[test]
    fn who_reports_at_once_sees_that_one_is_alone() {
        let firsts = Firsts::new(Duration::MAX);
        let seen = Mutex::new(false);
        let take = |_: Outgoing<'_>, _| {
            *seen.lock().unwrap() = firsts.is_any_alone();
            Ok(())
        };
        firsts.send(record(0, b"x"), 1, &take).unwrap();
        assert!(*seen.lock().unwrap());
    }

    #[test]
    fn many_follow_in_order_while_others_send() {
        let (firsts, client) = (Firsts::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 0..3 * AT_ONCE);
        std::thread::scope(|scope| {
            scope.spawn(|| report(&firsts, &client, 0, None));
            send(&firsts, &client, 0, 3 * AT_ONCE..6 * AT_ONCE);
        });
        assert_eq!(client.took(), (0..6 * AT_ONCE).collect::<Vec<_>>());
        assert!(!firsts.is_any_alone());
    }

    #[test]
    fn who_waited_as_long_as_the_first_fails_with_it() {
        let (firsts, client) = (Firsts::new(Duration::ZERO), Client::default());
        send(&firsts, &client, 0, 1..4);
        let failed = report(&firsts, &client, 1, Some(&TIMED_OUT));
        assert_eq!(failed, [(2, TIMED_OUT), (3, TIMED_OUT)]);
        assert_eq!(client.took(), [1]);
        assert!(!firsts.is_any_alone());
    }

    #[test]
    fn what_librdkafka_refuses_fails_alone() {
        let (firsts, client) = (Firsts::new(Duration::MAX), Client::default());
        let take = |record: Outgoing<'_>, opaque| client.take(&record, opaque);
        assert_eq!(firsts.send(record(0, b"large"), 1, &take), Err(TOO_LARGE));
        send(&firsts, &client, 0, 2..3);
        firsts.send(record(0, b"large"), 3, &take).unwrap();
        send(&firsts, &client, 0, 4..5);
        assert_eq!(client.took(), [2]);
        assert_eq!(report(&firsts, &client, 2, None), [(3, TOO_LARGE)]);
        assert_eq!(client.took(), [4]);
    }
}
