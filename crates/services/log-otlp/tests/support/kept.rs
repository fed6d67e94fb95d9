//! A service that keeps what it takes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use helio_log_otlp::{Limits, Listen, Serving, Take, Taken, Taking, serve};
use helio_logging::Record;

/// Keeps what it takes, and answers as it is told.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) records: Mutex<Vec<Record>>,
    pub(crate) refused: Mutex<Vec<(u64, String)>>,
    pub(crate) answers: Mutex<Vec<Taken>>,
    pub(crate) turned_away: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    /// Records are never stored.
    pub(crate) is_stuck: bool,
}

impl Take for Kept {
    fn take(&self, sender: SocketAddr, records: Vec<Record>) -> Taking {
        if self.is_stuck {
            return Box::pin(std::future::pending());
        }
        assert!(sender.ip().is_loopback());
        let answer = self.answers.lock().unwrap().pop().unwrap_or(Taken::All);
        if answer == Taken::All {
            self.records.lock().unwrap().extend(records);
        }
        Box::pin(std::future::ready(answer))
    }

    fn turned_away(&self, _: SocketAddr) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }

    fn timed_out(&self, _: SocketAddr) {
        self.timed_out.fetch_add(1, Ordering::Relaxed);
    }

    fn refused(&self, _: SocketAddr, records: u64, reason: &str) {
        self.refused.lock().unwrap().push((records, reason.to_owned()));
    }
}

/// A service, and its two URLs.
pub(crate) fn served() -> (Arc<Kept>, Serving, String, String) {
    let kept = Arc::new(Kept::default());
    let (serving, grpc, http) = serving(&kept, &Limits::default());
    (kept, serving, grpc, http)
}

/// A service that passes records to `kept`, and its two URLs.
pub(crate) fn serving(kept: &Arc<Kept>, limits: &Limits) -> (Serving, String, String) {
    let any = || Some("127.0.0.1:0".to_owned());
    let take: Arc<dyn Take> = Arc::clone(kept) as _;
    let serving = serve(&Listen { grpc: any(), http: any() }, limits, take).unwrap();
    let grpc = format!("http://{}", serving.grpc().unwrap());
    let http = format!("http://{}", serving.http().unwrap());
    (serving, grpc, http)
}
