//! The writer's state: requests in, records and answers out.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::check::check;
use crate::lease::{LeaseImage, Leases};
use crate::record::{Builder, Kind, Record};
use crate::tree::{Entry, Place};
use crate::txn::Txn;
use crate::view::{Source, StoredPlace, View, resolve};
use crate::{
    Alarm, AlarmState, Error, EventKind, Fields, KeyValue, LeaseStatus, Limits, Revision,
    TxnRequest, WriteRequest, WriteResponse,
};

/// Revisions between two marks of where they lie in the log.
const MARK_INTERVAL: Revision = 64;
/// Leases revoked at once when they expire.
pub const EXPIRED_AT_ONCE: usize = 1000;

/// What a batch that could not be appended must leave as it was.
#[derive(Debug)]
pub struct Savepoint {
    view: View,
    alarms: BTreeSet<Alarm>,
}

/// A request's effect.
#[derive(Debug)]
pub struct Outcome {
    /// What to append to the log, if the request changed something; the answer waits for it.
    pub record: Option<Bytes>,
    /// The answer.
    pub response: Result<WriteResponse, Error>,
}

impl From<Result<WriteResponse, Error>> for Outcome {
    fn from(response: Result<WriteResponse, Error>) -> Self {
        Self { record: None, response }
    }
}

/// Everything but the bytes of values: keys, leases, alarms, as of the last record built.
#[derive(Debug)]
pub struct State {
    pub(crate) view: View,
    pub(crate) leases: Leases,
    alarms: BTreeSet<Alarm>,
    limits: Limits,
    /// Deletions that the tree still holds, oldest first.
    deletions: VecDeque<(Revision, Arc<[u8]>)>,
    marks: VecDeque<(Revision, u64)>,
    /// Records that were built and not yet [released](Self::release).
    pending: VecDeque<Bytes>,
    next_lease: u64,
    /// The revision of the snapshot: older records are in it.
    restored: Revision,
    /// Whether a compaction was asked for: the first one may be at revision 0, as in etcd.
    was_compacted: bool,
    /// A write failed halfway: nothing more is written.
    broken: bool,
}

/// Records built and not yet in the log, before the log.
struct Pending<'a> {
    first: u64,
    records: &'a VecDeque<Bytes>,
    log: &'a dyn Source,
}

impl Source for Pending<'_> {
    fn record(&self, number: u64) -> Result<Option<Bytes>, Error> {
        match number.checked_sub(self.first) {
            Some(at) => Ok(self.records.get(at as usize).cloned()),
            None => self.log.record(number),
        }
    }

    fn snapshot(&self, key: &[u8]) -> Option<KeyValue> {
        self.log.snapshot(key)
    }
}

/// What a snapshot starts with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The revision of its keys.
    pub revision: Revision,
    /// The compact revision.
    pub compact_revision: Revision,
    /// The first record that is replayed.
    pub next_record: u64,
    /// Leases.
    pub leases: Vec<LeaseImage>,
    /// Alarms.
    pub alarms: Vec<Alarm>,
}

impl State {
    /// An empty store, at revision 1, whose next record has this number. `lease_seed` makes the
    /// ids of leases that the store chooses.
    pub fn new(next_record: u64, limits: Limits, lease_seed: u64) -> Self {
        let view = View { revision: 1, next_record, ..View::default() };
        Self {
            view,
            leases: Leases::default(),
            alarms: BTreeSet::new(),
            limits,
            deletions: VecDeque::new(),
            marks: VecDeque::new(),
            pending: VecDeque::new(),
            next_lease: lease_seed,
            restored: 0,
            was_compacted: false,
            broken: false,
        }
    }

    /// Takes over a snapshot's head; [`load`](Self::load) its keys next, then
    /// [`replay`](Self::replay) the log from the head's `next_record` on.
    pub fn restore(&mut self, image: &Image, now_ms: u64) {
        self.view.revision = image.revision;
        self.restored = image.revision;
        self.view.compact_revision = image.compact_revision;
        self.was_compacted = true;
        self.view.next_record = image.next_record;
        for lease in &image.leases {
            self.leases.insert(*lease, now_ms);
        }
        self.alarms = image.alarms.iter().copied().collect();
    }

    /// Adds a key of a snapshot.
    pub fn load(&mut self, kv: &KeyValue, at: StoredPlace) {
        let fields = kv.fields();
        let place = Place::put(at.record, at.start, at.length);
        let key: Arc<[u8]> = fields.key.into();
        self.leases.attach(fields.lease, key.clone());
        self.view.tree.insert(Entry { key, revision: fields.mod_revision, place });
    }

    /// The head of a snapshot of the keys as of `revision`, replayed from `next_record` on.
    pub fn image(&self, revision: Revision, next_record: u64) -> Image {
        Image {
            revision,
            compact_revision: self.view.compact_revision.min(revision),
            next_record,
            leases: self.leases.images(),
            alarms: self.alarms.iter().copied().collect(),
        }
    }

    /// The keys as of the last record built.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// Alarms raised.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.alarms.iter().copied().collect()
    }

    /// Ids of all leases, ascending.
    pub fn leases(&self) -> Vec<i64> {
        self.leases.ids()
    }

    /// A lease's remaining time and keys.
    pub fn lease_status(&self, id: i64, now_ms: u64) -> LeaseStatus {
        self.leases.status(id, now_ms)
    }

    /// When the next lease expires.
    pub fn next_lease_deadline_ms(&self) -> Option<u64> {
        self.leases.next_deadline_ms()
    }

    /// Leases that have expired: each wants a [`WriteRequest::LeaseRevoke`].
    pub fn expired_leases(&self, now_ms: u64) -> Vec<i64> {
        self.leases.expired(now_ms, EXPIRED_AT_ONCE)
    }

    /// Gives every lease its full time to live from now on, as a new leader does.
    pub fn extend_leases(&mut self, now_ms: u64) {
        self.leases.extend_all(now_ms);
    }

    /// The first record that can hold a revision, or a later one.
    pub fn record_of(&self, revision: Revision) -> u64 {
        let at = self.marks.partition_point(|(r, _)| *r <= revision);
        match at.checked_sub(1) {
            Some(at) => self.marks[at].1,
            None => self.marks.front().map_or(self.view.next_record, |(_, record)| *record),
        }
    }

    /// Says that records below `next` lie in the log, where [`Source`] reads them.
    pub fn release(&mut self, next: u64) {
        while self.first_pending() < next && self.pending.pop_front().is_some() {}
    }

    /// Begins a batch.
    pub fn savepoint(&mut self) -> Savepoint {
        self.leases.forget_changes();
        Savepoint { view: self.view.clone(), alarms: self.alarms.clone() }
    }

    /// Undoes all since a savepoint, the last one taken: its records are in no log.
    pub fn roll_back(&mut self, to: Savepoint) {
        let built = self.view.next_record - to.view.next_record;
        self.pending.truncate(self.pending.len().saturating_sub(built as usize));
        self.view = to.view;
        self.alarms = to.alarms;
        self.leases.undo_changes();
        let revision = self.view.revision;
        let later = self.deletions.partition_point(|(at, _)| *at <= revision);
        self.deletions.truncate(later);
        self.marks.truncate(self.marks.partition_point(|(at, _)| *at <= revision));
    }

    fn first_pending(&self) -> u64 {
        self.view.next_record - self.pending.len() as u64
    }

    /// Evaluates a request at the last record built, and changes the state as if its record were
    /// stored. The caller appends records in order and answers when they are committed.
    pub fn write(&mut self, request: &WriteRequest, now_ms: u64, log: &dyn Source) -> Outcome {
        if self.broken {
            return Err(Error::Corrupt).into();
        }
        if let Err(error) = check(request, &self.limits).and_then(|()| self.admit(request)) {
            return Err(error).into();
        }
        let result = match request {
            WriteRequest::Put(_) | WriteRequest::DeleteRange(_) | WriteRequest::Txn(_) => {
                self.write_keys(request, log)
            }
            WriteRequest::Compact(revision) => self.compact(*revision),
            WriteRequest::LeaseGrant { id, ttl } => self.grant(*id, *ttl, now_ms),
            WriteRequest::LeaseRevoke { id } => self.revoke(*id, log),
            WriteRequest::LeaseKeepAlive { id } => Ok(self.keep_alive(*id, now_ms)),
            WriteRequest::Alarm { alarm, state } => Ok(self.set_alarm(*alarm, *state)),
        };
        result.unwrap_or_else(|error| Err(error).into())
    }

    /// Refuses what adds data while there is no space.
    fn admit(&self, request: &WriteRequest) -> Result<(), Error> {
        let grows = match request {
            WriteRequest::Put(_) | WriteRequest::LeaseGrant { .. } => true,
            WriteRequest::Txn(txn) => has_put(txn),
            _ => false,
        };
        if self.alarms.contains(&Alarm::Corrupt) {
            return Err(Error::Corrupt);
        }
        if grows && self.alarms.contains(&Alarm::NoSpace) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    fn write_keys(&mut self, request: &WriteRequest, log: &dyn Source) -> Result<Outcome, Error> {
        let number = self.view.next_record;
        let pending =
            Pending { first: number - self.pending.len() as u64, records: &self.pending, log };
        let mut txn = Txn::new(&mut self.view, &mut self.leases, &pending);
        txn.check(request)?;
        let response = txn.run(request);
        let (record, deleted) = txn.into_record();
        let response = response.inspect_err(|_| self.broken = true)?;
        let record = record.map(|builder| self.finish(builder, deleted));
        Ok(Outcome { record, response: Ok(response) })
    }

    fn finish(&mut self, builder: Builder, deleted: Vec<Arc<[u8]>>) -> Bytes {
        if builder.changes() > 0 {
            self.view.revision += 1;
            self.advanced(self.view.revision, deleted);
        }
        let record = builder.finish();
        self.pending.push_back(record.clone());
        self.view.next_record += 1;
        record
    }

    /// Notes that the record at hand has a revision.
    fn advanced(&mut self, revision: Revision, deleted: Vec<Arc<[u8]>>) {
        if self.marks.back().is_none_or(|(r, _)| *r + MARK_INTERVAL <= revision) {
            self.marks.push_back((revision, self.view.next_record));
        }
        self.deletions.extend(deleted.into_iter().map(|key| (revision, key)));
    }

    /// A record that changes no key.
    fn plain(&mut self, kind: Kind, numbers: &[i64]) -> Bytes {
        let mut builder = Builder::new(kind, self.view.next_record, self.view.revision);
        for number in numbers {
            builder.number(*number);
        }
        self.finish(builder, Vec::new())
    }

    fn compact(&mut self, revision: Revision) -> Result<Outcome, Error> {
        let is_first = revision == 0 && !self.was_compacted;
        if revision <= self.view.compact_revision && !is_first {
            return Err(Error::Compacted);
        }
        if revision > self.view.revision {
            return Err(Error::FutureRevision);
        }
        let record = self.plain(Kind::Compact, &[revision]);
        self.compacted(revision);
        let response = Ok(WriteResponse::Compact(self.view.revision));
        Ok(Outcome { record: Some(record), response })
    }

    /// Drops what no revision from `revision` on can show. The revision before it stays
    /// readable, for previous values and snapshots.
    fn compacted(&mut self, revision: Revision) {
        self.was_compacted = true;
        self.view.compact_revision = self.view.compact_revision.max(revision);
        while self.deletions.front().is_some_and(|(at, _)| *at < revision) {
            let Some((at, key)) = self.deletions.pop_front() else { return };
            let same = |e: &Entry| e.revision == at && !e.is_live();
            if self.view.tree.get(&key).is_some_and(same) {
                self.view.tree.remove(&key);
            }
        }
        while self.marks.get(1).is_some_and(|(r, _)| *r <= revision) {
            self.marks.pop_front();
        }
    }

    fn grant(&mut self, id: i64, ttl: i64, now_ms: u64) -> Result<Outcome, Error> {
        let id = if id == 0 { self.choose_lease() } else { id };
        let ttl = self.leases.check_grant(id, ttl)?;
        let record = self.plain(Kind::Grant, &[id, ttl]);
        self.leases.insert(LeaseImage { id, ttl, checkpoint: 0 }, now_ms);
        let response = WriteResponse::LeaseGrant { revision: self.view.revision, id, ttl };
        Ok(Outcome { record: Some(record), response: Ok(response) })
    }

    /// A positive id that no lease has (splitmix64).
    fn choose_lease(&mut self) -> i64 {
        loop {
            self.next_lease = self.next_lease.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.next_lease;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let id = ((mixed ^ mixed >> 31) >> 1).cast_signed();
            if id != 0 && !self.leases.contains(id) {
                return id;
            }
        }
    }

    fn revoke(&mut self, id: i64, log: &dyn Source) -> Result<Outcome, Error> {
        let keys = self.leases.keys(id).ok_or(Error::LeaseNotFound)?;
        let number = self.view.next_record;
        let pending =
            Pending { first: number - self.pending.len() as u64, records: &self.pending, log };
        let mut txn = Txn::revoke(&mut self.view, &mut self.leases, &pending, id);
        let result = keys.iter().try_for_each(|key| txn.delete(key).map(drop));
        let (record, deleted) = txn.into_record();
        result.inspect_err(|_| self.broken = true)?;
        let record = record.map(|builder| self.finish(builder, deleted));
        self.leases.revoke(id);
        Ok(Outcome { record, response: Ok(WriteResponse::LeaseRevoke(self.view.revision)) })
    }

    fn keep_alive(&mut self, id: i64, now_ms: u64) -> Outcome {
        let renewed = self.leases.keep_alive(id, now_ms);
        let (ttl, checkpointed) = renewed.unwrap_or((0, false));
        let record = checkpointed.then(|| self.plain(Kind::Checkpoint, &[id, 0]));
        let response = WriteResponse::LeaseKeepAlive { revision: self.view.revision, id, ttl };
        Outcome { record, response: Ok(response) }
    }

    fn set_alarm(&mut self, alarm: Alarm, state: AlarmState) -> Outcome {
        let raised = state == AlarmState::Raised;
        let changes = raised != self.alarms.contains(&alarm);
        let record = changes.then(|| self.plain(Kind::Alarm, &[alarm as i64, i64::from(raised)]));
        self.apply_alarm(alarm, raised);
        Outcome { record, response: Ok(WriteResponse::Alarm(self.view.revision)) }
    }

    fn apply_alarm(&mut self, alarm: Alarm, raised: bool) {
        if raised {
            self.alarms.insert(alarm);
        } else {
            self.alarms.remove(&alarm);
        }
    }

    /// A record of the remaining times of leases of `least_ttl` seconds and more, if any changed.
    pub fn checkpoint_leases(&mut self, now_ms: u64, least_ttl: i64) -> Option<Bytes> {
        let left = self.leases.to_checkpoint(now_ms, least_ttl);
        let numbers: Vec<i64> = left.iter().flat_map(|(id, left)| [*id, *left]).collect();
        for (id, left) in left {
            self.leases.mark(id, left);
        }
        (!numbers.is_empty()).then(|| self.plain(Kind::Checkpoint, &numbers))
    }

    /// Raises or clears an alarm without a record, as when the disk is full.
    pub fn override_alarm(&mut self, alarm: Alarm, state: AlarmState) {
        self.apply_alarm(alarm, state == AlarmState::Raised);
    }

    /// A record that moves the revision up, and compacts all older ones.
    ///
    /// # Errors
    ///
    /// [`Error::Compacted`] if the revision is not above the current one.
    pub fn jump(&mut self, revision: Revision) -> Result<Bytes, Error> {
        if revision <= self.view.revision {
            return Err(Error::Compacted);
        }
        self.view.revision = revision;
        self.advanced(revision, Vec::new());
        let record = self.plain(Kind::Jump, &[]);
        self.compacted(revision);
        Ok(record)
    }

    /// Applies a record of the log, by its number.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if its checksum, number or revision is wrong.
    pub fn replay(
        &mut self,
        number: u64,
        record: Bytes,
        now_ms: u64,
        log: &dyn Source,
    ) -> Result<(), Error> {
        if number < self.view.next_record {
            return Err(Error::Corrupt);
        }
        self.leases.forget_changes();
        self.view.next_record = number;
        let record = Record::parse(record, number)?;
        let number = |at| record.body_number(at).ok_or(Error::Corrupt);
        match record.kind {
            Kind::Changes => self.replay_changes(&record, log)?,
            Kind::Revoke => {
                self.replay_changes(&record, log)?;
                self.leases.revoke(number(0)?);
            }
            Kind::Grant => {
                let image = LeaseImage { id: number(0)?, ttl: number(1)?, checkpoint: 0 };
                self.leases.insert(image, now_ms);
            }
            Kind::Compact => self.compacted(number(0)?),
            Kind::Checkpoint => {
                for at in (0..record.body_numbers()).step_by(2) {
                    self.leases.restore(number(at)?, number(at + 1)?, now_ms);
                }
            }
            Kind::Jump => {
                self.view.revision = self.view.revision.max(record.revision);
                self.advanced(self.view.revision, Vec::new());
                self.compacted(record.revision);
            }
            Kind::Alarm => {
                let (alarm, raised) = record.alarm().ok_or(Error::Corrupt)?;
                self.apply_alarm(alarm, raised);
            }
        }
        self.view.next_record += 1;
        Ok(())
    }

    fn replay_changes(&mut self, record: &Record, log: &dyn Source) -> Result<(), Error> {
        if record.revision <= self.restored {
            return Ok(());
        }
        let mut deleted = Vec::new();
        let mut end = None;
        for change in record.changes() {
            let place = change.place;
            end = Some(place.span().end);
            let fields = Fields::decode(&record.bytes[place.span()]).ok_or(Error::Corrupt)?;
            let known = self.view.tree.get(fields.key).map(|e| e.key.clone());
            let key = known.unwrap_or_else(|| fields.key.into());
            self.detach_before(&key, change.before, record, log);
            self.leases.attach(fields.lease, key.clone());
            if change.kind == EventKind::Delete {
                deleted.push(key.clone());
            }
            self.view.tree.insert(Entry { key, revision: record.revision, place });
        }
        match end {
            Some(end) if end != record.bytes.len() => return Err(Error::Corrupt),
            Some(_) if record.revision <= self.view.revision => return Err(Error::Corrupt),
            None if record.kind == Kind::Changes => return Err(Error::Corrupt),
            None => return Ok(()),
            Some(_) => self.view.revision = record.revision,
        }
        self.advanced(record.revision, deleted);
        Ok(())
    }

    /// Detaches a key from the lease of its value before.
    fn detach_before(
        &mut self,
        key: &Arc<[u8]>,
        before: Option<(Revision, Place)>,
        record: &Record,
        log: &dyn Source,
    ) {
        let Some((_, place)) = before.filter(|(_, p)| !p.is_deletion()) else { return };
        let kv = if place.record == record.number {
            KeyValue::from_log(record.bytes.clone(), place.span())
        } else {
            resolve(log, key, place).ok()
        };
        if let Some(lease) = kv.map(|kv| kv.fields().lease).filter(|lease| *lease != 0) {
            self.leases.detach(lease, key);
        }
    }
}

fn has_put(txn: &TxnRequest) -> bool {
    txn.success.iter().chain(&txn.failure).any(|op| match op {
        crate::RequestOp::Put(_) => true,
        crate::RequestOp::Txn(txn) => has_put(txn),
        _ => false,
    })
}
