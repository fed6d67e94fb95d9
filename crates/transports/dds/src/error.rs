//! Maps Cyclone DDS's errors to the bus's.

use std::sync::Arc;

use helio_bus::TransportError;

use crate::SCHEME;
use crate::entity::DdsError;

/// Converts the error of a failed operation.
pub(crate) fn failed(what: &str) -> impl Fn(DdsError) -> TransportError + '_ {
    move |error| engine(what, error)
}

pub(crate) fn engine<E>(what: &str, source: E) -> TransportError
where
    E: std::error::Error + Send + Sync + 'static,
{
    let (transport, source) = (SCHEME.to_owned(), Arc::new(source));
    TransportError::Engine { transport, what: what.to_owned(), source }
}

pub(crate) fn unsupported(what: String, remedy: &str) -> TransportError {
    TransportError::Unsupported { transport: SCHEME.to_owned(), what, remedy: remedy.to_owned() }
}
