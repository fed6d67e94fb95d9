//! The store of this machine, served: `helio-state-node` behind the service's trait.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use helio_state::{
    Alarm, Error, LeaseStatus, RangeRequest, RangeResponse, Revision, WatchCreate, WatchResponse,
    WriteRequest, WriteResponse,
};
use helio_state_node::{Histogram, Store as Node, Watcher};

use crate::saved;
use crate::store::{
    Answer, Consistency, Figures, KeyspaceHash, Position, SnapshotChunks, Store, Watches,
};

/// A chunk of a snapshot, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// A store of this machine, which leads alone.
pub struct Served {
    node: Arc<Node>,
    cluster_id: u64,
    member_id: u64,
}

impl Served {
    /// Serves a store under ids that its clients see.
    #[must_use]
    pub fn new(node: Arc<Node>, cluster_id: u64, member_id: u64) -> Self {
        Self { node, cluster_id, member_id }
    }
}

fn write_snapshot(node: &Node) -> io::Result<FileChunks> {
    // The file has no name once it is open, and goes with its last user.
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("snapshot");
    node.backup(&path).map_err(io::Error::other)?;
    saved::seal(&path)?;
    let file = File::open(&path)?;
    let left = file.metadata()?.len();
    Ok(FileChunks { file, left })
}

fn answer<'a, T: Send + 'a>(answer: Result<T, Error>) -> Answer<'a, T> {
    Box::pin(async { answer })
}

impl Store for Served {
    fn position(&self) -> Position {
        let view = self.node.view();
        let leader = if self.node.check().is_ok() { self.member_id } else { 0 };
        let (cluster_id, member_id) = (self.cluster_id, self.member_id);
        Position { cluster_id, member_id, leader, term: 1, revision: view.revision() }
    }

    fn figures(&self) -> Figures {
        let status = self.node.status();
        Figures {
            compact_revision: status.compact_revision,
            disk_bytes: status.db_size,
            live_bytes: status.db_size,
            records: status.records,
            pending: status.pending as u64,
            keys: status.keys as u64,
            is_full: status.alarms.contains(&Alarm::NoSpace),
            is_corrupt: status.alarms.contains(&Alarm::Corrupt),
        }
    }

    fn sync_times(&self) -> Option<&Histogram> {
        Some(self.node.sync_times())
    }

    fn range(&self, request: RangeRequest, how: Consistency) -> Answer<'_, RangeResponse> {
        if how == Consistency::Linearizable
            && let Err(error) = self.node.check()
        {
            return answer(Err(error));
        }
        answer(self.node.range(&request))
    }

    fn write(&self, request: WriteRequest) -> Answer<'_, WriteResponse> {
        Box::pin(self.node.write(request))
    }

    fn lease(&self, id: i64) -> Answer<'_, LeaseStatus> {
        answer(Ok(self.node.lease_status(id)))
    }

    fn leases(&self) -> Answer<'_, Vec<i64>> {
        answer(Ok(self.node.leases()))
    }

    fn watches(&self) -> Box<dyn Watches> {
        Box::new(NodeWatches { watcher: self.node.watcher(), due: Vec::new().into_iter() })
    }

    fn hash(&self, revision: Revision) -> Answer<'_, KeyspaceHash> {
        let view = self.node.view();
        let compact_revision = view.compact_revision();
        let hash = self.node.hash_kv(revision);
        answer(hash.map(|hash| KeyspaceHash { hash, revision, compact_revision }))
    }

    fn snapshot(&self) -> Answer<'_, Box<dyn SnapshotChunks>> {
        let node = Arc::clone(&self.node);
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || write_snapshot(&node)).await;
            let chunks = written.map_err(|_| Error::Stopped)?.map_err(|_| Error::Corrupt)?;
            Ok(Box::new(chunks) as Box<dyn SnapshotChunks>)
        })
    }
}

struct FileChunks {
    file: File,
    left: u64,
}

impl SnapshotChunks for FileChunks {
    fn remaining_bytes(&self) -> u64 {
        self.left
    }

    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let length = CHUNK_BYTES.min(usize::try_from(self.left).unwrap_or(CHUNK_BYTES));
        if length == 0 {
            return Ok(None);
        }
        let mut chunk = BytesMut::zeroed(length);
        self.file.read_exact(&mut chunk).map_err(|_| Error::Corrupt)?;
        self.left -= length as u64;
        Ok(Some(chunk.freeze()))
    }
}

struct NodeWatches {
    watcher: Watcher,
    due: std::vec::IntoIter<WatchResponse>,
}

impl Watches for NodeWatches {
    fn create(&mut self, request: WatchCreate) {
        self.watcher.create(&request);
    }

    fn cancel(&mut self, watch_id: i64) {
        self.watcher.cancel(watch_id);
    }

    fn request_progress(&mut self) {
        self.watcher.request_progress();
    }

    fn tick(&mut self) {
        self.watcher.periodic_progress();
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchResponse, Error>> {
        loop {
            if let Some(response) = self.due.next() {
                return Poll::Ready(Ok(response));
            }
            match self.watcher.poll_next(context) {
                Poll::Ready(responses) => self.due = responses.into_iter(),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
