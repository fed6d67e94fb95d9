//! A watch that is resumed behind its last event when its stream breaks, as clientv3 does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use helio_state_etcd::client;
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_etcd::proto::mvccpb;
use helio_state_etcd::proto::mvccpb::event::EventType;
use tonic::transport::Channel;

use crate::history::{Event, Seen};
use crate::load::Shared;
use crate::objects;

/// The key that ends a watch, below its prefix.
pub(crate) const END: &str = "~end";
/// The delay before a broken watch is opened again.
const RESUME_DELAY: Duration = Duration::from_millis(20);
/// How long a watch may be silent once all was written.
const END_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Watcher {
    pub(crate) number: usize,
    pub(crate) prefix: &'static str,
    pub(crate) channel: Channel,
    /// The first revision that it has not seen.
    pub(crate) next: i64,
    pub(crate) shared: Arc<Shared>,
}

impl Watcher {
    /// Watches until its end is written, or it is silent for long after that.
    pub(crate) async fn run(mut self) -> Seen {
        let mut seen = Seen { prefix: self.prefix.into(), ..Seen::default() };
        loop {
            match self.follow(&mut seen).await {
                Ok(()) => return seen,
                Err(Broken::ForGood(why)) => {
                    seen.ended = Some(why);
                    return seen;
                }
                Err(Broken::Stream) => {
                    seen.resumed += 1;
                    tokio::time::sleep(RESUME_DELAY).await;
                }
                Err(Broken::NotOpened) => tokio::time::sleep(RESUME_DELAY).await,
            }
        }
    }

    async fn follow(&mut self, seen: &mut Seen) -> Result<(), Broken> {
        let create = pb::WatchCreateRequest {
            key: self.prefix.into(),
            range_end: objects::range_end(self.prefix.as_bytes()),
            start_revision: self.next,
            prev_kv: true,
            ..pb::WatchCreateRequest::default()
        };
        let opened = client::watch(self.channel.clone(), create).await;
        let mut stream = opened.map_err(|_| Broken::NotOpened)?;
        loop {
            let answer = match tokio::time::timeout(END_TIMEOUT, stream.next()).await {
                Ok(answer) => answer.map_err(|_| Broken::Stream)?,
                Err(_) if self.shared.is_ending() => {
                    return Err(Broken::ForGood("its last event has not come".to_owned()));
                }
                Err(_) => continue,
            };
            if answer.canceled {
                return Err(Broken::ForGood(format!(
                    "cancelled, {:?}, compacted {}",
                    answer.cancel_reason, answer.compact_revision
                )));
            }
            for event in &answer.events {
                let event = of(event);
                self.next = self.next.max(event.revision + 1);
                let is_end = event.key.ends_with(END.as_bytes());
                seen.events.push(event);
                self.shared.events.fetch_add(1, Ordering::Relaxed);
                if is_end && self.is_last(seen) {
                    return Ok(());
                }
            }
            if let Some(reached) = self.shared.reached.get(self.number) {
                reached.store(self.next - 1, Ordering::Relaxed);
            }
        }
    }

    /// The watch of all keys ends with the end of the last kind.
    fn is_last(&self, seen: &Seen) -> bool {
        let ends = seen.events.iter().filter(|event| event.key.ends_with(END.as_bytes())).count();
        let kinds = objects::Kind::ALL.len();
        ends == if self.prefix == objects::PREFIX { kinds } else { 1 }
    }
}

enum Broken {
    Stream,
    NotOpened,
    ForGood(String),
}

fn of(event: &mvccpb::Event) -> Event {
    let kv = event.kv.clone().unwrap_or_default();
    let fields = kv.0.fields();
    let is_put = event.r#type() == EventType::Put;
    Event {
        key: bytes::Bytes::copy_from_slice(fields.key),
        revision: fields.mod_revision,
        number: is_put.then(|| objects::number(fields.value)),
        previous: event.prev_kv.as_ref().map_or(0, |kv| kv.0.fields().mod_revision),
    }
}
