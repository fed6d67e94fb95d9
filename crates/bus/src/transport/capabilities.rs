//! A transport's capabilities, and their comparison with a topic's quality of service.

use helio_core::qos::{Durability, Guarantee, History, Liveliness, Ownership, Reliability};
use helio_core::{Qos, TopicName};
use serde::Serialize;

use crate::error::Refusal;

/// How far a transport reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Threads of one process.
    Process,
    /// Processes of one machine.
    Machine,
    /// Other machines.
    Network,
}

/// The treatment of a replaced writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fencing {
    /// Readers drop its samples.
    Drop,
    /// The engine refuses its publishes, and readers drop those that were accepted before.
    RefuseAndDrop,
}

/// Whether a transport supports a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// It does.
    Yes,
    /// It does not.
    No,
}

impl Support {
    /// Whether it is [`Support::Yes`].
    #[must_use]
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// The richest history that a transport stores for late joiners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HistorySupport {
    /// None.
    None,
    /// The newest samples of each key, up to this many.
    KeepLast(u8),
    /// All samples within the retention, and thus any number of last samples.
    KeepAll,
}

/// The policies that a transport supports. The bus provides the others on all transports:
/// deadlines, lifespans, key filters, overload at the subscriber.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The scheme, for messages.
    pub transport: String,
    /// How far it reaches.
    pub reach: Reach,
    /// The best reliability.
    pub reliability: Reliability,
    /// The best durability.
    pub durability: Durability,
    /// The richest history.
    pub history: HistorySupport,
    /// Whether the engine refuses the second live writer of a topic of exclusive ownership.
    pub exclusive: Support,
    /// The treatment of replaced writers.
    pub fencing: Fencing,
    /// The strongest receipt.
    pub guarantee: Guarantee,
    /// Retention by bytes.
    pub retention_bytes: Support,
    /// Retention by age.
    pub retention_age: Support,
    /// The last value of each key stored beyond all limits.
    pub last_value: Support,
    /// Whether it detects the death of a writer's process.
    pub liveliness: Support,
    /// The most partitions of a topic.
    pub partitions: u32,
    /// Consumer groups.
    pub groups: Support,
    /// Starting at an offset or at a time. (All transports that store the whole history can start
    /// at the earliest sample.)
    pub rewind: Support,
    /// [Grants](crate::Topic::grant) of a topic to one user.
    pub grants: Support,
    /// [Exclusive logs](crate::exclusive).
    pub exclusive_log: Support,
    /// The largest payload, in bytes.
    pub max_payload_bytes: usize,
    /// The largest key, in bytes.
    pub max_key_bytes: usize,
}

impl Capabilities {
    /// Compares with a topic's quality of service. The error names the first policy that is not
    /// supported.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check(&self, topic: &TopicName, qos: &Qos) -> Result<(), Box<Refusal>> {
        let ask = QosCheck { capabilities: self, topic };
        ask.at_most("reliability", qos.reliability, self.reliability)?;
        ask.at_most("durability", qos.durability, self.durability)?;
        ask.at_most("guarantee", qos.guarantee, self.guarantee)?;
        ask.history(qos.history)?;
        if qos.ownership == Ownership::Exclusive {
            ask.has("ownership", "exclusive", self.exclusive)?;
        }
        if qos.retention.bytes.is_some() {
            ask.has("retention.bytes", "a limit", self.retention_bytes)?;
        }
        if qos.retention.age.is_some() {
            ask.has("retention.age", "a limit", self.retention_age)?;
        }
        if qos.retention.last_value {
            ask.has("retention.last_value", "kept for ever", self.last_value)?;
        }
        if matches!(qos.liveliness, Liveliness::Lease(_)) {
            ask.has("liveliness", "a lease", self.liveliness)?;
        }
        if qos.partitions > self.partitions {
            let (asked, offered) =
                (qos.partitions.to_string(), format!("1 to {}", self.partitions));
            return Err(ask.refusal("partitions", asked, offered));
        }
        Ok(())
    }

    /// Refuses an unsupported option of a subscription.
    pub(crate) fn need(
        &self,
        topic: &TopicName,
        policy: &'static str,
        asked: &str,
        has: Support,
    ) -> Result<(), Box<Refusal>> {
        QosCheck { capabilities: self, topic }.has(policy, asked, has)
    }
}

struct QosCheck<'a> {
    capabilities: &'a Capabilities,
    topic: &'a TopicName,
}

impl QosCheck<'_> {
    fn at_most<T: PartialOrd + Serialize>(
        &self,
        policy: &'static str,
        asked: T,
        offered: T,
    ) -> Result<(), Box<Refusal>> {
        if asked <= offered {
            return Ok(());
        }
        Err(self.refusal(policy, word(&asked), format!("{} at most", word(&offered))))
    }

    fn history(&self, asked: History) -> Result<(), Box<Refusal>> {
        let enough = match (asked, self.capabilities.history) {
            (History::None, _) | (_, HistorySupport::KeepAll) => true,
            (History::KeepLast(n), HistorySupport::KeepLast(most)) => n <= most,
            _ => false,
        };
        if enough {
            return Ok(());
        }
        let offered = format!("{} at most", word(&self.capabilities.history));
        Err(self.refusal("history", word(&asked), offered))
    }

    fn has(&self, policy: &'static str, asked: &str, has: Support) -> Result<(), Box<Refusal>> {
        if has.is_yes() {
            return Ok(());
        }
        Err(self.refusal(policy, asked.to_owned(), "nothing of the kind".to_owned()))
    }

    fn refusal(&self, policy: &'static str, asked: String, offered: String) -> Box<Refusal> {
        Box::new(Refusal {
            transport: self.capabilities.transport.clone(),
            topic: self.topic.to_string(),
            policy,
            asked,
            offered,
            remedy: format!(
                "override {policy} in the topic's quality of service, or use a transport that has \
                 it"
            ),
        })
    }
}

/// A value as the documents and the command line spell it: `keep_last(1)`, `persistent`.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Object(map)) => {
            map.into_iter().map(|(k, v)| format!("{k}({v})")).collect::<Vec<_>>().join(", ")
        }
        Ok(other) => other.to_string(),
        Err(_) => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `helio bus info --json` and Python's `Bus.capabilities` have these names.
    #[test]
    fn the_json_of_capabilities_is_golden() {
        let capabilities = Capabilities {
            transport: "x".to_owned(),
            reach: Reach::Machine,
            reliability: Reliability::Reliable,
            durability: Durability::Persistent,
            history: HistorySupport::KeepLast(2),
            exclusive: Support::Yes,
            fencing: Fencing::RefuseAndDrop,
            guarantee: Guarantee::Durable,
            retention_bytes: Support::No,
            retention_age: Support::Yes,
            last_value: Support::Yes,
            liveliness: Support::Yes,
            partitions: 7,
            groups: Support::Yes,
            rewind: Support::No,
            grants: Support::No,
            exclusive_log: Support::Yes,
            max_payload_bytes: 1,
            max_key_bytes: 2,
        };
        let text = r#"{
            "transport":"x",
            "reach":"machine",
            "reliability":"reliable",
            "durability":"persistent",
            "history":{"keep_last":2},
            "exclusive":"yes",
            "fencing":"refuse_and_drop",
            "guarantee":"durable",
            "retention_bytes":"no",
            "retention_age":"yes",
            "last_value":"yes",
            "liveliness":"yes",
            "partitions":7,
            "groups":"yes",
            "rewind":"no",
            "grants":"no",
            "exclusive_log":"yes",
            "max_payload_bytes":1,
            "max_key_bytes":2
        }"#;
        let text: String = text.split_whitespace().collect();
        assert_eq!(serde_json::to_string(&capabilities).unwrap(), text);
        let others = ([Reach::Process, Reach::Network], Fencing::Drop);
        let others = (others, [HistorySupport::None, HistorySupport::KeepAll]);
        let text = r#"[[["process","network"],"drop"],["none","keep_all"]]"#;
        assert_eq!(serde_json::to_string(&others).unwrap(), text);
    }
}
