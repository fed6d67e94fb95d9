//! The way out: a client of OTLP, over gRPC or HTTP. A call blocks, for the time-out at most.

mod grpc;
mod http;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

use thiserror::Error;

use crate::read::reason;

/// The most bytes of an answer, which says a number and a reason.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// OTLP's protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// gRPC; its port is 4317.
    Grpc,
    /// HTTP with Protobuf in it; its port is 4318.
    Http,
}

/// How a receiver is asked, beside its URL.
#[derive(Debug, Clone)]
pub struct ExporterOptions {
    /// What goes with each request, such as `authorization: Bearer ...`; over gRPC it is metadata.
    pub headers: Vec<(String, String)>,
    /// How long a request may take.
    pub timeout: Duration,
}

impl Default for ExporterOptions {
    /// Ten seconds, as OpenTelemetry's exporters have them.
    fn default() -> Self {
        Self { headers: Vec::new(), timeout: Duration::from_secs(10) }
    }
}

/// What a receiver cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The URL is none.
    #[error("invalid URL of a receiver {url:?}: {cause}; write it like http://localhost:4318")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A header is none.
    #[error("invalid name or value of the header {0:?}")]
    Header(String),
    /// The client cannot be started.
    #[error("the client for OTLP cannot be started: {0}")]
    Start(String),
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportError {
    /// The same request may be taken later.
    #[error("{cause}")]
    Later {
        /// When, where the receiver says it.
        after: Option<Duration>,
        /// What happened.
        cause: String,
    },
    /// The receiver takes less at once.
    #[error("{0}")]
    TooLarge(String),
    /// The receiver refuses what is in it.
    #[error("{0}")]
    Refused(String),
    /// The receiver refuses whatever comes: the address is not right, or who asks may not.
    #[error("{0}")]
    Never(String),
}

/// What a receiver that took a request has refused of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refused {
    /// How many records.
    pub records: u64,
    /// Its words; they may be there as a warning where nothing was refused.
    pub reason: String,
}

impl Refused {
    fn of(answer: crate::proto::Response) -> Self {
        let partial = answer.partial_success.unwrap_or_default();
        let records = u64::try_from(partial.rejected_log_records).unwrap_or(0);
        Self { records, reason: reason(partial.error_message) }
    }
}

/// A client of a receiver. Requests are packed with gzip.
pub struct Exporter(Client);

enum Client {
    Grpc(grpc::Client),
    Http(http::Client),
}

impl Exporter {
    /// A client of the receiver at a URL. Nothing is asked yet. An URL of HTTP without a path has
    /// `/v1/logs` put behind it, as OpenTelemetry's exporters do.
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

    /// Sends an `ExportLogsServiceRequest`; what it gives was refused of it, for good.
    ///
    /// # Errors
    /// [`ExportError`]; which are to be tried again is as OTLP's specification has it.
    pub fn export(&self, request: Vec<u8>) -> Result<Refused, ExportError> {
        match &self.0 {
            Client::Grpc(client) => client.export(request),
            Client::Http(client) => client.export(&request),
        }
    }
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What its headers say is nobody's business.
        f.write_str(match self.0 {
            Client::Grpc(_) => "Exporter(gRPC)",
            Client::Http(_) => "Exporter(HTTP)",
        })
    }
}
