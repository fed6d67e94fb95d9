//! Random operations against a simple model, and power cuts: each unsynced page is the old or the
//! new one, and each unsynced name exists or not. Records that were reported durable must exist.
//! Of the others, those whose offsets are proven by what reached the disk exist or are reported as
//! missing, and those behind them are cut off: what exists is otherwise the log's unchanged
//! beginning.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helio_core::{ProducerName, Tai, TopicName};
use helio_journal::{
    From, Item, Journal, JournalOptions, LastValue, Maintenance, Ownership, Record, SyncPolicy,
    Topic, TopicConfig, Writer, WriterOptions,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::storm_report::Storm;

const PAGE: usize = 4096;

thread_local! {
    /// Where this thread's folders are; the system's folder for temporary files if empty.
    static FOLDERS: RefCell<PathBuf> = RefCell::default();
}

/// Has this thread's folders made in another one.
pub(crate) fn set_folders(path: &Path) {
    FOLDERS.set(path.to_owned());
}

pub(crate) fn new_folder() -> tempfile::TempDir {
    FOLDERS
        .with_borrow(|path| match path.as_os_str().is_empty() {
            true => tempfile::tempdir(),
            false => tempfile::tempdir_in(path),
        })
        .unwrap()
}

/// A file or folder for its whole life, whatever its name.
type Inode = u64;

/// The names in a folder.
type Names = BTreeMap<OsString, Inode>;

/// A copy of the disk as a power cut leaves it, and the state of its luck behind the last page.
pub(crate) type Image = (tempfile::TempDir, u64);

/// The synced state of the disk: files and folders' names as last synced.
#[derive(Default)]
pub(crate) struct Disk {
    files: HashMap<Inode, Vec<u8>>,
    folders: HashMap<Inode, Names>,
    /// Kept open, so that the system reuses no inode number.
    held: HashMap<Inode, File>,
    pub(crate) syncs: u64,
    /// The number of the sync before which the power is cut, and with what luck.
    pub(crate) cut_at: Option<(u64, u64)>,
    pub(crate) image: Option<Image>,
}

fn inode(path: &Path) -> Inode {
    fs::metadata(path).unwrap().ino()
}

fn list(dir: &Path) -> Names {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|e| (e.file_name(), inode(&e.path()))).collect()
}

/// The current paths of everything in and below a folder.
fn places(dir: &Path, found: &mut HashMap<Inode, PathBuf>) {
    found.insert(inode(dir), dir.to_owned());
    for (name, inode) in list(dir) {
        let path = dir.join(name);
        if path.is_dir() {
            places(&path, found);
        } else {
            found.insert(inode, path);
        }
    }
}

/// The part of a name that is the same in each run: names of locks are hashes of inodes, and those
/// of unfinished files have the process's number.
fn reproducible(name: &OsStr) -> &[u8] {
    let bytes = name.as_encoded_bytes();
    let prefix = [&b"locks."[..], b".tmp-"].into_iter().find(|prefix| bytes.starts_with(prefix));
    prefix.unwrap_or(bytes)
}

struct Luck(u64);

impl Luck {
    fn coin(&mut self) -> bool {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 40 & 1 == 1
    }
}

impl Disk {
    /// A disk whose power is cut before the sync of that number, with that luck.
    pub(crate) fn cut_at(cut_at: Option<(u64, u64)>) -> Self {
        Self { cut_at, ..Self::default() }
    }

    fn sync(&mut self, path: &Path, root: &Path) {
        self.syncs += 1;
        if let Some((at, luck)) = self.cut_at
            && at == self.syncs
        {
            self.image = Some(self.cut(root, luck));
        }
        self.note(path);
    }

    /// Marks a file's contents, or a folder's names, as synced.
    pub(crate) fn note(&mut self, path: &Path) {
        if path.is_dir() {
            let names = list(path);
            names.keys().for_each(|name| self.hold(&path.join(name)));
            self.hold(path);
            self.folders.insert(inode(path), names);
        } else if let Ok(bytes) = fs::read(path) {
            self.hold(path);
            self.files.insert(inode(path), bytes);
        }
    }

    fn hold(&mut self, path: &Path) {
        self.held.entry(inode(path)).or_insert_with(|| File::open(path).unwrap());
    }

    /// Marks everything in and below a folder as synced.
    pub(crate) fn note_all(&mut self, root: &Path) {
        let mut all = HashMap::new();
        places(root, &mut all);
        all.values().for_each(|path| self.note(path));
    }

    /// A folder as the disk may have it after a power cut at this moment.
    pub(crate) fn cut(&self, root: &Path, luck: u64) -> Image {
        let target = new_folder();
        let (mut live, mut luck) = (HashMap::new(), Luck(luck));
        places(root, &mut live);
        self.cut_folder(inode(root), &live, &target.path().join("j"), &mut luck);
        (target, luck.0)
    }

    fn cut_folder(
        &self,
        folder: Inode,
        live: &HashMap<Inode, PathBuf>,
        to: &Path,
        luck: &mut Luck,
    ) {
        fs::create_dir(to).unwrap();
        let now = live.get(&folder).map(|path| list(path)).unwrap_or_default();
        let synced = self.folders.get(&folder).cloned().unwrap_or_default();
        let names: BTreeSet<_> = now.keys().chain(synced.keys()).collect();
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_cached_key(|name| (reproducible(name), !synced.contains_key(*name)));
        for name in names {
            let (new, old) = (now.get(name), synced.get(name));
            let Some(inode) = (if new == old || luck.coin() { new } else { old }) else { continue };
            let (target, path) = (to.join(name), live.get(inode));
            if self.folders.contains_key(inode) || path.is_some_and(|p| p.is_dir()) {
                self.cut_folder(*inode, live, &target, luck);
            } else {
                let current = path.map(|path| fs::read(path).unwrap());
                fs::write(&target, self.cut_file(*inode, current, luck)).unwrap();
            }
        }
    }

    fn cut_file(&self, inode: Inode, current: Option<Vec<u8>>, luck: &mut Luck) -> Vec<u8> {
        let synced = self.files.get(&inode).cloned();
        let Some(mut new) = current else { return synced.unwrap_or_default() };
        if synced.is_none() && luck.coin() {
            return Vec::new();
        }
        let old = synced.unwrap_or_default();
        for (i, page) in new.chunks_mut(PAGE).enumerate() {
            if luck.coin() {
                match old.get(i * PAGE..i * PAGE + page.len()) {
                    Some(before) => page.copy_from_slice(before),
                    None => page.fill(0),
                }
            }
        }
        new
    }
}

/// One process, and nothing that differs from run to run: a find is reproducible by its input.
pub(crate) fn options(
    disk: &Arc<Mutex<Disk>>,
    root: &Path,
    boot: u8,
    opening: u32,
) -> JournalOptions {
    let (disk, root) = (Arc::clone(disk), root.to_owned());
    JournalOptions {
        maintenance: Maintenance::Manual,
        boot_id: Some([boot; 16]),
        clock: Arc::new(|| Tai::from_nanos(0)),
        uptime: Arc::new(|| Duration::ZERO),
        // Openings count on in the lower half.
        seed: Some(u64::from(opening) << 32),
        sync_hook: Some(Arc::new(move |path| {
            disk.lock().unwrap().sync(path, &root);
            Ok(())
        })),
        ..JournalOptions::default()
    }
}

#[derive(Debug, Clone)]
enum Op {
    Append { key: u8, len: u16 },
    Batch { count: u8 },
    Sync,
    Maintain,
    Compact { share: u8 },
    Reopen,
    Cut { luck: u64 },
    CutWithin { syncs: u64, luck: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (0..12_u8, 0..6000_u16).prop_map(|(key, len)| Op::Append { key, len }),
        5 => (1..40_u8).prop_map(|count| Op::Batch { count }),
        4 => Just(Op::Sync),
        3 => Just(Op::Maintain),
        3 => (0..=100_u8).prop_map(|share| Op::Compact { share }),
        2 => Just(Op::Reopen),
        3 => any::<u64>().prop_map(|luck| Op::Cut { luck }),
        3 => (1..8_u64, any::<u64>()).prop_map(|(syncs, luck)| Op::CutWithin { syncs, luck }),
    ]
}

type Entry = (u8, Vec<u8>);

/// The expected contents.
#[derive(Default)]
struct Model {
    log: Vec<Entry>,
    /// Offsets of records that were not durable when the power was cut, and are reported missing.
    lost: BTreeSet<u64>,
    durable: u64,
    /// Below this offset, only the newest record of each key must exist.
    dropped: u64,
    incarnation: u64,
    /// The states of the luck behind each cut.
    fates: Vec<u64>,
}

struct Site {
    root: tempfile::TempDir,
    disk: Arc<Mutex<Disk>>,
    boot: u8,
    /// The number of openings before this one.
    opening: u32,
    topic: Topic,
    journal: Journal,
    writer: Option<Writer>,
    /// The topic was created with it: the disk had none, or an incomplete one.
    is_new: bool,
}

/// Both kinds of retention, with and without a background sync.
fn config(keeps: bool, on_request: bool) -> TopicConfig {
    TopicConfig {
        segment_bytes: 64 << 10,
        retention_bytes: Some(if keeps { 512 << 10 } else { 64 << 10 }),
        last_value: if keeps { LastValue::Keep } else { LastValue::Forget },
        // The second partition stays empty.
        partitions: 2,
        sync: if on_request { SyncPolicy::OnRequest } else { SyncPolicy::Background },
        ..TopicConfig::default()
    }
}

impl Site {
    fn new(root: tempfile::TempDir, boot: u8, opening: u32, config: &TopicConfig) -> Self {
        let disk = Arc::new(Mutex::new(Disk::default()));
        let dir = root.path().join("j");
        if dir.exists() {
            // The surviving records are the disk's contents.
            disk.lock().unwrap().note_all(&dir);
        }
        let journal = Journal::open(&dir, options(&disk, &dir, boot, opening)).unwrap();
        let name = TopicName::new("t").unwrap();
        let is_new = !matches!(journal.topic(&name), Ok(Some(_)));
        let topic = journal.create_topic(&name, config).unwrap();
        if disk.lock().unwrap().folders.is_empty() {
            let mut disk = disk.lock().unwrap();
            disk.sync(&dir, &dir);
            disk.sync(&dir.join("journal.hj"), &dir);
        }
        Self { root, disk, boot, opening, topic, journal, writer: None, is_new }
    }

    fn writer(&mut self, model: &mut Model) -> &mut Writer {
        let topic = &self.topic;
        self.writer.get_or_insert_with(|| {
            let producer = ProducerName::new("me").unwrap();
            let options = WriterOptions { producer, ownership: Ownership::Shared };
            let writer = topic.writer(0, &options).unwrap();
            let incarnation = writer.producer().incarnation;
            assert!(incarnation > model.incarnation, "an incarnation was given twice");
            model.incarnation = incarnation;
            writer
        })
    }

    fn append(&mut self, model: &mut Model, key: u8, len: usize) {
        let payload = vec![model.log.len() as u8; len];
        let key_bytes = [key];
        let record = Record { key: &key_bytes, payload: &payload, ..Record::default() };
        let offset = self.writer(model).append(&record).unwrap();
        assert_eq!(offset, model.log.len() as u64);
        model.log.push((key, payload));
    }

    fn apply(self, model: &mut Model, op: &Op) -> Self {
        let mut site = self;
        model.durable = model.durable.max(site.topic.durable(0).unwrap());
        match op {
            Op::Append { key, len } => site.append(model, *key, (*len).into()),
            Op::Batch { count } => (0..*count).for_each(|i| site.append(model, i % 5, 300)),
            Op::Sync => {
                if let Some(last) = (model.log.len() as u64).checked_sub(1) {
                    site.topic.wait_durable(0, last, None).unwrap();
                    model.durable = last + 1;
                }
            }
            Op::Maintain => {
                site.journal.maintain();
                // The retired segment ends at most here.
                model.dropped = model.dropped.max(model.log.len() as u64);
            }
            Op::Compact { share } => {
                let below = model.log.len() as u64 * u64::from(*share) / 100;
                site.topic.compact_below(0, below).unwrap();
                model.dropped = model.dropped.max(below);
            }
            Op::Reopen => {
                let (root, disk, boot) = (site.root, site.disk, site.boot);
                let opening = site.opening + 1;
                drop((site.writer, site.topic, site.journal));
                // Closing applies retention, and syncs unless that is done on request only.
                model.dropped = model.dropped.max(model.log.len() as u64);
                let dir = root.path().join("j");
                let journal = Journal::open(&dir, options(&disk, &dir, boot, opening)).unwrap();
                let topic = journal.topic(&TopicName::new("t").unwrap()).unwrap().unwrap();
                if topic.config().sync == SyncPolicy::Background {
                    model.durable = model.log.len() as u64;
                }
                let (writer, is_new) = (None, false);
                site = Self { root, disk, boot, opening, topic, journal, writer, is_new };
            }
            Op::Cut { luck } => {
                let (image, fate) = {
                    let disk = site.disk.lock().unwrap();
                    disk.cut(&site.root.path().join("j"), *luck)
                };
                let (boot, opening) = (site.boot + 1, site.opening + 1);
                let config = site.topic.config().clone();
                model.fates.push(fate);
                drop(site);
                site = Self::new(image, boot, opening, &config);
                let end = site.topic.info(0).unwrap().end_offset;
                assert!(end >= model.durable, "cut at {end}, durable was {}", model.durable);
                model.log.truncate(end as usize);
                model.dropped = model.dropped.min(end);
                model.incarnation = if site.is_new { 0 } else { model.incarnation };
                model.lost = site.lost(model.durable, &model.lost);
                model.durable = end;
            }
            Op::CutWithin { syncs, luck } => site.cut_within(model, *syncs, *luck),
        }
        site
    }

    /// Cuts the power during maintenance, and checks the remaining files in a copy.
    fn cut_within(&mut self, model: &mut Model, syncs: u64, luck: u64) {
        let dir = self.root.path().join("j");
        {
            let mut disk = self.disk.lock().unwrap();
            disk.cut_at = Some((disk.syncs + syncs, luck));
        }
        let below = model.log.len() as u64 / 2;
        self.topic.compact_below(0, below).unwrap();
        self.journal.maintain();
        let image = self.disk.lock().unwrap().image.take();
        self.disk.lock().unwrap().cut_at = None;
        let sure = model.durable;
        model.dropped = model.dropped.max(model.log.len() as u64);
        if let Some((image, fate)) = image {
            model.fates.push(fate);
            let site = Self::new(image, self.boot + 100, self.opening + 1, self.topic.config());
            let end = site.topic.info(0).unwrap().end_offset;
            assert!(end >= sure, "cut within at {end}, durable was {sure} in {}", dir.display());
            let log = model.log[..end as usize].to_vec();
            let lost = site.lost(sure, &model.lost);
            let dropped = model.dropped;
            site.check(&Model { log, lost, durable: sure, dropped, ..Model::default() });
        }
    }

    /// Offsets and records, and the offsets of those that are missing.
    fn read(&self, from: From) -> (Vec<(u64, Entry)>, BTreeSet<u64>) {
        let mut reader = self.topic.reader(0, from).unwrap();
        let (mut out, mut missing) = (Vec::new(), BTreeSet::new());
        while let Some(item) = reader.next().unwrap() {
            match item {
                Item::Sample(s) => out.push((s.offset, (s.key[0], s.payload.to_vec()))),
                Item::Gap(gap) => missing.extend(gap.from..gap.to),
            }
        }
        (out, missing)
    }

    /// What a power cut took: nothing of it was durable. A later recovery may find it again.
    fn lost(&self, durable: u64, before: &BTreeSet<u64>) -> BTreeSet<u64> {
        let (found, lost) = self.read(From::Earliest);
        let new = lost.difference(before);
        assert!(new.min().is_none_or(|new| *new >= durable), "{durable} durable, lost {lost:?}");
        let info = self.topic.info(0).unwrap();
        // Damage within a sealed segment is found by readers.
        let mut lost: BTreeSet<u64> = lost.union(before).copied().collect();
        assert!(info.recovery.missing <= lost.len() as u64, "{:?}, {lost:?}", info.recovery);
        if durable == 0 && self.topic.config().sync == SyncPolicy::OnRequest {
            // Nothing was promised: retention did not sync what supersedes the records it took.
            lost.extend(0..info.first_offset);
        }
        lost.retain(|lost| found.binary_search_by_key(lost, |found| found.0).is_err());
        lost
    }

    fn check(&self, model: &Model) {
        let (all, missing) = self.read(From::Earliest);
        assert!(missing.is_subset(&model.lost), "{missing:?} is missing of {:?}", model.lost);
        let end = model.log.len() as u64;
        let keeps = self.topic.config().last_value == LastValue::Keep;
        let newest: BTreeMap<u8, u64> = (0..)
            .zip(&model.log)
            .filter(|(o, _)| !model.lost.contains(o))
            .map(|(o, (k, _))| (*k, o))
            .collect();
        let newest = if keeps { newest } else { BTreeMap::new() };
        for (offset, entry) in &all {
            assert!(model.log.get(*offset as usize) == Some(entry), "offset {offset} is wrong");
        }
        let present: BTreeSet<u64> = all.iter().map(|e| e.0).collect();
        assert_eq!(present.len(), all.len(), "something came twice");
        let sure = (model.dropped..end).chain(newest.values().copied());
        let lost = &model.lost;
        sure.filter(|offset| !lost.contains(offset)).for_each(|offset| {
            assert!(
                present.contains(&offset),
                "offset {offset} of {end} is missing, lost {lost:?}"
            );
        });
        if keeps {
            let (last, missing) = self.read(From::LastPerKey(1));
            assert!(missing.is_empty(), "{missing:?}");
            let last = last.into_iter();
            assert_eq!(last.map(|(o, (k, _))| (k, o)).collect::<BTreeMap<_, _>>(), newest);
        }
    }
}

#[test]
fn what_was_durable_is_there_after_power_loss() {
    let settings = ProptestConfig {
        cases: std::env::var("HELIO_POWER_CASES").map_or(200, |c| c.parse().unwrap()),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    };
    let (tried, survived) = (Cell::new(0), Cell::new(0));
    let is_cut = |op: &&Op| matches!(op, Op::Cut { .. } | Op::CutWithin { .. });
    let case = (prop::collection::vec(op(), 1..60), any::<bool>(), any::<bool>());
    let outcome = TestRunner::new(settings).run(&case, |(ops, keeps, on_request)| {
        let cuts = ops.iter().filter(is_cut).count() as u64;
        tried.set(tried.get() + cuts);
        // It fails where a durable sample is missing, or another one without a report.
        run(&ops, &config(keeps, on_request));
        survived.set(survived.get() + cuts);
        Ok(())
    });
    if let Err(failed) = outcome {
        panic!("{failed}");
    }
    let (tried, survived) = (tried.get(), survived.get());
    Storm { tried, survived, ..Storm::default() }.report("power cuts");
}

/// Returns the states of the luck behind each cut.
fn run(ops: &[Op], config: &TopicConfig) -> Vec<u64> {
    let mut site = Site::new(tempfile::tempdir().unwrap(), 1, 0, config);
    let mut model = Model::default();
    for op in ops {
        site = site.apply(&mut model, op);
        if !matches!(op, Op::Append { .. }) {
            site.check(&model);
        }
    }
    site.check(&model);
    model.fates
}

#[test]
fn a_power_cut_is_reproducible() {
    let mut runner = TestRunner::deterministic();
    let ops = prop::collection::vec(op(), 40..60);
    for _ in 0..8 {
        let ops = ops.new_tree(&mut runner).unwrap().current();
        let fates = || run(&ops, &config(true, false));
        assert_eq!(fates(), fates(), "{ops:?}");
    }
}

/// Power cuts that once lost records.
#[test]
fn what_went_wrong_before_goes_well() {
    use Op::{Append, Batch, Compact, Cut, CutWithin, Reopen, Sync};
    // The names of retired segments came back, all but one: the log was taken to end at the hole.
    let run = |ops: &[Op]| drop(run(ops, &config(true, false)));
    run(&[
        Batch { count: 36 },
        Append { key: 0, len: 5480 },
        Sync,
        Cut { luck: 0 },
        Append { key: 0, len: 0 },
        Reopen,
        Batch { count: 30 },
        CutWithin { syncs: 1, luck: 0 },
        Append { key: 0, len: 0 },
        CutWithin { syncs: 1, luck: 14_877_221_369_592_111_388 },
    ]);
    // A record was reported missing and not read as a gap.
    run(&[
        Append { key: 0, len: 4664 },
        Sync,
        Append { key: 0, len: 4576 },
        Append { key: 5, len: 3624 },
        Batch { count: 19 },
        CutWithin { syncs: 6, luck: 1_773_761_961_428_893_666 },
    ]);
    // The first segment's header was lost before anything was durable: the log began at the second.
    run(&[
        Append { key: 0, len: 3800 },
        Append { key: 0, len: 5456 },
        Batch { count: 19 },
        CutWithin { syncs: 7, luck: 14_438_743_516_857_816_037 },
    ]);
    // The name of the producers' file was lost, and the only record: an incarnation came twice.
    let append = || Append { key: 0, len: 0 };
    for luck in [12_593_964_420_632_250_948, 15_283_567_764_733_831_349, 9_786_303_230_615_791_827]
    {
        crate::power::run(&[append(), Cut { luck }, append()], &config(false, false));
    }
    // Retention took a record, and the power the unsynced one that supersedes it: the model did not
    // know that a topic that is synced on request only promises neither.
    let append = |(key, len)| Append { key, len };
    let records = [(0, 3760), (0, 816), (7, 3928), (0, 2584), (0, 4944), (7, 0), (0, 0), (0, 0)];
    let mut ops: Vec<_> = records.map(append).into();
    ops.extend([Compact { share: 50 }, Cut { luck: 14_937_015_900_570_525_148 }]);
    crate::power::run(&ops, &config(true, true));
    // The control page and the first segment's header were lost: that one was rebuilt with zeros
    // for its position, and all records counted as missing, though readers found them.
    let mut ops: Vec<_> = [(0, 1336), (0, 2792), (5, 5424)].map(append).into();
    ops.extend([Batch { count: 37 }, CutWithin { syncs: 6, luck: 11_215_746_867_766_276_356 }]);
    crate::power::run(&ops, &config(true, false));
    // A later recovery rebuilt the header of a segment, and found a record again: the model took it
    // for lost for ever.
    run(&[
        Append { key: 0, len: 2864 },
        Sync,
        Batch { count: 35 },
        Append { key: 0, len: 504 },
        Cut { luck: 9_860_579_986_821_217_065 },
        Cut { luck: 0 },
    ]);
}

/// Power cuts that took a segment's seal and the next segment.
#[test]
fn what_went_wrong_behind_a_lost_seal_goes_well() {
    use Op::{Append, Batch, Cut, CutWithin, Reopen, Sync};
    // What was durable in the first one was skipped.
    let append = |(key, len)| Append { key, len };
    let same = |len| append((0, len));
    let mut ops = vec![Batch { count: 20 }];
    ops.extend([0, 3432, 3168, 2144, 4896, 1992, 3792, 3208].map(same));
    ops.push(Sync);
    ops.extend([1880, 5832, 5184, 1768, 4048, 5104].map(same));
    ops.push(Cut { luck: 3_657_961_388_966_244_240 });
    run(&ops, &config(false, false));
    // Last values behind them were not indexed.
    let mut ops = vec![Sync];
    ops.extend([(4, 1752), (7, 2208)].map(append));
    ops.extend([Reopen, Cut { luck: 0 }]);
    ops.extend([(0, 4336), (0, 1512), (0, 4248)].map(append));
    ops.extend([CutWithin { syncs: 1, luck: 78_469_846 }, Batch { count: 3 }, append((11, 4911))]);
    ops.extend([Batch { count: 38 }, Batch { count: 36 }, append((8, 4846))]);
    ops.extend([Cut { luck: 4_071_053_248_052_563_111 }, append((10, 5023)), Sync]);
    ops.push(Cut { luck: 317_084_702_664_284_468 });
    run(&ops, &config(true, false));
}
