//! A registry behind TLS and a password: samples in both directions, and the errors of a wrong
//! password and of an untrusted certificate.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use helio_bus::{
    Bus, Event, Message, Outage, Qos, SchemaText, Start, Subscribe, Subscription, TopicSpec,
};
use helio_core::confluent::{frame, unframe};
use helio_core::schema::build::{double, record};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use crate::support::{Broker, HANG_TIMEOUT, apicurio::Apicurio, config, unique};

const USER: &str = "helio:open sesame";

/// A broker with certificates, and a registry.
struct Engines {
    broker: Broker,
    registry: Apicurio,
}

fn engines() -> Option<&'static Engines> {
    static ENGINES: OnceLock<Option<Engines>> = OnceLock::new();
    let start = || {
        let broker = Broker::start_with(&["--tls"])?;
        Some(Engines { broker, registry: Apicurio::start()? })
    };
    ENGINES.get_or_init(start).as_ref()
}

impl Engines {
    fn authority(&self) -> PathBuf {
        PathBuf::from(self.broker.report["tls"]["ca"].as_str().unwrap())
    }

    /// A TLS proxy of the registry with one of the authority's certificates.
    fn front(&self, certificate: &str) -> Front {
        Front::start(&self.registry.url, &self.authority().with_file_name(certificate))
    }

    /// A bus whose registry has TLS and whose brokers do not.
    fn bus(&self, registry: &str, options: &str) -> Bus {
        let brokers = self.broker.report["internal_url"].as_str().unwrap();
        Bus::connect(&format!("{brokers}?schema.registry.url={registry}&{options}")).unwrap()
    }

    /// The options of an authorized client.
    fn options(&self) -> String {
        let authority = self.authority();
        let authority = authority.display();
        format!("schema.registry.ssl.ca.location={authority}&basic.auth.user.info={USER}")
    }
}

/// A proxy with TLS and a password before a registry. It ends with its standard input, and so with
/// the test.
struct Front {
    child: Child,
    url: String,
}

impl Front {
    fn start(url: &str, certificate: &Path) -> Self {
        let program =
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/foreign_clients/front.py");
        let (place, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let (host, port) = place.split_once(':').unwrap();
        let mut command = Command::new("python3");
        command.args([program, host, port]).arg(certificate).arg(USER);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, url: format!("https://127.0.0.1:{}/{path}", port.trim()) }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

fn schema() -> SchemaText {
    (&record("test.Wind").field("speed", double()).schema().unwrap()).into()
}

fn spec(name: &str) -> TopicSpec {
    TopicSpec::new(name).unwrap().qos(Qos::event()).schema(schema())
}

fn next(subscription: &mut Subscription) -> Event {
    subscription.next_timeout(HANG_TIMEOUT).unwrap().expect("it comes in time")
}

fn payload(subscription: &mut Subscription) -> Vec<u8> {
    match next(subscription) {
        Event::Sample(sample) => sample.payload.to_vec(),
        other => panic!("{other:?} came"),
    }
}

/// The error of opening or writing a topic with a schema.
fn refused(bus: &Bus) -> String {
    let topic = bus.topic(spec(&unique("refused").replace('/', ".")));
    let published = topic
        .map_err(|error| error.to_string())
        .and_then(|topic| topic.publisher().map(drop).map_err(|error| error.to_string()));
    published.unwrap_err()
}

fn has(told: &str, words: &[&str]) {
    assert!(words.iter().all(|word| told.contains(word)), "{words:?} are not in: {told}");
}

/// Writes a framed record with a plain client.
fn send(engines: &Engines, topic: &str, payload: &[u8]) {
    let mut config = config(&engines.broker);
    let brokers = engines.broker.report["internal_url"].as_str().unwrap();
    config.set("bootstrap.servers", brokers.trim_start_matches("kafka://"));
    let producer: BaseProducer = config.create().unwrap();
    producer.send(BaseRecord::to(topic).key("k").payload(payload)).map_err(|(e, _)| e).unwrap();
    producer.flush(HANG_TIMEOUT).unwrap();
}

#[test]
fn samples_go_there_and_back() {
    let Some(engines) = engines() else { return };
    let front = engines.front("server.pem");
    let bus = engines.bus(&front.url, &engines.options());
    let name = unique("there").replace('/', ".");
    let topic = bus.topic(spec(&name)).unwrap();
    let (ours, theirs) = (7.5_f64.to_le_bytes(), 9.25_f64.to_le_bytes());
    let published = topic.publisher().unwrap().publish(Message::new(&ours).key(b"k"));
    published.wait_timeout(HANG_TIMEOUT).unwrap();
    // A reader without the topic's schema gets it from the registry.
    let raw = engines.bus(&front.url, &engines.options());
    let mut samples =
        raw.topic(spec(&name)).unwrap().subscribe(Subscribe::from(Start::Earliest)).unwrap();
    assert_eq!(payload(&mut samples), ours);
    let number = engines.registry.client().look_up(&format!("{name}-value"), &schema().text);
    let mut framed = Vec::new();
    frame(number.unwrap(), &theirs, &mut framed);
    assert_eq!(unframe(&framed).unwrap().1, theirs);
    send(engines, &name, &framed);
    assert_eq!(payload(&mut samples), theirs);
}

#[test]
fn a_wrong_password_is_told_to_writers_and_readers() {
    let Some(engines) = engines() else { return };
    let front = engines.front("server.pem");
    for wrong in ["helio:wrong", "nobody:open sesame"] {
        let bus = engines.bus(&front.url, &engines.options().replace(USER, wrong));
        has(&refused(&bus), &[&front.url, "401", "who are you?", "basic.auth.user.info"]);
        // A reader gets no sample with a schema number that it cannot resolve.
        let name = unique("met").replace('/', ".");
        let right = engines.bus(&front.url, &engines.options());
        let topic = right.topic(spec(&name)).unwrap();
        drop(topic.publisher().unwrap());
        let number = engines.registry.client().look_up(&format!("{name}-value"), &schema().text);
        let mut framed = Vec::new();
        frame(number.unwrap(), &7.5_f64.to_le_bytes(), &mut framed);
        send(engines, &name, &framed);
        let topic = bus.topic(TopicSpec::new(&name).unwrap()).unwrap();
        let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        let told = next(&mut samples);
        let Event::Outage(Outage::Lost { cause }) = &told else { panic!("{told:?}") };
        has(cause, &[&front.url, "who are you?", "basic.auth.user.info"]);
    }
    let without = format!("schema.registry.ssl.ca.location={}", engines.authority().display());
    has(&refused(&engines.bus(&front.url, &without)), &["401", "basic.auth.user.info"]);
}

#[test]
fn a_certificate_that_cannot_be_trusted_is_told_with_why() {
    let Some(engines) = engines() else { return };
    let (good, expired) = (engines.front("server.pem"), engines.front("expired.pem"));
    let remedy = "schema.registry.ssl.ca.location";
    let told = refused(&engines.bus(&expired.url, &engines.options()));
    has(&told, &["certificate cannot be trusted", "expired", remedy]);
    let user = format!("basic.auth.user.info={USER}");
    let told = refused(&engines.bus(&good.url, &user));
    has(&told, &["certificate cannot be trusted", remedy]);
    // The same host, by a name that the certificate does not have.
    let told = refused(&engines.bus(&good.url.replace("127.0.0.1", "127.1"), &engines.options()));
    has(&told, &["certificate cannot be trusted", "for this host", remedy]);
    // Plain HTTP to a TLS port, and the reverse.
    let reverse = engines.registry.url.replace("http:", "https:");
    has(&refused(&engines.bus(&reverse, &engines.options())), &["TLS", "http://"]);
    has(&refused(&engines.bus(&good.url.replace("https:", "http:"), "")), &[&good.url[5..]]);
}
