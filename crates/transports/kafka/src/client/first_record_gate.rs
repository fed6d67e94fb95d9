//! Sends a producer's first record in a partition alone.
//!
//! A broker that knows nothing of a producer in a partition accepts any sequence number as its
//! first (KAFKA-15591; from Kafka 4.5 on not in partitions that never had a record). If it rejects
//! a request, because the partition was just created or is moving, and accepts the next one that
//! was in flight already, it never accepts the rejected one. librdkafka then reports the rejected
//! one as written, because its successor was; a test in `producer` reproduces that. So records
//! behind a producer's first one wait here until it is acknowledged. From then on, brokers have the
//! producer's sequence numbers and reject any that is not the next.
//!
//! Constraints. A broker forgets a producer whose newest record in a partition is a day old
//! (`producer.id.expiration.ms`, by the records' timestamps, so forwarded old records are forgotten
//! soon), and when the topic is deleted. This is detected here only if a record fails. A record may
//! be in flight for twice its timeout: behind a first one that fails, and then as the first.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;
use rdkafka::message::OwnedHeaders;

use crate::client::clock::utc_millis;
use crate::client::in_flight::OutgoingRecord;

/// How many waiting records are sent before others get the lock.
const MAX_RECORDS_PER_TURN: usize = 64;

/// Sends a record by librdkafka, with the key of its report.
pub(crate) trait HandOver: Fn(OutgoingRecord<'_>, usize) -> Result<(), KafkaError> {}

impl<F: Fn(OutgoingRecord<'_>, usize) -> Result<(), KafkaError>> HandOver for F {}

/// Records that waited and cannot be sent: the keys of their reports, and the errors.
pub(crate) type FailedRecords = Vec<(usize, KafkaError)>;

/// The partitions that a producer writes to.
pub(crate) struct FirstRecordGate {
    /// How long a record may be in flight.
    timeout: Duration,
    topics: RwLock<Topics>,
    /// In how many partitions the first record is in flight.
    alone: AtomicUsize,
}

type Topics = HashMap<String, HashMap<u32, Partition>>;

enum Partition {
    /// The first record, by the key of its report, is in flight; these wait behind it.
    Alone { first: usize, behind: VecDeque<WaitingRecord> },
    /// A record was acknowledged, and none has failed since.
    Known,
}

/// What a report means for a partition.
enum ReportEffect {
    /// No record waits for it.
    Nothing,
    /// The first record was acknowledged, or has failed.
    First,
    /// A later record failed: the broker's knowledge is uncertain.
    Forget,
}

/// A waiting record; see [`OutgoingRecord`].
struct WaitingRecord {
    since: Instant,
    key: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
    headers: Option<OwnedHeaders>,
    timestamp: Option<i64>,
    opaque: usize,
}

impl WaitingRecord {
    fn of(record: OutgoingRecord<'_>, opaque: usize) -> Self {
        let OutgoingRecord { key, payload, headers, timestamp, .. } = record;
        let own = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
        let (key, payload) = (own(key), own(payload));
        // A record without a timestamp gets the current time, not that of its sending.
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
        let record = OutgoingRecord { topic, partition, key, payload, headers, timestamp };
        hand_over(record, opaque).map_err(|error| (opaque, error))
    }
}

impl FirstRecordGate {
    /// A gate for a producer with this delivery timeout.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, topics: RwLock::default(), alone: AtomicUsize::new(0) }
    }

    /// Sends a record, or stores it until the first one of its partition was acknowledged.
    pub(crate) fn send(
        &self,
        record: OutgoingRecord<'_>,
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
                Partition::Alone { behind, .. } => {
                    behind.push_back(WaitingRecord::of(record, opaque))
                }
                Partition::Known => return hand_over(record, opaque),
            },
            Entry::Vacant(place) => {
                // Its report finds a first record in flight, and then waits for this lock.
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

    /// A record was reported. If it was a first one, the records behind it are sent: all of them if
    /// it was acknowledged, otherwise the next as the new first. Returns those that failed, in
    /// order.
    pub(crate) fn reported(
        &self,
        at: (&str, u32),
        (opaque, error): (usize, Option<&KafkaError>),
        hand_over: &impl HandOver,
    ) -> FailedRecords {
        let mut failed = Vec::new();
        let turn = match (place(&self.read(), at), error) {
            (Some(Partition::Alone { first, .. }), _) if *first == opaque => ReportEffect::First,
            (Some(Partition::Known), Some(_)) => ReportEffect::Forget,
            _ => ReportEffect::Nothing,
        };
        match turn {
            ReportEffect::Nothing => {}
            // Other threads get the lock in between.
            ReportEffect::First => while !self.follow(at, error, hand_over, &mut failed) {},
            ReportEffect::Forget => self.forget(at),
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

    /// Sends some of the records behind a first one that was reported; returns whether none is
    /// left.
    fn follow(
        &self,
        (topic, partition): (&str, u32),
        error: Option<&KafkaError>,
        hand_over: &impl HandOver,
        failed: &mut FailedRecords,
    ) -> bool {
        let mut topics = self.write();
        let Some(of_topic) = topics.get_mut(topic) else { return true };
        let Some(Partition::Alone { first, behind }) = of_topic.get_mut(&partition) else {
            return true;
        };
        for _ in 0..MAX_RECORDS_PER_TURN {
            let Some(next) = behind.pop_front() else {
                match error {
                    None => _ = of_topic.insert(partition, Partition::Known),
                    Some(_) => _ = of_topic.remove(&partition),
                }
                self.alone.fetch_sub(1, Ordering::SeqCst);
                return true;
            };
            let opaque = next.opaque;
            // It has waited as long as the first one.
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

    /// Drops all records that wait behind a first one, with this error.
    pub(crate) fn purge(&self, error: &KafkaError) -> FailedRecords {
        let mut topics = self.write();
        let partitions = topics.values_mut().flat_map(HashMap::values_mut);
        let waiting = partitions.filter_map(|partition| match partition {
            Partition::Alone { behind, .. } => Some(std::mem::take(behind)),
            Partition::Known => None,
        });
        waiting.flatten().map(|waiting| (waiting.opaque, error.clone())).collect()
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

    /// The records handed over; a payload `large` is refused.
    #[derive(Default)]
    struct Client(Mutex<Vec<usize>>);

    impl Client {
        fn take(&self, record: &OutgoingRecord<'_>, opaque: usize) -> Result<(), KafkaError> {
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

    fn record(partition: u32, payload: &[u8]) -> OutgoingRecord<'_> {
        let (key, headers, timestamp) = (Some(&b"k"[..]), None, Some(1));
        OutgoingRecord { topic: "t", partition, key, payload: Some(payload), headers, timestamp }
    }

    fn send(
        firsts: &FirstRecordGate,
        client: &Client,
        partition: u32,
        opaques: std::ops::Range<usize>,
    ) {
        for opaque in opaques {
            let take = |record: OutgoingRecord<'_>, opaque| client.take(&record, opaque);
            firsts.send(record(partition, b"x"), opaque, &take).unwrap();
        }
    }

    fn report(
        firsts: &FirstRecordGate,
        client: &Client,
        of: usize,
        error: Option<&KafkaError>,
    ) -> FailedRecords {
        let take = |record: OutgoingRecord<'_>, opaque| client.take(&record, opaque);
        firsts.reported(("t", 0), (of, error), &take)
    }

    #[test]
    fn what_is_behind_the_first_follows_when_that_was_acknowledged() {
        let (firsts, client) = (FirstRecordGate::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..5);
        send(&firsts, &client, 1, 5..7);
        assert_eq!(client.took(), [1, 5], "of each partition the first");
        assert!(report(&firsts, &client, 1, None).is_empty());
        assert_eq!(client.took(), [2, 3, 4]);
        send(&firsts, &client, 0, 7..9);
        assert_eq!(client.took(), [7, 8]);
        assert!(report(&firsts, &client, 2, None).is_empty());
        assert!(firsts.is_any_alone(), "the other partition's");
        assert_eq!(firsts.purge(&TIMED_OUT), [(6, TIMED_OUT)]);
    }

    #[test]
    fn where_the_first_failed_the_next_goes_alone() {
        let (firsts, client) = (FirstRecordGate::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..4);
        assert!(report(&firsts, &client, 1, Some(&TOO_LARGE)).is_empty());
        assert_eq!(client.took(), [1, 2]);
        assert!(report(&firsts, &client, 2, None).is_empty());
        assert_eq!(client.took(), [3]);
        assert!(!firsts.is_any_alone());
        let (firsts, client) = (FirstRecordGate::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..2);
        assert!(report(&firsts, &client, 1, Some(&TIMED_OUT)).is_empty());
        assert!(!firsts.is_any_alone());
        send(&firsts, &client, 0, 2..4);
        assert_eq!(client.took(), [1, 2], "nothing is known of it still");
    }

    #[test]
    fn where_a_record_has_failed_the_next_one_goes_alone_again() {
        let (firsts, client) = (FirstRecordGate::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 1..2);
        report(&firsts, &client, 1, None);
        send(&firsts, &client, 0, 2..5);
        assert!(report(&firsts, &client, 2, Some(&TIMED_OUT)).is_empty());
        send(&firsts, &client, 0, 5..7);
        assert_eq!(client.took(), [1, 2, 3, 4, 5]);
        // Later reports of earlier records release none.
        report(&firsts, &client, 3, None);
        report(&firsts, &client, 4, Some(&TIMED_OUT));
        assert!(client.took().is_empty());
        report(&firsts, &client, 5, None);
        assert_eq!(client.took(), [6]);
    }

    #[test]
    fn who_reports_at_once_sees_that_one_is_alone() {
        let firsts = FirstRecordGate::new(Duration::MAX);
        let seen = Mutex::new(false);
        let take = |_: OutgoingRecord<'_>, _| {
            *seen.lock().unwrap() = firsts.is_any_alone();
            Ok(())
        };
        firsts.send(record(0, b"x"), 1, &take).unwrap();
        assert!(*seen.lock().unwrap());
    }

    #[test]
    fn many_follow_in_order_while_others_send() {
        let (firsts, client) = (FirstRecordGate::new(Duration::MAX), Client::default());
        send(&firsts, &client, 0, 0..3 * MAX_RECORDS_PER_TURN);
        std::thread::scope(|scope| {
            scope.spawn(|| report(&firsts, &client, 0, None));
            send(&firsts, &client, 0, 3 * MAX_RECORDS_PER_TURN..6 * MAX_RECORDS_PER_TURN);
        });
        assert_eq!(client.took(), (0..6 * MAX_RECORDS_PER_TURN).collect::<Vec<_>>());
        assert!(!firsts.is_any_alone());
    }

    #[test]
    fn who_waited_as_long_as_the_first_fails_with_it() {
        let (firsts, client) = (FirstRecordGate::new(Duration::ZERO), Client::default());
        send(&firsts, &client, 0, 1..4);
        let failed = report(&firsts, &client, 1, Some(&TIMED_OUT));
        assert_eq!(failed, [(2, TIMED_OUT), (3, TIMED_OUT)]);
        assert_eq!(client.took(), [1]);
        assert!(!firsts.is_any_alone());
    }

    #[test]
    fn what_librdkafka_refuses_fails_alone() {
        let (firsts, client) = (FirstRecordGate::new(Duration::MAX), Client::default());
        let take = |record: OutgoingRecord<'_>, opaque| client.take(&record, opaque);
        assert_eq!(firsts.send(record(0, b"large"), 1, &take), Err(TOO_LARGE));
        send(&firsts, &client, 0, 2..3);
        firsts.send(record(0, b"large"), 3, &take).unwrap();
        send(&firsts, &client, 0, 4..5);
        assert_eq!(client.took(), [2]);
        assert_eq!(report(&firsts, &client, 2, None), [(3, TOO_LARGE)]);
        assert_eq!(client.took(), [4]);
    }
}
