//! Topics that are deleted, purged and altered under those that have them open.

use std::time::Duration;

use crate::support::HANG_TIMEOUT;
use helio_bus::{
    Bus, Message, PublishError, Qos, ReadError, Start, Subscribe, TopicError, TopicName, TopicSpec,
    TransportError,
};
use helio_core::qos::{Guarantee, Retention};

/// Two connections to one journal, as two processes have.
fn buses(folder: &tempfile::TempDir) -> [Bus; 2] {
    let url = format!("journal:{}", folder.path().display());
    ["one", "two"].map(|name| Bus::builder().producer(name).connect(&url).unwrap())
}

fn wind(qos: Qos) -> TopicSpec {
    TopicSpec::new("wind").unwrap().qos(qos)
}

fn name() -> TopicName {
    TopicName::new("wind").unwrap()
}

#[test]
fn handles_of_a_deleted_topic_fail_and_the_bus_opens_the_next_one() {
    type Remove = fn(&Bus, &TopicName) -> Result<bool, TransportError>;
    for remove in [Bus::remove_topic as Remove, Bus::purge_topic] {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = buses(&folder);
        let topic = one.topic(wind(Qos::telemetry())).unwrap();
        let publisher = topic.publisher().unwrap();
        publisher.publish(Message::new(b"1")).wait().unwrap();
        let mut samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(|| samples.next_timeout(HANG_TIMEOUT));
            assert!(remove(&two, &name()).unwrap());
            reader.join().unwrap()
        });
        let gone = |error: &TransportError| matches!(error, TransportError::TopicGone { .. });
        assert!(matches!(&read, Err(ReadError::Transport(error)) if gone(error)), "{read:?}");
        for guarantee in [Guarantee::Stored, Guarantee::Durable] {
            let message = Message::new(b"2").guarantee(guarantee);
            let refused = publisher.publish(message).wait().unwrap_err();
            assert!(matches!(&refused, PublishError::Transport(e) if gone(e)), "{refused}");
        }
        // The former handles are still there.
        let next = one.topic(wind(Qos::telemetry())).unwrap();
        next.publisher().unwrap().publish(Message::new(b"3")).wait().unwrap();
        let info = two.topic_info(&name()).unwrap().unwrap();
        assert_eq!((info.partitions[0].first, info.partitions[0].end), (0, 1));
    }
}

#[test]
fn limits_are_no_part_of_a_topic_s_identity() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = buses(&folder);
    let former = Retention {
        bytes: Some(64 << 20),
        age: Some(Duration::from_secs(3600)),
        last_value: true,
        default: false,
    };
    // The profile of earlier releases.
    let topic = one.topic(wind(Qos { retention: former.clone(), ..Qos::telemetry() })).unwrap();
    assert_eq!(two.topic(wind(Qos::telemetry())).unwrap().qos().retention, former);
    let forgets = Retention { last_value: false, ..former.clone() };
    let refused = two.topic(wind(Qos { retention: forgets, ..Qos::telemetry() })).unwrap_err();
    let differs = |error: &TopicError| {
        matches!(error, TopicError::Transport(TransportError::Differs { field, .. })
            if field == "retention")
    };
    assert!(differs(&refused), "{refused}");
    let shorter = Retention { age: Some(Duration::from_secs(60)), ..former };
    assert!(two.alter_topic(&name(), &shorter).unwrap());
    assert_eq!(one.topic_info(&name()).unwrap().unwrap().qos.retention, shorter);
    // Handles that are open stay usable.
    topic.publisher().unwrap().publish(Message::new(b"1")).wait().unwrap();
    assert!(!two.alter_topic(&TopicName::new("no").unwrap(), &shorter).unwrap());
    let memory = Bus::connect("memory:").unwrap();
    let unsupported = memory.alter_topic(&name(), &shorter).unwrap_err().to_string();
    assert!(unsupported.contains("memory cannot alter a topic"), "{unsupported}");
}
