//! Historical data for late joiners: pages from the journal, on request.
//!
//! Constraints. The server has its own thread. A long topic does not delay receipts, and a slow
//! disk does not delay readers. No reader delays the others: each gets a time slice, and resumes
//! where it stopped. The journal finds last values in one step, so worker threads do that.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_bus::transport::{Origin, locked};
use helio_bus::{
    Bell, Event, Lagging, LocalBell, PendingTask, ReadError, Sample, Start, Subscribe,
    Subscription, ThreadPool, Topic, TopicError, TopicName, TransportError,
};
use helio_core::ProducerName;

use super::{ProducerKey, SequencePosition, end, retention_marks, worker_pool};
use crate::announcements::ProducerPosition;
use crate::connection::Connection;
use crate::entity::{self, Listener, StatusEvent, Writer};
use crate::envelope::{self, Header, RESENT, RETENTION_GAP};
use crate::error::{engine, failed};
use crate::peer_messages::{
    HistoryRequest, MessageWriter, NO_MORE_PAGES, PAGE_TOPIC, POSITIONS_ONLY, PageHeader,
    REQUEST_TOPIC, framed, message_qos, page,
};

/// The size from which a page is sent, in bytes.
const MIN_PAGE_BYTES: usize = 1 << 20;
/// How long a page waits for samples that writers had written and that have not arrived. Only time
/// in which the service polled the topic counts.
const MISSING_SAMPLES_TIMEOUT: Duration = Duration::from_secs(5);
/// The most time between two polls that counts. A running service polls more often.
const MAX_COUNTED_POLL_GAP: Duration = Duration::from_millis(250);
/// A reader that has requested nothing for so long has left.
const READER_IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// The most readers at a time, since each may have a page in memory; the others must retry.
const MAX_SERVED_READERS: usize = 1_024;
/// The longest time slice for one reader's page.
const PAGE_TIME_SLICE: Duration = Duration::from_millis(20);
/// After so long a page is sent as it is, even empty, so that the reader knows that the service
/// responds.
const MAX_PAGE_TIME: Duration = Duration::from_secs(1);
/// The number of concurrent searches for last values, which are bound by the processor.
const LAST_VALUE_THREADS: usize = 2;
/// The poll intervals: while samples are missing, and while there is nothing to do.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
use helio_bus::transport::versioned_json;

/// The positions of producers, by partition.
type ProducerPositions = HashMap<u32, HashMap<ProducerName, SequencePosition>>;

/// The part of a stored topic that the server reads.
pub(super) struct ServedTopic {
    journal: Topic,
    /// Whether all samples are stored, or last values alone.
    kept: bool,
    /// The positions in the journal, by partition and producer.
    has: Mutex<ProducerPositions>,
    /// How often the service polled the topic.
    polls: AtomicU64,
    /// No further samples arrive here: the topic is opened again.
    closed: AtomicBool,
}

/// The served topics, by name.
pub(super) type ServedTopics = Mutex<BTreeMap<TopicName, Arc<ServedTopic>>>;

impl ServedTopic {
    pub(super) fn new(
        journal: Topic,
        kept: bool,
        has: &HashMap<ProducerKey, SequencePosition>,
    ) -> Arc<Self> {
        let (polls, closed, served_topic) = Default::default();
        let this = Self { journal, kept, has: served_topic, polls, closed };
        has.iter().for_each(|(producer_key, order)| this.has(producer_key, *order));
        Arc::new(this)
    }

    /// A sample was appended to the journal.
    pub(super) fn has(&self, (partition, producer): &ProducerKey, order: SequencePosition) {
        let mut has = locked(&self.has);
        let of = has.entry(*partition).or_default();
        match of.get_mut(producer) {
            Some(newest) => *newest = order.max(*newest),
            None => _ = of.insert(producer.clone(), order),
        }
    }

    /// The service has polled the topic.
    pub(super) fn polled(&self) {
        self.polls.fetch_add(1, Ordering::AcqRel);
    }

    /// The position of a producer.
    pub(super) fn order(
        &self,
        partition: u32,
        producer: &ProducerName,
    ) -> Option<SequencePosition> {
        locked(&self.has).get(&partition)?.get(producer).copied()
    }

    /// Closes it: its readers restart with the topic that replaces it.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A digest of all positions: different positions have different digests, most likely. A
    /// service that was built by another compiler may have another digest for equal positions,
    /// because the standard library does not fix its hash. Then all positions are compared.
    pub(super) fn digest(&self) -> u64 {
        let has = locked(&self.has);
        let all = has.iter().flat_map(|(partition, of)| of.iter().map(move |of| (partition, of)));
        all.fold(0, |sum, producer_key| {
            let mut hasher = DefaultHasher::new();
            producer_key.hash(&mut hasher);
            hasher.finish().wrapping_add(sum)
        })
    }

    /// All positions, unless the requester's digest equals the own one.
    fn all_positions(&self, known: u64) -> Vec<ProducerPosition> {
        if self.digest() == known {
            return Vec::new();
        }
        let has = locked(&self.has);
        let position = |(partition, of): (&u32, &HashMap<ProducerName, SequencePosition>)| {
            let position = |(producer, order): (&ProducerName, &SequencePosition)| {
                ((*partition, producer.clone()), *order)
            };
            of.iter().map(position).collect::<Vec<_>>()
        };
        super::positions(&has.iter().flat_map(position).collect())
    }

    /// How far the given positions are reached.
    fn reached(&self, until: &[ProducerPosition]) -> Vec<SequencePosition> {
        let has = locked(&self.has);
        let reached = |position: &ProducerPosition| {
            let has = has.get(&position.partition).and_then(|of| of.get(&position.producer));
            has.map_or((0, 0), |has| position.order().min(*has))
        };
        until.iter().map(reached).collect()
    }

    /// Whether a reader has everything up to the positions here, so that nothing need be read.
    fn is_known(&self, have: &ProducerPositions, partitions: &[u32]) -> bool {
        let read = |partition| partitions.is_empty() || partitions.contains(partition);
        let has = locked(&self.has);
        has.iter().filter(|(partition, _)| read(partition)).all(|(partition, of)| {
            let have = have.get(partition);
            let known = |producer, order| have.and_then(|of| of.get(producer)) >= Some(order);
            of.iter().all(|(producer, order)| known(producer, order))
        })
    }

    /// Whether all given positions are reached.
    fn covers(&self, until: &[ProducerPosition]) -> bool {
        self.reached(until)
            .iter()
            .zip(until)
            .all(|(reached, position)| *reached == position.order())
    }

    /// The positions of current and recent writers.
    fn positions(&self, topic: &TopicName, connection: &Connection) -> Vec<ProducerPosition> {
        let writers = connection.announcements.with_state(|state| {
            let writers = state.writers(topic).map(|(_, writer)| writer);
            writers.map(|w| (w.partition, w.producer.clone())).collect::<Vec<_>>()
        });
        let position = |(partition, producer): (u32, ProducerName)| {
            let order = self.order(partition, &producer)?;
            Some(ProducerPosition::new(partition, producer, order))
        };
        writers.into_iter().filter_map(position).collect()
    }

    /// Subscribes to the journal.
    fn read(&self, partitions: &[u32], last: Option<u32>) -> Result<Subscription, TopicError> {
        let start = last.map_or(Start::Earliest, Start::Last);
        let mut options = Subscribe::from(start).lagging(Lagging::Lossless).as_written();
        if !partitions.is_empty() {
            options = options.partitions(partitions.iter().copied());
        }
        self.journal.subscribe(options)
    }
}

/// The server's thread, until it is dropped.
pub(super) struct HistoryServer {
    served: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    bell: Arc<dyn Bell>,
    thread: Option<JoinHandle<()>>,
}

impl HistoryServer {
    pub(super) fn start(
        connection: &Arc<Connection>,
        served_topics: &Arc<ServedTopics>,
    ) -> Result<Self, TransportError> {
        let bell: Arc<dyn Bell> = LocalBell::new();
        let (served, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut serving = HistoryServerThread::open(connection, served_topics, &bell, &served)?;
        let (rung, stopped) = (Arc::clone(&bell), Arc::clone(&stop));
        let run = move || {
            while !stopped.load(Ordering::Acquire) && !serving.connection.is_closed() {
                let rest = serving.turn();
                if !rest.is_zero() {
                    rung.wait(Some(rest), &mut Vec::new());
                }
            }
        };
        let thread = std::thread::Builder::new().name("helio-dds-past".to_owned()).spawn(run);
        let thread = Some(thread.map_err(|error| engine("start a thread", error))?);
        Ok(Self { served, stop, bell, thread })
    }

    /// Whether the thread has ended: it panicked, and the panic was printed.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The number of served samples.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Acquire)
    }
}

impl Drop for HistoryServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring(None);
        let thread = self.thread.take();
        // A panic was printed already.
        thread.into_iter().for_each(|thread| _ = thread.join());
    }
}

/// A session, and its number of the reader.
type ReaderId = (String, u64);

/// The state of the server's thread.
struct HistoryServerThread {
    connection: Arc<Connection>,
    served_topics: Arc<ServedTopics>,
    served: Arc<AtomicU64>,
    requests: entity::Reader,
    cursors: HashMap<ReaderId, HistoryCursor>,
    /// Readers whose last values are being searched.
    opening: HashMap<ReaderId, PendingTask<Result<HistoryCursor, TopicError>>>,
    workers: ThreadPool,
    message_writers: HashMap<String, MessageWriter>,
}

/// The state of one reader's history.
struct HistoryCursor {
    request: HistoryRequest,
    served_topic: Arc<ServedTopic>,
    samples: Subscription,
    /// The positions that the reader has; samples below them are not sent.
    have: ProducerPositions,
    /// The page that is being filled: its samples, and their number.
    body: Vec<u8>,
    count: u64,
    /// The last complete page.
    made: Option<(u64, Vec<u8>)>,
    /// A requested page is not sent yet.
    due: bool,
    asked: Instant,
    /// When that page was first requested.
    since: Instant,
    /// The reached positions; how long they have not changed, counted up to which poll, and when
    /// that was.
    reached: Vec<SequencePosition>,
    waited: Duration,
    last_poll: (u64, Instant),
    ended: bool,
}

/// The progress of a page in a time slice.
enum PageProgress {
    /// It is complete.
    Ready,
    /// There is more to read.
    More,
    /// Samples that belong to it have not arrived.
    Waiting,
}

impl HistoryServerThread {
    fn open(
        connection: &Arc<Connection>,
        served_topics: &Arc<ServedTopics>,
        bell: &Arc<dyn Bell>,
        served: &Arc<AtomicU64>,
    ) -> Result<Self, TransportError> {
        let workers = worker_pool(bell, LAST_VALUE_THREADS);
        let bell = Arc::clone(bell);
        let listener: Listener = Box::new(move |_: StatusEvent| bell.ring(None));
        let topic = connection.message_topic(REQUEST_TOPIC)?;
        let requests = entity::Reader::open(&topic, &message_qos().keep_all(), Some(listener));
        let requests = requests.map_err(failed("open a message reader"))?;
        let (cursors, opening, message_writers) = Default::default();
        let (served_topics, served) = (Arc::clone(served_topics), Arc::clone(served));
        let connection = Arc::clone(connection);
        Ok(Self {
            connection,
            served_topics,
            served,
            requests,
            cursors,
            opening,
            workers,
            message_writers,
        })
    }

    /// Sends due pages; returns how long the thread may sleep.
    fn turn(&mut self) -> Duration {
        self.receive();
        self.take_opened();
        let announcements = &self.connection.announcements;
        let live =
            |session: &String| announcements.with_state(|state| state.live.contains(session));
        // A closed topic gets no samples: its readers restart.
        self.cursors.retain(|(session, _), cursor| {
            live(session)
                && cursor.asked.elapsed() < READER_IDLE_TIMEOUT
                && !cursor.served_topic.is_closed()
        });
        self.opening.retain(|(session, _), _| live(session));
        self.message_writers.retain(|session, _| live(session));
        let mut rest = POLL_INTERVALS[1];
        let due: Vec<_> = self
            .cursors
            .iter()
            .filter(|(_, c)| c.due)
            .map(|(reader_id, _)| reader_id.clone())
            .collect();
        for reader_id in due {
            let Some(cursor) = self.cursors.get_mut(&reader_id) else { continue };
            let positions = |served_topic: &ServedTopic, topic: &_| {
                served_topic.positions(topic, &self.connection)
            };
            match cursor.work(PAGE_TIME_SLICE, positions) {
                Ok(PageProgress::More) => rest = Duration::ZERO,
                Ok(PageProgress::Waiting) => rest = rest.min(POLL_INTERVALS[0]),
                Ok(PageProgress::Ready) => {
                    // If the endpoints have not matched, or there is no room, the next turn
                    // retries.
                    rest = if self.send(&reader_id) {
                        Duration::ZERO
                    } else {
                        rest.min(POLL_INTERVALS[0])
                    };
                }
                // A read error affects this reader alone, which changes the service.
                Err(_) => {
                    cursor.fail();
                    rest = Duration::ZERO;
                }
            }
        }
        rest
    }

    /// Sends a complete page; false if that must be retried.
    fn send(&mut self, reader_id: &ReaderId) -> bool {
        let (session, number) = reader_id;
        // It is put back after sending.
        let Some(mut cursor) = self.cursors.remove(reader_id) else { return true };
        let (key, made) = (number.to_string(), cursor.made.as_ref());
        let message_writer = self.message_writer(session);
        let write = |message_writer: &mut MessageWriter, page: &[u8]| {
            message_writer.write(key.as_bytes(), page).is_ok()
        };
        let sent = message_writer
            .zip(made)
            .is_some_and(|(message_writer, (_, page))| write(message_writer, page));
        if sent {
            cursor.due = false;
            self.served.fetch_add(std::mem::take(&mut cursor.count), Ordering::AcqRel);
        }
        self.cursors.insert(reader_id.clone(), cursor);
        sent
    }

    /// Receives requests.
    fn receive(&mut self) {
        let mut samples = Vec::new();
        let mut answers: Vec<(ReaderId, PageHeader)> = Vec::new();
        // Requests that cannot be taken now are repeated by the readers.
        let _ = self.requests.take(&mut samples);
        for sample in samples.iter().filter(|sample| sample.valid) {
            let Some((header, payload)) = envelope::parse(sample.cdr()) else { continue };
            let request = match versioned_json::decode::<HistoryRequest>(payload) {
                Ok(request) => request,
                Err(error) => {
                    let announcements = &self.connection.announcements;
                    announcements.report_unreadable(header.producer, "a history request", &error);
                    continue;
                }
            };
            if request.service != self.connection.announcements.session {
                continue;
            }
            let reader_id = (header.producer.to_owned(), request.reader);
            if request.page == NO_MORE_PAGES {
                self.cursors.remove(&reader_id);
                self.opening.remove(&reader_id);
            } else if request.page == POSITIONS_ONLY {
                if let Some(served_topic) = locked(&self.served_topics).get(&request.topic) {
                    let positions = served_topic.all_positions(request.digest);
                    answers.push((
                        reader_id,
                        PageHeader { end: true, positions, ..PageHeader::new(POSITIONS_ONLY) },
                    ));
                }
            } else if let Some(cursor) = self.cursors.get_mut(&reader_id) {
                cursor.asked(request.page);
            } else if request.page == 0
                && let Some(head) = self.begin(&reader_id, request)
            {
                answers.push((reader_id, head));
            }
        }
        answers.into_iter().for_each(|(reader_id, head)| self.answer(&reader_id, &head));
    }

    /// Begins to serve a reader; returns the response if it cannot.
    fn begin(&mut self, reader_id: &ReaderId, request: HistoryRequest) -> Option<PageHeader> {
        let served_topic = locked(&self.served_topics).get(&request.topic).cloned()?;
        let has_no_room = self.cursors.len() + self.opening.len() >= MAX_SERVED_READERS;
        if has_no_room || self.opening.contains_key(reader_id) {
            return Some(PageHeader { busy: true, ..PageHeader::new(0) });
        }
        if request.last.is_some() {
            let opening = self.workers.run(move || HistoryCursor::open(served_topic, request));
            self.opening.insert(reader_id.clone(), opening);
            return None;
        }
        match HistoryCursor::open(served_topic, request) {
            Ok(cursor) => _ = self.cursors.insert(reader_id.clone(), cursor),
            // An invalid request affects its sender alone.
            Err(_) => return Some(PageHeader::failed(0)),
        }
        None
    }

    /// Begins to serve readers whose last values have been found.
    fn take_opened(&mut self) {
        let over = |(reader_id, opening): (&ReaderId, &PendingTask<_>)| match opening.poll() {
            Poll::Pending => None,
            Poll::Ready(opened) => Some((reader_id.clone(), opened)),
        };
        let over: Vec<_> = self.opening.iter().filter_map(over).collect();
        for (reader_id, opened) in over {
            self.opening.remove(&reader_id);
            match opened {
                Some(Ok(cursor)) => _ = self.cursors.insert(reader_id, cursor),
                Some(Err(_)) | None => self.answer(&reader_id, &PageHeader::failed(0)),
            }
        }
    }

    /// Sends a page without samples. If that fails, the reader repeats its request.
    fn answer(&mut self, (session, number): &ReaderId, head: &PageHeader) {
        if let Some(message_writer) = self.message_writer(session) {
            let _ = message_writer.write(number.to_string().as_bytes(), &page(head));
        }
    }

    /// The writer to a session; `None` until it has matched the session's reader.
    fn message_writer(&mut self, session: &str) -> Option<&mut MessageWriter> {
        if !self.message_writers.contains_key(session) {
            let message_writer = message_writer(&self.connection, session).ok()?;
            self.message_writers.insert(session.to_owned(), message_writer);
        }
        self.message_writers.get_mut(session).filter(|message_writer| message_writer.is_read())
    }
}

impl Drop for HistoryServerThread {
    fn drop(&mut self) {
        // The workers read the journal, which is closed next.
        end(&self.workers);
    }
}

fn message_writer(connection: &Connection, session: &str) -> Result<MessageWriter, TransportError> {
    let qos = message_qos().keep_all().partitions(&[session]).map_err(failed("name a session"))?;
    let writer = Writer::open(&connection.message_topic(PAGE_TOPIC)?, &qos, None);
    let writer = writer.map_err(failed("open a message writer"))?;
    Ok(MessageWriter::new(writer, &connection.announcements.session))
}

impl HistoryCursor {
    fn open(
        served_topic: Arc<ServedTopic>,
        mut request: HistoryRequest,
    ) -> Result<Self, TopicError> {
        let samples = served_topic.read(&request.partitions, request.last)?;
        let mut have = ProducerPositions::new();
        for ProducerPosition { partition, producer, incarnation, sequence, .. } in
            request.received_positions.drain(..)
        {
            have.entry(partition).or_default().insert(producer, (incarnation, sequence));
        }
        let (now, reached) = (Instant::now(), served_topic.reached(&request.required_positions));
        Ok(Self {
            request,
            samples,
            have,
            body: Vec::new(),
            count: 0,
            made: None,
            due: true,
            asked: now,
            since: now,
            reached,
            waited: Duration::ZERO,
            last_poll: (served_topic.polls.load(Ordering::Acquire), now),
            ended: false,
            served_topic,
        })
    }

    /// A page is requested, or requested again.
    fn asked(&mut self, page: u64) {
        let next = self.made.as_ref().map_or(0, |(made, _)| made + 1);
        if page == next && !self.ended || page.checked_add(1) == Some(next) {
            self.asked = Instant::now();
            if !std::mem::replace(&mut self.due, true) {
                self.since = self.asked;
            }
            if page == next {
                self.request.page = page;
            }
        }
    }

    /// Ends with an error page: the journal cannot be read.
    fn fail(&mut self) {
        let wanted = self.request.page;
        self.body.clear();
        self.made = Some((wanted, page(&PageHeader::failed(wanted))));
        (self.count, self.ended) = (0, true);
    }

    /// Whether the missing samples have timed out. Samples of other producers do not restart the
    /// timeout. Time in which the service was blocked does not count, because no samples could
    /// arrive.
    fn has_timed_out(&mut self) -> bool {
        let reached = self.served_topic.reached(&self.request.required_positions);
        if reached != self.reached {
            (self.reached, self.waited) = (reached, Duration::ZERO);
        }
        let (polls, now) = (self.served_topic.polls.load(Ordering::Acquire), Instant::now());
        if polls != self.last_poll.0 {
            self.waited +=
                now.saturating_duration_since(self.last_poll.1).min(MAX_COUNTED_POLL_GAP);
            self.last_poll = (polls, now);
        }
        self.waited >= MISSING_SAMPLES_TIMEOUT
    }

    /// Fills the due page, for a time slice.
    fn work(
        &mut self,
        slice: Duration,
        positions: impl FnOnce(&ServedTopic, &TopicName) -> Vec<ProducerPosition>,
    ) -> Result<PageProgress, ReadError> {
        let wanted = self.request.page;
        if self.made.as_ref().is_some_and(|(made, _)| *made == wanted) {
            return Ok(PageProgress::Ready);
        }
        // Checked before reading: samples that arrive later belong to the next page.
        let complete =
            !self.served_topic.kept || self.served_topic.covers(&self.request.required_positions);
        let last = self.request.last.is_some();
        let positions =
            if last { positions(&self.served_topic, &self.request.topic) } else { Vec::new() };
        let (begun, mut cdr) = (Instant::now(), Vec::new());
        let mut at_end = !last && complete && self.made.is_none() && self.body.is_empty() && {
            self.served_topic.is_known(&self.have, &self.request.partitions)
        };
        while self.body.len() < MIN_PAGE_BYTES && !at_end {
            match self.samples.try_next()? {
                Some(Event::Sample(sample)) => {
                    if !self.knows(&sample) {
                        envelope_of(&sample, &mut cdr);
                        framed(&cdr, &mut self.body);
                        self.count += 1;
                    }
                }
                Some(_) => {}
                // Many skipped samples look like the end.
                None => at_end = self.samples.stats().lag == 0,
            }
            if begun.elapsed() >= slice {
                break;
            }
        }
        let end = at_end && (complete || self.has_timed_out());
        let full = self.body.len() >= MIN_PAGE_BYTES || (at_end && !self.body.is_empty());
        if !end && !full && self.since.elapsed() < MAX_PAGE_TIME {
            return Ok(if at_end { PageProgress::Waiting } else { PageProgress::More });
        }
        let positions = if end { positions } else { Vec::new() };
        let mut made = page(&PageHeader { end, complete, positions, ..PageHeader::new(wanted) });
        made.append(&mut self.body);
        (self.made, self.ended) = (Some((wanted, made)), end);
        Ok(PageProgress::Ready)
    }

    /// Whether the reader has a sample.
    fn knows(&self, sample: &Sample) -> bool {
        let producer = &sample.header.producer;
        let has = self.have.get(&sample.partition).and_then(|of| of.get(&producer.name));
        has.is_some_and(|has| (producer.incarnation, sample.header.sequence) <= *has)
    }
}

/// Serializes a sample as it was on the wire.
fn envelope_of(sample: &Sample, into: &mut Vec<u8>) {
    let own = retention_marks::unmarked(sample.headers.as_ref());
    let follows_retention_gap = sample.origin == Origin::History || own.is_some();
    let left = if follows_retention_gap { RETENTION_GAP } else { 0 };
    let header = Header {
        producer: sample.header.producer.name.as_str(),
        incarnation: sample.header.producer.incarnation,
        sequence: sample.header.sequence,
        previous: 0,
        time: sample.header.time,
        schema: sample.header.schema,
        partition: sample.partition,
        level: sample.header.level,
        flags: RESENT | left,
        trace: sample.header.trace,
        key: &sample.key,
        headers: own.as_ref().unwrap_or(&sample.headers).as_ref(),
    };
    envelope::write_head(&header, sample.payload.len(), into);
    let head = into.len();
    into.extend_from_slice(&sample.payload);
    into.resize(into.len() + (into.len() - head).wrapping_neg() % 4, 0);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use helio_bus::{Bus, Message, Qos, TopicSpec};

    const COUNT: u64 = 300;

    fn served_topic() -> (Bus, Arc<ServedTopic>, ProducerName) {
        let bus = Bus::builder().producer("Mount").connect("memory:").unwrap();
        let topic = bus.topic(TopicSpec::new("kept").unwrap().qos(Qos::stream())).unwrap();
        let publisher = topic.publisher().unwrap();
        for _ in 0..COUNT {
            publisher.publish(Message::new(b"payload")).wait().unwrap();
        }
        let producer = ProducerName::new("Mount").unwrap();
        let incarnation = publisher.producer().incarnation;
        let has = HashMap::from([((0, producer.clone()), (incarnation, COUNT))]);
        (bus, ServedTopic::new(topic, true, &has), producer)
    }

    fn cursor(
        served_topic: &Arc<ServedTopic>,
        until: Vec<ProducerPosition>,
        have: Vec<ProducerPosition>,
    ) -> HistoryCursor {
        let request = HistoryRequest {
            service: String::new(),
            reader: 1,
            page: 0,
            topic: "kept".parse().unwrap(),
            partitions: Vec::new(),
            last: None,
            required_positions: until,
            received_positions: have,
            digest: 0,
        };
        HistoryCursor::open(Arc::clone(served_topic), request).unwrap()
    }

    fn none(_: &ServedTopic, _: &TopicName) -> Vec<ProducerPosition> {
        Vec::new()
    }

    fn position(producer: &ProducerName, incarnation: u64, sequence: u64) -> ProducerPosition {
        ProducerPosition::new(0, producer.clone(), (incarnation, sequence))
    }

    #[test]
    fn a_long_look_for_what_a_reader_has_not_is_made_in_slices() {
        let (_bus, served_topic, producer) = served_topic();
        let all = position(&producer, u64::MAX, 0);
        // A producer that the reader does not have.
        served_topic.has(&(0, ProducerName::new("Dome").unwrap()), (1, 1));
        let mut cursor = cursor(&served_topic, Vec::new(), vec![all]);
        let mut slices = 0;
        while !cursor.ended {
            match cursor.work(Duration::ZERO, none).unwrap() {
                PageProgress::More => slices += 1,
                // On a slow machine the page is sent before the end.
                PageProgress::Ready => cursor.asked(cursor.request.page + 1),
                PageProgress::Waiting => panic!("there is more"),
            }
        }
        assert!(slices >= COUNT - COUNT / 10, "{slices} slices");
        assert_eq!(cursor.count, 0);
    }

    #[test]
    fn who_has_all_that_is_here_is_told_so_without_a_look() {
        let (_bus, served_topic, producer) = served_topic();
        let all = position(&producer, u64::MAX, 0);
        let mut cursor = cursor(&served_topic, Vec::new(), vec![all]);
        assert!(matches!(cursor.work(Duration::ZERO, none).unwrap(), PageProgress::Ready));
        let head = head_of(&cursor.made.as_ref().unwrap().1);
        assert!(cursor.ended && head.end && head.complete);
    }

    #[test]
    fn what_others_publish_does_not_renew_the_patience_for_what_is_missing() {
        let (bus, served_topic, producer) = served_topic();
        let other = bus.topic(TopicSpec::new("kept").unwrap().qos(Qos::stream())).unwrap();
        let other = other.publisher().unwrap();
        let incarnation = served_topic.order(0, &producer).unwrap().0;
        let missing = position(&producer, incarnation, COUNT + 9);
        let mut cursor = cursor(&served_topic, vec![missing], Vec::new());
        let mut pages = |of_it: Option<u64>| {
            other.publish(Message::new(b"another's")).wait().unwrap();
            if let Some(number) = of_it {
                served_topic.has(&(0, producer.clone()), (incarnation, number));
            }
            cursor.last_poll.1 = cursor.last_poll.1.checked_sub(MAX_COUNTED_POLL_GAP).unwrap();
            served_topic.polled();
            while !matches!(cursor.work(MAX_PAGE_TIME, none).unwrap(), PageProgress::Ready) {}
            if !cursor.ended {
                cursor.due = false;
                cursor.asked(cursor.request.page + 1);
            }
            cursor.ended
        };
        let polls = MISSING_SAMPLES_TIMEOUT.div_duration_f64(MAX_COUNTED_POLL_GAP) as usize;
        // Half of the timeout, and a missing sample: the timeout restarts.
        (0..polls / 2).for_each(|_| assert!(!pages(None)));
        assert!(!pages(Some(COUNT + 1)));
        let more = (0..polls).take_while(|_| !pages(None)).count();
        assert!(more >= polls / 2, "it had come nearer");
        let page = cursor.made.as_ref().map(|(_, page)| head_of(page)).unwrap();
        assert!(page.end && !page.complete && !page.failed, "it ends though others go on");
    }

    fn head_of(page: &[u8]) -> PageHeader {
        let length = u32::from_le_bytes(page[..4].try_into().unwrap()) as usize;
        versioned_json::decode(&page[4..4 + length]).unwrap()
    }

    #[test]
    fn what_the_service_is_held_up_does_not_count_as_patience() {
        let (_bus, served_topic, producer) = served_topic();
        let until = position(&producer, u64::MAX, 1);
        let mut cursor = cursor(&served_topic, vec![until], Vec::new());
        // All samples have arrived, and the end is not reached.
        while !matches!(cursor.work(MAX_PAGE_TIME, none).unwrap(), PageProgress::Ready) {}
        assert!(!cursor.ended);
        let next = |cursor: &mut HistoryCursor| {
            cursor.due = false;
            cursor.asked(1);
            cursor.last_poll.1 = cursor.last_poll.1.checked_sub(Duration::from_secs(60)).unwrap();
            cursor.work(MAX_PAGE_TIME, none).unwrap();
            cursor.ended
        };
        assert!(!next(&mut cursor) && !next(&mut cursor), "nobody has looked meanwhile");
        let polls = (0..100).take_while(|_| {
            served_topic.polled();
            !next(&mut cursor)
        });
        assert_eq!(
            polls.count() as u32 + 1,
            MISSING_SAMPLES_TIMEOUT.div_duration_f64(MAX_COUNTED_POLL_GAP) as u32
        );
        let head = head_of(&cursor.made.as_ref().unwrap().1);
        assert!(head.end && !head.complete);
    }
}
