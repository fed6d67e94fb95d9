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

/// After so long the disk is asked though nobody waits for it: the journal syncs more often than
/// that, and where it cannot, that is to be heard.
const BACKGROUND_SYNC_INTERVAL: Duration = Duration::from_secs(2);

/// The writers of a topic in the journal, each with the newest incarnation that it was opened for.
pub(super) type Forwarders = HashMap<ProducerKey, (u64, Forwarder)>;

/// What of a topic is on its way to the disk.
pub(super) struct Syncing {
    journal: Topic,
    waker: Waker,
    /// Whose samples were appended since the round began.
    fresh: HashSet<ProducerKey>,
    /// The newest offset of each partition among them, and whose it is.
    ends: PartitionEnds,
    round: Option<SyncRound>,
}

type PartitionEnds = HashMap<u32, (u64, ProducerKey)>;

struct SyncRound {
    ends: PartitionEnds,
    /// How far each producer's samples are durable when it is over.
    reaches: HashMap<ProducerKey, SequencePosition>,
    begun: Instant,
    requested: Option<SyncRequest>,
}

/// The disk was asked for it.
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
    /// Of a topic's journal; the bell is rung when the disk has answered.
    pub(super) fn new(journal: &Topic, bell: &Arc<dyn Bell>) -> Self {
        let waker = Waker::from(Arc::new(BellWaker(Arc::clone(bell))));
        let (fresh, ends, round) = Default::default();
        Self { journal: journal.clone(), waker, fresh, ends, round }
    }

    /// A producer's sample is in the journal, at an offset.
    pub(super) fn appended(&mut self, producer_key: &ProducerKey, offset: u64) {
        self.ends.insert(producer_key.0, (offset, producer_key.clone()));
        self.fresh.insert(producer_key.clone());
    }

    /// Whether nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.fresh.is_empty() && self.round.is_none()
    }

    /// For how long the disk has not answered.
    pub(super) fn silence(&self) -> Option<Duration> {
        let requested = self.round.as_ref().and_then(|round| round.requested.as_ref());
        requested.map(|requested| requested.at.elapsed())
    }

    /// Nothing is waited for any more.
    pub(super) fn forget(&mut self) {
        self.fresh.clear();
        self.ends.clear();
        self.round = None;
    }

    /// Ends a round, and begins one; gives how far producers' samples are durable that were not.
    pub(super) fn turn(
        &mut self,
        has: &HashMap<ProducerKey, SequencePosition>,
        forwarders: &mut Forwarders,
        (hurry, look): (bool, bool),
    ) -> Result<HashMap<ProducerKey, SequencePosition>, String> {
        let mut durable = HashMap::new();
        if let Some(round) = &mut self.round
            && (hurry || look || round.requested.is_some())
            && round.is_over(&self.journal, &self.waker)?
        {
            durable = std::mem::take(&mut round.reaches);
            self.round = None;
        }
        if self.round.is_none() && !self.fresh.is_empty() {
            let reaches = self
                .fresh
                .drain()
                .filter_map(|producer_key| Some((producer_key.clone(), *has.get(&producer_key)?)));
            let (reaches, ends) = (reaches.collect(), std::mem::take(&mut self.ends));
            self.round = Some(SyncRound { ends, reaches, begun: Instant::now(), requested: None });
        }
        if let Some(round) = &mut self.round
            && (hurry || round.begun.elapsed() >= BACKGROUND_SYNC_INTERVAL)
        {
            round.ask(forwarders, &self.waker)?;
        }
        Ok(durable)
    }
}

impl SyncRound {
    /// Asks the disk, unless that was done.
    fn ask(&mut self, forwarders: &mut Forwarders, waker: &Waker) -> Result<(), String> {
        if self.requested.as_ref().is_some_and(|requested| !requested.pending.is_empty()) {
            return Ok(());
        }
        let at = self.requested.take().map_or_else(Instant::now, |requested| requested.at);
        let mut pending = Vec::new();
        for (_, producer_key) in self.ends.values() {
            // One that was opened anew has nothing to wait for: the journal syncs it in its time.
            if let Some((_, forwarder)) = forwarders.get_mut(producer_key) {
                let flushed = forwarder.flush(Guarantee::Durable);
                pending.extend(flushed.map_err(|error| error.to_string())?);
            }
        }
        let context = &mut Context::from_waker(waker);
        if pending.iter().any(|pending| pending.poll(context).is_ready()) {
            // It is there already: the next turn finds so.
            waker.wake_by_ref();
        }
        self.requested = Some(SyncRequest { at, pending });
        Ok(())
    }

    /// Whether all of it is on the disk.
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
