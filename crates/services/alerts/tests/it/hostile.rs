//! Disks that are full, clocks that jump, and packets of 10 MB.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History, WithStamps};
use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, ProducerOptions};
use helio_alerts::reader::{Stamps, Start};
use helio_alerts::rubin::Version;
use helio_alerts::topics::Keep;
use helio_bus::{Bus, Tai, TestClock};

use crate::support::{
    DETECTORS, Found, TOPIC, bus, made, open, opening, options, packets_of, places, read_all,
    read_until,
};

/// The time of day of producer and reader steps by hours and days in mid-visit: the visit is
/// neither closed early nor late, and has all its alerts.
#[test]
fn clocks_that_jump_cost_no_alert() {
    const START_NS: i64 = 1_800_000_000_000_000_000;
    const HOUR_NS: i64 = 3_600_000_000_000;
    places("clocks", |url| {
        let clocks = [(); 2].map(|()| TestClock::new(Tai::from_nanos(START_NS)));
        let connect = |name: &str, clock: &TestClock| {
            Bus::builder().producer(name).clock(Arc::new(clock.clone())).connect(url).unwrap()
        };
        let [at_ccds, at_reader] = &clocks;
        let (ccds, reading) = (connect("ccds", at_ccds), connect("reader", at_reader));
        let schema = Version::LATEST.schema();
        let producer = CcdProducer::open(&ccds, TOPIC, schema, options()).unwrap();
        let (visit, all) = packets_of(0, Version::LATEST);
        producer.open_visit(opening(visit)).unwrap();
        let mut reader = open(&reading, Start::Earliest, Stamps::None);
        let mut found = Found::default();
        let steps =
            [(0, 0), (-HOUR_NS, 48 * HOUR_NS), (HOUR_NS, -24 * HOUR_NS), (-HOUR_NS, HOUR_NS)];
        for (detector, (of_ccds, of_reader)) in (0..).zip(steps) {
            assert!(found.decided.is_empty(), "closed before detector {detector}");
            at_ccds.set(Tai::from_nanos(START_NS + of_ccds));
            at_reader.set(Tai::from_nanos(START_NS + of_reader));
            let packets = &all[detector as usize];
            assert!(producer.publish(Ccd { visit, detector }, packets).unwrap().is_published());
            let read = read_all(&mut reader);
            found.alerts.extend(read.alerts);
            found.decided.extend(read.decided);
        }
        if found.decided.is_empty() {
            found.decided = read_until(&mut reader, |found| !found.decided.is_empty()).decided;
        }
        assert!(found.decided[0].is_complete(), "{:?}", found.decided);
        let made: BTreeSet<i64> = made(0, Version::LATEST).into_keys().collect();
        assert_eq!((found.alerts.len(), found.ids()), (made.len(), made));
        assert!(reader.audit(visit).unwrap().is_equal());
        assert_eq!(usize::from(DETECTORS), steps.len());
    });
}

/// Packets of a detector with so long a history.
fn packets(points: usize) -> (i64, Vec<Vec<u8>>) {
    let options = GeneratorOptions {
        alerts_per_visit: 2,
        detectors: 1,
        history: History::Points(points),
        stamps: WithStamps::None,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(options);
    let write = |number| {
        let mut datum = Vec::new();
        generator.write(AlertNumber { visit: 0, detector: 0, number }, &mut datum);
        datum
    };
    let packets = (0..2).map(write).collect();
    (generator.visit_id(0), packets)
}

#[test]
fn packets_of_ten_megabytes_are_read() {
    const LARGE: usize = 10_000_000;
    let [few, many] = [100, 200].map(|points| packets(points).1[0].len());
    let points = LARGE * 100 / (many - few) + 100;
    let (visit, all) = packets(points);
    assert!(all.iter().all(|packet| packet.len() > LARGE));
    places("large", |url| {
        let bus = bus(url, "ccd");
        let schema = Version::LATEST.schema();
        let producer = CcdProducer::open(&bus, TOPIC, schema, options()).unwrap();
        let mut one = opening(visit);
        one.detectors = vec![0];
        producer.open_visit(one).unwrap();
        let outcome = producer.publish(Ccd { visit, detector: 0 }, &all).unwrap();
        assert!(outcome.is_published(), "{outcome:?}");
        let mut reader = open(&bus, Start::Earliest, Stamps::None);
        let found = read_until(&mut reader, |found| !found.decided.is_empty());
        let data: Vec<&[u8]> = found.alerts.iter().map(|alert| &alert.datum[..]).collect();
        assert!(data == all.iter().map(|packet| &packet[..]).collect::<Vec<_>>());
        assert!(reader.audit(visit).unwrap().is_equal());
    });
}

/// A small disk, unmounted when it is dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None`, with a message, where none can be mounted.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=160m", "helio-test"]).arg(folder.path());
        if mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        let said = b"skipped: no small disk can be mounted here (root is needed)\n";
        std::io::stderr().write_all(said).unwrap();
        None
    }

    /// Takes all of its room, until the file is removed.
    fn fill(&self) -> std::path::PathBuf {
        let path = self.0.path().join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        while file.write_all(&[0; 4_096]).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// What finds no room is named and spilled elsewhere; with room it is published, and nothing is
/// lost.
#[test]
fn a_full_disk_is_named_and_what_was_spilled_is_replayed() {
    let Some(disk) = Disk::new() else { return };
    let spills = tempfile::tempdir().unwrap();
    let bus = bus(&format!("journal:{}/bus?budget=90%", disk.0.path().display()), "ccd");
    let keep = Keep { partition_bytes: Some(24 << 20), ..Keep::default() };
    let (retry_for, spill) = (Duration::ZERO, Some(spills.path().to_owned()));
    let options = ProducerOptions { keep, retry_for, spill, ..options() };
    let schema = Version::LATEST.schema();
    let producer = CcdProducer::open(&bus, TOPIC, schema, options).unwrap();
    let mut expected = BTreeSet::new();
    let mut publish = |number: u32| {
        let (visit, all) = packets_of(number, Version::LATEST);
        expected.extend(made(number, Version::LATEST).into_keys());
        let mut outcomes = Vec::new();
        for (detector, packets) in (0..).zip(&all) {
            outcomes.push(producer.publish(Ccd { visit, detector }, packets).unwrap());
        }
        outcomes
    };
    assert!(publish(0).iter().all(|outcome| outcome.is_published()));
    let filler = disk.fill();
    let outcomes = (1..60).map(publish).find(|of| of.iter().any(|one| !one.is_published()));
    let outcomes = outcomes.expect("the disk is full");
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.is_published()).collect();
    for outcome in &failed {
        let cause = outcome.cause.as_deref().unwrap();
        assert!(cause.contains("room") || cause.contains("space"), "{cause}");
        assert!(!outcome.failed.is_empty() || !outcome.is_announced, "{outcome:?}");
    }
    std::fs::remove_file(filler).unwrap();
    for outcome in failed {
        let file = outcome.spilled.as_deref().unwrap();
        assert!(producer.replay(file).unwrap().is_published(), "{outcome:?}");
    }
    let mut reader = open(&bus, Start::Earliest, Stamps::None);
    let found = read_all(&mut reader);
    assert_eq!((found.alerts.len(), found.ids()), (expected.len(), expected));
}
