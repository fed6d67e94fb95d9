//! A target that says no in ways that no engine in this process does.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::transport::{
    Declared, PartitionInfo, Published, Reader, ReaderRequest, Record, Transport, TransportTopic,
    Writer, WriterRequest,
};
use helio_bus::{
    Bell, Bus, Capabilities, Guarantee, PendingReceipt, Producer, PublishError, Qos, SchemaId,
    TopicName, TransportError, WriterInfo, pending_receipt,
};

/// Of a forwarded sample, by producer and number: why it is refused, after it was taken.
pub(crate) type Refuses = Arc<dyn Fn(&str, u64) -> Option<PublishError> + Send + Sync>;

/// Memory, whose writers refuse late; without forwarders where nothing says what they refuse.
struct Target {
    inner: Arc<dyn Transport>,
    refuses: Option<Refuses>,
}

/// A bus on such a target.
pub(crate) fn target(refuses: Option<Refuses>) -> Bus {
    let inner = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    Bus::builder().over(Arc::new(Target { inner, refuses })).unwrap()
}

impl Target {
    fn topic(&self, inner: Arc<dyn TransportTopic>) -> Arc<dyn TransportTopic> {
        Arc::new(Topic { inner, refuses: self.refuses.clone() })
    }
}

impl Transport for Target {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn identity(&self) -> Result<Option<String>, TransportError> {
        self.inner.identity()
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        Ok(self.inner.open_topic(name)?.map(|topic| self.topic(topic)))
    }

    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        Ok(self.topic(self.inner.create_topic(name, qos)?))
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.inner.topics()
    }

    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        self.inner.put_schema(id, text)
    }

    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        self.inner.schema(id)
    }

    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError> {
        self.inner.bell()
    }

    fn close(&self) {
        self.inner.close();
    }
}

struct Topic {
    inner: Arc<dyn TransportTopic>,
    refuses: Option<Refuses>,
}

impl TransportTopic for Topic {
    fn qos(&self) -> &Qos {
        self.inner.qos()
    }

    fn schemas(&self) -> Result<Vec<SchemaId>, TransportError> {
        self.inner.schemas()
    }

    fn declare_schema(&self, id: SchemaId, after: usize) -> Result<Declared, TransportError> {
        self.inner.declare_schema(id, after)
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        self.inner.writer(request)
    }

    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        let Some(refuses) = self.refuses.clone() else {
            return Err(TransportError::Unsupported {
                transport: "odd".to_owned(),
                what: "take samples of other buses".to_owned(),
                remedy: "forward to another one".to_owned(),
            });
        };
        let inner = self.inner.forwarder(request, incarnation)?;
        Ok(Box::new(Late { inner, refuses, sequence: 0 }))
    }

    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        self.inner.reader(request)
    }

    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError> {
        self.inner.partitions()
    }

    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        self.inner.writers()
    }

    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        self.inner.committed(group)
    }
}

/// A writer whose samples are refused by their receipts, while later ones are taken.
struct Late {
    inner: Box<dyn Writer>,
    refuses: Refuses,
    sequence: u64,
}

impl Writer for Late {
    fn producer(&self) -> &Producer {
        self.inner.producer()
    }

    fn identify(&mut self, incarnation: u64, sequence: u64) -> Result<(), TransportError> {
        self.sequence = sequence;
        self.inner.identify(incarnation, sequence)
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        let name = self.inner.producer().name.clone();
        match (self.refuses)(name.as_str(), self.sequence) {
            None => self.inner.publish(record, guarantee),
            // Who is fenced is told at once.
            Some(error @ PublishError::Transport(TransportError::Fenced { .. })) => Err(error),
            Some(error) => {
                let (ticket, pending) = pending_receipt();
                ticket.complete(Err(error));
                Ok(Published::Pending(pending))
            }
        }
    }

    fn on_room(&mut self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.inner.on_room(notify);
    }

    fn assert_alive(&mut self) -> Result<(), TransportError> {
        self.inner.assert_alive()
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.inner.flush(guarantee)
    }
}
