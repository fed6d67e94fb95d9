//! What a ring says: that somebody rang, and for which partitions.
//!
//! Constraints: whoever is rung looks at the partitions that it was rung for and at no others, and
//! never sleeps where one of its own has moved on. Programs of earlier versions ring without saying
//! for what, beside ours on the same journal: then all partitions are looked at. Nothing but
//! atomics is used, so that the protocol is also run under a model checker (`tests/it/wakeups.rs`
//! includes this file).
//!
//! Format: each partition has one of [`HINT_COUNT`] hints, drawn by its random seed; several may share
//! one. A doorbell's slot has a bit for each. A ring that leaves hints counts [`HINTED_RING`] up, one of
//! an earlier version 1, so the lower half of the difference between two counts tells whether all
//! were hinted. A partition rings a bell once for each time that it was armed, and who arms reads
//! the count next, so the halves wrap around behind nobody's back while a bell is armed with less
//! than 65,536 partitions (a process cannot map more by the kernel's default), and the sweep would
//! find even that.
//!
//! Operation: who rings has committed before; it leaves the hint, then counts ([`ring`]). Who is
//! rung reads the count, then takes the hints ([`take`]). So a hint that is taken belongs to a
//! commit that can be seen, and one that comes later is followed by a count. A ringer that is
//! killed between the two leaves a hint that nobody was rung for: the sweep's work, as a ringer
//! that is killed before.
//!
//! A process that rings a bell of its own leaves no hint, only a flag that it has counted: it need
//! not count again before the count was read ([`poke`], [`answer`]).

use crate::waiters::SharedWord;

/// How many hints there are: the bytes that are left of a doorbell's slot of 64.
const HINT_COUNT: u64 = 64 * HINT_WORDS as u64;
const HINT_WORDS: usize = 6;
/// What a ring adds to a doorbell's count.
pub(crate) const HINTED_RING: u32 = 1 << 16;

/// Which partitions of those that a thread waits for: one in 384 on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hint(u16);

impl Hint {
    /// That of a partition, by the seed that all processes see.
    pub(crate) fn of(seed: u64) -> Self {
        Self((seed % HINT_COUNT) as u16)
    }

    fn place(self) -> (usize, u64) {
        (usize::from(self.0 / 64), 1 << (self.0 % 64))
    }
}

/// Some of the hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints([u64; HINT_WORDS]);

impl Hints {
    /// Whether it is among them.
    #[must_use]
    pub fn contains(&self, hint: Hint) -> bool {
        let (word, bit) = hint.place();
        self.0[word] & bit != 0
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Hint> {
        let bits = |(word, mut bits): (usize, u64)| {
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as u16;
                let more = bits != 0;
                bits &= bits.wrapping_sub(1);
                more.then_some(Hint(word as u16 * 64 + bit))
            })
        };
        self.0.into_iter().enumerate().flat_map(bits)
    }
}

/// For which partitions a bell was rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeTargets {
    /// Perhaps for any.
    All,
    /// For none but those that have these hints.
    Hinted(Hints),
}

impl WakeTargets {
    /// Whether partitions with this hint have to be looked at.
    #[must_use]
    pub fn includes(&self, hint: Hint) -> bool {
        match self {
            Self::All => true,
            Self::Hinted(hints) => hints.contains(hint),
        }
    }
}

/// Leaves hints, then has `count` add to the doorbell's count.
pub(crate) fn ring<W: SharedWord>(
    words: impl Fn(usize) -> W,
    hints: impl IntoIterator<Item = Hint>,
    count: impl FnOnce(u32),
) {
    for hint in hints {
        let (word, bit) = hint.place();
        words(word).fetch_or(bit);
    }
    count(HINTED_RING);
}

/// Counts, unless this process has since the count was last read: that one is answered with it.
pub(crate) fn poke<W: SharedWord>(poked: &W, count: impl FnOnce(u32)) {
    if poked.fetch_or(1) == 0 {
        count(HINTED_RING);
    }
}

/// Reads the count, and lets the process count again. In this order: who finds the flag is behind
/// one whose count is read here or later.
pub(crate) fn answer<W: SharedWord>(poked: &W, count: impl FnOnce() -> u32) -> u32 {
    let now = count();
    // Not a store: what those who found the flag have left before must be seen.
    poked.take();
    now
}

/// Whether all rings between two counts have left their hints.
pub(crate) fn all_hinted(before: u32, now: u32) -> bool {
    now.wrapping_sub(before).is_multiple_of(HINTED_RING)
}

/// Takes the hints that were left, after the count was read.
pub(crate) fn take<W: SharedWord>(words: impl Fn(usize) -> W) -> Hints {
    let take = |word| {
        let word = words(word);
        if word.load() == 0 { 0 } else { word.take() }
    };
    Hints(std::array::from_fn(take))
}
