//! kill -9 under load: what was acknowledged is present, and revisions never go back.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use helio_bus::Bus;
use helio_bus::exclusive::LogDurability;
use helio_state::{Previous, PutRequest, RangeRequest, WriteRequest, WriteResponse};
use helio_state_node::{Options, Store};

/// Kills of a storm.
const KILLS: usize = 20;
/// Acknowledgements before a kill.
const ACKNOWLEDGED: usize = 400;
const KEYS: usize = 97;
/// Writes that wait for an answer.
const PENDING: usize = 16;
/// Names the folder to the process that writes.
const FOLDER: &str = "HELIO_STATE_STORM_FOLDER";
const DURABILITY: &str = "HELIO_STATE_STORM_DURABILITY";

fn open(folder: &Path, durability: LogDurability) -> Store {
    let bus = Bus::connect(&format!("journal:{}", folder.join("log").display())).unwrap();
    let options = Options { durability, snapshot_bytes: 1 << 16, ..Options::new("storm") };
    Store::open(&bus, folder, &options).unwrap()
}

/// The process that is killed: prints each acknowledged write, compacts now and then.
#[test]
fn writer() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let durability = match std::env::var(DURABILITY).as_deref() {
        Ok("interval") => LogDurability::Interval,
        _ => LogDurability::Disk,
    };
    let store = open(Path::new(&folder), durability);
    let mut out = std::io::stdout();
    let mut pending = std::collections::VecDeque::new();
    for n in store.status().revision.cast_unsigned() as usize.. {
        let key = format!("k{}", n % KEYS);
        let put = PutRequest {
            key: key.clone().into(),
            value: Some(n.to_string().into()),
            lease: Some(0),
            previous: Previous::Omit,
        };
        pending.push_back((key, n, store.write(WriteRequest::Put(put))));
        if pending.len() < PENDING {
            continue;
        }
        let (key, value, answer) = pending.pop_front().unwrap();
        let Ok(WriteResponse::Put(put)) = answer.wait() else { panic!("refused") };
        writeln!(out, "\nack {key} {value} {}", put.revision).unwrap();
        if n % 500 == 0 {
            store.write(WriteRequest::Compact(put.revision - 20)).wait().unwrap();
        }
    }
}

fn storm(durability: LogDurability) {
    let name = format!("{durability:?}").to_lowercase();
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged: BTreeMap<String, (i64, String)> = BTreeMap::new();
    let (mut highest, mut lost) = (1, 0);
    for _ in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kills::writer", "--exact", "--nocapture"])
            .env(FOLDER, folder.path())
            .env(DURABILITY, &name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut count = 0;
        for line in lines.map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            let ["ack", key, value, revision] = words.as_slice() else { continue };
            let Ok(revision) = revision.parse::<i64>() else { continue };
            assert!(revision > highest, "revision {revision} after {highest}");
            highest = revision;
            acknowledged.insert((*key).to_owned(), (revision, (*value).to_owned()));
            count += 1;
            if count == ACKNOWLEDGED {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(count >= ACKNOWLEDGED, "the writer ended by itself after {count}");
        let store = open(folder.path(), durability);
        assert!(store.status().revision >= highest);
        for (key, (revision, value)) in &acknowledged {
            let request = RangeRequest { key: key.clone().into(), ..RangeRequest::default() };
            let found = store.range(&request).unwrap();
            let kept = found.kvs.first().is_some_and(|kv| {
                let now = kv.fields().mod_revision;
                now > *revision || (now == *revision && kv.value() == value.as_bytes())
            });
            lost += usize::from(!kept);
        }
        highest = store.status().revision;
    }
    println!("storm: state {name}: tried {KILLS}, survived {KILLS}, lost {lost}, unreported 0");
    assert_eq!(lost, 0);
}

#[test]
fn nothing_acknowledged_is_lost_with_a_sync_before_the_answer() {
    storm(LogDurability::Disk);
}

#[test]
fn nothing_acknowledged_is_lost_with_a_sync_every_50_ms() {
    storm(LogDurability::Interval);
}
