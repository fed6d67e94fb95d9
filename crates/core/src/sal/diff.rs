//! Differences between two folders of interfaces: components, topics, fields, enumerations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{Component, Counts, Enumeration, Interfaces, Topic};
use crate::SchemaError;
use crate::evolution::{self, Evolution, Level};

/// Names that only one of two folders has, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Presence {
    /// Names in the newer one only.
    pub added: Vec<String>,
    /// Names in the older one only.
    pub removed: Vec<String>,
}

/// A topic that both folders have, with different schemas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedTopic {
    /// The topic's name on the bus.
    pub topic: String,
    /// The differences and their compatibility.
    #[serde(flatten)]
    pub evolution: Evolution,
}

/// A component that is indexed in only one of two folders, so its topics' keys differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedIndexing {
    /// The component.
    pub component: String,
    /// Whether it is indexed now.
    pub indexed: bool,
}

/// An enumeration of a component's sets with different labels or values. If a field has it, the
/// topic's differences include it; many belong to fields that do not name them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedEnumeration {
    /// The component.
    pub component: String,
    /// The class of its labels.
    pub class: String,
    /// The old labels; empty if it is new.
    pub old: BTreeMap<String, i64>,
    /// The new labels; empty if it was removed.
    pub new: BTreeMap<String, i64>,
}

/// Numbers of topics in both folders, by compatibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// Changed, and compatible both ways.
    pub full: usize,
    /// Old readers read new data only.
    pub forward: usize,
    /// New readers read old data only.
    pub backward: usize,
    /// Neither.
    pub breaking: usize,
    /// Topics with equal schemas, apart from documentation.
    pub unchanged: usize,
}

/// The differences between two folders of interfaces, as `helio schema diff OLD NEW --json` prints
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfacesDiff {
    /// The compatibility that holds for all topics. A removed topic leaves old readers without
    /// data, as a removed field does.
    pub level: Level,
    /// Counts of the older folder.
    pub old: Counts,
    /// Counts of the newer folder.
    pub new: Counts,
    /// Topics in both folders, by compatibility.
    pub summary: Summary,
    /// Components that were added and removed.
    pub components: Presence,
    /// Topics that were added and removed, with those of such components.
    pub topics: Presence,
    /// Components that are indexed in only one of them.
    pub indexing: Vec<ChangedIndexing>,
    /// Enumerations that changed.
    pub enumerations: Vec<ChangedEnumeration>,
    /// Topics that changed.
    pub changed: Vec<ChangedTopic>,
}

impl Interfaces {
    /// Returns the differences from these interfaces to newer ones.
    ///
    /// # Errors
    /// [`SchemaError`] if a topic has more fields than a schema may have.
    pub fn diff(&self, newer: &Self) -> Result<InterfacesDiff, SchemaError> {
        let (old, new) = (by_name(self), by_name(newer));
        let topics = presence(&old, &new);
        let mut summary = Summary::default();
        let mut changed = Vec::new();
        let removed = if topics.removed.is_empty() { Level::Full } else { Level::Backward };
        let mut level = removed;
        for (name, topic) in &new {
            let Some(before) = old.get(name) else { continue };
            let Some(evolution) = evolution_of(before, topic)? else {
                summary.unchanged += 1;
                continue;
            };
            *summary.of(evolution.level) += 1;
            level = level.and(evolution.level);
            changed.push(ChangedTopic { topic: (*name).to_owned(), evolution });
        }
        let names = |interfaces: &Self| -> BTreeMap<String, ()> {
            interfaces.components().iter().map(|c| (c.name().to_owned(), ())).collect()
        };
        Ok(InterfacesDiff {
            level,
            old: self.counts(),
            new: newer.counts(),
            summary,
            components: presence(&names(self), &names(newer)),
            topics,
            indexing: indexing(self, newer),
            enumerations: enumerations(self, newer),
            changed,
        })
    }
}

impl Summary {
    fn of(&mut self, level: Level) -> &mut usize {
        match level {
            Level::Full => &mut self.full,
            Level::Forward => &mut self.forward,
            Level::Backward => &mut self.backward,
            Level::Breaking => &mut self.breaking,
        }
    }
}

impl InterfacesDiff {
    /// Returns whether the interfaces are equal, apart from documentation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let present = |presence: &Presence| presence.added.len() + presence.removed.len();
        let pairs = present(&self.components) + present(&self.topics) + self.indexing.len();
        pairs + self.enumerations.len() + self.changed.len() == 0
    }
}

fn by_name(interfaces: &Interfaces) -> BTreeMap<&str, &Topic> {
    interfaces.topics().map(|topic| (topic.topic_name().as_str(), topic)).collect()
}

fn presence<K: Ord + ToString, V>(old: &BTreeMap<K, V>, new: &BTreeMap<K, V>) -> Presence {
    let without = |some: &BTreeMap<K, V>, others: &BTreeMap<K, V>| {
        some.keys().filter(|name| !others.contains_key(*name)).map(K::to_string).collect()
    };
    Presence { added: without(new, old), removed: without(old, new) }
}

/// Returns a topic's differences; `None` if its schemas differ only in documentation.
fn evolution_of(old: &Topic, new: &Topic) -> Result<Option<Evolution>, SchemaError> {
    if old == new {
        return Ok(None);
    }
    let evolution = evolution::compare(&old.schema()?, &new.schema()?);
    Ok(Some(evolution).filter(|evolution| !evolution.differences.is_empty()))
}

/// Iterates over components in both folders.
fn pairs<'a>(
    old: &'a Interfaces,
    new: &'a Interfaces,
) -> impl Iterator<Item = (&'a Component, &'a Component)> {
    new.components().iter().filter_map(|now| Some((old.component(now.name())?, now)))
}

fn indexing(old: &Interfaces, new: &Interfaces) -> Vec<ChangedIndexing> {
    pairs(old, new)
        .filter(|(before, now)| before.indexed() != now.indexed())
        .map(|(_, now)| ChangedIndexing {
            component: now.name().to_owned(),
            indexed: now.indexed(),
        })
        .collect()
}

fn enumerations(old: &Interfaces, new: &Interfaces) -> Vec<ChangedEnumeration> {
    let mut changed = Vec::new();
    for (before, now) in pairs(old, new) {
        let classes = [before, now].map(classes_of);
        let names: BTreeSet<&str> =
            classes.iter().flat_map(|known| known.keys().copied()).collect();
        for class in names {
            let [old, new] = [0, 1].map(|at: usize| labels(classes[at].get(class)));
            if old != new {
                let (component, class) = (now.name().to_owned(), class.to_owned());
                changed.push(ChangedEnumeration { component, class, old, new });
            }
        }
    }
    changed
}

fn classes_of(component: &Component) -> BTreeMap<&str, &Arc<Enumeration>> {
    let known = component.enumerations().iter().rev();
    known.map(|known| (known.class.as_str(), known)).collect()
}

fn labels(enumeration: Option<&&Arc<Enumeration>>) -> BTreeMap<String, i64> {
    enumeration.map(|known| known.labels.iter().cloned().collect()).unwrap_or_default()
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = |sign, names: &[String]| names.iter().map(|n| format!("{sign} {n}")).collect();
        let mut lines: Vec<String> = signed('-', &self.removed);
        lines.extend::<Vec<_>>(signed('+', &self.added));
        lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for ChangedEnumeration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:", self.component, self.class)?;
        let labels: BTreeSet<&String> = self.old.keys().chain(self.new.keys()).collect();
        for label in labels {
            match (self.old.get(label), self.new.get(label)) {
                (Some(old), Some(new)) if old != new => write!(f, " {label}={old}->{new}")?,
                (Some(old), None) => write!(f, " -{label}={old}")?,
                (None, Some(new)) => write!(f, " +{label}={new}")?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The report as `helio schema diff OLD NEW` prints it.
impl fmt::Display for InterfacesDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.components, self.topics)?;
        for ChangedIndexing { component, indexed } in &self.indexing {
            writeln!(
                f,
                "~ {component} {} indexed",
                if *indexed { "is now" } else { "is no longer" }
            )?;
        }
        for enumeration in &self.enumerations {
            writeln!(f, "~ enumeration {enumeration}")?;
        }
        for ChangedTopic { topic, evolution } in &self.changed {
            writeln!(f, "~ {topic}: {}", evolution.level)?;
            for difference in &evolution.differences {
                writeln!(f, "    {difference}")?;
            }
        }
        let (components, topics) = (&self.components, &self.topics);
        writeln!(
            f,
            "components: {} -> {} ({} removed, {} added)",
            self.old.components,
            self.new.components,
            components.removed.len(),
            components.added.len()
        )?;
        writeln!(
            f,
            "topics: {} -> {} ({} removed, {} added)",
            self.old.topics.sum(),
            self.new.topics.sum(),
            topics.removed.len(),
            topics.added.len()
        )?;
        let Summary { full, forward, backward, breaking, unchanged } = self.summary;
        writeln!(
            f,
            "in both: {unchanged} unchanged, {full} full, {forward} forward, {backward} backward, \
             {breaking} breaking"
        )?;
        writeln!(f, "all in all: {}", self.level)
    }
}
