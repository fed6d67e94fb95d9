//! Converts every error of the Rust layers to a class of the exception tree in
//! `heliograph._errors`.

use helio_bus::{ConnectError, PublishError, ReadError, TopicError, TransportError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// The exception class of that name.
pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let import = || py.import("heliograph._errors").map(Bound::unbind);
    MODULE.get_or_try_init(py, import)?.bind(py).getattr(name)
}

/// Panics, for the test that Python sees a panic as an `InternalError`.
#[pyfunction]
pub(crate) fn panics(message: String) {
    panic!("{message}");
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

/// Of a transport; `general` is the class of errors without a class of their own.
fn transport_class(error: &TransportError, general: &'static str) -> &'static str {
    match error {
        TransportError::Differs { .. } | TransportError::Unsupported { .. } => "QosRefused",
        TransportError::Owned { .. } | TransportError::Fenced { .. } => "Fenced",
        TransportError::TooLarge { .. } => "PublishError",
        TransportError::TopicGone { .. } => "TopicGone",
        TransportError::NotAssigned { .. } => "SubscribeError",
        TransportError::NoSchema { .. } | TransportError::SchemaEdited { .. } => "SchemaError",
        TransportError::Closed => "ClosedError",
        TransportError::Outage { .. } | TransportError::Engine { .. } => general,
    }
}

/// Of a query on a bus.
pub(crate) fn transport(error: &TransportError) -> PyErr {
    raise(transport_class(error, "HelioError"), &error.to_string())
}

pub(crate) fn connect(error: &ConnectError) -> PyErr {
    let class = match error {
        ConnectError::Url { .. }
        | ConnectError::UnknownScheme { .. }
        | ConnectError::Option { .. } => "ConnectError",
        ConnectError::Producer(_) => "NameRefused",
        ConnectError::Transport(inner) => transport_class(inner, "ConnectError"),
    };
    raise(class, &error.to_string())
}

/// `general` is the class of errors without a class of their own: of a publisher or a subscription.
pub(crate) fn topic(error: &TopicError, general: &'static str) -> PyErr {
    let class = match error {
        TopicError::Name(_) => "NameRefused",
        TopicError::NoSuchTopic(_) => "UnknownTopic",
        TopicError::Invalid { .. } | TopicError::Refused(_) => "QosRefused",
        TopicError::Incompatible { .. } => "IncompatibleSchema",
        TopicError::Schema { .. } => "SchemaError",
        TopicError::Transport(inner) => transport_class(inner, general),
    };
    raise(class, &error.to_string())
}

pub(crate) fn publish(error: &PublishError) -> PyErr {
    let class = match error {
        PublishError::Full { .. } | PublishError::Dropped { .. } => "OverloadError",
        PublishError::Unknown { .. } | PublishError::NoPartition { .. } => "PublishError",
        PublishError::Encode(_) => "EncodeError",
        PublishError::NotOpened(_) | PublishError::Skipped => "PublishError",
        PublishError::Timeout => "WaitTimeout",
        PublishError::Transport(inner) => transport_class(inner, "StorageError"),
    };
    raise(class, &error.to_string())
}

pub(crate) fn read(error: &ReadError) -> PyErr {
    let class = match error {
        ReadError::NoGroup => "SubscribeError",
        // The reader cannot seek to this offset; no policy is at fault.
        ReadError::Transport(TransportError::Unsupported { .. }) => "SubscribeError",
        ReadError::Transport(inner) => transport_class(inner, "SubscribeError"),
    };
    raise(class, &error.to_string())
}
