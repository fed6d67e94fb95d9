//! Batches beside other producers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use helio_bus::{Bus, Message, Qos, TopicSpec};

/// A guard against hanging: the first batch usually shows it.
const GUARD: Duration = Duration::from_secs(60);

#[test]
fn other_producers_append_between_the_parts_of_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    let publisher = |producer: &str| {
        let bus = Bus::builder().producer(producer).connect(&url).unwrap();
        let spec = TopicSpec::new("packets").unwrap().qos(Qos::stream());
        bus.topic(spec).unwrap().publisher().unwrap()
    };
    let (bulk, other) = (publisher("bulk"), publisher("other"));
    let payload = vec![7; 256 << 10];
    let messages = vec![Message::new(&payload); 200];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                other.publish(Message::new(b"small")).wait().unwrap();
            }
        });
        let until = Instant::now() + GUARD;
        let interleaved = || {
            let outcomes = bulk.publish_batch(&messages).wait_each();
            let receipts: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
            let offsets: Vec<u64> = receipts.iter().filter_map(|receipt| receipt.offset).collect();
            let sequences = receipts.windows(2).all(|w| w[0].sequence + 1 == w[1].sequence);
            assert!(sequences && offsets.is_sorted_by(|a, b| a < b), "{receipts:?}");
            offsets[199] - offsets[0] > 199
        };
        let found =
            std::iter::repeat_with(interleaved).any(|found| found || Instant::now() > until);
        done.store(true, Ordering::Relaxed);
        assert!(found && Instant::now() < until, "a batch held the partition's lock throughout");
    });
}
