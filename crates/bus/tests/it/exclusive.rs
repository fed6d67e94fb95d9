//! The rules of exclusive logs, on memory and on the journal.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use helio_bus::exclusive::{
    Ended, ExclusiveError, ExclusiveLog, LogCursor, LogDurability, LogOptions, MAX_BATCH_BYTES,
    NewEpoch, Watermark,
};
use helio_bus::{Bus, TopicName, TransportError};

/// Runs a test on an empty engine of each kind.
fn on_each(name: &str, test: impl Fn(&str)) {
    test(&format!("memory:exclusive-{name}"));
    let folder = tempfile::tempdir().unwrap();
    test(&format!("journal:{}", folder.path().display()));
}

fn open(url: &str, owner: &str) -> Result<Arc<dyn ExclusiveLog>, ExclusiveError> {
    let bus = Bus::connect(url).unwrap();
    bus.exclusive_log(&TopicName::new("state/main").unwrap(), &LogOptions::new(owner))
}

fn opened(url: &str) -> Arc<dyn ExclusiveLog> {
    open(url, "test").unwrap()
}

fn begin(log: &Arc<dyn ExclusiveLog>, number: u64, start: u64) {
    log.begin_epoch(&NewEpoch { number, start, header: b"header" }).unwrap();
}

/// Appends records of their offsets' names in one batch, and commits them.
fn fill(log: &Arc<dyn ExclusiveLog>, tag: &str, count: u64) {
    let first = log.watermarks().stored;
    let records: Vec<_> = (first..first + count).map(|at| format!("{tag}{at}")).collect();
    let records: Vec<_> = records.iter().map(String::as_bytes).collect();
    let offsets = log.append(&records).unwrap();
    assert_eq!(offsets, first..first + count);
    log.commit(offsets.end).unwrap();
}

fn all(log: &Arc<dyn ExclusiveLog>, from: u64, within: Watermark) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    log.scan(from..u64::MAX, within, &mut |offset, record| {
        found.push((offset, String::from_utf8(record.to_vec()).unwrap()));
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

fn named(offsets: std::ops::Range<u64>, tag: &str) -> Vec<(u64, String)> {
    offsets.map(|offset| (offset, format!("{tag}{offset}"))).collect()
}

#[test]
fn a_second_handle_is_refused_with_the_holder() {
    on_each("held", |url| {
        let log = opened(url);
        let Err(ExclusiveError::Held { owner, pid, .. }) = open(url, "other") else {
            panic!("two owners")
        };
        assert_eq!((owner.as_str(), pid), ("test", std::process::id()));
        log.close().unwrap();
        assert!(matches!(log.append(&[b"late"]), Err(ExclusiveError::Closed)));
        assert_eq!(open(url, "other").unwrap().last_run().ended, Ended::Never);
    });
}

#[test]
fn readers_see_no_further_than_their_watermark() {
    on_each("marks", |url| {
        let log = opened(url);
        assert!(matches!(log.append(&[b"early"]), Err(ExclusiveError::NoEpoch)));
        begin(&log, 1, 0);
        assert_eq!(log.append(&[b"a", b"b", b""]).unwrap(), 0..3);
        let ahead = log.read(0, Watermark::Committed).unwrap_err();
        assert!(matches!(ahead, ExclusiveError::Ahead { offset: 0, end: 0 }), "{ahead}");
        assert_eq!(&log.read(1, Watermark::Stored).unwrap()[..], b"b");
        log.wait(Watermark::Durable, 3, None).unwrap();
        assert_eq!(log.watermarks().durable, 3);
        log.commit(2).unwrap();
        assert_eq!(all(&log, 0, Watermark::Committed).len(), 2);
        assert_eq!(all(&log, 1, Watermark::Durable).len(), 2);
        assert!(matches!(log.commit(1), Err(ExclusiveError::OutOfRange { .. })));
        assert!(matches!(log.commit(4), Err(ExclusiveError::OutOfRange { .. })));
        assert!(all(&log, 3, Watermark::Stored).is_empty());
        let late = log.wait(Watermark::Committed, 3, Some(Duration::ZERO)).unwrap_err();
        assert!(matches!(late, ExclusiveError::TimedOut { end: 3, at: 2, .. }), "{late}");
        let huge = vec![0; MAX_BATCH_BYTES];
        assert!(matches!(log.append(&[&huge]), Err(ExclusiveError::Limit { .. })));
        assert_eq!(log.append(&[]).unwrap(), 3..3);
        assert_eq!(log.append(&[&huge[..MAX_BATCH_BYTES - 4]]).unwrap(), 3..4);
        assert_eq!(log.read(3, Watermark::Stored).unwrap().len(), MAX_BATCH_BYTES - 4);
    });
}

#[test]
fn a_child_s_start_says_how_much_of_its_parent_counts() {
    on_each("epochs", |url| {
        let log = opened(url);
        begin(&log, 1, 0);
        fill(&log, "a", 4);
        assert_eq!(log.append(&[b"unacknowledged", b"too"]).unwrap(), 4..6);
        drop(log);
        let log = opened(url);
        let run = log.last_run();
        assert_eq!((run.ended, run.stored, run.committed), (Ended::Killed, 6, 4));
        let below = log.begin_epoch(&NewEpoch { number: 2, start: 3, header: b"" });
        assert!(matches!(below, Err(ExclusiveError::Epoch { .. })), "{below:?}");
        let known = log.begin_epoch(&NewEpoch { number: 1, start: 6, header: b"" });
        assert!(matches!(known, Err(ExclusiveError::Epoch { .. })), "{known:?}");
        begin(&log, 2, 5);
        fill(&log, "b", 2);
        begin(&log, 7, 100);
        fill(&log, "c", 2);
        let mut expected = named(0..4, "a");
        expected.push((4, "unacknowledged".to_owned()));
        expected.extend(named(5..7, "b").into_iter().chain(named(100..102, "c")));
        assert_eq!(all(&log, 0, Watermark::Committed), expected);
        let gap = log.read(50, Watermark::Committed).unwrap_err();
        assert!(matches!(gap, ExclusiveError::LeftOut { offset: 50, next: 100 }), "{gap}");
        log.close().unwrap();
        let log = opened(url);
        assert_eq!(all(&log, 0, Watermark::Committed), expected);
        let run = log.last_run();
        assert_eq!((run.ended, run.stored, run.committed), (Ended::Cleanly, 102, 102));
        let epochs = log.epochs();
        let ends: Vec<_> =
            epochs.iter().map(|epoch| (epoch.number, epoch.start, epoch.end)).collect();
        assert_eq!(ends, [(1, 0, 6), (2, 5, 7), (7, 100, 102)]);
        assert!(epochs.iter().all(|epoch| &epoch.header[..] == b"header"));
        assert!(epochs.iter().all(|epoch| epoch.durability == LogDurability::Disk));
    });
}

#[test]
fn superseded_records_are_waited_for_in_vain() {
    on_each("superseded", |url| {
        let log = opened(url);
        begin(&log, 1, 0);
        let (send, results) = mpsc::channel();
        log.append(&[b"a", b"b"]).unwrap();
        for end in [1, 2] {
            let send = send.clone();
            let call = move |result: Result<_, _>| send.send(result.map(drop)).unwrap();
            log.notify(Watermark::Committed, end, Box::new(call));
        }
        begin(&log, 2, 1);
        let failed = results.recv().unwrap().unwrap_err();
        assert!(matches!(failed, ExclusiveError::Superseded { end: 2, start: 1 }), "{failed}");
        log.commit(1).unwrap();
        results.recv().unwrap().unwrap();
        let call = move |result: Result<_, _>| send.send(result.map(drop)).unwrap();
        log.notify(Watermark::Committed, 9, Box::new(call));
        drop(log);
        assert!(matches!(results.recv().unwrap(), Err(ExclusiveError::Closed)));
    });
}

#[test]
fn a_trimmed_record_is_an_error_that_names_the_oldest_one() {
    on_each("trim", |url| {
        let log = opened(url);
        begin(&log, 1, 0);
        fill(&log, "a", 10);
        let pinned = log.read(2, Watermark::Committed).unwrap();
        begin(&log, 2, 10);
        fill(&log, "b", 10);
        log.trim(3).unwrap();
        let trimmed = log.read(2, Watermark::Committed).unwrap_err();
        assert!(matches!(trimmed, ExclusiveError::Trimmed { offset: 2, first: 3 }), "{trimmed}");
        assert_eq!(&log.read(3, Watermark::Committed).unwrap()[..], b"a3");
        log.trim(1).unwrap();
        log.trim(12).unwrap();
        assert!(matches!(log.trim(21), Err(ExclusiveError::OutOfRange { .. })));
        assert_eq!(log.epochs().len(), 1);
        assert_eq!(&pinned[..], b"a2");
        drop(log);
        let log = opened(url);
        assert_eq!(log.watermarks().first, 12);
        assert_eq!(all(&log, 12, Watermark::Committed), named(12..20, "b"));
        let mut slow = LogCursor::new(Arc::clone(&log), 4);
        let failed = slow.poll(&mut |_, _| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(failed, ExclusiveError::Trimmed { offset: 4, first: 12 }), "{failed}");
    });
}

#[test]
fn a_cursor_follows_what_is_committed() {
    on_each("cursor", |url| {
        let log = opened(url);
        begin(&log, 1, 0);
        let mut cursor = LogCursor::new(Arc::clone(&log), 0);
        let reader = std::thread::spawn(move || {
            let mut found = Vec::new();
            while found.len() < 300 {
                cursor.wait(None).unwrap();
                let taken = cursor.poll(&mut |offset, _| {
                    found.push(offset);
                    // Stops now and then, and resumes behind that record.
                    if offset % 7 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                assert!(taken.unwrap() > 0);
            }
            found
        });
        (0..100).for_each(|_| fill(&log, "r", 3));
        assert!(reader.join().unwrap().into_iter().eq(0..300));
    });
}

#[test]
fn others_refuse_by_name() {
    let bus = Bus::connect("fault:memory:exclusive-fault").unwrap();
    let name = TopicName::new("state/main").unwrap();
    assert!(bus.exclusive_log(&name, &LogOptions::new("test")).is_ok(), "the inner one has it");
    let refused = ExclusiveError::from(TransportError::Closed);
    assert!(refused.to_string().starts_with("closed"), "{refused}");
}
