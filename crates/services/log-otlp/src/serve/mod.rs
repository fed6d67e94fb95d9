//! The server side: a service for OTLP's two protocols.
//!
//! Constraints. Requests are bounded in size, before and after decompression, and in time. The
//! numbers of concurrent requests and connections are bounded, in all and by sender, before a body
//! is read. A request is answered with success once its records are stored; if that takes longer
//! than [`Limits::stored`], or if the [`Take`] has no room, the sender gets a retry delay.
//!
//! Operation. Both protocols are HTTP, with one server each; they differ in paths and responses
//! (`http`, `grpc`). A request's records are read in a thread for blocking work. Then requests pass
//! a gate one by one: the first waits for room and passes its records on, also in a thread. No
//! thread waits while records are stored.

mod grpc;
mod http;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use bytes::Bytes;
use helio_bus::{Clock as _, SystemClock};
use helio_http::{Observer, Peers, Place, Threads};
use helio_logging::Record;
use thiserror::Error;
use tokio::sync::Mutex;

use crate::read::{Received, from_json, from_protobuf, reason};

/// The most bytes of a request, compressed and decompressed: the limit that OTLP's specification
/// recommends.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;
/// The most concurrent requests. Each takes at most three times [`MAX_REQUEST_BYTES`]. Further ones
/// get a retry delay.
pub const MAX_REQUESTS: usize = 64;
/// The retry delay if all slots are occupied, or if records are not stored in time.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often a request that waits for room checks for it.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The idle time after which a connection is closed: longer than collectors' intervals.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// The threads that decompress and read requests: as many as small machines have processors.
const READING_THREADS: usize = 2;

/// The limits of senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections of all senders and both protocols. Each takes some kilobytes.
    pub connections: usize,
    /// The most connections of one sender.
    pub connections_per_sender: usize,
    /// The most requests of one sender whose bodies are read at the same time, and the most streams
    /// of a connection of HTTP/2: a quarter of [`MAX_REQUESTS`], more than a collector sends at
    /// once.
    pub requests_per_sender: usize,
    /// The timeout of a request's head, and then of its body.
    pub unfinished: Duration,
    /// The most time within which a request's records are stored, from when they are passed on.
    /// After it the sender is asked to repeat the request, which may store them twice.
    pub stored: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1_024,
            connections_per_sender: 256,
            requests_per_sender: MAX_REQUESTS / 4,
            unfinished: Duration::from_secs(30),
            stored: Duration::from_secs(5),
        }
    }
}

impl From<Limits> for helio_http::Limits {
    fn from(limits: Limits) -> Self {
        Self {
            connections: limits.connections,
            connections_per_peer: limits.connections_per_sender,
            requests: MAX_REQUESTS,
            requests_per_peer: limits.requests_per_sender,
            unfinished: limits.unfinished,
            idle: IDLE_TIMEOUT,
            body_bytes: MAX_REQUEST_BYTES,
        }
    }
}

/// The pending outcome of a request: it ends once the records are stored, or finally are not.
pub type Taking = Pin<Box<dyn Future<Output = Taken> + Send>>;

/// Receives the records of requests.
pub trait Take: Send + Sync + 'static {
    /// Takes the records of one request, in order, from this sender.
    fn take(&self, sender: SocketAddr, records: Vec<Record>) -> Taking;

    /// Whether a request that has waited `since` then must wait longer for room.
    fn is_full(&self, _since: Instant) -> bool {
        false
    }

    /// Called for a sender's data that was refused before it was decoded, with the number of
    /// records, if known, and the reason.
    fn refused(&self, sender: SocketAddr, records: u64, reason: &str);

    /// Called for a connection or a request that was refused because the sender has too many.
    fn turned_away(&self, _sender: SocketAddr) {}

    /// Called for a connection or a request that was closed because its head or body was late.
    fn timed_out(&self, _sender: SocketAddr) {}
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

/// A running service with its own threads. Dropping it accepts no more connections; requests in
/// flight get 5 s.
pub struct Serving {
    grpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
    _threads: Threads,
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

/// Starts a service that passes records to `take`.
///
/// # Errors
/// [`ServeError`].
///
/// ```
/// use std::net::SocketAddr;
/// use std::sync::Arc;
///
/// use helio_log_otlp::{Limits, Listen, Take, Taken, Taking, serve};
/// use helio_logging::Record;
///
/// struct Printed;
///
/// impl Take for Printed {
///     fn take(&self, sender: SocketAddr, records: Vec<Record>) -> Taking {
///         records.iter().for_each(|record| println!("{sender}: {}", record.message()));
///         Box::pin(async { Taken::All })
///     }
///
///     fn refused(&self, sender: SocketAddr, records: u64, reason: &str) {
///         println!("{sender}: {records} refused: {reason}");
///     }
/// }
///
/// let listen = Listen { http: Some("127.0.0.1:0".to_owned()), ..Listen::default() };
/// let serving = serve(&listen, &Limits::default(), Arc::new(Printed))?;
/// assert!(serving.http().is_some());
/// # Ok::<(), helio_log_otlp::ServeError>(())
/// ```
pub fn serve(listen: &Listen, limits: &Limits, take: Arc<dyn Take>) -> Result<Serving, ServeError> {
    let refusals = Arc::new(Refusals(Arc::clone(&take)));
    let peers = Peers::new((*limits).into(), Some(refusals));
    let threads = Threads::start("otlp", READING_THREADS, Arc::clone(&peers));
    let threads = threads.map_err(ServeError::Threads)?;
    let service = Arc::new(Service {
        take,
        peers,
        limits: *limits,
        gate: Mutex::const_new(()),
        clock: SystemClock::new(),
    });
    type Routes = fn(Arc<Service>) -> Router;
    let start = |address: &Option<String>, routes: Routes| -> Result<_, ServeError> {
        let Some(address) = address else { return Ok(None) };
        let failed = |source| ServeError::Address { address: address.clone(), source };
        let listener = threads.bind(address).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        threads.serve(listener, routes(Arc::clone(&service)));
        Ok(Some(local))
    };
    let (grpc, http) = (start(&listen.grpc, grpc::routes)?, start(&listen.http, http::routes)?);
    Ok(Serving { grpc, http, _threads: threads })
}

/// Passes what the limits refuse to a [`Take`].
struct Refusals(Arc<dyn Take>);

impl Observer for Refusals {
    fn refused(&self, peer: SocketAddr) {
        self.0.turned_away(peer);
    }

    fn timed_out(&self, peer: SocketAddr) {
        self.0.timed_out(peer);
    }
}

/// The state shared by both protocols.
struct Service {
    take: Arc<dyn Take>,
    peers: Arc<Peers>,
    limits: Limits,
    /// Held while a request waits for room and passes its records on.
    gate: Mutex<()>,
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
    /// To be retried: the sender is above a limit.
    Later(Duration),
    /// To be retried: the records were not stored in time.
    NotStored(Duration),
    /// An internal error.
    Failed(String),
}

impl Service {
    /// Decompresses, reads and passes on a request, and waits until its records are stored. Its
    /// place is held until it is passed on, even if the sender has disconnected.
    async fn handle(
        self: &Arc<Self>,
        sender: SocketAddr,
        format: Format,
        place: Option<Place>,
        unpack: impl FnOnce() -> Result<Bytes, Answer> + Send + 'static,
    ) -> Answer {
        let (service, arrived) = (Arc::clone(self), Instant::now());
        let read = move || Ok((service.read(format, unpack()?)?, place));
        let answer = match blocking(read).await {
            Ok((received, place)) => self.pass_on(sender, received, arrived, place).await,
            Err(answer) => answer,
        };
        if let Answer::Wrong(reason) | Answer::TooLarge(reason) = &answer {
            self.take.refused(sender, 0, reason);
        }
        answer
    }

    fn read(&self, format: Format, bytes: Bytes) -> Result<Received, Answer> {
        let now = self.clock.now();
        let read = match format {
            Format::Protobuf => from_protobuf(bytes, now),
            Format::Json => from_json(&bytes, now),
        };
        read.map_err(|error| Answer::Wrong(error.to_string()))
    }

    async fn pass_on(
        self: &Arc<Self>,
        sender: SocketAddr,
        Received { records, refused, reason: first }: Received,
        arrived: Instant,
        place: Option<Place>,
    ) -> Answer {
        let taken = match records.is_empty() {
            true => Taken::All,
            false => match self.store(sender, records, arrived, place).await {
                Ok(taken) => taken,
                Err(answer) => return answer,
            },
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

    /// Passes records on in turn, and waits until they are stored.
    async fn store(
        self: &Arc<Self>,
        sender: SocketAddr,
        records: Vec<Record>,
        arrived: Instant,
        place: Option<Place>,
    ) -> Result<Taken, Answer> {
        let taking = {
            let _turn = self.gate.lock().await;
            while self.take.is_full(arrived) {
                tokio::time::sleep(ROOM_POLL_INTERVAL).await;
            }
            let service = Arc::clone(self);
            blocking(move || {
                let taking = service.take.take(sender, records);
                drop(place);
                Ok(taking)
            })
            .await?
        };
        let stored = tokio::time::timeout(self.limits.stored, taking).await;
        stored.map_err(|_| Answer::NotStored(RETRY_DELAY))
    }
}

/// Does work in a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Answer> + Send + 'static,
) -> Result<T, Answer> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Answer::Failed(error.to_string())))
}
