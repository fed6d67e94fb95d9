//! Failing disks, processes that die during maintenance, and recovery from both.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::support::HANG_TIMEOUT;
use helio_core::{ProducerName, TopicName};
use helio_journal::{
    Access, AppendError, From, GapCause, Item, Journal, JournalError, JournalOptions, Maintenance,
    Ownership, Record, RecoveryHook, SyncHook, Topic, TopicConfig, Writer, WriterOptions,
};

const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

fn name(text: &str) -> ProducerName {
    ProducerName::new(text).unwrap()
}

fn options(boot: u8, sync_hook: Option<SyncHook>) -> JournalOptions {
    let (maintenance, boot_id) = (Maintenance::Manual, Some([boot; 16]));
    JournalOptions { maintenance, boot_id, sync_hook, ..JournalOptions::default() }
}

fn open(dir: &Path, boot: u8, hook: Option<SyncHook>) -> Journal {
    Journal::open(dir, options(boot, hook)).unwrap()
}

fn topic(journal: &Journal) -> Topic {
    let config = TopicConfig { segment_bytes: 16 << 10, ..TopicConfig::default() };
    journal.create_topic(&TopicName::new("t").unwrap(), &config).unwrap()
}

fn writer(topic: &Topic, ownership: Ownership) -> Result<Writer, JournalError> {
    topic.writer(0, &WriterOptions { producer: name("me"), ownership })
}

fn append(writer: &mut Writer, key: u8, len: usize) -> Result<u64, AppendError> {
    writer.append(&Record { key: &[key], payload: &vec![7; len], ..Record::default() })
}

/// Appends enough for several segments.
fn fill(writer: &mut Writer, count: u32) {
    for i in 0..count {
        append(writer, (i % 3) as u8, 900).unwrap();
    }
}

/// A disk that fails while the flag is set.
fn failing(fails: &Arc<AtomicBool>) -> Option<SyncHook> {
    let fails = Arc::clone(fails);
    Some(Arc::new(move |_| match fails.load(SeqCst) {
        true => Err(io::Error::from_raw_os_error(5)),
        false => Ok(()),
    }))
}

#[test]
fn a_failed_sync_is_told_until_the_next_boot() {
    let (dir, fails) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let journal = open(dir.path(), 1, failing(&fails));
    let first = topic(&journal);
    let mut writer = writer(&first, Ownership::Shared).unwrap();
    append(&mut writer, 1, 10).unwrap();
    first.wait_durable(0, 0, None).unwrap();
    fails.store(true, SeqCst);
    append(&mut writer, 1, 10).unwrap();
    let failed = first.wait_durable(0, 1, None).unwrap_err();
    assert!(matches!(failed, JournalError::Io { action: "sync", .. }), "{failed}");
    // The kernel has marked the pages clean: the next request's success means nothing.
    fails.store(false, SeqCst);
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    first.on_durable(0, 1, Box::new(move |result| *tell.lock().unwrap() = Some(result))).unwrap();
    for failed in [first.wait_durable(0, 1, None), told.lock().unwrap().take().unwrap()] {
        assert!(matches!(failed, Err(JournalError::SyncFailed { .. })), "{failed:?}");
    }
    assert_eq!(first.durable(0).unwrap(), 1);
    assert_eq!(append(&mut writer, 1, 10).unwrap(), 2, "stored is another promise");
    drop((writer, first, journal));
    let topic = topic(&open(dir.path(), 2, None));
    topic.wait_durable(0, 2, None).unwrap();
}

#[test]
fn a_claim_that_did_not_reach_the_disk_is_nobodys() {
    let (dir, fails) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let journal = open(dir.path(), 1, failing(&fails));
    let topic = topic(&journal);
    fails.store(true, SeqCst);
    let failed = writer(&topic, Ownership::Exclusive).unwrap_err();
    assert!(matches!(failed, JournalError::Io { action: "sync", .. }), "{failed}");
    fails.store(false, SeqCst);
    let mut writer = writer(&topic, Ownership::Exclusive).unwrap();
    assert_eq!(append(&mut writer, 1, 10).unwrap(), 0);
}

#[test]
fn waiting_for_a_slow_disk_ends_when_it_is_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let slow = Arc::new(AtomicBool::new(false));
    let is_slow = Arc::clone(&slow);
    let hook: SyncHook = Arc::new(move |_| {
        if is_slow.swap(false, SeqCst) {
            entered.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        }
        Ok(())
    });
    // A waiter without a timeout of its own would block for ever here.
    let patient = JournalOptions { lock_timeout: FOR_EVER, ..options(1, Some(hook)) };
    let journal = Journal::open(dir.path(), patient).unwrap();
    let topic = topic(&journal);
    let mut writer = writer(&topic, Ownership::Shared).unwrap();
    append(&mut writer, 1, 10).unwrap();
    slow.store(true, SeqCst);
    let other = topic.clone();
    let syncing = std::thread::spawn(move || other.wait_durable(0, 0, None));
    has_entered.recv().unwrap();
    let late = topic.wait_durable(0, 0, Some(Duration::from_millis(20))).unwrap_err();
    assert!(matches!(late, JournalError::TimedOut { .. }), "{late}");
    go_on.send(()).unwrap();
    syncing.join().unwrap().unwrap();
    topic.wait_durable(0, 0, Some(Duration::ZERO)).unwrap();
}

#[test]
fn who_waits_for_what_is_there_is_not_told_of_what_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), 1, None);
    let topic = topic(&journal);
    let mut writer = writer(&topic, Ownership::Shared).unwrap();
    append(&mut writer, 1, 10).unwrap();
    let results = Arc::new(Mutex::new(Vec::new()));
    // Requested from within a callback, both wait for the same turn.
    let (inner, tell) = (topic.clone(), Arc::clone(&results));
    let both = move |_| {
        for offset in [0, 1000] {
            let tell = Arc::clone(&tell);
            let call = move |result: Result<(), JournalError>| {
                tell.lock().unwrap().push((offset, result.is_ok()));
            };
            inner.on_durable(0, offset, Box::new(call)).unwrap();
        }
    };
    topic.on_durable(0, 0, Box::new(both)).unwrap();
    journal.maintain();
    results.lock().unwrap().sort_unstable();
    assert_eq!(*results.lock().unwrap(), [(0, true), (1000, false)]);
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    entries.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn what_the_dead_left_behind_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let before = open(dir.path(), 1, None);
    let mut first = writer(&topic(&before), Ownership::Shared).unwrap();
    fill(&mut first, 40);
    let folder = dir.path().join("topics/t/0");
    let whole = names(&folder);
    // A token of a process that never existed, an unknown spare, a segment long retired.
    let left = [".tmp-0000000100000001-0-7", "spare.00000000000000ff", "0000000000000000.seg"];
    left.iter().for_each(|file| fs::write(folder.join(file), b"left").unwrap());
    let journal = open(dir.path(), 1, None);
    topic(&journal).info(0).unwrap();
    journal.maintain();
    assert_eq!(names(&folder), whole);
}

#[test]
fn two_journals_of_one_process_do_not_meet_at_names() {
    let dir = tempfile::tempdir().unwrap();
    let journals = [open(dir.path(), 1, None), open(dir.path(), 1, None)];
    std::thread::scope(|scope| {
        for (journal, producer) in journals.iter().zip(["one", "two"]) {
            let options = WriterOptions { producer: name(producer), ownership: Ownership::Shared };
            let mut writer = topic(journal).writer(0, &options).unwrap();
            scope.spawn(move || fill(&mut writer, 400));
        }
    });
    let mut reader = topic(&journals[0]).reader(0, From::Earliest).unwrap();
    let mut count = 0;
    while let Some(item) = reader.next().unwrap() {
        assert!(matches!(item, Item::Sample(_)), "{item:?}");
        count += 1;
    }
    assert_eq!(count, 800);
}

#[test]
fn a_groups_position_is_cut_with_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let before = open(dir.path(), 1, None);
    let log = topic(&before);
    let mut first = writer(&log, Ownership::Shared).unwrap();
    for key in 0..10 {
        append(&mut first, key, 100).unwrap();
    }
    let group = log.group(&name("workers")).unwrap();
    let member = group.join(&name("a")).unwrap();
    assert_eq!(member.assigned().unwrap(), [0]);
    member.commit(0, 9).unwrap();
    drop((member, group, first, log, before));
    // The sixth record did not reach the disk, and neither did any checkpoint.
    let segment = dir.path().join("topics/t/0/0000000000000001.seg");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[4096 + 5 * 168 + 70] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let control = dir.path().join("topics/t/0/control");
    let mut bytes = fs::read(&control).unwrap();
    bytes[1216..1312].fill(0);
    // What is proven is never cut: the words of the durable and of the committed end, too.
    bytes[256..312].fill(0);
    bytes[896..928].fill(0);
    fs::write(&control, bytes).unwrap();
    let log = topic(&open(dir.path(), 2, None));
    assert_eq!(log.info(0).unwrap().end_offset, 5);
    assert_eq!(log.group(&name("workers")).unwrap().committed(0).unwrap(), Some(5));
}

#[test]
fn one_process_syncs_in_the_background_and_another_when_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let syncs = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let journals = syncs.each_ref().map(|count| {
        let count = Arc::clone(count);
        let hook: SyncHook = Arc::new(move |path| {
            let segment = path.extension().is_some_and(|e| e == "seg");
            count.fetch_add(segment.into(), SeqCst);
            Ok(())
        });
        open(dir.path(), 1, Some(hook))
    });
    let [writing, reading] = journals.each_ref().map(topic);
    let mut writer = writer(&writing, Ownership::Shared).unwrap();
    reading.info(0).unwrap();
    for n in 1..=3 {
        append(&mut writer, 1, 10).unwrap();
        journals[0].maintain();
        append(&mut writer, 1, 10).unwrap();
        // Unsynced, but the other process syncs it.
        journals[1].maintain();
        assert_eq!(syncs.each_ref().map(|s| s.load(SeqCst)), [n, 0]);
    }
    // The writer's process does not return: a whole interval later the other one syncs.
    journals[1].maintain();
    assert_eq!(syncs.each_ref().map(|s| s.load(SeqCst)), [3, 1]);
    assert_eq!(reading.durable(0).unwrap(), 6);
}

#[test]
fn a_topic_whose_disk_does_not_answer_holds_up_no_other_one_however_many_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let stalls = Arc::new(AtomicBool::new(false));
    let is_stalled = Arc::clone(&stalls);
    let hook: SyncHook = Arc::new(move |path| {
        if is_stalled.load(SeqCst) && path.components().any(|part| part.as_os_str() == "slow") {
            let _ = may_go_on.lock().unwrap().recv();
        }
        Ok(())
    });
    let options = JournalOptions {
        maintenance: Maintenance::Background,
        lock_timeout: FOR_EVER,
        ..options(1, Some(hook))
    };
    let journal = Journal::open(dir.path(), options).unwrap();
    let [mut slow, mut fast] = ["slow", "fast"].map(|name| {
        let name = TopicName::new(name).unwrap();
        let topic = journal.create_topic(&name, &TopicConfig::default()).unwrap();
        let writer = writer(&topic, Ownership::Shared).unwrap();
        (topic, writer)
    });
    let append_and_ask = |(topic, writer): &mut (Topic, Writer)| {
        let (told, outcome) = mpsc::channel();
        let offset = append(writer, 1, 10).unwrap();
        let call = move |durable: Result<(), JournalError>| told.send(durable).unwrap();
        topic.on_durable(0, offset, Box::new(call)).unwrap();
        outcome
    };
    stalls.store(true, SeqCst);
    let waiting: Vec<_> = (0..100).map(|_| append_and_ask(&mut slow)).collect();
    for _ in 0..100 {
        append_and_ask(&mut fast).recv_timeout(HANG_TIMEOUT).unwrap().unwrap();
    }
    assert!(waiting.iter().all(|outcome| outcome.try_recv().is_err()));
    drop(go_on);
    for outcome in waiting {
        outcome.recv_timeout(HANG_TIMEOUT).unwrap().unwrap();
    }
}

#[test]
fn who_asks_for_nothing_is_synced_however_many_wait_for_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let hook: SyncHook = Arc::new(|_| {
        std::thread::sleep(Duration::from_millis(5));
        Ok(())
    });
    let options = JournalOptions { maintenance: Maintenance::Background, ..options(1, Some(hook)) };
    let journal = Journal::open(dir.path(), options).unwrap();
    let open = |name: &str| {
        let name = TopicName::new(name).unwrap();
        let topic = journal.create_topic(&name, &TopicConfig::default()).unwrap();
        let writer = writer(&topic, Ownership::Shared).unwrap();
        (topic, writer)
    };
    let over = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..16)
        .map(|n| {
            let ((topic, mut writer), over) = (open(&format!("busy{n}")), Arc::clone(&over));
            std::thread::spawn(move || {
                while !over.load(SeqCst) {
                    let (told, outcome) = mpsc::channel();
                    let offset = append(&mut writer, 1, 10).unwrap();
                    let call = move |durable| told.send(durable).unwrap();
                    topic.on_durable(0, offset, Box::new(call)).unwrap();
                    outcome.recv().unwrap().unwrap();
                }
            })
        })
        .collect();
    let (quiet, mut writer) = open("quiet");
    append(&mut writer, 1, 10).unwrap();
    let until = Instant::now() + HANG_TIMEOUT;
    while quiet.durable(0).unwrap() == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let durable = quiet.durable(0).unwrap();
    over.store(true, SeqCst);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(durable, 1, "the others' turn came each time");
}

/// A recovery while the journal is in use, because of damage, is no new boot.
#[test]
fn a_failed_sync_outlives_a_recovery_in_the_same_boot() {
    let (dir, fails) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let journal = open(dir.path(), 1, failing(&fails));
    let first = topic(&journal);
    let mut writer = writer(&first, Ownership::Shared).unwrap();
    append(&mut writer, 1, 10).unwrap();
    first.wait_durable(0, 0, None).unwrap();
    fails.store(true, SeqCst);
    append(&mut writer, 1, 10).unwrap();
    first.wait_durable(0, 1, None).unwrap_err();
    fails.store(false, SeqCst);
    drop((writer, first, journal));
    // The word of the tail: the page contradicts itself.
    let control = dir.path().join("topics/t/0/control");
    let mut bytes = fs::read(&control).unwrap();
    bytes[256] ^= 64;
    fs::write(&control, bytes).unwrap();
    let again = topic(&open(dir.path(), 1, None));
    let info = again.info(0).unwrap();
    assert_eq!((info.recovery.count, info.end_offset), (1, 2));
    let failed = again.wait_durable(0, 1, None).unwrap_err();
    assert!(matches!(failed, JournalError::SyncFailed { .. }), "{failed}");
    let next = topic(&open(dir.path(), 2, None));
    next.wait_durable(0, 1, None).unwrap();
}

const CONTROL: &str = "topics/t/0/control";
const FIRST_SEGMENT: &str = "topics/t/0/0000000000000001.seg";

fn patch(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
}

/// Ten records of 168 bytes in the first segment, and the control page that proves five of them.
fn ten_records(log: &Topic, dir: &Path) -> Vec<u8> {
    let mut first = writer(log, Ownership::Shared).unwrap();
    for key in 0..5 {
        append(&mut first, key, 100).unwrap();
    }
    log.wait_durable(0, 4, None).unwrap();
    let saved = fs::read(dir.join(CONTROL)).unwrap();
    for key in 5..10 {
        append(&mut first, key, 100).unwrap();
    }
    std::mem::forget(first);
    saved
}

/// Nothing on the disk proves the last records: they are cut off, and all who know them notice.
#[test]
fn a_cut_is_a_new_log_and_readers_behind_it_are_notified() {
    let dir = tempfile::tempdir().unwrap();
    let before = open(dir.path(), 1, None);
    let log = topic(&before);
    let saved = ten_records(&log, dir.path());
    let old = log.info(0).unwrap().log_id;
    // A reader that has seen all of it, in a process that goes on.
    let mut reader = log.reader(0, From::Earliest).unwrap();
    while reader.next().unwrap().is_some() {}
    assert_eq!(reader.offset(), 10);
    // The page of the durable end is the last one that reached the disk, and of the records 7.
    patch(&dir.path().join(CONTROL), 0, &saved);
    patch(&dir.path().join(FIRST_SEGMENT), 4096 + 7 * 168, &[0; 3 * 168]);
    let after = open(dir.path(), 2, None);
    let there = topic(&after);
    let info = there.info(0).unwrap();
    assert_eq!((info.end_offset, info.recovery.missing), (7, 0));
    assert_ne!(info.log_id, old);
    assert_eq!(there.fits_up_to(0, old).unwrap(), 7);
    let Some(Item::Gap(gap)) = reader.next().unwrap() else { panic!("not notified") };
    assert_eq!((gap.from, gap.to, gap.cause), (7, 10, GapCause::Cut));
    let mut second = writer(&there, Ownership::Shared).unwrap();
    assert_eq!(append(&mut second, 77, 10).unwrap(), 7);
    assert!(
        matches!(reader.next().unwrap(), Some(Item::Sample(s)) if s.offset == 7 && s.key == [77])
    );
}

/// Old frames lie behind the end of a segment that was cut, and only its seal hides them: without
/// it, and without the segment behind it, where it ended is not known.
#[test]
fn records_that_were_cut_off_stay_hidden_where_the_seal_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let (control, segment) = (dir.path().join(CONTROL), dir.path().join(FIRST_SEGMENT));
    let saved = ten_records(&topic(&open(dir.path(), 1, None)), dir.path());
    // Record 7 did not reach the disk; 8 and 9 did.
    patch(&control, 0, &saved);
    patch(&segment, 4096 + 7 * 168, &[0; 168]);
    let after = open(dir.path(), 2, None);
    let log = topic(&after);
    assert_eq!(log.info(0).unwrap().end_offset, 7);
    let mut second = writer(&log, Ownership::Shared).unwrap();
    for offset in 7..40 {
        assert_eq!(append(&mut second, 77, 1000).unwrap(), offset);
    }
    let next = dir.path().join("topics/t/0/0000000000000002.seg");
    let behind = dir.path().join("topics/t/0/0000000000000003.seg");
    assert!(behind.exists());
    patch(&segment, 136, &[0xff]);
    fs::remove_file(next).unwrap();
    let (mut reader, mut read) = (log.reader(0, From::Earliest).unwrap(), 0);
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Sample(sample) => {
                let is_old = sample.offset < 7;
                assert_eq!(sample.key, [if is_old { sample.offset as u8 } else { 77 }]);
                read += 1;
            }
            Item::Gap(gap) => {
                assert_eq!((gap.from, gap.cause), (7, GapCause::Damaged));
                assert!(gap.to > 9, "{gap:?}");
            }
        }
    }
    assert!(read > 7);
}

/// The hook may block, panic, or open the journal itself: the recovery is complete and on the disk
/// when it is called. A later recovery that finds no more missing does not call it.
#[test]
fn a_recovery_is_reported_once_and_without_its_lock() {
    let dir = tempfile::tempdir().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let open_reporting = |boot: u8| {
        let (synced, reported) = (Arc::clone(&events), Arc::clone(&events));
        let sync: SyncHook = Arc::new(move |_| {
            synced.lock().unwrap().push("sync".to_owned());
            Ok(())
        });
        let path = dir.path().to_owned();
        let report: RecoveryHook = Arc::new(move |found| {
            reported.lock().unwrap().push(format!("{} missing", found.report.missing));
            // Under another boot, it recovers as well.
            topic(&open(&path, boot + 100, None));
        });
        let options = JournalOptions { recovery_hook: Some(report), ..options(boot, Some(sync)) };
        drop(topic(&Journal::open(dir.path(), options).unwrap()).info(0));
    };
    open_reporting(1);
    fill(&mut writer(&topic(&open(dir.path(), 1, None)), Ownership::Shared).unwrap(), 40);
    fs::remove_file(dir.path().join("topics/t/0/0000000000000002.seg")).unwrap();
    events.lock().unwrap().clear();
    open_reporting(2);
    let after = std::mem::take(&mut *events.lock().unwrap());
    assert!(after.last().unwrap().ends_with("missing"), "{after:?}");
    assert_eq!(after.iter().filter(|event| event.ends_with("missing")).count(), 1, "{after:?}");
    open_reporting(3);
    let again = std::mem::take(&mut *events.lock().unwrap());
    assert!(!again.is_empty() && again.iter().all(|event| event == "sync"), "{again:?}");
    // Without write access nothing is recovered: what a recovery has reported is known.
    let reported = Arc::clone(&events);
    let report: RecoveryHook = Arc::new(move |_| reported.lock().unwrap().push("again".to_owned()));
    let (access, recovery_hook) = (Access::ReadOnly, Some(report));
    let options = JournalOptions { access, recovery_hook, ..options(4, None) };
    let reading = Journal::open(dir.path(), options).unwrap();
    let log = reading.topic(&TopicName::new("t").unwrap()).unwrap().unwrap();
    assert!(log.info(0).unwrap().recovery.missing > 0);
    assert_eq!(*events.lock().unwrap(), [""; 0]);
}
