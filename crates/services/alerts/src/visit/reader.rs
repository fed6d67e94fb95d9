//! A process that reads alerts and the control topic, and closes visits.

use std::collections::{BTreeMap, BTreeSet};

use super::audit::{Audit, Finding};
use super::{Closing, Control, Fact, Ledger, MAX_VISITS, ReadAlert, Rejection, Seen, Tally, Visit};

/// The visits of which a reader counts alerts, unless it is given another number: with 10,000
/// alerts each they take 50 MB. Visits that are decided are forgotten first, the oldest before
/// others.
pub const MAX_TALLIES: usize = 64;

/// The partitions that a reader reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// All partitions: it can close visits.
    Whole,
    /// Some partitions, as a member of a group: it reads decisions.
    Member,
}

/// What a shell has to do, or may report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The deadline is over: query the ends of the partitions of alerts, and give them to
    /// [`Reader::ends`].
    QueryEnds {
        /// The visit.
        visit: i64,
    },
    /// Append this record to the control topic.
    Propose(Closing),
    /// A visit is decided. `late` are alerts that were read before and do not count.
    Decided {
        /// The decision.
        closing: Closing,
        /// Late alerts: detector and identifier.
        late: Vec<(i32, i64)>,
    },
    /// A record of the control topic has no effect.
    Rejected(Rejection),
}

/// A visit that is not decided.
#[derive(Debug, Default)]
struct Open {
    /// When the visit may be closed, on the caller's steady clock.
    deadline_ns: Option<u64>,
    has_queried: bool,
    /// The ends that the reader has to reach before it closes an incomplete visit.
    ends: Option<Vec<u64>>,
    has_proposed: bool,
}

/// The state of a reader. Times are of a steady clock, such as the time since boot: no clock of day
/// counts, so none that jumps.
#[derive(Debug)]
pub struct Reader {
    name: String,
    role: Role,
    ledger: Ledger,
    tallies: BTreeMap<i64, Tally>,
    max_tallies: usize,
    /// Visits that were counted, and are not any more.
    forgotten: BTreeSet<i64>,
    open: BTreeMap<i64, Open>,
    /// The next offset of each partition.
    positions: Vec<u64>,
    late: u64,
}

impl Reader {
    /// A reader at the given next offsets, one for each partition of alerts.
    #[must_use]
    pub fn new(name: &str, role: Role, positions: Vec<u64>) -> Self {
        Self {
            name: name.to_owned(),
            role,
            ledger: Ledger::default(),
            tallies: BTreeMap::new(),
            max_tallies: MAX_TALLIES,
            forgotten: BTreeSet::new(),
            open: BTreeMap::new(),
            positions,
            late: 0,
        }
    }

    /// Counts alerts of so many visits: a reader of a whole night needs as many as the night has.
    #[must_use]
    pub fn with_tallies(mut self, visits: usize) -> Self {
        self.max_tallies = visits.max(1);
        self
    }

    /// Takes the next record of the control topic, read at a time.
    pub fn control(&mut self, record: Control, now_ns: u64) -> Vec<Effect> {
        let visit = record.visit();
        let window = match &record {
            Control::Opening(opening) => u64::try_from(opening.window_ns).unwrap_or(0),
            _ => 0,
        };
        match self.ledger.take(record) {
            Fact::Opened(_) => {
                let open = self.open.entry(visit).or_default();
                open.deadline_ns = Some(now_ns.saturating_add(window));
                self.tallies.entry(visit).or_default();
            }
            Fact::Manifest { .. } => {}
            Fact::Decided(closing) => return vec![self.decide(closing)],
            Fact::Rejected(rejection) => return vec![Effect::Rejected(rejection)],
        }
        self.forget();
        self.propose_if_complete(visit).into_iter().collect()
    }

    /// Takes the next alert of a partition, and what comes of it.
    pub fn alert(&mut self, alert: &ReadAlert) -> (Seen, Vec<Effect>) {
        self.advance(alert.at.partition, alert.at.offset + 1);
        let visit = self.ledger.visit(alert.visit);
        if visit.and_then(Visit::closing).is_some_and(|closing| closing.is_late(alert.at)) {
            self.late += 1;
            return (Seen::Late, Vec::new());
        }
        if self.forgotten.contains(&alert.visit) {
            return (Seen::Forgotten, Vec::new());
        }
        let seen = self.tallies.entry(alert.visit).or_default().add(alert);
        let mut effects: Vec<_> = self.propose_if_complete(alert.visit).into_iter().collect();
        effects.extend(self.propose_overdue());
        self.forget();
        (seen, effects)
    }

    /// Notes that all of a partition before an offset was read.
    pub fn advance(&mut self, partition: u32, next: u64) {
        if let Some(position) = self.positions.get_mut(partition as usize) {
            *position = next.max(*position);
        }
    }

    /// Notes the time: visits whose deadline is over are to be closed.
    pub fn tick(&mut self, now_ns: u64) -> Vec<Effect> {
        if self.role == Role::Member {
            return Vec::new();
        }
        let due = |open: &Open| open.deadline_ns.is_some_and(|deadline| deadline <= now_ns);
        let mut effects = Vec::new();
        for (visit, open) in self.open.iter_mut().filter(|(_, open)| due(open)) {
            if !std::mem::replace(&mut open.has_queried, true) {
                effects.push(Effect::QueryEnds { visit: *visit });
            }
        }
        effects.extend(self.propose_overdue());
        effects
    }

    /// Takes the ends of the partitions after a visit's deadline. The visit is proposed to be
    /// closed once the reader has read that far: a slow reader must not leave alerts late.
    pub fn ends(&mut self, visit: i64, ends: Vec<u64>) -> Vec<Effect> {
        if let Some(open) = self.open.get_mut(&visit) {
            open.ends = Some(ends);
        }
        self.propose_overdue()
    }

    /// The earliest deadline of the open visits, on the clock of [`Reader::tick`]: when to call it.
    /// `None` for a member of a group, and if no visit is open or all deadlines are over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let pending = self.open.values().filter(|open| !open.has_queried);
        pending.filter_map(|open| open.deadline_ns).min().filter(|_| self.role == Role::Whole)
    }

    /// Forgets what was read of a partition, as it is read again from an earlier offset, or by
    /// another member of the group.
    pub fn forget_partition(&mut self, partition: u32) {
        self.tallies.values_mut().for_each(|tally| tally.forget_partition(partition));
    }

    /// Notes that a proposal failed, so that it is made again.
    pub fn proposal_failed(&mut self, visit: i64) {
        if let Some(open) = self.open.get_mut(&visit) {
            open.has_proposed = false;
        }
    }

    /// The control topic's state.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns what was read of a visit; late alerts are not in it. `None` if nothing was read, or
    /// if it is forgotten.
    #[must_use]
    pub fn tally(&self, visit: i64) -> Option<&Tally> {
        self.tallies.get(&visit)
    }

    /// Compares what was read of a visit with its manifests. `None` if the visit is unknown or
    /// forgotten.
    #[must_use]
    pub fn audit(&self, visit: i64) -> Option<Audit> {
        let digests = self.tallies.get(&visit)?.digests();
        self.ledger.visit(visit).map(|visit| Audit::of(visit, &digests))
    }

    /// Alerts that were late so far.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    fn decide(&mut self, closing: Closing) -> Effect {
        self.open.remove(&closing.visit);
        let tally = self.tallies.get_mut(&closing.visit);
        let late = tally.map(|tally| tally.close(&closing)).unwrap_or_default();
        self.late += late.len() as u64;
        self.forget();
        Effect::Decided { closing, late }
    }

    fn propose_if_complete(&mut self, visit: i64) -> Option<Effect> {
        let read = self.tallies.get(&visit).map_or(0, Tally::len) as u64;
        // Before the numbers are equal, no audit can be.
        let is_equal = |known: &Visit| known.announced() == read && known.has_all_manifests();
        let is_candidate =
            self.role == Role::Whole && self.ledger.visit(visit).is_some_and(is_equal);
        if !is_candidate || self.open.get(&visit).is_none_or(|open| open.has_proposed) {
            return None;
        }
        let closing = self.closing(visit)?;
        closing.is_complete().then(|| self.propose(closing))
    }

    /// Proposes to close what is overdue and read far enough.
    fn propose_overdue(&mut self) -> Vec<Effect> {
        let has_read = |ends: &Vec<u64>| {
            let mut partitions = ends.iter().zip(&self.positions);
            partitions.all(|(end, position)| position >= end)
        };
        let ready = |open: &Open| !open.has_proposed && open.ends.as_ref().is_some_and(has_read);
        let overdue: Vec<_> =
            self.open.iter().filter(|(_, open)| ready(open)).map(|(visit, _)| *visit).collect();
        let closings: Vec<_> =
            overdue.into_iter().filter_map(|visit| self.closing(visit)).collect();
        closings.into_iter().map(|closing| self.propose(closing)).collect()
    }

    fn propose(&mut self, closing: Closing) -> Effect {
        if let Some(open) = self.open.get_mut(&closing.visit) {
            open.has_proposed = true;
        }
        Effect::Propose(closing)
    }

    /// The closing record by what was read so far.
    fn closing(&self, id: i64) -> Option<Closing> {
        let visit = self.ledger.visit(id)?;
        let audit = self.audit(id)?;
        let with = |findings: &[Finding]| -> Vec<i32> {
            let found = audit.detectors.iter().filter(|one| findings.contains(&one.finding));
            found.map(|one| one.detector).collect()
        };
        let all: BTreeSet<_> = audit.detectors.iter().map(|one| one.detector).collect();
        let tally = self.tallies.get(&id);
        let repeated = |detector: &i32| {
            visit.has_repeated(*detector) || tally.is_some_and(|tally| tally.has_repeats(*detector))
        };
        Some(Closing {
            visit: id,
            closer: self.name.clone(),
            totals: audit.found,
            ends: self
                .positions
                .iter()
                .map(|next| i64::try_from(*next).unwrap_or(i64::MAX))
                .collect(),
            missing: with(&[Finding::NoManifest]),
            short: with(&[Finding::Short, Finding::Excess, Finding::Differs]),
            repeated: all.into_iter().filter(repeated).collect(),
        })
    }

    /// Forgets what is too much: decided visits first, then those of which no record came.
    fn forget(&mut self) {
        while self.tallies.len() > self.max_tallies {
            let is_decided = |visit: &i64| {
                self.ledger.visit(*visit).is_some_and(|visit| visit.closing().is_some())
            };
            let is_unknown = |visit: &i64| self.ledger.visit(*visit).is_none();
            let mut visits = self.tallies.keys().copied();
            let decided = visits.clone().find(is_decided);
            let oldest = decided.or(visits.clone().find(is_unknown)).or(visits.next());
            if let Some(visit) = oldest {
                self.tallies.remove(&visit);
                self.forgotten.insert(visit);
                // What is not counted is not closed by this reader.
                self.open.remove(&visit);
            }
        }
        let ledger = &self.ledger;
        self.open.retain(|visit, _| ledger.visit(*visit).is_some());
        if self.forgotten.len() > 2 * MAX_VISITS {
            self.forgotten.retain(|visit| ledger.visit(*visit).is_some());
        }
    }
}
