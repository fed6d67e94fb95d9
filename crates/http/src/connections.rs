//! Accepts connections, and bounds them by number and by time.
//!
//! Constraints. No peer, and no number of connections that send nothing, may keep others out: one
//! above a limit is closed at once, so that accepting never stops. A connection counts against its
//! peer until it ends.
//!
//! Operation. A connection without a request in flight has a deadline: [`Limits::unfinished`] from
//! its beginning to its first request, and from the first byte of each later one; [`Limits::idle`]
//! otherwise. Bodies have their own time limit, where they are read. Once the server ends, a
//! connection closes after its requests in flight; without any, at once.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::{Request, Version};
use axum::response::Response;
use axum::{BoxError, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::peers::{Limits, Peers, Place};

/// The interval of checks of a connection's deadline, at the longest.
const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The delay after a failed accept, usually for want of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The client of a request, an extension of each.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// Accepts connections until the server ends.
pub(crate) async fn accept(
    listener: TcpListener,
    routes: Router,
    peers: Arc<Peers>,
    mut ended: watch::Receiver<()>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.changed() => return,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            continue;
        };
        // One above the limits is closed here.
        let Some(place) = peers.connection(peer) else { continue };
        let connection = Connection {
            peer,
            activity: Arc::new(Mutex::new(Activity::new())),
            limits: *peers.limits(),
            _place: place,
        };
        let served = connection.serve(stream, routes.clone(), ended.clone());
        let peers = Arc::clone(&peers);
        tokio::spawn(async move {
            if served.await == Ended::TooSlow {
                peers.timed_out(peer);
            }
        });
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
    fn deadline(&self, limits: &Limits) -> Option<(Instant, Ended)> {
        match self.begun {
            _ if self.requests > 0 => None,
            Some(begun) => Some((begun + limits.unfinished, Ended::TooSlow)),
            None => Some((self.since + limits.idle, Ended::Idle)),
        }
    }

    /// Whether it is between a request's first byte and its head's end.
    fn is_unfinished(&self) -> bool {
        self.requests == 0 && self.begun.is_some()
    }
}

struct Connection {
    peer: SocketAddr,
    activity: Arc<Mutex<Activity>>,
    limits: Limits,
    _place: Place,
}

impl Connection {
    async fn serve(
        self,
        stream: TcpStream,
        routes: Router,
        mut ended: watch::Receiver<()>,
    ) -> Ended {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        let streams = u32::try_from(self.limits.requests_per_peer).unwrap_or(u32::MAX);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(streams);
        let stream = Watched { stream, activity: Arc::clone(&self.activity) };
        let requests = Requests { routes, peer: self.peer, activity: Arc::clone(&self.activity) };
        let service = TowerToHyperService::new(requests);
        let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut ends = false;
        loop {
            tokio::select! {
                _ = served.as_mut() => return Ended::Itself,
                why = self.deadline() => return why,
                _ = ended.changed(), if !ends => {
                    if locked(&self.activity).is_unfinished() {
                        return Ended::Itself;
                    }
                    ends = true;
                    served.as_mut().graceful_shutdown();
                }
            }
        }
    }

    /// Waits until the connection is to be closed.
    async fn deadline(&self) -> Ended {
        loop {
            let deadline = locked(&self.activity).deadline(&self.limits);
            let now = Instant::now();
            let next = now + DEADLINE_CHECK_INTERVAL.min(self.limits.unfinished);
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
    peer: SocketAddr,
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
        request.extensions_mut().insert(ConnectInfo(Peer(self.peer)));
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
