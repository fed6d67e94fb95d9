//! A store in memory: the protocol of `helio-state` on a list of records.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use helio_state::{
    Alarm, Error, KeyValue, LeaseStatus, Limits, Outcome, RangeRequest, RangeResponse, Revision,
    Source, Start, WatchCreate, WatchResponse, WatchStream, WriteRequest, WriteResponse,
};
use helio_state_etcd::store::{
    Answer, Consistency, Figures, KeyspaceHash, Position, SnapshotChunks, Store, Watches,
};
use tokio::sync::watch;

const ID: u64 = 7;
/// Bytes of events that are read at once.
const BUDGET: usize = 1 << 20;

#[derive(Clone, Default)]
struct Log(Vec<Bytes>);

impl Source for Log {
    fn record(&self, number: u64) -> Result<Option<Bytes>, Error> {
        Ok(usize::try_from(number).ok().and_then(|at| self.0.get(at)).cloned())
    }

    fn snapshot(&self, _: &[u8]) -> Option<KeyValue> {
        None
    }
}

struct Inner {
    state: helio_state::State,
    log: Log,
    now_ms: u64,
    leader: u64,
}

#[derive(Clone)]
pub(crate) struct Memory {
    inner: Arc<Mutex<Inner>>,
    changed: watch::Sender<()>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let state = helio_state::State::new(0, Limits::default(), ID);
        let inner = Inner { state, log: Log::default(), now_ms: 0, leader: ID };
        Self { inner: Arc::new(Mutex::new(inner)), changed: watch::Sender::new(()) }
    }

    /// Sets who leads; 0 for nobody.
    pub(crate) fn set_leader(&self, leader: u64) {
        self.inner().leader = leader;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn answer<'a, T: Send + 'a>(answer: Result<T, Error>) -> Answer<'a, T> {
        Box::pin(async { answer })
    }
}

impl Store for Memory {
    fn position(&self) -> Position {
        let inner = self.inner();
        let revision = inner.state.view().revision();
        Position { cluster_id: ID, member_id: ID, leader: inner.leader, term: 1, revision }
    }

    fn figures(&self) -> Figures {
        let inner = self.inner();
        let view = inner.state.view();
        let alarms = inner.state.alarms();
        let bytes = inner.log.0.iter().map(Bytes::len).sum::<usize>() as u64 + 1;
        Figures {
            compact_revision: view.compact_revision(),
            disk_bytes: bytes,
            live_bytes: bytes,
            keys: view.len() as u64,
            is_full: alarms.contains(&Alarm::NoSpace),
            is_corrupt: alarms.contains(&Alarm::Corrupt),
            ..Figures::default()
        }
    }

    fn range(&self, request: RangeRequest, _: Consistency) -> Answer<'_, RangeResponse> {
        let inner = self.inner();
        Self::answer(inner.state.view().range(&request, &inner.log))
    }

    fn write(&self, request: WriteRequest) -> Answer<'_, WriteResponse> {
        let mut inner = self.inner();
        let Inner { state, log, now_ms, .. } = &mut *inner;
        let Outcome { record, response } = state.write(&request, *now_ms, log);
        log.0.extend(record);
        state.release(log.0.len() as u64);
        self.changed.send_replace(());
        Self::answer(response)
    }

    fn lease(&self, id: i64) -> Answer<'_, LeaseStatus> {
        let inner = self.inner();
        Self::answer(Ok(inner.state.lease_status(id, inner.now_ms)))
    }

    fn leases(&self) -> Answer<'_, Vec<i64>> {
        Self::answer(Ok(self.inner().state.leases()))
    }

    fn watches(&self) -> Box<dyn Watches> {
        let changed = self.changed.subscribe();
        let waits = wait(changed.clone());
        Box::new(MemoryWatches {
            store: self.clone(),
            stream: WatchStream::new(),
            ready: Vec::new().into_iter(),
            changed,
            waits,
        })
    }

    fn hash(&self, revision: Revision) -> Answer<'_, KeyspaceHash> {
        let view = self.inner().state.view();
        let compact_revision = view.compact_revision();
        Self::answer(match revision {
            r if r > view.revision() => Err(Error::FutureRevision),
            r if r != 0 && r < compact_revision => Err(Error::Compacted),
            r => Ok(KeyspaceHash { hash: 1, revision: r, compact_revision }),
        })
    }

    fn snapshot(&self) -> Answer<'_, Box<dyn SnapshotChunks>> {
        let records = self.inner().log.0.clone();
        Self::answer(Ok(Box::new(Chunks(records))))
    }
}

struct Chunks(Vec<Bytes>);

impl SnapshotChunks for Chunks {
    fn remaining_bytes(&self) -> u64 {
        self.0.iter().map(Bytes::len).sum::<usize>() as u64
    }

    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok((!self.0.is_empty()).then(|| self.0.remove(0)))
    }
}

type Waits = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn wait(mut changed: watch::Receiver<()>) -> Waits {
    Box::pin(async move { drop(changed.changed().await) })
}

struct MemoryWatches {
    store: Memory,
    stream: WatchStream,
    ready: std::vec::IntoIter<WatchResponse>,
    changed: watch::Receiver<()>,
    waits: Waits,
}

impl Watches for MemoryWatches {
    fn create(&mut self, request: WatchCreate) {
        let inner = self.store.inner();
        let record = inner.state.record_of(request.start_revision);
        self.stream.create(&request, &inner.state.view(), Start { record });
    }

    fn cancel(&mut self, watch_id: i64) {
        let view = self.store.inner().state.view();
        self.stream.cancel(watch_id, &view);
    }

    fn request_progress(&mut self) {
        self.stream.request_progress();
    }

    fn tick(&mut self) {
        let view = self.store.inner().state.view();
        self.stream.periodic_progress(&view);
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchResponse, Error>> {
        loop {
            if let Some(response) = self.ready.next() {
                return Poll::Ready(Ok(response));
            }
            // Marks what is there now as seen, so that no change after the poll is missed.
            self.changed.borrow_and_update();
            let (view, log) = {
                let inner = self.store.inner();
                (inner.state.view(), inner.log.clone())
            };
            self.ready = self.stream.poll(&view, &log, BUDGET).into_iter();
            if self.ready.len() > 0 || !self.stream.is_level(&view) {
                continue;
            }
            self.waits = wait(self.changed.clone());
            match self.waits.as_mut().poll(context) {
                Poll::Ready(()) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
