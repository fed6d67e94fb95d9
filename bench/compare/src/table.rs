//! The table: medians over the runs, one line a mechanism and payload.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Figures of one mechanism and payload: name of the figure, values over the runs.
type Figures = BTreeMap<&'static str, Vec<f64>>;

fn collect(results: &[Value]) -> BTreeMap<(u64, String), Figures> {
    let mut rows: BTreeMap<(u64, String), Figures> = BTreeMap::new();
    for result in results {
        let name = result["mechanism"].as_str().unwrap_or_default().to_owned();
        if name == "floor" {
            floor(result, &mut rows);
            continue;
        }
        let payload = result["payload_bytes"].as_u64().unwrap_or_default();
        let row = rows.entry((payload, name)).or_default();
        let mut put = |figure, value: &Value| {
            row.entry(figure).or_default().push(value.as_f64().unwrap_or(f64::NAN));
        };
        put("lost", &result["lost"]);
        if result["workload"] == "latency" {
            put("p50", &result["latency_us"]["p50"]);
            put("p99", &result["latency_us"]["p99"]);
            continue;
        }
        put("write", &result["write_per_s"]);
        put("read", &result["read_per_s"]);
        let count = result["count"].as_f64().unwrap_or(f64::NAN);
        for (figure, end) in [("cpu_pub", "publisher"), ("cpu_sub", "subscriber")] {
            let cpu_us = result["cpu_s"][end].as_f64().unwrap_or(f64::NAN) * 1e6 / count;
            put(figure, &cpu_us.into());
        }
    }
    rows
}

fn floor(result: &Value, rows: &mut BTreeMap<(u64, String), Figures>) {
    for payload in [64u64, 256, 6144] {
        let key = payload.to_string();
        let row = rows.entry((payload, "floor".into())).or_default();
        for (figure, value) in [
            ("p50", &result["latency_us"][&key]["p50"]),
            ("p99", &result["latency_us"][&key]["p99"]),
            ("write", &result["append_per_s"][&key]),
            ("read", &result["append_per_s"][&key]),
        ] {
            row.entry(figure).or_default().push(value.as_f64().unwrap_or(f64::NAN));
        }
    }
}

/// Renders the results as a Markdown table.
pub fn render(results: &[Value]) -> String {
    let mut text = String::from(
        "| payload | mechanism | p50 µs | p99 µs | write/s | read/s | \
         CPU µs a message, pub + sub | lost |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for ((payload, mechanism), mut figures) in collect(results) {
        let mut cell = |figure: &str, digits: usize| match figures.get_mut(figure) {
            Some(values) => format!("{:.digits$}", median(values)),
            None => "–".to_owned(),
        };
        let (p50, p99) = (cell("p50", 1), cell("p99", 1));
        let (write, read) = (cell("write", 0), cell("read", 0));
        let (cpu_pub, cpu_sub) = (cell("cpu_pub", 2), cell("cpu_sub", 2));
        let lost = figures.get("lost").map_or(0.0, |values| values.iter().sum());
        let _ = writeln!(
            text,
            "| {payload} | {mechanism} | {p50} | {p99} | {write} | {read} | \
             {cpu_pub} + {cpu_sub} | {lost} |"
        );
    }
    text
}
