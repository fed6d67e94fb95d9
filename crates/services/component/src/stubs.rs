//! Typed Python stubs of a component's interface, for type checkers and editors.
//!
//! Constraints. Python creates the classes of topics and enumerations on first use, so no checker
//! can see them. The stub describes them: enumerations and their members have the names that the
//! package creates, and the text passes `mypy --strict`.
//!
//! Format. Enumerations as `IntEnum` classes; a class of values for each topic, `CmdTrackTarget`
//! for `cmd_trackTarget`; then `<Component>Remote` and `<Component>Component` with all attributes.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

use helio_core::SchemaError;
use helio_core::sal::{Component, Enumeration, Field, Topic, TopicKind};
use helio_core::schema::{NodeId, Schema, Type};

/// The private fields at the start of every topic, and their types.
const PRIVATE_FIELDS: [(&str, &str); 8] = [
    ("private_sndStamp", "float"),
    ("private_rcvStamp", "float"),
    ("private_efdStamp", "float"),
    ("private_kafkaStamp", "float"),
    ("private_seqNum", "int"),
    ("private_revCode", "str"),
    ("private_identity", "str"),
    ("private_origin", "int"),
];

/// Names that no attribute can have.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// A Python stub (the text of a `.pyi` file) of a component's interface.
///
/// # Errors
/// [`SchemaError`] if a topic has no schema.
pub fn python_stub(component: &Component) -> Result<String, SchemaError> {
    let enumerations = Enumerations::of(component);
    let mut classes = String::new();
    for topic in component.topics() {
        let schema = topic.schema()?;
        data_class(topic, &schema, &enumerations, &mut classes);
        match topic.kind() {
            TopicKind::Ack => {}
            TopicKind::Command => command_class(topic, &schema, &mut classes),
            TopicKind::Event | TopicKind::Telemetry => writer_class(topic, &schema, &mut classes),
        }
    }
    let mut out = header(component, &classes);
    enumerations.write(&mut out);
    private_class(component.indexed(), &mut out);
    out.push_str(READER);
    out.push_str(&classes);
    sides(component, &mut out);
    Ok(out)
}

fn header(component: &Component, data: &str) -> String {
    let name = component.name();
    let any = if data.contains("Any") { "Any, " } else { "" };
    let mut out = format!(
        "\"\"\"The types of {name}, made by `helio component stubs`; do not edit.\"\"\"\n\n\
         import enum\n\
         from collections.abc import AsyncIterator, Callable\n\
         from typing import {any}Generic, TypeVar\n\n\
         import heliograph\n"
    );
    if data.contains("NDArray[") {
        out.push_str("import numpy as np\nfrom numpy.typing import NDArray\n");
    }
    out.push_str("\n_T = TypeVar(\"_T\", bound=heliograph.TopicData)\n");
    out
}

/// The enumerations of a component, by their names in the package.
struct Enumerations {
    known: Vec<(String, Arc<Enumeration>)>,
    names: HashMap<String, usize>,
}

impl Enumerations {
    /// Enumerations of the sets first, then those of single fields. The first one of a name counts.
    fn of(component: &Component) -> Self {
        let mut all = Self { known: Vec::new(), names: HashMap::new() };
        for enumeration in component.enumerations() {
            all.add(enumeration.class.clone(), enumeration);
        }
        for topic in component.topics() {
            for field in topic.fields() {
                if let Some(enumeration) = &field.enumeration {
                    all.add(enumeration_name(topic, field, enumeration), enumeration);
                }
            }
        }
        all
    }

    fn add(&mut self, name: String, enumeration: &Arc<Enumeration>) {
        let place = self.known.len();
        if let std::collections::hash_map::Entry::Vacant(free) = self.names.entry(name.clone()) {
            free.insert(place);
            self.known.push((name, enumeration.clone()));
        }
    }

    /// The class of a field's scalar values, if it has one.
    fn class_of(&self, topic: &Topic, field: &Field) -> Option<String> {
        if topic.name() == "summaryState" && &*field.name == "summaryState" {
            return Some("heliograph.State".to_owned());
        }
        let enumeration = field.enumeration.as_ref().filter(|_| field.count == 1)?;
        let name = enumeration_name(topic, field, enumeration);
        let known = self.names.get(&name).map(|place| &self.known[*place].1)?;
        // Another enumeration of the same name has no name here; its members are integers.
        Some(if known.labels == enumeration.labels { name } else { "enum.IntEnum".to_owned() })
    }

    fn write(&self, out: &mut String) {
        for (name, enumeration) in &self.known {
            _ = write!(out, "\n\nclass {name}(enum.IntEnum):\n");
            for (label, value) in &enumeration.labels {
                _ = writeln!(out, "    {} = {value}", member(label));
            }
        }
        // Inside a class, the name would refer to the attribute.
        out.push_str("\n\n");
        for (name, _) in &self.known {
            _ = writeln!(out, "_the_{name} = {name}");
        }
        out.push_str("\n\nclass _Enums(heliograph.Enums):\n");
        for (name, _) in &self.known {
            _ = writeln!(out, "    {name}: type[_the_{name}]");
        }
        if self.known.is_empty() {
            out.push_str("    ...\n");
        }
    }
}

/// The enumeration's name in the interface, otherwise the topic's and the field's.
fn enumeration_name(topic: &Topic, field: &Field, enumeration: &Enumeration) -> String {
    match enumeration.class.as_str() {
        "" => format!("{}_{}", capital(topic.name()), field.name),
        class => class.to_owned(),
    }
}

/// A label as a member's name in the package.
fn member(label: &str) -> String {
    let mut name = label.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_");
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    if KEYWORDS.contains(&name.as_str())
        || name == "mro"
        || name.starts_with('_') && name.ends_with('_')
    {
        name.push('_');
    }
    name
}

/// A name with a capital first letter.
fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// The class of a topic's values, for example `CmdTrackTarget`.
fn class_name(topic: &Topic) -> String {
    let prefix = topic.kind().attribute_prefix().trim_end_matches('_');
    format!("{}{}", capital(prefix), capital(topic.name()))
}

/// The private fields of all topics of the component.
fn private_class(indexed: bool, out: &mut String) {
    out.push_str("\n\nclass _Data(heliograph.TopicData):\n");
    if indexed {
        out.push_str("    salIndex: int\n");
    }
    for (name, kind) in PRIVATE_FIELDS {
        _ = writeln!(out, "    {name}: {kind}");
    }
}

/// The values of a topic.
fn data_class(topic: &Topic, schema: &Schema, enumerations: &Enumerations, out: &mut String) {
    _ = write!(out, "\n\nclass {}(_Data):\n", class_name(topic));
    _ = writeln!(out, "    \"\"\"{}\"\"\"\n", docstring(topic.description(), topic.name()));
    for field in topic.fields() {
        let Some(of) = schema.field(&field.name) else { continue };
        let kind = python_type(schema, of.kind);
        let class = enumerations.class_of(topic, field);
        if !is_speakable(&field.name) {
            // Accessible only by getattr.
            _ = writeln!(out, "    # {}: {}", field.name, class.unwrap_or(kind));
            continue;
        }
        _ = writeln!(out, "    {}: {}", field.name, class.unwrap_or(kind));
        _ = writeln!(out, "    \"\"\"{}\"\"\"", docstring(&description(field), &field.name));
    }
    let arguments = arguments(topic, schema, &[], |_| true);
    let keywords = if arguments.is_empty() { "" } else { ", *" };
    _ = writeln!(out, "    def __init__(self{keywords}{arguments}) -> None: ...");
}

/// The description of a field, with its units and length.
fn description(field: &Field) -> String {
    let mut text = field.description.to_string();
    let length = (field.count > 1).then(|| format!("{} elements", field.count));
    let units = (&*field.units != "unitless").then(|| field.units.to_string());
    let more: Vec<String> = length.into_iter().chain(units).collect();
    if !more.is_empty() {
        _ = write!(text, " ({})", more.join(", "));
    }
    text
}

/// Text for a one-line docstring.
fn docstring(text: &str, else_text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = if words.is_empty() { else_text.to_owned() } else { words.join(" ") };
    text.replace('\\', "\\\\").replace('"', "'")
}

/// Whether a field's name is a valid attribute and hides no type that is used here.
fn is_speakable(name: &str) -> bool {
    !KEYWORDS.contains(&name) && !["bool", "bytes", "float", "int", "str"].contains(&name)
}

/// The Python type of a decoded value.
fn python_type(schema: &Schema, id: NodeId) -> String {
    let node = schema.node(id);
    if node.logical.is_some() {
        return "Any".to_owned();
    }
    match &node.kind {
        Type::Null => "None".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::Int | Type::Long => "int".to_owned(),
        Type::Float | Type::Double => "float".to_owned(),
        Type::Bytes | Type::Fixed(_) => "bytes".to_owned(),
        Type::String | Type::Enum(_) => "str".to_owned(),
        Type::Array(items) => match numpy_type(&schema.node(*items).kind) {
            Some(numpy) => format!("NDArray[np.{numpy}]"),
            None => format!("list[{}]", python_type(schema, *items)),
        },
        Type::Map(values) => format!("dict[str, {}]", python_type(schema, *values)),
        Type::Record(_) => "dict[str, Any]".to_owned(),
        Type::Union(branches) => {
            let mut seen = HashSet::new();
            let branches = branches.iter().map(|branch| python_type(schema, *branch));
            branches.filter(|kind| seen.insert(kind.clone())).collect::<Vec<_>>().join(" | ")
        }
    }
}

/// The element type of an array that numpy holds.
fn numpy_type(items: &Type) -> Option<&'static str> {
    Some(match items {
        Type::Boolean => "bool_",
        Type::Int => "int32",
        Type::Long => "int64",
        Type::Float => "float32",
        Type::Double => "float64",
        _ => return None,
    })
}

/// The types that a setter accepts: for arrays, sequences too.
fn accepted(kind: &str) -> String {
    match kind.strip_prefix("NDArray[np.").and_then(|rest| rest.strip_suffix(']')) {
        Some("bool_") => format!("{kind} | list[bool]"),
        Some("int32" | "int64") => format!("{kind} | list[int]"),
        Some(_) => format!("{kind} | list[float]"),
        None => kind.to_owned(),
    }
}

/// Readers of any topic; commands and writers have their own classes below.
const READER: &str = r#"

class _Read(heliograph.ReadTopic, Generic[_T]):
    def __aiter__(self) -> AsyncIterator[_T]: ...
    async def __anext__(self) -> _T: ...
    def get(self) -> _T | None: ...
    async def aget(self, timeout: float | None = None) -> _T: ...
    async def next(self, *, flush: bool = False, timeout: float | None = None) -> _T: ...
    def get_oldest(self) -> _T | None: ...
    @property
    def callback(self) -> Callable[[_T], object] | None: ...
    @callback.setter
    def callback(self, call: Callable[[_T], object] | None) -> None: ...
"#;

/// The options of a call beside its command's fields.
const CALL_OPTIONS: &str = "timeout: float | None = None, expiry: float | None = None, \
    key: str | None = None, validate: bool = False, wait_done: bool = True, \
    progress: Callable[[heliograph.Ack], object] | None = None";

/// Their names: a field of such a name can be set by `data` only.
const CALL_KEYWORDS: [&str; 6] = ["timeout", "expiry", "key", "validate", "wait_done", "progress"];

/// A command on the caller's side.
fn command_class(topic: &Topic, schema: &Schema, out: &mut String) {
    let class = class_name(topic);
    let fields = arguments(topic, schema, &CALL_KEYWORDS, |_| true);
    _ = write!(out, "\n\nclass _{class}Call(heliograph.RemoteCommand):\n    data: {class}\n");
    if fields.is_empty() {
        return;
    }
    let values = arguments(topic, schema, &CALL_KEYWORDS, Field::has_default);
    _ = writeln!(out, "    def set(self, *{fields}) -> None: ...  # type: ignore[override]");
    _ = writeln!(
        out,
        "    def set_start(  # type: ignore[override]\n        \
         self, *, {CALL_OPTIONS}{values}\n    ) -> heliograph.CommandCall: ..."
    );
}

/// An event or telemetry on the component's side.
fn writer_class(topic: &Topic, schema: &Schema, out: &mut String) {
    let class = class_name(topic);
    let fields = arguments(topic, schema, &["force_output"], |_| true);
    _ = writeln!(out, "\n\nclass _{class}Write(heliograph.WriteTopic):");
    _ = writeln!(out, "    @property\n    def data(self) -> {class}: ...");
    _ = writeln!(out, "    async def write(self) -> {class}: ...");
    if fields.is_empty() {
        return;
    }
    _ = writeln!(out, "    def set(self, *{fields}) -> bool: ...  # type: ignore[override]");
    _ = writeln!(
        out,
        "    async def set_write(  # type: ignore[override]\n        self, *, \
         force_output: bool | None = None{fields}\n    ) -> heliograph.SetWriteResult: ..."
    );
}

/// Fields as keyword arguments, each preceded by a comma.
fn arguments(
    topic: &Topic,
    schema: &Schema,
    taken: &[&str],
    optional: impl Fn(&Field) -> bool,
) -> String {
    let speakable =
        |field: &&Field| is_speakable(&field.name) && !taken.contains(&field.name.as_ref());
    let mut arguments = String::new();
    for field in topic.fields().iter().filter(speakable) {
        if let Some(of) = schema.field(&field.name) {
            let kind = accepted(&python_type(schema, of.kind));
            let none = if optional(field) { " | None = None" } else { "" };
            _ = write!(arguments, ", {}: {kind}{none}", field.name);
        }
    }
    arguments
}

/// The component on the caller's side and on its own side.
fn sides(component: &Component, out: &mut String) {
    let name = component.name();
    let topics = || component.topics().iter().filter(|topic| topic.kind() != TopicKind::Ack);
    _ = writeln!(out, "\n\nclass {name}Remote(heliograph.Remote):");
    for topic in topics() {
        let class = class_name(topic);
        _ = match topic.kind() {
            TopicKind::Command => writeln!(out, "    {}: _{class}Call", topic.attribute()),
            _ => writeln!(out, "    {}: _Read[{class}]", topic.attribute()),
        };
    }
    _ = writeln!(out, "    @property\n    def enums(self) -> _Enums: ...");
    _ = writeln!(out, "\n\nclass {name}Component(heliograph.Component):");
    for topic in topics().filter(|topic| topic.kind() != TopicKind::Command) {
        _ = writeln!(out, "    {}: _{}Write", topic.attribute(), class_name(topic));
    }
    _ = writeln!(out, "    @property\n    def enums(self) -> _Enums: ...");
}
