//! One component's topics, each compiled on first use.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use helio_bus::Evolution;
use helio_core::sal::{self, Interfaces, TopicKind};
use helio_core::schema::{NodeId, Type};
use helio_core::{Codec, Schema, Value};
use thiserror::Error;

use crate::protocol::Checks;
use crate::sender::PrivatePlace;

/// Why a component's interface, or one of its topics, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InterfaceError {
    /// The interfaces have no such component.
    #[error("there is no component {component}; the interfaces have {known}")]
    NoComponent {
        /// The requested name.
        component: String,
        /// The existing components.
        known: String,
    },
    /// The component has no such topic.
    #[error("{component} has no {kind} {name}; it has {known}")]
    NoTopic {
        /// The component.
        component: String,
        /// The name of the topic's kind.
        kind: &'static str,
        /// The requested name.
        name: String,
        /// Topics of that kind.
        known: String,
    },
    /// A topic's schema cannot be used.
    #[error("the schema of {topic} cannot be used: {reason}")]
    Schema {
        /// The topic.
        topic: String,
        /// The error.
        reason: String,
    },
    /// `HELIO_MISSING_FIELDS` has an unknown value.
    #[error("HELIO_MISSING_FIELDS is {0:?}; it may be refuse or default")]
    MissingFields(String),
    /// The component has no instance of that index.
    #[error("{component} has no instance {index}; {remedy}")]
    Index {
        /// The component.
        component: String,
        /// The requested index.
        index: i32,
        /// The allowed indices.
        remedy: &'static str,
    },
}

/// The most names that an error message lists.
const MAX_LISTED_NAMES: usize = 30;

/// One component's commands, events and telemetry. Cloning shares it.
///
/// Components and their callers may have interfaces of different releases: each decodes the other's
/// samples with its own interface. [`Interface::evolution`] limits the differences.
///
/// ```
/// use helio_component::Interface;
/// use helio_core::sal::TopicKind;
///
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/interfaces");
/// let interfaces = helio_bus::read_interfaces(folder)?;
/// let mount = Interface::of(&interfaces, "MTMount")?;
/// assert!(mount.has(TopicKind::Command, "trackTarget"));
/// assert!(!mount.indexed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Interface(Arc<Inner>);

struct Inner {
    component: sal::Component,
    release: String,
    evolution: Option<Evolution>,
    /// Positions of topics by kind and short name.
    places: HashMap<TopicKind, HashMap<Arc<str>, usize>>,
    shapes: Vec<OnceLock<Result<Arc<Shape>, InterfaceError>>>,
    /// SAL's names of all topics, sorted: SAL numbers commands by their positions in this list.
    sorted: OnceLock<Vec<String>>,
}

impl Interface {
    /// The interface of a component in a folder of interfaces.
    ///
    /// # Errors
    /// [`InterfaceError::NoComponent`].
    pub fn of(interfaces: &Interfaces, component: &str) -> Result<Self, InterfaceError> {
        match interfaces.component(component) {
            Some(found) => Ok(Self::made(found, interfaces.release(), None)),
            None => Err(InterfaceError::NoComponent {
                component: component.to_owned(),
                known: list(interfaces.components().iter().map(sal::Component::name)),
            }),
        }
    }

    /// The interface of a component.
    #[must_use]
    pub fn new(component: &sal::Component) -> Self {
        Self::made(component, "", None)
    }

    /// The same interface with an evolution policy, to which its topics are held when they meet
    /// those of other releases. Without one, the default of [`Evolution`] applies: schemas that
    /// cannot be resolved are refused.
    #[must_use]
    pub fn evolution(&self, policy: impl Into<Option<Evolution>>) -> Self {
        Self::made(&self.0.component, &self.0.release, policy.into())
    }

    fn made(component: &sal::Component, release: &str, evolution: Option<Evolution>) -> Self {
        let mut places: HashMap<TopicKind, HashMap<Arc<str>, usize>> = HashMap::new();
        for (place, topic) in component.topics().iter().enumerate() {
            places.entry(topic.kind()).or_default().insert(topic.name().into(), place);
        }
        let shapes = component.topics().iter().map(|_| OnceLock::new()).collect();
        let (component, release) = (component.clone(), release.to_owned());
        let sorted = OnceLock::new();
        Self(Arc::new(Inner { component, release, evolution, places, shapes, sorted }))
    }

    /// The component's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.component.name()
    }

    /// The component's declaration in the interface files.
    #[must_use]
    pub fn component(&self) -> &sal::Component {
        &self.0.component
    }

    /// The release of the interfaces; see [`Interfaces::release`].
    #[must_use]
    pub fn release(&self) -> &str {
        &self.0.release
    }

    /// Whether the component has several instances, distinguished by `salIndex`.
    #[must_use]
    pub fn indexed(&self) -> bool {
        self.0.component.indexed()
    }

    /// The names of its topics of a kind, sorted.
    pub fn names(&self, kind: TopicKind) -> impl Iterator<Item = &str> {
        self.0.component.topics_of(kind).map(sal::Topic::name)
    }

    /// Whether it has a topic of that kind and short name.
    #[must_use]
    pub fn has(&self, kind: TopicKind, name: &str) -> bool {
        self.place(kind, name).is_some()
    }

    /// A compiled topic.
    ///
    /// # Errors
    /// [`InterfaceError::NoTopic`], [`InterfaceError::Schema`].
    pub fn shape(&self, kind: TopicKind, name: &str) -> Result<Arc<Shape>, InterfaceError> {
        let Some(place) = self.place(kind, name) else {
            return Err(InterfaceError::NoTopic {
                component: self.name().to_owned(),
                kind: kind.segment(),
                name: name.to_owned(),
                known: list(self.names(kind)),
            });
        };
        let topic = &self.0.component.topics()[place];
        let compile = || Shape::compile(topic, self.0.evolution).map(Arc::new);
        self.0.shapes[place].get_or_init(compile).clone()
    }

    /// A command's number in acknowledgements: its position among all topics of the component,
    /// sorted by their SAL names.
    #[must_use]
    pub fn command_number(&self, name: &str) -> Option<i32> {
        let sorted = self.0.sorted.get_or_init(|| {
            let mut names: Vec<_> =
                self.0.component.topics().iter().map(sal::Topic::sal_name).collect();
            names.sort_unstable();
            names
        });
        let name = format!("{}{name}", TopicKind::Command.sal_prefix());
        sorted.binary_search(&name).ok().and_then(|place| i32::try_from(place).ok())
    }

    /// `Name`, or `Name:index` if the component is indexed: SAL's identity of an instance.
    #[must_use]
    pub fn identity(&self, index: i32) -> String {
        if self.indexed() { format!("{}:{index}", self.name()) } else { self.name().to_owned() }
    }

    /// Checks an instance's index: positive if the component is indexed, otherwise 0. Named indices
    /// are not checked: newer interfaces name more.
    ///
    /// # Errors
    /// [`InterfaceError::Index`].
    pub fn check_index(&self, index: i32) -> Result<(), InterfaceError> {
        let remedy = match (self.indexed(), index) {
            (false, 0) | (true, 1..) => return Ok(()),
            (false, _) => "it is not indexed: use 0",
            (true, _) => "it is indexed: use 1 or more",
        };
        Err(InterfaceError::Index { component: self.name().to_owned(), index, remedy })
    }

    fn place(&self, kind: TopicKind, name: &str) -> Option<usize> {
        self.0.places.get(&kind)?.get(name).copied()
    }
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interface({})", self.name())
    }
}

/// Names for a message, the first ones of many.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    let more = names.len().saturating_sub(MAX_LISTED_NAMES);
    names.truncate(MAX_LISTED_NAMES);
    match (names.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// A compiled topic: its schema, its codec, and the positions of its fields.
#[derive(Debug)]
pub struct Shape {
    topic: sal::Topic,
    evolution: Option<Evolution>,
    schema: Schema,
    codec: Codec,
    revcode: String,
    /// A record of default values.
    defaults: Vec<Value>,
    places: HashMap<String, usize>,
    /// The positions of the public fields without a declared default.
    required: Vec<usize>,
    private_place: PrivatePlace,
    checks: OnceLock<Checks>,
}

/// The initial value of a field without a default: empty or zero, as its type permits.
fn zero(schema: &Schema, id: NodeId) -> Value {
    match &schema.node(id).kind {
        Type::Null => Value::Null,
        Type::Boolean => Value::Boolean(false),
        Type::Int => Value::Int(0),
        Type::Long => Value::Long(0),
        Type::Float => Value::Float(0.0),
        Type::Double => Value::Double(0.0),
        Type::Bytes => Value::Bytes(Vec::new()),
        Type::String => Value::String(String::new()),
        Type::Array(items) => match &schema.node(*items).kind {
            Type::Boolean => Value::Booleans(Vec::new()),
            Type::Int => Value::Ints(Vec::new()),
            Type::Long => Value::Longs(Vec::new()),
            Type::Float => Value::Floats(Vec::new()),
            Type::Double => Value::Doubles(Vec::new()),
            _ => Value::Array(Vec::new()),
        },
        Type::Map(_) => Value::Map(Vec::new()),
        Type::Union(branches) => {
            let null = |id: &NodeId| schema.node(*id).kind == Type::Null;
            let place = branches.iter().position(null).unwrap_or(0);
            let value = branches.get(place).map_or(Value::Null, |id| zero(schema, *id));
            Value::Union(place as u32, Box::new(value))
        }
        Type::Record(record) => {
            Value::Record(record.fields.iter().map(|field| zero(schema, field.kind)).collect())
        }
        Type::Enum(_) => Value::Enum(0),
        Type::Fixed(fixed) => Value::Bytes(vec![0; fixed.size]),
    }
}

/// The number of private fields, without `salIndex`.
const PRIVATE_FIELDS: usize = 8;

impl Shape {
    fn compile(topic: &sal::Topic, evolution: Option<Evolution>) -> Result<Self, InterfaceError> {
        let wrong = |reason: String| InterfaceError::Schema { topic: topic.to_string(), reason };
        let schema = topic.schema().map_err(|error| wrong(error.to_string()))?;
        let codec = Codec::new(&schema);
        let fields = schema.fields();
        let defaults = fields.iter().enumerate().map(|(place, field)| match field.default {
            Some(_) => codec.default_value(NodeId::ROOT, place),
            // Interfaces in Avro may lack it.
            None => Ok(zero(&schema, field.kind)),
        });
        let defaults = defaults.collect::<Result<Vec<_>, _>>();
        let defaults = defaults.map_err(|error| wrong(error.to_string()))?;
        let places = public(topic).map(|place| (fields[place].name.clone(), place)).collect();
        let required = topic.fields().iter().zip(public(topic));
        let required = required.filter(|(field, _)| !field.has_default());
        let required = required.map(|(_, place)| place).collect();
        let private_place = PrivatePlace::of(&schema);
        let revcode = topic.revcode();
        let topic = topic.clone();
        let checks = OnceLock::new();
        Ok(Self {
            topic,
            evolution,
            revcode,
            codec,
            defaults,
            places,
            required,
            private_place,
            schema,
            checks,
        })
    }

    /// The topic's declaration in the interface files.
    #[must_use]
    pub fn topic(&self) -> &sal::Topic {
        &self.topic
    }

    /// The short name, for example `trackTarget`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.topic.name()
    }

    /// The evolution policy of its schema, if one is set.
    #[must_use]
    pub fn evolution(&self) -> Option<Evolution> {
        self.evolution
    }

    /// Its schema on the bus.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Its codec.
    #[must_use]
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// The rules for its values.
    #[must_use]
    pub fn checks(&self) -> &Checks {
        self.checks.get_or_init(|| Checks::new(&self.schema))
    }

    /// SAL's revision code, which every sample carries.
    #[must_use]
    pub fn revcode(&self) -> &str {
        &self.revcode
    }

    /// The names of the public fields, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.schema.fields()[self.public()].iter().map(|field| field.name.as_str())
    }

    /// The position of a public field in a record.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The positions and names of the public fields without a declared default, in order. A
    /// command is sent with a value for each of them.
    pub fn required(&self) -> impl Iterator<Item = (usize, &str)> {
        let field = |place: &usize| (*place, self.schema.fields()[*place].name.as_str());
        self.required.iter().map(field)
    }

    /// A record of defaults.
    pub(crate) fn defaults(&self) -> Vec<Value> {
        self.defaults.clone()
    }

    /// The positions of the public fields.
    pub(crate) fn public(&self) -> Range<usize> {
        public(&self.topic)
    }

    /// The position of a private field.
    pub(crate) fn at(&self, field: PrivateField) -> usize {
        self.topic.private_at() + field as usize
    }

    /// Where its samples have the private fields.
    pub(crate) fn private_place(&self) -> &PrivatePlace {
        &self.private_place
    }

    /// The key of an instance's samples: `salIndex` in Avro.
    pub(crate) fn key(&self, index: i32) -> Vec<u8> {
        crate::topic::key(self.topic.indexed(), index)
    }
}

/// The positions of a topic's public fields: behind the private ones, or before them.
fn public(topic: &sal::Topic) -> Range<usize> {
    let (index, private) = (usize::from(topic.indexed()), topic.private_at());
    let first = if private == index { private + PRIVATE_FIELDS } else { index };
    first..first + topic.fields().len()
}

/// The private fields, in SAL's order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PrivateField {
    SndStamp,
    RcvStamp,
    EfdStamp,
    KafkaStamp,
    SeqNum,
    RevCode,
    Identity,
    Origin,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn interfaces() -> Interfaces {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/interfaces");
        helio_bus::read_interfaces(folder).unwrap()
    }

    #[test]
    fn topics_are_compiled_once() {
        let mount = Interface::of(&interfaces(), "MTMount").unwrap();
        let once = mount.shape(TopicKind::Command, "trackTarget").unwrap();
        let again = mount.clone().shape(TopicKind::Command, "trackTarget").unwrap();
        assert!(Arc::ptr_eq(&once, &again));
        assert_eq!(once.revcode(), once.topic().revcode());
        assert_eq!(once.schema().fields()[once.at(PrivateField::Origin)].name, "private_origin");
        assert_eq!(once.place("azimuth"), Some(8));
        assert!(once.key(0).is_empty());
        let mast = Interface::of(&interfaces(), "ESS").unwrap();
        let air = mast.shape(TopicKind::Telemetry, "airFlow").unwrap();
        assert_eq!(air.schema().fields()[air.at(PrivateField::SndStamp)].name, "private_sndStamp");
        assert_eq!((air.key(2), mast.identity(2)), (vec![4], "ESS:2".to_owned()));
        let sky = mast.shape(TopicKind::Telemetry, "skyBrightness").unwrap();
        assert_eq!(sky.schema().fields()[sky.at(PrivateField::SndStamp)].name, "private_sndStamp");
        assert_eq!((sky.public(), sky.place("timestamp")), (1..5, Some(1)));
    }

    #[test]
    fn fields_without_a_default_hold_nothing_at_first() {
        for topic in interfaces().topics() {
            let shape = Shape::compile(topic, None).unwrap_or_else(|e| panic!("{e}"));
            let mut bytes = Vec::new();
            shape.codec().encode(&Value::Record(shape.defaults()), &mut bytes).unwrap();
        }
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let error = Interface::of(&interfaces(), "Dome").unwrap_err().to_string();
        let begin = "there is no component Dome; the interfaces have MTM1M3, MTMount, ESS";
        assert!(error.starts_with(begin), "{error}");
        let mount = Interface::of(&interfaces(), "MTMount").unwrap();
        let error = mount.shape(TopicKind::Command, "fly").unwrap_err().to_string();
        assert!(error.starts_with("MTMount has no command fly; it has disable, enable"), "{error}");
        assert!(mount.check_index(0).is_ok() && mount.check_index(1).is_err());
        let mast = Interface::of(&interfaces(), "ESS").unwrap();
        assert!(mast.check_index(3).is_ok());
        let error = mast.check_index(0).unwrap_err().to_string();
        assert_eq!(error, "ESS has no instance 0; it is indexed: use 1 or more");
    }
}
