//! A received request of a caller.

use helio_core::{Tai, TraceId};

use super::Signature;
use super::authorization::{CallerName, Proof};

/// The requested action.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Run the command.
    Run,
    /// Report whether the command would run, without running it.
    Validate,
    /// Cancel a queued or running command.
    Cancel {
        /// Its `private_seqNum`.
        target: i32,
    },
    /// Refuse the commands of other callers for a limited time.
    Lock {
        /// The duration, in seconds.
        seconds: f64,
    },
    /// Accept commands of all callers again.
    Unlock,
}

/// A sample of a command topic or of `control`, without the command's values.
///
/// The values stay with the engine. It checks them first and reports errors in `refusal`, which
/// takes effect at its place in the order of the rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The action.
    pub action: Action,
    /// The command's short name, for example `trackTarget`. For a cancellation the target's, or
    /// empty; for lock and unlock, empty.
    pub command: String,
    /// `private_seqNum`.
    pub seq_num: i32,
    /// `private_identity`: a component's name or user@host.
    pub identity: String,
    /// `private_origin`: the process.
    pub origin: i32,
    /// The caller, if the headers name one; otherwise it is `identity`.
    pub caller: Option<String>,
    /// The incarnation of the instance that it is for, if the caller saw one.
    pub instance: Option<u64>,
    /// The time after which it must not run.
    pub expiry: Option<Tai>,
    /// The idempotency key: a command that is sent several times with one key runs once.
    pub key: Option<String>,
    /// The call's trace id, which its acknowledgements carry too.
    pub trace: Option<TraceId>,
    /// The caller's signature. A controller removes one that proves nothing.
    pub signature: Option<Signature>,
    /// The time that a stream command is for.
    pub time: Option<Tai>,
    /// The first error in its headers or values, naming the field.
    pub refusal: Option<String>,
    /// The public fields as JSON text, for the audit; may be empty.
    pub arguments: String,
}

impl Request {
    /// The caller, for authorization, locks and keys.
    #[must_use]
    pub fn who(&self) -> &str {
        self.caller.as_deref().unwrap_or(&self.identity)
    }

    /// The caller, signed if there is a signature: ask a controller's requests only, whose
    /// signatures are verified.
    pub(super) fn caller_name(&self) -> CallerName<'_> {
        let proof = if self.signature.is_some() { Proof::Signed } else { Proof::Declared };
        CallerName { name: self.who(), proof }
    }
}
