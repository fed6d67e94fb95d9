//! Logging on each transport that keeps it by itself: what is logged arrives once, in order, and
//! the account closes. On DDS, where a service keeps it, the tests of `log demo` see to that.

use std::collections::BTreeMap;
use std::time::Duration;

use helio_bus::Bus;
use helio_logging::{
    Follow, Lanes, Level, LogOptions, Logging, Next, Reader, ReaderOptions, RecordCounts, Records,
    Start, log,
};

/// A loaded machine is slow.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
const PRODUCERS: [&str; 2] = ["CONTROL", "CAMERA"];
/// Of these, each producer logs one in turn.
const LEVELS: [Level; 4] = [Level::DEBUG, Level::INFO, Level::ERROR, Level::ALERT];
const RECORDS: u64 = 2_000;

fn lanes(prefix: &str) -> Lanes {
    Lanes::default().prefix(prefix)
}

fn read(bus: &Bus, prefix: &str, options: ReaderOptions) -> Records {
    Reader::open(bus, &lanes(prefix), options).unwrap().records()
}

fn start(bus: Bus, prefix: &str) -> Logging {
    let options = LogOptions { lanes: lanes(prefix), batch_records: 100, ..LogOptions::default() };
    Logging::start(bus, options).unwrap()
}

fn log_all(logging: &Logging) {
    let logger = logging.logger("mount");
    for n in 0..RECORDS {
        log!(logger, LEVELS[n as usize % LEVELS.len()], "step {}", n);
    }
}

/// Reads so many records; each producer's in each lane come as they are numbered.
fn take(records: &mut Records, count: u64, numbers: &mut BTreeMap<(String, Level), u64>) {
    for taken in 0..count {
        let (record, _) = loop {
            match records.next(READ_TIMEOUT).unwrap() {
                Next::Record(record, producer) => break (record, producer),
                Next::News(_) => {}
                other => panic!("{other:?} behind {taken} of {count}: {:?}", records.account()),
            }
        };
        let number = numbers.entry((record.producer.clone(), record.level)).or_insert(0);
        *number += 1;
        assert_eq!(record.sequence, *number, "{record:?}");
    }
}

/// What was delivered of all that was offered, with nothing else to be said.
fn whole(delivered: u64) -> RecordCounts {
    RecordCounts { delivered, ..RecordCounts::default() }
}

/// Two producers and a reader that is there before them.
fn live(connect: impl Fn(&str) -> Bus, prefix: &str) {
    let mut records = read(&connect("reader"), prefix, ReaderOptions::from(Start::Latest));
    let all = PRODUCERS.map(|name| start(connect(name), prefix));
    std::thread::scope(|scope| all.iter().for_each(|logging| _ = scope.spawn(|| log_all(logging))));
    let mut numbers = BTreeMap::new();
    take(&mut records, RECORDS * PRODUCERS.len() as u64, &mut numbers);
    for logging in &all {
        assert!(logging.flush(READ_TIMEOUT), "{:?}", logging.trouble());
        let figures = logging.figures();
        assert_eq!((figures.offered, figures.published, figures.shed), (RECORDS, RECORDS, 0));
    }
    assert_eq!(records.account().total(), whole(RECORDS * PRODUCERS.len() as u64));
}

/// What is kept, read in two parts: the second begins where the first has ended.
fn kept(bus: &Bus, prefix: &str) {
    let all = RECORDS * PRODUCERS.len() as u64;
    let options = |start| ReaderOptions::from(start).follow(Follow::No);
    let mut numbers = BTreeMap::new();
    let mut records = read(bus, prefix, options(Start::Earliest));
    take(&mut records, all / 3 + 7, &mut numbers);
    let cursor = records.cursor().to_string().parse().unwrap();
    drop(records);
    let mut records = read(bus, prefix, options(Start::Cursor(cursor)));
    take(&mut records, all - all / 3 - 7, &mut numbers);
    let end = records.next(READ_TIMEOUT).unwrap();
    assert!(matches!(end, Next::End), "{end:?}");
    assert_eq!(numbers.values().sum::<u64>(), all);
}

#[test]
fn in_memory() {
    let bus = Bus::connect("memory:").unwrap();
    // One memory has one producer's name, so there is one of them.
    let mut records = read(&bus, "log", ReaderOptions::from(Start::Latest));
    let logging = start(bus.clone(), "log");
    log_all(&logging);
    take(&mut records, RECORDS, &mut BTreeMap::new());
    assert!(logging.flush(READ_TIMEOUT));
    assert_eq!(records.account().total(), whole(RECORDS));
}

#[test]
fn on_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().join("journal").display());
    let connect = |name: &str| Bus::builder().producer(name).connect(&url).unwrap();
    live(connect, "log");
    kept(&connect("late"), "log");
}

#[cfg(feature = "kafka")]
#[test]
fn on_kafka_also_where_the_broker_goes_and_comes() {
    let Some(broker) = crate::kafka::broker() else { return };
    let prefix = crate::kafka::unique("log");
    live(|name| broker.bus(name), &prefix);
    kept(&broker.bus("late"), &prefix);

    let prefix = crate::kafka::unique("outage");
    let mut records = read(&broker.bus("reader"), &prefix, ReaderOptions::from(Start::Latest));
    let logging = start(broker.bus("CONTROL"), &prefix);
    let mut numbers = BTreeMap::new();
    log_all(&logging);
    take(&mut records, RECORDS, &mut numbers);
    broker.does("kill");
    log_all(&logging);
    broker.does("restart");
    take(&mut records, RECORDS, &mut numbers);
    assert!(logging.flush(READ_TIMEOUT), "{:?}", logging.trouble());
    let total = records.account().total();
    assert_eq!((total.delivered, total.lost, total.shed), (2 * RECORDS, 0, 0));
}
