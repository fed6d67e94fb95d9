//! Peers, copies and bytes that are refused, with the reason.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helio_bus::exclusive::{LogDurability, NewEpoch, Watermark};
use helio_bus::mirror::{Mirror as _, MirrorError, MirrorUser, SessionName};
use helio_mirror::{Dialer, Listener, LogSink, LogSource, MirrorFiles, Options};

use crate::support::{Authority, Place, begin, reach};

struct Reasons(Mutex<std::sync::mpsc::Sender<String>>);

impl MirrorUser for Reasons {
    fn closed(&self, _: Option<SessionName>, reason: &MirrorError) {
        let _ = self.0.lock().unwrap().send(reason.to_string());
    }
}

/// The first reason that has a text, of an end that dials.
fn reason(place: &Place, listener: &Listener, options: Options, text: &str) {
    let (sender, reasons) = channel();
    let options = Options { user: Arc::new(Reasons(Mutex::new(sender))), ..options };
    let dialer = Dialer::start(&listener.address().to_string(), options).unwrap();
    let mut last = String::new();
    while !last.contains(text) {
        let next = reasons.recv_timeout(Duration::from_secs(60));
        last = next.unwrap_or_else(|_| panic!("{text} after {last} in {:?}", place.folder));
    }
    dialer.close();
}

#[test]
fn only_named_peers_of_the_authority_are_admitted() {
    let place = Place::new();
    place.authority.vouch("other");
    let foreign = Authority::new(&place.folder.path().join("foreign"));
    foreign.vouch("a");
    let listener = place.listen(&place.log("b"));
    let with = |files: MirrorFiles| Options::new("mirrored/log", files);
    reason(&place, &listener, with(place.authority.files("other", "b")), "closed");
    reason(&place, &listener, with(place.authority.files("a", "other")), "not admitted");
    reason(&place, &listener, with(foreign.files("a", "b")), "certificate");
    let other = Options::new("another/log", place.authority.files("a", "b"));
    reason(&place, &listener, other, "it mirrors another/log");
    assert_eq!(listener.figures().sessions, 0);
}

#[test]
fn plain_bytes_are_refused() {
    let place = Place::new();
    let listener = place.listen(&place.log("b"));
    let mut socket = TcpStream::connect(listener.address()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    // At most an alert of TLS.
    assert!(answer.len() < 16, "{answer:?}");
}

#[test]
fn a_copy_of_another_log_is_refused() {
    let place = Place::new();
    let (log, copy) = (place.log("a"), place.log("b"));
    begin(log.as_ref());
    log.append(&[b"ours"]).unwrap();
    let listener = place.listen(&copy);
    let dialer = place.dial(&log, &listener);
    reach(copy.as_ref(), Watermark::Stored, 1);
    dialer.close();
    let source =
        |log| Options { source: Some(Box::new(LogSource::new(log)) as _), ..place.options("a") };
    // The same epoch, another record.
    let second = place.log("second");
    begin(second.as_ref());
    second.append(&[b"else"]).unwrap();
    reason(&place, &listener, source(second), "its record 0 is another one");
    // Another epoch of that number.
    let third = place.log("third");
    third.begin_epoch(&NewEpoch { number: 1, start: 0, header: b"x" }).unwrap();
    reason(&place, &listener, source(third), "its epoch 1 is another one");
    // Records that the copy needs are gone.
    log.append(&[b"1", b"2"]).unwrap();
    log.begin_epoch(&NewEpoch { number: 2, start: 3, header: b"" }).unwrap();
    log.append(&[b"3", b"4"]).unwrap();
    log.commit(5).unwrap();
    log.trim(4).unwrap();
    reason(&place, &listener, source(log), "the oldest one is 4");
}

#[test]
fn a_log_with_epochs_of_its_own_is_no_copy() {
    let place = Place::new();
    let log = place.log("b");
    begin(log.as_ref());
    let refused = LogSink::new(log, LogDurability::Disk).err().unwrap();
    assert!(refused.to_string().contains("written by no mirror"), "{refused}");
}
