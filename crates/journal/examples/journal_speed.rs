//! The speed of the journal alone, with a separate process for each side.
//!
//! `journal_speed DIR latency PAYLOAD RATE_HZ COUNT` prints the one-way latency from the intended
//! send time; `journal_speed DIR throughput PAYLOAD COUNT [WRITERS [READERS [STALLED]]]` the rate,
//! from the first append until the reader has received the last record, and CPU time a record;
//! `journal_speed DIR keys COUNT` the time that a late joiner needs for the newest record of each
//! key.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use helio_core::{ProducerName, Tai, TopicName};
use helio_journal::{
    From, Item, Journal, JournalOptions, LastValue, Ownership, Record, Topic, TopicConfig,
    WriterOptions,
};

type Failure = Box<dyn std::error::Error>;

fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn open(dir: &str) -> Result<(Journal, Topic), Failure> {
    let journal = Journal::open(Path::new(dir), JournalOptions::default())?;
    let retention_bytes = std::env::var("RETENTION").ok().map(|b| b.parse()).transpose()?;
    let last_value =
        if std::env::var("KEYS").is_ok() { LastValue::Keep } else { LastValue::Forget };
    let config = TopicConfig { last_value, retention_bytes, ..TopicConfig::default() };
    let topic = journal.create_topic(&TopicName::new("speed")?, &config)?;
    Ok((journal, topic))
}

fn options(name: &str) -> Result<WriterOptions, Failure> {
    Ok(WriterOptions { producer: ProducerName::new(name)?, ownership: Ownership::Shared })
}

/// Reads `count` records and prints what was found.
fn reader(dir: &str, count: usize, latency: bool) -> Result<(), Failure> {
    let (journal, topic) = open(dir)?;
    let (bell, mut reader) = (journal.bell()?, topic.reader(0, From::Latest)?);
    println!("ready");
    std::io::stdout().flush()?;
    let (mut seen, mut lost, mut late, mut start, mut waits) = (0, 0, Vec::new(), 0, 0);
    while seen + (lost as usize) < count {
        match reader.next()? {
            Some(Item::Sample(s)) => {
                if seen == 0 {
                    start = cpu_ns();
                }
                if latency {
                    late.push(now_ns() - s.time.nanos() as u64);
                }
                std::hint::black_box(s.payload);
                seen += 1;
            }
            Some(Item::Gap(gap)) => lost += gap.to - gap.from,
            None => {
                if !reader.arm(&bell) {
                    waits += 1;
                    bell.wait(None);
                }
            }
        }
    }
    let (end, cpu) = (now_ns(), cpu_ns() - start);
    late.sort_unstable();
    let at = |q: f64| late.get((late.len() as f64 * q) as usize).copied().unwrap_or(0) as f64 / 1e3;
    println!(
        "{end} {cpu} {seen} {lost} {waits} p50={:.1} p99={:.1} max={:.1}",
        at(0.5),
        at(0.99),
        at(0.9999)
    );
    Ok(())
}

fn until(t: u64) {
    std::thread::sleep(Duration::from_nanos(t.saturating_sub(now_ns() + 200_000)));
    while now_ns() < t {
        std::hint::spin_loop();
    }
}

fn child(args: &[&str]) -> Result<(Child, BufReader<std::process::ChildStdout>), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(args).stdout(Stdio::piped()).spawn()?;
    let mut out = BufReader::new(child.stdout.take().ok_or("no output")?);
    out.read_line(&mut String::new())?;
    Ok((child, out))
}

fn latency(dir: &str, payload: usize, rate: u64, count: usize) -> Result<(), Failure> {
    let (_journal, topic) = open(dir)?;
    let mut writer = topic.writer(0, &options("speed")?)?;
    let (mut process, mut out) = child(&[dir, "read", &count.to_string(), "latency"])?;
    let (body, start) = (vec![7; payload], now_ns() + 50_000_000);
    for i in 0..count as u64 {
        let t = start + i * 1_000_000_000 / rate;
        until(t);
        let time = Tai::from_nanos(t as i64);
        writer.append(&Record { payload: &body, time, ..Record::default() })?;
    }
    let mut line = String::new();
    out.read_line(&mut line)?;
    process.wait()?;
    println!("latency {payload}: {}", line.trim());
    Ok(())
}

fn write(dir: &str, name: &str, payload: usize, count: usize) -> Result<(), Failure> {
    let (_journal, topic) = open(dir)?;
    let mut writer = topic.writer(0, &options(name)?)?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let (body, start, cpu) = (vec![7; payload], now_ns(), cpu_ns());
    for _ in 0..count {
        writer.append(&Record { payload: &body, ..Record::default() })?;
    }
    println!("{start} {} {}", now_ns(), cpu_ns() - cpu);
    Ok(())
}

fn throughput(dir: &str, payload: usize, count: usize, more: &[usize]) -> Result<(), Failure> {
    let (_journal, topic) = open(dir)?;
    let (writers, readers) =
        (more.first().copied().unwrap_or(1), more.get(1).copied().unwrap_or(1));
    let _stalled: Result<Vec<_>, _> =
        (0..more.get(2).copied().unwrap_or(0)).map(|_| topic.reader(0, From::Latest)).collect();
    let (each, all) = ((count / writers).to_string(), (count / writers * writers).to_string());
    let mut reading = Vec::new();
    for _ in 0..readers {
        reading.push(child(&[dir, "read", &all, "plain"])?);
    }
    let mut writing = Vec::new();
    for i in 0..writers {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([dir, "write", &format!("w{i}"), &payload.to_string(), &each]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut out = BufReader::new(child.stdout.take().ok_or("no output")?);
        out.read_line(&mut String::new())?;
        writing.push((child, out));
    }
    for (child, _) in &mut writing {
        child.stdin.take().ok_or("no input")?.write_all(b"go\n")?;
    }
    let (mut start, mut written, mut cpu) = (u64::MAX, 0, 0);
    for (child, out) in &mut writing {
        let mut line = String::new();
        out.read_line(&mut line)?;
        let words: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        let words = words?;
        (start, written, cpu) = (start.min(words[0]), written.max(words[1]), cpu + words[2]);
        child.wait()?;
    }
    let total = (count / writers * writers) as f64;
    let write_rate = total * 1e9 / (written - start) as f64;
    for (child, out) in &mut reading {
        let mut line = String::new();
        out.read_line(&mut line)?;
        child.wait()?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let end: u64 = words[0].parse()?;
        println!(
            "throughput {payload} x{writers}: write/s {write_rate:.0} read/s {:.0} cpu_us w {:.3} \
             r {:.3} \
             lost {} waits {}",
            total * 1e9 / (end - start) as f64,
            cpu as f64 / total / 1e3,
            words[1].parse::<f64>()? / total / 1e3,
            words[3],
            words[4],
        );
    }
    Ok(())
}

fn keys(dir: &str, count: usize) -> Result<(), Failure> {
    let journal = Journal::open(Path::new(dir), JournalOptions::default())?;
    let topic = journal.create_topic(&TopicName::new("keys")?, &TopicConfig::default())?;
    let mut writer = topic.writer(0, &options("speed")?)?;
    for i in 0..count * 3 {
        let key = ((i * 7919) % count).to_le_bytes();
        writer.append(&Record { key: &key, payload: &[1; 200], ..Record::default() })?;
    }
    for _ in 0..5 {
        let start = now_ns();
        let mut reader = topic.reader(0, From::LastPerKey(1))?;
        let mut seen = 0;
        while reader.next()?.is_some() {
            seen += 1;
        }
        println!("{seen} keys in {:.2} ms", (now_ns() - start) as f64 / 1e6);
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let usage = "journal_speed DIR latency|throughput|keys …; see the source's head";
    match words[..] {
        [dir, "read", count, kind] => reader(dir, count.parse()?, kind == "latency"),
        [dir, "write", name, payload, count] => write(dir, name, payload.parse()?, count.parse()?),
        [dir, "latency", payload, rate, count] => {
            latency(dir, payload.parse()?, rate.parse()?, count.parse()?)
        }
        [dir, "throughput", payload, count, ..] => {
            let more: Result<Vec<usize>, _> = words[4..].iter().map(|w| w.parse()).collect();
            throughput(dir, payload.parse()?, count.parse()?, &more?)
        }
        [dir, "keys", count] => keys(dir, count.parse()?),
        _ => Err(usage.into()),
    }
}
