//! Record batches by Arrow's capsule interface, in both directions.
//!
//! Constraints. No column is copied. A capsule that is given is taken: its array is moved out, and
//! the capsule's own destructor then finds it released.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt::Display;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::{ArrayRef, RecordBatch, make_array};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors;

const SCHEMA_CAPSULE: &CStr = c"arrow_schema";
const ARRAY_CAPSULE: &CStr = c"arrow_array";

/// The two capsules of a batch: schema, and array.
pub(super) type Capsules<'py> = (Bound<'py, PyCapsule>, Bound<'py, PyCapsule>);

/// An error of Arrow, which is a fault of ours.
pub(crate) fn fault(error: &dyn Display) -> PyErr {
    errors::raise("InternalError", &format!("Arrow refused the columns: {error}"))
}

/// Exports a batch.
pub(super) fn export<'py>(py: Python<'py>, records: &RecordBatch) -> PyResult<Capsules<'py>> {
    let exported = helio_columns::export(records);
    let (array, schema) = exported.map_err(|error| fault(&error))?;
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA_CAPSULE)?;
    Ok((schema, PyCapsule::new_with_value(py, array, ARRAY_CAPSULE)?))
}

/// Takes the array of an object with `__arrow_c_array__`.
pub(super) fn import(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let foreign = |error: &dyn Display| PyTypeError::new_err(format!("no Arrow array: {error}"));
    let capsules = object.call_method0("__arrow_c_array__")?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = capsules.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA_CAPSULE))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY_CAPSULE))?.cast::<FFI_ArrowArray>();
    // SAFETY: capsules of these names hold valid structures of the C data interface, by Arrow's
    // PyCapsule interface; `schema` lives as long as its capsule, which is above. `from_raw` moves
    // the array and marks the capsule's as released, so that it is released once.
    let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
    let data = data.map_err(|error| foreign(&error))?;
    // Foreign offsets may point anywhere.
    data.validate_full().map_err(|error| foreign(&error))?;
    Ok(make_array(data))
}
