//! One command call: building, sending, waiting for its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::Tai;
use helio_core::Value;
use helio_core::sal::TopicKind;
use serde_json::Value as Json;
use thiserror::Error;

use super::command_client::{CallEvent, CommandClient};
use crate::fields::{FieldError, Fields};
use crate::interface::InterfaceError;
use crate::protocol::caller::{self, Cause};
use crate::protocol::{AckCode, Acknowledgement, Action, CallNumber, SummaryState};
use crate::topic::TopicReadError;

/// How a command ended that did not complete.
#[derive(Debug, Clone, Error)]
pub enum CommandError {
    /// It ended with an acknowledgement other than complete.
    #[error("{command} of {component}: {} ({})", ack.result, ack.code)]
    Ended {
        /// The component, with its index.
        component: String,
        /// The command.
        command: String,
        /// The final acknowledgement.
        ack: Box<Acknowledgement>,
        /// The source of the acknowledgement.
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
        /// Its current state, if known.
        from: Option<SummaryState>,
        /// The requested state.
        to: SummaryState,
    },
}

impl CommandError {
    /// The acknowledgement, from the component or from the caller's side.
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

    /// The source of the acknowledgement.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::Ended { cause, .. } => Some(*cause),
            _ => None,
        }
    }
}

/// A command that is being built. Waiting for it returns the errors of its values.
#[must_use = "nothing is sent before `send`"]
#[derive(Debug)]
pub struct CallBuilder {
    client: Arc<CommandClient>,
    fields: Option<Fields>,
    call: caller::Call,
    caller: Option<String>,
    wrong: Option<CommandError>,
}

impl CallBuilder {
    pub(super) fn new(client: &Arc<CommandClient>, command: &str) -> Self {
        let (mut fields, mut wrong) = (None, None);
        if !command.is_empty() {
            match client.interface.shape(TopicKind::Command, command) {
                Ok(shape) => fields = Some(Fields::new(&shape)),
                Err(error) => wrong = Some(error.into()),
            }
        }
        if let Err(error) = client.interface.check_index(client.index) {
            wrong = wrong.or(Some(error.into()));
        }
        let (call, caller) = (caller::Call::new(command), None);
        Self { client: Arc::clone(client), fields, call, caller, wrong }
    }

    fn with(mut self, set: impl FnOnce(&mut Fields) -> Result<(), FieldError>) -> Self {
        if let Some(fields) = &mut self.fields
            && let Err(error) = set(fields)
        {
            self.wrong.get_or_insert(error.into());
        }
        self
    }

    /// Sends these values.
    pub(crate) fn values(mut self, values: Fields) -> Self {
        self.fields = Some(values);
        self
    }

    /// Sets a field, like [`Fields::set`].
    pub fn set(self, name: &str, value: impl Into<Value>) -> Self {
        self.with(|fields| fields.set(name, value).map(drop))
    }

    /// Sets a field from JSON, like [`Fields::set_json`].
    pub fn set_json(self, name: &str, json: &Json) -> Self {
        self.with(|fields| fields.set_json(name, json).map(drop))
    }

    /// How long to wait for the end; the default is
    /// [`DEFAULT_ACK_TIMEOUT`](caller::DEFAULT_ACK_TIMEOUT). An acknowledgement that the command is
    /// in progress extends the wait: to its estimate and this timeout once more.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.call.timeout = timeout;
        self
    }

    /// The time after which the component must not start it.
    pub fn expiry(mut self, expiry: Tai) -> Self {
        self.call.expiry = Some(expiry);
        self
    }

    /// The expiry, relative to now.
    pub fn expires_in(self, time: Duration) -> Self {
        let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let now = self.client.bus.clock().now().nanos();
        self.expiry(Tai::from_nanos(now.saturating_add(nanos)))
    }

    /// The idempotency key: a command that is sent again with the same key does not run again. 1 to
    /// 128 bytes.
    pub fn key(mut self, key: &str) -> Self {
        self.call.key = Some(key.to_owned());
        self
    }

    /// The caller for authorization and audit, if it is not the remote's.
    pub fn caller(mut self, caller: &str) -> Self {
        self.caller = Some(caller.to_owned());
        self
    }

    /// The time that a stream command is for. A command that is sent less than 50 ms before it is
    /// counted and reported.
    pub fn time(mut self, time: Tai) -> Self {
        self.call.time = Some(time);
        self
    }

    /// Sends it.
    pub fn send(self) -> Call {
        self.act(Action::Run)
    }

    /// Queries whether the command would run, and waits for the answer.
    ///
    /// # Errors
    /// [`CommandError`] with the reason why it would not.
    pub fn validate(self) -> Result<Acknowledgement, CommandError> {
        self.send_validate().wait()
    }

    /// Queries whether the command would run.
    pub fn send_validate(self) -> Call {
        self.act(Action::Validate)
    }

    pub(super) fn act(mut self, action: Action) -> Call {
        self.call.action = action;
        let command = self.call.command.clone();
        if matches!(action, Action::Run | Action::Validate) {
            // The component checks too; here the check costs no message and names the mistake.
            let missing = self.client.missing;
            let checked = self.fields.as_ref().map_or(Ok(()), |fields| fields.check(missing));
            self.wrong = self.wrong.or(checked.err().map(Into::into));
        }
        let number = match self.wrong {
            Some(wrong) => Err(wrong),
            None => Ok(self.client.send(self.call, self.caller, self.fields)),
        };
        Call { client: self.client, command, action, number }
    }
}

/// A command that was sent. Dropping it abandons the call; the command runs nevertheless.
#[must_use = "without it nobody knows what became of the command"]
#[derive(Debug)]
pub struct Call {
    client: Arc<CommandClient>,
    command: String,
    action: Action,
    number: Result<CallNumber, CommandError>,
}

impl Call {
    /// The `private_seqNum` of the command; `None` once it has ended.
    #[must_use]
    pub fn seq_num(&self) -> Option<i32> {
        self.number.as_ref().ok().and_then(|number| self.client.seq_num(*number))
    }

    /// Waits for the next acknowledgement: progress, and finally completion. `None` after the end.
    ///
    /// # Errors
    /// [`CommandError`] if it did not complete.
    #[expect(clippy::should_implement_trait, reason = "an iterator could not tell how it ended")]
    pub fn next(&mut self) -> Result<Option<Acknowledgement>, CommandError> {
        self.told(None)
    }

    /// Like [`next`](Self::next), for at most `wait`; `None` also if nothing arrived by then.
    ///
    /// # Errors
    /// [`CommandError`] if it did not complete.
    pub fn next_timeout(
        &mut self,
        wait: Duration,
    ) -> Result<Option<Acknowledgement>, CommandError> {
        self.told(Instant::now().checked_add(wait))
    }

    fn told(&self, until: Option<Instant>) -> Result<Option<Acknowledgement>, CommandError> {
        let number = self.number.clone()?;
        match self.client.next(number, until) {
            None | Some(CallEvent::TimedOut) => Ok(None),
            Some(CallEvent::Progress(ack)) => Ok(Some(ack)),
            Some(CallEvent::Done(ack, Cause::Acknowledged)) if ack.code == AckCode::Complete => {
                Ok(Some(ack))
            }
            Some(CallEvent::Done(ack, cause)) => Err(self.ended(ack, cause)),
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// [`CommandError`] if it did not complete.
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

    /// Cancels the command and waits for the component's answer. The end of the command itself is
    /// reported as usual.
    ///
    /// # Errors
    /// [`CommandError`]: it is not running, or the caller is not permitted.
    pub fn cancel(&self) -> Result<Acknowledgement, CommandError> {
        self.send_cancel()?.wait()
    }

    /// Requests the cancellation as a call of its own, whose end is the component's answer.
    ///
    /// # Errors
    /// [`CommandError`]: it is not running.
    pub fn send_cancel(&self) -> Result<Call, CommandError> {
        let target = self.number.clone().map(|number| self.client.seq_num(number))?;
        let Some(target) = target else {
            let ack = Acknowledgement::new(AckCode::Failed, "not running: it has ended");
            return Err(self.ended(ack, Cause::NotSent));
        };
        let asked = CallBuilder::new(&self.client, &self.command);
        Ok(asked.act(Action::Cancel { target }))
    }

    fn ended(&self, ack: Acknowledgement, cause: Cause) -> CommandError {
        let component = self.client.interface.identity(self.client.index);
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
            self.client.abandon(*number);
        }
    }
}
