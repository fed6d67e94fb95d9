//! What a caller asks of a component, as it was received.

use helio_core::{Tai, TraceId};

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Run the command.
    Run,
    /// Say whether the command would be run, and do not run it.
    Validate,
    /// Cancel a command that waits or runs.
    Cancel {
        /// Its `private_seqNum`.
        target: i32,
    },
    /// Take no commands but this caller's, for a while.
    Lock {
        /// How long, in seconds.
        seconds: f64,
    },
    /// Take commands of all callers again.
    Unlock,
}

/// A sample of a command's topic, or of the topic `control`, without the values of the command.
///
/// The values stay with the shell, which checks them before and tells
/// what is wrong in `refusal`: that comes to its turn in the order of the rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What is asked.
    pub action: Action,
    /// The command's short name, for example `trackTarget`. To cancel, the target's, or empty; to
    /// lock and unlock, empty.
    pub command: String,
    /// `private_seqNum`.
    pub seq_num: i32,
    /// `private_identity`: a component's name or user@host.
    pub identity: String,
    /// `private_origin`: the process.
    pub origin: i32,
    /// Who asks, where the headers say so; otherwise it is `identity`.
    pub caller: Option<String>,
    /// The incarnation of the instance that it is for, where the caller saw one.
    pub instance: Option<u64>,
    /// When it is not to be run any more.
    pub expiry: Option<Tai>,
    /// A name for what is asked, so that it is done once however often it is sent.
    pub key: Option<String>,
    /// The call's identity, which its acknowledgements carry too.
    pub trace: Option<TraceId>,
    /// For what time a stream's command is, where the command is a stream's.
    pub time: Option<Tai>,
    /// What is wrong with its headers or values, naming the field.
    pub refusal: Option<String>,
    /// The public fields as JSON text, for the audit; may be empty.
    pub arguments: String,
}

impl Request {
    /// Who asks: what authorization, locks and keys go by.
    #[must_use]
    pub fn who(&self) -> &str {
        self.caller.as_deref().unwrap_or(&self.identity)
    }
}
