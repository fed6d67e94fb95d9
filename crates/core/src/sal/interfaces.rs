//! The interfaces of a folder: components, their topics, and their numbers.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Enumeration, Topic, TopicKind};

/// The instances of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Indexing {
    /// A single one.
    Single,
    /// Several, with any positive index.
    Any,
    /// Several, with these names and indices.
    Named(Vec<(String, i64)>),
}

/// A component, with its commands, events and telemetry.
#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    pub(super) name: Arc<str>,
    pub(super) description: String,
    pub(super) indexing: Indexing,
    pub(super) enumerations: Vec<Arc<Enumeration>>,
    pub(super) topics: Vec<Topic>,
}

impl Component {
    /// Its name, for example `MTMount`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its description.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Its instances.
    #[must_use]
    pub fn indexing(&self) -> &Indexing {
        &self.indexing
    }

    /// Returns whether it has several instances, so that every sample begins with `salIndex`.
    #[must_use]
    pub fn indexed(&self) -> bool {
        self.indexing != Indexing::Single
    }

    /// The enumerations of its own files' sets.
    #[must_use]
    pub fn enumerations(&self) -> &[Arc<Enumeration>] {
        &self.enumerations
    }

    /// All its topics, generics and acknowledgements included, in the order of their attributes
    /// (`ack_ackcmd`, `cmd_…`, `evt_…`, `tel_…`).
    #[must_use]
    pub fn topics(&self) -> &[Topic] {
        &self.topics
    }

    /// Its topics of a kind.
    pub fn topics_of(&self, kind: TopicKind) -> impl Iterator<Item = &Topic> {
        self.topics.iter().filter(move |topic| topic.kind() == kind)
    }

    /// Its topic of a kind and short name.
    #[must_use]
    pub fn topic(&self, kind: TopicKind, name: &str) -> Option<&Topic> {
        self.topics_of(kind).find(|topic| topic.name() == name)
    }
}

/// The number of topics of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TopicCounts {
    /// Commands.
    pub command: usize,
    /// Events.
    pub event: usize,
    /// Telemetry.
    pub telemetry: usize,
    /// Acknowledgements: one for each component.
    pub ack: usize,
}

impl TopicCounts {
    /// Topics of all kinds.
    #[must_use]
    pub fn sum(&self) -> usize {
        self.command + self.event + self.telemetry + self.ack
    }
}

/// The counts of a folder, as `helio schema show FOLDER --json` prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Components.
    pub components: usize,
    /// Topics, with the generics of each component.
    pub topics: TopicCounts,
    /// Public fields of all topics.
    pub fields: usize,
}

/// The interfaces of a folder, read by [`Interfaces::load`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Interfaces {
    components: Vec<Component>,
    by_name: HashMap<Arc<str>, usize>,
    release: String,
}

impl Interfaces {
    pub(super) fn new(components: Vec<Component>) -> Self {
        let entry = |(index, component): (usize, &Component)| (component.name.clone(), index);
        let by_name = components.iter().enumerate().map(entry).collect();
        Self { components, by_name, release: String::new() }
    }

    /// Sets the release, for example `27.1.1`.
    #[must_use]
    pub fn with_release(self, release: impl Into<String>) -> Self {
        Self { release: release.into(), ..self }
    }

    /// Returns the release, for example `27.1.1`; empty if unknown. Components publish it as
    /// `xmlVersion`.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The components, in the order of `SALSubsystems.xml`.
    #[must_use]
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The component of that name.
    #[must_use]
    pub fn component(&self, name: &str) -> Option<&Component> {
        self.by_name.get(name).map(|index| &self.components[*index])
    }

    /// All topics, component by component.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.components.iter().flat_map(Component::topics)
    }

    /// The topic of that name on the bus, for example `MTMount/command/trackTarget`.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Topic> {
        let component = self.component(name.split('/').next()?)?;
        component.topics.iter().find(|topic| topic.topic_name().as_str() == name)
    }

    /// Returns the counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { components: self.components.len(), ..Counts::default() };
        for topic in self.topics() {
            *match topic.kind() {
                TopicKind::Ack => &mut counts.topics.ack,
                TopicKind::Command => &mut counts.topics.command,
                TopicKind::Event => &mut counts.topics.event,
                TopicKind::Telemetry => &mut counts.topics.telemetry,
            } += 1;
            counts.fields += topic.fields().len();
        }
        counts
    }
}
