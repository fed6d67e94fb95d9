//! A writer of an exclusive topic whose process stands still while another takes over.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{broker, unique};
use helio_bus::{
    Bus, Event, Message, PublishError, Publisher, Publishing, Qos, Start, Subscribe, Subscription,
    Topic, TopicError, TopicSpec, TransportError,
};
use helio_core::qos::{Liveliness, Ownership};

const PATIENCE: Duration = Duration::from_secs(60);
/// What the child says stands behind this; the test harness writes to the same output.
const MARK: &str = "owner: ";
/// How many of the child's publishes are under way when it is stopped.
const AHEAD: usize = 200;

fn topic(bus: &Bus, name: &str, lease: Option<Duration>) -> Topic {
    let liveliness = lease.map_or(Liveliness::Automatic, Liveliness::Lease);
    let qos = Qos { ownership: Ownership::Exclusive, liveliness, ..Qos::stream() };
    bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
}

fn lease(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis)).filter(|lease| !lease.is_zero())
}

/// The first owner, in a process of its own: it publishes numbers as fast as it can, and says what
/// became of each, until one is fenced and nothing is under way any more.
#[test]
fn child() {
    let Ok(url) = std::env::var("HELIO_TEST_URL") else { return };
    let told = |name: &str| std::env::var(name).unwrap();
    helio_kafka::register();
    let bus = Bus::builder().producer(&told("HELIO_TEST_NAME")).connect(&url).unwrap();
    let lease = lease(told("HELIO_TEST_LEASE_MS").parse().unwrap());
    let publisher = topic(&bus, &told("HELIO_TEST_TOPIC"), lease).publisher().unwrap();
    let mut under_way = VecDeque::new();
    let mut is_fenced = false;
    for number in 0_u64.. {
        if !is_fenced {
            under_way.push_back((number, publisher.publish(Message::new(&number.to_le_bytes()))));
        }
        if is_fenced || under_way.len() >= AHEAD {
            let Some(first) = under_way.pop_front() else { return };
            is_fenced |= tell(first);
        }
    }
}

/// Says what became of a publish; whether it was fenced.
fn tell((number, publishing): (u64, Publishing)) -> bool {
    let outcome = publishing.wait_timeout(PATIENCE);
    let fenced = matches!(&outcome, Err(PublishError::Transport(TransportError::Fenced { .. })));
    let said = match &outcome {
        Ok(_) => "ok".to_owned(),
        Err(_) if fenced => "fenced".to_owned(),
        Err(error) => format!("{error:?}"),
    };
    println!("{MARK}{number} {said}");
    fenced
}

/// The child, which is killed when it goes out of scope.
struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Owner {
    fn start(url: &str, topic: &str, (name, lease): (&str, Option<Duration>)) -> Self {
        let lease = lease.unwrap_or_default().as_millis().to_string();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .envs([("HELIO_TEST_URL", url), ("HELIO_TEST_TOPIC", topic)])
            .envs([("HELIO_TEST_NAME", name), ("HELIO_TEST_LEASE_MS", &lease)])
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Everything that it says until its end, a publish after the other.
    fn said(&mut self) -> Vec<String> {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        lines.filter_map(|line| Some(line.unwrap().strip_prefix(MARK)?.to_owned())).collect()
    }
}

/// Takes the topic over as soon as that is possible.
fn taken_over(topic: &Topic) -> Publisher {
    let until = Instant::now() + PATIENCE;
    loop {
        match topic.publisher() {
            Ok(publisher) => return publisher,
            Err(TopicError::Transport(TransportError::Owned { .. })) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < until, "the owner that stands still is taken for a live one");
    }
}

/// Who published each sample up to the last of this producer's, and its number.
fn read_until(
    samples: &mut Subscription,
    mut is_last: impl FnMut(u64, u64) -> bool,
) -> Vec<(u64, u64)> {
    let mut read = Vec::new();
    loop {
        match samples.next_timeout(PATIENCE).unwrap() {
            Some(Event::Sample(sample)) => {
                let number = u64::from_le_bytes(sample.payload[..].try_into().unwrap());
                read.push((sample.header.producer.incarnation, number));
                if is_last(sample.header.producer.incarnation, number) {
                    return read;
                }
            }
            Some(_) => {}
            None => panic!("it ended with {:?}", read.last()),
        }
    }
}

/// A owns and publishes, is stopped, B takes over and publishes, A goes on. The names of both.
fn stopped_and_continued(names: [&str; 2], lease: Option<Duration>) {
    let Some(broker) = broker() else { return };
    let (url, name) = (broker.url(""), unique("stopped"));
    let bus = broker.bus(names[1]);
    let topic = topic(&bus, &name, lease);
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut old = Owner::start(&url, &name, (names[0], lease));
    let mut read = read_until(&mut samples, |_, number| number >= 3 * AHEAD as u64);
    let incarnation = read[0].0;
    old.signal("-STOP");
    let publisher = taken_over(&topic);
    let new = publisher.producer().incarnation;
    publisher.publish(Message::new(&0_u64.to_le_bytes())).wait_timeout(PATIENCE).unwrap();
    old.signal("-CONT");
    // It may be while the old one finds out, and afterwards.
    for number in 1..100_u64 {
        publisher.publish(Message::new(&number.to_le_bytes())).wait_timeout(PATIENCE).unwrap();
    }
    let said = old.said();
    publisher.publish(Message::new(&100_u64.to_le_bytes())).wait_timeout(PATIENCE).unwrap();
    read.extend(read_until(&mut samples, |by, number| by == new && number == 100));

    let ours = read.iter().position(|(by, _)| *by == new).unwrap();
    assert!(read[..ours].iter().all(|(by, _)| *by == incarnation));
    assert!(read[ours..].iter().all(|(by, _)| *by == new), "a zombie was handed out");
    let fenced = said.iter().position(|said| said.ends_with(" fenced")).expect("it was told");
    assert!(said[..fenced].iter().all(|said| said.ends_with(" ok")), "{said:?}");
    assert!(said[fenced..].iter().all(|said| said.ends_with(" fenced")), "{said:?}");
    // What was acknowledged was handed out, before the first of the new owner.
    assert!(fenced <= ours, "{fenced} were acknowledged, {ours} came");
    assert_eq!(samples.stats().lost, 0);
}

const LEASE: Option<Duration> = Some(Duration::from_secs(3));

#[test]
fn who_stood_still_beyond_its_lease_writes_nothing_after_its_successor() {
    stopped_and_continued(["Mount", "Mount"], LEASE);
}

#[test]
fn nor_where_the_successor_has_another_name() {
    stopped_and_continued(["Mount:a", "Mount:b"], LEASE);
}

#[test]
fn nor_where_only_the_process_has_to_live() {
    stopped_and_continued(["Dome:a", "Dome:b"], None);
}

/// Nobody takes over: what was held back is published, once and in order.
#[test]
fn who_stood_still_and_was_not_replaced_goes_on() {
    let Some(broker) = broker() else { return };
    let (url, name) = (broker.url(""), unique("continued"));
    let topic = topic(&broker.bus("reader"), &name, LEASE);
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let old = Owner::start(&url, &name, ("Mount", LEASE));
    let before = read_until(&mut samples, |_, number| number >= AHEAD as u64);
    old.signal("-STOP");
    // Longer than the lease; nothing can be waited for but the time.
    std::thread::sleep(LEASE.unwrap() * 2);
    old.signal("-CONT");
    let goal = before.len() as u64 + 10 * AHEAD as u64;
    let after = read_until(&mut samples, |_, number| number >= goal);
    let numbers = before.iter().chain(&after).map(|(_, number)| *number);
    assert!(numbers.eq(0..=goal));
    assert_eq!(samples.stats().lost, 0);
}
