//! A large store: what a snapshot costs writers, and how long a restart takes.
//!
//! `HELIO_STATE_KEYS` sets the number of keys (default 10^6, 1 GB with their values). The figures
//! of issue 34 are goals of a quiet machine and a release build: they are printed, not required.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use helio_bus::Bus;
use helio_bus::exclusive::LogDurability;
use helio_state::{Previous, PutRequest, RangeRequest, WriteRequest};
use helio_state_node::{Options, Store};

/// Bytes of a value: with its key and its record's head, a kilobyte.
const VALUE_BYTES: usize = 953;
/// Writes that wait for an answer while the store is filled.
const PENDING: usize = 256;
/// Puts before the snapshot whose times are compared.
const PUTS: usize = 5000;

fn open(folder: &Path) -> Store {
    let bus = Bus::connect(&format!("journal:{}", folder.join("log").display())).unwrap();
    let options =
        Options { durability: LogDurability::Interval, quota_bytes: 64 << 30, ..Options::new("x") };
    Store::open(&bus, &folder.join("state"), &options).unwrap()
}

fn key(n: usize) -> Bytes {
    format!("/registry/pods/default/pod-{n:010}").into()
}

fn put(n: usize, value: &Bytes) -> WriteRequest {
    WriteRequest::Put(PutRequest {
        key: key(n),
        value: Some(value.clone()),
        lease: Some(0),
        previous: Previous::Omit,
    })
}

fn fill(store: &Store, keys: usize, value: &Bytes) {
    let mut pending = VecDeque::new();
    for n in 0..keys {
        pending.push_back(store.write(put(n, value)));
        if pending.len() == PENDING {
            pending.pop_front().unwrap().wait().unwrap();
        }
    }
    pending.into_iter().for_each(|answer| drop(answer.wait().unwrap()));
}

/// Puts one after the other until `done`; returns their times, sorted.
fn times(store: &Store, keys: usize, value: &Bytes, done: impl Fn(usize) -> bool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !done(times.len()) {
        let begin = Instant::now();
        store.write(put(times.len() * 7919 % keys, value)).wait().unwrap();
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    times
}

fn shown(name: &str, times: &[Duration]) -> Duration {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (half, p99, most) = (at(0.5), at(0.99), at(1.0));
    println!("{name}: {} puts, p50 {half:?}, p99 {p99:?}, longest {most:?}", times.len());
    p99
}

#[test]
fn a_snapshot_of_a_large_store_and_its_restart() {
    let keys = std::env::var("HELIO_STATE_KEYS").map_or(1_000_000, |keys| keys.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    let store = open(folder.path());
    let begin = Instant::now();
    fill(&store, keys, &value);
    println!("filled: {keys} keys, {} bytes, {:?}", store.status().db_size, begin.elapsed());
    let before = shown("before the snapshot", &times(&store, keys, &value, |n| n == PUTS));
    let revision = store.status().revision;
    store.write(WriteRequest::Compact(revision)).wait().unwrap();
    let is_done = AtomicBool::new(false);
    let begin = Instant::now();
    let during = thread::scope(|scope| {
        let writer = scope
            .spawn(|| times(&store, keys, &value, |n| is_done.load(Ordering::Acquire) && n > 0));
        // The compaction has begun it, if it was worth it.
        store.trim().unwrap();
        is_done.store(true, Ordering::Release);
        writer.join().unwrap()
    });
    let took = begin.elapsed();
    let during = shown(&format!("during the snapshot, {took:?}"), &during);
    println!("p99 during a snapshot: {:.2}x", during.as_secs_f64() / before.as_secs_f64());
    let status = store.status();
    drop(store);

    let begin = Instant::now();
    let store = open(folder.path());
    let last = RangeRequest { key: key(keys - 1), ..RangeRequest::default() };
    assert_eq!(store.range(&last).unwrap().kvs[0].value(), value);
    println!("restart: serving after {:?} (goal: 10 s with 10^6 keys)", begin.elapsed());
    assert_eq!((store.status().keys, store.status().revision), (keys, status.revision));
    let all = RangeRequest { range_end: "\0".into(), ..RangeRequest::default() };
    let count = RangeRequest { key: "\0".into(), content: helio_state::Content::CountOnly, ..all };
    assert_eq!(store.range(&count).unwrap().count, keys as i64);
    store.close().unwrap();
}
