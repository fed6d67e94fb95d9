//! Time and processor time of filters in Python over batches of 10,000 rows with 10 columns of
//! doubles: `cargo run --release -p helio-sandbox --example sandbox_speed [BATCHES [PYTHON]]`.

use std::time::{Duration, Instant};

use helio_sandbox::{Batch, BatchError, Column, Filter, Launch, Limits, Number, Values};

const ROWS: usize = 10_000;
const COLUMNS: usize = 10;

const TEXTS: [(&str, &str); 3] = [
    ("nothing", "import numpy as np\ndef select(batch):\n    return np.zeros(batch.rows, bool)"),
    ("one column", "def select(batch):\n    return batch['c0'] > 0.99"),
    ("ten columns", "def select(batch):\n    return sum(batch.values()) / len(batch) > 0.6"),
];

/// Columns of numbers between 0 and 1, as bytes.
fn columns() -> Vec<(String, Vec<u8>)> {
    let number = |i: usize| (i * 7919 % 10_007) as f64 / 10_007.0;
    let bytes = |c| (0..ROWS).flat_map(|row| number(row * COLUMNS + c).to_le_bytes()).collect();
    (0..COLUMNS).map(|c| (format!("c{c}"), bytes(c))).collect()
}

fn batch(columns: &[(String, Vec<u8>)]) -> Result<Batch, BatchError> {
    let columns = columns.iter().map(|(name, bytes)| {
        let values = Values::Numbers { kind: Number::F64, bytes };
        Column { name, values, validity: None }
    });
    Batch::new(ROWS, &columns.collect::<Vec<_>>())
}

/// The median and the 99th percentile in microseconds.
fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    format!("p50 {:>6} us, p99 {:>6} us", at(50), at(99))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let batches: usize = arguments.next().map_or(Ok(1000), |batches| batches.parse())?;
    let python = arguments.next().unwrap_or_else(|| "python3".into());
    let (columns, mut times) = (columns(), Vec::new());
    for _ in 0..batches {
        let start = Instant::now();
        batch(&columns)?;
        times.push(start.elapsed());
    }
    println!("{:<12} {}", "batch", quantiles(times));
    for (name, text) in TEXTS {
        let start = Instant::now();
        let mut filter = Filter::start(Launch::python(&python), text, Limits::default())?;
        let (started, batch) = (start.elapsed(), batch(&columns)?);
        let (mut times, mut cpu, mut memory) = (Vec::new(), Duration::ZERO, 0);
        for _ in 0..batches {
            let (_, usage) = filter.select(&batch)?;
            times.push(usage.time);
            cpu += usage.cpu;
            memory = usage.memory_bytes;
        }
        let cpu_us = cpu.as_micros() / batches.max(1) as u128;
        println!(
            "{name:<12} {}, {cpu_us:>6} us of the worker's processor, {} MB, started in {} ms",
            quantiles(times),
            memory / 1_000_000,
            started.as_millis()
        );
    }
    Ok(())
}
