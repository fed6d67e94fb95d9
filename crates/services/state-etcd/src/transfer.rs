//! Copies all keys from a server with etcd's API: to a snapshot of the store, or to an empty etcd.
//!
//! Constraints. All keys are of one revision. A key that has a lease keeps it, with the remaining
//! time; it never expires earlier than in its old place. Memory holds a page of keys, and the
//! leases.
//!
//! Kine has no requests about leases: there a lease's id is its time to live. It lists only keys
//! with a prefix that ends with `/`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use helio_state::{Image, KeyValue, LeaseImage, Revision};
use helio_state_node::SnapshotError;
use helio_state_node::snapshot::Writer;
use thiserror::Error;
use tonic::Code;

use crate::client::{Client, ClientError};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::request_op::Request;

/// The keys of a page.
const PAGE_KEYS: i64 = 500;
/// The keys and bytes of one transaction of an export.
const TXN_KEYS: usize = 64;
const TXN_BYTES: usize = 512 << 10;
/// The least time to live of an exported lease, in seconds: its keys are still to be written.
const LEAST_TTL: i64 = 60;
/// The longest time to live that Kine grants, in seconds: a larger id is no time.
const LONGEST_KINE_TTL: i64 = 10 * 365 * 86_400;

/// Why keys cannot be copied.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransferError {
    /// A server's error, or no connection.
    #[error("{whose}: {error}")]
    Server {
        /// Which server: `the source` or `the target`.
        whose: &'static str,
        /// The error.
        error: ClientError,
    },
    /// The revision was compacted while it was copied.
    #[error(
        "the source compacted revision {0} meanwhile: try again, or pause its compaction (for \
         Kubernetes, five minutes apart)"
    )]
    Compacted(Revision),
    /// The source has other keys than at first.
    #[error(
        "the source listed {expected} keys at revision {revision}, and gave {found}: report it"
    )]
    Incomplete {
        /// The revision.
        revision: Revision,
        /// The keys that it counted.
        expected: u64,
        /// The keys that it gave.
        found: u64,
    },
    /// The target has keys or leases.
    #[error("the target is not empty ({0}): export to a new etcd")]
    NotEmpty(String),
    /// A lease that nothing is known about.
    #[error("the source tells nothing of lease {0:x}: remove its keys, or the lease")]
    UnknownLease(i64),
    /// The snapshot cannot be written.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Keys copied.
    pub keys: u64,
    /// All keys.
    pub of: u64,
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// The source's revision of all keys.
    pub revision: Revision,
    /// Keys.
    pub keys: u64,
    /// Leases.
    pub leases: u64,
    /// Keys whose lease ended while they were copied (exports only).
    pub expired: u64,
}

/// Writes a snapshot of all keys of a source, or of those with a prefix, for
/// [`helio_state_node::restore`].
///
/// # Errors
/// [`TransferError`].
pub fn import(
    source: &Client,
    prefix: &[u8],
    file: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Copied, TransferError> {
    let pages = Pages::new(source, prefix)?;
    let leases = pages.leases()?;
    let image = Image {
        revision: pages.revision,
        compact_revision: pages.revision,
        next_record: 1,
        leases: leases.values().copied().collect(),
        alarms: Vec::new(),
    };
    let mut writer = Writer::create(file, image)?;
    let mut keys = 0;
    pages.each(Keys::Whole, &mut |page| {
        page.iter().try_for_each(|kv| writer.push(kv))?;
        keys += page.len() as u64;
        progress(Progress { keys, of: pages.count });
        Ok(())
    })?;
    pages.check(keys)?;
    writer.finish()?;
    let (revision, leases) = (pages.revision, leases.len() as u64);
    Ok(Copied { revision, keys, leases, expired: 0 })
}

/// Writes all keys of a source, or of those with a prefix, to an empty target; revisions start anew
/// there. Keys with leases come last.
///
/// # Errors
/// [`TransferError`].
pub fn export(
    source: &Client,
    prefix: &[u8],
    target: &Client,
    progress: &mut dyn FnMut(Progress),
) -> Result<Copied, TransferError> {
    refuse_full(target)?;
    let pages = Pages::new(source, prefix)?;
    let mut keys = 0;
    let mut filling = Filling { source, target, granted: BTreeMap::new(), expired: 0 };
    for leased in [Leased::No, Leased::Yes] {
        pages.each(Keys::Whole, &mut |page| {
            let wanted =
                page.iter().filter(|kv| (kv.fields().lease != 0) == (leased == Leased::Yes));
            keys += filling.put(wanted)?;
            progress(Progress { keys, of: pages.count });
            Ok(())
        })?;
    }
    let expired = filling.expired;
    pages.check(keys + expired)?;
    for id in leases_of(source)? {
        filling.lease(id)?;
    }
    let leases = filling.granted.values().filter(|granted| **granted).count() as u64;
    Ok(Copied { revision: pages.revision, keys, leases, expired })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leased {
    No,
    Yes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Only,
    Whole,
}

/// The end of all keys with a prefix; all keys, if it is empty.
fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(b"\0")
}

fn at_source(error: ClientError) -> TransferError {
    TransferError::Server { whose: "the source", error }
}

fn at_target(error: ClientError) -> TransferError {
    TransferError::Server { whose: "the target", error }
}

/// The keys of a source at one revision.
struct Pages<'a> {
    source: &'a Client,
    first: Bytes,
    end: Bytes,
    revision: Revision,
    count: u64,
    /// The leases of keys.
    leases: BTreeSet<i64>,
}

impl<'a> Pages<'a> {
    fn new(source: &'a Client, prefix: &[u8]) -> Result<Self, TransferError> {
        let first = if prefix.is_empty() { b"\0" } else { prefix };
        let (first, end) = (Bytes::copy_from_slice(first), prefix_end(prefix));
        let leases = BTreeSet::new();
        let mut pages = Self { source, first: first.clone(), end, revision: 0, count: 0, leases };
        let begun = pages.page(first, Keys::Only, 1)?;
        pages.revision = begun.header.unwrap_or_default().revision;
        let (mut count, mut leases) = (0, BTreeSet::new());
        pages.each(Keys::Only, &mut |page| {
            count += page.len() as u64;
            leases.extend(page.iter().map(|kv| kv.fields().lease).filter(|id| *id != 0));
            Ok(())
        })?;
        Ok(Self { count, leases, ..pages })
    }

    fn page(&self, key: Bytes, keys: Keys, limit: i64) -> Result<pb::RangeResponse, TransferError> {
        let request = pb::RangeRequest {
            key,
            range_end: self.end.clone(),
            limit,
            revision: self.revision,
            keys_only: keys == Keys::Only,
            ..pb::RangeRequest::default()
        };
        self.source.range(request).map_err(|error| match error {
            ClientError::Refused(status) if status.code() == Code::OutOfRange => {
                TransferError::Compacted(self.revision)
            }
            error => at_source(error),
        })
    }

    /// Calls `with` with each page of keys.
    fn each(
        &self,
        keys: Keys,
        with: &mut dyn FnMut(&[KeyValue]) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let mut next = self.first.clone();
        loop {
            let page = self.page(next, keys, PAGE_KEYS)?;
            let kvs: Vec<KeyValue> = page.kvs.into_iter().map(|kv| kv.0).collect();
            with(&kvs)?;
            let Some(last) = kvs.last().filter(|_| page.more) else { return Ok(()) };
            next = [last.fields().key, b"\0"].concat().into();
        }
    }

    fn check(&self, found: u64) -> Result<(), TransferError> {
        let (revision, expected) = (self.revision, self.count);
        match found == expected {
            true => Ok(()),
            false => Err(TransferError::Incomplete { revision, expected, found }),
        }
    }

    /// The times of all leases: those of keys, and the others that the source lists.
    fn leases(&self) -> Result<BTreeMap<i64, LeaseImage>, TransferError> {
        let mut leases = BTreeMap::new();
        let listed = leases_of(self.source)?;
        for id in self.leases.iter().copied().chain(listed) {
            let image = match times_of(self.source, id)? {
                Some(image) => image,
                // It ended after the revision: its keys go with the next expiry.
                None if self.leases.contains(&id) => LeaseImage { id, ttl: 1, checkpoint: 1 },
                None => continue,
            };
            leases.insert(id, image);
        }
        Ok(leases)
    }
}

/// The ids of a server's leases; none, if it does not list them.
fn leases_of(source: &Client) -> Result<Vec<i64>, TransferError> {
    match source.leases() {
        Err(error) if is_unserved(&error) => Ok(Vec::new()),
        leases => leases.map_err(at_source),
    }
}

/// A lease's granted and remaining time; none, if it has ended.
fn times_of(source: &Client, id: i64) -> Result<Option<LeaseImage>, TransferError> {
    match source.lease_times(id) {
        Ok((remaining, _)) if remaining < 0 => Ok(None),
        Ok((remaining, ttl)) => {
            let checkpoint = remaining.max(1);
            Ok(Some(LeaseImage { id, ttl: ttl.max(checkpoint), checkpoint }))
        }
        Err(error) if is_unserved(&error) => match (1..=LONGEST_KINE_TTL).contains(&id) {
            true => Ok(Some(LeaseImage { id, ttl: id, checkpoint: id })),
            false => Err(TransferError::UnknownLease(id)),
        },
        Err(error) => Err(at_source(error)),
    }
}

/// Whether a server does not know a request. Kine says so with the code Unknown.
fn is_unserved(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(status) => match status.code() {
            Code::Unimplemented => true,
            Code::Unknown => status.message().contains("not supported"),
            _ => false,
        },
        _ => false,
    }
}

fn refuse_full(target: &Client) -> Result<(), TransferError> {
    let all = pb::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        count_only: true,
        ..pb::RangeRequest::default()
    };
    let keys = target.range(all).map_err(at_target)?.count;
    if keys > 0 {
        return Err(TransferError::NotEmpty(format!("{keys} keys")));
    }
    let leases = target.leases().map_err(at_target)?.len();
    if leases > 0 {
        return Err(TransferError::NotEmpty(format!("{leases} leases")));
    }
    Ok(())
}

/// The target of an export, as it is filled.
struct Filling<'a> {
    source: &'a Client,
    target: &'a Client,
    /// The leases of the source, and whether they exist still.
    granted: BTreeMap<i64, bool>,
    expired: u64,
}

impl Filling<'_> {
    /// Writes keys in transactions; those that were written.
    fn put<'k>(&mut self, kvs: impl Iterator<Item = &'k KeyValue>) -> Result<u64, TransferError> {
        let (mut written, mut bytes) = (0, 0);
        let mut batch = Vec::new();
        for kv in kvs {
            let lease = kv.fields().lease;
            if lease != 0 && !self.lease(lease)? {
                self.expired += 1;
                continue;
            }
            let length = kv.encoded().len();
            if !batch.is_empty() && (batch.len() >= TXN_KEYS || bytes + length > TXN_BYTES) {
                self.write(std::mem::take(&mut batch))?;
                bytes = 0;
            }
            batch.push(kv);
            bytes += length;
            written += 1;
        }
        if !batch.is_empty() {
            self.write(batch)?;
        }
        Ok(written)
    }

    /// Creates keys, all or none.
    fn write(&self, kvs: Vec<&KeyValue>) -> Result<(), TransferError> {
        let absent = |kv: &&KeyValue| pb::Compare {
            key: kv.key(),
            result: CompareResult::Equal.into(),
            target: CompareTarget::Create.into(),
            target_union: Some(TargetUnion::CreateRevision(0)),
            ..pb::Compare::default()
        };
        let put = |kv: &&KeyValue| pb::RequestOp {
            request: Some(Request::RequestPut(pb::PutRequest {
                key: kv.key(),
                value: kv.value(),
                lease: kv.fields().lease,
                ..pb::PutRequest::default()
            })),
        };
        // One as large as etcd takes has no room for its key a second time.
        let compare = match kvs.iter().map(|kv| kv.encoded().len()).sum::<usize>() {
            ..=TXN_BYTES => kvs.iter().map(absent).collect(),
            _ => Vec::new(),
        };
        let success = kvs.iter().map(put).collect();
        let request = pb::TxnRequest { compare, success, failure: Vec::new() };
        match self.target.txn(request).map_err(at_target)?.succeeded {
            true => Ok(()),
            false => Err(TransferError::NotEmpty("somebody else writes to it".to_owned())),
        }
    }

    /// Grants a lease, unless it has ended.
    fn lease(&mut self, id: i64) -> Result<bool, TransferError> {
        if let Some(granted) = self.granted.get(&id) {
            return Ok(*granted);
        }
        let lease = times_of(self.source, id)?;
        if let Some(lease) = lease {
            let ttl = lease.checkpoint.max(LEAST_TTL);
            self.target.lease_grant(id, ttl).map_err(at_target)?;
        }
        self.granted.insert(id, lease.is_some());
        Ok(lease.is_some())
    }
}
