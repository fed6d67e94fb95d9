//! One topic that is kept: out of the domain, into the journal.
//!
//! Constraints. Nothing is said to be durable that was only read, or only appended. A hole before a
//! sample cannot be filled any more behind it: what others may have is fetched first. What goes
//! wrong here is this topic's trouble, or one producer's. Nobody waits for the disk here: what
//! takes it is an errand, and the topic's samples wait meanwhile, not those of others.
//!
//! Operation, a circle: what is in the folder is synced; what other services have is fetched; then
//! the topic is ready, and takes what writers send. It begins anew, behind, after a hole that
//! others may fill and when the service stood still, and at the first step after trouble.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use helio_bus::transport::{Armed, Reader};
use helio_bus::{
    Bell, Bus, EventRef, Evolution, Forwarder, Guarantee, Lagging, Origin, PublishError,
    Publishing, Qos, SampleRef, SchemaId, SchemaText, Start, Subscribe, Topic, TopicError,
    TopicSpec, TransportError,
};
use helio_core::qos::{Durability, Liveliness, Overload, Ownership, Reliability};
use helio_core::{Headers, Producer, ProducerName, TopicName};
use helio_journal::JournalError;

use super::errands::{Errand, Errands};
use super::left;
use super::letters::{Letters, Marks};
use super::level::Level;
use super::lost::Lost;
use super::opening::Opener;
use super::serve::Shelf;
use super::syncing::{Forwarders, Syncing};
use super::watch::Watch;
use super::{DurabilityError, Figures, Notice, Order, Who, stands};
use crate::envelope::{BEGINS, Header, LEFT};
use crate::inbox::Queued;
use crate::options::SERVICE_PATIENCE;
use crate::post::Stored;
use crate::reader::DdsReader;
use crate::tables::{Keeps, is_text_of};
use crate::topic::TopicState;

/// The most samples that are taken of a topic before others have their turn.
const BATCH: usize = 1_024;
/// The same of one of which last values are kept alone.
const PASSING: usize = 128;
/// The most producers of a topic that have a writer in the journal at a time.
const MAX_FORWARDERS: usize = 1_024;
/// How long the disk is given to make what was appended durable.
const DISK: Duration = Duration::from_secs(60);
/// How long the journal's own syncs are given to make durable what was in the folder.
const SYNCED: Duration = Duration::from_secs(10);
const UNSYNCED: &str = "what is in the folder does not get onto the disk; a disk that has refused \
    it once is not believed until this host is started anew";
/// How long after trouble it is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long another service is given to say that it keeps a topic.
const PATIENCE: Duration = Duration::from_secs(5);
/// A service that is there and hands out nothing for so long is not waited for; what it has comes
/// when it says that it goes on.
const SILENT: Duration = Duration::from_secs(60);
/// How long services that lost each other are given to hear so.
const RETURNED: Duration = Duration::from_secs(2);

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
pub(super) struct Keeping {
    state: Arc<TopicState>,
    watch: Arc<Watch>,
    token: u64,
    /// Whether its samples are, or its last values alone.
    kept: bool,
    armed: bool,
    stage: Stage,
    reader: DdsReader,
    bus: Bus,
    journal: Topic,
    errands: Arc<Errands>,
    /// What is handed out of it.
    shelf: Arc<Shelf>,
    forwarders: Forwarders,
    schemas: HashSet<SchemaId>,
    /// What the next sample waits for.
    preparing: Option<Errand<Prepared>>,
    /// A writer in the journal that could not be had.
    unopened: Option<((Who, u64), PublishError)>,
    /// What is in the journal, on the disk or not: it is not appended again.
    has: HashMap<Who, Order>,
    /// What of it is durable.
    durable: HashMap<Who, Order>,
    syncing: Syncing,
    /// Somebody waits for the disk.
    hurry: bool,
    /// It was looked after since it was last seen what is durable.
    looked: bool,
    letters: Letters,
    keeps: Keeps,
    /// Whether that was said.
    said: bool,
    /// The other services that were there, and those that have gone since.
    others: BTreeMap<String, u64>,
    lost: Lost,
    /// Those whose samples it has, as they were when they were asked.
    synced: BTreeMap<String, u64>,
    /// The one whose samples are on their way.
    fetching: Option<(String, u64, Instant)>,
    /// Whether others have what will not come by itself.
    level: Level,
    /// When all that had come was taken last.
    empty: Option<Instant>,
    /// Until then services may be there that have not said what they keep, or have not opened it.
    unheard_until: Instant,
    unopened_until: Instant,
    /// The hole that others were asked for last.
    hole: Option<(Who, Order)>,
    /// Until when it was waited in vain for somebody to fill a hole.
    waited: Option<Instant>,
    /// What could not be put into the journal: it is the first that is tried again.
    failed: Option<Queued>,
}

/// What becomes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is there.
    Known,
    Taken,
    /// Others are missing before it, which its writer has still.
    Early,
}

/// Decides by what is there of the producer. `whole`: what is missing before it nobody will send.
fn fate(has: Option<Order>, order: Order, whole: bool) -> Fate {
    let first = (order.0, 1);
    let next = has.map_or(first, |(incarnation, sequence)| match incarnation == order.0 {
        true => (incarnation, sequence.saturating_add(1)),
        false => first,
    });
    match has {
        Some(has) if order <= has => Fate::Known,
        _ if order == next || whole => Fate::Taken,
        _ => Fate::Early,
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
fn told(error: impl Display) -> String {
    error.to_string()
}

/// What takes the disk and is had before a sample can be appended.
enum Prepared {
    Schema(SchemaId, Result<(), TopicError>),
    /// A writer in the journal, for an incarnation.
    Forwarder((Who, u64), Result<Forwarder, TopicError>),
}

/// Why a sample is not in the journal.
enum Unkept {
    /// Something is prepared that it needs.
    Yet,
    /// The topic cannot be kept at the moment.
    Topic(String),
    /// This producer's samples cannot be.
    Producer(String),
}

impl From<TopicError> for Unkept {
    fn from(error: TopicError) -> Self {
        Self::Topic(error.to_string())
    }
}

impl From<PublishError> for Unkept {
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

impl Keeping {
    /// Opens it; gives how many samples of it there are.
    pub(super) fn open(
        opener: &Opener,
        state: Arc<TopicState>,
        (token, kept): (u64, bool),
    ) -> Result<(Self, u64), DurabilityError> {
        let Opener { journal: bus, watch, errands, bell, .. } = opener;
        let spec = TopicSpec::of(state.name.clone()).qos(journal_qos(&state.qos, kept));
        let topic = bus.topic(spec)?;
        let schemas = bus.schemas_of(&state.name)?;
        let mut schemas: HashSet<_> = schemas.into_iter().flatten().collect();
        schemas.insert(SchemaId::BYTES);
        let (has, samples) = read_stands(&topic)?;
        let reader = DdsReader::keeping(&state, &stands(&has))?;
        let said = watch.said(&state.name);
        let mut keeping = Self {
            level: Level::new(&state),
            empty: None,
            state,
            watch: Arc::clone(watch),
            token,
            kept,
            armed: false,
            stage: Stage::Unsynced { since: Instant::now() },
            reader,
            shelf: Shelf::new(topic.clone(), kept, &has),
            bus: bus.clone(),
            syncing: Syncing::new(&topic, bell),
            journal: topic,
            errands: Arc::clone(errands),
            forwarders: HashMap::new(),
            schemas,
            preparing: None,
            unopened: None,
            has,
            durable: HashMap::new(),
            hurry: false,
            looked: false,
            letters: Letters::default(),
            // It may have been open before: who heard that it was ready hears so again.
            keeps: Keeps {
                ready: false,
                refused: false,
                trouble: None,
                last_values: !kept,
                opening: false,
                ..said
            },
            said: false,
            others: BTreeMap::new(),
            lost: Lost::default(),
            synced: BTreeMap::new(),
            fetching: None,
            unheard_until: Instant::now() + PATIENCE,
            unopened_until: Instant::now() + SILENT,
            hole: None,
            waited: None,
            failed: None,
        };
        keeping.carry_what_is_known();
        keeping.say();
        Ok((keeping, samples))
    }

    /// Carries the schemas that are known when it is opened; what fails is tried again.
    fn carry_what_is_known(&mut self) {
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
        let known = self.state.connection.tables.look(|tables| tables.schemas(&self.state.name));
        let known = known.into_iter().map(|(id, _)| id);
        known.filter(|id| !self.schemas.contains(id)).collect()
    }

    /// Says how it is kept; where that cannot be said, at the next look.
    fn say(&mut self) {
        let tables = &self.state.connection.tables;
        self.said = self.watch.say(tables, &self.state.name, &self.keeps).is_ok();
    }

    /// Whether it is the topic of that quality of service, and kept so.
    pub(super) fn is(&self, qos: &Qos, kept: bool) -> bool {
        self.state.qos == *qos && self.kept == kept
    }

    /// What is handed out of it.
    pub(super) fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
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
            return super::LOOK;
        }
        match self.reader.arm(bell, self.token) {
            Ok(Armed::Ready) => Duration::ZERO,
            Ok(Armed::Waiting) => {
                self.armed = true;
                Duration::MAX
            }
            Ok(Armed::Recheck(after)) => after.min(Duration::from_millis(10)),
            // Taking tells what is wrong.
            Err(_) => super::LOOK,
        }
    }

    /// Looks after what is not done by what comes: schemas, other services, an end of trouble.
    pub(super) fn look(&mut self, figures: &mut Figures, tell: &mut dyn FnMut(Notice)) {
        self.shelf.looked();
        self.letters.look();
        let wanted =
            || self.state.connection.tables.look(|known| known.is_wanted(&self.state.name));
        self.hurry = self.state.qos.guarantee == Guarantee::Durable || wanted();
        self.looked = true;
        let rests = matches!(self.stage, Stage::Unsynced { .. } | Stage::Trouble { .. });
        if self.keeps.trouble.is_some() && rests {
            // It comes again: writers have it still. Where it fails, it does so when it is taken.
            let _ = self.reader.discard();
        }
        let now = Instant::now();
        let waits = matches!(self.stage, Stage::Trouble { until } if now < until);
        if !waits && let Err(cause) = self.step(figures, tell) {
            self.trouble(&cause, tell);
        }
        if !self.said {
            self.say();
        }
    }

    fn step(&mut self, figures: &mut Figures, tell: &mut dyn FnMut(Notice)) -> Result<(), String> {
        if matches!(self.stage, Stage::Trouble { .. }) {
            self.stage = Stage::Unsynced { since: Instant::now() };
        }
        if !self.is_preparing()? {
            // One at a time: the others with the next looks.
            let _ = self.uncarried().into_iter().find(|id| self.carry_schema(*id).is_err());
        }
        if let Stage::Unsynced { since } = self.stage {
            if self.kept && !self.is_synced()? {
                return if since.elapsed() < SYNCED { Ok(()) } else { Err(UNSYNCED.to_owned()) };
            }
            self.durable.clone_from(&self.has);
            let until = self.state.connection.services_until();
            self.fall_behind(until, until);
            if let Some(failed) = self.failed.take() {
                self.put(failed, figures, tell)?;
            }
        }
        self.fetch_what_others_have(tell)
    }

    /// Whether all that is in the journal is on the disk.
    fn is_synced(&self) -> Result<bool, String> {
        let partitions = self.journal.partitions().map_err(told)?;
        Ok(partitions.iter().all(|partition| partition.durable >= partition.end))
    }

    /// The service stood still: others went on without it. They lack nothing that it has.
    pub(super) fn stood_still(&mut self) {
        if matches!(self.stage, Stage::Behind { .. } | Stage::Ready) {
            let now = Instant::now();
            let others = !self.others.is_empty() || self.lost.may_be_back(self.alone(), now);
            self.said = false;
            match others {
                true => self.fall_behind(now + RETURNED, now + self.alone()),
                false => self.fall_behind(now, now),
            }
        }
    }

    /// How long another service is waited for that is not seen at the moment: those that were lost
    /// to each other find each other again within a lease.
    fn alone(&self) -> Duration {
        2 * self.state.connection.lease + SERVICE_PATIENCE
    }

    /// Others may have what is not here.
    fn fall_behind(&mut self, until: Instant, alone: Instant) {
        self.stage = Stage::Behind { until, alone };
        (self.fetching, self.armed) = (None, false);
        self.synced.clear();
        if self.keeps.ready {
            self.keeps.ready = false;
            self.say();
        }
    }

    /// Fetches from one after the other; has what all of them have in the end.
    fn fetch_what_others_have(&mut self, tell: &mut dyn FnMut(Notice)) -> Result<(), String> {
        if self.look_who_is_there() && self.stage == Stage::Ready {
            let until = Instant::now() + RETURNED;
            self.fall_behind(until, until);
        }
        if self.kept && self.stage == Stage::Ready {
            let empty = if self.armed { Some(Instant::now()) } else { self.empty };
            let behind = self.level.look(&self.shelf, self.others.keys(), (&self.letters, empty));
            if behind.map_err(told)? {
                self.fall_behind(Instant::now(), Instant::now());
            }
        }
        if self.reader.has_past() {
            return Ok(());
        }
        if let Some((other, parted, since)) = self.fetching.take()
            && (self.reader.has_caught_up() || since.elapsed() >= SILENT)
        {
            self.synced.insert(other, parted);
        }
        let others = &self.others;
        self.synced.retain(|other, parted| others.get(other) == Some(parted));
        let next = others.iter().find(|(other, _)| !self.synced.contains_key(*other));
        if let Some((other, parted)) = next.map(|(other, parted)| (other.clone(), *parted)) {
            // What comes meanwhile is behind it.
            self.reader.catch_up(other.clone(), stands(&self.has)).map_err(told)?;
            self.armed = false;
            self.fetching = Some((other, parted, Instant::now()));
            return Ok(());
        }
        let Stage::Behind { until, alone } = self.stage else { return Ok(()) };
        let until = if self.others.is_empty() { alone.max(until) } else { until };
        // Nobody waits until last values are durable.
        let settled = !self.kept || self.syncing.is_idle();
        if settled && !self.may_hear_of_others(until) {
            self.stage = Stage::Ready;
            self.keeps.ready = true;
            self.keeps.turn += 1;
            let topic = &self.state.name;
            if self.keeps.trouble.take().is_some() {
                tell(Notice::Recovered { topic: topic.clone() });
            }
            self.say();
            if self.kept {
                tell(Notice::Ready { topic: self.state.name.clone() });
            }
        }
        Ok(())
    }

    /// Looks which services keep the topic, too: what one has is in its journal, ready or not.
    /// Tells those that are there again that they were not. True where one was gone, or says that
    /// this one was: it went on alone.
    fn look_who_is_there(&mut self) -> bool {
        let tables = &self.state.connection.tables;
        let others: BTreeMap<_, _> = tables.look(|known| {
            let others = known.keepers(&self.state.name);
            // Last values have holes, which no mark may cover.
            let others = others.filter(|(session, keeps)| {
                **session != tables.session && keeps.last_values != self.kept && !keeps.opening
            });
            others.map(|(session, keeps)| (session.clone(), keeps.parted)).collect()
        });
        let back = others.keys().filter(|other| self.lost.is_back(other)).count();
        let told = |(other, parted)| others.get(other).is_some_and(|now| now != parted);
        let apart = back > 0 || self.synced.iter().any(told);
        let before = std::mem::replace(&mut self.others, others);
        let gone = before.into_keys().filter(|other| !self.others.contains_key(other));
        self.lost.went(gone, Instant::now());
        if back > 0 {
            self.keeps.parted += 1;
            self.say();
        }
        apart
    }

    /// Whether there may be services with samples that have not said yet that they keep it.
    fn may_hear_of_others(&self, until: Instant) -> bool {
        let now = Instant::now();
        let tables = &self.state.connection.tables;
        let silent = || tables.look(|state| state.has_silent_keepers(&self.state.name));
        let opening =
            || tables.look(|state| state.full_keepers(&self.state.name).any(|(_, of)| of.opening));
        let unheard = now < self.unheard_until && silent();
        self.kept && (now < until || unheard || now < self.unopened_until && opening())
    }

    /// A schema with its text, where that is known, and no other's.
    fn text(&self, id: SchemaId) -> Option<SchemaText> {
        let tables = &self.state.connection.tables;
        let text = tables.look(|tables| tables.text(id).cloned());
        let text = text.or_else(|| tables.fresh(|tables| tables.text(id).cloned()));
        let text = text.filter(|text| is_text_of(id, text))?;
        Some(SchemaText { id, text: text.into() })
    }

    /// Has a schema made known to the journal's topic, so that whoever opens the folder reads it.
    /// False where its text is not known, or is another's.
    fn carry_schema(&mut self, id: SchemaId) -> Result<bool, Unkept> {
        if self.schemas.contains(&id) {
            return Ok(true);
        }
        let Some(schema) = self.text(id) else { return Ok(false) };
        let (bus, topic) = (self.bus.clone(), self.state.name.clone());
        Err(self.prepare(move || Prepared::Schema(id, carry(&bus, &topic, &schema))))
    }

    /// Has something done that takes the disk: the next sample waits for it.
    fn prepare(&mut self, job: impl FnOnce() -> Prepared + Send + 'static) -> Unkept {
        self.preparing = Some(self.errands.run(job));
        Unkept::Yet
    }

    /// Whether something is being done that the next sample waits for.
    fn is_preparing(&mut self) -> Result<bool, String> {
        let Some(errand) = &self.preparing else { return Ok(false) };
        let prepared = match errand.try_recv() {
            Err(TryRecvError::Empty) => return Ok(true),
            prepared => prepared.map_err(told)?,
        };
        self.preparing = None;
        match prepared {
            Prepared::Schema(id, carried) => {
                carried.map_err(told)?;
                self.schemas.insert(id);
            }
            Prepared::Forwarder((who, incarnation), Ok(opened)) => {
                if self.forwarders.len() >= MAX_FORWARDERS {
                    self.forwarders.clear();
                }
                self.forwarders.insert(who, (incarnation, opened));
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
    pub(super) fn take(&mut self, figures: &mut Figures, tell: &mut dyn FnMut(Notice)) -> bool {
        let taken = self.take_some(figures, tell);
        taken.unwrap_or_else(|cause| {
            self.trouble(&cause, tell);
            false
        })
    }

    fn take_some(
        &mut self,
        figures: &mut Figures,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<bool, String> {
        let at_rest = matches!(self.stage, Stage::Unsynced { .. } | Stage::Trouble { .. });
        if at_rest || self.is_preparing()? {
            return Ok(false);
        }
        for _ in 0..if self.kept { BATCH } else { PASSING } {
            let mut next = self.reader.next().map_err(told)?;
            if self.waits()
                && let Some(early) = next.take_if(|next| !next.is_past())
            {
                self.reader.put_back(early);
            }
            let Some(next) = next else {
                self.empty = Some(Instant::now());
                return Ok(false);
            };
            if !next.is_foreign() && !self.put(next, figures, tell)? {
                return Ok(self.preparing.is_none());
            }
        }
        Ok(true)
    }

    /// Puts a sample into the journal, or where it belongs instead. False where others are to be
    /// asked first for what is missing before it, or something is prepared that it needs.
    fn put(
        &mut self,
        next: Queued,
        figures: &mut Figures,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<bool, String> {
        let mut avro = Vec::new();
        let added = match next.read(&mut avro) {
            Ok((header, _)) if self.is_new_hole(&next, &header) => {
                self.reader.put_back(next);
                return Ok(false);
            }
            Ok((header, payload)) => self.add(&next, &header, payload, (figures, tell)),
            // It is not acknowledged: nothing else may stand in its place.
            Err(cause) => Err(Unkept::Producer(cause)),
        };
        match added {
            Ok(()) => Ok(true),
            Err(Unkept::Yet) => {
                self.reader.put_back(next);
                Ok(false)
            }
            Err(Unkept::Topic(cause)) => {
                self.failed = Some(next);
                Err(cause)
            }
            Err(Unkept::Producer(cause)) => {
                if let Ok(name) = ProducerName::new(next.names().1) {
                    self.refuse((next.partition, name), &cause, tell);
                }
                Ok(true)
            }
        }
    }

    /// A producer's samples cannot be kept: that is its own trouble.
    fn refuse(&mut self, who: Who, cause: &str, tell: &mut dyn FnMut(Notice)) {
        let (topic, name) = (self.state.name.clone(), who.1.clone());
        let cause = format!("the durability service cannot keep {name} of {topic}: {cause}");
        if self.letters.refuse(who, &cause) {
            tell(Notice::Trouble { topic, cause });
        }
    }

    /// Whether others may have what is missing before a sample though its writer has not, and were
    /// not asked for it yet. They are asked from then on.
    fn is_new_hole(&mut self, next: &Queued, header: &Header<'_>) -> bool {
        let takes = self.kept && self.stage == Stage::Ready && !self.reader.is_behind();
        if !takes || !next.base || next.is_past() || next.is_foreign() {
            return false;
        }
        let Ok(name) = ProducerName::new(header.producer) else { return false };
        let (who, order) = ((header.partition, name), header.order());
        let has = self.has.get(&who).copied();
        // What others have of one that is refused could not be kept either, yet.
        if self.letters.is_refused(&who)
            || fate(has, order, follows(has, next, order)) != Fate::Early
        {
            return false;
        }
        let hole = Some((who, order));
        if self.hole == hole {
            return false;
        }
        self.hole = hole;
        self.look_who_is_there();
        let (now, alone) = (Instant::now(), self.alone());
        let waited = self.waited.is_some_and(|until| until <= now && now < until + alone);
        if self.others.is_empty() {
            if waited || header.flags & BEGINS != 0 {
                return false;
            }
            self.waited = Some(now + alone);
        }
        self.fall_behind(now, now + alone);
        true
    }

    fn add(
        &mut self,
        next: &Queued,
        header: &Header<'_>,
        payload: &[u8],
        (figures, tell): (&mut Figures, &mut dyn FnMut(Notice)),
    ) -> Result<(), Unkept> {
        let Ok(name) = ProducerName::new(header.producer) else { return Ok(()) };
        let (who, order) = ((header.partition, name.clone()), header.order());
        let has = self.has.get(&who).copied();
        let follows = follows(has, next, order);
        match fate(has, order, next.base || follows || next.is_past() || !self.kept) {
            Fate::Known => {
                if next.origin == Origin::History && !next.is_past() {
                    // Its writer has sent it again: it does not know that it is here.
                    self.letters.repeat(who);
                }
                return Ok(());
            }
            Fate::Early => {
                self.letters.ask(who);
                return Ok(());
            }
            Fate::Taken => {}
        }
        if self.letters.is_refused(&who) {
            self.letters.repeat(who);
            return Ok(());
        }
        if !self.carry_schema(header.schema)? && self.kept && !next.is_past() {
            // Nobody could read it: its schema's text is on its way.
            self.letters.ask(who);
            return Ok(());
        }
        if self.kept && !follows && !next.is_past() && header.flags & BEGINS == 0 {
            self.tell_hole(&name, has, order, tell);
        }
        let producer = Producer { name, incarnation: header.incarnation };
        let is_left = next.is_past() && header.flags & LEFT != 0;
        let marked = if is_left { left::marked(header.headers) } else { None };
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
        let Some(forwarded) = self.forward(&who, &sample) else {
            return Err(self.open_forwarder(who, &producer));
        };
        match forwarded {
            // A newer incarnation was here before.
            Err(PublishError::Transport(TransportError::Fenced { newer, .. })) => {
                self.letters.fence(who, newer);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
            Ok(offset) => self.appended(who, order, offset),
        }
        (figures.stored, figures.bytes) =
            (figures.stored + 1, figures.bytes + payload.len() as u64);
        Ok(())
    }

    /// A sample is in the journal.
    fn appended(&mut self, who: Who, order: Order, offset: u64) {
        if self.kept {
            self.syncing.appended(&who, offset);
        }
        self.shelf.has(&who, order);
        self.letters.took(&who);
        self.has.insert(who, order);
    }

    /// Tells what is missing of an incarnation before a sample, if anything.
    fn tell_hole(
        &self,
        name: &ProducerName,
        has: Option<Order>,
        order: Order,
        tell: &mut dyn FnMut(Notice),
    ) {
        let from = has.filter(|has| has.0 == order.0).map_or(0, |has| has.1);
        let missing = order.1.saturating_sub(from.saturating_add(1));
        if missing > 0 {
            let told = format!("{name}: {missing} samples before number {}", order.1);
            tell(Notice::Hole { topic: self.state.name.clone(), told });
        }
    }

    /// Appends a sample; gives its offset. None where there is no writer for it in the journal.
    fn forward(&mut self, who: &Who, sample: &SampleRef<'_>) -> Option<Result<u64, PublishError>> {
        let incarnation = sample.producer.incarnation;
        if let Some((of, error)) = self.unopened.take()
            && of == (who.clone(), incarnation)
        {
            return Some(Err(error));
        }
        let (_, forwarder) = self.forwarders.get_mut(who).filter(|(of, _)| *of == incarnation)?;
        let appended = forwarder.forward(sample, sample.headers).and_then(Publishing::wait);
        Some(appended.map(|receipt| receipt.offset.unwrap_or_default()))
    }

    /// Has a writer opened in the journal: what it claims goes to the disk.
    fn open_forwarder(&mut self, who: Who, producer: &Producer) -> Unkept {
        self.forwarders.remove(&who);
        let (journal, producer) = (self.journal.clone(), producer.clone());
        self.prepare(move || {
            let opened = journal.forwarder(&producer, who.0);
            let opened = opened.map(|opened| opened.guarantee(Guarantee::Stored));
            Prepared::Forwarder((who, producer.incarnation), opened)
        })
    }

    /// Sees what is on the disk by now, and asks it for the rest.
    pub(super) fn settle(&mut self, tell: &mut dyn FnMut(Notice)) {
        if !self.kept {
            return;
        }
        let silence = self.syncing.silence().unwrap_or_default();
        let (ready, is_silent) = (self.stage == Stage::Ready, silence >= DISK);
        if ready && silence >= self.state.connection.lease && self.is_another_ready() {
            // Who waits for the disk is not waited for by others.
            self.stood_still();
        } else if ready {
            self.tell_silence(is_silent, tell);
        } else if is_silent {
            return self.trouble(UNSYNCED, tell);
        }
        let how = (self.hurry || self.stage != Stage::Ready, std::mem::take(&mut self.looked));
        match self.syncing.turn(&self.has, &mut self.forwarders, how) {
            Ok(durable) => {
                for (who, order) in durable {
                    self.letters.synced(who.clone());
                    self.durable.insert(who, order);
                }
            }
            Err(cause) => self.trouble(&cause, tell),
        }
    }

    /// Whether another service is ready, so that this one need not be waited for.
    fn is_another_ready(&self) -> bool {
        let tables = &self.state.connection.tables;
        tables.look(|known| {
            let mut keepers = known.full_keepers(&self.state.name);
            keepers.any(|(session, keeps)| keeps.ready && *session != tables.session)
        })
    }

    /// The only service goes on though the disk is silent, for those who wait for the journal
    /// alone; who waits for the disk is told.
    fn tell_silence(&mut self, is_silent: bool, tell: &mut dyn FnMut(Notice)) {
        if is_silent == self.keeps.trouble.is_some() {
            return;
        }
        let topic = self.state.name.clone();
        self.keeps.trouble = is_silent.then(|| {
            let silence = DISK.as_secs();
            format!(
                "the durability service has {topic} in its journal, and not on the disk, which \
                 has not answered for {silence} s"
            )
        });
        self.say();
        tell(match self.keeps.trouble.clone() {
            Some(cause) => Notice::Trouble { topic, cause },
            None => Notice::Recovered { topic },
        });
    }

    /// It cannot be kept: nothing more of it is acknowledged until it is tried again, from the
    /// first step on. What is in the journal stays there.
    fn trouble(&mut self, cause: &str, tell: &mut dyn FnMut(Notice)) {
        let topic = self.state.name.clone();
        let cause = format!("the durability service cannot keep {topic}: {cause}");
        self.syncing.forget();
        self.forwarders.clear();
        (self.preparing, self.unopened) = (None, None);
        self.fall_behind(Instant::now(), Instant::now());
        self.stage = Stage::Trouble { until: Instant::now() + AGAIN };
        // Where it fails, it is tried again with the next look.
        let _ = self.reader.discard();
        if self.keeps.trouble.as_ref() != Some(&cause) {
            self.keeps.trouble = Some(cause.clone());
            self.say();
            tell(Notice::Trouble { topic, cause });
        }
    }

    /// Adds what writers are to be told, each with the writer's session.
    pub(super) fn letters(&mut self, told: &mut Vec<(String, Stored)>) {
        if !self.letters.is_due() {
            return;
        }
        // Where all wait for the disk one letter is enough.
        let appended = self.state.qos.guarantee < Guarantee::Durable;
        let marks = Marks { appended: appended.then_some(&self.has), durable: &self.durable };
        let (letters, tables) = (&mut self.letters, &self.state.connection.tables);
        tables.look(|state| letters.write(&self.state.name, &marks, state, told));
    }

    /// A writer was not told.
    pub(super) fn untold(&mut self, session: &str, letter: &Stored) {
        self.letters.untold(session, letter);
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
fn follows(has: Option<Order>, next: &Queued, order: Order) -> bool {
    next.previous > 0 && has == Some((order.0, next.previous))
}

/// Reads how far each producer's samples go, and how many there are.
fn read_stands(topic: &Topic) -> Result<(HashMap<Who, Order>, u64), DurabilityError> {
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless).as_written();
    let mut samples = topic.subscribe(options)?;
    let (mut has, mut count): (HashMap<Who, Order>, u64) = (HashMap::new(), 0);
    loop {
        let read = samples.visit(BATCH, &mut |event: EventRef<'_>| {
            if let EventRef::Sample(sample) = event {
                let who = (sample.partition, sample.producer.name.clone());
                let order = (sample.producer.incarnation, sample.sequence);
                let newest = has.entry(who).or_default();
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
            (None, (7, 1), false, Fate::Taken),
            (None, (7, 3), false, Fate::Early),
            (None, (7, 3), true, Fate::Taken),
            (Some((7, 2)), (7, 2), true, Fate::Known),
            (Some((7, 2)), (7, 3), false, Fate::Taken),
            (Some((7, 2)), (7, 4), false, Fate::Early),
            (Some((7, 2)), (7, 4), true, Fate::Taken),
            (Some((7, 2)), (6, 9), true, Fate::Known),
            (Some((7, 2)), (8, 1), false, Fate::Taken),
            (Some((7, 2)), (8, 2), false, Fate::Early),
        ] {
            assert_eq!(fate(has, order, whole), expected, "{has:?} {order:?} {whole}");
        }
    }
}
