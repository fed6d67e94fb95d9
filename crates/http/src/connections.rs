//! Accepts connections, and bounds them by number and by time.
//!
//! Constraints. No peer, and no number of connections that send nothing, may keep others out: one
//! above a limit is closed at once, so that accepting never stops. A connection counts against its
//! peer until it ends.
//!
//! Operation. A connection without a request in flight has a deadline: [`Limits::unfinished`] from
//! its beginning to its first request, and from the first byte of each later one; [`Limits::idle`]
//! otherwise. With [`Streams`], connections of HTTP/2 answer pings instead. Bodies have their own
//! time limit, where they are read. Once the server ends, a connection closes after its requests in
//! flight; without any, at once.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::{Request, Version};
use axum::response::Response;
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

/// The first bytes of HTTP/2, which no method of HTTP/1 has.
const HTTP2_PREFACE: &[u8] = b"PRI";

/// The client of a request, an extension of each.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// What answers the requests of a connection, such as axum's router.
pub trait Answering:
    tower_service::Service<
        Request<Body>,
        Response = Response,
        Error = Infallible,
        Future: Future<Output = Result<Response, Infallible>> + Send,
    > + Clone
    + Send
    + 'static
{
}

impl<S> Answering for S where
    S: tower_service::Service<
            Request<Body>,
            Response = Response,
            Error = Infallible,
            Future: Future<Output = Result<Response, Infallible>> + Send,
        > + Clone
        + Send
        + 'static
{
}

/// A connection after its handshake.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The handshake of a connection: its stream, or none if the client is not admitted.
pub type Shaken = Pin<Box<dyn Future<Output = Option<Box<dyn Stream>>> + Send>>;

/// Encrypts connections. The handshake has [`Limits::unfinished`] as its timeout.
pub trait Handshake: Send + Sync + 'static {
    /// Accepts a client.
    fn accept(self: Arc<Self>, stream: TcpStream) -> Shaken;
}

/// HTTP/2 for responses that are streams without an end. A connection lives, however idle, while
/// its client answers pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// Bytes that a client may send before the server has read them, a stream.
    pub stream_window_bytes: u32,
    /// The same, a connection.
    pub connection_window_bytes: u32,
    /// The interval of pings.
    pub ping_interval: Duration,
    /// The time that a client has to answer a ping.
    pub ping_timeout: Duration,
}

/// How connections are served, beside their limits.
#[derive(Clone, Default)]
pub struct Options {
    /// Encryption; none by default.
    pub handshake: Option<Arc<dyn Handshake>>,
    /// Responses that are streams; none by default.
    pub streams: Option<Streams>,
}

/// Accepts connections until the server ends.
pub(crate) async fn accept(
    listener: TcpListener,
    service: impl Answering,
    options: Options,
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
        // Only delays, if it fails.
        drop(stream.set_nodelay(true));
        let connection = Connection {
            peer,
            activity: Arc::new(Mutex::new(Activity::new(options.streams.is_some()))),
            limits: *peers.limits(),
            options: options.clone(),
            _place: place,
        };
        let served = connection.begin(stream, service.clone(), ended.clone());
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
    /// Whether clients of HTTP/2 are pinged.
    pings: bool,
}

impl Activity {
    fn new(pings: bool) -> Self {
        let now = Instant::now();
        // A connection must bring its first request in time, even if it sends nothing.
        Self { requests: 0, since: now, begun: Some(now), is_http2: false, pings }
    }

    /// When it is to be closed and why, if nothing happens.
    fn deadline(&self, limits: &Limits) -> Option<(Instant, Ended)> {
        match self.begun {
            _ if self.requests > 0 || self.is_http2 && self.pings => None,
            Some(begun) => Some((begun + limits.unfinished, Ended::TooSlow)),
            None => Some((self.since + limits.idle, Ended::Idle)),
        }
    }

    /// Whether it is between a request's first byte and its head's end.
    fn is_unfinished(&self) -> bool {
        self.requests == 0 && self.begun.is_some()
    }

    /// Notes bytes that have arrived.
    fn received(&mut self, bytes: &[u8]) {
        if self.requests > 0 || self.is_http2 {
            return;
        }
        if self.pings && bytes.starts_with(HTTP2_PREFACE) {
            (self.is_http2, self.begun) = (true, None);
        } else {
            self.begun.get_or_insert_with(Instant::now);
        }
    }
}

struct Connection {
    peer: SocketAddr,
    activity: Arc<Mutex<Activity>>,
    limits: Limits,
    options: Options,
    _place: Place,
}

impl Connection {
    async fn begin(
        self,
        stream: TcpStream,
        service: impl Answering,
        mut ended: watch::Receiver<()>,
    ) -> Ended {
        let Some(handshake) = &self.options.handshake else {
            return self.serve(stream, service, ended).await;
        };
        let shaken = Arc::clone(handshake).accept(stream);
        let shaken = tokio::time::timeout(self.limits.unfinished, shaken);
        let shaken = tokio::select! {
            shaken = shaken => shaken,
            _ = ended.changed() => return Ended::Itself,
        };
        match shaken {
            Err(_) => Ended::TooSlow,
            Ok(None) => Ended::Itself,
            Ok(Some(stream)) => self.serve(stream, service, ended).await,
        }
    }

    fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
        let most = u32::try_from(self.limits.requests_per_peer).unwrap_or(u32::MAX);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(most);
        if let Some(streams) = self.options.streams {
            builder
                .http2()
                .initial_stream_window_size(streams.stream_window_bytes)
                .initial_connection_window_size(streams.connection_window_bytes)
                .keep_alive_interval(streams.ping_interval)
                .keep_alive_timeout(streams.ping_timeout);
        }
        builder
    }

    async fn serve(
        self,
        stream: impl Stream + 'static,
        service: impl Answering,
        mut ended: watch::Receiver<()>,
    ) -> Ended {
        let builder = self.builder();
        let stream = Watched { stream, activity: Arc::clone(&self.activity) };
        let requests = Requests { service, peer: self.peer, activity: Arc::clone(&self.activity) };
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
struct Requests<S> {
    service: S,
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

impl<S, B> tower_service::Service<Request<B>> for Requests<S>
where
    S: Answering,
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
        let answered = tower_service::Service::call(&mut self.service, request);
        Box::pin(async move {
            let answered = answered.await;
            drop(in_flight);
            answered
        })
    }
}

/// A connection's stream, which notes when bytes arrive.
struct Watched<S> {
    stream: S,
    activity: Arc<Mutex<Activity>>,
}

impl<S: Stream> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            locked(&self.activity).received(&into.filled()[before..]);
        }
        read
    }
}

impl<S: Stream> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
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
