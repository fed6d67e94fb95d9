//! One producer of the bus in one partition.

use std::sync::Arc;
use std::time::Duration;

use helio_bus::transport::{Published, Receipt, Record, Writer, no_sal_null};
use helio_bus::{
    Guarantee, PendingReceipt, PublishError, ReceiptSender, TransportError, pending_receipt,
};
use helio_core::qos::Liveliness;
use helio_core::{Producer, Tai};

use crate::SCHEME;
use crate::client::clock::{DualClock, UtcMillis};
use crate::client::delivery::{DeliveryCounter, InFlightSample, PendingSample, SentByOwner};
use crate::client::error::failed;
use crate::client::in_flight::{DeliveryReceiver, InFlightKey, OutgoingRecord};
use crate::client::names::PRODUCERS;
use crate::client::options::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES};
use crate::client::producer::{FLUSH_TIMEOUT, Producer as Shared};
use crate::client::signal::Notify;
use crate::internal::producers::WriterClaim;
use crate::topic::connection::Connection;
use crate::topic::header;
use crate::topic::state::TopicState;

/// The cost of a record besides its contents, so that empty records are limited too.
const RECORD_OVERHEAD_BYTES: usize = 128;

/// A writer's heartbeat: key and value of the record, and its time.
type Heartbeat = (String, Vec<u8>, Tai);

pub(crate) struct KafkaWriter {
    /// Kept open.
    _connection: Arc<Connection>,
    topic: Arc<TopicState>,
    partition: u32,
    claim: Arc<WriterClaim>,
    /// With a lease: how often a publish carries a heartbeat, and when the last one was sent.
    lease: Option<(Duration, Tai)>,
    /// The producer of the next sample.
    producer: Producer,
    sequence: u64,
    counter: Arc<DeliveryCounter>,
    notify: Option<Notify>,
    header: Vec<u8>,
    /// The payload behind its schema's number, if there is a registry.
    framed: Vec<u8>,
    utc: UtcMillis,
}

impl KafkaWriter {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        topic: &Arc<TopicState>,
        partition: u32,
        claim: Arc<WriterClaim>,
    ) -> Self {
        let lease = match topic.qos.liveliness {
            Liveliness::Lease(lease) => Some((lease / 4, topic.link.clock.now())),
            Liveliness::Automatic => None,
        };
        let counter = Arc::new(DeliveryCounter::new(format!("{}/{partition}", topic.name)));
        connection.add_counter(&counter);
        Self {
            _connection: Arc::clone(connection),
            topic: Arc::clone(topic),
            partition,
            producer: claim.producer().clone(),
            claim,
            lease,
            sequence: 0,
            counter,
            notify: None,
            header: Vec::new(),
            framed: Vec::new(),
            utc: UtcMillis::default(),
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
        self.topic.link.check_open()?;
        self.claim.check()?;
        record.check_size(SCHEME, MAX_PAYLOAD_BYTES, MAX_KEY_BYTES)?;
        let topic = Arc::clone(&self.topic);
        if record.is_null() && topic.format.is_sal() && !topic.link.options.sal_nulls {
            return Err(no_sal_null(&topic.name));
        }
        let producer = match self.claim.forwards() {
            false => topic.link.producer()?,
            true => topic.link.forwarding(topic.batch())?,
        };
        let since = self.claim.lease().map(|_| DualClock::now());
        if self.claim.defers_publishes(self.notify.as_ref())? {
            return Err(full(producer));
        }
        let written = topic.format.write(record, self.notify.as_ref(), &mut self.framed)?;
        let Some(written) = written else { return Err(full(producer)) };
        let payload = written.payload(record, &self.framed);
        let heartbeat = self.heartbeat()?;
        let records = 1 + u8::from(topic.companion.is_some()) + u8::from(heartbeat.is_some());
        let bytes =
            record.key.len() + payload.map_or(0, <[u8]>::len) + record.headers.as_bytes().len();
        let sequence = self.sequence + 1;
        let receipt = Receipt { sequence, ..self.receipt(topic.link.options.guarantee) };
        let owner = since.map(|since| SentByOwner {
            owner: Arc::clone(&self.claim) as _,
            since,
            has_heartbeat: heartbeat.is_some(),
        });
        // Counted first: its delivery may be reported before this returns.
        let number = self.counter.sent();
        let counter = Arc::clone(&self.counter);
        let pending = PendingSample { ticket, receipt, number, bytes, counter };
        let receiver = || DeliveryReceiver::Writer(InFlightSample { pending, owner });
        let room = (records, bytes + RECORD_OVERHEAD_BYTES);
        let Some(taken) = producer.take(room, self.notify.as_ref(), receiver) else {
            self.counter.unsent();
            return Err(full(producer));
        };
        header::write(record, written.forms(record), (&self.producer, sequence), &mut self.header);
        let timestamp = Some(self.utc.of(record.time).max(1));
        let outgoing = |topic, key| OutgoingRecord {
            topic,
            partition: self.partition,
            key,
            payload,
            headers: Some(header::headers(&self.header, record, written.forms(record).1)),
            timestamp,
        };
        // The log distinguishes no key from an empty one, the companion does not.
        let key = written.key(record);
        if let Err(error) = producer.send(outgoing(&topic.kafka, key), taken) {
            self.counter.unsent();
            return Err(failed("publish")(error).into());
        }
        if let Some(companion) = &topic.companion {
            producer.send_beside(outgoing(companion, Some(record.key)), taken);
        }
        if let Some(heartbeat) = heartbeat {
            self.send_heartbeat(producer, heartbeat, taken);
        }
        self.sequence = sequence;
        Ok(())
    }

    /// Sends the heartbeat that goes with a sample.
    fn send_heartbeat(
        &mut self,
        producer: &Shared,
        (key, value, now): Heartbeat,
        taken: InFlightKey,
    ) {
        let record = OutgoingRecord {
            topic: &self.topic.link.names.internal(PRODUCERS),
            partition: 0,
            key: Some(key.as_bytes()),
            payload: Some(&value),
            headers: None,
            timestamp: None,
        };
        producer.send_beside(record, taken);
        self.lease = self.lease.map(|(every, _)| (every, now));
    }

    /// The heartbeat that goes with a publish, if the writer has a lease and one is due. The
    /// publish is delivered when the heartbeat is.
    fn heartbeat(&self) -> Result<Option<Heartbeat>, TransportError> {
        let Some((every, sent)) = self.lease else { return Ok(None) };
        let link = &self.topic.link;
        let now = link.clock.now();
        let since = u128::try_from(now.nanos().saturating_sub(sent.nanos())).unwrap_or(0);
        if since < every.as_nanos() {
            return Ok(None);
        }
        let (key, value) = self.claim.heartbeat(link)?;
        Ok(Some((key, value, now)))
    }
}

fn full(producer: &Shared) -> PublishError {
    PublishError::Full {
        transport: SCHEME.to_owned(),
        queued: producer.under_way(),
        waits_for: None,
    }
}

impl Writer for KafkaWriter {
    fn producer(&self) -> &Producer {
        self.claim.producer()
    }

    fn identify(&mut self, incarnation: u64, sequence: u64) -> Result<(), TransportError> {
        self.claim.raise(&self.topic.tables, incarnation)?;
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

    fn on_room(&mut self, notify: Notify) {
        self.notify = Some(notify);
    }

    /// Sends a heartbeat and checks for a takeover. If the topic is exclusive or has a lease, this
    /// waits for the brokers.
    fn assert_alive(&mut self) -> Result<(), TransportError> {
        let link = &self.topic.link;
        link.check_open()?;
        if self.lease.is_some() || self.claim.lease().is_some() {
            self.claim.assert(&self.topic.tables)?;
        }
        let now = link.clock.now();
        self.lease = self.lease.map(|(every, _)| (every, now));
        Ok(())
    }

    fn flush(&mut self, _: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.topic.link.check_open()?;
        if self.counter.is_clear() {
            return Ok(None);
        }
        Ok(Some(self.counter.wait(self.receipt(self.topic.link.options.guarantee))))
    }
}

impl Drop for KafkaWriter {
    fn drop(&mut self) {
        let link = &self.topic.link;
        if link.is_closed() || link.health.is_lost() {
            return;
        }
        if self.claim.lease().is_some() {
            // Others take over when they read this: not before samples in flight were delivered.
            let arrived = self.counter.wait(self.receipt(Guarantee::Stored));
            if arrived.wait(Some(FLUSH_TIMEOUT)).is_none() {
                return;
            }
        }
        // If this fails, the writer seems alive until its session times out.
        let _ = self.claim.release(link);
    }
}
