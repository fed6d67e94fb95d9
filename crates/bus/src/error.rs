//! Errors, one enum an operation; each message names the cause and the remedy.

use std::sync::Arc;

use helio_core::{NameError, Producer, ProducerName, SchemaId, TopicName};
use thiserror::Error;

/// A policy that a transport does not offer, refused when the topic is opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{transport} refuses {topic}: {policy} = {asked} was asked for, it offers {offered}; {remedy}"
)]
pub struct Refusal {
    /// The transport's scheme.
    pub transport: String,
    /// The topic.
    pub topic: String,
    /// The policy, by its field's name.
    pub policy: &'static str,
    /// The requested value.
    pub asked: String,
    /// The offered value.
    pub offered: String,
    /// The remedy.
    pub remedy: String,
}

/// A limit of a sample's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeLimit {
    /// So many bytes.
    Bytes(usize),
    /// A setting of the engine with a value that is not known here, and the remedy.
    Setting(&'static str),
}

impl std::fmt::Display for SizeLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Setting(setting) => setting.fmt(f),
        }
    }
}

/// An error of a transport.
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
        /// The writer, as far as known.
        holder: String,
    },
    /// This writer was replaced: by a newer incarnation of its producer, or by another producer of
    /// an exclusive topic after this one's lease expired.
    #[error(
        "{producer:?} was fenced: another writer has taken over (newest incarnation of that name: \
         {newer}); give each running producer a name of its own, and assert within the lease"
    )]
    Fenced {
        /// The fenced producer.
        producer: Producer,
        /// The newest incarnation of its name; its own, if a producer of another name has taken
        /// over.
        newer: u64,
    },
    /// The topic was deleted, or deleted and recreated, under this handle.
    #[error("the topic {topic} was deleted, purged or recreated; open it again")]
    TopicGone {
        /// The topic.
        topic: String,
    },
    /// The sample is larger than the transport's limit.
    #[error("{what} has {bytes} bytes, the limit of {transport} is {limit}")]
    TooLarge {
        /// The part that is too large: the payload, the key.
        what: &'static str,
        /// Its size in bytes.
        bytes: usize,
        /// The limit.
        limit: SizeLimit,
        /// The transport's scheme.
        transport: String,
    },
    /// The transport does not support the operation.
    #[error("{transport} cannot {what}; {remedy}")]
    Unsupported {
        /// The transport's scheme.
        transport: String,
        /// The operation.
        what: String,
        /// The alternative.
        remedy: String,
    },
    /// The partition is not this reader's: its group has given it to another member, or the topic
    /// was deleted. No retry helps; the new owner resumes at the position committed last.
    #[error(
        "partition {partition} is not this reader's on {transport}: move and commit those of its \
         last Assigned event"
    )]
    NotAssigned {
        /// The transport's scheme.
        transport: String,
        /// The partition.
        partition: u32,
    },
    /// The text of a schema is not stored.
    #[error(
        "the bus has no text of the schema {schema}; open a publisher with that schema: it stores \
         the text again"
    )]
    NoSchema {
        /// The schema.
        schema: SchemaId,
    },
    /// The stored text of a schema was edited or damaged: it has another identity, or none. No
    /// retry helps; opening a publisher with that schema stores the text again.
    #[error("{cause}")]
    SchemaEdited {
        /// The schema.
        schema: SchemaId,
        /// The engine's message, with the place and the remedy.
        cause: String,
    },
    /// The engine is unreachable at present.
    #[error("{transport} cannot reach its engine: {cause}; it retries until closed")]
    Outage {
        /// The transport's scheme.
        transport: String,
        /// The engine's message.
        cause: String,
    },
    /// The engine failed: the disk is full, permission is missing, or a cause in the engine's own
    /// words.
    #[error("{transport} failed to {what}: {source}")]
    Engine {
        /// The transport's scheme.
        transport: String,
        /// The operation.
        what: String,
        /// The engine's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The bus, the publisher or the subscription was closed.
    #[error("closed: the bus or this end of it was closed; connect again")]
    Closed,
}

/// An error of connecting a bus.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The text is not a bus URL.
    #[error(
        "invalid bus URL {url:?} ({reason}); examples are journal:/var/lib/helio and memory:test"
    )]
    Url {
        /// The text as given.
        url: String,
        /// The cause.
        reason: String,
    },
    /// No transport is registered for this scheme.
    #[error("unknown transport {scheme:?}; this program has: {known}")]
    UnknownScheme {
        /// The scheme as given.
        scheme: String,
        /// The registered schemes, separated by commas.
        known: String,
    },
    /// An unknown option of the URL, or an invalid value.
    #[error("the option {option}={value} of {scheme}: {reason}")]
    Option {
        /// The transport's scheme.
        scheme: String,
        /// The option's name.
        option: String,
        /// Its value.
        value: String,
        /// The cause, with the known options.
        reason: String,
    },
    /// The producer's name is invalid.
    #[error("the producer's name: {0}")]
    Producer(#[from] NameError),
    /// The transport could not be opened.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// An error of opening a topic, a publisher or a subscription.
#[derive(Debug, Error)]
pub enum TopicError {
    /// The topic's name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The topic does not exist, and no quality of service was given to create it.
    #[error(
        "there is no topic {0}; name a quality of service (TopicSpec::qos) and it is created, or \
         start its publisher first"
    )]
    NoSuchTopic(TopicName),
    /// A value that is invalid on every transport.
    #[error("{field} = {value} of the topic {topic}: {reason}")]
    Invalid {
        /// The topic.
        topic: TopicName,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        reason: &'static str,
    },
    /// The transport does not offer the quality of service.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The schema is incompatible with one of the topic's.
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
        /// The difference, with the field's name.
        reason: String,
    },
    /// A schema's text is invalid.
    #[error("the schema {schema} of the topic {topic} cannot be used: {reason}")]
    Schema {
        /// The topic.
        topic: TopicName,
        /// The schema.
        schema: SchemaId,
        /// The cause.
        reason: String,
    },
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl TopicError {
    /// Whether the engine is unreachable at present, so that a retry may succeed.
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

/// An error of a publish. The sample has no guarantee.
#[derive(Debug, Clone, Error)]
pub enum PublishError {
    /// The transport's bounded queue is full, and the topic's policy is to refuse.
    #[error(
        "the queue of {transport} is full ({queued} samples pending{}); publish less, or choose \
         the overload policy `block`",
        waits_for.iter().map(|reader| format!(", waiting for {reader}")).collect::<String>()
    )]
    Full {
        /// The transport's scheme.
        transport: String,
        /// How many samples are queued.
        queued: usize,
        /// The readers that it waits for, if known.
        waits_for: Option<String>,
    },
    /// The sample was dropped because the queue is full and the topic's policy is to drop.
    #[error("dropped by the overload policy (level {level}): the queue is full")]
    Dropped {
        /// The sample's level.
        level: u8,
    },
    /// The outcome is unknown: the transport discarded the sample without reporting one.
    #[error(
        "the outcome of the publish is unknown: {cause}; publish again if duplicates are acceptable"
    )]
    Unknown {
        /// The cause.
        cause: String,
    },
    /// There is no such partition.
    #[error("there is no partition {partition}, the topic has {partitions}")]
    NoPartition {
        /// The requested partition.
        partition: u32,
        /// How many partitions there are.
        partitions: u32,
    },
    /// The payload cannot be encoded, or the engine can never accept it.
    #[error("the value cannot be encoded: {0}")]
    Encode(String),
    /// The publisher could not be opened.
    #[error("the publisher could not be opened: {0}")]
    NotOpened(String),
    /// An earlier sample of the same batch and partition was not accepted, so this one was not
    /// tried.
    #[error(
        "not published, because an earlier sample of the batch was not accepted; publish both again"
    )]
    Skipped,
    /// No receipt within the caller's timeout. The sample may still arrive.
    #[error("no receipt within the time given; the sample may still arrive")]
    Timeout,
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// An error of reading. Losses and outages are events, not errors.
#[derive(Debug, Clone, Error)]
pub enum ReadError {
    /// The subscription is not in a group and has no position to commit.
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

/// A producer, as error messages print it.
pub(crate) fn holder(producer: &ProducerName, incarnation: u64) -> String {
    format!("{producer} (incarnation {incarnation})")
}
