//! Writes samples of one producer, published on another bus, to one partition.

use std::sync::Arc;

use helio_bus::transport::{Published, Record, Writer, WriterRequest};
use helio_bus::{Guarantee, Incompatible, PendingReceipt, PublishError, TransportError};
use helio_core::Producer;

use crate::options::PEER_RESPONSE_TIMEOUT;
use crate::topic::TopicState;
use crate::writer::{DdsWriter, Notify};

/// The writer of a producer's incarnation, or of a newer one after the producer restarted.
pub(crate) struct DdsForwarder(DdsWriter);

impl DdsForwarder {
    pub(crate) fn open(
        topic: &Arc<TopicState>,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Self, TransportError> {
        let producer = Producer { name: request.producer.clone(), incarnation };
        let (newer, newest) = topic.newest_in(request.partition, request.producer)?;
        if newer > incarnation {
            return Err(TransportError::Fenced { producer, newer });
        }
        let continues = newest == incarnation;
        DdsWriter::open_as(topic, request.partition, producer, continues).map(Self)
    }
}

impl Writer for DdsForwarder {
    fn producer(&self) -> &Producer {
        self.0.producer()
    }

    /// The first sample of a new incarnation waits until the new writer has matched its readers.
    fn identify(&mut self, incarnation: u64, sequence: u64) -> Result<(), TransportError> {
        let before = &self.0.shared;
        let Producer { name, incarnation: known } = before.producer.clone();
        if incarnation < known {
            let producer = Producer { name, incarnation };
            return Err(TransportError::Fenced { producer, newer: known });
        }
        if incarnation > known {
            // Gives the written samples time to arrive, and their receipts time to complete.
            before.wait(PEER_RESPONSE_TIMEOUT);
            let (topic, partition) = (Arc::clone(&before.topic), before.partition);
            let room = before.room();
            before.close();
            let request = WriterRequest { producer: &name, partition };
            *self = Self::open(&topic, &request, incarnation)?;
            room.into_iter().for_each(|room| self.on_room(room));
        }
        self.0.next = sequence;
        Ok(())
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        self.0.publish(record, guarantee)
    }

    fn on_room(&mut self, notify: Notify) {
        self.0.on_room(notify);
    }

    fn assert_alive(&mut self) -> Result<(), TransportError> {
        self.0.assert_alive()
    }

    fn incompatible(&self) -> Vec<Incompatible> {
        self.0.incompatible()
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.0.flush(guarantee)
    }
}
