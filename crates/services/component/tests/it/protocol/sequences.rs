//! Properties that hold for every sequence of inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use helio_component::protocol::caller::{
    self, AckSample, Call, CallerOptions, DEFAULT_STREAM_LEAD, Presence,
};
use helio_component::protocol::controller::{
    CommandSpec, ControllerOptions, Effect, Lane, LeaseState, MAX_CONCURRENT, MAX_QUEUED_COMMANDS,
    StreamSpec,
};
use helio_component::protocol::{
    AckCode, Acknowledgement, Action, CallNumber, Caller, Controller, Done, Ending, Failure,
    MAX_OUTCOMES, Policy, Progress, Request, StateCommand, SummaryState, Transition,
};
use helio_core::Tai;
use proptest::prelude::*;

use super::script::at;

const COMMANDS: [&str; 9] =
    ["start", "enable", "disable", "standby", "exitControl", "move", "turn", "track", "later"];
const CALLERS: [&str; 3] = ["alice", "bob", "carol"];
const POLICIES: [&str; 2] = [
    "default: allow",
    "{default: deny, trust: declared, roles: {all: ['*', '!*.turn']}, identities: {alice: [all], \
     carol: [all]}}",
];

#[derive(Debug, Clone)]
enum Input {
    Receive {
        who: usize,
        what: What,
        command: usize,
        expiry: u8,
        key: u8,
        wrong: bool,
    },
    /// The running handler at that position of the list.
    Answer {
        which: usize,
        well: bool,
    },
    Progress {
        which: usize,
    },
    Fault,
    Policy(usize),
    Lease(bool),
    Audit(bool),
    Lost,
    Pass {
        ms: u16,
    },
    Close,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Run,
    Validate,
    Cancel,
    Lock,
    Unlock,
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        12 => Just(What::Run),
        2 => Just(What::Validate),
        3 => Just(What::Cancel),
        1 => Just(What::Lock),
        1 => Just(What::Unlock),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    let receive = (0..CALLERS.len(), what(), 0..COMMANDS.len(), 0u8..8, 0u8..8, 0u8..12);
    prop_oneof![
        20 => receive.prop_map(|(who, what, command, expiry, key, wrong)| Input::Receive {
            who, what, command, expiry, key, wrong: wrong == 0,
        }),
        14 => (0usize..9, prop::bool::weighted(0.7))
            .prop_map(|(which, well)| Input::Answer { which, well }),
        2 => (0usize..9).prop_map(|which| Input::Progress { which }),
        2 => Just(Input::Fault),
        1 => (0..POLICIES.len()).prop_map(Input::Policy),
        2 => prop::bool::weighted(0.7).prop_map(Input::Lease),
        2 => prop::bool::weighted(0.5).prop_map(Input::Audit),
        1 => Just(Input::Lost),
        6 => (1u16..2_000).prop_map(|ms| Input::Pass { ms }),
        1 => Just(Input::Close),
    ]
}

/// The activity of a handler of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Handler,
    Begin(Transition),
    End,
}

/// A component, and the model of its observable state.
struct World {
    controller: Controller,
    now: Tai,
    held: bool,
    next: i32,
    /// Number of final acknowledgements by the number of the request.
    finals: BTreeMap<i32, usize>,
    /// Requests that must have one at the end.
    owed: BTreeSet<i32>,
    /// Calls whose values are still stored.
    kept: BTreeSet<CallNumber>,
    running: Vec<(CallNumber, Work)>,
    states: Vec<SummaryState>,
    /// Whether the last input ended the begin hook of the command that leaves FAULT.
    may_leave_fault: bool,
}

impl World {
    fn new() -> Self {
        let commands = COMMANDS.map(|name| CommandSpec {
            lane: if name == "turn" { Lane::Concurrent } else { Lane::Serial },
            stream: (name == "track").then_some(StreamSpec { margin: Duration::from_millis(10) }),
            has_handler: name != "later",
            ..CommandSpec::new(name)
        });
        Self {
            controller: Controller::new(ControllerOptions {
                component: "MTMount".into(),
                index: 1,
                commands: commands.to_vec(),
                state: SummaryState::Standby,
            }),
            now: at(0.0),
            held: false,
            next: 0,
            finals: BTreeMap::new(),
            owed: BTreeSet::new(),
            kept: BTreeSet::new(),
            running: Vec::new(),
            states: vec![SummaryState::Standby],
            may_leave_fault: false,
        }
    }

    fn input(&mut self, input: &Input) {
        let before = self.controller.state();
        self.may_leave_fault = false;
        self.apply(input);
        let left_fault = before == SummaryState::Fault && before != self.controller.state();
        assert!(!left_fault || self.may_leave_fault, "a fault was forgotten");
        self.drain();
    }

    fn apply(&mut self, input: &Input) {
        match input {
            Input::Receive { who, what, command, expiry, key, wrong } => {
                let mut request = self.request(*who, *what, COMMANDS[*command]);
                request.expiry = (*expiry == 0).then(|| self.after(500));
                request.key = (*key < 3).then(|| format!("{key}-{command}"));
                request.refusal = wrong.then(|| "wrong".to_owned());
                self.receive(request);
            }
            Input::Answer { which, well } => self.answer(*which, *well),
            Input::Progress { which } => {
                if let Some((call, _)) = self.running.get(*which) {
                    let told = Progress { timeout_s: 1.0, ..Progress::default() };
                    self.controller.in_progress(self.now, *call, told);
                }
            }
            Input::Fault => self.controller.fault(self.now, 7, "model"),
            Input::Policy(policy) => {
                let policy = Policy::parse(POLICIES[*policy]).expect("a policy");
                self.controller.set_policy(policy);
            }
            Input::Lease(held) => self.lease(*held),
            Input::Audit(true) => self.controller.audit_back(),
            Input::Audit(false) => self.controller.audit_lost(self.now),
            Input::Lost => self.controller.stream_lost("track", 3),
            Input::Pass { ms } => {
                self.now = self.after(i64::from(*ms));
                self.controller.tick(self.now);
                assert!(self.controller.wake_at().is_none_or(|wake| wake > self.now));
            }
            Input::Close => self.controller.close(self.now),
        }
    }

    fn after(&self, ms: i64) -> Tai {
        Tai::from_nanos(self.now.nanos() + ms * 1_000_000)
    }

    fn request(&mut self, who: usize, what: What, command: &str) -> Request {
        self.next += 1;
        let action = match what {
            What::Run => Action::Run,
            What::Validate => Action::Validate,
            What::Cancel => Action::Cancel { target: self.next - 2 },
            What::Lock => Action::Lock { seconds: 1.5 },
            What::Unlock => Action::Unlock,
        };
        let named = matches!(action, Action::Run | Action::Validate);
        Request {
            action,
            command: if named { command.to_owned() } else { String::new() },
            seq_num: self.next,
            identity: CALLERS[who].to_owned(),
            origin: 1,
            caller: None,
            instance: None,
            expiry: None,
            key: None,
            trace: None,
            signature: None,
            time: (command == "track").then(|| self.after(5 * i64::from(self.next % 5))),
            refusal: None,
            arguments: "{}".to_owned(),
        }
    }

    fn receive(&mut self, request: Request) {
        if self.held {
            self.owed.insert(request.seq_num);
        }
        let call = self.controller.received(self.now, request);
        assert!(self.kept.insert(call), "the number {call} was given twice");
    }

    fn answer(&mut self, which: usize, well: bool) {
        if which >= self.running.len() {
            return;
        }
        let (call, work) = self.running.remove(which);
        let failure = Failure::new(Ending::Failed, "model");
        if let Work::Begin(transition) = work {
            self.may_leave_fault = well && transition.from == SummaryState::Fault;
            let ended = if well { Ok(()) } else { Err(failure) };
            return self.controller.begun(self.now, call, ended);
        }
        let ended = if well { Ok(Done::default()) } else { Err(failure) };
        self.controller.finished(self.now, call, ended);
    }

    fn lease(&mut self, held: bool) {
        self.held = held;
        if held {
            self.controller.lease(self.now, LeaseState::Held { incarnation: 1 });
        } else {
            self.controller.lease(self.now, LeaseState::Lost);
            // Calls that have not ended by now need no acknowledgement.
            self.drain();
            let told = |number: &i32| self.finals.contains_key(number);
            self.owed = self.owed.iter().copied().filter(told).collect();
        }
    }

    fn drain(&mut self) {
        let effects: Vec<Effect> = self.controller.effects().collect();
        for effect in effects {
            self.effect(effect);
        }
        self.check_bounds();
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Run { call } | Effect::Validate { call } => self.begin(call, Work::Handler),
            Effect::Begin { call, transition } => {
                assert_eq!(transition.from, self.controller.state());
                assert_eq!(transition.command.transition(transition.from), Some(transition));
                self.begin(call, Work::Begin(transition));
            }
            Effect::End { call, .. } => self.running.push((call, Work::End)),
            Effect::Discard { call } => assert!(self.kept.remove(&call), "{call} is gone twice"),
            Effect::Interrupt { call } => {
                assert!(self.running.iter().any(|(running, _)| *running == call));
            }
            Effect::Acknowledge { address, ack } => {
                assert!(self.held, "an acknowledgement without the lease");
                let finals = self.finals.entry(address.seq_num).or_default();
                assert_eq!(*finals, 0, "{address:?} is told {ack:?} after its end");
                *finals += usize::from(ack.code.is_final());
                if *finals == 0 {
                    self.finals.remove(&address.seq_num);
                }
            }
            Effect::State(state) => {
                assert!(self.held, "a state without the lease");
                self.states.push(state);
            }
            Effect::Error { .. } => assert!(self.held, "an error without the lease"),
            Effect::Answer { .. } | Effect::Audit(_) | Effect::Warn(_) | Effect::Quit => {}
        }
    }

    fn begin(&mut self, call: CallNumber, work: Work) {
        assert!(self.kept.remove(&call), "{call} is begun twice");
        self.running.push((call, work));
        let request = self.controller.request(call).expect("it runs");
        if request.action != Action::Run || request.command == "turn" {
            return;
        }
        let lane = |command: &str| match StateCommand::from_name(command) {
            Some(_) => "state".to_owned(),
            None => command.to_owned(),
        };
        let beside = self.running.iter().filter(|(other, _)| {
            let other = self.controller.request(*other).filter(|r| r.action == Action::Run);
            other.is_some_and(|other| lane(&other.command) == lane(&request.command))
        });
        assert_eq!(beside.count(), 1, "{} runs beside another of its lane", request.command);
    }

    fn check_bounds(&self) {
        let live = self.controller.live_calls();
        assert!(live <= COMMANDS.len() * (MAX_QUEUED_COMMANDS + MAX_CONCURRENT) + MAX_CONCURRENT);
        assert!(self.controller.remembered() <= MAX_OUTCOMES + live);
        assert_eq!(live, self.kept.len() + self.running.len());
    }

    /// Ends all handlers and checks the acknowledgements.
    fn finish(&mut self) {
        while !self.running.is_empty() {
            self.answer(0, true);
            self.drain();
        }
        assert!(self.controller.is_idle() && self.kept.is_empty());
        for number in &self.owed {
            assert_eq!(self.finals.get(number), Some(&1), "the end of {number} is not told");
        }
        for pair in self.states.windows(2) {
            assert!(is_legal(pair[0], pair[1]), "{} to {}", pair[0], pair[1]);
        }
    }
}

/// Whether a state may be published after another: by a command, by its reversal, by a fault, or
/// because the lease was confirmed again.
fn is_legal(from: SummaryState, to: SummaryState) -> bool {
    let leads =
        |from, to| StateCommand::ALL.iter().any(|c| c.transition(from).is_some_and(|t| t.to == to));
    from == to || to == SummaryState::Fault || leads(from, to) || leads(to, from)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_command_ends_once(inputs in prop::collection::vec(input(), 1..120)) {
        let mut world = World::new();
        world.input(&Input::Lease(true));
        for input in &inputs {
            world.input(input);
        }
        world.finish();
    }

    #[test]
    fn a_call_ends_once(steps in prop::collection::vec((0u8..10, 0u64..20, 0u16..3_000), 1..120)) {
        let mut now = at(0.0);
        let mut caller = Caller::new(CallerOptions {
            component: "MTMount".into(),
            identity: "alice".into(),
            origin: 1,
            caller: None,
            key: None,
            seed: 1,
            stream_lead: DEFAULT_STREAM_LEAD,
        });
        let (mut ended, mut abandoned) = (BTreeSet::new(), BTreeSet::new());
        let mut sent = BTreeMap::new();
        for (step, which, ms) in steps {
            now = Tai::from_nanos(now.nanos() + i64::from(ms) * 1_000_000);
            let call = CallNumber(which);
            match step {
                0..=3 => {
                    sent.insert(caller.send(now, Call::new("move")), None);
                }
                4 | 5 => acknowledge(&mut caller, now, sent.get(&call).copied().flatten(), ms),
                6 => caller.presence([Presence::Gone, Presence::Unknown][usize::from(ms % 2)]),
                7 => caller.presence(Presence::Here { incarnation: u64::from(ms) }),
                8 => {
                    caller.abandon(call);
                    abandoned.insert(call);
                }
                _ => caller.unheard("the bus is closed"),
            }
            caller.tick(now);
            prop_assert!(caller.wake_at().is_none_or(|wake| wake > now));
            for effect in caller.effects() {
                match effect {
                    caller::Effect::Publish { call, trace, .. } => {
                        sent.insert(call, Some(trace));
                    }
                    caller::Effect::Done { call, ack, .. } => {
                        prop_assert!(ack.code.is_final() && ended.insert(call));
                    }
                    _ => {}
                }
            }
        }
        let open = sent.keys().filter(|call| !ended.contains(call) && !abandoned.contains(call));
        prop_assert!(caller.pending() >= open.count());
        caller.presence(Presence::Gone);
        ended.extend(caller.effects().filter_map(|effect| match effect {
            caller::Effect::Done { call, .. } => Some(call),
            _ => None,
        }));
        prop_assert!(sent.keys().all(|call| ended.contains(call) || abandoned.contains(call)));
        prop_assert_eq!(caller.pending(), 0);
    }
}

fn acknowledge(caller: &mut Caller, now: Tai, trace: Option<helio_core::TraceId>, ms: u16) {
    let code = [AckCode::Complete, AckCode::InProgress][usize::from(ms % 2)];
    let ack = Acknowledgement { timeout_s: 2.0, ..Acknowledgement::new(code, "") };
    let (identity, seq_num) = ("alice".to_owned(), i32::from(ms));
    caller.acknowledged(now, AckSample { trace, identity, origin: 1, seq_num, ack });
}
