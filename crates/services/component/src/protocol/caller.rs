//! The caller's side: what becomes of the commands that one program sends to one component.
//!
//! A call ends once, by what the component says, or by what is known of the component: that nobody
//! is there, that it went away, that it said nothing in time.

use std::time::Duration;

use helio_core::{Tai, TraceId};

use super::{Acknowledgement, Action, CallHeaders, CallNumber};

/// How long a call waits for its first acknowledgement where nothing is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the heartbeats of a component without a lease may be absent before it counts as gone.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long before its time a stream's command should be sent, where nothing is said.
pub const DEFAULT_STREAM_LEAD: Duration = Duration::from_millis(50);
/// The most calls of one caller that wait for their end: ten seconds of commands at 400 Hz.
pub const MAX_PENDING: usize = 4_096;

/// Who calls, and whom.
#[derive(Debug, Clone, PartialEq)]
pub struct CallerOptions {
    /// The component called, for texts: its name, with `:index` where it is indexed.
    pub component: String,
    /// `private_identity` of the commands: a component's name or user@host.
    pub identity: String,
    /// `private_origin` of the commands: the process.
    pub origin: i32,
    /// Who commands, where that is another than `identity`; goes into the headers.
    pub caller: Option<String>,
    /// Random bits: the first `private_seqNum` and the calls' identities come of them.
    pub seed: u128,
    /// How long before its time a stream's command should be sent; later ones are counted.
    pub stream_lead: Duration,
}

/// A command to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What is asked. All but [`Action::Run`] go to the topic `control`.
    pub action: Action,
    /// The command's short name, for example `trackTarget`.
    pub command: String,
    /// How long to wait for the end, or for a first acknowledgement that says how long it takes.
    pub timeout: Duration,
    /// When the component is not to run it any more.
    pub expiry: Option<Tai>,
    /// A name for what is asked, so that it is done once however often it is sent.
    pub key: Option<String>,
    /// For what time a stream's command is.
    pub time: Option<Tai>,
}

impl Call {
    /// A command to run, with [`DEFAULT_TIMEOUT`].
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            action: Action::Run,
            command: command.into(),
            timeout: DEFAULT_TIMEOUT,
            expiry: None,
            key: None,
            time: None,
        }
    }
}

/// What the lease of a component tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Presence {
    /// It is there.
    Here {
        /// When this instance of it took the lease: commands sent before were another's.
        started: Tai,
    },
    /// It was there, and is not now.
    Gone,
    /// It has never had a lease: it is no component of ours, and heartbeats must tell.
    Unknown,
}

/// An acknowledgement as it was received.
#[derive(Debug, Clone, PartialEq)]
pub struct AckSample {
    /// The call's identity; foreign components do not send it.
    pub trace: Option<TraceId>,
    /// `identity` of the command acknowledged.
    pub identity: String,
    /// `origin` of the command acknowledged.
    pub origin: i32,
    /// `private_seqNum` of the command acknowledged.
    pub seq_num: i32,
    /// What it says.
    pub ack: Acknowledgement,
}

/// How a call came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The component said so.
    Acknowledged,
    /// The component did not say enough in time.
    TimedOut,
    /// Nobody was there; the command was not sent.
    NobodyThere,
    /// The component went away, or was replaced, while the command ran.
    WentAway,
    /// The command could not be published, or is none that this component understands.
    NotSent,
}

/// What a caller wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Publish the command.
    Publish {
        /// The call.
        call: CallNumber,
        /// What is asked: where, and with what fields.
        action: Action,
        /// `private_seqNum`.
        seq_num: i32,
        /// The sample's trace id.
        trace: TraceId,
        /// The sample's headers.
        headers: CallHeaders,
    },
    /// Tell that the command runs.
    Progress {
        /// The call.
        call: CallNumber,
        /// What the component says; not final.
        ack: Acknowledgement,
    },
    /// Tell how the call ended. Nothing more comes of it.
    Done {
        /// The call.
        call: CallNumber,
        /// How it ended; final.
        ack: Acknowledgement,
        /// Who says so.
        cause: Cause,
    },
    /// Log a warning.
    Warn(String),
}
