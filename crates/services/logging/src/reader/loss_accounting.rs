//! Loss accounting: what became of each producer's records in each lane.
//!
//! A producer numbers its records within a lane. Each packet has the number of its first record and
//! the number of records shed before it. The next packet of the same producer therefore shows
//! exactly what is missing, whatever the cause.
//!
//! A producer that was running before the reader began is counted from its first packet: earlier
//! records are not missing. All records are counted of a producer that starts while the reader
//! runs, that is, if the packet is the first sample of its incarnation or another incarnation of it
//! was read. A reader that begins with the oldest stored record wants all of them: what the first
//! packet of a producer shows to be missing was removed by retention, and is reported once.

use std::collections::HashMap;

use helio_bus::{Producer, ProducerName};

use super::gap::{Gap, GapRange, LossCause};
use crate::level::Level;
use crate::packet::Numbers;

/// The most incarnations of producers that are counted separately in a lane, as many as the bus
/// tracks. Beyond it, the least recently active ones are summed up.
const MAX_ROWS: usize = 16_384;

/// The most holes in a producer's numbers that are tracked in case the records arrive late: as many
/// as a producer has packets in flight.
const MAX_HOLES: usize = 256;

/// Counts of records by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordCounts {
    /// Delivered.
    pub delivered: u64,
    /// Skipped by the reader's filter.
    pub filtered: u64,
    /// Dropped by their producers.
    pub shed: u64,
    /// Numbered by their producers, and never received.
    pub lost: u64,
    /// With a body that cannot be read.
    pub malformed: u64,
    /// Received again and dropped; they are counted above once.
    pub repeated: u64,
    /// Samples that are not packets. Their records count as lost once the next packet shows their
    /// number.
    pub damaged: u64,
}

impl RecordCounts {
    /// The number of offered records as far as known: the sum of the outcomes.
    #[must_use]
    pub fn offered(&self) -> u64 {
        let parts = [self.delivered, self.filtered, self.shed, self.lost, self.malformed];
        // Foreign numbers may overflow.
        parts.into_iter().fold(0, u64::saturating_add)
    }

    fn add(&mut self, other: &Self) {
        let add = |to: &mut u64, more| *to = to.saturating_add(more);
        add(&mut self.delivered, other.delivered);
        add(&mut self.filtered, other.filtered);
        add(&mut self.shed, other.shed);
        add(&mut self.lost, other.lost);
        add(&mut self.malformed, other.malformed);
        add(&mut self.repeated, other.repeated);
        add(&mut self.damaged, other.damaged);
    }
}

/// The counts of a producer in a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerCounts {
    /// The level of the lane.
    pub lane: Level,
    /// The producer; none for the sum of the less recent ones.
    pub producer: Option<Producer>,
    /// The counts.
    pub tally: RecordCounts,
}

/// The bus's counts of a lane's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packets {
    /// The level of the lane.
    pub lane: Level,
    /// Lost, by retention, overload, damage, or on the way.
    pub lost: u64,
    /// Dropped, as their incarnation was replaced.
    pub fenced: u64,
    /// Received again and dropped.
    pub duplicates: u64,
    /// Not yet read.
    pub lag: u64,
}

/// The loss accounting of all records so far. Once each producer has published a final packet
/// (possibly an empty one) and everything is read, [`RecordCounts::offered`] of the total is the
/// number of records offered since the reader began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LossAccounts {
    /// By lane, the highest level first, and by producer.
    pub rows: Vec<ProducerCounts>,
    /// By lane, the highest level first.
    pub packets: Vec<Packets>,
}

impl LossAccounts {
    /// The sum over all producers and lanes.
    #[must_use]
    pub fn total(&self) -> RecordCounts {
        self.of(|_| true)
    }

    /// The sum over the rows that satisfy a condition.
    #[must_use]
    pub fn of(&self, mut wanted: impl FnMut(&ProducerCounts) -> bool) -> RecordCounts {
        let mut sum = RecordCounts::default();
        self.rows.iter().filter(|row| wanted(row)).for_each(|row| sum.add(&row.tally));
        sum
    }
}

/// The conclusions from a packet's numbers.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    /// The number of its first records that were received before.
    pub(super) repeated: usize,
    /// The records missing before it.
    pub(super) gaps: Vec<Gap>,
}

#[derive(Debug)]
struct ProducerTrack {
    /// The number of the next record.
    next: u64,
    shed: u64,
    /// The causes known at its last packet.
    causes: u64,
    damaged: bool,
    heard: u64,
    tally: RecordCounts,
    /// The ranges of missing numbers, oldest first: the first number, and the one after the last.
    holes: Vec<(u64, u64)>,
}

impl ProducerTrack {
    /// Counts records that arrive late; returns whether they were counted as lost.
    fn fills(&mut self, from: u64, to: u64) -> bool {
        let inside = |hole: &(u64, u64)| hole.0 <= from && to <= hole.1;
        let Some(place) = self.holes.iter().position(inside).filter(|_| from < to) else {
            return false;
        };
        let (first, end) = self.holes[place];
        let rests = [(first, from), (to, end)];
        self.holes.splice(place..=place, rests.into_iter().filter(|(from, to)| from < to));
        self.tally.lost = self.tally.lost.saturating_sub(to - from);
        true
    }

    fn lost(&mut self, from: u64, to: u64) {
        self.tally.lost = self.tally.lost.saturating_add(to - from);
        if self.holes.len() >= MAX_HOLES {
            self.holes.remove(0);
        }
        self.holes.push((from, to));
    }
}

/// The accounting of a lane.
#[derive(Debug)]
pub(super) struct LossLedger {
    lane: Level,
    tracks: HashMap<Producer, ProducerTrack>,
    newest: HashMap<ProducerName, u64>,
    others: RecordCounts,
    /// Whether all records are wanted, as far as they are stored.
    whole: bool,
    /// The last cause of a loss of packets, and the number of losses.
    cause: LossCause,
    causes: u64,
    clock: u64,
}

impl LossLedger {
    pub(super) fn new(lane: Level) -> Self {
        Self {
            lane,
            tracks: HashMap::new(),
            newest: HashMap::new(),
            others: RecordCounts::default(),
            whole: false,
            cause: LossCause::Absent,
            causes: 0,
            clock: 0,
        }
    }

    /// Begins with the oldest stored record.
    pub(super) fn begin_with_oldest(&mut self) {
        self.whole = true;
    }

    /// Records a loss of packets: holes found from now on have this cause.
    pub(super) fn explain(&mut self, why: LossCause) {
        (self.cause, self.causes) = (why, self.causes + 1);
    }

    /// Records that the reader was behind a producer: it lost its packets from a number on. Of a
    /// producer that is new, and whose first packet is lost, it lost all records before the next.
    pub(super) fn behind(&mut self, producer: &Producer, from: u64) {
        if from <= 1 && !self.newest.contains_key(&producer.name) {
            self.track(producer, 1, 0);
        }
        self.explain(LossCause::Behind);
    }

    /// Counts a packet with this many records and this sequence on the bus.
    pub(super) fn arrived(
        &mut self,
        producer: &Producer,
        sequence: u64,
        numbers: Numbers,
        records: usize,
    ) -> Arrival {
        let (next, shed) = self.expected(producer, sequence, numbers);
        let is_first = self.whole && !self.newest.contains_key(&producer.name);
        let (causes, cause, lane, heard) = (self.causes, self.cause, self.lane, self.clock);
        let track = self.track(producer, next, shed);
        let mut arrival = Arrival::default();
        let mut gap = |records, span, why| {
            let (producer, records) = (Some(producer.clone()), Some(records));
            arrival.gaps.push(Gap { lane, producer, records, span, why });
        };
        if let Some(lost) = numbers.first.checked_sub(next).filter(|lost| *lost > 0) {
            let why = match (track.damaged, track.causes == causes) {
                (true, _) => LossCause::Damaged,
                _ if is_first => LossCause::Retention,
                (false, false) => cause,
                (false, true) => LossCause::Absent,
            };
            track.lost(next, numbers.first);
            gap(lost, GapRange::Records { from: next, to: numbers.first }, why);
        }
        if let Some(more) = numbers.shed.checked_sub(shed).filter(|more| *more > 0) {
            track.tally.shed = track.tally.shed.saturating_add(more);
            gap(more, GapRange::Unnumbered, LossCause::Shed);
        }
        let behind = numbers.first.saturating_add(records as u64);
        let before = next.saturating_sub(numbers.first).min(records as u64);
        let late = before > 0 && track.fills(numbers.first, behind);
        let repeated = if late { 0 } else { before };
        track.tally.repeated += repeated;
        track.next = next.max(behind);
        track.shed = shed.max(numbers.shed);
        (track.causes, track.damaged, track.heard) = (causes, false, heard);
        arrival.repeated = repeated as usize;
        arrival
    }

    /// The number of a producer's next record, and its shed records, before a packet.
    fn expected(&self, producer: &Producer, sequence: u64, numbers: Numbers) -> (u64, u64) {
        let begins = sequence == 1;
        if let Some(track) = self.tracks.get(producer) {
            return (track.next, track.shed);
        }
        let before = self.newest.get(&producer.name).and_then(|newest| {
            self.tracks.get(&Producer { name: producer.name.clone(), incarnation: *newest })
        });
        match before {
            // The producer keeps counting over a new connection.
            Some(track) if begins && numbers.first > 1 && numbers.first >= track.next => {
                (track.next, track.shed.min(numbers.shed))
            }
            Some(_) if begins && numbers.first > 1 => (numbers.first, numbers.shed),
            Some(_) => (1, 0),
            None if begins && numbers.first <= 1 => (numbers.first, 0),
            None if self.whole && numbers.first > 0 => (1, numbers.shed),
            None => (numbers.first, numbers.shed),
        }
    }

    fn track(&mut self, producer: &Producer, next: u64, shed: u64) -> &mut ProducerTrack {
        self.clock += 1;
        if !self.tracks.contains_key(producer) {
            if self.tracks.len() >= MAX_ROWS {
                self.forget();
            }
            self.newest.insert(producer.name.clone(), producer.incarnation);
        }
        let (causes, heard) = (self.causes, self.clock);
        self.tracks.entry(producer.clone()).or_insert(ProducerTrack {
            next,
            shed,
            causes,
            damaged: false,
            heard,
            tally: RecordCounts::default(),
            holes: Vec::new(),
        })
    }

    /// Sums up the least recently active half.
    fn forget(&mut self) {
        let mut heard: Vec<u64> = self.tracks.values().map(|track| track.heard).collect();
        let middle = heard.len() / 2;
        let middle = *heard.select_nth_unstable(middle).1;
        let others = &mut self.others;
        self.tracks.retain(|_, track| {
            let kept = track.heard >= middle;
            if !kept {
                others.add(&track.tally);
            }
            kept
        });
        let tracks = &self.tracks;
        self.newest.retain(|name, incarnation| {
            tracks.contains_key(&Producer { name: name.clone(), incarnation: *incarnation })
        });
    }

    /// Counts a sample of a producer that is not a packet.
    pub(super) fn damaged(&mut self, producer: &Producer) {
        self.clock += 1;
        let heard = self.clock;
        match self.tracks.get_mut(producer) {
            Some(track) => {
                (track.damaged, track.heard) = (true, heard);
                track.tally.damaged += 1;
            }
            // Its numbers are unknown; the next packet starts them.
            None => self.others.damaged += 1,
        }
    }

    /// Adds counts to a producer.
    pub(super) fn count(&mut self, producer: &Producer, add: impl FnOnce(&mut RecordCounts)) {
        match self.tracks.get_mut(producer) {
            Some(track) => add(&mut track.tally),
            None => add(&mut self.others),
        }
    }

    pub(super) fn rows(&self) -> Vec<ProducerCounts> {
        let lane = self.lane;
        let row = |(producer, track): (&Producer, &ProducerTrack)| ProducerCounts {
            lane,
            producer: Some(producer.clone()),
            tally: track.tally,
        };
        let mut rows: Vec<_> = self.tracks.iter().map(row).collect();
        rows.sort_by(|a, b| a.producer.cmp(&b.producer));
        if self.others != RecordCounts::default() {
            rows.push(ProducerCounts { lane, producer: None, tally: self.others });
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer(name: &str, incarnation: u64) -> Producer {
        Producer { name: ProducerName::new(name).unwrap(), incarnation }
    }

    fn arrived(
        ledger: &mut LossLedger,
        who: (&str, u64, u64),
        (first, shed, records): (u64, u64, usize),
    ) -> Vec<(u64, LossCause)> {
        let numbers = Numbers { lane: None, first, shed };
        let arrival = ledger.arrived(&producer(who.0, who.1), who.2, numbers, records);
        arrival.gaps.iter().map(|gap| (gap.records.unwrap(), gap.why)).collect()
    }

    fn tally(ledger: &LossLedger) -> RecordCounts {
        LossAccounts { rows: ledger.rows(), packets: Vec::new() }.total()
    }

    #[test]
    fn a_reader_that_was_behind_lost_the_records_before_the_next_packet() {
        let mut ledger = LossLedger::new(Level::INFO);
        arrived(&mut ledger, ("a", 1, 1), (1, 0, 2));
        ledger.behind(&producer("a", 1), 2);
        assert_eq!(arrived(&mut ledger, ("a", 1, 9), (8, 0, 1)), [(5, LossCause::Behind)]);
        // A producer that began while the reader stood still, and one that goes on again.
        ledger.behind(&producer("b", 1), 1);
        ledger.behind(&producer("a", 2), 1);
        let first = arrived(&mut ledger, ("b", 1, 9), (31, 1, 1));
        assert_eq!(first, [(30, LossCause::Behind), (1, LossCause::Shed)]);
        assert_eq!(arrived(&mut ledger, ("a", 2, 3), (1, 0, 1)), []);
        assert_eq!((tally(&ledger).lost, tally(&ledger).shed), (35, 1));
    }

    #[test]
    fn what_came_before_a_reader_is_not_missing() {
        let mut ledger = LossLedger::new(Level::INFO);
        assert_eq!(arrived(&mut ledger, ("a", 1, 7), (500, 40, 10)), []);
        assert_eq!(arrived(&mut ledger, ("a", 1, 8), (510, 40, 10)), []);
        let both = [(5, LossCause::Absent), (2, LossCause::Shed)];
        assert_eq!(arrived(&mut ledger, ("a", 1, 9), (525, 42, 1)), both);
        assert_eq!((tally(&ledger).lost, tally(&ledger).shed), (5, 2));
    }

    #[test]
    fn a_reader_that_wants_all_is_told_once_what_retention_has_removed() {
        let mut ledger = LossLedger::new(Level::INFO);
        ledger.begin_with_oldest();
        assert_eq!(arrived(&mut ledger, ("a", 1, 7), (500, 40, 10)), [(499, LossCause::Retention)]);
        assert_eq!(arrived(&mut ledger, ("a", 1, 8), (510, 40, 10)), []);
        assert_eq!(arrived(&mut ledger, ("a", 1, 9), (521, 40, 1)), [(1, LossCause::Absent)]);
        assert_eq!(arrived(&mut ledger, ("a", 2, 1), (1, 0, 1)), []);
        // One that counts on over a new connection, and two of which nothing is missing.
        assert_eq!(arrived(&mut ledger, ("b", 4, 1), (70, 0, 5)), [(69, LossCause::Retention)]);
        assert_eq!(arrived(&mut ledger, ("c", 1, 1), (1, 0, 5)), []);
        assert_eq!(arrived(&mut ledger, ("d", 1, 9), (0, 0, 5)), []);
        assert_eq!(tally(&ledger).lost, 499 + 1 + 69);
    }

    #[test]
    fn of_who_begins_under_the_reader_s_eyes_all_is_counted() {
        let mut ledger = LossLedger::new(Level::INFO);
        assert_eq!(arrived(&mut ledger, ("a", 1, 1), (1, 3, 0)), [(3, LossCause::Shed)]);
        assert_eq!(arrived(&mut ledger, ("a", 1, 2), (1, 3, 4)), []);
        // Its next incarnation begins anew, and its first packets were lost.
        let told = arrived(&mut ledger, ("a", 2, 3), (8, 1, 1));
        assert_eq!(told, [(7, LossCause::Absent), (1, LossCause::Shed)]);
        assert_eq!(arrived(&mut ledger, ("a", 3, 1), (1, 0, 1)), []);
    }

    #[test]
    fn who_counts_on_over_a_new_connection_loses_what_lies_between() {
        let mut ledger = LossLedger::new(Level::INFO);
        assert_eq!(arrived(&mut ledger, ("a", 1, 1), (1, 0, 10)), []);
        assert_eq!(arrived(&mut ledger, ("a", 2, 1), (11, 0, 5)), []);
        assert_eq!(
            arrived(&mut ledger, ("a", 3, 1), (20, 6, 5)),
            [(4, LossCause::Absent), (6, LossCause::Shed)]
        );
        assert_eq!(arrived(&mut ledger, ("b", 1, 1), (70, 6, 5)), [], "nobody knows before what");
    }

    #[test]
    fn holes_have_the_cause_that_came_before_them() {
        let mut ledger = LossLedger::new(Level::INFO);
        for name in ["a", "b", "c"] {
            arrived(&mut ledger, (name, 1, 1), (1, 0, 1));
        }
        ledger.explain(LossCause::Retention);
        ledger.damaged(&producer("c", 1));
        assert_eq!(arrived(&mut ledger, ("a", 1, 9), (5, 0, 1)), [(3, LossCause::Retention)]);
        assert_eq!(arrived(&mut ledger, ("a", 1, 10), (7, 0, 1)), [(1, LossCause::Absent)]);
        assert_eq!(arrived(&mut ledger, ("b", 1, 9), (2, 0, 1)), []);
        assert_eq!(arrived(&mut ledger, ("c", 1, 9), (3, 0, 1)), [(1, LossCause::Damaged)]);
        assert_eq!(tally(&ledger).damaged, 1);
    }

    #[test]
    fn what_comes_again_is_counted_once() {
        let mut ledger = LossLedger::new(Level::INFO);
        arrived(&mut ledger, ("a", 1, 1), (1, 0, 10));
        let numbers = Numbers { lane: None, first: 6, shed: 0 };
        let again = ledger.arrived(&producer("a", 1), 2, numbers, 8);
        assert_eq!((again.repeated, again.gaps.len()), (5, 0));
        assert_eq!(arrived(&mut ledger, ("a", 1, 3), (14, 0, 1)), []);
        assert_eq!(tally(&ledger).repeated, 5);
    }

    #[test]
    fn what_comes_late_was_not_lost() {
        let mut ledger = LossLedger::new(Level::INFO);
        arrived(&mut ledger, ("a", 1, 1), (1, 0, 10));
        assert_eq!(arrived(&mut ledger, ("a", 1, 2), (41, 0, 10)), [(30, LossCause::Absent)]);
        let late = |ledger: &mut LossLedger, first, records| {
            let numbers = Numbers { lane: None, first, shed: 0 };
            ledger.arrived(&producer("a", 1), 3, numbers, records).repeated
        };
        // Published again, in whatever order; and what was there already comes again, too.
        assert_eq!((late(&mut ledger, 21, 10), tally(&ledger).lost), (0, 20));
        assert_eq!((late(&mut ledger, 21, 10), tally(&ledger).lost), (10, 20));
        assert_eq!((late(&mut ledger, 31, 10), tally(&ledger).lost), (0, 10));
        assert_eq!((late(&mut ledger, 11, 10), tally(&ledger).lost), (0, 0));
        assert_eq!((late(&mut ledger, 11, 10), late(&mut ledger, 1, 10)), (10, 10));
        assert_eq!(arrived(&mut ledger, ("a", 1, 9), (51, 0, 1)), []);
        assert_eq!(tally(&ledger).repeated, 30);
    }

    #[test]
    fn holes_are_bounded() {
        let mut ledger = LossLedger::new(Level::INFO);
        for n in 0..4 * MAX_HOLES as u64 {
            arrived(&mut ledger, ("a", 1, 1 + n), (1 + 2 * n, 0, 1));
        }
        assert_eq!(ledger.tracks[&producer("a", 1)].holes.len(), MAX_HOLES);
        assert_eq!(tally(&ledger).lost, 4 * MAX_HOLES as u64 - 1);
    }

    #[test]
    fn numbers_at_their_ends_are_no_panic() {
        let mut ledger = LossLedger::new(Level::INFO);
        arrived(&mut ledger, ("a", 1, 1), (0, 0, 1));
        assert_eq!(arrived(&mut ledger, ("a", 1, 2), (u64::MAX, u64::MAX, 9)).len(), 2);
        assert_eq!(arrived(&mut ledger, ("a", 1, 3), (0, 0, 9)), []);
        // Each producer may lose as many.
        arrived(&mut ledger, ("b", 1, 1), (1, 0, 1));
        arrived(&mut ledger, ("b", 1, 2), (u64::MAX, u64::MAX, 9));
        assert_eq!(tally(&ledger).offered(), u64::MAX);
    }

    #[test]
    fn producers_beyond_the_limit_are_summed_up() {
        let mut ledger = LossLedger::new(Level::INFO);
        for n in 0..MAX_ROWS + 10 {
            let name = format!("p{n}");
            arrived(&mut ledger, (&name, 1, 1), (1, 1, 1));
            arrived(&mut ledger, ("steady", 1, 1 + n as u64), (1 + n as u64, 0, 1));
            ledger.count(&producer(&name, 1), |tally| tally.delivered += 1);
        }
        let rows = ledger.rows();
        assert!(rows.len() <= MAX_ROWS && rows.iter().any(|row| row.producer.is_none()));
        let sum = tally(&ledger);
        assert_eq!((sum.shed, sum.delivered), (MAX_ROWS as u64 + 10, MAX_ROWS as u64 + 10));
        assert_eq!(sum.lost, 0);
    }
}
