//! etcd's service Watch.
//!
//! Operation. One task a stream reads its requests and polls its watches in turn. While a client
//! does not read, the task waits in `send`, polls nothing, and holds [`STREAM_QUEUE`] answers.
//!
//! [`STREAM_QUEUE`]: crate::service::STREAM_QUEUE

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tonic::{Request, Response, Status, Streaming};

use crate::convert;
use crate::error::status;
use crate::metrics::Metrics;
use crate::proto::etcdserverpb::watch_request::RequestUnion;
use crate::proto::etcdserverpb::watch_server::Watch;
use crate::proto::etcdserverpb::{WatchRequest, WatchResponse};
use crate::service::{Answers, Filled, Member, leader_need, queue};
use crate::store::Watches;
use crate::stream_end::LeaderNeed;

/// The interval of progress notifications without a request, as etcd's.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);

#[tonic::async_trait]
impl Watch for Member {
    type WatchStream = Answers<WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Answers<WatchResponse>>, Status> {
        let (sender, stream) = queue();
        let (watches, member) = (self.store.watches(), self.clone());
        let open = OpenWatches::new(Arc::clone(&self.metrics));
        let need = leader_need(&request);
        let watching = WatchStream { watches, member, sender, need, open };
        tokio::spawn(watching.run(request.into_inner()));
        Ok(Response::new(stream))
    }
}

/// The client has gone, or got an error: the stream has ended.
struct Ended;

struct WatchStream {
    member: Member,
    watches: Box<dyn Watches>,
    sender: Filled<Result<WatchResponse, Status>>,
    need: LeaderNeed,
    open: OpenWatches,
}

/// The watches of an open stream, as the metrics have them.
struct OpenWatches {
    metrics: Arc<Metrics>,
    count: u64,
}

impl OpenWatches {
    fn new(metrics: Arc<Metrics>) -> Self {
        metrics.watch_streams.add(1);
        Self { metrics, count: 0 }
    }

    fn answered(&mut self, answer: &WatchResponse) {
        self.metrics.events.add(answer.events.len() as u64);
        match (answer.created, answer.canceled) {
            (true, false) => {
                self.count += 1;
                self.metrics.watchers.add(1);
            }
            (false, true) if self.count > 0 => {
                self.count -= 1;
                self.metrics.watchers.sub(1);
            }
            _ => {}
        }
    }
}

impl Drop for OpenWatches {
    fn drop(&mut self) {
        self.metrics.watch_streams.sub(1);
        self.metrics.watchers.sub(self.count);
    }
}

impl WatchStream {
    async fn run(mut self, mut requests: Streaming<WatchRequest>) {
        let mut periods = interval_at(Instant::now() + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.step(&mut requests, &mut periods).await.is_ok() {}
    }

    async fn step(
        &mut self,
        requests: &mut Streaming<WatchRequest>,
        periods: &mut Interval,
    ) -> Result<(), Ended> {
        let answer = tokio::select! {
            request = requests.message() => match request {
                Ok(Some(request)) => {
                    self.request(request);
                    return Ok(());
                }
                Ok(None) => return Err(Ended),
                Err(status) => Err(status),
            },
            answer = poll_fn(|context| self.watches.poll_next(context)) => {
                answer.map(convert::watched).map_err(status)
            }
            error = self.member.ends.wait(self.need) => Err(status(error)),
            _ = periods.tick() => {
                self.watches.tick();
                return Ok(());
            }
        };
        let answer = answer.map(|mut answer| {
            let revision = answer.header.map_or(0, |header| header.revision);
            answer.header = Some(self.member.header_at(revision));
            self.open.answered(&answer);
            answer
        });
        let failed = answer.is_err();
        match self.sender.send(answer).await {
            Ok(()) if !failed => Ok(()),
            _ => Err(Ended),
        }
    }

    fn request(&mut self, request: WatchRequest) {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => {
                self.watches.create(convert::watch(create))
            }
            Some(RequestUnion::CancelRequest(cancel)) => self.watches.cancel(cancel.watch_id),
            Some(RequestUnion::ProgressRequest(_)) => self.watches.request_progress(),
            None => {}
        }
    }
}
