//! Until when the writer of an exclusive topic is its owner for sure.
//!
//! Constraints. Others take an exclusive topic over when its owner's lease is over, or when its
//! process was silent for [`SILENCE`]. A process does not notice that it was stopped, so nothing of
//! what it has ready to send says whether that has happened: only a look at the claims does. A
//! publish must not wait for brokers, and looks at two clocks.
//!
//! Operation. What an owner says of itself keeps others out for a time that begins when it was
//! sent. A look that begins after it has arrived, and finds nobody, proves that nobody can have
//! taken over before half of [`SILENCE`], or three quarters of the lease, are over; what is left
//! of both is for clocks that differ. Beyond it publishes are held back as if there were no room,
//! and reports of what has arrived wait, until the next look: they are told as they are, or as
//! fenced. Of what had arrived before a look began the look says for sure whose it was, however
//! long it took.
//!
//! Who found the owner silent may have read so, and not have said its claim yet: a look does not
//! see that, and what the process says of itself does not end it. Only a word of the writer does,
//! which lies before that claim, or behind it, where the look finds it. So after a silence the
//! owner is not sure without a word of its own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use helio_bus::transport::locked;
use helio_bus::{PublishError, TransportError};

use crate::claims::SILENCE;
use crate::producer::Notify;

/// A moment by both clocks: one stands still while a machine sleeps, the other is set at times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    steady: Instant,
    utc: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { steady: Instant::now(), utc: SystemTime::now() }
    }

    fn elapsed(&self) -> Duration {
        Self::now().since(self)
    }

    /// Whether it came later. The clock that nobody sets says that.
    fn is_after(&self, other: &Self) -> bool {
        self.steady > other.steady
    }

    fn since(&self, earlier: &Self) -> Duration {
        let steady = self.steady.saturating_duration_since(earlier.steady);
        steady.max(self.utc.duration_since(earlier.utc).unwrap_or_default())
    }
}

/// How long what an owner says keeps others out for sure: half of what they wait.
const KEEPS: Duration = Duration::from_secs(SILENCE.as_secs() / 2);

/// When the newest words of an owner were sent that have arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    /// That its process lives.
    runs: Moment,
    /// That it publishes or asserts, which is what a lease asks for; none since it was silent.
    writes: Option<Moment>,
    /// How many reports have come to wait so far.
    reports: usize,
}

/// What is found of a sample that has arrived: it was the owner's, or why that is not known.
pub(crate) type Found = Result<(), PublishError>;

/// What waits for a look: it hears what the look has found.
type Report = Box<dyn FnOnce(Found) + Send>;

/// What an owner knows of its ownership.
pub(crate) struct Hold {
    lease: Option<Duration>,
    state: Mutex<State>,
}

struct State {
    said: Said,
    /// What had been said when the newest look began that found nobody; none before the first.
    sure: Option<Said>,
    /// The writer has gone, and said so: others may take over at any time.
    left: bool,
    /// Another has taken over, or nobody looks any more.
    over: Option<PublishError>,
    /// Who holds publishes back: writers, each once.
    waiting: Vec<Notify>,
    /// Reports that wait: of what was under way when it was no longer sure.
    reports: Vec<Report>,
}

impl Hold {
    pub(crate) fn new(lease: Option<Duration>) -> Self {
        let said = Said { runs: Moment::now(), writes: None, reports: 0 };
        let (waiting, reports) = (Vec::new(), Vec::new());
        let state = State { said, sure: None, left: false, over: None, waiting, reports };
        Self { lease, state: Mutex::new(state) }
    }

    fn is_sure(&self, state: &State) -> bool {
        let in_time =
            |writes: Moment| self.lease.is_none_or(|lease| writes.elapsed() < lease / 4 * 3);
        let holds = |said: Said| said.runs.elapsed() < KEEPS && said.writes.is_some_and(in_time);
        !state.left && state.sure.is_some_and(holds)
    }

    /// That its process lives has arrived, and was sent then. Reports may come late: what was said
    /// last counts.
    pub(crate) fn runs(&self, since: Moment) {
        let said = &mut locked(&self.state).said;
        if since.is_after(&said.runs) {
            if since.since(&said.runs) >= KEEPS {
                said.writes = None;
            }
            said.runs = since;
        }
    }

    /// That it writes has arrived, and was sent then; not what comes late and was said before a
    /// silence.
    pub(crate) fn writes(&self, since: Moment) {
        let said = &mut locked(&self.state).said;
        if since.is_after(&said.runs) {
            said.runs = since;
        } else if said.runs.since(&since) >= KEEPS {
            return;
        }
        if said.writes.is_none_or(|newest| since.is_after(&newest)) {
            said.writes = Some(since);
        }
    }

    /// What has arrived by now; to be asked for before a look begins.
    pub(crate) fn said(&self) -> Said {
        locked(&self.state).said
    }

    /// Whether the next that is said of its process has to be that it writes. The moment as of
    /// which that will have been said is taken before this is asked.
    ///
    /// It has where publishes wait for that, and after a silence; but then nothing says it for who
    /// has a lease, and does not publish or assert.
    pub(crate) fn wants_word(&self) -> bool {
        let state = locked(&self.state);
        let was_silent = state.said.writes.is_none() || state.said.runs.elapsed() >= KEEPS;
        let is_owner = !state.left && state.over.is_none();
        is_owner && (!state.waiting.is_empty() || (self.lease.is_none() && was_silent))
    }

    /// A look that began when this had been said has come to its end. Those who wait are told, as
    /// far as it says enough; whether others still wait.
    pub(crate) fn looked(&self, said: Said, found: &Result<(), TransportError>) -> bool {
        let mut state = locked(&self.state);
        match found {
            Ok(()) => state.sure = Some(said),
            Err(error) => state.over = Some(error.clone().into()),
        }
        let is_known = state.over.is_some() || self.is_sure(&state);
        let told = state.said.reports - state.reports.len();
        let known = if is_known { state.said.reports } else { said.reports };
        let reports: Vec<_> = state.reports.drain(..known.saturating_sub(told)).collect();
        let waiting = if is_known { std::mem::take(&mut state.waiting) } else { Vec::new() };
        let waits = !state.waiting.is_empty() || !state.reports.is_empty();
        let found = state.over.clone().map_or(Ok(()), Err);
        drop(state);
        reports.into_iter().for_each(|told| told(found.clone()));
        waiting.iter().for_each(|notify| notify());
        waits
    }

    /// Whether publishes are to be held back; `notify` is called when they need not be any more.
    pub(crate) fn holds_back(&self, notify: Option<&Notify>) -> Result<bool, PublishError> {
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

    /// Whether reports wait for a look.
    pub(crate) fn has_reports(&self) -> bool {
        !locked(&self.state).reports.is_empty()
    }

    /// Tells a report at once where it is sure, and else has it wait for the next look, and keeps
    /// what is needed for that until then; whether it waits.
    pub(crate) fn report<K: Send + Sync + 'static>(
        &self,
        told: impl FnOnce(Found) + Send + 'static,
        kept: &Arc<K>,
    ) -> bool {
        let mut state = locked(&self.state);
        let found = match state.over.clone() {
            Some(over) => Err(over),
            None if self.is_sure(&state) => Ok(()),
            None => {
                let kept = Arc::clone(kept);
                state.said.reports += 1;
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

    /// The writer goes, and is about to say so: only looks say from now on what was its own.
    pub(crate) fn leave(&self) {
        locked(&self.state).left = true;
    }

    /// Nobody looks any more: who waits for it is told that nobody knows, now and later.
    pub(crate) fn end(&self) {
        let mut state = locked(&self.state);
        let cause = "the bus was closed before it was looked who owns the topic".to_owned();
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

    fn ago(seconds: u64) -> Moment {
        let ago = Duration::from_secs(seconds);
        let now = Moment::now();
        Moment { steady: now.steady.checked_sub(ago).unwrap(), utc: now.utc - ago }
    }

    /// Of who has just said that it writes.
    fn hold(lease: Option<Duration>) -> Hold {
        let hold = Hold::new(lease);
        hold.writes(Moment::now());
        hold
    }

    /// That was the newest that it has said.
    fn said(hold: &Hold, when: Moment) {
        let said = &mut locked(&hold.state).said;
        (said.runs, said.writes) = (when, Some(when));
    }

    fn held(hold: &Hold) -> bool {
        hold.holds_back(None).unwrap()
    }

    fn looked(hold: &Hold) -> bool {
        hold.looked(hold.said(), &Ok(()))
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
        let before = hold.said();
        hold.writes(Moment::now());
        hold.looked(before, &Ok(()));
        assert!(held(&hold), "the word came while it was looked");
        looked(&hold);
        assert!(!held(&hold));
        hold.runs(Moment::now());
        looked(&hold);
        assert!(!held(&hold), "it was not silent");
    }

    #[test]
    fn who_was_silent_wants_a_word_of_its_own() {
        let notify: Notify = Arc::new(|| ());
        for lease in [None, Some(Duration::from_secs(60))] {
            let hold = hold(lease);
            assert!(!hold.wants_word());
            said(&hold, ago(6));
            assert_eq!(hold.wants_word(), lease.is_none());
            hold.runs(Moment::now());
            looked(&hold);
            assert!(hold.holds_back(Some(&notify)).unwrap(), "others may be about to claim it");
            assert!(hold.wants_word());
            hold.writes(Moment::now());
            looked(&hold);
            assert!(!held(&hold) && !hold.wants_word());
            hold.leave();
            assert!(hold.holds_back(Some(&notify)).unwrap());
            assert!(!hold.wants_word(), "it has said that it has gone");
        }
    }

    #[test]
    fn a_lease_wants_words_of_its_own() {
        let hold = hold(Some(Duration::from_secs(4)));
        said(&hold, ago(3));
        hold.runs(Moment::now());
        looked(&hold);
        assert!(held(&hold));
        hold.writes(ago(1));
        looked(&hold);
        assert!(!held(&hold));
    }

    #[test]
    fn a_report_that_comes_late_takes_nothing_back() {
        for lease in [None, Some(Duration::from_secs(4))] {
            let hold = hold(lease);
            hold.runs(ago(6));
            hold.writes(ago(4));
            hold.writes(ago(6));
            looked(&hold);
            assert!(!held(&hold), "{lease:?}");
            hold.runs(Moment::now());
            assert!(!hold.wants_word(), "it was not silent: {lease:?}");
        }
    }

    #[test]
    fn a_word_of_before_a_silence_does_not_end_it_when_it_comes_late() {
        let hold = hold(None);
        said(&hold, ago(20));
        hold.runs(Moment::now());
        hold.writes(ago(6));
        looked(&hold);
        assert!(held(&hold) && hold.wants_word());
        hold.writes(ago(1));
        looked(&hold);
        assert!(!held(&hold) && !hold.wants_word(), "this one lies behind the silence");
    }

    #[test]
    fn a_machine_that_slept_is_noticed_by_either_clock() {
        let hold = hold(None);
        for slept in
            [Moment { steady: ago(6).steady, ..ago(0) }, Moment { utc: ago(6).utc, ..ago(0) }]
        {
            said(&hold, slept);
            looked(&hold);
            assert!(held(&hold), "{slept:?}");
        }
    }

    /// How many were told that it was the owner's, and how many that it was not, or may not be.
    #[derive(Clone, Default)]
    struct Told(Arc<[AtomicUsize; 2]>);

    impl Told {
        /// Whether a report waits.
        fn report(&self, hold: &Hold) -> bool {
            let told = self.clone();
            let counts = move |found: Found| {
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
        let (notified, told) = (Arc::new(AtomicUsize::new(0)), Told::default());
        let count = Arc::clone(&notified);
        let notify: Notify = Arc::new(move || _ = count.fetch_add(1, Ordering::SeqCst));
        let notified = || notified.load(Ordering::SeqCst);
        assert!((0..2).all(|_| hold.holds_back(Some(&notify)).unwrap()));
        assert!(told.report(&hold) && hold.has_reports());
        assert!(!looked(&hold), "nobody waits any more");
        assert_eq!((notified(), told.counts(), hold.has_reports()), (1, [1, 0], false));
        assert!(!told.report(&hold));
        said(&hold, ago(6));
        looked(&hold);
        assert!(told.report(&hold));
        hold.looked(hold.said(), &Err(TransportError::Closed));
        assert_eq!((notified(), told.counts()), (1, [2, 1]));
        assert!(!told.report(&hold));
        assert!(hold.holds_back(None).is_err());
        assert_eq!(told.counts(), [2, 2]);
    }

    #[test]
    fn what_had_arrived_before_a_look_is_known_however_long_that_took() {
        let (hold, told) = (hold(None), Told::default());
        said(&hold, ago(6));
        for n in 1..3 {
            assert!(told.report(&hold));
            let said = hold.said();
            assert!(told.report(&hold));
            assert!(hold.looked(said, &Ok(())), "the other one waits");
            assert_eq!(told.counts(), [n * 2 - 1, 0]);
            assert!(!looked(&hold));
            assert_eq!(told.counts(), [n * 2, 0]);
        }
    }

    #[test]
    fn of_who_has_gone_only_looks_say_what_was_its_own() {
        let (hold, told) = (hold(None), Told::default());
        looked(&hold);
        hold.leave();
        assert!(told.report(&hold));
        let said = hold.said();
        assert!(told.report(&hold));
        hold.looked(said, &Ok(()));
        assert_eq!(told.counts(), [1, 0]);
        hold.looked(said, &Err(TransportError::Closed));
        assert_eq!(told.counts(), [1, 1]);
    }

    #[test]
    fn reports_keep_what_the_look_needs_and_nobody_waits_beyond_the_end() {
        let (hold, told) = (hold(None), Told::default());
        assert!(told.report(&hold) && told.report(&hold));
        assert_eq!(Arc::strong_count(&told.0), 1 + 2 * 2, "one that counts, one that is kept");
        hold.end();
        assert_eq!((told.counts(), Arc::strong_count(&told.0)), ([0, 2], 1));
        assert!(!told.report(&hold));
        looked(&hold);
        assert!(!told.report(&hold));
        assert_eq!(told.counts(), [0, 4]);
        assert!(matches!(hold.holds_back(None), Err(PublishError::Unknown { .. })));
    }
}
