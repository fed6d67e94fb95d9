//! Forwarding: samples that were published on another bus, published here as they are.

use std::sync::Arc;

use helio_core::qos::Guarantee;
use helio_core::{HeadersRef, Producer};

use crate::error::{PublishError, TransportError};
use crate::receipts::{PendingPublish, PendingReceipt};
use crate::topic_core::TopicCore;
use crate::transport::{Record, SampleRef, Writer, WriterRequest};

/// Publishes into one partition what one producer has published on another bus: name, incarnation,
/// number, time, key, level, trace and schema stay what they are, and nothing is decoded. What
/// replaces incarnations, drops repeats and counts losses therefore does so here as it does there.
///
/// It counts as the producer's writer while it is open, and as an exclusive topic's. A producer
/// that opens a publisher here itself takes over from it: its incarnation is newer.
///
/// ```
/// use helio_bus::{Bus, Message, Qos, Start, Subscribe, TopicSpec};
///
/// let (from, to) = (Bus::connect("memory:")?, Bus::connect("memory:")?);
/// let wind = TopicSpec::new("weather/wind")?.qos(Qos::telemetry());
/// let (here, there) = (from.topic(wind.clone())?, to.topic(wind)?);
/// here.publisher()?.publish(Message::new(b"7.5")).wait()?;
///
/// let sample = here.subscribe(Subscribe::from(Start::Earliest))?.next_sample()?;
/// let mut forwarder = there.forwarder(&sample.header.producer, sample.partition)?;
/// forwarder.forward(&sample.as_ref(), sample.headers.as_ref())?.wait()?;
/// let forwarded = there.subscribe(Subscribe::from(Start::Earliest))?.next_sample()?;
/// assert_eq!(forwarded.header, sample.header);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Forwarder {
    writer: Box<dyn Writer>,
    guarantee: Guarantee,
    /// The most that the transport has.
    offered: Guarantee,
}

impl Forwarder {
    pub(crate) fn open(
        topic: &TopicCore,
        producer: &Producer,
        partition: u32,
    ) -> Result<Self, TransportError> {
        let request = WriterRequest { producer: &producer.name, partition };
        let writer = topic.transport.forwarder(&request, producer.incarnation)?;
        let offered = topic.bus.transport.capabilities().guarantee;
        // What is only accepted tells its forwarder nothing.
        let guarantee = topic.transport.qos().guarantee.max(Guarantee::Stored).min(offered);
        Ok(Self { writer, guarantee, offered })
    }

    /// Publishes a sample of its producer, with these headers, under the topic's guarantee, at
    /// least *stored* where the transport has it. Where the queue is full nothing was done: wait
    /// until there [is room](Self::on_room).
    ///
    /// # Errors
    /// [`PublishError::Full`]; [`TransportError::Fenced`] where the producer publishes here itself
    /// by now, or the sample is of an older incarnation than one before; the transport's error.
    pub fn forward(
        &mut self,
        sample: &SampleRef<'_>,
        headers: HeadersRef<'_>,
    ) -> Result<PendingPublish, PublishError> {
        self.writer.identify(sample.producer.incarnation, sample.sequence)?;
        let record = Record {
            key: sample.key,
            payload: sample.payload,
            time: sample.time,
            schema: sample.schema,
            level: sample.level,
            trace: sample.trace,
            headers,
        };
        Ok(PendingPublish::from(Ok(self.writer.publish(&record, self.guarantee)?)))
    }

    /// Publishes under another guarantee than the topic's, as far as the transport has it.
    #[must_use]
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = guarantee.min(self.offered);
        self
    }

    /// A receipt for when everything that was forwarded so far is kept under a guarantee; none
    /// where it is.
    ///
    /// # Errors
    /// [`PublishError`]: the transport's error.
    pub fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.writer.flush(guarantee)
    }

    /// Names who is told whenever there is room again after a full queue.
    pub fn on_room(&mut self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.writer.on_room(notify);
    }

    /// Shows that the producer lives, where the topic's liveliness is by lease.
    ///
    /// # Errors
    /// [`TransportError::Fenced`] where the producer publishes here itself by now.
    pub fn assert_alive(&mut self) -> Result<(), TransportError> {
        self.writer.assert_alive()
    }
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder")
            .field("producer", self.writer.producer())
            .finish_non_exhaustive()
    }
}
