//! What a subscription hands out: samples, and everything that a reader has to be told besides.

use std::time::Duration;

use bytes::Bytes;
use helio_core::{Header, Headers, Producer, SchemaId, TopicName};

use crate::transport::{Alive, Origin, SampleRef};

/// One thing that happened to a subscription, in order.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A sample.
    Sample(Sample),
    /// Samples that this subscription will never get.
    Gap(Gap),
    /// A sample that cannot be read with the subscription's schema. Where it is the writer's schema
    /// that cannot be read, its first sample is told and all are counted
    /// ([`Subscribe::each_undecodable`](crate::Subscribe::each_undecodable) tells all).
    Undecodable(Undecodable),
    /// Samples of a replaced incarnation are being dropped (told once an incarnation, counted
    /// each).
    Fenced(Fenced),
    /// No sample of a key came within the deadline.
    DeadlineMissed(DeadlineMissed),
    /// A writer came or went.
    Liveliness(Liveliness),
    /// The engine cannot be reached, or can again.
    Outage(Outage),
    /// The partitions that this member of a group reads from now on.
    Assigned(Vec<u32>),
    /// A writer of the topic offers what this subscription's transport does not take: its samples
    /// do not come.
    Incompatible(Incompatible),
}

impl Event {
    /// The sample, if it is one.
    #[must_use]
    pub fn into_sample(self) -> Option<Sample> {
        match self {
            Self::Sample(sample) => Some(sample),
            _ => None,
        }
    }
}

/// A sample that owns what it carries; cloning shares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: u32,
    /// The place in the partition.
    pub offset: u64,
    /// The key; empty is none.
    pub key: Bytes,
    /// Producer, sequence, time, schema, level, trace. The schema is that of `payload` as it is
    /// here.
    pub header: Header,
    /// Named values beside the payload.
    pub headers: Headers,
    /// The encoded value.
    pub payload: Bytes,
    /// Whether it came in the log's order or from a late joiner's history.
    pub origin: Origin,
}

impl Sample {
    pub(crate) fn copied(topic: &TopicName, from: &SampleRef<'_>) -> Self {
        let mut both = Vec::with_capacity(from.key.len() + from.payload.len());
        both.extend_from_slice(from.payload);
        both.extend_from_slice(from.key);
        let mut payload = Bytes::from(both);
        let key = payload.split_off(from.payload.len());
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
        }
    }
}

/// Samples that a subscription will never get, and why.
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
    /// What retention has removed: the offsets from one up to another, which is there.
    #[must_use]
    pub fn retention(partition: u32, from: u64, to: u64) -> Self {
        Self { partition, lost: to - from, cause: GapCause::Retention { from, to } }
    }
}

/// Why samples are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapCause {
    /// Retention removed them before they were read: these offsets.
    Retention {
        /// The first that is lost.
        from: u64,
        /// The first that is not.
        to: u64,
    },
    /// The subscription's own overload policy passed over these offsets.
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
    /// The producer numbered samples that never came.
    Sequence {
        /// Whose samples.
        producer: Producer,
        /// The first number that is missing.
        from: u64,
        /// The number that came instead.
        to: u64,
    },
}

/// A sample whose bytes or schema a subscription cannot read. It is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// The sample as it was written.
    pub sample: Sample,
    /// The schema that it was written with.
    pub schema: SchemaId,
    /// What is wrong, with the field's name.
    pub reason: String,
}

/// An incarnation whose samples are dropped because a newer one has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced {
    /// The partition.
    pub partition: u32,
    /// The zombie.
    pub producer: Producer,
    /// The incarnation that took over.
    pub newer: u64,
}

/// A key that fell silent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadlineMissed {
    /// The key; empty where samples have none.
    pub key: Bytes,
    /// The deadline that was missed.
    pub deadline: Duration,
    /// How many deadlines in a row were missed by now.
    pub in_a_row: u64,
}

/// A writer that came or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liveliness {
    /// Who.
    pub producer: Producer,
    /// Whether it lives now.
    pub alive: Alive,
}

/// A policy in which a reader and a writer of one topic do not fit: they exchange no samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incompatible {
    /// The policy, in the field's own name.
    pub policy: String,
}

/// What happened to the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outage {
    /// It cannot be reached; the transport tries on.
    Lost {
        /// The engine's words.
        cause: String,
    },
    /// It can be reached again.
    Restored,
}
