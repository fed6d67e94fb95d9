//! Light curves: functions over the points of a history column, none of the future.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, UInt32Array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take;

use crate::kernel::{Value, cast, is_true};
use crate::tree::Curve;
use crate::types::Type;

/// The points of a history column in a batch: all alerts' in one row.
#[derive(Debug)]
pub(crate) struct Points {
    /// For each alert the places of its points, from first to last.
    offsets: Vec<usize>,
    /// The points' alerts.
    pub(crate) parents: UInt32Array,
    /// The days from each point to its alert; NaN where a time is missing, negative in the future.
    ages: Vec<f64>,
    times: Vec<f64>,
}

impl Points {
    /// The points of a list column; `point_times` are those of its elements, `alert_times` the
    /// alerts'.
    pub(crate) fn new(
        list: &ListArray,
        point_times: &Float64Array,
        alert_times: &Float64Array,
    ) -> Self {
        let (mut offsets, mut parents) = (vec![0], Vec::new());
        let (mut ages, mut times) = (Vec::new(), Vec::new());
        for row in 0..list.len() {
            // A null list may span elements: they are no points.
            for place in if list.is_null(row) { 0..0 } else { span(list, row) } {
                let is_known = !point_times.is_null(place) && !alert_times.is_null(row);
                let time = if is_known { point_times.value(place) } else { f64::NAN };
                parents.push(row as u32);
                times.push(time);
                ages.push(alert_times.value(row) - time);
            }
            offsets.push(parents.len());
        }
        Self { offsets, parents: parents.into(), ages, times }
    }

    /// A field of the points, from the list's elements.
    pub(crate) fn field(list: &ListArray, values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let is_dense = list.null_count() == 0;
        let (first, last) = (list.value_offsets()[0], list.value_offsets()[list.len()]);
        if is_dense {
            return Ok(values.slice(first as usize, (last - first) as usize));
        }
        let rows = (0..list.len()).filter(|row| !list.is_null(*row));
        let places: Vec<u32> =
            rows.flat_map(|row| span(list, row)).map(|place| place as u32).collect();
        take(values, &UInt32Array::from(places), None)
    }

    pub(crate) fn len(&self) -> usize {
        self.ages.len()
    }

    fn alerts(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Evaluates a function over the points of each alert.
    pub(crate) fn evaluate(
        &self,
        function: Curve,
        days: Option<f64>,
        value: &Value,
    ) -> Result<Value, ArrowError> {
        let values = value.expanded(self.len())?;
        let days = days.unwrap_or(f64::INFINITY);
        // NaN is in no window.
        let is_within = |point: usize| self.ages[point] >= 0.0 && self.ages[point] <= days;
        let errors = value
            .errors
            .as_ref()
            .map(|errors| self.any(|point| is_within(point) && errors.value(point)));
        let is_value = usable(&values);
        let is_used =
            BooleanBuffer::collect_bool(self.len(), |p| is_within(p) && is_value.value(p));
        let array: ArrayRef = match function {
            Curve::CountIf => self.count(&(&is_used & &is_true(values.as_boolean()))),
            Curve::Mean => self.folded(&values, &is_used, mean),
            Curve::Slope => self.folded(&values, &is_used, slope),
            Curve::First => self.best(&values, &is_used, |a, b| self.times[a] < self.times[b])?,
            Curve::Last => self.best(&values, &is_used, |a, b| self.times[a] >= self.times[b])?,
            Curve::Max | Curve::Min => self.extreme(function, &values, &is_used)?,
        };
        Ok(Value { errors, ..Value::each(array) })
    }

    fn any(&self, is: impl Fn(usize) -> bool) -> BooleanBuffer {
        BooleanBuffer::collect_bool(self.alerts(), |alert| self.of(alert).any(&is))
    }

    fn of(&self, alert: usize) -> std::ops::Range<usize> {
        self.offsets[alert]..self.offsets[alert + 1]
    }

    fn count(&self, is_true: &BooleanBuffer) -> ArrayRef {
        let count = |alert| self.of(alert).filter(|point| is_true.value(*point)).count() as i64;
        Arc::new(Int64Array::from_iter_values((0..self.alerts()).map(count)))
    }

    /// The value of the best used point; one is better than another by `is_better`.
    fn best(
        &self,
        values: &ArrayRef,
        is_used: &BooleanBuffer,
        is_better: impl Fn(usize, usize) -> bool,
    ) -> Result<ArrayRef, ArrowError> {
        let best = (0..self.alerts()).map(|alert| {
            let used = self.of(alert).filter(|point| is_used.value(*point));
            used.reduce(|best, point| if is_better(point, best) { point } else { best })
        });
        let places: UInt32Array = best.map(|place| place.map(|place| place as u32)).collect();
        take(values, &places, None)
    }

    fn extreme(
        &self,
        function: Curve,
        values: &ArrayRef,
        is_used: &BooleanBuffer,
    ) -> Result<ArrayRef, ArrowError> {
        let by = |numbers: &[i64], a: usize, b: usize| match function {
            Curve::Max => numbers[a] > numbers[b],
            _ => numbers[a] < numbers[b],
        };
        if matches!(values.data_type(), DataType::Int32 | DataType::Int64) {
            let numbers = integers(values)?;
            return self.best(values, is_used, |a, b| by(&numbers, a, b));
        }
        let numbers = doubles(values)?;
        self.best(values, is_used, |a, b| match function {
            Curve::Max => numbers[a] > numbers[b],
            _ => numbers[a] < numbers[b],
        })
    }

    /// A number computed from the ages and values of an alert's used points.
    fn folded(
        &self,
        values: &ArrayRef,
        is_used: &BooleanBuffer,
        fold: fn(&[(f64, f64)]) -> Option<f64>,
    ) -> ArrayRef {
        let numbers = values.as_primitive::<Float64Type>().values();
        let mut used = Vec::new();
        let of_alert = (0..self.alerts()).map(|alert| {
            used.clear();
            let points = self.of(alert).filter(|point| is_used.value(*point));
            used.extend(points.map(|point| (self.ages[point], numbers[point])));
            fold(&used)
        });
        Arc::new(of_alert.collect::<Float64Array>())
    }
}

fn span(list: &ListArray, row: usize) -> std::ops::Range<usize> {
    let offsets = list.value_offsets();
    offsets[row] as usize..offsets[row + 1] as usize
}

fn mean(points: &[(f64, f64)]) -> Option<f64> {
    let sum: f64 = points.iter().map(|(_, value)| value).sum();
    (!points.is_empty()).then(|| sum / points.len() as f64)
}

/// The slope a day of the least-squares line through (age, value); ages grow backwards in time.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_age = points.iter().map(|(age, _)| age).sum::<f64>() / count;
    let mean_value = points.iter().map(|(_, value)| value).sum::<f64>() / count;
    let (mut both, mut ages) = (0.0, 0.0);
    for (age, value) in points {
        both += (age - mean_age) * (value - mean_value);
        ages += (age - mean_age) * (age - mean_age);
    }
    (ages > 0.0).then(|| -both / ages)
}

/// The points whose value is neither null nor NaN.
fn usable(values: &ArrayRef) -> BooleanBuffer {
    let is_number = match values.data_type() {
        DataType::Float32 => {
            let numbers = values.as_primitive::<Float32Type>().values();
            BooleanBuffer::collect_bool(values.len(), |point| !numbers[point].is_nan())
        }
        DataType::Float64 => {
            let numbers = values.as_primitive::<Float64Type>().values();
            BooleanBuffer::collect_bool(values.len(), |point| !numbers[point].is_nan())
        }
        _ => BooleanBuffer::new_set(values.len()),
    };
    match values.nulls().map(NullBuffer::inner) {
        Some(valid) => &is_number & valid,
        None => is_number,
    }
}

fn integers(values: &ArrayRef) -> Result<Vec<i64>, ArrowError> {
    let value = cast(&Value::each(values.clone()), Type::Int64)?;
    Ok(value.array.as_primitive::<arrow_array::types::Int64Type>().values().to_vec())
}

fn doubles(values: &ArrayRef) -> Result<Vec<f64>, ArrowError> {
    let value = cast(&Value::each(values.clone()), Type::Float64)?;
    Ok(value.array.as_primitive::<Float64Type>().values().to_vec())
}

/// A boolean array of the rows of a mask.
pub(crate) fn rows_of(mask: &BooleanBuffer) -> Vec<u32> {
    BooleanArray::new(mask.clone(), None).values().set_indices().map(|row| row as u32).collect()
}
