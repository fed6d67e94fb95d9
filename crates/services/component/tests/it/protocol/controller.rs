//! Scripts of components: requests and handlers' results in, effects out.
//!
//! ```text
//! component Name [index=1] [state=STANDBY] [audit]
//! command NAME [concurrent] [stream=MARGIN_MS] [unimplemented]
//!
//! 1.0 lease held [as=1] | lease lost | audit lost | audit back
//! 1.0 WHO[/PROCESS] sends COMMAND #NUMBER [key= expiry= time= as= instance= trace= refusal=
//!     arguments= signed= forged=]
//! 1.0 WHO validates COMMAND #NUMBER | WHO cancels COMMAND|- TARGET #NUMBER
//! 1.0 itself COMMAND #NUMBER
//! 1.0 WHO locks SECONDS #NUMBER | WHO unlocks #NUMBER
//! 1.0 taken-up WHO#NUMBER
//! 1.0 begun|finished WHO#NUMBER ok|failed|aborted|timeout|noperm [TEXT] [error= typed=]
//! 1.0 progress WHO#NUMBER TEXT [timeout= done=]
//! 1.0 fault ERROR REPORT | policy YAML | lost COMMAND NUMBER | tick | close | give-up
//! 1.0 show stream COMMAND | show wake | show lock | show calls
//! 1.0 quietly TIMES WHO sends COMMAND #FIRST
//! ```
//!
//! `signed=N` signs with the key of 32 bytes N. `forged=` are arguments that replace the signed
//! ones. In both kinds of arguments `'` stands for `"`.

use std::collections::HashMap;
use std::time::Duration;

use helio_component::protocol::controller::{
    AuditEntry, CommandSpec, ControllerOptions, Effect, Lane, LeaseState, Phase, StreamSpec,
};
use helio_component::protocol::{
    Acknowledgement, Action, CallNumber, CallerKey, Controller, Done, Ending, Failure, Policy,
    Progress, Request, SignedCommand, SummaryState,
};
use helio_core::{Tai, TraceId};

use super::script::{self, Actor, at, number, option, seq_num, since_start};

pub(crate) struct Stage {
    options: ControllerOptions,
    audited: bool,
    controller: Option<Controller>,
    /// The calls by caller and number: `alice#7`.
    calls: HashMap<String, CallNumber>,
}

impl Stage {
    pub(crate) fn new(line: &str) -> Self {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let state = option(&words, "state").unwrap_or("STANDBY");
        let options = ControllerOptions {
            component: words[1].clone(),
            index: number(&words, "index").unwrap_or(0.0) as i32,
            commands: Vec::new(),
            state: SummaryState::from_name(state).expect("a state"),
        };
        Self { options, audited: has(&words, "audit"), controller: None, calls: HashMap::new() }
    }
}

impl Actor for Stage {
    fn set_up(&mut self, words: &[String]) {
        assert_eq!(words[0], "command");
        let margin = |ms: f64| StreamSpec { margin: Duration::from_secs_f64(ms * 1e-3) };
        self.options.commands.push(CommandSpec {
            name: words[1].clone(),
            has_handler: !has(words, "unimplemented"),
            lane: if has(words, "concurrent") { Lane::Concurrent } else { Lane::Serial },
            stream: number(words, "stream").map(margin),
        });
    }

    fn input(&mut self, now: Tai, words: &[String]) -> Vec<String> {
        let component = self.component();
        let controller =
            self.controller.get_or_insert_with(|| Controller::new(self.options.clone()));
        if words[0] == "show" {
            return vec![show(controller, words)];
        }
        let quiet = words[0] == "quietly";
        let (times, line) = if quiet { (words[1].as_str(), &words[2..]) } else { ("1", words) };
        for further in 0..times.parse().expect("how often") {
            if line[0] == "itself" {
                let label = format!("itself#{}", seq_num(line));
                self.calls.insert(label, controller.ask(now, &line[1]));
                break;
            }
            let Some(mut request) = request(line, &component) else {
                apply(controller, &self.calls, now, words);
                break;
            };
            request.seq_num += further;
            let label = format!("{}#{}", request.identity, request.seq_num);
            self.calls.insert(label, controller.received(now, request));
        }
        let shown =
            |effect: &Effect| !quiet && (self.audited || !matches!(effect, Effect::Audit(_)));
        let effects: Vec<Effect> = controller.effects().filter(shown).collect();
        effects.into_iter().map(|effect| self.render(effect)).collect()
    }
}

impl Stage {
    /// The component's name, with its index if it has one.
    fn component(&self) -> String {
        let ControllerOptions { component, index, .. } = &self.options;
        if *index == 0 { component.clone() } else { format!("{component}:{index}") }
    }

    fn label(&self, call: CallNumber) -> &str {
        let labels = self.calls.iter().filter(|(_, of)| **of == call);
        labels.map(|(label, _)| label.as_str()).next().expect("a call that was given")
    }

    fn render(&self, effect: Effect) -> String {
        match effect {
            Effect::Run { call } => format!("run {}", self.label(call)),
            Effect::Validate { call } => format!("validate {}", self.label(call)),
            Effect::Discard { call } => format!("discard {}", self.label(call)),
            Effect::Interrupt { call } => format!("interrupt {}", self.label(call)),
            Effect::Begin { call, transition } => {
                format!("begin {} {} -> {}", self.label(call), transition.from, transition.to)
            }
            Effect::End { call, transition } => {
                format!("end {} {} -> {}", self.label(call), transition.from, transition.to)
            }
            Effect::Acknowledge { address, ack } => {
                let (number, who, process) = (address.seq_num, address.identity, address.origin);
                let to = if process == 1 { String::new() } else { format!("/{process}") };
                let trace = address.trace.map_or(String::new(), |t| format!(" trace={}", t.0[0]));
                let on = if address.command.is_none() { " on control" } else { "" };
                format!("ack {who}{to}#{number}{on} {}{trace}", render_ack(&ack))
            }
            Effect::Error { code, report } => format!("error {code} {report:?}"),
            Effect::Answer { call, ack } => {
                format!("answer {} {}", self.label(call), render_ack(&ack))
            }
            Effect::State(state) => format!("state {state}"),
            Effect::Audit(entry) => render_audit(&entry),
            Effect::Warn(text) => format!("warn {text}"),
            Effect::Quit => "quit".to_owned(),
        }
    }
}

fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|w| w == word)
}

fn show(controller: &Controller, words: &[String]) -> String {
    match words[1].as_str() {
        "stream" => format!("{:?}", controller.stream(&words[2]).expect("a stream")),
        "wake" => controller.wake_at().map_or("never".into(), |t| format!("at {}", since_start(t))),
        "lock" => controller.lock().map_or("no lock".into(), |l| format!("of {}", l.holder)),
        "calls" => {
            format!("{} live, {} remembered", controller.live_calls(), controller.remembered())
        }
        other => panic!("show {other}?"),
    }
}

/// The request of a line, if the line is one.
fn request(words: &[String], component: &str) -> Option<Request> {
    let (action, command) = match words.get(1)?.as_str() {
        "sends" => (Action::Run, words[2].clone()),
        "validates" => (Action::Validate, words[2].clone()),
        "cancels" => {
            let target = words[3].parse().expect("the number of a command");
            (Action::Cancel { target }, words[2].replace('-', ""))
        }
        "locks" => (Action::Lock { seconds: words[2].parse().expect("seconds") }, String::new()),
        "unlocks" => (Action::Unlock, String::new()),
        _ => return None,
    };
    let (identity, origin) = script::identity(&words[0]);
    let json = |name| option(words, name).unwrap_or_default().replace('\'', "\"");
    let mut request = Request {
        action,
        command,
        seq_num: seq_num(words),
        identity,
        origin,
        caller: option(words, "as").map(str::to_owned),
        instance: number(words, "instance").map(|number| number as u64),
        expiry: number(words, "expiry").map(at),
        key: option(words, "key").map(str::to_owned),
        trace: number(words, "trace").map(|number| TraceId([number as u8; 16])),
        signature: None,
        time: number(words, "time").map(at),
        refusal: option(words, "refusal").map(str::to_owned),
        arguments: json("arguments"),
    };
    if let Some(seed) = number(words, "signed") {
        let command = SignedCommand::of(component, &request).expect("trace, expiry, instance");
        request.signature = Some(CallerKey::of_seed(&[seed as u8; 32]).sign(&command));
    }
    if option(words, "forged").is_some() {
        request.arguments = json("forged");
    }
    Some(request)
}

fn apply(
    controller: &mut Controller,
    calls: &HashMap<String, CallNumber>,
    now: Tai,
    words: &[String],
) {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let call = || *calls.get(word(1)).unwrap_or_else(|| panic!("no call is {:?}", word(1)));
    match word(0) {
        "taken-up" => drop(controller.take_up(now, call())),
        "lease" if word(1) == "held" => {
            let incarnation = number(words, "as").map_or(1, |number| number as u64);
            controller.lease(now, LeaseState::Held { incarnation });
        }
        "lease" if word(1) == "lapsed" => {
            controller.lease(now, LeaseState::Lapsed { incarnation: 1 });
        }
        "lease" => controller.lease(now, LeaseState::Lost),
        "begun" => controller.begun(now, call(), outcome(words).map(|_| ())),
        "finished" => controller.finished(now, call(), outcome(words)),
        "progress" => {
            let told = Progress {
                timeout_s: number(words, "timeout").unwrap_or(0.0),
                result: word(2).to_owned(),
                progress: number(words, "done"),
                typed: None,
            };
            controller.in_progress(now, call(), told);
        }
        "fault" => controller.fault(now, word(1).parse().expect("an error code"), word(2)),
        "audit" if word(1) == "lost" => controller.audit_lost(now),
        "audit" => controller.audit_back(),
        "policy" => controller.set_policy(Policy::parse(word(1)).expect("a policy")),
        "lost" => controller.stream_lost(word(1), word(2).parse().expect("how many")),
        "tick" => controller.tick(now),
        "close" => controller.close(now),
        "give-up" => controller.give_up(now),
        other => panic!("what is {other:?}?"),
    }
}

fn outcome(words: &[String]) -> Result<Done, Failure> {
    let text = words.get(3).filter(|text| !text.contains('=')).cloned().unwrap_or_default();
    let ending = match words[2].as_str() {
        "ok" => {
            let typed = option(words, "typed").map(|typed| typed.replace('\'', "\""));
            return Ok(Done { result: text, typed });
        }
        "failed" => Ending::Failed,
        "aborted" => Ending::Aborted,
        "timeout" => Ending::Timeout,
        "noperm" => Ending::NoPerm,
        other => panic!("how does it end: {other}?"),
    };
    Err(Failure { ending, error: number(words, "error").unwrap_or(0.0) as i32, text })
}

pub(crate) fn render_ack(ack: &Acknowledgement) -> String {
    let mut text = format!("{} {:?}", ack.code, ack.result);
    if ack.error != 0 {
        text += &format!(" error={}", ack.error);
    }
    if ack.timeout_s != 0.0 {
        text += &format!(" timeout={}", ack.timeout_s);
    }
    if let Some(progress) = ack.progress {
        text += &format!(" done={progress}");
    }
    if let Some(typed) = &ack.typed {
        text += &format!(" typed={typed}");
    }
    text
}

fn render_audit(entry: &AuditEntry) -> String {
    let AuditEntry { command, seq_num, caller, arguments, duration_s, .. } = entry;
    let arguments = if arguments.is_empty() { String::new() } else { format!(" with {arguments}") };
    // Most scripts sign nothing, so a proved caller is the marked one here.
    let caller =
        caller.strip_prefix("declared:").map_or_else(|| format!("signed:{caller}"), str::to_owned);
    let code = entry.ack.map_or("told nobody".to_owned(), |code| code.to_string());
    match entry.phase {
        Phase::Received => format!("audit {caller}#{seq_num} {command} received{arguments}"),
        Phase::Finished => format!(
            "audit {caller}#{seq_num} {command} {code} {:?} after {duration_s:.3} s{arguments}",
            entry.result
        ),
    }
}
