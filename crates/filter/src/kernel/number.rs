//! Arithmetic, casts and functions of numbers.

use std::f64::consts::LN_10;
use std::sync::Arc;

use arrow_arith::numeric::{add_wrapping, div, mul_wrapping, rem, sub_wrapping};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float32Array, Float64Array, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{ArrowError, DataType};

use super::{Value, nulls};
use crate::tree::{Arith, Math};
use crate::types::Type;

/// An operation that fails in some rows: null, and an error where the arguments were not null.
fn fallible<T: ArrowPrimitiveType>(
    rows: usize,
    nulls: Option<NullBuffer>,
    at: impl Fn(usize) -> Option<T::Native>,
) -> Value {
    let mut values = vec![T::Native::default(); rows];
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let done = BooleanBuffer::collect_bool(rows, |row| {
        let result = if is_null(row) { None } else { at(row) };
        values[row] = result.unwrap_or_default();
        result.is_some()
    });
    let failed = match &nulls {
        Some(nulls) => nulls.inner() & &!&done,
        None => !&done,
    };
    let errors = (failed.count_set_bits() > 0).then_some(failed);
    let array = PrimitiveArray::<T>::new(values.into(), Some(NullBuffer::new(done)));
    Value { errors, ..Value::each(Arc::new(array)) }
}

pub(super) fn arith(
    op: Arith,
    left: &Value,
    right: &Value,
    rows: usize,
) -> Result<Value, ArrowError> {
    let is_float = matches!(left.array.data_type(), DataType::Float32 | DataType::Float64);
    let array = match op {
        Arith::Add => add_wrapping(left, right)?,
        Arith::Sub => sub_wrapping(left, right)?,
        Arith::Mul => mul_wrapping(left, right)?,
        Arith::Div if is_float => div(left, right)?,
        Arith::Rem if is_float => rem(left, right)?,
        Arith::Div | Arith::Rem => return Ok(quotient(op, left, right, rows)),
    };
    Ok(Value::each(array))
}

/// The quotient or the remainder of integers.
fn quotient(op: Arith, left: &Value, right: &Value, rows: usize) -> Value {
    match left.array.data_type() {
        DataType::Int32 => integers::<Int32Type>(left, right, rows, |a, b| match op {
            Arith::Div => a.checked_div(b),
            // The remainder of the least number by -1 is 0.
            _ => (b != 0).then(|| a.wrapping_rem(b)),
        }),
        _ => integers::<Int64Type>(left, right, rows, |a, b| match op {
            Arith::Div => a.checked_div(b),
            _ => (b != 0).then(|| a.wrapping_rem(b)),
        }),
    }
}

fn integers<T: ArrowPrimitiveType>(
    left: &Value,
    right: &Value,
    rows: usize,
    f: impl Fn(T::Native, T::Native) -> Option<T::Native>,
) -> Value {
    let (a, b) =
        (left.array.as_primitive::<T>().values(), right.array.as_primitive::<T>().values());
    let (by_a, by_b) = (usize::from(!left.is_constant), usize::from(!right.is_constant));
    let nulls = nulls(&[left.clone(), right.clone()], rows);
    fallible::<T>(rows, nulls, |row| f(a[row * by_a], b[row * by_b]))
}

/// Converts numbers and booleans; a float is cut towards zero.
pub(crate) fn cast(value: &Value, to: Type) -> Result<Value, ArrowError> {
    let array = &value.array;
    Ok(match array.data_type() {
        DataType::Boolean => Value::each(from_booleans(array.as_boolean(), to)),
        DataType::Int32 => from_numbers::<Int32Type>(array, to, i64::from, f64::from, |n| n as f32),
        DataType::Int64 => from_numbers::<Int64Type>(array, to, |n| n, |n| n as f64, |n| n as f32),
        DataType::Float32 => from_floats::<Float32Type>(array, to),
        DataType::Float64 => from_floats::<Float64Type>(array, to),
        other => return Err(ArrowError::CastError(format!("from {other}"))),
    })
}

fn from_booleans(array: &BooleanArray, to: Type) -> ArrayRef {
    fn numbers<T: ArrowPrimitiveType>(array: &BooleanArray, one: T::Native) -> ArrayRef {
        let values = array.values().iter().map(|bit| if bit { one } else { T::Native::default() });
        Arc::new(PrimitiveArray::<T>::new(values.collect(), array.nulls().cloned()))
    }
    match to {
        Type::Int32 => numbers::<Int32Type>(array, 1),
        Type::Int64 => numbers::<Int64Type>(array, 1),
        Type::Float32 => numbers::<Float32Type>(array, 1.0),
        Type::Float64 => numbers::<Float64Type>(array, 1.0),
        Type::Bool | Type::Utf8 => Arc::new(array.clone()),
    }
}

fn from_numbers<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    to: Type,
    integer: impl Fn(T::Native) -> i64 + Copy,
    double: impl Fn(T::Native) -> f64,
    single: impl Fn(T::Native) -> f32,
) -> Value {
    let array = array.as_primitive::<T>();
    Value::each(match to {
        Type::Bool => {
            let values = array.values();
            let bits = BooleanBuffer::collect_bool(array.len(), |row| integer(values[row]) != 0);
            Arc::new(BooleanArray::new(bits, array.nulls().cloned()))
        }
        Type::Int32 => {
            let values = array.values();
            let at = |row: usize| i32::try_from(integer(values[row])).ok();
            return fallible::<Int32Type>(array.len(), array.nulls().cloned(), at);
        }
        Type::Int64 | Type::Utf8 => Arc::new(array.unary::<_, Int64Type>(integer)),
        Type::Float32 => Arc::new(array.unary::<_, Float32Type>(single)),
        Type::Float64 => Arc::new(array.unary::<_, Float64Type>(double)),
    })
}

fn from_floats<T: ArrowPrimitiveType>(array: &ArrayRef, to: Type) -> Value
where
    T::Native: Into<f64>,
{
    let array = array.as_primitive::<T>();
    let (values, nulls) = (array.values(), array.nulls().cloned());
    Value::each(match to {
        Type::Bool => {
            let bits = BooleanBuffer::collect_bool(array.len(), |row| values[row].into() != 0.0);
            Arc::new(BooleanArray::new(bits, nulls))
        }
        Type::Int32 => {
            let at = |row: usize| whole(values[row].into(), 31).map(|number| number as i32);
            return fallible::<Int32Type>(array.len(), nulls, at);
        }
        Type::Int64 => {
            let at = |row: usize| whole(values[row].into(), 63).map(|number| number as i64);
            return fallible::<Int64Type>(array.len(), nulls, at);
        }
        Type::Float32 => Arc::new(array.unary::<_, Float32Type>(|n| {
            let double: f64 = n.into();
            double as f32
        })),
        Type::Float64 | Type::Utf8 => Arc::new(array.unary::<_, Float64Type>(Into::into)),
    })
}

/// A float cut towards zero, if an integer of so many bits and a sign can hold it.
fn whole(number: f64, bits: i32) -> Option<f64> {
    let (cut, limit) = (number.trunc(), 2.0_f64.powi(bits));
    (cut >= -limit && cut < limit).then_some(cut)
}

pub(super) fn math(function: Math, value: &Value) -> Result<Value, ArrowError> {
    Ok(match value.array.data_type() {
        DataType::Int32 => absolute::<Int32Type>(value, i32::checked_abs),
        DataType::Int64 => absolute::<Int64Type>(value, i64::checked_abs),
        DataType::Float32 => {
            let array = value.array.as_primitive::<Float32Type>();
            floats(function, array, |n| n < 0.0, f32_function(function))
        }
        DataType::Float64 => {
            let array = value.array.as_primitive::<Float64Type>();
            floats(function, array, |n| n < 0.0, f64_function(function))
        }
        other => return Err(ArrowError::ComputeError(format!("{function:?} of {other}"))),
    })
}

/// The only function that computes with integers.
fn absolute<T: ArrowPrimitiveType>(
    value: &Value,
    f: impl Fn(T::Native) -> Option<T::Native>,
) -> Value {
    let array = value.array.as_primitive::<T>();
    fallible::<T>(array.len(), array.nulls().cloned(), |row| f(array.value(row)))
}

fn floats<T: ArrowPrimitiveType>(
    function: Math,
    array: &PrimitiveArray<T>,
    is_negative: impl Fn(T::Native) -> bool,
    f: fn(T::Native) -> T::Native,
) -> Value {
    if function == Math::Sqrt {
        let root = |number| (!is_negative(number)).then(|| f(number));
        let at = |row| root(array.value(row));
        return fallible::<T>(array.len(), array.nulls().cloned(), at);
    }
    Value::each(Arc::new(array.unary::<_, T>(f)))
}

macro_rules! functions {
    ($name:ident, $t:ty) => {
        fn $name(function: Math) -> fn($t) -> $t {
            match function {
                Math::Abs => <$t>::abs,
                Math::Acos => <$t>::acos,
                Math::Asin => <$t>::asin,
                Math::Atan => <$t>::atan,
                Math::Ceil => <$t>::ceil,
                Math::Cos => <$t>::cos,
                Math::Degrees => <$t>::to_degrees,
                Math::Exp => <$t>::exp,
                Math::Floor => <$t>::floor,
                Math::Ln => <$t>::ln,
                Math::Log10 => <$t>::log10,
                Math::Log2 => <$t>::log2,
                Math::Radians => <$t>::to_radians,
                Math::Round => <$t>::round,
                Math::Sin => <$t>::sin,
                Math::Sqrt => <$t>::sqrt,
                Math::Tan => <$t>::tan,
            }
        }
    };
}
functions!(f32_function, f32);
functions!(f64_function, f64);

/// Zero to a negative power fails.
pub(super) fn power(args: &[Value], rows: usize) -> Value {
    let (base, exponent) = (args[0].doubles(), args[1].doubles());
    fallible::<Float64Type>(rows, nulls(args, rows), |row| {
        let (base, exponent) = (base.at(row), exponent.at(row));
        (base != 0.0 || exponent.is_nan() || exponent >= 0.0).then(|| base.powf(exponent))
    })
}

pub(super) fn atan2(args: &[Value], rows: usize) -> Value {
    let nulls = nulls(args, rows);
    if args[0].array.data_type() == &DataType::Float32 {
        let of = |arg: &Value| arg.array.as_primitive::<Float32Type>().values().clone();
        let (y, x) = (of(&args[0]), of(&args[1]));
        let steps = [0, 1].map(|arg| usize::from(!args[arg].is_constant));
        let values = (0..rows).map(|row| y[row * steps[0]].atan2(x[row * steps[1]]));
        return Value::each(Arc::new(Float32Array::new(values.collect(), nulls)));
    }
    let (y, x) = (args[0].doubles(), args[1].doubles());
    let values = (0..rows).map(|row| y.at(row).atan2(x.at(row)));
    Value::each(Arc::new(Float64Array::new(values.collect(), nulls)))
}

pub(super) fn is_nan(value: &Value) -> Value {
    let (array, rows) = (&value.array, value.array.len());
    let bits = match array.data_type() {
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values();
            BooleanBuffer::collect_bool(rows, |row| values[row].is_nan())
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            BooleanBuffer::collect_bool(rows, |row| values[row].is_nan())
        }
        _ => BooleanBuffer::new_unset(rows),
    };
    Value::each(Arc::new(BooleanArray::new(bits, array.nulls().cloned())))
}

/// The magnitude of 1 nJy: m = -2.5 log10(f / 3631 Jy), rounded as Rubin's pipelines do.
const ZERO_POINT_NJY: f64 = 31.4;

/// Null where the flux is not above zero; no error, since difference fluxes often are negative.
pub(super) fn magnitude(args: &[Value], rows: usize) -> Value {
    let flux = args[0].doubles();
    positive(args, rows, |row| flux.at(row), |flux, _| -2.5 * flux.log10() + ZERO_POINT_NJY)
}

pub(super) fn magnitude_error(args: &[Value], rows: usize) -> Value {
    let (flux, error) = (args[0].doubles(), args[1].doubles());
    let sigma = |flux: f64, row: usize| 2.5 / LN_10 * error.at(row).abs() / flux;
    positive(args, rows, |row| flux.at(row), sigma)
}

/// A function of a flux that is above zero; null elsewhere.
fn positive(
    args: &[Value],
    rows: usize,
    flux: impl Fn(usize) -> f64,
    f: impl Fn(f64, usize) -> f64,
) -> Value {
    let is_positive = NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| flux(row) > 0.0));
    let nulls = NullBuffer::union(nulls(args, rows).as_ref(), Some(&is_positive));
    let values = (0..rows).map(|row| f(flux(row), row)).collect();
    Value::each(Arc::new(Float64Array::new(values, nulls)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubles(values: &[Option<f64>]) -> Value {
        Value::each(Arc::new(Float64Array::from(values.to_vec())))
    }

    #[test]
    fn a_float_that_no_integer_holds_is_an_error() {
        let value =
            doubles(&[Some(2_147_483_647.9), Some(2_147_483_648.0), Some(-2_147_483_648.9)]);
        let result = cast(&value, Type::Int32).unwrap();
        let found: Vec<_> = result.array.as_primitive::<Int32Type>().iter().collect();
        assert_eq!(found, [Some(i32::MAX), None, Some(i32::MIN)]);
        assert_eq!(result.errors.unwrap().iter().collect::<Vec<_>>(), [false, true, false]);
        let value =
            doubles(&[Some(9.223_372_036_854_776e18), Some(-9.223_372_036_854_776e18), None]);
        let result = cast(&value, Type::Int64).unwrap();
        let found: Vec<_> = result.array.as_primitive::<Int64Type>().iter().collect();
        assert_eq!(found, [None, Some(i64::MIN), None]);
        assert_eq!(result.errors.unwrap().iter().collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn magnitudes_are_ab_and_null_without_flux() {
        let flux = doubles(&[Some(3631e9), Some(1000.0), Some(0.0), Some(f64::NAN), Some(-5.0)]);
        let result = magnitude(std::slice::from_ref(&flux), 5);
        let found: Vec<_> = result.array.as_primitive::<Float64Type>().iter().collect();
        assert!(found[0].unwrap().abs() < 1e-3, "{found:?}");
        assert!((found[1].unwrap() - 23.9).abs() < 1e-12, "{found:?}");
        assert_eq!(found[2..], [None, None, None]);
        let error = doubles(&[Some(1e9), Some(100.0), Some(1.0), Some(1.0), Some(1.0)]);
        let result = magnitude_error(&[flux, error], 5);
        let found: Vec<_> = result.array.as_primitive::<Float64Type>().iter().collect();
        assert!((found[1].unwrap() - 0.108_573_620).abs() < 1e-8, "{found:?}");
        assert_eq!((found[2], result.errors.is_none()), (None, true));
    }
}
