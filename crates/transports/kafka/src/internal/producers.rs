//! The writers: incarnations, exclusive topics and liveliness, from the log of `_helio.producers`.
//!
//! Constraints. An exclusive topic has at most one writer at a time. A writer that asserts its
//! liveliness learns whether another has taken over: nobody can take over after its record, and a
//! takeover before it is found. Publishes check a flag and a clock (see `ownership_lease`).
//!
//! Format. Keys are words separated by spaces.
//!
//! | key | value |
//! | --- | --- |
//! | `writer`, topic, partition, producer, attempt | [`WriterRecord`], as JSON |
//! | `session`, session | `true`; deleted when the connection is closed |
//!
//! Operation. A writer's first record has no incarnation: its incarnation is that record's offset
//! plus one, so later ones are larger, whatever their names. Samples of another bus keep their
//! producers' incarnations; a producer's later incarnations here are larger than those.
//!
//! The first record of an exclusive topic's writer is a claim. It contains the offset up to which
//! its writer had read when it found the topic free. The claim is lost, for all readers, if the
//! topic has another record in between. A second record confirms the claim. Only then it fences
//! others, so that a lost claim that was never deleted fences nobody after compaction.
//!
//! A connection with writers sends a heartbeat every second. After [`SESSION_TIMEOUT`] without one,
//! its process is declared dead.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helio_bus::transport::{Alive, WriterInfo};
use helio_bus::{Producer, ProducerName, Qos, Tai, TopicName, TransportError};
use helio_core::qos::{Liveliness, Ownership};
use serde::{Deserialize, Serialize};

use crate::SCHEME;
use crate::client::error::outage;
use crate::client::health::{ReachableWindow, utc_millis};
use crate::client::options::BROKER_TIMEOUT;
use crate::internal::internal_topics::{self, Fold, LogRecord, PRODUCERS};
use crate::internal::ownership_lease::{AckedHeartbeats, DualClock, OwnershipLease};
use crate::topic::connection::Connection;
use crate::topic::transport::TopicState;

/// A connection without a heartbeat for so long is declared dead, with its process.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a query of the writers waits for the brokers; then they are unknown.
pub(crate) const WRITERS_QUERY_TIMEOUT: Duration = Duration::from_millis(800);
/// The shortest lease of an exclusive topic. Its owner checks the ownership every second, and is
/// sure of it for three quarters of the lease less the duration of the check.
const MIN_EXCLUSIVE_LEASE: Duration = Duration::from_secs(2);
/// The time limit of each of the heartbeats, which are sent every second.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after a timeout no query is sent.
const WRITERS_QUERY_BACKOFF: Duration = Duration::from_secs(2);
/// How long an unconfirmed claim may still be confirmed: claiming waits for the brokers three
/// times.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(3 * BROKER_TIMEOUT.as_secs());
/// How many times a claim is repeated because of concurrent records.
const MAX_CLAIM_ATTEMPTS: usize = 64;
/// How many former writers of a partition are kept.
const MAX_FORMER_WRITERS: usize = 8;
/// The age at which records of a closed or dead connection are deleted by others.
const SILENT_RECORD_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// How many records are deleted at a time.
const MAX_SWEPT_RECORDS: usize = 1_000;
/// The attempt of writers of a shared topic: a producer's next record replaces its last.
const SHARED_ATTEMPT: &str = "-";
/// The attempt of forwarders of a producer's samples of another bus to a shared topic.
const FORWARDED_ATTEMPT: &str = "=";

/// A writer's record.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct WriterRecord {
    /// `None` in a claim: there it is the record's offset plus one.
    incarnation: Option<u64>,
    exclusive: bool,
    /// In a claim of an exclusive topic: the end of the partition's records that its writer knew.
    after: u64,
    open: bool,
    /// When the writer last published or asserted its liveliness, in nanoseconds of TAI.
    seen: i64,
    session: String,
    /// Of a forwarder: its producer's newest incarnation on the other bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elsewhere: Option<u64>,
    /// The producer's newest earlier incarnation, if the topic has samples of another bus: the
    /// writer's own is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    above: Option<u64>,
}

/// A writer's claim.
pub(crate) struct WriterClaim {
    topic: TopicName,
    partition: u32,
    producer: Producer,
    /// Its order among all claims; without other buses this is the incarnation.
    order: u64,
    /// Of a forwarder: the newest incarnation on the other bus; otherwise 0.
    elsewhere: AtomicU64,
    above: Option<u64>,
    attempt: String,
    /// Of an exclusive topic: until when the ownership is certain.
    hold: Option<OwnershipLease>,
    /// The incarnation that has taken over, as far as known; 0 is none.
    fenced: AtomicU64,
}

impl WriterClaim {
    pub(crate) fn producer(&self) -> &Producer {
        &self.producer
    }

    /// The ownership of an exclusive topic's writer.
    pub(crate) fn hold(&self) -> Option<&OwnershipLease> {
        self.hold.as_ref()
    }

    /// Whether its samples come from another bus.
    pub(crate) fn forwards(&self) -> bool {
        self.elsewhere().is_some()
    }

    /// Whether it must check for a takeover.
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

    /// Whether another writer has taken over, as far as known.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        match self.fenced.load(Ordering::Acquire) {
            0 => Ok(()),
            newer => Err(TransportError::Fenced { producer: self.producer.clone(), newer }),
        }
    }

    fn key(&self) -> String {
        key(&self.topic, self.partition, &self.producer.name, &self.attempt)
    }

    fn word(&self, connection: &Connection, open: bool) -> WriterRecord {
        WriterRecord {
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

    /// The writer's heartbeat record.
    pub(crate) fn record(
        &self,
        connection: &Connection,
    ) -> Result<(String, Vec<u8>), TransportError> {
        Ok((self.key(), internal_topics::json(&self.word(connection, true))?))
    }

    /// Sends a heartbeat, and checks for a takeover.
    pub(crate) fn assert(&self, connection: &Connection) -> Result<(), TransportError> {
        self.check()?;
        let since = DualClock::now();
        let (key, value) = self.record(connection)?;
        internal_topics::append(connection, PRODUCERS, &key, Some(&value))?;
        self.writes(since);
        let said = self.said();
        connection.tables.claims.read(connection, BROKER_TIMEOUT, |_| ())?;
        self.look(connection, said)
    }

    /// A heartbeat that was sent then was acknowledged.
    pub(crate) fn writes(&self, since: DualClock) {
        self.hold.iter().for_each(|hold| hold.writes(since));
    }

    /// The owner's acknowledged heartbeats.
    pub(crate) fn said(&self) -> Option<AckedHeartbeats> {
        self.hold.as_ref().map(OwnershipLease::said)
    }

    /// Checks for a takeover, in records that were read after these heartbeats were acknowledged.
    pub(crate) fn look(
        &self,
        connection: &Connection,
        said: Option<AckedHeartbeats>,
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
        // If another writer is claiming it now, the next check finds the result.
        if let (Some(hold), Some(said), false) = (&self.hold, said, is_claimed && found.is_ok())
            && hold.looked(said, &found)
        {
            connection.health.suspect();
        }
        found
    }

    /// Records that the writer was closed. Claims of an exclusive topic wait for that.
    pub(crate) fn release(&self, connection: &Connection) -> Result<(), TransportError> {
        let value = internal_topics::json(&self.word(connection, false))?;
        if let Some(hold) = &self.hold {
            hold.leave();
            return internal_topics::append(connection, PRODUCERS, &self.key(), Some(&value))
                .map(drop);
        }
        internal_topics::tell(connection, PRODUCERS, &self.key(), Some(&value))
    }
}

fn key(topic: &TopicName, partition: u32, name: &ProducerName, attempt: &str) -> String {
    format!("writer {topic} {partition} {name} {attempt}")
}

/// The state that results from all records.
#[derive(Default)]
pub(crate) struct WriterTable {
    sessions: HashMap<String, Session>,
    places: HashMap<(TopicName, u32), PartitionWriters>,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    /// Milliseconds of UTC.
    heard: i64,
    open: bool,
}

/// A partition of a topic.
#[derive(Default)]
struct PartitionWriters {
    /// The end of its records.
    end: u64,
    writers: BTreeMap<(ProducerName, String), WriterEntry>,
}

/// A valid claim, current or former.
struct WriterEntry {
    incarnation: u64,
    confirmed: bool,
    word: WriterRecord,
}

impl WriterEntry {
    /// The incarnation of its samples.
    fn shown(&self) -> u64 {
        let above = self.word.above.map_or(0, |above| above + 1);
        self.word.elsewhere.unwrap_or(self.incarnation.max(above))
    }
}

impl Fold for WriterTable {
    const NAME: &'static str = PRODUCERS;

    fn take(&mut self, entry: LogRecord<'_>) {
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
                match value.map(serde_json::from_slice::<WriterRecord>) {
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

impl WriterTable {
    fn heard(&mut self, session: &str, millis: i64) -> &mut Session {
        let fresh = Session { heard: millis, open: true };
        let session = self.sessions.entry(session.to_owned()).or_insert(fresh);
        session.heard = session.heard.max(millis);
        session
    }

    /// The keys of records without a heartbeat since then, unless something depends on them.
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
        sessions.chain(words).take(MAX_SWEPT_RECORDS).collect()
    }

    fn alive(
        &self,
        place: &PartitionWriters,
        held: &WriterEntry,
        LivenessCriteria { lease, now, heard }: LivenessCriteria,
    ) -> bool {
        let word = &held.word;
        let session = self.sessions.get(&word.session);
        let silence = i64::try_from(SESSION_TIMEOUT.as_millis()).unwrap_or(i64::MAX);
        let silent = |s: &Session| heard.until - s.heard.max(heard.since);
        let runs = session.is_some_and(|s| s.open && silent(s) <= silence);
        // Since the end of the outage, if there was one.
        let back = Tai::from_unix_nanos(heard.since.saturating_mul(1_000_000));
        let since = if heard.since == 0 { word.seen } else { word.seen.max(back.nanos()) };
        let said = u128::try_from(now.nanos().saturating_sub(since)).unwrap_or(0);
        word.open
            && runs
            && lease.is_none_or(|lease| said <= lease.as_nanos())
            && (!word.exclusive || held.incarnation >= place.newest())
    }
}

impl PartitionWriters {
    fn take(&mut self, offset: u64, writer: (ProducerName, String), word: WriterRecord) {
        let known = self.writers.get_mut(&writer);
        match (known, word.incarnation) {
            (Some(held), Some(incarnation)) if incarnation >= held.incarnation => {
                (held.incarnation, held.confirmed, held.word) = (incarnation, true, word);
            }
            // The last record of a replaced writer of the same name.
            (Some(_), Some(_)) => return,
            (_, None) if word.exclusive && self.end > word.after => return,
            (_, incarnation) => {
                let confirmed = incarnation.is_some() || !word.exclusive;
                let incarnation = incarnation.unwrap_or(offset + 1);
                self.writers.insert(writer, WriterEntry { incarnation, confirmed, word });
            }
        }
        self.end = offset + 1;
    }

    /// A producer's newest incarnation of this bus, and its newest of another bus.
    fn incarnations(&self, name: &ProducerName) -> (u64, u64) {
        let of = self.writers.iter().filter(|((other, _), _)| other == name);
        of.fold((0, 0), |(own, elsewhere), (_, held)| match held.word.elsewhere {
            None => (own.max(held.shown()), elsewhere),
            Some(newest) => (own, elsewhere.max(newest)),
        })
    }

    /// Whether a later claim may still be confirmed.
    fn is_claimed(&self, order: u64, now: Tai) -> bool {
        let claims = |held: &WriterEntry| {
            let age = u128::try_from(now.nanos().saturating_sub(held.word.seen)).unwrap_or(0);
            let may = held.word.open && age <= CLAIM_TIMEOUT.as_nanos();
            !held.confirmed && held.word.exclusive && held.incarnation > order && may
        };
        self.writers.values().any(claims)
    }

    /// The newest incarnation that fences others; 0 is none.
    fn newest(&self) -> u64 {
        let fencing = |held: &&WriterEntry| held.confirmed && held.word.exclusive;
        self.writers.values().filter(fencing).map(|held| held.incarnation).max().unwrap_or(0)
    }
}

fn lease(qos: &Qos) -> Option<Duration> {
    match qos.liveliness {
        Liveliness::Lease(lease) => Some(lease),
        Liveliness::Automatic => None,
    }
}

/// Refuses an exclusive topic whose lease is too short to confirm the ownership in time.
pub(crate) fn possible(name: &TopicName, qos: &Qos) -> Result<(), TransportError> {
    let short = lease(qos).filter(|lease| *lease < MIN_EXCLUSIVE_LEASE);
    match short.filter(|_| qos.ownership == Ownership::Exclusive) {
        None => Ok(()),
        Some(lease) => Err(TransportError::Unsupported {
            transport: SCHEME.to_owned(),
            what: format!("guarantee one owner of {name} by a lease of {lease:?}"),
            remedy: format!("the lease of an exclusive topic is at least {MIN_EXCLUSIVE_LEASE:?}"),
        }),
    }
}

/// The criteria of liveliness.
#[derive(Clone, Copy)]
struct LivenessCriteria {
    lease: Option<Duration>,
    now: Tai,
    heard: ReachableWindow,
}

impl LivenessCriteria {
    fn now(topic: &TopicState) -> Self {
        let connection = &topic.connection;
        let heard = connection.health.heard();
        Self { lease: lease(&topic.qos), now: connection.clock.now(), heard }
    }
}

/// The state of a partition that is to be claimed.
enum Occupancy {
    /// A live writer.
    Holder(String),
    /// Free, as of this offset.
    Free(u64),
}

/// A producer's incarnations, as [`PartitionWriters::incarnations`] returns them. They matter only
/// if the topic has samples of another bus.
fn incarnations(
    topic: &TopicState,
    partition: u32,
    name: &ProducerName,
) -> Result<(u64, u64), TransportError> {
    let connection = &topic.connection;
    if !connection.tables.is_forwarded(&topic.name) {
        return Ok((0, 0));
    }
    connection.tables.claims.read(connection, BROKER_TIMEOUT, |claims| {
        let place = claims.places.get(&(topic.name.clone(), partition));
        place.map_or((0, 0), |place| place.incarnations(name))
    })
}

/// The incarnations that a claim depends on.
#[derive(Clone, Copy)]
struct IncarnationTerms {
    elsewhere: Option<u64>,
    /// The newest earlier one, of both kinds.
    newest: u64,
}

/// Opens a writer: allocates its incarnation, unless its samples come with one from another bus,
/// and takes an exclusive topic.
pub(crate) fn claim(
    topic: &TopicState,
    partition: u32,
    name: &ProducerName,
    elsewhere: Option<u64>,
) -> Result<Arc<WriterClaim>, TransportError> {
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
    let terms = IncarnationTerms { elsewhere, newest: own.max(forwarded) };
    let shared = if elsewhere.is_some() { FORWARDED_ATTEMPT } else { SHARED_ATTEMPT };
    for _ in 0..MAX_CLAIM_ATTEMPTS {
        let attempt = if exclusive { internal_topics::attempt() } else { shared.to_owned() };
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
            Ok(None) => _ = internal_topics::append(connection, PRODUCERS, &key, None)?,
            Err(error) => {
                // The claim may still arrive, and block everybody. The tombstone follows it.
                if exclusive {
                    let _ = internal_topics::tell(connection, PRODUCERS, &key, None);
                }
                return Err(error);
            }
        }
    }
    Err(outage(format!("others claim the topic {} at the same time", topic.name)))
}

/// Sends one claim; `None` if another record came first.
fn say(
    topic: &TopicState,
    (partition, name): (u32, &ProducerName),
    (attempt, after): (String, u64),
    IncarnationTerms { elsewhere, newest }: IncarnationTerms,
) -> Result<Option<WriterClaim>, TransportError> {
    let connection = &topic.connection;
    let exclusive = topic.qos.ownership == Ownership::Exclusive;
    let above = Some(newest).filter(|newest| elsewhere.is_none() && *newest != 0);
    let word = WriterRecord {
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
    let offset =
        internal_topics::append(connection, PRODUCERS, &key, Some(&internal_topics::json(&word)?))?;
    let order = offset + 1;
    let incarnation = elsewhere.unwrap_or(order.max(newest + 1));
    let claim = WriterClaim {
        topic: topic.name.clone(),
        partition,
        producer: Producer { name: name.clone(), incarnation },
        order,
        elsewhere: AtomicU64::new(elsewhere.unwrap_or(0)),
        above,
        attempt,
        hold: exclusive.then(|| OwnershipLease::new(lease(&topic.qos))),
        fenced: AtomicU64::new(0),
    };
    if exclusive {
        if !holds(connection, &claim)? {
            return Ok(None);
        }
        claim.assert(connection)?;
        delete_former_writers(connection, &claim)?;
    }
    Ok(Some(claim))
}

/// Checks that an exclusive topic has no live writer; returns the offset up to which that was read.
fn free(topic: &TopicState, partition: u32) -> Result<u64, TransportError> {
    let now = LivenessCriteria::now(topic);
    let found =
        topic.connection.tables.claims.read(&topic.connection, BROKER_TIMEOUT, |claims| {
            let Some(place) = claims.places.get(&(topic.name.clone(), partition)) else {
                return Occupancy::Free(0);
            };
            let live = place.writers.iter().find(|(_, held)| claims.alive(place, held, now));
            live.map_or(Occupancy::Free(place.end), |((name, _), held)| {
                Occupancy::Holder(format!("{name} (incarnation {})", held.incarnation))
            })
        })?;
    match found {
        Occupancy::Free(end) => Ok(end),
        Occupancy::Holder(holder) => {
            Err(TransportError::Owned { topic: topic.name.clone(), holder })
        }
    }
}

/// Whether a claim is valid.
fn holds(connection: &Connection, claim: &WriterClaim) -> Result<bool, TransportError> {
    let writer = (claim.producer.name.clone(), claim.attempt.clone());
    connection.tables.claims.read(connection, BROKER_TIMEOUT, |claims| {
        let place = claims.places.get(&(claim.topic.clone(), claim.partition));
        place.is_some_and(|place| place.writers.contains_key(&writer))
    })
}

/// Deletes records of an exclusive partition's former writers.
fn delete_former_writers(
    connection: &Connection,
    claim: &WriterClaim,
) -> Result<(), TransportError> {
    let former = connection.tables.claims.look(|claims| {
        let place = claims.places.get(&(claim.topic.clone(), claim.partition))?;
        let mut all: Vec<_> =
            place.writers.iter().map(|(writer, held)| (held.incarnation, writer)).collect();
        all.sort_unstable();
        let keys = all
            .into_iter()
            .rev()
            .skip(MAX_FORMER_WRITERS)
            .map(|(_, (name, attempt))| key(&claim.topic, claim.partition, name, attempt));
        Some(keys.collect::<Vec<_>>())
    });
    former
        .into_iter()
        .flatten()
        .try_for_each(|key| internal_topics::tell(connection, PRODUCERS, &key, None))
}

/// The current and former writers of a topic, as the brokers know them now. A late answer is an
/// outage: older records prove neither arrivals nor departures.
pub(crate) fn writers(topic: &TopicState) -> Result<Vec<WriterInfo>, TransportError> {
    let now = LivenessCriteria::now(topic);
    let list = |claims: &WriterTable| {
        let of_topic = claims.places.iter().filter(|((name, _), _)| *name == topic.name);
        let each = of_topic.flat_map(|((_, partition), place)| {
            place.writers.iter().map(move |((name, _), held)| (*partition, place, name, held))
        });
        let info = |(partition, place, name, held): (
            u32,
            &PartitionWriters,
            &ProducerName,
            &WriterEntry,
        )| {
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
    if connection.health.is_lost() || connection.health.is_unresponsive() {
        let cause =
            format!("no broker has answered in time: the writers of {} are unknown", topic.name);
        return Err(outage(cause));
    }
    claims.glance(connection, WRITERS_QUERY_TIMEOUT, list).map_err(|error| match error {
        TransportError::Closed => error,
        error => {
            connection.health.doubt(WRITERS_QUERY_BACKOFF);
            outage(format!("the writers of {} are unknown: {error}", topic.name))
        }
    })
}

/// Checks for takeovers within a time limit, also while the connection is being closed. One read of
/// the log serves all writers.
pub(crate) fn check_fencing(
    connection: &Connection,
    claims: &[Arc<WriterClaim>],
    patience: Duration,
) {
    let said: Vec<_> = claims.iter().map(|claim| claim.said()).collect();
    if connection.tables.claims.catch_up(connection, patience).is_ok() {
        claims.iter().zip(said).for_each(|(claim, said)| _ = claim.look(connection, said));
    }
}

/// Sends heartbeats of the connection, and of owners that need one. Waits for their
/// acknowledgement, at most [`HEARTBEAT_TIMEOUT`].
pub(crate) fn send_heartbeats(
    connection: &Connection,
    claims: &[Arc<WriterClaim>],
) -> Result<(), TransportError> {
    let since = DualClock::now();
    let wants_heartbeat =
        |claim: &&Arc<WriterClaim>| claim.hold().is_some_and(OwnershipLease::wants_heartbeat);
    let writing: Vec<_> = claims.iter().filter(wants_heartbeat).collect();
    let words = writing.iter().map(|claim| claim.record(connection));
    let words = words.map(|word| word.map(|(key, value)| (key, Some(value))));
    let mut records = words.collect::<Result<Vec<_>, _>>()?;
    records.push((session(connection), Some(b"true".to_vec())));
    internal_topics::say(connection, PRODUCERS, (&records, HEARTBEAT_TIMEOUT))?;
    claims.iter().filter_map(|claim| claim.hold()).for_each(|hold| hold.runs(since));
    writing.iter().for_each(|claim| claim.writes(since));
    Ok(())
}

fn session(connection: &Connection) -> String {
    format!("session {}", connection.session)
}

/// Sends a heartbeat of the connection without waiting.
pub(crate) fn send_session_heartbeat(connection: &Connection) -> Result<(), TransportError> {
    internal_topics::tell(connection, PRODUCERS, &session(connection), Some(b"true"))
}

/// Records that a connection was closed, and its writers with it: an unknown session has no live
/// writers.
pub(crate) fn end_session(
    connection: &Connection,
    patience: Duration,
) -> Result<(), TransportError> {
    internal_topics::say(connection, PRODUCERS, (&[(session(connection), None)], patience))
        .map(drop)
}

/// Deletes records of connections that ended long ago, so that the table does not grow with every
/// program that ever ran.
fn sweep(connection: &Connection) -> Result<(), TransportError> {
    let long_ago =
        utc_millis() - i64::try_from(SILENT_RECORD_RETENTION.as_millis()).unwrap_or(i64::MAX);
    let keys = connection.tables.claims.look(|claims| claims.forgotten(long_ago));
    keys.iter().try_for_each(|key| internal_topics::tell(connection, PRODUCERS, key, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(
        claims: &mut WriterTable,
        offset: u64,
        (name, attempt): (&str, &str),
        word: Option<WriterRecord>,
    ) {
        let value = word.map(|word| serde_json::to_vec(&word).unwrap());
        let key = ["writer", "t", "0", name, attempt];
        claims.take(LogRecord { offset, millis: utc_millis(), key: &key, value: value.as_deref() });
    }

    fn word(incarnation: Option<u64>, after: u64) -> Option<WriterRecord> {
        let (exclusive, open, seen) = (true, true, 0);
        let (session, elsewhere, above) = ("s".to_owned(), None, None);
        Some(WriterRecord { incarnation, exclusive, after, open, seen, session, elsewhere, above })
    }

    fn place(claims: &WriterTable) -> &PartitionWriters {
        &claims.places[&(TopicName::new("t").unwrap(), 0)]
    }

    fn live(claims: &WriterTable) -> Vec<u64> {
        let place = place(claims);
        let heard = ReachableWindow { since: 0, until: utc_millis() };
        let now = LivenessCriteria { lease: None, now: Tai::from_nanos(0), heard };
        let live = place.writers.values().filter(|held| claims.alive(place, held, now));
        live.map(|held| held.incarnation).collect()
    }

    /// As they are in `_helio.producers`: an older record has neither of the last two members.
    const GOLDEN: [&str; 2] = [
        concat!(
            r#"{"incarnation":11,"exclusive":true,"after":7,"open":true,"seen":-5,"session":"s","#,
            r#""elsewhere":3,"above":2}"#
        ),
        r#"{"incarnation":null,"exclusive":false,"after":0,"open":false,"seen":0,"session":"s"}"#,
    ];

    #[test]
    fn words_are_those_of_the_format() {
        for golden in GOLDEN {
            let word: WriterRecord = serde_json::from_str(golden).unwrap();
            assert_eq!(serde_json::to_string(&word).unwrap(), golden);
        }
        let word: WriterRecord = serde_json::from_str(GOLDEN[0]).unwrap();
        let WriterRecord { incarnation, exclusive, after, open, seen, session, elsewhere, above } =
            word;
        assert_eq!((incarnation, exclusive, after, open), (Some(11), true, 7, true));
        assert_eq!((seen, session.as_str(), elsewhere, above), (-5, "s", Some(3), Some(2)));
    }

    #[test]
    fn keys_are_those_of_the_format() {
        let (topic, name) = (TopicName::new("a/b").unwrap(), ProducerName::new("p:1").unwrap());
        assert_eq!(key(&topic, 3, &name, SHARED_ATTEMPT), "writer a/b 3 p:1 -");
        assert_eq!(key(&topic, 3, &name, FORWARDED_ATTEMPT), "writer a/b 3 p:1 =");
        let mut claims = WriterTable::default();
        let mut take = |offset, key: &str, value: Option<&str>| {
            let key: Vec<_> = key.split(' ').collect();
            let value = value.map(str::as_bytes);
            claims.take(LogRecord { offset, millis: 0, key: &key, value });
        };
        take(10, "writer t 0 p x", Some(GOLDEN[0]));
        take(11, "session s", Some("true"));
        take(12, "session gone", Some("true"));
        take(13, "session gone", None);
        assert_eq!(claims.sessions.keys().collect::<Vec<_>>(), ["s"]);
        assert_eq!(claims.forgotten(1), ["session s"]);
        assert_eq!(place(&claims).incarnations(&ProducerName::new("p").unwrap()), (0, 3));
    }

    #[test]
    fn of_two_claims_at_once_the_first_holds() {
        let mut claims = WriterTable::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        say(&mut claims, 11, ("b", "2"), word(None, 0));
        assert_eq!(live(&claims), [11]);
        say(&mut claims, 12, ("b", "2"), None);
        say(&mut claims, 13, ("a", "1"), word(Some(11), 0));
        assert_eq!((live(&claims), place(&claims).newest()), (vec![11], 11));
    }

    #[test]
    fn who_said_a_word_meanwhile_is_not_taken_over_from() {
        let mut claims = WriterTable::default();
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
        let mut claims = WriterTable::default();
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
        let mut claims = WriterTable::default();
        say(&mut claims, 15, ("b", "2"), word(None, 12));
        say(&mut claims, 20, ("a", "1"), word(Some(11), 0));
        assert_eq!(place(&claims).newest(), 11);
    }

    #[test]
    fn what_is_given_here_lies_above_what_came_from_elsewhere() {
        let mut claims = WriterTable::default();
        let name = ProducerName::new("a").unwrap();
        let shared = |incarnation, elsewhere, above| {
            let word = word(incarnation, 0).unwrap();
            Some(WriterRecord { exclusive: false, elsewhere, above, ..word })
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
        let mut claims = WriterTable::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        let key = ["session", "s"];
        let silent = utc_millis() - 1_000_000;
        claims.take(LogRecord { offset: 11, millis: silent, key: &key, value: Some(b"true") });
        assert_eq!(live(&claims), [11]);
        claims.take(LogRecord { offset: 12, millis: utc_millis(), key: &key, value: None });
        assert!(live(&claims).is_empty());
    }

    #[test]
    fn what_nobody_speaks_for_is_forgotten() {
        let mut claims = WriterTable::default();
        let shared = |session: &str| WriterRecord {
            exclusive: false,
            session: session.to_owned(),
            ..word(None, 0).unwrap()
        };
        say(&mut claims, 10, ("a", SHARED_ATTEMPT), Some(shared("gone")));
        say(&mut claims, 11, ("b", SHARED_ATTEMPT), Some(shared("alive")));
        let key = ["session", "gone"];
        claims.take(LogRecord { offset: 12, millis: 5, key: &key, value: None });
        let key = ["session", "silent"];
        claims.take(LogRecord { offset: 13, millis: 5, key: &key, value: Some(b"true") });
        let forgotten = claims.forgotten(utc_millis() - 1_000);
        assert_eq!(forgotten, ["session silent", "writer t 0 a -"]);
    }

    #[test]
    fn nobody_dies_of_an_outage_of_the_brokers() {
        let mut claims = WriterTable::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        let alive = |until, since| {
            let (place, heard) = (place(&claims), ReachableWindow { since, until });
            let now = LivenessCriteria { lease: None, now: Tai::from_nanos(0), heard };
            place.writers.values().any(|held| claims.alive(place, held, now))
        };
        let later = utc_millis() + 60_000;
        assert!(!alive(later, 0));
        assert!(alive(later, later - 1_000), "it could not be heard before");
        assert!(!alive(later, later - 20_000));
    }

    #[test]
    fn no_lease_runs_out_in_an_outage_of_the_brokers() {
        let mut claims = WriterTable::default();
        say(&mut claims, 10, ("a", "1"), word(None, 0));
        let until = utc_millis();
        let now = Tai::from_unix_nanos(until * 1_000_000);
        let alive = |since| {
            let (place, heard) = (place(&claims), ReachableWindow { since, until });
            let now = LivenessCriteria { lease: Some(Duration::from_secs(5)), now, heard };
            place.writers.values().any(|held| claims.alive(place, held, now))
        };
        assert!(!alive(0), "it has said nothing since 1970");
        assert!(alive(until - 4_000), "its word is yet to come");
        assert!(!alive(until - 6_000));
    }
}
