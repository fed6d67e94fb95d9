//! What is written and read beside commands: changes and what is none.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use helio_bus::Bus;
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_component::{Component, Remote, WriteTopic};
use support::{PATIENCE, Site, on_every_transport};

fn published(topic: &WriteTopic, late: i32) -> bool {
    topic.set("late", late).write().unwrap().published
}

#[test]
fn a_sign_of_zero_and_another_nan_are_no_change() {
    on_every_transport(|site: &Site| {
        let component = Component::builder(&site.bus(), &site.mount(), 0).start().unwrap();
        let target = component.event("target").unwrap();
        let published = |azimuth: f64| target.set("azimuth", azimuth).write().unwrap().published;
        let nan = f64::from_bits(0xfff0_0000_0000_0001);
        assert_eq!(
            [0.0, -0.0, f64::NAN, nan, -f64::NAN, 0.0].map(published),
            [true, false, true, false, false, true]
        );
        component.stop().unwrap();
    });
}

#[test]
fn what_could_not_be_published_is_published_when_it_is_set_again() {
    let transport = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let cable = transport.cable();
    let bus = Bus::builder().over(transport).unwrap();
    let site = Site::memory();
    let component = Component::builder(&bus, &site.mount(), 0).start().unwrap();
    let event = component.event("errorCount").unwrap();
    assert!(published(&event, 1) && !published(&event, 1));
    cable.pull();
    assert!(event.set("late", 2).write().is_err());
    cable.put_back();
    assert!(published(&event, 2) && !published(&event, 2));
    let remote = Remote::open(&bus, &site.mount(), 0).unwrap();
    let mut counts = remote.event("errorCount").unwrap();
    assert_eq!(counts.next(PATIENCE).unwrap().integer("late"), Some(2));
    component.stop().unwrap();
}
