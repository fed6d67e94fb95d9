//! What is on a bus.

use std::time::Duration;

use helio_bus::{Bus, Start, Subscribe};
use helio_logging::{Lanes, Level, Packet, Record};

/// How long a test waits for what must come: it only keeps a failed test from hanging.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// All records of a bus, in the order of their times.
pub(crate) fn records(bus: &Bus) -> Vec<Record> {
    let mut records = Vec::new();
    for level in Level::ALL {
        let topic = bus.topic(Lanes::default().topic(level).unwrap()).unwrap();
        let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        while let Some(event) = samples.try_next().unwrap() {
            let sample = event.into_sample().unwrap();
            let packet = Packet::parse(&sample.payload).unwrap();
            records.extend(packet.records().map(|record| record.to_record().unwrap()));
        }
    }
    records.sort_by_key(|record| record.time);
    records
}
