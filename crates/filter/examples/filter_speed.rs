//! How fast filters are: a visit of 10,000 alerts with 97 flat columns, and light curves.
//!
//! `cargo run --release -p helio-filter --example filter_speed [REPEATS]` prints a JSON line a case
//! with the least and the median processor time of the thread, in ms.
#![allow(clippy::unwrap_used, reason = "an example that cannot run ends")]

use std::sync::Arc;
use std::time::Duration;

use arrow_array::builder::{Float64Builder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{ArrayRef, BooleanArray, Float32Array, Float64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field};
use helio_filter::{Catalog, Filter, Layout, LiveWatchList, Plan, WatchList};

const ALERTS: usize = 10_000;
const POINTS: usize = 100;
const POSITIONS: usize = 100_000;

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The processor time of the thread.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

fn flat_columns(random: &mut Random) -> Vec<(String, ArrayRef)> {
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    let mut add = |name: &str, array: ArrayRef| columns.push((format!("diaSource.{name}"), array));
    let mut doubles = |from: f64, to: f64| -> ArrayRef {
        let values = (0..ALERTS).map(|_| {
            let value = from + (to - from) * random.unit();
            (random.unit() > 0.02).then_some(value)
        });
        Arc::new(values.collect::<Float64Array>())
    };
    add("ra", doubles(0.0, 360.0));
    add("dec", doubles(-90.0, 30.0));
    add("midpointMjdTai", doubles(61_000.0, 61_000.5));
    for number in 0..40 {
        add(&format!("d{number}"), doubles(-100.0, 1_000.0));
    }
    for number in 0..50 {
        let values = (0..ALERTS).map(|_| {
            let value = random.unit() * 100.0;
            if value < 1.0 { f32::NAN } else { value as f32 }
        });
        add(&format!("f{number}"), Arc::new(values.collect::<Float32Array>()));
    }
    let flags = (0..ALERTS).map(|_| Some(random.unit() > 0.3));
    add("isDipole", Arc::new(flags.collect::<BooleanArray>()));
    let bands =
        (0..ALERTS).map(|_| Some(["u", "g", "r", "i", "z", "y"][(random.unit() * 6.0) as usize]));
    add("band", Arc::new(bands.collect::<StringArray>()));
    let ids = arrow_array::Int64Array::from_iter_values(0..ALERTS as i64);
    columns.push(("diaSourceId".to_owned(), Arc::new(ids)));
    columns
}

fn history(random: &mut Random) -> ArrayRef {
    let field = |name: &str| Field::new(name, DataType::Float64, true);
    let fields = vec![
        field("midpointMjdTai"),
        field("psfFlux"),
        field("snr"),
        Field::new("band", DataType::Utf8, true),
    ];
    let mut list = ListBuilder::new(StructBuilder::from_fields(fields, ALERTS * POINTS));
    for _ in 0..ALERTS {
        for point in 0..POINTS {
            let row = list.values();
            let numbers =
                [60_700.0 + point as f64 * 3.0, random.unit() * 1_000.0, random.unit() * 30.0];
            for (index, value) in numbers.into_iter().enumerate() {
                row.field_builder::<Float64Builder>(index).unwrap().append_value(value);
            }
            row.field_builder::<StringBuilder>(3).unwrap().append_value(["g", "r"][point % 2]);
            row.append(true);
        }
        list.append(true);
    }
    Arc::new(list.finish())
}

fn flat_filters() -> Vec<String> {
    (0..100)
        .map(|n| {
            let (f, d) = (n % 50, n % 40);
            let band = ["u", "g", "r", "i", "z", "y"][n % 6];
            let low = n * 3;
            format!(
                "diaSource.f{f} > {} AND diaSource.f{} < {} AND abs(diaSource.d{d}) > {low} AND \
                 diaSource.ra BETWEEN {low} AND {} AND diaSource.band = '{band}' AND \
                 diaSource.d{} / diaSource.f{f} > {}",
                n % 20,
                (f + 7) % 50,
                95 - n % 30,
                low + 60,
                (d + 3) % 40,
                n as f64 / 10.0
            )
        })
        .collect()
}

fn curve_filters() -> Vec<String> {
    let column = "prvDiaSources";
    (0..20)
        .map(|n| match n % 5 {
            0 => format!("last({column}.psfFlux) > {}", 900 + n),
            1 => format!("slope({column}.psfFlux, {}) > 3", 30 + n),
            2 => format!("count_if({column}.snr > {}) > 60", 5 + n),
            3 => format!("max(CASE WHEN {column}.band = 'g' THEN {column}.psfFlux END, {n}) > 990"),
            _ => format!(
                "mean({column}.psfFlux / {column}.snr) > {} AND \
                 magnitude(last({column}.psfFlux)) < 24",
                50 + n
            ),
        })
        .collect()
}

fn measure(name: &str, batch: &RecordBatch, conditions: &[String], repeats: usize) {
    let mut random = Random(77);
    let positions =
        (0..POSITIONS).map(|_| [random.unit() * 360.0, random.unit() * 120.0 - 90.0]).collect();
    let list = Arc::new(LiveWatchList::new(WatchList::new(positions, 2.0).unwrap()));
    let catalog =
        Arc::new(Catalog::new(&batch.schema(), Layout::rubin()).with_watch_list("w", list));
    let filters: Vec<(String, Filter)> = conditions
        .iter()
        .enumerate()
        .map(|(index, condition)| {
            let text = format!("SELECT diaSourceId FROM alerts WHERE {condition}");
            (index.to_string(), Filter::check(&text, &catalog).unwrap())
        })
        .collect();
    let named = filters.iter().map(|(name, filter)| (name.as_str(), filter));
    let plan = Plan::new(catalog.clone(), named).unwrap();
    let mut times = Vec::new();
    let mut matches = 0;
    for _ in 0..repeats {
        let start = processor_time();
        let found = plan.run(batch.clone(), &mut processor_time).unwrap();
        times.push((processor_time() - start).as_secs_f64() * 1e3);
        matches = found.outcomes().iter().map(|outcome| outcome.rows.len()).sum();
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{{\"case\":\"{name}\",\"filters\":{},\"alerts\":{ALERTS},\"expressions\":{},\
         \"matches\":{matches},\"least_ms\":{:.1},\"median_ms\":{:.1}}}",
        conditions.len(),
        plan.expressions(),
        times[0],
        times[times.len() / 2]
    );
}

fn main() {
    let repeats = std::env::args().nth(1).map_or(11, |count| count.parse().unwrap());
    let mut random = Random(42);
    let mut columns = flat_columns(&mut random);
    columns.push(("prvDiaSources".to_owned(), history(&mut random)));
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    measure("flat", &batch, &flat_filters(), repeats);
    measure("light curves of 100 points", &batch, &curve_filters(), repeats);
    let cut: Vec<String> =
        curve_filters().iter().map(|c| format!("diaSource.f1 > 90 AND {c}")).collect();
    measure("light curves of a tenth of the alerts", &batch, &cut, repeats);
    measure("a watch list of 100,000", &batch, &["in_watchlist('w')".to_owned()], repeats);
    let cones: Vec<String> = (0..20)
        .map(|n| format!("cone(diaSource.ra, diaSource.dec, {}, -30, 3600)", n * 18))
        .collect();
    measure("20 cones", &batch, &cones, repeats);
}
