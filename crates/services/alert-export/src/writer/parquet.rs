//! Apache Parquet: columns of the packets, or of a filter's SELECT.
//!
//! Format: that of parquet-format 2 with Arrow's schema in its metadata, so that readers find
//! units, descriptions and time zones. History is a list of structs.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use helio_columns::{Decoder, Layout};
use helio_core::Schema;
use parquet::arrow::ArrowWriter;
use parquet::basic::ZstdLevel;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::{Chosen, Finished, Rows, Target, default_columns};
use crate::ExportError;
use crate::folder::PartFile;
use crate::matcher;
use crate::options::{Compression, ExportOptions, Format};

/// The most rows of a row group.
const ROW_GROUP_ROWS: usize = 65_536;
/// The bytes after which a row group is written; until then it is in memory.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// The file in the making.
pub(crate) struct ParquetFile {
    properties: WriterProperties,
    schemas: Vec<Schema>,
    layout: Layout,
    decoder: Decoder,
    open: Option<Open>,
    /// Files of columns of former schemas.
    done: Vec<Finished>,
    is_of_filter: bool,
}

struct Open {
    writer: ArrowWriter<SharedFile>,
    file: SharedFile,
    path: PathBuf,
    schema: SchemaRef,
    rows: Rows,
}

/// A file that is still ours after its footer is written: Arrow's writer does not return it.
#[derive(Clone)]
struct SharedFile(Arc<Mutex<PartFile>>);

impl io::Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

impl ParquetFile {
    pub(super) fn new(
        options: &ExportOptions,
        compression: Compression,
        schemas: &[Schema],
    ) -> Result<Self, ExportError> {
        let columns = match &options.columns {
            Some(columns) => columns.clone(),
            None => default_columns(schemas, options.stamps),
        };
        let layout = Layout::new(schemas, &columns)?;
        let compression = match compression {
            Compression::Zstd => {
                parquet::basic::Compression::ZSTD(ZstdLevel::try_new(3).map_err(|e| fault(&e))?)
            }
            _ => parquet::basic::Compression::UNCOMPRESSED,
        };
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by("heliograph".to_owned())
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .build();
        Ok(Self {
            properties,
            schemas: schemas.to_vec(),
            decoder: Decoder::new(&layout),
            layout,
            open: None,
            done: Vec::new(),
            is_of_filter: options.columns.is_none(),
        })
    }

    pub(super) fn takes_columns(&self) -> bool {
        self.is_of_filter
    }

    /// Writes alerts, or only checks them without a target.
    pub(super) fn write(
        &mut self,
        chosen: Chosen<'_>,
        target: Option<&mut Target<'_>>,
    ) -> Result<Vec<usize>, ExportError> {
        let Chosen { alerts, rows, columns } = chosen;
        for row in &rows {
            self.learn(alerts[*row].layout.schema())?;
        }
        let mut unreadable = BTreeSet::new();
        let (records, rows) = match columns {
            Some(columns) => (columns, rows),
            None => matcher::columns(&mut self.decoder, alerts, &rows, &mut unreadable)?,
        };
        if let Some(target) = target.filter(|_| !rows.is_empty()) {
            let open = self.start(records.schema(), target)?;
            rows.iter().for_each(|row| open.rows.add(&alerts[*row]));
            open.write(&records)?;
        }
        Ok(unreadable.into_iter().collect())
    }

    /// Reads a further schema, too. Its columns need another file.
    fn learn(&mut self, schema: &Schema) -> Result<(), ExportError> {
        if !self.schemas.iter().any(|known| known.id() == schema.id()) {
            self.layout = self.layout.with(schema)?;
            self.decoder = Decoder::new(&self.layout);
            self.schemas.push(schema.clone());
        }
        Ok(())
    }

    /// The file with a schema; one with another is finished.
    fn start(
        &mut self,
        schema: SchemaRef,
        target: &mut Target<'_>,
    ) -> Result<&mut Open, ExportError> {
        if let Some(open) = self.open.take_if(|open| open.schema != schema) {
            self.done.push(open.finish()?);
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let file = target.create(Format::Parquet)?;
                let path = file.path().to_owned();
                let file = SharedFile(Arc::new(Mutex::new(file)));
                let properties = Some(self.properties.clone());
                let writer = ArrowWriter::try_new(file.clone(), Arc::clone(&schema), properties);
                let writer = writer.map_err(|error| failed(&path, error))?;
                Open { writer, file, path, schema, rows: Rows::new() }
            }
        };
        Ok(self.open.insert(open))
    }

    pub(super) fn write_empty(&mut self, target: &mut Target<'_>) -> Result<(), ExportError> {
        let schema = Arc::clone(self.layout.schema());
        self.start(schema, target).map(drop)
    }

    pub(super) fn bytes(&self) -> u64 {
        let done: u64 = self.done.iter().map(|done| done.written.bytes).sum();
        done + self.open.as_ref().map_or(0, Open::bytes)
    }

    pub(super) fn rows(&self) -> u64 {
        let done: u64 = self.done.iter().map(|done| done.rows).sum();
        done + self.open.as_ref().map_or(0, |open| open.rows.rows)
    }

    pub(super) fn finish(&mut self) -> Result<Vec<Finished>, ExportError> {
        let mut done = std::mem::take(&mut self.done);
        if let Some(open) = self.open.take() {
            done.push(open.finish()?);
        }
        Ok(done)
    }
}

impl Open {
    fn write(&mut self, records: &RecordBatch) -> Result<(), ExportError> {
        self.writer.write(records).map_err(|error| failed(&self.path, error))?;
        if self.writer.in_progress_size() >= ROW_GROUP_BYTES {
            self.writer.flush().map_err(|error| failed(&self.path, error))?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    fn finish(self) -> Result<Finished, ExportError> {
        let Self { writer, file, path, rows, .. } = self;
        let footer = writer.close().map_err(|error| failed(&path, error))?;
        let stored = footer.file_metadata().num_rows();
        if u64::try_from(stored) != Ok(rows.rows) {
            return Err(ExportError::Fault(format!("{stored} rows are stored of {}", rows.rows)));
        }
        let file = Arc::into_inner(file.0).expect("the writer that shared it is closed");
        rows.finish(file.into_inner().unwrap_or_else(PoisonError::into_inner), None)
    }
}

/// An error of the disk, or a fault.
fn failed(path: &std::path::Path, error: ParquetError) -> ExportError {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => ExportError::File { path: path.to_owned(), error: *error },
            Err(cause) => ExportError::Fault(cause.to_string()),
        },
        error => fault(&error),
    }
}

fn fault(error: &ParquetError) -> ExportError {
    ExportError::Fault(error.to_string())
}
