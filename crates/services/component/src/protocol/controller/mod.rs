//! The component's side: decides on each received command.
//!
//! A command is checked in this order: is it for this instance, and is the lease not lost
//! (otherwise there is no answer, because another instance answers); can the audit be written; has
//! it expired; is it signed if its caller has a key, and no copy (which is not answered: the
//! original's answer is its caller's); was it sent before with the same key; is the lease
//! confirmed; is the caller permitted; has another caller locked the component; does the command
//! exist and have a handler; is the state change allowed (not checked while another change runs);
//! is it in time for its stream; are its values valid. Then it runs, or is queued in its lane. When
//! it leaves the lane, expiry, state and time are checked again. A refusal is its final
//! acknowledgement.
//!
//! A command has exactly one final acknowledgement, unless the lease is lost first: then this
//! instance sends none. A command that is sent again with the key of a queued or running one joins
//! it and receives its acknowledgements too.

mod audit;
mod effect;
mod live;
mod options;
mod rules;
mod run;

use std::collections::VecDeque;

use helio_core::Tai;

use super::idempotency::OutcomeCache;
use super::signature::SeenTraces;
use super::{
    AckCode, Acknowledgement, Action, CallNumber, Done, Failure, Lock, Policy, Progress, Request,
    StreamStats, SummaryState, interval,
};
use audit::AuditStatus;
use live::{CallTable, ReceivedRequest, Recipients, Requester, Stage, within_limits};
use rules::{Admission, EarlyCancel};

pub use audit::{AUDIT_LOST_CODE, AUDIT_TIMEOUT};
pub use effect::{Address, AuditEntry, Effect, Phase};
pub use live::MAX_RESULT_BYTES;
pub use options::{CommandSpec, ControllerOptions, Lane, LeaseState, StreamSpec};

/// The most queued commands of one lane: a caller that far ahead of the component has lost track of
/// it.
pub const MAX_QUEUED_COMMANDS: usize = 100;
/// The most running commands of one concurrent lane, and the most simultaneous validations, so that
/// handlers cannot accumulate.
pub const MAX_CONCURRENT: usize = 100;
/// The most repetitions of one command that are answered together with it.
pub const MAX_JOINED: usize = 16;
/// The most remembered cancellations of unknown commands, which are yet to arrive or ended long
/// ago: as many as a component's topics may hold when a caller cancels everything that it has sent.
pub const MAX_EARLY_CANCELS: usize = 256;

/// Decides on the commands of one component.
#[derive(Debug)]
pub struct Controller {
    component: String,
    index: i32,
    table: CallTable,
    next: u64,
    state: SummaryState,
    /// The error code and the report of the state FAULT.
    fault: Option<(i32, String)>,
    lease: LeaseState,
    audit: AuditStatus,
    policy: Policy,
    lock: Option<Lock>,
    outcomes: OutcomeCache,
    traces: SeenTraces,
    /// Cancellations of commands that have not arrived, oldest first.
    early: VecDeque<EarlyCancel>,
    closing: bool,
    effects: VecDeque<Effect>,
}

impl Controller {
    /// A component without a lease, which does not answer.
    #[must_use]
    pub fn new(options: ControllerOptions) -> Self {
        Self {
            component: options.component,
            index: options.index,
            table: CallTable::new(options.commands),
            next: 1,
            state: options.state,
            fault: None,
            lease: LeaseState::Lost,
            audit: AuditStatus::Written,
            policy: Policy::default(),
            lock: None,
            outcomes: OutcomeCache::default(),
            traces: SeenTraces::default(),
            early: VecDeque::new(),
            closing: false,
            effects: VecDeque::new(),
        }
    }

    /// Drains the effects, in order. Call it after each input.
    pub fn effects(&mut self) -> impl Iterator<Item = Effect> + '_ {
        self.effects.drain(..)
    }

    /// The summary state.
    #[must_use]
    pub fn state(&self) -> SummaryState {
        self.state
    }

    /// The error code and the report of the fault; `None` in other states.
    #[must_use]
    pub fn fault_report(&self) -> Option<(i32, &str)> {
        self.fault.as_ref().map(|(error, report)| (*error, report.as_str()))
    }

    /// The lock, unless it had ended by the last input.
    #[must_use]
    pub fn lock(&self) -> Option<&Lock> {
        self.lock.as_ref()
    }

    /// The counters of a stream command; `None` for other commands.
    #[must_use]
    pub fn stream(&self, command: &str) -> Option<StreamStats> {
        let known = &self.table.commands[self.table.command(command)?];
        known.spec.stream.map(|_| known.stats)
    }

    /// The request of a queued or running call, without the arguments for the audit.
    #[must_use]
    pub fn request(&self, call: CallNumber) -> Option<&Request> {
        self.table.calls.get(&call).map(|live| &live.first.request)
    }

    /// Whether no call is queued or running.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.table.calls.is_empty()
    }

    /// The number of queued and running calls.
    #[must_use]
    pub fn live_calls(&self) -> usize {
        self.table.calls.len()
    }

    /// The number of stored idempotency keys.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.outcomes.len()
    }

    /// Processes a command, or a request on the topic `control`.
    pub fn received(&mut self, now: Tai, mut request: Request) -> CallNumber {
        let call = CallNumber(self.next);
        self.next += 1;
        if !self.is_for_this_instance(&request) {
            self.effects.push_back(Effect::Discard { call });
            return call;
        }
        self.end_lock(now);
        // An unproved name is a declared one.
        let proved = request.signature.is_some() && self.policy.proves(&self.name(), &request);
        request.signature = request.signature.filter(|_| proved);
        match self.admit(now, &request) {
            Admission::Answer(ack) => {
                self.answer(now, call, ReceivedRequest::of(request, now), ack)
            }
            Admission::Copy(ack) => {
                self.refuse_copy(now, call, ReceivedRequest::of(request, now), &ack)
            }
            Admission::Join(with) => self.join(now, call, request, with),
            Admission::Admit(command) if request.action == Action::Validate => {
                self.validate(now, call, request, command);
            }
            Admission::Admit(command) => {
                self.take(now, call, ReceivedRequest::of(request, now), command)
            }
        }
        call
    }

    /// Processes a command that the component sends to itself, usually a state command.
    /// Authorization, locks and the audit apply to callers only; [`Effect::Answer`] reports the
    /// end.
    ///
    /// No request from the bus can be mistaken for one of these, because it always has a caller.
    pub fn ask(&mut self, now: Tai, command: &str) -> CallNumber {
        let call = CallNumber(self.next);
        self.next += 1;
        let request = Request {
            action: Action::Run,
            command: command.to_owned(),
            seq_num: 0,
            identity: self.name(),
            origin: 0,
            caller: None,
            instance: None,
            expiry: None,
            key: None,
            trace: None,
            signature: None,
            time: None,
            refusal: None,
            arguments: String::new(),
        };
        self.end_lock(now);
        match self.admit_own(&request) {
            Err(ack) => self.answer(now, call, ReceivedRequest::own(request, now), ack),
            Ok(at) => self.take(now, call, ReceivedRequest::own(request, now), at),
        }
        call
    }

    /// The result of the hooks before a state change; answers [`Effect::Begin`].
    pub fn begun(&mut self, now: Tai, call: CallNumber, ended: Result<(), Failure>) {
        let Some(live) = self.table.calls.get_mut(&call) else { return };
        let Stage::Beginning(transition) = live.stage else { return };
        match ended {
            Ok(()) if live.recipients == Recipients::Callers => {
                live.stage = Stage::Ending(transition);
                self.set_state(transition.to);
                self.effects.push_back(Effect::End { call, transition });
            }
            Ok(()) => {
                let text = "the lease was lost; the state is kept".to_owned();
                self.end(now, call, rules::failed(text));
            }
            Err(failure) => self.end_failed(now, call, failure),
        }
        self.advance_all(now);
    }

    /// Whether a handler, its check or a hook may start. Call it before the start if the task was
    /// queued after [`Effect::Run`], [`Effect::Validate`] or [`Effect::Begin`]. If not, the call
    /// has ended here: it was cancelled or has expired, its time is over, the lease is not held, or
    /// the component is ending.
    pub fn take_up(&mut self, now: Tai, call: CallNumber) -> bool {
        let Some(live) = self.table.calls.get(&call) else { return false };
        let key = live::key(&live.first.request);
        let Err(ack) = self.still(now, call) else { return true };
        self.end(now, call, ack);
        // It never ran: a repetition may run.
        key.into_iter().for_each(|key| self.outcomes.forget(&key));
        self.advance_all(now);
        false
    }

    /// The result of a handler, a check or the hooks after a state change; answers [`Effect::Run`],
    /// [`Effect::Validate`] and [`Effect::End`].
    pub fn finished(&mut self, now: Tai, call: CallNumber, ended: Result<Done, Failure>) {
        let Some(live) = self.table.calls.get(&call) else { return };
        match (live.stage, ended) {
            (Stage::Waiting | Stage::Beginning(_), _) => return,
            (Stage::Validating, Ok(done)) if done.result.is_empty() => {
                let ack = Acknowledgement { result: "valid".to_owned(), ..done.into() };
                self.end(now, call, ack);
            }
            (Stage::Ending(transition), Ok(done)) => {
                self.end(now, call, done.into());
                if transition.to == SummaryState::Offline && self.state == SummaryState::Offline {
                    self.close(now);
                    self.effects.push_back(Effect::Quit);
                }
            }
            (Stage::Ending(transition), Err(failure)) => {
                if self.state == transition.to {
                    self.set_state(transition.from);
                }
                self.end_failed(now, call, failure);
            }
            (_, Ok(done)) => self.end(now, call, done.into()),
            (_, Err(failure)) => self.end_failed(now, call, failure),
        }
        self.advance_all(now);
    }

    /// Reports the progress of a handler.
    pub fn in_progress(&mut self, now: Tai, call: CallNumber, progress: Progress) {
        let Some(live) = self.table.calls.get_mut(&call) else { return };
        if live.recipients != Recipients::Callers || live.stage == Stage::Waiting {
            return;
        }
        let ack = within_limits(progress.into());
        live.until = Some(interval::after_seconds(now, ack.timeout_s));
        for received in live.requests().filter(|received| received.by == Requester::Caller) {
            let address = live::address(&received.request);
            self.effects.push_back(Effect::Acknowledge { address, ack: ack.clone() });
        }
    }

    /// Reports a failure that needs a person: the state becomes FAULT, and running state changes
    /// fail with the error code and the report. The engine publishes the event `errorCode`.
    pub fn fault(&mut self, now: Tai, error: i32, report: &str) {
        self.set_state(SummaryState::Fault);
        self.fault = Some((error, report.to_owned()));
        let changing = |live: &live::ActiveCall| {
            matches!(live.stage, Stage::Beginning(_) | Stage::Ending(_))
                && live.recipients == Recipients::Callers
        };
        for call in self.table.calls_that(changing) {
            let name = self.request(call).map_or("", |request| &request.command);
            let colon = if report.is_empty() { "" } else { ": " };
            let text = format!("FAULT while {name} ran{colon}{report}");
            self.tell_end(now, call, Acknowledgement { error, ..rules::failed(text) });
        }
        self.advance_all(now);
    }

    /// Replaces the authorization policy; queued and running commands are not checked again.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Updates the lease. Lost: queued calls are discarded, running ones are interrupted, nothing
    /// is answered, and the lock ends. Lapsed: queued calls do not run, and their callers are
    /// notified. Held: the state is published.
    pub fn lease(&mut self, now: Tai, lease: LeaseState) {
        if self.lease == lease {
            return;
        }
        self.lease = lease;
        match lease {
            LeaseState::Held { .. } => {
                self.restart_audit_timeout(now);
                self.effects.push_back(Effect::State(self.state));
            }
            LeaseState::Lapsed { .. } => {
                for call in self.table.calls_that(|live| live.stage == Stage::Waiting) {
                    self.end(now, call, rules::unsure());
                }
            }
            LeaseState::Lost => self.lose(now),
        }
    }

    fn lose(&mut self, now: Tai) {
        self.lock = None;
        for call in self.table.calls_that(|live| live.recipients == Recipients::Callers) {
            self.mute(now, call);
        }
    }

    /// Counts lost stream commands, as the bus reports them.
    pub fn stream_lost(&mut self, command: &str, commands: u64) {
        let Some(at) = self.table.command(command) else { return };
        if self.table.commands[at].spec.stream.is_some() {
            self.table.commands[at].stats.lose(commands);
        }
    }

    /// Processes the passing of time; call it at [`wake_at`](Self::wake_at) at the latest.
    pub fn tick(&mut self, now: Tai) {
        self.end_lock(now);
        self.check_audit(now);
        for at in 0..self.table.commands.len() {
            if let Some(number) = self.table.commands[at].late.tick(now) {
                self.warn_late(at, number);
            }
        }
        let waiting = self.table.calls_that(|live| live.stage == Stage::Waiting);
        for call in waiting {
            let expiry = self.request(call).and_then(|request| request.expiry);
            if expiry.is_some_and(|expiry| expiry <= now) {
                let text = "expired while it waited, not run";
                self.end(now, call, Acknowledgement::new(AckCode::Timeout, text));
            }
        }
    }

    /// When `tick` is due without further input.
    #[must_use]
    pub fn wake_at(&self) -> Option<Tai> {
        let waiting = self.table.lanes.iter().flat_map(|lane| &lane.waiting);
        let expiries = waiting.filter_map(|call| self.request(*call)?.expiry);
        let warnings = self.table.commands.iter().filter_map(|command| command.late.due());
        let others = [self.lock.as_ref().map(|lock| lock.until), self.audit_until()];
        expiries.chain(warnings).chain(others.into_iter().flatten()).min()
    }

    /// Ends the component: no request is accepted, queued calls are aborted, running ones are
    /// interrupted. It is done when [`is_idle`](Self::is_idle).
    pub fn close(&mut self, now: Tai) {
        self.closing = true;
        for call in self.table.calls_that(|live| live.stage == Stage::Waiting) {
            self.end(now, call, self.gone());
        }
        let running = self.table.calls.keys().map(|call| Effect::Interrupt { call: *call });
        self.effects.extend(running);
    }

    /// Stops waiting for handlers: the callers of running commands are notified that they were
    /// aborted.
    pub fn give_up(&mut self, now: Tai) {
        self.closing = true;
        for call in self.table.calls_that(|_| true) {
            self.end(now, call, self.gone());
        }
    }

    /// Without a lease there is no answer. The presence of another instance ends requests for a
    /// previous one.
    fn is_for_this_instance(&self, request: &Request) -> bool {
        match self.lease {
            LeaseState::Held { incarnation } | LeaseState::Lapsed { incarnation } => {
                request.instance.is_none_or(|instance| instance == incarnation)
            }
            LeaseState::Lost => false,
        }
    }

    fn gone(&self) -> Acknowledgement {
        Acknowledgement::new(AckCode::Aborted, format!("{} went away", self.name()))
    }

    fn end_lock(&mut self, now: Tai) {
        self.lock = self.lock.take().filter(|lock| now < lock.until);
    }

    /// The component's name, with its index if it has one.
    fn name(&self) -> String {
        match self.index {
            0 => self.component.clone(),
            index => format!("{}:{index}", self.component),
        }
    }
}
