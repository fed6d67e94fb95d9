//! Datagrams: UDP, and unix sockets like `/dev/log`.

use std::io;
use std::os::fd::AsFd;

use tokio::net::{UdpSocket, UnixDatagram};
use tokio::time::{Instant, timeout_at};

use crate::decode::{self, Format};
use crate::endpoint::{DRAIN_IDLE_TIMEOUT, DRAIN_TIMEOUT, Edge};
use crate::sender::{Cause, Peer, Sender};

/// More bytes than any datagram of UDP, or of a unix socket with the default
/// `net.core.wmem_default`.
const MAX_DATAGRAM_BYTES: usize = 256 << 10;
/// The requested size of the receive buffer; the kernel limits it to `net.core.rmem_max`.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// A socket for datagrams.
pub(crate) enum Datagrams {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl Datagrams {
    /// Requests a larger receive buffer.
    pub(crate) fn keep_more(socket: &impl AsFd) {
        // Most machines grant less; the kernel's drops are counted.
        _ = rustix::net::sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER_BYTES);
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Peer)> {
        match self {
            Self::Udp(socket) => {
                let (count, address) = socket.recv_from(buffer).await?;
                Ok((count, address.ip().into()))
            }
            Self::Unix(socket) => Ok((socket.recv(buffer).await?, Peer::Local)),
        }
    }

    /// Receives datagrams until the server closes, then the pending ones.
    pub(crate) async fn run(self, format: Format, edge: Edge) {
        let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
        let mut sender = None;
        loop {
            let received = tokio::select! {
                received = self.receive(&mut buffer) => received,
                () = edge.closing() => break,
            };
            // An error concerns one datagram; the socket stays usable.
            if let Ok((count, peer)) = received {
                take(&buffer[..count], peer, format, &mut sender, &edge);
            }
        }
        let most = Instant::now() + DRAIN_TIMEOUT;
        let until = || most.min(Instant::now() + DRAIN_IDLE_TIMEOUT);
        while let Ok(Ok((count, peer))) = timeout_at(until(), self.receive(&mut buffer)).await {
            take(&buffer[..count], peer, format, &mut sender, &edge);
        }
    }
}

/// Decodes a datagram. The sender of the last one is cached.
fn take(bytes: &[u8], peer: Peer, format: Format, last: &mut Option<Sender>, edge: &Edge) {
    let same = last.take().filter(|sender| sender.peer == peer);
    let sender = same.unwrap_or_else(|| edge.ingest.sender(peer));
    if bytes.len() == MAX_DATAGRAM_BYTES {
        let why = format_args!("a datagram has {MAX_DATAGRAM_BYTES} bytes or more");
        sender.refuse(Cause::TooLarge, &why);
    } else {
        decode::datagram(format, bytes, &sender, &edge.arrival());
    }
    *last = Some(sender);
}
