//! Topics: a folder with a description, its producers, and a folder for each partition.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use helio_core::{ProducerName, Tai, TopicName};

use crate::control::{self, RecoveryReport, Taken};
use crate::description::{self, Limits};
use crate::env::Env;
use crate::error::IoContext;
use crate::groups::{Group, GroupTopic};
use crate::location;
use crate::maintenance::Housekeeper;
use crate::partition::{self, OnDurable, Partition};
use crate::producers::{self, Claim, Lease, ProducerInfo, Producers, WriterOptions};
use crate::reader::{From, Reader};
use crate::writer::Writer;
use crate::{AppendError, JournalError, TopicConfig};

/// An open topic. Clones share everything.
#[derive(Clone)]
pub struct Topic {
    inner: Arc<TopicInner>,
}

pub(crate) struct TopicInner {
    env: Arc<Env>,
    housekeeper: Arc<Housekeeper>,
    name: TopicName,
    dir: PathBuf,
    /// The first partition's seed, by which a recreated topic is noticed; 0 for unknown.
    seed: AtomicU64,
    config: Arc<TopicConfig>,
    limits: Arc<Limits>,
    producers: OnceLock<Arc<Producers>>,
    partitions: Vec<OnceLock<Arc<Partition>>>,
}

/// A producer's right to write to a topic, until a newer claim of the same name.
#[derive(Clone)]
pub struct ProducerClaim {
    inner: Arc<Claim>,
}

/// A partition's contents, as [`Topic::info`] returns them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Offset of the oldest record.
    pub first_offset: u64,
    /// Offset of the next record.
    pub end_offset: u64,
    /// Bytes of frames between them.
    pub bytes: u64,
    /// Offset below which everything is on the disk.
    pub durable_offset: u64,
    /// The latest time of any record.
    pub last_time: Option<helio_core::Tai>,
    /// The last recovery after power loss.
    pub recovery: RecoveryReport,
    /// What retention has removed so far.
    pub taken: Taken,
    /// The log's identity, new after each cut and in each copy; 0 for none.
    pub log_id: u64,
    /// The identity before it, and the offset at which this one began.
    pub former_log: Option<(u64, u64)>,
}

/// The folder of a topic: `/` is not allowed in file names, `+` not in topic names.
pub(crate) fn dir(env: &Env, name: &TopicName) -> PathBuf {
    env.dir.join("topics").join(name.as_str().replace('/', "+"))
}

pub(crate) fn unescape(file_name: &str) -> Option<TopicName> {
    TopicName::new(&file_name.replace('+', "/")).ok()
}

fn first_control(dir: &Path) -> PathBuf {
    partition::control_path(&dir.join("0"))
}

/// Returns whether a topic whose folder is still in place was deleted: the process that did it died
/// before it could remove the folder.
pub(crate) fn was_deleted(dir: &Path) -> bool {
    control::identity(&first_control(dir)).is_some_and(|(_, deleted)| deleted)
}

/// Removes the folder of a topic that cannot be opened. Its description is on the disk before any
/// of its records is durable, so it was created shortly before a power loss. If it has a valid
/// segment all the same, it is renamed and kept for inspection.
pub(crate) fn remove_unborn(env: &Env, name: &TopicName) -> Result<(), JournalError> {
    let dir = dir(env, name);
    if has_segment(&dir)? {
        let aside = dir.with_file_name(format!(".lost-{:016x}", env.random()));
        return fs::rename(&dir, &aside).at("put aside", &dir);
    }
    fs::remove_dir_all(&dir).at("remove", &dir)
}

fn has_segment(dir: &Path) -> Result<bool, JournalError> {
    for entry in fs::read_dir(dir).at("list", dir)? {
        let path = entry.at("list", dir)?.path();
        let found = match path.extension().is_some_and(|e| e == "seg") {
            true => crate::segment::peek(&path).is_some(),
            false => path.is_dir() && has_segment(&path)?,
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the topic's description if it is missing or all zeros: a power loss interrupted the
/// creation. Other damage does not count, and all other files can be rebuilt.
pub(crate) fn blank_file(dir: &Path) -> Option<PathBuf> {
    Some(dir.join("topic.json")).filter(|path| is_blank(path))
}

fn is_blank(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|f| f.take(64).read_to_end(&mut bytes));
    read.is_err() && !path.exists() || read.is_ok() && bytes.iter().all(|b| *b == 0)
}

/// Creates a topic's folder atomically. Losing a race against another process is no error.
pub(crate) fn create(
    env: &Env,
    name: &TopicName,
    config: &TopicConfig,
) -> Result<(), JournalError> {
    let target = dir(env, name);
    let temporary = prepare(env, config)?;
    let named = match fs::rename(&temporary, &target) {
        Err(_) if target.join("topic.json").exists() => Ok(()),
        other => other.at("name", &target),
    };
    if temporary.exists() {
        // A left-over would only take space; the first error is the one to report.
        let _ = fs::remove_dir_all(&temporary);
    }
    named
}

/// Creates a topic's folder under a temporary name, which is returned.
pub(crate) fn prepare(env: &Env, config: &TopicConfig) -> Result<PathBuf, JournalError> {
    let temporary = env.temporary(&env.dir.join("topics"));
    fs::create_dir(&temporary).at("create", &temporary)?;
    fill(env, &temporary, config).map(|()| temporary.clone()).inspect_err(|_| {
        // A left-over would only take space; the first error is the one to report.
        let _ = fs::remove_dir_all(&temporary);
    })
}

/// Replaces a topic's description.
pub(crate) fn alter(env: &Env, name: &TopicName, config: &TopicConfig) -> Result<(), JournalError> {
    let path = description::path(&dir(env, name));
    env.publish(&path, description::text(config, &path)?.as_bytes())
}

fn fill(env: &Env, dir: &Path, config: &TopicConfig) -> Result<(), JournalError> {
    let path = description::path(dir);
    fs::write(&path, description::text(config, &path)?).at("write", &path)?;
    producers::create(&dir.join("producers"))?;
    (0..config.partitions).try_for_each(|p| partition::create(env, &dir.join(p.to_string())))
}

impl TopicInner {
    pub(crate) fn open(
        env: &Arc<Env>,
        housekeeper: &Arc<Housekeeper>,
        name: &TopicName,
    ) -> Result<Option<Self>, JournalError> {
        match was_deleted(&dir(env, name)) {
            true => Ok(None),
            false => Self::open_named(env, housekeeper, name),
        }
    }

    /// The same, also of a topic whose deletion was interrupted.
    pub(crate) fn open_named(
        env: &Arc<Env>,
        housekeeper: &Arc<Housekeeper>,
        name: &TopicName,
    ) -> Result<Option<Self>, JournalError> {
        let dir = dir(env, name);
        location::check_no_link(&dir)?;
        let Some(config) = description::read(&dir)? else { return Ok(None) };
        let seed = control::identity(&first_control(&dir)).map_or(0, |(seed, _)| seed);
        let seed = AtomicU64::new(seed);
        let partitions = (0..config.partitions).map(|_| OnceLock::new()).collect();
        let limits = Arc::new(Limits::new(&dir, &config));
        let (env, name, config) = (Arc::clone(env), name.clone(), Arc::new(config));
        let (housekeeper, producers) = (Arc::clone(housekeeper), OnceLock::new());
        Ok(Some(Self { env, housekeeper, name, dir, seed, config, limits, producers, partitions }))
    }

    /// Returns whether this is the topic that has the name: it was not deleted, and neither its
    /// folder nor a partition's was removed or replaced.
    pub(crate) fn is_current(&self) -> bool {
        let known = self.seed.load(Relaxed);
        let named = match control::identity(&first_control(&self.dir)) {
            Some((seed, deleted)) => !deleted && (seed == known || known == 0),
            // Opening the partition rebuilds it.
            // Without permission, opening it returns that error.
            None => self.dir.join("topic.json").try_exists().unwrap_or(true),
        };
        named && self.partitions.iter().filter_map(OnceLock::get).all(|p| p.check_present().is_ok())
    }

    fn check_current(&self) -> Result<(), JournalError> {
        match self.is_current() {
            true => Ok(()),
            false => Err(JournalError::gone(&self.dir)),
        }
    }

    /// Marks all partitions as deleted, the first one first: with its mark the deletion is decided.
    pub(crate) fn delete(&self) -> Result<(), JournalError> {
        for number in 0..self.config.partitions {
            match self.open_partition(number) {
                Ok(partition) => partition.delete()?,
                // Nobody can write to it.
                Err(JournalError::Damaged { .. } | JournalError::TopicGone { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(crate) fn partition(&self, number: u32) -> Result<Arc<Partition>, JournalError> {
        let Some(slot) = self.partitions.get(number as usize) else {
            return Err(JournalError::NoPartition {
                topic: self.name.to_string(),
                partition: number,
                partitions: self.config.partitions,
            });
        };
        if let Some(partition) = slot.get() {
            return Ok(Arc::clone(partition));
        }
        self.check_current()?;
        self.open_partition(number)
    }

    fn open_partition(&self, number: u32) -> Result<Arc<Partition>, JournalError> {
        let slot = &self.partitions[number as usize];
        if let Some(partition) = slot.get() {
            return Ok(Arc::clone(partition));
        }
        let dir = self.dir.join(number.to_string());
        let opened = Arc::new(Partition::open(&self.env, dir, &self.config, &self.limits)?);
        if number == 0 {
            // A damaged page was rebuilt, with another seed.
            self.seed.store(opened.control.seed(), Relaxed);
        }
        let mut fresh = false;
        let kept = slot.get_or_init(|| {
            fresh = true;
            opened
        });
        if fresh {
            self.housekeeper.partitions.push(kept);
        }
        Ok(Arc::clone(kept))
    }

    fn producers(&self) -> Result<Arc<Producers>, JournalError> {
        if let Some(producers) = self.producers.get() {
            return Ok(Arc::clone(producers));
        }
        self.check_current()?;
        let path = self.dir.join("producers");
        let opened = Arc::new(Producers::open(&self.env, path, self.name.as_str())?);
        Ok(Arc::clone(self.producers.get_or_init(|| opened)))
    }
}

impl std::fmt::Debug for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topic").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ProducerClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ProducerClaim").field(&self.inner.producer).finish()
    }
}

impl ProducerClaim {
    /// Returns whether it is for samples of another log ([`Topic::adopt`]).
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        self.inner.adopted
    }

    /// The claimed producer: name and incarnation.
    #[must_use]
    pub fn producer(&self) -> &helio_core::Producer {
        &self.inner.producer
    }
}

impl Topic {
    pub(crate) fn new(inner: Arc<TopicInner>) -> Self {
        Self { inner }
    }

    /// The topic's name.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.inner.name
    }

    /// Returns whether this handle's topic still has the name. If not, it was deleted, purged or
    /// recreated: appends, syncs and reads through the handle fail with
    /// [`JournalError::TopicGone`]; open it again.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.inner.is_current()
    }

    /// Returns whether the topic is known to be deleted. Cheaper than
    /// [`is_current`](Self::is_current), which looks at the folder.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.inner.partitions.iter().filter_map(OnceLock::get).any(|partition| partition.is_gone())
    }

    /// Reads its present configuration, which may have been
    /// [altered](crate::Journal::alter_topic) since it was opened.
    ///
    /// # Errors
    /// [`JournalError::TopicGone`]; an error of its description's file.
    pub fn stored_config(&self) -> Result<TopicConfig, JournalError> {
        description::read(&self.inner.dir)?.ok_or_else(|| JournalError::gone(&self.inner.dir))
    }

    /// Its configuration when it was opened.
    #[must_use]
    pub fn config(&self) -> &TopicConfig {
        &self.inner.config
    }

    /// Claims a producer's name with its next incarnation, and fences the former one's writers.
    ///
    /// # Errors
    /// [`JournalError::Claimed`] if an exclusive claim is alive, or if this one is exclusive and
    /// any claim is alive.
    pub fn claim(&self, options: &WriterOptions) -> Result<ProducerClaim, JournalError> {
        self.claimed(options, None, None)
    }

    /// The same with a lease: the claim also ends if its holder does not renew it
    /// ([`ProducerClaim::assert_alive`]) within that time, even if the process lives. The next
    /// claim then fences its writers; an exclusive one does so under any name.
    ///
    /// # Errors
    /// As [`Topic::claim`].
    pub fn claim_for(
        &self,
        options: &WriterOptions,
        lease: Lease,
    ) -> Result<ProducerClaim, JournalError> {
        self.claimed(options, Some(lease), None)
    }

    /// Claims a producer's name for samples that it has published to another log.
    /// [`Writer::identify`] sets the incarnation and sequence number of each sample. `incarnation`
    /// is that of the first one; the name's next incarnation here will be newer than all of them.
    ///
    /// # Errors
    /// As [`Topic::claim`]. Also [`JournalError::Claimed`] if another process has such a claim of
    /// that name, and [`JournalError::Newer`] if the name has an incarnation of its own here that
    /// is not older.
    pub fn adopt(
        &self,
        options: &WriterOptions,
        incarnation: u64,
        lease: Option<Lease>,
    ) -> Result<ProducerClaim, JournalError> {
        self.claimed(options, lease, Some(incarnation))
    }

    fn claimed(
        &self,
        options: &WriterOptions,
        lease: Option<Lease>,
        elsewhere: Option<u64>,
    ) -> Result<ProducerClaim, JournalError> {
        self.inner.check_current()?;
        let producers = self.inner.producers()?;
        let inner = Arc::new(producers.claim(options, lease, elsewhere)?);
        Ok(ProducerClaim { inner })
    }

    /// Opens a writer to one partition, under a claim of its own.
    ///
    /// # Errors
    /// As [`Topic::claim`]; [`JournalError::NoPartition`].
    pub fn writer(&self, partition: u32, options: &WriterOptions) -> Result<Writer, JournalError> {
        self.inner.partition(partition)?;
        self.writer_with(partition, &self.claim(options)?)
    }

    /// Opens a writer to one partition, under a claim that writers to other partitions share. One
    /// writer at a time for each partition and claim.
    ///
    /// # Errors
    /// [`JournalError`] if the partition cannot be opened.
    pub fn writer_with(
        &self,
        partition: u32,
        claim: &ProducerClaim,
    ) -> Result<Writer, JournalError> {
        let opened = self.inner.partition(partition)?;
        Ok(Writer::new(opened, partition, Arc::clone(&claim.inner)))
    }

    /// Opens a reader of one partition.
    ///
    /// # Errors
    /// [`JournalError`] if the partition cannot be opened.
    pub fn reader(&self, partition: u32, from: From) -> Result<Reader, JournalError> {
        Reader::open(self.inner.partition(partition)?, self.inner.producers()?, from)
    }

    /// Opens a partition.
    pub(crate) fn opened(&self, partition: u32) -> Result<Arc<Partition>, JournalError> {
        self.inner.partition(partition)
    }

    /// Opens a group, whose members share this topic's partitions; creates it if there is none. The
    /// name follows the rules of producers' names.
    ///
    /// # Errors
    /// [`JournalError`] if its file cannot be created or used.
    pub fn group(&self, name: &ProducerName) -> Result<Group, JournalError> {
        let file = name.as_str().replace('/', "+");
        let path = self.inner.dir.join("groups").join(file);
        self.inner.check_current()?;
        let inner = Arc::clone(&self.inner);
        let topic = GroupTopic {
            name: self.name().clone(),
            partitions: self.inner.config.partitions,
            opener: Box::new(move |partition| inner.partition(partition)),
        };
        let group = Group::open(&self.inner.env, path, name.as_str(), topic)?;
        self.inner.housekeeper.groups.push(&group.inner);
        Ok(group)
    }

    /// Opens all groups of the topic, by name.
    ///
    /// # Errors
    /// [`JournalError`] if one of their files cannot be used.
    pub fn groups(&self) -> Result<Vec<Group>, JournalError> {
        let folder = self.inner.dir.join("groups");
        let entries = match fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at("list", &folder)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry.at("list", &folder)?.file_name();
            // Unfinished files have no valid names.
            let name = file.to_str().map(|file| file.replace('+', "/"));
            names.extend(name.and_then(|name| ProducerName::new(&name).ok()));
        }
        names.sort_unstable();
        names.iter().map(|name| self.group(name)).collect()
    }

    /// Lists all producers that ever claimed a name here, with their state at an uptime (see
    /// [`Lease`]).
    ///
    /// # Errors
    /// [`JournalError`] if their file cannot be opened.
    pub fn producers(&self, now: Duration) -> Result<Vec<ProducerInfo>, JournalError> {
        Ok(self.inner.producers()?.list(now))
    }

    /// Returns the offset below which a partition's records are on the disk.
    ///
    /// # Errors
    /// [`JournalError`] if the partition cannot be opened.
    pub fn durable(&self, partition: u32) -> Result<u64, JournalError> {
        Ok(self.inner.partition(partition)?.durable())
    }

    /// Blocks until the record at an offset is durable, that is, until it survives power loss. The
    /// caller syncs, or waits for another thread's or process's sync; all waiters share one request
    /// to the disk.
    ///
    /// # Errors
    /// [`JournalError::TimedOut`], [`JournalError::SyncFailed`].
    pub fn wait_durable(
        &self,
        partition: u32,
        offset: u64,
        timeout: Option<Duration>,
    ) -> Result<(), JournalError> {
        self.inner.partition(partition)?.wait_durable(offset, timeout)
    }

    /// Requests a sync of everything so far, without waiting for it.
    ///
    /// # Errors
    /// [`JournalError`] if the partition cannot be opened.
    pub fn request_sync(&self, partition: u32) -> Result<(), JournalError> {
        let end = self.info(partition)?.end_offset;
        self.on_durable(partition, end.saturating_sub(1), Box::new(|_| {}))
    }

    /// Calls back once the record at an offset is durable, or cannot become durable: at once, or
    /// from one of the journal's threads, which the callback must not block.
    ///
    /// # Errors
    /// [`JournalError`] if the partition cannot be opened; then there is no callback.
    pub fn on_durable(
        &self,
        partition: u32,
        offset: u64,
        call: OnDurable,
    ) -> Result<(), JournalError> {
        let partition = self.inner.partition(partition)?;
        if partition.on_durable(offset, call) {
            self.inner.housekeeper.syncers.ask(partition);
        }
        Ok(())
    }

    /// Returns the offset up to which a cursor of the log with an identity fits a partition's log
    /// ([`PartitionInfo::log_id`]): everything for the log's own, the place at which this log
    /// began for the one before it, and 0 for any other.
    ///
    /// # Errors
    /// [`JournalError`] if the partition cannot be opened.
    pub fn fits_up_to(&self, partition: u32, log_id: u64) -> Result<u64, JournalError> {
        Ok(self.inner.partition(partition)?.fits_up_to(log_id))
    }

    /// Drops everything below an offset, to within a segment. The newest record of each key stays
    /// if the topic retains last values.
    ///
    /// # Errors
    /// [`JournalError`] if files cannot be written.
    pub fn compact_below(&self, partition: u32, offset: u64) -> Result<(), JournalError> {
        self.inner.partition(partition)?.compact_below(offset)
    }

    /// Returns offsets, size and durability of a partition.
    ///
    /// # Errors
    /// [`JournalError`] if it cannot be opened.
    pub fn info(&self, partition: u32) -> Result<PartitionInfo, JournalError> {
        let partition = self.inner.partition(partition)?;
        let control = &partition.control;
        let ((tail, end_offset), first) = (partition.log_end(), partition.first());
        Ok(PartitionInfo {
            first_offset: first.offset,
            end_offset,
            bytes: tail.saturating_sub(first.pos),
            durable_offset: control.durable().1,
            last_time: Some(control.max_time()).filter(|time| *time > control::NO_TIME),
            recovery: partition.recovery(),
            taken: control.taken(),
            log_id: control.log_id().id,
            former_log: control.former_log(),
        })
    }
}

impl ProducerClaim {
    /// Releases the claim before its writers are dropped; they must not append any more.
    pub fn release(&self) {
        self.inner.release();
    }

    /// Renews the claim's lease, at a time and an uptime (see [`Lease`]): one store.
    ///
    /// # Errors
    /// [`AppendError::Fenced`] if another producer or incarnation has the claim.
    pub fn assert_alive(&self, time: Tai, now: Duration) -> Result<(), AppendError> {
        self.inner.assert_alive(time, now)
    }
}
