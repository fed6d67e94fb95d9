//! A reader's progress: positions, visits, decisions, and the records that it publishes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use helio_bus::transport::PartitionInfo;
use helio_bus::{Bus, Gap, Message, PendingPublish, Publisher, Sample, Topic};
use helio_core::Tai;
use helio_core::codec::Codec;
use helio_core::schema::HasSchema;
use serde::Serialize;

use crate::topics::{Part, control_topic, schema_of};
use crate::visit::{
    Audit, Closing, Control, Effect, Ledger, MAX_VISITS, Position, ReadAlert, Reader, Role, Seen,
    Visit,
};

use super::alert::{VisitEvent, gap_end};
use super::audit::{ReadDigest, digests_topic};
use super::error::ReaderError;
use super::start::{Checkpoint, Stream, checkpoints_topic, end, starts};

/// How long a receipt is waited for.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two attempts to propose a closing record, or to query the partitions' ends.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A reader's place in a partition.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    is_own: bool,
    /// Where it began to read.
    from: u64,
    /// Where it began to return alerts.
    begin: u64,
    /// The next offset.
    next: u64,
}

/// A closing record whose visit is not read to its end.
struct Decision {
    closing: Closing,
    late: Vec<(i32, i64)>,
    /// Whether it was stored when the reader was opened.
    is_past: bool,
}

/// See the module.
pub(super) struct Progress {
    bus: Bus,
    name: String,
    topic: Topic,
    reader: Reader,
    cursors: Vec<Cursor>,
    /// Whether all that is stored was read.
    is_from_earliest: bool,
    /// Whether a start was found: events before it are those of the past.
    has_started: bool,
    decisions: BTreeMap<i64, Decision>,
    proposals: BTreeMap<i64, Closing>,
    /// Proposals whose receipts are pending.
    in_flight: BTreeMap<i64, (Closing, PendingPublish)>,
    queries: BTreeSet<i64>,
    retry_at: Option<Instant>,
    proposer: Option<Publisher>,
    /// Decided visits and partitions that were read to their ends: a member of a group has to
    /// publish their digests.
    unpublished: BTreeSet<(i64, u32)>,
    events: Vec<VisitEvent>,
}

impl Progress {
    pub(super) fn new(stream: Stream<'_>, role: Role, topic: Topic, visits: usize) -> Self {
        let Stream { bus, name } = stream;
        let partitions = topic.qos().partitions as usize;
        let reader = Reader::new(bus.producer().as_str(), role, vec![0; partitions]);
        Self {
            bus: bus.clone(),
            name: name.to_owned(),
            topic,
            reader: reader.with_tallies(visits),
            cursors: vec![Cursor::default(); partitions],
            is_from_earliest: false,
            has_started: false,
            decisions: BTreeMap::new(),
            proposals: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            queries: BTreeSet::new(),
            retry_at: None,
            proposer: None,
            unpublished: BTreeSet::new(),
            events: Vec::new(),
        }
    }

    fn stream(&self) -> Stream<'_> {
        Stream { bus: &self.bus, name: &self.name }
    }

    pub(super) fn ledger(&self) -> &Ledger {
        self.reader.ledger()
    }

    pub(super) fn audit(&self, visit: i64) -> Option<Audit> {
        self.reader.audit(visit)
    }

    pub(super) fn shutter_close(&self, visit: i64) -> Option<Tai> {
        let opening = self.ledger().visit(visit).and_then(Visit::opening);
        opening.map(|opening| Tai::from_nanos(opening.shutter_close_ns))
    }

    /// Begins to read all partitions: from `warm`, and to return alerts from `begin`.
    pub(super) fn start(&mut self, partitions: &[PartitionInfo], warm: &[u64], begin: &[u64]) {
        let own: Vec<u32> = (0..self.cursors.len() as u32).collect();
        self.assign(partitions, &own, warm, begin);
        self.is_from_earliest =
            partitions.iter().zip(warm).all(|(partition, warm)| *warm <= partition.first);
    }

    /// Reads these partitions from now on; the others are another member's.
    pub(super) fn assign(
        &mut self,
        partitions: &[PartitionInfo],
        own: &[u32],
        warm: &[u64],
        begin: &[u64],
    ) {
        for info in partitions {
            let partition = info.partition as usize;
            let cursor = &mut self.cursors[partition];
            let is_own = own.contains(&info.partition);
            if cursor.is_own && !is_own {
                self.reader.forget_partition(info.partition);
                // Its new owner reads from where the last commit was.
                self.unpublished.retain(|(_, of)| *of != info.partition);
            }
            if is_own && !cursor.is_own {
                let (from, begin) = (warm[partition], begin[partition]);
                *cursor = Cursor { is_own, from, begin, next: from };
                self.reader.advance(info.partition, from);
                self.expect_decisions(partition, begin);
            }
            self.cursors[partition].is_own = is_own;
        }
        if !std::mem::replace(&mut self.has_started, true) {
            self.forget_past();
        }
    }

    /// Reports decisions again of visits whose ends are not read in a partition.
    fn expect_decisions(&mut self, partition: usize, begin: u64) {
        let closings = self.reader.ledger().visits().filter_map(|(_, visit)| visit.closing());
        for closing in closings.filter(|closing| end(closing, partition) > begin) {
            let again = || Decision { closing: closing.clone(), late: Vec::new(), is_past: false };
            self.decisions.entry(closing.visit).or_insert_with(again);
        }
    }

    /// Leaves out the events of visits that ended before the start.
    fn forget_past(&mut self) {
        let cursors = &self.cursors;
        let is_behind = |closing: &Closing| {
            let own = cursors.iter().enumerate().filter(|(_, cursor)| cursor.is_own);
            own.clone().all(|(partition, cursor)| cursor.begin >= end(closing, partition))
        };
        self.decisions.retain(|_, one| !(one.is_past && is_behind(&one.closing)));
        let decisions = &self.decisions;
        let ledger = self.reader.ledger();
        let is_kept = |event: &VisitEvent| match event {
            VisitEvent::Opened(opening) => {
                let visit = ledger.visit(opening.visit);
                let is_open = visit.is_some_and(|visit| visit.closing().is_none());
                is_open || decisions.contains_key(&opening.visit)
            }
            _ => false,
        };
        self.events.retain(is_kept);
    }

    pub(super) fn owns(&self, partition: u32) -> bool {
        self.cursors.get(partition as usize).is_some_and(|cursor| cursor.is_own)
    }

    /// Whether an alert at a position is to be returned.
    pub(super) fn is_new(&self, at: Position) -> bool {
        let cursor = self.cursors.get(at.partition as usize);
        cursor.is_some_and(|cursor| cursor.is_own && at.offset >= cursor.begin)
    }

    /// Notes that all of a partition before an offset was read.
    pub(super) fn advance(&mut self, partition: u32, next: u64) {
        self.reader.advance(partition, next);
        if let Some(cursor) = self.cursors.get_mut(partition as usize) {
            cursor.next = next.max(cursor.next);
        }
    }

    /// The next offset of each own partition.
    pub(super) fn positions(&self) -> impl Iterator<Item = (u32, u64)> {
        let own = (0..).zip(&self.cursors).filter(|(_, cursor)| cursor.is_own);
        own.map(|(partition, cursor)| (partition, cursor.next.max(cursor.begin)))
    }

    /// The same, but not behind these positions.
    pub(super) fn positions_before<'a>(
        &'a self,
        unread: &'a [Position],
    ) -> impl Iterator<Item = (u32, u64)> + 'a {
        self.positions().map(|(partition, next)| {
            let of = unread.iter().filter(|at| at.partition == partition).map(|at| at.offset);
            (partition, of.fold(next, u64::min))
        })
    }

    /// Counts an alert.
    pub(super) fn alert(&mut self, alert: &ReadAlert) -> Seen {
        let (seen, effects) = self.reader.alert(alert);
        self.apply(alert.visit, effects);
        seen
    }

    /// Takes a sample of the control topic.
    pub(super) fn take_control(&mut self, codec: &Codec, sample: &Sample) {
        // Another program's record, or a damaged one, has no effect.
        let Ok(record) = codec.deserialize::<Control>(&sample.payload) else { return };
        let visit = record.visit();
        let opening = match &record {
            Control::Opening(opening) => Some(opening.clone()),
            _ => None,
        };
        let effects = self.reader.control(record, self.now_ns());
        let is_rejected = effects.iter().any(|effect| matches!(effect, Effect::Rejected(_)));
        if let Some(opening) = opening.filter(|_| !is_rejected) {
            self.events.push(VisitEvent::Opened(opening));
        }
        self.apply(visit, effects);
    }

    pub(super) fn gap(&mut self, part: Part, gap: Gap) {
        let is_past = |to| self.cursors.get(gap.partition as usize).is_some_and(|c| to <= c.begin);
        if part == Part::Alerts && gap_end(&gap).is_some_and(is_past) {
            return;
        }
        let topic = part.name(&self.name).map(|name| name.to_string()).unwrap_or_default();
        self.events.push(VisitEvent::Gap { topic, gap });
    }

    pub(super) fn event(&mut self, event: VisitEvent) {
        self.events.push(event);
    }

    pub(super) fn has_events(&self) -> bool {
        self.has_started && !self.events.is_empty()
    }

    /// The events since the last call; none before a start is found.
    pub(super) fn take_events(&mut self) -> Vec<VisitEvent> {
        if self.has_started { std::mem::take(&mut self.events) } else { Vec::new() }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.bus.clock().monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    /// How long nothing is due, at most `most`.
    pub(super) fn tick_in(&self, most: Duration) -> Duration {
        let left = self.reader.next_deadline().map(|at| at.saturating_sub(self.now_ns()));
        left.map_or(most, |left| Duration::from_nanos(left).clamp(Duration::from_millis(1), most))
    }

    fn apply(&mut self, visit: i64, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::QueryEnds { visit } => _ = self.queries.insert(visit),
                Effect::Propose(closing) => {
                    if self.has_whole(closing.visit) {
                        self.proposals.insert(closing.visit, closing);
                    }
                }
                Effect::Decided { closing, late } => {
                    self.proposals.remove(&visit);
                    self.in_flight.remove(&visit);
                    self.queries.remove(&visit);
                    let is_past = !self.has_started;
                    self.decisions.insert(visit, Decision { closing, late, is_past });
                    if self.decisions.len() > MAX_VISITS {
                        let ledger = self.reader.ledger();
                        self.decisions.retain(|visit, _| ledger.visit(*visit).is_some());
                    }
                }
                Effect::Rejected(cause) => self.events.push(VisitEvent::Rejected { visit, cause }),
            }
        }
    }

    /// Whether no packet of a visit lies before where this reader began.
    fn has_whole(&self, visit: i64) -> bool {
        let Some(visit) = self.ledger().visit(visit) else { return false };
        let has_starts = visit.opening().is_some_and(|opening| !opening.starts.is_empty());
        let starts = starts(visit, self.cursors.len());
        let mut partitions = starts.iter().zip(&self.cursors);
        let is_behind =
            partitions.all(|(start, cursor)| !start.may_have_alerts || cursor.from <= start.offset);
        self.is_from_earliest || has_starts && is_behind
    }

    /// Does what is due: queries, proposals, and events of visits that are read to their ends.
    pub(super) fn settle(&mut self) {
        if !self.has_started {
            return;
        }
        let effects = self.reader.tick(self.now_ns());
        self.apply(0, effects);
        self.poll_in_flight();
        let is_due = self.retry_at.is_none_or(|at| at <= Instant::now());
        if is_due && !(self.queries.is_empty() && self.proposals.is_empty()) {
            self.retry_at = None;
            self.query_ends();
            self.propose();
        }
        self.report_decisions();
    }

    fn query_ends(&mut self) {
        if self.queries.is_empty() {
            return;
        }
        let Ok(partitions) = self.topic.partitions() else { return self.retry() };
        let ends: Vec<_> = partitions.iter().map(|partition| partition.end).collect();
        for visit in std::mem::take(&mut self.queries) {
            let effects = self.reader.ends(visit, ends.clone());
            self.apply(visit, effects);
        }
    }

    fn propose(&mut self) {
        while let Some((visit, closing)) = self.proposals.pop_first() {
            match self.publish_closing(&closing) {
                Ok(pending) => _ = self.in_flight.insert(visit, (closing, pending)),
                Err(_) => {
                    self.proposals.insert(visit, closing);
                    return self.retry();
                }
            }
        }
    }

    /// Proposes again what the engine did not accept.
    fn poll_in_flight(&mut self) {
        let mut failed = Vec::new();
        self.in_flight.retain(|visit, (closing, pending)| {
            let outcome = pending.wait_for(Duration::ZERO);
            if matches!(outcome, Some(Err(_))) {
                failed.push((*visit, closing.clone()));
            }
            outcome.is_none()
        });
        if !failed.is_empty() {
            self.proposals.extend(failed);
            self.retry();
        }
    }

    fn retry(&mut self) {
        self.retry_at = Instant::now().checked_add(RETRY_INTERVAL);
    }

    fn publish_closing(&mut self, closing: &Closing) -> Result<PendingPublish, ReaderError> {
        let mut payload = Vec::new();
        let codec = Codec::new(&schema_of::<Control>());
        codec.serialize(&Control::Closing(closing.clone()), &mut payload)?;
        let publisher = match &self.proposer {
            Some(publisher) => publisher,
            None => {
                let publisher = control_topic(&self.bus, &self.name)?.publisher()?;
                self.proposer.insert(publisher)
            }
        };
        let key = closing.visit.to_string();
        Ok(publisher.publish(Message::new(&payload).key(key.as_bytes())))
    }

    /// Reports the decisions of visits of which all that counts was read.
    fn report_decisions(&mut self) {
        let cursors = &self.cursors;
        let is_read = |closing: &Closing| {
            let mut own = cursors.iter().enumerate().filter(|(_, cursor)| cursor.is_own);
            own.all(|(partition, cursor)| cursor.next >= end(closing, partition))
        };
        let read = self.decisions.iter().filter(|(_, one)| is_read(&one.closing));
        let read: Vec<_> = read.map(|(visit, _)| *visit).collect();
        for visit in read {
            if let Some(Decision { closing, late, .. }) = self.decisions.remove(&visit) {
                let read = self.read_partitions(&closing);
                self.unpublished.extend(read.into_iter().map(|partition| (visit, partition)));
                self.events.push(VisitEvent::Decided { closing, late });
            }
        }
    }

    /// The own partitions of which this reader has read what counts of a visit. Of others, the
    /// former owner has committed that it did.
    fn read_partitions(&self, closing: &Closing) -> Vec<u32> {
        let visit = self.ledger().visit(closing.visit);
        let starts = visit.map(|visit| starts(visit, self.cursors.len())).unwrap_or_default();
        let is_read = |(partition, cursor): &(usize, &Cursor)| {
            let start = starts.get(*partition).map_or(0, |start| start.offset);
            cursor.is_own && (cursor.from <= start || cursor.from < end(closing, *partition))
        };
        let read = self.cursors.iter().enumerate().filter(is_read);
        read.map(|(partition, _)| partition as u32).collect()
    }

    /// Publishes what a member of a group has read of decided visits.
    pub(super) fn publish_digests(&mut self, group: &str) -> Result<(), ReaderError> {
        if self.unpublished.is_empty() {
            return Ok(());
        }
        let mut records = Vec::new();
        for (visit, partition) in &self.unpublished {
            let Some(tally) = self.reader.tally(*visit) else { continue };
            let digests = tally.digests_in(*partition);
            let member = self.bus.producer().as_str();
            let record = ReadDigest::new(group, member, *visit, *partition, &digests);
            records.push((record.key(), record));
        }
        publish_records(&digests_topic(self.stream())?, &records)?;
        self.unpublished.clear();
        Ok(())
    }

    /// Discards what a member has read of decided visits.
    pub(super) fn discard_digests(&mut self) {
        self.unpublished.clear();
    }

    pub(super) fn publish_checkpoint(
        &mut self,
        name: &str,
        unread: &[Position],
    ) -> Result<(), ReaderError> {
        let time_ns = self.bus.clock().now().nanos();
        let record = |(partition, next): (u32, u64)| {
            let record = Checkpoint {
                name: name.to_owned(),
                partition: partition as i32,
                next: i64::try_from(next).unwrap_or(i64::MAX),
                time_ns,
            };
            (format!("{name}/{partition}"), record)
        };
        let records: Vec<_> = self.positions_before(unread).map(record).collect();
        publish_records(&checkpoints_topic(self.stream())?, &records)
    }
}

/// Publishes records under their keys, and waits until all are accepted.
fn publish_records<T: Serialize + HasSchema>(
    topic: &Topic,
    records: &[(String, T)],
) -> Result<(), ReaderError> {
    let codec = Codec::new(&schema_of::<T>());
    let mut payloads = Vec::with_capacity(records.len());
    for (_, record) in records {
        let mut payload = Vec::new();
        codec.serialize(record, &mut payload)?;
        payloads.push(payload);
    }
    let messages: Vec<_> = records
        .iter()
        .zip(&payloads)
        .map(|((key, _), payload)| Message::new(payload).key(key.as_bytes()))
        .collect();
    let outcomes = topic.publisher()?.publish_batch(&messages).wait_each_timeout(PUBLISH_TIMEOUT);
    outcomes.into_iter().try_for_each(|outcome| outcome.map(|_| ()))?;
    Ok(())
}
