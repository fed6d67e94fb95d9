//! Holds a transport to the conformance suite and prints what it passes, refuses and breaks.
//!
//! `cargo run -p helio-bus --example conformance -- journal:/tmp/held [NAME-PREFIX] [--json]`

use std::time::Instant;

use helio_bus::conformance::{self, Connecting, Report};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (options, words): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let url = words.first().cloned().unwrap_or_else(|| "memory:held".to_owned());
    let prefix = words.get(1).cloned().unwrap_or_default();
    let harness = Connecting::to(&url);
    let mut whole = Report { lines: Vec::new() };
    for check in conformance::checks().filter(|check| check.name.starts_with(&prefix)) {
        let since = Instant::now();
        let mut report = conformance::run(&harness, |other| other.name == check.name);
        eprintln!("{:8.3} s  {}", since.elapsed().as_secs_f64(), check.name);
        whole.lines.append(&mut report.lines);
    }
    if options.iter().any(|option| option == "--json") {
        println!("{}", serde_json::to_string_pretty(&whole)?);
    } else {
        print!("{whole}");
    }
    if whole.is_conformant() { Ok(()) } else { Err("promises are broken".into()) }
}
