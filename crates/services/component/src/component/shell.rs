//! The controller behind its lock, and the execution of its effects.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use helio_bus::{Bus, Tai, WaitSetWaker};
use helio_core::ProducerName;
use helio_core::sal::TopicKind;

use super::Component;
use super::command::{Cancel, Command, Failed, Handler, Taken};
use super::generics::{LogLevel, SoftwareVersions};
use super::outbox::Outbox;
use super::policy::PolicyFile;
use super::pool::Pool;
use super::publish::{Acks, Answer, Audit, Notice, audit_record};
use crate::interface::{Interface, InterfaceError, Shape};
use crate::lease::{Lease, LeaseStanding, WeakLease};
use crate::protocol::controller::{Address, Controller, Effect, LeaseState};
use crate::protocol::{
    Acknowledgement, CallNumber, Checks, Done, Ending, Failure, StateCommand, StreamStats,
    SummaryState, Transition,
};
use crate::write::{Author, WriteTopic};

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
    pub outbox: Outbox<Notice>,
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
    /// Threads of topics that are held up.
    pub lines: Pool,
    /// Threads of topics that could not be read, and are opened again.
    pub openings: Pool,
    /// Threads of what is done each second.
    pub beats: Pool,
    pub waker: OnceLock<WaitSetWaker>,
    pub stopping: AtomicBool,
    /// The controller was told that nobody can tell who has the lease.
    pub unsure: AtomicBool,
    /// Ends what is done each second.
    pub ended: Cancel,
    /// What was told last of each thing that cannot be published.
    pub complaints: Mutex<HashMap<String, String>>,
    /// How many log messages could not be published since one could.
    pub unlogged: AtomicU64,
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
        self.wake();
    }

    /// Has the thread that waits for commands look around.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Looks how it stands with the lease. The controller hears at once where it is not held; that
    /// it is again it hears from who reads commands ([`hold_again`](Self::hold_again)).
    pub(super) fn look_at_lease(self: &Arc<Self>) -> LeaseStanding {
        let lease = locked(&self.lease).clone();
        let standing = lease.as_ref().map_or(LeaseStanding::Lost, Lease::standing);
        match (standing, lease) {
            (LeaseStanding::Held, _) => {}
            (LeaseStanding::Lapsed, Some(lease)) => {
                let told = LeaseState::Lapsed { incarnation: lease.incarnation() };
                let news = self.input(|controller, now| {
                    controller.lease(now, told);
                    !self.unsure.swap(true, Ordering::AcqRel)
                });
                if news {
                    // No log message gets out now.
                    eprintln!("{}: nothing is run for now: {}", self.identity, lease.outage());
                }
            }
            _ => self.input(|controller, now| controller.lease(now, LeaseState::Lost)),
        }
        standing
    }

    /// Tells the controller that the lease is held again, if it still is.
    pub(super) fn hold_again(self: &Arc<Self>) {
        let Some(lease) = locked(&self.lease).clone() else { return };
        self.input(|controller, now| {
            if lease.known() == Some(LeaseStanding::Held) {
                self.unsure.store(false, Ordering::Release);
                controller.lease(now, LeaseState::Held { incarnation: lease.incarnation() });
            }
        });
    }

    /// Gives the controller an input, executes its effects in order, publishes what it says, and
    /// has run what is to be.
    pub(super) fn input<R>(self: &Arc<Self>, input: impl FnOnce(&mut Controller, Tai) -> R) -> R {
        let mut protocol = locked(&self.protocol);
        let result = input(&mut protocol.controller, self.bus.clock().now());
        let work = self.execute(&mut protocol);
        drop(protocol);
        self.publish();
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
        self.publish();
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
                // Nothing is asked here that would be answered.
                Effect::Answer { .. } => {}
                Effect::Acknowledge { address, ack } => self.say_ack(address, ack),
                Effect::Error { code, report } => self.say_fault(code, &report, ""),
                Effect::State(state) => self.say_state(state),
                Effect::Audit(entry) => {
                    let record = audit_record(self.interface.name(), self.index, entry);
                    self.outbox.put(Notice::Audit(record));
                }
                Effect::Warn(text) => self.say_log(LogLevel::Warning, &text, ""),
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
    fn take_up(self: &Arc<Self>, work: Work) -> Result<Arc<Taken>, VecDeque<Work>> {
        let call = work.call();
        // It may have waited for long: for its thread, or for others of its lane.
        self.look_at_lease();
        let mut protocol = locked(&self.protocol);
        let now = self.bus.clock().now();
        let begins = !matches!(work, Work::Change(.., Moment::End));
        if begins && !protocol.controller.take_up(now, call) {
            protocol.taken.remove(&call);
            return Err(self.ended(protocol));
        }
        protocol.taken.get(&call).cloned().ok_or_else(VecDeque::new)
    }

    /// After a call has ended: what comes of it.
    fn ended(self: &Arc<Self>, mut protocol: MutexGuard<'_, Protocol>) -> VecDeque<Work> {
        let work = self.execute(&mut protocol);
        let idle = protocol.controller.is_idle();
        drop(protocol);
        self.publish();
        if self.stopping.load(Ordering::Acquire) && idle {
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

    fn panicked(
        self: &Arc<Self>,
        command: &Command,
        panic: &(dyn std::any::Any + Send),
    ) -> Failure {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "it does not say why".to_owned());
        let name = command.name();
        self.log(LogLevel::Error, &format!("the handler of {name} panicked: {text}"), "");
        Failure::new(Ending::Failed, format!("the handler panicked: {text}"))
    }

    fn say_state(&self, state: SummaryState) {
        let before = self.state.swap(state.number(), Ordering::AcqRel);
        if before == SummaryState::Fault.number() && state != SummaryState::Fault {
            self.say_error(0, "", "");
        }
        self.say_summary(state);
    }

    /// Says what went wrong; the state is told next.
    pub(super) fn say_fault(&self, code: i32, report: &str, traceback: &str) {
        self.say_error(code, report, traceback);
        self.say_log(LogLevel::Error, &format!("fault {code}: {report}"), traceback);
    }

    fn say_ack(&self, to: Address, ack: Acknowledgement) {
        let known = to.command.as_ref().and_then(|name| self.known.get(name));
        let command = known.map_or(-1, |known| known.number);
        self.outbox.put(Notice::Acknowledge(Box::new(Answer { to, command, ack })));
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

    /// It could be published: should it fail again, that is told again.
    pub(super) fn recovered(&self, what: &str) {
        locked(&self.complaints).remove(what);
    }
}
