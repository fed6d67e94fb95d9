//! The caller's side: the calls that one program sends to one component.
//!
//! A call ends once: by the component's final acknowledgement, or by the component's state: no
//! instance is live, the instance went away, or it did not answer in time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use helio_core::{Tai, TraceId};

use super::stream::Throttle;
use super::{
    AckCode, Acknowledgement, Action, CallHeaders, CallNumber, CallerKey, SignedCommand, interval,
};

/// How long a call waits for an acknowledgement by default, also from the command line and Python.
pub const DEFAULT_ACK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long before its time a stream command should be sent by default.
pub const DEFAULT_STREAM_LEAD: Duration = Duration::from_millis(50);
/// The latest default expiry of a signed command from now: half of what components accept, so that
/// clocks may differ.
const MAX_DEFAULT_SIGNED_LIFE: Duration = Duration::from_secs(3_600);
/// The most pending calls of one caller: ten seconds of commands at 400 Hz.
pub const MAX_PENDING: usize = 4_096;

/// The caller and the component.
#[derive(Debug, Clone, PartialEq)]
pub struct CallerOptions {
    /// The component, for messages: its name, with `:index` if it is indexed.
    pub component: String,
    /// `private_identity` of the commands: a component's name or user@host.
    pub identity: String,
    /// `private_origin` of the commands: the process.
    pub origin: i32,
    /// The caller for the headers, if it is not `identity`.
    pub caller: Option<String>,
    /// The key that signs the commands.
    pub key: Option<CallerKey>,
    /// Random bits, from which the first `private_seqNum` and the calls' trace ids are derived.
    pub seed: u128,
    /// How long before its time a stream command should be sent; later ones are counted.
    pub stream_lead: Duration,
}

/// A command to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The action. All but [`Action::Run`] go to the topic `control`.
    pub action: Action,
    /// The command's short name, for example `trackTarget`.
    pub command: String,
    /// How long to wait for the end. An acknowledgement that the command is in progress extends the
    /// wait: to its estimate and this timeout once more.
    pub timeout: Duration,
    /// The time after which the component must not start it. The default for a command to run is
    /// the end of `timeout`: a caller that gave up must not see it start.
    pub expiry: Option<Tai>,
    /// The idempotency key: a command that is sent several times with one key runs once.
    pub key: Option<String>,
    /// The time that a stream command is for.
    pub time: Option<Tai>,
}

impl Call {
    /// A command to run, with [`DEFAULT_ACK_TIMEOUT`].
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            action: Action::Run,
            command: command.into(),
            timeout: DEFAULT_ACK_TIMEOUT,
            expiry: None,
            key: None,
            time: None,
        }
    }
}

/// A request that is about to be published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outgoing<'a> {
    /// The action.
    pub action: Action,
    /// The command's short name; empty for lock and unlock.
    pub command: &'a str,
    /// `private_seqNum`.
    pub seq_num: i32,
    /// The trace id.
    pub trace: TraceId,
    /// The public fields as JSON text; may be empty.
    pub arguments: &'a str,
}

/// The presence of a component, by its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Presence {
    /// An instance is live.
    Here {
        /// Its incarnation: commands for another instance are not for this one.
        incarnation: u64,
    },
    /// No instance is live: no lease is held, and no heartbeat of a foreign component arrives.
    Gone,
    /// No lease is held; a foreign component is running, or may be.
    Unknown,
}

/// What becomes of a command's fields that its caller left out and whose interface declares no
/// default. SAL's XML declares none, and SAL's own callers send zeros: a device moves to 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingFields {
    /// The command is refused, with the fields named, and is not sent.
    #[default]
    Refuse,
    /// They are sent as 0, false or empty, as salobj does.
    Default,
}

impl MissingFields {
    /// The environment variable for callers that name no choice.
    pub const VARIABLE: &str = "HELIO_MISSING_FIELDS";

    /// A choice by its name, `refuse` or `default`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "refuse" => Some(Self::Refuse),
            "default" => Some(Self::Default),
            _ => None,
        }
    }
}

/// A received acknowledgement.
#[derive(Debug, Clone, PartialEq)]
pub struct AckSample {
    /// The call's trace id; foreign components do not send it.
    pub trace: Option<TraceId>,
    /// `identity` of the acknowledged command.
    pub identity: String,
    /// `origin` of the acknowledged command.
    pub origin: i32,
    /// `private_seqNum` of the acknowledged command.
    pub seq_num: i32,
    /// The acknowledgement.
    pub ack: Acknowledgement,
}

/// Why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The component acknowledged its end.
    Acknowledged,
    /// The component did not acknowledge in time.
    TimedOut,
    /// No instance was live; the command was not sent.
    NobodyThere,
    /// The instance went away, or was replaced, while the command ran.
    WentAway,
    /// Acknowledgements can no longer be read: it is unknown whether the command ran.
    Unheard,
    /// The command could not be published, or the component does not have it.
    NotSent,
}

/// The actions that a caller requests, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Publish the command.
    Publish {
        /// The call.
        call: CallNumber,
        /// The action, which determines topic and fields.
        action: Action,
        /// `private_seqNum`.
        seq_num: i32,
        /// The sample's trace id.
        trace: TraceId,
        /// The sample's headers.
        headers: CallHeaders,
    },
    /// Report that the command is running.
    Progress {
        /// The call.
        call: CallNumber,
        /// The acknowledgement; not final.
        ack: Acknowledgement,
    },
    /// Report how the call ended; nothing follows.
    Done {
        /// The call.
        call: CallNumber,
        /// The final acknowledgement.
        ack: Acknowledgement,
        /// The source of the acknowledgement.
        cause: Cause,
    },
    /// Log a warning.
    Warn(String),
}

/// A pending call.
#[derive(Debug)]
struct Pending {
    seq_num: i32,
    trace: TraceId,
    command: String,
    sent: Tai,
    /// The instance that it was sent to, if one was seen.
    instance: Option<u64>,
    timeout: Duration,
    deadline: Tai,
    last: Option<Acknowledgement>,
}

/// Tracks the commands that one program sends to one component.
///
/// Before sending to a component that [is gone](Self::is_gone), the owner queries the lease again
/// and calls [`presence`](Self::presence). If the result [would end calls](Self::would_end), it
/// reads the available acknowledgements first.
#[derive(Debug)]
pub struct Caller {
    options: CallerOptions,
    calls: BTreeMap<CallNumber, Pending>,
    by_trace: HashMap<TraceId, CallNumber>,
    by_number: HashMap<i32, CallNumber>,
    next: u64,
    seq_num: i32,
    presence: Presence,
    late: Throttle,
    late_sent: u64,
    effects: VecDeque<Effect>,
}

impl Caller {
    /// A caller without information about the component.
    #[must_use]
    pub fn new(options: CallerOptions) -> Self {
        let start = (mix(options.seed as u64) % MAX_SEQ_NUM as u64) as i32 + 1;
        Self {
            options,
            calls: BTreeMap::new(),
            by_trace: HashMap::new(),
            by_number: HashMap::new(),
            next: 1,
            seq_num: start,
            presence: Presence::Unknown,
            late: Throttle::default(),
            late_sent: 0,
            effects: VecDeque::new(),
        }
    }

    /// Drains the effects, in order. Call it after each input.
    pub fn effects(&mut self) -> impl Iterator<Item = Effect> + '_ {
        self.effects.drain(..)
    }

    /// The `private_seqNum` of a pending call, which is needed to cancel it.
    #[must_use]
    pub fn seq_num(&self, call: CallNumber) -> Option<i32> {
        self.calls.get(&call).map(|pending| pending.seq_num)
    }

    /// The number of pending calls.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.calls.len()
    }

    /// The number of stream commands that were sent too late before their time.
    #[must_use]
    pub fn late_sent(&self) -> u64 {
        self.late_sent
    }

    /// Whether the component was live and is gone now.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.presence == Presence::Gone
    }

    /// Sends a command, unless no instance is live.
    pub fn send(&mut self, now: Tai, asked: Call) -> CallNumber {
        let call = CallNumber(self.next);
        self.next += 1;
        if let Some((cause, ack)) = self.obstacle(&asked) {
            self.effects.push_back(Effect::Done { call, ack, cause });
            return call;
        }
        let (seq_num, trace) = (self.next_seq_num(), self.trace(call));
        self.note_lateness(now, &asked);
        let deadline = interval::after(now, asked.timeout);
        let headers = CallHeaders {
            caller: self.options.caller.clone(),
            expiry: asked.expiry.or_else(|| self.expiry(now, asked.action, deadline)),
            key: asked.key,
            schema: None,
            signature: None,
            instance: self.instance(),
        };
        self.by_trace.insert(trace, call);
        self.by_number.insert(seq_num, call);
        let (command, timeout) = (asked.command, asked.timeout);
        let (sent, instance, last) = (now, headers.instance, None);
        let pending = Pending { seq_num, trace, command, sent, instance, timeout, deadline, last };
        self.calls.insert(call, pending);
        let action = asked.action;
        self.effects.push_back(Effect::Publish { call, action, seq_num, trace, headers });
        call
    }

    /// The default expiry. Every signed request has one, which its component accepts.
    fn expiry(&self, now: Tai, action: Action, deadline: Tai) -> Option<Tai> {
        match self.options.key {
            Some(_) => Some(deadline.min(interval::after(now, MAX_DEFAULT_SIGNED_LIFE))),
            None => (action == Action::Run).then_some(deadline),
        }
    }

    /// Whether it signs its requests.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.options.key.is_some()
    }

    /// Adds the signature to the headers of a request, if there is a key and the instance that the
    /// request is for is known. `arguments` are the public fields as JSON text; empty on `control`
    /// requests without a command's values.
    pub fn sign(&self, request: &Outgoing<'_>, headers: &mut CallHeaders) {
        let (options, instance) = (&self.options, headers.instance);
        let signed = (options.key.as_ref(), headers.expiry, instance);
        let (Some(key), Some(expiry), Some(instance)) = signed else { return };
        let caller = headers.caller.as_deref().unwrap_or(&options.identity);
        headers.signature = Some(key.sign(&SignedCommand {
            component: &options.component,
            action: request.action,
            command: request.command,
            caller,
            identity: &options.identity,
            origin: options.origin,
            seq_num: request.seq_num,
            trace: request.trace,
            expiry,
            instance,
            key: headers.key.as_deref(),
            arguments: request.arguments,
        }));
    }

    /// Whether an acknowledgement with that trace id may belong to one of these calls.
    #[must_use]
    pub fn may_concern(&self, trace: Option<&TraceId>) -> bool {
        trace.is_none_or(|trace| self.by_trace.contains_key(trace)) && !self.calls.is_empty()
    }

    /// Processes a received acknowledgement of any caller's command.
    pub fn acknowledged(&mut self, now: Tai, sample: AckSample) {
        let Some(call) = self.call_of(&sample) else { return };
        if sample.ack.code.is_final() {
            return self.end(call, Cause::Acknowledged, sample.ack);
        }
        let Some(pending) = self.calls.get_mut(&call) else { return };
        // The estimate of a running command ends where the caller's own patience begins.
        let in_progress = sample.ack.code == AckCode::InProgress;
        let own = if in_progress { pending.timeout } else { Duration::ZERO };
        let estimate = interval::after_seconds(now, sample.ack.timeout_s);
        pending.deadline = pending.deadline.max(interval::after(estimate, own));
        pending.last = Some(sample.ack.clone());
        self.effects.push_back(Effect::Progress { call, ack: sample.ack });
    }

    /// Processes the presence of the component. Commands that were sent to a previous instance end
    /// at once.
    pub fn presence(&mut self, presence: Presence) {
        self.presence = presence;
        match presence {
            Presence::Here { incarnation } => self.end_sent_to_others(incarnation),
            Presence::Gone => self.end_all_gone(),
            Presence::Unknown => {}
        }
    }

    /// Whether that presence would end calls. The available acknowledgements must be read before: a
    /// component that went away may have ended the calls itself.
    #[must_use]
    pub fn would_end(&self, presence: Presence) -> bool {
        match presence {
            Presence::Here { incarnation } => {
                self.calls.values().any(|pending| pending.is_of_another(incarnation))
            }
            Presence::Gone => !self.calls.is_empty(),
            Presence::Unknown => false,
        }
    }

    /// Ends a call whose command could not be published.
    pub fn publish_failed(&mut self, call: CallNumber, why: &str) {
        let text = format!("not sent: {why}");
        self.end(call, Cause::NotSent, Acknowledgement::new(AckCode::NoAck, text));
    }

    /// Ends all pending calls because acknowledgements can no longer be read.
    pub fn unheard(&mut self, why: &str) {
        for call in self.calls.keys().copied().collect::<Vec<_>>() {
            let text = format!("whether it ran is unknown: {why}");
            self.end(call, Cause::Unheard, Acknowledgement::new(AckCode::NoAck, text));
        }
    }

    /// Abandons a call; no further event of it is reported.
    pub fn abandon(&mut self, call: CallNumber) {
        self.forget(call);
    }

    /// Processes the passing of time; call it at [`wake_at`](Self::wake_at) at the latest.
    pub fn tick(&mut self, now: Tai) {
        if let Some(number) = self.late.tick(now) {
            self.warn_late(number);
        }
        let overdue = self.calls.iter().filter(|(_, pending)| pending.deadline <= now);
        for call in overdue.map(|(call, _)| *call).collect::<Vec<_>>() {
            self.time_out(now, call);
        }
    }

    /// When `tick` is due without further input.
    #[must_use]
    pub fn wake_at(&self) -> Option<Tai> {
        let deadlines = self.calls.values().map(|pending| pending.deadline);
        deadlines.chain(self.late.due()).min()
    }

    /// Why a call cannot be sent, if it cannot.
    fn obstacle(&self, asked: &Call) -> Option<(Cause, Acknowledgement)> {
        let component = &self.options.component;
        let (cause, code, text) = if self.is_gone() {
            let text = format!("nobody there: {component} is not running");
            (Cause::NobodyThere, AckCode::NoAck, text)
        } else if asked.action != Action::Run && self.presence == Presence::Unknown {
            let text = format!(
                "no lease of {component} is known: without one it understands plain commands only"
            );
            (Cause::NotSent, AckCode::Failed, text)
        } else if self.calls.len() >= MAX_PENDING {
            let text = format!("not sent: {MAX_PENDING} commands wait for {component} already");
            (Cause::NotSent, AckCode::NoAck, text)
        } else {
            return None;
        };
        Some((cause, Acknowledgement::new(code, text)))
    }

    /// The live instance, if known.
    fn instance(&self) -> Option<u64> {
        match self.presence {
            Presence::Here { incarnation } => Some(incarnation),
            Presence::Gone | Presence::Unknown => None,
        }
    }

    fn next_seq_num(&mut self) -> i32 {
        loop {
            let number = self.seq_num;
            self.seq_num = if number == MAX_SEQ_NUM { 1 } else { number + 1 };
            // A call may be pending for so long that the numbers wrap.
            if !self.by_number.contains_key(&number) {
                return number;
            }
        }
    }

    /// The trace id of a call: unique within a caller, and random among callers.
    fn trace(&self, call: CallNumber) -> TraceId {
        let [low, high] = [self.options.seed as u64, (self.options.seed >> 64) as u64];
        let first = mix(low.wrapping_add(call.0.wrapping_mul(GOLDEN_RATIO_64)));
        let second = mix(high ^ first.rotate_left(32));
        let bits = (u128::from(first) << 64) | u128::from(second);
        // All zero is not a valid trace id.
        TraceId(bits.max(1).to_be_bytes())
    }

    fn note_lateness(&mut self, now: Tai, asked: &Call) {
        let lead = interval::whole_nanos(self.options.stream_lead);
        if asked.time.is_some_and(|time| interval::nanos(now, time) < lead) {
            self.late_sent += 1;
            if let Some(number) = self.late.note(now) {
                self.warn_late(number);
            }
        }
    }

    fn warn_late(&mut self, number: u64) {
        let (component, lead) = (&self.options.component, self.options.stream_lead);
        let lead = interval::readable(interval::whole_nanos(lead));
        let commands = if number == 1 { "command was" } else { "commands were" };
        let text = format!("{number} {commands} sent to {component} less than {lead} ahead");
        self.effects.push_back(Effect::Warn(text));
    }

    /// The call that an acknowledgement belongs to, if it is one of these.
    fn call_of(&self, sample: &AckSample) -> Option<CallNumber> {
        if let Some(trace) = &sample.trace {
            return self.by_trace.get(trace).copied();
        }
        let call = *self.by_number.get(&sample.seq_num)?;
        let own = sample.origin == self.options.origin && sample.identity == self.options.identity;
        own.then_some(call)
    }

    fn time_out(&mut self, now: Tai, call: CallNumber) {
        let Some(pending) = self.calls.get(&call) else { return };
        let component = &self.options.component;
        let (code, text) = match &pending.last {
            None => {
                let waited = interval::readable(interval::whole_nanos(pending.timeout));
                let text = format!("no acknowledgement from {component} within {waited}");
                // A live instance may have received it and may still run it.
                let here = matches!(self.presence, Presence::Here { .. });
                (if here { AckCode::Timeout } else { AckCode::NoAck }, text)
            }
            Some(last) => {
                let waited = interval::readable(interval::nanos(pending.sent, now));
                let said = format!("{} {:?}", last.code, last.result);
                let text = format!("{component} did not end within {waited}; it said {said} last");
                (AckCode::Timeout, text)
            }
        };
        self.end(call, Cause::TimedOut, Acknowledgement::new(code, text));
    }

    fn end_sent_to_others(&mut self, here: u64) {
        let others = self.calls.iter().filter(|(_, pending)| pending.is_of_another(here));
        for call in others.map(|(call, _)| *call).collect::<Vec<_>>() {
            self.end_gone(call, "was replaced");
        }
    }

    fn end_all_gone(&mut self) {
        for call in self.calls.keys().copied().collect::<Vec<_>>() {
            self.end_gone(call, "went away");
        }
    }

    fn end_gone(&mut self, call: CallNumber, how: &str) {
        let Some(pending) = self.calls.get(&call) else { return };
        let component = &self.options.component;
        let text = format!("{component} {how} while {} ran", pending.name());
        self.end(call, Cause::WentAway, Acknowledgement::new(AckCode::NoAck, text));
    }

    fn end(&mut self, call: CallNumber, cause: Cause, ack: Acknowledgement) {
        if self.forget(call) {
            self.effects.push_back(Effect::Done { call, ack, cause });
        }
    }

    fn forget(&mut self, call: CallNumber) -> bool {
        let Some(pending) = self.calls.remove(&call) else { return false };
        self.by_trace.remove(&pending.trace);
        self.by_number.remove(&pending.seq_num);
        true
    }
}

impl Pending {
    /// Whether it was sent to another instance. A command that was sent when none was seen may have
    /// reached this one.
    fn is_of_another(&self, instance: u64) -> bool {
        self.instance.is_some_and(|of| of != instance)
    }

    fn name(&self) -> &str {
        if self.command.is_empty() { "the request" } else { &self.command }
    }
}

/// SAL's largest `private_seqNum`; the next is 1.
const MAX_SEQ_NUM: i32 = i32::MAX;

/// The fractional part of the golden ratio: its multiples are far apart.
const GOLDEN_RATIO_64: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes bits, one to one (the finalizer of SplitMix64).
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(seed: u128) -> Caller {
        Caller::new(CallerOptions {
            component: "MTMount".into(),
            identity: "alice".into(),
            origin: 1,
            caller: None,
            key: None,
            seed,
            stream_lead: DEFAULT_STREAM_LEAD,
        })
    }

    #[test]
    fn numbers_come_round_and_are_not_used_twice_at_a_time() {
        let (mut caller, now) = (caller(0), Tai::from_nanos(0));
        let first = caller.send(now, Call::new("move"));
        assert_eq!(caller.seq_num(first), Some(1));
        caller.seq_num = MAX_SEQ_NUM;
        let [last, next] = [(); 2].map(|()| caller.send(now, Call::new("move")));
        assert_eq!(caller.seq_num(last), Some(MAX_SEQ_NUM));
        assert_eq!(caller.seq_num(next), Some(2));
    }

    #[test]
    fn numbers_begin_within_those_of_sal() {
        for seed in [0, 1, u128::MAX, 0x1234_5678_9abc_def0] {
            assert!((1..=MAX_SEQ_NUM).contains(&caller(seed).seq_num));
        }
    }

    #[test]
    fn calls_have_identities_of_their_own() {
        let mut seen: Vec<TraceId> = Vec::new();
        for seed in [0, 7, 7 << 64] {
            seen.extend((1..100).map(|call| caller(seed).trace(CallNumber(call))));
        }
        let number = seen.len();
        seen.sort_unstable_by_key(|trace| trace.0);
        seen.dedup();
        assert_eq!(seen.len(), number);
    }
}
