//! Configuration of a journal and its topics.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use helio_core::Tai;
use serde::{Deserialize, Serialize};

use crate::JournalError;
use crate::control::RecoveryReport;

/// The limit of partitions of a topic: each has files of its own.
pub const MAX_PARTITIONS: u32 = 1024;
/// The smallest segment, and the size of a partition's first one.
pub const MIN_SEGMENT_BYTES: u64 = 16 << 10;
/// The default size up to which segments of short records grow.
pub(crate) const DEFAULT_SEGMENT_BYTES: u64 = 16 << 20;
/// The largest segment: it is mapped whole.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;

/// The access with which a journal is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing; creates the folder if there is none.
    ReadWrite,
    /// Reading only: nothing in the folder is changed, so a wait is a poll at intervals.
    ReadOnly,
}

/// The thread of the maintenance: periodic sync, preparation of segments, retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maintenance {
    /// Threads of this journal.
    Background,
    /// The caller's, in [`Journal::maintain`](crate::Journal::maintain).
    Manual,
}

/// Called before a file or folder is synced (tests of power loss).
pub type SyncHook = Arc<dyn Fn(&Path) -> io::Result<()> + Send + Sync>;

/// Called once a partition was recovered, in this process, and records are not there any more.
pub type RecoveryHook = Arc<dyn Fn(&Recovered) + Send + Sync>;

/// A partition that was recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The partition's folder.
    pub path: PathBuf,
    /// What the recovery has found, and earlier ones as far as it is still missing.
    pub report: RecoveryReport,
}

/// The machine's uptime, from which the journal's running time is counted.
pub type Uptime = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The room for topics whose limits are a default ([`TopicConfig::within_budget`]), together with
/// all others of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// A share of the disk.
    Percent(u8),
    /// Bytes.
    Bytes(u64),
}

/// The PID namespaces whose processes share a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PidNamespaces {
    /// One, and every process sees the others in `/proc`. Processes of another one are refused.
    #[default]
    One,
    /// Any, such as containers with a shared folder, on one machine. All processes open the journal
    /// with this option; those without it are refused.
    Any,
}

/// The source of the time of day.
pub type Clock = Arc<dyn Fn() -> Tai + Send + Sync>;

/// Options of an open journal.
#[derive(Clone)]
pub struct JournalOptions {
    /// Reading and writing, or reading only.
    pub access: Access,
    /// The interval of the background sync, in topics with [`SyncPolicy::Background`].
    pub sync_interval: Duration,
    /// The thread of the maintenance.
    pub maintenance: Maintenance,
    /// The room for default retention.
    pub budget: Budget,
    /// The time that a writer waits for a lock whose holder is alive. Opening a partition that
    /// another process is recovering waits up to twelve times as long.
    pub lock_timeout: Duration,
    /// The PID namespaces whose processes share the journal.
    pub pid_namespaces: PidNamespaces,
    /// The time of day. Samples more than 10 s ahead of it do not move seeks by time.
    pub clock: Clock,
    /// The uptime, without the time that the machine was asleep, for the age of segments.
    pub uptime: Uptime,
    /// Replaces the kernel's boot id (tests of power loss).
    pub boot_id: Option<[u8; 16]>,
    /// Makes random identities reproducible (tests with golden files).
    pub seed: Option<u64>,
    /// Called for each file that is about to be synced; its error replaces the sync (tests of power
    /// loss and failing disks).
    pub sync_hook: Option<SyncHook>,
    /// Called by the thread that opens a damaged partition, once it is recovered, without a lock;
    /// the caller reports it to an operator. Losses that a former recovery has reported do not
    /// call it again.
    pub recovery_hook: Option<RecoveryHook>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            access: Access::ReadWrite,
            sync_interval: Duration::from_millis(100),
            maintenance: Maintenance::Background,
            budget: Budget::Percent(25),
            lock_timeout: Duration::from_secs(5),
            pid_namespaces: PidNamespaces::One,
            clock: Arc::new(now),
            uptime: Arc::new(uptime),
            boot_id: None,
            seed: None,
            sync_hook: None,
            recovery_hook: None,
        }
    }
}

impl fmt::Debug for JournalOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("JournalOptions");
        out.field("access", &self.access).field("sync_interval", &self.sync_interval);
        out.field("maintenance", &self.maintenance).finish_non_exhaustive()
    }
}

/// Returns the time since the boot, without the time that the machine was asleep.
pub(crate) fn uptime() -> Duration {
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(since_boot).unwrap_or_default()
}

fn now() -> Tai {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    Tai::from_unix_nanos(i64::try_from(unix).unwrap_or(i64::MAX))
}

/// Whether the newest record of each key outlives retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastValue {
    /// Only age and bytes limit retention; keys are not indexed.
    Forget,
    /// The newest record of each key is retained for ever and indexed.
    Keep,
}

/// When records are synced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncPolicy {
    /// On request, and every [`sync_interval`](JournalOptions::sync_interval).
    Background,
    /// Only on request.
    OnRequest,
}

/// A topic's configuration, fixed when it is created but for the limits of bytes and age, and for
/// the description ([`Journal::alter_topic`](crate::Journal::alter_topic)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicConfig {
    /// Number of partitions, 1 to [`MAX_PARTITIONS`].
    pub partitions: u32,
    /// The size up to which segments grow, in bytes, [`MIN_SEGMENT_BYTES`] to
    /// [`MAX_SEGMENT_BYTES`]. A longer record gets a larger segment. The default, 16 MiB, grows to
    /// 1,024 records of the partition's average length, 128 MiB at most.
    pub segment_bytes: u64,
    /// The limit of retained bytes of a partition, to within a segment; `None` for no limit.
    pub retention_bytes: Option<u64>,
    /// The time for which a record is retained, in nanoseconds; `None` for no limit. It counts the
    /// journal's running time since the record's segment was closed, which is at most a tenth of
    /// the age after the segment's first record.
    pub retention_age_ns: Option<u64>,
    /// Whether the limits are a default, which the journal shortens to stay within its budget.
    /// Other limits are kept, and refused if they cannot fit.
    #[serde(default, skip_serializing_if = "is_no")]
    pub within_budget: bool,
    /// Whether the newest record of each key is retained for ever.
    pub last_value: LastValue,
    /// When records are synced to the disk.
    pub sync: SyncPolicy,
    /// The user's own description of the topic, for example its quality of service as JSON.
    pub description: String,
}

// The signature is serde's.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_no(flag: &bool) -> bool {
    !flag
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            partitions: 1,
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            retention_bytes: None,
            retention_age_ns: None,
            within_budget: false,
            last_value: LastValue::Keep,
            sync: SyncPolicy::Background,
            description: String::new(),
        }
    }
}

impl TopicConfig {
    /// Rejects values outside the limits.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        let within = |field, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            let (value, limits) = (value.to_string(), format!("{low} to {high}"));
            Err(JournalError::Limit { field, value, limits })
        };
        within("partitions", self.partitions.into(), 1, MAX_PARTITIONS.into())?;
        within("segment_bytes", self.segment_bytes, MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES)?;
        within("retention_bytes", self.retention_bytes.unwrap_or(1), 1, u64::MAX)
    }

    /// Fails with the first field in which two configurations differ. The limits of bytes and age
    /// are no part of a topic's identity: they may be altered.
    pub(crate) fn same_as(&self, asked: &Self, topic: &str) -> Result<(), JournalError> {
        let pairs = [
            ("partitions", self.partitions.to_string(), asked.partitions.to_string()),
            ("segment_bytes", self.segment_bytes.to_string(), asked.segment_bytes.to_string()),
            ("last_value", format!("{:?}", self.last_value), format!("{:?}", asked.last_value)),
            ("sync", format!("{:?}", self.sync), format!("{:?}", asked.sync)),
            ("description", self.description.clone(), asked.description.clone()),
        ];
        for (field, existing, asked) in pairs {
            if existing != asked {
                let topic = topic.to_owned();
                return Err(JournalError::Mismatch { topic, field, existing, asked });
            }
        }
        Ok(())
    }
}
