//! Archives of any records, searched with predicates and damaged.

use std::fs::File;
use std::time::Duration;

use helio_bus::Bus;
use helio_log_archive::{Archive, Search, SearchItem};
use helio_logging::{Lanes, Level, Record};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::*;

prop_compose! {
    fn scenes()(
        (time, level) in (0..100_i64, (1..=11_u8).prop_map(|number| Level::new(number).unwrap())),
        text in select(vec!["axis off", "Timeout of 3 s", "lost lock", "timeout", ""]),
        logger in select(vec!["CONTROL/DV11", "CONTROL", "CORR", ""]),
        host in select(vec!["dv11", "CORR", ""]),
        antenna in select(vec!["", "DV11", "DV12"]),
        encoder in prop::option::of(0..5_i64),
    ) -> Record {
        let mut record = record(time, level, text);
        record.logger = logger.to_owned();
        record.host = host.to_owned();
        record.antenna = antenna.to_owned();
        record.data.extend(encoder.map(|value| ("encoder".to_owned(), value.into())));
        record
    }
}

const PREDICATES: [&str; 14] = [
    "",
    "timeout",
    "\"lost lock\" or timeout",
    "not timeout",
    "level >= ERROR and off",
    "time < 2026-11-21T03:00:00.00000005Z level < INFO",
    "logger = CONTROL/*",
    "logger = CONTROL/** not antenna = DV11",
    "host = CORR and antenna != DV12",
    "data.encoder > 2 or message = timeout",
    "data.encoder = 3 logger = CORR",
    "has data.encoder and not has antenna",
    "message ~ \"^(axis|lost)\"",
    "data.other = 3",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Filters, zone maps, merging and order against a filter of all records, one by one.
    #[test]
    fn a_search_finds_what_a_filter_of_all_records_finds(
        packets in vec((select(Level::ALL.to_vec()), vec(scenes(), 1..20)), 1..12),
        (ages, closes) in (vec(any::<bool>(), 12), vec(any::<bool>(), 12)),
    ) {
        let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
        let mut producer = Producer::new(&bus, "mount");
        let mut all = Vec::new();
        for (place, (lane, mut records)) in packets.into_iter().enumerate() {
            // A lane has records of its level alone, but for the reserved one.
            let others = records.iter_mut().filter(|record| Lanes::lane(record.level) != lane);
            others.for_each(|record| record.level = lane);
            all.extend(producer.publish(lane, &records));
            let age = if ages[place] { Duration::ZERO } else { Duration::from_secs(3_600) };
            let segment = if closes[place] { 1 } else { 1 << 20 };
            archive(&bus, folder.path(), options().block_age(age).segment_bytes(segment));
        }
        for predicate in PREDICATES {
            let selector = selector(predicate);
            let mut expected: Vec<_> =
                all.iter().filter(|record| selector.matches(record)).cloned().collect();
            let (mut found, news) = search(folder.path(), predicate);
            prop_assert_eq!(news, [""; 0]);
            prop_assert!(found.is_sorted_by_key(|record| record.time), "{}", predicate);
            let counted = count(folder.path(), predicate);
            prop_assert_eq!(counted.records, expected.len() as u64, "{}", predicate);
            let key = |record: &Record| (record.time, record.level, record.sequence);
            expected.sort_by_key(key);
            found.sort_by_key(key);
            prop_assert_eq!(found, expected, "{}", predicate);
        }
    }

    /// Whatever a file has become: a record that was put in, or damage, and no panic.
    #[test]
    fn damage_is_never_a_panic_and_never_another_record(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        (which, cut) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        is_cut: bool,
    ) {
        let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
        let mut producer = Producer::new(&bus, "mount");
        let mut all = Vec::new();
        for number in 0..6 {
            let text = format!("step {number}");
            all.extend(producer.publish(Level::INFO, &[record(number, Level::INFO, &text)]));
            let bytes = if number == 2 { 1 } else { 1 << 20 };
            archive(&bus, folder.path(), options().segment_bytes(bytes));
        }
        let mut paths = files(folder.path(), "INFO", "seg");
        paths.extend(files(folder.path(), "INFO", "open"));
        let path = &paths[which.index(paths.len())];
        let mut bytes = std::fs::read(path).unwrap();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(path, &bytes).unwrap();
        if let Ok(search) = Search::open(folder.path(), selector("")) {
            for found in search {
                if let SearchItem::Record(record) = found {
                    prop_assert!(all.contains(&record));
                }
            }
        }
        _ = Archive::open(folder.path(), options());
        prop_assert!(File::open(path).is_ok());
    }
}
