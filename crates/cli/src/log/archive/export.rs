//! `helio log export`: writes the records of an archive to a file of another format.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use helio_log_archive::{ParquetWriter, Search, SearchItem};
use helio_logging::Record;
use helio_logging::formats::csv::{self, Column};
use helio_logging::formats::{acs_xml, json};
use serde_json::json;

use crate::args::archive::{ExportArgs, FormatArg};
use crate::error::{CliError, CliResult};
use crate::out::{Out, Progress};
use crate::stop::Stop;
use crate::units::human_count;

/// The size of a write.
const BUFFER_BYTES: usize = 1 << 20;

/// Runs `helio log export`.
pub(crate) fn run(args: &ExportArgs, stop: &Stop) -> CliResult {
    let search = super::open(&args.wanted)?;
    let part = part(&args.out);
    let failed = |path: &Path, error: &std::io::Error| CliError::file(path, error);
    let file = File::create(&part).map_err(|error| failed(&part, &error))?;
    let written = write(args.format, search, file, stop);
    let (records, unread) = written.inspect_err(|_| _ = std::fs::remove_file(&part))?;
    std::fs::rename(&part, &args.out).map_err(|error| failed(&args.out, &error))?;
    if args.output.json {
        let mut out = Out::new();
        out.json(&json!({"records": records, "file": args.out}))?;
        out.flush()?;
    } else {
        eprintln!("helio: {} records were written", human_count(records));
    }
    super::whole(unread)
}

/// The name of the incomplete file.
fn part(out: &Path) -> PathBuf {
    let mut name = OsString::from(out);
    name.push(".part");
    name.into()
}

/// Writes all records; returns the numbers of written and unreadable ones.
fn write(format: FormatArg, search: Search, file: File, stop: &Stop) -> CliResult<(u64, u64)> {
    let failed = |error: std::io::Error| CliError::Failure(format!("the file: {error}"));
    let out = BufWriter::with_capacity(BUFFER_BYTES, file);
    let mut writer = Writer::begin(format, out).map_err(failed)?;
    let (mut records, mut unread, mut progress) = (0, 0, Progress::new());
    for found in search {
        stop.check()?;
        let SearchItem::Record(record) = &found else {
            super::tell(&found, &mut unread);
            continue;
        };
        writer.add(record).map_err(failed)?;
        records += 1;
        progress.show(|| format!("{} records", human_count(records)));
    }
    let out = writer.end().map_err(failed)?;
    out.into_inner().map_err(|error| failed(error.into_error()))?.sync_data().map_err(failed)?;
    Ok((records, unread))
}

enum Writer<W: Write + Send> {
    Text { text: Text, bytes: Vec<u8>, out: W },
    Table(Box<ParquetWriter<W>>),
}

/// A format that is written record by record.
enum Text {
    Json,
    Xml,
    Csv(Vec<Column>),
}

impl<W: Write + Send> Writer<W> {
    fn begin(format: FormatArg, mut out: W) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let text = match format {
            FormatArg::Jsonl => Text::Json,
            FormatArg::Xml => {
                bytes.extend_from_slice(acs_xml::DOCUMENT_START.as_bytes());
                Text::Xml
            }
            FormatArg::Csv => {
                let columns: Vec<_> = Column::fields().collect();
                csv::write_header(&columns, &mut bytes);
                Text::Csv(columns)
            }
            FormatArg::Parquet => return Ok(Self::Table(Box::new(ParquetWriter::new(out)?))),
        };
        out.write_all(&bytes)?;
        Ok(Self::Text { text, bytes, out })
    }

    fn add(&mut self, record: &Record) -> io::Result<()> {
        let (text, bytes, out) = match self {
            Self::Table(table) => return table.add(record),
            Self::Text { text, bytes, out } => (text, bytes, out),
        };
        bytes.clear();
        match text {
            Text::Json => json::write(record, bytes),
            Text::Xml => acs_xml::write(record, bytes),
            Text::Csv(columns) => csv::write(record, columns, bytes),
        }
        out.write_all(bytes)
    }

    fn end(self) -> io::Result<W> {
        match self {
            Self::Table(table) => table.finish(),
            Self::Text { text, mut out, .. } => {
                if let Text::Xml = text {
                    out.write_all(acs_xml::DOCUMENT_END.as_bytes())?;
                }
                Ok(out)
            }
        }
    }
}
