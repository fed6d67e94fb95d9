//! Numbers and times of connections, requests and bodies.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use helio_http::{Limits, Observer, Peers, Threads};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::support::{
    GOOD, LARGE, STALLED, closes, connect, head, posted, response, served, served_counting, until,
};

/// When an unfinished request is closed; a loaded machine opens all connections of a test before.
const UNFINISHED: Duration = Duration::from_secs(10);
/// For tests with one stalled connection.
const SOON: Duration = Duration::from_millis(200);

#[test]
fn unfinished_requests_of_one_peer_keep_no_other_out() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum.map_or(Some(4_096), |most| Some(most.min(4_096)));
    setrlimit(Resource::Nofile, files).unwrap();
    let server = served(Limits { unfinished: UNFINISHED, ..Limits::default() });
    // Nothing, half a head, the preface of HTTP/2, half of that.
    let starts = ["", &head(100)[..30], "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * H"];
    let open = |place: usize| {
        let mut stream = connect(STALLED, server.address());
        // One above the peer's limit is closed already.
        _ = stream.write_all(starts[place % 4].as_bytes());
        stream
    };
    let streams: Vec<_> = (0..300).map(open).collect();
    assert_eq!(posted(STALLED, &server, b"x"), None, "the peer has 256 connections");
    assert_eq!(posted(GOOD, &server, b"x"), Some(200));
    assert!(streams.into_iter().all(|mut stream| closes(&mut stream)));
    until("the stalled peer is served again", || posted(STALLED, &server, b"x") == Some(200));
}

#[test]
fn unfinished_bodies_of_one_peer_keep_no_other_out() {
    let limits = Limits { requests_per_peer: 4, unfinished: UNFINISHED, ..Limits::default() };
    let (server, refusals) = served_counting(limits);
    let open = |_| {
        let mut stream = connect(STALLED, server.address());
        stream.write_all(head(100).as_bytes()).unwrap();
        stream.write_all(&[0; 50]).unwrap();
        stream
    };
    let streams: Vec<_> = (0..10).map(open).collect();
    assert_eq!(posted(GOOD, &server, b"x"), Some(200));
    let responses = streams.into_iter().map(|mut stream| response(&mut stream).unwrap());
    let mut responses: Vec<_> = responses.collect();
    responses.sort_unstable();
    let statuses: Vec<_> = responses.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [vec![408; 4], vec![429; 6]].concat());
    assert!(responses[9].1.contains("retry-after: 1\r\n"), "{}", responses[9].1);
    assert_eq!(posted(STALLED, &server, b"x"), Some(200));
    assert_eq!((refusals.refused(), refusals.timed_out()), (6, 4));
}

#[test]
fn connections_are_bounded_in_total() {
    let server = served(Limits { connections: 2, ..Limits::default() });
    let idle = |from| {
        let mut stream = connect(from, server.address());
        stream.write_all(format!("{}x", head(1)).as_bytes()).unwrap();
        assert_eq!(response(&mut stream).unwrap().0, 200);
        stream
    };
    let (first, _second) = (idle("127.0.0.3"), idle("127.0.0.4"));
    assert_eq!(posted(GOOD, &server, b"x"), None);
    drop(first);
    until("another peer has its place", || posted(GOOD, &server, b"x") == Some(200));
}

#[test]
fn requests_are_bounded_in_total() {
    let (server, refusals) = served_counting(Limits { requests: 1, ..Limits::default() });
    let mut pending = connect(STALLED, server.address());
    let head = head(1).replace("Host: x", "Host: x\r\nExpect: 100-continue");
    pending.write_all(head.as_bytes()).unwrap();
    // Its body is being read.
    assert_eq!(response(&mut pending).unwrap().0, 100);
    assert_eq!(posted(GOOD, &server, b"x"), Some(429));
    pending.write_all(b"x").unwrap();
    assert_eq!(response(&mut pending).unwrap().0, 200);
    assert_eq!(posted(GOOD, &server, b"x"), Some(200));
    assert_eq!((refusals.refused(), refusals.timed_out()), (1, 0));
}

#[test]
fn bodies_are_bounded() {
    let server = served(Limits { body_bytes: 1_000, ..Limits::default() });
    assert_eq!(posted(GOOD, &server, &[0; 1_000]), Some(200));
    assert_eq!(posted(GOOD, &server, &[0; 1_001]), Some(413));
    // Chunks have no length before they are read.
    let mut stream = connect(GOOD, server.address());
    let chunked = "POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(chunked.as_bytes()).unwrap();
    let chunk = format!("3e9\r\n{}\r\n0\r\n\r\n", "x".repeat(1_001));
    stream.write_all(chunk.as_bytes()).unwrap();
    assert_eq!(response(&mut stream).unwrap().0, 413);
}

#[test]
fn idle_connections_are_closed() {
    let server = served(Limits { idle: SOON, ..Limits::default() });
    let mut stream = connect(GOOD, server.address());
    stream.write_all(format!("{}x", head(1)).as_bytes()).unwrap();
    assert_eq!(response(&mut stream).unwrap().0, 200);
    assert!(closes(&mut stream));
}

#[test]
fn a_client_that_reads_no_response_loses_its_connection() {
    let limits = Limits { idle: SOON, connections_per_peer: 1, ..Limits::default() };
    let server = served(limits);
    let mut stream = connect(STALLED, server.address());
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(response(&mut stream).unwrap().0, 200);
    until("its place is free", || posted(STALLED, &server, b"x") == Some(200));
    let mut received = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        received += bytes;
    }
    assert!(received < LARGE, "{received} bytes");
}

#[test]
fn streams_of_http2_are_capped() {
    let server = served(Limits { requests_per_peer: 7, ..Limits::default() });
    let mut stream = connect(GOOD, server.address());
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "a frame of settings");
    let mut settings = vec![0; usize::from(frame[2])];
    stream.read_exact(&mut settings).unwrap();
    let streams = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).unwrap();
    assert_eq!(streams[2..], [0, 0, 0, 7]);
}

#[derive(Default)]
struct Counts {
    refused: AtomicUsize,
    timed_out: AtomicUsize,
}

impl Observer for Counts {
    fn refused(&self, _: SocketAddr) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn timed_out(&self, _: SocketAddr) {
        self.timed_out.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn refusals_are_reported() {
    let counts = Arc::new(Counts::default());
    let limits = Limits { connections: 1, unfinished: SOON, ..Limits::default() };
    let threads = Threads::start("test-http", 1, Peers::new(limits, Some(counts.clone()))).unwrap();
    let listener = threads.bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    threads.serve(listener, Router::new().route("/", get(async || "")));
    let mut first = TcpStream::connect(address).unwrap();
    let mut second = TcpStream::connect(address).unwrap();
    assert!(closes(&mut second) && closes(&mut first));
    until("both are reported", || {
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (count(&counts.refused), count(&counts.timed_out)) == (1, 1)
    });
}
