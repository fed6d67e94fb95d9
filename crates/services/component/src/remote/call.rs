//! One command: put together, sent, followed to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::Tai;
use helio_core::Value;
use helio_core::sal::TopicKind;
use serde_json::Value as Json;
use thiserror::Error;

use super::dialogue::{Dialogue, Told};
use crate::fields::{FieldError, Fields};
use crate::interface::InterfaceError;
use crate::protocol::caller::{self, Cause};
use crate::protocol::{AckCode, Acknowledgement, Action, CallNumber, SummaryState};
use crate::topic::TopicReadError;

/// How a command ended that was not completed.
#[derive(Debug, Clone, Error)]
pub enum CommandError {
    /// It ended otherwise than by being completed.
    #[error("{command} of {component}: {} ({})", ack.result, ack.code)]
    Ended {
        /// The component, with its index.
        component: String,
        /// The command.
        command: String,
        /// How it ended.
        ack: Box<Acknowledgement>,
        /// Who says so.
        cause: Cause,
    },
    /// A value does not fit its field; nothing was sent.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// There is no such command; nothing was sent.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A topic cannot be read.
    #[error(transparent)]
    Read(#[from] TopicReadError),
    /// No commands lead to that state.
    #[error(
        "no commands lead {component} from {} to {to}",
        from.map_or("an unknown state", SummaryState::name)
    )]
    NoPath {
        /// The component, with its index.
        component: String,
        /// The state that it is in, where that is known.
        from: Option<SummaryState>,
        /// The state that was asked for.
        to: SummaryState,
    },
}

impl CommandError {
    /// What the component, or the caller's side, acknowledged.
    #[must_use]
    pub fn ack(&self) -> Option<&Acknowledgement> {
        match self {
            Self::Ended { ack, .. } => Some(ack),
            _ => None,
        }
    }

    /// The code of the acknowledgement.
    #[must_use]
    pub fn code(&self) -> Option<AckCode> {
        self.ack().map(|ack| ack.code)
    }

    /// Who says that it ended so.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::Ended { cause, .. } => Some(*cause),
            _ => None,
        }
    }
}

/// A command that is being put together. What is wrong with it is told when it is waited for.
#[must_use = "nothing is sent before `send`"]
#[derive(Debug)]
pub struct CallBuilder {
    dialogue: Arc<Dialogue>,
    fields: Option<Fields>,
    call: caller::Call,
    caller: Option<String>,
    wrong: Option<CommandError>,
}

impl CallBuilder {
    pub(super) fn new(dialogue: &Arc<Dialogue>, command: &str) -> Self {
        let (mut fields, mut wrong) = (None, None);
        if !command.is_empty() {
            match dialogue.interface.shape(TopicKind::Command, command) {
                Ok(shape) => fields = Some(Fields::new(&shape)),
                Err(error) => wrong = Some(error.into()),
            }
        }
        if let Err(error) = dialogue.interface.check_index(dialogue.index) {
            wrong = wrong.or(Some(error.into()));
        }
        let (call, caller) = (caller::Call::new(command), None);
        Self { dialogue: Arc::clone(dialogue), fields, call, caller, wrong }
    }

    fn with(mut self, set: impl FnOnce(&mut Fields) -> Result<(), FieldError>) -> Self {
        if let Some(fields) = &mut self.fields
            && let Err(error) = set(fields)
        {
            self.wrong.get_or_insert(error.into());
        }
        self
    }

    /// Sets a field, as [`Fields::set`] does.
    pub fn set(self, name: &str, value: impl Into<Value>) -> Self {
        self.with(|fields| fields.set(name, value).map(drop))
    }

    /// Sets a field from JSON, as [`Fields::set_json`] does.
    pub fn set_json(self, name: &str, json: &Json) -> Self {
        self.with(|fields| fields.set_json(name, json).map(drop))
    }

    /// How long to wait for the end, or for an acknowledgement that says how long it takes; 10 s
    /// where nothing is said.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.call.timeout = timeout;
        self
    }

    /// When the component is not to begin it any more.
    pub fn expiry(mut self, expiry: Tai) -> Self {
        self.call.expiry = Some(expiry);
        self
    }

    /// The same, from now on.
    pub fn expires_in(self, time: Duration) -> Self {
        let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let now = self.dialogue.bus.clock().now().nanos();
        self.expiry(Tai::from_nanos(now.saturating_add(nanos)))
    }

    /// A name for what is asked: sent again under it, it is not run again. 1 to 128 bytes.
    pub fn key(mut self, key: &str) -> Self {
        self.call.key = Some(key.to_owned());
        self
    }

    /// Who commands, for authorization and audit, if not who the remote says.
    pub fn caller(mut self, caller: &str) -> Self {
        self.caller = Some(caller.to_owned());
        self
    }

    /// For what time it is, where it is one of a stream: sent less than 50 ms before, it is counted
    /// and told.
    pub fn time(mut self, time: Tai) -> Self {
        self.call.time = Some(time);
        self
    }

    /// Sends it.
    pub fn send(self) -> Call {
        self.act(Action::Run)
    }

    /// Asks whether it would be run, and waits for the answer.
    ///
    /// # Errors
    /// [`CommandError`] says why it would not.
    pub fn validate(self) -> Result<Acknowledgement, CommandError> {
        self.send_validate().wait()
    }

    /// Asks whether it would be run.
    pub fn send_validate(self) -> Call {
        self.act(Action::Validate)
    }

    pub(super) fn act(mut self, action: Action) -> Call {
        self.call.action = action;
        let command = self.call.command.clone();
        if matches!(action, Action::Run | Action::Validate) {
            // The component looks too; here it costs no message, and tells who made the mistake.
            let checked = self.fields.as_ref().map_or(Ok(()), Fields::check);
            self.wrong = self.wrong.or(checked.err().map(Into::into));
        }
        let number = match self.wrong {
            Some(wrong) => Err(wrong),
            None => Ok(self.dialogue.send(self.call, self.caller, self.fields)),
        };
        Call { dialogue: self.dialogue, command, action, number }
    }
}

/// A command that was sent. Dropped, nobody waits for it any more; it runs all the same.
#[must_use = "without it nobody knows what became of the command"]
#[derive(Debug)]
pub struct Call {
    dialogue: Arc<Dialogue>,
    command: String,
    action: Action,
    number: Result<CallNumber, CommandError>,
}

impl Call {
    /// The `private_seqNum` of the command; `None` once it has ended.
    #[must_use]
    pub fn seq_num(&self) -> Option<i32> {
        self.number.as_ref().ok().and_then(|number| self.dialogue.seq_num(*number))
    }

    /// Waits for what the component says next: progress, and in the end the acknowledgement that
    /// it is completed. `None` after the end.
    ///
    /// # Errors
    /// [`CommandError`] where it ended otherwise.
    #[expect(clippy::should_implement_trait, reason = "an iterator could not tell how it ended")]
    pub fn next(&mut self) -> Result<Option<Acknowledgement>, CommandError> {
        self.told(None)
    }

    /// As [`next`](Self::next), but waits no longer than `wait`: `None` where nothing was said by
    /// then, too.
    ///
    /// # Errors
    /// [`CommandError`] where it ended otherwise.
    pub fn next_timeout(
        &mut self,
        wait: Duration,
    ) -> Result<Option<Acknowledgement>, CommandError> {
        self.told(Instant::now().checked_add(wait))
    }

    fn told(&self, until: Option<Instant>) -> Result<Option<Acknowledgement>, CommandError> {
        let number = self.number.clone()?;
        match self.dialogue.next(number, until) {
            None | Some(Told::Nothing) => Ok(None),
            Some(Told::Progress(ack)) => Ok(Some(ack)),
            Some(Told::Done(ack, Cause::Acknowledged)) if ack.code == AckCode::Complete => {
                Ok(Some(ack))
            }
            Some(Told::Done(ack, cause)) => Err(self.ended(ack, cause)),
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// [`CommandError`] where it was not completed.
    pub fn wait(mut self) -> Result<Acknowledgement, CommandError> {
        loop {
            match self.next()? {
                Some(ack) if !ack.code.is_final() => {}
                Some(ack) => return Ok(ack),
                None => {
                    let ack = Acknowledgement::new(AckCode::NoAck, "its end was told before");
                    return Err(self.ended(ack, Cause::NotSent));
                }
            }
        }
    }

    /// Has the component cancel it, and waits until it says that it does. How the command itself
    /// ends is told as ever.
    ///
    /// # Errors
    /// [`CommandError`]: it is not running, or the caller may not.
    pub fn cancel(&self) -> Result<Acknowledgement, CommandError> {
        self.send_cancel()?.wait()
    }

    /// Asks the component to cancel it: a call of its own, whose end says whether it does.
    ///
    /// # Errors
    /// [`CommandError`]: it is not running.
    pub fn send_cancel(&self) -> Result<Call, CommandError> {
        let target = self.number.clone().map(|number| self.dialogue.seq_num(number))?;
        let Some(target) = target else {
            let ack = Acknowledgement::new(AckCode::Failed, "not running: it has ended");
            return Err(self.ended(ack, Cause::NotSent));
        };
        let asked = CallBuilder::new(&self.dialogue, &self.command);
        Ok(asked.act(Action::Cancel { target }))
    }

    fn ended(&self, ack: Acknowledgement, cause: Cause) -> CommandError {
        let component = self.dialogue.interface.identity(self.dialogue.index);
        let command = match self.action {
            Action::Run => self.command.clone(),
            Action::Validate => format!("validate {}", self.command),
            Action::Cancel { .. } => format!("cancel {}", self.command),
            Action::Lock { .. } => "lock".to_owned(),
            Action::Unlock => "unlock".to_owned(),
        };
        CommandError::Ended { component, command, ack: Box::new(ack), cause }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Ok(number) = &self.number {
            self.dialogue.abandon(*number);
        }
    }
}
