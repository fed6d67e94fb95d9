//! The writers that all publishers of one producer share on one topic.

use std::sync::{Arc, Mutex, OnceLock};

use helio_core::ProducerName;
use helio_core::qos::Ownership;

use crate::backpressure::{Counters, WriterSlot};
use crate::bell::locked;
use crate::error::TransportError;
use crate::transport::{TransportTopic, WriterRequest};

/// One writer a partition, opened with the partition's first sample.
pub(crate) struct Writers {
    topic: Arc<dyn TransportTopic>,
    producer: ProducerName,
    /// The transport's name, for messages.
    transport: String,
    slots: Vec<OnceLock<Arc<WriterSlot>>>,
    opening: Mutex<()>,
    pub(crate) counters: Arc<Counters>,
}

impl Writers {
    pub(crate) fn open(
        topic: &Arc<dyn TransportTopic>,
        producer: &ProducerName,
        transport: &str,
    ) -> Result<Self, TransportError> {
        let qos = topic.qos();
        let writers = Self {
            topic: Arc::clone(topic),
            producer: producer.clone(),
            transport: transport.to_owned(),
            slots: (0..qos.partitions).map(|_| OnceLock::new()).collect(),
            opening: Mutex::default(),
            counters: Arc::default(),
        };
        // All partitions of an exclusive topic, so that a second writer is refused at open.
        let at_once = if qos.ownership == Ownership::Exclusive { qos.partitions } else { 1 };
        for partition in 0..at_once {
            writers.slot(partition)?;
        }
        Ok(writers)
    }

    /// A partition's writer, which is opened if necessary.
    pub(crate) fn slot(&self, partition: u32) -> Result<&Arc<WriterSlot>, TransportError> {
        if let Some(slot) = self.open_slot(partition) {
            return Ok(slot);
        }
        let _one = locked(&self.opening);
        if let Some(slot) = self.open_slot(partition) {
            return Ok(slot);
        }
        let request = WriterRequest { producer: &self.producer, partition };
        let counters = Arc::clone(&self.counters);
        let slot = WriterSlot::open(&*self.topic, &request, &self.transport, counters)?;
        Ok(self.slots[partition as usize].get_or_init(|| slot))
    }

    /// A partition's writer, if it is open.
    pub(crate) fn open_slot(&self, partition: u32) -> Option<&Arc<WriterSlot>> {
        self.slots[partition as usize].get()
    }

    pub(crate) fn open_slots(&self) -> impl Iterator<Item = &Arc<WriterSlot>> {
        self.slots.iter().filter_map(OnceLock::get)
    }

    pub(crate) fn close(&self) {
        self.open_slots().for_each(|slot| slot.close());
    }
}
