//! Incompatible policies of matched endpoints, each reported once.

use std::collections::VecDeque;

use helio_bus::Incompatible;

use crate::entity::Policy;

/// The incompatible policies found so far.
#[derive(Debug, Default)]
pub(crate) struct IncompatiblePolicies {
    known: Vec<Policy>,
    untold: VecDeque<Policy>,
}

impl IncompatiblePolicies {
    pub(crate) fn add(&mut self, policy: Policy) {
        if !self.known.contains(&policy) {
            self.known.push(policy);
            self.untold.push_back(policy);
        }
    }

    /// The next policy that was not reported yet.
    pub(crate) fn next(&mut self) -> Option<Incompatible> {
        self.untold.pop_front().map(told)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Incompatible> {
        self.known.iter().copied().map(told).collect()
    }
}

fn told(policy: Policy) -> Incompatible {
    Incompatible { policy: policy.name().to_owned() }
}
