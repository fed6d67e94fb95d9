//! The ground of a connection: its settings, its clients, and whether it is open.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use helio_bus::transport::locked;
use helio_bus::{Clock, Guarantee, TransportError};

use crate::client::admin::Admin;
use crate::client::error::{failed, outage};
use crate::client::fetcher::{Fetcher, FetcherPool, NO_GROUP};
use crate::client::health::Health;
use crate::client::names::{Names, TOPICS};
use crate::client::options::{BROKER_TIMEOUT, FORWARDING_BATCH_BYTES, Options};
use crate::client::producer::Producer;
use crate::client::rebootstrap::BootstrapServers;
use crate::client::security_errors;

/// How long connecting waits for an answer before it checks for a rejection.
const CONNECT_POLL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long connecting retries brokers that all refuse connections, which a restart explains;
/// silent ones get [`BROKER_TIMEOUT`].
const REFUSED_TIMEOUT: Duration = Duration::from_secs(3);
/// How often clients are checked for known brokers.
const REBOOTSTRAP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The clients and settings that everything of one connection uses, without topics, readers or
/// writers.
pub(crate) struct Link {
    pub(crate) options: Options,
    pub(crate) names: Names,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    /// The connection's name in its heartbeats.
    pub(crate) session: String,
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
    closed: AtomicBool,
}

impl Link {
    /// Connects, and checks that a broker answers.
    pub(crate) fn open(
        options: Options,
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<Self>, TransportError> {
        let health = Arc::<Health>::default();
        let link = Self {
            admin: Admin::new(&options, &health),
            session: unique_name(),
            names: options.names.clone(),
            clock: Arc::clone(clock),
            pool: FetcherPool::new(&options, &health),
            scans: FetcherPool::new(&options.for_scans(), &health),
            client: Arc::new(Fetcher::start(&options, &health, (NO_GROUP, None))?),
            producer: OnceLock::new(),
            internal_producer: OnceLock::new(),
            forwarding: Default::default(),
            producing: Mutex::default(),
            closed: AtomicBool::new(false),
            health,
            options,
        };
        link.reach()?;
        Ok(Arc::new(link))
    }

    /// Waits until a broker answers; fails at once if brokers reject this client.
    fn reach(&self) -> Result<(), TransportError> {
        let topic = self.names.internal(TOPICS);
        let began = Instant::now();
        loop {
            let Err(error) = self.client.fetch_metadata(Some(&topic), CONNECT_POLL_TIMEOUT) else {
                return Ok(());
            };
            let refusal = self.health.refusal();
            let patience = if self.health.is_refused() { REFUSED_TIMEOUT } else { BROKER_TIMEOUT };
            if refusal.is_none() && began.elapsed() < patience {
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

    /// Starts the thread that checks clients for known brokers. It ends with the connection.
    pub(crate) fn start_rebootstrap(&self) -> std::io::Result<()> {
        let topic = self.names.internal(TOPICS);
        let servers = BootstrapServers::new(&self.options.brokers, topic)?;
        let health = Arc::clone(&self.health);
        let run = move || {
            while !health.wait_for_end(REBOOTSTRAP_CHECK_INTERVAL) {
                health.clients.check(&servers);
            }
        };
        std::thread::Builder::new().name("kafka-brokers".to_owned()).spawn(run).map(drop)
    }

    pub(crate) fn check_open(&self) -> Result<(), TransportError> {
        if self.is_closed() { Err(TransportError::Closed) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Marks the connection as closed; returns whether it was closed before.
    pub(crate) fn begin_close(&self) -> bool {
        self.closed.swap(true, Ordering::AcqRel)
    }

    /// The producer that all writers share, started when first needed.
    pub(crate) fn producer(&self) -> Result<&Producer, TransportError> {
        self.started(&self.producer, || self.options.clone())
    }

    /// The producer of the internal topics.
    pub(crate) fn internal_producer(&self) -> Result<&Producer, TransportError> {
        match self.options.guarantee {
            Guarantee::Durable => self.producer(),
            _ => self.started(&self.internal_producer, || self.options.for_internal_topics()),
        }
    }

    /// The producer that all forwarders of one batch size share, by its index in
    /// [`FORWARDING_BATCH_BYTES`]; started when first needed.
    pub(crate) fn forwarding(&self, batch: usize) -> Result<&Producer, TransportError> {
        let batch = batch.min(FORWARDING_BATCH_BYTES.len() - 1);
        self.started(&self.forwarding[batch], || {
            self.options.for_forwarding(FORWARDING_BATCH_BYTES[batch])
        })
    }

    fn started<'a>(
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
        let started = Producer::start(&options(), &self.health);
        let started = started.map_err(failed("start the producer"))?;
        Ok(place.get_or_init(|| started))
    }

    /// All producers that were started.
    pub(crate) fn producers(&self) -> impl Iterator<Item = &Producer> {
        let producers = [&self.producer, &self.internal_producer];
        producers.into_iter().chain(&self.forwarding).filter_map(OnceLock::get)
    }
}

/// A name that no other process and no other call returns.
pub(crate) fn unique_name() -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let n = CALLS.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{:x}-{n:x}", since.as_nanos(), process::id())
}
