//! The client of OTLP over gRPC.

use std::error::Error as _;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use helio_http::bytes_codec::RawCodec;
use prost::Message as _;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{ExportError, ExporterOptions, MAX_ANSWER_BYTES, Refused, TargetError, unanswered};
use crate::read::reason;
use crate::{EXPORT_PATH, proto};

pub(super) struct Client {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    url: String,
    metadata: MetadataMap,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(url: &str, options: &ExporterOptions) -> Result<Self, TargetError> {
        let mut metadata = MetadataMap::new();
        for (name, value) in &options.headers {
            let wrong = || TargetError::Header(name.clone());
            let key = MetadataKey::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            metadata.insert(key, MetadataValue::try_from(value.as_str()).map_err(|_| wrong())?);
        }
        // Its thread keeps the connection when nobody calls, and notices when it ends.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("otlp-client")
            .enable_all()
            .build()
            .map_err(|error| TargetError::Start(error.to_string()))?;
        let wrong = |cause: String| TargetError::Url { url: url.to_owned(), cause };
        let endpoint = Endpoint::from_shared(url.to_owned());
        let endpoint = endpoint.map_err(|error| wrong(error.to_string()))?;
        let endpoint = endpoint.connect_timeout(options.timeout).tcp_nodelay(true);
        let entered = runtime.enter();
        let channel = connect(&endpoint)?;
        drop(entered);
        let (url, timeout) = (url.to_owned(), options.timeout);
        Ok(Self { runtime, channel, url, metadata, timeout })
    }

    pub(super) fn export(&self, request: Vec<u8>) -> Result<Refused, ExportError> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone())
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(MAX_ANSWER_BYTES);
        let mut request = tonic::Request::new(request.into());
        *request.metadata_mut() = self.metadata.clone();
        let later = |cause: String| unanswered(&self.url, &cause);
        let answered = self.runtime.block_on(async {
            tokio::time::timeout(self.timeout, async {
                grpc.ready().await.map_err(|error| later(shown(&error)))?;
                let path = PathAndQuery::from_static(EXPORT_PATH);
                grpc.unary(request, path, RawCodec).await.map_err(|status| self.failed(&status))
            })
            .await
        });
        let none = |_| later(format!("no answer within {:?}", self.timeout));
        let answer = answered.map_err(none)??.into_inner();
        Ok(Refused::of(proto::Response::decode(answer).unwrap_or_default()))
    }

    fn failed(&self, status: &Status) -> ExportError {
        if let Some(source) = status.source() {
            // The error is not the receiver's, but of the connection.
            return unanswered(&self.url, &shown(source));
        }
        let code = status.code();
        let said = format!("{} rejected the request: {code:?} {}", self.url, status.message());
        let (after, cause) = (retry_info(status.details()), reason(said));
        match code {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss => ExportError::Later { after, cause },
            Code::ResourceExhausted if after.is_some() => ExportError::Later { after, cause },
            Code::ResourceExhausted => ExportError::TooLarge(cause),
            Code::InvalidArgument => ExportError::Refused(cause),
            _ => ExportError::Never(cause),
        }
    }
}

/// An error with its causes.
fn shown(error: &dyn std::error::Error) -> String {
    let (mut text, mut inner) = (error.to_string(), error.source());
    while let Some(cause) = inner {
        text = format!("{text}: {cause}");
        inner = cause.source();
    }
    text
}

/// The retry delay in the details of a status.
fn retry_info(details: &[u8]) -> Option<Duration> {
    let status = proto::Status::decode(details).ok()?;
    let mut all = status.details.iter();
    let info = all.find(|any| any.type_url.ends_with("google.rpc.RetryInfo"))?;
    let delay = proto::RetryInfo::decode(&info.value[..]).ok()?.retry_delay.unwrap_or_default();
    let seconds = u64::try_from(delay.seconds).unwrap_or(0);
    let nanos = u32::try_from(delay.nanos).unwrap_or(0).min(999_999_999);
    Some(Duration::new(seconds, nanos))
}

#[cfg(feature = "tls")]
fn connect(endpoint: &Endpoint) -> Result<Channel, TargetError> {
    match endpoint.uri().scheme_str() {
        Some("https") => Ok(endpoint.connect_with_connector_lazy(super::tls::Connector::new()?)),
        _ => Ok(endpoint.connect_lazy()),
    }
}

#[cfg(not(feature = "tls"))]
fn connect(endpoint: &Endpoint) -> Result<Channel, TargetError> {
    Ok(endpoint.connect_lazy())
}
