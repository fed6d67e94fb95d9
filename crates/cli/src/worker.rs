//! Workers: other processes of this same program, started for one task.
//!
//! A worker gets its task as JSON in an argument and talks in lines: JSON objects on its stdout, orders
//! on its stdin. It dies with the process that started it, whatever happens to that one.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{CliError, CliResult};

/// A running worker, as its starter sees it. Dropping it ends the worker.
pub(crate) struct Worker {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this program again with a hidden sub-command `kind` and its task.
    pub(crate) fn start(kind: &str, name: &str, task: &impl Serialize) -> CliResult<Self> {
        let failed = |e: &dyn std::fmt::Display| {
            CliError::Failure(format!("cannot start the process {name}: {e}"))
        };
        let program = std::env::current_exe().map_err(|e| failed(&e))?;
        let task = serde_json::to_string(task).map_err(|e| failed(&e))?;
        let mut command = Command::new(program);
        command.args(["worker", kind, &task]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C on the terminal reaches the starter only, which then ends its workers in order.
        let mut child = command.process_group(0).spawn().map_err(|e| failed(&e))?;
        let (orders, replies) = (child.stdin.take(), child.stdout.take());
        let replies = BufReader::new(replies.ok_or_else(|| failed(&"it has no pipe"))?);
        Ok(Self { name: name.to_owned(), child, orders, replies })
    }

    /// The worker's process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
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

    /// Waits for the next reply; a worker that has gone without one is an error.
    pub(crate) fn reply<T: DeserializeOwned>(&mut self) -> CliResult<T> {
        let mut line = String::new();
        let read = self.replies.read_line(&mut line).map_err(|e| self.broken(&e))?;
        if read == 0 {
            let status = self.child.wait().map_err(|e| self.broken(&e))?;
            return Err(self.broken(&format!("it ended with {status} before it answered")));
        }
        serde_json::from_str(&line).map_err(|e| self.broken(&e))
    }

    /// Ends the worker's orders and waits until it has gone by itself.
    pub(crate) fn finish(mut self) -> CliResult {
        drop(self.orders.take());
        let status = self.child.wait().map_err(|e| self.broken(&e))?;
        if status.success() { Ok(()) } else { Err(self.broken(&format!("it ended with {status}"))) }
    }

    /// Kills the worker (SIGKILL) and collects what it had still said.
    pub(crate) fn kill(mut self) -> CliResult<String> {
        let dead = self.child.kill().and_then(|()| self.child.wait());
        dead.map_err(|e| self.broken(&e))?;
        let mut rest = String::new();
        self.replies.read_to_string(&mut rest).map_err(|e| self.broken(&e))?;
        Ok(rest)
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
