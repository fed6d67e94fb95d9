//! What a controller wants done.

use helio_core::{Tai, TraceId};

use crate::protocol::{AckCode, Acknowledgement, CallNumber, SummaryState, Transition};

/// What is to be done, in this order.
///
/// Of every call that [`received`](super::Controller::received) gave, exactly one of `Run`,
/// `Validate`, `Begin` and `Discard` comes: until then its values are kept, and after it they
/// belong to the handler, or are forgotten.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Run the command's handler, then call [`finished`](super::Controller::finished).
    Run {
        /// The call.
        call: CallNumber,
    },
    /// Run the handler's own check of the values, where it has one, then call
    /// [`finished`](super::Controller::finished).
    Validate {
        /// The call.
        call: CallNumber,
    },
    /// Run what comes before a change of state, then call [`begun`](super::Controller::begun).
    Begin {
        /// The call.
        call: CallNumber,
        /// The change.
        transition: Transition,
    },
    /// Run what comes after a change of state, then call
    /// [`finished`](super::Controller::finished).
    End {
        /// The call, whose `Begin` came before.
        call: CallNumber,
        /// The change.
        transition: Transition,
    },
    /// Forget the call's values: it will not be run.
    Discard {
        /// The call.
        call: CallNumber,
    },
    /// Stop the call's handler, if it still runs; how it ends is told as ever.
    Interrupt {
        /// The call.
        call: CallNumber,
    },
    /// Tell whoever had the component [ask itself](super::Controller::ask) how that has ended.
    Answer {
        /// The call.
        call: CallNumber,
        /// How it ended; final.
        ack: Acknowledgement,
    },
    /// Publish an acknowledgement.
    Acknowledge {
        /// To whom.
        address: Address,
        /// What it says.
        ack: Acknowledgement,
    },
    /// Publish the event `errorCode`; the state that comes of it is told next.
    Error {
        /// The error code.
        code: i32,
        /// What went wrong, for people.
        report: String,
    },
    /// Publish the summary state.
    State(SummaryState),
    /// Publish a record for the audit.
    Audit(AuditEntry),
    /// Log a warning.
    Warn(String),
    /// Leave: nothing more is taken.
    Quit,
}

/// Whose command an acknowledgement is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The command's `private_seqNum`.
    pub seq_num: i32,
    /// The command's `private_identity`.
    pub identity: String,
    /// The command's `private_origin`.
    pub origin: i32,
    /// The call's identity, which the acknowledgement carries too.
    pub trace: Option<TraceId>,
    /// The command's short name; `None` where it came on the topic `control`.
    pub command: Option<String>,
}

/// When in a command's life a record of the audit is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It was taken, and runs or waits.
    Received,
    /// It ended.
    Finished,
}

/// A record for the audit: two for a command that was taken, one for a command that was not.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// When.
    pub time: Tai,
    /// The command's short name; what was asked, where it was no command: `validate move`,
    /// `cancel 17`, `lock 60 s`, `unlock`.
    pub command: String,
    /// The command's `private_seqNum`.
    pub seq_num: i32,
    /// Who asked.
    pub caller: String,
    /// The command's `private_identity`.
    pub identity: String,
    /// The command's `private_origin`.
    pub origin: i32,
    /// When in the command's life.
    pub phase: Phase,
    /// What the command was told last; `None` when it has just been received.
    pub ack: Option<AckCode>,
    /// The error code told.
    pub error: i32,
    /// The text told.
    pub result: String,
    /// Time since it was received, in seconds.
    pub duration_s: f64,
    /// The public fields as JSON text, when it has just been received or was not taken.
    pub arguments: String,
}
