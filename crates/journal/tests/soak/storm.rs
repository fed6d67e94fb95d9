//! A storm: writers, readers and group members are killed with SIGKILL at random moments and
//! restarted. Afterwards every acknowledged record is accounted for, and sleeping readers have
//! reached the end of the logs.
//!
//! `HELIO_STORM_SECONDS` sets its duration (60 by default). The child processes run this test
//! binary, with a role in the environment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::storm_report::Storm;
use crate::support::{HANG_TIMEOUT, child_test};
use helio_core::{ProducerName, Tai, TopicName};
use helio_journal::{
    From, Item, Journal, JournalOptions, Ownership, Reader, Record, Topic, TopicConfig,
    WriterOptions,
};

const PARTITIONS: u32 = 2;
const ROLES: [&str; 8] =
    ["write:a", "write:b", "write:c", "read:x", "read:y", "group:1", "group:2", "group:3"];

fn open(dir: &Path) -> (Journal, Topic, Topic) {
    let journal = Journal::open(dir, JournalOptions::default()).unwrap();
    let config =
        TopicConfig { partitions: PARTITIONS, segment_bytes: 256 << 10, ..TopicConfig::default() };
    let all = journal.create_topic(&TopicName::new("all").unwrap(), &config).unwrap();
    let few = TopicConfig { partitions: 1, retention_bytes: Some(256 << 10), ..config };
    let few = journal.create_topic(&TopicName::new("few").unwrap(), &few).unwrap();
    (journal, all, few)
}

/// A generator of its own for each process: the test needs variety, not quality.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed ^ u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
    fn roll(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn body(name: &str, incarnation: u64, sequence: u64, len: usize) -> Vec<u8> {
    let mut out = format!("{name} {incarnation} {sequence} ").into_bytes();
    out.resize(out.len().max(len), (incarnation ^ sequence) as u8);
    out
}

fn key(sequence: u64) -> [u8; 1] {
    [(sequence * 7 % 50) as u8]
}

/// Child: appends to all topics; prints a line for each acknowledged record.
fn write(dir: &Path, name: &str) {
    let (_journal, all, few) = open(dir);
    let producer = ProducerName::new(name).unwrap();
    let options = WriterOptions { producer, ownership: Ownership::Shared };
    let claim = all.claim(&options).unwrap();
    let mut writers: Vec<_> =
        (0..PARTITIONS).map(|p| all.writer_with(p, &claim).unwrap()).collect();
    let mut other = few.writer(0, &options).unwrap();
    let mut dice = Dice::new(1);
    let mut out = std::io::stdout().lock();
    loop {
        let partition = dice.roll(PARTITIONS.into()) as usize;
        let len = if dice.roll(100) == 0 { 30_000 } else { dice.roll(1500) as usize };
        let (writer, incarnation) = (&mut writers[partition], claim.producer().incarnation);
        let sequence = writer.sequence() + 1;
        let payload = body(name, incarnation, sequence, len);
        let (key, time) = (key(sequence), Tai::from_nanos(sequence as i64));
        let record = Record { key: &key, payload: &payload, time, ..Record::default() };
        let offset = writer.append(&record).unwrap();
        other.append(&record).unwrap();
        writeln!(out, "A {partition} {incarnation} {sequence} {offset}").unwrap();
        // Gives readers time to reach the end and to sleep.
        if dice.roll(4) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Child: reads and checks all records; a failed check ends it with a reported error. Prints its
/// position before it sleeps without timeout. One reader starts at the beginning, the other at the
/// end, where it sleeps most.
fn read(dir: &Path, name: &str) {
    let (journal, all, few) = open(dir);
    let bell = journal.bell().unwrap();
    let from = if name == "x" { From::Earliest } else { From::Latest };
    let mut readers: Vec<_> = (0..PARTITIONS).map(|p| all.reader(p, from).unwrap()).collect();
    let mut other = few.reader(0, From::LastPerKey(1)).unwrap();
    let mut next: Vec<_> = readers.iter().map(Reader::offset).collect();
    let mut out = std::io::stdout().lock();
    loop {
        for (reader, next) in readers.iter_mut().zip(&mut next) {
            while let Some(item) = reader.next().unwrap() {
                let Item::Sample(s) = item else { panic!("{item:?}") };
                assert_eq!(s.offset, *next);
                let expected = format!("{} {} {} ", s.producer, s.incarnation, s.sequence);
                assert!(s.payload.starts_with(expected.as_bytes()));
                *next += 1;
            }
        }
        let mut last = None;
        while let Some(item) = other.next().unwrap() {
            if let Item::Sample(s) = item {
                assert!(last.is_none_or(|l| l < s.offset), "{last:?} {}", s.offset);
                last = Some(s.offset);
            }
        }
        let idle = readers.iter_mut().chain([&mut other]).all(|r| !r.arm(&bell));
        if idle {
            writeln!(out, "R {} {}", next[0], next[1]).unwrap();
            bell.wait(None);
        }
    }
}

/// Child: shares the partitions with the other members; prints its progress before it commits it.
fn share(dir: &Path, name: &str) {
    let (journal, all, _) = open(dir);
    let bell = journal.bell().unwrap();
    let group = all.group(&ProducerName::new("workers").unwrap()).unwrap();
    let member = group.join(&ProducerName::new(name).unwrap()).unwrap();
    let mut readers: HashMap<u32, Reader> = HashMap::new();
    let mut out = std::io::stdout().lock();
    loop {
        let mine = member.assigned().unwrap();
        readers.retain(|p, _| mine.contains(p));
        for partition in mine {
            let reader = readers.entry(partition).or_insert_with(|| {
                let from = group.committed(partition).unwrap().map_or(From::Earliest, From::Offset);
                all.reader(partition, from).unwrap()
            });
            for _ in 0..200 {
                let Some(item) = reader.next().unwrap() else { break };
                let Item::Sample(s) = item else { panic!("{item:?}") };
                writeln!(out, "P {partition} {}", s.offset).unwrap();
            }
            out.flush().unwrap();
            member.commit(partition, reader.offset()).unwrap();
        }
        if readers.values_mut().all(|r| !r.arm(&bell)) {
            bell.wait(Some(Duration::from_millis(20)));
        }
    }
}

/// Not a test by itself: if the environment names a role, this process runs it until it is killed.
#[test]
fn child() {
    let (Ok(role), Ok(dir)) = (std::env::var("HELIO_STORM_ROLE"), std::env::var("HELIO_STORM_DIR"))
    else {
        return;
    };
    let dir = Path::new(&dir);
    // Ends the line that the test harness has begun to print.
    println!();
    match role.split_once(':').unwrap() {
        ("write", name) => write(dir, name),
        ("read", name) => read(dir, name),
        (_, name) => share(dir, name),
    }
}

struct Player {
    role: &'static str,
    child: Child,
}

impl Player {
    /// Kills the child; one that has ended before has failed.
    fn kill(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "{} ended by itself", self.role);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

type Line = (&'static str, String);

fn start(role: &'static str, dir: &Path, lines: &mpsc::Sender<Line>) -> Player {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &child_test(module_path!()), "--nocapture", "--test-threads=1"]);
    command.env("HELIO_STORM_ROLE", role).env("HELIO_STORM_DIR", dir);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let (out, lines) = (child.stdout.take().unwrap(), lines.clone());
    std::thread::spawn(move || {
        let mut out = BufReader::new(out);
        let mut line = String::new();
        // Ignores a line that the kill has cut short.
        while out.read_line(&mut line).is_ok_and(|n| n > 0) && line.ends_with('\n') {
            lines.send((role, std::mem::take(&mut line))).unwrap();
        }
    });
    Player { role, child }
}

/// Kills children at random until the time is over; returns all their lines.
fn rage(dir: &Path, seconds: u64) -> (Vec<Line>, u64) {
    let (sender, lines) = mpsc::channel();
    let mut players: Vec<_> = ROLES.iter().map(|role| start(role, dir, &sender)).collect();
    let (mut dice, mut kills) = (Dice::new(7), 0);
    let (begin, mut all) = (Instant::now(), Vec::new());
    while begin.elapsed() < Duration::from_secs(seconds) {
        let pause = Duration::from_micros(dice.roll(30_000));
        let until = Instant::now() + pause;
        while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            all.push(line);
        }
        let victim = &mut players[dice.roll(ROLES.len() as u64) as usize];
        victim.kill();
        *victim = start(victim.role, dir, &sender);
        kills += 1;
    }
    let (mut readers, mut others): (Vec<_>, Vec<_>) =
        players.into_iter().partition(|player| player.role.starts_with("read"));
    others.iter_mut().for_each(Player::kill);
    calm(dir, &readers, &lines, &mut all);
    readers.iter_mut().for_each(Player::kill);
    drop(sender);
    all.extend(lines);
    (all, kills)
}

/// Without writers, readers reach the end of the logs, even if kills have interrupted wake-ups.
fn calm(dir: &Path, readers: &[Player], lines: &mpsc::Receiver<Line>, all: &mut Vec<Line>) {
    let (_journal, topic, _) = open(dir);
    let end = |partition| topic.info(partition).unwrap().end_offset;
    let end = format!("R {} {}\n", end(0), end(1));
    let until = Instant::now() + HANG_TIMEOUT;
    let mut at: HashMap<_, _> = readers.iter().map(|player| (player.role, String::new())).collect();
    for (role, line) in all.iter() {
        at.entry(role).and_modify(|at| at.clone_from(line));
    }
    while at.values().any(|line| *line != end) {
        let left = until.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left);
        let (role, line) = line.unwrap_or_else(|_| panic!("readers at {at:?}, the end is {end}"));
        at.entry(role).and_modify(|at| at.clone_from(&line));
        all.push((role, line));
    }
}

/// The log's contents: (producer, incarnation, sequence) by offset.
fn contents(topic: &Topic, partition: u32) -> Vec<(String, u64, u64)> {
    let mut reader = topic.reader(partition, From::Earliest).unwrap();
    let mut out = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        let Item::Sample(s) = item else { panic!("{item:?}") };
        assert_eq!(s.offset, out.len() as u64);
        assert_eq!(
            s.payload,
            body(s.producer.as_str(), s.incarnation, s.sequence, s.payload.len())
        );
        out.push((s.producer.to_string(), s.incarnation, s.sequence));
    }
    out
}

/// Each incarnation's records are numbered from 1 without holes, and incarnations only grow.
fn check_order(log: &[(String, u64, u64)]) {
    let mut at: HashMap<&str, (u64, u64)> = HashMap::new();
    for (name, incarnation, sequence) in log {
        let (last, count) = at.entry(name).or_default();
        match incarnation.cmp(last) {
            std::cmp::Ordering::Less => panic!("{name}: {incarnation} after {last}"),
            std::cmp::Ordering::Equal => assert_eq!(*sequence, *count + 1, "{name} {incarnation}"),
            std::cmp::Ordering::Greater => assert_eq!(*sequence, 1, "{name} {incarnation}"),
        }
        (*last, *count) = (*incarnation, *sequence);
    }
}

fn check_last_values(topic: &Topic, partition: u32, log: &[(String, u64, u64)]) {
    let newest: BTreeMap<_, _> = (0..).zip(log).map(|(o, (_, _, s))| (key(*s), o)).collect();
    let mut reader = topic.reader(partition, From::LastPerKey(1)).unwrap();
    let mut seen = BTreeMap::new();
    while let Some(Item::Sample(s)) = reader.next().unwrap() {
        seen.insert([s.key[0]], s.offset);
    }
    assert_eq!(seen, newest);
}

#[test]
fn nothing_acknowledged_is_lost_in_a_storm_of_kills() {
    let seconds = std::env::var("HELIO_STORM_SECONDS").map_or(60, |s| s.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    open(dir.path());
    let (lines, kills) = rage(dir.path(), seconds);
    let (_journal, all, few) = open(dir.path());
    // A writer repairs the state that the last killed one may have left.
    let producer = ProducerName::new("end").unwrap();
    let options = WriterOptions { producer, ownership: Ownership::Shared };
    let claim = all.claim(&options).unwrap();
    let logs: Vec<_> = (0..PARTITIONS).map(|p| contents(&all, p)).collect();
    let mut done = vec![HashSet::new(); PARTITIONS as usize];
    let (mut acknowledged, mut lost) = (0, 0);
    for (role, line) in &lines {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |i: usize| words[i].parse::<u64>().unwrap();
        match words.first() {
            Some(&"A") => {
                let record = logs[number(1) as usize].get(number(4) as usize);
                let name = role.split_once(':').unwrap().1.to_owned();
                if record != Some(&(name, number(2), number(3))) {
                    eprintln!("{role} {line}: {record:?} is there");
                    lost += 1;
                }
                acknowledged += 1;
            }
            Some(&"P") => {
                done[number(1) as usize].insert(number(2));
            }
            _ => {}
        }
    }
    let group = all.group(&ProducerName::new("workers").unwrap()).unwrap();
    for (partition, (log, done)) in (0..).zip(logs.iter().zip(&done)) {
        check_order(log);
        check_last_values(&all, partition, log);
        let committed = group.committed(partition).unwrap().unwrap_or(0);
        assert!((0..committed).all(|o| done.contains(&o)), "partition {partition}");
        let mut writer = all.writer_with(partition, &claim).unwrap();
        assert_eq!(writer.append(&Record::default()).unwrap(), log.len() as u64);
    }
    assert!(acknowledged > 0 && done.iter().any(|d| !d.is_empty()));
    let info = few.info(0).unwrap();
    eprintln!(
        "{kills} kills; {acknowledged} records acknowledged, {} in the logs, {} done by the group; \
         {} of {} left by retention",
        logs.iter().map(Vec::len).sum::<usize>(),
        done.iter().map(HashSet::len).sum::<usize>(),
        info.end_offset - info.first_offset,
        info.end_offset,
    );
    // A hole in a log would have ended `contents`.
    Storm { tried: kills, survived: kills, lost, ..Storm::default() }.report("kills of journals");
}
