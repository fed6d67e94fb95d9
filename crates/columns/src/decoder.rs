//! Payloads to record batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;
use helio_core::SchemaId;
use helio_core::codec::wire::FREE_VALUES;
use helio_core::container::{ContainerError, SchemaCache};
use helio_core::projection::{Projection, ProjectionError, ShapeError};
use helio_core::schema::Schema;
use thiserror::Error;

use crate::Layout;
use crate::builders::{Builders, MAX_COLUMN};

/// The limit of schemas whose plans are kept; more are compiled again.
const MAX_PLANS: usize = 256;

/// Why a sample is not in a batch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Reason {
    /// The payload is no datum of its schema.
    #[error("{0}")]
    Datum(#[from] ProjectionError),
    /// The columns cannot be read from its schema.
    #[error("{0}")]
    Shape(#[from] ShapeError),
    /// The payload has no number of a schema before it.
    #[error("no {0} frame before the payload")]
    Frame(&'static str),
    /// The schema is unknown.
    #[error("the schema {0} is unknown")]
    Schema(String),
    /// A container file is damaged; the samples before the damage are in the batch.
    #[error("{0}")]
    Container(#[from] ContainerError),
    /// One payload is larger than a column may be.
    #[error("a payload of {0} bytes is larger than a column may be")]
    Size(usize),
}

/// Why a sample was not added.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PushError {
    /// The batch is full: finish it, and push the sample again.
    #[error("the batch is full: finish it, and push the sample again")]
    Full,
    /// The sample was rejected, which the batch reports, too.
    #[error("{0}")]
    Rejected(#[from] Reason),
}

/// A sample that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("sample {position}: {reason}")]
pub struct Rejected {
    /// The index of its push since the last batch.
    pub position: usize,
    /// The cause.
    pub reason: Reason,
}

/// Rows of samples, and the samples that could not be read.
#[derive(Debug)]
pub struct Batch {
    /// The columns of the [`Layout`].
    pub records: RecordBatch,
    /// For each row, the index of its push since the last batch.
    pub positions: Vec<usize>,
    /// The samples that could not be read, in order.
    pub rejected: Vec<Rejected>,
}

/// Reads payloads into the columns of a [`Layout`].
#[derive(Debug)]
pub struct Decoder {
    layout: Layout,
    plans: HashMap<SchemaId, Plan>,
    /// The plan of the last sample.
    last: Option<(SchemaId, Plan)>,
    builders: Builders,
    pub(crate) files: SchemaCache,
    /// The position of the next sample.
    next: usize,
    positions: Vec<usize>,
    rejected: Vec<Rejected>,
    /// The limit of bytes and of elements in one column: [`MAX_COLUMN`], less in tests.
    limit: usize,
    /// Bytes that every column can take without being measured.
    room: usize,
}

/// Whether columns can take a datum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    Short,
}

type Plan = Result<Arc<Projection>, ShapeError>;

impl Decoder {
    /// Starts an empty batch.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        Self {
            layout: layout.clone(),
            plans: HashMap::new(),
            last: None,
            builders: Builders::new(layout.shape()),
            files: SchemaCache::default(),
            next: 0,
            positions: Vec::new(),
            rejected: Vec::new(),
            limit: MAX_COLUMN,
            room: MAX_COLUMN,
        }
    }

    /// The columns.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of rows so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.positions.len()
    }

    /// Adds the row of a sample: a datum of a schema, without a frame. Columns that the schema
    /// lacks are null. A sample that cannot be read leaves the rows as they were.
    ///
    /// # Errors
    /// [`PushError`] if the batch is full, or with the reason that the batch reports, too.
    pub fn push(&mut self, schema: &Schema, datum: &[u8]) -> Result<(), PushError> {
        let done = match (self.reserve(datum.len()), self.rows()) {
            (Room::Enough, _) => self.row(schema, datum),
            (Room::Short, 0) => Err(Reason::Size(datum.len())),
            (Room::Short, _) => return Err(PushError::Full),
        };
        self.end(done)
    }

    /// Rejects a sample whose datum or schema is not at hand, so that positions stay those of the
    /// samples.
    pub fn reject(&mut self, reason: Reason) {
        let position = self.next;
        self.rejected.push(Rejected { position, reason });
        self.next += 1;
    }

    /// Takes the rows so far, and starts an empty batch.
    ///
    /// # Errors
    /// [`ArrowError`] if Arrow refuses the columns, which is a fault of this crate.
    pub fn finish(&mut self) -> Result<Batch, ArrowError> {
        let rows = self.positions.len();
        let (fields, columns) = (self.layout.fields(), self.layout.shape().columns());
        let column = |slot: &usize| self.builders.finish(*slot, fields);
        let columns: Vec<ArrayRef> = columns.iter().map(column).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = self.layout.schema().clone();
        let records = RecordBatch::try_new_with_options(schema, columns, &options)?;
        self.next = 0;
        self.room = self.limit;
        let positions = std::mem::take(&mut self.positions);
        Ok(Batch { records, positions, rejected: std::mem::take(&mut self.rejected) })
    }

    /// Ends a sample: its position is used, and its failure recorded.
    pub(crate) fn end(&mut self, done: Result<(), Reason>) -> Result<(), PushError> {
        match done {
            Ok(()) => {
                self.next += 1;
                Ok(())
            }
            Err(reason) => {
                self.reject(reason.clone());
                Err(reason.into())
            }
        }
    }

    /// Reserves room for a datum of so many bytes in each column, if there is any.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Room {
        // A value takes a byte of the datum, or one of the budget, which is of this size.
        let needed = bytes.saturating_mul(2).saturating_add(FREE_VALUES);
        if needed > self.room {
            self.room = self.limit.saturating_sub(self.builders.largest());
        }
        match self.room.checked_sub(needed) {
            Some(room) => {
                self.room = room;
                Room::Enough
            }
            None => Room::Short,
        }
    }

    /// Cuts the batch back to its first rows.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.builders.truncate(self.layout.shape().columns(), rows);
        self.positions.truncate(rows);
    }

    /// Adds a row at the position of the current sample.
    pub(crate) fn row(&mut self, schema: &Schema, datum: &[u8]) -> Result<(), Reason> {
        let plan = self.plan(schema)?;
        if let Err(error) = plan.read(datum, &mut self.builders) {
            self.truncate(self.rows());
            return Err(error.into());
        }
        self.positions.push(self.next);
        Ok(())
    }

    fn plan(&mut self, schema: &Schema) -> Plan {
        let id = schema.id();
        if let Some((last, plan)) = &self.last
            && *last == id
        {
            return plan.clone();
        }
        if self.plans.len() >= MAX_PLANS && !self.plans.contains_key(&id) {
            self.plans.clear();
        }
        let shape = self.layout.shape();
        let plan = self.plans.entry(id);
        let plan = plan.or_insert_with(|| Projection::new(schema, shape).map(Arc::new)).clone();
        self.last = Some((id, plan.clone()));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Framing;
    use helio_core::codec::wire::put_bytes;
    use helio_core::container::{Compression, Writer};

    fn stamp(bytes: usize) -> Vec<u8> {
        let mut datum = Vec::new();
        put_bytes(&mut datum, &vec![7; bytes]);
        datum
    }

    #[test]
    fn a_full_batch_is_finished_and_the_sample_pushed_again() {
        let schema = Schema::parse("\"bytes\"").unwrap();
        let layout = Layout::new(std::slice::from_ref(&schema), &["value"]).unwrap();
        let mut decoder = Decoder::new(&layout);
        decoder.limit = FREE_VALUES + 100_000;
        decoder.room = decoder.limit;
        let mut rows = Vec::new();
        for _ in 0..10 {
            if decoder.push(&schema, &stamp(30_000)) == Err(PushError::Full) {
                let batch = decoder.finish().unwrap();
                assert_eq!(batch.rejected, []);
                rows.push(batch.records.num_rows());
                decoder.push(&schema, &stamp(30_000)).unwrap();
            }
        }
        assert_eq!((rows, decoder.rows()), (vec![2; 4], 2));
        // A file that does not fit leaves nothing behind.
        let mut file = Writer::new(&schema, Compression::Deflate, [1; 16]);
        (0..3).for_each(|_| file.append(&stamp(20_000)));
        let file = file.finish();
        assert_eq!(decoder.push_payload(Framing::Container, &file), Err(PushError::Full));
        assert_eq!(decoder.finish().unwrap().positions, [0, 1]);
        decoder.push_payload(Framing::Container, &file).unwrap();
        assert_eq!(decoder.finish().unwrap().positions, [0, 0, 0]);
        let large = stamp(80_000);
        let error = decoder.push(&schema, &large).unwrap_err();
        assert_eq!(error, PushError::Rejected(Reason::Size(large.len())));
        assert_eq!(decoder.finish().unwrap().rejected[0].position, 0);
    }
}
