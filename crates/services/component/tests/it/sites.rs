//! Mixed sites: components of other software under the same name, which publish heartbeats and take
//! no lease. One command has one acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{HANG_TIMEOUT, Site, on_every_transport, only};
use helio_bus::{
    Bus, Message, PublishError, Publisher, Start, Subscribe, Tai, TestClock, Topic, TopicSpec,
};
use helio_component::protocol::SummaryState;
use helio_component::protocol::caller::{Cause, Presence};
use helio_component::{
    Command, Component, Interface, LeaseError, Remote, RunError, Running, Shape, StartError,
};
use helio_core::sal::TopicKind;
use serde_json::json;

/// The interval of the simulated heartbeats; salobj's is a second.
const BEAT: Duration = Duration::from_millis(100);

fn ours(bus: &Bus, interface: &Interface) -> Result<Running, StartError> {
    Component::builder(bus, interface, 0)
        .inline("stop", |_: &Command| Ok(()))
        .initial_state(SummaryState::Enabled)
        .start()
}

fn open(bus: &Bus, shape: &Shape) -> Topic {
    let spec = TopicSpec::of(shape.topic().topic_name().clone()).qos(shape.topic().qos());
    bus.topic(spec.schema(shape.schema())).unwrap()
}

fn publish(shape: &Shape, publisher: &Publisher, fields: serde_json::Value) {
    let value = shape.codec().value_from_json(&fields).unwrap();
    let mut payload = Vec::new();
    shape.codec().encode(&value, &mut payload).unwrap();
    match publisher.publish(Message::new(&payload)).wait() {
        Ok(_) | Err(PublishError::Transport(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// A component of other software: heartbeats, and one final acknowledgement of each command.
struct Foreign {
    ended: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Foreign {
    /// Starts it; it has published a heartbeat when this returns.
    fn start(bus: &Bus, interface: &Interface) -> Self {
        let shape = |kind, name| interface.shape(kind, name).unwrap();
        let beat = shape(TopicKind::Event, "heartbeat");
        let (stop, acks) = (shape(TopicKind::Command, "stop"), shape(TopicKind::Ack, "ackcmd"));
        let mut commands = open(bus, &stop).subscribe(Subscribe::from(Start::Latest)).unwrap();
        let [beats, replies] = [&beat, &acks].map(|shape| open(bus, shape).publisher().unwrap());
        let ended = Arc::<AtomicBool>::default();
        let acknowledged = Arc::<AtomicUsize>::default();
        let (over, count) = (Arc::clone(&ended), Arc::clone(&acknowledged));
        let heartbeat = move || {
            publish(&beat, &beats, json!({"private_identity": "MTMount", "private_origin": 77}));
        };
        heartbeat();
        let serve = move || {
            let mut next = Instant::now() + BEAT;
            while !over.load(Ordering::SeqCst) {
                let left = next.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    heartbeat();
                    next += BEAT;
                }
                let Ok(Some(event)) = commands.next_timeout(left) else { continue };
                let Some(sample) = event.into_sample() else { continue };
                let asked = stop.codec().decode(&sample.payload).unwrap();
                let asked = stop.codec().value_to_json(&asked).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let ack = json!({
                    "private_seqNum": asked["private_seqNum"], "ack": 303, "result": "foreign",
                    "identity": asked["private_identity"], "origin": asked["private_origin"],
                });
                publish(&acks, &replies, ack);
            }
        };
        Self { ended, acknowledged, thread: Some(std::thread::spawn(serve)) }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Counts the final acknowledgements of one command.
fn answers(bus: &Bus, interface: &Interface, remote: &Remote) -> Vec<String> {
    let acks = interface.shape(TopicKind::Ack, "ackcmd").unwrap();
    let mut all = open(bus, &acks).subscribe(Subscribe::from(Start::Latest)).unwrap();
    remote.command("stop").send().wait().unwrap();
    // A second answer would come by now: both answer at once.
    let until = Instant::now() + 2 * BEAT;
    let mut results = Vec::new();
    while let Some(event) = all.next_timeout(until - Instant::now().min(until)).unwrap() {
        let Some(sample) = event.into_sample() else { continue };
        let ack = acks.codec().value_to_json(&acks.codec().decode(&sample.payload).unwrap());
        let ack = ack.unwrap();
        if ack["ack"] == json!(303) {
            results.push(ack["result"].as_str().unwrap().to_owned());
        }
    }
    results
}

fn found_another(error: &LeaseError) {
    assert!(matches!(error, LeaseError::Foreign { .. }), "{error}");
    let text = error.to_string();
    let whence = "its heartbeat has private_identity=\"MTMount\", private_origin=77";
    assert!(text.starts_with("found another instance of MTMount: "), "{text}");
    assert!(text.contains(whence), "{text}");
}

#[test]
fn ours_does_not_start_beside_a_foreign_one() {
    on_every_transport(|site: &Site| {
        let (bus, mount) = (site.bus(), site.mount());
        let foreign = Foreign::start(&bus, &mount);
        let Err(StartError::Lease(error)) = ours(&site.bus(), &mount) else {
            panic!("both run");
        };
        found_another(&error);
        let remote = Remote::open(&site.bus(), &mount, 0).unwrap();
        assert_eq!(answers(&bus, &mount, &remote), ["foreign"]);
        assert_eq!(foreign.acknowledged(), 1);
    });
}

#[test]
fn a_foreign_one_after_ours_is_there() {
    on_every_transport(|site: &Site| {
        let (bus, mount) = (site.bus(), site.mount());
        let remote = Remote::open(&site.bus(), &mount, 0).unwrap();
        let component = ours(&site.bus(), &mount).unwrap();
        assert_eq!(answers(&bus, &mount, &remote), ["Done"]);
        component.stop().unwrap();
        // Our own last heartbeat is a moment old, and delays nothing.
        assert_eq!(remote.presence().unwrap(), Presence::Gone);
        let error = remote.command("stop").send().wait().unwrap_err();
        assert_eq!(error.cause(), Some(Cause::NobodyThere));
        let foreign = Foreign::start(&site.bus(), &mount);
        assert_eq!(remote.presence().unwrap(), Presence::Unknown);
        assert_eq!(answers(&bus, &mount, &remote), ["foreign"]);
        // A caller that comes now knows no other.
        let late = Remote::open(&site.bus(), &mount, 0).unwrap();
        assert_eq!(answers(&bus, &mount, &late), ["foreign"]);
        assert_eq!(foreign.acknowledged(), 2);
        // Its exit is detected at once: its writers are gone.
        drop(foreign);
        assert_eq!(remote.presence().unwrap(), Presence::Gone);
    });
}

#[test]
fn a_foreign_one_that_comes_ends_ours() {
    on_every_transport(|site: &Site| {
        let (bus, mount) = (site.bus(), site.mount());
        let component = ours(&site.bus(), &mount).unwrap();
        let foreign = Foreign::start(&bus, &mount);
        let Err(RunError::Foreign(error)) = component.wait() else { panic!("both run") };
        found_another(&error);
        let remote = Remote::open(&site.bus(), &mount, 0).unwrap();
        assert_eq!(answers(&bus, &mount, &remote), ["foreign"]);
        assert_eq!(foreign.acknowledged(), 1);
    });
}

#[test]
fn of_two_that_start_together_one_stays() {
    on_every_transport(|site: &Site| {
        let (bus, mount) = (site.bus(), site.mount());
        let (other, interface) = (site.bus(), site.mount());
        let starting = std::thread::spawn(move || ours(&other, &interface));
        let foreign = Foreign::start(&bus, &mount);
        match starting.join().unwrap() {
            Err(StartError::Lease(error)) => found_another(&error),
            Err(error) => panic!("{error}"),
            Ok(component) => {
                let Err(RunError::Foreign(error)) = component.wait() else { panic!("both run") };
                found_another(&error);
            }
        }
        let remote = Remote::open(&site.bus(), &mount, 0).unwrap();
        assert_eq!(answers(&bus, &mount, &remote), ["foreign"]);
        assert_eq!(foreign.acknowledged(), 1);
    });
}

#[test]
fn a_foreign_one_whose_clock_is_wrong_is_there() {
    for off_s in [-60_i64, 60] {
        on_every_transport(|site: &Site| {
            let (bus, mount) = (site.bus(), site.mount());
            let now = bus.clock().now().nanos() + off_s * 1_000_000_000;
            let clock = TestClock::new(Tai::from_nanos(now));
            let wrong = Bus::builder().clock(Arc::new(clock)).connect(site.url()).unwrap();
            ours(&bus, &mount).unwrap().stop().unwrap();
            let _foreign = Foreign::start(&wrong, &mount);
            let remote = Remote::open(&site.bus(), &mount, 0).unwrap();
            assert_eq!(remote.presence().unwrap(), Presence::Unknown, "{off_s} s off");
            assert_eq!(answers(&bus, &mount, &remote), ["foreign"], "{off_s} s off");
            assert!(ours(&bus, &mount).is_err(), "{off_s} s off: both run");
        });
    }
}

/// The test below runs this in a separate process.
#[test]
fn foreign_child() {
    let Ok(url) = std::env::var("HELIO_FOREIGN_CHILD") else { return };
    let _foreign = Foreign::start(&Bus::connect(&url).unwrap(), &Site::memory().mount());
    std::thread::park();
}

#[test]
fn a_foreign_one_that_is_killed_is_gone_and_ours_starts() {
    let site = Site::journal();
    let mount = site.mount();
    let mut child = only(module_path!(), "foreign_child")
        .env("HELIO_FOREIGN_CHILD", site.url())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let remote = Remote::open(&site.bus(), &mount, 0).unwrap();
    let until = Instant::now() + HANG_TIMEOUT;
    while remote.presence().unwrap() != Presence::Unknown {
        assert!(Instant::now() < until, "it never came");
        std::thread::yield_now();
    }
    assert_eq!(answers(&site.bus(), &mount, &remote), ["foreign"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(remote.presence().unwrap(), Presence::Gone);
    let error = remote.command("stop").send().wait().unwrap_err();
    assert_eq!(error.cause(), Some(Cause::NobodyThere));
    // Its last heartbeat is stored: ours listens, and starts.
    let component = ours(&site.bus(), &mount).unwrap();
    assert_eq!(answers(&site.bus(), &mount, &remote), ["Done"]);
    component.stop().unwrap();
}
