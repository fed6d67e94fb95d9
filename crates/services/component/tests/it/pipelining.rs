//! Pipelined telemetry: samples that do not arrive are reported and counted.

use std::time::Duration;

use crate::support::{HANG_TIMEOUT, Site};
use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_bus::{Bus, Message, PublishError, Publisher, TopicSpec, TransportError};
use helio_component::{
    Component, ReadTopic, Reading, Remote, Running, WriteError, WriteTopic, Written,
};
use helio_core::ProducerName;

/// The most samples in flight.
const MOST: u64 = 1_024;

/// A component on a bus that can be frozen, with an open telemetry topic and its reader.
struct Frozen {
    site: Site,
    cable: Cable,
    component: Running,
    topic: WriteTopic,
    read: ReadTopic,
}

impl Frozen {
    fn start() -> Self {
        let site = Site::memory();
        // The queue has room for all samples in flight.
        let plan = FaultPlan { queue: 2 * MOST as usize, ..FaultPlan::default() };
        let transport = FaultTransport::connect(site.url(), plan).unwrap();
        let cable = transport.cable();
        let bus = Bus::builder().over(transport).unwrap();
        let component = Component::builder(&bus, &site.mount(), 0).start().unwrap();
        let topic = component.telemetry("elevation").unwrap();
        let read = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let mut read = read.telemetry("elevation").unwrap();
        topic.write().unwrap();
        assert_eq!(read.next(HANG_TIMEOUT).unwrap().seq_num(), 1);
        cable.freeze();
        Self { site, cable, component, topic, read }
    }

    fn write(&self, count: u64) {
        for _ in 0..count {
            assert!(self.topic.write().unwrap().receipt.is_none(), "it was acknowledged");
        }
    }

    /// Fences the component's writer, as a process of the same name does.
    fn intrude(&self) -> Publisher {
        let spec = TopicSpec::of(self.topic.shape().topic().topic_name().clone());
        let spec = spec.producer(ProducerName::new("MTMount").unwrap());
        self.site.bus().topic(spec).unwrap().publisher().unwrap()
    }
}

fn fenced(written: Result<Written, WriteError>) -> u64 {
    match written.unwrap_err() {
        WriteError::Lost {
            count,
            source: PublishError::Transport(TransportError::Fenced { .. }),
            ..
        } => count,
        other => panic!("{other}"),
    }
}

#[test]
fn what_was_under_way_when_a_topic_was_taken_is_told_and_counted() {
    let mut frozen = Frozen::start();
    frozen.write(3);
    let intruder = frozen.intrude();
    frozen.cable.thaw();
    assert_eq!(fenced(frozen.topic.write()), 3);
    // The component has reclaimed the topic, and the numbers show the missing samples.
    assert_eq!(frozen.topic.write().unwrap().seq_num, 5);
    assert_eq!(frozen.read.next(HANG_TIMEOUT).unwrap().seq_num(), 5);
    assert!(intruder.publish(Message::new(b"")).wait().is_err());
    frozen.component.stop().unwrap();
}

#[test]
fn a_sample_that_waits_for_room_is_not_published_where_that_ends_with_an_error() {
    let mut frozen = Frozen::start();
    frozen.write(MOST);
    frozen.intrude();
    let written = std::thread::scope(|scope| {
        let waits = scope.spawn(|| frozen.topic.write());
        frozen.cable.thaw();
        waits.join().unwrap()
    });
    assert_eq!(fenced(written), MOST);
    let next = 1 + i32::try_from(MOST).unwrap() + 1;
    assert_eq!(frozen.topic.write().unwrap().seq_num, next);
    assert_eq!(frozen.read.next(HANG_TIMEOUT).unwrap().seq_num(), next);
    frozen.component.stop().unwrap();
}

#[test]
fn what_has_no_receipt_yet_is_waited_for_as_long_as_is_said() {
    let mut frozen = Frozen::start();
    frozen.write(3);
    let Err(WriteError::Lost { count: 3, source: PublishError::Timeout, .. }) =
        frozen.topic.settle(Duration::ZERO)
    else {
        panic!("it was acknowledged");
    };
    frozen.write(1);
    frozen.cable.thaw();
    frozen.topic.settle(HANG_TIMEOUT).unwrap();
    let numbers: Vec<_> =
        (0..4).map(|_| frozen.read.next(HANG_TIMEOUT).unwrap().seq_num()).collect();
    assert_eq!(numbers, [2, 3, 4, 5]);
    frozen.component.stop().unwrap();
}

#[test]
fn an_end_says_what_of_the_last_telemetry_did_not_arrive() {
    let frozen = Frozen::start();
    let remote = Remote::open(&frozen.site.bus(), &frozen.site.mount(), 0).unwrap();
    let mut log = remote.event("logMessage").unwrap();
    frozen.write(3);
    frozen.intrude();
    frozen.cable.thaw();
    frozen.component.stop().unwrap();
    let told = "3 earlier samples of MTMount/telemetry/elevation did not arrive";
    let says = |reading: &Reading| reading.text("message").is_some_and(|text| text.contains(told));
    log.next_where(HANG_TIMEOUT, says).unwrap();
}
