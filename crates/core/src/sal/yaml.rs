//! Components as YAML: one file per component, `X.yaml` or `X/X.yaml`.
//!
//! Constraints. The result is the same model as from XML, within the same limits. The parser has a
//! budget of its own, and anchors are rejected, so the cost is bounded by the text's size. Unknown
//! keys are rejected, too.
//!
//! Format. `name`, `description`, `indexed` (`no`, `any`, or names and indices), `generics` (words
//! as of `AddedGenerics`), `enumerations` (name to labels), and `commands`, `events` and
//! `telemetry`: short name to `description` and `fields`, a list of `name`, `type`, `units`,
//! `count`, `description` and `enumeration`. Labels are a list, numbered from 1, or a mapping to
//! numbers. A field names one of the enumerations or has labels of its own.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{Options, Spanned};

use super::enumeration::numbered;
use super::field::{FieldList, FieldType, is_name, is_part};
use super::naming::is_component;
use super::topic::Template;
use super::xml::error_at;
use super::{
    Enumeration, Field, Indexing, MAX_COUNT, MAX_NODES, SalCause, SalError, SalType, TopicKind,
};

/// The deepest nesting: file, topics, topic, fields, field, enumeration, and as much again.
const MAX_DEPTH: usize = 12;
/// The most characters that a message quotes.
const MAX_QUOTED: usize = 300;

/// A component as in its file.
pub(super) struct Read {
    pub(super) name: Arc<str>,
    pub(super) description: String,
    pub(super) indexing: Indexing,
    /// Words with their lines.
    pub(super) generics: Vec<(String, u32)>,
    pub(super) own: Own,
}

/// The topics and enumerations of a file, topics with their category.
#[derive(Default)]
pub(super) struct Own {
    pub(super) topics: Vec<(Template, Option<String>)>,
    pub(super) enumerations: Vec<Arc<Enumeration>>,
}

/// Reads a component, whose name is that of its file.
pub(super) fn component(file: &str, expected: &str, text: &str) -> Result<Read, SalError> {
    let document: Document = parse(file, text)?;
    let name = &document.name;
    if name.value != expected {
        let (found, expected) = (clip(&name.value), expected.to_owned());
        return Err(at(file, name, SalCause::ComponentName { found, expected }));
    }
    if !is_component(expected) {
        return Err(at(file, name, SalCause::Name(clip(expected))));
    }
    let indexing = match document.indexed {
        None => Indexing::Single,
        Some(indexed) => match indexed.value {
            Indexed::No => Indexing::Single,
            Indexed::Any => Indexing::Any,
            Indexed::Named(ref labels) => {
                let named = labels.numbered().map_err(|cause| at(file, &indexed, cause))?;
                Indexing::Named(named)
            }
        },
    };
    let generics = document.generics.unwrap_or_default();
    let topics = Topics {
        enumerations: document.enumerations,
        commands: document.commands,
        events: document.events,
        telemetry: document.telemetry,
    };
    let own = topics.read(file)?;
    if let Some(category) = own.topics.iter().find_map(|topic| topic.1.as_ref()) {
        return Err(error_at(file, 1, SalCause::Category(clip(category))));
    }
    Ok(Read {
        name: expected.into(),
        description: document.description.unwrap_or_default(),
        indexing,
        generics: generics.into_iter().map(|w| (w.value.clone(), line(&w))).collect(),
        own,
    })
}

/// Reads a table of generics.
pub(super) fn generics(file: &str, text: &str) -> Result<Own, SalError> {
    parse::<Topics>(file, text)?.read(file)
}

fn parse<'a, T: Deserialize<'a>>(file: &str, text: &'a str) -> Result<T, SalError> {
    let options: Options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES as usize,
            max_events: 2 * MAX_NODES as usize,
            // Repetition by name costs memory out of proportion to the file's size.
            max_anchors: 0,
            max_aliases: 0,
        },
        merge_keys: MergeKeyPolicy::Error,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line().max(1) as u32);
        let message: String = error.to_string().chars().take(MAX_QUOTED).collect();
        error_at(file, line, SalCause::Yaml(message))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: Spanned<String>,
    description: Option<String>,
    indexed: Option<Spanned<Indexed>>,
    generics: Option<Vec<Spanned<String>>>,
    enumerations: Option<Pairs<Labels>>,
    commands: Option<Pairs<Option<TopicEntry>>>,
    events: Option<Pairs<Option<TopicEntry>>>,
    telemetry: Option<Pairs<Option<TopicEntry>>>,
}

/// A table of generics, and the same part of a component.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Topics {
    enumerations: Option<Pairs<Labels>>,
    commands: Option<Pairs<Option<TopicEntry>>>,
    events: Option<Pairs<Option<TopicEntry>>>,
    telemetry: Option<Pairs<Option<TopicEntry>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicEntry {
    description: Option<String>,
    category: Option<String>,
    fields: Option<Vec<FieldEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldEntry {
    name: Spanned<String>,
    #[serde(rename = "type")]
    kind: Spanned<String>,
    units: Option<String>,
    count: Option<Spanned<i64>>,
    description: Option<String>,
    enumeration: Option<Spanned<Choice>>,
}

impl Topics {
    fn read(self, file: &str) -> Result<Own, SalError> {
        let mut own = Own::default();
        for (name, labels) in self.enumerations.unwrap_or_default().0 {
            if !is_name(&name.value) || name.value.contains('_') {
                return Err(at(file, &name, SalCause::Class(clip(&name.value))));
            }
            let labels = labels.numbered().map_err(|cause| at(file, &name, cause))?;
            own.enumerations.push(Arc::new(Enumeration { class: name.value, labels }));
        }
        let kinds = [
            (TopicKind::Command, self.commands),
            (TopicKind::Event, self.events),
            (TopicKind::Telemetry, self.telemetry),
        ];
        for (kind, entries) in kinds {
            for (name, entry) in entries.unwrap_or_default().0 {
                let topic = topic(file, (kind, &name), entry, &own.enumerations)?;
                own.topics.push(topic);
            }
        }
        Ok(own)
    }
}

fn topic(
    file: &str,
    (kind, name): (TopicKind, &Spanned<String>),
    entry: Option<TopicEntry>,
    enumerations: &[Arc<Enumeration>],
) -> Result<(Template, Option<String>), SalError> {
    let short: Arc<str> = name.value.as_str().into();
    if !is_part(&short) {
        return Err(at(file, name, SalCause::Name(clip(&short))));
    }
    // Telemetry named command_x would be a command in SAL.
    let sal_name = format!("{}{short}", kind.sal_prefix());
    if TopicKind::of_sal_name(&sal_name) != (kind, &*short) {
        let expected = format!("{}_name", kind.segment());
        return Err(at(file, name, SalCause::TopicName { found: clip(&short), expected }));
    }
    let (description, category, entries) = match entry {
        Some(entry) => (entry.description, entry.category, entry.fields),
        None => (None, None, None),
    };
    let mut fields = FieldList::default();
    for entry in entries.unwrap_or_default() {
        let place = line(&entry.name);
        let field = field(file, entry, enumerations)?;
        fields.push(field).map_err(|cause| error_at(file, place, cause))?;
    }
    let description = description.unwrap_or_default().into();
    let fields = fields.into_fields();
    Ok((Template { kind, name: short, description, fields, record: None }, category))
}

fn field(
    file: &str,
    entry: FieldEntry,
    enumerations: &[Arc<Enumeration>],
) -> Result<Field, SalError> {
    let FieldEntry { name, kind, units, count, description, enumeration } = entry;
    if !is_name(&name.value) {
        return Err(at(file, &name, SalCause::Name(clip(&name.value))));
    }
    let sal = SalType::from_name(&kind.value)
        .ok_or_else(|| at(file, &kind, SalCause::Type(clip(&kind.value))))?;
    let count = match count {
        None => 1,
        Some(count) => match u32::try_from(count.value) {
            Ok(1..) if sal == SalType::String && count.value > 1 => {
                return Err(at(file, &count, SalCause::StringArray));
            }
            Ok(elements @ 1..=MAX_COUNT) => elements,
            _ => return Err(at(file, &count, SalCause::Count(count.value.to_string()))),
        },
    };
    let enumeration = match enumeration {
        None => None,
        Some(choice) if !sal.is_integer() => {
            return Err(at(file, &choice, SalCause::NoInteger(sal.name())));
        }
        Some(choice) => Some(chosen(&choice, enumerations).map_err(|c| at(file, &choice, c))?),
    };
    Ok(Field {
        name: name.value.into(),
        field_type: FieldType::Sal(sal),
        count,
        units: units.map_or_else(|| "unitless".into(), Into::into),
        description: description.unwrap_or_default().into(),
        enumeration,
    })
}

fn chosen(
    choice: &Spanned<Choice>,
    enumerations: &[Arc<Enumeration>],
) -> Result<Arc<Enumeration>, SalCause> {
    match &choice.value {
        Choice::Name(name) => {
            let found = enumerations.iter().find(|known| known.class == *name);
            found.cloned().ok_or_else(|| SalCause::NoEnumeration(clip(name)))
        }
        Choice::Labels(labels) => {
            Ok(Arc::new(Enumeration { class: String::new(), labels: labels.numbered()? }))
        }
    }
}

fn line<T>(spanned: &Spanned<T>) -> u32 {
    spanned.referenced.line().max(1) as u32
}

fn at<T>(file: &str, spanned: &Spanned<T>, cause: SalCause) -> SalError {
    error_at(file, line(spanned), cause)
}

fn clip(text: &str) -> String {
    text.trim().chars().take(100).collect()
}

/// A mapping in the order of the file, with the lines of its keys.
struct Pairs<T>(Vec<(Spanned<String>, T)>);

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Pairs(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Labels with their optional numbers.
struct Labels(Vec<(String, Option<i64>)>);

impl Labels {
    fn numbered(&self) -> Result<Vec<(String, i64)>, SalCause> {
        numbered(self.0.iter().map(|(label, value)| Ok((label.as_str(), *value))))
    }
}

/// A reference to an enumeration, or labels.
enum Choice {
    Name(String),
    Labels(Labels),
}

/// The instances of a component, as in the file.
enum Indexed {
    No,
    Any,
    Named(Labels),
}

/// Reads a list, a mapping or a word.
struct Words {
    expecting: &'static str,
}

/// The kind of value found.
enum Word {
    Text(String),
    Boolean(bool),
    Labels(Labels),
}

impl<'de> Visitor<'de> for Words {
    type Value = Word;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_bool<E>(self, word: bool) -> Result<Word, E> {
        Ok(Word::Boolean(word))
    }

    fn visit_str<E>(self, word: &str) -> Result<Word, E> {
        Ok(Word::Text(word.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Word, A::Error> {
        let mut labels = Vec::new();
        while let Some(label) = list.next_element()? {
            labels.push((label, None));
        }
        Ok(Word::Labels(Labels(labels)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Word, A::Error> {
        let mut labels = Vec::new();
        while let Some((label, value)) = map.next_entry()? {
            labels.push((label, Some(value)));
        }
        Ok(Word::Labels(Labels(labels)))
    }
}

/// Reads the values of [`Words`] that `accept` allows.
fn word<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expecting: &'static str,
    accept: impl FnOnce(Word) -> Option<T>,
) -> Result<T, D::Error> {
    let word = deserializer.deserialize_any(Words { expecting })?;
    accept(word).ok_or_else(|| D::Error::custom(format!("expected {expecting}")))
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word(deserializer, "a list of labels, or a mapping of labels to numbers", |word| match word
        {
            Word::Labels(labels) => Some(labels),
            _ => None,
        })
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "the name of an enumeration, a list of labels, or a mapping to numbers";
        word(deserializer, expecting, |word| match word {
            Word::Text(name) => Some(Self::Name(name)),
            Word::Labels(labels) => Some(Self::Labels(labels)),
            Word::Boolean(_) => None,
        })
    }
}

impl<'de> Deserialize<'de> for Indexed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A plain `no` is a boolean to YAML.
        word(deserializer, "no, any, or a mapping of names to indices", |word| match word {
            Word::Boolean(false) => Some(Self::No),
            Word::Text(word) if word == "no" => Some(Self::No),
            Word::Text(word) if word == "any" => Some(Self::Any),
            Word::Labels(labels) => Some(Self::Named(labels)),
            _ => None,
        })
    }
}
