//! Attributes of sources: named values of exact types that travel when they change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use helio_core::schema::build::{
    TypeSpec, array, boolean, double, enumeration, long, null, record, string, uint64, union,
};
use helio_core::schema::{DType, HasSchema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The limit of attributes of a source.
pub const MAX_ATTRIBUTES: usize = 1024;
/// The limit of an attribute's name, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The limit of a text, in bytes.
pub const MAX_TEXT_BYTES: usize = 4096;
/// The limit of changes that a view keeps for frames to come.
pub const MAX_CHANGES_AHEAD: usize = 1024;

/// A value of an exact type.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// A truth value.
    Boolean(bool),
    /// An integer of a type, which has it.
    Integer(DType, i128),
    /// A 32-bit IEEE 754 number.
    Float32(f32),
    /// A 64-bit IEEE 754 number.
    Float64(f64),
    /// A text.
    Text(String),
}

/// An attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Wire", try_from = "Wire")]
pub struct Attribute {
    /// The name.
    pub name: String,
    /// The value.
    pub value: AttributeValue,
}

/// The changes of a source's attributes since the revision before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttributeChanges {
    /// The source's name, which is also the sample's key.
    pub source: String,
    /// The number of this state of the attributes, which grows by 1.
    pub revision: u64,
    /// Whether it has all attributes, so that nothing before it counts.
    pub complete: bool,
    /// When, in nanoseconds of TAI since 1970-01-01T00:00:00 TAI.
    pub time: i64,
    /// New values.
    pub changed: Vec<Attribute>,
    /// Names that are gone.
    pub removed: Vec<String>,
}

/// Why an attribute is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AttributeError {
    /// The name or the text is too long.
    #[error("the attribute {name:?} has {found} bytes of {what}, at most {limit} are allowed")]
    Text {
        /// The first characters of the name.
        name: String,
        /// Name or text.
        what: &'static str,
        /// Its bytes.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The number is not of its type.
    #[error("the attribute {name:?}: {number} is no {dtype}")]
    Number {
        /// The name.
        name: String,
        /// The number.
        number: i128,
        /// The type.
        dtype: DType,
    },
    /// There are too many.
    #[error("more than {MAX_ATTRIBUTES} attributes; remove some first")]
    TooMany,
}

/// The form of a sample: numbers as Avro has them, and the exact type. A text is beside the union,
/// of which the codec reads a `string` as the name of a variant.
#[derive(Clone, Serialize, Deserialize)]
struct Wire {
    name: String,
    kind: String,
    value: WireValue,
    text: String,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireValue {
    Null,
    Boolean(bool),
    Long(i64),
    Double(f64),
}

impl From<Attribute> for Wire {
    fn from(attribute: Attribute) -> Self {
        use AttributeValue as V;
        let (kind, value) = match attribute.value {
            V::Boolean(value) => ("boolean", WireValue::Boolean(value)),
            // Of uint64 it has the bits.
            V::Integer(dtype, number) => (dtype.name(), WireValue::Long(number as i64)),
            V::Float32(number) => ("float32", WireValue::Double(number.into())),
            V::Float64(number) => ("float64", WireValue::Double(number)),
            V::Text(text) => {
                let (name, kind) = (attribute.name, "string".to_owned());
                return Self { name, kind, value: WireValue::Null, text };
            }
        };
        Self { name: attribute.name, kind: kind.to_owned(), value, text: String::new() }
    }
}

impl TryFrom<Wire> for Attribute {
    type Error = String;

    fn try_from(wire: Wire) -> Result<Self, String> {
        use AttributeValue as V;
        let Wire { name, kind, value, text } = wire;
        let wrong = || format!("the attribute {name:?} is no {kind}");
        let value = match (value, DType::from_name(&kind)) {
            (WireValue::Boolean(value), None) if kind == "boolean" => V::Boolean(value),
            (WireValue::Null, None) if kind == "string" => V::Text(text),
            (WireValue::Double(number), Some(DType::Float64)) => V::Float64(number),
            (WireValue::Double(number), Some(DType::Float32)) => {
                let narrow = number as f32;
                let exact = f64::from(narrow) == number || number.is_nan();
                exact.then_some(V::Float32(narrow)).ok_or_else(wrong)?
            }
            (WireValue::Long(bits), Some(DType::Uint64)) => {
                V::Integer(DType::Uint64, i128::from(bits as u64))
            }
            (WireValue::Long(number), Some(dtype)) if dtype.holds(number) => {
                V::Integer(dtype, number.into())
            }
            _ => return Err(wrong()),
        };
        let attribute = Self { name, value };
        attribute.check().map_err(|error| error.to_string())?;
        Ok(attribute)
    }
}

impl Attribute {
    fn check(&self) -> Result<(), AttributeError> {
        let text = match &self.value {
            AttributeValue::Text(text) => text.len(),
            _ => 0,
        };
        let sizes = [("name", self.name.len(), MAX_NAME_BYTES), ("text", text, MAX_TEXT_BYTES)];
        for (what, found, limit) in sizes {
            if found > limit {
                let name = self.name.chars().take(64).collect();
                return Err(AttributeError::Text { name, what, found, limit });
            }
        }
        match self.value {
            AttributeValue::Integer(dtype, number) if !dtype.holds(number) => {
                Err(AttributeError::Number { name: self.name.clone(), number, dtype })
            }
            _ => Ok(()),
        }
    }
}

impl AttributeValue {
    /// Returns whether both have one type and the same bits: a NaN is the same as itself.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float32(one), Self::Float32(two)) => one.to_bits() == two.to_bits(),
            (Self::Float64(one), Self::Float64(two)) => one.to_bits() == two.to_bits(),
            (one, two) => one == two,
        }
    }
}

impl HasSchema for AttributeChanges {
    fn type_spec() -> TypeSpec {
        let kinds: Vec<_> =
            DType::ALL.map(DType::name).into_iter().chain(["boolean", "string"]).collect();
        let attribute = record("helio.detector.Attribute")
            .field("name", string())
            .field("kind", enumeration("helio.detector.AttributeKind", &kinds))
            .field("value", union([null(), boolean(), long(), double()]))
            .field("text", string());
        record("helio.detector.AttributeChanges")
            .description("The changes of a source's attributes.")
            .field("source", string())
            .field("revision", uint64())
            .field("complete", boolean())
            .field("time", long().attribute("logicalType", "tai-nanos"))
            .field("changed", array(attribute))
            .field("removed", array(string()))
            .into()
    }
}

/// The attributes at their source: collects changes, and numbers them.
#[derive(Debug)]
pub struct AttributeSource {
    source: String,
    revision: u64,
    complete_every: u64,
    since_complete: u64,
    values: BTreeMap<String, AttributeValue>,
    changed: BTreeSet<String>,
}

impl AttributeSource {
    /// Returns a source without attributes, whose revisions follow `after`: 0, or the last one that
    /// was stored before a restart. The first changes, and then each `complete_every`-th, have all
    /// attributes, so that a log needs no older ones.
    #[must_use]
    pub fn new(source: &str, after: u64, complete_every: u64) -> Self {
        Self {
            source: source.to_owned(),
            revision: after,
            complete_every,
            since_complete: complete_every,
            values: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Sets an attribute. The same value again is no change.
    ///
    /// # Errors
    /// [`AttributeError`] if it exceeds a limit, or a number is not of its type.
    pub fn set(&mut self, name: &str, value: AttributeValue) -> Result<(), AttributeError> {
        let attribute = Attribute { name: name.to_owned(), value };
        attribute.check()?;
        let Attribute { name, value } = attribute;
        match self.values.get(&name) {
            Some(known) if known.is_same(&value) => return Ok(()),
            None if self.values.len() >= MAX_ATTRIBUTES => return Err(AttributeError::TooMany),
            _ => {}
        }
        self.changed.insert(name.clone());
        self.values.insert(name, value);
        Ok(())
    }

    /// Removes an attribute.
    pub fn remove(&mut self, name: &str) {
        if self.values.remove(name).is_some() {
            self.changed.insert(name.to_owned());
        }
    }

    /// The revision that holds for the next frame, once the changes are sent.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the changes to be sent before the next frame; `None` without any.
    pub fn changes(&mut self, time: i64) -> Option<AttributeChanges> {
        if self.changed.is_empty() {
            return None;
        }
        let names = std::mem::take(&mut self.changed);
        self.revision += 1;
        let complete = self.since_complete >= self.complete_every;
        self.since_complete = if complete { 1 } else { self.since_complete + 1 };
        let sent = |name: &String| complete || names.contains(name);
        let changed = self.values.iter().filter(|(name, _)| sent(name));
        let changed = changed
            .map(|(name, value)| Attribute { name: name.clone(), value: value.clone() })
            .collect();
        let gone = names.iter().filter(|name| !complete && !self.values.contains_key(*name));
        let removed = gone.cloned().collect();
        let (source, revision) = (self.source.clone(), self.revision);
        Some(AttributeChanges { source, revision, complete, time, changed, removed })
    }
}

/// Whether a frame's attributes are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributesAt {
    /// [`AttributeView::values`] are those of the frame, unless it names revision 0: then it has
    /// none.
    Known,
    /// Changes before the frame have not come yet: keep it.
    Early,
    /// A later state holds already, or changes were lost: the frame's attributes are not known.
    Unknown,
}

/// The attributes of one source at a reader, as of each frame.
#[derive(Debug, Default)]
pub struct AttributeView {
    values: BTreeMap<String, AttributeValue>,
    revision: u64,
    /// Whether the values are all of the revision.
    known: bool,
    ahead: VecDeque<AttributeChanges>,
}

impl AttributeView {
    /// Takes changes, in the order of the topic; repeated ones are ignored. Of more than
    /// [`MAX_CHANGES_AHEAD`] that no frame asked for, the oldest are applied.
    pub fn push(&mut self, changes: AttributeChanges) {
        let newest = self.ahead.back().map_or(self.revision, |last| last.revision);
        if changes.revision <= newest {
            return;
        }
        self.ahead.push_back(changes);
        if self.ahead.len() > MAX_CHANGES_AHEAD
            && let Some(oldest) = self.ahead.pop_front()
        {
            self.apply(oldest);
        }
    }

    /// Advances to the revision of a frame.
    pub fn advance(&mut self, revision: u64) -> AttributesAt {
        while self.ahead.front().is_some_and(|next| next.revision <= revision) {
            self.ahead.pop_front().into_iter().for_each(|next| self.apply(next));
        }
        match self.revision.cmp(&revision) {
            _ if revision == 0 => AttributesAt::Known,
            std::cmp::Ordering::Equal if self.known => AttributesAt::Known,
            std::cmp::Ordering::Less if self.ahead.is_empty() => AttributesAt::Early,
            _ => AttributesAt::Unknown,
        }
    }

    /// All attributes of the revision that was reached.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, AttributeValue> {
        &self.values
    }

    fn apply(&mut self, changes: AttributeChanges) {
        self.known = changes.complete || (self.known && changes.revision == self.revision + 1);
        self.revision = changes.revision;
        if changes.complete || !self.known {
            self.values.clear();
        }
        if !self.known {
            return;
        }
        for name in &changes.removed {
            self.values.remove(name);
        }
        let room = MAX_ATTRIBUTES;
        for Attribute { name, value } in changes.changed.into_iter().take(room) {
            if self.values.len() < room || self.values.contains_key(&name) {
                self.values.insert(name, value);
            } else {
                self.known = false;
            }
        }
    }
}
