//! Workers: other processes of this same program, started for one task.
//!
//! A worker gets its task as JSON in an argument and talks in lines: JSON objects on its stdout,
//! orders on its stdin. It dies with the process that started it, whatever happens to that one.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{CliError, CliResult};
use crate::stop::{STOP_POLL_INTERVAL, Stop};

/// Replies that a worker may be ahead of its starter; further ones wait in the pipe.
const MAX_PENDING_REPLIES: usize = 256;

/// A running worker, as its starter sees it. Dropping it ends the worker.
pub(crate) struct Worker {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    replies: Receiver<String>,
    stop: Stop,
}

impl Worker {
    /// Starts this program again with a hidden sub-command `kind` and its task.
    pub(crate) fn start(
        kind: &str,
        name: &str,
        task: &impl Serialize,
        stop: &Stop,
    ) -> CliResult<Self> {
        Self::start_by(Command::new(own_program()?), kind, name, task, stop)
    }

    /// Starts a worker by a command to which only the sub-command is missing: this program, or one
    /// that becomes it (`exec`), for a worker is tied to the process that started it.
    pub(crate) fn start_by(
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
        // Ctrl-C on the terminal reaches the starter only, which then ends its workers in order.
        let mut child = command.process_group(0).spawn().map_err(|e| failed(&e))?;
        let (orders, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| failed(&"it has no pipe"))?;
        let (lines, replies) = sync_channel(MAX_PENDING_REPLIES);
        std::thread::spawn(move || forward(output, &lines));
        Ok(Self { name: name.to_owned(), child, orders, replies, stop: stop.clone() })
    }

    /// Gives an order.
    pub(crate) fn order(&mut self, order: &impl Serialize) -> CliResult {
        let text = serde_json::to_string(order).map_err(|e| self.broken(&e))?;
        let sent = match self.orders.as_mut() {
            Some(pipe) => writeln!(pipe, "{text}").and_then(|()| pipe.flush()),
            None => Ok(()),
        };
        sent.map_err(|e| self.broken(&e))
    }

    /// Waits for the next reply; a worker that has gone without one is an error, and so is a signal
    /// to stop.
    pub(crate) fn reply<T: DeserializeOwned>(&mut self) -> CliResult<T> {
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
            // What it had to say is on standard error already.
            Ok(status) => match status.code().and_then(|code| u8::try_from(code).ok()) {
                Some(code @ 1..) => CliError::Worker(code),
                _ => self.broken(&format!("it ended with {status} before it answered")),
            },
            Err(error) => self.broken(&error),
        }
    }

    /// The next reply, if there is one by now; a worker that has gone without one is an error.
    pub(crate) fn try_reply<T: DeserializeOwned>(&mut self) -> CliResult<Option<T>> {
        match self.replies.try_recv() {
            Ok(line) => serde_json::from_str(&line).map(Some).map_err(|e| self.broken(&e)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.gone()),
        }
    }

    /// Ends the worker's orders and waits until it has gone by itself.
    pub(crate) fn finish(mut self) -> CliResult {
        drop(self.orders.take());
        let status = self.child.wait().map_err(|e| self.broken(&e))?;
        if status.success() { Ok(()) } else { Err(self.broken(&format!("it ended with {status}"))) }
    }

    /// Kills the worker (SIGKILL) and collects what it had still said, line by line.
    pub(crate) fn kill(mut self) -> CliResult<Vec<String>> {
        let dead = self.child.kill().and_then(|()| self.child.wait());
        dead.map_err(|e| self.broken(&e))?;
        Ok(self.replies.iter().collect())
    }

    /// Stops the worker where it stands (SIGSTOP), until it is resumed or ended.
    pub(crate) fn pause(&self) -> CliResult {
        self.signal(rustix::process::Signal::STOP)
    }

    /// Has a worker that was stopped go on.
    pub(crate) fn resume(&self) -> CliResult {
        self.signal(rustix::process::Signal::CONT)
    }

    /// Asks the worker to end, as Ctrl-C does (SIGINT).
    pub(crate) fn interrupt(&self) -> CliResult {
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
        // Already gone is as good as ended now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of this program.
pub(crate) fn own_program() -> CliResult<PathBuf> {
    std::env::current_exe()
        .map_err(|e| CliError::Failure(format!("cannot tell where this program lies: {e}")))
}

/// Passes whole lines on until the worker or its starter has gone.
fn forward(output: ChildStdout, lines: &SyncSender<String>) {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    while matches!(output.read_line(&mut line), Ok(1..)) {
        // Half a line is what a killed worker leaves: it was never said.
        if !line.ends_with('\n') || lines.send(std::mem::take(&mut line)).is_err() {
            return;
        }
    }
}

/// The worker's own side: asks the system to end it together with its starter.
pub(crate) fn die_with_starter() -> CliResult {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| CliError::Failure(format!("cannot tie this process to its starter: {e}")))?;
    match getppid() {
        Some(parent) if !parent.is_init() => Ok(()),
        _ => Err(CliError::Failure("the starter of this worker has gone".to_owned())),
    }
}

/// The worker's own side: says one line.
pub(crate) fn say(value: &impl Serialize) -> CliResult {
    let text = serde_json::to_string(value)
        .map_err(|e| CliError::Failure(format!("the reply is no JSON: {e}")))?;
    let mut out = std::io::stdout().lock();
    let said = writeln!(out, "{text}").and_then(|()| out.flush());
    said.map_err(|e| CliError::output(&e))
}

/// The worker's own side: waits for the next order; `None` where the starter has closed the pipe.
pub(crate) fn hear<T: DeserializeOwned>() -> CliResult<Option<T>> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match read.map_err(|e| CliError::Failure(format!("orders: {e}")))? {
        0 => Ok(None),
        _ => serde_json::from_str(&line)
            .map(Some)
            .map_err(|e| CliError::Failure(format!("the order is no JSON: {e}"))),
    }
}

/// The worker's own side: orders as they come, for one that has something to do meanwhile. The
/// channel breaks where the starter closes the pipe or gives an order that is none.
pub(crate) fn orders<T: DeserializeOwned + Send + 'static>() -> Receiver<T> {
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
