//! Batches beside other producers, and pinned payloads on the journal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use helio_bus::{Bus, Message, Qos, Start, Subscribe, TopicSpec};

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

/// Whether bytes lie in a mapped segment of this process.
fn is_in_a_segment(bytes: &[u8]) -> bool {
    let address = bytes.as_ptr() as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let number = |digits: &str| usize::from_str_radix(digits, 16).ok();
        Some(number(from)?..number(to)?)
    };
    let of = maps.lines().find(|line| range(line).is_some_and(|range| range.contains(&address)));
    of.is_some_and(|line| line.contains(".seg"))
}

#[test]
fn large_payloads_of_a_journal_are_received_in_place_up_to_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Bus::builder().connect(&format!("journal:{}", folder.path().display())).unwrap();
    let spec = TopicSpec::new("packets").unwrap().qos(Qos::stream());
    let topic = bus.topic(spec).unwrap();
    let large = vec![7; 139_051];
    let message = |number| Message::new(if number % 2 == 0 { &large } else { b"small" });
    let messages: Vec<_> = (0..200).map(message).collect();
    topic.publisher().unwrap().publish_batch(&messages).wait().unwrap();
    let in_place = |limit: Option<u64>| {
        let options = Subscribe::from(Start::Earliest);
        let options = limit.map_or(options.clone(), |limit| options.pinned(limit));
        let mut samples = topic.subscribe(options).unwrap();
        let kept: Vec<_> = (0..200).map(|_| samples.next_sample().unwrap()).collect();
        let whole = |(sample, message): (&helio_bus::Sample, usize)| {
            sample.payload.len() == if message % 2 == 0 { 139_051 } else { 5 }
        };
        assert!(kept.iter().zip(0..200).all(whole));
        kept.iter().filter(|sample| is_in_a_segment(&sample.payload)).count()
    };
    assert_eq!(in_place(Some(u64::MAX)), 100, "each large payload");
    assert_eq!(in_place(None), 0);
    let limited = in_place(Some(2 << 20));
    assert!((1..100).contains(&limited), "{limited} payloads in two segments");
}
