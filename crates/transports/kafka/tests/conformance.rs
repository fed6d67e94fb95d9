//! The conformance suite on a real broker, which is stopped and started in between.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Broker, broker};
use helio_bus::conformance::{self, Engine, Harness};
use helio_bus::{Builder, Bus, ConnectError};

struct Kafka<'a>(&'a Broker);

impl Harness for Kafka<'_> {
    fn connect(&self, builder: Builder) -> Result<Bus, ConnectError> {
        builder.connect(&self.0.url(""))
    }

    fn engine(&self) -> Option<&dyn Engine> {
        Some(self)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// A partition that was just opened waits for the fetch under way, and machines are busy.
    fn quiet(&self) -> Duration {
        Duration::from_millis(500)
    }
}

impl Engine for Kafka<'_> {
    fn stop(&self) {
        self.0.does("kill");
    }

    fn start(&self) {
        self.0.does("restart");
    }
}

#[test]
fn kafka_keeps_every_promise() {
    let Some(broker) = broker() else { return };
    let report = conformance::run_all(&Kafka(broker));
    assert!(report.is_conformant(), "{report}");
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/conformance");
    conformance::kept(&results, "kafka", &report).unwrap();
}
