//! Opening many topics at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The most concurrent calls.
const MAX_THREADS: usize = 32;

/// Maps each item on up to 32 threads; the results are in no particular order. It is for opening
/// many topics, which mostly wait for a disk or for brokers. A panic is propagated.
pub fn parallel_map<T: Sync, M: Send>(all: &[T], make: impl Fn(&T) -> M + Sync) -> Vec<M> {
    let next = AtomicUsize::new(0);
    let work = || {
        let next = || all.get(next.fetch_add(1, Ordering::Relaxed));
        std::iter::from_fn(next).map(&make).collect::<Vec<M>>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.iter().take(MAX_THREADS).map(|_| scope.spawn(work)).collect();
        let made = threads.into_iter().map(|thread| thread.join());
        let made = made.collect::<Result<Vec<_>, _>>();
        made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .into_iter()
            .flatten()
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_made_once() {
        let mut made = parallel_map(&(0..1_000).collect::<Vec<u32>>(), |n| n * 2);
        made.sort_unstable();
        assert!(made.iter().copied().eq((0..1_000).map(|n| n * 2)));
        assert!(parallel_map(&[], |(): &()| ()).is_empty());
    }
}
