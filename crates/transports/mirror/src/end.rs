//! The ends of a mirror: one connects, one listens.
//!
//! Constraints: one session at a time; connections that did not prove themselves yet are at most
//! [`MAX_HANDSHAKES`]. A peer that is not admitted changes nothing.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use helio_bus::mirror::{
    CopyMarks, MAX_MESSAGE_BYTES, Mirror, MirrorError, MirrorFigures, MirrorSession, MirrorSink,
    MirrorSource, MirrorUser, SessionName,
};
use helio_bus::transport::locked;
use helio_tls::TlsError;

use crate::channel::{self, HANDSHAKE_TIMEOUT, Receiver};
use crate::session::{Context, Copied, Session};
use crate::wire::{Expect, Frame, Purpose};
use crate::{MirrorFiles, MirrorTls};

/// Connections that have not proved themselves yet, at most.
pub const MAX_HANDSHAKES: usize = 16;
/// The pauses between attempts to connect: the first, and the longest.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Options of an end.
pub struct Options {
    /// The name of the log, which both ends share.
    pub log: String,
    /// Certificates.
    pub files: MirrorFiles,
    /// The interval of beats.
    pub beat_interval: Duration,
    /// How long a peer may send no beat.
    pub silence: Duration,
    /// What is copied to the peer.
    pub source: Option<Box<dyn MirrorSource>>,
    /// What is copied from the peer.
    pub sink: Option<Box<dyn MirrorSink>>,
    /// Who is notified.
    pub user: Arc<dyn MirrorUser>,
}

impl Options {
    /// Options of an end that copies nothing: beats every 50 ms, and 2 s of silence.
    #[must_use]
    pub fn new(log: &str, files: MirrorFiles) -> Self {
        Self {
            log: log.to_owned(),
            files,
            beat_interval: Duration::from_millis(50),
            silence: Duration::from_secs(2),
            source: None,
            sink: None,
            user: Arc::new(()),
        }
    }
}

/// Why an end cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The system refuses the address, or a thread.
    #[error("{address}: {source}")]
    System {
        /// The address.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No peer would be admitted.
    #[error("no name is allowed: name those that the peer's certificate may have")]
    NoNames,
}

/// What the threads of an end share.
struct Shared {
    log: String,
    tls: MirrorTls,
    context: Arc<Context>,
    /// `None` while a session has it.
    copied: Mutex<Option<Copied>>,
    returned: Condvar,
    present: Mutex<Option<Arc<Session>>>,
    /// `present` has changed.
    began: Condvar,
    /// Sessions begin one after the other.
    turn: Mutex<()>,
    closed: AtomicBool,
    handshakes: AtomicUsize,
}

fn random() -> Result<u64, MirrorError> {
    let mut bytes = [0; 8];
    let failed = |reason: String| MirrorError::Connection { peer: "random numbers".into(), reason };
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    filled.map_err(|error| failed(error.to_string()))?;
    // 0 stands for a number that is not known yet.
    Ok(u64::from_le_bytes(bytes) | 1)
}

impl Shared {
    fn new(options: Options) -> Result<Arc<Self>, EndError> {
        let Options { log, files, beat_interval, silence, source, sink, user } = options;
        if files.allowed_names.is_empty() {
            return Err(EndError::NoNames);
        }
        let figures = Mutex::default();
        let context = Arc::new(Context { user, figures, beat_interval, silence });
        Ok(Arc::new(Self {
            log,
            tls: MirrorTls::new(files)?,
            context,
            copied: Mutex::new(Some(Copied { source, sink })),
            returned: Condvar::new(),
            began: Condvar::new(),
            present: Mutex::default(),
            turn: Mutex::default(),
            closed: AtomicBool::new(false),
            handshakes: AtomicUsize::new(0),
        }))
    }

    fn hello(&self, purpose: Purpose, session: SessionName) -> Frame {
        Frame::Hello { purpose, session, log: self.log.clone() }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits for the end of the session, and gives the logs back.
    fn release(&self) {
        let mut copied = locked(&self.copied);
        while copied.is_none() {
            copied = self.returned.wait(copied).unwrap_or_else(PoisonError::into_inner);
        }
        *copied = Some(Copied::default());
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let session = locked(&self.present).clone();
        if let Some(session) = session {
            session.close();
        }
        self.returned.notify_all();
    }

    /// Connects for a purpose. Returns the session's name with the peer's number.
    fn dial(
        &self,
        address: &str,
        purpose: Purpose,
        session: SessionName,
    ) -> Result<(Receiver, SessionName), MirrorError> {
        let mut receiver = channel::dial(address, &self.tls)?;
        receiver.channel.send(&self.hello(purpose, session))?;
        match receiver.first(HANDSHAKE_TIMEOUT, Expect::Hello)? {
            Frame::Hello { purpose: same, session: theirs, log }
                if same == purpose
                    && theirs.dialer == session.dialer
                    && (purpose == Purpose::Session || theirs == session)
                    && log == self.log =>
            {
                Ok((receiver, theirs))
            }
            Frame::Refused(reason) => {
                Err(MirrorError::Refused { peer: address.to_owned(), reason })
            }
            _ => Err(receiver.channel.protocol("another hello than the one asked for")),
        }
    }

    /// Ends the present session, and runs the next one. Nothing of the old one is delivered once
    /// the new one begins.
    fn run(
        self: &Arc<Self>,
        receiver: Receiver,
        name: SessionName,
        beats: Option<Receiver>,
    ) -> MirrorError {
        let turn = locked(&self.turn);
        let before = locked(&self.present).clone();
        if let Some(before) = before {
            before.end(MirrorError::Replaced);
        }
        let mut copied = locked(&self.copied);
        while copied.is_none() {
            copied = self.returned.wait(copied).unwrap_or_else(PoisonError::into_inner);
        }
        let Some(own) = copied.take() else { return MirrorError::Closed };
        drop(copied);
        let mut returned = Returned { shared: self, copied: Copied::default() };
        let session = Session::new(name, Arc::clone(&receiver.channel), Arc::clone(&self.context));
        *locked(&self.present) = Some(Arc::clone(&session));
        self.began.notify_all();
        drop(turn);
        if self.is_closed() {
            session.close();
        }
        locked(&self.context.figures).sessions += 1;
        let beating = beats.map(|beats| self.beats(&session, beats));
        let (own, reason) = session.run(receiver, own);
        if let Some(Ok(beating)) = beating {
            let _ = beating.join();
        }
        self.context.user.closed(Some(name), &reason);
        let mut present = locked(&self.present);
        present.take_if(|present| Arc::ptr_eq(present, &session));
        drop(present);
        returned.copied = own;
        reason
    }

    fn beats(
        self: &Arc<Self>,
        session: &Arc<Session>,
        receiver: Receiver,
    ) -> io::Result<JoinHandle<()>> {
        let session = Arc::clone(session);
        thread::Builder::new().name("mirror-beats".into()).spawn(move || session.beats(receiver))
    }
}

/// Returns what a session copied, also when a user's call panics.
struct Returned<'a> {
    shared: &'a Shared,
    copied: Copied,
}

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        *locked(&self.shared.copied) = Some(std::mem::take(&mut self.copied));
        self.shared.returned.notify_all();
    }
}

/// The end that connects, and tries again until it is closed.
pub struct Dialer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pause: Arc<(Mutex<bool>, Condvar)>,
}

impl Dialer {
    /// Begins to connect to `HOST:PORT`.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn start(address: &str, options: Options) -> Result<Self, EndError> {
        let shared = Shared::new(options)?;
        let pause = Arc::new((Mutex::new(false), Condvar::new()));
        let (this, stop, to) = (Arc::clone(&shared), Arc::clone(&pause), address.to_owned());
        let thread = thread::Builder::new().name("mirror-dial".into());
        let thread = thread.spawn(move || {
            let mut wait = RETRY_PAUSES.0;
            while !this.is_closed() {
                let sessions = locked(&this.context.figures).sessions;
                if let Err(error) = this.dial_once(&to) {
                    this.context.user.closed(None, &error);
                }
                let stood = locked(&this.context.figures).sessions > sessions;
                wait = if stood { RETRY_PAUSES.0 } else { (wait * 2).min(RETRY_PAUSES.1) };
                let stopped = locked(&stop.0);
                if !*stopped {
                    let _unused = stop.1.wait_timeout(stopped, wait);
                }
            }
        });
        let failed = |source| EndError::System { address: address.to_owned(), source };
        let thread = Mutex::new(Some(thread.map_err(failed)?));
        Ok(Self { shared, thread, pause })
    }
}

impl Shared {
    fn dial_once(self: &Arc<Self>, address: &str) -> Result<(), MirrorError> {
        let name = SessionName { dialer: random()?, listener: 0 };
        let (receiver, name) = self.dial(address, Purpose::Session, name)?;
        let (beats, _) = self.dial(address, Purpose::Beats, name)?;
        self.run(receiver, name, Some(beats));
        Ok(())
    }
}

/// The end that listens.
pub struct Listener {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    /// Listens at `HOST:PORT`.
    ///
    /// # Errors
    /// If the system refuses the address, or the files cannot be used.
    pub fn start(address: &str, options: Options) -> Result<Self, EndError> {
        let failed = |source| EndError::System { address: address.to_owned(), source };
        let shared = Shared::new(options)?;
        let listener = TcpListener::bind(address).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let this = Arc::clone(&shared);
        let thread = thread::Builder::new().name("mirror-listen".into());
        let thread = thread.spawn(move || {
            for socket in listener.incoming() {
                if this.is_closed() {
                    break;
                }
                match socket {
                    Ok(socket) => this.accepted(socket),
                    // Too many open files: they are closed by others.
                    Err(_) => thread::park_timeout(RETRY_PAUSES.0),
                }
            }
        });
        let thread = Mutex::new(Some(thread.map_err(failed)?));
        Ok(Self { shared, address: at, thread })
    }

    /// The address; with its port, if the system chose one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Shared {
    /// Serves a connection in a thread of its own, unless too many have not proved themselves.
    fn accepted(self: &Arc<Self>, socket: TcpStream) {
        if self.handshakes.fetch_add(1, Ordering::SeqCst) >= MAX_HANDSHAKES {
            self.handshakes.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        let this = Arc::clone(self);
        let spawned = thread::Builder::new().name("mirror-receive".into()).spawn(move || {
            let shaken = this.shake(socket);
            this.handshakes.fetch_sub(1, Ordering::SeqCst);
            let served = shaken.and_then(|(receiver, purpose, name)| match purpose {
                Purpose::Session => {
                    this.run(receiver, name, None);
                    Ok(())
                }
                Purpose::Beats => this.serve_beats(receiver, name),
                Purpose::Guard => this.serve_guard(receiver),
            });
            if let Err(error) = served {
                this.context.user.closed(None, &error);
            }
        });
        if spawned.is_err() {
            self.handshakes.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn shake(&self, socket: TcpStream) -> Result<(Receiver, Purpose, SessionName), MirrorError> {
        let mut receiver = channel::accept(socket, &self.tls)?;
        let channel = Arc::clone(&receiver.channel);
        let hello = receiver.first(HANDSHAKE_TIMEOUT, Expect::Hello);
        let refuse = |error: MirrorError| {
            let _ = channel.send(&Frame::Refused(error.to_string()));
            error
        };
        let Frame::Hello { purpose, mut session, log } = hello.map_err(refuse)? else {
            return Err(refuse(channel.protocol("no hello")));
        };
        if log != self.log {
            let reason = format!("it mirrors {log}, and this end {}", self.log);
            return Err(refuse(MirrorError::TwoLines { reason }));
        }
        if purpose == Purpose::Session {
            session.listener = random()?;
            // Its beats may come before the session began here.
            channel.send(&self.hello(purpose, session))?;
        }
        Ok((receiver, purpose, session))
    }

    /// Joins beats to their session, which may begin a moment later.
    fn serve_beats(&self, receiver: Receiver, name: SessionName) -> Result<(), MirrorError> {
        let end = Instant::now() + HANDSHAKE_TIMEOUT;
        let mut present = locked(&self.present);
        let session = loop {
            match &*present {
                Some(session) if session.name() == name => break Arc::clone(session),
                _ => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(receiver.channel.protocol("beats of no present session"));
            }
            let waited = self.began.wait_timeout(present, left);
            present = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(present);
        receiver.channel.send(&self.hello(Purpose::Beats, name))?;
        session.beats(receiver);
        Ok(())
    }

    fn serve_guard(&self, mut receiver: Receiver) -> Result<(), MirrorError> {
        receiver.channel.send(&self.hello(Purpose::Guard, SessionName::default()))?;
        match receiver.first(HANDSHAKE_TIMEOUT, Expect::Any)? {
            Frame::Message(message) => self.context.user.ended(message),
            _ => return Err(receiver.channel.protocol("a guard that reports nothing")),
        }
        let marks = CopyMarks::default();
        receiver.channel.send(&Frame::Ack { batches: 0, marks })
    }
}

impl Mirror for Dialer {
    fn session(&self) -> Option<Arc<dyn MirrorSession>> {
        locked(&self.shared.present).clone().map(|session| session as _)
    }

    fn figures(&self) -> MirrorFigures {
        *locked(&self.shared.context.figures)
    }

    fn close(&self) {
        *locked(&self.pause.0) = true;
        self.pause.1.notify_all();
        self.shared.close();
        let thread = locked(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.shared.release();
    }
}

impl Mirror for Listener {
    fn session(&self) -> Option<Arc<dyn MirrorSession>> {
        locked(&self.shared.present).clone().map(|session| session as _)
    }

    fn figures(&self) -> MirrorFigures {
        *locked(&self.shared.context.figures)
    }

    fn close(&self) {
        self.shared.close();
        if locked(&self.thread).is_none() {
            return;
        }
        // Its own connection ends the wait for others.
        let _ = TcpStream::connect_timeout(&self.address, HANDSHAKE_TIMEOUT);
        let thread = locked(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.shared.release();
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Reports the end of the peer's neighbour, as its guard: connects, sends the message, and returns
/// when the other end has handled it.
///
/// # Errors
/// [`MirrorError`] if the report may not have arrived.
pub fn report_end(
    address: &str,
    log: &str,
    files: &MirrorFiles,
    message: Bytes,
) -> Result<(), MirrorError> {
    let (value, limit) = (message.len() as u64, MAX_MESSAGE_BYTES as u64);
    if value > limit {
        return Err(MirrorError::Limit { what: "bytes of a message", value, limit });
    }
    let failed = |reason: String| MirrorError::Connection { peer: address.to_owned(), reason };
    let options = Options::new(log, files.clone());
    let shared = Shared::new(options).map_err(|error| failed(error.to_string()))?;
    let (mut receiver, _) = shared.dial(address, Purpose::Guard, SessionName::default())?;
    receiver.channel.send(&Frame::Message(message))?;
    match receiver.first(HANDSHAKE_TIMEOUT, Expect::Any)? {
        Frame::Ack { .. } => Ok(()),
        _ => Err(receiver.channel.protocol("no acknowledgement of a report")),
    }
}
