//! The conformance suite on the bus's own transports, and tests that it can fail.

use std::collections::BTreeSet;

use crate::support::keeps_every_promise;
use helio_bus::conformance::{self, Engine, Harness, UrlHarness};
use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_bus::{Builder, Bus, ConnectError};

#[test]
fn memory_keeps_every_promise() {
    let report = conformance::run_all(&UrlHarness::to("memory:conformance"));
    keeps_every_promise("memory", &report);
}

#[test]
fn a_transport_that_refuses_by_name_is_conformant() {
    let report = conformance::run_all(&UrlHarness::to("memory:strict?strict=1"));
    keeps_every_promise("memory-strict", &report);
    assert!(report.to_string().contains("refused"), "{report}");
}

/// Faults that the bus compensates or counts, so that every promise still holds.
fn is_healed(fault: &str) {
    let url = format!("fault:memory:healed-{}?seed=1&{fault}", fault.replace(['=', '.'], "-"));
    // Blocking is the only policy that a transport with random refusals can keep.
    let wanted = |check: &conformance::Check| {
        !fault.starts_with("refuse")
            || ["delivery", "start_latest", "start_earliest", "fencing"]
                .iter()
                .any(|p| check.name.starts_with(p))
    };
    let report = conformance::run(&UrlHarness::to(&url), wanted);
    assert!(report.is_conformant(), "{fault}\n{report}");
}

#[test]
fn duplicates_are_healed() {
    is_healed("duplicate=0.3");
}

#[test]
fn delays_are_healed() {
    is_healed("delay=0.2");
}

#[test]
fn refusals_are_healed() {
    is_healed("refuse=0.3");
}

#[test]
fn pending_receipts_are_healed() {
    is_healed("pending=1");
}

#[test]
fn disconnects_are_healed() {
    is_healed("disconnect=0.1");
}

/// The checks that detect each fault: a suite that cannot fail proves nothing.
fn broken_promises_are_noticed(broken: &str) {
    let faults: [(&str, &[&str]); 6] = [
        (
            "drop=0.05",
            &[
                "delivery_order_per_key",
                "start_earliest",
                "fence_live",
                "fence_history",
                "group_shares",
            ],
        ),
        ("reorder=0.2", &["delivery_batches", "start_earliest"]),
        ("corrupt=1", &["delivery_whole", "delivery_large"]),
        (
            "strip=0.2",
            &["headers_whole", "headers_in_batches", "headers_of_last_values", "null_is_a_value"],
        ),
        ("lie=0.1", &["receipt_is_true", "overload_publisher"]),
        ("amnesia=1", &["fencing_takes_over"]),
    ];
    for (fault, noticing) in faults {
        let harness = Impatient(format!("fault:{broken}?seed=1&{fault}"));
        let report = conformance::run(&harness, |check| noticing.contains(&check.name));
        let noticed: BTreeSet<_> = report.broken().collect();
        assert_eq!(noticed, noticing.iter().copied().collect(), "{fault}\n{report}");
    }
}

#[test]
fn broken_promises_are_noticed_in_memory() {
    broken_promises_are_noticed("memory:broken");
}

#[test]
fn broken_promises_are_noticed_on_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    broken_promises_are_noticed(&format!("journal:{}", folder.path().display()));
}

/// Lost samples never arrive: a long timeout is useless.
struct Impatient(String);

impl Harness for Impatient {
    fn connect(&self, builder: Builder) -> Result<Bus, ConnectError> {
        builder.connect(&self.0)
    }

    fn timeout(&self) -> std::time::Duration {
        std::time::Duration::from_millis(300)
    }
}

/// An engine that a cable disconnects.
struct Cabled {
    url: &'static str,
    cables: std::sync::Mutex<Vec<Cable>>,
}

impl Harness for Cabled {
    fn connect(&self, builder: Builder) -> Result<Bus, ConnectError> {
        let transport = FaultTransport::connect(self.url, FaultPlan::default())?;
        self.cables.lock().unwrap().push(transport.cable());
        builder.over(transport)
    }

    fn engine(&self) -> Option<&dyn Engine> {
        Some(self)
    }
}

impl Engine for Cabled {
    fn stop(&self) {
        self.cables.lock().unwrap().iter().for_each(Cable::pull);
    }

    fn start(&self) {
        self.cables.lock().unwrap().iter().for_each(Cable::put_back);
    }
}

#[test]
fn the_fault_injector_keeps_every_promise_and_its_engine_may_stop_and_start() {
    let faultless = UrlHarness::to("fault:memory:faultless");
    let mut report = conformance::run(&faultless, |check| check.name != "reconnect");
    let cabled = Cabled { url: "memory:cabled", cables: std::sync::Mutex::default() };
    report.lines.extend(conformance::run(&cabled, |check| check.name == "reconnect").lines);
    keeps_every_promise("fault", &report);
    assert!(!report.to_string().contains("skipped"), "{report}");
}
