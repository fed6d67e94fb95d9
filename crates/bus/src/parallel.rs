//! Opening many at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// So many are made at the same time.
const MAX_THREADS: usize = 32;

/// What is made of each, by 32 threads that each take the next one, in no particular order: for who
/// opens many topics. Most of that is waiting for a disk or for brokers, which answer all who wait
/// at once. A panic is passed on.
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
