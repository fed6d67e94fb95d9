//! Pipelining of telemetry: a sample does not wait for the receipts of earlier ones, which brokers
//! take long to return. Lost samples are counted and reported by the next write.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use helio_bus::{Outcome, PendingPublish, PublishError, Receipt};

/// The most samples of a topic in flight: seconds of the fastest telemetry. A further write waits
/// for the oldest receipt.
pub(crate) const MAX_IN_FLIGHT: usize = 1_024;

/// Pending receipts, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct InFlight(VecDeque<PendingPublish>);

/// Samples in flight that are not known to have arrived.
#[derive(Debug)]
pub(crate) struct LostSamples {
    /// Their number.
    pub(crate) count: u64,
    /// Why the first of them was lost.
    pub(crate) source: PublishError,
}

/// Why no further sample may be sent.
#[derive(Debug)]
pub(crate) enum InFlightError {
    /// Earlier samples were lost.
    Lost(LostSamples),
    /// [`MAX_IN_FLIGHT`] samples are in flight, and the oldest has no receipt yet.
    Full,
}

impl InFlight {
    /// Whether no receipt is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Collects the receipts that have arrived, and waits for the oldest if too many are pending.
    ///
    /// # Errors
    /// [`InFlightError`]; each lost sample is reported once.
    pub(crate) fn make_room(&mut self, timeout: Duration) -> Result<(), InFlightError> {
        if self.0.len() >= MAX_IN_FLIGHT
            && let Some(oldest) = self.0.front_mut()
            && oldest.wait_for(timeout).is_none()
        {
            return Err(InFlightError::Full);
        }
        let mut told = Ok(());
        while let Some(outcome) = self.0.front().and_then(PendingPublish::outcome) {
            self.0.pop_front();
            told = and(told, outcome);
        }
        told.map_err(InFlightError::Lost)
    }

    /// Waits for all receipts. Those still pending after `timeout` are forgotten, and samples that
    /// wait for space in a queue are cancelled.
    ///
    /// # Errors
    /// [`LostSamples`], which counts samples without a receipt too.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<(), LostSamples> {
        let until = Instant::now() + timeout;
        let left = || until.saturating_duration_since(Instant::now());
        let mut told = Ok(());
        for one in self.0.drain(..) {
            told = and(told, one.wait_timeout(left()));
        }
        told
    }

    /// Adds a pending publish; returns its receipt if it has arrived already.
    ///
    /// # Errors
    /// Why the bus did not accept it.
    pub(crate) fn add(
        &mut self,
        publishing: PendingPublish,
    ) -> Result<Option<Receipt>, PublishError> {
        match publishing.outcome() {
            Some(outcome) => outcome.map(Some),
            None => {
                self.0.push_back(publishing);
                Ok(None)
            }
        }
    }
}

impl LostSamples {
    /// Adds the samples that were lost later.
    pub(crate) fn and(self, later: Result<(), LostSamples>) -> Self {
        let count = later.err().map_or(0, |later| later.count);
        Self { count: self.count + count, ..self }
    }
}

fn and(told: Result<(), LostSamples>, outcome: Outcome) -> Result<(), LostSamples> {
    match (told, outcome) {
        (told, Ok(_)) => told,
        (Ok(()), Err(source)) => Err(LostSamples { count: 1, source }),
        (Err(lost), Err(_)) => Err(LostSamples { count: lost.count + 1, ..lost }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_bus::transport::Published;
    use helio_bus::{Guarantee, ReceiptSender, pending_receipt};

    /// Samples with pending receipts, and the senders that complete them.
    fn gone(count: usize) -> (InFlight, VecDeque<ReceiptSender>) {
        let (mut in_flight, mut tickets) = (InFlight::default(), VecDeque::new());
        for _ in 0..count {
            let (ticket, pending) = pending_receipt();
            assert_eq!(in_flight.add(Ok(Published::Pending(pending)).into()).unwrap(), None);
            tickets.push_back(ticket);
        }
        (in_flight, tickets)
    }

    fn receipt() -> Receipt {
        Receipt { partition: 0, offset: None, sequence: 1, guarantee: Guarantee::Stored }
    }

    fn too_large<T>() -> Result<T, PublishError> {
        Err(PublishError::Encode("too large".to_owned()))
    }

    #[test]
    fn all_that_did_not_arrive_are_told_once() {
        let (mut in_flight, mut tickets) = gone(4);
        let mut next = |outcome| tickets.pop_front().unwrap().complete(outcome);
        next(too_large());
        next(Ok(receipt()));
        next(Err(PublishError::Timeout));
        let Err(InFlightError::Lost(lost)) = in_flight.make_room(Duration::ZERO) else {
            panic!("not told")
        };
        assert_eq!(lost.count, 2);
        assert!(matches!(lost.source, PublishError::Encode(_)), "{}", lost.source);
        in_flight.make_room(Duration::ZERO).unwrap();
        next(Ok(receipt()));
        in_flight.wait(Duration::ZERO).unwrap();
        assert!(in_flight.is_empty());
    }

    #[test]
    fn there_is_room_before_one_more_goes() {
        let (mut in_flight, mut tickets) = gone(MAX_IN_FLIGHT);
        // For no longer than the timeout.
        assert!(matches!(in_flight.make_room(Duration::ZERO), Err(InFlightError::Full)));
        assert_eq!(in_flight.0.len(), MAX_IN_FLIGHT, "one is forgotten");
        tickets.pop_front().unwrap().complete(too_large());
        assert!(matches!(
            in_flight.make_room(Duration::ZERO),
            Err(InFlightError::Lost(LostSamples { count: 1, .. }))
        ));
        in_flight.make_room(Duration::ZERO).unwrap();
        // The other senders come back: a dropped one reports that its sample did not arrive.
        let other = std::thread::spawn(move || {
            tickets.pop_front().unwrap().complete(Ok(receipt()));
            tickets
        });
        let full = pending_receipt();
        in_flight.add(Ok(Published::Pending(full.1)).into()).unwrap();
        in_flight.make_room(Duration::from_secs(30)).unwrap();
        assert_eq!(in_flight.0.len(), MAX_IN_FLIGHT - 1);
        drop(other.join().unwrap());
    }

    #[test]
    fn who_has_no_receipt_in_time_is_lost_as_far_as_is_known() {
        let (mut in_flight, tickets) = gone(3);
        let lost = in_flight.wait(Duration::ZERO).unwrap_err();
        assert_eq!(lost.count, 3);
        assert!(matches!(lost.source, PublishError::Timeout));
        assert!(in_flight.is_empty());
        drop(tickets);
    }
}
