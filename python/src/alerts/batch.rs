//! Record batches by Arrow's capsule interface, which pyarrow, polars and others read.
//!
//! Constraints. No column is copied, and no Arrow library of Python is needed. A batch can be read
//! any number of times: each capsule owns a reference to its columns.

use std::sync::Arc;

use bytes::Bytes;
use helio_alerts::layout::Layout;
use numpy::PyArray1;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::alert;
use super::capsules::{self, Capsules};

/// Columns of alerts, a row each: a record batch by Arrow's capsule interface.
///
/// ``pyarrow.record_batch(batch)``, ``polars.DataFrame(batch)``, ``nanoarrow.Array(batch)`` and all
/// that know ``__arrow_c_array__`` read it without copying. Columns are named by their paths. A
/// batch may be read any number of times.
#[pyclass(frozen, module = "heliograph.alerts", name = "Batch")]
#[derive(Debug)]
pub(crate) struct Batch {
    records: helio_columns::RecordBatch,
    rows: Vec<Row>,
}

/// What is known of a row's alert beside the columns.
#[derive(Debug)]
pub(super) struct Row {
    id: i64,
    visit: i64,
    detector: i32,
    partition: u32,
    offset: u64,
    layout: Arc<Layout>,
    stamps: Option<Vec<Option<Bytes>>>,
}

impl Row {
    pub(super) fn of(alert: &helio_alerts::reader::Alert) -> Self {
        Self {
            id: alert.id,
            visit: alert.visit,
            detector: alert.detector,
            partition: alert.at.partition,
            offset: alert.at.offset,
            layout: Arc::clone(&alert.layout),
            stamps: alert.stamps.clone(),
        }
    }
}

impl Batch {
    pub(super) fn new(records: helio_columns::RecordBatch, rows: Vec<Row>) -> Self {
        Self { records, rows }
    }

    fn numbers<'py>(
        &self,
        py: Python<'py>,
        number: impl Fn(&Row) -> i64,
    ) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_iter(py, self.rows.iter().map(number))
    }
}

#[pymethods]
impl Batch {
    /// Export the columns and their schema: the two capsules of Arrow's PyCapsule interface.
    ///
    /// ``requested_schema`` is ignored, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Capsules<'py>> {
        drop(requested_schema);
        capsules::export(py, &self.records)
    }

    /// Export the schema: the capsule of Arrow's PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(self.__arrow_c_array__(py, None)?.0)
    }

    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.records.num_rows()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        let schema = self.records.schema();
        schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The alerts' identifiers, an array of numpy.
    #[getter]
    fn ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        self.numbers(py, |row| row.id)
    }

    /// The alerts' visits, an array of numpy; 0 where neither the sample nor the packet names it.
    #[getter]
    fn visits<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        self.numbers(py, |row| row.visit)
    }

    /// The alerts' detectors, an array of numpy.
    #[getter]
    fn detectors<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        self.numbers(py, |row| row.detector.into())
    }

    /// The partition and the offset of each alert.
    #[getter]
    fn positions(&self) -> Vec<(u32, u64)> {
        self.rows.iter().map(|row| (row.partition, row.offset)).collect()
    }

    /// The files of a row's stamps by the names of their fields, if the subscription has linked
    /// stamps: read-only memoryviews. None also if they are missing.
    fn stamps<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Option<Bound<'py, PyDict>>> {
        let none = || PyIndexError::new_err(format!("row {row} of {}", self.rows.len()));
        let row = self.rows.get(row).ok_or_else(none)?;
        alert::stamps(py, &row.layout, &row.stamps)
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    fn __repr__(&self) -> String {
        let columns = self.records.num_columns();
        format!("<Batch of {} alerts, {columns} columns>", self.num_rows())
    }
}
