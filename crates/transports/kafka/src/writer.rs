//! One producer of the bus in one partition.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::{BatchError, Published, Receipt, Record, Writer, locked};
use helio_bus::{Guarantee, PendingReceipt, PublishError, Ticket, TransportError, pending_receipt};
use helio_core::qos::Liveliness;
use helio_core::{Producer, Tai};

use crate::SCHEME;
use crate::claims::Claim;
use crate::error::{failed, undelivered};
use crate::header;
use crate::hold::{Found, Hold, Moment};
use crate::monitor::Health;
use crate::options::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES};
use crate::producer::{CLOSING, Notify, Outcome, Outgoing, Producer as Shared, Taken, Told};
use crate::tables::PRODUCERS;
use crate::topic::TopicState;

/// What a record costs besides what is in it, so that empty ones are bounded too.
const RECORD_OVERHEAD_BYTES: usize = 128;

/// What a writer says of itself: key and value of the record, and when.
type Word = (String, Vec<u8>, Tai);

pub(crate) struct KafkaWriter {
    topic: Arc<TopicState>,
    partition: u32,
    claim: Arc<Claim>,
    /// How often a publish says that the writer lives, and when it did; none without a lease.
    lease: Option<(Duration, Tai)>,
    /// Who publishes, as the next sample says.
    producer: Producer,
    sequence: u64,
    tally: Arc<Tally>,
    notify: Option<Notify>,
    header: Vec<u8>,
    /// The payload with its schema's number before it, where there is a registry.
    framed: Vec<u8>,
    utc: Utc,
}

impl KafkaWriter {
    pub(crate) fn new(topic: &Arc<TopicState>, partition: u32, claim: Arc<Claim>) -> Self {
        let lease = match topic.qos.liveliness {
            Liveliness::Lease(lease) => Some((lease / 4, topic.connection.clock.now())),
            Liveliness::Automatic => None,
        };
        let tally = Arc::new(Tally::new(format!("{}/{partition}", topic.name)));
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

    /// Gives a sample to the producer, and its copy for the companion; the ticket's owner hears
    /// when all of it has arrived.
    fn send(&mut self, record: &Record<'_>, ticket: Option<Ticket>) -> Result<(), PublishError> {
        self.topic.connection.check_open()?;
        self.claim.check()?;
        record.check_size(SCHEME, MAX_PAYLOAD_BYTES, MAX_KEY_BYTES)?;
        let topic = Arc::clone(&self.topic);
        let producer = match self.claim.forwards() {
            false => topic.connection.producer()?,
            true => topic.connection.forwarding(topic.batch())?,
        };
        let mut owner = self.owner();
        if owner.as_ref().map_or(Ok(false), |owner| owner.holds_back(self.notify.as_ref()))? {
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
        // What a report may come of before this returns has to be counted before.
        let number = self.tally.sent();
        let tally = Arc::clone(&self.tally);
        let told = || Told::Writer(Sample { ticket, receipt, number, tally, owner });
        let Some(taken) = producer.take((records, bytes), self.notify.as_ref(), told) else {
            self.tally.unsent();
            return Err(full(producer));
        };
        header::write(record, written.forms(record), (&self.producer, sequence), &mut self.header);
        let timestamp = Some(self.utc.millis(record.time).max(1));
        let outgoing = |topic, key| Outgoing {
            topic,
            partition: self.partition,
            key,
            payload: Some(payload),
            headers: Some(header::headers(&self.header, record.headers)),
            timestamp,
        };
        // In the log there is a difference between no key and one, in the companion there is none.
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

    /// Says what is to be said with a sample.
    fn tell(&mut self, producer: &Shared, (key, value, now): Word, taken: Taken) {
        let record = Outgoing {
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

    /// Who publishes now, where the topic is exclusive.
    fn owner(&self) -> Option<Owner> {
        self.claim.hold()?;
        let (claim, health) = (&self.claim, &self.topic.connection.health);
        let (claim, health) = (Arc::clone(claim), Arc::clone(health));
        Some(Owner { claim, health, since: Moment::now(), says: false })
    }

    /// What is to be said of the writer with a publish: where it has a lease, that it lives. The
    /// publish has arrived when that has.
    fn word(&self) -> Result<Option<Word>, TransportError> {
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

    /// Says so, and hears whether another has taken over: this waits for the brokers, where the
    /// topic is exclusive or has a lease.
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
            // Others write when they hear of it: not before what is under way has arrived.
            let arrived = self.tally.wait(self.receipt(Guarantee::Stored), None);
            let _ = arrived.wait(Some(CLOSING));
        }
        // Where it cannot be said, it looks as if the writer lived on.
        let _ = self.claim.release(connection);
    }
}

/// A sample under way: who waits for it.
pub(crate) struct Sample {
    ticket: Option<Ticket>,
    receipt: Receipt,
    /// Among those that its writer has sent.
    number: u64,
    tally: Arc<Tally>,
    /// Where the topic is exclusive.
    owner: Option<Owner>,
}

/// Whose sample it is, of an exclusive topic.
struct Owner {
    claim: Arc<Claim>,
    health: Arc<Health>,
    /// Before it was sent.
    since: Moment,
    /// Whether a word that its writer lives goes with it.
    says: bool,
}

impl Owner {
    fn hold(&self) -> &Hold {
        self.claim.hold().expect("the topic is exclusive")
    }

    /// Whether publishes are held back until it was looked who owns the topic.
    fn holds_back(&self, notify: Option<&Notify>) -> Result<bool, PublishError> {
        let holds = self.hold().holds_back(notify)?;
        if holds {
            self.health.suspect();
        }
        Ok(holds)
    }

    /// Tells a report when it is sure that the sample was the owner's. While it waits it keeps the
    /// claim, by which that is looked, also where the writer has gone.
    fn report(&self, told: impl FnOnce(Found) + Send + 'static) {
        if self.says {
            self.claim.writes(self.since);
        }
        if self.hold().report(told, &self.claim) {
            self.health.suspect();
        }
    }
}

impl Sample {
    /// All of it was reported.
    pub(crate) fn delivered(self, outcome: Outcome) {
        let Self { ticket, receipt, number, tally, owner } = self;
        let tell = move |outcome: Result<Option<u64>, PublishError>| {
            tally.done(number, outcome.as_ref().copied());
            if let Some(ticket) = ticket {
                ticket.complete(outcome.map(|offset| Receipt { offset, ..receipt }));
            }
        };
        match (owner, outcome) {
            // What a zombie had under way has arrived; readers drop it.
            (Some(owner), Ok(offset)) => owner.report(move |found| {
                tell(found.map(|()| offset));
            }),
            (_, outcome) => tell(outcome.map_err(|error| undelivered(&error))),
        }
    }
}

/// Which of a writer's samples were sent and have arrived, and who waits for which. They are
/// numbered from 1 as they are sent, and reported in any order: what waits for a look is told after
/// what failed behind it, and in another thread than what comes then.
pub(crate) struct Tally {
    /// Topic and partition.
    place: String,
    counts: Mutex<Counts>,
}

struct Counts {
    sent: u64,
    /// All up to this number were reported.
    done: u64,
    /// And these, with their offsets.
    ahead: BTreeMap<u64, Option<u64>>,
    /// The newest that has not arrived.
    failed: Option<(u64, PublishError)>,
    /// By the last sample of each.
    waiting: VecDeque<Waiting>,
    /// How many were reported when it was looked at, and since when.
    seen: (u64, Instant),
}

impl Counts {
    fn reported(&self) -> u64 {
        self.done + self.ahead.len() as u64
    }
}

/// Who waits for the samples of these numbers.
struct Waiting {
    first: u64,
    last: u64,
    receipt: Receipt,
    ticket: Ticket,
    error: Option<PublishError>,
}

impl Tally {
    fn new(place: String) -> Self {
        let seen = (0, Instant::now());
        let (ahead, waiting) = (BTreeMap::new(), VecDeque::new());
        let counts = Counts { sent: 0, done: 0, ahead, failed: None, waiting, seen };
        Self { place, counts: Mutex::new(counts) }
    }

    /// Gives the number of the next sample.
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

    /// Says so where samples are under way of which none has arrived for this time, as far as this
    /// is asked now and then.
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

    /// A receipt for the last so many samples, or for all that are under way.
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
            counts.waiting.push_back(Waiting { first, last, receipt, ticket, error });
        }
        pending
    }

    /// One has arrived, at its offset, or never will.
    fn done(&self, number: u64, outcome: Result<Option<u64>, &PublishError>) {
        let mut counts = locked(&self.counts);
        if let Err(error) = outcome {
            let range = |one: &&mut Waiting| (one.first..=one.last).contains(&number);
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
        for (Waiting { receipt, ticket, error, .. }, offset) in served {
            ticket.complete(error.map_or(Ok(Receipt { offset, ..receipt }), Err));
        }
    }
}

/// Milliseconds of UTC, looked up once a second.
#[derive(Default)]
struct Utc {
    second: i64,
    /// TAI - UTC in that second, in nanoseconds; none before the first look.
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
        let tally = Tally::new("t/0".to_owned());
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
        let tally = Tally::new("t/0".to_owned());
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
        let tally = Tally::new("t/0".to_owned());
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
        let tally = Tally::new("t/0".to_owned());
        let numbers = [tally.sent(), tally.sent()];
        assert!(tally.stalled(Duration::MAX).is_none());
        tally.done(numbers[1], Ok(None));
        assert!(tally.stalled(Duration::MAX).is_none());
        assert_eq!(tally.stalled(Duration::ZERO).unwrap(), "1 samples of t/0 are not acknowledged");
        tally.done(numbers[0], Ok(None));
        assert!(tally.is_clear());
    }
}
