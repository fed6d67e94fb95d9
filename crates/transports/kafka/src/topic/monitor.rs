//! The thread that polls the brokers, reports outages and sends heartbeats.

use std::sync::{Arc, Weak};
use std::time::Duration;

use helio_bus::{Outage, TransportError};

use crate::client::error::engine;
use crate::client::health::Health;
use crate::client::names::TOPICS;
use crate::topic::connection::Connection;

/// How long a published record may be in flight while brokers answer. After that, its partition has
/// no leader or too few replicas.
const STALLED_PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the polling thread. It ends with the connection.
pub(crate) fn start(connection: &Arc<Connection>) -> Result<(), TransportError> {
    let (weak, health) = (Arc::downgrade(connection), Arc::clone(&connection.link.health));
    let run = move || while health.pause() && poll(&weak, &health) {};
    let started = std::thread::Builder::new().name("kafka-monitor".to_owned()).spawn(run);
    started.map(drop).map_err(|error| engine("start a thread", error))
}

/// Polls the most recently used broker and, if that gives no answer, all at once.
fn poll(connection: &Weak<Connection>, health: &Health) -> bool {
    // The connection is held only during the requests.
    let Some(connection) = connection.upgrade() else { return false };
    let stalled = connection.stalled(STALLED_PUBLISH_TIMEOUT);
    let answer = connection.link.client.answers(&connection.link.names.internal(TOPICS));
    let stalled = stalled.map(|what| {
        format!("{what} for {} s, though brokers answer", STALLED_PUBLISH_TIMEOUT.as_secs())
    });
    if let Some(outage) = health.answered(answer, stalled) {
        connection.report(&outage);
        if matches!(outage, Outage::Restored) {
            connection.watch_readers();
        }
    }
    if !health.is_lost() {
        connection.send_heartbeats();
    }
    true
}
