//! TLS for servers and clients: certificates from files, authorities, and names that are admitted.
//!
//! It knows rustls and PEM files. It must not know sockets, a runtime, or a protocol above.
//!
//! Operation. Files are read again when a connection begins and one of them has changed. Files that
//! cannot be used, as in the middle of a renewal, leave the last good ones in use.

mod names;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

/// The files of a server's TLS, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by those between it and its authority.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The authorities of clients' certificates; without it, clients need none.
    pub client_authorities: Option<PathBuf>,
    /// The names (common name, or DNS name) of which a client's certificate must have one; if it is
    /// empty, all clients that an authority vouches for are admitted.
    pub allowed_names: Vec<String>,
}

/// The files of a client's TLS, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// The authorities of servers' certificates.
    pub authorities: Option<PathBuf>,
    /// The client's certificate, followed by those between it and its authority.
    pub certificate: Option<PathBuf>,
    /// The certificate's private key.
    pub key: Option<PathBuf>,
}

/// Files that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file holds nothing of what it should.
    #[error("{path} is no PEM file with a {what}: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What was expected.
        what: &'static str,
        /// Why it is not.
        reason: String,
    },
    /// The certificate and its key do not belong together, or an authority's cannot be used.
    #[error("the certificates of {path} cannot be used: {reason}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Names are given, but no authority that vouches for them.
    #[error("allowed names need the authorities of clients: give their file, too")]
    NamesWithoutAuthorities,
    /// A client has no authorities to check the server by.
    #[error("TLS needs the authorities of the server's certificate: give their file")]
    NoAuthorities,
    /// A client's certificate without a key, or the other way round.
    #[error("a client's certificate and its key belong together: give both files")]
    CertificateWithoutKey,
}

/// When each file was changed, and how long it was then.
type Stamps = Vec<(Option<SystemTime>, u64)>;

/// The configuration of each new connection.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    protocols: &'static [&'static [u8]],
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    stamps: Stamps,
    config: Arc<ServerConfig>,
}

impl Tls {
    /// Reads the files of a server that offers protocols by ALPN; none if the list is empty.
    ///
    /// # Errors
    /// Files that cannot be used.
    pub fn new(files: TlsFiles, protocols: &'static [&'static [u8]]) -> Result<Self, TlsError> {
        if !files.allowed_names.is_empty() && files.client_authorities.is_none() {
            return Err(TlsError::NamesWithoutAuthorities);
        }
        let stamps = files.stamps();
        let config = files.config(protocols)?;
        Ok(Self { files, protocols, last: Mutex::new(Last { stamps, config }) })
    }

    /// The configuration for a connection that begins now.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        let stamps = self.files.stamps();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.stamps != stamps
            && let Ok(config) = self.files.config(self.protocols)
        {
            *last = Last { stamps, config };
        }
        Arc::clone(&last.config)
    }

    /// Whether a client with a certificate that was verified is admitted.
    #[must_use]
    pub fn admits(&self, certificates: Option<&[CertificateDer<'_>]>) -> bool {
        admits(&self.files.allowed_names, certificates)
    }
}

/// Whether the first of a peer's verified certificates has one of some names (common name, or DNS
/// name); without names, every peer is admitted.
#[must_use]
pub fn admits(allowed: &[String], certificates: Option<&[CertificateDer<'_>]>) -> bool {
    let first = certificates.and_then(<[CertificateDer<'_>]>::first);
    allowed.is_empty()
        || first.is_some_and(|der| names::of(der).iter().any(|name| allowed.contains(name)))
}

/// The names of a verified certificate, for messages.
#[must_use]
pub fn names_of(certificates: Option<&[CertificateDer<'_>]>) -> Vec<String> {
    let first = certificates.and_then(<[CertificateDer<'_>]>::first);
    first.map(|der| names::of(der)).unwrap_or_default()
}

impl TlsFiles {
    fn stamps(&self) -> Stamps {
        let files = [&self.certificate, &self.key].into_iter().chain(&self.client_authorities);
        let stamp = |path: &PathBuf| match fs::metadata(path) {
            Ok(found) => (found.modified().ok(), found.len()),
            Err(_) => (None, 0),
        };
        files.map(stamp).collect()
    }

    fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let private = private_key(&self.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&self.certificate, error.to_string()))?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|error| refused(path, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certificates(&self.certificate)?, private)
            .map_err(|error| refused(&self.certificate, error.to_string()))?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

impl ClientTls {
    /// The configuration of connections to servers, read from the files; it offers protocols by
    /// ALPN, none if the list is empty.
    ///
    /// # Errors
    /// Files that cannot be used.
    pub fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
        let authorities = self.authorities.as_deref().ok_or(TlsError::NoAuthorities)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(authorities, error.to_string()))?
            .with_root_certificates(roots(authorities)?);
        let mut config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => builder
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(|error| refused(certificate, error.to_string()))?,
            _ => return Err(TlsError::CertificateWithoutKey),
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

fn refused(path: &Path, reason: String) -> TlsError {
    TlsError::Refused { path: path.into(), reason }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| TlsError::Content {
        path: path.into(),
        what: "private key",
        reason: error.to_string(),
    })
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| refused(path, error.to_string()))?;
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.into(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content =
        |reason: String| TlsError::Content { path: path.into(), what: "certificate", reason };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match found {
        Ok(found) if found.is_empty() => Err(content("it has none".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(content(error.to_string())),
    }
}
