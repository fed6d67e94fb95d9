//! Comparisons. Numbers have a total order: -0 equals 0, NaN equals NaN and is above all others.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, StringArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{ArrowError, DataType};

use super::{Value, nulls};
use crate::tree::Compare;
use crate::types::Literal;

trait Total: Copy {
    fn eq(self, other: Self) -> bool;
    fn lt(self, other: Self) -> bool;
    fn le(self, other: Self) -> bool;
}

macro_rules! total_integers {
    ($($t:ty),*) => {$(impl Total for $t {
        fn eq(self, other: Self) -> bool { self == other }
        fn lt(self, other: Self) -> bool { self < other }
        fn le(self, other: Self) -> bool { self <= other }
    })*};
}
// Without branches, so that the loops become vector instructions.
macro_rules! total_floats {
    ($($t:ty),*) => {$(impl Total for $t {
        fn eq(self, other: Self) -> bool {
            (self == other) | (self.is_nan() & other.is_nan())
        }
        fn lt(self, other: Self) -> bool {
            (self < other) | (other.is_nan() & !self.is_nan())
        }
        fn le(self, other: Self) -> bool {
            (self <= other) | other.is_nan()
        }
    })*};
}
total_integers!(i32, i64);
total_floats!(f32, f64);

pub(super) fn compare(
    op: Compare,
    left: &Value,
    right: &Value,
    rows: usize,
) -> Result<Value, ArrowError> {
    let bits = match left.array.data_type() {
        DataType::Boolean => booleans(op, left, right, rows)?,
        DataType::Int32 => numbers::<Int32Type>(op, left, right, rows),
        DataType::Int64 => numbers::<Int64Type>(op, left, right, rows),
        DataType::Float32 => numbers::<Float32Type>(op, left, right, rows),
        DataType::Float64 => numbers::<Float64Type>(op, left, right, rows),
        _ => texts(op, left, right, rows),
    };
    let nulls = nulls(&[left.clone(), right.clone()], rows);
    Ok(Value::each(Arc::new(BooleanArray::new(bits, nulls))))
}

fn numbers<T: ArrowPrimitiveType>(
    op: Compare,
    left: &Value,
    right: &Value,
    rows: usize,
) -> BooleanBuffer
where
    T::Native: Total,
{
    match op {
        Compare::Eq => pairs::<T>(left, right, rows, Total::eq),
        Compare::Ne => !&pairs::<T>(left, right, rows, Total::eq),
        Compare::Lt => pairs::<T>(left, right, rows, Total::lt),
        Compare::Le => pairs::<T>(left, right, rows, Total::le),
    }
}

fn pairs<T: ArrowPrimitiveType>(
    left: &Value,
    right: &Value,
    rows: usize,
    holds: impl Fn(T::Native, T::Native) -> bool,
) -> BooleanBuffer {
    let (a, b) =
        (left.array.as_primitive::<T>().values(), right.array.as_primitive::<T>().values());
    match (left.is_constant, right.is_constant) {
        (false, false) => {
            let (a, b) = (&a[..rows], &b[..rows]);
            BooleanBuffer::collect_bool(rows, |row| holds(a[row], b[row]))
        }
        (false, true) => {
            let (a, b) = (&a[..rows], b[0]);
            BooleanBuffer::collect_bool(rows, |row| holds(a[row], b))
        }
        (true, _) => {
            let (a, step) = (a[0], usize::from(!right.is_constant));
            BooleanBuffer::collect_bool(rows, |row| holds(a, b[row * step]))
        }
    }
}

fn booleans(
    op: Compare,
    left: &Value,
    right: &Value,
    rows: usize,
) -> Result<BooleanBuffer, ArrowError> {
    let (a, b) = (left.booleans(rows)?, right.booleans(rows)?);
    let (a, b) = (a.values(), b.values());
    Ok(match op {
        Compare::Eq => !&(a ^ b),
        Compare::Ne => a ^ b,
        Compare::Lt => &!a & b,
        Compare::Le => &!a | b,
    })
}

fn texts(op: Compare, left: &Value, right: &Value, rows: usize) -> BooleanBuffer {
    let (a, b): (&StringArray, &StringArray) = (left.array.as_string(), right.array.as_string());
    let (by_a, by_b) = (usize::from(!left.is_constant), usize::from(!right.is_constant));
    BooleanBuffer::collect_bool(rows, |row| {
        let order = a.value(row * by_a).cmp(b.value(row * by_b));
        match op {
            Compare::Eq => order == Ordering::Equal,
            Compare::Ne => order != Ordering::Equal,
            Compare::Lt => order == Ordering::Less,
            Compare::Le => order != Ordering::Greater,
        }
    })
}

/// A number's place in the order of comparisons, as an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SortKey {
    Number(u64),
    NaN,
}

/// The place of a number in the order of comparisons.
pub(crate) fn sort_key(number: f64) -> SortKey {
    if number.is_nan() {
        return SortKey::NaN;
    }
    // Adding 0 makes -0 a 0.
    let bits = (number + 0.0).to_bits();
    SortKey::Number(if bits >> 63 == 1 { !bits } else { bits | 1 << 63 })
}

/// Whether a value is among constants, which have its type; null where it is not, but might be.
pub(super) fn in_set(value: &Value, values: &[Literal], has_null: bool) -> Value {
    let rows = value.array.len();
    let is_in = match value.array.data_type() {
        DataType::Boolean => {
            let array = value.array.as_boolean();
            is_among(rows, values, |row| Literal::Bool(array.value(row)), |l| l.clone())
        }
        DataType::Int32 => among_integers::<Int32Type>(&value.array, values),
        DataType::Int64 => among_integers::<Int64Type>(&value.array, values),
        DataType::Float32 => among_floats::<Float32Type>(&value.array, values),
        DataType::Float64 => among_floats::<Float64Type>(&value.array, values),
        _ => {
            let array = value.array.as_string::<i32>();
            let text = |literal: &Literal| match literal {
                Literal::Text(text) => text.to_string(),
                _ => String::new(),
            };
            let texts: Vec<String> = sorted(values, text);
            BooleanBuffer::collect_bool(rows, |row| {
                let text = array.value(row);
                texts.binary_search_by(|t| t.as_str().cmp(text)).is_ok()
            })
        }
    };
    let mut nulls = value.array.nulls().cloned();
    if has_null {
        let known = arrow_buffer::NullBuffer::new(is_in.clone());
        nulls = arrow_buffer::NullBuffer::union(nulls.as_ref(), Some(&known));
    }
    Value::each(Arc::new(BooleanArray::new(is_in, nulls)))
}

fn sorted<K: Ord>(values: &[Literal], key: impl Fn(&Literal) -> K) -> Vec<K> {
    let mut keys: Vec<K> = values.iter().map(key).collect();
    keys.sort_unstable();
    keys
}

fn is_among<K: Ord>(
    rows: usize,
    values: &[Literal],
    at: impl Fn(usize) -> K,
    key: impl Fn(&Literal) -> K,
) -> BooleanBuffer {
    let keys = sorted(values, key);
    BooleanBuffer::collect_bool(rows, |row| keys.binary_search(&at(row)).is_ok())
}

fn among_integers<T: ArrowPrimitiveType>(array: &ArrayRef, values: &[Literal]) -> BooleanBuffer
where
    T::Native: Into<i64>,
{
    let numbers = array.as_primitive::<T>().values();
    let key = |literal: &Literal| match literal {
        Literal::Int32(number) => i64::from(*number),
        Literal::Int64(number) => *number,
        _ => 0,
    };
    is_among(array.len(), values, |row| numbers[row].into(), key)
}

fn among_floats<T: ArrowPrimitiveType>(array: &ArrayRef, values: &[Literal]) -> BooleanBuffer
where
    T::Native: Into<f64>,
{
    let numbers = array.as_primitive::<T>().values();
    let key = |literal: &Literal| {
        sort_key(match literal {
            Literal::Float32(bits) => f32::from_bits(*bits).into(),
            Literal::Float64(bits) => f64::from_bits(*bits),
            _ => 0.0,
        })
    };
    is_among(array.len(), values, |row| sort_key(numbers[row].into()), key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_above_all_and_zeros_are_equal() {
        let nan = f64::NAN;
        let order = [f64::NEG_INFINITY, -1.5, 0.0, 1e-300, f64::INFINITY, nan];
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                assert_eq!(Total::lt(*a, *b), i < j, "{a} {b}");
                assert_eq!(Total::le(*a, *b), i <= j, "{a} {b}");
                assert_eq!(Total::eq(*a, *b), i == j, "{a} {b}");
                assert_eq!(sort_key(*a).cmp(&sort_key(*b)), i.cmp(&j), "{a} {b}");
            }
        }
        assert!(Total::eq(-0.0, 0.0) && !Total::lt(-0.0, 0.0));
        assert_eq!(sort_key(-0.0), sort_key(0.0));
    }
}
