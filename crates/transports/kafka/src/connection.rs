//! What everything of one connection shares.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Clock, Guarantee, Outage, TransportError};

use crate::admin::Admin;
use crate::anew::{self, Told};
use crate::brokers;
use crate::claims::{self, Claim};
use crate::error::{engine, failed, outage};
use crate::fetcher::{Fetcher, NO_GROUP, Pool, Wake};
use crate::hold::Hold;
use crate::monitor::{self, Health};
use crate::names::Names;
use crate::options::{BATCHES, Options, PATIENCE};
use crate::producer::{self, CLOSING, Producer};
use crate::registry::Registry;
use crate::security;
use crate::tables::{self, Tables};
use crate::writer::Tally;

/// How long an answer is waited for before it is looked whether there is a refusal.
const REACHED: Duration = Duration::from_secs(1);
/// How long all that closing waits for may take together.
const CLOSED: Duration = Duration::from_secs(10);

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
    /// Of the tables, where the samples' one promises less than they need.
    tables_producer: OnceLock<Producer>,
    /// Of samples of another bus, by the size of their batches.
    forwarding: [OnceLock<Producer>; BATCHES.len()],
    producing: Mutex<()>,
    readers: Mutex<Vec<Arc<Told>>>,
    claims: Mutex<Vec<Weak<Claim>>>,
    tallies: Mutex<Vec<Weak<Tally>>>,
    /// Who says that the writers live, or that they have gone: one after the other.
    speaking: Mutex<()>,
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
        let names = options.names.clone();
        let connection = Arc::new(Self {
            admin: Admin::new(&options, &health),
            session: tables::attempt(),
            tables: Tables::default(),
            registry: options.registry.clone().map(|options| Arc::new(Registry::new(options))),
            names,
            clock: Arc::clone(clock),
            pool: Pool::new(&options, &health),
            scans: Pool::new(&options.for_scans(), &health),
            client,
            producer: OnceLock::new(),
            tables_producer: OnceLock::new(),
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
        let topic = connection.names.internal(tables::TOPICS);
        let named = brokers::Named::new(&connection.options.brokers, topic);
        let started = named.map_err(std::io::Error::from).and_then(|named| {
            brokers::start(&connection.health, named)?;
            monitor::start(&connection)?;
            anew::start(&connection)
        });
        started.map_err(|error| engine("start a thread", error))?;
        Ok(connection)
    }

    /// Waits until a broker answers; not where they do not let this client in.
    fn reach(&self) -> Result<(), TransportError> {
        let topic = self.names.internal(tables::TOPICS);
        let until = Instant::now() + PATIENCE;
        loop {
            let Err(error) = self.client.fetch_metadata(Some(&topic), REACHED) else {
                return Ok(());
            };
            let refusal = self.health.refusal();
            if refusal.is_none() && Instant::now() < until {
                continue;
            }
            let brokers = &self.options.brokers;
            return Err(match refusal {
                Some((code, reason)) => security::refused(&self.options, (code, &reason)),
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

    /// The producer that all writers share, made when first needed.
    pub(crate) fn producer(&self) -> Result<&Producer, TransportError> {
        self.made(&self.producer, || self.options.clone())
    }

    /// The producer that the tables are written with.
    pub(crate) fn tables_producer(&self) -> Result<&Producer, TransportError> {
        match self.options.guarantee {
            Guarantee::Durable => self.producer(),
            _ => self.made(&self.tables_producer, || self.options.for_tables()),
        }
    }

    /// The producer that all forwarders share whose topics let in batches of one size, by its place
    /// in [`BATCHES`]; made when first needed.
    pub(crate) fn forwarding(&self, batch: usize) -> Result<&Producer, TransportError> {
        let batch = batch.min(BATCHES.len() - 1);
        self.made(&self.forwarding[batch], || self.options.for_forwarding(BATCHES[batch]))
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

    /// A writer whose samples have to arrive some time.
    pub(crate) fn add_tally(&self, tally: &Arc<Tally>) {
        let mut tallies = locked(&self.tallies);
        tallies.retain(|tally| tally.strong_count() > 0);
        tallies.push(Arc::downgrade(tally));
    }

    /// Where nothing that was published has arrived for this time.
    pub(crate) fn stalled(&self, time: Duration) -> Option<String> {
        let tallies: Vec<_> = locked(&self.tallies).iter().filter_map(Weak::upgrade).collect();
        tallies.iter().find_map(|tally| tally.stalled(time))
    }

    /// A reader that is to be told of outages, of the end, and of what others do to its topic.
    pub(crate) fn add_reader(&self, told: Told) {
        let mut readers = locked(&self.readers);
        readers.retain(|reader| reader.wake.strong_count() > 0);
        readers.push(Arc::new(told));
    }

    /// All of these.
    pub(crate) fn told(&self) -> Vec<Arc<Told>> {
        locked(&self.readers).clone()
    }

    /// A writer that lives as long as the connection says so; whether it is the first.
    pub(crate) fn add_claim(&self, claim: &Arc<Claim>) -> bool {
        let mut claims = locked(&self.claims);
        claims.retain(|claim| claim.strong_count() > 0);
        claims.push(Arc::downgrade(claim));
        claims.len() == 1
    }

    /// Says that the writers live, and has those of exclusive topics learn who has taken over. It
    /// waits for the brokers.
    pub(crate) fn speak_for_writers(&self) {
        let claims = self.claims();
        let looks = claims.iter().any(|claim| claim.looks());
        let speaking = locked(&self.speaking);
        if claims.is_empty() || self.is_closed() {
            return;
        }
        // Where it cannot be said, others will take the writers for dead: that is so, then. And
        // those of exclusive topics hold back what is published.
        let _ = if looks { claims::speak(self, &claims) } else { claims::beat(self) };
        drop(speaking);
        if looks {
            claims::look(self, &claims, claims::PROMPT);
        }
    }

    /// The writers that live as long as the connection says so, and those that have gone whose
    /// reports wait for a look.
    fn claims(&self) -> Vec<Arc<Claim>> {
        locked(&self.claims).iter().filter_map(Weak::upgrade).collect()
    }

    /// Says that the writers have gone. Before that those who wait for a look are told what it
    /// finds, or that there is none any more.
    fn leave(&self, until: Instant) {
        let (claims, is_lost) = (self.claims(), self.health.is_lost());
        let left = || until.saturating_duration_since(Instant::now());
        let holds = || claims.iter().filter_map(|claim| claim.hold());
        if !is_lost && holds().any(Hold::has_reports) {
            claims::look(self, &claims, left().min(CLOSING));
        }
        holds().for_each(Hold::end);
        let has_written = !locked(&self.claims).is_empty();
        if has_written && !is_lost {
            let _after_others = locked(&self.speaking);
            // Where it cannot be said, the writers count as dead a little later.
            let _ = claims::end(self, left());
        }
    }

    /// All that were made.
    pub(crate) fn producers(&self) -> impl Iterator<Item = &Producer> {
        let producers = [&self.producer, &self.tables_producer];
        producers.into_iter().chain(&self.forwarding).filter_map(OnceLock::get)
    }

    fn readers(&self) -> Vec<Arc<Wake>> {
        locked(&self.readers).iter().filter_map(|reader| reader.wake.upgrade()).collect()
    }

    pub(crate) fn tell(&self, outage: &Outage) {
        if matches!(outage, Outage::Lost { .. }) {
            self.admin.forget();
        }
        self.readers().iter().for_each(|reader| reader.tell(outage));
    }

    /// Ends everything: readers are woken first, then what is under way gets its time. Others take
    /// over from the writers when they hear of it, so that comes last. Nothing is waited for where
    /// no broker answers, as far as that is known.
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
        let patience = if self.health.is_lost() { Duration::ZERO } else { CLOSING };
        producer::close(self.producers(), now + patience);
        self.leave(now + CLOSED);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
