//! A service that keeps what it takes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use helio_log_otlp::{Listen, Serving, Take, Taken, serve};
use helio_logging::Record;

/// Keeps what it takes, and answers as it is told.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) records: Mutex<Vec<Record>>,
    pub(crate) refused: Mutex<Vec<(u64, String)>>,
    pub(crate) answers: Mutex<Vec<Taken>>,
}

impl Take for Kept {
    fn take(&self, sender: SocketAddr, records: Vec<Record>, _: Instant) -> Taken {
        assert!(sender.ip().is_loopback());
        let answer = self.answers.lock().unwrap().pop().unwrap_or(Taken::All);
        if answer == Taken::All {
            self.records.lock().unwrap().extend(records);
        }
        answer
    }

    fn refused(&self, _: SocketAddr, records: u64, reason: &str) {
        self.refused.lock().unwrap().push((records, reason.to_owned()));
    }
}

/// A service, and its two URLs.
pub(crate) fn served() -> (Arc<Kept>, Serving, String, String) {
    let kept = Arc::new(Kept::default());
    let any = || Some("127.0.0.1:0".to_owned());
    let take: Arc<dyn Take> = Arc::clone(&kept) as _;
    let serving = serve(&Listen { grpc: any(), http: any() }, take).unwrap();
    let grpc = format!("http://{}", serving.grpc().unwrap());
    let http = format!("http://{}", serving.http().unwrap());
    (kept, serving, grpc, http)
}
