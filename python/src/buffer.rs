//! Bytes that a transport or a reader holds, as Python's buffers: no copy.
//!
//! Constraints. A buffer is read-only, its bytes neither move nor change, and a view keeps them: a
//! pinned payload's segment stays as long as any memoryview or array of it.

#![allow(unsafe_code)]

use std::ffi::c_int;

use bytes::Bytes;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// Holds bytes, and gives them as a buffer.
#[pyclass(frozen, module = "heliograph._heliograph", name = "Buffer")]
#[derive(Debug)]
pub(crate) struct Buffer(Bytes);

impl Buffer {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A read-only memoryview of an object with a buffer.
pub(crate) fn view<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
    PyMemoryView::from(object)
}

#[pymethods]
impl Buffer {
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().0;
        let size = ffi::Py_ssize_t::try_from(bytes.len())?;
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: Python gives a valid `view`. The bytes stay at their place as long as this
        // object, of which the view holds a reference. It is marked as read-only (1), so nobody
        // writes.
        let done = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, size, 1, flags) };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
