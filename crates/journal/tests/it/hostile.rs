//! Damaged bytes, foreign and newer files, full disks, folders without permission: an error or a
//! gap, never a panic, a hang, or wrong data.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::damage::*;
use crate::support::tmpfs::on_tmpfs;
use crate::support::users::{NOBODY, as_user, is_root, open_folder};
use helio_core::{Tai, TopicName};
use helio_journal::{
    Access, AppendError, From, Item, Journal, JournalError, JournalOptions, LastValue,
    MIN_SEGMENT_BYTES, Maintenance, Record, SyncPolicy, TopicConfig,
};

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
fn a_reader_waits_for_a_journal_in_creation_and_never_calls_it_foreign() {
    let readable = || JournalOptions { access: Access::ReadOnly, ..options() };
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    drop(Journal::open(&whole, options()).unwrap());
    // What lies there before the creator names the journal's own file.
    let half = dir.path().join("half");
    for steps in 1..=3 {
        for part in ["schemas", "topics"].iter().take(steps) {
            fs::create_dir_all(half.join(part)).unwrap();
        }
        if steps == 3 {
            fs::copy(whole.join("journal.hj"), half.join(".tmp-1-1")).unwrap();
        }
        let waited = Journal::open(&half, readable()).unwrap_err();
        assert!(matches!(waited, JournalError::Unfinished { .. }), "{waited}");
    }
    // A reader that is there first. It opens the journal before, in and after the creation.
    let (begins, begun) = std::sync::mpsc::channel();
    let (path, options_) = (half.clone(), readable());
    let reader = std::thread::spawn(move || {
        begins.send(()).unwrap();
        loop {
            match Journal::open(&path, options_.clone()) {
                Err(JournalError::Unfinished { .. }) => {}
                opened => return opened.map(drop),
            }
        }
    });
    begun.recv().unwrap();
    drop(Journal::open(&half, options()).unwrap());
    reader.join().unwrap().unwrap();
    // A journal that has lost its own file is not in creation.
    make(&whole);
    fs::remove_file(whole.join("journal.hj")).unwrap();
    let refused = Journal::open(&whole, readable()).unwrap_err();
    assert!(matches!(refused, JournalError::Foreign { .. }), "{refused}");
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
    bytes[8] = 4;
    fs::write(&file, &bytes).unwrap();
    let before: Vec<_> = files(&dir).iter().map(|p| fs::read(p).unwrap()).collect();
    let refused = Journal::open(&dir, options()).unwrap_err();
    assert!(
        refused.to_string().contains("format version 4, this program supports up to 3"),
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
    // From here on, the writer changes the folder.
    let after: Vec<_> = files(&dir).iter().map(|p| (p.clone(), fs::read(p).unwrap())).collect();
    assert!(before == after);
    let there = other.topic(&name()).unwrap().unwrap();
    writer(&there).unwrap().append(&Record::default()).unwrap();
    bell.wait(None);
    assert!(matches!(reader.next().unwrap(), Some(Item::Sample(s)) if s.offset == RECORDS));
}

#[test]
fn a_user_without_permission_gets_an_error_that_says_so() {
    if !is_root("two users") {
        return;
    }
    let dir = open_folder();
    let dir = dir.path().join("j");
    make(&dir);
    as_user(NOBODY, || {
        let refused = Journal::open(&dir, options()).unwrap_err();
        assert!(matches!(refused, JournalError::NotPermitted { .. }), "{refused}");
        let access = Access::ReadOnly;
        let journal = Journal::open(&dir, JournalOptions { access, ..options() }).unwrap();
        let topic = journal.topic(&name()).unwrap().unwrap();
        let mut reader = topic.reader(0, From::Earliest).unwrap();
        assert!(reader.next().unwrap().is_some());
    });
}

#[test]
fn a_full_disk_is_an_error_at_the_writer_and_never_a_torn_log() {
    on_tmpfs("2m", |dir| fill(&dir.join("j")));
}

/// Segments that are prepared ahead leave the last room on the disk to writers.
#[test]
fn a_disk_is_full_only_where_no_segment_fits_whatever_is_prepared() {
    for maintenance in [Maintenance::Manual, Maintenance::Background] {
        on_tmpfs("24m", |dir| prepare_until_full(dir, maintenance));
    }
}

fn prepare_until_full(dir: &Path, maintenance: Maintenance) {
    let options = JournalOptions { maintenance, ..options() };
    let journal = Journal::open(&dir.join("j"), options).unwrap();
    let config = TopicConfig {
        last_value: LastValue::Forget,
        sync: SyncPolicy::OnRequest,
        segment_bytes: 2 << 20,
        ..TopicConfig::default()
    };
    let topic = journal.create_topic(&name(), &config).unwrap();
    let mut writer = writer(&topic).unwrap();
    let free = || {
        let disk = rustix::fs::statvfs(dir).unwrap();
        disk.f_bavail * disk.f_frsize
    };
    let prepared = || {
        let names = fs::read_dir(dir.join("j/topics/t/0")).unwrap();
        names
            .filter(|n| n.as_ref().unwrap().path().display().to_string().contains("spare."))
            .count()
    };
    let mut ever_prepared = 0;
    let error = loop {
        if let Err(error) = writer.append(&Record { payload: &[1; 10_000], ..Record::default() }) {
            break error;
        }
        if maintenance == Maintenance::Manual {
            journal.maintain();
        }
        ever_prepared += prepared();
    };
    assert!(matches!(error, AppendError::Journal(JournalError::NoRoom { .. })), "{error}");
    let smallest = MIN_SEGMENT_BYTES + 4096;
    assert!(free() < smallest, "{} bytes are free", free());
    assert!(ever_prepared > 0, "segments were prepared while there was room");
    assert_eq!(prepared(), 0, "the writer has taken what was prepared");
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
    // Reads from the first record with that time or a later one: records with earlier times after
    // the step are not skipped.
    for (from, first) in [(0, 0), (700, 700), (1499, 1499), (1600, 2600)] {
        let mut reader = topic.reader(0, From::Time(Tai::from_nanos(from))).unwrap();
        let Some(Item::Sample(s)) = reader.next().unwrap() else { panic!("nothing") };
        assert_eq!(s.offset, first, "from {from}");
    }
}
