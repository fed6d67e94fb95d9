//! Endpoints, and the state that all edges share: addresses, the number of connections, closing.

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

/// The idle time after which a closing edge has read all earlier data.
pub(crate) const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_millis(100);
/// The longest time that a closing edge reads.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The transport of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// UDP at an address such as `0.0.0.0:514`.
    Udp(String),
    /// TCP at an address.
    Tcp(String),
    /// Connections of a unix socket.
    Unix(PathBuf),
    /// Datagrams of a unix socket, like `/dev/log`.
    UnixDatagram(PathBuf),
    /// Standard input.
    Input,
}

impl Via {
    /// The kind, as one word.
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

    /// The address, the path, or `-`.
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

/// An endpoint: a transport and a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The format.
    pub format: Format,
    /// The transport.
    pub via: Via,
}

/// An open endpoint. Its address has the actual port if 0 was requested.
pub type Listening = Endpoint;

/// The server's state for an edge. The server's end waits until all clones are dropped.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) ingest: Ingest,
    pub(crate) closing: watch::Receiver<bool>,
    /// The seconds that senders' clocks are ahead of UTC, for messages without a zone.
    pub(crate) offset_s: i32,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) most_connections: usize,
    pub(crate) alive: mpsc::Sender<()>,
    /// Held by the one task that polls for room; the others queue for it.
    pub(crate) gate: Arc<Mutex<()>>,
}

impl Edge {
    /// Waits until the server ends.
    pub(crate) async fn closing(&self) {
        let mut closing = self.closing.clone();
        // A dropped server has ended, too.
        _ = closing.wait_for(|closing| *closing).await;
    }

    /// Whether the server is closing.
    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow() || self.closing.has_changed().is_err()
    }

    /// Blocks a sender that is faster than the bus.
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

    /// The circumstances of a message that arrives now.
    pub(crate) fn arrival(&self) -> Arrival {
        Arrival { now: self.ingest.now(), offset_s: self.offset_s }
    }

    /// Admits a connection. Above the limit it returns none and counts a refusal.
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

/// An admitted connection; dropping it ends it.
pub(crate) struct Admitted {
    pub(crate) sender: Sender,
    connections: Arc<AtomicUsize>,
}

impl Admitted {
    /// Counts a timeout of the connection.
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
