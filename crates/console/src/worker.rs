//! Workers: processes of this program that run one task each.
//!
//! A worker receives its task as JSON in an argument, orders as lines of JSON on stdin, and replies
//! with lines of JSON on stdout. The system kills it when its starter ends.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{CliError, CliResult};
use crate::stop::{STOP_POLL_INTERVAL, Stop};

/// Buffered replies of a worker; further ones wait in the pipe.
const MAX_PENDING_REPLIES: usize = 256;

/// The starter's handle to a worker. Dropping it kills the worker.
pub struct Worker {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    replies: Receiver<String>,
    stop: Stop,
}

impl Worker {
    /// Starts this program with the hidden command `worker`, a kind and a task.
    pub fn start(kind: &str, name: &str, task: &impl Serialize, stop: &Stop) -> CliResult<Self> {
        Self::start_by(Command::new(own_program()?), kind, name, task, stop)
    }

    /// Starts a worker by a command that lacks only `worker`, kind and task: this program, or one
    /// that becomes it (`exec`), because a worker dies with the process that started it.
    pub fn start_by(
        mut launcher: Command,
        kind: &str,
        name: &str,
        task: &impl Serialize,
        stop: &Stop,
    ) -> CliResult<Self> {
        let failed = |e: &dyn std::fmt::Display| {
            CliError::Failure(format!("cannot start the process {name}: {e}"))
        };
        let task = serde_json::to_string(task).map_err(|e| failed(&e))?;
        let command = &mut launcher;
        command.args(["worker", kind, &task]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C on the terminal reaches only the starter, which ends its workers in order.
        let mut child = command.process_group(0).spawn().map_err(|e| failed(&e))?;
        let (orders, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| failed(&"it has no pipe"))?;
        let (lines, replies) = sync_channel(MAX_PENDING_REPLIES);
        std::thread::spawn(move || forward(output, &lines));
        Ok(Self { name: name.to_owned(), child, orders, replies, stop: stop.clone() })
    }

    /// Sends an order.
    pub fn order(&mut self, order: &impl Serialize) -> CliResult {
        let text = serde_json::to_string(order).map_err(|e| self.broken(&e))?;
        let sent = match self.orders.as_mut() {
            Some(pipe) => writeln!(pipe, "{text}").and_then(|()| pipe.flush()),
            None => Ok(()),
        };
        sent.map_err(|e| self.broken(&e))
    }

    /// Waits for the next reply. A worker that ended without one is an error, and so is a signal.
    pub fn reply<T: DeserializeOwned>(&mut self) -> CliResult<T> {
        let line = loop {
            match self.replies.recv_timeout(STOP_POLL_INTERVAL) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) => self.stop.check()?,
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
            }
        };
        serde_json::from_str(&line).map_err(|e| self.broken(&e))
    }

    fn gone(&mut self) -> CliError {
        match self.child.wait() {
            // Its message is on standard error already.
            Ok(status) => match status.code().and_then(|code| u8::try_from(code).ok()) {
                Some(code @ 1..) => CliError::Worker(code),
                _ => self.broken(&format!("it ended with {status} before it answered")),
            },
            Err(error) => self.broken(&error),
        }
    }

    /// The next reply, if it has come. A worker that ended without one is an error.
    pub fn try_reply<T: DeserializeOwned>(&mut self) -> CliResult<Option<T>> {
        match self.replies.try_recv() {
            Ok(line) => serde_json::from_str(&line).map(Some).map_err(|e| self.broken(&e)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.gone()),
        }
    }

    /// Closes the worker's orders and waits for its end.
    pub fn finish(mut self) -> CliResult {
        drop(self.orders.take());
        let status = self.child.wait().map_err(|e| self.broken(&e))?;
        if status.success() { Ok(()) } else { Err(self.broken(&format!("it ended with {status}"))) }
    }

    /// Kills the worker (SIGKILL) and returns its remaining replies.
    pub fn kill(mut self) -> CliResult<Vec<String>> {
        self.kill_now()?;
        Ok(self.replies.iter().collect())
    }

    /// Kills the worker (SIGKILL).
    pub fn kill_now(&mut self) -> CliResult {
        let dead = self.child.kill().and_then(|()| self.child.wait());
        dead.map(drop).map_err(|e| self.broken(&e))
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> CliResult<bool> {
        let ended = self.child.try_wait().map_err(|e| self.broken(&e))?;
        Ok(ended.is_some())
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Suspends the worker (SIGSTOP).
    pub fn pause(&self) -> CliResult {
        self.signal(rustix::process::Signal::STOP)
    }

    /// Resumes a suspended worker (SIGCONT).
    pub fn resume(&self) -> CliResult {
        self.signal(rustix::process::Signal::CONT)
    }

    /// Interrupts the worker (SIGINT).
    pub fn interrupt(&self) -> CliResult {
        self.signal(rustix::process::Signal::INT)
    }

    fn signal(&self, signal: rustix::process::Signal) -> CliResult {
        let sent =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal);
        sent.map_err(|e| self.broken(&e))
    }

    fn broken(&self, cause: &dyn std::fmt::Display) -> CliError {
        CliError::Failure(format!("the process {} failed: {cause}", self.name))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The worker may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of this program.
pub fn own_program() -> CliResult<PathBuf> {
    std::env::current_exe()
        .map_err(|e| CliError::Failure(format!("cannot find the path of this program: {e}")))
}

/// Forwards whole lines until the worker or its starter ends.
fn forward(output: ChildStdout, lines: &SyncSender<String>) {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    while matches!(output.read_line(&mut line), Ok(1..)) {
        // A killed worker may leave half a line, which is discarded.
        if !line.ends_with('\n') || lines.send(std::mem::take(&mut line)).is_err() {
            return;
        }
    }
}

/// In the worker: has the system kill it when its starter ends.
pub fn die_with_starter() -> CliResult {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| CliError::Failure(format!("cannot tie this process to its starter: {e}")))?;
    match getppid() {
        Some(parent) if !parent.is_init() => Ok(()),
        _ => Err(CliError::Failure("the starter of this worker has gone".to_owned())),
    }
}

/// In the worker: sends a reply.
pub fn say(value: &impl Serialize) -> CliResult {
    let text = serde_json::to_string(value)
        .map_err(|e| CliError::Failure(format!("invalid reply: {e}")))?;
    let mut out = std::io::stdout().lock();
    let said = writeln!(out, "{text}").and_then(|()| out.flush());
    said.map_err(|e| CliError::output(&e))
}

/// In the worker: waits for the next order; `None` once the starter has closed the pipe.
pub fn hear<T: DeserializeOwned>() -> CliResult<Option<T>> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match read.map_err(|e| CliError::Failure(format!("orders: {e}")))? {
        0 => Ok(None),
        _ => serde_json::from_str(&line)
            .map(Some)
            .map_err(|e| CliError::Failure(format!("invalid order: {e}"))),
    }
}

/// In the worker: a channel of orders, for a worker that does not wait for them. It closes when
/// the starter closes the pipe or sends an invalid order.
pub fn orders<T: DeserializeOwned + Send + 'static>() -> Receiver<T> {
    let (sender, receiver) = sync_channel(MAX_PENDING_REPLIES);
    std::thread::spawn(move || {
        while let Ok(Some(order)) = hear() {
            if sender.send(order).is_err() {
                return;
            }
        }
    });
    receiver
}
