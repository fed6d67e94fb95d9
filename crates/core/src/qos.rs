//! Quality of service: what a topic needs, in DDS's words, as a value.
//!
//! Six profiles cover the usual cases; each field may be overridden. A transport that cannot do
//! what a topic names refuses to open it (see the bus), never does silently less.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Whether samples may be lost between publisher and subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reliability {
    /// Losses are possible, and counted.
    BestEffort,
    /// Everything a publish was acknowledged for is delivered or reported as a gap.
    Reliable,
}

/// What outlives what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Late joiners may get nothing.
    Volatile,
    /// Late joiners get the history that the topic promises, while the engine runs.
    TransientLocal,
    /// The history outlives writers and power (synced in the background, see [`Guarantee`]).
    Persistent,
}

/// What a late joiner is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// Nothing: only what is published after it joined.
    None,
    /// The newest `n` samples of each key (1 to 255).
    KeepLast(u8),
    /// Everything within the retention.
    KeepAll,
}

/// Who may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ownership {
    /// Any number of producers.
    Shared,
    /// One producer name has at most one live incarnation; a second live writer of that topic is
    /// refused.
    Exclusive,
}

/// What happens where a queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overload {
    /// The publisher waits (never on an event loop).
    Block,
    /// The subscriber loses its oldest samples, counted.
    DropOldest,
    /// The newest sample is dropped, counted.
    DropNewest,
    /// The publish is refused with an error.
    Refuse,
    /// The lowest levels are dropped first, counted by level.
    ShedByLevel,
}

/// What a publish waits for, and what its receipt then promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// The transport took it; no promise.
    Accepted,
    /// It survives the death of any process of ours (the journal: the kernel has it).
    Stored,
    /// It survives power loss (the journal: fdatasync; elsewhere: acknowledged by the engine).
    Durable,
}

/// What is kept, and until when. All limits hold together; `None` is no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// The most bytes a partition keeps.
    pub bytes: Option<u64>,
    /// The longest a sample is kept.
    pub age: Option<Duration>,
    /// Whether the newest sample of each key is kept for ever, whatever the limits.
    pub last_value: bool,
}

/// How a writer shows that it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveliness {
    /// The transport notices by itself when a writer's process dies.
    Automatic,
    /// The writer publishes or asserts within this lease, or counts as dead.
    Lease(Duration),
}

/// A topic's quality of service.
///
/// In JSON that an older version wrote, a field that did not exist yet has the value of
/// [`Qos::telemetry`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default = "Qos::telemetry")]
pub struct Qos {
    /// Whether samples may be lost.
    pub reliability: Reliability,
    /// What outlives what.
    pub durability: Durability,
    /// What a late joiner is promised.
    pub history: History,
    /// Who may write.
    pub ownership: Ownership,
    /// What happens where a queue is full.
    pub overload: Overload,
    /// What is kept.
    pub retention: Retention,
    /// What a publish waits for unless it says otherwise.
    pub guarantee: Guarantee,
    /// How a writer shows that it is alive.
    pub liveliness: Liveliness,
    /// The longest time between two samples of a key; a miss is an event at the subscriber.
    pub deadline: Option<Duration>,
    /// How long a sample is worth reading; older ones are dropped at the subscriber, counted.
    pub lifespan: Option<Duration>,
    /// Number of partitions (1 to 1,024); order holds within one, and a key stays in one.
    pub partitions: u32,
}

const MIB: u64 = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);

impl Qos {
    /// Measured values at a regular rate: the newest of each key for late joiners, a short past.
    #[must_use]
    pub fn telemetry() -> Self {
        Self {
            reliability: Reliability::Reliable,
            durability: Durability::TransientLocal,
            history: History::KeepLast(1),
            ownership: Ownership::Shared,
            overload: Overload::DropOldest,
            retention: Retention { bytes: Some(64 * MIB), age: Some(HOUR), last_value: true },
            guarantee: Guarantee::Stored,
            liveliness: Liveliness::Automatic,
            deadline: None,
            lifespan: None,
            partitions: 1,
        }
    }

    /// Changes of state: kept by time, and the newest of each key for ever.
    #[must_use]
    pub fn event() -> Self {
        Self {
            durability: Durability::Persistent,
            overload: Overload::Block,
            retention: Retention { bytes: None, age: Some(30 * 24 * HOUR), last_value: true },
            ..Self::telemetry()
        }
    }

    /// Requests to one component: no history for late joiners; what was sent is kept for audit.
    #[must_use]
    pub fn command() -> Self {
        Self {
            durability: Durability::Volatile,
            history: History::None,
            overload: Overload::Refuse,
            retention: Retention { bytes: None, age: Some(30 * 24 * HOUR), last_value: false },
            ..Self::telemetry()
        }
    }

    /// A sequence that is worth keeping whole, within a number of bytes.
    #[must_use]
    pub fn stream() -> Self {
        Self {
            durability: Durability::Persistent,
            history: History::KeepAll,
            overload: Overload::Block,
            retention: Retention { bytes: Some(4096 * MIB), age: None, last_value: false },
            ..Self::telemetry()
        }
    }

    /// Log records: kept whole, shed by level under overload.
    #[must_use]
    pub fn log() -> Self {
        Self {
            overload: Overload::ShedByLevel,
            retention: Retention { bytes: Some(1024 * MIB), age: None, last_value: false },
            ..Self::stream()
        }
    }

    /// Key-value revisions: kept until their owner compacts them; a publish waits for *durable*.
    #[must_use]
    pub fn state() -> Self {
        Self {
            ownership: Ownership::Exclusive,
            guarantee: Guarantee::Durable,
            retention: Retention { bytes: None, age: None, last_value: true },
            ..Self::stream()
        }
    }

    /// The profile of that name, as the command line and Python have it.
    #[must_use]
    pub fn profile(name: &str) -> Option<Self> {
        match name {
            "telemetry" => Some(Self::telemetry()),
            "event" => Some(Self::event()),
            "command" => Some(Self::command()),
            "stream" => Some(Self::stream()),
            "log" => Some(Self::log()),
            "state" => Some(Self::state()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_s_quality_of_service_survives_json() {
        for name in ["telemetry", "event", "command", "stream", "log", "state"] {
            let qos = Qos::profile(name).unwrap();
            let text = serde_json::to_string(&qos).unwrap();
            assert_eq!(serde_json::from_str::<Qos>(&text).unwrap(), qos, "{name}");
        }
        assert_eq!(Qos::profile("volatile"), None);
    }
    /// Topic descriptions on disk and on the wire hold this text: its names never change.
    #[test]
    fn the_json_of_a_quality_of_service_is_golden() {
        let unlimited = r#"{
            "reliability":"best_effort",
            "durability":"transient_local",
            "history":{"keep_last":3},
            "ownership":"exclusive",
            "overload":"shed_by_level",
            "retention":{"bytes":null,"age":null,"last_value":true},
            "guarantee":"durable",
            "liveliness":{"lease":{"secs":2,"nanos":500000000}},
            "deadline":null,
            "lifespan":{"secs":0,"nanos":20000000},
            "partitions":4
        }"#;
        let qos = Qos {
            reliability: Reliability::BestEffort,
            history: History::KeepLast(3),
            ownership: Ownership::Exclusive,
            overload: Overload::ShedByLevel,
            retention: Retention { bytes: None, age: None, last_value: true },
            guarantee: Guarantee::Durable,
            liveliness: Liveliness::Lease(Duration::from_millis(2_500)),
            lifespan: Some(Duration::from_millis(20)),
            partitions: 4,
            ..Qos::telemetry()
        };
        let limited = r#"{
            "reliability":"reliable",
            "durability":"persistent",
            "history":"keep_all",
            "ownership":"shared",
            "overload":"drop_oldest",
            "retention":{"bytes":4096,"age":{"secs":3600,"nanos":0},"last_value":false},
            "guarantee":"stored",
            "liveliness":"automatic",
            "deadline":{"secs":1,"nanos":0},
            "lifespan":null,
            "partitions":1
        }"#;
        let with_limits = Qos {
            durability: Durability::Persistent,
            history: History::KeepAll,
            retention: Retention { bytes: Some(4096), age: Some(HOUR), last_value: false },
            deadline: Some(Duration::from_secs(1)),
            ..Qos::telemetry()
        };
        for (text, qos) in [(unlimited, qos), (limited, with_limits)] {
            let text: String = text.split_whitespace().collect();
            assert_eq!(serde_json::to_string(&qos).unwrap(), text);
            assert_eq!(serde_json::from_str::<Qos>(&text).unwrap(), qos);
        }
        // A field that an older version did not write yet has a default.
        let stream: serde_json::Value = serde_json::to_value(Qos::stream()).unwrap();
        for field in stream.as_object().unwrap().keys() {
            let mut older = stream.clone();
            older.as_object_mut().unwrap().remove(field);
            serde_json::from_value::<Qos>(older).unwrap();
        }
        let others = (Durability::Volatile, History::None, Guarantee::Accepted);
        let others = (others, [Overload::Block, Overload::DropNewest, Overload::Refuse]);
        let text = r#"[["volatile","none","accepted"],["block","drop_newest","refuse"]]"#;
        assert_eq!(serde_json::to_string(&others).unwrap(), text);
    }
}
