//! Who waits on a partition: a bit for each doorbell, found by writers at the price of one load.
//!
//! Constraints: a waiter that sleeps is woken by the first commit after it looked; a waiter that is
//! awake costs writers nothing. Nothing but atomics is used, so that the protocol is also run under
//! a model checker (`tests/it/wakeups.rs` includes this file).
//!
//! Operation: [`arm`] sets the waiter's bit, then the summary's bit for its word, then the caller
//! looks at the tail again. [`collect`], called after the tail was stored, takes the summary, then
//! the words. Both sides put a full fence between their write and their look, so one of them sees
//! the other. Bits stay set until someone rings: arming again is two loads.

/// What the protocol needs of a shared word; the standard library's, or a model checker's.
pub(crate) trait SharedWord {
    fn load(&self) -> u64;
    /// Gives what was there before.
    fn fetch_or(&self, bits: u64) -> u64;
    fn take(&self) -> u64;
}

/// Announces a waiter. The caller must look at the tail after [`Fence::full`], which this ends
/// with.
pub(crate) fn arm<W: SharedWord>(
    words: impl Fn(usize) -> W,
    summary: &W,
    slot: usize,
    full: impl Fn(),
) {
    let (word, bit) = (slot / 64, 1 << (slot % 64));
    let announced = words(word).load() & bit != 0 && summary.load() & 1 << word != 0;
    if !announced {
        words(word).fetch_or(bit);
        summary.fetch_or(1 << word);
    }
    full();
}

/// Takes all waiters, after the tail was stored, and gives each one's number to `ring`.
#[inline]
pub(crate) fn collect<W: SharedWord>(
    words: impl Fn(usize) -> W,
    summary: &W,
    full: impl Fn(),
    mut ring: impl FnMut(usize),
) {
    full();
    if summary.load() == 0 {
        return;
    }
    let mut pending = summary.take();
    while pending != 0 {
        let word = pending.trailing_zeros() as usize;
        pending &= pending - 1;
        let mut bits = words(word).take();
        while bits != 0 {
            ring(word * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}
