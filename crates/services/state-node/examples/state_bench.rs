//! Measures the store in process: puts and gets one after the other, and memory a key. With a URL
//! `memory:` the log's records are in that memory, too.
//!
//! `cargo run --release -p helio-state-node --example state_bench -- URL FOLDER [KEYS]`

use std::path::Path;
use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_bus::exclusive::LogDurability;
use helio_state::{Previous, PutRequest, RangeRequest, WriteRequest};
use helio_state_node::{Options, Store};

/// Bytes of a value: those of the thesis.
const VALUE: usize = 953;
const OPERATIONS: usize = 20_000;
const PENDING: usize = 256;

type Failure = Box<dyn std::error::Error>;

fn key(n: usize) -> String {
    format!("/registry/pods/default/pod-{n:09}")
}

fn put(n: usize, value: &bytes::Bytes) -> WriteRequest {
    let (key, value) = (key(n).into(), Some(value.clone()));
    WriteRequest::Put(PutRequest { key, value, lease: Some(0), previous: Previous::Omit })
}

/// Anonymous memory of this process, in bytes (`RssAnon` of proc(5)).
fn anonymous() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("RssAnon")).ok_or("no RssAnon")?;
    Ok(line.split_whitespace().nth(1).ok_or("no figure")?.parse::<u64>()? * 1024)
}

fn percentiles(mut times: Vec<Duration>, what: &str) {
    times.sort_unstable();
    let at = |p: usize| times[(times.len() - 1) * p / 100];
    println!("{what}: p50 {:?}, p99 {:?}, max {:?}", at(50), at(99), at(100));
}

fn fill(store: &Store, keys: usize, value: &bytes::Bytes) -> Result<(), Failure> {
    let mut pending = std::collections::VecDeque::new();
    for n in 0..keys {
        pending.push_back(store.write(put(n, value)));
        if pending.len() >= PENDING
            && let Some(oldest) = pending.pop_front()
        {
            oldest.wait()?;
        }
    }
    for pending in pending {
        pending.wait()?;
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, folder, rest @ ..] = arguments.as_slice() else {
        return Err("usage: state_bench URL FOLDER [KEYS]".into());
    };
    let keys = rest.first().map_or(Ok(100_000), |keys| keys.parse())?;
    let value = bytes::Bytes::from(vec![b'v'; VALUE]);
    for durability in [LogDurability::Interval, LogDurability::Disk] {
        let name = format!("{durability:?}").to_lowercase();
        let bus = Bus::connect(&format!("{url}-{name}"))?;
        let options = Options { durability, ..Options::new("bench") };
        let folder = Path::new(folder).join(&name);
        let store = Store::open(&bus, &folder, &options)?;
        let (before, start) = (anonymous()?, Instant::now());
        fill(&store, keys, &value)?;
        let rate = keys as f64 / start.elapsed().as_secs_f64();
        let grown = anonymous()?.saturating_sub(before) / keys as u64;
        let bare = grown.saturating_sub(key(0).len() as u64);
        println!("{name}: {keys} keys, {rate:.0} puts/s, {bare} B a key beyond its bytes");
        let timed = |n: usize| -> Result<Duration, Failure> {
            let start = Instant::now();
            store.write(put(n * 7919 % keys, &value)).wait()?;
            Ok(start.elapsed())
        };
        let puts: Result<_, _> = (0..OPERATIONS).map(timed).collect();
        percentiles(puts?, &format!("{name} put"));
        let timed = |n: usize| -> Result<Duration, Failure> {
            let key = key(n * 7919 % keys).into();
            let start = Instant::now();
            store.range(&RangeRequest { key, ..RangeRequest::default() })?;
            Ok(start.elapsed())
        };
        let gets: Result<_, _> = (0..OPERATIONS).map(timed).collect();
        percentiles(gets?, &format!("{name} get"));
        drop(store);
        drop(bus);
        let start = Instant::now();
        let bus = Bus::connect(&format!("{url}-{name}"))?;
        let store = Store::open(&bus, &folder, &options)?;
        println!("{name}: restart {:?}, {} keys", start.elapsed(), store.status().keys);
        store.close()?;
    }
    Ok(())
}
