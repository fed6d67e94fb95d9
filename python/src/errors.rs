//! Every error of the Rust layers becomes one class of the exception tree in `heliograph._errors`.

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

/// What a transport says; `general` is the class of what has none of its own.
fn transport_class(error: &TransportError, general: &'static str) -> &'static str {
    match error {
        TransportError::Differs { .. } | TransportError::Unsupported { .. } => "QosRefused",
        TransportError::Owned { .. } | TransportError::Fenced { .. } => "Fenced",
        TransportError::TooLarge { .. } => "PublishError",
        TransportError::Closed => "ClosedError",
        TransportError::Outage { .. } | TransportError::Engine { .. } => general,
    }
}

/// From looking something up on a bus.
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

/// `general` is the class of what a transport has no other for: of a publisher or a subscription.
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
        PublishError::NotOpened(_) => "PublishError",
        PublishError::Timeout => "WaitTimeout",
        PublishError::Transport(inner) => transport_class(inner, "StorageError"),
    };
    raise(class, &error.to_string())
}

pub(crate) fn read(error: &ReadError) -> PyErr {
    let class = match error {
        ReadError::NoGroup => "SubscribeError",
        // A place or a partition that this reader cannot go to or commit, not a policy.
        ReadError::Transport(TransportError::Unsupported { .. }) => "SubscribeError",
        ReadError::Transport(inner) => transport_class(inner, "SubscribeError"),
    };
    raise(class, &error.to_string())
}
