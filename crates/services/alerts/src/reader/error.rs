//! Why alerts cannot be read.

use helio_bus::{PublishError, ReadError, TopicError, TransportError};
use helio_core::codec::EncodeError;
use thiserror::Error;

/// Why an alert's stamps cannot be read from their topic.
#[derive(Debug, Error)]
pub enum LinkedError {
    /// They are removed, damaged or another alert's: no further attempt can succeed.
    #[error("{0}")]
    Missing(String),
    /// The engine fails, or does not deliver them in time: a further attempt may succeed.
    #[error(transparent)]
    Unavailable(#[from] ReaderError),
}

/// Why alerts cannot be read.
#[derive(Debug, Error)]
pub enum ReaderError {
    /// A topic cannot be opened.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A topic cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No record of the visit is stored.
    #[error(
        "the control topic has no opening record of visit {visit}: it was not opened, or retention \
         has removed it"
    )]
    NoSuchVisit {
        /// The visit.
        visit: i64,
    },
    /// No visit of the night is stored.
    #[error("the control topic has no visit of the night {night}")]
    NoSuchNight {
        /// The night.
        night: String,
    },
    /// The alert is not stored.
    #[error("no stored packet has the identifier {id}")]
    NoSuchAlert {
        /// The alert.
        id: i64,
    },
    /// There is no such checkpoint.
    #[error("there is no checkpoint {name:?}")]
    NoSuchCheckpoint {
        /// The name.
        name: String,
    },
    /// Retention has removed packets behind the start.
    #[error(
        "retention has removed packets of {what}: it starts at offset {start} of partition \
         {partition}, the oldest stored one is {first}; start later, or with the oldest"
    )]
    Removed {
        /// What was asked for.
        what: String,
        /// The partition.
        partition: u32,
        /// The offset at which it starts.
        start: u64,
        /// The oldest stored offset.
        first: u64,
    },
    /// The reader does not verify payloads, or knows nothing of the visit.
    #[error("{0}")]
    NoAudit(String),
    /// A group cannot be moved while others read for it.
    #[error("the group {group} has other members: {members}; stop them first")]
    GroupInUse {
        /// The group.
        group: String,
        /// The names of its members.
        members: String,
    },
    /// A record cannot be encoded.
    #[error("the record: {0}")]
    Encode(#[from] EncodeError),
    /// The bus did not accept a record.
    #[error("the bus did not accept the record: {0}")]
    NotAccepted(#[from] PublishError),
}
