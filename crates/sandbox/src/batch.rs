//! Batches: columns, written once into sealed memory that any number of workers map.
//!
//! Constraints: everything is checked here, so that a worker reads within its memory. Sealed
//! memory cannot change, whatever a worker does. Format: `docs/formats/filter-batch.md`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::{Value as Json, json};

/// Rows of a batch: its mask travels as one message.
pub const MAX_ROWS: usize = 1 << 18;
/// Columns of a batch, with those in lists.
pub const MAX_COLUMNS: usize = 4096;
/// Bytes of a batch: 100,000 rows with 300 doubles each. A worker's address space has room for one.
pub const MAX_BATCH_BYTES: u64 = 256 << 20;
/// Lists within lists.
const MAX_DEPTH: usize = 4;

const MAGIC: &[u8; 8] = b"HELIOFLT";
const VERSION: u32 = 1;
const START_BYTES: u64 = 16;
/// Buffers begin at multiples of this, as Arrow recommends.
const ALIGNMENT: u64 = 64;

/// The type of a column's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the types'")]
pub enum Number {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

impl Number {
    /// The type's name in a batch's header, as numpy writes it, and its bytes.
    fn name_and_bytes(self) -> (&'static str, usize) {
        match self {
            Self::I8 => ("i1", 1),
            Self::I16 => ("i2", 2),
            Self::I32 => ("i4", 4),
            Self::I64 => ("i8", 8),
            Self::U8 => ("u1", 1),
            Self::U16 => ("u2", 2),
            Self::U32 => ("u4", 4),
            Self::U64 => ("u8", 8),
            Self::F32 => ("f4", 4),
            Self::F64 => ("f8", 8),
        }
    }
}

/// A column of a batch, or a field of a list.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    /// The name, unique in the batch or list; empty for the values of a list without fields.
    pub name: &'a str,
    /// The values.
    pub values: Values<'a>,
    /// An Arrow bitmap, 1 for a value and 0 for null; none where there is no null.
    pub validity: Option<&'a [u8]>,
}

/// The values of a column, laid out as Arrow's, from the first row. Bytes behind the last row's are
/// ignored.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// Numbers, little-endian.
    Numbers {
        /// Their type.
        kind: Number,
        /// Their bytes.
        bytes: &'a [u8],
    },
    /// A bitmap, least significant bit first.
    Bools(&'a [u8]),
    /// Strings in UTF-8.
    Text {
        /// Where each string begins, and where the last ends: one more than rows.
        offsets: &'a [i32],
        /// The strings' bytes.
        bytes: &'a [u8],
    },
    /// Lists of values or records.
    List {
        /// Where each list begins in the fields, and where the last ends: one more than rows.
        offsets: &'a [i32],
        /// A column for each field.
        fields: &'a [Column<'a>],
    },
}

/// Why columns are no batch.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The batch is too large.
    #[error("a batch has {found} {what}, {limit} at most")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: u64,
        /// How much there may be.
        limit: u64,
    },
    /// A column's buffers do not fit its rows, or its name is taken.
    #[error("column {column}: {problem}")]
    Column {
        /// The column's name.
        column: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// Memory cannot be had.
    #[error("no memory for a batch: {0}")]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for BatchError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Columns in sealed memory, for any number of filters.
#[derive(Debug)]
pub struct Batch {
    memory: OwnedFd,
    bytes: u64,
    rows: usize,
}

impl Batch {
    /// Copies columns into new memory.
    ///
    /// # Errors
    ///
    /// See [`BatchError`].
    pub fn new(rows: usize, columns: &[Column<'_>]) -> Result<Self, BatchError> {
        limit("rows", rows as u64, MAX_ROWS as u64)?;
        let mut layout = Layout::default();
        let columns = layout.columns(columns, rows, 0)?;
        limit("columns", layout.columns, MAX_COLUMNS as u64)?;
        let header = json!({"rows": rows, "columns": columns}).to_string();
        let start = (START_BYTES + header.len() as u64).next_multiple_of(ALIGNMENT);
        let bytes = start + layout.end;
        limit("bytes", bytes, MAX_BATCH_BYTES)?;
        let memory = write(&header, start, &layout.buffers, bytes)?;
        Ok(Self { memory: memory.into(), bytes, rows })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn memory(&self) -> (&OwnedFd, u64) {
        (&self.memory, self.bytes)
    }
}

fn limit(what: &'static str, found: u64, limit: u64) -> Result<(), BatchError> {
    if found > limit { Err(BatchError::TooLarge { what, found, limit }) } else { Ok(()) }
}

fn write(
    header: &str,
    start: u64,
    buffers: &[(u64, Cow<'_, [u8]>)],
    bytes: u64,
) -> Result<File, BatchError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = File::from(memfd_create("helio-filter-batch", flags)?);
    memory.set_len(bytes)?;
    let mut head = Vec::from(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend(u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes());
    head.extend(header.as_bytes());
    memory.write_all_at(&head, 0)?;
    for (offset, buffer) in buffers {
        memory.write_all_at(buffer, start + offset)?;
    }
    let sealed = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&memory, sealed)?;
    Ok(memory)
}

/// The buffers of a batch, each at its offset from the first.
#[derive(Default)]
struct Layout<'a> {
    buffers: Vec<(u64, Cow<'a, [u8]>)>,
    end: u64,
    columns: u64,
}

impl<'a> Layout<'a> {
    /// Places the columns' buffers, and describes them.
    fn columns(
        &mut self,
        columns: &[Column<'a>],
        rows: usize,
        depth: usize,
    ) -> Result<Vec<Json>, BatchError> {
        let mut names = HashSet::new();
        let mut described = Vec::new();
        for column in columns {
            let error = |problem| BatchError::Column { column: column.name.into(), problem };
            if !names.insert(column.name) {
                return Err(error("there are two of that name"));
            }
            self.columns += 1;
            let mut description = self.values(&column.values, rows).map_err(error)?;
            description["name"] = column.name.into();
            if let Some(bits) = column.validity {
                let bits = bits.get(..rows.div_ceil(8));
                let bits = bits.ok_or_else(|| error("the validity has fewer bits than rows"))?;
                description["validity"] = self.place(Cow::Borrowed(bits));
            }
            if let Values::List { offsets, fields } = column.values {
                if depth == MAX_DEPTH {
                    return Err(error("lists are nested too deep"));
                }
                let values = last(offsets);
                description["fields"] = self.columns(fields, values, depth + 1)?.into();
            }
            described.push(description);
        }
        Ok(described)
    }

    fn values(&mut self, values: &Values<'a>, rows: usize) -> Result<Json, &'static str> {
        let too_short = "the values are shorter than the rows";
        match *values {
            Values::Numbers { kind, bytes } => {
                let (name, width) = kind.name_and_bytes();
                let values = bytes.get(..rows * width).ok_or(too_short)?;
                Ok(json!({"type": name, "values": self.place(Cow::Borrowed(values))}))
            }
            Values::Bools(bits) => {
                let values = bits.get(..rows.div_ceil(8)).ok_or(too_short)?;
                Ok(json!({"type": "bool", "values": self.place(Cow::Borrowed(values))}))
            }
            Values::Text { offsets, bytes } => {
                let offsets = self.offsets(offsets, rows, bytes.len())?;
                let values = self.place(Cow::Borrowed(bytes));
                Ok(json!({"type": "utf8", "offsets": offsets, "values": values}))
            }
            Values::List { offsets, .. } => {
                // The fields are checked against the last offset, as their number of rows.
                let offsets = self.offsets(offsets, rows, usize::MAX)?;
                Ok(json!({"type": "list", "offsets": offsets}))
            }
        }
    }

    fn offsets(
        &mut self,
        offsets: &[i32],
        rows: usize,
        values: usize,
    ) -> Result<Json, &'static str> {
        let offsets = offsets.get(..=rows).ok_or("the offsets are not one more than the rows")?;
        if offsets[0] < 0 || !offsets.is_sorted() || last(offsets) > values {
            return Err("the offsets decrease, or lie beyond the values");
        }
        let bytes: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        Ok(self.place(Cow::Owned(bytes)))
    }

    /// Where a buffer lies: its offset and length in bytes.
    fn place(&mut self, buffer: Cow<'a, [u8]>) -> Json {
        let (offset, length) = (self.end, buffer.len() as u64);
        self.end = (offset + length).next_multiple_of(ALIGNMENT);
        self.buffers.push((offset, buffer));
        json!([offset, length])
    }
}

fn last(offsets: &[i32]) -> usize {
    offsets.last().and_then(|last| usize::try_from(*last).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn contents(batch: &Batch) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(batch.bytes).unwrap()];
        let file = File::from(batch.memory.try_clone().unwrap());
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn number<'a>(name: &'a str, bytes: &'a [u8]) -> Column<'a> {
        Column { name, values: Values::Numbers { kind: Number::U8, bytes }, validity: None }
    }

    fn list<'a>(offsets: &'a [i32], fields: &'a [Column<'a>]) -> Column<'a> {
        Column { name: "l", values: Values::List { offsets, fields }, validity: None }
    }

    fn text(offsets: &[i32]) -> Column<'_> {
        let values = Values::Text { offsets, bytes: b"abc" };
        Column { name: "s", values, validity: None }
    }

    fn problem(rows: usize, columns: &[Column<'_>]) -> String {
        Batch::new(rows, columns).unwrap_err().to_string()
    }

    #[test]
    fn a_batch_has_the_bytes_of_its_page() {
        let fields = [number("flux", &[5, 6, 7])];
        let batch = Batch::new(
            2,
            &[
                Column { validity: Some(&[0b10]), ..number("n", &[1, 2, 3]) },
                Column { name: "b", values: Values::Bools(&[0b01]), validity: None },
                text(&[0, 2, 3]),
                list(&[0, 1, 3], &fields),
            ],
        );
        let bytes = contents(&batch.unwrap());
        let header = concat!(
            r#"{"rows":2,"columns":[{"type":"u1","values":[0,2],"name":"n","validity":[64,1]},"#,
            r#"{"type":"bool","values":[128,1],"name":"b"},"#,
            r#"{"type":"utf8","offsets":[192,12],"values":[256,3],"name":"s"},"#,
            r#"{"type":"list","offsets":[320,12],"name":"l","#,
            r#""fields":[{"type":"u1","values":[384,3],"name":"flux"}]}]}"#,
        );
        assert_eq!(&bytes[..8], b"HELIOFLT");
        assert_eq!(bytes[8..12], 1_u32.to_le_bytes());
        assert_eq!(bytes[12..16], u32::try_from(header.len()).unwrap().to_le_bytes());
        assert_eq!(std::str::from_utf8(&bytes[16..16 + header.len()]).unwrap(), header);
        let data = &bytes[(16 + header.len()).next_multiple_of(64)..];
        assert_eq!(
            [&data[..3], &data[64..66], &data[128..130]],
            [&[1, 2, 0][..], &[2, 0], &[1, 0]]
        );
        assert_eq!(data[192..204], [0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!([&data[256..260], &data[384..388]], [&b"abc\0"[..], &[5, 6, 7, 0]]);
    }

    #[test]
    fn a_batch_is_sealed() {
        let batch = Batch::new(1, &[number("n", &[1])]).unwrap();
        let file = File::from(batch.memory.try_clone().unwrap());
        assert!(file.write_all_at(b"x", 0).is_err() && file.set_len(0).is_err());
        let mut byte = [0];
        (&file).read_exact(&mut byte).unwrap();
        assert_eq!(byte, [b'H']);
    }

    #[test]
    fn buffers_that_do_not_fit_are_refused() {
        let short = "column n: the values are shorter than the rows";
        assert_eq!(problem(3, &[number("n", &[1, 2])]), short);
        assert_eq!(problem(3, &[list(&[0, 1, 2, 3], &[number("n", &[1, 2])])]), short);
        let validity = Column { validity: Some(&[0xff]), ..number("n", &[1; 9]) };
        assert_eq!(problem(9, &[validity]), "column n: the validity has fewer bits than rows");
        let offsets = "column s: the offsets decrease, or lie beyond the values";
        for wrong in [[0, 2, 1], [-1, 0, 0], [0, 0, 4]] {
            assert_eq!(problem(2, &[text(&wrong)]), offsets);
        }
        let few = "column s: the offsets are not one more than the rows";
        assert_eq!([problem(2, &[text(&[0, 1])]), problem(0, &[text(&[])])], [few; 2]);
        let twice = "column n: there are two of that name";
        assert_eq!(problem(1, &[number("n", &[1]), number("n", &[1])]), twice);
        assert_eq!(problem(1, &[list(&[0, 1], &[number("n", &[1]), number("n", &[1])])]), twice);
    }

    #[test]
    fn a_batch_is_bounded() {
        assert_eq!(problem(MAX_ROWS + 1, &[]), "a batch has 262145 rows, 262144 at most");
        let names: Vec<String> = (0..=MAX_COLUMNS).map(|n| n.to_string()).collect();
        let columns: Vec<_> = names.iter().map(|name| number(name, &[])).collect();
        assert_eq!(problem(0, &columns), "a batch has 4097 columns, 4096 at most");
        let bytes = vec![0; 8 * MAX_ROWS];
        let values = Values::Numbers { kind: Number::F64, bytes: &bytes };
        let wide: Vec<_> =
            names.iter().take(128).map(|name| Column { name, values, validity: None }).collect();
        assert!(problem(MAX_ROWS, &wide).ends_with("bytes, 268435456 at most"));
        let innermost = [list(&[0], &[])];
        let third = [list(&[0], &innermost)];
        let second = [list(&[0], &third)];
        let first = [list(&[0], &second)];
        assert!(Batch::new(0, &first).is_ok());
        let nested = [list(&[0], &first)];
        assert_eq!(problem(0, &nested), "column l: lists are nested too deep");
    }
}
