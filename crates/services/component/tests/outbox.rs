//! What a component says while topics fail, hold up their writers, or cannot be read.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use helio_bus::transport::Opening;
use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_bus::{
    Bus, Clock, Message, Start, Subscribe, Subscription, SystemClock, Tai, TestClock, TopicName,
    TopicSpec,
};
use helio_component::protocol::caller::{Cause, Presence};
use helio_component::protocol::controller::{AUDIT_LOST, AUDIT_PATIENCE};
use helio_component::protocol::{AckCode, SummaryState};
use helio_component::{
    AuditPhase, AuditRecord, Builder, Command, Component, Failed, LEASE, Lease, LeaseOptions,
    ReadTopic, Reading, Remote, RunError, WriteError,
};
use helio_core::schema::HasSchema;
use helio_core::{Codec, ProducerName};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use support::{PATIENCE, Site, on_every_transport};

/// A site whose component is on a bus that can be made to fail; others are not.
struct Failing {
    site: Site,
    bus: Bus,
    cable: Cable,
    clock: Arc<dyn Clock>,
}

/// A bus on a site, with its cable.
fn faulty(site: &Site, clock: &Arc<dyn Clock>) -> (Bus, Cable) {
    let opening = Opening { url: site.url().parse().unwrap(), clock: Arc::clone(clock) };
    let transport = FaultTransport::open(&opening, FaultPlan::default()).unwrap();
    let cable = transport.cable();
    (Bus::builder().clock(Arc::clone(clock)).over(transport).unwrap(), cable)
}

impl Failing {
    fn new() -> Self {
        Self::by(Arc::new(SystemClock::new()))
    }

    fn by(clock: Arc<dyn Clock>) -> Self {
        let site = Site::memory();
        let (bus, cable) = faulty(&site, &clock);
        Self { site, bus, cable, clock }
    }

    fn mount(&self) -> Builder {
        let builder = Component::builder(&self.bus, &self.site.mount(), 0);
        builder.initial_state(SummaryState::Enabled)
    }

    fn other(&self) -> Bus {
        Bus::builder().clock(Arc::clone(&self.clock)).connect(self.site.url()).unwrap()
    }

    fn remote(&self) -> Remote {
        Remote::open(&self.other(), &self.site.mount(), 0).unwrap()
    }
}

fn name(topic: &str) -> TopicName {
    TopicName::new(&format!("MTMount/{topic}")).unwrap()
}

fn audit(bus: &Bus) -> Subscription {
    let topic = bus.topic(TopicSpec::of(name("audit"))).unwrap();
    topic.subscribe(Subscribe::from(Start::Earliest)).unwrap()
}

/// The next records: command, and whether it has ended.
fn records(samples: &mut Subscription, count: usize) -> Vec<(String, AuditPhase)> {
    let codec = Codec::new(&AuditRecord::schema().unwrap());
    let mut next = || {
        let event = samples.next_timeout(PATIENCE).unwrap().expect("a record");
        let sample = event.into_sample().unwrap();
        let record: AuditRecord = codec.deserialize(&sample.payload).unwrap();
        (record.command, record.phase)
    };
    (0..count).map(|_| next()).collect()
}

fn both(command: &str) -> [(String, AuditPhase); 2] {
    [AuditPhase::Received, AuditPhase::Finished].map(|phase| (command.to_owned(), phase))
}

fn says(word: &'static str) -> impl FnMut(&Reading) -> bool {
    move |reading| reading.text("message").is_some_and(|text| text.contains(word))
}

fn is_state(state: SummaryState) -> impl FnMut(&Reading) -> bool {
    move |reading| reading.integer("summaryState") == Some(i64::from(state.number()))
}

#[test]
fn what_cannot_be_published_comes_later_and_in_order() {
    let failing = Failing::new();
    let (cable, topics) = (failing.cable.clone(), ["ackcmd", "audit"].map(name));
    let broken = topics.clone();
    let (runs, ran) = mpsc::channel();
    let moves = runs.clone();
    let component = failing
        .mount()
        .inline("moveToTarget", move |_: &Command| {
            broken.iter().for_each(|topic| cable.break_topic(topic));
            moves.send(())?;
            Ok::<_, Failed>("arrived")
        })
        // On the same thread, so when it runs what the one before it says was tried.
        .inline("stop", move |_: &Command| runs.send(()).map_err(|_| Failed::aborted()))
        .start()
        .unwrap();
    let remote = failing.remote();
    let mut records_of = audit(&failing.other());
    let first = remote.command("moveToTarget").timeout(PATIENCE).send();
    ran.recv_timeout(PATIENCE).unwrap();
    let second = remote.command("stop").timeout(PATIENCE).send();
    ran.recv_timeout(PATIENCE).unwrap();
    topics.iter().for_each(|topic| failing.cable.mend_topic(topic));
    assert_eq!(first.wait().unwrap().result, "arrived");
    assert_eq!(second.wait().unwrap().code, AckCode::Complete);
    assert_eq!(records(&mut records_of, 4), [both("moveToTarget"), both("stop")].concat());
    component.stop().unwrap();
}

#[test]
fn a_state_that_cannot_be_published_comes_later_and_the_acknowledgement_after_its_failure() {
    let failing = Failing::new();
    let component = failing.mount().initial_state(SummaryState::Disabled).start().unwrap();
    let remote = failing.remote();
    let mut states = remote.event("summaryState").unwrap();
    states.next(PATIENCE).unwrap();
    let topic = states.shape().topic().topic_name().clone();
    failing.cable.break_topic(&topic);
    remote.command("enable").timeout(PATIENCE).send().wait().unwrap();
    assert_eq!(component.state(), SummaryState::Enabled);
    assert!(states.try_next().unwrap().is_none());
    remote.command("disable").timeout(PATIENCE).send().wait().unwrap();
    failing.cable.mend_topic(&topic);
    let mut next = || states.next(PATIENCE).unwrap().integer("summaryState");
    assert_eq!([next(), next()], [Some(2), Some(1)]);
    component.stop().unwrap();
}

#[test]
fn without_an_audit_nothing_is_run_after_a_while() {
    let clock = TestClock::new(Tai::from_nanos(2_000_000_000_000_000_000));
    let failing = Failing::by(Arc::new(clock.clone()));
    let component = failing.mount().inline("stop", |_: &Command| Ok(())).start().unwrap();
    let remote = failing.remote();
    let stop = || remote.command("stop").timeout(PATIENCE).send().wait();
    let event = |name: &str| remote.event(name).unwrap();
    let [mut states, mut errors, mut log] = ["summaryState", "errorCode", "logMessage"].map(event);
    stop().unwrap();
    failing.cable.break_topic(&name("audit"));
    // For some seconds it goes on.
    stop().unwrap();
    clock.advance(AUDIT_PATIENCE);
    // That is longer than a lease too: what lies there when it sees that is not taken.
    log.next_where(PATIENCE, says("silent for longer than its lease")).unwrap();
    states.next_where(PATIENCE, is_state(SummaryState::Fault)).unwrap();
    let fault = |reading: &Reading| reading.integer("errorCode") == Some(AUDIT_LOST.into());
    let told = errors.next_where(PATIENCE, fault).unwrap();
    assert!(told.text("errorReport").unwrap().contains("the audit of MTMount"));
    let refused = stop().unwrap_err();
    assert_eq!(refused.code(), Some(AckCode::Failed), "{refused}");
    assert!(refused.to_string().contains("audit of MTMount cannot be written"), "{refused}");
    assert_eq!(component.state(), SummaryState::Fault);
    failing.cable.mend_topic(&name("audit"));
    log.next_where(PATIENCE, says("the audit is written again")).unwrap();
    stop().unwrap();
    // Nothing is missing.
    let mut expected = [both("stop"), both("stop")].concat();
    expected.push(("stop".to_owned(), AuditPhase::Finished));
    expected.extend(both("stop"));
    assert_eq!(records(&mut audit(&failing.other()), 7), expected);
    component.stop().unwrap();
}

/// What an outage hides is not known: neither that it is gone, nor that another is there.
#[test]
fn an_outage_that_is_longer_than_its_lease_ends_no_component() {
    for replaced in [false, true] {
        let clock = TestClock::new(Tai::from_nanos(2_000_000_000_000_000_000));
        let failing = Failing::by(Arc::new(clock.clone()));
        let stop = failing.mount().inline("stop", |_: &Command| Ok(()));
        let component = stop.start().unwrap();
        let count = component.event("errorCount").unwrap();
        let remote = failing.remote();
        let mut log = remote.event("logMessage").unwrap();
        let stop = || remote.command("stop").timeout(PATIENCE).send().wait();
        stop().unwrap();
        failing.cable.pull();
        clock.advance(LEASE + Duration::from_secs(1));
        assert_eq!(stop().unwrap_err().cause(), Some(Cause::NobodyThere));
        // It may be written again when the bus is back.
        let refused = count.set("late", 1).write().unwrap_err();
        assert!(matches!(refused, WriteError::Publish { .. }), "{refused}");
        // Who cannot look sends all the same.
        let (blind, broken) = faulty(&failing.site, &failing.clock);
        broken.break_topic(&name("lease/0"));
        let blind = Remote::open(&blind, &failing.site.mount(), 0).unwrap();
        let unsure = blind.command("stop").timeout(PATIENCE).send();
        if replaced {
            let (bus, mount) = (failing.other(), failing.site.mount());
            let lease = Lease::claim(&bus, &mount, 0, LeaseOptions::default()).unwrap();
            failing.cable.put_back();
            assert!(matches!(component.wait(), Err(RunError::LeaseLost { .. })));
            assert!(lease.is_held());
            continue;
        }
        failing.cable.put_back();
        log.next_where(PATIENCE, says("silent for longer than its lease")).unwrap();
        let refused = unsure.wait().unwrap_err().to_string();
        assert!(refused.contains("cannot be confirmed; not run"), "{refused}");
        stop().unwrap();
        component.stop().unwrap();
    }
}

/// A caller who cannot look does not take who was gone for gone.
#[test]
fn who_was_gone_is_commanded_where_nobody_can_tell() {
    let failing = Failing::new();
    let caller = Remote::open(&failing.bus, &failing.site.mount(), 0).unwrap();
    let start = || {
        let builder = Component::builder(&failing.other(), &failing.site.mount(), 0);
        builder.inline("stop", |_: &Command| Ok(())).start().unwrap()
    };
    let stop = || caller.command("stop").timeout(PATIENCE).send().wait();
    let component = start();
    stop().unwrap();
    component.stop().unwrap();
    assert_eq!(caller.presence().unwrap(), Presence::Gone);
    let component = start();
    failing.cable.break_topic(&name("lease/0"));
    assert!(caller.presence().is_err());
    stop().unwrap();
    component.stop().unwrap();
}

#[test]
fn the_audit_is_taken_back() {
    on_every_transport(|site: &Site| {
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .inline("stop", |_: &Command| Ok(()))
            .start()
            .unwrap();
        let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
        let stop = || remote.command("stop").timeout(PATIENCE).send().wait().unwrap();
        stop();
        let other = site.bus();
        let spec = TopicSpec::of(name("audit")).producer(ProducerName::new("MTMount").unwrap());
        let intruder = other.topic(spec).unwrap().publisher().unwrap();
        stop();
        stop();
        let expected = [both("stop"), both("stop"), both("stop")].concat();
        assert_eq!(records(&mut audit(&other), 6), expected);
        assert!(intruder.publish(Message::new(b"")).wait().is_err());
        component.stop().unwrap();
    });
}

#[test]
fn a_command_that_cannot_be_read_leaves_the_others() {
    let failing = Failing::new();
    let component = failing
        .mount()
        .inline("moveToTarget", |command: &Command| Ok(command.number("azimuth").to_string()))
        .inline("stop", |_: &Command| Ok(()))
        .start()
        .unwrap();
    let remote = failing.remote();
    let mut log = remote.event("logMessage").unwrap();
    let send = |azimuth: f64| {
        let call = remote.command("moveToTarget").set("azimuth", azimuth).set("elevation", 45.0);
        call.timeout(PATIENCE).send()
    };
    send(1.0).wait().unwrap();
    let topic = name("command/moveToTarget");
    failing.cable.break_topic(&topic);
    let told = log.next_where(PATIENCE, says("commands moveToTarget cannot be read")).unwrap();
    assert_eq!(told.integer("level"), Some(40));
    remote.command("stop").timeout(PATIENCE).send().wait().unwrap();
    // Cancelling looks at all commands that are there.
    let waiting = send(2.0);
    let unknown = waiting.cancel().unwrap_err();
    assert_eq!(unknown.code(), Some(AckCode::Failed), "{unknown}");
    let other = send(3.0);
    failing.cable.mend_topic(&topic);
    log.next_where(PATIENCE, says("commands moveToTarget are read again")).unwrap();
    assert_eq!(other.wait().unwrap().result, "3");
    assert_eq!(waiting.wait().unwrap_err().code(), Some(AckCode::Aborted));
    assert_eq!(component.state(), SummaryState::Enabled);
    component.stop().unwrap();
}

#[test]
fn what_is_asked_and_cannot_be_read_is_told() {
    let failing = Failing::new();
    let component = failing.mount().start().unwrap();
    let mut log = failing.remote().event("logMessage").unwrap();
    let control = failing.other().topic(TopicSpec::of(name("control"))).unwrap();
    control.publisher().unwrap().publish(Message::new(b"\xff")).wait().unwrap();
    let told = log.next_where(PATIENCE, says("a request on control cannot be read")).unwrap();
    assert_eq!(told.integer("level"), Some(30));
    component.stop().unwrap();
}

#[test]
fn an_end_does_not_wait_for_ever_for_a_topic_that_fails() {
    let clock = TestClock::new(Tai::from_nanos(2_000_000_000_000_000_000));
    let failing = Failing::by(Arc::new(clock.clone()));
    let component = failing.mount().inline("stop", |_: &Command| Ok(())).start().unwrap();
    let remote = failing.remote();
    let mut log = remote.event("logMessage").unwrap();
    failing.cable.break_topic(&name("audit"));
    remote.command("stop").timeout(PATIENCE).send().wait().unwrap();
    clock.advance(AUDIT_PATIENCE);
    log.next_where(PATIENCE, says("commands are refused")).unwrap();
    component.stop().unwrap();
    // What it has not written it does not say to be written.
    while let Some(reading) = log.try_next().unwrap() {
        assert!(!says("the audit is written again")(&reading));
    }
    // The lease is free.
    failing.cable.mend_topic(&name("audit"));
    failing.mount().start().unwrap().stop().unwrap();
}

/// Is run by the tests below in a process of its own: writes a topic until it is stopped.
#[test]
fn child() {
    let Ok(url) = std::env::var("HELIO_OUTBOX_CHILD") else { return };
    let bus = Bus::builder().producer("neighbour").connect(&url).unwrap();
    let topic = bus.topic(TopicSpec::of(name("ackcmd"))).unwrap();
    let publisher = topic.publisher().unwrap();
    let payload = vec![0; 4 << 20];
    // It is met long before; whoever is not must not fill the disk.
    for _ in 0..64 {
        publisher.publish(Message::new(&payload)).wait().unwrap();
    }
}

/// A process that writes the acknowledgements' topic, and is stopped while it has its lock.
struct Stopped {
    child: Child,
    /// Where the lock is, and who had it then.
    lock: PathBuf,
    owner: u32,
}

/// How many children are started until one is met: each has some seconds.
const CHILDREN: usize = 3;
/// Nobody has the lock.
const FREE: u32 = 0;

impl Stopped {
    fn inside_the_lock(url: &str) -> Self {
        let met = (0..CHILDREN).find_map(|_| Self::start(url).met());
        met.expect("it was never met inside the lock")
    }

    fn start(url: &str) -> Self {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env("HELIO_OUTBOX_CHILD", url)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let folder = PathBuf::from(url.strip_prefix("journal:").unwrap());
        Self { child, lock: folder.join("topics/MTMount+ackcmd/0/control"), owner: FREE }
    }

    /// The same where it could be stopped while it had the lock, before it had published all.
    fn met(mut self) -> Option<Self> {
        // It is left to be waited for: until then its number is nobody else's.
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let until = Instant::now() + PATIENCE;
        loop {
            self.signal(Signal::STOP);
            let status = waitid(WaitId::Pid(self.pid()), changes).unwrap().unwrap();
            if !status.stopped() {
                return None;
            }
            self.owner = self.owner_now();
            if self.owner != FREE {
                return Some(self);
            }
            assert!(Instant::now() < until, "it was never met inside the lock");
            self.signal(Signal::CONT);
        }
    }

    /// Whether it has the lock still.
    fn is_inside(&self) -> bool {
        self.owner_now() == self.owner
    }

    /// The C library's mutex begins with the thread that has it, and two bits about others.
    fn owner_now(&self) -> u32 {
        let word = std::fs::read(&self.lock).unwrap()[128..132].try_into().unwrap();
        u32::from_ne_bytes(word) & 0x3fff_ffff
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// How many acknowledgements are tried: each waited 5 s for the lock when they held things up.
const MANY: usize = 20;

#[test]
fn a_stopped_neighbour_in_the_acknowledgements_lock_holds_up_nothing_else() {
    let site = Site::journal();
    let (told, tells) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let goes = std::sync::Mutex::new(goes);
    let component = Component::builder(&site.bus(), &site.mount(), 0)
        .on("moveToTarget", move |command: &Command| {
            goes.lock().unwrap().recv().unwrap();
            for _ in 0..MANY {
                command.in_progress(PATIENCE * 20, "moving", None);
            }
            told.send(()).unwrap();
            command.pause(PATIENCE * 20)
        })
        .initial_state(SummaryState::Enabled)
        .start()
        .unwrap();
    let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
    let event = |name: &str| {
        let mut topic: ReadTopic = remote.event(name).unwrap();
        topic.flush().unwrap();
        topic
    };
    let [mut states, mut beats] = ["summaryState", "heartbeat"].map(event);
    let neighbour = Stopped::inside_the_lock(site.url());
    let moving = remote.command("moveToTarget").timeout(PATIENCE * 20).send();
    go.send(()).unwrap();
    tells.recv_timeout(PATIENCE).unwrap();
    (0..3).for_each(|_| drop(beats.next(PATIENCE).unwrap()));
    component.fault(7, "a brake is stuck", "");
    states.next_where(PATIENCE, is_state(SummaryState::Fault)).unwrap();
    // It is told to stop, whether or not anybody hears that it was.
    std::thread::scope(|scope| {
        scope.spawn(|| moving.cancel().unwrap());
        let mut audit = audit(&site.bus());
        let [received, finished] = both("moveToTarget");
        let seen = records(&mut audit, 3);
        assert_eq!((&seen[0], &seen[2]), (&received, &finished), "{seen:?}");
        assert!(neighbour.is_inside(), "nobody was held up");
        drop(neighbour);
    });
    assert_eq!(moving.wait().unwrap_err().code(), Some(AckCode::Aborted));
    component.stop().unwrap();
}

#[test]
fn a_component_ends_beside_a_stopped_neighbour() {
    let site = Site::journal();
    let (runs, ran) = mpsc::channel();
    let component = Component::builder(&site.bus(), &site.mount(), 0)
        .on("stop", move |command: &Command| {
            runs.send(()).map_err(|_| Failed::aborted())?;
            command.pause(PATIENCE * 20)
        })
        .concurrent("stop")
        .start()
        .unwrap();
    let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
    let neighbour = Stopped::inside_the_lock(site.url());
    let calls = [(); MANY].map(|()| remote.command("stop").timeout(PATIENCE * 20).send());
    calls.iter().for_each(|_| ran.recv_timeout(PATIENCE).unwrap());
    // Each final acknowledgement would take 5 s.
    let (ends, ended) = mpsc::channel();
    std::thread::spawn(move || ends.send(component.stop().is_ok()).unwrap());
    assert!(ended.recv_timeout(PATIENCE).unwrap());
    drop(neighbour);
}

#[test]
fn a_file_that_does_not_answer_holds_up_nothing() {
    let site = Site::memory();
    let folder = tempfile::tempdir().unwrap();
    let (file, pipe) = (folder.path().join("who.yaml"), folder.path().join("pipe"));
    std::fs::write(&file, "default: allow\n").unwrap();
    let component = Component::builder(&site.bus(), &site.mount(), 0)
        .inline("stop", |_: &Command| Ok(()))
        .policy(&file)
        .start()
        .unwrap();
    let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
    let mut beats = remote.event("heartbeat").unwrap();
    // Whoever opens a pipe waits for one who writes it.
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &file).unwrap();
    beats.flush().unwrap();
    (0..3).for_each(|_| drop(beats.next(PATIENCE).unwrap()));
    remote.command("stop").timeout(PATIENCE).send().wait().unwrap();
    component.stop().unwrap();
}
