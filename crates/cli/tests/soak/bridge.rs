//! `helio bridge` as a process of its own: killed again and again in a storm, on journals and on a
//! real broker that is killed too.

use std::collections::BTreeMap;
#[cfg(feature = "kafka")]
use std::hash::BuildHasher;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[cfg(feature = "dds")]
use crate::dds;
#[cfg(feature = "kafka")]
use crate::kafka;
use crate::storm_report;
use crate::support::{self, Site, ended, helio, interrupt, run};
use helio_bus::{
    Bus, Event, Lagging, Message, Publisher, Qos, Start, Subscribe, Subscription, Topic, TopicSpec,
};

const READ_TIMEOUT: Duration = Duration::from_secs(120);
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
        let end = Instant::now() + READ_TIMEOUT;
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
    let lost = published.abs_diff(late.count);
    storm_report::Storm { tried: kills, survived: kills, lost, unreported: 0 }
        .report(&format!("kills of bridges to {}", to.split(':').next().unwrap()));
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

#[cfg(feature = "kafka")]
mod with_kafka {
    use std::collections::BTreeSet;

    use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
    use rdkafka::consumer::{BaseConsumer, Consumer as _};
    use rdkafka::error::KafkaError;
    use rdkafka::message::Message as _;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
    use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

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
    fn what_the_broker_finds_too_large_is_counted_and_told_and_the_rest_is_there() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let (from, url) = (Site::new(), broker.url(""));
        let (source, target) = (Bus::connect(&from.url).unwrap(), Bus::connect(&url).unwrap());
        let publisher = open(&source, "t").publisher().unwrap();
        open(&target, "t");
        broker.set("t", "max.message.bytes", "20000");
        let random = std::hash::RandomState::new();
        // Each is small enough but one, together they are not; none is smaller when compressed.
        for n in 0..400_u64 {
            let length = if n == 150 { 30_000 } else { 1_000 };
            let payload: Vec<_> = (0..length).map(|k| random.hash_one((n, k)) as u8).collect();
            publisher.publish(Message::new(&payload).key(b"k")).wait().unwrap();
        }
        let ran = run(&["bridge", &from.url, &url, "--topics", "t", "--once", "--json"]);
        assert_eq!(ran.code, Some(5), "{}", ran.err);
        let last = ran.out.lines().last().unwrap();
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        let total = |what: &str| last["total"][what].as_u64().unwrap();
        assert_eq!((total("forwarded"), total("skipped")), (399, 1), "{last}");
        assert!(ran.out.contains("is not forwarded"), "{}", ran.out);
        let mut samples = everything(&target, "t");
        let mut came = 0;
        while came + samples.stats().lost < 400 {
            match samples.next_timeout(READ_TIMEOUT).unwrap().unwrap() {
                Event::Sample(sample) => {
                    came += 1;
                    assert_ne!(sample.header.sequence, 151);
                }
                Event::Gap(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((came, samples.stats().duplicates), (total("forwarded"), 0), "{last}");
    }

    /// The services on a broker that is away, each with the pipe of what it reports.
    fn services(site: &Site, broker: &str) -> Vec<Child> {
        let archive = site.path("archive");
        let cursor = site.path("cursor");
        let on_broker = ["--url", broker];
        let forward = ["log", "forward", "--otlp-http", "http://127.0.0.1:9", "--cursor", &cursor];
        let all = [
            vec!["bridge", &site.url, broker, "--topics", "t"],
            vec!["bridge", broker, &site.url, "--topics", "back"],
            [&["registry", "--listen", "127.0.0.1:0"], &on_broker[..]].concat(),
            [&["log", "archive", &archive], &on_broker[..]].concat(),
            [&forward[..], &on_broker].concat(),
        ];
        let start = |args: Vec<&str>| {
            let mut command = helio();
            command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        all.into_iter().map(start).collect()
    }

    #[test]
    fn services_that_start_while_the_broker_is_away_work_once_it_is_there() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let (site, url) = (Site::new(), broker.url(""));
        let source = open(&Bus::connect(&site.url).unwrap(), "t").publisher().unwrap();
        for n in 0..100_u64 {
            source.publish(Message::new(&n.to_le_bytes()).key(b"k")).wait().unwrap();
        }
        broker.does("kill");
        for round in 0..2 {
            let mut running = services(&site, &url);
            for child in &mut running {
                let line = support::told_by(child);
                assert!(line.contains("kafka cannot reach its engine: "), "{line}");
            }
            if round == 1 {
                broker.does("restart");
                for child in &mut running {
                    assert_eq!(support::told_by(child), "helio: the outage is over");
                }
                let target = Bus::connect(&url).unwrap();
                let mut samples = everything(&target, "t");
                for n in 0..100_u64 {
                    let event = samples.next_timeout(READ_TIMEOUT).unwrap().unwrap();
                    let Event::Sample(sample) = event else { panic!("{event:?}") };
                    assert_eq!(sample.payload[..], n.to_le_bytes());
                }
            }
            for mut child in running {
                assert_eq!(interrupt(&mut child), Some(0), "round {round}");
            }
        }
    }

    /// Publishes as a plain client of Kafka: without a producer of ours, or numbers.
    fn plain(broker: &kafka::Broker, topic: &str, payloads: std::ops::Range<u64>) {
        let producer: BaseProducer = kafka::config(broker).create().unwrap();
        for payload in payloads {
            let payload = payload.to_le_bytes();
            let record = BaseRecord::to(topic).partition(0).key(b"k").payload(&payload);
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(READ_TIMEOUT).unwrap();
    }

    /// The keys of all records of a compacted topic, tombstones included, as its log has them now.
    fn keys_in_log(broker: &kafka::Broker, topic: &str) -> BTreeSet<String> {
        let mut config = kafka::config(broker);
        config.set("group.id", "looks").set("enable.partition.eof", "true");
        let consumer: BaseConsumer = config.create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
        consumer.assign(&list).unwrap();
        let mut keys = BTreeSet::new();
        loop {
            match consumer.poll(READ_TIMEOUT).expect("the log has an end") {
                Ok(record) => {
                    keys.insert(String::from_utf8(record.key().unwrap().to_vec()).unwrap());
                }
                Err(KafkaError::PartitionEOF(_)) => return keys,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The keys that have a last value.
    fn last_keys(bus: &Bus) -> BTreeSet<String> {
        let topic = bus.topic(TopicSpec::new("t").unwrap()).unwrap();
        let mut samples = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
        let mut keys = BTreeSet::new();
        while let Some(event) = samples.next_timeout(Duration::from_millis(300)).unwrap() {
            let Event::Sample(sample) = event else { continue };
            keys.insert(String::from_utf8(sample.key.to_vec()).unwrap());
        }
        keys
    }

    /// Writes to both sides until a condition holds: only closed segments are compacted.
    fn until(broker: &kafka::Broker, mut holds: impl FnMut() -> bool) {
        let producer: BaseProducer = kafka::config(broker).create().unwrap();
        let late = Instant::now() + READ_TIMEOUT;
        while !holds() {
            assert!(Instant::now() < late, "it does not come to hold");
            for topic in ["old.t", "new.t"] {
                let record = BaseRecord::to(topic).partition(0).key("filler").payload("x");
                producer.send(record).map_err(|(error, _)| error).unwrap();
            }
            producer.flush(READ_TIMEOUT).unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    #[test]
    fn a_compacted_topic_and_its_copy_have_the_same_keys_both_ways() {
        let options = ["--set", "log.cleaner.backoff.ms=100"];
        let Some(broker) = kafka::Broker::start_with(&options) else { return };
        for topic in ["old.t", "new.t"] {
            let options = [
                ("cleanup.policy", "compact"),
                ("segment.ms", "200"),
                ("min.cleanable.dirty.ratio", "0.001"),
                ("delete.retention.ms", "5000"),
            ];
            kafka::make(&kafka::admin(&broker), topic, &options);
        }
        let urls = ["old.", "new."].map(|prefix| broker.url(&format!("prefix={prefix}")));
        let buses = urls.each_ref().map(|url| Bus::connect(url).unwrap());
        let running = [bridge(&urls[0], &urls[1], "t", &[]), bridge(&urls[1], &urls[0], "t", &[])];
        // A plain client on one side, a producer of the bus on the other.
        let producer: BaseProducer = kafka::config(&broker).create().unwrap();
        let plain = |key: &str, payload: Option<&str>| {
            let mut record = BaseRecord::<str, str>::to("old.t").partition(0).key(key);
            record.payload = payload;
            producer.send(record).map_err(|(error, _)| error).unwrap();
        };
        let own = buses[1].topic(TopicSpec::new("t").unwrap()).unwrap().publisher().unwrap();
        let own = |message: Message<'_>| own.publish(message).wait().map(drop).unwrap();
        let keys = |range: std::ops::Range<u64>| range.map(|n| (format!("k{n}"), format!("n{n}")));
        for (foreign, ours) in keys(0..20) {
            plain(&foreign, Some("value"));
            own(Message::new(b"value").key(ours.as_bytes()));
        }
        producer.flush(READ_TIMEOUT).unwrap();
        let filler = std::iter::once("filler".to_owned());
        let all: BTreeSet<_> = keys(0..20).flat_map(|(k, n)| [k, n]).chain(filler).collect();
        until(&broker, || buses.iter().all(|bus| last_keys(bus) == all));
        for (foreign, ours) in keys(0..10) {
            plain(&foreign, None);
            own(Message::null(ours.as_bytes()));
        }
        producer.flush(READ_TIMEOUT).unwrap();
        let is_left = |key: &String| keys(0..10).all(|(k, n)| *key != k && *key != n);
        let left: BTreeSet<_> = all.into_iter().filter(is_left).collect();
        until(&broker, || buses.iter().all(|bus| last_keys(bus) == left));
        let logs = || ["old.t", "new.t"].map(|topic| keys_in_log(&broker, topic));
        until(&broker, || logs().iter().all(|keys| *keys == left));
        running.into_iter().for_each(kill);
    }

    #[test]
    fn plain_clients_on_both_sides_of_a_migration_are_not_taken_for_each_other() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let urls = ["old.", "new."].map(|prefix| broker.url(&format!("prefix={prefix}")));
        let buses = urls.each_ref().map(|url| Bus::connect(url).unwrap());
        buses.iter().for_each(|bus| _ = open(bus, "t"));
        plain(&broker, "old.t", 0..50);
        let start = || [bridge(&urls[0], &urls[1], "t", &[]), bridge(&urls[1], &urls[0], "t", &[])];
        let running = start();
        let mut readers = buses.each_ref().map(|bus| everything(bus, "t"));
        let mut seen = [(); 2].map(|()| Vec::new());
        let mut read = |count: usize| {
            for (samples, seen) in readers.iter_mut().zip(&mut seen) {
                while seen.len() < count {
                    let event = samples.next_timeout(READ_TIMEOUT).unwrap();
                    match event.unwrap_or_else(|| panic!("{seen:?} {:?}", samples.stats())) {
                        Event::Sample(sample) => {
                            seen.push(u64::from_le_bytes(sample.payload[..].try_into().unwrap()));
                        }
                        Event::Outage(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
        };
        read(50);
        // Its clients move, and begin on the other side with a number that was there.
        plain(&broker, "new.t", 50..60);
        read(60);
        running.into_iter().for_each(kill);
        plain(&broker, "old.t", 60..65);
        plain(&broker, "new.t", 65..70);
        let running = start();
        read(70);
        for seen in &mut seen {
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..70), "{seen:?}");
        }
        running.into_iter().for_each(kill);
        for samples in &readers {
            let stats = samples.stats();
            assert_eq!((stats.lost, stats.duplicates, stats.fenced), (0, 0, 0));
        }
    }

    #[test]
    fn a_kafka_topic_that_is_made_anew_is_forwarded_from_its_first_sample() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let (url, to) = (broker.url(""), Site::new());
        let target = Bus::connect(&to.url).unwrap();
        let forwards = |count: u64| {
            let ran = run(&["bridge", &url, &to.url, "--topics", "plain", "--once", "--json"]);
            let last = ran.out.lines().last().unwrap_or_default();
            let last: serde_json::Value = serde_json::from_str(last).unwrap();
            assert_eq!(ran.code, Some(0), "{last} {}", ran.err);
            assert_eq!(last["total"]["forwarded"], count, "{last}");
        };
        for (count, from) in [(30, 0), (10, 30), (60, 40)] {
            make(&broker, "plain");
            plain(&broker, "plain", from..from + count);
            forwards(count);
            forwards(0);
            let gone = kafka::admin(&broker);
            let gone = kafka::done(gone.delete_topics(&["plain"], &AdminOptions::new())).unwrap();
            assert!(gone.iter().all(Result::is_ok), "{gone:?}");
        }
        let topic = target.topic(TopicSpec::new("plain").unwrap()).unwrap();
        let ends: u64 = topic.partitions().unwrap().iter().map(|at| at.end).sum();
        assert_eq!(ends, 100);
    }

    /// Makes a topic as others do, as soon as one of its name has gone.
    fn make(broker: &kafka::Broker, name: &str) {
        let admin = kafka::admin(broker);
        let until = Instant::now() + READ_TIMEOUT;
        let topic = NewTopic::new(name, 1, TopicReplication::Fixed(1));
        loop {
            let made = kafka::done(admin.create_topics([&topic], &AdminOptions::new())).unwrap();
            if made.iter().all(Result::is_ok) {
                break;
            }
            assert!(Instant::now() < until, "{made:?}");
        }
        let known = || admin.inner().fetch_metadata(Some(name), READ_TIMEOUT).unwrap();
        while known().topics().iter().any(|topic| topic.error().is_some()) {
            assert!(Instant::now() < until, "the broker does not know {name}");
        }
    }

    /// Publishes in a transaction: behind it lies a mark, which nobody gets.
    fn transact(broker: &kafka::Broker, topic: &str, payloads: std::ops::Range<u64>) {
        let mut config = kafka::config(broker);
        let producer: BaseProducer = config.set("transactional.id", topic).create().unwrap();
        producer.init_transactions(READ_TIMEOUT).unwrap();
        producer.begin_transaction().unwrap();
        for payload in payloads {
            let payload = payload.to_le_bytes();
            let record = BaseRecord::to(topic).partition(0).key(b"k").payload(&payload);
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.commit_transaction(READ_TIMEOUT).unwrap();
    }

    /// Waits until a topic has so many offsets: marks of transactions come a little later.
    fn await_end(bus: &Bus, name: &str, end: u64) {
        let topic = bus.topic(TopicSpec::new(name).unwrap()).unwrap();
        let ends = || topic.partitions().unwrap().iter().map(|at| at.end).sum::<u64>();
        let until = Instant::now() + READ_TIMEOUT;
        while ends() != end {
            assert!(Instant::now() < until, "{name} has {} offsets, not {end}", ends());
        }
    }

    #[test]
    fn a_log_that_ends_with_the_mark_of_a_transaction_ends_there_as_source_and_as_target() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let (url, site) = (broker.url(""), Site::new());
        let buses = [&site.url, &url].map(|url| Bus::connect(url).unwrap());
        let once = |from: &str, to: &str, name: &str| {
            assert_eq!(ended(&mut bridge(from, to, name, &["--once"])), Some(0), "{name}");
        };
        make(&broker, "plain");
        transact(&broker, "plain", 0..3);
        await_end(&buses[1], "plain", 4);
        once(&url, &site.url, "plain");
        await_end(&buses[0], "plain", 3);
        // The next one looks back from the target's end.
        let publisher = open(&buses[0], "t").publisher().unwrap();
        for (new, end) in [(5, 5), (3, 11)] {
            for _ in 0..new {
                publisher.publish(Message::new(b"ours").partition(0)).wait().unwrap();
            }
            once(&site.url, &url, "t");
            await_end(&buses[1], "t", end);
            transact(&broker, "t", 0..2);
            await_end(&buses[1], "t", end + 3);
        }
    }

    #[test]
    fn killed_from_kafka_to_a_journal_nothing_is_lost_or_comes_twice() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let to = Site::new();
        let name = kafka::unique("from-kafka");
        storm(&broker.url(""), &to.url, &name, 4, |n| hurt(&broker, n));
    }
}

/// DDS has no log: everybody gets what comes, and late joiners the newest of each key.
#[cfg(feature = "dds")]
mod with_dds {
    use helio_bus::ProducerName;
    use helio_core::qos::{Durability, History, Liveliness, Ownership, Retention};

    use super::*;

    /// How many samples of a key late joiners get.
    const KEPT: u8 = 200;

    fn events() -> Qos {
        Qos {
            durability: Durability::TransientLocal,
            history: History::KeepLast(KEPT),
            retention: Retention { bytes: None, age: None, last_value: false, default: false },
            ..Qos::event()
        }
    }

    fn topic(bus: &Bus, name: &str, qos: Qos) -> Topic {
        bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
    }

    fn publisher(bus: &Bus, name: &str, (who, qos): (&str, Qos)) -> Publisher {
        let spec = TopicSpec::new(name).unwrap().qos(qos).producer(ProducerName::new(who).unwrap());
        bus.topic(spec).unwrap().publisher().unwrap()
    }

    fn publish(publisher: &Publisher, payloads: std::ops::Range<u64>) {
        for payload in payloads {
            publisher.publish(Message::new(&payload.to_le_bytes()).key(b"k")).wait().unwrap();
        }
    }

    /// The next samples: payloads, producers and numbers, none lost and none twice.
    fn next(samples: &mut Subscription, count: usize) -> Vec<(u64, String, u64, u64)> {
        let end = Instant::now() + READ_TIMEOUT;
        let mut seen = Vec::new();
        while seen.len() < count {
            let left = end.saturating_duration_since(Instant::now());
            let event = samples.next_timeout(left).unwrap();
            let event = event.unwrap_or_else(|| panic!("{seen:?}, {:?}", samples.stats()));
            let Event::Sample(sample) = event else { continue };
            let payload = u64::from_le_bytes(sample.payload[..8].try_into().unwrap());
            let header = sample.header;
            let name = header.producer.name.to_string();
            seen.push((payload, name, header.producer.incarnation, header.sequence));
        }
        seen
    }

    fn payloads(seen: &[(u64, String, u64, u64)]) -> Vec<u64> {
        seen.iter().map(|(payload, ..)| *payload).collect()
    }

    fn listen(bus: &Bus, name: &str, (qos, start): (Qos, Start)) -> Subscription {
        let options = Subscribe::from(start).lagging(Lagging::Lossless);
        topic(bus, name, qos).subscribe(options).unwrap()
    }

    /// A storm on DDS through bridges that are killed: what came while none ran is in the history
    /// that the writer keeps, as long as that is no more than it keeps.
    fn storm_from_dds(to: &str, name: &str, kills: u64, mut hurt: impl FnMut(u64)) {
        let url = dds::url(dds::domain());
        let (source, target) = (Bus::connect(&url).unwrap(), Bus::connect(to).unwrap());
        let whose = ["Mount", "Camera"];
        let publishers = whose.map(|who| publisher(&source, name, (who, events())));
        let mut there = listen(&target, name, (events(), Start::Earliest));
        let (mut published, mut seen) = (0, Vec::new());
        let publish_some = |published: &mut u64, count: u64| {
            for n in *published..*published + count {
                for (key, publisher) in publishers.iter().enumerate() {
                    let (payload, key) = (n.to_le_bytes(), [key as u8]);
                    let message = Message::new(&payload).key(&key);
                    publisher.publish(message).wait().unwrap();
                }
            }
            *published += count;
        };
        for n in 0..kills {
            let running = bridge(&url, to, name, &[]);
            hurt(n);
            // In mid-storm: some of it is on its way, and some not read yet.
            publish_some(&mut published, 50 + some(n, 50));
            seen.extend(next(&mut there, 40));
            publish_some(&mut published, some(n, 20));
            kill(running);
            // Nobody runs.
            publish_some(&mut published, some(n, 20));
            let behind = 2 * published as usize - seen.len();
            assert!(behind < 2 * usize::from(KEPT), "the test keeps within what late joiners get");
            let running = bridge(&url, to, name, &[]);
            seen.extend(next(&mut there, behind));
            kill(running);
        }
        let mut last = bridge(&url, to, name, &["--once"]);
        assert_eq!(ended(&mut last), Some(0));
        while let Some(event) = there.next_timeout(Duration::from_millis(500)).unwrap() {
            assert!(!matches!(event, Event::Sample(_)), "{event:?}");
        }
        for (who, publisher) in whose.iter().zip(&publishers) {
            let of: Vec<_> = seen.iter().filter(|(_, name, ..)| name == who).cloned().collect();
            assert!(payloads(&of).into_iter().eq(0..published), "{who}: {of:?}");
            let incarnation = publisher.producer().incarnation;
            let kept = |(n, (.., of, number)): (usize, &(u64, String, u64, u64))| {
                *of == incarnation && *number == n as u64 + 1
            };
            assert!(of.iter().enumerate().all(kept), "{who}: {of:?}");
        }
        assert_eq!((there.stats().lost, there.stats().fenced), (0, 0));
    }

    #[test]
    fn killed_from_dds_to_a_journal_late_joiners_history_is_enough() {
        storm_from_dds(&Site::new().url, "events", 3, |_| {});
    }

    #[test]
    fn killed_from_a_journal_to_dds_nothing_is_lost_or_read_twice() {
        let (from, url) = (Site::new(), dds::url(dds::domain()));
        let (source, target) = (Bus::connect(&from.url).unwrap(), Bus::connect(&url).unwrap());
        let mount = publisher(&source, "events", ("Mount", events()));
        let mut there = listen(&target, "events", (events(), Start::Latest));
        let mut seen = Vec::new();
        for n in 0..4_u64 {
            let running = bridge(&from.url, &url, "events", &[]);
            publish(&mount, n * 500..n * 500 + 400);
            seen.extend(next(&mut there, 200));
            kill(running);
            publish(&mount, n * 500 + 400..n * 500 + 500);
        }
        let mut last = bridge(&from.url, &url, "events", &["--once"]);
        seen.extend(next(&mut there, 2_000 - seen.len()));
        assert_eq!(ended(&mut last), Some(0));
        assert!(payloads(&seen).into_iter().eq(0..2_000), "{seen:?}");
        let incarnation = mount.producer().incarnation;
        assert!(seen.iter().all(|(.., of, _)| *of == incarnation));
        assert_eq!((there.stats().lost, there.stats().fenced), (0, 0));
    }

    #[test]
    fn with_a_durability_service_nothing_is_lost_while_no_bridge_and_no_writer_runs() {
        let (url, folder) = (dds::url(dds::domain()), tempfile::tempdir().unwrap());
        let _service = dds::Service::start(&url, folder.path());
        let [to, back] = [(); 2].map(|()| Site::new());
        let bus = |url: &str| Bus::builder().producer("Mount").connect(url).unwrap();
        let publish_from = |from: u64| {
            let here = bus(&url);
            let mount = open(&here, "log").publisher().unwrap();
            // Several pages of the service.
            let mut payload = vec![0; 8_000];
            for n in from..from + 500 {
                payload[..8].copy_from_slice(&n.to_le_bytes());
                let message = Message::new(&payload).key(b"k").partition(1);
                mount.publish(message).wait().unwrap();
            }
            here.close();
        };
        for n in 0..2 {
            publish_from(500 * n);
            let mut last = bridge(&url, &to.url, "log", &["--once"]);
            assert_eq!(ended(&mut last), Some(0));
        }
        // And on to another domain with a service, through a bridge that is killed.
        let (url, folder) = (dds::url(dds::domain()), tempfile::tempdir().unwrap());
        let _other = dds::Service::start(&url, folder.path());
        let running = bridge(&to.url, &url, "log", &[]);
        let target = Bus::connect(&url).unwrap();
        let mut there = everything(&target, "log");
        let mut seen = payloads(&next(&mut there, 100));
        kill(running);
        let mut last = bridge(&to.url, &url, "log", &["--once"]);
        seen.extend(payloads(&next(&mut there, 900)));
        assert_eq!(ended(&mut last), Some(0));
        assert!(seen.into_iter().eq(0..1_000));
        let mut last = bridge(&url, &back.url, "log", &["--once"]);
        assert_eq!(ended(&mut last), Some(0));
        let late = Bus::connect(&back.url).unwrap();
        let seen = next(&mut everything(&late, "log"), 1_000);
        assert!(payloads(&seen).into_iter().eq(0..1_000));
        assert_eq!((there.stats().lost, there.stats().fenced), (0, 0));
    }

    #[test]
    fn a_bridge_whose_durability_service_goes_in_the_middle_of_the_history_ends_and_says_so() {
        use rustix::process::{Pid, Signal, kill_process};
        let (url, folder, to) =
            (dds::url(dds::domain()), tempfile::tempdir().unwrap(), Site::new());
        let service = dds::Service::start(&url, folder.path());
        let here = Bus::builder().producer("Mount").connect(&url).unwrap();
        let mount = open(&here, "log").publisher().unwrap();
        let payload = vec![7; 256 << 10];
        let under_way: Vec<_> =
            (0..240).map(|_| mount.publish(Message::new(&payload).key(b"k"))).collect();
        under_way.into_iter().for_each(|publishing| _ = publishing.wait().unwrap());
        // Nobody is left who knows how much it was.
        here.close();
        let mut command = helio();
        command.args(["bridge", &url, &to.url, "--topics", "log", "--once"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let target = Bus::connect(&to.url).unwrap();
        let first = everything(&target, "log").next_timeout(READ_TIMEOUT).unwrap();
        assert!(matches!(first, Some(Event::Sample(_))), "{first:?}");
        kill_process(Pid::from_child(&running), Signal::STOP).unwrap();
        drop(service);
        kill_process(Pid::from_child(&running), Signal::CONT).unwrap();
        assert_eq!(ended(&mut running), Some(5));
        let mut told = String::new();
        std::io::Read::read_to_string(running.stderr.as_mut().unwrap(), &mut told).unwrap();
        assert!(told.contains("the history of log has gone"), "{told}");
        assert!(told.contains("nobody knows how many"), "{told}");
    }

    #[test]
    fn a_producer_that_moves_from_a_journal_to_dds_is_newer_there() {
        let (url, from) = (dds::url(dds::domain()), Site::new());
        let (source, target) = (Bus::connect(&from.url).unwrap(), Bus::connect(&url).unwrap());
        let lease = Liveliness::Lease(Duration::from_secs(5));
        let owned = Qos { ownership: Ownership::Exclusive, liveliness: lease, ..events() };
        let before = publisher(&source, "state", ("Mount", owned.clone()));
        let mut there = listen(&target, "state", (owned.clone(), Start::Latest));
        let mut running = bridge(&from.url, &url, "state", &[]);
        publish(&before, 0..20);
        let seen = next(&mut there, 20);
        assert!(payloads(&seen).into_iter().eq(0..20));
        // It lives, on the other bus.
        let own = |who: &str| {
            let producer = ProducerName::new(who).unwrap();
            let spec = TopicSpec::new("state").unwrap().qos(owned.clone()).producer(producer);
            target.topic(spec).unwrap().publisher()
        };
        assert!(own("Stranger").is_err(), "its writer lives, on the other bus");
        // It is restarted there, and then moves.
        drop(before);
        let restarted = publisher(&source, "state", ("Mount", owned.clone()));
        publish(&restarted, 20..25);
        let seen = next(&mut there, 5);
        assert_eq!(seen[4].2, restarted.producer().incarnation);
        drop(restarted);
        let end = Instant::now() + READ_TIMEOUT;
        let after = loop {
            match own("Mount") {
                Ok(after) => break after,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        };
        assert!(after.producer().incarnation > seen[4].2);
        publish(&after, 25..30);
        assert!(payloads(&next(&mut there, 5)).into_iter().eq(25..30));
        assert_eq!(interrupt(&mut running), Some(0));
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_facility_migrates_from_dds_to_kafka_in_steps() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let (old, new) = (dds::url(dds::domain()), broker.url(""));
        let (here, there) = (Bus::connect(&old).unwrap(), Bus::connect(&new).unwrap());
        let commands = Qos::command;
        let mount = publisher(&here, "Mount/event/position", ("Mount", events()));
        let script = publisher(&here, "Mount/command/move", ("Script", commands()));
        publish(&mount, 0..50);
        // 1. A rehearsal, again as often as one likes.
        for _ in 0..2 {
            let ran = run(&["bridge", &old, &new, "--topics", "Mount/*", "--once"]);
            assert_eq!(ran.code, Some(0), "{}", ran.err);
        }
        let mut recorder = listen(&there, "Mount/event/position", (events(), Start::Earliest));
        assert!(payloads(&next(&mut recorder, 50)).into_iter().eq(0..50));
        // 2. Both ways, from now on; the recorder has moved, the mount and its caller have not.
        let mut both = [bridge(&old, &new, "Mount/*", &[]), bridge(&new, &old, "Mount/*", &[])];
        publish(&mount, 50..100);
        assert!(payloads(&next(&mut recorder, 50)).into_iter().eq(50..100));
        // 3. The mount moves. It hears its caller over the bridge, and its caller sees it.
        let mut display = listen(&here, "Mount/event/position", (events(), Start::Latest));
        let mut heard = listen(&there, "Mount/command/move", (commands(), Start::Latest));
        let before = mount.producer().incarnation;
        drop(mount);
        let mount = publisher(&there, "Mount/event/position", ("Mount", events()));
        assert!(mount.producer().incarnation > before);
        publish(&mount, 100..150);
        assert!(payloads(&next(&mut recorder, 50)).into_iter().eq(100..150));
        assert!(payloads(&next(&mut display, 50)).into_iter().eq(100..150));
        publish(&script, 0..5);
        assert!(payloads(&next(&mut heard, 5)).into_iter().eq(0..5));
        for samples in [&recorder, &display, &heard] {
            assert_eq!((samples.stats().lost, samples.stats().fenced), (0, 0));
        }
        // 4. Nothing is left on the old side.
        for running in &mut both {
            assert_eq!(interrupt(running), Some(0));
        }
    }

    /// Tries again until what is on the other side has come over the bridge; gives its first line.
    #[cfg(feature = "kafka")]
    fn in_time(site: &Site, args: &[&str], says: &str) {
        let end = Instant::now() + READ_TIMEOUT;
        loop {
            let ran = site.run(&[&["component"][..], args, &["--json"]].concat());
            if ran.code == Some(0) && ran.out.contains(says) {
                return;
            }
            assert!(Instant::now() < end, "{args:?}: {ran:?}");
        }
    }

    /// Starts a component where a bridge may have shown it until now: one that was killed has left
    /// a lease there, which runs out by itself.
    #[cfg(feature = "kafka")]
    fn once_it_is_gone(site: &Site, rest: &[&str]) -> support::Simulated {
        let end = Instant::now() + READ_TIMEOUT;
        loop {
            match support::Simulated::try_start(site, rest) {
                Ok(started) => return started,
                Err(said) => {
                    let waits = said.contains("runs already") && Instant::now() < end;
                    assert!(waits, "{rest:?}: {said}");
                }
            }
        }
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_component_is_commanded_over_killed_bridges_and_moves_to_kafka() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        let site = |url: String| Site { url, ..Site::new() };
        let (old, new) = (site(dds::url(dds::domain())), site(broker.url("")));
        let kept = tempfile::tempdir().unwrap();
        let _service = dds::Service::start(&old.url, kept.path());
        let start = || {
            let ways = [(&old, &new), (&new, &old)];
            ways.map(|(from, to)| bridge(&from.url, &to.url, "MTMount/*", &[]))
        };
        let moves =
            |azimuth: &'static str| ["command", "MTMount", "moveToTarget", azimuth, "elevation=45"];
        let mount = support::Simulated::start(&old, &["MTMount", "--state", "STANDBY"]);
        for _ in 0..2 {
            let both = start();
            // From Kafka to the component that is on DDS, and its acknowledgements and events back.
            in_time(&new, &["set-state", "MTMount", "ENABLED"], "ENABLED");
            in_time(&new, &moves("azimuth=1.5"), "303");
            both.into_iter().for_each(kill);
        }
        // Who comes later learns its state, though no bridge runs.
        in_time(&new, &["states", "MTMount"], "ENABLED");
        let mut both = start();
        mount.interrupt();
        let mount = once_it_is_gone(&new, &["MTMount", "--state", "ENABLED"]);
        // It has moved: its callers, on whichever side, reach it.
        for caller in [&new, &old] {
            in_time(caller, &moves("azimuth=2.5"), "303");
            in_time(caller, &["states", "MTMount"], "ENABLED");
        }
        // What became of its states is whole on the side to which it moved.
        let bus = Bus::connect(&new.url).unwrap();
        let topic = bus.topic(TopicSpec::new("MTMount/event/summaryState").unwrap()).unwrap();
        let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
        let mut states = topic.subscribe(options).unwrap();
        let end: u64 = topic.partitions().unwrap().iter().map(|at| at.end).sum();
        while states.positions().iter().map(|at| at.next).sum::<u64>() < end {
            assert!(states.next_timeout(READ_TIMEOUT).unwrap().is_some(), "{:?}", states.stats());
        }
        assert_eq!(states.stats().lost, 0, "{:?}", states.stats());
        mount.interrupt();
        for running in &mut both {
            assert_eq!(interrupt(running), Some(0));
        }
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn killed_from_dds_to_kafka_late_joiners_history_is_enough() {
        let Some(broker) = kafka::Broker::start(1) else { return };
        storm_from_dds(&broker.url(""), "events", 3, |n| {
            if n == 1 {
                broker.does("kill");
                broker.does("restart");
            }
        });
    }
}
