//! The files in the making.

mod avro;
mod parquet;

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use helio_core::Schema;

use crate::ExportError;
use crate::alert::Alert;
use crate::folder::{Folder, PartFile, Written};
use crate::options::{Compression, ExportOptions, Format, StampsChoice};

use avro::AvroFiles;
use parquet::ParquetFile;

/// Alerts of a batch for the files, by their index, and the columns of a filter for them.
pub(crate) struct Chosen<'a> {
    pub(crate) alerts: &'a [Alert],
    pub(crate) rows: Vec<usize>,
    pub(crate) columns: Option<RecordBatch>,
}

/// A finished file.
pub(crate) struct Finished {
    pub(crate) written: Written,
    pub(crate) rows: u64,
    pub(crate) visits: BTreeMap<i64, u64>,
    pub(crate) schema: Option<String>,
}

/// What a file has beside its format's own state.
struct Rows {
    rows: u64,
    visits: BTreeMap<i64, u64>,
}

impl Rows {
    const fn new() -> Self {
        Self { rows: 0, visits: BTreeMap::new() }
    }

    fn add(&mut self, alert: &Alert) {
        self.rows += 1;
        *self.visits.entry(alert.seen.visit).or_default() += 1;
    }

    fn finish(self, file: PartFile, schema: Option<String>) -> Result<Finished, ExportError> {
        Ok(Finished { written: file.finish()?, rows: self.rows, visits: self.visits, schema })
    }
}

/// The writer of an export's format.
pub(crate) enum Writer {
    Avro(AvroFiles),
    Parquet(Box<ParquetFile>),
}

/// Where the next file goes.
pub(crate) struct Target<'t> {
    pub(crate) folder: &'t Folder,
    /// The number of the next file.
    pub(crate) number: &'t mut usize,
}

impl Target<'_> {
    fn create(&mut self, format: Format) -> Result<PartFile, ExportError> {
        let file = self.folder.create(*self.number, format)?;
        *self.number += 1;
        Ok(file)
    }
}

impl Writer {
    /// A writer for a topic with these schemas.
    pub(crate) fn new(
        options: &ExportOptions,
        compression: Compression,
        schemas: &[Schema],
    ) -> Result<Self, ExportError> {
        Ok(match options.format {
            Format::Avro => Self::Avro(AvroFiles::new(compression, options.stamps)),
            Format::Parquet => {
                Self::Parquet(Box::new(ParquetFile::new(options, compression, schemas)?))
            }
        })
    }

    /// Whether the columns of a filter are written instead of packets.
    pub(crate) fn takes_columns(&self) -> bool {
        match self {
            Self::Avro(_) => false,
            Self::Parquet(file) => file.takes_columns(),
        }
    }

    /// Writes alerts; returns those that cannot be read, by their index.
    pub(crate) fn write(
        &mut self,
        chosen: Chosen<'_>,
        target: &mut Target<'_>,
    ) -> Result<Vec<usize>, ExportError> {
        match self {
            Self::Avro(files) => files.write(&chosen, target),
            Self::Parquet(file) => file.write(chosen, Some(target)),
        }
    }

    /// Returns which alerts cannot be read, and writes nothing.
    pub(crate) fn check(&mut self, chosen: Chosen<'_>) -> Result<Vec<usize>, ExportError> {
        match self {
            // Damaged packets were sorted out when they were read.
            Self::Avro(_) => Ok(Vec::new()),
            Self::Parquet(file) => file.write(chosen, None),
        }
    }

    /// The bytes of the files in the making, about.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Avro(files) => files.bytes(),
            Self::Parquet(file) => file.bytes(),
        }
    }

    /// The rows of the files in the making.
    pub(crate) fn rows(&self) -> u64 {
        match self {
            Self::Avro(files) => files.rows(),
            Self::Parquet(file) => file.rows(),
        }
    }

    /// Ends the files.
    pub(crate) fn finish(&mut self) -> Result<Vec<Finished>, ExportError> {
        match self {
            Self::Avro(files) => files.finish(),
            Self::Parquet(file) => file.finish(),
        }
    }

    /// Writes a file without rows, so that readers find the columns.
    pub(crate) fn write_empty(
        &mut self,
        schemas: &[Schema],
        target: &mut Target<'_>,
    ) -> Result<(), ExportError> {
        match self {
            Self::Avro(files) => match schemas.last() {
                Some(schema) => files.start(schema, target).map(drop),
                None => Ok(()),
            },
            Self::Parquet(file) => file.write_empty(target),
        }
    }
}

/// The names of a topic's fields with stamps are left out, unless they are wanted.
fn default_columns(schemas: &[Schema], stamps: StampsChoice) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    for schema in schemas {
        let layout = helio_alerts::layout::Layout::new(schema);
        for field in schema.fields() {
            let is_stamp = layout.stamps().any(|stamp| stamp == field.name);
            let is_wanted = stamps == StampsChoice::Inline || !is_stamp;
            if is_wanted && !columns.contains(&field.name) {
                columns.push(field.name.clone());
            }
        }
    }
    columns
}
