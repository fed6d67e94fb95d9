//! A component's lock: one caller has it for a while.

use helio_core::Tai;

use super::span;

/// The longest time for which a lock is given, in seconds; who needs more renews it.
pub const MAX_LOCK_S: f64 = 3_600.0;

/// A component that takes commands of one caller only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// Who has it.
    pub holder: String,
    /// When it ends.
    pub until: Tai,
}

impl Lock {
    /// A lock from now on for a number of seconds; `None` where that is no number from 0 (not
    /// included) to [`MAX_LOCK_S`].
    pub(super) fn new(now: Tai, holder: &str, seconds: f64) -> Option<Self> {
        let until = span::after_seconds(now, seconds);
        let legal = seconds > 0.0 && seconds <= MAX_LOCK_S;
        legal.then(|| Self { holder: holder.to_owned(), until })
    }

    /// Whether it keeps a caller out.
    pub(super) fn excludes(&self, now: Tai, caller: &str) -> bool {
        now < self.until && self.holder != caller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_others_while_it_lasts() {
        let now = Tai::from_nanos(0);
        let lock = Lock::new(now, "alice", 2.0).unwrap();
        assert!(lock.excludes(now, "bob") && !lock.excludes(now, "alice"));
        assert!(!lock.excludes(lock.until, "bob"));
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, MAX_LOCK_S + 0.1] {
            assert_eq!(Lock::new(now, "alice", seconds), None);
        }
    }
}
