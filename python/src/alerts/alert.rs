//! An alert for Python.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use helio_bus::{SchemaId, Tai};
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{PyBytes, PyDict, PyMemoryView};

use crate::buffer::{self, Buffer};
use crate::schema::Schema;
use crate::time::Time;

/// The most schemas that are kept compiled for Python: a survey has a few a year.
const MAX_SCHEMAS: usize = 256;

/// The schemas of packets, compiled for Python.
#[derive(Default)]
pub(super) struct SchemaCache(Mutex<HashMap<SchemaId, Py<Schema>>>);

impl SchemaCache {
    fn of(&self, py: Python<'_>, schema: &helio_core::Schema) -> PyResult<Py<Schema>> {
        let id = schema.id();
        let known = || self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = known().get(&id) {
            return Ok(schema.clone_ref(py));
        }
        let schema = Py::new(py, Schema::of(py, schema.clone(), &PyDict::new(py), &[])?)?;
        let mut known = known();
        if known.len() >= MAX_SCHEMAS {
            known.clear();
        }
        known.insert(id, schema.clone_ref(py));
        Ok(schema)
    }
}

/// An alert: its packet, and where and when it was read.
#[pyclass(frozen, module = "heliograph.alerts", name = "Alert")]
pub(crate) struct Alert {
    alert: helio_alerts::reader::Alert,
    schema: Py<Schema>,
    datum: Py<Buffer>,
    value: PyOnceLock<Py<PyAny>>,
}

impl Alert {
    pub(super) fn new(
        py: Python<'_>,
        alert: helio_alerts::reader::Alert,
        schemas: &SchemaCache,
    ) -> PyResult<Self> {
        let schema = schemas.of(py, alert.layout.schema())?;
        let datum = Py::new(py, Buffer::new(alert.datum.clone()))?;
        Ok(Self { alert, schema, datum, value: PyOnceLock::new() })
    }
}

/// The files of an alert's stamps as memoryviews, by the names of their fields.
pub(super) fn stamps<'py>(
    py: Python<'py>,
    layout: &helio_alerts::layout::Layout,
    files: &Option<Vec<Option<Bytes>>>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(files) = files else { return Ok(None) };
    let by_name = PyDict::new(py);
    for (name, file) in layout.stamps().zip(files) {
        match file {
            Some(file) => {
                let holder = Py::new(py, Buffer::new(file.clone()))?.into_bound(py);
                by_name.set_item(name, buffer::view(holder.as_any())?)?;
            }
            None => by_name.set_item(name, py.None())?,
        }
    }
    Ok(Some(by_name))
}

#[pymethods]
impl Alert {
    /// The alert's identifier.
    #[getter]
    fn id(&self) -> i64 {
        self.alert.id
    }

    /// The visit; 0 if neither the sample nor the packet names it.
    #[getter]
    fn visit(&self) -> i64 {
        self.alert.visit
    }

    /// The detector.
    #[getter]
    fn detector(&self) -> i32 {
        self.alert.detector
    }

    /// The partition of the topic.
    #[getter]
    fn partition(&self) -> u32 {
        self.alert.at.partition
    }

    /// The offset in the partition.
    #[getter]
    fn offset(&self) -> u64 {
        self.alert.at.offset
    }

    /// The schema of the packet.
    #[getter]
    fn schema(&self, py: Python<'_>) -> Py<Schema> {
        self.schema.clone_ref(py)
    }

    /// The packet, an Avro datum without a frame: a copy.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.alert.datum)
    }

    /// The packet without a copy: a read-only memoryview, of the log's own segment if it is pinned.
    #[getter]
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        buffer::view(self.datum.bind(py).as_any())
    }

    /// The packet as a dictionary, decoded at the first use. Large arrays in it are views.
    ///
    /// Raises DecodeError if the packet has a value that Python cannot have.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let decode = || {
            let owner = self.datum.bind(py).as_any();
            self.schema.get().decode_from(py, &self.alert.datum, Some(owner)).map(Bound::unbind)
        };
        self.value.get_or_try_init(py, decode).map(|value| value.bind(py).clone())
    }

    /// The files of the stamps by the names of their fields, if the subscription has linked stamps;
    /// None also if they are missing.
    #[getter]
    fn stamps<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        stamps(py, &self.alert.layout, &self.alert.stamps)
    }

    /// When the shutter closed; None if unknown.
    #[getter]
    fn shutter_close(&self) -> Option<Time> {
        self.alert.stages.shutter_close.map(Time::from)
    }

    /// When the producer received the packet; None if unknown.
    #[getter]
    fn produced(&self) -> Option<Time> {
        self.alert.stages.produced.map(Time::from)
    }

    /// When the producer published it.
    #[getter]
    fn published(&self) -> Time {
        self.alert.stages.published.into()
    }

    /// When it was read.
    #[getter]
    fn read(&self) -> Time {
        let read: Tai = self.alert.stages.read;
        read.into()
    }

    fn __repr__(&self) -> String {
        let alert = &self.alert;
        format!("<Alert {} of visit {}, detector {}>", alert.id, alert.visit, alert.detector)
    }
}
