//! Who writes: incarnations, exclusive topics, and whether writers live, by the log of
//! `_helio.producers`.
//!
//! Constraints. An exclusive topic has one writer at a time among those that ask, and a writer that
//! asserts that it lives learns whether another has taken over: after its word nobody can take over
//! from it, and who did before it is seen. Publishes look at a flag, and at a clock (see `hold`).
//!
//! Format. Keys are words of text with spaces between.
//!
//! | key | value |
//! | --- | --- |
//! | `writer`, topic, partition, producer, attempt | [`Word`], as JSON |
//! | `session`, session | `true`; taken back when it is closed |
//!
//! Operation. A writer begins with a word without an incarnation: its incarnation is that record's
//! offset and one, so later ones are larger, whatever their names. Samples of another bus keep the
//! incarnations that their producers have there; what a producer is given here afterwards lies
//! above. A word that claims an exclusive
//! topic says how far its writer had read when it found the topic free; if others have said
//! something of that topic in between it has lost, in everybody's eyes. A second word confirms it:
//! only then others are fenced, so that a claim which was lost and never taken back fences nobody
//! after compaction. A connection with writers is heard of every second, by the brokers' records of
//! its words; after [`SILENCE`] its process counts as dead.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helio_bus::transport::{Alive, WriterInfo};
use helio_bus::{Producer, ProducerName, Qos, Tai, TopicName, TransportError};
use helio_core::qos::{Liveliness, Ownership};
use serde::{Deserialize, Serialize};

use crate::SCHEME;
use crate::connection::Connection;
use crate::error::outage;
use crate::hold::{Hold, Moment, Said};
use crate::monitor::{Heard, utc_millis};
use crate::options::PATIENCE;
use crate::tables::{self, Entry, Fold, PRODUCERS};
use crate::topic::TopicState;

/// A connection that was silent for so long is taken for dead, with its process.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// How long a question about writers waits for the brokers; then nobody knows.
pub(crate) const GLANCE: Duration = Duration::from_millis(800);
/// The shortest lease of an exclusive topic: its owner looks every second who owns it, and is sure
/// for three quarters of the lease, less what the look takes.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);
/// How long those wait who do so every second.
pub(crate) const PROMPT: Duration = Duration::from_secs(1);
/// How long nobody asks again after that.
const DOUBT: Duration = Duration::from_secs(2);
/// How long a claim that was not confirmed may still be: who claims waits for the brokers so often.
const CLAIMING: Duration = Duration::from_secs(3 * PATIENCE.as_secs());
/// How often a claim is tried anew because others have said something meanwhile.
const TRIES: usize = 64;
/// How many former writers of a place stay known.
const FORMER: usize = 8;
/// When what a connection has said is taken back by others.
const FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 3600);
/// How much of it at once.
const SWEEP: usize = 1_000;
/// The attempt of those who share a topic: a producer's next word takes the place of its last.
const SHARED: &str = "-";
/// The attempt of those who forward a producer's samples of another bus to a shared topic.
const FORWARDED: &str = "=";

/// What a writer says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Word {
    /// None in a claim: there it is the offset and one.
    incarnation: Option<u64>,
    exclusive: bool,
    /// Of a claim of an exclusive topic: the offset behind the newest word of that place that its
    /// writer knew.
    after: u64,
    open: bool,
    /// When it last published or asserted, nanoseconds of TAI.
    seen: i64,
    session: String,
    /// Of a forwarder: the newest incarnation that its producer has on the other bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elsewhere: Option<u64>,
    /// The producer's newest incarnation before this, where the topic has samples of another bus:
    /// this one's is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    above: Option<u64>,
}

/// A writer's place among the claims.
pub(crate) struct Claim {
    topic: TopicName,
    partition: u32,
    producer: Producer,
    /// Its place among all claims; without other buses that is the incarnation.
    order: u64,
    /// Of a forwarder: the newest incarnation on the other bus; else 0.
    elsewhere: AtomicU64,
    above: Option<u64>,
    attempt: String,
    /// Of an exclusive topic: until when it is this writer's for sure.
    hold: Option<Hold>,
    /// The incarnation that has taken over, as far as known; 0 is none.
    fenced: AtomicU64,
}

impl Claim {
    pub(crate) fn producer(&self) -> &Producer {
        &self.producer
    }

    /// Of a writer of an exclusive topic: what it knows of its ownership.
    pub(crate) fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Whether its samples come from another bus.
    pub(crate) fn forwards(&self) -> bool {
        self.elsewhere().is_some()
    }

    /// Whether it has to look who has taken over.
    pub(crate) fn looks(&self) -> bool {
        self.hold.is_some() || self.forwards()
    }

    fn elsewhere(&self) -> Option<u64> {
        Some(self.elsewhere.load(Ordering::Acquire)).filter(|elsewhere| *elsewhere != 0)
    }

    /// Of a forwarder: its producer was restarted on the other bus. This waits for the brokers.
    pub(crate) fn raise(
        &self,
        connection: &Connection,
        incarnation: u64,
    ) -> Result<(), TransportError> {
        if incarnation <= self.elsewhere.load(Ordering::Acquire) {
            return self.check();
        }
        self.elsewhere.store(incarnation, Ordering::Release);
        self.assert(connection)
    }

    /// Whether another has taken over, as far as known.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        match self.fenced.load(Ordering::Acquire) {
            0 => Ok(()),
            newer => Err(TransportError::Fenced { producer: self.producer.clone(), newer }),
        }
    }

    fn key(&self) -> String {
        key(&self.topic, self.partition, &self.producer.name, &self.attempt)
    }

    fn word(&self, connection: &Connection, open: bool) -> Word {
        Word {
            incarnation: Some(self.order),
            exclusive: self.hold.is_some(),
            after: 0,
            open,
            seen: connection.clock.now().nanos(),
            session: connection.session.clone(),
            elsewhere: self.elsewhere(),
            above: self.above,
        }
    }

    /// The record that says that the writer lives.
    pub(crate) fn record(
        &self,
        connection: &Connection,
    ) -> Result<(String, Vec<u8>), TransportError> {
        Ok((self.key(), tables::json(&self.word(connection, true))?))
    }

    /// Says that the writer lives, and looks whether another has taken over.
    pub(crate) fn assert(&self, connection: &Connection) -> Result<(), TransportError> {
        self.check()?;
        let since = Moment::now();
        let (key, value) = self.record(connection)?;
        tables::append(connection, PRODUCERS, &key, Some(&value))?;
        self.writes(since);
        let said = self.said();
        connection.tables.claims.read(connection, PATIENCE, |_| ())?;
        self.look(connection, said)
    }

    /// That the writer lives has arrived, and was said then.
    pub(crate) fn writes(&self, since: Moment) {
        self.hold.iter().for_each(|hold| hold.writes(since));
    }

    /// What has arrived of what an owner says.
    pub(crate) fn said(&self) -> Option<Said> {
        self.hold.as_ref().map(Hold::said)
    }

    /// Looks whether another has taken over, by what was read after this had been said.
    pub(crate) fn look(
        &self,
        connection: &Connection,
        said: Option<Said>,
    ) -> Result<(), TransportError> {
        let now = connection.clock.now();
        let (newest, own, is_claimed) = connection.tables.claims.look(|claims| {
            let place = claims.places.get(&(self.topic.clone(), self.partition));
            let name = &self.producer.name;
            place.map_or((0, 0, false), |place| {
                (place.newest(), place.incarnations(name).0, place.is_claimed(self.order, now))
            })
        });
        if self.hold.is_some() && newest > self.order {
            self.fenced.store(newest, Ordering::Release);
        }
        if self.elsewhere().is_some_and(|elsewhere| own > elsewhere) {
            self.fenced.store(own, Ordering::Release);
        }
        let found = self.check();
        // Where another claims it at the moment, the next look says how that has ended.
        if let (Some(hold), Some(said), false) = (&self.hold, said, is_claimed && found.is_ok())
            && hold.looked(said, &found)
        {
            connection.health.suspect();
        }
        found
    }

    /// Says that the writer was closed. Others wait for that of an exclusive topic.
    pub(crate) fn release(&self, connection: &Connection) -> Result<(), TransportError> {
        let value = tables::json(&self.word(connection, false))?;
        if let Some(hold) = &self.hold {
            hold.leave();
            return tables::append(connection, PRODUCERS, &self.key(), Some(&value)).map(drop);
        }
        tables::tell(connection, PRODUCERS, &self.key(), Some(&value))
    }
}

fn key(topic: &TopicName, partition: u32, name: &ProducerName, attempt: &str) -> String {
    format!("writer {topic} {partition} {name} {attempt}")
}

/// Everything that was said, folded.
#[derive(Default)]
pub(crate) struct Claims {
    sessions: HashMap<String, Session>,
    places: HashMap<(TopicName, u32), Place>,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    /// Milliseconds of UTC.
    heard: i64,
    open: bool,
}

/// A partition of a topic.
#[derive(Default)]
struct Place {
    /// The offset behind the newest word.
    end: u64,
    writers: BTreeMap<(ProducerName, String), Held>,
}

/// A claim that holds, or held.
struct Held {
    incarnation: u64,
    confirmed: bool,
    word: Word,
}

impl Held {
    /// The incarnation that samples carry.
    fn shown(&self) -> u64 {
        let above = self.word.above.map_or(0, |above| above + 1);
        self.word.elsewhere.unwrap_or(self.incarnation.max(above))
    }
}

impl Fold for Claims {
    const NAME: &'static str = PRODUCERS;

    fn take(&mut self, entry: Entry<'_>) {
        match (entry.key, entry.value) {
            (["session", session], Some(value)) => {
                self.heard(session, entry.millis).open &= value == b"true";
            }
            (["session", session], None) => _ = self.sessions.remove(*session),
            (["writer", topic, partition, name, attempt], value) => {
                let (Ok(topic), Ok(partition)) = (TopicName::new(topic), partition.parse()) else {
                    return;
                };
                let Ok(name) = ProducerName::new(name) else { return };
                let writer = (name, (*attempt).to_owned());
                let place = self.places.entry((topic, partition)).or_default();
                match value.map(serde_json::from_slice::<Word>) {
                    None => _ = place.writers.remove(&writer),
                    Some(Err(_)) => {}
                    Some(Ok(word)) => {
                        let session = word.session.clone();
                        place.take(entry.offset, writer, word);
                        self.heard(&session, entry.millis);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Claims {
    fn heard(&mut self, session: &str, millis: i64) -> &mut Session {
        let fresh = Session { heard: millis, open: true };
        let session = self.sessions.entry(session.to_owned()).or_insert(fresh);
        session.heard = session.heard.max(millis);
        session
    }

    /// The keys of what nobody has spoken for since then, as far as nothing depends on it.
    fn forgotten(&self, long_ago: i64) -> Vec<String> {
        let gone = |session: &str| self.sessions.get(session).is_none_or(|s| s.heard < long_ago);
        let sessions = self.sessions.keys().filter(|session| gone(session));
        let sessions = sessions.map(|session| format!("session {session}"));
        let words = self.places.iter().flat_map(|((topic, partition), place)| {
            let shared = place.writers.iter().filter(|(_, held)| {
                let seen = Tai::from_nanos(held.word.seen).unix_nanos() / 1_000_000;
                let counts = held.word.elsewhere.or(held.word.above).is_some();
                !held.word.exclusive && !counts && seen < long_ago && gone(&held.word.session)
            });
            shared.map(move |((name, attempt), _)| key(topic, *partition, name, attempt))
        });
        sessions.chain(words).take(SWEEP).collect()
    }

    fn alive(&self, place: &Place, held: &Held, Judged { lease, now, heard }: Judged) -> bool {
        let word = &held.word;
        let session = self.sessions.get(&word.session);
        let silence = i64::try_from(SILENCE.as_millis()).unwrap_or(i64::MAX);
        let silent = |s: &Session| heard.until - s.heard.max(heard.since);
        let runs = session.is_some_and(|s| s.open && silent(s) <= silence);
        // Since the brokers came back, where it could not be heard before.
        let back = Tai::from_unix_nanos(heard.since.saturating_mul(1_000_000));
        let since = if heard.since == 0 { word.seen } else { word.seen.max(back.nanos()) };
        let said = u128::try_from(now.nanos().saturating_sub(since)).unwrap_or(0);
        word.open
            && runs
            && lease.is_none_or(|lease| said <= lease.as_nanos())
            && (!word.exclusive || held.incarnation >= place.newest())
    }
}

impl Place {
    fn take(&mut self, offset: u64, writer: (ProducerName, String), word: Word) {
        let known = self.writers.get_mut(&writer);
        match (known, word.incarnation) {
            (Some(held), Some(incarnation)) if incarnation >= held.incarnation => {
                (held.incarnation, held.confirmed, held.word) = (incarnation, true, word);
            }
            // A replaced one of the same name says good-bye.
            (Some(_), Some(_)) => return,
            (_, None) if word.exclusive && self.end > word.after => return,
            (_, incarnation) => {
                let confirmed = incarnation.is_some() || !word.exclusive;
                let incarnation = incarnation.unwrap_or(offset + 1);
                self.writers.insert(writer, Held { incarnation, confirmed, word });
            }
        }
        self.end = offset + 1;
    }

    /// A producer's newest incarnation that was given here, and its newest of another bus.
    fn incarnations(&self, name: &ProducerName) -> (u64, u64) {
        let of = self.writers.iter().filter(|((other, _), _)| other == name);
        of.fold((0, 0), |(own, elsewhere), (_, held)| match held.word.elsewhere {
            None => (own.max(held.shown()), elsewhere),
            Some(newest) => (own, elsewhere.max(newest)),
        })
    }

    /// Whether another has claimed it after this one, and may still confirm that.
    fn is_claimed(&self, order: u64, now: Tai) -> bool {
        let claims = |held: &Held| {
            let age = u128::try_from(now.nanos().saturating_sub(held.word.seen)).unwrap_or(0);
            let may = held.word.open && age <= CLAIMING.as_nanos();
            !held.confirmed && held.word.exclusive && held.incarnation > order && may
        };
        self.writers.values().any(claims)
    }

    /// The newest incarnation that fences others; 0 is none.
    fn newest(&self) -> u64 {
        let fencing = |held: &&Held| held.confirmed && held.word.exclusive;
        self.writers.values().filter(fencing).map(|held| held.incarnation).max().unwrap_or(0)
    }
}

fn lease(qos: &Qos) -> Option<Duration> {
    match qos.liveliness {
        Liveliness::Lease(lease) => Some(lease),
        Liveliness::Automatic => None,
    }
}

/// Refuses an exclusive topic whose owner could seldom be sure that it is.
pub(crate) fn possible(name: &TopicName, qos: &Qos) -> Result<(), TransportError> {
    let short = lease(qos).filter(|lease| *lease < SHORTEST_LEASE);
    match short.filter(|_| qos.ownership == Ownership::Exclusive) {
        None => Ok(()),
        Some(lease) => Err(TransportError::Unsupported {
            transport: SCHEME.to_owned(),
            what: format!("keep {name} for one owner by a lease of {lease:?}"),
            remedy: format!("the lease of an exclusive topic is {SHORTEST_LEASE:?} at least"),
        }),
    }
}

/// By what it is judged whether a writer lives.
#[derive(Clone, Copy)]
struct Judged {
    lease: Option<Duration>,
    now: Tai,
    heard: Heard,
}

impl Judged {
    fn now(topic: &TopicState) -> Self {
        let connection = &topic.connection;
        let heard = connection.health.heard();
        Self { lease: lease(&topic.qos), now: connection.clock.now(), heard }
    }
}

/// What a claimant finds at its place.
enum Found {
    /// A live writer.
    Holder(String),
    /// Nobody, up to this offset.
    Free(u64),
}

/// A producer's incarnations so far, as [`Place::incarnations`] has them. Where no sample of
/// another bus is in the topic nobody has to know them.
fn incarnations(
    topic: &TopicState,
    partition: u32,
    name: &ProducerName,
) -> Result<(u64, u64), TransportError> {
    let connection = &topic.connection;
    if !connection.tables.is_forwarded(&topic.name) {
        return Ok((0, 0));
    }
    connection.tables.claims.read(connection, PATIENCE, |claims| {
        let place = claims.places.get(&(topic.name.clone(), partition));
        place.map_or((0, 0), |place| place.incarnations(name))
    })
}

/// What a claim has to say of its incarnation.
#[derive(Clone, Copy)]
struct Terms {
    elsewhere: Option<u64>,
    /// The newest before, of both kinds.
    newest: u64,
}

/// Opens a writer: allocates its incarnation, unless it has one on the bus that its samples come
/// from, and takes the topic where it is exclusive.
pub(crate) fn claim(
    topic: &TopicState,
    partition: u32,
    name: &ProducerName,
    elsewhere: Option<u64>,
) -> Result<Arc<Claim>, TransportError> {
    let connection = &topic.connection;
    let exclusive = topic.qos.ownership == Ownership::Exclusive;
    if elsewhere.is_some() {
        connection.tables.forwarded(connection, &topic.name)?;
    }
    let (own, forwarded) = incarnations(topic, partition, name)?;
    if let Some(incarnation) = elsewhere.filter(|elsewhere| own >= *elsewhere) {
        let producer = Producer { name: name.clone(), incarnation };
        return Err(TransportError::Fenced { producer, newer: own });
    }
    let elsewhere = elsewhere.map(|elsewhere| elsewhere.max(forwarded));
    let terms = Terms { elsewhere, newest: own.max(forwarded) };
    let shared = if elsewhere.is_some() { FORWARDED } else { SHARED };
    for _ in 0..TRIES {
        let attempt = if exclusive { tables::attempt() } else { shared.to_owned() };
        let key = key(&topic.name, partition, name, &attempt);
        let after = if exclusive { free(topic, partition)? } else { 0 };
        let said = say(topic, (partition, name), (attempt, after), terms);
        match said {
            Ok(Some(claim)) => {
                let claim = Arc::new(claim);
                if connection.add_claim(&claim) {
                    sweep(connection)?;
                }
                return Ok(claim);
            }
            Ok(None) => _ = tables::append(connection, PRODUCERS, &key, None)?,
            Err(error) => {
                // It may arrive still, and keep everybody out. What takes it back goes behind it.
                if exclusive {
                    let _ = tables::tell(connection, PRODUCERS, &key, None);
                }
                return Err(error);
            }
        }
    }
    Err(outage(format!("others claim the topic {} all the time", topic.name)))
}

/// Says one claim; none where others were first.
fn say(
    topic: &TopicState,
    (partition, name): (u32, &ProducerName),
    (attempt, after): (String, u64),
    Terms { elsewhere, newest }: Terms,
) -> Result<Option<Claim>, TransportError> {
    let connection = &topic.connection;
    let exclusive = topic.qos.ownership == Ownership::Exclusive;
    let above = Some(newest).filter(|newest| elsewhere.is_none() && *newest != 0);
    let word = Word {
        incarnation: None,
        exclusive,
        after,
        open: true,
        seen: connection.clock.now().nanos(),
        session: connection.session.clone(),
        elsewhere,
        above,
    };
    let key = key(&topic.name, partition, name, &attempt);
    let offset = tables::append(connection, PRODUCERS, &key, Some(&tables::json(&word)?))?;
    let order = offset + 1;
    let incarnation = elsewhere.unwrap_or(order.max(newest + 1));
    let claim = Claim {
        topic: topic.name.clone(),
        partition,
        producer: Producer { name: name.clone(), incarnation },
        order,
        elsewhere: AtomicU64::new(elsewhere.unwrap_or(0)),
        above,
        attempt,
        hold: exclusive.then(|| Hold::new(lease(&topic.qos))),
        fenced: AtomicU64::new(0),
    };
    if exclusive {
        if !holds(connection, &claim)? {
            return Ok(None);
        }
        claim.assert(connection)?;
        forget_former(connection, &claim)?;
    }
    Ok(Some(claim))
}

/// Makes sure that an exclusive topic has no live writer; gives up to where that was read.
fn free(topic: &TopicState, partition: u32) -> Result<u64, TransportError> {
    let now = Judged::now(topic);
    let found = topic.connection.tables.claims.read(&topic.connection, PATIENCE, |claims| {
        let Some(place) = claims.places.get(&(topic.name.clone(), partition)) else {
            return Found::Free(0);
        };
        let live = place.writers.iter().find(|(_, held)| claims.alive(place, held, now));
        live.map_or(Found::Free(place.end), |((name, _), held)| {
            Found::Holder(format!("{name} (incarnation {})", held.incarnation))
        })
    })?;
    match found {
        Found::Free(end) => Ok(end),
        Found::Holder(holder) => Err(TransportError::Owned { topic: topic.name.clone(), holder }),
    }
}

/// Whether a claim was the first.
fn holds(connection: &Connection, claim: &Claim) -> Result<bool, TransportError> {
    let writer = (claim.producer.name.clone(), claim.attempt.clone());
    connection.tables.claims.read(connection, PATIENCE, |claims| {
        let place = claims.places.get(&(claim.topic.clone(), claim.partition));
        place.is_some_and(|place| place.writers.contains_key(&writer))
    })
}

/// Takes back what long gone writers of an exclusive place have said.
fn forget_former(connection: &Connection, claim: &Claim) -> Result<(), TransportError> {
    let former = connection.tables.claims.look(|claims| {
        let place = claims.places.get(&(claim.topic.clone(), claim.partition))?;
        let mut all: Vec<_> =
            place.writers.iter().map(|(writer, held)| (held.incarnation, writer)).collect();
        all.sort_unstable();
        let keys = all
            .into_iter()
            .rev()
            .skip(FORMER)
            .map(|(_, (name, attempt))| key(&claim.topic, claim.partition, name, attempt));
        Some(keys.collect::<Vec<_>>())
    });
    former.into_iter().flatten().try_for_each(|key| tables::tell(connection, PRODUCERS, &key, None))
}

/// Who writes or wrote a topic, as the brokers know it now. Where they do not answer at once that
/// is an outage: what was read before says neither who has come nor who is still there.
pub(crate) fn writers(topic: &TopicState) -> Result<Vec<WriterInfo>, TransportError> {
    let now = Judged::now(topic);
    let list = |claims: &Claims| {
        let of_topic = claims.places.iter().filter(|((name, _), _)| *name == topic.name);
        let each = of_topic.flat_map(|((_, partition), place)| {
            place.writers.iter().map(move |((name, _), held)| (*partition, place, name, held))
        });
        let info = |(partition, place, name, held): (u32, &Place, &ProducerName, &Held)| {
            let alive = claims.alive(place, held, now);
            WriterInfo {
                producer: Producer { name: name.clone(), incarnation: held.shown() },
                partition,
                alive: Some(if alive { Alive::Yes } else { Alive::No }),
                seen: Some(Tai::from_nanos(held.word.seen)),
            }
        };
        each.map(info).collect::<Vec<_>>()
    };
    let (claims, connection) = (&topic.connection.tables.claims, &topic.connection);
    if connection.health.is_lost() || connection.health.is_doubted() {
        let cause = format!("no broker has answered in time who writes {}", topic.name);
        return Err(outage(cause));
    }
    claims.glance(connection, GLANCE, list).map_err(|error| match error {
        TransportError::Closed => error,
        error => {
            connection.health.doubt(DOUBT);
            outage(format!("who writes {} is not known: {error}", topic.name))
        }
    })
}

/// Has them look whether others have taken over, not for longer than that, also where the
/// connection is being closed. All look at what is read once: the brokers are not waited for by
/// each.
pub(crate) fn look(connection: &Connection, claims: &[Arc<Claim>], patience: Duration) {
    let said: Vec<_> = claims.iter().map(|claim| claim.said()).collect();
    if connection.tables.claims.catch_up(connection, patience).is_ok() {
        claims.iter().zip(said).for_each(|(claim, said)| _ = claim.look(connection, said));
    }
}

/// Says that a connection with writers lives, and of those of exclusive topics that want it that
/// they write; waits until that has arrived, not for longer than a glance.
pub(crate) fn speak(connection: &Connection, claims: &[Arc<Claim>]) -> Result<(), TransportError> {
    let since = Moment::now();
    let wants_word = |claim: &&Arc<Claim>| claim.hold().is_some_and(Hold::wants_word);
    let writing: Vec<_> = claims.iter().filter(wants_word).collect();
    let words = writing.iter().map(|claim| claim.record(connection));
    let words = words.map(|word| word.map(|(key, value)| (key, Some(value))));
    let mut records = words.collect::<Result<Vec<_>, _>>()?;
    records.push((session(connection), Some(b"true".to_vec())));
    tables::say(connection, PRODUCERS, (&records, PROMPT))?;
    claims.iter().filter_map(|claim| claim.hold()).for_each(|hold| hold.runs(since));
    writing.iter().for_each(|claim| claim.writes(since));
    Ok(())
}

fn session(connection: &Connection) -> String {
    format!("session {}", connection.session)
}

/// Says that a connection with writers lives.
pub(crate) fn beat(connection: &Connection) -> Result<(), TransportError> {
    tables::tell(connection, PRODUCERS, &session(connection), Some(b"true"))
}

/// Says that a connection with writers was closed, and they with it: who is not known does not
/// live.
pub(crate) fn end(connection: &Connection, patience: Duration) -> Result<(), TransportError> {
    tables::say(connection, PRODUCERS, (&[(session(connection), None)], patience)).map(drop)
}

/// Takes back what was said by connections that are long gone, so that the table does not grow
/// with every program that ever ran.
fn sweep(connection: &Connection) -> Result<(), TransportError> {
    let long_ago = utc_millis() - i64::try_from(FORGOTTEN.as_millis()).unwrap_or(i64::MAX);
    let keys = connection.tables.claims.look(|claims| claims.forgotten(long_ago));
    keys.iter().try_for_each(|key| tables::tell(connection, PRODUCERS, key, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(claims: &mut Claims, offset: u64, (name, attempt): (&str, &str), word: Option<Word>) {
        let value = word.map(|word| serde_json::to_vec(&word).unwrap());
        let key = ["writer", "t", "0", name, attempt];
        claims.take(Entry { offset, millis: utc_millis(), key: &key, value: value.as_deref() });
    }

    fn word(incarnation: Option<u64>, after: u64) -> Option<Word> {
        let (exclusive, open, seen) = (true, true, 0);
        let (session, elsewhere, above) = ("s".to_owned(), None, None);
        Some(Word { incarnation, exclusive, after, open, seen, session, elsewhere, above })
    }

    fn place(claims: &Claims) -> &Place {
        &claims.places[&(TopicName::new("t").unwrap(), 0)]
    }

    fn live(claims: &Claims) -> Vec<u64> {
        let place = place(claims);
        let heard = Heard { since: 0, until: utc_millis() };
        let now = Judged { lease: None, now: Tai::from_nanos(0), heard };
        let live = place.writers.values().filter(|held| claims.alive(place, held, now));
        live.map(|held| held.incarnation).collect()
    }

    #[test]
    fn of_two_claims_at_once_the_first_holds() {
        let mut claims = Claims::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        say(&mut claims, 11, ("b", "2"), word(None, 0));
        assert_eq!(live(&claims), [11]);
        say(&mut claims, 12, ("b", "2"), None);
        say(&mut claims, 13, ("a", "1"), word(Some(11), 0));
        assert_eq!((live(&claims), place(&claims).newest()), (vec![11], 11));
    }

    #[test]
    fn who_said_a_word_meanwhile_is_not_taken_over_from() {
        let mut claims = Claims::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        say(&mut claims, 11, ("a", "1"), word(Some(11), 0));
        say(&mut claims, 12, ("b", "2"), word(None, 11));
        assert_eq!(live(&claims), [11]);
        say(&mut claims, 13, ("b", "3"), word(None, 12));
        assert_eq!(live(&claims), [11, 14], "until it is confirmed it fences nobody");
        say(&mut claims, 14, ("b", "3"), word(Some(14), 0));
        assert_eq!(live(&claims), [14]);
        say(&mut claims, 15, ("a", "1"), word(Some(11), 0));
        assert_eq!(live(&claims), [14], "a zombie's word changes nothing");
    }

    #[test]
    fn a_claim_that_may_be_confirmed_is_waited_for() {
        let mut claims = Claims::default();
        let now = |seconds: u64| Tai::from_nanos(i64::try_from(seconds).unwrap() * 1_000_000_000);
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        say(&mut claims, 11, ("a", "1"), word(Some(11), 0));
        assert!(!place(&claims).is_claimed(11, now(1)));
        say(&mut claims, 12, ("b", "2"), word(None, 12));
        assert!(place(&claims).is_claimed(11, now(1)));
        assert!(!place(&claims).is_claimed(11, now(31)), "who said it is gone");
        say(&mut claims, 13, ("b", "2"), word(Some(13), 0));
        assert!(!place(&claims).is_claimed(11, now(1)), "it has taken over");
    }

    #[test]
    fn compaction_changes_no_holder() {
        // What is left of: a's claim 10 and words up to 20, b's lost claim 15.
        let mut claims = Claims::default();
        say(&mut claims, 15, ("b", "2"), word(None, 12));
        say(&mut claims, 20, ("a", "1"), word(Some(11), 0));
        assert_eq!(place(&claims).newest(), 11);
    }

    #[test]
    fn what_is_given_here_lies_above_what_came_from_elsewhere() {
        let mut claims = Claims::default();
        let name = ProducerName::new("a").unwrap();
        let shared = |incarnation, elsewhere, above| {
            let word = word(incarnation, 0).unwrap();
            Some(Word { exclusive: false, elsewhere, above, ..word })
        };
        say(&mut claims, 10, ("a", "="), shared(None, Some(5_000), None));
        assert_eq!(place(&claims).incarnations(&name), (0, 5_000));
        say(&mut claims, 20, ("a", "-"), shared(None, None, Some(5_000)));
        assert_eq!(place(&claims).incarnations(&name), (5_001, 5_000));
        say(&mut claims, 30, ("a", "-"), shared(None, None, Some(5_001)));
        assert_eq!(place(&claims).incarnations(&name), (5_002, 5_000));
        say(&mut claims, 40, ("a", "="), shared(Some(11), Some(6_000), None));
        assert_eq!(place(&claims).incarnations(&name), (5_002, 6_000));
        assert!(claims.forgotten(i64::MAX).iter().all(|key| !key.starts_with("writer")));
    }

    #[test]
    fn a_session_that_was_closed_has_no_live_writers() {
        let mut claims = Claims::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        let key = ["session", "s"];
        let silent = utc_millis() - 1_000_000;
        claims.take(Entry { offset: 11, millis: silent, key: &key, value: Some(b"true") });
        assert_eq!(live(&claims), [11]);
        claims.take(Entry { offset: 12, millis: utc_millis(), key: &key, value: None });
        assert!(live(&claims).is_empty());
    }

    #[test]
    fn what_nobody_speaks_for_is_forgotten() {
        let mut claims = Claims::default();
        let shared = |session: &str| Word {
            exclusive: false,
            session: session.to_owned(),
            ..word(None, 0).unwrap()
        };
        say(&mut claims, 10, ("a", SHARED), Some(shared("gone")));
        say(&mut claims, 11, ("b", SHARED), Some(shared("alive")));
        let key = ["session", "gone"];
        claims.take(Entry { offset: 12, millis: 5, key: &key, value: None });
        let key = ["session", "silent"];
        claims.take(Entry { offset: 13, millis: 5, key: &key, value: Some(b"true") });
        let forgotten = claims.forgotten(utc_millis() - 1_000);
        assert_eq!(forgotten, ["session silent", "writer t 0 a -"]);
    }

    #[test]
    fn nobody_dies_of_an_outage_of_the_brokers() {
        let mut claims = Claims::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        let alive = |until, since| {
            let (place, heard) = (place(&claims), Heard { since, until });
            let now = Judged { lease: None, now: Tai::from_nanos(0), heard };
            place.writers.values().any(|held| claims.alive(place, held, now))
        };
        let later = utc_millis() + 60_000;
        assert!(!alive(later, 0));
        assert!(alive(later, later - 1_000), "it could not be heard before");
        assert!(!alive(later, later - 20_000));
    }

    #[test]
    fn no_lease_runs_out_in_an_outage_of_the_brokers() {
        let mut claims = Claims::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        let until = utc_millis();
        let now = Tai::from_unix_nanos(until * 1_000_000);
        let alive = |since| {
            let (place, heard) = (place(&claims), Heard { since, until });
            let now = Judged { lease: Some(Duration::from_secs(5)), now, heard };
            place.writers.values().any(|held| claims.alive(place, held, now))
        };
        assert!(!alive(0), "it has said nothing since 1970");
        assert!(alive(until - 4_000), "its word is yet to come");
        assert!(!alive(until - 6_000));
    }
}
