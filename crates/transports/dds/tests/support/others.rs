//! A foreign participant, as a process: `participant.py`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value as Json, json};

use crate::support::skipped;

/// Names a Python with the package `cyclonedds`; the default is the virtual environment of `make`.
const PYTHON_VARIABLE: &str = "HELIO_TEST_PYTHON";

/// Unicast on the loopback, which works where multicast is filtered.
pub(crate) const LOOPBACK: &str = "<General><Interfaces><NetworkInterface name=\"lo\" \
    multicast=\"false\"/></Interfaces><AllowMulticast>false</AllowMulticast></General><Discovery>\
    <ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex>\
    <Peers><Peer address=\"127.0.0.1\"/></Peers></Discovery>";

fn python() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv/bin/python");
    std::env::var_os(PYTHON_VARIABLE).map_or(own, PathBuf::from)
}

/// A participant, which ends when dropped.
pub(crate) struct Foreign {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Foreign {
    /// Joins a domain with the types of an IDL text; `None` with a message if the package is
    /// missing.
    pub(crate) fn join(domain: u32, idl: &str) -> Option<Self> {
        let python = python();
        let mut look = Command::new(&python);
        let there = look.args(["-c", "import cyclonedds"]).stderr(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            skipped(&format!(
                "{} has no package cyclonedds; `make test` installs it, or name a Python that has \
                 it in {PYTHON_VARIABLE}",
                python.display()
            ));
            return None;
        }
        let folder = tempfile::tempdir().expect("there is room");
        let file = folder.path().join("types.idl");
        std::fs::write(&file, idl).expect("there is room");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/others/participant.py");
        let mut child = Command::new(python)
            .arg(script)
            .arg(domain.to_string())
            .args([&file, &folder.path().join("")])
            .env("CYCLONEDDS_URI", LOOPBACK)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut this = Self { child, requests, answers, _folder: folder };
        this.answer();
        Some(this)
    }

    fn answer(&mut self) -> Json {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        let answer: Json = serde_json::from_str(&line).expect("it answers in JSON");
        assert!(answer["error"].is_null(), "{answer}");
        answer
    }

    /// Sends a request; [`Foreign::answered`] waits for the answer.
    pub(crate) fn ask(&mut self, what: &str, mut request: Json) {
        request["do"] = json!(what);
        let requests = self.requests.as_mut().expect("it runs");
        writeln!(requests, "{request}").expect("it listens");
    }

    #[allow(dead_code, reason = "the soak stops it")]
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        let pid = rustix::process::Pid::from_raw(pid).expect("it runs");
        rustix::process::kill_process(pid, signal).expect("it is ours");
    }

    /// The answer to the oldest request that has none yet.
    pub(crate) fn answered(&mut self) -> Json {
        self.answer()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        drop(self.requests.take());
        if std::thread::panicking() {
            // It may stand still, or wait for what does not come.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
