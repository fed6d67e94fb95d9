//! Reads the log records of all lanes from the bus.
//!
//! Constraints. A reader has its own cursor in each lane and no thread: it works in the caller's.
//! Its speed does not affect any other reader. Urgent lanes get a turn before each turn of another
//! lane, and turns are bounded, so a flood cannot delay an alert. Missing records are reported, and
//! counted by producer and cause.
//!
//! Operation. [`Reader::visit`] hands out the available records in place; [`Reader::wait`] blocks
//! until there may be more; [`Records`] returns owned records one by one. Records stored before the
//! reader was opened are merged by time (`merge`); later ones are handed out as they arrive
//! (`lane`). A [`Cursor`] is the reader's position; an [`LossAccounts`] counts what became of the
//! records.

mod cursor;
mod gap;
mod lane;
mod loss_accounting;
mod merge;
mod records;

use std::ops::ControlFlow;
use std::time::Duration;

use helio_bus::{
    Bus, Lagging, Producer, ReadError, Subscribe, Tai, Topic, TopicError, TopicName, TopicSpec,
    TransportError, WaitSet, WaitSetWaker,
};
use thiserror::Error;

pub use cursor::{Cursor, CursorError};
pub use gap::{Damaged, Gap, GapRange, LossCause, Malformed, News};
pub use loss_accounting::{LossAccounts, Packets, ProducerCounts, RecordCounts};
pub use records::{Next, Records};

use crate::lanes::Lanes;
use crate::level::Level;
use crate::packet::RecordRef;
use crate::predicate::Selector;
use cursor::PartitionPosition;
use lane::{Backlog, Delivery, Lane};

/// The most records, samples and news that one visit examines, so that it returns even if a filter
/// rejects everything.
const MAX_VISIT_ITEMS: usize = 65_536;

/// A reader's start position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Newly published records.
    Latest,
    /// The oldest stored records.
    Earliest,
    /// The first packets that were published at or after a time. Their first records may be older.
    Time(Tai),
    /// Another reader's position. Lanes that it did not read begin at [`ReaderOptions::unread`].
    Cursor(Cursor),
}

/// When a reader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Follow {
    /// When the bus is closed; until then it waits for new records.
    Yes,
    /// After the records that were stored when it was opened.
    No,
}

/// Whether a record is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterDecision {
    /// The record is delivered.
    Yes,
    /// The record is skipped and counted.
    No,
}

/// Decides which records a reader delivers. It runs in the reader's thread, before a record's body
/// is parsed. Closures implement it.
pub trait Filter: Send {
    /// Whether a record is wanted.
    fn keep(&self, record: RecordRef<'_>) -> FilterDecision;
}

impl<F: Fn(RecordRef<'_>) -> FilterDecision + Send> Filter for F {
    fn keep(&self, record: RecordRef<'_>) -> FilterDecision {
        self(record)
    }
}

impl Filter for Selector {
    fn keep(&self, record: RecordRef<'_>) -> FilterDecision {
        if self.matches_ref(record) { FilterDecision::Yes } else { FilterDecision::No }
    }
}

/// A reader's options.
pub struct ReaderOptions {
    start: Start,
    unread: helio_bus::Start,
    levels: Vec<Level>,
    lagging: Lagging,
    follow: Follow,
    filter: Option<Box<dyn Filter>>,
}

impl ReaderOptions {
    /// A reader of all levels that begins there, delivers everything and waits for new records.
    #[must_use]
    pub fn from(start: Start) -> Self {
        let (lagging, follow) = (Lagging::Lossless, Follow::Yes);
        let unread = helio_bus::Start::Latest;
        Self { start, unread, levels: Level::ALL.to_vec(), lagging, follow, filter: None }
    }

    /// Sets the start of lanes that the cursor lacks. The default is newly published records.
    #[must_use]
    pub fn unread(mut self, start: helio_bus::Start) -> Self {
        self.unread = start;
        self
    }

    /// Reads only the lanes of these levels.
    #[must_use]
    pub fn levels(mut self, levels: impl IntoIterator<Item = Level>) -> Self {
        self.levels = levels.into_iter().map(Lanes::lane).collect();
        self
    }

    /// Sets the overload policy. A depth is a number of packets.
    #[must_use]
    pub fn lagging(mut self, lagging: Lagging) -> Self {
        self.lagging = lagging;
        self
    }

    /// Sets when the reader ends.
    #[must_use]
    pub fn follow(mut self, follow: Follow) -> Self {
        self.follow = follow;
        self
    }

    /// Delivers only matching records, and reads only lanes that can have some.
    #[must_use]
    pub fn select(self, selector: Selector) -> Self {
        self.levels(selector.levels()).filter(selector)
    }

    /// Delivers only records that a filter keeps.
    #[must_use]
    pub fn filter(mut self, filter: impl Filter + 'static) -> Self {
        self.filter = Some(Box::new(filter));
        self
    }
}

impl std::fmt::Debug for ReaderOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { start, unread, levels, lagging, follow, .. } = self;
        write!(f, "ReaderOptions({start:?}, {unread:?}, {levels:?}, {lagging:?}, {follow:?})")
    }
}

/// The position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace<'a> {
    /// The level of its lane.
    pub lane: Level,
    /// The producer of the packet.
    pub producer: &'a Producer,
    /// The packet's partition.
    pub partition: u32,
    /// The packet's offset there.
    pub offset: u64,
    /// The record's place in the packet, from 0.
    pub record: usize,
    /// How many records the packet has.
    pub records: usize,
}

/// An item for a visitor.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record in its packet; its body is not parsed.
    Record(RecordRef<'a>, RecordPlace<'a>),
    /// A notice.
    News(&'a News),
}

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Waited {
    /// There may be something to visit.
    Ready,
    /// The timeout expired, or the reader was woken.
    TimeOver,
    /// The reader has ended: the bus was closed, or all stored records were delivered.
    Ended,
}

/// Why a reader cannot be opened or cannot read. Losses, damage and outages are not errors but
/// [`News`].
#[derive(Debug, Error)]
pub enum ReaderError {
    /// A lane's topic cannot be opened.
    #[error("the log records of {lane} cannot be read: {source}")]
    Open {
        /// The level of the lane.
        lane: Level,
        /// The cause.
        source: TopicError,
    },
    /// A lane cannot be read at the moment. Others can; the next visit retries.
    #[error("the log records of {lane} cannot be read: {source}")]
    Read {
        /// The level of the lane.
        lane: Level,
        /// The cause.
        source: ReadError,
    },
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The cursor is of another bus or prefix.
    #[error(
        "the cursor is of another bus, or of topics of another prefix; use it where it was made, \
         or begin at a time"
    )]
    OtherSite,
    /// The cursor is beyond the end of a topic.
    #[error(
        "the cursor stands at offset {next} of {topic}, which ends at {end}: the topic was made \
         anew, or was cut; begin at a time"
    )]
    Behind {
        /// The topic.
        topic: TopicName,
        /// The cursor's offset.
        next: u64,
        /// The end of the topic.
        end: u64,
    },
}

/// A reader of log records: one subscription per lane, one wait for all, no thread.
///
/// **Order.** The records of one producer in one lane are delivered by sequence, except for records
/// that the producer had to publish again. Records stored before the reader was opened are
/// delivered by time, as far as each lane is sorted within its next 32 packets or 2 MB. Later
/// records are delivered as they arrive. A reader that follows delivers urgent lanes first, also
/// stored ones.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use helio_bus::{Bus, Message, Tai};
/// use helio_logging::{Follow, Item, Lanes, Level, Numbers, PacketWriter, Record};
/// use helio_logging::{Reader, ReaderOptions, Start};
///
/// let (bus, lanes) = (Bus::connect("memory:")?, Lanes::default());
/// let topic = bus.topic(lanes.topic(Level::NOTICE)?)?;
/// let mut packet = PacketWriter::default();
/// packet.push(&Record::new(Tai::default(), Level::NOTICE, "CONTROL", "the dome is open"))?;
/// let numbers = Numbers { lane: Some(Level::NOTICE), first: 1, shed: 0 };
/// topic.publisher()?.publish(Message::new(packet.finish(numbers))).wait()?;
///
/// let options = ReaderOptions::from(Start::Earliest).follow(Follow::No);
/// let mut reader = Reader::open(&bus, &lanes, options)?;
/// let mut messages = Vec::new();
/// reader.visit(usize::MAX, |item| {
///     if let Item::Record(record, _) = item {
///         messages.extend(record.to_record().map(|record| record.message()));
///     }
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(messages, ["the dome is open"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader {
    set: WaitSet,
    /// The highest level first.
    lanes: Vec<Lane>,
    filter: Option<Box<dyn Filter>>,
    site: u32,
    follow: Follow,
    /// The turn: every second one belongs to the urgent lanes.
    turn: usize,
    /// Whether the last visit has delivered everything available.
    idle: bool,
    ended: bool,
    /// An error after items that were delivered.
    failed: Option<ReaderError>,
}

impl Reader {
    /// Opens the lanes. A reader that follows creates missing topics; any other skips them. An
    /// existing topic is read with its own quality of service.
    ///
    /// # Errors
    /// [`ReaderError`]; with a cursor [`ReaderError::OtherSite`] and [`ReaderError::Behind`], and
    /// [`TopicError::Refused`] where the transport cannot begin there.
    pub fn open(bus: &Bus, lanes: &Lanes, options: ReaderOptions) -> Result<Self, ReaderError> {
        let site = crc32c::crc32c(bus.identity()?.as_bytes());
        let site = crc32c::crc32c_append(site, lanes.topic_name(Level::INFO).as_bytes());
        if let Start::Cursor(cursor) = &options.start
            && cursor.site != site
        {
            return Err(ReaderError::OtherSite);
        }
        let mut levels = options.levels.clone();
        levels.sort_unstable_by_key(|level| std::cmp::Reverse(*level));
        levels.dedup();
        let topic = |level: &Level| {
            lanes.topic(*level).map_err(|source| ReaderError::Open { lane: *level, source })
        };
        let specs = levels.iter().map(topic).collect::<Result<Vec<_>, _>>()?;
        if options.follow == Follow::Yes {
            bus.make_topics(&specs, |_| {})?;
        }
        let mut set = bus.wait_set()?;
        let mut opened = Vec::with_capacity(levels.len());
        for (level, spec) in levels.into_iter().zip(specs) {
            let name = lanes.topic_name(level);
            let failed = |source| ReaderError::Open { lane: level, source };
            let Some(topic) = open_topic(bus, &name, spec, options.follow).map_err(failed)? else {
                continue;
            };
            let urgent = lanes.is_urgent(level);
            opened.push(open_lane(&mut set, &topic, level, urgent, &options)?);
        }
        let (lanes, filter, follow) = (opened, options.filter, options.follow);
        // The first turn belongs to the urgent lanes.
        let (turn, idle, ended, failed) = (1, false, false, None);
        Ok(Self { set, lanes, filter, site, follow, turn, idle, ended, failed })
    }

    /// Visits the available items: at most `max`, until the visitor breaks (its last item counts as
    /// delivered). Returns the number of items. It may be 0 although more is available, if many
    /// records were skipped; [`wait`](Self::wait) returns at once then.
    ///
    /// Bodies are not parsed: a visitor that finds a malformed one reports it by
    /// [`malformed`](Self::malformed) afterwards.
    ///
    /// # Errors
    /// [`ReaderError`]; a closed bus is not an error but an [end](Self::is_ended).
    pub fn visit(
        &mut self,
        max: usize,
        mut visitor: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, ReaderError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.ended || max == 0 {
            return Ok(0);
        }
        let filter = self.filter.take();
        let mut hand = Delivery {
            filter: filter.as_deref(),
            sink: &mut visitor,
            left: max,
            handed: 0,
            turn: 0,
            looked: 0,
        };
        let pumped = self.pump(&mut hand);
        let handed = hand.handed;
        self.filter = filter;
        match pumped {
            Err(error) if is_closed(&error) => self.ended = true,
            Err(error) if handed == 0 => return Err(error),
            Err(error) => self.failed = Some(error),
            Ok(()) => {}
        }
        Ok(handed)
    }

    fn pump(&mut self, hand: &mut Delivery<'_>) -> Result<(), ReaderError> {
        // The urgent lanes, and each of the others.
        let turns = 2 * self.lanes.len().max(1);
        let mut quiet = 0;
        self.idle = false;
        while !hand.is_full() && hand.looked < MAX_VISIT_ITEMS && quiet < turns {
            let before = hand.looked;
            self.step(hand)?;
            quiet = if hand.looked == before { quiet + 1 } else { 0 };
            if self.follow == Follow::No && self.lanes.iter().all(|lane| lane.past.is_none()) {
                self.ended = true;
                break;
            }
        }
        self.idle = quiet == turns;
        Ok(())
    }

    /// A turn of the urgent lanes, of one other lane, or of stored records.
    fn step(&mut self, hand: &mut Delivery<'_>) -> Result<(), ReaderError> {
        let Self { set, lanes, follow, .. } = self;
        let failed = |lane, source| ReaderError::Read { lane, source };
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(2) {
            let live = |lane: &&mut Lane| lane.urgent && lane.past.is_none();
            for lane in lanes.iter_mut().filter(live).filter(|_| *follow == Follow::Yes) {
                if !hand.is_full() {
                    lane.turn(set, hand).map_err(|error| failed(lane.level, error))?;
                }
            }
            return Ok(());
        }
        if lanes.iter().any(|lane| lane.past.is_some()) {
            return merge::round(lanes, set, hand).map_err(|(lane, error)| failed(lane, error));
        }
        let others = lanes.iter().filter(|lane| !lane.urgent).count();
        let which = (self.turn / 2) % others.max(1);
        match lanes.iter_mut().filter(|lane| !lane.urgent).nth(which) {
            Some(lane) => lane.turn(set, hand).map_err(|error| failed(lane.level, error)),
            None => Ok(()),
        }
    }

    /// Blocks until there may be something to visit, at most for `timeout`.
    ///
    /// # Errors
    /// [`ReaderError`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Waited, ReaderError> {
        if self.ended {
            return Ok(Waited::Ended);
        }
        if !self.idle || self.failed.is_some() {
            return Ok(Waited::Ready);
        }
        match self.set.next_timeout(timeout) {
            Ok(None) => Ok(Waited::TimeOver),
            Ok(Some((member, event))) => {
                let lane = self.lanes.iter_mut().find(|lane| lane.member == member);
                lane.into_iter().for_each(|lane| lane.woken.push_back(event.clone()));
                self.idle = false;
                Ok(Waited::Ready)
            }
            Err(error) => {
                let lane = self.lanes.iter().find(|lane| lane.member == error.member);
                let lane = lane.map_or(Level::default(), |lane| lane.level);
                let error = ReaderError::Read { lane, source: error.source };
                if !is_closed(&error) {
                    return Err(error);
                }
                self.ended = true;
                Ok(Waited::Ended)
            }
        }
    }

    /// A handle that ends a wait from another thread.
    #[must_use]
    pub fn waker(&self) -> WaitSetWaker {
        self.set.waker()
    }

    /// Whether the reader has ended: the bus was closed, or it does not follow and all stored
    /// records were delivered.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The reader's position: a reader that begins there continues with the next item.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        let lanes = self.lanes.iter().map(|lane| (lane.level, lane.stands()));
        Cursor { site: self.site, lanes: lanes.collect() }
    }

    /// Reports that a delivered record has a malformed body: it is counted as malformed and not as
    /// delivered.
    pub fn malformed(&mut self, lane: Level, producer: &Producer) {
        if let Some(lane) = self.lanes.iter_mut().find(|known| known.level == lane) {
            lane.ledger.count(producer, |tally| {
                tally.delivered = tally.delivered.saturating_sub(1);
                tally.malformed += 1;
            });
        }
    }

    /// The loss accounting of all records so far.
    #[must_use]
    pub fn account(&mut self) -> LossAccounts {
        let rows = self.lanes.iter().flat_map(|lane| lane.ledger.rows()).collect();
        let set = &mut self.set;
        let packets = self.lanes.iter().map(|lane| lane.packets(set)).collect();
        LossAccounts { rows, packets }
    }

    /// Owned records, one by one.
    #[must_use]
    pub fn records(self) -> Records {
        Records::new(self)
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

fn is_closed(error: &ReaderError) -> bool {
    let closed = |error: &TransportError| matches!(error, TransportError::Closed);
    match error {
        ReaderError::Read { source: ReadError::Transport(error), .. } => closed(error),
        ReaderError::Transport(error) => closed(error),
        _ => false,
    }
}

/// Opens the topic; creates a missing one if the reader follows.
fn open_topic(
    bus: &Bus,
    name: &str,
    spec: TopicSpec,
    follow: Follow,
) -> Result<Option<Topic>, TopicError> {
    match bus.topic(TopicSpec::new(name)?) {
        Err(TopicError::NoSuchTopic(_)) if follow == Follow::No => Ok(None),
        Err(TopicError::NoSuchTopic(_)) => bus.topic(spec).map(Some),
        opened => opened.map(Some),
    }
}

fn open_lane(
    set: &mut WaitSet,
    topic: &Topic,
    level: Level,
    urgent: bool,
    options: &ReaderOptions,
) -> Result<Lane, ReaderError> {
    let failed = |source| ReaderError::Open { lane: level, source };
    let latest = options.start == Start::Latest;
    let has_past = options.follow == Follow::No || (!latest && !urgent);
    let ends = if latest { Vec::new() } else { topic.partitions().map_err(failed)? };
    let ends: Vec<_> = ends.iter().map(|info| (info.partition, info.end)).collect();
    let stands = match &options.start {
        Start::Cursor(cursor) => cursor.lanes.get(&level),
        _ => None,
    };
    let stands: Vec<(u32, &PartitionPosition)> =
        stands.into_iter().flatten().map(|(p, s)| (*p, s)).collect();
    for (partition, stand) in &stands {
        let end = ends.iter().find(|(known, _)| known == partition);
        if let Some((_, end)) = end.filter(|(_, end)| stand.next > *end) {
            let (topic, next, end) = (topic.name().clone(), stand.next, *end);
            return Err(ReaderError::Behind { topic, next, end });
        }
    }
    let start = match (&options.start, stands.first()) {
        (Start::Cursor(cursor), _) if !cursor.lanes.contains_key(&level) => options.unread,
        (Start::Latest, _) | (Start::Cursor(_), None) => helio_bus::Start::Latest,
        (Start::Earliest, _) => helio_bus::Start::Earliest,
        (Start::Time(time), _) => helio_bus::Start::Time(*time),
        (Start::Cursor(_), Some((partition, stand))) => {
            helio_bus::Start::Offset { partition: *partition, offset: stand.next }
        }
    };
    let with_oldest = start == helio_bus::Start::Earliest;
    let subscribe = Subscribe::from(start).as_written().lagging(options.lagging);
    let mut subscription = topic.subscribe(subscribe).map_err(failed)?;
    for (partition, stand) in stands.iter().skip(1) {
        let sought = subscription.seek(*partition, stand.next);
        sought.map_err(|source| ReaderError::Read { lane: level, source })?;
    }
    let places = subscription.positions();
    let mut lane = Lane::new(level, urgent, set.add(subscription));
    if with_oldest {
        lane.ledger.begin_with_oldest();
    }
    lane.places = places.iter().map(|at| (at.partition, at.next)).collect();
    for (partition, PartitionPosition { next, begun }) in stands {
        lane.places.insert(partition, *next);
        let begun = begun.iter().map(|(offset, begun)| ((partition, *offset), *begun));
        lane.resumed.extend(begun);
    }
    lane.past = has_past.then_some(Backlog { ends, dry: false });
    Ok(lane)
}
