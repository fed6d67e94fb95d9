//! Wake-up signals of readers and writers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use helio_bus::transport::locked;
use helio_bus::{Bell, Outage, Waiters};

/// Called when there is room.
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

/// A reader's wake-up: for samples in its queues, outages, and the connection's end.
#[derive(Default)]
pub(crate) struct ReaderSignal {
    rung: AtomicBool,
    waiters: Mutex<Waiters>,
    outages: Mutex<Vec<Outage>>,
    /// The topic was deleted, and that was reported.
    gone: AtomicBool,
}

/// The maximum number of outages that wait for a reader; older ones are dropped.
const MAX_PENDING_OUTAGES: usize = 64;

impl ReaderSignal {
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        let waiters = locked(&self.waiters).take();
        waiters.ring();
    }

    pub(crate) fn report(&self, outage: &Outage) {
        let mut outages = locked(&self.outages);
        if outages.len() == MAX_PENDING_OUTAGES {
            outages.remove(0);
        }
        outages.push(outage.clone());
        drop(outages);
        self.ring();
    }

    /// Reports, once, that the topic or its partitions do not exist.
    pub(crate) fn topic_missing(&self, what: &str) {
        if !self.gone.swap(true, Ordering::SeqCst) {
            let cause = format!(
                "{what}: deleted by another program; reading continues at the first record when \
                 it is recreated"
            );
            self.report(&Outage::Lost { cause });
        }
    }

    /// The topic exists: reports the end of the outage if its absence was reported.
    pub(crate) fn topic_exists(&self) {
        if self.gone.load(Ordering::Relaxed) && self.gone.swap(false, Ordering::SeqCst) {
            self.report(&Outage::Restored);
        }
    }

    /// Before a poll: everything that arrives from now on signals again.
    pub(crate) fn begin_poll(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }

    /// After a poll that did not read everything.
    pub(crate) fn keep_ready(&self) {
        self.rung.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    pub(crate) fn outages(&self) -> Vec<Outage> {
        std::mem::take(&mut *locked(&self.outages))
    }

    pub(crate) fn arm(&self, bell: &Arc<dyn Bell>, token: u64) {
        locked(&self.waiters).add(bell, token);
    }

    pub(crate) fn disarm(&self, bell: &Arc<dyn Bell>, token: u64) {
        locked(&self.waiters).remove(bell, token);
    }
}
