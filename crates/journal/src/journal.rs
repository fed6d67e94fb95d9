//! The journal: a folder and its topics.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use helio_core::{Schema, SchemaId, TopicName};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::access;
use crate::bell::Bell;
use crate::budget;
use crate::description;
use crate::doorbells::{Doorbells, FILE_BYTES};
use crate::env::{Env, TEMPORARY_PREFIX};
use crate::error::IoContext;
use crate::exclusive;
use crate::hash::{mix, random};
use crate::location;
use crate::locks::{Held, Operation};
use crate::maintenance::Housekeeper;
use crate::map::{Map, Mode};
use crate::pipes::Pipes;
use crate::process::{BootId, Token};
use crate::topic::{self, Topic, TopicInner};
use crate::{Access, JournalError, JournalOptions, Maintenance, TopicConfig};

const MAGIC: &[u8; 8] = b"HELIOJRN";
/// The format version of a journal's folder.
pub const FORMAT_VERSION: u32 = 3;
const FIXED_BYTES: usize = 60;
/// The limit of reads of a head that another process may be writing.
const MAX_HEAD_READS: u32 = 100;
/// How long a reader waits for a journal that another process is creating.
const CREATION_TIMEOUT: Duration = Duration::from_secs(1);
/// How often it looks.
const CREATION_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The limit of a schema's text, in bytes.
pub const MAX_SCHEMA_BYTES: usize = 4 << 20;

/// An open journal. Clones share everything.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

struct Inner {
    env: Arc<Env>,
    housekeeper: Arc<Housekeeper>,
    topics: Mutex<HashMap<TopicName, Arc<TopicInner>>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("dir", &self.inner.env.dir).finish_non_exhaustive()
    }
}

/// A topic's name and configuration, as [`Journal::topics`] lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicInfo {
    /// The topic's name.
    pub name: TopicName,
    /// Its configuration.
    pub config: TopicConfig,
}

impl Journal {
    /// Opens the journal in a folder. With write access, creates it if there is none.
    ///
    /// # Errors
    /// [`JournalError`]: the folder is no journal, has a newer format, or does not permit the
    /// access.
    pub fn open(path: &Path, options: JournalOptions) -> Result<Self, JournalError> {
        if options.access == Access::ReadWrite && exclusive::is_inside(path) {
            return Err(JournalError::Exclusive { path: path.to_owned() });
        }
        Self::open_inside(path, options)
    }

    /// The same for the journal of an exclusive log, whose holder this process is.
    pub(crate) fn open_inside(path: &Path, options: JournalOptions) -> Result<Self, JournalError> {
        let boot = match (options.boot_id.map(BootId).or_else(BootId::current), options.access) {
            (Some(boot), _) => boot,
            // Readers neither write nor query live processes.
            (None, Access::ReadOnly) => BootId([0; 16]),
            (None, Access::ReadWrite) => return Err(JournalError::NoBootId),
        };
        let file = path.join("journal.hj");
        location::check_local(path)?;
        if options.access == Access::ReadWrite {
            prepare(path, &file, options.seed, boot)?;
            location::check_owner(path)?;
        }
        let links = ["journal.hj", "topics", "schemas", "bells"].map(|name| path.join(name));
        links.iter().try_for_each(|path| location::check_no_link(path))?;
        let map = attach_created(path, &file, options.access)?;
        let dir = fs::canonicalize(path).at("find", path)?;
        let doorbells = Doorbells { map, pipes: Pipes::new(dir.clone()) };
        let env = Arc::new(Env::open(dir, options, boot, doorbells)?);
        let housekeeper = Arc::new(Housekeeper::new(&env));
        if env.writable() && env.options.maintenance == Maintenance::Background {
            housekeeper.start(&env).at("start threads for", path)?;
        }
        let inner = Inner { env, housekeeper, topics: Mutex::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.inner.env
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.env.dir
    }

    /// Returns the folder's owner, by user id, if this process runs as root and the folder is
    /// another user's: what it creates there belongs to root, and that user cannot write to it.
    #[must_use]
    pub fn stranger(&self) -> Option<u32> {
        // A folder that is gone has no owner.
        location::stranger(self.path()).ok().flatten()
    }

    /// Runs all maintenance tasks once, for journals opened with [`Maintenance::Manual`].
    pub fn maintain(&self) {
        self.inner.housekeeper.once(&self.inner.env);
    }

    /// Creates a bell for one waiting thread.
    ///
    /// # Errors
    /// [`JournalError::TooMany`] if 4,096 threads wait on this journal already.
    pub fn bell(&self) -> Result<Bell, JournalError> {
        let bell = Bell::new(&self.inner.env)?;
        self.inner.housekeeper.bells.push(&bell.inner);
        Ok(bell)
    }

    fn open_topics(&self) -> MutexGuard<'_, HashMap<TopicName, Arc<TopicInner>>> {
        self.inner.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a topic; creates it if there is none.
    ///
    /// # Errors
    /// [`JournalError::Mismatch`] if it exists with another configuration.
    pub fn create_topic(
        &self,
        name: &TopicName,
        config: &TopicConfig,
    ) -> Result<Topic, JournalError> {
        config.check()?;
        match self.topic(name) {
            Ok(Some(topic)) => {
                topic.config().same_as(config, name.as_str())?;
                return Ok(topic);
            }
            Err(e) if !matches!(e, JournalError::Damaged { .. }) => return Err(e),
            _ if !self.inner.env.writable() => return Err(JournalError::ReadOnly),
            _ => {}
        }
        budget::check(&self.inner.env, config)?;
        self.make_topic(name, config)?;
        let made = self.topic(name)?.ok_or_else(|| {
            JournalError::damaged(&topic::dir(&self.inner.env, name), "topic vanished")
        })?;
        // Another process may have created it first, with another configuration.
        made.config().same_as(config, name.as_str())?;
        Ok(made)
    }

    /// Creates a topic, one process at a time.
    fn make_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<(), JournalError> {
        let env = &self.inner.env;
        let _lock = self.lock_topics()?;
        match TopicInner::open(env, &self.inner.housekeeper, name) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if !topic::dir(env, name).exists() => {}
            Ok(None) if topic::was_deleted(&topic::dir(env, name)) => {
                self.take_down(name)?;
            }
            Ok(None) => topic::remove_unborn(env, name)?,
            Err(JournalError::Damaged { path, what }) => {
                let dir = topic::dir(env, name);
                if topic::blank_file(&dir).is_none() {
                    return Err(JournalError::Damaged { path, what });
                }
                // Created shortly before a power loss, and incomplete on the disk: create it again.
                topic::remove_unborn(env, name)?;
            }
            Err(e) => return Err(e),
        }
        topic::create(env, name, config)
    }

    /// Takes the lock under which topics are created and deleted.
    fn lock_topics(&self) -> Result<Held, JournalError> {
        let env = &self.inner.env;
        env.lock(Operation::Topics, &env.dir.join("topics"))
    }

    /// Opens a topic; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`JournalError`] if its files cannot be used.
    pub fn topic(&self, name: &TopicName) -> Result<Option<Topic>, JournalError> {
        let mut topics = self.open_topics();
        match topics.get(name) {
            Some(inner) if inner.is_current() => {
                return Ok(Some(Topic::new(Arc::clone(inner))));
            }
            // Deleted, and perhaps recreated, meanwhile.
            _ => drop(topics.remove(name)),
        }
        let Some(inner) = TopicInner::open(&self.inner.env, &self.inner.housekeeper, name)? else {
            return Ok(None);
        };
        let inner = Arc::new(inner);
        topics.insert(name.clone(), Arc::clone(&inner));
        Ok(Some(Topic::new(inner)))
    }

    /// Removes a topic with all its records; returns whether there was one. Open handles, also
    /// those of other processes, get [`JournalError::TopicGone`] from then on: appends and syncs,
    /// including those that are waiting, and reads, whose waiting readers are woken.
    ///
    /// # Errors
    /// [`JournalError`] if its files cannot be removed; [`JournalError::Stuck`] if a stopped
    /// process holds a partition's lock. The deletion may be decided then: try again.
    pub fn remove_topic(&self, name: &TopicName) -> Result<bool, JournalError> {
        if !self.inner.env.writable() {
            return Err(JournalError::ReadOnly);
        }
        let _lock = self.lock_topics()?;
        self.take_down(name)
    }

    /// Removes all records of a topic, which begins again under the same configuration; returns
    /// whether there was one. Open handles get [`JournalError::TopicGone`]: their positions belong
    /// to the removed records.
    ///
    /// # Errors
    /// As [`Journal::remove_topic`].
    pub fn purge_topic(&self, name: &TopicName) -> Result<bool, JournalError> {
        let env = &self.inner.env;
        if !env.writable() {
            return Err(JournalError::ReadOnly);
        }
        let _lock = self.lock_topics()?;
        let dir = topic::dir(env, name);
        if topic::was_deleted(&dir) {
            return Ok(false);
        }
        let Some(config) = description::read(&dir)? else { return Ok(false) };
        let next = topic::prepare(env, &config)?;
        access::copy(&dir, &next)?;
        self.mark_deleted(name)?;
        // At each moment, one of the two has the name.
        let flags = RenameFlags::EXCHANGE;
        renameat_with(CWD, &next, CWD, &dir, flags).at("put into place", &dir)?;
        env.sync_dir(&env.dir.join("topics"))?;
        fs::remove_dir_all(&next).at("remove", &next)?;
        Ok(true)
    }

    /// Changes the limits of bytes and age, and the description, of a topic; returns whether there
    /// is one. Processes that have the topic open apply the new limits within a second.
    ///
    /// # Errors
    /// [`JournalError::Mismatch`] if another field differs.
    pub fn alter_topic(
        &self,
        name: &TopicName,
        config: &TopicConfig,
    ) -> Result<bool, JournalError> {
        config.check()?;
        let env = &self.inner.env;
        if !env.writable() {
            return Err(JournalError::ReadOnly);
        }
        budget::check(env, config)?;
        let _lock = self.lock_topics()?;
        let Some(topic) = self.topic(name)? else { return Ok(false) };
        let description = topic.config().description.clone();
        let same = TopicConfig { description, ..config.clone() };
        topic.config().same_as(&same, name.as_str())?;
        topic::alter(env, name, config)?;
        // Opened again with the new configuration.
        self.open_topics().remove(name);
        Ok(true)
    }

    /// Lets a user, by id, read a topic, its new files included; returns whether there is one. All
    /// others are excluded, except the owner, users to whom it was granted before, and the folder's
    /// group if that may write. The user can also read the journal's own file, its schemas and the
    /// names of its topics, and can write nothing. Purging keeps the grants; removing ends them.
    ///
    /// # Errors
    /// [`JournalError::NotOwner`] and [`JournalError::NoAccessLists`].
    pub fn grant(&self, name: &TopicName, user: u32) -> Result<bool, JournalError> {
        self.admit(name, user, access::grant)
    }

    /// The same for a topic that all users of the journal may need: nobody is excluded.
    ///
    /// # Errors
    /// As [`Journal::grant`].
    pub fn share(&self, name: &TopicName, user: u32) -> Result<bool, JournalError> {
        self.admit(name, user, access::share)
    }

    fn admit(
        &self,
        name: &TopicName,
        user: u32,
        admit: fn(&Path, u32) -> Result<(), JournalError>,
    ) -> Result<bool, JournalError> {
        let env = &self.inner.env;
        let _lock = self.lock_topics()?;
        if self.topic(name)?.is_none() {
            return Ok(false);
        }
        admit(&topic::dir(env, name), user)?;
        access::share_only(&env.dir, user, access::ENTER)?;
        access::share_only(&env.file_path(), user, access::READ)?;
        access::share_only(&env.dir.join("topics"), user, access::BROWSE)?;
        access::share(&env.dir.join("schemas"), user)?;
        Ok(true)
    }

    /// Ends a user's [grant](Journal::grant); returns whether there was one. The topic stays closed
    /// to others. Files that the user's processes have open stay readable for them, new ones do not
    /// open.
    ///
    /// # Errors
    /// As [`Journal::grant`].
    pub fn revoke(&self, name: &TopicName, user: u32) -> Result<bool, JournalError> {
        let _lock = self.lock_topics()?;
        match self.topic(name)? {
            Some(_) => access::revoke(&topic::dir(&self.inner.env, name), user),
            None => Ok(false),
        }
    }

    /// Marks the partitions of a topic as deleted, then removes it. A process that dies in between
    /// leaves a folder that counts as deleted; it is removed with the next creation or deletion.
    /// Under the topics' lock.
    fn take_down(&self, name: &TopicName) -> Result<bool, JournalError> {
        let env = &self.inner.env;
        let dir = topic::dir(env, name);
        if !dir.exists() {
            return Ok(false);
        }
        self.mark_deleted(name)?;
        // Atomic for other processes. After a crash the left-over is an orphan.
        let aside = env.temporary(&env.dir.join("topics"));
        fs::rename(&dir, &aside).at("put aside", &dir)?;
        env.sync_dir(&env.dir.join("topics"))?;
        fs::remove_dir_all(&aside).at("remove", &aside)?;
        Ok(true)
    }

    fn mark_deleted(&self, name: &TopicName) -> Result<(), JournalError> {
        let env = &self.inner.env;
        let open = self.open_topics().remove(name).filter(|open| open.is_current());
        let open = match open {
            Some(open) => Ok(Some(open)),
            None => {
                TopicInner::open_named(env, &self.inner.housekeeper, name).map(|t| t.map(Arc::new))
            }
        };
        match open {
            Ok(Some(open)) => open.delete(),
            // Nobody can open it.
            Ok(None) | Err(JournalError::Damaged { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Lists all topics that this process may read, by name.
    ///
    /// # Errors
    /// [`JournalError`] if a topic's description cannot be read.
    pub fn topics(&self) -> Result<Vec<TopicInfo>, JournalError> {
        let folder = self.inner.env.dir.join("topics");
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).at("list", &folder)? {
            let entry = entry.at("list", &folder)?;
            if let Some(name) = entry.file_name().to_str().and_then(topic::unescape)
                && !topic::was_deleted(&entry.path())
            {
                match description::read(&entry.path()) {
                    Err(JournalError::NotReadable { .. }) => {}
                    // A power loss interrupted the creation: the next one completes it.
                    Err(JournalError::Damaged { .. })
                        if topic::blank_file(&entry.path()).is_some() => {}
                    config => found.extend(config?.map(|config| TopicInfo { name, config })),
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Returns the journal's random identity, which stays when its folder is moved.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.env.doorbells.map.u64(16).load(Relaxed)
    }

    fn schema_path(&self, id: SchemaId) -> PathBuf {
        self.inner.env.dir.join("schemas").join(format!("{id}.avsc"))
    }

    /// Stores a schema's text under its identity ([`Schema::id`]). The first text of an identity
    /// stays, unless it was edited or damaged since; later ones are ignored.
    ///
    /// # Errors
    /// [`JournalError::SchemaText`] if the text is no schema, [`JournalError::SchemaIdentity`] if
    /// it has another identity, [`JournalError`] if it cannot be written.
    pub fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), JournalError> {
        if text.len() > MAX_SCHEMA_BYTES {
            let (value, limits) =
                (text.len().to_string(), format!("0 to {MAX_SCHEMA_BYTES} bytes"));
            return Err(JournalError::Limit { field: "schema", value, limits });
        }
        let parsed = Schema::parse(text);
        let found = parsed.map_err(|cause| JournalError::SchemaText { id, cause })?.id();
        if found != id {
            return Err(JournalError::SchemaIdentity { id, found });
        }
        match self.schema(id) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) | Err(JournalError::SchemaEdited { .. }) => {}
            Err(error) => return Err(error),
        }
        if !self.inner.env.writable() {
            return Err(JournalError::ReadOnly);
        }
        self.inner.env.publish(&self.schema_path(id), text.as_bytes())
    }

    /// Returns the schema's text, if it was stored. Its identity covers what a datum means: names,
    /// types, units, lengths, labels; not defaults, aliases and descriptions.
    ///
    /// # Errors
    /// [`JournalError::SchemaEdited`] if the text is no schema of this identity; [`JournalError`]
    /// if it cannot be read.
    pub fn schema(&self, id: SchemaId) -> Result<Option<String>, JournalError> {
        let path = self.schema_path(id);
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("open", &path)?,
        };
        let mut bytes = Vec::new();
        // A longer text is never stored.
        file.take(MAX_SCHEMA_BYTES as u64 + 1).read_to_end(&mut bytes).at("read", &path)?;
        let text = String::from_utf8(bytes).ok().filter(|text| {
            text.len() <= MAX_SCHEMA_BYTES
                && Schema::parse(text).is_ok_and(|schema| schema.id() == id)
        });
        text.map(Some).ok_or(JournalError::SchemaEdited { path, id })
    }

    /// Lists the ids of all schemas, in order.
    ///
    /// # Errors
    /// [`JournalError`] if the folder cannot be read.
    pub fn schemas(&self) -> Result<Vec<SchemaId>, JournalError> {
        let folder = self.inner.env.dir.join("schemas");
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).at("list", &folder)? {
            let name = entry.at("list", &folder)?.file_name();
            let hex = name.to_str().and_then(|n| n.strip_suffix(".avsc"));
            found.extend(hex.and_then(|h| u64::from_str_radix(h, 16).ok()).map(SchemaId));
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Whether a folder's entry is made before the journal is complete.
fn is_part(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    name == "topics"
        || name == "schemas"
        || name == "journal.hj"
        || name.starts_with(TEMPORARY_PREFIX)
}

/// Whether a folder without the journal's own file is one that [`prepare`] has begun. The file may
/// have been named since it was looked for.
fn is_unfinished(dir: &Path) -> bool {
    let names = |dir: &Path| -> Vec<_> {
        let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        entries.map(|entry| entry.file_name()).collect()
    };
    let found = names(dir);
    let is_begun = !found.is_empty() && found.iter().all(|name| is_part(name));
    let is_blank = || ["topics", "schemas"].iter().all(|part| names(&dir.join(part)).is_empty());
    found.iter().any(|name| name == "journal.hj") || (is_begun && is_blank())
}

/// Attaches to the journal's own file. A reader may come while another process creates it, and
/// waits for that.
fn attach_created(dir: &Path, file: &Path, access: Access) -> Result<Map, JournalError> {
    let begun = Instant::now();
    loop {
        match attach(dir, file, access) {
            Err(JournalError::Unfinished { .. }) if begun.elapsed() < CREATION_TIMEOUT => {
                std::thread::sleep(CREATION_POLL_INTERVAL);
            }
            other => return other,
        }
    }
}

/// Creates the folder and the journal's own file, unless they exist.
fn prepare(dir: &Path, file: &Path, seed: Option<u64>, boot: BootId) -> Result<(), JournalError> {
    if file.exists() {
        return Ok(());
    }
    fs::create_dir_all(dir).at("create", dir)?;
    let mut others = fs::read_dir(dir).at("list", dir)?.filter_map(Result::ok);
    // Another process may have created it meanwhile, with files of other names.
    if others.any(|e| !is_part(&e.file_name())) && !file.exists() {
        return Err(JournalError::Foreign { path: dir.to_owned() });
    }
    for part in ["topics", "schemas"] {
        let path = dir.join(part);
        fs::create_dir_all(&path).at("create", &path)?;
    }
    let temporary =
        dir.join(format!("{TEMPORARY_PREFIX}{:016x}-{:x}", Token::own(boot).0, random()));
    let made = write_head(&temporary, seed.map_or_else(random, mix)).at("create", &temporary);
    let linked = made.and_then(|()| match fs::hard_link(&temporary, file) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.at("name", file),
    });
    // A left-over would only take space; the first error is the one to report.
    let _ = fs::remove_file(&temporary);
    linked?;
    File::open(dir).and_then(|d| d.sync_all()).at("sync", dir)
}

fn write_head(path: &Path, id: u64) -> io::Result<()> {
    let mut head = [0; FIXED_BYTES + 4];
    head[..8].copy_from_slice(MAGIC);
    head[12..16].copy_from_slice(&(FILE_BYTES as u32).to_le_bytes());
    head[16..24].copy_from_slice(&id.to_le_bytes());
    seal_head(&mut head);
    let mut file = File::create_new(path)?;
    crate::map::reserve(&file, FILE_BYTES as u64)?;
    file.write_all(&head)?;
    file.sync_all()
}

/// Stores this program's format version in a head, and its checksum.
fn seal_head(head: &mut [u8; FIXED_BYTES + 4]) {
    head[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&head[..FIXED_BYTES]);
    head[FIXED_BYTES..].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the head of the journal's own file and checks it; `None` if its checksum is wrong.
fn read_head(file: &File, path: &Path) -> Result<Option<[u8; FIXED_BYTES + 4]>, JournalError> {
    let mut head = [0; FIXED_BYTES + 4];
    if file.read_exact_at(&mut head, 0).is_err() || &head[..8] != MAGIC {
        return Err(JournalError::Foreign { path: path.to_owned() });
    }
    let half = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if half(8) > FORMAT_VERSION {
        let (path, known) = (path.to_owned(), FORMAT_VERSION);
        return Err(JournalError::Version { path, found: half(8), known });
    }
    let whole = half(FIXED_BYTES) == crc32c::crc32c(&head[..FIXED_BYTES]);
    Ok(whole.then_some(head))
}

/// Marks a journal of an older version as one of this program's: older programs refuse it from now
/// on. The mark is on the disk before anything else of the new version. All other files stay as
/// they are, and are read in whatever version they have.
fn upgrade(file: &File, path: &Path, mut head: [u8; FIXED_BYTES + 4]) -> Result<(), JournalError> {
    let before = head;
    seal_head(&mut head);
    if head == before {
        return Ok(());
    }
    file.write_all_at(&head, 0).at("upgrade", path)?;
    file.sync_data().at("sync", path)
}

/// Checks the head of the journal's own file, upgrades it for writing, and maps the file.
fn attach(dir: &Path, path: &Path, access: Access) -> Result<Map, JournalError> {
    let write = access == Access::ReadWrite;
    let file = match OpenOptions::new().read(true).write(write).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(if is_unfinished(dir) {
                JournalError::Unfinished { path: dir.to_owned() }
            } else {
                JournalError::Foreign { path: path.to_owned() }
            });
        }
        other => other.at("open", path)?,
    };
    // Another process may be upgrading it.
    let mut reads = (0..MAX_HEAD_READS).map(|_| read_head(&file, path).transpose());
    let Some(head) = reads.find_map(|head| head) else {
        return Err(JournalError::damaged(path, "head"));
    };
    let head = head?;
    if file.metadata().at("look at", path)?.len() < FILE_BYTES as u64 {
        return Err(JournalError::damaged(path, "short"));
    }
    if write {
        upgrade(&file, path, head)?;
    }
    let mode = if write { Mode::Write } else { Mode::Guarded };
    Map::of(&file, FILE_BYTES, mode).at("map", path)
}
