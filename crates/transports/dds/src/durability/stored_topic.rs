//! One stored topic: from the domain into the journal.
//!
//! Constraints. A sample that was only read, or only appended, is not acknowledged as durable. A
//! hole cannot be filled after a later sample was appended: samples that other services may have
//! are fetched first. An error here affects this topic or one producer. Nothing here waits for the
//! disk: the worker pool does what needs it, and only this topic's samples wait meanwhile.
//!
//! Operation. A cycle of three steps: sync the contents of the folder; fetch the samples that other
//! services have; be ready and accept samples from writers. The cycle restarts at the second step
//! after a hole that others may fill and after the service stalled, and at the first step after an
//! error.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use helio_bus::transport::{Armed, Reader};
use helio_bus::{
    Bell, Bus, EventRef, Evolution, Forwarder, Guarantee, Lagging, Origin, PendingPublish,
    PublishError, Qos, SampleRef, SchemaId, SchemaText, Start, Subscribe, Topic, TopicError,
    TopicSpec, TransportError,
};
use helio_core::qos::{Durability, Liveliness, Overload, Ownership, Reliability};
use helio_core::{Headers, Producer, ProducerName, TopicName};
use helio_journal::JournalError;

use super::acks::{AckQueue, StoredPositions};
use super::anti_entropy::AntiEntropy;
use super::departed_peers::DepartedPeers;
use super::history_server::ServedTopic;
use super::opening::Opener;
use super::retention_marks;
use super::sync::{Forwarders, Syncing};
use super::watchdog::Watchdog;
use super::worker_pool::{Task, WorkerPool};
use super::{DurabilityError, Figures, Notice, ProducerKey, SequencePosition, Timeouts, positions};
use crate::announcements::{ServiceState, is_text_of};
use crate::envelope::{FIRST_STORED, Header, RETENTION_GAP};
use crate::peer_messages::Ack;
use crate::reader::DdsReader;
use crate::reorder_queue::QueuedSample;
use crate::topic::TopicState;

/// The most samples that are taken of a topic before others have their turn.
const MAX_TAKEN_SAMPLES: usize = 1_024;
/// The same of one of which last values are kept alone.
const MAX_TAKEN_LAST_VALUES: usize = 128;
/// The most producers of a topic that have a writer in the journal at a time.
const MAX_FORWARDERS: usize = 1_024;
const UNSYNCED_FOLDER: &str = "what is in the folder does not get onto the disk; a disk that has \
    refused it once is not believed until this host is started anew";
/// How long services that lost each other are given to hear so.
const REUNION_TIMEOUT: Duration = Duration::from_secs(2);

/// Where a topic stands.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// What is in the folder is not known to be on the disk.
    Unsynced { since: Instant },
    /// Others may have what is not here. It is waited for what they say until then, and for one to
    /// say something, where nobody does, until the other time.
    Behind { until: Instant, alone: Instant },
    /// It has what each other service has, and takes what writers send.
    Ready,
    /// Something went wrong; it is tried again then.
    Trouble { until: Instant },
}

/// One kept topic.
pub(super) struct StoredTopic {
    state: Arc<TopicState>,
    watchdog: Arc<Watchdog>,
    timeouts: Timeouts,
    token: u64,
    /// Whether its samples are, or its last values alone.
    kept: bool,
    armed: bool,
    stage: Stage,
    reader: DdsReader,
    bus: Bus,
    journal: Topic,
    workers: Arc<WorkerPool>,
    /// What is handed out of it.
    served_topic: Arc<ServedTopic>,
    forwarders: Forwarders,
    schemas: HashSet<SchemaId>,
    /// What the next sample waits for.
    preparing: Option<Task<Prepared>>,
    /// A writer in the journal that could not be had.
    unopened: Option<((ProducerKey, u64), PublishError)>,
    /// What is in the journal, on the disk or not: it is not appended again.
    has: HashMap<ProducerKey, SequencePosition>,
    /// What of it is durable.
    durable: HashMap<ProducerKey, SequencePosition>,
    syncing: Syncing,
    /// Somebody waits for the disk.
    hurry: bool,
    /// It was looked after since it was last seen what is durable.
    looked: bool,
    acks: AckQueue,
    service_state: ServiceState,
    /// Whether that was said.
    said: bool,
    /// The other services that were there, and those that have gone since.
    others: BTreeMap<String, u64>,
    departed: DepartedPeers,
    /// Those whose samples it has, as they were when they were asked.
    synced: BTreeMap<String, u64>,
    /// The one whose samples are on their way.
    fetching: Option<(String, u64, Instant)>,
    /// Whether others have what will not come by itself.
    anti_entropy: AntiEntropy,
    /// When all that had come was taken last.
    empty: Option<Instant>,
    /// Until then services may be there that have not said what they keep, or have not opened it.
    unheard_until: Instant,
    unopened_until: Instant,
    /// The hole that others were asked for last.
    hole: Option<(ProducerKey, SequencePosition)>,
    /// Until when it was waited in vain for somebody to fill a hole.
    waited: Option<Instant>,
    /// What could not be put into the journal: it is the first that is tried again.
    failed: Option<QueuedSample>,
}

/// What becomes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleDecision {
    /// It is there.
    Known,
    Append,
    /// Others are missing before it, which its writer has still.
    MissingPredecessor,
}

/// Decides by what is there of the producer. `whole`: what is missing before it nobody will send.
fn decide(has: Option<SequencePosition>, order: SequencePosition, whole: bool) -> SampleDecision {
    let first = (order.0, 1);
    let next = has.map_or(first, |(incarnation, sequence)| match incarnation == order.0 {
        true => (incarnation, sequence.saturating_add(1)),
        false => first,
    });
    match has {
        Some(has) if order <= has => SampleDecision::Known,
        _ if order == next || whole => SampleDecision::Append,
        _ => SampleDecision::MissingPredecessor,
    }
}

/// What a topic is in the journal: its history and retention are the same, but who may write it is
/// looked after in the domain.
fn journal_qos(qos: &Qos, kept: bool) -> Qos {
    Qos {
        reliability: Reliability::Reliable,
        durability: if kept { Durability::Persistent } else { Durability::TransientLocal },
        ownership: Ownership::Shared,
        overload: Overload::Refuse,
        guarantee: if kept { Guarantee::Durable } else { Guarantee::Stored },
        liveliness: Liveliness::Automatic,
        deadline: None,
        lifespan: None,
        ..qos.clone()
    }
}

/// What went wrong, in words.
fn message(error: impl Display) -> String {
    error.to_string()
}

/// What takes the disk and is had before a sample can be appended.
enum Prepared {
    Schema(SchemaId, Result<(), TopicError>),
    /// A writer in the journal, for an incarnation.
    Forwarder((ProducerKey, u64), Result<Forwarder, TopicError>),
}

/// Why a sample is not in the journal.
enum StoreError {
    /// Something is prepared that it needs.
    Preparing,
    /// The topic cannot be kept at the moment.
    Topic(String),
    /// This producer's samples cannot be.
    Producer(String),
}

impl From<TopicError> for StoreError {
    fn from(error: TopicError) -> Self {
        Self::Topic(error.to_string())
    }
}

impl From<PublishError> for StoreError {
    fn from(error: PublishError) -> Self {
        let of_producer = match &error {
            PublishError::Transport(TransportError::Engine { source, .. }) => {
                let source = source.downcast_ref::<JournalError>();
                matches!(source, Some(JournalError::TooMany { .. }))
            }
            PublishError::Transport(
                TransportError::TooLarge { .. } | TransportError::Owned { .. },
            ) => true,
            _ => false,
        };
        if of_producer { Self::Producer(error.to_string()) } else { Self::Topic(error.to_string()) }
    }
}

impl StoredTopic {
    /// Opens it; gives how many samples of it there are.
    pub(super) fn open(
        opener: &Opener,
        state: Arc<TopicState>,
        (token, kept): (u64, bool),
    ) -> Result<(Self, u64), DurabilityError> {
        let Opener { journal: bus, watchdog, workers, bell, timeouts, .. } = opener;
        let spec = TopicSpec::of(state.name.clone()).qos(journal_qos(&state.qos, kept));
        let topic = bus.topic(spec)?;
        let schemas = bus.schemas_of(&state.name)?;
        let mut schemas: HashSet<_> = schemas.into_iter().flatten().collect();
        schemas.insert(SchemaId::BYTES);
        let (has, samples) = read_positions(&topic)?;
        let reader = DdsReader::keeping(&state, &positions(&has))?;
        let said = watchdog.said(&state.name);
        let mut keeping = Self {
            anti_entropy: AntiEntropy::new(&state),
            empty: None,
            state,
            watchdog: Arc::clone(watchdog),
            timeouts: *timeouts,
            token,
            kept,
            armed: false,
            stage: Stage::Unsynced { since: Instant::now() },
            reader,
            served_topic: ServedTopic::new(topic.clone(), kept, &has),
            bus: bus.clone(),
            syncing: Syncing::new(&topic, bell),
            journal: topic,
            workers: Arc::clone(workers),
            forwarders: HashMap::new(),
            schemas,
            preparing: None,
            unopened: None,
            has,
            durable: HashMap::new(),
            hurry: false,
            looked: false,
            acks: AckQueue::default(),
            // It may have been open before: who heard that it was ready hears so again.
            service_state: ServiceState {
                ready: false,
                refused: false,
                trouble: None,
                last_values: !kept,
                opening: false,
                ..said
            },
            said: false,
            others: BTreeMap::new(),
            departed: DepartedPeers::default(),
            synced: BTreeMap::new(),
            fetching: None,
            unheard_until: Instant::now() + timeouts.announcement,
            unopened_until: Instant::now() + timeouts.silent_service,
            hole: None,
            waited: None,
            failed: None,
        };
        keeping.carry_known_schemas();
        keeping.announce();
        Ok((keeping, samples))
    }

    /// Carries the schemas that are known when it is opened; what fails is tried again.
    fn carry_known_schemas(&mut self) {
        for id in self.uncarried() {
            if let Some(schema) = self.text(id)
                && carry(&self.bus, &self.state.name, &schema).is_ok()
            {
                self.schemas.insert(id);
            }
        }
    }

    /// The schemas that it does not have in the journal.
    fn uncarried(&self) -> Vec<SchemaId> {
        let known = self
            .state
            .connection
            .announcements
            .with_state(|announcements| announcements.schemas(&self.state.name));
        let known = known.into_iter().map(|(id, _)| id);
        known.filter(|id| !self.schemas.contains(id)).collect()
    }

    /// Says how it is kept; where that cannot be said, at the next look.
    fn announce(&mut self) {
        let announcements = &self.state.connection.announcements;
        self.said =
            self.watchdog.announce(announcements, &self.state.name, &self.service_state).is_ok();
    }

    /// Whether it is the topic of that quality of service, and kept so.
    pub(super) fn is(&self, qos: &Qos, kept: bool) -> bool {
        self.state.qos == *qos && self.kept == kept
    }

    /// What is handed out of it.
    pub(super) fn served_topic(&self) -> &Arc<ServedTopic> {
        &self.served_topic
    }

    /// Whether its samples are kept, and not last values alone.
    pub(super) fn is_kept(&self) -> bool {
        self.kept
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    pub(super) fn rung(&mut self) {
        self.armed = false;
    }

    /// Whether nothing is taken from writers: it could not be put behind what others have.
    fn waits(&self) -> bool {
        match self.stage {
            _ if self.preparing.is_some() => true,
            Stage::Ready => false,
            Stage::Behind { .. } => self.kept && !self.reader.is_behind(),
            Stage::Unsynced { .. } | Stage::Trouble { .. } => true,
        }
    }

    /// Has the bell rung when there is something to take; gives how long it may be waited for.
    pub(super) fn arm(&mut self, bell: &Arc<dyn Bell>) -> Duration {
        if self.waits() {
            return super::POLL_INTERVAL;
        }
        match self.reader.arm(bell, self.token) {
            Ok(Armed::Ready) => Duration::ZERO,
            Ok(Armed::Waiting) => {
                self.armed = true;
                Duration::MAX
            }
            Ok(Armed::Recheck(after)) => after.min(Duration::from_millis(10)),
            // Taking tells what is wrong.
            Err(_) => super::POLL_INTERVAL,
        }
    }

    /// Looks after what is not done by what comes: schemas, other services, an end of trouble.
    pub(super) fn poll(&mut self, figures: &mut Figures, notify: &mut dyn FnMut(Notice)) {
        self.served_topic.polled();
        self.acks.poll();
        let wanted = || {
            self.state
                .connection
                .announcements
                .with_state(|known| known.is_keep_requested(&self.state.name))
        };
        self.hurry = self.state.qos.guarantee == Guarantee::Durable || wanted();
        self.looked = true;
        let rests = matches!(self.stage, Stage::Unsynced { .. } | Stage::Trouble { .. });
        if self.service_state.trouble.is_some() && rests {
            // It comes again: writers have it still. Where it fails, it does so when it is taken.
            let _ = self.reader.discard();
        }
        let now = Instant::now();
        let waits = matches!(self.stage, Stage::Trouble { until } if now < until);
        if !waits && let Err(cause) = self.step(figures, notify) {
            self.trouble(&cause, notify);
        }
        if !self.said {
            self.announce();
        }
    }

    fn step(
        &mut self,
        figures: &mut Figures,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<(), String> {
        if matches!(self.stage, Stage::Trouble { .. }) {
            self.stage = Stage::Unsynced { since: Instant::now() };
        }
        if !self.is_preparing()? {
            // One at a time: the others with the next looks.
            let _ = self.uncarried().into_iter().find(|id| self.carry_schema(*id).is_err());
        }
        if let Stage::Unsynced { since } = self.stage {
            if self.kept && !self.is_synced()? {
                return if since.elapsed() < self.timeouts.folder_sync {
                    Ok(())
                } else {
                    Err(UNSYNCED_FOLDER.to_owned())
                };
            }
            self.durable.clone_from(&self.has);
            let until = self.state.connection.services_until();
            self.fall_behind(until, until);
            if let Some(failed) = self.failed.take() {
                self.put(failed, figures, notify)?;
            }
        }
        self.fetch_what_others_have(notify)
    }

    /// Whether all that is in the journal is on the disk.
    fn is_synced(&self) -> Result<bool, String> {
        let partitions = self.journal.partitions().map_err(message)?;
        Ok(partitions.iter().all(|partition| partition.durable >= partition.end))
    }

    /// The service stood still: others went on without it. They lack nothing that it has.
    pub(super) fn resume_after_stall(&mut self) {
        if matches!(self.stage, Stage::Behind { .. } | Stage::Ready) {
            let now = Instant::now();
            let others = !self.others.is_empty() || self.departed.may_be_back(self.alone(), now);
            self.said = false;
            match others {
                true => self.fall_behind(now + REUNION_TIMEOUT, now + self.alone()),
                false => self.fall_behind(now, now),
            }
        }
    }

    /// How long another service is waited for that is not seen at the moment: those that were lost
    /// to each other find each other again within a lease.
    fn alone(&self) -> Duration {
        2 * self.state.connection.lease + self.state.connection.service_timeout
    }

    /// Others may have what is not here.
    fn fall_behind(&mut self, until: Instant, alone: Instant) {
        self.stage = Stage::Behind { until, alone };
        (self.fetching, self.armed) = (None, false);
        self.synced.clear();
        if self.service_state.ready {
            self.service_state.ready = false;
            self.announce();
        }
    }

    /// Fetches from one after the other; has what all of them have in the end.
    fn fetch_what_others_have(&mut self, notify: &mut dyn FnMut(Notice)) -> Result<(), String> {
        if self.update_peers() && self.stage == Stage::Ready {
            let until = Instant::now() + REUNION_TIMEOUT;
            self.fall_behind(until, until);
        }
        if self.kept && self.stage == Stage::Ready {
            let empty = if self.armed { Some(Instant::now()) } else { self.empty };
            let behind =
                self.anti_entropy.poll(&self.served_topic, self.others.keys(), (&self.acks, empty));
            if behind.map_err(message)? {
                self.fall_behind(Instant::now(), Instant::now());
            }
        }
        if self.reader.has_history_left() {
            return Ok(());
        }
        if let Some((other, reunions, since)) = self.fetching.take()
            && (self.reader.has_caught_up() || since.elapsed() >= self.timeouts.silent_service)
        {
            self.synced.insert(other, reunions);
        }
        let others = &self.others;
        self.synced.retain(|other, reunions| others.get(other) == Some(reunions));
        let next = others.iter().find(|(other, _)| !self.synced.contains_key(*other));
        if let Some((other, reunions)) = next.map(|(other, reunions)| (other.clone(), *reunions)) {
            // What comes meanwhile is behind it.
            self.reader.catch_up(other.clone(), positions(&self.has)).map_err(message)?;
            self.armed = false;
            self.fetching = Some((other, reunions, Instant::now()));
            return Ok(());
        }
        let Stage::Behind { until, alone } = self.stage else { return Ok(()) };
        let until = if self.others.is_empty() { alone.max(until) } else { until };
        // Nobody waits until last values are durable.
        let settled = !self.kept || self.syncing.is_idle();
        if settled && !self.may_discover_peers(until) {
            self.stage = Stage::Ready;
            self.service_state.ready = true;
            self.service_state.turn += 1;
            let topic = &self.state.name;
            if self.service_state.trouble.take().is_some() {
                notify(Notice::Recovered { topic: topic.clone() });
            }
            self.announce();
            if self.kept {
                notify(Notice::Ready { topic: self.state.name.clone() });
            }
        }
        Ok(())
    }

    /// Looks which services keep the topic, too: what one has is in its journal, ready or not.
    /// Tells those that are there again that they were not. True where one was gone, or says that
    /// this one was: it went on alone.
    fn update_peers(&mut self) -> bool {
        let announcements = &self.state.connection.announcements;
        let others: BTreeMap<_, _> = announcements.with_state(|known| {
            let others = known.services(&self.state.name);
            // Last values have holes, which no mark may cover.
            let others = others.filter(|(session, service_state)| {
                **session != announcements.session
                    && service_state.last_values != self.kept
                    && !service_state.opening
            });
            others
                .map(|(session, service_state)| (session.clone(), service_state.reunions))
                .collect()
        });
        let back = others.keys().filter(|other| self.departed.is_back(other)).count();
        let reunited = |(other, reunions)| others.get(other).is_some_and(|now| now != reunions);
        let apart = back > 0 || self.synced.iter().any(reunited);
        let before = std::mem::replace(&mut self.others, others);
        let gone = before.into_keys().filter(|other| !self.others.contains_key(other));
        self.departed.went(gone, Instant::now());
        if back > 0 {
            self.service_state.reunions += 1;
            self.announce();
        }
        apart
    }

    /// Whether there may be services with samples that have not said yet that they keep it.
    fn may_discover_peers(&self, until: Instant) -> bool {
        let now = Instant::now();
        let announcements = &self.state.connection.announcements;
        let silent =
            || announcements.with_state(|state| state.has_unannounced_services(&self.state.name));
        let opening = || {
            announcements.with_state(|state| {
                state.complete_services(&self.state.name).any(|(_, of)| of.opening)
            })
        };
        let unheard = now < self.unheard_until && silent();
        self.kept && (now < until || unheard || now < self.unopened_until && opening())
    }

    /// A schema with its text, where that is known, and no other's.
    fn text(&self, id: SchemaId) -> Option<SchemaText> {
        let announcements = &self.state.connection.announcements;
        let text = announcements.with_state(|announcements| announcements.text(id).cloned());
        let text = text.or_else(|| {
            announcements.with_fresh_state(|announcements| announcements.text(id).cloned())
        });
        let text = text.filter(|text| is_text_of(id, text))?;
        Some(SchemaText { id, text: text.into() })
    }

    /// Has a schema made known to the journal's topic, so that whoever opens the folder reads it.
    /// False where its text is not known, or is another's.
    fn carry_schema(&mut self, id: SchemaId) -> Result<bool, StoreError> {
        if self.schemas.contains(&id) {
            return Ok(true);
        }
        let Some(schema) = self.text(id) else { return Ok(false) };
        let (bus, topic) = (self.bus.clone(), self.state.name.clone());
        Err(self.prepare(move || Prepared::Schema(id, carry(&bus, &topic, &schema))))
    }

    /// Has something done that takes the disk: the next sample waits for it.
    fn prepare(&mut self, job: impl FnOnce() -> Prepared + Send + 'static) -> StoreError {
        self.preparing = Some(self.workers.run(job));
        StoreError::Preparing
    }

    /// Whether something is being done that the next sample waits for.
    fn is_preparing(&mut self) -> Result<bool, String> {
        let Some(task) = &self.preparing else { return Ok(false) };
        let prepared = match task.try_recv() {
            Err(TryRecvError::Empty) => return Ok(true),
            prepared => prepared.map_err(message)?,
        };
        self.preparing = None;
        match prepared {
            Prepared::Schema(id, carried) => {
                carried.map_err(message)?;
                self.schemas.insert(id);
            }
            Prepared::Forwarder((producer_key, incarnation), Ok(opened)) => {
                if self.forwarders.len() >= MAX_FORWARDERS {
                    self.forwarders.clear();
                }
                self.forwarders.insert(producer_key, (incarnation, opened));
            }
            // The sample that wants it fails by that.
            Prepared::Forwarder(place, Err(TopicError::Transport(error))) => {
                self.unopened = Some((place, error.into()));
            }
            Prepared::Forwarder(place, Err(error)) => {
                self.unopened = Some((place, PublishError::NotOpened(error.to_string())));
            }
        }
        Ok(false)
    }

    /// Puts what has come into the journal. True where there may be more.
    pub(super) fn take(&mut self, figures: &mut Figures, notify: &mut dyn FnMut(Notice)) -> bool {
        let taken = self.take_some(figures, notify);
        taken.unwrap_or_else(|cause| {
            self.trouble(&cause, notify);
            false
        })
    }

    fn take_some(
        &mut self,
        figures: &mut Figures,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<bool, String> {
        let at_rest = matches!(self.stage, Stage::Unsynced { .. } | Stage::Trouble { .. });
        if at_rest || self.is_preparing()? {
            return Ok(false);
        }
        for _ in 0..if self.kept { MAX_TAKEN_SAMPLES } else { MAX_TAKEN_LAST_VALUES } {
            let mut next = self.reader.next().map_err(message)?;
            if self.waits()
                && let Some(early) = next.take_if(|next| !next.is_history())
            {
                self.reader.put_back(early);
            }
            let Some(next) = next else {
                self.empty = Some(Instant::now());
                return Ok(false);
            };
            if !next.is_foreign() && !self.put(next, figures, notify)? {
                return Ok(self.preparing.is_none());
            }
        }
        Ok(true)
    }

    /// Puts a sample into the journal, or where it belongs instead. False where others are to be
    /// asked first for what is missing before it, or something is prepared that it needs.
    fn put(
        &mut self,
        next: QueuedSample,
        figures: &mut Figures,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<bool, String> {
        let mut avro = Vec::new();
        let added = match next.read(&mut avro) {
            Ok((header, _)) if self.is_new_hole(&next, &header) => {
                self.reader.put_back(next);
                return Ok(false);
            }
            Ok((header, payload)) => self.add(&next, &header, payload, (figures, notify)),
            // It is not acknowledged: nothing else may stand in its place.
            Err(cause) => Err(StoreError::Producer(cause)),
        };
        match added {
            Ok(()) => Ok(true),
            Err(StoreError::Preparing) => {
                self.reader.put_back(next);
                Ok(false)
            }
            Err(StoreError::Topic(cause)) => {
                self.failed = Some(next);
                Err(cause)
            }
            Err(StoreError::Producer(cause)) => {
                if let Ok(name) = ProducerName::new(next.names().1) {
                    self.refuse((next.partition, name), &cause, notify);
                }
                Ok(true)
            }
        }
    }

    /// A producer's samples cannot be kept: that is its own trouble.
    fn refuse(&mut self, producer_key: ProducerKey, cause: &str, notify: &mut dyn FnMut(Notice)) {
        let (topic, name) = (self.state.name.clone(), producer_key.1.clone());
        let cause = format!("the durability service cannot keep {name} of {topic}: {cause}");
        if self.acks.refuse(producer_key, &cause) {
            notify(Notice::Trouble { topic, cause });
        }
    }

    /// Whether others may have what is missing before a sample though its writer has not, and were
    /// not asked for it yet. They are asked from then on.
    fn is_new_hole(&mut self, next: &QueuedSample, header: &Header<'_>) -> bool {
        let takes = self.kept && self.stage == Stage::Ready && !self.reader.is_behind();
        if !takes || !next.base || next.is_history() || next.is_foreign() {
            return false;
        }
        let Ok(name) = ProducerName::new(header.producer) else { return false };
        let (producer_key, order) = ((header.partition, name), header.order());
        let has = self.has.get(&producer_key).copied();
        // What others have of one that is refused could not be kept either, yet.
        if self.acks.is_refused(&producer_key)
            || decide(has, order, follows(has, next, order)) != SampleDecision::MissingPredecessor
        {
            return false;
        }
        let hole = Some((producer_key, order));
        if self.hole == hole {
            return false;
        }
        self.hole = hole;
        self.update_peers();
        let (now, alone) = (Instant::now(), self.alone());
        let waited = self.waited.is_some_and(|until| until <= now && now < until + alone);
        if self.others.is_empty() {
            if waited || header.flags & FIRST_STORED != 0 {
                return false;
            }
            self.waited = Some(now + alone);
        }
        self.fall_behind(now, now + alone);
        true
    }

    fn add(
        &mut self,
        next: &QueuedSample,
        header: &Header<'_>,
        payload: &[u8],
        (figures, notify): (&mut Figures, &mut dyn FnMut(Notice)),
    ) -> Result<(), StoreError> {
        let Ok(name) = ProducerName::new(header.producer) else { return Ok(()) };
        let (producer_key, order) = ((header.partition, name.clone()), header.order());
        let has = self.has.get(&producer_key).copied();
        let follows = follows(has, next, order);
        match decide(has, order, next.base || follows || next.is_history() || !self.kept) {
            SampleDecision::Known => {
                if next.origin == Origin::History && !next.is_history() {
                    // Its writer has sent it again: it does not know that it is here.
                    self.acks.repeat(producer_key);
                }
                return Ok(());
            }
            SampleDecision::MissingPredecessor => {
                self.acks.ask(producer_key);
                return Ok(());
            }
            SampleDecision::Append => {}
        }
        if self.acks.is_refused(&producer_key) {
            self.acks.repeat(producer_key);
            return Ok(());
        }
        if !self.carry_schema(header.schema)? && self.kept && !next.is_history() {
            // Nobody could read it: its schema's text is on its way.
            self.acks.ask(producer_key);
            return Ok(());
        }
        if self.kept && !follows && !next.is_history() && header.flags & FIRST_STORED == 0 {
            self.report_hole(&name, has, order, notify);
        }
        let producer = Producer { name, incarnation: header.incarnation };
        let follows_retention_gap = next.is_history() && header.flags & RETENTION_GAP != 0;
        let marked =
            if follows_retention_gap { retention_marks::marked(header.headers) } else { None };
        let sample = SampleRef {
            partition: header.partition,
            offset: 0,
            key: header.key,
            producer: &producer,
            sequence: header.sequence,
            time: header.time,
            schema: header.schema,
            level: header.level,
            trace: header.trace,
            headers: marked.as_ref().map_or(header.headers, Headers::as_ref),
            payload,
            origin: Origin::Log,
        };
        let Some(forwarded) = self.forward(&producer_key, &sample) else {
            return Err(self.open_forwarder(producer_key, &producer));
        };
        match forwarded {
            // A newer incarnation was here before.
            Err(PublishError::Transport(TransportError::Fenced { newer, .. })) => {
                self.acks.fence(producer_key, newer);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
            Ok(offset) => self.appended(producer_key, order, offset),
        }
        (figures.stored, figures.bytes) =
            (figures.stored + 1, figures.bytes + payload.len() as u64);
        Ok(())
    }

    /// A sample is in the journal.
    fn appended(&mut self, producer_key: ProducerKey, order: SequencePosition, offset: u64) {
        if self.kept {
            self.syncing.appended(&producer_key, offset);
        }
        self.served_topic.has(&producer_key, order);
        self.acks.took(&producer_key);
        self.has.insert(producer_key, order);
    }

    /// Tells what is missing of an incarnation before a sample, if anything.
    fn report_hole(
        &self,
        name: &ProducerName,
        has: Option<SequencePosition>,
        order: SequencePosition,
        notify: &mut dyn FnMut(Notice),
    ) {
        let from = has.filter(|has| has.0 == order.0).map_or(0, |has| has.1);
        let missing = order.1.saturating_sub(from.saturating_add(1));
        if missing > 0 {
            let loss = format!("{name}: {missing} samples before number {}", order.1);
            notify(Notice::Hole { topic: self.state.name.clone(), loss });
        }
    }

    /// Appends a sample; gives its offset. None where there is no writer for it in the journal.
    fn forward(
        &mut self,
        producer_key: &ProducerKey,
        sample: &SampleRef<'_>,
    ) -> Option<Result<u64, PublishError>> {
        let incarnation = sample.producer.incarnation;
        if let Some((of, error)) = self.unopened.take()
            && of == (producer_key.clone(), incarnation)
        {
            return Some(Err(error));
        }
        let (_, forwarder) =
            self.forwarders.get_mut(producer_key).filter(|(of, _)| *of == incarnation)?;
        let appended = forwarder.forward(sample, sample.headers).and_then(PendingPublish::wait);
        Some(appended.map(|receipt| receipt.offset.unwrap_or_default()))
    }

    /// Has a writer opened in the journal: what it claims goes to the disk.
    fn open_forwarder(&mut self, producer_key: ProducerKey, producer: &Producer) -> StoreError {
        self.forwarders.remove(&producer_key);
        let (journal, producer) = (self.journal.clone(), producer.clone());
        self.prepare(move || {
            let opened = journal.forwarder(&producer, producer_key.0);
            let opened = opened.map(|opened| opened.guarantee(Guarantee::Stored));
            Prepared::Forwarder((producer_key, producer.incarnation), opened)
        })
    }

    /// Sees what is on the disk by now, and asks it for the rest.
    pub(super) fn settle(&mut self, notify: &mut dyn FnMut(Notice)) {
        if !self.kept {
            return;
        }
        let silence = self.syncing.silence().unwrap_or_default();
        let (ready, is_silent) = (self.stage == Stage::Ready, silence >= self.timeouts.disk);
        if ready && silence >= self.state.connection.lease && self.is_another_ready() {
            // Who waits for the disk is not waited for by others.
            self.resume_after_stall();
        } else if ready {
            self.report_silent_disk(is_silent, notify);
        } else if is_silent {
            return self.trouble(UNSYNCED_FOLDER, notify);
        }
        let how = (self.hurry || self.stage != Stage::Ready, std::mem::take(&mut self.looked));
        match self.syncing.turn(&self.has, &mut self.forwarders, how) {
            Ok(durable) => {
                for (producer_key, order) in durable {
                    self.acks.synced(producer_key.clone());
                    self.durable.insert(producer_key, order);
                }
            }
            Err(cause) => self.trouble(&cause, notify),
        }
    }

    /// Whether another service is ready, so that this one need not be waited for.
    fn is_another_ready(&self) -> bool {
        let announcements = &self.state.connection.announcements;
        announcements.with_state(|known| {
            let mut services = known.complete_services(&self.state.name);
            services.any(|(session, service_state)| {
                service_state.ready && *session != announcements.session
            })
        })
    }

    /// The only service goes on though the disk is silent, for those who wait for the journal
    /// alone; who waits for the disk is told.
    fn report_silent_disk(&mut self, is_silent: bool, notify: &mut dyn FnMut(Notice)) {
        if is_silent == self.service_state.trouble.is_some() {
            return;
        }
        let topic = self.state.name.clone();
        self.service_state.trouble = is_silent.then(|| {
            let silence = self.timeouts.disk.as_secs_f64();
            format!(
                "the durability service has {topic} in its journal, and not on the disk, which \
                 has not answered for {silence} s"
            )
        });
        self.announce();
        notify(match self.service_state.trouble.clone() {
            Some(cause) => Notice::Trouble { topic, cause },
            None => Notice::Recovered { topic },
        });
    }

    /// It cannot be kept: nothing more of it is acknowledged until it is tried again, from the
    /// first step on. What is in the journal stays there.
    fn trouble(&mut self, cause: &str, notify: &mut dyn FnMut(Notice)) {
        let topic = self.state.name.clone();
        let cause = format!("the durability service cannot keep {topic}: {cause}");
        self.syncing.forget();
        self.forwarders.clear();
        (self.preparing, self.unopened) = (None, None);
        self.fall_behind(Instant::now(), Instant::now());
        self.stage = Stage::Trouble { until: Instant::now() + self.timeouts.retry_interval };
        // Where it fails, it is tried again with the next look.
        let _ = self.reader.discard();
        if self.service_state.trouble.as_ref() != Some(&cause) {
            self.service_state.trouble = Some(cause.clone());
            self.announce();
            notify(Notice::Trouble { topic, cause });
        }
    }

    /// Adds what writers are to be told, each with the writer's session.
    pub(super) fn collect_acks(&mut self, into: &mut Vec<(String, Ack)>) {
        if !self.acks.is_due() {
            return;
        }
        // Where all wait for the disk one letter is enough.
        let appended = self.state.qos.guarantee < Guarantee::Durable;
        let marks =
            StoredPositions { appended: appended.then_some(&self.has), durable: &self.durable };
        let (acks, announcements) = (&mut self.acks, &self.state.connection.announcements);
        announcements.with_state(|state| acks.write(&self.state.name, &marks, state, into));
    }

    /// A writer was not told.
    pub(super) fn retry_ack(&mut self, session: &str, ack: &Ack) {
        self.acks.retry_ack(session, ack);
    }
}

/// Makes a schema known to a topic of the journal, on the disk.
fn carry(bus: &Bus, topic: &TopicName, schema: &SchemaText) -> Result<(), TopicError> {
    let spec = TopicSpec::of(topic.clone()).schema(schema.clone()).evolution(Evolution::None);
    match bus.topic(spec)?.declare() {
        Err(TopicError::Schema { .. }) => Ok(bus.put_schema(schema)?),
        other => other,
    }
}

/// Whether nothing is missing before a sample: what its writer has left out nobody will send.
fn follows(has: Option<SequencePosition>, next: &QueuedSample, order: SequencePosition) -> bool {
    next.previous > 0 && has == Some((order.0, next.previous))
}

/// Reads how far each producer's samples go, and how many there are.
fn read_positions(
    topic: &Topic,
) -> Result<(HashMap<ProducerKey, SequencePosition>, u64), DurabilityError> {
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless).as_written();
    let mut samples = topic.subscribe(options)?;
    let (mut has, mut count): (HashMap<ProducerKey, SequencePosition>, u64) = (HashMap::new(), 0);
    loop {
        let read = samples.visit(MAX_TAKEN_SAMPLES, &mut |event: EventRef<'_>| {
            if let EventRef::Sample(sample) = event {
                let producer_key = (sample.partition, sample.producer.name.clone());
                let order = (sample.producer.incarnation, sample.sequence);
                let newest = has.entry(producer_key).or_default();
                *newest = order.max(*newest);
                count += 1;
            }
            ControlFlow::Continue(())
        })?;
        if read == 0 {
            return Ok((has, count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_its_writer_has_still_is_waited_for_and_nothing_is_taken_twice() {
        for (has, order, whole, expected) in [
            (None, (7, 1), false, SampleDecision::Append),
            (None, (7, 3), false, SampleDecision::MissingPredecessor),
            (None, (7, 3), true, SampleDecision::Append),
            (Some((7, 2)), (7, 2), true, SampleDecision::Known),
            (Some((7, 2)), (7, 3), false, SampleDecision::Append),
            (Some((7, 2)), (7, 4), false, SampleDecision::MissingPredecessor),
            (Some((7, 2)), (7, 4), true, SampleDecision::Append),
            (Some((7, 2)), (6, 9), true, SampleDecision::Known),
            (Some((7, 2)), (8, 1), false, SampleDecision::Append),
            (Some((7, 2)), (8, 2), false, SampleDecision::MissingPredecessor),
        ] {
            assert_eq!(decide(has, order, whole), expected, "{has:?} {order:?} {whole}");
        }
    }
}
