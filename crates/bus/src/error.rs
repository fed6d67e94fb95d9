//! What can go wrong, one narrow enum an operation; each message names the cause and the remedy.

use std::sync::Arc;

use helio_core::{NameError, Producer, ProducerName, SchemaId, TopicName};
use thiserror::Error;

/// A quality of service that a transport cannot give: it is refused when the topic is opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{transport} refuses {topic}: {policy} = {asked} was asked for, it offers {offered}; {remedy}"
)]
pub struct Refusal {
    /// The transport's scheme.
    pub transport: String,
    /// The topic that was to be opened.
    pub topic: String,
    /// The policy that cannot be met, in the field's own name.
    pub policy: &'static str,
    /// What was asked for.
    pub asked: String,
    /// What the transport offers.
    pub offered: String,
    /// What to do about it.
    pub remedy: String,
}

/// An error that a transport hands to the bus.
#[derive(Debug, Clone, Error)]
pub enum TransportError {
    /// The topic exists with another value of a field.
    #[error(
        "the topic {topic} exists with {field} = {existing}, {asked} was asked for; open it as it \
         is (no quality of service named) or use another topic"
    )]
    Differs {
        /// The topic.
        topic: TopicName,
        /// The first field that differs.
        field: String,
        /// Its value in the topic.
        existing: String,
        /// Its value in the request.
        asked: String,
    },
    /// A live writer holds a topic of exclusive ownership.
    #[error(
        "the topic {topic} has a live writer, {holder}; stop it first, or use shared ownership"
    )]
    Owned {
        /// The topic.
        topic: TopicName,
        /// Who writes it, as far as known.
        holder: String,
    },
    /// A newer incarnation of this producer has taken over, or another producer has taken an
    /// exclusive topic while this one let its lease run out: this writer is a zombie.
    #[error(
        "{producer:?} was fenced: another writer has taken over (newest incarnation of that name: \
         {newer}); give each running producer a name of its own, and assert within the lease"
    )]
    Fenced {
        /// Who was fenced.
        producer: Producer,
        /// The newest incarnation of its name: its own, where another name has taken over.
        newer: u64,
    },
    /// The sample is larger than the transport's limit.
    #[error("{what} has {bytes} bytes, the limit of {transport} is {limit}")]
    TooLarge {
        /// What is too large: the payload, the key.
        what: &'static str,
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
        /// The transport's scheme.
        transport: String,
    },
    /// The transport cannot do what was asked at all.
    #[error("{transport} cannot {what}; {remedy}")]
    Unsupported {
        /// The transport's scheme.
        transport: String,
        /// What was asked for.
        what: String,
        /// What to do instead.
        remedy: String,
    },
    /// The engine cannot be reached at the moment.
    #[error("{transport} cannot reach its engine: {cause}; it is tried again until closed")]
    Outage {
        /// The transport's scheme.
        transport: String,
        /// The engine's words.
        cause: String,
    },
    /// There is no room on the disk, or no permission, or the engine says no in its own words.
    #[error("{transport} failed to {what}: {source}")]
    Engine {
        /// The transport's scheme.
        transport: String,
        /// What was tried.
        what: String,
        /// The engine's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The bus, the publisher or the subscription was closed.
    #[error("closed: the bus or this end of it was closed; connect again")]
    Closed,
}

/// Why a bus could not be connected.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The text is no bus URL.
    #[error(
        "{url:?} is no bus URL ({reason}); write it like journal:/var/lib/helio or memory:test"
    )]
    Url {
        /// The text as given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody has registered a transport of this scheme.
    #[error("no transport is called {scheme:?}; this program has: {known}")]
    UnknownScheme {
        /// The scheme as given.
        scheme: String,
        /// The schemes that exist, separated by commas.
        known: String,
    },
    /// An option of the URL that the transport does not know, or a value that it cannot use.
    #[error("the option {option}={value} of {scheme}: {reason}")]
    Option {
        /// The transport's scheme.
        scheme: String,
        /// The option's name.
        option: String,
        /// Its value.
        value: String,
        /// What is wrong, and which options exist.
        reason: String,
    },
    /// The producer's name is not a legal one.
    #[error("the producer's name: {0}")]
    Producer(#[from] NameError),
    /// The transport could not be opened.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// Why a topic, a publisher or a subscription could not be opened.
#[derive(Debug, Error)]
pub enum TopicError {
    /// The topic's name is not a legal one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The topic does not exist, and no quality of service was named to create it with.
    #[error(
        "there is no topic {0}; name a quality of service (TopicSpec::qos) and it is created, or \
         start its publisher first"
    )]
    NoSuchTopic(TopicName),
    /// A value that no transport can have.
    #[error("{field} = {value} of the topic {topic}: {reason}")]
    Invalid {
        /// The topic.
        topic: TopicName,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// Which values are legal.
        reason: &'static str,
    },
    /// The transport cannot give the quality of service.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The schema cannot follow the one that the topic has.
    #[error(
        "the schema {schema} of the topic {topic} is refused: {reason}; publish it under a new \
         topic's name, change it so that both can be read, or open the topic with the evolution \
         policy none"
    )]
    Incompatible {
        /// The topic.
        topic: TopicName,
        /// The schema that was refused.
        schema: SchemaId,
        /// What changed, with the field's name.
        reason: String,
    },
    /// A schema's text cannot be parsed.
    #[error("the schema {schema} of the topic {topic} cannot be used: {reason}")]
    Schema {
        /// The topic.
        topic: TopicName,
        /// The schema.
        schema: SchemaId,
        /// What is wrong with it.
        reason: String,
    },
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl TopicError {
    /// Whether the engine cannot be reached at the moment: what was asked may be known later.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Transport(TransportError::Outage { .. }))
    }
}

impl From<Box<Refusal>> for TopicError {
    fn from(refusal: Box<Refusal>) -> Self {
        Self::Refused(refusal)
    }
}

/// Why a publish did not succeed. Nothing of it was promised to anyone.
#[derive(Debug, Clone, Error)]
pub enum PublishError {
    /// The transport's bounded queue is full, and the topic's policy is to refuse.
    #[error(
        "the queue towards {transport} is full ({queued} samples wait); slow down, or choose the \
         overload policy `block`"
    )]
    Full {
        /// The transport's scheme.
        transport: String,
        /// How many samples wait.
        queued: usize,
    },
    /// The sample was dropped because the queue is full and the topic's policy is to drop.
    #[error("dropped by the overload policy (level {level}): the queue is full")]
    Dropped {
        /// The sample's level.
        level: u8,
    },
    /// The transport let go of the sample without saying what became of it.
    #[error("nobody knows whether the sample arrived: {cause}; publish it again if it may repeat")]
    Unknown {
        /// Why.
        cause: String,
    },
    /// There is no such partition.
    #[error("there is no partition {partition}, the topic has {partitions}")]
    NoPartition {
        /// The partition that was named.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },
    /// The payload could not be encoded, or is one that the engine will never take.
    #[error("the value cannot be encoded: {0}")]
    Encode(String),
    /// The publisher could not be opened.
    #[error("the publisher could not be opened: {0}")]
    NotOpened(String),
    /// The receipt did not come within the time that the caller gave. The sample may still arrive.
    #[error("no receipt within the time given; the sample may still arrive")]
    Timeout,
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// Why reading failed. Losses and outages are no errors but events.
#[derive(Debug, Clone, Error)]
pub enum ReadError {
    /// The subscription is not in a group, so there is nothing to commit to.
    #[error("the subscription is in no group; name one (Subscribe::group) to commit positions")]
    NoGroup,
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

pub(crate) fn engine<E>(transport: &str, what: &str, source: E) -> TransportError
where
    E: std::error::Error + Send + Sync + 'static,
{
    TransportError::Engine {
        transport: transport.to_owned(),
        what: what.to_owned(),
        source: Arc::new(source),
    }
}

/// A producer's name as the error messages print it.
pub(crate) fn holder(producer: &ProducerName, incarnation: u64) -> String {
    format!("{producer} (incarnation {incarnation})")
}
