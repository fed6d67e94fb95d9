//! A consumer of a stream of alerts.
//!
//! Constraints. One packet that is unusable is dropped, counted and named, and spoils no other.
//! Each packet has a schema of its own, so that a survey may change it in mid-night. What a reader
//! holds is bounded: the bytes of a read, pinned bytes, stamps on the way.
//!
//! Operation. A reader follows the packets, the control topic and, if it wants stamps, the topic of
//! stamps. It counts each visit's alerts ([`visit::Reader`]), leaves out repetitions and late
//! alerts, and proposes closing records. A reader that starts amidst a visit first reads the
//! visit's earlier packets without returning them: so it notices repetitions of these, and does not
//! propose to close a visit that it does not know whole.

mod alert;
mod audit;
mod drops;
mod error;
mod fetch;
mod linked;
mod packets;
mod progress;
mod start;

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bytes::Bytes;
use helio_bus::transport::Position as PartitionPosition;
use helio_bus::{
    Bus, Event, Member, ReadError, Sample, Subscribe, Subscription, Topic, TopicError, TopicSpec,
    TransportError, WaitSet,
};
use helio_core::Tai;
use helio_core::codec::Codec;

use crate::framing::Schemas;
use crate::stamps::Link;
use crate::topics::{LINK_HEADER, PRODUCED_HEADER, Part, SHUTTER_HEADER, control_topic, schema_of};
use crate::visit::{self, Control, Position, ReadAlert, Role, Seen, payload_hash};

pub use alert::{Alert, Read, Stages, UNKNOWN_VISIT, VisitEvent};
pub use audit::{DetectorDigest, GroupAudit, ReadDigest};
pub use drops::{DropCause, Dropped, Drops, MAX_NAMED_DROPS};
pub use error::{LinkedError, ReaderError};
pub use fetch::{FetchError, FetchedStamps, StampFetcher};
pub use linked::LinkedStamps;
pub use packets::{BadPacket, DEFAULT_PINNED_BYTES, Packet, Packets, ccd_of};
pub use start::{Checkpoint, Night, NightError, Start, Stream, VisitStart, starts};

use alert::gap_end;
use packets::number;
use progress::Progress;
use start::{Begin, Index, STORED_TIMEOUT, Target};

/// The longest wait before deadlines of visits are checked again.
const TICK_INTERVAL: Duration = Duration::from_millis(200);
/// How many packets without an alert to return a read passes after its timeout.
const MAX_PASSED: usize = 4_096;
/// The packets after which a read that does not wait checks what is due.
const SETTLE_PACKETS: usize = 256;
/// The most bytes that are held until the first alert of a start is found.
const MAX_HELD_BYTES: usize = 256 << 20;

/// The stamps that a reader wants; any kind from any layout of the topic, with equal bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stamps {
    /// None: packets without stamps.
    #[default]
    None,
    /// Beside packets without stamps.
    Linked,
    /// In the packets, as the survey makes them.
    Inline,
    /// As they are published: in the packets, or not at all if they have a topic of their own. No
    /// packet is copied.
    AsPublished,
}

/// Options of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderOptions {
    /// The group whose members share the partitions; without one the reader has all.
    pub group: Option<String>,
    /// The stamps that are returned.
    pub stamps: Stamps,
    /// Where it starts.
    pub start: Start,
    /// The most bytes of the transport's memory that packets hold instead of copies.
    pub pinned_bytes: u64,
    /// Whether payloads are hashed. Without, the reader closes no visits and audits none, and an
    /// audit of its group lacks the partitions that it has read.
    pub verify: bool,
    /// The number of visits of which alerts are counted at a time.
    pub visits: usize,
}

impl Default for ReaderOptions {
    /// No group, no stamps, from now on, verified.
    fn default() -> Self {
        Self {
            group: None,
            stamps: Stamps::default(),
            start: Start::default(),
            pinned_bytes: DEFAULT_PINNED_BYTES,
            verify: true,
            visits: visit::MAX_TALLIES,
        }
    }
}

/// Reads a stream of alerts.
///
/// Dropping it leaves its group. Alerts that were not committed are returned to the next member.
pub struct AlertReader {
    bus: Bus,
    name: String,
    options: ReaderOptions,
    topic: Topic,
    set: WaitSet,
    alerts: Member,
    control: Member,
    control_codec: Codec,
    packets: Packets,
    stamps: Option<LinkedStamps>,
    progress: Progress,
    begin: Begin,
    gate: Option<Gate>,
    /// A packet that did not fit into the last read.
    pushed_back: Option<Sample>,
    /// Packets that were read before the first one of the start.
    held: VecDeque<Sample>,
    /// How far partitions with held packets were read behind them.
    passed: BTreeMap<u32, u64>,
    /// Partitions that the group has assigned, and that are not adopted.
    assignment: Option<Assignment>,
    /// The error of a read that had returned something.
    failed: Option<ReaderError>,
    total: Drops,
}

/// The partitions of a member of a group.
struct Assignment {
    own: Vec<u32>,
    /// Where alerts are returned from, once it is known; moving the subscription changes it.
    begin: Option<Vec<u64>>,
}

/// An alert's stamps from their topic, or why they are missing; `None` if it has none there.
type Linked = Option<Result<Vec<Option<Bytes>>, String>>;

/// Holds packets until the first one of a start is read.
struct Gate {
    target: Target,
    /// Visits that were opened before the target.
    earlier: Vec<i64>,
    /// What was stored when the reader was opened.
    ends: Vec<u64>,
    /// The next offset of each partition, held packets included.
    next: Vec<u64>,
    held_bytes: usize,
}

/// What a closed gate does with a packet.
enum Admission {
    Admit,
    Hold,
    /// It is of an earlier visit: it is counted and not returned.
    Pass,
}

/// A read that is being filled.
struct Filling {
    read: Read,
    max_alerts: usize,
    max_bytes: usize,
    bytes: usize,
    passed: usize,
}

impl Filling {
    fn is_full(&self) -> bool {
        self.read.alerts.len() >= self.max_alerts || self.bytes >= self.max_bytes
    }

    fn fits(&self, bytes: usize) -> bool {
        self.read.alerts.is_empty() || self.bytes + bytes <= self.max_bytes
    }

    fn drop(&mut self, at: Position, id: Option<i64>, bad: BadPacket) {
        self.read.dropped.count(bad.cause);
        self.read.dropped.name(Dropped { at, id, cause: bad.cause, reason: bad.reason });
    }
}

impl AlertReader {
    /// Opens the stream of that name, which must exist.
    ///
    /// # Errors
    /// [`ReaderError`]: the start is unknown, or retention has removed what follows it.
    pub fn open(bus: &Bus, name: &str, options: ReaderOptions) -> Result<Self, ReaderError> {
        let stream = Stream { bus, name };
        let topic = stream.topic()?;
        let stamps = match options.stamps {
            Stamps::None | Stamps::AsPublished => None,
            Stamps::Linked | Stamps::Inline => stamps_topic(stream)?,
        };
        let stamps = stamps.map(|topic| LinkedStamps::new(topic, options.pinned_bytes));
        let role = match &options.group {
            None if options.verify => Role::Whole,
            _ => Role::Member,
        };
        let mut progress = Progress::new(stream, role, topic.clone(), options.visits);
        let control_codec = Codec::new(&schema_of::<Control>());
        let control = read_control(stream, &control_codec, &mut progress)?;
        let mut packets = Packets::new(bus);
        let partitions = topic.partitions()?;
        let ledger = progress.ledger();
        let index = Index { stream, topic: &topic, partitions: &partitions, ledger };
        let begin = index.find(&options.start, &mut packets)?;
        let mut subscribe = Subscribe::from(helio_bus::Start::Earliest);
        subscribe = subscribe.pinned(options.pinned_bytes).lagging(helio_bus::Lagging::Lossless);
        if let Some(group) = &options.group {
            subscribe = subscribe.group(group);
        }
        let mut set = bus.wait_set()?;
        let alerts = set.add(topic.subscribe(subscribe)?);
        let control = set.add(control);
        let mut reader = Self {
            bus: bus.clone(),
            name: name.to_owned(),
            topic,
            set,
            alerts,
            control,
            control_codec,
            packets,
            stamps,
            progress,
            gate: None,
            pushed_back: None,
            held: VecDeque::new(),
            passed: BTreeMap::new(),
            assignment: None,
            failed: None,
            total: Drops::default(),
            begin,
            options,
        };
        if reader.options.group.is_none() {
            reader.start_whole()?;
        }
        Ok(reader)
    }

    /// Moves a reader without group to its start in all partitions.
    fn start_whole(&mut self) -> Result<(), ReaderError> {
        let partitions = self.topic.partitions()?;
        let index = self.index(&partitions);
        let all: Vec<u32> = partitions.iter().map(|partition| partition.partition).collect();
        let warm = index.warm_up(&self.begin.offsets, &all);
        if let Some(subscription) = self.set.get_mut(self.alerts) {
            for (partition, offset) in all.iter().zip(&warm) {
                subscription.seek(*partition, *offset)?;
            }
        }
        self.progress.start(&partitions, &warm, &self.begin.offsets);
        if let Some(stamps) = &mut self.stamps {
            stamps.assign(&all)?;
        }
        self.gate = self.begin.target.map(|target| {
            let id = match target {
                Target::Visit(visit) => Some(visit),
                Target::Alert(_) => None,
            };
            let visits = self.progress.ledger().visits().map(|(visit, _)| visit);
            let earlier = visits.take_while(|visit| Some(*visit) != id);
            Gate {
                target,
                earlier: if id.is_some() { earlier.collect() } else { Vec::new() },
                ends: partitions.iter().map(|partition| partition.end).collect(),
                next: self.begin.offsets.clone(),
                held_bytes: 0,
            }
        });
        Ok(())
    }

    fn index<'a>(&'a self, partitions: &'a [helio_bus::transport::PartitionInfo]) -> Index<'a> {
        let stream = Stream { bus: &self.bus, name: &self.name };
        Index { stream, topic: &self.topic, partitions, ledger: self.progress.ledger() }
    }

    /// Starts again elsewhere, as if the reader was opened there. A group is moved by
    /// [`Stream::rewind_group`].
    ///
    /// # Errors
    /// As [`AlertReader::open`]; the reader is unchanged then.
    pub fn rewind(&mut self, start: Start) -> Result<(), ReaderError> {
        let options = ReaderOptions { start, ..self.options.clone() };
        let (bus, name) = (self.bus.clone(), self.name.clone());
        let total = std::mem::take(&mut self.total);
        match Self::open(&bus, &name, options) {
            Ok(reader) => *self = Self { total, ..reader },
            Err(error) => {
                self.total = total;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Adds schemas by which frames of foreign producers are read: registry numbers and
    /// fingerprints. Those of Rubin are known. The schemas of Heliograph's producers come from the
    /// bus.
    pub fn schemas_mut(&mut self) -> &mut Schemas {
        &mut self.packets.framed
    }

    /// Reads alerts, at most so many, and of so many bytes unless one alone is larger. Blocks until
    /// there is an alert or an event, at most for `timeout`.
    ///
    /// The alerts of a read come before its events: when a visit is decided, all its alerts were
    /// returned in this or former reads.
    ///
    /// # Errors
    /// The engine's error; alerts that were read before it are returned first. No alert is lost by
    /// an error: the next call tries again what failed.
    pub fn read(
        &mut self,
        max_alerts: usize,
        max_bytes: usize,
        timeout: Duration,
    ) -> Result<Read, ReaderError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.adopt()?;
        let until = Instant::now().checked_add(timeout);
        let (max_alerts, bytes, passed) = (max_alerts.max(1), 0, 0);
        let mut filling = Filling { read: Read::default(), max_alerts, max_bytes, bytes, passed };
        self.progress.settle();
        loop {
            match self.advance(&mut filling, until) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(error) if filling.read.is_empty() => return Err(error),
                Err(error) => {
                    let is_repeated = self.assignment.is_some() || self.pushed_back.is_some();
                    self.failed = Some(error).filter(|_| !is_repeated);
                    break;
                }
            }
        }
        self.progress.settle();
        let mut read = filling.read;
        read.events = self.progress.take_events();
        self.total.add(&read.dropped);
        Ok(read)
    }

    /// Takes the next sample or event.
    fn advance(
        &mut self,
        filling: &mut Filling,
        until: Option<Instant>,
    ) -> Result<ControlFlow<()>, ReaderError> {
        if filling.passed % SETTLE_PACKETS == SETTLE_PACKETS - 1 {
            self.progress.settle();
        }
        if filling.is_full() {
            return Ok(ControlFlow::Break(()));
        }
        let held = || if self.gate.is_none() { self.held.pop_front() } else { None };
        if let Some(sample) = self.pushed_back.take().or_else(held) {
            self.take(sample, filling)?;
            return Ok(self.is_pushed_back());
        }
        let left =
            until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        let has_any = !filling.read.alerts.is_empty() || self.progress.has_events();
        let has_passed = filling.passed >= MAX_PASSED && left.is_zero();
        let wait = if has_any || has_passed { Duration::ZERO } else { left };
        let mut event = self.set.try_next().map_err(|error| error.source)?;
        if event.is_none() && !wait.is_zero() {
            self.progress.settle();
            if self.progress.has_events() {
                return Ok(ControlFlow::Continue(()));
            }
            let wait = wait.min(self.progress.tick_in(TICK_INTERVAL));
            event = self.set.next_timeout(wait).map_err(|error| error.source)?;
        }
        match event {
            Some((member, event)) if member == self.control => self.control_event(event),
            Some((_, event)) => self.alert_event(event, filling)?,
            None if wait.is_zero() || left <= TICK_INTERVAL => {
                return Ok(ControlFlow::Break(()));
            }
            None => {}
        }
        if has_passed {
            return Ok(ControlFlow::Break(()));
        }
        Ok(self.is_pushed_back())
    }

    fn is_pushed_back(&self) -> ControlFlow<()> {
        if self.pushed_back.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn control_event(&mut self, event: Event) {
        match event {
            Event::Sample(sample) => self.progress.take_control(&self.control_codec, &sample),
            Event::Gap(gap) => self.progress.gap(Part::Control, gap),
            Event::Outage(outage) => self.progress.event(VisitEvent::Outage(outage)),
            _ => {}
        }
    }

    fn alert_event(&mut self, event: Event, filling: &mut Filling) -> Result<(), ReaderError> {
        match event {
            Event::Sample(sample) => self.take(sample, filling)?,
            Event::Gap(gap) => {
                if let Some(to) = gap_end(&gap) {
                    self.advance_to(gap.partition, to);
                    self.gate.iter_mut().for_each(|gate| gate.pass(gap.partition, to));
                }
                self.progress.gap(Part::Alerts, gap);
            }
            Event::Undecodable(wrong) => {
                let at = position(&wrong.sample);
                self.advance_to(at.partition, at.offset + 1);
                filling.drop(at, None, BadPacket::new(DropCause::Damaged, wrong.reason));
            }
            Event::Assigned(own) if self.options.group.is_some() => {
                self.assignment = Some(Assignment { own, begin: None });
                self.adopt()?;
            }
            Event::Outage(outage) => self.progress.event(VisitEvent::Outage(outage)),
            _ => {}
        }
        Ok(())
    }

    /// Adopts what the group has assigned; after an error the next call tries it again.
    fn adopt(&mut self) -> Result<(), ReaderError> {
        let Some(mut assignment) = self.assignment.take() else { return Ok(()) };
        let adopted = self.assign(&mut assignment);
        if adopted.is_err() {
            self.assignment = Some(assignment);
        }
        adopted
    }

    /// Where a member of a group returns alerts from.
    fn begin_of_member(&mut self) -> Result<Vec<u64>, ReaderError> {
        let group = self.options.group.clone().unwrap_or_default();
        let committed = self.topic.committed(&group)?;
        let mut begin = self.begin.offsets.clone();
        let subscription = self.set.get_mut(self.alerts);
        let positions = subscription.map(|s| s.positions()).unwrap_or_default();
        for position in &positions {
            let has_commit = committed.iter().any(|(of, _)| *of == position.partition);
            if let Some(offset) = begin.get_mut(position.partition as usize)
                && has_commit
            {
                *offset = position.next;
            }
        }
        Ok(begin)
    }

    fn assign(&mut self, assignment: &mut Assignment) -> Result<(), ReaderError> {
        let begin = match assignment.begin.take() {
            Some(begin) => begin,
            None => self.begin_of_member()?,
        };
        let begin = &*assignment.begin.insert(begin);
        let own = &assignment.own[..];
        let is_own = |sample: &Sample| own.contains(&sample.partition);
        self.held.retain(is_own);
        self.pushed_back.take_if(|sample| !is_own(sample));
        let partitions = self.topic.partitions()?;
        let gained: Vec<u32> =
            own.iter().copied().filter(|partition| !self.progress.owns(*partition)).collect();
        let warm = self.index(&partitions).warm_up(begin, own);
        if let Some(subscription) = self.set.get_mut(self.alerts) {
            for partition in &gained {
                match subscription.seek(*partition, warm[*partition as usize]) {
                    // Assigned to another member meanwhile: the event follows.
                    Err(ReadError::Transport(TransportError::NotAssigned { .. })) => {}
                    moved => moved?,
                }
            }
        }
        self.progress.assign(&partitions, own, &warm, begin);
        if let Some(stamps) = &mut self.stamps {
            stamps.assign(own)?;
        }
        self.progress.event(VisitEvent::Assigned(own.to_vec()));
        Ok(())
    }
}

/// The topic of stamps; `None` if the stream's layout is inline.
fn stamps_topic(stream: Stream<'_>) -> Result<Option<Topic>, ReaderError> {
    match stream.bus.topic(TopicSpec::of(Part::Stamps.name(stream.name)?)) {
        Ok(topic) => Ok(Some(topic)),
        Err(TopicError::NoSuchTopic(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads all of the control topic that is stored; returns the subscription behind it.
fn read_control(
    stream: Stream<'_>,
    codec: &Codec,
    progress: &mut Progress,
) -> Result<Subscription, ReaderError> {
    let topic = control_topic(stream.bus, stream.name)?;
    let mut control = topic.subscribe(Subscribe::from(helio_bus::Start::Earliest))?;
    control.set_fence()?;
    while let Some(event) = control.next_stored(STORED_TIMEOUT)? {
        if let Event::Sample(sample) = event {
            progress.take_control(codec, &sample);
        }
    }
    Ok(control)
}

impl Stream<'_> {
    /// Moves a group without live members to a start, at which its next members resume.
    ///
    /// # Errors
    /// [`ReaderError::GroupInUse`]; as [`AlertReader::open`].
    pub fn rewind_group(self, group: &str, start: &Start) -> Result<(), ReaderError> {
        let topic = self.topic()?;
        let mut progress = Progress::new(self, Role::Member, topic.clone(), 1);
        read_control(self, &Codec::new(&schema_of::<Control>()), &mut progress)?;
        let partitions = topic.partitions()?;
        let ledger = progress.ledger();
        let index = Index { stream: self, topic: &topic, partitions: &partitions, ledger };
        let begin = index.find(start, &mut Packets::new(self.bus))?;
        let in_use = |members: String| ReaderError::GroupInUse { group: group.to_owned(), members };
        let known = topic.groups()?.into_iter().find(|known| known.name == group);
        let members: Vec<_> = known.into_iter().flat_map(|known| known.members).collect();
        if !members.is_empty() {
            let names: Vec<_> = members.into_iter().map(|member| member.name).collect();
            return Err(in_use(names.join(", ")));
        }
        let options = Subscribe::from(helio_bus::Start::Earliest).group(group);
        let mut subscription = topic.subscribe(options)?;
        let until = Instant::now() + STORED_TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match subscription.next_timeout(left)? {
                Some(Event::Assigned(own)) if own.len() == partitions.len() => break,
                Some(_) => {}
                None => return Err(in_use("it does not get all partitions".to_owned())),
            }
        }
        for (partition, offset) in (0..).zip(begin.offsets) {
            subscription.commit_at(partition, offset)?;
        }
        Ok(())
    }
}

fn position(sample: &Sample) -> Position {
    Position { partition: sample.partition, offset: sample.offset }
}

/// Taking packets.
impl AlertReader {
    /// Notes that all of a partition before an offset was read. Held packets count as unread.
    fn advance_to(&mut self, partition: u32, next: u64) {
        let held = self.held.iter().find(|sample| sample.partition == partition);
        let Some(held) = held.map(|sample| sample.offset) else {
            let passed = self.passed.remove(&partition).unwrap_or_default();
            return self.progress.advance(partition, next.max(passed));
        };
        let passed = self.passed.entry(partition).or_default();
        *passed = next.max(*passed);
        self.progress.advance(partition, next.min(held));
    }

    /// Takes a packet; after an error it is pushed back, and nothing was counted.
    fn take(&mut self, sample: Sample, filling: &mut Filling) -> Result<(), ReaderError> {
        let at = position(&sample);
        filling.passed += 1;
        if !self.progress.owns(at.partition) {
            return Ok(());
        }
        let is_new = self.progress.is_new(at);
        if is_new && !filling.fits(sample.payload.len()) {
            self.pushed_back = Some(sample);
            return Ok(());
        }
        let opened = match self.packets.open(&sample) {
            Ok(opened) => opened,
            Err(error) => {
                self.pushed_back = Some(sample);
                return Err(error.into());
            }
        };
        let admission = match &mut self.gate {
            Some(gate) if is_new => gate.admit(&sample, &opened),
            _ => Admission::Admit,
        };
        match admission {
            Admission::Hold => {
                self.held.push_back(sample);
                self.gate.take_if(|gate| gate.is_over());
                return Ok(());
            }
            Admission::Admit if is_new => self.gate = None,
            Admission::Admit | Admission::Pass => {}
        }
        let is_returned = is_new && matches!(admission, Admission::Admit);
        let linked = match self.linked(&opened, &sample, is_returned) {
            Ok(linked) => linked,
            Err(error) => {
                self.pushed_back = Some(sample);
                return Err(error);
            }
        };
        for (packet, linked) in opened.into_iter().zip(linked) {
            match packet {
                Ok(packet) if is_returned => self.take_new(packet, linked, &sample, filling),
                Ok(packet) => _ = self.count(&packet, at),
                Err(bad) if is_returned => filling.drop(at, None, bad),
                Err(_) => {}
            }
        }
        self.advance_to(at.partition, at.offset + 1);
        self.gate.take_if(|gate| gate.is_over());
        Ok(())
    }

    /// The stamps of the packets of a sample, before these are counted.
    fn linked(
        &mut self,
        packets: &[Result<Packet, BadPacket>],
        sample: &Sample,
        are_returned: bool,
    ) -> Result<Vec<Linked>, ReaderError> {
        let one = |packet: &Result<Packet, BadPacket>| match packet {
            Ok(packet) if are_returned => self.linked_files(packet, sample),
            _ => Ok(None),
        };
        packets.iter().map(one).collect()
    }

    /// Counts an alert in its visit.
    fn count(&mut self, packet: &Packet, at: Position) -> Seen {
        if packet.ccd.visit == UNKNOWN_VISIT {
            return Seen::New;
        }
        let payload = if self.options.verify { payload_hash(&packet.datum) } else { 0 };
        let (visit, detector) = (packet.ccd.visit, packet.ccd.detector);
        self.progress.alert(&ReadAlert { visit, detector, id: packet.id, payload, at })
    }

    /// Returns an alert, unless it is a repetition, late, or lacks its stamps.
    fn take_new(&mut self, packet: Packet, linked: Linked, sample: &Sample, filling: &mut Filling) {
        let at = position(sample);
        let cause = match self.count(&packet, at) {
            // Of forgotten visits, repetitions are better than losses.
            Seen::New | Seen::Forgotten => None,
            Seen::Duplicate => Some(DropCause::Duplicate),
            Seen::Conflict => Some(DropCause::Conflict),
            Seen::Late => Some(DropCause::Late),
            Seen::Excess => Some(DropCause::Excess),
        };
        if let Some(cause) = cause {
            return filling.read.dropped.count(cause);
        }
        let (id, stages) = (packet.id, self.stages(&packet, sample));
        match self.with_stamps(&packet, linked, sample) {
            Ok(WithStamps { datum, stamps, missing }) => {
                if let Some(reason) = missing {
                    filling.read.dropped.without_stamps += 1;
                    let cause = DropCause::Stamps;
                    filling.read.dropped.name(Dropped { at, id: Some(id), cause, reason });
                }
                let files = stamps.iter().flatten().flatten().map(Bytes::len).sum::<usize>();
                filling.bytes += datum.len() + files;
                let (visit, detector) = (packet.ccd.visit, packet.ccd.detector);
                let layout = packet.layout;
                let alert = Alert { id, visit, detector, at, layout, datum, stamps, stages };
                filling.read.alerts.push(alert);
            }
            Err(reason) => {
                filling.drop(at, Some(id), BadPacket::new(DropCause::Stamps, reason));
            }
        }
    }

    fn stages(&self, packet: &Packet, sample: &Sample) -> Stages {
        let headers = sample.headers.as_ref();
        let header = |name| number(headers, name).map(Tai::from_nanos);
        Stages {
            shutter_close: header(SHUTTER_HEADER)
                .or_else(|| self.progress.shutter_close(packet.ccd.visit)),
            produced: header(PRODUCED_HEADER),
            published: sample.header.time,
            read: self.bus.clock().now(),
        }
    }

    /// Gives a packet the stamps that are wanted; the error is the reason why not.
    fn with_stamps(
        &self,
        packet: &Packet,
        linked: Linked,
        sample: &Sample,
    ) -> Result<WithStamps, String> {
        let datum = packet.datum.clone();
        let bare = |datum| Ok(WithStamps { datum, stamps: None, missing: None });
        match (self.options.stamps, linked) {
            (Stamps::Inline, Some(files)) => {
                let files = files?;
                let borrowed: Vec<_> = files.iter().map(Option::as_deref).collect();
                let mut whole = Vec::new();
                let joined = packet.layout.join(&datum, &borrowed, &mut whole);
                joined.map_err(|error| error.to_string())?;
                bare(whole.into())
            }
            (_, Some(Ok(files))) => Ok(WithStamps { datum, stamps: Some(files), missing: None }),
            (_, Some(Err(reason))) => Ok(WithStamps { datum, stamps: None, missing: Some(reason) }),
            (Stamps::AsPublished | Stamps::Inline, None) => bare(datum),
            // Its stamps are elsewhere, and not wanted.
            (_, None) if sample.headers.as_ref().get(LINK_HEADER).is_some() => bare(datum),
            (wanted, None) => take_out(packet, wanted),
        }
    }

    /// Reads a packet's stamps from their topic, if they are wanted and there.
    fn linked_files(&mut self, packet: &Packet, sample: &Sample) -> Result<Linked, ReaderError> {
        let are_wanted = matches!(self.options.stamps, Stamps::Linked | Stamps::Inline);
        let link = sample.headers.as_ref().get(LINK_HEADER).filter(|_| are_wanted);
        let Some(link) = link else { return Ok(None) };
        let missing = |reason: &str| Ok(Some(Err(reason.to_owned())));
        let Some(stamps) = self.stamps.as_mut() else {
            return missing("the stream has no topic of stamps");
        };
        let Some(link) = Link::parse(link) else {
            return missing("the place of the stamps is unknown");
        };
        match stamps.files(sample.partition, &link, packet.id) {
            Ok(files) => Ok(Some(Ok(files))),
            Err(LinkedError::Missing(reason)) => Ok(Some(Err(reason))),
            Err(LinkedError::Unavailable(error)) => Err(error),
        }
    }
}

/// A packet with the stamps that are wanted.
struct WithStamps {
    datum: Bytes,
    stamps: Option<Vec<Option<Bytes>>>,
    /// Why stamps are missing.
    missing: Option<String>,
}

/// Takes the stamps out of a packet.
fn take_out(packet: &Packet, wanted: Stamps) -> Result<WithStamps, String> {
    let mut metadata = Vec::new();
    let stamps = packet.layout.split(&packet.datum, &mut metadata);
    let stamps = stamps.map_err(|error| error.to_string())?;
    let files = || stamps.iter().map(|stamp| stamp.map(|bytes| packet.datum.slice_ref(bytes)));
    let stamps = (wanted == Stamps::Linked).then(|| files().collect());
    Ok(WithStamps { datum: metadata.into(), stamps, missing: None })
}

impl Gate {
    fn admit(&mut self, sample: &Sample, packets: &[Result<Packet, BadPacket>]) -> Admission {
        self.pass(sample.partition, sample.offset + 1);
        let is_target = |packet: &Packet| match self.target {
            Target::Visit(visit) => packet.ccd.visit == visit,
            Target::Alert(id) => packet.id == id,
        };
        let mut good = packets.iter().flatten();
        if good.clone().any(is_target) {
            return Admission::Admit;
        }
        if good.any(|packet| !self.earlier.contains(&packet.ccd.visit)) {
            self.held_bytes += sample.payload.len();
            return Admission::Hold;
        }
        Admission::Pass
    }

    /// Notes that all of a partition before an offset was read or held.
    fn pass(&mut self, partition: u32, to: u64) {
        if let Some(next) = self.next.get_mut(partition as usize) {
            *next = to.max(*next);
        }
    }

    /// Whether the target was not found in all that was stored, or too much is held.
    fn is_over(&self) -> bool {
        let has_passed = self.next.iter().zip(&self.ends).all(|(next, end)| next >= end);
        has_passed || self.held_bytes > MAX_HELD_BYTES
    }
}

/// Positions and statistics.
impl AlertReader {
    /// Commits the position behind all returned alerts, and what was read of decided visits. A
    /// partition that the group has given to another member meanwhile is left out.
    ///
    /// # Errors
    /// [`ReadError::NoGroup`]; [`ReaderError::NotAccepted`]; the transport's error.
    pub fn commit(&mut self) -> Result<(), ReaderError> {
        self.commit_before(&[])
    }

    /// Commits likewise, and excludes returned alerts at these positions and behind them: those
    /// that a program has not handled yet.
    ///
    /// # Errors
    /// As [`AlertReader::commit`].
    pub fn commit_before(&mut self, unread: &[Position]) -> Result<(), ReaderError> {
        let Some(group) = self.options.group.clone() else { return Err(ReadError::NoGroup.into()) };
        // First, so that a reader that dies in between reads the visits' ends again.
        match self.options.verify {
            true => self.progress.publish_digests(&group)?,
            // Hashes of nothing would make an audit of the group differ.
            false => self.progress.discard_digests(),
        }
        let Some(subscription) = self.set.get_mut(self.alerts) else { return Ok(()) };
        for (partition, next) in self.progress.positions_before(unread) {
            match subscription.commit_at(partition, next) {
                Err(ReadError::Transport(TransportError::NotAssigned { .. })) => {}
                committed => committed?,
            }
        }
        Ok(())
    }

    /// Sets a checkpoint behind all returned alerts of this reader's partitions. The members of a
    /// group set their parts of one under the same name.
    ///
    /// # Errors
    /// [`ReaderError::NotAccepted`].
    pub fn checkpoint(&mut self, name: &str) -> Result<(), ReaderError> {
        self.checkpoint_before(name, &[])
    }

    /// Sets a checkpoint likewise, and excludes returned alerts at these positions and behind them.
    ///
    /// # Errors
    /// As [`AlertReader::checkpoint`].
    pub fn checkpoint_before(
        &mut self,
        name: &str,
        unread: &[Position],
    ) -> Result<(), ReaderError> {
        self.progress.publish_checkpoint(name, unread)
    }

    /// Compares what was read of a visit with its manifests. A member's audit lacks the detectors
    /// of other members.
    ///
    /// # Errors
    /// [`ReaderError::NoAudit`] if payloads are not verified, or if the visit is unknown or
    /// forgotten.
    pub fn audit(&self, visit: i64) -> Result<visit::Audit, ReaderError> {
        if !self.options.verify {
            let reason = "the reader does not verify payloads; open it with `verify`";
            return Err(ReaderError::NoAudit(reason.to_owned()));
        }
        let reason = || format!("nothing of visit {visit} was read, or too long ago");
        self.progress.audit(visit).ok_or_else(|| ReaderError::NoAudit(reason()))
    }

    /// The visits and closing records that are known.
    #[must_use]
    pub fn ledger(&self) -> &visit::Ledger {
        self.progress.ledger()
    }

    /// The next offset and the end of each of the reader's partitions.
    pub fn positions(&mut self) -> Vec<PartitionPosition> {
        let subscription = self.set.get_mut(self.alerts);
        let mut positions = subscription.map(|s| s.positions()).unwrap_or_default();
        let own: Vec<_> = self.progress.positions().collect();
        for position in &mut positions {
            if let Some((_, next)) = own.iter().find(|(of, _)| *of == position.partition) {
                position.next = *next;
            }
        }
        positions
    }

    /// How many stored samples of the reader's partitions were not returned.
    pub fn lag(&mut self) -> u64 {
        self.positions().iter().map(|at| at.end.saturating_sub(at.next)).sum()
    }

    /// The packets that were dropped since the reader was opened; unnamed.
    #[must_use]
    pub fn dropped(&self) -> &Drops {
        &self.total
    }
}

impl std::fmt::Debug for AlertReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlertReader")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
