//! The header of every sample, at fixed positions, so that routing needs no decoding.

use std::fmt;

use crate::{ProducerName, Tai};

/// A producer: a name that is stable over restarts, and the incarnation, which grows at each start.
///
/// Order is (incarnation, sequence), never a clock: a reader never gets a sample of an older
/// incarnation after one of a newer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Producer {
    /// The producer's name.
    pub name: ProducerName,
    /// Grows at each start of the producer of that name.
    pub incarnation: u64,
}

/// The 64-bit identity of a schema, as every sample carries it. 0 means untyped bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SchemaId(pub u64);

impl SchemaId {
    /// No schema: the payload is bytes.
    pub const BYTES: Self = Self(0);
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A W3C Trace Context trace id (16 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The header of one sample, as readers receive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The producer.
    pub producer: Producer,
    /// The sample's number among those of its producer's incarnation, from 1, without holes.
    pub sequence: u64,
    /// Its time of publication.
    pub time: Tai,
    /// The payload's schema.
    pub schema: SchemaId,
    /// The routing byte (the log profile's priority; 0 elsewhere).
    pub level: u8,
    /// The trace that the sample belongs to.
    pub trace: Option<TraceId>,
}
