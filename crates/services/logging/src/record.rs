//! A record as a value, for tools, formats and tests.

use helio_core::{Tai, TraceId};

use crate::level::Level;
use crate::value::Value;

/// The readers that a record is meant for.
///
/// Audiences are names, so that sites can have their own; ACS's are in [`audience`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audiences {
    /// All audiences, whatever their names.
    pub everyone: bool,
    /// The audiences by name.
    pub names: Vec<String>,
}

/// ACS's audiences (module `log_audience` of its `acscommon.idl`).
pub mod audience {
    /// Operators of the observatory.
    pub const OPERATOR: &str = "Operator";
    /// Developers of the software.
    pub const DEVELOPER: &str = "Developer";
    /// Administrators of the machines.
    pub const SYSADMIN: &str = "Sysadmin";
    /// Administrators of the databases.
    pub const DBA: &str = "DBA";
    /// Readers of the science log.
    pub const SCILOG: &str = "SciLog";
}

impl Audiences {
    /// These audiences.
    #[must_use]
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { everyone: false, names: names.into_iter().map(Into::into).collect() }
    }

    /// All audiences.
    #[must_use]
    pub fn everyone() -> Self {
        Self { everyone: true, names: Vec::new() }
    }

    /// Whether there is no audience.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.everyone && self.names.is_empty()
    }
}

/// The notation of arguments in a message's template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Style {
    /// `{}` and `{name}`, `{{` for a brace: Rust's and Python's `str.format`.
    #[default]
    Braces,
    /// `%s`, `%d`, `%.3f`, `%%` for a per cent: C's `printf` and Python's `logging`.
    Percent,
}

/// A call site: a place in a program that logs. It is registered once, and records refer to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Site {
    /// The message with placeholders for its arguments; empty if it has none.
    pub template: String,
    /// The notation of the placeholders.
    pub style: Style,
    /// The names of the arguments, in order, each without a line break. The list is shorter than
    /// the arguments, or empty, if arguments are positional.
    pub names: Vec<String>,
    /// The source file; empty if unknown.
    pub file: String,
    /// The line in the file, from 1; 0 if unknown.
    pub line: u32,
    /// The function; empty if unknown.
    pub routine: String,
}

/// A record's place in a stack of errors: ACS's `LogEntryWithStack`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stack {
    /// The stack's id.
    pub id: String,
    /// The place in the stack; 0 is the origin of the error.
    pub level: i32,
}

/// One log record: a superset of ACS's `LogEntry` (`loggingMI.xsd`) and of OpenTelemetry's
/// `LogRecord` (logs data model). Absent texts are empty.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record {
    /// The time of the event.
    pub time: Tai,
    /// The time when a collector first received the record.
    pub observed: Option<Tai>,
    /// The severity.
    pub level: Level,
    /// The logger's name, with slashes between its parts: `CONTROL/DV11/Mount`. ACS's
    /// SourceObject, OpenTelemetry's scope.
    pub logger: String,
    /// The formatted message. If it is set, it is shown instead of the template.
    pub text: Option<String>,
    /// The message's arguments, in the order of the template.
    pub arguments: Vec<Value>,
    /// The call site.
    pub site: Site,
    /// The machine.
    pub host: String,
    /// The process: its name, then a colon and its number if known.
    pub process: String,
    /// The thread.
    pub thread: String,
    /// The task of the process.
    pub context: String,
    /// The readers that the record is meant for.
    pub audiences: Audiences,
    /// The array of antennas.
    pub array: String,
    /// The antenna.
    pub antenna: String,
    /// The error, as a place in a stack.
    pub stack: Option<Stack>,
    /// The id of a declared log event: ACS's LogId, OpenTelemetry's EventName.
    pub log_id: String,
    /// The address of further information.
    pub uri: String,
    /// The trace (W3C Trace Context).
    pub trace: Option<TraceId>,
    /// The span in the trace.
    pub span: Option<[u8; 8]>,
    /// The trace's flags.
    pub flags: u8,
    /// Typed values by name: ACS's Data, OpenTelemetry's attributes.
    pub data: Vec<(String, Value)>,
    /// The producer's name on the bus, or the sender's at an endpoint.
    pub producer: String,
    /// The record's number among its producer's in the topic, from 1.
    pub sequence: u64,
}

impl Record {
    /// A record with a logger and a message.
    #[must_use]
    pub fn new(time: Tai, level: Level, logger: &str, text: &str) -> Self {
        Self {
            time,
            level,
            logger: logger.to_owned(),
            text: Some(text.to_owned()),
            ..Self::default()
        }
    }

    /// The formatted message.
    #[must_use]
    pub fn message(&self) -> String {
        match &self.text {
            Some(text) => text.clone(),
            None => crate::template::fill(&self.site, &self.arguments),
        }
    }
}
