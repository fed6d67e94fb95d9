//! The embedded engine: a crash-safe, memory-mapped, multi-process log in a folder.
//!
//! It knows files, locks and clocks; it knows nothing of quality of service, of schemas' contents,
//! or of any transport. Many processes open one folder; there is no server.
//! `docs/formats/journal.md` is the format byte by byte, `docs/adr/0004-journal.md` says why it is
//! so.
//!
//! - A [`Journal`] has topics, a [`Topic`] has partitions, a partition is a log of records.
//! - A [`Writer`] appends under a producer's claim; when it returns, the record is *stored*: it
//!   survives the death of any process.
//! - A [`Reader`] gives records, in place, or tells what it could not give as a [`Gap`].
//! - A [`Bell`] makes a thread sleep until any of its readers has something.

mod bell;
mod control;
mod cursor;
mod doorbells;
mod env;
mod error;
mod frame;
mod futex;
mod groups;
mod hash;
mod journal;
mod keys;
mod latest_by_key;
mod lock;
mod maintenance;
mod map;
mod options;
mod partition;
mod pipes;
mod process;
mod producers;
mod reader;
mod recovery;
mod retention;
mod segment;
mod signal;
mod sync;
mod syncers;
mod topic;
mod waiters;
mod wake_hints;
mod writer;

pub use bell::{Bell, Wake};
pub use control::RecoveryReport;
pub use cursor::{Gap, GapCause};
pub use error::{AppendError, JournalError};
pub use frame::{MAX_KEY_BYTES, MAX_RECORD_BYTES};
pub use groups::{Group, MAX_MEMBERS, Member, MemberInfo};
pub use journal::{FORMAT_VERSION, Journal, MAX_SCHEMA_BYTES, TopicInfo};
pub use options::{
    Access, Clock, JournalOptions, LastValue, MAX_PARTITIONS, MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES,
    Maintenance, SyncHook, SyncPolicy, TopicConfig,
};
pub use partition::OnDurable;
pub use producers::{Lease, Ownership, ProducerInfo, WriterOptions};
pub use reader::{From, Item, Reader, ReaderWatch, SampleRef};
pub use topic::{PartitionInfo, ProducerClaim, Topic};
pub use wake_hints::{Hint, Hints, WakeTargets};
pub use writer::{Record, Writer};
