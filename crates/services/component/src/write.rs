//! Writing a topic: private fields are filled in, values are remembered, sequence numbers continue.
//!
//! Constraints. The schema is compiled once, with its revision code ([`Shape`]). The topic is
//! opened at its first write. Each write encodes one record into a reused buffer and publishes it.
//! One lock per topic keeps the order of numbers and samples equal.
//!
//! Operation. An event is published if a value has changed since the last write (all NaN are equal,
//! and -0 equals 0), or if it is forced. Telemetry is always published. Fields that are not set
//! keep their values.
//!
//! A component writes only while it holds its lease. Opening a topic fences its previous writer of
//! the same name, so a replaced instance could silence the live one. If that happens nevertheless,
//! the lease's holder reclaims the topic.
//!
//! The component's own messages are first tried without blocking. They are blocked if another
//! thread writes the topic or the topic is not open yet.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{
    Bus, Message, Producer, PublishError, Publisher, Receipt, Start, Subscribe, Tai, TopicError,
    TraceId, TransportError,
};
use helio_core::codec::wire;
use helio_core::sal::TopicKind;
use helio_core::{HeadersRef, ProducerName, Value};
use serde_json::Value as Json;

use crate::fields::{FieldError, Fields, same};
use crate::interface::{PrivateField, Shape};
use crate::lease::{WeakLease, WriteRefusal};
use crate::pipelining::{InFlight, InFlightError, LostSamples, MAX_IN_FLIGHT};
use crate::process_identity;
use crate::send::{SendError, TrySend, send, send_pipelined, try_send};
use crate::sender::Sender;
use crate::timestamps;
use crate::topic::{self, STORED_TIMEOUT, WriteError};

/// How long a refusal to open is repeated before opening is retried. Topics that are written many
/// times a second must not query all schemas each time; the policy may change in between.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How often the end of another thread's write is polled while settling.
const SETTLE_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The identity under which a topic is written.
#[derive(Debug, Clone)]
pub(crate) struct WriterIdentity {
    /// `private_identity`.
    pub identity: String,
    /// `salIndex`; 0 if the component is not indexed.
    pub index: i32,
    /// The producer's name on the bus; the bus's own if not given.
    pub producer: Option<ProducerName>,
    /// A component's lease; writers without one, such as remotes, need none.
    pub lease: Option<WeakLease>,
}

/// A topic for writing. Clones share it and its remembered values.
#[derive(Clone)]
pub struct WriteTopic(Arc<Inner>);

struct Inner {
    bus: Bus,
    shape: Arc<Shape>,
    author: WriterIdentity,
    key: Vec<u8>,
    state: Mutex<State>,
}

struct State {
    fields: Fields,
    /// The last `private_seqNum`.
    number: i32,
    publisher: Option<Publisher>,
    /// Pending receipts of telemetry.
    in_flight: InFlight,
    /// When the bus refused the topic's schema, and its error.
    refused: Option<(Instant, WriteError)>,
    payload: Vec<u8>,
    /// Whether readers have the current values, apart from those set since.
    written: bool,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Written {
    /// Whether a sample was published; an unchanged event is not.
    pub published: bool,
    /// The `private_seqNum` of the newest sample; 0 if there is none yet.
    pub seq_num: i32,
    /// The time of the write.
    pub time: Tai,
    /// The receipt; `None` if nothing was published, and for telemetry whose receipt is pending.
    /// Its failure is reported by the next write, or by [`WriteTopic::settle`].
    pub receipt: Option<Receipt>,
}

/// The metadata of a sample beside its fields.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SampleMetadata<'a> {
    /// `private_seqNum`, if it is not the next number: acknowledgements carry their command's.
    pub seq_num: Option<i32>,
    pub trace: Option<TraceId>,
    pub headers: HeadersRef<'a>,
}

impl WriteTopic {
    pub(crate) fn new(bus: &Bus, shape: Arc<Shape>, author: WriterIdentity) -> Self {
        let key = shape.key(author.index);
        let mut fields = Fields::new(&shape);
        let record = fields.record_mut();
        record[shape.at(PrivateField::RevCode)] = Value::String(shape.revcode().to_owned());
        record[shape.at(PrivateField::Identity)] = Value::String(author.identity.clone());
        record[shape.at(PrivateField::Origin)] = Value::Int(process_identity::origin());
        if shape.topic().indexed() {
            record[0] = Value::Int(author.index);
        }
        let (publisher, in_flight, refused) = (None, InFlight::default(), None);
        let (number, payload, written) = (0, Vec::new(), false);
        let state = State { fields, number, publisher, in_flight, refused, payload, written };
        let inner = Inner { bus: bus.clone(), shape, author, key, state: Mutex::new(state) };
        Self(Arc::new(inner))
    }

    /// The topic.
    #[must_use]
    pub fn shape(&self) -> &Arc<Shape> {
        &self.0.shape
    }

    /// The values as they were last set and written.
    #[must_use]
    pub fn fields(&self) -> Fields {
        self.state().fields.clone()
    }

    /// Begins a write; only [`Update::write`] publishes.
    pub fn update(&self) -> Update<'_> {
        let (values, failed, when) = (Vec::new(), None, PublishCondition::Changed);
        Update { topic: self, values, failed, when }
    }

    /// Like [`update`](Self::update), with a first value.
    pub fn set(&self, name: &str, value: impl Into<Value>) -> Update<'_> {
        self.update().set(name, value)
    }

    /// Writes the remembered values.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write(&self) -> Result<Written, WriteError> {
        self.update().force().write()
    }

    /// The producer of this writer, as its readers see it; opens the topic.
    ///
    /// # Errors
    /// [`WriteError::Open`].
    pub fn producer(&self) -> Result<Producer, WriteError> {
        let mut state = self.state();
        self.0.opened(&mut state)?;
        let producer = state.publisher.as_ref().map(Publisher::producer);
        producer.ok_or_else(|| {
            let topic = self.0.shape.topic().to_string();
            WriteError::Publish { topic, source: TransportError::Closed.into() }
        })
    }

    /// Waits for the pending receipts of telemetry; other writes have waited for theirs. A receipt
    /// that is still pending after `timeout` is not reported again, and samples that wait for space
    /// in a queue are cancelled.
    ///
    /// # Errors
    /// [`WriteError::Lost`], which counts samples without a receipt too; [`WriteError::Publish`] if
    /// another thread keeps writing, which then reports them.
    pub fn settle(&self, timeout: Duration) -> Result<(), WriteError> {
        let until = Instant::now() + timeout;
        let mut in_flight = loop {
            match self.try_lock() {
                Some(mut state) => break std::mem::take(&mut state.in_flight),
                None if Instant::now() < until => std::thread::sleep(SETTLE_POLL_INTERVAL),
                None => return Err(self.0.failed(PublishError::Timeout)),
            }
        };
        // Without the lock: other writers are not blocked.
        let settled = in_flight.wait(until.saturating_duration_since(Instant::now()));
        settled.map_err(|lost| self.0.lost(lost))
    }

    /// Opens the topic before its first write.
    pub(crate) fn open(&self) -> Result<(), WriteError> {
        self.0.opened(&mut self.state())
    }

    /// Publishes a whole record without remembering it.
    pub(crate) fn publish(
        &self,
        fill: impl FnOnce(&mut Fields),
        beside: &SampleMetadata<'_>,
    ) -> Result<Written, WriteError> {
        let mut state = self.state();
        self.0.opened(&mut state)?;
        fill(&mut state.fields);
        self.0.publish(&mut state, beside)
    }

    /// Like [`publish`](Self::publish), without blocking.
    pub(crate) fn try_publish(
        &self,
        fill: impl FnOnce(&mut Fields),
        beside: &SampleMetadata<'_>,
    ) -> Result<TrySend, WriteError> {
        let Some(mut state) = self.try_state() else { return Ok(TrySend::WouldBlock) };
        self.0.live()?;
        fill(&mut state.fields);
        self.0.try_publish(&mut state, beside)
    }

    /// A record as it would be published.
    pub(crate) fn encode(
        &self,
        fill: impl FnOnce(&mut Fields),
        beside: &SampleMetadata<'_>,
    ) -> Result<Vec<u8>, WriteError> {
        let mut state = self.state();
        fill(&mut state.fields);
        let number = beside.seq_num.unwrap_or_default();
        self.0.encode(&mut state, self.0.bus.clock().now(), number)?;
        Ok(state.payload.clone())
    }

    /// Publishes encoded public fields with a given time, changed or not. Nothing is remembered,
    /// and no receipt is waited for. Thousands a second cost little more than the bus itself.
    pub(crate) fn write_encoded(&self, public: &[u8], time: Tai) -> Result<(), WriteError> {
        let mut state = self.state();
        let state = &mut *state;
        self.0.opened(state)?;
        let number = next(state.number);
        self.0.put_encoded(&mut state.payload, public, time, number);
        let message = Message::new(&state.payload).key(&self.0.key).time(time);
        let sent = self.0.send_pipelined(&mut state.publisher, &mut state.in_flight, message);
        sent.map_err(|error| self.0.not_sent(error))?;
        (state.number, state.written) = (number, true);
        Ok(())
    }

    /// `None` if another thread writes it, or it is not open yet.
    fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        self.try_lock().filter(|state| state.publisher.is_some())
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.0.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0.state)
    }
}

impl std::fmt::Debug for WriteTopic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteTopic({})", self.0.shape.topic())
    }
}

/// The condition for publishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PublishCondition {
    Changed,
    Always,
}

/// A pending write; it applies all of its values, or none.
#[must_use = "nothing is written before `write`"]
#[derive(Debug)]
pub struct Update<'a> {
    topic: &'a WriteTopic,
    values: Vec<(usize, Value)>,
    failed: Option<FieldError>,
    when: PublishCondition,
}

impl Update<'_> {
    /// Sets a field, like [`Fields::set`]; [`write`](Self::write) returns the errors.
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        match self.topic.0.shape.take(name, value.into()) {
            Ok(value) => self.values.push(value),
            Err(error) => self.failed = self.failed.or(Some(error)),
        }
        self
    }

    /// Sets a field without checking its labels, for what a component reports about itself, such as
    /// a simulation mode of 0.
    pub(crate) fn tell(mut self, name: &str, value: Value) -> Self {
        match self.topic.0.shape.take_any(name, value) {
            Ok(value) => self.values.push(value),
            Err(error) => self.failed = self.failed.or(Some(error)),
        }
        self
    }

    /// Sets a field from JSON, like [`Fields::set_json`].
    pub fn set_json(mut self, name: &str, json: &Json) -> Self {
        match self.topic.0.shape.take_json(name, json) {
            Ok(value) => self.values.push(value),
            Err(error) => self.failed = self.failed.or(Some(error)),
        }
        self
    }

    /// Publishes even if no value has changed.
    pub fn force(mut self) -> Self {
        self.when = PublishCondition::Always;
        self
    }

    /// Applies the values and publishes: events if a value has changed or nothing was published
    /// before, other topics always.
    ///
    /// # Errors
    /// [`WriteError`]; if a value does not fit, nothing changes. Telemetry does not wait for slow
    /// receipts: a later write reports earlier lost samples as [`WriteError::Lost`] and then
    /// publishes nothing.
    pub fn write(self) -> Result<Written, WriteError> {
        let inner = &self.topic.0;
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let mut state = self.topic.state();
        inner.opened(&mut state)?;
        if !inner.take(&mut state, self.values, self.when) {
            let (seq_num, time) = (state.number, inner.bus.clock().now());
            return Ok(Written { published: false, seq_num, time, receipt: None });
        }
        inner.publish(&mut state, &SampleMetadata::default())
    }

    /// Like [`write`](Self::write), without blocking.
    pub(crate) fn try_write(self) -> Result<TrySend, WriteError> {
        let inner = &self.topic.0;
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let Some(mut state) = self.topic.try_state() else { return Ok(TrySend::WouldBlock) };
        inner.live()?;
        if !inner.take(&mut state, self.values, self.when) {
            return Ok(TrySend::Done);
        }
        inner.try_publish(&mut state, &SampleMetadata::default())
    }
}

impl Inner {
    fn opened(&self, state: &mut State) -> Result<(), WriteError> {
        self.live()?;
        if state.publisher.is_some() {
            return Ok(());
        }
        if let Some((when, refusal)) = &state.refused
            && when.elapsed() < OPEN_RETRY_INTERVAL
        {
            return Err(refusal.clone());
        }
        let topic = topic::open(&self.bus, &self.shape, self.author.producer.as_ref());
        let opened = topic.and_then(|topic| Ok((topic.publisher()?, topic)));
        let (publisher, topic) = opened.map_err(|error| {
            let (topic, reason) = (self.shape.topic().to_string(), error.to_string());
            let failed = WriteError::Open { topic, reason };
            if let TopicError::Incompatible { .. } = error {
                state.refused = Some((Instant::now(), failed.clone()));
            }
            failed
        })?;
        self.live()?;
        if let TopicKind::Event | TopicKind::Telemetry = self.shape.topic().kind() {
            state.number = self.last_number(&topic).unwrap_or(0);
        }
        state.publisher = Some(publisher);
        Ok(())
    }

    /// Checks that this may be written: a component may write only while it is certainly the live
    /// instance.
    fn live(&self) -> Result<(), WriteError> {
        let Some(refusal) = self.author.lease.as_ref().and_then(WeakLease::refusal) else {
            return Ok(());
        };
        let topic = self.shape.topic().to_string();
        Err(match refusal {
            WriteRefusal::Ended(reason) => {
                WriteError::NotLive { topic, identity: self.author.identity.clone(), reason }
            }
            WriteRefusal::Unconfirmed(outage) => {
                WriteError::Publish { topic, source: outage.into() }
            }
        })
    }

    /// Remembers values; returns whether to publish.
    fn take(&self, state: &mut State, values: Vec<(usize, Value)>, when: PublishCondition) -> bool {
        let mut changed = !state.written;
        for (place, value) in values {
            let known = &mut state.fields.record_mut()[place];
            changed |= !same(known, &value);
            *known = value;
        }
        let event = self.shape.topic().kind() == TopicKind::Event;
        changed || !event || when == PublishCondition::Always
    }

    /// Telemetry does not wait: the next sample is worth more than this one's receipt.
    fn send(
        &self,
        publisher: &mut Option<Publisher>,
        in_flight: &mut InFlight,
        message: Message<'_>,
    ) -> Result<Option<Receipt>, SendError> {
        if self.shape.topic().kind() == TopicKind::Telemetry {
            return self.send_pipelined(publisher, in_flight, message);
        }
        Ok(send(publisher, self.author.lease.as_ref(), || self.reopened(), message).map(Some)?)
    }

    fn send_pipelined(
        &self,
        publisher: &mut Option<Publisher>,
        in_flight: &mut InFlight,
        message: Message<'_>,
    ) -> Result<Option<Receipt>, SendError> {
        send_pipelined(
            publisher,
            in_flight,
            self.author.lease.as_ref(),
            || self.reopened(),
            message,
        )
    }

    fn reopened(&self) -> Result<Publisher, TopicError> {
        topic::open(&self.bus, &self.shape, self.author.producer.as_ref())?.publisher()
    }

    /// The number of this component's newest sample: its numbers continue after a restart. If it
    /// cannot be read, they restart, as those of SAL's components do.
    fn last_number(&self, topic: &helio_bus::Topic) -> Option<i32> {
        // As written: numbers continue even behind samples of an unreadable release.
        let newest = Subscribe::from(Start::Last(1)).keys([&self.key]).as_written();
        let mut samples = topic.subscribe(newest).ok()?;
        samples.set_fence().ok()?;
        let mut last = None;
        while let Ok(Some(event)) = samples.next_stored(STORED_TIMEOUT) {
            let Some(sample) = event.into_sample() else { continue };
            let sender = Sender::of(&self.shape, &sample.payload);
            let own = sender.filter(|sender| sender.identity == self.author.identity);
            last = own.map(|sender| sender.seq_num).or(last);
        }
        last
    }

    fn publish(
        &self,
        state: &mut State,
        beside: &SampleMetadata<'_>,
    ) -> Result<Written, WriteError> {
        let (time, number) = self.prepare(state, beside)?;
        let message = self.message(&state.payload, time, beside);
        let sent = self.send(&mut state.publisher, &mut state.in_flight, message);
        let receipt = sent.map_err(|error| self.not_sent(error))?;
        (state.number, state.written) = (number, true);
        Ok(Written { published: true, seq_num: number, time, receipt })
    }

    fn try_publish(
        &self,
        state: &mut State,
        beside: &SampleMetadata<'_>,
    ) -> Result<TrySend, WriteError> {
        let (time, number) = self.prepare(state, beside)?;
        let message = self.message(&state.payload, time, beside);
        let tried = try_send(state.publisher.as_ref(), message);
        let tried = tried.map_err(|source| self.failed(source))?;
        if !matches!(tried, TrySend::WouldBlock) {
            // A pending sample counts as written. If it did not arrive, the caller forces it.
            (state.number, state.written) = (number, true);
        }
        Ok(tried)
    }

    /// Encodes the next record; returns its time and number.
    fn prepare(
        &self,
        state: &mut State,
        beside: &SampleMetadata<'_>,
    ) -> Result<(Tai, i32), WriteError> {
        let time = self.bus.clock().now();
        let number = beside.seq_num.unwrap_or_else(|| next(state.number));
        // After a failure, readers' values are unknown: the next write is not a repetition.
        state.written = false;
        self.encode(state, time, number)?;
        Ok((time, number))
    }

    fn message<'a>(
        &'a self,
        payload: &'a [u8],
        time: Tai,
        beside: &SampleMetadata<'a>,
    ) -> Message<'a> {
        let message = Message::new(payload).key(&self.key).time(time).headers(beside.headers);
        match beside.trace {
            Some(trace) => message.trace(trace),
            None => message,
        }
    }

    fn failed(&self, source: PublishError) -> WriteError {
        WriteError::Publish { topic: self.shape.topic().to_string(), source }
    }

    fn lost(&self, LostSamples { count, source }: LostSamples) -> WriteError {
        WriteError::Lost { topic: self.shape.topic().to_string(), count, source }
    }

    fn not_sent(&self, error: SendError) -> WriteError {
        let transport = || self.bus.capabilities().transport.clone();
        match error {
            SendError::Failed(source) => self.failed(source),
            SendError::InFlight(InFlightError::Lost(lost)) => self.lost(lost),
            SendError::InFlight(InFlightError::Full) => self.failed(PublishError::Full {
                transport: transport(),
                queued: MAX_IN_FLIGHT,
                waits_for: None,
            }),
        }
    }

    fn encode(&self, state: &mut State, time: Tai, number: i32) -> Result<(), WriteError> {
        self.stamp(state.fields.record_mut(), time, number);
        state.payload.clear();
        // A value borrows the record while it is encoded.
        let record = Value::Record(std::mem::take(state.fields.record_mut()));
        let encoded = self.shape.codec().encode(&record, &mut state.payload);
        if let Value::Record(record) = record {
            *state.fields.record_mut() = record;
        }
        encoded.map_err(|error| self.shape.wrong(&error.at(), error.problem().to_string()))?;
        Ok(())
    }

    /// Writes encoded public fields, and the private ones before or behind them.
    fn put_encoded(&self, out: &mut Vec<u8>, public: &[u8], time: Tai, number: i32) {
        out.clear();
        if self.shape.topic().indexed() {
            wire::put_long(out, self.author.index.into());
        }
        if self.shape.at(PrivateField::SndStamp) < self.shape.public().start {
            self.put_private(out, time, number);
            out.extend_from_slice(public);
        } else {
            out.extend_from_slice(public);
            self.put_private(out, time, number);
        }
    }

    /// Appends the private fields in Avro: those that [`stamp`](Self::stamp) sets, and the writer's
    /// identity.
    fn put_private(&self, out: &mut Vec<u8>, time: Tai, number: i32) {
        let (tai, utc) = timestamps::stamps(time);
        for stamp in [tai, 0.0, utc, tai] {
            out.extend_from_slice(&stamp.to_le_bytes());
        }
        wire::put_long(out, number.into());
        wire::put_bytes(out, self.shape.revcode().as_bytes());
        wire::put_bytes(out, self.author.identity.as_bytes());
        wire::put_long(out, process_identity::origin().into());
    }

    fn stamp(&self, record: &mut [Value], time: Tai, number: i32) {
        let (tai, utc) = timestamps::stamps(time);
        let shape = &self.shape;
        record[shape.at(PrivateField::SndStamp)] = Value::Double(tai);
        record[shape.at(PrivateField::EfdStamp)] = Value::Double(utc);
        record[shape.at(PrivateField::KafkaStamp)] = Value::Double(tai);
        record[shape.at(PrivateField::SeqNum)] = Value::Int(number);
    }
}

/// The next number: SAL's are 1 to 2^31 - 1, and wrap.
pub(crate) fn next(number: i32) -> i32 {
    if number <= 0 || number == i32::MAX { 1 } else { number + 1 }
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn numbers_begin_again_at_1() {
        assert_eq!([next(0), next(1), next(i32::MAX), next(-5)], [1, 2, 1, 1]);
    }
}
