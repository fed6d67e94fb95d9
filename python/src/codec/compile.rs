//! From a schema's JSON, and the Python classes that stand for its names, to a plan.

use std::collections::HashMap;

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};
use serde_json::{Map, Value};

use super::default;
use super::plan::{
    ArrayPlan, ClassPlan, EnumPlan, FieldPlan, LogicalPlan, Node, NodeId, Plan, RecordPlan,
};
use crate::errors;
use crate::ndarray::Numeric;

/// Compiles the JSON of a schema that the core has already checked. `classes` names the Python
/// class of a record or enum by full name, and the `IntEnum` of an int field by `Record.field`.
pub(crate) fn compile(py: Python<'_>, json: &Value, classes: &Bound<'_, PyDict>) -> PyResult<Plan> {
    let plan = Plan { nodes: Vec::new(), root: NodeId(0) };
    let mut compiler = Compiler { py, classes, plan, names: HashMap::new() };
    let root = compiler.schema(json, "", &Field::default())?;
    compiler.plan.root = root;
    Ok(compiler.plan)
}

struct Compiler<'a, 'py> {
    py: Python<'py>,
    classes: &'a Bound<'py, PyDict>,
    plan: Plan,
    names: HashMap<String, NodeId>,
}

/// What a field says about the type that stands in it.
#[derive(Default, Clone)]
struct Field<'py> {
    length: Option<usize>,
    members: Option<Bound<'py, PyAny>>,
}

fn wrong(message: impl AsRef<str>) -> PyErr {
    errors::raise("SchemaError", message.as_ref())
}

fn text<'a>(json: &'a Map<String, Value>, name: &str) -> PyResult<&'a str> {
    let value = json.get(name).and_then(Value::as_str);
    value.ok_or_else(|| wrong(format!("a schema has no {name:?}: {json:?}")))
}

fn full(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}.{name}")
    }
}

impl<'py> Compiler<'_, 'py> {
    fn push(&mut self, node: Node) -> NodeId {
        self.plan.nodes.push(node);
        NodeId(u32::try_from(self.plan.nodes.len() - 1).expect("a schema has less than 2^32 nodes"))
    }

    fn schema(&mut self, json: &Value, namespace: &str, field: &Field<'py>) -> PyResult<NodeId> {
        match json {
            Value::String(name) => self.named(name, namespace, field),
            Value::Array(branches) => {
                let branches = branches.iter().map(|json| self.schema(json, namespace, field));
                let branches = branches.collect::<PyResult<_>>()?;
                Ok(self.push(Node::Union(branches)))
            }
            Value::Object(json) => self.object(json, namespace, field),
            other => Err(wrong(format!("{other} is no schema"))),
        }
    }

    fn named(&mut self, name: &str, namespace: &str, field: &Field<'py>) -> PyResult<NodeId> {
        let node = match name {
            "null" => Node::Null,
            "boolean" => Node::Boolean,
            "int" => match &field.members {
                Some(members) => Node::IntEnum(int_members(members)?),
                None => Node::Int,
            },
            "long" => Node::Long,
            "float" => Node::Float,
            "double" => Node::Double,
            "bytes" => Node::Bytes,
            "string" => Node::String,
            _ => {
                let known = self.names.get(&full(name, namespace)).or_else(|| self.names.get(name));
                return known.copied().ok_or_else(|| wrong(format!("{name:?} is not defined")));
            }
        };
        Ok(self.push(node))
    }

    fn object(
        &mut self,
        json: &Map<String, Value>,
        namespace: &str,
        field: &Field<'py>,
    ) -> PyResult<NodeId> {
        let Some(Value::String(kind)) = json.get("type") else {
            let inner = json.get("type").ok_or_else(|| wrong("a schema has no \"type\""))?;
            return self.schema(inner, namespace, field);
        };
        let base = match kind.as_str() {
            "record" | "error" => self.record(json, namespace)?,
            "enum" => self.symbols(json, namespace)?,
            "fixed" => {
                let size = json.get("size").and_then(Value::as_u64);
                let size = size.ok_or_else(|| wrong("a fixed type has no \"size\""))?;
                let node = self.push(Node::Fixed(size as usize));
                self.names.insert(self.fullname(json, namespace)?, node);
                node
            }
            "array" => self.array(json, namespace, field)?,
            "map" => {
                let values = json.get("values").ok_or_else(|| wrong("a map has no \"values\""))?;
                let values = self.schema(values, namespace, &Field::default())?;
                self.push(Node::Map(values))
            }
            name => self.named(name, namespace, field)?,
        };
        self.logical(json, base)
    }

    fn fullname(&self, json: &Map<String, Value>, namespace: &str) -> PyResult<String> {
        let own = json.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        Ok(full(text(json, "name")?, own))
    }

    fn array(
        &mut self,
        json: &Map<String, Value>,
        namespace: &str,
        field: &Field<'py>,
    ) -> PyResult<NodeId> {
        let items = json.get("items").ok_or_else(|| wrong("an array has no \"items\""))?;
        let item = self.schema(items, namespace, &Field::default())?;
        let numeric = match self.plan.node(item) {
            Node::Boolean => Some(Numeric::Bool),
            Node::Int => Some(Numeric::I32),
            Node::Long => Some(Numeric::I64),
            Node::Float => Some(Numeric::F32),
            Node::Double => Some(Numeric::F64),
            _ => None,
        };
        Ok(self.push(Node::Array(ArrayPlan { item, length: field.length, numeric })))
    }

    fn symbols(&mut self, json: &Map<String, Value>, namespace: &str) -> PyResult<NodeId> {
        let fullname = self.fullname(json, namespace)?;
        let class = self.classes.get_item(&fullname)?;
        let names = json.get("symbols").and_then(Value::as_array);
        let names = names.ok_or_else(|| wrong("an enum has no \"symbols\""))?;
        let mut index = HashMap::new();
        let mut symbols = Vec::new();
        for name in names.iter().filter_map(Value::as_str) {
            let plain = || PyString::intern(self.py, name).into_any();
            let member = class.as_ref().and_then(|class| class.get_item(name).ok());
            symbols.push(member.unwrap_or_else(plain).unbind());
            index.insert(name.to_owned(), (symbols.len() - 1) as i32);
        }
        let node = self.push(Node::Enum(EnumPlan { symbols, index, fullname: fullname.clone() }));
        self.names.insert(fullname, node);
        Ok(node)
    }

    fn record(&mut self, json: &Map<String, Value>, namespace: &str) -> PyResult<NodeId> {
        let fullname = self.fullname(json, namespace)?;
        let inner = fullname.rpartition();
        // The name is known inside the record, so its node stands before those of its fields.
        let node = self.push(Node::Null);
        self.names.insert(fullname.clone(), node);
        let class = self.class(&fullname)?;
        let listed = json.get("fields").and_then(Value::as_array);
        let listed = listed.ok_or_else(|| wrong(format!("{fullname} has no \"fields\"")))?;
        let mut fields = Vec::with_capacity(listed.len());
        for entry in listed.iter().filter_map(Value::as_object) {
            fields.push(self.field(entry, &fullname, inner)?);
        }
        let record = RecordPlan { fullname, fields, class };
        self.plan.nodes[node.0 as usize] = Node::Record(record);
        Ok(node)
    }

    fn field(
        &mut self,
        json: &Map<String, Value>,
        record: &str,
        namespace: &str,
    ) -> PyResult<FieldPlan> {
        let name = text(json, "name")?;
        let members = self.classes.get_item(format!("{record}.{name}"))?;
        let length = json.get("length").and_then(Value::as_u64).map(|length| length as usize);
        let kind = json.get("type").ok_or_else(|| wrong(format!("{record}.{name} has no type")))?;
        let node = self.schema(kind, namespace, &Field { length, members })?;
        let default = json.get("default").and_then(|value| {
            let mut out = Vec::new();
            default::encode(&self.plan, node, value, &mut out).map(|()| out)
        });
        let interned = PyString::intern(self.py, name).unbind();
        Ok(FieldPlan { name: interned, text: name.to_owned(), node, default })
    }

    fn class(&self, fullname: &str) -> PyResult<Option<ClassPlan>> {
        let Some(class) = self.classes.get_item(fullname)? else { return Ok(None) };
        let class = class.cast_into::<PyType>().map_err(|_| wrong("a class is asked for"))?;
        let object = self.py.import("builtins")?.getattr("object")?;
        let post_init = match class.getattr(intern!(self.py, "__post_init__")) {
            Ok(_) => true,
            Err(error) if error.is_instance_of::<PyAttributeError>(self.py) => false,
            Err(error) => return Err(error),
        };
        let new = object.getattr("__new__")?.unbind();
        Ok(Some(ClassPlan { class: class.unbind(), new, post_init }))
    }

    /// Logical types that are not known, or stand on the wrong type, mean nothing: so Avro says.
    fn logical(&mut self, json: &Map<String, Value>, base: NodeId) -> PyResult<NodeId> {
        let Some(name) = json.get("logicalType").and_then(Value::as_str) else { return Ok(base) };
        if name == "tai-nanos" && matches!(self.plan.node(base), Node::Long) {
            return Ok(self.push(Node::Time));
        }
        let converters = self.py.import("heliograph._logical")?.getattr("converters")?;
        let number = |key| json.get(key).and_then(Value::as_i64);
        let kind = match self.plan.node(base) {
            Node::Fixed(_) => "fixed".to_owned(),
            node => node.kind(),
        };
        let size = match self.plan.node(base) {
            Node::Fixed(size) => Some(*size),
            _ => None,
        };
        let found = converters.call1((name, kind, number("precision"), number("scale"), size))?;
        if found.is_none() {
            return Ok(base);
        }
        let (to_python, from_python) = found.extract()?;
        Ok(self.push(Node::Logical(LogicalPlan {
            name: name.to_owned(),
            base,
            to_python,
            from_python,
        })))
    }
}

fn int_members(class: &Bound<'_, PyAny>) -> PyResult<HashMap<i32, Py<PyAny>>> {
    let mut members = HashMap::new();
    for member in class.try_iter()? {
        let member = member?;
        members.insert(member.extract()?, member.unbind());
    }
    Ok(members)
}

/// The namespace of a full name.
trait Namespace {
    fn rpartition(&self) -> &str;
}

impl Namespace for String {
    fn rpartition(&self) -> &str {
        self.rsplit_once('.').map_or("", |(namespace, _)| namespace)
    }
}
