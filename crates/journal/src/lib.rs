//! The embedded engine: a crash-safe, memory-mapped, multi-process log in a folder.
//!
//! It knows files, locks and clocks. It knows neither quality of service nor the contents of
//! schemas, nor any transport. Many processes share one folder; there is no server.
//! `docs/formats/journal.md` describes the format byte by byte; `docs/adr/0004-journal.md` gives
//! the reasons.
//!
//! - A [`Journal`] has topics, a [`Topic`] has partitions, a partition is a log of records.
//! - A [`Writer`] appends under a producer's claim. When `append` returns, the record is *stored*:
//!   it survives the death of any process.
//! - A [`Reader`] returns records in place, and reports missing ones as a [`Gap`].
//! - A [`Bell`] blocks a thread until any of its readers has a new record.
//!
//! Modules, from the ground up: `map`, `sigbus`, `lock` and `futex` are the only ones with
//! `unsafe`, besides `segment`, `presence` and `users`. `access` sets who may read. `env` holds
//! what everything refers to: folder, options, process identity, `doorbells`, `locks`. `partition`
//! is one log; `writer`, `reader`, `sync`, `retention`, `recovery` (with `log_scan` and `rebuild`),
//! `repair` and `keys` are its operations; `group_positions` lies below it. `bell`, `groups` and
//! `producers` stand beside it. `maintenance` lists the open partitions, groups and bells, and runs
//! the background work. `pins` keeps payloads in place for readers. `topic` and `journal` are the
//! public entry points. `exclusive` gives one process a journal of its own, with epochs and
//! batches.

mod access;
mod bell;
mod budget;
mod control;
mod cursor;
mod description;
mod doorbells;
mod env;
mod error;
mod exclusive;
mod file_id;
mod frame;
mod futex;
mod group_positions;
mod groups;
mod hash;
mod journal;
mod keys;
mod latest_by_key;
mod location;
mod lock;
mod locks;
mod log_scan;
mod maintenance;
mod map;
mod mark;
mod options;
mod partition;
mod pins;
mod pipes;
mod presence;
mod process;
mod producers;
mod reader;
mod rebuild;
mod recovery;
mod repair;
mod retention;
mod running_time;
mod segment;
mod sigbus;
mod signal;
mod sync;
mod syncers;
mod topic;
mod users;
mod waiters;
mod wake_hints;
mod writer;

pub use bell::{Bell, Wake};
pub use control::{RecoveryReport, Taken};
pub use cursor::{Gap, GapCause};
pub use error::{AppendError, JournalError};
pub use exclusive::{
    EpochInfo, ExclusiveContents, ExclusiveLog, ExclusiveOptions, MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS, MAX_EPOCH_HEADER_BYTES, RunEnd,
};
pub use frame::{MAX_KEY_BYTES, MAX_RECORD_BYTES, PAYLOAD_ALIGNMENT};
pub use group_positions::MAX_MEMBERS;
pub use groups::{Group, GroupPosition, Member, MemberInfo};
pub use journal::{FORMAT_VERSION, Journal, MAX_SCHEMA_BYTES, TopicInfo};
pub use options::{
    Access, Budget, Clock, JournalOptions, LastValue, MAX_PARTITIONS, MAX_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES, Maintenance, PidNamespaces, Recovered, RecoveryHook, SyncHook, SyncPolicy,
    TopicConfig, Uptime,
};
pub use partition::OnDurable;
pub use pins::{PinLimit, PinnedBytes, PinnedSegment};
pub use producers::{Lease, Ownership, ProducerInfo, WriterOptions};
pub use reader::{From, Item, Reader, ReaderWatch, SampleRef};
pub use repair::{Damage, DamagedFiles};
pub use topic::{PartitionInfo, ProducerClaim, Topic};
pub use users::user_id;
pub use wake_hints::{Hint, Hints, WakeTargets};
pub use writer::{AppendedBatch, Record, Writer};
