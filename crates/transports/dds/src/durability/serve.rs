//! History for late joiners: pages out of the journal, each when it is asked for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::{Bell, Event, Sample, Subscription, TopicName};

use super::DurabilityError;
use super::topic::Keeping;
use crate::connection::Connection;
use crate::entity::{self, Listener, News, Writer};
use crate::envelope::{self, Header, RE_SERVED};
use crate::error::failed;
use crate::post::{FETCH, Fetch, PAST, PageHead, Pen, framed, letter_qos, page};
use crate::tables::Stand;

/// A page has so many bytes at least, where there are so many.
const PAGE_BYTES: usize = 1 << 20;
/// How long a page waits for what writers had written and has not come yet.
const PATIENCE: Duration = Duration::from_secs(5);
/// A reader that has not asked for so long has gone.
const IDLE: Duration = Duration::from_secs(120);
/// The most readers that are served at a time; others ask again.
const MAX_CURSORS: usize = 4_096;

/// A session's reader.
type Asker = (String, u64);

/// Who is being served.
pub(super) struct Serving {
    /// Samples that were handed out.
    pub(super) served: u64,
    fetches: entity::Reader,
    cursors: HashMap<Asker, Cursor>,
    pens: HashMap<String, Pen>,
}

/// Where one reader's history stands.
struct Cursor {
    fetch: Fetch,
    samples: Subscription,
    /// The page that was made last, and the samples in it.
    made: Option<(u64, Vec<u8>)>,
    /// It was asked for a page that it has not sent.
    due: bool,
    asked: Instant,
    /// When the page that is due was asked for first.
    since: Instant,
    ended: bool,
}

impl Serving {
    pub(super) fn open(
        connection: &Arc<Connection>,
        bell: &Arc<dyn Bell>,
    ) -> Result<Self, DurabilityError> {
        let bell = Arc::clone(bell);
        let listener: Listener = Box::new(move |_: News| bell.ring(None));
        let topic = connection.letters(FETCH)?;
        let fetches = entity::Reader::open(&topic, &letter_qos().keep_all(), Some(listener));
        let fetches = fetches.map_err(failed("open a reader of letters"))?;
        Ok(Self { served: 0, fetches, cursors: HashMap::new(), pens: HashMap::new() })
    }

    /// Sends the pages that are due. True where one was sent, or one is to be tried again.
    pub(super) fn serve(
        &mut self,
        connection: &Arc<Connection>,
        topics: &mut BTreeMap<TopicName, Keeping>,
    ) -> Result<bool, DurabilityError> {
        self.hear(connection, topics)?;
        let tables = &connection.tables;
        let live = |session: &String| tables.look(|state| state.live.contains(session));
        self.cursors.retain(|(session, _), cursor| live(session) && cursor.asked.elapsed() < IDLE);
        self.pens.retain(|session, _| live(session));
        let mut busy = false;
        for ((session, number), cursor) in &mut self.cursors {
            if !cursor.due {
                continue;
            }
            let Some(topic) = topics.get(&cursor.fetch.topic) else { continue };
            cursor.make(topic, &mut self.served)?;
            let Some((_, page)) = &cursor.made else { continue };
            if !self.pens.contains_key(session) {
                let qos = letter_qos().keep_all();
                let qos = qos.partitions(&[session]).map_err(failed("name a session"))?;
                let writer = Writer::open(&connection.letters(PAST)?, &qos, None);
                let writer = writer.map_err(failed("open a writer of letters"))?;
                self.pens.insert(session.clone(), Pen::new(writer, &tables.session));
            }
            let Some(pen) = self.pens.get_mut(session).filter(|pen| pen.is_read()) else {
                // They have not met yet.
                continue;
            };
            if pen.write(number.to_string().as_bytes(), page).is_ok() {
                cursor.due = false;
                busy = true;
            }
        }
        Ok(busy)
    }

    /// Takes what is asked.
    fn hear(
        &mut self,
        connection: &Connection,
        topics: &BTreeMap<TopicName, Keeping>,
    ) -> Result<(), DurabilityError> {
        let mut samples = Vec::new();
        self.fetches.take(&mut samples).map_err(failed("take letters"))?;
        for sample in samples.iter().filter(|sample| sample.valid) {
            let Some((header, payload)) = envelope::parse(sample.cdr()) else { continue };
            let Ok(fetch) = serde_json::from_slice::<Fetch>(payload) else { continue };
            if fetch.to != connection.tables.session {
                continue;
            }
            let asker = (header.producer.to_owned(), fetch.number);
            if let Some(cursor) = self.cursors.get_mut(&asker) {
                cursor.asked(fetch.page);
                continue;
            }
            let Some(topic) = topics.get(&fetch.topic) else { continue };
            if fetch.page == 0 && self.cursors.len() < MAX_CURSORS {
                // What cannot be read of a letter's is its sender's concern alone.
                let Ok(samples) = topic.read(&fetch.partitions, fetch.last) else { continue };
                let (made, due, asked, ended) = (None, true, Instant::now(), false);
                let cursor = Cursor { fetch, samples, made, due, asked, since: asked, ended };
                self.cursors.insert(asker, cursor);
            }
        }
        Ok(())
    }
}

impl Cursor {
    /// A page is asked for, or once more.
    fn asked(&mut self, page: u64) {
        let next = self.made.as_ref().map_or(0, |(made, _)| made + 1);
        if page == next && !self.ended || page.checked_add(1) == Some(next) {
            self.asked = Instant::now();
            if !std::mem::replace(&mut self.due, true) {
                self.since = self.asked;
            }
            if page == next {
                self.fetch.page = page;
            }
        }
    }

    /// Makes the page that is due, if there is enough for one.
    fn make(&mut self, topic: &Keeping, served: &mut u64) -> Result<(), DurabilityError> {
        let wanted = self.fetch.page;
        if self.made.as_ref().is_some_and(|(made, _)| *made == wanted) {
            return Ok(());
        }
        // Before it is read: what is not here by then comes with the next page.
        let whole = topic.covers(&self.fetch.until) || self.since.elapsed() >= PATIENCE;
        let (mut body, mut cdr, mut samples, mut end) = (Vec::new(), Vec::new(), 0, false);
        while body.len() < PAGE_BYTES {
            match self.samples.try_next()? {
                Some(Event::Sample(sample)) => {
                    if !known(&self.fetch.have, &sample) {
                        envelope_of(&sample, &mut cdr);
                        framed(&cdr, &mut body);
                        samples += 1;
                    }
                }
                Some(_) => {}
                None => {
                    end = whole;
                    break;
                }
            }
        }
        if samples == 0 && !end {
            return Ok(());
        }
        *served += samples;
        self.ended = end;
        let mut made = page(&PageHead { page: wanted, end });
        made.extend_from_slice(&body);
        self.made = Some((wanted, made));
        Ok(())
    }
}

/// Whether who asks has it.
fn known(have: &[Stand], sample: &Sample) -> bool {
    let producer = &sample.header.producer;
    have.iter().any(|stand| {
        (stand.partition, &stand.producer) == (sample.partition, &producer.name)
            && (producer.incarnation, sample.header.sequence) <= (stand.incarnation, stand.sequence)
    })
}

/// A sample as it was on the wire.
fn envelope_of(sample: &Sample, into: &mut Vec<u8>) {
    let header = Header {
        producer: sample.header.producer.name.as_str(),
        incarnation: sample.header.producer.incarnation,
        sequence: sample.header.sequence,
        previous: 0,
        time: sample.header.time,
        schema: sample.header.schema,
        partition: sample.partition,
        level: sample.header.level,
        flags: RE_SERVED,
        trace: sample.header.trace,
        key: &sample.key,
        headers: sample.headers.as_ref(),
    };
    envelope::write_head(&header, sample.payload.len(), into);
    let head = into.len();
    into.extend_from_slice(&sample.payload);
    into.resize(into.len() + (into.len() - head).wrapping_neg() % 4, 0);
}
