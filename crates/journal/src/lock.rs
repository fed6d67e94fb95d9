//! A lock between processes that survives its holder: POSIX robust mutexes in a mapped file.
//!
//! Constraints: a lock lies in a map and never moves; it is created once, before the file gets its
//! name. All processes that share a journal use the same C library (its mutex is the format). A
//! mutex knows its holder by the thread's id, so they also share the PID namespace, unless the
//! journal was opened for several: see [`allow_foreign_holders`].
//!
//! Operation: [`lock`] reports whether the former holder died inside. Then its work may be
//! incomplete, and the new holder repairs it first. If a holder is stopped (not dead), the others
//! wait up to a limit and then fail with its thread's id.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::map::Map;

/// Bytes of a lock in a file; larger than any C library's mutex.
pub(crate) const LOCK_BYTES: usize = 64;
const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= LOCK_BYTES);

/// How a lock was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The former holder released it.
    Clean,
    /// The former holder died inside.
    OwnerDied,
}

/// Why a lock was not acquired.
#[derive(Debug)]
pub(crate) enum LockFailure {
    /// Another thread, whose id this is (0 for unknown), had it at the end of the whole time.
    TimedOut(u32),
    /// The bytes are no lock (damaged), or a system call failed.
    Broken(io::Error),
}

fn mutex(map: &Map, at: usize) -> *mut libc::pthread_mutex_t {
    map.lock_at(at, LOCK_BYTES).cast()
}

/// Creates a lock in a file that no other process has mapped yet.
pub(crate) fn init(map: &Map, at: usize) -> io::Result<()> {
    let check =
        |code: i32| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let a = attributes.as_mut_ptr();
    map.write(at, &[0; LOCK_BYTES]);
    // SAFETY: the attributes live on this frame; the mutex lies inside the map and is not in use
    // yet.
    unsafe {
        check(libc::pthread_mutexattr_init(a))?;
        check(libc::pthread_mutexattr_settype(a, libc::PTHREAD_MUTEX_ERRORCHECK))?;
        check(libc::pthread_mutexattr_setpshared(a, libc::PTHREAD_PROCESS_SHARED))?;
        check(libc::pthread_mutexattr_setrobust(a, libc::PTHREAD_MUTEX_ROBUST))?;
        check(libc::pthread_mutex_init(mutex(map, at), a))?;
        check(libc::pthread_mutexattr_destroy(a))
    }
}

/// Checks a lock's constant bytes before use, so that damage is an error instead of undefined
/// behaviour in the C library. Only words that locking never changes are compared.
fn looks_sound(map: &Map, at: usize) -> bool {
    // __kind of glibc's and musl's mutex: type, robust and shared bits.
    let kind = map.u32(at + KIND_AT).load(Relaxed);
    kind == KIND
}

#[cfg(target_env = "gnu")]
const OWNER_AT: usize = 0;
#[cfg(not(target_env = "gnu"))]
const OWNER_AT: usize = 4;
/// The bits of a robust futex that have the owner's id (`FUTEX_TID_MASK`).
const OWNER_MASK: u32 = 0x3fff_ffff;
#[cfg(target_env = "gnu")]
const KIND_AT: usize = 16;
#[cfg(target_env = "gnu")]
const KIND: u32 = 2 | 16 | 128;
#[cfg(not(target_env = "gnu"))]
const KIND_AT: usize = 0;
#[cfg(not(target_env = "gnu"))]
const KIND: u32 = 2 | 4 | 128;

/// Whether threads of other PID namespaces may hold this process's locks.
static FOREIGN_HOLDERS: AtomicBool = AtomicBool::new(false);

/// How often a lock is polled whose holder may have this thread's id.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// From now on, holders may be threads of other PID namespaces, with ids that this process's
/// threads have, too. A thread that is killed while it waits in the C library would release the
/// lock of a holder with the same id; so waiting threads poll, and enter only where the lock looks
/// free. Ends with the process.
pub(crate) fn allow_foreign_holders() {
    FOREIGN_HOLDERS.store(true, Relaxed);
}

/// Returns whether [`allow_foreign_holders`] was called.
pub(crate) fn has_foreign_holders() -> bool {
    FOREIGN_HOLDERS.load(Relaxed)
}

/// Returns the thread that holds the lock; 0 if nobody does.
fn owner(map: &Map, at: usize) -> u32 {
    map.u32(at + OWNER_AT).load(Relaxed) & OWNER_MASK
}

/// Takes the lock, waiting at most `limit`.
#[inline]
pub(crate) fn lock(map: &Map, at: usize, limit: Duration) -> Result<Acquired, LockFailure> {
    if !looks_sound(map, at) {
        let damaged = io::Error::new(io::ErrorKind::InvalidData, "the lock's bytes are damaged");
        return Err(LockFailure::Broken(damaged));
    }
    // SAFETY: a mutex made by `init`, whose kind word is intact.
    match unsafe { libc::pthread_mutex_trylock(mutex(map, at)) } {
        0 => Ok(Acquired::Clean),
        // A thread with this one's id may be one of another PID namespace.
        libc::EBUSY | libc::EDEADLK => slow(map, at, limit),
        code => settle(map, at, code),
    }
}

fn settle(map: &Map, at: usize, code: i32) -> Result<Acquired, LockFailure> {
    match code {
        0 => Ok(Acquired::Clean),
        libc::EOWNERDEAD => {
            // SAFETY: this thread holds the mutex; the caller repairs the guarded data before it
            // unlocks.
            unsafe { libc::pthread_mutex_consistent(mutex(map, at)) };
            Ok(Acquired::OwnerDied)
        }
        libc::ETIMEDOUT => Err(LockFailure::TimedOut(owner(map, at))),
        code => Err(LockFailure::Broken(io::Error::from_raw_os_error(code))),
    }
}

/// Waits in short slices: the C library's limit is wall-clock time, which may be stepped.
#[cold]
fn slow(map: &Map, at: usize, limit: Duration) -> Result<Acquired, LockFailure> {
    const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            return settle(map, at, libc::ETIMEDOUT);
        }
        let code = match has_foreign_holders() {
            true => poll(map, at),
            false => wait(map, at, left.min(LOCK_POLL_INTERVAL)),
        };
        match code {
            libc::EBUSY | libc::EDEADLK => std::thread::sleep(left.min(POLL_INTERVAL)),
            libc::ETIMEDOUT => {}
            code => return settle(map, at, code),
        }
    }
}

fn poll(map: &Map, at: usize) -> i32 {
    match owner(map, at) {
        // SAFETY: the mutex is as in `lock`.
        0 => unsafe { libc::pthread_mutex_trylock(mutex(map, at)) },
        _ => libc::EBUSY,
    }
}

fn wait(map: &Map, at: usize, slice: Duration) -> i32 {
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is written to this frame; the mutex is as in `lock`.
    unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
        let nanos = until.tv_nsec + i64::from(slice.subsec_nanos());
        until.tv_sec += nanos / 1_000_000_000;
        until.tv_nsec = nanos % 1_000_000_000;
        libc::pthread_mutex_timedlock(mutex(map, at), &raw const until)
    }
}

/// Releases the lock, which the calling thread holds.
#[inline]
pub(crate) fn unlock(map: &Map, at: usize) {
    // SAFETY: the calling thread holds this mutex (guards are neither Send nor cloneable).
    let code = unsafe { libc::pthread_mutex_unlock(mutex(map, at)) };
    debug_assert_eq!(code, 0, "unlock of a lock that this thread does not hold");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Mode, reserve};

    fn map() -> Map {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 4096).unwrap();
        Map::of(&file, 4096, Mode::Write).unwrap()
    }

    #[test]
    fn a_held_lock_times_out_and_a_dead_thread_s_lock_is_taken_over() {
        let (map, holder) = (map(), rustix::thread::gettid());
        let own = || holder.as_raw_nonzero().get() as u32;
        init(&map, 64).unwrap();
        assert_eq!(lock(&map, 64, Duration::ZERO).unwrap(), Acquired::Clean);
        std::thread::scope(|s| {
            s.spawn(|| {
                let failure = lock(&map, 64, Duration::ZERO);
                assert!(matches!(failure, Err(LockFailure::TimedOut(holder)) if holder == own()));
            });
        });
        // As if the holder was one of another PID namespace, with the same id.
        let same = lock(&map, 64, Duration::from_millis(2));
        assert!(matches!(same, Err(LockFailure::TimedOut(_))));
        unlock(&map, 64);
        std::thread::scope(|s| {
            s.spawn(|| lock(&map, 64, Duration::ZERO).unwrap());
        });
        assert_eq!(lock(&map, 64, Duration::from_secs(5)).unwrap(), Acquired::OwnerDied);
        unlock(&map, 64);
        assert_eq!(lock(&map, 64, Duration::ZERO).unwrap(), Acquired::Clean);
        unlock(&map, 64);
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let map = map();
        assert!(matches!(lock(&map, 64, Duration::ZERO), Err(LockFailure::Broken(_))));
        init(&map, 64).unwrap();
        map.write(64 + KIND_AT, &[0xff]);
        assert!(matches!(lock(&map, 64, Duration::ZERO), Err(LockFailure::Broken(_))));
    }
}
