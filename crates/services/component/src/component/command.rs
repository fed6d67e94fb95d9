//! The arguments and results of handlers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use helio_bus::Tai;
use serde_json::Value as Json;

use super::Component;
use super::cancel::Cancel;
use crate::fields::Fields;
use crate::protocol::{CallNumber, Done, Ending, Failure, Progress};

/// A running command.
#[derive(Debug)]
pub struct Command {
    pub(super) component: Component,
    pub(super) call: CallNumber,
    pub(super) taken: Arc<ReceivedCommand>,
}

/// The received values of a command.
#[derive(Debug)]
pub(super) struct ReceivedCommand {
    pub name: String,
    pub fields: Fields,
    pub caller: String,
    pub identity: String,
    pub seq_num: i32,
    pub expiry: Option<Tai>,
    pub cancel: Cancel,
}

impl Command {
    /// Its short name, for example `moveToTarget`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.taken.name
    }

    /// The component that runs it.
    #[must_use]
    pub fn component(&self) -> &Component {
        &self.component
    }

    /// Its public fields, already validated.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.taken.fields
    }

    /// A numeric field of any type; 0 if there is no such field.
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        self.taken.fields.number(name).unwrap_or_default()
    }

    /// An integer field; 0 if there is no such field.
    #[must_use]
    pub fn integer(&self, name: &str) -> i64 {
        self.taken.fields.integer(name).unwrap_or_default()
    }

    /// A text field; empty if there is no such field.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.taken.fields.text(name).unwrap_or_default()
    }

    /// The caller.
    #[must_use]
    pub fn caller(&self) -> &str {
        &self.taken.caller
    }

    /// Its `private_identity`: a component's name, or user@host.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.taken.identity
    }

    /// Its `private_seqNum`.
    #[must_use]
    pub fn seq_num(&self) -> i32 {
        self.taken.seq_num
    }

    /// The time after which it must not start, if its caller set one.
    #[must_use]
    pub fn expiry(&self) -> Option<Tai> {
        self.taken.expiry
    }

    /// Acknowledges that the command is in progress and takes up to `timeout` from now. `fraction`
    /// is the part that is done (0 to 1), if known.
    pub fn in_progress(&self, timeout: Duration, text: &str, fraction: Option<f64>) {
        let timeout_s = timeout.as_secs_f64();
        let (result, typed) = (text.to_owned(), None);
        let told = Progress { timeout_s, result, progress: fraction, typed };
        self.component.in_progress(self.call, told);
    }

    /// Whether it was cancelled or the component is ending. The handler should then end soon with
    /// [`Failed::aborted`].
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.taken.cancel.is_set()
    }

    /// Waits for a time.
    ///
    /// # Errors
    /// [`Failed::aborted`], immediately, when the command is cancelled; propagate it with `?`.
    pub fn pause(&self, time: Duration) -> Result<(), Failed> {
        if self.taken.cancel.wait(time) { Err(Failed::aborted()) } else { Ok(()) }
    }
}

/// The reason why a handler failed. Any error converts to it with `?`.
#[derive(Clone, PartialEq, Eq)]
pub struct Failed(pub(super) Failure);

impl Failed {
    /// A failure with a reason for people.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self(Failure::new(Ending::Failed, reason))
    }

    /// A failure with an error code of the component.
    #[must_use]
    pub fn with_code(error: i32, reason: impl Into<String>) -> Self {
        Self(Failure { error, ..Failure::new(Ending::Failed, reason) })
    }

    /// The command was cancelled.
    #[must_use]
    pub fn aborted() -> Self {
        Self(Failure::new(Ending::Aborted, "cancelled"))
    }

    /// The command took too long.
    #[must_use]
    pub fn timeout(reason: impl Into<String>) -> Self {
        Self(Failure::new(Ending::Timeout, reason))
    }

    /// The caller is not permitted to do this.
    #[must_use]
    pub fn not_permitted(reason: impl Into<String>) -> Self {
        Self(Failure::new(Ending::NoPerm, reason))
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failed({:?}: {})", self.0.ending, self.0.text)
    }
}

impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

impl From<()> for Done {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<&str> for Done {
    fn from(text: &str) -> Self {
        Self { result: text.to_owned(), typed: None }
    }
}

impl From<String> for Done {
    fn from(result: String) -> Self {
        Self { result, typed: None }
    }
}

impl From<Json> for Done {
    /// A typed result, sent with the text `Done`.
    fn from(result: Json) -> Self {
        Self { result: String::new(), typed: Some(result.to_string()) }
    }
}

/// Runs a command. Closures `|command| …` implement it.
pub trait Handler: Send + Sync + 'static {
    /// Runs the command. Its result becomes the final acknowledgement; a panic fails this command
    /// only.
    ///
    /// # Errors
    /// [`Failed`] with the outcome and the reason.
    fn run(&self, command: &Command) -> Result<Done, Failed>;

    /// Checks a command that is only to be validated. Its values and the state were checked before.
    ///
    /// # Errors
    /// [`Failed`] with the reason why the command would not run.
    fn validate(&self, _command: &Command) -> Result<(), Failed> {
        Ok(())
    }
}

impl<F, D> Handler for F
where
    F: Fn(&Command) -> Result<D, Failed> + Send + Sync + 'static,
    D: Into<Done>,
{
    fn run(&self, command: &Command) -> Result<Done, Failed> {
        self(command).map(Into::into)
    }
}
