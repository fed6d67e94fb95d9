//! Writing a topic: private fields filled in, values remembered, numbers that go on.
//!
//! Constraints. The schema is compiled and its revision code taken once ([`Shape`]); the topic is
//! opened when it is first written; a write then encodes one record into a buffer that is used
//! again, and publishes it. One lock a topic keeps the order of the numbers that of the samples.
//!
//! Operation. Events are written where a value has changed since the last write (any NaN is any
//! other, -0 is 0), or when forced; telemetry always. A value that is not set keeps what it was.
//!
//! A component writes only while it holds its lease. To open a topic is to fence whoever wrote it
//! under the same name before: one that was replaced would silence the instance that lives. And
//! where that happened all the same the one that holds the lease takes its topic back.
//!
//! What the component itself says is first tried without waiting, and is held up where somebody
//! else writes the topic, or it is not open yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Message, Producer, PublishError, Publisher, Receipt, Start, Subscribe, Tai, TopicError,
    TraceId, TransportError,
};
use helio_core::codec::wire;
use helio_core::sal::TopicKind;
use helio_core::{HeadersRef, ProducerName, Value};
use serde_json::Value as Json;

use crate::ahead::{Ahead, Held, Lost, MOST};
use crate::fields::{FieldError, Fields, same};
use crate::host;
use crate::interface::{Private, Shape};
use crate::lease::{Refusal, WeakLease};
use crate::send::{NotSent, Tried, send, send_ahead, try_send};
use crate::sender::Sender;
use crate::topic::{self, WriteError};

/// How long a refusal of a topic is repeated before it is tried again: what is written many times a
/// second must not look all schemas up each time, and a policy may be another meanwhile.
const REFUSED: Duration = Duration::from_secs(1);

/// How often it is looked whether another still writes a topic that is to be settled.
const TURN: Duration = Duration::from_millis(1);

/// Who writes a topic.
#[derive(Debug, Clone)]
pub(crate) struct Author {
    /// `private_identity`.
    pub identity: String,
    /// `salIndex`; 0 where the component is not indexed.
    pub index: i32,
    /// Under which name on the bus; the bus's own where it is not given.
    pub producer: Option<ProducerName>,
    /// The lease of a component; who has none, such as a remote, needs none to write.
    pub lease: Option<WeakLease>,
}

/// A topic that is written. Cloning shares it, with the values that it remembers.
#[derive(Clone)]
pub struct WriteTopic(Arc<Inner>);

struct Inner {
    bus: Bus,
    shape: Arc<Shape>,
    author: Author,
    key: Vec<u8>,
    state: Mutex<State>,
}

struct State {
    fields: Fields,
    /// The last `private_seqNum`.
    number: i32,
    publisher: Option<Publisher>,
    /// Of telemetry: what was published, and has no receipt yet.
    ahead: Ahead,
    /// Since when the topic does not take this schema, and what it says.
    refused: Option<(Instant, WriteError)>,
    payload: Vec<u8>,
    /// Whether readers have the fields as they are, or had before those that were set since.
    written: bool,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Written {
    /// Whether it was published; an event whose values did not change is not.
    pub published: bool,
    /// The `private_seqNum` of the newest sample; 0 where there is none yet.
    pub seq_num: i32,
    /// When it was made.
    pub time: Tai,
    /// What the bus promises of the sample; `None` where none was published, and of telemetry whose
    /// receipt is still to come: what becomes of it the next write tells, or
    /// [`WriteTopic::settle`].
    pub receipt: Option<Receipt>,
}

/// What a sample carries beside its fields.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Beside<'a> {
    /// `private_seqNum`, where it is not the next one: acknowledgements have their command's.
    pub seq_num: Option<i32>,
    pub trace: Option<TraceId>,
    pub headers: HeadersRef<'a>,
}

impl WriteTopic {
    pub(crate) fn new(bus: &Bus, shape: Arc<Shape>, author: Author) -> Self {
        let key = shape.key(author.index);
        let mut fields = Fields::new(&shape);
        let record = fields.record_mut();
        record[shape.at(Private::RevCode)] = Value::String(shape.revcode().to_owned());
        record[shape.at(Private::Identity)] = Value::String(author.identity.clone());
        record[shape.at(Private::Origin)] = Value::Int(host::origin());
        if shape.topic().indexed() {
            record[0] = Value::Int(author.index);
        }
        let (publisher, ahead, refused) = (None, Ahead::default(), None);
        let (number, payload, written) = (0, Vec::new(), false);
        let state = State { fields, number, publisher, ahead, refused, payload, written };
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

    /// Begins a write; nothing happens before [`Update::write`].
    pub fn update(&self) -> Update<'_> {
        let (values, failed, when) = (Vec::new(), None, When::Changed);
        Update { topic: self, values, failed, when }
    }

    /// The same as [`update`](Self::update), with a first value.
    pub fn set(&self, name: &str, value: impl Into<Value>) -> Update<'_> {
        self.update().set(name, value)
    }

    /// Writes what is remembered, whether it changed or not.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write(&self) -> Result<Written, WriteError> {
        self.update().force().write()
    }

    /// Who writes it, as the bus tells its readers; the topic is opened for that.
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

    /// Waits for the receipts of telemetry that has none yet. Everything else has its own when it
    /// is written. What is still without one when the time is over is not told of again, and what
    /// stands in line for room then is given up.
    ///
    /// # Errors
    /// [`WriteError::Lost`], those without a receipt among them; [`WriteError::Publish`] where
    /// another thread writes all the time, which then hears of them.
    pub fn settle(&self, timeout: Duration) -> Result<(), WriteError> {
        let until = Instant::now() + timeout;
        let mut ahead = loop {
            match self.try_lock() {
                Some(mut state) => break std::mem::take(&mut state.ahead),
                None if Instant::now() < until => std::thread::sleep(TURN),
                None => return Err(self.0.failed(PublishError::Timeout)),
            }
        };
        // Without the lock: who writes meanwhile is not held up.
        let settled = ahead.wait(until.saturating_duration_since(Instant::now()));
        settled.map_err(|lost| self.0.lost(lost))
    }

    /// Opens the topic before its first write.
    pub(crate) fn open(&self) -> Result<(), WriteError> {
        self.0.opened(&mut self.state())
    }

    /// Publishes a whole record of its own, remembering nothing of it.
    pub(crate) fn publish(
        &self,
        fill: impl FnOnce(&mut Fields),
        beside: &Beside<'_>,
    ) -> Result<Written, WriteError> {
        let mut state = self.state();
        self.0.opened(&mut state)?;
        fill(&mut state.fields);
        self.0.publish(&mut state, beside)
    }

    /// The same without waiting for anybody.
    pub(crate) fn try_publish(
        &self,
        fill: impl FnOnce(&mut Fields),
        beside: &Beside<'_>,
    ) -> Result<Tried, WriteError> {
        let Some(mut state) = self.try_state() else { return Ok(Tried::HeldUp) };
        self.0.live()?;
        fill(&mut state.fields);
        self.0.try_publish(&mut state, beside)
    }

    /// A record as it would be published.
    pub(crate) fn encode(
        &self,
        fill: impl FnOnce(&mut Fields),
        beside: &Beside<'_>,
    ) -> Result<Vec<u8>, WriteError> {
        let mut state = self.state();
        fill(&mut state.fields);
        let number = beside.seq_num.unwrap_or_default();
        self.0.encode(&mut state, self.0.bus.clock().now(), number)?;
        Ok(state.payload.clone())
    }

    /// Publishes public fields that are encoded already, as of a time, changed or not; nothing is
    /// remembered of them, and no receipt is waited for. Thousands a second cost little more than
    /// the bus itself.
    pub(crate) fn write_encoded(&self, public: &[u8], time: Tai) -> Result<(), WriteError> {
        let mut state = self.state();
        let state = &mut *state;
        self.0.opened(state)?;
        let number = next(state.number);
        state.payload.clear();
        self.0.put_private(&mut state.payload, time, number);
        state.payload.extend_from_slice(public);
        let message = Message::new(&state.payload).key(&self.0.key).time(time);
        let sent = self.0.send_ahead((&mut state.publisher, &mut state.ahead), message);
        sent.map_err(|error| self.0.not_sent(error))?;
        (state.number, state.written) = (number, true);
        Ok(())
    }

    /// `None` where somebody else has it, or it is yet to be opened.
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
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for WriteTopic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteTopic({})", self.0.shape.topic())
    }
}

/// When a write publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Changed,
    Always,
}

/// A write that is being put together: all of its values are taken, or none.
#[must_use = "nothing is written before `write`"]
#[derive(Debug)]
pub struct Update<'a> {
    topic: &'a WriteTopic,
    values: Vec<(usize, Value)>,
    failed: Option<FieldError>,
    when: When,
}

impl Update<'_> {
    /// Sets a field, as [`Fields::set`] does; what does not fit is told by [`write`](Self::write).
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        match self.topic.0.shape.take(name, value.into()) {
            Ok(value) => self.values.push(value),
            Err(error) => self.failed = self.failed.or(Some(error)),
        }
        self
    }

    /// Sets a field to what is so, whatever labels the interface has: for what a component says of
    /// itself, such as a simulation mode of 0.
    pub(crate) fn tell(mut self, name: &str, value: Value) -> Self {
        match self.topic.0.shape.take_any(name, value) {
            Ok(value) => self.values.push(value),
            Err(error) => self.failed = self.failed.or(Some(error)),
        }
        self
    }

    /// Sets a field from JSON, as [`Fields::set_json`] does.
    pub fn set_json(mut self, name: &str, json: &Json) -> Self {
        match self.topic.0.shape.take_json(name, json) {
            Ok(value) => self.values.push(value),
            Err(error) => self.failed = self.failed.or(Some(error)),
        }
        self
    }

    /// Publishes whether anything changed or not.
    pub fn force(mut self) -> Self {
        self.when = When::Always;
        self
    }

    /// Takes the values and publishes: events where anything changed or nothing was published
    /// before, other topics always.
    ///
    /// # Errors
    /// [`WriteError`]; where a value does not fit, nothing is changed. Telemetry does not wait for
    /// its receipts where these take their time: that earlier samples did not arrive is an error of
    /// a later write, [`WriteError::Lost`], which then publishes nothing.
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
        inner.publish(&mut state, &Beside::default())
    }

    /// The same without waiting for anybody.
    pub(crate) fn try_write(self) -> Result<Tried, WriteError> {
        let inner = &self.topic.0;
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let Some(mut state) = self.topic.try_state() else { return Ok(Tried::HeldUp) };
        inner.live()?;
        if !inner.take(&mut state, self.values, self.when) {
            return Ok(Tried::Done);
        }
        inner.try_publish(&mut state, &Beside::default())
    }
}

impl Inner {
    fn opened(&self, state: &mut State) -> Result<(), WriteError> {
        self.live()?;
        if state.publisher.is_some() {
            return Ok(());
        }
        if let Some((when, refusal)) = &state.refused
            && when.elapsed() < REFUSED
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

    /// Whether this may be written: by a component, only while it is the one live instance for
    /// sure.
    fn live(&self) -> Result<(), WriteError> {
        let Some(refusal) = self.author.lease.as_ref().and_then(WeakLease::refusal) else {
            return Ok(());
        };
        let topic = self.shape.topic().to_string();
        Err(match refusal {
            Refusal::Over(reason) => {
                WriteError::NotLive { topic, identity: self.author.identity.clone(), reason }
            }
            Refusal::Unsure(outage) => WriteError::Publish { topic, source: outage.into() },
        })
    }

    /// Remembers values; whether the topic is to be written then.
    fn take(&self, state: &mut State, values: Vec<(usize, Value)>, when: When) -> bool {
        let mut changed = !state.written;
        for (place, value) in values {
            let known = &mut state.fields.record_mut()[place];
            changed |= !same(known, &value);
            *known = value;
        }
        let event = self.shape.topic().kind() == TopicKind::Event;
        changed || !event || when == When::Always
    }

    /// Telemetry is not waited for: the next sample is worth more than knowing of this one.
    fn send(
        &self,
        (publisher, ahead): (&mut Option<Publisher>, &mut Ahead),
        message: Message<'_>,
    ) -> Result<Option<Receipt>, NotSent> {
        if self.shape.topic().kind() == TopicKind::Telemetry {
            return self.send_ahead((publisher, ahead), message);
        }
        Ok(send(publisher, self.author.lease.as_ref(), || self.reopened(), message).map(Some)?)
    }

    fn send_ahead(
        &self,
        to: (&mut Option<Publisher>, &mut Ahead),
        message: Message<'_>,
    ) -> Result<Option<Receipt>, NotSent> {
        send_ahead(to, self.author.lease.as_ref(), || self.reopened(), message)
    }

    fn reopened(&self) -> Result<Publisher, TopicError> {
        topic::open(&self.bus, &self.shape, self.author.producer.as_ref())?.publisher()
    }

    /// The number of the newest sample of this component: its own numbers go on after a restart.
    /// Where it cannot be read they begin anew, which is what SAL's components do.
    fn last_number(&self, topic: &helio_bus::Topic) -> Option<i32> {
        // As it was written: numbers go on behind those of a release that cannot be read otherwise.
        let newest = Subscribe::from(Start::Last(1)).keys([&self.key]).as_written();
        let mut samples = topic.subscribe(newest).ok()?;
        let mut last = None;
        while let Ok(Some(event)) = samples.try_next() {
            let Some(sample) = event.into_sample() else { continue };
            let sender = Sender::of(&self.shape, &sample.payload);
            let own = sender.filter(|sender| sender.identity == self.author.identity);
            last = own.map(|sender| sender.seq_num).or(last);
        }
        last
    }

    fn publish(&self, state: &mut State, beside: &Beside<'_>) -> Result<Written, WriteError> {
        let (time, number) = self.prepare(state, beside)?;
        let message = self.message(&state.payload, time, beside);
        let sent = self.send((&mut state.publisher, &mut state.ahead), message);
        let receipt = sent.map_err(|error| self.not_sent(error))?;
        (state.number, state.written) = (number, true);
        Ok(Written { published: true, seq_num: number, time, receipt })
    }

    fn try_publish(&self, state: &mut State, beside: &Beside<'_>) -> Result<Tried, WriteError> {
        let (time, number) = self.prepare(state, beside)?;
        let message = self.message(&state.payload, time, beside);
        let tried = try_send(state.publisher.as_ref(), message);
        let tried = tried.map_err(|source| self.failed(source))?;
        if !matches!(tried, Tried::HeldUp) {
            // What is under way counts as written. Who hears that it did not arrive forces it.
            (state.number, state.written) = (number, true);
        }
        Ok(tried)
    }

    /// Encodes the record that is published next; when it is of, and its number.
    fn prepare(&self, state: &mut State, beside: &Beside<'_>) -> Result<(Tai, i32), WriteError> {
        let time = self.bus.clock().now();
        let number = beside.seq_num.unwrap_or_else(|| next(state.number));
        // Where it fails nobody knows what readers have: the next write is no repetition.
        state.written = false;
        self.encode(state, time, number)?;
        Ok((time, number))
    }

    fn message<'a>(&'a self, payload: &'a [u8], time: Tai, beside: &Beside<'a>) -> Message<'a> {
        let message = Message::new(payload).key(&self.key).time(time).headers(beside.headers);
        match beside.trace {
            Some(trace) => message.trace(trace),
            None => message,
        }
    }

    fn failed(&self, source: PublishError) -> WriteError {
        WriteError::Publish { topic: self.shape.topic().to_string(), source }
    }

    fn lost(&self, Lost { count, source }: Lost) -> WriteError {
        WriteError::Lost { topic: self.shape.topic().to_string(), count, source }
    }

    fn not_sent(&self, error: NotSent) -> WriteError {
        let transport = || self.bus.capabilities().transport.clone();
        match error {
            NotSent::Failed(source) => self.failed(source),
            NotSent::Held(Held::Lost(lost)) => self.lost(lost),
            NotSent::Held(Held::Full) => {
                self.failed(PublishError::Full { transport: transport(), queued: MOST })
            }
        }
    }

    fn encode(&self, state: &mut State, time: Tai, number: i32) -> Result<(), WriteError> {
        self.stamp(state.fields.record_mut(), time, number);
        state.payload.clear();
        // The record is lent to a value for as long as it is encoded.
        let record = Value::Record(std::mem::take(state.fields.record_mut()));
        let encoded = self.shape.codec().encode(&record, &mut state.payload);
        if let Value::Record(record) = record {
            *state.fields.record_mut() = record;
        }
        encoded.map_err(|error| self.shape.wrong(&error.at(), error.problem().to_string()))?;
        Ok(())
    }

    /// Appends the private fields as Avro: what [`stamp`](Self::stamp) sets, and who writes.
    fn put_private(&self, out: &mut Vec<u8>, time: Tai, number: i32) {
        let (tai, utc) = host::stamps(time);
        if self.shape.topic().indexed() {
            wire::put_long(out, self.author.index.into());
        }
        for stamp in [tai, 0.0, utc, tai] {
            out.extend_from_slice(&stamp.to_le_bytes());
        }
        wire::put_long(out, number.into());
        wire::put_bytes(out, self.shape.revcode().as_bytes());
        wire::put_bytes(out, self.author.identity.as_bytes());
        wire::put_long(out, host::origin().into());
    }

    fn stamp(&self, record: &mut [Value], time: Tai, number: i32) {
        let (tai, utc) = host::stamps(time);
        let shape = &self.shape;
        record[shape.at(Private::SndStamp)] = Value::Double(tai);
        record[shape.at(Private::EfdStamp)] = Value::Double(utc);
        record[shape.at(Private::KafkaStamp)] = Value::Double(tai);
        record[shape.at(Private::SeqNum)] = Value::Int(number);
    }
}

/// The number after another: SAL's are 1 to 2^31 - 1, and begin again.
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
