//! `helio-alerts matrix`: all cells in miniature, and after a kill.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{ran, wait_for};

fn matrix(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_helio-alerts"));
    command.args(["matrix", "--smoke", "--dir", dir.to_str().unwrap()]).args(args);
    command.env_remove("HELIO_URL").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs all cells that can run; every requirement that must hold holds.
fn check(dir: &Path, args: &[&str], cells: usize) {
    let ran = ran(matrix(dir, &[&["--json"], args].concat()).spawn().unwrap());
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(report["cells"].as_array().unwrap().len(), cells, "{report}");
    let requirements = report["requirements"].as_array().unwrap();
    for requirement in requirements.iter().filter(|one| one["must"] == true) {
        assert_eq!(requirement["met"], true, "{requirement}");
    }
}

#[test]
fn all_cells_lose_nothing_and_a_killed_run_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("alerts-matrix.jsonl");
    let done = || std::fs::read_to_string(&results).unwrap_or_default().lines().count();
    let mut child = matrix(dir.path(), &[]).spawn().unwrap();
    wait_for("two cells have results", || (done() >= 2).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let (kept, text) = (done(), std::fs::read_to_string(&results).unwrap());
    check(dir.path(), &[], 31);
    assert!(std::fs::read_to_string(&results).unwrap().starts_with(&text));
    assert!(kept >= 2 && done() >= 31);
}

#[cfg(feature = "kafka")]
#[test]
fn brokers_have_the_same_cells() {
    let Some(broker) = crate::support::broker() else { return };
    let dir = tempfile::tempdir().unwrap();
    let cells = ["--cells", "kafka/groups-11-stamps"];
    check(dir.path(), &[&["--url", &broker.url][..], &cells].concat(), 1);
}
