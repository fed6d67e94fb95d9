//! Grants: a user reads their own topic, whenever its files were created, no other one, and writes
//! nothing.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::users::{NOBODY, as_user, is_root, open_folder, with_umask};
use helio_core::{ProducerName, TopicName};
use helio_journal::{
    Access, From, Item, Journal, JournalError, JournalOptions, LastValue, Maintenance, Ownership,
    Record, Topic, TopicConfig, WriterOptions,
};

const ALICE: u32 = NOBODY;
const BOB: u32 = NOBODY - 1;
const STRANGER: u32 = NOBODY - 2;
/// Several segments of the smallest size.
const RECORDS: u64 = 200;

fn options() -> JournalOptions {
    JournalOptions { maintenance: Maintenance::Manual, ..JournalOptions::default() }
}

fn reading(dir: &Path) -> Result<Journal, JournalError> {
    Journal::open(dir, JournalOptions { access: Access::ReadOnly, ..options() })
}

fn name(text: &str) -> TopicName {
    TopicName::new(text).unwrap()
}

fn create(journal: &Journal, topic: &str) -> Topic {
    let config = TopicConfig {
        segment_bytes: 16 << 10,
        partitions: 2,
        last_value: LastValue::Keep,
        ..TopicConfig::default()
    };
    journal.create_topic(&name(topic), &config).unwrap()
}

/// Appends records to both partitions, under keys, so that each kind of file is created.
fn append(journal: &Journal, topic: &Topic) {
    for partition in 0..2 {
        let producer = ProducerName::new("me").unwrap();
        let options = WriterOptions { producer, ownership: Ownership::Shared };
        let mut writer = topic.writer(partition, &options).unwrap();
        for n in 0..RECORDS {
            let key = (n % 7).to_le_bytes();
            let record = Record { key: &key, payload: &[7; 900], ..Record::default() };
            writer.append(&record).unwrap();
            if n % 50 == 0 {
                journal.maintain();
            }
        }
    }
}

/// How many records of a topic this thread's user can read.
fn read(dir: &Path, topic: &str) -> Result<u64, JournalError> {
    let journal = reading(dir)?;
    let topic = journal.topic(&name(topic))?.expect("it exists");
    let mut count = 0;
    for partition in 0..2 {
        let mut reader = topic.reader(partition, From::Earliest)?;
        while let Some(item) = reader.next()? {
            assert!(matches!(item, Item::Sample(_)), "{item:?}");
            count += 1;
        }
        let mut latest = topic.reader(partition, From::LastPerKey(1))?;
        assert!(matches!(latest.next()?, Some(Item::Sample(_))), "last values are read, too");
    }
    Ok(count)
}

fn is_denied<T>(outcome: Result<T, JournalError>) {
    let Err(error) = outcome else { panic!("it was permitted") };
    assert!(matches!(error, JournalError::NotReadable { .. }), "{error}");
    assert!(error.to_string().contains("helio topic grant"), "{error}");
}

/// All files and folders of a folder.
fn everything(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(everything(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

fn can_write(path: &Path) -> bool {
    match path.is_dir() {
        true => File::create_new(path.join("planted")).is_ok(),
        false => OpenOptions::new().write(true).open(path).is_ok(),
    }
}

#[test]
fn each_user_reads_their_own_topic_with_all_its_files_and_writes_none() {
    if !is_root("two users") {
        return;
    }
    for umask in [0o022, 0o077] {
        let folder = open_folder();
        let dir = folder.path().join("j");
        with_umask(umask, || {
            let journal = Journal::open(&dir, options()).unwrap();
            let open = create(&journal, "open");
            append(&journal, &open);
            for (topic, user) in [("results/a", ALICE), ("results/b", BOB)] {
                let topic = create(&journal, topic);
                append(&journal, &topic);
                assert!(journal.grant(topic.name(), user).unwrap());
                append(&journal, &topic);
            }
            assert!(!journal.grant(&name("none"), ALICE).unwrap());
        });
        let all = everything(&dir);
        let segments = all.iter().filter(|path| path.extension().is_some_and(|e| e == "seg"));
        assert!(segments.count() > 60, "too few segments for a test");
        let everybody = umask == 0o022;
        for (user, own, other) in
            [(ALICE, "results/a", "results/b"), (BOB, "results/b", "results/a")]
        {
            as_user(user, || {
                assert_eq!(read(&dir, own).unwrap(), 4 * RECORDS);
                is_denied(read(&dir, other));
                let listed = reading(&dir).unwrap().topics().unwrap();
                let listed: Vec<_> = listed.iter().map(|info| info.name.as_str()).collect();
                match everybody {
                    true => assert_eq!(listed, ["open", own]),
                    false => assert_eq!(listed, [own]),
                }
                assert_eq!(read(&dir, "open").is_ok(), everybody);
                let written: Vec<_> = all.iter().filter(|path| can_write(path)).collect();
                assert!(written.is_empty(), "{written:?}");
                let refused = Journal::open(&dir, options()).unwrap_err();
                assert!(matches!(refused, JournalError::NotPermitted { .. }), "{refused}");
            });
        }
        as_user(STRANGER, || match reading(&dir) {
            Ok(journal) => {
                assert!(everybody);
                for topic in ["results/a", "results/b"] {
                    is_denied(journal.topic(&name(topic)));
                }
            }
            Err(error) => assert!(!everybody, "{error}"),
        });
        assert_eq!(read(&dir, "results/a").unwrap(), 4 * RECORDS, "the owner's access");
    }
}

#[test]
fn a_revoked_user_opens_no_new_file_and_the_topic_stays_closed() {
    if !is_root("two users") {
        return;
    }
    let folder = open_folder();
    let dir = folder.path().join("j");
    let journal = Journal::open(&dir, options()).unwrap();
    let topic = create(&journal, "results/a");
    append(&journal, &topic);
    for user in [ALICE, BOB] {
        journal.grant(topic.name(), user).unwrap();
    }
    assert!(journal.revoke(topic.name(), ALICE).unwrap());
    assert!(!journal.revoke(topic.name(), ALICE).unwrap());
    assert!(!journal.revoke(&name("none"), ALICE).unwrap());
    append(&journal, &topic);
    for user in [ALICE, STRANGER] {
        as_user(user, || is_denied(read(&dir, "results/a")));
    }
    as_user(BOB, || assert_eq!(read(&dir, "results/a").unwrap(), 4 * RECORDS));
}

#[test]
fn a_reader_that_is_revoked_gets_an_error_at_the_next_file() {
    if !is_root("two users") {
        return;
    }
    let folder = open_folder();
    let dir = folder.path().join("j");
    let journal = Journal::open(&dir, options()).unwrap();
    let topic = create(&journal, "results/a");
    append(&journal, &topic);
    journal.grant(topic.name(), ALICE).unwrap();
    let (reads, has_read) = std::sync::mpsc::channel();
    let (revokes, is_revoked) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let dir = &dir;
        let alice = scope.spawn(move || {
            as_user(ALICE, move || {
                let open = reading(dir).unwrap();
                let topic = open.topic(&name("results/a")).unwrap().unwrap();
                let mut reader = topic.reader(0, From::Earliest).unwrap();
                assert!(reader.next().unwrap().is_some());
                reads.send(()).unwrap();
                is_revoked.recv().unwrap();
                let mut count = 1;
                loop {
                    match reader.next() {
                        Ok(Some(_)) => count += 1,
                        Ok(None) => panic!("all {count} records were read"),
                        Err(error) => return (count, error, topic.is_current()),
                    }
                }
            })
        });
        has_read.recv().unwrap();
        assert!(journal.revoke(topic.name(), ALICE).unwrap());
        revokes.send(()).unwrap();
        let (count, error, is_current) = alice.join().unwrap();
        assert!(count < RECORDS, "{count} records");
        assert!(error.to_string().contains("permission"), "{error}");
        assert!(is_current, "the topic is not gone");
    });
}

#[test]
fn purging_keeps_grants_and_removing_ends_them() {
    if !is_root("two users") {
        return;
    }
    let folder = open_folder();
    let dir = folder.path().join("j");
    with_umask(0o077, || {
        let journal = Journal::open(&dir, options()).unwrap();
        let topic = create(&journal, "results/a");
        append(&journal, &topic);
        journal.grant(topic.name(), ALICE).unwrap();
        assert!(journal.purge_topic(topic.name()).unwrap());
        let topic = journal.topic(topic.name()).unwrap().unwrap();
        append(&journal, &topic);
        as_user(ALICE, || assert_eq!(read(&dir, "results/a").unwrap(), 2 * RECORDS));
        as_user(BOB, || assert!(read(&dir, "results/a").is_err()));
        assert!(journal.remove_topic(topic.name()).unwrap());
        let topic = create(&journal, "results/a");
        append(&journal, &topic);
        as_user(ALICE, || is_denied(read(&dir, "results/a")));
    });
}

#[test]
fn a_topic_is_granted_while_it_is_written() {
    if !is_root("two users") {
        return;
    }
    let folder = open_folder();
    let dir = folder.path().join("j");
    with_umask(0o077, || {
        let journal = Journal::open(&dir, options()).unwrap();
        let topic = create(&journal, "results/a");
        append(&journal, &topic);
        let granted = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !granted.load(Ordering::Acquire) {
                    append(&journal, &topic);
                }
            });
            for _ in 0..20 {
                journal.grant(topic.name(), ALICE).unwrap();
                journal.revoke(topic.name(), ALICE).unwrap();
            }
            journal.grant(topic.name(), ALICE).unwrap();
            granted.store(true, Ordering::Release);
        });
        let all = read(&dir, "results/a").unwrap();
        as_user(ALICE, || assert_eq!(read(&dir, "results/a").unwrap(), all));
    });
}

#[test]
fn grants_follow_no_link_and_leave_other_files_alone() {
    if !is_root("links") {
        return;
    }
    let folder = open_folder();
    let dir = folder.path().join("j");
    let journal = Journal::open(&dir, options()).unwrap();
    let topic = create(&journal, "results/a");
    let secret = folder.path().join("secret");
    fs::write(&secret, "s").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&secret, dir.join("topics/results+a/link")).unwrap();
    symlink(folder.path(), dir.join("topics/results+a/folder")).unwrap();
    journal.grant(topic.name(), ALICE).unwrap();
    as_user(ALICE, || assert!(File::open(&secret).is_err()));
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o777, 0o755);
}

#[test]
fn only_the_owner_and_root_can_grant() {
    if !is_root("two users") {
        return;
    }
    let folder = open_folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let dir = folder.path().join("j");
    as_user(ALICE, || {
        let journal = Journal::open(&dir, options()).unwrap();
        let own = create(&journal, "own");
        journal.grant(own.name(), BOB).unwrap();
        append(&journal, &own);
    });
    as_user(BOB, || assert_eq!(read(&dir, "own").unwrap(), 2 * RECORDS));
    let others = create(&Journal::open(&dir, options()).unwrap(), "others");
    as_user(ALICE, || {
        let journal = Journal::open(&dir, options()).unwrap();
        let error = journal.grant(others.name(), BOB).unwrap_err();
        assert!(matches!(error, JournalError::NotOwner { .. }), "{error}");
        let error = reading(&dir).unwrap().grant(&name("own"), BOB).unwrap_err();
        assert!(matches!(error, JournalError::ReadOnly), "{error}");
    });
}
