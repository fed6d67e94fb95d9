//! CSV: selected columns of records for spreadsheets and scripts, output only (RFC 4180).
//!
//! A header line, then one line per record. Lines end with CR LF. A field with a comma, a quote or
//! a line break is quoted (RFC 4180, section 2). Values are flattened: data are texts as people
//! read them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::fields::RecordColumn;
use crate::record::Record;

/// The contents of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// A field of the record.
    Field(RecordColumn),
    /// The data pairs of this name, separated by line breaks: `data.NAME`.
    Data(String),
}

impl Column {
    /// The columns of all fields.
    pub fn fields() -> impl Iterator<Item = Self> {
        RecordColumn::all().map(Self::Field)
    }
}

/// The name of an unknown column.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown column {0:?}; the columns are {list}, and data.NAME", list = names())]
pub struct ColumnError(pub String);

fn names() -> String {
    RecordColumn::all().map(RecordColumn::name).collect::<Vec<_>>().join(", ")
}

impl FromStr for Column {
    type Err = ColumnError;

    fn from_str(text: &str) -> Result<Self, ColumnError> {
        if let Some(name) = text.strip_prefix("data.") {
            return Ok(Self::Data(name.to_owned()));
        }
        let column = RecordColumn::all().find(|column| column.name() == text);
        column.map(Self::Field).ok_or_else(|| ColumnError(text.to_owned()))
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(column) => f.write_str(column.name()),
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

fn put_line<S: AsRef<str>>(into: &mut Vec<u8>, fields: impl Iterator<Item = S>) {
    for (place, field) in fields.enumerate() {
        let field = field.as_ref();
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

fn field<'a>(record: &'a Record, column: &Column) -> Cow<'a, str> {
    match column {
        Column::Field(column) => column.text(record),
        Column::Data(name) => {
            let named = record.data.iter().filter(|(known, _)| known == name);
            named.map(|(_, value)| value.to_string()).collect::<Vec<_>>().join("\n").into()
        }
    }
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
            let mut columns: Vec<_> = Column::fields().collect();
            columns.extend(record.data.iter().map(|(name, _)| Column::Data(name.clone())));
            let mut bytes = Vec::new();
            write_header(&columns, &mut bytes);
            write(&record, &columns, &mut bytes);
            let lines = fields(std::str::from_utf8(&bytes).unwrap());
            prop_assert_eq!(lines.len(), 2);
            for ((column, name), text) in columns.iter().zip(&lines[0]).zip(&lines[1]) {
                prop_assert_eq!(&column.to_string(), name);
                prop_assert_eq!(&*field(&record, column), text);
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
        assert!(
            told.starts_with("unknown column \"colour\"; the columns are time, level"),
            "{told}"
        );
    }
}
