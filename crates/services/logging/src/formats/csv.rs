//! CSV: selected columns of records for spreadsheets and scripts, output only (RFC 4180).
//!
//! A header line, then one line per record. Lines end with CR LF. A field with a comma, a quote or
//! a line break is quoted (RFC 4180, section 2). Values are flattened: data are texts as people
//! read them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::json::hex;
use super::utc;
use crate::record::Record;

/// A column: what of a record stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// One of [`NAMES`].
    Field(&'static str),
    /// The data pairs of this name, with a line break between them: `data.NAME`.
    Data(String),
}

/// The columns that every record has.
pub const NAMES: [&str; 24] = [
    "time",
    "level",
    "logger",
    "message",
    "host",
    "process",
    "thread",
    "context",
    "file",
    "line",
    "routine",
    "audiences",
    "array",
    "antenna",
    "stack_id",
    "stack_level",
    "log_id",
    "uri",
    "trace_id",
    "span_id",
    "producer",
    "sequence",
    "observed",
    "data",
];

/// A name that is no column's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no column; the columns are {list}, and data.NAME", list = NAMES.join(", "))]
pub struct ColumnError(pub String);

impl FromStr for Column {
    type Err = ColumnError;

    fn from_str(text: &str) -> Result<Self, ColumnError> {
        if let Some(name) = text.strip_prefix("data.") {
            return Ok(Self::Data(name.to_owned()));
        }
        let name = NAMES.into_iter().find(|name| *name == text);
        name.map(Self::Field).ok_or_else(|| ColumnError(text.to_owned()))
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => f.write_str(name),
            Self::Data(name) => write!(f, "data.{name}"),
        }
    }
}

/// Adds the header line.
pub fn write_header(columns: &[Column], into: &mut Vec<u8>) {
    put_line(into, columns.iter().map(Column::to_string));
}

/// Adds a record's line.
pub fn write(record: &Record, columns: &[Column], into: &mut Vec<u8>) {
    put_line(into, columns.iter().map(|column| field(record, column)));
}

fn put_line(into: &mut Vec<u8>, fields: impl Iterator<Item = String>) {
    for (place, field) in fields.enumerate() {
        if place > 0 {
            into.push(b',');
        }
        if field.contains([',', '"', '\r', '\n']) {
            into.extend_from_slice(format!("\"{}\"", field.replace('"', "\"\"")).as_bytes());
        } else {
            into.extend_from_slice(field.as_bytes());
        }
    }
    into.extend_from_slice(b"\r\n");
}

fn field(record: &Record, column: &Column) -> String {
    let name = match column {
        Column::Field(name) => *name,
        Column::Data(name) => {
            let named = record.data.iter().filter(|(known, _)| known == name);
            return named.map(|(_, value)| value.to_string()).collect::<Vec<_>>().join("\n");
        }
    };
    let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
    let stack = record.stack.as_ref();
    match name {
        "time" => time(record.time),
        "observed" => record.observed.map(time).unwrap_or_default(),
        "level" => record.level.to_string(),
        "logger" => record.logger.clone(),
        "message" => record.message(),
        "host" => record.host.clone(),
        "process" => record.process.clone(),
        "thread" => record.thread.clone(),
        "context" => record.context.clone(),
        "file" => record.site.file.clone(),
        "line" => count(record.site.line.into()),
        "routine" => record.site.routine.clone(),
        "audiences" if record.audiences.everyone => "*".to_owned(),
        "audiences" => record.audiences.names.join(" "),
        "array" => record.array.clone(),
        "antenna" => record.antenna.clone(),
        "stack_id" => stack.map(|stack| stack.id.clone()).unwrap_or_default(),
        "stack_level" => stack.map(|stack| stack.level.to_string()).unwrap_or_default(),
        "log_id" => record.log_id.clone(),
        "uri" => record.uri.clone(),
        "trace_id" => record.trace.map(|trace| hex(&trace.0)).unwrap_or_default(),
        "span_id" => record.span.map(|span| hex(&span)).unwrap_or_default(),
        "producer" => record.producer.clone(),
        "sequence" => count(record.sequence),
        _ => data(record),
    }
}

fn time(time: helio_core::Tai) -> String {
    let mut bytes = Vec::with_capacity(30);
    utc::put(&mut bytes, time, utc::Digits::Nine);
    bytes.push(b'Z');
    String::from_utf8_lossy(&bytes).into_owned()
}

fn data(record: &Record) -> String {
    let pairs = record.data.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::tests::any_records;
    use proptest::prelude::*;

    fn columns(names: &[&str]) -> Vec<Column> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    /// The fields of lines, as RFC 4180 reads them.
    fn fields(text: &str) -> Vec<Vec<String>> {
        let (mut lines, mut line, mut field) = (Vec::new(), Vec::new(), String::new());
        let (mut quoted, mut chars) = (false, text.chars().peekable());
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => line.push(std::mem::take(&mut field)),
                '\r' if !quoted && chars.next() == Some('\n') => {
                    line.push(std::mem::take(&mut field));
                    lines.push(std::mem::take(&mut line));
                }
                c => field.push(c),
            }
        }
        assert!(field.is_empty() && line.is_empty() && !quoted);
        lines
    }

    proptest! {
        #[test]
        fn every_field_is_read_as_it_was(record in any_records()) {
            let mut columns = columns(&NAMES);
            columns.extend(record.data.iter().map(|(name, _)| Column::Data(name.clone())));
            let mut bytes = Vec::new();
            write_header(&columns, &mut bytes);
            write(&record, &columns, &mut bytes);
            let lines = fields(std::str::from_utf8(&bytes).unwrap());
            prop_assert_eq!(lines.len(), 2);
            for ((column, name), text) in columns.iter().zip(&lines[0]).zip(&lines[1]) {
                prop_assert_eq!(&column.to_string(), name);
                prop_assert_eq!(&field(&record, column), text);
            }
        }
    }

    #[test]
    fn lines_are_those_of_the_rfc() {
        let mut record = crate::formats::tests::mount();
        record.text = Some("off, by \"3\"\nsteps".to_owned());
        let columns = columns(&["time", "level", "message", "data.encoder", "stack_id", "line"]);
        let mut bytes = Vec::new();
        write_header(&columns, &mut bytes);
        write(&record, &columns, &mut bytes);
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "time,level,message,data.encoder,stack_id,line\r\n2026-09-21T14:13:20.123456789Z,ERROR,\
             \"off, by \"\"3\"\"\nsteps\",{a: true},dv11-99,120\r\n"
        );
    }

    #[test]
    fn other_names_are_told() {
        let told = "colour".parse::<Column>().unwrap_err().to_string();
        assert!(told.starts_with("\"colour\" is no column; the columns are time, level"), "{told}");
    }
}
