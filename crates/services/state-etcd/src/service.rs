//! The parts that all of etcd's services share.

use std::sync::Arc;

use axum::http::HeaderMap;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tonic::{Request, Status};

use crate::error::status;
use crate::metrics::Metrics;
use crate::proto::etcdserverpb::ResponseHeader;
use crate::store::{Position, Store};
use crate::stream_end::{LeaderNeed, StreamEnds};
use helio_state::{Error, WriteRequest, WriteResponse};

/// Answers of a stream that wait for a slow client; then what makes them waits, too.
pub(crate) const STREAM_QUEUE: usize = 4;

/// The member that answers, as its services see it.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) description: Arc<crate::Description>,
    pub(crate) ends: StreamEnds,
    pub(crate) metrics: Arc<Metrics>,
}

impl Member {
    /// A header at a revision.
    pub(crate) fn header_at(&self, revision: i64) -> ResponseHeader {
        header(&self.store.position(), revision)
    }

    /// A header at the current revision.
    pub(crate) fn header(&self) -> Option<ResponseHeader> {
        let position = self.store.position();
        Some(header(&position, position.revision))
    }

    /// Has the store change something.
    pub(crate) async fn write(&self, request: WriteRequest) -> Result<WriteResponse, Status> {
        let answer = self.store.write(request).await;
        if let Err(Error::Stopped | Error::Timeout | Error::NoSpace) = answer {
            self.metrics.writes_failed.add(1);
        }
        answer.map_err(status)
    }

    /// Completes a header that a store began.
    pub(crate) fn fill(&self, header: &mut Option<ResponseHeader>) {
        let revision = header.as_ref().map_or(0, |header| header.revision);
        *header = Some(self.header_at(revision));
    }
}

/// Whether a request's metadata asks for a leader.
pub(crate) fn needs_leader(headers: &HeaderMap) -> bool {
    headers.get("hasleader").is_some_and(|value| value == "true")
}

/// The same, of a stream.
pub(crate) fn leader_need<T>(request: &Request<T>) -> LeaderNeed {
    match request.metadata().get("hasleader").is_some_and(|value| value == "true") {
        true => LeaderNeed::Required,
        false => LeaderNeed::Optional,
    }
}

fn header(position: &Position, revision: i64) -> ResponseHeader {
    let Position { cluster_id, member_id, term: raft_term, .. } = *position;
    ResponseHeader { cluster_id, member_id, revision, raft_term }
}

/// What a queue brings, as a stream.
pub(crate) struct Queued<T>(mpsc::Receiver<T>);

/// A stream of answers.
pub(crate) type Answers<T> = Queued<Result<T, Status>>;

impl<T> Stream for Queued<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

/// What fills a stream of answers, and that stream.
pub(crate) type Filled<T> = mpsc::Sender<T>;

/// A stream of answers, or of requests, and what fills it.
pub(crate) fn queue<T>() -> (Filled<T>, Queued<T>) {
    let (sender, receiver) = mpsc::channel(STREAM_QUEUE);
    (sender, Queued(receiver))
}

/// An answer of another kind than its request, which a store never gives.
pub(crate) fn other_kind() -> Status {
    Status::internal("the store answered with another kind than the request's: report this")
}
