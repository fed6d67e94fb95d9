//! Clients that send half of a request, or nothing.

use std::io::Write as _;

use crate::client::{GOOD, STALLED, closes, connect, get};
use crate::support::serve;

#[test]
fn unfinished_requests_end_in_time_and_keep_nobody_out() {
    let server = serve(None);
    let starts: [&[u8]; 3] = [
        b"",
        b"GET /hea",
        b"POST /etcdserverpb.KV/Range HTTP/1.1\r\nHost: x\r\n\
        Content-Type: application/grpc\r\nContent-Length: 100\r\n\r\n\0\0\0\0\x50half",
    ];
    let mut streams = starts.map(|start| {
        let mut stream = connect(STALLED, server.address());
        stream.write_all(start).unwrap();
        stream
    });
    assert_eq!(get(server.address(), "/livez").0, 200);
    // Each is closed, or answered and closed.
    assert!(streams.iter_mut().all(closes));
    assert_eq!(get(server.address(), "/livez").0, 200);
    let mut idle = connect(GOOD, server.address());
    drop(server);
    assert!(closes(&mut idle));
}
