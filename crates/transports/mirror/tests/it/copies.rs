//! Records, epochs, watermarks and messages of both ends in one process.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use helio_bus::exclusive::{ExclusiveLog, LogDurability, NewEpoch, Watermark};
use helio_bus::mirror::{
    CopyMarks, Mirror as _, MirrorError, MirrorSession, MirrorUser, Order, SessionName,
};
use helio_mirror::{Dialer, Listener, LogSink, LogSource, Options, report_end, source_epoch};

use crate::support::{Place, begin, reach, records};

const PATIENCE: Duration = Duration::from_secs(20);

/// What a user was notified of.
#[derive(Debug)]
enum Call {
    Opened(SessionName),
    Message(Bytes),
    Beat(Bytes),
    Acknowledged(CopyMarks),
    Ended(Bytes),
    Closed(Option<SessionName>),
}

/// Notes all calls; sends a message when a session opens.
pub(crate) struct Notes(Mutex<Sender<Call>>, Option<&'static str>);

impl Notes {
    fn new(hello: Option<&'static str>) -> (Arc<Self>, Receiver<Call>) {
        let (calls, receiver) = channel();
        (Arc::new(Self(Mutex::new(calls), hello)), receiver)
    }

    fn note(&self, call: Call) {
        let _ = self.0.lock().unwrap().send(call);
    }
}

impl MirrorUser for Notes {
    fn opened(&self, session: &Arc<dyn MirrorSession>) {
        if let Some(hello) = self.1 {
            // It may have been closed at once.
            let _ = session.send(Bytes::from_static(hello.as_bytes()), Order::Next);
        }
        self.note(Call::Opened(session.name()));
    }
    fn message(&self, _: SessionName, message: Bytes) {
        self.note(Call::Message(message));
    }
    fn beat(&self, _: SessionName, payload: Bytes) {
        self.note(Call::Beat(payload));
    }
    fn acknowledged(&self, _: SessionName, marks: CopyMarks) {
        self.note(Call::Acknowledged(marks));
    }
    fn ended(&self, message: Bytes) {
        self.note(Call::Ended(message));
    }
    fn closed(&self, session: Option<SessionName>, _: &MirrorError) {
        self.note(Call::Closed(session));
    }
}

/// The first call that a test looks for.
fn wait<T>(calls: &Receiver<Call>, mut found: impl FnMut(Call) -> Option<T>) -> T {
    loop {
        if let Some(found) = found(calls.recv_timeout(PATIENCE).unwrap()) {
            return found;
        }
    }
}

fn copied(log: &Arc<dyn ExclusiveLog>, copy: &Arc<dyn ExclusiveLog>) {
    let end = log.watermarks().stored;
    reach(copy.as_ref(), Watermark::Durable, end);
    assert_eq!(records(copy.as_ref()), records(log.as_ref()));
}

#[test]
fn a_log_is_copied_with_offsets_epochs_and_watermarks() {
    let place = Place::new();
    let (log, copy) = (place.log("a"), place.log("b"));
    begin(log.as_ref());
    log.append(&[b"one", b"", b"three"]).unwrap();
    let listener = place.listen(&copy);
    let (notes, calls) = Notes::new(None);
    let source = Some(Box::new(LogSource::new(Arc::clone(&log))) as _);
    let options = Options { source, user: notes, ..place.options("a") };
    let dialer = Dialer::start(&listener.address().to_string(), options).unwrap();
    copied(&log, &copy);
    let large = vec![7; 3 << 20];
    let end = log.append(&[&large, b"four"]).unwrap().end;
    let all = CopyMarks { stored: end, durable: end };
    wait(&calls, |call| matches!(call, Call::Acknowledged(marks) if marks == all).then_some(()));
    log.commit(end).unwrap();
    reach(copy.as_ref(), Watermark::Committed, end);
    // A second epoch, whose start leaves offsets out.
    log.begin_epoch(&NewEpoch { number: 9, start: 100, header: b"jump" }).unwrap();
    log.append(&[b"hundred"]).unwrap();
    copied(&log, &copy);
    let epochs: Vec<_> = copy.epochs().iter().filter_map(source_epoch).collect();
    let numbers: Vec<_> = epochs.iter().map(|epoch| (epoch.number, epoch.start)).collect();
    assert_eq!(numbers, [(1, 0), (9, 100)]);
    assert_eq!(epochs[1].header, "jump");
    drop(dialer);
    assert_eq!(listener.figures().received_records, 6);
}

#[test]
fn a_new_epoch_supersedes_records_of_the_copy() {
    let place = Place::new();
    let (log, copy) = (place.log("a"), place.log("b"));
    begin(log.as_ref());
    log.append(&[b"0", b"1", b"lost", b"lost, too"]).unwrap();
    log.commit(2).unwrap();
    let listener = place.listen(&copy);
    let dialer = place.dial(&log, &listener);
    copied(&log, &copy);
    log.begin_epoch(&NewEpoch { number: 2, start: 2, header: b"" }).unwrap();
    log.append(&[b"2"]).unwrap();
    log.commit(3).unwrap();
    reach(copy.as_ref(), Watermark::Committed, 3);
    assert_eq!(records(copy.as_ref()), records(log.as_ref()));
    // The same while the copy is away.
    dialer.close();
    log.append(&[b"3", b"lost"]).unwrap();
    log.begin_epoch(&NewEpoch { number: 3, start: 4, header: b"" }).unwrap();
    log.append(&[b"4"]).unwrap();
    let dialer = place.dial(&log, &listener);
    copied(&log, &copy);
    drop(dialer);
}

#[test]
fn both_ends_restart_without_loss_or_repetition() {
    let place = Place::new();
    let address = {
        let copy = place.log("b");
        let listener = place.listen(&copy);
        let address = listener.address();
        for run in 0..3_u8 {
            let log = place.log("a");
            begin(log.as_ref());
            log.append(&[&[run], &[run, run]]).unwrap();
            let dialer = place.dial(&log, &listener);
            copied(&log, &copy);
            drop(dialer);
        }
        address
    };
    for run in 3..6_u8 {
        let (log, copy) = (place.log("a"), place.log("b"));
        begin(log.as_ref());
        log.append(&[&[run]]).unwrap();
        let sink = LogSink::new(Arc::clone(&copy), LogDurability::Disk).unwrap();
        let options = Options { sink: Some(Box::new(sink)), ..place.options("b") };
        let listener = Listener::start(&address.to_string(), options).unwrap();
        let dialer = place.dial(&log, &listener);
        copied(&log, &copy);
        assert_eq!(copy.watermarks().stored, 6 + u64::from(run) - 2);
        drop(dialer);
    }
}

#[test]
fn messages_keep_their_place_among_records() {
    let place = Place::new();
    let (log, copy) = (place.log("a"), place.log("b"));
    begin(log.as_ref());
    let (ours, our_calls) = Notes::new(Some("HELLO of a"));
    let (theirs, their_calls) = Notes::new(Some("HELLO of b"));
    let sink = Some(Box::new(LogSink::new(Arc::clone(&copy), LogDurability::Disk).unwrap()) as _);
    let options = Options { sink, user: theirs, ..place.options("b") };
    let listener = Listener::start("127.0.0.1:0", options).unwrap();
    let source = Some(Box::new(LogSource::new(Arc::clone(&log))) as _);
    let options = Options { source, user: ours, ..place.options("a") };
    let dialer = Dialer::start(&listener.address().to_string(), options).unwrap();
    let message = |call| match call {
        Call::Message(message) => Some(message),
        _ => None,
    };
    assert_eq!(wait(&our_calls, message), "HELLO of b");
    assert_eq!(wait(&their_calls, message), "HELLO of a");
    let session = dialer.session().unwrap();
    session.send("EPOCH".into(), Order::After(3)).unwrap();
    session.send("next".into(), Order::Next).unwrap();
    log.append(&[b"0", b"1", b"2", b"3", b"4"]).unwrap();
    assert_eq!(wait(&their_calls, message), "EPOCH");
    assert!(copy.watermarks().stored >= 3);
    assert_eq!(wait(&their_calls, message), "next");
    copied(&log, &copy);
    // Records 3 and 4 came behind the message: they are a batch of their own.
    session.beat(b"beat").unwrap();
    let beat = |call| match call {
        Call::Beat(payload) => Some(payload),
        _ => None,
    };
    assert_eq!(wait(&their_calls, beat), "beat");
    let address = listener.address().to_string();
    let files = place.authority.files("a", "b");
    report_end(&address, "mirrored/log", &files, "ENDED".into()).unwrap();
    let ended = |call| match call {
        Call::Ended(message) => Some(message),
        _ => None,
    };
    assert_eq!(wait(&their_calls, ended), "ENDED");
    let name = session.name();
    session.close();
    let closed = |call| match call {
        Call::Closed(session) => session,
        _ => None,
    };
    assert_eq!(wait(&their_calls, closed), name);
    let opened = |call| match call {
        Call::Opened(session) => Some(session),
        _ => None,
    };
    assert_ne!(wait(&their_calls, opened), name, "a new session has a new name");
}
