//! Errors, with the codes and texts of etcd: its clients match the text first.
//!
//! Source: etcd, `api/v3rpc/rpctypes/error.go`.

/// gRPC status codes that the store's errors use; the numbers are gRPC's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// The request itself is wrong.
    InvalidArgument = 3,
    /// A lease does not exist.
    NotFound = 5,
    /// Space or a rate is exhausted.
    ResourceExhausted = 8,
    /// The state does not allow the request.
    FailedPrecondition = 9,
    /// A revision or a time to live is out of range.
    OutOfRange = 11,
    /// The request is not served.
    Unimplemented = 12,
    /// The store cannot answer now; the outcome of a write is unknown.
    Unavailable = 14,
    /// Stored data failed a check.
    DataLoss = 15,
}

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $code:ident, $text:literal;)*) => {
        /// Errors of requests; `Display` is etcd's exact text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
        pub enum Error {
            $($(#[$doc])* #[error($text)] $name,)*
        }

        impl Error {
            /// All errors.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The status code of gRPC.
            pub fn code(self) -> Code {
                match self { $(Self::$name => Code::$code,)* }
            }

            /// The text of etcd, which clients compare.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

errors! {
    /// A request without a key.
    EmptyKey = InvalidArgument, "etcdserver: key is not provided";
    /// `ignore_value` or `ignore_lease` for a key that does not exist.
    KeyNotFound = InvalidArgument, "etcdserver: key not found";
    /// `ignore_value` with a value.
    ValueProvided = InvalidArgument, "etcdserver: value is provided";
    /// `ignore_lease` with a lease.
    LeaseProvided = InvalidArgument, "etcdserver: lease is provided";
    /// More operations in one list of a transaction than [`crate::Limits::txn_ops`].
    TooManyOps = InvalidArgument, "etcdserver: too many operations in txn request";
    /// Two puts of one key, or a put inside a deleted range.
    DuplicateKey = InvalidArgument, "etcdserver: duplicate key given in txn request";
    /// Unknown sort order or target.
    InvalidSortOption = InvalidArgument, "etcdserver: invalid sort option";
    /// The revision has been compacted.
    Compacted = OutOfRange, "etcdserver: mvcc: required revision has been compacted";
    /// The revision does not exist yet.
    FutureRevision = OutOfRange, "etcdserver: mvcc: required revision is a future revision";
    /// The quota or the disk is exhausted; the alarm NOSPACE is raised.
    NoSpace = ResourceExhausted, "etcdserver: mvcc: database space exceeded";
    /// No such lease.
    LeaseNotFound = NotFound, "etcdserver: requested lease not found";
    /// The lease's id is taken.
    LeaseExists = FailedPrecondition, "etcdserver: lease already exists";
    /// A time to live above 9,000,000,000 s.
    LeaseTtlTooLarge = OutOfRange, "etcdserver: too large lease TTL";
    /// A request above [`crate::Limits::request_bytes`].
    RequestTooLarge = InvalidArgument, "etcdserver: request is too large";
    /// Too many requests are pending.
    TooManyRequests = ResourceExhausted, "etcdserver: too many requests";
    /// No zone leads.
    NoLeader = Unavailable, "etcdserver: no leader";
    /// This zone does not lead.
    NotLeader = FailedPrecondition, "etcdserver: not leader";
    /// The leader changed while the request was pending; a write's outcome is unknown.
    LeaderChanged = Unavailable, "etcdserver: leader changed";
    /// The store has been stopped.
    Stopped = Unavailable, "etcdserver: server stopped";
    /// No answer in time; a write's outcome is unknown.
    Timeout = Unavailable, "etcdserver: request timed out";
    /// A stored record failed its check.
    Corrupt = DataLoss, "etcdserver: corrupt cluster";
    /// The member does not exist.
    MemberNotFound = NotFound, "etcdserver: member not found";
    /// The member cannot lead.
    BadLeaderTransferee = FailedPrecondition, "etcdserver: bad leader transferee";
    /// Users and roles are not served.
    AuthNotEnabled = FailedPrecondition, "etcdserver: authentication is not enabled";
}
