//! Telemetry goes ahead of its receipts: where these take their time, as brokers' do, a sample does
//! not wait for those before it. What did not arrive is counted, and told by what comes next.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use helio_bus::{Outcome, PublishError, Publishing, Receipt};

/// The most samples of a topic whose receipts have not come: seconds of the fastest telemetry. Who
/// writes more waits for the oldest.
pub(crate) const MOST: usize = 1_024;

/// Receipts to come, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Ahead(VecDeque<Publishing>);

/// Samples that went ahead and are not known to have arrived.
#[derive(Debug)]
pub(crate) struct Lost {
    /// How many.
    pub(crate) count: u64,
    /// Why the first of them did not.
    pub(crate) source: PublishError,
}

/// Why nothing more may go ahead.
#[derive(Debug)]
pub(crate) enum Held {
    /// Some that went did not arrive.
    Lost(Lost),
    /// There are as many as there may be, and the oldest has no receipt yet.
    Full,
}

impl Ahead {
    /// Whether none is to come.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the receipts that have come, and waits for the oldest where there are too many.
    ///
    /// # Errors
    /// [`Held`]; of those that did not arrive once.
    pub(crate) fn make_room(&mut self, timeout: Duration) -> Result<(), Held> {
        if self.0.len() >= MOST
            && let Some(oldest) = self.0.front_mut()
            && oldest.wait_for(timeout).is_none()
        {
            return Err(Held::Full);
        }
        let mut told = Ok(());
        while let Some(outcome) = self.0.front().and_then(Publishing::outcome) {
            self.0.pop_front();
            told = and(told, outcome);
        }
        told.map_err(Held::Lost)
    }

    /// Waits for all of them. Those without a receipt then are forgotten, and given up where they
    /// stand in line for room.
    ///
    /// # Errors
    /// [`Lost`], those without a receipt among them.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<(), Lost> {
        let until = Instant::now() + timeout;
        let left = || until.saturating_duration_since(Instant::now());
        let mut told = Ok(());
        for one in self.0.drain(..) {
            told = and(told, one.wait_timeout(left()));
        }
        told
    }

    /// Adds one; gives its receipt where it has come already.
    ///
    /// # Errors
    /// Why it was not taken.
    pub(crate) fn add(&mut self, publishing: Publishing) -> Result<Option<Receipt>, PublishError> {
        match publishing.outcome() {
            Some(outcome) => outcome.map(Some),
            None => {
                self.0.push_back(publishing);
                Ok(None)
            }
        }
    }
}

impl Lost {
    /// With those that came later.
    pub(crate) fn and(self, later: Result<(), Lost>) -> Self {
        let count = later.err().map_or(0, |later| later.count);
        Self { count: self.count + count, ..self }
    }
}

fn and(told: Result<(), Lost>, outcome: Outcome) -> Result<(), Lost> {
    match (told, outcome) {
        (told, Ok(_)) => told,
        (Ok(()), Err(source)) => Err(Lost { count: 1, source }),
        (Err(lost), Err(_)) => Err(Lost { count: lost.count + 1, ..lost }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_bus::transport::Published;
    use helio_bus::{Guarantee, Ticket, pending_receipt};

    /// So many whose receipts are to come, and who completes them.
    fn gone(count: usize) -> (Ahead, VecDeque<Ticket>) {
        let (mut ahead, mut tickets) = (Ahead::default(), VecDeque::new());
        for _ in 0..count {
            let (ticket, pending) = pending_receipt();
            assert_eq!(ahead.add(Ok(Published::Pending(pending)).into()).unwrap(), None);
            tickets.push_back(ticket);
        }
        (ahead, tickets)
    }

    fn receipt() -> Receipt {
        Receipt { partition: 0, offset: None, sequence: 1, guarantee: Guarantee::Stored }
    }

    fn too_large<T>() -> Result<T, PublishError> {
        Err(PublishError::Encode("too large".to_owned()))
    }

    #[test]
    fn all_that_did_not_arrive_are_told_once() {
        let (mut ahead, mut tickets) = gone(4);
        let mut next = |outcome| tickets.pop_front().unwrap().complete(outcome);
        next(too_large());
        next(Ok(receipt()));
        next(Err(PublishError::Timeout));
        let Err(Held::Lost(lost)) = ahead.make_room(Duration::ZERO) else { panic!("not told") };
        assert_eq!(lost.count, 2);
        assert!(matches!(lost.source, PublishError::Encode(_)), "{}", lost.source);
        ahead.make_room(Duration::ZERO).unwrap();
        next(Ok(receipt()));
        ahead.wait(Duration::ZERO).unwrap();
        assert!(ahead.is_empty());
    }

    #[test]
    fn there_is_room_before_one_more_goes() {
        let (mut ahead, mut tickets) = gone(MOST);
        // For no longer than it may take.
        assert!(matches!(ahead.make_room(Duration::ZERO), Err(Held::Full)));
        assert_eq!(ahead.0.len(), MOST, "one is forgotten");
        tickets.pop_front().unwrap().complete(too_large());
        assert!(matches!(ahead.make_room(Duration::ZERO), Err(Held::Lost(Lost { count: 1, .. }))));
        ahead.make_room(Duration::ZERO).unwrap();
        // The other tickets come back: one that is dropped says that its sample did not arrive.
        let other = std::thread::spawn(move || {
            tickets.pop_front().unwrap().complete(Ok(receipt()));
            tickets
        });
        let full = pending_receipt();
        ahead.add(Ok(Published::Pending(full.1)).into()).unwrap();
        ahead.make_room(Duration::from_secs(30)).unwrap();
        assert_eq!(ahead.0.len(), MOST - 1);
        drop(other.join().unwrap());
    }

    #[test]
    fn who_has_no_receipt_in_time_is_lost_as_far_as_is_known() {
        let (mut ahead, tickets) = gone(3);
        let lost = ahead.wait(Duration::ZERO).unwrap_err();
        assert_eq!(lost.count, 3);
        assert!(matches!(lost.source, PublishError::Timeout));
        assert!(ahead.is_empty());
        drop(tickets);
    }
}
