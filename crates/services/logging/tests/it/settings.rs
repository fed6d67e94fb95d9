//! Settings files: what a process begins with, and what changes while it runs.

use std::path::Path;
use std::time::Duration;

use helio_bus::{Bus, Start, Subscribe, Subscription};
use helio_logging::{
    Lanes, Level, LevelEntry, LevelTable, LogError, LogOptions, Logging, Packet, Record, Suppress,
    log,
};

use crate::support::HANG_TIMEOUT;

/// The records of a level, as they come.
struct Lane(Subscription);

impl Lane {
    fn of(bus: &Bus, level: Level) -> Self {
        let topic = bus.topic(Lanes::default().topic(level).unwrap()).unwrap();
        Self(topic.subscribe(Subscribe::from(Start::Earliest)).unwrap())
    }

    /// Those of the next packet.
    fn next(&mut self) -> Vec<Record> {
        let event = self.0.next_timeout(HANG_TIMEOUT).unwrap().expect("it is published");
        let sample = event.into_sample().expect("nothing but samples");
        let packet = Packet::parse(&sample.payload).unwrap();
        packet.records().map(|record| record.to_record().unwrap()).collect()
    }

    /// All that are there, and how many were shed.
    fn all(&mut self) -> (Vec<Record>, u64) {
        let (mut records, mut shed) = (Vec::new(), 0);
        while let Some(event) = self.0.try_next().unwrap() {
            let sample = event.into_sample().expect("nothing but samples");
            let packet = Packet::parse(&sample.payload).unwrap();
            shed = packet.numbers().shed;
            records.extend(packet.records().map(|record| record.to_record().unwrap()));
        }
        (records, shed)
    }
}

/// Puts a text into a file at once, as editors do.
fn put(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

#[test]
fn a_file_goes_over_the_program_and_run_time_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    put(&file, "level: NOTICE\nloggers:\n  - {logger: \"CONTROL/*\", level: DEBUG}\n");
    let bus = Bus::connect("memory:").unwrap();
    let logging = Logging::start(bus.clone(), LogOptions::from_file(&file)).unwrap();
    let (mount, dome) = (logging.logger("CONTROL/Mount"), logging.logger("Dome"));
    assert!(mount.is_enabled(Level::DEBUG) && !mount.is_enabled(Level::DELOUSE));
    assert!(dome.is_enabled(Level::NOTICE) && !dome.is_enabled(Level::INFO));
    mount.set_level(Level::ERROR);
    dome.set_level(Level::ERROR);
    assert!(mount.is_enabled(Level::DEBUG), "the file has a pattern of it");
    assert!(!dome.is_enabled(Level::WARNING), "the file says only what holds for all others");
    let table = LevelTable::make(&bus, &Lanes::default()).unwrap();
    let entry = LevelEntry {
        pattern: "*".parse().unwrap(),
        remote: Level::INFO,
        local: None,
        until: None,
        who: String::new(),
        why: String::new(),
        when: bus.clock().now(),
    };
    table.set(&entry).unwrap();
    assert_eq!(logging.wait_levels(0, HANG_TIMEOUT), 1);
    assert!(!mount.is_enabled(Level::DEBUG) && dome.is_enabled(Level::INFO));
    table.clear(&entry).unwrap();
    assert_eq!(logging.wait_levels(1, HANG_TIMEOUT), 2);
    assert!(mount.is_enabled(Level::DEBUG) && !dome.is_enabled(Level::WARNING));
}

#[test]
fn a_file_that_changes_holds_and_one_that_is_wrong_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    put(&file, "level: NOTICE\n");
    let bus = Bus::connect("memory:").unwrap();
    let settings_poll_interval = Duration::from_millis(1);
    let options = LogOptions { settings_poll_interval, ..LogOptions::from_file(&file) };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let (mut notices, mut warnings) =
        (Lane::of(&bus, Level::NOTICE), Lane::of(&bus, Level::WARNING));
    let dome = logging.logger("Dome");

    put(&file, "level: NOTICE\nloggers:\n  - {logger: Dome, level: DEBUG}\nbatch_age: 1ms\n");
    assert_eq!(logging.wait_levels(0, HANG_TIMEOUT), 1);
    assert!(dome.is_enabled(Level::DEBUG));
    let said = notices.next();
    let name = file.display();
    assert_eq!(said[0].message(), format!("the settings of {name} hold now"));
    assert_eq!(said[0].logger, "log/settings");

    put(&file, "level: NOTICE\nlevle: INFO\n");
    let said = &warnings.next()[0];
    let expected = format!("the settings stay as they were: {name}, line 2: ");
    assert!(said.message().starts_with(&expected), "{}", said.message());
    assert!(said.data.iter().any(|(name, _)| name == "remedy"));
    assert!(dome.is_enabled(Level::DEBUG));

    std::fs::remove_file(&file).unwrap();
    let said = &warnings.next()[0];
    assert!(said.message().contains("No such file"), "{}", said.message());
    assert!(dome.is_enabled(Level::DEBUG));

    put(&file, "urgent: ERROR\nkeep: DEBUG\n");
    assert_eq!(logging.wait_levels(1, HANG_TIMEOUT), 2);
    assert!(!dome.is_enabled(Level::TRACE) && dome.is_enabled(Level::DELOUSE));
    let said = &notices.next()[0];
    let expected = format!("the settings of {name} hold now; urgent, keep from the next start on");
    assert_eq!(said.message(), expected);
    assert_eq!(logging.figures().shed, 0);
}

#[test]
fn a_process_does_not_begin_with_a_file_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    put(&file, "level: LOUD\n");
    let start = || Logging::start(Bus::connect("memory:").unwrap(), LogOptions::from_file(&file));
    let Err(LogError::Settings(error)) = start() else { panic!("it is wrong") };
    assert_eq!((error.file.as_path(), error.line), (file.as_path(), Some(1)));
    put(&file, &"#".repeat((1 << 20) + 1));
    assert!(start().err().unwrap().to_string().contains("more than 1 MiB"));
}

#[test]
fn what_one_call_site_says_too_often_is_suppressed_counted_and_told() {
    const FLOOD: u64 = 1_000;
    let bus = Bus::connect("memory:").unwrap();
    let suppress = Some(Suppress { per_second: 1, burst: 10 });
    let options = LogOptions { suppress, ..LogOptions::default() };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let dome = logging.logger("Dome");
    for n in 0..FLOOD {
        log!(dome, Level::INFO, "step {}", n);
    }
    for level in [Level::INFO, Level::ERROR] {
        for n in 0..10 {
            log!(dome, level, "another {}", n);
        }
    }
    assert!(logging.flush(HANG_TIMEOUT));
    let figures = logging.figures();
    assert_eq!(figures.offered, figures.published + figures.shed);
    assert_eq!((figures.waiting, figures.suppressed), (0, figures.shed));
    drop(logging);
    let (records, shed) = Lane::of(&bus, Level::INFO).all();
    // Readers do not hear of a producer that shed them: a record tells what was suppressed.
    assert_eq!((shed, Lane::of(&bus, Level::ERROR).all().0.len()), (0, 10));
    assert!(figures.shed > 0);
    let of = |text: &str| records.iter().filter(|r| r.message().starts_with(text)).count() as u64;
    assert_eq!(of("another"), 10, "each site has a bucket of its own");
    assert!(of("step") >= 10);
    let told: Vec<_> = records.iter().filter(|r| r.message().starts_with("suppressed")).collect();
    let counts = told.iter().map(|record| match &record.data[0] {
        (name, helio_logging::Value::Int(count)) if name == "suppressed" => *count as u64,
        other => panic!("{other:?}"),
    });
    assert_eq!(of("step") + counts.sum::<u64>(), FLOOD);
    let first = told[0];
    assert_eq!((first.logger.as_str(), first.site.template.as_str()), ("Dome", "step {}"));
    assert!(first.site.line > 0 && first.message().ends_with(" similar"));
    assert_eq!(first.data[1].0, "span_s");
    assert_eq!(records.len() as u64 + 10, figures.published);
    assert_eq!(figures.offered, FLOOD + 20 + told.len() as u64);
}
