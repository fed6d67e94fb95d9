//! The state that everything of one connection shares.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Clock, Guarantee, Outage, TransportError};

use crate::client::admin::Admin;
use crate::client::error::{engine, failed, outage};
use crate::client::fetcher::{Fetcher, FetcherPool, NO_GROUP, ReaderSignal};
use crate::client::health::{self, Health};
use crate::client::names::Names;
use crate::client::options::{BROKER_TIMEOUT, FORWARDING_BATCH_BYTES, Options};
use crate::client::producer::{self, FLUSH_TIMEOUT, Producer};
use crate::client::rebootstrap;
use crate::client::security_errors;
use crate::internal::internal_topics::{self, InternalTopics};
use crate::internal::ownership_lease::OwnershipLease;
use crate::internal::producers::{self, WriterClaim};
use crate::registry::Registry;
use crate::topic::topic_recreation::{self, ReaderRegistration};
use crate::topic::writer::DeliveryCounter;

/// How long connecting waits for an answer before it checks for a rejection.
const CONNECT_POLL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long closing may take in total.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection. Everything that is opened on it keeps it alive, and is closed with it.
pub(crate) struct Connection {
    pub(crate) options: Options,
    pub(crate) names: Names,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    /// The connection's name in its heartbeats.
    pub(crate) session: String,
    pub(crate) tables: InternalTopics,
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) admin: Admin,
    pub(crate) pool: Arc<FetcherPool>,
    /// Consumers that read stored records and are otherwise idle: their fetches do not wait.
    pub(crate) scans: Arc<FetcherPool>,
    /// A consumer that fetches nothing: queries to the brokers use it.
    pub(crate) client: Arc<Fetcher>,
    producer: OnceLock<Producer>,
    /// Of the internal topics, if the samples' producer guarantees less than they need.
    internal_producer: OnceLock<Producer>,
    /// Of samples of another bus, by batch size.
    forwarding: [OnceLock<Producer>; FORWARDING_BATCH_BYTES.len()],
    producing: Mutex<()>,
    readers: Mutex<Vec<Arc<ReaderRegistration>>>,
    claims: Mutex<Vec<Weak<WriterClaim>>>,
    tallies: Mutex<Vec<Weak<DeliveryCounter>>>,
    /// Held while heartbeats or the end of the session are sent: one at a time.
    speaking: Mutex<()>,
    closed: AtomicBool,
}

impl Connection {
    /// Connects, and checks that a broker answers.
    pub(crate) fn open(
        options: Options,
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<Self>, TransportError> {
        let health = Arc::<Health>::default();
        let client = Arc::new(Fetcher::start(&options, &health, (NO_GROUP, None))?);
        let names = options.names.clone();
        let connection = Arc::new(Self {
            admin: Admin::new(&options, &health),
            session: internal_topics::attempt(),
            tables: InternalTopics::default(),
            registry: options.registry.clone().map(|options| Arc::new(Registry::new(options))),
            names,
            clock: Arc::clone(clock),
            pool: FetcherPool::new(&options, &health),
            scans: FetcherPool::new(&options.for_scans(), &health),
            client,
            producer: OnceLock::new(),
            internal_producer: OnceLock::new(),
            forwarding: Default::default(),
            producing: Mutex::default(),
            readers: Mutex::default(),
            claims: Mutex::default(),
            tallies: Mutex::default(),
            speaking: Mutex::default(),
            closed: AtomicBool::new(false),
            health,
            options,
        });
        connection.reach()?;
        let topic = connection.names.internal(internal_topics::TOPICS);
        let named = rebootstrap::BootstrapServers::new(&connection.options.brokers, topic);
        let started = named.map_err(std::io::Error::from).and_then(|named| {
            rebootstrap::start(&connection.health, named)?;
            health::start(&connection)?;
            topic_recreation::start(&connection)
        });
        started.map_err(|error| engine("start a thread", error))?;
        Ok(connection)
    }

    /// Waits until a broker answers; fails at once if brokers reject this client.
    fn reach(&self) -> Result<(), TransportError> {
        let topic = self.names.internal(internal_topics::TOPICS);
        let until = Instant::now() + BROKER_TIMEOUT;
        loop {
            let Err(error) = self.client.fetch_metadata(Some(&topic), CONNECT_POLL_TIMEOUT) else {
                return Ok(());
            };
            let refusal = self.health.refusal();
            if refusal.is_none() && Instant::now() < until {
                continue;
            }
            let brokers = &self.options.brokers;
            return Err(match refusal {
                Some((code, reason)) => security_errors::refused(&self.options, (code, &reason)),
                None => outage(format!(
                    "{brokers}: {error} ({}); is security.protocol the brokers'?",
                    self.health.complaint()
                )),
            });
        }
    }

    pub(crate) fn check_open(&self) -> Result<(), TransportError> {
        if self.is_closed() { Err(TransportError::Closed) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The producer that all writers share, started when first needed.
    pub(crate) fn producer(&self) -> Result<&Producer, TransportError> {
        self.made(&self.producer, || self.options.clone())
    }

    /// The producer of the internal topics.
    pub(crate) fn internal_producer(&self) -> Result<&Producer, TransportError> {
        match self.options.guarantee {
            Guarantee::Durable => self.producer(),
            _ => self.made(&self.internal_producer, || self.options.for_internal_topics()),
        }
    }

    /// The producer that all forwarders of one batch size share, by its index in
    /// [`FORWARDING_BATCH_BYTES`]; started when first needed.
    pub(crate) fn forwarding(&self, batch: usize) -> Result<&Producer, TransportError> {
        let batch = batch.min(FORWARDING_BATCH_BYTES.len() - 1);
        self.made(&self.forwarding[batch], || {
            self.options.for_forwarding(FORWARDING_BATCH_BYTES[batch])
        })
    }

    fn made<'a>(
        &self,
        place: &'a OnceLock<Producer>,
        options: impl FnOnce() -> Options,
    ) -> Result<&'a Producer, TransportError> {
        if let Some(producer) = place.get() {
            return Ok(producer);
        }
        let _one = locked(&self.producing);
        if let Some(producer) = place.get() {
            return Ok(producer);
        }
        self.check_open()?;
        let made = Producer::start(&options(), &self.health);
        let made = made.map_err(failed("start the producer"))?;
        Ok(place.get_or_init(|| made))
    }

    /// Adds a writer whose samples are to be delivered in time.
    pub(crate) fn add_tally(&self, tally: &Arc<DeliveryCounter>) {
        let mut tallies = locked(&self.tallies);
        tallies.retain(|tally| tally.strong_count() > 0);
        tallies.push(Arc::downgrade(tally));
    }

    /// A message if nothing that was published was delivered for this time.
    pub(crate) fn stalled(&self, time: Duration) -> Option<String> {
        let tallies: Vec<_> = locked(&self.tallies).iter().filter_map(Weak::upgrade).collect();
        tallies.iter().find_map(|tally| tally.stalled(time))
    }

    /// Adds a reader that receives outages, the connection's end, and changes of its topic.
    pub(crate) fn add_reader(&self, told: ReaderRegistration) {
        let mut readers = locked(&self.readers);
        readers.retain(|reader| reader.wake.strong_count() > 0);
        readers.push(Arc::new(told));
    }

    /// All of these.
    pub(crate) fn reader_registrations(&self) -> Vec<Arc<ReaderRegistration>> {
        locked(&self.readers).clone()
    }

    /// Adds a writer that the connection's heartbeats keep alive; returns whether it is the first.
    pub(crate) fn add_claim(&self, claim: &Arc<WriterClaim>) -> bool {
        let mut claims = locked(&self.claims);
        claims.retain(|claim| claim.strong_count() > 0);
        claims.push(Arc::downgrade(claim));
        claims.len() == 1
    }

    /// Sends heartbeats for the writers, and checks exclusive topics for takeovers. This waits for
    /// the brokers.
    pub(crate) fn send_heartbeats(&self) {
        let claims = self.claims();
        let looks = claims.iter().any(|claim| claim.looks());
        let speaking = locked(&self.speaking);
        if claims.is_empty() || self.is_closed() {
            return;
        }
        // If this fails, others will declare the writers dead, which is correct then. Exclusive
        // topics' writers defer their publishes.
        let _ = if looks {
            producers::send_heartbeats(self, &claims)
        } else {
            producers::send_session_heartbeat(self)
        };
        drop(speaking);
        if looks {
            producers::check_fencing(self, &claims, producers::HEARTBEAT_TIMEOUT);
        }
    }

    /// The writers that the connection's heartbeats keep alive, and dropped ones with deferred
    /// reports.
    fn claims(&self) -> Vec<Arc<WriterClaim>> {
        locked(&self.claims).iter().filter_map(Weak::upgrade).collect()
    }

    /// Records that the writers were closed. Before that, deferred reports get the result of a
    /// check, or *unknown*.
    fn leave(&self, until: Instant) {
        let (claims, is_lost) = (self.claims(), self.health.is_lost());
        let left = || until.saturating_duration_since(Instant::now());
        let holds = || claims.iter().filter_map(|claim| claim.hold());
        if !is_lost && holds().any(OwnershipLease::has_reports) {
            producers::check_fencing(self, &claims, left().min(FLUSH_TIMEOUT));
        }
        holds().for_each(OwnershipLease::end);
        let has_written = !locked(&self.claims).is_empty();
        if has_written && !is_lost {
            let _after_others = locked(&self.speaking);
            // If this fails, the writers are declared dead a little later.
            let _ = producers::end_session(self, left());
        }
    }

    /// All producers that were started.
    pub(crate) fn producers(&self) -> impl Iterator<Item = &Producer> {
        let producers = [&self.producer, &self.internal_producer];
        producers.into_iter().chain(&self.forwarding).filter_map(OnceLock::get)
    }

    fn readers(&self) -> Vec<Arc<ReaderSignal>> {
        locked(&self.readers).iter().filter_map(|reader| reader.wake.upgrade()).collect()
    }

    pub(crate) fn tell(&self, outage: &Outage) {
        if matches!(outage, Outage::Lost { .. }) {
            self.admin.forget();
        }
        self.readers().iter().for_each(|reader| reader.tell(outage));
    }

    /// Closes everything: readers are woken first, then records in flight get their time. Others
    /// take over from the writers when they read the last record, so that is sent last. If no
    /// broker answers, as far as known, nothing is waited for.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.readers().iter().for_each(|reader| reader.ring());
        self.health.end();
        if let Some(registry) = &self.registry {
            registry.end();
        }
        let now = Instant::now();
        let patience = if self.health.is_lost() { Duration::ZERO } else { FLUSH_TIMEOUT };
        producer::close(self.producers(), now + patience);
        self.leave(now + CLOSE_TIMEOUT);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
