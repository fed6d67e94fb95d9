//! Messages between two sessions: durability services, and the writers and readers that use them.
//!
//! Constraints. Only the addressee receives a message: it is written to the DDS partition with the
//! addressee's session as its name. A message to a new endpoint may be lost, so requests are
//! repeated.
//!
//! Format. Envelopes, like announcements; docs/formats/dds.md describes them.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use helio_bus::TransportError;
use helio_bus::transport::locked;
use helio_core::TopicName;
use serde::{Deserialize, Serialize};

use crate::announcements::{Announcements, ProducerPosition, name, unix_nanos};
use crate::entity::{
    Listener, Participant, Qos, Reader, Refused, Representation, Sample, StatusEvent, Topic, Writer,
};
use crate::envelope::{self, Header};
use crate::error::failed;
use crate::names::Names;
use helio_bus::transport::versioned_json::{self, FormatError};

/// Acks of durability services, to the writer's session.
pub(crate) const ACK_TOPIC: &str = "acks";
/// Pages of history, to the requesting session.
pub(crate) const PAGE_TOPIC: &str = "history";
/// Requests for history, to all services.
pub(crate) const REQUEST_TOPIC: &str = "history_requests";

/// The quality of service of messages.
pub(crate) fn message_qos() -> Qos {
    let qos = Qos::new().reliable(Duration::ZERO).leave_instances();
    qos.representations(&[Representation::Xcdr2])
}

/// The quality of service of acks: the newest one of each producer and service is kept for sessions
/// that discover the service late.
pub(crate) fn ack_qos() -> Qos {
    message_qos().keep_last(1).transient_local(Some(1))
}

/// Writes a session's own envelopes.
pub(crate) struct MessageWriter {
    writer: Writer,
    session: String,
    written: u64,
    head: Vec<u8>,
}

impl MessageWriter {
    pub(crate) fn new(writer: Writer, session: &str) -> Self {
        Self { writer, session: session.to_owned(), written: 0, head: Vec::new() }
    }

    pub(crate) fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refused> {
        self.written += 1;
        let header = Header::of_session(&self.session, self.written, key);
        envelope::write_head(&header, value.len(), &mut self.head);
        let now = i64::try_from(unix_nanos()).unwrap_or(0);
        self.writer.write(&envelope::pieces(&self.head, value), now)
    }

    /// Whether it has a matched reader.
    pub(crate) fn is_read(&self) -> bool {
        self.writer.readers().is_ok_and(|readers| !readers.is_empty())
    }
}

/// An ack: the service has everything up to a position on its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ack {
    #[serde(with = "name")]
    pub(crate) topic: TopicName,
    pub(crate) position: ProducerPosition,
    /// Up to that number of the incarnation everything is in the journal: it survives the death of
    /// any process, but not a power cut. 0 if the position is not below it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) appended: u64,
    /// The state of the samples after it, if they are not on their way to the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nack: Option<NackReason>,
}

/// Why a service has no further samples of a writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NackReason {
    /// They are missing, and must be sent again.
    Missing,
    /// It has samples of that newer incarnation.
    Fenced { newer_incarnation: u64 },
    /// It cannot store this producer's samples.
    Refused { cause: String },
}

impl Ack {
    /// Its key, with the service's session: the acks of two services do not replace each other.
    pub(crate) fn key(&self, session: &str) -> String {
        format!("{} {} {} {session}", self.topic, self.position.partition, self.position.producer)
    }
}

/// The page number that ends a reader's requests.
pub(crate) const NO_MORE_PAGES: u64 = u64::MAX;
/// The page number with which another service requests positions and no samples.
pub(crate) const POSITIONS_ONLY: u64 = u64::MAX - 1;

/// A request for the next page of a topic's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HistoryRequest {
    /// The requested service.
    pub(crate) service: String,
    /// The reader, by its session's number of it.
    pub(crate) reader: u64,
    /// Which page, from 0; the one before has come. [`NO_MORE_PAGES`] is none, [`POSITIONS_ONLY`]
    /// is one without samples.
    pub(crate) page: u64,
    #[serde(with = "name")]
    pub(crate) topic: TopicName,
    /// Empty is all.
    pub(crate) partitions: Vec<u32>,
    /// The newest so many of each key; none is everything that is stored.
    pub(crate) last: Option<u32>,
    /// The positions that the last page must reach: in the request for the first page.
    pub(crate) required_positions: Vec<ProducerPosition>,
    /// The positions that the reader has: in the request for the first page.
    pub(crate) received_positions: Vec<ProducerPosition>,
    /// In a request for positions, the digest of the requester's own: equal ones are not sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) digest: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The header of a page, before its samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageHeader {
    pub(crate) page: u64,
    /// It is the last page.
    pub(crate) end: bool,
    /// At the end: whether the service has everything up to the requested positions.
    #[serde(default = "yes")]
    pub(crate) complete: bool,
    /// At the end of last values: the positions of the writers' samples in the service. Samples
    /// below them that are not in the pages are older; the service may lack them. In reply to a
    /// request for positions: those of all producers.
    #[serde(default)]
    pub(crate) positions: Vec<ProducerPosition>,
    /// At the end: the service cannot read its journal.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) failed: bool,
    /// Not a page: the service has no room for this reader yet, or searches its last values. The
    /// reader must repeat the request.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) busy: bool,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn yes() -> bool {
    true
}

impl PageHeader {
    /// A page that is not the last one.
    pub(crate) fn new(page: u64) -> Self {
        Self { page, end: false, complete: true, positions: Vec::new(), failed: false, busy: false }
    }

    /// The last page of a service that cannot continue.
    pub(crate) fn failed(page: u64) -> Self {
        Self { end: true, complete: false, failed: true, ..Self::new(page) }
    }
}

/// Begins a page.
pub(crate) fn page(head: &PageHeader) -> Vec<u8> {
    let json = versioned_json::encode(head).unwrap_or_default();
    let mut page = Vec::with_capacity(json.len() + 4);
    framed(&json, &mut page);
    page
}

/// Appends a sample, as an envelope with its CDR header of four bytes.
pub(crate) fn framed(bytes: &[u8], page: &mut Vec<u8>) {
    page.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    page.extend_from_slice(bytes);
}

/// A received page, with the places of its samples.
pub(crate) struct Page {
    pub(crate) head: PageHeader,
    pub(crate) message: Arc<Sample>,
    pub(crate) samples: Vec<Range<usize>>,
}

impl Page {
    /// `None` if the message is invalid; an error if only its header is.
    fn parse(message: &Arc<Sample>) -> Option<Result<Self, FormatError>> {
        let cdr = message.cdr();
        let (_, payload) = envelope::parse(cdr)?;
        let start = payload.as_ptr() as usize - cdr.as_ptr() as usize;
        let end = start + payload.len();
        let mut at = start;
        let mut next = || -> Option<Range<usize>> {
            let length = cdr.get(at..at.checked_add(4)?)?;
            let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
            let from = at + 4;
            at = from.checked_add(length).filter(|to| *to <= end)?;
            Some(from..at)
        };
        let head = versioned_json::decode(&cdr[next()?]);
        let samples = std::iter::from_fn(next).collect();
        Some(head.map(|head| Self { head, message: Arc::clone(message), samples }))
    }
}

/// Notifies a reader that a page has arrived.
type WakeFn = Arc<dyn Fn() + Send + Sync>;

/// The received pages of a reader.
struct PageQueue {
    wake: WakeFn,
    pages: VecDeque<Page>,
}

/// The messages of one session.
pub(crate) struct PeerMessages {
    session: String,
    news: WakeFn,
    acks: OnceLock<Reader>,
    pages: OnceLock<Reader>,
    requests: Mutex<Option<MessageWriter>>,
    queues: Arc<Mutex<HashMap<u64, PageQueue>>>,
    numbers: AtomicU64,
}

/// The DDS topic of a kind of message.
pub(crate) fn kind(
    participant: &Arc<Participant>,
    names: &Names,
    kind: &str,
) -> Result<Arc<Topic>, TransportError> {
    let of = envelope::envelope_type();
    Topic::create(participant, &names.internal(kind), &of, &Qos::new())
        .map_err(failed("create a message topic"))
}

impl PeerMessages {
    pub(crate) fn new(session: &str, news: WakeFn) -> Self {
        Self {
            session: session.to_owned(),
            news,
            acks: OnceLock::new(),
            pages: OnceLock::new(),
            requests: Mutex::default(),
            queues: Arc::default(),
            numbers: AtomicU64::new(0),
        }
    }

    fn reader(
        &self,
        topic: &Arc<Topic>,
        qos: Qos,
        told: impl Fn() + Send + Sync + 'static,
    ) -> Result<Reader, TransportError> {
        let qos = qos.partitions(&[&self.session]).map_err(failed("name a session"))?;
        let listener: Listener = Box::new(move |_: StatusEvent| told());
        Reader::open(topic, &qos, Some(listener)).map_err(failed("open a message reader"))
    }

    /// Receives acks from now on.
    pub(crate) fn subscribe_acks(
        &self,
        open: impl FnOnce(&str) -> Result<Arc<Topic>, TransportError>,
    ) -> Result<(), TransportError> {
        if self.acks.get().is_none() {
            let news = Arc::clone(&self.news);
            let reader = self.reader(&open(ACK_TOPIC)?, ack_qos(), move || news())?;
            // Another thread may have been first: one is enough.
            let _ = self.acks.set(reader);
        }
        Ok(())
    }

    /// The received acks, each with its service.
    pub(crate) fn take_acks(&self, announcements: &Announcements) -> Vec<(String, Ack)> {
        let mut samples = Vec::new();
        let taken = self.acks.get().map(|reader| reader.take(&mut samples));
        if !matches!(taken, Some(Ok(_))) {
            return Vec::new();
        }
        let valid = samples.iter().filter(|sample| sample.valid);
        valid
            .filter_map(|sample| {
                let (header, payload) = envelope::parse(sample.cdr())?;
                match versioned_json::decode(payload) {
                    Ok(ack) => Some((header.producer.to_owned(), ack)),
                    Err(error) => {
                        announcements.report_unreadable(header.producer, "an ack", &error);
                        None
                    }
                }
            })
            .collect()
    }

    /// Registers a reader of history, which is woken when a page arrives; returns its number.
    pub(crate) fn open_page_queue(
        &self,
        open: impl Fn(&str) -> Result<Arc<Topic>, TransportError>,
        wake: WakeFn,
    ) -> Result<u64, TransportError> {
        if self.pages.get().is_none() {
            let queues = Arc::clone(&self.queues);
            let told = move || {
                let wakes: Vec<_> =
                    locked(&queues).values().map(|queue| Arc::clone(&queue.wake)).collect();
                wakes.iter().for_each(|wake| wake());
            };
            let reader = self.reader(&open(PAGE_TOPIC)?, message_qos().keep_all(), told)?;
            // Another thread may have been first: one is enough.
            let _ = self.pages.set(reader);
        }
        let mut requests = locked(&self.requests);
        if requests.is_none() {
            let qos = message_qos().keep_all();
            let writer = Writer::open(&open(REQUEST_TOPIC)?, &qos, None);
            let writer = writer.map_err(failed("open a message writer"))?;
            *requests = Some(MessageWriter::new(writer, &self.session));
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        locked(&self.queues).insert(number, PageQueue { wake, pages: VecDeque::new() });
        Ok(number)
    }

    /// Unregisters a reader.
    pub(crate) fn close_page_queue(&self, number: u64) {
        locked(&self.queues).remove(&number);
    }

    /// Requests a page. If the message is refused, the reader repeats it, as without a response.
    pub(crate) fn send_request(&self, request: &HistoryRequest) {
        let (Some(message_writer), Ok(value)) =
            (&mut *locked(&self.requests), versioned_json::encode(request))
        else {
            return;
        };
        let _ = message_writer.write(self.session.as_bytes(), &value);
    }

    /// The next received page of a reader.
    pub(crate) fn next_page(&self, number: u64, announcements: &Announcements) -> Option<Page> {
        let mut samples = Vec::new();
        let mut queues = locked(&self.queues);
        if let Some(Ok(_)) = self.pages.get().map(|reader| reader.take(&mut samples)) {
            for sample in samples.into_iter().filter(|sample| sample.valid).map(Arc::new) {
                let Some((session, number)) = addresses(&sample) else { continue };
                let Some(queue) = queues.get_mut(&number) else { continue };
                match Page::parse(&sample) {
                    Some(Ok(page)) => queue.pages.push_back(page),
                    Some(Err(error)) => {
                        announcements.report_unreadable(session, "a page of history", &error);
                    }
                    None => {}
                }
            }
        }
        queues.get_mut(&number)?.pages.pop_front()
    }

    /// Stops sending and receiving.
    pub(crate) fn close(&self) {
        locked(&self.requests).take();
        locked(&self.queues).clear();
    }
}

/// The session that sent a page, and the reader that it is addressed to.
fn addresses(page: &Sample) -> Option<(&str, u64)> {
    let (header, _) = envelope::parse(page.cdr())?;
    Some((header.producer, std::str::from_utf8(header.key).ok()?.parse().ok()?))
}
