//! Network namespaces as hosts. Two have a cable between them that is unplugged and plugged in.
//! Three are on a switch, of which two lose each other. Another test is discovery by multicast.
//! They need rights that not every machine grants; otherwise they are skipped with a message.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{await_child, child_of, domain, skipped};
use helio_bus::{
    Alive, Bus, Event, Guarantee, Lagging, Message, PublishError, Qos, Start, Subscribe, Topic,
    TopicSpec, TransportError,
};
use helio_core::qos::{Durability as Late, History, Overload, Ownership, Retention};

use helio_dds::durability::{Durability, Notice};

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Not a test by itself: the processes on the hosts run it. The reader prints a line for each
/// event.
#[test]
fn child() {
    let Ok(role) = std::env::var("HELIO_TEST_ROLE") else { return };
    helio_dds::register();
    let producer = role.strip_prefix("owner-").unwrap_or("Mount");
    if role.starts_with("service-") {
        return keep();
    }
    let bus = Bus::builder().producer(producer);
    let bus = bus.connect(&std::env::var("HELIO_TEST_URL").unwrap()).unwrap();
    if role.starts_with("owner-") {
        return own(&bus);
    }
    match role.as_str() {
        "logger" => return log_all(&bus),
        "late" => return read_all(&bus),
        _ => {}
    }
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

/// Waits until it has discovered and lost its counterpart. When asked to, it claims the topic, and
/// publishes until it is fenced. It reads the topic, too.
fn own(bus: &Bus) {
    let (mut out, topic) = (std::io::stdout(), owned(bus));
    let mut say = |line: &str| writeln!(out, "{line}").unwrap();
    let _greeting = track(bus).publisher().unwrap();
    let watching = Subscribe::from(Start::Latest).watch_writers();
    let mut others = track(bus).subscribe(watching).unwrap();
    let of_others = |event: Event| match event {
        Event::Liveliness(told) if told.producer.name != *bus.producer() => Some(told.alive),
        _ => None,
    };
    for wanted in [Alive::Yes, Alive::No] {
        while of_others(others.next_blocking().unwrap()) != Some(wanted) {}
        say(if wanted == Alive::Yes { "met" } else { "alone" });
    }
    // The test decides which claim is the earlier one.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let publisher = topic.publisher().unwrap();
    say("owns");
    for number in 0_u64.. {
        let message = number.to_le_bytes();
        match publisher.publish(Message::new(&message).key(b"k")).wait() {
            Err(PublishError::Transport(TransportError::Fenced { .. })) => break,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
        while let Some(event) = samples.try_next().unwrap() {
            if let Event::Sample(sample) = event {
                let own = u8::from(sample.header.producer.name == *bus.producer());
                say(&format!("sample {} {own}", sample.header.sequence));
            }
        }
    }
    say("fenced");
    loop {
        if let Event::Sample(sample) = samples.next_blocking().unwrap() {
            let own = u8::from(sample.header.producer.name == *bus.producer());
            say(&format!("sample {} {own}", sample.header.sequence));
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").unwrap();
}

/// A durability service.
fn keep() {
    let [url, folder] = ["URL", "FOLDER"].map(|of| std::env::var(format!("HELIO_TEST_{of}")));
    let mut service = Durability::open(&url.unwrap(), folder.unwrap().as_ref()).unwrap();
    loop {
        let mut tell = |notice| {
            if matches!(notice, Notice::Ready { .. }) {
                say("ready");
            }
        };
        service.turn(Duration::from_millis(50), &mut tell).unwrap();
    }
}

fn site_log(bus: &Bus) -> Topic {
    let (overload, guarantee) = (Overload::Block, Guarantee::Durable);
    let qos = Qos { overload, guarantee, ..Qos::stream() };
    bus.topic(TopicSpec::new("site/log").unwrap().qos(qos)).unwrap()
}

/// Publishes until it is asked to end, and prints the number of receipts.
fn log_all(bus: &Bus) {
    let end = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let ends = std::sync::Arc::clone(&end);
    std::thread::spawn(move || {
        std::io::stdin().read_line(&mut String::new()).unwrap();
        ends.store(true, Ordering::Release);
    });
    let publisher = site_log(bus).publisher().unwrap();
    let mut under_way = std::collections::VecDeque::new();
    let (mut next, mut held) = (0_u64, 0);
    while !end.load(Ordering::Acquire) || !under_way.is_empty() {
        if !end.load(Ordering::Acquire) && under_way.len() < 100 {
            under_way.push_back(publisher.publish(Message::new(&next.to_le_bytes())));
            next += 1;
            continue;
        }
        under_way.pop_front().unwrap().wait_timeout(TEST_TIMEOUT).unwrap();
        held += 1;
        if held % 100 == 0 {
            say(&format!("held {held}"));
        }
    }
    say(&format!("all {held}"));
    loop {
        std::thread::park();
    }
}

/// Reads from the earliest sample on, and prints the number of samples in order.
fn read_all(bus: &Bus) {
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
    let mut samples = site_log(bus).subscribe(options).unwrap();
    let mut next = 0_u64;
    loop {
        if let Event::Sample(sample) = samples.next_blocking().unwrap() {
            assert_eq!(sample.payload[..], next.to_le_bytes());
            next += 1;
            say(&format!("read {next}"));
        }
    }
}

fn owned(bus: &Bus) -> Topic {
    let qos = Qos { ownership: Ownership::Exclusive, overload: Overload::DropNewest, ..plain() };
    bus.topic(TopicSpec::new("mount/owned").unwrap().qos(qos)).unwrap()
}

fn plain() -> Qos {
    let retention = Retention { last_value: false, ..Qos::telemetry().retention };
    let (durability, history) = (Late::Volatile, History::None);
    Qos { durability, history, retention, ..Qos::telemetry() }
}

fn track(bus: &Bus) -> Topic {
    let qos = Qos { overload: Overload::DropNewest, ..Qos::telemetry() };
    bus.topic(TopicSpec::new("mount/track").unwrap().qos(qos)).unwrap()
}

fn address(host: usize) -> String {
    format!("10.231.7.{}", host + 1)
}

fn no_hosts() -> Option<Hosts> {
    skipped("no network namespaces here (root, `ip netns`, veth and bridges are wanted)");
    None
}

fn ip(arguments: &str) -> bool {
    let run = Command::new("ip").args(arguments.split(' ')).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Hosts with a cable each, removed when dropped. The first two share one cable, or all are on a
/// switch, which is the last one.
struct Hosts(Vec<String>);

impl Hosts {
    /// `None` with a message if this machine does not allow it.
    fn new<const COUNT: usize>(names: [&str; COUNT]) -> Option<Self> {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
        let hosts = Self(names.iter().map(|name| format!("helio-{id}-{name}")).collect());
        let there = hosts.0.iter().all(|host| ip(&format!("netns add {host}")));
        there.then_some(hosts)
    }

    /// Two hosts with a cable.
    fn two() -> Option<Self> {
        let cabled = |hosts: &Self| {
            let [a, b] = &hosts.0[..] else { return false };
            ip(&format!("-n {a} link add cable type veth peer name cable netns {b}"))
                && hosts.up(&hosts.0)
        };
        Self::new(["a", "b"]).filter(cabled).or_else(no_hosts)
    }

    /// Three hosts on a switch.
    fn three() -> Option<Self> {
        let cabled = |hosts: &Self| {
            let [all @ .., switch] = &hosts.0[..] else { return false };
            let cabled = |(port, host): (usize, &String)| {
                ip(&format!("-n {switch} link add p{port} type veth peer name cable netns {host}"))
                    && ip(&format!("-n {switch} link set p{port} master ports up"))
            };
            ip(&format!("-n {switch} link add ports type bridge"))
                && ip(&format!("-n {switch} link set ports up"))
                && all.iter().enumerate().all(cabled)
                && hosts.up(all)
        };
        Self::new(["a", "b", "c", "switch"]).filter(cabled).or_else(no_hosts)
    }

    /// Assigns the addresses.
    fn up(&self, hosts: &[String]) -> bool {
        hosts.iter().enumerate().all(|(of, host)| {
            ip(&format!("-n {host} address add {}/24 dev cable", address(of)))
                && ip(&format!("-n {host} link set lo up"))
                && ip(&format!("-n {host} link set cable up"))
        })
    }

    /// Makes two hosts lose each other (`add`), or find each other again (`del`).
    fn part(&self, how: &str, one: usize, other: usize) {
        for (host, lost) in [(one, other), (other, one)] {
            let (host, lost) = (&self.0[host], address(lost));
            assert!(ip(&format!("-n {host} route {how} blackhole {lost}/32")));
        }
    }

    fn cable(&self, state: &str) {
        assert!(ip(&format!("-n {} link set cable {state}", self.0[0])));
    }

    fn run(&self, host: usize, role: &str, url: &str) -> Running {
        self.run_in(host, role, url, std::path::Path::new(""))
    }

    fn run_in(&self, host: usize, role: &str, url: &str, folder: &std::path::Path) -> Running {
        let mut command = Command::new("ip");
        command.env("HELIO_TEST_FOLDER", folder);
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

/// A process whose output is read.
struct Running(Child, BufReader<std::process::ChildStdout>);

impl Running {
    fn start(mut command: Command, role: &str, url: &str) -> Self {
        let mut child = command
            .args(["--exact", &child_of(module_path!()), "--nocapture"])
            .env("HELIO_TEST_ROLE", role)
            .env("HELIO_TEST_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        await_child(&mut lines);
        Self(child, lines)
    }

    /// Reads lines up to a wanted one; returns its numbers.
    fn until(&mut self, wanted: impl Fn(&str, &[u64]) -> bool) -> Vec<u64> {
        let until = Instant::now() + TEST_TIMEOUT;
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

/// Without loss, whatever the discovery: the reader continues to count.
fn flows(reader: &mut Running) -> u64 {
    let first = reader.until(sample)[0];
    reader.until(|word, numbers| sample(word, numbers) && numbers[0] >= first + 50)[0]
}

#[test]
fn a_cable_is_pulled_and_put_back() {
    let Some(hosts) = Hosts::two() else { return };
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
fn of_two_owners_on_both_sides_of_a_cut_the_earlier_one_holds() {
    let Some(hosts) = Hosts::two() else { return };
    let options = "peers=10.231.7.1,10.231.7.2&multicast=false&lease_s=2";
    let url = format!("dds://{}?interface=cable&{options}", domain());
    let (mut first, mut second) = (hosts.run(0, "owner-a", &url), hosts.run(1, "owner-b", &url));
    let word = |wanted: &'static str| move |word: &str, _: &[u64]| word == wanted;
    let numbered = |own| move |word: &str, n: &[u64]| word == "sample" && n.get(1) == Some(&own);
    first.until(word("met"));
    second.until(word("met"));
    hosts.cable("down");
    // Each side admits a claim that the other one cannot know.
    for side in [&mut first, &mut second] {
        side.until(word("alone"));
    }
    for side in [&mut first, &mut second] {
        side.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        side.until(numbered(1));
    }
    hosts.cable("up");
    second.until(word("fenced"));
    let taken = second.until(numbered(0))[0];
    first.until(|w, n| numbered(1)(w, n) && n[0] > taken + 50);
    let later = second.until(|w, n| numbered(0)(w, n) && n[0] > taken + 50)[0];
    assert!(later > taken, "the one that holds is read on both sides");
}

#[test]
fn a_service_that_was_cut_off_fetches_what_the_other_one_has_acknowledged() {
    let Some(hosts) = Hosts::two() else { return };
    let options = "peers=10.231.7.1,10.231.7.2&multicast=false&lease_s=2";
    let url = format!("dds://{}?interface=cable&{options}", domain());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut away = hosts.run_in(0, "service-a", &url, folders[0].path());
    let mut other = hosts.run_in(1, "service-b", &url, folders[1].path());
    let mut logger = hosts.run(1, "logger", &url);
    let ready = |word: &str, _: &[u64]| word == "ready";
    let held = |more| move |word: &str, n: &[u64]| word == "held" && n[0] >= more;
    [&mut away, &mut other].into_iter().for_each(|service| _ = service.until(ready));
    let before = logger.until(held(300))[0];
    hosts.cable("down");
    // Receipts wait until its lease has expired.
    let before = logger.until(held(before + 1_000))[0];
    hosts.cable("up");
    away.until(ready);
    logger.until(held(before + 500));
    logger.0.stdin.as_mut().unwrap().write_all(b"end\n").unwrap();
    let count = logger.until(|word, _| word == "all")[0];
    drop((other, logger));
    let mut late = hosts.run(0, "late", &url);
    late.until(|word, n| word == "read" && n[0] == count);
}

#[test]
fn a_service_that_a_writer_did_not_see_fetches_what_the_other_one_has_acknowledged() {
    let Some(hosts) = Hosts::three() else { return };
    let options = "peers=10.231.7.1,10.231.7.2,10.231.7.3&multicast=false&lease_s=2";
    let url = format!("dds://{}?interface=cable&{options}", domain());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut unseen = hosts.run_in(0, "service-a", &url, folders[0].path());
    let mut other = hosts.run_in(1, "service-b", &url, folders[1].path());
    let mut logger = hosts.run(2, "logger", &url);
    let ready = |word: &str, _: &[u64]| word == "ready";
    let held = |more| move |word: &str, n: &[u64]| word == "held" && n[0] >= more;
    [&mut unseen, &mut other].into_iter().for_each(|service| _ = service.until(ready));
    let before = logger.until(held(300))[0];
    // The two services see each other all the time.
    hosts.part("add", 0, 2);
    logger.until(held(before + 1_000));
    logger.0.stdin.as_mut().unwrap().write_all(b"end\n").unwrap();
    let count = logger.until(|word, _| word == "all")[0];
    // It leaves before it is discovered again: nobody resends its samples.
    drop(logger);
    hosts.part("del", 0, 2);
    crate::support::await_kept(folders[0].path(), "site/log", count);
    unseen.until(ready);
    drop(other);
    let mut late = hosts.run(0, "late", &url);
    late.until(|word, n| word == "read" && n[0] == count);
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
        return skipped("the loopback takes no multicast here");
    }
    let _writer = start("writer");
    flows(&mut start("reader"));
}
