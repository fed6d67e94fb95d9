//! Damaged bytes, foreign and newer files, full disks, folders without permission: an error or a
//! gap, never a panic, a hang, or wrong data.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use helio_core::{Headers, ProducerName, Tai, TopicName};
use helio_journal::{
    Access, AppendError, From, Item, Journal, JournalError, JournalOptions, Maintenance, Ownership,
    Record, Topic, TopicConfig, Writer, WriterOptions,
};

fn options() -> JournalOptions {
    JournalOptions {
        maintenance: Maintenance::Manual,
        lock_timeout: Duration::from_millis(20),
        seed: Some(3),
        ..JournalOptions::default()
    }
}

fn name() -> TopicName {
    TopicName::new("t").unwrap()
}

fn writer(topic: &Topic) -> Result<Writer, JournalError> {
    let producer = ProducerName::new("me").unwrap();
    topic.writer(0, &WriterOptions { producer, ownership: Ownership::Shared })
}

const RECORDS: u64 = 60;

fn payload(i: u64) -> Vec<u8> {
    vec![i as u8; 100 + i as usize * 13]
}

fn headers(i: u64) -> Headers {
    match i % 4 {
        1 => Headers::new().with("n", i.to_le_bytes()).unwrap(),
        _ => Headers::new(),
    }
}

/// A small journal of a few segments with keys, a group and a schema.
fn make(dir: &Path) {
    let journal = Journal::open(dir, options()).unwrap();
    let config = TopicConfig { segment_bytes: 16 << 10, ..TopicConfig::default() };
    let topic = journal.create_topic(&name(), &config).unwrap();
    let mut writer = writer(&topic).unwrap();
    for i in 0..RECORDS {
        let (key, payload, time) = ([(i % 9) as u8], payload(i), Tai::from_nanos(i as i64));
        let headers = headers(i);
        let headers = headers.as_ref();
        let record = Record { key: &key, payload: &payload, time, headers, ..Record::default() };
        writer.append(&record).unwrap();
    }
    topic.wait_durable(0, RECORDS - 1, None).unwrap();
    let group = topic.group(&ProducerName::new("g").unwrap()).unwrap();
    let member = group.join(&ProducerName::new("m").unwrap()).unwrap();
    member.assigned().unwrap();
    member.commit(0, 7).unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { out.extend(files(&path)) } else { out.push(path) }
    }
    out.sort();
    out
}

/// Puts everything back as it was, in place: a copy would be noticed as one.
fn restore(dir: &Path, saved: &BTreeMap<PathBuf, Vec<u8>>) {
    for path in files(dir) {
        if !saved.contains_key(&path) {
            fs::remove_file(path).unwrap();
        }
    }
    for (path, bytes) in saved {
        if fs::read(path).ok().as_ref() != Some(bytes) {
            fs::write(path, bytes).unwrap();
        }
    }
}

/// Reads everything there is: whatever comes out is what was written.
fn read(topic: &Topic, from: From) {
    let Ok(mut reader) = topic.reader(0, from) else { return };
    let mut last = None;
    for _ in 0..10 * RECORDS {
        match reader.next() {
            Ok(Some(Item::Sample(s))) if s.offset < RECORDS && !s.payload.is_empty() => {
                assert_eq!(s.payload, payload(s.offset), "{from:?}");
                assert_eq!(s.headers, headers(s.offset).as_ref(), "{from:?}");
                assert_eq!((s.key, s.sequence), (&[(s.offset % 9) as u8][..], s.offset + 1));
                assert!(last.is_none_or(|l| l < s.offset), "{from:?}");
                last = Some(s.offset);
            }
            Ok(Some(Item::Sample(s))) => assert!(s.payload.is_empty()),
            Ok(Some(Item::Gap(gap))) => assert!(gap.from < gap.to, "{gap:?}"),
            Ok(None) | Err(_) => return,
        }
    }
    panic!("{from:?} does not end");
}

fn use_it(dir: &Path, access: Access) {
    let Ok(journal) = Journal::open(dir, JournalOptions { access, ..options() }) else { return };
    let _ = journal.topics();
    let Ok(Some(topic)) = journal.topic(&name()) else { return };
    let all = [From::Earliest, From::LastPerKey(1), From::LastPerKey(3), From::Offset(31)];
    all.into_iter()
        .chain([From::Time(Tai::from_nanos(31)), From::Latest])
        .for_each(|f| read(&topic, f));
    if access == Access::ReadOnly {
        return;
    }
    if let Ok(group) = topic.group(&ProducerName::new("g").unwrap()) {
        assert!(matches!(group.committed(0), Ok(None | Some(7)) | Err(_)));
        let _ = group.join(&ProducerName::new("n").unwrap()).and_then(|m| m.assigned());
    }
    if let Ok(mut writer) = writer(&topic)
        && let Ok(offset) = writer.append(&Record::default())
    {
        assert!(offset <= RECORDS, "{offset}");
        read(&topic, From::Earliest);
        journal.maintain();
    }
}

/// A folder in memory, where there is one: these tests sync thousands of times.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Where to damage a file: everywhere in heads and tables, now and then in long stretches of
/// payload.
fn places(path: &Path, len: usize) -> Vec<usize> {
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    match file.as_str() {
        "journal.hj" => (0..64).collect(),
        "control" => (0..1500).collect(),
        "producers" | "topic.json" => (0..len.min(600)).collect(),
        _ => (0..300).chain((300..len).step_by(101)).filter(|i| *i < len).collect(),
    }
}

#[test]
fn a_damaged_byte_anywhere_is_an_error_or_a_gap() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved: BTreeMap<_, _> =
        files(&dir).into_iter().map(|p| (p.clone(), fs::read(&p).unwrap())).collect();
    let mut tried = 0;
    for (path, bytes) in &saved {
        for at in places(path, bytes.len()) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(path, &damaged).unwrap();
            let access = if at % 4 == 0 { Access::ReadOnly } else { Access::ReadWrite };
            use_it(&dir, access);
            restore(&dir, &saved);
            tried += 1;
        }
    }
    assert!(tried > 3000, "{tried}");
}

#[test]
fn a_missing_or_short_file_is_an_error_or_a_gap() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved: BTreeMap<_, _> =
        files(&dir).into_iter().map(|p| (p.clone(), fs::read(&p).unwrap())).collect();
    for (path, bytes) in &saved {
        for access in [Access::ReadOnly, Access::ReadWrite] {
            for keep in [0, 1, 63, 4095, 4096, 5000] {
                fs::write(path, &bytes[..keep.min(bytes.len())]).unwrap();
                use_it(&dir, access);
                restore(&dir, &saved);
            }
            fs::remove_file(path).unwrap();
            use_it(&dir, access);
            restore(&dir, &saved);
        }
    }
}

#[test]
fn damage_is_told_as_a_gap_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("j");
    make(&dir);
    let second = dir.join("topics/t/0/0000000000000002.seg");
    let mut bytes = fs::read(&second).unwrap();
    let inode = fs::metadata(&second).unwrap().ino();
    bytes[4096 + 100] ^= 1;
    fs::write(&second, bytes).unwrap();
    assert_eq!(fs::metadata(&second).unwrap().ino(), inode);
    let journal = Journal::open(&dir, options()).unwrap();
    let topic = journal.topic(&name()).unwrap().unwrap();
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    let (mut seen, mut lost) = (0, 0);
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Sample(_) => seen += 1,
            Item::Gap(gap) => {
                assert_eq!(gap.cause, helio_journal::GapCause::Damaged);
                lost += gap.to - gap.from;
            }
        }
    }
    assert_eq!(seen + lost, RECORDS);
    assert!((1..5).contains(&lost), "{lost}");
}

#[test]
fn a_foreign_folder_and_a_newer_format_stay_untouched() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "x").unwrap();
    let refused = Journal::open(dir.path(), options()).unwrap_err();
    assert!(matches!(refused, JournalError::Foreign { .. }), "{refused}");
    assert_eq!(files(dir.path()).len(), 1);
    fs::write(dir.path().join("journal.hj"), "something else").unwrap();
    let refused = Journal::open(dir.path(), options()).unwrap_err();
    assert!(matches!(refused, JournalError::Foreign { .. }), "{refused}");

    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("j");
    make(&dir);
    let file = dir.join("journal.hj");
    let mut bytes = fs::read(&file).unwrap();
    bytes[8] = 2;
    fs::write(&file, &bytes).unwrap();
    let before: Vec<_> = files(&dir).iter().map(|p| fs::read(p).unwrap()).collect();
    let refused = Journal::open(&dir, options()).unwrap_err();
    assert!(
        refused.to_string().contains("format version 2, this program knows up to 1"),
        "{refused}"
    );
    let after: Vec<_> = files(&dir).iter().map(|p| fs::read(p).unwrap()).collect();
    assert!(before == after);
}

#[test]
fn a_folder_opened_for_reading_is_read_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("j");
    make(&dir);
    let before: Vec<_> = files(&dir).iter().map(|p| (p.clone(), fs::read(p).unwrap())).collect();
    let access = Access::ReadOnly;
    let journal = Journal::open(&dir, JournalOptions { access, ..options() }).unwrap();
    let topic = journal.topic(&name()).unwrap().unwrap();
    let mut reader = topic.reader(0, From::LastPerKey(1)).unwrap();
    let mut count = 0;
    while reader.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 9);
    assert!(matches!(writer(&topic).unwrap_err(), JournalError::ReadOnly));
    assert!(matches!(
        journal.create_topic(&TopicName::new("u").unwrap(), &TopicConfig::default()).unwrap_err(),
        JournalError::ReadOnly
    ));
    let bell = journal.bell().unwrap();
    assert!(!reader.arm(&bell));
    let other = Journal::open(&dir, options()).unwrap();
    // From here on the folder changes, but by the other one.
    let after: Vec<_> = files(&dir).iter().map(|p| (p.clone(), fs::read(p).unwrap())).collect();
    assert!(before == after);
    let there = other.topic(&name()).unwrap().unwrap();
    writer(&there).unwrap().append(&Record::default()).unwrap();
    bell.wait(None);
    assert!(matches!(reader.next().unwrap(), Some(Item::Sample(s)) if s.offset == RECORDS));
}

/// Whether the test may mount and change users.
fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("{test}: skipped, it needs root");
    }
    root
}

#[test]
fn a_user_without_permission_gets_an_error_that_says_so() {
    if !is_root("two users") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = dir.path().join("j");
    make(&dir);
    // Threads have users of their own; this one becomes nobody, and ends.
    std::thread::spawn(move || {
        let nobody = 65_534;
        let (uid, gid) =
            (rustix::process::Uid::from_raw(nobody), rustix::process::Gid::from_raw(nobody));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        let refused = Journal::open(&dir, options()).unwrap_err();
        assert!(matches!(refused, JournalError::NotPermitted { .. }), "{refused}");
        let access = Access::ReadOnly;
        let journal = Journal::open(&dir, JournalOptions { access, ..options() }).unwrap();
        let topic = journal.topic(&name()).unwrap().unwrap();
        let mut reader = topic.reader(0, From::Earliest).unwrap();
        assert!(reader.next().unwrap().is_some());
    })
    .join()
    .unwrap();
}

#[test]
fn a_full_disk_is_an_error_at_the_writer_and_never_a_torn_log() {
    if !is_root("full disk") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
        .arg(dir.path())
        .status();
    if !mounted.is_ok_and(|s| s.success()) {
        eprintln!("full disk: skipped, no file system can be mounted here");
        return;
    }
    let outcome = std::panic::catch_unwind(|| fill(&dir.path().join("j")));
    std::process::Command::new("umount").arg("-l").arg(dir.path()).status().unwrap();
    outcome.unwrap();
}

fn fill(dir: &Path) {
    let journal = Journal::open(dir, options()).unwrap();
    let topic = journal.create_topic(&name(), &TopicConfig::default()).unwrap();
    let mut writer = writer(&topic).unwrap();
    let mut count = 0_u64;
    let error = loop {
        let key = count.to_le_bytes();
        match writer.append(&Record { key: &key, payload: &[1; 1000], ..Record::default() }) {
            Ok(offset) => assert_eq!(offset, count),
            Err(e) => break e,
        }
        count += 1;
    };
    assert!(matches!(error, AppendError::Journal(JournalError::NoRoom { .. })), "{error}");
    assert!(count > 500, "{count}");
    let refused =
        writer.append(&Record { payload: &[1; 100_000], ..Record::default() }).unwrap_err();
    assert!(matches!(refused, AppendError::Journal(JournalError::NoRoom { .. })), "{refused}");
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    let mut seen = 0;
    while let Some(item) = reader.next().unwrap() {
        assert!(matches!(item, Item::Sample(s) if s.offset == seen), "offset {seen}");
        seen += 1;
    }
    assert_eq!(seen, count);
    assert_eq!(topic.info(0).unwrap().end_offset, count);
}

#[test]
fn a_clock_stepped_back_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(&dir.path().join("j"), options()).unwrap();
    let topic = journal.create_topic(&name(), &TopicConfig::default()).unwrap();
    let mut writer = writer(&topic).unwrap();
    let times: Vec<i64> = (0..3000).map(|i| if i < 1500 { i } else { i - 1000 }).collect();
    for time in &times {
        let time = Tai::from_nanos(*time);
        writer.append(&Record { payload: &[0; 100], time, ..Record::default() }).unwrap();
    }
    // Read from the first record of that time or later: what was stamped with a smaller time after
    // the step is not passed over.
    for (from, first) in [(0, 0), (700, 700), (1499, 1499), (1600, 2600)] {
        let mut reader = topic.reader(0, From::Time(Tai::from_nanos(from))).unwrap();
        let Some(Item::Sample(s)) = reader.next().unwrap() else { panic!("nothing") };
        assert_eq!(s.offset, first, "from {from}");
    }
}
