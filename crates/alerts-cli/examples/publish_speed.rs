//! How fast one process serialises and publishes visits: rows and FITS files are made before, and
//! the time from the first packet's encoding to the last manifest that the bus accepted counts.
//!
//! `cargo run --release -p helio-alerts-cli --example publish_speed URL [ALERTS [THREADS [FILE]]]`
//! prints a JSON line a visit. `FILE` receives the packets of the last visit, each behind its
//! length (four bytes, little-endian), for a peer that is to publish the same bytes.
#![allow(clippy::unwrap_used, reason = "an example that cannot run ends")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use helio_alerts::generator::{AlertNumber, Drawn, Generator, GeneratorOptions};
use helio_alerts::layout::Ccd;
use helio_alerts::packet::PacketEncoder;
use helio_alerts::producer::{CcdProducer, ProducerOptions};
use helio_alerts::rubin::Version;
use helio_alerts::visit::Opening;
use helio_bus::Bus;

/// The visits; the first makes files and connections, and does not count.
const VISITS: i64 = 4;
const DETECTORS: i32 = 189;
/// Alerts that are made; packets take them in turn, with identifiers of their own. They are more
/// than a processor's cache has room for.
const DRAWN: u32 = 1_024;

/// What one thread did.
#[derive(Default)]
struct Done {
    bytes: u64,
    encode: Duration,
}

struct Night {
    producer: CcdProducer,
    drawn: Vec<Drawn>,
    alerts: u32,
    threads: usize,
}

impl Night {
    /// The packets of a detector.
    fn packets(&self, encoder: &mut PacketEncoder, ccd: Ccd) -> Vec<Vec<u8>> {
        let (of, all) = (ccd.detector as u32, DETECTORS as u32);
        let count = self.alerts / all + u32::from(of < self.alerts % all);
        let packet = |number| {
            let drawn = &self.drawn[((number * all + of) % DRAWN) as usize];
            let id = (ccd.visit << 8 | i64::from(of)) << 24 | i64::from(number);
            let mut datum = Vec::new();
            encoder.encode(&helio_alerts::packet::Alert { id, ..drawn.alert() }, &mut datum);
            datum
        };
        (0..count).map(packet).collect()
    }

    /// Publishes detectors until there are no more.
    fn publish(&self, visit: i64, next: &AtomicI32) -> Done {
        let (mut encoder, mut done) = (PacketEncoder::new(Version::LATEST), Done::default());
        loop {
            let detector = next.fetch_add(1, Ordering::Relaxed);
            if detector >= DETECTORS {
                return done;
            }
            let (begun, ccd) = (Instant::now(), Ccd { visit, detector });
            let packets = self.packets(&mut encoder, ccd);
            done.encode += begun.elapsed();
            done.bytes += packets.iter().map(|packet| packet.len() as u64).sum::<u64>();
            assert!(self.producer.publish(ccd, &packets).unwrap().is_published());
        }
    }

    fn visit(&self, visit: i64) {
        let opening = Opening {
            visit,
            detectors: (0..DETECTORS).collect(),
            shutter_close_ns: 0,
            window_ns: 600_000_000_000,
            starts: Vec::new(),
        };
        self.producer.open_visit(opening).unwrap();
        let (begun, next) = (Instant::now(), AtomicI32::new(0));
        let done: Vec<Done> = std::thread::scope(|scope| {
            let start = |_| scope.spawn(|| self.publish(visit, &next));
            let threads: Vec<_> = (0..self.threads).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{{\"visit\":{visit},\"alerts\":{},\"bytes\":{},\"seconds\":{seconds:.4},\
             \"encode_s\":{:.4}}}",
            self.alerts,
            done.iter().map(|one| one.bytes).sum::<u64>(),
            done.iter().map(|one| one.encode.as_secs_f64()).sum::<f64>(),
        );
    }

    fn write(&self, visit: i64, file: &str) {
        let mut encoder = PacketEncoder::new(Version::LATEST);
        let mut out = BufWriter::new(File::create(file).unwrap());
        for detector in 0..DETECTORS {
            for packet in self.packets(&mut encoder, Ccd { visit, detector }) {
                out.write_all(&(packet.len() as u32).to_le_bytes()).unwrap();
                out.write_all(&packet).unwrap();
            }
        }
        out.flush().unwrap();
    }
}

fn main() {
    helio_transports::register_all();
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().expect("the URL of a bus");
    let mut number = |other| arguments.next().map_or(other, |text| text.parse().unwrap());
    let (alerts, threads) = (number(10_000), number(1) as usize);
    let bus = Bus::builder().producer("publish-speed").connect(&url).unwrap();
    let topic = format!("publish-speed-{}", std::process::id());
    let options = ProducerOptions::default();
    let producer = CcdProducer::open(&bus, &topic, Version::LATEST.schema(), options).unwrap();
    let mut generator = Generator::new(GeneratorOptions::default());
    let place =
        |number| AlertNumber { visit: 0, detector: (number / 50) as u16, number: number % 50 };
    let drawn = (0..DRAWN).map(|number| generator.draw(place(number))).collect();
    let night = Night { producer, drawn, alerts, threads };
    (0..VISITS).for_each(|visit| night.visit(1_000_000 + visit));
    if let Some(file) = arguments.next() {
        night.write(1_000_000 + VISITS - 1, &file);
    }
}
