//! Readers that stand still, are slow, or lose packets, beside three that live: the writers of
//! telemetry and logs wait for none of them, and each of them loses alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::others::Foreign;
use crate::storm_report::Storm;
use crate::support::{Process, Service, await_kept, domain, url};
use helio_bus::{
    Bus, Event, GapCause, Guarantee, Lagging, Message, PublishError, Qos, Start, Subscribe,
    Subscription, Topic, TopicSpec,
};
use helio_core::Schema;
use helio_core::idl::TopicType;
use helio_core::qos::{Durability, History, Overload, Retention};
use rustix::process::Signal;
use serde_json::json;

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// More than twice what a writer keeps for a reader.
const COUNT: u64 = 5_000;
/// A live reader has this times what a writer keeps to be scheduled again: 2 s.
const INTERVAL: Duration = Duration::from_millis(1);
/// A reader reports its progress each time after so many samples.
const PROGRESS: u64 = 500;
/// It reports again after so long without a sample, so that a failure says how far it came.
const IDLE_REPORT: Duration = Duration::from_secs(2);
/// Longer than a test.
const LEASE: &str = "lease_s=300";

const SCHEMA: &str = r#"{"type": "record", "name": "soak.Flow", "fields": [
    {"name": "number", "type": "long"}]}"#;

fn telemetry() -> Qos {
    Qos::telemetry()
}

/// A log, as a site that has a queue of its own opens it.
fn log() -> Qos {
    Qos { overload: Overload::Refuse, ..Qos::log() }
}

/// What waits for its readers.
fn commands() -> Qos {
    let retention = Retention { last_value: false, ..Qos::telemetry().retention };
    let (durability, history) = (Durability::Volatile, History::None);
    Qos { durability, history, retention, overload: Overload::Refuse, ..Qos::telemetry() }
}

fn flow(bus: &Bus, qos: Qos) -> Topic {
    let schema = Schema::parse(SCHEMA).unwrap();
    bus.topic(TopicSpec::new("flow").unwrap().qos(qos).schema(schema)).unwrap()
}

fn qos(name: &str) -> Qos {
    match name {
        "telemetry" => telemetry(),
        "log" => log(),
        _ => commands(),
    }
}

fn reports(bus: &Bus) -> Topic {
    bus.topic(TopicSpec::new("report").unwrap().qos(Qos::telemetry())).unwrap()
}

/// Not a test by itself: the readers' processes run it. The role is the quality of service and the
/// reader's name.
#[test]
fn child() {
    let Ok(role) = std::env::var("HELIO_TEST_ROLE") else { return };
    helio_dds::register();
    let (of, name) = role.split_once(' ').unwrap();
    let bus = Bus::connect(&std::env::var("HELIO_TEST_URL").unwrap()).unwrap();
    let options = Subscribe::from(Start::Latest).lagging(Lagging::Lossless);
    let mut samples = flow(&bus, qos(of)).subscribe(options).unwrap();
    let publisher = reports(&bus).publisher().unwrap();
    let (mut received, mut behind, mut other) = (0, 0, 0);
    let (mut first, mut last) = (0, 0);
    let mut idle = false;
    loop {
        let all = received + behind + other >= COUNT;
        // All is reported once: a report that is lost is a failure, too.
        let due = if idle { !all } else { all || received % PROGRESS == 0 };
        if due {
            let text = format!("{received} {behind} {other} {first} {last}");
            publisher.publish(Message::new(text.as_bytes()).key(name.as_bytes())).wait().unwrap();
        }
        let event = samples.next_timeout(IDLE_REPORT).unwrap();
        idle = event.is_none();
        match event {
            Some(Event::Sample(sample)) => {
                received += 1;
                last = sample.header.sequence;
                first = if first == 0 { last } else { first };
            }
            Some(Event::Gap(gap)) if matches!(gap.cause, GapCause::Behind { .. }) => {
                behind += gap.lost;
            }
            Some(Event::Gap(gap)) => other += gap.lost,
            _ => {}
        }
    }
}

/// What the readers have reported: received, behind, lost otherwise, the first and the last number.
struct Reports(Subscription, BTreeMap<String, [u64; 5]>);

impl Reports {
    fn of(bus: &Bus) -> Self {
        Self(reports(bus).subscribe(Subscribe::from(Start::Last(1))).unwrap(), BTreeMap::new())
    }

    fn await_of(&mut self, name: &str, enough: impl Fn(&[u64; 5]) -> bool) -> [u64; 5] {
        let until = Instant::now() + TEST_TIMEOUT;
        while !self.1.get(name).is_some_and(&enough) {
            assert!(Instant::now() < until, "{name} does not go on: {:?}", self.1);
            let event = self.0.next_timeout(Duration::from_millis(100)).unwrap();
            if let Some(sample) = event.and_then(Event::into_sample) {
                let text = std::str::from_utf8(&sample.payload).unwrap();
                let mut numbers = text.split(' ').map(|number| number.parse().unwrap());
                let name = String::from_utf8(sample.key.to_vec()).unwrap();
                self.1.insert(name, std::array::from_fn(|_| numbers.next().unwrap()));
            }
        }
        self.1[name]
    }
}

/// Whether a reader has received or reported all samples.
fn has_all(seen: &[u64; 5]) -> bool {
    seen[..3].iter().sum::<u64>() >= COUNT
}

fn flow_type() -> TopicType {
    TopicType::new(&Schema::parse(SCHEMA).unwrap()).unwrap()
}

/// The request to count samples up to one.
fn until(number: u64) -> serde_json::Value {
    json!({"type": flow_type().name(), "topic": "flow", "until": number})
}

/// The lease is longer than the test: nothing goes on because it has expired. A reader that loses
/// packets is discovered all the same.
const DISCOVERY: &str = "<Discovery><LeaseDuration>300 s</LeaseDuration>\
                         <SPDPInterval>1 s</SPDPInterval></Discovery>";
/// Of a reader that loses most of what is sent to it at a time, and some of its own answers.
const LOSSY: &str = "<Internal><SocketReceiveBufferSize min=\"default\" max=\"4 kB\"/>\
                     <Test><XmitLossiness>100</XmitLossiness></Test></Internal>";

/// The option that names a Cyclone configuration.
fn config(folder: &Path, name: &str, elements: &[&str]) -> String {
    let file = folder.join(name);
    let elements = elements.concat();
    let text = format!("<CycloneDDS><Domain id=\"any\">{elements}</Domain></CycloneDDS>");
    std::fs::write(&file, text).unwrap();
    format!("&config={}", file.display())
}

fn encoded(number: u64) -> Vec<u8> {
    let value = helio_core::codec::Value::Record(vec![helio_core::codec::Value::Long(
        i64::try_from(number).unwrap(),
    )]);
    let mut payload = Vec::new();
    let schema = Schema::parse(SCHEMA).unwrap();
    helio_core::codec::Codec::new(&schema).encode(&value, &mut payload).unwrap();
    payload
}

/// A foreign participant that counts samples up to the last one.
fn counting(domain: u32) -> Option<Foreign> {
    let mut foreign = Foreign::join(domain, &flow_type().text())?;
    // The last value says that it was met.
    foreign.ask("count", until(0));
    foreign.answered();
    foreign.ask("count", until(COUNT - 1));
    Some(foreign)
}

const LAGGARDS: [&str; 3] = ["stopped", "slow", "lossy"];

/// The readers that do not keep up.
struct Laggards {
    stopped: Process,
    slow: Process,
    _lossy: Process,
    foreign: Option<Foreign>,
}

impl Laggards {
    fn stand_still(&self) {
        self.stopped.signal(Signal::STOP);
        self.foreign.iter().for_each(|foreign| foreign.signal(Signal::STOP));
    }

    fn go_on(&mut self) {
        self.stopped.signal(Signal::CONT);
        self.slow.signal(Signal::CONT);
        if let Some(foreign) = &mut self.foreign {
            foreign.signal(Signal::CONT);
            let count = foreign.answered()["count"].as_u64().unwrap();
            assert!(count > 0 && count < COUNT, "the foreign reader received {count}");
        }
    }
}

/// Ends the threads of a scope, also if an assertion fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Lets a reader run for a tenth of the time until `done`.
fn slow_down(slow: &Process, done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        slow.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(90));
        slow.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Publishes all samples while the laggards lag, up to the last one.
fn publish_all(topic: &Topic, guarantee: Guarantee) -> Vec<helio_bus::PendingPublish> {
    let publisher = topic.publisher().unwrap();
    let mut due = Instant::now();
    let publish = |number: u64| {
        due += INTERVAL;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        publisher.publish(Message::new(&encoded(number)).guarantee(guarantee))
    };
    let pending: Vec<_> = (1..COUNT - 1).map(publish).collect();
    let stats = publisher.stats();
    assert_eq!((stats.refused, stats.dropped), (0, 0), "a reader held up the writer");
    pending
}

fn lag(of: &str, service: Option<&Path>) {
    let domain = domain();
    // A reader that loses packets takes its time to find the service.
    let url = url(domain).replace("service_ms=500", "service_ms=60000");
    let folder = tempfile::tempdir().unwrap();
    let lossy_url = url.clone() + &config(folder.path(), "lossy.xml", &[DISCOVERY, LOSSY]);
    let url = url + &config(folder.path(), "all.xml", &[DISCOVERY]);
    let _service = service.map(|folder| Service::start(&url, folder));
    let bus = Bus::connect(&url).unwrap();
    let topic = flow(&bus, qos(of));
    let publisher = topic.publisher().unwrap();
    let live = ["live-1", "live-2", "live-3"];
    let _live = live.map(|name| Process::start(module_path!(), &format!("{of} {name}"), &url));
    let [stopped, slow, lossy] = LAGGARDS.map(|name| {
        let url = if name == "lossy" { &lossy_url } else { &url };
        Process::start(module_path!(), &format!("{of} {name}"), url)
    });
    let mut reports = Reports::of(&bus);
    for name in live.into_iter().chain(LAGGARDS) {
        reports.await_of(name, |_| true);
    }
    publisher.publish(Message::new(&encoded(0))).wait_timeout(TEST_TIMEOUT).unwrap();
    let mut laggards = Laggards { stopped, slow, _lossy: lossy, foreign: counting(domain) };
    laggards.stand_still();
    let (done, pending) = (AtomicBool::new(false), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        scope.spawn(|| slow_down(&laggards.slow, &done));
        let _end = End(&done);
        *pending.lock().unwrap() = publish_all(&topic, Guarantee::Stored);
        // All of them, while others still stand.
        for name in live {
            let seen = reports.await_of(name, |seen| seen[0] >= COUNT - PROGRESS);
            assert_eq!(seen[1..3], [0, 0], "{name}: {seen:?}");
        }
    });
    // Receipts do not wait for who stands still, either.
    for pending in pending.into_inner().unwrap() {
        pending.wait_timeout(TEST_TIMEOUT).unwrap();
    }
    publisher.publish(Message::new(&encoded(COUNT - 1))).wait_timeout(TEST_TIMEOUT).unwrap();
    laggards.go_on();
    for name in live {
        let seen = reports.await_of(name, has_all);
        assert_eq!(seen, [COUNT, 0, 0, 1, COUNT], "{name} loses nothing");
    }
    let (mut tried, mut unreported) = (0, 0);
    for name in LAGGARDS {
        let seen = reports.await_of(name, has_all);
        (tried, unreported) = (tried + 1, unreported + COUNT.abs_diff(seen[0] + seen[1]));
        assert_eq!((seen[0] + seen[1], seen[2]), (COUNT, 0), "{name}: {seen:?}");
        assert!(seen[1] > 0 || name != "stopped", "{name} cannot have all: {seen:?}");
    }
    if let Some(folder) = service {
        await_kept(folder, "flow", COUNT);
    }
    let storm = Storm { tried, survived: tried, lost: 0, unreported };
    storm.report(&format!("stopped, slow, lossy readers of {of} on DDS"));
}

#[test]
fn a_reader_of_telemetry_that_does_not_keep_up_loses_alone() {
    lag("telemetry", None);
}

#[test]
fn a_reader_of_a_log_that_does_not_keep_up_loses_alone_and_the_service_has_all() {
    let folder = tempfile::tempdir().unwrap();
    lag("log", Some(folder.path()));
}

#[test]
fn a_writer_that_waits_names_the_session_that_stands_still() {
    let url = format!("{}&{LEASE}", url(domain()));
    let stopped = Process::start(module_path!(), "commands stopped", &url);
    let bus = Bus::connect(&url).unwrap();
    let mut reports = Reports::of(&bus);
    let topic = flow(&bus, commands());
    topic.declare().unwrap();
    reports.await_of("stopped", |_| true);
    let publisher = topic.publisher().unwrap();
    stopped.signal(Signal::STOP);
    let until = Instant::now() + TEST_TIMEOUT;
    let named = loop {
        let accepted = Message::new(&[0; 1]).guarantee(Guarantee::Accepted);
        match publisher.publish(accepted).outcome().unwrap() {
            // The process is named, too, when it stands still.
            Err(PublishError::Full { waits_for: Some(named), .. }) if named.contains('(') => {
                break named;
            }
            Err(error) if !matches!(error, PublishError::Full { .. }) => panic!("{error}"),
            _ => assert!(Instant::now() < until, "it never named the session"),
        }
    };
    let process = format!("process {}", stopped.id());
    assert!(named.contains("session ") && named.contains(&process), "{named}");
    stopped.signal(Signal::CONT);
    while let Err(error) = publisher.publish(Message::new(&[0; 1])).wait() {
        assert!(matches!(error, PublishError::Full { .. }) && Instant::now() < until, "{error}");
    }
}

#[test]
fn receipts_come_though_each_acknowledgement_takes_longer_than_the_pauses_of_the_writer() {
    let url = format!("{}&{LEASE}", url(domain()));
    let slow = Process::start(module_path!(), "commands slow", &url);
    let bus = Bus::connect(&url).unwrap();
    let mut reports = Reports::of(&bus);
    let topic = flow(&bus, commands());
    topic.declare().unwrap();
    reports.await_of("slow", |_| true);
    let publisher = topic.publisher().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // It runs for a tenth of the time, and never catches up with the flood in one go.
        scope.spawn(|| slow_down(&slow, &done));
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let flood = Message::new(&[0; 1]).guarantee(Guarantee::Accepted);
                // A publish without room is not waited for.
                let _ = publisher.publish(flood).outcome();
            }
        });
        let _end = End(&done);
        let until = Instant::now() + TEST_TIMEOUT;
        let stored = || loop {
            let stored = Message::new(&[0; 1]).guarantee(Guarantee::Stored);
            match publisher.publish(stored).wait_timeout(TEST_TIMEOUT) {
                Err(PublishError::Full { .. }) if Instant::now() < until => {}
                outcome => return outcome,
            }
        };
        let outcomes: Vec<_> = (0..20).map(|_| stored()).collect();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    });
}
