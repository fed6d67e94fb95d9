//! Runs the conformance suite on transports and prints the results, or updates a page with stored
//! results.
//!
//! `cargo run -p helio-bus --example conformance -- URL… [--json] [--only PREFIX]`
//! `cargo run -p helio-bus --example conformance -- --page FILE --results FOLDER [--check]`
//!
//! Exit code 1 if a promise is broken, or if the page differs from the results.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use helio_bus::conformance::{self, Report, UrlHarness};

/// The marks around the page's tables.
const MARKS: (&str, &str) = ("<!-- tables -->\n", "<!-- end -->");

fn main() -> ExitCode {
    let (mut urls, mut prefix, mut json, mut check) = (Vec::new(), String::new(), false, false);
    let (mut page, mut results) = (None, String::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = true,
            "--check" => check = true,
            "--only" => prefix = words.next().unwrap_or_default(),
            "--page" => page = words.next(),
            "--results" => results = words.next().unwrap_or_default(),
            _ => urls.push(word),
        }
    }
    if let Some(page) = page {
        return update(Path::new(&page), Path::new(&results), check).unwrap_or_else(|why| {
            eprintln!("conformance: {page}: {why}");
            ExitCode::FAILURE
        });
    }
    if urls.is_empty() {
        urls.push("memory:held".to_owned());
    }
    let held = |url: &String| {
        let report =
            conformance::run(&UrlHarness::to(url), |check| check.name.starts_with(&prefix));
        (url.clone(), report)
    };
    let reports: Vec<(String, Report)> = urls.iter().map(held).collect();
    if json {
        println!("{}", serde_json::json!(BTreeMap::from_iter(reports.iter().cloned())));
    } else {
        reports.iter().for_each(|(url, report)| print!("{url}\n\n{report}\n"));
    }
    let broken = reports.iter().any(|(_, report)| !report.is_conformant());
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Writes the tables between the page's marks, or checks that they are there.
fn update(page: &Path, results: &Path, check: bool) -> std::io::Result<ExitCode> {
    let before = std::fs::read_to_string(page)?;
    let cut = before
        .split_once(MARKS.0)
        .and_then(|(head, rest)| rest.split_once(MARKS.1).map(|(_, tail)| (head, tail)));
    let Some((head, tail)) = cut else {
        return Err(std::io::Error::other("its marks are missing"));
    };
    let tables = conformance::tables(results)?;
    let now = [head, MARKS.0, &tables, MARKS.1, tail].concat();
    if !check {
        std::fs::write(page, now)?;
    } else if now != before {
        eprintln!("conformance: {} is not that of the results: `make conformance`", page.display());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
