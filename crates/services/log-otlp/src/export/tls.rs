//! Connections behind TLS for gRPC: the system's OpenSSL, with the system's certificates.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_native_tls::TlsStream;
use tonic::transport::Uri;
use tower_service::Service;

use super::TargetError;

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector(tokio_native_tls::TlsConnector);

impl Connector {
    pub(super) fn new() -> Result<Self, TargetError> {
        // gRPC is HTTP/2, which must be negotiated.
        let connector = native_tls::TlsConnector::builder().request_alpns(&["h2"]).build();
        let connector = connector.map_err(|error| TargetError::Start(error.to_string()))?;
        Ok(Self(connector.into()))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.0.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
            stream.set_nodelay(true)?;
            let stream = connector.connect(host, stream).await.map_err(io::Error::other)?;
            Ok(TokioIo::new(stream))
        })
    }
}
