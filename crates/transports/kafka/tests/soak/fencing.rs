//! A writer of an exclusive topic whose process is stopped while another takes over.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use helio_bus::transport::Alive;
use helio_bus::{
    Bus, Event, Message, PendingPublish, PublishError, Publisher, Qos, Start, Subscribe,
    Subscription, Topic, TopicError, TopicSpec, TransportError,
};
use helio_core::qos::{Liveliness, Ownership};

use crate::support::{HANG_TIMEOUT, admin, broker, deliver_keyed, plain, test_in, unique};

/// The prefix of the child's lines: the test harness writes to the same output.
const OUTPUT_MARK: &str = "owner: ";
/// How many of the child's publishes are in flight when it is stopped.
const MAX_IN_FLIGHT: usize = 200;

fn exclusive(lease: Option<Duration>) -> Qos {
    let liveliness = lease.map_or(Liveliness::Automatic, Liveliness::Lease);
    Qos { ownership: Ownership::Exclusive, liveliness, ..Qos::stream() }
}

fn topic(bus: &Bus, name: &str, lease: Option<Duration>) -> Topic {
    bus.topic(TopicSpec::new(name).unwrap().qos(exclusive(lease))).unwrap()
}

fn lease(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis)).filter(|lease| !lease.is_zero())
}

/// The first owner, in a process of its own. It publishes numbers as fast as it can and prints each
/// result, until one is fenced and none is in flight.
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
        if is_fenced || under_way.len() >= MAX_IN_FLIGHT {
            let Some(first) = under_way.pop_front() else { return };
            is_fenced |= tell(first);
        }
    }
}

/// An owner in a process of its own that publishes once and then only sends heartbeats.
#[test]
fn idle_child() {
    let Ok(url) = std::env::var("HELIO_TEST_URL") else { return };
    helio_kafka::register();
    let name = std::env::var("HELIO_TEST_NAME").unwrap();
    let bus = Bus::builder().producer(&name).connect(&url).unwrap();
    let publisher = topic(&bus, &std::env::var("HELIO_TEST_TOPIC").unwrap(), None).publisher();
    publisher.as_ref().unwrap().publish(Message::new(&0_u64.to_le_bytes())).wait().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Prints the result of a publish; returns whether it was fenced.
fn tell((number, publishing): (u64, PendingPublish)) -> bool {
    let outcome = publishing.wait_timeout(HANG_TIMEOUT);
    let fenced = matches!(&outcome, Err(PublishError::Transport(TransportError::Fenced { .. })));
    let said = match &outcome {
        Ok(_) => "ok".to_owned(),
        Err(_) if fenced => "fenced".to_owned(),
        Err(error) => format!("{error:?}"),
    };
    println!("{OUTPUT_MARK}{number} {said}");
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
    fn start(url: &str, topic: &str, named: (&str, Option<Duration>)) -> Self {
        Self::start_as("child", url, topic, named)
    }

    fn start_as(
        child: &str,
        url: &str,
        topic: &str,
        (name, lease): (&str, Option<Duration>),
    ) -> Self {
        let lease = lease.unwrap_or_default().as_millis().to_string();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test_in(module_path!(), child), "--nocapture"])
            .envs([("HELIO_TEST_URL", url), ("HELIO_TEST_TOPIC", topic)])
            .envs([("HELIO_TEST_NAME", name), ("HELIO_TEST_LEASE_MS", &lease)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// The results of its publishes, in order, until its end.
    fn said(&mut self) -> Vec<String> {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        lines.filter_map(|line| Some(line.unwrap().strip_prefix(OUTPUT_MARK)?.to_owned())).collect()
    }
}

/// Takes the topic over as soon as possible.
fn taken_over(topic: &Topic) -> Publisher {
    let until = Instant::now() + HANG_TIMEOUT;
    loop {
        match topic.publisher() {
            Ok(publisher) => return publisher,
            Err(TopicError::Transport(TransportError::Owned { .. })) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < until, "the stopped owner still counts as alive");
    }
}

/// The incarnation and the number of each sample up to the last.
fn read_until(
    samples: &mut Subscription,
    mut is_last: impl FnMut(u64, u64) -> bool,
) -> Vec<(u64, u64)> {
    let mut read = Vec::new();
    loop {
        match samples.next_timeout(HANG_TIMEOUT).unwrap() {
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

/// A owns and publishes, and is stopped. B takes over and publishes. A continues. `names` are
/// theirs.
fn stopped_and_continued(names: [&str; 2], lease: Option<Duration>) {
    let Some(broker) = broker() else { return };
    let (url, name) = (broker.url(""), unique("stopped"));
    let bus = broker.bus(names[1]);
    let topic = topic(&bus, &name, lease);
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut old = Owner::start(&url, &name, (names[0], lease));
    let mut read = read_until(&mut samples, |_, number| number >= 3 * MAX_IN_FLIGHT as u64);
    let incarnation = read[0].0;
    old.signal("-STOP");
    let publisher = taken_over(&topic);
    let new = publisher.producer().incarnation;
    publisher.publish(Message::new(&0_u64.to_le_bytes())).wait_timeout(HANG_TIMEOUT).unwrap();
    old.signal("-CONT");
    // It may be while the old one finds out, and afterwards.
    for number in 1..100_u64 {
        publisher.publish(Message::new(&number.to_le_bytes())).wait_timeout(HANG_TIMEOUT).unwrap();
    }
    let said = old.said();
    publisher.publish(Message::new(&100_u64.to_le_bytes())).wait_timeout(HANG_TIMEOUT).unwrap();
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

/// Without a takeover, the deferred samples are published once and in order.
#[test]
fn who_stood_still_and_was_not_replaced_goes_on() {
    let Some(broker) = broker() else { return };
    let (url, name) = (broker.url(""), unique("continued"));
    let topic = topic(&broker.bus("reader"), &name, LEASE);
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let old = Owner::start(&url, &name, ("Mount", LEASE));
    let before = read_until(&mut samples, |_, number| number >= MAX_IN_FLIGHT as u64);
    old.signal("-STOP");
    // Longer than the lease. No event marks its end.
    std::thread::sleep(LEASE.unwrap() * 2);
    // Its samples so far are below this end, each number at its offset.
    let end = topic.partitions().unwrap()[0].end;
    old.signal("-CONT");
    let goal = end + 10 * MAX_IN_FLIGHT as u64;
    let after = read_until(&mut samples, |_, number| number >= goal);
    let numbers = before.iter().chain(&after).map(|(_, number)| *number);
    assert!(numbers.eq(0..=goal));
    assert_eq!(samples.stats().lost, 0);
}

/// The liveliness of a topic's writers, by name.
fn lives(topic: &Topic) -> Vec<(String, Option<Alive>)> {
    let writers = topic.writers_within(HANG_TIMEOUT).unwrap();
    writers.iter().map(|info| (info.producer.name.to_string(), info.alive)).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + HANG_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The rival has read that the owner is silent. It sends its claim after the owner has continued
/// and has found no takeover.
#[test]
fn a_claim_by_what_was_read_before_the_owner_went_on_is_lost() {
    let Some(broker) = broker() else { return };
    // No other test writes to these tables.
    let (url, name) = (broker.url("prefix=late."), unique("late"));
    let table = "late._helio.producers";
    let topic = topic(&Bus::connect(&url).unwrap(), &name, None);
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let old = Owner::start_as("idle_child", &url, &name, ("Mount", None));
    read_until(&mut samples, |_, _| true);
    old.signal("-STOP");
    let is = |alive| lives(&topic) == [("Mount".to_owned(), Some(alive))];
    until("it still counts as alive", || is(Alive::No));
    let admin = admin(broker);
    let end = || admin.inner().fetch_watermarks(table, 0, HANG_TIMEOUT).unwrap().1;
    let read = end();
    old.signal("-CONT");
    // After three more records, the owner has sent heartbeats and checked its ownership between.
    until("it does not continue", || end() >= read + 3);
    let word = serde_json::json!({
        "v": 2, "incarnation": null, "exclusive": true, "expected_end_offset": read,
        "open": true, "last_active_tai_ns": 0, "session": "s",
    });
    let (key, word) = (format!("writer {name} 0 Dome 1"), word.to_string());
    deliver_keyed(&plain(broker), (table, 0), (key.as_bytes(), word.as_bytes())).unwrap();
    assert!(is(Alive::Yes), "{:?}", lives(&topic));
}

/// A closed writer's record follows its samples: readers drop samples behind the next owner's
/// first.
#[test]
fn who_goes_says_so_behind_what_it_has_under_way() {
    let Some(broker) = broker() else { return };
    let name = unique("gone");
    let buses = ["Mount", "Dome"].map(|name| broker.bus(name));
    let topics = buses.each_ref().map(|bus| topic(bus, &name, None));
    let mut samples = topics[1].subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut receipts = Vec::new();
    for (turn, topic) in (0..6).zip(topics.iter().cycle()) {
        let publisher = topic.publisher().unwrap();
        let numbers = turn * MAX_IN_FLIGHT as u64..(turn + 1) * MAX_IN_FLIGHT as u64;
        let publish = |n: u64| publisher.publish(Message::new(&n.to_le_bytes()));
        receipts.extend(numbers.map(publish));
    }
    assert!(receipts.into_iter().all(|receipt| receipt.wait_timeout(HANG_TIMEOUT).is_ok()));
    let last = 6 * MAX_IN_FLIGHT as u64 - 1;
    let read = read_until(&mut samples, |_, number| number == last);
    assert!(read.iter().map(|(_, number)| *number).eq(0..=last));
}

#[test]
fn a_lease_that_is_too_short_for_an_owner_to_be_sure_is_refused() {
    let Some(broker) = broker() else { return };
    let (bus, short) = (broker.bus("Mount"), exclusive(Some(Duration::from_millis(1_999))));
    let spec = |qos: &Qos| TopicSpec::new(&unique("short")).unwrap().qos(qos.clone());
    let refused = spec(&short);
    bus.make_topics([&refused], |_| {}).unwrap();
    let error = bus.topic(refused).unwrap_err().to_string();
    assert!(error.contains("1.999s") && error.contains("at least 2s"), "{error}");
    for qos in [exclusive(LEASE), Qos { ownership: Ownership::Shared, ..short }] {
        bus.topic(spec(&qos)).unwrap();
    }
}
