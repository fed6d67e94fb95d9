//! First come, first served: the grants are a function of the log of claims.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{CAP, Published, Recent};

/// A claim of an alert for a user: a record of the log of claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The visit.
    pub visit: i64,
    /// The user.
    pub user: String,
    /// The alert's id.
    pub alert: i64,
    /// The filters that it matches, with their versions.
    pub filters: BTreeSet<String>,
}

/// What the coordinator has to do with a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimEffect {
    /// Publish the alert.
    Publish,
    /// Nothing: it was granted before, and the target has it or gets it.
    Known,
    /// Count it: the user has as many alerts of the visit as there may be.
    Capped,
    /// Count it: the visit has ended.
    Late,
}

#[derive(Debug, Default)]
struct Visit {
    granted: BTreeMap<String, BTreeSet<i64>>,
    has_ended: bool,
}

/// Grants claims. After a restart it takes the target's recent contents by [`Claims::published`]
/// first, then the log again.
#[derive(Debug, Default)]
pub struct Claims {
    visits: Recent<Visit>,
    published: Published,
}

impl Claims {
    /// The target has an alert of a visit for a user.
    pub fn published(&mut self, visit: i64, user: &str, alert: i64) {
        self.published.note(visit, user, alert);
    }

    /// The next claim of the log.
    pub fn take(&mut self, claim: &Claim) -> ClaimEffect {
        let Some(visit) = self.visits.entry(claim.visit) else { return ClaimEffect::Late };
        let granted = visit.granted.entry(claim.user.clone()).or_default();
        if granted.contains(&claim.alert) {
            return ClaimEffect::Known;
        }
        if visit.has_ended {
            return ClaimEffect::Late;
        }
        if granted.len() >= CAP {
            return ClaimEffect::Capped;
        }
        granted.insert(claim.alert);
        if self.published.has(claim.visit, &claim.user, claim.alert) {
            return ClaimEffect::Known;
        }
        ClaimEffect::Publish
    }

    /// A visit's end, from the log: claims after it are late.
    pub fn end(&mut self, visit: i64) {
        if let Some(visit) = self.visits.entry(visit) {
            visit.has_ended = true;
        }
    }
}
