//! The best alerts of a user and visit: merging is associative, commutative and idempotent.

use serde::{Deserialize, Serialize};

use super::{CAP, Candidate};

/// The best [`CAP`] of the candidates given so far, best first; ties by alert id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Top {
    best: Vec<Candidate>,
}

impl Top {
    /// Adds a candidate; one of the same alert is the same one, of more filters.
    pub fn insert(&mut self, candidate: Candidate) {
        if let Some(known) = self.best.iter_mut().find(|c| c.alert == candidate.alert) {
            known.filters.extend(candidate.filters);
            return;
        }
        let at = self.best.partition_point(|known| known.place() < candidate.place());
        if at < CAP {
            self.best.insert(at, candidate);
            self.best.truncate(CAP);
        }
    }

    /// Adds another one's candidates.
    pub fn merge(&mut self, other: Self) {
        other.best.into_iter().for_each(|candidate| self.insert(candidate));
    }

    /// The candidates, best first.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.best
    }

    pub(super) fn into_candidates(self) -> Vec<Candidate> {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::{Key, Rank};
    use proptest::prelude::*;

    /// A rank is a function of the alert, with ties.
    fn candidate(alert: i64, filter: u8) -> Candidate {
        let key = match alert % 7 {
            0 => Key::Null,
            1 => Key::Nan,
            rest => Key::Number(rest as u64),
        };
        Candidate { alert, rank: Rank(vec![key]), filters: [filter.to_string()].into() }
    }

    fn top(alerts: &[(i64, u8)]) -> Top {
        let mut top = Top::default();
        alerts.iter().for_each(|(alert, filter)| top.insert(candidate(*alert, *filter)));
        top
    }

    proptest! {
        /// Any split into parts, in any order, with parts given twice, has one result.
        #[test]
        fn merging_does_not_depend_on_parts(
            alerts in prop::collection::vec((0_i64..100, 0_u8..3), 0..120),
            cuts in prop::collection::vec(0_usize..120, 0..4),
            is_reversed in any::<bool>(),
        ) {
            let whole = top(&alerts);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(alerts.len())).collect();
            cuts.extend([0, alerts.len()]);
            cuts.sort_unstable();
            let mut parts: Vec<Top> = cuts.windows(2).map(|w| top(&alerts[w[0]..w[1]])).collect();
            parts.extend(parts.first().cloned());
            if is_reversed {
                parts.reverse();
            }
            let mut merged = Top::default();
            parts.into_iter().for_each(|part| merged.merge(part));
            prop_assert_eq!(&merged, &whole);
            let mut distinct: Vec<i64> = alerts.iter().map(|(alert, _)| *alert).collect();
            distinct.sort_by_key(|alert| (candidate(*alert, 0).rank, *alert));
            distinct.dedup();
            distinct.truncate(CAP);
            let found: Vec<i64> = whole.candidates().iter().map(|c| c.alert).collect();
            prop_assert_eq!(found, distinct);
        }
    }
}
