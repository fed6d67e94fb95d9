//! Runs the program as a user does: a command line in, its whole output out.
#![allow(dead_code)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// When a test that waits has failed: it guards against hanging, and is never reached otherwise.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(120);
/// A small visit: 30 alerts of 4 detectors.
pub(crate) const SMALL: [&str; 8] =
    ["--alerts", "30", "--detectors", "4", "--partitions", "2", "--history", "none"];

/// What a run gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The output, where the run succeeded and had nothing to complain about.
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// All lines of JSON, whatever the exit code.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.out.lines().map(parse).collect()
    }

    /// The lines of JSON with an event.
    pub(crate) fn events(&self, name: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["event"] == name).collect()
    }
}

/// A journal of its own for a test.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
}

impl Site {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("journal:{}", folder.path().join("journal").display());
        Self { folder, url }
    }

    /// A command on this bus.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_helio-alerts"));
        command.args(args).env("HELIO_URL", &self.url).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs on this bus.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).spawn().unwrap())
    }

    /// Publishes small visits.
    pub(crate) fn produce(&self, args: &[&str]) -> Ran {
        self.run(&[&["produce", "--json"], &SMALL[..], args].concat())
    }
}

/// Waits for the end of a run.
pub(crate) fn ran(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A running program, killed when the test ends.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// The next line of JSON.
    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Ends it by a signal, and returns its exit code and the rest of its output.
    pub(crate) fn end(mut self, signal: &str) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Requests a URL of this machine.
pub(crate) fn get(url: &str, headers: &[(&str, &str)]) -> Response {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    let mut request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    stream.write_all((request + "\r\n").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    };
    Response { status, headers: lines.map(header).collect(), body: bytes[end + 4..].to_vec() }
}

/// Waits until something is so.
pub(crate) fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + HANG_TIMEOUT;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Says that a test is skipped, and why; fails where nothing may be.
pub(crate) fn skipped(why: &str) {
    let required = std::env::var_os("HELIO_ENGINES_REQUIRED");
    assert!(required.is_none_or(|set| set.is_empty()), "{why}");
    // Not by `eprintln!`, which a test that passes keeps to itself.
    std::io::stderr().write_all(format!("skipped: {}\n", why.trim_end()).as_bytes()).unwrap();
}

/// A Python with numpy: `HELIO_TEST_PYTHON`, or that of `make`'s virtual environment.
pub(crate) fn python() -> Option<String> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.venv/bin/python");
    let python = std::env::var("HELIO_TEST_PYTHON").unwrap_or_else(|_| own.to_owned());
    let mut probe = Command::new(&python);
    let status = probe.args(["-c", "import numpy"]).stderr(Stdio::null()).status();
    if status.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    skipped(&format!("{python} has no numpy; name one that has in HELIO_TEST_PYTHON"));
    None
}

/// A Kafka broker, ended with the process.
#[cfg(feature = "kafka")]
pub(crate) struct Broker {
    pub(crate) url: String,
    folder: String,
}

#[cfg(feature = "kafka")]
impl Broker {
    /// A broker of its own; none where this machine has no Java.
    pub(crate) fn start() -> Option<Self> {
        helio_transports::register_all();
        let owner = std::process::id().to_string();
        let output = engine(&["start", "--json", "--owner", &owner]);
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(3) {
            skipped(&said);
            return None;
        }
        assert!(output.status.success(), "{said}");
        let started: Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = |name: &str| started[name].as_str().unwrap().to_owned();
        Some(Self { url: text("url"), folder: text("dir") })
    }

    /// Kills it (`kill`), or starts it again on its data (`restart`).
    pub(crate) fn does(&self, what: &str) {
        let output = engine(&[what, "1", "--dir", &self.folder]);
        assert!(output.status.success(), "{what}: {output:?}");
    }
}

#[cfg(feature = "kafka")]
fn engine(args: &[&str]) -> std::process::Output {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/engines/kafka");
    Command::new(program).args(args).output().unwrap()
}

/// The broker that this process's tests share.
#[cfg(feature = "kafka")]
pub(crate) fn broker() -> Option<&'static Broker> {
    static BROKER: std::sync::OnceLock<Option<Broker>> = std::sync::OnceLock::new();
    BROKER.get_or_init(Broker::start).as_ref()
}
