//! Batches as the tests need them, and a model of the cap's processes.

pub(crate) mod model;

use std::sync::Arc;
use std::time::Duration;

use arrow_array::builder::{Float64Builder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow_schema::{DataType, Field};
use helio_filter::{
    Catalog, CheckError, Filter, Layout, LiveWatchList, Matches, Outcome, Plan, Region, WatchList,
};

/// A source of numbers that depends on its seed alone (Marsaglia's xorshift).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A point of a light curve: time, flux, S/N, band.
pub(crate) type Point = (Option<f64>, Option<f64>, Option<f64>, Option<&'static str>);

/// History columns as Rubin's: lists of records.
pub(crate) fn history(rows: &[Option<Vec<Point>>]) -> ArrayRef {
    let double = |name: &str| Field::new(name, DataType::Float64, true);
    let band = Field::new("band", DataType::Utf8, true);
    let fields = vec![double("midpointMjdTai"), double("psfFlux"), double("snr"), band];
    let mut list = ListBuilder::new(StructBuilder::from_fields(fields, 0));
    for row in rows {
        for (time, flux, snr, band) in row.iter().flatten() {
            let point = list.values();
            for (field, value) in [time, flux, snr].into_iter().enumerate() {
                let builder: &mut Float64Builder = point.field_builder(field).unwrap();
                builder.append_option(*value);
            }
            let builder: &mut StringBuilder = point.field_builder(3).unwrap();
            builder.append_option(*band);
            point.append(true);
        }
        list.append(row.is_some());
    }
    Arc::new(list.finish())
}

/// Five alerts with the values that matter.
pub(crate) fn small_batch() -> RecordBatch {
    let f32s = |v: [Option<f32>; 5]| Arc::new(Float32Array::from(v.to_vec())) as ArrayRef;
    let f64s = |v: [Option<f64>; 5]| Arc::new(Float64Array::from(v.to_vec())) as ArrayRef;
    let bands = [Some("g"), Some("r"), None, Some("lsst_i"), Some("100%")];
    let point = |time, flux, snr, band| (Some(time), Some(flux), Some(snr), Some(band));
    let curves = [
        Some(vec![
            point(60_000.0, 100.0, 5.0, "g"),
            point(60_010.0, 300.0, 15.0, "r"),
            point(60_020.0, 200.0, 10.0, "g"),
            // Of the future: the alert's time is 60,021.
            point(60_022.0, 900.0, 45.0, "g"),
        ]),
        Some(vec![
            (Some(60_000.0), None, Some(5.0), None),
            (None, Some(50.0), Some(5.0), Some("r")),
            (Some(60_001.0), Some(f64::NAN), None, Some("r")),
            (Some(60_002.0), Some(-7.5), Some(2.0), Some("g")),
        ]),
        Some(vec![]),
        None,
        Some(vec![point(60_021.0, 1.0, 1.0, "z"), point(60_021.0, 2.0, 3.0, "y")]),
    ];
    RecordBatch::try_from_iter_with_nullable([
        ("diaSourceId", Arc::new(Int64Array::from_iter_values(101..106)) as ArrayRef, false),
        ("diaSource.snr", f32s([Some(4.5), Some(f32::NAN), None, Some(-0.0), Some(20.0)]), true),
        (
            "diaSource.psfFlux",
            f64s([Some(1000.0), Some(f64::NAN), None, Some(-3.0), Some(0.0)]),
            true,
        ),
        (
            "diaSource.psfFluxErr",
            f64s([Some(100.0), Some(1.0), Some(2.0), None, Some(f64::INFINITY)]),
            true,
        ),
        (
            "diaSource.n",
            Arc::new(Int32Array::from(vec![Some(3), Some(0), None, Some(-7), Some(i32::MAX)])),
            true,
        ),
        (
            "diaSource.id",
            Arc::new(Int64Array::from(vec![Some(1), Some(0), None, Some(i64::MIN), Some(12)])),
            true,
        ),
        ("diaSource.band", Arc::new(StringArray::from(bands.to_vec())), true),
        (
            "diaSource.isDipole",
            Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(false), None])),
            true,
        ),
        ("diaSource.ra", f64s([Some(10.0), Some(359.999), Some(180.0), None, Some(0.0)]), true),
        ("diaSource.dec", f64s([Some(-30.0), Some(0.0), Some(89.9), Some(5.0), Some(0.0)]), true),
        (
            "diaSource.midpointMjdTai",
            f64s([Some(60_021.0), Some(60_021.0), Some(60_021.0), None, Some(60_021.0)]),
            true,
        ),
        (
            "diaSource.timeProcessed",
            Arc::new(arrow_array::TimestampMicrosecondArray::from(vec![1, 2, 3, 4, 5])),
            true,
        ),
        ("prvDiaSources", history(&curves), true),
        ("prvDiaForcedSources", history(&[None, None, None, None, None]), true),
    ])
    .unwrap()
}

/// Names for `in_moc` and `in_watchlist`: the northern polar cap, and two positions.
pub(crate) fn catalog_of(batch: &RecordBatch) -> Catalog {
    let cells = helio_filter::MOC_CELLS / 12;
    let north = Region::new(vec![0..cells, cells..4 * cells]).unwrap();
    let list = WatchList::new(vec![[10.0, -30.0005], [0.0, 0.0]], 2.0).unwrap();
    Catalog::new(&batch.schema(), Layout::rubin())
        .with_region("north", north)
        .with_watch_list("targets", Arc::new(LiveWatchList::new(list)))
}

pub(crate) fn no_clock() -> Duration {
    Duration::ZERO
}

/// The outcomes of filters over a batch, in one plan.
pub(crate) fn run(batch: &RecordBatch, texts: &[&str]) -> (Plan, Matches) {
    let catalog = Arc::new(catalog_of(batch));
    let filters: Vec<(String, Filter)> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let checked = Filter::check(text, &catalog);
            (index.to_string(), checked.unwrap_or_else(|error| panic!("{text}: {error}")))
        })
        .collect();
    let named = filters.iter().map(|(name, filter)| (name.as_str(), filter));
    let plan = Plan::new(catalog, named).unwrap();
    let matches = plan.run(batch.clone(), &mut no_clock).unwrap();
    (plan, matches)
}

/// The outcome of one condition.
pub(crate) fn outcome(batch: &RecordBatch, condition: &str) -> Outcome {
    let text = format!("SELECT * FROM alerts WHERE {condition}");
    run(batch, &[&text]).1.outcomes()[0].clone()
}

/// The error of a text.
pub(crate) fn error(text: &str) -> CheckError {
    match Filter::check(text, &catalog_of(&small_batch())) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error,
    }
}
