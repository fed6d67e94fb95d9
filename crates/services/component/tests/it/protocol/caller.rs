//! Scripts of callers: commands, acknowledgements and presence in, effects out.
//!
//! ```text
//! caller Component IDENTITY/PROCESS [as=NAME] [seed=0]
//!
//! 1.0 send COMMAND [timeout= expiry= key= time=]
//! 1.0 validate COMMAND | cancel CALL
//! 1.0 ack of CALL CODE [TEXT] [timeout= done=]              with the call's trace
//! 1.0 ack to IDENTITY/PROCESS #NUMBER CODE [TEXT] [trace=]  as a foreign component's
//! 1.0 here INCARNATION | gone | unknown | unheard WHY
//! 1.0 publish-failed CALL TEXT | abandon CALL | tick
//! 1.0 show wake | show pending
//! 1.0 quietly TIMES send COMMAND
//! ```

use std::collections::HashMap;
use std::time::Duration;

use helio_component::protocol::caller::{
    AckSample, Call, CallerOptions, DEFAULT_STREAM_LEAD, Effect, Presence,
};
use helio_component::protocol::{AckCode, Acknowledgement, Action, CallNumber, Caller};
use helio_core::{Tai, TraceId};

use super::controller::render_ack;
use super::script::{Actor, at, identity, number, option, seq_num, since_start};

pub(crate) struct Stage {
    caller: Caller,
    traces: HashMap<CallNumber, TraceId>,
}

impl Stage {
    pub(crate) fn new(line: &str) -> Self {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (identity, origin) = identity(&words[2]);
        let caller = Caller::new(CallerOptions {
            component: words[1].clone(),
            identity,
            origin,
            caller: option(&words, "as").map(str::to_owned),
            key: None,
            seed: option(&words, "seed").map_or(0, |seed| seed.parse().expect("a seed")),
            stream_lead: DEFAULT_STREAM_LEAD,
        });
        Self { caller, traces: HashMap::new() }
    }

    fn apply(&mut self, now: Tai, words: &[String]) {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let call = |at: usize| CallNumber(word(at).parse().expect("a call"));
        match word(0) {
            "send" => {
                self.caller.send(now, command(words));
            }
            "validate" => {
                self.caller.send(now, Call { action: Action::Validate, ..command(words) });
            }
            "cancel" => {
                let target = self.caller.seq_num(call(1)).unwrap_or(0);
                self.caller.send(now, Call { action: Action::Cancel { target }, ..Call::new("") });
            }
            "ack" => {
                let sample = self.sample(words);
                self.caller.acknowledged(now, sample);
            }
            "here" => {
                let incarnation = word(1).parse().expect("which instance");
                self.caller.presence(Presence::Here { incarnation });
            }
            "gone" => self.caller.presence(Presence::Gone),
            "unheard" => self.caller.unheard(word(1)),
            "unknown" => self.caller.presence(Presence::Unknown),
            "publish-failed" => self.caller.publish_failed(call(1), word(2)),
            "abandon" => self.caller.abandon(call(1)),
            "tick" => self.caller.tick(now),
            other => panic!("what is {other:?}?"),
        }
    }

    fn sample(&self, words: &[String]) -> AckSample {
        let code = |name: &str| {
            let found = AckCode::ALL.into_iter().find(|code| code.name() == name);
            found.unwrap_or_else(|| panic!("no code is {name}"))
        };
        let own = words[1] == "of";
        let rest = &words[if own { 3 } else { 4 }..];
        let text = rest.get(1).filter(|text| !text.contains('=')).cloned().unwrap_or_default();
        let ack = Acknowledgement {
            timeout_s: number(words, "timeout").unwrap_or(0.0),
            progress: number(words, "done"),
            ..Acknowledgement::new(code(&rest[0]), text)
        };
        if own {
            let call = CallNumber(words[2].parse().expect("a call"));
            let trace = Some(self.traces[&call]);
            return AckSample { trace, identity: String::new(), origin: 0, seq_num: 0, ack };
        }
        let (identity, origin) = identity(&words[2]);
        let trace = number(words, "trace").map(|number| TraceId([number as u8; 16]));
        AckSample { trace, identity, origin, seq_num: seq_num(words), ack }
    }

    fn render(&mut self, effect: Effect) -> String {
        match effect {
            Effect::Publish { call, action, seq_num, trace, headers } => {
                self.traces.insert(call, trace);
                let action = if action == Action::Run { "" } else { &format!(" {action:?}") };
                let by = headers.caller.map_or(String::new(), |who| format!(" as={who}"));
                let key = headers.key.map_or(String::new(), |key| format!(" key={key}"));
                let expiry = headers.expiry.map(|t| format!(" expiry={}", since_start(t)));
                let expiry = expiry.unwrap_or_default();
                let to = headers.instance.map(|to| format!(" to={to}")).unwrap_or_default();
                format!("publish {call} #{seq_num}{action}{by}{key}{expiry}{to}")
            }
            Effect::Progress { call, ack } => format!("progress {call} {}", render_ack(&ack)),
            Effect::Done { call, ack, cause } => {
                format!("done {call} {cause:?} {}", render_ack(&ack))
            }
            Effect::Warn(text) => format!("warn {text}"),
        }
    }
}

impl Actor for Stage {
    fn set_up(&mut self, words: &[String]) {
        panic!("a caller's script has no {words:?} in its head");
    }

    fn input(&mut self, now: Tai, words: &[String]) -> Vec<String> {
        match (words[0].as_str(), words.get(1).map(String::as_str)) {
            ("show", Some("wake")) => {
                let wake = self.caller.wake_at();
                return vec![wake.map_or("never".into(), |t| format!("at {}", since_start(t)))];
            }
            ("show", _) => {
                let (pending, late) = (self.caller.pending(), self.caller.late_sent());
                return vec![format!("{pending} pending, {late} sent late")];
            }
            ("quietly", Some(times)) => {
                for _ in 0..times.parse().expect("how often") {
                    self.apply(now, &words[2..]);
                }
                self.caller.effects().for_each(drop);
                return Vec::new();
            }
            _ => {}
        }
        self.apply(now, words);
        let effects: Vec<Effect> = self.caller.effects().collect();
        effects.into_iter().map(|effect| self.render(effect)).collect()
    }
}

fn command(words: &[String]) -> Call {
    let mut call = Call::new(&words[1]);
    if let Some(seconds) = number(words, "timeout") {
        call.timeout = Duration::from_secs_f64(seconds);
    }
    call.expiry = number(words, "expiry").map(at);
    call.key = option(words, "key").map(str::to_owned);
    call.time = number(words, "time").map(at);
    call
}
