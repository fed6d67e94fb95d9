//! Responses that are streams: they outlive the limits of idle connections, and end with the
//! server.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use helio_http::{Limits, Options, Peers, Streams, Threads};

use crate::client::{GOOD, closes, connect};

/// When connections of HTTP/1 are closed.
const SOON: Duration = Duration::from_millis(300);
/// The preface of HTTP/2, and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The type of a ping's frame, and its flag of an answer.
const PING: u8 = 6;
const ACK: u8 = 1;

/// The next frame: its type, its flags and its payload.
fn frame(stream: &mut std::net::TcpStream) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).ok()?;
    Some((head[3], head[4], payload))
}

#[test]
fn a_client_of_http2_stays_while_it_answers_pings_and_goes_when_it_does_not() {
    let limits = Limits { unfinished: SOON, idle: SOON, ..Limits::default() };
    let threads = Threads::start("test-http", 1, Peers::new(limits, None)).unwrap();
    let listener = threads.bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let streams = Streams {
        stream_window_bytes: 1 << 16,
        connection_window_bytes: 1 << 16,
        ping_interval: SOON / 3,
        ping_timeout: SOON * 10,
    };
    let routes = Router::new().route("/", get(async || "here"));
    threads.serve_with(listener, routes, Options { streams: Some(streams), handshake: None });
    let mut silent = connect(GOOD, address);
    let mut alive = connect(GOOD, address);
    alive.write_all(PREFACE).unwrap();
    assert!(closes(&mut silent), "a connection that sends nothing");
    let begun = Instant::now();
    let mut pings = 0;
    // Longer than a connection of HTTP/1 may be idle.
    while pings < 5 || begun.elapsed() < SOON * 2 {
        let (kind, flags, payload) = frame(&mut alive).expect("open");
        if kind == PING && flags & ACK == 0 {
            alive.write_all(&[&[0, 0, 8, PING, ACK, 0, 0, 0, 0], &payload[..]].concat()).unwrap();
            pings += 1;
        }
    }
    // No more answers.
    assert!(closes(&mut alive));
    let mut last = connect(GOOD, address);
    last.write_all(PREFACE).unwrap();
    assert!(frame(&mut last).is_some());
    drop(threads);
    assert!(closes(&mut last));
}
