//! Search: the records of an archive that match a predicate, in order of time.
//!
//! Constraints. It holds no lock, and works while the archive is filled. Where the head
//! of a block excludes it, nothing else of it is read; a few blocks are held at a time.
//!
//! Operation. The segments' indexes give the blocks that can match by level and time, in order of
//! their first times. Threads take them in turn: head, filter, body, predicate. What matches is
//! merged by time: a record is handed out when no block to come can have an earlier one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use helio_core::Tai;
use helio_logging::{Level, Record, Selector};

use crate::block::{ArchivedGap, BlockEntry, Body, Head};
use crate::error::{ArchiveError, AtPath};
use crate::files;
use crate::removed::Removed;
use crate::segment;

/// More threads than that read a disk no faster.
const MAX_THREADS: usize = 4;
/// The blocks that each thread reads ahead.
const MAX_BLOCKS_AHEAD: usize = 4;
/// The records of a block that are decoded at once.
const RECORD_BATCH: usize = 256;
/// The most held blocks with overlapping times, of at most a megabyte each. Only wrong clocks
/// exceed it; records are then returned out of order.
const MAX_HELD_BLOCKS: usize = 256;
/// The most open files of a thread.
const MAX_FILES: usize = 32;
/// The attempts to list a lane while its segments are closed or removed.
const MAX_LISTING_ATTEMPTS: usize = 100;

/// A result of a search.
#[derive(Debug, Clone)]
pub enum SearchItem {
    /// A record.
    Record(Box<Record>),
    /// Records of a searched lane that the archive never received.
    Gap(Level, ArchivedGap),
    /// A matching record with a malformed body.
    Malformed {
        /// Its producer.
        producer: String,
        /// The record's sequence.
        sequence: u64,
    },
    /// A part of the archive that cannot be read.
    Damage(Damage),
}

/// A part of an archive that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The offset of the block.
    pub offset: u64,
    /// The number of records.
    pub records: u32,
    /// What is wrong.
    pub what: String,
}

/// The counts of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The matching records.
    pub records: u64,
    /// Gaps in the lanes and times that were searched.
    pub gaps: u64,
    /// The blocks that cannot be read.
    pub damaged: u64,
    /// The blocks that can match by level and time.
    pub blocks: u64,
    /// The blocks whose records were tested.
    pub opened: u64,
}

/// A block to be searched.
#[derive(Debug, Clone)]
struct Job {
    lane: Level,
    segment: Arc<Segment>,
    entry: BlockEntry,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    /// An open segment's file is kept open, as closing the segment replaces it.
    file: Option<File>,
}

/// Whether a search returns records or only counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchMode {
    Records,
    Counts,
}

/// The matches of a block.
#[derive(Debug, Default)]
struct BlockMatches {
    /// The indices of matching records, sorted by time.
    found: Vec<(Tai, u32)>,
    body: Body,
    /// The first of them as records.
    ahead: VecDeque<(Tai, SearchItem)>,
    /// Gaps and damage, in order of time.
    told: VecDeque<(Tai, SearchItem)>,
    count: u64,
    opened: bool,
    damage: Option<String>,
}

/// A search. Its results are sorted by time.
///
/// It is an iterator; [`count`](Self::count) counts without making records.
#[derive(Debug)]
pub struct Search {
    jobs: Arc<Vec<Job>>,
    selector: Arc<Selector>,
    removed: Vec<(Level, Removed)>,
    counts: Counts,
    work: Option<Work>,
    /// The next block to be received.
    next: usize,
    held: HashMap<usize, BlockMatches>,
    heap: BinaryHeap<Reverse<(Tai, usize)>>,
}

#[derive(Debug)]
struct Work {
    done: Vec<Receiver<BlockMatches>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.done.clear();
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

impl Search {
    /// Finds the blocks of an archive that can have matching records.
    ///
    /// # Errors
    /// [`ArchiveError::Missing`] if there is no archive, [`ArchiveError::File`] and
    /// [`ArchiveError::Format`].
    pub fn open(folder: &Path, selector: Selector) -> Result<Self, ArchiveError> {
        if !folder.join("lock").exists() {
            return Err(ArchiveError::Missing(folder.to_owned()));
        }
        let (mut jobs, mut removed) = (Vec::new(), Vec::new());
        let mut lanes: Vec<_> = selector.levels().map(helio_logging::Lanes::lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        for lane in lanes {
            jobs.extend(list(folder, lane, &selector)?);
            let gone = Removed::read(&files::lane(folder, lane))?;
            if gone.segments > 0 && gone.until >= *selector.times().start() {
                removed.push((lane, gone));
            }
        }
        jobs.sort_by_key(|job| job.entry.first);
        let counts = Counts { blocks: jobs.len() as u64, ..Counts::default() };
        Ok(Self {
            jobs: Arc::new(jobs),
            selector: Arc::new(selector),
            removed,
            counts,
            work: None,
            next: 0,
            held: HashMap::new(),
            heap: BinaryHeap::new(),
        })
    }

    /// The totals that retention has removed of the searched lanes and times.
    #[must_use]
    pub fn removed(&self) -> &[(Level, Removed)] {
        &self.removed
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Counts the matching records.
    #[must_use]
    pub fn count(mut self) -> Counts {
        self.start(SearchMode::Counts);
        while self.receive() {
            self.held.clear();
            self.heap.clear();
        }
        self.counts
    }

    fn start(&mut self, want: SearchMode) {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = cores.min(MAX_THREADS).min(self.jobs.len().max(1));
        let stop = Arc::new(AtomicBool::new(false));
        let mut work = Work { done: Vec::new(), threads: Vec::new(), stop };
        for place in 0..threads {
            let (send, done) = sync_channel(MAX_BLOCKS_AHEAD);
            let mut worker = Worker {
                jobs: Arc::clone(&self.jobs),
                selector: Arc::clone(&self.selector),
                stop: Arc::clone(&work.stop),
                want,
                files: HashMap::new(),
            };
            work.done.push(done);
            let turns = (place..self.jobs.len()).step_by(threads);
            work.threads.push(std::thread::spawn(move || worker.run(turns, &send)));
        }
        self.work = Some(work);
    }

    /// Receives the next block's matches; false if there are no more blocks.
    fn receive(&mut self) -> bool {
        let Some(work) = &self.work else { return false };
        let place = self.next;
        if place >= self.jobs.len() {
            return false;
        }
        self.next += 1;
        let Some(mut done) = work.done.get(place % work.done.len()).and_then(|w| w.recv().ok())
        else {
            // A thread ends early only if it was stopped.
            return false;
        };
        let job = &self.jobs[place];
        self.counts.records += done.count;
        self.counts.opened += u64::from(done.opened);
        self.counts.gaps += done.told.len() as u64;
        if let Some(what) = done.damage.take() {
            self.counts.damaged += 1;
            let (path, offset) = (job.segment.path.clone(), job.entry.offset);
            let damage = Damage { path, offset, records: job.entry.records, what };
            done.told.push_front((job.entry.first, SearchItem::Damage(damage)));
        }
        if let Some(first) = done.first() {
            self.heap.push(Reverse((first, place)));
            self.held.insert(place, done);
        }
        true
    }

    /// Whether the earliest held result precedes all results to come.
    fn is_ready(&self) -> bool {
        let Some(Reverse((time, _))) = self.heap.peek() else { return false };
        let to_come = self.jobs.get(self.next).map(|job| job.entry.first);
        self.held.len() > MAX_HELD_BLOCKS || to_come.is_none_or(|first| *time <= first)
    }
}

impl Iterator for Search {
    type Item = SearchItem;

    fn next(&mut self) -> Option<SearchItem> {
        if self.work.is_none() {
            self.start(SearchMode::Records);
        }
        while !self.is_ready() && self.receive() {}
        let Reverse((_, place)) = self.heap.pop()?;
        let done = self.held.get_mut(&place)?;
        let found = done.pop();
        match done.first() {
            Some(first) => self.heap.push(Reverse((first, place))),
            None => _ = self.held.remove(&place),
        }
        found.or_else(|| self.next())
    }
}

impl BlockMatches {
    /// The time of the next result.
    fn first(&self) -> Option<Tai> {
        let told = self.told.front().map(|(time, _)| *time);
        match (self.first_record(), told) {
            (Some(record), Some(told)) => Some(record.min(told)),
            (record, told) => record.or(told),
        }
    }

    fn first_record(&self) -> Option<Tai> {
        let ahead = self.ahead.front().map(|(time, _)| *time);
        ahead.or_else(|| self.found.last().map(|(time, _)| *time))
    }

    fn pop(&mut self) -> Option<SearchItem> {
        let record = self.first_record();
        if let Some((time, _)) = self.told.front()
            && record.is_none_or(|record| *time < record)
        {
            return self.told.pop_front().map(|(_, found)| found);
        }
        if self.ahead.is_empty() {
            self.refill();
        }
        self.ahead.pop_front().map(|(_, found)| found)
    }

    /// Decodes the next records.
    fn refill(&mut self) {
        let rest = self.found.len().saturating_sub(RECORD_BATCH);
        let batch: Vec<_> = self.found.drain(rest..).rev().collect();
        let Some(packet) = self.body.packet() else { return };
        let Some(sequences) = self.body.sequences(&packet) else { return };
        for (time, place) in batch {
            let Some(record) = packet.record(place as usize) else { continue };
            let sequence = sequences.get(place as usize).copied().unwrap_or(0);
            let found = match record.to_record() {
                Ok(record) => SearchItem::Record(Box::new(Record { sequence, ..record })),
                Err(_) => {
                    SearchItem::Malformed { producer: record.producer().to_owned(), sequence }
                }
            };
            self.ahead.push_back((time, found));
        }
        if self.found.is_empty() {
            self.body = Body::default();
        }
    }
}

/// The blocks of a lane that can match by level and time.
fn list(folder: &Path, lane: Level, selector: &Selector) -> Result<Vec<Job>, ArchiveError> {
    let path = files::lane(folder, lane);
    let mut failed = None;
    for _ in 0..MAX_LISTING_ATTEMPTS {
        match list_once(&path, lane, selector) {
            Err(ArchiveError::File { path, source })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                // The file was closed or removed since the folder was read.
                failed = Some(ArchiveError::File { path, source });
            }
            listed => return listed,
        }
    }
    failed.map_or(Ok(Vec::new()), Err)
}

fn list_once(path: &Path, lane: Level, selector: &Selector) -> Result<Vec<Job>, ArchiveError> {
    let mut jobs = Vec::new();
    for (number, there) in files::segments(path)? {
        let file_path = match (there.closed, there.open) {
            (true, _) => files::closed(path, number),
            (false, true) => files::open(path, number),
            (false, false) => continue,
        };
        let file = File::open(&file_path).at(&file_path)?;
        let index = segment::read(&file, &file_path)?;
        let file = Some(file).filter(|_| !there.closed);
        let segment = Arc::new(Segment { path: file_path, file });
        let can_match = |entry: &BlockEntry| selector.may_match(entry) || has_gaps(entry, selector);
        let entries = index.entries.into_iter().filter(can_match);
        jobs.extend(entries.map(|entry| Job { lane, segment: Arc::clone(&segment), entry }));
    }
    Ok(jobs)
}

/// Whether a block has gaps in the searched times.
fn has_gaps(entry: &BlockEntry, selector: &Selector) -> bool {
    let times = selector.times();
    entry.gaps > 0 && entry.first <= *times.end() && *times.start() <= entry.last
}

struct Worker {
    jobs: Arc<Vec<Job>>,
    selector: Arc<Selector>,
    stop: Arc<AtomicBool>,
    want: SearchMode,
    files: HashMap<PathBuf, File>,
}

impl Worker {
    fn run(&mut self, turns: impl Iterator<Item = usize>, send: &SyncSender<BlockMatches>) {
        let jobs = Arc::clone(&self.jobs);
        for place in turns {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let mut done = BlockMatches::default();
            if let Err(error) = self.look(&jobs[place], &mut done) {
                done.damage = Some(error.to_string());
            }
            if send.send(done).is_err() {
                return;
            }
        }
    }

    fn look(&mut self, job: &Job, done: &mut BlockMatches) -> io::Result<()> {
        let selector = Arc::clone(&self.selector);
        let want = self.want;
        let file = self.file(&job.segment)?;
        let damaged = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let head = Head::read(file, job.entry.offset, job.entry.end())?;
        let head = head.ok_or_else(|| damaged("the head of a block is damaged"))?;
        if job.entry.gaps > 0 {
            let times = selector.times();
            let gaps = head.gaps().into_iter().filter(|gap| times.contains(&gap.time));
            done.told.extend(gaps.map(|gap| (gap.time, SearchItem::Gap(job.lane, gap))));
            done.told.make_contiguous().sort_by_key(|(time, _)| *time);
        }
        if job.entry.records == 0 || !selector.may_match(&head) {
            return Ok(());
        }
        done.opened = true;
        let wrong = || damaged("a block is damaged; look at the disk");
        let body = head.body(file)?.ok_or_else(wrong)?;
        {
            let packet = body.packet().ok_or_else(wrong)?;
            let selected = selector.select(&packet);
            if want == SearchMode::Counts {
                done.count = selected.count() as u64;
                return Ok(());
            }
            // A record's number in the archive's packets is its index.
            done.found = selected.map(|record| (record.time(), record.sequence() as u32)).collect();
        }
        done.count = done.found.len() as u64;
        if done.found.is_empty() {
            return Ok(());
        }
        // Sorted in descending order: the next result is the last element.
        done.found.sort_unstable_by_key(|found| Reverse(*found));
        done.body = body;
        if done.found.len() <= RECORD_BATCH {
            done.refill();
        }
        Ok(())
    }

    fn file<'a>(&'a mut self, segment: &'a Segment) -> io::Result<&'a File> {
        if let Some(file) = &segment.file {
            return Ok(file);
        }
        if !self.files.contains_key(&segment.path) {
            if self.files.len() == MAX_FILES {
                self.files.clear();
            }
            self.files.insert(segment.path.clone(), File::open(&segment.path)?);
        }
        Ok(&self.files[&segment.path])
    }
}
