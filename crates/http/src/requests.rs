//! Reads the bodies of requests within the limits.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http_body::{Frame, SizeHint};
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::connections::Peer;
use crate::peers::Peers;

/// The retry delay of a request above a limit, in seconds.
const RETRY_DELAY_S: u64 = 1;

/// Why a body cannot be read.
#[derive(Debug, Error)]
pub enum BodyError {
    /// It did not arrive in time.
    #[error("the request came too slowly")]
    TooSlow,
    /// It has more bytes than the route's limit.
    #[error("{0}")]
    TooLarge(String),
    /// The connection failed, or the encoding is invalid.
    #[error("{0}")]
    Invalid(String),
}

/// Reads a body of at most the bytes of the route's [`DefaultBodyLimit`] within a time.
///
/// # Errors
/// [`BodyError`].
pub async fn read_body(request: Request, timeout: Duration) -> Result<Bytes, BodyError> {
    let reading = tokio::time::timeout(timeout, Bytes::from_request(request, &())).await;
    reading.map_err(|_| BodyError::TooSlow)?.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => BodyError::TooLarge(error.body_text()),
        _ => BodyError::Invalid(error.body_text()),
    })
}

/// A body that fails with [`BodyError::TooSlow`] if it has not arrived within a time.
pub struct TimedBody {
    body: Body,
    deadline: Instant,
    /// Only bodies that are not there at once have a timer.
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    /// Bounds a body's time, from now on.
    #[must_use]
    pub fn new(body: Body, timeout: Duration) -> Self {
        Self { body, deadline: Instant::now() + timeout, timer: None }
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        let deadline = self.deadline;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(axum::Error::new(BodyError::TooSlow)))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Routes whose requests have a place, and whose bodies are read before they reach a handler.
pub(crate) fn bounded(routes: Router, peers: &Arc<Peers>) -> Router {
    let limit = DefaultBodyLimit::max(peers.limits().body_bytes);
    routes.layer(from_fn_with_state(Arc::clone(peers), admit)).layer(limit)
}

async fn admit(
    State(peers): State<Arc<Peers>>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let Some(_place) = peers.request(peer) else {
        let delay = [(header::RETRY_AFTER, RETRY_DELAY_S)];
        let text = "too many concurrent requests; try again\n";
        return (StatusCode::TOO_MANY_REQUESTS, delay, text).into_response();
    };
    let (parts, body) = request.into_parts();
    let whole = Request::from_parts(parts.clone(), body);
    match read_body(whole, peers.limits().unfinished).await {
        Ok(body) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Err(error) => {
            let status = match error {
                BodyError::TooSlow => {
                    peers.timed_out(peer);
                    StatusCode::REQUEST_TIMEOUT
                }
                BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
                BodyError::Invalid(_) => StatusCode::BAD_REQUEST,
            };
            (status, format!("{error}\n")).into_response()
        }
    }
}
