//! A record as a value, for tools, formats and tests.

use helio_core::{Tai, TraceId};

use crate::level::Level;
use crate::value::Value;

/// Who a record is for.
///
/// Audiences are names, so that sites can have their own; ACS's are in [`audience`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audiences {
    /// All of them, whatever their names.
    pub everyone: bool,
    /// These.
    pub names: Vec<String>,
}

/// ACS's audiences (module `log_audience` of its `acscommon.idl`).
pub mod audience {
    /// Who runs the observatory.
    pub const OPERATOR: &str = "Operator";
    /// Who writes the software.
    pub const DEVELOPER: &str = "Developer";
    /// Who runs the machines.
    pub const SYSADMIN: &str = "Sysadmin";
    /// Who runs the databases.
    pub const DBA: &str = "DBA";
    /// Who reads what was observed: the science log.
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

    /// Whether it is for nobody in particular.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.everyone && self.names.is_empty()
    }
}

/// How the places of arguments are written in a message's template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Style {
    /// `{}` and `{name}`, `{{` for a brace: Rust's and Python's `str.format`.
    #[default]
    Braces,
    /// `%s`, `%d`, `%.3f`, `%%` for a per cent: C's `printf` and Python's `logging`.
    Percent,
}

/// A place in a program where records come from: registered once, named by each of its records.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Site {
    /// The message with places for its arguments; empty where it has none.
    pub template: String,
    /// How these are written.
    pub style: Style,
    /// The names of the arguments, in order, each without a line break; fewer than the arguments,
    /// or none, where they go by their places.
    pub names: Vec<String>,
    /// The source file; empty where it is not known.
    pub file: String,
    /// The line in it, from 1; 0 where it is not known.
    pub line: u32,
    /// The function; empty where it is not known.
    pub routine: String,
}

/// The place in a stack of errors that a record is about, as ACS's `LogEntryWithStack` has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stack {
    /// The stack.
    pub id: String,
    /// The place in it: 0 is where the error came from.
    pub level: i32,
}

/// One log record: a superset of ACS's `LogEntry` (`loggingMI.xsd`) and of OpenTelemetry's
/// `LogRecord` (logs data model). Texts that are not there are empty.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record {
    /// When it happened.
    pub time: Tai,
    /// When it was first seen by who collects, where that is somebody else.
    pub observed: Option<Tai>,
    /// How grave it is.
    pub level: Level,
    /// The logger's name, with slashes between its parts: `CONTROL/DV11/Mount`. ACS's
    /// SourceObject, OpenTelemetry's scope.
    pub logger: String,
    /// The message as people read it, where it was made into that already: it is shown and not
    /// the template.
    pub text: Option<String>,
    /// The message's arguments, in the order of the template.
    pub arguments: Vec<Value>,
    /// Where it comes from.
    pub site: Site,
    /// The machine.
    pub host: String,
    /// The process: its name, and its number behind a colon where it has one.
    pub process: String,
    /// The thread.
    pub thread: String,
    /// What the process was busy with.
    pub context: String,
    /// Who it is for.
    pub audiences: Audiences,
    /// The array of antennas.
    pub array: String,
    /// The antenna.
    pub antenna: String,
    /// The error that it is about.
    pub stack: Option<Stack>,
    /// The id of a declared log event: ACS's LogId, OpenTelemetry's EventName.
    pub log_id: String,
    /// Where more is to be found.
    pub uri: String,
    /// The trace (W3C Trace Context).
    pub trace: Option<TraceId>,
    /// The span in it.
    pub span: Option<[u8; 8]>,
    /// The trace's flags.
    pub flags: u8,
    /// Typed values by name: ACS's Data, OpenTelemetry's attributes.
    pub data: Vec<(String, Value)>,
    /// Who sent it: the producer's name on the bus, or the sender's at an edge.
    pub producer: String,
    /// Its number among those of its producer in its topic, from 1.
    pub sequence: u64,
}

impl Record {
    /// A record of a logger with a text, and nothing else.
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

    /// The message as people read it.
    #[must_use]
    pub fn message(&self) -> String {
        match &self.text {
            Some(text) => text.clone(),
            None => crate::template::fill(&self.site, &self.arguments),
        }
    }
}
