//! The server side: a service for OTLP's two protocols.
//!
//! Constraints. Requests are bounded in size, before and after decompression, and in time. The
//! numbers of concurrent requests and connections are bounded. If the [`Take`] has no room, the
//! sender gets a retry delay.
//!
//! Operation. Both protocols are HTTP, with one server each; they differ in paths and responses
//! (`http`, `grpc`). A request's records are read and passed on in a thread for blocking work.

mod connections;
mod grpc;
mod http;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use bytes::Bytes;
use helio_bus::{Clock as _, SystemClock};
use helio_logging::Record;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::read::{Received, from_json, from_protobuf, reason};
use connections::{Bounded, Sender};

/// The most bytes of a request, compressed and decompressed: the limit that OTLP's specification
/// recommends.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;
/// The most concurrent requests. Each takes at most three times [`MAX_REQUEST_BYTES`]. Further ones
/// get a retry delay.
pub const MAX_REQUESTS: usize = 64;
/// The most connections per protocol; further ones wait. Each takes some kilobytes.
pub const MAX_CONNECTIONS: usize = 1_024;
/// The timeout of receiving a request, as a slow one occupies a slot.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The retry delay if all slots are occupied.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The threads that decompress and read requests: as many as small machines have processors.
const READING_THREADS: usize = 2;

/// Receives the records of requests.
pub trait Take: Send + Sync + 'static {
    /// Takes the records of one request, in order, from this sender. It may block briefly: the
    /// sender and other requests wait meanwhile.
    fn take(&self, sender: SocketAddr, records: Vec<Record>, arrived: Instant) -> Taken;

    /// Called for a sender's data that was refused before it was decoded, with the number of
    /// records, if known, and the reason.
    fn refused(&self, sender: SocketAddr, records: u64, reason: &str);
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// All records were accepted.
    All,
    /// Some records were finally refused; the others were accepted.
    But {
        /// The number of refused records.
        refused: u64,
        /// The reason, for the sender.
        reason: String,
    },
    /// No record was accepted: there is no room, or the sender is above its rate. It may retry.
    Later {
        /// The delay.
        after: Duration,
    },
}

/// Addresses to listen at, such as `127.0.0.1:4317`.
#[derive(Debug, Clone, Default)]
pub struct Listen {
    /// For gRPC; OTLP's port is 4317.
    pub grpc: Option<String>,
    /// For HTTP; OTLP's port is 4318.
    pub http: Option<String>,
}

/// Why the service cannot start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The threads cannot be started.
    #[error("the threads for OTLP cannot be started: {0}")]
    Threads(io::Error),
    /// An address cannot be opened.
    #[error("cannot listen for OTLP at {address}: {source}")]
    Address {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
}

/// A running service with its own threads. Dropping it stops it.
pub struct Serving {
    grpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
    end: Option<watch::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Serving {
    /// The address for gRPC.
    #[must_use]
    pub fn grpc(&self) -> Option<SocketAddr> {
        self.grpc
    }

    /// The address for HTTP.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }
}

impl Drop for Serving {
    /// Stops accepting connections; requests in flight may complete.
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// Starts a service that passes records to `take`.
///
/// # Errors
/// [`ServeError`].
///
/// ```
/// use std::net::SocketAddr;
/// use std::sync::Arc;
/// use std::time::Instant;
///
/// use helio_log_otlp::{Listen, Take, Taken, serve};
/// use helio_logging::Record;
///
/// struct Printed;
///
/// impl Take for Printed {
///     fn take(&self, sender: SocketAddr, records: Vec<Record>, _: Instant) -> Taken {
///         records.iter().for_each(|record| println!("{sender}: {}", record.message()));
///         Taken::All
///     }
///
///     fn refused(&self, sender: SocketAddr, records: u64, reason: &str) {
///         println!("{sender}: {records} refused: {reason}");
///     }
/// }
///
/// let listen = Listen { http: Some("127.0.0.1:0".to_owned()), ..Listen::default() };
/// let serving = serve(&listen, Arc::new(Printed))?;
/// assert!(serving.http().is_some());
/// # Ok::<(), helio_log_otlp::ServeError>(())
/// ```
pub fn serve(listen: &Listen, take: Arc<dyn Take>) -> Result<Serving, ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(READING_THREADS)
        .thread_name("otlp")
        .enable_all()
        .build()
        .map_err(ServeError::Threads)?;
    let (end, ended) = watch::channel(());
    let permits = Arc::new(Semaphore::new(MAX_REQUESTS));
    let service = Arc::new(Service { take, permits, clock: SystemClock::new() });
    type Routes = fn(Arc<Service>) -> Router;
    let start = |address: &Option<String>, routes: Routes| -> Result<_, ServeError> {
        let Some(address) = address else { return Ok(None) };
        let failed = |source| ServeError::Address { address: address.clone(), source };
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let mut ended = ended.clone();
        let routes = routes(Arc::clone(&service)).into_make_service_with_connect_info::<Sender>();
        runtime.spawn(async move {
            let ended = async move { while ended.changed().await.is_ok() {} };
            axum::serve(Bounded::new(listener), routes).with_graceful_shutdown(ended).await
        });
        Ok(Some(local))
    };
    let (grpc, http) = (start(&listen.grpc, grpc::routes)?, start(&listen.http, http::routes)?);
    Ok(Serving { grpc, http, end: Some(end), runtime: Some(runtime) })
}

/// The state shared by both protocols.
struct Service {
    take: Arc<dyn Take>,
    permits: Arc<Semaphore>,
    clock: SystemClock,
}

/// The encoding of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Protobuf,
    Json,
}

/// The response to a request.
enum Answer {
    /// Accepted, except for this many records.
    Taken { refused: u64, reason: String },
    /// Malformed; a retry is useless.
    Wrong(String),
    /// Too large.
    TooLarge(String),
    /// To be retried.
    Later(Duration),
    /// An internal error.
    Failed(String),
}

impl Service {
    /// Decompresses, reads and passes on a request. The slot is held until that is done, even if
    /// the sender has disconnected.
    async fn handle(
        self: &Arc<Self>,
        sender: SocketAddr,
        format: Format,
        permit: Option<OwnedSemaphorePermit>,
        unpack: impl FnOnce() -> Result<Bytes, Answer> + Send + 'static,
    ) -> Answer {
        let service = Arc::clone(self);
        let arrived = Instant::now();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            match unpack() {
                Ok(bytes) => service.process(sender, format, bytes, arrived),
                Err(answer) => answer,
            }
        });
        let answer = done.await.unwrap_or_else(|error| Answer::Failed(error.to_string()));
        if let Answer::Wrong(reason) | Answer::TooLarge(reason) = &answer {
            self.take.refused(sender, 0, reason);
        }
        answer
    }

    fn process(
        &self,
        sender: SocketAddr,
        format: Format,
        bytes: Bytes,
        arrived: Instant,
    ) -> Answer {
        let now = self.clock.now();
        let read = match format {
            Format::Protobuf => from_protobuf(bytes, now),
            Format::Json => from_json(&bytes, now),
        };
        let Received { records, refused, reason: first } = match read {
            Ok(received) => received,
            Err(error) => return Answer::Wrong(error.to_string()),
        };
        let taken = match records.is_empty() {
            true => Taken::All,
            false => self.take.take(sender, records, arrived),
        };
        // A retried request contains its malformed records again.
        if let Taken::Later { after } = taken {
            return Answer::Later(after);
        }
        if let Some(first) = &first {
            self.take.refused(sender, refused, first);
        }
        let mut reasons: Vec<String> = first.into_iter().collect();
        let mut all = refused;
        if let Taken::But { refused, reason } = taken {
            all += refused;
            reasons.push(reason);
        }
        Answer::Taken { refused: all, reason: reason(reasons.join("; ")) }
    }
}
