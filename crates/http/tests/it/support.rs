//! A server for tests, and requests to it.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use helio_http::{Limits, Refusals, Server, listen};

pub(crate) use crate::client::{GOOD, STALLED, TIMEOUT, closes, connect, response};
/// More than the buffers of sockets hold.
pub(crate) const LARGE: usize = 64 << 20;

/// A server that returns the length of a body, and a large response.
pub(crate) fn served(limits: Limits) -> Server {
    served_counting(limits).0
}

/// The same, with what its limits refuse.
pub(crate) fn served_counting(limits: Limits) -> (Server, Arc<Refusals>) {
    let routes = Router::new()
        .route("/length", post(async |body: Bytes| body.len().to_string()))
        .route("/large", get(async || vec![b'x'; LARGE]));
    let listening = listen("127.0.0.1:0", "test-http", limits).unwrap();
    let refusals = listening.refusals();
    (listening.serve(routes), refusals)
}

/// The head of a request with so many bytes to follow.
pub(crate) fn head(bytes: usize) -> String {
    format!("POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n")
}

/// The status of a whole request with a body.
pub(crate) fn posted(from: &str, server: &Server, body: &[u8]) -> Option<u16> {
    let mut stream = connect(from, server.address());
    stream.write_all(head(body.len()).as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    response(&mut stream).map(|(status, _)| status)
}

/// Repeats until it succeeds.
pub(crate) fn until(name: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "not in time: {name}");
        std::thread::yield_now();
    }
}
