//! Audits by what is stored: of the log itself, of a group, of a copy.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::time::Duration;

use helio_bus::transport::PartitionInfo;
use helio_bus::{Bus, Event, Lagging, Sample, Start, Subscribe, Topic, TopicError, TopicSpec};
use helio_core::Qos;
use helio_core::codec::Codec;
use helio_core::qos::Retention;
use serde::{Deserialize, Serialize};

use crate::topics::{Keep, Part, control_topic, open_or_create, schema_of};
use crate::visit::{Audit, Control, Digest, Ledger, PayloadHash, Visit, payload_hash};

use super::error::ReaderError;
use super::packets::{DEFAULT_PINNED_BYTES, Packets, ccd_of};
use super::start::{Index, STORED_TIMEOUT, Stream, end, starts};

/// What a member of a group has read of a visit in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadDigest {
    /// The group.
    pub group: String,
    /// The member: the producer name of its bus.
    pub member: String,
    /// The visit.
    pub visit: i64,
    /// The partition.
    pub partition: i32,
    /// The detectors whose alerts are in the partition.
    pub detectors: Vec<DetectorDigest>,
}

/// What was read of a detector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectorDigest {
    /// The detector.
    pub detector: i32,
    /// Its alerts.
    pub alerts: Digest,
}

helio_core::has_schema!(DetectorDigest, "helio.alerts.DetectorDigest", {
    detector: i32 [],
    alerts: Digest [],
});

helio_core::has_schema!(ReadDigest, "helio.alerts.ReadDigest", {
    group: String [],
    member: String [],
    visit: i64 [],
    partition: i32 [],
    detectors: Vec<DetectorDigest> [description("those whose alerts are in the partition")],
});

impl ReadDigest {
    pub(super) fn new(
        group: &str,
        member: &str,
        visit: i64,
        partition: u32,
        digests: &BTreeMap<i32, Digest>,
    ) -> Self {
        let one = |(detector, alerts): (&i32, &Digest)| DetectorDigest {
            detector: *detector,
            alerts: *alerts,
        };
        Self {
            group: group.to_owned(),
            member: member.to_owned(),
            visit,
            partition: partition as i32,
            detectors: digests.iter().map(one).collect(),
        }
    }

    /// The key, under which the newest counts: group, visit and partition.
    pub(super) fn key(&self) -> String {
        format!("{}/{}/{}", self.group, self.visit, self.partition)
    }
}

/// The alerts of a visit: of those with one identifier, the first in the log.
type Counted = BTreeMap<(i32, i64), PayloadHash>;

/// What a group has read of a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupAudit {
    /// The sum of what its members have read, against the manifests.
    pub audit: Audit,
    /// Who has read each partition.
    pub members: BTreeMap<u32, String>,
    /// The partitions that may have alerts of the visit, and of which no member has committed that
    /// it read the visit to its end.
    pub missing: Vec<u32>,
}

impl GroupAudit {
    /// Whether the group has all that was announced and decided, and nothing else.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.missing.is_empty() && self.audit.is_equal()
    }
}

/// A stream's control topic and the places of a visit.
struct Subject {
    topic: Topic,
    ledger: Ledger,
    /// Where the alerts of the visit that count lie in each partition.
    ranges: Vec<Range<u64>>,
    /// What is stored.
    stored: Vec<Range<u64>>,
}

impl Subject {
    fn new(stream: Stream<'_>, visit: i64) -> Result<Self, ReaderError> {
        let topic = stream.topic()?;
        let ledger = stream.read_ledger()?;
        let partitions = topic.partitions()?;
        let index = Index { stream, topic: &topic, partitions: &partitions, ledger: &ledger };
        let begin = index.visit(visit)?;
        let closing = ledger.visit(visit).and_then(Visit::closing).cloned();
        let range = |(begin, info): (u64, &PartitionInfo)| {
            let end = closing.as_ref().map(|closing| end(closing, info.partition as usize));
            begin..end.unwrap_or(info.end).min(info.end)
        };
        let ranges = begin.offsets.into_iter().zip(&partitions).map(range).collect();
        let stored = partitions.iter().map(|info| info.first..info.end).collect();
        Ok(Self { topic, ledger, ranges, stored })
    }

    fn audit(&self, visit: i64, found: &Counted) -> Result<Audit, ReaderError> {
        let visit = self.ledger.visit(visit).ok_or(ReaderError::NoSuchVisit { visit })?;
        let mut digests: BTreeMap<i32, Digest> = BTreeMap::new();
        for ((detector, id), payload) in found {
            digests.entry(*detector).or_default().add(*id, *payload);
        }
        Ok(Audit::of(visit, &digests))
    }
}

impl Stream<'_> {
    /// Compares the alerts that are stored of a visit with the visit's manifests and closing
    /// record. All packets between the visit's first and last are read.
    ///
    /// # Errors
    /// [`ReaderError::NoSuchVisit`]; [`ReaderError::Removed`] if retention has removed some.
    pub fn audit(self, visit: i64) -> Result<Audit, ReaderError> {
        let subject = Subject::new(self, visit)?;
        let found = count(self.bus, &subject.topic, visit, &subject.ranges)?;
        subject.audit(visit, &found)
    }

    /// Compares what the members of a group have committed of a visit with the visit's manifests
    /// and closing record.
    ///
    /// # Errors
    /// [`ReaderError::NoSuchVisit`].
    pub fn audit_group(self, group: &str, visit: i64) -> Result<GroupAudit, ReaderError> {
        let ledger = self.read_ledger()?;
        let of_ledger = ledger.visit(visit).ok_or(ReaderError::NoSuchVisit { visit })?;
        let starts = starts(of_ledger, self.topic()?.qos().partitions as usize);
        let (mut members, mut by_partition) = (BTreeMap::new(), BTreeMap::new());
        for record in self.committed(group, visit)? {
            let partition = record.partition as u32;
            members.insert(partition, record.member);
            by_partition.insert(partition, record.detectors);
        }
        let mut digests: BTreeMap<i32, Digest> = BTreeMap::new();
        for DetectorDigest { detector, alerts } in by_partition.into_values().flatten() {
            let digest = digests.entry(detector).or_default();
            *digest = digest.and(alerts);
        }
        let needed = (0..).zip(starts).filter(|(_, start)| start.may_have_alerts);
        let missing = needed.map(|(partition, _)| partition);
        let missing = missing.filter(|partition| !members.contains_key(partition)).collect();
        Ok(GroupAudit { audit: Audit::of(of_ledger, &digests), members, missing })
    }

    /// Compares the alerts that a copy of this stream has of a visit with this stream's manifests
    /// and closing record. The copy's offsets are its own: all that it has stored is read. Alerts
    /// that were late here may be in the copy.
    ///
    /// # Errors
    /// [`ReaderError`] as of [`Stream::audit`].
    pub fn audit_copy(self, copy: Stream<'_>, visit: i64) -> Result<Audit, ReaderError> {
        let subject = Subject::new(self, visit)?;
        let topic = copy.topic()?;
        let stored = topic.partitions()?;
        let stored: Vec<_> = stored.iter().map(|info| info.first..info.end).collect();
        let mut found = count(copy.bus, &topic, visit, &stored)?;
        let counted = count(self.bus, &subject.topic, visit, &subject.ranges)?;
        if found.keys().any(|alert| !counted.contains_key(alert)) {
            let behind = subject.ranges.iter().zip(&subject.stored);
            let behind: Vec<_> = behind.map(|(counts, stored)| counts.end..stored.end).collect();
            let late = count(self.bus, &subject.topic, visit, &behind)?;
            found.retain(|alert, _| counted.contains_key(alert) || !late.contains_key(alert));
        }
        subject.audit(visit, &found)
    }

    /// Reads the control topic.
    fn read_ledger(self) -> Result<Ledger, ReaderError> {
        let mut ledger = Ledger::default();
        let codec = Codec::new(&schema_of::<Control>());
        let topic = control_topic(self.bus, self.name)?;
        for_stored(&topic, Subscribe::from(Start::Earliest), |sample| {
            // Another program's record has no effect.
            if let Ok(record) = codec.deserialize(&sample.payload) {
                ledger.take(record);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(ledger)
    }

    /// What members of a group have committed of a visit, in the order of the log.
    fn committed(self, group: &str, visit: i64) -> Result<Vec<ReadDigest>, ReaderError> {
        let topic = digests_topic(self)?;
        let codec = Codec::new(&schema_of::<ReadDigest>());
        let prefix = format!("{group}/{visit}/");
        let options = Subscribe::from(Start::Earliest).key_prefix(prefix.as_bytes());
        let mut records = Vec::new();
        for_stored(&topic, options, |sample| {
            let record = codec.deserialize::<ReadDigest>(&sample.payload).ok();
            records.extend(record.filter(|one| one.group == group && one.visit == visit));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(records)
    }
}

/// Opens the topic of digests of a stream, or creates it.
pub(super) fn digests_topic(stream: Stream<'_>) -> Result<Topic, TopicError> {
    let spec = TopicSpec::of(Part::Digests.name(stream.name)?).schema(schema_of::<ReadDigest>());
    let age = Some(Duration::from_secs(u64::from(Keep::MOST_DAYS) * 24 * 3_600));
    let retention = || Retention { bytes: None, age, last_value: false, default: true };
    open_or_create(stream.bus, spec, || Qos { retention: retention(), ..Qos::stream() })
}

/// Reads ranges of offsets, one for each partition, and counts the alerts of a visit.
fn count(
    bus: &Bus,
    topic: &Topic,
    visit: i64,
    ranges: &[Range<u64>],
) -> Result<Counted, ReaderError> {
    let (mut packets, mut counted) = (Packets::new(bus), Counted::new());
    for (partition, range) in (0..).zip(ranges).filter(|(_, range)| !range.is_empty()) {
        let from = Start::Offset { partition, offset: range.start };
        let options = Subscribe::from(from).partitions([partition]).pinned(DEFAULT_PINNED_BYTES);
        for_stored(topic, options, |sample| {
            if sample.offset >= range.end {
                return Ok(ControlFlow::Break(()));
            }
            let ccd = ccd_of(sample.headers.as_ref());
            if ccd.is_none_or(|ccd| ccd.visit == visit) {
                let opened = packets.open(&sample)?.into_iter().flatten();
                for packet in opened.filter(|packet| packet.ccd.visit == visit) {
                    let alert = (packet.ccd.detector, packet.id);
                    counted.entry(alert).or_insert_with(|| payload_hash(&packet.datum));
                }
            }
            if sample.offset + 1 == range.end {
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(counted)
}

/// Visits the stored samples of a topic.
pub(super) fn for_stored(
    topic: &Topic,
    options: Subscribe,
    mut visit: impl FnMut(Sample) -> Result<ControlFlow<()>, ReaderError>,
) -> Result<(), ReaderError> {
    let mut subscription = topic.subscribe(options.lagging(Lagging::Lossless))?;
    subscription.set_fence()?;
    while let Some(event) = subscription.next_stored(STORED_TIMEOUT)? {
        if let Event::Sample(sample) = event
            && visit(sample)?.is_break()
        {
            break;
        }
    }
    Ok(())
}
