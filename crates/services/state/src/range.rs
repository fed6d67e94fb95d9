//! Ranges of keys, as requests name them.

use bytes::Bytes;

/// Where a range ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// It is the start's key alone.
    Single,
    /// Before this key.
    Before(Bytes),
    /// Nowhere.
    Open,
}

/// Keys from a first one to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    start: Bytes,
    end: End,
}

impl KeyRange {
    /// A range as etcd's requests write it: no end for one key, `\0` for all from `key` on.
    pub fn new(key: &Bytes, range_end: &Bytes) -> Self {
        let end = match range_end.as_ref() {
            [] => End::Single,
            [0] => End::Open,
            _ => End::Before(range_end.clone()),
        };
        Self { start: key.clone(), end }
    }

    /// All keys.
    pub fn all() -> Self {
        Self { start: Bytes::new(), end: End::Open }
    }

    /// The first key.
    pub fn start(&self) -> &Bytes {
        &self.start
    }

    /// The only key, of a range of one.
    pub fn single(&self) -> Option<&Bytes> {
        (self.end == End::Single).then_some(&self.start)
    }

    /// Whether it can hold no key.
    pub fn is_empty(&self) -> bool {
        matches!(&self.end, End::Before(end) if *end <= self.start)
    }

    /// Whether a key lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_ref() && self.ends_after(key)
    }

    /// Whether the end lies behind a key.
    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Single => key <= self.start.as_ref(),
            End::Before(end) => key < end.as_ref(),
            End::Open => true,
        }
    }

    /// The end as a key; `None` for an open one.
    pub(crate) fn end(&self) -> Option<Vec<u8>> {
        match &self.end {
            End::Single => Some([self.start.as_ref(), &[0]].concat()),
            End::Before(end) => Some(end.to_vec()),
            End::Open => None,
        }
    }
}
