//! Topics whose samples have their schema's own DDS type, beside samples without such a type.
//! Eclipse Cyclone DDS's own Python package reads and writes them with the printed IDL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::others::Foreign;
use crate::samples::{schemas, value};
use crate::support::{Process, domain, url};
use helio_bus::transport::Carried;
use helio_bus::{
    Bus, Event, GapCause, Message, PublishError, Qos, Sample, Start, Subscribe, Subscription,
    Topic, TopicSpec,
};
use helio_core::codec::Codec;
use helio_core::idl::{Head, TopicType, document};
use helio_core::schema::{NodeId, Schema};
use helio_core::{HeadersRef, SchemaId, Tai};
use helio_dds::dynamic_types::runtime_type;
use helio_dds::entity::{self, Domain, Participant, Representation, Struct, Writer};
use helio_dds::envelope::{self, Header, OTHER_TOPIC};
use serde_json::json;

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The samples of one producer that alternate between both DDS topics.
const SAMPLE_COUNT: u64 = 3_000;

const OLD_SCHEMA: &str = r#"{"type": "record", "name": "obs.Wind", "fields": [
    {"name": "salIndex", "type": "int"}, {"name": "number", "type": "long"}]}"#;
const NEW_SCHEMA: &str = r#"{"type": "record", "name": "obs.Wind", "fields": [
    {"name": "salIndex", "type": "int"}, {"name": "number", "type": "long"},
    {"name": "gust", "type": "double", "default": 0}]}"#;

fn telemetry() -> Qos {
    Qos::telemetry()
}

fn topic(bus: &Bus, name: &str, schema: &Schema) -> Topic {
    bus.topic(TopicSpec::new(name).unwrap().qos(telemetry()).schema(schema)).unwrap()
}

fn next(samples: &mut Subscription) -> Sample {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match samples.next_timeout(left).unwrap().expect("it comes in time") {
            Event::Sample(sample) => return sample,
            Event::Incompatible(told) => panic!("{told:?}"),
            _ => {}
        }
    }
}

/// A sample of [`OLD_SCHEMA`], or of [`NEW_SCHEMA`].
fn wind(schema: &Schema, index: i32, number: i64) -> Vec<u8> {
    let codec = Codec::new(schema);
    let mut json = json!({"salIndex": index, "number": number});
    if schema.record().unwrap().fields.len() > 2 {
        json["gust"] = json!(2.5);
    }
    let mut avro = Vec::new();
    codec.encode(&codec.value_from_json(&json).unwrap(), &mut avro).unwrap();
    avro
}

/// The Avro bytes of an index, as buses write keys.
fn key(index: i32) -> [u8; 1] {
    [u8::try_from(index * 2).unwrap()]
}

/// Not a test by itself: one producer whose samples use both DDS topics.
#[test]
fn child() {
    let Ok(role) = std::env::var("HELIO_TEST_ROLE") else { return };
    assert_eq!(role, "both");
    helio_dds::register();
    let bus = Bus::builder().producer("Mast");
    let bus = bus.connect(&std::env::var("HELIO_TEST_URL").unwrap()).unwrap();
    let [old, new] = [OLD_SCHEMA, NEW_SCHEMA].map(|text| Schema::parse(text).unwrap());
    let [first, second] = [&old, &new].map(|schema| topic(&bus, "both", schema));
    let publishers = [first.publisher().unwrap(), second.publisher().unwrap()];
    let mut go = topic(&bus, "go", &old).subscribe(Subscribe::from(Start::Last(1))).unwrap();
    next(&mut go);
    for number in 0..SAMPLE_COUNT {
        // In runs of one to eight, and some without a schema.
        let (by, schema) = [(0, &old), (1, &new)][(number / (1 + number % 8)) as usize % 2];
        let avro = wind(schema, 1, number as i64);
        let message = Message::new(&avro).key(&[2]);
        let bytes = message.schema(SchemaId::BYTES);
        let message = if number % 97 == 0 { bytes } else { message };
        publishers[by].publish(message).wait().unwrap();
    }
    next(&mut go);
}

#[test]
fn others_read_what_the_bus_writes_and_write_what_it_reads() {
    let domain = domain();
    let bus = Bus::builder().producer("Mount").connect(&url(domain)).unwrap();
    for (g, group) in schemas().chunks(60).enumerate() {
        let types: Vec<_> = group.iter().map(|schema| TopicType::new(schema).unwrap()).collect();
        let Some(mut there) = Foreign::join(domain, &document(&types)) else { return };
        for (n, (schema, of)) in group.iter().zip(types).enumerate() {
            let names = ["out", "back"].map(|way| format!("{way}/{g}/{n}"));
            let [out, back] = [0, 1].map(|way| topic(&bus, &names[way], schema));
            let mut sample = Vec::new();
            let filled = value(schema, NodeId::ROOT, None, &mut 3);
            Codec::new(schema).encode(&filled, &mut sample).unwrap();
            back.declare().unwrap();
            let mut samples = back.subscribe(Subscribe::from(Start::Latest)).unwrap();
            let publisher = out.publisher().unwrap();
            publisher.publish(Message::new(&sample).level(7)).wait().unwrap();
            let request = json!({"type": of.name(), "topic": names[0], "to": names[1], "count": 1,
                "anonymous": true, "partition": "0"});
            there.ask("echo", request);
            let seen = there.answered()["samples"][0].clone();
            assert_eq!(seen["helio"]["producer"], "Mount", "{}", of.name());
            assert_eq!(
                (&seen["helio"]["level"], &seen["helio"]["sequence"]),
                (&json!(7), &json!(1))
            );
            let read = next(&mut samples);
            assert_eq!(&read.payload[..], &sample[..], "{}", of.name());
            assert_eq!(read.header.schema, schema.id());
            assert_eq!(read.header.producer.name.as_str(), "dds");
            assert_eq!(read.key.is_empty(), !of.has_key_fields(), "{}", of.name());
            there.ask("forget", json!({}));
            there.answered();
        }
    }
}

#[test]
fn one_producers_samples_by_both_topics_come_in_order_and_none_is_missing() {
    let url = url(domain());
    let old = Schema::parse(OLD_SCHEMA).unwrap();
    let bus = Bus::connect(&url).unwrap();
    // Before there is a schema.
    let raw = bus.topic(TopicSpec::new("both").unwrap().qos(telemetry())).unwrap();
    let mut samples = raw.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let mut both = Process::start(module_path!(), "both", &url);
    let go = topic(&bus, "go", &old).publisher().unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    while raw.writers().unwrap().is_empty()
        || bus.topic_info(raw.name()).unwrap().unwrap().schemas.len() < 2
    {
        assert!(Instant::now() < until, "the producer never came");
        std::thread::sleep(Duration::from_millis(1));
    }
    go.publish(Message::new(&wind(&old, 0, 0)).key(&[0])).wait().unwrap();
    let mut schemas = std::collections::HashSet::new();
    for number in 1..=SAMPLE_COUNT {
        let sample = next(&mut samples);
        assert_eq!(sample.header.sequence, number);
        schemas.insert(sample.header.schema);
    }
    assert_eq!(schemas.len(), 3);
    let stats = samples.stats();
    assert_eq!((stats.lost, stats.duplicates), (0, 0), "{stats:?}");
    go.publish(Message::new(&wind(&old, 0, 0)).key(&[0])).wait().unwrap();
    assert_eq!(both.wait(), Some(0));
}

#[test]
fn late_joiners_get_the_newest_of_each_key_whatever_topic_it_came_by() {
    let url = url(domain());
    let [old, new] = [OLD_SCHEMA, NEW_SCHEMA].map(|text| Schema::parse(text).unwrap());
    let (writing, reading) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    let publishers =
        [&old, &new].map(|schema| topic(&writing, "kept", schema).publisher().unwrap());
    let (mut number, mut newest) = (0, [0; 4]);
    for index in [1, 2, 3, 1, 2, 1, 3, 2] {
        for (publisher, schema) in publishers.iter().zip([&old, &new]).take(1 + index as usize % 2)
        {
            number += 1;
            newest[index as usize] = number;
            let avro = wind(schema, index, number);
            publisher.publish(Message::new(&avro).key(&key(index))).wait().unwrap();
        }
    }
    // A key that is not the type's: DDS would take it for the key of index 1.
    number += 1;
    let avro = wind(&old, 1, number);
    publishers[0].publish(Message::new(&avro).key(b"odd")).wait().unwrap();
    let last = Subscribe::from(Start::Last(1));
    let mut samples = topic(&reading, "kept", &old).subscribe(last).unwrap();
    let codec = Codec::new(&old);
    let mut found: Vec<_> = std::iter::from_fn(|| samples.try_next().unwrap())
        .filter_map(Event::into_sample)
        .map(|sample| {
            let json = codec.value_to_json(&codec.decode(&sample.payload).unwrap()).unwrap();
            (sample.key.to_vec(), json["number"].as_i64().unwrap())
        })
        .collect();
    found.sort_unstable();
    let mut expected: Vec<_> =
        (1..4).map(|index| (key(index).to_vec(), newest[index as usize])).collect();
    expected.push((b"odd".to_vec(), number));
    assert_eq!(found, expected);
}

#[test]
fn what_idl_cannot_say_travels_in_the_envelope() {
    let url = url(domain());
    let text = r#"{"type": "record", "name": "obs.Free", "fields": [
        {"name": "values", "type": {"type": "map", "values": "double"}}]}"#;
    let schema = Schema::parse(text).unwrap();
    assert!(TopicType::new(&schema).is_err());
    let (writing, reading) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    let publisher = topic(&writing, "free", &schema).publisher().unwrap();
    let mut samples =
        topic(&reading, "free", &schema).subscribe(Subscribe::from(Start::Latest)).unwrap();
    publisher.publish(Message::new(b"\0")).wait().unwrap();
    assert_eq!(&next(&mut samples).payload[..], b"\0");
}

#[test]
fn a_value_that_the_type_does_not_hold_is_refused_with_its_field() {
    let bus = Bus::connect(&url(domain())).unwrap();
    let text = r#"{"type": "record", "name": "obs.Note", "fields": [
        {"name": "text", "type": "string"}]}"#;
    let schema = Schema::parse(text).unwrap();
    let publisher = topic(&bus, "note", &schema).publisher().unwrap();
    let refused = publisher.publish(Message::new(b"\x06a\0b")).wait();
    let Err(PublishError::Encode(told)) = refused else { panic!("{refused:?}") };
    assert!(told.contains("text") && told.contains("NUL"), "{told}");
    publisher.publish(Message::new(b"\x02a")).wait().unwrap();
}

/// A foreign participant beside the bus, with its own endpoints on a topic of [`OLD_SCHEMA`].
struct Beside {
    there: Arc<Participant>,
    of: TopicType,
}

impl Beside {
    fn new(domain: u32) -> Self {
        let config = helio_dds::configuration(&url(domain)).unwrap();
        let there = Domain::open(domain, &config).unwrap();
        let there = Participant::join(there, &entity::Qos::new()).unwrap();
        Self { there, of: TopicType::new(&Schema::parse(OLD_SCHEMA).unwrap()).unwrap() }
    }

    fn writer(&self, name: &str, of: &Struct) -> Writer {
        self.offering(name, of, true)
    }

    fn offering(&self, name: &str, of: &Struct, reliable: bool) -> Writer {
        let made = entity::Topic::create(&self.there, name, of, &entity::Qos::new()).unwrap();
        let qos = entity::Qos::new().keep_all().transient_local(None);
        let qos = if reliable { qos.reliable(TEST_TIMEOUT) } else { qos.best_effort() };
        let qos = qos.representations(&[Representation::Xcdr2]).partitions(&["0"]).unwrap();
        Writer::open(&made, &qos, None).unwrap()
    }

    fn typed(&self, name: &str) -> Writer {
        self.writer(name, &runtime_type(&self.of))
    }

    fn cdr(&self, head: &Head<'_>, avro: &[u8]) -> Vec<u8> {
        let mut cdr = Vec::new();
        self.of.to_cdr(head, avro, &mut cdr).unwrap();
        cdr
    }
}

fn met(writer: &Writer) {
    let until = Instant::now() + TEST_TIMEOUT;
    while writer.readers().unwrap().is_empty() {
        assert!(Instant::now() < until, "the reader never came");
        std::thread::yield_now();
    }
}

#[test]
fn a_sample_waits_for_the_one_before_it_that_comes_by_the_other_topic() {
    let domain = domain();
    let old = Schema::parse(OLD_SCHEMA).unwrap();
    let bus = Bus::connect(&url(domain)).unwrap();
    let reading = topic(&bus, "turns", &old);
    reading.declare().unwrap();
    let mut samples = reading.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let beside = Beside::new(domain);
    let typed = beside.typed("turns");
    let envelopes = beside.writer("_helio/envelopes/turns", &envelope::envelope_type());
    met(&typed);
    met(&envelopes);
    let header = |sequence: u64, flags| Header {
        producer: "Mast",
        incarnation: 5,
        sequence,
        previous: sequence - 1,
        time: Tai::from_nanos(sequence as i64),
        schema: old.id(),
        partition: 0,
        level: 0,
        flags,
        trace: None,
        key: &[2],
        headers: HeadersRef::EMPTY,
    };
    let mut head = Vec::new();
    let mut put = |sequence, flags| {
        let avro = wind(&old, 1, sequence as i64);
        envelope::write_head(&header(sequence, flags), avro.len(), &mut head);
        envelopes.write(&envelope::pieces(&head, &avro), 1).unwrap();
    };
    put(2, OTHER_TOPIC);
    put(3, 0);
    assert!(samples.try_next().unwrap().is_none(), "the first one is on its way");
    let first = beside.cdr(&header(1, 0).head(), &wind(&old, 1, 1));
    typed.write(&[std::io::IoSlice::new(&first)], 1).unwrap();
    let order = [1, 2, 3].map(|_| next(&mut samples).header.sequence);
    assert_eq!(order, [1, 2, 3]);
    // A predecessor that never arrives is not waited for forever.
    put(5, OTHER_TOPIC);
    assert_eq!(next(&mut samples).header.sequence, 5);
    assert_eq!((samples.stats().lost, samples.stats().duplicates), (1, 0));
}

/// With key fields, and with the key in the header.
#[test]
fn a_null_disposes_of_the_instance_that_others_read() {
    let note = r#"{"type": "record", "name": "obs.Note", "fields": [
        {"name": "number", "type": "long"}]}"#;
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let config = helio_dds::configuration(&url(domain)).unwrap();
    let there = Domain::open(domain, &config).unwrap();
    let there = Participant::join(there, &entity::Qos::new()).unwrap();
    type Pair = [&'static [u8]; 2];
    let cases: [(&str, &str, Pair, Pair); 2] = [
        ("nulls", OLD_SCHEMA, [&[2], &[4]], [&[2, 10], &[4, 12]]),
        ("notes", note, [b"one", b"two"], [&[10], &[12]]),
    ];
    for (name, text, keys, payloads) in cases {
        let schema = Schema::parse(text).unwrap();
        let writing = topic(&bus, name, &schema);
        let publisher = writing.publisher().unwrap();
        let of = runtime_type(&TopicType::new(&schema).unwrap());
        let made = entity::Topic::create(&there, name, &of, &entity::Qos::new()).unwrap();
        let qos = entity::Qos::new().reliable(TEST_TIMEOUT).keep_all();
        let qos = qos.representations(&[Representation::Xcdr2]).partitions(&["*"]).unwrap();
        let reader = entity::Reader::open(&made, &qos, None).unwrap();
        let until = Instant::now() + TEST_TIMEOUT;
        while reader.writers().unwrap().is_empty() {
            assert!(Instant::now() < until, "the writer never came");
            std::thread::yield_now();
        }
        let mut own = writing.subscribe(Subscribe::from(Start::Latest)).unwrap();
        for (key, payload) in keys.into_iter().zip(payloads) {
            publisher.publish(Message::new(payload).key(key)).wait().unwrap();
        }
        let mut seen = Vec::new();
        let mut take = |count: usize| {
            while seen.len() < count {
                assert!(Instant::now() < until, "{name}: {seen:?}");
                reader.take(&mut seen).unwrap();
            }
        };
        // A sample of the instance that was not taken yet would only change its state.
        take(2);
        publisher.publish(Message::null(keys[0])).wait().unwrap();
        publisher.publish(Message::new(payloads[1]).key(keys[1])).wait().unwrap();
        take(4);
        let disposed: Vec<_> = seen.iter().filter(|sample| !sample.valid).collect();
        assert_eq!(disposed.len(), 1, "{name}: {seen:?}");
        let of_instance = seen.iter().filter(|sample| sample.instance == disposed[0].instance);
        assert_eq!(of_instance.count(), 2, "{name}: {seen:?}");
        let nulls: Vec<_> = (0..4).map(|_| next(&mut own).is_null()).collect();
        assert_eq!(nulls, [false, false, true, false], "{name}");
        let mut last = writing.subscribe(Subscribe::from(Start::Last(1))).unwrap();
        assert_eq!(next(&mut last).key, keys[1]);
        assert!(last.next_timeout(Duration::from_millis(200)).unwrap().is_none());
    }
}

/// Foreign writers may exist before the bus knows the topic's schema.
#[test]
fn ends_that_are_open_already_get_the_type_of_the_first_schema() {
    let domain = domain();
    let url = url(domain);
    let old = Schema::parse(OLD_SCHEMA).unwrap();
    let (reading, declaring) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    let raw = reading.topic(TopicSpec::new("late").unwrap().qos(telemetry())).unwrap();
    let mut samples = raw.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let beside = Beside::new(domain);
    let writer = beside.typed("late");
    assert!(writer.readers().unwrap().is_empty());
    topic(&declaring, "late", &old).declare().unwrap();
    met(&writer);
    let avro = wind(&old, 3, 5);
    let cdr = beside.cdr(&Head::default(), &avro);
    writer.write(&[std::io::IoSlice::new(&cdr)], 7).unwrap();
    let sample = next(&mut samples);
    assert_eq!((&sample.payload[..], &sample.key[..]), (&avro[..], &key(3)[..]));
    assert_eq!((sample.header.schema, sample.header.sequence), (old.id(), 1));
}

/// The next event that is a sample or a report of an incompatible writer.
fn next_report(samples: &mut Subscription) -> Result<Sample, String> {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match samples.next_timeout(left).unwrap().expect("it comes in time") {
            Event::Sample(sample) => return Ok(sample),
            Event::Incompatible(told) => return Err(told.policy),
            _ => {}
        }
    }
}

/// The values of [`NEW_SCHEMA`] that a sample has.
fn values(sample: &Sample) -> serde_json::Value {
    let new = Schema::parse(NEW_SCHEMA).unwrap();
    assert_eq!(sample.header.schema, new.id());
    let codec = Codec::new(&new);
    codec.value_to_json(&codec.decode(&sample.payload).unwrap()).unwrap()
}

#[test]
fn a_typed_reader_that_comes_first_reads_others_or_reports_them_and_declares_nothing() {
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let new = Schema::parse(NEW_SCHEMA).unwrap();
    let another = NEW_SCHEMA.replace("\"long\"", "\"string\"");
    let gust = |gust| Ok(json!({"salIndex": 3, "number": 5, "gust": gust}));
    let text: &[u8] = b"\x06\x02x\0\0\0\0\0\0\0\0";
    let cases = [
        ("same", NEW_SCHEMA, wind(&new, 3, 5), true, gust(2.5)),
        ("older", OLD_SCHEMA, wind(&Schema::parse(OLD_SCHEMA).unwrap(), 3, 5), true, gust(0.0)),
        ("another", &another, text.to_vec(), true, Err("type consistency".to_owned())),
        ("lossy", NEW_SCHEMA, wind(&new, 3, 5), false, Err("reliability".to_owned())),
    ];
    for (kind, written, avro, reliable, expected) in cases {
        for order in ["before", "after"] {
            let name = format!("first/{kind}/{order}");
            let of = TopicType::new(&Schema::parse(written).unwrap()).unwrap();
            let beside = Beside { of, ..Beside::new(domain) };
            let open = || beside.offering(&name, &runtime_type(&beside.of), reliable);
            let early = (order == "before").then(open);
            let reading = topic(&bus, &name, &new);
            let mut samples = reading.subscribe(Subscribe::from(Start::Latest)).unwrap();
            let writer = early.unwrap_or_else(open);
            if expected.is_ok() {
                met(&writer);
            }
            let cdr = beside.cdr(&Head::default(), &avro);
            writer.write(&[std::io::IoSlice::new(&cdr)], 7).unwrap();
            let seen = next_report(&mut samples).map(|sample| values(&sample));
            assert_eq!(seen, expected, "{name}");
            let info = bus.topic_info(reading.name()).unwrap().unwrap();
            assert!(info.schemas.is_empty(), "{name} got a schema from a reader");
        }
    }
}

#[test]
fn a_typed_reader_that_came_first_follows_the_topic_s_first_schema() {
    let domain = domain();
    let url = url(domain);
    let [old, new] = [OLD_SCHEMA, NEW_SCHEMA].map(|text| Schema::parse(text).unwrap());
    let (reading, writing) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    for (name, declared) in [("older", &old), ("same", &new)] {
        let mut samples =
            topic(&reading, name, &new).subscribe(Subscribe::from(Start::Latest)).unwrap();
        let beside = Beside::new(domain);
        let writer = beside.typed(name);
        met(&writer);
        let put = |number| {
            let cdr = beside.cdr(&Head::default(), &wind(&old, 3, number));
            writer.write(&[std::io::IoSlice::new(&cdr)], 7).unwrap();
        };
        put(1);
        assert_eq!(values(&next(&mut samples))["number"], 1);
        let publisher = topic(&writing, name, declared).publisher().unwrap();
        publisher.publish(Message::new(&wind(declared, 3, 2)).key(&key(3))).wait().unwrap();
        assert_eq!(values(&next(&mut samples))["number"], 2);
        met(&writer);
        put(3);
        assert_eq!(values(&next(&mut samples))["number"], 3);
        assert!(samples.try_next().unwrap().is_none(), "each sample comes once");
        assert_eq!((samples.stats().lost, samples.stats().duplicates), (0, 0));
    }
}

#[test]
fn a_sample_of_others_that_is_no_value_is_a_gap_and_not_empty() {
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let text = r#"{"type": "record", "name": "obs.Note", "fields": [
        {"name": "text", "type": "string"}]}"#;
    let schema = Schema::parse(text).unwrap();
    let reading = topic(&bus, "note", &schema);
    reading.declare().unwrap();
    let mut samples = reading.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let beside = Beside { of: TopicType::new(&schema).unwrap(), ..Beside::new(domain) };
    let writer = beside.typed("note");
    met(&writer);
    let whole = beside.cdr(&Head::default(), b"\x08good");
    let mut damaged = whole.clone();
    let place = damaged.windows(4).position(|bytes| bytes == b"good").unwrap();
    damaged[place] = 0xff;
    for cdr in [&damaged, &whole] {
        writer.write(&[std::io::IoSlice::new(cdr)], 1).unwrap();
    }
    let Some(Event::Gap(gap)) = samples.next_timeout(TEST_TIMEOUT).unwrap() else {
        panic!("no gap")
    };
    assert_eq!((gap.lost, gap.cause), (1, GapCause::Damaged { from: 0, to: 1 }));
    assert_eq!(&next(&mut samples).payload[..], b"\x08good");
    assert_eq!(samples.stats().lost, 1);
}

#[test]
fn one_name_and_type_name_with_other_members_is_another_topic() {
    let beside = Beside::new(domain());
    let [old, new] =
        [OLD_SCHEMA, NEW_SCHEMA].map(|text| TopicType::new(&Schema::parse(text).unwrap()).unwrap());
    let [old, new] = [old, new].map(|of| {
        let qos = entity::Qos::new();
        entity::Topic::create(&beside.there, "turned", &runtime_type(&of), &qos).unwrap()
    });
    assert_ne!(old.type_information(), new.type_information());
    for made in [&old, &new] {
        Writer::open(made, &entity::Qos::new(), None).unwrap();
    }
}

#[test]
fn a_header_that_is_neither_empty_nor_ours_is_a_gap_and_fences_nobody() {
    let domain = domain();
    let bus = Bus::builder().producer("Mast").connect(&url(domain)).unwrap();
    let reading = bus.topic(TopicSpec::new("raw").unwrap().qos(telemetry())).unwrap();
    let mut samples = reading.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let beside = Beside::new(domain);
    let envelopes = beside.writer("_helio/envelopes/raw", &envelope::envelope_type());
    met(&envelopes);
    let put = |incarnation, damage: &dyn Fn(&mut Vec<u8>)| {
        let header = Header {
            producer: "Mast",
            incarnation,
            sequence: 1,
            previous: 0,
            time: Tai::from_nanos(1),
            schema: SchemaId::BYTES,
            partition: 0,
            level: 0,
            flags: 0,
            trace: None,
            key: b"",
            headers: HeadersRef::EMPTY,
        };
        let mut head = Vec::new();
        envelope::write_head(&header, 4, &mut head);
        damage(&mut head);
        envelopes.write(&envelope::pieces(&head, b"four"), 1).unwrap();
    };
    let no_text = |head: &mut Vec<u8>| {
        let place = head.windows(4).position(|bytes| bytes == b"Mast").unwrap();
        head[place] = 0xff;
    };
    put(1, &no_text);
    // Such an incarnation would fence all later ones of Mast.
    put(u64::MAX, &|_| ());
    let mut lost = 0;
    while lost < 2 {
        let event = samples.next_timeout(TEST_TIMEOUT).unwrap().expect("it is told");
        let Event::Gap(gap) = event else { panic!("{event:?}") };
        assert!(matches!(gap.cause, GapCause::Damaged { .. }), "{gap:?}");
        lost += gap.lost;
    }
    let publisher = reading.publisher().unwrap();
    publisher.publish(Message::new(b"mine")).wait().unwrap();
    assert_eq!(&next(&mut samples).payload[..], b"mine");
    assert_eq!((samples.stats().lost, samples.stats().fenced), (2, 0));
}

#[test]
fn a_topic_says_how_it_is_carried() {
    let bus = Bus::connect(&url(domain())).unwrap();
    let carried = |name: &str| bus.topic_info(&name.parse().unwrap()).unwrap().unwrap().carried;
    let _raw = bus.topic(TopicSpec::new("raw").unwrap().qos(telemetry())).unwrap();
    assert_eq!(carried("raw"), Some(Carried::Enveloped));
    topic(&bus, "wind", &Schema::parse(OLD_SCHEMA).unwrap()).declare().unwrap();
    assert_eq!(carried("wind"), Some(Carried::Typed("obs::Wind".to_owned())));
}

#[test]
fn names_of_the_transports_own_are_refused() {
    let bus = Bus::connect(&url(domain())).unwrap();
    let refused = bus.topic(TopicSpec::new("_helio/kept").unwrap().qos(telemetry())).unwrap_err();
    assert!(refused.to_string().contains("begin with _helio/"), "{refused}");
}
