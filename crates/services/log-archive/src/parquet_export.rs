//! Apache Parquet: the records of a search as columns, for programs that compute with them.
//!
//! The columns and their types are in `docs/logging.md`; the format is that of parquet-format 2.
//! Data and audiences are a map and a list, as Parquet's logical types define them. Messages are
//! written without their templates and arguments, and data as texts; only JSON lines lose nothing.

use std::io::Write;
use std::sync::Arc;

use helio_core::Tai;
use helio_logging::{Record, RecordColumn, TextField};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// The most records of a row group, which is in memory until it is written.
const ROW_GROUP_RECORDS: usize = 65_536;
/// The most bytes of texts in a row group, about.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// The columns behind those of one value a record.
const REPEATED_COLUMNS: &str = "required group audiences (list) {
        repeated group list { required binary element (string); }
    }
    required group data (map) {
        repeated group key_value {
            required binary key (string);
            required binary value (string);
        }
    }";

/// Values of a column that has one value a record, or none.
#[derive(Debug)]
struct Optional<T> {
    values: Vec<T>,
    definition_levels: Vec<i16>,
}

impl<T> Optional<T> {
    const fn new() -> Self {
        Self { values: Vec::new(), definition_levels: Vec::new() }
    }

    fn push(&mut self, value: Option<T>) {
        self.definition_levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

/// Values of a column that has any number of values a record.
#[derive(Debug, Default)]
struct Repeated {
    values: Vec<ByteArray>,
    definition_levels: Vec<i16>,
    repetition_levels: Vec<i16>,
}

impl Repeated {
    fn extend(&mut self, values: impl Iterator<Item = ByteArray>) {
        let before = self.values.len();
        self.values.extend(values);
        let added = self.values.len() - before;
        let defined = i16::from(added > 0);
        self.definition_levels.extend(std::iter::repeat_n(defined, added.max(1)));
        self.repetition_levels.push(0);
        self.repetition_levels.extend(std::iter::repeat_n(1, added.saturating_sub(1)));
    }
}

/// A column of one value a record: how its values are read from a record, and the values.
enum Column {
    Text(RecordColumn, Optional<ByteArray>),
    Long(fn(&Record) -> Option<i64>, Optional<i64>),
    Int(fn(&Record) -> Option<i32>, Optional<i32>),
    Bool(fn(&Record) -> Option<bool>, Optional<bool>),
}

fn long(read: fn(&Record) -> Option<i64>) -> Column {
    Column::Long(read, Optional::new())
}

fn int(read: fn(&Record) -> Option<i32>) -> Column {
    Column::Int(read, Optional::new())
}

fn text_column(column: RecordColumn) -> Column {
    Column::Text(column, Optional::new())
}

/// The columns of one value a record, each with its declaration in the schema.
fn columns() -> Vec<(String, Column)> {
    let mut all = Vec::new();
    let mut add = |declaration: &str, column| all.push((declaration.to_owned(), column));
    let time = long(|record| Some(record.time.unix_nanos()));
    add("required int64 time (timestamp(nanos, true))", time);
    add("required int64 time_tai", long(|record| Some(record.time.nanos())));
    let observed = long(|record| record.observed.map(Tai::unix_nanos));
    add("optional int64 observed (timestamp(nanos, true))", observed);
    let level = int(|record| Some(record.level.number().into()));
    add("required int32 level (integer(8, false))", level);
    add("required binary level_name (string)", text_column(RecordColumn::Level));
    for column in RecordColumn::all() {
        let name = column.name();
        match column {
            RecordColumn::Text(TextField::Message) => {
                add(&format!("required binary {name} (string)"), text_column(column));
            }
            RecordColumn::Text(_) => {
                add(&format!("optional binary {name} (string)"), text_column(column));
            }
            RecordColumn::Line => {
                let line =
                    int(|record| Some(record.site.line.cast_signed()).filter(|line| *line != 0));
                add(&format!("optional int32 {name}"), line);
            }
            RecordColumn::StackLevel => {
                let level = int(|record| record.stack.as_ref().map(|stack| stack.level));
                add(&format!("optional int32 {name}"), level);
            }
            _ => {}
        }
    }
    add("required int64 sequence", long(|record| Some(record.sequence.cast_signed())));
    let everyone = Column::Bool(|record| Some(record.audiences.everyone), Optional::new());
    add("required boolean everyone", everyone);
    all
}

impl Column {
    /// Adds a record's value; returns the bytes of its text.
    fn push(&mut self, record: &Record) -> usize {
        match self {
            Self::Text(column, values) => {
                let shown = column.text(record);
                let required = *column == RecordColumn::Text(TextField::Message);
                values.push((required || !shown.is_empty()).then(|| text(&shown)));
                return shown.len();
            }
            Self::Long(read, values) => values.push(read(record)),
            Self::Int(read, values) => values.push(read(record)),
            Self::Bool(read, values) => values.push(read(record)),
        }
        0
    }

    fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> std::io::Result<()> {
        match self {
            Self::Text(_, values) => write_optional::<ByteArrayType, W>(group, values),
            Self::Long(_, values) => write_optional::<Int64Type, W>(group, values),
            Self::Int(_, values) => write_optional::<Int32Type, W>(group, values),
            Self::Bool(_, values) => write_optional::<BoolType, W>(group, values),
        }
    }
}

/// Writes records as a Parquet file.
///
/// ```
/// use helio_core::Tai;
/// use helio_log_archive::ParquetWriter;
/// use helio_logging::{Level, Record};
///
/// let mut writer = ParquetWriter::new(Vec::new())?;
/// writer.add(&Record::new(Tai::default(), Level::INFO, "DOME", "open"))?;
/// let bytes = writer.finish()?;
/// assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: usize,
    bytes: usize,
    columns: Vec<Column>,
    audiences: Repeated,
    names: Repeated,
    values: Repeated,
}

fn failed(error: ParquetError) -> std::io::Error {
    std::io::Error::other(error)
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(out: W) -> std::io::Result<Self> {
        let (declarations, columns): (Vec<_>, Vec<_>) = columns().into_iter().unzip();
        let schema = format!("message log {{ {}; {REPEATED_COLUMNS} }}", declarations.join("; "));
        let schema = Arc::new(parse_message_type(&schema).map_err(failed)?);
        let level = ZstdLevel::try_new(3).map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by("heliograph".to_owned())
            .build();
        let writer =
            SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(failed)?;
        Ok(Self {
            writer,
            rows: 0,
            bytes: 0,
            columns,
            audiences: Repeated::default(),
            names: Repeated::default(),
            values: Repeated::default(),
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn add(&mut self, record: &Record) -> std::io::Result<()> {
        self.bytes += self.columns.iter_mut().map(|column| column.push(record)).sum::<usize>();
        self.audiences.extend(record.audiences.names.iter().map(|name| text(name)));
        self.names.extend(record.data.iter().map(|(name, _)| text(name)));
        let shown: Vec<_> = record.data.iter().map(|(_, value)| value.to_string()).collect();
        self.bytes += shown.iter().map(String::len).sum::<usize>();
        self.values.extend(shown.iter().map(|shown| text(shown)));
        self.rows += 1;
        let full = self.rows >= ROW_GROUP_RECORDS || self.bytes >= ROW_GROUP_BYTES;
        if full { self.flush() } else { Ok(()) }
    }

    /// Writes a row group.
    fn flush(&mut self) -> std::io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let Self { writer, columns, audiences, names, values, .. } = self;
        let mut group = writer.next_row_group().map_err(failed)?;
        columns.iter_mut().try_for_each(|column| column.write(&mut group))?;
        for column in [audiences, names, values] {
            let Repeated { values, definition_levels, repetition_levels } = std::mem::take(column);
            let levels = Some(repetition_levels.as_slice());
            write_column::<ByteArrayType, W>(&mut group, &values, &definition_levels, levels)?;
        }
        group.close().map_err(failed)?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    /// Ends the file and returns what it was written to.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.flush()?;
        self.writer.into_inner().map_err(failed)
    }
}

fn write_optional<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &mut Optional<T::T>,
) -> std::io::Result<()> {
    write_column::<T, W>(group, &column.values, &column.definition_levels, None)?;
    column.values.clear();
    column.definition_levels.clear();
    Ok(())
}

fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    definition_levels: &[i16],
    repetition_levels: Option<&[i16]>,
) -> std::io::Result<()> {
    let column = group.next_column().map_err(failed)?;
    let mut column = column.ok_or_else(|| std::io::Error::other("the schema has fewer columns"))?;
    // A required column has no levels, and ignores these.
    let batch = column.typed::<T>();
    batch.write_batch(values, Some(definition_levels), repetition_levels).map_err(failed)?;
    column.close().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_logging::{Audiences, Level, Stack};
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;

    #[test]
    fn records_are_rows_and_what_is_not_there_is_null() {
        let time: Tai = "2026-11-21T03:00:00.123456789Z".parse().unwrap();
        let bare = Record::new(time, Level::INFO, "", "open");
        let mut whole = Record::new(time, Level::ERROR, "CONTROL/DV11", "");
        whole.text = None;
        whole.site.template = "axis {} is off".to_owned();
        whole.site.line = 120;
        whole.arguments = vec![2_i64.into()];
        whole.audiences = Audiences::of(["Operator", "SciLog"]);
        whole.stack = Some(Stack { id: "dv11-99".to_owned(), level: 1 });
        whole.data = vec![("encoder".to_owned(), 7_i64.into()), ("state".to_owned(), "on".into())];
        whole.sequence = 41;
        let mut writer = ParquetWriter::new(Vec::new()).unwrap();
        [&whole, &bare, &whole].into_iter().for_each(|record| writer.add(record).unwrap());
        let bytes = bytes::Bytes::from(writer.finish().unwrap());
        let reader = SerializedFileReader::new(bytes).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 3);
        let shown: Vec<_> = rows.iter().map(ToString::to_string).collect();
        assert_eq!(shown[0], shown[2]);
        assert_eq!(rows[0].get_string(6).unwrap(), "axis 2 is off");
        assert_eq!(rows[1].get_string(6).unwrap(), "open");
        assert_eq!(rows[0].get_long(1).unwrap(), time.nanos());
        for (name, there, missing) in [
            ("logger", "\"CONTROL/DV11\"", "null"),
            ("line", "120", "null"),
            ("stack_id", "\"dv11-99\"", "null"),
            ("sequence", "41", "0"),
            ("audiences", "[\"Operator\", \"SciLog\"]", "[]"),
            ("data", "{\"encoder\" -> \"7\", \"state\" -> \"on\"}", "{}"),
        ] {
            for (row, value) in [(0, there), (1, missing)] {
                let found = format!("{name}: {value}");
                assert!(shown[row].contains(&found), "{found} in {}", shown[row]);
            }
        }
    }

    #[test]
    fn row_groups_are_bounded() {
        let record = Record::new(Tai::default(), Level::INFO, "a", "b");
        let mut writer = ParquetWriter::new(Vec::new()).unwrap();
        (0..ROW_GROUP_RECORDS + 1).for_each(|_| writer.add(&record).unwrap());
        let bytes = bytes::Bytes::from(writer.finish().unwrap());
        let reader = SerializedFileReader::new(bytes).unwrap();
        let groups = reader.metadata().row_groups();
        let rows: Vec<_> = groups.iter().map(|group| group.num_rows()).collect();
        assert_eq!(rows, [ROW_GROUP_RECORDS as i64, 1]);
    }
}
