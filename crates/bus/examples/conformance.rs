//! Holds transports to the conformance suite and prints what they pass, refuse and break.
//!
//! `cargo run -p helio-bus --example conformance -- URL… [--json | --markdown] [--only PREFIX]`
//!
//! Exit code 1 where a promise is broken. `--markdown` makes the table of `docs/transports.md`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use helio_bus::conformance::{self, Connecting, Report, Verdict};

enum Form {
    Text,
    Json,
    Markdown,
}

fn main() -> ExitCode {
    let (mut urls, mut form, mut prefix) = (Vec::new(), Form::Text, String::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => form = Form::Json,
            "--markdown" => form = Form::Markdown,
            "--only" => prefix = words.next().unwrap_or_default(),
            _ => urls.push(word),
        }
    }
    if urls.is_empty() {
        urls.push("memory:held".to_owned());
    }
    let held = |url: &String| {
        let report =
            conformance::run(&Connecting::to(url), |check| check.name.starts_with(&prefix));
        (url.clone(), report)
    };
    let reports: Vec<(String, Report)> = urls.iter().map(held).collect();
    match form {
        Form::Text => reports.iter().for_each(|(url, report)| print!("{url}\n\n{report}\n")),
        Form::Json => {
            println!("{}", serde_json::json!(BTreeMap::from_iter(reports.iter().cloned())))
        }
        Form::Markdown => print!("{}", markdown(&reports)),
    }
    let broken = reports.iter().any(|(_, report)| !report.is_conformant());
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn markdown(reports: &[(String, Report)]) -> String {
    let schemes = reports.iter().map(|(url, _)| url.split(['/', '?']).next().unwrap_or(url));
    let mut table = format!("| promise | {} |\n", schemes.collect::<Vec<_>>().join(" | "));
    table.push_str(&"| --- ".repeat(reports.len() + 1));
    table.push_str("|\n");
    for check in conformance::checks() {
        let cells = reports.iter().filter_map(|(_, report)| {
            let line = report.lines.iter().find(|line| line.check == check.name)?;
            Some(match line.verdict {
                Verdict::Passed => "yes",
                Verdict::Refused(_) => "refused",
                Verdict::Skipped(_) => "–",
                Verdict::Broken(_) => "**no**",
            })
        });
        let cells: Vec<_> = cells.collect();
        if !cells.is_empty() {
            table.push_str(&format!("| {} | {} |\n", check.promise, cells.join(" | ")));
        }
    }
    table
}
