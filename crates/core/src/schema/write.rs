//! Schemas as text: JSON that parses back to the same schema, and the canonical forms.
//!
//! Every walk visits a named type's definition first and its name afterwards, in the order of
//! parsing; [`super::parse`] has bounded the depth.

use std::collections::HashSet;
use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use super::{Field, LogicalType, Node, NodeId, Order, Schema, Type};

/// The canonical forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Parsing Canonical Form of the specification.
    Avro,
    /// The same with the attributes that evolution compares: lengths, units, enumerations, SAL and
    /// logical types.
    Extended,
}

pub(super) fn canonical(schema: &Schema, form: Form) -> String {
    let mut writer = Canonical { schema, form, seen: HashSet::new(), out: String::new() };
    writer.node(NodeId::ROOT);
    writer.out
}

struct Canonical<'a> {
    schema: &'a Schema,
    form: Form,
    seen: HashSet<NodeId>,
    out: String,
}

impl Canonical<'_> {
    fn node(&mut self, id: NodeId) {
        let node = self.schema.node(id);
        if let Some(name) = node.kind.name()
            && !self.seen.insert(id)
        {
            return self.text(name);
        }
        let more = self.logical(node);
        match &node.kind {
            Type::Union(branches) => self.list(branches, |this, branch| this.node(*branch)),
            Type::Array(item) => self.container("array", "items", *item, &more),
            Type::Map(item) => self.container("map", "values", *item, &more),
            Type::Record(_) | Type::Enum(_) | Type::Fixed(_) => self.named(&node.kind, &more),
            plain if more.is_empty() => self.text(plain.word()),
            plain => {
                let _ = write!(self.out, "{{\"type\":\"{}\"{more}}}", plain.word());
            }
        }
    }

    fn container(&mut self, word: &str, key: &str, item: NodeId, more: &str) {
        let _ = write!(self.out, "{{\"type\":\"{word}\",\"{key}\":");
        self.node(item);
        self.out.push_str(more);
        self.out.push('}');
    }

    fn named(&mut self, kind: &Type, more: &str) {
        let name = kind.name().unwrap_or_default();
        let _ = write!(self.out, "{{\"name\":\"{name}\",\"type\":\"{}\"", kind.word());
        match kind {
            Type::Record(record) => {
                self.out.push_str(",\"fields\":");
                self.list(&record.fields, Self::field);
            }
            Type::Enum(symbols) => {
                self.out.push_str(",\"symbols\":");
                self.list(&symbols.symbols, |this, symbol| this.text(symbol));
            }
            Type::Fixed(fixed) => {
                let _ = write!(self.out, ",\"size\":{}", fixed.size);
            }
            _ => {}
        }
        self.out.push_str(more);
        self.out.push('}');
    }

    fn field(&mut self, field: &Field) {
        let _ = write!(self.out, "{{\"name\":\"{}\",\"type\":", field.name);
        self.node(field.kind);
        if self.form == Form::Extended {
            self.extras(field);
        }
        self.out.push('}');
    }

    fn extras(&mut self, field: &Field) {
        if let Some(length) = field.length {
            let _ = write!(self.out, ",\"length\":{length}");
        }
        if let Some(units) = &field.units {
            let _ = write!(self.out, ",\"units\":{}", json!(units));
        }
        if let Some(labels) = &field.enumeration {
            let mut labels: Vec<_> = labels.iter().collect();
            labels.sort();
            let labels: Map<_, _> =
                labels.into_iter().map(|(l, n)| (l.clone(), json!(n))).collect();
            let _ = write!(self.out, ",\"enumeration\":{}", Json::Object(labels));
        }
        if let Some(sal) = &field.sal_type {
            let _ = write!(self.out, ",\"salType\":{}", json!(sal));
        }
    }

    /// The logical type's attributes, each with a comma before it.
    fn logical(&self, node: &Node) -> String {
        let mut out = String::new();
        if self.form == Form::Extended && node.attributes.contains_key("logicalType") {
            let mut keys = vec!["logicalType", "precision", "scale"];
            if let Some(LogicalType::NdArray(_)) = node.logical {
                keys.extend(["dtype", "shape"]);
            }
            for key in keys {
                if let Some(value) = node.attributes.get(key) {
                    let _ = write!(out, ",\"{key}\":{value}");
                }
            }
        }
        out
    }

    fn text(&mut self, text: &str) {
        let _ = write!(self.out, "\"{text}\"");
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.out.push('[');
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            each(self, item);
        }
        self.out.push(']');
    }
}

pub(super) fn json(schema: &Schema) -> Json {
    Writer { schema, seen: HashSet::new() }.node(NodeId::ROOT, "")
}

struct Writer<'a> {
    schema: &'a Schema,
    seen: HashSet<NodeId>,
}

impl Writer<'_> {
    fn node(&mut self, id: NodeId, namespace: &str) -> Json {
        let node = self.schema.node(id);
        let mut out = Map::new();
        match &node.kind {
            Type::Union(branches) => {
                return branches.iter().map(|branch| self.node(*branch, namespace)).collect();
            }
            Type::Array(item) => {
                out.insert("type".into(), "array".into());
                out.insert("items".into(), self.node(*item, namespace));
            }
            Type::Map(item) => {
                out.insert("type".into(), "map".into());
                out.insert("values".into(), self.node(*item, namespace));
            }
            Type::Record(_) | Type::Enum(_) | Type::Fixed(_) => {
                if !self.seen.insert(id) {
                    return reference(node.kind.name().unwrap_or_default(), namespace);
                }
                self.named(&node.kind, namespace, &mut out);
            }
            plain if node.attributes.is_empty() => return plain.word().into(),
            plain => {
                out.insert("type".into(), plain.word().into());
            }
        }
        out.extend(node.attributes.clone());
        Json::Object(out)
    }

    fn named(&mut self, kind: &Type, outer: &str, out: &mut Map<String, Json>) {
        let (namespace, name) = split(kind.name().unwrap_or_default());
        out.insert("type".into(), kind.word().into());
        out.insert("name".into(), name.into());
        if namespace != outer {
            out.insert("namespace".into(), namespace.into());
        }
        let aliases = kind.aliases().iter().map(|alias| reference(alias, namespace));
        insert_some(
            out,
            "aliases",
            Some(aliases.collect::<Vec<_>>()).filter(|all| !all.is_empty()),
        );
        match kind {
            Type::Record(record) => {
                insert_some(out, "doc", record.doc.clone());
                let fields = record.fields.iter().map(|field| self.field(field, namespace));
                out.insert("fields".into(), fields.collect());
                insert_some(out, "description", record.description.clone());
            }
            Type::Enum(symbols) => {
                insert_some(out, "doc", symbols.doc.clone());
                out.insert("symbols".into(), symbols.symbols.clone().into());
                insert_some(out, "default", symbols.default.clone());
            }
            Type::Fixed(fixed) => {
                insert_some(out, "doc", fixed.doc.clone());
                out.insert("size".into(), fixed.size.into());
            }
            _ => {}
        }
    }

    fn field(&mut self, field: &Field, namespace: &str) -> Json {
        let mut out = Map::new();
        out.insert("name".into(), field.name.clone().into());
        out.insert("type".into(), self.node(field.kind, namespace));
        insert_some(&mut out, "default", field.default.clone());
        insert_some(&mut out, "order", field.order.map(order));
        let aliases = Some(field.aliases.clone()).filter(|all| !all.is_empty());
        insert_some(&mut out, "aliases", aliases);
        insert_some(&mut out, "doc", field.doc.clone());
        insert_some(&mut out, "description", field.description.clone());
        insert_some(&mut out, "units", field.units.clone());
        insert_some(&mut out, "length", field.length);
        let labels = |all: &Vec<(String, i64)>| -> Map<_, _> {
            all.iter().map(|(label, number)| (label.clone(), json!(number))).collect()
        };
        insert_some(&mut out, "enumeration", field.enumeration.as_ref().map(labels));
        insert_some(&mut out, "salType", field.sal_type.clone());
        out.extend(field.attributes.clone());
        Json::Object(out)
    }
}

fn insert_some(out: &mut Map<String, Json>, key: &str, value: Option<impl Into<Json>>) {
    if let Some(value) = value {
        out.insert(key.into(), value.into());
    }
}

fn order(order: Order) -> &'static str {
    match order {
        Order::Ascending => "ascending",
        Order::Descending => "descending",
        Order::Ignore => "ignore",
    }
}

/// Returns a type's name as written within `namespace`. A name without namespace is written plain:
/// the parser searches outside too.
fn reference(name: &str, namespace: &str) -> Json {
    let (its, short) = split(name);
    if its == namespace { short.into() } else { name.into() }
}

/// Namespace and plain name of a full name.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}
