//! At most 20 alerts a user and visit, over all of the user's filters, as state machines.
//!
//! Constraints: alerts lie in several partitions; filter processes are killed and partitions move;
//! the bus has no transactions. So each decision is a function of a log, and what was published is
//! read back from the target.
//!
//! *Ranked* (`ORDER BY`): a [`Worker`] in each process keeps, by partition and visit, the alerts
//! that may be among the best. The visit's end is a record that names a position in every
//! partition; once the worker has read up to there, it writes one [`Partial`] to the control log.
//! The first partial of a partition in that log counts. A [`Ranking`], in the process that holds
//! the lease, merges them and publishes what the target lacks.
//!
//! *First come*: processes write [`Claim`]s to one log; [`Claims`] grants the first ones of each
//! user and visit, and publishes what the target lacks.
//!
//! A process saves its position in a log only after the effects up to there are stored.

mod claims;
mod ranking;
mod top;
mod worker;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::filter::Filter;
use crate::rank::Rank;

pub use claims::{Claim, ClaimEffect, Claims};
pub use ranking::{Publish, Ranking};
pub use top::Top;
pub use worker::{Match, Partial, Worker, WorkerEffect};

/// Alerts a user gets of a visit, at most (DMTN-028).
pub const CAP: usize = 20;

/// Visits that a state machine remembers: more than a long night's.
pub const MAX_VISITS: usize = 4_096;

/// Visits that are open at once in a partition; a service reads no further before one ends.
pub const MAX_OPEN_VISITS: usize = 64;

/// A match of an alert, by any of a user's filters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The alert's id.
    pub alert: i64,
    /// Its rank by the filters' ORDER BY; a function of the alert.
    pub rank: Rank,
    /// The filters that it matches, with their versions.
    pub filters: BTreeSet<String>,
}

impl Candidate {
    /// Its place in the order of a choice: the smaller one is the better.
    fn place(&self) -> (&Rank, i64) {
        (&self.rank, self.alert)
    }
}

/// How a user's alerts are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The best by this ORDER BY, when the visit has ended.
    Ranked(String),
    /// The first, at once.
    FirstCome,
}

/// A user's filters rank by different orders, or only some of them rank.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "filter {first} has {}, and filter {other} has {}: a user's active filters share one ORDER BY, \
     or have none",
    order(.first_order.as_deref()),
    order(.other_order.as_deref())
)]
pub struct MixedModes {
    /// A filter.
    pub first: String,
    /// Its ORDER BY.
    pub first_order: Option<String>,
    /// Another filter.
    pub other: String,
    /// Its ORDER BY.
    pub other_order: Option<String>,
}

fn order(ranking: Option<&str>) -> String {
    ranking.map_or_else(|| "no ORDER BY".to_owned(), |ranking| format!("ORDER BY {ranking}"))
}

impl Mode {
    /// The mode of a user's active filters, by their names; `None` without filters.
    ///
    /// # Errors
    ///
    /// Filters that do not share one ORDER BY.
    pub fn of<'f>(
        filters: impl IntoIterator<Item = (&'f str, &'f Filter)>,
    ) -> Result<Option<Self>, MixedModes> {
        let mut filters = filters.into_iter();
        let Some((first, filter)) = filters.next() else { return Ok(None) };
        let ranking = filter.ranking();
        if let Some((other, differs)) = filters.find(|(_, other)| other.ranking() != ranking) {
            return Err(MixedModes {
                first: first.to_owned(),
                first_order: ranking.map(str::to_owned),
                other: other.to_owned(),
                other_order: differs.ranking().map(str::to_owned),
            });
        }
        Ok(Some(ranking.map_or(Self::FirstCome, |ranking| Self::Ranked(ranking.to_owned()))))
    }
}

/// Something by visit. Visits' ids grow: the oldest are forgotten, and stay so.
#[derive(Debug)]
struct Recent<T> {
    visits: BTreeMap<i64, T>,
    /// The newest forgotten visit.
    forgotten: Option<i64>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { visits: BTreeMap::new(), forgotten: None }
    }
}

impl<T: Default> Recent<T> {
    fn is_forgotten(&self, visit: i64) -> bool {
        self.forgotten.is_some_and(|forgotten| visit <= forgotten)
    }

    /// A visit's place; `None` for one that is forgotten.
    fn entry(&mut self, visit: i64) -> Option<&mut T> {
        if self.is_forgotten(visit) {
            return None;
        }
        self.visits.entry(visit).or_default();
        if self.visits.len() > MAX_VISITS {
            self.forgotten = self.visits.pop_first().map(|(oldest, _)| oldest);
        }
        self.visits.get_mut(&visit)
    }

    fn get(&self, visit: i64) -> Option<&T> {
        self.visits.get(&visit)
    }
}

/// What was published: users and alerts, by visit.
#[derive(Debug, Default)]
struct Published(Recent<BTreeSet<(String, i64)>>);

impl Published {
    fn note(&mut self, visit: i64, user: &str, alert: i64) {
        if let Some(published) = self.0.entry(visit) {
            published.insert((user.to_owned(), alert));
        }
    }

    fn has(&self, visit: i64, user: &str, alert: i64) -> bool {
        self.0.get(visit).is_some_and(|published| published.contains(&(user.to_owned(), alert)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_visit_stays_forgotten() {
        let mut claims = Claims::default();
        let claim = |visit| Claim { visit, user: "a".into(), alert: 1, filters: BTreeSet::new() };
        for visit in 0..=MAX_VISITS as i64 {
            assert_eq!(claims.take(&claim(visit)), ClaimEffect::Publish);
        }
        assert_eq!(claims.take(&claim(0)), ClaimEffect::Late);
        assert_eq!(claims.take(&claim(1)), ClaimEffect::Known);
    }
}
