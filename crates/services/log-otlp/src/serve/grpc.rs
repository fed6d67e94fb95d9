//! OTLP over gRPC: the call `Export` of OpenTelemetry's `LogsService`.
//!
//! Source: OTLP's specification, "OTLP/gRPC".

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::Bytes;
use helio_http::bytes_codec::RawCodec;
use helio_http::{Peer, Place};
use prost::Message as _;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};

use super::http::{NOT_STORED, response};
use super::{Answer, Format, MAX_REQUEST_BYTES, RETRY_DELAY, Service};
use crate::{EXPORT_PATH, proto};

const NO_ROOM: &str = "there is no room for more at the moment";
/// The type of a status's details with a retry delay.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

pub(super) fn routes(service: Arc<Service>) -> Router {
    let unknown = || async {
        let told = "only opentelemetry.proto.collector.logs.v1.LogsService/Export is served here";
        Status::unimplemented(told).into_http::<Body>()
    };
    Router::new().route(EXPORT_PATH, post(export)).fallback(unknown).with_state(service)
}

async fn export(
    State(service): State<Arc<Service>>,
    ConnectInfo(Peer(sender)): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let Some(place) = service.peers.request(sender) else {
        return later(Code::ResourceExhausted, NO_ROOM, RETRY_DELAY).into_http::<Body>();
    };
    let call = Call { service: Arc::clone(&service), sender, place: Some(place) };
    let mut grpc = Grpc::new(RawCodec)
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(MAX_REQUEST_BYTES);
    // Reading the body and storing the records are one call here.
    let most = service.limits.unfinished + service.limits.stored;
    let answered = tokio::time::timeout(most, grpc.unary(call, request)).await;
    let Ok(mut answered) = answered else {
        service.peers.timed_out(sender);
        return Status::deadline_exceeded("the request came too slowly").into_http::<Body>();
    };
    // For a message that is too large the library returns a code on which OTLP's clients retry.
    let exhausted = HeaderValue::from(Code::ResourceExhausted as i32);
    let headers = answered.headers_mut();
    let says_when = headers.contains_key("grpc-status-details-bin");
    let status = headers.get_mut("grpc-status");
    let too_large = |status: &&mut HeaderValue| {
        status.as_bytes() == b"11" || **status == exhausted && !says_when
    };
    if let Some(status) = status.filter(too_large) {
        *status = exhausted.clone();
        service.take.refused(sender, 0, "a request of too many bytes");
    }
    answered.map(Body::new)
}

/// A sender's call.
struct Call {
    service: Arc<Service>,
    sender: SocketAddr,
    place: Option<Place>,
}

impl UnaryService<Bytes> for Call {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let (service, sender) = (Arc::clone(&self.service), self.sender);
        let place = self.place.take();
        let bytes = request.into_inner();
        Box::pin(async move {
            match service.handle(sender, Format::Protobuf, place, || Ok(bytes)).await {
                Answer::Taken { refused, reason } => {
                    let answer = response(refused, reason).encode_to_vec();
                    Ok(tonic::Response::new(answer.into()))
                }
                Answer::Wrong(reason) => Err(Status::invalid_argument(reason)),
                Answer::TooLarge(reason) => Err(Status::resource_exhausted(reason)),
                Answer::Later(after) => Err(later(Code::ResourceExhausted, NO_ROOM, after)),
                Answer::NotStored(after) => Err(later(Code::Unavailable, NOT_STORED, after)),
                Answer::Failed(reason) => Err(Status::internal(reason)),
            }
        })
    }
}

/// A response that asks to retry; the details have the delay.
fn later(code: Code, message: &str, after: Duration) -> Status {
    let delay = proto::Delay {
        seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        nanos: after.subsec_nanos() as i32,
    };
    let info = proto::RetryInfo { retry_delay: Some(delay) };
    let status = proto::Status {
        code: code as i32,
        message: message.to_owned(),
        details: vec![proto::Any { type_url: RETRY_INFO.to_owned(), value: info.encode_to_vec() }],
    };
    let mut metadata = MetadataMap::new();
    // OpenTelemetry's Python exporter reads it here.
    let bytes = MetadataValue::from_bytes(&info.encode_to_vec());
    metadata.insert_bin("google.rpc.retryinfo-bin", bytes);
    let details = status.encode_to_vec().into();
    Status::with_details_and_metadata(code, message, details, metadata)
}
