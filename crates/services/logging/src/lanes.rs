//! Lanes: a topic for each level, with a quality of service of its own.

use std::time::Duration;

use helio_bus::{Guarantee, Qos, TopicError, TopicSpec};
use helio_core::qos::{Overload, Retention};

use crate::level::Level;

const MIB: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(86_400);

/// The topics of a facility's log records: one for each of ACS's levels, with a prefix and the
/// level's name (`log/WARNING`). Records of the reserved level 7 go to ERROR's topic, where they
/// are not dropped.
///
/// Urgent levels are durable and retained for 30 days. Each of the others is limited by bytes: 256
/// MiB below INFO, 1 GiB from INFO on, unless [`retention_bytes`](Self::retention_bytes) is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lanes {
    prefix: String,
    urgent: Level,
    partitions: u32,
    ordinary: Option<Qos>,
    retention_bytes: Option<u64>,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            prefix: "log".to_owned(),
            urgent: Level::ALERT,
            partitions: 1,
            ordinary: None,
            retention_bytes: None,
        }
    }
}

impl Lanes {
    /// Sets the prefix, such as `site/log`.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Sets the lowest urgent level (ACS's immediateDispatchLevel). The default is ALERT.
    #[must_use]
    pub fn urgent(mut self, level: Level) -> Self {
        self.urgent = level;
        self
    }

    /// Sets one quality of service for all topics that are not urgent, for less retention or weaker
    /// guarantees. Readers must use the same.
    #[must_use]
    pub fn ordinary(mut self, qos: &Qos) -> Self {
        self.ordinary = Some(qos.clone());
        self
    }

    /// Sets the bytes of each topic that is not urgent. It holds for topics that are created: an
    /// existing topic keeps its own.
    #[must_use]
    pub fn retention_bytes(mut self, bytes: u64) -> Self {
        self.retention_bytes = Some(bytes);
        self
    }

    /// Whether records of this level are urgent: published at once, durable, stored for late
    /// joiners.
    #[must_use]
    pub fn is_urgent(&self, level: Level) -> bool {
        level >= self.urgent
    }

    /// The level in whose topic the records of a level are.
    #[must_use]
    pub fn lane(level: Level) -> Level {
        if Level::ALL.contains(&level) { level } else { Level::ERROR }
    }

    /// The name of the topic for the records of a level.
    #[must_use]
    pub fn topic_name(&self, level: Level) -> String {
        format!("{}/{}", self.prefix, Self::lane(level))
    }

    /// The name of the topic that sets the loggers' levels ([`LevelTable`](crate::LevelTable)).
    #[must_use]
    pub fn levels_name(&self) -> String {
        format!("{}/levels", self.prefix)
    }

    /// The topic for the records of a level.
    ///
    /// # Errors
    /// [`TopicError::Name`] if the prefix is invalid.
    pub fn topic(&self, level: Level) -> Result<TopicSpec, TopicError> {
        Ok(TopicSpec::new(&self.topic_name(level))?.qos(self.qos(level)))
    }

    /// The quality of service of the topic for the records of a level.
    #[must_use]
    pub fn qos(&self, level: Level) -> Qos {
        let level = Self::lane(level);
        // A producer has its own queues, and drops records by level when they are full.
        let qos = Qos { overload: Overload::Refuse, partitions: self.partitions, ..Qos::log() };
        if self.is_urgent(level) {
            let retention =
                Retention { bytes: None, age: Some(30 * DAY), last_value: false, default: false };
            return Qos { guarantee: Guarantee::Durable, retention, ..qos };
        }
        if let Some(ordinary) = &self.ordinary {
            return ordinary.clone();
        }
        let bytes = if level < Level::INFO { 256 * MIB } else { 1024 * MIB };
        let bytes = self.retention_bytes.unwrap_or(bytes);
        Qos { retention: Retention { bytes: Some(bytes), ..qos.retention }, ..qos }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_a_topic_and_the_reserved_one_goes_with_errors() {
        let all = "TRACE DELOUSE DEBUG INFO NOTICE WARNING ERROR CRITICAL ALERT EMERGENCY";
        for (level, name) in Level::ALL.iter().zip(all.split(' ')) {
            assert_eq!(Lanes::default().topic_name(*level), format!("log/{name}"));
        }
        assert_eq!(Lanes::default().levels_name(), "log/levels");
        let lanes = Lanes::default().prefix("site/log");
        let mut names: Vec<_> = Level::ALL.iter().map(|level| lanes.topic_name(*level)).collect();
        assert_eq!(names[3], "site/log/INFO");
        let reserved = Level::new(7).unwrap();
        assert_eq!(lanes.topic_name(reserved), "site/log/ERROR");
        names.dedup();
        assert_eq!(names.len(), 10);
        assert!(lanes.topic(Level::INFO).is_ok());
        assert!(Lanes::default().prefix("a//b").topic(Level::INFO).is_err());
    }

    #[test]
    fn urgent_levels_are_durable() {
        let lanes = Lanes::default();
        for level in Level::ALL {
            let urgent = level >= Level::ALERT;
            assert_eq!(lanes.qos(level).guarantee == Guarantee::Durable, urgent);
            assert_eq!(lanes.qos(level).retention.bytes.is_none(), urgent);
        }
        assert!(Lanes::default().urgent(Level::ERROR).is_urgent(Level::ERROR));
        let lanes = Lanes::default().ordinary(&Qos::telemetry());
        assert_eq!(lanes.qos(Level::ERROR), Qos::telemetry());
        assert_eq!(lanes.qos(Level::ALERT), Lanes::default().qos(Level::ALERT));
    }

    #[test]
    fn retention_is_a_number_of_bytes_below_the_urgent_levels() {
        let bytes = |lanes: &Lanes, level| lanes.qos(level).retention.bytes;
        let lanes = Lanes::default();
        assert_eq!(bytes(&lanes, Level::DEBUG), Some(256 << 20));
        assert_eq!(bytes(&lanes, Level::CRITICAL), Some(1 << 30));
        let lanes = lanes.retention_bytes(5);
        assert_eq!(
            (bytes(&lanes, Level::DEBUG), bytes(&lanes, Level::CRITICAL)),
            (Some(5), Some(5))
        );
        assert_eq!(lanes.qos(Level::ALERT), Lanes::default().qos(Level::ALERT));
    }
}
