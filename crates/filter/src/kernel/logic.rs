//! Three-valued logic. What decides an operand away decides its errors away, from left to right.

use std::sync::Arc;

use arrow_arith::boolean::{and_kleene, or_kleene};
use arrow_array::{Array, BooleanArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::ArrowError;
use arrow_select::zip::zip;

use super::{Value, union};

/// The rows in which a boolean is true, neither false nor null.
pub(crate) fn is_true(array: &BooleanArray) -> BooleanBuffer {
    match array.nulls() {
        Some(nulls) => array.values() & nulls.inner(),
        None => array.values().clone(),
    }
}

fn is_false(array: &BooleanArray) -> BooleanBuffer {
    let not = !array.values();
    match array.nulls() {
        Some(nulls) => &not & nulls.inner(),
        None => not,
    }
}

pub(super) fn and(args: &[Value], rows: usize) -> Result<Value, ArrowError> {
    chain(args, rows, and_kleene, is_false)
}

pub(super) fn or(args: &[Value], rows: usize) -> Result<Value, ArrowError> {
    chain(args, rows, or_kleene, is_true)
}

fn chain(
    args: &[Value],
    rows: usize,
    combine: fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, ArrowError>,
    decided: fn(&BooleanArray) -> BooleanBuffer,
) -> Result<Value, ArrowError> {
    let mut result = args[0].booleans(rows)?;
    let mut errors = args[0].errors.clone();
    for arg in &args[1..] {
        if let Some(found) = &arg.errors {
            errors = union(errors, Some(found & &!&decided(&result)));
        }
        result = combine(&result, &arg.booleans(rows)?)?;
    }
    Ok(Value { errors, ..Value::each(Arc::new(result)) })
}

/// CASE: the second argument where the first is true, else the third.
pub(super) fn choose(args: &[Value], rows: usize) -> Result<Value, ArrowError> {
    let condition = is_true(&args[0].booleans(rows)?);
    let mask = BooleanArray::new(condition.clone(), None);
    let array = zip(&mask, &args[1], &args[2])?;
    let chosen = args[1].errors.as_ref().map(|errors| errors & &condition);
    let other = args[2].errors.as_ref().map(|errors| errors & &!&condition);
    let errors = union(args[0].errors.clone(), union(chosen, other));
    debug_assert_eq!(array.len(), rows);
    Ok(Value { errors, ..Value::each(array) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;

    fn value(values: &[Option<bool>], errors: &[bool]) -> Value {
        let array = Arc::new(BooleanArray::from(values.to_vec()));
        Value { errors: Some(errors.into()), ..Value::each(array) }
    }

    #[test]
    fn an_operand_that_is_not_needed_has_no_error() {
        let left = value(&[Some(false), Some(true), None], &[false; 3]);
        let right = value(&[None; 3], &[true; 3]);
        let result = and(&[left.clone(), right.clone()], 3).unwrap();
        let found: Vec<_> = result.array.as_boolean().iter().collect();
        assert_eq!(found, [Some(false), None, None]);
        assert_eq!(result.errors.unwrap().iter().collect::<Vec<_>>(), [false, true, true]);
        let result = or(&[left, right], 3).unwrap();
        assert_eq!(result.errors.unwrap().iter().collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn a_branch_that_is_not_chosen_has_no_error() {
        let condition = value(&[Some(false), Some(true), None], &[false; 3]);
        let fails = value(&[None; 3], &[true; 3]);
        let fine = value(&[Some(true); 3], &[false; 3]);
        let result = choose(&[condition, fails, fine], 3).unwrap();
        let found: Vec<_> = result.array.as_boolean().iter().collect();
        assert_eq!(found, [Some(true), None, Some(true)]);
        assert_eq!(result.errors.unwrap().iter().collect::<Vec<_>>(), [false, true, false]);
    }
}
