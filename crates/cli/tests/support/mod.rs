//! Runs the program as a user does: a command line in, its whole output out.
#![allow(dead_code)]

pub(crate) mod terminal;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
#[cfg(feature = "kafka")]
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Our own small observatory's interfaces.
pub(crate) const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");

/// The program, in an environment without a default bus.
pub(crate) fn helio() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_helio"));
    command.env_remove("HELIO_URL");
    command
}

/// What a run gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is text");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The output, where the run succeeded and had nothing to complain about.
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// One line of JSON, where the run succeeded.
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("one JSON value")
    }

    /// All lines of JSON, where the run succeeded.
    pub(crate) fn lines(self) -> Vec<serde_json::Value> {
        let parse = |line: &str| serde_json::from_str(line).expect("JSON");
        self.ok().lines().map(parse).collect()
    }
}

/// Runs with arguments and an empty input.
pub(crate) fn run(args: &[&str]) -> Ran {
    run_with(args, b"")
}

/// Runs with arguments and an input.
pub(crate) fn run_with(args: &[&str], input: &[u8]) -> Ran {
    let mut command = helio();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A program that does not read its input closes the pipe: that is not this test's business.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&input)));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the input is written");
    Ran::of(output)
}

/// A bus of its own for a test: a journal in a folder that goes with it.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
}

impl Site {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("journal:{}", folder.path().join("journal").display());
        Self { folder, url }
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a text").to_owned()
    }

    /// Writes a file into its folder and gives its path.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, contents).expect("the folder is writable");
        path
    }

    /// A command on this bus.
    pub(crate) fn helio(&self, args: &[&str]) -> Command {
        let mut command = helio();
        command.args(args).args(["--url", &self.url]);
        command
    }

    /// Runs on this bus.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, b"")
    }

    /// Runs on this bus with an input.
    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Ran {
        let url = ["--url", self.url.as_str()];
        run_with(&[args, &url].concat(), input)
    }

    /// Starts on this bus, with its output in a pipe.
    pub(crate) fn start(&self, args: &[&str]) -> std::process::Child {
        let mut command = self.helio(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    }
}

/// Reads one line of a running program.
pub(crate) fn line_of(child: &mut std::process::Child) -> String {
    line_from(child.stdout.as_mut().expect("a pipe"))
}

/// Reads one line of what a running program tells people.
pub(crate) fn told_by(child: &mut std::process::Child) -> String {
    line_from(child.stderr.as_mut().expect("a pipe"))
}

fn line_from(out: &mut (impl std::io::Read + std::os::fd::AsFd)) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while ready(out) && out.read(&mut byte).expect("it can be read") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text")
}

/// When a test that waits has failed: it guards against hanging, and is never reached otherwise.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until something can be read, or has ended.
fn ready(what: &impl std::os::fd::AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec { tv_sec: HANG_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let mut fds = [PollFd::new(what, PollFlags::IN)];
    let found = poll(&mut fds, Some(&timeout)).expect("it can be waited for");
    assert!(found == 1, "the program says nothing and does not end");
    true
}

/// Waits until a program has ended, and gives its exit code.
pub(crate) fn ended(child: &mut std::process::Child) -> Option<i32> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("it is ours");
    ready(&process);
    child.wait().expect("it ends").code()
}

/// Sends SIGINT, as Ctrl-C does, and gives the exit code.
pub(crate) fn interrupt(child: &mut std::process::Child) -> Option<i32> {
    use rustix::process::{Pid, Signal, kill_process};
    kill_process(Pid::from_child(child), Signal::INT).expect("it runs");
    ended(child)
}

/// Data that lies beside the repository (`$HELIO_SHARED_DATA`, else `../shared/data`). Where it is
/// absent the test says that it is skipped.
pub(crate) fn shared_data(part: &str) -> Option<String> {
    let root = std::env::var_os("HELIO_SHARED_DATA").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        std::path::PathBuf::from,
    );
    let path = root.join(part);
    if !path.exists() {
        println!("skipped: {} not found", path.display());
        return None;
    }
    Some(path.to_str().expect("a text").to_owned())
}

/// The fields of a sample that are the same each time.
pub(crate) fn steady(sample: &serde_json::Value) -> serde_json::Value {
    let mut sample = sample.clone();
    if let Some(object) = sample.as_object_mut() {
        for changing in ["time", "tai_ns", "producer"] {
            assert!(object.remove(changing).is_some(), "{changing}: {object:?}");
        }
    }
    sample
}

/// Starts a program that makes a folder of its own in `dir`, interrupts it as soon as that is
/// there, and gives its exit code.
pub(crate) fn interrupted_in(dir: &std::path::Path, args: &[&str]) -> Option<i32> {
    let mut command = helio();
    command.args(args).arg("--dir").arg(dir).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    while std::fs::read_dir(dir).expect("a folder").count() == 0 {
        assert_eq!(child.try_wait().expect("it is ours"), None, "it ended by itself");
        std::thread::yield_now();
    }
    interrupt(&mut child)
}

/// Simulated components of [`OWN`], until they are dropped.
pub(crate) struct Simulated(pub(crate) std::process::Child);

impl Simulated {
    pub(crate) fn start(site: &Site, rest: &[&str]) -> Self {
        Self::try_start(site, rest).unwrap_or_else(|said| panic!("{rest:?}: {said}"))
    }

    /// Starts them; where they end instead, what they say of it.
    pub(crate) fn try_start(site: &Site, rest: &[&str]) -> Result<Self, String> {
        let args = [&["component", "run", "--json", "--interfaces", OWN], rest].concat();
        let mut child = site.start(&args);
        // They are there once it says so.
        let line = line_of(&mut child);
        if line.is_empty() {
            return Err(Ran::of(child.wait_with_output().expect("it is ours")).err);
        }
        let ready: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(ready["ready"], true);
        Ok(Self(child))
    }

    pub(crate) fn interrupt(mut self) {
        assert_eq!(interrupt(&mut self.0), Some(0));
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        // It may have gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where it is set nothing may be skipped: `.ci/run` sets it.
pub(crate) const REQUIRED: &str = "HELIO_ENGINES_REQUIRED";

/// Says that a test is skipped, and why; fails where nothing may be.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os(REQUIRED).is_none_or(|set| set.is_empty()), "{why}");
    // Not by `eprintln!`, which a test that passes keeps to itself.
    let text = format!("skipped: {}\n", why.trim_start_matches("skipped: ").trim_end());
    std::io::stderr().write_all(text.as_bytes()).expect("there is standard error");
}

/// A broker of this test's own, ended with the process; none where this machine has no Java.
#[cfg(feature = "kafka")]
pub(crate) fn broker() -> Option<String> {
    started(&[])
}

/// The broker that test programs share, with names of this call's own; none where this machine has
/// no Java.
#[cfg(feature = "kafka")]
pub(crate) fn shared_broker() -> Option<String> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let url = started(&["--shared"])?;
    Some(format!("{url}?prefix=cli-{}-{call}.", std::process::id()))
}

#[cfg(feature = "kafka")]
fn started(options: &[&str]) -> Option<String> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/engines/kafka");
    let owner = std::process::id().to_string();
    let mut start = Command::new(program);
    start.args(["start", "--json", "--owner", &owner]).args(options);
    let output = start.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        skipped(&said);
        return None;
    }
    assert!(output.status.success(), "{said}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    Some(told["url"].as_str().expect("a text").to_owned())
}
