//! The doorbells of a journal: slots in its own file, and ringing one.
//!
//! Format: the journal's own file (`journal.hj`) has [`SLOTS`] slots of 64 bytes: a futex word that
//! counts rings, the owner's state (awake, asleep on the futex, or asleep on the slot's pipe in an
//! event loop: see `pipes`), the owner, and the hints of the partitions that rang (see
//! `wake_hints`).

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::futex;
use crate::map::{Map, MapWord};
use crate::pipes::Pipes;
use crate::process::Token;
use crate::wake_hints::{self, Hint};

/// Doorbells of a journal: the limit of threads that wait on it at one time, in all processes.
pub(crate) const SLOTS: usize = 4096;
/// Position of the slots in the journal's file.
const SLOTS_AT: usize = 4096;
const SLOT_BYTES: usize = 64;
/// Bytes of the journal's file.
pub(crate) const FILE_BYTES: usize = slot_at(SLOTS);

/// States of a slot's owner.
pub(crate) const AWAKE: u32 = 0;
pub(crate) const ON_FUTEX: u32 = 1;
pub(crate) const ON_PIPE: u32 = 2;

const fn slot_at(slot: usize) -> usize {
    SLOTS_AT + slot * SLOT_BYTES
}

/// The journal's own file, mapped, and the pipes of its doorbells.
pub(crate) struct Doorbells {
    pub(crate) map: Map,
    pub(crate) pipes: Pipes,
}

impl Doorbells {
    pub(crate) fn word(&self, slot: usize) -> &AtomicU32 {
        self.map.u32(slot_at(slot))
    }

    pub(crate) fn sleeping(&self, slot: usize) -> &AtomicU32 {
        self.map.u32(slot_at(slot) + 4)
    }

    pub(crate) fn owner(&self, slot: usize) -> &AtomicU64 {
        self.map.u64(slot_at(slot) + 8)
    }

    /// A word of the hints that a slot's rings left.
    pub(crate) fn hints(&self, slot: usize, word: usize) -> MapWord<'_> {
        MapWord(&self.map, slot_at(slot) + 16 + word * 8)
    }

    /// Rings a slot's bell: leaves the hints, counts, and wakes the owner if it sleeps.
    pub(crate) fn ring(&self, slot: usize, hints: impl IntoIterator<Item = Hint>) {
        wake_hints::ring(|word| self.hints(slot, word), hints, |rung| self.count(slot, rung));
    }

    pub(crate) fn count(&self, slot: usize, rung: u32) {
        self.word(slot).fetch_add(rung, SeqCst);
        match self.sleeping(slot).swap(AWAKE, SeqCst) {
            AWAKE => {}
            ON_PIPE => self.pipes.wake(slot),
            _ => futex::wake(self.word(slot)),
        }
    }

    /// Takes a free slot, or one of a dead process.
    pub(crate) fn claim(&self, own: Token, is_alive: impl Fn(Token) -> bool) -> Option<usize> {
        for dead_too in [false, true] {
            for slot in 0..SLOTS {
                let owner = self.owner(slot);
                let old = Token(owner.load(SeqCst));
                let free = old == Token::NOBODY || dead_too && !is_alive(old);
                if free && owner.compare_exchange(old.0, own.0, SeqCst, SeqCst).is_ok() {
                    self.sleeping(slot).store(AWAKE, SeqCst);
                    return Some(slot);
                }
            }
        }
        None
    }

    pub(crate) fn release(&self, slot: usize) {
        self.sleeping(slot).store(AWAKE, SeqCst);
        self.owner(slot).store(0, SeqCst);
    }
}
