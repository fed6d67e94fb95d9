//! Schemas: all types, evolution, damaged and unknown bytes.

use std::collections::BTreeMap;
use std::sync::Barrier;

use helio_core::schema::build::{RecordSpec, double, int, long, nullable, record, string};
use helio_core::{HasSchema, Qos, Schema, SchemaError, SchemaId};
use serde::{Deserialize, Serialize};

use super::support::{Outcome, await_event, ensure, gather, listening, plain, process, unique};
use super::{Check, Failure, Harness};
use crate::bus::Bus;
use crate::error::TopicError;
use crate::event::Event;
use crate::evolution::Evolution;
use crate::publisher::Message;
use crate::schema_text::SchemaText;
use crate::subscribe::{Start, Subscribe};
use crate::topic::{Topic, TopicSpec};
use crate::typed::TypedEvent;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "schema_every_type",
        promise: "values of every type are received unchanged, extremes included",
        run: every_type,
    },
    Check {
        name: "schema_evolves",
        promise: "readers receive the samples of older and newer writers in their own schema",
        run: evolves,
    },
    Check {
        name: "schema_incompatible",
        promise: "a schema that readers cannot read is refused at the writer, naming the field",
        run: incompatible,
    },
    Check {
        name: "schema_policies",
        promise: "each evolution policy refuses exactly the changes that it forbids, naming the \
                  field",
        run: policies,
    },
    Check {
        name: "schema_told_once",
        promise: "an unreadable schema is reported once and its samples are counted; the others \
                  are received",
        run: told_once,
    },
    Check {
        name: "schema_held",
        promise: "a subscription applies its own policy, whatever the writer's",
        run: held,
    },
    Check {
        name: "schema_rolled_back",
        promise: "a reader with one of the topic's schemas continues, whatever is declared later",
        run: rolled_back,
    },
    Check {
        name: "schema_at_once",
        promise: "of incompatible schemas declared concurrently, one is accepted",
        run: at_once,
    },
    Check {
        name: "schema_bad_bytes",
        promise: "unreadable bytes are reported and counted, and do not stop the stream",
        run: bad_bytes,
    },
    Check {
        name: "schema_is_kept",
        promise: "the text of each schema in use is available to all connections",
        run: is_kept,
    },
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Everything {
    flag: bool,
    small: i32,
    large: i64,
    single: f32,
    double: f64,
    text: String,
    maybe: Option<f64>,
    numbers: Vec<f32>,
    names: Vec<String>,
    table: BTreeMap<String, i64>,
    nested: Vec<Inner>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Inner {
    index: i32,
    value: Option<String>,
}

helio_core::has_schema!(Inner, "conformance.Inner", { index: i32, value: Option<String> });
helio_core::has_schema!(Everything, "conformance.Everything", {
    flag: bool,
    small: i32,
    large: i64,
    single: f32,
    double: f64 [units("m/s")],
    text: String,
    maybe: Option<f64>,
    numbers: Vec<f32>,
    names: Vec<String>,
    table: BTreeMap<String, i64>,
    nested: Vec<Inner>,
});

fn values() -> Vec<Everything> {
    let inner = |index: i32| Inner { index, value: (index % 2 == 0).then(|| index.to_string()) };
    let of = |small, large, single, double, text: &str, count: usize| Everything {
        flag: count % 2 == 1,
        small,
        large,
        single,
        double,
        text: text.to_owned(),
        maybe: (count > 0).then_some(double),
        numbers: (0..count).map(|n| n as f32 * 0.5).collect(),
        names: (0..count.min(9)).map(|n| format!("name {n}")).collect(),
        table: (0..count.min(9)).map(|n| (format!("k{n}"), n as i64 - 3)).collect(),
        nested: (0..count.min(5) as i32).map(inner).collect(),
    };
    vec![
        of(0, 0, 0.0, 0.0, "", 0),
        of(i32::MIN, i64::MIN, f32::MIN_POSITIVE, f64::MIN, "é \u{1F52D} \0", 1),
        of(i32::MAX, i64::MAX, f32::INFINITY, f64::EPSILON, "plain", 10_000),
    ]
}

fn every_type(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let name = unique("types");
    let writing = bus.typed::<Everything>(&name, plain())?;
    let reading = other.typed::<Everything>(&name, plain())?;
    let mut samples = reading.subscribe(Subscribe::from(Start::Latest))?;
    // Only for engines whose readers and writers must discover each other first.
    let publisher = writing.topic().publisher()?;
    drop(listening(harness, reading.topic(), Subscribe::from(Start::Latest), &publisher)?);
    for value in values() {
        writing.publish(&value).wait()?;
    }
    for expected in values() {
        loop {
            match samples.next_timeout(harness.timeout())? {
                Some(TypedEvent::Value(got)) => {
                    ensure!(got.value == expected, "received {:?} for {expected:?}", got.value);
                    break;
                }
                Some(TypedEvent::Other(_)) => {}
                None => ensure!(false, "a value was not received"),
            }
        }
    }
    publisher.publish(Message::new(b"no such value")).wait()?;
    loop {
        match samples.next_timeout(harness.timeout())? {
            Some(TypedEvent::Other(Event::Undecodable(told))) => {
                ensure!(!told.reason.is_empty(), "the reason is empty");
                return Ok(());
            }
            Some(TypedEvent::Other(_)) => {}
            got => ensure!(false, "bytes that are no value gave {got:?}"),
        }
    }
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        Self::Broken(error.to_string())
    }
}

fn opened(bus: &Bus, name: &str, qos: &Qos, schema: &Schema) -> Result<Topic, Failure> {
    Ok(bus.topic(TopicSpec::new(name)?.qos(qos.clone()).schema(schema))?)
}

fn encoded(schema: &Schema, json: serde_json::Value) -> Result<Vec<u8>, Failure> {
    let broken = |error: String| Failure::Broken(error);
    let codec = helio_core::Codec::new(schema);
    let value = codec.value_from_json(&json).map_err(|error| broken(error.to_string()))?;
    let mut bytes = Vec::new();
    codec.encode(&value, &mut bytes).map_err(|error| broken(error.to_string()))?;
    Ok(bytes)
}

fn evolves(harness: &dyn Harness) -> Outcome {
    let old = record("conformance.Wind").field("speed", int()).schema()?;
    let new = record("conformance.Wind")
        .field("gust", nullable(double()))
        .default(serde_json::Value::Null)
        .field("speed", int())
        .schema()?;
    let (first, second) = (process(harness)?, process(harness)?);
    let name = unique("evolves");
    let old_topic = opened(&first, &name, &plain(), &old)?;
    let old_writer = old_topic.publisher()?;
    let latest = || Subscribe::from(Start::Latest);
    let mut old_reader = listening(harness, &old_topic, latest(), &old_writer)?;
    let new_topic = opened(&second, &name, &plain(), &new)?;
    let new_writer = new_topic.publisher()?;
    let mut new_reader = listening(harness, &new_topic, latest(), &new_writer)?;
    let mut raw = new_topic.subscribe(latest().as_written())?;
    while old_reader.next_timeout(harness.quiet_period())?.is_some() {}
    let by_old = encoded(&old, serde_json::json!({"speed": 7}))?;
    let by_new = encoded(&new, serde_json::json!({"gust": null, "speed": 8}))?;
    old_writer.publish(Message::new(&by_old)).wait()?;
    new_writer.publish(Message::new(&by_new)).wait()?;
    let in_old = [by_old.clone(), encoded(&old, serde_json::json!({"speed": 8}))?];
    let in_new = [encoded(&new, serde_json::json!({"gust": null, "speed": 7}))?, by_new.clone()];
    let asked = [(&mut old_reader, in_old, &old), (&mut new_reader, in_new, &new)];
    for (reader, expected, schema) in asked {
        let got = gather(harness, reader, 2)?.samples;
        for (sample, expected) in got.iter().zip(&expected) {
            ensure!(sample.payload == expected[..], "{:?} for {expected:?}", sample.payload);
            ensure!(sample.header.schema == schema.id(), "the schema is not the reader's");
        }
    }
    let got = gather(harness, &mut raw, 2)?.samples;
    let same = got[0].payload == by_old && got[1].payload == by_new;
    ensure!(same, "as written: received other bytes");
    ensure!(got[0].header.schema == old.id(), "as written: received another schema");
    Ok(())
}

fn incompatible(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let name = unique("incompatible");
    let wind = |field: &str, unit: &str| {
        record("conformance.Wind").field("mast", int()).field(field, double()).units(unit).schema()
    };
    let first = wind("speed", "m/s")?;
    opened(&bus, &name, &plain(), &first)?.publisher()?;
    for (schema, named) in [(wind("gust", "m/s")?, "speed"), (wind("speed", "km/h")?, "speed")] {
        match opened(&bus, &name, &plain(), &schema)?.publisher() {
            Err(error @ TopicError::Incompatible { .. }) => {
                let text = error.to_string();
                ensure!(text.contains(named), "the field {named} is not named: {text}");
            }
            other => ensure!(false, "an incompatible schema gave {other:?}"),
        }
    }
    opened(&bus, &name, &plain(), &first)?.publisher()?;
    let schemas = bus.topic_info(&name.parse()?)?.map(|info| info.schemas);
    ensure!(schemas == Some(vec![first.id()]), "the topic's schemas are {schemas:?}");
    Ok(())
}

/// A record whose fields have these names, all with a default.
fn fields(names: &[&str]) -> Result<Schema, SchemaError> {
    let add = |record: RecordSpec, name: &&str| record.field(name, int()).default(0);
    names.iter().fold(record("conformance.Wind"), add).schema()
}

fn policies(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let (less, more) = (fields(&["speed"])?, fields(&["speed", "gust"])?);
    let renamed = fields(&["velocity"])?;
    // Old and new schemas, and the policies that admit the new one. Readers of a removed field read
    // a 0 that was not written.
    let cases: [(&Schema, &Schema, &[Evolution]); 3] = [
        (&less, &more, &Evolution::ALL),
        (&more, &less, &[Evolution::None, Evolution::Backward]),
        (&less, &renamed, &[Evolution::None, Evolution::Backward]),
    ];
    for (old, new, passing) in cases {
        for policy in Evolution::ALL {
            let name = unique("policies");
            let spec =
                |schema| Ok::<_, Failure>(TopicSpec::new(&name)?.qos(plain()).schema(schema));
            bus.topic(spec(old)?)?.publisher()?;
            match other.topic(spec(new)?.evolution(policy))?.publisher() {
                Ok(_) => ensure!(passing.contains(&policy), "{policy} lets {new} pass"),
                Err(error @ TopicError::Incompatible { .. }) => {
                    ensure!(!passing.contains(&policy), "{policy} refuses {new}: {error}");
                    let text = error.to_string();
                    let named = text.contains(&name) && text.contains("field removed");
                    ensure!(named, "{policy}: topic or field is not named: {text}");
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn told_once(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let wind =
        |unit: &str| record("conformance.Wind").field("speed", double()).units(unit).schema();
    let (old, new) = (wind("m/s")?, wind("km/h")?);
    let name = unique("told-once");
    let spec = |schema| Ok::<_, Failure>(TopicSpec::new(&name)?.qos(plain()).schema(schema));
    let topic = bus.topic(spec(&old)?.evolution(Evolution::None))?;
    let publisher = topic.publisher()?;
    let mut samples = listening(harness, &topic, Subscribe::from(Start::Latest), &publisher)?;
    let newer = other.topic(spec(&new)?.evolution(Evolution::None))?.publisher()?;
    let each = Subscribe::from(Start::Latest).each_undecodable();
    // It opens although the newest schema cannot be read.
    let mut all = listening(harness, &topic, each, &publisher)?;
    while samples.next_timeout(harness.quiet_period())?.is_some() {}
    let value = encoded(&old, serde_json::json!({"speed": 7.5}))?;
    for _ in 0..3 {
        newer.publish(Message::new(&value)).wait()?;
    }
    publisher.publish(Message::new(&value)).wait()?;
    for (subscription, expected) in [(&mut samples, 1), (&mut all, 3)] {
        let mut told = 0;
        loop {
            match subscription.next_timeout(harness.timeout())? {
                Some(Event::Undecodable(of)) if of.schema == new.id() => {
                    told += 1;
                    let named = of.reason.contains("speed") && of.reason.contains("km/h");
                    ensure!(named, "neither field nor difference is named: {}", of.reason);
                }
                Some(Event::Sample(sample)) => {
                    ensure!(sample.payload == value[..], "received another sample");
                    break;
                }
                Some(_) => {}
                None => ensure!(false, "what can be read did not go on"),
            }
        }
        ensure!(told == expected, "{told} of 3 were reported");
        ensure!(subscription.stats().undecodable == 3, "{:?}", subscription.stats());
    }
    Ok(())
}

fn held(harness: &dyn Harness) -> Outcome {
    let (old, new) = (fields(&["speed", "gust"])?, fields(&["speed"])?);
    // The new schema resolves, with a gust of 0 that was not measured.
    let cases = [
        (None, false),
        (Some(Evolution::None), false),
        (Some(Evolution::Backward), false),
        (Some(Evolution::Forward), true),
        (Some(Evolution::Full), true),
    ];
    for (policy, refuses) in cases {
        let (bus, other) = (process(harness)?, process(harness)?);
        let name = unique("held");
        let spec = |schema| Ok::<_, Failure>(TopicSpec::new(&name)?.qos(plain()).schema(schema));
        let topic = bus.topic(policy.into_iter().fold(spec(&old)?, TopicSpec::evolution))?;
        topic.declare()?;
        let anybody = bus.topic(TopicSpec::new(&name)?)?.publisher()?;
        let latest = Subscribe::from(Start::Latest);
        let mut samples = listening(harness, &topic, latest, &anybody)?;
        while samples.next_timeout(harness.quiet_period())?.is_some() {}
        let newer = other.topic(spec(&new)?.evolution(Evolution::None))?.publisher()?;
        let value = encoded(&new, serde_json::json!({"speed": 7}))?;
        newer.publish(Message::new(&value)).wait()?;
        let told = await_event(harness, &mut samples, "the sample", |event| match event {
            Event::Sample(_) => Some(None),
            Event::Undecodable(told) => Some(Some(told.reason.clone())),
            _ => None,
        })?;
        ensure!(told.is_some() == refuses, "{policy:?}: {told:?}");
        let named = told.is_none_or(|told| told.contains("gust: field removed"));
        ensure!(named, "{policy:?}: the field is not named");
    }
    Ok(())
}

fn rolled_back(harness: &dyn Harness) -> Outcome {
    let wind =
        |unit: &str| record("conformance.Wind").field("speed", double()).units(unit).schema();
    let (old, new) = (wind("m/s")?, wind("km/h")?);
    for policy in Evolution::ALL.map(Some).into_iter().chain([None]) {
        let (bus, other) = (process(harness)?, process(harness)?);
        let name = unique("rolled-back");
        let spec = |schema| Ok::<_, Failure>(TopicSpec::new(&name)?.qos(plain()).schema(schema));
        let opened = || -> Result<Topic, Failure> {
            Ok(bus.topic(policy.into_iter().fold(spec(&old)?, TopicSpec::evolution))?)
        };
        drop(opened()?.publisher()?);
        drop(other.topic(spec(&new)?.evolution(Evolution::None))?.publisher()?);
        let publisher = opened()?.publisher()?;
        let latest = Subscribe::from(Start::Latest);
        let mut samples = listening(harness, &opened()?, latest, &publisher)?;
        let value = encoded(&old, serde_json::json!({"speed": 7.5}))?;
        publisher.publish(Message::new(&value)).wait()?;
        gather(harness, &mut samples, 1)?;
    }
    Ok(())
}

/// How many publishers start concurrently, each with its own schema.
const CONCURRENT_DECLARATIONS: usize = 4;

fn at_once(harness: &dyn Harness) -> Outcome {
    let name = unique("at-once");
    process(harness)?.topic(TopicSpec::new(&name)?.qos(plain()))?;
    let units = |n: usize| format!("unit {n}");
    let mut topics = Vec::new();
    for n in 0..CONCURRENT_DECLARATIONS {
        let schema = record("conformance.Wind").field("speed", double()).units(&units(n));
        topics.push(opened(&process(harness)?, &name, &plain(), &schema.schema()?)?);
    }
    let start = Barrier::new(CONCURRENT_DECLARATIONS);
    let open = |topic: &Topic| {
        start.wait();
        topic.publisher()
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = topics.iter().map(|topic| scope.spawn(|| open(topic))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut opened = 0;
    for outcome in outcomes {
        match outcome.map_err(|_| Failure::Broken("a thread panicked".to_owned()))? {
            Ok(_) => opened += 1,
            Err(TopicError::Incompatible { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let schemas = process(harness)?.topic_info(&name.parse()?)?.map(|info| info.schemas.len());
    ensure!((opened, schemas) == (1, Some(1)), "{opened} opened, {schemas:?} are listed");
    Ok(())
}

fn bad_bytes(harness: &dyn Harness) -> Outcome {
    let bus = process(harness)?;
    let old = record("conformance.Text").field("text", string()).schema()?;
    let new = record("conformance.Text")
        .field("text", string())
        .field("more", long())
        .default(1)
        .schema()?;
    let name = unique("bad-bytes");
    let topic = opened(&bus, &name, &plain(), &old)?;
    let publisher = topic.publisher()?;
    let reading = opened(&bus, &name, &plain(), &new)?;
    let mut samples = listening(harness, &reading, Subscribe::from(Start::Latest), &publisher)?;
    let good = encoded(&old, serde_json::json!({"text": "fine"}))?;
    // Too long, empty, of an unknown schema, without a schema.
    let unknown = SchemaId(0xdead_beef);
    let bad = [
        Message::new(b"\xfe\xff\xff\x0fx"),
        Message::new(b""),
        Message::new(&good).schema(unknown),
        Message::new(&good).schema(SchemaId::BYTES),
    ];
    let before = samples.stats();
    for (n, message) in bad.into_iter().enumerate() {
        publisher.publish(message).wait()?;
        let what = format!("the bad sample {n}");
        let reason = await_event(harness, &mut samples, &what, |event| match event {
            Event::Undecodable(told) => Some(told.reason.clone()),
            _ => None,
        })?;
        ensure!(!reason.is_empty(), "the reason is empty");
    }
    publisher.publish(Message::new(&good)).wait()?;
    gather(harness, &mut samples, 1)?;
    let stats = samples.stats();
    let (bad, lost) = (stats.undecodable - before.undecodable, stats.lost);
    ensure!((bad, lost) == (4, 0), "{stats:?}");
    Ok(())
}

fn is_kept(harness: &dyn Harness) -> Outcome {
    let (bus, other) = (process(harness)?, process(harness)?);
    let schema = Everything::schema()?;
    let name = unique("kept");
    opened(&bus, &name, &plain(), &schema)?.publisher()?;
    let text = other.schema(schema.id())?;
    let text = text.ok_or(Failure::Broken("its text is missing".to_owned()))?;
    ensure!(Schema::parse(&text)? == schema, "another schema's text is there: {text}");
    ensure!(SchemaText::from(&schema).id == schema.id(), "the identity differs");
    let none = other.schema(SchemaId(1))?;
    ensure!(none.is_none(), "an unknown schema has a text: {none:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use helio_core::schema::HasSchema;

    use super::*;

    /// `has_schema!` takes the wire's field names from Rust's.
    #[test]
    fn the_schema_of_every_type_is_golden() {
        let text = r#"{"name":"conformance.Everything","type":"record","fields":[
            {"name":"flag","type":"boolean"},
            {"name":"small","type":"int"},
            {"name":"large","type":"long"},
            {"name":"single","type":"float"},
            {"name":"double","type":"double"},
            {"name":"text","type":"string"},
            {"name":"maybe","type":["null","double"]},
            {"name":"numbers","type":{"type":"array","items":"float"}},
            {"name":"names","type":{"type":"array","items":"string"}},
            {"name":"table","type":{"type":"map","values":"long"}},
            {"name":"nested","type":{"type":"array","items":
                {"name":"conformance.Inner","type":"record","fields":[
                    {"name":"index","type":"int"},
                    {"name":"value","type":["null","string"]}]}}}]}"#;
        let text: String = text.split_whitespace().collect();
        assert_eq!(Everything::schema().unwrap().canonical_form(), text);
    }
}
