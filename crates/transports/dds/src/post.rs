//! Letters of one session to another: between durability services and those that they keep for.
//!
//! Constraints. What one session is told does not bother the others: a letter goes by the DDS
//! partition that has the addressee's name. A letter may get lost on the way to an end that is new:
//! whoever asks for something asks again.
//!
//! Format. Envelopes, as in the tables; docs/formats/dds.md has them.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use helio_bus::TransportError;
use helio_bus::transport::locked;
use helio_core::TopicName;
use serde::{Deserialize, Serialize};

use crate::entity::{
    Listener, News, Participant, Qos, Reader, Refused, Representation, Sample, Topic, Writer,
};
use crate::envelope::{self, Header};
use crate::error::failed;
use crate::names::Names;
use crate::tables::{Stand, name, unix_nanos};

/// What a durability service says to have: to the session whose writer it is about.
pub(crate) const STORED: &str = "stored";
/// Pages of history: to the session that has asked.
pub(crate) const PAST: &str = "past";
/// Questions for history: to all services.
pub(crate) const FETCH: &str = "fetch";

/// How a kind of letter travels.
pub(crate) fn letter_qos() -> Qos {
    let qos = Qos::new().reliable(Duration::ZERO).leave_instances();
    qos.representations(&[Representation::Xcdr2])
}

/// Marks: the newest of each producer and service is there for who comes to know the service late.
pub(crate) fn stored_qos() -> Qos {
    letter_qos().keep_last(1).transient_local(Some(1))
}

/// What writes envelopes of a session's own: the words of the tables, and letters.
pub(crate) struct Pen {
    writer: Writer,
    session: String,
    written: u64,
    head: Vec<u8>,
}

impl Pen {
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

    /// Whether somebody reads it.
    pub(crate) fn is_read(&self) -> bool {
        self.writer.readers().is_ok_and(|readers| !readers.is_empty())
    }
}

/// A service has everything up to there, on its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    #[serde(with = "name")]
    pub(crate) topic: TopicName,
    pub(crate) stand: Stand,
    /// Up to that number of the incarnation nothing is lost by the death of any process, though it
    /// may be by that of the power; nothing is said by 0, and where the stand says more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) appended: u64,
    /// What becomes of the samples behind it, where they are not on their way to the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<Verdict>,
}

/// Why a service has no more of a writer's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// It has not got them: they are to be sent again.
    Again,
    /// It takes none: it has samples of that newer incarnation.
    Fenced { newer: u64 },
    /// It cannot keep this producer's.
    Refused { cause: String },
}

impl Stored {
    /// Its key, as a service has it that is a session's: what another one says is beside it.
    pub(crate) fn key(&self, session: &str) -> String {
        format!("{} {} {} {session}", self.topic, self.stand.partition, self.stand.producer)
    }
}

/// The page that is asked for by a reader that wants no more.
pub(crate) const NO_MORE: u64 = u64::MAX;
/// The page that another service asks for which wants to know how far this one is, and no samples.
pub(crate) const STANDS: u64 = u64::MAX - 1;

/// A question for the next page of a topic's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fetch {
    /// The service that is asked.
    pub(crate) to: String,
    /// The reader, by its session's number of it.
    pub(crate) number: u64,
    /// Which page, from 0; the one before has come. [`NO_MORE`] is none, [`STANDS`] is one without
    /// samples.
    pub(crate) page: u64,
    #[serde(with = "name")]
    pub(crate) topic: TopicName,
    /// Empty is all.
    pub(crate) partitions: Vec<u32>,
    /// The newest so many of each key; none is everything that is kept.
    pub(crate) last: Option<u32>,
    /// What it must reach before it ends: with the first page's question.
    pub(crate) until: Vec<Stand>,
    /// What the reader has, and need not be sent: with the first page's question.
    pub(crate) have: Vec<Stand>,
    /// With the question for stands, those of who asks in one number: the same ones are not sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) known: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// What stands before the samples of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageHead {
    pub(crate) page: u64,
    /// There are no more behind it.
    pub(crate) end: bool,
    /// At the end: whether the service has all that was to be reached.
    #[serde(default = "yes")]
    pub(crate) whole: bool,
    /// At the end of last values: how far the service has the samples of those that write. What is
    /// below that and not in the pages was written before it; the service may have missed it. To
    /// the question for stands: those of all producers.
    #[serde(default)]
    pub(crate) stands: Vec<Stand>,
    /// At the end: the service cannot read what it has.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) failed: bool,
    /// It is no page: the service has no room for this reader yet, or looks for its last values; it
    /// is to ask again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) busy: bool,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn yes() -> bool {
    true
}

impl PageHead {
    /// A page with others behind it.
    pub(crate) fn new(page: u64) -> Self {
        Self { page, end: false, whole: true, stands: Vec::new(), failed: false, busy: false }
    }

    /// The last page of a service that cannot go on.
    pub(crate) fn failed(page: u64) -> Self {
        Self { end: true, whole: false, failed: true, ..Self::new(page) }
    }
}

/// Begins a page.
pub(crate) fn page(head: &PageHead) -> Vec<u8> {
    let json = serde_json::to_vec(head).unwrap_or_default();
    let mut page = Vec::with_capacity(json.len() + 4);
    framed(&json, &mut page);
    page
}

/// Adds a sample, as an envelope with its header of four.
pub(crate) fn framed(bytes: &[u8], page: &mut Vec<u8>) {
    page.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    page.extend_from_slice(bytes);
}

/// A page as it came, with where its samples lie.
pub(crate) struct Page {
    pub(crate) head: PageHead,
    pub(crate) letter: Arc<Sample>,
    pub(crate) samples: Vec<Range<usize>>,
}

impl Page {
    /// None where the letter is none.
    fn parse(letter: &Arc<Sample>) -> Option<Self> {
        let cdr = letter.cdr();
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
        let head = serde_json::from_slice(&cdr[next()?]).ok()?;
        let samples = std::iter::from_fn(next).collect();
        Some(Self { head, letter: Arc::clone(letter), samples })
    }
}

/// Who is told that a page has come.
type Wake = Arc<dyn Fn() + Send + Sync>;

/// One reader's pages.
struct Lane {
    wake: Wake,
    pages: VecDeque<Page>,
}

/// The letters to and from one session that is no service.
pub(crate) struct Post {
    session: String,
    news: Wake,
    stored: OnceLock<Reader>,
    past: OnceLock<Reader>,
    fetches: Mutex<Option<Pen>>,
    lanes: Arc<Mutex<HashMap<u64, Lane>>>,
    numbers: AtomicU64,
}

/// A kind of letter, as a DDS topic.
pub(crate) fn kind(
    participant: &Arc<Participant>,
    names: &Names,
    kind: &str,
) -> Result<Arc<Topic>, TransportError> {
    let of = envelope::envelope_type();
    Topic::create(participant, &names.internal(kind), &of, &Qos::new())
        .map_err(failed("make a topic of letters"))
}

impl Post {
    pub(crate) fn new(session: &str, news: Wake) -> Self {
        Self {
            session: session.to_owned(),
            news,
            stored: OnceLock::new(),
            past: OnceLock::new(),
            fetches: Mutex::default(),
            lanes: Arc::default(),
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
        let listener: Listener = Box::new(move |_: News| told());
        Reader::open(topic, &qos, Some(listener)).map_err(failed("open a reader of letters"))
    }

    /// From now on what services say to have is heard here.
    pub(crate) fn hear_stored(
        &self,
        open: impl FnOnce(&str) -> Result<Arc<Topic>, TransportError>,
    ) -> Result<(), TransportError> {
        if self.stored.get().is_none() {
            let news = Arc::clone(&self.news);
            let reader = self.reader(&open(STORED)?, stored_qos(), move || news())?;
            // Another thread may have been first: one is enough.
            let _ = self.stored.set(reader);
        }
        Ok(())
    }

    /// What services say to have, each with who says so.
    pub(crate) fn take_stored(&self) -> Vec<(String, Stored)> {
        let mut samples = Vec::new();
        let taken = self.stored.get().map(|reader| reader.take(&mut samples));
        if !matches!(taken, Some(Ok(_))) {
            return Vec::new();
        }
        let valid = samples.iter().filter(|sample| sample.valid);
        valid
            .filter_map(|sample| {
                let (header, payload) = envelope::parse(sample.cdr())?;
                Some((header.producer.to_owned(), serde_json::from_slice(payload).ok()?))
            })
            .collect()
    }

    /// A number for a reader that asks for history, which is rung when a page has come.
    pub(crate) fn lane(
        &self,
        open: impl Fn(&str) -> Result<Arc<Topic>, TransportError>,
        wake: Wake,
    ) -> Result<u64, TransportError> {
        if self.past.get().is_none() {
            let lanes = Arc::clone(&self.lanes);
            let told = move || {
                let wakes: Vec<_> =
                    locked(&lanes).values().map(|lane| Arc::clone(&lane.wake)).collect();
                wakes.iter().for_each(|wake| wake());
            };
            let reader = self.reader(&open(PAST)?, letter_qos().keep_all(), told)?;
            // Another thread may have been first: one is enough.
            let _ = self.past.set(reader);
        }
        let mut fetches = locked(&self.fetches);
        if fetches.is_none() {
            let qos = letter_qos().keep_all();
            let writer = Writer::open(&open(FETCH)?, &qos, None);
            let writer = writer.map_err(failed("open a writer of letters"))?;
            *fetches = Some(Pen::new(writer, &self.session));
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        locked(&self.lanes).insert(number, Lane { wake, pages: VecDeque::new() });
        Ok(number)
    }

    /// The reader asks no more.
    pub(crate) fn end_lane(&self, number: u64) {
        locked(&self.lanes).remove(&number);
    }

    /// Asks for a page. Where there is no room it is asked again, as where nobody answers.
    pub(crate) fn ask(&self, fetch: &Fetch) {
        let (Some(pen), Ok(value)) = (&mut *locked(&self.fetches), serde_json::to_vec(fetch))
        else {
            return;
        };
        let _ = pen.write(self.session.as_bytes(), &value);
    }

    /// The next page that has come for a reader.
    pub(crate) fn next_page(&self, number: u64) -> Option<Page> {
        let mut samples = Vec::new();
        let mut lanes = locked(&self.lanes);
        if let Some(Ok(_)) = self.past.get().map(|reader| reader.take(&mut samples)) {
            for sample in samples.into_iter().filter(|sample| sample.valid).map(Arc::new) {
                let lane = addressee(&sample).and_then(|number| lanes.get_mut(&number));
                if let (Some(lane), Some(page)) = (lane, Page::parse(&sample)) {
                    lane.pages.push_back(page);
                }
            }
        }
        lanes.get_mut(&number)?.pages.pop_front()
    }

    /// Ends it: there are no more letters.
    pub(crate) fn close(&self) {
        locked(&self.fetches).take();
        locked(&self.lanes).clear();
    }
}

/// The reader that a page is for.
fn addressee(page: &Sample) -> Option<u64> {
    let (header, _) = envelope::parse(page.cdr())?;
    std::str::from_utf8(header.key).ok()?.parse().ok()
}
