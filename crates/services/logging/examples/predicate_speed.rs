//! How long a record takes that a predicate is asked of, in packets of 1,000 records; run by hand:
//! `cargo run --release -p helio-logging --example predicate_speed`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use helio_core::Tai;
use helio_logging::{
    Audiences, Level, Numbers, Packet, PacketWriter, Predicate, Record, Views, words,
};

const RECORDS: usize = 1_000;
const ROUNDS: usize = 2_000;
const REPEATS: usize = 5;

const PREDICATES: [&str; 10] = [
    "",
    "level >= WARNING",
    "level >= WARNING and logger = CONTROL/**",
    "view Operator",
    "host = dv* and line > 100",
    "logger = CONTROL/DV11/* and antenna = DV11",
    "timeout",
    "\"lost lock\" and level >= WARNING",
    "message ~ \"lost (lock|track)\"",
    "data.encoder > 900000",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = packet()?;
    let packet = Packet::parse(&bytes)?;
    println!("{} records, {} bytes each; best of {REPEATS}", packet.len(), bytes.len() / RECORDS);
    for text in PREDICATES {
        let selector = text.parse::<Predicate>()?.compile(Tai::default(), &Views::default())?;
        let found = selector.select(&packet).count();
        let best = best_of(|| {
            black_box(selector.select(black_box(&packet)).count());
        });
        let alone = best_of(|| {
            let records = black_box(&packet).records();
            black_box(records.filter(|record| selector.matches_ref(*record)).count());
        });
        let (best, alone) = (nanos(best), nanos(alone));
        println!("{best:8.1} ns a record, {alone:8.1} alone, {found:4} match: {text}");
    }
    let records: Vec<_> =
        packet.records().map(|record| record.to_record()).collect::<Result<_, _>>()?;
    let best = best_of(|| {
        for record in &records {
            black_box(words(record.text.as_deref().unwrap_or_default()).count());
        }
    });
    println!("{:8.1} ns a message: words", nanos(best));
    let best = best_of(|| _ = black_box(Packet::parse(black_box(&bytes))));
    println!("{:8.1} ns a record: Packet::parse", nanos(best));
    Ok(())
}

fn best_of(mut act: impl FnMut()) -> Duration {
    let mut once = || {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| act());
        start.elapsed()
    };
    (0..REPEATS).map(|_| once()).min().unwrap_or_default()
}

fn nanos(elapsed: Duration) -> f64 {
    elapsed.as_nanos() as f64 / (ROUNDS * RECORDS) as f64
}

/// Records of ten loggers and all levels.
fn packet() -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut writer = PacketWriter::default();
    for number in 0..RECORDS {
        let level = Level::ALL[number * 7 % 10];
        let parts =
            [["CONTROL", "CORR"][number % 2], ["DV11", "DV12", "DV13", "DV14", "DV15"][number % 5]];
        let text = format!("antenna {} lost lock after {number} s, trying again", parts[1]);
        let time = Tai::from_nanos(number as i64);
        let mut record = Record::new(time, level, &format!("{}/Mount", parts.join("/")), &text);
        record.host = "dv11-abm".to_owned();
        record.site.line = 120;
        record.antenna = parts[1].to_owned();
        record.thread = "control".to_owned();
        record.data = vec![("encoder".to_owned(), (number as i64 * 1_000).into())];
        record.audiences = Audiences::of([["Operator", "Developer", "SciLog"][number % 3]]);
        writer.push(&record)?;
    }
    Ok(writer.finish(Numbers { lane: None, first: 1, shed: 0 }).to_vec())
}
