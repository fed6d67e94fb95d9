//! Forwarding: nothing is lost, and what was acknowledged is not sent again.

use std::time::Duration;

use crate::support::bus::{Published, forward, numbers};
use crate::support::kept::{Kept, served};
use helio_log_otlp::{
    CursorFile, Exporter, ExporterOptions, ForwardError, ForwardEvent, Protocol, Taken,
};

fn exporter(url: &str) -> Exporter {
    let options = ExporterOptions { timeout: Duration::from_secs(60), ..Default::default() };
    Exporter::new(Protocol::Grpc, url, &options).unwrap()
}

fn texts(kept: &Kept) -> Vec<String> {
    kept.records.lock().unwrap().iter().map(|record| record.message()).collect()
}

#[test]
fn the_next_one_goes_on_where_the_last_batch_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cursor");
    let (kept, _serving, grpc, _) = served();
    let mut published = Published::new();
    published.publish(35);
    // Answers are taken from the end: two batches are acknowledged, the third one is not.
    let later = || Taken::Later { after: Duration::ZERO };
    *kept.answers.lock().unwrap() = vec![later(), Taken::All, Taken::All];
    let mut first = published.forwarder(exporter(&grpc), &file);
    let told = forward(&mut first).unwrap();
    assert!(matches!(told.as_slice(), [ForwardEvent::Later { .. }]), "{told:?}");
    assert_eq!(texts(&kept), numbers(1..=20));
    // It ends as by kill -9: all that outlives it is the file.
    drop(first);
    published.publish(5);
    let mut second = published.forwarder(exporter(&grpc), &file);
    assert!(forward(&mut second).unwrap().is_empty());
    assert_eq!(texts(&kept), numbers(1..=40));
    assert_eq!(second.figures().taken, 20);
    drop(second);
    let mut third = published.forwarder(exporter(&grpc), &file);
    assert!(forward(&mut third).unwrap().is_empty());
    assert_eq!(texts(&kept), numbers(1..=40), "nothing is repeated");
}

#[test]
fn what_was_not_taken_is_sent_again_by_the_same_one() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, _serving, grpc, _) = served();
    let mut published = Published::new();
    published.publish(25);
    let later = || Taken::Later { after: Duration::ZERO };
    *kept.answers.lock().unwrap() = vec![later(), later(), Taken::All, later()];
    let mut forwarder = published.forwarder(exporter(&grpc), &folder.path().join("cursor"));
    for _ in 0..3 {
        assert_eq!(forward(&mut forwarder).unwrap().len(), 1);
    }
    assert!(forward(&mut forwarder).unwrap().is_empty());
    assert_eq!(texts(&kept), numbers(1..=25));
    let figures = forwarder.figures();
    assert_eq!((figures.taken, figures.refused, figures.again), (25, 0, 3));
}

#[test]
fn what_is_refused_is_told_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, _serving, grpc, _) = served();
    let mut published = Published::new();
    published.publish(15);
    let but = Taken::But { refused: 4, reason: "not wanted".to_owned() };
    *kept.answers.lock().unwrap() = vec![Taken::All, but];
    let mut forwarder = published.forwarder(exporter(&grpc), &folder.path().join("cursor"));
    let told = forward(&mut forwarder).unwrap();
    let [ForwardEvent::Refused(refused)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((refused.records, refused.reason.as_str()), (4, "not wanted"));
    let figures = forwarder.figures();
    assert_eq!((figures.taken, figures.refused), (11, 4));
}

#[test]
fn a_cursors_file_is_of_one_process_and_has_a_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cursor");
    let (held, cursor) = CursorFile::open(&file).unwrap();
    assert_eq!(cursor, None);
    assert!(matches!(CursorFile::open(&file), Err(ForwardError::InUse(_))));
    drop(held);
    std::fs::write(&file, "elsewhere\n").unwrap();
    assert!(matches!(CursorFile::open(&file), Err(ForwardError::NoCursor { .. })));
    let nowhere = folder.path().join("no/cursor");
    assert!(matches!(CursorFile::open(&nowhere), Err(ForwardError::File { .. })));
}
