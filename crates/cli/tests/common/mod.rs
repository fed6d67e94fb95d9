//! Runs the program as a user does: a command line in, its whole output out.
#![allow(dead_code)]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// The program, in an environment without a default bus.
pub fn helio() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_helio"));
    command.env_remove("HELIO_URL");
    command
}

/// What a run gave.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is text");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The output, where the run succeeded and had nothing to complain about.
    pub fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// One line of JSON, where the run succeeded.
    pub fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("one JSON value")
    }

    /// All lines of JSON, where the run succeeded.
    pub fn lines(self) -> Vec<serde_json::Value> {
        let parse = |line: &str| serde_json::from_str(line).expect("JSON");
        self.ok().lines().map(parse).collect()
    }
}

/// Runs with arguments and an empty input.
pub fn run(args: &[&str]) -> Ran {
    run_with(args, b"")
}

/// Runs with arguments and an input.
pub fn run_with(args: &[&str], input: &[u8]) -> Ran {
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
