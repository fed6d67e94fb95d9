//! The waiters of a partition: one bit per doorbell. Without waiters a writer pays one load.
//!
//! Constraints: a sleeping waiter is woken by the first commit after its last check of the tail. A
//! waiter that is awake costs writers nothing. Only atomics are used, so that a model checker can
//! run the protocol (`tests/it/wakeups.rs` includes this file).
//!
//! Operation: [`arm`] sets the waiter's bit, then the summary's bit for its word; then the caller
//! checks the tail again. [`collect`], called after the tail was stored, takes the summary, then
//! the words. Both sides have a full fence between their write and their read, so at least one of
//! them sees the other. Bits stay set until a writer rings: arming twice costs two loads.

/// The operations of a shared word, by the standard library's atomics or a model checker's.
pub(crate) trait SharedWord {
    fn load(&self) -> u64;
    /// Returns the previous value.
    fn fetch_or(&self, bits: u64) -> u64;
    fn take(&self) -> u64;
}

/// Registers a waiter, and ends with the full fence. The caller must check the tail afterwards.
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

/// Takes all waiters after the tail was stored, and calls `ring` with the slot of each.
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
