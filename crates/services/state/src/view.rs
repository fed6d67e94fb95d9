//! The keys as of a committed revision: what readers hold, without blocking a writer.

use bytes::Bytes;

use crate::range::KeyRange;
use crate::record::{Change, Record};
use crate::tree::{Entry, Place, Tree};
use crate::{
    Content, Error, Fields, KeyValue, RangeRequest, RangeResponse, Revision, SortOrder, SortTarget,
};

/// Where key-values lie: the log, and the snapshot that holds what was trimmed from it.
pub trait Source {
    /// A record's payload; `None` if it was trimmed.
    ///
    /// # Errors
    ///
    /// The log is damaged there.
    fn record(&self, number: u64) -> Result<Option<Bytes>, Error>;

    /// A key's value in the snapshot.
    fn snapshot(&self, key: &[u8]) -> Option<KeyValue>;
}

/// The keys as of a revision; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub(crate) tree: Tree,
    pub(crate) revision: Revision,
    pub(crate) compact_revision: Revision,
    pub(crate) next_record: u64,
}

/// Reads a key-value at its place.
pub(crate) fn resolve(source: &dyn Source, key: &[u8], place: Place) -> Result<KeyValue, Error> {
    match source.record(place.record)? {
        Some(record) => KeyValue::from_log(record, place.span()).ok_or(Error::Corrupt),
        None => source.snapshot(key).ok_or(Error::Compacted),
    }
}

/// The place of a key's value as of a revision; `None` if it did not exist.
fn place_at(source: &dyn Source, entry: &Entry, at: Revision) -> Result<Option<Place>, Error> {
    let (mut revision, mut place) = (entry.revision, entry.place);
    while revision > at {
        let record = source.record(place.record)?.ok_or(Error::Compacted)?;
        let change = Change::at(&record, place.record, place.start as usize);
        match change.ok_or(Error::Corrupt)?.before {
            Some(before) => (revision, place) = before,
            None => return Ok(None),
        }
    }
    Ok((!place.is_deletion()).then_some(place))
}

impl View {
    /// The revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Reads below this revision are refused; 0: nothing was compacted.
    pub fn compact_revision(&self) -> Revision {
        self.compact_revision
    }

    /// The same with a later compact revision.
    #[must_use]
    pub fn compacted_at_least(self, revision: Revision) -> Self {
        Self { compact_revision: self.compact_revision.max(revision), ..self }
    }

    /// The number of the next record of the log.
    pub fn next_record(&self) -> u64 {
        self.next_record
    }

    /// Live keys.
    pub fn len(&self) -> usize {
        self.tree.count(&KeyRange::all())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses revisions that are compacted or do not exist yet.
    pub(crate) fn check_revision(&self, revision: Revision) -> Result<(), Error> {
        match revision {
            r if r > self.revision => Err(Error::FutureRevision),
            r if r > 0 && r < self.compact_revision => Err(Error::Compacted),
            _ => Ok(()),
        }
    }

    /// Answers a read.
    ///
    /// # Errors
    ///
    /// An empty key, a revision that is compacted or in the future, damage of the log.
    pub fn range(
        &self,
        request: &RangeRequest,
        source: &dyn Source,
    ) -> Result<RangeResponse, Error> {
        if request.key.is_empty() {
            return Err(Error::EmptyKey);
        }
        self.check_revision(request.revision)?;
        let range = KeyRange::new(&request.key, &request.range_end);
        let at = if request.revision > 0 { request.revision } else { self.revision };
        let mut response = RangeResponse { revision: self.revision, ..Default::default() };
        let current = at == self.revision;
        let limit = usize::try_from(request.limit).unwrap_or(0);
        let cut = if needs_all(request) || limit == 0 { usize::MAX } else { limit };
        let cut = if request.content == Content::CountOnly { 0 } else { cut };
        let (mut found, mut is_cut) = (0, false);
        for entry in self.tree.range(&range) {
            is_cut = current && found >= cut;
            if is_cut {
                break;
            }
            let place = if entry.revision <= at {
                entry.is_live().then_some(entry.place)
            } else {
                place_at(source, entry, at)?
            };
            let Some(place) = place else { continue };
            if found < cut {
                response.kvs.push(resolve(source, &entry.key, place)?);
            }
            found += 1;
        }
        let count = if is_cut { self.tree.count(&range) } else { found };
        response.count = count as i64;
        if request.content != Content::CountOnly {
            refine(request, &mut response);
            response.more |= !needs_all(request) && count > response.kvs.len();
        }
        Ok(response)
    }

    /// Calls `with` with each live key-value as of a revision, in order of keys; stops at an
    /// error. A revision one below the compact revision can be read, too.
    ///
    /// # Errors
    ///
    /// Those of `with`; damage of the log.
    pub fn scan<E: From<Error>>(
        &self,
        at: Revision,
        source: &dyn Source,
        mut with: impl FnMut(&Stored<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for entry in self.tree.range(&KeyRange::all()) {
            if let Some(place) = place_at(source, entry, at)? {
                let kv = resolve(source, &entry.key, place)?;
                with(&Stored { key: &entry.key, kv, place })?;
            }
        }
        Ok(())
    }

    /// A checksum (CRC-32C) over all key-values as of a revision; 0: the current one.
    ///
    /// # Errors
    ///
    /// A revision that is compacted or in the future; damage of the log.
    pub fn hash(&self, revision: Revision, source: &dyn Source) -> Result<u32, Error> {
        self.check_revision(revision)?;
        let at = if revision > 0 { revision } else { self.revision };
        let mut hash = 0;
        self.scan(at, source, |stored| {
            hash = crc32c::crc32c_append(hash, stored.kv.encoded());
            Ok::<_, Error>(())
        })?;
        Ok(hash)
    }
}

/// A live key-value, and where it lies in the log.
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    pub(crate) key: &'a [u8],
    /// The key-value.
    pub kv: KeyValue,
    pub(crate) place: Place,
}

impl Stored<'_> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// The record of the log, the first byte in it, and the bytes.
    pub fn place(&self) -> StoredPlace {
        let Place { record, start, .. } = self.place;
        StoredPlace { record, start, length: self.place.raw_length() }
    }
}

/// Where a key-value lay in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPlace {
    /// The record.
    pub record: u64,
    /// The first byte in its payload.
    pub start: u32,
    /// Bytes.
    pub length: u32,
}

/// Whether the limit can be applied only after all keys were read.
fn needs_all(request: &RangeRequest) -> bool {
    let sorted = match request.sort_target {
        SortTarget::Key => request.sort_order == SortOrder::Descend,
        _ => true,
    };
    sorted
        || request.min_mod_revision != 0
        || request.max_mod_revision != 0
        || request.min_create_revision != 0
        || request.max_create_revision != 0
}

/// Filters, sorts and cuts what was read.
fn refine(request: &RangeRequest, response: &mut RangeResponse) {
    let between =
        |n: i64, least: i64, most: i64| (least == 0 || n >= least) && (most == 0 || n <= most);
    if needs_all(request) {
        response.kvs.retain(|kv| {
            let f = kv.fields();
            between(f.mod_revision, request.min_mod_revision, request.max_mod_revision)
                && between(
                    f.create_revision,
                    request.min_create_revision,
                    request.max_create_revision,
                )
        });
        sort(request, &mut response.kvs);
        let limit = usize::try_from(request.limit).unwrap_or(0);
        if limit > 0 && response.kvs.len() > limit {
            response.kvs.truncate(limit);
            response.more = true;
        }
    }
    if request.content == Content::KeysOnly {
        response.kvs = response.kvs.iter().map(KeyValue::without_value).collect();
    }
}

fn sort(request: &RangeRequest, kvs: &mut [KeyValue]) {
    let by = |a: Fields<'_>, b: Fields<'_>| match request.sort_target {
        SortTarget::Key => a.key.cmp(b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(b.value),
    };
    kvs.sort_by(|a, b| {
        let order = by(a.fields(), b.fields());
        if request.sort_order == SortOrder::Descend { order.reverse() } else { order }
    });
}

/// The records of revisions, for watches: each change in order.
pub(crate) fn record_of(source: &dyn Source, number: u64) -> Result<Record, Error> {
    let bytes = source.record(number)?.ok_or(Error::Compacted)?;
    Record::parse_trusted(bytes, number).ok_or(Error::Corrupt)
}
