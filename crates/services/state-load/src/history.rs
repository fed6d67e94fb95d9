//! What a load records: writes, reads, and what watches were notified of.

use bytes::Bytes;
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_etcd::{KeyValue, client};

use crate::objects::{self, PREFIX};

/// Keys of a page of a list.
const PAGE_KEYS: i64 = 500;

/// What is known of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged, at a revision.
    Acknowledged(i64),
    /// No answer came: it may have happened or not.
    Unknown,
}

/// A write: a transaction that compares the key's `mod_revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Bytes,
    /// The number of the value; none deletes the key.
    pub number: Option<u64>,
    /// The `mod_revision` that it compared; 0: the key is absent.
    pub expected: i64,
    /// The highest revision that anybody had been answered before it was sent.
    pub floor: i64,
    /// What is known of it.
    pub outcome: Outcome,
}

/// A linearizable read of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The key.
    pub key: Bytes,
    /// The revision of the answer.
    pub revision: i64,
    /// The highest revision that anybody had been answered before it was sent.
    pub floor: i64,
    /// The key's `mod_revision`; 0: it is absent.
    pub found: i64,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key.
    pub key: Bytes,
    /// Its revision.
    pub revision: i64,
    /// The number of the value; none: the key was deleted.
    pub number: Option<u64>,
    /// The `mod_revision` of the previous value that came with it; 0 without one.
    pub previous: i64,
}

/// What a watch was notified of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The prefix of its keys.
    pub prefix: Bytes,
    /// Its events, in the order of their arrival.
    pub events: Vec<Event>,
    /// How often it was resumed after its stream had broken.
    pub resumed: u64,
    /// Why it ended before its last event.
    pub ended: Option<String>,
}

/// A key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The key.
    pub key: Bytes,
    /// Its `create_revision`.
    pub created: i64,
    /// Its `mod_revision`.
    pub revision: i64,
    /// Its version.
    pub version: i64,
    /// Its lease; 0 without one.
    pub lease: i64,
    /// The number of its value.
    pub number: u64,
}

impl Stored {
    /// A key of an answer.
    pub fn of(kv: &KeyValue) -> Self {
        let fields = kv.0.fields();
        Self {
            key: Bytes::copy_from_slice(fields.key),
            created: fields.create_revision,
            revision: fields.mod_revision,
            version: fields.version,
            lease: fields.lease,
            number: objects::number(fields.value),
        }
    }
}

/// All keys of a prefix at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The revision.
    pub revision: i64,
    /// The keys, in order.
    pub keys: Vec<Stored>,
}

/// Lists the keys of a load at a revision, by pages; 0 is the current one.
///
/// # Errors
/// The server's.
pub fn list(client: &client::Client, revision: i64) -> Result<Listing, client::ClientError> {
    let mut request = pb::RangeRequest {
        key: Bytes::from_static(PREFIX.as_bytes()),
        range_end: objects::range_end(PREFIX.as_bytes()),
        limit: PAGE_KEYS,
        revision,
        ..pb::RangeRequest::default()
    };
    let mut listing = Listing { revision, ..Listing::default() };
    loop {
        let page = client.range(request.clone())?;
        if request.revision == 0 {
            listing.revision = page.header.unwrap_or_default().revision;
            request.revision = listing.revision;
        }
        listing.keys.extend(page.kvs.iter().map(Stored::of));
        let Some(last) = listing.keys.last().filter(|_| page.more) else { return Ok(listing) };
        request.key = [&last.key[..], &[0]].concat().into();
    }
}
