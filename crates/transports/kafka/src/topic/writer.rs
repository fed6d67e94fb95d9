//! One producer of the bus in one partition.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::{BatchError, Published, Receipt, Record, Writer, locked};
use helio_bus::{
    Guarantee, PendingReceipt, PublishError, ReceiptSender, TransportError, pending_receipt,
};
use helio_core::qos::Liveliness;
use helio_core::{Producer, Tai};

use crate::SCHEME;
use crate::client::error::{failed, undelivered};
use crate::client::health::Health;
use crate::client::options::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES};
use crate::client::producer::{
    DeliveryOutcome, DeliveryReceiver, FLUSH_TIMEOUT, InFlightKey, Notify, OutgoingRecord,
    Producer as Shared,
};
use crate::internal::internal_topics::PRODUCERS;
use crate::internal::ownership_lease::{DualClock, OwnershipCheck, OwnershipLease};
use crate::internal::producers::WriterClaim;
use crate::topic::header;
use crate::topic::transport::TopicState;

/// The cost of a record besides its contents, so that empty records are limited too.
const RECORD_OVERHEAD_BYTES: usize = 128;

/// A writer's heartbeat: key and value of the record, and its time.
type Heartbeat = (String, Vec<u8>, Tai);

pub(crate) struct KafkaWriter {
    topic: Arc<TopicState>,
    partition: u32,
    claim: Arc<WriterClaim>,
    /// With a lease: how often a publish carries a heartbeat, and when the last one was sent.
    lease: Option<(Duration, Tai)>,
    /// The producer of the next sample.
    producer: Producer,
    sequence: u64,
    tally: Arc<DeliveryCounter>,
    notify: Option<Notify>,
    header: Vec<u8>,
    /// The payload behind its schema's number, if there is a registry.
    framed: Vec<u8>,
    utc: Utc,
}

impl KafkaWriter {
    pub(crate) fn new(topic: &Arc<TopicState>, partition: u32, claim: Arc<WriterClaim>) -> Self {
        let lease = match topic.qos.liveliness {
            Liveliness::Lease(lease) => Some((lease / 4, topic.connection.clock.now())),
            Liveliness::Automatic => None,
        };
        let tally = Arc::new(DeliveryCounter::new(format!("{}/{partition}", topic.name)));
        topic.connection.add_tally(&tally);
        Self {
            topic: Arc::clone(topic),
            partition,
            producer: claim.producer().clone(),
            claim,
            lease,
            sequence: 0,
            tally,
            notify: None,
            header: Vec::new(),
            framed: Vec::new(),
            utc: Utc::default(),
        }
    }

    fn receipt(&self, guarantee: Guarantee) -> Receipt {
        Receipt { partition: self.partition, offset: None, sequence: self.sequence, guarantee }
    }

    /// Sends a sample and its copy for the companion; the ticket completes when both were
    /// delivered.
    fn send(
        &mut self,
        record: &Record<'_>,
        ticket: Option<ReceiptSender>,
    ) -> Result<(), PublishError> {
        self.topic.connection.check_open()?;
        self.claim.check()?;
        record.check_size(SCHEME, MAX_PAYLOAD_BYTES, MAX_KEY_BYTES)?;
        let topic = Arc::clone(&self.topic);
        let producer = match self.claim.forwards() {
            false => topic.connection.producer()?,
            true => topic.connection.forwarding(topic.batch())?,
        };
        let mut owner = self.owner();
        if owner.as_ref().map_or(Ok(false), |owner| owner.defers_publishes(self.notify.as_ref()))? {
            return Err(full(producer));
        }
        let written = topic.wire.write(record, self.notify.as_ref(), &mut self.framed)?;
        let Some(written) = written else { return Err(full(producer)) };
        let payload = written.payload(record, &self.framed);
        let word = self.word()?;
        let records = 1 + u8::from(topic.companion.is_some()) + u8::from(word.is_some());
        let bytes = record.key.len()
            + payload.len()
            + record.headers.as_bytes().len()
            + RECORD_OVERHEAD_BYTES;
        let sequence = self.sequence + 1;
        let receipt = Receipt { sequence, ..self.receipt(topic.connection.options.guarantee) };
        owner.iter_mut().for_each(|owner| owner.says = word.is_some());
        // Counted first: its delivery may be reported before this returns.
        let number = self.tally.sent();
        let tally = Arc::clone(&self.tally);
        let told =
            || DeliveryReceiver::Writer(InFlightSample { ticket, receipt, number, tally, owner });
        let Some(taken) = producer.take((records, bytes), self.notify.as_ref(), told) else {
            self.tally.unsent();
            return Err(full(producer));
        };
        header::write(record, written.forms(record), (&self.producer, sequence), &mut self.header);
        let timestamp = Some(self.utc.millis(record.time).max(1));
        let outgoing = |topic, key| OutgoingRecord {
            topic,
            partition: self.partition,
            key,
            payload: Some(payload),
            headers: Some(header::headers(&self.header, record.headers)),
            timestamp,
        };
        // The log distinguishes no key from an empty one, the companion does not.
        let key = written.key(record);
        if let Err(error) = producer.send(outgoing(&topic.kafka, key), taken) {
            self.tally.unsent();
            return Err(failed("publish")(error).into());
        }
        if let Some(companion) = &topic.companion {
            producer.send_beside(outgoing(companion, Some(record.key)), taken);
        }
        if let Some(word) = word {
            self.tell(producer, word, taken);
        }
        self.sequence = sequence;
        Ok(())
    }

    /// Sends the heartbeat that goes with a sample.
    fn tell(&mut self, producer: &Shared, (key, value, now): Heartbeat, taken: InFlightKey) {
        let record = OutgoingRecord {
            topic: &self.topic.connection.names.internal(PRODUCERS),
            partition: 0,
            key: Some(key.as_bytes()),
            payload: Some(&value),
            headers: None,
            timestamp: None,
        };
        producer.send_beside(record, taken);
        self.lease = self.lease.map(|(every, _)| (every, now));
    }

    /// The owner of the next sample, if the topic is exclusive.
    fn owner(&self) -> Option<SampleOwner> {
        self.claim.hold()?;
        let (claim, health) = (&self.claim, &self.topic.connection.health);
        let (claim, health) = (Arc::clone(claim), Arc::clone(health));
        Some(SampleOwner { claim, health, since: DualClock::now(), says: false })
    }

    /// The heartbeat that goes with a publish, if the writer has a lease and one is due. The
    /// publish is delivered when the heartbeat is.
    fn word(&self) -> Result<Option<Heartbeat>, TransportError> {
        let Some((every, said)) = self.lease else { return Ok(None) };
        let connection = &self.topic.connection;
        let now = connection.clock.now();
        let since = u128::try_from(now.nanos().saturating_sub(said.nanos())).unwrap_or(0);
        if since < every.as_nanos() {
            return Ok(None);
        }
        let (key, value) = self.claim.record(connection)?;
        Ok(Some((key, value, now)))
    }
}

fn full(producer: &Shared) -> PublishError {
    PublishError::Full { transport: SCHEME.to_owned(), queued: producer.under_way() }
}

impl Writer for KafkaWriter {
    fn producer(&self) -> &Producer {
        self.claim.producer()
    }

    fn identify(&mut self, incarnation: u64, sequence: u64) -> Result<(), TransportError> {
        self.claim.raise(&self.topic.connection, incarnation)?;
        self.producer.incarnation = incarnation;
        self.sequence = sequence.saturating_sub(1);
        Ok(())
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        if guarantee == Guarantee::Accepted {
            self.send(record, None)?;
            return Ok(Published::Done(self.receipt(Guarantee::Accepted)));
        }
        let (ticket, pending) = pending_receipt();
        self.send(record, Some(ticket))?;
        Ok(Published::Pending(pending))
    }

    fn publish_batch(
        &mut self,
        records: &[Record<'_>],
        guarantee: Guarantee,
    ) -> Result<Option<Published>, Box<BatchError>> {
        let (mut taken, mut failed) = (0, None);
        for record in records {
            if let Err(cause) = self.send(record, None) {
                failed = Some(cause);
                break;
            }
            taken += 1;
        }
        let last = (taken > 0).then(|| match guarantee {
            Guarantee::Accepted => Published::Done(self.receipt(Guarantee::Accepted)),
            _ => {
                let receipt = self.receipt(self.topic.connection.options.guarantee);
                Published::Pending(self.tally.wait(receipt, Some(taken)))
            }
        });
        match failed {
            None => Ok(last),
            Some(cause) => Err(Box::new(BatchError { taken, last, cause })),
        }
    }

    fn on_room(&mut self, notify: Notify) {
        self.notify = Some(notify);
    }

    /// Sends a heartbeat and checks for a takeover. If the topic is exclusive or has a lease, this
    /// waits for the brokers.
    fn assert_alive(&mut self) -> Result<(), TransportError> {
        let connection = &self.topic.connection;
        connection.check_open()?;
        if self.lease.is_some() || self.claim.hold().is_some() {
            self.claim.assert(connection)?;
        }
        let now = connection.clock.now();
        self.lease = self.lease.map(|(every, _)| (every, now));
        Ok(())
    }

    fn flush(&mut self, _: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.topic.connection.check_open()?;
        if self.tally.is_clear() {
            return Ok(None);
        }
        Ok(Some(self.tally.wait(self.receipt(self.topic.connection.options.guarantee), None)))
    }
}

impl Drop for KafkaWriter {
    fn drop(&mut self) {
        let connection = &self.topic.connection;
        if connection.is_closed() || connection.health.is_lost() {
            return;
        }
        if self.claim.hold().is_some() {
            // Others take over when they read this: not before samples in flight were delivered.
            let arrived = self.tally.wait(self.receipt(Guarantee::Stored), None);
            let _ = arrived.wait(Some(FLUSH_TIMEOUT));
        }
        // If this fails, the writer seems alive until its session times out.
        let _ = self.claim.release(connection);
    }
}

/// A sample in flight, and who waits for it.
pub(crate) struct InFlightSample {
    ticket: Option<ReceiptSender>,
    receipt: Receipt,
    /// Its number among the writer's samples.
    number: u64,
    tally: Arc<DeliveryCounter>,
    /// Present if the topic is exclusive.
    owner: Option<SampleOwner>,
}

/// The owner of a sample of an exclusive topic.
struct SampleOwner {
    claim: Arc<WriterClaim>,
    health: Arc<Health>,
    /// Before it was sent.
    since: DualClock,
    /// Whether a heartbeat of its writer goes with it.
    says: bool,
}

impl SampleOwner {
    fn hold(&self) -> &OwnershipLease {
        self.claim.hold().expect("the topic is exclusive")
    }

    /// Whether publishes are deferred until the ownership was checked.
    fn defers_publishes(&self, notify: Option<&Notify>) -> Result<bool, PublishError> {
        let holds = self.hold().defers_publishes(notify)?;
        if holds {
            self.health.suspect();
        }
        Ok(holds)
    }

    /// Calls a report when it is certain that the sample was the owner's. A deferred report holds
    /// the claim, which the check needs, even if the writer was dropped.
    fn report(&self, told: impl FnOnce(OwnershipCheck) + Send + 'static) {
        if self.says {
            self.claim.writes(self.since);
        }
        if self.hold().report(told, &self.claim) {
            self.health.suspect();
        }
    }
}

impl InFlightSample {
    /// All of its records were reported.
    pub(crate) fn delivered(self, outcome: DeliveryOutcome) {
        let Self { ticket, receipt, number, tally, owner } = self;
        let tell = move |outcome: Result<Option<u64>, PublishError>| {
            tally.done(number, outcome.as_ref().copied());
            if let Some(ticket) = ticket {
                ticket.complete(outcome.map(|offset| Receipt { offset, ..receipt }));
            }
        };
        match (owner, outcome) {
            // A sample in flight of a fenced writer was delivered; readers drop it.
            (Some(owner), Ok(offset)) => owner.report(move |found| {
                tell(found.map(|()| offset));
            }),
            (_, outcome) => tell(outcome.map_err(|error| undelivered(&error))),
        }
    }
}

/// Which of a writer's samples were sent and delivered, and which flushes wait for them. Samples
/// are numbered from 1 and reported in any order: a deferred report comes after later failures, and
/// on another thread.
pub(crate) struct DeliveryCounter {
    /// Topic and partition.
    place: String,
    counts: Mutex<DeliveryCounts>,
}

struct DeliveryCounts {
    sent: u64,
    /// All samples up to this number were reported.
    done: u64,
    /// Later samples that were reported, with their offsets.
    ahead: BTreeMap<u64, Option<u64>>,
    /// The newest sample that failed.
    failed: Option<(u64, PublishError)>,
    /// In the order of the last sample of each.
    waiting: VecDeque<PendingFlush>,
    /// How many were reported at the last check, and since when.
    seen: (u64, Instant),
}

impl DeliveryCounts {
    fn reported(&self) -> u64 {
        self.done + self.ahead.len() as u64
    }
}

/// A flush that waits for the samples of these numbers.
struct PendingFlush {
    first: u64,
    last: u64,
    receipt: Receipt,
    ticket: ReceiptSender,
    error: Option<PublishError>,
}

impl DeliveryCounter {
    fn new(place: String) -> Self {
        let seen = (0, Instant::now());
        let (ahead, waiting) = (BTreeMap::new(), VecDeque::new());
        let counts = DeliveryCounts { sent: 0, done: 0, ahead, failed: None, waiting, seen };
        Self { place, counts: Mutex::new(counts) }
    }

    /// Returns the number of the next sample.
    fn sent(&self) -> u64 {
        let mut counts = locked(&self.counts);
        counts.sent += 1;
        counts.sent
    }

    fn unsent(&self) {
        locked(&self.counts).sent -= 1;
    }

    fn is_clear(&self) -> bool {
        let counts = locked(&self.counts);
        counts.sent == counts.done
    }

    /// Returns a message if samples are in flight and none was delivered for this time, provided
    /// that this is called regularly.
    pub(crate) fn stalled(&self, time: Duration) -> Option<String> {
        let mut counts = locked(&self.counts);
        let reported = counts.reported();
        let left = counts.sent - reported;
        if left == 0 || counts.seen.0 != reported {
            counts.seen = (reported, Instant::now());
        }
        let stalls = counts.seen.1.elapsed() >= time;
        stalls.then(|| format!("{left} samples of {} are not acknowledged", self.place))
    }

    /// A receipt for the last so many samples, or for all in flight.
    fn wait(&self, receipt: Receipt, samples: Option<usize>) -> PendingReceipt {
        let (ticket, pending) = pending_receipt();
        let mut counts = locked(&self.counts);
        let last = counts.sent;
        let before = samples.map_or(counts.done, |samples| last.saturating_sub(samples as u64));
        let first = before + 1;
        let failed = counts.failed.as_ref().filter(|(number, _)| *number >= first);
        let error = failed.map(|(_, error)| error.clone());
        if counts.done == last {
            drop(counts);
            ticket.complete(error.map_or(Ok(receipt), Err));
        } else {
            counts.waiting.push_back(PendingFlush { first, last, receipt, ticket, error });
        }
        pending
    }

    /// A sample was delivered at its offset, or has failed.
    fn done(&self, number: u64, outcome: Result<Option<u64>, &PublishError>) {
        let mut counts = locked(&self.counts);
        if let Err(error) = outcome {
            let range = |one: &&mut PendingFlush| (one.first..=one.last).contains(&number);
            counts.waiting.iter_mut().filter(range).for_each(|one| {
                one.error.get_or_insert_with(|| error.clone());
            });
            if counts.failed.as_ref().is_none_or(|(newest, _)| *newest < number) {
                counts.failed = Some((number, error.clone()));
            }
        }
        let offset = outcome.unwrap_or(None);
        if number != counts.done + 1 {
            counts.ahead.insert(number, offset);
            return;
        }
        let (mut served, mut next) = (Vec::new(), Some(offset));
        while let Some(offset) = next {
            counts.done += 1;
            while counts.waiting.front().is_some_and(|one| one.last <= counts.done) {
                served.extend(counts.waiting.pop_front().map(|one| (one, offset)));
            }
            let number = counts.done + 1;
            next = counts.ahead.remove(&number);
        }
        drop(counts);
        for (PendingFlush { receipt, ticket, error, .. }, offset) in served {
            ticket.complete(error.map_or(Ok(Receipt { offset, ..receipt }), Err));
        }
    }
}

/// Milliseconds of UTC; the offset is looked up once a second.
#[derive(Default)]
struct Utc {
    second: i64,
    /// TAI - UTC in that second, in nanoseconds; `None` before the first lookup.
    offset: Option<i64>,
}

impl Utc {
    fn millis(&mut self, time: Tai) -> i64 {
        let second = time.nanos().div_euclid(1_000_000_000);
        let offset = match self.offset.filter(|_| second == self.second) {
            Some(offset) => offset,
            None => time.nanos() - time.unix_nanos(),
        };
        (self.second, self.offset) = (second, Some(offset));
        (time.nanos() - offset).div_euclid(1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_is_looked_up_once_a_second() {
        let mut utc = Utc::default();
        for nanos in [0, 1_800_000_000_123_456_789, 1_800_000_000_999_999_999, -1, 1_483_228_836] {
            let time = Tai::from_nanos(nanos);
            assert_eq!(utc.millis(time), time.unix_nanos().div_euclid(1_000_000), "{nanos}");
        }
    }

    const RECEIPT: Receipt =
        Receipt { partition: 0, offset: None, sequence: 2, guarantee: Guarantee::Stored };

    fn lost() -> PublishError {
        PublishError::Unknown { cause: "lost".to_owned() }
    }

    fn offset(pending: &PendingReceipt) -> Option<u64> {
        pending.outcome().unwrap().unwrap().offset
    }

    #[test]
    fn who_waits_for_all_is_told_with_the_last() {
        let tally = DeliveryCounter::new("t/0".to_owned());
        let numbers = [tally.sent(), tally.sent()];
        let both = tally.wait(RECEIPT, None);
        let third = tally.sent();
        let all = tally.wait(RECEIPT, None);
        tally.done(numbers[0], Ok(Some(10)));
        assert!(both.outcome().is_none());
        tally.done(numbers[1], Ok(Some(11)));
        assert_eq!(offset(&both), Some(11));
        tally.done(third, Err(&lost()));
        assert!(all.outcome().unwrap().is_err());
        assert!(tally.is_clear());
    }

    #[test]
    fn reports_in_any_order_tell_each_its_own() {
        let tally = DeliveryCounter::new("t/0".to_owned());
        let first: Vec<_> = (0..3).map(|_| tally.sent()).collect();
        let stored = tally.wait(RECEIPT, Some(3));
        let second: Vec<_> = (0..2).map(|_| tally.sent()).collect();
        let failed = tally.wait(RECEIPT, Some(2));
        let flushed = tally.wait(RECEIPT, None);
        tally.done(second[0], Err(&lost()));
        tally.done(second[1], Ok(Some(13)));
        tally.done(first[2], Ok(Some(12)));
        tally.done(first[0], Ok(Some(10)));
        assert!(stored.outcome().is_none() && failed.outcome().is_none() && !tally.is_clear());
        tally.done(first[1], Ok(Some(11)));
        assert_eq!(offset(&stored), Some(12));
        assert!(failed.outcome().unwrap().is_err() && flushed.outcome().unwrap().is_err());
        assert!(tally.is_clear());
    }

    #[test]
    fn what_failed_before_its_batch_was_whole_fails_the_batch() {
        let tally = DeliveryCounter::new("t/0".to_owned());
        tally.done(tally.sent(), Err(&lost()));
        tally.done(tally.sent(), Ok(Some(11)));
        assert!(tally.wait(RECEIPT, Some(2)).outcome().unwrap().is_err());
        assert!(tally.wait(RECEIPT, Some(1)).outcome().unwrap().is_ok());
        tally.done(tally.sent(), Err(&lost()));
        let last = tally.sent();
        let (batch, all) = (tally.wait(RECEIPT, Some(2)), tally.wait(RECEIPT, None));
        tally.done(last, Ok(Some(13)));
        assert!(batch.outcome().unwrap().is_err());
        assert_eq!(offset(&all), Some(13), "what has failed before was told");
    }

    #[test]
    fn samples_that_arrive_ahead_of_others_are_no_standstill() {
        let tally = DeliveryCounter::new("t/0".to_owned());
        let numbers = [tally.sent(), tally.sent()];
        assert!(tally.stalled(Duration::MAX).is_none());
        tally.done(numbers[1], Ok(None));
        assert!(tally.stalled(Duration::MAX).is_none());
        assert_eq!(tally.stalled(Duration::ZERO).unwrap(), "1 samples of t/0 are not acknowledged");
        tally.done(numbers[0], Ok(None));
        assert!(tally.is_clear());
    }
}
