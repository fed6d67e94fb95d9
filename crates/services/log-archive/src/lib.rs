//! The archive of log records: files in a folder, by level, without a server.
//!
//! It knows packets of log records, the reader that gives them, and files; it must not know any
//! transport, nor what is printed.
//!
//! Constraints. The end of any process at any moment loses no record and keeps none twice. What
//! cannot be written waits, and is told; what is removed is counted, and told. A search costs time
//! for the blocks that can match and memory for a few of them, however large the archive is.
//!
//! Format: `docs/formats/log-archive.md`. A folder for each level's lane, in it segments, in these
//! blocks: a packet of records, compressed, with a filter of its keys and the reader's cursor.
//!
//! Operation. A [`Archiver`] reads a bus and fills an [`Archive`]; `lane` is the files of one level,
//! `segment` and `block` their bytes, `removed` what retention took. A [`Search`] reads them beside
//! it. A [`ParquetWriter`] writes
//! the records found as a Parquet file.

mod archive;
mod archiver;
mod block;
mod bloom;
mod builder;
mod bytes;
mod error;
mod files;
mod lane;
mod parquet_export;
mod removed;
mod search;
mod segment;

pub use archive::{Archive, ArchiveEvent, ArchiveOptions, Retention};
pub use archiver::Archiver;
pub use block::ArchivedGap;
pub use error::ArchiveError;
pub use parquet_export::ParquetWriter;
pub use removed::Removed;
pub use search::{Counts, Damage, Search, SearchItem};
