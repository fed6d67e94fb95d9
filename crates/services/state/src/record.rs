//! Records of the log: one a request that changed something, with one checksum.
//!
//! The byte table is `docs/formats/state.md`.

use bytes::Bytes;

use crate::tree::Place;
use crate::{Alarm, Error, EventKind, Revision};

/// The version of the format.
const FORMAT: u8 = 1;
/// Bytes before a record's body.
const HEADER: usize = 16;
/// Bytes before a change's key-value.
const CHANGE: usize = 29;

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Changes of keys, of one revision.
    Changes = 1,
    /// A lease granted.
    Grant = 2,
    /// A lease revoked, and the deletions of its keys.
    Revoke = 3,
    /// History compacted below the record's revision.
    Compact = 4,
    /// Remaining times of leases.
    Checkpoint = 5,
    /// The revision jumps to the record's; older ones are compacted.
    Jump = 6,
    /// An alarm raised or cleared.
    Alarm = 7,
}

/// Writes a record.
pub(crate) struct Builder {
    bytes: Vec<u8>,
    number: u64,
    changes: u32,
}

impl Builder {
    pub(crate) fn new(kind: Kind, number: u64, revision: Revision) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&[FORMAT, kind as u8, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&revision.to_le_bytes());
        Self { bytes, number, changes: 0 }
    }

    pub(crate) fn number(&mut self, number: i64) -> &mut Self {
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Changes so far.
    pub(crate) fn changes(&self) -> u32 {
        self.changes
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a change; the entry before it, if any, is linked.
    pub(crate) fn change(
        &mut self,
        kind: EventKind,
        before: Option<(Revision, Place)>,
        fields: &crate::Fields<'_>,
    ) -> Place {
        let (revision, place) = before.unwrap_or((0, Place::from_raw(0, 0, 0)));
        self.bytes.push(kind as u8);
        self.bytes.extend_from_slice(&revision.to_le_bytes());
        self.bytes.extend_from_slice(&place.record.to_le_bytes());
        self.bytes.extend_from_slice(&place.start.to_le_bytes());
        self.bytes.extend_from_slice(&place.raw_length().to_le_bytes());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        fields.encode(&mut self.bytes);
        let start = at + 4;
        let length = (self.bytes.len() - start) as u32;
        self.bytes[at..start].copy_from_slice(&length.to_le_bytes());
        self.changes += 1;
        match kind {
            EventKind::Put => Place::put(self.number, start as u32, length),
            EventKind::Delete => Place::deletion(self.number, start as u32, length),
        }
    }

    pub(crate) fn finish(mut self) -> Bytes {
        let checksum = checksum(&self.bytes);
        self.bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        self.bytes.into()
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..4]), &bytes[8..])
}

/// A change of a key, in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) kind: EventKind,
    /// The change of the key before it.
    pub(crate) before: Option<(Revision, Place)>,
    pub(crate) place: Place,
}

impl Change {
    /// Reads the change whose key-value begins at `start`.
    pub(crate) fn at(record: &[u8], number: u64, start: usize) -> Option<Self> {
        let head = record.get(start.checked_sub(CHANGE)?..start)?;
        let kind = match head[0] {
            0 => EventKind::Put,
            1 => EventKind::Delete,
            _ => return None,
        };
        let revision = i64::from_le_bytes(array(head, 1)?);
        let before = Place::from_raw(
            u64::from_le_bytes(array(head, 9)?),
            u32::from_le_bytes(array(head, 17)?),
            u32::from_le_bytes(array(head, 21)?),
        );
        let length = u32::from_le_bytes(array(head, 25)?);
        let place = match kind {
            EventKind::Put => Place::put(number, start as u32, length),
            EventKind::Delete => Place::deletion(number, start as u32, length),
        };
        record.get(place.span())?;
        Some(Self { kind, before: (revision != 0).then_some((revision, before)), place })
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// A record, checked.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) bytes: Bytes,
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) revision: Revision,
}

impl Record {
    /// Checks a record's checksum and header.
    pub(crate) fn parse(bytes: Bytes, number: u64) -> Result<Self, Error> {
        Self::parse_trusted(bytes, number)
            .filter(|r| array(&r.bytes, 4).map(u32::from_le_bytes) == Some(checksum(&r.bytes)))
            .ok_or(Error::Corrupt)
    }

    /// Reads the header of a record that was checked before.
    pub(crate) fn parse_trusted(bytes: Bytes, number: u64) -> Option<Self> {
        if bytes.len() < HEADER || bytes[0] != FORMAT {
            return None;
        }
        let kind = match bytes[1] {
            1 => Kind::Changes,
            2 => Kind::Grant,
            3 => Kind::Revoke,
            4 => Kind::Compact,
            5 => Kind::Checkpoint,
            6 => Kind::Jump,
            7 => Kind::Alarm,
            _ => return None,
        };
        let revision = i64::from_le_bytes(array(&bytes, 8)?);
        Some(Self { bytes, number, kind, revision })
    }

    /// Whether it can hold changes of keys.
    pub(crate) fn has_changes(&self) -> bool {
        matches!(self.kind, Kind::Changes | Kind::Revoke)
    }

    /// A number of the body, by its index.
    pub(crate) fn body_number(&self, index: usize) -> Option<i64> {
        array(&self.bytes, HEADER + 8 * index).map(i64::from_le_bytes)
    }

    /// Numbers in the body.
    pub(crate) fn body_numbers(&self) -> usize {
        (self.bytes.len() - HEADER) / 8
    }

    /// The alarm that it sets, and whether it is raised.
    pub(crate) fn alarm(&self) -> Option<(Alarm, bool)> {
        let alarm = match self.body_number(0)? {
            1 => Alarm::NoSpace,
            2 => Alarm::Corrupt,
            _ => return None,
        };
        Some((alarm, self.body_number(1)? != 0))
    }

    /// The changes, in order; damage ends them.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        let skip = if self.kind == Kind::Revoke { 8 } else { 0 };
        let mut at = if self.has_changes() { HEADER + skip } else { self.bytes.len() };
        std::iter::from_fn(move || {
            let change = Change::at(&self.bytes, self.number, at + CHANGE)?;
            at = change.place.span().end;
            Some(change)
        })
    }
}
