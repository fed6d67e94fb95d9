//! A writer's samples in flight, their results, and the flushes that wait for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::{Receipt, locked};
use helio_bus::{PendingReceipt, PublishError, ReceiptSender, pending_receipt};
use rdkafka::error::KafkaError;

use crate::client::clock::DualClock;
use crate::client::error::undelivered;

/// A record's result: its offset, if the brokers return it (not with `acks=0`, nor for a repeated
/// record), or the error.
pub(crate) type DeliveryOutcome = Result<Option<u64>, KafkaError>;

/// A sample in flight.
pub(crate) struct InFlightSample {
    pub(crate) pending: PendingSample,
    /// Present if the topic is exclusive.
    pub(crate) owner: Option<SentByOwner>,
}

/// A sample without a result yet, and the receipt to complete.
pub(crate) struct PendingSample {
    pub(crate) ticket: Option<ReceiptSender>,
    pub(crate) receipt: Receipt,
    /// Its number among the writer's samples.
    pub(crate) number: u64,
    /// Its record's key, payload and headers.
    pub(crate) bytes: usize,
    pub(crate) counter: Arc<DeliveryCounter>,
}

/// The owner of a sample of an exclusive topic.
pub(crate) struct SentByOwner {
    pub(crate) owner: Arc<dyn SampleOwner>,
    /// Before it was sent.
    pub(crate) since: DualClock,
    /// Whether a heartbeat of its writer goes with it.
    pub(crate) has_heartbeat: bool,
}

/// The writer of an exclusive topic, which decides about its delivered samples.
pub(crate) trait SampleOwner: Send + Sync {
    /// A heartbeat that was sent then was acknowledged.
    fn acknowledged(&self, since: DualClock);

    /// Completes a delivered sample when it is certain that it was the owner's.
    fn complete(self: Arc<Self>, sample: PendingSample, offset: Option<u64>);
}

impl InFlightSample {
    /// All of its records were reported.
    pub(crate) fn delivered(self, outcome: DeliveryOutcome) {
        match (self.owner, outcome) {
            // A sample in flight of a fenced writer was delivered; readers drop it.
            (Some(SentByOwner { owner, since, has_heartbeat }), Ok(offset)) => {
                if has_heartbeat {
                    owner.acknowledged(since);
                }
                owner.complete(self.pending, offset);
            }
            (_, outcome) => {
                let bytes = self.pending.bytes;
                self.pending.complete(outcome.map_err(|error| undelivered(&error, bytes)));
            }
        }
    }
}

impl PendingSample {
    pub(crate) fn complete(self, outcome: Result<Option<u64>, PublishError>) {
        let Self { ticket, receipt, number, counter, .. } = self;
        counter.done(number, outcome.as_ref().copied());
        if let Some(ticket) = ticket {
            ticket.complete(outcome.map(|offset| Receipt { offset, ..receipt }));
        }
    }
}

/// Which of a writer's samples were sent and delivered, and which flushes wait for them. Samples
/// are numbered from 1 and reported in any order: a deferred report comes after later failures, and
/// on another thread.
pub(crate) struct DeliveryCounter {
    /// Topic and partition.
    place: String,
    counts: Mutex<DeliveryCounts>,
}

struct DeliveryCounts {
    sent: u64,
    /// All samples up to this number were reported.
    done: u64,
    /// Later samples that were reported, with their offsets.
    ahead: BTreeMap<u64, Option<u64>>,
    /// The newest sample that failed.
    failed: Option<(u64, PublishError)>,
    /// In the order of the last sample of each.
    waiting: VecDeque<PendingFlush>,
    /// How many were reported at the last check, and since when.
    seen: (u64, Instant),
}

impl DeliveryCounts {
    fn reported(&self) -> u64 {
        self.done + self.ahead.len() as u64
    }
}

/// A flush that waits for the samples of these numbers.
struct PendingFlush {
    first: u64,
    last: u64,
    receipt: Receipt,
    ticket: ReceiptSender,
    error: Option<PublishError>,
}

impl DeliveryCounter {
    pub(crate) fn new(place: String) -> Self {
        let seen = (0, Instant::now());
        let (ahead, waiting) = (BTreeMap::new(), VecDeque::new());
        let counts = DeliveryCounts { sent: 0, done: 0, ahead, failed: None, waiting, seen };
        Self { place, counts: Mutex::new(counts) }
    }

    /// Returns the number of the next sample.
    pub(crate) fn sent(&self) -> u64 {
        let mut counts = locked(&self.counts);
        counts.sent += 1;
        counts.sent
    }

    pub(crate) fn unsent(&self) {
        locked(&self.counts).sent -= 1;
    }

    pub(crate) fn is_clear(&self) -> bool {
        let counts = locked(&self.counts);
        counts.sent == counts.done
    }

    /// Returns a message if samples are in flight and none was delivered for this time, provided
    /// that this is called regularly.
    pub(crate) fn stalled(&self, time: Duration) -> Option<String> {
        let mut counts = locked(&self.counts);
        let reported = counts.reported();
        let left = counts.sent - reported;
        if left == 0 || counts.seen.0 != reported {
            counts.seen = (reported, Instant::now());
        }
        let stalls = counts.seen.1.elapsed() >= time;
        stalls.then(|| format!("{left} samples of {} are not acknowledged", self.place))
    }

    /// A receipt for all samples in flight.
    pub(crate) fn wait(&self, receipt: Receipt) -> PendingReceipt {
        let (ticket, pending) = pending_receipt();
        let mut counts = locked(&self.counts);
        let last = counts.sent;
        let first = counts.done + 1;
        let failed = counts.failed.as_ref().filter(|(number, _)| *number >= first);
        let error = failed.map(|(_, error)| error.clone());
        if counts.done == last {
            drop(counts);
            ticket.complete(error.map_or(Ok(receipt), Err));
        } else {
            counts.waiting.push_back(PendingFlush { first, last, receipt, ticket, error });
        }
        pending
    }

    /// A sample was delivered at its offset, or has failed.
    fn done(&self, number: u64, outcome: Result<Option<u64>, &PublishError>) {
        let mut counts = locked(&self.counts);
        if let Err(error) = outcome {
            let range = |one: &&mut PendingFlush| (one.first..=one.last).contains(&number);
            counts.waiting.iter_mut().filter(range).for_each(|one| {
                one.error.get_or_insert_with(|| error.clone());
            });
            if counts.failed.as_ref().is_none_or(|(newest, _)| *newest < number) {
                counts.failed = Some((number, error.clone()));
            }
        }
        let offset = outcome.unwrap_or(None);
        if number != counts.done + 1 {
            counts.ahead.insert(number, offset);
            return;
        }
        let (mut served, mut next) = (Vec::new(), Some(offset));
        while let Some(offset) = next {
            counts.done += 1;
            while counts.waiting.front().is_some_and(|one| one.last <= counts.done) {
                served.extend(counts.waiting.pop_front().map(|one| (one, offset)));
            }
            let number = counts.done + 1;
            next = counts.ahead.remove(&number);
        }
        drop(counts);
        for (PendingFlush { receipt, ticket, error, .. }, offset) in served {
            ticket.complete(error.map_or(Ok(Receipt { offset, ..receipt }), Err));
        }
    }
}

#[cfg(test)]
mod tests {
    use helio_bus::Guarantee;

    use super::*;

    const RECEIPT: Receipt =
        Receipt { partition: 0, offset: None, sequence: 2, guarantee: Guarantee::Stored };

    fn lost() -> PublishError {
        PublishError::Unknown { cause: "lost".to_owned() }
    }

    fn offset(pending: &PendingReceipt) -> Option<u64> {
        pending.outcome().unwrap().unwrap().offset
    }

    #[test]
    fn who_waits_for_all_is_told_with_the_last() {
        let tally = DeliveryCounter::new("t/0".to_owned());
        let numbers = [tally.sent(), tally.sent()];
        let both = tally.wait(RECEIPT);
        let third = tally.sent();
        let all = tally.wait(RECEIPT);
        tally.done(numbers[0], Ok(Some(10)));
        assert!(both.outcome().is_none());
        tally.done(numbers[1], Ok(Some(11)));
        assert_eq!(offset(&both), Some(11));
        tally.done(third, Err(&lost()));
        assert!(all.outcome().unwrap().is_err());
        assert!(tally.is_clear());
    }

    #[test]
    fn reports_in_any_order_tell_each_its_own() {
        let tally = DeliveryCounter::new("t/0".to_owned());
        let first: Vec<_> = (0..3).map(|_| tally.sent()).collect();
        let stored = tally.wait(RECEIPT);
        let second: Vec<_> = (0..2).map(|_| tally.sent()).collect();
        let flushed = tally.wait(RECEIPT);
        tally.done(second[0], Err(&lost()));
        tally.done(second[1], Ok(Some(13)));
        tally.done(first[2], Ok(Some(12)));
        tally.done(first[0], Ok(Some(10)));
        assert!(stored.outcome().is_none() && !tally.is_clear());
        tally.done(first[1], Ok(Some(11)));
        assert_eq!(offset(&stored), Some(12));
        assert!(flushed.outcome().unwrap().is_err());
        assert!(tally.is_clear());
    }

    #[test]
    fn what_failed_ahead_of_samples_in_flight_fails_their_flush() {
        let tally = DeliveryCounter::new("t/0".to_owned());
        tally.done(tally.sent(), Err(&lost()));
        let numbers = [tally.sent(), tally.sent()];
        let flushed = tally.wait(RECEIPT);
        tally.done(numbers[0], Ok(Some(11)));
        tally.done(numbers[1], Ok(Some(12)));
        assert_eq!(offset(&flushed), Some(12), "what failed before was reported");
        let numbers = [tally.sent(), tally.sent()];
        tally.done(numbers[1], Err(&lost()));
        let flushed = tally.wait(RECEIPT);
        tally.done(numbers[0], Ok(Some(13)));
        assert!(flushed.outcome().unwrap().is_err());
    }

    #[test]
    fn samples_that_arrive_ahead_of_others_are_no_standstill() {
        let tally = DeliveryCounter::new("t/0".to_owned());
        let numbers = [tally.sent(), tally.sent()];
        assert!(tally.stalled(Duration::MAX).is_none());
        tally.done(numbers[1], Ok(None));
        assert!(tally.stalled(Duration::MAX).is_none());
        assert_eq!(tally.stalled(Duration::ZERO).unwrap(), "1 samples of t/0 are not acknowledged");
        tally.done(numbers[0], Ok(None));
        assert!(tally.is_clear());
    }
}
