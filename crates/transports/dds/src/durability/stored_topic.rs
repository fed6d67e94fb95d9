//! One stored topic: from the domain into the journal.
//!
//! Constraints. A sample that was only read, or only appended, is not acknowledged as durable. A
//! hole cannot be filled after a later sample was appended: samples that other services may have
//! are fetched first. An error here affects this topic or one producer. Nothing here waits for the
//! disk: the worker pool does what needs it, and only this topic's samples wait meanwhile.
//!
//! Operation. A cycle of three steps: sync the contents of the folder; fetch the samples that other
//! services have; be ready and accept samples from writers. An error restarts the cycle at the
//! first step. A stall, or a hole that other services may fill, restarts it at the second step.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use helio_bus::transport::{Armed, Reader};
use helio_bus::{
    Bell, Bus, EventRef, Evolution, Forwarder, Guarantee, Lagging, Origin, PendingPublish,
    PendingTask, PublishError, Qos, SampleRef, SchemaId, SchemaText, Start, Subscribe, ThreadPool,
    Topic, TopicError, TopicSpec, TransportError,
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
use super::{
    DurabilityError, Figures, Notice, PANICKED, ProducerKey, SequencePosition, Timeouts, positions,
};
use crate::announcements::{ServiceState, is_text_of};
use crate::envelope::{FIRST_STORED, Header, RETENTION_GAP};
use crate::peer_messages::Ack;
use crate::reader::DdsReader;
use crate::reorder_queue::QueuedSample;
use crate::topic::TopicState;

/// The most samples of a topic in one turn.
const MAX_TAKEN_SAMPLES: usize = 1_024;
/// The same for topics with last values alone.
const MAX_TAKEN_LAST_VALUES: usize = 128;
/// The most producers of a topic with an open writer in the journal.
const MAX_FORWARDERS: usize = 1_024;
const UNSYNCED_FOLDER: &str = "the folder's contents cannot be synced to the disk; after a failed \
    sync the disk is not trusted until this host restarts";
/// How long services that lost each other wait for each other's announcements.
const REUNION_TIMEOUT: Duration = Duration::from_secs(2);

/// The stage of a topic in its cycle.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// The folder's contents are not known to be on the disk.
    Unsynced { since: Instant },
    /// Other services may have samples that are missing here. It waits for their announcements
    /// until `until`. If no other service is discovered, it waits until `alone`.
    Behind { until: Instant, alone: Instant },
    /// It has all samples of the other services, and accepts those of writers.
    Ready,
    /// An error occurred; it retries then.
    Trouble { until: Instant },
}

/// A stored topic.
pub(super) struct StoredTopic {
    state: Arc<TopicState>,
    watchdog: Arc<Watchdog>,
    timeouts: Timeouts,
    token: u64,
    /// Whether all samples are stored, or last values alone.
    kept: bool,
    armed: bool,
    stage: Stage,
    reader: DdsReader,
    bus: Bus,
    journal: Topic,
    workers: Arc<ThreadPool>,
    /// The part that the history server reads.
    served_topic: Arc<ServedTopic>,
    forwarders: Forwarders,
    schemas: HashSet<SchemaId>,
    /// A task that the next sample waits for.
    preparing: Option<PendingTask<Prepared>>,
    /// A writer in the journal that could not be opened.
    unopened: Option<((ProducerKey, u64), PublishError)>,
    /// The positions in the journal, durable or not: samples up to them are not appended again.
    has: HashMap<ProducerKey, SequencePosition>,
    /// The durable positions.
    durable: HashMap<ProducerKey, SequencePosition>,
    syncing: Syncing,
    /// A receipt waits for the disk.
    sync_now: bool,
    /// A poll has happened since the durable positions were last checked.
    polled: bool,
    acks: AckQueue,
    service_state: ServiceState,
    /// Whether the state was announced.
    announced: bool,
    /// The discovered other services, and those that have left.
    others: BTreeMap<String, u64>,
    departed: DepartedPeers,
    /// The services whose samples were fetched, with their reunions at that time.
    synced: BTreeMap<String, u64>,
    /// The service whose samples are being fetched.
    fetching: Option<(String, u64, Instant)>,
    /// Compares the contents with the other services'.
    anti_entropy: AntiEntropy,
    /// When all received samples were last taken.
    empty: Option<Instant>,
    /// Until when to wait for services that have not announced the topic, or not opened it.
    unheard_until: Instant,
    unopened_until: Instant,
    /// The last hole for which other services were asked.
    hole: Option<(ProducerKey, SequencePosition)>,
    /// Until when it waited in vain for a service to fill a hole.
    waited: Option<Instant>,
    /// The sample that could not be appended: it is the first to be retried.
    failed: Option<QueuedSample>,
}

/// The decision on a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleDecision {
    /// It is stored already.
    Known,
    Append,
    /// Earlier samples are missing, and its writer still has them.
    MissingPredecessor,
}

/// Decides by the producer's position. `whole`: nobody will send the samples that are missing
/// before it.
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

/// A topic's quality of service in the journal. History and retention are the same; ownership and
/// liveliness are checked in the domain.
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

/// An error as text.
fn message(error: impl Display) -> String {
    error.to_string()
}

/// The result of a task that needs the disk, before a sample can be appended.
enum Prepared {
    Schema(SchemaId, Result<(), TopicError>),
    /// A writer in the journal, for an incarnation of a producer.
    Forwarder((ProducerKey, u64), Result<Forwarder, TopicError>),
}

/// Why a sample is not in the journal.
enum StoreError {
    /// A task must complete first.
    Preparing,
    /// The topic cannot be stored at present.
    Topic(String),
    /// This producer's samples cannot be stored.
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
    /// Opens a topic; returns the number of its stored samples, too.
    pub(super) fn open(
        opener: &Opener,
        state: Arc<TopicState>,
        token: u64,
        kept: bool,
    ) -> Result<(Self, u64), DurabilityError> {
        let Opener { journal: bus, watchdog, workers, bell, timeouts, .. } = opener;
        let spec = TopicSpec::of(state.name.clone()).qos(journal_qos(&state.qos, kept));
        let topic = bus.topic(spec)?;
        let schemas = bus.schemas_of(&state.name)?;
        // A missing or edited text is stored again when a writer announces it.
        let is_stored = |id: &SchemaId| matches!(bus.schema(*id), Ok(Some(_)));
        let mut schemas: HashSet<_> = schemas.into_iter().flatten().filter(is_stored).collect();
        schemas.insert(SchemaId::BYTES);
        let (has, samples) = read_positions(&topic)?;
        let reader = DdsReader::for_service(&state, &positions(&has))?;
        let announced = watchdog.announced(&state.name);
        let mut this = Self {
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
            sync_now: false,
            polled: false,
            acks: AckQueue::default(),
            // If it was open before, `ready_count` and `reunions` continue, so that
            // becoming ready is noticed.
            service_state: ServiceState {
                ready: false,
                refused: false,
                error: None,
                last_values: !kept,
                opening: false,
                ..announced
            },
            announced: false,
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
        this.carry_known_schemas();
        this.announce();
        Ok((this, samples))
    }

    /// Copies the known schemas into the journal; failures are retried by `poll`.
    fn carry_known_schemas(&mut self) {
        for id in self.uncarried() {
            if let Some(schema) = self.text(id)
                && carry(&self.bus, &self.state.name, &schema).is_ok()
            {
                self.schemas.insert(id);
            }
        }
    }

    /// The schemas that are missing in the journal.
    fn uncarried(&self) -> Vec<SchemaId> {
        let announcements = &self.state.connection.announcements;
        let known = announcements.with_state(|state| state.schemas(&self.state.name));
        let known = known.into_iter().map(|(id, _)| id);
        known.filter(|id| !self.schemas.contains(id)).collect()
    }

    /// Announces the topic's state; after a failure the next poll retries.
    fn announce(&mut self) {
        let announcements = &self.state.connection.announcements;
        self.announced =
            self.watchdog.announce(announcements, &self.state.name, &self.service_state).is_ok();
    }

    /// Whether it has that quality of service, and is stored in that way.
    pub(super) fn is(&self, qos: &Qos, kept: bool) -> bool {
        self.state.qos == *qos && self.kept == kept
    }

    /// The part that the history server reads.
    pub(super) fn served_topic(&self) -> &Arc<ServedTopic> {
        &self.served_topic
    }

    /// Whether all samples are stored, and not last values alone.
    pub(super) fn is_kept(&self) -> bool {
        self.kept
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    pub(super) fn rung(&mut self) {
        self.armed = false;
    }

    /// Whether samples of writers must wait, because they would overtake those of other services.
    fn waits(&self) -> bool {
        match self.stage {
            _ if self.preparing.is_some() => true,
            Stage::Ready => false,
            Stage::Behind { .. } => self.kept && !self.reader.is_behind(),
            Stage::Unsynced { .. } | Stage::Trouble { .. } => true,
        }
    }

    /// Arms the bell for received samples; returns how long the service may sleep.
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
            // The next take reports the error.
            Err(_) => super::POLL_INTERVAL,
        }
    }

    /// Does periodic work: schemas, other services, retries after errors.
    pub(super) fn poll(&mut self, figures: &mut Figures, notify: &mut dyn FnMut(Notice)) {
        self.served_topic.polled();
        self.acks.poll();
        let announcements = &self.state.connection.announcements;
        self.sync_now = self.state.qos.guarantee == Guarantee::Durable
            || announcements.with_state(|state| state.is_storage_requested(&self.state.name));
        self.polled = true;
        let rests = matches!(self.stage, Stage::Unsynced { .. } | Stage::Trouble { .. });
        if self.service_state.error.is_some() && rests {
            // Writers still have these samples and resend them. If this fails, the next take
            // reports it.
            let _ = self.reader.discard();
        }
        let now = Instant::now();
        let waits = matches!(self.stage, Stage::Trouble { until } if now < until);
        if !waits && let Err(cause) = self.step(figures, notify) {
            self.trouble(&cause, notify);
        }
        if !self.announced {
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
            // One at a time; the next polls handle the others.
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
        }
        if self.preparing.is_none()
            && let Some(failed) = self.failed.take()
        {
            self.failed = self.put(failed, figures, notify)?;
        }
        self.fetch_what_others_have(notify)
    }

    /// Whether the journal's contents are on the disk.
    fn is_synced(&self) -> Result<bool, String> {
        let partitions = self.journal.partitions().map_err(message)?;
        Ok(partitions.iter().all(|partition| partition.durable >= partition.end))
    }

    /// Resumes after a stall. The other services continued, and lack nothing that this one has.
    pub(super) fn resume_after_stall(&mut self) {
        if matches!(self.stage, Stage::Behind { .. } | Stage::Ready) {
            let now = Instant::now();
            let others = !self.others.is_empty() || self.departed.may_be_back(self.alone(), now);
            self.announced = false;
            match others {
                true => self.fall_behind(now + REUNION_TIMEOUT, now + self.alone()),
                false => self.fall_behind(now, now),
            }
        }
    }

    /// How long to wait for an undiscovered service: services that lost each other find each other
    /// again within a lease.
    fn alone(&self) -> Duration {
        2 * self.state.connection.lease + self.state.connection.service_timeout
    }

    /// Restarts the cycle at the second step: other services may have missing samples.
    fn fall_behind(&mut self, until: Instant, alone: Instant) {
        self.stage = Stage::Behind { until, alone };
        (self.fetching, self.armed) = (None, false);
        self.synced.clear();
        if self.service_state.ready {
            self.service_state.ready = false;
            self.announce();
        }
    }

    /// Fetches from one service after the other until it has all their samples.
    fn fetch_what_others_have(&mut self, notify: &mut dyn FnMut(Notice)) -> Result<(), String> {
        if self.update_peers() && self.stage == Stage::Ready {
            let until = Instant::now() + REUNION_TIMEOUT;
            self.fall_behind(until, until);
        }
        if self.kept && self.stage == Stage::Ready {
            let empty = if self.armed { Some(Instant::now()) } else { self.empty };
            let behind =
                self.anti_entropy.poll(&self.served_topic, self.others.keys(), &self.acks, empty);
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
            // New samples wait behind those.
            self.reader.catch_up(other.clone(), positions(&self.has)).map_err(message)?;
            self.armed = false;
            self.fetching = Some((other, reunions, Instant::now()));
            return Ok(());
        }
        let Stage::Behind { until, alone } = self.stage else { return Ok(()) };
        let until = if self.others.is_empty() { alone.max(until) } else { until };
        // Receipts do not wait for last values.
        let settled = !self.kept || self.syncing.is_idle();
        // Until the sample that failed is stored, the cause may last.
        if settled && self.failed.is_none() && !self.may_discover_peers(until) {
            self.stage = Stage::Ready;
            self.service_state.ready = true;
            self.service_state.ready_count += 1;
            let recovered = self.service_state.error.take().is_some();
            self.announce();
            let topic = &self.state.name;
            if recovered {
                notify(Notice::Recovered { topic: topic.clone() });
            }
            if self.kept {
                notify(Notice::Ready { topic: topic.clone() });
            }
        }
        Ok(())
    }

    /// Updates the list of services that store the topic; the samples of each are in its journal,
    /// ready or not. Announces a reunion if one of them had left. True if one had left, or
    /// announces that this one had: it continued alone.
    fn update_peers(&mut self) -> bool {
        let announcements = &self.state.connection.announcements;
        let others: BTreeMap<_, _> = announcements.with_state(|known| {
            let others = known.services(&self.state.name);
            // Last values have holes, which no ack may cover.
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

    /// Whether undiscovered services may have samples of the topic.
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

    /// A schema with its text; `None` if the text is unknown or does not match.
    fn text(&self, id: SchemaId) -> Option<SchemaText> {
        let announcements = &self.state.connection.announcements;
        let text = announcements.with_state(|announcements| announcements.text(id).cloned());
        let text = text.or_else(|| {
            announcements.with_fresh_state(|announcements| announcements.text(id).cloned())
        });
        let text = text.filter(|text| is_text_of(id, text))?;
        Some(SchemaText { id, text: text.into() })
    }

    /// Copies a schema into the journal, so that the folder can be read without the domain. False
    /// if its text is unknown or does not match.
    fn carry_schema(&mut self, id: SchemaId) -> Result<bool, StoreError> {
        if self.schemas.contains(&id) {
            return Ok(true);
        }
        let Some(schema) = self.text(id) else { return Ok(false) };
        let (bus, topic) = (self.bus.clone(), self.state.name.clone());
        Err(self.prepare(move || Prepared::Schema(id, carry(&bus, &topic, &schema))))
    }

    /// Starts a task that needs the disk; the next sample waits for it.
    fn prepare(&mut self, job: impl FnOnce() -> Prepared + Send + 'static) -> StoreError {
        self.preparing = Some(self.workers.run(job));
        StoreError::Preparing
    }

    /// Whether a task is running that the next sample waits for.
    fn is_preparing(&mut self) -> Result<bool, String> {
        let Some(task) = &self.preparing else { return Ok(false) };
        let Poll::Ready(prepared) = task.poll() else { return Ok(true) };
        let prepared = prepared.ok_or_else(|| PANICKED.to_owned())?;
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
            // The sample that needs it reports the error.
            Prepared::Forwarder(place, Err(TopicError::Transport(error))) => {
                self.unopened = Some((place, error.into()));
            }
            Prepared::Forwarder(place, Err(error)) => {
                self.unopened = Some((place, PublishError::NotOpened(error.to_string())));
            }
        }
        Ok(false)
    }

    /// Appends received samples to the journal; true if there may be more.
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
            if !next.is_foreign()
                && let Some(early) = self.put(next, figures, notify)?
            {
                self.reader.put_back(early);
                return Ok(self.preparing.is_none());
            }
        }
        Ok(true)
    }

    /// Appends a sample, or handles it otherwise. Returns it if other services must first be asked
    /// for the missing samples before it, or if a task must complete.
    fn put(
        &mut self,
        next: QueuedSample,
        figures: &mut Figures,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<Option<QueuedSample>, String> {
        let mut avro = Vec::new();
        let added = match next.read(&mut avro) {
            Ok((header, _)) if self.is_new_hole(&next, &header) => return Ok(Some(next)),
            Ok((header, payload)) => self.add(&next, &header, payload, figures, notify),
            // Such a sample is not acknowledged, so that no other one takes its place.
            Err(cause) => Err(StoreError::Producer(cause)),
        };
        match added {
            Ok(()) => Ok(None),
            Err(StoreError::Preparing) => Ok(Some(next)),
            Err(StoreError::Topic(cause)) => {
                self.failed = Some(next);
                Err(cause)
            }
            Err(StoreError::Producer(cause)) => {
                if let Ok(name) = ProducerName::new(next.names().1) {
                    self.refuse((next.partition, name), &cause, notify);
                }
                Ok(None)
            }
        }
    }

    /// Refuses a producer whose samples cannot be stored; other producers are not affected.
    fn refuse(&mut self, producer_key: ProducerKey, cause: &str, notify: &mut dyn FnMut(Notice)) {
        let (topic, name) = (self.state.name.clone(), producer_key.1.clone());
        let cause = format!("the durability service cannot store {name} of {topic}: {cause}");
        if self.acks.refuse(producer_key, &cause) {
            notify(Notice::Trouble { topic, cause });
        }
    }

    /// Whether other services may have the missing samples before this one, and were not asked yet.
    /// If so, they are asked now.
    fn is_new_hole(&mut self, next: &QueuedSample, header: &Header<'_>) -> bool {
        let takes = self.kept && self.stage == Stage::Ready && !self.reader.is_behind();
        if !takes || !next.base || next.is_history() || next.is_foreign() {
            return false;
        }
        let Ok(name) = ProducerName::new(header.producer) else { return false };
        let (producer_key, order) = ((header.partition, name), header.order());
        let has = self.has.get(&producer_key).copied();
        // A refused producer's samples cannot be stored either if they come from other services.
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
        figures: &mut Figures,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<(), StoreError> {
        let Ok(name) = ProducerName::new(header.producer) else { return Ok(()) };
        let (producer_key, order) = ((header.partition, name.clone()), header.order());
        let has = self.has.get(&producer_key).copied();
        let follows = follows(has, next, order);
        if !self.is_due(next, header, &producer_key, follows)? {
            return Ok(());
        }
        if self.kept && !follows && !next.is_history() && header.flags & FIRST_STORED == 0 {
            self.report_hole(&name, has, order, notify);
        }
        let producer = Producer { name, incarnation: header.incarnation };
        let after_gap = next.is_history() && header.flags & RETENTION_GAP != 0;
        let marked = if after_gap { retention_marks::marked(header.headers) } else { None };
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
            pin: None,
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
        figures.stored += 1;
        figures.bytes += payload.len() as u64;
        Ok(())
    }

    /// Whether a sample is to be appended now; otherwise queues an ack if its writer needs one.
    fn is_due(
        &mut self,
        next: &QueuedSample,
        header: &Header<'_>,
        producer_key: &ProducerKey,
        follows: bool,
    ) -> Result<bool, StoreError> {
        let has = self.has.get(producer_key).copied();
        let whole = next.base || follows || next.is_history() || !self.kept;
        match decide(has, header.order(), whole) {
            SampleDecision::Known => {
                if next.origin == Origin::History && !next.is_history() {
                    // The writer resent it, so it lacks the ack.
                    self.acks.repeat(producer_key.clone());
                }
                return Ok(false);
            }
            SampleDecision::MissingPredecessor => {
                self.acks.request_resend(producer_key.clone());
                return Ok(false);
            }
            SampleDecision::Append => {}
        }
        if self.acks.is_refused(producer_key) {
            self.acks.repeat(producer_key.clone());
            return Ok(false);
        }
        if !self.carry_schema(header.schema)? && self.kept && !next.is_history() {
            // The sample would be unreadable; its schema's text is in flight.
            self.acks.request_resend(producer_key.clone());
            return Ok(false);
        }
        Ok(true)
    }

    /// Records an appended sample.
    fn appended(&mut self, producer_key: ProducerKey, order: SequencePosition, offset: u64) {
        if self.kept {
            self.syncing.appended(&producer_key, offset);
        }
        self.served_topic.has(&producer_key, order);
        self.acks.stored(&producer_key);
        self.has.insert(producer_key, order);
    }

    /// Reports missing samples of an incarnation before this one.
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

    /// Appends a sample, and returns its offset; `None` if its writer in the journal is not open.
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

    /// Opens a writer in the journal, in a task, because that writes to the disk.
    fn open_forwarder(&mut self, producer_key: ProducerKey, producer: &Producer) -> StoreError {
        self.forwarders.remove(&producer_key);
        let (journal, producer) = (self.journal.clone(), producer.clone());
        self.prepare(move || {
            let opened = journal.forwarder(&producer, producer_key.0);
            let opened = opened.map(|opened| opened.guarantee(Guarantee::Stored));
            Prepared::Forwarder((producer_key, producer.incarnation), opened)
        })
    }

    /// Updates the durable positions, and requests the next sync.
    pub(super) fn settle(&mut self, notify: &mut dyn FnMut(Notice)) {
        if !self.kept {
            return;
        }
        let silence = self.syncing.silence().unwrap_or_default();
        let (ready, is_silent) = (self.stage == Stage::Ready, silence >= self.timeouts.disk);
        if ready && silence >= self.state.connection.lease && self.is_another_ready() {
            // With a silent disk, receipts rely on the other service.
            self.resume_after_stall();
        } else if ready {
            self.report_silent_disk(is_silent, notify);
        } else if is_silent {
            return self.trouble(UNSYNCED_FOLDER, notify);
        }
        let sync_now = self.sync_now || self.stage != Stage::Ready;
        let polled = std::mem::take(&mut self.polled);
        match self.syncing.turn(&self.has, &mut self.forwarders, sync_now, polled) {
            Ok(durable) => {
                for (producer_key, order) in durable {
                    self.acks.synced(producer_key.clone());
                    self.durable.insert(producer_key, order);
                }
            }
            Err(cause) => self.trouble(&cause, notify),
        }
    }

    /// Whether another service is ready, so that receipts need not wait for this one.
    fn is_another_ready(&self) -> bool {
        let announcements = &self.state.connection.announcements;
        announcements.with_state(|known| {
            let mut services = known.complete_services(&self.state.name);
            services.any(|(session, service_state)| {
                service_state.ready && *session != announcements.session
            })
        })
    }

    /// The only service continues although the disk is silent: receipts for the journal complete,
    /// and those for the disk fail.
    fn report_silent_disk(&mut self, is_silent: bool, notify: &mut dyn FnMut(Notice)) {
        if is_silent == self.service_state.error.is_some() {
            return;
        }
        let topic = self.state.name.clone();
        self.service_state.error = is_silent.then(|| {
            let silence = self.timeouts.disk.as_secs_f64();
            format!(
                "the durability service stores {topic} in its journal only: the disk has not \
                 answered for {silence} s"
            )
        });
        self.announce();
        notify(match self.service_state.error.clone() {
            Some(cause) => Notice::Trouble { topic, cause },
            None => Notice::Recovered { topic },
        });
    }

    /// Handles an error: no further sample is acknowledged until a retry from the first step on.
    /// The journal's contents stay.
    fn trouble(&mut self, cause: &str, notify: &mut dyn FnMut(Notice)) {
        let topic = self.state.name.clone();
        let cause = format!("the durability service cannot store {topic}: {cause}");
        self.syncing.forget();
        self.forwarders.clear();
        (self.preparing, self.unopened) = (None, None);
        self.fall_behind(Instant::now(), Instant::now());
        self.stage = Stage::Trouble { until: Instant::now() + self.timeouts.retry_interval };
        // If this fails, the next poll retries.
        let _ = self.reader.discard();
        if self.service_state.error.as_ref() != Some(&cause) {
            self.service_state.error = Some(cause.clone());
            self.announce();
            notify(Notice::Trouble { topic, cause });
        }
    }

    /// Adds the acks to send, each with the writer's session.
    pub(super) fn collect_acks(&mut self, into: &mut Vec<(String, Ack)>) {
        if !self.acks.is_due() {
            return;
        }
        // If all receipts wait for the disk, durable positions are enough.
        let appended = self.state.qos.guarantee < Guarantee::Durable;
        let marks =
            StoredPositions { appended: appended.then_some(&self.has), durable: &self.durable };
        let (acks, announcements) = (&mut self.acks, &self.state.connection.announcements);
        announcements.with_state(|state| acks.write(&self.state.name, &marks, state, into));
    }

    /// An ack could not be sent.
    pub(super) fn retry_ack(&mut self, session: &str, ack: &Ack) {
        self.acks.retry_ack(session, ack);
    }
}

/// Declares a schema in the journal, durably. Its text parses, as [`StoredTopic::text`] checks.
fn carry(bus: &Bus, topic: &TopicName, schema: &SchemaText) -> Result<(), TopicError> {
    let spec = TopicSpec::of(topic.clone()).schema(schema.clone()).evolution(Evolution::None);
    bus.topic(spec)?.declare()
}

/// Whether a sample directly follows the stored ones; its writer skipped the numbers between.
fn follows(has: Option<SequencePosition>, next: &QueuedSample, order: SequencePosition) -> bool {
    next.previous > 0 && has == Some((order.0, next.previous))
}

/// Reads each producer's position, and the number of samples.
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
