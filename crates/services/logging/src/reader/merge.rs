//! Merges the lanes' stored packets by time.
//!
//! Constraints. Each lane has a window of packets, bounded by number and bytes. Records in the
//! windows come in the order of their times. Whatever the times are, the records of one producer
//! and lane come in the order of their sequences.
//!
//! Operation. A round fills all windows and parses their packets. It then hands out the earliest
//! record of all that may come next (of each producer, those of its oldest packet). The round ends
//! when a lane has handed out half of its packets and has more. A packet whose times are far ahead
//! of all others would fill its window with finished packets; it is then handed out regardless of
//! its times.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use helio_bus::{ProducerName, ReadError, Tai, WaitSet};

use super::lane::{Delivery, Lane, WINDOW_PACKETS};
use crate::level::Level;
use crate::packet::Packet;

/// The records of a round. The next round parses the windows again; urgent lanes get their turn
/// between rounds.
const ROUND_RECORDS: usize = 8_192;

/// A packet of a window, by its lane and its index there.
type At = (usize, usize);

/// Delivers the next stored records of the lanes. A lane without further stored records leaves the
/// merge.
pub(super) fn round(
    lanes: &mut [Lane],
    set: &mut WaitSet,
    hand: &mut Delivery<'_>,
) -> Result<(), (Level, ReadError)> {
    hand.turn = ROUND_RECORDS;
    for lane in lanes.iter_mut().filter(|lane| lane.past.is_some()) {
        fill(lane, set, hand).map_err(|error| (lane.level, error))?;
    }
    // Delivery waits until no lane is dry: an earlier record may still arrive.
    let dry = |lane: &Lane| lane.past.as_ref().is_some_and(|past| past.dry);
    if !lanes.iter().any(dry) && !hand.is_full() {
        let unread = |lane: &Lane, set: &mut WaitSet| lane.past.is_some() && !lane.is_read(set);
        let unread: Vec<_> = lanes.iter().map(|lane| unread(lane, set)).collect();
        emit(lanes, &unread, hand);
    }
    for lane in lanes.iter_mut().filter(|lane| lane.past.is_some()) {
        lane.let_go();
        if lane.is_empty() && lane.is_read(set) {
            lane.past = None;
        }
    }
    Ok(())
}

fn fill(lane: &mut Lane, set: &mut WaitSet, hand: &mut Delivery<'_>) -> Result<(), ReadError> {
    loop {
        lane.fill(set, hand)?;
        lane.tell(hand);
        let live = lane.window.iter().filter(|held| !held.is_done()).count();
        let blocked = lane.window.len() >= WINDOW_PACKETS && live < WINDOW_PACKETS / 2;
        if !blocked || hand.is_full() || hand.turn == 0 {
            return Ok(());
        }
        lane.force(hand);
    }
}

fn emit(lanes: &mut [Lane], unread: &[bool], hand: &mut Delivery<'_>) {
    let bytes: Vec<Vec<Vec<u8>>> = lanes.iter_mut().map(take_bytes).collect();
    let mut heads = Heads::new(lanes, &bytes);
    let mut left: Vec<_> = heads.packets.iter().map(HashMap::len).collect();
    let enough: Vec<_> = left.iter().map(|packets| packets / 2).collect();
    while let Some(Reverse((_, at))) = heads.queue.pop() {
        let (lane, place) = at;
        let until = heads.queue.peek().map(|Reverse(next)| before(next, at));
        let done = lanes[lane].hand_out_at(place, &heads.packets[lane][&place], hand, until);
        if hand.is_full() || hand.turn == 0 {
            break;
        }
        if !done {
            heads.push(lanes, at);
            continue;
        }
        if let Some(next) = heads.following.remove(&at) {
            heads.push(lanes, next);
        }
        left[lane] -= 1;
        if unread[lane] && left[lane] <= enough[lane] {
            break;
        }
    }
    for (lane, bytes) in lanes.iter_mut().zip(bytes) {
        let unfinished = lane.window.iter_mut().zip(bytes).filter(|(held, _)| !held.is_done());
        unfinished.for_each(|(held, bytes)| held.bytes = bytes);
    }
}

/// The time up to which a packet's records precede those of any other.
fn before((time, other): &(Tai, At), at: At) -> Tai {
    let equal = if at < *other { 0 } else { 1 };
    Tai::from_nanos(time.nanos().saturating_sub(equal))
}

/// The bytes of the packets to be merged, kept apart from the lanes, which change meanwhile.
fn take_bytes(lane: &mut Lane) -> Vec<Vec<u8>> {
    if lane.past.is_none() {
        return Vec::new();
    }
    lane.window.iter_mut().map(|held| std::mem::take(&mut held.bytes)).collect()
}

struct Heads<'a> {
    packets: Vec<HashMap<usize, Packet<'a>>>,
    /// The next packet of the same producer.
    following: HashMap<At, At>,
    queue: BinaryHeap<Reverse<(Tai, At)>>,
}

impl<'a> Heads<'a> {
    fn new(lanes: &[Lane], bytes: &'a [Vec<Vec<u8>>]) -> Self {
        let (packets, following, queue) = (Vec::new(), HashMap::new(), BinaryHeap::new());
        let mut heads = Self { packets, following, queue };
        let mut first = Vec::new();
        for (at, (lane, bytes)) in lanes.iter().zip(bytes).enumerate() {
            let mut packets = HashMap::new();
            let mut last: HashMap<&ProducerName, At> = HashMap::new();
            let places = lane.window.iter().zip(bytes).enumerate();
            for (place, (held, bytes)) in places.filter(|(_, (held, _))| !held.is_done()) {
                let packet = Packet::parse(bytes).expect("it was parsed when it came");
                packets.insert(place, packet);
                match last.insert(&held.producer.name, (at, place)) {
                    Some(before) => _ = heads.following.insert(before, (at, place)),
                    None => first.push((at, place)),
                }
            }
            heads.packets.push(packets);
        }
        first.into_iter().for_each(|at| heads.push(lanes, at));
        heads
    }

    fn push(&mut self, lanes: &[Lane], at: At) {
        let (lane, place) = at;
        let next = lanes[lane].window[place].place;
        if let Some(record) = self.packets[lane][&place].record(next) {
            self.queue.push(Reverse((record.time(), at)));
        }
    }
}
