//! Leases between processes of a journal that are frozen, killed and resumed.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::support::{HANG_TIMEOUT, child_test};
use helio_bus::{
    Alive, Bus, Event, Message, PublishError, Publisher, Qos, Start, Subscribe, Subscription,
    Topic, TopicError, TopicSpec, TransportError,
};
use helio_core::qos::{Liveliness, Ownership};
use rustix::process::{Pid, Signal, kill_process};

/// Far longer than any test: an earlier event is not due to the lease.
const HOUR: Duration = Duration::from_secs(3600);
/// How often a holder renews its lease.
const BEAT: Duration = Duration::from_millis(50);
/// Long enough that a holder on a busy machine renews in time.
const LEASE: Duration = Duration::from_secs(3);

/// Not a test by itself: a process that claims after a line of input, then renews until it is
/// fenced or its input ends. It prints its state.
#[test]
fn child() {
    let Ok(name) = std::env::var("HELIO_TEST_NAME") else { return };
    let url = std::env::var("HELIO_TEST_URL").unwrap();
    let lease: u64 = std::env::var("HELIO_TEST_LEASE_MS").unwrap().parse().unwrap();
    let bus = Bus::builder().producer(&name).connect(&url).unwrap();
    let topic = topic(&bus, Duration::from_millis(lease));
    say("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    match topic.publisher() {
        Ok(publisher) => hold(&publisher),
        Err(TopicError::Transport(TransportError::Owned { holder, .. })) => say(&holder),
        Err(error) => panic!("{error}"),
    }
}

/// The test harness prints an unfinished line: ours begin with a mark.
const MARK: &str = "@@";

fn say(what: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "\n{MARK}{what}").unwrap();
    out.flush().unwrap();
}

fn hold(publisher: &Publisher) {
    say(&format!("holds {}", publisher.producer().incarnation));
    let (end, ended) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        drop(end);
    });
    loop {
        if let Err(error) = publisher.assert_alive() {
            assert!(matches!(error, TransportError::Fenced { .. }), "{error}");
            let late = publisher.publish(Message::new(b"late")).wait().unwrap_err();
            let fenced = TransportError::Fenced { producer: publisher.producer(), newer: 0 };
            let PublishError::Transport(error) = late else { panic!("{late}") };
            assert_eq!(std::mem::discriminant(&error), std::mem::discriminant(&fenced), "{error}");
            return say("fenced");
        }
        match ended.recv_timeout(BEAT) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return say("ended"),
        }
    }
}

fn topic(bus: &Bus, lease: Duration) -> Topic {
    let liveliness = Liveliness::Lease(lease);
    let qos = Qos { ownership: Ownership::Exclusive, liveliness, ..Qos::telemetry() };
    bus.topic(TopicSpec::new("mount/lease").unwrap().qos(qos)).unwrap()
}

fn url(folder: &Path) -> String {
    format!("journal:{}", folder.display())
}

fn connect(folder: &Path, name: &str) -> Bus {
    Bus::builder().producer(name).connect(&url(folder)).unwrap()
}

/// A process that is killed when it is dropped.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(folder: &Path, name: &str, lease: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &child_test(module_path!()), "--nocapture"])
            .env("HELIO_TEST_NAME", name)
            .env("HELIO_TEST_URL", url(folder))
            .env("HELIO_TEST_LEASE_MS", lease.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child, input, output };
        assert_eq!(process.hears(), "ready");
        process
    }

    fn holding(folder: &Path, name: &str, lease: Duration) -> Self {
        let mut process = Self::start(folder, name, lease);
        process.go();
        let said = process.hears();
        assert!(said.starts_with("holds"), "{said}");
        process
    }

    fn go(&mut self) {
        self.input.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// The next line of its output.
    fn hears(&mut self) -> String {
        let mut lines = self.output.by_ref().map(Result::unwrap);
        let said = lines.find_map(|line| line.strip_prefix(MARK).map(ToOwned::to_owned));
        said.expect("it ended without a word")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn alive(topic: &Topic, name: &str) -> bool {
    let writers = topic.writers().unwrap();
    let found = writers.iter().find(|writer| writer.producer.name.as_str() == name);
    found.is_some_and(|writer| writer.alive == Some(Alive::Yes))
}

/// Polls until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let bound = Instant::now() + HANG_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < bound, "{what} never came");
        std::thread::yield_now();
    }
}

fn told(samples: &mut Subscription, expected: (&str, Alive)) {
    loop {
        match samples.next_timeout(HANG_TIMEOUT).unwrap().expect("a change of the writers") {
            Event::Liveliness(told) => {
                assert_eq!((told.producer.name.as_str(), told.alive), expected);
                return;
            }
            _ => continue,
        }
    }
}

fn watching(topic: &Topic) -> Subscription {
    topic.subscribe(Subscribe::from(Start::Latest).watch_writers()).unwrap()
}

fn owned(claimed: Result<Publisher, TopicError>) -> String {
    match claimed {
        Err(TopicError::Transport(TransportError::Owned { holder, .. })) => holder,
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_those_who_claim_in_one_instant_exactly_one_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let bus = connect(folder.path(), "reader");
    let topic = topic(&bus, HOUR);
    for round in 0..4 {
        let names: Vec<_> = (0..5).map(|n| format!("c{round}.{n}")).collect();
        let start = |name: &String| Process::start(folder.path(), name, HOUR);
        let mut all: Vec<_> = names.iter().map(start).collect();
        all.iter_mut().for_each(Process::go);
        let said: Vec<_> = all.iter_mut().map(Process::hears).collect();
        let winners: Vec<_> = (0..5).filter(|n| said[*n].starts_with("holds")).collect();
        assert_eq!(winners.len(), 1, "{said:?}");
        let winner = &names[winners[0]];
        let named = |(n, said): (usize, &String)| n == winners[0] || said.contains(&**winner);
        assert!(said.iter().enumerate().all(named), "{said:?}");
        let live: Vec<_> = names.iter().filter(|name| alive(&topic, name)).collect();
        assert_eq!(live, [winner]);
    }
}

#[test]
fn a_killed_holder_is_gone_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let bus = connect(folder.path(), "successor");
    let topic = topic(&bus, HOUR);
    let mut changes = watching(&topic);
    let holder = Process::holding(folder.path(), "holder", HOUR);
    assert!(alive(&topic, "holder"));
    assert!(owned(topic.publisher()).contains("holder"));
    told(&mut changes, ("holder", Alive::Yes));
    holder.signal(Signal::KILL);
    until("the holder's end", || !alive(&topic, "holder"));
    let successor = topic.publisher().unwrap();
    successor.assert_alive().unwrap();
    told(&mut changes, ("holder", Alive::No));
    told(&mut changes, ("successor", Alive::Yes));
}

#[test]
fn a_holder_that_ends_gives_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let bus = connect(folder.path(), "successor");
    let topic = topic(&bus, HOUR);
    let mut holder = Process::holding(folder.path(), "holder", HOUR);
    drop(holder.input.take());
    assert_eq!(holder.hears(), "ended");
    until("its claim", || topic.publisher().is_ok());
}

#[test]
fn a_frozen_holder_loses_it_and_is_fenced_when_it_comes_back() {
    for successor in ["successor", "holder"] {
        let folder = tempfile::tempdir().unwrap();
        let bus = connect(folder.path(), successor);
        let topic = topic(&bus, LEASE);
        let mut changes = watching(&topic);
        let mut holder = Process::holding(folder.path(), "holder", LEASE);
        told(&mut changes, ("holder", Alive::Yes));
        // While the holder renews, others are refused, for longer than the lease.
        let begun = Instant::now();
        while begun.elapsed() < LEASE * 3 / 2 {
            assert!(owned(topic.publisher()).contains("holder"));
            assert!(alive(&topic, "holder"));
        }
        holder.signal(Signal::STOP);
        until("the lease's end", || !alive(&topic, "holder"));
        told(&mut changes, ("holder", Alive::No));
        let new = topic.publisher().unwrap();
        let at = new.publish(Message::new(b"new")).wait().unwrap().offset;
        holder.signal(Signal::CONT);
        assert_eq!(holder.hears(), "fenced");
        new.assert_alive().unwrap();
        let next = new.publish(Message::new(b"next")).wait().unwrap().offset;
        assert_eq!(next, at.map(|at| at + 1), "something was published in between");
        told(&mut changes, (successor, Alive::Yes));
    }
}

#[test]
fn a_frozen_holder_that_nobody_replaced_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let bus = connect(folder.path(), "other");
    let topic = topic(&bus, LEASE);
    let mut changes = watching(&topic);
    let holder = Process::holding(folder.path(), "holder", LEASE);
    told(&mut changes, ("holder", Alive::Yes));
    holder.signal(Signal::STOP);
    told(&mut changes, ("holder", Alive::No));
    holder.signal(Signal::CONT);
    told(&mut changes, ("holder", Alive::Yes));
    assert!(alive(&topic, "holder"));
    assert!(owned(topic.publisher()).contains("holder"));
}
