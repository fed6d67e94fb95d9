//! The thread that publishes: out of the rings, into packets, onto the bus.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Bus, Message, Outcome, PublishError, Publisher, Publishing, TransportError};

use super::ring::{self, FIXED, Head, Reading, Tally};
use super::spill::SpillFile;
use super::{Inner, LogError, LogFigures};
use crate::body::Body;
use crate::lanes::Lanes;
use crate::level::Level;
use crate::packet::{self, Entry, Numbers, Origin, Packet, PacketWriter, PushError};
use crate::record::{Audiences, Site};
use crate::value::Value;

/// How many bytes of a ring are taken before it is looked for urgent records.
const TURN_BYTES: usize = 64 << 10;
/// The most packets of a lane that wait for their receipts.
const MAX_UNDER_WAY: usize = 256;
/// How long the end waits for receipts.
const ENDING: Duration = Duration::from_secs(5);
/// How often it is said what was shed where nothing else is said.
const SAYING: Duration = Duration::from_secs(1);
/// How long a lane that the bus does not take is left alone.
const AGAIN: Duration = Duration::from_millis(100);

pub(super) struct Sender {
    inner: Arc<Inner>,
    origin: Origin,
    lanes: Vec<Lane>,
    rings: Vec<Reading>,
    urgent: Vec<u8>,
    scratch: Vec<u8>,
    spill: Option<SpillFile>,
    flushes: Vec<SyncSender<()>>,
    /// What threads have counted that have ended.
    gone: Tally,
    figures: Counted,
}

/// What has become of packets.
#[derive(Debug, Default, Clone, Copy)]
struct Counted {
    published: u64,
    packets: u64,
    bytes: u64,
}

struct Lane {
    level: Level,
    publisher: Publisher,
    writer: PacketWriter,
    /// When the first record came into the packet.
    since: Instant,
    waiting: VecDeque<Waiting>,
    under_way: VecDeque<(Waiting, Publishing)>,
    /// The next record's number.
    next: u64,
    /// Records that were dropped here, before they had numbers.
    dropped: u64,
    /// Records that the bus has refused for ever, after they had: a hole in them for readers.
    refused: u64,
    /// What was said of the shed last.
    said: u64,
    /// Not before this is it tried again.
    again: Option<Instant>,
}

struct Waiting {
    packet: Vec<u8>,
    records: u64,
    /// It was tried, and has its numbers.
    numbers: Option<Numbers>,
}

impl Sender {
    pub(super) fn open(bus: Bus, inner: Arc<Inner>, origin: Origin) -> Result<Self, LogError> {
        let specs = Level::ALL.iter().map(|level| inner.lanes.topic(*level));
        let specs = specs.collect::<Result<Vec<_>, _>>()?;
        bus.make_topics(&specs, |_| {}).map_err(helio_bus::TopicError::from)?;
        let lane = |(spec, level): (_, &Level)| {
            Ok(Lane {
                level: *level,
                publisher: bus.topic(spec)?.publisher()?,
                writer: PacketWriter::default(),
                since: Instant::now(),
                waiting: VecDeque::new(),
                under_way: VecDeque::new(),
                next: 1,
                dropped: 0,
                refused: 0,
                said: 0,
                again: None,
            })
        };
        let lanes =
            specs.into_iter().zip(&Level::ALL).map(lane).collect::<Result<_, LogError>>()?;
        let spill = inner.options.spill.as_ref().map(SpillFile::open).transpose()?;
        Ok(Self {
            inner,
            origin,
            lanes,
            rings: Vec::new(),
            urgent: Vec::new(),
            scratch: Vec::new(),
            spill,
            flushes: Vec::new(),
            gone: Tally::default(),
            figures: Counted::default(),
        })
    }

    pub(super) fn run(mut self) {
        let mut ending: Option<Instant> = None;
        loop {
            let (flushes, ends) = {
                let mut asked = locked(&self.inner.asked);
                (std::mem::take(&mut asked.flushes), asked.ends)
            };
            self.flushes.extend(flushes);
            self.take_urgent();
            self.take_rings();
            let at_once = ends || !self.flushes.is_empty();
            self.finish_old(at_once);
            self.unspill();
            self.publish_all();
            self.say_shed(at_once);
            self.count();
            if self.is_clear() {
                self.flushes.drain(..).for_each(|flush| _ = flush.try_send(()));
            }
            if ends {
                let since = *ending.get_or_insert_with(Instant::now);
                if self.is_clear() || since.elapsed() > ENDING {
                    return self.end();
                }
            }
            self.inner.sleep(self.pause());
        }
    }

    /// How long it may sleep: half as long as a record may wait, so that none waits much longer.
    fn pause(&self) -> Duration {
        let waits = self.lanes.iter().any(|lane| !lane.under_way.is_empty());
        let most = if waits { Duration::from_millis(1) } else { AGAIN };
        (self.inner.options.batch_age / 2).clamp(Duration::from_micros(100), most)
    }

    fn is_clear(&self) -> bool {
        let spilled = self.spill.as_ref().is_some_and(|spill| !spill.is_empty());
        let lane = |lane: &Lane| {
            lane.writer.is_empty() && lane.waiting.is_empty() && lane.under_way.is_empty()
        };
        !spilled && self.lanes.iter().all(lane)
    }

    fn take_urgent(&mut self) {
        if !self.inner.is_urgent() {
            return;
        }
        let mut bytes = std::mem::take(&mut self.urgent);
        bytes.clear();
        self.inner.take_urgent(&mut bytes);
        let mut rest = &bytes[..];
        while let Some((fixed, behind)) = rest.split_first_chunk::<FIXED>() {
            let (head, length) = Head::read(fixed);
            let (body, behind) = behind.split_at(length);
            self.add(head, body);
            rest = behind;
        }
        self.urgent = bytes;
        for place in 0..self.lanes.len() {
            if self.inner.lanes.is_urgent(self.lanes[place].level) {
                self.finish(place);
                self.publish(place);
            }
        }
    }

    fn take_rings(&mut self) {
        self.rings.append(&mut locked(&self.inner.new_rings));
        for place in (0..self.rings.len()).rev() {
            let mut reading = self.rings.swap_remove(place);
            // Before it is emptied: what comes after that is there in the next turn.
            let ended = reading.ring.is_abandoned();
            self.take_ring(&mut reading);
            if ended {
                self.gone.offered.add_all(&reading.tally.offered);
                self.gone.shed.add_all(&reading.tally.shed);
            } else {
                self.rings.push(reading);
            }
        }
    }

    fn take_ring(&mut self, reading: &mut Reading) {
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
    }

    /// Puts a record into its lane's packet, and begins another one where that is full.
    fn add(&mut self, head: Head, body: &[u8]) {
        let place = Self::place(head.level);
        let registered =
            u64::from(head.logger) | u64::from(head.site) << 16 | u64::from(head.audiences) << 48;
        let at = (head.time, head.level);
        for _ in 0..2 {
            let lane = &mut self.lanes[place];
            if lane.writer.is_empty() {
                lane.since = Instant::now();
            }
            let known = lane.writer.push_known(registered, at, body);
            let pushed = known.unwrap_or_else(|| self.introduce(place, &head, registered, body));
            match pushed {
                Ok(()) => {
                    if self.lanes[place].writer.len() >= self.inner.options.batch_records {
                        self.finish(place);
                        self.publish(place);
                    }
                    return;
                }
                Err(PushError::Full) => {
                    self.finish(place);
                    self.publish(place);
                }
                Err(error) => return self.replace(place, &head, &error),
            }
        }
        self.lanes[place].dropped += 1;
    }

    /// Adds the first record of a packet that comes from there.
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
        self.lanes[place].writer.push_entry(&Entry {
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

    /// Adds, in the place of a record that no packet takes, why there is none.
    fn replace(&mut self, place: usize, head: &Head, error: &PushError) {
        let logger = self.inner.loggers.get(head.logger);
        let site = self.inner.sites.get(head.site);
        let mut body = Body::new();
        body.text(&format!("a log record was dropped: {error}"));
        if let Some(Site { file, line, .. }) = site.as_deref() {
            body.data("code.file.path", &Value::from(file.as_str()));
            body.data("code.line.number", &Value::from(*line));
        }
        let entry = Entry {
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
        let age = self.inner.options.batch_age;
        for place in 0..self.lanes.len() {
            let lane = &self.lanes[place];
            if !lane.writer.is_empty() && (at_once || lane.since.elapsed() >= age) {
                self.finish(place);
            }
        }
    }

    /// Ends a lane's packet: it waits to be published, in memory or, where others do already or
    /// there is no room, in the file.
    fn finish(&mut self, place: usize) {
        let lane = &mut self.lanes[place];
        if lane.writer.is_empty() {
            return;
        }
        let records = lane.writer.len() as u64;
        let numbers = Numbers { lane: Some(lane.level), first: 0, shed: 0 };
        let packet = lane.writer.finish(numbers).to_vec();
        let urgent = self.inner.lanes.is_urgent(lane.level);
        let full = self.queued() + packet.len() > self.inner.options.queue_bytes;
        let spilled = self.spill.as_ref().is_some_and(|spill| !spill.is_empty());
        if (full || spilled && !urgent) && self.spill.as_mut().is_some_and(|s| s.push(&packet)) {
            return;
        }
        if full && !self.make_room(place, packet.len()) {
            self.lanes[place].dropped += records;
            return;
        }
        self.lanes[place].waiting.push_back(Waiting { packet, records, numbers: None });
    }

    /// Drops the oldest packets of lower lanes until there is room for one of this lane.
    fn make_room(&mut self, place: usize, bytes: usize) -> bool {
        for lower in 0..place {
            while self.queued() + bytes > self.inner.options.queue_bytes {
                let lane = &mut self.lanes[lower];
                // What was tried has its numbers, and may have arrived.
                let untried = lane.waiting.iter().position(|waiting| waiting.numbers.is_none());
                let oldest = untried.and_then(|place| lane.waiting.remove(place));
                let Some(oldest) = oldest else { break };
                lane.dropped += oldest.records;
            }
        }
        self.queued() + bytes <= self.inner.options.queue_bytes
    }

    /// Bytes of packets that wait in memory.
    fn queued(&self) -> usize {
        let waiting = self.lanes.iter().flat_map(|lane| &lane.waiting);
        waiting.map(|waiting| waiting.packet.len()).sum()
    }

    /// Takes packets out of the file while there is room for them.
    fn unspill(&mut self) {
        let half = self.inner.options.queue_bytes / 2;
        while self.queued() < half {
            let Some(packet) = self.spill.as_mut().and_then(SpillFile::pop) else { return };
            let Ok(read) = Packet::parse(&packet) else { continue };
            let (records, lane) = (read.len() as u64, read.numbers().lane);
            let place = Self::place(lane.unwrap_or_default());
            self.lanes[place].waiting.push_back(Waiting { packet, records, numbers: None });
        }
    }

    fn publish_all(&mut self) {
        for place in (0..self.lanes.len()).rev() {
            self.publish(place);
        }
    }

    /// Publishes what waits, up to what the bus does not take; looks for receipts.
    fn publish(&mut self, place: usize) {
        let shed = self.shed_of(place);
        let lane = &mut self.lanes[place];
        let trouble = lane.settle(&mut self.figures).err().or_else(|| {
            if lane.again.is_some_and(|again| Instant::now() < again) {
                return None;
            }
            lane.again = None;
            lane.publish(shed, &mut self.figures, &self.inner).err()
        });
        if let Some(error) = trouble {
            *locked(&self.inner.trouble) = Some(error.to_string());
            lane.again = Some(Instant::now() + AGAIN);
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

    fn tallies(&self) -> impl Iterator<Item = &Tally> {
        let others = [&self.gone, &self.inner.others];
        self.rings.iter().map(|reading| &*reading.tally).chain(others)
    }

    /// Says how many records of a lane were shed where no packet has said it since.
    fn say_shed(&mut self, at_once: bool) {
        for place in 0..self.lanes.len() {
            let shed = self.shed_of(place);
            let lane = &mut self.lanes[place];
            let quiet = lane.waiting.is_empty() && lane.writer.is_empty();
            if shed == lane.said || !quiet || !at_once && lane.since.elapsed() < SAYING {
                continue;
            }
            let numbers = Numbers { lane: Some(lane.level), first: lane.next, shed };
            let packet = lane.writer.finish(numbers).to_vec();
            lane.since = Instant::now();
            lane.waiting.push_back(Waiting { packet, records: 0, numbers: None });
            self.publish(place);
        }
    }

    /// Tells what became of the records, and how much of what is logged is taken.
    fn count(&mut self) {
        let of = |level| self.tallies().map(|tally| tally.offered.of(level)).sum::<u64>();
        let offered = (1..=11).filter_map(Level::new).map(of).sum::<u64>();
        let dropped = (0..self.lanes.len()).map(|place| self.shed_of(place)).sum::<u64>();
        let shed = dropped + self.lanes.iter().map(|lane| lane.refused).sum::<u64>();
        let Counted { published, packets, bytes } = self.figures;
        let waiting = offered.saturating_sub(published + shed);
        let spilled_bytes = self.spill.as_ref().map_or(0, SpillFile::bytes);
        let figures =
            LogFigures { offered, published, shed, waiting, packets, bytes, spilled_bytes };
        *locked(&self.inner.figures) = figures;
        let queued = self.queued();
        // With a file there is room yet.
        let full = self.spill.as_ref().is_none_or(|spill| !spill.has_room());
        let of = self.inner.options.queue_bytes;
        self.inner.set_floor(if full { ring::floor(queued, of) } else { Level::TRACE });
    }

    /// Keeps what was not published in the file, if there is one: it is older than what is there.
    fn end(&mut self) {
        let mut late = Vec::new();
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            let under_way = lane.under_way.drain(..).map(|(waiting, _)| waiting);
            late.extend(under_way.chain(lane.waiting.drain(..)).map(|waiting| (place, waiting)));
        }
        let packets = late.iter().map(|(_, waiting)| &waiting.packet[..]);
        if !late.is_empty() && !self.spill.as_mut().is_some_and(|spill| spill.prepend(packets)) {
            late.iter().for_each(|(place, waiting)| self.lanes[*place].dropped += waiting.records);
        }
        self.count();
    }
}

impl Lane {
    /// Looks which packets have arrived; tells why one has not, and publishes it again where it
    /// may still.
    fn settle(&mut self, figures: &mut Counted) -> Result<(), PublishError> {
        while let Some((_, publishing)) = self.under_way.front() {
            let Some(outcome) = publishing.outcome() else { return Ok(()) };
            let Some((waiting, _)) = self.under_way.pop_front() else { return Ok(()) };
            self.outcome(waiting, outcome, figures)?;
        }
        Ok(())
    }

    fn outcome(
        &mut self,
        waiting: Waiting,
        outcome: Outcome,
        figures: &mut Counted,
    ) -> Result<(), PublishError> {
        match outcome {
            Ok(_) => {
                figures.published += waiting.records;
                figures.packets += 1;
                figures.bytes += waiting.packet.len() as u64;
                Ok(())
            }
            Err(error) => {
                if may_yet(&error) {
                    self.waiting.push_front(waiting);
                } else {
                    self.refused += waiting.records;
                }
                Err(error)
            }
        }
    }

    fn publish(
        &mut self,
        shed: u64,
        figures: &mut Counted,
        inner: &Inner,
    ) -> Result<(), PublishError> {
        while self.under_way.len() < MAX_UNDER_WAY {
            let Some(mut waiting) = self.waiting.pop_front() else { break };
            if waiting.numbers.is_none() {
                let numbers = Numbers { lane: Some(self.level), first: self.next, shed };
                // It is a packet that was finished here, or one of the file, which were parsed.
                packet::renumber(&mut waiting.packet, numbers).expect("it is a packet");
                self.next += waiting.records;
                self.said = shed;
                waiting.numbers = Some(numbers);
            }
            let message = Message::new(&waiting.packet).level(self.level.number());
            let publishing = self.publisher.publish(message);
            match publishing.outcome() {
                None => self.under_way.push_back((waiting, publishing)),
                Some(Err(error @ PublishError::Full { .. })) => {
                    // Nothing of it was taken: it has no numbers yet.
                    self.next -= waiting.records;
                    self.waiting.push_front(Waiting { numbers: None, ..waiting });
                    return Err(error);
                }
                Some(outcome) => self.outcome(waiting, outcome, figures)?,
            }
            *locked(&inner.trouble) = None;
        }
        Ok(())
    }
}

/// Whether the bus may take it when it is tried again.
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

/// Some bytes of a ring, which may begin at its end and go on at its beginning.
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
