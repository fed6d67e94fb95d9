//! Simulated values conform to their interfaces, and the rate table's totals are as expected.

use std::io::Write;
use std::path::{Path, PathBuf};

use helio_bus::{Bus, Start, Subscribe, TopicSpec, read_interfaces};
use helio_component::protocol::SummaryState;
use helio_component::{Interface, Mock, MockOptions, MockValues, Rates};
use helio_core::codec::wire::{put_bytes, put_long};
use helio_core::sal::{Interfaces, SalType, Topic, TopicKind};
use helio_core::schema::Field;
use helio_core::{Codec, Schema, Tai, Value};

use crate::support::HANG_TIMEOUT;

/// Two minutes after midnight of one night.
const NIGHT: Tai = Tai::from_nanos(1_800_000_120_000_000_000);

fn own() -> Interfaces {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/interfaces");
    read_interfaces(folder).unwrap()
}

/// The real interfaces (`$HELIO_SHARED_DATA`, else `../shared/data` beside the repository). If they
/// are absent, the test prints that it is skipped.
pub(crate) fn real() -> Option<Interfaces> {
    let root = std::env::var_os("HELIO_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join("sal-interfaces/v27.1.1");
    if !path.exists() {
        // Not with println!, whose output the test runner captures.
        let _ = writeln!(std::io::stderr(), "skipped: {} not found", path.display());
        return None;
    }
    Some(read_interfaces(path).unwrap())
}

/// A whole sample: a component's private fields, and simulated public ones.
fn datum(topic: &Topic, values: &mut MockValues, number: u64, out: &mut Vec<u8>) {
    out.clear();
    if topic.indexed() {
        put_long(out, 1);
    }
    let time = Tai::from_nanos(NIGHT.nanos() + number as i64 * 20_000_000);
    let private_first = topic.private_at() == usize::from(topic.indexed());
    if !private_first {
        values.write(number, time, out);
    }
    for _ in 0..4 {
        out.extend_from_slice(&NIGHT.seconds().to_le_bytes());
    }
    put_long(out, number as i64);
    put_bytes(out, b"01234567");
    put_bytes(out, topic.component().as_bytes());
    put_long(out, 1_000);
    if private_first {
        values.write(number, time, out);
    }
}

fn numbers(value: &Value) -> Vec<i64> {
    match value {
        Value::Int(one) => vec![i64::from(*one)],
        Value::Long(one) => vec![*one],
        Value::Ints(all) => all.iter().map(|one| i64::from(*one)).collect(),
        Value::Longs(all) => all.clone(),
        _ => Vec::new(),
    }
}

fn range(field: &Field) -> std::ops::RangeInclusive<i64> {
    match field.sal_type.as_deref().and_then(SalType::from_name) {
        Some(SalType::Byte) => i64::from(i8::MIN)..=i64::from(u8::MAX),
        Some(SalType::Short) => i64::from(i16::MIN)..=i64::from(i16::MAX),
        Some(SalType::UnsignedShort) => 0..=i64::from(u16::MAX),
        Some(SalType::UnsignedInt) => 0..=i64::from(u32::MAX),
        _ => i64::MIN..=i64::MAX,
    }
}

fn check(topic: &Topic) {
    let schema = topic.schema().unwrap();
    let codec = Codec::new(&schema);
    let mut values = MockValues::new(topic).unwrap();
    let (mut bytes, mut before) = (Vec::new(), None);
    for number in 0..8 {
        datum(topic, &mut values, number, &mut bytes);
        let decoded = codec.decode(&bytes).unwrap_or_else(|e| panic!("{topic}: {e}"));
        let Value::Record(fields) = decoded else { panic!("{topic}") };
        for (field, value) in schema.fields().iter().zip(&fields) {
            let legal = |number: &i64| {
                let members = field.enumeration.as_ref();
                members.is_none_or(|m| m.iter().any(|(_, value)| value == number))
                    && range(field).contains(number)
            };
            assert!(numbers(value).iter().all(legal), "{topic} {}: {value:?}", field.name);
        }
        // A change of an event changes its values.
        let mut public = fields;
        public.drain(topic.private_at()..topic.private_at() + 8);
        let same = before.as_ref() == Some(&public);
        assert!(!same || topic.kind() != TopicKind::Event || constant(topic), "{topic}");
        before = Some(public);
    }
}

/// Whether its values cannot change: no field, a single value, or only names and versions.
fn constant(topic: &Topic) -> bool {
    let single = |field: &helio_core::sal::Field| {
        let one = field.enumeration.as_ref().is_some_and(|e| e.labels.len() == 1);
        one || field.sal_type().is_none_or(|sal| sal == SalType::String)
    };
    topic.fields().iter().all(single)
}

#[test]
fn values_of_every_topic_hold_to_its_schema() {
    own().topics().for_each(check);
    if let Some(real) = real() {
        real.topics().for_each(check);
    }
}

#[test]
fn two_runs_are_alike() {
    let own = own();
    let topic = own.topic("MTM1M3/telemetry/forceActuatorData").unwrap();
    let message = |number| {
        let mut bytes = Vec::new();
        datum(topic, &mut MockValues::new(topic).unwrap(), number, &mut bytes);
        bytes
    };
    assert_eq!(message(7), message(7));
    assert_ne!(message(7), message(8));
}

/// The totals of an observatory by the table: one second of each of its topics.
fn totals(interfaces: &Interfaces) -> (f64, f64) {
    let (rates, mut bytes) = (Rates::standard(), Vec::new());
    let (mut messages_per_s, mut bytes_per_s) = (0.0, 0.0);
    for topic in interfaces.topics() {
        datum(topic, &mut MockValues::new(topic).unwrap(), 1, &mut bytes);
        messages_per_s += rates.of(topic);
        bytes_per_s += rates.of(topic) * bytes.len() as f64;
    }
    (messages_per_s, bytes_per_s * 1e-6)
}

#[test]
fn the_whole_observatory_has_these_rates() {
    let Some(real) = real() else { return };
    assert_eq!(real.components().len(), 63);
    let (messages_per_s, mb_per_s) = totals(&real);
    assert_eq!(messages_per_s.round(), 2531.0);
    assert_eq!((mb_per_s * 10.0).round(), 15.0);
}

/// A mount that follows them moves to places that are meant.
#[test]
fn simulated_targets_have_a_value_for_every_field() {
    let (own, bus) = (own(), Bus::connect("memory:").unwrap());
    let shape = Interface::of(&own, "MTMount").unwrap();
    let shape = shape.shape(TopicKind::Command, "trackTarget").unwrap();
    let spec = TopicSpec::of(shape.topic().topic_name().clone()).qos(shape.topic().qos());
    let topic = bus.topic(spec.schema(shape.schema())).unwrap();
    let mut targets = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let instances = vec![("MTMount".to_owned(), 0)];
    let options = MockOptions { instances, state: SummaryState::Enabled, evolution: None };
    let mut mock = Mock::start(&bus, &own, &options).unwrap();
    let begin = bus.clock().now();
    let second = Tai::from_nanos(begin.nanos() + 1_000_000_000);
    mock.publish_until(begin, 1.0, |at| at < second).unwrap();
    let sent = mock.counts().commands;
    assert!(sent > 10, "{:?}", mock.counts());
    let number = |target: &serde_json::Value, field: &str| target[field].as_f64().unwrap();
    for _ in 0..sent {
        let sample = targets.next_timeout(HANG_TIMEOUT).unwrap().unwrap().into_sample().unwrap();
        let target = shape.codec().decode(&sample.payload).unwrap();
        let target = shape.codec().value_to_json(&target).unwrap();
        for field in ["azimuth", "elevation"] {
            assert!((15.0..=75.0).contains(&number(&target, field)), "{target}");
        }
        assert!(number(&target, "taiTime") > begin.seconds(), "{target}");
        for field in ["azimuthVelocity", "elevationVelocity"] {
            assert!(number(&target, field) != 0.0, "{target}");
        }
        for field in ["tracksys", "radesys"] {
            assert!(!target[field].as_str().unwrap().is_empty(), "{target}");
        }
    }
}

#[test]
fn a_topic_that_is_refused_keeps_no_other_from_being_simulated() {
    let (own, bus) = (own(), Bus::connect("memory:").unwrap());
    let name = "MTMount/telemetry/elevation";
    let other = r#"{"type": "record", "name": "lsst.sal.MTMount.elevation",
        "fields": [{"name": "actualPosition", "type": "string"}]}"#;
    let spec = TopicSpec::new(name).unwrap().qos(own.topic(name).unwrap().qos());
    let spec = spec.schema(Schema::parse(other).unwrap());
    bus.topic(spec).unwrap().declare().unwrap();
    let instance = |component: &helio_core::sal::Component| {
        (component.name().to_owned(), i32::from(component.indexed()))
    };
    let instances = own.components().iter().map(instance).collect();
    let options = MockOptions { instances, state: SummaryState::Enabled, evolution: None };
    let mut mock = Mock::start(&bus, &own, &options).unwrap();
    assert_eq!(mock.len(), own.components().len());
    let refused: Vec<_> = mock.skipped().iter().map(|refused| refused.topic.as_str()).collect();
    assert_eq!(refused, [name]);
    assert!(mock.skipped()[0].reason.contains("actualPosition"), "{:?}", mock.skipped());
    let begin = bus.clock().now();
    let second = Tai::from_nanos(begin.nanos() + 1_000_000_000);
    mock.publish_until(begin, 1.0, |at| at < second).unwrap();
    assert!(mock.counts().published > 100, "{:?}", mock.counts());
}
