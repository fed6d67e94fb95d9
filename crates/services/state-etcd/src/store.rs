//! What the service needs of a store.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use helio_state::{
    Error, LeaseStatus, RangeRequest, RangeResponse, Revision, WatchCreate, WatchResponse,
    WriteRequest, WriteResponse,
};
use helio_state_node::Histogram;

/// A future that a store answers with.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Who answers, and at which revision: every header tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The cluster's id.
    pub cluster_id: u64,
    /// This member's id.
    pub member_id: u64,
    /// The id of the leader; 0 without one.
    pub leader: u64,
    /// The epoch: it grows with each change of leadership.
    pub term: u64,
    /// The current revision.
    pub revision: Revision,
}

/// What a store holds, for probes and figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// The compact revision; reads below it fail.
    pub compact_revision: Revision,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes on disk that current and old revisions occupy.
    pub live_bytes: u64,
    /// Records of the log, each of a request that changed something.
    pub records: u64,
    /// Requests to write that wait.
    pub pending: u64,
    /// The number of current keys.
    pub keys: u64,
    /// Whether the alarm NOSPACE is raised.
    pub is_full: bool,
    /// Whether the alarm CORRUPT is raised.
    pub is_corrupt: bool,
}

/// Which state a read must have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// All writes that were acknowledged before the read began.
    Linearizable,
    /// What this member has.
    Serializable,
}

/// A sum of the keyspace, for comparisons of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyspaceHash {
    /// The sum of all revisions from the compact revision up to `revision`.
    pub hash: u32,
    /// The revision up to which it was computed.
    pub revision: Revision,
    /// The compact revision.
    pub compact_revision: Revision,
}

/// The watches of one stream.
pub trait Watches: Send {
    /// Opens a watch; [`Watches::poll_next`] returns the answer to it, before its events.
    fn create(&mut self, request: WatchCreate);

    /// Ends a watch; an answer follows if there is one.
    fn cancel(&mut self, watch_id: i64);

    /// Asks for an answer that speaks for the whole stream, once no watch of it is behind.
    fn request_progress(&mut self);

    /// Answers due to watches that asked for them periodically and were quiet for an interval.
    fn tick(&mut self);

    /// The next answer. Nothing is dropped while the caller does not poll: a slow stream reads
    /// later, bounded by compaction.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchResponse, Error>>;
}

/// The chunks of a snapshot.
pub trait SnapshotChunks: Send {
    /// The remaining bytes, those of the next chunk included.
    fn remaining_bytes(&self) -> u64;

    /// The next chunk; none at the end.
    ///
    /// # Errors
    /// If it cannot be read.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error>;
}

/// A store of versions of keys, with leases and watches, as etcd's.
pub trait Store: Send + Sync + 'static {
    /// Who answers, and at which revision.
    fn position(&self) -> Position;

    /// What it holds.
    fn figures(&self) -> Figures;

    /// The times of syncs of the log, where it has one.
    fn sync_times(&self) -> Option<&Histogram> {
        None
    }

    /// Reads.
    fn range(&self, request: RangeRequest, how: Consistency) -> Answer<'_, RangeResponse>;

    /// Changes something; the answer's kind is the request's.
    fn write(&self, request: WriteRequest) -> Answer<'_, WriteResponse>;

    /// A lease, with its keys; its time to live is -1 if there is none.
    fn lease(&self, id: i64) -> Answer<'_, LeaseStatus>;

    /// The ids of all leases.
    fn leases(&self) -> Answer<'_, Vec<i64>>;

    /// The watches of a new stream.
    fn watches(&self) -> Box<dyn Watches>;

    /// The sum of the keyspace at a revision; 0 is the current one.
    fn hash(&self, revision: Revision) -> Answer<'_, KeyspaceHash>;

    /// A snapshot of now, in the store's own format.
    fn snapshot(&self) -> Answer<'_, Box<dyn SnapshotChunks>>;
}
