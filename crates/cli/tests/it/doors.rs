//! The command line itself: help, manual, completions, exit codes, pipes.

use crate::support::{Ran, helio, run};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// The program alone in a folder, without what is built beside it.
fn alone() -> (tempfile::TempDir, PathBuf) {
    let program = Path::new(env!("CARGO_BIN_EXE_helio"));
    // In the same file system, for a link.
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let own = folder.path().join("helio");
    std::fs::hard_link(program, &own).unwrap();
    (folder, own)
}

#[test]
fn alerts_need_their_program() {
    let (folder, own) = alone();
    let output = Command::new(own).args(["alerts", "top"]).env("PATH", folder.path()).output();
    let ran = Ran::of(output.unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""));
    assert!(ran.err.contains("helio-alerts is neither beside"), "{}", ran.err);
    assert!(ran.err.contains("`make build`"), "{}", ran.err);
    assert!(run(&["--help"]).ok().contains("alerts"), "it is listed");
}

/// Arguments, help, the bus and the exit code belong to the other program, which is this process.
#[test]
fn alerts_become_their_program() {
    let (folder, own) = alone();
    let script = |place: &Path, name: &str| {
        let text = format!("#!/bin/sh\necho {name} $$ \"$HELIO_URL\" \"$@\"; exit 7\n");
        std::fs::write(place, text).unwrap();
        std::fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
    };
    let start = |arguments: &[&str]| {
        let path = format!("{}:/usr/bin:/bin", folder.path().join("path").display());
        let mut command = Command::new(&own);
        command.args(arguments).env("PATH", path).env_remove("HELIO_URL").stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        let id = child.id();
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(7), "{ran:?}");
        ran.out.trim_end().replace(&format!(" {id} "), " own ")
    };
    std::fs::create_dir(folder.path().join("path")).unwrap();
    script(&folder.path().join("path/helio-alerts"), "path");
    assert_eq!(start(&["alerts", "produce", "--help"]), "path own  produce --help");
    script(&folder.path().join("helio-alerts"), "beside");
    assert_eq!(start(&["--url", "memory:", "alerts", "-h"]), "beside own memory: -h");
}
