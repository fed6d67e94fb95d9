//! The connection that all handles of one bus share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use helio_core::ProducerName;

use crate::bell::locked;
use crate::clock::Clock;
use crate::error::TransportError;
use crate::reactor::{EventSource, Reactor};
use crate::thread_pool::ThreadPool;
use crate::transport::Transport;
use crate::url::BusUrl;

/// The most queries to an engine at a time: a query that waits for a lost engine must not delay all
/// others, and engines answer within milliseconds.
const MAX_QUERY_THREADS: usize = 8;

pub(crate) struct BusCore {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) producer: ProducerName,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) url: BusUrl,
    closed: AtomicBool,
    reactor: Mutex<Option<Arc<Reactor>>>,
    subscriptions: AtomicU64,
    queries: OnceLock<ThreadPool>,
}

impl BusCore {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        producer: ProducerName,
        clock: Arc<dyn Clock>,
        url: BusUrl,
    ) -> Self {
        let (closed, reactor, subscriptions, queries) = Default::default();
        Self { transport, producer, clock, url, closed, reactor, subscriptions, queries }
    }

    /// Threads for queries that wait for the engine; the first query starts one.
    pub(crate) fn queries(&self) -> &ThreadPool {
        self.queries.get_or_init(|| ThreadPool::new("helio-query", MAX_QUERY_THREADS, || ()))
    }

    /// A bell token that no other subscription of this bus has.
    pub(crate) fn token(&self) -> u64 {
        self.subscriptions.fetch_add(1, Ordering::Relaxed)
    }

    /// The thread that waits for all asynchronous subscriptions; the first one starts it.
    pub(crate) fn reactor(&self) -> Result<Arc<Reactor>, TransportError> {
        let mut reactor = locked(&self.reactor);
        if let Some(reactor) = &*reactor {
            return Ok(Arc::clone(reactor));
        }
        let bell = self.transport.bell()?;
        let started = Reactor::start(bell, &self.transport.capabilities().transport)?;
        *reactor = Some(Arc::clone(&started));
        Ok(started)
    }

    /// A reactor driven by an event loop. `None` if the transport has no descriptor to watch, or
    /// if there is a reactor already.
    pub(crate) fn event_source(&self) -> Result<Option<EventSource>, TransportError> {
        let mut reactor = locked(&self.reactor);
        if reactor.is_some() {
            return Ok(None);
        }
        let source = EventSource::new(self.transport.bell()?);
        Ok(source.map(|(source, driven)| {
            *reactor = Some(driven);
            source
        }))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.transport.close();
    }

    pub(crate) fn stop_reactor(&self) {
        if let Some(reactor) = locked(&self.reactor).take() {
            reactor.stop();
        }
    }
}

impl Drop for BusCore {
    fn drop(&mut self) {
        self.transport.close();
        self.stop_reactor();
    }
}
