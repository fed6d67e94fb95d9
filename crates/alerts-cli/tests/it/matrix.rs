//! `helio-alerts matrix`: one cell, and its resumption.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Ran, ran};

const CELL: &str = "journal/volume-100-bare";

fn matrix(dir: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_helio-alerts"));
    command.args(["matrix", "--smoke", "--dir", dir.to_str().unwrap()]).args(args);
    command.env_remove("HELIO_URL").stdin(Stdio::null());
    ran(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn a_cell_is_measured_once_and_a_killed_run_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("alerts-matrix.jsonl");
    let ran = matrix(dir.path(), &["--cells", CELL]).ok();
    assert!(ran.contains("1 cells, 0 of them have results"), "{ran}");
    let first = std::fs::read_to_string(&results).unwrap();
    let line: Value = serde_json::from_str(first.trim_end()).unwrap();
    assert_eq!(line["cell"]["name"], CELL);
    assert_eq!(line["stored_equal"], 2, "{line}");
    assert_eq!(line["lost"], 0, "{line}");
    for role in ["producers", "groups", "witness"] {
        assert!(line["processes"][role]["anon_mb"]["min"].as_f64().unwrap() > 0.0, "{line}");
    }
    // What a killed run left of a line is no result.
    let mut file = std::fs::OpenOptions::new().append(true).open(&results).unwrap();
    file.write_all(br#"{"cell":{"name":"journal/volume-100-st"#).unwrap();
    let again = matrix(dir.path(), &["--cells", "journal/volume-100-", "--json"]);
    let report: Value = serde_json::from_str(&again.ok()).unwrap();
    let names = report["cells"].as_array().unwrap().iter().map(|one| &one["cell"]["name"]);
    assert_eq!(names.collect::<Vec<_>>(), [CELL, "journal/volume-100-stamps"]);
    let second = std::fs::read_to_string(&results).unwrap();
    assert!(second.starts_with(&first), "the first result is not measured again");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only the results are left: {left:?}");
}

#[test]
fn cells_are_listed_and_unknown_ones_refused() {
    let dir = tempfile::tempdir().unwrap();
    let list = matrix(dir.path(), &["--list"]).ok();
    assert_eq!(list.lines().filter(|line| line.contains("journal/")).count(), list.lines().count());
    assert!(list.lines().any(|line| line.ends_with("journal/partitions-10-members-10-stamps")));
    let none = matrix(dir.path(), &["--cells", "no-such-cell"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.err.contains("no cell"), "{}", none.err);
}
