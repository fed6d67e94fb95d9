//! DDS without and with a durability service, as far as it is quick.

use helio_bus::{Bus, Qos, TopicSpec};
use helio_core::schema::Schema;
use serde_json::{Value, json};

use crate::dds::domain;
use crate::support::run;

#[test]
fn topics_say_how_they_are_carried() {
    helio_dds::register();
    let url = format!("dds://{}?interface=lo&multicast=false", domain());
    let bus = Bus::connect(&url).unwrap();
    let topic = |name: &str| TopicSpec::new(name).unwrap().qos(Qos::telemetry());
    let text = r#"{"type": "record", "name": "obs.Wind", "fields": [
        {"name": "speed", "type": "double"}]}"#;
    let typed = bus.topic(topic("site/wind").schema(Schema::parse(text).unwrap())).unwrap();
    typed.declare().unwrap();
    let _raw = bus.topic(topic("site/raw")).unwrap();
    let lines = run(&["topics", "--json", "--url", &url]).lines();
    let carried: Vec<_> =
        lines.iter().map(|line| (&line["topic"], &line["carried"], &line["type"])).collect();
    let (raw, wind) = (json!("site/raw"), json!("site/wind"));
    let (enveloped, as_typed, of) = (json!("enveloped"), json!("typed"), json!("obs::Wind"));
    assert_eq!(carried, [(&raw, &enveloped, &Value::Null), (&wind, &as_typed, &of)]);
    let table = run(&["topics", "--url", &url]).ok();
    let rows: Vec<_> = table.lines().map(str::trim_end).collect();
    assert!(rows[0].ends_with("carried"), "{table}");
    assert!(rows[1].ends_with("enveloped") && rows[2].ends_with("typed obs::Wind"), "{table}");
}

#[test]
fn it_wants_a_domain() {
    let ran = run(&["dds", "durability", "--dir", "/nowhere", "--url", "memory:"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("--url dds://0"), "{ran:?}");
}
