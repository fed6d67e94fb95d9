//! What happens to connections when a server ends.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, mpsc};

use axum::Router;
use axum::routing::get;
use helio_http::{Limits, listen};
use tokio::sync::Notify;

use crate::support::{GOOD, closes, connect, head, response, until};

#[test]
fn a_pending_request_is_answered_and_unfinished_ones_are_closed() {
    let (started, starts) = mpsc::channel();
    let release = Arc::new(Notify::new());
    let wait = {
        let release = Arc::clone(&release);
        move || {
            let (started, release) = (started.clone(), Arc::clone(&release));
            async move {
                started.send(()).unwrap();
                release.notified().await;
                "released"
            }
        }
    };
    let routes = Router::new().route("/wait", get(wait));
    let server = listen("127.0.0.1:0", "test-http", Limits::default()).unwrap().serve(routes);
    let address = server.address();
    let mut pending = connect(GOOD, address);
    pending.write_all(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    starts.recv().unwrap();
    let mut idle = connect(GOOD, address);
    idle.write_all(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(response(&mut idle).unwrap().0, 404);
    let mut unfinished = connect(GOOD, address);
    unfinished.write_all(&head(1).as_bytes()[..10]).unwrap();
    let mut silent = connect(GOOD, address);
    let ending = std::thread::spawn(move || drop(server));
    assert!(closes(&mut idle) && closes(&mut unfinished) && closes(&mut silent));
    until("no more connections are accepted", || TcpStream::connect(address).is_err());
    release.notify_one();
    let (status, head) = response(&mut pending).unwrap();
    assert_eq!((status, head.contains("content-length: 8\r\n")), (200, true), "{head}");
    ending.join().unwrap();
}
