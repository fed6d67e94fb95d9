//! Two releases of the Rubin Observatory's interfaces on one bus: publishers and subscriptions of
//! both, upgraded in any order. Needs the shared test data; skipped without it.

#[path = "../../../core/tests/random/mod.rs"]
mod random;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use helio_bus::{
    Bus, Event, Evolution, Message, Publisher, Start, Subscribe, Subscription, Topic, TopicError,
    TopicSpec, read_interfaces,
};
use helio_core::codec::{Codec, Value};
use helio_core::evolution::compare;
use helio_core::qos::{Durability, Qos};
use helio_core::sal::Interfaces;
use helio_core::schema::{Schema, Type};
use helio_core::{Resolution, evolution};
use random::{Random, any_value};

const OLD: &str = "v26.0.0";
const NEW: &str = "v27.1.1";

/// A release's interfaces; without them, the test reports that it is skipped.
fn release(name: &str) -> Option<Interfaces> {
    let root = std::env::var_os("HELIO_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join("sal-interfaces").join(name);
    if !path.exists() {
        // Not by println!, which the test runner captures.
        let _ = writeln!(std::io::stderr(), "skipped: {} not found", path.display());
        return None;
    }
    Some(read_interfaces(&path).unwrap())
}

/// A topic of both releases.
struct Both {
    name: String,
    qos: Qos,
    old: Schema,
    new: Schema,
}

/// The topics of both releases.
fn both() -> Option<Vec<Both>> {
    let (old, new) = (release(OLD)?, release(NEW)?);
    let topics = old.topics().filter_map(|before| {
        let name = before.topic_name().as_str();
        let (old, new) = (before.schema().unwrap(), new.topic(name)?.schema().unwrap());
        // Each topic stores its last value here, so that history is tested, too.
        let qos = Qos { durability: Durability::Volatile, partitions: 1, ..Qos::event() };
        Some(Both { name: name.to_owned(), qos, old, new })
    });
    Some(topics.collect())
}

impl Both {
    fn open(&self, bus: &Bus, schema: &Schema, policy: Option<Evolution>) -> Topic {
        let spec = TopicSpec::new(&self.name).unwrap().qos(self.qos.clone()).schema(schema);
        let spec = policy.into_iter().fold(spec, TopicSpec::evolution);
        bus.topic(spec).unwrap()
    }
}

/// A random value, encoded.
fn publish(random: &mut Random, schema: &Schema, publisher: &Publisher) -> Value {
    let value = any_value(random, schema);
    let mut bytes = Vec::new();
    Codec::new(schema).encode(&value, &mut bytes).unwrap();
    publisher.publish(Message::new(&bytes)).wait().unwrap();
    value
}

/// Whether two values are equal as numbers, lists of numbers, or otherwise.
fn same(written: &Value, read: &Value) -> bool {
    let numbers = |value: &Value| -> Option<Vec<f64>> {
        Some(match value {
            Value::Int(n) => vec![f64::from(*n)],
            Value::Long(n) => vec![*n as f64],
            Value::Float(n) => vec![f64::from(*n)],
            Value::Double(n) => vec![*n],
            Value::Ints(all) => all.iter().map(|n| f64::from(*n)).collect(),
            Value::Longs(all) => all.iter().map(|n| *n as f64).collect(),
            Value::Floats(all) => all.iter().map(|n| f64::from(*n)).collect(),
            Value::Doubles(all) => all.clone(),
            _ => return None,
        })
    };
    written == read || numbers(written).is_some_and(|all| Some(all) == numbers(read))
}

/// Checks that every common field of both schemas was received as written.
fn survived(written: (&Schema, &Value), read: (&Schema, &Value)) {
    let fields = |(schema, value): (&Schema, &Value)| -> BTreeMap<String, Value> {
        let (Type::Record(record), Value::Record(values)) = (&schema.root().kind, value) else {
            panic!("a topic is a record")
        };
        let named = record.fields.iter().zip(values);
        named.map(|(field, value)| (field.name.clone(), value.clone())).collect()
    };
    let (written, read) = (fields(written), fields(read));
    let common = written.keys().filter(|name| read.contains_key(*name));
    for name in common {
        assert!(same(&written[name], &read[name]), "{name}: {:?}", written[name]);
    }
}

/// The next sample's value in the reader's schema, or the reason why there is none.
fn next(samples: &mut Subscription, schema: &Schema) -> Option<Result<Value, String>> {
    match samples.try_next().unwrap()? {
        Event::Sample(sample) => Some(Ok(Codec::new(schema).decode(&sample.payload).unwrap())),
        Event::Undecodable(told) => Some(Err(told.reason)),
        other => panic!("{other:?}"),
    }
}

/// Checks that a refusal names the topic and one of the differing fields.
fn names_field(told: &str, name: &str, report: &evolution::Evolution) {
    assert!(told.contains(name), "the topic is not named: {told}");
    let field = |at: &str| at.split('.').next().unwrap().to_owned();
    let named = report.differences.iter().any(|d| told.contains(&field(&d.at)));
    assert!(named, "no field is named: {told}");
}

/// Whether a release's publisher is to be admitted after another's, and its subscription.
fn expected(first: &Schema, second: &Schema, policy: Option<Evolution>) -> (bool, bool) {
    let report = compare(first, second);
    let backward = Resolution::new(first, second).is_ok();
    let forward = Resolution::new(second, first).is_ok();
    // Readable according to the report means resolvable, whatever the policy.
    assert!(!report.level.is_backward() || backward, "{report:?}");
    assert!(!report.level.is_forward() || forward, "{report:?}");
    match policy {
        Some(policy) => (policy.allows(report.level), policy.allows(report.level)),
        None => (backward && forward, backward),
    }
}

/// One release's publisher and subscription run; then the other release starts. Returns whether its
/// publisher is refused.
fn meet(
    bus: &Bus,
    topic: &Both,
    first: &Schema,
    second: &Schema,
    policy: Option<Evolution>,
    random: &mut Random,
) -> bool {
    let report = compare(first, second);
    let (writes, reads) = expected(first, second, policy);
    let refused = |error: &TopicError| {
        assert!(matches!(error, TopicError::Incompatible { .. }), "{error}");
        names_field(&error.to_string(), &topic.name, &report);
    };
    let opened = topic.open(bus, first, policy);
    let publisher = opened.publisher().unwrap();
    let mut running = opened.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let last = publish(random, first, &publisher);

    let coming = topic.open(bus, second, policy);
    match coming.subscribe(Subscribe::from(Start::Last(1))) {
        Ok(mut samples) => {
            assert!(reads, "{policy:?}: {report:?}");
            let live = publish(random, first, &publisher);
            reading(&mut samples, first, second, &[&last, &live]);
            reading(&mut running, first, first, &[&last, &live]);
        }
        Err(error) => {
            assert!(!reads, "{policy:?}: {error}");
            refused(&error);
            reading(&mut running, first, first, &[&last]);
        }
    }
    match coming.publisher() {
        Ok(upgraded) => {
            assert!(writes, "{policy:?}: {report:?}");
            let values = [0; 3].map(|_| publish(random, second, &upgraded));
            reading(&mut running, second, first, &values.each_ref());
            // An old reader restarts, and is admitted although the newest schema is declared.
            let mut again = opened.subscribe(Subscribe::from(Start::Last(1))).unwrap();
            reading(&mut again, second, first, &[&values[2]]);
        }
        Err(error) => {
            assert!(!writes, "{policy:?}: {error}");
            refused(&error);
        }
    }
    // The first release continues in any case.
    let value = publish(random, first, &publisher);
    reading(&mut running, first, first, &[&value]);
    !writes
}

/// Checks that a subscription receives these values in its own schema, or reports once that it
/// cannot.
fn reading(samples: &mut Subscription, writer: &Schema, reader: &Schema, values: &[&Value]) {
    let before = samples.stats();
    let resolution = Resolution::new(writer, reader);
    if resolution.is_ok() {
        for written in values {
            let value = next(samples, reader).unwrap().unwrap();
            survived((writer, written), (reader, &value));
        }
    } else {
        let told = next(samples, reader).unwrap().unwrap_err();
        let report = compare(writer, reader);
        names_field(&told, "", &report);
    }
    assert_eq!(next(samples, reader), None);
    let (after, count) = (samples.stats(), values.len() as u64);
    let counted = (after.received - before.received, after.undecodable - before.undecodable);
    assert_eq!(counted, if resolution.is_ok() { (count, 0) } else { (0, count) });
}

#[test]
fn every_topic_of_two_releases_is_resolved_or_refused_as_the_report_says() {
    let Some(topics) = both() else { return };
    let random = &mut Random::new(26);
    assert_eq!(topics.len(), 3_166 - 116);
    // Policies, and how many topics they refuse if v27.1.1 comes second, and if v26.0.0 does.
    let refused = [
        (Some(Evolution::None), [0, 0]),
        (Some(Evolution::Backward), [5, 5]),
        (Some(Evolution::Forward), [11, 18]),
        (Some(Evolution::Full), [11, 18]),
        (None, [4, 4]),
    ];
    for (policy, expected) in refused {
        // Topics equal in both releases need no policy: once is enough.
        let all = policy == Some(Evolution::Full);
        let some = || topics.iter().filter(|topic| all || topic.old.id() != topic.new.id());
        let up = Bus::connect("memory:").unwrap();
        let up = some().filter(|topic| meet(&up, topic, &topic.old, &topic.new, policy, random));
        let up = up.count();
        let down = Bus::connect("memory:").unwrap();
        let down = some()
            .filter(|topic| meet(&down, topic, &topic.new, &topic.old, policy, random))
            .count();
        assert_eq!([up, down], expected, "{policy:?}");
    }
}

/// The end of a topic that is upgraded first.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Publisher,
    Subscription,
}

/// A journal with history: events keep the old release's last values. The ends are upgraded one
/// after the other, each with a connection of its own, and later both return to the old release.
#[test]
fn a_rolling_upgrade_goes_on_whatever_comes_first() {
    let Some(topics) = both() else { return };
    let differ = |topic: &Both| topic.old.id() != topic.new.id();
    let some = |topic: &Both| differ(topic) || topic.name.starts_with("MTMount/event/s");
    let topics: Vec<Both> = topics.into_iter().filter(some).collect();
    let random = &mut Random::new(27);
    for order in [[End::Publisher, End::Subscription], [End::Subscription, End::Publisher]] {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("journal:{}", folder.path().display());
        // Releases of the publisher and of the subscription at each step.
        let mut at = (0, 0);
        let mut written: BTreeMap<&str, (usize, Value)> = BTreeMap::new();
        for (step, end) in order.into_iter().chain(order).enumerate() {
            let to = usize::from(step < 2);
            if step == 0 {
                stage(&url, &topics, at, &mut written, random);
            }
            match end {
                End::Publisher => at.0 = to,
                End::Subscription => at.1 = to,
            }
            stage(&url, &topics, at, &mut written, random);
        }
    }
}

/// Reconnects both ends; resolvable topics continue, and the others report it.
fn stage<'a>(
    url: &str,
    topics: &'a [Both],
    at: (usize, usize),
    written: &mut BTreeMap<&'a str, (usize, Value)>,
    random: &mut Random,
) {
    let connect = |name: &str| Bus::builder().producer(name).connect(url).unwrap();
    let (component, remote) = (connect("component"), connect("remote"));
    for topic in topics {
        let releases = [&topic.old, &topic.new];
        let (writer, reader) = (releases[at.0], releases[at.1]);
        let policy = Some(Evolution::None);
        let opened = topic.open(&remote, reader, policy);
        let mut samples = opened.subscribe(Subscribe::from(Start::Last(1))).unwrap();
        if let Some((release, last)) = written.get(topic.name.as_str()) {
            reading(&mut samples, releases[*release], reader, &[last]);
        }
        let publisher = topic.open(&component, writer, policy).publisher().unwrap();
        let value = publish(random, writer, &publisher);
        match written.insert(&topic.name, (at.0, value.clone())) {
            // It was reported with the last value already.
            Some((release, _))
                if releases[release].id() == writer.id()
                    && Resolution::new(writer, reader).is_err() =>
            {
                assert_eq!(next(&mut samples, reader), None);
            }
            _ => reading(&mut samples, writer, reader, &[&value]),
        }
    }
}
