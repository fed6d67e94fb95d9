//! A schema registry with Confluent's API beside the brokers: the schema numbers in payloads.
//!
//! Constraints. No reader and no publisher waits for the registry: unknown schemas are requested on
//! a thread, and the sample is held meanwhile. Only opening waits, for at most
//! [`client::REQUEST_TIMEOUT`]. Requests to a registry that does not answer are retried, and
//! blocked readers receive an outage. The cache is limited: `MAX_NUMBERS` schemas with
//! `MAX_TEXT_BYTES` of text, `MAX_IDS` numbers for writing.
//!
//! Operation. A writer's schema is registered, or looked up, when a publisher is opened. The schema
//! of a single sample, such as a forwarded one, is registered when the sample is published. The
//! sample is then refused as if there were no room, and accepted when the number is known. A reader
//! requests a schema at the first sample that names it. The bus's own samples also carry their
//! schema's identity, so reading them needs no registry.

pub mod client;
pub(crate) mod options;
mod schema_cache;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use helio_bus::transport::{RegisterError, locked};
use helio_bus::{Outage, SchemaId, TransportError};
use helio_core::Schema;

use crate::client::error::{engine, outage};
use crate::client::signal::{Notify, ReaderSignal};
use client::RegistryError;
use options::{NewSchemas, RegistryOptions};
use schema_cache::{KnownSchema, SchemaCache};

/// The maximum number of cached numbers for writing: several times all topics of a large
/// observatory.
const MAX_CACHED_NUMBERS: usize = 65_536;
/// The first and the longest interval between retries when the registry does not answer.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long the answer is cached that a number is unknown or a schema rejected.
const NEGATIVE_ANSWER_TTL: Duration = Duration::from_secs(10);

/// The cached result for a schema's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NumberLookup {
    /// The schema.
    Known(KnownSchema),
    /// The registry does not know it, or it is not Avro.
    Unknown,
    /// The request is pending.
    Wait,
}

/// A request to the registry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RegistryRequest {
    /// The text of a schema's number.
    Text(u32),
    /// The number of a schema on a Kafka topic, and the schema's text.
    Number { topic: String, id: SchemaId, text: Arc<str> },
}

/// A reader or publisher that waits for an answer.
enum Waiter {
    /// A reader, and whether it has received an outage.
    Reader(Weak<ReaderSignal>, bool),
    /// A publisher.
    Publisher(Notify),
}

/// A connection's registry.
pub(crate) struct Registry(Arc<Inner>);

struct Inner {
    options: RegistryOptions,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    numbers: SchemaCache,
    ids: HashMap<(String, SchemaId), RegisteredNumber>,
    jobs: VecDeque<RegistryRequest>,
    waiting: HashMap<RegistryRequest, Vec<Waiter>>,
    /// Why it does not answer.
    lost: Option<String>,
    is_started: bool,
    ended: bool,
}

/// A schema's number on a topic, or why it has none.
enum RegisteredNumber {
    Is(u32),
    Refused(RegistryError, Instant),
}

impl Registry {
    pub(crate) fn new(options: RegistryOptions) -> Self {
        Self(Arc::new(Inner { options, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// The schema of a number, if it is cached; otherwise `wake` is signalled when it is.
    pub(crate) fn lookup(&self, number: u32, wake: &Arc<ReaderSignal>) -> NumberLookup {
        let mut state = locked(&self.0.state);
        let found = state.numbers.lookup(number);
        if found == NumberLookup::Wait {
            let waiter = Waiter::Reader(Arc::downgrade(wake), false);
            self.ask(&mut state, RegistryRequest::Text(number), waiter);
        }
        found
    }

    /// The same for callers that may wait, until then.
    pub(crate) fn wait(&self, number: u32, until: Instant) -> Result<NumberLookup, TransportError> {
        let wake = Arc::<ReaderSignal>::default();
        loop {
            let found = self.lookup(number, &wake);
            if found != NumberLookup::Wait {
                return Ok(found);
            }
            let state = locked(&self.0.state);
            if state.ended {
                return Err(TransportError::Closed);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let cause = state.lost.clone();
                return Err(outage(cause.unwrap_or_else(|| "the registry is slow".to_owned())));
            }
            if state.waiting.contains_key(&RegistryRequest::Text(number)) {
                drop(self.0.changed.wait_timeout(state, left));
            }
        }
    }

    /// The text of a schema that was found by its number.
    pub(crate) fn text(&self, id: SchemaId) -> Option<String> {
        locked(&self.0.state).numbers.text(id).map(|text| text.to_string())
    }

    /// Registers a schema for a Kafka topic, or looks it up, and waits for the answer.
    pub(crate) fn register(
        &self,
        topic: &str,
        id: SchemaId,
        text: &Arc<str>,
    ) -> Result<(), RegisterError> {
        if matches!(locked(&self.0.state).ids.get(&of(topic, id)), Some(RegisteredNumber::Is(_))) {
            return Ok(());
        }
        match self.0.number(topic, text) {
            Ok(number) => {
                locked(&self.0.state).know(topic, id, RegisteredNumber::Is(number));
                Ok(())
            }
            Err(error @ RegistryError::Refused { .. }) => {
                Err(RegisterError::Refused(error.to_string()))
            }
            Err(error) => Err(outage(error.to_string()).into()),
        }
    }

    /// A schema's number on a Kafka topic. If it is not cached, it is requested, and `None` is
    /// returned: `notify` is called when it is known.
    pub(crate) fn number(
        &self,
        topic: &str,
        id: SchemaId,
        notify: Option<&Notify>,
        text: impl FnOnce() -> Option<Arc<str>>,
    ) -> Result<Option<u32>, TransportError> {
        let mut state = locked(&self.0.state);
        match state.ids.get(&of(topic, id)) {
            Some(RegisteredNumber::Is(number)) => return Ok(Some(*number)),
            Some(RegisteredNumber::Refused(error, until)) if Instant::now() < *until => {
                return Err(engine("register the schema of a sample", error.clone()));
            }
            _ => {}
        }
        let Some(text) = text() else {
            return Err(TransportError::Unsupported {
                transport: crate::SCHEME.to_owned(),
                what: format!("write a sample of the schema {id}: its text is unknown"),
                remedy: "put it (Bus::put_schema) before its first sample".to_owned(),
            });
        };
        let job = RegistryRequest::Number { topic: topic.to_owned(), id, text };
        let notify = notify.cloned().unwrap_or_else(|| Arc::new(|| {}));
        self.ask(&mut state, job, Waiter::Publisher(notify));
        Ok(None)
    }

    fn ask(&self, state: &mut State, job: RegistryRequest, mut waiter: Waiter) {
        if state.ended {
            return;
        }
        let lost = state.lost.clone();
        let waiters = state.waiting.entry(job.clone()).or_insert_with(|| {
            state.jobs.push_back(job);
            Vec::new()
        });
        if !waiters.iter().any(|other| other.is(&waiter)) {
            lost.iter().for_each(|cause| waiter.report_lost(cause));
            waiters.push(waiter);
        }
        if !state.is_started {
            let inner = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("kafka-registry".to_owned());
            // Without a thread the request stays pending, and the next call starts one.
            state.is_started = thread.spawn(move || inner.serve()).is_ok();
        }
        self.0.changed.notify_all();
    }

    /// Ends the thread after the request in flight.
    pub(crate) fn end(&self) {
        let mut state = locked(&self.0.state);
        state.ended = true;
        state.waiting.clear();
        self.0.changed.notify_all();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.end();
    }
}

fn of(topic: &str, id: SchemaId) -> (String, SchemaId) {
    (topic.to_owned(), id)
}

impl Waiter {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Reader(one, _), Self::Reader(other, _)) => Weak::ptr_eq(one, other),
            (Self::Publisher(one), Self::Publisher(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn report_lost(&mut self, cause: &str) {
        if let Self::Reader(wake, notified @ false) = self
            && let Some(wake) = wake.upgrade()
        {
            *notified = true;
            wake.report(&Outage::Lost { cause: cause.to_owned() });
        }
    }

    fn report_restored(&mut self) {
        if let Self::Reader(wake, notified @ true) = self
            && let Some(wake) = wake.upgrade()
        {
            *notified = false;
            wake.report(&Outage::Restored);
        }
    }

    fn done(self) {
        match self {
            Self::Reader(wake, _) => wake.upgrade().iter().for_each(|wake| wake.ring()),
            Self::Publisher(notify) => notify(),
        }
    }
}

impl State {
    fn know(&mut self, topic: &str, id: SchemaId, number: RegisteredNumber) {
        if self.ids.len() >= MAX_CACHED_NUMBERS {
            self.ids.clear();
        }
        self.ids.insert(of(topic, id), number);
    }
}

impl Inner {
    /// Sends pending requests, one after the other, until the end.
    fn serve(&self) {
        let mut pause = RETRY_BACKOFF.0;
        while let Some(job) = self.next() {
            match self.ask(&job) {
                Ok(()) => pause = RETRY_BACKOFF.0,
                Err(cause) => {
                    self.lost(&cause);
                    self.pause(pause);
                    pause = (2 * pause).min(RETRY_BACKOFF.1);
                }
            }
        }
    }

    fn next(&self) -> Option<RegistryRequest> {
        let state = locked(&self.state);
        let waited = self.changed.wait_while(state, |state| !state.ended && state.jobs.is_empty());
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        state.jobs.front().filter(|_| !state.ended).cloned()
    }

    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let state = locked(&self.state);
        drop(
            self.changed
                .wait_timeout_while(state, time, |state| !state.ended && Instant::now() < until),
        );
    }

    /// Sends a request; the error is why there was no answer.
    fn ask(&self, job: &RegistryRequest) -> Result<(), String> {
        let now = Instant::now;
        match job {
            RegistryRequest::Text(number) => {
                let answer = match self.options.client.schema(*number) {
                    Err(RegistryError::Unreachable { cause, .. }) => return Err(cause),
                    // This does not concern the number.
                    Err(RegistryError::Refused { status: 401 | 403, message, .. }) => {
                        return Err(message);
                    }
                    // A registry that rejects a request may accept it later.
                    Err(RegistryError::Refused { .. }) => Err(now() + NEGATIVE_ANSWER_TTL),
                    Ok(text) => {
                        let known = text.as_deref().and_then(KnownSchema::of);
                        known.ok_or_else(|| now() + NEGATIVE_ANSWER_TTL)
                    }
                };
                self.finish(job, |state| state.numbers.learn(*number, answer));
            }
            RegistryRequest::Number { topic, id, text } => {
                let number = match self.number(topic, text) {
                    Err(RegistryError::Unreachable { cause, .. }) => return Err(cause),
                    Err(error) => RegisteredNumber::Refused(error, now() + NEGATIVE_ANSWER_TTL),
                    Ok(number) => RegisteredNumber::Is(number),
                };
                self.finish(job, |state| state.know(topic, *id, number));
            }
        }
        Ok(())
    }

    fn number(&self, topic: &str, text: &str) -> Result<u32, RegistryError> {
        let schema = Schema::parse(text).ok();
        let record = schema.as_ref().and_then(Schema::name);
        let subject = self.options.strategy.subject(topic, record);
        match self.options.new {
            NewSchemas::Register => self.options.client.register(&subject, text),
            NewSchemas::LookUp => self.options.client.look_up(&subject, text),
        }
    }

    /// Stores an answer, and notifies its waiters.
    fn finish(&self, job: &RegistryRequest, learn: impl FnOnce(&mut State)) {
        let mut state = locked(&self.state);
        learn(&mut state);
        state.jobs.pop_front();
        let mut waiters = state.waiting.remove(job).unwrap_or_default();
        if state.lost.take().is_some() {
            let others = state.waiting.values_mut().flatten();
            others.chain(&mut waiters).for_each(Waiter::report_restored);
        }
        drop(state);
        self.changed.notify_all();
        waiters.into_iter().for_each(Waiter::done);
    }

    fn lost(&self, cause: &str) {
        let cause = format!("the schema registry {}: {cause}", self.options.client.url());
        let mut state = locked(&self.state);
        state.waiting.values_mut().flatten().for_each(|waiter| waiter.report_lost(&cause));
        state.lost = Some(cause);
    }
}
