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
//! fenced.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use helio_bus::TransportError;
use helio_bus::transport::locked;

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
        self.steady.elapsed().max(self.utc.elapsed().unwrap_or_default())
    }
}

/// When the newest words of an owner were sent that have arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    /// That its process lives.
    runs: Moment,
    /// That it publishes or asserts, which is what a lease asks for.
    writes: Moment,
}

/// What waits for a look: it hears what the look has found.
pub(crate) type Report = Box<dyn FnOnce(Result<(), TransportError>) + Send>;

/// What an owner knows of its ownership.
pub(crate) struct Hold {
    lease: Option<Duration>,
    state: Mutex<State>,
}

struct State {
    said: Said,
    /// What had been said when the newest look began that found nobody; none before the first.
    sure: Option<Said>,
    /// Another has taken over.
    fenced: Option<TransportError>,
    /// Who holds publishes back: writers, each once.
    waiting: Vec<Notify>,
    /// Reports that wait: of what was under way when it was no longer sure.
    reports: Vec<Report>,
}

impl Hold {
    pub(crate) fn new(lease: Option<Duration>) -> Self {
        let now = Moment::now();
        let (said, waiting, reports) = (Said { runs: now, writes: now }, Vec::new(), Vec::new());
        let state = State { said, sure: None, fenced: None, waiting, reports };
        Self { lease, state: Mutex::new(state) }
    }

    fn is_sure(&self, state: &State) -> bool {
        let holds = |said: Said| {
            said.runs.elapsed() < SILENCE / 2
                && self.lease.is_none_or(|lease| said.writes.elapsed() < lease / 4 * 3)
        };
        state.sure.is_some_and(holds)
    }

    /// That its process lives has arrived, and was sent then.
    pub(crate) fn runs(&self, since: Moment) {
        locked(&self.state).said.runs = since;
    }

    /// That it writes has arrived, and was sent then.
    pub(crate) fn writes(&self, since: Moment) {
        locked(&self.state).said = Said { runs: since, writes: since };
    }

    /// What has arrived by now; to be asked for before a look begins.
    pub(crate) fn said(&self) -> Said {
        locked(&self.state).said
    }

    /// A look that began when this had been said has come to its end. Those who wait are told,
    /// unless it says too little still.
    pub(crate) fn looked(&self, said: Said, found: &Result<(), TransportError>) {
        let mut state = locked(&self.state);
        match found {
            Ok(()) => state.sure = Some(said),
            Err(error) => state.fenced = Some(error.clone()),
        }
        if found.is_ok() && !self.is_sure(&state) {
            return;
        }
        let (waiting, reports) =
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.reports));
        drop(state);
        reports.into_iter().for_each(|told| told(found.clone()));
        waiting.iter().for_each(|notify| notify());
    }

    /// Whether publishes are to be held back; `notify` is called when they need not be any more.
    pub(crate) fn holds_back(&self, notify: Option<&Notify>) -> Result<bool, TransportError> {
        let mut state = locked(&self.state);
        if let Some(fenced) = &state.fenced {
            return Err(fenced.clone());
        }
        if self.is_sure(&state) {
            return Ok(false);
        }
        let waits = |notify: &Notify| state.waiting.iter().any(|other| Arc::ptr_eq(other, notify));
        let new = notify.filter(|notify| !waits(notify)).map(Arc::clone);
        state.waiting.extend(new);
        Ok(true)
    }

    /// Whether somebody waits for a look.
    pub(crate) fn is_waited_for(&self) -> bool {
        let state = locked(&self.state);
        !state.waiting.is_empty() || !state.reports.is_empty()
    }

    /// Tells a report at once where it is sure, and else has it wait for the next look; whether it
    /// waits.
    pub(crate) fn report(&self, told: Report) -> bool {
        let mut state = locked(&self.state);
        let found = match state.fenced.clone() {
            Some(fenced) => Err(fenced),
            None if self.is_sure(&state) => Ok(()),
            None => {
                state.reports.push(told);
                return true;
            }
        };
        drop(state);
        told(found);
        false
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

    fn held(hold: &Hold) -> bool {
        hold.holds_back(None).unwrap()
    }

    fn looked(hold: &Hold) {
        hold.looked(hold.said(), &Ok(()));
    }

    #[test]
    fn it_is_sure_for_half_the_silence_after_a_word_that_came_before_a_look() {
        let hold = Hold::new(None);
        assert!(held(&hold), "nobody has looked");
        looked(&hold);
        assert!(!held(&hold));
        hold.runs(ago(6));
        assert!(!held(&hold), "only a look says how things are");
        looked(&hold);
        assert!(held(&hold));
        let said = hold.said();
        hold.runs(Moment::now());
        hold.looked(said, &Ok(()));
        assert!(held(&hold), "the word came while it was looked");
        looked(&hold);
        assert!(!held(&hold));
    }

    #[test]
    fn a_lease_wants_words_of_its_own() {
        let hold = Hold::new(Some(Duration::from_secs(4)));
        hold.writes(ago(3));
        hold.runs(Moment::now());
        looked(&hold);
        assert!(held(&hold));
        hold.writes(ago(1));
        looked(&hold);
        assert!(!held(&hold));
    }

    #[test]
    fn a_machine_that_slept_is_noticed_by_either_clock() {
        let hold = Hold::new(None);
        for slept in
            [Moment { steady: ago(6).steady, ..ago(0) }, Moment { utc: ago(6).utc, ..ago(0) }]
        {
            hold.runs(slept);
            looked(&hold);
            assert!(held(&hold), "{slept:?}");
        }
    }

    #[test]
    fn who_waits_is_told_once_what_the_look_has_found() {
        let hold = Hold::new(None);
        let count = || Arc::new(AtomicUsize::new(0));
        let (notified, good, bad) = (count(), count(), count());
        let counts = [&notified, &good, &bad].map(Arc::clone);
        let counts = || counts.each_ref().map(|count| count.load(Ordering::SeqCst));
        let notify: Notify = Arc::new(move || _ = notified.fetch_add(1, Ordering::SeqCst));
        let report = || -> Report {
            let (good, bad) = (Arc::clone(&good), Arc::clone(&bad));
            Box::new(move |found| {
                let count = if found.is_ok() { good } else { bad };
                count.fetch_add(1, Ordering::SeqCst);
            })
        };
        assert!((0..2).all(|_| hold.holds_back(Some(&notify)).unwrap()));
        assert!(hold.report(report()) && hold.is_waited_for());
        looked(&hold);
        assert_eq!((counts(), hold.is_waited_for()), ([1, 1, 0], false));
        assert!(!hold.report(report()));
        hold.runs(ago(6));
        looked(&hold);
        assert!(hold.report(report()));
        hold.looked(hold.said(), &Err(TransportError::Closed));
        assert_eq!(counts(), [1, 2, 1]);
        assert!(!hold.report(report()));
        assert!(hold.holds_back(None).is_err());
        assert_eq!(counts(), [1, 2, 2]);
    }
}
