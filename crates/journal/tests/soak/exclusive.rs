//! Exclusive logs against a model, with kills, power cuts, power cuts during the recovery, damaged
//! bits and full disks, under both durabilities; and a storm of real kills.
//!
//! `HELIO_POWER_CASES` sets the number of simulated cases, `HELIO_STORM_SECONDS` the storm's time.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_journal::{
    AppendError, ExclusiveContents, ExclusiveLog, ExclusiveOptions, Journal, JournalError,
    JournalOptions, RunEnd, SyncPolicy,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rustix::fs::FallocateFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::power::{Disk, Image, new_folder, options, set_folders};
use crate::storm_report::Storm;
use crate::support::child_test;
use crate::support::tmpfs::on_tmpfs;

/// The size of the simulation's own file system at most.
const DISK_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone)]
enum Op {
    Append {
        count: u8,
        len: u16,
    },
    Sync,
    Commit,
    Begin {
        back: u8,
    },
    Trim {
        share: u8,
    },
    Maintain,
    Close,
    Kill,
    Cut {
        luck: u64,
    },
    /// A cut, and another one during the opening, or while the next epoch begins.
    CutTwice {
        luck: u64,
        syncs: u64,
        again: u64,
    },
    /// A cut while an epoch begins.
    CutWithin {
        syncs: u64,
        luck: u64,
    },
    /// A bit flips, in a segment that is in use, and in a copy that is opened.
    Flip {
        file: u16,
        bit: u32,
    },
    /// Appends until the disk is full.
    Full {
        len: u16,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (1..5_u8, 0..4000_u16).prop_map(|(count, len)| Op::Append { count, len }),
        4 => Just(Op::Sync),
        4 => Just(Op::Commit),
        2 => (0..4_u8).prop_map(|back| Op::Begin { back }),
        2 => (0..=100_u8).prop_map(|share| Op::Trim { share }),
        2 => Just(Op::Maintain),
        1 => Just(Op::Close),
        2 => Just(Op::Kill),
        3 => any::<u64>().prop_map(|luck| Op::Cut { luck }),
        3 => (any::<u64>(), 1..40_u64, any::<u64>())
            .prop_map(|(luck, syncs, again)| Op::CutTwice { luck, syncs, again }),
        2 => (1..12_u64, any::<u64>()).prop_map(|(syncs, luck)| Op::CutWithin { syncs, luck }),
        3 => (any::<u16>(), any::<u32>()).prop_map(|(file, bit)| Op::Flip { file, bit }),
        1 => (0..4000_u16).prop_map(|len| Op::Full { len }),
    ]
}

/// An epoch as it was written: its batches' offsets, and the records from its start on.
#[derive(Debug, Clone)]
struct Written {
    number: u64,
    start: u64,
    records: Vec<Vec<u8>>,
    batches: Vec<Range<u64>>,
}

impl Written {
    fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }
}

#[derive(Default)]
struct Model {
    epochs: Vec<Written>,
    committed: u64,
    first: u64,
    durable: u64,
    next_number: u64,
}

/// A run of the log's holder.
#[derive(Debug, Clone, Copy)]
struct Run {
    boot: u8,
    /// The number of openings before it.
    opening: u32,
    sync: SyncPolicy,
}

impl Run {
    fn next(self) -> Self {
        Self { opening: self.opening + 1, ..self }
    }

    fn after_boot(self) -> Self {
        Self { boot: self.boot + 1, ..self.next() }
    }
}

struct Site {
    root: tempfile::TempDir,
    disk: Arc<Mutex<Disk>>,
    run: Run,
    log: ExclusiveLog,
    found: ExclusiveContents,
}

fn exclusive_options(journal: JournalOptions, sync: SyncPolicy) -> ExclusiveOptions {
    let owner = "simulation".to_owned();
    ExclusiveOptions { owner, sync, segment_bytes: Some(32 << 10), journal }
}

impl Site {
    fn open(root: tempfile::TempDir, run: Run, cut_at: Option<(u64, u64)>) -> Self {
        Self::try_open(root, run, cut_at).unwrap()
    }

    /// Opens the log; a damaged one may be refused.
    fn try_open(
        root: tempfile::TempDir,
        run: Run,
        cut_at: Option<(u64, u64)>,
    ) -> Result<Self, JournalError> {
        let disk = Arc::new(Mutex::new(Disk::cut_at(cut_at)));
        let (base, fresh) = (root.path().join("j"), !root.path().join("j").exists());
        if !fresh {
            disk.lock().unwrap().note_all(&base);
        }
        let folder = base.join("x");
        let journal = options(&disk, &base, run.boot, run.opening);
        let (log, found) = ExclusiveLog::open(&folder, exclusive_options(journal, run.sync))?;
        if fresh {
            // Creating a journal syncs these without the hook.
            let mut disk = disk.lock().unwrap();
            disk.note(&folder.join("log"));
            disk.note(&folder.join("log/journal.hj"));
        }
        Ok(Self { root, disk, run, log, found })
    }

    fn image(&self, luck: u64) -> Image {
        self.disk.lock().unwrap().cut(&self.root.path().join("j"), luck)
    }

    fn take_image(&self) -> Option<Image> {
        let mut disk = self.disk.lock().unwrap();
        disk.cut_at = None;
        disk.image.take()
    }

    fn begin(&self, model: &mut Model, start: u64) {
        model.next_number += 1;
        let number = model.next_number;
        self.log.begin(number, start, format!("header {number}").as_bytes()).unwrap();
        model.epochs.push(Written { number, start, records: Vec::new(), batches: Vec::new() });
        model.durable = start;
    }

    /// What is on the disk after a cut, against what was written.
    fn check_found(&self, model: &mut Model, cut: bool) {
        let Some(last) = model.epochs.last_mut() else { return };
        let newest = self.found.epochs.last().expect("an epoch that began is there");
        assert_eq!((newest.number, newest.start), (last.number, last.start));
        let whole = |end: u64| end == last.start || last.batches.iter().any(|b| b.end == end);
        assert!(whole(newest.end), "{} splits a batch of {:?}", newest.end, last.batches);
        assert!(newest.end >= model.durable, "{} of durable {}", newest.end, model.durable);
        assert!(cut || newest.end == last.end(), "a kill lost records");
        assert!(self.found.durable <= newest.end, "{:?}", self.found);
        let left = usize::try_from(newest.end - last.start).unwrap();
        last.records.truncate(left);
        last.batches.retain(|batch| batch.end <= newest.end);
        model.durable = newest.end;
        // The marks reach the disk when the log is closed, or when the kernel likes.
        assert!(self.found.committed <= model.committed, "{:?}", self.found);
        assert!(cut || self.found.committed == model.committed, "{:?}", self.found);
        assert!(cut || self.found.first >= model.first, "{:?} of {}", self.found, model.first);
        // The owner counts on from what it has found.
        (model.first, model.committed) = (self.found.first, self.found.committed);
    }

    /// Reads everything that counts.
    fn check(&self, model: &Model) {
        for (at, epoch) in model.epochs.iter().enumerate() {
            let end = model.epochs[at + 1..].iter().map(|e| e.start).min().unwrap_or(u64::MAX);
            let range = epoch.start.max(model.first)..epoch.end().min(end);
            if range.is_empty() {
                continue;
            }
            let mut next = range.start;
            self.log
                .scan(epoch.number, range.clone(), &mut |offset, record| {
                    assert_eq!(offset, next);
                    let expected = &epoch.records[(offset - epoch.start) as usize];
                    assert!(
                        record.as_ref() == &expected[..],
                        "record {offset} of {}",
                        epoch.number
                    );
                    next += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(next, range.end);
        }
    }

    fn reopen(self, model: &mut Model, cut: Option<Image>, again: Option<(u64, u64)>) -> Self {
        let was_cut = cut.is_some();
        let run = if was_cut { self.run.after_boot() } else { self.run.next() };
        let root = match cut {
            Some((image, _)) => {
                drop(self);
                image
            }
            None => {
                let Self { root, log, .. } = self;
                drop(log);
                root
            }
        };
        let mut site = Self::open(root, run, again);
        let cut = site.disk.lock().unwrap().image.take();
        if let Some((image, _)) = cut {
            drop(site);
            site = Self::open(image, run.after_boot(), None);
        }
        site.check_found(model, was_cut);
        site.check(model);
        site.begin_or_cut(model)
    }

    fn apply(self, model: &mut Model, op: &Op) -> Self {
        match op {
            Op::Append { count, len } => self.append(model, *count, *len).unwrap(),
            Op::Sync => {
                self.log.on_synced(Box::new(|synced| synced.unwrap()));
                model.durable = model.epochs.last().map_or(0, Written::end);
                assert_eq!(self.log.durable(), model.durable);
            }
            Op::Commit => {
                // Under *disk*, only what is durable is acknowledged.
                let stored = model.epochs.last().map_or(0, Written::end);
                let on_disk = self.run.sync == SyncPolicy::OnRequest;
                let end = if on_disk { model.durable } else { stored };
                model.committed = model.committed.max(end);
                self.log.save(model.first, model.committed).unwrap();
            }
            Op::Begin { back } => {
                let end = model.epochs.last().map_or(0, Written::end);
                let start = end.saturating_sub((*back).into()).max(model.committed);
                let start = if *back == 3 { end.max(model.committed) + 7 } else { start };
                self.begin(model, start);
            }
            Op::Trim { share } => self.trim(model, *share),
            Op::Maintain => {
                self.log.maintain();
                // It has the background's sync.
                model.durable = model.durable.max(self.log.durable());
            }
            Op::Flip { file, bit } => self.flip(model, *file, *bit),
            Op::Full { len } => self.get_full(model, *len),
            Op::Close => {
                self.log.close().unwrap();
                model.durable = model.epochs.last().map_or(0, Written::end);
                let had = !model.epochs.is_empty();
                let site = self.reopen(model, None, None);
                assert!(!had || site.found.ended == RunEnd::Closed, "{:?}", site.found.ended);
                return site;
            }
            Op::Kill => return self.reopen(model, None, None),
            Op::Cut { luck } => {
                let image = self.image(*luck);
                return self.reopen(model, Some(image), None);
            }
            Op::CutTwice { luck, syncs, again } => {
                let image = self.image(*luck);
                return self.reopen(model, Some(image), Some((*syncs, *again)));
            }
            Op::CutWithin { syncs, luck } => return self.cut_within(model, *syncs, *luck),
        }
        self
    }

    fn append(&self, model: &mut Model, count: u8, len: u16) -> Result<(), AppendError> {
        let Some(epoch) = model.epochs.last_mut() else { return Ok(()) };
        let first = epoch.end();
        let record = |at: u64| vec![(first + at) as u8; usize::from(len) / 2 + at as usize];
        let records: Vec<_> = (0..u64::from(count)).map(record).collect();
        let slices: Vec<_> = records.iter().map(Vec::as_slice).collect();
        self.log.append(first, &slices)?;
        epoch.batches.push(first..first + records.len() as u64);
        epoch.records.extend(records);
        Ok(())
    }

    /// Reads everything, of which any record may be damaged: none is wrong, and returns the number
    /// of those that could not be read.
    fn check_damaged(&self, model: &Model) -> u64 {
        let mut lost = 0;
        for epoch in &model.epochs {
            for offset in epoch.start.max(model.first)..epoch.end() {
                let mut found = None;
                let range = offset..offset + 1;
                let scanned = self.log.scan(epoch.number, range, &mut |at, record| {
                    found = Some((at, record.as_ref().to_vec()));
                    ControlFlow::Continue(())
                });
                lost += u64::from(scanned.is_err() || found.is_none());
                let expected = &epoch.records[(offset - epoch.start) as usize];
                if let Some((at, record)) = found {
                    assert!(at == offset && record == *expected, "{at} of {}", epoch.number);
                }
            }
        }
        lost
    }

    /// Flips a bit of a segment in use, and of any file of a copy that is opened then.
    fn flip(&self, model: &Model, file: u16, bit: u32) {
        let base = self.root.path().join("j");
        let all = files(&base);
        let segments: Vec<_> = all.iter().filter(|path| is_segment(path)).collect();
        if !segments.is_empty() {
            let segment = segments[usize::from(file) % segments.len()];
            flip_bit(segment, bit);
            self.check_damaged(model);
            flip_bit(segment, bit);
            self.check(model);
        }
        let image = new_folder();
        copy(&base, &image.path().join("j"));
        let of_image = &all[usize::from(file) % all.len()];
        let damaged = image.path().join("j").join(of_image.strip_prefix(&base).unwrap());
        flip_bit(&damaged, bit);
        // Damage may make it unreadable as a whole; what is read is right.
        let Ok(site) = Self::try_open(image, self.run.after_boot(), None) else { return };
        for found in &site.found.epochs {
            let known = model.epochs.iter().find(|epoch| epoch.number == found.number);
            let known = known.map(|epoch| (epoch.start, epoch.end()));
            let whole = known.is_some_and(|(start, end)| found.start == start && found.end <= end);
            assert!(whole, "{found:?} is {known:?}, damaged: {}", damaged.display());
        }
        assert!(site.found.committed <= model.committed, "{:?}", site.found);
        site.check_damaged(model);
    }

    /// Appends until the disk is full, and when there is room again.
    fn get_full(&self, model: &mut Model, len: u16) {
        let filler = self.root.path().join("filler");
        let disk = rustix::fs::statvfs(self.root.path()).unwrap();
        if model.epochs.is_empty() || disk.f_blocks * disk.f_frsize > DISK_BYTES {
            // Not a disk of this test's own.
            return;
        }
        let file = std::fs::File::create(&filler).unwrap();
        let free = disk.f_bavail * disk.f_frsize;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, free).unwrap();
        drop(file);
        let refused = (0..200).find_map(|_| self.append(model, 3, len.max(200)).err());
        let refused = refused.expect("a segment has no room for 200 batches");
        let full = matches!(refused, AppendError::Journal(JournalError::NoRoom { .. }));
        assert!(full, "{refused}");
        self.check(model);
        std::fs::remove_file(&filler).unwrap();
        self.append(model, 3, len).unwrap();
    }

    fn trim(&self, model: &mut Model, share: u8) {
        let first = model.first.max(model.committed * u64::from(share) / 100);
        self.log.save(first, model.committed).unwrap();
        model.first = first;
        for (at, epoch) in model.epochs.iter().enumerate() {
            let is_newest = at + 1 == model.epochs.len();
            let end = model.epochs[at + 1..].iter().map(|e| e.start).min();
            let stays = epoch.end().min(end.unwrap_or(u64::MAX)) > first || is_newest;
            self.log.drop_below(epoch.number, stays.then_some(first)).unwrap();
        }
    }

    /// Cuts the power while an epoch begins, which then may be on the disk, or not.
    fn cut_within(self, model: &mut Model, syncs: u64, luck: u64) -> Self {
        {
            let mut disk = self.disk.lock().unwrap();
            disk.cut_at = Some((disk.syncs + syncs, luck));
        }
        self.begin_or_cut(model)
    }

    /// Begins an epoch behind what counts, during which the power may be cut.
    fn begin_or_cut(self, model: &mut Model) -> Self {
        let before = model.epochs.clone();
        let (durable, number) = (model.durable, model.next_number);
        let start = before.last().map_or(0, Written::end).max(model.committed);
        self.begin(model, start);
        let Some((image, _)) = self.take_image() else { return self };
        let run = self.run.after_boot();
        drop(self);
        let site = Self::open(image, run, None);
        let newest = site.found.epochs.last().map(|epoch| epoch.number);
        if newest == before.last().map(|epoch| epoch.number) {
            (model.epochs, model.durable, model.next_number) = (before, durable, number);
        }
        site.check_found(model, true);
        site.check(model);
        let start = model.epochs.last().map_or(0, Written::end).max(model.committed);
        site.begin(model, start);
        site
    }
}

/// All files in and below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|name| name == "seg")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Flips a bit in a file; of segments in the first half, where the records of a short log are.
fn flip_bit(path: &Path, bit: u32) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    if len == 0 {
        return;
    }
    let len = if is_segment(path) { len.div_ceil(2) } else { len };
    let (at, mut byte) = (u64::from(bit / 8) % len, [0]);
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, at).unwrap();
}

fn run(ops: &[Op], sync: SyncPolicy) {
    let mut model = Model::default();
    let mut site = Site::open(new_folder(), Run { boot: 1, opening: 0, sync }, None);
    site.begin(&mut model, 0);
    for op in ops {
        site = site.apply(&mut model, op);
        if !matches!(op, Op::Append { .. }) {
            site.check(&model);
        }
    }
    site.check(&model);
}

#[test]
fn batches_are_whole_after_power_loss_and_damage() {
    let is_done = on_tmpfs("64m", |folder| {
        set_folders(folder);
        simulate();
    });
    if !is_done {
        // Without full disks.
        simulate();
    }
}

fn simulate() {
    let settings = ProptestConfig {
        cases: std::env::var("HELIO_POWER_CASES").map_or(60, |c| c.parse().unwrap()),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    };
    let (tried, survived) = (Cell::new(0), Cell::new(0));
    let is_cut = |op: &&Op| {
        use Op::{Cut, CutTwice, CutWithin, Flip, Kill};
        matches!(op, Kill | Cut { .. } | CutTwice { .. } | CutWithin { .. } | Flip { .. })
    };
    let sync = prop_oneof![Just(SyncPolicy::OnRequest), Just(SyncPolicy::Background)];
    let case = (prop::collection::vec(op(), 1..50), sync);
    let outcome = TestRunner::new(settings).run(&case, |(ops, sync)| {
        let cuts = ops.iter().filter(is_cut).count() as u64;
        tried.set(tried.get() + cuts);
        run(&ops, sync);
        survived.set(survived.get() + cuts);
        Ok(())
    });
    if let Err(failed) = outcome {
        panic!("{failed}");
    }
    let (tried, survived) = (tried.get(), survived.get());
    Storm { tried, survived, ..Storm::default() }.report("power cuts and damage of exclusive logs");
}

fn record(offset: u64, number: u64) -> Vec<u8> {
    let mut out = format!("{number} {offset} ").into_bytes();
    out.resize(out.len() + (offset * 37 % 900) as usize, offset as u8);
    out
}

fn open(dir: &Path, sync: SyncPolicy) -> (ExclusiveLog, ExclusiveContents) {
    let options = exclusive_options(JournalOptions::default(), sync);
    ExclusiveLog::open(&dir.join("x"), options).unwrap()
}

/// Not a test by itself: a process that holds the log, begins an epoch, and appends batches until
/// it is killed. It prints what it may acknowledge: stored, and durable ends.
#[test]
fn child() {
    let Ok(dir) = std::env::var("HELIO_TEST_DIR") else { return };
    let dir = Path::new(&dir);
    if std::env::var_os("HELIO_TEST_FOREIGN").is_some() {
        let _journal = Journal::open(dir, JournalOptions::default()).unwrap();
        println!("\n@@open");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let (log, found) = open(dir, SyncPolicy::OnRequest);
    let number = found.epochs.last().map_or(1, |epoch| epoch.number + 1);
    let start = found.epochs.last().map_or(0, |epoch| epoch.end).max(found.committed);
    log.begin(number, start, b"storm").unwrap();
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@@B {number} {start}").unwrap();
    let mut first = start;
    loop {
        let count = first % 7 + 1;
        let records: Vec<_> = (first..first + count).map(|at| record(at, number)).collect();
        let slices: Vec<_> = records.iter().map(Vec::as_slice).collect();
        log.append(first, &slices).unwrap();
        first += count;
        writeln!(out, "@@S {number} {first}").unwrap();
        if first % 5 == 0 {
            log.save(found.first, first).unwrap();
            writeln!(out, "@@C {number} {first}").unwrap();
        }
        if first % 300 < 7 {
            log.on_synced(Box::new(|synced| synced.unwrap()));
        }
    }
}

fn spawn(dir: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args([&child_test(module_path!()), "--exact", "--nocapture", "--test-threads=1"])
        .env("HELIO_TEST_DIR", dir)
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

/// An epoch of the storm: its number, start, and what was printed last.
#[derive(Debug, Default, Clone, Copy)]
struct Printed {
    number: u64,
    start: u64,
    stored: u64,
    committed: u64,
}

fn take(line: &str, printed: &mut Printed) {
    let Some(rest) = line.strip_prefix("@@") else { return };
    let words: Vec<_> = rest.split(' ').collect();
    let [kind, number, end] = words[..] else { return };
    let (Ok(number), Ok(end)) = (number.parse(), end.parse()) else { return };
    printed.number = number;
    match kind {
        "B" => (printed.start, printed.stored) = (end, end),
        "S" => printed.stored = end,
        "C" => printed.committed = end,
        _ => {}
    }
}

#[test]
fn a_killed_owner_s_batches_are_whole_and_all_there() {
    let seconds = std::env::var("HELIO_STORM_SECONDS").map_or(60, |s| s.parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds);
    let folder = tempfile::tempdir().unwrap();
    let (mut kills, mut all) = (0_u64, Vec::new());
    while Instant::now() < until {
        let mut child = spawn(folder.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut printed = Printed::default();
        // As many lines as luck has it, from none to thousands.
        let wanted = kills * 7919 % 3000;
        let mut lines = lines.map_while(Result::ok);
        let mut seen = 0;
        while printed.number == 0 || seen < wanted {
            let Some(line) = lines.next() else { break };
            take(&line, &mut printed);
            seen += 1;
        }
        child.kill().unwrap();
        lines.for_each(|line| take(&line, &mut printed));
        child.wait().unwrap();
        kills += 1;
        all.push(printed);
        check_storm(folder.path(), &all);
    }
    Storm { tried: kills, survived: kills, ..Storm::default() }.report("killed owners");
}

fn check_storm(dir: &Path, all: &[Printed]) {
    let (log, found) = open(dir, SyncPolicy::OnRequest);
    assert_eq!(found.ended, RunEnd::Killed);
    let last = all.last().unwrap();
    let newest = found.epochs.last().unwrap();
    assert_eq!((newest.number, newest.start), (last.number, last.start));
    assert!(newest.end >= last.stored, "{newest:?} of {last:?}");
    assert!(found.committed >= last.committed, "{found:?} of {last:?}");
    let mut next = newest.start;
    log.scan(newest.number, newest.start..newest.end, &mut |offset, bytes| {
        assert_eq!(offset, next);
        assert!(bytes.as_ref() == &record(offset, newest.number)[..], "record {offset}");
        next += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(next, newest.end);
    // Whole batches: each one's length follows from its first offset.
    let mut end = newest.start;
    while end < newest.end {
        end += end % 7 + 1;
    }
    assert_eq!(end, newest.end, "a batch is split");
}

#[test]
fn a_stopped_foreign_process_holds_no_lock_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let _journal = Journal::open(folder.path(), JournalOptions::default()).unwrap();
    let foreign = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([&child_test(module_path!()), "--exact", "--nocapture"]);
        command.env("HELIO_TEST_DIR", folder.path()).env("HELIO_TEST_FOREIGN", "1");
        command.stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().unwrap()
    };
    let mut child = foreign();
    let out = BufReader::new(child.stdout.take().unwrap());
    assert!(out.lines().map_while(Result::ok).any(|line| line == "@@open"));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let exclusive = folder.path().join("exclusive");
    let open = || {
        let options = exclusive_options(JournalOptions::default(), SyncPolicy::OnRequest);
        ExclusiveLog::open(&exclusive.join("x"), options)
    };
    for number in 1..4 {
        let (log, _) = open().unwrap();
        log.begin(number, 0, b"").unwrap();
        log.append(0, &[b"one"]).unwrap();
        let held = open().map(drop).unwrap_err();
        let own = std::process::id();
        assert!(
            matches!(&held, JournalError::Held { pid, owner, .. }
            if *pid == own && owner == "simulation"),
            "{held}"
        );
        let plain = Journal::open(&exclusive.join("x/log"), JournalOptions::default());
        assert!(matches!(plain.map(drop), Err(JournalError::Exclusive { .. })));
        log.close().unwrap();
        log.release();
        let late = log.append(1, &[b"late"]).unwrap_err();
        assert!(matches!(late, AppendError::Journal(JournalError::Released { .. })), "{late}");
    }
    kill_process(pid, Signal::KILL).unwrap();
    child.wait().unwrap();
}
