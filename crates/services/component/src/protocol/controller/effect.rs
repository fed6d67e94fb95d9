//! The actions that a controller requests.

use helio_core::{Tai, TraceId};

use crate::protocol::{AckCode, Acknowledgement, CallNumber, SummaryState, Transition};

/// An action for the engine; execute them in order.
///
/// For each call that [`received`](super::Controller::received) returned, exactly one of `Run`,
/// `Validate`, `Begin` and `Discard` follows. Until then the engine stores the call's values;
/// afterwards the handler has them, or they are discarded.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Run the command's handler, then call [`finished`](super::Controller::finished).
    Run {
        /// The call.
        call: CallNumber,
    },
    /// Run the handler's own check of the values, if it has one, then call
    /// [`finished`](super::Controller::finished).
    Validate {
        /// The call.
        call: CallNumber,
    },
    /// Run the hooks before a state change, then call [`begun`](super::Controller::begun).
    Begin {
        /// The call.
        call: CallNumber,
        /// The change.
        transition: Transition,
    },
    /// Run the hooks after a state change, then call [`finished`](super::Controller::finished).
    End {
        /// The call, whose `Begin` came before.
        call: CallNumber,
        /// The change.
        transition: Transition,
    },
    /// Discard the call's values: it will not run.
    Discard {
        /// The call.
        call: CallNumber,
    },
    /// Interrupt the call's handler, if it is still running; its end is reported as usual.
    Interrupt {
        /// The call.
        call: CallNumber,
    },
    /// Answer a command that the component [sent to itself](super::Controller::ask).
    Answer {
        /// The call.
        call: CallNumber,
        /// The final acknowledgement.
        ack: Acknowledgement,
    },
    /// Publish an acknowledgement.
    Acknowledge {
        /// The recipient.
        address: Address,
        /// The acknowledgement.
        ack: Acknowledgement,
    },
    /// Publish the event `errorCode`; the resulting state follows.
    Error {
        /// The error code.
        code: i32,
        /// The failure, for people.
        report: String,
    },
    /// Publish the summary state.
    State(SummaryState),
    /// Publish an audit record.
    Audit(AuditEntry),
    /// Log a warning.
    Warn(String),
    /// End the component: no further request is accepted.
    Quit,
}

/// The command that an acknowledgement answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The command's `private_seqNum`.
    pub seq_num: i32,
    /// The command's `private_identity`.
    pub identity: String,
    /// The command's `private_origin`.
    pub origin: i32,
    /// The call's trace id, which the acknowledgement carries too.
    pub trace: Option<TraceId>,
    /// The command's short name; `None` if it arrived on the topic `control`.
    pub command: Option<String>,
}

/// The point in a command's life at which an audit record is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Accepted: it runs, or is queued.
    Received,
    /// It ended.
    Finished,
}

/// An audit record: two for an accepted command, one for a refused one.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// The time of the record.
    pub time: Tai,
    /// The command's short name; for control requests `validate move`, `cancel 17`, `lock 60 s` or
    /// `unlock`.
    pub command: String,
    /// The command's `private_seqNum`.
    pub seq_num: i32,
    /// The caller, after `declared:` unless a signature proves it.
    pub caller: String,
    /// The command's `private_identity`.
    pub identity: String,
    /// The command's `private_origin`.
    pub origin: i32,
    /// The point in the command's life.
    pub phase: Phase,
    /// The last acknowledgement's code; `None` for a command that was just received.
    pub ack: Option<AckCode>,
    /// Its error code.
    pub error: i32,
    /// Its text.
    pub result: String,
    /// The time since it was received, in seconds.
    pub duration_s: f64,
    /// The public fields as JSON text, if it was just received or was refused.
    pub arguments: String,
}
