//! One port for gRPC and HTTP, with or without TLS.
//!
//! Constraints. No client keeps others out: `helio-http` bounds connections, requests and their
//! times, and notices by pings that clients have vanished. An open stream counts as a request.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use helio_http::{Handshake, Limits, Options, Peer, Peers, Place, Streams, Threads, TimedBody};
use helio_tls::{TlsError, TlsFiles};
use tokio::net::TcpListener;
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::error::{not_served, status};
use crate::metrics::{Call, Metrics};
use crate::proto::etcdserverpb::auth_server::AuthServer;
use crate::proto::etcdserverpb::cluster_server::ClusterServer;
use crate::proto::etcdserverpb::kv_server::KvServer;
use crate::proto::etcdserverpb::lease_server::LeaseServer;
use crate::proto::etcdserverpb::maintenance_server::MaintenanceServer;
use crate::proto::etcdserverpb::watch_server::WatchServer;
use crate::rpc_body::{RequestBody, ResponseBody, code_of};
use crate::service::{self, Member};
use crate::store::Store;
use crate::tls::Accept;
use crate::{Description, MAX_REQUEST_BYTES, http, stream_end};
use helio_state::Error;

/// The most connections at one time, in total and of a client's address.
const MAX_CONNECTIONS: usize = 10_000;
const MAX_CONNECTIONS_PER_PEER: usize = 5_000;
/// The most requests and open streams at one time, in total and of a client's address.
const MAX_REQUESTS: usize = 100_000;
const MAX_REQUESTS_PER_PEER: usize = 50_000;
/// Bytes that a client may send before the server has read them, a stream and a connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// What gRPC adds to a request at the most, as etcd counts it.
const GRPC_OVERHEAD_BYTES: usize = 512 << 10;
/// The most time for a TLS handshake and the first request's head together, and for a body.
const UNFINISHED: Duration = Duration::from_secs(10);
/// The time without a request after which a connection of HTTP/1 is closed.
const IDLE: Duration = Duration::from_secs(120);
/// The interval of pings to clients, and the time that they have to answer.
const PING_INTERVAL: Duration = Duration::from_secs(60);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The threads that write and read snapshots for clients.
const BLOCKING_THREADS: usize = 16;

/// The calls whose requests and responses are streams without an end.
const STREAMED: [&str; 2] = ["/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive"];

/// How the paths of etcd's services begin.
const PACKAGE: &str = "/etcdserverpb.";

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
    threads: Threads,
    peers: Arc<Peers>,
    tls: Option<Arc<Accept>>,
}

/// A service that answers until it is dropped: then streams end with etcd's error, and pending
/// requests get 5 s.
pub struct Server {
    address: SocketAddr,
    _threads: Threads,
}

/// Holds an address such as `127.0.0.1:2379`, with TLS if files are given.
///
/// # Errors
/// If the system refuses the address, or the files cannot be used.
pub fn listen(address: &str, tls: Option<TlsFiles>) -> Result<Listening, ListenError> {
    let tls = tls.map(Accept::new).transpose()?.map(Arc::new);
    let refused = |source| ListenError::Address { address: address.to_owned(), source };
    let limits = Limits {
        connections: MAX_CONNECTIONS,
        connections_per_peer: MAX_CONNECTIONS_PER_PEER,
        requests: MAX_REQUESTS,
        requests_per_peer: MAX_REQUESTS_PER_PEER,
        unfinished: UNFINISHED,
        idle: IDLE,
        body_bytes: MAX_REQUEST_BYTES + GRPC_OVERHEAD_BYTES,
    };
    let peers = Peers::new(limits, None);
    // One thread serves all: two cost half as much again for each request, at the same speed.
    let threads = Threads::start("state-api", BLOCKING_THREADS, Arc::clone(&peers));
    let threads = threads.map_err(refused)?;
    let listener = threads.bind(address).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok(Listening { address, listener, threads, peers, tls })
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
        let Self { address, listener, threads, peers, tls } = self;
        let (ends, monitor) = stream_end::monitor(Arc::clone(&store), threads.ending());
        threads.spawn(monitor);
        let metrics = Arc::new(Metrics::new());
        let member = Member { store, description: Arc::new(description), ends, metrics };
        let requests = Requests { routes: routes(&member), member, peers };
        let streams = Streams {
            stream_window_bytes: STREAM_WINDOW_BYTES,
            connection_window_bytes: CONNECTION_WINDOW_BYTES,
            ping_interval: PING_INTERVAL,
            ping_timeout: PING_TIMEOUT,
        };
        let handshake = tls.map(|tls| tls as Arc<dyn Handshake>);
        threads.serve_with(listener, requests, Options { handshake, streams: Some(streams) });
        Server { address, _threads: threads }
    }
}

impl Server {
    /// The address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
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
    if !is_grpc(headers) {
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

/// The requests of a connection.
#[derive(Clone)]
struct Requests {
    routes: Router,
    member: Member,
    peers: Arc<Peers>,
}

impl tower_service::Service<Request<Body>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The library looks at no type. Any page in a browser can send other ones, also to an
        // address that only this machine reaches.
        if request.uri().path().starts_with(PACKAGE) && !is_grpc(request.headers()) {
            let answer = unknown(request.uri().path(), request.headers());
            return Box::pin(async move { Ok(answer) });
        }
        let call = self.member.metrics.call(request.uri().path());
        let path = request.uri().clone();
        let peer = request.extensions().get::<ConnectInfo<Peer>>();
        let place = peer.and_then(|ConnectInfo(Peer(peer))| self.peers.request(*peer));
        let needs_leader = service::needs_leader(request.headers());
        let refused = match place {
            None => Some(Error::TooManyRequests),
            Some(_) if needs_leader && self.member.store.position().leader == 0 => {
                Some(Error::NoLeader)
            }
            Some(_) => None,
        };
        if let Some(error) = refused {
            let answer = refusal(error, request.headers());
            return Box::pin(async move { Ok(counted(answer, call, None)) });
        }
        let request = match STREAMED.contains(&path.path()) {
            true => request.map(|body| Body::new(RequestBody::new(body, call.clone()))),
            false => request.map(|body| {
                let body = TimedBody::new(body, UNFINISHED);
                Body::new(RequestBody::new(body, call.clone()))
            }),
        };
        let answered = tower_service::Service::call(&mut self.routes, request);
        Box::pin(async move {
            let answer = answered.await.map(|answer| mend(answer, path.path()))?;
            Ok(counted(answer, call, place))
        })
    }
}

/// Counts a call's end: now, if it has failed, or at the end of its body.
fn counted(answer: Response, call: Option<Arc<Call>>, place: Option<Place>) -> Response {
    let Some(call) = call else { return answer };
    if let Some(code) = code_of(answer.headers()) {
        call.end(code);
    }
    answer.map(|body| Body::new(ResponseBody::new(body, call, place)))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// The answer to a request that is not passed on.
fn refusal(error: Error, headers: &HeaderMap) -> Response {
    match error {
        Error::TooManyRequests if !is_grpc(headers) => {
            (StatusCode::TOO_MANY_REQUESTS, format!("{error}\n")).into_response()
        }
        error => status(error).into_http(),
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
