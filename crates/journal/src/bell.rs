//! Bells: one kernel wait for all partitions that a thread reads.
//!
//! Format: a bell owns one of the slots of `doorbells`.
//!
//! Operation: a reader arms a partition with its thread's bell (see `waiters`). A writer rings by
//! incrementing the slot's count, and calls the kernel only if the owner sleeps. A bell stores the
//! last count that it has answered, so a ring between two waits is never lost. A writer that is
//! killed between its commit and the end of its ring leaves sleepers behind. The journal's
//! maintenance wakes them within [`SWEEP_INTERVAL`].

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::JournalError;
use crate::doorbells::{AWAKE, ON_FUTEX, ON_PIPE, SLOTS};
use crate::env::Env;
use crate::futex;
use crate::partition::Partition;
use crate::pipes;
use crate::waiters::SharedWord;
use crate::wake_hints::{self, Hint, WakeTargets};

/// The longest time until a reader wakes whose writer was killed before it rang.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// Poll intervals of a reader without write access: the first and the longest.
const READ_ONLY_POLL_INTERVALS: (Duration, Duration) =
    (Duration::from_micros(200), Duration::from_millis(5));

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The bell was rung since the last wait: poll the readers.
    Rung,
    /// The timeout passed.
    TimedOut,
}

/// A wake-up primitive, one per waiting thread. Readers are armed with it; any thread may ring it.
#[derive(Clone)]
pub struct Bell {
    pub(crate) inner: Arc<BellInner>,
}

pub(crate) struct BellInner {
    env: Arc<Env>,
    /// The slot in the journal's file; `None` without write access.
    slot: Option<usize>,
    /// The last count of rings that was answered.
    answered: AtomicU32,
    /// Replaces the slot's word if there is no slot.
    own: AtomicU32,
    /// Whether this process has rung since the count was last read; further rings are not counted.
    poked: Flag,
    /// Whether a ring without a hint came since the last [`Bell::rung_for`].
    unhinted: AtomicBool,
    /// The slot's pipe, opened on first use; `None` inside if that failed.
    pipe: OnceLock<Option<OwnedFd>>,
    watched: Mutex<HashMap<u64, ArmedTail>>,
}

/// The tail that a reader saw when it armed its bell.
struct ArmedTail {
    reader: Weak<u64>,
    partition: Weak<Partition>,
    tail: u64,
}

/// A word of this process's own memory.
#[derive(Default)]
struct Flag(AtomicU64);

impl SharedWord for &Flag {
    fn load(&self) -> u64 {
        self.0.load(SeqCst)
    }
    fn fetch_or(&self, bits: u64) -> u64 {
        self.0.fetch_or(bits, SeqCst)
    }
    fn take(&self) -> u64 {
        self.0.swap(0, SeqCst)
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").field("slot", &self.inner.slot).finish_non_exhaustive()
    }
}

impl Bell {
    pub(crate) fn new(env: &Arc<Env>) -> Result<Self, JournalError> {
        let slot = if env.writable() { Some(claim(env)?) } else { None };
        let answered = AtomicU32::new(slot.map_or(0, |s| env.doorbells.word(s).load(SeqCst)));
        let inner = Arc::new(BellInner {
            env: Arc::clone(env),
            slot,
            answered,
            own: AtomicU32::new(0),
            poked: Flag::default(),
            unhinted: AtomicBool::new(false),
            pipe: OnceLock::new(),
            watched: Mutex::default(),
        });
        Ok(Self { inner })
    }

    /// Wakes the thread that waits on this bell; if none waits, the next wait returns at once. Any
    /// thread may call it.
    pub fn ring(&self) {
        self.inner.ring();
    }

    /// Blocks until the bell is rung, at most `timeout` (`None`: without limit). Returns at once if
    /// it was rung since the last wait. One thread may wait at a time.
    pub fn wait(&self, timeout: Option<Duration>) -> Wake {
        self.inner.wait(timeout)
    }

    /// Returns the partitions that rang since the last call. Call it after [`Wake::Rung`], to poll
    /// only those partitions' readers. Rings by [`Bell::ring`] belong to no partition.
    #[must_use]
    pub fn rung_for(&self) -> WakeTargets {
        self.inner.rung_for()
    }

    /// For event loops: a descriptor that becomes readable with the first ring after each
    /// [`Bell::listen`]. `None` without write access, or if the folder cannot hold named pipes:
    /// then a thread has to [`wait`](Bell::wait).
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.pipe().map(AsFd::as_fd)
    }

    /// Returns whether the bell was rung since the last wait. The next ring makes the descriptor
    /// readable; then call this again.
    #[must_use]
    pub fn listen(&self) -> bool {
        self.inner.listen()
    }

    /// Arms this bell for a reader: the partition's next commit rings it. Returns true if the tail
    /// is past `pos`.
    pub(crate) fn arm(&self, partition: &Arc<Partition>, reader: &Arc<u64>, pos: u64) -> bool {
        if let Some(slot) = self.inner.slot {
            partition.arm(slot);
        }
        self.watch(reader, partition, pos);
        partition.log_end().0 > pos || partition.is_gone()
    }

    /// Stores the tail that a reader saw, for the sweep.
    fn watch(&self, reader: &Arc<u64>, partition: &Arc<Partition>, tail: u64) {
        let mut watched = self.inner.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let (reader, partition) = (Arc::downgrade(reader), Arc::downgrade(partition));
            ArmedTail { reader, partition, tail }
        };
        watched.entry(**reader).or_insert_with(new).tail = tail;
    }
}

impl BellInner {
    fn word(&self) -> &AtomicU32 {
        self.slot.map_or(&self.own, |slot| self.env.doorbells.word(slot))
    }

    fn ring(&self) {
        wake_hints::poke(&&self.poked, |rung| match self.slot {
            Some(slot) => self.env.doorbells.count(slot, rung),
            None => {
                self.own.fetch_add(rung, SeqCst);
                futex::wake(&self.own);
            }
        });
    }

    fn rung(&self) -> bool {
        let now = wake_hints::answer(&&self.poked, || self.word().load(SeqCst));
        let before = self.answered.swap(now, SeqCst);
        if !wake_hints::all_hinted(before, now) {
            self.unhinted.store(true, SeqCst);
        }
        before != now
    }

    fn rung_for(&self) -> WakeTargets {
        let Some(slot) = self.slot else { return WakeTargets::All };
        let hints = wake_hints::take(|word| self.env.doorbells.hints(slot, word));
        let unhinted = self.unhinted.swap(false, SeqCst);
        if unhinted { WakeTargets::All } else { WakeTargets::Hinted(hints) }
    }

    fn wait(&self, timeout: Option<Duration>) -> Wake {
        let start = Instant::now();
        let mut nap = READ_ONLY_POLL_INTERVALS.0;
        loop {
            if self.rung() {
                return Wake::Rung;
            }
            let left = timeout.map(|t| t.saturating_sub(start.elapsed()));
            if left == Some(Duration::ZERO) {
                return Wake::TimedOut;
            }
            match self.slot {
                Some(slot) => self.sleep(slot, left),
                None => {
                    let seen = self.answered.load(Relaxed);
                    futex::wait(&self.own, seen, Some(left.map_or(nap, |l| l.min(nap))));
                    nap = (nap * 2).min(READ_ONLY_POLL_INTERVALS.1);
                    if !self.overlooked().is_empty() {
                        return Wake::Rung;
                    }
                }
            }
        }
    }

    fn pipe(&self) -> Option<&OwnedFd> {
        let make = || self.env.doorbells.pipes.make(self.slot?);
        self.pipe.get_or_init(make).as_ref()
    }

    /// The order matters: a ring before the store is seen in the count; a later one writes to the
    /// pipe, which is not emptied until the next call.
    fn listen(&self) -> bool {
        if let (Some(slot), Some(pipe)) = (self.slot, self.pipe()) {
            pipes::drain(pipe);
            self.env.doorbells.sleeping(slot).store(ON_PIPE, SeqCst);
        }
        self.rung()
    }

    fn sleep(&self, slot: usize, left: Option<Duration>) {
        let sleeping = self.env.doorbells.sleeping(slot);
        sleeping.store(ON_FUTEX, SeqCst);
        let seen = self.answered.load(Relaxed);
        if self.word().load(SeqCst) == seen {
            futex::wait(self.word(), seen, left);
        }
        sleeping.store(AWAKE, SeqCst);
    }

    /// Removes and returns the watched partitions whose tail has moved or that were deleted;
    /// removes closed ones, too.
    fn overlooked(&self) -> Vec<Hint> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut moved = Vec::new();
        watched.retain(|_, ArmedTail { reader, partition, tail }| {
            let partition = partition.upgrade().filter(|_| reader.strong_count() > 0);
            let Some(partition) = partition else { return false };
            let still = partition.tail() == *tail && !partition.has_ended();
            if !still {
                moved.push(partition.hint());
            }
            still
        });
        moved
    }

    /// Completes the ring of a killed writer. If a watched partition's tail has moved, it rings
    /// fully, because earlier counts may belong to other partitions. If only the count has moved,
    /// it wakes.
    pub(crate) fn sweep(&self) {
        let Some(slot) = self.slot else { return };
        let counted = self.word().load(SeqCst) != self.answered.load(SeqCst);
        let overlooked = self.overlooked();
        if !overlooked.is_empty() {
            self.env.doorbells.ring(slot, overlooked);
        }
        if counted {
            // Regardless of the owner's state: the killed writer may have reset it.
            futex::wake(self.word());
            if let Some(Some(pipe)) = self.pipe.get() {
                pipes::poke(pipe);
            }
        }
    }
}

fn claim(env: &Env) -> Result<usize, JournalError> {
    let too_many =
        || JournalError::TooMany { path: env.file_path(), what: "waiting threads", limit: SLOTS };
    let slot = env.doorbells.claim(env.own_token(), |owner| env.is_alive(owner));
    slot.ok_or_else(too_many)
}

impl Drop for BellInner {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.env.doorbells.release(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use helio_core::{ProducerName, TopicName};

    use super::*;
    use crate::doorbells::Doorbells;
    use crate::{
        From, Journal, JournalOptions, Maintenance, Ownership, Reader, Record, TopicConfig, Writer,
        WriterOptions,
    };

    /// The limit after which a test fails instead of hanging.
    const HANG_TIMEOUT: Duration = Duration::from_secs(60);

    /// Waits until a thread sleeps in the kernel.
    fn until_asleep(thread: &std::path::Path) {
        let stat = std::path::Path::new("/proc").join(thread).join("stat");
        let asleep = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
        while !asleep() {
            std::thread::yield_now();
        }
    }

    /// Rings partly, as a killed writer does; the sweep must wake the sleeper.
    fn half_a_ring(half: impl FnOnce(&Doorbells, usize)) {
        let dir = tempfile::tempdir().unwrap();
        let options =
            JournalOptions { maintenance: Maintenance::Manual, ..JournalOptions::default() };
        let journal = Journal::open(dir.path(), options).unwrap();
        let bell = journal.bell().unwrap();
        let (inner, slot) = (Arc::clone(&bell.inner), bell.inner.slot.unwrap());
        let (told, hear) = mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            told.send(Err(std::fs::read_link("/proc/thread-self").unwrap())).unwrap();
            told.send(Ok(bell.wait(None))).unwrap();
        });
        let thread = hear.recv().unwrap().unwrap_err();
        while inner.env.doorbells.sleeping(slot).load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        until_asleep(&thread);
        half(&inner.env.doorbells, slot);
        journal.maintain();
        assert_eq!(hear.recv_timeout(HANG_TIMEOUT).unwrap(), Ok(Wake::Rung));
        sleeper.join().unwrap();
    }

    fn readable(bell: &Bell) -> bool {
        let mut byte = [0];
        rustix::io::read(bell.descriptor().unwrap(), &mut byte) == Ok(1)
    }

    #[test]
    fn a_ring_from_elsewhere_makes_the_descriptor_readable_once() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Journal::open(dir.path(), JournalOptions::default()).unwrap();
        let (journal, other) = (open(), open());
        let bell = journal.bell().unwrap();
        let far = other.bell().unwrap();
        let slot = bell.inner.slot.unwrap();
        let ring = || far.inner.env.doorbells.ring(slot, None);
        ring();
        assert!(bell.listen() && !bell.listen() && !readable(&bell));
        for _ in 0..2 {
            ring();
            ring();
            assert!(readable(&bell) && !readable(&bell));
            assert!(bell.listen());
        }
        drop(bell);
        let bell = journal.bell().unwrap();
        assert_eq!(bell.inner.slot, Some(slot));
        ring();
        assert!(!readable(&bell), "its new owner does not listen yet");
    }

    #[test]
    fn the_sweep_makes_the_descriptor_readable_where_a_writer_did_not() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            JournalOptions { maintenance: Maintenance::Manual, ..JournalOptions::default() };
        let journal = Journal::open(dir.path(), options).unwrap();
        let bell = journal.bell().unwrap();
        assert!(!bell.listen() && !readable(&bell));
        let (doorbells, slot) = (&bell.inner.env.doorbells, bell.inner.slot.unwrap());
        doorbells.word(slot).fetch_add(1, SeqCst);
        doorbells.sleeping(slot).swap(AWAKE, SeqCst);
        journal.maintain();
        assert!(readable(&bell) && bell.listen());
    }

    #[test]
    fn without_a_pipe_there_is_no_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        std::fs::write(dir.path().join("bells"), "no folder").unwrap();
        let bell = journal.bell().unwrap();
        assert!(bell.descriptor().is_none());
        bell.ring();
        assert!(bell.listen() && !bell.listen());
    }

    #[test]
    fn the_sweep_wakes_whom_a_writer_counted_for_and_did_not_wake() {
        half_a_ring(|doorbells, slot| {
            doorbells.word(slot).fetch_add(1, SeqCst);
        });
    }

    /// Two armed readers of one bell whose partitions have different hints.
    struct Two {
        _dir: tempfile::TempDir,
        journal: Journal,
        bell: Bell,
        writers: [Writer; 2],
        readers: [Reader; 2],
    }

    impl Two {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (maintenance, seed) = (Maintenance::Manual, Some(7));
            let options = JournalOptions { maintenance, seed, ..JournalOptions::default() };
            let journal = Journal::open(dir.path(), options).unwrap();
            let bell = journal.bell().unwrap();
            let topics = ["a", "b"].map(|name| {
                let name = TopicName::new(name).unwrap();
                journal.create_topic(&name, &TopicConfig::default()).unwrap()
            });
            let producer = ProducerName::new("writer").unwrap();
            let options = WriterOptions { producer, ownership: Ownership::Shared };
            let writers = topics.each_ref().map(|topic| topic.writer(0, &options).unwrap());
            let mut readers = topics.each_ref().map(|topic| topic.reader(0, From::Latest).unwrap());
            assert!(readers.iter_mut().all(|reader| !reader.arm(&bell)));
            let [a, b] = readers.each_ref().map(|reader| reader.watch().hint());
            assert_ne!(a, b, "another seed is needed");
            Self { _dir: dir, journal, bell, writers, readers }
        }

        fn append(&mut self, which: usize) {
            self.writers[which].append(&Record::default()).unwrap();
        }

        /// Which of the two readers the bell was rung for.
        fn rung_for(&self) -> Option<[bool; 2]> {
            let rung = self.bell.wait(Some(Duration::ZERO)) == Wake::Rung;
            let rung_for = rung.then(|| self.bell.rung_for())?;
            Some(self.readers.each_ref().map(|reader| rung_for.includes(reader.watch().hint())))
        }

        /// Appends, and removes the ring, as if the writer was killed between its commit and its
        /// hint.
        fn append_and_die(&mut self, which: usize) {
            self.append(which);
            assert!(self.rung_for().is_some(), "this ring is taken for one that never was");
        }
    }

    #[test]
    fn a_ring_says_for_whom_it_is() {
        let mut two = Two::new();
        two.append(1);
        assert_eq!(two.rung_for(), Some([false, true]));
        assert_eq!(two.rung_for(), None);
        two.append(0);
        two.append(1);
        assert_eq!(two.rung_for(), Some([true, false]), "the second is not armed any more");
        two.bell.ring();
        two.bell.ring();
        assert_eq!(two.rung_for(), Some([false, false]));
        assert_eq!(two.rung_for(), None);
    }

    #[test]
    fn a_ring_of_an_earlier_version_is_for_all() {
        let mut two = Two::new();
        let (inner, slot) = (Arc::clone(&two.bell.inner), two.bell.inner.slot.unwrap());
        let earlier = |rings| inner.env.doorbells.word(slot).fetch_add(rings, SeqCst);
        for rings in [1, 2, 65_535] {
            two.bell.ring();
            earlier(rings);
            assert_eq!(two.rung_for(), Some([true, true]));
        }
        // Without a call of `rung_for` in between, the answer is all.
        earlier(1);
        assert_eq!(two.bell.wait(None), Wake::Rung);
        two.append(0);
        assert_eq!(two.rung_for(), Some([true, true]));
        two.bell.ring();
        assert_eq!(two.rung_for(), Some([false, false]));
    }

    #[test]
    fn the_sweep_says_for_whom_a_killed_writer_did_not_ring() {
        let mut two = Two::new();
        two.append_and_die(1);
        two.journal.maintain();
        assert_eq!(two.rung_for(), Some([false, true]));
        two.journal.maintain();
        assert_eq!(two.rung_for(), None);
    }

    #[test]
    fn the_sweep_says_so_though_another_reader_of_the_partition_has_seen_it() {
        let mut two = Two::new();
        let topic = two.journal.topic(&TopicName::new("b").unwrap()).unwrap().unwrap();
        two.append_and_die(1);
        let mut late = topic.reader(0, From::Latest).unwrap();
        assert!(!late.arm(&two.bell), "it begins behind that record");
        two.journal.maintain();
        assert_eq!(two.rung_for(), Some([false, true]));
        drop(late);
        two.append(1);
        two.journal.maintain();
        let watched = two.bell.inner.watched.lock().unwrap();
        assert_eq!(watched.len(), 1, "of those that are closed nothing is left");
    }

    #[test]
    fn nor_where_another_ring_is_still_to_be_answered() {
        let mut two = Two::new();
        two.append_and_die(1);
        two.append(0);
        two.journal.maintain();
        assert_eq!(two.rung_for(), Some([true, true]));
    }

    #[test]
    fn the_sweep_rings_for_a_hint_that_was_left_and_not_counted() {
        let mut two = Two::new();
        two.append_and_die(1);
        let (inner, slot) = (Arc::clone(&two.bell.inner), two.bell.inner.slot.unwrap());
        let hint = two.readers[1].watch().hint();
        wake_hints::ring(|word| inner.env.doorbells.hints(slot, word), [hint], |_| {});
        assert_eq!(two.rung_for(), None);
        two.journal.maintain();
        assert_eq!(two.rung_for(), Some([false, true]));
    }

    #[test]
    fn the_sweep_wakes_whom_a_writer_took_for_woken() {
        half_a_ring(|doorbells, slot| {
            doorbells.word(slot).fetch_add(1, SeqCst);
            doorbells.sleeping(slot).swap(0, SeqCst);
        });
    }
}
