//! Writers: their claims, takeovers and heartbeats, in `_helio.producers`.
//!
//! Constraints. An exclusive topic has at most one writer at a time. A writer that asserts its
//! liveliness learns whether another has taken over: after its record no takeover is possible, and
//! a takeover before it is found. Publishes check a flag and a clock (see `ownership_lease`).
//!
//! Format. See `writer_table`.
//!
//! Operation. A connection with writers sends a heartbeat every second. After
//! `SESSION_TIMEOUT` without one, its process is declared dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helio_bus::transport::WriterInfo;
use helio_bus::{Producer, ProducerName, PublishError, Qos, TopicName, TransportError};
use helio_core::qos::{Liveliness, Ownership};

use crate::SCHEME;
use crate::client::clock::{DualClock, utc_millis};
use crate::client::delivery::{PendingSample, SampleOwner};
use crate::client::error::outage;
use crate::client::health::Health;
use crate::client::link::{Link, unique_name};
use crate::client::names::PRODUCERS;
use crate::client::options::BROKER_TIMEOUT;
use crate::client::signal::Notify;
use crate::internal::internal_topics::InternalTopics;
use crate::internal::ownership_lease::{AckedHeartbeats, OwnershipLease};
use crate::internal::table::{TRUE, append, append_within, encode, send_unconfirmed};
use crate::internal::writer_table::{LivenessCriteria, WriterRecord, WriterTable, writer_key};

/// The shortest lease of an exclusive topic. Its owner checks the ownership every second, and is
/// sure of it for three quarters of the lease less the duration of the check.
const MIN_EXCLUSIVE_LEASE: Duration = Duration::from_secs(2);
/// The time limit of each of the heartbeats, which are sent every second.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a broker may take to record the end of a writer or a connection. Without that record
/// writers are declared dead a little later, so that a frozen broker does not delay an exit.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long after a timeout no query is sent.
const WRITERS_QUERY_BACKOFF: Duration = Duration::from_secs(2);
/// How many times a claim is repeated because of concurrent records.
const MAX_CLAIM_ATTEMPTS: usize = 64;
/// How many former writers of a partition are kept.
const MAX_FORMER_WRITERS: usize = 8;
/// The age at which records of a closed or dead connection are deleted by others.
const SILENT_RECORD_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// The attempt of writers of a shared topic: a producer's next record replaces its last.
const SHARED_ATTEMPT: &str = "-";
/// The attempt of forwarders of a producer's samples of another bus to a shared topic.
const FORWARDED_ATTEMPT: &str = "=";

/// A writer's claim.
pub(crate) struct WriterClaim {
    topic: TopicName,
    partition: u32,
    producer: Producer,
    /// Its order among all claims; without other buses this is the incarnation.
    order: u64,
    /// Of a forwarder: the newest incarnation on the other bus; otherwise 0.
    forwarded_incarnation: AtomicU64,
    previous_incarnation: Option<u64>,
    attempt: String,
    /// Of an exclusive topic: until when the ownership is certain.
    lease: Option<OwnershipLease>,
    /// The incarnation that has taken over, as far as known; 0 is none.
    fenced: AtomicU64,
    health: Arc<Health>,
}

impl WriterClaim {
    pub(crate) fn producer(&self) -> &Producer {
        &self.producer
    }

    /// The ownership of an exclusive topic's writer.
    pub(crate) fn lease(&self) -> Option<&OwnershipLease> {
        self.lease.as_ref()
    }

    /// Whether its samples come from another bus.
    pub(crate) fn forwards(&self) -> bool {
        self.forwarded_incarnation().is_some()
    }

    /// Whether it must check for a takeover.
    pub(crate) fn can_be_fenced(&self) -> bool {
        self.lease.is_some() || self.forwards()
    }

    fn forwarded_incarnation(&self) -> Option<u64> {
        Some(self.forwarded_incarnation.load(Ordering::Acquire)).filter(|forwarded| *forwarded != 0)
    }

    /// Of a forwarder: its producer was restarted on the other bus. This waits for the brokers.
    pub(crate) fn raise(
        &self,
        tables: &InternalTopics,
        incarnation: u64,
    ) -> Result<(), TransportError> {
        if incarnation <= self.forwarded_incarnation.load(Ordering::Acquire) {
            return self.check();
        }
        self.forwarded_incarnation.store(incarnation, Ordering::Release);
        self.assert(tables)
    }

    /// Whether another writer has taken over, as far as known.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        match self.fenced.load(Ordering::Acquire) {
            0 => Ok(()),
            newer => Err(TransportError::Fenced { producer: self.producer.clone(), newer }),
        }
    }

    /// Whether publishes are deferred until the ownership was checked; `notify` is called then.
    pub(crate) fn defers_publishes(&self, notify: Option<&Notify>) -> Result<bool, PublishError> {
        let Some(lease) = &self.lease else { return Ok(false) };
        let defers = lease.defers_publishes(notify)?;
        if defers {
            self.health.suspect();
        }
        Ok(defers)
    }

    fn key(&self) -> String {
        writer_key(&self.topic, self.partition, &self.producer.name, &self.attempt)
    }

    fn record(&self, link: &Link, open: bool) -> Result<Vec<u8>, TransportError> {
        encode(&WriterRecord {
            incarnation: Some(self.order),
            exclusive: self.lease.is_some(),
            expected_end_offset: 0,
            open,
            last_active_tai_ns: link.clock.now().nanos(),
            session: link.session.clone(),
            forwarded_incarnation: self.forwarded_incarnation(),
            previous_incarnation: self.previous_incarnation,
        })
    }

    /// The writer's heartbeat: the record's key and value.
    pub(crate) fn heartbeat(&self, link: &Link) -> Result<(String, Vec<u8>), TransportError> {
        Ok((self.key(), self.record(link, true)?))
    }

    /// Sends a heartbeat, and checks for a takeover.
    pub(crate) fn assert(&self, tables: &InternalTopics) -> Result<(), TransportError> {
        self.check()?;
        let since = DualClock::now();
        let (key, value) = self.heartbeat(&tables.link)?;
        append(&tables.link, PRODUCERS, &key, Some(&value))?;
        self.acknowledged(since);
        let acked = self.acked();
        tables.writers.read(BROKER_TIMEOUT, |_| ())?;
        self.check_takeover(tables, acked)
    }

    /// The owner's acknowledged heartbeats.
    fn acked(&self) -> Option<AckedHeartbeats> {
        self.lease.as_ref().map(OwnershipLease::acked)
    }

    /// Checks for a takeover, in records that were read after these heartbeats were acknowledged.
    fn check_takeover(
        &self,
        tables: &InternalTopics,
        acked: Option<AckedHeartbeats>,
    ) -> Result<(), TransportError> {
        let (now, name) = (tables.link.clock.now(), &self.producer.name);
        let ((newest, is_claimed), (own, _)) = tables.writers.inspect(|writers| {
            let takeover = writers.takeover(&self.topic, self.partition, self.order, now);
            (takeover, writers.incarnations(&self.topic, self.partition, name))
        });
        if self.lease.is_some() && newest > self.order {
            self.fenced.store(newest, Ordering::Release);
        }
        if self.forwarded_incarnation().is_some_and(|forwarded| own > forwarded) {
            self.fenced.store(own, Ordering::Release);
        }
        let found = self.check();
        // If another writer is claiming it now, the next check finds the result.
        if let (Some(lease), Some(acked), false) = (&self.lease, acked, is_claimed && found.is_ok())
            && lease.checked(acked, &found)
        {
            self.health.suspect();
        }
        found
    }

    /// Records that the writer was closed. Claims of an exclusive topic wait for that.
    pub(crate) fn release(&self, link: &Link) -> Result<(), TransportError> {
        let value = self.record(link, false)?;
        if let Some(lease) = &self.lease {
            lease.leave();
            let record = [(self.key(), Some(value))];
            return append_within(link, PRODUCERS, &record, LEAVE_TIMEOUT).map(drop);
        }
        send_unconfirmed(link, PRODUCERS, &self.key(), Some(&value))
    }
}

impl SampleOwner for WriterClaim {
    fn acknowledged(&self, since: DualClock) {
        self.lease.iter().for_each(|lease| lease.writer_acked(since));
    }

    /// A deferred report holds the claim, which the check needs, even if the writer was dropped.
    fn complete(self: Arc<Self>, sample: PendingSample, offset: Option<u64>) {
        let report = move |found: Result<(), PublishError>| {
            sample.complete(found.map(|()| offset));
        };
        let lease = self.lease.as_ref().expect("the topic is exclusive");
        if lease.report(report, &self) {
            self.health.suspect();
        }
    }
}

fn lease(qos: &Qos) -> Option<Duration> {
    match qos.liveliness {
        Liveliness::Lease(lease) => Some(lease),
        Liveliness::Automatic => None,
    }
}

fn is_exclusive(qos: &Qos) -> bool {
    qos.ownership == Ownership::Exclusive
}

/// Refuses an exclusive topic whose lease is too short to confirm the ownership in time.
pub(crate) fn possible(name: &TopicName, qos: &Qos) -> Result<(), TransportError> {
    let short = lease(qos).filter(|lease| *lease < MIN_EXCLUSIVE_LEASE);
    match short.filter(|_| is_exclusive(qos)) {
        None => Ok(()),
        Some(lease) => Err(TransportError::Unsupported {
            transport: SCHEME.to_owned(),
            what: format!("guarantee one owner of {name} by a lease of {lease:?}"),
            remedy: format!("the lease of an exclusive topic is at least {MIN_EXCLUSIVE_LEASE:?}"),
        }),
    }
}

fn criteria(link: &Link, qos: &Qos) -> LivenessCriteria {
    LivenessCriteria {
        lease: lease(qos),
        now: link.clock.now(),
        reachable: link.health.reachable(),
    }
}

/// A writer to be opened.
#[derive(Clone, Copy)]
pub(crate) struct ClaimRequest<'a> {
    pub(crate) topic: &'a TopicName,
    pub(crate) qos: &'a Qos,
    pub(crate) partition: u32,
    pub(crate) name: &'a ProducerName,
}

/// The incarnations that a claim depends on.
#[derive(Clone, Copy)]
struct IncarnationTerms {
    forwarded: Option<u64>,
    /// The newest earlier one, of both kinds.
    newest: u64,
}

impl ClaimRequest<'_> {
    fn key(&self, attempt: &str) -> String {
        writer_key(self.topic, self.partition, self.name, attempt)
    }

    /// The producer's newest incarnations, of this bus and of another. They matter only if the
    /// topic has samples of another bus.
    fn incarnations(&self, tables: &InternalTopics) -> Result<(u64, u64), TransportError> {
        if !tables.is_forwarded(self.topic) {
            return Ok((0, 0));
        }
        tables.writers.read(BROKER_TIMEOUT, |writers| {
            writers.incarnations(self.topic, self.partition, self.name)
        })
    }

    /// Opens a writer: allocates its incarnation, unless its samples come with one from another
    /// bus, and takes an exclusive topic.
    pub(crate) fn claim(
        &self,
        tables: &InternalTopics,
        forwarded: Option<u64>,
    ) -> Result<WriterClaim, TransportError> {
        if forwarded.is_some() {
            tables.mark_forwarded(self.topic)?;
        }
        let (own, newest_forwarded) = self.incarnations(tables)?;
        if let Some(incarnation) = forwarded.filter(|forwarded| own >= *forwarded) {
            let producer = Producer { name: self.name.clone(), incarnation };
            return Err(TransportError::Fenced { producer, newer: own });
        }
        let forwarded = forwarded.map(|forwarded| forwarded.max(newest_forwarded));
        let terms = IncarnationTerms { forwarded, newest: own.max(newest_forwarded) };
        let shared = if forwarded.is_some() { FORWARDED_ATTEMPT } else { SHARED_ATTEMPT };
        let exclusive = is_exclusive(self.qos);
        for _ in 0..MAX_CLAIM_ATTEMPTS {
            let attempt = if exclusive { unique_name() } else { shared.to_owned() };
            let key = self.key(&attempt);
            let end_offset = if exclusive { self.free(tables)? } else { 0 };
            match self.try_claim(tables, attempt, end_offset, terms) {
                Ok(Some(claim)) => return Ok(claim),
                Ok(None) => _ = append(&tables.link, PRODUCERS, &key, None)?,
                Err(error) => {
                    // The claim may still arrive, and block all others. The tombstone follows it.
                    if exclusive {
                        let _ = send_unconfirmed(&tables.link, PRODUCERS, &key, None);
                    }
                    return Err(error);
                }
            }
        }
        Err(outage(format!("others claim the topic {} at the same time", self.topic)))
    }

    /// Sends one claim; `None` if another record came first.
    fn try_claim(
        &self,
        tables: &InternalTopics,
        attempt: String,
        expected_end_offset: u64,
        IncarnationTerms { forwarded, newest }: IncarnationTerms,
    ) -> Result<Option<WriterClaim>, TransportError> {
        let (link, exclusive) = (&tables.link, is_exclusive(self.qos));
        let previous = Some(newest).filter(|newest| forwarded.is_none() && *newest != 0);
        let record = WriterRecord {
            incarnation: None,
            exclusive,
            expected_end_offset,
            open: true,
            last_active_tai_ns: link.clock.now().nanos(),
            session: link.session.clone(),
            forwarded_incarnation: forwarded,
            previous_incarnation: previous,
        };
        let offset = append(link, PRODUCERS, &self.key(&attempt), Some(&encode(&record)?))?;
        let order = offset + 1;
        let incarnation = forwarded.unwrap_or(order.max(newest + 1));
        let claim = WriterClaim {
            topic: self.topic.clone(),
            partition: self.partition,
            producer: Producer { name: self.name.clone(), incarnation },
            order,
            forwarded_incarnation: AtomicU64::new(forwarded.unwrap_or(0)),
            previous_incarnation: previous,
            attempt,
            lease: exclusive.then(|| OwnershipLease::new(lease(self.qos))),
            fenced: AtomicU64::new(0),
            health: Arc::clone(&link.health),
        };
        if exclusive {
            let writer = (self.name.clone(), claim.attempt.clone());
            let holds = |writers: &WriterTable| writers.has(self.topic, self.partition, &writer);
            if !tables.writers.read(BROKER_TIMEOUT, holds)? {
                return Ok(None);
            }
            claim.assert(tables)?;
            self.delete_former_writers(tables)?;
        }
        Ok(Some(claim))
    }

    /// Checks that an exclusive topic has no live writer; returns the offset up to which that was
    /// read.
    fn free(&self, tables: &InternalTopics) -> Result<u64, TransportError> {
        let criteria = criteria(&tables.link, self.qos);
        let found = tables
            .writers
            .read(BROKER_TIMEOUT, |writers| writers.free(self.topic, self.partition, criteria))?;
        found.map_err(|holder| TransportError::Owned { topic: self.topic.clone(), holder })
    }

    /// Deletes records of an exclusive partition's former writers.
    fn delete_former_writers(&self, tables: &InternalTopics) -> Result<(), TransportError> {
        let former = tables.writers.inspect(|writers| {
            writers.former_writers(self.topic, self.partition, MAX_FORMER_WRITERS)
        });
        delete(&tables.link, &former)
    }
}

fn delete(link: &Link, keys: &[String]) -> Result<(), TransportError> {
    keys.iter().try_for_each(|key| send_unconfirmed(link, PRODUCERS, key, None))
}

/// The current and former writers of a topic, as the brokers know them now. A late answer is an
/// outage: older records prove neither arrivals nor departures.
pub(crate) fn writers(
    tables: &InternalTopics,
    topic: &TopicName,
    qos: &Qos,
) -> Result<Vec<WriterInfo>, TransportError> {
    let (criteria, health) = (criteria(&tables.link, qos), &tables.link.health);
    if health.is_lost() || health.is_unresponsive() {
        return Err(outage(format!(
            "no broker has answered in time: the writers of {topic} are unknown"
        )));
    }
    let found = tables.writers.glance(|writers| writers.list(topic, criteria));
    found.map_err(|error| match error {
        TransportError::Closed => error,
        error => {
            health.doubt(WRITERS_QUERY_BACKOFF);
            outage(format!("the writers of {topic} are unknown: {error}"))
        }
    })
}

/// Checks for takeovers within a time limit, also while the connection is being closed. One read of
/// the log serves all writers.
pub(crate) fn check_fencing(
    tables: &InternalTopics,
    claims: &[Arc<WriterClaim>],
    patience: Duration,
) {
    let acked: Vec<_> = claims.iter().map(|claim| claim.acked()).collect();
    if tables.writers.catch_up(patience).is_ok() {
        claims.iter().zip(acked).for_each(|(claim, acked)| {
            _ = claim.check_takeover(tables, acked);
        });
    }
}

/// Sends heartbeats of the connection, and of owners that need one. Waits for their
/// acknowledgement, at most [`HEARTBEAT_TIMEOUT`].
pub(crate) fn send_heartbeats(
    link: &Link,
    claims: &[Arc<WriterClaim>],
) -> Result<(), TransportError> {
    let since = DualClock::now();
    let needs_heartbeat =
        |claim: &&Arc<WriterClaim>| claim.lease().is_some_and(OwnershipLease::wants_heartbeat);
    let writing: Vec<_> = claims.iter().filter(needs_heartbeat).collect();
    let records = writing.iter().map(|claim| claim.heartbeat(link));
    let records = records.map(|record| record.map(|(key, value)| (key, Some(value))));
    let mut records = records.collect::<Result<Vec<_>, _>>()?;
    records.push((session_key(link), Some(TRUE.to_vec())));
    append_within(link, PRODUCERS, &records, HEARTBEAT_TIMEOUT)?;
    claims.iter().filter_map(|claim| claim.lease()).for_each(|lease| lease.process_acked(since));
    writing.iter().for_each(|claim| claim.acknowledged(since));
    Ok(())
}

fn session_key(link: &Link) -> String {
    format!("session {}", link.session)
}

/// Sends a heartbeat of the connection without waiting.
pub(crate) fn send_session_heartbeat(link: &Link) -> Result<(), TransportError> {
    send_unconfirmed(link, PRODUCERS, &session_key(link), Some(TRUE))
}

/// Records that a connection was closed, and its writers with it: an unknown session has no live
/// writers.
pub(crate) fn end_session(link: &Link) -> Result<(), TransportError> {
    append_within(link, PRODUCERS, &[(session_key(link), None)], LEAVE_TIMEOUT).map(drop)
}

/// Deletes records of connections that ended long ago, so that the table does not grow with every
/// program that ever ran.
pub(crate) fn sweep(tables: &InternalTopics) -> Result<(), TransportError> {
    let long_ago =
        utc_millis() - i64::try_from(SILENT_RECORD_RETENTION.as_millis()).unwrap_or(i64::MAX);
    let keys = tables.writers.inspect(|writers| writers.forgotten(long_ago));
    delete(&tables.link, &keys)
}
