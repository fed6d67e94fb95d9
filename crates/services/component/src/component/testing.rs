//! A component on a bus whose topics can be made to fail, for tests of its internals.

use std::time::{Duration, Instant};

use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_bus::{Bus, TopicName};

use super::{Builder, Component};
use crate::interface::Interface;

const INTERFACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/interfaces");

/// Guards tests against hanging; a healthy test never reaches it.
const HANG_TIMEOUT: Duration = Duration::from_secs(30);

/// A mount before its start, its bus, and the cable that breaks its topics.
pub(super) fn failing_mount() -> (Builder, Bus, Cable) {
    let transport = FaultTransport::connect("memory:", FaultPlan::default());
    let transport = transport.expect("a memory can be opened");
    let cable = transport.cable();
    let bus = Bus::builder().over(transport).expect("and connected");
    (mount(&bus), bus, cable)
}

/// Another mount on that bus.
pub(super) fn mount(bus: &Bus) -> Builder {
    Component::builder(bus, &interface(), 0)
}

pub(super) fn interface() -> Interface {
    let all = helio_bus::read_interfaces(INTERFACES).expect("our own interfaces can be read");
    Interface::of(&all, "MTMount").expect("the mount is one of them")
}

pub(super) fn topic(name: &str) -> TopicName {
    TopicName::new(&format!("MTMount/{name}")).expect("it is a name")
}

/// Waits for other threads until a condition holds.
pub(super) fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + HANG_TIMEOUT;
    while !done() {
        assert!(Instant::now() < end, "it does not come to that");
        std::thread::yield_now();
    }
}
