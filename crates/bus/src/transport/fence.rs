//! Fences: where the partitions of a reader end at one time.

use crate::error::TransportError;

/// The ends of a reader's partitions: each partition's number, and the offset behind its newest
/// sample that the reader may still visit.
pub type Ends = Vec<(u32, u64)>;

/// The ends of what is stored at the time of [`Reader::fence`](super::Reader::fence), or how to
/// find them.
pub enum Fence {
    /// They are known.
    Ends(Ends),
    /// The engine must be queried, which waits for it, for a bounded time. The bus does so in a
    /// thread of its own.
    Query(Box<dyn FnOnce() -> Result<Fence, TransportError> + Send>),
    /// They are known when everything that is on its way has arrived. The bus polls this; it does
    /// not wait.
    Pending(Box<dyn FnMut() -> Result<Option<Ends>, TransportError> + Send>),
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ends(ends) => f.debug_tuple("Ends").field(ends).finish(),
            Self::Query(_) => f.write_str("Query"),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}
