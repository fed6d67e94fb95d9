//! A real registry, started and frozen by `tests/engines/apicurio`.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use helio_kafka::registry::client::{Client, ClientOptions};

/// The exit code of an engine's program if this machine lacks a requirement.
const EXIT_SKIPPED: i32 = 3;

/// A registry of a test's own. It ends with the process.
pub(crate) struct Apicurio {
    pub(crate) url: String,
    folder: String,
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/engines/apicurio")
}

impl Apicurio {
    /// Starts a registry; `None`, with a message, without a Java that is new enough.
    pub(crate) fn start() -> Option<Self> {
        let owner = std::process::id().to_string();
        let output = Command::new(program()).args(["start", "--json", "--owner", &owner]).output();
        let output = output.expect("tests/engines/apicurio runs");
        if output.status.code() == Some(EXIT_SKIPPED) {
            std::io::stderr().write_all(&output.stderr).expect("there is standard error");
            return None;
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let text = |name: &str| report[name].as_str().expect("the report has it").to_owned();
        Some(Self { url: text("url"), folder: text("dir") })
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url, ClientOptions::default()).expect("it is a URL")
    }

    /// Runs a command of the engine's program on it: `freeze`, `thaw`.
    pub(crate) fn does(&self, what: &str) {
        let output = Command::new(program()).args([what, "1", "--dir", &self.folder]).output();
        let output = output.expect("tests/engines/apicurio runs");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
