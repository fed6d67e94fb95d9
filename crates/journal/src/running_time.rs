//! The journal's running time: what the age of closed segments is measured by.
//!
//! Constraints: it never runs faster than a clock that is not set, it does not run while the
//! machine is off or asleep, and it runs on over boots. Damage and races may slow it down, never
//! drive it forward: retention by age would then delete too early.
//!
//! Format: words in the journal's own file, behind its head: the boot, the uptime up to which the
//! time is counted, and two slots {running time, check}. The higher valid slot counts.
//!
//! Operation: each use adds the uptime since the last one, at most [`LONGEST_GAP`]: a journal that
//! nobody has open does not run. One process at a time moves the uptime forward, by compare and
//! swap, and then stores the sum in the lower slot.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Duration;

use crate::hash::mix;
use crate::map::Map;
use crate::process::BootId;

const BOOT: usize = 64;
const COUNTED: usize = 80;
const SLOTS: [usize; 2] = [88, 104];

/// The longest time between two uses that counts as running: programs that come and go count, a
/// journal that is put aside does not.
const LONGEST_GAP: Duration = Duration::from_secs(600);
/// The shortest time after which the sum is stored.
const STORE_INTERVAL: Duration = Duration::from_secs(1);

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn slot(map: &Map, at: usize) -> Option<u64> {
    let (time, check) = (map.u64(at).load(Acquire), map.u64(at + 8).load(Acquire));
    (check == mix(time)).then_some(time)
}

/// Returns the running time in nanoseconds, as last stored.
pub(crate) fn stored(map: &Map) -> u64 {
    SLOTS.into_iter().filter_map(|at| slot(map, at)).max().unwrap_or(0)
}

/// Returns the running time in nanoseconds, and counts the uptime since the last use.
pub(crate) fn advance(map: &Map, boot: BootId, uptime: Duration) -> u64 {
    let (before, uptime) = (stored(map), nanos(uptime));
    let counted = map.u64(COUNTED).load(Acquire);
    if map.array::<16>(BOOT) != boot.0 || counted > uptime {
        map.u64(COUNTED).store(uptime, Release);
        map.write(BOOT, &boot.0);
        return before;
    }
    let passed = (uptime - counted).min(nanos(LONGEST_GAP));
    let now = before.saturating_add(passed);
    let due = passed >= nanos(STORE_INTERVAL);
    let word = map.u64(COUNTED);
    if due && word.compare_exchange(counted, uptime, AcqRel, Acquire).is_ok() {
        let lower = SLOTS.into_iter().min_by_key(|at| slot(map, *at)).unwrap_or(SLOTS[0]);
        map.u64(lower).store(now, Release);
        map.u64(lower + 8).store(mix(now), Release);
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Mode, reserve};

    #[test]
    fn it_runs_with_the_uptime_and_over_boots_but_not_while_nobody_looks() {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 4096).unwrap();
        let map = Map::of(&file, 4096, Mode::Write).unwrap();
        let second = 1_000_000_000;
        let at = |boot: u8, seconds: u64| {
            advance(&map, BootId([boot; 16]), Duration::from_secs(seconds)) / second
        };
        assert_eq!([at(1, 100), at(1, 101), at(1, 161)], [0, 1, 61]);
        // A day without any use.
        assert_eq!(at(1, 86_400), 661);
        assert_eq!([at(2, 5), at(2, 15)], [661, 671]);
        // An uptime from the future is damage.
        map.u64(COUNTED).store(u64::MAX, Release);
        assert_eq!([at(2, 16), at(2, 26)], [671, 681]);
        // A damaged slot costs at most what was counted since the other one.
        let newest = SLOTS.into_iter().max_by_key(|at| slot(&map, *at)).unwrap();
        map.u64(newest).fetch_or(1 << 62, AcqRel);
        assert_eq!([at(2, 26), at(2, 27)], [671, 672]);
    }
}
