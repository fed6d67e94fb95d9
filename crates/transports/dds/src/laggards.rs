//! The participants whose readers have not acknowledged a writer's samples, and since when.
//!
//! A reader that has acknowledged nothing for [`STANDSTILL`] stands still: its process is stopped,
//! cut off, or reads nothing. Writers of telemetry and logs do not wait for it; others name it.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use crate::announcements;
use crate::entity::{Endpoint, Guid, Process};
use crate::process_identity::has_ended;

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
    /// Its process has ended, as of then.
    ended: bool,
    /// It was reported.
    reported: bool,
}

/// A participant whose readers stand still.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StandingSession {
    /// Its session and process.
    pub(crate) name: String,
    /// Its process has ended, so it will not continue.
    pub(crate) ended: bool,
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
        process: impl Fn(&Endpoint) -> Option<Process>,
    ) {
        let lag = |of: &Guid| lagging.iter().any(|end| end.participant == *of);
        self.0.retain(|participant, _| lag(participant));
        for end in lagging {
            let of = self.0.entry(end.participant).or_insert_with(|| {
                let name = format!("session {}", announcements::guid(end.participant));
                Laggard { since: now, name, stands: false, ended: false, reported: false }
            });
            if !of.stands && now.duration_since(of.since) >= STANDSTILL {
                of.stands = true;
                let process = process(end);
                of.ended = process.as_ref().is_some_and(|of| has_ended(&of.user_data));
                let name = process.map(|of| of.name).filter(|name| !name.is_empty());
                of.name.extend(name.map(|name| format!(" ({name})")));
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

    /// Those that stand still and were not reported yet.
    pub(crate) fn news(&mut self) -> Vec<StandingSession> {
        let stand = self.0.values_mut().filter(|of| of.stands && !of.reported);
        let report = |of: &mut Laggard| {
            of.reported = true;
            StandingSession { name: of.name.clone(), ended: of.ended }
        };
        stand.map(report).collect()
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
        let (name, user_data) = ("process 7 on dome".to_owned(), Vec::new());
        let process =
            |_: &Endpoint| Some(Process { name: name.clone(), user_data: user_data.clone() });
        laggards.update(&[end(1), end(1)], begun, process);
        laggards.update(&[end(1), end(2)], at(999), process);
        assert!(laggards.standing().is_empty() && laggards.news().is_empty());
        laggards.update(&[end(1), end(2)], at(1_000), process);
        assert_eq!(laggards.standing(), HashSet::from([Guid([1; 16])]));
        assert!(!laggards.all_stand(), "the other one may only be slow");
        let name = format!("session {} ({name})", "01".repeat(16));
        let reported = StandingSession { name: name.clone(), ended: false };
        assert_eq!(laggards.news(), [reported]);
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

    #[test]
    fn a_reader_whose_process_has_ended_is_reported_as_such() {
        let own = crate::process_identity::own().expect("/proc is mounted");
        // As if the process's number had been this one's before.
        let (mut laggards, begun) = (Laggards::default(), Instant::now());
        let process = |end: &Endpoint| {
            let user_data =
                if end.participant == Guid([1; 16]) { format!("{own}9") } else { own.clone() };
            Some(Process { name: String::new(), user_data: user_data.into_bytes() })
        };
        for at in [begun, begun + STANDSTILL] {
            laggards.update(&[end(1), end(2)], at, process);
        }
        let ended: Vec<_> = laggards.news().into_iter().map(|of| of.ended).collect();
        assert_eq!(ended, [true, false]);
    }
}
