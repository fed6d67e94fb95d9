//! Samples of a writer that durability services have not made durable yet.
//!
//! Constraints. Bounded by samples and bytes. A sample is released when every service that stores
//! the topic has it on its disk. Until then it can be sent again, to a service that was away. A
//! receipt for less than *durable* completes when every service has the sample in its journal.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use helio_bus::transport::{Receipt, Record};
use helio_bus::{Guarantee, ReceiptSender};
use helio_core::{Headers, SchemaId, Tai, TraceId};

use crate::envelope::{FIRST_STORED, OLDEST_UNACKED, RESENT};

/// The most samples of a writer that wait for services.
pub(crate) const MAX_BUFFERED_SAMPLES: usize = 65_536;
/// The most bytes of them, keys and payloads, unless it is one sample.
const MAX_BUFFERED_BYTES: usize = 64 << 20;
/// The oldest sample is sent again if no service acknowledges it for so long: the sample or its ack
/// may be lost. The interval doubles each time, up to the longest.
const RESEND_INTERVALS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];
/// The first such interval of best-effort topics, where nothing else sends samples again.
const BEST_EFFORT_RESEND_INTERVAL: Duration = Duration::from_millis(500);

/// A sample that is not acknowledged yet.
struct PendingSample {
    sequence: u64,
    time: Tai,
    schema: SchemaId,
    level: u8,
    trace: Option<TraceId>,
    headers: Headers,
    /// Payload and key.
    bytes: Box<[u8]>,
    key: usize,
    sent: bool,
}

impl PendingSample {
    fn record(&self) -> Record<'_> {
        let (payload, key) = self.bytes.split_at(self.bytes.len() - self.key);
        Record {
            key,
            payload,
            time: self.time,
            schema: self.schema,
            level: self.level,
            trace: self.trace,
            headers: self.headers.as_ref(),
        }
    }
}

/// How much is sent again at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Burst {
    pub(crate) samples: usize,
    pub(crate) bytes: usize,
}

impl Burst {
    /// The writer's readers limit it.
    pub(crate) const UNLIMITED: Self = Self { samples: usize::MAX, bytes: usize::MAX };
}

/// The samples of one writer, oldest first.
#[derive(Default)]
pub(crate) struct ResendBuffer {
    entries: VecDeque<PendingSample>,
    bytes: usize,
    /// The number of samples that were sent, or sent again.
    sent: usize,
    /// The acked numbers of each service.
    stored: HashMap<String, StoredUpTo>,
    /// The services that cannot store this producer's samples.
    refusing: HashSet<String>,
    /// The minimum over all ready services that store its samples, as of the last check.
    all: StoredUpTo,
    /// Receipts that wait for the journals, and for the disks.
    waiting: [VecDeque<(Receipt, ReceiptSender)>; 2],
    wants_room: bool,
    /// The newest number that was written before samples were buffered; 0 is none.
    before: u64,
    /// The number of the first sample; 0 is none yet.
    first: u64,
    timer: Option<ResendTimer>,
    best_effort: bool,
    /// Another writer has written for its producer before.
    continues: bool,
}

/// Up to which numbers a service has the samples.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StoredUpTo {
    /// In its journal: it survives the death of any process.
    pub(crate) appended: u64,
    /// On its disk.
    pub(crate) durable: u64,
}

impl StoredUpTo {
    fn with(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        let appended = of(self.appended, other.appended);
        Self { appended, durable: of(self.durable, other.durable) }
    }
}

/// The timer of the oldest sample: since when it is the oldest or was sent again, and its timeout.
struct ResendTimer {
    sequence: u64,
    since: Instant,
    interval: Duration,
}

/// The effect of acks.
#[derive(Default)]
pub(crate) struct Completed {
    /// Receipts to complete.
    pub(crate) receipts: Vec<(Receipt, ReceiptSender)>,
    /// The publisher waits for room, and there is some.
    pub(crate) room: bool,
}

impl ResendBuffer {
    /// A buffer of a writer that has written up to a number before.
    pub(crate) fn behind(before: u64) -> Self {
        Self { before, ..Self::default() }
    }

    /// Of a best-effort topic.
    pub(crate) fn best_effort(self, best_effort: bool) -> Self {
        Self { best_effort, ..self }
    }

    /// Of a writer that continues an earlier writer of its producer, whose samples were stored.
    pub(crate) fn continues(self, continues: bool) -> Self {
        Self { continues, ..self }
    }

    /// The newest number that was written before samples were buffered; 0 is none.
    pub(crate) fn before(&self) -> u64 {
        self.before
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether all services have acknowledged a number under a guarantee.
    pub(crate) fn is_held(&self, sequence: u64, guarantee: Guarantee) -> bool {
        let appended = guarantee < Guarantee::Durable && sequence <= self.all.appended;
        appended || self.entries.front().is_none_or(|oldest| oldest.sequence > sequence)
    }

    /// Whether it is full; if so, the caller is notified when there is room.
    pub(crate) fn is_full(&mut self) -> bool {
        let full = self.entries.len() >= MAX_BUFFERED_SAMPLES || self.bytes >= MAX_BUFFERED_BYTES;
        self.wants_room |= full;
        full
    }

    /// The number of buffered samples.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Buffers a sample, to be sent.
    pub(crate) fn push(&mut self, sequence: u64, record: &Record<'_>) {
        let bytes = [record.payload, record.key].concat().into_boxed_slice();
        self.bytes += bytes.len();
        if self.first == 0 {
            self.first = sequence;
        }
        self.entries.push_back(PendingSample {
            sequence,
            time: record.time,
            schema: record.schema,
            level: record.level,
            trace: record.trace,
            headers: record.headers.into(),
            bytes,
            key: record.key.len(),
            sent: false,
        });
    }

    /// Removes the newest sample, if it was never sent.
    pub(crate) fn retract(&mut self) {
        if let Some(newest) = self.entries.back().filter(|newest| !newest.sent) {
            self.bytes -= newest.bytes.len();
            self.entries.pop_back();
        }
    }

    /// Passes unsent samples, with number and flags, to `send`, up to an error, or up to a burst of
    /// those that are sent again; true if none is left.
    pub(crate) fn send<E>(
        &mut self,
        burst: Burst,
        mut send: impl FnMut(u64, &Record<'_>, u8) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (end, mut bytes) = (self.sent.saturating_add(burst.samples), 0);
        while let Some(entry) = self.entries.get_mut(self.sent) {
            if entry.sent && (self.sent >= end || bytes >= burst.bytes) {
                return Ok(false);
            }
            bytes += entry.bytes.len();
            let again = if entry.sent { RESENT } else { 0 };
            let base = if self.sent == 0 { OLDEST_UNACKED } else { 0 };
            let begins = begins(entry.sequence, self.first, self.continues);
            send(entry.sequence, &entry.record(), again | base | begins)?;
            entry.sent = true;
            self.sent += 1;
        }
        Ok(true)
    }

    /// Passes the newest sample to `send`, though earlier ones may be being sent again.
    pub(crate) fn send_newest<E>(
        &mut self,
        send: impl FnOnce(u64, &Record<'_>, u8) -> Result<(), E>,
    ) -> Result<(), E> {
        let earlier = self.entries.len().saturating_sub(1);
        let Some(newest) = self.entries.back_mut() else { return Ok(()) };
        let base = if earlier == 0 { OLDEST_UNACKED } else { 0 };
        let begins = begins(newest.sequence, self.first, self.continues);
        send(newest.sequence, &newest.record(), base | begins)?;
        newest.sent = true;
        self.sent += usize::from(self.sent == earlier);
        Ok(())
    }

    /// Passes the oldest sample to `send` again, if its timeout has expired.
    pub(crate) fn send_overdue(&mut self, now: Instant, send: impl FnOnce(u64, &Record<'_>, u8)) {
        let Some(oldest) = self.entries.front().filter(|_| self.sent > 0) else { return };
        let sequence = oldest.sequence;
        let Some(timer) = self.timer.as_mut().filter(|timer| timer.sequence == sequence) else {
            let interval =
                if self.best_effort { BEST_EFFORT_RESEND_INTERVAL } else { RESEND_INTERVALS[0] };
            self.timer = Some(ResendTimer { sequence, since: now, interval });
            return;
        };
        if sequence <= self.all.appended {
            // All services have it: the disks are slow, or an ack was lost.
            timer.interval = RESEND_INTERVALS[1];
        }
        if now.saturating_duration_since(timer.since) >= timer.interval {
            (timer.since, timer.interval) = (now, RESEND_INTERVALS[1].min(timer.interval * 2));
            let begins = begins(sequence, self.first, self.continues);
            send(sequence, &oldest.record(), RESENT | OLDEST_UNACKED | begins);
        }
    }

    /// Marks samples as unsent: those behind a number, and the one before, which they follow.
    pub(crate) fn send_again(&mut self, behind: u64) {
        let has = self.entries.partition_point(|entry| entry.sequence <= behind);
        self.sent = has.saturating_sub(1);
    }

    /// Adds a pending receipt of a buffered sample.
    pub(crate) fn wait(&mut self, receipt: Receipt, sender: ReceiptSender) {
        let durable = receipt.guarantee == Guarantee::Durable;
        self.waiting[usize::from(durable)].push_back((receipt, sender));
    }

    /// Applies an ack of a service.
    pub(crate) fn stored(&mut self, service: String, mark: StoredUpTo) {
        self.refusing.remove(&service);
        let known = self.stored.entry(service).or_default();
        *known = known.with(mark, u64::max);
    }

    /// A service cannot store this producer's samples. Receipts do not wait for it if others can;
    /// it fetches the samples from them later.
    pub(crate) fn refused(&mut self, service: String) {
        self.refusing.insert(service);
    }

    /// Whether one of the services can store this producer's samples.
    pub(crate) fn is_taken(&self, services: &[String]) -> bool {
        services.iter().any(|service| !self.refusing.contains(service))
    }

    /// The services of the topic that the oldest sample waits for, by name; `None` if there are
    /// none.
    pub(crate) fn waits_for(&self, services: &[String]) -> Option<String> {
        let oldest = self.entries.front()?.sequence;
        if services.is_empty() {
            return Some("a durability service that is ready".to_owned());
        }
        let has = |service| self.stored.get(service).is_some_and(|mark| mark.durable >= oldest);
        let lacking = services.iter().filter(|of| !self.refusing.contains(*of) && !has(*of));
        let names: Vec<_> = lacking.map(|of| format!("the durability service {of}")).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Releases the samples that all services of the topic have.
    pub(crate) fn settle(&mut self, services: &[String]) -> Completed {
        let is_taken = self.is_taken(services);
        let keeps = |service: &&String| !is_taken || !self.refusing.contains(*service);
        let has = |service: &String| self.stored.get(service).copied().unwrap_or_default();
        let keeping = services.iter().filter(keeps);
        let all = keeping.map(has).reduce(|one, other| one.with(other, u64::min));
        let Some(all) = all else { return Completed::default() };
        if all.appended < self.all.appended {
            // A service is new, or a power cut took samples from it: the oldest one is due soon.
            self.timer = None;
        }
        self.all = all;
        self.stored.retain(|service, _| services.contains(service));
        self.refusing.retain(|service| services.contains(service));
        while let Some(entry) = self.entries.front().filter(|e| e.sequence <= all.durable) {
            self.bytes -= entry.bytes.len();
            self.entries.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
        let mut settled = Completed::default();
        for (waiting, all) in self.waiting.iter_mut().zip([all.appended, all.durable]) {
            while waiting.front().is_some_and(|(receipt, _)| receipt.sequence <= all) {
                settled.receipts.extend(waiting.pop_front());
            }
        }
        settled.room = self.wants_room
            && self.entries.len() <= MAX_BUFFERED_SAMPLES / 2
            && self.bytes <= MAX_BUFFERED_BYTES / 2;
        self.wants_room &= !settled.room;
        settled
    }

    /// Removes the receipts that wait for the disks, because those do not answer.
    pub(crate) fn give_up_durable(&mut self) -> Vec<(Receipt, ReceiptSender)> {
        std::mem::take(&mut self.waiting[1]).into()
    }

    /// Removes all pending receipts, because they will not complete.
    pub(crate) fn give_up(&mut self) -> Vec<(Receipt, ReceiptSender)> {
        std::mem::take(&mut self.waiting).into_iter().flatten().collect()
    }
}

/// The flag that no sample before a number had to be stored: of the first one of a writer.
fn begins(sequence: u64, first: u64, continues: bool) -> u8 {
    if sequence == first && (sequence == 1 || !continues) { FIRST_STORED } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_bus::{PendingReceipt, pending_receipt};
    use helio_core::HeadersRef;

    fn record(payload: &[u8]) -> Record<'_> {
        let (time, schema) = (Tai::from_nanos(1), SchemaId::BYTES);
        let (level, trace, headers) = (0, None, HeadersRef::EMPTY);
        Record { key: b"k", payload, time, schema, level, trace, headers }
    }

    fn durable(sequence: u64) -> StoredUpTo {
        StoredUpTo { appended: sequence, durable: sequence }
    }

    /// Adds a pending receipt.
    fn wait(buffer: &mut ResendBuffer, sequence: u64, guarantee: Guarantee) -> PendingReceipt {
        let (sender, pending) = pending_receipt();
        buffer.wait(Receipt { partition: 0, offset: None, sequence, guarantee }, sender);
        pending
    }

    fn tell(settled: Completed) {
        settled.receipts.into_iter().for_each(|(receipt, sender)| sender.complete(Ok(receipt)));
    }

    fn sent(buffer: &mut ResendBuffer) -> Vec<(u64, u8)> {
        let mut sent = Vec::new();
        let all = buffer.send(Burst::UNLIMITED, |sequence, record, flags| {
            assert_eq!((record.key, record.payload), (&b"k"[..], &b"payload"[..]));
            sent.push((sequence, flags));
            Ok::<_, ()>(())
        });
        assert_eq!(all, Ok(true));
        sent
    }

    #[test]
    fn what_not_all_services_have_is_sent_again_and_the_oldest_says_that_it_is() {
        let mut buffer = ResendBuffer::default();
        (1..=3).for_each(|sequence| buffer.push(sequence, &record(b"payload")));
        assert_eq!(sent(&mut buffer), [(1, OLDEST_UNACKED | FIRST_STORED), (2, 0), (3, 0)]);
        assert_eq!(sent(&mut buffer), []);
        buffer.stored("a".to_owned(), durable(2));
        let both = ["a".to_owned(), "b".to_owned()];
        buffer.settle(&both);
        assert_eq!(buffer.len(), 3, "one of two is not all");
        buffer.settle(&both[..1]);
        buffer.push(4, &record(b"payload"));
        buffer.send_again(0);
        assert_eq!(sent(&mut buffer), [(3, OLDEST_UNACKED | RESENT), (4, 0)]);
    }

    #[test]
    fn a_new_sample_does_not_wait_for_those_that_are_sent_again() {
        let mut buffer = ResendBuffer::default();
        let mut told = Vec::new();
        for sequence in 1..=5 {
            buffer.push(sequence, &record(b"payload"));
            let newest = buffer.send_newest(|sequence, _, flags| {
                told.push((sequence, flags));
                Ok::<_, ()>(())
            });
            newest.unwrap();
        }
        let first = (1, OLDEST_UNACKED | FIRST_STORED);
        assert_eq!(told, [first, (2, 0), (3, 0), (4, 0), (5, 0)]);
        assert_eq!(sent(&mut buffer), [], "each was sent once");
        let burst = |buffer: &mut ResendBuffer, samples| {
            let mut told = Vec::new();
            let burst = Burst { samples, bytes: 3 * b"payloadk".len() };
            let over = buffer.send(burst, |sequence, _, flags| {
                assert_eq!(flags & RESENT, RESENT);
                told.push(sequence);
                Ok::<_, ()>(())
            });
            (told, over.unwrap())
        };
        buffer.send_again(2);
        assert_eq!(burst(&mut buffer, 2), (vec![2, 3], false), "it follows one that is there");
        buffer.push(6, &record(b"payload"));
        let mut newest = 0;
        let send = |sequence, _: &Record<'_>, _| {
            newest = sequence;
            Ok::<_, ()>(())
        };
        buffer.send_newest(send).unwrap();
        assert_eq!(newest, 6);
        assert_eq!(burst(&mut buffer, 2), (vec![4, 5], false));
        assert_eq!(burst(&mut buffer, 2), (vec![6], true), "where there was a hole before it");
        buffer.send_again(0);
        assert_eq!(burst(&mut buffer, 10), (vec![1, 2, 3], false), "its bytes are limited, too");
    }

    #[test]
    fn the_services_that_the_oldest_waits_for_are_named() {
        let mut buffer = ResendBuffer::default();
        let services = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(buffer.waits_for(&services), None);
        (1..=2).for_each(|sequence| buffer.push(sequence, &record(b"payload")));
        assert_eq!(buffer.waits_for(&[]).unwrap(), "a durability service that is ready");
        buffer.stored("a".to_owned(), StoredUpTo { appended: 2, durable: 0 });
        buffer.stored("b".to_owned(), durable(1));
        buffer.refused("c".to_owned());
        assert_eq!(buffer.waits_for(&services).unwrap(), "the durability service a");
    }

    #[test]
    fn the_oldest_is_sent_again_by_itself_ever_more_seldom_until_it_is_acknowledged() {
        let mut buffer = ResendBuffer::default();
        (1..=2).for_each(|sequence| buffer.push(sequence, &record(b"payload")));
        let (begun, again) = (Instant::now(), (1, RESENT | OLDEST_UNACKED | FIRST_STORED));
        let look = |buffer: &mut ResendBuffer, second: u64| {
            let mut sent = None;
            let now = begun + Duration::from_secs(second);
            buffer.send_overdue(now, |sequence, _, flags| sent = Some((sequence, flags)));
            sent
        };
        assert_eq!(look(&mut buffer, 0), None, "it was not sent yet");
        sent(&mut buffer);
        let at = |buffer: &mut ResendBuffer, seconds: &[u64]| -> Vec<_> {
            seconds.iter().map(|second| look(buffer, *second)).collect()
        };
        assert_eq!(at(&mut buffer, &[0, 4, 5, 6]), [None, None, Some(again), None]);
        assert_eq!(at(&mut buffer, &[14, 15, 34, 35]), [None, Some(again), None, Some(again)]);
        buffer.stored("a".to_owned(), durable(1));
        buffer.settle(&["a".to_owned()]);
        assert_eq!(at(&mut buffer, &[36, 40]), [None; 2], "another is the oldest");
        assert_eq!(look(&mut buffer, 41), Some((2, RESENT | OLDEST_UNACKED)));
        // It has arrived, and the ack that it is durable may be lost.
        buffer.stored("a".to_owned(), StoredUpTo { appended: 2, durable: 1 });
        buffer.settle(&["a".to_owned()]);
        assert_eq!(at(&mut buffer, &[51, 100]), [None; 2]);
        assert_eq!(look(&mut buffer, 101), Some((2, RESENT | OLDEST_UNACKED)));
        buffer.stored("a".to_owned(), durable(2));
        buffer.settle(&["a".to_owned()]);
        assert_eq!(at(&mut buffer, &[200, 300]), [None; 2]);
    }

    #[test]
    fn the_oldest_is_sent_soon_to_a_service_that_lacks_what_another_had_appended() {
        let mut buffer = ResendBuffer::default();
        buffer.push(1, &record(b"payload"));
        assert_eq!(sent(&mut buffer).len(), 1);
        let is_due = |buffer: &mut ResendBuffer, now| {
            let mut due = false;
            buffer.send_overdue(now, |_, _, _| due = true);
            due
        };
        let now = Instant::now();
        buffer.stored("a".to_owned(), StoredUpTo { appended: 1, durable: 0 });
        buffer.settle(&["a".to_owned()]);
        for seconds in [0, 6, 12] {
            assert!(!is_due(&mut buffer, now + Duration::from_secs(seconds)), "all have it");
        }
        buffer.settle(&["b".to_owned()]);
        assert!(!is_due(&mut buffer, now + Duration::from_secs(13)));
        assert!(is_due(&mut buffer, now + Duration::from_secs(19)));
    }

    #[test]
    fn who_goes_on_for_another_does_not_say_that_nothing_was_before() {
        let first = |buffer: ResendBuffer, sequence| {
            let mut buffer = buffer;
            buffer.push(sequence, &record(b"payload"));
            sent(&mut buffer)
        };
        assert_eq!(first(ResendBuffer::default(), 5_001), [(5_001, OLDEST_UNACKED | FIRST_STORED)]);
        assert_eq!(
            first(ResendBuffer::default().continues(true), 5_001),
            [(5_001, OLDEST_UNACKED)]
        );
        assert_eq!(
            first(ResendBuffer::default().continues(true), 1),
            [(1, OLDEST_UNACKED | FIRST_STORED)]
        );
    }

    #[test]
    fn what_may_be_lost_on_the_way_is_sent_again_sooner() {
        let mut buffer = ResendBuffer::default().best_effort(true);
        buffer.push(1, &record(b"payload"));
        sent(&mut buffer);
        let mut now = Instant::now();
        let waits = [
            Duration::ZERO,
            BEST_EFFORT_RESEND_INTERVAL / 2,
            BEST_EFFORT_RESEND_INTERVAL / 2,
            BEST_EFFORT_RESEND_INTERVAL,
            BEST_EFFORT_RESEND_INTERVAL,
        ];
        let sent = waits.map(|wait| {
            let mut sent = false;
            now += wait;
            buffer.send_overdue(now, |_, _, _| sent = true);
            sent
        });
        assert_eq!(sent, [false, false, true, false, true]);
    }

    #[test]
    fn a_service_that_cannot_keep_a_producer_is_waited_for_where_no_other_can() {
        let mut buffer = ResendBuffer::default();
        let services = ["a".to_owned(), "b".to_owned()];
        (1..=3).for_each(|sequence| buffer.push(sequence, &record(b"payload")));
        let pending: Vec<_> =
            (1..=3).map(|number| wait(&mut buffer, number, Guarantee::Durable)).collect();
        let refused = |buffer: &mut ResendBuffer, service: usize, mark: StoredUpTo| {
            buffer.stored(services[service].clone(), mark);
            buffer.refused(services[service].clone());
        };
        refused(&mut buffer, 1, durable(1));
        tell(buffer.settle(&services));
        assert!(pending[0].outcome().is_none(), "the other one has not got it yet");
        buffer.stored(services[0].clone(), durable(2));
        tell(buffer.settle(&services));
        assert!(pending[1].outcome().is_some() && pending[2].outcome().is_none());
        assert!(buffer.is_taken(&services) && !buffer.is_taken(&services[1..]));
        refused(&mut buffer, 0, durable(2));
        assert!(!buffer.is_taken(&services));
        buffer.stored(services[1].clone(), durable(1));
        buffer.stored(services[0].clone(), durable(3));
        tell(buffer.settle(&services));
        assert!(pending[2].outcome().is_none(), "it keeps them again, and has not got it yet");
    }

    #[test]
    fn receipts_come_when_every_service_has_the_sample_and_never_without_any() {
        let mut buffer = ResendBuffer::default();
        buffer.push(1, &record(b"payload"));
        let pending = wait(&mut buffer, 1, Guarantee::Durable);
        assert!(buffer.settle(&[]).receipts.is_empty());
        buffer.stored("a".to_owned(), durable(1));
        assert!(buffer.settle(&[]).receipts.is_empty(), "it has gone again");
        tell(buffer.settle(&["a".to_owned()]));
        assert_eq!(pending.outcome().unwrap().unwrap().sequence, 1);
        assert!(buffer.is_empty());
    }

    #[test]
    fn what_is_in_every_journal_is_stored_and_is_let_go_when_it_is_on_every_disk() {
        let mut buffer = ResendBuffer::default();
        let both = ["a".to_owned(), "b".to_owned()];
        (1..=2).for_each(|sequence| buffer.push(sequence, &record(b"payload")));
        let [on_disks, in_journals] = [(1, Guarantee::Durable), (2, Guarantee::Stored)]
            .map(|(sequence, guarantee)| wait(&mut buffer, sequence, guarantee));
        let mark = |appended, durable| StoredUpTo { appended, durable };
        buffer.stored("a".to_owned(), mark(2, 2));
        buffer.stored("b".to_owned(), mark(1, 0));
        tell(buffer.settle(&both));
        assert!(in_journals.outcome().is_none() && on_disks.outcome().is_none());
        assert!(buffer.is_held(1, Guarantee::Stored) && !buffer.is_held(1, Guarantee::Durable));
        buffer.stored("b".to_owned(), mark(2, 0));
        tell(buffer.settle(&both));
        assert_eq!(in_journals.outcome().unwrap().unwrap().guarantee, Guarantee::Stored);
        assert!(on_disks.outcome().is_none(), "a stored one behind it does not wait for it");
        assert_eq!(buffer.len(), 2, "what may be lost with the power can be sent again");
        sent(&mut buffer);
        buffer.send_again(0);
        assert_eq!(sent(&mut buffer).len(), 2);
        buffer.stored("b".to_owned(), mark(0, 1));
        tell(buffer.settle(&both));
        assert_eq!(on_disks.outcome().unwrap().unwrap().guarantee, Guarantee::Durable);
        assert_eq!(buffer.len(), 1);
        let [stored, durable] =
            [Guarantee::Stored, Guarantee::Durable].map(|of| wait(&mut buffer, 3, of));
        assert_eq!(buffer.give_up().len(), 2);
        assert!(stored.outcome().is_some() && durable.outcome().is_some(), "nobody is forgotten");
    }

    #[test]
    fn room_is_told_once_half_of_it_is_free() {
        let mut buffer = ResendBuffer::default();
        let payload = vec![0; MAX_BUFFERED_BYTES / 4];
        for sequence in 1..=4 {
            assert!(!buffer.is_full());
            buffer.push(sequence, &record(&payload));
        }
        assert!(buffer.is_full());
        for (stored, room) in [(1, false), (3, true), (4, false)] {
            buffer.stored("a".to_owned(), durable(stored));
            assert_eq!(buffer.settle(&["a".to_owned()]).room, room, "{stored}");
        }
    }
}
