//! Apache Kafka's own Java client beside the bus: it reads what the bus writes, and the reverse,
//! with keys, headers and timestamps, plain and in Confluent's frames.

use std::process::Command;

use helio_bus::{
    Bus, Event, Headers, Message, Qos, Sample, SchemaText, Start, Subscribe, Subscription, Tai,
    TopicSpec,
};
use helio_core::confluent::{frame, unframe};
use helio_core::schema::build::{double, record};

use crate::support::{Broker, HANG_TIMEOUT, apicurio::Apicurio, broker, unique};

const TIME_MS: i64 = 1_800_000_000_123;

/// Runs `foreign_clients/Plain.java`; `None`, with a message, if this machine's Java has no
/// compiler.
fn java(broker: &Broker, topic: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let text = |name: &str| broker.report["java"][name].as_str().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/foreign_clients/Plain.java");
    let mut command = Command::new(text("program"));
    command.args(["-cp", &text("classpath"), source, broker.servers(), topic]);
    let output = command.args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("jdk.compiler") {
        crate::support::skipped("a Java that compiles is needed (Debian: openjdk-17-jdk-headless)");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn next(subscription: &mut Subscription) -> Sample {
    match subscription.next_timeout(HANG_TIMEOUT).unwrap() {
        Some(Event::Sample(sample)) => sample,
        other => panic!("{other:?} came"),
    }
}

#[test]
fn it_reads_what_the_bus_writes_and_the_bus_what_it_writes() {
    let Some(broker) = broker() else { return };
    let name = unique("java").replace('/', ".");
    let topic = broker.bus("Mount").topic(TopicSpec::new(&name).unwrap().qos(Qos::stream()));
    let topic = topic.unwrap();
    let publisher = topic.publisher().unwrap();
    let headers = Headers::new().with("helio-caller", "alice").unwrap();
    let time = Tai::from_unix_nanos(TIME_MS * 1_000_000 + 456_789);
    let message = Message::new(b"\x00ours").key(b"k").time(time).headers(headers.as_ref());
    publisher.publish(message).wait_timeout(HANG_TIMEOUT).unwrap();
    publisher.publish(Message::new(b"no key").time(time)).wait_timeout(HANG_TIMEOUT).unwrap();

    let Some(read) = java(broker, &name, &["read", "2"]) else { return };
    let words: Vec<Vec<&str>> = read.iter().map(|line| line.split(' ').collect()).collect();
    let of = |line: usize| words[line][..3].join(" ");
    assert_eq!(of(0), format!("{TIME_MS} {} {}", hex(b"k"), hex(b"\x00ours")));
    assert_eq!(of(1), format!("{TIME_MS} - {}", hex(b"no key")));
    assert!(words[0][3].starts_with("helio="), "{read:?}");
    assert_eq!(words[0][4..], [format!("helio-caller={}", hex(b"alice"))]);

    let lines = [
        format!("{TIME_MS} {} {} origin={}", hex(b"k"), hex(b"theirs"), hex(b"java")),
        format!("{} - {}", TIME_MS + 1, hex(b"no key")),
        format!("{} {} -", TIME_MS + 2, hex(b"gone")),
    ];
    let write: Vec<&str> = ["write"].into_iter().chain(lines.iter().map(String::as_str)).collect();
    assert_eq!(java(broker, &name, &write).unwrap(), ["2", "3", "4"]);
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let samples: Vec<_> = (0..5).map(|_| next(&mut samples)).collect();
    let theirs: Vec<_> = samples[2..].iter().map(|s| (&s.key[..], &s.payload[..])).collect();
    assert_eq!(theirs, [(&b"k"[..], &b"theirs"[..]), (b"", b"no key"), (b"gone", b"")]);
    assert!(samples[4].is_null() && !samples[3].is_null());
    let times = samples[2..].iter().map(|sample| sample.header.time.unix_nanos() / 1_000_000);
    assert!(times.eq([TIME_MS, TIME_MS + 1, TIME_MS + 2]));
    assert_eq!(samples[2].headers, Headers::new().with("origin", "java").unwrap());
    assert_eq!(samples[2].header.producer.name.as_str(), "kafka");
}

#[test]
fn frames_of_a_registry_go_both_ways() {
    let (Some(broker), Some(registry)) = (broker(), Apicurio::start()) else { return };
    let name = unique("java-framed").replace('/', ".");
    let schema = record("test.Wind").field("speed", double()).schema().unwrap();
    let schema: SchemaText = (&schema).into();
    let url = broker.url(&format!("schema.registry.url={}", registry.url));
    let bus = Bus::connect(&url).unwrap();
    let spec = TopicSpec::new(&name).unwrap().qos(Qos::event()).schema(schema);
    let topic = bus.topic(spec).unwrap();
    let ours = 7.5_f64.to_le_bytes();
    let published = topic.publisher().unwrap().publish(Message::new(&ours).key(b"k"));
    published.wait_timeout(HANG_TIMEOUT).unwrap();
    let Some(read) = java(broker, &name, &["read", "1"]) else { return };
    let read = bytes(read[0].split(' ').nth(2).unwrap());
    let (number, datum) = unframe(&read).expect("it is framed");
    assert_eq!(datum, ours);

    let theirs = 9.25_f64.to_le_bytes();
    let mut framed = Vec::new();
    frame(number, &theirs, &mut framed);
    let line = format!("{TIME_MS} {} {}", hex(b"k"), hex(&framed));
    java(broker, &name, &["write", &line]).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    assert_eq!(next(&mut samples).payload[..], ours);
    assert_eq!(next(&mut samples).payload[..], theirs);
}
