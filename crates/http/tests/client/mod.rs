//! A plain HTTP client for tests, whose address is one of this machine's own. Other packages' tests
//! include it by its path.
#![allow(dead_code, reason = "each binary of tests uses a part of it")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Only against hanging.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// A peer that behaves; the others are at [`STALLED`].
pub(crate) const GOOD: &str = "127.0.0.2";
pub(crate) const STALLED: &str = "127.0.0.1";

/// A connection from one of this machine's own addresses.
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

/// Whether the server has closed a connection; blocks until then.
pub(crate) fn closes(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// The status and the body of a response to a whole request without a body.
pub(crate) fn get(to: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = connect(GOOD, to);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let (status, _) = response(&mut stream).unwrap();
    let mut body = String::new();
    stream.read_to_string(&mut body).unwrap();
    (status, body)
}
