//! The transports by URL scheme. Only this file of the bus names transports.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use super::{Transport, fault, journal, memory};
use crate::bell::locked;
use crate::clock::Clock;
use crate::error::ConnectError;
use crate::url::BusUrl;

/// The arguments of opening a transport.
#[derive(Clone)]
pub struct Opening {
    /// The whole URL.
    pub url: BusUrl,
    /// The bus's clock.
    pub clock: Arc<dyn Clock>,
}

/// Opens a transport.
pub type Connect = fn(&Opening) -> Result<Arc<dyn Transport>, ConnectError>;

fn registry() -> &'static Mutex<BTreeMap<String, Connect>> {
    static REGISTRY: OnceLock<Mutex<BTreeMap<String, Connect>>> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let own: [(&str, Connect); 3] =
            [("fault", fault::connect), ("journal", journal::connect), ("memory", memory::connect)];
        Mutex::new(own.into_iter().map(|(scheme, open)| (scheme.to_owned(), open)).collect())
    })
}

/// Registers a transport under a scheme, for this process; it replaces an earlier registration.
pub fn register(scheme: &str, connect: Connect) {
    locked(registry()).insert(scheme.to_ascii_lowercase(), connect);
}

/// The registered schemes, in order.
#[must_use]
pub fn schemes() -> Vec<String> {
    locked(registry()).keys().cloned().collect()
}

/// Returns the URL for a bus that only looks.
pub(crate) fn reading(url: &BusUrl) -> Result<BusUrl, ConnectError> {
    journal::reading(url)
}

/// Opens the transport that a URL names.
pub(crate) fn open(opening: &Opening) -> Result<Arc<dyn Transport>, ConnectError> {
    let connect = locked(registry()).get(opening.url.scheme()).copied();
    match connect {
        Some(connect) => connect(opening),
        None => Err(ConnectError::UnknownScheme {
            scheme: opening.url.scheme().to_owned(),
            known: schemes().join(", "),
        }),
    }
}
