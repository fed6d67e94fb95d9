//! A client of etcd's API: blocking for the command line, and its connections for others.

use std::error::Error as _;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use helio_http::Stream;
use helio_tls::{ClientTls, TlsError};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::kv_client::KvClient;
use crate::proto::etcdserverpb::lease_client::LeaseClient;
use crate::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use crate::proto::etcdserverpb::watch_client::WatchClient;
use crate::proto::etcdserverpb::watch_request::RequestUnion;
use crate::service::{Filled, queue};
use crate::tls::GRPC;

/// etcd's port.
const DEFAULT_PORT: u16 = 2379;
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A list of 500 large objects is larger than the library's default.
const MOST_ANSWER_BYTES: usize = 1 << 30;

/// A request that got no answer, or a bad one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No connection.
    #[error("cannot reach {url}: {reason}")]
    Unreachable {
        /// The server.
        url: String,
        /// Why.
        reason: String,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server's error.
    #[error("{}", .0.message())]
    Refused(Box<Status>),
    /// What was received cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// An error with its causes: the library's own text has none.
fn reason(error: &tonic::transport::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Makes connections, with TLS or without.
#[derive(Clone)]
struct Connector(Option<TlsConnector>);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.0.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let address = (host.as_str(), uri.port_u16().unwrap_or(DEFAULT_PORT));
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let Some(tls) = tls else { return Ok(TokioIo::new(Box::new(stream) as _)) };
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            Ok(TokioIo::new(Box::new(tls.connect(name, stream).await?) as _))
        })
    }
}

/// Opens a connection, for callers with a runtime of their own. It connects again by itself.
///
/// # Errors
/// As [`Client::connect`].
pub async fn open(url: &str, tls: &ClientTls) -> Result<Channel, ClientError> {
    let failed = |reason: String| ClientError::Unreachable { url: url.to_owned(), reason };
    let uri: Uri = url.parse().map_err(|error| failed(format!("{error}")))?;
    let tls = match uri.scheme_str() {
        Some("http") => None,
        Some("https") => Some(TlsConnector::from(tls.config(GRPC)?)),
        _ => return Err(failed("a URL begins with http:// or https://".to_owned())),
    };
    // The connector does TLS itself.
    let endpoint = Endpoint::from(uri).connect_timeout(CONNECT_TIMEOUT);
    let channel = endpoint.connect_with_connector(Connector(tls)).await;
    channel.map_err(|error| failed(reason(&error)))
}

/// Opens a watch on a connection.
///
/// # Errors
/// The server's.
pub async fn watch(
    channel: Channel,
    create: pb::WatchCreateRequest,
) -> Result<WatchStream, ClientError> {
    let (sender, sent) = queue();
    let create = RequestUnion::CreateRequest(create);
    let mut client = WatchClient::new(channel).max_decoding_message_size(MOST_ANSWER_BYTES);
    // The queue is empty: this does not wait.
    drop(sender.send(pb::WatchRequest { request_union: Some(create) }).await);
    let answers = client.watch(sent).await?.into_inner();
    Ok(WatchStream { answers, _requests: sender })
}

/// The answers to a watch; it ends when this is dropped.
pub struct WatchStream {
    answers: Streaming<pb::WatchResponse>,
    /// The stream ends with it.
    _requests: Filled<pb::WatchRequest>,
}

impl WatchStream {
    /// The next answer. It may be cancelled: none is lost.
    ///
    /// # Errors
    /// The server's; also its end.
    pub async fn next(&mut self) -> Result<pb::WatchResponse, ClientError> {
        let answer = self.answers.message().await?;
        answer.ok_or_else(|| Status::unavailable("the server has ended the watch").into())
    }
}

/// A connection to a server with etcd's API.
pub struct Client {
    runtime: Runtime,
    channel: Channel,
}

impl Client {
    /// Connects to a URL such as `http://127.0.0.1:2379`, or one with `https://` by files of TLS.
    ///
    /// # Errors
    /// If the URL is invalid, the files cannot be used, or nobody listens there.
    pub fn connect(url: &str, tls: &ClientTls) -> Result<Self, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let channel = runtime.block_on(open(url, tls))?;
        Ok(Self { runtime, channel })
    }

    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(MOST_ANSWER_BYTES)
    }

    /// The server's version, revision and sizes.
    ///
    /// # Errors
    /// The server's.
    pub fn status(&self) -> Result<pb::StatusResponse, ClientError> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        Ok(self.runtime.block_on(client.status(pb::StatusRequest {}))?.into_inner())
    }

    /// Reads keys.
    ///
    /// # Errors
    /// The server's.
    pub fn range(&self, request: pb::RangeRequest) -> Result<pb::RangeResponse, ClientError> {
        Ok(self.runtime.block_on(self.kv().range(request))?.into_inner())
    }

    /// Writes in one transaction.
    ///
    /// # Errors
    /// The server's.
    pub fn txn(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, ClientError> {
        Ok(self.runtime.block_on(self.kv().txn(request))?.into_inner())
    }

    /// Grants a lease of an id and a time to live in seconds.
    ///
    /// # Errors
    /// The server's.
    pub fn lease_grant(&self, id: i64, ttl: i64) -> Result<(), ClientError> {
        let mut client = LeaseClient::new(self.channel.clone());
        self.runtime.block_on(client.lease_grant(pb::LeaseGrantRequest { ttl, id }))?;
        Ok(())
    }

    /// A lease's times in seconds: the remaining one, -1 if there is none, and the granted one.
    ///
    /// # Errors
    /// The server's.
    pub fn lease_times(&self, id: i64) -> Result<(i64, i64), ClientError> {
        let mut client = LeaseClient::new(self.channel.clone());
        let request = pb::LeaseTimeToLiveRequest { id, keys: false };
        let times = self.runtime.block_on(client.lease_time_to_live(request))?.into_inner();
        Ok((times.ttl, times.granted_ttl))
    }

    /// The ids of all leases.
    ///
    /// # Errors
    /// The server's.
    pub fn leases(&self) -> Result<Vec<i64>, ClientError> {
        let mut client = LeaseClient::new(self.channel.clone());
        let leases = self.runtime.block_on(client.lease_leases(pb::LeaseLeasesRequest {}))?;
        Ok(leases.into_inner().leases.into_iter().map(|lease| lease.id).collect())
    }

    /// Forgets revisions below one; the current revision.
    ///
    /// # Errors
    /// The server's.
    pub fn compact(&self, revision: i64) -> Result<i64, ClientError> {
        let request = pb::CompactionRequest { revision, physical: true };
        let answer = self.runtime.block_on(self.kv().compact(request))?.into_inner();
        Ok(answer.header.unwrap_or_default().revision)
    }

    /// Writes a snapshot in the server's own format; its bytes. One that ends early is an error.
    ///
    /// # Errors
    /// The server's, and those of writing.
    pub fn snapshot(&self, to: &mut dyn Write) -> Result<u64, ClientError> {
        let client = MaintenanceClient::new(self.channel.clone());
        let mut client = client.max_decoding_message_size(MOST_ANSWER_BYTES);
        self.runtime.block_on(async {
            let mut bytes = 0;
            let mut chunks = client.snapshot(pb::SnapshotRequest {}).await?.into_inner();
            while let Some(chunk) = chunks.message().await? {
                to.write_all(&chunk.blob)?;
                bytes += chunk.blob.len() as u64;
            }
            Ok(bytes)
        })
    }

    /// Opens a watch.
    ///
    /// # Errors
    /// The server's.
    pub fn watch(&self, create: pb::WatchCreateRequest) -> Result<Watching<'_>, ClientError> {
        let stream = self.runtime.block_on(watch(self.channel.clone(), create))?;
        Ok(Watching { client: self, stream })
    }
}

/// An open watch.
pub struct Watching<'a> {
    client: &'a Client,
    stream: WatchStream,
}

impl Watching<'_> {
    /// The next answer; none after `timeout`.
    ///
    /// # Errors
    /// The server's; also its end.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<pb::WatchResponse>, ClientError> {
        self.client.runtime.block_on(async {
            match tokio::time::timeout(timeout, self.stream.next()).await {
                Err(_) => Ok(None),
                Ok(answer) => answer.map(Some),
            }
        })
    }
}
