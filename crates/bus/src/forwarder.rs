//! Forwarding: publishes another bus's samples unchanged.

use std::sync::Arc;

use helio_core::qos::Guarantee;
use helio_core::{HeadersRef, Producer};

use crate::error::{PublishError, TransportError};
use crate::receipts::{PendingPublish, PendingReceipt};
use crate::topic_core::TopicCore;
use crate::transport::{Record, SampleRef, Writer, WriterRequest};

/// Publishes one producer's samples from another bus into one partition. Name, incarnation,
/// sequence, time, key, level, trace and schema are unchanged, and nothing is decoded. Fencing,
/// duplicates and losses are therefore detected here as they are there.
///
/// While it is open, it counts as the producer's writer, and as an exclusive topic's. A producer
/// that opens a publisher here itself has a newer incarnation and replaces it.
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
    /// The transport's strongest guarantee.
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
        // A receipt of *accepted* would give the forwarder no information.
        let guarantee = topic.transport.qos().guarantee.max(Guarantee::Stored).min(offered);
        Ok(Self { writer, guarantee, offered })
    }

    /// Publishes a sample of its producer, with these headers, under the topic's guarantee, at
    /// least *stored* if the transport offers it. If the queue is full, nothing was done: wait [for
    /// room](Self::on_room).
    ///
    /// # Errors
    /// [`PublishError::Full`]; [`TransportError::Fenced`] if the producer publishes here itself by
    /// now, or if the sample's incarnation is older than a previous one; the transport's error.
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

    /// Sets another guarantee than the topic's, up to the transport's strongest.
    #[must_use]
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = guarantee.min(self.offered);
        self
    }

    /// A receipt for all samples forwarded so far; `None` if the guarantee holds already.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.writer.flush(guarantee)
    }

    /// Sets a callback for room in the queue after [`PublishError::Full`].
    pub fn on_room(&mut self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.writer.on_room(notify);
    }

    /// Renews the producer's liveliness lease.
    ///
    /// # Errors
    /// [`TransportError::Fenced`] if the producer publishes here itself by now.
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
