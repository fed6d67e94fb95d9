//! The archive of log records: files in a folder, by level, without a server.
//!
//! It knows packets of log records, their reader, and files. It must not know any transport or
//! output format.
//!
//! Constraints. A process killed at any moment loses no record and stores none twice. Blocks that
//! cannot be written wait, and the error is reported; removed records are counted and reported. A
//! search takes time for the blocks that can match, and memory for a few of them, however large the
//! archive is.
//!
//! Format: `docs/formats/log-archive.md`. Each lane has a folder of segments. A segment consists of
//! blocks: a compressed packet of records, a Bloom filter of its index terms, and the reader's
//! cursor.
//!
//! Operation. An [`Archiver`] reads a bus and fills an [`Archive`]. `lane` has the files of one
//! level, `segment` and `block` their bytes, `removed` the totals of retention. A [`Search`] reads
//! the files concurrently. A [`ParquetWriter`] writes its results as a Parquet file.

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
