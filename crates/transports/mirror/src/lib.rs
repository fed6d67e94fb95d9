//! A log copied from journal to journal over TCP and mutual TLS, with its user's messages.
//!
//! It knows TCP, TLS and the bus's exclusive logs. It must not know what records and messages mean.
//!
//! - [`end`]: the ends, of which one connects and one listens; the guard's report.
//! - `session`: a session and its threads. `channel`: a TLS connection that two threads use.
//! - [`log`]: exclusive logs as source and copy. [`wire`]: the bytes (`docs/formats/mirror.md`).
//!
//! Operation. The end that connects tries again until it is closed, at most every second. A new
//! session replaces the old one: its threads have ended before the new one begins, and a copy is
//! continued at the offset that the sink has. So neither a loss nor a repetition is possible, as
//! long as both logs keep what they stored.

mod channel;
pub mod end;
pub mod log;
mod session;
pub mod wire;

use std::path::PathBuf;
use std::sync::Arc;

use helio_tls::{ClientTls, Tls, TlsError, TlsFiles};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};

pub use channel::{HANDSHAKE_TIMEOUT, WRITE_TIMEOUT};
pub use end::{Dialer, Listener, Options, report_end};
pub use log::{LogSink, LogSource, source_epoch};
pub use session::MAX_IN_FLIGHT;

/// The files of an end, in PEM. Changed files count for the next connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorFiles {
    /// This end's certificate, followed by those between it and its authority. The end that
    /// connects checks it for the name that it connects to.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The authorities of the peer's certificate.
    pub authorities: PathBuf,
    /// The names (common name, or DNS name) of which the peer's certificate must have one.
    pub allowed_names: Vec<String>,
}

/// TLS of both directions.
pub(crate) struct MirrorTls {
    files: MirrorFiles,
    server: Tls,
}

impl MirrorTls {
    fn new(files: MirrorFiles) -> Result<Self, TlsError> {
        let server = TlsFiles {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            client_authorities: Some(files.authorities.clone()),
            allowed_names: files.allowed_names.clone(),
        };
        let this = Self { server: Tls::new(server, &[])?, files };
        this.client()?;
        Ok(this)
    }

    fn server(&self) -> Arc<ServerConfig> {
        self.server.config()
    }

    fn client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let MirrorFiles { certificate, key, authorities, .. } = self.files.clone();
        let (authorities, certificate, key) = (Some(authorities), Some(certificate), Some(key));
        ClientTls { authorities, certificate, key }.config(&[])
    }

    fn admits(&self, certificates: Option<&[CertificateDer<'_>]>) -> bool {
        !self.files.allowed_names.is_empty() && self.server.admits(certificates)
    }
}
