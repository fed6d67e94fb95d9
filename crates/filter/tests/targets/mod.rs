//! What is done with hostile input: by the fuzzer (fuzz/fuzz_targets), and by `hostile.rs` in every
//! test run. A text must neither panic nor hang.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use helio_filter::{Catalog, Filter, Layout, Plan, Region};

fn batch() -> &'static RecordBatch {
    static BATCH: OnceLock<RecordBatch> = OnceLock::new();
    BATCH.get_or_init(|| {
        let double = |values: [Option<f64>; 3]| Arc::new(Float64Array::from(values.to_vec()));
        let point = StructArray::from(vec![
            (
                Arc::new(Field::new("midpointMjdTai", DataType::Float64, true)),
                double([Some(1.0), Some(2.0), None]) as ArrayRef,
            ),
            (
                Arc::new(Field::new("snr", DataType::Float64, true)),
                double([Some(5.0), None, Some(f64::NAN)]),
            ),
        ]);
        let item = Arc::new(Field::new("item", point.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
        let history = ListArray::new(item, offsets, Arc::new(point), None);
        RecordBatch::try_from_iter_with_nullable([
            ("s.midpointMjdTai", double([Some(3.0), Some(2.0), None]) as _, true),
            ("s.ra", double([Some(3.0), None, Some(f64::NAN)]) as _, true),
            ("s.dec", double([Some(3.0), Some(-90.0), Some(f64::INFINITY)]) as _, true),
            ("s.f", Arc::new(Float32Array::from(vec![Some(1.5), None, Some(-0.0)])) as _, true),
            ("s.i", Arc::new(Int32Array::from(vec![Some(0), None, Some(i32::MIN)])) as _, true),
            ("s.l", Arc::new(Int64Array::from(vec![Some(7), None, Some(i64::MIN)])) as _, true),
            ("s.b", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])) as _, true),
            ("s.t", Arc::new(StringArray::from(vec![Some("g"), None, Some("")])) as _, true),
            ("h", Arc::new(history) as _, true),
        ])
        .expect("the columns have one length")
    })
}

/// Checks any text and, where it is a filter or a condition, runs it over three alerts: its outcome
/// is the same when another filter shares its plan. Returns whether it is one.
pub(crate) fn filter_sql(text: &str) -> bool {
    let layout = Layout {
        ra: "s.ra".to_owned(),
        dec: "s.dec".to_owned(),
        time: "s.midpointMjdTai".to_owned(),
        history_time: "midpointMjdTai".to_owned(),
    };
    let region = Region::new(vec![0..1 << 58, 3 << 58..4 << 58]).expect("it is within the sky");
    let catalog = Arc::new(Catalog::new(&batch().schema(), layout).with_region("r", region));
    let whole = format!("SELECT s.i FROM alerts WHERE {text}");
    let Ok(filter) = Filter::check(text, &catalog).or_else(|_| Filter::check(&whole, &catalog))
    else {
        return false;
    };
    let other = Filter::check("SELECT * FROM alerts WHERE s.i / s.i = 1", &catalog);
    let other = other.expect("it is a filter");
    let alone = Plan::new(catalog.clone(), [("a", &filter)]).expect("it was checked");
    let both = Plan::new(catalog, [("b", &other), ("a", &filter)]).expect("both were checked");
    let mut clock = || Duration::ZERO;
    let alone = alone.run(batch().clone(), &mut clock).expect("the batch has all columns");
    let both = both.run(batch().clone(), &mut clock).expect("the batch has all columns");
    assert_eq!(alone.outcomes()[0], both.outcomes()[1]);
    true
}
