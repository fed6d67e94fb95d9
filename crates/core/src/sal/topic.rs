//! Topics of components: their kinds, names and quality of service.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::field::{ACKNOWLEDGEMENT, ACKNOWLEDGEMENT_DESCRIPTION};
use super::{Field, SalNaming};
use crate::{Qos, TopicName};

/// The kind of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TopicKind {
    /// Acknowledgements of all commands of a component.
    Ack,
    /// A request to the component.
    Command,
    /// A change, published when it happens.
    Event,
    /// Values at a regular rate.
    Telemetry,
}

impl TopicKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Ack, Self::Command, Self::Event, Self::Telemetry];

    /// Returns the kind as a segment of a topic's name: `ackcmd`, `command`, `event` or
    /// `telemetry`.
    #[must_use]
    pub const fn segment(self) -> &'static str {
        match self {
            Self::Ack => "ackcmd",
            Self::Command => "command",
            Self::Event => "event",
            Self::Telemetry => "telemetry",
        }
    }

    /// Returns the prefix of SAL's names of such topics; empty for telemetry.
    #[must_use]
    pub const fn sal_prefix(self) -> &'static str {
        match self {
            Self::Ack | Self::Telemetry => "",
            Self::Command => "command_",
            Self::Event => "logevent_",
        }
    }

    /// Returns the prefix of SAL's attributes of such topics, for example `evt_`.
    #[must_use]
    pub const fn attribute_prefix(self) -> &'static str {
        match self {
            Self::Ack => "ack_",
            Self::Command => "cmd_",
            Self::Event => "evt_",
            Self::Telemetry => "tel_",
        }
    }

    /// Splits a SAL name, for example `logevent_summaryState`, into kind and short name.
    #[must_use]
    pub fn of_sal_name(sal_name: &str) -> (Self, &str) {
        let after = |kind: Self| sal_name.strip_prefix(kind.sal_prefix()).map(|name| (kind, name));
        match sal_name {
            "ackcmd" => (Self::Ack, sal_name),
            _ => after(Self::Command)
                .or_else(|| after(Self::Event))
                .unwrap_or((Self::Telemetry, sal_name)),
        }
    }

    /// Returns the quality of service of such topics: the profile of the kind's name.
    /// Acknowledgements are stored like commands, but a full queue blocks instead of failing: each
    /// one answers a request.
    #[must_use]
    pub fn qos(self) -> Qos {
        match self {
            Self::Ack => Qos { overload: crate::qos::Overload::Block, ..Qos::command() },
            Self::Command => Qos::command(),
            Self::Event => Qos::event(),
            Self::Telemetry => Qos::telemetry(),
        }
    }
}

/// A topic of a component.
#[derive(Debug, Clone, PartialEq)]
pub struct Topic {
    pub(super) component: Arc<str>,
    pub(super) indexed: bool,
    pub(super) kind: TopicKind,
    pub(super) name: Arc<str>,
    pub(super) description: Arc<str>,
    pub(super) fields: Vec<Field>,
    /// The record of an `.avsc` file; `None` for topics of other files.
    pub(super) record: Option<Arc<Map<String, Value>>>,
    pub(super) topic_name: TopicName,
}

impl Topic {
    /// The acknowledgements that every component has.
    pub(super) fn acknowledgement(component: &Arc<str>, indexed: bool) -> Self {
        let fields = ACKNOWLEDGEMENT.iter().map(Field::from).collect();
        let template = Template {
            kind: TopicKind::Ack,
            name: TopicKind::Ack.segment().into(),
            description: ACKNOWLEDGEMENT_DESCRIPTION.into(),
            fields,
            record: None,
        };
        template.topic_of(component, indexed)
    }

    /// The component's name.
    #[must_use]
    pub fn component(&self) -> &str {
        &self.component
    }

    /// Returns whether the component is indexed, so that every sample begins with `salIndex`.
    #[must_use]
    pub fn indexed(&self) -> bool {
        self.indexed
    }

    /// Returns the topic's kind.
    #[must_use]
    pub fn kind(&self) -> TopicKind {
        self.kind
    }

    /// The short name, for example `trackTarget`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its description.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the public fields; every sample has the private ones too, see
    /// [`private_at`](Self::private_at).
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the position of the first of the 8 private fields in a sample. They precede the
    /// public fields, and follow them in a topic of an `.avsc` file. `salIndex` comes first in
    /// both.
    #[must_use]
    pub fn private_at(&self) -> usize {
        let behind = self.record.as_ref().map_or(0, |_| self.fields.len());
        usize::from(self.indexed) + behind
    }

    /// The number of partitions; SAL's interface files name none, and an event must have one.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        1
    }

    /// Its name on the bus, for example `MTMount/command/trackTarget`.
    #[must_use]
    pub fn topic_name(&self) -> &TopicName {
        &self.topic_name
    }

    /// SAL's name, for example `command_trackTarget`.
    #[must_use]
    pub fn sal_name(&self) -> String {
        format!("{}{}", self.kind.sal_prefix(), self.name)
    }

    /// Its attribute in SAL's Python objects, for example `cmd_trackTarget`.
    #[must_use]
    pub fn attribute(&self) -> String {
        format!("{}{}", self.kind.attribute_prefix(), self.name)
    }

    /// Its name on Kafka, for example `lsst.sal.MTMount.command_trackTarget`.
    #[must_use]
    pub fn kafka_name(&self, naming: &SalNaming) -> String {
        naming.kafka_name(&self.component, self.kind, &self.name)
    }

    /// Returns the key of a Kafka message from the component of that index: the JSON text of name,
    /// index and topic, as salobj writes it. Without an index if the component has none; an indexed
    /// one's is 0 without `index`. The broker compacts by it; telemetry has none.
    #[must_use]
    pub fn kafka_key(&self, index: Option<i32>) -> String {
        let index = self.indexed.then_some(index.unwrap_or(0));
        super::kafka::key(&self.component, self.kind, &self.sal_name(), index)
    }

    /// Its quality of service.
    #[must_use]
    pub fn qos(&self) -> Qos {
        Qos { partitions: self.partitions(), ..self.kind.qos() }
    }

    /// The fields whose values are the key of a sample: `salIndex` if the component is indexed.
    #[must_use]
    pub fn key_fields(&self) -> &'static [&'static str] {
        if self.indexed { &["salIndex"] } else { &[] }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.topic_name.fmt(f)
    }
}

/// A topic without component, such as a generic.
#[derive(Debug, Clone)]
pub(super) struct Template {
    pub(super) kind: TopicKind,
    pub(super) name: Arc<str>,
    pub(super) description: Arc<str>,
    pub(super) fields: Vec<Field>,
    /// The record of an `.avsc` file.
    pub(super) record: Option<Arc<Map<String, Value>>>,
}

impl Template {
    /// SAL's name, as in `AddedGenerics`.
    pub(super) fn sal_name(&self) -> String {
        format!("{}{}", self.kind.sal_prefix(), self.name)
    }

    /// The topic of a component.
    pub(super) fn topic_of(self, component: &Arc<str>, indexed: bool) -> Topic {
        let segment = self.kind.segment();
        let topic_name = match self.kind {
            TopicKind::Ack => TopicName::new(&format!("{component}/{segment}")),
            _ => TopicName::new(&format!("{component}/{segment}/{}", self.name)),
        };
        Topic {
            topic_name: topic_name.expect("a loader's names are short and of letters and digits"),
            component: component.clone(),
            indexed,
            kind: self.kind,
            name: self.name,
            description: self.description,
            fields: self.fields,
            record: self.record,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As salobj 8.2.12 writes them: a blank inside the braces, and no index without one.
    #[test]
    fn keys_on_kafka_are_those_of_salobj() {
        let key = |kind, name: &str, index| {
            let (name, description) = (name.into(), "".into());
            let template = Template { kind, name, description, fields: Vec::new(), record: None };
            template.topic_of(&"Test".into(), index != Some(0)).kafka_key(index)
        };
        assert_eq!(
            key(TopicKind::Event, "summaryState", Some(0)),
            r#"{ "name": "Test", "topic": "logevent_summaryState" }"#
        );
        assert_eq!(
            key(TopicKind::Command, "start", Some(12)),
            r#"{ "name": "Test", "index": 12, "topic": "command_start" }"#
        );
        assert_eq!(
            key(TopicKind::Ack, "ackcmd", None),
            r#"{ "name": "Test", "index": 0, "topic": "ackcmd" }"#
        );
        assert_eq!(key(TopicKind::Telemetry, "scalars", Some(2)), "");
    }
}
