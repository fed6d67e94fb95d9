//! A real broker, started, frozen and killed by `tests/engines/kafka`.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use helio_bus::Bus;

/// The exit code of an engine's program if this machine lacks a requirement.
const EXIT_SKIPPED: i32 = 3;

/// A broker. It ends with the process, or with the last one that uses it.
pub(crate) struct Broker {
    url: String,
    folder: String,
    /// Precedes this process's topic names if other processes use the broker, too.
    prefix: String,
    /// The report of the engine's program.
    pub(crate) report: serde_json::Value,
}

/// Reports that a test is skipped, and why. Fails if engines are required, as their programs do.
pub(crate) fn skipped(why: &str) {
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
    assert!(!required, "{why}");
    // Not by `eprintln!`: the harness captures it in passing tests.
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).expect("it is there");
}

/// The broker of this process, which no test freezes or kills; `None`, with a message, without
/// Java.
pub(crate) fn broker() -> Option<&'static Broker> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    BROKER.get_or_init(|| Broker::start(1)).as_ref()
}

/// The broker of all test processes of this machine, with a prefix of this process's own; `None`,
/// with a message, without Java.
pub(crate) fn shared_broker() -> Option<&'static Broker> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    let start = || {
        let prefix = format!("t{}.", std::process::id());
        Some(Broker { prefix, ..Broker::run(&["--shared"])? })
    };
    BROKER.get_or_init(start).as_ref()
}

fn program() -> PathBuf {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let program = above.map(|folder| folder.join("tests/engines/kafka")).find(|path| path.exists());
    program.expect("the repository has it")
}

impl Broker {
    /// Starts brokers that end with the process; `None`, with a message, without Java.
    pub(crate) fn start(nodes: u8) -> Option<Self> {
        Self::start_with(&["--nodes", &nodes.to_string()])
    }

    /// The same with options of the engine's program.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        // Retention is applied often, so that no test waits for minutes.
        Self::run(&[&["--set", "log.retention.check.interval.ms=500"], options].concat())
    }

    fn run(options: &[&str]) -> Option<Self> {
        helio_kafka::register();
        let owner = std::process::id().to_string();
        let mut start = Command::new(program());
        start.args(["start", "--json", "--owner", &owner]).args(options);
        let output = start.output().expect("tests/engines/kafka runs");
        if output.status.code() == Some(EXIT_SKIPPED) {
            // Not by `eprintln!`: the harness captures it in passing tests.
            std::io::stderr().write_all(&output.stderr).expect("there is standard error");
            return None;
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let text = |name: &str| report[name].as_str().expect("the report has it").to_owned();
        let (url, folder, prefix) = (text("url"), text("dir"), String::new());
        Some(Self { url, folder, prefix, report })
    }

    /// Its URL, with options.
    pub(crate) fn url(&self, options: &str) -> String {
        match &*self.prefix {
            "" => format!("{}?{options}", self.url),
            prefix => format!("{}?prefix={prefix}&{options}", self.url),
        }
    }

    /// Its address, for plain clients.
    pub(crate) fn servers(&self) -> &str {
        self.url.trim_start_matches("kafka://")
    }

    /// The Kafka name of a topic whose name Kafka allows.
    pub(crate) fn kafka_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Truncates a partition's log to half, as a broker out of sync loses it. The broker must be
    /// down.
    pub(crate) fn cut(&self, topic: &str) {
        let segment = format!("node-1/data/{topic}-0/00000000000000000000.log");
        let file = Path::new(&self.folder).join(segment);
        let file = std::fs::File::options().write(true).open(file).expect("the broker has it");
        let bytes = file.metadata().expect("it is there").len();
        file.set_len(bytes / 2).expect("it is ours");
    }

    /// A connection of its own.
    pub(crate) fn bus(&self, producer: &str) -> Bus {
        Bus::builder().producer(producer).connect(&self.url("")).expect("the broker answers")
    }

    /// Runs a command of the engine's program on the only broker: `kill`, `restart`, `freeze`,
    /// `thaw`.
    pub(crate) fn does(&self, what: &str) {
        self.does_to(what, "1");
    }

    /// The same to one of several.
    pub(crate) fn does_to(&self, what: &str, node: &str) {
        let Output { status, stderr, .. } = Command::new(program())
            .args([what, node, "--dir", &self.folder])
            .output()
            .expect("tests/engines/kafka runs");
        assert!(status.success(), "{what}: {}", String::from_utf8_lossy(&stderr));
    }
}

/// A topic name that no other test uses.
pub(crate) fn unique(base: &str) -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("{base}/{:x}", since.expect("it is later").as_nanos())
}
