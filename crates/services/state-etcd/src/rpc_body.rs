//! Bodies of calls, whose messages, bytes and ends are counted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::HeaderMap;
use bytes::Bytes;
use helio_http::Place;
use http_body::{Frame, SizeHint};
use tonic::{Code, Status};

use crate::metrics::Call;

/// Before each message: a flag, and the message's length.
const HEAD_BYTES: usize = 5;

/// Finds the ends of messages in the pieces of a body.
#[derive(Debug, Default)]
struct Messages {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    left: usize,
}

impl Messages {
    /// The messages that end in a piece.
    fn count(&mut self, mut piece: &[u8]) -> u64 {
        let mut ended = 0;
        while !piece.is_empty() {
            if self.head_bytes < HEAD_BYTES {
                let taken = piece.len().min(HEAD_BYTES - self.head_bytes);
                self.head[self.head_bytes..][..taken].copy_from_slice(&piece[..taken]);
                self.head_bytes += taken;
                piece = &piece[taken..];
                let [_, length @ ..] = self.head;
                self.left = u32::from_be_bytes(length) as usize;
            } else {
                let taken = piece.len().min(self.left);
                self.left -= taken;
                piece = &piece[taken..];
            }
            if self.head_bytes == HEAD_BYTES && self.left == 0 {
                self.head_bytes = 0;
                ended += 1;
            }
        }
        ended
    }
}

/// The body of a request.
pub(crate) struct RequestBody<B> {
    body: B,
    messages: Messages,
    call: Option<Arc<Call>>,
}

impl<B> RequestBody<B> {
    pub(crate) fn new(body: B, call: Option<Arc<Call>>) -> Self {
        Self { body, messages: Messages::default(), call }
    }
}

impl<B: HttpBody<Data = Bytes, Error = axum::Error> + Unpin> HttpBody for RequestBody<B> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let Self { messages, call, .. } = &mut *self;
        if let (Poll::Ready(Some(Ok(frame))), Some(call)) = (&frame, call)
            && let Some(data) = frame.data_ref()
        {
            call.method.received.add(messages.count(data));
            call.metrics.received_bytes.add(data.len() as u64);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response, which occupies a request's place until it ends.
pub(crate) struct ResponseBody {
    body: Body,
    messages: Messages,
    call: Arc<Call>,
    _place: Option<Place>,
}

impl ResponseBody {
    pub(crate) fn new(body: Body, call: Arc<Call>, place: Option<Place>) -> Self {
        Self { body, messages: Messages::default(), call, _place: place }
    }
}

/// The code in the headers or the trailers of a response.
pub(crate) fn code_of(headers: &HeaderMap) -> Option<Code> {
    headers.get(Status::GRPC_STATUS).map(|code| Code::from_bytes(code.as_bytes()))
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let Self { messages, call, .. } = &mut *self;
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            if let Some(data) = frame.data_ref() {
                call.method.sent.add(messages.count(data));
                call.metrics.sent_bytes.add(data.len() as u64);
            } else if let Some(code) = frame.trailers_ref().and_then(code_of) {
                call.end(code);
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_in_pieces_of_any_size() {
        let mut stream = Vec::new();
        for length in [0u8, 3, 0, 200, 7] {
            stream.extend([0, 0, 0, 0, length]);
            stream.extend(vec![0xff; length.into()]);
        }
        for size in 1..=stream.len() {
            let mut messages = Messages::default();
            let counted: u64 = stream.chunks(size).map(|piece| messages.count(piece)).sum();
            assert_eq!(counted, 5, "pieces of {size}");
        }
    }
}
