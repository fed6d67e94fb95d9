//! The open topic that all handles of one producer share.

use std::sync::{Arc, Mutex, Weak};

use helio_core::{ProducerName, TopicName};

use crate::bell::locked;
use crate::bus_core::BusCore;
use crate::error::TransportError;
use crate::transport::TransportTopic;
use crate::writers::Writers;

pub(crate) struct TopicCore {
    pub(crate) name: TopicName,
    pub(crate) producer: ProducerName,
    pub(crate) transport: Arc<dyn TransportTopic>,
    pub(crate) bus: Arc<BusCore>,
    writers: Mutex<Weak<Writers>>,
}

impl TopicCore {
    pub(crate) fn new(
        name: TopicName,
        producer: ProducerName,
        transport: Arc<dyn TransportTopic>,
        bus: Arc<BusCore>,
    ) -> Self {
        Self { name, producer, transport, bus, writers: Mutex::default() }
    }

    /// Fails all publishes that are blocked by a full queue.
    pub(crate) fn close(&self) {
        if let Some(writers) = locked(&self.writers).upgrade() {
            writers.close();
        }
    }

    /// The shared writers. Two publishers with writers of their own would fence each other.
    pub(crate) fn writers(&self) -> Result<Arc<Writers>, TransportError> {
        let mut shared = locked(&self.writers);
        if let Some(open) = shared.upgrade() {
            return Ok(open);
        }
        let transport = &self.bus.transport.capabilities().transport;
        let opened = Arc::new(Writers::open(&self.transport, &self.producer, transport)?);
        *shared = Arc::downgrade(&opened);
        Ok(opened)
    }
}
