//! The service: starts and stops its edges.

use std::io;
use std::net::{TcpListener as StdTcp, UdpSocket as StdUdp};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram as StdDatagram, UnixListener as StdUnix, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use helio_bus::{Builder, Bus};
use helio_logging::{LogError, LogOptions, Logging};
use rustix::process::{Resource, getrlimit};
use thiserror::Error;
use tokio::net::{TcpListener, UdpSocket, UnixDatagram, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use crate::datagram::Datagrams;
use crate::endpoint::{Edge, Endpoint, Listening, Via};
use crate::ingest::Ingest;
use crate::input;
use crate::limits::Limits;
use crate::statistics::Statistics;
use crate::stream::Listener;
use crate::udp_drops::{self, Inode};

/// The time that closing waits for edges: a little longer than they drain.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// File descriptors reserved for the bus and the edges.
const RESERVED_FILES: u64 = 128;

/// The options of a service.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The limits of senders.
    pub limits: Limits,
    /// The options of publishing: topics, batches, queues, the spill file. Host and process are for
    /// the service's own records.
    pub log: LogOptions,
    /// The seconds that the clocks of syslog senders are ahead of UTC, for messages without a zone.
    pub syslog_offset_s: i32,
}

/// Why the service does not start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Logging to the bus cannot be started.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The threads cannot be started.
    #[error("the service's threads cannot be started: {0}")]
    Threads(#[source] io::Error),
    /// An endpoint cannot be opened.
    #[error("cannot listen at {0}: {1}")]
    Listen(Via, #[source] io::Error),
}

/// Receives records at its edges and publishes them. Dropping it [ends](Self::end) it.
///
/// ```
/// use helio_bus::Bus;
/// use helio_log_serve::{Endpoint, Format, Options, Server, Via};
///
/// let mut server = Server::start(Bus::connect("memory:")?, Options::default())?;
/// let via = Via::Udp("127.0.0.1:0".to_owned());
/// let listening = server.listen(&Endpoint { format: Format::Syslog, via })?;
/// let Via::Udp(address) = listening.via else { unreachable!() };
/// std::net::UdpSocket::bind("127.0.0.1:0")?.send_to(b"<29>ntpd: synchronised", address)?;
/// let statistics = server.end();
/// assert_eq!((statistics.received, statistics.published), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    runtime: Option<Runtime>,
    logging: Option<Logging>,
    edge: Option<Edge>,
    closing: watch::Sender<bool>,
    ended: mpsc::Receiver<()>,
    /// The files of unix sockets, which are removed at the end.
    files: Vec<PathBuf>,
    udp: Vec<Inode>,
}

impl Server {
    /// Starts a service without endpoints.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(bus: Bus, options: Options) -> Result<Self, ServeError> {
        Self::over(Logging::start(bus, options.log.clone())?, options)
    }

    /// Starts a service on a bus that may be unavailable ([`Logging::connect`]). Records are queued
    /// until it is connected.
    ///
    /// # Errors
    /// [`ServeError`] for permanent errors.
    pub fn connect(builder: Builder, url: &str, options: Options) -> Result<Self, ServeError> {
        Self::over(Logging::connect(builder, url, options.log.clone())?, options)
    }

    fn over(logging: Logging, options: Options) -> Result<Self, ServeError> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        // Reading and decoding; the bus has threads of its own.
        let builder = builder.worker_threads(2).thread_name("log-serve").enable_all();
        let runtime = builder.build().map_err(ServeError::Threads)?;
        let (closing, closes) = watch::channel(false);
        let (alive, ended) = mpsc::channel(1);
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let files = usize::try_from(files.saturating_sub(RESERVED_FILES)).unwrap_or(usize::MAX);
        let most_connections = options.limits.connections.min(files.max(1));
        let ingest = Ingest::new(logging.relay(), &options.log, options.limits);
        let edge = Edge {
            ingest: ingest.clone(),
            closing: closes,
            offset_s: options.syslog_offset_s,
            connections: Arc::new(AtomicUsize::new(0)),
            most_connections,
            alive,
            gate: Arc::default(),
        };
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(ingest.limits().tell).await;
                ingest.tell();
            }
        });
        Ok(Self {
            runtime: Some(runtime),
            logging: Some(logging),
            edge: Some(edge),
            closing,
            ended,
            files: Vec::new(),
            udp: Vec::new(),
        })
    }

    /// Opens an endpoint.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub fn listen(&mut self, endpoint: &Endpoint) -> Result<Listening, ServeError> {
        let failed = |error| ServeError::Listen(endpoint.via.clone(), error);
        let via = self.open(endpoint).map_err(failed)?;
        Ok(Endpoint { format: endpoint.format, via })
    }

    fn open(&mut self, endpoint: &Endpoint) -> io::Result<Via> {
        let (Some(runtime), Some(edge)) = (&self.runtime, &self.edge) else {
            return Err(io::Error::other("the service has ended"));
        };
        let (format, edge) = (endpoint.format, edge.clone());
        // Sockets are registered with this runtime.
        let _entered = runtime.enter();
        match &endpoint.via {
            Via::Udp(address) => {
                let socket = StdUdp::bind(address)?;
                Datagrams::keep_more(&socket);
                socket.set_nonblocking(true)?;
                let at = socket.local_addr()?;
                self.udp.extend(Inode::of(&socket));
                let datagrams = Datagrams::Udp(UdpSocket::from_std(socket)?);
                runtime.spawn(datagrams.run(format, edge));
                Ok(Via::Udp(at.to_string()))
            }
            Via::Tcp(address) => {
                let listener = StdTcp::bind(address)?;
                listener.set_nonblocking(true)?;
                let at = listener.local_addr()?;
                let listener = Listener::Tcp(TcpListener::from_std(listener)?);
                runtime.spawn(listener.run(format, edge));
                Ok(Via::Tcp(at.to_string()))
            }
            Via::Unix(path) => {
                let is_used = |path: &Path| UnixStream::connect(path).is_ok();
                let listener = bind(path, |path| StdUnix::bind(path), is_used)?;
                self.files.push(path.clone());
                listener.set_nonblocking(true)?;
                let listener = Listener::Unix(UnixListener::from_std(listener)?);
                runtime.spawn(listener.run(format, edge));
                Ok(endpoint.via.clone())
            }
            Via::UnixDatagram(path) => {
                let connect = |path: &Path| StdDatagram::unbound()?.connect(path);
                let is_used = |path: &Path| connect(path).is_ok();
                let socket = bind(path, |path| StdDatagram::bind(path), is_used)?;
                self.files.push(path.clone());
                Datagrams::keep_more(&socket);
                socket.set_nonblocking(true)?;
                let datagrams = Datagrams::Unix(UnixDatagram::from_std(socket)?);
                runtime.spawn(datagrams.run(format, edge));
                Ok(endpoint.via.clone())
            }
            Via::Input => {
                let thread = std::thread::Builder::new().name("log-input".to_owned());
                thread.spawn(move || input::run(format, &edge))?;
                Ok(Via::Input)
            }
        }
    }

    /// The ingest for records of other receivers; none after the end.
    #[must_use]
    pub fn ingest(&self) -> Option<Ingest> {
        self.edge.as_ref().map(|edge| edge.ingest.clone())
    }

    /// Whether no more records can arrive: the only endpoint is standard input, and that has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.edge.as_ref().is_none_or(|edge| edge.alive.strong_count() == 1)
    }

    /// The present statistics.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (Some(edge), Some(logging)) = (&self.edge, &self.logging) else {
            return Statistics::default();
        };
        let statistics = edge.ingest.statistics(&logging.figures());
        Statistics { kernel_dropped: udp_drops::dropped(&self.udp), ..statistics }
    }

    /// The bus's reason for not accepting records at present; none if it accepts them.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.logging.as_ref().and_then(Logging::trouble)
    }

    /// Ends the service and returns the final statistics. Records sent before are read, and
    /// published or stored in the spill file.
    #[must_use]
    pub fn end(mut self) -> Statistics {
        self.close()
    }

    fn close(&mut self) -> Statistics {
        let (Some(runtime), Some(edge)) = (self.runtime.take(), self.edge.take()) else {
            return Statistics::default();
        };
        let kernel_dropped = udp_drops::dropped(&self.udp);
        let ingest = edge.ingest.clone();
        drop(edge);
        _ = self.closing.send(true);
        let ended = async { tokio::time::timeout(CLOSE_TIMEOUT, self.ended.recv()).await };
        // Nothing is sent on this channel; it closes when all edges have ended.
        _ = runtime.block_on(ended);
        runtime.shutdown_timeout(CLOSE_TIMEOUT);
        self.files.drain(..).for_each(|file| _ = std::fs::remove_file(file));
        ingest.tell();
        let figures = self.logging.take().map(Logging::end).unwrap_or_default();
        Statistics { kernel_dropped, ..ingest.statistics(&figures) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

/// Binds a unix socket that all users may write to, like `/dev/log`. The socket of a killed service
/// is replaced.
fn bind<T>(
    path: &Path,
    bind: impl Fn(&Path) -> io::Result<T>,
    is_used: impl Fn(&Path) -> bool,
) -> io::Result<T> {
    let is_socket = || path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
    let bound = match bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_socket() => {
            if is_used(path) {
                return Err(io::Error::new(error.kind(), "another program listens there"));
            }
            std::fs::remove_file(path)?;
            bind(path)?
        }
        bound => bound?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(bound)
}
