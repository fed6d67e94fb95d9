//! Every error of the Rust layers becomes one class of the exception tree in `heliograph._errors`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// The exception class of that name.
pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let module =
        MODULE.get_or_try_init(py, || py.import("heliograph._errors").map(Bound::unbind))?;
    module.bind(py).getattr(name)
}

/// An exception of that class.
pub(crate) fn raise(name: &str, message: &str) -> PyErr {
    Python::attach(|py| {
        let made = class(py, name).and_then(|class| class.call1((message,)));
        match made {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    })
}
