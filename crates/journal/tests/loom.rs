//! The waiters' protocol under a model checker: a reader that sleeps is always rung.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p helio-journal --test loom` runs it; elsewhere there is
//! nothing here.

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};

#[path = "../src/waiters.rs"]
mod waiters;

/// A shared word of the model.
#[derive(Clone)]
struct Bits(Arc<AtomicU64>);

impl Bits {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(0)))
    }
}

impl waiters::Word for Bits {
    fn load(&self) -> u64 {
        self.0.load(SeqCst)
    }
    fn fetch_or(&self, bits: u64) {
        self.0.fetch_or(bits, SeqCst);
    }
    fn take(&self) -> u64 {
        self.0.swap(0, SeqCst)
    }
}

/// Runs a writer that commits `commits` times beside a reader that arms and looks; afterwards the
/// reader has seen the last commit, or its bell has been rung.
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
