//! Forwards the samples of a topic that is open on both buses.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use helio_bus::{
    Alive, Event, Forwarder, GapCause, Outage, PendingPublish, PendingTask, Producer, PublishError,
    Sample, SchemaId, Subscription, Topic, TopicError, TopicName, TransportError, Undecodable,
    WriterInfo,
};
use helio_core::headers::MAX_HEADERS_BYTES;
use helio_core::qos::Ownership;

use crate::checkpoints::Checkpoint;
use crate::context::{BridgeContext, rewinds};
use crate::hops::{Hops, MAX_HOPS, Mark, with_hop};
use crate::liveliness::{LivelinessMonitor, tracks_liveliness};
use crate::opening::Opened;
use crate::reconcile::SampleStatus;
use crate::report::{NoticeKind, Reporter};
use crate::resume_state::ResumeState;
use crate::target::{self, Both, OpenError};
use crate::types::{
    DeliveryFailure, IdleProducer, OpenWriter, PartitionOffset, ProducerKey, ProducerSequence,
    REASON_SEQUENCE_TAKEN, REASON_SUPERSEDED, SampleIdentity, UNNUMBERED,
};

/// The most samples of a topic in flight to the target.
pub const MAX_IN_FLIGHT: usize = 8192;
/// The most bytes of a topic in flight, counting payloads and keys.
pub const MAX_IN_FLIGHT_BYTES: usize = 16 << 20;
/// The most producers of a topic with an open writer on the target.
pub const MAX_FORWARDERS: usize = 1024;

/// How often the source is queried for a schema that it lacks.
const SCHEMA_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How often opening the writers of idle producers is retried.
const WRITER_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a source may take to discover live producers after connecting.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of an attempt to forward.
pub(crate) enum Flow {
    /// The next sample can follow.
    Continue,
    /// The target accepts no more at present.
    Full,
    /// Settle the samples in flight, then reopen the topic; with the cause.
    Reopen(String),
    /// The same, until an operator decides.
    Refused(String),
}

/// A topic that is open on both buses.
pub(crate) struct OpenTopic {
    name: TopicName,
    source: Topic,
    target: Topic,
    pub(crate) state: Box<ResumeState>,
    /// Producers that publish on the target themselves: the newest refused incarnation, and the one
    /// that fenced it.
    refused: HashMap<ProducerKey, (u64, u64)>,
    /// The sample for which a fenced writer was opened again.
    fenced: Option<PartitionOffset>,
    /// Schemas that the target has, and those that the source lacks with the time of the last
    /// query.
    schemas: HashMap<SchemaId, Option<Instant>>,
    in_flight: VecDeque<InFlight>,
    bytes_in_flight: usize,
    /// The offsets in flight by partition, oldest first.
    offsets_in_flight: HashMap<u32, VecDeque<u64>>,
    /// Samples whose delivery failed.
    failed: Vec<Sample>,
    /// The preparation that the next sample waits for.
    preparing: Option<PendingTask<Prepared>>,
    uses: u64,
    /// When opening idle producers' writers was tried last.
    idle_writers_tried_at: Option<Instant>,
    opened: Instant,
    has_forwarded: bool,
}

/// A sample that is not settled.
struct InFlight {
    position: PartitionOffset,
    delivery: Delivery,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are the large one")]
enum Delivery {
    /// The target accepted it and has not acknowledged it.
    Sent(Sample, PendingPublish),
    /// It is not sent, and waits only for the ones before it.
    Skipped(SampleIdentity),
}

/// The schemas and writers that a thread has prepared.
#[derive(Default)]
struct Prepared {
    /// Writers of live idle producers.
    idle: Vec<(ProducerKey, Forwarder, u64)>,
    /// Idle producers to retry.
    rests: Vec<IdleProducer>,
    schema: Option<(SchemaId, Result<bool, OpenError>)>,
    forwarder: Option<(ProducerKey, OpenedWriter)>,
}

/// The requested incarnation, and the writer.
type OpenedWriter = (u64, Result<Forwarder, TopicError>);

/// Why a sample was not sent.
enum ForwardError {
    Full,
    /// The target will never accept it.
    Never(String),
    /// Its producer's writer was fenced.
    Fenced(String),
    /// The target may accept it after the topic was reopened.
    Retry(String),
    /// The source's log was truncated or recreated.
    SourceReplaced,
    /// The target accepts no forwarded samples.
    Unsupported(String),
}

impl From<PublishError> for ForwardError {
    fn from(error: PublishError) -> Self {
        match &error {
            PublishError::Full { .. } => Self::Full,
            PublishError::Transport(TransportError::TooLarge { .. }) | PublishError::Encode(_) => {
                Self::Never(error.to_string())
            }
            PublishError::Transport(TransportError::Fenced { .. }) => {
                Self::Fenced(error.to_string())
            }
            PublishError::Transport(TransportError::Unsupported { .. }) => {
                Self::Unsupported(error.to_string())
            }
            _ => Self::Retry(error.to_string()),
        }
    }
}

impl From<TopicError> for ForwardError {
    fn from(error: TopicError) -> Self {
        match error {
            // The owner on the target is older.
            TopicError::Transport(error @ TransportError::Fenced { .. }) => {
                Self::Never(error.to_string())
            }
            TopicError::Transport(error) => PublishError::from(error).into(),
            error => Self::Retry(error.to_string()),
        }
    }
}

impl OpenTopic {
    pub(crate) fn new(name: &TopicName, state: Box<ResumeState>, opened: Opened) -> Self {
        let Opened { both: Both { source, target, .. }, schemas, .. } = opened;
        Self {
            name: name.clone(),
            source,
            target,
            state,
            refused: HashMap::new(),
            fenced: None,
            schemas: schemas.into_iter().map(|id| (id, None)).collect(),
            in_flight: VecDeque::new(),
            bytes_in_flight: 0,
            offsets_in_flight: HashMap::new(),
            failed: Vec::new(),
            preparing: None,
            uses: 0,
            idle_writers_tried_at: None,
            opened: Instant::now(),
            has_forwarded: false,
        }
    }

    /// Handles an event of the source.
    pub(crate) fn handle(
        &mut self,
        context: &BridgeContext,
        event: Event,
        reporter: &mut Reporter<'_>,
    ) -> Flow {
        match event {
            // The source refuses one for its headers: it is reported in its turn.
            Event::Sample(sample) | Event::Undecodable(Undecodable { sample, .. }) => {
                self.state.enqueue(context, sample);
                self.forward_pending(context, reporter)
            }
            Event::Gap(gap) => {
                reporter.figures.lost += gap.lost;
                if let GapCause::Retention { to, .. } = gap.cause {
                    reporter.figures.uncounted += u64::from(gap.lost == 0);
                    // The gap is not reported again when the source is reread.
                    self.state.next.insert(gap.partition, to);
                    self.state.skip_sequences(gap.partition, gap.lost);
                }
                let text = format!(
                    "{} samples of partition {} are lost: {:?}",
                    gap.lost, gap.partition, gap.cause
                );
                reporter.notify(NoticeKind::Gap, text);
                Flow::Continue
            }
            Event::Outage(Outage::Lost { cause }) => {
                let text = format!("the source cannot be reached: {cause}");
                reporter.notify(NoticeKind::Outage, text);
                Flow::Continue
            }
            Event::Outage(Outage::Restored) => {
                let text = "the source can be reached again".to_owned();
                reporter.notify(NoticeKind::Outage, text);
                Flow::Continue
            }
            _ => Flow::Continue,
        }
    }

    /// Sends queued samples as long as the target accepts them.
    pub(crate) fn forward_pending(
        &mut self,
        context: &BridgeContext,
        reporter: &mut Reporter<'_>,
    ) -> Flow {
        while !self.is_full() {
            let Some(mut sample) = self.state.queue.pop_front() else { return Flow::Continue };
            match self.process(context, &mut sample, reporter) {
                Ok(receipt) => self.track(context, sample, receipt),
                Err(ForwardError::Never(reason)) => {
                    Self::skip(&sample, &reason, reporter);
                    self.track(context, sample, None);
                }
                // The sample is dropped and read again.
                Err(ForwardError::SourceReplaced) => {
                    return Flow::Reopen(format!(
                        "partition {} of the source was truncated or recreated; it is compared \
                         with the target",
                        sample.partition
                    ));
                }
                Err(error) => {
                    self.state.queue.push_front(sample);
                    return match error {
                        ForwardError::Retry(reason) => Flow::Reopen(reason),
                        ForwardError::Unsupported(reason) => Flow::Refused(reason),
                        ForwardError::Full
                        | ForwardError::Never(_)
                        | ForwardError::Fenced(_)
                        | ForwardError::SourceReplaced => Flow::Full,
                    };
                }
            }
        }
        Flow::Full
    }

    /// Tracks a sample that was sent, or that needs no sending.
    fn track(&mut self, context: &BridgeContext, sample: Sample, receipt: Option<PendingPublish>) {
        let position @ (partition, offset) = (sample.partition, sample.offset);
        let delivery = match receipt {
            None if self.in_flight.is_empty() => {
                return self
                    .settle(position, SampleIdentity::of(sample.as_ref(), &context.anonymous));
            }
            None => Delivery::Skipped(SampleIdentity::of(sample.as_ref(), &context.anonymous)),
            Some(receipt) => {
                self.bytes_in_flight += size(&sample);
                let high = self.state.high.entry(partition).or_default();
                *high = offset.max(*high);
                Delivery::Sent(sample, receipt)
            }
        };
        self.offsets_in_flight.entry(partition).or_default().push_back(offset);
        self.in_flight.push_back(InFlight { position, delivery });
    }

    /// The oldest offset of a partition in flight.
    fn lowest_in_flight(&self, partition: u32) -> Option<u64> {
        self.offsets_in_flight.get(&partition)?.front().copied()
    }

    /// Sends a sample to the target; returns none if it needs no sending.
    fn process(
        &mut self,
        context: &BridgeContext,
        sample: &mut Sample,
        reporter: &mut Reporter<'_>,
    ) -> Result<Option<PendingPublish>, ForwardError> {
        let hops = Hops::of(sample.headers.as_ref());
        if hops.visited(&context.to_name) || hops.visited(&context.from_name) {
            reporter.figures.returned += 1;
            return Ok(None);
        }
        if let Some(bytes) = sample.headers.as_ref().refused_bytes() {
            return Err(ForwardError::Never(format!(
                "its headers have {bytes} bytes, the limit of the bus is {MAX_HEADERS_BYTES}"
            )));
        }
        if hops.iter().count() >= MAX_HOPS {
            return Err(ForwardError::Never(format!("it was already forwarded {MAX_HOPS} times")));
        }
        let (position, key) = ((sample.partition, sample.offset), ProducerKey::of(sample));
        let is_numbered = sample.header.sequence != UNNUMBERED;
        let known =
            is_numbered && self.state.has_sequence(&key, ProducerSequence::of(sample.as_ref()));
        match self.state.failures.get(&position) {
            Some(trouble) if known => return Err(ForwardError::Never(trouble.reason().to_owned())),
            // Sent alone, so that only its own faults can refuse it.
            Some(DeliveryFailure::Refused) if !self.in_flight.is_empty() => {
                return Err(ForwardError::Full);
            }
            // Nothing overtakes a failed sample, which bounds how far back it lies.
            None if !self.state.failures.is_empty() && !self.in_flight.is_empty() => {
                return Err(ForwardError::Full);
            }
            None => match self.state.reconcile(sample, &context.anonymous) {
                Some(SampleStatus::Stored) => return Ok(None),
                Some(SampleStatus::Missing) if known => {
                    return Err(ForwardError::Never(REASON_SUPERSEDED.to_owned()));
                }
                Some(SampleStatus::Conflict) if self.state.log_differs(sample.partition) => {
                    return Err(ForwardError::SourceReplaced);
                }
                Some(SampleStatus::Conflict | SampleStatus::New) if known => {
                    return Err(ForwardError::Never(REASON_SEQUENCE_TAKEN.to_owned()));
                }
                Some(SampleStatus::Conflict | SampleStatus::New) => {}
                Some(SampleStatus::Older) => {
                    reporter.figures.repeated += 1;
                    return Ok(None);
                }
                _ if self.state.is_missing(&key, ProducerSequence::of(sample.as_ref())) => {
                    return Err(ForwardError::Never(REASON_SUPERSEDED.to_owned()));
                }
                _ if known => {
                    reporter.figures.repeated += 1;
                    if tracks_liveliness(self.target.qos()) {
                        self.state
                            .add_idle_producer(sample.partition, sample.header.producer.clone());
                    }
                    return Ok(None);
                }
                _ => {}
            },
            Some(_) => {}
        }
        self.state.assign_sequence(sample);
        self.forward(context, sample).map(Some)
    }

    fn skip(sample: &Sample, reason: &str, reporter: &mut Reporter<'_>) {
        reporter.figures.skipped += 1;
        let Producer { name, incarnation } = &sample.header.producer;
        let text = format!(
            "sample {} of {name} (incarnation {incarnation}) is not forwarded: {reason}",
            sample.header.sequence
        );
        reporter.notify(NoticeKind::Skipped, text);
    }

    fn forward(
        &mut self,
        context: &BridgeContext,
        sample: &Sample,
    ) -> Result<PendingPublish, ForwardError> {
        // Without source offsets the next bridge cannot use the mark.
        let mark = match rewinds(&context.from) {
            true => self
                .state
                .mark(sample, self.lowest_in_flight(sample.partition).unwrap_or(sample.offset)),
            false => Mark::alone(sample.offset),
        };
        let headers = with_hop(sample.headers.as_ref(), &context.from_name, mark);
        let headers = headers.map_err(|error| ForwardError::Never(error.to_string()))?;
        let (key, producer) = (ProducerKey::of(sample), &sample.header.producer);
        let refused = self.refused.get(&key).filter(|(tried, _)| producer.incarnation <= *tried);
        if let Some((_, newer)) = refused {
            let producer = Producer { name: producer.name.clone(), incarnation: *newer };
            return Err(ForwardError::Never(format!(
                "{producer:?} publishes on the target itself"
            )));
        }
        self.prepare(context, sample, &key)?;
        self.uses += 1;
        let writer = self.state.writers.get_mut(&key).ok_or(ForwardError::Full)?;
        writer.last_used = self.uses;
        let forwarded = match writer.forwarder.try_lock() {
            Ok(mut forwarder) => {
                forwarder.forward(&sample.as_ref(), headers.as_ref()).map_err(ForwardError::from)
            }
            Err(TryLockError::WouldBlock) => return Err(ForwardError::Full),
            Err(TryLockError::Poisoned(_)) => {
                Err(ForwardError::Retry("a thread of the bridge panicked".to_owned()))
            }
        };
        let reason = match forwarded {
            Err(ForwardError::Fenced(reason)) => reason,
            Err(ForwardError::Retry(reason)) => {
                self.retire_writer(&key);
                return Err(ForwardError::Retry(reason));
            }
            forwarded => return forwarded,
        };
        // The fencing writer may be gone, so each sample opens another one once.
        let writer = self.state.writers.remove(&key);
        self.close_writers(context, writer);
        let position = (sample.partition, sample.offset);
        match self.fenced.replace(position) == Some(position) {
            true => Err(ForwardError::Never(reason)),
            false => Err(ForwardError::Full),
        }
    }

    /// Closes a failed writer with the topic; it is opened again when needed.
    fn retire_writer(&mut self, key: &ProducerKey) {
        let Some(writer) = self.state.writers.remove(key) else { return };
        if tracks_liveliness(self.target.qos()) {
            let producer = Producer { name: key.producer.clone(), incarnation: writer.incarnation };
            self.state.add_idle_producer(key.partition, producer);
        }
        self.state.closing.push(writer);
    }

    /// Ensures that the target has the sample's schema and its producer's writer;
    /// [`ForwardError::Full`] until then.
    fn prepare(
        &mut self,
        context: &BridgeContext,
        sample: &Sample,
        key: &ProducerKey,
    ) -> Result<(), ForwardError> {
        self.finish_preparing()?;
        let schema = sample.header.schema;
        let asked_at = self.schemas.get(&schema);
        let has_schema =
            asked_at.is_some_and(|at| at.is_none_or(|at| at.elapsed() < SCHEMA_RETRY_INTERVAL));
        let incarnation = sample.header.producer.incarnation;
        let has_writer = self.state.writers.get(key);
        let has_writer = has_writer.map(|writer| writer.incarnation >= incarnation);
        if has_schema && has_writer == Some(true) {
            return Ok(());
        }
        if has_writer == Some(false) && !self.in_flight.is_empty() {
            // The older incarnation's samples are acknowledged first.
            return Err(ForwardError::Full);
        }
        let has_writer = has_writer == Some(true);
        let closing = if has_writer { Vec::new() } else { self.evict_writers(key) };
        let (from, to) = (context.from.clone(), context.to.clone());
        let (name, target, waker) = (self.name.clone(), self.target.clone(), context.waker.clone());
        let (producer, key, partition) =
            (sample.header.producer.clone(), key.clone(), key.partition);
        self.preparing = Some(context.preparers.run(move || {
            drop(closing);
            let carry = || target::carry_schema((&from, &to), &name, schema);
            let schema = (!has_schema).then(|| (schema, carry()));
            let open = || {
                let mut forwarder = target.forwarder(&producer, partition)?;
                forwarder.on_room(Arc::new(move || waker.wake_by_ref()));
                Ok(forwarder)
            };
            let forwarder = (!has_writer).then(|| (key, (incarnation, open())));
            Prepared { schema, forwarder, ..Prepared::default() }
        }));
        Err(ForwardError::Full)
    }

    /// Takes the prepared schemas and writers; [`ForwardError::Full`] while they are pending.
    fn finish_preparing(&mut self) -> Result<(), ForwardError> {
        let Some(preparing) = &self.preparing else { return Ok(()) };
        let Poll::Ready(prepared) = preparing.poll() else {
            return Err(ForwardError::Full);
        };
        self.preparing = None;
        let failed = || ForwardError::Retry("a thread of the bridge panicked".to_owned());
        let Prepared { idle, rests, schema, forwarder } = prepared.ok_or_else(failed)?;
        let mut outcome = Ok(());
        self.state.idle_producers.extend(rests);
        for (key, forwarder, incarnation) in idle {
            let forwarder = Arc::new(Mutex::new(forwarder));
            self.state
                .writers
                .insert(key, OpenWriter { forwarder, incarnation, last_used: self.uses });
        }
        if let Some((key, (incarnation, opened))) = forwarder {
            match opened {
                Ok(forwarder) => {
                    let forwarder = Arc::new(Mutex::new(forwarder));
                    let writer = OpenWriter { forwarder, incarnation, last_used: self.uses };
                    self.state.writers.insert(key, writer);
                }
                Err(error) => {
                    if let TopicError::Transport(TransportError::Fenced { newer, .. }) = &error {
                        self.refused.insert(key, (incarnation, *newer));
                    }
                    outcome = Err(ForwardError::from(error));
                }
            }
        }
        match schema {
            Some((id, Ok(has_text))) => {
                // The sample is forwarded without the text, which may come later.
                _ = self.schemas.insert(id, (!has_text).then(Instant::now));
            }
            Some((_, Err(OpenError::Refused(reason)))) => {
                outcome = outcome.and(Err(ForwardError::Unsupported(reason)));
            }
            Some((_, Err(error))) => {
                outcome = outcome.and(Err(ForwardError::Retry(error.to_string())))
            }
            None => {}
        }
        outcome
    }

    /// Opens the writers of producers that are alive on the source without publishing. A bridge
    /// before this one had them open, and its leases may have to expire first.
    fn open_idle_writers(&mut self, context: &BridgeContext) {
        if self.preparing.is_some() && self.finish_preparing().is_err() {
            return;
        }
        let soon =
            self.idle_writers_tried_at.is_some_and(|at| at.elapsed() < WRITER_RETRY_INTERVAL);
        if self.state.idle_producers.is_empty() || soon {
            return;
        }
        self.idle_writers_tried_at = Some(Instant::now());
        let exclusive = self.target.qos().ownership == Ownership::Exclusive;
        let writers = &self.state.writers;
        let room = if exclusive { 1 } else { MAX_FORWARDERS }.saturating_sub(writers.len());
        let taken = |rests: &IdleProducer| {
            let key =
                ProducerKey { partition: rests.partition, producer: rests.producer.name.clone() };
            writers.contains_key(&key) || self.refused.contains_key(&key)
        };
        let idle = std::mem::take(&mut self.state.idle_producers);
        let idle: Vec<_> = idle.into_iter().filter(|rests| room > 0 && !taken(rests)).collect();
        if idle.is_empty() {
            return;
        }
        let (source, target, waker) =
            (self.source.clone(), self.target.clone(), context.waker.clone());
        self.preparing = Some(context.preparers.run(move || {
            let (idle, rests) = open_live_writers((&source, &target), (idle, room), &waker);
            Prepared { idle, rests, ..Prepared::default() }
        }));
    }

    /// Removes the writers that must be closed before another is opened.
    fn evict_writers(&mut self, key: &ProducerKey) -> Vec<OpenWriter> {
        let mut closing: Vec<_> = self.state.writers.remove(key).into_iter().collect();
        if self.target.qos().ownership == Ownership::Exclusive {
            // The previous owner has ended on the source.
            let others = self.state.writers.extract_if(|other, _| other.producer != key.producer);
            closing.extend(others.map(|(_, writer)| writer));
        }
        if self.state.writers.len() >= MAX_FORWARDERS {
            let oldest = self.state.writers.iter().min_by_key(|(_, writer)| writer.last_used);
            let oldest = oldest.map(|(key, _)| key.clone());
            closing.extend(oldest.and_then(|key| self.state.writers.remove(&key)));
        }
        closing
    }

    /// Closes writers in a thread; no writer is opened meanwhile.
    fn close_writers(
        &mut self,
        context: &BridgeContext,
        closing: impl IntoIterator<Item = OpenWriter>,
    ) {
        let closing: Vec<_> = closing.into_iter().collect();
        if !closing.is_empty() {
            self.preparing = Some(context.preparers.run(move || {
                drop(closing);
                Prepared::default()
            }));
        }
    }

    /// Whether no more is to be sent at present.
    fn is_full(&self) -> bool {
        let first = self.in_flight.front();
        first.is_some_and(|first| self.is_sent_alone(first.position))
            || self.in_flight.len() >= MAX_IN_FLIGHT
            || self.bytes_in_flight >= MAX_IN_FLIGHT_BYTES
    }

    /// Whether a sample must be the only one in flight.
    fn is_sent_alone(&self, position: PartitionOffset) -> bool {
        self.state.failures.get(&position) == Some(&DeliveryFailure::Refused)
    }

    /// Whether no sample is queued, in flight or failed.
    pub(crate) fn is_settled(&self) -> bool {
        self.in_flight.is_empty() && self.state.queue.is_empty() && self.failed.is_empty()
    }

    /// Whether no receipt and no preparation is pending.
    pub(crate) fn is_idle(&mut self) -> bool {
        // The next sample reports a failure.
        let _ = self.finish_preparing();
        self.in_flight.is_empty() && self.preparing.is_none()
    }

    /// Whether earlier failures can be forgotten.
    pub(crate) fn is_healthy(&self, since: Duration) -> bool {
        self.has_forwarded || self.opened.elapsed() >= since
    }

    /// The state for the next time the topic is opened.
    pub(crate) fn into_state(mut self) -> Box<ResumeState> {
        for sample in self.failed.into_iter().rev() {
            self.state.queue.push_front(sample);
        }
        self.state
    }

    /// Whether all samples were read that were stored when the source was subscribed to.
    pub(crate) fn has_read_initial(&self, samples: &Subscription) -> bool {
        let at: HashMap<_, _> =
            samples.positions().iter().map(|at| (at.partition, at.next)).collect();
        let mut initial_ends = self.state.initial_ends.iter();
        initial_ends.all(|(partition, end)| at.get(partition).is_some_and(|next| next >= end))
    }

    pub(crate) fn pending(&self) -> usize {
        self.in_flight.len() + self.failed.len() + self.state.queue.len()
    }

    /// Polls receipts in order; the next one wakes the bridge.
    pub(crate) fn poll_receipts(
        &mut self,
        context: &BridgeContext,
        reporter: &mut Reporter<'_>,
    ) -> Flow {
        let mut flow = Flow::Continue;
        while let Some(first) = self.in_flight.front_mut() {
            let outcome = match &mut first.delivery {
                Delivery::Skipped(_) => Ok(()),
                Delivery::Sent(_, receipt) => {
                    match Pin::new(receipt).poll(&mut Context::from_waker(&context.waker)) {
                        Poll::Pending => break,
                        Poll::Ready(outcome) => outcome.map(drop),
                    }
                }
            };
            let Some(InFlight { position, delivery }) = self.in_flight.pop_front() else { break };
            if let Some(offsets_in_flight) = self.offsets_in_flight.get_mut(&position.0) {
                offsets_in_flight.pop_front();
            }
            let sample = match delivery {
                Delivery::Sent(sample, _) => sample,
                Delivery::Skipped(identity) => {
                    self.settle(position, identity);
                    continue;
                }
            };
            self.bytes_in_flight -= size(&sample);
            if let Err(error) = outcome {
                if let Some(cause) = self.delivery_failed(context, sample, &error, reporter)
                    && matches!(flow, Flow::Continue)
                {
                    flow = Flow::Reopen(cause);
                }
                continue;
            }
            reporter.figures.forwarded += 1;
            reporter.figures.bytes += sample.payload.len() as u64;
            self.has_forwarded = true;
            self.state
                .record_sequence(ProducerKey::of(&sample), ProducerSequence::of(sample.as_ref()));
            self.settle(position, SampleIdentity::of(sample.as_ref(), &context.anonymous));
        }
        flow
    }

    /// Marks a sample as settled.
    fn settle(&mut self, position: PartitionOffset, identity: SampleIdentity) {
        self.state.failures.remove(&position);
        self.state.settle_offset(position, identity);
    }

    /// Handles a failed delivery. Returns why the topic must be reopened, if so.
    fn delivery_failed(
        &mut self,
        context: &BridgeContext,
        sample: Sample,
        error: &PublishError,
        reporter: &mut Reporter<'_>,
    ) -> Option<String> {
        let position = (sample.partition, sample.offset);
        let trouble = match error {
            // Other samples of the batch may be at fault.
            PublishError::Transport(TransportError::TooLarge { .. }) | PublishError::Encode(_) => {
                if self.is_sent_alone(position) {
                    Self::skip(&sample, &error.to_string(), reporter);
                    self.settle(position, SampleIdentity::of(sample.as_ref(), &context.anonymous));
                    return None;
                }
                DeliveryFailure::Refused
            }
            PublishError::Transport(TransportError::Engine { .. }) => DeliveryFailure::Failed,
            _ => DeliveryFailure::Unknown,
        };
        let before = self.state.failures.insert(position, trouble);
        if before.is_some_and(|before| before != DeliveryFailure::Refused) {
            // After a second failure the writer may be at fault.
            self.retire_writer(&ProducerKey::of(&sample));
        }
        self.failed.push(sample);
        Some(error.to_string())
    }

    /// Mirrors the producers' liveliness: closes the writers of departed ones and renews the leases
    /// of live ones, in a thread. `idle`: all samples were read and settled.
    pub(crate) fn update_liveliness(
        &mut self,
        context: &BridgeContext,
        liveliness: &mut LivelinessMonitor,
        idle: bool,
    ) -> Result<(), String> {
        let gone = liveliness.sweep(context, Some(&self.state.writers))?;
        // Samples of departed producers may still be unread.
        if idle && self.preparing.is_none() {
            let gone: Vec<_> =
                gone.iter().filter_map(|key| self.state.writers.remove(key)).collect();
            self.close_writers(context, gone);
        }
        if self.state.queue.is_empty() {
            self.open_idle_writers(context);
        }
        Ok(())
    }

    /// Stores changed checkpoints, if they are due or `now` is set.
    pub(crate) fn write_checkpoints(&mut self, context: &BridgeContext, now: bool) {
        let Ok(store) = &context.checkpoints else { return };
        let written = &mut self.state.written;
        self.state.writing.retain(|((partition, next), receipt)| match receipt.outcome() {
            None => true,
            Some(Ok(_)) => {
                written.insert(*partition, *next);
                false
            }
            // The next write includes it.
            Some(Err(_)) => false,
        });
        let soon = self.state.last_write.is_some_and(|at| at.elapsed() < store.interval);
        if !self.state.writing.is_empty() || (!now && soon) {
            return;
        }
        self.state.last_write = Some(Instant::now());
        for (partition, (offset, identity)) in &self.state.settled {
            let of = |sample: &&Sample| sample.partition == *partition;
            if self.failed.iter().any(|sample| of(&sample)) {
                continue;
            }
            let ahead = self.state.queue.iter().find(of).map(|sample| sample.offset);
            let read = self.state.next.get(partition).copied();
            let Some(next) = self.lowest_in_flight(*partition).or(ahead).or(read) else { continue };
            if self.state.written.get(partition) != Some(&next) && next > *offset {
                let log = self.state.logs.get(partition).copied();
                let checkpoint = Checkpoint::after(next, *offset, identity).of_log(log);
                let receipt = store.store(&self.name, *partition, &checkpoint);
                self.state.writing.extend(receipt.map(|one| ((*partition, next), one)));
            }
        }
    }
}

/// Opens the writers of live producers; also returns the producers to retry.
fn open_live_writers(
    (source, target): (&Topic, &Topic),
    (idle, mut room): (Vec<IdleProducer>, usize),
    waker: &Waker,
) -> (Vec<(ProducerKey, Forwarder, u64)>, Vec<IdleProducer>) {
    let Ok(writers) = source.writers() else { return (Vec::new(), idle) };
    let liveliness = |producer: &Producer| {
        let own = |info: &&WriterInfo| info.producer == *producer && info.alive == Some(Alive::Yes);
        writers.iter().any(|info| own(&info))
    };
    let (mut opened, mut rests) = (Vec::new(), Vec::new());
    for one in idle {
        if !liveliness(&one.producer) {
            // A newly connected source may not have discovered it yet.
            rests.extend((one.since.elapsed() < DISCOVERY_TIMEOUT).then_some(one));
            continue;
        }
        if room == 0 {
            continue;
        }
        match target.forwarder(&one.producer, one.partition) {
            Ok(mut forwarder) => {
                let waker = waker.clone();
                forwarder.on_room(Arc::new(move || waker.wake_by_ref()));
                let Producer { name, incarnation } = one.producer;
                let key = ProducerKey { partition: one.partition, producer: name };
                opened.push((key, forwarder, incarnation));
                room -= 1;
            }
            // It publishes on the target itself; its next sample reports that.
            Err(TopicError::Transport(TransportError::Fenced { .. })) => {}
            Err(_) => rests.push(one),
        }
    }
    (opened, rests)
}

fn size(sample: &Sample) -> usize {
    sample.payload.len() + sample.key.len()
}
