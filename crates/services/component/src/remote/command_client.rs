//! The caller's protocol behind its lock, and the threads that wait for acknowledgements.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{
    Bus, Event, Lagging, Message, Publisher, ReadError, Sample, Start, Subscribe, Subscription,
    TopicError, TopicSpec, TransportError,
};
use helio_core::sal::TopicKind;
use helio_core::{Codec, Headers, Value};

use crate::fields::Fields;
use crate::interface::{Interface, PrivateField, Shape};
use crate::presence::PresenceProbe;
use crate::protocol::caller::{
    self, AckSample, CallerOptions, Cause, Effect, MissingFields, Presence,
};
use crate::protocol::{
    AckCode, AckHeaders, Acknowledgement, Action, CallHeaders, CallNumber, Caller,
};
use crate::read::of_instance;
use crate::records::{self, ControlAction, ControlRecord};
use crate::topic::{self, STORED_TIMEOUT, TopicReadError};
use crate::warnings::Warnings;
use crate::write::{SampleMetadata, WriteTopic, WriterIdentity};

/// How often the lease is polled while a call waits: twice within the 100 ms in which a caller is
/// notified of an absent component.
pub const PRESENCE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How often a fence behind the acknowledgements is polled until it is passed.
const FENCE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The age, in nanoseconds, up to which an acknowledgement proves presence: one that was read long
/// after it was published proves nothing about now.
const FRESH_ACK_NANOS: i64 = 5_000_000;

/// The most unread acknowledgements of other callers that are read one by one; a longer backlog is
/// skipped.
const MAX_READ_BACKLOG: u64 = 64;

/// An event of a call.
#[derive(Debug)]
pub(super) enum CallEvent {
    Progress(Acknowledgement),
    Done(Acknowledgement, Cause),
    /// The timeout has passed.
    TimedOut,
}

/// The commands and acknowledgements of a remote and its clones.
pub(super) struct CommandClient {
    pub(super) bus: Bus,
    pub(super) interface: Interface,
    pub(super) index: i32,
    pub(super) warnings: Warnings,
    pub(super) missing: MissingFields,
    author: WriterIdentity,
    origin: i32,
    state: Mutex<ClientState>,
    changed: Condvar,
}

struct ClientState {
    caller: Caller,
    presence_probe: PresenceProbe,
    /// One of the waiting threads takes it and reads for all.
    acks: Option<Subscription>,
    opened: bool,
    ack_shape: Option<Arc<Shape>>,
    presence_polled: Option<Instant>,
    /// The presence that would end calls, and how long to wait for the acknowledgements that were
    /// stored when it was first seen: a fence is behind them.
    ending: Option<(Presence, Instant)>,
    /// The unread events of the calls.
    events: HashMap<CallNumber, VecDeque<CallEvent>>,
    topics: HashMap<String, WriteTopic>,
    control: Option<(Publisher, Codec)>,
}

/// The contents of a call that is being sent.
struct Outgoing {
    command: String,
    caller: Option<String>,
    fields: Option<Fields>,
}

impl CommandClient {
    pub(super) fn new(
        bus: &Bus,
        interface: &Interface,
        index: i32,
        options: CallerOptions,
        missing: MissingFields,
    ) -> Self {
        let identity = options.identity.clone();
        let author = WriterIdentity { identity, index, producer: None, lease: None };
        let origin = options.origin;
        let state = ClientState {
            caller: Caller::new(options),
            presence_probe: PresenceProbe::new(bus, interface, index),
            acks: None,
            opened: false,
            ack_shape: None,
            presence_polled: None,
            ending: None,
            events: HashMap::new(),
            topics: HashMap::new(),
            control: None,
        };
        Self {
            bus: bus.clone(),
            interface: interface.clone(),
            index,
            warnings: Warnings::default(),
            missing,
            author,
            origin,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ClientState> {
        locked(&self.state)
    }

    pub(super) fn seq_num(&self, call: CallNumber) -> Option<i32> {
        self.state().caller.seq_num(call)
    }

    pub(super) fn late_sent(&self) -> u64 {
        self.state().caller.late_sent()
    }

    pub(super) fn abandon(&self, call: CallNumber) {
        let mut state = self.state();
        state.caller.abandon(call);
        state.events.remove(&call);
    }

    /// Queries the lease now; retries for up to `timeout` if the bus is unreachable.
    pub(super) fn query_presence(&self, timeout: Duration) -> Result<Presence, TopicReadError> {
        let until = Instant::now() + timeout;
        loop {
            let (mut state, presence) = self.refresh_presence(self.state(), PresenceProbe::query);
            self.execute(&mut state, None);
            drop(state);
            match presence {
                Err(error) if error.is_outage() && Instant::now() < until => {
                    std::thread::sleep(PRESENCE_POLL_INTERVAL);
                }
                presence => return presence.map_err(|error| self.unreadable("lease", &error)),
            }
        }
    }

    /// Queries the presence and passes it to the protocol. Earlier acknowledgements of a component
    /// that went away count, so they are read first. If another thread has the subscription, that
    /// thread reads them, because it also polls within [`PRESENCE_POLL_INTERVAL`].
    fn refresh_presence<'a>(
        &'a self,
        mut state: MutexGuard<'a, ClientState>,
        query: fn(&mut PresenceProbe) -> Result<Presence, TopicError>,
    ) -> (MutexGuard<'a, ClientState>, Result<Presence, TopicError>) {
        loop {
            let presence = match query(&mut state.presence_probe) {
                Ok(presence) => presence,
                Err(error) => {
                    // An absent instance may have returned.
                    if state.caller.is_gone() {
                        state.caller.presence(Presence::Unknown);
                    }
                    return (state, Err(error));
                }
            };
            if self.report_presence(&mut state, presence) {
                return (state, Ok(presence));
            }
            let interval = poll_interval(&state);
            let waited = self.changed.wait_timeout(state, interval);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Passes the presence to the protocol; false if another thread must read first, or if stored
    /// acknowledgements have not arrived yet.
    fn report_presence(&self, state: &mut ClientState, presence: Presence) -> bool {
        if state.caller.would_end(presence) {
            if state.opened && state.acks.is_none() {
                return false;
            }
            if !self.has_read_stored(state, presence) {
                return false;
            }
        }
        state.ending = None;
        state.caller.presence(presence);
        true
    }

    /// Reads the acknowledgements. Whether all have arrived that were stored when this presence was
    /// first seen, or nothing is left to wait for.
    fn has_read_stored(&self, state: &mut ClientState, presence: Presence) -> bool {
        if state.ending.is_none_or(|(seen, _)| seen != presence) {
            state.ending = Some((presence, Instant::now() + STORED_TIMEOUT));
            self.fence(state);
        }
        self.read(state);
        let passed = match state.acks.as_mut().map_or(Ok(true), Subscription::has_passed_fence) {
            Ok(passed) => passed,
            Err(ReadError::Transport(TransportError::Outage { .. })) => {
                self.fence(state);
                false
            }
            Err(error) => {
                self.failed(state, &error.to_string());
                true
            }
        };
        // The calls may have ended meanwhile.
        if passed || !state.caller.would_end(presence) {
            return true;
        }
        let is_over = state.ending.is_some_and(|(_, until)| Instant::now() >= until);
        if is_over {
            let waited = STORED_TIMEOUT.as_secs();
            self.failed(state, &format!("its acknowledgements did not arrive within {waited} s"));
        }
        is_over
    }

    /// Sets a fence behind the acknowledgements that are stored now.
    fn fence(&self, state: &mut ClientState) {
        if let Err(error) = state.acks.as_mut().map_or(Ok(()), Subscription::set_fence) {
            self.failed(state, &error.to_string());
        }
    }

    /// Warns, with the caller's identity.
    fn warn(&self, text: &str) {
        self.warnings.tell(&format!("{}: {text}", self.author.identity));
    }

    fn unreadable(&self, what: &str, error: &TopicError) -> TopicReadError {
        let topic = format!("{}/{what}", self.interface.name());
        TopicReadError::Open { topic, reason: error.to_string() }
    }

    /// Sends a command, unless no instance is live.
    pub(super) fn send(
        &self,
        call: caller::Call,
        caller: Option<String>,
        fields: Option<Fields>,
    ) -> CallNumber {
        let mut state = self.state();
        if state.caller.pending() == 0 {
            self.skip_backlog(&mut state);
        }
        // If the presence is unknown, the command is sent.
        let (mut state, _) = self.refresh_presence(state, PresenceProbe::cached);
        // Reading events of calls that are not waited for makes room.
        self.read(&mut state);
        let opened = self.open_acks(&mut state);
        let mut outgoing = Some(Outgoing { command: call.command.clone(), caller, fields });
        let now = self.bus.clock().now();
        let number = state.caller.send(now, call);
        state.events.insert(number, VecDeque::new());
        state.presence_polled = Some(Instant::now());
        if let Err(error) = opened {
            state.caller.publish_failed(number, &error.to_string());
            outgoing = None;
        }
        self.execute(&mut state, outgoing);
        number
    }

    /// Waits for the next event of a call, without a limit if there is no `until`; `None` after its
    /// end.
    pub(super) fn next(&self, call: CallNumber, until: Option<Instant>) -> Option<CallEvent> {
        let mut state = self.state();
        loop {
            match state.events.get_mut(&call)?.pop_front() {
                Some(CallEvent::Done(ack, cause)) => {
                    state.events.remove(&call);
                    return Some(CallEvent::Done(ack, cause));
                }
                Some(event) => return Some(event),
                None => {}
            }
            let left = until.map_or(PRESENCE_POLL_INTERVAL, |until| {
                until.saturating_duration_since(Instant::now()).min(PRESENCE_POLL_INTERVAL)
            });
            if left == Duration::ZERO {
                return Some(CallEvent::TimedOut);
            }
            state = match state.acks.take() {
                Some(acks) => self.wait(state, acks, left),
                // Another thread reads: it notifies, and passes the subscription on when it
                // returns.
                None => {
                    let waited = self.changed.wait_timeout(state, left);
                    let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    self.poll_timers(&mut state);
                    state
                }
            };
        }
    }

    /// Reads for all threads until an event arrives, a timer is due, or the time is over.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, ClientState>,
        mut acks: Subscription,
        at_most: Duration,
    ) -> MutexGuard<'a, ClientState> {
        let until = Instant::now() + self.due(&state).min(at_most);
        if acks.stats().lag == 0 {
            drop(state);
            let waited = acks.wait_until(Some(until));
            state = self.state();
            if let Err(error) = waited {
                self.failed(&mut state, &error.to_string());
                self.changed.notify_all();
                return state;
            }
        }
        state.acks = Some(acks);
        self.read(&mut state);
        self.poll_timers(&mut state);
        self.changed.notify_all();
        state
    }

    /// The time until the next timer.
    fn due(&self, state: &ClientState) -> Duration {
        let polled = state.presence_polled.map_or(Duration::MAX, |polled| polled.elapsed());
        let next_poll = poll_interval(state).saturating_sub(polled);
        let now = self.bus.clock().now().nanos();
        let due = state.caller.wake_at().map(|at| at.nanos().saturating_sub(now));
        let due =
            due.map_or(Duration::MAX, |due| Duration::from_nanos(u64::try_from(due).unwrap_or(0)));
        next_poll.min(due)
    }

    fn poll_timers(&self, state: &mut ClientState) {
        let interval = poll_interval(state);
        if state.presence_polled.is_none_or(|polled| polled.elapsed() >= interval) {
            let presence = state.presence_probe.query();
            let failed = presence.is_err();
            let reported = presence.is_ok_and(|found| self.report_presence(state, found));
            if failed || reported || state.acks.is_some() {
                state.presence_polled = Some(Instant::now());
            }
        }
        state.caller.tick(self.bus.clock().now());
        self.execute(state, None);
    }

    /// The subscription failed: all pending calls end, because no acknowledgement can arrive. The
    /// next call resubscribes.
    fn failed(&self, state: &mut ClientState, why: &str) {
        (state.acks, state.opened, state.ending) = (None, false, None);
        state.caller.unheard(why);
        self.execute(state, None);
    }

    /// Skips a backlog of other callers' acknowledgements, such as a night's. A few are read faster
    /// than the end is sought.
    fn skip_backlog(&self, state: &mut ClientState) {
        let Some(mut acks) = state.acks.take() else { return };
        if acks.stats().lag <= MAX_READ_BACKLOG {
            state.acks = Some(acks);
            return;
        }
        let mut at = acks.positions().into_iter();
        match at.try_for_each(|at| acks.seek(at.partition, at.end)) {
            Ok(()) => state.acks = Some(acks),
            Err(error) => self.failed(state, &error.to_string()),
        }
    }

    fn open_acks(&self, state: &mut ClientState) -> Result<(), TopicReadError> {
        if state.opened {
            return Ok(());
        }
        let shape = self.interface.shape(TopicKind::Ack, TopicKind::Ack.segment())?;
        let failed = |error: TopicError| self.unreadable("ackcmd", &error);
        let topic = topic::open(&self.bus, &shape, None).map_err(failed)?;
        let options = of_instance(Subscribe::from(Start::Latest), &shape, self.index);
        let acks = topic.subscribe(options.lagging(Lagging::Lossless)).map_err(failed)?;
        (state.acks, state.opened, state.ack_shape) = (Some(acks), true, Some(shape));
        Ok(())
    }

    /// Processes all available acknowledgements.
    fn read(&self, state: &mut ClientState) {
        let Some(mut acks) = state.acks.take() else { return };
        loop {
            match acks.try_next() {
                Ok(Some(Event::Sample(sample))) => {
                    if !state.caller.may_concern(sample.header.trace.as_ref()) {
                        continue;
                    }
                    let ack = state.ack_shape.as_ref().and_then(|shape| ack_of(shape, &sample));
                    if let Some(ack) = ack {
                        let now = self.bus.clock().now();
                        if now.nanos().saturating_sub(sample.header.time.nanos()) < FRESH_ACK_NANOS
                        {
                            state.presence_probe.note_ack();
                        }
                        state.caller.acknowledged(now, ack);
                    }
                }
                Ok(Some(Event::Undecodable(wrong))) => {
                    let component = self.interface.identity(self.index);
                    let what = format!("an acknowledgement of {component} cannot be read");
                    self.warn(&format!("{what}: {}", wrong.reason));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return self.failed(state, &error.to_string()),
            }
        }
        state.acks = Some(acks);
        self.execute(state, None);
    }

    fn execute(&self, state: &mut ClientState, mut outgoing: Option<Outgoing>) {
        loop {
            let effects: Vec<_> = state.caller.effects().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Publish { call, action, seq_num, trace, headers } => {
                        let Some(outgoing) = outgoing.take() else { continue };
                        let published = match state
                            .presence_probe
                            .missing_command(&outgoing.command)
                        {
                            Some(lacks) => Err(lacks),
                            None => self.publish(state, action, outgoing, seq_num, trace, headers),
                        };
                        if let Err(why) = published {
                            state.caller.publish_failed(call, &why);
                        }
                    }
                    Effect::Progress { call, ack } => {
                        state.push_event(call, CallEvent::Progress(ack))
                    }
                    Effect::Done { call, ack, cause } => {
                        state.push_event(call, CallEvent::Done(ack, cause))
                    }
                    Effect::Warn(text) => self.warn(&text),
                }
            }
        }
    }

    fn publish(
        &self,
        state: &mut ClientState,
        action: Action,
        outgoing: Outgoing,
        seq_num: i32,
        trace: helio_bus::TraceId,
        mut headers: CallHeaders,
    ) -> Result<(), String> {
        headers.caller = outgoing.caller.clone().or(headers.caller);
        if action == Action::Validate {
            let schema = outgoing.fields.as_ref().map(|fields| fields.shape().schema().id());
            headers.schema = schema;
        }
        if state.caller.has_key() {
            let has_values = matches!(action, Action::Run | Action::Validate);
            let fields = outgoing.fields.as_ref().filter(|_| has_values);
            let values = fields.map_or_else(String::new, |fields| fields.to_json().to_string());
            let (command, arguments) = (&*outgoing.command, &*values);
            let request = caller::Outgoing { action, command, seq_num, trace, arguments };
            state.caller.sign(&request, &mut headers);
        }
        let headers = headers.encode().map_err(|error| error.to_string())?;
        let headers = headers.into_iter().try_fold(Headers::new(), |all, (name, value)| {
            all.with(name, value).map_err(|error| error.to_string())
        })?;
        let beside = SampleMetadata {
            seq_num: Some(seq_num),
            trace: Some(trace),
            headers: headers.as_ref(),
        };
        match (action, outgoing.fields) {
            (Action::Run, Some(fields)) => {
                let topic = self.topic(state, &outgoing.command)?;
                let published = topic.publish(|record| record.take_public(fields), &beside);
                published.map(drop).map_err(|error| error.to_string())
            }
            (action, fields) => self.control(state, action, outgoing.command, fields, &beside),
        }
    }

    fn topic<'a>(
        &self,
        state: &'a mut ClientState,
        command: &str,
    ) -> Result<&'a WriteTopic, String> {
        if !state.topics.contains_key(command) {
            let shape = self.interface.shape(TopicKind::Command, command);
            let shape = shape.map_err(|error| error.to_string())?;
            let topic = WriteTopic::new(&self.bus, shape, self.author.clone());
            state.topics.insert(command.to_owned(), topic);
        }
        state.topics.get(command).ok_or_else(|| format!("no command {command}"))
    }

    /// Publishes a control request.
    fn control(
        &self,
        state: &mut ClientState,
        action: Action,
        command: String,
        fields: Option<Fields>,
        beside: &SampleMetadata<'_>,
    ) -> Result<(), String> {
        let mut record = ControlRecord {
            index: self.index,
            action: ControlAction::Validate,
            command: command.clone(),
            target: 0,
            seconds: 0.0,
            payload: Vec::new(),
            seq_num: beside.seq_num.unwrap_or_default(),
            identity: self.author.identity.clone(),
            origin: self.origin,
        };
        match action {
            Action::Run | Action::Validate => {
                let topic = self.topic(state, &command)?;
                let fields = fields.ok_or_else(|| format!("no command {command}"))?;
                // A command that could not be sent is not valid; opening also registers the schema
                // for the component.
                topic.open().map_err(|error| error.to_string())?;
                let payload = topic.encode(|record| record.take_public(fields), beside);
                record.payload = payload.map_err(|error| error.to_string())?;
            }
            Action::Cancel { target } => {
                (record.action, record.target) = (ControlAction::Cancel, target);
            }
            Action::Lock { seconds } => {
                (record.action, record.seconds) = (ControlAction::Lock, seconds);
            }
            Action::Unlock => record.action = ControlAction::Unlock,
        }
        if state.control.is_none() {
            state.control = Some(self.open_control().map_err(|error| error.to_string())?);
        }
        let Some((publisher, codec)) = &state.control else { return Ok(()) };
        let mut payload = Vec::new();
        codec.serialize(&record, &mut payload).map_err(|error| error.to_string())?;
        let key = topic::key(self.interface.indexed(), self.index);
        let message = Message::new(&payload).key(&key).headers(beside.headers);
        let message = match beside.trace {
            Some(trace) => message.trace(trace),
            None => message,
        };
        publisher.publish(message).wait().map(drop).map_err(|error| error.to_string())
    }

    fn open_control(&self) -> Result<(Publisher, Codec), TopicError> {
        let spec = TopicSpec::of(topic::beside(self.interface.name(), "control")?);
        let codec = records::codec::<ControlRecord>();
        let topic = self.bus.topic(spec.qos(ControlRecord::qos()).schema(codec.schema()))?;
        Ok((topic.publisher()?, codec))
    }
}

impl ClientState {
    fn push_event(&mut self, call: CallNumber, event: CallEvent) {
        if let Some(waiting) = self.events.get_mut(&call) {
            // Unread progress is replaced by newer progress, so the queue stays short; the end
            // comes after it.
            let progress = matches!(event, CallEvent::Progress(_));
            if progress && matches!(waiting.back(), Some(CallEvent::Progress(_))) {
                waiting.pop_back();
            }
            waiting.push_back(event);
        }
    }
}

/// How often the presence is queried.
fn poll_interval(state: &ClientState) -> Duration {
    if state.ending.is_some() { FENCE_POLL_INTERVAL } else { PRESENCE_POLL_INTERVAL }
}

/// The acknowledgement in a sample; `None` if it is invalid.
fn ack_of(shape: &Arc<Shape>, sample: &Sample) -> Option<AckSample> {
    let Ok(Value::Record(record)) = shape.codec().decode(&sample.payload) else { return None };
    let seq_num = match record[shape.at(PrivateField::SeqNum)] {
        Value::Int(number) => number,
        _ => return None,
    };
    let fields = Fields::of(shape, record);
    let int = |name| fields.integer(name).and_then(|number| i32::try_from(number).ok());
    let text = |name| fields.text(name).unwrap_or_default().to_owned();
    let headers = AckHeaders::decode(sample.headers.as_ref()).unwrap_or_default();
    let ack = Acknowledgement {
        code: AckCode::from_number(int("ack")?)?,
        error: int("error").unwrap_or_default(),
        result: text("result"),
        timeout_s: fields.number("timeout").unwrap_or_default(),
        progress: headers.progress,
        typed: headers.typed,
    };
    let (identity, origin) = (text("identity"), int("origin").unwrap_or_default());
    Some(AckSample { trace: sample.header.trace, identity, origin, seq_num, ack })
}

impl std::fmt::Debug for CommandClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dialogue({})", self.interface.identity(self.index))
    }
}
