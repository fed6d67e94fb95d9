//! The filter service on a real Kafka broker: one, two and four processes, killed at random.

use std::time::Duration;

use crate::filters::kills::{self, Site};
use crate::support::broker;

/// A process of the service, started by the tests below.
#[test]
fn child() {
    helio_transports::register_all();
    kills::child();
}

/// A dead publisher is replaced after ten seconds, and a dead member of the group after six.
fn on_kafka(processes: usize, life: Duration) {
    let Some(broker) = broker() else { return };
    let url = format!("{}?prefix=filters{processes}.", broker.url);
    kills::killed(&Site { url: &url, child: "filter_kills::child", life }, processes);
}

#[test]
fn one_process_killed_twenty_times() {
    on_kafka(1, Duration::from_secs(24));
}

#[test]
fn two_processes_killed_twenty_times() {
    on_kafka(2, Duration::from_secs(32));
}

#[test]
fn four_processes_killed_twenty_times() {
    on_kafka(4, Duration::from_secs(48));
}
