//! A client of OTLP, over gRPC or HTTP. A call blocks at most for the timeout.

mod grpc;
mod http;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

use thiserror::Error;

use crate::read::reason;

/// The most bytes of a response, which has a number and a reason.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// OTLP's protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// gRPC; its port is 4317.
    Grpc,
    /// HTTP with Protobuf; its port is 4318.
    Http,
}

/// The options of an exporter.
#[derive(Debug, Clone)]
pub struct ExporterOptions {
    /// Headers of each request, such as `authorization: Bearer ...`; metadata in gRPC.
    pub headers: Vec<(String, String)>,
    /// The timeout of a request.
    pub timeout: Duration,
}

impl Default for ExporterOptions {
    /// Ten seconds, as in OpenTelemetry's exporters.
    fn default() -> Self {
        Self { headers: Vec::new(), timeout: Duration::from_secs(10) }
    }
}

/// Why an exporter cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The URL is invalid.
    #[error("invalid URL of a receiver {url:?}: {cause}; write it like http://localhost:4318")]
    Url {
        /// The given URL.
        url: String,
        /// The error.
        cause: String,
    },
    /// A header is invalid.
    #[error("invalid name or value of the header {0:?}")]
    Header(String),
    /// The client cannot be started.
    #[error("the client for OTLP cannot be started: {0}")]
    Start(String),
}

/// Why a request was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportError {
    /// The request may be retried.
    #[error("{cause}")]
    Later {
        /// The receiver's retry delay, if it gives one.
        after: Option<Duration>,
        /// The cause.
        cause: String,
    },
    /// The request is too large for the receiver.
    #[error("{0}")]
    TooLarge(String),
    /// The receiver refuses this request.
    #[error("{0}")]
    Refused(String),
    /// The receiver refuses every request: the address or the authorization is wrong.
    #[error("{0}")]
    Never(String),
}

/// The error of a request without an answer. A certificate that is not trusted stays so until
/// somebody changes it; everything else may pass.
fn unanswered(url: &str, cause: &str) -> ExportError {
    let lower = cause.to_ascii_lowercase();
    let is_certificate = ["certificate", "hostname mismatch"].iter().any(|of| lower.contains(of));
    if is_certificate {
        return ExportError::Never(reason(format!(
            "the certificate of {url} is refused: {cause}; SSL_CERT_FILE names others to trust"
        )));
    }
    let cause = reason(format!("{url} does not answer: {cause}"));
    ExportError::Later { after: None, cause }
}

/// The refused part of an accepted request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refused {
    /// The number of refused records.
    pub records: u64,
    /// The receiver's message, which is a warning if nothing was refused.
    pub reason: String,
}

impl Refused {
    fn of(answer: crate::proto::Response) -> Self {
        let partial = answer.partial_success.unwrap_or_default();
        let records = u64::try_from(partial.rejected_log_records).unwrap_or(0);
        Self { records, reason: reason(partial.error_message) }
    }
}

/// A client of a receiver. Requests are compressed with gzip.
pub struct Exporter(Client);

enum Client {
    Grpc(grpc::Client),
    Http(http::Client),
}

impl Exporter {
    /// Creates a client of the receiver at a URL, without connecting. `/v1/logs` is appended to an
    /// HTTP URL without a path, as in OpenTelemetry's exporters.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn new(
        protocol: Protocol,
        url: &str,
        options: &ExporterOptions,
    ) -> Result<Self, TargetError> {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        let wrong = |cause: &str| TargetError::Url { url: url.to_owned(), cause: cause.to_owned() };
        match scheme {
            Some("http") => {}
            Some("https") if cfg!(feature = "tls") => {}
            Some("https") => return Err(wrong("this program was built without TLS (feature tls)")),
            _ => return Err(wrong("it begins neither with http:// nor with https://")),
        }
        Ok(Self(match protocol {
            Protocol::Grpc => Client::Grpc(grpc::Client::new(url, options)?),
            Protocol::Http => Client::Http(http::Client::new(url, options)?),
        }))
    }

    /// Sends an `ExportLogsServiceRequest`. Returns the finally refused part.
    ///
    /// # Errors
    /// [`ExportError`]; retryable errors are those of OTLP's specification.
    pub fn export(&self, request: Vec<u8>) -> Result<Refused, ExportError> {
        match &self.0 {
            Client::Grpc(client) => client.export(request),
            Client::Http(client) => client.export(&request),
        }
    }
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may contain secrets.
        f.write_str(match self.0 {
            Client::Grpc(_) => "Exporter(gRPC)",
            Client::Http(_) => "Exporter(HTTP)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_refused_is_not_tried_again() {
        let url = "https://logs.example.org";
        for cause in [
            "error:0A000086:SSL routines:tls_post_process_server_certificate:certificate verify \
             failed:../ssl/statem/statem_clnt.c:1889: (self-signed certificate)",
            "Hostname mismatch",
        ] {
            let ExportError::Never(told) = unanswered(url, cause) else { panic!("{cause}") };
            assert!(told.contains(url) && told.contains("SSL_CERT_FILE"), "{told}");
        }
        for cause in ["Connection refused (os error 111)", "unexpected EOF", "timeout"] {
            let later = unanswered(url, cause);
            assert!(matches!(later, ExportError::Later { after: None, .. }), "{cause}");
        }
    }
}
