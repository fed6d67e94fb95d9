//! The state that everything on one connection shares, and the connection's three threads. One
//! receives announcements and responds to requests; the others wait for acknowledgements, shortly
//! and longer.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Clock, TransportError};
use helio_core::{ProducerName, TopicName};

use crate::announcements::{
    Announcement, Announcements, Effect, EndpointKind, OpenedEndpoint, Request, RequestKind,
    Response, hex,
};
use crate::entity::{Domain, Participant, Qos, Struct, Topic};
use crate::error::{engine, failed};
use crate::names::Names;
use crate::options::{Options, PEER_RESPONSE_TIMEOUT};
use crate::peer_messages::{self, PeerMessages};
use crate::process_identity;
use crate::topic::TopicState;
use crate::writer::WriterCore;

/// How long a new endpoint waits to match the other endpoints of its topic.
const MATCH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a new reader waits for the responses of sessions that have announced no writer of its
/// topic: if one of them is opening it, that one waits for the reader. Live sessions respond within
/// milliseconds, and within this time on a loaded host.
const IDLE_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The poll interval of requests that wait for endpoints to match.
const MATCH_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The longest sleep of a thread.
const MAX_THREAD_SLEEP: Duration = Duration::from_secs(1);
/// How long one round waits for the acknowledgements of all writers, and at least of each writer.
/// Acknowledgements take less: each wait is for the samples that were written when it began.
const ACK_WAIT_PER_ROUND: Duration = Duration::from_millis(50);
const ACK_WAIT_PER_WRITER: Duration = Duration::from_millis(20);
/// The wait for the acknowledgements of a writer whose readers take longer.
const SLOW_ACK_WAIT: Duration = Duration::from_secs(1);

/// One connection. It lives as long as anything that was opened on it, and closes it when dropped.
pub(crate) struct Connection {
    pub(crate) url: String,
    /// The domain's name for bridges.
    pub(crate) name: String,
    pub(crate) names: Names,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) announcements: Announcements,
    pub(crate) messages: PeerMessages,
    pub(crate) participant: Arc<Participant>,
    /// A session that is silent for so long counts as gone.
    pub(crate) lease: Duration,
    /// How long to wait for a durability service that is not discovered yet.
    pub(crate) service_timeout: Duration,
    /// From then on, undiscovered durability services are not waited for.
    services_until: Instant,
    /// Called when something was received.
    change_listener: Mutex<Option<ChangeListener>>,
    /// By name and type.
    topics: Mutex<HashMap<(String, Struct), Weak<Topic>>>,
    topic_states: Mutex<HashMap<TopicName, Weak<TopicState>>>,
    writers: Mutex<Vec<Weak<WriterCore>>>,
    readers: Mutex<Vec<Weak<dyn OpenReader>>>,
    wakeup: Arc<Wakeup>,
    receipts: Arc<Wakeup>,
    slow_receipts: Arc<Wakeup>,
    closed: AtomicBool,
}

/// The part of a reader that the connection's threads use.
pub(crate) trait OpenReader: Send + Sync {
    fn topic(&self) -> &TopicName;

    /// Opens the typed endpoint if the topic's first schema has changed. After an error the next
    /// poll of the subscription retries, and reports it.
    fn adopt_schema(&self) -> Result<(), TransportError>;

    /// Adds its endpoints to the response if they have matched the opened ones. False if they have
    /// not, and its partitions overlap.
    fn report_match(&self, opened: &OpenedEndpoint, response: &mut Response) -> bool;

    /// The newest received incarnation of a producer; 0 is none.
    fn newest(&self, producer: &ProducerName) -> u64;

    /// Wakes the subscription.
    fn ring(&self);

    /// Takes received samples and enforces the limits, in case the subscription does not.
    fn attend(&self);
}

/// Wakes a thread.
#[derive(Default)]
pub(crate) struct Wakeup {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Wakeup {
    pub(crate) fn ring(&self) {
        if !std::mem::replace(&mut *locked(&self.rung), true) {
            self.ring.notify_one();
        }
    }

    /// Sleeps until it is rung, at most `at_most`.
    fn rest(&self, at_most: Duration) {
        let mut rung = locked(&self.rung);
        if !*rung {
            let waited = self.ring.wait_timeout(rung, at_most);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *rung = false;
    }
}

/// Called by the receiving thread after it received something, at least once a second.
type ChangeListener = Box<dyn Fn(&Connection) + Send>;

/// A request whose response waits for endpoints to match.
struct DeferredResponse {
    to: String,
    request: Request,
    until: Instant,
}

impl Connection {
    pub(crate) fn open(
        options: &Options,
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<Self>, TransportError> {
        let domain = Domain::open(options.domain, &options.config).map_err(failed("connect"))?;
        let alone = domain.is_new();
        let identity = process_identity::own().unwrap_or_default();
        let qos = Qos::new().user_data(identity.as_bytes());
        let participant = Participant::join(domain, &qos).map_err(failed("connect"))?;
        let names = Names::new(&options.prefix);
        let wakeup = Arc::<Wakeup>::default();
        let rung = Arc::clone(&wakeup);
        let news: Arc<dyn Fn() + Send + Sync> = Arc::new(move || rung.ring());
        let announcements = Announcements::open(&participant, &names, clock, &news)?;
        let connection = Arc::new(Self {
            messages: PeerMessages::new(&announcements.session, news),
            announcements,
            lease: options.lease,
            service_timeout: options.service_timeout,
            services_until: Instant::now() + options.service_timeout,
            change_listener: Mutex::default(),
            url: options.url.clone(),
            name: options.name.clone(),
            names,
            clock: Arc::clone(clock),
            participant,
            topics: Mutex::default(),
            topic_states: Mutex::default(),
            writers: Mutex::default(),
            readers: Mutex::default(),
            wakeup,
            receipts: Arc::default(),
            slow_receipts: Arc::default(),
            closed: AtomicBool::new(false),
        });
        let (weak, wakeup) = (Arc::downgrade(&connection), Arc::clone(&connection.wakeup));
        start("helio-dds", move || receive_all(&weak, &wakeup))?;
        let (weak, wakeup) = (Arc::downgrade(&connection), Arc::clone(&connection.receipts));
        start("helio-dds-acks", move || wait_for_all(&weak, &wakeup))?;
        let (weak, wakeup) = (Arc::downgrade(&connection), Arc::clone(&connection.slow_receipts));
        start("helio-dds-late", move || wait_for_slow(&weak, &wakeup))?;
        if alone {
            std::thread::sleep(options.discovery);
        }
        let undiscovered = connection.announcements.join()?;
        undiscovered.iter().for_each(|session| report_undiscovered(session));
        Ok(connection)
    }

    pub(crate) fn check_open(&self) -> Result<(), TransportError> {
        if self.is_closed() { Err(TransportError::Closed) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Wakes the receiving thread.
    pub(crate) fn ring(&self) {
        self.wakeup.ring();
    }

    /// Wakes the acknowledgement thread.
    pub(crate) fn await_receipts(&self) {
        self.receipts.ring();
    }

    /// Wakes the thread that waits longer for acknowledgements.
    pub(crate) fn await_slow_receipts(&self) {
        self.slow_receipts.ring();
    }

    pub(crate) fn wakeup(&self) -> Arc<Wakeup> {
        Arc::clone(&self.wakeup)
    }

    /// A DDS topic, shared by all endpoints of this connection.
    pub(crate) fn dds_topic(&self, name: &str, of: &Struct) -> Result<Arc<Topic>, TransportError> {
        let mut topics = locked(&self.topics);
        // Two types of one name are two topics.
        let key = (name.to_owned(), of.clone());
        if let Some(topic) = topics.get(&key).and_then(Weak::upgrade) {
            return Ok(topic);
        }
        let topic = Topic::create(&self.participant, name, of, &Qos::new());
        let topic = topic.map_err(failed("create the topic"))?;
        topics.retain(|_, topic| topic.strong_count() > 0);
        topics.insert(key, Arc::downgrade(&topic));
        Ok(topic)
    }

    /// A DDS topic for messages between sessions.
    pub(crate) fn message_topic(&self, kind: &str) -> Result<Arc<Topic>, TransportError> {
        peer_messages::kind(&self.participant, &self.names, kind)
    }

    /// Receives the acks of durability services from now on.
    pub(crate) fn subscribe_acks(&self) -> Result<(), TransportError> {
        self.messages.subscribe_acks(|kind| self.message_topic(kind))
    }

    /// Whether there is a durability service. Waits for an undiscovered one, for a bounded time
    /// after connecting.
    pub(crate) fn has_service(&self) -> bool {
        loop {
            if self.announcements.with_fresh_state(|state| state.has_services()) {
                return true;
            }
            if self.is_closed() || Instant::now() >= self.services_until {
                return false;
            }
            self.announcements.wait_for_change(self.services_until);
        }
    }

    /// By then, services that were running at the start have been discovered.
    pub(crate) fn services_until(&self) -> Instant {
        self.services_until
    }

    /// Sets the function that is called after something was received, at least once a second.
    pub(crate) fn listen(&self, change_listener: impl Fn(&Connection) + Send + 'static) {
        *locked(&self.change_listener) = Some(Box::new(change_listener));
    }

    /// The state of a topic; opens it if it is not open on this connection.
    pub(crate) fn open_topic_state(
        &self,
        name: &TopicName,
        open: impl FnOnce() -> Result<Arc<TopicState>, TransportError>,
    ) -> Result<Arc<TopicState>, TransportError> {
        let mut topic_states = locked(&self.topic_states);
        if let Some(topic) = topic_states.get(name).and_then(Weak::upgrade) {
            return Ok(topic);
        }
        let topic = open()?;
        topic_states.insert(name.clone(), Arc::downgrade(&topic));
        Ok(topic)
    }

    /// Announces the known schemas of a topic that this session has open. So they outlive the
    /// session that announced them first.
    pub(crate) fn announce_schemas(&self, topic: &TopicName) {
        let session = &self.announcements.session;
        let unsaid = self.announcements.with_state(|state| {
            let mut words = Vec::new();
            if !state.holders(topic).contains(session) {
                return words;
            }
            for (after, (id, origin)) in state.schemas(topic).into_iter().enumerate() {
                if !state.announces_schema(session, topic, id) {
                    let (topic, schema) = (topic.clone(), hex(id));
                    let text = state.text(id).cloned();
                    words.extend(
                        text.map(|text| Announcement::SchemaText { schema: schema.clone(), text }),
                    );
                    words.push(Announcement::TopicSchema { topic, schema, after, origin });
                }
            }
            words
        });
        for announcement in unsaid {
            // If this fails, other sessions still announce it.
            let _ = self.announcements.announce(announcement);
        }
    }

    pub(crate) fn add_writer(&self, writer: &Arc<WriterCore>) {
        let mut writers = locked(&self.writers);
        writers.retain(|writer| writer.strong_count() > 0);
        writers.push(Arc::downgrade(writer));
    }

    pub(crate) fn add_reader(&self, reader: Weak<dyn OpenReader>) {
        let mut readers = locked(&self.readers);
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(reader);
    }

    pub(crate) fn writers(&self) -> Vec<Arc<WriterCore>> {
        locked(&self.writers).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn writers_of(&self, topic: &TopicName) -> Vec<Arc<WriterCore>> {
        let mut writers = self.writers();
        writers.retain(|writer| writer.topic.name == *topic);
        writers
    }

    fn readers(&self) -> Vec<Arc<dyn OpenReader>> {
        locked(&self.readers).iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits until a new endpoint has matched the known endpoints of its topic, and they it;
    /// returns the other sessions' responses.
    pub(crate) fn await_match(
        &self,
        opened: OpenedEndpoint,
        matched: impl Fn() -> Vec<String>,
    ) -> Result<Vec<(String, Response)>, TransportError> {
        let holders = self.announcements.with_fresh_state(|state| {
            let writes = |session: &String| {
                let mut writers = state.writers(&opened.topic);
                writers.any(|(by, writer)| by == session && writer.open)
            };
            let awaited =
                |session: &String| opened.endpoint_kind == EndpointKind::Writer || writes(session);
            let timeout = |session: &String| match awaited(session) {
                true => PEER_RESPONSE_TIMEOUT,
                false => IDLE_RESPONSE_TIMEOUT,
            };
            let holders = state.holders(&opened.topic).into_iter();
            holders.map(|session| (session.clone(), timeout(&session))).collect::<Vec<_>>()
        });
        let responses =
            self.announcements.request_each(holders, RequestKind::OpenedEndpoint(opened))?;
        let until = Instant::now() + MATCH_TIMEOUT;
        let theirs: Vec<_> = responses.iter().flat_map(|(_, response)| &response.matched).collect();
        while !theirs.is_empty() && Instant::now() < until {
            let ours = matched();
            if theirs.iter().all(|end| ours.contains(end)) {
                break;
            }
            // Cyclone's threads match endpoints without a notification for both sides, so this
            // polls.
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(responses)
    }

    /// Opens the typed endpoints of a topic whose first schema has changed. After an error the next
    /// use of the endpoint retries, and reports it.
    pub(crate) fn adopt_schema(&self, topic: &TopicName) -> Result<(), TransportError> {
        let mut outcome = Ok(());
        for reader in self.readers().iter().filter(|reader| reader.topic() == topic) {
            outcome = outcome.and(reader.adopt_schema());
        }
        for writer in self.writers_of(topic) {
            outcome = outcome.and(writer.endpoints.adopt_schema(&writer.topic));
        }
        outcome
    }

    /// Matches new typed endpoints of writers with their readers, in a thread of its own. Until
    /// they match, samples are written as envelopes.
    pub(crate) fn match_in_background(&self, topic: &TopicName) {
        let mut unmatched = self.writers_of(topic);
        unmatched.retain(|writer| writer.endpoints.unmatched().is_some());
        let unmatched: Vec<_> = unmatched.iter().map(Arc::downgrade).collect();
        if unmatched.is_empty() {
            return;
        }
        let await_match = move || {
            for writer in unmatched {
                while let Some(writer) = writer.upgrade() {
                    if writer.await_match().is_ok() || writer.topic.connection.is_closed() {
                        break;
                    }
                    drop(writer);
                    std::thread::sleep(MATCH_TIMEOUT);
                }
            }
        };
        // Without the thread, the writers continue with envelopes.
        let _ = start("helio-dds-meet", await_match);
    }

    /// Handles what was received; adds requests whose responses must wait to `deferred`.
    fn receive(&self, deferred: &mut Vec<DeferredResponse>) {
        for (session, heard) in self.announcements.receive() {
            match heard {
                Effect::Nothing => {}
                Effect::Schemas(topic) => {
                    self.announce_schemas(&topic);
                    // Before the request behind it is answered. After an error the next use of the
                    // endpoint retries.
                    let _ = self.adopt_schema(&topic);
                    self.match_in_background(&topic);
                }
                Effect::Writers(topic) => {
                    self.writers_of(&topic).iter().for_each(|writer| writer.check_ownership());
                }
                Effect::Ready(topic) => {
                    self.writers_of(&topic).iter().for_each(|writer| writer.send_again(0));
                }
                Effect::Requested(request) => {
                    deferred.push(DeferredResponse {
                        to: session,
                        request,
                        until: Instant::now() + MATCH_TIMEOUT,
                    });
                }
            }
        }
        deferred.retain(|deferred| !self.try_to_respond(deferred));
        let stored = self.messages.take_acks(&self.announcements);
        // After `take_acks`: a writer that is missing here was opened later, and no ack is for it.
        let writers = self.writers();
        for (service, stored) in stored {
            let about = |writer: &&Arc<WriterCore>| writer.topic.name == stored.topic;
            for writer in writers.iter().filter(about) {
                writer.stored(&service, &stored);
            }
        }
        writers.iter().for_each(|writer| writer.settle());
        if let Some(change_listener) = &*locked(&self.change_listener) {
            change_listener(self);
        }
    }

    /// Responds to a request if the endpoints have matched, or after a timeout. False if it must
    /// wait.
    fn try_to_respond(&self, DeferredResponse { to, request, until }: &DeferredResponse) -> bool {
        let mut response = Response { number: request.number, ..Response::default() };
        let all_met = match &request.subject {
            RequestKind::Nothing => true,
            RequestKind::Joining => {
                self.writers().iter().for_each(|writer| writer.announce_again());
                response.sessions = self.announcements.running_sessions(&self.participant);
                true
            }
            RequestKind::Producer { topic, producer } => {
                response.newest_incarnation = self.newest(topic, producer);
                true
            }
            RequestKind::OpenedEndpoint(opened) => match opened.endpoint_kind {
                EndpointKind::Reader => self.matched_by_writers(opened, &mut response),
                EndpointKind::Writer => self.matched_by_readers(opened, &mut response),
            },
        };
        if !all_met && Instant::now() < *until {
            return false;
        }
        // If this fails, the requester waits until its timeout.
        let _ = self.announcements.respond(to, response);
        true
    }

    /// The incarnation of a producer that starts now, unless an earlier one is newer.
    pub(crate) fn start_nanos(&self) -> u64 {
        u64::try_from(self.clock.now().unix_nanos()).unwrap_or(0)
    }

    /// The newest incarnation of a producer that this session knows, from announcements or samples.
    pub(crate) fn newest(&self, topic: &TopicName, producer: &ProducerName) -> u64 {
        let readers = self.readers();
        let readers = readers.iter().filter(|reader| reader.topic() == topic);
        let read = readers.map(|reader| reader.newest(producer)).max().unwrap_or(0);
        read.max(self.announcements.with_state(|state| state.newest(topic, producer)))
    }

    /// Checks all writers, so that the response lists all matches even if one is missing.
    fn matched_by_writers(&self, opened: &OpenedEndpoint, response: &mut Response) -> bool {
        let mut writers = self.writers_of(&opened.topic);
        writers.retain(|writer| opened.overlaps(&[writer.partition]));
        let mut all = true;
        for writer in writers {
            let matched = writer.endpoints.has_matched(&opened.guids);
            // After the match: what is written behind the position reaches the reader.
            response.positions.extend(writer.position());
            response.matched.extend(writer.endpoints.guids().all().filter(|_| matched));
            all &= matched;
        }
        all
    }

    fn matched_by_readers(&self, opened: &OpenedEndpoint, response: &mut Response) -> bool {
        let mut all = true;
        for reader in self.readers().iter().filter(|reader| *reader.topic() == opened.topic) {
            all &= reader.report_match(opened, response);
        }
        all
    }

    /// Closes the connection: ends all subscriptions, fails pending receipts, and ends the session.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.readers().iter().for_each(|reader| reader.ring());
        self.writers().iter().for_each(|writer| writer.end());
        self.announcements.close();
        self.messages.close();
        self.ring();
        self.await_receipts();
        self.await_slow_receipts();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), TransportError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).map_err(|error| engine("start a thread", error))
}

/// Reports a session that others know, and this one could not discover.
fn report_undiscovered(session: &str) {
    // If standard error is closed, the warning is lost.
    let _ = writeln!(
        std::io::stderr().lock(),
        "heliograph: the DDS session {session} is known to others and was not discovered within {} \
         s; its samples are missing until it is: check the network, and stopped processes",
        PEER_RESPONSE_TIMEOUT.as_secs()
    );
}

/// The receiving thread: handles announcements, and sends those that publishers must not wait for.
fn receive_all(connection: &Weak<Connection>, wakeup: &Wakeup) {
    let mut deferred = Vec::new();
    loop {
        let Some(connection) = connection.upgrade() else { return };
        if connection.is_closed() {
            return;
        }
        connection.writers().iter().for_each(|writer| writer.send_pending_announcements());
        connection.receive(&mut deferred);
        connection.readers().iter().for_each(|reader| reader.attend());
        drop(connection);
        wakeup.rest(if deferred.is_empty() { MAX_THREAD_SLEEP } else { MATCH_POLL_INTERVAL });
    }
}

/// The acknowledgement thread: waits for acknowledgements and for room.
fn wait_for_all(connection: &Weak<Connection>, wakeup: &Wakeup) {
    loop {
        let Some(connection) = connection.upgrade() else { return };
        if connection.is_closed() {
            return;
        }
        let mut waiting = connection.writers();
        waiting.retain(|writer| writer.is_waiting());
        let one = ACK_WAIT_PER_ROUND / u32::try_from(waiting.len()).unwrap_or(u32::MAX).max(1);
        waiting.iter().for_each(|writer| writer.wait(one.max(ACK_WAIT_PER_WRITER)));
        let idle = waiting.is_empty();
        // These may be the last references to a writer, and to the connection.
        drop((waiting, connection));
        if idle {
            wakeup.rest(MAX_THREAD_SLEEP);
        }
    }
}

/// The thread for readers that take longer than a round of the acknowledgement thread. Each wait is
/// for what was written when it begins, so with a writer that never pauses no short one would end.
fn wait_for_slow(connection: &Weak<Connection>, wakeup: &Wakeup) {
    loop {
        let Some(connection) = connection.upgrade() else { return };
        if connection.is_closed() {
            return;
        }
        let mut waiting = connection.writers();
        waiting.retain(|writer| writer.is_slow());
        waiting.iter().for_each(|writer| writer.wait_longer(SLOW_ACK_WAIT));
        let idle = waiting.is_empty();
        // These may be the last references to a writer, and to the connection.
        drop((waiting, connection));
        if idle {
            wakeup.rest(MAX_THREAD_SLEEP);
        }
    }
}

/// Withdraws an announcement that lost against an earlier one.
pub(crate) fn withdraw_topic(connection: &Connection, announcement: &Announcement) {
    if !connection.is_closed() {
        // If this fails, the announcement ends with the session.
        let _ = connection.announcements.withdraw(announcement);
    }
}
