//! Makes the samples of a topic's journal durable, in rounds, without delaying the turns.
//!
//! Constraints. Nothing here waits. Only samples that the journal reports as durable at the end of
//! a round count. A failed sync is returned as an error.
//!
//! Operation. A round covers everything that was appended since the previous round began. If a
//! receipt waits for the disk, the round requests a sync at once, and the bell rings when it
//! completes. Otherwise the journal syncs at its own interval, and the round polls its durable
//! position.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use helio_bus::{Bell, Forwarder, Guarantee, PendingReceipt, Topic};

use super::{ProducerKey, SequencePosition};

/// After so long a sync is requested even if no receipt waits for it. The journal syncs more often
/// than that; if it cannot, the request reports the error.
const BACKGROUND_SYNC_INTERVAL: Duration = Duration::from_secs(2);

/// The journal's writers of a topic, each with its incarnation.
pub(super) type Forwarders = HashMap<ProducerKey, (u64, Forwarder)>;

/// The samples of a topic that are not durable yet.
pub(super) struct Syncing {
    journal: Topic,
    waker: Waker,
    /// The producers whose samples were appended since the round began.
    unsynced: HashSet<ProducerKey>,
    /// The newest offset of each partition among them, with its producer.
    ends: PartitionEnds,
    round: Option<SyncRound>,
}

type PartitionEnds = HashMap<u32, (u64, ProducerKey)>;

struct SyncRound {
    ends: PartitionEnds,
    /// The durable position of each producer when the round is over.
    reaches: HashMap<ProducerKey, SequencePosition>,
    begun: Instant,
    requested: Option<SyncRequest>,
}

/// A requested sync.
struct SyncRequest {
    at: Instant,
    pending: Vec<PendingReceipt>,
}

struct BellWaker(Arc<dyn Bell>);

impl Wake for BellWaker {
    fn wake(self: Arc<Self>) {
        self.0.ring(None);
    }
}

impl Syncing {
    /// Of a topic's journal; the bell rings when a sync has completed.
    pub(super) fn new(journal: &Topic, bell: &Arc<dyn Bell>) -> Self {
        let waker = Waker::from(Arc::new(BellWaker(Arc::clone(bell))));
        let (unsynced, ends, round) = Default::default();
        Self { journal: journal.clone(), waker, unsynced, ends, round }
    }

    /// A producer's sample was appended at an offset.
    pub(super) fn appended(&mut self, producer_key: &ProducerKey, offset: u64) {
        self.ends.insert(producer_key.0, (offset, producer_key.clone()));
        self.unsynced.insert(producer_key.clone());
    }

    /// Whether all samples are durable.
    pub(super) fn is_idle(&self) -> bool {
        self.unsynced.is_empty() && self.round.is_none()
    }

    /// How long a requested sync has been pending.
    pub(super) fn silence(&self) -> Option<Duration> {
        let requested = self.round.as_ref().and_then(|round| round.requested.as_ref());
        requested.map(|requested| requested.at.elapsed())
    }

    /// Forgets all pending samples.
    pub(super) fn forget(&mut self) {
        self.unsynced.clear();
        self.ends.clear();
        self.round = None;
    }

    /// Ends a round if it is over, and begins the next one; returns the new durable positions.
    pub(super) fn turn(
        &mut self,
        has: &HashMap<ProducerKey, SequencePosition>,
        forwarders: &mut Forwarders,
        sync_now: bool,
        polled: bool,
    ) -> Result<HashMap<ProducerKey, SequencePosition>, String> {
        let mut durable = HashMap::new();
        if let Some(round) = &mut self.round
            && (sync_now || polled || round.requested.is_some())
            && round.is_over(&self.journal, &self.waker)?
        {
            durable = std::mem::take(&mut round.reaches);
            self.round = None;
        }
        if self.round.is_none() && !self.unsynced.is_empty() {
            let reaches = self
                .unsynced
                .drain()
                .filter_map(|producer_key| Some((producer_key.clone(), *has.get(&producer_key)?)));
            let (reaches, ends) = (reaches.collect(), std::mem::take(&mut self.ends));
            self.round = Some(SyncRound { ends, reaches, begun: Instant::now(), requested: None });
        }
        if let Some(round) = &mut self.round
            && (sync_now || round.begun.elapsed() >= BACKGROUND_SYNC_INTERVAL)
        {
            round.ask(forwarders, &self.waker)?;
        }
        Ok(durable)
    }
}

impl SyncRound {
    /// Requests a sync, unless one is pending.
    fn ask(&mut self, forwarders: &mut Forwarders, waker: &Waker) -> Result<(), String> {
        if self.requested.as_ref().is_some_and(|requested| !requested.pending.is_empty()) {
            return Ok(());
        }
        let at = self.requested.take().map_or_else(Instant::now, |requested| requested.at);
        let mut pending = Vec::new();
        for (_, producer_key) in self.ends.values() {
            // A writer that was reopened has nothing to flush: the journal syncs by itself.
            if let Some((_, forwarder)) = forwarders.get_mut(producer_key) {
                let flushed = forwarder.flush(Guarantee::Durable);
                pending.extend(flushed.map_err(|error| error.to_string())?);
            }
        }
        let context = &mut Context::from_waker(waker);
        if pending.iter().any(|pending| pending.poll(context).is_ready()) {
            // It has completed already: the next turn finds it.
            waker.wake_by_ref();
        }
        self.requested = Some(SyncRequest { at, pending });
        Ok(())
    }

    /// Whether all samples of the round are durable.
    fn is_over(&mut self, journal: &Topic, waker: &Waker) -> Result<bool, String> {
        if let Some(SyncRequest { pending, .. }) = &mut self.requested {
            let context = &mut Context::from_waker(waker);
            let mut failed = None;
            pending.retain(|pending| match pending.poll(context) {
                Poll::Pending => true,
                Poll::Ready(outcome) => {
                    failed = outcome.err().or(failed.take());
                    false
                }
            });
            if let Some(error) = failed {
                return Err(error.to_string());
            }
            if !pending.is_empty() {
                return Ok(false);
            }
        }
        let partitions = journal.partitions().map_err(|error| error.to_string())?;
        let is_durable = |partition: u32, end: u64| {
            partitions.iter().any(|of| of.partition == partition && of.durable > end)
        };
        Ok(self.ends.iter().all(|(partition, (end, _))| is_durable(*partition, *end)))
    }
}
