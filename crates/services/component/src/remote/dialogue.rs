//! The caller behind its lock, and whoever waits for acknowledgements.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Event, Lagging, Message, Publisher, Sample, Start, Subscribe, Subscription, TopicError,
    TopicSpec,
};
use helio_core::sal::TopicKind;
use helio_core::schema::HasSchema;
use helio_core::{Codec, Headers, Value};

use crate::fields::Fields;
use crate::interface::{Interface, Private, Shape};
use crate::presence::Watch;
use crate::protocol::caller::{self, AckSample, CallerOptions, Cause, Effect, Presence};
use crate::protocol::{
    AckCode, AckHeaders, Acknowledgement, Action, CallHeaders, CallNumber, Caller,
};
use crate::read::of_instance;
use crate::records::{ControlAction, ControlRecord};
use crate::topic::{self, TopicReadError};
use crate::warnings::Warnings;
use crate::write::{Author, Beside, WriteTopic};

/// How often the lease is looked at while a call is waited for: twice within the 100 ms in which a
/// caller is told that nobody is there.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An acknowledgement of that age, in nanoseconds, says that the component is there: what was read
/// long after it was published says nothing of now.
const FRESH: i64 = 5_000_000;

/// As many acknowledgements of others are read as they come; more are passed over.
const FEW: u64 = 64;

/// What is told of a call.
#[derive(Debug)]
pub(super) enum Told {
    Progress(Acknowledgement),
    Done(Acknowledgement, Cause),
    /// The time is over in which something was waited for.
    Nothing,
}

/// Commands and their acknowledgements, of one remote and its clones.
pub(super) struct Dialogue {
    pub(super) bus: Bus,
    pub(super) interface: Interface,
    pub(super) index: i32,
    pub(super) warnings: Warnings,
    author: Author,
    origin: i32,
    talk: Mutex<Talk>,
    told: Condvar,
}

struct Talk {
    caller: Caller,
    watch: Watch,
    /// Of those who wait one has it and reads for all.
    acks: Option<Subscription>,
    opened: bool,
    ack_shape: Option<Arc<Shape>>,
    looked: Option<Instant>,
    /// What is yet to be told of calls that somebody has.
    told: HashMap<CallNumber, VecDeque<Told>>,
    topics: HashMap<String, WriteTopic>,
    control: Option<(Publisher, Codec)>,
}

/// What is published of a call that is being sent.
struct Outgoing {
    command: String,
    caller: Option<String>,
    fields: Option<Fields>,
}

impl Dialogue {
    pub(super) fn new(
        bus: &Bus,
        interface: &Interface,
        index: i32,
        options: CallerOptions,
    ) -> Self {
        let identity = options.identity.clone();
        let author = Author { identity, index, producer: None, lease: None };
        let origin = options.origin;
        let talk = Talk {
            caller: Caller::new(options),
            watch: Watch::new(bus, interface, index),
            acks: None,
            opened: false,
            ack_shape: None,
            looked: None,
            told: HashMap::new(),
            topics: HashMap::new(),
            control: None,
        };
        Self {
            bus: bus.clone(),
            interface: interface.clone(),
            index,
            warnings: Warnings::default(),
            author,
            origin,
            talk: Mutex::new(talk),
            told: Condvar::new(),
        }
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seq_num(&self, call: CallNumber) -> Option<i32> {
        self.talk().caller.seq_num(call)
    }

    pub(super) fn late_sent(&self) -> u64 {
        self.talk().caller.late_sent()
    }

    pub(super) fn abandon(&self, call: CallNumber) {
        let mut talk = self.talk();
        talk.caller.abandon(call);
        talk.told.remove(&call);
    }

    /// Looks at the lease now; a bus that does not answer is asked again, for so long.
    pub(super) fn look(&self, patience: Duration) -> Result<Presence, TopicReadError> {
        let until = Instant::now() + patience;
        loop {
            let (mut talk, presence) = self.learn(self.talk(), Watch::look);
            self.execute(&mut talk, None);
            drop(talk);
            match presence {
                Err(error) if error.is_outage() && Instant::now() < until => {
                    std::thread::sleep(LOOK_EVERY);
                }
                told => return told.map_err(|error| self.unreadable("lease", &error)),
            }
        }
    }

    /// Looks who is there, and tells the caller. What a component that went away had said counts,
    /// so that is read before: where another one has the acknowledgements, by that one, who looks
    /// within [`LOOK_EVERY`] too.
    fn learn<'a>(
        &'a self,
        mut talk: MutexGuard<'a, Talk>,
        look: fn(&mut Watch) -> Result<Presence, TopicError>,
    ) -> (MutexGuard<'a, Talk>, Result<Presence, TopicError>) {
        loop {
            let presence = match look(&mut talk.watch) {
                Ok(presence) => presence,
                Err(error) => {
                    // Whoever was gone may have come.
                    if talk.caller.is_gone() {
                        talk.caller.presence(Presence::Unknown);
                    }
                    return (talk, Err(error));
                }
            };
            if self.tell_presence(&mut talk, presence) {
                return (talk, Ok(presence));
            }
            let waited = self.told.wait_timeout(talk, LOOK_EVERY);
            talk = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Tells the caller who is there; false where somebody else must read before.
    fn tell_presence(&self, talk: &mut Talk, presence: Presence) -> bool {
        if talk.caller.would_end(presence) {
            if talk.opened && talk.acks.is_none() {
                return false;
            }
            self.read(talk);
        }
        talk.caller.presence(presence);
        true
    }

    /// Warns, as who calls.
    fn warn(&self, text: &str) {
        self.warnings.tell(&format!("{}: {text}", self.author.identity));
    }

    fn unreadable(&self, what: &str, error: &TopicError) -> TopicReadError {
        let topic = format!("{}/{what}", self.interface.name());
        TopicReadError::Open { topic, reason: error.to_string() }
    }

    /// Sends a command, unless nobody is there.
    pub(super) fn send(
        &self,
        call: caller::Call,
        caller: Option<String>,
        fields: Option<Fields>,
    ) -> CallNumber {
        let mut talk = self.talk();
        if talk.caller.pending() == 0 {
            self.pass_over(&mut talk);
        }
        // Where nobody knows who is there, it is sent.
        let (mut talk, _) = self.learn(talk, Watch::recent);
        // What was told of calls that nobody waits for yet makes room.
        self.read(&mut talk);
        let opened = self.open_acks(&mut talk);
        let mut outgoing = Some(Outgoing { command: call.command.clone(), caller, fields });
        let now = self.bus.clock().now();
        let number = talk.caller.send(now, call);
        talk.told.insert(number, VecDeque::new());
        talk.looked = Some(Instant::now());
        if let Err(error) = opened {
            talk.caller.publish_failed(number, &error.to_string());
            outgoing = None;
        }
        self.execute(&mut talk, outgoing);
        number
    }

    /// Waits for what is told of a call next, for ever where there is no `until`; `None` where its
    /// end was told.
    pub(super) fn next(&self, call: CallNumber, until: Option<Instant>) -> Option<Told> {
        let mut talk = self.talk();
        loop {
            match talk.told.get_mut(&call)?.pop_front() {
                Some(Told::Done(ack, cause)) => {
                    talk.told.remove(&call);
                    return Some(Told::Done(ack, cause));
                }
                Some(told) => return Some(told),
                None => {}
            }
            let left = until.map_or(LOOK_EVERY, |until| {
                until.saturating_duration_since(Instant::now()).min(LOOK_EVERY)
            });
            if left == Duration::ZERO {
                return Some(Told::Nothing);
            }
            talk = match talk.acks.take() {
                Some(acks) => self.wait(talk, acks, left),
                // Another one reads: it tells, and leaves its place to those who still wait.
                None => {
                    let waited = self.told.wait_timeout(talk, left);
                    let mut talk = waited.unwrap_or_else(PoisonError::into_inner).0;
                    self.look_at_clock(&mut talk);
                    talk
                }
            };
        }
    }

    /// Reads for all until something comes, something is due, or the time is over.
    fn wait<'a>(
        &'a self,
        mut talk: MutexGuard<'a, Talk>,
        mut acks: Subscription,
        at_most: Duration,
    ) -> MutexGuard<'a, Talk> {
        let until = Instant::now() + self.due(&talk).min(at_most);
        if acks.stats().lag == 0 {
            drop(talk);
            let waited = acks.wait_until(Some(until));
            talk = self.talk();
            if let Err(error) = waited {
                self.failed(&mut talk, &error.to_string());
                self.told.notify_all();
                return talk;
            }
        }
        talk.acks = Some(acks);
        self.read(&mut talk);
        self.look_at_clock(&mut talk);
        self.told.notify_all();
        talk
    }

    /// In what time somebody must look again.
    fn due(&self, talk: &Talk) -> Duration {
        let looked = talk.looked.map_or(Duration::MAX, |looked| looked.elapsed());
        let look = LOOK_EVERY.saturating_sub(looked);
        let now = self.bus.clock().now().nanos();
        let due = talk.caller.wake_at().map(|at| at.nanos().saturating_sub(now));
        let due =
            due.map_or(Duration::MAX, |due| Duration::from_nanos(u64::try_from(due).unwrap_or(0)));
        look.min(due)
    }

    fn look_at_clock(&self, talk: &mut Talk) {
        if talk.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            let presence = talk.watch.look();
            if presence.is_err() || presence.is_ok_and(|found| self.tell_presence(talk, found)) {
                talk.looked = Some(Instant::now());
            }
        }
        talk.caller.tick(self.bus.clock().now());
        self.execute(talk, None);
    }

    /// The bus does not tell any more: nobody's call will end otherwise. The next one begins anew.
    fn failed(&self, talk: &mut Talk, why: &str) {
        (talk.acks, talk.opened) = (None, false);
        talk.caller.unheard(why);
        self.execute(talk, None);
    }

    /// Passes over acknowledgements of commands that are no calls of this one's: after a quiet
    /// night there are many. A few are read faster than the end is sought.
    fn pass_over(&self, talk: &mut Talk) {
        let Some(mut acks) = talk.acks.take() else { return };
        if acks.stats().lag <= FEW {
            talk.acks = Some(acks);
            return;
        }
        let mut at = acks.positions().into_iter();
        match at.try_for_each(|at| acks.seek(at.partition, at.end)) {
            Ok(()) => talk.acks = Some(acks),
            Err(error) => self.failed(talk, &error.to_string()),
        }
    }

    fn open_acks(&self, talk: &mut Talk) -> Result<(), TopicReadError> {
        if talk.opened {
            return Ok(());
        }
        let shape = self.interface.shape(TopicKind::Ack, TopicKind::Ack.segment())?;
        let failed = |error: TopicError| self.unreadable("ackcmd", &error);
        let topic = topic::open(&self.bus, &shape, None).map_err(failed)?;
        let options = of_instance(Subscribe::from(Start::Latest), &shape, self.index);
        let acks = topic.subscribe(options.lagging(Lagging::Lossless)).map_err(failed)?;
        (talk.acks, talk.opened, talk.ack_shape) = (Some(acks), true, Some(shape));
        Ok(())
    }

    /// Takes all acknowledgements that are there.
    fn read(&self, talk: &mut Talk) {
        let Some(mut acks) = talk.acks.take() else { return };
        loop {
            match acks.try_next() {
                Ok(Some(Event::Sample(sample))) => {
                    if !talk.caller.may_concern(sample.header.trace.as_ref()) {
                        continue;
                    }
                    let ack = talk.ack_shape.as_ref().and_then(|shape| ack_of(shape, &sample));
                    if let Some(ack) = ack {
                        let now = self.bus.clock().now();
                        if now.nanos().saturating_sub(sample.header.time.nanos()) < FRESH {
                            talk.watch.heard();
                        }
                        talk.caller.acknowledged(now, ack);
                    }
                }
                Ok(Some(Event::Undecodable(wrong))) => {
                    let component = self.interface.identity(self.index);
                    let what = format!("an acknowledgement of {component} cannot be read");
                    self.warn(&format!("{what}: {}", wrong.reason));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return self.failed(talk, &error.to_string()),
            }
        }
        talk.acks = Some(acks);
        self.execute(talk, None);
    }

    fn execute(&self, talk: &mut Talk, mut outgoing: Option<Outgoing>) {
        loop {
            let effects: Vec<_> = talk.caller.effects().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Publish { call, action, seq_num, trace, headers } => {
                        let Some(outgoing) = outgoing.take() else { continue };
                        let beside = (seq_num, trace, headers);
                        let published = match talk.watch.lacks(&outgoing.command) {
                            Some(lacks) => Err(lacks),
                            None => self.publish(talk, action, outgoing, beside),
                        };
                        if let Err(why) = published {
                            talk.caller.publish_failed(call, &why);
                        }
                    }
                    Effect::Progress { call, ack } => talk.tell(call, Told::Progress(ack)),
                    Effect::Done { call, ack, cause } => talk.tell(call, Told::Done(ack, cause)),
                    Effect::Warn(text) => self.warn(&text),
                }
            }
        }
    }

    fn publish(
        &self,
        talk: &mut Talk,
        action: Action,
        outgoing: Outgoing,
        (seq_num, trace, mut headers): (i32, helio_bus::TraceId, CallHeaders),
    ) -> Result<(), String> {
        headers.caller = outgoing.caller.clone().or(headers.caller);
        if action == Action::Validate {
            let schema = outgoing.fields.as_ref().map(|fields| fields.shape().schema().id());
            headers.schema = schema;
        }
        let headers = headers.encode().map_err(|error| error.to_string())?;
        let headers = headers.into_iter().try_fold(Headers::new(), |all, (name, value)| {
            all.with(name, value).map_err(|error| error.to_string())
        })?;
        let beside =
            Beside { seq_num: Some(seq_num), trace: Some(trace), headers: headers.as_ref() };
        match (action, outgoing.fields) {
            (Action::Run, Some(fields)) => {
                let topic = self.topic(talk, &outgoing.command)?;
                let published = topic.publish(|record| record.take_public(fields), &beside);
                published.map(drop).map_err(|error| error.to_string())
            }
            (action, fields) => self.control(talk, (action, outgoing.command, fields), &beside),
        }
    }

    fn topic<'a>(&self, talk: &'a mut Talk, command: &str) -> Result<&'a WriteTopic, String> {
        if !talk.topics.contains_key(command) {
            let shape = self.interface.shape(TopicKind::Command, command);
            let shape = shape.map_err(|error| error.to_string())?;
            let topic = WriteTopic::new(&self.bus, shape, self.author.clone());
            talk.topics.insert(command.to_owned(), topic);
        }
        talk.topics.get(command).ok_or_else(|| format!("no command {command}"))
    }

    /// Asks something of the component besides a command.
    fn control(
        &self,
        talk: &mut Talk,
        (action, command, fields): (Action, String, Option<Fields>),
        beside: &Beside<'_>,
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
                let topic = self.topic(talk, &command)?;
                let fields = fields.ok_or_else(|| format!("no command {command}"))?;
                // What could not be sent is not valid; and the component finds the schema.
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
        if talk.control.is_none() {
            talk.control = Some(self.open_control().map_err(|error| error.to_string())?);
        }
        let Some((publisher, codec)) = &talk.control else { return Ok(()) };
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
        let schema = ControlRecord::schema().expect("a test parses the schemas of our own records");
        let topic = self.bus.topic(spec.qos(ControlRecord::qos()).schema(&schema))?;
        Ok((topic.publisher()?, Codec::new(&schema)))
    }
}

impl Talk {
    fn tell(&mut self, call: CallNumber, told: Told) {
        if let Some(waiting) = self.told.get_mut(&call) {
            // Of progress that nobody has asked for yet the newest counts, so nothing piles up; the
            // end comes behind it.
            let progress = matches!(told, Told::Progress(_));
            if progress && matches!(waiting.back(), Some(Told::Progress(_))) {
                waiting.pop_back();
            }
            waiting.push_back(told);
        }
    }
}

/// An acknowledgement as SAL has it; `None` where it is none.
fn ack_of(shape: &Arc<Shape>, sample: &Sample) -> Option<AckSample> {
    let Ok(Value::Record(record)) = shape.codec().decode(&sample.payload) else { return None };
    let seq_num = match record[shape.at(Private::SeqNum)] {
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

impl std::fmt::Debug for Dialogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dialogue({})", self.interface.identity(self.index))
    }
}
