//! How many records a second one producer publishes on the journal, and what each costs.
//!
//! `cargo run --release -p helio-logging --example throughput [-- --json] [FOLDER]`
//!
//! For records whose message is a text of 64, 300 and 1,000 bytes, in batches and one by one,
//! without a reader and with one in another process. The producer goes as fast as nothing is shed:
//! it pauses while its ring is more than 60 % full. `*_us` are microseconds of processor time a
//! record: of the thread that logs, of the one that publishes, of the reader's process.

use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_logging::{
    Follow, Item, Lanes, Level, LogOptions, Logging, Reader, ReaderOptions, Start, log,
};

type Failed = Box<dyn std::error::Error>;

struct Case {
    size: usize,
    batch: usize,
    records: u64,
    reader: bool,
}

struct Outcome {
    per_s: f64,
    producer_us: f64,
    sender_us: f64,
    reader_us: Option<f64>,
    shed: u64,
}

/// Processor time of threads, by the kernel's count: of one by its name, or of all.
fn cpu(name: Option<&str>) -> Result<Duration, Failed> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let of = std::fs::read_to_string(task.join("comm"))?;
        if name.is_none_or(|name| of.trim() == name) {
            let times = std::fs::read_to_string(task.join("schedstat"))?;
            sum += times.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
    }
    Ok(Duration::from_nanos(sum))
}

fn run(url: &str, case: &Case) -> Result<Outcome, Failed> {
    let options = LogOptions { batch_records: case.batch, ..LogOptions::default() };
    let room = options.ring_bytes as u64 * 6 / 10 / (case.size as u64 + 32);
    let logging = Logging::start(Bus::connect(url)?, options)?;
    let logger = logging.logger("CONTROL/DV11/Mount");
    let mut reader = case.reader.then(|| begin(url, case.records)).transpose()?;
    let text = "m".repeat(case.size);
    let (before, start) = (cpu(Some("producer"))?, Instant::now());
    for n in 0..case.records {
        if n % 64 == 0 {
            let done = || {
                let figures = logging.figures();
                figures.published + figures.shed
            };
            while n - done() > room {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        log!(logger, Level::INFO, "{}", text.as_str());
    }
    let producer = cpu(Some("producer"))? - before;
    assert!(logging.flush(Duration::from_secs(60)), "the bus takes nothing");
    let mut wall = start.elapsed();
    let sender = cpu(Some("helio-log"))?;
    let mut reader_us = None;
    if let Some((child, lines)) = &mut reader {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        wall = start.elapsed();
        reader_us = Some(line.trim().parse::<f64>()? / case.records as f64);
        child.wait()?;
    }
    let each = |time: Duration| time.as_nanos() as f64 / 1e3 / case.records as f64;
    Ok(Outcome {
        per_s: case.records as f64 / wall.as_secs_f64(),
        producer_us: each(producer),
        sender_us: each(sender),
        reader_us,
        shed: logging.figures().shed,
    })
}

/// Starts a reader in another process, and waits until it reads.
fn begin(url: &str, records: u64) -> Result<(Child, BufReader<std::process::ChildStdout>), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    let command = command.args(["--read", url, &records.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("it has no output")?);
    lines.read_line(&mut String::new())?;
    Ok((child, lines))
}

/// Reads so many records, and says how many microseconds of processor time that took.
fn read(url: &str, records: u64) -> Result<(), Failed> {
    let bus = Bus::connect(url)?;
    let options = ReaderOptions::from(Start::Latest).follow(Follow::Yes);
    let mut reader = Reader::open(&bus, &Lanes::default(), options)?;
    println!("ready");
    let before = cpu(None)?;
    let (mut seen, mut bytes) = (0, 0);
    while seen < records {
        reader.visit(usize::MAX, |item| {
            if let Item::Record(record, _) = item {
                seen += 1;
                bytes += record.body().len();
            }
            ControlFlow::Continue(())
        })?;
        if seen < records {
            reader.wait(Duration::from_secs(10))?;
        }
    }
    std::hint::black_box(bytes);
    println!("{}", (cpu(None)? - before).as_micros());
    Ok(())
}

fn measure(arguments: &[String]) -> Result<(), Failed> {
    let json = arguments.iter().any(|argument| argument == "--json");
    let folder = arguments.iter().find(|argument| !argument.starts_with("--"));
    let base = folder.map_or_else(std::env::temp_dir, Into::into);
    let mut cases = Vec::new();
    for reader in [false, true] {
        let case = |size, batch, records| Case { size, batch, records, reader };
        cases.extend([64, 300, 1_000].map(|size| case(size, 1_000, 2_000_000)));
        cases.push(case(300, 1, 300_000));
    }
    if !json {
        println!(
            "{:>5} {:>6} {:>7} {:>9} {:>12} {:>10} {:>10} {:>5}",
            "bytes",
            "batch",
            "readers",
            "records/s",
            "producer_us",
            "sender_us",
            "reader_us",
            "shed"
        );
    }
    for case in &cases {
        let folder = tempfile::tempdir_in(&base)?;
        let outcome = run(&format!("journal:{}", folder.path().display()), case)?;
        let Case { size, batch, reader, .. } = *case;
        let Outcome { per_s, producer_us, sender_us, reader_us, shed } = outcome;
        if json {
            let reader_us = reader_us.map_or("null".to_owned(), |us| format!("{us:.3}"));
            println!(
                "{{\"bytes\": {size}, \"batch\": {batch}, \"readers\": {}, \"records_per_s\": \
                 {per_s:.0}, \"producer_us\": {producer_us:.3}, \"sender_us\": {sender_us:.3}, \
                 \"reader_us\": {reader_us}, \"shed\": {shed}}}",
                usize::from(reader)
            );
        } else {
            let reader_us = reader_us.map_or("-".to_owned(), |us| format!("{us:.3}"));
            println!(
                "{size:>5} {batch:>6} {:>7} {per_s:>9.0} {producer_us:>12.3} {sender_us:>10.3} \
                 {reader_us:>10} {shed:>5}",
                usize::from(reader)
            );
        }
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [what, url, records] = arguments.as_slice()
        && what == "--read"
    {
        return read(url, records.parse()?);
    }
    // Its name is that of the thread's processor time.
    let thread = std::thread::Builder::new().name("producer".to_owned());
    let measured = thread.spawn(move || measure(&arguments).map_err(|error| error.to_string()))?;
    measured.join().map_err(|_| "the producer has panicked")??;
    Ok(())
}
