//! Quality of service: a topic's requirements, in DDS's terms.
//!
//! Six profiles cover the usual cases; each field may be overridden. A transport that does not
//! support a policy refuses to open the topic (see the bus); it never degrades silently.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Whether samples may be lost between publisher and subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reliability {
    /// Losses are possible, and counted.
    BestEffort,
    /// Every acknowledged sample is delivered or reported as a gap.
    Reliable,
}

/// How long samples outlive their writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Late joiners may get nothing.
    Volatile,
    /// Late joiners get the topic's history while the engine runs.
    TransientLocal,
    /// The history survives writers and power loss (synced in the background, see [`Guarantee`]).
    Persistent,
}

/// The history that a late joiner receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// None: only samples published after it joined.
    None,
    /// The newest `n` samples of each key (1 to 255).
    KeepLast(u8),
    /// All retained samples.
    KeepAll,
}

/// Which producers may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ownership {
    /// Any number of producers.
    Shared,
    /// One producer name, with at most one live incarnation; a second live writer of the topic is
    /// refused.
    Exclusive,
}

/// The policy for a full queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overload {
    /// The publisher blocks (never on an event loop).
    Block,
    /// The subscriber drops its oldest samples and counts them.
    DropOldest,
    /// The newest sample is dropped and counted.
    DropNewest,
    /// The publish fails with an error.
    Refuse,
    /// The lowest levels are dropped first and counted by level.
    ShedByLevel,
}

/// The guarantee of a receipt, for which a publish waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// The transport's queue has it; nothing is guaranteed.
    Accepted,
    /// It survives the death of any of our processes (journal: in the kernel's page cache).
    Stored,
    /// It survives power loss (journal: fdatasync; elsewhere: acknowledged by the engine).
    Durable,
}

/// The limits of stored samples. All limits apply together; `None` is no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// The limit of a partition's stored bytes.
    pub bytes: Option<u64>,
    /// The time for which a sample is stored.
    pub age: Option<Duration>,
    /// Whether the newest sample of each key is stored for ever, despite the limits.
    pub last_value: bool,
    /// Whether the limits are a profile's default, which the engine may shorten: the journal, to
    /// its share of the disk. Limits that were chosen are kept.
    #[serde(default, skip_serializing_if = "is_no")]
    pub default: bool,
}

// The signature is serde's.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_no(flag: &bool) -> bool {
    !flag
}

impl Retention {
    /// The default limits of a profile.
    const fn of(bytes: Option<u64>, age: Option<Duration>) -> Self {
        Self { bytes, age, last_value: false, default: true }
    }
}

/// How a writer shows that it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveliness {
    /// The transport detects the death of a writer's process.
    Automatic,
    /// The writer is declared dead unless it publishes or asserts its liveliness within this lease.
    Lease(Duration),
}

/// A topic's quality of service.
///
/// Fields that are missing in an older version's JSON have the values of [`Qos::telemetry`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default = "Qos::telemetry")]
pub struct Qos {
    /// Whether samples may be lost.
    pub reliability: Reliability,
    /// How long samples outlive their writer.
    pub durability: Durability,
    /// The history that a late joiner receives.
    pub history: History,
    /// Which producers may write.
    pub ownership: Ownership,
    /// The policy for a full queue.
    pub overload: Overload,
    /// The limits of stored samples.
    pub retention: Retention,
    /// The default guarantee for which a publish waits.
    pub guarantee: Guarantee,
    /// How a writer shows that it is alive.
    pub liveliness: Liveliness,
    /// The longest time between two samples of a key; a miss is an event at the subscriber.
    pub deadline: Option<Duration>,
    /// How long a sample is valid; subscribers drop and count older ones.
    pub lifespan: Option<Duration>,
    /// Number of partitions (1 to 1,024). Order holds within a partition, and all samples of a key
    /// are in one.
    pub partitions: u32,
}

const MIB: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What is stored for audit is never shortened.
const AUDIT: Retention =
    Retention { bytes: None, age: Some(DAY.saturating_mul(30)), last_value: true, default: false };

impl Qos {
    /// Measured values at a regular rate: the newest of each key for late joiners, and the history
    /// of some days.
    #[must_use]
    pub fn telemetry() -> Self {
        Self {
            reliability: Reliability::Reliable,
            durability: Durability::TransientLocal,
            history: History::KeepLast(1),
            ownership: Ownership::Shared,
            overload: Overload::DropOldest,
            retention: Retention { last_value: true, ..Retention::of(None, Some(DAY * 7)) },
            guarantee: Guarantee::Stored,
            liveliness: Liveliness::Automatic,
            deadline: None,
            lifespan: None,
            partitions: 1,
        }
    }

    /// Changes of state: stored by age, and the newest of each key for ever.
    #[must_use]
    pub fn event() -> Self {
        Self {
            durability: Durability::Persistent,
            overload: Overload::Block,
            retention: AUDIT,
            ..Self::telemetry()
        }
    }

    /// Requests to one component: no history for late joiners; stored for audit.
    #[must_use]
    pub fn command() -> Self {
        Self {
            durability: Durability::Volatile,
            history: History::None,
            overload: Overload::Refuse,
            retention: Retention { last_value: false, ..AUDIT },
            ..Self::telemetry()
        }
    }

    /// A complete sequence, stored within a limit of bytes.
    #[must_use]
    pub fn stream() -> Self {
        Self {
            durability: Durability::Persistent,
            history: History::KeepAll,
            overload: Overload::Block,
            retention: Retention::of(Some(4096 * MIB), None),
            ..Self::telemetry()
        }
    }

    /// Log records: stored completely, shed by level under overload.
    #[must_use]
    pub fn log() -> Self {
        Self {
            overload: Overload::ShedByLevel,
            retention: Retention::of(Some(1024 * MIB), None),
            ..Self::stream()
        }
    }

    /// Key-value revisions: stored until their owner compacts them; a publish waits for *durable*.
    #[must_use]
    pub fn state() -> Self {
        Self {
            ownership: Ownership::Exclusive,
            guarantee: Guarantee::Durable,
            retention: Retention { age: None, ..AUDIT },
            ..Self::stream()
        }
    }

    /// Returns the profile of that name, as the command line and Python use it.
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

    /// The documentation's table has the values of the profiles.
    #[test]
    fn the_documented_profiles_are_these() {
        let page = include_str!("../../../docs/durability.md");
        let none = || "-".to_owned();
        for name in ["telemetry", "event", "command", "stream", "log", "state"] {
            let retention = Qos::profile(name).unwrap().retention;
            let days = |age: Duration| format!("{} d", age.as_secs() / DAY.as_secs());
            let age = retention.age.map_or_else(none, days);
            let bytes = retention.bytes.map_or_else(none, |bytes| format!("{} MiB", bytes / MIB));
            let yes = |flag| if flag { "yes" } else { "no" };
            let (last_value, default) = (yes(retention.last_value), yes(retention.default));
            let row = format!("| `{name}` | {age} | {bytes} | {last_value} | {default} |");
            assert!(page.contains(&row), "docs/durability.md has no row {row}");
        }
    }

    #[test]
    fn a_topic_s_quality_of_service_survives_json() {
        for name in ["telemetry", "event", "command", "stream", "log", "state"] {
            let qos = Qos::profile(name).unwrap();
            let text = serde_json::to_string(&qos).unwrap();
            assert_eq!(serde_json::from_str::<Qos>(&text).unwrap(), qos, "{name}");
        }
        assert_eq!(Qos::profile("volatile"), None);
    }
    /// Topic descriptions on disk and on the wire contain this text: its names never change.
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
            retention: Retention { age: None, ..AUDIT },
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
            "retention":{"bytes":4096,"age":{"secs":3600,"nanos":0},"last_value":false,
                "default":true},
            "guarantee":"stored",
            "liveliness":"automatic",
            "deadline":{"secs":1,"nanos":0},
            "lifespan":null,
            "partitions":1
        }"#;
        let with_limits = Qos {
            durability: Durability::Persistent,
            history: History::KeepAll,
            retention: Retention::of(Some(4096), Some(DAY / 24)),
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
