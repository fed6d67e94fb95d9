//! Opening a component's topics on a bus.

use std::sync::Arc;

use helio_bus::{Bus, PublishError, ReadError, Topic, TopicError, TopicSpec, TransportError};
use helio_core::{ProducerName, TopicName};
use thiserror::Error;

use crate::fields::FieldError;
use crate::interface::{InterfaceError, Shape};

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
        /// What the bus says.
        reason: String,
    },
    /// The component is not the one live instance of it: what it says would be another's word.
    #[error("{topic} is not {identity}'s to write any more: {reason}; start it again")]
    NotLive {
        /// The topic.
        topic: String,
        /// The component, with its index.
        identity: String,
        /// What became of its lease.
        reason: &'static str,
    },
    /// The bus did not take it.
    #[error("{topic}: {source}")]
    Publish {
        /// The topic.
        topic: String,
        /// What the bus says.
        source: PublishError,
    },
    /// Earlier samples, which telemetry does not wait for, are not known to have arrived. This is
    /// told once: what is written next goes out.
    #[error("{count} earlier samples of {topic} did not arrive: {source}")]
    Lost {
        /// The topic.
        topic: String,
        /// How many.
        count: u64,
        /// What the bus says of the first of them.
        source: PublishError,
    },
}

impl WriteError {
    /// Whether the bus cannot be reached at the moment, or does not say who has the component's
    /// lease: it may be written later.
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
        /// What the bus says.
        reason: String,
    },
    /// A sample cannot be read with this interface; those behind it can be asked for.
    #[error("a sample of {topic} cannot be read: {reason}")]
    Undecodable {
        /// The topic.
        topic: String,
        /// What is wrong, with the field's name.
        reason: String,
    },
    /// Nothing came within the time that was given.
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
        /// What the bus says.
        source: ReadError,
    },
}

/// Opens a topic of a component.
pub(crate) fn open(
    bus: &Bus,
    shape: &Arc<Shape>,
    producer: Option<&ProducerName>,
) -> Result<Topic, TopicError> {
    let spec = TopicSpec::of(shape.topic().topic_name().clone());
    let spec = spec.qos(shape.topic().qos()).schema(shape.schema());
    let spec = shape.evolution().into_iter().fold(spec, TopicSpec::evolution);
    bus.topic(producer.cloned().into_iter().fold(spec, TopicSpec::producer))
}

/// The name of a topic of ours beside a component's own.
pub(crate) fn beside(component: &str, segment: &str) -> Result<TopicName, TopicError> {
    Ok(TopicName::new(&format!("{component}/{segment}"))?)
}

/// The key of an instance's samples: `salIndex` as Avro writes it, where there is one.
pub(crate) fn key(indexed: bool, index: i32) -> Vec<u8> {
    let mut key = Vec::new();
    if indexed {
        helio_core::codec::wire::put_long(&mut key, index.into());
    }
    key
}
