//! What a handler gets, and what it gives back.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use helio_bus::Tai;
use serde_json::Value as Json;

use super::Component;
use crate::fields::Fields;
use crate::protocol::{CallNumber, Done, Ending, Failure, Progress};

/// A command that runs.
#[derive(Debug)]
pub struct Command {
    pub(super) component: Component,
    pub(super) call: CallNumber,
    pub(super) taken: Arc<Taken>,
}

/// What was received of a command.
#[derive(Debug)]
pub(super) struct Taken {
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

    /// Its public fields; they were checked.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.taken.fields
    }

    /// A number, whatever its type; 0 where there is no such field.
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        self.taken.fields.number(name).unwrap_or_default()
    }

    /// A whole number; 0 where there is no such field.
    #[must_use]
    pub fn integer(&self, name: &str) -> i64 {
        self.taken.fields.integer(name).unwrap_or_default()
    }

    /// A text; empty where there is no such field.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.taken.fields.text(name).unwrap_or_default()
    }

    /// Who sent it.
    #[must_use]
    pub fn caller(&self) -> &str {
        &self.taken.caller
    }

    /// Its `private_identity`: a component's name or user@host.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.taken.identity
    }

    /// Its `private_seqNum`.
    #[must_use]
    pub fn seq_num(&self) -> i32 {
        self.taken.seq_num
    }

    /// When it must not be begun any more, where its caller said so.
    #[must_use]
    pub fn expiry(&self) -> Option<Tai> {
        self.taken.expiry
    }

    /// Tells the caller that it runs and takes up to `timeout` from now on; with a text and, where
    /// it is known, how much of it is done (0 to 1).
    pub fn in_progress(&self, timeout: Duration, text: &str, fraction: Option<f64>) {
        let timeout_s = timeout.as_secs_f64();
        let (result, typed) = (text.to_owned(), None);
        let told = Progress { timeout_s, result, progress: fraction, typed };
        self.component.in_progress(self.call, told);
    }

    /// Whether it was cancelled, or the component goes away: the handler is to end soon, with
    /// [`Failed::aborted`].
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.taken.cancel.is_set()
    }

    /// Waits for a time.
    ///
    /// # Errors
    /// [`Failed::aborted`] at once when the command is cancelled: hand it on with `?`.
    pub fn pause(&self, time: Duration) -> Result<(), Failed> {
        if self.taken.cancel.wait(time) { Err(Failed::aborted()) } else { Ok(()) }
    }
}

/// Whether a command was cancelled.
#[derive(Debug, Default)]
pub(super) struct Cancel {
    set: AtomicBool,
    lock: Mutex<()>,
    told: Condvar,
}

impl Cancel {
    pub(super) fn set(&self) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.set.store(true, Ordering::Release);
        drop(lock);
        self.told.notify_all();
    }

    fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Waits until it is set, at most for a time; whether it is.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let unset = |(): &mut ()| !self.is_set();
        drop(self.told.wait_timeout_while(lock, time, unset));
        self.is_set()
    }
}

/// Why a handler has not done its work. Any error becomes one by `?`.
#[derive(Clone, PartialEq, Eq)]
pub struct Failed(pub(super) Failure);

impl Failed {
    /// It failed, for a reason that people can read.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self(Failure::new(Ending::Failed, reason))
    }

    /// It failed, with an error code of the component's own.
    #[must_use]
    pub fn with_code(error: i32, reason: impl Into<String>) -> Self {
        Self(Failure { error, ..Failure::new(Ending::Failed, reason) })
    }

    /// It was cancelled.
    #[must_use]
    pub fn aborted() -> Self {
        Self(Failure::new(Ending::Aborted, "cancelled"))
    }

    /// It took too long.
    #[must_use]
    pub fn timeout(reason: impl Into<String>) -> Self {
        Self(Failure::new(Ending::Timeout, reason))
    }

    /// The caller may not do that.
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
    /// A typed result, told beside the text `Done`.
    fn from(result: Json) -> Self {
        Self { result: String::new(), typed: Some(result.to_string()) }
    }
}

/// Runs a command. A closure `|command| …` is one.
pub trait Handler: Send + Sync + 'static {
    /// Runs it. What it gives back becomes the final acknowledgement; a panic fails this command
    /// only.
    ///
    /// # Errors
    /// [`Failed`] says how it ended and why.
    fn run(&self, command: &Command) -> Result<Done, Failed>;

    /// Says whether it would be run, for commands that are only to be validated. Their values and
    /// the state were checked before.
    ///
    /// # Errors
    /// [`Failed`] says why it would not.
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
