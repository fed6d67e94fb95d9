//! Neighbours that are stopped inside a lock, outages longer than a lease, and shutdown during
//! failures.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use helio_bus::{Bus, Message, Tai, TestClock, TopicSpec};
use helio_component::protocol::caller::Cause;
use helio_component::protocol::controller::AUDIT_TIMEOUT;
use helio_component::protocol::{AckCode, SummaryState};
use helio_component::{
    Command, Component, Failed, LEASE_TIMEOUT, Lease, LeaseOptions, ReadTopic, Remote, RunError,
    WriteError,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::support::faults::{Failing, audit, both, faulty, is_state, name, records, says};
use crate::support::{HANG_TIMEOUT, Site, move_to, only};

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
        let stop = || remote.command("stop").timeout(HANG_TIMEOUT).send().wait();
        stop().unwrap();
        failing.cable.pull();
        clock.advance(LEASE_TIMEOUT + Duration::from_secs(1));
        assert_eq!(stop().unwrap_err().cause(), Some(Cause::NobodyThere));
        // After the outage the topic is writable again.
        let refused = count.set("late", 1).write().unwrap_err();
        assert!(matches!(refused, WriteError::Publish { .. }), "{refused}");
        // A caller that cannot query the presence sends nevertheless.
        let (blind, broken) = faulty(&failing.site, &failing.clock);
        broken.break_topic(&name("lease/0"));
        let blind = Remote::open(&blind, &failing.site.mount(), 0).unwrap();
        let unsure = blind.command("stop").timeout(HANG_TIMEOUT).send();
        if replaced {
            let (bus, mount) = (failing.other(), failing.site.mount());
            let lease = Lease::claim(&bus, &mount, 0, LeaseOptions::default()).unwrap();
            failing.cable.put_back();
            assert!(matches!(component.wait(), Err(RunError::LeaseLost { .. })));
            assert!(lease.is_held());
            continue;
        }
        failing.cable.put_back();
        log.next_where(HANG_TIMEOUT, says("the lease had lapsed")).unwrap();
        let refused = unsure.wait().unwrap_err().to_string();
        assert!(refused.contains("cannot be confirmed; not run"), "{refused}");
        stop().unwrap();
        component.stop().unwrap();
    }
}

/// A caller that cannot query the presence does not declare the component gone.
#[test]
fn an_end_does_not_wait_for_ever_for_a_topic_that_fails() {
    let clock = TestClock::new(Tai::from_nanos(2_000_000_000_000_000_000));
    let failing = Failing::by(Arc::new(clock.clone()));
    let component = failing.mount().inline("stop", |_: &Command| Ok(())).start().unwrap();
    let remote = failing.remote();
    let mut log = remote.event("logMessage").unwrap();
    failing.cable.break_topic(&name("audit"));
    remote.command("stop").timeout(HANG_TIMEOUT).send().wait().unwrap();
    clock.advance(AUDIT_TIMEOUT);
    log.next_where(HANG_TIMEOUT, says("commands are refused")).unwrap();
    component.stop().unwrap();
    // An unwritten event is not reported as written.
    while let Some(reading) = log.try_next().unwrap() {
        assert!(!says("the audit is written again")(&reading));
    }
    // The lease has been released.
    failing.cable.mend_topic(&name("audit"));
    failing.mount().start().unwrap().stop().unwrap();
}

/// The tests below run this in a separate process. It writes a topic until it is stopped.
#[test]
fn child() {
    let Ok(url) = std::env::var("HELIO_OUTBOX_CHILD") else { return };
    let bus = Bus::builder().producer("neighbour").connect(&url).unwrap();
    let topic = bus.topic(TopicSpec::of(name("ackcmd"))).unwrap();
    let publisher = topic.publisher().unwrap();
    let payload = vec![0; 4 << 20];
    // A child is usually stopped long before; the limit keeps another from filling the disk.
    for _ in 0..64 {
        publisher.publish(Message::new(&payload)).wait().unwrap();
    }
}

/// A process that writes the acknowledgements' topic and is stopped while it holds its lock.
struct Stopped {
    child: Child,
    /// The position of the lock, and its holder at that time.
    lock: PathBuf,
    owner: u32,
}

/// The most children that are started until one is stopped inside the lock; each runs for seconds.
const CHILDREN: usize = 3;
/// The value of a free lock.
const FREE: u32 = 0;

impl Stopped {
    fn inside_the_lock(url: &str) -> Self {
        let met = (0..CHILDREN).find_map(|_| Self::start(url).met());
        met.expect("it was never met inside the lock")
    }

    fn start(url: &str) -> Self {
        let child = only(module_path!(), "child")
            .env("HELIO_OUTBOX_CHILD", url)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let folder = PathBuf::from(url.strip_prefix("journal:").unwrap());
        Self { child, lock: folder.join("topics/MTMount+ackcmd/0/control"), owner: FREE }
    }

    /// Returns it if it was stopped while it held the lock and had not published everything.
    fn met(mut self) -> Option<Self> {
        // It stays a zombie until it is waited for: its process number is not reused before.
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let until = Instant::now() + HANG_TIMEOUT;
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

    /// Whether it still holds the lock.
    fn is_inside(&self) -> bool {
        self.owner_now() == self.owner
    }

    /// The C library's mutex begins with the owning thread's number and two bits for waiters.
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

/// The number of acknowledgements; if each blocked the component, each would wait 5 s.
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
                command.in_progress(HANG_TIMEOUT * 20, "moving", None);
            }
            told.send(()).unwrap();
            command.pause(HANG_TIMEOUT * 20)
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
    let moving = move_to(&remote, 7.0).timeout(HANG_TIMEOUT * 20).send();
    go.send(()).unwrap();
    tells.recv_timeout(HANG_TIMEOUT).unwrap();
    (0..3).for_each(|_| drop(beats.next(HANG_TIMEOUT).unwrap()));
    component.fault(7, "a brake is stuck", "");
    states.next_where(HANG_TIMEOUT, is_state(SummaryState::Fault)).unwrap();
    // It receives the command, even if its acknowledgement cannot be read.
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
            command.pause(HANG_TIMEOUT * 20)
        })
        .concurrent("stop")
        .start()
        .unwrap();
    let remote = Remote::open(&site.bus(), &site.mount(), 0).unwrap();
    let neighbour = Stopped::inside_the_lock(site.url());
    let calls = [(); MANY].map(|()| remote.command("stop").timeout(HANG_TIMEOUT * 20).send());
    calls.iter().for_each(|_| ran.recv_timeout(HANG_TIMEOUT).unwrap());
    // Each final acknowledgement would block for 5 s.
    let (ends, ended) = mpsc::channel();
    std::thread::spawn(move || ends.send(component.stop().is_ok()).unwrap());
    assert!(ended.recv_timeout(HANG_TIMEOUT).unwrap());
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
    // Opening a pipe for reading blocks until a writer opens it.
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &file).unwrap();
    beats.flush().unwrap();
    (0..3).for_each(|_| drop(beats.next(HANG_TIMEOUT).unwrap()));
    remote.command("stop").timeout(HANG_TIMEOUT).send().wait().unwrap();
    component.stop().unwrap();
}
