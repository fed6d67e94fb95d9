//! A topic's state on one connection: quality of service, ownership, schema.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use helio_bus::{Guarantee, Qos, TopicName, TransportError};
use helio_core::qos::{Durability, History, Liveliness, Overload, Ownership, Reliability};
use helio_core::{Producer, ProducerName};

use crate::announcements::{
    Announcement, Claim, Fenced, ObservedWriter, Origin, RequestKind, SharedState,
    WriterAnnouncement,
};
use crate::connection::Connection;
use crate::endpoints::FirstSchema;
use crate::entity::{self, Representation};
use crate::error::{failed, unsupported};
use crate::options::CACHE_DEPTH;

/// Whether durability services store all samples of topics with a quality of service.
pub(crate) fn is_kept(qos: &Qos) -> bool {
    // Writers alone keep a limited number of samples of each key.
    let whole = qos.durability >= Durability::TransientLocal && qos.history == History::KeepAll;
    qos.durability == Durability::Persistent || qos.guarantee == Guarantee::Durable || whole
}

/// Whether durability services keep the last values of topics with a quality of service. Those
/// values outlive their writers while the service runs.
pub(crate) fn has_last_values(qos: &Qos) -> bool {
    let late = qos.durability >= Durability::TransientLocal && qos.history != History::None;
    late && qos.retention.last_value
}

/// Whether no reader may hold up the writers of topics with a quality of service: telemetry and
/// logs. Their history is the durability services'; a reader that stands still loses samples.
pub(crate) fn waits_for_no_reader(qos: &Qos) -> bool {
    match qos.overload {
        Overload::DropOldest | Overload::ShedByLevel => true,
        // A log's producer has queues of its own, for what services cannot store yet.
        Overload::DropNewest | Overload::Refuse if is_kept(qos) => {
            qos.history == History::KeepAll && qos.ownership == Ownership::Shared
        }
        _ => is_telemetry(qos),
    }
}

/// Whether a quality of service is telemetry's: the last values, for late joiners, not stored.
/// With overload *block* it is that of events without a durability service: their writers wait.
fn is_telemetry(qos: &Qos) -> bool {
    let last_values = matches!(qos.history, History::KeepLast(_));
    let waits = qos.overload == Overload::Block;
    qos.durability == Durability::TransientLocal && last_values && !is_kept(qos) && !waits
}

/// The state that a topic's writers and readers share.
pub(crate) struct TopicState {
    pub(crate) connection: Arc<Connection>,
    pub(crate) name: TopicName,
    pub(crate) qos: Qos,
    /// The type of its first schema, as last resolved.
    pub(crate) first: Mutex<FirstSchema>,
}

/// The remedy: how to start a durability service.
pub(crate) fn start_one(connection: &Connection) -> String {
    format!("start `helio dds durability --dir DIR --url {}`", connection.url)
}

/// The error of an operation that needs a durability service when none has responded.
pub(crate) fn no_service(what: &str, topic: &TopicState) -> TransportError {
    unsupported(
        format!("{what} without a durability service"),
        &format!("none has responded: {}", start_one(&topic.connection)),
    )
}

/// An announced claim. It is withdrawn when dropped, unless a writer took it over.
pub(crate) struct PendingClaim<'a> {
    topic: &'a TopicState,
    pub(crate) claim: Claim,
    /// The announcement that replaces the claim's when it is withdrawn.
    before: Option<WriterAnnouncement>,
}

impl PendingClaim<'_> {
    /// Keeps the claim: its writer announces its own state from now on.
    pub(crate) fn hold(mut self) {
        self.before = None;
    }
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        let Self { topic, before, .. } = self;
        if let Some(writer) = before.take() {
            // If the announcement fails, the claim ends with the session.
            let _ = topic
                .connection
                .announcements
                .announce(Announcement::Writer { topic: topic.name.clone(), writer });
        }
    }
}

impl TopicState {
    pub(crate) fn new(connection: &Arc<Connection>, name: &TopicName, qos: Qos) -> Arc<Self> {
        let (connection, first) = (Arc::clone(connection), Mutex::default());
        Arc::new(Self { connection, name: name.clone(), qos, first })
    }

    /// Whether its quality of service requires durability services to store it.
    pub(crate) fn is_kept(&self) -> bool {
        is_kept(&self.qos)
    }

    /// Whether no reader may hold up its writers.
    pub(crate) fn waits_for_no_reader(&self) -> bool {
        waits_for_no_reader(&self.qos)
    }

    /// Whether lost samples are resent. Always for stored topics: a sample that is lost before it
    /// reaches a durability service is on no disk.
    pub(crate) fn is_reliable(&self) -> bool {
        self.qos.reliability == Reliability::Reliable || self.is_kept()
    }

    /// Checks that the named partitions exist.
    pub(crate) fn partitions(&self, named: &[u32]) -> Result<(), TransportError> {
        let partitions = self.qos.partitions;
        match named.iter().find(|partition| **partition >= partitions) {
            None => Ok(()),
            Some(wrong) => Err(unsupported(
                format!("open partition {wrong} of {}", self.name),
                &format!("the topic has {partitions} partitions"),
            )),
        }
    }

    /// Adopts a schema that was declared here for this connection's endpoints, and waits until the
    /// writers' endpoints have matched their readers.
    pub(crate) fn adopt_schema(&self) -> Result<(), TransportError> {
        let connection = &self.connection;
        let adopted = connection.adopt_schema(&self.name);
        if adopted.is_err() {
            // Endpoints that were opened are used even if others failed.
            connection.match_in_background(&self.name);
        }
        adopted?;
        connection.writers_of(&self.name).iter().try_for_each(|w| w.await_match())
    }

    fn endpoint_qos(&self) -> entity::Qos {
        let qos = entity::Qos::new().keep_all().leave_instances();
        let qos = qos.representations(&[Representation::Xcdr2]);
        let qos = if self.is_reliable() { qos.reliable(Duration::ZERO) } else { qos.best_effort() };
        match self.qos.deadline {
            Some(deadline) => qos.deadline(deadline),
            None => qos,
        }
    }

    /// The quality of service of a writer.
    pub(crate) fn writer_qos(
        &self,
        partition: u32,
        strength: Option<i32>,
    ) -> Result<entity::Qos, TransportError> {
        let mut qos = self.endpoint_qos();
        if self.waits_for_no_reader() {
            qos = qos.keep_last(CACHE_DEPTH);
        }
        if let Some(depth) = self.depth() {
            qos = qos.transient_local(Some(depth));
        }
        if let Some(lifespan) = self.qos.lifespan {
            qos = qos.lifespan(lifespan);
        }
        if let Liveliness::Lease(lease) = self.qos.liveliness {
            qos = qos.liveliness(entity::Liveliness::ManualByTopic, lease);
        }
        if let Some(strength) = strength {
            qos = qos.exclusive(strength);
        }
        qos.partitions(&[&partition.to_string()]).map_err(failed("name the partition"))
    }

    /// The quality of service of a reader; `history` requests the samples that writers keep.
    pub(crate) fn reader_qos(
        &self,
        partitions: &[u32],
        history: bool,
    ) -> Result<entity::Qos, TransportError> {
        let mut qos = self.endpoint_qos();
        if history && self.depth().is_some() {
            qos = qos.transient_local(None);
        }
        if self.qos.ownership == Ownership::Exclusive {
            qos = qos.exclusive(0);
        }
        let named: Vec<_> = partitions.iter().map(u32::to_string).collect();
        let named: Vec<_> = named.iter().map(String::as_str).collect();
        // An empty list is the default partition, not all partitions.
        let named = if named.is_empty() { vec!["*"] } else { named };
        qos.partitions(&named).map_err(failed("name the partitions"))
    }

    /// How many samples of each key writers keep for late joiners; `None` if they keep none.
    fn depth(&self) -> Option<u32> {
        match (self.qos.durability, self.qos.history) {
            (Durability::Volatile, _) | (_, History::None) => None,
            (_, History::KeepLast(n)) => Some(u32::from(n)),
            // Our own late joiners request history from durability services; foreign ones get the
            // newest sample.
            (_, History::KeepAll) => Some(1),
        }
    }

    /// The newest incarnation of a producer that any session knows. Other sessions may know newer
    /// ones, and their clocks may be ahead.
    pub(crate) fn newest(&self, producer: &ProducerName) -> Result<u64, TransportError> {
        let connection = &self.connection;
        let about = RequestKind::Producer { topic: self.name.clone(), producer: producer.clone() };
        let holders = connection.announcements.with_fresh_state(|state| state.holders(&self.name));
        let responses = connection.announcements.request(Some(holders), about)?;
        let newest =
            responses.iter().map(|(_, response)| response.newest_incarnation).max().unwrap_or(0);
        Ok(newest.max(connection.newest(&self.name, producer)))
    }

    /// The newest incarnation of a producer among the known writers of one partition, and the
    /// newest one that any session knows. An incarnation in another partition fences no writer
    /// here.
    pub(crate) fn newest_in(
        &self,
        partition: u32,
        producer: &ProducerName,
    ) -> Result<(u64, u64), TransportError> {
        // After the responses, all earlier announcements have been received.
        let newest = self.newest(producer)?;
        let newest_here = self.connection.announcements.with_state(|state| {
            let own = state.writers(&self.name);
            let own = own.filter(|(_, w)| w.partition == partition && w.producer == *producer);
            own.map(|(_, w)| w.incarnation).max().unwrap_or(0)
        });
        Ok((newest_here, newest))
    }

    /// Claims a partition of an exclusive topic; `None` if the topic is shared.
    pub(crate) fn claim(
        &self,
        partition: u32,
        producer: &Producer,
        now: i64,
    ) -> Result<Option<PendingClaim<'_>>, TransportError> {
        if self.qos.ownership == Ownership::Shared {
            return Ok(None);
        }
        let announcements = &self.connection.announcements;
        // The claim needs all earlier announcements of the other sessions.
        let holders = || announcements.with_fresh_state(|state| state.holders(&self.name));
        announcements.request(Some(holders()), RequestKind::Nothing)?;
        let (fences, strength) = announcements.with_state(|state| {
            let others: Vec<_> = self.claims(state, partition).collect();
            // A forwarder continues the incarnation of the producer that it forwards.
            let own = |w: &ObservedWriter| {
                w.announcement.producer == producer.name
                    && w.announcement.incarnation == producer.incarnation
            };
            let over =
                others.iter().filter(|(_, session, w)| !own(w) && !self.lives(state, session, w));
            let fences = over.map(|(.., ObservedWriter { announcement, .. })| Fenced {
                producer: announcement.producer.clone(),
                incarnation: announcement.incarnation,
            });
            let fences = fences.collect();
            let strongest = others.iter().map(|(claim, ..)| claim.strength).max();
            (fences, strongest.unwrap_or(0).saturating_add(1))
        });
        let claim = Claim { origin: announcements.origin(), strength, fences };
        let gone = WriterAnnouncement {
            partition,
            producer: producer.name.clone(),
            incarnation: producer.incarnation,
            open: false,
            last_active_tai_ns: now,
            idle_nanos: 0,
            claim: None,
        };
        let writer = WriterAnnouncement { open: true, claim: Some(claim.clone()), ..gone.clone() };
        let announcement = Announcement::Writer { topic: self.name.clone(), writer };
        let before = announcements.with_state(|state| {
            let own = |(by, w): &(&str, &WriterAnnouncement)| {
                *by == announcements.session
                    && w.producer == producer.name
                    && w.partition == partition
            };
            state.writers(&self.name).find(own).map(|(_, w)| w.clone())
        });
        if let Some(holder) = announcements.with_state(|state| self.holder(state, partition, None))
        {
            return Err(self.owned(&holder));
        }
        // If another claim is earlier, or a request fails, this claim is withdrawn.
        let claiming = PendingClaim { topic: self, claim, before: Some(before.unwrap_or(gone)) };
        announcements.announce(announcement)?;
        announcements.request(Some(holders()), RequestKind::Nothing)?;
        let origin = &claiming.claim.origin;
        match announcements.with_state(|state| self.holder(state, partition, Some(origin))) {
            None => Ok(Some(claiming)),
            Some(holder) => Err(self.owned(&holder)),
        }
    }

    fn owned(&self, holder: &Producer) -> TransportError {
        let Producer { name, incarnation } = holder;
        let holder = format!("{name} (incarnation {incarnation})");
        TransportError::Owned { topic: self.name.clone(), holder }
    }

    /// The claims of a partition, each with its session and writer.
    pub(crate) fn claims<'a>(
        &'a self,
        state: &'a SharedState,
        partition: u32,
    ) -> impl Iterator<Item = (&'a Claim, &'a str, &'a ObservedWriter)> {
        let writers = state
            .observed_writers(&self.name)
            .filter(move |(_, w)| w.announcement.partition == partition);
        writers.filter_map(|(session, w)| {
            w.announcement.claim.as_ref().map(|claim| (claim, session, w))
        })
    }

    /// The live writer that holds a partition: the one with the first claim, earlier than `before`.
    pub(crate) fn holder(
        &self,
        state: &SharedState,
        partition: u32,
        before: Option<&Origin>,
    ) -> Option<Producer> {
        let live = self.claims(state, partition).filter(|(claim, session, w)| {
            // Claims of closed writers fence, too: the writers that they replaced have been
            // notified.
            let fenced = self.claims(state, partition).any(|(other, ..)| {
                other.fences(&w.announcement.producer, w.announcement.incarnation)
            });
            let earlier = before.is_none_or(|before| claim.origin < *before);
            earlier && !fenced && self.lives(state, session, w)
        });
        let first = live.min_by_key(|(claim, ..)| &claim.origin);
        first.map(|(.., ObservedWriter { announcement, .. })| Producer {
            name: announcement.producer.clone(),
            incarnation: announcement.incarnation,
        })
    }

    /// Whether a writer is alive: open, in a live session, and within its lease by this host's
    /// clock.
    pub(crate) fn lives(
        &self,
        state: &SharedState,
        session: &str,
        writer: &ObservedWriter,
    ) -> bool {
        let within = match self.qos.liveliness {
            Liveliness::Automatic => true,
            Liveliness::Lease(lease) => writer.silence(self.connection.clock.uptime()) <= lease,
        };
        writer.announcement.open && within && state.live.contains(session)
    }
}
