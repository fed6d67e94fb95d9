//! A survey in an hour: visits of 1,000 alerts of the size of ZTF's, as fast as they go, read and
//! filtered while they are published. Nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use helio_alert_filters::{Options, Service, summaries};
use helio_alerts::generator::{GeneratorOptions, History};
use helio_alerts::reader::{AlertReader, ReaderOptions, Start, VisitEvent};

use crate::support::{
    DETECTORS, HANG_TIMEOUT, Night, RANKED, TOPIC, best, bus, chosen, generated, sql,
};

const VISIT_ALERTS: u32 = 1_000;
/// The alerts, unless [`MILLION`] has another number.
const ALERTS: u32 = 100_000;
const MILLION: &str = "HELIO_MILLION";
/// Visits that are published and not decided: fewer than partitions store.
const MAX_VISITS_IN_FLIGHT: u32 = 6;
/// Earlier detections and forced measurements, for packets of ZTF's size.
const POINTS: usize = 110;
/// The bytes of ZTF's packets.
const ZTF_BYTES: std::ops::Range<usize> = 45_000..80_000;

/// What the reader has of a decided visit.
struct Decided {
    visit: i64,
    alerts: BTreeSet<i64>,
    repeated: u64,
    is_equal: bool,
}

/// Reads and closes visits until a number of them is decided.
fn read(url: &str, visits: u32, decided: &Sender<Decided>) {
    let bus = bus(url, "reader");
    let options = ReaderOptions { start: Start::Earliest, ..ReaderOptions::default() };
    let mut reader = AlertReader::open(&bus, TOPIC, options).unwrap();
    let mut pending: BTreeMap<i64, (BTreeSet<i64>, u64)> = BTreeMap::new();
    let mut left = visits;
    while left > 0 {
        let read = reader.read(4_096, 64 << 20, Duration::from_millis(200)).unwrap();
        assert!(read.dropped.is_empty(), "{:?}", read.dropped);
        for alert in &read.alerts {
            let (alerts, repeated) = pending.entry(alert.visit).or_default();
            *repeated += u64::from(!alerts.insert(alert.id));
        }
        for event in read.events {
            match event {
                VisitEvent::Decided { closing, late } => {
                    let visit = closing.visit;
                    let is_equal = late.is_empty() && reader.audit(visit).unwrap().is_equal();
                    let (alerts, repeated) = pending.remove(&visit).unwrap_or_default();
                    left -= 1;
                    // The publishing thread may have failed.
                    _ = decided.send(Decided { visit, alerts, repeated, is_equal });
                }
                VisitEvent::Gap { topic, gap } => panic!("{topic} has a gap: {gap:?}"),
                _ => {}
            }
        }
    }
}

/// What was published of a visit, and its best alerts.
type Published = BTreeMap<i64, (BTreeSet<i64>, Vec<i64>)>;

/// Publishes visits, at most so many ahead of the reader, and compares what it has with them.
fn publish(night: &mut Night, visits: u32, decided: &Receiver<Decided>) -> Published {
    let mut published = Published::new();
    let (mut done, mut bytes) = (0, 0);
    let mut check = |published: &Published| {
        let Decided { visit, alerts, repeated, is_equal } =
            decided.recv_timeout(HANG_TIMEOUT).expect("a visit is decided");
        assert!(is_equal, "the audit of visit {visit}");
        assert_eq!(repeated, 0, "visit {visit}");
        assert!(alerts == published[&visit].0, "visit {visit} has {} alerts", alerts.len());
        done += 1;
        done
    };
    let mut decided = 0;
    for visit in 0..visits {
        while visit - decided >= MAX_VISITS_IN_FLIGHT {
            decided = check(&published);
        }
        night.open(visit);
        // The reader may decide a visit before its last detector has returned here.
        let mut alerts = Vec::new();
        for detector in 0..DETECTORS {
            alerts.extend(night.publish(visit, [detector]));
        }
        bytes += alerts.iter().map(|alert| alert.packet.len()).sum::<usize>();
        let ids = alerts.iter().map(|alert| alert.id).collect();
        published.insert(night.id(visit), (ids, best(&alerts, 6.0)));
        if visit % 100 == 99 {
            println!("{} visits published, {decided} compared", visit + 1);
        }
    }
    while decided < visits {
        decided = check(&published);
    }
    let mean = bytes / (visits * VISIT_ALERTS) as usize;
    assert!(ZTF_BYTES.contains(&mean), "a packet has {mean} bytes");
    println!("{bytes} bytes of packets, {mean} each");
    published
}

#[test]
fn of_many_visits_nothing_is_lost() {
    let alerts = std::env::var(MILLION).map_or(ALERTS, |number| number.parse().unwrap());
    let visits = alerts / VISIT_ALERTS;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    let of_night = bus(&url, "night");
    let many = GeneratorOptions { history: History::Points(POINTS), ..generated(VISIT_ALERTS) };
    let mut night = Night::new(&of_night, many);
    sql(&of_night, "ada", "bright", RANKED);
    sql(&of_night, "bob", "none", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 1e9");
    let services: Vec<_> = ["filters-1", "filters-2"]
        .map(|name| Service::start(&bus(&url, name), &Options::of(TOPIC)).unwrap())
        .into();
    let begin = Instant::now();
    let (sender, receiver) = channel();
    let reader = {
        let url = url.clone();
        std::thread::spawn(move || read(&url, visits, &sender))
    };
    let published = publish(&mut night, visits, &receiver);
    reader.join().unwrap();
    let until = Instant::now() + HANG_TIMEOUT;
    while summaries(&of_night, TOPIC).unwrap().len() < visits as usize {
        assert!(Instant::now() < until, "some visits are not filtered");
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(services);
    let found = chosen(&of_night, "ada");
    for (visit, (_, expected)) in &published {
        assert_eq!(found.get(visit).unwrap_or(&Vec::new()), expected, "visit {visit}");
    }
    let all: Vec<_> = summaries(&of_night, TOPIC).unwrap();
    for summary in &all {
        let of = summary.filters["bob"]["none@1"];
        assert_eq!((of.alerts, of.failures), (VISIT_ALERTS.into(), 0), "{}", summary.visit);
    }
    let (seconds, tried) = (begin.elapsed().as_secs_f64(), published.len());
    println!("{visits} visits of {VISIT_ALERTS} alerts in {seconds:.0} s");
    println!("storm: a survey's visits: tried {tried}, survived {tried}, lost 0, unreported 0");
}
