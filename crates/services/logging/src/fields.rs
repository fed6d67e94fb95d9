//! The fields of a record, in one table: their names and positions in every format.
//!
//! The packet's body, predicates, the archive's index, JSON, CSV, ACS's XML, OTLP, syslog, Parquet
//! and Python's `extra` follow the table. To add a text field, add a member to [`Record`] and a
//! row to the table, with the next free tag from [`FIRST_SKIPPED_TAG`] on and the next free index
//! number. Tags, index numbers and names are part of formats and never change.
//!
//! [`FIRST_SKIPPED_TAG`]: crate::body::FIRST_SKIPPED_TAG

use std::borrow::Cow;

use helio_core::Tai;

use crate::formats::utc::{self, Digits};
use crate::record::Record;

/// Where a packet stores a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// In the record's entry.
    Logger,
    /// In the table of origins.
    Origin,
    /// In the table of call sites.
    Site,
    /// In the body, under this tag.
    Body(u8),
    /// Computed from other parts of the record.
    Derived,
}

use Position::{Body, Derived, Logger, Origin, Site};

struct Row {
    name: &'static str,
    predicate: &'static str,
    position: Position,
    index: u8,
    acs: &'static str,
    otlp: Option<&'static str>,
}

macro_rules! text_fields {
    (@member $record:ident []) => { None };
    (@member $record:ident [$($path:tt)+]) => { Some(&$record.$($path)+) };
    (@member_mut $record:ident []) => { None };
    (@member_mut $record:ident [$($path:tt)+]) => { Some(&mut $record.$($path)+) };
    ($($(#[$doc:meta])* $field:ident $path:tt
        $name:literal $predicate:literal $position:expr, $index:literal $acs:literal $otlp:expr;)+
    ) => {
        /// A field of a record that is a text, or is shown as one. An empty text is absent.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum TextField {
            $($(#[$doc])* $field,)+
        }

        impl TextField {
            /// All of them, in the order of a table's columns.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$field),+];

            const fn row(self) -> Row {
                match self {
                    $(Self::$field => Row {
                        name: $name,
                        predicate: $predicate,
                        position: $position,
                        index: $index,
                        acs: $acs,
                        otlp: $otlp,
                    },)+
                }
            }

            /// The record's member; none for a derived field.
            pub fn member(self, record: &Record) -> Option<&String> {
                match self {
                    $(Self::$field => text_fields!(@member record $path),)+
                }
            }

            /// The record's member, to be set; none for a derived field.
            pub fn member_mut(self, record: &mut Record) -> Option<&mut String> {
                match self {
                    $(Self::$field => text_fields!(@member_mut record $path),)+
                }
            }
        }
    };
}

text_fields! {
    // Variant [member of Record]
    //     name, name in predicates, position in a packet, kind in the archive's index,
    //     attribute in ACS's XML, OTLP's attribute of a log record
    /// The logger's name.
    Logger [logger]
        "logger" "logger" Logger, 3 "SourceObject" None;
    /// The formatted message.
    Message []
        "message" "message" Derived, 1 "" None;
    /// The machine.
    Host [host]
        "host" "host" Origin, 4 "Host" None;
    /// The process.
    Process [process]
        "process" "process" Origin, 5 "Process" None;
    /// The thread.
    Thread [thread]
        "thread" "thread" Body(4), 9 "Thread" Some("thread.name");
    /// The task of the process.
    Context [context]
        "context" "context" Body(5), 10 "Context" Some("helio.context");
    /// The source file.
    File [site.file]
        "file" "file" Site, 7 "File" Some("code.file.path");
    /// The function.
    Routine [site.routine]
        "routine" "routine" Site, 8 "Routine" Some("code.function.name");
    /// The array of antennas.
    Array [array]
        "array" "array" Body(6), 11 "Array" Some("helio.array");
    /// The antenna.
    Antenna [antenna]
        "antenna" "antenna" Body(7), 12 "Antenna" Some("helio.antenna");
    /// The id of the error's stack.
    Stack []
        "stack_id" "stack" Derived, 13 "StackId" None;
    /// The id of a declared log event.
    LogId [log_id]
        "log_id" "log_id" Body(9), 14 "LogId" None;
    /// The address of further information.
    Uri [uri]
        "uri" "uri" Body(10), 15 "Uri" Some("helio.uri");
    /// The trace, in hexadecimal digits.
    Trace []
        "trace_id" "trace" Derived, 16 "TraceId" None;
    /// The span in the trace, in hexadecimal digits.
    Span []
        "span_id" "span" Derived, 17 "SpanId" None;
    /// The producer's name on the bus, or the sender's at an endpoint.
    Producer [producer]
        "producer" "producer" Origin, 6 "Producer" None;
}

/// The fields by their tags in a body.
const BY_TAG: [Option<TextField>; 256] = {
    let mut fields = [None; 256];
    let mut place = 0;
    while place < TextField::ALL.len() {
        if let Body(tag) = TextField::ALL[place].position() {
            fields[tag as usize] = Some(TextField::ALL[place]);
        }
        place += 1;
    }
    fields
};

impl TextField {
    /// The name in JSON, CSV, syslog, Parquet and Python's `extra`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    pub(crate) const fn predicate_name(self) -> &'static str {
        self.row().predicate
    }

    pub(crate) const fn position(self) -> Position {
        self.row().position
    }

    /// The number of its kind of terms in the archive's index.
    pub(crate) const fn index_number(self) -> u8 {
        self.row().index
    }

    pub(crate) const fn acs_name(self) -> &'static str {
        self.row().acs
    }

    /// The name as an attribute of OTLP's log record; none if OTLP has another place for it.
    #[must_use]
    pub const fn otlp_name(self) -> Option<&'static str> {
        self.row().otlp
    }

    /// Whether the field belongs to the call site.
    #[must_use]
    pub fn is_of_site(self) -> bool {
        self.position() == Site
    }

    /// Whether the field is stored in a record's body.
    #[must_use]
    pub fn is_in_body(self) -> bool {
        matches!(self.position(), Body(_))
    }

    /// The field of a [name](Self::name).
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::find(|field| field.name() == name)
    }

    /// The field of a [tag](Position::Body) of the body.
    pub(crate) const fn of_tag(tag: u8) -> Option<Self> {
        BY_TAG[tag as usize]
    }

    pub(crate) fn of_acs_name(name: &str) -> Option<Self> {
        Self::find(|field| field.acs_name() == name)
    }

    /// The field of an [attribute](Self::otlp_name).
    #[must_use]
    pub fn of_otlp_name(name: &str) -> Option<Self> {
        Self::find(|field| field.otlp_name() == Some(name))
    }

    fn find(matches: impl Fn(&Self) -> bool) -> Option<Self> {
        Self::ALL.into_iter().find(matches)
    }

    /// The record's text in this field; empty if there is none.
    #[must_use]
    pub fn text(self, record: &Record) -> Cow<'_, str> {
        if let Some(text) = self.member(record) {
            return text.into();
        }
        match self {
            Self::Message => match &record.text {
                Some(text) => text.into(),
                None => record.message().into(),
            },
            Self::Stack => record.stack.as_ref().map_or("", |stack| &stack.id).into(),
            Self::Trace => record.trace.map_or_else(String::new, |trace| hex(&trace.0)).into(),
            Self::Span => record.span.map_or_else(String::new, |span| hex(&span)).into(),
            _ => "".into(),
        }
    }
}

/// A record's field as a column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordColumn {
    /// The time of the event.
    Time,
    /// The level.
    Level,
    /// A text.
    Text(TextField),
    /// The line in the source file.
    Line,
    /// The audiences.
    Audiences,
    /// The place in the stack of errors.
    StackLevel,
    /// The record's number among its producer's.
    Sequence,
    /// The time when a collector first received the record.
    Observed,
    /// The data pairs.
    Data,
}

impl RecordColumn {
    /// All columns, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        let texts = TextField::ALL.into_iter().flat_map(|field| {
            let next = match field {
                TextField::File => Some(Self::Line),
                TextField::Routine => Some(Self::Audiences),
                TextField::Stack => Some(Self::StackLevel),
                _ => None,
            };
            [Some(Self::Text(field)), next].into_iter().flatten()
        });
        let last = [Self::Sequence, Self::Observed, Self::Data];
        [Self::Time, Self::Level].into_iter().chain(texts).chain(last)
    }

    /// The column's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Level => "level",
            Self::Text(field) => field.name(),
            Self::Line => "line",
            Self::Audiences => "audiences",
            Self::StackLevel => "stack_level",
            Self::Sequence => "sequence",
            Self::Observed => "observed",
            Self::Data => "data",
        }
    }

    /// The record's value as a text; empty if there is none.
    #[must_use]
    pub fn text(self, record: &Record) -> Cow<'_, str> {
        let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
        match self {
            Self::Time => time(record.time),
            Self::Level => record.level.to_string(),
            Self::Text(field) => return field.text(record),
            Self::Line => count(record.site.line.into()),
            Self::Audiences if record.audiences.everyone => "*".to_owned(),
            Self::Audiences => record.audiences.names.join(" "),
            Self::StackLevel => {
                record.stack.as_ref().map(|stack| stack.level.to_string()).unwrap_or_default()
            }
            Self::Sequence => count(record.sequence),
            Self::Observed => record.observed.map(time).unwrap_or_default(),
            Self::Data => {
                let pairs = record.data.iter().map(|(name, value)| format!("{name}={value}"));
                pairs.collect::<Vec<_>>().join(" ")
            }
        }
        .into()
    }
}

fn time(time: Tai) -> String {
    let mut bytes = Vec::with_capacity(30);
    utc::put(&mut bytes, time, Digits::Nine);
    bytes.push(b'Z');
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_tags_and_index_numbers_are_distinct() {
        let all = TextField::ALL;
        let count = |values: Vec<String>| values.into_iter().collect::<HashSet<_>>().len();
        assert_eq!(count(all.map(|field| field.name().to_owned()).to_vec()), all.len());
        assert_eq!(count(all.map(|field| field.predicate_name().to_owned()).to_vec()), all.len());
        assert_eq!(count(all.map(|field| field.index_number().to_string()).to_vec()), all.len());
        assert_eq!(count(all.map(|field| field.acs_name().to_owned()).to_vec()), all.len());
        for field in all {
            if let Body(tag) = field.position() {
                assert_eq!(TextField::of_tag(tag), Some(field));
            }
            if let Some(name) = field.otlp_name() {
                assert_eq!(TextField::of_otlp_name(name), Some(field));
            }
        }
    }

    #[test]
    fn members_are_set_and_read_under_their_field() {
        let mut record = Record::default();
        for field in TextField::ALL {
            let derived = field.position() == Derived;
            assert_eq!(field.member(&record).is_none(), derived);
            match field.member_mut(&mut record) {
                Some(member) => field.name().clone_into(member),
                None => assert!(derived),
            }
        }
        for field in TextField::ALL {
            let derived = field.position() == Derived;
            assert_eq!(field.text(&record), if derived { "" } else { field.name() });
        }
    }
}
