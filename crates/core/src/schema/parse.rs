//! From JSON to a checked schema.
//!
//! Operation: [`Parser`] converts JSON to nodes and resolves names. [`finish`] then copies the
//! reachable nodes into a new arena in walking order (so that equal schemas have equal arenas). It
//! bounds the depth, rejects records without any value, and checks the defaults. All recursion is
//! bounded: over JSON by the JSON parser's own limit, over nodes by [`MAX_SCHEMA_DEPTH`].

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value as Json};

use super::default::check_defaults;
use super::logical::logical;
use super::{
    Enum, Field, Fixed, MAX_BRANCHES, MAX_LENGTH, MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH,
    MAX_SCHEMA_NODES, Node, NodeId, Order, Record, Schema, SchemaError, Type,
};

type Result<T> = std::result::Result<T, SchemaError>;
type Object = Map<String, Json>;

pub(super) fn one(text: &str) -> Result<Schema> {
    one_json(&json("the schema", text)?)
}

pub(super) fn one_json(json: &Json) -> Result<Schema> {
    let mut parser = Parser::default();
    let root = parser.node(json, "", 0)?;
    finish(parser.nodes, root)
}

/// Reads a text as JSON, within the limits. `at` is its name in errors.
pub(super) fn json(at: &str, text: &str) -> Result<Json> {
    if text.len() > MAX_SCHEMA_BYTES {
        return Err(SchemaError::Limit { what: "bytes of text", limit: MAX_SCHEMA_BYTES });
    }
    let bare = text.trim();
    if Type::primitive(bare).is_some() {
        return Ok(Json::String(bare.to_owned()));
    }
    serde_json::from_str(text)
        .map_err(|error| SchemaError::Json { at: at.to_owned(), problem: error.to_string() })
}

/// Converts JSON to nodes. Announced names may be used before they are defined.
#[derive(Default)]
pub(super) struct Parser {
    /// The nodes; `None` for an announced name that is not defined yet.
    pub(super) nodes: Vec<Option<Node>>,
    /// The indices of named types.
    pub(super) names: HashMap<String, NodeId>,
    /// Number of fields so far.
    fields: usize,
    /// The name of the current text, if there are several.
    pub(super) file: Option<String>,
    /// The records and fields around the current position, outermost first.
    place: Vec<(String, Option<String>)>,
}

impl Parser {
    /// Returns the current position, for errors.
    fn at(&self) -> String {
        let place = match self.place.last() {
            None => "the schema's root".to_owned(),
            Some((record, None)) => record.clone(),
            Some((record, Some(field))) => format!("{record}, field {field:?}"),
        };
        match &self.file {
            Some(file) => format!("{file}: {place}"),
            None => place,
        }
    }

    fn reserve(&mut self) -> Result<NodeId> {
        if self.nodes.len() + self.fields >= MAX_SCHEMA_NODES {
            return Err(SchemaError::Limit { what: "types and fields", limit: MAX_SCHEMA_NODES });
        }
        self.nodes.push(None);
        Ok(NodeId((self.nodes.len() - 1) as u32))
    }

    fn put(&mut self, node: Node) -> Result<NodeId> {
        let id = self.reserve()?;
        self.nodes[id.index()] = Some(node);
        Ok(id)
    }

    /// Announces a name before its definition is read.
    pub(super) fn announce(&mut self, name: String) -> Result<NodeId> {
        let id = self.reserve()?;
        self.names.insert(name, id);
        Ok(id)
    }

    /// The same for one of several files; no other may define the name.
    pub(super) fn announce_once(&mut self, name: String) -> Result<()> {
        if self.names.contains_key(&name) {
            return Err(SchemaError::Duplicate { what: "type", name, at: self.at() });
        }
        self.announce(name).map(drop)
    }

    pub(super) fn node(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<NodeId> {
        if depth > MAX_SCHEMA_DEPTH {
            return Err(SchemaError::Limit { what: "levels", limit: MAX_SCHEMA_DEPTH });
        }
        match json {
            Json::String(word) => self.word(word, namespace, Object::new()),
            Json::Array(branches) => self.union(branches, namespace, depth),
            Json::Object(object) => self.object(object, namespace, depth),
            other => Err(SchemaError::NoType { found: shorten(other), at: self.at() }),
        }
    }

    fn word(&mut self, word: &str, namespace: &str, attributes: Object) -> Result<NodeId> {
        if let Some(kind) = Type::primitive(word) {
            let logical = logical(&kind, &attributes);
            return self.put(Node { kind, logical, attributes });
        }
        let full = full_name(word, namespace);
        let found = self.names.get(&full).or_else(|| self.names.get(word));
        found.copied().ok_or_else(|| SchemaError::UnknownType {
            name: word.to_owned(),
            at: self.at(),
            remedy: if self.file.is_some() {
                "; add the file that defines it"
            } else {
                " before its use; load the file that defines it together with this one"
            },
        })
    }

    fn union(&mut self, branches: &[Json], namespace: &str, depth: usize) -> Result<NodeId> {
        if branches.is_empty() {
            return Err(SchemaError::NoType { found: "an empty union".to_owned(), at: self.at() });
        }
        if branches.len() > MAX_BRANCHES {
            return Err(SchemaError::Limit { what: "branches of a union", limit: MAX_BRANCHES });
        }
        let id = self.reserve()?;
        let mut ids = Vec::with_capacity(branches.len());
        for branch in branches {
            if branch.is_array() {
                return Err(SchemaError::NestedUnion { at: self.at() });
            }
            ids.push(self.node(branch, namespace, depth + 1)?);
        }
        let kind = Type::Union(ids);
        self.nodes[id.index()] = Some(Node { kind, logical: None, attributes: Object::new() });
        Ok(id)
    }

    fn object(&mut self, object: &Object, namespace: &str, depth: usize) -> Result<NodeId> {
        let word = match object.get("type") {
            Some(Json::String(word)) => word.as_str(),
            Some(inner @ (Json::Object(_) | Json::Array(_))) => {
                return self.node(inner, namespace, depth + 1);
            }
            Some(other) => return Err(self.wrong("type", format!("is {}", shorten(other)))),
            None => return Err(self.wrong("type", "is missing")),
        };
        match word {
            "array" => self.container(object, "items", Type::Array, namespace, depth),
            "map" => self.container(object, "values", Type::Map, namespace, depth),
            "record" | "error" | "enum" | "fixed" => self.named(word, object, namespace, depth),
            word => self.word(word, namespace, others(object, &["type"])),
        }
    }

    fn container(
        &mut self,
        object: &Object,
        key: &'static str,
        kind: fn(NodeId) -> Type,
        namespace: &str,
        depth: usize,
    ) -> Result<NodeId> {
        let id = self.reserve()?;
        let inner = object.get(key).ok_or_else(|| self.wrong(key, "is missing"))?;
        let inner = self.node(inner, namespace, depth + 1)?;
        let attributes = others(object, &["type", key]);
        self.nodes[id.index()] = Some(Node { kind: kind(inner), logical: None, attributes });
        Ok(id)
    }

    fn named(&mut self, word: &str, object: &Object, outer: &str, depth: usize) -> Result<NodeId> {
        let name = self.full_name_of(object, outer)?;
        let id = match self.names.get(&name) {
            Some(id) if self.nodes[id.index()].is_none() && self.file.is_some() => *id,
            Some(_) => {
                return Err(SchemaError::Duplicate { what: "type", name, at: self.at() });
            }
            None => self.announce(name.clone())?,
        };
        self.place.push((name.clone(), None));
        let namespace = super::write::split(&name).0.to_owned();
        let aliases = self.names_in(object, Some(&namespace))?;
        let doc = self.text(object, "doc")?;
        let known: &[&str];
        let kind = match word {
            "enum" => {
                known = &["symbols", "default"];
                Type::Enum(self.enumeration(object, name, aliases, doc)?)
            }
            "fixed" => {
                known = &["size"];
                let size = self.number(object, "size")?;
                let size = size.ok_or_else(|| self.wrong("size", "is missing"))?;
                Type::Fixed(Fixed { name, aliases, doc, size })
            }
            _ => {
                known = &["fields", "description"];
                let description = self.text(object, "description")?;
                let fields = self.fields(object, &namespace, depth)?;
                Type::Record(Record { name, aliases, doc, description, fields })
            }
        };
        self.place.pop();
        let mut attributes = others(object, &["type", "name", "namespace", "aliases", "doc"]);
        attributes.retain(|key, _| !known.contains(&key.as_str()));
        let logical = logical(&kind, &attributes);
        self.nodes[id.index()] = Some(Node { kind, logical, attributes });
        Ok(id)
    }

    pub(super) fn full_name_of(&self, object: &Object, outer: &str) -> Result<String> {
        let name = object.get("name").and_then(Json::as_str);
        let name = name.ok_or_else(|| self.wrong("name", "is missing or no text"))?;
        let namespace = match object.get("namespace") {
            None => outer,
            Some(Json::Null) => "",
            Some(Json::String(namespace)) => namespace,
            Some(other) => return Err(self.wrong("namespace", format!("is {}", shorten(other)))),
        };
        let full = full_name(name, namespace);
        if name.is_empty() || Type::primitive(&full).is_some() || !full.split('.').all(is_name) {
            return Err(SchemaError::Name { name: full, at: self.at() });
        }
        Ok(full)
    }

    /// Returns the `aliases`, as full names if there is a namespace.
    fn names_in(&self, object: &Object, namespace: Option<&str>) -> Result<Vec<String>> {
        let Some(aliases) = object.get("aliases") else { return Ok(Vec::new()) };
        let aliases = aliases.as_array().ok_or_else(|| self.wrong("aliases", "is no array"))?;
        let one = |alias: &Json| {
            let alias = alias.as_str().ok_or_else(|| self.wrong("aliases", "has no text in it"))?;
            let name = namespace.map_or(alias.to_owned(), |space| full_name(alias, space));
            let legal =
                if namespace.is_some() { name.split('.').all(is_name) } else { is_name(&name) };
            if legal { Ok(name) } else { Err(SchemaError::Name { name, at: self.at() }) }
        };
        aliases.iter().map(one).collect()
    }

    fn enumeration(
        &self,
        object: &Object,
        name: String,
        aliases: Vec<String>,
        doc: Option<String>,
    ) -> Result<Enum> {
        let symbols = object.get("symbols").and_then(Json::as_array);
        let symbols = symbols.filter(|all| !all.is_empty());
        let symbols = symbols.ok_or_else(|| self.wrong("symbols", "is no array with symbols"))?;
        let mut seen = HashSet::new();
        let mut out = Vec::with_capacity(symbols.len());
        for symbol in symbols {
            let symbol =
                symbol.as_str().ok_or_else(|| self.wrong("symbols", "has no text in it"))?;
            if !is_name(symbol) {
                return Err(SchemaError::Name { name: symbol.to_owned(), at: self.at() });
            }
            if !seen.insert(symbol) {
                let name = symbol.to_owned();
                return Err(SchemaError::Duplicate { what: "symbol", name, at: self.at() });
            }
            out.push(symbol.to_owned());
        }
        let default = self.text(object, "default")?;
        if let Some(default) = &default
            && !seen.contains(default.as_str())
        {
            return Err(self.wrong("default", format!("names no symbol: {default:?}")));
        }
        Ok(Enum { name, aliases, doc, symbols: out, default })
    }

    fn fields(&mut self, object: &Object, namespace: &str, depth: usize) -> Result<Vec<Field>> {
        let fields = object.get("fields").and_then(Json::as_array);
        let fields = fields.ok_or_else(|| self.wrong("fields", "is missing or no array"))?;
        self.fields += fields.len();
        let mut seen = HashSet::new();
        let mut out = Vec::with_capacity(fields.len());
        for field in fields {
            let field = self.field(field, namespace, depth)?;
            if !seen.insert(field.name.clone()) {
                let name = field.name;
                return Err(SchemaError::Duplicate { what: "field", name, at: self.at() });
            }
            out.push(field);
        }
        Ok(out)
    }

    fn field(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<Field> {
        let object = json.as_object();
        let object =
            object.ok_or_else(|| self.wrong("fields", "has something else than objects"))?;
        let name = object.get("name").and_then(Json::as_str);
        let name = name.ok_or_else(|| self.wrong("name", "of a field is missing or no text"))?;
        if !is_name(name) {
            return Err(SchemaError::Name { name: name.to_owned(), at: self.at() });
        }
        self.enter(Some(name));
        let kind = object.get("type").ok_or_else(|| self.wrong("type", "is missing"))?;
        let kind = self.node(kind, namespace, depth + 3)?;
        let field = Field {
            name: name.to_owned(),
            aliases: self.names_in(object, None)?,
            kind,
            default: object.get("default").cloned(),
            order: self.order(object)?,
            doc: self.text(object, "doc")?,
            description: self.text(object, "description")?,
            units: self.text(object, "units")?,
            length: self.number(object, "length")?,
            enumeration: self.labels(object)?,
            sal_type: self.text(object, "salType")?,
            attributes: others(object, FIELD_KEYS),
        };
        self.enter(None);
        Ok(field)
    }

    fn enter(&mut self, field: Option<&str>) {
        if let Some(place) = self.place.last_mut() {
            place.1 = field.map(str::to_owned);
        }
    }

    fn order(&self, object: &Object) -> Result<Option<Order>> {
        Ok(match self.text(object, "order")?.as_deref() {
            None => None,
            Some("ascending") => Some(Order::Ascending),
            Some("descending") => Some(Order::Descending),
            Some("ignore") => Some(Order::Ignore),
            Some(_) => {
                return Err(self.wrong("order", "is neither ascending, descending nor ignore"));
            }
        })
    }

    fn labels(&self, object: &Object) -> Result<Option<Vec<(String, i64)>>> {
        let Some(labels) = object.get("enumeration") else { return Ok(None) };
        let wrong = || self.wrong("enumeration", "is no object of labels and whole numbers");
        let labels = labels.as_object().ok_or_else(wrong)?;
        let one = |(label, number): (&String, &Json)| {
            Ok((label.clone(), number.as_i64().ok_or_else(wrong)?))
        };
        labels.iter().map(one).collect::<Result<Vec<_>>>().map(Some)
    }

    fn text(&self, object: &Object, key: &'static str) -> Result<Option<String>> {
        match object.get(key) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(key, format!("is no text: {}", shorten(other)))),
        }
    }

    fn number(&self, object: &Object, key: &'static str) -> Result<Option<usize>> {
        let Some(json) = object.get(key) else { return Ok(None) };
        let number = json.as_u64().and_then(|n| usize::try_from(n).ok());
        let number = number.filter(|n| *n <= MAX_LENGTH);
        let wrong = || {
            let found = shorten(json);
            self.wrong(key, format!("is no whole number from 0 to {MAX_LENGTH}: {found}"))
        };
        number.map(Some).ok_or_else(wrong)
    }

    fn wrong(&self, attribute: &'static str, problem: impl Into<String>) -> SchemaError {
        SchemaError::Attribute { attribute, problem: problem.into(), at: self.at() }
    }
}

const FIELD_KEYS: &[&str] = &[
    "name",
    "type",
    "aliases",
    "default",
    "order",
    "doc",
    "description",
    "units",
    "length",
    "enumeration",
    "salType",
];

fn others(object: &Object, known: &[&str]) -> Object {
    let other = |(key, _): &(&String, &Json)| !known.contains(&key.as_str());
    object.iter().filter(other).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() {
        name.strip_prefix('.').unwrap_or(name).to_owned()
    } else {
        format!("{namespace}.{name}")
    }
}

/// Returns whether Avro allows the name (one segment of it).
pub(super) fn is_name(name: &str) -> bool {
    let start = |b: &u8| b.is_ascii_alphabetic() || *b == b'_';
    name.as_bytes().first().is_some_and(start)
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// JSON in at most some 60 characters, for errors.
pub(crate) fn shorten(json: &Json) -> String {
    match json {
        Json::Array(_) => "an array".to_owned(),
        Json::Object(_) => "an object".to_owned(),
        Json::String(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        other => other.to_string(),
    }
}

/// Creates the schema of all nodes that `root` reaches.
pub(super) fn finish(nodes: Vec<Option<Node>>, root: NodeId) -> Result<Schema> {
    let mut copy = Copy { places: vec![None; nodes.len()], from: nodes, to: Vec::new() };
    copy.node(root, 0)?;
    let nodes: Vec<Node> = copy.to.into_iter().flatten().collect();
    check_unions(&nodes)?;
    check_attributes(&nodes)?;
    let least = least_bytes(&nodes)?;
    check_defaults(&nodes)?;
    Ok(Schema::from_nodes(nodes, least))
}

struct Copy {
    from: Vec<Option<Node>>,
    places: Vec<Option<NodeId>>,
    to: Vec<Option<Node>>,
}

impl Copy {
    fn node(&mut self, id: NodeId, depth: usize) -> Result<NodeId> {
        if depth > MAX_SCHEMA_DEPTH {
            return Err(SchemaError::Limit { what: "levels", limit: MAX_SCHEMA_DEPTH });
        }
        if let Some(place) = self.places[id.index()] {
            return Ok(place);
        }
        let place = NodeId(self.to.len() as u32);
        self.to.push(None);
        self.places[id.index()] = Some(place);
        let mut node = self.from[id.index()].clone().ok_or_else(|| SchemaError::UnknownType {
            name: "?".to_owned(),
            at: "the schema".to_owned(),
            remedy: "",
        })?;
        match &mut node.kind {
            Type::Array(item) | Type::Map(item) => *item = self.node(*item, depth + 1)?,
            Type::Union(branches) => {
                for branch in branches {
                    *branch = self.node(*branch, depth + 1)?;
                }
            }
            Type::Record(record) => {
                for field in &mut record.fields {
                    field.kind = self.node(field.kind, depth + 3)?;
                }
            }
            _ => {}
        }
        self.to[place.index()] = Some(node);
        Ok(place)
    }
}

/// Rejects unions in unions, and branches that JSON or names cannot distinguish.
fn check_unions(nodes: &[Node]) -> Result<()> {
    for (at, node) in places(nodes) {
        let Type::Union(branches) = &node.kind else { continue };
        let mut seen = HashSet::new();
        for branch in branches {
            let kind = &nodes[branch.index()].kind;
            if matches!(kind, Type::Union(_)) {
                return Err(SchemaError::NestedUnion { at });
            }
            let name = kind.name().unwrap_or(kind.word());
            if !seen.insert(name) {
                let name = name.to_owned();
                return Err(SchemaError::Duplicate { what: "branch of a union", name, at });
            }
        }
    }
    Ok(())
}

/// Returns the nodes, each with its record and field as text.
fn places(nodes: &[Node]) -> impl Iterator<Item = (String, &Node)> {
    let mut place = vec![None; nodes.len()];
    for node in nodes {
        if let Type::Record(record) = &node.kind {
            for field in &record.fields {
                place[field.kind.index()] = Some((record, field));
            }
        }
    }
    nodes.iter().enumerate().map(move |(i, node)| match place[i] {
        Some((record, field)) => (field_place(record, field), node),
        None => ("the schema".to_owned(), node),
    })
}

pub(super) fn field_place(record: &Record, field: &Field) -> String {
    format!("{}, field {:?}", record.name, field.name)
}

/// Allows `length` on arrays and `enumeration` on integers only.
fn check_attributes(nodes: &[Node]) -> Result<()> {
    for node in nodes {
        let Type::Record(record) = &node.kind else { continue };
        for field in &record.fields {
            let wrong = |attribute, problem: &str| SchemaError::Attribute {
                attribute,
                problem: problem.to_owned(),
                at: field_place(record, field),
            };
            let among = |test: fn(&Type) -> bool| any(nodes, field.kind, test);
            if field.length.is_some() && !among(|kind| matches!(kind, Type::Array(_))) {
                return Err(wrong("length", "stands on a field that is no array"));
            }
            let integer = |kind: &Type| matches!(kind, Type::Int | Type::Long);
            if field.enumeration.is_some() && !among(integer) && !items(nodes, field.kind, integer)
            {
                return Err(wrong("enumeration", "stands on a field that is no integer"));
            }
        }
    }
    Ok(())
}

/// Returns whether the type, or a branch of a union, passes the test.
fn any(nodes: &[Node], id: NodeId, test: impl Fn(&Type) -> bool) -> bool {
    match &nodes[id.index()].kind {
        Type::Union(branches) => branches.iter().any(|b| test(&nodes[b.index()].kind)),
        kind => test(kind),
    }
}

fn items(nodes: &[Node], id: NodeId, test: fn(&Type) -> bool) -> bool {
    let of_items = |kind: &Type| matches!(kind, Type::Array(item) if any(nodes, *item, test));
    any(nodes, id, of_items)
}

/// Computes the fewest bytes of each type's value. Rejects records that directly contain
/// themselves, and so have no value; for this, records are sorted topologically.
fn least_bytes(nodes: &[Node]) -> Result<Vec<u32>> {
    let mut holders = vec![Vec::new(); nodes.len()];
    let mut waits = vec![0_usize; nodes.len()];
    let mut least: Vec<u32> = nodes.iter().map(|node| least_alone(&node.kind)).collect();
    for (i, node) in nodes.iter().enumerate() {
        if matches!(node.kind, Type::Record(_)) {
            for child in node.kind.children() {
                holders[child.index()].push(i);
                waits[i] += 1;
            }
        }
    }
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|i| waits[*i] == 0).collect();
    while let Some(i) = ready.pop() {
        for holder in std::mem::take(&mut holders[i]) {
            least[holder] = least[holder].saturating_add(least[i]);
            waits[holder] -= 1;
            if waits[holder] == 0 {
                ready.push(holder);
            }
        }
    }
    let endless = nodes.iter().zip(&waits).find(|(_, waits)| **waits > 0);
    match endless.and_then(|(node, _)| node.kind.name()) {
        Some(name) => Err(SchemaError::Endless { name: name.to_owned() }),
        None => Ok(least),
    }
}

/// The same without a record's fields. A union has its branch's number, arrays and maps have their
/// end.
fn least_alone(kind: &Type) -> u32 {
    match kind {
        Type::Null | Type::Record(_) => 0,
        Type::Float => 4,
        Type::Double => 8,
        Type::Fixed(fixed) => u32::try_from(fixed.size).unwrap_or(u32::MAX),
        _ => 1,
    }
}
