//! A load: writers and watches of one store in a thread, until it is finished.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use helio_state_etcd::ClientTls;
use helio_state_etcd::client::{self, ClientError};
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_etcd::proto::etcdserverpb::lease_client::LeaseClient;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;

use crate::audit::Record;
use crate::history::{Listing, Seen};
use crate::objects::{Kind, PREFIX};
use crate::watcher::Watcher;
use crate::writer::Writer;

/// The time to live of the events' lease in seconds, as API servers ask for it.
const EVENT_TTL_S: i64 = 3_660;
/// The most writes of a load; its writers end there.
pub const MOST_WRITES: u64 = 5_000_000;

/// What a load does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The store.
    pub url: String,
    /// Clients that write, each with its own connection.
    pub writers: u16,
    /// Writes a second of all of them; fewer where the store is slower.
    pub per_second: f64,
    /// Of the random numbers; loads of one store have different ones, and so different values.
    pub seed: u16,
    /// What is stored before.
    pub begin: Listing,
}

/// What a running load has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// Writes without an answer.
    pub unknown: u64,
    /// Transactions whose compare failed, as somebody else had changed the key.
    pub conflicts: u64,
    /// Events of all watches.
    pub events: u64,
    /// The highest revision that was answered.
    pub revision: i64,
    /// The least revision that all watches have reached.
    pub watched: i64,
}

/// What the tasks of a load share with its owner.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) acknowledged: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) events: AtomicU64,
    /// The highest revision that was answered to anybody.
    pub(crate) floor: AtomicI64,
    /// The revision that each watch has reached.
    pub(crate) reached: Vec<AtomicI64>,
    pub(crate) is_ending: AtomicBool,
    next_write: AtomicU64,
}

impl Shared {
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// The number of the next write; none where there were enough.
    pub(crate) fn next_write(&self) -> Option<u64> {
        let n = self.next_write.fetch_add(1, Ordering::Relaxed);
        (n < MOST_WRITES).then_some(n)
    }
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Record>>,
}

impl Load {
    /// Starts a load; it continues through outages of the store.
    ///
    /// # Errors
    /// If the store cannot be reached at first.
    pub fn start(plan: Plan) -> Result<Self, ClientError> {
        let prefixes = prefixes();
        let begun = plan.begin.revision;
        let reached = prefixes.iter().map(|_| AtomicI64::new(begun)).collect();
        let floor = AtomicI64::new(begun);
        let shared = Arc::new(Shared { floor, reached, ..Shared::default() });
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let cast = runtime.block_on(Cast::connect(&plan, &shared))?;
        let thread = std::thread::Builder::new()
            .name("state-load".into())
            .spawn(move || cast.play(&runtime, plan.begin))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        let Shared { acknowledged, unknown, conflicts, events, floor, reached, .. } = &*self.shared;
        let reached = reached.iter().map(|at| at.load(Ordering::Relaxed));
        Counters {
            acknowledged: acknowledged.load(Ordering::Relaxed),
            unknown: unknown.load(Ordering::Relaxed),
            conflicts: conflicts.load(Ordering::Relaxed),
            events: events.load(Ordering::Relaxed),
            revision: floor.load(Ordering::Relaxed),
            watched: reached.min().unwrap_or(0),
        }
    }

    /// Whether it has ended by itself, after [`MOST_WRITES`].
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the writers, waits until the watches have all, and gives what was recorded, still
    /// without what is stored at the end. None if its thread panicked.
    pub fn finish(mut self) -> Option<Record> {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
    }
}

/// The prefixes of the watches; the first is that of all keys.
fn prefixes() -> Vec<&'static str> {
    std::iter::once(PREFIX).chain(Kind::ALL.map(Kind::prefix)).collect()
}

/// All tasks of a load.
struct Cast {
    writers: Vec<Writer>,
    watchers: Vec<Watcher>,
}

impl Cast {
    async fn connect(plan: &Plan, shared: &Arc<Shared>) -> Result<Self, ClientError> {
        let tls = ClientTls::default();
        let open = || client::open(&plan.url, &tls);
        let lease = event_lease(open().await?).await?;
        let mut watchers = Vec::new();
        for (number, prefix) in prefixes().into_iter().enumerate() {
            let channel = open().await?;
            let next = plan.begin.revision + 1;
            watchers.push(Watcher { number, prefix, channel, next, shared: Arc::clone(shared) });
        }
        let mut writers = Vec::new();
        for number in 0..plan.writers {
            let channel = open().await?;
            let interval = Duration::from_secs_f64(f64::from(plan.writers) / plan.per_second);
            writers.push(Writer::new(number, channel, lease, plan, interval, Arc::clone(shared)));
        }
        Ok(Self { writers, watchers })
    }

    fn play(self, runtime: &Runtime, begin: Listing) -> Record {
        let Self { writers, watchers } = self;
        let mut record = Record { begin, ..Record::default() };
        runtime.block_on(async {
            let watching: Vec<_> =
                watchers.into_iter().map(|one| tokio::spawn(one.run())).collect();
            let writing: Vec<_> = writers.into_iter().map(|one| tokio::spawn(one.run())).collect();
            let mut last = None;
            for task in writing {
                let Ok(writer) = task.await else { continue };
                last = Some(writer);
                if let Some(writer) = &mut last {
                    record.writes.append(&mut writer.writes);
                    record.reads.append(&mut writer.reads);
                }
            }
            if let Some(mut writer) = last {
                writer.mark_ends(&prefixes()[1..]).await;
                record.writes.append(&mut writer.writes);
                record.reads.append(&mut writer.reads);
            }
            for task in watching {
                let seen: Seen = task.await.unwrap_or_default();
                record.watches.push(seen);
            }
        });
        record
    }
}

/// The lease that events get.
async fn event_lease(channel: Channel) -> Result<i64, ClientError> {
    let request = pb::LeaseGrantRequest { ttl: EVENT_TTL_S, id: 0 };
    Ok(LeaseClient::new(channel).lease_grant(request).await?.into_inner().id)
}
