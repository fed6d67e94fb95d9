//! Texts of schemas that are edited in the folder of the source or of the target.

use std::path::{Path, PathBuf};

use helio_bus::{Bus, Event, Message, Publisher, Qos, SchemaText, TopicSpec};
use helio_core::Schema;

use crate::support::*;

const TOPIC: &str = "site/wind";

fn wind(more: &str) -> SchemaText {
    let text = format!(
        r#"{{"type":"record","name":"Wind","fields":[{{"name":"speed","type":"double"}}{more}]}}"#
    );
    SchemaText { id: Schema::parse(&text).unwrap().id(), text: text.into() }
}

fn connect(folder: &Path) -> Bus {
    Bus::connect(&format!("journal:{}", folder.display())).unwrap()
}

fn file(folder: &Path, schema: &SchemaText) -> PathBuf {
    folder.join(format!("schemas/{}.avsc", schema.id))
}

fn edit(folder: &Path, schema: &SchemaText) {
    std::fs::write(file(folder, schema), schema.text.replace("speed", "edited")).unwrap();
}

fn writer(bus: &Bus, schema: &SchemaText) -> Publisher {
    let spec = TopicSpec::new(TOPIC).unwrap().qos(Qos::stream());
    bus.topic(spec.schema(schema.clone())).unwrap().publisher().unwrap()
}

fn write(publisher: &Publisher, values: &[f64]) {
    let payload: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    publisher.publish(Message::new(&payload)).wait().unwrap();
}

/// The schemas of the samples.
fn schemas(bus: &Bus) -> Vec<helio_bus::SchemaId> {
    let mut samples = everything(bus, TOPIC);
    let events = std::iter::from_fn(|| samples.try_next().unwrap());
    events.filter_map(Event::into_sample).map(|sample| sample.header.schema).collect()
}

#[test]
fn a_text_edited_on_the_target_delays_no_other_schema() {
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let from = connect(here.path());
    let (old, new) = (wind(""), wind(r#",{"name":"gust","type":"double","default":0}"#));
    write(&writer(&from, &old), &[1.0]);
    let mut first = bridge(&from, &connect(there.path()));
    forwarded(&mut first, 1);
    assert!(first.finish(TIMEOUT));
    edit(there.path(), &old);
    // The old schema is carried first otherwise, which replaces its text.
    edit(here.path(), &old);
    drop(from);
    let [from, to] = [here.path(), there.path()].map(connect);
    assert!(from.schema(old.id).is_err() && to.schema(old.id).is_err());
    let spec = TopicSpec::new(TOPIC).unwrap().schema(new.clone());
    let topic = from.topic(spec.evolution(helio_bus::Evolution::None)).unwrap();
    write(&topic.publisher().unwrap(), &[2.0, 3.0]);
    forwarded(&mut bridge(&from, &to), 1);
    assert_eq!(schemas(&to), [old.id, new.id]);
    assert_eq!(to.schemas_of(&TOPIC.parse().unwrap()).unwrap().unwrap(), [old.id, new.id]);
    assert_eq!(to.schema(new.id).unwrap().as_deref(), Some(&*new.text));
}

#[test]
fn a_text_edited_on_the_source_delays_no_sample() {
    let folder = tempfile::tempdir().unwrap();
    let from = connect(folder.path());
    let schema = wind("");
    let publisher = writer(&from, &schema);
    write(&publisher, &[1.0]);
    edit(folder.path(), &schema);
    let from = connect(folder.path());
    let to = Bus::connect("memory:").unwrap();
    forwarded(&mut bridge(&from, &to), 1);
    assert_eq!(schemas(&to), [schema.id]);
    assert_eq!(to.schema(schema.id).unwrap(), None);
}

#[test]
fn a_text_that_is_not_its_schemas_delays_no_sample() {
    let (from, folder) = (Bus::connect("memory:").unwrap(), tempfile::tempdir().unwrap());
    let to = connect(folder.path());
    let publisher = publisher(&from, TOPIC, "Mast", stream());
    let ids = [helio_bus::SchemaId(7), helio_bus::SchemaId(8)];
    for (id, text) in ids.into_iter().zip(["{", &wind("").text]) {
        from.put_schema(&SchemaText { id, text: text.into() }).unwrap();
        publisher.publish(Message::new(b"1").schema(id)).wait().unwrap();
    }
    forwarded(&mut bridge(&from, &to), 2);
    assert_eq!(schemas(&to), ids);
    assert!(ids.into_iter().all(|id| to.schema(id).unwrap().is_none()));
}
