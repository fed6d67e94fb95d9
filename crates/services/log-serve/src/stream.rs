//! Streams: connections of TCP and of unix sockets.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::{Instant, timeout, timeout_at};

use crate::decode::{Decoder, Format};
use crate::endpoint::{Admitted, DRAIN_IDLE_TIMEOUT, DRAIN_TIMEOUT, Edge};
use crate::sender::Peer;

/// The size of each connection's buffer.
const READ_BYTES: usize = 16 << 10;
/// The delay after a failed accept, usually for want of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

type Stream = Box<dyn AsyncRead + Send + Unpin>;

impl Listener {
    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Keepalive detects vanished senders; a failure to set it is harmless.
                _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
                Ok((Box::new(stream), address.ip().into()))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred()?.uid();
                Ok((Box::new(stream), Peer::User(user)))
            }
        }
    }

    /// Accepts connections until the server closes, then the pending ones.
    pub(crate) async fn run(self, format: Format, edge: Edge) {
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = edge.closing() => break,
            };
            match accepted {
                Ok((stream, peer)) => begin(stream, peer, format, &edge),
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await,
            }
        }
        while let Ok(Ok((stream, peer))) = timeout(DRAIN_IDLE_TIMEOUT, self.accept()).await {
            begin(stream, peer, format, &edge);
        }
    }
}

fn begin(stream: Stream, peer: Peer, format: Format, edge: &Edge) {
    if let Some(admitted) = edge.admit(peer) {
        tokio::spawn(serve(stream, format, edge.clone(), admitted));
    }
}

/// Reads a connection until it ends, times out, or the server closes.
async fn serve(mut stream: Stream, format: Format, edge: Edge, admitted: Admitted) {
    let mut decoder = Decoder::new(format);
    let mut buffer = vec![0; READ_BYTES];
    let limits = edge.ingest.limits().clone();
    // The time of the first byte of an incomplete message.
    let mut begun: Option<Instant> = None;
    loop {
        let deadline = match begun {
            Some(begun) => begun + limits.unfinished,
            None => Instant::now() + limits.idle,
        };
        let read = tokio::select! {
            read = timeout_at(deadline, stream.read(&mut buffer)) => read,
            () = edge.closing() => break,
        };
        let Ok(read) = read else {
            admitted.timed_out();
            break;
        };
        let Ok(count @ 1..) = read else { break };
        decoder.feed(&buffer[..count]);
        let messages = decoder.hand_on(&admitted.sender, &edge.arrival());
        begun = match begun {
            _ if decoder.is_between() => None,
            Some(begun) if messages == 0 => Some(begun),
            _ => Some(Instant::now()),
        };
        tokio::select! {
            () = edge.room() => {}
            () = edge.closing() => break,
        }
    }
    if edge.is_closing() {
        let most = Instant::now() + DRAIN_TIMEOUT;
        let until = || most.min(Instant::now() + DRAIN_IDLE_TIMEOUT);
        while let Ok(Ok(count @ 1..)) = timeout_at(until(), stream.read(&mut buffer)).await {
            decoder.feed(&buffer[..count]);
            decoder.hand_on(&admitted.sender, &edge.arrival());
            _ = timeout_at(most, edge.room()).await;
        }
    }
    decoder.end();
    decoder.hand_on(&admitted.sender, &edge.arrival());
}
