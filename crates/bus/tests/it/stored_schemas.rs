//! Texts of schemas that are edited or missing in a journal's folder.

use std::path::PathBuf;

use helio_bus::{
    Bus, Event, Evolution, Message, Qos, SchemaText, Start, Subscribe, Subscription, Topic,
    TopicError, TopicSpec, TransportError,
};
use helio_core::Schema;

/// A schema of a wind's speed and perhaps more.
fn wind(more: &str) -> SchemaText {
    let field = r#"{"name":"speed","type":"double","units":"m/s"}"#;
    let text = format!(r#"{{"type":"record","name":"Wind","fields":[{field}{more}]}}"#);
    SchemaText { id: Schema::parse(&text).unwrap().id(), text: text.into() }
}

struct Site {
    folder: tempfile::TempDir,
    bus: Bus,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bus = Bus::connect(&format!("journal:{}", folder.path().display())).unwrap();
        Self { folder, bus }
    }

    fn file(&self, schema: &SchemaText) -> PathBuf {
        self.folder.path().join(format!("schemas/{}.avsc", schema.id))
    }

    fn topic(&self, schema: &SchemaText) -> Topic {
        let spec = TopicSpec::new("wind").unwrap().qos(Qos::stream());
        self.bus.topic(spec.schema(schema.clone())).unwrap()
    }
}

/// Reads what is there: the number of samples, and the reasons of those that cannot be read.
fn read(samples: &mut Subscription) -> (usize, Vec<String>) {
    let (mut read, mut unread) = (0, Vec::new());
    while let Some(event) = samples.try_next().unwrap() {
        match event {
            Event::Sample(_) => read += 1,
            Event::Undecodable(sample) => unread.push(sample.reason),
            other => panic!("{other:?}"),
        }
    }
    (read, unread)
}

#[test]
fn samples_of_an_edited_schema_are_reported_until_a_publisher_mends_it() {
    let site = Site::new();
    let metric = wind("");
    let later = wind(r#",{"name":"gust","type":"double","default":0}"#);
    let publisher = site.topic(&metric).publisher().unwrap();
    let publish = |n: usize| {
        for _ in 0..n {
            publisher.publish(Message::new(&7.5_f64.to_le_bytes())).wait().unwrap();
        }
    };
    publish(3);
    let edited = metric.text.replace("m/s", "km/h");
    std::fs::write(site.file(&metric), edited).unwrap();
    let other = Bus::connect(&format!("journal:{}", site.folder.path().display())).unwrap();
    assert!(other.schema(metric.id).unwrap_err().to_string().contains("was edited"));
    // The reader's own schema is another one: the writer's is needed.
    let spec = TopicSpec::new("wind").unwrap().schema(later);
    let topic = other.topic(spec.evolution(Evolution::None)).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest).each_undecodable()).unwrap();
    let (seen, reasons) = read(&mut samples);
    assert_eq!((seen, reasons.len()), (0, 3));
    let file = site.file(&metric).display().to_string();
    assert!(reasons.iter().all(|reason| reason.contains(&file)), "{reasons:?}");
    // The remedy that the message names.
    let again = Bus::builder().producer("again");
    let again = again.connect(&format!("journal:{}", site.folder.path().display())).unwrap();
    let spec = TopicSpec::new("wind").unwrap().schema(metric.clone());
    drop(again.topic(spec).unwrap().publisher().unwrap());
    assert_eq!(other.schema(metric.id).unwrap().as_deref(), Some(&*metric.text));
    publish(4);
    // It is looked up at increasing intervals: with the first, second, fourth, ... sample.
    let (seen, reasons) = read(&mut samples);
    assert_eq!((seen, reasons.len()), (3, 1));
}

#[test]
fn an_error_of_the_folder_costs_no_sample_after_it() {
    let site = Site::new();
    let metric = wind("");
    let publisher = site.topic(&metric).publisher().unwrap();
    for _ in 0..8 {
        publisher.publish(Message::new(&7.5_f64.to_le_bytes())).wait().unwrap();
    }
    let other = Bus::connect(&format!("journal:{}", site.folder.path().display())).unwrap();
    let spec = TopicSpec::new("wind").unwrap();
    let spec = spec.schema(wind(r#",{"name":"gust","type":"double","default":0}"#));
    let topic = other.topic(spec).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest).each_undecodable()).unwrap();
    // A folder can be opened and not read, as a file on a disk with errors.
    let (file, aside) = (site.file(&metric), site.folder.path().join("schemas/aside"));
    std::fs::rename(&file, &aside).unwrap();
    std::fs::create_dir(&file).unwrap();
    for _ in 0..3 {
        let event = samples.try_next().unwrap();
        assert!(matches!(event, Some(Event::Undecodable(_))), "{event:?}");
    }
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&aside, &file).unwrap();
    assert_eq!(read(&mut samples), (5, Vec::new()));
}

#[test]
fn a_missing_schema_is_named_with_a_remedy() {
    let site = Site::new();
    let metric = wind("");
    let publisher = site.topic(&metric).publisher().unwrap();
    publisher.publish(Message::new(&7.5_f64.to_le_bytes())).wait().unwrap();
    std::fs::remove_file(site.file(&metric)).unwrap();
    let error = site.bus.schema_text(metric.id).unwrap_err();
    assert!(matches!(error, TransportError::NoSchema { schema } if schema == metric.id));
    let text = error.to_string();
    assert!(text.contains(&metric.id.to_string()) && text.contains("publisher"), "{text}");
    drop(site.topic(&metric).publisher().unwrap());
    assert_eq!(site.bus.schema_text(metric.id).unwrap().text, metric.text);
}

#[test]
fn without_a_policy_no_text_of_another_schema_is_needed() {
    let site = Site::new();
    let metric = wind("");
    let later = wind(r#",{"name":"gust","type":"double","default":0}"#);
    let publisher = site.topic(&metric).publisher().unwrap();
    publisher.publish(Message::new(&7.5_f64.to_le_bytes())).wait().unwrap();
    std::fs::write(site.file(&metric), metric.text.replace("m/s", "km/h")).unwrap();
    let other = Bus::connect(&format!("journal:{}", site.folder.path().display())).unwrap();
    let spec = TopicSpec::new("wind").unwrap().schema(later.clone());
    let error = other.topic(spec.clone()).unwrap().publisher().unwrap_err();
    let TopicError::Transport(TransportError::SchemaEdited { schema, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(schema, metric.id);
    let topic = other.topic(spec.evolution(Evolution::None)).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    topic.declare().unwrap();
    let declared = other.schemas_of(&"wind".parse().unwrap()).unwrap().unwrap();
    assert_eq!(declared, [metric.id, later.id]);
    let (seen, reasons) = read(&mut samples);
    assert_eq!((seen, reasons.len()), (0, 1));
}
