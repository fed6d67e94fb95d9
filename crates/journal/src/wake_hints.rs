//! Wake hints: the partitions that a bell was rung for.
//!
//! Constraints: a woken thread polls the partitions that rang and no others, and never sleeps while
//! one of its partitions has new records. Programs of earlier versions may ring without hints on
//! the same journal; then the thread polls all partitions. Only atomics are used, so that a model
//! checker can run the protocol (`tests/it/wakeups.rs` includes this file).
//!
//! Format: each partition has one of [`HINT_COUNT`] hints, chosen by its random seed; several may
//! share one. A doorbell's slot has one bit per hint. A ring with hints adds [`HINTED_RING`] to the
//! count, one of an earlier version adds 1. So the lower half of the difference between two counts
//! is 0 if all rings had hints. A partition rings a bell once per arming, and the armed thread
//! reads the count next. So the halves cannot wrap unnoticed while a bell is armed with fewer than
//! 65,536 partitions (a process cannot map more by the kernel's default); the sweep would repair
//! even that.
//!
//! Operation: the writer commits, leaves the hint, then counts ([`ring`]). The reader reads the
//! count, then takes the hints ([`take`]). So a hint that is taken belongs to a visible commit, and
//! a later hint is followed by a count. A writer that is killed between the two leaves a hint
//! without a count; the sweep repairs this, as it does for a writer that is killed earlier.
//!
//! A process that rings its own bell leaves no hint, only a flag that it has counted. It does not
//! count again until the count is read ([`poke`], [`answer`]).

use crate::waiters::SharedWord;

/// The number of hints: one bit each in the rest of a doorbell's 64 bytes.
const HINT_COUNT: u64 = 64 * HINT_WORDS as u64;
const HINT_WORDS: usize = 6;
/// The increment of a doorbell's count for a ring with hints.
pub(crate) const HINTED_RING: u32 = 1 << 16;

/// A class of partitions: one in 384 on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hint(u16);

impl Hint {
    /// Returns a partition's hint, from its seed, which all processes share.
    pub(crate) fn of(seed: u64) -> Self {
        Self((seed % HINT_COUNT) as u16)
    }

    fn place(self) -> (usize, u64) {
        (usize::from(self.0 / 64), 1 << (self.0 % 64))
    }
}

/// A set of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints([u64; HINT_WORDS]);

impl Hints {
    /// Returns whether the set contains a hint.
    #[must_use]
    pub fn contains(&self, hint: Hint) -> bool {
        let (word, bit) = hint.place();
        self.0[word] & bit != 0
    }

    /// Iterates over the hints of the set.
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

/// The partitions for which a bell was rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeTargets {
    /// Any partition.
    All,
    /// Only partitions with these hints.
    Hinted(Hints),
}

impl WakeTargets {
    /// Returns whether partitions with this hint must be polled.
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

/// Counts, unless this process has already counted since the count was last read.
pub(crate) fn poke<W: SharedWord>(poked: &W, count: impl FnOnce(u32)) {
    if poked.fetch_or(1) == 0 {
        count(HINTED_RING);
    }
}

/// Reads the count, then clears the flag. In this order: a thread that finds the flag set relies on
/// a count that this read or a later one returns.
pub(crate) fn answer<W: SharedWord>(poked: &W, count: impl FnOnce() -> u32) -> u32 {
    let now = count();
    // Not a plain store: the data of threads that found the flag set must be visible.
    poked.take();
    now
}

/// Returns whether all rings between two counts left hints.
pub(crate) fn all_hinted(before: u32, now: u32) -> bool {
    now.wrapping_sub(before).is_multiple_of(HINTED_RING)
}

/// Takes the hints. Call it after the count was read.
pub(crate) fn take<W: SharedWord>(words: impl Fn(usize) -> W) -> Hints {
    let take = |word| {
        let word = words(word);
        if word.load() == 0 { 0 } else { word.take() }
    };
    Hints(std::array::from_fn(take))
}
