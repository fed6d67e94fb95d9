//! One producer of the bus in one partition.

use std::collections::VecDeque;
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
use crate::hold::{Hold, Moment, Report};
use crate::monitor::Health;
use crate::options::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES};
use crate::producer::{Notify, Outcome, Outgoing, Producer as Shared, Taken, Told};
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
        let tally = &self.tally;
        owner.iter_mut().for_each(|owner| owner.says = word.is_some());
        let told = || Told::Writer(Sample { ticket, receipt, tally: Arc::clone(tally), owner });
        let Some(taken) = producer.take((records, bytes), self.notify.as_ref(), told) else {
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
        // What a report may come of before this returns has to be counted before.
        self.tally.sent();
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
                Published::Pending(self.tally.wait(receipt))
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
        Ok(Some(self.tally.wait(self.receipt(self.topic.connection.options.guarantee))))
    }
}

impl Drop for KafkaWriter {
    fn drop(&mut self) {
        let connection = &self.topic.connection;
        if !connection.is_closed() && !connection.health.is_lost() {
            // Where it cannot be said, it looks as if the writer lived on.
            let _ = self.claim.release(connection);
        }
    }
}

/// A sample under way: who waits for it.
pub(crate) struct Sample {
    ticket: Option<Ticket>,
    receipt: Receipt,
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
    fn holds_back(&self, notify: Option<&Notify>) -> Result<bool, TransportError> {
        let holds = self.hold().holds_back(notify)?;
        if holds {
            self.health.suspect();
        }
        Ok(holds)
    }

    /// Tells a report when it is sure that the sample was the owner's.
    fn report(&self, told: Report) {
        if self.says {
            self.claim.writes(self.since);
        }
        if self.hold().report(told) {
            self.health.suspect();
        }
    }
}

impl Sample {
    /// All of it was reported.
    pub(crate) fn delivered(self, outcome: Outcome) {
        let Self { ticket, receipt, tally, owner } = self;
        let tell = move |outcome: Result<Option<u64>, PublishError>| {
            tally.done(outcome.as_ref().ok().copied().flatten(), outcome.as_ref().err());
            if let Some(ticket) = ticket {
                ticket.complete(outcome.map(|offset| Receipt { offset, ..receipt }));
            }
        };
        match (owner, outcome) {
            // What a zombie had under way has arrived; readers drop it.
            (Some(owner), Ok(offset)) => owner.report(Box::new(move |found| {
                tell(found.map(|()| offset).map_err(Into::into));
            })),
            (_, outcome) => tell(outcome.map_err(|error| undelivered(&error))),
        }
    }
}

/// How many of a writer's samples were sent and have arrived, and who waits for which.
pub(crate) struct Tally {
    /// Topic and partition.
    place: String,
    counts: Mutex<Counts>,
}

struct Counts {
    sent: u64,
    done: u64,
    waiting: VecDeque<Waiting>,
    /// What `done` was when it was looked at, and since when.
    seen: (u64, Instant),
}

struct Waiting {
    for_count: u64,
    receipt: Receipt,
    ticket: Ticket,
    error: Option<PublishError>,
}

impl Tally {
    fn new(place: String) -> Self {
        let seen = (0, Instant::now());
        let counts = Counts { sent: 0, done: 0, waiting: VecDeque::new(), seen };
        Self { place, counts: Mutex::new(counts) }
    }

    fn sent(&self) {
        locked(&self.counts).sent += 1;
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
        let left = counts.sent - counts.done;
        if left == 0 || counts.seen.0 != counts.done {
            counts.seen = (counts.done, Instant::now());
        }
        let stalls = counts.seen.1.elapsed() >= time;
        stalls.then(|| format!("{left} samples of {} are not acknowledged", self.place))
    }

    /// A receipt for everything that was sent.
    fn wait(&self, receipt: Receipt) -> PendingReceipt {
        let (ticket, pending) = pending_receipt();
        let mut counts = locked(&self.counts);
        if counts.sent == counts.done {
            drop(counts);
            ticket.complete(Ok(receipt));
        } else {
            let for_count = counts.sent;
            counts.waiting.push_back(Waiting { for_count, receipt, ticket, error: None });
        }
        pending
    }

    /// One more has arrived, or never will. Reports come in the order of the partition.
    fn done(&self, offset: Option<u64>, error: Option<&PublishError>) {
        let mut counts = locked(&self.counts);
        counts.done += 1;
        if let Some(error) = error {
            counts.waiting.iter_mut().for_each(|one| {
                one.error.get_or_insert_with(|| error.clone());
            });
        }
        let mut served = Vec::new();
        while counts.waiting.front().is_some_and(|one| one.for_count <= counts.done) {
            served.extend(counts.waiting.pop_front());
        }
        drop(counts);
        for Waiting { receipt, ticket, error, .. } in served {
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

    #[test]
    fn who_waits_for_all_is_told_with_the_last() {
        let tally = Tally::new("t/0".to_owned());
        let receipt =
            Receipt { partition: 0, offset: None, sequence: 2, guarantee: Guarantee::Stored };
        tally.sent();
        tally.sent();
        let both = tally.wait(receipt);
        tally.sent();
        let all = tally.wait(receipt);
        tally.done(Some(10), None);
        assert!(both.outcome().is_none());
        tally.done(Some(11), None);
        assert_eq!(both.outcome().unwrap().unwrap().offset, Some(11));
        let lost = PublishError::Unknown { cause: "lost".to_owned() };
        tally.done(None, Some(&lost));
        assert!(all.outcome().unwrap().is_err());
        assert!(tally.is_clear());
    }
}
