//! A topic in memory, shared by all connections, and a connection's handle to it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use helio_core::qos::Guarantee;
use helio_core::{Producer, Qos, SchemaId, TopicName};

use super::super::{
    BatchAdmission, Declared, GroupState, PartitionInfo, Published, Reader, ReaderRequest, Receipt,
    Record, TransportTopic, Writer, WriterInfo, WriterRequest,
};
use super::group::Group;
use super::partition::{ClockReading, Partition};
use super::reader::MemoryReader;
use super::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES, SCHEME};
use crate::bell::locked;
use crate::clock::Clock;
use crate::error::{PublishError, TransportError};
use crate::receipts::PendingReceipt;

/// One topic.
pub(super) struct MemoryTopic {
    name: TopicName,
    qos: Qos,
    schemas: Mutex<Vec<SchemaId>>,
    partitions: Vec<Mutex<Partition>>,
    groups: Mutex<BTreeMap<String, Arc<Group>>>,
}

impl MemoryTopic {
    pub(super) fn new(name: TopicName, qos: Qos) -> Self {
        let partitions = (0..qos.partitions).map(|_| Mutex::new(Partition::new(&qos))).collect();
        Self { name, qos, partitions, schemas: Mutex::default(), groups: Mutex::default() }
    }

    pub(super) fn qos(&self) -> &Qos {
        &self.qos
    }

    pub(super) fn partitions(&self) -> &[Mutex<Partition>] {
        &self.partitions
    }

    pub(super) fn partition(&self, partition: u32) -> Result<&Mutex<Partition>, TransportError> {
        self.partitions.get(partition as usize).ok_or_else(|| TransportError::Unsupported {
            transport: SCHEME.to_owned(),
            what: format!("open partition {partition} of {}", self.name),
            remedy: format!("the topic has {} partitions", self.partitions.len()),
        })
    }

    pub(super) fn group(&self, name: &str) -> Arc<Group> {
        Arc::clone(locked(&self.groups).entry(name.to_owned()).or_default())
    }

    pub(super) fn wake_all(&self) {
        for partition in &self.partitions {
            let waiters = locked(partition).waiters.take();
            waiters.ring();
        }
        locked(&self.groups).values().for_each(|group| group.wake());
    }
}

/// A connection's handle to a topic.
pub(super) struct TopicConnection {
    pub(super) topic: Arc<MemoryTopic>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) closed: Arc<AtomicBool>,
}

impl TopicConnection {
    fn now(&self) -> ClockReading {
        ClockReading::by(&*self.clock, &self.topic.qos)
    }
}

impl TransportTopic for TopicConnection {
    fn qos(&self) -> &Qos {
        &self.topic.qos
    }

    fn schemas(&self) -> Result<Vec<SchemaId>, TransportError> {
        Ok(locked(&self.topic.schemas).clone())
    }

    fn declare_schema(&self, id: SchemaId, after: usize) -> Result<Declared, TransportError> {
        let mut schemas = locked(&self.topic.schemas);
        if schemas.len() != after || schemas.contains(&id) {
            return Ok(Declared::Behind);
        }
        schemas.push(id);
        Ok(Declared::Yes)
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        self.opened(request.partition, |partition, now| {
            let (topic, name) = (&self.topic, request.producer);
            partition.claim(&topic.name, name, topic.qos.ownership, now, &self.closed)
        })
    }

    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        self.opened(request.partition, |partition, now| {
            let (topic, name) = (&self.topic, request.producer.clone());
            let producer = Producer { name, incarnation };
            partition.adopt(&topic.name, producer, topic.qos.ownership, now, &self.closed)
        })
    }

    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        let reader = MemoryReader::open(&self.topic, request, Arc::clone(&self.closed))?;
        Ok(Box::new(reader))
    }

    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError> {
        let info = |(partition, state): (u32, &Mutex<Partition>)| {
            let state = locked(state);
            PartitionInfo {
                partition,
                first: state.first(),
                end: state.end(),
                durable: state.end(),
                bytes: Some(state.bytes()),
                missing: 0,
                missing_from: 0,
                last_time: state.last_time(),
                taken: None,
                log: None,
            }
        };
        Ok((0..).zip(&self.topic.partitions).map(info).collect())
    }

    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        let (now, each) = (self.now(), (0..).zip(&self.topic.partitions));
        Ok(each.flat_map(|(partition, state)| locked(state).writers(partition, now)).collect())
    }

    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        Ok(locked(&self.topic.groups).get(group).map_or_else(Vec::new, |g| g.all_committed()))
    }

    fn groups(&self) -> Result<Vec<GroupState>, TransportError> {
        let partitions = self.topic.qos.partitions;
        let groups = locked(&self.topic.groups);
        Ok(groups.iter().map(|(name, group)| group.state(name, partitions)).collect())
    }
}

impl TopicConnection {
    /// Opens a writer after its claim.
    fn opened(
        &self,
        partition: u32,
        claim: impl FnOnce(&mut Partition, ClockReading) -> Result<Arc<Producer>, TransportError>,
    ) -> Result<Box<dyn Writer>, TransportError> {
        let now = ClockReading::by(&*self.clock, &self.topic.qos);
        let producer = claim(&mut locked(self.topic.partition(partition)?), now)?;
        Ok(Box::new(MemoryWriter {
            topic: Arc::clone(&self.topic),
            partition,
            producer,
            clock: Arc::clone(&self.clock),
            closed: Arc::clone(&self.closed),
        }))
    }
}

struct MemoryWriter {
    topic: Arc<MemoryTopic>,
    partition: u32,
    producer: Arc<Producer>,
    clock: Arc<dyn Clock>,
    closed: Arc<AtomicBool>,
}

impl MemoryWriter {
    fn now(&self) -> ClockReading {
        ClockReading::by(&*self.clock, &self.topic.qos)
    }

    fn place(&self) -> &Mutex<Partition> {
        &self.topic.partitions[self.partition as usize]
    }

    fn check(&self, record: &Record<'_>) -> Result<(), TransportError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(TransportError::Closed);
        }
        record.check_size(SCHEME, MAX_PAYLOAD_BYTES, MAX_KEY_BYTES)
    }

    fn append(
        &self,
        records: &[Record<'_>],
    ) -> (Option<(u64, u64)>, usize, Option<TransportError>) {
        let now = self.now();
        let (mut last, mut taken, mut failed) = (None, 0, None);
        let mut partition = locked(self.place());
        for record in records {
            let appended =
                self.check(record).and_then(|()| partition.append(&self.producer, record, now));
            match appended {
                Ok(at) => (last, taken) = (Some(at), taken + 1),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let waiters = partition.waiters.take();
        drop(partition);
        waiters.ring();
        (last, taken, failed)
    }

    fn receipt(&self, offset: u64, sequence: u64, guarantee: Guarantee) -> Published {
        let offset = Some(offset);
        Published::Done(Receipt { partition: self.partition, offset, sequence, guarantee })
    }
}

impl Writer for MemoryWriter {
    fn producer(&self) -> &Producer {
        &self.producer
    }

    fn identify(&mut self, incarnation: u64, sequence: u64) -> Result<(), TransportError> {
        let place = &self.topic.partitions[self.partition as usize];
        locked(place).identify(&mut self.producer, incarnation, sequence)
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        match self.append(std::slice::from_ref(record)) {
            (Some((offset, sequence)), _, None) => Ok(self.receipt(offset, sequence, guarantee)),
            (_, _, error) => Err(error.unwrap_or(TransportError::Closed).into()),
        }
    }

    fn publish_batch(&mut self, records: &[Record<'_>], guarantee: Guarantee) -> BatchAdmission {
        let (last, taken, failed) = self.append(records);
        let mut admission = BatchAdmission { failed: failed.map(Into::into), ..Default::default() };
        if let Some((offset, sequence)) = last {
            admission.accept(taken, self.receipt(offset, sequence, guarantee));
        }
        admission
    }

    fn assert_alive(&mut self) -> Result<(), TransportError> {
        locked(self.place()).assert_alive(&self.producer, self.now())
    }

    fn flush(&mut self, _guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        Ok(None)
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        let mut partition = locked(self.place());
        partition.release(&self.producer);
        let waiters = partition.waiters.take();
        drop(partition);
        waiters.ring();
    }
}
