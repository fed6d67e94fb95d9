//! Acknowledgements: SAL's codes, and the possible outcomes of a command.

use std::fmt;

/// The code of an acknowledgement, with SAL's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum AckCode {
    /// The command was received.
    Ack = 300,
    /// It is running, and needs the further seconds that the acknowledgement announces.
    InProgress = 301,
    /// It is running without progress.
    Stalled = 302,
    /// It has completed.
    Complete = 303,
    /// The caller is not permitted to send it.
    NoPerm = -300,
    /// No acknowledgement arrived. Only the caller's side creates it.
    NoAck = -301,
    /// It was refused, or it failed.
    Failed = -302,
    /// It was cancelled.
    Aborted = -303,
    /// It arrived too late, or took too long.
    Timeout = -304,
}

impl AckCode {
    /// All codes.
    pub const ALL: [Self; 9] = [
        Self::Ack,
        Self::InProgress,
        Self::Stalled,
        Self::Complete,
        Self::NoPerm,
        Self::NoAck,
        Self::Failed,
        Self::Aborted,
        Self::Timeout,
    ];

    /// The code of a number; `None` if SAL has no such code.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }

    /// SAL's number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// SAL's name, for example `CMD_COMPLETE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ack => "CMD_ACK",
            Self::InProgress => "CMD_INPROGRESS",
            Self::Stalled => "CMD_STALLED",
            Self::Complete => "CMD_COMPLETE",
            Self::NoPerm => "CMD_NOPERM",
            Self::NoAck => "CMD_NOACK",
            Self::Failed => "CMD_FAILED",
            Self::Aborted => "CMD_ABORTED",
            Self::Timeout => "CMD_TIMEOUT",
        }
    }

    /// Whether no further acknowledgement of the command follows.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Ack | Self::InProgress | Self::Stalled)
    }
}

impl fmt::Display for AckCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An acknowledgement from a component to a caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Acknowledgement {
    /// The code.
    pub code: AckCode,
    /// The component's error code; 0 for none.
    pub error: i32,
    /// The text.
    pub result: String,
    /// The further time that the command needs, in seconds; 0 if unknown.
    pub timeout_s: f64,
    /// The part of the command that is done, from 0 to 1.
    pub progress: Option<f64>,
    /// The result as JSON text.
    pub typed: Option<String>,
}

impl Acknowledgement {
    /// An acknowledgement with a code and a text.
    #[must_use]
    pub fn new(code: AckCode, result: impl Into<String>) -> Self {
        let result = result.into();
        Self { code, error: 0, result, timeout_s: 0.0, progress: None, typed: None }
    }
}

impl From<Done> for Acknowledgement {
    fn from(done: Done) -> Self {
        let text = if done.result.is_empty() { "Done".to_owned() } else { done.result };
        Self { typed: done.typed, ..Self::new(AckCode::Complete, text) }
    }
}

impl From<Failure> for Acknowledgement {
    fn from(failure: Failure) -> Self {
        Self { error: failure.error, ..Self::new(failure.ending.code(), failure.text) }
    }
}

impl From<Progress> for Acknowledgement {
    fn from(told: Progress) -> Self {
        Self {
            timeout_s: told.timeout_s,
            progress: told.progress,
            typed: told.typed,
            ..Self::new(AckCode::InProgress, told.result)
        }
    }
}

/// The result of a handler that has completed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Done {
    /// The text; an empty one is sent as `Done`.
    pub result: String,
    /// The result as JSON text.
    pub typed: Option<String>,
}

/// The progress of a running handler.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// The further time that it needs, in seconds; the caller waits at least that long.
    pub timeout_s: f64,
    /// The text.
    pub result: String,
    /// The part that is done, from 0 to 1.
    pub progress: Option<f64>,
    /// A preliminary result as JSON text.
    pub typed: Option<String>,
}

/// The outcome of a handler that has not completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The caller is not permitted to do this.
    NoPerm,
    /// It failed, expectedly or not.
    Failed,
    /// It was cancelled.
    Aborted,
    /// It took too long.
    Timeout,
}

impl Ending {
    /// The code of the outcome.
    #[must_use]
    pub const fn code(self) -> AckCode {
        match self {
            Self::NoPerm => AckCode::NoPerm,
            Self::Failed => AckCode::Failed,
            Self::Aborted => AckCode::Aborted,
            Self::Timeout => AckCode::Timeout,
        }
    }

    /// The text for a handler that gives no reason.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::NoPerm => "not permitted",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::Timeout => "took too long",
        }
    }
}

/// The reason why a handler has not completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The outcome.
    pub ending: Ending,
    /// The component's error code; 0 for none.
    pub error: i32,
    /// The reason, for people.
    pub text: String,
}

impl Failure {
    /// A failure without an error code.
    #[must_use]
    pub fn new(ending: Ending, text: impl Into<String>) -> Self {
        Self { ending, error: 0, text: text.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_numbers_and_names_of_sal() {
        let numbers: Vec<i32> = AckCode::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(numbers, [300, 301, 302, 303, -300, -301, -302, -303, -304]);
        let names = AckCode::ALL.map(|code| code.to_string());
        let sal = "ACK INPROGRESS STALLED COMPLETE NOPERM NOACK FAILED ABORTED TIMEOUT";
        assert_eq!(names.join(" ").replace("CMD_", ""), sal);
        for code in AckCode::ALL {
            assert_eq!(AckCode::from_number(code.number()), Some(code));
            assert_eq!(code.is_final(), ![300, 301, 302].contains(&code.number()));
        }
        assert_eq!(AckCode::from_number(0), None);
    }
}
