//! Two PID namespaces: exclusive writers in both are killed at random, and claim the same topic.
//!
//! In a journal for all namespaces nothing acknowledged is lost, and a live writer is never taken
//! for dead. In any other, only the processes of one namespace write; those of the other are
//! refused by name. `HELIO_STORM_SECONDS` sets the duration (60 by default).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::storm_report::Storm;
use crate::support::child_test;
use helio_core::{ProducerName, TopicName};
use helio_journal::{
    AppendError, From, Item, Journal, JournalError, JournalOptions, Ownership, PidNamespaces,
    Record, Topic, TopicConfig, WriterOptions,
};

/// Writers of each namespace.
const WRITERS: usize = 3;

fn options(pid_namespaces: PidNamespaces) -> JournalOptions {
    JournalOptions { pid_namespaces, ..JournalOptions::default() }
}

fn topic(journal: &Journal) -> Result<Topic, JournalError> {
    let config = TopicConfig { segment_bytes: 64 << 10, ..TopicConfig::default() };
    journal.create_topic(&TopicName::new("t").unwrap(), &config)
}

/// Child: claims the topic again and again, and appends under each claim for a moment. Prints a
/// line for each acknowledged record (A), each claim that a live writer keeps from it (W), each
/// refusal by name (N), and each takeover of its own claim while it lives (F).
fn write(dir: &Path, number: u64, namespaces: PidNamespaces) {
    let mut out = std::io::stdout().lock();
    let mut tell = |text: &str| writeln!(out, "{text}").unwrap();
    let producer = ProducerName::new("exclusive").unwrap();
    let claim = WriterOptions { producer, ownership: Ownership::Exclusive };
    let journal = loop {
        match Journal::open(dir, options(namespaces)) {
            Ok(journal) => break journal,
            Err(JournalError::OtherNamespace { .. }) => tell("N"),
            Err(e) => return tell(&format!("E {e}")),
        }
    };
    let topic = match topic(&journal) {
        Ok(topic) => topic,
        Err(e) => return tell(&format!("E {e}")),
    };
    loop {
        let mut writer = match topic.writer(0, &claim) {
            Ok(writer) => writer,
            Err(JournalError::Claimed { .. }) => {
                tell("W");
                std::thread::sleep(Duration::from_millis(number + 1));
                continue;
            }
            Err(e) => return tell(&format!("E {e}")),
        };
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(3 + number) {
            let payload =
                u128::from(writer.producer().incarnation) << 64 | u128::from(writer.sequence() + 1);
            let record = Record { payload: &payload.to_le_bytes(), ..Record::default() };
            match writer.append(&record) {
                Ok(offset) => tell(&format!("A {offset} {payload}")),
                Err(AppendError::Fenced { .. }) => {
                    tell("F");
                    break;
                }
                Err(e) => return tell(&format!("E {e}")),
            }
        }
    }
}

/// Not a test by itself: a writer, if the environment names one.
#[test]
fn child() {
    let (Ok(role), Ok(dir)) = (std::env::var("HELIO_NS_ROLE"), std::env::var("HELIO_NS_DIR"))
    else {
        return;
    };
    let (namespaces, number) = role.split_once(':').unwrap();
    let any = namespaces == "any";
    println!();
    write(
        Path::new(&dir),
        number.parse().unwrap(),
        if any { PidNamespaces::Any } else { PidNamespaces::One },
    );
}

/// A writer in one of two namespaces: the second has one of its own for each process.
fn start(dir: &Path, role: &str, number: usize, lines: &mpsc::Sender<String>) -> Option<Child> {
    let program = std::env::current_exe().unwrap();
    let mut command = match number < WRITERS {
        true => Command::new(program),
        false => {
            let mut command = Command::new("unshare");
            // With `unshare` the writer dies, too.
            command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(program);
            command
        }
    };
    command.args(["--exact", &child_test(module_path!()), "--nocapture", "--test-threads=1"]);
    command.env("HELIO_NS_ROLE", format!("{role}:{number}")).env("HELIO_NS_DIR", dir);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().ok()?;
    let (out, lines) = (child.stdout.take().unwrap(), lines.clone());
    std::thread::spawn(move || {
        let mut out = BufReader::new(out);
        let mut line = String::new();
        // Ignores a line that the kill has cut short.
        while out.read_line(&mut line).is_ok_and(|n| n > 0) && line.ends_with('\n') {
            let _ = lines.send(std::mem::take(&mut line));
        }
    });
    Some(child)
}

fn can_create_namespaces() -> bool {
    let status = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    status.is_ok_and(|status| status.success())
}

/// What the writers have printed.
#[derive(Debug, Default)]
struct Tally {
    acknowledged: BTreeMap<u64, u128>,
    waited: u64,
    refused: u64,
    fenced: u64,
    other: Vec<String>,
    kills: u64,
}

impl Tally {
    fn add(&mut self, line: &str) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["A", offset, payload] => {
                let payload = payload.parse().unwrap();
                let before = self.acknowledged.insert(offset.parse().unwrap(), payload);
                assert_eq!(before, None, "the offset {offset} was given twice");
            }
            ["W"] => self.waited += 1,
            ["N"] => self.refused += 1,
            ["F"] => self.fenced += 1,
            ["E", ..] => self.other.push(line.to_owned()),
            // The harness's own.
            _ => {}
        }
    }
}

/// Kills writers of both namespaces at random until the time is over.
fn rage(dir: &Path, role: &str, time: Duration) -> Tally {
    let (sender, lines) = mpsc::channel();
    let start = |number| start(dir, role, number, &sender).unwrap();
    let mut writers: Vec<_> = (0..WRITERS * 2).map(start).collect();
    let (mut tally, begin, mut dice) = (Tally::default(), Instant::now(), 7_u64);
    while begin.elapsed() < time {
        let until = Instant::now() + Duration::from_millis(20 + dice % 60);
        while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            tally.add(&line);
        }
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let victim = (dice >> 33) as usize % writers.len();
        writers[victim].kill().unwrap();
        writers[victim].wait().unwrap();
        writers[victim] = start(victim);
        tally.kills += 1;
    }
    for writer in &mut writers {
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
    drop(sender);
    lines.iter().for_each(|line| tally.add(&line));
    tally
}

/// Compares the log with what was acknowledged; returns the number of its records and of lost ones.
fn check(dir: &Path, tally: &Tally, namespaces: PidNamespaces) -> (u64, usize) {
    let journal = Journal::open(dir, options(namespaces)).unwrap();
    let mut reader = topic(&journal).unwrap().reader(0, From::Earliest).unwrap();
    let (mut log, mut newest) = (BTreeMap::new(), (0, 0));
    while let Some(item) = reader.next().unwrap() {
        let Item::Sample(sample) = item else { panic!("{item:?}") };
        assert_eq!(sample.offset, log.len() as u64);
        let place = (sample.incarnation, sample.sequence);
        assert!(place > newest, "{place:?} after {newest:?}");
        newest = place;
        log.insert(sample.offset, u128::from_le_bytes(sample.payload.try_into().unwrap()));
    }
    let lost = tally.acknowledged.iter().filter(|(offset, sent)| log.get(offset) != Some(sent));
    (log.len() as u64, lost.count())
}

#[test]
fn no_storm_in_two_pid_namespaces_loses_a_record_or_takes_a_live_writer_for_dead() {
    if !can_create_namespaces() {
        // Not by `eprintln!`, which a test that passes keeps to itself.
        let why = b"skipped: no PID namespace can be created here\n";
        std::io::stderr().write_all(why).unwrap();
        return;
    }
    let seconds = std::env::var("HELIO_STORM_SECONDS").map_or(60, |s| s.parse().unwrap());
    for (role, namespaces) in [("any", PidNamespaces::Any), ("one", PidNamespaces::One)] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("j");
        // In the second round this process keeps the journal for its namespace.
        let keeper = Journal::open(&dir, options(namespaces)).unwrap();
        topic(&keeper).unwrap();
        let tally = rage(&dir, role, Duration::from_secs(seconds) / 2);
        let (stored, lost) = check(&dir, &tally, namespaces);
        eprintln!(
            "{} acknowledged, {stored} in the log, {} waited for a live writer, {} refused by name",
            tally.acknowledged.len(),
            tally.waited,
            tally.refused,
        );
        assert_eq!(tally.other, [""; 0]);
        // Who is fenced while it lives was taken for dead.
        let (tried, unreported) = (tally.kills, tally.fenced);
        let storm = Storm { tried, survived: tried, lost: lost as u64, unreported };
        storm.report(&format!("kills in two PID namespaces, pid_namespaces={role}"));
        assert!(!tally.acknowledged.is_empty() && tally.waited > 0);
        assert_eq!(tally.refused > 0, namespaces == PidNamespaces::One);
        drop(keeper);
    }
}
