//! Alert packets for Python: producers, and readers of Arrow batches, values or bytes.
//!
//! It knows `helio-alerts` and `helio-columns`; the feature `alerts` brings both into the package.

mod alert;
mod arrays;
mod batch;
mod capsules;
mod columns;
mod filters;
mod producer;
mod reader;

use helio_alerts::rubin::{Version, VersionError, reader_schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::schema::Schema;

/// Adds the classes to the extension.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<batch::Batch>()?;
    module.add_class::<alert::Alert>()?;
    module.add_class::<reader::RawAlertReader>()?;
    module.add_class::<reader::RawRead>()?;
    module.add_class::<arrays::RawPackets>()?;
    module.add_class::<producer::RawCcdProducer>()?;
    module.add_class::<producer::RawGenerator>()?;
    module.add_class::<filters::RawFilterSet>()?;
    module.add_class::<filters::RawColumns>()?;
    module.add_function(wrap_pyfunction!(filters::best_matches, module)?)?;
    module.add_function(wrap_pyfunction!(rubin_schema, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::array_columns, module)?)?;
    module.add_function(wrap_pyfunction!(reader::rewind_alerts, module)?)?;
    Ok(())
}

/// The schema of a version of Rubin's packets; without a version the one that reads all of them.
#[pyfunction]
fn rubin_schema(py: Python<'_>, version: Option<&str>) -> PyResult<Schema> {
    let schema = match version {
        Some(version) => {
            let wrong = |error: VersionError| PyValueError::new_err(error.to_string());
            version.parse::<Version>().map_err(wrong)?.schema()
        }
        None => reader_schema(),
    };
    Schema::of(py, schema.clone(), &PyDict::new(py), &[])
}
