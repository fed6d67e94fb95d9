//! A lane: the topic of a level, read packet by packet.
//!
//! A packet is handed out in the transport's memory. It is copied only if the visitor stops in the
//! middle of it, if the lane's turn ends there, or if it is merged by time. Notices about what
//! precedes a packet (gaps, damage) come before its records.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use helio_bus::{
    Event, EventRef, Gap as BusGap, GapCause, Member, Producer, ReadError, SampleRef, Subscription,
    Tai, WaitSet,
};

use super::cursor::{PacketProgress, PartitionPosition};
use super::gap::{Damaged, Gap, GapRange, LossCause, News};
use super::loss_accounting::{LossLedger, Packets, RecordCounts};
use super::{Filter, FilterDecision, Item, RecordPlace};
use crate::level::Level;
use crate::packet::Packet;

/// The most records of a lane per turn. An urgent record waits at most that long.
pub(super) const TURN_RECORDS: usize = 1_024;
/// The most packets of a lane per turn, so that empty and damaged packets end it, too.
const TURN_PACKETS: usize = 256;
/// The packets of a lane's window, which are sorted by time.
pub(super) const WINDOW_PACKETS: usize = 64;
/// The packets that are added to the window at once. The window may exceed its bytes by these.
const FILL_PACKETS: usize = 8;
/// The bytes of the window: fewer packets suffice if they are large.
pub(super) const WINDOW_BYTES: usize = 4 << 20;

/// The visitor, and how many items it takes.
pub(super) struct Delivery<'a> {
    pub(super) filter: Option<&'a dyn Filter>,
    pub(super) sink: &'a mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    /// The items left.
    pub(super) left: usize,
    pub(super) handed: usize,
    /// The records left in this turn.
    pub(super) turn: usize,
    /// The number of examined records, samples and news.
    pub(super) looked: usize,
}

impl Delivery<'_> {
    /// Whether the visit ends here.
    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }

    fn is_over(&self) -> bool {
        self.left == 0 || self.turn == 0
    }

    fn item(&mut self, item: Item<'_>) {
        self.handed += 1;
        self.left -= 1;
        if (self.sink)(item).is_break() {
            self.left = 0;
        }
    }
}

/// A packet that is delivered in part.
#[derive(Debug)]
pub(super) struct OpenPacket {
    pub(super) partition: u32,
    pub(super) offset: u64,
    pub(super) producer: Producer,
    /// The number of records delivered or skipped.
    pub(super) place: usize,
    pub(super) records: usize,
    pub(super) bytes: Vec<u8>,
}

impl OpenPacket {
    pub(super) fn is_done(&self) -> bool {
        self.place == self.records
    }
}

/// The records that were stored when the reader was opened, to be merged by time.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The ends of the partitions, if the transport has offsets.
    pub(super) ends: Vec<(u32, u64)>,
    /// Whether more stored records may arrive.
    pub(super) dry: bool,
}

/// The topic of a level.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) level: Level,
    pub(super) member: Member,
    pub(super) urgent: bool,
    /// The result of a wait.
    pub(super) woken: VecDeque<Event>,
    /// Packets that are delivered in part: at most one, but many during a merge.
    pub(super) window: VecDeque<OpenPacket>,
    told: VecDeque<News>,
    /// The offset after the last packet that was read, by partition.
    pub(super) places: BTreeMap<u32, u64>,
    /// The records that were delivered before the cursor was stored.
    pub(super) resumed: BTreeMap<(u32, u64), PacketProgress>,
    pub(super) past: Option<Backlog>,
    pub(super) ledger: LossLedger,
}

impl Lane {
    pub(super) fn new(level: Level, urgent: bool, member: Member) -> Self {
        Self {
            level,
            member,
            urgent,
            woken: VecDeque::new(),
            window: VecDeque::new(),
            told: VecDeque::new(),
            places: BTreeMap::new(),
            resumed: BTreeMap::new(),
            past: None,
            ledger: LossLedger::new(level),
        }
    }

    /// Delivers available records for the length of a turn.
    pub(super) fn turn(
        &mut self,
        set: &mut WaitSet,
        hand: &mut Delivery<'_>,
    ) -> Result<(), ReadError> {
        hand.turn = TURN_RECORDS;
        self.tell(hand);
        if let Some(held) = self.window.pop_front() {
            self.go_on(held, hand);
        }
        while !hand.is_over()
            && let Some(event) = self.woken.pop_front()
        {
            self.owned(event, Some(hand));
        }
        let Some(subscription) = set.get_mut(self.member).filter(|_| !hand.is_over()) else {
            return Ok(());
        };
        subscription.visit(TURN_PACKETS, |event| {
            self.event(event, Some(hand));
            if hand.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(())
    }

    /// Adds packets to the window until it is full or has all stored packets.
    pub(super) fn fill(
        &mut self,
        set: &mut WaitSet,
        hand: &mut Delivery<'_>,
    ) -> Result<(), ReadError> {
        while let Some(event) = self.woken.pop_front() {
            hand.looked += 1;
            self.owned(event, None);
        }
        let Some(subscription) = set.get_mut(self.member) else { return Ok(()) };
        let mut dry = false;
        while !self.is_full() && !dry {
            let Some(left) = self.past.as_ref().and_then(|past| past.left(subscription)) else {
                break;
            };
            let room = WINDOW_PACKETS.saturating_sub(self.window.len());
            // The visitor never breaks: a break at a gap would leave the packet after it unseen.
            let seen = subscription.visit(room.min(left).min(FILL_PACKETS), |event| {
                self.event(event, None);
                ControlFlow::Continue(())
            })?;
            hand.looked += seen;
            dry = seen == 0;
        }
        if let Some(past) = &mut self.past {
            past.dry = dry;
        }
        Ok(())
    }

    /// Whether the window is full.
    pub(super) fn is_full(&self) -> bool {
        let bytes = || self.window.iter().map(|held| held.bytes.len()).sum::<usize>();
        self.window.len() >= WINDOW_PACKETS || bytes() >= WINDOW_BYTES
    }

    /// Whether the window has all stored packets.
    pub(super) fn is_read(&self, set: &mut WaitSet) -> bool {
        let Some(past) = &self.past else { return true };
        set.get_mut(self.member).is_none_or(|subscription| past.left(subscription).is_none())
    }

    /// Releases finished packets from the front of the window.
    pub(super) fn let_go(&mut self) {
        while self.window.front().is_some_and(OpenPacket::is_done) {
            self.window.pop_front();
        }
    }

    fn go_on(&mut self, mut held: OpenPacket, hand: &mut Delivery<'_>) {
        if !hand.is_over() {
            let bytes = std::mem::take(&mut held.bytes);
            let packet = Packet::parse(&bytes).expect("it was parsed when it came");
            let counted = hand_out(self.level, &packet, &mut held, hand, None);
            self.ledger.count(&held.producer, counted);
            held.bytes = bytes;
        }
        if !held.is_done() {
            self.window.push_front(held);
        }
    }

    /// Delivers the oldest packet of the window, whatever its times.
    pub(super) fn force(&mut self, hand: &mut Delivery<'_>) {
        if let Some(held) = self.window.pop_front() {
            self.go_on(held, hand);
        }
        self.let_go();
    }

    fn owned(&mut self, event: Event, hand: Option<&mut Delivery<'_>>) {
        match event {
            Event::Sample(sample) => self.event(EventRef::Sample(sample.as_ref()), hand),
            event => self.event(EventRef::Other(event), hand),
        }
    }

    /// Receives from the subscription, and delivers the packets or adds them to the window.
    fn event(&mut self, event: EventRef<'_>, hand: Option<&mut Delivery<'_>>) {
        match event {
            EventRef::Sample(sample) => self.sample(&sample, hand),
            EventRef::Other(event) => {
                self.other(event);
                hand.into_iter().for_each(|hand| self.tell(hand));
            }
        }
    }

    fn sample(&mut self, sample: &SampleRef<'_>, mut hand: Option<&mut Delivery<'_>>) {
        let SampleRef { partition, offset, producer, .. } = *sample;
        self.places.insert(partition, offset + 1);
        let resumed = self.resumed.remove(&(partition, offset));
        hand.iter_mut().for_each(|hand| hand.looked += 1);
        let packet = match Packet::parse(sample.payload) {
            Ok(packet) => packet,
            Err(error) => {
                self.ledger.damaged(producer);
                let (lane, producer) = (self.level, producer.clone());
                let damaged = Damaged { lane, producer, partition, offset, error };
                self.told.push_back(News::Damaged(damaged));
                hand.into_iter().for_each(|hand| self.tell(hand));
                return;
            }
        };
        let records = packet.len();
        let arrival = self.ledger.arrived(producer, sample.sequence, packet.numbers(), records);
        self.told.extend(arrival.gaps.into_iter().map(News::Gap));
        let place = match resumed {
            None => arrival.repeated,
            Some(PacketProgress::Whole) => records,
            Some(PacketProgress::Records(count)) => {
                arrival.repeated.max(count as usize).min(records)
            }
        };
        let producer = producer.clone();
        let mut held =
            OpenPacket { partition, offset, producer, place, records, bytes: Vec::new() };
        if let Some(hand) = &mut hand {
            self.tell(hand);
            if !hand.is_over() {
                let counted = hand_out(self.level, &packet, &mut held, hand, None);
                self.ledger.count(&held.producer, counted);
            }
        }
        if !held.is_done() {
            held.bytes = sample.payload.to_vec();
            self.window.push_back(held);
        } else if !self.window.is_empty() {
            // A finished packet is remembered as long as an earlier one is not finished.
            self.window.push_back(held);
        }
    }

    fn other(&mut self, event: Event) {
        let lane = self.level;
        let news = match event {
            Event::Gap(BusGap { partition, cause, .. }) => {
                let (why, from, to) = match cause {
                    GapCause::Retention { from, to } => (LossCause::Retention, from, to),
                    GapCause::Overload { from, to } => (LossCause::Overload, from, to),
                    GapCause::Damaged { from, to } => (LossCause::Damaged, from, to),
                    GapCause::Behind { producer, from, .. } => {
                        return self.ledger.behind(&producer, from);
                    }
                    // This packet shows how many records are missing.
                    _ => return,
                };
                self.ledger.explain(why);
                self.places.insert(partition, to);
                self.resumed.retain(|(at, offset), _| *at != partition || *offset >= to);
                let span = GapRange::Packets { partition, from, to };
                News::Gap(Gap { lane, producer: None, records: None, span, why })
            }
            Event::Fenced(fenced) => {
                let (why, span) = (LossCause::Fenced { newer: fenced.newer }, GapRange::Unnumbered);
                News::Gap(Gap { lane, producer: Some(fenced.producer), records: None, span, why })
            }
            event => News::Bus { lane, event },
        };
        self.told.push_back(news);
    }

    /// Delivers notices.
    pub(super) fn tell(&mut self, hand: &mut Delivery<'_>) {
        while !hand.is_full()
            && let Some(news) = self.told.pop_front()
        {
            hand.looked += 1;
            hand.item(Item::News(&news));
        }
    }

    /// Delivers records of a packet of the window, up to a time if one is given. Returns whether
    /// the packet is finished.
    pub(super) fn hand_out_at(
        &mut self,
        place: usize,
        packet: &Packet<'_>,
        hand: &mut Delivery<'_>,
        until: Option<Tai>,
    ) -> bool {
        let held = &mut self.window[place];
        let counted = hand_out(self.level, packet, held, hand, until);
        self.ledger.count(&held.producer, counted);
        held.is_done()
    }

    /// The position, by partition.
    pub(super) fn stands(&self) -> BTreeMap<u32, PartitionPosition> {
        let stand = |next: &u64| PartitionPosition { next: *next, begun: BTreeMap::new() };
        let places = self.places.iter();
        let mut stands: BTreeMap<_, _> = places.map(|(at, next)| (*at, stand(next))).collect();
        for held in self.window.iter().filter(|held| !held.is_done()) {
            let stand = stands.entry(held.partition).or_insert_with(|| stand(&held.offset));
            stand.next = stand.next.min(held.offset);
        }
        let begun = self.window.iter().filter(|held| held.place > 0).map(|held| {
            let begun =
                if held.is_done() { PacketProgress::Whole } else { held_records(held.place) };
            ((held.partition, held.offset), begun)
        });
        let resumed = self.resumed.iter().map(|(at, begun)| (*at, *begun));
        for ((partition, offset), begun) in begun.chain(resumed) {
            if let Some(stand) = stands.get_mut(&partition).filter(|stand| offset >= stand.next) {
                stand.begun.insert(offset, begun);
            }
        }
        stands
    }

    pub(super) fn packets(&self, set: &mut WaitSet) -> Packets {
        let stats = set.get_mut(self.member).map(|subscription| subscription.stats());
        let stats = stats.unwrap_or_default();
        Packets {
            lane: self.level,
            lost: stats.lost,
            fenced: stats.fenced,
            duplicates: stats.duplicates,
            lag: stats.lag,
        }
    }

    /// Whether some packets were read and not delivered.
    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty() && self.woken.is_empty() && self.window.iter().all(OpenPacket::is_done)
    }
}

/// Delivers records of a packet, up to a time if one is given. Returns what this adds to its
/// producer's counts.
fn hand_out(
    lane: Level,
    packet: &Packet<'_>,
    held: &mut OpenPacket,
    hand: &mut Delivery<'_>,
    until: Option<Tai>,
) -> impl FnOnce(&mut RecordCounts) + use<> {
    let (mut delivered, mut filtered) = (0, 0);
    let OpenPacket { partition, offset, producer, place, records, .. } = held;
    while !hand.is_over()
        && let Some(record) = packet.record(*place)
        && until.is_none_or(|until| record.time() <= until)
    {
        *place += 1;
        hand.turn -= 1;
        hand.looked += 1;
        if hand.filter.is_some_and(|filter| filter.keep(record) == FilterDecision::No) {
            filtered += 1;
            continue;
        }
        delivered += 1;
        let (partition, offset, record_at) = (*partition, *offset, *place - 1);
        let at =
            RecordPlace { lane, producer, partition, offset, record: record_at, records: *records };
        hand.item(Item::Record(record, at));
    }
    move |tally| {
        tally.delivered += delivered;
        tally.filtered += filtered;
    }
}

/// The delivered part of a packet.
fn held_records(place: usize) -> PacketProgress {
    PacketProgress::Records(u32::try_from(place).expect("a packet has less than 4 GB"))
}

impl Backlog {
    /// The packets to be read, at least one; none if all were read.
    fn left(&self, subscription: &Subscription) -> Option<usize> {
        let positions = subscription.positions();
        let next = |partition| positions.iter().find(|at| at.partition == partition);
        let left = |(partition, end): &(u32, u64)| match next(*partition) {
            Some(at) => end.saturating_sub(at.next),
            None => 0,
        };
        let left = match self.ends.as_slice() {
            // The engine has no offsets, but reports whether more is available.
            [] => subscription.stats().lag,
            ends => ends.iter().map(left).sum(),
        };
        (left > 0).then(|| usize::try_from(left).unwrap_or(usize::MAX))
    }
}
