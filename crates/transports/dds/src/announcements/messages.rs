//! Announcements of participants, on the DDS topic `_helio/announcements`.
//!
//! Format. An envelope whose key is the announcement's key and whose payload is [`versioned_json`];
//! `null` withdraws the announcement. The producer is the session: the identity of the announcing
//! participant. The DDS topic `_helio/responses` carries the responses to requests; their key is
//! the requesting session.
//!
//! [`versioned_json`]: helio_bus::transport::versioned_json

use std::fmt::Write as _;

use helio_core::{ProducerName, Qos, SchemaId, TopicName};
use serde::{Deserialize, Serialize};

use crate::entity::Guid;

/// Session and time of the first announcement: of several the smallest one holds. The catalogue on
/// disk contains it; old catalogues have the aliases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Nanoseconds since 1970.
    #[serde(alias = "at")]
    pub(crate) time_nanos: u64,
    #[serde(alias = "by")]
    pub(crate) session: String,
}

/// An announcement of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Announcement {
    /// The session has a topic open, with this quality of service.
    Topic {
        #[serde(with = "name")]
        topic: TopicName,
        qos: Qos,
        origin: Origin,
    },
    /// A schema's text.
    SchemaText { schema: String, text: String },
    /// A topic has a further schema, after that many.
    TopicSchema {
        #[serde(with = "name")]
        topic: TopicName,
        schema: String,
        after: usize,
        origin: Origin,
    },
    /// It writes a topic, or did so.
    Writer {
        #[serde(with = "name")]
        topic: TopicName,
        writer: WriterAnnouncement,
    },
    /// It is a durability service.
    Service {
        /// When it started, in nanoseconds since 1970.
        started_nanos: u64,
    },
    /// A durability service's state of a topic.
    ServiceState {
        #[serde(with = "name")]
        topic: TopicName,
        service_state: ServiceState,
    },
    /// The session wants a topic stored although its quality of service does not require it.
    StorageRequest {
        #[serde(with = "name")]
        topic: TopicName,
    },
    /// A request to all other sessions.
    Request(Request),
}

/// A durability service's state of a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServiceState {
    /// It has all samples that other services have, and receipts wait for it.
    pub(crate) ready: bool,
    /// Increases each time that it becomes ready.
    pub(crate) ready_count: u64,
    /// Increases each time that a departed service returns, which may lack samples unknowingly.
    #[serde(default)]
    pub(crate) reunions: u64,
    /// It has no samples of the topic.
    #[serde(default)]
    pub(crate) refused: bool,
    /// It has last values alone, with holes: no receipt waits for it, and it sends no acks.
    #[serde(default)]
    pub(crate) last_values: bool,
    /// It has samples, and does not serve them yet: the topic was not opened since its start.
    #[serde(default)]
    pub(crate) opening: bool,
    /// The cause why it cannot store the topic at present; if it is ready, why not on the disk.
    pub(crate) error: Option<String>,
}

/// One producer in one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WriterAnnouncement {
    pub(crate) partition: u32,
    #[serde(with = "name")]
    pub(crate) producer: ProducerName,
    pub(crate) incarnation: u64,
    pub(crate) open: bool,
    /// When it last published or asserted, nanoseconds of TAI by its bus's clock: for display.
    pub(crate) last_active_tai_ns: i64,
    /// How long before the announcement that was, in nanoseconds. Leases run from it by the
    /// receiver's clock: two hosts' times of day are not compared.
    #[serde(default)]
    pub(crate) idle_nanos: u64,
    /// Its claim of an exclusive topic; none if the topic is shared.
    pub(crate) claim: Option<Claim>,
}

/// A claim of an exclusive topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) origin: Origin,
    /// The ownership strength, above that of every earlier writer.
    pub(crate) strength: i32,
    /// The writers that it replaces.
    pub(crate) fences: Vec<Fenced>,
}

/// A writer that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fenced {
    #[serde(with = "name")]
    pub(crate) producer: ProducerName,
    pub(crate) incarnation: u64,
}

impl Claim {
    /// Whether it replaces a writer.
    pub(crate) fn fences(&self, producer: &ProducerName, incarnation: u64) -> bool {
        self.fences.iter().any(|f| f.producer == *producer && f.incarnation == incarnation)
    }
}

/// A request. A response confirms that all earlier announcements were received, and says which
/// announcements preceded the response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Its slot among the session's pending requests: each has its own key, so that none replaces
    /// another one that was not received yet.
    #[serde(default)]
    pub(crate) slot: usize,
    /// Increases with each request of a session.
    pub(crate) number: u64,
    /// What is requested besides.
    #[serde(default)]
    pub(crate) subject: RequestKind,
}

/// The subject of a request, besides the confirmation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RequestKind {
    #[default]
    Nothing,
    /// The session is new: writers with a lease announce their idle time again.
    Joining,
    /// A producer's newest incarnation on a topic: announcements of ended sessions are not
    /// repeated.
    Producer {
        #[serde(with = "name")]
        topic: TopicName,
        #[serde(with = "name")]
        producer: ProducerName,
    },
    /// An endpoint was opened: the response comes when those of the same topic have matched it.
    OpenedEndpoint(OpenedEndpoint),
}

/// A reader or writer that was opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenedEndpoint {
    #[serde(with = "name")]
    pub(crate) topic: TopicName,
    pub(crate) endpoint_kind: EndpointKind,
    pub(crate) guids: EndpointGuids,
    /// An empty list is all partitions.
    pub(crate) partitions: Vec<u32>,
}

impl OpenedEndpoint {
    /// Whether it has a partition in common with a list; an empty list is all partitions.
    pub(crate) fn overlaps(&self, partitions: &[u32]) -> bool {
        let own = &self.partitions;
        own.is_empty() || partitions.is_empty() || own.iter().any(|n| partitions.contains(n))
    }
}

/// The identities of the endpoints of a bus reader or writer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndpointGuids {
    pub(crate) envelopes: String,
    /// `None` if there is no typed endpoint.
    #[serde(default)]
    pub(crate) typed: Option<String>,
}

impl EndpointGuids {
    /// Whether the endpoints that correspond to these have all matched them.
    pub(crate) fn are_matched(&self, own: &Self, envelopes: &[String], typed: &[String]) -> bool {
        let typed_too = match (&self.typed, &own.typed) {
            (Some(guid), Some(_)) => typed.contains(guid),
            _ => true,
        };
        envelopes.contains(&self.envelopes) && typed_too
    }

    /// All of them.
    pub(crate) fn all(self) -> impl Iterator<Item = String> {
        std::iter::once(self.envelopes).chain(self.typed)
    }
}

/// The kind of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndpointKind {
    Reader,
    Writer,
}

/// A response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Response {
    pub(crate) number: u64,
    /// The number of the session's newest announcement. Announcements and responses come by two DDS
    /// writers: the response counts when that announcement has arrived.
    pub(crate) last_announcement: u64,
    /// The requested producer's newest incarnation; 0 is none.
    pub(crate) newest_incarnation: u64,
    /// The endpoints of the other kind that have matched the opened one.
    pub(crate) matched: Vec<String>,
    /// The positions of their writers: a late joiner knows by them when its history is complete.
    pub(crate) positions: Vec<ProducerPosition>,
    /// To a session that joins: the live sessions, except those whose process has ended.
    pub(crate) sessions: Vec<String>,
}

/// A producer's position in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProducerPosition {
    pub(crate) partition: u32,
    #[serde(with = "name")]
    pub(crate) producer: ProducerName,
    pub(crate) incarnation: u64,
    /// The number of its newest sample.
    pub(crate) sequence: u64,
    /// The numbers of its newest envelope and of its newest typed sample; 0 is none.
    #[serde(default)]
    pub(crate) topic_sequences: [u64; 2],
}

impl ProducerPosition {
    /// A position whose numbers on the two DDS topics are unknown.
    pub(crate) fn new(partition: u32, producer: ProducerName, order: (u64, u64)) -> Self {
        let (incarnation, sequence) = order;
        Self { partition, producer, incarnation, sequence, topic_sequences: [0; 2] }
    }

    /// Whether these incarnations and numbers, on both topics, are at the position or behind it.
    pub(crate) fn is_reached(&self, arrived: [(u64, u64); 2]) -> bool {
        let mut both = self.topic_sequences.into_iter().zip(arrived);
        both.all(|(sequence, arrived)| sequence == 0 || arrived >= (self.incarnation, sequence))
    }

    /// Incarnation and number, for comparisons.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.incarnation, self.sequence)
    }
}

impl Announcement {
    /// Its key: a later announcement of the session with the same key replaces it.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Topic { topic, .. } => format!("topic {topic}"),
            Self::SchemaText { schema, .. } => format!("schema_text {schema}"),
            Self::TopicSchema { topic, schema, .. } => format!("topic_schema {topic} {schema}"),
            Self::Writer { topic, writer } => {
                format!("writer {topic} {} {}", writer.partition, writer.producer)
            }
            Self::Request(Request { slot, .. }) => format!("request {slot}"),
            Self::Service { .. } => "service".to_owned(),
            Self::ServiceState { topic, .. } => format!("service_state {topic}"),
            Self::StorageRequest { topic } => format!("storage_request {topic}"),
        }
    }
}

/// A schema's identity as text.
pub(crate) fn hex(id: SchemaId) -> String {
    format!("{:x}", id.0)
}

/// A schema's identity from text.
pub(crate) fn schema_id(text: &str) -> Option<SchemaId> {
    u64::from_str_radix(text, 16).ok().map(SchemaId)
}

/// An entity's identity as text.
pub(crate) fn guid(guid: Guid) -> String {
    guid.0.iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Names as text.
pub(crate) mod name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<N: Display, S: Serializer>(
        name: &N,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(name)
    }

    pub(crate) fn deserialize<'de, N, D>(deserializer: D) -> Result<N, D::Error>
    where
        N: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
