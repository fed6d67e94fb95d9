//! SAL's naming convention: names of topics on the bus and on Kafka.
//!
//! | on the bus | on Kafka |
//! | --- | --- |
//! | `MTMount/command/trackTarget` | `lsst.sal.MTMount.command_trackTarget` |
//! | `MTMount/event/summaryState` | `lsst.sal.MTMount.logevent_summaryState` |
//! | `MTMount/telemetry/elevation` | `lsst.sal.MTMount.elevation` |
//! | `MTMount/ackcmd` | `lsst.sal.MTMount.ackcmd` |
//!
//! `sal` is the sub-name, which isolates one system from another.

use thiserror::Error;

use super::TopicKind;
use super::field::is_part;
use crate::TopicName;

/// A name that the convention cannot translate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NamingError {
    /// A sub-name has an illegal character.
    #[error(
        "the sub-name {0:?} must be 1 to 90 letters, digits and '_' and not start with a digit"
    )]
    Subname(String),
    /// A name on the bus is no SAL topic's.
    #[error(
        "{0:?} is not a SAL topic; it must be like MTMount/command/trackTarget or MTMount/ackcmd"
    )]
    Bus(String),
    /// A name on Kafka is no SAL topic's of the sub-name.
    #[error("{name:?} is not a SAL topic; it must be like {prefix}MTMount.command_trackTarget")]
    Kafka {
        /// The name found.
        name: String,
        /// The prefix of names with the sub-name.
        prefix: String,
    },
}

/// SAL's naming convention with a sub-name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalNaming {
    prefix: String,
}

impl SalNaming {
    /// The convention with that sub-name (SAL's `LSST_TOPIC_SUBNAME`), `sal` at the observatory.
    ///
    /// # Errors
    /// [`NamingError::Subname`] if it is empty or has characters other than letters, digits and
    /// `_`.
    pub fn new(subname: &str) -> Result<Self, NamingError> {
        if !is_part(subname) {
            return Err(NamingError::Subname(subname.to_owned()));
        }
        Ok(Self { prefix: format!("lsst.{subname}.") })
    }

    /// Returns the prefix of names on Kafka.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn kafka_name(&self, component: &str, kind: TopicKind, name: &str) -> String {
        format!("{}{component}.{}{name}", self.prefix, kind.sal_prefix())
    }

    /// Returns the Kafka topic of a topic on the bus.
    ///
    /// # Errors
    /// [`NamingError::Bus`] if the name is no SAL topic's.
    pub fn to_kafka(&self, topic: &TopicName) -> Result<String, NamingError> {
        let refused = || NamingError::Bus(topic.to_string());
        let (component, kind, name) = parse_bus(topic.as_str()).ok_or_else(refused)?;
        Ok(self.kafka_name(component, kind, name))
    }

    /// Returns the topic on the bus of a Kafka topic.
    ///
    /// # Errors
    /// [`NamingError::Kafka`] if the name is no SAL topic's of this sub-name.
    pub fn from_kafka(&self, name: &str) -> Result<TopicName, NamingError> {
        let refused = || NamingError::Kafka { name: name.to_owned(), prefix: self.prefix.clone() };
        let (component, sal_name) = name
            .strip_prefix(&self.prefix)
            .and_then(|rest| rest.split_once('.'))
            .ok_or_else(refused)?;
        let (kind, short) = TopicKind::of_sal_name(sal_name);
        if !is_component(component) || !is_part(short) {
            return Err(refused());
        }
        let text = match kind {
            TopicKind::Ack => format!("{component}/{}", kind.segment()),
            _ => format!("{component}/{}/{short}", kind.segment()),
        };
        TopicName::new(&text).map_err(|_| refused())
    }
}

impl Default for SalNaming {
    /// The convention with the sub-name `sal`.
    fn default() -> Self {
        Self { prefix: "lsst.sal.".to_owned() }
    }
}

/// Returns whether a component can have that name.
pub(super) fn is_component(name: &str) -> bool {
    is_part(name) && !name.contains('_')
}

/// Component, kind and short name of a topic on the bus.
pub(super) fn parse_bus(topic: &str) -> Option<(&str, TopicKind, &str)> {
    let (component, rest) = topic.split_once('/').filter(|parts| is_component(parts.0))?;
    if rest == TopicKind::Ack.segment() {
        return Some((component, TopicKind::Ack, rest));
    }
    let (segment, name) = rest.split_once('/').filter(|parts| is_part(parts.1))?;
    let kind = TopicKind::ALL.into_iter().find(|kind| kind.segment() == segment)?;
    let sal_name = format!("{}{name}", kind.sal_prefix());
    // A telemetry topic command_x would be translated back to a command.
    (kind != TopicKind::Ack && TopicKind::of_sal_name(&sal_name) == (kind, name))
        .then_some((component, kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        let naming = SalNaming::new("site2").unwrap();
        for (bus, kafka) in [
            ("MTMount/command/trackTarget", "lsst.site2.MTMount.command_trackTarget"),
            ("MTMount/event/summaryState", "lsst.site2.MTMount.logevent_summaryState"),
            ("MTMount/telemetry/elevation", "lsst.site2.MTMount.elevation"),
            ("MTMount/ackcmd", "lsst.site2.MTMount.ackcmd"),
        ] {
            let topic = TopicName::new(bus).unwrap();
            assert_eq!(naming.to_kafka(&topic).as_deref(), Ok(kafka));
            assert_eq!(naming.from_kafka(kafka), Ok(topic));
        }
    }

    #[test]
    fn names_that_are_no_sal_topics_are_refused() {
        let naming = SalNaming::default();
        for bus in [
            "MTMount",
            "MTMount/trackTarget",
            "a/telemetry/command_b",
            "a/ackcmd/ackcmd",
            "a/telemetry/ackcmd",
            "a_b/event/c",
            "a/event/b/c",
            "a/event/b.c",
        ] {
            let topic = TopicName::new(bus).unwrap();
            assert_eq!(naming.to_kafka(&topic), Err(NamingError::Bus(bus.to_owned())));
        }
        for kafka in [
            "",
            "lsst.sal.",
            "lsst.sal.MTMount",
            "lsst.other.MTMount.elevation",
            "lsst.sal.MTMount.command_",
            "lsst.sal.a_b.c",
            "lsst.sal.a.b.c",
        ] {
            assert!(naming.from_kafka(kafka).is_err(), "{kafka}");
        }
        assert!(SalNaming::new("a-b").is_err() && SalNaming::new("").is_err());
    }
}
