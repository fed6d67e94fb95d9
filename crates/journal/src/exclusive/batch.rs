//! A batch: the payload of one frame.
//!
//! Format: offset of the first record (8), number of records (4), 0 (4); for each record the end of
//! its bytes behind this table (4); the records' bytes.

use crate::frame::MAX_RECORD_BYTES;

const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 4;

/// The most records of a batch.
pub const MAX_BATCH_RECORDS: usize = 1 << 20;
/// The most bytes of a batch: its records, and 4 bytes for each.
pub const MAX_BATCH_BYTES: usize = 63 << 20;
const _: () = assert!(MAX_BATCH_BYTES + HEAD_BYTES <= MAX_RECORD_BYTES);

/// What a frame of an epoch is, in its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Batch = 0,
    Begin = 1,
    End = 2,
}

/// The records of a payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'a> {
    pub(super) first: u64,
    pub(super) count: u32,
    table: &'a [u8],
    bytes: &'a [u8],
}

pub(super) fn encode(first: u64, records: &[&[u8]]) -> Vec<u8> {
    let bytes: usize = records.iter().map(|record| record.len()).sum();
    let mut out = Vec::with_capacity(HEAD_BYTES + records.len() * ENTRY_BYTES + bytes);
    out.extend(first.to_le_bytes());
    // The limits fit in 32 bits.
    out.extend((records.len() as u32).to_le_bytes());
    out.extend([0; 4]);
    let mut end = 0;
    for record in records {
        end += record.len();
        out.extend((end as u32).to_le_bytes());
    }
    records.iter().for_each(|record| out.extend_from_slice(record));
    out
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_le_bytes(*word))
}

impl<'a> Batch<'a> {
    /// Parses a payload; `None` if its table contradicts it.
    pub(super) fn parse(payload: &'a [u8]) -> Option<Self> {
        let (head, rest) = payload.split_at_checked(HEAD_BYTES)?;
        let first = u64::from_le_bytes(*head.first_chunk()?);
        let count = word(&head[8..])?;
        let (table, bytes) = rest.split_at_checked(count as usize * ENTRY_BYTES)?;
        let last = table.last_chunk::<ENTRY_BYTES>().map_or(0, |word| u32::from_le_bytes(*word));
        let whole = count > 0 && last as usize == bytes.len();
        first.checked_add(count.into()).filter(|_| whole)?;
        Some(Self { first, count, table, bytes })
    }

    /// The offset behind its last record.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// A record by its offset; `None` if it has none, or its table is wrong.
    pub(super) fn get(&self, offset: u64) -> Option<&'a [u8]> {
        let at = usize::try_from(offset.checked_sub(self.first)?).ok()?;
        let end_of = |at: usize| word(self.table.get(at.checked_mul(ENTRY_BYTES)?..)?);
        let begin = if at == 0 { 0 } else { end_of(at - 1)? };
        self.bytes.get(begin as usize..end_of(at)? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_s_records_are_found_by_offset() {
        let records: [&[u8]; 4] = [b"one", b"", b"three", b"4"];
        let payload = encode(70, &records);
        let batch = Batch::parse(&payload).unwrap();
        assert_eq!((batch.first, batch.end()), (70, 74));
        let found: Vec<_> = (70..74).map(|offset| batch.get(offset).unwrap()).collect();
        assert_eq!(found, records);
        assert!(batch.get(69).is_none() && batch.get(74).is_none());
    }

    #[test]
    fn no_payload_makes_it_panic() {
        let payload = encode(7, &[b"one", b"two"]);
        for cut in 0..payload.len() {
            assert!(Batch::parse(&payload[..cut]).is_none(), "{cut}");
        }
        for at in 0..payload.len() {
            let mut wrong = payload.clone();
            wrong[at] ^= 0x81;
            if let Some(batch) = Batch::parse(&wrong) {
                let all = (0..20).filter(|offset| batch.get(*offset).is_some()).count();
                assert!(all <= batch.count as usize, "bit at {at}");
            }
        }
        let last = [&u64::MAX.to_le_bytes()[..], &1_u32.to_le_bytes(), &[0; 8]].concat();
        assert!(Batch::parse(&last).is_none(), "offsets end before");
    }
}
