//! One topic that is kept: out of the domain, into the journal.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::transport::{Armed, Reader};
use helio_bus::{
    Bell, Bus, EventRef, Evolution, Forwarder, Guarantee, Lagging, Origin, PublishError,
    Publishing, Qos, SampleRef, SchemaId, SchemaText, Start, Subscribe, Topic, TopicError,
    TopicSpec, TransportError,
};
use helio_core::qos::{Durability, Liveliness, Overload, Ownership, Reliability};
use helio_core::{Producer, ProducerName};

use super::serve::Shelf;
use super::{DurabilityError, Figures, Notice, Order, Who, stands};
use crate::envelope::Header;
use crate::inbox::Queued;
use crate::post::Stored;
use crate::reader::DdsReader;
use crate::tables::{Keeps, Stand, Word};
use crate::topic::TopicState;

/// The most samples that are taken of a topic before it is waited until they are durable.
const BATCH: usize = 1_024;
/// The same of one of which last values are kept alone.
const PASSING: usize = 128;
/// The most producers of a topic that have a writer in the journal at a time.
const MAX_FORWARDERS: usize = 1_024;
/// How long the disk is given to make a batch durable.
const DISK: Duration = Duration::from_secs(60);
/// How long after trouble it is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long another service is given to say that it keeps a topic.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a writer is given to send again what is missing.
const MISSING: Duration = Duration::from_millis(500);

/// One kept topic.
pub(super) struct Keeping {
    state: Arc<TopicState>,
    token: u64,
    /// Whether its samples are, or its last values alone.
    kept: bool,
    armed: bool,
    reader: DdsReader,
    journal: Topic,
    /// What is handed out of it.
    shelf: Arc<Shelf>,
    forwarders: HashMap<Who, Forwarder>,
    schemas: HashSet<SchemaId>,
    /// What is in the journal.
    has: HashMap<Who, Order>,
    /// What of it is durable.
    durable: HashMap<Who, Order>,
    under_way: HashMap<u32, Publishing>,
    /// Whose durable samples their writers were not told of.
    unsaid: HashSet<Who>,
    keeps: Keeps,
    /// Other services whose samples it has.
    synced: HashSet<String>,
    /// The one whose samples are on their way.
    fetching: Option<String>,
    /// Until then services may be there that have not said what they keep.
    unheard_until: Instant,
    /// Nothing is taken from writers before what others have: it could not be put before it.
    begun: bool,
    /// What came with a hole before it that nobody sends: first it is looked for with others.
    behind_hole: Option<(Who, Order)>,
    /// When those were asked for that are missing.
    asked: Option<Instant>,
    again: Option<Instant>,
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

impl Keeping {
    /// Opens it; gives how many samples of it there are.
    pub(super) fn open(
        journal: &Bus,
        state: Arc<TopicState>,
        (token, kept): (u64, bool),
    ) -> Result<(Self, u64), DurabilityError> {
        let spec = TopicSpec::of(state.name.clone()).qos(journal_qos(&state.qos, kept));
        let topic = journal.topic(spec)?;
        let info = journal.topic_info(&state.name)?;
        let mut schemas: HashSet<_> = info.into_iter().flat_map(|info| info.schemas).collect();
        schemas.insert(SchemaId::BYTES);
        let (has, samples) = read_stands(&topic)?;
        let fetching = others(&state).into_iter().next();
        let reader = DdsReader::keeping(&state, stands(&has), fetching.clone())?;
        let keeps = Keeps { ready: false, turn: 0, trouble: None };
        let keeping = Self {
            state,
            token,
            kept,
            armed: false,
            reader,
            shelf: Shelf::new(topic.clone(), kept, &has),
            journal: topic,
            forwarders: HashMap::new(),
            schemas,
            durable: has.clone(),
            // Writers that were told by a service before do not know this one.
            unsaid: has.keys().cloned().collect(),
            has,
            under_way: HashMap::new(),
            keeps,
            synced: HashSet::new(),
            fetching,
            unheard_until: Instant::now() + PATIENCE,
            begun: !kept,
            behind_hole: None,
            asked: None,
            again: None,
        };
        keeping.say_keeps()?;
        Ok((keeping, samples))
    }

    fn say_keeps(&self) -> Result<(), TransportError> {
        let (topic, keeps) = (self.state.name.clone(), self.keeps.clone());
        self.state.connection.tables.say(Word::Keeps { topic, keeps })
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

    /// Has the bell rung when there is something to take; gives how long it may be waited for.
    pub(super) fn arm(&mut self, bell: &Arc<dyn Bell>) -> Result<Duration, DurabilityError> {
        if self.again.is_some() {
            return Ok(AGAIN);
        }
        if !self.begun && !self.reader.is_behind() {
            return Ok(super::LOOK);
        }
        Ok(match self.reader.arm(bell, self.token)? {
            Armed::Ready => Duration::ZERO,
            Armed::Waiting => {
                self.armed = true;
                Duration::MAX
            }
            Armed::Recheck(after) => after.min(Duration::from_millis(10)),
        })
    }

    /// Looks after what changes seldom: schemas, other services, an end of trouble.
    pub(super) fn look(
        &mut self,
        journal: &Bus,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<(), DurabilityError> {
        self.shelf.looked();
        let state = Arc::clone(&self.state);
        let tables = &state.connection.tables;
        let known = tables.look(|tables| tables.schemas(&state.name));
        for (id, _) in known {
            if !self.schemas.contains(&id) {
                self.carry_schema(journal, id)?;
            }
        }
        if self.again.is_some_and(|again| Instant::now() >= again) {
            self.again = None;
            // As at a start: others have had acknowledged meanwhile what is not here.
            self.synced.clear();
            self.keeps.trouble = None;
            tell(Notice::Recovered { topic: state.name.clone() });
        }
        if self.reader.is_behind() {
            return Ok(());
        }
        let others = others(&state);
        self.synced.extend(self.fetching.take());
        self.synced.retain(|other| others.contains(other));
        if let Some(other) = others.into_iter().find(|other| !self.synced.contains(other)) {
            return self.fetch(other);
        }
        if !self.keeps.ready && self.again.is_none() && !self.may_hear_of_others() {
            (self.keeps.ready, self.begun) = (true, true);
            self.keeps.turn += 1;
            self.say_keeps()?;
            if self.kept {
                tell(Notice::Ready { topic: state.name.clone() });
            }
        }
        Ok(())
    }

    /// Whether there may be services with samples that have not said yet that they keep it.
    fn may_hear_of_others(&self) -> bool {
        let connection = &self.state.connection;
        if !self.kept || self.begun && self.synced.is_empty() {
            return false;
        }
        let now = Instant::now();
        let silent = || connection.tables.look(|state| state.has_silent_keepers(&self.state.name));
        now < connection.services_until() || now < self.unheard_until && silent()
    }

    /// Has another service hand out what is not here; what comes meanwhile is behind it.
    fn fetch(&mut self, other: String) -> Result<(), DurabilityError> {
        self.reader.catch_up(other.clone(), stands(&self.has))?;
        self.armed = false;
        self.fetching = Some(other);
        Ok(())
    }

    /// Makes a schema known to the journal's topic, so that whoever opens the folder reads it.
    fn carry_schema(&mut self, journal: &Bus, id: SchemaId) -> Result<(), DurabilityError> {
        let tables = &self.state.connection.tables;
        let Some(text) = tables.look(|tables| tables.text(id).cloned()) else { return Ok(()) };
        let schema = SchemaText { id, text: text.into() };
        let spec = TopicSpec::of(self.state.name.clone());
        let spec = spec.schema(schema.clone()).evolution(Evolution::None);
        match journal.topic(spec)?.declare() {
            Err(TopicError::Schema { .. }) => journal.put_schema(&schema)?,
            other => other?,
        }
        self.schemas.insert(id);
        Ok(())
    }

    /// Puts what has come into the journal. True where there may be more.
    pub(super) fn take(
        &mut self,
        journal: &Bus,
        figures: &mut Figures,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<bool, DurabilityError> {
        if self.again.is_some() {
            return Ok(false);
        }
        if !self.begun && !self.reader.is_behind() {
            return Ok(false);
        }
        for _ in 0..if self.kept { BATCH } else { PASSING } {
            let Some(next) = self.reader.next()? else {
                return Ok(self.kept && !self.under_way.is_empty());
            };
            if next.is_foreign() {
                continue;
            }
            let mut avro = Vec::new();
            let (header, payload) = match next.read(&mut avro) {
                Ok(read) => read,
                Err(told) => {
                    // It is not acknowledged: nothing else may stand in its place.
                    self.trouble(&PublishError::Encode(told), tell)?;
                    return Ok(false);
                }
            };
            if let Some(other) = self.may_fill(&next, &header) {
                self.keeps.ready = false;
                self.say_keeps()?;
                self.synced.clear();
                self.reader.put_back(next);
                self.fetch(other)?;
                return Ok(true);
            }
            if !self.schemas.contains(&header.schema) {
                self.carry_schema(journal, header.schema)?;
            }
            if let Err(error) = self.add(&next, &header, payload, (figures, tell)) {
                self.trouble(&error, tell)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Another service, where one may have what is missing before a sample though its writer has
    /// not; none where they were asked already.
    fn may_fill(&mut self, next: &Queued, header: &Header<'_>) -> Option<String> {
        if !self.kept || !next.base || next.is_past() || self.reader.is_behind() {
            return None;
        }
        let (name, order) = (ProducerName::new(header.producer).ok()?, header.order());
        let who = (header.partition, name);
        if fate(self.has.get(&who).copied(), order, false) != Fate::Early {
            return None;
        }
        let behind = Some((who, order));
        if self.behind_hole == behind {
            return None;
        }
        let other = others(&self.state).into_iter().next()?;
        self.behind_hole = behind;
        Some(other)
    }

    fn add(
        &mut self,
        next: &Queued,
        header: &Header<'_>,
        payload: &[u8],
        (figures, tell): (&mut Figures, &mut dyn FnMut(Notice)),
    ) -> Result<(), PublishError> {
        let Ok(name) = ProducerName::new(header.producer) else { return Ok(()) };
        let (who, order) = ((header.partition, name.clone()), header.order());
        let has = self.has.get(&who).copied();
        // What its writer has left out nobody will send.
        let follows = next.previous > 0 && has == Some((order.0, next.previous));
        match fate(has, order, next.base || follows || next.is_past() || !self.kept) {
            Fate::Known => {
                if next.origin == Origin::History && !next.is_past() {
                    // Its writer has sent it again: it does not know that it is here.
                    self.unsaid.insert(who);
                }
                return Ok(());
            }
            Fate::Early => {
                if self.asked.is_none_or(|asked| asked.elapsed() >= MISSING) {
                    self.asked = Some(Instant::now());
                    self.keeps.turn += 1;
                    self.say_keeps()?;
                }
                return Ok(());
            }
            Fate::Taken => {}
        }
        if let Some((_, before)) =
            has.filter(|has| self.kept && has.0 == order.0 && has.1 + 1 < order.1)
        {
            let told =
                format!("{name}: {} samples before number {}", order.1 - before - 1, order.1);
            tell(Notice::Hole { topic: self.state.name.clone(), told });
        }
        let producer = Producer { name, incarnation: header.incarnation };
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
            headers: header.headers,
            payload,
            origin: Origin::Log,
        };
        match self.forward(&who, &sample) {
            Ok(()) => {
                self.shelf.has(&who, order);
                self.has.insert(who.clone(), order);
                self.unsaid.insert(who);
                figures.stored += 1;
                figures.bytes += payload.len() as u64;
                Ok(())
            }
            // A newer incarnation was here before.
            Err(PublishError::Transport(TransportError::Fenced { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn forward(&mut self, who: &Who, sample: &SampleRef<'_>) -> Result<(), PublishError> {
        if !self.forwarders.contains_key(who) {
            if self.forwarders.len() >= MAX_FORWARDERS {
                self.forwarders.clear();
            }
            let opened = self.journal.forwarder(sample.producer, who.0);
            let opened = opened.map_err(|error| match error {
                TopicError::Transport(error) => PublishError::from(error),
                other => PublishError::NotOpened(other.to_string()),
            })?;
            self.forwarders.insert(who.clone(), opened);
        }
        let Some(forwarder) = self.forwarders.get_mut(who) else { return Ok(()) };
        let publishing = match forwarder.forward(sample, sample.headers) {
            Err(PublishError::Full { .. }) => {
                // What is under way makes room when it is durable.
                self.under_way.drain().try_for_each(|(_, p)| p.wait_timeout(DISK).map(drop))?;
                forwarder.forward(sample, sample.headers)?
            }
            other => other?,
        };
        // Later ones of a partition are durable after it.
        self.under_way.insert(who.0, publishing);
        Ok(())
    }

    /// Waits until what is in the journal is durable.
    pub(super) fn settle(&mut self, tell: &mut dyn FnMut(Notice)) -> Result<(), DurabilityError> {
        if self.under_way.is_empty() {
            return Ok(());
        }
        let mut under_way = std::mem::take(&mut self.under_way).into_values();
        if let Some(error) = under_way.find_map(|publishing| publishing.wait_timeout(DISK).err()) {
            return self.trouble(&error, tell);
        }
        for who in &self.unsaid {
            if let Some(order) = self.has.get(who) {
                self.durable.insert(who.clone(), *order);
            }
        }
        Ok(())
    }

    /// It cannot be kept: nothing of it is acknowledged until it is tried again.
    fn trouble(
        &mut self,
        error: &PublishError,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<(), DurabilityError> {
        let (topic, name) = (self.state.name.clone(), &self.state.name);
        let cause = format!("the durability service cannot keep {name}: {error}");
        self.under_way.clear();
        self.forwarders.clear();
        self.has.clone_from(&self.durable);
        self.again = Some(Instant::now() + AGAIN);
        self.armed = false;
        (self.keeps.ready, self.keeps.trouble) = (false, Some(cause.clone()));
        self.say_keeps()?;
        tell(Notice::Trouble { topic, cause });
        Ok(())
    }

    /// Adds what writers are to be told, each with the writer's session.
    pub(super) fn unsaid(&mut self, told: &mut Vec<(String, Stored)>) {
        if !self.kept || self.unsaid.is_empty() || !self.under_way.is_empty() {
            return;
        }
        let (topic, tables) = (&self.state.name, &self.state.connection.tables);
        let (unsaid, durable) = (&mut self.unsaid, &self.durable);
        tables.look(|state| {
            unsaid.retain(|who| {
                let Some((incarnation, sequence)) = durable.get(who).copied() else { return false };
                let (partition, producer) = who.clone();
                let mut own = state.writers(topic).filter(|(session, writer)| {
                    (writer.partition, &writer.producer) == (partition, &producer)
                        && writer.incarnation == incarnation
                        && writer.open
                        && state.live.contains(*session)
                });
                // A writer whose word has not been heard yet will be; one that has gone will not.
                let Some((session, _)) = own.next() else { return false };
                let stand = Stand { partition, producer, incarnation, sequence, ways: [0; 2] };
                told.push((session.to_owned(), Stored { topic: topic.clone(), stand }));
                false
            });
        });
    }

    /// A writer was not told.
    pub(super) fn say_again(&mut self, stand: &Stand) {
        self.unsaid.insert((stand.partition, stand.producer.clone()));
    }
}

/// The other services that keep a topic: what one has is in its journal, ready or not.
fn others(state: &TopicState) -> Vec<String> {
    let tables = &state.connection.tables;
    tables.look(|known| {
        let others = known.keepers(&state.name);
        let others = others.filter(|(session, _)| **session != tables.session);
        others.map(|(session, _)| session.clone()).collect()
    })
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
