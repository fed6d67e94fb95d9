//! A broker that is away for a minute, a registry that is down, and packets that Kafka refuses.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use helio_alert_filters::{Options, Service, summaries};
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History, WithStamps};
use helio_alerts::layout::{Ccd, Layout};
use helio_alerts::producer::{CcdProducer, ProducerOptions};
use helio_alerts::reader::{AlertReader, DropCause, ReaderOptions, Start, VisitEvent};
use helio_alerts::rubin::Version;
use helio_bus::Bus;
use helio_registry::{Registry, Server, serve};

use crate::filters::{
    DETECTORS, Night, RANKED, TOPIC, best, bus, chosen, generated, producing, sql,
};
use crate::support::{Broker, HANG_TIMEOUT, broker, wait_for};

/// How long the broker is away.
const OUTAGE: Duration = Duration::from_secs(60);

/// Waits until so many visits are decided.
fn decided(bus: &Bus, visits: usize) {
    wait_for("visits are decided", || (summaries(bus, TOPIC).ok()?.len() == visits).then_some(()));
}

/// Reads until a number of visits is decided, and returns the identifiers.
fn read(bus: &Bus, visits: usize) -> Vec<i64> {
    let options = ReaderOptions { start: Start::Earliest, ..ReaderOptions::default() };
    let mut reader = AlertReader::open(bus, TOPIC, options).unwrap();
    let (mut ids, mut left) = (Vec::new(), visits);
    let until = Instant::now() + HANG_TIMEOUT + OUTAGE;
    while left > 0 {
        assert!(Instant::now() < until, "{left} of {visits} visits are not decided");
        let Ok(read) = reader.read(1_000, 64 << 20, Duration::from_millis(200)) else { continue };
        // What a broker that dies has stored and not acknowledged is published again.
        let again = read.dropped.of(DropCause::Duplicate);
        assert_eq!(read.dropped.total(), again, "{:?}", read.dropped);
        ids.extend(read.alerts.iter().map(|alert| alert.id));
        let is_decided = |event: &&VisitEvent| matches!(event, VisitEvent::Decided { .. });
        left -= read.events.iter().filter(is_decided).count();
    }
    ids
}

#[test]
fn a_broker_that_is_away_for_a_minute_costs_no_alert_and_no_result() {
    let Some(broker) = Broker::start() else { return };
    let of_night = bus(&broker.url, "night");
    let patient = ProducerOptions { retry_for: HANG_TIMEOUT + OUTAGE, ..producing() };
    let mut night = Night::with(&of_night, generated(120), patient);
    night.window = HANG_TIMEOUT + OUTAGE;
    sql(&of_night, "ada", "bright", RANKED);
    let _service = Service::start(&bus(&broker.url, "filters"), &Options::of(TOPIC)).unwrap();
    let reader = bus(&broker.url, "reader");
    let reader = std::thread::spawn(move || read(&reader, 2));
    night.open(0);
    let mut alerts = vec![night.publish(0, 0..DETECTORS)];
    decided(&of_night, 1);
    night.open(1);
    let mut second = night.publish(1, 0..2);
    broker.does("kill");
    // The rest of the visit waits for the broker.
    let second = std::thread::scope(|scope| {
        let rest = scope.spawn(|| night.publish(1, 2..DETECTORS));
        std::thread::sleep(OUTAGE);
        assert!(!rest.is_finished(), "a dead broker has accepted alerts");
        broker.does("restart");
        second.extend(rest.join().unwrap());
        second
    });
    alerts.push(second);
    decided(&of_night, 2);
    let read = reader.join().unwrap();
    let published: BTreeSet<i64> = alerts.iter().flatten().map(|alert| alert.id).collect();
    assert_eq!(read.len(), published.len(), "each alert is returned once");
    assert_eq!(read.into_iter().collect::<BTreeSet<_>>(), published);
    let found = chosen(&of_night, "ada");
    for (visit, alerts) in (0..).zip(&alerts) {
        assert_eq!(found[&night.id(visit)], best(alerts, 6.0), "visit {visit}");
    }
    println!("storm: broker away for a minute: tried 1, survived 1, lost 0, unreported 0");
}

/// A registry that is stored in a folder.
fn registry(folder: &Path, listen: &str) -> Server {
    let bus = Bus::connect(&format!("journal:{}", folder.display())).unwrap();
    serve(Registry::open(&bus).unwrap(), listen).unwrap()
}

/// Results whose schema is new wait for the registry; they are not counted as refused.
#[test]
fn results_wait_for_a_registry_that_is_down() {
    let Some(broker) = broker() else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = registry(folder.path(), "127.0.0.1:0");
    let address = server.address().to_string();
    let options = format!("prefix=down.&schema.registry.url=http://{address}");
    let url = format!("{}?{options}", broker.url);
    let of_night = bus(&url, "night");
    let mut night = Night::new(&of_night, generated(60));
    sql(&of_night, "ada", "bright", RANKED);
    let _service = Service::start(&bus(&url, "filters"), &Options::of(TOPIC)).unwrap();
    let mut alerts = vec![night.visit(0)];
    decided(&of_night, 1);
    drop(server);
    let columns = RANKED.replace("diaSourceId,", "diaSourceId, diaSource.band,");
    sql(&of_night, "new", "bright", &columns);
    alerts.push(night.visit(1));
    // The service meets the outage, and tries again.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(summaries(&of_night, TOPIC).unwrap().len(), 1, "the registry is down");
    let _server = registry(folder.path(), &address);
    decided(&of_night, 2);
    let summary = &summaries(&of_night, TOPIC).unwrap()[1];
    assert_eq!(summary.filters["new"]["bright@1"].refused, 0, "{summary:?}");
    for (visit, alerts) in (0..).zip(&alerts) {
        assert_eq!(chosen(&of_night, "ada")[&night.id(visit)], best(alerts, 6.0));
    }
    assert_eq!(chosen(&of_night, "new")[&night.id(1)], best(&alerts[1], 6.0));
}

/// Kafka takes no packet of 10 MB: it is named, and the others of its detector are published.
#[test]
fn a_packet_of_ten_megabytes_is_refused_by_name() {
    let Some(broker) = broker() else { return };
    let url = format!("{}?prefix=large.", broker.url);
    let bus = bus(&url, "ccd");
    let packet = |number: u32, points: usize| {
        let options = GeneratorOptions {
            alerts_per_visit: 3,
            detectors: 1,
            history: History::Points(points),
            stamps: WithStamps::None,
            ..GeneratorOptions::default()
        };
        let mut datum = Vec::new();
        let alert = AlertNumber { visit: 0, detector: 0, number };
        Generator::new(options).write(alert, &mut datum);
        datum
    };
    let bytes_of_point = (packet(1, 200).len() - packet(1, 100).len()) / 100;
    let packets = [packet(0, 3), packet(1, 10_500_000 / bytes_of_point), packet(2, 3)];
    assert!(packets[1].len() > 10_000_000);
    let schema = Version::LATEST.schema();
    let layout = Layout::new(schema);
    let ids = packets.each_ref().map(|packet| layout.alert_id(packet).unwrap().unwrap());
    let spills = tempfile::tempdir().unwrap();
    let spill = Some(spills.path().to_owned());
    let options = ProducerOptions { spill, ..producing() };
    let producer = CcdProducer::open(&bus, TOPIC, schema, options).unwrap();
    let outcome = producer.publish(Ccd { visit: 7, detector: 0 }, &packets).unwrap();
    assert_eq!(outcome.failed, [ids[1]], "{outcome:?}");
    let cause = outcome.cause.unwrap();
    assert!(cause.contains("limit") && cause.contains("kafka"), "{cause}");
    assert!(outcome.spilled.is_some_and(|file| file.exists()));
    let found = crate::filters::samples(&bus, TOPIC);
    let found: BTreeSet<i64> =
        found.iter().map(|sample| layout.alert_id(&sample.payload).unwrap().unwrap()).collect();
    assert_eq!(found, BTreeSet::from([ids[0], ids[2]]));
}
