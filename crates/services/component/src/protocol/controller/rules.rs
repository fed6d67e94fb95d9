//! The rules for requests, in their order.

use helio_core::Tai;

use super::live::{Recipients, Requester, STATE_LANE, Stage, key};
use super::{Controller, LeaseState, MAX_EARLY_CANCELS};
use crate::protocol::idempotency::{KeyedCommand, Outcome};
use crate::protocol::lock::Lock;
use crate::protocol::signature::TraceStatus;
use crate::protocol::{
    AckCode, Acknowledgement, Action, CallNumber, Decision, MAX_CALLER_BYTES, MAX_KEY_BYTES,
    MAX_LOCK_S, MAX_SIGNED_LIFE_S, MAX_SIGNED_TRACES, Request, interval,
};

/// The decision on a request.
#[derive(Debug)]
pub(super) enum Admission {
    /// Its final acknowledgement.
    Answer(Acknowledgement),
    /// It is a copy of a signed request, for this reason refused without an answer.
    Copy(Acknowledgement),
    /// It repeats a queued or running call.
    Join(CallNumber),
    /// Run or validate the command at this position.
    Admit(usize),
}

/// A cancelled command that was unknown here: topics have no common order, so it may still arrive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EarlyCancel {
    who: String,
    identity: String,
    origin: i32,
    seq_num: i32,
}

type Rule<T = ()> = Result<T, Acknowledgement>;

impl Controller {
    /// Decides on a request.
    pub(super) fn admit(&mut self, now: Tai, request: &Request) -> Admission {
        let first = self.in_order(now, request).and_then(|()| self.authentic(now, request));
        let admission = first.and_then(|first| match request.action {
            _ if first == TraceStatus::Seen => Ok(Admission::Copy(copied())),
            Action::Run => self.admit_run(now, request),
            Action::Validate => self.admit_command(now, request).map(Admission::Admit),
            // Stopping a running command is always permitted.
            Action::Cancel { target } => self.cancel(now, request, target),
            Action::Lock { seconds } => {
                self.sure().and_then(|()| self.take_lock(now, request, seconds))
            }
            Action::Unlock => self.release_lock(now, request),
        });
        admission.unwrap_or_else(Admission::Answer)
    }

    /// Whether, as far as known, no other instance can have taken over.
    pub(super) fn sure(&self) -> Rule {
        match self.lease {
            LeaseState::Lapsed { .. } => Err(unsure()),
            LeaseState::Held { .. } | LeaseState::Lost => Ok(()),
        }
    }

    fn admit_run(&mut self, now: Tai, request: &Request) -> Rule<Admission> {
        self.uncancelled(request)?;
        if let Some(known) = self.recall(now, request)? {
            return Ok(known);
        }
        self.admit_command(now, request).map(Admission::Admit)
    }

    /// Decides on a command that the component sends to itself: only its properties and its state
    /// can refuse it.
    pub(super) fn admit_own(&self, request: &Request) -> Rule<usize> {
        if self.lease == LeaseState::Lost {
            return Err(failed(format!("{} does not hold its lease", self.name())));
        }
        self.open()?;
        self.sure()?;
        let command = self.known(request)?;
        if self.table.lanes[STATE_LANE].is_open() {
            self.allowed(command)?;
        }
        Ok(command)
    }

    fn admit_command(&mut self, now: Tai, request: &Request) -> Rule<usize> {
        self.sure()?;
        self.authorized(request, &request.command)?;
        self.unlocked(now, request)?;
        let command = self.known(request)?;
        if self.table.lanes[STATE_LANE].is_open() {
            // While a state change runs or is queued, the relevant state is not known yet.
            self.allowed(command)?;
        }
        if request.action == Action::Run && self.table.commands[command].spec.stream.is_some() {
            self.table.commands[command].stats.received += 1;
        }
        self.in_time(now, command, request)?;
        self.values(request)?;
        Ok(command)
    }

    fn open(&self) -> Rule {
        if self.closing {
            return Err(failed(format!("{} is going away", self.name())));
        }
        Ok(())
    }

    /// Whether the component accepts requests, and this one in particular now.
    fn in_order(&self, now: Tai, request: &Request) -> Rule {
        self.open()?;
        self.accountable(request)?;
        unexpired(now, request)?;
        if request.who().len() > MAX_CALLER_BYTES {
            return Err(failed(format!("a caller's name has at most {MAX_CALLER_BYTES} bytes")));
        }
        match &request.key {
            Some(key) if !(1..=MAX_KEY_BYTES).contains(&key.len()) => {
                Err(failed(format!("a key has 1 to {MAX_KEY_BYTES} bytes")))
            }
            _ => Ok(()),
        }
    }

    /// Whether the caller's name is proved if it must be, and whether this is the first request
    /// with its trace id.
    fn authentic(&mut self, now: Tai, request: &Request) -> Rule<TraceStatus> {
        let refused = |text| Err(Acknowledgement::new(AckCode::NoPerm, text));
        let who = request.who();
        let signed = (request.signature, request.trace, request.expiry);
        let (Some(_), Some(trace), Some(expiry)) = signed else {
            if !self.policy.has_key(who) {
                return Ok(TraceStatus::New);
            }
            // An answer would end the call whose trace id a forger has copied.
            if request.trace.is_some_and(|trace| self.traces.has(&trace)) {
                return Ok(TraceStatus::Seen);
            }
            // It cannot run, and its values, which are signed, could not be read.
            if request.arguments.is_empty() {
                self.values(request)?;
            }
            return refused(format!(
                "{who} has a key in the authorization file, and no signature of this command for \
                 this instance is by it"
            ));
        };
        if interval::seconds(now, expiry) > MAX_SIGNED_LIFE_S {
            return refused(format!(
                "a signed command expires within {MAX_SIGNED_LIFE_S} s; give it an earlier expiry"
            ));
        }
        match self.traces.note(now, trace, expiry) {
            TraceStatus::Over => Err(Acknowledgement::new(AckCode::Timeout, EXPIRED_BEFORE)),
            TraceStatus::Full => Err(failed(format!(
                "{MAX_SIGNED_TRACES} signed commands have not expired yet; send them with an \
                 earlier expiry"
            ))),
            status => Ok(status),
        }
    }

    /// The outcome of the same request, if it was received before.
    fn recall(&mut self, now: Tai, request: &Request) -> Rule<Option<Admission>> {
        let Some(key) = key(request) else { return Ok(None) };
        let given =
            |to: &str| Err(failed(format!("the key {:?} was given to {to} before", key.key)));
        let asked = KeyedCommand::of(request);
        match self.outcomes.recall(now, &key) {
            None => Ok(None),
            Some((known, _)) if known.command != asked.command => given(&known.command),
            Some((known, _)) if known.values != asked.values => {
                given(&format!("{} with other values", known.command))
            }
            Some((_, Outcome::Live(call))) => Ok(Some(Admission::Join(*call))),
            Some((_, Outcome::Ended(ack))) => Ok(Some(Admission::Answer(ack.clone()))),
        }
    }

    fn authorized(&self, request: &Request, command: &str) -> Rule {
        let (component, index) = (&self.component, self.index);
        match self.policy.permits(request.caller_name(), component, index, command) {
            Decision::Allowed => Ok(()),
            Decision::Refused(reason) => Err(Acknowledgement::new(AckCode::NoPerm, reason)),
        }
    }

    fn unlocked(&self, now: Tai, request: &Request) -> Rule {
        match &self.lock {
            Some(lock) if lock.excludes(now, request.who()) => {
                let (holder, until) = (&lock.holder, lock.until);
                let text = format!("{} is locked by {holder} until {until}", self.name());
                Err(Acknowledgement::new(AckCode::NoPerm, text))
            }
            _ => Ok(()),
        }
    }

    fn known(&self, request: &Request) -> Rule<usize> {
        let name = &request.command;
        let Some(command) = self.table.command(name) else {
            return Err(failed(format!("{} has no command {name}", self.name())));
        };
        if !self.table.commands[command].spec.has_handler {
            return Err(failed(format!("{} does not implement {name} yet", self.name())));
        }
        Ok(command)
    }

    /// Whether a state command is allowed in the current state.
    pub(super) fn allowed(&self, command: usize) -> Rule {
        let Some(command) = self.table.commands[command].state else { return Ok(()) };
        match command.transition(self.state) {
            Some(_) => Ok(()),
            None => {
                let text = format!("{command} not allowed in state {}", self.state);
                match &self.fault {
                    Some((error, report)) => {
                        let text = format!("{text} (error {error}: {report})");
                        Err(Acknowledgement { error: *error, ..failed(text) })
                    }
                    None => Err(failed(text)),
                }
            }
        }
    }

    /// Whether a stream command is early enough for its time. Late ones are counted and reported.
    pub(super) fn in_time(&mut self, now: Tai, command: usize, request: &Request) -> Rule {
        let known = &mut self.table.commands[command];
        let (Some(spec), Some(time)) = (known.spec.stream, request.time) else { return Ok(()) };
        let (ahead, margin) = (interval::nanos(now, time), interval::whole_nanos(spec.margin));
        if ahead >= margin {
            return Ok(());
        }
        if request.action == Action::Run {
            known.stats.late();
            if let Some(number) = known.late.note(now) {
                self.warn_late(command, number);
            }
        }
        let by = interval::readable(ahead.saturating_abs());
        let text = if ahead < 0 {
            format!("{by} after its time {time}, not run")
        } else {
            let margin = interval::readable(margin);
            format!("{by} before its time {time}, which must be {margin} at least, not run")
        };
        Err(Acknowledgement::new(AckCode::Timeout, text))
    }

    fn values(&self, request: &Request) -> Rule {
        request.refusal.as_ref().map_or(Ok(()), |refusal| Err(failed(refusal.clone())))
    }

    /// Cancels a call.
    fn cancel(&mut self, now: Tai, request: &Request, target: i32) -> Rule<Admission> {
        self.values(request)?;
        let call = match self.find(request, target)? {
            Some(call) => call,
            None => return Err(self.cancel_early(request, target)),
        };
        let who = request.who().to_owned();
        let Some(live) = self.table.calls.get_mut(&call) else {
            return Err(failed(format!("command {target} is not running")));
        };
        let name = live.first.request.command.clone();
        let text = match live.stage {
            Stage::Waiting => {
                let text = format!("cancelled by {who} before it ran");
                self.end(now, call, Acknowledgement::new(AckCode::Aborted, text));
                format!("{name} will not run")
            }
            _ => {
                live.cancelled_by = Some(who);
                self.effects.push_back(super::Effect::Interrupt { call });
                format!("{name} is told to stop")
            }
        };
        Ok(Admission::Answer(Acknowledgement::new(AckCode::Complete, text)))
    }

    /// Remembers that a command must not run if it arrives later.
    fn cancel_early(&mut self, request: &Request, target: i32) -> Acknowledgement {
        let cancelled = EarlyCancel::new(request, target);
        if !self.early.contains(&cancelled) {
            if self.early.len() >= MAX_EARLY_CANCELS {
                self.early.pop_front();
            }
            self.early.push_back(cancelled);
        }
        failed(format!("command {target} is not running"))
    }

    /// Whether a command was not cancelled before it arrived.
    fn uncancelled(&mut self, request: &Request) -> Rule {
        if self.early.is_empty() {
            return Ok(());
        }
        let this = EarlyCancel::new(request, request.seq_num);
        let Some(at) = self.early.iter().position(|cancelled| *cancelled == this) else {
            return Ok(());
        };
        self.early.remove(at);
        let text = format!("cancelled by {} before it came", request.who());
        Err(Acknowledgement::new(AckCode::Aborted, text))
    }

    /// The call that a cancellation refers to, if known: of those with the number, the one nearest
    /// to the sender.
    fn find(&self, request: &Request, target: i32) -> Rule<Option<CallNumber>> {
        let meant = |candidate: &Request| {
            let named = request.command.is_empty() || request.command == candidate.command;
            (candidate.seq_num == target && named).then(|| nearness(request, candidate))
        };
        let mut found: Vec<(u8, CallNumber)> = Vec::new();
        for (call, live) in &self.table.calls {
            let callers = live.requests().filter(|candidate| candidate.by == Requester::Caller);
            let near = callers.filter_map(|candidate| meant(&candidate.request)).max();
            found.extend(
                near.filter(|_| live.recipients != Recipients::Audit).map(|near| (near, *call)),
            );
        }
        let nearest = found.iter().map(|(near, _)| *near).max().unwrap_or(0);
        found.retain(|(near, _)| *near == nearest);
        match found[..] {
            [] => Ok(None),
            [(near, call)] => {
                if near == FOREIGN {
                    self.authorized(request, "cancel")?;
                }
                Ok(Some(call))
            }
            _ => {
                let calls = found.len();
                Err(failed(format!("{calls} commands have the number {target}; name the command")))
            }
        }
    }

    fn take_lock(&mut self, now: Tai, request: &Request, seconds: f64) -> Rule<Admission> {
        self.authorized(request, "lock")?;
        self.unlocked(now, request)?;
        self.values(request)?;
        let Some(lock) = Lock::new(now, request.who(), seconds) else {
            return Err(failed(format!("a lock lasts more than 0 and at most {MAX_LOCK_S} s")));
        };
        let text = format!("locked until {}", lock.until);
        self.lock = Some(lock);
        Ok(Admission::Answer(Acknowledgement::new(AckCode::Complete, text)))
    }

    fn release_lock(&mut self, now: Tai, request: &Request) -> Rule<Admission> {
        if let Some(lock) = self.lock.as_ref().filter(|lock| lock.excludes(now, request.who())) {
            if !self.policy.is_written() {
                let (name, holder, until) = (self.name(), &lock.holder, lock.until);
                let text = format!(
                    "{name} is locked by {holder} until {until}; without an authorization file \
                     only {holder} may unlock it"
                );
                return Err(Acknowledgement::new(AckCode::NoPerm, text));
            }
            self.authorized(request, "unlock")?;
        }
        self.values(request)?;
        self.lock = None;
        Ok(Admission::Answer(Acknowledgement::new(AckCode::Complete, "unlocked")))
    }
}

impl EarlyCancel {
    fn new(request: &Request, seq_num: i32) -> Self {
        let (who, identity) = (request.who().to_owned(), request.identity.clone());
        Self { who, identity, origin: request.origin, seq_num }
    }
}

/// A call of another caller.
const FOREIGN: u8 = 0;

/// How near a request is to the sender: the same process, the same caller, another caller.
fn nearness(mine: &Request, other: &Request) -> u8 {
    let same_caller = mine.who() == other.who();
    let same_process = mine.identity == other.identity && mine.origin == other.origin;
    if same_caller { 1 + u8::from(same_process) } else { FOREIGN }
}

/// Whether a request has not expired.
pub(super) fn unexpired(now: Tai, request: &Request) -> Rule {
    match request.expiry {
        Some(expiry) if expiry <= now => {
            let late = interval::readable(interval::nanos(expiry, now));
            let text = format!("expired {late} before it could be taken, not run");
            Err(Acknowledgement::new(AckCode::Timeout, text))
        }
        _ => Ok(()),
    }
}

/// The refusal while the lease is unconfirmed.
pub(super) fn unsure() -> Acknowledgement {
    failed("the lease has run out, and cannot be confirmed; not run".to_owned())
}

/// The refusal of a signed command whose expiry was over before the clock was set back.
const EXPIRED_BEFORE: &str = "expired before the clock was set back, not run";

/// The refusal of a copy of a signed request, for the audit.
fn copied() -> Acknowledgement {
    let text = "a copy of a command that came before; not run and not answered";
    Acknowledgement::new(AckCode::NoPerm, text)
}

pub(super) fn failed(text: String) -> Acknowledgement {
    Acknowledgement::new(AckCode::Failed, text)
}
