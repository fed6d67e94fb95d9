//! Senders that finish nothing, or too much at once, beside one that does as it should.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use helio_log_otlp::{ExportError, Exporter, ExporterOptions, Limits, Protocol, to_protobuf};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::client::{GOOD, TIMEOUT, connect, response};
use crate::support::kept::{Kept, serving};
use crate::support::whole;

/// When an unfinished request is ended; a loaded machine opens all connections of a test before.
const UNFINISHED: Duration = Duration::from_secs(10);

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// The head of a request with so many bytes to follow.
fn head(bytes: usize) -> String {
    format!(
        "POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n\
         Content-Length: {bytes}\r\n\r\n"
    )
}

/// The status of a whole request.
fn post(from: &str, url: &str) -> Option<(u16, String)> {
    let body = to_protobuf(&[whole()]);
    let mut stream = connect(from, address(url));
    stream.write_all(head(body.len()).as_bytes()).ok()?;
    stream.write_all(&body).ok()?;
    response(&mut stream)
}

fn status(from: &str, url: &str) -> Option<u16> {
    post(from, url).map(|(status, _)| status)
}

#[test]
fn half_open_requests_keep_nobody_out() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum.map_or(Some(8_192), |most| Some(most.min(8_192)));
    setrlimit(Resource::Nofile, files).unwrap();
    let kept = Arc::new(Kept::default());
    let limits = Limits { unfinished: UNFINISHED, ..Limits::default() };
    let (_serving, grpc, http) = serving(&kept, &limits);
    // Of the four kinds: nothing, half a head, the other protocol's preface, half of that.
    let starts = ["", &head(100)[..40], "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * H"];
    let open = |place: usize| {
        let url = if place.is_multiple_of(2) { &http } else { &grpc };
        let mut stream = TcpStream::connect(address(url)).unwrap();
        // One above the sender's limit is closed already.
        _ = stream.write_all(starts[place / 2 % 4].as_bytes());
        stream
    };
    let streams: Vec<_> = (0..1_024).map(open).collect();
    assert_eq!(status(GOOD, &http), Some(200));
    let refused = kept.turned_away.load(Ordering::Relaxed);
    assert!(refused >= 1_024 - 256, "{refused} of 1024");
    // They are closed, each in time, and their sender is served again.
    for mut stream in streams {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.unwrap_err().kind() == ErrorKind::ConnectionReset);
    }
    assert_eq!(status("127.0.0.1", &http), Some(200));
    assert!(kept.timed_out.load(Ordering::Relaxed) > 200);
    assert_eq!(kept.records.lock().unwrap().len(), 2);
}

#[test]
fn half_bodies_of_one_sender_keep_only_that_one_out() {
    let kept = Arc::new(Kept::default());
    let limits = Limits { unfinished: UNFINISHED, ..Limits::default() };
    let (_serving, _, http) = serving(&kept, &limits);
    let open = |_| {
        let mut stream = connect("127.0.0.1", address(&http));
        stream.write_all(head(100).as_bytes()).unwrap();
        stream.write_all(&[0; 50]).unwrap();
        stream
    };
    let streams: Vec<_> = (0..64).map(open).collect();
    assert_eq!(status(GOOD, &http), Some(200));
    let answers = streams.into_iter().map(|mut stream| response(&mut stream).unwrap());
    let mut statuses: Vec<_> = answers.map(|(status, _)| status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![408; 16], vec![429; 48]].concat());
    assert_eq!(status("127.0.0.1", &http), Some(200));
}

#[test]
fn a_connection_of_http2_has_so_many_streams() {
    let kept = Arc::new(Kept::default());
    let (_serving, grpc, _) = serving(&kept, &Limits::default());
    let mut stream = connect(GOOD, address(&grpc));
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "a frame of settings");
    let mut settings = vec![0; usize::from(frame[2])];
    stream.read_exact(&mut settings).unwrap();
    let most = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).unwrap();
    assert_eq!(most[2..], [0, 0, 0, 16]);
}

#[test]
fn what_is_not_stored_in_time_is_to_be_sent_again() {
    let kept = Arc::new(Kept { is_stuck: true, ..Kept::default() });
    let limits = Limits { stored: Duration::from_millis(500), ..Limits::default() };
    let (_serving, grpc, http) = serving(&kept, &limits);
    // More than there are threads, and more than one sender may have bodies: none of them waits
    // for another, whose body was read.
    let threads: Vec<_> = (0..32)
        .map(|_| {
            let http = http.clone();
            std::thread::spawn(move || post("127.0.0.1", &http).unwrap())
        })
        .collect();
    let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let late = answers.iter().filter(|(status, _)| *status == 503).count();
    assert!(late >= 16, "{answers:?}");
    assert!(answers.iter().all(|(_, head)| head.contains("retry-after: 1\r\n")));
    let options = ExporterOptions { timeout: TIMEOUT, ..ExporterOptions::default() };
    let exporter = Exporter::new(Protocol::Grpc, &grpc, &options).unwrap();
    let later = exporter.export(to_protobuf(&[whole()])).unwrap_err();
    let after = Some(Duration::from_secs(1));
    assert!(
        matches!(&later, ExportError::Later { after: told, .. } if *told == after),
        "{later:?}"
    );
}
