//! Starts: by visit, night, time, alert and checkpoint, and what retention has removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, ProducerOptions};
use helio_alerts::reader::{
    AlertReader, DropCause, Night, ReaderError, ReaderOptions, Stamps, Start,
};
use helio_alerts::rubin::Version;
use helio_alerts::topics::Keep;
use helio_alerts::visit::Opening;
use helio_bus::{Bus, Tai, TestClock};

use crate::support::{
    Found, TOPIC, bus, made, open, opening, options, packets_of, places, publish_visit, read_all,
    read_until,
};

const DAY: Duration = Duration::from_secs(86_400);
/// In the night of 2026-01-15, whose date has the preceding noon. In the past: a journal does not
/// believe times that are ahead of the machine's clock.
const FIRST_SHUTTER: &str = "2026-01-15T23:30:00Z";

/// Publishes three visits, a day apart.
fn publish_three(url: &str, clock: &TestClock, options: &ProducerOptions) -> [i64; 3] {
    let bus = Bus::builder().producer("ccds").clock(Arc::new(clock.clone()));
    let bus = bus.connect(url).unwrap();
    let producer =
        CcdProducer::open(&bus, TOPIC, Version::LATEST.schema(), options.clone()).unwrap();
    [0, 1, 2].map(|number| {
        let (visit, all) = packets_of(number, Version::LATEST);
        let shutter_close_ns = bus.clock().now().nanos();
        producer.open_visit(Opening { shutter_close_ns, ..opening(visit) }).unwrap();
        for (detector, packets) in (0..).zip(&all) {
            let outcome = producer.publish(Ccd { visit, detector }, packets).unwrap();
            assert!(outcome.is_published() && outcome.manifest.extent.is_some(), "{outcome:?}");
        }
        clock.advance(DAY);
        visit
    })
}

fn clock() -> TestClock {
    TestClock::new(FIRST_SHUTTER.parse().unwrap())
}

fn ids(visits: impl IntoIterator<Item = u32>) -> BTreeSet<i64> {
    visits.into_iter().flat_map(|visit| made(visit, Version::LATEST).into_keys()).collect()
}

fn assert_whole(found: &Found, visits: impl IntoIterator<Item = u32>) {
    let expected = ids(visits);
    assert_eq!(found.alerts.len(), expected.len());
    assert_eq!(found.ids(), expected);
}

#[test]
fn the_first_alert_of_a_start_is_the_one_that_was_asked_for() {
    places("starts", |url| {
        let visits = publish_three(url, &clock(), &options());
        let bus = bus(url, "reader");
        let read = |start: Start| read_all(&mut open(&bus, start, Stamps::None));
        for (number, visit) in (0..).zip(visits) {
            let found = read(Start::Visit(visit));
            assert_eq!(found.alerts[0].visit, visit);
            assert_whole(&found, number..3);
        }
        let night: Night = "2026-01-16".parse().unwrap();
        assert!(night.contains(Tai::from_nanos(clock().now_ns() + DAY.as_nanos() as i64)));
        assert_whole(&read(Start::Night(night)), 1..3);
        let second = Tai::from_nanos(clock().now_ns() + DAY.as_nanos() as i64);
        assert_whole(&read(Start::Time(second)), 1..3);
        for id in ids([1]) {
            let found = read(Start::Alert(id));
            assert_eq!(found.alerts[0].id, id);
            let (all, ends) = (found.ids(), [ids([0]), ids([2])]);
            assert!(all.is_superset(&ends[1]) && all.is_disjoint(&ends[0]), "{id}: {all:?}");
        }
        assert!(read(Start::Latest).alerts.is_empty());
    });
}

trait NowNs {
    fn now_ns(&self) -> i64;
}

impl NowNs for TestClock {
    fn now_ns(&self) -> i64 {
        helio_bus::Clock::now(self).nanos()
    }
}

#[test]
fn starts_that_are_unknown_are_named() {
    places("unknown", |url| {
        publish_three(url, &clock(), &options());
        let bus = bus(url, "reader");
        let error = |start: Start| {
            let options = ReaderOptions { start, ..ReaderOptions::default() };
            AlertReader::open(&bus, TOPIC, options).unwrap_err()
        };
        assert!(matches!(error(Start::Visit(7)), ReaderError::NoSuchVisit { visit: 7 }));
        let night = "2026-02-01".parse().unwrap();
        assert!(matches!(error(Start::Night(night)), ReaderError::NoSuchNight { .. }));
        assert!(matches!(error(Start::Alert(7)), ReaderError::NoSuchAlert { id: 7 }));
        let checkpoint = Start::Checkpoint("none".to_owned());
        assert!(matches!(error(checkpoint), ReaderError::NoSuchCheckpoint { .. }));
        for wrong in ["", "2026-1-15", "2026-02-30", "today", "2026-01-15 "] {
            assert!(wrong.parse::<Night>().is_err(), "{wrong}");
        }
    });
}

#[test]
fn a_checkpoint_is_behind_what_was_returned() {
    places("checkpoint", |url| {
        publish_three(url, &clock(), &options());
        let bus = bus(url, "reader");
        let mut reader = open(&bus, Start::Earliest, Stamps::None);
        let mut before = reader.read(13, 64 << 20, Duration::ZERO).unwrap().alerts;
        assert_eq!(before.len(), 13);
        reader.checkpoint("first").unwrap();
        // A later one of the same name replaces it.
        before.extend(reader.read(5, 64 << 20, Duration::ZERO).unwrap().alerts);
        reader.checkpoint("second").unwrap();
        reader.checkpoint("first").unwrap();
        let before: BTreeSet<_> = before.iter().map(|alert| alert.id).collect();
        let rest: BTreeSet<_> = ids(0..3).difference(&before).copied().collect();
        let at = reader.positions().into_iter().map(|at| (at.partition, at.next));
        let named = ["first", "second"].map(|name| Start::Checkpoint(name.to_owned()));
        for start in named.into_iter().chain([Start::Positions(at.collect())]) {
            let found = read_all(&mut open(&bus, start, Stamps::None));
            assert_eq!(found.alerts.len(), rest.len());
            assert_eq!(found.ids(), rest);
        }
        reader.rewind(Start::Checkpoint("second".to_owned())).unwrap();
        assert_eq!(read_all(&mut reader).ids(), rest);
    });
}

/// The visit's packets come again after a checkpoint amidst it.
#[test]
fn repetitions_of_what_lies_before_the_start_are_dropped() {
    places("repeated", |url| {
        let packets = options();
        publish_visit(url, 0, Version::LATEST, &packets);
        let bus = bus(url, "reader");
        let mut reader = open(&bus, Start::Earliest, Stamps::None);
        let before: BTreeSet<_> =
            reader.read(9, 64 << 20, Duration::ZERO).unwrap().alerts.iter().map(|a| a.id).collect();
        reader.checkpoint("nine").unwrap();
        drop(reader);
        publish_visit(url, 0, Version::LATEST, &packets);
        let mut reader = open(&bus, Start::Checkpoint("nine".to_owned()), Stamps::None);
        let found = read_until(&mut reader, |found| !found.decided.is_empty());
        let rest: BTreeSet<_> = ids([0]).difference(&before).copied().collect();
        assert_eq!((found.alerts.len(), found.ids()), (rest.len(), rest));
        let late = reader.dropped().of(DropCause::Late);
        assert_eq!(reader.dropped().of(DropCause::Duplicate) + late, 22);
        // It knows the visit whole, so that it may close it.
        assert!(found.decided[0].is_complete(), "{found:?}");
        assert!(reader.audit(found.decided[0].visit).unwrap().is_equal());
    });
}

#[test]
fn a_visit_that_retention_has_removed_is_an_error_that_says_so() {
    // The memory transport removes at once; the first partition has one visit and a half.
    let url = "memory:retention";
    let keep = Keep { partition_bytes: Some(3 << 20), ..Keep::default() };
    let visits = publish_three(url, &clock(), &ProducerOptions { keep, ..options() });
    let bus = bus(url, "reader");
    let open = |start: Start| {
        AlertReader::open(&bus, TOPIC, ReaderOptions { start, ..ReaderOptions::default() })
    };
    let error = open(Start::Visit(visits[0])).unwrap_err();
    assert!(matches!(error, ReaderError::Removed { .. }), "{error}");
    assert!(error.to_string().contains(&format!("visit {}", visits[0])), "{error}");
    let found = read_all(&mut open(Start::Visit(visits[2])).unwrap());
    assert_whole(&found, [2]);
    let found = read_all(&mut open(Start::Earliest).unwrap());
    assert!(found.ids().is_superset(&ids([2])) && !found.ids().is_superset(&ids([0])));
}
