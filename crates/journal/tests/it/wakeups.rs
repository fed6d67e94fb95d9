//! The protocols of waiters and wake hints under a model checker: a sleeping reader is always rung,
//! and it polls the partition that rang.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};

use crate::waiters;
use crate::wake_hints::{self, HINTED_RING, Hint};

/// A shared word of the model.
#[derive(Clone)]
struct Bits(Arc<AtomicU64>);

impl Bits {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(0)))
    }
}

impl waiters::SharedWord for Bits {
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

/// Runs a writer that commits `commits` times beside a reader that arms and checks the tail.
/// Afterwards the reader has seen the last commit, or its bell was rung.
fn model(commits: u64) {
    loom::model(move || {
        let (word, summary) = (Bits::new(), Bits::new());
        let (tail, bell) = (Bits::new(), Bits::new());
        let writer = {
            let (word, summary, tail, bell) =
                (word.clone(), summary.clone(), tail.clone(), bell.clone());
            loom::thread::spawn(move || {
                for commit in 1..=commits {
                    tail.0.store(commit, Release);
                    let ring = |slot| {
                        assert_eq!(slot, 5);
                        bell.0.fetch_add(1, SeqCst);
                    };
                    waiters::collect(|_| word.clone(), &summary, || fence(SeqCst), ring);
                }
            })
        };
        waiters::arm(|_| word.clone(), &summary, 5, || fence(SeqCst));
        let seen = tail.0.load(Acquire);
        writer.join().unwrap();
        assert!(seen == commits || bell.0.load(SeqCst) > 0, "a sleeper was left asleep");
    });
}

#[test]
fn one_commit_never_leaves_a_sleeper() {
    model(1);
}

#[test]
fn nor_do_two() {
    model(2);
}

/// Two partitions of one bell, as its waiter and their writers see them.
#[derive(Clone)]
struct Shared {
    waiters: [(Bits, Bits); 2],
    tails: [Bits; 2],
    hints: Bits,
    count: Bits,
}

const SLOT: usize = 5;
/// The partitions' seeds: their hints differ.
const SEEDS: [u64; 2] = [3, 9];

impl Shared {
    fn new() -> Self {
        let pair = || (Bits::new(), Bits::new());
        Self {
            waiters: [pair(), pair()],
            tails: [Bits::new(), Bits::new()],
            hints: Bits::new(),
            count: Bits::new(),
        }
    }

    /// A commit and its ring; a writer of an earlier version leaves no hint.
    fn commit(&self, partition: usize, hinted: bool) {
        self.tails[partition].0.store(1, Release);
        let (word, summary) = &self.waiters[partition];
        let count = |rung: u32| {
            self.count.0.fetch_add(u64::from(rung), SeqCst);
        };
        let ring = |_| match hinted {
            true => wake_hints::ring(|_| self.hints.clone(), [Hint::of(SEEDS[partition])], count),
            false => count(1),
        };
        waiters::collect(|_| word.clone(), summary, || fence(SeqCst), ring);
    }

    /// Arms a partition, and checks its tail.
    fn arm(&self, partition: usize) -> bool {
        let (word, summary) = &self.waiters[partition];
        waiters::arm(|_| word.clone(), summary, SLOT, || fence(SeqCst));
        self.tails[partition].0.load(Acquire) == 1
    }

    /// A waiter that may have been rung polls the partitions that rang.
    fn answer(&self, answered: &mut u64, seen: &mut [bool; 2]) {
        let now = self.count.0.load(SeqCst);
        let before = std::mem::replace(answered, now);
        if now == before {
            return;
        }
        let hinted = wake_hints::all_hinted(before as u32, now as u32);
        // This model's partitions use the first word only.
        let none = Bits::new();
        let hints =
            wake_hints::take(|word| if word == 0 { self.hints.clone() } else { none.clone() });
        for partition in 0..2 {
            if !seen[partition] && (!hinted || hints.contains(Hint::of(SEEDS[partition]))) {
                seen[partition] = self.arm(partition);
            }
        }
    }
}

/// Two writers, of two partitions, beside a waiter that answers while they commit and once more at
/// the end: then it has seen both commits. All schedules with up to three preemptions are tried;
/// more would take hours.
fn two_writers(hinted: [bool; 2]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Shared::new();
        let writers = [0, 1].map(|partition| {
            let shared = shared.clone();
            loom::thread::spawn(move || shared.commit(partition, hinted[partition]))
        });
        let (mut answered, mut seen) = (0, [false; 2]);
        for (partition, seen) in seen.iter_mut().enumerate() {
            *seen = shared.arm(partition);
        }
        shared.answer(&mut answered, &mut seen);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        shared.answer(&mut answered, &mut seen);
        assert_eq!(seen, [true; 2], "a sleeper was left asleep");
        assert!(
            answered < u64::from(3 * HINTED_RING),
            "each rings once for each time it was armed"
        );
    });
}

#[test]
fn a_ring_is_known_by_its_hint() {
    two_writers([true, true]);
}

#[test]
fn a_ring_of_an_earlier_version_is_for_all() {
    two_writers([true, false]);
}

/// Two threads of the owner's process that store a value and ring, beside an owner that answers
/// meanwhile and once more at the end: then it has found both values.
#[test]
fn what_a_thread_of_its_own_left_is_found() {
    loom::model(|| {
        let (poked, count) = (Bits::new(), Bits::new());
        let left = [Bits::new(), Bits::new()];
        let ringers = left.clone().map(|left| {
            let (poked, count) = (poked.clone(), count.clone());
            loom::thread::spawn(move || {
                left.0.store(1, Release);
                wake_hints::poke(&poked, |rung| {
                    count.0.fetch_add(u64::from(rung), SeqCst);
                });
            })
        });
        let (mut answered, mut found) = (0, [false; 2]);
        let mut answer = || {
            let now = wake_hints::answer(&poked, || count.0.load(SeqCst) as u32);
            if std::mem::replace(&mut answered, now) != now {
                for (found, left) in found.iter_mut().zip(&left) {
                    *found |= left.0.load(Acquire) == 1;
                }
            }
        };
        answer();
        ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        answer();
        assert_eq!(found, [true; 2], "a ring was lost");
    });
}
