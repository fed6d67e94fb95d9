//! The way in, as programs use it: threads that log, a bus that takes it or does not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::{Bus, Start, Subscribe, Subscription, Tai, TopicSpec};
use helio_logging::{
    Audiences, Lanes, Level, LogError, LogOptions, Logging, MAX_RECORD_BYTES, Packet, Record, Site,
    SiteNumber, Spill, Style, Value, log,
};

use crate::support::HANG_TIMEOUT;

/// No packet is ever as old: it is published when it is full, urgent or asked for.
const NEVER: Duration = Duration::from_secs(3600);

/// The log topics of a bus, read from their beginning.
struct Topics(Vec<Subscription>);

impl Topics {
    fn of(bus: &Bus) -> Self {
        let lanes = Lanes::default();
        let open = |level: &Level| {
            let topic = bus.topic(lanes.topic(*level).unwrap()).unwrap();
            topic.subscribe(Subscribe::from(Start::Earliest)).unwrap()
        };
        Self(Level::ALL.iter().map(open).collect())
    }

    /// What is there, each lane's records in their order, and the newest word on what was shed.
    fn read(&mut self) -> (Vec<Record>, u64) {
        let (mut records, mut shed) = (Vec::new(), 0);
        for samples in &mut self.0 {
            let mut said = 0;
            while let Some(event) = samples.try_next().unwrap() {
                let sample = event.into_sample().expect("nothing but samples");
                let packet = Packet::parse(&sample.payload).unwrap();
                said = packet.numbers().shed;
                assert_eq!(packet.numbers().lane.map(Level::number), Some(sample.header.level));
                records.extend(packet.records().map(|record| record.to_record().unwrap()));
            }
            shed += said;
        }
        (records, shed)
    }
}

fn bus() -> Bus {
    Bus::builder().producer("CONTROL").connect("memory:").unwrap()
}

#[test]
fn many_threads_records_arrive_in_each_one_s_order_and_numbered_without_holes() {
    const RECORDS: i64 = 3_000;
    let bus = bus();
    let logging = Logging::start(bus.clone(), LogOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let logger = logging.logger(&format!("thread/{thread}"));
            scope.spawn(move || {
                for n in 0..RECORDS {
                    let level = if n % 3 == 0 { Level::WARNING } else { Level::INFO };
                    log!(logger, level, "record {} of {}", n, thread);
                }
            });
        }
    });
    assert!(logging.flush(HANG_TIMEOUT));
    let figures = logging.figures();
    let (records, shed) = Topics::of(&bus).read();
    assert_eq!((figures.offered, figures.waiting), (4 * RECORDS as u64, 0));
    assert_eq!(figures.offered, figures.published + figures.shed);
    assert_eq!((records.len() as u64, shed), (figures.published, figures.shed));
    let mut newest: HashMap<(String, Level), i64> = HashMap::new();
    let mut numbers: HashMap<Level, u64> = HashMap::new();
    for record in records {
        let Value::Int(n) = record.arguments[0] else { panic!("{record:?}") };
        assert_eq!(record.message(), format!("record {n} of {}", &record.logger[7..]));
        let before = newest.insert((record.logger.clone(), record.level), n);
        assert!(before.is_none_or(|before| before < n), "{record:?}");
        let number = numbers.entry(record.level).or_default();
        *number += 1;
        assert_eq!(record.sequence, *number);
        assert!(record.site.file.ends_with("producer.rs") && record.site.line > 0);
    }
}

#[test]
fn what_there_is_no_room_for_is_shed_from_the_bottom_and_counted() {
    let bus = bus();
    // Too small for the flood: the thread is faster than the one that publishes, or as fast.
    let options = LogOptions { ring_bytes: 4_096, level: Level::TRACE, ..LogOptions::default() };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let logger = logging.logger("flood");
    for n in 0..200_000_i64 {
        log!(logger, Level::TRACE, "step {}", n);
        if n % 100 == 0 {
            log!(logger, Level::ERROR, "error {}", n);
        }
    }
    assert!(logging.flush(HANG_TIMEOUT));
    let figures = logging.figures();
    assert_eq!(figures.offered, 202_000);
    assert_eq!(figures.offered, figures.published + figures.shed);
    let (records, shed) = Topics::of(&bus).read();
    assert_eq!((records.len() as u64, shed), (figures.published, figures.shed));
    let errors = records.iter().filter(|record| record.level == Level::ERROR);
    let errors = errors.map(|record| record.arguments[0].clone());
    // Also those for which the ring has no room are in the order in which they were logged.
    assert!(errors.eq((0..200_000).step_by(100).map(Value::Int)));
}

#[test]
fn urgent_records_wait_for_nothing() {
    let bus = bus();
    let options = LogOptions { batch_age: NEVER, ..LogOptions::default() };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let logger = logging.logger("safety");
    let lanes = Lanes::default();
    let alerts = bus.topic(lanes.topic(Level::ALERT).unwrap()).unwrap();
    let mut alerts = alerts.subscribe(Subscribe::from(Start::Latest)).unwrap();
    for n in 0..100_i64 {
        log!(logger, Level::INFO, "usual {}", n);
    }
    log!(logger, Level::ALERT, "the door is open");
    let event = alerts.next_timeout(HANG_TIMEOUT).unwrap().expect("it is published at once");
    let sample = event.into_sample().unwrap();
    let packet = Packet::parse(&sample.payload).unwrap();
    let alert = packet.records().next().unwrap().to_record().unwrap();
    assert_eq!((alert.message().as_str(), alert.level), ("the door is open", Level::ALERT));
    // The others still wait for their packet to become full or old.
    assert_eq!(Topics::of(&bus).read().0.len(), 1);
    assert!(logging.flush(HANG_TIMEOUT));
    assert_eq!(Topics::of(&bus).read().0.len(), 101);
}

#[test]
fn what_led_to_an_error_is_published_with_it() {
    let bus = bus();
    let options =
        LogOptions { level: Level::INFO, keep: Some(Level::DEBUG), ..LogOptions::default() };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let logger = logging.logger("mount");
    log!(logger, Level::TRACE, "never");
    log!(logger, Level::DEBUG, "step {}", 1);
    log!(logger, Level::DEBUG, "step {}", 2);
    assert!(logging.flush(HANG_TIMEOUT));
    assert_eq!(logging.figures().offered, 0);
    log!(logger, Level::ERROR, "broken");
    log!(logger, Level::DEBUG, "step {}", 3);
    assert!(logging.flush(HANG_TIMEOUT));
    let (records, _) = Topics::of(&bus).read();
    let seen: Vec<_> = records.iter().map(|r| (r.message(), r.data.clone())).collect();
    let kept = || vec![("kept".to_owned(), Value::Bool(true))];
    let expected = [
        ("step 1".to_owned(), kept()),
        ("step 2".to_owned(), kept()),
        ("broken".to_owned(), vec![]),
    ];
    assert_eq!(seen, expected);
    assert_eq!(logging.figures().published, 3);
}

#[test]
fn fields_audiences_and_levels_are_those_of_the_call() {
    let bus = bus();
    let logging = Logging::start(bus.clone(), LogOptions::default()).unwrap();
    let logger = logging.logger("dome").to(&Audiences::of(["Operator"]));
    log!(logger, Level::NOTICE, "door {} is open", 2; wind = 7.5, unit = "m/s");
    logger.set_level(Level::WARNING);
    let mut evaluated = 0;
    log!(logger, Level::NOTICE, "{}", {
        evaluated += 1;
        1
    });
    assert!(logging.flush(HANG_TIMEOUT));
    let (records, _) = Topics::of(&bus).read();
    assert_eq!((records.len(), evaluated), (1, 0));
    let record = &records[0];
    assert_eq!(record.message(), "door 2 is open");
    assert_eq!(record.audiences, Audiences::of(["Operator"]));
    let data = [("wind".to_owned(), Value::Double(7.5)), ("unit".to_owned(), Value::from("m/s"))];
    assert_eq!(record.data, data);
    assert!(record.process.ends_with(&format!(":{}", std::process::id())));
    assert_eq!(record.site.routine, module_path!());
}

#[test]
fn sites_and_times_may_be_those_of_another_logger() {
    let bus = bus();
    let logging = Logging::start(bus.clone(), LogOptions::default()).unwrap();
    let logger = logging.logger("script");
    let site = Site {
        template: "axis %d".to_owned(),
        style: Style::Percent,
        file: "mount.py".to_owned(),
        line: 12,
        ..Site::default()
    };
    let number = logging.site(site.clone());
    assert_eq!(logging.site(site.clone()), number);
    let time = Tai::from_nanos(7);
    logger.record_at(time, Level::INFO, number, |body| _ = body.argument_int(2));
    logger.record_at(time, Level::INFO, SiteNumber::default(), |body| _ = body.text("from none"));
    logger.set_level(Level::NOTICE);
    logger.record_at(time, Level::INFO, number, |_| panic!("it is not enabled"));
    assert!(logging.flush(HANG_TIMEOUT));
    let (records, _) = Topics::of(&bus).read();
    let seen: Vec<_> = records.iter().map(|r| (r.time, r.message(), r.site.clone())).collect();
    let none = Site::default();
    assert_eq!(seen, [(time, "axis 2".to_owned(), site), (time, "from none".to_owned(), none)]);
}

#[test]
fn a_record_that_no_packet_takes_is_told_in_its_place() {
    let bus = bus();
    let logging = Logging::start(bus.clone(), LogOptions::default()).unwrap();
    let logger = logging.logger("dump");
    let large = "x".repeat(MAX_RECORD_BYTES + 1);
    log!(logger, Level::ERROR, "{}", large);
    log!(logger, Level::ERROR, "and on");
    assert!(logging.flush(HANG_TIMEOUT));
    let (records, shed) = Topics::of(&bus).read();
    let messages: Vec<_> = records.iter().map(Record::message).collect();
    assert!(messages[0].contains("was dropped: the record has"), "{messages:?}");
    assert_eq!((&messages[1][..], messages.len(), shed), ("and on", 2, 0));
    assert_eq!(records[0].logger, "dump");
}

#[test]
fn what_was_logged_is_published_when_logging_ends() {
    let bus = bus();
    let options = LogOptions { batch_age: NEVER, ..LogOptions::default() };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let logger = logging.logger("short");
    log!(logger, Level::INFO, "one");
    drop(logging);
    log!(logger, Level::INFO, "to nobody");
    assert_eq!(Topics::of(&bus).read().0.len(), 1);
}

/// A bus whose engine can be frozen: it takes ten packets a lane, and then none.
fn freezing() -> (Bus, Arc<FaultTransport>) {
    let transport =
        FaultTransport::connect("memory:", FaultPlan { queue: 10, ..FaultPlan::default() })
            .unwrap();
    let bus = Bus::builder().producer("CONTROL").over(Arc::clone(&transport) as _).unwrap();
    (bus, transport)
}

#[test]
fn while_the_bus_takes_nothing_errors_push_out_what_is_lower() {
    let (bus, transport) = freezing();
    let options = LogOptions {
        queue_bytes: 64 << 10,
        batch_records: 10,
        level: Level::TRACE,
        ..LogOptions::default()
    };
    let logging = Logging::start(bus.clone(), options).unwrap();
    let logger = logging.logger("stuck");
    transport.cable().freeze();
    for n in 0..20_000_i64 {
        log!(logger, Level::DEBUG, "usual {}", n);
    }
    for n in 0..100_i64 {
        log!(logger, Level::ERROR, "error {}", n);
    }
    assert!(!logging.flush(Duration::from_millis(1)));
    transport.cable().thaw();
    assert!(logging.flush(HANG_TIMEOUT));
    let figures = logging.figures();
    assert_eq!((figures.offered, figures.waiting), (20_100, 0));
    assert_eq!(figures.offered, figures.published + figures.shed);
    assert!(figures.shed > 0, "{figures:?}");
    let (records, shed) = Topics::of(&bus).read();
    assert_eq!((records.len() as u64, shed), (figures.published, figures.shed));
    assert_eq!(records.iter().filter(|record| record.level == Level::ERROR).count(), 100);
}

#[test]
fn with_a_spill_file_nothing_is_shed_and_the_order_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (bus, transport) = freezing();
    let spill = Spill { file: folder.path().join("spill"), bytes: 64 << 20 };
    let options = LogOptions {
        queue_bytes: 16 << 10,
        batch_records: 10,
        ring_bytes: 8 << 20,
        spill: Some(spill.clone()),
        // The first one ends while the bus is frozen.
        close_timeout: Duration::ZERO,
        ..LogOptions::default()
    };
    let logging = Logging::start(bus.clone(), options.clone()).unwrap();
    let second = Logging::start(bus.clone(), options.clone());
    assert!(matches!(second, Err(LogError::Spill { .. })));
    let logger = logging.logger("stuck");
    transport.cable().freeze();
    for n in 0..20_000_i64 {
        log!(logger, Level::INFO, "{}", n);
    }
    assert!(!logging.flush(Duration::from_millis(1)));
    // The process ends, and the next one finds what is left.
    drop(logging);
    assert!(std::fs::metadata(&spill.file).unwrap().len() > 100_000);
    transport.cable().thaw();
    let logging = Logging::start(bus.clone(), options).unwrap();
    assert!(logging.flush(HANG_TIMEOUT));
    assert_eq!(logging.figures().shed, 0);
    let (records, shed) = Topics::of(&bus).read();
    let seen: Vec<_> = records.iter().map(|record| record.arguments[0].clone()).collect();
    assert_eq!(seen.len(), 20_000);
    assert!(seen.into_iter().eq((0..20_000).map(Value::Int)));
    assert_eq!((shed, std::fs::metadata(&spill.file).unwrap().len()), (0, 16));
}

#[test]
fn a_file_that_is_no_spill_file_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes");
    std::fs::write(&file, "twenty characters and more").unwrap();
    let spill = Some(Spill { file: file.clone(), bytes: 1 << 20 });
    let started = Logging::start(bus(), LogOptions { spill, ..LogOptions::default() });
    assert!(matches!(started, Err(LogError::Spill { .. })));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "twenty characters and more");
}

#[test]
fn a_closed_bus_is_told_and_what_it_does_not_take_is_counted() {
    let bus = bus();
    let logging = Logging::start(bus.clone(), LogOptions::default()).unwrap();
    let logger = logging.logger("late");
    bus.close();
    log!(logger, Level::INFO, "one");
    assert!(logging.flush(HANG_TIMEOUT));
    let figures = logging.figures();
    assert_eq!((figures.offered, figures.published, figures.shed), (1, 0, 1));
    assert!(logging.trouble().is_some_and(|trouble| trouble.contains("closed")));
}

#[test]
fn a_prefix_that_is_no_name_is_refused() {
    let options = LogOptions { lanes: Lanes::default().prefix("a//b"), ..LogOptions::default() };
    assert!(matches!(Logging::start(bus(), options), Err(LogError::Topic(_))));
    assert!(TopicSpec::new("a//b/INFO").is_err());
}
