//! OpenTelemetry's Python packages, as processes: `peer.py`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value as Json;

/// Names a Python with OpenTelemetry's packages; else `make`'s virtual environment is taken.
const PYTHON: &str = "HELIO_TEST_PYTHON";

/// Says that a test is skipped, and why; fails where nothing may be, as the engines' programs do.
fn skipped(why: &str) {
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
    assert!(!required, "{why}");
    // Not by `eprintln!`, which a test that passes keeps to itself.
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
}

/// A Python that has the packages; none where there is none, which is said.
pub(crate) fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv/bin/python");
    let python = std::env::var_os(PYTHON).map_or(own, PathBuf::from);
    let mut look = Command::new(&python);
    let imports =
        "import opentelemetry.exporter.otlp.proto.grpc, opentelemetry.exporter.otlp.proto.http";
    let there = look.args(["-c", imports]).stderr(Stdio::null()).status();
    if there.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    skipped(&format!(
        "{} has no OpenTelemetry exporters; `make test` installs them, or name a Python that has \
         them in {PYTHON}",
        python.display()
    ));
    None
}

fn peer(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg("-W").arg("ignore");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/others/peer.py"));
    command
}

/// Has the SDK send its records, and waits until it has.
pub(crate) fn send(python: &Path, kind: &str, url: &str) {
    let sent = peer(python).args(["send", kind, url]).status().unwrap();
    assert!(sent.success(), "{kind}: {sent}");
}

/// A receiver; it ends when dropped.
pub(crate) struct Receiver {
    child: Child,
    answers: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    /// Its ports, by protocol.
    pub(crate) ports: Json,
}

impl Receiver {
    pub(crate) fn start() -> Option<Self> {
        let python = python()?;
        let mut command = peer(&python);
        let mut child =
            command.arg("receive").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut receiver = Self { child, answers, lines, ports: Json::Null };
        receiver.ports = receiver.line();
        Some(receiver)
    }

    fn line(&mut self) -> Json {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Says how the next requests are answered.
    pub(crate) fn tell(&mut self, answers: &[&str]) {
        for answer in answers {
            writeln!(self.answers.as_mut().unwrap(), "{answer}").unwrap();
            assert_eq!(self.line()["told"], *answer);
        }
    }

    /// Takes back what was said of the requests to come.
    pub(crate) fn forget(&mut self) {
        self.tell(&["forget"]);
    }

    /// The next request, in the JSON of Protobuf.
    pub(crate) fn request(&mut self) -> Json {
        let mut line = self.line();
        let kind = if line.get("grpc").is_some() { "grpc" } else { "http" };
        line[kind].take()
    }

    /// What the next request was answered, and how many records it had.
    pub(crate) fn answered(&mut self) -> (String, usize) {
        let mut line = self.line();
        let answer = line["answer"].as_str().unwrap().to_owned();
        let kind = if line.get("grpc").is_some() { "grpc" } else { "http" };
        let request = line[kind].take();
        let records = &request["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
        (answer, records.as_array().unwrap().len())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.answers.take());
        // It may have ended by itself.
        let _ = self.child.wait();
    }
}
