//! OTLP over HTTP: `POST /v1/logs`, in Protobuf or JSON, plain or in gzip.
//!
//! Source: OTLP's specification, "OTLP/HTTP".

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use helio_http::{BodyError, Peer, read_body};
use prost::Message;
use serde::Serialize;

use super::{Answer, Format, MAX_REQUEST_BYTES, RETRY_DELAY, Service};
use crate::proto;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
/// Codes of `google.rpc.Code`, sent with an HTTP status.
const INVALID_ARGUMENT: i32 = 3;
const RESOURCE_EXHAUSTED: i32 = 8;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;
/// The message of a request whose records may come twice.
pub(super) const NOT_STORED: &str = "the bus has not stored the records in time; send them again";

pub(super) fn routes(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/logs", post(logs))
        // Slightly more than the limit is read, so that the sender gets a response instead of a
        // reset.
        .layer(DefaultBodyLimit::max(2 * MAX_REQUEST_BYTES))
        .with_state(service)
}

async fn logs(
    State(service): State<Arc<Service>>,
    ConnectInfo(Peer(sender)): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    let unsupported = |what: &str| {
        service.take.refused(sender, 0, what);
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, what.to_owned()).into_response()
    };
    let Some(format) = format(request.headers()) else {
        return unsupported(
            "log records come as application/x-protobuf or application/json; set Content-Type",
        );
    };
    let Some(packed) = packed(request.headers()) else {
        return unsupported("a request comes as it is or in gzip; set Content-Encoding");
    };
    let Some(place) = service.peers.request(sender) else {
        return reply(format, Answer::Later(RETRY_DELAY));
    };
    let body = match read_body(request, service.limits.unfinished).await {
        Ok(body) => body,
        Err(error @ BodyError::TooSlow) => {
            service.peers.timed_out(sender);
            return (StatusCode::REQUEST_TIMEOUT, error.to_string()).into_response();
        }
        Err(error) => {
            let reason = error.to_string();
            service.take.refused(sender, 0, &reason);
            return reply(
                format,
                match error {
                    BodyError::TooLarge(_) => too_large(),
                    _ => Answer::Wrong(reason),
                },
            );
        }
    };
    let unpack = move || match packed {
        _ if body.len() > MAX_REQUEST_BYTES => Err(too_large()),
        Packed::No => Ok(body),
        Packed::Gzip => unzipped(&body),
    };
    reply(format, service.handle(sender, format, Some(place), unpack).await)
}

fn format(headers: &HeaderMap) -> Option<Format> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or(kind).trim();
    match kind {
        kind if kind.eq_ignore_ascii_case(PROTOBUF) => Some(Format::Protobuf),
        kind if kind.eq_ignore_ascii_case(JSON) => Some(Format::Json),
        _ => None,
    }
}

#[derive(Clone, Copy)]
enum Packed {
    No,
    Gzip,
}

fn packed(headers: &HeaderMap) -> Option<Packed> {
    let Some(value) = headers.get(header::CONTENT_ENCODING) else { return Some(Packed::No) };
    match value.to_str().ok()?.trim() {
        "" | "identity" | "none" => Some(Packed::No),
        "gzip" | "x-gzip" => Some(Packed::Gzip),
        _ => None,
    }
}

fn too_large() -> Answer {
    Answer::TooLarge(format!(
        "the request has more than {MAX_REQUEST_BYTES} bytes; send smaller batches"
    ))
}

/// Decompresses, up to the limit of a request.
fn unzipped(body: &[u8]) -> Result<Bytes, Answer> {
    let mut bytes = Vec::new();
    let mut bounded = MultiGzDecoder::new(body).take(MAX_REQUEST_BYTES as u64 + 1);
    match bounded.read_to_end(&mut bytes) {
        Err(error) => Err(Answer::Wrong(format!("the request's gzip is damaged: {error}"))),
        Ok(length) if length > MAX_REQUEST_BYTES => Err(too_large()),
        Ok(_) => Ok(bytes.into()),
    }
}

fn reply(format: Format, answer: Answer) -> Response {
    let refusal = |status: StatusCode, code: i32, message: String| {
        let told = proto::Status { code, message, ..proto::Status::default() };
        written(status, format, &told)
    };
    match answer {
        Answer::Taken { refused, reason } => {
            written(StatusCode::OK, format, &response(refused, reason))
        }
        Answer::Wrong(reason) => refusal(StatusCode::BAD_REQUEST, INVALID_ARGUMENT, reason),
        Answer::TooLarge(reason) => {
            refusal(StatusCode::PAYLOAD_TOO_LARGE, RESOURCE_EXHAUSTED, reason)
        }
        Answer::Later(after) => {
            let message = "there is no room for more at the moment".to_owned();
            later(refusal(StatusCode::TOO_MANY_REQUESTS, UNAVAILABLE, message), after)
        }
        Answer::NotStored(after) => {
            let message = NOT_STORED.to_owned();
            later(refusal(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE, message), after)
        }
        Answer::Failed(reason) => refusal(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL, reason),
    }
}

fn later(mut response: Response, after: Duration) -> Response {
    let (name, seconds): (HeaderName, _) = (header::RETRY_AFTER, whole_seconds(after));
    response.headers_mut().insert(name, seconds.into());
    response
}

/// Rounded up, so that no client retries too early.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// The response to an accepted request. An empty partial success is omitted, as the specification
/// requires.
pub(super) fn response(refused: u64, reason: String) -> proto::Response {
    let partial = proto::PartialSuccess {
        rejected_log_records: i64::try_from(refused).unwrap_or(i64::MAX),
        error_message: reason,
    };
    proto::Response { partial_success: (refused > 0).then_some(partial) }
}

fn written<M: Message + Serialize>(status: StatusCode, format: Format, message: &M) -> Response {
    let (kind, bytes) = match format {
        Format::Protobuf => (PROTOBUF, message.encode_to_vec()),
        Format::Json => {
            (JSON, serde_json::to_vec(message).expect("all its maps have texts as names"))
        }
    };
    (status, [(header::CONTENT_TYPE, kind)], bytes).into_response()
}
