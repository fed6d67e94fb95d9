//! Topic names of the bus as names of Kafka topics, and back.
//!
//! Kafka allows letters, digits, `.`, `_` and `-`. Names of only those are the same on both sides,
//! such as `lsst.sal.MTMount.command_trackTarget`. Other characters of the bus are escaped with a
//! dot:
//!
//! | bus | Kafka |
//! | --- | --- |
//! | `/` | `..` |
//! | `:` | `.-c` |
//! | `@` | `.-a` |
//! | `.` before one of `.-/:@` | `.-d` |
//!
//! The URL's `prefix` precedes every name; the transport's own topics begin with `_helio.` behind
//! the prefix.
//!
//! With `naming=sal`, SAL's topics have SAL's names ([`helio_core::sal::SalNaming`]), and
//! `lsst.SUBNAME.` is the prefix of all others.

use helio_bus::{TopicName, TransportError};
use helio_core::sal::{SalKeys, SalNaming};

use crate::SCHEME;

/// The maximum length of a Kafka topic's name, in bytes.
const MAX_KAFKA_NAME_BYTES: usize = 249;
/// The prefix of the transport's own topics.
const INTERNAL_PREFIX: &str = "_helio.";
/// The prefix of topics' companions, which store the last value of each key.
const COMPANION_PREFIX: &str = "_helio.last.";

/// The topics' quality of service.
pub(crate) const TOPICS: &str = "topics";
/// The schemas' texts, and the schemas of each topic.
pub(crate) const SCHEMAS: &str = "schemas";
/// The writers.
pub(crate) const PRODUCERS: &str = "producers";

/// The naming of one URL's topics.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
    sal: Option<SalNaming>,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), sal: None }
    }

    /// SAL's names, and prefixed ones for other topics.
    pub(crate) fn sal(naming: SalNaming) -> Self {
        Self { prefix: naming.prefix().to_owned(), sal: Some(naming) }
    }

    /// The keys of a topic with a SAL name.
    pub(crate) fn sal_keys(&self, topic: &TopicName) -> Option<SalKeys> {
        self.sal.as_ref().and_then(|_| SalKeys::of(topic).ok())
    }

    /// A topic's name on Kafka.
    pub(crate) fn kafka(&self, topic: &TopicName) -> Result<String, TransportError> {
        if let Some(name) = self.sal.as_ref().and_then(|sal| sal.to_kafka(topic).ok()) {
            return self.fitting(topic, name);
        }
        let name = format!("{}{}", self.prefix, encode(topic.as_str()));
        match self.sal.as_ref().and_then(|sal| sal.from_kafka(&name).ok()) {
            None => self.fitting(topic, name),
            Some(other) => Err(TransportError::Unsupported {
                transport: SCHEME.to_owned(),
                what: format!("name the topic {topic}: {name} is {other} by naming=sal"),
                remedy: "use another name, with a slash".to_owned(),
            }),
        }
    }

    /// The name of a topic's companion, which stores the last value of each key.
    pub(crate) fn companion(&self, topic: &TopicName) -> Result<String, TransportError> {
        self.fitting(topic, format!("{}{COMPANION_PREFIX}{}", self.prefix, encode(topic.as_str())))
    }

    /// The name of one of the transport's own topics.
    pub(crate) fn internal(&self, what: &str) -> String {
        format!("{}{INTERNAL_PREFIX}{what}", self.prefix)
    }

    /// The prefix of every name.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The topic of a Kafka topic; `None` if that is internal, has another prefix, or a name that
    /// the bus does not allow.
    pub(crate) fn bus(&self, kafka: &str) -> Option<TopicName> {
        if let Some(topic) = self.sal.as_ref().and_then(|sal| sal.from_kafka(kafka).ok()) {
            return Some(topic);
        }
        let name = kafka.strip_prefix(self.prefix.as_str())?;
        if name.starts_with(INTERNAL_PREFIX) || name.starts_with("__") {
            return None;
        }
        let decoded = decode(name);
        let topic = TopicName::new(&decoded).ok()?;
        (encode(topic.as_str()) == name).then_some(topic)
    }

    fn fitting(&self, topic: &TopicName, name: String) -> Result<String, TransportError> {
        if name.len() <= MAX_KAFKA_NAME_BYTES {
            return Ok(name);
        }
        Err(TransportError::Unsupported {
            transport: SCHEME.to_owned(),
            what: format!("name the topic {topic}: {name} has {} bytes", name.len()),
            remedy: format!(
                "{MAX_KAFKA_NAME_BYTES} are possible, prefix {:?} included",
                self.prefix
            ),
        })
    }
}

fn encode(name: &str) -> String {
    let mut kafka = String::with_capacity(name.len() + 16);
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        let before_escape = rest.peek().is_some_and(|next| ".-/:@".contains(*next));
        match c {
            '/' => kafka.push_str(".."),
            ':' => kafka.push_str(".-c"),
            '@' => kafka.push_str(".-a"),
            '.' if before_escape => kafka.push_str(".-d"),
            other => kafka.push(other),
        }
    }
    kafka
}

/// The decoded name; of a name that was not encoded, something that encodes to another name.
fn decode(kafka: &str) -> String {
    let mut name = String::with_capacity(kafka.len());
    let mut rest = kafka;
    while let Some(c) = rest.chars().next() {
        let escapes = [("..", '/'), (".-c", ':'), (".-a", '@'), (".-d", '.')];
        let (decoded, length) = escapes
            .into_iter()
            .find(|(escape, _)| rest.starts_with(escape))
            .map_or((c, c.len_utf8()), |(escape, decoded)| (decoded, escape.len()));
        name.push(decoded);
        rest = &rest[length..];
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new("")
    }

    #[test]
    fn names_survive_the_way_there_and_back() {
        let same = ["lsst.sal.MTMount.command_trackTarget", "wind", "a-b_c.d"];
        let pairs = [
            ("MTMount/command/trackTarget", "MTMount..command..trackTarget"),
            ("Script:12/ack", "Script.-c12..ack"),
            ("u@host", "u.-ahost"),
            ("a..b", "a.-d.b"),
            ("a.-b", "a.-d-b"),
            ("a./b", "a.-d..b"),
            ("a/b.:@", "a..b.-d.-c.-a"),
            ("ends.", "ends."),
        ];
        for (bus, kafka) in same.map(|name| (name, name)).into_iter().chain(pairs) {
            let topic = TopicName::new(bus).unwrap();
            assert_eq!(names().kafka(&topic).unwrap(), kafka);
            assert_eq!(names().bus(kafka).as_ref(), Some(&topic), "{kafka}");
        }
    }

    #[test]
    fn no_two_names_are_one() {
        let letters = ['a', '.', '-', '/', ':', '@', 'c', 'd'];
        let mut seen = std::collections::HashMap::new();
        for n in 0..letters.len().pow(5) {
            let name: String = (0..5).map(|k| letters[n / letters.len().pow(k) % 8]).collect();
            let Ok(topic) = TopicName::new(&name) else { continue };
            let kafka = names().kafka(&topic).unwrap();
            assert_eq!(names().bus(&kafka), Some(topic), "{kafka}");
            assert_eq!(seen.insert(kafka, name.clone()), None, "{name}");
        }
    }

    #[test]
    fn sal_s_topics_are_called_as_sal_calls_them() {
        let names = Names::sal(SalNaming::new("site").unwrap());
        for (bus, kafka) in [
            ("MTMount/event/summaryState", "lsst.site.MTMount.logevent_summaryState"),
            ("MTMount/ackcmd", "lsst.site.MTMount.ackcmd"),
            ("MTMount/lease/0", "lsst.site.MTMount..lease..0"),
            ("MTMount/control", "lsst.site.MTMount..control"),
        ] {
            let topic = TopicName::new(bus).unwrap();
            assert_eq!(names.kafka(&topic).unwrap(), kafka);
            assert_eq!(names.bus(kafka), Some(topic.clone()));
            assert_eq!(names.sal_keys(&topic).is_some(), !kafka.contains(".."));
        }
        let twin = TopicName::new("MTMount.elevation").unwrap();
        let told = names.kafka(&twin).unwrap_err().to_string();
        assert!(told.contains("MTMount/telemetry/elevation"), "{told}");
        assert_eq!(names.bus("lsst.site._helio.topics"), None);
        assert_eq!(names.bus("lsst.other.MTMount.elevation"), None);
    }

    #[test]
    fn what_is_not_ours_is_not_listed() {
        let prefixed = Names::new("summit.");
        let topic = TopicName::new("a/b").unwrap();
        assert_eq!(prefixed.kafka(&topic).unwrap(), "summit.a..b");
        assert_eq!(prefixed.bus("summit.a..b"), Some(topic.clone()));
        assert_eq!(prefixed.companion(&topic).unwrap(), "summit._helio.last.a..b");
        assert_eq!(prefixed.internal("topics"), "summit._helio.topics");
        for foreign in ["a..b", "summit._helio.topics", "summit.__x", "summit.a..", "summit.a.-x"] {
            assert_eq!(prefixed.bus(foreign), None, "{foreign}");
        }
        assert_eq!(names().bus("__consumer_offsets"), None);
        let long = TopicName::new("a/".repeat(99).trim_end_matches('/')).unwrap();
        assert!(names().kafka(&long).unwrap_err().to_string().contains("249"));
    }
}
