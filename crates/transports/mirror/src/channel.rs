//! A TLS connection that one thread reads while others write.
//!
//! Constraints: a write lasts at most [`WRITE_TIMEOUT`], a handshake [`HANDSHAKE_TIMEOUT`]. The
//! lock of the TLS state is never held during a system call, so a reader is not delayed by a peer
//! that reads nothing.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use helio_bus::mirror::MirrorError;
use helio_bus::transport::locked;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::MirrorTls;
use crate::wire::{Expect, Frame};

/// The most time for a connection, and for a TLS handshake with the first frame.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most time that the system may take no byte of a frame.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Plain bytes that are encrypted at once.
const PIECE_BYTES: usize = 64 << 10;
/// Encrypted bytes that are read at once.
const READ_BYTES: usize = 128 << 10;

/// Both directions of a connection; the receiving one is a [`Receiver`].
pub(crate) struct Channel {
    socket: TcpStream,
    tls: Mutex<Connection>,
    /// Plain bytes of a frame, and encrypted bytes; held while they are written.
    buffers: Mutex<(Vec<u8>, Vec<u8>)>,
    pub(crate) peer: String,
}

/// The receiving direction.
pub(crate) struct Receiver {
    pub(crate) channel: Arc<Channel>,
    encrypted: Box<[u8]>,
    plain: BytesMut,
}

fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Connects and proves both ends' certificates to each other.
pub(crate) fn dial(address: &str, tls: &MirrorTls) -> Result<Receiver, MirrorError> {
    let peer = address.to_owned();
    let failed = |reason: String| MirrorError::Connection { peer: address.to_owned(), reason };
    let resolved = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let mut last = failed("the name has no address".to_owned());
    for one in resolved {
        match TcpStream::connect_timeout(&one, HANDSHAKE_TIMEOUT) {
            Ok(socket) => {
                let config = tls.client().map_err(|error| failed(error.to_string()))?;
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_matches(['[', ']']).to_owned();
                let name = ServerName::try_from(host).map_err(|error| failed(error.to_string()))?;
                let connection = ClientConnection::new(config, name);
                let connection = connection.map_err(|error| failed(error.to_string()))?;
                return shake(socket, connection.into(), peer, tls);
            }
            Err(error) => last = failed(error.to_string()),
        }
    }
    Err(last)
}

/// Proves both ends' certificates to each other on a connection that was accepted.
pub(crate) fn accept(socket: TcpStream, tls: &MirrorTls) -> Result<Receiver, MirrorError> {
    let peer = socket.peer_addr().map_or_else(|_| "?".to_owned(), |peer| peer.to_string());
    let connection = ServerConnection::new(tls.server());
    let failed = |error: rustls::Error| MirrorError::Connection {
        peer: peer.clone(),
        reason: error.to_string(),
    };
    let connection = connection.map_err(failed)?;
    shake(socket, connection.into(), peer, tls)
}

fn shake(
    mut socket: TcpStream,
    mut tls: Connection,
    peer: String,
    files: &MirrorTls,
) -> Result<Receiver, MirrorError> {
    let shaken = shake_within(&mut socket, &mut tls);
    shaken.map_err(|error| {
        let reason = format!("no TLS session: {error}; check both ends' certificates");
        MirrorError::Connection { peer: peer.clone(), reason }
    })?;
    if !files.admits(tls.peer_certificates()) {
        let names = helio_tls::names_of(tls.peer_certificates());
        return Err(MirrorError::NotAdmitted { peer, names });
    }
    tls.set_buffer_limit(None);
    let (tls, buffers) = (Mutex::new(tls), Mutex::default());
    let channel = Arc::new(Channel { socket, tls, buffers, peer });
    let encrypted = vec![0; READ_BYTES].into_boxed_slice();
    let mut receiver =
        Receiver { channel: Arc::clone(&channel), encrypted, plain: BytesMut::new() };
    // The peer's first frame may have come with the end of its handshake.
    receiver.decrypt(0).map_err(|error| channel.failed(error))?;
    Ok(receiver)
}

fn shake_within(socket: &mut TcpStream, tls: &mut Connection) -> io::Result<()> {
    let end = Instant::now() + HANDSHAKE_TIMEOUT;
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
    while tls.is_handshaking() || tls.wants_write() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        if tls.wants_write() {
            tls.write_tls(socket)?;
            continue;
        }
        socket.set_read_timeout(Some(left))?;
        if tls.read_tls(socket)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert names the cause to the peer.
            let _ = tls.write_tls(socket);
            return Err(tls_error(error));
        }
    }
    Ok(())
}

impl Channel {
    fn failed(&self, reason: impl ToString) -> MirrorError {
        MirrorError::Connection { peer: self.peer.clone(), reason: reason.to_string() }
    }

    pub(crate) fn protocol(&self, reason: impl ToString) -> MirrorError {
        MirrorError::Protocol { peer: self.peer.clone(), reason: reason.to_string() }
    }

    /// Sends a frame. After an error, the connection cannot be used any more.
    pub(crate) fn send(&self, frame: &Frame) -> Result<(), MirrorError> {
        let mut buffers = locked(&self.buffers);
        let (plain, encrypted) = &mut *buffers;
        plain.clear();
        frame.encode(plain);
        let sent = plain.chunks(PIECE_BYTES).try_for_each(|piece| {
            encrypted.clear();
            let mut tls = locked(&self.tls);
            tls.writer().write_all(piece)?;
            while tls.wants_write() {
                tls.write_tls(encrypted)?;
            }
            drop(tls);
            (&self.socket).write_all(encrypted)
        });
        if plain.capacity() > 16 * PIECE_BYTES {
            *plain = Vec::new();
        }
        sent.map_err(|error| {
            // A part of a frame may be on its way.
            self.shut();
            self.failed(error)
        })
    }

    /// Ends both directions; readers and writers fail.
    pub(crate) fn shut(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Sets how long [`Receiver::receive`] waits; `None`: without a limit.
    pub(crate) fn limit(&self, wait: Option<Duration>) -> Result<(), MirrorError> {
        self.socket.set_read_timeout(wait).map_err(|error| self.failed(error))
    }
}

impl Receiver {
    /// The next frame; `None` if the limit passed without one.
    pub(crate) fn receive(&mut self, expect: Expect) -> Result<Option<Frame>, MirrorError> {
        let channel = Arc::clone(&self.channel);
        loop {
            let taken = Frame::take(&mut self.plain, expect);
            if let Some(frame) = taken.map_err(|bad| channel.protocol(bad))? {
                return Ok(Some(frame));
            }
            let read = match (&channel.socket).read(&mut self.encrypted) {
                Ok(0) => return Err(channel.failed("the peer closed the connection")),
                Ok(read) => read,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(None),
                    ErrorKind::Interrupted => continue,
                    _ => return Err(channel.failed(error)),
                },
            };
            self.decrypt(read).map_err(|error| channel.failed(error))?;
        }
    }

    fn decrypt(&mut self, read: usize) -> io::Result<()> {
        let mut encrypted = &self.encrypted[..read];
        let mut tls = locked(&self.channel.tls);
        loop {
            let state = tls.process_new_packets().map_err(tls_error)?;
            let ready = state.plaintext_bytes_to_read();
            let before = self.plain.len();
            self.plain.resize(before + ready, 0);
            tls.reader().read_exact(&mut self.plain[before..])?;
            if encrypted.is_empty() {
                return Ok(());
            }
            tls.read_tls(&mut encrypted)?;
        }
    }

    /// The next frame within a time; a longer silence is an error.
    pub(crate) fn first(&mut self, wait: Duration, expect: Expect) -> Result<Frame, MirrorError> {
        let end = Instant::now() + wait;
        self.channel.limit(Some(wait))?;
        let late = || self.channel.failed("no frame came in time");
        let late = late();
        loop {
            if let Some(frame) = self.receive(expect)? {
                return Ok(frame);
            }
            if Instant::now() >= end {
                return Err(late);
            }
        }
    }
}
