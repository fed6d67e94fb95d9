//! What all edges have: where they listen, how many may connect, and when it is over.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_logging::formats::syslog::Arrival;
use tokio::sync::{Mutex, mpsc, watch};

use crate::decode::Format;
use crate::ingest::Ingest;
use crate::sender::{Peer, Sender};

/// How long an edge waits, at the end, for more of what was sent before.
pub(crate) const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long it does that at most.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// By what records come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// UDP at an address such as `0.0.0.0:514`.
    Udp(String),
    /// TCP at an address.
    Tcp(String),
    /// Connections of a unix socket.
    Unix(PathBuf),
    /// Datagrams of a unix socket, as `/dev/log` is one.
    UnixDatagram(PathBuf),
    /// Standard input.
    Input,
}

impl Via {
    /// By what, in a word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Udp(_) => "udp",
            Self::Tcp(_) => "tcp",
            Self::Unix(_) => "unix",
            Self::UnixDatagram(_) => "unix-datagram",
            Self::Input => "input",
        }
    }

    /// Where: an address, a path, or `-`.
    #[must_use]
    pub fn address(&self) -> String {
        match self {
            Self::Udp(address) | Self::Tcp(address) => address.clone(),
            Self::Unix(path) | Self::UnixDatagram(path) => path.display().to_string(),
            Self::Input => "-".to_owned(),
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.address())
    }
}

/// Where records come from, and in what format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The format.
    pub format: Format,
    /// By what.
    pub via: Via,
}

/// An endpoint that is open: its address has the port that the system has chosen, where 0 was
/// asked for.
pub type Listening = Endpoint;

/// What an edge has of its server. As long as a clone of it is there, the server's end waits.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) ingest: Ingest,
    pub(crate) closing: watch::Receiver<bool>,
    /// Seconds that senders' clocks are ahead of UTC where they do not say so.
    pub(crate) offset_s: i32,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) most_connections: usize,
    pub(crate) alive: mpsc::Sender<()>,
    /// Who looks for room: the others wait behind it.
    pub(crate) gate: Arc<Mutex<()>>,
}

impl Edge {
    /// Waits until the server ends.
    pub(crate) async fn closing(&self) {
        let mut closing = self.closing.clone();
        // A server that is gone has ended, too.
        _ = closing.wait_for(|closing| *closing).await;
    }

    /// Whether the server ends.
    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow() || self.closing.has_changed().is_err()
    }

    /// Holds up one who sends faster than the bus takes.
    pub(crate) async fn room(&self) {
        let since = Instant::now();
        if !self.ingest.holds(since) {
            return;
        }
        let _turn = self.gate.lock().await;
        while self.ingest.holds(since) {
            tokio::time::sleep(Ingest::ROOM_POLL_INTERVAL).await;
        }
    }

    /// What arrives now.
    pub(crate) fn arrival(&self) -> Arrival {
        Arrival { now: self.ingest.now(), offset_s: self.offset_s }
    }

    /// Takes a connection in; none where there are too many, which is counted.
    pub(crate) fn admit(&self, peer: Peer) -> Option<Admitted> {
        let sender = self.ingest.sender(peer);
        let all = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let admitted = Admitted { sender, connections: Arc::clone(&self.connections) };
        let mut state = locked(&admitted.sender.entry.state);
        state.connections += 1;
        let most = self.ingest.limits().connections_per_sender;
        let taken = all <= self.most_connections && state.connections <= most;
        state.tally.refused += u64::from(!taken);
        drop(state);
        taken.then_some(admitted)
    }
}

/// A connection that was taken in, until it is dropped.
pub(crate) struct Admitted {
    pub(crate) sender: Sender,
    connections: Arc<AtomicUsize>,
}

impl Admitted {
    /// Counts that it is closed, as it was too slow.
    pub(crate) fn timed_out(&self) {
        locked(&self.sender.entry.state).tally.timed_out += 1;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        locked(&self.sender.entry.state).connections -= 1;
    }
}
