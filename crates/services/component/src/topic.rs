//! Opening a component's topics on a bus.

use std::sync::Arc;
use std::time::Duration;

use helio_bus::{Bus, PublishError, ReadError, Topic, TopicError, TopicSpec, TransportError};
use helio_core::{ProducerName, TopicName};
use thiserror::Error;

use crate::fields::FieldError;
use crate::interface::{InterfaceError, Shape};
use crate::protocol::caller::MissingFields;

/// How long a topic's stored samples may take to arrive. Until they have, none of them counts as
/// missing.
pub const STORED_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a topic could not be written. Nothing was published.
#[derive(Debug, Clone, Error)]
pub enum WriteError {
    /// A value does not fit its field.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The component has no such topic.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The topic cannot be opened, for example because its readers could not read this schema.
    #[error("{topic} cannot be opened: {reason}")]
    Open {
        /// The topic.
        topic: String,
        /// The bus's error.
        reason: String,
    },
    /// The component is not the live instance and must not write.
    #[error("{topic} is not {identity}'s to write any more: {reason}; start it again")]
    NotLive {
        /// The topic.
        topic: String,
        /// The component, with its index.
        identity: String,
        /// The state of its lease.
        reason: &'static str,
    },
    /// The bus did not accept the sample.
    #[error("{topic}: {source}")]
    Publish {
        /// The topic.
        topic: String,
        /// The bus's error.
        source: PublishError,
    },
    /// Earlier samples of pipelined telemetry are not known to have arrived. They are reported
    /// once; the next write publishes again.
    #[error("{count} earlier samples of {topic} did not arrive: {source}")]
    Lost {
        /// The topic.
        topic: String,
        /// Their number.
        count: u64,
        /// The bus's error for the first of them.
        source: PublishError,
    },
}

impl WriteError {
    /// Whether the failure is temporary: the bus is unreachable, or the component's lease is
    /// unconfirmed.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        let outage = |source: &PublishError| {
            matches!(source, PublishError::Transport(TransportError::Outage { .. }))
        };
        matches!(self, Self::Publish { source, .. } if outage(source))
    }
}

/// Why a topic could not be read.
#[derive(Debug, Clone, Error)]
pub enum TopicReadError {
    /// The component has no such topic.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The topic cannot be opened.
    #[error("{topic} cannot be opened: {reason}")]
    Open {
        /// The topic.
        topic: String,
        /// The bus's error.
        reason: String,
    },
    /// A sample cannot be decoded with this interface; later samples can still be read.
    #[error("a sample of {topic} cannot be read: {reason}")]
    Undecodable {
        /// The topic.
        topic: String,
        /// The error, with the field's name.
        reason: String,
    },
    /// No sample arrived within the timeout.
    #[error("nothing came on {topic} within the time given")]
    Timeout {
        /// The topic.
        topic: String,
    },
    /// The bus failed, or was closed.
    #[error("{topic}: {source}")]
    Bus {
        /// The topic.
        topic: String,
        /// The bus's error.
        source: ReadError,
    },
}

/// The error of reading a topic that is no part of an interface.
pub(crate) fn read_failed(error: ReadError) -> TopicError {
    match error {
        ReadError::Transport(error) => error.into(),
        // Only groups have positions to commit.
        ReadError::NoGroup => TransportError::Closed.into(),
    }
}

/// Opens a topic of a component.
pub(crate) fn open(
    bus: &Bus,
    shape: &Arc<Shape>,
    producer: Option<&ProducerName>,
) -> Result<Topic, TopicError> {
    bus.topic(producer.cloned().into_iter().fold(spec(shape), TopicSpec::producer))
}

/// Opens a command's topic for the component, which answers callers of older interfaces.
pub(crate) fn open_command(
    bus: &Bus,
    shape: &Arc<Shape>,
    missing: MissingFields,
) -> Result<Topic, TopicError> {
    let required = shape.required().filter(|_| missing == MissingFields::Refuse);
    bus.topic(spec(shape).required_fields(required.map(|(_, name)| name)))
}

fn spec(shape: &Arc<Shape>) -> TopicSpec {
    let spec = TopicSpec::of(shape.topic().topic_name().clone());
    let spec = spec.qos(shape.topic().qos()).schema(shape.schema());
    shape.evolution().into_iter().fold(spec, TopicSpec::evolution)
}

/// The name of one of our own topics beside a component's.
pub(crate) fn beside(component: &str, segment: &str) -> Result<TopicName, TopicError> {
    Ok(TopicName::new(&format!("{component}/{segment}"))?)
}

/// The key of an instance's samples: `salIndex` in Avro, if there is one.
pub(crate) fn key(indexed: bool, index: i32) -> Vec<u8> {
    let mut key = Vec::new();
    if indexed {
        helio_core::codec::wire::put_long(&mut key, index.into());
    }
    key
}
