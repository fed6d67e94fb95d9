//! `log serve` killed under load: what was answered with 200 is stored.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Site, line_of};

const ROUNDS: u64 = 30;
const SENDERS: usize = 8;
const RECORDS: u64 = 50;

/// A request with so many numbered records.
fn request(first: u64) -> String {
    let mut records = String::new();
    for number in first..first + RECORDS {
        let comma = if number > first { "," } else { "" };
        write!(records, r#"{comma}{{"severityNumber":9,"body":{{"stringValue":"{number}"}}}}"#)
            .unwrap();
    }
    let body = format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{records}]}}]}}]}}"#);
    format!(
        "POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Whether a request was answered with 200; none if the service is gone.
fn post(stream: &mut TcpStream, first: u64) -> Option<bool> {
    stream.write_all(request(first).as_bytes()).ok()?;
    let mut answer = [0; 4_096];
    match stream.read(&mut answer) {
        Ok(length @ 12..) => Some(answer[..length].starts_with(b"HTTP/1.1 200")),
        _ => None,
    }
}

#[test]
fn what_was_answered_is_stored_whenever_the_service_is_killed() {
    let site = Site::new();
    let (next, answered) = (AtomicU64::new(0), Mutex::new(BTreeSet::new()));
    for round in 0..ROUNDS {
        let mut child = site.start(&["log", "serve", "--otlp-http", "127.0.0.1:0", "--json"]);
        let begun: serde_json::Value = serde_json::from_str(&line_of(&mut child)).unwrap();
        let address = begun["listening"][0]["address"].as_str().unwrap().to_owned();
        std::thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| {
                    let Ok(mut stream) = TcpStream::connect(&address) else { return };
                    loop {
                        let first = next.fetch_add(RECORDS, Ordering::Relaxed);
                        match post(&mut stream, first) {
                            Some(true) => answered.lock().unwrap().extend(first..first + RECORDS),
                            Some(false) => {}
                            None => return,
                        }
                    }
                });
            }
            // At any point of the service's life, also as it begins.
            std::thread::sleep(Duration::from_millis(20 + 37 * (round % 11)));
            child.kill().unwrap();
            child.wait().unwrap();
        });
    }
    let tail = site.run(&["log", "tail", "--no-follow", "--json", "--from", "earliest"]);
    let message = |record: &serde_json::Value| record["message"].as_str()?.parse::<u64>().ok();
    let stored: BTreeSet<_> = tail.lines().iter().filter_map(message).collect();
    let answered = answered.into_inner().unwrap();
    assert!(answered.len() > 5_000, "{} answered", answered.len());
    let lost = answered.difference(&stored).count();
    assert_eq!(lost, 0, "of {} answered with 200", answered.len());
}
