//! The durability service. It stores the persistent topics of a domain in a journal, acknowledges
//! their samples, and sends them to late joiners after the writers have left.
//!
//! Constraints. Nothing is acknowledged before it is durable in the journal. A writer keeps what is
//! not acknowledged and sends it again. Killing the service at any instruction loses no
//! acknowledged sample. One thread does everything that receipts depend on, so that all parts see
//! the same state. It never waits: a worker pool does what needs the disk. A second thread serves
//! historical data. If the first thread stalls, a third one withdraws the announcement that the
//! service is ready. An error of a topic, a producer or a message affects that one alone; the
//! service continues.
//!
//! Format. The journal is the bus's own: a topic is stored under its own name, its samples as they
//! were published. `catalogue` has each topic's properties in the domain.
//!
//! Operation. A turn opens newly announced topics, several at a time, in the worker pool. It
//! appends the received samples to the journal and acknowledges them to the writers. It then
//! acknowledges what has become durable since the last turn. Meanwhile the history server sends
//! pages to late joiners.
//!
//! Two services of a domain store the same topics. Writers wait for both. A reader requests its
//! history from one of them, and from the other one if the first leaves. A service that returns
//! fetches the samples that it missed.

mod acks;
mod anti_entropy;
mod catalogue;
mod departed_peers;
mod history_server;
mod opening;
mod retention_marks;
mod stored_topic;
mod sync;
#[cfg(test)]
mod tests;
mod watchdog;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use helio_bus::transport::{Opening, locked};
use helio_bus::{
    Bell, Bus, ConnectError, LocalBell, PendingTask, Qos, ReadError, SystemClock, ThreadPool,
    TopicError, TopicName, TransportError,
};
use thiserror::Error;

use crate::announcements::{Announcement, ProducerPosition, ServiceState, unix_nanos};
use crate::connection::Connection;
use crate::entity::{Refused, Writer};
use crate::error::failed;
use crate::names::INTERNAL_PREFIX;
use crate::options::Options;
use crate::peer_messages::{ACK_TOPIC, Ack, MessageWriter, ack_qos};
use crate::topic::{has_last_values, is_kept};
use crate::transport::DdsTransport;
use catalogue::Catalogue;
use helio_bus::transport::versioned_json;
use history_server::{HistoryServer, ServedTopics};
use opening::{OpenResult, Opener};
use stored_topic::StoredTopic;
use watchdog::Watchdog;

/// The threads of the worker pool. Most tasks wait, and syncs that are requested together share one
/// write to the disk.
const WORKER_THREADS: usize = 24;
/// The most topics that are opened at a time, so that other tasks are not starved.
const MAX_TOPICS_OPENING: usize = 16;
/// The poll interval for new topics, schemas and services.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The retry interval for topics that cannot be opened.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The service cannot start, or must stop. A topic that it cannot store is a [`Notice`].
#[derive(Debug, Error)]
pub enum DurabilityError {
    /// The domain or the folder cannot be opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A topic of the folder cannot be opened, for example because another service uses the folder.
    #[error("the folder's topics cannot be opened: {0}")]
    Topic(#[from] TopicError),
    /// The folder cannot be read.
    #[error("the folder cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The connection to the domain failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The catalogue entry of a topic is invalid.
    #[error("the folder's catalogue of {topic} cannot be read ({reason}); remove it there")]
    Catalogue {
        /// The topic.
        topic: String,
        /// The cause.
        reason: String,
    },
    /// The folder has a topic of that name that was not created by a durability service.
    #[error(
        "no durability service created the folder's topic {0}; use a folder of the service's own"
    )]
    NotOurs(TopicName),
}

/// An event that the service reports to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// It stores a topic from now on.
    Keeps {
        /// The topic.
        topic: TopicName,
        /// The number of its samples that were in the folder.
        samples: u64,
    },
    /// It has all samples of a topic that the other services have. From now on receipts wait for
    /// it, and the other services may stop.
    Ready {
        /// The topic.
        topic: TopicName,
    },
    /// It cannot store a topic at present, and retries. The writers get no receipts meanwhile.
    Trouble {
        /// The topic.
        topic: TopicName,
        /// The cause, for example a full disk.
        cause: String,
    },
    /// It stores the topic again.
    Recovered {
        /// The topic.
        topic: TopicName,
    },
    /// Samples of a producer are lost: only services that have left acknowledged them.
    Hole {
        /// The topic.
        topic: TopicName,
        /// The producer, and the number of samples.
        loss: String,
    },
}

/// Statistics of the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Topics that it stores.
    pub topics: u64,
    /// Samples stored since it started.
    pub stored: u64,
    /// Their payloads, in bytes.
    pub bytes: u64,
    /// Samples sent to late joiners.
    pub served: u64,
}

/// The service's timeouts. Values other than the defaults are for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The timeout of syncing appended samples to the disk (60 s).
    pub disk: Duration,
    /// The timeout of the journal's own syncs of the folder's earlier contents (10 s).
    pub folder_sync: Duration,
    /// The retry interval of a topic after an error (2 s).
    pub retry_interval: Duration,
    /// How long to wait for another service to announce that it stores a topic (5 s).
    pub announcement: Duration,
    /// How long to wait for a live service that sends nothing (60 s). Its samples are fetched when
    /// it is ready again.
    pub silent_service: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            disk: Duration::from_secs(60),
            folder_sync: Duration::from_secs(10),
            retry_interval: Duration::from_secs(2),
            announcement: Duration::from_secs(5),
            silent_service: Duration::from_secs(60),
        }
    }
}

/// Whether a domain (`dds://…`) has a durability service. Waits for one as long as the URL's
/// `service_ms` says, 3 s by default.
///
/// # Errors
/// [`DurabilityError::Connect`].
pub fn is_there(url: &str) -> Result<bool, DurabilityError> {
    let opening = opening(url)?;
    let options = Options::parse(&opening)?;
    Ok(Connection::open(&options, &opening.clock).map_err(ConnectError::from)?.has_service())
}

fn opening(url: &str) -> Result<Opening, ConnectError> {
    Ok(Opening { url: url.parse()?, clock: Arc::new(SystemClock::new()) })
}

/// A pool of threads for tasks that wait for the disk or for other sessions, so that no topic
/// delays the receipts of the others. The bell rings after each task.
fn worker_pool(bell: &Arc<dyn Bell>, threads: usize) -> ThreadPool {
    let bell = Arc::clone(bell);
    ThreadPool::new("helio-workers", threads, move || bell.ring(None))
}

/// Finishes the running tasks of a pool and discards the queued ones. No task may call it.
fn end(workers: &ThreadPool) {
    workers.close();
    workers.join(Duration::MAX);
}

/// The cause of a failure if a task panicked.
const PANICKED: &str =
    "a task of the durability service panicked; its message is on standard error";

/// A topic that is being opened.
struct OpeningTopic {
    qos: Qos,
    kept: bool,
    token: u64,
    opened: PendingTask<OpenResult>,
}

/// A durability service. The caller runs [`Durability::turn`] in a loop. Dropping it stops the
/// service; the stored samples stay in the folder.
pub struct Durability {
    dds: Arc<DdsTransport>,
    catalogue: Arc<Catalogue>,
    journal: Bus,
    bell: Arc<dyn Bell>,
    timeouts: Timeouts,
    workers: Arc<ThreadPool>,
    topics: BTreeMap<TopicName, StoredTopic>,
    /// Topics that wait to be opened, and topics that are being opened.
    unopened: VecDeque<(TopicName, Qos, bool)>,
    opening: BTreeMap<TopicName, OpeningTopic>,
    tokens: HashMap<u64, TopicName>,
    next_token: u64,
    /// The topics that the history server serves, and the server.
    served_topics: Arc<ServedTopics>,
    server: HistoryServer,
    marks: HashMap<String, MessageWriter>,
    watchdog: Arc<Watchdog>,
    /// Announcements that are not sent yet: of the service, and of topics that no session has open.
    pending_announcements: VecDeque<Announcement>,
    /// Topics that could not be opened: their state then, and when it was.
    refused: HashMap<TopicName, (Qos, Instant)>,
    last_poll: Option<Instant>,
    figures: Figures,
}

impl Durability {
    /// Joins a domain (`dds://…`) and stores its persistent topics in a folder. The folder is created
    /// if it does not exist, and belongs to one service.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn open(url: &str, folder: &Path) -> Result<Self, DurabilityError> {
        Self::open_with(url, folder, Timeouts::default())
    }

    /// The same as [`Durability::open`] with other timeouts.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn open_with(
        url: &str,
        folder: &Path,
        timeouts: Timeouts,
    ) -> Result<Self, DurabilityError> {
        let journal = Bus::builder().producer("durability");
        let journal = journal.connect(&format!("journal:{}", folder.display()))?;
        let catalogue = Catalogue::open(&journal)?;
        let opening = opening(url)?;
        let options = Options::parse(&opening)?;
        let connection = Connection::open(&options, &opening.clock)?;
        let bell: Arc<dyn Bell> = LocalBell::new();
        let workers = Arc::new(worker_pool(&bell, WORKER_THREADS));
        let watchdog = Arc::new(Watchdog::new(connection.lease));
        let (watching, rung) = (Arc::clone(&watchdog), Arc::clone(&bell));
        connection.listen(move |connection| {
            watching.check(&connection.announcements);
            rung.ring(None);
        });
        let served_topics = Arc::<ServedTopics>::default();
        let server = HistoryServer::start(&connection, &served_topics)?;
        let mut service = Self {
            dds: Arc::new(DdsTransport::new(connection)),
            catalogue: Arc::new(catalogue),
            journal,
            bell,
            timeouts,
            workers,
            topics: BTreeMap::new(),
            unopened: VecDeque::new(),
            opening: BTreeMap::new(),
            tokens: HashMap::new(),
            next_token: 0,
            served_topics,
            server,
            marks: HashMap::new(),
            watchdog,
            pending_announcements: VecDeque::from([Announcement::Service {
                started_nanos: unix_nanos(),
            }]),
            refused: HashMap::new(),
            last_poll: None,
            figures: Figures::default(),
        };
        service.load_catalogue()?;
        service.send_pending_announcements();
        Ok(service)
    }

    /// Removes topics and all their samples from a folder, for example to recreate them with
    /// another quality of service. No service may use the folder meanwhile. Returns the removed
    /// topics.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn forget(folder: &Path, topics: &[TopicName]) -> Result<Vec<TopicName>, DurabilityError> {
        let journal = Bus::connect(&format!("journal:{}", folder.display()))?;
        let catalogue = Catalogue::open(&journal)?;
        let mut forgotten = Vec::new();
        for topic in topics {
            let known = catalogue.forget(topic)?;
            if journal.remove_topic(topic)? || known {
                forgotten.push(topic.clone());
            }
        }
        Ok(forgotten)
    }

    /// Queues the announcements of all topics of the catalogue, open or not. The announcements that
    /// they are stored here come first: another service that starts waits for them.
    fn load_catalogue(&mut self) -> Result<(), DurabilityError> {
        let known = self.catalogue.known();
        let kept = known.iter().filter(|(_, known)| known.all_samples);
        self.pending_announcements.extend(kept.map(|(topic, _)| {
            let service_state = ServiceState { opening: true, ..ServiceState::default() };
            Announcement::ServiceState { topic: topic.clone(), service_state }
        }));
        for (topic, known) in known.iter().filter(|(_, known)| known.all_samples) {
            let (qos, origin) = (known.qos.clone(), known.origin.clone());
            self.pending_announcements.push_back(Announcement::Topic {
                topic: topic.clone(),
                qos,
                origin: origin.clone(),
            });
            let schemas = self.journal.schemas_of(topic)?;
            for (after, id) in schemas.unwrap_or_default().into_iter().enumerate() {
                let text = match self.journal.schema(id) {
                    Ok(Some(text)) => text,
                    Ok(None) => continue,
                    // The writers announce the good text, and the topic then stores it again.
                    Err(error @ TransportError::SchemaEdited { .. }) => {
                        helio_bus::notify(&format!("{topic}: a schema is not announced: {error}"));
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                let schema = crate::announcements::hex(id);
                self.pending_announcements
                    .push_back(Announcement::SchemaText { schema: schema.clone(), text });
                let (topic, origin) = (topic.clone(), origin.clone());
                self.pending_announcements.push_back(Announcement::TopicSchema {
                    topic,
                    schema,
                    after,
                    origin,
                });
            }
        }
        Ok(())
    }

    /// Sends pending announcements until a participant is blocked.
    fn send_pending_announcements(&mut self) {
        while let Some(announcement) = self.pending_announcements.front() {
            if self.dds.connection.announcements.announce(announcement.clone()).is_err() {
                return;
            }
            self.pending_announcements.pop_front();
        }
    }

    /// The statistics so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let served = self.figures.served + self.server.served();
        Figures { topics: self.topics.len() as u64, served, ..self.figures }
    }

    /// A function that ends the wait of a turn, from any thread.
    #[must_use]
    pub fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let bell = Arc::clone(&self.bell);
        Arc::new(move || bell.ring(None))
    }

    /// Does the pending work. If there is none, waits for work, at most `at_most`.
    ///
    /// # Errors
    /// [`DurabilityError`]: the service cannot continue.
    pub fn turn(
        &mut self,
        at_most: Duration,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<(), DurabilityError> {
        self.dds.connection.check_open()?;
        if self.server.has_ended() {
            self.figures.served += self.server.served();
            self.server = HistoryServer::start(&self.dds.connection, &self.served_topics)?;
        }
        if self.watchdog.begin_turn() {
            self.topics.values_mut().for_each(StoredTopic::resume_after_stall);
        }
        if self.last_poll.is_none_or(|last_poll| last_poll.elapsed() >= POLL_INTERVAL) {
            self.poll(notify);
        }
        self.take_opened(notify);
        if !self.store(notify) {
            self.rest(at_most);
        }
        Ok(())
    }

    fn rest(&mut self, at_most: Duration) {
        let mut at_most = at_most.min(POLL_INTERVAL);
        for topic in self.topics.values_mut().filter(|topic| !topic.is_armed()) {
            at_most = at_most.min(topic.arm(&self.bell));
        }
        let mut ready = Vec::new();
        self.bell.wait(Some(at_most), &mut ready);
        for name in ready.iter().filter_map(|token| self.tokens.get(token)) {
            if let Some(topic) = self.topics.get_mut(name) {
                topic.rung();
            }
        }
    }

    /// Opens new topics, and polls the open ones.
    fn poll(&mut self, notify: &mut dyn FnMut(Notice)) {
        self.send_pending_announcements();
        if !self.pending_announcements.is_empty() {
            // Announcements about open topics must not overtake those of the catalogue.
            return;
        }
        self.find_topics();
        for topic in self.topics.values_mut() {
            topic.poll(&mut self.figures, notify);
            self.watchdog.heartbeat();
        }
        let announcements = &self.dds.connection.announcements;
        let live =
            |session: &String| announcements.with_state(|state| state.live.contains(session));
        self.marks.retain(|session, _| live(session));
        self.last_poll = Some(Instant::now());
    }

    /// Finds topics to open.
    fn find_topics(&mut self) {
        let announcements = &self.dds.connection.announcements;
        // A stored topic stays stored: its acknowledged samples are in the folder.
        let was_kept = |name: &TopicName| {
            self.catalogue.known().get(name).is_some_and(|known| known.all_samples)
        };
        let wanted = announcements.with_fresh_state(|state| {
            let wanted = |name: TopicName| {
                if name.as_str().starts_with(INTERNAL_PREFIX) {
                    return None;
                }
                let (_, qos) = state.topic(&name)?;
                let kept = state.is_storage_requested(&name) || is_kept(qos) || was_kept(&name);
                (kept || has_last_values(qos)).then(|| (name.clone(), qos.clone(), kept))
            };
            state.topics().into_iter().filter_map(wanted).collect::<Vec<_>>()
        });
        self.unopened.clear();
        for (name, qos, kept) in wanted {
            let open = self.topics.get(&name);
            let refused = self.refused.get(&name);
            let refused = refused
                .filter(|(as_it_was, at)| *as_it_was == qos && at.elapsed() < OPEN_RETRY_INTERVAL);
            // A topic that no session had open may have been recreated with other properties.
            let is_open = open.is_some_and(|topic| topic.is(&qos, kept));
            if !is_open && refused.is_none() && !self.opening.contains_key(&name) {
                self.unopened.push_back((name, qos, kept));
            }
        }
        self.open_some();
    }

    /// Starts opening topics, up to the limit.
    fn open_some(&mut self) {
        while self.opening.len() < MAX_TOPICS_OPENING
            && let Some((name, qos, kept)) = self.unopened.pop_front()
        {
            // If it cannot be closed, the next poll retries.
            if !self.close_topic(&name) {
                continue;
            }
            let token = self.next_token;
            self.next_token += 1;
            let opener = Opener {
                dds: Arc::clone(&self.dds),
                journal: self.journal.clone(),
                catalogue: Arc::clone(&self.catalogue),
                watchdog: Arc::clone(&self.watchdog),
                workers: Arc::clone(&self.workers),
                bell: Arc::clone(&self.bell),
                timeouts: self.timeouts,
            };
            let topic = name.clone();
            let opened = self.workers.run(move || opener.open(&topic, token, kept));
            self.opening.insert(name, OpeningTopic { qos, kept, token, opened });
        }
    }

    /// Takes topics that were opened meanwhile.
    fn take_opened(&mut self, notify: &mut dyn FnMut(Notice)) {
        let over = |(name, opening): (&TopicName, &OpeningTopic)| match opening.opened.poll() {
            Poll::Pending => None,
            Poll::Ready(opened) => Some((name.clone(), opened)),
        };
        let over: Vec<_> = self.opening.iter().filter_map(over).collect();
        for (name, opened) in over {
            let Some(OpeningTopic { qos, kept, token, .. }) = self.opening.remove(&name) else {
                continue;
            };
            match opened {
                Some(Ok(Some((topic, samples)))) => {
                    self.tokens.insert(token, name.clone());
                    locked(&self.served_topics)
                        .insert(name.clone(), Arc::clone(topic.served_topic()));
                    self.topics.insert(name.clone(), topic);
                    notify(Notice::Keeps { topic: name, samples });
                }
                Some(Ok(None)) => {}
                Some(Err(error)) => self.refuse(name, qos, kept, &error.to_string(), notify),
                None => self.refuse(name, qos, kept, PANICKED, notify),
            }
        }
        self.open_some();
    }

    /// A topic cannot be opened: notifies its writers, and retries later.
    fn refuse(
        &mut self,
        topic: TopicName,
        qos: Qos,
        kept: bool,
        cause: &str,
        notify: &mut dyn FnMut(Notice),
    ) {
        let cause = format!("the durability service cannot store {topic}: {cause}");
        if kept {
            let (refused, error) = (true, Some(cause.clone()));
            let before = self.watchdog.announced(&topic);
            let service_state =
                ServiceState { refused, error, ready: false, last_values: false, ..before };
            // If this fails, it is announced when the topic is retried.
            let _ =
                self.watchdog.announce(&self.dds.connection.announcements, &topic, &service_state);
        }
        self.refused.insert(topic.clone(), (qos, Instant::now()));
        notify(Notice::Trouble { topic, cause });
    }

    /// Closes a topic before it is opened again, which may fail. From then on no receipt waits for
    /// this service, and no reader reads the old state. False if it cannot be announced at present.
    fn close_topic(&mut self, name: &TopicName) -> bool {
        let Some(topic) = self.topics.get(name) else { return true };
        let service_state = ServiceState { ready: false, ..self.watchdog.announced(name) };
        if self.watchdog.announce(&self.dds.connection.announcements, name, &service_state).is_err()
        {
            return false;
        }
        topic.served_topic().close();
        locked(&self.served_topics).remove(name);
        self.topics.remove(name);
        true
    }

    /// Appends received samples to the journal and acknowledges them, then those that became
    /// durable.
    fn store(&mut self, notify: &mut dyn FnMut(Notice)) -> bool {
        let mut busy = self.take(true, notify);
        self.send_acks();
        for topic in self.topics.values_mut().filter(|topic| topic.is_kept()) {
            topic.settle(notify);
        }
        self.send_acks();
        // Receipts first: none waits for topics with last values alone.
        busy |= self.take(false, notify);
        busy
    }

    /// Takes received samples, of fully stored topics or of those with last values alone. True if
    /// there may be more.
    fn take(&mut self, kept: bool, notify: &mut dyn FnMut(Notice)) -> bool {
        let mut busy = false;
        for topic in self.topics.values_mut() {
            if topic.is_kept() == kept && !topic.is_armed() {
                busy |= topic.take(&mut self.figures, notify);
                self.watchdog.heartbeat();
            }
        }
        busy
    }

    /// Sends new acks to the writers.
    fn send_acks(&mut self) {
        let mut acks = Vec::new();
        for topic in self.topics.values_mut().filter(|topic| topic.is_kept()) {
            topic.collect_acks(&mut acks);
        }
        for (session, ack) in acks {
            if self.send(&session, &ack).is_err()
                && let Some(topic) = self.topics.get_mut(&ack.topic)
            {
                // The session accepts no messages at present.
                topic.retry_ack(&session, &ack);
            }
        }
        self.watchdog.heartbeat();
    }

    fn send(&mut self, session: &str, ack: &Ack) -> Result<(), TransportError> {
        if !self.marks.contains_key(session) {
            let connection = &self.dds.connection;
            let qos = ack_qos().partitions(&[session]).map_err(failed("name a session"))?;
            let writer = Writer::open(&connection.message_topic(ACK_TOPIC)?, &qos, None);
            let writer = writer.map_err(failed("open a message writer"))?;
            self.marks.insert(
                session.to_owned(),
                MessageWriter::new(writer, &connection.announcements.session),
            );
        }
        let value = versioned_json::encode(ack).unwrap_or_default();
        let Some(message_writer) = self.marks.get_mut(session) else { return Ok(()) };
        let key = ack.key(&self.dds.connection.announcements.session);
        message_writer.write(key.as_bytes(), &value).map_err(|refused| match refused {
            Refused::Full => TransportError::Outage {
                transport: crate::SCHEME.to_owned(),
                cause: "a participant accepts no messages".to_owned(),
            },
            Refused::Failed(error) => failed("write a message")(error),
        })
    }
}

impl Drop for Durability {
    fn drop(&mut self) {
        self.topics.clear();
        self.dds.connection.close();
        end(&self.workers);
        self.journal.close();
    }
}

impl std::fmt::Debug for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Durability").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

/// A producer in a partition.
type ProducerKey = (u32, helio_core::ProducerName);
/// A position in a producer's samples: incarnation and number.
type SequencePosition = (u64, u64);

/// Positions, as sent in messages.
fn positions(known: &HashMap<ProducerKey, SequencePosition>) -> Vec<ProducerPosition> {
    let position = |((partition, producer), order): (&ProducerKey, &SequencePosition)| {
        ProducerPosition::new(*partition, producer.clone(), *order)
    };
    known.iter().map(position).collect()
}
