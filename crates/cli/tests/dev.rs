//! `helio dev`: real engines, started by the program itself.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ran, helio};

/// Where it is set nothing may be skipped: `.ci/run` sets it.
const REQUIRED: &str = "HELIO_ENGINES_REQUIRED";
/// The exit code for what is not there.
const NOT_FOUND: i32 = 3;

/// The program with a state folder of a test's own, so that it finds no other brokers. The cache is
/// the user's: the engine's files are downloaded once.
fn dev(state: &Path, args: &[&str]) -> Ran {
    let mut command = helio();
    command.args(["dev", "kafka"]).args(args).env("XDG_STATE_HOME", state);
    Ran::of(command.output().unwrap())
}

/// Not by `eprintln!`, which a test that passes keeps to itself.
fn skipped(why: &str) {
    assert!(std::env::var_os(REQUIRED).is_none_or(|set| set.is_empty()), "{why}");
    std::io::stderr().write_all(format!("skipped: {why}").as_bytes()).unwrap();
}

/// Ends the brokers however the test ends.
struct Stop<'a>(&'a Path);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        dev(self.0, &["stop"]);
    }
}

#[test]
fn brokers_start_serve_and_leave_nothing() {
    let state = tempfile::tempdir().unwrap();
    let started = dev(state.path(), &["start", "--json"]);
    if started.code == Some(NOT_FOUND) {
        skipped(&started.err);
        return;
    }
    let _stop = Stop(state.path());
    let told = started.json();
    let url = told["url"].as_str().unwrap();
    assert_eq!(told["brokers"].as_array().unwrap().len(), 1);

    #[cfg(feature = "kafka")]
    {
        common::run(&["pub", "dev/t", "hello", "--url", url]).ok();
        let line =
            common::run(&["sub", "dev/t", "--url", url, "--from", "earliest", "--count", "1"]);
        assert!(line.ok().contains("hello"));
    }
    assert_eq!(dev(state.path(), &["status", "--json"]).json()["url"], url);
    let again = dev(state.path(), &["start"]);
    assert_eq!(again.code, Some(4));
    assert!(again.err.contains("helio dev kafka stop"), "{}", again.err);

    dev(state.path(), &["stop"]).ok();
    assert!(!state.path().join("heliograph/dev-kafka").exists());
    let gone = dev(state.path(), &["status"]);
    assert_eq!(gone.code, Some(NOT_FOUND));
    assert!(gone.err.contains("helio dev kafka start"), "{}", gone.err);
}

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
    let start = |path: &Path| {
        let mut command = helio();
        command.args(["dev", "kafka", "start"]).env("XDG_STATE_HOME", state.path());
        command.env("XDG_CACHE_HOME", cache.path()).env_remove(REQUIRED);
        command.env("PATH", path).env("JAVA_HOME", state.path().join("no-java"));
        Ran::of(command.output().unwrap())
    };
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
    assert!(!state.path().join("heliograph/dev-kafka").exists());

    // Somebody has cleaned a part of the cache, and left another half written.
    let mut engines = cache.path().join("heliograph").read_dir().unwrap();
    let engines = engines.next().unwrap().unwrap().path();
    std::fs::remove_file(engines.join("lib/engine.py")).unwrap();
    std::fs::write(engines.join("lib/java.py"), "\"\"\"").unwrap();
    let ran = start(&path);
    assert!(ran.err.starts_with("helio dev kafka: Java 17 or newer is needed"), "{}", ran.err);
    assert!(engines.join("lib/engine.py").exists());
}
