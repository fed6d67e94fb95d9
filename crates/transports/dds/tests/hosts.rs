//! Two network namespaces as two hosts, with a cable between them that is pulled and put back; and
//! discovery by multicast. Both want rights that not every machine gives: then it is said.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::domain;
use helio_bus::{Alive, Bus, Event, Lagging, Message, Qos, Start, Subscribe, Topic, TopicSpec};
use helio_core::qos::Overload;

/// Ample on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// Not a test by itself: what the processes on the hosts do. The reader says what it meets, a line
/// each.
#[test]
fn child() {
    let Ok(role) = std::env::var("HELIO_TEST_ROLE") else { return };
    helio_dds::register();
    let bus = Bus::builder().producer("Mount");
    let bus = bus.connect(&std::env::var("HELIO_TEST_URL").unwrap()).unwrap();
    let topic = track(&bus);
    match role.as_str() {
        "writer" => {
            let publisher = topic.publisher().unwrap();
            for number in 0_u64.. {
                let message = number.to_le_bytes();
                let _taken = publisher.publish(Message::new(&message).key(b"k"));
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        "reader" => {
            let options =
                Subscribe::from(Start::Last(1)).lagging(Lagging::Lossless).watch_writers();
            let mut samples = topic.subscribe(options).unwrap();
            let mut out = std::io::stdout();
            loop {
                let line = match samples.next_blocking().unwrap() {
                    Event::Sample(s) => {
                        let stats = samples.stats();
                        format!("sample {} {}", s.header.sequence, stats.lost + stats.duplicates)
                    }
                    Event::Liveliness(told) if told.alive == Alive::No => "gone".to_owned(),
                    _ => continue,
                };
                writeln!(out, "{line}").unwrap();
            }
        }
        other => panic!("no role {other}"),
    }
}

fn track(bus: &Bus) -> Topic {
    let qos = Qos { overload: Overload::DropNewest, ..Qos::telemetry() };
    bus.topic(TopicSpec::new("mount/track").unwrap().qos(qos)).unwrap()
}

fn ip(arguments: &str) -> bool {
    let run = Command::new("ip").args(arguments.split(' ')).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Two hosts with a cable, taken down when it goes out of scope.
struct Hosts([String; 2]);

impl Hosts {
    /// None where this machine does not let us.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let hosts = Self([format!("helio-{id}-a"), format!("helio-{id}-b")]);
        let [a, b] = &hosts.0;
        let up = ip(&format!("netns add {a}"))
            && ip(&format!("netns add {b}"))
            && ip(&format!("-n {a} link add cable type veth peer name cable netns {b}"))
            && ip(&format!("-n {a} address add 10.231.7.1/24 dev cable"))
            && ip(&format!("-n {b} address add 10.231.7.2/24 dev cable"))
            && [a, b].iter().all(|host| {
                ip(&format!("-n {host} link set lo up"))
                    && ip(&format!("-n {host} link set cable up"))
            });
        up.then_some(hosts)
    }

    fn cable(&self, state: &str) {
        assert!(ip(&format!("-n {} link set cable {state}", self.0[0])));
    }

    fn run(&self, host: usize, role: &str, url: &str) -> Running {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[host]]).arg(std::env::current_exe().unwrap());
        Running::start(command, role, url)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            ip(&format!("netns del {host}"));
        }
    }
}

/// A process whose lines are read.
struct Running(Child, BufReader<std::process::ChildStdout>);

impl Running {
    fn start(mut command: Command, role: &str, url: &str) -> Self {
        let mut child = command
            .args(["--exact", "child", "--nocapture"])
            .env("HELIO_TEST_ROLE", role)
            .env("HELIO_TEST_URL", url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self(child, lines)
    }

    /// Reads lines up to one that is wanted; gives its words behind the first.
    fn until(&mut self, wanted: impl Fn(&str, &[u64]) -> bool) -> Vec<u64> {
        let until = Instant::now() + LONG;
        let mut line = String::new();
        while Instant::now() < until {
            line.clear();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "the process has ended");
            let mut words = line.split_whitespace();
            let word = words.next().unwrap_or_default();
            let numbers: Vec<_> = words.filter_map(|number| number.parse().ok()).collect();
            if wanted(word, &numbers) {
                return numbers;
            }
        }
        panic!("what was wanted never came; last: {line}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn sample(word: &str, _: &[u64]) -> bool {
    word == "sample"
}

/// Without loss, whatever the discovery: the reader counts on.
fn flows(reader: &mut Running) -> u64 {
    let first = reader.until(sample)[0];
    reader.until(|word, numbers| sample(word, numbers) && numbers[0] >= first + 50)[0]
}

#[test]
fn a_cable_is_pulled_and_put_back() {
    let Some(hosts) = Hosts::new() else {
        eprintln!("SKIPPED: no network namespaces here (root, `ip netns` and veth are wanted)");
        return;
    };
    let domain = domain();
    for options in ["peers=10.231.7.1,10.231.7.2&multicast=false", "multicast=true"] {
        let url = format!("dds://{domain}?interface=cable&lease_s=2&{options}");
        let _writer = hosts.run(0, "writer", &url);
        let mut reader = hosts.run(1, "reader", &url);
        let before = flows(&mut reader);
        hosts.cable("down");
        reader.until(|word, _| word == "gone");
        hosts.cable("up");
        let after = reader.until(sample);
        assert!(after[0] > before, "{after:?} after {before}");
        let later = flows(&mut reader);
        assert!(later > after[0]);
    }
}

#[test]
fn participants_find_each_other_by_multicast_on_one_host() {
    let url = format!("dds://{}?interface=lo&multicast=true", domain());
    let start = |role| Running::start(Command::new(std::env::current_exe().unwrap()), role, &url);
    if std::net::UdpSocket::bind("0.0.0.0:0")
        .and_then(|socket| {
            socket.join_multicast_v4(&[239, 255, 0, 1].into(), &[127, 0, 0, 1].into())
        })
        .is_err()
    {
        eprintln!("SKIPPED: the loopback takes no multicast here");
        return;
    }
    let _writer = start("writer");
    flows(&mut start("reader"));
}
