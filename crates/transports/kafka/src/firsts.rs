//! A producer's first record in a partition goes alone.
//!
//! A broker that knows nothing of a producer in a partition takes any number for its first one
//! (KAFKA-15591; from Kafka 4.5 on not in partitions that never had a record). Where it refuses a
//! request, for the partition was just made or moves, and takes the next one, which was under way
//! already, it never takes what it has refused; and librdkafka reports that as written, for what is
//! behind it was. So what is behind a producer's first record waits here until that was
//! acknowledged. From then on brokers know the producer's numbers and refuse what is not the next.
//!
//! Constraints. A broker forgets a producer that has written nothing to a partition for a day
//! (`producer.id.expiration.ms`), and with a topic that is deleted; that is not noticed here.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;
use rdkafka::message::OwnedHeaders;

use crate::producer::Outgoing;

/// Hands a record to librdkafka, with what its report is to carry.
pub(crate) trait HandOver: Fn(Outgoing<'_>, usize) -> Result<(), KafkaError> {}

impl<F: Fn(Outgoing<'_>, usize) -> Result<(), KafkaError>> HandOver for F {}

/// What became of records that were kept and cannot be sent: what their reports carry, and why.
pub(crate) type Failed = Vec<(usize, KafkaError)>;

/// The partitions that a producer writes to.
pub(crate) struct Firsts {
    /// How long a record may be under way.
    timeout: Duration,
    topics: RwLock<HashMap<String, HashMap<u32, Partition>>>,
    /// In how many partitions the first record is under way.
    alone: AtomicUsize,
}

enum Partition {
    /// The first record is under way; these are behind it.
    Alone(VecDeque<Kept>),
    /// A record was acknowledged.
    Known,
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
        let is_known = |topics: &HashMap<String, HashMap<u32, Partition>>| {
            matches!(topics.get(topic).and_then(|of| of.get(&partition)), Some(Partition::Known))
        };
        if is_known(&self.read()) {
            return hand_over(record, opaque);
        }
        let mut topics = self.write();
        match topics.entry(topic.to_owned()).or_default().entry(partition) {
            Entry::Occupied(mut there) => match there.get_mut() {
                Partition::Alone(behind) => behind.push_back(Kept::of(record, opaque)),
                Partition::Known => return hand_over(record, opaque),
            },
            Entry::Vacant(place) => {
                // Its report waits for this lock.
                hand_over(record, opaque)?;
                place.insert(Partition::Alone(VecDeque::new()));
                self.alone.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    /// A record was reported. Where it was a first one, those behind it are handed over: all of
    /// them where it was acknowledged, else one that is the first then. Gives those that failed,
    /// in their order.
    pub(crate) fn reported(
        &self,
        (topic, partition): (&str, u32),
        error: Option<&KafkaError>,
        hand_over: &impl HandOver,
    ) -> Failed {
        let mut failed = Vec::new();
        let mut topics = self.write();
        let Some(of_topic) = topics.get_mut(topic) else { return failed };
        let Some(Partition::Alone(behind)) = of_topic.get_mut(&partition) else { return failed };
        while let Some(next) = behind.pop_front() {
            // As long under way as the first one was.
            if let Some(error) = error.filter(|_| next.since.elapsed() >= self.timeout) {
                failed.push((next.opaque, error.clone()));
                continue;
            }
            match next.send((topic, partition), hand_over) {
                Ok(()) if error.is_some() => return failed,
                Ok(()) => {}
                Err(refused) => failed.push(refused),
            }
        }
        match error {
            None => _ = of_topic.insert(partition, Partition::Known),
            Some(_) => _ = of_topic.remove(&partition),
        }
        self.alone.fetch_sub(1, Ordering::SeqCst);
        failed
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
            Partition::Alone(behind) => Some(std::mem::take(behind)),
            Partition::Known => None,
        });
        kept.flatten().map(|kept| (kept.opaque, error.clone())).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, HashMap<u32, Partition>>> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, HashMap<u32, Partition>>> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }
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

    fn report(firsts: &Firsts, client: &Client, error: Option<&KafkaError>) -> Failed {
        let take = |record: Outgoing<'_>, opaque| client.take(&record, opaque);
        firsts.reported(("t", 0), error, &take)
    }

    #[test]
    fn what_is_behind_the_first_follows_when_that_was_acknowledged() {
        let (firsts, client) = (Firsts::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..5);
        send(&firsts, &client, 1, 5..7);
        assert_eq!(client.took(), [1, 5], "of each partition the first");
        assert!(report(&firsts, &client, None).is_empty());
        assert_eq!(client.took(), [2, 3, 4]);
        send(&firsts, &client, 0, 7..9);
        assert_eq!(client.took(), [7, 8]);
        assert!(firsts.is_any_alone(), "the other partition's");
        assert_eq!(firsts.give_up(&TIMED_OUT), [(6, TIMED_OUT)]);
    }

    #[test]
    fn where_the_first_failed_the_next_goes_alone() {
        let (firsts, client) = (Firsts::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..4);
        assert!(report(&firsts, &client, Some(&TOO_LARGE)).is_empty());
        assert_eq!(client.took(), [1, 2]);
        assert!(report(&firsts, &client, None).is_empty());
        assert_eq!(client.took(), [3]);
        assert!(!firsts.is_any_alone());
        let (firsts, client) = (Firsts::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..2);
        assert!(report(&firsts, &client, Some(&TIMED_OUT)).is_empty());
        assert!(!firsts.is_any_alone());
        send(&firsts, &client, 0, 2..4);
        assert_eq!(client.took(), [1, 2], "nothing is known of it still");
    }

    #[test]
    fn who_waited_as_long_as_the_first_fails_with_it() {
        let (firsts, client) = (Firsts::new(Duration::ZERO), Client::default());
        send(&firsts, &client, 0, 1..4);
        assert_eq!(report(&firsts, &client, Some(&TIMED_OUT)), [(2, TIMED_OUT), (3, TIMED_OUT)]);
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
        assert_eq!(report(&firsts, &client, None), [(3, TOO_LARGE)]);
        assert_eq!(client.took(), [4]);
    }
}
