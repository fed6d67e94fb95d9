//! Producers on a bus, and archives of what they publish.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use helio_bus::{Bus, Message, ProducerName, Publisher, Tai};
use helio_log_archive::{ArchiveEvent, ArchiveOptions, Archiver, Counts, Search, SearchItem};
use helio_logging::{Lanes, Level, Numbers, PacketWriter, Predicate, Record, Selector, Views};

/// Publishes packets under its name.
pub(crate) struct Producer {
    bus: Bus,
    name: String,
    pub(crate) lanes: Lanes,
    ways: BTreeMap<Level, (Publisher, u64)>,
}

impl Producer {
    pub(crate) fn new(bus: &Bus, name: &str) -> Self {
        let (bus, name) = (bus.clone(), name.to_owned());
        Self { bus, name, lanes: Lanes::default(), ways: BTreeMap::new() }
    }

    pub(crate) fn way(&mut self, level: Level) -> &mut (Publisher, u64) {
        let (bus, name) = (&self.bus, ProducerName::new(&self.name).unwrap());
        let lanes = &self.lanes;
        self.ways.entry(level).or_insert_with(|| {
            let topic = bus.topic(lanes.topic(level).unwrap().producer(name)).unwrap();
            (topic.publisher().unwrap(), 1)
        })
    }

    /// Publishes a packet, and gives its records as they are to be found.
    pub(crate) fn publish(&mut self, lane: Level, records: &[Record]) -> Vec<Record> {
        let name = self.name.clone();
        let (publisher, next) = self.way(lane);
        let mut writer = PacketWriter::default();
        records.iter().for_each(|record| writer.push(record).unwrap());
        let numbers = Numbers { lane: Some(lane), first: *next, shed: 0 };
        publisher.publish(Message::new(writer.finish(numbers))).wait().unwrap();
        let mut found = Vec::new();
        for record in records {
            let mut record = Record { sequence: *next, ..record.clone() };
            if record.producer.is_empty() {
                record.producer.clone_from(&name);
            }
            *next += 1;
            found.push(record);
        }
        found
    }
}

/// So many nanoseconds after a night's beginning.
pub(crate) fn at(nanos: i64) -> Tai {
    let night: Tai = "2026-11-21T03:00:00Z".parse().unwrap();
    Tai::from_nanos(night.nanos() + nanos)
}

pub(crate) fn record(time: i64, level: Level, text: &str) -> Record {
    Record::new(at(time), level, "CONTROL/DV11", text)
}

pub(crate) fn selector(text: &str) -> Selector {
    let predicate: Predicate = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    predicate.compile(Tai::default(), &Views::default()).unwrap()
}

/// Blocks are written when they are full, or at the end.
pub(crate) fn options() -> ArchiveOptions {
    ArchiveOptions::default().block_age(Duration::from_secs(3_600))
}

pub(crate) fn keeper(bus: &Bus, folder: &Path, options: ArchiveOptions) -> Archiver {
    Archiver::open(bus, &Lanes::default(), folder, options, None).unwrap()
}

pub(crate) fn run(keeper: &mut Archiver) -> Vec<ArchiveEvent> {
    let mut told = Vec::new();
    while keeper.step(Duration::ZERO, |item| told.push(item)).unwrap() {}
    told
}

/// Archives all that there is.
pub(crate) fn archive(bus: &Bus, folder: &Path, options: ArchiveOptions) -> Vec<ArchiveEvent> {
    let mut keeper = keeper(bus, folder, options);
    let mut told = run(&mut keeper);
    keeper.finish(|item| told.push(item)).unwrap();
    told
}

pub(crate) fn search(folder: &Path, predicate: &str) -> (Vec<Record>, Vec<String>) {
    let (mut records, mut news) = (Vec::new(), Vec::new());
    for found in Search::open(folder, selector(predicate)).unwrap() {
        match found {
            SearchItem::Record(record) => records.push(*record),
            SearchItem::Gap(_, gap) => news.push(gap.text),
            SearchItem::Malformed { producer, sequence } => {
                news.push(format!("{producer} {sequence}"))
            }
            SearchItem::Damage(damage) => news.push(format!("{damage:?}")),
        }
    }
    (records, news)
}

pub(crate) fn texts(folder: &Path, predicate: &str) -> Vec<String> {
    search(folder, predicate).0.iter().map(Record::message).collect()
}

pub(crate) fn count(folder: &Path, predicate: &str) -> Counts {
    Search::open(folder, selector(predicate)).unwrap().count()
}

pub(crate) fn files(folder: &Path, lane: &str, kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join(lane)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == kind)).collect();
    paths.sort();
    paths
}
