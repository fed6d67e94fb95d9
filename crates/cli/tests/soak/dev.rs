//! `helio dev`: real engines, started by the program itself.

use std::path::Path;

use crate::support::{Ran, helio, skipped};

/// The exit code for what is not there.
const NOT_FOUND: i32 = 3;

/// The program with a state folder of a test's own, so that it finds no other brokers. The cache is
/// the user's: the engine's files are downloaded once.
fn dev(state: &Path, args: &[&str]) -> Ran {
    let mut command = helio();
    command.args(["dev", "kafka"]).args(args).env("XDG_STATE_HOME", state);
    Ran::of(command.output().unwrap())
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
        crate::support::run(&["pub", "dev/t", "hello", "--url", url]).ok();
        let line = crate::support::run(&[
            "sub", "dev/t", "--url", url, "--from", "earliest", "--count", "1",
        ]);
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
