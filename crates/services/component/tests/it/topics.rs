//! Events and telemetry: changes and repetitions, and losses of foreign writers.

use std::sync::{Arc, mpsc};

use crate::support::{HANG_TIMEOUT, Site, on_every_transport};
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::{Bus, Message, Publisher, TopicSpec};
use helio_component::protocol::sequence_gaps::SequenceStats;
use helio_component::{Component, Lease, LeaseOptions, ReadTopic, Remote, Shape, WriteTopic};
use helio_core::codec::wire::put_long;
use helio_core::sal::TopicKind;
use serde_json::json;

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
    assert_eq!(counts.next(HANG_TIMEOUT).unwrap().integer("late"), Some(2));
    component.stop().unwrap();
}

/// The process that numbered a forwarded sample.
#[derive(Clone, Copy)]
struct Writer {
    identity: &'static str,
    origin: i32,
    index: i32,
}

fn writer(identity: &'static str, origin: i32, index: i32) -> Writer {
    Writer { identity, origin, index }
}

/// A foreign program that forwards a component's samples to the bus, such as a bridge. The bus
/// numbers its samples, and cannot detect samples that the program never received.
struct Bridge {
    shape: Arc<Shape>,
    publisher: Publisher,
}

impl Bridge {
    fn new(bus: &Bus, shape: &Arc<Shape>) -> Self {
        let spec = TopicSpec::of(shape.topic().topic_name().clone()).qos(shape.topic().qos());
        let topic = bus.topic(spec.schema(shape.schema())).unwrap();
        Self { shape: Arc::clone(shape), publisher: topic.publisher().unwrap() }
    }

    /// Forwards a sample with a number of that writer, sent that many seconds after 1970.
    fn forward(&self, writer: Writer, number: i32, sent_s: f64) {
        let Writer { identity, origin, index } = writer;
        let mut sample = json!({
            "private_identity": identity, "private_origin": origin,
            "private_seqNum": number, "private_sndStamp": sent_s,
        });
        let mut key = Vec::new();
        if self.shape.topic().indexed() {
            sample["salIndex"] = index.into();
            put_long(&mut key, index.into());
        }
        let mut payload = Vec::new();
        let sample = self.shape.codec().value_from_json(&sample).unwrap();
        self.shape.codec().encode(&sample, &mut payload).unwrap();
        self.publisher.publish(Message::new(&payload).key(&key)).wait().unwrap();
    }
}

fn read_all(topic: &mut ReadTopic) -> Vec<i32> {
    std::iter::from_fn(|| topic.try_next().unwrap()).map(|reading| reading.seq_num()).collect()
}

#[test]
fn losses_of_a_foreign_writer_are_counted_by_its_numbers() {
    on_every_transport(|site: &Site| {
        let interface = site.interface("ESS");
        let shape = interface.shape(TopicKind::Telemetry, "airFlow").unwrap();
        let bridge = Bridge::new(&site.bus(), &shape);
        let [one, two] = [writer("ESS:1", 7, 1), writer("ESS:2", 7, 2)];
        bridge.forward(one, 40, 40.0);
        bridge.forward(one, 45, 45.0);
        let remote = Remote::open(&site.bus(), &interface, 0).unwrap();
        let (warn, warned) = mpsc::channel();
        remote.on_warning(move |text| warn.send(text.to_owned()).unwrap());
        let mut all = remote.telemetry("airFlow").unwrap();
        let of_two = Remote::open(&site.bus(), &interface, 2).unwrap();
        let mut of_two = of_two.telemetry("airFlow").unwrap();
        // Samples before the first received one are not counted as lost.
        assert_eq!(read_all(&mut all), [45]);
        for (who, number) in [(one, 47), (two, 3), (one, 48), (two, 4), (one, 51), (two, 9)] {
            bridge.forward(who, number, f64::from(number));
        }
        assert_eq!(read_all(&mut all), [47, 3, 48, 4, 51, 9]);
        assert_eq!(all.stats().lost, 1 + 2 + 4);
        // Late, duplicated, and restarted from 1: in another process, and in the same one.
        bridge.forward(one, 49, 49.0);
        bridge.forward(one, 51, 51.0);
        bridge.forward(writer("ESS:1", 8, 1), 1, 60.0);
        bridge.forward(one, 1, 70.0);
        bridge.forward(one, 2, 71.0);
        assert_eq!(read_all(&mut all), [49, 51, 1, 1, 2]);
        assert_eq!(all.number_stats(), SequenceStats { lost: 6, late: 1, repeated: 1 });
        assert_eq!((all.stats().lost, all.stats().duplicates), (6, 1));
        // Also in a reader that skips it.
        of_two.flush().unwrap();
        assert_eq!((of_two.stats().lost, of_two.stats().duplicates), (4, 0));
        let warned: Vec<String> = warned.try_iter().collect();
        let first = "ESS/telemetry/airFlow: 1 sample of ESS:1, process 7, did not arrive: 47 \
                     arrived, 46 was expected";
        assert_eq!(warned, [first]);
    });
}

#[test]
fn what_the_bus_lost_is_counted_once() {
    let plan = FaultPlan { drop: 0.3, seed: 5, ..FaultPlan::default() };
    let bus = Bus::builder().over(FaultTransport::connect("memory:", plan).unwrap()).unwrap();
    let site = Site::memory();
    let shape = site.mount().shape(TopicKind::Telemetry, "elevation").unwrap();
    let remote = Remote::open(&bus, &site.mount(), 0).unwrap();
    let mut elevation = remote.telemetry("elevation").unwrap();
    let bridge = Bridge::new(&bus, &shape);
    for number in 1..=300 {
        bridge.forward(writer("MTMount", 7, 0), number, f64::from(number));
    }
    let numbers = read_all(&mut elevation);
    let span = numbers[numbers.len() - 1] - numbers[0] + 1;
    let missing = span as u64 - numbers.len() as u64;
    assert!(missing > 30, "{missing}");
    assert_eq!(elevation.stats().lost, missing);
    assert_eq!(elevation.number_stats(), SequenceStats::default());
}

#[test]
fn components_of_our_own_are_counted_by_the_bus() {
    on_every_transport(|site: &Site| {
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let mut elevation = remote.telemetry("elevation").unwrap();
        for _ in 0..2 {
            let component = Component::builder(&site.bus(), &site.mount(), 0).start().unwrap();
            let topic = component.telemetry("elevation").unwrap();
            (0..5).for_each(|_| assert!(topic.write().unwrap().published));
            component.stop().unwrap();
        }
        assert_eq!(read_all(&mut elevation), (1..=10).collect::<Vec<_>>());
        let stats = elevation.stats();
        assert_eq!((stats.lost, stats.duplicates), (0, 0));
    });
}

#[test]
fn a_value_behind_which_something_unreadable_lies_is_not_dropped() {
    on_every_transport(|site: &Site| {
        let component = Component::builder(&site.bus(), &site.mount(), 0).start().unwrap();
        let event = component.event("errorCount").unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let mut counts = remote.event("errorCount").unwrap();
        assert!(counts.newest().unwrap().is_none());
        let stranger = Bridge::new(&site.bus(), event.shape());
        let mut late = |count: i64| {
            let newest = counts.newest().map(|newest| newest.and_then(|n| n.integer("late")));
            assert!(newest.unwrap_err().to_string().contains("cannot be read"));
            // Reported once.
            let newest = counts.newest().unwrap().and_then(|newest| newest.integer("late"));
            assert_eq!(newest, Some(count));
        };
        let garbage = Message::new(b"no record").key(b"another");
        event.set("late", 1).write().unwrap();
        stranger.publisher.publish(garbage).wait().unwrap();
        late(1);
        stranger.publisher.publish(garbage).wait().unwrap();
        late(1);
        // Newer samples are counted.
        stranger.publisher.publish(garbage).wait().unwrap();
        event.set("late", 2).write().unwrap();
        let newest = counts.newest().unwrap().and_then(|newest| newest.integer("late"));
        assert_eq!(newest, Some(2));
        component.stop().unwrap();
    });
}

#[test]
fn values_that_were_not_fetched_yet_are_not_missing() {
    let site = Site::memory();
    // Its readers receive nothing at the first polls of a sample.
    let late = Bus::connect(&format!("fault:{}?delay=1&seed=1", site.url())).unwrap();
    let (mount, bus) = (site.mount(), site.bus());
    let component = Component::builder(&bus, &mount, 0).start().unwrap();
    let event = component.event("errorCount").unwrap();
    assert!((1..=3).all(|count| published(&event, count)));
    let remote = Remote::open(&late, &mount, 0).unwrap();
    let mut counts = remote.event("errorCount").unwrap();
    assert_eq!(counts.newest().unwrap().unwrap().integer("late"), Some(3));
    counts.flush().unwrap();
    assert!(published(&event, 4));
    assert_eq!(counts.next(HANG_TIMEOUT).unwrap().integer("late"), Some(4));
    // The holder of the lease, which a second instance names.
    let held = Lease::claim(&late, &mount, 0, LeaseOptions::default()).unwrap_err().to_string();
    assert!(held.contains(&format!("process {} on ", std::process::id())), "{held}");
    component.stop().unwrap();
    // The numbers of its samples continue.
    let component = Component::builder(&late, &mount, 0).start().unwrap();
    let written = component.event("errorCount").unwrap().set("late", 5).write().unwrap();
    assert_eq!(written.seq_num, 5);
    component.stop().unwrap();
}
