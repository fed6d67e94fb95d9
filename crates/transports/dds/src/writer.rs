//! Writes the samples of one producer to one partition.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::{Published, Receipt, Record, Writer, WriterRequest, locked};
use helio_bus::{
    Guarantee, Incompatible, PendingReceipt, PublishError, ReceiptSender, TransportError,
    pending_receipt,
};
use helio_core::qos::{Liveliness, Ownership};
use helio_core::{Producer, Tai};

use crate::SCHEME;
use crate::announcements::{
    Announcement, Claim, EndpointKind, OpenedEndpoint, ProducerPosition, RequestKind,
    WriterAnnouncement,
};
use crate::connection::Connection;
use crate::endpoints::{PreviousSample, WriteError, WriterEndpoints};
use crate::entity::Refused;
use crate::envelope::{FIRST_STORED, Header, OLDEST_UNACKED};
use crate::error::{engine, failed, unsupported};
use crate::laggards::{Laggards, StandingSession};
use crate::options::{
    CACHE_BYTES, CACHE_DEPTH, LARGE_SAMPLE_BYTES, MAX_KEY_BYTES, MAX_PAYLOAD_BYTES,
    PEER_RESPONSE_TIMEOUT,
};
use crate::peer_messages::{Ack, NackReason};
use crate::resend_buffer::{Burst, ResendBuffer, StoredUpTo};
use crate::topic::{PendingClaim, TopicState, no_service};

/// Notifies a publisher that there is room again.
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

/// The most pending receipts of a writer.
const MAX_PENDING_RECEIPTS: usize = 100_000;

/// How long one reader is waited for where not all acknowledge.
const LAG_CHECK: Duration = Duration::from_millis(5);
/// What is sent again at a time to a durability service on topics that wait for no reader: half of
/// what Cyclone keeps, and sends again itself if the service is slow; of large samples a MiB.
const RESEND_BURST: Burst = Burst { samples: CACHE_DEPTH as usize / 2, bytes: 1 << 20 };

/// Converts records to samples.
#[derive(Default)]
struct Serializer {
    before: PreviousSample,
    utc: UtcOffset,
    /// The sample that was sent again last, where new samples do not wait for those: its number,
    /// and whether it was typed.
    resent: Option<(u64, bool)>,
}

/// The state of a writer that the connection's threads share.
pub(crate) struct WriterCore {
    pub(crate) topic: Arc<TopicState>,
    pub(crate) partition: u32,
    pub(crate) producer: Producer,
    pub(crate) endpoints: WriterEndpoints,
    /// The newest number that was written.
    sequence: AtomicU64,
    /// The numbers of the newest envelope and of the newest typed sample. The times of both are
    /// kept if the topic has a lifespan, in nanoseconds of uptime.
    topic_sequences: [AtomicU64; 2],
    wrote_by: [AtomicU64; 2],
    claim: Option<Claim>,
    /// The ownership strength.
    strength: AtomicI32,
    liveliness: Mutex<WriterLiveness>,
    /// Locked while an announcement is sent, so that none is overtaken by an older one.
    announcing: Mutex<()>,
    /// The lease may have expired, and the other sessions have not confirmed ownership since.
    unconfirmed: AtomicBool,
    /// The incarnation that replaced this one; 0 is none.
    fenced_by: AtomicU64,
    waiting: Mutex<PendingReceipts>,
    /// Samples that durability services have not acknowledged; `None` if the topic is not stored.
    resend_buffer: Mutex<Option<ResendBuffer>>,
    /// Another writer used this incarnation before, and its samples may be stored.
    continues: bool,
    /// Locked while a sample is written, so that samples leave in the order of their numbers.
    serializer: Mutex<Serializer>,
    wants_room: AtomicBool,
    room: Mutex<Option<Notify>>,
    /// Readers take longer than a round of the acknowledgement thread.
    slow: AtomicBool,
    /// The participants whose readers have not acknowledged what was written, as of the last wait.
    laggards: Mutex<Laggards>,
    /// The bytes of large samples since all were acknowledged, if the topic waits for no reader.
    large_bytes: AtomicUsize,
}

/// When the writer last showed that it is alive.
#[derive(Debug, Clone, Copy)]
struct WriterLiveness {
    open: bool,
    /// The time of the last sign of life, by the bus's clock: time of day and uptime.
    seen: (Tai, Duration),
    /// The time of the last announced sign of life, in uptime.
    announced: Duration,
    /// The time of the last write, in uptime.
    wrote: Duration,
}

/// Receipts that wait for acknowledgements of readers.
#[derive(Debug, Default)]
struct PendingReceipts {
    receipts: VecDeque<(Receipt, ReceiptSender)>,
    /// No further receipts are completed.
    ended: bool,
}

impl WriterCore {
    /// Its position; `None` if late joiners get none of its samples: it was fenced, or its last
    /// sample has expired.
    pub(crate) fn position(&self) -> Option<ProducerPosition> {
        let now = self.connection().clock.uptime();
        let wrote = locked(&self.liveliness).wrote;
        let lifespan = self.topic.qos.lifespan;
        let expired = |wrote| lifespan.is_some_and(|span| now.saturating_sub(wrote) >= span);
        if expired(wrote) || self.fenced_by.load(Ordering::Acquire) != 0 {
            return None;
        }
        let Producer { name, incarnation } = self.producer.clone();
        // No sample is being written: what was written before is counted.
        let _serializer = locked(&self.serializer);
        let written = self.topic_sequences.iter().map(|number| number.load(Ordering::Acquire));
        let sequence = self.sequence.load(Ordering::Acquire).max(written.max().unwrap_or(0));
        let topic_sequences = [0, 1].map(|topic_index: usize| {
            let wrote = Duration::from_nanos(self.wrote_by[topic_index].load(Ordering::Acquire));
            if expired(wrote) {
                0
            } else {
                self.topic_sequences[topic_index].load(Ordering::Acquire)
            }
        });
        Some(ProducerPosition {
            partition: self.partition,
            producer: name,
            incarnation,
            sequence,
            topic_sequences,
        })
    }

    /// Waits until its endpoints have matched the topic's readers.
    pub(crate) fn await_match(&self) -> Result<(), TransportError> {
        let unmatched = self.endpoints.unmatched();
        let opened = OpenedEndpoint {
            topic: self.topic.name.clone(),
            endpoint_kind: EndpointKind::Writer,
            guids: self.endpoints.guids(),
            partitions: vec![self.partition],
        };
        self.connection().await_match(opened, || self.endpoints.matched())?;
        unmatched.into_iter().for_each(|end| end.has_matched());
        Ok(())
    }

    fn connection(&self) -> &Arc<Connection> {
        &self.topic.connection
    }

    /// Checks whether another writer has replaced this one, or has an earlier claim.
    pub(crate) fn check_ownership(&self) {
        let own = &self.producer;
        let (newer, later) = self.connection().announcements.with_state(|state| {
            let others = state.writers(&self.topic.name);
            let others = others.filter(|(_, other)| other.partition == self.partition);
            let newer = others.filter_map(|(_, other)| match other.producer == own.name {
                true => (other.incarnation > own.incarnation).then_some(other.incarnation),
                false => {
                    let fences = |claim: &Claim| claim.fences(&own.name, own.incarnation);
                    other.claim.as_ref().is_some_and(fences).then_some(own.incarnation)
                }
            });
            let newer = newer.max();
            let Some(claim) = &self.claim else { return (newer, None) };
            // After a network partition there may be two claims: the earlier one holds.
            let earlier = self.topic.holder(state, self.partition, Some(&claim.origin));
            let later = self.topic.claims(state, self.partition);
            let later = later.filter(|(other, ..)| other.origin > claim.origin);
            let strength = later.map(|(other, ..)| other.strength).max();
            (newer.or(earlier.map(|_| own.incarnation)), strength)
        });
        match (newer, later) {
            (Some(newer), _) => {
                self.fence(newer);
                // Sessions that missed the takeover would still regard this writer as the holder.
                if self.claim.is_some() {
                    self.close();
                }
            }
            (None, Some(strength)) => self.raise_strength(strength),
            (None, None) => {}
        }
    }

    /// Marks this writer as fenced. Services accept none of its samples any more, so its pending
    /// receipts fail.
    fn fence(&self, newer: u64) {
        self.fenced_by.store(newer, Ordering::Release);
        let told =
            locked(&self.resend_buffer).as_mut().map(ResendBuffer::give_up).unwrap_or_default();
        let fenced = TransportError::Fenced { producer: self.producer.clone(), newer };
        told.into_iter().for_each(|(_, sender)| sender.complete(Err(fenced.clone().into())));
    }

    /// Raises the ownership strength above that of a later claim, which was admitted during a
    /// network partition. Readers accept the stronger writer.
    fn raise_strength(&self, later: i32) {
        let stronger = later.saturating_add(1);
        if self.strength.fetch_max(stronger, Ordering::AcqRel) <= later {
            // If this fails, readers accept the other writer until it closes.
            let _ = self.endpoints.strengthen(stronger);
            let _ = self.announce();
        }
    }

    fn check(&self) -> Result<(), TransportError> {
        self.connection().check_open()?;
        match self.fenced_by.load(Ordering::Acquire) {
            0 => Ok(()),
            newer => Err(TransportError::Fenced { producer: self.producer.clone(), newer }),
        }
    }

    /// Asks the sessions that have the topic open whether another writer took over. Waits at most
    /// half a lease, because a participant that just died does not respond.
    fn confirm_ownership(&self) -> Result<(), TransportError> {
        let timeout = match self.topic.qos.liveliness {
            Liveliness::Lease(_) if !self.unconfirmed.swap(false, Ordering::AcqRel) => {
                return Ok(());
            }
            Liveliness::Lease(lease) => PEER_RESPONSE_TIMEOUT.min(lease / 2),
            Liveliness::Automatic => PEER_RESPONSE_TIMEOUT,
        };
        let announcements = &self.connection().announcements;
        let holders = announcements.with_state(|state| state.holders(&self.topic.name));
        let asked = announcements.request_within(timeout, Some(holders), RequestKind::Nothing);
        if asked.is_err() {
            self.unconfirmed.store(true, Ordering::Release);
        }
        asked.map(drop)
    }

    /// Its announcement, and the time of the last sign of life in it.
    fn announcement(&self) -> (Announcement, Duration) {
        let WriterLiveness { open, seen: (seen, at), .. } = *locked(&self.liveliness);
        let idle_nanos = self.connection().clock.uptime().saturating_sub(at);
        let strength = self.strength.load(Ordering::Acquire);
        let announcement = Announcement::Writer {
            topic: self.topic.name.clone(),
            writer: WriterAnnouncement {
                partition: self.partition,
                producer: self.producer.name.clone(),
                incarnation: self.producer.incarnation,
                open,
                last_active_tai_ns: seen.nanos(),
                idle_nanos: u64::try_from(idle_nanos.as_nanos()).unwrap_or(u64::MAX),
                claim: self.claim.clone().map(|claim| Claim { strength, ..claim }),
            },
        };
        (announcement, at)
    }

    /// Announces its state.
    fn announce(&self) -> Result<(), TransportError> {
        let _alone = locked(&self.announcing);
        let (announcement, at) = self.announcement();
        self.connection().announcements.announce(announcement)?;
        let mut liveliness = locked(&self.liveliness);
        if let Liveliness::Lease(lease) = self.topic.qos.liveliness
            && at.saturating_sub(liveliness.announced) >= lease / 2
        {
            self.unconfirmed.store(true, Ordering::Release);
        }
        liveliness.announced = at;
        Ok(())
    }

    /// Updates this session's own state before the others receive the announcement.
    pub(crate) fn is_known_here(&self) {
        if self.is_due() {
            self.connection().announcements.apply_locally(self.announcement().0);
        }
    }

    /// Announces its idle time again if the topic has a lease.
    pub(crate) fn announce_again(&self) {
        if matches!(self.topic.qos.liveliness, Liveliness::Lease(_))
            && locked(&self.liveliness).open
        {
            // If this fails, the requester relies on the last announcement.
            let _ = self.announce();
        }
    }

    /// Asserts liveliness if it has published since a quarter of the lease. Publishing threads do
    /// not, because a participant that accepts no announcements would block them.
    pub(crate) fn send_pending_announcements(&self) {
        if self.is_due() {
            // Readers apply the lease to each endpoint, and samples may go to one of them only.
            let _ = self.endpoints.assert_alive();
            // If this fails, it stays due.
            let _ = self.announce();
        }
    }

    fn is_due(&self) -> bool {
        let Liveliness::Lease(lease) = self.topic.qos.liveliness else { return false };
        let WriterLiveness { open, seen: (_, seen), announced, .. } = *locked(&self.liveliness);
        open && seen.saturating_sub(announced) >= lease / 4
    }

    fn mark_alive(&self) {
        let clock = &self.connection().clock;
        locked(&self.liveliness).seen = (clock.now(), clock.uptime());
    }

    /// Records a publish as a sign of life, if the topic has a lease or a lifespan.
    fn wrote(&self) {
        let leased = matches!(self.topic.qos.liveliness, Liveliness::Lease(_));
        if leased || self.topic.qos.lifespan.is_some() {
            self.mark_alive();
            let mut liveliness = locked(&self.liveliness);
            liveliness.wrote = liveliness.seen.1;
            drop(liveliness);
            if self.is_due() {
                self.connection().ring();
            }
        }
    }

    /// Passes a sample to Cyclone. A buffered sample was accepted before, so it is written as an
    /// envelope if the type that was adopted since cannot hold it.
    fn write(
        &self,
        record: &Record<'_>,
        sequence: u64,
        flags: u8,
        buffered: bool,
    ) -> Result<(), WriteError> {
        let Serializer { before, utc, .. } = &mut *locked(&self.serializer);
        let header = Header::of(record, &self.producer, self.partition, sequence);
        let header = Header { flags, ..header };
        let time = utc.nanos(record.time).max(0);
        let typed = match self.endpoints.write(&header, record.payload, time, before) {
            Err(WriteError::Value(_)) if buffered => {
                self.endpoints.write_envelope(&header, record.payload, time, before)?;
                false
            }
            written => written?,
        };
        let topic_index = usize::from(typed);
        if self.topic.qos.lifespan.is_some() {
            let now = u64::try_from(self.connection().clock.uptime().as_nanos());
            self.wrote_by[topic_index].store(now.unwrap_or(u64::MAX), Ordering::Release);
        }
        self.topic_sequences[topic_index].fetch_max(sequence, Ordering::AcqRel);
        Ok(())
    }

    /// Checks a value before it is buffered: later there is no caller to receive the error.
    fn check_value(&self, record: &Record<'_>, sequence: u64) -> Result<(), PublishError> {
        let serializer = &mut *locked(&self.serializer);
        let header = Header::of(record, &self.producer, self.partition, sequence);
        let checked = self.endpoints.check(&header, record.payload, &mut serializer.before);
        checked.map_err(PublishError::Encode)
    }

    /// Sends unsent buffered samples. If there is no room, the acknowledgement thread continues.
    /// Writers that wait for no reader have sent all of them once; those send them again in
    /// portions, and new samples in between.
    fn send_buffered(&self, buffer: &mut ResendBuffer) -> Result<(), TransportError> {
        let bursts = self.topic.waits_for_no_reader();
        let burst = if bursts { RESEND_BURST } else { Burst::UNLIMITED };
        let swap = || {
            let Serializer { before, resent, .. } = &mut *locked(&self.serializer);
            std::mem::swap(&mut before.written, resent);
        };
        // The lock on `resend_buffer` excludes other writes.
        bursts.then(swap);
        let write =
            |sequence, record: &Record<'_>, flags| self.write(record, sequence, flags, true);
        let sent = buffer.send(burst, write);
        bursts.then(swap);
        match sent {
            Ok(true) => Ok(()),
            Ok(false) | Err(WriteError::Refused(Refused::Full)) => {
                self.wants_room.store(true, Ordering::Release);
                self.connection().await_receipts();
                Ok(())
            }
            Err(WriteError::Refused(Refused::Failed(error))) => Err(engine("publish", error)),
            Err(WriteError::Value(told)) => Err(engine("publish", std::io::Error::other(told))),
        }
    }

    /// Resends the samples behind a number that are not acknowledged: a durability service may lack
    /// them.
    pub(crate) fn send_again(&self, behind: u64) {
        if let Some(buffer) = &mut *locked(&self.resend_buffer) {
            buffer.send_again(behind);
            locked(&self.serializer).resent = None;
            // Samples that fail stay buffered; the next publish reports the error.
            let _ = self.send_buffered(buffer);
        }
    }

    /// Applies an ack of a durability service.
    pub(crate) fn stored(&self, service: &str, stored: &Ack) {
        let Ack { position, appended, nack, .. } = stored;
        let own = self.producer.name == position.producer
            && self.producer.incarnation == position.incarnation
            && self.partition == position.partition;
        if !own {
            return;
        }
        if let Some(NackReason::Fenced { newer_incarnation }) = nack {
            return self.fence(*newer_incarnation);
        }
        let mut is_taken = true;
        if let Some(buffer) = &mut *locked(&self.resend_buffer) {
            let durable = position.sequence;
            let mark = StoredUpTo { appended: durable.max(*appended), durable };
            buffer.stored(service.to_owned(), mark);
            if matches!(nack, Some(NackReason::Refused { .. })) {
                buffer.refused(service.to_owned());
                is_taken = buffer.is_taken(&self.services());
            }
        }
        match nack {
            Some(NackReason::Missing) => self.send_again(position.sequence.max(*appended)),
            Some(NackReason::Refused { cause }) if !is_taken => {
                self.settle();
                self.give_up(ResendBuffer::give_up, cause);
            }
            _ => {}
        }
    }

    /// The durability services that receipts wait for.
    fn services(&self) -> Vec<String> {
        self.connection().announcements.with_state(|state| {
            let services = state
                .complete_services(&self.topic.name)
                .filter(|(_, service_state)| service_state.ready);
            services.map(|(name, _)| name.clone()).collect()
        })
    }

    /// Fails pending receipts. Their samples stay buffered, and may become durable later.
    fn give_up(
        &self,
        waiting: fn(&mut ResendBuffer) -> Vec<(Receipt, ReceiptSender)>,
        cause: &str,
    ) {
        let told = locked(&self.resend_buffer).as_mut().map(waiting).unwrap_or_default();
        for (_, sender) in told {
            sender.complete(Err(PublishError::Unknown { cause: cause.to_owned() }));
        }
    }

    /// Completes the receipts of samples that all services have acknowledged.
    pub(crate) fn settle(&self) {
        let mut buffer = locked(&self.resend_buffer);
        let Some(waiting) = buffer.as_mut().filter(|buffer| !buffer.is_empty()) else {
            return;
        };
        let ready = self.services();
        let settled = waiting.settle(&ready);
        if !ready.is_empty() && self.fenced_by.load(Ordering::Acquire) == 0 {
            waiting.send_overdue(Instant::now(), |sequence, record, flags| {
                // A sample that cannot be sent now is sent after the next timeout. The next new
                // sample does not follow it, so `written` is restored; the lock on `resend_buffer`
                // excludes other writes.
                let written = locked(&self.serializer).before.written;
                let _ = self.write(record, sequence, flags, true);
                locked(&self.serializer).before.written = written;
            });
        }
        drop(buffer);
        settled.receipts.into_iter().for_each(|(receipt, sender)| sender.complete(Ok(receipt)));
        // A ready service in trouble accepts samples but cannot sync them to its disk.
        if let Some(cause) =
            self.connection().announcements.with_state(|state| state.trouble(&self.topic.name))
        {
            let is_taken = !ready.is_empty();
            self.give_up(
                if is_taken { ResendBuffer::give_up_durable } else { ResendBuffer::give_up },
                &cause,
            );
        }
        if settled.room {
            let notify = locked(&self.room).clone();
            notify.into_iter().for_each(|notify| notify());
        }
    }

    /// Whether the acknowledgement thread must wait for this writer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.wants_room.load(Ordering::Acquire) || !locked(&self.waiting).receipts.is_empty()
    }

    /// Waits for acknowledgements; completes receipts, and notifies a publisher that waits for
    /// room.
    pub(crate) fn wait(&self, at_most: Duration) {
        let written = self.sequence.load(Ordering::Acquire);
        if self.is_acknowledged(at_most) {
            self.complete(written);
        } else if !self.topic.waits_for_no_reader() && !self.slow.swap(true, Ordering::AcqRel) {
            self.connection().await_slow_receipts();
        }
        // If there is still no room, the next publish sets the flag again.
        if self.wants_room.swap(false, Ordering::AcqRel) {
            if let Some(buffer) = &mut *locked(&self.resend_buffer) {
                // Samples that fail stay buffered; the next publish reports the error.
                let _ = self.send_buffered(buffer);
            }
            let notify = locked(&self.room).clone();
            notify.into_iter().for_each(|notify| notify());
        }
    }

    /// Whether receipts wait for readers that take longer than [`wait`](Self::wait) waits.
    pub(crate) fn is_slow(&self) -> bool {
        let slow = self.slow.load(Ordering::Acquire) && !locked(&self.waiting).receipts.is_empty();
        if !slow {
            self.slow.store(false, Ordering::Release);
        }
        slow
    }

    /// Waits longer for acknowledgements, and completes receipts.
    pub(crate) fn wait_longer(&self, at_most: Duration) {
        let written = self.sequence.load(Ordering::Acquire);
        if matches!(self.endpoints.wait_for_acknowledgements(at_most), Ok(true)) {
            self.slow.store(false, Ordering::Release);
            self.complete(written);
        }
    }

    /// Completes the receipts up to a number.
    fn complete(&self, written: u64) {
        let mut told = Vec::new();
        let mut waiting = locked(&self.waiting);
        let receipts = &mut waiting.receipts;
        while receipts.front().is_some_and(|(receipt, _)| receipt.sequence <= written) {
            told.extend(receipts.pop_front());
        }
        drop(waiting);
        told.into_iter().for_each(|(receipt, sender)| sender.complete(Ok(receipt)));
    }

    /// Waits until the readers have acknowledged all samples; false after `at_most`, or little
    /// more. Readers that stand still do not count if the topic's writers wait for none.
    fn is_acknowledged(&self, at_most: Duration) -> bool {
        let excuses = self.topic.waits_for_no_reader();
        let standing = locked(&self.laggards).standing();
        if !excuses || standing.is_empty() {
            match self.endpoints.wait_for_acknowledgements(at_most) {
                Ok(true) => {
                    locked(&self.laggards).clear();
                    self.large_bytes.store(0, Ordering::Relaxed);
                    return true;
                }
                Ok(false) => {}
                Err(_) => return false,
            }
        }
        let lagging = self.endpoints.lagging(&standing, LAG_CHECK);
        let (now, participant) = (Instant::now(), &self.connection().participant);
        let mut laggards = locked(&self.laggards);
        laggards.update(&lagging, now, |end| participant.process(end.participant_handle));
        if excuses {
            return laggards.all_stand();
        }
        for session in laggards.news() {
            self.report_waiting(&session);
        }
        lagging.is_empty()
    }

    /// Reports a session that stands still while something waits for it.
    fn report_waiting(&self, StandingSession { name, ended }: &StandingSession) {
        let lease_s = self.connection().lease.as_secs();
        let (cause, remedy) = match ended {
            true => ("process has ended", ""),
            false => ("reader does not keep up", "; continue or end its process"),
        };
        // If standard error is closed, the warning is lost.
        let _ = writeln!(
            std::io::stderr().lock(),
            "heliograph: {} of {} waits for the DDS {name}, whose {cause}; it counts as gone after \
             {lease_s} s of silence (lease_s){remedy}",
            self.producer.name,
            self.topic.name
        );
    }

    /// The error of a refused publish; if there is no room, the acknowledgement thread reports when
    /// there is.
    fn refused(&self, error: WriteError) -> PublishError {
        match error {
            WriteError::Value(told) => PublishError::Encode(told),
            WriteError::Refused(Refused::Failed(error)) => engine("publish", error).into(),
            WriteError::Refused(Refused::Full) => {
                self.wants_room.store(true, Ordering::Release);
                self.connection().await_receipts();
                self.full(0, None)
            }
        }
    }

    /// The error of a publish without room; `services` are the durability services that it waits
    /// for.
    fn full(&self, queued: usize, services: Option<String>) -> PublishError {
        let waits_for = services.or_else(|| locked(&self.laggards).names());
        PublishError::Full { transport: SCHEME.to_owned(), queued, waits_for }
    }

    /// Whether a sample may be written without a wait: large ones of a topic that waits for no
    /// reader are counted, so that the bytes that Cyclone keeps for a reader that lags are bounded.
    fn fits_cache(&self, record: &Record<'_>) -> bool {
        let size = record.payload.len() + record.key.len();
        if size <= LARGE_SAMPLE_BYTES || !self.topic.waits_for_no_reader() {
            return true;
        }
        if self.large_bytes.load(Ordering::Relaxed) + size > CACHE_BYTES {
            if !matches!(self.endpoints.wait_for_acknowledgements(Duration::ZERO), Ok(true)) {
                return false;
            }
            self.large_bytes.store(0, Ordering::Relaxed);
        }
        self.large_bytes.fetch_add(size, Ordering::Relaxed);
        true
    }

    /// Announces that it is closed, once. A later announcement would be taken for its successor's.
    pub(crate) fn close(&self) {
        let open = std::mem::replace(&mut locked(&self.liveliness).open, false);
        let announcements = &self.connection().announcements;
        let succeeded = announcements.with_state(|state| {
            state.writers(&self.topic.name).any(|(by, other)| {
                by == announcements.session
                    && (other.partition, &other.producer) == (self.partition, &self.producer.name)
                    && other.incarnation > self.producer.incarnation
            })
        });
        if open && !succeeded && !self.connection().is_closed() {
            // If this fails, the writer ends with its session.
            let _ = self.announce();
        }
    }

    /// The notification of room.
    pub(crate) fn room(&self) -> Option<Notify> {
        locked(&self.room).clone()
    }

    /// Fails all pending receipts, and completes none from now on.
    pub(crate) fn end(&self) {
        let mut waiting = locked(&self.waiting);
        waiting.ended = true;
        let receipts = std::mem::take(&mut waiting.receipts);
        drop(waiting);
        let buffer =
            locked(&self.resend_buffer).as_mut().map(ResendBuffer::give_up).unwrap_or_default();
        receipts
            .into_iter()
            .chain(buffer)
            .for_each(|(_, sender)| sender.complete(Err(TransportError::Closed.into())));
        let notify = locked(&self.room).take();
        notify.into_iter().for_each(|notify| notify());
    }
}

/// A writer, as the bus uses it.
pub(crate) struct DdsWriter {
    pub(crate) shared: Arc<WriterCore>,
    /// The next sample's number.
    pub(crate) next: u64,
    /// Services were asked to sync this topic at once.
    sync_requested: bool,
}

impl DdsWriter {
    pub(crate) fn open(
        topic: &Arc<TopicState>,
        request: &WriterRequest<'_>,
    ) -> Result<Self, TransportError> {
        let newest = topic.newest(request.producer)?;
        let incarnation = topic.connection.start_nanos().max(newest.saturating_add(1));
        let producer = Producer { name: request.producer.clone(), incarnation };
        Self::open_as(topic, request.partition, producer, false)
    }

    /// Opens a writer with a given incarnation; `continues` if other writers have used it before.
    pub(crate) fn open_as(
        topic: &Arc<TopicState>,
        partition: u32,
        producer: Producer,
        continues: bool,
    ) -> Result<Self, TransportError> {
        let connection = &topic.connection;
        topic.partitions(&[partition])?;
        let (seen, up) = (connection.clock.now(), connection.clock.uptime());
        let claim = topic.claim(partition, &producer, seen.nanos())?;
        let strength = claim.as_ref().map(|announced| announced.claim.strength);
        if topic.is_kept() {
            connection.subscribe_acks()?;
        }
        let endpoints = WriterEndpoints::open(topic, partition, strength)?;
        let shared = Arc::new(WriterCore {
            topic: Arc::clone(topic),
            partition,
            producer,
            endpoints,
            sequence: AtomicU64::new(0),
            topic_sequences: Default::default(),
            wrote_by: Default::default(),
            claim: claim.as_ref().map(|announced| announced.claim.clone()),
            strength: AtomicI32::new(strength.unwrap_or(0)),
            liveliness: Mutex::new(WriterLiveness {
                open: true,
                seen: (seen, up),
                announced: up,
                wrote: up,
            }),
            announcing: Mutex::default(),
            unconfirmed: AtomicBool::new(false),
            fenced_by: AtomicU64::new(0),
            waiting: Mutex::default(),
            resend_buffer: Mutex::new(
                topic.is_kept().then(|| ResendBuffer::default().continues(continues)),
            ),
            continues,
            serializer: Mutex::default(),
            wants_room: AtomicBool::new(false),
            room: Mutex::default(),
            slow: AtomicBool::new(false),
            laggards: Mutex::default(),
            large_bytes: AtomicUsize::new(0),
        });
        connection.add_writer(&shared);
        // From now on dropping it announces that it is closed, even after an error.
        let this = Self { shared, next: 1, sync_requested: false };
        claim.into_iter().for_each(PendingClaim::hold);
        let shared = &this.shared;
        shared.announce()?;
        // Replaced writers of this connection check their ownership, like those of other sessions.
        connection.writers().iter().for_each(|writer| writer.check_ownership());
        shared.await_match()?;
        Ok(this)
    }

    fn send(&mut self, record: &Record<'_>) -> Result<Receipt, PublishError> {
        let shared = &self.shared;
        shared.check()?;
        if shared.endpoints.retry_adopting_schema(&shared.topic)? {
            shared.connection().match_in_background(&shared.topic.name);
        }
        record.check_size(SCHEME, MAX_PAYLOAD_BYTES, MAX_KEY_BYTES)?;
        let sequence = self.next;
        if let Some(buffer) = &mut *locked(&shared.resend_buffer) {
            if buffer.is_full() {
                let services = buffer.waits_for(&shared.services());
                return Err(shared.full(buffer.len(), services));
            }
            shared.check_value(record, sequence)?;
            buffer.push(sequence, record);
            let sent = if shared.topic.waits_for_no_reader() {
                let newest =
                    buffer.send_newest(|n, record, flags| shared.write(record, n, flags, true));
                newest.map_err(|error| shared.refused(error))
            } else {
                shared.send_buffered(buffer).map_err(PublishError::from)
            };
            if let Err(error) = sent {
                buffer.retract();
                return Err(error);
            }
        } else {
            if !shared.fits_cache(record) {
                return Err(shared.refused(WriteError::Refused(Refused::Full)));
            }
            // No earlier sample had to be stored.
            let written = shared.write(record, sequence, OLDEST_UNACKED | FIRST_STORED, false);
            written.map_err(|error| shared.refused(error))?;
        }
        self.next += 1;
        shared.sequence.fetch_max(sequence, Ordering::Release);
        shared.wrote();
        let (partition, guarantee) = (shared.partition, Guarantee::Accepted);
        Ok(Receipt { partition, offset: None, sequence, guarantee })
    }

    /// Makes durability services store samples from now on, though the topic's quality of service
    /// does not require it.
    fn require_durable(&mut self) -> Result<(), PublishError> {
        if locked(&self.shared.resend_buffer).is_some() {
            self.request_sync();
            return Ok(());
        }
        let shared = &self.shared;
        if !shared.connection().has_service() {
            return Err(no_service("give durable receipts", &shared.topic).into());
        }
        shared.connection().subscribe_acks()?;
        shared
            .connection()
            .announcements
            .announce(Announcement::StorageRequest { topic: shared.topic.name.clone() })?;
        let before = shared.sequence.load(Ordering::Acquire);
        let buffer = ResendBuffer::behind(before).continues(shared.continues);
        *locked(&shared.resend_buffer) = Some(buffer.best_effort(!shared.topic.is_reliable()));
        Ok(())
    }

    /// Asks durability services to sync this topic at once instead of at their own interval.
    fn request_sync(&mut self) {
        let topic = &self.shared.topic;
        let is_buffered = locked(&self.shared.resend_buffer).is_some();
        if is_buffered && !self.sync_requested && topic.qos.guarantee < Guarantee::Durable {
            // If this fails, the services sync at their own interval.
            let announced = topic
                .connection
                .announcements
                .announce(Announcement::StorageRequest { topic: topic.name.clone() });
            self.sync_requested = announced.is_ok();
        }
    }

    /// Checks that all published samples can become durable. Samples published before durability
    /// was requested cannot.
    fn check_durable(&self) -> Result<(), TransportError> {
        let topic = &self.shared.topic;
        let before = match &*locked(&self.shared.resend_buffer) {
            Some(buffer) => buffer.before(),
            None => self.shared.sequence.load(Ordering::Acquire),
        };
        if before == 0 {
            return Ok(());
        }
        let what = format!("flush {} to durable", topic.name);
        if !self.shared.connection().has_service() {
            return Err(no_service(&what, topic));
        }
        let remedy = format!(
            "its samples up to number {before} were published with a weaker guarantee: publish \
             each with `durable` from the first one on, or make the topic `persistent`"
        );
        Err(unsupported(what, &remedy))
    }

    /// The result of a publish under a guarantee: done if no reader has to acknowledge the sample
    /// any more, otherwise pending.
    fn outcome_of(
        &self,
        receipt: Receipt,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        if guarantee == Guarantee::Accepted {
            return Ok(Published::Done(receipt));
        }
        let receipt = Receipt { guarantee, ..receipt };
        if let Some(buffer) = &mut *locked(&self.shared.resend_buffer) {
            if buffer.is_held(receipt.sequence, guarantee) {
                return Ok(Published::Done(receipt));
            }
            // `end` and `fence` lock the buffer before they fail receipts, so none is added after
            // that.
            self.shared.check()?;
            let (sender, pending) = pending_receipt();
            buffer.wait(receipt, sender);
            return Ok(Published::Pending(pending));
        }
        let awaited = self.shared.endpoints.awaits_acknowledgements();
        if !awaited.map_err(failed("check for acknowledgements"))? {
            return Ok(Published::Done(receipt));
        }
        let (sender, pending) = pending_receipt();
        let mut waiting = locked(&self.shared.waiting);
        if waiting.ended {
            return Err(TransportError::Closed.into());
        }
        waiting.receipts.push_back((receipt, sender));
        drop(waiting);
        self.shared.connection().await_receipts();
        Ok(Published::Pending(pending))
    }
}

impl Writer for DdsWriter {
    fn producer(&self) -> &Producer {
        &self.shared.producer
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        if guarantee > Guarantee::Accepted
            && locked(&self.shared.waiting).receipts.len() >= MAX_PENDING_RECEIPTS
        {
            self.shared.wants_room.store(true, Ordering::Release);
            self.shared.connection().await_receipts();
            return Err(self.shared.full(MAX_PENDING_RECEIPTS, None));
        }
        if guarantee == Guarantee::Durable {
            self.require_durable()?;
        }
        let receipt = self.send(record)?;
        self.outcome_of(receipt, guarantee)
    }

    fn on_room(&mut self, notify: Notify) {
        *locked(&self.shared.room) = Some(notify);
    }

    /// Asserts liveliness. If the topic is exclusive and the lease may have expired, waits until
    /// the other sessions confirm ownership.
    fn assert_alive(&mut self) -> Result<(), TransportError> {
        let shared = &self.shared;
        shared.check()?;
        let leased = matches!(shared.topic.qos.liveliness, Liveliness::Lease(_));
        if leased || shared.topic.qos.ownership == Ownership::Exclusive {
            shared.mark_alive();
            shared.announce()?;
            shared.endpoints.assert_alive().map_err(failed("assert liveliness"))?;
            if shared.claim.is_some() {
                shared.confirm_ownership()?;
                shared.check_ownership();
            }
        }
        shared.check()
    }

    fn incompatible(&self) -> Vec<Incompatible> {
        locked(self.shared.endpoints.incompatible()).all()
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.shared.connection().check_open()?;
        let sequence = self.shared.sequence.load(Ordering::Relaxed);
        if guarantee == Guarantee::Durable {
            self.check_durable()?;
            self.request_sync();
        }
        let partition = self.shared.partition;
        let receipt = Receipt { partition, offset: None, sequence, guarantee: Guarantee::Accepted };
        match self.outcome_of(receipt, guarantee)? {
            Published::Done(_) => Ok(None),
            Published::Pending(pending) => Ok(Some(pending)),
        }
    }
}

impl Drop for DdsWriter {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Converts TAI to UTC, with one calendar lookup a second.
#[derive(Default)]
struct UtcOffset {
    second: i64,
    /// TAI - UTC in that second, in nanoseconds; `None` before the first lookup.
    offset: Option<i64>,
}

impl UtcOffset {
    fn nanos(&mut self, time: Tai) -> i64 {
        let second = time.nanos().div_euclid(1_000_000_000);
        let offset = match self.offset.filter(|_| second == self.second) {
            Some(offset) => offset,
            None => time.nanos() - time.unix_nanos(),
        };
        (self.second, self.offset) = (second, Some(offset));
        time.nanos() - offset
    }
}

#[cfg(test)]
mod tests;
