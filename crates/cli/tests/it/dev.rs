//! `helio dev kafka` and `helio dev kube` where something is missing.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{REQUIRED, Ran, helio, skipped};

/// The exit code for what is not there.
const NOT_FOUND: i32 = 3;

/// A folder that has python3 and nothing else: the interpreter itself, not a script that finds it.
fn only_python(folder: &Path) -> Option<PathBuf> {
    let mut command = Command::new("python3");
    let told = command.args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    let python = String::from_utf8(told.stdout).unwrap();
    symlink(python.trim(), folder.join("python3")).unwrap();
    Some(folder.to_owned())
}

#[test]
fn what_is_missing_is_told_with_the_remedy() {
    let [state, bin, cache] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let start_of = |engine: &str, path: &Path| {
        let mut command = helio();
        command.args(["dev", engine, "start"]).env("XDG_STATE_HOME", state.path());
        command.env("XDG_CACHE_HOME", cache.path()).env_remove(REQUIRED);
        command.env("PATH", path).env("JAVA_HOME", state.path().join("no-java"));
        Ran::of(command.output().unwrap())
    };
    let start = |path: &Path| start_of("kafka", path);
    let ran = start(bin.path());
    assert_eq!(ran.code, Some(NOT_FOUND));
    assert!(
        ran.err.contains("python3 is not on PATH") && ran.err.contains("Debian"),
        "{}",
        ran.err
    );

    let Some(path) = only_python(bin.path()) else {
        skipped("there is no python3 here\n");
        return;
    };
    let ran = start(&path);
    assert_eq!(ran.code, Some(NOT_FOUND), "{}", ran.err);
    assert!(ran.err.starts_with("helio dev kafka: Java 17 or newer is needed"), "{}", ran.err);
    assert!(ran.err.contains("openjdk-17-jre-headless"), "{}", ran.err);
    let ran = start_of("kube", &path);
    assert_eq!(ran.code, Some(NOT_FOUND), "{}", ran.err);
    assert!(ran.err.starts_with("helio dev kube: Go 1.26 or newer is needed"), "{}", ran.err);
    assert!(!state.path().join("heliograph/dev-kafka").exists());
    assert!(!state.path().join("heliograph/dev-kube").exists());

    // Somebody has cleaned a part of the cache, and left another half written.
    let mut engines = cache.path().join("heliograph").read_dir().unwrap();
    let engines = engines.next().unwrap().unwrap().path();
    std::fs::remove_file(engines.join("lib/engine.py")).unwrap();
    std::fs::write(engines.join("lib/java.py"), "\"\"\"").unwrap();
    let ran = start(&path);
    assert!(ran.err.starts_with("helio dev kafka: Java 17 or newer is needed"), "{}", ran.err);
    assert!(engines.join("lib/engine.py").exists());
}
