//! A storm of deletions: a topic is deleted, purged, removed by hand and recreated under writers
//! that wait for *durable*, some of which are killed. No receipt may name a log that was gone
//! before its append began, and each receipt of the log that is left must be in it.
//!
//! And a storm of clocks: writers whose clocks are hours or years off, with a retention age that
//! none of their samples has reached: nothing may be missing.
//!
//! `HELIO_STORM_SECONDS` sets the duration of each (30 by default).

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::storm_report::Storm;
use crate::support::child_test;
use helio_core::{ProducerName, Tai, TopicName};
use helio_journal::{
    AppendError, From, Item, Journal, JournalError, JournalOptions, Ownership, Record, Topic,
    TopicConfig, WriterOptions,
};

const WRITERS: usize = 4;

fn name() -> TopicName {
    TopicName::new("t").unwrap()
}

fn config() -> TopicConfig {
    TopicConfig { segment_bytes: 64 << 10, ..TopicConfig::default() }
}

/// The machine's uptime in nanoseconds, by which all processes order what they do.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn is_gone(error: &JournalError) -> bool {
    matches!(error, JournalError::TopicGone { .. })
}

/// One append that waits for *durable*; prints log, offset and when it began.
fn acknowledged(topic: &Topic, writer: &mut helio_journal::Writer, log: u64) -> bool {
    let begun = now();
    let offset = match writer.append(&Record { payload: &begun.to_le_bytes(), ..Record::default() })
    {
        Ok(offset) => offset,
        Err(AppendError::Journal(error)) if is_gone(&error) => return false,
        Err(error) => panic!("append: {error}"),
    };
    match topic.wait_durable(0, offset, None) {
        Ok(()) => println!("A {log} {offset} {begun}"),
        Err(error) if is_gone(&error) => return false,
        Err(error) => panic!("durable: {error}"),
    }
    true
}

/// Child: writes to whatever topic has the name.
fn write(dir: &Path, producer: &str) {
    let journal = Journal::open(dir, JournalOptions::default()).unwrap();
    let producer = ProducerName::new(producer).unwrap();
    let options = WriterOptions { producer, ownership: Ownership::Shared };
    loop {
        let opened = journal.create_topic(&name(), &config()).and_then(|topic| {
            let writer = topic.writer(0, &options)?;
            let log = topic.info(0)?.log_id;
            Ok((topic, writer, log))
        });
        match opened {
            Ok((topic, mut writer, log)) => while acknowledged(&topic, &mut writer, log) {},
            // A folder that is being removed by hand is no whole topic.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Child: writes to a topic with a retention age by a clock that is off.
fn write_off(dir: &Path, producer: &str) {
    let journal = Journal::open(dir, JournalOptions::default()).unwrap();
    let topic = journal.create_topic(&name(), &aged()).unwrap();
    let hours: i64 = producer.trim_start_matches('p').parse::<i64>().unwrap() - 2;
    let producer = ProducerName::new(producer).unwrap();
    let options = WriterOptions { producer, ownership: Ownership::Shared };
    let mut writer = topic.writer(0, &options).unwrap();
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let off = hours.signum() * hours.abs().pow(9) * 3_600_000_000_000;
    let time = Tai::from_unix_nanos(unix.as_nanos() as i64).nanos().saturating_add(off);
    let time = Tai::from_nanos(time);
    loop {
        let offset = writer.append(&Record { payload: &[7; 700], time, ..Record::default() });
        println!("A 0 {} 0", offset.unwrap());
    }
}

fn aged() -> TopicConfig {
    TopicConfig { retention_age_ns: Some(3_600_000_000_000), ..config() }
}

#[test]
fn child() {
    let Ok(role) = std::env::var("HELIO_DELETION_ROLE") else { return };
    let dir = std::env::var("HELIO_DELETION_DIR").unwrap();
    match role.split_once(':').unwrap() {
        ("write", producer) => write(Path::new(&dir), producer),
        (_, producer) => write_off(Path::new(&dir), producer),
    }
}

/// A receipt: log, offset, when its append began.
type Receipt = (u64, u64, u64);

fn start(dir: &Path, role: &str, receipts: &mpsc::Sender<Receipt>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &child_test(module_path!()), "--nocapture"]);
    command.env("HELIO_DELETION_ROLE", role).env("HELIO_DELETION_DIR", dir);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let receipts = receipts.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let Some(rest) = line.split_once("A ").map(|(_, rest)| rest) else { continue };
            let numbers: Vec<u64> = rest.split(' ').filter_map(|n| n.parse().ok()).collect();
            // The last line of a killed process may be torn.
            if let [log, offset, begun] = numbers[..] {
                let _ = receipts.send((log, offset, begun));
            }
        }
    });
    child
}

fn seconds() -> Duration {
    let given = std::env::var("HELIO_STORM_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(given.unwrap_or(30))
}

/// Deletes the topic in one of the ways; returns the log that is gone, and since when.
fn delete(journal: &Journal, dir: &Path, turn: u64) -> Option<(u64, u64)> {
    let topic = journal.topic(&name()).ok().flatten()?;
    let log = topic.info(0).ok()?.log_id;
    match turn % 3 {
        0 => assert!(journal.remove_topic(&name()).is_ok()),
        1 => assert!(journal.purge_topic(&name()).is_ok()),
        _ => {
            // Others may recreate files in it meanwhile.
            while fs::remove_dir_all(dir.join("topics/t")).is_err() && dir.join("topics/t").exists()
            {
            }
        }
    }
    Some((log, now()))
}

#[test]
fn no_receipt_is_given_for_a_deleted_topic() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    journal.create_topic(&name(), &config()).unwrap();
    let (sender, receipts) = mpsc::channel();
    let role = |i: usize| format!("write:p{i}");
    let mut writers: Vec<_> = (0..WRITERS).map(|i| start(dir.path(), &role(i), &sender)).collect();
    let mut gone: HashMap<u64, u64> = HashMap::new();
    let (begin, mut turn) = (Instant::now(), 0);
    while begin.elapsed() < seconds() {
        std::thread::sleep(Duration::from_millis(20 + turn * 37 % 60));
        gone.extend(delete(&journal, dir.path(), turn));
        turn += 1;
        if turn.is_multiple_of(5) {
            let which = (turn as usize / 5) % WRITERS;
            writers[which].kill().unwrap();
            writers[which].wait().unwrap();
            writers[which] = start(dir.path(), &role(which), &sender);
        }
    }
    // The last log gets some receipts.
    std::thread::sleep(Duration::from_secs(1));
    for writer in &mut writers {
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
    drop(sender);
    let receipts: Vec<Receipt> = receipts.into_iter().collect();
    let topic = journal.topic(&name()).unwrap().unwrap();
    let (last, end) = (topic.info(0).unwrap().log_id, topic.info(0).unwrap().end_offset);
    let false_ones =
        receipts.iter().filter(|(log, _, begun)| gone.get(log).is_some_and(|since| begun > since));
    let unreported = false_ones.count() as u64;
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    let mut found = 0;
    while let Some(Item::Sample(sample)) = reader.next().unwrap() {
        assert_eq!(sample.offset, found);
        found += 1;
    }
    assert_eq!(found, end);
    let left = receipts.iter().filter(|(log, ..)| *log == last);
    assert!(left.clone().count() > 0);
    let lost = left.filter(|(_, offset, _)| *offset >= found).count() as u64;
    eprintln!("{turn} deletions, {} receipts", receipts.len());
    let storm = Storm { tried: turn, survived: turn, lost, unreported };
    storm.report("deletions under live writers");
}

#[test]
fn clocks_that_are_off_cost_no_sample() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let topic = journal.create_topic(&name(), &aged()).unwrap();
    let (sender, receipts) = mpsc::channel();
    let role = |i: usize| format!("off:p{i}");
    let mut writers: Vec<_> = (0..WRITERS).map(|i| start(dir.path(), &role(i), &sender)).collect();
    let (begin, mut turn) = (Instant::now(), 0);
    while begin.elapsed() < seconds() / 3 {
        std::thread::sleep(Duration::from_millis(300));
        writers[turn % WRITERS].kill().unwrap();
        writers[turn % WRITERS].wait().unwrap();
        writers[turn % WRITERS] = start(dir.path(), &role(turn % WRITERS), &sender);
        turn += 1;
    }
    for writer in &mut writers {
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
    drop(sender);
    let acknowledged = receipts.into_iter().count() as u64;
    let info = topic.info(0).unwrap();
    assert_eq!((info.first_offset, info.taken.samples), (0, 0));
    assert!(acknowledged > 0);
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    let mut found = 0;
    while let Some(Item::Sample(sample)) = reader.next().unwrap() {
        assert_eq!(sample.offset, found);
        found += 1;
    }
    assert_eq!(found, info.end_offset);
    let (tried, lost) = (turn as u64, acknowledged.saturating_sub(found));
    let storm = Storm { tried, survived: tried, lost, ..Storm::default() };
    storm.report("kills of writers whose clocks are off");
}
