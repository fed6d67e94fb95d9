//! Deleted topics: no receipt after the deletion, whoever deletes, and however the name goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::HANG_TIMEOUT;
use helio_core::{ProducerName, TopicName};
use helio_journal::{
    Access, AppendError, From, Item, Journal, JournalError, JournalOptions, Maintenance, Ownership,
    Record, Topic, TopicConfig, Wake, Writer, WriterOptions,
};

fn open(dir: &Path, maintenance: Maintenance) -> Journal {
    Journal::open(dir, JournalOptions { maintenance, ..JournalOptions::default() }).unwrap()
}

fn name() -> TopicName {
    TopicName::new("a/t").unwrap()
}

fn folder(dir: &Path) -> PathBuf {
    dir.join("topics/a+t")
}

fn create(journal: &Journal, partitions: u32) -> Topic {
    let config = TopicConfig { partitions, ..TopicConfig::default() };
    journal.create_topic(&name(), &config).unwrap()
}

fn writer(topic: &Topic, partition: u32, producer: &str) -> Writer {
    let producer = ProducerName::new(producer).unwrap();
    topic.writer(partition, &WriterOptions { producer, ownership: Ownership::Shared }).unwrap()
}

fn append(writer: &mut Writer) -> Result<u64, AppendError> {
    writer.append(&Record { payload: b"payload", ..Record::default() })
}

fn is_gone<T: std::fmt::Debug>(result: Result<T, JournalError>) -> bool {
    matches!(result, Err(JournalError::TopicGone { topic }) if topic == "a/t")
}

fn is_refused(result: Result<u64, AppendError>) -> bool {
    matches!(result, Err(AppendError::Journal(error)) if is_gone::<()>(Err(error.clone())))
}

fn samples(topic: &Topic, partition: u32) -> usize {
    let mut reader = topic.reader(partition, From::Earliest).unwrap();
    let mut count = 0;
    while let Some(Item::Sample(_)) = reader.next().unwrap() {
        count += 1;
    }
    count
}

#[test]
fn a_deleted_topic_gives_no_receipt_to_those_that_have_it_open() {
    let dir = tempfile::tempdir().unwrap();
    // Two processes, as far as the files are concerned.
    let [deleter, other] = [(); 2].map(|()| open(dir.path(), Maintenance::Manual));
    let topic = create(&other, 3);
    let producer = ProducerName::new("me").unwrap();
    let claim = WriterOptions { producer, ownership: Ownership::Shared };
    let claim = topic.claim(&claim).unwrap();
    let mut writers = [0, 1, 2].map(|number| topic.writer_with(number, &claim).unwrap());
    for writer in &mut writers {
        append(writer).unwrap();
    }
    topic.wait_durable(0, 0, None).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    assert!(deleter.remove_topic(&name()).unwrap());
    for writer in &mut writers {
        assert!(is_refused(append(writer)));
    }
    for partition in [1, 2] {
        assert!(is_gone(topic.wait_durable(partition, 0, Some(HANG_TIMEOUT))));
        let tell = Arc::clone(&told);
        let call = Box::new(move |outcome| tell.lock().unwrap().push(is_gone(outcome)));
        topic.on_durable(partition, 0, call).unwrap();
    }
    assert_eq!(*told.lock().unwrap(), [true, true]);
    let producer = ProducerName::new("other").unwrap();
    assert!(is_gone(topic.claim(&WriterOptions { producer, ownership: Ownership::Shared })));
    assert!(is_gone(topic.group(&ProducerName::new("group").unwrap())));
    assert!(!folder(dir.path()).exists() && !topic.is_current());
    assert!(other.topic(&name()).unwrap().is_none() && other.topics().unwrap().is_empty());
    // The name is free for a topic with nothing of the former one.
    let next = create(&other, 1);
    assert_eq!(append(&mut writer(&next, 0, "me")).unwrap(), 0);
    assert!(is_refused(append(&mut writers[0])), "not into the new one");
    assert_eq!((samples(&next, 0), next.is_current()), (1, true));
    assert_eq!(samples(&deleter.topic(&name()).unwrap().unwrap(), 0), 1);
}

#[test]
fn a_sync_in_flight_when_the_topic_is_deleted_is_no_receipt() {
    let dir = tempfile::tempdir().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (may_go_on, holds) = (Mutex::new(may_go_on), Arc::new(AtomicBool::new(false)));
    let held = Arc::clone(&holds);
    let hook = move |_: &Path| {
        if held.swap(false, SeqCst) {
            begun.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        }
        Ok(())
    };
    let options = JournalOptions {
        maintenance: Maintenance::Manual,
        sync_hook: Some(Arc::new(hook)),
        ..JournalOptions::default()
    };
    let journal = Journal::open(dir.path(), options).unwrap();
    let topic = create(&journal, 1);
    append(&mut writer(&topic, 0, "me")).unwrap();
    holds.store(true, SeqCst);
    let synced = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| topic.wait_durable(0, 0, None));
        has_begun.recv_timeout(HANG_TIMEOUT).unwrap();
        let deleter = open(dir.path(), Maintenance::Manual);
        assert!(deleter.remove_topic(&name()).unwrap());
        go_on.send(()).unwrap();
        waiter.join().unwrap()
    });
    assert!(is_gone(synced));
}

#[test]
fn a_folder_removed_or_replaced_by_hand_is_noticed_before_every_durable() {
    for replaced in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), Maintenance::Manual);
        let topic = create(&journal, 1);
        let mut writer = writer(&topic, 0, "me");
        append(&mut writer).unwrap();
        topic.wait_durable(0, 0, None).unwrap();
        append(&mut writer).unwrap();
        fs::remove_dir_all(folder(dir.path())).unwrap();
        if replaced {
            create(&open(dir.path(), Maintenance::Manual), 1);
        }
        assert!(is_gone(topic.wait_durable(0, 1, None)), "replaced: {replaced}");
        assert!(is_refused(append(&mut writer)));
        assert_eq!(journal.topic(&name()).unwrap().is_some(), replaced);
    }
}

#[test]
fn a_segment_removed_by_hand_is_noticed_before_every_durable() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Maintenance::Manual);
    let topic = create(&journal, 1);
    let mut writer = writer(&topic, 0, "me");
    append(&mut writer).unwrap();
    fs::remove_file(folder(dir.path()).join("0/0000000000000001.seg")).unwrap();
    let error = topic.wait_durable(0, 0, None).unwrap_err();
    assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
}

#[test]
fn maintenance_notices_a_removed_folder_and_wakes_readers() {
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let dir = tempfile::tempdir().unwrap();
        let writing = open(dir.path(), Maintenance::Background);
        let topic = create(&writing, 1);
        let mut writer = writer(&topic, 0, "me");
        append(&mut writer).unwrap();
        let reading = JournalOptions { access, ..JournalOptions::default() };
        let reading = Journal::open(dir.path(), reading).unwrap();
        let opened = reading.topic(&name()).unwrap().unwrap();
        let mut reader = opened.reader(0, From::Latest).unwrap();
        let bell = reading.bell().unwrap();
        assert!(!reader.arm(&bell));
        fs::remove_dir_all(folder(dir.path())).unwrap();
        let start = Instant::now();
        while bell.wait(Some(HANG_TIMEOUT)) == Wake::Rung && reader.next().is_ok() {
            if reader.arm(&bell) && reader.next().is_err() {
                break;
            }
            assert!(start.elapsed() < HANG_TIMEOUT, "{access:?}");
        }
        assert!(is_gone(reader.next().map(|item| item.is_some())), "{access:?}");
        while !is_refused(append(&mut writer)) {
            assert!(start.elapsed() < HANG_TIMEOUT, "{access:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_deletion_wakes_readers_of_other_processes() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), Maintenance::Manual);
    let topic = create(&journal, 1);
    append(&mut writer(&topic, 0, "me")).unwrap();
    let mut reader = topic.reader(0, From::Latest).unwrap();
    let bell = journal.bell().unwrap();
    assert!(!reader.arm(&bell));
    open(dir.path(), Maintenance::Manual).remove_topic(&name()).unwrap();
    assert_eq!(bell.wait(Some(Duration::ZERO)), Wake::Rung);
    assert!(is_gone(reader.next().map(|item| item.is_some())));
    assert!(reader.arm(&bell), "it would wait for ever");
}

#[test]
fn a_journal_that_was_moved_while_it_was_open_is_whole_at_its_new_place() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|place| dir.path().join(place));
    let journal = open(&old, Maintenance::Manual);
    let topic = create(&journal, 1);
    let mut writer = writer(&topic, 0, "me");
    append(&mut writer).unwrap();
    topic.wait_durable(0, 0, None).unwrap();
    fs::rename(&old, &new).unwrap();
    journal.maintain();
    assert!(is_refused(append(&mut writer)));
    let moved = open(&new, Maintenance::Manual).topic(&name()).unwrap().unwrap();
    assert_eq!(samples(&moved, 0), 1);
}

#[test]
fn a_purged_topic_begins_again_under_its_description() {
    let dir = tempfile::tempdir().unwrap();
    let [purger, other] = [(); 2].map(|()| open(dir.path(), Maintenance::Manual));
    let topic = create(&other, 2);
    let mut writer = writer(&topic, 1, "me");
    append(&mut writer).unwrap();
    let mut reader = topic.reader(1, From::Earliest).unwrap();
    let log = |topic: &Topic| topic.info(1).unwrap().log_id;
    assert!(purger.purge_topic(&name()).unwrap());
    assert!(is_refused(append(&mut writer)));
    assert!(is_gone(reader.next().map(|item| item.is_some())));
    let begun = other.topic(&name()).unwrap().unwrap();
    assert_eq!((begun.config(), samples(&begun, 1)), (topic.config(), 0));
    assert_ne!(log(&begun), log(&topic), "no cursor of the former records fits");
    assert!(!purger.purge_topic(&TopicName::new("no").unwrap()).unwrap());
    assert_eq!(fs::read_dir(dir.path().join("topics")).unwrap().count(), 1, "nothing is left");
}

/// The mark of a deletion whose process died before it could remove the folder.
fn interrupt(dir: &Path) {
    use std::os::unix::fs::FileExt;
    let control = fs::OpenOptions::new().write(true).open(folder(dir).join("0/control")).unwrap();
    control.write_all_at(b"GONE\0\0\0\x01", 1496).unwrap();
}

#[test]
fn an_interrupted_deletion_is_completed() {
    for recreated in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let [deleter, other] = [(); 2].map(|()| open(dir.path(), Maintenance::Manual));
        let topic = create(&other, 2);
        let mut writer = writer(&topic, 1, "me");
        append(&mut writer).unwrap();
        interrupt(dir.path());
        assert!(other.topic(&name()).unwrap().is_none() && other.topics().unwrap().is_empty());
        match recreated {
            true => assert_eq!(samples(&create(&deleter, 2), 1), 0),
            false => assert!(deleter.remove_topic(&name()).unwrap()),
        }
        assert!(is_refused(append(&mut writer)), "its partition had no mark yet");
        assert_eq!(folder(dir.path()).exists(), recreated);
    }
}
