//! Events of a subscription: samples, and notices about the stream.

use std::time::Duration;

use bytes::Bytes;
use helio_core::{Header, Headers, Producer, SchemaId, TopicName};

use crate::transport::{Alive, Origin, SampleRef};

/// An event of a subscription, in order.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A sample.
    Sample(Sample),
    /// Samples that this subscription will never receive.
    Gap(Gap),
    /// A sample that cannot be read with the subscription's schema. If the writer's schema is the
    /// cause, only its first sample is reported and all are counted
    /// ([`Subscribe::each_undecodable`](crate::Subscribe::each_undecodable) reports all).
    Undecodable(Undecodable),
    /// Samples of a replaced incarnation are dropped. It is reported once an incarnation; each
    /// sample is counted.
    Fenced(Fenced),
    /// No sample of a key came within the deadline.
    DeadlineMissed(DeadlineMissed),
    /// A writer has appeared or is gone.
    Liveliness(Liveliness),
    /// The engine became unreachable, or reachable again.
    Outage(Outage),
    /// The partitions assigned to this member of a group.
    Assigned(Vec<u32>),
    /// A writer of the topic is incompatible: its samples are not received.
    Incompatible(Incompatible),
}

impl Event {
    /// The sample, if the event is one.
    #[must_use]
    pub fn into_sample(self) -> Option<Sample> {
        match self {
            Self::Sample(sample) => Some(sample),
            _ => None,
        }
    }
}

/// A sample that owns its bytes; cloning shares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: u32,
    /// The offset in the partition.
    pub offset: u64,
    /// The key; empty is none.
    pub key: Bytes,
    /// Producer, sequence, time, schema, level, trace. The schema is that of `payload`, which may
    /// have been converted.
    pub header: Header,
    /// Named values beside the payload.
    pub headers: Headers,
    /// The encoded value; empty for a [null](Self::is_null).
    pub payload: Bytes,
    /// Whether it comes from the log or from a late joiner's history.
    pub origin: Origin,
}

/// Smaller payloads are copied: a pin costs an allocation, too.
const MIN_PINNED_BYTES: usize = 16 << 10;

impl SampleRef<'_> {
    /// Returns the payload in place; `None` if it is not [pinned](crate::Subscribe::pinned), or
    /// small.
    #[must_use]
    pub fn pinned(&self) -> Option<Bytes> {
        self.pin.filter(|_| self.payload.len() >= MIN_PINNED_BYTES)?.pin(self.payload)
    }
}

/// Payload and key, in one allocation.
fn copied(from: &SampleRef<'_>) -> (Bytes, Bytes) {
    let mut both = Vec::with_capacity(from.key.len() + from.payload.len());
    both.extend_from_slice(from.payload);
    both.extend_from_slice(from.key);
    let mut payload = Bytes::from(both);
    let key = payload.split_off(from.payload.len());
    (payload, key)
}

impl Sample {
    /// The sample with its bytes in place if they can be pinned, or else with a copy.
    pub(crate) fn owned(topic: &TopicName, from: &SampleRef<'_>) -> Self {
        let (payload, key) = match from.pinned() {
            Some(payload) => (payload, Bytes::copy_from_slice(from.key)),
            None => copied(from),
        };
        Self {
            topic: topic.clone(),
            partition: from.partition,
            offset: from.offset,
            key,
            header: Header {
                producer: from.producer.clone(),
                sequence: from.sequence,
                time: from.time,
                schema: from.schema,
                level: from.level,
                trace: from.trace,
            },
            headers: from.headers.into(),
            payload,
            origin: from.origin,
        }
    }

    /// Whether it has no value: it deletes its key's last value. An empty payload is a value.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.as_ref().is_null()
    }

    /// The same sample, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> SampleRef<'_> {
        SampleRef {
            partition: self.partition,
            offset: self.offset,
            key: &self.key,
            producer: &self.header.producer,
            sequence: self.header.sequence,
            time: self.header.time,
            schema: self.header.schema,
            level: self.header.level,
            trace: self.header.trace,
            headers: self.headers.as_ref(),
            payload: &self.payload,
            origin: self.origin,
            pin: None,
        }
    }
}

/// Samples that a subscription will never receive, and the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The partition.
    pub partition: u32,
    /// How many samples are lost.
    pub lost: u64,
    /// Why.
    pub cause: GapCause,
}

impl Gap {
    /// Samples that retention removed: the offsets `from..to`.
    #[must_use]
    pub fn retention(partition: u32, from: u64, to: u64) -> Self {
        Self { partition, lost: to - from, cause: GapCause::Retention { from, to } }
    }
}

/// Why samples are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapCause {
    /// Retention removed these offsets before they were read.
    Retention {
        /// The first that is lost.
        from: u64,
        /// The first that is not.
        to: u64,
    },
    /// The subscription's own overload policy skipped these offsets.
    Overload {
        /// The first that is lost.
        from: u64,
        /// The first that is not.
        to: u64,
    },
    /// The engine cut or skipped damaged records.
    Damaged {
        /// The first offset that is lost.
        from: u64,
        /// The first that is not.
        to: u64,
    },
    /// The log is another one than the committed position's: it was cut below it, or restored from
    /// an older copy. No sample is lost by it: reading resumes where other samples begin, and some
    /// may be repeated.
    Replaced {
        /// The offset at which reading resumes.
        from: u64,
        /// The position that was committed in the former log.
        to: u64,
    },
    /// Numbers of the producer's sequence are missing.
    Sequence {
        /// Whose samples.
        producer: Producer,
        /// The first number that is missing.
        from: u64,
        /// The number received instead.
        to: u64,
    },
    /// Reader behind: this reader stood still, and the producer's writer, which waits for no reader
    /// of the topic, did not have these samples any more.
    Behind {
        /// Whose samples.
        producer: Producer,
        /// The first number that is missing.
        from: u64,
        /// The number received instead.
        to: u64,
    },
}

/// A sample whose bytes or schema a subscription cannot read. It is skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// The sample as it was written. If only [required
    /// fields](crate::TopicSpec::required_fields) are missing, it is converted to the
    /// subscription's schema, with the defaults of these fields; its header names that schema.
    pub sample: Sample,
    /// The schema that it was written with.
    pub schema: SchemaId,
    /// The cause, with the field's name.
    pub reason: String,
}

/// A replaced incarnation, whose samples are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced {
    /// The partition.
    pub partition: u32,
    /// The zombie.
    pub producer: Producer,
    /// The incarnation that replaced it.
    pub newer: u64,
}

/// A key without a sample within the deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadlineMissed {
    /// The key; empty if samples have none.
    pub key: Bytes,
    /// The deadline that was missed.
    pub deadline: Duration,
    /// How many deadlines in a row were missed so far.
    pub in_a_row: u64,
}

/// A change of a writer's liveliness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liveliness {
    /// Who.
    pub producer: Producer,
    /// Whether it is alive now.
    pub alive: Alive,
}

/// A policy in which a reader and a writer of one topic are incompatible: they exchange no samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incompatible {
    /// The policy, in the field's own name.
    pub policy: String,
}

/// A change of the engine's reachability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outage {
    /// It is unreachable; the transport retries.
    Lost {
        /// The engine's message.
        cause: String,
    },
    /// It is reachable again.
    Restored,
}
