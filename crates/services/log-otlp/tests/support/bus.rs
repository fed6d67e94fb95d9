//! Log records on a bus, and a forwarder of them.

use std::path::Path;
use std::time::Duration;

use helio_bus::{Bus, Message, Publisher};
use helio_core::Tai;
use helio_log_otlp::{
    CursorFile, Exporter, ForwardError, ForwardEvent, ForwardOptions, Forwarder, Step,
};
use helio_logging::{
    Follow, Lanes, Level, Numbers, PacketWriter, Reader, ReaderOptions, Record, Start,
};

/// Publishes records of INFO, numbered on from one.
pub(crate) struct Published {
    pub(crate) bus: Bus,
    publisher: Publisher,
    next: u64,
}

impl Published {
    pub(crate) fn new() -> Self {
        let bus = Bus::connect("memory:").unwrap();
        let topic = bus.topic(Lanes::default().topic(Level::INFO).unwrap()).unwrap();
        let publisher = topic.publisher().unwrap();
        Self { bus, publisher, next: 1 }
    }

    pub(crate) fn publish(&mut self, count: u64) {
        let mut packet = PacketWriter::default();
        for number in self.next..self.next + count {
            let time = Tai::from_nanos(1_790_000_000_000_000_000 + number as i64);
            let record = Record::new(time, Level::INFO, "CONTROL", &number.to_string());
            packet.push(&record).unwrap();
        }
        let numbers = Numbers { lane: Some(Level::INFO), first: self.next, shed: 0 };
        let message = Message::new(packet.finish(numbers));
        self.publisher.publish(message).wait().unwrap();
        self.next += count;
    }

    /// A forwarder of all that is there, in batches of ten.
    pub(crate) fn forwarder(&self, exporter: Exporter, file: &Path) -> Forwarder {
        let (file, cursor) = CursorFile::open(file).unwrap();
        let start = cursor.map_or(Start::Earliest, Start::Cursor);
        let options = ReaderOptions::from(start).follow(Follow::No);
        let reader = Reader::open(&self.bus, &Lanes::default(), options).unwrap();
        let options = ForwardOptions { batch_records: 10, ..ForwardOptions::default() };
        Forwarder::new(reader.records(), exporter, file, options).unwrap()
    }
}

/// Steps until the end, or until nothing was taken; what was told.
pub(crate) fn forward(forwarder: &mut Forwarder) -> Result<Vec<ForwardEvent>, ForwardError> {
    let mut all = Vec::new();
    loop {
        match forwarder.step(Duration::from_secs(60))? {
            Step::Waited | Step::Sent(_) => {}
            Step::End => return Ok(all),
            Step::Event(told) => {
                let later = matches!(told, ForwardEvent::Later { .. });
                all.push(told);
                if later {
                    return Ok(all);
                }
            }
        }
    }
}

/// The texts of numbers.
pub(crate) fn numbers(range: std::ops::RangeInclusive<u64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}
