//! Journals of each version of the format, kept for ever: every later program reads and upgrades
//! them, and this one still writes the newest one's bytes. `HELIO_GOLDEN_WRITE=v3` recreates that
//! folder.
//!
//! `v1` has segments without headers. In `v2` some records have headers, from the twentieth on; its
//! first segment is the same as in `v1`. `v3` has them, too, in segments with running times; from
//! the thirtieth record on payloads are aligned. `exclusive-v1` is an exclusive log of two epochs.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use helio_core::{Headers, ProducerName, SchemaId, Tai, TopicName, TraceId};
use helio_journal::{
    Access, ExclusiveLog, ExclusiveOptions, From, Item, Journal, JournalError, JournalOptions,
    Maintenance, Ownership, PAYLOAD_ALIGNMENT, Record, RunEnd, SyncPolicy, TopicConfig,
    WriterOptions,
};

const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];
const NEWEST: &str = VERSIONS[VERSIONS.len() - 1];
const ALIGNED_FROM: usize = 30;
const SCHEMA: &str = "schemas/0000000000001234.avsc";

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

fn options(access: Access) -> JournalOptions {
    JournalOptions {
        access,
        maintenance: Maintenance::Manual,
        boot_id: Some([1; 16]),
        seed: Some(42),
        uptime: Arc::new(|| Duration::from_secs(77)),
        ..JournalOptions::default()
    }
}

const RECORDS: usize = 40;

fn expected(i: usize) -> (Vec<u8>, Vec<u8>, Option<TraceId>) {
    let key = format!("key {}", i % 3).into_bytes();
    let trace = (i % 4 == 1).then_some(TraceId([i as u8; 16]));
    (key, vec![i as u8; i * 37], trace)
}

fn headers(version: &str, i: usize) -> Headers {
    let some = version != "v1" && i >= 20 && i.is_multiple_of(3);
    let with = |h: Headers, name: &str, value: Vec<u8>| h.with(name, value).unwrap();
    match some {
        true => with(with(Headers::new(), "n", vec![i as u8]), "caller", vec![b'x'; i]),
        false => Headers::new(),
    }
}

fn write(dir: &Path) {
    let journal = Journal::open(dir, options(Access::ReadWrite)).unwrap();
    let config = TopicConfig {
        segment_bytes: 16 << 10,
        description: "golden".to_owned(),
        ..TopicConfig::default()
    };
    let topic = journal.create_topic(&TopicName::new("site/wind").unwrap(), &config).unwrap();
    let producer = ProducerName::new("station:1").unwrap();
    let options = WriterOptions { producer, ownership: Ownership::Shared };
    let mut writer = topic.writer(0, &options).unwrap();
    for i in 0..RECORDS {
        if i == ALIGNED_FROM {
            writer.align_payloads();
        }
        let (key, payload, trace) = expected(i);
        let (time, schema) = (Tai::from_nanos(1_000 + i as i64), SchemaId(0x1234));
        let (key, payload) = (&key[..], &payload[..]);
        let headers = headers(NEWEST, i);
        let headers = headers.as_ref();
        let record = Record { key, payload, time, schema, level: i as u8, trace, headers };
        writer.append(&record).unwrap();
    }
    fs::write(dir.join(SCHEMA), "\"bytes\"").unwrap();
    topic.wait_durable(0, RECORDS as u64 - 1, None).unwrap();
}

fn check(dir: &Path, version: &str, access: Access) {
    let journal = Journal::open(dir, options(access)).unwrap();
    let topic = journal.topic(&TopicName::new("site/wind").unwrap()).unwrap().unwrap();
    assert_eq!(topic.config().description, "golden");
    assert_eq!(journal.schemas().unwrap(), [SchemaId(0x1234)]);
    // The number is no identity of that text; programs before this one did not check it.
    let schema = journal.schema(SchemaId(0x1234)).unwrap_err();
    assert!(matches!(schema, JournalError::SchemaEdited { .. }), "{schema}");
    assert_eq!(fs::read(dir.join(SCHEMA)).unwrap(), b"\"bytes\"");
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    for i in 0..RECORDS {
        let Some(Item::Sample(s)) = reader.next().unwrap() else { panic!("record {i}") };
        let (key, payload, trace) = expected(i);
        assert_eq!((s.key, s.payload, s.trace), (&key[..], &payload[..], trace));
        assert_eq!(s.headers, headers(version, i).as_ref());
        assert_eq!((s.offset, s.sequence, s.level), (i as u64, i as u64 + 1, i as u8));
        assert_eq!((s.producer.as_str(), s.incarnation), ("station:1", 1));
        assert_eq!((s.time.nanos(), s.schema), (1_000 + i as i64, SchemaId(0x1234)));
        let aligned = version != "v3" || i < ALIGNED_FROM || access == Access::ReadOnly;
        assert!(aligned || (s.payload.as_ptr() as usize).is_multiple_of(PAYLOAD_ALIGNMENT));
    }
    assert!(reader.next().unwrap().is_none());
    let mut last = topic.reader(0, From::LastPerKey(1)).unwrap();
    for offset in RECORDS as u64 - 3..RECORDS as u64 {
        assert!(matches!(last.next().unwrap(), Some(Item::Sample(s)) if s.offset == offset));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn the_journals_of_all_versions_are_still_read() {
    if std::env::var("HELIO_GOLDEN_WRITE").is_ok_and(|wanted| wanted == NEWEST) {
        fs::remove_dir_all(golden(NEWEST)).ok();
        write(&golden(NEWEST));
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("j");
        copy(&golden(version), &dir);
        let stored_version = || fs::read(dir.join("journal.hj")).unwrap()[8];
        let original = if version == NEWEST { 3 } else { 1 };
        check(&dir, version, Access::ReadOnly);
        assert_eq!(stored_version(), original, "a reader changes nothing");
        check(&dir, version, Access::ReadWrite);
        assert_eq!(stored_version(), 3, "older programs refuse it from now on");
        check(&dir, version, Access::ReadOnly);
    }
}

/// A program is killed at any step of the upgrade: the head is the old or the new one, and the next
/// program continues.
#[test]
fn an_upgrade_that_was_interrupted_is_completed() {
    for version in ["v1", "v2"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("j");
        copy(&golden(version), &dir);
        let old = fs::read(dir.join("journal.hj")).unwrap();
        let journal = Journal::open(&dir, options(Access::ReadWrite)).unwrap();
        let topic = journal.topic(&TopicName::new("site/wind").unwrap()).unwrap().unwrap();
        let producer = ProducerName::new("station:1").unwrap();
        let options = WriterOptions { producer, ownership: Ownership::Shared };
        let mut writer = topic.writer(0, &options).unwrap();
        assert_eq!(writer.append(&Record::default()).unwrap(), RECORDS as u64);
        drop((writer, topic, journal));
        // The new head did not reach the disk, and the segments did.
        fs::write(dir.join("journal.hj"), old).unwrap();
        let journal = Journal::open(&dir, self::options(Access::ReadWrite)).unwrap();
        let topic = journal.topic(&TopicName::new("site/wind").unwrap()).unwrap().unwrap();
        assert_eq!(topic.info(0).unwrap().end_offset, RECORDS as u64 + 1);
        assert_eq!(fs::read(dir.join("journal.hj")).unwrap()[8], 3);
    }
}

#[test]
fn the_same_records_still_give_the_same_segments() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("j");
    write(&dir);
    let partition = Path::new("topics/site+wind/0");
    let mut compared = 0;
    for entry in fs::read_dir(golden(NEWEST).join(partition)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "seg") {
            let fresh = fs::read(dir.join(partition).join(path.file_name().unwrap())).unwrap();
            assert!(fresh == fs::read(&path).unwrap(), "{}", path.display());
            assert_eq!(fresh[8], 3);
            compared += 1;
        }
    }
    assert_eq!(compared, 3);
}

const EXCLUSIVE: &str = "exclusive-v1";

fn exclusive(dir: &Path) -> (ExclusiveLog, helio_journal::ExclusiveContents) {
    let clock: helio_journal::Clock = Arc::new(|| Tai::from_nanos(77));
    let options = ExclusiveOptions {
        owner: "golden".to_owned(),
        sync: SyncPolicy::OnRequest,
        segment_bytes: Some(16 << 10),
        journal: JournalOptions { clock, ..options(Access::ReadWrite) },
    };
    ExclusiveLog::open(dir, options).unwrap()
}

fn exclusive_record(epoch: u64, offset: u64) -> Vec<u8> {
    vec![(epoch * 16 + offset) as u8; offset as usize * 41]
}

/// Two epochs of 12 records in batches of one to three; the second begins at the tenth record.
fn write_exclusive(dir: &Path) {
    let (log, _) = exclusive(dir);
    for (epoch, start) in [(1, 0), (5, 9)] {
        log.begin(epoch, start, format!("header of {epoch}").as_bytes()).unwrap();
        let mut next = start;
        for count in [1, 2, 3, 1, 2, 3] {
            let records: Vec<_> =
                (next..next + count).map(|at| exclusive_record(epoch, at)).collect();
            let slices: Vec<_> = records.iter().map(Vec::as_slice).collect();
            log.append(next, &slices).unwrap();
            next += count;
        }
    }
    log.save(0, 20).unwrap();
    log.close().unwrap();
}

#[test]
fn an_exclusive_log_of_each_version_is_still_read() {
    if std::env::var("HELIO_GOLDEN_WRITE").is_ok_and(|wanted| wanted == EXCLUSIVE) {
        fs::remove_dir_all(golden(EXCLUSIVE)).ok();
        write_exclusive(&golden(EXCLUSIVE));
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("x");
    copy(&golden(EXCLUSIVE), &dir);
    let (log, found) = exclusive(&dir);
    assert_eq!((found.ended, found.committed, found.first), (RunEnd::Closed, 20, 0));
    let epochs: Vec<_> = found.epochs.iter().map(|e| (e.number, e.start, e.end)).collect();
    assert_eq!(epochs, [(1, 0, 12), (5, 9, 21)]);
    for epoch in found.epochs {
        assert_eq!(epoch.header, format!("header of {}", epoch.number).as_bytes());
        assert_eq!(epoch.sync, SyncPolicy::OnRequest);
        let mut next = epoch.start;
        log.scan(epoch.number, epoch.start..epoch.end, &mut |offset, record| {
            assert_eq!(offset, next);
            assert!(record.as_ref() == &exclusive_record(epoch.number, offset)[..], "{offset}");
            next += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(next, epoch.end);
    }
}

#[test]
fn the_same_batches_still_give_the_same_segments() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("x");
    write_exclusive(&dir);
    for epoch in [1, 5] {
        let file = format!("log/topics/epoch+{epoch:020}/0/0000000000000001.seg");
        assert!(
            fs::read(dir.join(&file)).unwrap() == fs::read(golden(EXCLUSIVE).join(&file)).unwrap()
        );
    }
    let marks = |dir: &Path| fs::read(dir.join("marks")).unwrap();
    assert!(marks(&dir) == marks(&golden(EXCLUSIVE)));
}

/// The power was lost while a topic was created: its description's name was on the disk, and none
/// of its bytes.
#[test]
fn a_half_created_topic_does_not_fail_the_list_of_topics() {
    for bytes in [0, 100] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("j");
        copy(&golden(NEWEST), &dir);
        fs::create_dir(dir.join("topics/half")).unwrap();
        fs::write(dir.join("topics/half/topic.json"), vec![0; bytes]).unwrap();
        let journal = Journal::open(&dir, options(Access::ReadWrite)).unwrap();
        let names = |journal: &Journal| {
            let topics = journal.topics().unwrap().into_iter();
            topics.map(|topic| topic.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&journal), ["site/wind"]);
        let half = TopicName::new("half").unwrap();
        journal.create_topic(&half, &TopicConfig::default()).unwrap();
        assert_eq!(names(&journal), ["half", "site/wind"]);
        // Other damage is still an error.
        fs::write(dir.join("topics/half/topic.json"), "no JSON").unwrap();
        assert!(matches!(journal.topics(), Err(JournalError::Damaged { .. })));
    }
}
