//! Groups: members share a topic's partitions; each partition has at most one owner at a time.
//!
//! Constraints: a new owner takes a partition only after the former one released it, left, or died.
//! It resumes at the committed position. So each record is processed at least once, and only
//! records behind the last commit may be repeated.
//!
//! Format: one file per group: a header of 256 bytes, [`MAX_MEMBERS`] entries of 128 bytes, and 64
//! bytes per partition (see `group_positions`).
//!
//! Operation: live members, in the order of joining, get partitions in turn: partition *p* belongs
//! to member *p mod n*. Each member learns its partitions from [`Member::assigned`], which also
//! removes dead members. A lost partition is released by that call, so the member commits before
//! it.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use helio_core::{ProducerName, TopicName};

use crate::JournalError;
use crate::env::Env;
use crate::error::IoContext;
use crate::group_positions::{
    self, CHANGES, HEADER_BYTES, MAX_MEMBERS, MEMBER_BYTES, StoredPosition, file_bytes,
};
use crate::location;
use crate::lock;
use crate::locks::Operation;
use crate::map::{Map, Mode, reserve};
use crate::mark::Mark;
use crate::partition::Partition;
use crate::process::Token;

const MAGIC: &[u8; 8] = b"HELIOGRP";
const VERSION: u32 = 1;
const PARTITIONS: usize = 16;
const JOINED: usize = 24;
const GENERATION: usize = 32;
const LOCK: usize = 64;
const MARK: usize = 136;
const NAME: usize = 24;

/// A group of a topic. Clones share everything.
#[derive(Clone)]
pub struct Group {
    pub(crate) inner: Arc<GroupInner>,
}

pub(crate) struct GroupInner {
    env: Arc<Env>,
    path: PathBuf,
    name: String,
    topic: GroupTopic,
    map: Map,
    synced: AtomicU64,
}

/// A group's topic, which lies above this module.
pub(crate) struct GroupTopic {
    pub(crate) name: TopicName,
    pub(crate) partitions: u32,
    /// Opens a partition.
    pub(crate) opener: PartitionOpener,
}

type PartitionOpener = Box<dyn Fn(u32) -> Result<Arc<Partition>, JournalError> + Send + Sync>;

/// A member of a group. Dropping it leaves the group.
pub struct Member {
    group: Arc<GroupInner>,
    slot: usize,
    number: u64,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A group's member, as [`Group::members`] lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberInfo {
    /// The name with which it joined.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// The partitions that it owns now.
    pub partitions: Vec<u32>,
}

/// A position that a group committed in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPosition {
    /// The offset that was committed: the owner has processed all records before it.
    pub committed: u64,
    /// The offset at which the owner resumes. It is lower if the log is another one since: records
    /// of this log begin there that no member has read.
    pub resume: u64,
}

fn make(env: &Env, path: &Path, partitions: u32) -> Result<(), JournalError> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).at("create", folder)?;
    let temporary = env.temporary(folder);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(&temporary);
    let file = file.at("create", &temporary)?;
    reserve(&file, file_bytes(partitions) as u64).at("allocate", &temporary)?;
    let map = Map::of(&file, file_bytes(partitions), Mode::Write).at("map", &temporary)?;
    map.write(0, MAGIC);
    map.write(8, &VERSION.to_le_bytes());
    map.u64(PARTITIONS).store(partitions.into(), Relaxed);
    let linked = std::fs::hard_link(&temporary, path);
    // A left-over would only take space.
    let _ = std::fs::remove_file(&temporary);
    match linked {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other.at("name", path),
    }
}

impl Group {
    pub(crate) fn open(
        env: &Arc<Env>,
        path: PathBuf,
        name: &str,
        topic: GroupTopic,
    ) -> Result<Self, JournalError> {
        let partitions = topic.partitions;
        path.parent().map_or(Ok(()), location::check_no_link)?;
        if !path.exists() {
            if !env.writable() {
                return Err(JournalError::ReadOnly);
            }
            make(env, &path, partitions)?;
        }
        let file = OpenOptions::new().read(true).write(env.writable()).open(&path);
        let file = file.at("open", &path)?;
        if file.metadata().at("look at", &path)?.len() != file_bytes(partitions) as u64 {
            return Err(JournalError::damaged(&path, "group file's size"));
        }
        let map = Map::of(&file, file_bytes(partitions), env.mode()).at("map", &path)?;
        let version = map.u32(8).load(Relaxed);
        if &map.array::<8>(0) != MAGIC || version == 0 {
            return Err(JournalError::damaged(&path, "group file"));
        }
        if version > VERSION {
            return Err(JournalError::Version { path, found: version, known: VERSION });
        }
        let mark = Mark::of(env.boot, &file).at("look at", &path)?;
        if env.writable() && !mark.is_in(&map, MARK) {
            // After a boot there are neither lock holders nor members.
            let _lock = env.lock(Operation::Recovery, &path)?;
            if !mark.is_in(&map, MARK) {
                lock::init(&map, LOCK).at("prepare", &path)?;
                map.write(HEADER_BYTES, &[0; MAX_MEMBERS * MEMBER_BYTES]);
                mark.store(&map, MARK);
            }
        }
        let (env, name, synced) = (Arc::clone(env), name.to_owned(), AtomicU64::new(0));
        let inner = Arc::new(GroupInner { env, path, name, topic, map, synced });
        Ok(Self { inner })
    }

    /// The group's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Joins the group.
    ///
    /// # Errors
    /// [`JournalError::TooMany`] if it has [`MAX_MEMBERS`] already.
    pub fn join(&self, name: &ProducerName) -> Result<Member, JournalError> {
        let inner = &self.inner;
        inner.locked(|| {
            inner.remove_dead();
            let free = (0..MAX_MEMBERS).find(|s| inner.number(*s).load(Acquire) == 0);
            let Some(slot) = free else {
                let (path, what, limit) = (inner.path.clone(), "members", MAX_MEMBERS);
                return Err(JournalError::TooMany { path, what, limit });
            };
            let at = HEADER_BYTES + slot * MEMBER_BYTES;
            let mut text = [0; MEMBER_BYTES - NAME];
            let len = name.as_str().len().min(text.len());
            text[..len].copy_from_slice(&name.as_str().as_bytes()[..len]);
            inner.map.write(at + NAME, &text);
            inner.map.u64(at + 16).store(len as u64, Relaxed);
            inner.map.u64(at + 8).store(inner.env.own_token().0, Relaxed);
            let number = inner.map.u64(JOINED).fetch_add(1, Relaxed) + 1;
            inner.number(slot).store(number, Release);
            inner.change();
            Ok(Member { group: Arc::clone(inner), slot, number })
        })
    }

    /// Returns the offset at which a partition's owner resumes; `None` before the first commit.
    ///
    /// # Errors
    /// [`JournalError::NoPartition`]; [`JournalError`] if the partition cannot be opened.
    pub fn committed(&self, partition: u32) -> Result<Option<u64>, JournalError> {
        Ok(self.position(partition)?.map(|position| position.resume))
    }

    /// Returns a partition's committed position, and where its owner resumes; `None` before the
    /// first commit. The two differ where the log was cut below the position, or was restored from
    /// an older copy.
    ///
    /// # Errors
    /// [`JournalError::NoPartition`]; [`JournalError`] if the partition cannot be opened.
    pub fn position(&self, partition: u32) -> Result<Option<GroupPosition>, JournalError> {
        self.inner.check(partition)?;
        let found = group_positions::read(&self.inner.map, partition);
        let Some(StoredPosition { offset, log_id, .. }) = found else { return Ok(None) };
        let resume = match log_id {
            // Programs before this rule stored no identity.
            0 => offset,
            _ => offset.min((self.inner.topic.opener)(partition)?.fits_up_to(log_id)),
        };
        Ok(Some(GroupPosition { committed: offset, resume }))
    }

    /// Returns the live members, in the order of joining.
    #[must_use]
    pub fn members(&self) -> Vec<MemberInfo> {
        let inner = &self.inner;
        let mut live = inner.live();
        live.sort_unstable();
        let info = live.into_iter().map(|(number, slot)| {
            let at = HEADER_BYTES + slot * MEMBER_BYTES;
            let len = (inner.map.u64(at + 16).load(Relaxed) as usize).min(MEMBER_BYTES - NAME);
            let mut text = vec![0; len];
            inner.map.read(at + NAME, &mut text);
            let owned =
                (0..inner.topic.partitions).filter(|p| inner.owner(*p).load(Acquire) == number);
            MemberInfo {
                name: String::from_utf8_lossy(&text).into_owned(),
                pid: Token(inner.map.u64(at + 8).load(Relaxed)).pid(),
                partitions: owned.collect(),
            }
        });
        info.collect()
    }

    /// Returns a number that grows whenever a member joins, leaves or dies, or a partition changes
    /// its owner. Cheap to poll.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.inner.map.u64(GENERATION).load(Acquire)
    }
}

impl GroupInner {
    fn number(&self, slot: usize) -> &AtomicU64 {
        self.map.u64(HEADER_BYTES + slot * MEMBER_BYTES)
    }

    fn owner(&self, partition: u32) -> &AtomicU64 {
        group_positions::owner(&self.map, partition)
    }

    fn change(&self) {
        self.map.u64(GENERATION).fetch_add(1, Release);
        self.map.u64(CHANGES).fetch_add(1, Release);
    }

    fn check(&self, partition: u32) -> Result<(), JournalError> {
        let GroupTopic { name, partitions, .. } = &self.topic;
        if partition < *partitions {
            return Ok(());
        }
        let (topic, partitions) = (name.to_string(), *partitions);
        Err(JournalError::NoPartition { topic, partition, partitions })
    }

    fn locked<T>(&self, work: impl FnOnce() -> Result<T, JournalError>) -> Result<T, JournalError> {
        let waited = self.env.options.lock_timeout;
        if !self.env.writable() {
            return Err(JournalError::ReadOnly);
        }
        // Every change is one store, so a dead holder leaves nothing to repair.
        let locked = lock::lock(&self.map, LOCK, waited);
        locked.map_err(|failure| JournalError::not_locked(failure, self.path.clone(), waited))?;
        let result = work();
        lock::unlock(&self.map, LOCK);
        result
    }

    /// Returns the number and slot of each live member.
    fn live(&self) -> Vec<(u64, usize)> {
        let entry = |slot: usize| {
            let number = self.number(slot).load(Acquire);
            let token = Token(self.map.u64(HEADER_BYTES + slot * MEMBER_BYTES + 8).load(Relaxed));
            (number != 0 && self.env.is_alive(token)).then_some((number, slot))
        };
        (0..MAX_MEMBERS).filter_map(entry).collect()
    }

    /// Removes members of dead processes, and releases their partitions.
    fn remove_dead(&self) {
        let live = self.live();
        for slot in 0..MAX_MEMBERS {
            let number = self.number(slot).load(Acquire);
            if number != 0 && !live.contains(&(number, slot)) {
                self.number(slot).store(0, Release);
                self.change();
            }
        }
        for partition in 0..self.topic.partitions {
            let owner = self.owner(partition).load(Acquire);
            if owner != 0 && !live.iter().any(|l| l.0 == owner) {
                self.owner(partition).store(0, Release);
                self.change();
            }
        }
    }

    /// Syncs the commits; called in the background.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        let changes = self.map.u64(CHANGES).load(Acquire);
        if changes != self.synced.load(Relaxed) {
            self.env.sync_map(&self.map, &self.path)?;
            if self.synced.load(Relaxed) == 0 {
                // The file may be new: sync its folder, and the folder's own name.
                let above = self.path.ancestors().skip(1).take(2);
                above.into_iter().try_for_each(|dir| self.env.sync_dir(dir))?;
            }
            self.synced.store(changes, Relaxed);
        }
        Ok(())
    }
}

impl Member {
    /// Returns this member's partitions. Releases those that are another member's now, so commit
    /// first. Call it periodically, or when [`Group::generation`] has grown.
    ///
    /// # Errors
    /// [`JournalError`] if the group's file cannot be locked.
    pub fn assigned(&self) -> Result<Vec<u32>, JournalError> {
        let group = &self.group;
        group.locked(|| {
            group.remove_dead();
            let mut live = group.live();
            live.sort_unstable();
            let mut mine = Vec::new();
            for partition in 0..group.topic.partitions {
                let target = live.get(partition as usize % live.len().max(1)).map_or(0, |l| l.0);
                let owner = group.owner(partition);
                let now = owner.load(Acquire);
                if target == self.number && (now == 0 || now == self.number) {
                    mine.push(partition);
                    if now == 0 {
                        owner.store(self.number, Release);
                        group.change();
                    }
                } else if now == self.number {
                    owner.store(0, Release);
                    group.change();
                }
            }
            Ok(mine)
        })
    }

    /// Commits an offset: all records before it are processed. The commit survives the death of any
    /// process at once, and power loss after the next background sync.
    ///
    /// # Errors
    /// [`JournalError::NotAssigned`] if this member does not own the partition.
    pub fn commit(&self, partition: u32, offset: u64) -> Result<(), JournalError> {
        self.group.check(partition)?;
        let log_id = (self.group.topic.opener)(partition)?.control.log_id().id;
        self.group.locked(|| {
            if self.group.owner(partition).load(Acquire) != self.number {
                return Err(JournalError::NotAssigned {
                    group: self.group.name.clone(),
                    partition,
                });
            }
            group_positions::store(&self.group.map, partition, offset, log_id);
            Ok(())
        })
    }

    /// Syncs all commits so far to the disk.
    ///
    /// # Errors
    /// [`JournalError`] if the disk fails.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.group.sync()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let leave = || {
            for partition in 0..self.group.topic.partitions {
                let owner = self.group.owner(partition);
                if owner.load(Acquire) == self.number {
                    owner.store(0, Release);
                }
            }
            self.group.number(self.slot).store(0, Release);
            self.group.change();
            Ok(())
        };
        // Without the lock, other members detect the end of this process.
        let _ = self.group.locked(leave);
    }
}
