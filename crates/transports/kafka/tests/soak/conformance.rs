//! The conformance suite on a real broker, which is stopped and started during the suite.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use helio_bus::conformance::{self, Engine, Harness};
use helio_bus::{Builder, Bus, ConnectError};

use crate::support::{Broker, HANG_TIMEOUT};

struct Kafka<'a>(&'a Broker);

impl Harness for Kafka<'_> {
    fn connect(&self, builder: Builder) -> Result<Bus, ConnectError> {
        builder.connect(&self.0.url(""))
    }

    fn engine(&self) -> Option<&dyn Engine> {
        Some(self)
    }

    fn timeout(&self) -> Duration {
        HANG_TIMEOUT
    }

    /// More than the cores: a check mostly waits for the broker.
    fn jobs(&self) -> usize {
        6
    }

    /// A partition that was just opened waits for the fetch in flight, and machines are busy.
    fn quiet_period(&self) -> Duration {
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

/// A broker of this test's own, which the test stops.
fn broker() -> Option<&'static Broker> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    BROKER.get_or_init(|| Broker::start(1)).as_ref()
}

#[test]
fn kafka_keeps_every_promise() {
    let Some(broker) = broker() else { return };
    let report = conformance::run_all(&Kafka(broker));
    assert!(report.is_conformant(), "{report}");
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/conformance");
    conformance::compare_with_stored(&results, "kafka", &report).unwrap();
}
