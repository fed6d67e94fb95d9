//! Apache Parquet: the records of a search as columns, for whoever computes with them.
//!
//! Columns and their types are in `docs/logging.md`; the format is that of parquet-format 2. Data
//! and audiences are a map and a list, as its logical types have them. What people read is kept:
//! templates and arguments are not, and data are texts; JSON lines lose nothing.

use std::io::Write;
use std::sync::Arc;

use helio_logging::Record;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// Records of a row group: they are in memory until it is written.
const ROWS: usize = 65_536;
/// Bytes of texts of a row group, about, whatever comes first.
const BYTES: usize = 64 << 20;

const SCHEMA: &str = "message log {
    required int64 time (timestamp(nanos, true));
    required int64 time_tai;
    optional int64 observed (timestamp(nanos, true));
    required int32 level (integer(8, false));
    required binary level_name (string);
    optional binary logger (string);
    required binary message (string);
    optional binary host (string);
    optional binary process (string);
    optional binary thread (string);
    optional binary context (string);
    optional binary file (string);
    optional int32 line;
    optional binary routine (string);
    optional binary array (string);
    optional binary antenna (string);
    optional binary stack_id (string);
    optional int32 stack_level;
    optional binary log_id (string);
    optional binary uri (string);
    optional binary trace_id (string);
    optional binary span_id (string);
    optional binary producer (string);
    required int64 sequence;
    required boolean everyone;
    required group audiences (list) {
        repeated group list { required binary element (string); }
    }
    required group data (map) {
        repeated group key_value {
            required binary key (string);
            required binary value (string);
        }
    }
}";

/// A column of one value a record, or none.
#[derive(Debug, Default)]
struct Plain<T> {
    values: Vec<T>,
    there: Vec<i16>,
}

impl<T> Plain<T> {
    fn push(&mut self, value: Option<T>) {
        self.there.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

/// A column of any number of values a record.
#[derive(Debug, Default)]
struct Many {
    values: Vec<ByteArray>,
    there: Vec<i16>,
    again: Vec<i16>,
}

impl Many {
    fn extend(&mut self, values: impl Iterator<Item = ByteArray>) {
        let before = self.values.len();
        self.values.extend(values);
        let added = self.values.len() - before;
        self.there.extend(std::iter::repeat_n(i16::from(added > 0), added.max(1)));
        self.again.push(0);
        self.again.extend(std::iter::repeat_n(1, added.saturating_sub(1)));
    }
}

const TEXTS: usize = 17;
const LONGS: usize = 4;
const INTS: usize = 3;

/// Records as a Parquet file.
///
/// ```
/// use helio_core::Tai;
/// use helio_log_archive::Table;
/// use helio_logging::{Level, Record};
///
/// let mut table = Table::new(Vec::new())?;
/// table.add(&Record::new(Tai::default(), Level::INFO, "DOME", "open"))?;
/// let bytes = table.finish()?;
/// assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Table<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: usize,
    bytes: usize,
    texts: [Plain<ByteArray>; TEXTS],
    longs: [Plain<i64>; LONGS],
    ints: [Plain<i32>; INTS],
    everyone: Vec<bool>,
    audiences: Many,
    names: Many,
    values: Many,
}

fn failed(error: ParquetError) -> std::io::Error {
    std::io::Error::other(error)
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl<W: Write + Send> Table<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of what is written into.
    pub fn new(out: W) -> std::io::Result<Self> {
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
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
            texts: std::array::from_fn(|_| Plain { values: Vec::new(), there: Vec::new() }),
            longs: Default::default(),
            ints: Default::default(),
            everyone: Vec::new(),
            audiences: Many::default(),
            names: Many::default(),
            values: Many::default(),
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Those of what is written into.
    pub fn add(&mut self, record: &Record) -> std::io::Result<()> {
        let message = record.message();
        let (site, stack) = (&record.site, record.stack.as_ref());
        let trace = record.trace.map_or_else(String::new, |trace| hex(&trace.0));
        let span = record.span.map_or_else(String::new, |span| hex(&span));
        let texts = [
            record.level.name(),
            &record.logger,
            &message,
            &record.host,
            &record.process,
            &record.thread,
            &record.context,
            &site.file,
            &site.routine,
            &record.array,
            &record.antenna,
            stack.map_or("", |stack| &stack.id),
            &record.log_id,
            &record.uri,
            &trace,
            &span,
            &record.producer,
        ];
        // What is required is there, also where it is empty.
        for (place, (column, shown)) in self.texts.iter_mut().zip(texts).enumerate() {
            self.bytes += shown.len();
            column.push(Some(shown).filter(|shown| place == 2 || !shown.is_empty()).map(text));
        }
        let longs = [
            Some(record.time.unix_nanos()),
            Some(record.time.nanos()),
            record.observed.map(|time| time.unix_nanos()),
            Some(record.sequence.cast_signed()),
        ];
        self.longs.iter_mut().zip(longs).for_each(|(column, value)| column.push(value));
        let line = Some(site.line.cast_signed()).filter(|line| *line != 0);
        let ints = [Some(record.level.number().into()), line, stack.map(|stack| stack.level)];
        self.ints.iter_mut().zip(ints).for_each(|(column, value)| column.push(value));
        self.everyone.push(record.audiences.everyone);
        self.audiences.extend(record.audiences.names.iter().map(|name| text(name)));
        self.names.extend(record.data.iter().map(|(name, _)| text(name)));
        let shown: Vec<_> = record.data.iter().map(|(_, value)| value.to_string()).collect();
        self.bytes += shown.iter().map(String::len).sum::<usize>();
        self.values.extend(shown.iter().map(|shown| text(shown)));
        self.rows += 1;
        if self.rows >= ROWS || self.bytes >= BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes a row group, its columns in the order of the schema.
    fn flush(&mut self) -> std::io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let Self { writer, texts, longs, ints, everyone, audiences, names, values, .. } = self;
        let mut group = writer.next_row_group().map_err(failed)?;
        let mut texts = texts.iter_mut();
        let mut next_text = |group: &mut _| match texts.next() {
            Some(column) => put::<ByteArrayType, W>(group, column),
            None => Ok(()),
        };
        let [time, tai, observed, sequence] = longs;
        let [level, line, stack_level] = ints;
        put::<Int64Type, W>(&mut group, time)?;
        put::<Int64Type, W>(&mut group, tai)?;
        put::<Int64Type, W>(&mut group, observed)?;
        put::<Int32Type, W>(&mut group, level)?;
        (0..8).try_for_each(|_| next_text(&mut group))?;
        put::<Int32Type, W>(&mut group, line)?;
        (8..12).try_for_each(|_| next_text(&mut group))?;
        put::<Int32Type, W>(&mut group, stack_level)?;
        (12..17).try_for_each(|_| next_text(&mut group))?;
        put::<Int64Type, W>(&mut group, sequence)?;
        let there = vec![1; everyone.len()];
        let mut everyone = Plain { values: std::mem::take(everyone), there };
        put::<BoolType, W>(&mut group, &mut everyone)?;
        for column in [audiences, names, values] {
            let Many { values, there, again } = std::mem::take(column);
            column_of::<ByteArrayType, W>(&mut group, &values, (&there, Some(&again)))?;
        }
        group.close().map_err(failed)?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    /// Ends the file, and gives what it was written into.
    ///
    /// # Errors
    /// Those of what is written into.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.flush()?;
        self.writer.into_inner().map_err(failed)
    }
}

fn put<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &mut Plain<T::T>,
) -> std::io::Result<()> {
    column_of::<T, W>(group, &column.values, (&column.there, None))?;
    column.values.clear();
    column.there.clear();
    Ok(())
}

fn column_of<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    (there, again): (&[i16], Option<&[i16]>),
) -> std::io::Result<()> {
    let column = group.next_column().map_err(failed)?;
    let mut column = column.ok_or_else(|| std::io::Error::other("the schema has fewer columns"))?;
    // A required column takes no levels: all of it is there.
    column.typed::<T>().write_batch(values, Some(there), again).map_err(failed)?;
    column.close().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::Tai;
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
        let mut table = Table::new(Vec::new()).unwrap();
        [&whole, &bare, &whole].into_iter().for_each(|record| table.add(record).unwrap());
        let bytes = bytes::Bytes::from(table.finish().unwrap());
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
        let mut table = Table::new(Vec::new()).unwrap();
        (0..ROWS + 1).for_each(|_| table.add(&record).unwrap());
        let bytes = bytes::Bytes::from(table.finish().unwrap());
        let reader = SerializedFileReader::new(bytes).unwrap();
        let groups = reader.metadata().row_groups();
        let rows: Vec<_> = groups.iter().map(|group| group.num_rows()).collect();
        assert_eq!(rows, [ROWS as i64, 1]);
    }
}
