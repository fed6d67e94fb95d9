//! Reads a topic: one DDS reader of each DDS topic for all partitions, whose samples are read in
//! place.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::{
    Armed, Begin, Ends, Fence, Item, Position, Producers, Reader, ReaderRequest, SampleRef, Visit,
    locked, not_ours,
};
use helio_bus::{Bell, Gap, GapCause, Outage, TransportError};
use helio_core::{Producer, ProducerName, TopicName};

use crate::SCHEME;
use crate::announcements::{EndpointKind, OpenedEndpoint, ProducerPosition, Response};
use crate::connection::{Connection, OpenReader};
use crate::endpoints::{ReaderEndpoints, ReaderScope};
use crate::entity::{Listener, StatusEvent};
use crate::error::{failed, unsupported};
use crate::historical_data::{
    self, HistoricalData, HistoryRange, OnServiceLoss, PAGE_RETRY_INTERVAL,
};
use crate::history;
use crate::incompatible_qos::IncompatiblePolicies;
use crate::options::PEER_RESPONSE_TIMEOUT;
use crate::reorder_queue::{AcceptResent, QueuedSample, ReaderBehind, ReorderQueue};
use crate::topic::{TopicState, no_service};

/// A reader with so many samples in Cyclone wakes the connection's thread, which enforces the
/// limits at once instead of at its next turn.
const MAX_UNATTENDED_SAMPLES: u64 = 256;

/// The state of a reader that the connection's threads share.
struct ReaderCore {
    topic: Arc<TopicState>,
    /// An empty list is all partitions.
    partitions: Vec<u32>,
    endpoints: ReaderEndpoints,
    reorder_queue: Mutex<ReorderQueue>,
    wake: Arc<ReaderWakeup>,
}

/// Wakes the subscription when samples arrive.
#[derive(Default)]
struct ReaderWakeup {
    rung: AtomicBool,
    /// Writers were matched or unmatched since the last pull.
    matched: AtomicBool,
    /// The number of samples that arrived since the last pull.
    arrived: AtomicU64,
    /// Incompatible policies that were not reported yet.
    incompatible: Mutex<IncompatiblePolicies>,
    armed: Mutex<Option<(Arc<dyn Bell>, u64)>>,
}

impl ReaderWakeup {
    fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if let Some((bell, token)) = locked(&self.armed).take() {
            bell.ring(Some(token));
        }
    }
}

impl OpenReader for ReaderCore {
    fn topic(&self) -> &TopicName {
        &self.topic.name
    }

    fn adopt_schema(&self) -> Result<(), TransportError> {
        // An endpoint of another type than the topic's may leave: its samples are taken before. An
        // error is reported by the next poll.
        let _ = self.pull(&mut locked(&self.reorder_queue));
        let adopted = self.endpoints.adopt_schema(&self.topic).map(drop);
        if adopted.is_err() {
            self.ring();
        }
        adopted
    }

    fn report_match(&self, opened: &OpenedEndpoint, response: &mut Response) -> bool {
        if !opened.overlaps(&self.partitions) {
            return true;
        }
        let matched = self.endpoints.has_matched(&opened.guids);
        response.matched.extend(self.endpoints.guids().all().filter(|_| matched));
        matched
    }

    fn newest(&self, producer: &ProducerName) -> u64 {
        locked(&self.reorder_queue).newest(producer)
    }

    fn ring(&self) {
        self.wake.ring();
    }

    fn attend(&self) {
        let mut reorder_queue = locked(&self.reorder_queue);
        let matched = self.wake.matched.load(Ordering::Acquire);
        if matched || self.wake.arrived.load(Ordering::Relaxed) > 0 || reorder_queue.has_blocked() {
            // If this fails, it fails for the subscription, too.
            let _ = self.pull(&mut reorder_queue);
            if reorder_queue.has_any() {
                self.ring();
            }
        }
    }
}

impl ReaderCore {
    /// Waits until the endpoints have matched the topic's writers; returns their positions.
    fn await_writers(&self) -> Result<Vec<(String, ProducerPosition)>, TransportError> {
        let (topic, partitions) = (&self.topic, &self.partitions);
        let connection = &topic.connection;
        let responses = loop {
            let opened = OpenedEndpoint {
                topic: topic.name.clone(),
                endpoint_kind: EndpointKind::Reader,
                guids: self.endpoints.guids(),
                partitions: partitions.clone(),
            };
            let responses = connection.await_match(opened, || self.endpoints.matched())?;
            // A session that has responded may have announced the first schema only now.
            if !self.endpoints.adopt_schema(topic)? {
                break responses;
            }
        };
        let session = || connection.announcements.session.clone();
        let own = connection.writers_of(&topic.name).into_iter();
        let own = own.filter_map(|writer| Some((session(), writer.position()?)));
        let positions = responses.into_iter().flat_map(|(session, response)| {
            response.positions.into_iter().map(move |position| (session.clone(), position))
        });
        let read = |(_, position): &(String, ProducerPosition)| {
            partitions.is_empty() || partitions.contains(&position.partition)
        };
        Ok(positions.chain(own).filter(read).collect())
    }

    /// The ends, when everything has arrived that live writers had written at these positions, and
    /// the history. Samples that are lost, or have expired, are waited for until `until`.
    fn fence_ends(
        &self,
        positions: &[(String, ProducerPosition)],
        until: &mut Option<Instant>,
    ) -> Result<Option<Ends>, TransportError> {
        let connection = &self.topic.connection;
        connection.check_open()?;
        let mut reorder_queue = locked(&self.reorder_queue);
        self.pull(&mut reorder_queue)?;
        if reorder_queue.awaits_history() {
            return Ok(None);
        }
        let missing = positions.iter().find(|(session, position)| {
            let lives = || connection.announcements.with_state(|s| s.live.contains(session));
            !reorder_queue.has_passed(position) && lives()
        });
        if missing.is_some() || reorder_queue.has_blocked() {
            let until = until.get_or_insert_with(|| Instant::now() + PEER_RESPONSE_TIMEOUT);
            if Instant::now() < *until {
                return Ok(None);
            }
            if let Some((_, ProducerPosition { producer, .. })) = missing
                && self.topic.is_reliable()
                && self.topic.qos.lifespan.is_none()
            {
                let cause = format!("samples of {producer} on {} do not arrive", self.topic.name);
                return Err(TransportError::Outage { transport: SCHEME.to_owned(), cause });
            }
        }
        let mut ends = Ends::new();
        reorder_queue.positions(&mut |at| ends.push((at.partition, at.end)));
        Ok(Some(ends))
    }

    fn pull(&self, reorder_queue: &mut ReorderQueue) -> Result<(), TransportError> {
        self.wake.arrived.store(0, Ordering::Relaxed);
        if self.wake.matched.swap(false, Ordering::AcqRel) {
            reorder_queue.update_writers(&self.endpoints);
        }
        reorder_queue.pull(&self.endpoints).map_err(failed("take samples"))
    }
}

/// A reader, as the bus uses it.
pub(crate) struct DdsReader {
    shared: Arc<ReaderCore>,
    producers: Producers,
    /// The outstanding history from durability services.
    pending_history: Option<HistoricalData>,
    /// The last requested history is complete.
    caught_up: bool,
    /// Services that were lost or restored and not reported yet.
    outages: VecDeque<Outage>,
    /// The Avro bytes of the typed sample that is being delivered.
    avro: Vec<u8>,
}

impl DdsReader {
    pub(crate) fn open(
        topic: &Arc<TopicState>,
        request: &ReaderRequest<'_>,
    ) -> Result<Self, TransportError> {
        let last = match request.from {
            Begin::Latest => {
                let (reader, _) = Self::await_match(topic, request, AcceptResent::New, false)?;
                return Ok(reader);
            }
            Begin::LastPerKey(n) => Some(n),
            Begin::Earliest => None,
            Begin::Offset(..) | Begin::Time(_) => {
                return Err(no_offsets("start at an offset or time"));
            }
        };
        let kept = topic.is_kept();
        // Live writers have their own last values; a service has those of departed writers.
        let service = if kept { None } else { historical_data::service(topic, &[]) };
        let pending_history = kept || service.is_some();
        let take = AcceptResent::History;
        let (mut reader, positions) = Self::await_match(topic, request, take, pending_history)?;
        let n = last.map_or(usize::MAX, |n| n as usize);
        if let Some(service) = service {
            let last = last.unwrap_or(u32::MAX).min(u32::from(u8::MAX));
            let wanted = HistoryRange { last: Some(last), ..HistoryRange::default() };
            reader.request_history(service, OnServiceLoss::End, wanted)?;
            reader.await_last_values()?;
            reader.begin_with_history(positions, n)?;
        } else if kept {
            let positions: Vec<_> = positions.into_iter().map(|(_, position)| position).collect();
            let service = historical_data::await_service(topic)?;
            let wanted = HistoryRange { last, until: positions.clone(), ..HistoryRange::default() };
            reader.request_history(service, OnServiceLoss::Wait, wanted)?;
            match last {
                Some(_) => reader.await_history(&positions, n)?,
                None => locked(&reader.shared.reorder_queue).begin_live(),
            }
        } else {
            reader.begin_with_history(positions, n)?;
        }
        Ok(reader)
    }

    /// Opens a reader of a durability service: it receives resent samples, too.
    pub(crate) fn for_service(
        topic: &Arc<TopicState>,
        have: &[ProducerPosition],
    ) -> Result<Self, TransportError> {
        let all = ReaderRequest { from: Begin::Latest, partitions: &[], group: None, schema: None };
        let (reader, _) = Self::await_match(topic, &all, AcceptResent::Everything, false)?;
        let mut reorder_queue = locked(&reader.shared.reorder_queue);
        have.iter().for_each(|position| reorder_queue.set_known(position));
        drop(reorder_queue);
        Ok(reader)
    }

    /// Opens a reader, and waits until it has matched the topic's writers; returns the positions of
    /// those that have written. `pending_history`: new samples wait until the history has arrived.
    fn await_match(
        topic: &Arc<TopicState>,
        request: &ReaderRequest<'_>,
        take: AcceptResent,
        pending_history: bool,
    ) -> Result<(Self, Vec<(String, ProducerPosition)>), TransportError> {
        let (connection, partitions) = (&topic.connection, request.partitions);
        topic.partitions(partitions)?;
        let shared = subscribe(topic, request, take, pending_history)?;
        connection.add_reader(Arc::<ReaderCore>::downgrade(&shared));
        let mut positions = shared.await_writers()?;
        let before = positions.iter().map(|(_, position)| position.clone()).collect();
        locked(&shared.reorder_queue).set_join_positions(before);
        positions.retain(|(_, position)| position.sequence > 0);
        let (producers, outages, avro) = Default::default();
        let (pending_history, caught_up) = (None, false);
        Ok((Self { shared, producers, pending_history, caught_up, outages, avro }, positions))
    }

    /// Requests history from a durability service: the newest so many of each key, or everything.
    fn request_history(
        &mut self,
        service: String,
        on_loss: OnServiceLoss,
        wanted: HistoryRange,
    ) -> Result<(), TransportError> {
        let wanted = HistoryRange { partitions: self.shared.partitions.clone(), ..wanted };
        let wake = Arc::clone(&self.shared.wake);
        let wake = Arc::new(move || wake.ring());
        let topic = &self.shared.topic;
        self.pending_history = Some(HistoricalData::begin(topic, service, on_loss, wanted, wake)?);
        Ok(())
    }

    /// For a durability service: requests everything that another service has and this one lacks.
    /// New samples wait behind it.
    pub(crate) fn catch_up(
        &mut self,
        other: String,
        have: Vec<ProducerPosition>,
    ) -> Result<(), TransportError> {
        self.caught_up = false;
        let wanted = HistoryRange { have, ..HistoryRange::default() };
        self.request_history(other, OnServiceLoss::End, wanted)?;
        locked(&self.shared.reorder_queue).begin_history();
        Ok(())
    }

    /// Waits until a service has delivered last values, or until a timeout.
    fn await_last_values(&mut self) -> Result<(), TransportError> {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut reorder_queue = locked(&shared.reorder_queue);
            if self.poll_history(&mut reorder_queue)? {
                return Ok(());
            }
            if self.pending_history.as_ref().is_some_and(HistoricalData::is_slow) {
                self.pending_history = None;
                reorder_queue.end_history(false);
                return Ok(());
            }
            drop(reorder_queue);
            shared.topic.connection.check_open()?;
            // Cyclone's threads receive pages.
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until the history has arrived, and puts the newest `n` of each key before new samples.
    fn await_history(
        &mut self,
        positions: &[ProducerPosition],
        n: usize,
    ) -> Result<(), TransportError> {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut reorder_queue = locked(&shared.reorder_queue);
            if self.poll_history(&mut reorder_queue)? {
                history::begin(&mut reorder_queue, &positions.iter().collect::<Vec<_>>(), n);
                return Ok(());
            }
            drop(reorder_queue);
            let topic = &shared.topic;
            topic.connection.check_open()?;
            if self.pending_history.as_ref().is_some_and(HistoricalData::is_silent) {
                return Err(no_service(&format!("read the history of {}", topic.name), topic));
            }
            // Cyclone's threads receive pages.
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until all samples that writers keep have arrived, and begins with the newest `n` of
    /// each key. Expired samples and those of departed writers are not waited for.
    fn begin_with_history(
        &mut self,
        positions: Vec<(String, ProducerPosition)>,
        n: usize,
    ) -> Result<(), TransportError> {
        let lifespan = self.shared.topic.qos.lifespan.unwrap_or(PEER_RESPONSE_TIMEOUT);
        let until = Instant::now() + PEER_RESPONSE_TIMEOUT.min(lifespan);
        loop {
            let mut reorder_queue = locked(&self.shared.reorder_queue);
            self.shared.pull(&mut reorder_queue)?;
            let come = |(session, position): &(String, ProducerPosition)| {
                let lives = || {
                    self.connection().announcements.with_fresh_state(|s| s.live.contains(session))
                };
                reorder_queue.has_seen(position) || !lives()
            };
            if positions.iter().all(come) || Instant::now() >= until {
                let positions: Vec<_> = positions.iter().map(|(_, position)| position).collect();
                history::begin(&mut reorder_queue, &positions, n);
                return Ok(());
            }
            drop(reorder_queue);
            self.shared.topic.connection.check_open()?;
            // Cyclone's threads receive samples in flight within a millisecond or so.
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Takes received pages of history; true if the history has ended or none was requested.
    fn poll_history(&mut self, reorder_queue: &mut ReorderQueue) -> Result<bool, TransportError> {
        let Some(pending_history) = &mut self.pending_history else { return Ok(true) };
        self.shared.pull(reorder_queue)?;
        let over = pending_history.turn(reorder_queue)?;
        self.outages.extend(std::iter::from_fn(|| pending_history.news()));
        if over {
            self.caught_up = pending_history.whole;
            self.pending_history = None;
            reorder_queue.end_history(self.shared.topic.is_kept());
        }
        Ok(over)
    }

    /// Whether requested history is outstanding.
    pub(crate) fn is_behind(&self) -> bool {
        self.pending_history.is_some()
    }

    /// The next sample with its position, for a durability service.
    pub(crate) fn next(&mut self) -> Result<Option<QueuedSample>, TransportError> {
        let shared = Arc::clone(&self.shared);
        let mut reorder_queue = locked(&shared.reorder_queue);
        if let Some(next) = reorder_queue.pop() {
            return Ok(Some(next));
        }
        shared.endpoints.retry_adopting_schema(&shared.topic)?;
        // Reset before the check: a sample that arrives after it signals again.
        shared.wake.rung.store(false, Ordering::SeqCst);
        self.poll_history(&mut reorder_queue)?;
        shared.pull(&mut reorder_queue)?;
        reorder_queue.gaps.clear();
        self.outages.clear();
        Ok(reorder_queue.pop())
    }

    /// Whether history is outstanding, or not delivered yet.
    pub(crate) fn has_history_left(&self) -> bool {
        self.is_behind() || locked(&self.shared.reorder_queue).begins_with_history()
    }

    /// Whether the history that was requested last is complete; its service may have left.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Drops received samples that were not taken: their writers resend them.
    pub(crate) fn discard(&mut self) -> Result<(), TransportError> {
        let shared = Arc::clone(&self.shared);
        let mut reorder_queue = locked(&shared.reorder_queue);
        self.pending_history = None;
        shared.pull(&mut reorder_queue)?;
        reorder_queue.discard();
        Ok(())
    }

    /// Makes a taken sample the next one again.
    pub(crate) fn put_back(&mut self, queued: QueuedSample) {
        locked(&self.shared.reorder_queue).put_back(queued);
    }

    fn connection(&self) -> &Arc<Connection> {
        &self.shared.topic.connection
    }

    fn visit(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, TransportError> {
        loop {
            let incompatible = locked(&self.shared.wake.incompatible).next();
            let Some(incompatible) = incompatible else { break };
            if visit.item(Item::Incompatible(incompatible)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let shared = Arc::clone(&self.shared);
        loop {
            let mut reorder_queue = locked(&shared.reorder_queue);
            if !reorder_queue.has_samples() {
                self.poll_history(&mut reorder_queue)?;
                shared.pull(&mut reorder_queue)?;
            } else if self.pending_history.as_ref().is_some_and(HistoricalData::is_due) {
                self.poll_history(&mut reorder_queue)?;
            }
            let gap = reorder_queue.gaps.pop_front().map(Item::Gap);
            if let Some(told) = gap.or_else(|| self.outages.pop_front().map(Item::Outage)) {
                drop(reorder_queue);
                if visit.item(told).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            let next = reorder_queue.pop();
            drop(reorder_queue);
            let Some(next) = next else { return Ok(ControlFlow::Continue(())) };
            if self.deliver(next, visit).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// The gap before the first sample of a producer that arrived.
    fn lost_since_join(&self, first: &QueuedSample, from: u64) -> Option<Gap> {
        let (partition, to) = (first.partition, first.previous + 1);
        let name = ProducerName::new(first.names().1).ok()?;
        let producer = Producer { name, incarnation: first.incarnation };
        let cause = match self.shared.topic.waits_for_no_reader() {
            true => GapCause::Behind { producer, from, to },
            false => GapCause::Sequence { producer, from, to },
        };
        Some(Gap { partition, lost: to.checked_sub(from)?, cause })
    }

    fn deliver(&mut self, mut next: QueuedSample, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let behind = match std::mem::take(&mut next.behind) {
            ReaderBehind::No | ReaderBehind::First => None,
            ReaderBehind::Since => Some(Item::Behind),
            ReaderBehind::From(from) => self.lost_since_join(&next, from).map(Item::Gap),
        };
        if behind.is_some_and(|behind| visit.item(behind).is_break()) {
            self.put_back(next);
            return ControlFlow::Break(());
        }
        let Ok((header, payload)) = next.read(&mut self.avro) else {
            return visit.item(Item::Gap(ReorderQueue::damaged(&next)));
        };
        let Some(producer) = self.producers.of(next.producer(&header), next.incarnation) else {
            return ControlFlow::Continue(());
        };
        visit.item(Item::Sample(SampleRef {
            partition: next.partition,
            offset: next.offset,
            key: header.key,
            producer: &producer,
            sequence: next.sequence,
            time: next.published(),
            schema: header.schema,
            level: header.level,
            trace: header.trace,
            headers: header.headers,
            payload,
            origin: next.origin,
            pin: None,
        }))
    }
}

fn no_offsets(what: &str) -> TransportError {
    unsupported(
        what.to_owned(),
        "DDS has no offsets: start at the latest or with last values, or use journal: or kafka://",
    )
}

/// Opens the DDS readers.
fn subscribe(
    topic: &Arc<TopicState>,
    request: &ReaderRequest<'_>,
    take: AcceptResent,
    pending_history: bool,
) -> Result<Arc<ReaderCore>, TransportError> {
    let (connection, partitions) = (&topic.connection, request.partitions);
    let wake = Arc::<ReaderWakeup>::default();
    let (told, wakeup) = (Arc::clone(&wake), connection.wakeup());
    let listening = move || -> Listener {
        let (told, wakeup) = (Arc::clone(&told), Arc::clone(&wakeup));
        Box::new(move |news| {
            if let StatusEvent::Incompatible(policy) = news {
                locked(&told.incompatible).add(policy);
                told.ring();
            }
            if matches!(news, StatusEvent::Matched { .. }) {
                told.matched.store(true, Ordering::Release);
                wakeup.ring();
            }
            if news == StatusEvent::Data {
                told.ring();
                if told.arrived.fetch_add(1, Ordering::Relaxed) % MAX_UNATTENDED_SAMPLES
                    == MAX_UNATTENDED_SAMPLES - 1
                {
                    wakeup.ring();
                }
            }
        })
    };
    // The history of stored topics comes from services, not from writers.
    let history = take != AcceptResent::New && !topic.is_kept();
    // A reader that is matched late, or again, finds by the newest packet what it has lost.
    let newest = take == AcceptResent::New && topic.is_kept() && topic.waits_for_no_reader();
    let scope = ReaderScope { partitions, history, newest, schema: request.schema };
    let endpoints = ReaderEndpoints::open(topic, &scope, Box::new(listening))?;
    let all = 0..topic.qos.partitions;
    let places = if partitions.is_empty() { all.collect() } else { partitions.to_vec() };
    let reorder_queue = ReorderQueue::new(&places, take).best_effort(!topic.is_reliable());
    let mut reorder_queue = reorder_queue.may_fall_behind(topic.waits_for_no_reader(), newest);
    if pending_history {
        reorder_queue.begin_history();
    }
    Ok(Arc::new(ReaderCore {
        topic: Arc::clone(topic),
        partitions: partitions.to_vec(),
        endpoints,
        reorder_queue: Mutex::new(reorder_queue.since(connection.start_nanos())),
        wake,
    }))
}

impl Reader for DdsReader {
    fn poll(
        &mut self,
        max: usize,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, TransportError> {
        self.connection().check_open()?;
        if max == 0 {
            return Ok(0);
        }
        self.shared.endpoints.retry_adopting_schema(&self.shared.topic)?;
        let mut visit = Visit::new(visit, max);
        self.shared.wake.rung.store(false, Ordering::SeqCst);
        let visited = self.visit(&mut visit);
        if !matches!(visited, Ok(ControlFlow::Continue(()))) {
            // More may be pending: arming checks again.
            self.shared.wake.rung.store(true, Ordering::SeqCst);
        }
        visited.map(|_| max - visit.left())
    }

    fn arm(&mut self, bell: &Arc<dyn Bell>, token: u64) -> Result<Armed, TransportError> {
        self.connection().check_open()?;
        *locked(&self.shared.wake.armed) = Some((Arc::clone(bell), token));
        // Closing rings armed bells; check again in case it happened in between.
        if self.shared.wake.rung.load(Ordering::SeqCst) || self.connection().is_closed() {
            return Ok(Armed::Ready);
        }
        match self.pending_history {
            // A lost page rings no bell.
            Some(_) => Ok(Armed::Recheck(PAGE_RETRY_INTERVAL)),
            None => Ok(Armed::Waiting),
        }
    }

    fn positions(&self, visit: &mut dyn FnMut(Position)) {
        let mut reorder_queue = locked(&self.shared.reorder_queue);
        // If this fails, the next poll reports it.
        let _ = self.shared.pull(&mut reorder_queue);
        reorder_queue.positions(visit);
    }

    /// DDS has no log with an end: the writers are asked how much they have written.
    fn fence(&self) -> Result<Fence, TransportError> {
        self.connection().check_open()?;
        let shared = Arc::clone(&self.shared);
        Ok(Fence::Query(Box::new(move || {
            let (positions, mut until) = (shared.await_writers()?, None);
            Ok(Fence::Pending(Box::new(move || shared.fence_ends(&positions, &mut until))))
        })))
    }

    /// The size of outstanding history is unknown; it counts as one sample.
    fn lag(&self) -> u64 {
        let mut lag = u64::from(self.pending_history.is_some());
        self.positions(&mut |at| lag += at.end.saturating_sub(at.next));
        lag
    }

    fn seek(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        self.connection().check_open()?;
        match locked(&self.shared.reorder_queue).skip_to(partition, offset) {
            None => Err(not_ours(SCHEME, partition)),
            Some(false) => Err(no_offsets("seek backwards")),
            Some(true) => Ok(()),
        }
    }

    fn commit(&mut self, partition: u32, _: u64) -> Result<(), TransportError> {
        Err(not_ours(SCHEME, partition))
    }
}
