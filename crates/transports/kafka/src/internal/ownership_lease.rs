//! Until when the writer of an exclusive topic certainly owns it.
//!
//! Constraints. Others take over an exclusive topic when its owner's lease has expired, or when its
//! process has sent no heartbeat for [`SESSION_TIMEOUT`]. A process does not notice that it was
//! stopped, and nothing that it has ready to send proves the contrary: only a check of the writers'
//! records does. A publish must not wait for brokers, so it compares two clocks.
//!
//! Operation. An owner's heartbeat excludes others for a time that begins when it was sent. A check
//! that begins after its acknowledgement and finds no takeover proves that none is possible before
//! half of [`SESSION_TIMEOUT`], or three quarters of the lease, have passed. The rest is for
//! differences between clocks. After that time, publishes are deferred as if there were no room,
//! and delivery reports wait for the next check. They are then reported as delivered, or as fenced.
//! For samples that were delivered before a check began, the check decides who owned them, however
//! long it took.
//!
//! Another process may have found the owner silent and not have sent its claim yet. A check does
//! not see that, and the process's own heartbeat does not end it. Only a record of the writer does:
//! it precedes that claim, or follows it, and then the check finds the claim. After a silence,
//! ownership is therefore uncertain until the writer has sent a record of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use helio_bus::transport::locked;
use helio_bus::{PublishError, TransportError};

use crate::client::clock::DualClock;
use crate::client::signal::Notify;
use crate::internal::writer_table::SESSION_TIMEOUT;

/// How long an owner's heartbeat certainly excludes others: half of the time that they wait.
const OWNERSHIP_VALIDITY: Duration = Duration::from_secs(SESSION_TIMEOUT.as_secs() / 2);

/// When an owner's newest acknowledged heartbeats were sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckedHeartbeats {
    /// The heartbeat of its process.
    process: DualClock,
    /// The heartbeat of the writer, which renews a lease; `None` after a silence.
    writer: Option<DualClock>,
    /// How many delivery reports have been deferred so far.
    reports: usize,
}

/// The result of a check for a delivered sample: the writer owned the topic, or why that is
/// unknown.
pub(crate) type OwnershipCheck = Result<(), PublishError>;

/// A delivery report that waits for a check's result.
type DeferredReport = Box<dyn FnOnce(OwnershipCheck) + Send>;

/// An owner's knowledge of its ownership.
pub(crate) struct OwnershipLease {
    lease: Option<Duration>,
    state: Mutex<LeaseState>,
}

struct LeaseState {
    acked: AckedHeartbeats,
    /// The acknowledged heartbeats when the newest successful check began; `None` before the first.
    sure: Option<AckedHeartbeats>,
    /// The writer was closed, and has recorded that: others may take over at any time.
    left: bool,
    /// Another writer has taken over, or checks have ended.
    over: Option<PublishError>,
    /// Writers to notify when publishes need not be deferred; each once.
    waiting: Vec<Notify>,
    /// Deferred reports of samples in flight when ownership became uncertain.
    reports: Vec<DeferredReport>,
}

impl OwnershipLease {
    pub(crate) fn new(lease: Option<Duration>) -> Self {
        let acked = AckedHeartbeats { process: DualClock::now(), writer: None, reports: 0 };
        let (waiting, reports) = (Vec::new(), Vec::new());
        let state = LeaseState { acked, sure: None, left: false, over: None, waiting, reports };
        Self { lease, state: Mutex::new(state) }
    }

    fn is_sure(&self, state: &LeaseState) -> bool {
        let in_time =
            |sent: DualClock| self.lease.is_none_or(|lease| sent.elapsed() < lease / 4 * 3);
        let holds = |acked: AckedHeartbeats| {
            acked.process.elapsed() < OWNERSHIP_VALIDITY && acked.writer.is_some_and(in_time)
        };
        !state.left && state.sure.is_some_and(holds)
    }

    /// A heartbeat of the process, sent then, was acknowledged. Acknowledgements may arrive out of
    /// order; the newest counts.
    pub(crate) fn process_acked(&self, since: DualClock) {
        let acked = &mut locked(&self.state).acked;
        if since.is_after(&acked.process) {
            if since.since(&acked.process) >= OWNERSHIP_VALIDITY {
                acked.writer = None;
            }
            acked.process = since;
        }
    }

    /// A heartbeat of the writer, sent then, was acknowledged. A late one from before a silence
    /// does not count.
    pub(crate) fn writer_acked(&self, since: DualClock) {
        let acked = &mut locked(&self.state).acked;
        if since.is_after(&acked.process) {
            acked.process = since;
        } else if acked.process.since(&since) >= OWNERSHIP_VALIDITY {
            return;
        }
        if acked.writer.is_none_or(|newest| since.is_after(&newest)) {
            acked.writer = Some(since);
        }
    }

    /// The acknowledged heartbeats; to be read before a check begins.
    pub(crate) fn acked(&self) -> AckedHeartbeats {
        locked(&self.state).acked
    }

    /// Whether the next heartbeat must be the writer's own. Its time is taken before this call.
    ///
    /// It must be where publishes wait for it, and after a silence. But a writer with a lease that
    /// neither publishes nor asserts gets none.
    pub(crate) fn wants_heartbeat(&self) -> bool {
        let state = locked(&self.state);
        let was_silent =
            state.acked.writer.is_none() || state.acked.process.elapsed() >= OWNERSHIP_VALIDITY;
        let is_owner = !state.left && state.over.is_none();
        is_owner && (!state.waiting.is_empty() || (self.lease.is_none() && was_silent))
    }

    /// A check that began with these acknowledged heartbeats has ended. Calls the waiting writers
    /// and reports that its result covers; returns whether others still wait.
    pub(crate) fn checked(
        &self,
        acked: AckedHeartbeats,
        found: &Result<(), TransportError>,
    ) -> bool {
        let mut state = locked(&self.state);
        match found {
            Ok(()) => state.sure = Some(acked),
            Err(error) => state.over = Some(error.clone().into()),
        }
        let is_known = state.over.is_some() || self.is_sure(&state);
        let told = state.acked.reports - state.reports.len();
        let known = if is_known { state.acked.reports } else { acked.reports };
        let reports: Vec<_> = state.reports.drain(..known.saturating_sub(told)).collect();
        let waiting = if is_known { std::mem::take(&mut state.waiting) } else { Vec::new() };
        let waits = !state.waiting.is_empty() || !state.reports.is_empty();
        let found = state.over.clone().map_or(Ok(()), Err);
        drop(state);
        reports.into_iter().for_each(|told| told(found.clone()));
        waiting.iter().for_each(|notify| notify());
        waits
    }

    /// Whether publishes are deferred; `notify` is called when they need not be any more.
    pub(crate) fn defers_publishes(&self, notify: Option<&Notify>) -> Result<bool, PublishError> {
        let mut state = locked(&self.state);
        if let Some(over) = &state.over {
            return Err(over.clone());
        }
        if self.is_sure(&state) {
            return Ok(false);
        }
        let waits = |notify: &Notify| state.waiting.iter().any(|other| Arc::ptr_eq(other, notify));
        let new = notify.filter(|notify| !waits(notify)).map(Arc::clone);
        state.waiting.extend(new);
        Ok(true)
    }

    /// Whether delivery reports wait for a check.
    pub(crate) fn has_reports(&self) -> bool {
        !locked(&self.state).reports.is_empty()
    }

    /// Calls a delivery report at once if ownership is certain; otherwise defers it to the next
    /// check, and holds `kept` until then. Returns whether it was deferred.
    pub(crate) fn report<K: Send + Sync + 'static>(
        &self,
        told: impl FnOnce(OwnershipCheck) + Send + 'static,
        kept: &Arc<K>,
    ) -> bool {
        let mut state = locked(&self.state);
        let found = match state.over.clone() {
            Some(over) => Err(over),
            None if self.is_sure(&state) => Ok(()),
            None => {
                let kept = Arc::clone(kept);
                state.acked.reports += 1;
                state.reports.push(Box::new(move |found| {
                    told(found);
                    drop(kept);
                }));
                return true;
            }
        };
        drop(state);
        told(found);
        false
    }

    /// The writer is about to be closed: only checks decide from now on which samples were its own.
    pub(crate) fn leave(&self) {
        locked(&self.state).left = true;
    }

    /// Checks have ended: deferred reports, and later ones, return *unknown*.
    pub(crate) fn end(&self) {
        let mut state = locked(&self.state);
        let cause = "the bus was closed before the topic's ownership was checked".to_owned();
        let unknown = || PublishError::Unknown { cause };
        let over = state.over.get_or_insert_with(unknown).clone();
        let reports = std::mem::take(&mut state.reports);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        reports.into_iter().for_each(|told| told(Err(over.clone())));
        waiting.iter().for_each(|notify| notify());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn ago(seconds: u64) -> DualClock {
        let ago = Duration::from_secs(seconds);
        let now = DualClock::now();
        DualClock { steady: now.steady.checked_sub(ago).unwrap(), utc: now.utc - ago }
    }

    /// A lease whose writer's heartbeat was just acknowledged.
    fn hold(lease: Option<Duration>) -> OwnershipLease {
        let hold = OwnershipLease::new(lease);
        hold.writer_acked(DualClock::now());
        hold
    }

    /// Sets the time of the newest acknowledged heartbeats.
    fn said(hold: &OwnershipLease, when: DualClock) {
        let acked = &mut locked(&hold.state).acked;
        (acked.process, acked.writer) = (when, Some(when));
    }

    fn held(hold: &OwnershipLease) -> bool {
        hold.defers_publishes(None).unwrap()
    }

    fn looked(hold: &OwnershipLease) -> bool {
        hold.checked(hold.acked(), &Ok(()))
    }

    #[test]
    fn it_is_sure_for_half_the_silence_after_a_word_that_came_before_a_look() {
        let hold = hold(None);
        assert!(held(&hold), "nobody has looked");
        looked(&hold);
        assert!(!held(&hold));
        said(&hold, ago(6));
        assert!(!held(&hold), "only a look says how things are");
        looked(&hold);
        assert!(held(&hold));
        let before = hold.acked();
        hold.writer_acked(DualClock::now());
        hold.checked(before, &Ok(()));
        assert!(held(&hold), "the word came while it was looked");
        looked(&hold);
        assert!(!held(&hold));
        hold.process_acked(DualClock::now());
        looked(&hold);
        assert!(!held(&hold), "it was not silent");
    }

    #[test]
    fn who_was_silent_wants_a_word_of_its_own() {
        let notify: Notify = Arc::new(|| ());
        for lease in [None, Some(Duration::from_secs(60))] {
            let hold = hold(lease);
            assert!(!hold.wants_heartbeat());
            said(&hold, ago(6));
            assert_eq!(hold.wants_heartbeat(), lease.is_none());
            hold.process_acked(DualClock::now());
            looked(&hold);
            assert!(
                hold.defers_publishes(Some(&notify)).unwrap(),
                "others may be about to claim it"
            );
            assert!(hold.wants_heartbeat());
            hold.writer_acked(DualClock::now());
            looked(&hold);
            assert!(!held(&hold) && !hold.wants_heartbeat());
            hold.leave();
            assert!(hold.defers_publishes(Some(&notify)).unwrap());
            assert!(!hold.wants_heartbeat(), "it has said that it has gone");
        }
    }

    #[test]
    fn a_lease_wants_words_of_its_own() {
        let hold = hold(Some(Duration::from_secs(4)));
        said(&hold, ago(3));
        hold.process_acked(DualClock::now());
        looked(&hold);
        assert!(held(&hold));
        hold.writer_acked(ago(1));
        looked(&hold);
        assert!(!held(&hold));
    }

    #[test]
    fn a_report_that_comes_late_takes_nothing_back() {
        for lease in [None, Some(Duration::from_secs(4))] {
            let hold = hold(lease);
            hold.process_acked(ago(6));
            hold.writer_acked(ago(4));
            hold.writer_acked(ago(6));
            looked(&hold);
            assert!(!held(&hold), "{lease:?}");
            hold.process_acked(DualClock::now());
            assert!(!hold.wants_heartbeat(), "it was not silent: {lease:?}");
        }
    }

    #[test]
    fn a_word_of_before_a_silence_does_not_end_it_when_it_comes_late() {
        let hold = hold(None);
        said(&hold, ago(20));
        hold.process_acked(DualClock::now());
        hold.writer_acked(ago(6));
        looked(&hold);
        assert!(held(&hold) && hold.wants_heartbeat());
        hold.writer_acked(ago(1));
        looked(&hold);
        assert!(!held(&hold) && !hold.wants_heartbeat(), "this one lies behind the silence");
    }

    #[test]
    fn a_machine_that_slept_is_noticed_by_either_clock() {
        let hold = hold(None);
        for slept in
            [DualClock { steady: ago(6).steady, ..ago(0) }, DualClock { utc: ago(6).utc, ..ago(0) }]
        {
            said(&hold, slept);
            looked(&hold);
            assert!(held(&hold), "{slept:?}");
        }
    }

    /// How many reports confirmed the ownership, and how many did not.
    #[derive(Clone, Default)]
    struct ReportCounts(Arc<[AtomicUsize; 2]>);

    impl ReportCounts {
        /// Whether a report was deferred.
        fn report(&self, hold: &OwnershipLease) -> bool {
            let told = self.clone();
            let counts = move |found: OwnershipCheck| {
                told.0[usize::from(found.is_err())].fetch_add(1, Ordering::SeqCst);
            };
            hold.report(counts, &self.0)
        }

        fn counts(&self) -> [usize; 2] {
            self.0.each_ref().map(|count| count.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn who_waits_is_told_once_what_the_look_has_found() {
        let hold = hold(None);
        let (notified, told) = (Arc::new(AtomicUsize::new(0)), ReportCounts::default());
        let count = Arc::clone(&notified);
        let notify: Notify = Arc::new(move || _ = count.fetch_add(1, Ordering::SeqCst));
        let notified = || notified.load(Ordering::SeqCst);
        assert!((0..2).all(|_| hold.defers_publishes(Some(&notify)).unwrap()));
        assert!(told.report(&hold) && hold.has_reports());
        assert!(!looked(&hold), "nobody waits any more");
        assert_eq!((notified(), told.counts(), hold.has_reports()), (1, [1, 0], false));
        assert!(!told.report(&hold));
        said(&hold, ago(6));
        looked(&hold);
        assert!(told.report(&hold));
        hold.checked(hold.acked(), &Err(TransportError::Closed));
        assert_eq!((notified(), told.counts()), (1, [2, 1]));
        assert!(!told.report(&hold));
        assert!(hold.defers_publishes(None).is_err());
        assert_eq!(told.counts(), [2, 2]);
    }

    #[test]
    fn what_had_arrived_before_a_look_is_known_however_long_that_took() {
        let (hold, told) = (hold(None), ReportCounts::default());
        said(&hold, ago(6));
        for n in 1..3 {
            assert!(told.report(&hold));
            let said = hold.acked();
            assert!(told.report(&hold));
            assert!(hold.checked(said, &Ok(())), "the other one waits");
            assert_eq!(told.counts(), [n * 2 - 1, 0]);
            assert!(!looked(&hold));
            assert_eq!(told.counts(), [n * 2, 0]);
        }
    }

    #[test]
    fn of_who_has_gone_only_looks_say_what_was_its_own() {
        let (hold, told) = (hold(None), ReportCounts::default());
        looked(&hold);
        hold.leave();
        assert!(told.report(&hold));
        let said = hold.acked();
        assert!(told.report(&hold));
        hold.checked(said, &Ok(()));
        assert_eq!(told.counts(), [1, 0]);
        hold.checked(said, &Err(TransportError::Closed));
        assert_eq!(told.counts(), [1, 1]);
    }

    #[test]
    fn reports_keep_what_the_look_needs_and_nobody_waits_beyond_the_end() {
        let (hold, told) = (hold(None), ReportCounts::default());
        assert!(told.report(&hold) && told.report(&hold));
        assert_eq!(Arc::strong_count(&told.0), 1 + 2 * 2, "one that counts, one that is kept");
        hold.end();
        assert_eq!((told.counts(), Arc::strong_count(&told.0)), ([0, 2], 1));
        assert!(!told.report(&hold));
        looked(&hold);
        assert!(!told.report(&hold));
        assert_eq!(told.counts(), [0, 4]);
        assert!(matches!(hold.defers_publishes(None), Err(PublishError::Unknown { .. })));
    }
}
