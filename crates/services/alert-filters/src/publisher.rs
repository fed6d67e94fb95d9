//! The publisher: decisions to results, by one process at a time.
//!
//! Constraints. The bus has no transactions: a process may be killed between a result and its
//! checkpoint. So what was published is read from the users' topics, and decided from the log
//! again; both give the same choice. A lease (an exclusive topic) elects the publisher, and the
//! users' topics are exclusive, too: a former publisher cannot add to them.
//!
//! Operation. Claims are granted in the order of the log, and published at once. A visit is decided
//! when the log has a partial of each partition; then its ranked results are published, its
//! statistics, and a checkpoint behind which it is finished.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use helio_alerts::visit::Control;
use helio_bus::{
    Bus, Event, Headers, Lagging, Member, Message, PublishError, Publisher, Qos, Sample, Start,
    Subscribe, Topic, TopicError, TransportError, WaitSet,
};
use helio_core::qos::{Guarantee, History, Ownership, Retention};
use helio_filter::cap::{Candidate, Claim, ClaimEffect, Claims, Partial, Publish, Ranking};

use crate::counters::{Counters, add};
use crate::decisions::{BUS_TIMEOUT, ControlLog, decisions_topic};
use crate::error::ServiceError;
use crate::fetch::Fetcher;
use crate::linked::Linked;
use crate::lists::json;
use crate::names::{FilterId, Topics, spec};
use crate::options::Options;
use crate::records::{
    Causes, Checkpoint, Claimed, Content, Decision, Delivery, Place, Summary, set_cause,
};
use crate::results::{self, Encoded, Reference, Selectors, Stored};
use crate::statistics::VisitStatistics;
use crate::store::FilterStore;
use crate::targets::{
    ALERT_HEADER, FILTERS_HEADER, Outgoing, RANK_HEADER, Refused, STAGE_HEADERS, Sent, Target,
    VISIT_HEADER,
};
use crate::worker::Progress;

/// Visits that are not finished; the oldest is given up first.
const MAX_PENDING: usize = 512;
/// Finished visits that are remembered, so that repeated partials have no effect. Those with
/// records behind the checkpoint are not forgotten: a restart would decide them again.
const MAX_FINISHED: usize = 2_048;
/// Records of the log that are taken before results are published.
const MAX_RECORDS: usize = 1_024;
/// Results whose packets are in memory at once, where the engine cannot deliver in place.
const MAX_PACKETS: usize = 400;
/// Bytes of the engine's memory that packets pin while they are published.
const PINNED_BYTES: u64 = 1 << 30;
/// Overwritten checkpoints and summaries that are stored.
const MAX_OVERWRITTEN_BYTES: u64 = 64 << 20;
/// The longest list of filters in a result's headers.
const MAX_FILTERS_HEADER: usize = 3_000;
/// The key of the checkpoint.
const CHECKPOINT_KEY: &[u8] = b"checkpoint";
/// Openings whose time is remembered.
const MAX_OPENINGS: usize = 4_096;

/// A process's attempt to publish results, and its work once it is the publisher.
pub struct ResultPublisher {
    bus: Bus,
    options: Options,
    topics: Topics,
    counters: Arc<Counters>,
    lease: Topic,
    leading: Option<Leading>,
    tried: Option<Instant>,
}

fn keyed(ownership: Ownership) -> Qos {
    let retention = Retention {
        bytes: Some(MAX_OVERWRITTEN_BYTES),
        age: None,
        last_value: true,
        default: false,
    };
    let guarantee = Guarantee::Stored;
    Qos { history: History::KeepLast(1), ownership, guarantee, retention, ..Qos::event() }
}

impl ResultPublisher {
    /// Opens the lease's topic, or creates it.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn open(
        bus: &Bus,
        options: &Options,
        counters: &Arc<Counters>,
    ) -> Result<Self, ServiceError> {
        let topics = Topics::of(&options.topic);
        let lease = bus.topic(spec(&topics.publisher())?.qos(keyed(Ownership::Exclusive)))?;
        let (bus, options, counters) = (bus.clone(), options.clone(), Arc::clone(counters));
        Ok(Self { bus, options, topics, counters, lease, leading: None, tried: None })
    }

    /// Whether this process is the publisher.
    #[must_use]
    pub fn is_publisher(&self) -> bool {
        self.leading.is_some()
    }

    /// Publishes what is decided, or waits for it; as another process's substitute, tries to become
    /// the publisher.
    ///
    /// # Errors
    /// [`ServiceError`]; this process is not the publisher then, and the next step tries again.
    pub fn step(&mut self, timeout: Duration) -> Result<Progress, ServiceError> {
        let done = match &mut self.leading {
            Some(leading) => leading.step(timeout),
            None => self.try_to_lead(timeout),
        };
        if done.is_err() {
            self.leading = None;
        }
        self.counters.is_publisher.store(u64::from(self.leading.is_some()), Ordering::Relaxed);
        done
    }

    fn try_to_lead(&mut self, timeout: Duration) -> Result<Progress, ServiceError> {
        let interval = self.options.takeover_interval;
        let since = self.tried.map(|tried| tried.elapsed()).unwrap_or(interval);
        if since < interval {
            std::thread::sleep(timeout.min(interval - since));
            return Ok(Progress::Idle);
        }
        self.tried = Some(Instant::now());
        match self.lease.publisher() {
            Ok(lease) => {
                self.leading = Some(Leading::open(self, lease)?);
                Ok(Progress::Worked)
            }
            Err(TopicError::Transport(TransportError::Owned { .. })) => Ok(Progress::Idle),
            Err(error) => Err(error.into()),
        }
    }
}

/// A visit that is not finished.
#[derive(Default)]
struct Pending {
    /// Its first record in the log.
    first: u64,
    partials: BTreeSet<u32>,
    places: HashMap<i64, (u32, Place)>,
    statistics: BTreeMap<String, BTreeMap<String, VisitStatistics>>,
    late: BTreeMap<String, u64>,
    results: BTreeMap<String, u64>,
    /// The chosen alerts of each filter, by user and label.
    chosen: BTreeMap<(String, String), u64>,
    /// Those of them that the bus refused.
    refused: BTreeMap<(String, String), u64>,
    causes: Causes,
    /// When the last record was written.
    filtered_ns: i64,
}

/// Alerts chosen for a user.
struct Chosen {
    visit: i64,
    user: String,
    /// With their places among the user's alerts of the visit, from 1; 0 without an order.
    candidates: Vec<(usize, Candidate)>,
    decided_ns: i64,
}

/// Parts of a partial, by the writer's incarnation.
type Parts = HashMap<(i64, u32, helio_bus::Producer), BTreeMap<u32, Decision>>;

/// The publisher's state.
struct Leading {
    bus: Bus,
    options: Options,
    topics: Topics,
    counters: Arc<Counters>,
    lease: Publisher,
    summaries: Publisher,
    store: FilterStore,
    set: WaitSet,
    control: Member,
    decisions: Member,
    control_log: ControlLog,
    fetcher: Fetcher,
    linked: Linked,
    partitions: u32,
    ranking: Ranking,
    claims: Claims,
    pending: BTreeMap<i64, Pending>,
    /// Finished visits, each with an offset behind its records.
    finished: BTreeMap<i64, u64>,
    parts: Parts,
    /// The log's next offset.
    next: u64,
    openings: BTreeMap<i64, i64>,
    targets: BTreeMap<String, Target>,
    /// Users whose topics were opened, or tried, before their first results.
    opened_ahead: BTreeSet<String>,
    selectors: Selectors,
    checkpoint: Checkpoint,
}

impl Leading {
    fn open(of: &ResultPublisher, lease: Publisher) -> Result<Self, ServiceError> {
        let ResultPublisher { bus, options, topics, counters, .. } = of;
        let checkpoint = read_checkpoint(&of.lease, counters)?;
        let alerts = bus.topic(spec(&options.topic)?)?;
        let control_log = ControlLog::open(bus, &options.topic)?;
        let decided = decisions_topic(bus, topics)?;
        let start = match &checkpoint {
            Some(checkpoint) => Start::Offset { partition: 0, offset: checkpoint.decisions },
            None => Start::Earliest,
        };
        let checkpoint = checkpoint.unwrap_or_default();
        let end = checkpoint.end.max(checkpoint.decisions);
        let mut set = bus.wait_set()?;
        // Openings only: their shutter times are for information.
        let control =
            set.add(control_log.subscribe(crate::decisions::log_start(&alerts, bus, options)?)?);
        let decisions =
            set.add(decided.subscribe(Subscribe::from(start).lagging(Lagging::Lossless))?);
        let summaries = bus.topic(spec(&topics.summaries())?.qos(keyed(Ownership::Exclusive)))?;
        let partitions = alerts.qos().partitions;
        Ok(Self {
            store: FilterStore::open(bus, &options.topic)?,
            summaries: summaries.publisher()?,
            fetcher: Fetcher::new(alerts, PINNED_BYTES),
            linked: Linked::new(bus, &options.topic),
            bus: bus.clone(),
            options: options.clone(),
            topics: topics.clone(),
            counters: Arc::clone(counters),
            lease,
            set,
            control,
            decisions,
            control_log,
            partitions,
            ranking: Ranking::new(partitions),
            claims: Claims::default(),
            pending: BTreeMap::new(),
            finished: checkpoint.finished.iter().map(|visit| (*visit, end)).collect(),
            parts: HashMap::new(),
            next: checkpoint.decisions,
            openings: BTreeMap::new(),
            targets: BTreeMap::new(),
            opened_ahead: BTreeSet::new(),
            selectors: Selectors::default(),
            checkpoint,
        })
    }

    fn step(&mut self, timeout: Duration) -> Result<Progress, ServiceError> {
        self.drain_control()?;
        let mut chosen = Vec::new();
        let mut ended = Vec::new();
        let mut records = 0;
        while records < MAX_RECORDS
            && let Some(event) = self.subscription(self.decisions).try_next()?
        {
            records += 1;
            self.take(event, &mut chosen, &mut ended);
        }
        if records == 0 {
            let next = self.set.next_timeout(timeout).map_err(|error| error.source)?;
            let Some((member, event)) = next else {
                self.open_ahead()?;
                return Ok(Progress::Idle);
            };
            if member == self.decisions {
                self.take(event, &mut chosen, &mut ended);
            } else {
                self.opened(event);
            }
        }
        if !chosen.is_empty() {
            self.store.refresh()?;
            self.publish(chosen)?;
        }
        if !ended.is_empty() {
            self.finish(&ended)?;
        }
        Ok(Progress::Worked)
    }

    fn subscription(&mut self, member: Member) -> &mut helio_bus::Subscription {
        self.set.get_mut(member).expect("members of the set are never removed")
    }

    fn drain_control(&mut self) -> Result<(), ServiceError> {
        while let Some(event) = self.subscription(self.control).try_next()? {
            self.opened(event);
        }
        Ok(())
    }

    fn opened(&mut self, event: Event) {
        let Event::Sample(sample) = event else { return };
        if let Some(Control::Opening(opening)) = self.control_log.record(&sample.payload) {
            self.openings.entry(opening.visit).or_insert(opening.shutter_close_ns);
            if self.openings.len() > MAX_OPENINGS {
                self.openings.pop_first();
            }
        }
    }

    /// Takes a record of the log: alerts that it chooses, and visits that it ends.
    fn take(&mut self, event: Event, chosen: &mut Vec<Chosen>, ended: &mut Vec<i64>) {
        let sample = match event {
            Event::Sample(sample) => sample,
            Event::Gap(gap) => {
                add(&self.counters.decisions_lost, gap.lost);
                return;
            }
            _ => return,
        };
        self.next = sample.offset + 1;
        // A visit's filters are the workers' business.
        if sample.key.starts_with(b"begin/") {
            return;
        }
        let Ok(decision) = serde_json::from_slice::<Decision>(&sample.payload) else {
            add(&self.counters.foreign_records, 1);
            return;
        };
        let visit = decision.visit();
        if let Some(behind) = self.finished.get_mut(&visit) {
            *behind = self.next;
            if let Decision::Claims { claims, .. } = &decision {
                add(&self.counters.late, claims.len() as u64);
            }
            return;
        }
        match decision {
            Decision::Begin { .. } => {}
            Decision::Claims { partition, claims, places, .. } => {
                self.note(visit, &sample, partition, &places);
                self.grant(visit, claims, &sample, chosen);
            }
            Decision::Partial { partition, part, parts, .. } => {
                let of = (visit, partition, sample.header.producer.clone());
                let known = self.parts.entry(of.clone()).or_default();
                known.insert(part, decision);
                self.pending_visit(visit, sample.offset);
                if self.parts[&of].len() == parts as usize {
                    let whole = self.parts.remove(&of).unwrap_or_default();
                    if self.partial(whole.into_values(), &sample, chosen) {
                        ended.push(visit);
                    }
                }
            }
        }
    }

    fn pending_visit(&mut self, visit: i64, offset: u64) -> &mut Pending {
        if !self.pending.contains_key(&visit) {
            if self.pending.len() >= MAX_PENDING
                && let Some(oldest) = self.pending.keys().next().copied()
            {
                self.abandon(oldest);
            }
            self.pending.insert(visit, Pending { first: offset, ..Pending::default() });
        }
        self.pending.entry(visit).or_default()
    }

    fn note(&mut self, visit: i64, sample: &Sample, partition: u32, places: &[Place]) {
        let pending = self.pending_visit(visit, sample.offset);
        pending.filtered_ns = sample.header.time.nanos();
        for place in places {
            pending.places.entry(place.alert).or_insert((partition, *place));
        }
    }

    fn grant(
        &mut self,
        visit: i64,
        claims: Vec<Claimed>,
        sample: &Sample,
        chosen: &mut Vec<Chosen>,
    ) {
        let decided_ns = self.bus.clock().now().nanos();
        for Claimed { user, alert, filters } in claims {
            let filters: BTreeSet<String> = filters.into_iter().collect();
            let claim = Claim { visit, user: user.clone(), alert, filters: filters.clone() };
            match self.claims.take(&claim) {
                ClaimEffect::Publish => {
                    let candidate =
                        Candidate { alert, rank: helio_filter::Rank::default(), filters };
                    let pending = self.pending_visit(visit, sample.offset);
                    pending.count(&user, &candidate);
                    let candidates = vec![(0, candidate)];
                    chosen.push(Chosen { visit, user, candidates, decided_ns });
                }
                ClaimEffect::Known => {}
                ClaimEffect::Capped => add(&self.counters.capped, 1),
                ClaimEffect::Late => add(&self.counters.late, 1),
            }
        }
    }

    /// Takes a whole partial; true if it ends the visit.
    fn partial(
        &mut self,
        parts: impl Iterator<Item = Decision>,
        sample: &Sample,
        chosen: &mut Vec<Chosen>,
    ) -> bool {
        let mut whole = Partial { visit: 0, partition: 0, users: BTreeMap::new() };
        let (mut all_places, mut numbers, mut lates) = (Vec::new(), Vec::new(), Vec::new());
        let mut causes = Causes::new();
        for part in parts {
            let Decision::Partial {
                visit,
                partition,
                users,
                places,
                statistics,
                late,
                causes: of_part,
                ..
            } = part
            else {
                continue;
            };
            causes.extend(of_part);
            (whole.visit, whole.partition) = (visit, partition);
            whole.users.extend(users);
            all_places.extend(places);
            numbers.push(statistics);
            lates.push(late);
        }
        let (visit, partition) = (whole.visit, whole.partition);
        self.note(visit, sample, partition, &all_places);
        let is_possible = partition < self.partitions;
        let pending = self.pending_visit(visit, sample.offset);
        if !is_possible || !pending.partials.insert(partition) {
            return false;
        }
        for (user, filters) in numbers.into_iter().flatten() {
            let of_user = pending.statistics.entry(user).or_default();
            for (label, one) in filters {
                of_user.entry(label).or_default().add(&one);
            }
        }
        for (user, filters) in causes {
            pending.causes.entry(user).or_default().extend(filters);
        }
        for (user, late) in lates.into_iter().flatten() {
            *pending.late.entry(user).or_default() += late;
        }
        let decided_ns = self.bus.clock().now().nanos();
        for Publish { visit, user, chosen: candidates } in self.ranking.take(whole) {
            let pending = self.pending_visit(visit, sample.offset);
            candidates.iter().for_each(|candidate| pending.count(&user, candidate));
            let candidates = (1..).zip(candidates).collect();
            chosen.push(Chosen { visit, user, candidates, decided_ns });
        }
        let is_decided =
            self.pending_visit(visit, sample.offset).partials.len() == self.partitions as usize;
        if is_decided {
            self.claims.end(visit);
        }
        is_decided
    }

    /// Publishes chosen alerts that their users' topics lack.
    fn publish(&mut self, chosen: Vec<Chosen>) -> Result<(), ServiceError> {
        let mut group: Vec<Chosen> = Vec::new();
        let mut packets = 0;
        for mut one in chosen {
            self.open_target(&one.user)?;
            let target = &self.targets[&one.user];
            one.candidates.retain(|(_, candidate)| !target.has(one.visit, candidate.alert));
            packets += one.candidates.len();
            group.push(one);
            if packets >= MAX_PACKETS {
                self.publish_group(std::mem::take(&mut group))?;
                packets = 0;
            }
        }
        self.publish_group(group)
    }

    fn open_target(&mut self, user: &str) -> Result<(), ServiceError> {
        if !self.targets.contains_key(user) {
            let from = self.checkpoint.targets.get(user).copied();
            let max_bytes = self.options.results_bytes;
            let target = Target::open(&self.bus, &self.topics, user, from, max_bytes)?;
            self.targets.insert(user.to_owned(), target);
        }
        Ok(())
    }

    /// Opens a topic of a user with active filters, so that no first result waits for that. Each is
    /// tried once: a failure stops nobody else, and shows with the user's first result.
    fn open_ahead(&mut self) -> Result<(), ServiceError> {
        self.store.refresh()?;
        let definitions = self.store.definitions();
        let is_active = |user: &String| {
            definitions.active(user).is_some_and(|active| !active.filters.is_empty())
        };
        let is_open =
            |user: &String| self.targets.contains_key(user) || self.opened_ahead.contains(user);
        let next = definitions.users().find(|user| !is_open(user) && is_active(user)).cloned();
        if let Some(user) = next {
            _ = self.open_target(&user);
            self.opened_ahead.insert(user);
        }
        Ok(())
    }

    fn publish_group(&mut self, group: Vec<Chosen>) -> Result<(), ServiceError> {
        let packets = self.read_packets(&group)?;
        let mut by_user: BTreeMap<&str, Vec<Outgoing>> = BTreeMap::new();
        for chosen in &group {
            let outgoing = self.encode(chosen, &packets);
            by_user.entry(&chosen.user).or_default().extend(outgoing);
        }
        let mut sent = Vec::new();
        for (user, results) in by_user {
            if let Some(target) = self.targets.get_mut(user) {
                sent.push((user, target.publish(results)?));
            }
        }
        sent.into_iter().try_for_each(|(user, sent)| self.await_stored(user, sent))
    }

    /// Waits for a user's results. The engine never accepts one that is too large: its reference is
    /// published instead, and those that were not tried after it.
    fn await_stored(&mut self, user: &str, sent: Sent) -> Result<(), ServiceError> {
        let Sent { mut pending, accepted: mut results, mut refused } = sent;
        let delivery = self.delivery(user);
        let mut references = BTreeSet::new();
        while !results.is_empty() {
            let outcomes = pending.drain(..).flat_map(|batch| batch.wait_each_timeout(BUS_TIMEOUT));
            let (mut left, mut unencodable) = (Vec::new(), Vec::new());
            for (mut result, outcome) in results.into_iter().zip(outcomes.collect::<Vec<_>>()) {
                let of = (result.visit, result.alert);
                match outcome {
                    Ok(_) => {
                        add(&self.counters.results, 1);
                        add(&self.counters.result_bytes, result.encoded.payload.len() as u64);
                        continue;
                    }
                    Err(PublishError::Skipped) => {}
                    Err(PublishError::Transport(TransportError::TooLarge { .. }))
                        if references.insert(of) =>
                    {
                        result.encoded = self.reference(of.0, of.1, delivery);
                    }
                    Err(PublishError::Encode(reason)) => {
                        unencodable.push((result, reason));
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
                left.push(result);
            }
            let Some(target) = self.targets.get_mut(user) else { break };
            let (admitted, more) = target.admit(left)?;
            target.withdraw(more.len() + unencodable.len());
            pending = target.send(&admitted);
            results = admitted;
            refused.extend(more.into_iter().chain(unencodable));
        }
        self.count_refused(user, &refused);
        Ok(())
    }

    /// Counts results that are not sent, and why, in their visits' statistics.
    fn count_refused(&mut self, user: &str, refused: &[Refused]) {
        add(&self.counters.results_refused, refused.len() as u64);
        for (result, reason) in refused {
            if let Some(pending) = self.pending.get_mut(&result.visit) {
                pending.refuse(user, &result.filters, reason);
            }
        }
    }

    fn delivery(&self, user: &str) -> Delivery {
        self.store.definitions().active(user).map(|active| active.delivery).unwrap_or_default()
    }

    /// The packets that results are made of, by visit and alert.
    fn read_packets(
        &mut self,
        group: &[Chosen],
    ) -> Result<HashMap<(i64, i64), Stored>, ServiceError> {
        let mut wanted: BTreeMap<u32, BTreeMap<u64, (i64, i64)>> = BTreeMap::new();
        let mut with_stamps = BTreeSet::new();
        for chosen in group {
            let content = self.delivery(&chosen.user).content;
            if content == Content::Reference {
                continue;
            }
            for (_, candidate) in &chosen.candidates {
                let of = (chosen.visit, candidate.alert);
                with_stamps.extend((content == Content::WithStamps).then_some(of));
                if let Some((partition, place)) = self.place(chosen.visit, candidate.alert) {
                    wanted.entry(partition).or_default().insert(place.offset, of);
                }
            }
        }
        let mut packets = HashMap::new();
        for (partition, offsets) in wanted {
            let list: Vec<u64> = offsets.keys().copied().collect();
            let (stream, linked) = (&mut self.store.stream, &mut self.linked);
            let missing = &self.counters.results_without_stamps;
            self.fetcher.read(partition, &list, |sample| {
                let packet = stream.packet(sample.header.schema, &sample.payload)?;
                if let (Ok(packet), Some(of)) = (packet, offsets.get(&sample.offset)) {
                    let mut stored = Stored::of(packet, &sample.payload);
                    if with_stamps.contains(of) && !linked.join(&sample, of.1, &mut stored)? {
                        add(missing, 1);
                    }
                    packets.insert(*of, stored);
                }
                Ok(())
            })?;
        }
        Ok(packets)
    }

    fn place(&self, visit: i64, alert: i64) -> Option<(u32, Place)> {
        self.pending.get(&visit)?.places.get(&alert).copied()
    }

    /// A user's results of a visit, in the order of the choice.
    fn encode(&mut self, chosen: &Chosen, packets: &HashMap<(i64, i64), Stored>) -> Vec<Outgoing> {
        let delivery = self.delivery(&chosen.user);
        let mut encoded: Vec<Option<Encoded>> = vec![None; chosen.candidates.len()];
        // Each result is made by the first of the filters that the alert matches.
        let mut by_filter: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, (_, candidate)) in chosen.candidates.iter().enumerate() {
            // It may be there for another user.
            let is_there = delivery.content != Content::Reference
                && packets.contains_key(&(chosen.visit, candidate.alert));
            if let Some(label) = candidate.filters.first().filter(|_| is_there) {
                by_filter.entry(label).or_default().push(index);
            }
        }
        for (label, indices) in by_filter {
            let alert = |index: &usize| (chosen.visit, chosen.candidates[*index].1.alert);
            let stored: Vec<&Stored> = indices.iter().map(|i| &packets[&alert(i)]).collect();
            let contents = self.contents(&chosen.user, label, delivery, &stored);
            for (index, content) in indices.into_iter().zip(contents.unwrap_or_default()) {
                encoded[index] = Some(content);
            }
        }
        let mut outgoing = Vec::new();
        for ((rank, candidate), encoded) in chosen.candidates.iter().zip(encoded) {
            let (visit, alert) = (chosen.visit, candidate.alert);
            let headers = self.headers(chosen, *rank, candidate);
            let encoded = encoded.unwrap_or_else(|| self.reference(visit, alert, delivery));
            let filters = candidate.filters.clone();
            outgoing.push(Outgoing { visit, alert, filters, headers, encoded });
        }
        outgoing
    }

    /// The contents of results by one filter. An error is a filter's that lost a list or column.
    fn contents(
        &mut self,
        user: &str,
        label: &str,
        delivery: Delivery,
        stored: &[&Stored],
    ) -> Result<Vec<Encoded>, String> {
        let id = FilterId::of_label(user, label).map_err(|error| error.to_string())?;
        let data = if self.selectors.is_packet(&mut self.store, &id)? {
            stored.iter().map(|stored| results::packet(stored, delivery.content)).collect()
        } else {
            self.selectors.select(&mut self.store, &id, stored)?
        };
        results::encode(data, delivery.format)
    }

    fn reference(&self, visit: i64, alert: i64, delivery: Delivery) -> Encoded {
        if delivery.content != Content::Reference {
            add(&self.counters.results_without_packet, 1);
        }
        let (partition, place) = self.place(visit, alert).unzip();
        let reference = Reference {
            alert,
            visit,
            partition: partition.and_then(|p| i32::try_from(p).ok()).unwrap_or(-1),
            offset: place.and_then(|p: Place| i64::try_from(p.offset).ok()).unwrap_or(-1),
        };
        let encoded = results::encode(vec![results::reference(&reference)], delivery.format);
        encoded.expect("a reference has all encodings").remove(0)
    }

    fn headers(&self, chosen: &Chosen, rank: usize, candidate: &Candidate) -> Headers {
        let pending = self.pending.get(&chosen.visit);
        let published = self.place(chosen.visit, candidate.alert).map(|(_, p)| p.published_ns);
        let stages = [
            self.openings.get(&chosen.visit).copied(),
            published,
            pending.map(|pending| pending.filtered_ns),
            Some(chosen.decided_ns),
        ];
        let mut filters = String::new();
        for label in &candidate.filters {
            // Headers are bounded: of 50 filters with long names the first ones are named.
            if filters.len() + label.len() > MAX_FILTERS_HEADER {
                break;
            }
            filters.push_str(if filters.is_empty() { "" } else { "," });
            filters.push_str(label);
        }
        let mut named = vec![
            (VISIT_HEADER, chosen.visit.to_string()),
            (ALERT_HEADER, candidate.alert.to_string()),
            (FILTERS_HEADER, filters),
        ];
        named.extend((rank > 0).then(|| (RANK_HEADER, rank.to_string())));
        let stages = STAGE_HEADERS.into_iter().zip(stages);
        named.extend(stages.filter_map(|(name, time)| Some((name, time?.to_string()))));
        named.into_iter().fold(Headers::new(), |headers, (name, value)| {
            headers.with(name, value).expect("a few short headers of different names")
        })
    }

    /// Ends visits whose results are all stored: their statistics, and a checkpoint.
    fn finish(&mut self, ended: &[i64]) -> Result<(), ServiceError> {
        for visit in ended {
            let Some(pending) = self.pending.remove(visit) else { continue };
            let summary = pending.summary(*visit, self.bus.clock().now().nanos());
            let (key, value) = (visit.to_string(), json(&summary));
            let message = Message::new(&value).key(key.as_bytes());
            self.summaries.publish(message).wait_timeout(BUS_TIMEOUT)?;
            add(&self.counters.visits_decided, 1);
            self.forget(*visit);
        }
        self.bound_finished();
        self.checkpoint.decisions = self.resume_offset();
        self.checkpoint.end = self.next;
        self.checkpoint.finished = self.finished.keys().copied().collect();
        let offsets = self.targets.iter().map(|(user, of)| (user.clone(), of.resume_offset()));
        self.checkpoint.targets.extend(offsets);
        let value = json(&self.checkpoint);
        let message = Message::new(&value).key(CHECKPOINT_KEY);
        self.lease.publish(message).wait_timeout(BUS_TIMEOUT)?;
        Ok(())
    }

    /// The offset of the log at or behind which the records of pending visits lie.
    fn resume_offset(&self) -> u64 {
        self.pending.values().map(|pending| pending.first).fold(self.next, u64::min)
    }

    /// Forgets the oldest finished visits that a restart would not read again. If there are too
    /// many others, the pending visit that stops the checkpoint is given up.
    fn bound_finished(&mut self) {
        while self.finished.len() > MAX_FINISHED {
            let resume = self.resume_offset();
            let passed = self.finished.iter().find(|(_, behind)| **behind <= resume);
            let first = self.pending.iter().min_by_key(|(_, pending)| pending.first);
            match (passed.map(|(visit, _)| *visit), first.map(|(visit, _)| *visit)) {
                (Some(passed), _) => _ = self.finished.remove(&passed),
                (None, Some(first)) => self.abandon(first),
                (None, None) => return,
            }
        }
    }

    fn abandon(&mut self, visit: i64) {
        add(&self.counters.visits_abandoned, 1);
        self.pending.remove(&visit);
        self.forget(visit);
    }

    fn forget(&mut self, visit: i64) {
        self.finished.insert(visit, self.next);
        self.parts.retain(|(of, ..), _| *of != visit);
        self.targets.values_mut().for_each(|target| target.finish(visit));
    }
}

impl Pending {
    /// Counts a chosen alert for its user and filters.
    fn count(&mut self, user: &str, candidate: &Candidate) {
        *self.results.entry(user.to_owned()).or_default() += 1;
        for label in &candidate.filters {
            *self.chosen.entry((user.to_owned(), label.clone())).or_default() += 1;
        }
    }

    /// Counts a chosen alert as not sent.
    fn refuse(&mut self, user: &str, filters: &BTreeSet<String>, reason: &str) {
        if let Some(results) = self.results.get_mut(user) {
            *results = results.saturating_sub(1);
        }
        for label in filters {
            *self.refused.entry((user.to_owned(), label.clone())).or_default() += 1;
            set_cause(&mut self.causes, user, label, reason);
        }
    }

    fn summary(self, visit: i64, decided_ns: i64) -> Summary {
        let Self { mut statistics, results, late, chosen, refused, causes, .. } = self;
        for (user, filters) in &mut statistics {
            for (label, of) in filters {
                let key = (user.clone(), label.clone());
                let count = |of: &BTreeMap<_, u64>| of.get(&key).copied().unwrap_or(0);
                of.capped = of.matches.saturating_sub(count(&chosen));
                of.refused = count(&refused);
            }
        }
        Summary { visit, decided_ns, filters: statistics, results, late, causes }
    }
}

/// The newest checkpoint. Without one the log is read from its start.
fn read_checkpoint(lease: &Topic, counters: &Counters) -> Result<Option<Checkpoint>, ServiceError> {
    let mut stored = lease.subscribe(Subscribe::from(Start::Last(1)).lagging(Lagging::Lossless))?;
    stored.set_fence()?;
    let mut newest = None;
    while let Some(event) = stored.next_stored(BUS_TIMEOUT)? {
        let Event::Sample(sample) = event else { continue };
        match serde_json::from_slice(&sample.payload) {
            Ok(checkpoint) => newest = Some(checkpoint),
            Err(_) => add(&counters.foreign_records, 1),
        }
    }
    Ok(newest)
}

/// The decided visits whose statistics are stored, oldest first.
///
/// # Errors
/// [`ServiceError`].
pub fn summaries(bus: &Bus, alerts: &str) -> Result<Vec<Summary>, ServiceError> {
    let name = Topics::of(alerts).summaries();
    let topic = match bus.topic(spec(&name)?) {
        Err(TopicError::NoSuchTopic(_)) => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut stored = topic.subscribe(Subscribe::from(Start::Last(1)).lagging(Lagging::Lossless))?;
    stored.set_fence()?;
    let mut summaries = BTreeMap::new();
    while let Some(event) = stored.next_stored(BUS_TIMEOUT)? {
        let Event::Sample(sample) = event else { continue };
        if let Ok(summary) = serde_json::from_slice::<Summary>(&sample.payload) {
            summaries.insert(summary.visit, summary);
        }
    }
    Ok(summaries.into_values().collect())
}
