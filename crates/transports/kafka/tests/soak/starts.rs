//! Start positions of readers: at a time, also in a compacted log, and with the last values, each
//! of which is once in the log and once in the companion.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Event, Message, Qos, Start, Subscribe, Subscription, Tai, Topic, TopicName, TopicSpec,
};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use crate::support::{Broker, HANG_TIMEOUT, admin, config, make, unique};

/// The first sample's time, in milliseconds of UTC.
const FIRST_SAMPLE_MS: i64 = 1_800_000_000_000;

/// A broker that compacts at once; `None`, with a message, without Java.
fn broker() -> Option<&'static Broker> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    let options = ["--set", "log.cleaner.backoff.ms=100"];
    BROKER.get_or_init(|| Broker::start_with(&options)).as_ref()
}

fn at(micros: i64) -> Tai {
    Tai::from_unix_nanos(FIRST_SAMPLE_MS * 1_000_000 + micros * 1_000)
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().unwrap())
}

/// Reads up to the last sample; returns the numbers of all.
fn until(samples: &mut Subscription, mut is_last: impl FnMut(u64) -> bool) -> Vec<u64> {
    let mut read = Vec::new();
    loop {
        match samples.next_timeout(HANG_TIMEOUT).unwrap() {
            Some(Event::Sample(sample)) => {
                read.push(number(&sample.payload));
                if is_last(read[read.len() - 1]) {
                    return read;
                }
            }
            Some(other) => panic!("{other:?} came"),
            None => panic!("{read:?} came"),
        }
    }
}

/// A topic of four partitions, of which the last is empty. Sample `n` is 10 ms later than `n - 1`,
/// in partition `n % 3`.
fn written(bus: &Bus, numbers: std::ops::Range<u64>) -> Topic {
    let qos = Qos { partitions: 4, ..Qos::stream() };
    let topic = bus.topic(TopicSpec::new(&unique("times")).unwrap().qos(qos)).unwrap();
    numbers.for_each(|number| publish(&topic, number, i64::try_from(number).unwrap() * 10_000));
    topic
}

fn publish(topic: &Topic, number: u64, micros: i64) {
    let (bytes, partition) = (number.to_le_bytes(), u32::try_from(number % 3).unwrap());
    let message = Message::new(&bytes).time(at(micros)).partition(partition);
    topic.publisher().unwrap().publish(message).wait_timeout(HANG_TIMEOUT).unwrap();
}

#[test]
fn a_time_before_in_and_after_the_log_of_many_partitions() {
    let Some(broker) = broker() else { return };
    let bus = broker.bus("times");
    let topic = written(&bus, 0..30);
    // Just before a sample, at it, and just after it, all in one millisecond.
    let from = [
        (at(-3_600_000_000), 0),
        (at(0), 0),
        (at(1), 1),
        (at(149_999), 15),
        (at(150_000), 15),
        (at(150_001), 16),
        (at(290_000), 29),
    ];
    for (time, first) in from {
        let mut samples = topic.subscribe(Subscribe::from(Start::Time(time))).unwrap();
        let mut left = 30 - first;
        let read = until(&mut samples, |_| {
            left -= 1;
            left == 0
        });
        assert_eq!(BTreeSet::from_iter(read), (first..30).collect(), "from {time:?}");
    }
    // After the end: later samples, also in the partition that was empty.
    let mut after = topic.subscribe(Subscribe::from(Start::Time(at(290_001)))).unwrap();
    let parts = Subscribe::from(Start::Time(at(200_000))).partitions([1, 3]);
    let mut parts = topic.subscribe(parts).unwrap();
    publish(&topic, 31, 310_000);
    let bytes = 99_u64.to_le_bytes();
    let last = Message::new(&bytes).time(at(400_000)).partition(3);
    topic.publisher().unwrap().publish(last).wait_timeout(HANG_TIMEOUT).unwrap();
    let all = |samples: &mut Subscription, mut left: usize| {
        let read = until(samples, |_| {
            left -= 1;
            left == 0
        });
        BTreeSet::from_iter(read)
    };
    assert_eq!(all(&mut after, 2), [31, 99].into());
    assert_eq!(all(&mut parts, 5), [22, 25, 28, 31, 99].into());
    // A group without committed positions starts there, too.
    let group = Subscribe::from(Start::Time(at(285_000))).group("late");
    let mut member = topic.subscribe(group).unwrap();
    while !matches!(
        member.next_timeout(HANG_TIMEOUT).unwrap().expect("it is assigned partitions"),
        Event::Assigned(_)
    ) {}
    assert_eq!(all(&mut member, 3), [29, 31, 99].into());
}

#[test]
fn a_time_within_what_compaction_has_taken() {
    let Some(broker) = broker() else { return };
    let name = unique("compacted").replace('/', "_");
    let options = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("message.timestamp.after.max.ms", "9223372036854775807"),
    ];
    make(&admin(broker), &name, &options);
    let producer: BaseProducer = config(broker).create().unwrap();
    let send = |number: u64, key: &str| {
        let millis = FIRST_SAMPLE_MS + i64::try_from(number).unwrap() * 10;
        let bytes = number.to_le_bytes();
        let record = BaseRecord::to(&name).key(key).payload(&bytes[..]).timestamp(millis);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(HANG_TIMEOUT).unwrap();
    };
    // Only the newest samples of the keys a and b remain, 20 and 21, and the newest filler.
    (0..20).for_each(|number| send(number, if number < 10 { "a" } else { "b" }));
    send(20, "a");
    send(21, "b");
    let bus = broker.bus("times");
    let topic = bus.topic(TopicSpec::new(&name).unwrap()).unwrap();
    let until_compacted = Instant::now() + HANG_TIMEOUT;
    let mut filler = 100;
    loop {
        // A segment is closed by a write after its time; the newest one is not compacted.
        filler += 1;
        send(filler, "filler");
        let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        if until(&mut samples, |number| number == filler)[0] == 20 {
            break;
        }
        assert!(Instant::now() < until_compacted, "nothing is compacted");
        std::thread::sleep(Duration::from_millis(100));
    }
    for (time, expected) in [(-1_000, 20), (0, 20), (55_000, 20), (205_000, 21)] {
        let mut samples = topic.subscribe(Subscribe::from(Start::Time(at(time)))).unwrap();
        let read = until(&mut samples, |number| number == filler);
        assert_eq!(read[0], expected, "from {time}: {read:?}");
        assert_eq!(samples.stats().lost, 0);
    }
    let mut after = topic.subscribe(Subscribe::from(Start::Time(at(900_000_000)))).unwrap();
    send(90_001, "a");
    assert_eq!(until(&mut after, |number| number == 90_001), [90_001]);
}

/// How many records a Kafka topic has ever had.
fn records(broker: &Broker, name: &str) -> u64 {
    let client: BaseProducer = config(broker).create().unwrap();
    let end =
        |partition| client.client().fetch_watermarks(name, partition, HANG_TIMEOUT).unwrap().1;
    let ends = (0..2).map(end);
    u64::try_from(ends.sum::<i64>()).unwrap()
}

#[test]
fn last_values_are_written_and_handed_out_once() {
    let Some(broker) = broker() else { return };
    let name = unique("last").replace('/', ".");
    let qos = Qos { partitions: 2, ..Qos::event() };
    let spec = || TopicSpec::new(&name).unwrap().qos(qos.clone());
    // Two producers, one sample at a time and in batches, some keys twice.
    let mut newest = BTreeMap::new();
    for (writer, numbers) in [("one", 0..50_u64), ("two", 40..90)] {
        let bus = broker.bus(writer);
        let topic = bus.topic(spec()).unwrap();
        let publisher = topic.publisher().unwrap();
        let samples: Vec<_> =
            numbers.map(|number| (format!("k{}", number % 30), number.to_le_bytes())).collect();
        newest.extend(samples.iter().map(|(key, bytes)| (key.clone(), number(bytes))));
        let (single, batch) = samples.split_at(25);
        for (key, bytes) in single {
            let message = Message::new(bytes).key(key.as_bytes());
            publisher.publish(message).wait_timeout(HANG_TIMEOUT).unwrap();
        }
        let batch: Vec<_> =
            batch.iter().map(|(key, bytes)| Message::new(bytes).key(key.as_bytes())).collect();
        publisher.publish_batch(&batch).wait().unwrap();
    }
    assert_eq!(
        (records(broker, &name), records(broker, &format!("_helio.last.{name}"))),
        (100, 100)
    );

    let bus = broker.bus("late");
    let mut samples =
        bus.topic(spec()).unwrap().subscribe(Subscribe::from(Start::Last(1))).unwrap();
    let mut read = BTreeMap::new();
    while read.len() < newest.len() {
        let Some(Event::Sample(sample)) = samples.next_timeout(HANG_TIMEOUT).unwrap() else {
            panic!("{read:?} came")
        };
        let key = String::from_utf8(sample.key.to_vec()).unwrap();
        let twice = read.insert(key, number(&sample.payload));
        assert_eq!(twice, None, "{sample:?} came twice");
    }
    assert_eq!(read, newest);
    // The next sample of a key is one more record in both.
    let topic = bus.topic(spec()).unwrap();
    let bytes = 1_000_u64.to_le_bytes();
    let published = topic.publisher().unwrap().publish(Message::new(&bytes).key(b"k0"));
    published.wait_timeout(HANG_TIMEOUT).unwrap();
    assert_eq!(until(&mut samples, |_| true), [1_000]);
    assert_eq!(records(broker, &format!("_helio.last.{name}")), 101);
    // A topic without last values has no companion.
    let plain = unique("plain").replace('/', ".");
    let topic = bus.topic(TopicSpec::new(&plain).unwrap().qos(Qos::stream())).unwrap();
    let published = topic.publisher().unwrap().publish(Message::new(&bytes).key(b"k"));
    published.wait_timeout(HANG_TIMEOUT).unwrap();
    let listed = bus.topics().unwrap();
    assert!(listed.contains(&TopicName::new(&plain).unwrap()));
    let client: BaseProducer = config(broker).create().unwrap();
    let all = client.client().fetch_metadata(None, HANG_TIMEOUT).unwrap();
    let companion = format!("_helio.last.{plain}");
    assert!(all.topics().iter().all(|topic| topic.name() != companion));
}
