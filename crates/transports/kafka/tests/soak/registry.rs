//! A real registry beside a real broker: framed payloads in both directions, and samples whose
//! schema the registry rejects or does not answer for.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Event, Evolution, Message, Outage, Qos, Sample, SchemaId, SchemaText, Start, Subscribe,
    Subscription, Topic, TopicError, TopicInfo, TopicName, TopicSpec, TransportError,
};
use helio_core::confluent::{Compatibility, frame, unframe};
use helio_core::schema::build::{RecordSpec, double, int, record, string};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::support::{Broker, HANG_TIMEOUT, apicurio::Apicurio, broker, unique};

struct Engines {
    broker: &'static Broker,
    registry: Apicurio,
}

/// The test binary's engines; `None`, with a message, if this machine cannot run them.
fn engines() -> Option<&'static Engines> {
    static ENGINES: OnceLock<Option<Engines>> = OnceLock::new();
    let start = || Some(Engines { broker: broker()?, registry: Apicurio::start()? });
    ENGINES.get_or_init(start).as_ref()
}

impl Engines {
    fn bus(&self, registry: &Apicurio, options: &str) -> Bus {
        let url = self.broker.url(&format!("schema.registry.url={}&{options}", registry.url));
        Bus::builder().producer("test").connect(&url).unwrap()
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.broker.servers());
        config
    }

    /// Writes as Confluent's serializers do.
    fn send(&self, topic: &str, key: &[u8], payload: &[u8]) {
        let producer: BaseProducer = self.config().create().unwrap();
        let record = BaseRecord::to(topic).key(key).payload(payload);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(HANG_TIMEOUT).unwrap();
    }

    /// The first record of a topic, as any client reads it.
    fn first(&self, topic: &str) -> Vec<u8> {
        let consumer: BaseConsumer = self.config().set("group.id", "plain").create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
        consumer.assign(&list).unwrap();
        consumer.poll(HANG_TIMEOUT).expect("it comes").unwrap().payload().unwrap().to_vec()
    }
}

fn wind() -> RecordSpec {
    record("test.Wind").field("speed", double()).units("m/s")
}

fn text(spec: RecordSpec) -> SchemaText {
    (&spec.schema().unwrap()).into()
}

fn spec(name: &str, schema: RecordSpec) -> TopicSpec {
    TopicSpec::new(name).unwrap().qos(Qos::event()).schema(text(schema))
}

fn next(subscription: &mut Subscription) -> Event {
    subscription.next_timeout(HANG_TIMEOUT).unwrap().expect("it comes in time")
}

fn sample(subscription: &mut Subscription) -> Sample {
    match next(subscription) {
        Event::Sample(sample) => sample,
        other => panic!("{other:?} came"),
    }
}

fn info(bus: &Bus, name: &str) -> TopicInfo {
    bus.topic_info(&TopicName::new(name).unwrap()).unwrap().expect("there is one")
}

fn publish(topic: &Topic, payload: &[u8]) {
    topic.publisher().unwrap().publish(Message::new(payload).key(b"k")).wait().unwrap();
}

#[test]
fn what_the_bus_writes_is_framed_and_its_schema_registered() {
    let Some(engines) = engines() else { return };
    let (name, client) = (unique("framed").replace('/', "."), engines.registry.client());
    let topic = engines.bus(&engines.registry, "").topic(spec(&name, wind())).unwrap();
    let value = 7.5_f64.to_le_bytes();
    publish(&topic, &value);
    let record = engines.first(&name);
    let (number, datum) = unframe(&record).expect("it is framed");
    assert_eq!(datum, value);
    assert_eq!(engines.first(&format!("_helio.last.{name}")), record);
    let registered = client.schema(number).unwrap().unwrap();
    assert_eq!(registered, &*text(wind()).text);
    assert_eq!(client.look_up(&format!("{name}-value"), &registered).unwrap(), number);
    assert!(client.subjects().unwrap().contains(&format!("{name}-value")));

    // Readers without a registry and late joiners read it, too.
    for bus in [engines.broker.bus("plain"), engines.bus(&engines.registry, "")] {
        let topic = bus.topic(spec(&name, wind())).unwrap();
        for start in [Start::Earliest, Start::Last(1)] {
            let sample = sample(&mut topic.subscribe(Subscribe::from(start)).unwrap());
            assert_eq!((&sample.payload[..], sample.header.schema), (&value[..], text(wind()).id));
        }
    }
}

#[test]
fn what_confluent_s_clients_write_is_read_by_its_schema() {
    let Some(engines) = engines() else { return };
    let (name, client) = (unique("foreign").replace('/', "."), engines.registry.client());
    // The foreign schema has another order and one more field.
    let theirs = record("test.Wind").field("gust", int()).field("speed", double());
    let number = client.register(&format!("{name}-value"), &text(theirs.clone()).text).unwrap();
    let mut framed = Vec::new();
    for speed in [1.5_f64, 2.5] {
        frame(number, &[&[4], &speed.to_le_bytes()[..]].concat(), &mut framed);
        engines.send(&name, b"k", &framed);
    }
    let bus = engines.bus(&engines.registry, "");
    let topic = bus.topic(TopicSpec::new(&name).unwrap().schema(text(wind()))).unwrap();
    let mut all = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    for speed in [1.5_f64, 2.5] {
        let sample = sample(&mut all);
        let read = (&sample.payload[..], sample.header.schema);
        assert_eq!(read, (&speed.to_le_bytes()[..], text(wind()).id));
    }
    let mut last = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    assert_eq!(sample(&mut last).payload[..], 2.5_f64.to_le_bytes());
    // Unconverted, as a forwarder reads it: the schema's identity and text are available.
    let raw = bus.topic(TopicSpec::new(&name).unwrap()).unwrap();
    let raw = sample(&mut raw.subscribe(Subscribe::from(Start::Earliest)).unwrap());
    assert_eq!(raw.header.schema, text(theirs).id);
    assert!(bus.schema(raw.header.schema).unwrap().unwrap().contains("gust"));
    assert_eq!(raw.payload.len(), 9);
}

#[test]
fn what_the_registry_refuses_is_incompatible() {
    let Some(engines) = engines() else { return };
    let (name, client) = (unique("refused").replace('/', "."), engines.registry.client());
    let subject = format!("{name}-value");
    let bus = engines.bus(&engines.registry, "");
    let opened = |schema| bus.topic(spec(&name, schema).evolution(Evolution::None)).unwrap();
    publish(&opened(wind()), &[0; 8]);
    client.set_compatibility(Some(&subject), Compatibility::Backward).unwrap();
    assert_eq!(client.compatibility(Some(&subject)).unwrap(), Some(Compatibility::Backward));
    let other = record("test.Wind").field("speed", string());
    let told = match opened(other.clone()).publisher() {
        Err(told @ TopicError::Incompatible { .. }) => told.to_string(),
        other => panic!("{:?}", other.map(|_| ()).map_err(|error| error.to_string())),
    };
    assert!(told.contains("rejected the request") && told.contains("409"), "{told}");
    // The topic does not get the rejected schema: the next one is not compared with it.
    assert_eq!(info(&bus, &name).schemas, [text(wind()).id]);
    client.set_compatibility(Some(&subject), Compatibility::None).unwrap();
    opened(other).publisher().unwrap();
    assert_eq!(info(&bus, &name).schemas.len(), 2);
}

#[test]
fn where_schemas_are_looked_up_only_new_ones_are_refused() {
    let Some(engines) = engines() else { return };
    let (name, client) = (unique("lookup").replace('/', "."), engines.registry.client());
    let options = "auto.register.schemas=false&subject.name.strategy=RecordNameStrategy";
    let bus = engines.bus(&engines.registry, options);
    let record = format!("test.W{}", name.rsplit('.').next().unwrap());
    let own = || helio_core::schema::build::record(&record).field("speed", double());
    let topic = bus.topic(spec(&name, own())).unwrap();
    let told = topic.publisher().map(drop).unwrap_err();
    assert!(matches!(told, TopicError::Incompatible { .. }), "{told}");
    let number = client.register(&record, &text(own()).text).unwrap();
    publish(&topic, &[0; 8]);
    assert_eq!(unframe(&engines.first(&name)).unwrap().0, number);
}

#[test]
fn a_number_that_nobody_knows_is_told_and_counted() {
    let Some(engines) = engines() else { return };
    let (name, client) = (unique("unknown").replace('/', "."), engines.registry.client());
    let mut framed = Vec::new();
    let known = client.register(&format!("{name}-value"), &text(wind()).text).unwrap();
    for number in [1_900_000_000, 1_900_000_000, known] {
        frame(number, &1.5_f64.to_le_bytes(), &mut framed);
        engines.send(&name, b"k", &framed);
    }
    engines.send(&name, b"k", b"plain");
    let bus = engines.bus(&engines.registry, "");
    let topic = bus.topic(TopicSpec::new(&name).unwrap().schema(text(wind()))).unwrap();
    let mut all = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    match next(&mut all) {
        Event::Undecodable(told) => {
            assert!(told.reason.contains("1900000000"), "{}", told.reason);
            assert_eq!((told.schema, told.sample.payload.len()), (SchemaId::BYTES, 13));
        }
        other => panic!("{other:?} came"),
    }
    assert_eq!(sample(&mut all).payload[..], 1.5_f64.to_le_bytes());
    let until = Instant::now() + HANG_TIMEOUT;
    while all.stats().undecodable < 3 {
        assert!(Instant::now() < until, "{:?}", all.stats());
        all.next_timeout(Duration::from_millis(50)).unwrap();
    }
    let stats = all.stats();
    assert_eq!((stats.received, stats.undecodable, stats.lost), (1, 3, 0));
}

#[test]
fn forwarded_samples_have_their_schemas_registered_on_the_way() {
    let Some(engines) = engines() else { return };
    let name = unique("forwarded").replace('/', ".");
    let bus = engines.bus(&engines.registry, "");
    let topic = bus.topic(TopicSpec::new(&name).unwrap().qos(Qos::command())).unwrap();
    let publisher = topic.publisher().unwrap();
    let schema = text(wind());
    let unknown = Message::new(&[0; 8]).schema(schema.id);
    let told = publisher.publish(unknown).wait().unwrap_err().to_string();
    assert!(told.contains("put its text") || told.contains("put it"), "{told}");
    bus.put_schema(&schema).unwrap();
    // No room until the number is known: a blocked publish is sent in order then.
    let until = Instant::now() + HANG_TIMEOUT;
    let receipt = loop {
        match publisher.publish(Message::new(&[1; 8]).schema(schema.id)).wait() {
            Ok(receipt) => break receipt,
            Err(helio_bus::PublishError::Full { .. }) if Instant::now() < until => {
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(receipt.offset, Some(0));
    let (number, datum) = engines.registry_text(&engines.first(&name));
    assert_eq!((&*number, &datum[..]), (&*schema.text, &[1; 8][..]));
}

impl Engines {
    fn registry_text(&self, record: &[u8]) -> (String, Vec<u8>) {
        let (number, datum) = unframe(record).expect("it is framed");
        (self.registry.client().schema(number).unwrap().unwrap(), datum.to_vec())
    }
}

#[test]
fn a_registry_that_falls_silent_loses_nothing_and_holds_up_nobody_else() {
    let Some(engines) = engines() else { return };
    // A registry of its own: other tests use the common one at the same time.
    let Some(registry) = Apicurio::start() else { return };
    let (name, client) = (unique("silent").replace('/', "."), registry.client());
    let number = client.register(&format!("{name}-value"), &text(wind()).text).unwrap();
    let (ours, bus) = (unique("ours").replace('/', "."), engines.bus(&registry, ""));
    let known = bus.topic(spec(&ours, wind())).unwrap();
    let publisher = known.publisher().unwrap();
    engines.send(&name, b"k", b"first");
    let topic = bus.topic(TopicSpec::new(&name).unwrap()).unwrap();
    let mut all = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    assert_eq!(&sample(&mut all).payload[..], b"first");

    registry.does("freeze");
    let mut framed = Vec::new();
    for speed in [1.5_f64, 2.5] {
        frame(number, &speed.to_le_bytes(), &mut framed);
        engines.send(&name, b"k", &framed);
    }
    // Known schemas continue to work.
    publisher.publish(Message::new(&[1; 8]).key(b"k")).wait().unwrap();
    let mut own = known.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    assert_eq!(sample(&mut own).payload[..], [1; 8]);
    match next(&mut all) {
        Event::Outage(Outage::Lost { cause }) => assert!(cause.contains("registry"), "{cause}"),
        other => panic!("{other:?} came"),
    }
    // Polling does not wait meanwhile, and the samples are not skipped.
    assert!(all.try_next().unwrap().is_none());
    assert_eq!(all.positions()[0].next, 1);
    let fresh = bus.topic(spec(&unique("fresh").replace('/', "."), wind())).unwrap();
    match fresh.publisher().map(drop) {
        Err(TopicError::Transport(TransportError::Outage { cause, .. })) => {
            assert!(cause.contains("does not answer"), "{cause}");
        }
        other => panic!("{other:?}"),
    }

    registry.does("thaw");
    assert!(matches!(next(&mut all), Event::Outage(Outage::Restored)));
    for speed in [1.5_f64, 2.5] {
        assert_eq!(sample(&mut all).payload[..], speed.to_le_bytes());
    }
    assert_eq!((all.stats().lost, all.stats().received), (0, 3));
    fresh.publisher().unwrap();
}
