//! The part of ranking in each filter process: from matches in order of position to partials.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::{CAP, Candidate, MAX_OPEN_VISITS, Recent, Top};

/// A match in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The partition.
    pub partition: u32,
    /// The alert's position in it.
    pub position: u64,
    /// The alert's visit.
    pub visit: i64,
    /// The user whose filters it matches.
    pub user: String,
    /// The match.
    pub candidate: Candidate,
}

/// The best alerts of a partition and visit by user: a record of the control log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// The visit.
    pub visit: i64,
    /// The partition.
    pub partition: u32,
    /// The users with matches.
    pub users: BTreeMap<String, Top>,
}

/// What a worker's process has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerEffect {
    /// Append a partial to the control log.
    Append(Partial),
    /// Count a match behind its visit's end; after a restart it may be reported again.
    Late {
        /// The visit.
        visit: i64,
        /// The user.
        user: String,
        /// The alert's id.
        alert: i64,
    },
}

/// Matches of a user in one partition and visit, whose end is not known yet.
#[derive(Debug, Default)]
struct Matches {
    /// Those that can be among the best, whatever the end: fewer than [`CAP`] earlier ones are
    /// better. With the position of each, best first.
    possible: Vec<(u64, Candidate)>,
    /// All matches' first positions, to tell the late ones.
    first: HashMap<i64, u64>,
}

#[derive(Debug, Default)]
struct Visit {
    first: u64,
    end: Option<u64>,
    users: BTreeMap<String, Matches>,
}

#[derive(Debug, Default)]
struct Assigned {
    /// Every position below was read.
    read: u64,
    open: BTreeMap<i64, Visit>,
    /// The ends of visits whose partial was given out; the oldest are forgotten.
    ended: Recent<Option<u64>>,
    /// Whether the control log has a visit's partial.
    stored: Recent<bool>,
}

/// Keeps the best matches of the partitions that its process reads.
#[derive(Debug, Default)]
pub struct Worker {
    partitions: BTreeMap<u32, Assigned>,
}

impl Worker {
    /// Takes on a partition, read from a saved position; the control log is read from its start,
    /// or from before the oldest visit that may be open.
    pub fn assign(&mut self, partition: u32, position: u64) {
        let assigned = Assigned { read: position, ..Assigned::default() };
        self.partitions.insert(partition, assigned);
    }

    /// Gives up a partition.
    pub fn revoke(&mut self, partition: u32) {
        self.partitions.remove(&partition);
    }

    /// The position to save for a partition, once all effects so far are stored; a restart reads
    /// from there. `None` for a partition that is not assigned.
    #[must_use]
    pub fn resume_position(&self, partition: u32) -> Option<u64> {
        let assigned = self.partitions.get(&partition)?;
        let open = assigned.open.iter().filter(|(visit, _)| !assigned.has_stored(**visit));
        let firsts = open.filter(|(_, open)| !open.users.is_empty()).map(|(_, open)| open.first);
        Some(firsts.chain([assigned.read]).min().unwrap_or(assigned.read))
    }

    /// Whether so many visits are open that a partition is read no further until one has ended. A
    /// visit whose end is known is not open: reading on is what ends it.
    #[must_use]
    pub fn is_full(&self, partition: u32) -> bool {
        let assigned = self.partitions.get(&partition);
        assigned.is_some_and(|assigned| assigned.open_visits().count() >= MAX_OPEN_VISITS)
    }

    /// The visits with matches whose end is not known.
    #[must_use]
    pub fn open_visits(&self) -> BTreeSet<i64> {
        self.partitions.values().flat_map(Assigned::open_visits).collect()
    }

    /// Whether a match can be among the best, whatever the visit's end: of another one the names
    /// of its filters are not needed.
    #[must_use]
    pub fn is_possible(
        &self,
        partition: u32,
        visit: i64,
        user: &str,
        candidate: &Candidate,
    ) -> bool {
        let open = self.partitions.get(&partition).and_then(|assigned| assigned.open.get(&visit));
        let matches = open.and_then(|open| open.users.get(user));
        matches.is_none_or(|matches| matches.is_possible(candidate))
    }

    /// A match. Matches of a partition come in order of position.
    pub fn take(&mut self, found: Match) -> Vec<WorkerEffect> {
        let Match { partition, position, visit, user, candidate } = found;
        let Some(assigned) = self.partitions.get_mut(&partition) else { return Vec::new() };
        if assigned.has_ended(visit) {
            let end = assigned.ended.get(visit).copied().flatten().unwrap_or(0);
            let late = WorkerEffect::Late { visit, user, alert: candidate.alert };
            return if position >= end { vec![late] } else { Vec::new() };
        }
        let open = assigned.open.entry(visit).or_default();
        if open.users.is_empty() {
            open.first = position;
        }
        open.users.entry(user).or_default().insert(position, candidate);
        Vec::new()
    }

    /// Every alert of a partition below a position was read, and its matches were given.
    pub fn read_up_to(&mut self, partition: u32, position: u64) -> Vec<WorkerEffect> {
        let Some(assigned) = self.partitions.get_mut(&partition) else { return Vec::new() };
        assigned.read = assigned.read.max(position);
        Self::end_visits(partition, assigned)
    }

    /// A visit's end in a partition, from the control log; the first one counts. Alerts from this
    /// position on are late.
    pub fn end(&mut self, visit: i64, partition: u32, position: u64) -> Vec<WorkerEffect> {
        let Some(assigned) = self.partitions.get_mut(&partition) else { return Vec::new() };
        if !assigned.has_ended(visit) {
            assigned.open.entry(visit).or_default().end.get_or_insert(position);
        }
        Self::end_visits(partition, assigned)
    }

    /// The control log has a partial of a partition: it needs no other.
    pub fn stored(&mut self, visit: i64, partition: u32) {
        let assigned = self.partitions.get_mut(&partition);
        if let Some(is_stored) = assigned.and_then(|assigned| assigned.stored.entry(visit)) {
            *is_stored = true;
        }
    }

    fn end_visits(partition: u32, assigned: &mut Assigned) -> Vec<WorkerEffect> {
        let read = assigned.read;
        let is_done = |open: &Visit| open.end.is_some_and(|end| end <= read);
        let done: Vec<i64> =
            assigned.open.iter().filter(|(_, open)| is_done(open)).map(|(v, _)| *v).collect();
        let mut effects = Vec::new();
        for visit in done {
            let Some(Visit { end: Some(end), users, .. }) = assigned.open.remove(&visit) else {
                continue;
            };
            if let Some(ended) = assigned.ended.entry(visit) {
                *ended = Some(end);
            }
            for (user, matches) in &users {
                let late = matches.first.iter().filter(|(_, position)| **position >= end);
                let late: BTreeSet<i64> = late.map(|(alert, _)| *alert).collect();
                effects.extend(late.into_iter().map(|alert| WorkerEffect::Late {
                    visit,
                    user: user.clone(),
                    alert,
                }));
            }
            if !assigned.has_stored(visit) {
                let users = users.into_iter().map(|(user, matches)| (user, matches.top(end)));
                let users = users.filter(|(_, top)| !top.candidates().is_empty()).collect();
                effects.push(WorkerEffect::Append(Partial { visit, partition, users }));
            }
        }
        effects
    }
}

impl Assigned {
    fn open_visits(&self) -> impl Iterator<Item = i64> {
        self.open.iter().filter(|(_, visit)| visit.end.is_none()).map(|(visit, _)| *visit)
    }

    fn has_stored(&self, visit: i64) -> bool {
        self.stored.is_forgotten(visit) || self.stored.get(visit) == Some(&true)
    }

    /// A forgotten visit has ended, too: what comes of it is late.
    fn has_ended(&self, visit: i64) -> bool {
        self.ended.is_forgotten(visit) || self.ended.get(visit).is_some_and(Option::is_some)
    }
}

impl Matches {
    fn insert(&mut self, position: u64, candidate: Candidate) {
        if let Some(first) = self.first.get(&candidate.alert) {
            // A filter's matches of one alert come together; a copy of it later changes nothing.
            let same = self.possible.iter_mut().find(|(_, c)| c.alert == candidate.alert);
            if let Some((_, known)) = same.filter(|_| *first == position) {
                known.filters.extend(candidate.filters);
            }
            return;
        }
        self.first.insert(candidate.alert, position);
        if !self.is_possible(&candidate) {
            return;
        }
        let at = self.possible.partition_point(|(_, known)| known.place() < candidate.place());
        self.possible.insert(at, (position, candidate));
    }

    fn is_possible(&self, candidate: &Candidate) -> bool {
        let last = self.possible.get(CAP - 1);
        last.is_none_or(|(_, known)| known.place() >= candidate.place())
    }

    fn top(self, end: u64) -> Top {
        let mut top = Top::default();
        let in_time = self.possible.into_iter().filter(|(position, _)| *position < end);
        in_time.for_each(|(_, candidate)| top.insert(candidate));
        top
    }
}
