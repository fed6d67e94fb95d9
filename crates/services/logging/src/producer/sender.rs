//! The publishing thread: takes records out of the rings, makes packets, publishes them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Bus, Clock as _, Message, Outcome, PendingPublish, PublishError, TransportError};

use super::connect::{Claim, LanePublisher, Opened, PendingConnection};
use super::levels::{ExpiredLevels, LevelsWatcher};
use super::receipt::RecordReceipt;
use super::relay::QueuedRecord;
use super::ring::{self, FIXED, Head, Reading, RecordCounters};
use super::settings::{self, Settings, SettingsError, WatchedFile};
use super::spill::{SpillFile, SpilledPacket};
use super::stderr::Printer;
use super::suppress::{Suppressed, Suppressor};
use super::{Flush, Inner, LogError, LogFigures, LogOptions, MAX_AUDIENCE_SETS, MAX_LOGGERS};
use crate::body::Body;
use crate::lanes::Lanes;
use crate::level::Level;
use crate::packet::{self, Numbers, Origin, PacketWriter, PushError, RecordEntry};
use crate::record::{Audiences, Record, Site};
use crate::value::Value;

/// The bytes of a ring that are processed between checks for urgent records.
const TURN_BYTES: usize = 64 << 10;
/// The forwarded records that are processed between checks for urgent ones.
const TURN_RECORDS: usize = 256;
/// The most packets of a lane in flight.
const MAX_IN_FLIGHT: usize = 256;
/// The most packets of a lane in flight that are published because of their age: a slow bus gets
/// fewer and larger packets. (It is also the number that librdkafka has in flight in a partition;
/// with more it spins until the broker answers.)
const MAX_EARLY_IN_FLIGHT: usize = 5;
/// The interval of reports on shed records if no packet reports them.
const SHED_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The loggers of the sender's own records.
const LEVELS: &str = "log/levels";
const SETTINGS: &str = "log/settings";
/// The retry interval of a lane that the bus does not accept.
const PUBLISH_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The first retry interval of a lane with a full queue; it doubles with each attempt.
const FULL_QUEUE_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// The time after which a pending receipt is reported as an unresponsive bus.
const RECEIPT_WARNING_DELAY: Duration = Duration::from_secs(1);
/// The most bytes of urgent packets in memory while the bus does not accept them. They have their
/// own room, so that they never wait behind others, in memory or in the file.
const MAX_URGENT_QUEUE: usize = 8 << 20;

pub(super) struct Sender {
    inner: Arc<Inner>,
    origin: Origin,
    lanes: Vec<Lane>,
    coming: Option<PendingConnection>,
    rings: Vec<Reading>,
    urgent: Vec<u8>,
    scratch: Vec<u8>,
    spill: Option<SpillFile>,
    flushes: Vec<PendingFlush>,
    levels: LevelsWatcher,
    settings: Option<WatchedFile>,
    batch_age: Duration,
    batch_records: usize,
    suppressor: Option<Suppressor>,
    /// The suppressed records.
    suppressed: u64,
    /// The start of the thread, and the ages of this turn and the previous one. A record found in a
    /// ring may have been there since the previous turn.
    began: Instant,
    now: Duration,
    before: Duration,
    printer: Printer,
    /// The counts of ended threads, and of the thread whose ring is being emptied.
    gone: RecordCounters,
    taking: Option<Arc<RecordCounters>>,
    figures: PublishedCounts,
    /// The number of finished packets.
    made: u64,
    /// Dropped last.
    _claim: Option<Claim>,
}

/// The connection of the lanes to the bus.
pub(super) enum BusLink {
    There(Opened, Bus),
    PendingConnection(PendingConnection),
}

/// A flush, and the packets that existed when it was requested.
struct PendingFlush {
    flush: Flush,
    made: u64,
    spilled: u64,
    /// By lane.
    shed: Vec<u64>,
}

/// Packets by outcome.
#[derive(Debug, Default, Clone, Copy)]
struct PublishedCounts {
    published: u64,
    packets: u64,
    bytes: u64,
}

struct Lane {
    level: Level,
    /// None until the bus was connected.
    way: Option<LanePublisher>,
    writer: PacketWriter,
    /// The receipts of the packet's records.
    receipts: Vec<RecordReceipt>,
    /// The earliest time of the packet's first record.
    since: Instant,
    waiting: Queue,
    under_way: Queue,
    /// The number of the next record.
    next: u64,
    /// Records that were dropped before they had numbers.
    dropped: u64,
    /// Records that the bus has finally refused after they had numbers, which readers see as a
    /// hole.
    refused: u64,
    /// The last reported number of shed records; none if a report is due.
    said: Option<u64>,
    /// The part of it that has arrived, or never will.
    settled: u64,
    /// The time of the next attempt, and the interval.
    again: Option<Instant>,
    pause: Duration,
}

struct QueuedPacket {
    packet: Vec<u8>,
    records: u64,
    /// The numbers, once publishing was attempted.
    numbers: Option<Numbers>,
    publishing: Option<(PendingPublish, Instant)>,
    /// The offset of its copy in the file.
    spilled: Option<u64>,
    /// The number of packets finished before; 0 for one from the file.
    made: u64,
    receipts: Vec<RecordReceipt>,
}

/// Packets in order, and their bytes.
#[derive(Default)]
struct Queue {
    packets: VecDeque<QueuedPacket>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, waiting: QueuedPacket) {
        self.bytes += waiting.packet.len();
        self.packets.push_back(waiting);
    }

    /// Puts attempted packets back before all younger ones.
    fn put_back(&mut self, waiting: QueuedPacket) {
        let first = waiting.numbers.map_or(0, |numbers| numbers.first);
        let older =
            |other: &QueuedPacket| other.numbers.is_some_and(|numbers| numbers.first <= first);
        let place = self.packets.partition_point(older);
        self.bytes += waiting.packet.len();
        self.packets.insert(place, waiting);
    }

    fn pop(&mut self) -> Option<QueuedPacket> {
        self.remove(0)
    }

    fn remove(&mut self, place: usize) -> Option<QueuedPacket> {
        let removed = self.packets.remove(place);
        self.bytes -= removed.as_ref().map_or(0, |waiting| waiting.packet.len());
        removed
    }

    /// Takes the oldest packet that was not attempted. Attempted ones have numbers and may have
    /// arrived.
    fn remove_untried(&mut self) -> Option<QueuedPacket> {
        let place = self.packets.iter().position(|waiting| waiting.numbers.is_none())?;
        self.remove(place)
    }

    fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    fn has_before(&self, made: u64) -> bool {
        self.packets.iter().any(|waiting| waiting.made <= made)
    }
}

impl Sender {
    /// Creates the sender for a bus that is connected or will be.
    pub(super) fn new(
        inner: Arc<Inner>,
        origin: Origin,
        ways: BusLink,
        settings: Option<(WatchedFile, Settings)>,
    ) -> Result<Self, LogError> {
        let mut lanes: Vec<Lane> = Level::ALL.iter().map(|level| Lane::new(*level)).collect();
        let spill = inner.options.spill.as_ref().map(SpillFile::open).transpose()?;
        if let Some(cut) = spill.as_ref().and_then(|spill| spill.cut) {
            lanes[Self::place(cut.lane)].dropped += cut.records;
        }
        let (settings, rules) = settings.map(|(watched, says)| (watched, says.rules)).unzip();
        let mut levels = LevelsWatcher::new(&inner, rules.unwrap_or_default());
        let (coming, claim) = match ways {
            BusLink::PendingConnection(coming) => (Some(coming), None),
            BusLink::There(Opened { ways, levels: source }, bus) => {
                let claim = Claim::of(&bus, &inner.lanes)?;
                lanes.iter_mut().zip(ways).for_each(|(lane, way)| lane.way = Some(way));
                levels.begin(source, &inner);
                (None, Some(claim))
            }
        };
        let LogOptions { batch_age, batch_records, suppress, .. } = inner.options;
        Ok(Self {
            inner,
            origin,
            lanes,
            coming,
            rings: Vec::new(),
            urgent: Vec::new(),
            scratch: Vec::new(),
            spill,
            flushes: Vec::new(),
            levels,
            settings,
            batch_age,
            batch_records,
            suppressor: suppress.map(Suppressor::new),
            suppressed: 0,
            began: Instant::now(),
            now: Duration::ZERO,
            before: Duration::ZERO,
            printer: Printer::new(),
            gone: RecordCounters::default(),
            taking: None,
            figures: PublishedCounts::default(),
            made: 0,
            _claim: claim,
        })
    }

    /// Checks whether the bus is connected.
    fn look_for_bus(&mut self) {
        let opened = self.coming.as_ref().and_then(|coming| coming.ways.try_recv().ok());
        let Some(Opened { ways, levels }) = opened else { return };
        self.lanes.iter_mut().zip(ways).for_each(|(lane, way)| lane.way = Some(way));
        self.levels.begin(levels, &self.inner);
        self.coming = None;
    }

    pub(super) fn run(mut self) {
        let mut ending: Option<Instant> = None;
        loop {
            let (flushes, ends) = {
                let mut asked = locked(&self.inner.asked);
                (std::mem::take(&mut asked.flushes), asked.ends)
            };
            self.before = std::mem::replace(&mut self.now, self.began.elapsed());
            self.look_for_bus();
            self.look_at_settings();
            self.look_at_levels();
            self.take_urgent();
            self.take_rings();
            self.take_handed();
            self.printer.write();
            self.say_suppressed(ends || !flushes.is_empty());
            self.finish_old(ends || !flushes.is_empty());
            self.unspill();
            self.publish_all();
            let says = ends || !flushes.is_empty() || !self.flushes.is_empty();
            self.say_shed(says);
            self.mark(flushes);
            self.count();
            self.answer();
            if ends {
                let since = *ending.get_or_insert_with(Instant::now);
                if self.is_clear() || since.elapsed() > self.inner.options.close_timeout {
                    return self.end();
                }
            }
            self.inner.sleep(self.pause());
        }
    }

    /// Accepts requests to flush.
    fn mark(&mut self, flushes: Vec<Flush>) {
        for flush in flushes {
            let shed = (0..self.lanes.len()).map(|place| self.shed_of(place)).collect();
            let spilled = self.spill.as_ref().map_or(0, SpillFile::put);
            self.flushes.push(PendingFlush { flush, made: self.made, spilled, shed });
        }
    }

    /// Completes finished flushes and drops expired ones.
    fn answer(&mut self) {
        let mut flushes = std::mem::take(&mut self.flushes);
        let now = Instant::now();
        flushes.retain(|marked| {
            let done = self.has_arrived(marked);
            if done {
                _ = marked.flush.done.try_send(());
            }
            !done && marked.flush.until.is_none_or(|until| now < until)
        });
        self.flushes = flushes;
    }

    fn has_arrived(&self, marked: &PendingFlush) -> bool {
        let spilled = self.spill.as_ref().is_none_or(|spill| spill.out() >= marked.spilled);
        let made = |queue: &Queue| !queue.has_before(marked.made);
        let lanes = self.lanes.iter().zip(&marked.shed);
        let arrived = |(lane, shed): (&Lane, &u64)| {
            made(&lane.waiting) && made(&lane.under_way) && lane.settled >= *shed
        };
        spilled && lanes.into_iter().all(arrived)
    }

    /// The time to sleep: until a packet is due, by age or for a retry, but no longer than the
    /// batch age, for records that arrive meanwhile.
    fn pause(&self) -> Duration {
        let waits = self.lanes.iter().any(|lane| !lane.under_way.is_empty());
        let most = if waits { Duration::from_millis(1) } else { PUBLISH_RETRY_INTERVAL };
        let begun = self.lanes.iter().filter(|lane| lane.is_begun());
        let old = begun.map(|lane| self.batch_age.saturating_sub(lane.since.elapsed()));
        let now = Instant::now();
        let again = self.lanes.iter().filter_map(|lane| lane.again);
        let left = old.chain(again.map(|again| again.saturating_duration_since(now))).min();
        left.unwrap_or(self.batch_age).min(self.batch_age).clamp(Duration::from_micros(100), most)
    }

    fn is_clear(&self) -> bool {
        let spilled = self.spill.as_ref().is_some_and(|spill| !spill.is_clear());
        let lane = |lane: &Lane| {
            lane.writer.is_empty() && lane.waiting.is_empty() && lane.under_way.is_empty()
        };
        !spilled && self.lanes.iter().all(lane) && locked(&self.inner.handed).is_empty()
    }

    fn take_urgent(&mut self) {
        if !self.inner.is_urgent() {
            return;
        }
        let mut bytes = std::mem::take(&mut self.urgent);
        bytes.clear();
        self.inner.take_urgent(&mut bytes);
        self.add_all(&bytes);
        self.urgent = bytes;
        let handed = locked(&self.inner.handed).take_urgent();
        handed.into_iter().for_each(|queued| self.add_queued(queued));
        for place in 0..self.lanes.len() {
            if self.inner.lanes.is_urgent(self.lanes[place].level) {
                self.finish(place);
                self.publish(place);
            }
        }
    }

    fn take_handed(&mut self) {
        let handed = locked(&self.inner.handed).take_usual();
        let mut handed = handed.into_iter();
        while !handed.as_slice().is_empty() {
            handed.by_ref().take(TURN_RECORDS).for_each(|queued| self.add_queued(queued));
            self.take_urgent();
        }
    }

    /// Adds consecutive records.
    fn add_all(&mut self, mut rest: &[u8]) {
        while let Some((fixed, behind)) = rest.split_first_chunk::<FIXED>() {
            let (head, length) = Head::read(fixed);
            let (body, behind) = behind.split_at(length);
            self.add(head, body);
            rest = behind;
        }
    }

    fn take_rings(&mut self) {
        self.rings.append(&mut locked(&self.inner.new_rings));
        for place in (0..self.rings.len()).rev() {
            let mut reading = self.rings.swap_remove(place);
            // Checked before the ring is emptied: later records are found in the next turn.
            let ended = reading.ring.is_abandoned();
            fence(Ordering::Acquire);
            // Packets that are published meanwhile report the records shed by this thread.
            self.taking = Some(Arc::clone(&reading.tally));
            self.take_ring(&mut reading);
            self.taking = None;
            if ended {
                self.gone.add_all(&reading.tally);
            } else {
                self.rings.push(reading);
            }
        }
    }

    fn take_ring(&mut self, reading: &mut Reading) {
        // The overflow is younger than the ring's present records.
        let overflows = reading.overflow.is_some();
        let mut left = reading.ring.slots();
        let mut scratch = std::mem::take(&mut self.scratch);
        while left > 0 {
            let Ok(chunk) = reading.ring.read_chunk(left) else { break };
            let parts = chunk.as_slices();
            let mut taken = 0;
            while taken < left && taken < TURN_BYTES {
                let fixed = std::array::from_fn(|place| byte(parts, taken + place));
                let (head, length) = Head::read(&fixed);
                let begin = taken + FIXED;
                self.add(head, piece(parts, begin..begin + length, &mut scratch));
                taken = begin + length;
            }
            chunk.commit(taken);
            left -= taken;
            self.take_urgent();
        }
        self.scratch = scratch;
        if overflows {
            self.add_all(&reading.overflow.take());
        }
    }

    /// Applies settings of levels; logs expired ones.
    fn look_at_levels(&mut self) {
        match self.levels.look(&self.inner) {
            Ok(over) => over.iter().for_each(|over| self.say_over(over)),
            Err(error) => {
                let trouble = format!("the levels at run time cannot be read: {error}");
                locked(&self.inner.trouble).get_or_insert(trouble);
            }
        }
    }

    fn say_over(&mut self, ExpiredLevels { entry, loggers }: &ExpiredLevels) {
        if *loggers == 0 {
            return;
        }
        let pattern = &entry.pattern;
        let mut body = Body::new();
        body.text(&format!("the levels of {pattern} are over; {loggers} loggers had them"));
        body.data("pattern", &Value::from(pattern.as_str()));
        body.data("level", &Value::from(entry.remote.name()));
        body.data("who", &Value::from(entry.who.as_str()));
        body.data("loggers", &Value::from(*loggers as u64));
        self.say(Level::INFO, LEVELS, None, &body);
    }

    /// Applies a changed settings file and logs the change.
    fn look_at_settings(&mut self) {
        let Some(watched) = &mut self.settings else { return };
        match watched.look() {
            None => {}
            Some(Ok((says, options))) => self.settle_on(says, &options),
            Some(Err(error)) => self.say_wrong(&error),
        }
    }

    fn settle_on(&mut self, says: Settings, options: &LogOptions) {
        (self.batch_age, self.batch_records) = (options.batch_age, options.batch_records);
        if self.suppressor.as_ref().map(Suppressor::limits) != options.suppress {
            self.say_suppressed(true);
            self.suppressor = options.suppress.map(Suppressor::new);
        }
        let file = self.settings.as_ref().map(|watched| watched.file().display().to_string());
        let file = file.unwrap_or_default();
        let fixed = settings::fixed(&self.inner.options, options).join(", ");
        let mut body = Body::new();
        if fixed.is_empty() {
            body.text(&format!("the settings of {file} hold now"));
        } else {
            body.text(&format!("the settings of {file} hold now; {fixed} from the next start on"));
            body.data("next_start", &Value::from(fixed));
        }
        body.data("file", &Value::from(file));
        self.say(Level::NOTICE, SETTINGS, None, &body);
        // Last, so that waiters for levels find all other changes made.
        self.levels.file(&self.inner, says.rules, (options.level, options.local));
    }

    fn say_wrong(&mut self, error: &SettingsError) {
        let mut body = Body::new();
        body.text(&format!("the settings stay as they were: {error}"));
        body.data("file", &Value::from(error.file.display().to_string()));
        if let Some(line) = error.line {
            body.data("line", &Value::from(line));
        }
        body.data("remedy", &Value::from(error.remedy.as_str()));
        self.say(Level::WARNING, SETTINGS, None, &body);
    }

    /// Logs the suppressed records, of sites that are due, or of all.
    fn say_suppressed(&mut self, all: bool) {
        let Some(suppressor) = &mut self.suppressor else { return };
        for told in suppressor.told(self.now, all) {
            let Suppressed { site, logger, level, count, span } = told;
            let logger = self.inner.loggers.get(logger);
            let site = self.inner.sites.get(site);
            let mut body = Body::new();
            body.text(&format!("suppressed {count} similar"));
            body.data("suppressed", &Value::from(count));
            body.data("span_s", &Value::from(span.as_secs_f64()));
            let logger = logger.as_ref().map_or("", |name| name.as_str());
            self.say(level, logger, site.as_deref(), &body);
        }
    }

    /// Adds a record of the sender itself, whatever the levels are.
    fn say(&mut self, level: Level, logger: &str, site: Option<&Site>, body: &Body) {
        let place = Self::place(level);
        let audiences = Audiences::default();
        self.gone.offered.add_shared(level, 1);
        for _ in 0..2 {
            let entry = RecordEntry {
                time: self.inner.clock.now(),
                level,
                logger,
                audiences: &audiences,
                origin: &self.origin,
                site,
                registered: None,
                body: body.as_bytes(),
            };
            let lane = &mut self.lanes[place];
            if lane.writer.is_empty() {
                lane.since = Instant::now();
            }
            if lane.writer.push_entry(&entry).is_ok() {
                return;
            }
            self.finish(place);
            self.publish(place);
        }
        self.lanes[place].dropped += 1;
    }

    /// Prints a record.
    fn print(&mut self, head: &Head, body: &[u8]) {
        let logger = self.inner.loggers.get(head.logger);
        let site = self.inner.sites.get(head.site);
        let record = Record {
            time: head.time,
            level: head.level,
            logger: logger.map_or_else(String::new, |name| name.to_string()),
            site: site.map_or_else(Site::default, |site| Site::clone(&site)),
            ..Record::default()
        };
        self.printer.print(record, body);
    }

    /// Adds a record of a ring.
    fn add(&mut self, head: Head, body: &[u8]) {
        if head.goes.printed {
            self.print(&head, body);
        }
        if !head.goes.published {
            return;
        }
        let place = Self::place(head.level);
        if self.suppressor.as_mut().is_some_and(|sites| sites.suppresses(&head, self.now)) {
            // A record tells of them: for readers they are no loss.
            self.suppressed += 1;
            return;
        }
        // The three are disjoint.
        const { assert!(MAX_LOGGERS <= 1 << 16 && MAX_AUDIENCE_SETS <= 1 << 16) };
        let registered =
            u64::from(head.logger) | u64::from(head.site) << 16 | u64::from(head.audiences) << 48;
        let added = self.add_by(place, |sender| {
            let known =
                sender.lanes[place].writer.push_known(registered, head.time, head.level, body);
            known.unwrap_or_else(|| sender.introduce(place, &head, registered, body))
        });
        if let Err(error) = added {
            self.replace(place, &head, &error);
        }
    }

    /// Adds a forwarded record.
    fn add_queued(&mut self, QueuedRecord { record, mut receipt }: QueuedRecord) {
        let place = Self::place(record.level());
        let added = self.add_by(place, |sender| {
            let lane = &mut sender.lanes[place];
            lane.writer.push_entry(&record.entry())?;
            receipt.take().into_iter().for_each(|receipt| receipt.add_to(&mut lane.receipts));
            Ok(())
        });
        // Its size was checked when it was encoded: it fits into an empty packet.
        if added.is_err() {
            self.lanes[place].dropped += 1;
        }
    }

    /// Adds a record to its lane's packet, and begins another one if that is full.
    fn add_by(
        &mut self,
        place: usize,
        mut push: impl FnMut(&mut Self) -> Result<(), PushError>,
    ) -> Result<(), PushError> {
        for _ in 0..2 {
            let lane = &mut self.lanes[place];
            if lane.writer.is_empty() {
                lane.since = self.began + self.before;
            }
            match push(self) {
                Ok(()) => {
                    if self.lanes[place].writer.len() >= self.batch_records {
                        self.finish(place);
                        self.publish(place);
                    }
                    return Ok(());
                }
                Err(PushError::Full) => {
                    self.finish(place);
                    self.publish(place);
                }
                Err(error) => return Err(error),
            }
        }
        self.lanes[place].dropped += 1;
        Ok(())
    }

    /// Adds the first record of an origin to the packet.
    fn introduce(
        &mut self,
        place: usize,
        head: &Head,
        registered: u64,
        body: &[u8],
    ) -> Result<(), PushError> {
        let inner = &self.inner;
        let logger = inner.loggers.get(head.logger);
        let site = inner.sites.get(head.site);
        let audiences = inner.audiences.get(head.audiences);
        let audiences = audiences.map_or_else(Audiences::default, |set| set.audiences());
        self.lanes[place].writer.push_entry(&RecordEntry {
            time: head.time,
            level: head.level,
            logger: logger.as_ref().map_or("", |name| name.as_str()),
            audiences: &audiences,
            origin: &self.origin,
            site: site.as_deref(),
            registered: Some(registered),
            body,
        })
    }

    /// Adds a record with the error in place of one that fits into no packet.
    fn replace(&mut self, place: usize, head: &Head, error: &PushError) {
        let logger = self.inner.loggers.get(head.logger);
        let site = self.inner.sites.get(head.site);
        let mut body = Body::new();
        body.text(&format!("a log record was dropped: {error}"));
        if let Some(Site { file, line, .. }) = site.as_deref() {
            body.site(file, *line);
        }
        let entry = RecordEntry {
            time: head.time,
            level: head.level,
            logger: logger.as_ref().map_or("", |name| name.as_str()),
            audiences: &Audiences::everyone(),
            origin: &self.origin,
            site: None,
            registered: None,
            body: body.as_bytes(),
        };
        if self.lanes[place].writer.push_entry(&entry).is_err() {
            self.lanes[place].dropped += 1;
        }
    }

    fn place(level: Level) -> usize {
        let lane = Lanes::lane(level);
        Level::ALL.iter().position(|level| *level == lane).expect("it is a lane's level")
    }

    fn finish_old(&mut self, at_once: bool) {
        let age = self.batch_age;
        for place in 0..self.lanes.len() {
            let lane = &self.lanes[place];
            let old = || lane.is_begun() && lane.since.elapsed() >= age;
            if at_once || old() {
                self.finish(place);
            }
        }
    }

    /// Finishes a lane's packet and queues it in memory; or in the file, if others are there or
    /// memory is full.
    fn finish(&mut self, place: usize) {
        let lane = &mut self.lanes[place];
        if lane.writer.is_empty() {
            return;
        }
        let (level, records) = (lane.level, lane.writer.len() as u64);
        let numbers = Numbers { lane: Some(level), first: 0, shed: 0 };
        let packet = lane.writer.finish(numbers).to_vec();
        let receipts = std::mem::take(&mut lane.receipts);
        let urgent = self.inner.lanes.is_urgent(level);
        let full = self.is_full(urgent, packet.len());
        // Packets in the file are older.
        let older = self.spill.as_ref().is_some_and(|spill| match urgent {
            true => spill.has(level),
            false => !spill.is_empty(),
        });
        if (full || older) && self.spill.as_mut().is_some_and(|spill| spill.push(&packet)) {
            receipts.into_iter().for_each(RecordReceipt::stored);
            return;
        }
        // If the file is full, packets that must not be dropped overtake those in it.
        let kept = !older || level >= Level::ERROR;
        if !kept || full && !self.make_room(place, packet.len()) {
            self.lanes[place].dropped += records;
            return;
        }
        self.wait(place, packet, records, None);
        if let Some(waiting) = self.lanes[place].waiting.packets.back_mut() {
            waiting.receipts = receipts;
        }
    }

    /// Appends a packet to the lane's queue.
    fn wait(&mut self, place: usize, packet: Vec<u8>, records: u64, spilled: Option<u64>) {
        let made = match spilled {
            Some(_) => 0,
            None => {
                self.made += 1;
                self.made
            }
        };
        let (numbers, publishing, receipts) = (None, None, Vec::new());
        let waiting =
            QueuedPacket { packet, records, numbers, publishing, spilled, made, receipts };
        self.lanes[place].waiting.push(waiting);
    }

    /// Drops the oldest packets of lower lanes until there is room for one of this lane.
    fn make_room(&mut self, place: usize, bytes: usize) -> bool {
        let is_urgent = |lane: &Lane| self.inner.lanes.is_urgent(lane.level);
        let urgent = is_urgent(&self.lanes[place]);
        let lower = (0..place).filter(|lower| is_urgent(&self.lanes[*lower]) == urgent);
        for lower in lower.collect::<Vec<_>>() {
            while self.is_full(urgent, bytes) {
                let Some(oldest) = self.lanes[lower].waiting.remove_untried() else { break };
                self.lanes[lower].dropped += oldest.records;
                if let (Some(at), Some(spill)) = (oldest.spilled, &mut self.spill) {
                    spill.settled(at);
                }
            }
        }
        !self.is_full(urgent, bytes)
    }

    /// Whether memory has no room for a packet of this many bytes.
    fn is_full(&self, urgent: bool, bytes: usize) -> bool {
        let most = if urgent { MAX_URGENT_QUEUE } else { self.inner.options.queue_bytes };
        self.queued(urgent) + bytes > most
    }

    /// Bytes of packets in memory.
    fn queued(&self, urgent: bool) -> usize {
        let alike = |lane: &&Lane| self.inner.lanes.is_urgent(lane.level) == urgent;
        let lanes = self.lanes.iter().filter(alike);
        lanes.map(|lane| lane.waiting.bytes + lane.under_way.bytes).sum()
    }

    /// Reads packets from the file while memory has room.
    fn unspill(&mut self) {
        let half = self.inner.options.queue_bytes / 2;
        while self.queued(false) < half && self.queued(true) < MAX_URGENT_QUEUE / 2 {
            let Some(taken) = self.spill.as_mut().and_then(SpillFile::pop) else { return };
            let SpilledPacket { at, about, packet } = taken;
            let place = Self::place(about.lane);
            match packet {
                Some(packet) => self.wait(place, packet, about.records, Some(at)),
                None => {
                    self.lanes[place].dropped += about.records;
                    self.spill.iter_mut().for_each(|spill| spill.settled(at));
                }
            }
        }
    }

    fn publish_all(&mut self) {
        for place in (0..self.lanes.len()).rev() {
            self.publish(place);
        }
    }

    /// Publishes queued packets until the bus refuses one; checks receipts.
    fn publish(&mut self, place: usize) {
        let shed = self.shed_of(place);
        // The other half is for packets not in flight, where higher levels push out lower ones.
        let urgent = self.inner.lanes.is_urgent(self.lanes[place].level);
        let most = if urgent { MAX_URGENT_QUEUE } else { self.inner.options.queue_bytes } / 2;
        let alike = |lane: &&Lane| self.inner.lanes.is_urgent(lane.level) == urgent;
        let under_way = self.lanes.iter().filter(alike).map(|lane| lane.under_way.bytes).sum();
        let lane = &mut self.lanes[place];
        let mut told = OutcomeSink {
            figures: &mut self.figures,
            spill: self.spill.as_mut(),
            inner: &self.inner,
        };
        let trouble = lane.settle(&mut told).err().or_else(|| {
            if lane.again.is_some_and(|again| Instant::now() < again) {
                return None;
            }
            lane.again = None;
            lane.publish(shed, most.saturating_sub(under_way), &mut told).err()
        });
        if let Some(error) = trouble {
            *locked(&self.inner.trouble) = Some(error.to_string());
            lane.rest(&error);
        } else if lane.is_silent() {
            let mut trouble = locked(&self.inner.trouble);
            trouble.get_or_insert_with(|| "the bus takes records, and does not answer".to_owned());
        }
    }

    /// Records of a lane that were dropped before they had numbers.
    fn shed_of(&self, place: usize) -> u64 {
        let lane = &self.lanes[place];
        let own = |level: &Level| Lanes::lane(*level) == lane.level;
        let levels = (1..=11).filter_map(Level::new).filter(own);
        let of = |level| self.tallies().map(|tally| tally.shed.of(level)).sum::<u64>();
        levels.map(of).sum::<u64>() + lane.dropped
    }

    fn tallies(&self) -> impl Iterator<Item = &RecordCounters> {
        let others = [&self.gone, &self.inner.others];
        let rings = self.rings.iter().map(|reading| &*reading.tally);
        rings.chain(self.taking.as_deref()).chain(others)
    }

    /// Publishes an empty packet with a lane's number of shed records, if no packet has reported
    /// it.
    fn say_shed(&mut self, at_once: bool) {
        for place in 0..self.lanes.len() {
            let shed = self.shed_of(place);
            let lane = &mut self.lanes[place];
            let quiet = lane.waiting.is_empty() && lane.writer.is_empty();
            let said = lane.said == Some(shed);
            if said || !quiet || !at_once && lane.since.elapsed() < SHED_REPORT_INTERVAL {
                continue;
            }
            let numbers = Numbers { lane: Some(lane.level), first: lane.next, shed };
            let packet = lane.writer.finish(numbers).to_vec();
            lane.since = Instant::now();
            self.wait(place, packet, 0, None);
            self.publish(place);
        }
    }

    /// Updates the counts of records and the lowest accepted level.
    fn count(&mut self) {
        let of = |level| self.tallies().map(|tally| tally.offered.of(level)).sum::<u64>();
        let own = (1..=11).filter_map(Level::new).map(of).sum::<u64>();
        let dropped = (0..self.lanes.len()).map(|place| self.shed_of(place)).sum::<u64>();
        let refused = self.lanes.iter().map(|lane| lane.refused).sum::<u64>();
        let shed = dropped + refused + self.suppressed;
        let PublishedCounts { published, packets, bytes } = self.figures;
        let inherited = self.spill.as_ref().map_or(0, |spill| spill.inherited);
        // Packets that another process has left are published by this one.
        let offered = own + inherited;
        let unprinted = |tally: &RecordCounters| {
            let levels = (1..=11).filter_map(Level::new);
            levels.map(|level| tally.unprinted.of(level)).sum::<u64>()
        };
        *locked(&self.inner.figures) = LogFigures {
            offered,
            inherited,
            published,
            shed,
            suppressed: self.suppressed,
            waiting: offered.saturating_sub(published + shed),
            packets,
            bytes,
            spilled_bytes: self.spill.as_ref().map_or(0, SpillFile::bytes),
            unprinted: self.printer.lost + self.tallies().map(unprinted).sum::<u64>(),
            levels_passed_over: self.levels.passed_over(),
        };
        let queued = self.queued(false);
        // With a file there is still room.
        let full = self.spill.as_ref().is_none_or(|spill| !spill.has_room());
        let of = self.inner.options.queue_bytes;
        self.inner.set_floor(if full { ring::floor(queued, of) } else { Level::TRACE });
    }

    /// Stores unpublished packets in the file, if there is one, before the younger ones there.
    fn end(&mut self) {
        // From here on relays refuse records; those queued since the last turn are lost.
        for queued in locked(&self.inner.handed).end() {
            self.lanes[Self::place(queued.record.level())].dropped += 1;
        }
        self.printer.end();
        let mut late = Vec::new();
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            let under_way = std::mem::take(&mut lane.under_way).packets;
            let waiting = std::mem::take(&mut lane.waiting).packets;
            late.extend(under_way.into_iter().chain(waiting).map(|waiting| (place, waiting)));
        }
        let packets = late.iter().map(|(_, waiting)| &waiting.packet[..]);
        if self.spill.as_mut().is_some_and(|spill| !late.is_empty() && spill.prepend(packets)) {
            let receipts = late.into_iter().flat_map(|(_, waiting)| waiting.receipts);
            receipts.for_each(RecordReceipt::stored);
        } else {
            // Packets read from the file are still in it.
            let lost = late.iter().filter(|(_, waiting)| waiting.spilled.is_none());
            lost.for_each(|(place, waiting)| self.lanes[*place].dropped += waiting.records);
        }
        self.count();
    }
}

/// Receives the outcomes of packets.
struct OutcomeSink<'a> {
    figures: &'a mut PublishedCounts,
    spill: Option<&'a mut SpillFile>,
    inner: &'a Inner,
}

impl Lane {
    fn new(level: Level) -> Self {
        Self {
            level,
            way: None,
            writer: PacketWriter::default(),
            receipts: Vec::new(),
            since: Instant::now(),
            waiting: Queue::default(),
            under_way: Queue::default(),
            next: 1,
            dropped: 0,
            refused: 0,
            said: Some(0),
            settled: 0,
            again: None,
            pause: FULL_QUEUE_RETRY_INTERVAL,
        }
    }

    /// Whether there is a packet that its age makes due.
    fn is_begun(&self) -> bool {
        !self.writer.is_empty() && self.under_way.packets.len() < MAX_EARLY_IN_FLIGHT
    }

    /// Postpones the next attempt.
    fn rest(&mut self, error: &PublishError) {
        if let PublishError::Full { .. } = error {
            self.again = Some(Instant::now() + self.pause);
            self.pause = PUBLISH_RETRY_INTERVAL.min(2 * self.pause);
        } else {
            self.again = Some(Instant::now() + PUBLISH_RETRY_INTERVAL);
        }
    }

    /// Checks which packets have arrived; returns the error of one that has not. Packets that may
    /// still arrive are published again, in order.
    fn settle(&mut self, told: &mut OutcomeSink<'_>) -> Result<(), PublishError> {
        let mut first = Ok(());
        while let Some(oldest) = self.under_way.packets.front() {
            let publishing = oldest.publishing.as_ref();
            let Some(outcome) = publishing.and_then(|(way, _)| way.outcome()) else { break };
            let Some(waiting) = self.under_way.pop() else { break };
            first = first.and(self.outcome(waiting, outcome, told));
        }
        first
    }

    /// Whether the oldest receipt has been pending for long.
    fn is_silent(&self) -> bool {
        let oldest = self.under_way.packets.front();
        let since = oldest.and_then(|oldest| oldest.publishing.as_ref());
        since.is_some_and(|(_, since)| since.elapsed() > RECEIPT_WARNING_DELAY)
    }

    fn outcome(
        &mut self,
        waiting: QueuedPacket,
        outcome: Outcome,
        told: &mut OutcomeSink<'_>,
    ) -> Result<(), PublishError> {
        if let Err(error) = &outcome
            && may_yet(error)
        {
            self.waiting.put_back(QueuedPacket { publishing: None, ..waiting });
            return outcome.map(drop);
        }
        let shed = waiting.numbers.map_or(0, |numbers| numbers.shed);
        self.settled = self.settled.max(shed);
        if let (Some(at), Some(spill)) = (waiting.spilled, &mut told.spill) {
            spill.settled(at);
        }
        match outcome {
            Ok(_) => {
                self.pause = FULL_QUEUE_RETRY_INTERVAL;
                told.figures.published += waiting.records;
                told.figures.packets += 1;
                told.figures.bytes += waiting.packet.len() as u64;
                waiting.receipts.into_iter().for_each(RecordReceipt::stored);
                *locked(&told.inner.trouble) = None;
                Ok(())
            }
            Err(error) => {
                self.refused += waiting.records;
                if waiting.records > 0 {
                    // Readers detect the hole by the next number.
                    self.said = None;
                }
                Err(error)
            }
        }
    }

    /// Publishes queued packets, up to this many bytes in flight.
    fn publish(
        &mut self,
        shed: u64,
        most: usize,
        told: &mut OutcomeSink<'_>,
    ) -> Result<(), PublishError> {
        let Some(LanePublisher { publisher, partition }) = &self.way else { return Ok(()) };
        let (publisher, partition) = (publisher.clone(), *partition);
        let mut left = most;
        while self.under_way.packets.len() < MAX_IN_FLIGHT {
            let Some(next) = self.waiting.packets.front() else { break };
            if next.packet.len() > left && !self.under_way.is_empty() {
                break;
            }
            let Some(mut waiting) = self.waiting.pop() else { break };
            let is_fresh = waiting.numbers.is_none();
            if is_fresh {
                let numbers = Numbers { lane: Some(self.level), first: self.next, shed };
                // The packet was finished here, or parsed when it was read from the file.
                packet::renumber(&mut waiting.packet, numbers).expect("it is a packet");
                self.next += waiting.records;
                self.said = Some(shed);
                waiting.numbers = Some(numbers);
            }
            let mut message = Message::new(&waiting.packet).level(self.level.number());
            if let Some(partition) = partition {
                message = message.partition(partition);
            }
            let publishing = publisher.publish(message);
            match publishing.outcome() {
                None => {
                    self.pause = FULL_QUEUE_RETRY_INTERVAL;
                    left = left.saturating_sub(waiting.packet.len());
                    let publishing = Some((publishing, Instant::now()));
                    self.under_way.push(QueuedPacket { publishing, ..waiting });
                }
                Some(Err(error @ PublishError::Full { .. })) if is_fresh => {
                    // The bus accepted no part of it: it gets no numbers yet.
                    self.next -= waiting.records;
                    self.waiting.put_back(QueuedPacket { numbers: None, ..waiting });
                    return Err(error);
                }
                Some(outcome) => self.outcome(waiting, outcome, told)?,
            }
        }
        Ok(())
    }
}

/// Whether a retry may succeed.
fn may_yet(error: &PublishError) -> bool {
    match error {
        PublishError::Full { .. } | PublishError::Unknown { .. } | PublishError::Timeout => true,
        PublishError::Transport(error) => {
            matches!(error, TransportError::Outage { .. } | TransportError::Engine { .. })
        }
        _ => false,
    }
}

type Parts<'a> = (&'a [u8], &'a [u8]);

fn byte((first, second): Parts<'_>, at: usize) -> u8 {
    if at < first.len() { first[at] } else { second[at - first.len()] }
}

/// Bytes of a ring, which may wrap around.
fn piece<'a>(
    (first, second): Parts<'a>,
    range: Range<usize>,
    scratch: &'a mut Vec<u8>,
) -> &'a [u8] {
    if range.end <= first.len() {
        return &first[range];
    }
    let Some(start) = range.start.checked_sub(first.len()) else {
        scratch.clear();
        scratch.extend_from_slice(&first[range.start..]);
        scratch.extend_from_slice(&second[..range.end - first.len()]);
        return scratch;
    };
    &second[start..range.end - first.len()]
}
