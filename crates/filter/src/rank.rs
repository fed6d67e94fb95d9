//! Ranks of alerts by ORDER BY: a total order that is the same in every process.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use crate::kernel::{SortKey, sort_key};

/// A key of a rank. Numbers come before NaN, NaN before null, ascending and descending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// A number, as an integer that is smaller for a better rank; within one ORDER BY only.
    Number(u64),
    /// Not a number.
    Nan,
    /// No value.
    Null,
}

/// An alert's place by ORDER BY; the smaller one is the better.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub Vec<Key>);

/// The keys of a column of numbers.
pub(crate) fn keys(array: &ArrayRef, is_descending: bool) -> Vec<Key> {
    let number: Box<dyn Fn(usize) -> SortKey> = match array.data_type() {
        DataType::Int32 => {
            let values = array.as_primitive::<Int32Type>().values().clone();
            Box::new(move |row| integer_key(values[row].into()))
        }
        DataType::Int64 => {
            let values = array.as_primitive::<Int64Type>().values().clone();
            Box::new(move |row| integer_key(values[row]))
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values().clone();
            Box::new(move |row| sort_key(values[row].into()))
        }
        _ => {
            let values = array.as_primitive::<Float64Type>().values().clone();
            Box::new(move |row| sort_key(values[row]))
        }
    };
    let key = |row| match number(row) {
        SortKey::NaN => Key::Nan,
        SortKey::Number(key) => Key::Number(if is_descending { !key } else { key }),
    };
    (0..array.len()).map(|row| if array.is_null(row) { Key::Null } else { key(row) }).collect()
}

fn integer_key(number: i64) -> SortKey {
    SortKey::Number(number.cast_unsigned() ^ (1 << 63))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int64Array};
    use std::sync::Arc;

    fn order(array: ArrayRef, is_descending: bool) -> Vec<usize> {
        let keys = keys(&array, is_descending);
        let mut rows: Vec<usize> = (0..keys.len()).collect();
        rows.sort_by_key(|row| keys[*row]);
        rows
    }

    #[test]
    fn what_has_no_number_comes_last_in_both_directions() {
        let values = vec![None, Some(f64::NAN), Some(1.0), Some(-0.5), Some(f64::INFINITY)];
        assert_eq!(order(Arc::new(Float64Array::from(values.clone())), false), [3, 2, 4, 1, 0]);
        assert_eq!(order(Arc::new(Float64Array::from(values)), true), [4, 2, 3, 1, 0]);
        let values = vec![Some(i64::MAX), None, Some(i64::MIN), Some(-1)];
        assert_eq!(order(Arc::new(Int64Array::from(values.clone())), false), [2, 3, 0, 1]);
        assert_eq!(order(Arc::new(Int64Array::from(values)), true), [0, 3, 2, 1]);
    }
}
