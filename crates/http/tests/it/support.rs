//! A plain client, whose address is one of this machine's own.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use helio_http::{Limits, Server, listen};

/// Only against hanging.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// A peer that behaves; the others are at [`STALLED`].
pub(crate) const GOOD: &str = "127.0.0.2";
pub(crate) const STALLED: &str = "127.0.0.1";
/// More than the buffers of sockets hold.
pub(crate) const LARGE: usize = 64 << 20;

/// A server that returns the length of a body, and a large response.
pub(crate) fn served(limits: Limits) -> Server {
    let routes = Router::new()
        .route("/length", post(async |body: Bytes| body.len().to_string()))
        .route("/large", get(async || vec![b'x'; LARGE]));
    listen("127.0.0.1:0", "test-http", limits).unwrap().serve(routes)
}

pub(crate) fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// The head of a request with so many bytes to follow.
pub(crate) fn head(bytes: usize) -> String {
    format!("POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n")
}

/// The status of a response, and its head; none if the connection was closed.
pub(crate) fn response(stream: &mut TcpStream) -> Option<(u16, String)> {
    let mut bytes = Vec::new();
    let mut one = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut one) {
            Ok(1) => bytes.push(one[0]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no response in time"),
            _ => return None,
        }
    }
    let text = String::from_utf8(bytes).unwrap();
    Some((text.split(' ').nth(1).unwrap().parse().unwrap(), text.to_lowercase()))
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

/// Whether the server has closed a connection; blocks until then.
pub(crate) fn closes(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}
