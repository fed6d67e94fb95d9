//! Archives of producers on a bus: what goes in is found, once, whatever happens in between.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helio_bus::Bus;
use helio_log_archive::{Archive, ArchiveError, ArchiveEvent, Archiver, Retention, Search};
use helio_logging::{Lanes, Level, Record, Selector, Start};

use crate::support::*;

#[test]
fn records_are_found_as_they_were_published_whatever_their_level() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let mut producer = Producer::new(&bus, "mount");
    let mut expected = Vec::new();
    for (number, level) in (1..=11).filter_map(Level::new).enumerate() {
        let mut whole = record(number as i64, level, "axis is off");
        whole.host = "dv11-abm".to_owned();
        whole.site.file = "axis.cpp".to_owned();
        whole.site.line = 120;
        whole.data = vec![("encoder".to_owned(), (number as i64).into())];
        whole.producer = if number % 2 == 0 { String::new() } else { "other".to_owned() };
        expected.extend(producer.publish(Lanes::lane(level), &[whole]));
    }
    archive(&bus, folder.path(), options());
    assert_eq!(search(folder.path(), "").0, expected);
    assert_eq!(search(folder.path(), "level = 7").0, expected[6..7]);
    assert_eq!(search(folder.path(), "data.encoder = 3 file = axis.cpp").0, expected[3..4]);
    assert_eq!(count(folder.path(), "off and producer = other").records, 5);
    let nothing = count(folder.path(), "host = dv12");
    assert_eq!((nothing.records, nothing.opened), (0, 0), "filters exclude all blocks");
}

#[test]
fn a_lane_that_was_empty_goes_on_where_it_was_empty() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    archive(&bus, folder.path(), options());
    let mut producer = Producer::new(&bus, "mount");
    producer.publish(Level::ALERT, &[record(1, Level::ALERT, "between")]);
    archive(&bus, folder.path(), options());
    archive(&bus, folder.path(), options());
    assert_eq!(texts(folder.path(), ""), ["between"]);
}

#[test]
fn an_archiver_that_is_killed_as_it_begins_misses_nothing() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let mut producer = Producer::new(&bus, "mount");
    producer.publish(Level::DEBUG, &[record(1, Level::DEBUG, "below")]);
    producer.publish(Level::ERROR, &[record(2, Level::ERROR, "above")]);
    // It has made the segments of some lanes, and not those of the others.
    drop(keeper(&bus, folder.path(), options()));
    for lane in ["ERROR", "ALERT"] {
        std::fs::remove_file(files(folder.path(), lane, "open").pop().unwrap()).unwrap();
    }
    producer.publish(Level::ALERT, &[record(3, Level::ALERT, "between")]);
    archive(&bus, folder.path(), options());
    archive(&bus, folder.path(), options());
    assert_eq!(texts(folder.path(), ""), ["below", "above", "between"]);
}

#[test]
fn an_archiver_that_is_killed_loses_nothing_and_repeats_nothing() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let mut producer = Producer::new(&bus, "mount");
    let (mut expected, mut cuts) = (Vec::new(), 0);
    let now = options().block_age(Duration::ZERO);
    for round in 0..40_i64 {
        for level in [Level::DEBUG, Level::ERROR] {
            let text = format!("{round} {level}");
            let records = [record(2 * round, level, &text), record(2 * round + 1, level, &text)];
            expected.extend(producer.publish(level, &records));
        }
        // What was committed stays; what was only taken is read again by the next one.
        let mut killed =
            keeper(&bus, folder.path(), if round % 3 == 0 { options() } else { now.clone() });
        run(&mut killed);
        drop(killed);
        // The last block was being written when it was killed: any part of it is there.
        let open = files(folder.path(), "DEBUG", "open").pop().unwrap();
        let bytes = std::fs::read(&open).unwrap();
        let mut blocks = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"HLAB"));
        if let Some(last) = blocks.next_back().filter(|_| round % 2 == 0) {
            let cut = last + (bytes.len() - last) * (round as usize % 7) / 7;
            let file = OpenOptions::new().write(true).open(&open).unwrap();
            file.set_len(cut as u64).unwrap();
            cuts += 1;
        }
    }
    assert!(cuts > 10, "{cuts}");
    archive(&bus, folder.path(), options());
    let (mut found, _) = search(folder.path(), "");
    let key = |record: &Record| (record.time, record.level, record.sequence);
    assert!(found.is_sorted_by_key(|record| record.time));
    found.sort_by_key(key);
    expected.sort_by_key(key);
    assert_eq!(found, expected);
}

#[test]
fn a_full_disk_is_told_and_nothing_is_lost() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let mut producer = Producer::new(&bus, "mount");
    let full = Arc::new(AtomicBool::new(true));
    let disk = Arc::clone(&full);
    let options = options().block_age(Duration::ZERO).writing(move |file, bytes, at| {
        if disk.load(Ordering::Relaxed) {
            // Half of it goes in, as it does.
            file.write_all_at(&bytes[..bytes.len() / 2], at)?;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        file.write_all_at(bytes, at)
    });
    let mut keeper = keeper(&bus, folder.path(), options);
    producer.publish(Level::INFO, &[record(1, Level::INFO, "first")]);
    let mut told = Vec::new();
    for _ in 0..5 {
        keeper.step(Duration::ZERO, |item| told.push(item)).unwrap();
    }
    let trouble = told.iter().filter(|item| matches!(item, ArchiveEvent::Trouble(_))).count();
    assert_eq!(trouble, 1, "{told:?}");
    assert_eq!(texts(folder.path(), ""), [""; 0]);
    producer.publish(Level::INFO, &[record(2, Level::INFO, "second")]);
    full.store(false, Ordering::Relaxed);
    let told = run(&mut keeper);
    assert!(told.contains(&ArchiveEvent::Well), "{told:?}");
    keeper.finish(|_| {}).unwrap();
    assert_eq!(texts(folder.path(), ""), ["first", "second"]);
}

#[test]
fn two_archivers_of_one_folder_are_refused() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let first = keeper(&bus, folder.path(), options());
    let second = Archive::open(folder.path(), options());
    assert!(matches!(second, Err(ArchiveError::Locked(_))));
    drop(first);
    assert!(Archive::open(folder.path(), options()).is_ok());
}

#[test]
fn an_archive_of_another_bus_goes_on_only_where_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let buses = [Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap()];
    for (bus, text) in buses.iter().zip(["one", "two"]) {
        Producer::new(bus, "mount").publish(Level::INFO, &[record(1, Level::INFO, text)]);
    }
    archive(&buses[0], folder.path(), options());
    let lanes = Lanes::default();
    let open = |start| Archiver::open(&buses[1], &lanes, folder.path(), options(), start);
    let refused = open(None).unwrap_err().to_string();
    assert!(refused.contains("another bus"), "{refused}");
    let mut keeper = open(Some(Start::Earliest)).unwrap();
    run(&mut keeper);
    keeper.finish(|_| {}).unwrap();
    assert_eq!(texts(folder.path(), ""), ["one", "two"]);
    let mut keeper = open(None).unwrap();
    run(&mut keeper);
    keeper.finish(|_| {}).unwrap();
    assert_eq!(texts(folder.path(), ""), ["one", "two"]);
}

#[test]
fn gaps_are_archived_where_they_are_and_survive_closing() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let mut producer = Producer::new(&bus, "mount");
    let small = || options().block_age(Duration::ZERO).segment_bytes(1);
    archive(&bus, folder.path(), small());
    let mut keeper = keeper(&bus, folder.path(), small());
    producer.publish(Level::ERROR, &[record(10, Level::ERROR, "before")]);
    run(&mut keeper);
    producer.way(Level::ERROR).1 += 3;
    producer.publish(Level::ERROR, &[record(20, Level::ERROR, "after")]);
    run(&mut keeper);
    keeper.finish(|_| {}).unwrap();
    let (records, news) = search(folder.path(), "level = ERROR");
    assert_eq!(records.len(), 2);
    assert_eq!(news.len(), 1, "{news:?}");
    assert!(news[0].starts_with("ERROR: 3 records of mount"), "{news:?}");
    assert_eq!(search(folder.path(), "level = DEBUG").1, [""; 0], "of another lane");
    let later: Selector = selector("time > 2026-11-22");
    assert_eq!(Search::open(folder.path(), later).unwrap().count().gaps, 0, "of another time");
    assert_eq!(count(folder.path(), "level = ERROR nothing").gaps, 1);
}

#[test]
fn small_blocks_of_a_closed_segment_are_put_together() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let mut producers = [Producer::new(&bus, "one"), Producer::new(&bus, "two")];
    let mut expected = Vec::new();
    let now = options().block_age(Duration::ZERO);
    let mut keeper = keeper(&bus, folder.path(), now.clone());
    for number in 0..60_i64 {
        let producer = &mut producers[number as usize % 2];
        expected.extend(producer.publish(Level::INFO, &[record(number, Level::INFO, "step")]));
        run(&mut keeper);
    }
    keeper.finish(|_| {}).unwrap();
    let before = count(folder.path(), "step");
    assert_eq!((before.records, before.blocks), (60, 60));
    // The next one closes it, as it is too large now.
    archive(&bus, folder.path(), now.segment_bytes(1));
    assert_eq!(files(folder.path(), "INFO", "seg").len(), 1);
    let behind = count(folder.path(), "step");
    assert_eq!((behind.records, behind.blocks), (60, 1));
    assert_eq!(search(folder.path(), "").0, expected);
    archive(&bus, folder.path(), options());
    assert_eq!(search(folder.path(), "").0, expected, "the cursor is kept");
}

#[test]
fn retention_removes_whole_segments_and_says_so() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let mut producer = Producer::new(&bus, "mount");
    let keep = Retention { age: None, bytes: Some(2_000) };
    let options =
        options().block_age(Duration::ZERO).segment_bytes(1).retention(Level::DEBUG, keep);
    let (mut lost, mut told) = (0, Vec::new());
    for number in 0..20 {
        for level in [Level::DEBUG, Level::INFO] {
            producer.publish(level, &[record(number, level, &format!("{number}"))]);
        }
        told.extend(archive(&bus, folder.path(), options.clone()));
        // What was finished last is closed by the next one.
    }
    for item in &told {
        if let ArchiveEvent::Removed { lane, records, .. } = item {
            assert_eq!(*lane, Level::DEBUG);
            lost += records;
        }
    }
    let kept = texts(folder.path(), "level = DEBUG");
    assert!(!kept.is_empty() && lost > 0);
    assert_eq!(kept.len() as u64 + lost, 20);
    assert_eq!(kept.last().unwrap(), "19");
    assert_eq!(texts(folder.path(), "level = INFO").len(), 20);
    let search = Search::open(folder.path(), selector("")).unwrap();
    let [(Level::DEBUG, removed)] = search.removed() else { panic!("{:?}", search.removed()) };
    assert_eq!((removed.records, removed.until), (lost, at(lost as i64 - 1)));
    // A process that was killed between saying and removing: the next one removes.
    let gone = folder.path().join("DEBUG/0000000001.seg");
    std::fs::write(&gone, "left").unwrap();
    archive(&bus, folder.path(), options);
    assert!(!gone.exists());
}

#[test]
fn a_damaged_block_is_told_and_the_others_are_found() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let mut producer = Producer::new(&bus, "mount");
    let now = options().block_age(Duration::ZERO);
    let mut keeper = keeper(&bus, folder.path(), now);
    for number in 0..3 {
        producer.publish(Level::INFO, &[record(number, Level::INFO, &format!("text {number}"))]);
        run(&mut keeper);
    }
    keeper.finish(|_| {}).unwrap();
    let path = files(folder.path(), "INFO", "open").pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let blocks: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"HLAB")).collect();
    let at = blocks[2] - 5;
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (records, news) = search(folder.path(), "text");
    assert_eq!((records.len(), news.len()), (2, 1), "{news:?}");
    assert!(news[0].contains("a block is damaged"), "{news:?}");
    let missing = Search::open(&folder.path().join("nowhere"), selector(""));
    assert!(matches!(missing, Err(ArchiveError::Missing(_))));
}

#[test]
fn archives_of_version_1_are_read_for_ever() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/archive-1");
    if std::env::var_os("HELIO_GOLDEN").is_some() {
        _ = std::fs::remove_dir_all(&golden);
        let bus = Bus::connect("memory:").unwrap();
        let mut producer = Producer::new(&bus, "mount");
        let mut keeper =
            keeper(&bus, &golden, options().block_age(Duration::ZERO).segment_bytes(1));
        producer
            .publish(Level::INFO, &[record(1, Level::INFO, "first"), record(2, Level::INFO, "b")]);
        run(&mut keeper);
        keeper.finish(|_| {}).unwrap();
        producer.way(Level::INFO).1 += 7;
        producer.publish(Level::INFO, &[record(3, Level::INFO, "second")]);
        archive(&bus, &golden, options());
        for level in Level::ALL.into_iter().filter(|level| *level != Level::INFO) {
            std::fs::remove_dir_all(golden.join(level.name())).unwrap();
        }
    }
    assert_eq!(files(&golden, "INFO", "seg").len(), 1);
    let (records, _) = search(&golden, "level = INFO not b");
    let seen: Vec<_> = records.iter().map(|r| (r.message(), r.time, r.sequence)).collect();
    assert_eq!(seen, [("first".to_owned(), at(1), 1), ("second".to_owned(), at(3), 10)]);
    assert!(records.iter().all(|r| r.producer == "mount" && r.logger == "CONTROL/DV11"));
    let nothing = count(&golden, "third");
    assert_eq!((nothing.blocks, nothing.opened), (2, 0), "filters are read as well");
}

#[test]
fn a_late_archiver_tells_once_what_retention_has_removed() {
    let (bus, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let mut producer = Producer::new(&bus, "mount");
    producer.lanes = Lanes::default().retention_bytes(64 << 10);
    let packet: Vec<_> = (0..10).map(|n| record(n, Level::DEBUG, &"x".repeat(1_000))).collect();
    let published = (0..50).map(|_| producer.publish(Level::DEBUG, &packet).len()).sum::<usize>();
    let told = archive(&bus, folder.path(), options());
    let archived = count(folder.path(), "").records;
    let missing = published as u64 - archived;
    assert!(archived > 0 && missing > 0, "{archived} of {published}");
    let gaps = |told: &[ArchiveEvent]| {
        let text = |event: &ArchiveEvent| match event {
            ArchiveEvent::News(text) => Some(text.clone()),
            _ => None,
        };
        told.iter().filter_map(text).collect::<Vec<_>>()
    };
    let [gap] = &gaps(&told)[..] else { panic!("{told:?}") };
    assert!(gap.starts_with(&format!("DEBUG: {missing} records")), "{gap}");
    assert_eq!(count(folder.path(), "").gaps, 1);
    // It is in the archive, and the next run resumes behind it.
    producer.publish(Level::DEBUG, &packet);
    assert_eq!(gaps(&archive(&bus, folder.path(), options())), [""; 0]);
    assert_eq!(count(folder.path(), "").gaps, 1);
}
