//! The way in: a service for OTLP's two protocols.
//!
//! Constraints. A request has bounds of size, before and after it is unpacked, and of time; so many
//! are looked at at once, and so many connections held. Who takes the records says when there is no
//! room, and the sender is told when to come again.
//!
//! Operation. Both protocols are HTTP, and one server each; what differs are paths and answers
//! (`http`, `grpc`). The records of a request are read and handed on in a thread for work that
//! waits.

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

/// The most bytes of a request, as it comes and unpacked: what OTLP's specification recommends.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;
/// How many requests are looked at at once; each holds three times [`MAX_REQUEST_BYTES`] at most.
/// Further ones are told to come again.
pub const MAX_REQUESTS: usize = 64;
/// How many connections there are at once to a protocol; further ones wait. Each costs some
/// kilobytes.
pub const MAX_CONNECTIONS: usize = 1_024;
/// How long a request may take to come: a slow one holds a place.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// When to come again where all places are taken.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How many requests are unpacked and read at once: as many as small machines have processors.
const READING_THREADS: usize = 2;

/// Who takes the records that come.
pub trait Take: Send + Sync + 'static {
    /// Takes the records of one request, in order, from this sender. It may wait, but not for long
    /// after the request has arrived: the sender waits, too, and others behind it.
    fn take(&self, sender: SocketAddr, records: Vec<Record>, arrived: Instant) -> Taken;

    /// Is told what was refused before it came to records of this sender: how many, where that is
    /// known, and why.
    fn refused(&self, sender: SocketAddr, records: u64, reason: &str);
}

/// What became of a request's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// All were taken.
    All,
    /// Some were not, and never will be; the others were.
    But {
        /// How many were not.
        refused: u64,
        /// Why, for the sender.
        reason: String,
    },
    /// None was taken: there is no room, or too many came from there. The sender may come again.
    Later {
        /// When.
        after: Duration,
    },
}

/// Where to listen: addresses such as `127.0.0.1:4317`.
#[derive(Debug, Clone, Default)]
pub struct Listen {
    /// For gRPC; OTLP's port is 4317.
    pub grpc: Option<String>,
    /// For HTTP; OTLP's port is 4318.
    pub http: Option<String>,
}

/// Why nobody listens.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The threads cannot be started.
    #[error("the threads for OTLP cannot be started: {0}")]
    Threads(io::Error),
    /// There is no listening at an address.
    #[error("cannot listen for OTLP at {address}: {source}")]
    Address {
        /// The address.
        address: String,
        /// What the system says of it.
        source: io::Error,
    },
}

/// A service that listens, in threads of its own. Dropping it ends that.
pub struct Serving {
    grpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
    end: Option<watch::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Serving {
    /// Where it listens for gRPC.
    #[must_use]
    pub fn grpc(&self) -> Option<SocketAddr> {
        self.grpc
    }

    /// Where it listens for HTTP.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }
}

impl Drop for Serving {
    /// Lets nobody in any more; requests under way get their time.
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// Listens, and hands what comes to somebody.
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

/// What both protocols share.
struct Service {
    take: Arc<dyn Take>,
    permits: Arc<Semaphore>,
    clock: SystemClock,
}

/// How a request's message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Protobuf,
    Json,
}

/// What a request is answered.
enum Answer {
    /// It was taken, but for so many records.
    Taken { refused: u64, reason: String },
    /// It is wrong, and will be.
    Wrong(String),
    /// It is too large.
    TooLarge(String),
    /// Not now.
    Later(Duration),
    /// A fault of ours.
    Failed(String),
}

impl Service {
    /// Unpacks, reads and hands on. The place is held until that is done, also where the sender has
    /// gone meanwhile.
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
        // Of a request that comes again, what could not be read does, too.
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
