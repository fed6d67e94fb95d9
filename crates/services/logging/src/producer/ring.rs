//! A ring of bytes for each thread that logs, read by the publishing thread. Neither waits for the
//! other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use helio_bus::transport::locked;
use helio_core::Tai;
use rtrb::{Consumer, Producer, RingBuffer};

use super::{Inner, MAX_KEPT, MAX_URGENT};
use crate::body::Body;
use crate::lanes::Lanes;
use crate::level::Level;
use crate::value::Value;

/// Bytes before a record's body: length, time, logger, site, audiences, level and destinations.
pub(super) const FIXED: usize = 4 + 8 + 4 + 4 + 4 + 1;
/// The data pair of a record below the published levels that was kept and published upon an error.
const KEPT: &str = "kept";
/// The number of levels, including 0.
const LEVELS: usize = 12;

/// A record's destinations. A record without any is kept until an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Destinations {
    /// The bus.
    pub(super) published: bool,
    /// Standard error.
    pub(super) printed: bool,
}

/// The bits of the destinations, beside those of the level.
const PUBLISHED: u8 = 1 << 7;
const PRINTED: u8 = 1 << 6;

/// A record in a ring, without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) time: Tai,
    pub(super) logger: u32,
    pub(super) site: u32,
    pub(super) audiences: u32,
    pub(super) level: Level,
    pub(super) goes: Destinations,
}

impl Head {
    fn write(&self, body: usize, into: &mut [u8; FIXED]) {
        into[..4].copy_from_slice(&(body as u32).to_le_bytes());
        into[4..12].copy_from_slice(&self.time.nanos().to_le_bytes());
        into[12..16].copy_from_slice(&self.logger.to_le_bytes());
        into[16..20].copy_from_slice(&self.site.to_le_bytes());
        into[20..24].copy_from_slice(&self.audiences.to_le_bytes());
        let Destinations { published, printed } = self.goes;
        let bits = (u8::from(published) * PUBLISHED) | (u8::from(printed) * PRINTED);
        into[24] = self.level.number() | bits;
    }

    /// The head, and the length of the body.
    pub(super) fn read(bytes: &[u8; FIXED]) -> (Self, usize) {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let time = i64::from_le_bytes(std::array::from_fn(|n| bytes[4 + n]));
        let head = Self {
            time: Tai::from_nanos(time),
            logger: word(12),
            site: word(16),
            audiences: word(20),
            level: Level::new(bytes[24] & !(PUBLISHED | PRINTED)).unwrap_or_default(),
            goes: Destinations {
                published: bytes[24] & PUBLISHED != 0,
                printed: bytes[24] & PRINTED != 0,
            },
        };
        (head, word(0) as usize)
    }
}

/// Counts of records by level, written by one thread and read by any.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; LEVELS]);

impl Counts {
    /// Counts, in the writing thread.
    fn add(&self, level: Level) {
        let count = &self.0[usize::from(level.number())];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts, in any thread.
    pub(super) fn add_shared(&self, level: Level, records: u64) {
        self.0[usize::from(level.number())].fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn of(&self, level: Level) -> u64 {
        self.0[usize::from(level.number())].load(Ordering::Relaxed)
    }

    fn add_all(&self, other: &Self) {
        let both = self.0.iter().zip(&other.0);
        both.for_each(|(to, from)| {
            _ = to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed)
        });
    }
}

/// A thread's counts.
#[derive(Debug, Default)]
pub(super) struct RecordCounters {
    /// Records at published levels.
    pub(super) offered: Counts,
    /// Of these, records that did not fit.
    pub(super) shed: Counts,
    /// Records to be printed that did not fit.
    pub(super) unprinted: Counts,
}

impl RecordCounters {
    /// Counts a record that did not fit, in any thread.
    fn lose(&self, head: &Head) {
        if head.goes.published {
            self.shed.add_shared(head.level, 1);
        }
        if head.goes.printed {
            self.unprinted.add_shared(head.level, 1);
        }
    }

    pub(super) fn add_all(&self, other: &Self) {
        self.offered.add_all(&other.offered);
        self.shed.add_all(&other.shed);
        self.unprinted.add_all(&other.unprinted);
    }
}

/// Errors of a thread that did not fit into its ring. Until it is emptied, later errors are added
/// here, too, so that none overtakes another.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    bytes: Mutex<Vec<u8>>,
    is_some: AtomicBool,
}

impl Overflow {
    pub(super) fn is_some(&self) -> bool {
        self.is_some.load(Ordering::Acquire)
    }

    /// Adds a record; false if there is no room.
    fn put(&self, fixed: &[u8; FIXED], body: &[u8]) -> bool {
        let mut bytes = locked(&self.bytes);
        if bytes.len() + FIXED + body.len() > MAX_URGENT {
            return false;
        }
        bytes.extend_from_slice(fixed);
        bytes.extend_from_slice(body);
        self.is_some.store(true, Ordering::Release);
        true
    }

    pub(super) fn take(&self) -> Vec<u8> {
        let mut bytes = locked(&self.bytes);
        self.is_some.store(false, Ordering::Release);
        std::mem::take(&mut *bytes)
    }
}

/// The reading end of a thread's ring.
pub(super) struct Reading {
    pub(super) ring: Consumer<u8>,
    pub(super) overflow: Arc<Overflow>,
    pub(super) tally: Arc<RecordCounters>,
}

/// The writing end, in its thread.
struct Writing {
    inner: Weak<Inner>,
    ring: Producer<u8>,
    overflow: Arc<Overflow>,
    capacity: usize,
    tally: Arc<RecordCounters>,
    /// Records below the published levels, oldest first, and their bytes.
    kept: VecDeque<Vec<u8>>,
    kept_bytes: usize,
}

thread_local! {
    static WRITING: RefCell<Vec<Writing>> = const { RefCell::new(Vec::new()) };
    static BODY: Cell<Body> = const { Cell::new(Body::new()) };
}

/// Writes a record to this thread's ring, or counts it as shed. It never waits.
pub(super) fn write(inner: &Arc<Inner>, head: Head, fill: impl FnOnce(&mut Body)) {
    let written = BODY.try_with(|kept| {
        let mut body = kept.take();
        body.clear();
        // Filling in a record may log another one: nothing is borrowed meanwhile.
        fill(&mut body);
        let written = WRITING.try_with(|all| {
            let mut all = all.borrow_mut();
            let writing = Writing::of(inner, &mut all);
            writing.map(|writing| writing.take(inner, head, &body))
        });
        kept.set(body);
        written
    });
    // A thread that is ending has no ring any more, and after the sender's end there is none.
    if !matches!(written, Ok(Ok(Some(())))) {
        if head.goes.published {
            inner.others.offered.add_shared(head.level, 1);
        }
        inner.others.lose(&head);
    }
}

impl Writing {
    /// This thread's writing end. It is created if there is none and the sender runs.
    fn of<'a>(inner: &Arc<Inner>, all: &'a mut Vec<Self>) -> Option<&'a mut Self> {
        let place = all.iter().position(|one| one.inner.as_ptr() == Arc::as_ptr(inner));
        if place.is_none() {
            if inner.ended.load(Ordering::Relaxed) {
                return None;
            }
            all.retain(|one| one.inner.strong_count() > 0);
            all.push(Self::open(inner));
        }
        match place {
            Some(place) => all.get_mut(place),
            None => all.last_mut(),
        }
    }

    fn open(inner: &Arc<Inner>) -> Self {
        let capacity = inner.options.ring_bytes;
        let (ring, reading) = RingBuffer::new(capacity);
        let tally = Arc::<RecordCounters>::default();
        let overflow = Arc::<Overflow>::default();
        let reading =
            Reading { ring: reading, overflow: Arc::clone(&overflow), tally: Arc::clone(&tally) };
        locked(&inner.new_rings).push(reading);
        let (inner, kept) = (Arc::downgrade(inner), VecDeque::new());
        Self { inner, ring, overflow, capacity, tally, kept, kept_bytes: 0 }
    }

    fn take(&mut self, inner: &Inner, head: Head, body: &Body) {
        if !head.goes.published {
            if inner.options.keep.is_some_and(|keep| head.level >= keep) {
                self.keep(head, body);
            }
            if head.goes.printed {
                self.put(inner, head, body.as_bytes());
            }
            return;
        }
        if head.level >= Level::ERROR {
            for record in std::mem::take(&mut self.kept) {
                if let Some((fixed, body)) = record.split_first_chunk() {
                    let (head, _) = Head::read(fixed);
                    self.tally.offered.add(head.level);
                    self.put(inner, head, body);
                }
            }
            self.kept_bytes = 0;
        }
        self.tally.offered.add(head.level);
        if inner.lanes.is_urgent(head.level) {
            let mut fixed = [0; FIXED];
            head.write(body.as_bytes().len(), &mut fixed);
            if !inner.urgent(&fixed, body.as_bytes()) {
                self.tally.lose(&head);
            }
            return;
        }
        self.put(inner, head, body.as_bytes());
    }

    fn put(&mut self, inner: &Inner, mut head: Head, body: &[u8]) {
        let bytes = FIXED + body.len();
        let free = self.ring.slots();
        let used = self.capacity - free;
        if head.goes.published && head.level < inner.floor() {
            // The bus is slower than the loggers; standard error may accept the record.
            self.tally.shed.add(head.level);
            head.goes.published = false;
            if !head.goes.printed {
                return;
            }
        }
        if head.level < floor(used, self.capacity) {
            return self.tally.lose(&head);
        }
        let mut fixed = [0; FIXED];
        head.write(body.len(), &mut fixed);
        let keeps = head.goes.published && Lanes::lane(head.level) >= Level::ERROR;
        let room = match keeps && self.overflow.is_some() {
            true => None,
            false => self.ring.write_chunk(bytes).ok(),
        };
        let Some(mut chunk) = room else {
            // The last resort for records that are not to be shed.
            if !keeps || !self.overflow.put(&fixed, body) {
                return self.tally.lose(&head);
            }
            return inner.wake();
        };
        let (first, second) = chunk.as_mut_slices();
        let parts = fixed.iter().chain(body);
        if second.is_empty() {
            first[..FIXED].copy_from_slice(&fixed);
            first[FIXED..].copy_from_slice(body);
        } else {
            first.iter_mut().chain(second).zip(parts).for_each(|(to, from)| *to = *from);
        }
        chunk.commit_all();
        // Only when passing half: the sender also polls by itself.
        let half = self.capacity / 2;
        if used < half && used + bytes >= half {
            inner.wake();
        }
    }

    /// Keeps a record until an error; the oldest are dropped.
    fn keep(&mut self, head: Head, body: &Body) {
        let mut body = body.clone();
        body.data(KEPT, &Value::Bool(true));
        let mut fixed = [0; FIXED];
        let head = Head { goes: Destinations { published: true, printed: false }, ..head };
        head.write(body.as_bytes().len(), &mut fixed);
        let record = [&fixed, body.as_bytes()].concat();
        self.kept_bytes += record.len();
        self.kept.push_back(record);
        while self.kept_bytes > MAX_KEPT {
            self.kept_bytes -= self.kept.pop_front().map_or(0, |oldest| oldest.len());
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.wake();
        }
    }
}

/// The lowest level that a queue accepts at this fill. ACS's dispatching queue accepts INFO and
/// above from 70 % on; here each level has its own share, and ERROR and above are never shed.
pub(super) fn floor(used: usize, of: usize) -> Level {
    match used.saturating_mul(100) / of.max(1) {
        0..50 => Level::TRACE,
        50..60 => Level::DELOUSE,
        60..70 => Level::DEBUG,
        70..80 => Level::INFO,
        80..85 => Level::NOTICE,
        85..90 => Level::WARNING,
        _ => Level::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back() {
        for (published, printed) in [(true, false), (false, true), (true, true), (false, false)] {
            let head = Head {
                time: Tai::from_nanos(-7),
                logger: 1,
                site: 2,
                audiences: 3,
                level: Level::EMERGENCY,
                goes: Destinations { published, printed },
            };
            let mut fixed = [0; FIXED];
            head.write(9, &mut fixed);
            assert_eq!(Head::read(&fixed), (head, 9));
        }
    }

    #[test]
    fn the_fuller_a_queue_the_higher_its_floor_and_errors_pass_always() {
        let mut before = Level::TRACE;
        for used in 0..=200 {
            let now = floor(used, 100);
            assert!(before <= now && now <= Level::ERROR);
            before = now;
        }
        assert_eq!((floor(49, 100), floor(70, 100)), (Level::TRACE, Level::INFO));
        assert_eq!(before, Level::ERROR);
    }
}
