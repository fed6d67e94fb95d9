//! The participants whose readers have not acknowledged a writer's samples, and since when.
//!
//! A reader that has acknowledged nothing for [`STANDSTILL`] stands still: its process is stopped,
//! cut off, or reads nothing. Writers of telemetry and logs do not wait for it; others name it.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use crate::announcements;
use crate::entity::{Endpoint, Guid};

/// A reader that acknowledges nothing for so long stands still. Readers that live acknowledge
/// within milliseconds, and within this time on a loaded host.
const STANDSTILL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Laggard {
    since: Instant,
    /// Its session, and its process once it stands still.
    name: String,
    /// It stands still, as of the last check.
    stands: bool,
    /// It was reported.
    reported: bool,
}

/// By participant.
#[derive(Debug, Default)]
pub(crate) struct Laggards(BTreeMap<Guid, Laggard>);

impl Laggards {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Replaces the participants by those of the readers that lag now. `process` describes the
    /// process of one that stands still.
    pub(crate) fn update(
        &mut self,
        lagging: &[Endpoint],
        now: Instant,
        process: impl Fn(&Endpoint) -> Option<String>,
    ) {
        let lag = |of: &Guid| lagging.iter().any(|end| end.participant == *of);
        self.0.retain(|participant, _| lag(participant));
        for end in lagging {
            let of = self.0.entry(end.participant).or_insert_with(|| {
                let name = format!("session {}", announcements::guid(end.participant));
                Laggard { since: now, name, stands: false, reported: false }
            });
            if !of.stands && now.duration_since(of.since) >= STANDSTILL {
                of.stands = true;
                let process = process(end).map(|process| format!(" ({process})"));
                of.name.extend(process);
            }
        }
    }

    /// The participants whose readers stand still.
    pub(crate) fn standing(&self) -> HashSet<Guid> {
        let stand = self.0.iter().filter(|(_, of)| of.stands);
        stand.map(|(participant, _)| *participant).collect()
    }

    /// Whether all of them stand still.
    pub(crate) fn all_stand(&self) -> bool {
        self.0.values().all(|of| of.stands)
    }

    /// Their names; `None` if there are none.
    pub(crate) fn names(&self) -> Option<String> {
        let names: Vec<_> = self.0.values().map(|of| of.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// The names of those that stand still and were not reported yet.
    pub(crate) fn news(&mut self) -> Vec<String> {
        let stand = self.0.values_mut().filter(|of| of.stands);
        let new = |of: &mut Laggard| !std::mem::replace(&mut of.reported, true);
        stand.filter_map(|of| new(of).then(|| of.name.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(participant: u8) -> Endpoint {
        Endpoint {
            guid: Guid([0; 16]),
            participant: Guid([participant; 16]),
            participant_handle: 0,
            topic: String::new(),
            type_name: String::new(),
            user_data: Vec::new(),
            partitions: Vec::new(),
        }
    }

    #[test]
    fn a_reader_stands_still_after_a_second_without_acknowledgement() {
        let (mut laggards, begun) = (Laggards::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        let process = |_: &Endpoint| Some("process 7 on dome".to_owned());
        laggards.update(&[end(1), end(1)], begun, process);
        laggards.update(&[end(1), end(2)], at(999), process);
        assert!(laggards.standing().is_empty() && laggards.news().is_empty());
        laggards.update(&[end(1), end(2)], at(1_000), process);
        assert_eq!(laggards.standing(), HashSet::from([Guid([1; 16])]));
        assert!(!laggards.all_stand(), "the other one may only be slow");
        let name = format!("session {} (process 7 on dome)", "01".repeat(16));
        assert_eq!(laggards.news(), std::slice::from_ref(&name));
        assert!(laggards.news().is_empty(), "each is reported once");
        assert!(laggards.names().is_some_and(|names| names.starts_with(&name)));
        laggards.update(&[end(1)], at(1_500), process);
        assert!(laggards.all_stand());
        laggards.update(&[], at(1_600), process);
        laggards.update(&[end(1)], at(2_500), process);
        assert!(laggards.standing().is_empty(), "it acknowledged meanwhile");
        laggards.clear();
        assert_eq!(laggards.names(), None);
    }
}
