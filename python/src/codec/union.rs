//! Chooses a Python value's branch of a union.
//!
//! The first branch that fits, where exactness counts first: an instance of a record's class, a
//! boolean, an integer in range, a float, text, bytes. A pair `(full name, value)` names a branch.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple,
};

use super::encode::is_real;
use super::error::CodecError;
use super::plan::{Node, NodeId, Plan};
use crate::time::Time;

/// How well a value fits a branch; the best wins, the earlier one among equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    No,
    /// It can be converted.
    Loose,
    Exact,
}

/// The branch's number, and the value to encode there.
pub(super) fn choose<'py>(
    plan: &Plan,
    branches: &[NodeId],
    value: &Bound<'py, PyAny>,
) -> Result<(usize, Bound<'py, PyAny>), CodecError> {
    if let Some(found) = simple(plan, branches, value) {
        return Ok((found, value.clone()));
    }
    if let Some(found) = named(plan, branches, value) {
        return Ok(found);
    }
    let mut best = (Fit::No, 0);
    for (index, branch) in branches.iter().enumerate() {
        let fit = fit(plan, plan.node(*branch), value);
        if fit > best.0 {
            best = (fit, index);
        }
    }
    if best.0 == Fit::No {
        let kinds: Vec<_> = branches.iter().map(|branch| plan.node(*branch).kind()).collect();
        return Err(CodecError::value(kinds.join(" or "), value));
    }
    Ok((best.1, value.clone()))
}

/// Null and one other: any value but None is of the other branch, which reports its errors itself.
fn simple(plan: &Plan, branches: &[NodeId], value: &Bound<'_, PyAny>) -> Option<usize> {
    let null = |index: usize| matches!(plan.node(branches[index]), Node::Null);
    match branches.len() {
        1 => Some(0),
        2 if null(0) => Some(usize::from(!value.is_none())),
        2 if null(1) => Some(usize::from(value.is_none())),
        _ => None,
    }
}

fn named<'py>(
    plan: &Plan,
    branches: &[NodeId],
    value: &Bound<'py, PyAny>,
) -> Option<(usize, Bound<'py, PyAny>)> {
    let pair = value.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2)?;
    let name = pair.get_item(0).ok()?.cast_into::<PyString>().ok()?;
    let name = name.to_str().ok()?;
    let fits = |branch: &NodeId| match plan.node(*branch) {
        Node::Record(record) => record.fullname == name,
        Node::Enum(of) => of.fullname == name,
        node => node.kind() == name,
    };
    Some((branches.iter().position(fits)?, pair.get_item(1).ok()?))
}

fn fit(plan: &Plan, node: &Node, value: &Bound<'_, PyAny>) -> Fit {
    let exactly = |yes: bool| if yes { Fit::Exact } else { Fit::No };
    let loosely = |yes: bool| if yes { Fit::Loose } else { Fit::No };
    let boolean = value.is_instance_of::<PyBool>();
    let integer = !boolean && value.is_instance_of::<PyInt>();
    match node {
        Node::Null => exactly(value.is_none()),
        Node::Boolean => exactly(boolean),
        Node::Int | Node::IntEnum(_) if integer => exactly(value.extract::<i32>().is_ok()),
        Node::Long if integer => exactly(value.extract::<i64>().is_ok()),
        Node::Integer(of) => {
            let held = value.extract::<i128>().is_ok_and(|number| of.dtype.holds(number));
            if integer { exactly(held) } else { loosely(!boolean && held) }
        }
        Node::NdArray(of) if is_bytes(value) => {
            exactly(value.len().is_ok_and(|size| of.array.holds(size)))
        }
        Node::NdArray(of) => exactly(value.cast::<PyUntypedArray>().is_ok_and(|array| {
            array.dtype().is_equiv_to(of.dtype.bind(value.py()))
                && array.ndim() == of.array.shape().len()
        })),
        Node::Int | Node::IntEnum(_) => loosely(!boolean && value.extract::<i32>().is_ok()),
        Node::Long => loosely(!boolean && value.extract::<i64>().is_ok()),
        Node::Time => exactly(value.is_instance_of::<Time>()),
        Node::Double if value.is_instance_of::<PyFloat>() => Fit::Exact,
        Node::Float | Node::Double => loosely(!boolean && (integer || is_real(value))),
        Node::String => exactly(value.is_instance_of::<PyString>()),
        Node::Bytes => exactly(is_bytes(value)),
        Node::Fixed(size) => exactly(is_bytes(value) && value.len().is_ok_and(|n| n == *size)),
        Node::Enum(of) => {
            let name = value.getattr("_name_").unwrap_or_else(|_| value.clone());
            let name = name.cast::<PyString>().ok().and_then(|name| name.to_str().ok());
            exactly(name.is_some_and(|name| of.index.contains_key(name)))
        }
        Node::Array(_) => exactly(is_sequence(value)),
        Node::Map(_) => loosely(value.is_instance_of::<PyDict>()),
        Node::Union(branches) => {
            let fits = branches.iter().map(|branch| fit(plan, plan.node(*branch), value));
            fits.max().unwrap_or(Fit::No)
        }
        Node::Record(record) => match &record.class {
            Some(class) if value.is_instance(class.class.bind(value.py())).unwrap_or(false) => {
                Fit::Exact
            }
            _ => value.cast::<PyDict>().map_or(Fit::No, |dict| record_fit(record, dict)),
        },
        Node::Logical(logical) => {
            loosely(logical.from_python.bind(value.py()).call1((value,)).is_ok())
        }
    }
}

/// A dictionary fits a record that has all its keys and whose other fields have defaults.
fn record_fit(record: &super::plan::RecordPlan, value: &Bound<'_, PyDict>) -> Fit {
    let mut given = 0;
    for field in &record.fields {
        match value.contains(field.name.bind(value.py())) {
            Ok(true) => given += 1,
            _ if field.default.is_none() => return Fit::No,
            _ => {}
        }
    }
    if given == value.len() { Fit::Exact } else { Fit::No }
}

fn is_bytes(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyMemoryView>()
}

fn is_sequence(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyList>()
        || value.is_instance_of::<PyTuple>()
        || value.cast::<PyUntypedArray>().is_ok_and(|array| array.ndim() == 1)
}
