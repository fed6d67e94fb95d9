//! One port for gRPC and HTTP, with or without TLS.
//!
//! Constraints. Clients that send nothing keep nobody out: a handshake and the headers of a request
//! have a deadline, and connections are bounded. Clients that vanished are noticed by pings.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::{BoxError, Router};
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::error::{not_served, status};
use crate::proto::etcdserverpb::auth_server::AuthServer;
use crate::proto::etcdserverpb::cluster_server::ClusterServer;
use crate::proto::etcdserverpb::kv_server::KvServer;
use crate::proto::etcdserverpb::lease_server::LeaseServer;
use crate::proto::etcdserverpb::maintenance_server::MaintenanceServer;
use crate::proto::etcdserverpb::watch_server::WatchServer;
use crate::service::Member;
use crate::store::Store;
use crate::tls::{Tls, TlsError, TlsFiles};
use crate::{Description, MAX_REQUEST_BYTES, http};
use helio_state::Error;

/// The most connections at one time.
const MAX_CONNECTIONS: usize = 10_000;
/// The most requests and streams of a connection at one time.
const MAX_STREAMS: u32 = 100_000;
/// Bytes that a client may send before the server has read them, a stream and a connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// What gRPC adds to a request at the most, as etcd counts it.
const GRPC_OVERHEAD_BYTES: usize = 512 << 10;
/// The most time for a TLS handshake, and for the headers of a request over HTTP/1.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of pings to clients, and the time that they have to answer.
const PING_INTERVAL: Duration = Duration::from_secs(60);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The delay after a failed accept, usually for want of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The time that pending requests get when the server ends; watches never end by themselves.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The services whose unknown methods are named as such.
const SERVED: [&str; 5] = [
    KvServer::<Member>::NAME,
    WatchServer::<Member>::NAME,
    LeaseServer::<Member>::NAME,
    MaintenanceServer::<Member>::NAME,
    ClusterServer::<Member>::NAME,
];

/// Why a service cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The system refuses the address.
    #[error("cannot listen at {address}: {source}")]
    Address {
        /// The address.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// An address that is held, before the store is ready.
pub struct Listening {
    address: SocketAddr,
    listener: TcpListener,
    runtime: tokio::runtime::Runtime,
    tls: Option<Arc<Tls>>,
}

/// A service that answers until it is dropped.
pub struct Server {
    address: SocketAddr,
    end: watch::Sender<()>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// Holds an address such as `127.0.0.1:2379`, with TLS if files are given.
///
/// # Errors
/// If the system refuses the address, or the files cannot be used.
pub fn listen(address: &str, tls: Option<TlsFiles>) -> Result<Listening, ListenError> {
    let tls = tls.map(Tls::new).transpose()?.map(Arc::new);
    let refused = |source| ListenError::Address { address: address.to_owned(), source };
    // One thread: two cost half as much again for each request, at the same speed.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("state-api")
        .enable_all()
        .build()
        .map_err(refused)?;
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok(Listening { address, listener, runtime, tls })
}

impl Listening {
    /// The address; with its port, if the system chose one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves a store.
    #[must_use]
    pub fn serve(self, store: Arc<dyn Store>, description: Description) -> Server {
        let Self { address, listener, runtime, tls } = self;
        let member = Member { store, description: Arc::new(description) };
        let requests = Requests { routes: routes(&member), member };
        let (end, ended) = watch::channel(());
        runtime.spawn(accept(listener, tls, requests, ended));
        Server { address, end, runtime: Some(runtime) }
    }
}

impl Server {
    /// The address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    /// Accepts no more requests; pending ones get a second.
    fn drop(&mut self) {
        self.end.send_replace(());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_TIMEOUT);
        }
    }
}

fn routes(member: &Member) -> Router {
    // Requests beyond it are answered with etcd's error by `mend`.
    const MOST: usize = MAX_REQUEST_BYTES + GRPC_OVERHEAD_BYTES;
    macro_rules! grpc {
        ($router:expr, $($server:ident),+) => {
            $router$(.route_service(
                &format!("/{}/{{*method}}", $server::<Member>::NAME),
                $server::new(member.clone()).max_decoding_message_size(MOST),
            ))+
        };
    }
    let routes = grpc!(
        http::routes(member.clone()),
        KvServer,
        WatchServer,
        LeaseServer,
        MaintenanceServer,
        ClusterServer,
        AuthServer
    );
    routes.fallback(|uri: Uri, headers: HeaderMap| async move { unknown(uri.path(), &headers) })
}

fn unknown(path: &str, headers: &HeaderMap) -> Response {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    }
    unserved(path).into_http()
}

/// The answer to a service or a method that is not served.
fn unserved(path: &str) -> Status {
    let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
    let why = match service {
        "v3lockpb.Lock" => "locks are made of keys and leases, as `etcdctl lock` does",
        "v3electionpb.Election" => "elections are made of keys and leases, as `etcdctl elect` does",
        "etcdserverpb.Auth" => "clients are admitted by their certificates",
        service if SERVED.contains(&service) => {
            let text = format!("unknown method {method} for service {service}");
            return Status::unimplemented(text);
        }
        _ => return Status::unimplemented(format!("unknown service {service}")),
    };
    not_served(&format!("{service}/{method} is not served: {why}"))
}

async fn accept(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    requests: Requests,
    mut ended: watch::Receiver<()>,
) {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.changed() => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            continue;
        };
        // Above the limit a connection is closed at once.
        let Ok(place) = Arc::clone(&free).try_acquire_owned() else { continue };
        // Only delays, if it fails.
        drop(stream.set_nodelay(true));
        let connection = Connection { requests: requests.clone(), _place: place };
        tokio::spawn(connection.begin(stream, tls.clone(), ended.clone()));
    }
}

struct Connection {
    requests: Requests,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    async fn begin(self, stream: TcpStream, tls: Option<Arc<Tls>>, ended: watch::Receiver<()>) {
        let Some(tls) = tls else { return self.serve(stream, ended).await };
        let handshake = TlsAcceptor::from(tls.config()).accept(stream);
        let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await else {
            return;
        };
        if tls.admits(stream.get_ref().1.peer_certificates()) {
            self.serve(stream, ended).await;
        }
    }

    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut ended: watch::Receiver<()>,
    ) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let service = TowerToHyperService::new(self.requests);
        let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            // The client's end, or its fault: it has noticed.
            _ = served.as_mut() => return,
            _ = ended.changed() => served.as_mut().graceful_shutdown(),
        }
        drop(served.await);
    }
}

/// The requests of a connection.
#[derive(Clone)]
struct Requests {
    routes: Router,
    member: Member,
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
        let needs_leader = request.headers().get("hasleader").is_some_and(|v| v == "true");
        if needs_leader && self.member.store.position().leader == 0 {
            let answer = status(Error::NoLeader).into_http();
            return Box::pin(async move { Ok(answer) });
        }
        let uri = request.uri().clone();
        let answered = tower_service::Service::call(&mut self.routes, request.map(Body::new));
        Box::pin(async move { answered.await.map(|answer| mend(answer, uri.path())) })
    }
}

/// Gives the library's answers to what is too large, and to unknown methods, the code and text of
/// etcd's gRPC.
fn mend(mut answer: Response, path: &str) -> Response {
    let headers = answer.headers();
    let Some(code) = headers.get(Status::GRPC_STATUS) else { return answer };
    if *code == HeaderValue::from(Code::OutOfRange as i32)
        && let Some(message) = too_large(headers)
    {
        let exhausted = HeaderValue::from(Code::ResourceExhausted as i32);
        answer.headers_mut().insert(Status::GRPC_STATUS, exhausted);
        answer.headers_mut().insert(Status::GRPC_MESSAGE, message);
    } else if *code == HeaderValue::from(Code::Unimplemented as i32)
        && !headers.contains_key(Status::GRPC_MESSAGE)
    {
        return unserved(path).into_http();
    }
    answer
}

/// The text, where the answer is the library's to a request that is too large.
fn too_large(headers: &HeaderMap) -> Option<HeaderValue> {
    let text = Status::from_header_map(headers)?.message().to_owned();
    let numbers = text.strip_prefix("Error, decoded message length too large: found ")?;
    let (found, _) = numbers.split_once(' ')?;
    let most = MAX_REQUEST_BYTES + GRPC_OVERHEAD_BYTES;
    let text = format!("grpc: received message larger than max ({found} vs. {most})");
    HeaderValue::from_str(&text.replace(' ', "%20")).ok()
}
