//! A worker: alerts of its partitions to claims and partials.
//!
//! Constraints. Members of a group are killed, and partitions move: what a worker knows of a visit
//! comes from logs, and its position is committed only behind what it has stored.
//!
//! Operation. The filters of a visit are those of the first [`Decision::Begin`] in the log; a
//! worker filters no alert before it has read it. Matches of users whose filters rank go to the
//! cap's [`Worker`]; those of others are claimed at once. A closing record on the control topic
//! ends a visit; each partition's partial follows when all of it was read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_alerts::visit::Control;
use helio_bus::{
    Bus, Event, Lagging, Member, ReadError, Sample, Subscribe, Subscription, TransportError,
    WaitSet,
};
use helio_filter::Rank;
use helio_filter::cap::{CAP, Candidate, Match, Partial, Top, Worker, WorkerEffect};
use serde::Serialize;

use crate::counters::{Counters, add};
use crate::decisions::{BUS_TIMEOUT, ControlLog, DecisionLog, decisions_topic, log_start};
use crate::engine::{Evaluated, MAX_BATCH_ALERTS, Prepared, PreparedFilter};
use crate::error::ServiceError;
use crate::lists::json;
use crate::names::{Topics, spec};
use crate::options::Options;
use crate::python::Pythons;
use crate::records::{ActiveSet, Causes, Claimed, Decision, Place, set_cause};
use crate::statistics::VisitStatistics;
use crate::store::FilterStore;
use crate::stream::Packet;

/// Visits that a worker remembers: more than a long night's, and than a batch adds to open ones.
const MAX_VISITS: usize = 16_384;
/// Sets of filters that are prepared at a time: two, while a change goes live, and one more.
const MAX_PREPARED: usize = 3;
/// How long the first record of a visit's filters is waited for.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Alerts that are gathered into a batch, and how long the first of them waits for others: a batch
/// of a hundred filters costs about 2 ms whatever it has, and a CCD publishes about 50 alerts.
const GATHERED_ALERTS: usize = 1_024;
const GATHER_TIMEOUT: Duration = Duration::from_millis(250);
/// The longest wait for control records while a partition is read no further.
const FULL_WAIT: Duration = Duration::from_millis(50);
/// The time between two commits while alerts come.
const COMMIT_INTERVAL: Duration = Duration::from_millis(100);
/// A visit of which no opening or closing record comes for so long is given up: alerts of a
/// producer that announces nothing.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of the claims of a record, or of the users of a partial's part, and at most one user's
/// more. With the places it is below the limit of all engines.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// Whether a step did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It did.
    Worked,
    /// Nothing came before the timeout.
    Idle,
}

/// What a worker knows of a visit.
#[derive(Default)]
struct Visit {
    active: Option<Arc<ActiveSet>>,
    is_proposed: bool,
    is_opened: bool,
    ends: Option<Vec<u64>>,
    /// The partitions whose partial is in the log.
    stored: BTreeSet<u32>,
    tallies: BTreeMap<u32, Tally>,
    /// The alerts claimed for each user.
    claimed: BTreeMap<String, BTreeSet<i64>>,
    /// When its first alert was read.
    since: Duration,
}

impl Visit {
    /// Its end in a partition, if it is known.
    fn end(&self, partition: u32) -> Option<u64> {
        let ends = self.ends.as_ref()?;
        Some(ends.get(partition as usize).copied().unwrap_or(0))
    }
}

/// What was read of a partition of a visit.
#[derive(Default)]
struct Tally {
    first: u64,
    places: HashMap<i64, Place>,
    /// The alerts that are in the statistics.
    counted: HashSet<i64>,
    statistics: BTreeMap<String, BTreeMap<String, VisitStatistics>>,
    late: BTreeMap<String, u64>,
    causes: Causes,
}

/// An alert of a batch.
#[derive(Debug, Clone, Copy)]
struct Alert {
    visit: i64,
    partition: u32,
    place: Place,
}

/// What a batch has of a partition of a visit.
#[derive(Debug, Clone, Copy)]
struct Counted {
    first: u64,
    /// The alerts that count in statistics.
    count: u64,
}

/// A user's match of an alert.
#[derive(Default)]
struct UserMatch {
    is_ranked: bool,
    rank: Rank,
    /// The filters' places in the set.
    filters: Vec<usize>,
}

/// A member of the group that filters.
pub struct FilterWorker {
    options: Options,
    bus: Bus,
    counters: Arc<Counters>,
    set: WaitSet,
    alerts: Member,
    control: Member,
    decisions: Member,
    control_log: ControlLog,
    log: DecisionLog,
    store: FilterStore,
    pythons: Pythons,
    cap: Worker,
    visits: BTreeMap<i64, Visit>,
    assigned: BTreeSet<u32>,
    /// The offset behind the last processed alert of each partition, and what was committed.
    next: BTreeMap<u32, u64>,
    committed: BTreeMap<u32, u64>,
    committed_at: Duration,
    prepared: Vec<(Arc<ActiveSet>, (u64, u64), Prepared)>,
    batch: Vec<Sample>,
    /// Whether a visit ended since the last batch: its results are due.
    is_due: bool,
}

impl FilterWorker {
    /// Joins the group. The topic of alerts must exist.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn open(
        bus: &Bus,
        options: &Options,
        counters: &Arc<Counters>,
    ) -> Result<Self, ServiceError> {
        let topics = Topics::of(&options.topic);
        let topic = bus.topic(spec(&options.topic)?)?;
        let start = log_start(&topic, bus, options)?;
        let control_log = ControlLog::open(bus, &options.topic)?;
        let decided = decisions_topic(bus, &topics)?;
        let mut set = bus.wait_set()?;
        let control = set.add(control_log.subscribe(start)?);
        let decisions =
            set.add(decided.subscribe(Subscribe::from(start).lagging(Lagging::Lossless))?);
        let member = Subscribe::from(options.start).group(&options.group);
        let member = member.lagging(Lagging::Lossless).pinned(options.pinned_bytes);
        let alerts = set.add(topic.subscribe(member)?);
        let mut worker = Self {
            store: FilterStore::open(bus, &options.topic)?,
            log: DecisionLog::open(&decided)?,
            pythons: Pythons::new(bus, options.python.clone()),
            options: options.clone(),
            bus: bus.clone(),
            counters: Arc::clone(counters),
            set,
            alerts,
            control,
            decisions,
            control_log,
            cap: Worker::default(),
            visits: BTreeMap::new(),
            assigned: BTreeSet::new(),
            next: BTreeMap::new(),
            committed: BTreeMap::new(),
            committed_at: Duration::ZERO,
            prepared: Vec::new(),
            batch: Vec::new(),
            is_due: false,
        };
        worker.read_stored_logs()?;
        Ok(worker)
    }

    /// What the logs have by now, before the first alert: another worker may have begun a visit.
    fn read_stored_logs(&mut self) -> Result<(), ServiceError> {
        for member in [self.control, self.decisions] {
            self.subscription(member).set_fence()?;
            while let Some(event) = self.subscription(member).next_stored(BUS_TIMEOUT)? {
                self.take(member, event)?;
            }
        }
        Ok(())
    }

    /// Does what is pending, or waits for it.
    ///
    /// # Errors
    /// [`ServiceError`]; the worker is then opened again.
    pub fn step(&mut self, timeout: Duration) -> Result<Progress, ServiceError> {
        let mut worked = self.drain(self.decisions)? | self.drain(self.control)?;
        self.store.refresh()?;
        add(&self.counters.foreign_records, self.store.take_foreign());
        let is_full = self.is_full();
        if !is_full {
            worked |= self.drain_alerts(timeout)?;
        }
        if !worked {
            worked = if is_full { self.wait_while_full(timeout)? } else { self.wait(timeout)? };
        }
        self.process()?;
        self.give_up_orphans();
        self.log.flush()?;
        self.commit(worked)?;
        Ok(if worked { Progress::Worked } else { Progress::Idle })
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, ServiceError> {
        let next = self.set.next_timeout(timeout).map_err(|error| error.source)?;
        let Some((member, event)) = next else { return Ok(false) };
        self.take(member, event)?;
        if member == self.alerts {
            // The first of a batch, most often.
            self.drain_alerts(timeout)?;
        }
        Ok(true)
    }

    fn subscription(&mut self, member: Member) -> &mut Subscription {
        self.set.get_mut(member).expect("members of the set are never removed")
    }

    fn drain(&mut self, member: Member) -> Result<bool, ServiceError> {
        let mut worked = false;
        while let Some(event) = self.subscription(member).try_next()? {
            self.take(member, event)?;
            worked = true;
        }
        Ok(worked)
    }

    /// Takes a batch of alerts, and waits no longer than the timeout for more of them.
    fn drain_alerts(&mut self, timeout: Duration) -> Result<bool, ServiceError> {
        let (mut bytes, mut until) = (0, None);
        while bytes < self.options.batch_bytes && self.batch.len() < MAX_BATCH_ALERTS {
            let next = match self.subscription(self.alerts).try_next()? {
                Some(event) => Some((self.alerts, event)),
                None => self.gather(&mut until, timeout)?,
            };
            let Some((member, event)) = next else {
                // Nothing is held back: the positions are those of the delivered alerts.
                self.process()?;
                self.is_due = false;
                self.read_to_positions();
                return Ok(bytes > 0);
            };
            if let Event::Sample(sample) = &event
                && member == self.alerts
            {
                bytes += sample.payload.len();
            }
            self.take(member, event)?;
        }
        Ok(true)
    }

    /// Waits for an event where a batch has few alerts and no visit's results are due.
    fn gather(
        &mut self,
        until: &mut Option<Instant>,
        timeout: Duration,
    ) -> Result<Option<(Member, Event)>, ServiceError> {
        if self.is_due || self.batch.is_empty() || self.batch.len() >= GATHERED_ALERTS {
            return Ok(None);
        }
        let wait = || Instant::now() + timeout.min(GATHER_TIMEOUT);
        let left = until.get_or_insert_with(wait).saturating_duration_since(Instant::now());
        self.set.next_timeout(left).map_err(|error| error.source.into())
    }

    fn read_to_positions(&mut self) {
        for position in self.subscription(self.alerts).positions() {
            if self.assigned.contains(&position.partition) {
                let next = self.next.entry(position.partition).or_default();
                *next = position.next.max(*next);
            }
        }
        self.read_up_to_next();
    }

    fn read_up_to_next(&mut self) {
        let next: Vec<_> = self.next.iter().map(|(partition, next)| (*partition, *next)).collect();
        for (partition, next) in next {
            let effects = self.cap.read_up_to(partition, next);
            self.apply(partition, effects);
        }
    }

    fn take(&mut self, member: Member, event: Event) -> Result<(), ServiceError> {
        match event {
            Event::Sample(sample) if member == self.alerts => self.batch.push(sample),
            Event::Sample(sample) if member == self.control => {
                if let Some(record) = self.control_log.record(&sample.payload) {
                    self.control(record)?;
                }
            }
            Event::Sample(sample) => self.decided(&sample),
            Event::Assigned(partitions) => {
                self.process()?;
                self.assign(&partitions.into_iter().collect());
            }
            Event::Gap(gap) if member == self.alerts => add(&self.counters.alerts_lost, gap.lost),
            Event::Gap(gap) if member == self.decisions => {
                add(&self.counters.decisions_lost, gap.lost);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes on the partitions of an assignment, and gives up the others.
    fn assign(&mut self, partitions: &BTreeSet<u32>) {
        for partition in self.assigned.difference(partitions) {
            self.cap.revoke(*partition);
            self.next.remove(partition);
            self.committed.remove(partition);
            self.visits.values_mut().for_each(|visit| _ = visit.tallies.remove(partition));
        }
        let new: Vec<u32> = partitions.difference(&self.assigned).copied().collect();
        self.assigned.clone_from(partitions);
        let positions = self.subscription(self.alerts).positions();
        for partition in new {
            let at = positions.iter().find(|position| position.partition == partition);
            if let Some(at) = at {
                self.begin_partition(partition, at.next);
            }
        }
    }

    /// Starts a partition at a position; what the logs say of it is given again.
    fn begin_partition(&mut self, partition: u32, position: u64) {
        self.next.insert(partition, position);
        self.cap.assign(partition, position);
        let mut effects = Vec::new();
        for (visit, known) in &self.visits {
            if known.stored.contains(&partition) {
                self.cap.stored(*visit, partition);
            }
            if let Some(end) = known.end(partition) {
                effects.extend(self.cap.end(*visit, partition, end));
            }
        }
        self.apply(partition, effects);
    }

    fn visit(&mut self, visit: i64) -> &mut Visit {
        if !self.visits.contains_key(&visit) {
            if self.visits.len() >= MAX_VISITS {
                self.visits.pop_first();
            }
            let since = self.bus.clock().monotonic();
            self.visits.insert(visit, Visit { since, ..Visit::default() });
        }
        self.visits.entry(visit).or_default()
    }

    fn control(&mut self, record: Control) -> Result<(), ServiceError> {
        match record {
            Control::Opening(opening) => {
                self.visit(opening.visit).is_opened = true;
                // An activation that was acknowledged before the visit opened counts.
                self.propose(opening.visit)?;
            }
            Control::Closing(closing) => {
                let end = |end: &i64| u64::try_from(*end).unwrap_or(0);
                self.end(closing.visit, closing.ends.iter().map(end).collect());
            }
            Control::Manifest(_) => {}
        }
        Ok(())
    }

    /// Ends a visit at a position of each partition; the first end counts.
    fn end(&mut self, visit: i64, ends: Vec<u64>) {
        let known = self.visit(visit);
        if known.ends.is_some() {
            return;
        }
        known.ends = Some(ends);
        self.is_due = true;
        for partition in self.assigned.clone() {
            let end = self.visit(visit).end(partition).unwrap_or(0);
            let effects = self.cap.end(visit, partition, end);
            self.apply(partition, effects);
        }
    }

    /// Ends visits that nobody opens: they would stop positions and checkpoints for ever.
    fn give_up_orphans(&mut self) {
        let now = self.bus.clock().monotonic();
        let is_orphan = |visit: &Visit| {
            !visit.is_opened && visit.ends.is_none() && visit.since + ORPHAN_TIMEOUT <= now
        };
        let orphans: Vec<i64> =
            self.visits.iter().filter(|(_, visit)| is_orphan(visit)).map(|(id, _)| *id).collect();
        orphans.into_iter().for_each(|visit| self.end(visit, Vec::new()));
    }

    /// Proposes the filters that are active now as a visit's.
    fn propose(&mut self, visit: i64) -> Result<(), ServiceError> {
        let known = self.visit(visit);
        if known.active.is_some() || known.is_proposed {
            return Ok(());
        }
        known.is_proposed = true;
        self.store.read_stored()?;
        let active = self.store.definitions().active_set();
        self.log.append(Decision::Begin { visit, active });
        Ok(())
    }

    /// A record of the decisions. Claims and partials are not parsed: their keys say enough.
    fn decided(&mut self, sample: &Sample) {
        let key = String::from_utf8_lossy(&sample.key).into_owned();
        let mut parts = key.split('/');
        let kind = parts.next().unwrap_or_default();
        let Some(visit) = parts.next().and_then(|visit| visit.parse().ok()) else { return };
        let partition: Option<u32> = parts.next().and_then(|partition| partition.parse().ok());
        match (kind, partition) {
            ("begin", _) => {
                let Ok(Decision::Begin { active, .. }) = serde_json::from_slice(&sample.payload)
                else {
                    add(&self.counters.foreign_records, 1);
                    return;
                };
                let active = self.shared(active);
                self.visit(visit).active.get_or_insert(active);
            }
            ("partial", Some(partition)) if parts.next() == Some("last") => {
                self.cap.stored(visit, partition);
                let visit = self.visit(visit);
                visit.stored.insert(partition);
                visit.tallies.remove(&partition);
            }
            _ => {}
        }
    }

    /// An equal set that another visit has, so that it is prepared once.
    fn shared(&self, active: ActiveSet) -> Arc<ActiveSet> {
        let recent = self.visits.values().rev().filter_map(|visit| visit.active.as_ref());
        let same = recent.take(MAX_PREPARED).find(|known| ***known == active).cloned();
        same.unwrap_or_else(|| Arc::new(active))
    }

    /// Filters the batch.
    fn process(&mut self) -> Result<(), ServiceError> {
        let samples = std::mem::take(&mut self.batch);
        if samples.is_empty() {
            return Ok(());
        }
        add(&self.counters.batches, 1);
        add(&self.counters.alerts, samples.len() as u64);
        let bytes = samples.iter().map(|sample| sample.payload.len() as u64).sum();
        add(&self.counters.alert_bytes, bytes);
        let (mut packets, mut alerts) = (Vec::new(), Vec::new());
        for sample in &samples {
            let Sample { partition, offset, .. } = *sample;
            if !self.next.contains_key(&partition) {
                self.assigned.insert(partition);
                self.begin_partition(partition, offset);
            }
            let packet = self.store.stream.packet(sample.header.schema, &sample.payload)?;
            let found = packet.and_then(|p| Ok((p.identity(sample.headers.as_ref())?, p)));
            let Ok((identity, packet)) = found else {
                add(&self.counters.alerts_rejected, 1);
                continue;
            };
            let published_ns = sample.header.time.nanos();
            let place = Place { alert: identity.alert, offset, published_ns };
            alerts.push(Alert { visit: identity.visit, partition, place });
            packets.push(packet);
        }
        self.await_filters(&alerts)?;
        for (active, chosen) in self.by_set(&alerts) {
            let packets: Vec<_> = chosen.iter().map(|index| packets[*index].clone()).collect();
            let alerts: Vec<_> = chosen.iter().map(|index| alerts[*index]).collect();
            self.filter(&active, &packets, &alerts)?;
        }
        for sample in &samples {
            let next = self.next.entry(sample.partition).or_default();
            *next = (sample.offset + 1).max(*next);
        }
        self.read_up_to_next();
        Ok(())
    }

    /// Waits until the filters of all visits of a batch are decided.
    fn await_filters(&mut self, alerts: &[Alert]) -> Result<(), ServiceError> {
        let visits: BTreeSet<i64> = alerts.iter().map(|alert| alert.visit).collect();
        for visit in &visits {
            self.propose(*visit)?;
        }
        let until = Instant::now() + BEGIN_TIMEOUT;
        for visit in visits {
            while self.visit(visit).active.is_none() {
                let left = until.saturating_duration_since(Instant::now());
                match self.subscription(self.decisions).next_timeout(left)? {
                    Some(event) => self.take(self.decisions, event)?,
                    None => return Err(no_filters(visit)),
                }
            }
        }
        Ok(())
    }

    /// The alerts by their visits' filters, in order.
    fn by_set(&mut self, alerts: &[Alert]) -> Vec<(Arc<ActiveSet>, Vec<usize>)> {
        let mut sets: Vec<(Arc<ActiveSet>, Vec<usize>)> = Vec::new();
        for (index, alert) in alerts.iter().enumerate() {
            let Some(active) = self.visit(alert.visit).active.clone() else { continue };
            match sets.iter_mut().find(|(set, _)| Arc::ptr_eq(set, &active) || *set == active) {
                Some((_, chosen)) => chosen.push(index),
                None => sets.push((active, vec![index])),
            }
        }
        sets
    }

    fn filter(
        &mut self,
        active: &Arc<ActiveSet>,
        packets: &[Packet<'_>],
        alerts: &[Alert],
    ) -> Result<(), ServiceError> {
        let place = self.prepare(active)?;
        let (_, _, prepared) = &mut self.prepared[place];
        let evaluated = prepared.run(packets, &mut self.pythons)?;
        let decode = u64::try_from(evaluated.decode_cpu.as_nanos()).unwrap_or(u64::MAX);
        add(&self.counters.decode_cpu_ns, decode);
        add(&self.counters.alerts_rejected, evaluated.rejected.len() as u64);
        let filters = Arc::clone(&self.prepared[place].2.filters);
        let matches = self.tally(&filters, &evaluated, alerts);
        let mut claims: BTreeMap<(i64, u32), Vec<(Claimed, Place)>> = BTreeMap::new();
        for ((index, first), found) in matches {
            let (alert, user) = (&alerts[index], &filters[first].id.user);
            let labels = || found.filters.iter().map(|at| filters[*at].id.label());
            if found.is_ranked {
                self.rank(alert, user, found.rank.clone(), || labels().collect());
            } else if let Some(claimed) = self.claim(alert, user, || labels().collect()) {
                let claims = claims.entry((alert.visit, alert.partition)).or_default();
                claims.push((claimed, alert.place));
            }
        }
        for ((visit, partition), claims) in claims {
            for claims in records(claims) {
                let (claims, mut places): (_, Vec<Place>) = claims.into_iter().unzip();
                places.dedup();
                self.log.append(Decision::Claims { visit, partition, claims, places });
            }
        }
        Ok(())
    }

    /// The place of a prepared set.
    fn prepare(&mut self, active: &Arc<ActiveSet>) -> Result<usize, ServiceError> {
        self.store.catalog();
        let made_of = (self.store.stream.generation(), self.store.lists.generation());
        let is_it = |(set, of, _): &(Arc<ActiveSet>, (u64, u64), Prepared)| {
            *set == *active && *of == made_of
        };
        if let Some(place) = self.prepared.iter().position(is_it) {
            return Ok(place);
        }
        let prepared = Prepared::new(&mut self.store, active, &mut self.pythons)?;
        if self.prepared.len() == MAX_PREPARED {
            self.prepared.remove(0);
        }
        self.prepared.push((Arc::clone(active), made_of, prepared));
        let sets = &self.prepared;
        let of = |set: &ActiveSet, id: &crate::names::FilterId| {
            set.get(&id.user).and_then(|filters| filters.get(&id.name)) == Some(&id.version)
        };
        self.pythons.retain(|id| sets.iter().any(|(set, ..)| of(set, id)));
        Ok(self.prepared.len() - 1)
    }

    /// Adds a batch to the statistics; returns the users' matches in the order of the alerts, by
    /// the alert's index and the place of the user's first filter.
    fn tally(
        &mut self,
        filters: &[PreparedFilter],
        evaluated: &Evaluated,
        alerts: &[Alert],
    ) -> BTreeMap<(usize, usize), UserMatch> {
        if filters.is_empty() {
            return BTreeMap::new();
        }
        let (seen, counted) = self.count(evaluated, alerts);
        let mut matches: BTreeMap<(usize, usize), UserMatch> = BTreeMap::new();
        let mut first = 0;
        for (at, (filter, outcome)) in filters.iter().zip(&evaluated.outcomes).enumerate() {
            if filters[first].id.user != filter.id.user {
                first = at;
            }
            let mut of: BTreeMap<(i64, u32), u64> = BTreeMap::new();
            for (index, rank) in &outcome.matches {
                let alert = &alerts[*index];
                let number = of.entry((alert.visit, alert.partition)).or_default();
                *number += u64::from(counted[*index]);
                let found = matches.entry((*index, first)).or_default();
                (found.is_ranked, found.rank) = (filter.is_ranked, rank.clone());
                found.filters.push(at);
            }
            let cpu_ns = u64::try_from(outcome.cpu.as_nanos()).unwrap_or(u64::MAX);
            add(&self.counters.filter_cpu_ns, cpu_ns);
            add(&self.counters.matches, outcome.matches.len() as u64);
            add(&self.counters.filter_errors, outcome.errors);
            add(&self.counters.filter_failures, u64::from(outcome.failure.is_some()));
            for (at, Counted { first, count }) in &seen {
                let share = |sum: u64| {
                    (u128::from(sum) * u128::from(*count) / (alerts.len() as u128).max(1)) as u64
                };
                let tally = self.tally_of(at.0, at.1, *first);
                if let Some(cause) = &outcome.failure {
                    set_cause(&mut tally.causes, &filter.id.user, &filter.id.label(), cause);
                }
                let users = tally.statistics.entry(filter.id.user.clone()).or_default();
                users.entry(filter.id.label()).or_default().add(&VisitStatistics {
                    alerts: *count,
                    matches: of.get(at).copied().unwrap_or(0),
                    errors: share(outcome.errors),
                    failures: u64::from(outcome.failure.is_some()),
                    cpu_ns: share(cpu_ns),
                    ..VisitStatistics::default()
                });
            }
        }
        matches
    }

    /// The first offset and the number of alerts of each visit and partition whose statistics are
    /// not stored, and whether each alert counts: it was read, in time, and not before.
    fn count(
        &mut self,
        evaluated: &Evaluated,
        alerts: &[Alert],
    ) -> (BTreeMap<(i64, u32), Counted>, Vec<bool>) {
        let mut seen = BTreeMap::new();
        let mut counted = vec![false; alerts.len()];
        let rejected: BTreeSet<usize> =
            evaluated.rejected.iter().map(|(index, _)| *index).collect();
        for (index, Alert { visit, partition, place }) in alerts.iter().enumerate() {
            let known = self.visit(*visit);
            let is_late = known.end(*partition).is_some_and(|end| place.offset >= end);
            if is_late || known.stored.contains(partition) {
                continue;
            }
            let of = (*visit, *partition);
            let new = Counted { first: place.offset, count: 0 };
            let Counted { first, count } = seen.entry(of).or_insert(new);
            *first = place.offset.min(*first);
            if !rejected.contains(&index) {
                let tally = self.tally_of(*visit, *partition, place.offset);
                counted[index] = tally.counted.insert(place.alert);
                *count += u64::from(counted[index]);
            }
        }
        (seen, counted)
    }

    fn tally_of(&mut self, visit: i64, partition: u32, first: u64) -> &mut Tally {
        let tallies = &mut self.visit(visit).tallies;
        tallies.entry(partition).or_insert_with(|| Tally { first, ..Tally::default() })
    }

    fn rank(
        &mut self,
        alert: &Alert,
        user: &str,
        rank: Rank,
        labels: impl FnOnce() -> BTreeSet<String>,
    ) {
        let Alert { visit, partition, place } = *alert;
        let mut candidate = Candidate { alert: place.alert, rank, filters: BTreeSet::new() };
        // Most matches of a filter that matches much are none of the best, and need no more.
        if self.cap.is_possible(partition, visit, user, &candidate) {
            candidate.filters = labels();
            if !self.visit(visit).stored.contains(&partition) {
                let places = &mut self.tally_of(visit, partition, place.offset).places;
                places.entry(place.alert).or_insert(place);
            }
        }
        let (position, user) = (place.offset, user.to_owned());
        let effects = self.cap.take(Match { partition, position, visit, user, candidate });
        self.apply(partition, effects);
    }

    /// A claim of an alert, unless the user has had as many of the visit, or it is late.
    fn claim(
        &mut self,
        alert: &Alert,
        user: &str,
        labels: impl FnOnce() -> Vec<String>,
    ) -> Option<Claimed> {
        let Alert { visit, partition, place } = *alert;
        let known = self.visit(visit);
        if known.end(partition).is_some_and(|end| place.offset >= end) {
            add(&self.counters.late, 1);
            return None;
        }
        let claimed = known.claimed.entry(user.to_owned()).or_default();
        if claimed.contains(&place.alert) {
            return None;
        }
        // The first ones of this process are before any later one in the log.
        if claimed.len() >= CAP {
            add(&self.counters.capped, 1);
            return None;
        }
        claimed.insert(place.alert);
        add(&self.counters.claims, 1);
        Some(Claimed { user: user.to_owned(), alert: place.alert, filters: labels() })
    }

    fn apply(&mut self, partition: u32, effects: Vec<WorkerEffect>) {
        for effect in effects {
            match effect {
                WorkerEffect::Append(partial) => self.append(partial),
                WorkerEffect::Late { visit, user, .. } => {
                    add(&self.counters.late, 1);
                    if let Some(tally) = self.visit(visit).tallies.get_mut(&partition) {
                        *tally.late.entry(user).or_default() += 1;
                    }
                }
            }
        }
    }

    /// Writes a partial, in parts.
    fn append(&mut self, partial: Partial) {
        let Partial { visit, partition, users } = partial;
        add(&self.counters.partials, 1);
        let known = self.visit(visit);
        let tally = known.tallies.remove(&partition).unwrap_or_default();
        let (mut statistics, mut late, mut causes) = (tally.statistics, tally.late, tally.causes);
        let mut users = users;
        let all: BTreeSet<String> =
            users.keys().chain(statistics.keys()).chain(late.keys()).cloned().collect();
        let all = all.into_iter().map(|user| {
            let of = (users.remove(&user), statistics.remove(&user), late.remove(&user));
            let causes = causes.remove(&user);
            (user, of, causes)
        });
        let mut all = records(all.collect());
        if all.is_empty() {
            all.push(Vec::new());
        }
        let parts = all.len() as u32;
        for (part, of_part) in (0..).zip(all) {
            let (mut tops, mut numbers, mut lates) =
                <(BTreeMap<_, Top>, BTreeMap<_, _>, BTreeMap<_, _>)>::default();
            let mut causes = Causes::new();
            for (user, (top, of_user, late), of_filters) in of_part {
                tops.extend(top.map(|top| (user.clone(), top)));
                numbers.extend(of_user.map(|of_user| (user.clone(), of_user)));
                causes.extend(of_filters.map(|of_filters| (user.clone(), of_filters)));
                lates.extend(late.map(|late| (user, late)));
            }
            let chosen: BTreeSet<i64> = tops
                .values()
                .flat_map(|top| top.candidates())
                .map(|candidate| candidate.alert)
                .collect();
            let places = chosen.iter().filter_map(|alert| tally.places.get(alert)).copied();
            let (places, statistics) = (places.collect(), numbers);
            let (users, late) = (tops, lates);
            let partial = Decision::Partial {
                visit,
                partition,
                part,
                parts,
                users,
                places,
                statistics,
                late,
                causes,
            };
            self.log.append(partial);
        }
    }

    /// Whether so many visits are open that alerts are read no further.
    fn is_full(&self) -> bool {
        self.assigned.iter().any(|partition| self.cap.is_full(*partition))
    }

    /// Waits for records that end visits. Those of decisions are taken with each step.
    fn wait_while_full(&mut self, timeout: Duration) -> Result<bool, ServiceError> {
        // One that was forgotten waits again, as it may be an orphan.
        for visit in self.cap.open_visits() {
            self.visit(visit);
        }
        let event = self.subscription(self.control).next_timeout(timeout.min(FULL_WAIT))?;
        let Some(event) = event else { return Ok(false) };
        self.take(self.control, event)?;
        Ok(true)
    }

    /// Commits the position before the oldest visit that is not stored.
    fn commit(&mut self, is_busy: bool) -> Result<(), ServiceError> {
        let now = self.bus.clock().monotonic();
        if is_busy && now < self.committed_at + COMMIT_INTERVAL {
            return Ok(());
        }
        self.committed_at = now;
        for partition in self.assigned.clone() {
            let Some(position) = self.cap.resume_position(partition) else { continue };
            let tallies = self.visits.values().filter_map(|visit| visit.tallies.get(&partition));
            let position = tallies.map(|tally| tally.first).fold(position, u64::min);
            if self.committed.get(&partition) == Some(&position) {
                continue;
            }
            match self.subscription(self.alerts).commit_at(partition, position) {
                // It was given to another member, which resumes at the position before.
                Err(ReadError::Transport(TransportError::NotAssigned { .. })) => {}
                committed => {
                    committed?;
                    self.committed.insert(partition, position);
                }
            }
        }
        Ok(())
    }

    /// The partitions that it reads.
    #[must_use]
    pub fn partitions(&self) -> &BTreeSet<u32> {
        &self.assigned
    }

    /// Whether the filters of a visit are decided.
    #[must_use]
    pub fn has_filters(&self, visit: i64) -> bool {
        self.visits.get(&visit).is_some_and(|visit| visit.active.is_some())
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Splits what goes to a log into records of bounded size, in order.
fn records<T: Serialize>(all: Vec<T>) -> Vec<Vec<T>> {
    let mut records: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for one in all {
        if bytes >= MAX_RECORD_BYTES || records.is_empty() {
            bytes = 0;
            records.push(Vec::new());
        }
        bytes += json(&one).len();
        records.last_mut().expect("one was added").push(one);
    }
    records
}

fn no_filters(visit: i64) -> ServiceError {
    let outage = TransportError::Outage {
        transport: "decisions".to_owned(),
        cause: format!("the filters of visit {visit} are not in the log after {BEGIN_TIMEOUT:?}"),
    };
    outage.into()
}
