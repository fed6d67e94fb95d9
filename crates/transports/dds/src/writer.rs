//! One producer of the bus in one partition.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helio_bus::transport::{Published, Receipt, Record, Writer, WriterRequest, locked};
use helio_bus::{
    Guarantee, Incompatible, PendingReceipt, PublishError, Ticket, TransportError, pending_receipt,
};
use helio_core::qos::{Liveliness, Ownership};
use helio_core::{Producer, Tai};

use crate::SCHEME;
use crate::connection::Connection;
use crate::entity::{self, Listener, News, Refused};
use crate::envelope::{self, Header};
use crate::error::{engine, failed};
use crate::misfits::Misfits;
use crate::options::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES};
use crate::tables::{self, Claim, End, Opened, Stand, Word, WriterWord};
use crate::topic::TopicState;

/// Who is told of room.
type Notify = Arc<dyn Fn() + Send + Sync>;

/// The most receipts of a writer that wait for acknowledgements.
const MAX_WAITING: usize = 100_000;

/// What a connection knows of a writer.
pub(crate) struct Outgoing {
    pub(crate) topic: Arc<TopicState>,
    pub(crate) partition: u32,
    pub(crate) producer: Producer,
    writer: entity::Writer,
    /// How many samples it has written.
    sequence: AtomicU64,
    claim: Option<Claim>,
    /// When it last said that it lives: nanoseconds of TAI by the bus's clock.
    seen: Mutex<i64>,
    /// The incarnation that has taken over; 0 is none.
    fenced_by: AtomicU64,
    waiting: Mutex<VecDeque<(Receipt, Ticket)>>,
    misfits: Arc<Mutex<Misfits>>,
    wants_room: AtomicBool,
    room: Mutex<Option<Notify>>,
}

impl Outgoing {
    /// Where it stands.
    pub(crate) fn stand(&self) -> Stand {
        let Producer { name, incarnation } = self.producer.clone();
        let sequence = self.sequence.load(Ordering::Acquire);
        Stand { partition: self.partition, producer: name, incarnation, sequence }
    }

    pub(crate) fn guid(&self) -> String {
        tables::guid(self.writer.guid())
    }

    /// The readers that it has met.
    fn met(&self) -> Vec<String> {
        let readers = self.writer.readers().unwrap_or_default();
        let ends = readers.into_iter().filter_map(|reader| self.writer.subscription(reader));
        ends.map(|end| tables::guid(end.guid)).collect()
    }

    pub(crate) fn has_met(&self, reader: &str) -> bool {
        self.met().iter().any(|met| met == reader)
    }

    fn connection(&self) -> &Arc<Connection> {
        &self.topic.connection
    }

    /// Looks whether others have taken over.
    pub(crate) fn look(&self) {
        let newer = self.connection().tables.look(|state| {
            let others = state.writers(&self.topic.name);
            let others = others.filter(|(_, other)| other.partition == self.partition);
            let takes_over = |other: &WriterWord| {
                let same = other.producer == self.producer.name;
                let fences = |claim: &Claim| claim.fences.contains(&self.producer.incarnation);
                (same && other.incarnation > self.producer.incarnation)
                    || (!same && other.claim.as_ref().is_some_and(fences))
            };
            let over = others.filter(|(_, other)| takes_over(other));
            over.map(|(_, other)| {
                let same = other.producer == self.producer.name;
                if same { other.incarnation } else { self.producer.incarnation }
            })
            .max()
        });
        if let Some(newer) = newer {
            self.fenced_by.store(newer, Ordering::Release);
        }
    }

    fn check(&self) -> Result<(), TransportError> {
        self.connection().check_open()?;
        match self.fenced_by.load(Ordering::Acquire) {
            0 => Ok(()),
            newer => Err(TransportError::Fenced { producer: self.producer.clone(), newer }),
        }
    }

    fn word(&self, open: bool) -> Word {
        Word::Writer {
            topic: self.topic.name.clone(),
            writer: WriterWord {
                partition: self.partition,
                producer: self.producer.name.clone(),
                incarnation: self.producer.incarnation,
                open,
                seen: *locked(&self.seen),
                claim: self.claim.clone(),
            },
        }
    }

    /// Says that it lives.
    fn live(&self) -> Result<(), TransportError> {
        *locked(&self.seen) = self.connection().clock.now().nanos();
        self.connection().tables.say(self.word(true))
    }

    /// Says so with a publish, where a quarter of the lease has passed since it last did.
    fn live_by_publishing(&self) -> Result<(), TransportError> {
        let Liveliness::Lease(lease) = self.topic.qos.liveliness else { return Ok(()) };
        let since = self.connection().clock.now().nanos().saturating_sub(*locked(&self.seen));
        if u128::try_from(since).unwrap_or(0) < (lease / 4).as_nanos() {
            return Ok(());
        }
        self.live()
    }

    /// Whether the thread has something to wait for here.
    pub(crate) fn is_waiting(&self) -> bool {
        self.wants_room.load(Ordering::Acquire) || !locked(&self.waiting).is_empty()
    }

    /// Waits for acknowledgements, and tells who waits for them or for room.
    pub(crate) fn wait(&self, at_most: Duration) {
        let written = self.sequence.load(Ordering::Acquire);
        let all = self.writer.wait_for_acknowledgements(at_most);
        if matches!(all, Ok(true)) {
            let mut told = Vec::new();
            let mut waiting = locked(&self.waiting);
            while waiting.front().is_some_and(|(receipt, _)| receipt.sequence <= written) {
                told.extend(waiting.pop_front());
            }
            drop(waiting);
            told.into_iter().for_each(|(receipt, ticket)| ticket.complete(Ok(receipt)));
        }
        // Where there was no room yet, the next publish says so again.
        if self.wants_room.swap(false, Ordering::AcqRel) {
            let notify = locked(&self.room).clone();
            notify.into_iter().for_each(|notify| notify());
        }
    }

    /// No more receipts will come.
    pub(crate) fn end(&self) {
        let waiting = std::mem::take(&mut *locked(&self.waiting));
        waiting
            .into_iter()
            .for_each(|(_, ticket)| ticket.complete(Err(TransportError::Closed.into())));
        let notify = locked(&self.room).take();
        notify.into_iter().for_each(|notify| notify());
    }
}

/// The bus's end of a writer.
pub(crate) struct DdsWriter {
    shared: Arc<Outgoing>,
    head: Vec<u8>,
    utc: Utc,
}

impl DdsWriter {
    pub(crate) fn open(
        topic: &Arc<TopicState>,
        request: &WriterRequest<'_>,
    ) -> Result<Self, TransportError> {
        let connection = &topic.connection;
        topic.partitions(&[request.partition])?;
        let partition = request.partition;
        let incarnation = connection.tables.look(|state| {
            let same = |(_, other): &(&str, &WriterWord)| other.producer == *request.producer;
            let newest = state.writers(&topic.name).filter(same).map(|(_, w)| w.incarnation).max();
            tables::unix_nanos().max(newest.map_or(1, |newest| newest + 1))
        });
        let producer = Producer { name: request.producer.clone(), incarnation };
        let seen = connection.clock.now().nanos();
        let claim = topic.claim(partition, &producer, seen)?;
        let strength = claim.as_ref().map(|claim| claim.strength);
        let envelopes = connection.envelopes(&topic.name)?;
        let qos = topic.writer_qos(partition, strength)?;
        let misfits = Arc::<Mutex<Misfits>>::default();
        let found = Arc::clone(&misfits);
        let listener: Listener = Box::new(move |news| {
            if let News::Incompatible(policy) = news {
                locked(&found).add(policy);
            }
        });
        let writer = entity::Writer::open(&envelopes, &qos, Some(listener));
        let writer = writer.map_err(failed("open the writer"))?;
        let shared = Arc::new(Outgoing {
            topic: Arc::clone(topic),
            partition,
            producer,
            writer,
            sequence: AtomicU64::new(0),
            claim,
            seen: Mutex::new(seen),
            fenced_by: AtomicU64::new(0),
            waiting: Mutex::default(),
            misfits,
            wants_room: AtomicBool::new(false),
            room: Mutex::default(),
        });
        connection.add_writer(&shared);
        connection.tables.say(shared.word(true))?;
        // Those of this connection that were replaced hear of it as others do.
        connection.writers().iter().for_each(|writer| writer.look());
        let opened = Opened {
            topic: topic.name.clone(),
            end: End::Writer,
            guid: shared.guid(),
            partitions: vec![partition],
        };
        connection.meet(opened, || shared.met())?;
        Ok(Self { shared, head: Vec::new(), utc: Utc::default() })
    }

    fn send(&mut self, record: &Record<'_>) -> Result<Receipt, PublishError> {
        let shared = &self.shared;
        shared.check()?;
        record.check_size(SCHEME, MAX_PAYLOAD_BYTES, MAX_KEY_BYTES)?;
        shared.live_by_publishing()?;
        let sequence = shared.sequence.load(Ordering::Relaxed) + 1;
        let header = Header::of(record, &shared.producer, (shared.partition, sequence));
        envelope::write_head(&header, record.payload.len(), &mut self.head);
        let pieces = envelope::pieces(&self.head, record.payload);
        match shared.writer.write(&pieces, self.utc.nanos(record.time).max(0)) {
            Ok(()) => {}
            Err(Refused::Full) => {
                shared.wants_room.store(true, Ordering::Release);
                shared.connection().ring();
                return Err(PublishError::Full { transport: SCHEME.to_owned(), queued: 0 });
            }
            Err(Refused::Failed(error)) => return Err(engine("publish", error).into()),
        }
        shared.sequence.store(sequence, Ordering::Release);
        let (partition, guarantee) = (shared.partition, Guarantee::Accepted);
        Ok(Receipt { partition, offset: None, sequence, guarantee })
    }

    /// What was written as far as the receipt says, under the guarantee: at once where no reader
    /// has to acknowledge it any more.
    fn held(&self, receipt: Receipt, guarantee: Guarantee) -> Result<Published, PublishError> {
        if guarantee == Guarantee::Accepted {
            return Ok(Published::Done(receipt));
        }
        let receipt = Receipt { guarantee, ..receipt };
        let acknowledged = self.shared.writer.wait_for_acknowledgements(Duration::ZERO);
        if acknowledged.map_err(failed("look for acknowledgements"))? {
            return Ok(Published::Done(receipt));
        }
        let (ticket, pending) = pending_receipt();
        let mut waiting = locked(&self.shared.waiting);
        waiting.push_back((receipt, ticket));
        drop(waiting);
        self.shared.connection().ring();
        Ok(Published::Pending(pending))
    }
}

impl Writer for DdsWriter {
    fn producer(&self) -> &Producer {
        &self.shared.producer
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        if guarantee > Guarantee::Accepted && locked(&self.shared.waiting).len() >= MAX_WAITING {
            self.shared.wants_room.store(true, Ordering::Release);
            self.shared.connection().ring();
            return Err(PublishError::Full { transport: SCHEME.to_owned(), queued: MAX_WAITING });
        }
        let receipt = self.send(record)?;
        self.held(receipt, guarantee)
    }

    fn on_room(&mut self, notify: Notify) {
        *locked(&self.shared.room) = Some(notify);
    }

    /// Says so; where the topic is exclusive and the lease was over, it waits to hear whether
    /// another has taken over.
    fn assert_alive(&mut self) -> Result<(), TransportError> {
        let shared = &self.shared;
        shared.check()?;
        let leased = matches!(shared.topic.qos.liveliness, Liveliness::Lease(_));
        if leased || shared.topic.qos.ownership == Ownership::Exclusive {
            shared.live()?;
            shared.writer.assert_alive().map_err(failed("assert liveliness"))?;
            if shared.claim.is_some() {
                let holders = shared.connection().tables.look(|s| s.holders(&shared.topic.name));
                shared.connection().tables.ask(Some(holders), None)?;
                shared.look();
            }
        }
        shared.check()
    }

    fn incompatible(&self) -> Vec<Incompatible> {
        locked(&self.shared.misfits).all()
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.shared.connection().check_open()?;
        let sequence = self.shared.sequence.load(Ordering::Relaxed);
        let partition = self.shared.partition;
        let receipt = Receipt { partition, offset: None, sequence, guarantee: Guarantee::Accepted };
        match self.held(receipt, guarantee)? {
            Published::Done(_) => Ok(None),
            Published::Pending(pending) => Ok(Some(pending)),
        }
    }
}

impl Drop for DdsWriter {
    fn drop(&mut self) {
        if !self.shared.connection().is_closed() {
            // Where it cannot be said, the writer is gone with its session.
            let _ = self.shared.connection().tables.say(self.shared.word(false));
        }
    }
}

/// Nanoseconds of UTC, looked up once a second.
#[derive(Default)]
struct Utc {
    second: i64,
    /// TAI - UTC in that second, in nanoseconds; none before the first look.
    offset: Option<i64>,
}

impl Utc {
    fn nanos(&mut self, time: Tai) -> i64 {
        let second = time.nanos().div_euclid(1_000_000_000);
        let offset = match self.offset.filter(|_| second == self.second) {
            Some(offset) => offset,
            None => time.nanos() - time.unix_nanos(),
        };
        (self.second, self.offset) = (second, Some(offset));
        time.nanos() - offset
    }
}
