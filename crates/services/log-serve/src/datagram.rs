//! Datagrams: UDP, and unix sockets as `/dev/log` is one.

use std::io;
use std::os::fd::AsFd;

use tokio::net::{UdpSocket, UnixDatagram};
use tokio::time::{Instant, timeout_at};

use crate::decode::{self, Format};
use crate::endpoint::{DRAIN_IDLE_TIMEOUT, DRAIN_TIMEOUT, Edge};
use crate::sender::{Cause, Peer, Sender};

/// More bytes than a datagram of UDP has, and than one of a unix socket has with the system's
/// default of `net.core.wmem_default`.
const MAX_DATAGRAM_BYTES: usize = 256 << 10;
/// Bytes that the kernel is asked to keep for us; it gives as many as `net.core.rmem_max` says.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Where datagrams come in.
pub(crate) enum Datagrams {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl Datagrams {
    /// Asks the kernel to keep more of what was not read yet.
    pub(crate) fn keep_more(socket: &impl AsFd) {
        // What it gives is less than this on most machines; what it drops is counted.
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

    /// Takes datagrams until the server ends, and then those that were waiting.
    pub(crate) async fn run(self, format: Format, edge: Edge) {
        let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
        let mut sender = None;
        loop {
            let received = tokio::select! {
                received = self.receive(&mut buffer) => received,
                () = edge.closing() => break,
            };
            // An error is that of a datagram; the socket stays.
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

/// Takes one; who sent the last one often sends the next one.
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
