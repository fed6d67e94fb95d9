//! A connection: its readers and writers, their heartbeats, and how it is closed.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use helio_bus::transport::{WriterRequest, locked};
use helio_bus::{Clock, Outage, TransportError};

use crate::client::delivery::DeliveryCounter;
use crate::client::error::engine;
use crate::client::link::Link;
use crate::client::options::Options;
use crate::client::producer::{self, FLUSH_TIMEOUT};
use crate::client::signal::ReaderSignal;
use crate::internal::internal_topics::InternalTopics;
use crate::internal::ownership_lease::OwnershipLease;
use crate::internal::producers::{self, ClaimRequest, WriterClaim};
use crate::registry::Registry;
use crate::topic::fetch_watchdog;
use crate::topic::state::TopicState;
use crate::topic::topic_recreation::{self, ReaderRegistry};

/// One connection. Everything that is opened on it keeps it alive, and is closed with it.
pub(crate) struct Connection {
    pub(crate) link: Arc<Link>,
    pub(crate) tables: Arc<InternalTopics>,
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) readers: Arc<ReaderRegistry>,
    claims: Mutex<Vec<Weak<WriterClaim>>>,
    counters: Mutex<Vec<Weak<DeliveryCounter>>>,
    /// Held while heartbeats or the end of the session are sent: one at a time.
    sending: Mutex<()>,
}

impl Connection {
    /// Connects, and checks that a broker answers.
    pub(crate) fn open(
        options: Options,
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<Self>, TransportError> {
        let registry = options.registry.clone().map(|options| Arc::new(Registry::new(options)));
        let link = Link::open(options, clock)?;
        let connection = Self {
            tables: Arc::new(InternalTopics::new(&link)),
            registry,
            readers: Arc::default(),
            claims: Mutex::default(),
            counters: Mutex::default(),
            sending: Mutex::default(),
            link,
        };
        let started = connection.link.start_rebootstrap();
        let started =
            started.and_then(|()| topic_recreation::start(&connection.link, &connection.readers));
        started.map_err(|error| engine("start a thread", error))?;
        Ok(Arc::new(connection))
    }

    /// Adds a writer whose samples are to be delivered in time.
    pub(crate) fn add_counter(&self, counter: &Arc<DeliveryCounter>) {
        let mut counters = locked(&self.counters);
        counters.retain(|counter| counter.strong_count() > 0);
        counters.push(Arc::downgrade(counter));
    }

    /// A message if nothing that was published was delivered for this time.
    pub(crate) fn stalled(&self, time: Duration) -> Option<String> {
        let counters: Vec<_> = locked(&self.counters).iter().filter_map(Weak::upgrade).collect();
        counters.iter().find_map(|counter| counter.stalled(time))
    }

    /// Claims a partition for a writer; for samples of another bus, with their producer's
    /// incarnation there. The connection's heartbeats keep the claim alive.
    pub(crate) fn claim(
        &self,
        topic: &TopicState,
        request: &WriterRequest<'_>,
        forwarded: Option<u64>,
    ) -> Result<Arc<WriterClaim>, TransportError> {
        let (partition, name) = (request.partition, request.producer);
        let place = ClaimRequest { topic: &topic.name, qos: &topic.qos, partition, name };
        let claim = Arc::new(place.claim(&self.tables, forwarded)?);
        let mut claims = locked(&self.claims);
        claims.retain(|claim| claim.strong_count() > 0);
        claims.push(Arc::downgrade(&claim));
        let is_first = claims.len() == 1;
        drop(claims);
        if is_first {
            producers::sweep(&self.tables)?;
        }
        Ok(claim)
    }

    /// Sends heartbeats for the writers, and checks exclusive topics for takeovers. This waits for
    /// the brokers.
    pub(crate) fn send_heartbeats(&self) {
        let claims = self.claims();
        let can_be_fenced = claims.iter().any(|claim| claim.can_be_fenced());
        let sending = locked(&self.sending);
        if claims.is_empty() || self.link.is_closed() {
            return;
        }
        // If this fails, others will declare the writers dead, which is correct then. Exclusive
        // topics' writers defer their publishes.
        let _ = if can_be_fenced {
            producers::send_heartbeats(&self.link, &claims)
        } else {
            producers::send_session_heartbeat(&self.link)
        };
        drop(sending);
        if can_be_fenced {
            producers::check_fencing(&self.tables, &claims, producers::HEARTBEAT_TIMEOUT);
        }
    }

    /// The writers that the connection's heartbeats keep alive, and dropped ones with deferred
    /// reports.
    fn claims(&self) -> Vec<Arc<WriterClaim>> {
        locked(&self.claims).iter().filter_map(Weak::upgrade).collect()
    }

    /// Records that the writers were closed. Before that, deferred reports get the result of a
    /// check, or *unknown*. Brokers that are lost are not waited for.
    fn leave(&self, is_lost: bool) {
        let claims = self.claims();
        let leases = || claims.iter().filter_map(|claim| claim.lease());
        if !is_lost && leases().any(OwnershipLease::has_reports) {
            producers::check_fencing(&self.tables, &claims, FLUSH_TIMEOUT);
        }
        leases().for_each(OwnershipLease::end);
        let has_written = !locked(&self.claims).is_empty();
        if has_written && !is_lost {
            let _after_others = locked(&self.sending);
            // If this fails, the writers are declared dead a little later.
            let _ = producers::end_session(&self.link);
        }
    }

    fn signals(&self) -> Vec<Arc<ReaderSignal>> {
        let readers = self.readers.all();
        readers.iter().filter_map(|reader| Some(Arc::clone(&reader.updates()?.signal))).collect()
    }

    /// Reports an outage, or its end, to the readers.
    pub(crate) fn report(&self, outage: &Outage) {
        if matches!(outage, Outage::Lost { .. }) {
            self.link.admin.forget();
        }
        self.signals().iter().for_each(|signal| signal.report(outage));
    }

    /// Watches the readers after an outage.
    pub(crate) fn watch_readers(&self) {
        fetch_watchdog::watch(&self.link, &self.readers);
    }

    /// Closes everything: readers are woken first, then records in flight get their time. Others
    /// take over from the writers when they read the last record, so that is sent last. If no
    /// broker answers, as far as known, nothing is waited for.
    pub(crate) fn close(&self) {
        if self.link.begin_close() {
            return;
        }
        self.signals().iter().for_each(|signal| signal.ring());
        let health = &self.link.health;
        health.end();
        if let Some(registry) = &self.registry {
            registry.end();
        }
        let patience = if health.is_lost() { Duration::ZERO } else { FLUSH_TIMEOUT };
        let delivered = producer::close(self.link.producers(), Instant::now() + patience);
        self.leave(!delivered || health.is_lost());
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
