//! The command line itself: help, manual, completions, exit codes, pipes.

use crate::support::{helio, run};
use std::process::Stdio;

#[test]
fn the_manual_and_the_completions_come_from_the_table() {
    let page = run(&["man"]).ok();
    assert!(page.contains(".TH helio 1"));
    assert!(page.contains("Exit codes") && page.contains("130"), "the exit codes are in it");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("man1");
    run(&["man", "--dir", path.to_str().unwrap()]).ok();
    for page in ["helio.1", "helio-bench.1", "helio-bench-floor.1"] {
        assert!(path.join(page).exists(), "{page}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(run(&["completions", shell]).ok().contains("bench"), "{shell}");
    }
}

#[test]
fn a_wrong_command_line_is_told_with_code_2() {
    for wrong in [&["nonsense"][..], &["bench"], &["bench", "floor", "--rate", "0"]] {
        let ran = run(wrong);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{wrong:?}");
        assert!(!ran.err.is_empty(), "{wrong:?}");
    }
}

#[test]
fn a_missing_folder_is_told_with_code_3() {
    let ran = run(&["bench", "floor", "--dir", "/nowhere/at/all"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""));
    assert!(ran.err.starts_with("helio: /nowhere/at/all/"), "{}", ran.err);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = helio().arg("man").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
