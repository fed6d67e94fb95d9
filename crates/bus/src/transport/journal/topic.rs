//! A topic of the journal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use helio_core::qos::{Liveliness, Ownership as Policy, Retention};
use helio_core::{Producer, ProducerName, Qos, SchemaId};
use helio_journal::{
    Group, JournalError, Lease, MemberInfo, Ownership, ProducerClaim, Topic, WriterOptions,
};

use super::super::{
    Alive, Declared, GroupMember, GroupState, LogIdentity, PartitionInfo, Reader, ReaderRequest,
    Taken, TransportTopic, Writer, WriterInfo, WriterRequest,
};
use super::reader::JournalReader;
use super::writer::JournalWriter;
use super::{Description, SCHEME, Shared, failed};
use crate::bell::locked;
use crate::error::{TransportError, holder};

pub(super) struct JournalTopic {
    topic: Topic,
    qos: Qos,
    shared: Arc<Shared>,
    /// This connection's claims, one a producer for all partitions.
    claims: Arc<Mutex<Claims>>,
}

/// A producer's claim, with the number of its open writers.
pub(super) type Claims = HashMap<ProducerName, (ProducerClaim, usize)>;

impl JournalTopic {
    pub(super) fn new(topic: Topic, shared: &Arc<Shared>) -> Result<Self, TransportError> {
        let Description { qos } = described(&topic)?;
        let shared = Arc::clone(shared);
        Ok(Self { topic, qos, shared, claims: Arc::default() })
    }

    /// Releases the claims.
    pub(super) fn close(&self) {
        for (_, (claim, _)) in locked(&self.claims).drain() {
            claim.release();
        }
    }

    /// This connection's claim, or a new one. `elsewhere` is the producer's incarnation on the bus
    /// from which its samples are forwarded.
    fn claim(
        &self,
        name: &ProducerName,
        elsewhere: Option<u64>,
    ) -> Result<ProducerClaim, TransportError> {
        let mut claims = locked(&self.claims);
        if let Some((claim, writers)) = claims.get_mut(name) {
            if claim.is_adopted() != elsewhere.is_some() {
                let holder = holder(name, claim.producer().incarnation);
                return Err(TransportError::Owned { topic: self.topic.name().clone(), holder });
            }
            *writers += 1;
            return Ok(claim.clone());
        }
        let ownership = match self.qos.ownership {
            Policy::Shared => Ownership::Shared,
            Policy::Exclusive => Ownership::Exclusive,
        };
        let options = WriterOptions { producer: name.clone(), ownership };
        let lease = match self.qos.liveliness {
            Liveliness::Automatic => None,
            Liveliness::Lease(time) => Some(Lease { time, now: self.shared.clock.uptime() }),
        };
        let claim = match (elsewhere, lease) {
            (Some(incarnation), lease) => self.topic.adopt(&options, incarnation, lease),
            (None, None) => self.topic.claim(&options),
            (None, Some(lease)) => self.topic.claim_for(&options, lease),
        };
        let claim = claim.map_err(|error| self.claimed(name, error))?;
        claims.insert(name.clone(), (claim.clone(), 1));
        Ok(claim)
    }

    /// A writer under the producer's claim.
    fn opened(
        &self,
        request: &WriterRequest<'_>,
        elsewhere: Option<u64>,
    ) -> Result<Box<dyn Writer>, TransportError> {
        self.shared.check_open()?;
        let claim = self.claim(request.producer, elsewhere)?;
        let writer = self.topic.writer_with(request.partition, &claim);
        let writer = writer.map_err(failed("open a writer"));
        let writer = writer.inspect_err(|_| unclaim(&self.claims, request.producer))?;
        let lease = matches!(self.qos.liveliness, Liveliness::Lease(_));
        let (shared, claims) = (Arc::clone(&self.shared), Arc::clone(&self.claims));
        let (topic, partition) = (self.topic.clone(), request.partition);
        Ok(Box::new(JournalWriter {
            writer,
            topic,
            partition,
            shared,
            claims,
            claim,
            lease,
            newest: None,
        }))
    }

    /// A group's committed position in each partition that has one.
    fn positions(&self, group: &Group) -> Result<Vec<(u32, u64)>, TransportError> {
        let mut all = Vec::new();
        for partition in 0..self.qos.partitions {
            let offset = group.committed(partition).map_err(failed("read a position"))?;
            all.extend(offset.map(|offset| (partition, offset)));
        }
        Ok(all)
    }

    fn claimed(&self, name: &ProducerName, error: JournalError) -> TransportError {
        match error {
            JournalError::Newer { own, newer, .. } => {
                let producer = Producer { name: name.clone(), incarnation: own };
                TransportError::Fenced { producer, newer }
            }
            JournalError::Claimed { .. } => {
                let holder = error.to_string();
                TransportError::Owned { topic: self.topic.name().clone(), holder }
            }
            error => failed("claim the producer's name")(error),
        }
    }
}

/// Parses a topic's description. A bus's description that cannot be read has an error of its own: a
/// newer version may have written it.
pub(super) fn described(topic: &Topic) -> Result<Description, TransportError> {
    parsed(topic, &topic.config().description)
}

fn parsed(topic: &Topic, text: &str) -> Result<Description, TransportError> {
    let json = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    if json.get("qos").is_none() {
        return Err(TransportError::Unsupported {
            transport: SCHEME.to_owned(),
            what: format!("open {}: it was not made by a bus", topic.name()),
            remedy: "use the journal's own API for it".to_owned(),
        });
    }
    serde_json::from_value(json).map_err(|error| TransportError::Unsupported {
        transport: SCHEME.to_owned(),
        what: format!("open {}: its quality of service cannot be read: {error}", topic.name()),
        remedy: "use the version of Heliograph that created the topic, or a newer one".to_owned(),
    })
}

/// Removes a writer of a producer's claim; the last one releases it.
pub(super) fn unclaim(claims: &Mutex<Claims>, name: &ProducerName) {
    let mut claims = locked(claims);
    if let Some((_, writers)) = claims.get_mut(name) {
        *writers -= 1;
        if *writers == 0 {
            claims.remove(name);
        }
    }
}

/// A group's name follows the rules of producers' names.
pub(super) fn group_name(name: &str) -> Result<ProducerName, TransportError> {
    ProducerName::new(name).map_err(|error| TransportError::Unsupported {
        transport: SCHEME.to_owned(),
        what: format!("have a group of that name: {error}"),
        remedy: "choose another name".to_owned(),
    })
}

impl TransportTopic for JournalTopic {
    fn is_current(&self) -> bool {
        self.topic.is_current()
    }

    fn qos(&self) -> &Qos {
        &self.qos
    }

    fn retention(&self) -> Result<Retention, TransportError> {
        let config = self.topic.stored_config().map_err(failed("read a topic's description"))?;
        Ok(parsed(&self.topic, &config.description)?.qos.retention)
    }

    fn schemas(&self) -> Result<Vec<SchemaId>, TransportError> {
        self.shared.schemas.of(self.topic.name())
    }

    fn declare_schema(&self, id: SchemaId, after: usize) -> Result<Declared, TransportError> {
        self.shared.schemas.declare(self.topic.name(), id, after)
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        self.opened(request, None)
    }

    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        self.opened(request, Some(incarnation))
    }

    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        self.shared.check_open()?;
        Ok(Box::new(JournalReader::open(&self.topic, request, &self.shared)?))
    }

    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError> {
        let info = |partition| {
            let info = self.topic.info(partition).map_err(failed("query a partition"))?;
            Ok(PartitionInfo {
                partition,
                first: info.first_offset,
                end: info.end_offset,
                durable: info.durable_offset,
                bytes: Some(info.bytes),
                missing: info.recovery.missing,
                missing_from: info.recovery.missing_from,
                last_time: info.last_time,
                taken: Some(Taken { samples: info.taken.samples, bytes: info.taken.bytes }),
                log: (info.log_id != 0)
                    .then_some(LogIdentity { id: info.log_id, former: info.former_log }),
            })
        };
        (0..self.qos.partitions).map(info).collect()
    }

    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        let now = self.shared.clock.uptime();
        let producers = self.topic.producers(now).map_err(failed("list the producers"))?;
        let info = |info: helio_journal::ProducerInfo| WriterInfo {
            partition: 0,
            alive: Some(if info.in_lease { Alive::Yes } else { Alive::No }),
            seen: info.seen,
            producer: Producer { name: info.name, incarnation: info.incarnation },
        };
        Ok(producers.into_iter().map(info).collect())
    }

    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        let group = self.topic.group(&group_name(group)?).map_err(failed("open the group"))?;
        self.positions(&group)
    }

    fn groups(&self) -> Result<Vec<GroupState>, TransportError> {
        let groups = self.topic.groups().map_err(failed("list the groups"))?;
        let member = |member: MemberInfo| GroupMember {
            name: member.name,
            process: Some(member.pid),
            host: None,
            partitions: member.partitions,
        };
        let state = |group: &Group| {
            let members = group.members().into_iter().map(member).collect();
            let (name, committed) = (group.name().to_owned(), self.positions(group)?);
            Ok(GroupState { name, members, committed })
        };
        groups.iter().map(state).collect()
    }
}
