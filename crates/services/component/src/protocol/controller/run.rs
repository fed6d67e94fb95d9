//! The execution of decisions: lanes, acknowledgements, ends.

use helio_core::Tai;

use super::live::{
    ActiveCall, ReceivedRequest, Recipients, Requester, Stage, address, key, title, within_limits,
};
use super::{
    AuditEntry, Controller, Effect, LeaseState, MAX_CONCURRENT, MAX_JOINED, MAX_QUEUED_COMMANDS,
    Phase, rules,
};
use crate::protocol::idempotency::KeyedCommand;
use crate::protocol::{
    AckCode, Acknowledgement, CallNumber, Ending, Failure, MAX_TYPED_BYTES, Request, SummaryState,
    interval,
};

impl Controller {
    /// Answers a refused request.
    pub(super) fn answer(
        &mut self,
        now: Tai,
        call: CallNumber,
        received: ReceivedRequest,
        ack: Acknowledgement,
    ) {
        self.effects.push_back(Effect::Discard { call });
        if received.by == Requester::Component {
            return self.effects.push_back(Effect::Answer { call, ack });
        }
        // A refused request has only this record, so it contains the arguments.
        let record = entry(now, &received, Some(&ack));
        self.effects.push_back(Effect::Audit(record));
        let address = address(&received.request);
        self.effects.push_back(Effect::Acknowledge { address, ack });
    }

    /// Records a copy of a signed request. Its caller has the answer to the original; another one
    /// would end that call.
    pub(super) fn refuse_copy(
        &mut self,
        now: Tai,
        call: CallNumber,
        received: ReceivedRequest,
        ack: &Acknowledgement,
    ) {
        self.effects.push_back(Effect::Discard { call });
        self.effects.push_back(Effect::Audit(entry(now, &received, Some(ack))));
    }

    /// Joins a repeated request to a queued or running call.
    pub(super) fn join(&mut self, now: Tai, call: CallNumber, request: Request, with: CallNumber) {
        let full = |live: &ActiveCall| {
            live.joined.len() >= MAX_JOINED || live.recipients != Recipients::Callers
        };
        let Some(live) = self.table.calls.get_mut(&with).filter(|live| !full(live)) else {
            let text = "runs already under this key; send it again when that has ended";
            let received = ReceivedRequest::of(request, now);
            return self.answer(now, call, received, rules::failed(text.to_owned()));
        };
        let left = live.until.map_or(0.0, |until| interval::seconds(now, until).max(0.0));
        let text = match live.stage {
            Stage::Waiting => "waits already under this key",
            _ => "runs already under this key",
        };
        let progress = Acknowledgement::new(AckCode::InProgress, text);
        let ack = Acknowledgement { timeout_s: left, ..progress };
        let address = address(&request);
        live.joined.push(ReceivedRequest::of(request, now));
        self.effects.push_back(Effect::Discard { call });
        self.effects.push_back(Effect::Acknowledge { address, ack });
    }

    /// Starts the validation of a command.
    pub(super) fn validate(&mut self, now: Tai, call: CallNumber, request: Request, at: usize) {
        let validating = self.table.calls_that(|live| live.stage == Stage::Validating).len();
        if validating >= MAX_CONCURRENT {
            let text = format!("{validating} commands are being validated; try again");
            return self.answer(now, call, ReceivedRequest::of(request, now), rules::failed(text));
        }
        let validating = live(ReceivedRequest::of(request, now), at, Stage::Validating);
        self.table.calls.insert(call, validating);
        self.effects.push_back(Effect::Validate { call });
    }

    /// Puts a command into its lane.
    pub(super) fn take(
        &mut self,
        now: Tai,
        call: CallNumber,
        received: ReceivedRequest,
        at: usize,
    ) {
        let lane = &mut self.table.lanes[self.table.commands[at].lane];
        if lane.waiting.len() >= MAX_QUEUED_COMMANDS {
            let text = format!("{MAX_QUEUED_COMMANDS} commands wait already; try again later");
            return self.answer(now, call, received, rules::failed(text));
        }
        lane.waiting.push_back(call);
        if let Some(key) = key(&received.request) {
            self.outcomes.begin(key, KeyedCommand::of(&received.request), call);
        }
        let mut taken = live(received, at, Stage::Waiting);
        if taken.first.by == Requester::Caller {
            let record = entry(now, &taken.first, None);
            self.effects.push_back(Effect::Audit(AuditEntry { phase: Phase::Received, ..record }));
        }
        // They may be large, and are recorded once.
        taken.first.request.arguments = String::new();
        self.table.calls.insert(call, taken);
        self.advance_all(now);
    }

    /// Starts queued calls, as far as their lanes permit.
    pub(super) fn advance_all(&mut self, now: Tai) {
        for lane in 0..self.table.lanes.len() {
            while let Some(call) = self.next_of(lane) {
                self.start(now, call);
            }
        }
    }

    fn next_of(&self, lane: usize) -> Option<CallNumber> {
        let lane = &self.table.lanes[lane];
        lane.waiting.front().copied().filter(|_| lane.running < lane.capacity)
    }

    /// Starts the next call of a lane, or refuses it.
    fn start(&mut self, now: Tai, call: CallNumber) {
        let Some(live) = self.table.calls.get(&call) else { return };
        let (request, command) = (live.first.request.clone(), live.command);
        let still = rules::unexpired(now, &request)
            .and_then(|()| self.allowed(command))
            .and_then(|()| self.in_time(now, command, &request));
        if let Err(ack) = still {
            return self.end(now, call, ack);
        }
        let known = &mut self.table.commands[command];
        known.stats.in_time();
        let transition = known.state.and_then(|command| command.transition(self.state));
        let lane = &mut self.table.lanes[known.lane];
        lane.waiting.pop_front();
        lane.running += 1;
        let Some(live) = self.table.calls.get_mut(&call) else { return };
        let (stage, effect) = match transition {
            Some(transition) => (Stage::Beginning(transition), Effect::Begin { call, transition }),
            None => (Stage::Running, Effect::Run { call }),
        };
        live.stage = stage;
        self.effects.push_back(effect);
    }

    /// Whether a handler that has just got its thread may start. A call that was cancelled, has
    /// expired or reached its time limit while it waited ends here.
    pub(super) fn still(&mut self, now: Tai, call: CallNumber) -> Result<(), Acknowledgement> {
        let Some(live) = self.table.calls.get(&call) else { return Ok(()) };
        if let Some(who) = &live.cancelled_by {
            let text = format!("cancelled by {who} before it ran");
            return Err(Acknowledgement::new(AckCode::Aborted, text));
        }
        if live.recipients == Recipients::Audit {
            return Err(rules::failed("the lease was lost; not run".to_owned()));
        }
        if self.closing {
            return Err(self.gone());
        }
        self.sure()?;
        rules::unexpired(now, &live.first.request)?;
        let known = &self.table.commands[live.command];
        if known.spec.stream.is_none() {
            return Ok(());
        }
        let (command, request) = (live.command, live.first.request.clone());
        self.in_time(now, command, &request)
    }

    /// Ends a call whose handler has not completed.
    pub(super) fn end_failed(&mut self, now: Tai, call: CallNumber, mut failure: Failure) {
        let cancelled_by = self.table.calls.get(&call).and_then(|live| live.cancelled_by.as_ref());
        if let (Ending::Aborted, Some(who)) = (failure.ending, cancelled_by) {
            failure.text = format!("cancelled by {who}");
        } else if failure.text.is_empty() {
            failure.text = failure.ending.text().to_owned();
        }
        self.end(now, call, failure.into());
    }

    /// Ends a call: notifies its recipients, and removes it from its lane.
    pub(super) fn end(&mut self, now: Tai, call: CallNumber, ack: Acknowledgement) {
        self.tell_end(now, call, ack);
        let Some(live) = self.table.remove(call) else { return };
        if live.stage == Stage::Waiting {
            self.effects.push_back(Effect::Discard { call });
        }
    }

    /// Reports the end of a call, once; its handler may still be running.
    pub(super) fn tell_end(&mut self, now: Tai, call: CallNumber, ack: Acknowledgement) {
        let Some(live) = self.table.calls.get_mut(&call) else { return };
        let recipients = std::mem::replace(&mut live.recipients, Recipients::Nobody);
        let joined = std::mem::take(&mut live.joined);
        let (received, stage) = (live.first.clone(), live.stage);
        let (waited, validating) = (stage == Stage::Waiting, stage == Stage::Validating);
        if recipients == Recipients::Nobody {
            return;
        }
        let ack = self.bounded(ack);
        match key(&received.request).filter(|_| !validating) {
            // It never started: a repetition is a new attempt.
            Some(key) if waited => self.outcomes.forget(&key),
            Some(key) => self.outcomes.end(now, key, &ack),
            None => {}
        }
        if received.by == Requester::Component {
            return self.effects.push_back(Effect::Answer { call, ack });
        }
        for received in std::iter::once(received).chain(joined) {
            let sent = (recipients == Recipients::Callers).then_some(&ack);
            let record = entry(now, &received, sent);
            let record = AuditEntry { error: ack.error, result: ack.result.clone(), ..record };
            // First, so that no outcome is sent that the audit does not have.
            self.effects.push_back(Effect::Audit(record));
            if sent.is_some() {
                let (address, ack) = (address(&received.request), ack.clone());
                self.effects.push_back(Effect::Acknowledge { address, ack });
            }
        }
    }

    /// Separates a call from its callers because the lease is lost; a queued one is removed.
    pub(super) fn mute(&mut self, now: Tai, call: CallNumber) {
        let Some(live) = self.table.calls.get_mut(&call) else { return };
        live.recipients = Recipients::Audit;
        live.joined.clear();
        if live.stage != Stage::Waiting {
            self.effects.push_back(Effect::Interrupt { call });
            return;
        }
        if let Some(key) = key(&live.first.request) {
            self.outcomes.forget(&key);
        }
        self.end(now, call, rules::failed("the lease was lost; not run".to_owned()));
    }

    /// Changes the state, and publishes it if it differs.
    pub(super) fn set_state(&mut self, state: SummaryState) {
        if self.state != state && self.lease != LeaseState::Lost {
            self.effects.push_back(Effect::State(state));
        }
        self.state = state;
        self.fault = self.fault.take().filter(|_| state == SummaryState::Fault);
    }

    /// Warns of late stream commands.
    pub(super) fn warn_late(&mut self, command: usize, number: u64) {
        let name = &self.table.commands[command].spec.name;
        let text = match number {
            1 => format!("{name}: a command came too late for its time and was not run"),
            _ => format!("{name}: {number} commands came too late for their times, not run"),
        };
        self.effects.push_back(Effect::Warn(text));
    }

    /// Limits an acknowledgement to the size of its fields and headers.
    fn bounded(&mut self, ack: Acknowledgement) -> Acknowledgement {
        let mut ack = within_limits(ack);
        if let Some(typed) = ack.typed.take_if(|typed| typed.len() > MAX_TYPED_BYTES) {
            let bytes = typed.len();
            self.effects.push_back(Effect::Warn(format!(
                "a typed result of {bytes} bytes is not told; {MAX_TYPED_BYTES} are the most"
            )));
        }
        ack
    }
}

fn live(received: ReceivedRequest, command: usize, stage: Stage) -> ActiveCall {
    ActiveCall {
        first: received,
        joined: Vec::new(),
        command,
        stage,
        recipients: Recipients::Callers,
        until: None,
        cancelled_by: None,
    }
}

/// The audit record of a request's end.
fn entry(now: Tai, received: &ReceivedRequest, ack: Option<&Acknowledgement>) -> AuditEntry {
    let request = &received.request;
    AuditEntry {
        time: now,
        command: title(request),
        seq_num: request.seq_num,
        caller: request.caller_name().to_string(),
        identity: request.identity.clone(),
        origin: request.origin,
        phase: Phase::Finished,
        ack: ack.map(|ack| ack.code),
        error: ack.map_or(0, |ack| ack.error),
        result: ack.map_or_else(String::new, |ack| ack.result.clone()),
        duration_s: interval::seconds(received.at, now),
        arguments: request.arguments.clone(),
    }
}
