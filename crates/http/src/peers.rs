//! The limits, and what each client occupies of them at present.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The limits of clients. A *peer* is a client's IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections of all peers. Each takes some kilobytes.
    pub connections: usize,
    /// The most connections of one peer.
    pub connections_per_peer: usize,
    /// The most concurrent requests of all peers, from the head of a request to its response.
    pub requests: usize,
    /// The most concurrent requests of one peer, and the most streams of a connection of HTTP/2.
    pub requests_per_peer: usize,
    /// The timeout of a request's head, and then of its body.
    pub unfinished: Duration,
    /// The time without a request after which a connection is closed.
    pub idle: Duration,
    /// The most bytes of a request's body.
    pub body_bytes: usize,
}

impl Default for Limits {
    /// 1,024 connections, 256 a peer; 64 requests, 32 a peer; 30 s for a head or a body; idle for
    /// 2 minutes, longer than metrics are scraped; bodies of 64 KiB.
    fn default() -> Self {
        Self {
            connections: 1_024,
            connections_per_peer: 256,
            requests: 64,
            requests_per_peer: 32,
            unfinished: Duration::from_secs(30),
            idle: Duration::from_secs(120),
            body_bytes: 64 << 10,
        }
    }
}

/// Is notified of what the limits refuse.
pub trait Observer: Send + Sync + 'static {
    /// Called for a connection or a request that was refused because there are too many, in total
    /// or of this peer.
    fn refused(&self, peer: SocketAddr);

    /// Called for a connection or a request that was closed because its head or body was late.
    fn timed_out(&self, peer: SocketAddr);
}

/// How often the limits refused something since the start.
#[derive(Debug, Default)]
pub struct Refusals {
    refused: AtomicU64,
    timed_out: AtomicU64,
}

impl Refusals {
    /// Connections and requests that were refused because there were too many.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Connections and requests that were closed because a head or body was late.
    #[must_use]
    pub fn timed_out(&self) -> u64 {
        self.timed_out.load(Ordering::Relaxed)
    }
}

impl Observer for Refusals {
    fn refused(&self, _: SocketAddr) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn timed_out(&self, _: SocketAddr) {
        self.timed_out.fetch_add(1, Ordering::Relaxed);
    }
}

/// What each peer occupies at present, and the limits.
pub struct Peers {
    limits: Limits,
    observer: Option<Arc<dyn Observer>>,
    occupied: Mutex<Usage>,
    /// Signalled when the last connection closes.
    closed: Condvar,
}

#[derive(Default)]
struct Usage {
    all: Counts,
    by_peer: HashMap<IpAddr, Counts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    connections: usize,
    requests: usize,
}

/// A connection or a request of a peer; dropping it ends it.
pub struct Place {
    peers: Arc<Peers>,
    peer: IpAddr,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connection,
    Request,
}

impl Peers {
    /// No peers yet.
    #[must_use]
    pub fn new(limits: Limits, observer: Option<Arc<dyn Observer>>) -> Arc<Self> {
        let (occupied, closed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { limits, observer, occupied, closed })
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A place for a request whose body is to be read; none if there are too many, in total or of
    /// this peer.
    pub fn request(self: &Arc<Self>, peer: SocketAddr) -> Option<Place> {
        self.place(peer, Kind::Request)
    }

    pub(crate) fn connection(self: &Arc<Self>, peer: SocketAddr) -> Option<Place> {
        self.place(peer, Kind::Connection)
    }

    /// Reports a request that was closed because its body was late.
    pub fn timed_out(&self, peer: SocketAddr) {
        if let Some(observer) = &self.observer {
            observer.timed_out(peer);
        }
    }

    fn place(self: &Arc<Self>, peer: SocketAddr, kind: Kind) -> Option<Place> {
        let ip = peer.ip().to_canonical();
        let mut usage = self.locked();
        let own = usage.by_peer.get(&ip).copied().unwrap_or_default();
        let Limits { connections, connections_per_peer, requests, requests_per_peer, .. } =
            self.limits;
        let has_room = match kind {
            Kind::Connection => {
                usage.all.connections < connections && own.connections < connections_per_peer
            }
            Kind::Request => usage.all.requests < requests && own.requests < requests_per_peer,
        };
        if has_room {
            usage.add(ip, kind, 1);
            return Some(Place { peers: Arc::clone(self), peer: ip, kind });
        }
        drop(usage);
        if let Some(observer) = &self.observer {
            observer.refused(peer);
        }
        None
    }

    /// Waits until no connection is open.
    pub(crate) fn wait_until_closed(&self, deadline: Instant) {
        let mut usage = self.locked();
        while usage.all.connections > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.closed.wait_timeout(usage, left);
            usage = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn locked(&self) -> MutexGuard<'_, Usage> {
        self.occupied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Usage {
    fn add(&mut self, peer: IpAddr, kind: Kind, change: isize) {
        let own = self.by_peer.entry(peer).or_default();
        for counts in [&mut self.all, &mut *own] {
            let count = match kind {
                Kind::Connection => &mut counts.connections,
                Kind::Request => &mut counts.requests,
            };
            *count = count.saturating_add_signed(change);
        }
        if own.connections + own.requests == 0 {
            self.by_peer.remove(&peer);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut usage = self.peers.locked();
        usage.add(self.peer, self.kind, -1);
        if usage.all.connections == 0 {
            self.peers.closed.notify_all();
        }
    }
}
