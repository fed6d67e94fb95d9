//! Producers that say what a test has them say, on the bus alone.

use std::collections::BTreeMap;
use std::time::Duration;

use helio_bus::{Bus, Message, ProducerName, Publisher, Tai, TopicSpec};
use helio_logging::{Lanes, Level, Numbers, PacketWriter, Record};

/// How long a test waits for what must come: it only keeps a failed test from hanging.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// A producer with a publisher a lane; dropped, its incarnation ends.
pub(crate) struct Producer {
    pub(crate) name: String,
    bus: Bus,
    lanes: Lanes,
    ways: BTreeMap<Level, Way>,
}

struct Way {
    publisher: Publisher,
    next: u64,
    shed: u64,
}

impl Producer {
    pub(crate) fn new(bus: &Bus, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            bus: bus.clone(),
            lanes: Lanes::default(),
            ways: BTreeMap::new(),
        }
    }

    fn way(&mut self, level: Level) -> &mut Way {
        let Self { name, bus, lanes, ways } = self;
        ways.entry(level).or_insert_with(|| {
            let name = ProducerName::new(name).unwrap();
            // As it is, where a test has made it otherwise.
            let spec = TopicSpec::new(&lanes.topic_name(level)).unwrap();
            let topic = bus.topic(spec.producer(name.clone()));
            let made = || bus.topic(lanes.topic(level).unwrap().producer(name));
            let topic = topic.or_else(|_| made()).unwrap();
            Way { publisher: topic.publisher().unwrap(), next: 1, shed: 0 }
        })
    }

    /// Publishes a packet with a record at each of these times; its text is its number.
    pub(crate) fn packet(&mut self, level: Level, times: impl IntoIterator<Item = i64>) {
        let logger = self.name.clone();
        let way = self.way(level);
        let mut writer = PacketWriter::default();
        let first = way.next;
        for time in times {
            let text = way.next.to_string();
            way.next += 1;
            writer.push(&Record::new(Tai::from_nanos(time), level, &logger, &text)).unwrap();
        }
        let numbers = Numbers { lane: Some(level), first, shed: way.shed };
        way.publisher.publish(Message::new(writer.finish(numbers))).wait().unwrap();
    }

    /// Publishes a packet without records: its last word, or what it shed.
    pub(crate) fn empty(&mut self, level: Level) {
        self.packet(level, []);
    }

    /// Drops records that have no number yet.
    pub(crate) fn shed(&mut self, level: Level, count: u64) {
        self.way(level).shed += count;
    }

    /// Numbers records that do not come.
    pub(crate) fn lose(&mut self, level: Level, count: u64) {
        self.way(level).next += count;
    }

    /// Publishes bytes that are no packet, in the place of one with so many records.
    pub(crate) fn damaged(&mut self, level: Level, records: u64, bytes: &[u8]) {
        let way = self.way(level);
        way.next += records;
        way.publisher.publish(Message::new(bytes)).wait().unwrap();
    }

    /// Publishes a packet of one record with a body that nobody can read.
    pub(crate) fn malformed(&mut self, level: Level) {
        let (audiences, origin) = Default::default();
        let way = self.way(level);
        let mut writer = PacketWriter::default();
        let entry = helio_logging::RecordEntry {
            time: Tai::default(),
            level,
            logger: "malformed",
            audiences: &audiences,
            origin: &origin,
            site: None,
            registered: None,
            body: &[99],
        };
        writer.push_entry(&entry).unwrap();
        let numbers = Numbers { lane: Some(level), first: way.next, shed: way.shed };
        way.next += 1;
        way.publisher.publish(Message::new(writer.finish(numbers))).wait().unwrap();
    }

    /// Ends, and begins anew.
    pub(crate) fn restart(&mut self) {
        self.ways.clear();
    }
}
