//! Times the start of a reader at a visit and at an alert of a large stream.
//!
//! `cargo run --release -p helio-alerts --example rewind -- FOLDER [VISITS]`: publishes visits of
//! 10,000 packets with stamps into a journal in the folder, 1.4 GB each, and removes nothing.

use std::time::{Duration, Instant};

use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History};
use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, ProducerOptions};
use helio_alerts::reader::{AlertReader, ReaderOptions, Start, VisitEvent};
use helio_alerts::topics::Keep;
use helio_alerts::visit::Opening;
use helio_bus::Bus;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn publish(bus: &Bus, generator: &mut Generator, visits: u32) -> Outcome {
    let keep = Keep { partition_bytes: Some(2 << 30), ..Keep::default() };
    let options = ProducerOptions { keep, ..ProducerOptions::default() };
    let schema = generator.options().version.schema();
    let producer = CcdProducer::open(bus, "alerts", schema, options)?;
    for number in 0..visits {
        let (visit, detectors) = (generator.visit_id(number), generator.options().detectors);
        producer.open_visit(Opening {
            visit,
            detectors: (0..detectors.into()).collect(),
            shutter_close_ns: bus.clock().now().nanos(),
            window_ns: 60_000_000_000,
            ..Opening::default()
        })?;
        for detector in 0..detectors {
            let mut packets = Vec::new();
            for alert in 0..generator.alerts(detector) {
                let mut datum = Vec::new();
                let place = AlertNumber { visit: number, detector, number: alert };
                generator.write(place, &mut datum);
                packets.push(datum);
            }
            producer.publish(Ccd { visit, detector: detector.into() }, &packets)?;
        }
        println!("visit {visit} is published");
    }
    Ok(())
}

fn time(bus: &Bus, start: Start) -> Result<AlertReader, Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let options = ReaderOptions { start: start.clone(), ..ReaderOptions::default() };
    let mut reader = AlertReader::open(bus, "alerts", options)?;
    let opened = begun.elapsed();
    let read = reader.read(1, 1, Duration::from_secs(60))?;
    let first = read.alerts.first().map(|alert| (alert.visit, alert.id));
    println!("{start:?}: opened in {opened:?}, first alert {first:?} in {:?}", begun.elapsed());
    Ok(reader)
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("give a folder")?;
    let visits = arguments.next().map_or(Ok(5), |number| number.parse())?;
    let options = GeneratorOptions { history: History::None, ..GeneratorOptions::default() };
    let mut generator = Generator::new(options);
    let bus = Bus::connect(&format!("journal:{folder}"))?;
    publish(&bus, &mut generator, visits)?;
    let begun = Instant::now();
    let mut reader = time(&bus, Start::Earliest)?;
    let (mut alerts, mut decided) = (0, 0);
    while decided < visits as usize {
        let read = reader.read(256, 64 << 20, Duration::from_secs(60))?;
        alerts += read.alerts.len();
        decided += read.events.iter().filter(|event| is_decided(event)).count();
    }
    let total = begun.elapsed();
    println!("{alerts} alerts of {visits} visits read, verified and closed in {total:?}");
    for number in [1.min(visits - 1), visits - 1] {
        let place = AlertNumber { visit: number, detector: 77, number: 3 };
        time(&bus, Start::Visit(generator.visit_id(number)))?;
        time(&bus, Start::Alert(generator.alert_id(place)))?;
    }
    Ok(())
}

fn is_decided(event: &VisitEvent) -> bool {
    matches!(event, VisitEvent::Decided { .. })
}
