//! Compiles a schema and the Python classes of its names to a plan.

use std::collections::HashMap;

use helio_core::schema::{self, DType, LogicalType, Schema, Type};
use numpy::PyArrayDescr;
use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};
use serde_json::{Map, Value};

use super::default;
use super::plan::{
    ArrayPlan, ClassPlan, EnumPlan, FieldPlan, IntegerPlan, LogicalPlan, NdArrayPlan, Node, NodeId,
    Plan, RecordPlan,
};
use crate::errors;
use crate::ndarray::Numeric;

/// Compiles a schema. `classes` names the Python class of a record or enum by full name, and the
/// `IntEnum` of an int field by `Record.field`.
pub(crate) fn compile(
    py: Python<'_>,
    schema: &Schema,
    classes: &Bound<'_, PyDict>,
) -> PyResult<Plan> {
    let plan = Plan { nodes: Vec::new(), root: NodeId(0) };
    let mut compiler = Compiler { py, schema, classes, plan, names: HashMap::new() };
    let root = compiler.node(schema::NodeId::ROOT, &Field::default())?;
    compiler.plan.root = root;
    Ok(compiler.plan)
}

struct Compiler<'a, 'py> {
    py: Python<'py>,
    schema: &'a Schema,
    classes: &'a Bound<'py, PyDict>,
    plan: Plan,
    names: HashMap<schema::NodeId, NodeId>,
}

/// The attributes of a field that concern its type.
#[derive(Default, Clone)]
struct Field<'py> {
    length: Option<usize>,
    members: Option<Bound<'py, PyAny>>,
}

fn wrong(message: impl AsRef<str>) -> PyErr {
    errors::raise("SchemaError", message.as_ref())
}

impl<'a, 'py> Compiler<'a, 'py> {
    fn push(&mut self, node: Node) -> NodeId {
        self.plan.nodes.push(node);
        NodeId(u32::try_from(self.plan.nodes.len() - 1).expect("a schema has less than 2^32 nodes"))
    }

    /// Compiles a type. Named types are compiled once, and known within themselves.
    fn node(&mut self, id: schema::NodeId, field: &Field<'py>) -> PyResult<NodeId> {
        if let Some(known) = self.names.get(&id) {
            return Ok(*known);
        }
        let schema: &'a Schema = self.schema;
        let node = schema.node(id);
        let plain = Field::default();
        match node.logical {
            Some(LogicalType::Integer(dtype)) if field.members.is_none() => {
                let long = node.kind == Type::Long;
                return Ok(self.push(Node::Integer(IntegerPlan { dtype, long })));
            }
            Some(LogicalType::NdArray(array)) => {
                let dtype = PyArrayDescr::new(self.py, array.dtype().name())?.unbind();
                return Ok(self.push(Node::NdArray(NdArrayPlan { array, dtype })));
            }
            _ => {}
        }
        let base = match &node.kind {
            Type::Null => self.push(Node::Null),
            Type::Boolean => self.push(Node::Boolean),
            Type::Int => match &field.members {
                Some(members) => {
                    let members = int_members(members)?;
                    self.push(Node::IntEnum(members))
                }
                None => self.push(Node::Int),
            },
            Type::Long => self.push(Node::Long),
            Type::Float => self.push(Node::Float),
            Type::Double => self.push(Node::Double),
            Type::Bytes => self.push(Node::Bytes),
            Type::String => self.push(Node::String),
            Type::Array(items) => self.array(*items, field)?,
            Type::Map(values) => {
                let values = self.node(*values, &plain)?;
                self.push(Node::Map(values))
            }
            Type::Union(branches) => {
                let branches = branches.iter().map(|branch| self.node(*branch, field));
                let branches = branches.collect::<PyResult<_>>()?;
                self.push(Node::Union(branches))
            }
            Type::Record(record) => return self.record(id, record),
            Type::Enum(of) => self.symbols(of)?,
            Type::Fixed(fixed) => self.push(Node::Fixed(fixed.size)),
        };
        let made = self.logical(&node.attributes, base)?;
        if node.kind.name().is_some() {
            self.names.insert(id, made);
        }
        Ok(made)
    }

    fn array(&mut self, items: schema::NodeId, field: &Field<'py>) -> PyResult<NodeId> {
        let item = self.node(items, &Field::default())?;
        let numeric = match self.plan.node(item) {
            Node::Boolean => Some(Numeric::Bool),
            Node::Int => Some(Numeric::I32),
            Node::Long => Some(Numeric::I64),
            Node::Integer(of) => integers(of.dtype),
            Node::Float => Some(Numeric::F32),
            Node::Double => Some(Numeric::F64),
            _ => None,
        };
        Ok(self.push(Node::Array(ArrayPlan { item, length: field.length, numeric })))
    }

    fn symbols(&mut self, of: &schema::Enum) -> PyResult<NodeId> {
        let class = self.classes.get_item(&of.name)?;
        let mut index = HashMap::new();
        let mut symbols = Vec::new();
        for (number, name) in (0..).zip(&of.symbols) {
            let plain = || PyString::intern(self.py, name).into_any();
            let member = class.as_ref().and_then(|class| class.get_item(name).ok());
            symbols.push(member.unwrap_or_else(plain).unbind());
            index.insert(name.clone(), number);
        }
        Ok(self.push(Node::Enum(EnumPlan { symbols, index, fullname: of.name.clone() })))
    }

    fn record(&mut self, id: schema::NodeId, record: &schema::Record) -> PyResult<NodeId> {
        // The name is known within the record, so its node comes before those of its fields.
        let node = self.push(Node::Null);
        self.names.insert(id, node);
        let class = self.class(&record.name)?;
        let fields = record.fields.iter().map(|field| self.field(field, &record.name));
        let fields = fields.collect::<PyResult<_>>()?;
        let record = RecordPlan { fullname: record.name.clone(), fields, class };
        self.plan.nodes[node.0 as usize] = Node::Record(record);
        Ok(node)
    }

    fn field(&mut self, field: &schema::Field, record: &str) -> PyResult<FieldPlan> {
        let members = self.classes.get_item(format!("{record}.{}", field.name))?;
        let node = self.node(field.kind, &Field { length: field.length, members })?;
        let default = field.default.as_ref().and_then(|value| {
            let mut out = Vec::new();
            default::encode(&self.plan, node, value, &mut out).map(|()| out)
        });
        let name = PyString::intern(self.py, &field.name).unbind();
        Ok(FieldPlan { name, text: field.name.clone(), node, default })
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

    /// Avro ignores unknown logical types, and ones on the wrong type.
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

fn integers(dtype: DType) -> Option<Numeric> {
    Some(match dtype {
        DType::Int8 => Numeric::I8,
        DType::Uint8 => Numeric::U8,
        DType::Int16 => Numeric::I16,
        DType::Uint16 => Numeric::U16,
        DType::Uint32 => Numeric::U32,
        DType::Uint64 => Numeric::U64,
        _ => return None,
    })
}

fn int_members(class: &Bound<'_, PyAny>) -> PyResult<HashMap<i32, Py<PyAny>>> {
    let mut members = HashMap::new();
    for member in class.try_iter()? {
        let member = member?;
        members.insert(member.extract()?, member.unbind());
    }
    Ok(members)
}
