//! The controller behind its lock, and the execution of its effects.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use helio_bus::{Bus, Message, Publisher, Tai, WaitSetWaker};
use helio_core::sal::TopicKind;
use helio_core::{Codec, Headers, ProducerName, Value};

use super::Component;
use super::command::{Command, Failed, Handler, Taken};
use super::generics::{LogLevel, SoftwareVersions};
use super::policy::PolicyFile;
use super::pool::Pool;
use crate::fields::Fields;
use crate::interface::{Interface, InterfaceError, Shape};
use crate::lease::{Lease, WeakLease};
use crate::protocol::controller::{Address, AuditEntry, Controller, Effect, Phase};
use crate::protocol::{
    AckHeaders, Acknowledgement, CallNumber, Checks, Done, Ending, Failure, StateCommand,
    StreamStats, SummaryState, Transition,
};
use crate::records::{AuditPhase, AuditRecord};
use crate::write::{Author, Beside, WriteTopic};

/// What runs before or after a change of state.
pub(super) type Hook = Box<dyn Fn(&Command) -> Result<(), Failed> + Send + Sync>;

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Moment {
    Begin,
    End,
}

/// Where a handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On one of the component's threads.
    Thread,
    /// On the thread that reads the commands.
    Inline,
}

/// A command of the interface.
pub(super) struct Known {
    pub shape: Arc<Shape>,
    pub checks: Checks,
    pub handler: Option<Arc<dyn Handler>>,
    pub place: Place,
    /// Where the record has the time of a stream's command, in TAI seconds.
    pub time_at: Option<usize>,
    pub number: i32,
}

pub(super) struct Shell {
    pub bus: Bus,
    pub interface: Interface,
    pub index: i32,
    pub identity: String,
    pub producer: ProducerName,
    pub lease: Mutex<Option<Lease>>,
    /// The same, for those who write: they do not keep it.
    pub weak: WeakLease,
    pub known: HashMap<String, Known>,
    pub hooks: HashMap<(StateCommand, Moment), Vec<Hook>>,
    pub protocol: Mutex<Protocol>,
    pub acks: Acks,
    pub audit: Audit,
    pub topics: Mutex<HashMap<(TopicKind, String), WriteTopic>>,
    pub versions: SoftwareVersions,
    pub simulation_mode: i32,
    pub configurations: Option<super::config::ConfigFolder>,
    pub policy: Mutex<Option<PolicyFile>>,
    pub state: AtomicI32,
    pub log_level: AtomicI32,
    pub handlers: Pool,
    pub changes: Pool,
    pub waker: OnceLock<WaitSetWaker>,
    pub stopping: AtomicBool,
    /// What was told last of each thing that could not be published.
    pub complaints: Mutex<HashMap<String, String>>,
}

/// What stands behind the lock.
pub(super) struct Protocol {
    pub controller: Controller,
    pub taken: HashMap<CallNumber, Arc<Taken>>,
}

/// What is to be run outside the lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    Run(CallNumber),
    Validate(CallNumber),
    Change(CallNumber, Transition, Moment),
}

impl Work {
    fn call(self) -> CallNumber {
        match self {
            Self::Run(call) | Self::Validate(call) | Self::Change(call, ..) => call,
        }
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shell {
    pub(super) fn state(&self) -> SummaryState {
        let number = self.state.load(Ordering::Acquire);
        SummaryState::from_number(number).unwrap_or(SummaryState::Offline)
    }

    pub(super) fn author(&self) -> Author {
        Author {
            identity: self.identity.clone(),
            index: self.index,
            producer: Some(self.producer.clone()),
            lease: Some(self.weak.clone()),
        }
    }

    /// A topic to write, always the same one.
    pub(super) fn topic(&self, kind: TopicKind, name: &str) -> Result<WriteTopic, InterfaceError> {
        let mut topics = locked(&self.topics);
        if let Some(topic) = topics.get(&(kind, name.to_owned())) {
            return Ok(topic.clone());
        }
        let shape = self.interface.shape(kind, name)?;
        let topic = WriteTopic::new(&self.bus, shape, self.author());
        topics.insert((kind, name.to_owned()), topic.clone());
        Ok(topic)
    }

    pub(super) fn stream(&self, command: &str) -> Option<StreamStats> {
        locked(&self.protocol).controller.stream(command)
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Gives the controller an input, executes its effects in order, and has run what is to be.
    pub(super) fn input<R>(self: &Arc<Self>, input: impl FnOnce(&mut Controller, Tai) -> R) -> R {
        let mut protocol = locked(&self.protocol);
        let result = input(&mut protocol.controller, self.bus.clock().now());
        let work = self.execute(&mut protocol);
        drop(protocol);
        self.run(work);
        result
    }

    /// The same for a request: what was received of it is kept until its turn comes.
    pub(super) fn request(
        self: &Arc<Self>,
        taken: Taken,
        input: impl FnOnce(&mut Controller, Tai) -> CallNumber,
    ) {
        let mut protocol = locked(&self.protocol);
        let call = input(&mut protocol.controller, self.bus.clock().now());
        protocol.taken.insert(call, Arc::new(taken));
        let work = self.execute(&mut protocol);
        drop(protocol);
        self.run(work);
    }

    fn execute(&self, protocol: &mut Protocol) -> VecDeque<Work> {
        let mut work = VecDeque::new();
        let Protocol { controller, taken } = protocol;
        for effect in controller.effects() {
            match effect {
                Effect::Run { call } => work.push_back(Work::Run(call)),
                Effect::Validate { call } => work.push_back(Work::Validate(call)),
                Effect::Begin { call, transition } => {
                    work.push_back(Work::Change(call, transition, Moment::Begin));
                }
                Effect::End { call, transition } => {
                    work.push_back(Work::Change(call, transition, Moment::End));
                }
                Effect::Discard { call } => drop(taken.remove(&call)),
                Effect::Interrupt { call } => {
                    if let Some(taken) = taken.get(&call) {
                        taken.cancel.set();
                    }
                }
                Effect::Acknowledge { address, ack } => self.acknowledge(&address, ack),
                Effect::State(state) => self.publish_state(state),
                Effect::Audit(entry) => self.publish_audit(entry),
                Effect::Warn(text) => self.log(LogLevel::Warning, &text, ""),
                Effect::Quit => self.stop(),
            }
        }
        work
    }

    /// Runs what may be run here, and hands the rest to threads.
    pub(super) fn run(self: &Arc<Self>, mut work: VecDeque<Work>) {
        while let Some(next) = work.pop_front() {
            match self.pool(next) {
                None => work.extend(self.perform(next)),
                Some(pool) => {
                    let shell = Arc::clone(self);
                    pool.run(Box::new(move || {
                        let more = shell.perform(next);
                        shell.run(more);
                    }));
                }
            }
        }
    }

    /// The threads that work is for; `None` where it is done at once.
    fn pool(&self, work: Work) -> Option<&Pool> {
        match work {
            Work::Change(_, transition, moment) => {
                let hooks = self.hooks.get(&(transition.command, moment));
                hooks.is_some_and(|hooks| !hooks.is_empty()).then_some(&self.changes)
            }
            Work::Run(call) | Work::Validate(call) => {
                let taken = locked(&self.protocol).taken.get(&call).cloned()?;
                let inline = self.known.get(&taken.name)?.place == Place::Inline;
                (!inline).then_some(&self.handlers)
            }
        }
    }

    fn perform(self: &Arc<Self>, work: Work) -> VecDeque<Work> {
        let call = work.call();
        let taken = match self.take_up(work) {
            Ok(taken) => taken,
            Err(more) => return more,
        };
        let command = Command { component: Component(Arc::clone(self)), call, taken };
        let ended = match catch_unwind(AssertUnwindSafe(|| self.handle(work, &command))) {
            Ok(ended) => ended.map_err(|failed| failed.0),
            Err(panic) => Err(self.panicked(&command, &*panic)),
        };
        let mut protocol = locked(&self.protocol);
        let now = self.bus.clock().now();
        let controller = &mut protocol.controller;
        match work {
            Work::Change(_, _, Moment::Begin) => {
                let failed = ended.is_err();
                controller.begun(now, call, ended.map(drop));
                if failed {
                    protocol.taken.remove(&call);
                }
            }
            _ => {
                controller.finished(now, call, ended);
                protocol.taken.remove(&call);
            }
        }
        self.ended(protocol)
    }

    /// What was received of a call that is to be begun now. One that has waited for its thread too
    /// long, or was cancelled meanwhile, is not begun: then what else there is to do.
    fn take_up(&self, work: Work) -> Result<Arc<Taken>, VecDeque<Work>> {
        let call = work.call();
        let mut protocol = locked(&self.protocol);
        let now = self.bus.clock().now();
        let handler = matches!(work, Work::Run(_) | Work::Validate(_));
        if handler && !protocol.controller.take_up(now, call) {
            protocol.taken.remove(&call);
            return Err(self.ended(protocol));
        }
        protocol.taken.get(&call).cloned().ok_or_else(VecDeque::new)
    }

    /// After a call has ended: what comes of it.
    fn ended(&self, mut protocol: MutexGuard<'_, Protocol>) -> VecDeque<Work> {
        let work = self.execute(&mut protocol);
        if self.stopping.load(Ordering::Acquire) && protocol.controller.is_idle() {
            // The thread that waits for commands waits for this now.
            self.stop();
        }
        work
    }

    fn handle(&self, work: Work, command: &Command) -> Result<Done, Failed> {
        let handler = self.known.get(command.name()).and_then(|known| known.handler.as_ref());
        match (work, handler) {
            (Work::Run(_), Some(handler)) => handler.run(command),
            (Work::Validate(_), Some(handler)) => {
                handler.validate(command).map(|()| Done::default())
            }
            (Work::Change(_, transition, moment), _) => {
                let hooks = self.hooks.get(&(transition.command, moment));
                for hook in hooks.into_iter().flatten() {
                    hook(command)?;
                }
                Ok(Done::default())
            }
            // Commands of the state have hooks and no handler.
            (_, None) => Ok(Done::default()),
        }
    }

    fn panicked(&self, command: &Command, panic: &(dyn std::any::Any + Send)) -> Failure {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "it does not say why".to_owned());
        let name = command.name();
        self.log(LogLevel::Error, &format!("the handler of {name} panicked: {text}"), "");
        Failure::new(Ending::Failed, format!("the handler panicked: {text}"))
    }

    fn publish_state(&self, state: SummaryState) {
        let before = self.state.swap(state.number(), Ordering::AcqRel);
        if before == SummaryState::Fault.number() && state != SummaryState::Fault {
            self.publish_error(0, "", "");
        }
        self.publish_summary(state);
    }

    fn acknowledge(&self, address: &Address, ack: Acknowledgement) {
        let number = address.command.as_ref().and_then(|name| self.known.get(name));
        let number = number.map_or(-1, |known| known.number);
        if let Err(error) = self.acks.publish(address, ack, number) {
            self.complain("an acknowledgement", &error.to_string());
        }
    }

    fn publish_audit(&self, entry: AuditEntry) {
        let record = AuditRecord {
            time: entry.time.into(),
            component: self.interface.name().to_owned(),
            index: self.index,
            command: entry.command,
            seq_num: entry.seq_num,
            caller: entry.caller,
            identity: entry.identity,
            origin: entry.origin,
            phase: match entry.phase {
                Phase::Received => AuditPhase::Received,
                Phase::Finished => AuditPhase::Finished,
            },
            ack: entry.ack.map_or(0, crate::protocol::AckCode::number),
            error: entry.error,
            result: entry.result,
            duration: entry.duration_s,
            arguments: entry.arguments,
        };
        if let Err(error) = self.audit.publish(&record) {
            self.complain("a record of the audit", &error);
        }
    }

    /// What cannot be told on the bus is told here, and once for as long as the reason is the same:
    /// a topic that is refused would tell it with each heartbeat.
    pub(super) fn complain(&self, what: &str, reason: &str) {
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        let before = locked(&self.complaints).insert(what.to_owned(), reason.to_owned());
        if before.is_none_or(|before| before != reason) {
            eprintln!("{}: {what} could not be published: {reason}", self.identity);
        }
    }
}

/// Acknowledgements of all commands of a component.
pub(super) struct Acks {
    topic: WriteTopic,
    /// The places of ack, error, result, identity, origin, cmdtype, timeout.
    places: [usize; 7],
}

/// The public fields of acknowledgements, as every component has them.
const ACK_FIELDS: [&str; 7] =
    ["ack", "error", "result", "identity", "origin", "cmdtype", "timeout"];

impl Acks {
    pub(super) fn new(topic: WriteTopic) -> Self {
        let shape = Arc::clone(topic.shape());
        // SAL's loader gives every component these fields.
        let places = ACK_FIELDS.map(|name| shape.place(name).unwrap_or_default());
        Self { topic, places }
    }

    pub(super) fn shape(&self) -> &Arc<Shape> {
        self.topic.shape()
    }

    fn publish(
        &self,
        address: &Address,
        ack: Acknowledgement,
        number: i32,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let headers = AckHeaders { progress: ack.progress, typed: ack.typed };
        let mut headers = headers.encode()?.into_iter();
        let headers =
            headers.try_fold(Headers::new(), |all, (name, value)| all.with(name, value))?;
        let fill = |fields: &mut Fields| {
            let values = [
                Value::Int(ack.code.number()),
                Value::Int(ack.error),
                Value::String(ack.result),
                Value::String(address.identity.clone()),
                Value::Int(address.origin),
                Value::Int(number),
                Value::Double(ack.timeout_s),
            ];
            for (place, value) in self.places.into_iter().zip(values) {
                fields.record_mut()[place] = value;
            }
        };
        let (seq_num, trace) = (Some(address.seq_num), address.trace);
        let beside = Beside { seq_num, trace, headers: headers.as_ref() };
        self.topic.publish(fill, &beside)?;
        Ok(())
    }
}

/// The topic of the audit.
pub(super) struct Audit {
    pub publisher: Publisher,
    pub codec: Codec,
    pub key: Vec<u8>,
}

impl Audit {
    fn publish(&self, record: &AuditRecord) -> Result<(), String> {
        let mut payload = Vec::new();
        self.codec.serialize(record, &mut payload).map_err(|error| error.to_string())?;
        let message = Message::new(&payload).key(&self.key);
        self.publisher.publish(message).wait().map_err(|error| error.to_string())?;
        Ok(())
    }
}
