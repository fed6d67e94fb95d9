//! The decision on ranked alerts: a function of the control log.

use std::collections::{BTreeMap, BTreeSet};

use super::{Candidate, Partial, Published, Recent, Top};

/// Alerts to publish to a user, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// The visit.
    pub visit: i64,
    /// The user.
    pub user: String,
    /// The chosen alerts that the target lacks, best first.
    pub chosen: Vec<Candidate>,
}

#[derive(Debug, Default)]
struct Pending {
    partitions: BTreeSet<u32>,
    users: BTreeMap<String, Top>,
}

/// Merges the partitions' partials. After a restart it takes the target's recent contents by
/// [`Ranking::published`] first, then the control log again.
#[derive(Debug)]
pub struct Ranking {
    partitions: u32,
    pending: BTreeMap<i64, Pending>,
    /// Whether a visit is decided.
    decided: Recent<bool>,
    published: Published,
}

impl Ranking {
    /// For a topic with so many partitions.
    #[must_use]
    pub fn new(partitions: u32) -> Self {
        Self {
            partitions,
            pending: BTreeMap::new(),
            decided: Recent::default(),
            published: Published::default(),
        }
    }

    /// The target has an alert of a visit for a user.
    pub fn published(&mut self, visit: i64, user: &str, alert: i64) {
        self.published.note(visit, user, alert);
    }

    /// The next partial of the control log. The last partition's decides the visit.
    pub fn take(&mut self, partial: Partial) -> Vec<Publish> {
        let Partial { visit, partition, users } = partial;
        if partition >= self.partitions || self.decided.entry(visit).is_none_or(|is| *is) {
            return Vec::new();
        }
        let pending = self.pending.entry(visit).or_default();
        if !pending.partitions.insert(partition) {
            return Vec::new();
        }
        for (user, top) in users {
            pending.users.entry(user).or_default().merge(top);
        }
        if pending.partitions.len() < self.partitions as usize {
            return Vec::new();
        }
        let users = self.pending.remove(&visit).unwrap_or_default().users;
        if let Some(is_decided) = self.decided.entry(visit) {
            *is_decided = true;
        }
        users.into_iter().filter_map(|(user, top)| self.missing(visit, user, top)).collect()
    }

    /// The visits without a decision yet, with the partitions whose partial has come.
    pub fn undecided(&self) -> impl Iterator<Item = (i64, &BTreeSet<u32>)> {
        self.pending.iter().map(|(visit, pending)| (*visit, &pending.partitions))
    }

    fn missing(&self, visit: i64, user: String, top: Top) -> Option<Publish> {
        let chosen = top.into_candidates().into_iter();
        let chosen = chosen.filter(|c| !self.published.has(visit, &user, c.alert));
        let chosen: Vec<Candidate> = chosen.collect();
        (!chosen.is_empty()).then_some(Publish { visit, user, chosen })
    }
}
