//! An HTTP server in threads of its own, with limits on what clients may occupy.
//!
//! It knows axum's router. It must not know what is served, nor the bus.
//!
//! - `peers`: the limits, and how much of them each client occupies
//! - `connections`: accepts connections, bounds them by number and by time
//! - `requests`: reads bodies within the limits
//! - [`exposition`]: metrics as text for Prometheus
//! - `bytes_codec` (feature `grpc`): gRPC's messages as bytes
//!
//! Operation. [`listen`] and [`Listening::serve`] suffice for a service with one address and small
//! requests. A service with several addresses, with TLS, with responses that are streams, or that
//! reads bodies itself, uses [`Threads`].

#[cfg(feature = "grpc")]
pub mod bytes_codec;
mod connections;
pub mod exposition;
mod peers;
mod requests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use connections::{Answering, Handshake, Options, Peer, Shaken, Stream, Streams};
pub use peers::{Limits, Observer, Peers, Place, Refusals};
pub use requests::{BodyError, TimedBody, read_body};

/// How long pending requests get when a server ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The threads for blocking work of a service; further work waits for one.
const BLOCKING_THREADS: usize = 16;

/// A server that answers requests until it is dropped.
pub struct Server {
    address: SocketAddr,
    _threads: Threads,
}

impl Server {
    /// The address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The threads of a service. Dropping them accepts no more connections; pending requests get 5 s.
pub struct Threads {
    peers: Arc<Peers>,
    end: Option<watch::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Threads {
    /// Starts a thread of a name for connections, and at most so many for blocking work.
    ///
    /// # Errors
    /// If the system refuses the threads.
    pub fn start(thread_name: &str, blocking: usize, peers: Arc<Peers>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(blocking)
            .thread_name(thread_name)
            .enable_all()
            .build()?;
        let (end, _) = watch::channel(());
        Ok(Self { peers, end: Some(end), runtime: Some(runtime) })
    }

    /// Listens at an address such as `127.0.0.1:8081`.
    ///
    /// # Errors
    /// If the system refuses the address.
    pub fn bind(&self, address: &str) -> io::Result<TcpListener> {
        self.runtime().block_on(TcpListener::bind(address))
    }

    /// Serves routes. Their handlers find the client as `ConnectInfo<Peer>`; a handler that reads a
    /// body must bound its time ([`read_body`]).
    pub fn serve(&self, listener: TcpListener, routes: Router) {
        self.serve_with(listener, routes, Options::default());
    }

    /// Serves what answers requests, such as routes, with options.
    pub fn serve_with(&self, listener: TcpListener, service: impl Answering, options: Options) {
        let (peers, ended) = (Arc::clone(&self.peers), self.ending().0);
        self.runtime().spawn(connections::accept(listener, service, options, peers, ended));
    }

    /// Notifies of the service's end.
    pub fn ending(&self) -> Ending {
        Ending(self.end.as_ref().expect("present until the drop").subscribe())
    }

    /// Spawns a task, which is dropped with the service.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(task);
    }

    fn runtime(&self) -> &tokio::runtime::Runtime {
        self.runtime.as_ref().expect("present until the drop")
    }
}

/// Notifies of a service's end: responses that are streams must end then.
#[derive(Debug, Clone)]
pub struct Ending(watch::Receiver<()>);

impl Ending {
    /// Waits until the service ends.
    pub async fn wait(&mut self) {
        // It changes only by the drop of its sender.
        drop(self.0.changed().await);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let deadline = Instant::now() + END_TIMEOUT;
        drop(self.end.take());
        self.peers.wait_until_closed(deadline);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

/// An address to listen at, before its routes are known: they may name it.
pub struct Listening {
    address: SocketAddr,
    listener: TcpListener,
    threads: Threads,
    refusals: Arc<Refusals>,
}

/// Listens at an address such as `127.0.0.1:8081`, in threads of a name.
///
/// # Errors
/// If the system refuses the address.
pub fn listen(address: &str, thread_name: &str, limits: Limits) -> io::Result<Listening> {
    let refusals = Arc::new(Refusals::default());
    let observer: Arc<dyn Observer> = Arc::clone(&refusals) as _;
    let peers = Peers::new(limits, Some(observer));
    let threads = Threads::start(thread_name, BLOCKING_THREADS, peers)?;
    let listener = threads.bind(address)?;
    Ok(Listening { address: listener.local_addr()?, listener, threads, refusals })
}

impl Listening {
    /// The address; with its port, if the system chose one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the limits refuse, for metrics.
    #[must_use]
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    /// Serves routes, whose handlers get bodies that were read within the limits.
    #[must_use]
    pub fn serve(self, routes: Router) -> Server {
        let Self { address, listener, threads, .. } = self;
        let routes = requests::bounded(routes, &threads.peers);
        threads.serve(listener, routes);
        Server { address, _threads: threads }
    }
}
