//! Visits of the examples: published by one process, and ended as a reader of all ends them.

use std::time::{Duration, Instant};

use helio_alerts::generator::{AlertNumber, Generator};
use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, control_topic};
use helio_alerts::visit::{Closing, Control, Digest, Opening};
use helio_bus::{Bus, Message, TopicSpec};
use helio_core::codec::Codec;
use helio_core::schema::HasSchema;

pub(crate) const TOPIC: &str = "alerts";
pub(crate) const DETECTORS: u16 = 189;

/// Publishes a visit of the generator's packets, all detectors of it.
pub(crate) fn publish(generator: &mut Generator, producer: &CcdProducer, visit: u32) {
    let detectors = (0..i32::from(DETECTORS)).collect();
    let id = generator.visit_id(visit);
    let (window_ns, starts) = (600_000_000_000, Vec::new());
    let opening = Opening { visit: id, detectors, shutter_close_ns: 0, window_ns, starts };
    producer.open_visit(opening).unwrap();
    for detector in 0..DETECTORS {
        let packets: Vec<Vec<u8>> = (0..generator.alerts(detector))
            .map(|number| {
                let mut datum = Vec::new();
                generator.write(AlertNumber { visit, detector, number }, &mut datum);
                datum
            })
            .collect();
        let ccd = Ccd { visit: id, detector: detector.into() };
        assert!(producer.publish(ccd, &packets).unwrap().is_published());
    }
}

/// Ends a visit, as a reader of the whole stream does.
pub(crate) fn close(bus: &Bus, visit: i64) {
    let topic = bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
    let closing = Control::Closing(Closing {
        visit,
        closer: "bench".to_owned(),
        totals: Digest::default(),
        ends: topic.partitions().unwrap().iter().map(|p| p.end as i64).collect(),
        missing: Vec::new(),
        short: Vec::new(),
        repeated: Vec::new(),
    });
    let mut payload = Vec::new();
    Codec::new(&Control::schema().unwrap()).serialize(&closing, &mut payload).unwrap();
    let publisher = control_topic(bus, TOPIC).unwrap().publisher().unwrap();
    publisher.publish(Message::new(&payload)).wait().unwrap();
}

/// Waits for a condition.
pub(crate) fn until(mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < Duration::from_secs(600), "it hangs");
        std::thread::sleep(Duration::from_micros(200));
    }
}
