//! Streams of watches: each reads the log at its own speed.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use helio_state::{Start, View, WatchCreate, WatchResponse, WatchStream};

use crate::locked;
use crate::store::{LogSource, Shared};

/// Bytes of events of one poll.
const POLL_BYTES: usize = 4 << 20;

/// Wakes streams when records were committed.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Default)]
struct Rung {
    count: u64,
    wakers: Vec<Waker>,
}

impl Bell {
    pub(crate) fn ring(&self) {
        let mut rung = locked(&self.rung);
        rung.count += 1;
        let wakers = std::mem::take(&mut rung.wakers);
        drop(rung);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn count(&self) -> u64 {
        locked(&self.rung).count
    }

    /// Registers a waker, unless it rang since `seen`.
    fn register(&self, seen: u64, waker: &Waker) -> bool {
        let mut rung = locked(&self.rung);
        let quiet = rung.count == seen;
        if quiet && !rung.wakers.iter().any(|known| known.will_wake(waker)) {
            rung.wakers.push(waker.clone());
        }
        quiet
    }

    fn wait(&self, seen: u64, until: Instant) {
        let mut rung = locked(&self.rung);
        while rung.count == seen {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(rung, left);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A stream of watches of a store. Its methods may be called from several threads; responses come
/// in order to whoever asks.
pub struct Watcher {
    shared: Arc<Shared>,
    stream: Mutex<WatchStream>,
}

impl Watcher {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, stream: Mutex::new(WatchStream::new()) }
    }

    /// Opens a watch; its first response says how that went.
    pub fn create(&self, create: &WatchCreate) {
        // The log's marks follow the writer, which may have compacted what is not yet committed.
        let (record, compacted) = self.shared.with_state(|state| {
            (state.record_of(create.start_revision), state.view().compact_revision())
        });
        let mut stream = locked(&self.stream);
        let view = self.shared.view();
        let view = view.compacted_at_least(compacted);
        stream.create(create, &view, Start { record });
        drop(stream);
        self.shared.bell.ring();
    }

    /// Closes a watch.
    pub fn cancel(&self, id: i64) {
        locked(&self.stream).cancel(id, &self.shared.view());
        self.shared.bell.ring();
    }

    /// Asks for progress of the stream; answered as soon as no watch is behind.
    pub fn request_progress(&self) {
        locked(&self.stream).request_progress();
        self.shared.bell.ring();
    }

    /// Responds with progress to idle watches that want it; call it about every 10 minutes.
    pub fn periodic_progress(&self) {
        locked(&self.stream).periodic_progress(&self.shared.view());
        self.shared.bell.ring();
    }

    /// Watches open.
    pub fn watches(&self) -> usize {
        locked(&self.stream).len()
    }

    /// Responses that are due; none does not mean that the stream is over.
    pub fn try_next(&self) -> Vec<WatchResponse> {
        let mut stream = locked(&self.stream);
        loop {
            let view: View = self.shared.view();
            let responses = stream.poll(&view, &LogSource(&self.shared), POLL_BYTES);
            if !responses.is_empty() || stream.is_level(&view) {
                return responses;
            }
        }
    }

    /// The next responses; waits for them at most `timeout`.
    pub fn next(&self, timeout: Duration) -> Vec<WatchResponse> {
        let until = Instant::now() + timeout;
        loop {
            let seen = self.shared.bell.count();
            let responses = self.try_next();
            if !responses.is_empty() || Instant::now() >= until {
                return responses;
            }
            self.shared.bell.wait(seen, until);
        }
    }

    /// The next responses, for an event loop of any kind.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Vec<WatchResponse>> {
        loop {
            let seen = self.shared.bell.count();
            let responses = self.try_next();
            if !responses.is_empty() {
                return Poll::Ready(responses);
            }
            if self.shared.bell.register(seen, context.waker()) {
                return Poll::Pending;
            }
        }
    }
}
