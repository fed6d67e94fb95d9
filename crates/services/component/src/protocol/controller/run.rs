//! What is done once a request is judged: lanes, and the telling of ends.

use helio_core::Tai;

use super::live::{Asked, Asker, Live, Stage, Voice, address, key, tellable, title};
use super::{
    AuditEntry, Controller, Effect, LeaseState, MAX_CONCURRENT, MAX_JOINED, MAX_WAITING, Phase,
    rules,
};
use crate::protocol::{
    AckCode, Acknowledgement, CallNumber, Ending, Failure, MAX_TYPED_BYTES, Request, SummaryState,
    span,
};

impl Controller {
    /// Answers a request that is not taken.
    pub(super) fn answer(
        &mut self,
        now: Tai,
        call: CallNumber,
        asked: Asked,
        ack: Acknowledgement,
    ) {
        self.effects.push_back(Effect::Discard { call });
        if asked.by == Asker::Component {
            return self.effects.push_back(Effect::Answer { call, ack });
        }
        // Of what is not taken there is no record before this one, which hence has the arguments.
        let record = entry(now, &asked, Some(&ack));
        self.effects.push_back(Effect::Audit(record));
        let address = address(&asked.request);
        self.effects.push_back(Effect::Acknowledge { address, ack });
    }

    /// Lets a request be answered together with a call that waits or runs.
    pub(super) fn join(&mut self, now: Tai, call: CallNumber, request: Request, with: CallNumber) {
        let full = |live: &Live| live.joined.len() >= MAX_JOINED || live.voice != Voice::Callers;
        let Some(live) = self.board.calls.get_mut(&with).filter(|live| !full(live)) else {
            let text = "runs already under this key; send it again when that has ended";
            let asked = Asked::of(request, now);
            return self.answer(now, call, asked, rules::failed(text.to_owned()));
        };
        let left = live.until.map_or(0.0, |until| span::seconds(now, until).max(0.0));
        let text = match live.stage {
            Stage::Waiting => "waits already under this key",
            _ => "runs already under this key",
        };
        let told = Acknowledgement::new(AckCode::InProgress, text);
        let ack = Acknowledgement { timeout_s: left, ..told };
        let address = address(&request);
        live.joined.push(Asked::of(request, now));
        self.effects.push_back(Effect::Discard { call });
        self.effects.push_back(Effect::Acknowledge { address, ack });
    }

    /// Has a command validated.
    pub(super) fn validate(&mut self, now: Tai, call: CallNumber, request: Request, at: usize) {
        let validating = self.board.calls_that(|live| live.stage == Stage::Validating).len();
        if validating >= MAX_CONCURRENT {
            let text = format!("{validating} commands are being validated; try again");
            return self.answer(now, call, Asked::of(request, now), rules::failed(text));
        }
        let validating = live(Asked::of(request, now), at, Stage::Validating);
        self.board.calls.insert(call, validating);
        self.effects.push_back(Effect::Validate { call });
    }

    /// Puts a command into its lane.
    pub(super) fn take(&mut self, now: Tai, call: CallNumber, asked: Asked, at: usize) {
        let lane = &mut self.board.lanes[self.board.commands[at].lane];
        if lane.waiting.len() >= MAX_WAITING {
            let text = format!("{MAX_WAITING} commands wait already; try again later");
            return self.answer(now, call, asked, rules::failed(text));
        }
        lane.waiting.push_back(call);
        if let Some(key) = key(&asked.request) {
            self.memory.begin(key, &asked.request.command, call);
        }
        let mut taken = live(asked, at, Stage::Waiting);
        if taken.asked.by == Asker::Caller {
            let record = entry(now, &taken.asked, None);
            self.effects.push_back(Effect::Audit(AuditEntry { phase: Phase::Received, ..record }));
        }
        // They may be large, and are told once.
        taken.asked.request.arguments = String::new();
        self.board.calls.insert(call, taken);
        self.advance_all(now);
    }

    /// Begins what waits, as far as its lanes allow.
    pub(super) fn advance_all(&mut self, now: Tai) {
        for lane in 0..self.board.lanes.len() {
            while let Some(call) = self.next_of(lane) {
                self.start(now, call);
            }
        }
    }

    fn next_of(&self, lane: usize) -> Option<CallNumber> {
        let lane = &self.board.lanes[lane];
        lane.waiting.front().copied().filter(|_| lane.running < lane.capacity)
    }

    /// Begins a call that is the next of its lane, or refuses it after all.
    fn start(&mut self, now: Tai, call: CallNumber) {
        let Some(live) = self.board.calls.get(&call) else { return };
        let (request, command) = (live.asked.request.clone(), live.command);
        let still = rules::unexpired(now, &request)
            .and_then(|()| self.allowed(command))
            .and_then(|()| self.in_time(now, command, &request));
        if let Err(ack) = still {
            return self.end(now, call, ack);
        }
        let known = &mut self.board.commands[command];
        known.stats.in_time();
        let transition = known.state.and_then(|command| command.transition(self.state));
        let lane = &mut self.board.lanes[known.lane];
        lane.waiting.pop_front();
        lane.running += 1;
        let Some(live) = self.board.calls.get_mut(&call) else { return };
        let (stage, effect) = match transition {
            Some(transition) => (Stage::Beginning(transition), Effect::Begin { call, transition }),
            None => (Stage::Running, Effect::Run { call }),
        };
        live.stage = stage;
        self.effects.push_back(effect);
    }

    /// Whether a handler that got its thread just now is to begin: what was cancelled, has expired
    /// or came to the end of its time while it waited for one is ended here, and not run.
    pub(super) fn still(&mut self, now: Tai, call: CallNumber) -> Result<(), Acknowledgement> {
        let Some(live) = self.board.calls.get(&call) else { return Ok(()) };
        if let Some(who) = &live.cancelled_by {
            let text = format!("cancelled by {who} before it ran");
            return Err(Acknowledgement::new(AckCode::Aborted, text));
        }
        if live.voice == Voice::Audit {
            return Err(rules::failed("the lease was lost; not run".to_owned()));
        }
        if self.closing {
            return Err(self.gone());
        }
        self.sure()?;
        rules::unexpired(now, &live.asked.request)?;
        let known = &self.board.commands[live.command];
        if known.spec.stream.is_none() {
            return Ok(());
        }
        let (command, request) = (live.command, live.asked.request.clone());
        self.in_time(now, command, &request)
    }

    /// Ends a call whose handler has not done its work.
    pub(super) fn end_failed(&mut self, now: Tai, call: CallNumber, mut failure: Failure) {
        let cancelled_by = self.board.calls.get(&call).and_then(|live| live.cancelled_by.as_ref());
        if let (Ending::Aborted, Some(who)) = (failure.ending, cancelled_by) {
            failure.text = format!("cancelled by {who}");
        } else if failure.text.is_empty() {
            failure.text = failure.ending.text().to_owned();
        }
        self.end(now, call, failure.into());
    }

    /// Ends a call: tells whoever still hears of it, and takes it off its lane.
    pub(super) fn end(&mut self, now: Tai, call: CallNumber, ack: Acknowledgement) {
        self.tell_end(now, call, ack);
        let Some(live) = self.board.remove(call) else { return };
        if live.stage == Stage::Waiting {
            self.effects.push_back(Effect::Discard { call });
        }
    }

    /// Tells how a call ended, once; its handler may still run.
    pub(super) fn tell_end(&mut self, now: Tai, call: CallNumber, ack: Acknowledgement) {
        let Some(live) = self.board.calls.get_mut(&call) else { return };
        let voice = std::mem::replace(&mut live.voice, Voice::Nobody);
        let joined = std::mem::take(&mut live.joined);
        let (asked, stage) = (live.asked.clone(), live.stage);
        let (waited, validating) = (stage == Stage::Waiting, stage == Stage::Validating);
        if voice == Voice::Nobody {
            return;
        }
        let ack = self.bounded(ack);
        match key(&asked.request).filter(|_| !validating) {
            // It never began: sent again, it is another try.
            Some(key) if waited => self.memory.forget(&key),
            Some(key) => self.memory.end(now, key, &ack),
            None => {}
        }
        if asked.by == Asker::Component {
            return self.effects.push_back(Effect::Answer { call, ack });
        }
        for asked in std::iter::once(asked).chain(joined) {
            let told = (voice == Voice::Callers).then_some(&ack);
            let record = entry(now, &asked, told);
            let record = AuditEntry { error: ack.error, result: ack.result.clone(), ..record };
            // First, so that no outcome is told which the audit does not have.
            self.effects.push_back(Effect::Audit(record));
            if told.is_some() {
                let (address, ack) = (address(&asked.request), ack.clone());
                self.effects.push_back(Effect::Acknowledge { address, ack });
            }
        }
    }

    /// Lets a call go on without its callers, or go, if it waits: the lease is lost.
    pub(super) fn mute(&mut self, now: Tai, call: CallNumber) {
        let Some(live) = self.board.calls.get_mut(&call) else { return };
        live.voice = Voice::Audit;
        live.joined.clear();
        if live.stage != Stage::Waiting {
            self.effects.push_back(Effect::Interrupt { call });
            return;
        }
        if let Some(key) = key(&live.asked.request) {
            self.memory.forget(&key);
        }
        self.end(now, call, rules::failed("the lease was lost; not run".to_owned()));
    }

    /// Changes the state, and tells it where it is another.
    pub(super) fn set_state(&mut self, state: SummaryState) {
        if self.state != state && self.lease != LeaseState::Lost {
            self.effects.push_back(Effect::State(state));
        }
        self.state = state;
    }

    /// Warns of commands of a stream that came too late.
    pub(super) fn warn_late(&mut self, command: usize, number: u64) {
        let name = &self.board.commands[command].spec.name;
        let text = match number {
            1 => format!("{name}: a command came too late for its time and was not run"),
            _ => format!("{name}: {number} commands came too late for their times, not run"),
        };
        self.effects.push_back(Effect::Warn(text));
    }

    /// What fits an acknowledgement's fields and headers.
    fn bounded(&mut self, ack: Acknowledgement) -> Acknowledgement {
        let mut ack = tellable(ack);
        if let Some(typed) = ack.typed.take_if(|typed| typed.len() > MAX_TYPED_BYTES) {
            let bytes = typed.len();
            self.effects.push_back(Effect::Warn(format!(
                "a typed result of {bytes} bytes is not told; {MAX_TYPED_BYTES} are the most"
            )));
        }
        ack
    }
}

fn live(asked: Asked, command: usize, stage: Stage) -> Live {
    Live {
        asked,
        joined: Vec::new(),
        command,
        stage,
        voice: Voice::Callers,
        until: None,
        cancelled_by: None,
    }
}

/// A record of the end of a request.
fn entry(now: Tai, asked: &Asked, ack: Option<&Acknowledgement>) -> AuditEntry {
    let request = &asked.request;
    AuditEntry {
        time: now,
        command: title(request),
        seq_num: request.seq_num,
        caller: request.who().to_owned(),
        identity: request.identity.clone(),
        origin: request.origin,
        phase: Phase::Finished,
        ack: ack.map(|ack| ack.code),
        error: ack.map_or(0, |ack| ack.error),
        result: ack.map_or_else(String::new, |ack| ack.result.clone()),
        duration_s: span::seconds(asked.at, now),
        arguments: request.arguments.clone(),
    }
}
