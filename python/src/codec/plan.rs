//! The compiled form of a schema: an arena of nodes, so that recursive schemas are plain indexes.

use std::collections::HashMap;

use helio_core::schema::{DType, NdArray};
use numpy::PyArrayDescr;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::ndarray::Numeric;

/// How deep values may be nested: far beyond real data, far below the stack.
pub(crate) const DEPTH_MAX: u32 = 128;

/// A node's index in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId(pub(crate) u32);

/// The operation at one position of a datum.
#[derive(Debug)]
pub(crate) enum Node {
    Null,
    Boolean,
    Int,
    /// An int with named values: decoded to the members of an `IntEnum`.
    IntEnum(HashMap<i32, Py<PyAny>>),
    Long,
    /// An integer of another range than its base type's.
    Integer(IntegerPlan),
    /// TAI nanoseconds as a `Time`.
    Time,
    Float,
    Double,
    Bytes,
    NdArray(NdArrayPlan),
    String,
    Fixed(usize),
    Enum(EnumPlan),
    Array(ArrayPlan),
    Map(NodeId),
    Union(Vec<NodeId>),
    Record(RecordPlan),
    Logical(LogicalPlan),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct IntegerPlan {
    pub(crate) dtype: DType,
    /// Whether the base type is a long.
    pub(crate) long: bool,
}

impl IntegerPlan {
    /// Returns the number of a long: of `uint64` it has the bits.
    pub(crate) fn number(self, long: i64) -> Option<i128> {
        let number = match self.dtype {
            DType::Uint64 => i128::from(long as u64),
            _ => long.into(),
        };
        self.dtype.holds(number).then_some(number)
    }
}

/// An array of raw elements in bytes.
#[derive(Debug)]
pub(crate) struct NdArrayPlan {
    pub(crate) array: NdArray,
    pub(crate) dtype: Py<PyArrayDescr>,
}

/// Avro's enum: symbols on the wire by index; to Python a string, or the member of an `Enum`.
#[derive(Debug)]
pub(crate) struct EnumPlan {
    pub(crate) symbols: Vec<Py<PyAny>>,
    pub(crate) index: HashMap<String, i32>,
    pub(crate) fullname: String,
}

#[derive(Debug)]
pub(crate) struct ArrayPlan {
    pub(crate) item: NodeId,
    /// The exact number of elements, if the field has one.
    pub(crate) length: Option<usize>,
    /// The elements' type, if they are moved as a block.
    pub(crate) numeric: Option<Numeric>,
}

#[derive(Debug)]
pub(crate) struct RecordPlan {
    pub(crate) fullname: String,
    pub(crate) fields: Vec<FieldPlan>,
    /// The Python class of this record; None for a dictionary.
    pub(crate) class: Option<ClassPlan>,
}

#[derive(Debug)]
pub(crate) struct ClassPlan {
    pub(crate) class: Py<PyType>,
    /// `object.__new__`: instances are filled in without `__init__`, as pickle does.
    pub(crate) new: Py<PyAny>,
    /// Whether the class has a `__post_init__` to be called.
    pub(crate) post_init: bool,
}

#[derive(Debug)]
pub(crate) struct FieldPlan {
    /// Interned, so that looking it up compares addresses.
    pub(crate) name: Py<PyString>,
    pub(crate) text: String,
    pub(crate) node: NodeId,
    /// The encoded default, for dictionaries without this field.
    pub(crate) default: Option<Vec<u8>>,
}

/// A logical type that Python code converts; `base` is encoded.
#[derive(Debug)]
pub(crate) struct LogicalPlan {
    pub(crate) name: String,
    pub(crate) base: NodeId,
    pub(crate) to_python: Py<PyAny>,
    pub(crate) from_python: Py<PyAny>,
}

/// A schema compiled for Python objects.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: Vec<Node>,
    pub(crate) root: NodeId,
}

impl Plan {
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn root(&self) -> &Node {
        self.node(self.root)
    }

    /// The top-level record, if the schema is a record.
    pub(crate) fn record(&self) -> Option<&RecordPlan> {
        match self.root() {
            Node::Record(record) => Some(record),
            _ => None,
        }
    }
}

impl Node {
    /// The type's name in messages.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Boolean => "boolean".into(),
            Self::Int | Self::IntEnum(_) => "int".into(),
            Self::Long => "long".into(),
            Self::Integer(of) => of.dtype.to_string(),
            Self::NdArray(of) => format!("ndarray {}", of.array),
            Self::Time => "Time".into(),
            Self::Float => "float".into(),
            Self::Double => "double".into(),
            Self::Bytes => "bytes".into(),
            Self::String => "string".into(),
            Self::Fixed(size) => format!("{size} bytes"),
            Self::Enum(of) => format!("one of {}", of.fullname),
            Self::Array(_) => "array".into(),
            Self::Map(_) => "map".into(),
            Self::Union(_) => "union".into(),
            Self::Record(record) => record.fullname.clone(),
            Self::Logical(logical) => logical.name.clone(),
        }
    }
}

impl Plan {
    /// Shows the garbage collector every Python object that the plan holds: a record class holds
    /// its schema, which holds the class.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for node in &self.nodes {
            match node {
                Node::IntEnum(members) => members.values().try_for_each(|m| visit.call(m))?,
                Node::NdArray(of) => visit.call(&of.dtype)?,
                Node::Enum(of) => of.symbols.iter().try_for_each(|symbol| visit.call(symbol))?,
                Node::Record(RecordPlan { class: Some(class), .. }) => {
                    visit.call(&class.class)?;
                    visit.call(&class.new)?;
                }
                Node::Logical(logical) => {
                    visit.call(&logical.to_python)?;
                    visit.call(&logical.from_python)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
