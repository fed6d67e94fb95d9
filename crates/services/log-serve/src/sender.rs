//! Senders: identity, remaining rate, and counts.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;

use crate::limits::{Bucket, Limits};
use crate::statistics::SenderStatistics;

/// The idle time after which a sender may be forgotten to make room for another: its buckets are
/// full again by then.
const SENDER_IDLE_TIME: Duration = Duration::from_secs(60);
/// The interval of searching for idle senders, which visits all of them.
const SENDER_SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The most characters of a reason for a drop.
const MAX_REASON_CHARS: usize = 200;

/// A sender's identity, as far as the edge knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A machine.
    Ip(IpAddr),
    /// A user of this machine, connected by a unix socket.
    User(u32),
    /// A program of this machine, by a datagram of a unix socket, which has no user.
    Local,
    /// Standard input.
    Input,
}

impl From<IpAddr> for Peer {
    /// An IPv4-mapped address becomes an IPv4 address.
    fn from(address: IpAddr) -> Self {
        Self::Ip(address.to_canonical())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::User(user) => write!(f, "user {user}"),
            Self::Local => f.write_str("local"),
            Self::Input => f.write_str("standard input"),
        }
    }
}

/// Why a message was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The message is malformed.
    Malformed,
    /// The message is above the limit of bytes.
    TooLarge,
    /// The sender is above its rate.
    Rate,
    /// The bus is too slow, and the record is of a low level.
    Shed,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Malformed, Self::TooLarge, Self::Rate, Self::Shed];

    /// The name in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Rate => "rate",
            Self::Shed => "shed",
        }
    }
}

/// Shown after a number.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too large",
            Self::Rate => "over the sender's rate",
            Self::Shed => "for which the bus had no room",
        })
    }
}

/// A sender's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SenderCounts {
    pub(crate) received: u64,
    pub(crate) dropped: [u64; 4],
    /// Connections refused above the limits.
    pub(crate) refused: u64,
    /// Connections closed by a timeout.
    pub(crate) timed_out: u64,
}

impl SenderCounts {
    pub(crate) fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    fn counts(&mut self) -> impl Iterator<Item = &mut u64> {
        let own = [&mut self.received, &mut self.refused, &mut self.timed_out];
        own.into_iter().chain(&mut self.dropped)
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        self.counts().zip(other.counts()).for_each(|(to, from)| *to += *from);
    }

    /// The difference to earlier counts.
    pub(crate) fn since(mut self, mut before: Self) -> Self {
        self.counts().zip(before.counts()).for_each(|(now, then)| *now -= *then);
        self
    }

    pub(crate) fn is_nothing_wrong(&self) -> bool {
        self.all_dropped() + self.refused + self.timed_out == 0
    }
}

#[derive(Debug)]
pub(crate) struct SenderState {
    usual: Bucket,
    urgent: Bucket,
    pub(crate) tally: SenderCounts,
    /// The counts at the last report.
    pub(crate) told: SenderCounts,
    /// The time of the last message.
    last: Instant,
    /// The reason of an unreported drop.
    pub(crate) why: String,
    pub(crate) connections: usize,
}

impl SenderState {
    fn new(limits: &Limits, now: Instant) -> Self {
        Self {
            usual: Bucket::new(limits.rate, now),
            urgent: Bucket::new(limits.urgent, now),
            tally: SenderCounts::default(),
            told: SenderCounts::default(),
            last: now,
            why: String::new(),
            connections: 0,
        }
    }

    /// Whether the sender may send a record now.
    pub(crate) fn allows(&mut self, limits: &Limits, urgency: RateClass, now: Instant) -> bool {
        self.last = now;
        let urgent = urgency == RateClass::Urgent && self.urgent.take(limits.urgent, now);
        urgent || self.usual.take(limits.rate, now)
    }

    pub(crate) fn count_drop(&mut self, cause: Cause, why: &dyn fmt::Display) {
        self.last = Instant::now();
        let place = cause as usize;
        self.tally.dropped[place] += 1;
        // Formatting a reason is costly: one is reported as an example.
        if self.tally.dropped[place] - self.told.dropped[place] > 1 {
            return;
        }
        // A reason may contain text of the sender.
        let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        self.why = why.to_string().chars().map(plain).take(MAX_REASON_CHARS).collect();
    }
}

/// Whether a record is urgent and has its own rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateClass {
    Urgent,
    Usual,
}

/// A tracked sender.
#[derive(Debug)]
pub(crate) struct SenderEntry {
    /// None for all senders above the limit.
    pub(crate) peer: Option<Peer>,
    pub(crate) state: Mutex<SenderState>,
}

/// An edge's handle to a sender, for a connection, a request or a datagram.
#[derive(Debug, Clone)]
pub struct Sender {
    pub(crate) ingest: crate::Ingest,
    pub(crate) entry: Arc<SenderEntry>,
    /// The identity, even if the counts are shared.
    pub(crate) peer: Peer,
}

/// All senders, up to a limit.
#[derive(Debug)]
pub(crate) struct Senders {
    known: HashMap<Peer, Arc<SenderEntry>>,
    others: Arc<SenderEntry>,
    looked: Option<Instant>,
}

impl Senders {
    pub(crate) fn new(limits: &Limits, now: Instant) -> Self {
        let others = SenderEntry { peer: None, state: Mutex::new(SenderState::new(limits, now)) };
        Self { known: HashMap::new(), others: Arc::new(others), looked: None }
    }

    pub(crate) fn of(&mut self, peer: Peer, limits: &Limits, now: Instant) -> Arc<SenderEntry> {
        if let Some(entry) = self.known.get(&peer) {
            return Arc::clone(entry);
        }
        if self.known.len() >= limits.senders {
            self.forget(now);
        }
        if self.known.len() >= limits.senders {
            return Arc::clone(&self.others);
        }
        let state = Mutex::new(SenderState::new(limits, now));
        let entry = Arc::new(SenderEntry { peer: Some(peer), state });
        self.known.insert(peer, Arc::clone(&entry));
        entry
    }

    /// Forgets idle, unconnected senders, and adds their counts to the others'.
    fn forget(&mut self, now: Instant) {
        if self
            .looked
            .is_some_and(|looked| now.saturating_duration_since(looked) < SENDER_SWEEP_INTERVAL)
        {
            return;
        }
        self.looked = Some(now);
        let mut others = locked(&self.others.state);
        self.known.retain(|_, entry| {
            let state = locked(&entry.state);
            let quiet = now.saturating_duration_since(state.last) >= SENDER_IDLE_TIME;
            // Unreported drops are reported first.
            let keep = !quiet || Arc::strong_count(entry) > 1 || state.tally != told(&state);
            if !keep {
                others.tally.add(state.tally);
                others.told.add(state.tally);
            }
            keep
        });
    }

    /// All tracked senders, and the shared entry.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<SenderEntry>> {
        self.known.values().chain([&self.others])
    }

    pub(crate) fn statistics(&self) -> Vec<SenderStatistics> {
        let statistics =
            |entry: &Arc<SenderEntry>| SenderStatistics::of(entry.peer, locked(&entry.state).tally);
        let mut all: Vec<_> = self.all().map(statistics).collect();
        all.retain(|statistics| {
            statistics.peer.is_some() || statistics.received + statistics.refused > 0
        });
        all.sort_by_key(|statistics| (statistics.peer.is_none(), statistics.peer));
        all
    }
}

/// The reported counts, with all received messages counted as reported.
fn told(state: &SenderState) -> SenderCounts {
    SenderCounts { received: state.tally.received, ..state.told }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> Peer {
        Peer::Ip([10, 0, 0, n].into())
    }

    #[test]
    fn there_is_room_for_so_many_and_the_others_share_one_place() {
        let limits = Limits { senders: 2, ..Limits::default() };
        let start = Instant::now();
        let mut senders = Senders::new(&limits, start);
        for n in [1, 2, 3, 4, 1] {
            let entry = senders.of(peer(n), &limits, start);
            let mut state = locked(&entry.state);
            state.tally.received += 1;
            assert_eq!(entry.peer.is_some(), n <= 2, "{n}");
        }
        let counts = |senders: &Senders| -> Vec<_> {
            senders
                .statistics()
                .iter()
                .map(|statistics| (statistics.peer, statistics.received))
                .collect()
        };
        assert_eq!(counts(&senders), [(Some(peer(1)), 2), (Some(peer(2)), 1), (None, 2)]);

        // One of them is connected; the other one is forgotten once it has been quiet.
        let connected = senders.of(peer(2), &limits, start);
        assert!(senders.of(peer(3), &limits, start + SENDER_IDLE_TIME / 2).peer.is_none());
        assert!(senders.of(peer(3), &limits, start + SENDER_IDLE_TIME).peer.is_some());
        let expected = [(Some(peer(2)), 1), (Some(peer(3)), 0), (None, 4)];
        assert_eq!(counts(&senders), expected);
        drop(connected);
    }

    #[test]
    fn what_was_not_told_yet_is_not_forgotten() {
        let limits = Limits { senders: 1, ..Limits::default() };
        let start = Instant::now();
        let mut senders = Senders::new(&limits, start);
        locked(&senders.of(peer(1), &limits, start).state)
            .count_drop(Cause::Malformed, &"a\u{1b}b");
        let later = start + 2 * SENDER_IDLE_TIME;
        assert!(senders.of(peer(2), &limits, later).peer.is_none());
        let first = senders.of(peer(1), &limits, later);
        let mut state = locked(&first.state);
        assert_eq!(state.why, "a\u{fffd}b");
        state.told = state.tally;
        drop(state);
        drop(first);
        assert!(senders.of(peer(2), &limits, later + 2 * SENDER_SWEEP_INTERVAL).peer.is_some());
    }

    #[test]
    fn urgent_records_have_a_rate_of_their_own_and_the_usual_one_beyond_it() {
        let rate = |burst| crate::Rate { per_s: 0.0, burst };
        let limits = Limits { rate: rate(2.0), urgent: rate(3.0), ..Limits::default() };
        let now = Instant::now();
        let mut state = SenderState::new(&limits, now);
        let mut taken = |urgency| (0..9).filter(|_| state.allows(&limits, urgency, now)).count();
        assert_eq!(taken(RateClass::Usual), 2);
        assert_eq!(taken(RateClass::Urgent), 3);
        let mut state = SenderState::new(&limits, now);
        let mut taken = |urgency| (0..9).filter(|_| state.allows(&limits, urgency, now)).count();
        assert_eq!((taken(RateClass::Urgent), taken(RateClass::Usual)), (5, 0));
    }

    #[test]
    fn peers_are_shown_as_people_know_them() {
        let mapped: IpAddr = "::ffff:10.0.0.7".parse().unwrap();
        assert_eq!(Peer::from(mapped).to_string(), "10.0.0.7");
        assert_eq!(Peer::User(1000).to_string(), "user 1000");
    }
}
