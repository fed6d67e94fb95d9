//! A component's lock: exclusive use by one caller for a limited time.

use helio_core::Tai;

use super::interval;

/// The longest duration of a lock, in seconds; renew it for more.
pub const MAX_LOCK_S: f64 = 3_600.0;

/// The lock of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The holder.
    pub holder: String,
    /// The end of the lock.
    pub until: Tai,
}

impl Lock {
    /// A lock from now for a number of seconds; `None` unless it is above 0 and at most
    /// [`MAX_LOCK_S`].
    pub(super) fn new(now: Tai, holder: &str, seconds: f64) -> Option<Self> {
        let until = interval::after_seconds(now, seconds);
        let legal = seconds > 0.0 && seconds <= MAX_LOCK_S;
        legal.then(|| Self { holder: holder.to_owned(), until })
    }

    /// Whether it excludes a caller.
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
