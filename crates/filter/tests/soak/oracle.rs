//! `DataFusion` from `PyPI` as the oracle: the same expressions over the same rows.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow_schema::DataType;
use helio_filter::{Catalog, Filter, Layout, Plan, Reason};
use serde_json::Value as Json;

use crate::support::no_clock;

/// Names a Python with DataFusion; else `make`'s virtual environment is taken.
const PYTHON: &str = "HELIO_TEST_PYTHON";

/// Expressions of one seed.
const COUNT: usize = 500;

fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let python = std::env::var_os(PYTHON).map_or(own, PathBuf::from);
    let mut look = Command::new(&python);
    let there = look.args(["-c", "import datafusion, pyarrow"]).stderr(Stdio::null()).status();
    if there.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    let why = format!(
        "{} has no datafusion and pyarrow; `make test` installs them, or name a Python that has \
         them in {PYTHON}",
        python.display()
    );
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
    assert!(!required, "{why}");
    // Not by `eprintln!`, which a test that passes keeps to itself.
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
    None
}

fn answers(python: &Path, seed: u64) -> Json {
    let out = std::env::temp_dir().join(format!("helio-oracle-{}-{seed}.json", std::process::id()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/oracle.py");
    let mut command = Command::new(python);
    command.arg(script).args([seed.to_string(), COUNT.to_string()]).arg(&out);
    let status = command.status().unwrap();
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn double(value: &Json) -> Option<f64> {
    match value {
        Json::Null => None,
        Json::String(text) => Some(text.parse().unwrap()),
        number => number.as_f64(),
    }
}

fn column(ty: &str, values: &[Json]) -> ArrayRef {
    let longs = values.iter().map(Json::as_i64);
    match ty {
        "int32" => Arc::new(longs.map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        "int64" => Arc::new(longs.collect::<Int64Array>()),
        "float" => {
            let singles = values.iter().map(|value| double(value).map(|value| value as f32));
            Arc::new(singles.collect::<Float32Array>())
        }
        "double" => Arc::new(values.iter().map(double).collect::<Float64Array>()),
        "bool" => Arc::new(values.iter().map(Json::as_bool).collect::<BooleanArray>()),
        _ => Arc::new(values.iter().map(Json::as_str).collect::<StringArray>()),
    }
}

/// What a row shows: numbers by their bits, so that NaN equals NaN.
fn shown(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "null".to_owned();
    }
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float32 => format!("{:?}", array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => format!("{:?}", array.as_primitive::<Float64Type>().value(row)),
        other => panic!("{other}"),
    }
}

#[derive(Debug, Default)]
struct Tally {
    compared: usize,
    rows_with_errors: usize,
    always_fail: usize,
    /// Rows that end `DataFusion`'s query in an operand that is not evaluated here.
    not_needed: usize,
    different: Vec<String>,
}

fn compare(batch: &RecordBatch, catalog: &Arc<Catalog>, case: &Json, tally: &mut Tally) {
    let text = case["text"].as_str().unwrap();
    let values = case["values"].as_array().unwrap();
    let is_error = |value: &Json| value.as_str() == Some("error");
    let checked = Filter::check(&format!("SELECT {text} AS x FROM alerts WHERE TRUE"), catalog);
    let filter = match checked {
        Ok(filter) => filter,
        Err(error) => {
            // Of constants alone: DataFusion may simplify it away, and then has values.
            match error.reason {
                Reason::AlwaysFails => tally.always_fail += 1,
                _ => tally.different.push(format!("{text}: {error}")),
            }
            return;
        }
    };
    let plan = Plan::new(catalog.clone(), [("x", &filter)]).unwrap();
    let matches = plan.run(batch.clone(), &mut no_clock).unwrap();
    let rows: Vec<u32> = (0..batch.num_rows() as u32).collect();
    let ours = plan.select(&matches, 0, &rows).unwrap().column(0).clone();
    let errors = values.iter().filter(|value| is_error(value)).count();
    tally.rows_with_errors += errors;
    if let Some(ty) = case["type"].as_str() {
        let nulled = |value: &Json| if is_error(value) { Json::Null } else { value.clone() };
        let theirs = column(ty, &values.iter().map(nulled).collect::<Vec<_>>());
        if ours.data_type() != theirs.data_type() {
            tally.different.push(format!("{text} is {}, not {ty}", ours.data_type()));
            return;
        }
        for (row, value) in values.iter().enumerate() {
            // An operation that fails is null with us, and may be decided away or caught.
            if !is_error(value) {
                let (ours, theirs) = (shown(&ours, row), shown(&theirs, row));
                if ours != theirs {
                    tally.different.push(format!("row {row} of {text}: {ours}, not {theirs}"));
                    break;
                }
            }
        }
        if *ours.data_type() == DataType::Boolean {
            compare_condition(batch, catalog, text, values, tally);
        }
    }
    tally.compared += 1;
}

/// As a condition: rows that are true match; those that end `DataFusion`'s query are errors.
fn compare_condition(
    batch: &RecordBatch,
    catalog: &Arc<Catalog>,
    text: &str,
    values: &[Json],
    tally: &mut Tally,
) {
    let filter = Filter::check(&format!("SELECT * FROM alerts WHERE {text}"), catalog).unwrap();
    let plan = Plan::new(catalog.clone(), [("x", &filter)]).unwrap();
    let matches = plan.run(batch.clone(), &mut no_clock).unwrap();
    let outcome = &matches.outcomes()[0];
    for (row, value) in values.iter().enumerate() {
        let has = |rows: &[u32]| rows.contains(&(row as u32));
        match value {
            // After a condition that is null, too, the next one is not needed here.
            Json::String(_) => tally.not_needed += usize::from(!has(&outcome.errors)),
            value => {
                let is_match = has(&outcome.rows);
                if is_match != (value.as_bool() == Some(true)) || has(&outcome.errors) {
                    tally.different.push(format!("row {row} matches, or fails: {text}"));
                }
            }
        }
    }
}

#[test]
fn datafusion_agrees() {
    let Some(python) = python() else { return };
    let mut tally = Tally::default();
    let seeds = std::env::var("HELIO_ORACLE_SEEDS").map_or(2, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        let answers = answers(&python, seed);
        let types = answers["types"].as_object().unwrap();
        let columns = types.iter().map(|(name, ty)| {
            let values = answers["columns"][name].as_array().unwrap();
            (name.clone(), column(ty.as_str().unwrap(), values), true)
        });
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let catalog = Arc::new(Catalog::new(&batch.schema(), Layout::rubin()));
        for case in answers["cases"].as_array().unwrap() {
            compare(&batch, &catalog, case, &mut tally);
        }
    }
    assert!(tally.different.is_empty(), "{}", tally.different.join("\n"));
    println!("{tally:?}");
    assert!(tally.compared * 10 > seeds as usize * COUNT * 8, "too few compare: {tally:?}");
    assert!(tally.rows_with_errors > 10 * tally.not_needed, "{tally:?}");
}
