//! `helio bridge` as a process of its own: killed again and again in a storm, on journals and on a
//! real broker that is killed too.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;
#[cfg(feature = "kafka")]
#[path = "../../transports/kafka/tests/common/broker.rs"]
mod kafka;

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Site, ended, helio, interrupt, run};
use helio_bus::{
    Bus, Event, Lagging, Message, Publisher, Qos, Start, Subscribe, Subscription, Topic, TopicSpec,
};

const PATIENCE: Duration = Duration::from_secs(120);
/// How far the publishers run ahead of the reader on the other side.
const AHEAD: u64 = 3_000;
const PARTITIONS: u32 = 2;
const PRODUCERS: [&str; 3] = ["Mount", "Camera", "Script:12"];

fn open(bus: &Bus, name: &str) -> Topic {
    let qos = Qos { partitions: PARTITIONS, ..Qos::stream() };
    bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
}

fn everything(bus: &Bus, name: &str) -> Subscription {
    let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
    open(bus, name).subscribe(options).unwrap()
}

/// Publishes until it is told to end, never far ahead of who reads on the other side.
struct Storm {
    published: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
    until: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Storm {
    fn start(url: &str, name: &str, site: &str) -> Self {
        let publishers: Vec<(Bus, Publisher)> = PRODUCERS
            .iter()
            .map(|who| {
                let bus = Bus::builder().producer(&format!("{site}.{who}")).connect(url).unwrap();
                let publisher = open(&bus, name).publisher().unwrap();
                (bus, publisher)
            })
            .collect();
        let (published, read) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let until = Arc::new(AtomicU64::new(u64::MAX));
        let (count, seen, end) = (Arc::clone(&published), Arc::clone(&read), Arc::clone(&until));
        let thread = std::thread::spawn(move || {
            let mut n = 0_u64;
            while n < end.load(Ordering::Acquire) {
                if n > seen.load(Ordering::Acquire) + AHEAD {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let batch: Vec<_> = (0..50).map(|k| (n + k).to_le_bytes()).collect();
                for (who, (_, publisher)) in publishers.iter().enumerate() {
                    let each = batch.iter().enumerate();
                    let messages: Vec<_> = each
                        .map(|(k, payload)| {
                            let partition = (k as u32 + who as u32) % PARTITIONS;
                            Message::new(payload).key(&payload[..1]).partition(partition)
                        })
                        .collect();
                    publisher.publish_batch(&messages).wait().unwrap();
                }
                n += 50;
                count.store(n * PRODUCERS.len() as u64, Ordering::Release);
            }
        });
        Self { published, read, until, thread: Some(thread) }
    }

    /// Ends it; gives how much was published.
    fn end(mut self) -> u64 {
        self.until.store(0, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
        self.published.load(Ordering::Acquire)
    }
}

/// What a reader has seen: the newest number of each producer in each partition.
struct Reading {
    samples: Subscription,
    newest: BTreeMap<(u32, String, u64), u64>,
    count: u64,
}

impl Reading {
    fn new(bus: &Bus, name: &str) -> Self {
        Self { samples: everything(bus, name), newest: BTreeMap::new(), count: 0 }
    }

    /// Reads on until so many samples were seen; numbers come one behind the other, from 1.
    fn read(&mut self, until: u64, storm: Option<&Storm>) {
        let end = Instant::now() + PATIENCE;
        while self.count < until {
            let left = end.saturating_duration_since(Instant::now());
            let Some(event) = self.samples.next_timeout(left).unwrap() else {
                panic!("{} samples of {until} came: {:?}", self.count, self.samples.stats());
            };
            let Event::Sample(sample) = event else {
                assert!(matches!(event, Event::Outage(_)), "{event:?}");
                continue;
            };
            let producer = sample.header.producer;
            let key = (sample.partition, producer.name.to_string(), producer.incarnation);
            let newest = self.newest.entry(key).or_insert(0);
            assert_eq!(sample.header.sequence, *newest + 1, "{:?}", sample.offset);
            *newest += 1;
            self.count += 1;
            if let Some(storm) = storm {
                storm.read.store(self.count / PRODUCERS.len() as u64, Ordering::Release);
            }
        }
        assert_eq!((self.samples.stats().lost, self.samples.stats().fenced), (0, 0));
    }

    /// Makes sure that there are no more.
    fn is_all(&mut self) {
        while let Some(event) = self.samples.next_timeout(Duration::from_millis(500)).unwrap() {
            assert!(!matches!(event, Event::Sample(_)), "{event:?}");
        }
    }
}

fn bridge(from: &str, to: &str, name: &str, rest: &[&str]) -> Child {
    let mut command = helio();
    command.args(["bridge", from, to, "--topics", name, "--every", "1s"]).args(rest);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill(mut bridge: Child) {
    bridge.kill().unwrap();
    bridge.wait().unwrap();
}

/// Numbers without a pattern, the same each time.
fn some(n: u64, most: u64) -> u64 {
    1 + n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % most
}

/// A storm from one bus to the other, through bridges that are killed: `hurt` is done to the
/// engine meanwhile.
fn storm(from: &str, to: &str, name: &str, kills: u64, mut hurt: impl FnMut(u64)) {
    let (source, target) = (Bus::connect(from).unwrap(), Bus::connect(to).unwrap());
    open(&source, name);
    let mut live = Reading::new(&target, name);
    let storm = Storm::start(from, name, "far");
    for n in 0..kills {
        let running = bridge(from, to, name, &[]);
        hurt(n);
        live.read(live.count + some(n, 2_000), Some(&storm));
        kill(running);
    }
    let mut running = bridge(from, to, name, &[]);
    live.read(live.count + 5_000, Some(&storm));
    let published = storm.end();
    live.read(published, None);
    assert_eq!(interrupt(&mut running), Some(0), "a signal is its ordinary end");
    let mut last = bridge(from, to, name, &["--once"]);
    assert_eq!(ended(&mut last), Some(0));
    live.is_all();
    let mut late = Reading::new(&target, name);
    late.read(published, None);
    late.is_all();
    assert_eq!(late.newest, live.newest);
}

#[test]
fn killed_between_journals_nothing_is_lost_or_comes_twice() {
    let (from, to) = (Site::new(), Site::new());
    storm(&from.url, &to.url, "t", 12, |_| {});
    // Nothing is there twice even for who counts records: the last place says so.
    let bus = Bus::connect(&to.url).unwrap();
    let ends: u64 = open(&bus, "t").partitions().unwrap().iter().map(|p| p.end).sum();
    let mut all = Reading::new(&bus, "t");
    all.read(ends, None);
}

#[test]
fn killed_both_ways_at_once_nothing_comes_back() {
    let (left, right) = (Site::new(), Site::new());
    let buses = [&left, &right].map(|site| Bus::connect(&site.url).unwrap());
    let mut live = buses.each_ref().map(|bus| Reading::new(bus, "t"));
    let storms = [(&left, "left"), (&right, "right")].map(|(s, n)| Storm::start(&s.url, "t", n));
    let start =
        || [bridge(&left.url, &right.url, "t", &[]), bridge(&right.url, &left.url, "t", &[])];
    for n in 0..8 {
        let running = start();
        for (reading, storm) in live.iter_mut().zip(&storms) {
            reading.read(reading.count + some(n, 3_000), Some(storm));
        }
        running.into_iter().for_each(kill);
    }
    let running = start();
    for reading in &mut live {
        reading.read(reading.count + 3_000, None);
    }
    let published: u64 = storms.map(Storm::end).iter().sum();
    live.iter_mut().for_each(|reading| reading.read(published, None));
    live.iter_mut().for_each(Reading::is_all);
    running.into_iter().for_each(kill);
    assert_eq!(live[0].newest, live[1].newest);
}

#[test]
fn a_migration_ends_by_itself_and_tells_what_it_did() {
    let (from, to) = (Site::new(), Site::new());
    for topic in ["site/wind", "site/dome", "other"] {
        from.run(&["pub", topic, "1", "2", "--profile", "event", "--json"]).ok();
    }
    let args = ["bridge", &from.url, &to.url, "--topics", "site/*", "--not", "*/dome", "--once"];
    let ran = run(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["notice"], &lines[0]["topic"]), (&"opened".into(), &"site/wind".into()));
    let last = lines.last().unwrap();
    assert_eq!(last["total"]["forwarded"], 2, "{last}");
    assert_eq!(last["topics"][0]["state"], "caught_up");
    let again = run(&args);
    assert_eq!(
        (again.code, again.out.contains(" 0 samples forwarded")),
        (Some(0), true),
        "{again:?}"
    );
    // What the target cannot give is named, and may be chosen.
    let strict = "memory:strict?strict=1";
    let refused = run(&["bridge", &from.url, strict, "--topics", "other", "--once"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("durability = persistent"), "{}", refused.err);
    let chosen = ["--qos", "durability=transient_local"];
    let args = ["bridge", &from.url, strict, "--topics", "other", "--once"];
    assert_eq!(run(&[&args[..], &chosen].concat()).code, Some(0));
    let wrong = run(&[&args[..], &["--qos", "durability=eternal"]].concat());
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    let same = run(&["bridge", &from.url, &from.url, "--topics", "*"]);
    assert_eq!(same.code, Some(2), "{same:?}");
}

#[test]
fn what_was_forwarded_and_is_played_has_been_nowhere() {
    let sites = [(); 3].map(|()| Site::new());
    let [first, second, third] = &sites;
    first.run(&["pub", "t", "1", "2", "--profile", "event", "--json"]).ok();
    let once = |from: &Site, to: &Site, topic: &str| {
        let ran = run(&["bridge", &from.url, &to.url, "--topics", topic, "--once", "--json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let last: serde_json::Value =
            serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
        ["forwarded", "returned"].map(|what| last["total"][what].as_u64().unwrap())
    };
    assert_eq!(once(first, second, "t"), [2, 0]);
    let file = second.path("t.avro");
    let from = ["--from", "earliest", "--count", "2"];
    second.run(&[&["record", "t", &file, "--envelope"][..], &from].concat()).ok();
    third.run(&["play", "again", &file, "--profile", "event"]).ok();
    assert_eq!(once(third, first, "again"), [2, 0], "they are new, wherever the recorded were");
}

#[cfg(feature = "kafka")]
mod with_kafka {
    use super::*;

    /// The test's own broker is killed and comes back in the second round.
    fn hurt(broker: &kafka::Broker, n: u64) {
        if n == 1 {
            broker.does("kill");
            broker.does("restart");
        }
    }

    #[test]
    fn killed_from_a_journal_to_kafka_nothing_is_lost_or_comes_twice() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let from = Site::new();
        let name = kafka::unique("to-kafka");
        storm(&from.url, &broker.url(""), &name, 4, |n| hurt(&broker, n));
    }

    #[test]
    fn killed_from_kafka_to_a_journal_nothing_is_lost_or_comes_twice() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let to = Site::new();
        let name = kafka::unique("from-kafka");
        storm(&broker.url(""), &to.url, &name, 4, |n| hurt(&broker, n));
    }
}
