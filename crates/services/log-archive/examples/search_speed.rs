//! What an archive of many records takes, and how long searches in it do; run by hand:
//! `cargo run --release -p helio-log-archive --example search_speed -- FOLDER [RECORDS]`.
//!
//! The folder has to be on a disk with some 100 bytes a record, and is left as it is: a second run
//! with RECORDS 0 searches only.

use std::path::Path;
use std::time::{Duration, Instant};

use helio_bus::{Bus, Message, Publisher, Tai};
use helio_log_archive::{ArchiveOptions, Archiver, Retention, Search};
use helio_logging::{Lanes, Level, Numbers, PacketWriter, Predicate, Record, Views};

const PACKET: usize = 1_000;
const REPEATS: usize = 5;
/// Records are a millisecond apart.
const STEP: i64 = 1_000_000;
const START: &str = "2026-11-21T00:00:00Z";
const PREDICATES: [&str; 10] = [
    "",
    "level >= ERROR",
    "w4711000",
    "timeout level = DEBUG time >= 2026-11-21T00:20:00Z time < 2026-11-21T00:30:00Z",
    "timeout level >= ERROR time >= 2026-11-21T00:20:00Z time < 2026-11-21T01:30:00Z",
    "timeout level = WARNING",
    "logger = CONTROL/DV11/* and \"lost lock\" level >= WARNING",
    "antenna = DV99",
    "data.encoder > 99999999",
    "message ~ \"lost (lock|track) after 47\\d+ s\"",
];

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("name a folder")?;
    let records: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let folder = Path::new(&folder);
    if records > 0 {
        fill(folder, records)?;
    }
    println!("{:.1} MB of files", bytes(folder)? as f64 / 1e6);
    PREDICATES.iter().try_for_each(|text| time(folder, text))
}

fn time(folder: &Path, text: &str) -> Result<(), Failure> {
    let predicate: Predicate = text.parse()?;
    let selector = predicate.compile(START.parse()?, &Views::default())?;
    let mut millis = Vec::new();
    let mut counts = Search::open(folder, selector.clone())?.counts();
    for _ in 0..REPEATS {
        let start = Instant::now();
        counts = Search::open(folder, selector.clone())?.count();
        millis.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let start = Instant::now();
    let found = Search::open(folder, selector)?.take(100).count();
    let values = start.elapsed().as_secs_f64() * 1e3;
    let best = millis.iter().copied().fold(f64::INFINITY, f64::min);
    println!(
        "{:8.1} ms first, {best:8.1} ms best of {REPEATS}, {values:8.1} ms for {found:3} records; \
         {} records, {} of {} blocks opened: {text}",
        millis[0], counts.records, counts.opened, counts.blocks,
    );
    Ok(())
}

fn fill(folder: &Path, records: u64) -> Result<(), Failure> {
    let bus = Bus::connect("memory:")?;
    let forever = Level::ALL.into_iter().fold(ArchiveOptions::default(), |options, level| {
        options.retention(level, Retention::default())
    });
    let mut keeper = Archiver::open(&bus, &Lanes::default(), folder, forever, None)?;
    let open = |level: &Level| Ok((bus.topic(Lanes::default().topic(*level)?)?.publisher()?, 1));
    let mut ways = Level::ALL.iter().map(open).collect::<Result<Vec<_>, Failure>>()?;
    let mut writers: Vec<_> = Level::ALL.iter().map(|_| PacketWriter::default()).collect();
    let (start, mut kept): (Tai, _) = (START.parse()?, Duration::ZERO);
    for number in 0..records {
        let lane = lane(number);
        writers[lane].push(&record(number, start, Level::ALL[lane]))?;
        if writers[lane].len() == PACKET {
            publish(&mut ways[lane], &mut writers[lane], Level::ALL[lane])?;
        }
        if number % 20_000 == 0 {
            kept += archive(&mut keeper)?;
        }
    }
    for (lane, writer) in writers.iter_mut().enumerate() {
        publish(&mut ways[lane], writer, Level::ALL[lane])?;
    }
    kept += archive(&mut keeper)?;
    keeper.finish(|_| {})?;
    println!(
        "{records} records archived in {:.1} s ({:.2} us a record), {:.1} bytes a record",
        kept.as_secs_f64(),
        kept.as_secs_f64() * 1e6 / records as f64,
        bytes(folder)? as f64 / records as f64
    );
    Ok(())
}

fn archive(keeper: &mut Archiver) -> Result<Duration, Failure> {
    let begun = Instant::now();
    while keeper.step(Duration::ZERO, |told| eprint_other(&told))? {}
    Ok(begun.elapsed())
}

fn eprint_other(told: &helio_log_archive::ArchiveEvent) {
    if !matches!(told, helio_log_archive::ArchiveEvent::Written { .. }) {
        eprintln!("{told}");
    }
}

fn publish(
    (publisher, first): &mut (Publisher, u64),
    writer: &mut PacketWriter,
    level: Level,
) -> Result<(), Failure> {
    let count = writer.len() as u64;
    let numbers = Numbers { lane: Some(level), first: *first, shed: 0 };
    publisher.publish(Message::new(writer.finish(numbers))).wait()?;
    *first += count;
    Ok(())
}

/// Half of all is DEBUG, a quarter TRACE; one of a hundred is a WARNING, one of a thousand more.
fn lane(number: u64) -> usize {
    match number.wrapping_mul(2_654_435_761) % 1_000 {
        0..=499 => 2,
        500..=749 => 0,
        750..=874 => 3,
        875..=989 => 4,
        990..=998 => 5,
        _ => 6 + (number / 1_000 % 4) as usize,
    }
}

/// A twentieth is about a timeout, and has a word of its own.
fn record(number: u64, start: Tai, level: Level) -> Record {
    let antenna = format!("DV{:02}", number / 7 % 50);
    let time = Tai::from_nanos(start.nanos() + number as i64 * STEP);
    let seconds = number.wrapping_mul(2_654_435_761) % 100_003;
    let text = match number % 20 {
        0 => format!("timeout of the encoder after {seconds} s, request w{number}"),
        1..=4 => format!("antenna {antenna} lost lock after {seconds} s, trying again"),
        _ => format!("axis is at {seconds} counts, commanded {}, all is well", seconds + 3),
    };
    let logger = format!("CONTROL/{antenna}/{}", ["Mount", "LO", "Dewar"][(number % 3) as usize]);
    let mut record = Record::new(time, level, &logger, &text);
    record.host = format!("{}-abm", antenna.to_lowercase());
    record.process = format!("mountContainer:{}", number / 7 % 50 + 4_000);
    record.site.file = "mount/axis.cpp".to_owned();
    record.site.line = (number % 40) as u32 + 100;
    record.site.routine = "Axis::track".to_owned();
    record.thread = "control".to_owned();
    record.antenna = antenna;
    record.data = vec![("encoder".to_owned(), ((number * 37 % 8_388_608) as i64).into())];
    record
}

/// What the files have.
fn bytes(folder: &Path) -> Result<u64, Failure> {
    let (mut sum, mut folders) = (0, vec![folder.to_owned()]);
    while let Some(path) = folders.pop() {
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => sum += entry.metadata()?.len(),
            }
        }
    }
    Ok(sum)
}
