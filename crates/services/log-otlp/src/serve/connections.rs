//! Accepts connections, bounds them by number and by time, and bounds requests by sender.
//!
//! Constraints. No sender, and no number of connections that send nothing, may keep others out: one
//! above a limit is closed at once, so that accepting never stops. A connection counts against its
//! sender until it ends.
//!
//! Operation. A connection without a request in flight has a deadline: [`Limits::unfinished`] from
//! its beginning to its first request, and from the first byte of each later one; [`IDLE_TIMEOUT`]
//! otherwise. Bodies have their own time limit, where they are read.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::{Request, Version};
use axum::response::Response;
use axum::{BoxError, Router};
use bytes::Bytes;
use helio_bus::transport::locked;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Limits, Take};

/// The idle time after which a connection is closed: longer than collectors' intervals.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// The interval of checks of a connection's deadline, at the longest.
const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The delay after a failed accept, usually for want of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The sender of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender(pub(super) SocketAddr);

/// What each sender occupies at present, and the limits.
pub(super) struct Senders {
    limits: Limits,
    occupied: Mutex<Occupied>,
}

#[derive(Default)]
struct Occupied {
    connections: usize,
    by_sender: HashMap<IpAddr, Usage>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    connections: usize,
    requests: usize,
}

/// A connection or a request of a sender; dropping it ends it.
pub(super) struct Place {
    senders: Arc<Senders>,
    sender: IpAddr,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connection,
    Request,
}

impl Senders {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, occupied: Mutex::default() })
    }

    /// A place for a connection, unless there are too many.
    fn connection(self: &Arc<Self>, sender: SocketAddr) -> Option<Place> {
        self.place(sender, Kind::Connection, |limits, all, own| {
            all < limits.connections && own.connections < limits.connections_per_sender
        })
    }

    /// A place for a request whose body is to be read, unless the sender has too many.
    pub(super) fn request(self: &Arc<Self>, sender: SocketAddr) -> Option<Place> {
        let most = |limits: &Limits, _, own: Usage| own.requests < limits.requests_per_sender;
        self.place(sender, Kind::Request, most)
    }

    fn place(
        self: &Arc<Self>,
        sender: SocketAddr,
        kind: Kind,
        has_room: impl Fn(&Limits, usize, Usage) -> bool,
    ) -> Option<Place> {
        let sender = sender.ip().to_canonical();
        let mut occupied = locked(&self.occupied);
        let own = occupied.by_sender.get(&sender).copied().unwrap_or_default();
        if !has_room(&self.limits, occupied.connections, own) {
            return None;
        }
        occupied.add(sender, kind, 1);
        Some(Place { senders: Arc::clone(self), sender, kind })
    }
}

impl Occupied {
    fn add(&mut self, sender: IpAddr, kind: Kind, change: isize) {
        let usage = self.by_sender.entry(sender).or_default();
        let counts = match kind {
            Kind::Connection => [Some(&mut self.connections), Some(&mut usage.connections)],
            Kind::Request => [None, Some(&mut usage.requests)],
        };
        for count in counts.into_iter().flatten() {
            *count = count.saturating_add_signed(change);
        }
        if usage.connections + usage.requests == 0 {
            self.by_sender.remove(&sender);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.senders.occupied).add(self.sender, self.kind, -1);
    }
}

/// Accepts connections until the service ends.
pub(super) async fn accept(
    listener: TcpListener,
    routes: Router,
    senders: Arc<Senders>,
    take: Arc<dyn Take>,
    mut ended: watch::Receiver<()>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.changed() => return,
        };
        let Ok((stream, sender)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            continue;
        };
        match senders.connection(sender) {
            None => take.turned_away(sender),
            Some(place) => {
                let connection = Connection {
                    sender,
                    activity: Arc::new(Mutex::new(Activity::new())),
                    unfinished: senders.limits.unfinished,
                    _place: place,
                };
                let streams = senders.limits.requests_per_sender;
                let served = connection.serve(stream, routes.clone(), streams, ended.clone());
                let take = Arc::clone(&take);
                tokio::spawn(async move {
                    if served.await == Ended::TooSlow {
                        take.timed_out(sender);
                    }
                });
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Itself,
    Idle,
    TooSlow,
}

/// What a connection does, for its deadline.
struct Activity {
    requests: usize,
    /// The last time at which it began, or a request ended.
    since: Instant,
    /// The first byte after that. Frames of HTTP/2 come at all times and are not counted once there
    /// was a request.
    begun: Option<Instant>,
    is_http2: bool,
}

impl Activity {
    fn new() -> Self {
        let now = Instant::now();
        // A connection must bring its first request in time, even if it sends nothing.
        Self { requests: 0, since: now, begun: Some(now), is_http2: false }
    }

    /// When it is to be closed and why, if nothing happens.
    fn deadline(&self, unfinished: Duration) -> Option<(Instant, Ended)> {
        match self.begun {
            _ if self.requests > 0 => None,
            Some(begun) => Some((begun + unfinished, Ended::TooSlow)),
            None => Some((self.since + IDLE_TIMEOUT, Ended::Idle)),
        }
    }
}

struct Connection {
    sender: SocketAddr,
    activity: Arc<Mutex<Activity>>,
    unfinished: Duration,
    _place: Place,
}

impl Connection {
    async fn serve(
        self,
        stream: TcpStream,
        routes: Router,
        streams: usize,
        mut ended: watch::Receiver<()>,
    ) -> Ended {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(streams);
        let stream = Watched { stream, activity: Arc::clone(&self.activity) };
        let requests =
            Requests { routes, sender: self.sender, activity: Arc::clone(&self.activity) };
        let service = TowerToHyperService::new(requests);
        let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut ends = false;
        loop {
            tokio::select! {
                _ = served.as_mut() => return Ended::Itself,
                why = self.deadline() => return why,
                _ = ended.changed(), if !ends => {
                    ends = true;
                    served.as_mut().graceful_shutdown();
                }
            }
        }
    }

    /// Waits until the connection is to be closed.
    async fn deadline(&self) -> Ended {
        loop {
            let deadline = locked(&self.activity).deadline(self.unfinished);
            let now = Instant::now();
            let next = now + DEADLINE_CHECK_INTERVAL.min(self.unfinished);
            match deadline {
                Some((at, why)) if at <= now => return why,
                Some((at, _)) => tokio::time::sleep_until(at.min(next)).await,
                None => tokio::time::sleep_until(next).await,
            }
        }
    }
}

/// The requests of a connection.
#[derive(Clone)]
struct Requests {
    routes: Router,
    sender: SocketAddr,
    activity: Arc<Mutex<Activity>>,
}

/// A request in flight.
struct InFlight(Arc<Mutex<Activity>>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut activity = locked(&self.0);
        activity.requests -= 1;
        activity.since = Instant::now();
        activity.begun = None;
    }
}

impl<B> tower_service::Service<Request<B>> for Requests
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        {
            let mut activity = locked(&self.activity);
            activity.requests += 1;
            activity.is_http2 = request.version() == Version::HTTP_2;
        }
        let in_flight = InFlight(Arc::clone(&self.activity));
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(Sender(self.sender)));
        let answered = tower_service::Service::call(&mut self.routes, request);
        Box::pin(async move {
            let answered = answered.await;
            drop(in_flight);
            answered
        })
    }
}

/// A connection's stream, which notes when bytes arrive.
struct Watched {
    stream: TcpStream,
    activity: Arc<Mutex<Activity>>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            let mut activity = locked(&self.activity);
            if activity.requests == 0 && !activity.is_http2 {
                activity.begun.get_or_insert_with(Instant::now);
            }
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
