//! TLS of the API: the handshake, with the protocols that gRPC and probes use.

use std::sync::Arc;

use helio_http::{Handshake, Shaken, Stream};
use helio_tls::{Tls, TlsError, TlsFiles};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// The protocol of clients.
pub(crate) const GRPC: &[&[u8]] = &[b"h2"];
/// The protocols that are offered: gRPC needs the first, probes may use the second.
const OFFERED: &[&[u8]] = &[b"h2", b"http/1.1"];

/// The handshake of a server.
pub(crate) struct Accept(Tls);

impl Accept {
    pub(crate) fn new(files: TlsFiles) -> Result<Self, TlsError> {
        Ok(Self(Tls::new(files, OFFERED)?))
    }
}

impl Handshake for Accept {
    fn accept(self: Arc<Self>, stream: TcpStream) -> Shaken {
        Box::pin(async move {
            let stream = TlsAcceptor::from(self.0.config()).accept(stream).await.ok()?;
            let admitted = self.0.admits(stream.get_ref().1.peer_certificates());
            admitted.then(|| Box::new(stream) as Box<dyn Stream>)
        })
    }
}
