//! Calls that wait or run, and the lanes they do it in.

use std::collections::{BTreeMap, VecDeque};

use helio_core::Tai;

use super::{Address, CommandSpec, Lane, MAX_CONCURRENT};
use crate::protocol::memory::Key;
use crate::protocol::stream::Throttle;
use crate::protocol::{
    Acknowledgement, Action, CallNumber, Request, StateCommand, StreamStats, Transition,
};

/// The longest text of an acknowledgement that is told and remembered, in bytes: a screen of it.
pub const MAX_RESULT_BYTES: usize = 4_096;

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stage {
    /// It waits in its lane.
    Waiting,
    /// Its handler runs.
    Running,
    /// Its handler's check runs.
    Validating,
    /// What comes before a change of state runs.
    Beginning(Transition),
    /// What comes after a change of state runs.
    Ending(Transition),
}

/// Who still hears of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    /// Its callers.
    Callers,
    /// The audit: the lease is lost, and callers are another's.
    Audit,
    /// Nobody: all has been told, and only the handler is still to end.
    Nobody,
}

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// Somebody who is told by acknowledgements, and stands in the audit.
    Caller,
    /// The component itself.
    Component,
}

/// A request, who made it, and when it came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) by: Asker,
    pub(super) at: Tai,
}

/// A call that waits or runs.
#[derive(Debug)]
pub(super) struct Live {
    /// What was asked first.
    pub(super) asked: Asked,
    /// The same, asked again under the same key.
    pub(super) joined: Vec<Asked>,
    /// The command's place in the controller's list.
    pub(super) command: usize,
    pub(super) stage: Stage,
    pub(super) voice: Voice,
    /// Until when the handler wants to be waited for.
    pub(super) until: Option<Tai>,
    /// Who cancelled it.
    pub(super) cancelled_by: Option<String>,
}

impl Asked {
    pub(super) fn of(request: Request, at: Tai) -> Self {
        Self { request, by: Asker::Caller, at }
    }

    pub(super) fn own(request: Request, at: Tai) -> Self {
        Self { request, by: Asker::Component, at }
    }
}

impl Live {
    /// All requests that it answers.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Asked> {
        std::iter::once(&self.asked).chain(&self.joined)
    }
}

/// A command of the component.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) spec: CommandSpec,
    /// What it does to the state, if it does.
    pub(super) state: Option<StateCommand>,
    pub(super) lane: usize,
    pub(super) stats: StreamStats,
    pub(super) late: Throttle,
}

/// The lane of all commands that change the state.
pub(super) const STATE_LANE: usize = 0;

/// Where commands wait for those before them.
#[derive(Debug)]
pub(super) struct Queue {
    /// The most that run at a time.
    pub(super) capacity: usize,
    pub(super) running: usize,
    pub(super) waiting: VecDeque<CallNumber>,
}

impl Queue {
    fn new(capacity: usize) -> Self {
        Self { capacity, running: 0, waiting: VecDeque::new() }
    }

    /// Whether a command would run at once.
    pub(super) fn is_open(&self) -> bool {
        self.running < self.capacity && self.waiting.is_empty()
    }
}

/// The commands, the lanes they run in, and the calls in them.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) commands: Vec<Command>,
    pub(super) lanes: Vec<Queue>,
    pub(super) calls: BTreeMap<CallNumber, Live>,
}

impl Board {
    pub(super) fn new(specs: Vec<CommandSpec>) -> Self {
        let mut board =
            Self { commands: Vec::new(), lanes: vec![Queue::new(1)], calls: BTreeMap::new() };
        for spec in specs {
            let state = StateCommand::from_name(&spec.name);
            let lane = if state.is_some() { STATE_LANE } else { board.lanes.len() };
            if state.is_none() {
                let concurrent = spec.lane == Lane::Concurrent;
                board.lanes.push(Queue::new(if concurrent { MAX_CONCURRENT } else { 1 }));
            }
            let (stats, late) = (StreamStats::default(), Throttle::default());
            board.commands.push(Command { spec, state, lane, stats, late });
        }
        board
    }

    /// The place of the command of that name.
    pub(super) fn command(&self, name: &str) -> Option<usize> {
        self.commands.iter().position(|command| command.spec.name == name)
    }

    /// The lane of a call.
    pub(super) fn lane_of(&mut self, live: &Live) -> &mut Queue {
        &mut self.lanes[self.commands[live.command].lane]
    }

    /// Takes a call off the board and out of its lane.
    pub(super) fn remove(&mut self, call: CallNumber) -> Option<Live> {
        let live = self.calls.remove(&call)?;
        let lane = self.lane_of(&live);
        match live.stage {
            Stage::Waiting => lane.waiting.retain(|waiting| *waiting != call),
            Stage::Validating => {}
            Stage::Running | Stage::Beginning(_) | Stage::Ending(_) => lane.running -= 1,
        }
        Some(live)
    }

    /// The calls in a stage that a question is true of, oldest first.
    pub(super) fn calls_that(&self, is: impl Fn(&Live) -> bool) -> Vec<CallNumber> {
        self.calls.iter().filter(|(_, live)| is(live)).map(|(call, _)| *call).collect()
    }
}

/// Where an acknowledgement of a request goes.
pub(super) fn address(request: &Request) -> Address {
    Address {
        seq_num: request.seq_num,
        identity: request.identity.clone(),
        origin: request.origin,
        trace: request.trace,
        command: (request.action == Action::Run).then(|| request.command.clone()),
    }
}

/// What a request is remembered by, if it has a key.
pub(super) fn key(request: &Request) -> Option<Key> {
    let key = request.key.clone().filter(|_| request.action == Action::Run)?;
    Some(Key { who: request.who().to_owned(), key })
}

/// What a request is called in the audit.
pub(super) fn title(request: &Request) -> String {
    match request.action {
        Action::Run => request.command.clone(),
        Action::Validate => format!("validate {}", request.command),
        Action::Cancel { target } => format!("cancel {target}"),
        Action::Lock { seconds } => format!("lock {seconds} s"),
        Action::Unlock => "unlock".to_owned(),
    }
}

/// Makes of what a handler says what can be told: texts of bounded length, a progress from 0 to 1,
/// a time that is one.
pub(super) fn tellable(mut ack: Acknowledgement) -> Acknowledgement {
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
