//! Writers alone: which of the two DDS topics their samples use.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use helio_bus::transport::{Opening, Record, Transport, Writer as _};
use helio_bus::{Clock, Guarantee, PublishError, Qos, SystemClock, TestClock, TopicName};
use helio_core::{HeadersRef, Producer, ProducerName, Schema, SchemaId, Tai};

use super::DdsWriter;
use crate::announcements::{Announcement, hex};
use crate::connection::Connection;
use crate::options::Options;
use crate::topic::TopicState;
use crate::transport::DdsTransport;

const NOTE_SCHEMA: &str = r#"{"type": "record", "name": "obs.Note", "fields": [
    {"name": "text", "type": "string"}]}"#;

fn topic(name: &str, qos: &Qos, clock: Arc<dyn Clock>) -> Arc<TopicState> {
    let domain = crate::test_domain::domain();
    let url = format!("dds://{domain}?interface=lo&multicast=false").parse().unwrap();
    let opening = Opening { url, clock };
    let connection = Connection::open(&Options::parse(&opening).unwrap(), &opening.clock).unwrap();
    let (dds, name) = (DdsTransport::new(connection), name.parse::<TopicName>().unwrap());
    dds.create_topic(&name, qos).unwrap();
    dds.state(&name).unwrap().unwrap()
}

fn writer(topic: &Arc<TopicState>) -> DdsWriter {
    let producer = Producer { name: ProducerName::new("Mount").unwrap(), incarnation: 1 };
    DdsWriter::open_as(topic, 0, producer, false).unwrap()
}

/// Another session declares the topic's first schema, and the writer adopts it.
fn declare(topic: &TopicState, writer: &DdsWriter) -> SchemaId {
    let (id, announcements) =
        (Schema::parse(NOTE_SCHEMA).unwrap().id(), &topic.connection.announcements);
    let (schema, name) = (hex(id), topic.name.clone());
    announcements.with_state(|state| state.put_text(id, NOTE_SCHEMA));
    let origin = announcements.origin();
    announcements
        .announce(Announcement::TopicSchema { topic: name, schema, after: 0, origin })
        .unwrap();
    writer.shared.endpoints.adopt_schema(topic).unwrap();
    id
}

fn publish(writer: &mut DdsWriter, schema: SchemaId, text: &str) -> Result<(), PublishError> {
    let mut payload = vec![u8::try_from(text.len() * 2).unwrap()];
    payload.extend_from_slice(text.as_bytes());
    let record = Record {
        key: b"",
        payload: &payload,
        time: Tai::from_unix_nanos(1),
        schema,
        level: 0,
        trace: None,
        headers: HeadersRef::EMPTY,
    };
    writer.publish(&record, Guarantee::Accepted).map(drop)
}

fn topic_sequences(writer: &DdsWriter) -> [u64; 2] {
    writer.shared.position().unwrap().topic_sequences
}

#[test]
fn a_typed_end_is_used_when_it_has_met_its_readers() {
    let topic = topic("met", &Qos::command(), Arc::new(SystemClock::new()));
    let mut writer = writer(&topic);
    let schema = declare(&topic, &writer);
    assert!(writer.shared.endpoints.unmatched().is_some());
    publish(&mut writer, schema, "first").unwrap();
    assert_eq!(topic_sequences(&writer), [1, 0]);
    writer.shared.await_match().unwrap();
    publish(&mut writer, schema, "second").unwrap();
    assert_eq!(topic_sequences(&writer), [1, 2]);
}

#[test]
fn late_joiners_do_not_wait_for_what_has_expired_on_one_of_both_ways() {
    let clock = TestClock::new(Tai::from_unix_nanos(1));
    let qos = Qos { lifespan: Some(Duration::from_secs(10)), ..Qos::telemetry() };
    let topic = topic("expires", &qos, Arc::new(clock.clone()));
    let mut writer = writer(&topic);
    let schema = declare(&topic, &writer);
    publish(&mut writer, schema, "first").unwrap();
    writer.shared.await_match().unwrap();
    clock.advance(Duration::from_secs(6));
    publish(&mut writer, schema, "second").unwrap();
    assert_eq!(topic_sequences(&writer), [1, 2]);
    clock.advance(Duration::from_secs(6));
    assert_eq!(topic_sequences(&writer), [0, 2]);
}

#[test]
fn what_was_taken_before_its_type_was_known_is_sent_again_as_it_was() {
    let topic = topic("kept", &Qos::event(), Arc::new(SystemClock::new()));
    let mut writer = writer(&topic);
    let schema = Schema::parse(NOTE_SCHEMA).unwrap().id();
    // No IDL type can hold this text; an envelope can.
    publish(&mut writer, schema, "a\0b").unwrap();
    assert_eq!(declare(&topic, &writer), schema);
    writer.shared.await_match().unwrap();
    writer.shared.send_again(0);
    publish(&mut writer, schema, "good").unwrap();
    assert_eq!(topic_sequences(&writer), [1, 2]);
    let refused = publish(&mut writer, schema, "a\0b");
    assert!(matches!(refused, Err(PublishError::Encode(_))), "{refused:?}");
    publish(&mut writer, schema, "good").unwrap();
}
