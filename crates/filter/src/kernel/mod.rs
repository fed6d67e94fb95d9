//! Kernels: one operation over the rows of a batch; no operation ends for one row's sake.
//!
//! A row whose operation fails (integer division by zero, a cast out of range, …) gets null, and
//! is marked in the value's errors.

mod compare;
mod logic;
mod number;
mod position;
mod text;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Datum, UInt32Array, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::ArrowError;
use arrow_select::take::take;

use crate::catalog::Catalog;
use crate::tree::{Node, Op};
use crate::types::Literal;

pub(crate) use compare::{SortKey, sort_key};
pub(crate) use logic::is_true;
pub(crate) use number::cast;

/// The values of an expression: one a row, or a single one for all rows.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub(crate) array: ArrayRef,
    /// The rows in which an operation failed; their value is null, unless it was not needed.
    pub(crate) errors: Option<BooleanBuffer>,
    pub(crate) is_constant: bool,
}

impl Value {
    pub(crate) fn each(array: ArrayRef) -> Self {
        Self { array, errors: None, is_constant: false }
    }

    pub(crate) fn constant(literal: &Literal, ty: crate::types::Type) -> Self {
        Self { array: literal.array(ty), errors: None, is_constant: true }
    }

    fn with_errors(mut self, errors: Option<BooleanBuffer>) -> Self {
        self.errors = union(self.errors, errors);
        self
    }

    /// The array with an element for each row.
    pub(crate) fn expanded(&self, rows: usize) -> Result<ArrayRef, ArrowError> {
        if !self.is_constant {
            return Ok(self.array.clone());
        }
        take(&self.array, &UInt32Array::from_value(0, rows), None)
    }

    fn booleans(&self, rows: usize) -> Result<BooleanArray, ArrowError> {
        Ok(self.expanded(rows)?.as_boolean().clone())
    }

    fn doubles(&self) -> Doubles<'_> {
        let values = self.array.as_primitive::<Float64Type>().values();
        Doubles { values, step: usize::from(!self.is_constant) }
    }
}

impl Datum for Value {
    fn get(&self) -> (&dyn Array, bool) {
        (&self.array, self.is_constant)
    }
}

/// Numbers by row, whether one a row or one for all.
struct Doubles<'a> {
    values: &'a [f64],
    step: usize,
}

impl Doubles<'_> {
    fn at(&self, row: usize) -> f64 {
        self.values[row * self.step]
    }
}

pub(crate) fn union(a: Option<BooleanBuffer>, b: Option<BooleanBuffer>) -> Option<BooleanBuffer> {
    match (a, b) {
        (Some(a), Some(b)) => Some(&a | &b),
        (a, b) => a.or(b),
    }
}

/// The rows in which an argument is null.
fn nulls(args: &[Value], rows: usize) -> Option<NullBuffer> {
    args.iter().fold(None, |nulls, arg| {
        if arg.is_constant {
            let all = arg.array.is_null(0).then(|| NullBuffer::new_null(rows));
            return NullBuffer::union(nulls.as_ref(), all.as_ref());
        }
        NullBuffer::union(nulls.as_ref(), arg.array.nulls())
    })
}

/// Evaluates an operation on its arguments; leaves (columns, constants) and light-curve functions
/// are not operations.
pub(crate) fn apply(
    node: &Node,
    args: &[Value],
    rows: usize,
    catalog: &Catalog,
) -> Result<Value, ArrowError> {
    let is_constant = args.iter().all(|arg| arg.is_constant);
    let rows = if is_constant { 1 } else { rows };
    let mut value = operate(node, args, rows, catalog)?;
    if !matches!(node.op, Op::And | Op::Or | Op::If) {
        for arg in args {
            value = value.with_errors(arg.errors.clone());
        }
    }
    value.is_constant = is_constant;
    Ok(value)
}

fn operate(
    node: &Node,
    args: &[Value],
    rows: usize,
    catalog: &Catalog,
) -> Result<Value, ArrowError> {
    Ok(match &node.op {
        Op::Cast { counted } => {
            let value = cast(&args[0], node.ty)?;
            if *counted { value } else { Value { errors: None, ..value } }
        }
        Op::Neg => Value::each(arrow_arith::numeric::neg_wrapping(&args[0].array)?),
        Op::Arith(op) => number::arith(*op, &args[0], &args[1], rows)?,
        Op::Math(function) => number::math(*function, &args[0])?,
        Op::Power => number::power(args, rows),
        Op::Atan2 => number::atan2(args, rows),
        Op::IsNan => number::is_nan(&args[0]),
        Op::Magnitude => number::magnitude(args, rows),
        Op::MagnitudeError => number::magnitude_error(args, rows),
        Op::Not => Value::each(Arc::new(arrow_arith::boolean::not(args[0].array.as_boolean())?)),
        Op::IsNull => Value::each(Arc::new(arrow_arith::boolean::is_null(&args[0].array)?)),
        Op::IsTrue => {
            Value::each(Arc::new(BooleanArray::new(is_true(args[0].array.as_boolean()), None)))
        }
        Op::And => logic::and(args, rows)?,
        Op::Or => logic::or(args, rows)?,
        Op::If => logic::choose(args, rows)?,
        Op::Compare(op) => compare::compare(*op, &args[0], &args[1], rows)?,
        Op::InSet { values, has_null } => compare::in_set(&args[0], values, *has_null),
        Op::Like { pattern, ignore_case } => text::like(&args[0], pattern, *ignore_case),
        Op::Distance => position::distance(args, rows),
        Op::Cone => position::cone(args, rows),
        Op::InRegion(name) => position::in_region(args, rows, catalog.region(name)),
        Op::InWatchList(name, radius) => {
            let radius = radius.map(f64::from_bits);
            position::in_watch_list(args, rows, catalog.watch_list(name), radius)
        }
        Op::Column(_) | Op::Field { .. } | Op::Const(_) | Op::Curve { .. } => {
            Value::each(new_null_array(&node.ty.arrow(), rows))
        }
    })
}
