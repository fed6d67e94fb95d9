//! The component's side: what becomes of each command that is received.
//!
//! A command is judged in this order: is it for this instance, which has not lost its lease (else
//! silence: it is another's); can the audit be written; has it expired; was it sent before under
//! the same key; is the lease confirmed; may the caller send it; has another caller locked the
//! component; is there such a command with a handler; is the change of state allowed (not asked yet
//! while another change runs); is it in time for its stream; are its values right.
//! Then it runs, or waits in its lane; before it leaves the lane, expiry, state and time are looked
//! at again. Whatever refuses it is its final acknowledgement.
//!
//! A command has exactly one final acknowledgement, unless the lease is lost before: then it has
//! none from here. What is sent again under the key of a command that waits or runs joins it, and
//! has its acknowledgements too.

mod audit;
mod effect;
mod live;
mod options;
mod rules;
mod run;

use std::collections::VecDeque;

use helio_core::Tai;

use super::memory::Memory;
use super::{
    AckCode, Acknowledgement, Action, CallNumber, Done, Failure, Lock, Policy, Progress, Request,
    StreamStats, SummaryState, span,
};
use audit::Audit;
use live::{Asked, Asker, Board, Stage, Voice, tellable};
use rules::{Cancelled, Judged};

pub use audit::{AUDIT_LOST, AUDIT_PATIENCE};
pub use effect::{Address, AuditEntry, Effect, Phase};
pub use live::MAX_RESULT_BYTES;
pub use options::{CommandSpec, ControllerOptions, Lane, LeaseState, StreamSpec};

/// The most commands of one lane that wait: a caller who is that far ahead of the component has
/// lost touch with it.
pub const MAX_WAITING: usize = 100;
/// The most commands of one concurrent lane that run at a time, and the most that are validated at
/// a time, so that handlers cannot pile up.
pub const MAX_CONCURRENT: usize = 100;
/// The most repetitions of one command that are answered together with it.
pub const MAX_JOINED: usize = 16;
/// The most cancelled commands that are yet to come, or have ended long ago: as many as may wait in
/// the topics of a component when somebody cancels all that he has sent.
pub const MAX_EARLY: usize = 256;

/// Decides what becomes of the commands of one component.
#[derive(Debug)]
pub struct Controller {
    component: String,
    index: i32,
    board: Board,
    next: u64,
    state: SummaryState,
    lease: LeaseState,
    audit: Audit,
    policy: Policy,
    lock: Option<Lock>,
    memory: Memory,
    /// What was cancelled before it came, oldest first.
    early: VecDeque<Cancelled>,
    closing: bool,
    effects: VecDeque<Effect>,
}

impl Controller {
    /// A component that has no lease yet, and hence is silent.
    #[must_use]
    pub fn new(options: ControllerOptions) -> Self {
        Self {
            component: options.component,
            index: options.index,
            board: Board::new(options.commands),
            next: 1,
            state: options.state,
            lease: LeaseState::Lost,
            audit: Audit::Written,
            policy: Policy::default(),
            lock: None,
            memory: Memory::default(),
            early: VecDeque::new(),
            closing: false,
            effects: VecDeque::new(),
        }
    }

    /// Takes what is to be done, in order. To be called after each input.
    pub fn effects(&mut self) -> impl Iterator<Item = Effect> + '_ {
        self.effects.drain(..)
    }

    /// The summary state.
    #[must_use]
    pub fn state(&self) -> SummaryState {
        self.state
    }

    /// The lock, if there is one that has not ended by the last input.
    #[must_use]
    pub fn lock(&self) -> Option<&Lock> {
        self.lock.as_ref()
    }

    /// The counters of a stream's command; `None` where it is none.
    #[must_use]
    pub fn stream(&self, command: &str) -> Option<StreamStats> {
        let known = &self.board.commands[self.board.command(command)?];
        known.spec.stream.map(|_| known.stats)
    }

    /// What was asked by a call that waits or runs, without the arguments for the audit.
    #[must_use]
    pub fn request(&self, call: CallNumber) -> Option<&Request> {
        self.board.calls.get(&call).map(|live| &live.asked.request)
    }

    /// Whether nothing waits or runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.board.calls.is_empty()
    }

    /// Number of calls that wait or run.
    #[must_use]
    pub fn live_calls(&self) -> usize {
        self.board.calls.len()
    }

    /// Number of commands that are remembered by their keys.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.memory.len()
    }

    /// A command, or a request on the topic `control`, was received.
    pub fn received(&mut self, now: Tai, request: Request) -> CallNumber {
        let call = CallNumber(self.next);
        self.next += 1;
        if !self.is_for_this_instance(&request) {
            self.effects.push_back(Effect::Discard { call });
            return call;
        }
        self.end_lock(now);
        match self.judge(now, &request) {
            Judged::Answer(ack) => self.answer(now, call, Asked::of(request, now), ack),
            Judged::Join(with) => self.join(now, call, request, with),
            Judged::Take(command) if request.action == Action::Validate => {
                self.validate(now, call, request, command);
            }
            Judged::Take(command) => self.take(now, call, Asked::of(request, now), command),
        }
        call
    }

    /// The component itself asks for a command, mostly one that changes its state. Authorization
    /// and locks are for others, and so is the audit; [`Effect::Answer`] tells how it ended.
    ///
    /// Nothing that comes from the bus can pass for it: it is no request of a caller's.
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
            time: None,
            refusal: None,
            arguments: String::new(),
        };
        self.end_lock(now);
        match self.judge_own(&request) {
            Err(ack) => self.answer(now, call, Asked::own(request, now), ack),
            Ok(at) => self.take(now, call, Asked::own(request, now), at),
        }
        call
    }

    /// How what comes before a change of state ended; answers [`Effect::Begin`].
    pub fn begun(&mut self, now: Tai, call: CallNumber, ended: Result<(), Failure>) {
        let Some(live) = self.board.calls.get_mut(&call) else { return };
        let Stage::Beginning(transition) = live.stage else { return };
        match ended {
            Ok(()) if live.voice == Voice::Callers => {
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

    /// Whether a handler, its check or what comes before a change of state is to begin; to be asked
    /// before, where it had to wait for its turn after [`Effect::Run`], [`Effect::Validate`] or
    /// [`Effect::Begin`]. If not, the call has ended here: it was cancelled, has expired, or its
    /// time is over, the lease is not held, or the component goes away.
    pub fn take_up(&mut self, now: Tai, call: CallNumber) -> bool {
        let Some(live) = self.board.calls.get(&call) else { return false };
        let key = live::key(&live.asked.request);
        let Err(ack) = self.still(now, call) else { return true };
        self.end(now, call, ack);
        // It never ran: sent again, it may.
        key.into_iter().for_each(|key| self.memory.forget(&key));
        self.advance_all(now);
        false
    }

    /// How a handler, a check or what comes after a change of state ended; answers
    /// [`Effect::Run`], [`Effect::Validate`] and [`Effect::End`].
    pub fn finished(&mut self, now: Tai, call: CallNumber, ended: Result<Done, Failure>) {
        let Some(live) = self.board.calls.get(&call) else { return };
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

    /// A handler says how it gets on.
    pub fn in_progress(&mut self, now: Tai, call: CallNumber, told: Progress) {
        let Some(live) = self.board.calls.get_mut(&call) else { return };
        if live.voice != Voice::Callers || live.stage == Stage::Waiting {
            return;
        }
        let ack = tellable(told.into());
        live.until = Some(span::after_seconds(now, ack.timeout_s));
        for asked in live.asked().filter(|asked| asked.by == Asker::Caller) {
            let address = live::address(&asked.request);
            self.effects.push_back(Effect::Acknowledge { address, ack: ack.clone() });
        }
    }

    /// Something went wrong that needs a person: the state is FAULT, and changes of state that run
    /// fail with the error code and the report. The event `errorCode` is the shell's.
    pub fn fault(&mut self, now: Tai, error: i32, report: &str) {
        self.set_state(SummaryState::Fault);
        let changing = |live: &live::Live| {
            matches!(live.stage, Stage::Beginning(_) | Stage::Ending(_))
                && live.voice == Voice::Callers
        };
        for call in self.board.calls_that(changing) {
            let name = self.request(call).map_or("", |request| &request.command);
            let colon = if report.is_empty() { "" } else { ": " };
            let text = format!("FAULT while {name} ran{colon}{report}");
            self.tell_end(now, call, Acknowledgement { error, ..rules::failed(text) });
        }
        self.advance_all(now);
    }

    /// Another authorization holds from now on; what waits or runs is not judged again.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// The lease was gained or lost, or nobody can tell. Lost: what waits is forgotten, what runs
    /// is interrupted, nobody is told, and the lock ends. Lapsed: what waits is not run, and its
    /// callers are told. Gained: the state is told.
    pub fn lease(&mut self, now: Tai, lease: LeaseState) {
        if self.lease == lease {
            return;
        }
        self.lease = lease;
        match lease {
            LeaseState::Held { .. } => {
                self.wait_for_audit(now);
                self.effects.push_back(Effect::State(self.state));
            }
            LeaseState::Lapsed { .. } => {
                for call in self.board.calls_that(|live| live.stage == Stage::Waiting) {
                    self.end(now, call, rules::unsure());
                }
            }
            LeaseState::Lost => self.lose(now),
        }
    }

    fn lose(&mut self, now: Tai) {
        self.lock = None;
        for call in self.board.calls_that(|live| live.voice == Voice::Callers) {
            self.mute(now, call);
        }
    }

    /// Commands of a stream never came, as the bus tells.
    pub fn stream_lost(&mut self, command: &str, commands: u64) {
        let Some(at) = self.board.command(command) else { return };
        if self.board.commands[at].spec.stream.is_some() {
            self.board.commands[at].stats.lose(commands);
        }
    }

    /// Time has passed; to be called at [`wake_at`](Self::wake_at) at the latest.
    pub fn tick(&mut self, now: Tai) {
        self.end_lock(now);
        self.look_at_audit(now);
        for at in 0..self.board.commands.len() {
            if let Some(number) = self.board.commands[at].late.tick(now) {
                self.warn_late(at, number);
            }
        }
        let waiting = self.board.calls_that(|live| live.stage == Stage::Waiting);
        for call in waiting {
            let expiry = self.request(call).and_then(|request| request.expiry);
            if expiry.is_some_and(|expiry| expiry <= now) {
                let text = "expired while it waited, not run";
                self.end(now, call, Acknowledgement::new(AckCode::Timeout, text));
            }
        }
    }

    /// When there is something to do without input.
    #[must_use]
    pub fn wake_at(&self) -> Option<Tai> {
        let waiting = self.board.lanes.iter().flat_map(|lane| &lane.waiting);
        let expiries = waiting.filter_map(|call| self.request(*call)?.expiry);
        let warnings = self.board.commands.iter().filter_map(|command| command.late.due());
        let others = [self.lock.as_ref().map(|lock| lock.until), self.audit_until()];
        expiries.chain(warnings).chain(others.into_iter().flatten()).min()
    }

    /// The component goes away: nothing more is taken, what waits is aborted, what runs is
    /// interrupted. Done when [`is_idle`](Self::is_idle).
    pub fn close(&mut self, now: Tai) {
        self.closing = true;
        for call in self.board.calls_that(|live| live.stage == Stage::Waiting) {
            self.end(now, call, self.gone());
        }
        let running = self.board.calls.keys().map(|call| Effect::Interrupt { call: *call });
        self.effects.extend(running);
    }

    /// Waits for no handler any more: the callers of what still runs are told that it was aborted.
    pub fn give_up(&mut self, now: Tai) {
        self.closing = true;
        for call in self.board.calls_that(|_| true) {
            self.end(now, call, self.gone());
        }
    }

    /// Without a lease it is nobody's. One for another instance is told by presence to have gone.
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
