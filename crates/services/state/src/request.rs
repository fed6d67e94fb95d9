//! Requests and responses, in plain Rust; their meaning is that of etcd's `rpc.proto`.

use bytes::Bytes;

use crate::KeyValue;

/// A revision: 1 in an empty store, one more with each request that changes something.
pub type Revision = i64;

/// Bounds of requests; the defaults are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations in one list of a transaction.
    pub txn_ops: usize,
    /// Transactions inside each other.
    pub txn_depth: usize,
    /// Bytes of keys and values of a request, without framing.
    pub request_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { txn_ops: 128, txn_depth: 64, request_bytes: 3 * 512 * 1024 }
    }
}

/// The order of keys in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    /// By key, ascending; by the target, ascending, if that is not the key.
    #[default]
    None,
    /// Least first.
    Ascend,
    /// Greatest first.
    Descend,
}

/// What an answer is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortTarget {
    /// The key's bytes.
    #[default]
    Key,
    /// Puts since the creation.
    Version,
    /// The revision of the creation.
    Create,
    /// The revision of the last put.
    Mod,
    /// The value's bytes.
    Value,
}

/// How much of each key an answer carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Keys with values.
    #[default]
    All,
    /// Keys without values.
    KeysOnly,
    /// The number of keys alone.
    CountOnly,
}

/// Whether an answer carries the key-values as they were before the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Previous {
    /// It does not.
    #[default]
    Omit,
    /// It does.
    Include,
}

/// Reads keys. `range_end`: empty for one key, `\0` for all keys from `key` on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeRequest {
    /// The first key.
    pub key: Bytes,
    /// The end, exclusive.
    pub range_end: Bytes,
    /// Most key-values of the answer; 0 or less: all.
    pub limit: i64,
    /// Reads as of this revision; 0 or less: the current one.
    pub revision: Revision,
    /// The order.
    pub sort_order: SortOrder,
    /// What is ordered by.
    pub sort_target: SortTarget,
    /// Keys, values or their number.
    pub content: Content,
    /// Least `mod_revision` of an answer's keys; 0: any.
    pub min_mod_revision: Revision,
    /// Greatest `mod_revision`; 0: any.
    pub max_mod_revision: Revision,
    /// Least `create_revision`; 0: any.
    pub min_create_revision: Revision,
    /// Greatest `create_revision`; 0: any.
    pub max_create_revision: Revision,
}

/// The answer to a [`RangeRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResponse {
    /// The store's revision.
    pub revision: Revision,
    /// The key-values.
    pub kvs: Vec<KeyValue>,
    /// Whether the limit cut the answer.
    pub more: bool,
    /// Keys in the range, whatever limit and filters.
    pub count: i64,
}

/// What a put writes as the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutRequest {
    /// The key.
    pub key: Bytes,
    /// The value; `None` keeps the current one (`ignore_value`).
    pub value: Option<Bytes>,
    /// The lease, 0 for none; `None` keeps the current one (`ignore_lease`).
    pub lease: Option<i64>,
    /// Whether the answer carries the replaced key-value.
    pub previous: Previous,
}

/// The answer to a [`PutRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutResponse {
    /// The put's revision.
    pub revision: Revision,
    /// The replaced key-value.
    pub previous: Option<KeyValue>,
}

/// Deletes keys; `range_end` as in [`RangeRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRangeRequest {
    /// The first key.
    pub key: Bytes,
    /// The end, exclusive.
    pub range_end: Bytes,
    /// Whether the answer carries the deleted key-values.
    pub previous: Previous,
}

/// The answer to a [`DeleteRangeRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRangeResponse {
    /// The revision of the deletion; the current one if nothing was deleted.
    pub revision: Revision,
    /// Deleted keys.
    pub deleted: i64,
    /// The deleted key-values.
    pub previous: Vec<KeyValue>,
}

/// How a key-value relates to a comparison's operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareResult {
    /// Equal.
    Equal,
    /// The key-value's is greater.
    Greater,
    /// The key-value's is less.
    Less,
    /// Not equal.
    NotEqual,
}

/// What is compared, and the operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    /// Puts since the creation; 0: the key does not exist.
    Version(i64),
    /// The revision of the creation.
    Create(Revision),
    /// The revision of the last put.
    Mod(Revision),
    /// The value; false for absent keys.
    Value(Bytes),
    /// The lease.
    Lease(i64),
}

/// A condition of a transaction; on a range it must hold for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The first key.
    pub key: Bytes,
    /// The end, exclusive, as in [`RangeRequest`].
    pub range_end: Bytes,
    /// The relation.
    pub result: CompareResult,
    /// What is compared.
    pub target: CompareTarget,
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOp {
    /// Reads; sees what the transaction has written.
    Range(RangeRequest),
    /// Writes.
    Put(PutRequest),
    /// Deletes.
    DeleteRange(DeleteRangeRequest),
    /// A transaction inside.
    Txn(TxnRequest),
}

/// Runs `success` if each comparison holds, otherwise `failure`, in one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnRequest {
    /// Conditions.
    pub compare: Vec<Compare>,
    /// Operations if all hold.
    pub success: Vec<RequestOp>,
    /// Operations otherwise.
    pub failure: Vec<RequestOp>,
}

/// The answer to a [`RequestOp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseOp {
    /// Of a read.
    Range(RangeResponse),
    /// Of a put.
    Put(PutResponse),
    /// Of a deletion.
    DeleteRange(DeleteRangeResponse),
    /// Of a transaction inside.
    Txn(TxnResponse),
}

/// The answer to a [`TxnRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnResponse {
    /// The store's revision after it.
    pub revision: Revision,
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// One answer an operation of the branch taken.
    pub responses: Vec<ResponseOp>,
}

/// A request that may change the store; each becomes at most one record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteRequest {
    /// Writes a key.
    Put(PutRequest),
    /// Deletes keys.
    DeleteRange(DeleteRangeRequest),
    /// Compares and runs a branch.
    Txn(TxnRequest),
    /// Forgets history below this revision.
    Compact(Revision),
    /// Grants a lease; id 0 asks the store to choose.
    LeaseGrant {
        /// The id.
        id: i64,
        /// Time to live, s.
        ttl: i64,
    },
    /// Revokes a lease and deletes its keys.
    LeaseRevoke {
        /// The id.
        id: i64,
    },
    /// Renews a lease.
    LeaseKeepAlive {
        /// The id.
        id: i64,
    },
    /// Raises or clears an alarm.
    Alarm {
        /// The alarm.
        alarm: Alarm,
        /// Its new state.
        state: AlarmState,
    },
}

/// The answer to a [`WriteRequest`], by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResponse {
    /// Of a put.
    Put(PutResponse),
    /// Of a deletion.
    DeleteRange(DeleteRangeResponse),
    /// Of a transaction.
    Txn(TxnResponse),
    /// Of a compaction: the store's revision.
    Compact(Revision),
    /// Of a grant.
    LeaseGrant {
        /// The store's revision.
        revision: Revision,
        /// The lease's id.
        id: i64,
        /// Time to live granted, s.
        ttl: i64,
    },
    /// Of a revocation: the store's revision.
    LeaseRevoke(Revision),
    /// Of a renewal.
    LeaseKeepAlive {
        /// The store's revision.
        revision: Revision,
        /// The lease's id.
        id: i64,
        /// Time to live from now, s; 0: no such lease.
        ttl: i64,
    },
    /// Of an alarm: the store's revision.
    Alarm(Revision),
}

/// Alarms; the numbers are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Alarm {
    /// No space: puts and grants are refused.
    NoSpace = 1,
    /// A check of stored data failed.
    Corrupt = 2,
}

/// Whether an alarm is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmState {
    /// Raised.
    Raised,
    /// Cleared.
    Cleared,
}

/// The answer to a question for a lease's time to live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The lease's id.
    pub id: i64,
    /// Remaining time, s, rounded down; -1: no such lease.
    pub ttl: i64,
    /// Time to live granted, s; 0: no such lease.
    pub granted_ttl: i64,
    /// Its keys, in order.
    pub keys: Vec<Bytes>,
}

/// Opens a watch on a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchCreate {
    /// The first key; empty: from the least key on.
    pub key: Bytes,
    /// The end, exclusive, as in [`RangeRequest`].
    pub range_end: Bytes,
    /// The first revision; 0: what is committed after the creation. Negative: refused.
    pub start_revision: Revision,
    /// Whether events carry the previous key-value.
    pub previous: Previous,
    /// Periodic progress responses while no event comes.
    pub progress: Progress,
    /// Which events are left out.
    pub filter: Filter,
    /// Whether a revision's events may be split over responses.
    pub fragment: Fragment,
    /// The id that the client chose; 0: the store chooses.
    pub watch_id: i64,
}

/// Whether a watch asks for periodic progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Only on request.
    #[default]
    OnRequest,
    /// Also periodically.
    Periodic,
}

/// Events that a watch leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// No puts.
    pub no_put: bool,
    /// No deletions.
    pub no_delete: bool,
}

/// Whether responses of a watch may be split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragment {
    /// A revision's events come in one response.
    #[default]
    Whole,
    /// Responses above the limit of bytes are split.
    Split,
}

/// The kind of an event; the numbers are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// A put.
    Put = 0,
    /// A deletion: its key-value has the key and `mod_revision` only.
    Delete = 1,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind.
    pub kind: EventKind,
    /// The key-value after it.
    pub kv: KeyValue,
    /// The key-value before it, if asked for and existing.
    pub previous: Option<KeyValue>,
}

/// Watch id of a progress response that speaks for the whole stream.
pub const STREAM_WATCH_ID: i64 = -1;

/// A response on a stream of watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchResponse {
    /// Everything up to here was delivered, if there are no events; else the store's revision.
    pub revision: Revision,
    /// The watch, or [`STREAM_WATCH_ID`].
    pub watch_id: i64,
    /// What it says.
    pub body: WatchBody,
}

/// What a [`WatchResponse`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchBody {
    /// The watch exists; first response of each.
    Created,
    /// The watch is over.
    Canceled {
        /// Not 0 if it ended because its revision was compacted: the compact revision.
        compact_revision: Revision,
        /// Why; empty if the client asked for it.
        reason: String,
        /// Whether this also answers a creation that failed.
        created: bool,
    },
    /// No events: progress.
    Progress,
    /// Events, in order.
    Events {
        /// The events.
        events: Vec<Event>,
        /// Whether more of the same revisions follows.
        fragment: FragmentPart,
    },
}

/// Whether a response is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentPart {
    /// The last or only one.
    Last,
    /// More follows.
    More,
}
