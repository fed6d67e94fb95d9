//! What everything of one connection shares.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use helio_bus::transport::locked;
use helio_bus::{Clock, Outage, TransportError};

use crate::admin::Admin;
use crate::claims::{self, Claim};
use crate::error::{engine, failed, outage};
use crate::fetcher::{Fetcher, NO_GROUP, Pool, Wake};
use crate::monitor::{self, Health};
use crate::names::Names;
use crate::options::{Options, PATIENCE};
use crate::producer::Producer;
use crate::registry::Registry;
use crate::tables::{self, Tables};

/// One connection: what is opened on it keeps it alive, and is closed with it.
pub(crate) struct Connection {
    pub(crate) options: Options,
    pub(crate) names: Names,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    /// What the connection is called where it says that its writers live.
    pub(crate) session: String,
    pub(crate) tables: Tables,
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) admin: Admin,
    pub(crate) pool: Arc<Pool>,
    /// Consumers that read what is there and are idle otherwise: nothing that they fetch waits.
    pub(crate) scans: Arc<Pool>,
    /// A consumer that fetches nothing: questions to the brokers go through it.
    pub(crate) client: Arc<Fetcher>,
    producer: OnceLock<Producer>,
    producing: Mutex<()>,
    readers: Mutex<Vec<Weak<Wake>>>,
    claims: Mutex<Vec<Weak<Claim>>>,
    closed: AtomicBool,
}

impl Connection {
    /// Connects, and makes sure that a broker answers.
    pub(crate) fn open(
        options: Options,
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<Self>, TransportError> {
        let health = Arc::<Health>::default();
        let client = Arc::new(Fetcher::start(&options, &health, (NO_GROUP, None))?);
        let names = Names::new(&options.prefix);
        let connection = Arc::new(Self {
            admin: Admin::new(&options),
            session: tables::attempt(),
            tables: Tables::default(),
            registry: options.registry.clone().map(|options| Arc::new(Registry::new(options))),
            names,
            clock: Arc::clone(clock),
            pool: Pool::new(&options, &health),
            scans: Pool::new(&options.for_scans(), &health),
            client,
            producer: OnceLock::new(),
            producing: Mutex::default(),
            readers: Mutex::default(),
            claims: Mutex::default(),
            closed: AtomicBool::new(false),
            health,
            options,
        });
        let topic = connection.names.internal(tables::TOPICS);
        if let Err(error) = connection.client.fetch_metadata(Some(&topic), PATIENCE) {
            let complaint = connection.health.complaint();
            let brokers = &connection.options.brokers;
            return Err(outage(format!("{brokers}: {error} ({complaint})")));
        }
        monitor::start(&connection).map_err(|error| engine("start a thread", error))?;
        Ok(connection)
    }

    pub(crate) fn check_open(&self) -> Result<(), TransportError> {
        if self.is_closed() { Err(TransportError::Closed) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The producer that all writers share, made when first needed.
    pub(crate) fn producer(&self) -> Result<&Producer, TransportError> {
        let _one = locked(&self.producing);
        if let Some(producer) = self.producer.get() {
            return Ok(producer);
        }
        self.check_open()?;
        let made = Producer::start(&self.options, &self.health);
        let made = made.map_err(failed("start the producer"))?;
        Ok(self.producer.get_or_init(|| made))
    }

    /// A reader that is to be told of outages and of the end.
    pub(crate) fn add_reader(&self, wake: &Arc<Wake>) {
        let mut readers = locked(&self.readers);
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(wake));
    }

    /// A writer that lives as long as the connection says so.
    pub(crate) fn add_claim(&self, claim: &Arc<Claim>) {
        let mut claims = locked(&self.claims);
        claims.retain(|claim| claim.strong_count() > 0);
        claims.push(Arc::downgrade(claim));
    }

    /// Says that the writers live, and has those of exclusive topics learn who has taken over. It
    /// waits for the brokers.
    pub(crate) fn speak_for_writers(&self) {
        let claims: Vec<_> = locked(&self.claims).iter().filter_map(Weak::upgrade).collect();
        if claims.is_empty() || self.is_closed() {
            return;
        }
        // Where it cannot be said, others will take the writers for dead: that is so, then.
        let _ = claims::beat(self);
        for claim in claims.iter().filter(|claim| claim.is_exclusive()) {
            let _ = claim.look(self);
        }
    }

    fn readers(&self) -> Vec<Arc<Wake>> {
        locked(&self.readers).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn tell(&self, outage: &Outage) {
        if matches!(outage, Outage::Lost { .. }) {
            self.admin.forget();
        }
        self.readers().iter().for_each(|reader| reader.tell(outage));
    }

    /// Ends everything: readers are woken first, then what is under way gets its time.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.readers().iter().for_each(|reader| reader.ring());
        self.health.end();
        if let Some(registry) = &self.registry {
            registry.end();
        }
        let has_written = !locked(&self.claims).is_empty();
        if has_written && !self.health.is_lost() {
            // Where it cannot be said, the writers count as dead a little later.
            let _ = claims::end(self);
        }
        if let Some(producer) = self.producer.get() {
            producer.close(self.health.is_lost());
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
