//! A topic's quality of service as Kafka's configuration, and back for topics of other programs.

use std::collections::HashMap;
use std::time::Duration;

use helio_bus::Qos;
use helio_core::qos::{Durability, Guarantee, History, Overload, Retention};
use helio_core::sal::TopicKind;

use crate::client::options::MAX_RECORD_BYTES;

/// The smallest segment that brokers allow. Records beyond a topic's retention are removed by
/// segments, and never from the newest one.
const MIN_SEGMENT_BYTES: u64 = 1 << 20;
/// The largest segment: the brokers' default.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// The segments of companions: late joiners read replaced records until their segment is full, and
/// is compacted.
const COMPANION_SEGMENT_BYTES: u64 = 16 << 20;

pub(crate) type Config = Vec<(&'static str, String)>;

/// The configuration of a topic with this quality of service.
pub(crate) fn of(qos: &Qos) -> Config {
    let Retention { bytes, age, .. } = qos.retention;
    let millis = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let segment = bytes.unwrap_or(u64::MAX) / 4;
    let mut config = common();
    config.extend([
        ("cleanup.policy", "delete".to_owned()),
        ("retention.bytes", bytes.map_or(-1, |n| i64::try_from(n).unwrap_or(-1)).to_string()),
        ("retention.ms", age.map_or(-1, millis).to_string()),
        ("segment.bytes", segment.clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES).to_string()),
    ]);
    if let Some(age) = age {
        // Age is applied by segments too.
        let roll = (millis(age) / 4).clamp(1_000, millis(Duration::from_secs(7 * 24 * 3600)));
        config.push(("segment.ms", roll.to_string()));
    }
    config
}

/// The configuration of a SAL topic, as SAL creates it: the newest event of each key is kept,
/// everything else is the brokers' default.
pub(crate) fn sal(kind: TopicKind) -> Config {
    match kind {
        TopicKind::Event => vec![("cleanup.policy", "compact".to_owned())],
        _ => Vec::new(),
    }
}

/// The configuration of a topic's companion.
pub(crate) fn companion() -> Config {
    let mut config = table();
    config.extend([
        ("segment.bytes", COMPANION_SEGMENT_BYTES.to_string()),
        ("min.cleanable.dirty.ratio", "0.1".to_owned()),
    ]);
    config
}

/// The configuration of the internal topics.
pub(crate) fn table() -> Config {
    let mut config = common();
    config.push(("cleanup.policy", "compact".to_owned()));
    config
}

fn common() -> Config {
    vec![
        ("max.message.bytes", MAX_RECORD_BYTES.to_string()),
        // Timestamps are the senders', independent of the brokers' clocks.
        ("message.timestamp.type", "CreateTime".to_owned()),
        ("message.timestamp.after.max.ms", i64::MAX.to_string()),
        ("message.timestamp.before.max.ms", i64::MAX.to_string()),
    ]
}

/// The configuration of the producers' table, which is written all the time: compacted often.
pub(crate) fn words() -> Config {
    let mut config = table();
    config.extend([
        ("segment.bytes", MIN_SEGMENT_BYTES.to_string()),
        ("min.cleanable.dirty.ratio", "0.1".to_owned()),
    ]);
    config
}

/// Whether a topic has a companion.
pub(crate) fn has_companion(qos: &Qos) -> bool {
    qos.retention.last_value || matches!(qos.history, History::KeepLast(_))
}

/// The quality of service of a topic without a declaration, from its configuration.
pub(crate) fn foreign(config: &HashMap<String, String>, partitions: u32) -> Qos {
    let number = |name: &str| config.get(name).and_then(|value| value.parse::<u64>().ok());
    let compacted = config.get("cleanup.policy").is_some_and(|p| p.contains("compact"));
    let deleted = config.get("cleanup.policy").is_none_or(|p| p.contains("delete"));
    let limit = |name: &str| number(name).filter(|_| deleted);
    Qos {
        durability: Durability::Persistent,
        history: History::KeepAll,
        overload: Overload::Block,
        retention: Retention {
            bytes: limit("retention.bytes"),
            age: limit("retention.ms").map(Duration::from_millis),
            last_value: compacted,
            default: false,
        },
        guarantee: Guarantee::Stored,
        partitions,
        ..Qos::stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(config: &'a Config, name: &str) -> Option<&'a str> {
        let found = config.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.as_str())
    }

    #[test]
    fn retention_goes_to_kafka() {
        let telemetry = of(&Qos::telemetry());
        assert_eq!(value(&telemetry, "retention.bytes"), Some("-1"));
        assert_eq!(value(&telemetry, "segment.bytes"), Some("1073741824"));
        assert_eq!(value(&telemetry, "retention.ms"), Some("604800000"));
        assert_eq!(value(&telemetry, "segment.ms"), Some("151200000"));
        let state = of(&Qos::state());
        assert_eq!(value(&state, "retention.bytes"), Some("-1"));
        assert_eq!(value(&state, "retention.ms"), Some("-1"));
        assert_eq!(value(&state, "segment.bytes"), Some("1073741824"));
        let qos = Qos {
            retention: Retention { bytes: Some(10), age: None, last_value: false, default: false },
            ..Qos::stream()
        };
        assert_eq!(value(&of(&qos), "segment.bytes"), Some("1048576"));
    }

    #[test]
    fn promises_of_last_values_have_a_companion() {
        for (qos, has) in [
            (Qos::telemetry(), true),
            (Qos::event(), true),
            (Qos::state(), true),
            (Qos::command(), false),
            (Qos::stream(), false),
        ] {
            assert_eq!(has_companion(&qos), has);
        }
    }

    #[test]
    fn what_others_made_is_read_off() {
        let config = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let plain = config(&[
            ("cleanup.policy", "delete"),
            ("retention.ms", "604800000"),
            ("retention.bytes", "-1"),
        ]);
        let qos = foreign(&plain, 3);
        assert_eq!(qos.partitions, 3);
        assert_eq!(qos.retention.bytes, None);
        assert_eq!(qos.retention.age, Some(Duration::from_secs(604_800)));
        assert!(!qos.retention.last_value);
        let event = config(&[("cleanup.policy", "compact"), ("retention.ms", "604800000")]);
        let qos = foreign(&event, 1);
        assert_eq!((qos.retention.age, qos.retention.last_value), (None, true));
    }
}
