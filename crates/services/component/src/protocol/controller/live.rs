//! Queued and running calls, and their lanes.

use std::collections::{BTreeMap, VecDeque};

use helio_core::Tai;

use super::{Address, CommandSpec, Lane, MAX_CONCURRENT};
use crate::protocol::idempotency::IdempotencyKey;
use crate::protocol::stream::Throttle;
use crate::protocol::{
    Acknowledgement, Action, CallNumber, Request, StateCommand, StreamStats, Transition,
};

/// The longest text of an acknowledgement that is sent and stored, in bytes: a screen of it.
pub const MAX_RESULT_BYTES: usize = 4_096;

/// The stage of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stage {
    /// It is queued in its lane.
    Waiting,
    /// Its handler runs.
    Running,
    /// Its handler's check runs.
    Validating,
    /// The hooks before a state change run.
    Beginning(Transition),
    /// The hooks after a state change run.
    Ending(Transition),
}

/// The recipients of a call's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipients {
    /// Its callers.
    Callers,
    /// The audit only: the lease is lost, and another instance answers the callers.
    Audit,
    /// None: the end has been reported, and only the handler is still running.
    Nobody,
}

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requester {
    /// A caller: it receives acknowledgements, and the audit records the request.
    Caller,
    /// The component itself.
    Component,
}

/// A request, its origin, and the time of its arrival.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    pub(super) request: Request,
    pub(super) by: Requester,
    pub(super) at: Tai,
}

/// A queued or running call.
#[derive(Debug)]
pub(super) struct ActiveCall {
    /// The first request.
    pub(super) first: ReceivedRequest,
    /// Repetitions of the request with the same key.
    pub(super) joined: Vec<ReceivedRequest>,
    /// The command's position in the controller's list.
    pub(super) command: usize,
    pub(super) stage: Stage,
    pub(super) recipients: Recipients,
    /// The end of the handler's last announced timeout.
    pub(super) until: Option<Tai>,
    /// The caller that cancelled it.
    pub(super) cancelled_by: Option<String>,
}

impl ReceivedRequest {
    pub(super) fn of(request: Request, at: Tai) -> Self {
        Self { request, by: Requester::Caller, at }
    }

    pub(super) fn own(request: Request, at: Tai) -> Self {
        Self { request, by: Requester::Component, at }
    }
}

impl ActiveCall {
    /// All requests that it answers.
    pub(super) fn requests(&self) -> impl Iterator<Item = &ReceivedRequest> {
        std::iter::once(&self.first).chain(&self.joined)
    }
}

/// A command of the component.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) spec: CommandSpec,
    /// The state command that it is, if any.
    pub(super) state: Option<StateCommand>,
    pub(super) lane: usize,
    pub(super) stats: StreamStats,
    pub(super) late: Throttle,
}

/// The lane of all state commands.
pub(super) const STATE_LANE: usize = 0;

/// A lane: commands queue in it.
#[derive(Debug)]
pub(super) struct LaneQueue {
    /// The most commands that run at the same time.
    pub(super) capacity: usize,
    pub(super) running: usize,
    pub(super) waiting: VecDeque<CallNumber>,
}

impl LaneQueue {
    fn new(capacity: usize) -> Self {
        Self { capacity, running: 0, waiting: VecDeque::new() }
    }

    /// Whether a command would run at once.
    pub(super) fn is_open(&self) -> bool {
        self.running < self.capacity && self.waiting.is_empty()
    }
}

/// The commands, their lanes, and the calls in them.
#[derive(Debug)]
pub(super) struct CallTable {
    pub(super) commands: Vec<Command>,
    pub(super) lanes: Vec<LaneQueue>,
    pub(super) calls: BTreeMap<CallNumber, ActiveCall>,
}

impl CallTable {
    pub(super) fn new(specs: Vec<CommandSpec>) -> Self {
        let mut table =
            Self { commands: Vec::new(), lanes: vec![LaneQueue::new(1)], calls: BTreeMap::new() };
        for spec in specs {
            let state = StateCommand::from_name(&spec.name);
            let lane = if state.is_some() { STATE_LANE } else { table.lanes.len() };
            if state.is_none() {
                let concurrent = spec.lane == Lane::Concurrent;
                table.lanes.push(LaneQueue::new(if concurrent { MAX_CONCURRENT } else { 1 }));
            }
            let (stats, late) = (StreamStats::default(), Throttle::default());
            table.commands.push(Command { spec, state, lane, stats, late });
        }
        table
    }

    /// The position of a command.
    pub(super) fn command(&self, name: &str) -> Option<usize> {
        self.commands.iter().position(|command| command.spec.name == name)
    }

    /// The lane of a call.
    pub(super) fn lane_of(&mut self, live: &ActiveCall) -> &mut LaneQueue {
        &mut self.lanes[self.commands[live.command].lane]
    }

    /// Removes a call from the table and its lane.
    pub(super) fn remove(&mut self, call: CallNumber) -> Option<ActiveCall> {
        let live = self.calls.remove(&call)?;
        let lane = self.lane_of(&live);
        match live.stage {
            Stage::Waiting => lane.waiting.retain(|waiting| *waiting != call),
            Stage::Validating => {}
            Stage::Running | Stage::Beginning(_) | Stage::Ending(_) => lane.running -= 1,
        }
        Some(live)
    }

    /// The calls that satisfy a condition, oldest first.
    pub(super) fn calls_that(&self, is: impl Fn(&ActiveCall) -> bool) -> Vec<CallNumber> {
        self.calls.iter().filter(|(_, live)| is(live)).map(|(call, _)| *call).collect()
    }
}

/// The address for acknowledgements of a request.
pub(super) fn address(request: &Request) -> Address {
    Address {
        seq_num: request.seq_num,
        identity: request.identity.clone(),
        origin: request.origin,
        trace: request.trace,
        command: (request.action == Action::Run).then(|| request.command.clone()),
    }
}

/// The idempotency key of a request, if it has one.
pub(super) fn key(request: &Request) -> Option<IdempotencyKey> {
    let key = request.key.clone().filter(|_| request.action == Action::Run)?;
    Some(IdempotencyKey { who: request.who().to_owned(), key })
}

/// The name of a request in the audit.
pub(super) fn title(request: &Request) -> String {
    match request.action {
        Action::Run => request.command.clone(),
        Action::Validate => format!("validate {}", request.command),
        Action::Cancel { target } => format!("cancel {target}"),
        Action::Lock { seconds } => format!("lock {seconds} s"),
        Action::Unlock => "unlock".to_owned(),
    }
}

/// Limits a handler's acknowledgement: the text to its maximum length, the progress to 0 to 1, the
/// timeout to a valid time.
pub(super) fn within_limits(mut ack: Acknowledgement) -> Acknowledgement {
    if ack.result.len() > MAX_RESULT_BYTES {
        let end = (0..=MAX_RESULT_BYTES - 3).rev().find(|at| ack.result.is_char_boundary(*at));
        ack.result.truncate(end.unwrap_or(0));
        ack.result.push('…');
    }
    ack.progress = ack.progress.filter(|p| !p.is_nan()).map(|p| p.clamp(0.0, 1.0));
    if !ack.timeout_s.is_finite() || ack.timeout_s < 0.0 {
        ack.timeout_s = 0.0;
    }
    ack
}
