//! Levels while programs run: set by others, for a time, in all of them.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use helio_bus::{Bus, Message, Start, Subscribe, Tai, TestClock, TopicSpec};
use helio_logging::{
    Lanes, Level, LevelEntry, LevelTable, LogOptions, Logging, Packet, Record, Threshold, log,
};

use crate::support::HANG_TIMEOUT;

fn entry(pattern: &str, remote: Level, when: Tai) -> LevelEntry {
    LevelEntry {
        pattern: pattern.parse().unwrap(),
        remote,
        local: None,
        until: None,
        who: "ops@dv11".to_owned(),
        why: "lost lock".to_owned(),
        when,
    }
}

/// The records of a level that are there.
fn records(bus: &Bus, level: Level) -> Vec<Record> {
    let topic = bus.topic(Lanes::default().topic(level).unwrap()).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut records = Vec::new();
    while let Some(event) = samples.try_next().unwrap() {
        let sample = event.into_sample().expect("nothing but samples");
        let packet = Packet::parse(&sample.payload).unwrap();
        records.extend(packet.records().map(|record| record.to_record().unwrap()));
    }
    records
}

#[test]
fn what_is_set_holds_in_every_process_until_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().join("journal").display());
    let clock = TestClock::new("2026-11-22T03:00:00Z".parse().unwrap());
    let bus = |producer: &str| {
        let builder = Bus::builder().producer(producer).clock(Arc::new(clock.clone()));
        builder.connect(&url).unwrap()
    };
    let start = |producer| Logging::start(bus(producer), LogOptions::default()).unwrap();
    let (first, second) = (start("first"), start("second"));
    let mount = first.logger("CONTROL/DV11/Mount");
    mount.set_level(Level::ERROR);
    assert!(!mount.is_enabled(Level::WARNING));

    let operator = bus("operator");
    let table = LevelTable::make(&operator, &Lanes::default()).unwrap();
    let now = || operator.clock().now();
    let until = Tai::from_nanos(now().nanos() + 600 * 1_000_000_000);
    let below = LevelEntry { until: Some(until), ..entry("CONTROL/DV11/*", Level::TRACE, now()) };
    table.set(&below).unwrap();
    for logging in [&first, &second] {
        assert_eq!(logging.wait_levels(0, HANG_TIMEOUT), 1);
        assert_eq!(logging.level_of("CONTROL/DV11/Mount"), Level::TRACE);
        assert_eq!(logging.level_of("CONTROL/DV12/Mount"), Level::DELOUSE);
    }
    assert!(mount.is_enabled(Level::TRACE), "a logger that was there");
    assert!(second.logger("CONTROL/DV11/Dome").is_enabled(Level::TRACE), "one that comes");
    mount.set_level(Level::CRITICAL);
    assert!(mount.is_enabled(Level::TRACE), "run time goes before the program");
    let late = start("late");
    assert_eq!(late.level_of("CONTROL/DV11/Mount"), Level::TRACE, "a process that comes");

    table.set(&entry("CONTROL/DV11/Mount", Level::WARNING, now())).unwrap();
    assert_eq!(first.wait_levels(1, HANG_TIMEOUT), 2);
    assert!(mount.is_enabled(Level::WARNING) && !mount.is_enabled(Level::NOTICE));
    table.clear(&entry("CONTROL/DV11/Mount", Level::WARNING, now())).unwrap();
    assert_eq!(first.wait_levels(2, HANG_TIMEOUT), 3);
    assert!(mount.is_enabled(Level::TRACE));

    clock.advance(Duration::from_secs(599));
    log!(mount, Level::TRACE, "still");
    assert!(first.flush(HANG_TIMEOUT));
    clock.advance(Duration::from_secs(1));
    assert_eq!(first.wait_levels(3, HANG_TIMEOUT), 4);
    assert!(mount.is_enabled(Level::CRITICAL) && !mount.is_enabled(Level::ERROR));
    assert_eq!(first.lowest_of("CONTROL/DV11/Mount"), Level::CRITICAL);
    drop((first, second, late));
    assert_eq!(records(&operator, Level::TRACE).len(), 1);
    let said = records(&operator, Level::INFO);
    // The second has such a logger, too, and may have ended before its time was over.
    assert!((1..=2).contains(&said.len()), "{said:?}");
    assert_eq!(said[0].message(), "the levels of CONTROL/DV11/* are over; 1 loggers had them");
    assert_eq!(
        (said[0].logger.as_str(), said[0].data[2].1.to_string()),
        ("log/levels", "ops@dv11".into())
    );
}

#[test]
fn what_says_nothing_of_levels_is_passed_over_and_counted() {
    let bus = Bus::connect("memory:").unwrap();
    let logging = Logging::start(bus.clone(), LogOptions::default()).unwrap();
    let levels = bus.topic(TopicSpec::new("log/levels").unwrap()).unwrap();
    let stranger = levels.publisher().unwrap();
    stranger.publish(Message::new(b"DEBUG").key(b"*")).wait().unwrap();
    let table = LevelTable::make(&bus, &Lanes::default()).unwrap();
    table.set(&entry("Dome", Level::ERROR, Tai::from_nanos(1))).unwrap();
    assert_eq!(logging.wait_levels(0, HANG_TIMEOUT), 1);
    assert!(logging.flush(HANG_TIMEOUT));
    assert_eq!(logging.figures().levels_passed_over, 1);
    assert_eq!(logging.level_of("Dome"), Level::ERROR);
    assert_eq!(logging.level_of("Mount"), Level::DELOUSE);
}

#[test]
fn who_waits_for_nothing_is_told_so() {
    let bus = Bus::connect("memory:").unwrap();
    let logging = Logging::start(bus, LogOptions::default()).unwrap();
    assert_eq!(logging.wait_levels(0, Duration::ZERO), 0);
    assert_eq!(logging.wait_levels(7, Duration::ZERO), 0, "it is another one already");
}

const CHILD: &str = "HELIO_TEST_PRINTS";

/// A process of its own prints the records, as they go to its standard error.
#[test]
fn records_of_the_local_level_are_printed_whether_they_are_published_or_not() {
    if std::env::var_os(CHILD).is_some() {
        return prints();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    // The module's path in the test program, which does not have the crate's name.
    let (_crate_name, module) = module_path!().split_once("::").unwrap();
    let name = "records_of_the_local_level_are_printed_whether_they_are_published_or_not";
    child.args(["--exact", &format!("{module}::{name}"), "--nocapture"]).env(CHILD, "1");
    let ran = child.output().unwrap();
    let (out, err) =
        (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert!(ran.status.success() && out.contains("1 passed"), "{out}{err}");
    let lines: Vec<_> = err.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    let expected = [
        "WARNING   dome: door 2 is open wind=7.5",
        "WARNING   dome: kept",
        "ERROR     dome: broken",
        "ALERT     dome: at once",
        "INFO      mount: at run time",
    ];
    assert_eq!(lines, expected);
}

fn prints() {
    let bus = Bus::connect("memory:").unwrap();
    let options = LogOptions {
        level: Level::ERROR,
        local: Threshold::From(Level::WARNING),
        keep: Some(Level::NOTICE),
        ..LogOptions::default()
    };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let dome = logging.logger("dome");
    assert!(!dome.is_enabled(Level::INFO));
    log!(dome, Level::NOTICE, "only kept");
    log!(dome, Level::WARNING, "door {} is open", 2; wind = 7.5);
    log!(dome, Level::WARNING, "kept");
    assert!(logging.flush(HANG_TIMEOUT));
    assert_eq!(logging.figures().offered, 0, "what is printed only is not offered to the bus");
    log!(dome, Level::ERROR, "broken");
    assert!(logging.flush(HANG_TIMEOUT));
    log!(dome, Level::ALERT, "at once");
    assert!(logging.flush(HANG_TIMEOUT));
    let table = LevelTable::make(&bus, &Lanes::default()).unwrap();
    let local = Some(Threshold::From(Level::INFO));
    let mount = LevelEntry { local, ..entry("mount", Level::ERROR, Tai::from_nanos(1)) };
    table.set(&mount).unwrap();
    assert_eq!(logging.wait_levels(0, HANG_TIMEOUT), 1);
    log!(logging.logger("mount"), Level::INFO, "at run time");
    drop(logging);
    assert_eq!(records(&bus, Level::WARNING).len(), 2, "what led to the error");
    assert_eq!(records(&bus, Level::NOTICE).len(), 1);
    assert_eq!(records(&bus, Level::INFO).len(), 0);
}
