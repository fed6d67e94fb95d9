//! Durability services that left: one that returns may have acknowledged samples alone meanwhile.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most departed services that are remembered, the latest ones.
const MAX_DEPARTED_PEERS: usize = 64;

/// Departed services, and when they left.
#[derive(Default)]
pub(super) struct DepartedPeers(HashMap<String, Instant>);

impl DepartedPeers {
    pub(super) fn went(&mut self, services: impl Iterator<Item = String>, now: Instant) {
        self.0.extend(services.map(|service| (service, now)));
        while self.0.len() > MAX_DEPARTED_PEERS {
            let first = self.0.iter().min_by_key(|(_, went)| **went);
            let Some(first) = first.map(|(service, _)| service.clone()) else { return };
            self.0.remove(&first);
        }
    }

    /// Whether a service had left; it is removed.
    pub(super) fn is_back(&mut self, service: &str) -> bool {
        self.0.remove(service).is_some()
    }

    /// Whether a service left so recently that it may return soon.
    pub(super) fn may_be_back(&self, within: Duration, now: Instant) -> bool {
        self.0.values().any(|went| now.saturating_duration_since(*went) < within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_went_long_ago_is_not_waited_for_but_noticed_and_the_last_ones_are_remembered() {
        let (mut lost, begun, within) =
            (DepartedPeers::default(), Instant::now(), Duration::from_secs(23));
        lost.went(["other".to_owned()].into_iter(), begun);
        assert!(lost.may_be_back(within, begun) && !lost.may_be_back(within, begun + within));
        assert!(lost.is_back("other") && !lost.is_back("other"));
        for number in 0..=MAX_DEPARTED_PEERS as u64 {
            lost.went([number.to_string()].into_iter(), begun + Duration::from_secs(number));
        }
        assert!(!lost.is_back("0") && lost.is_back("1") && lost.is_back("64"));
    }
}
