//! Brokers of a cell's own: started for it and removed with all that they store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use helio_console::error::{CliError, CliResult};
use serde::Deserialize;

/// librdkafka has at most five requests of a partition in flight, and tries without a pause to send
/// what waits behind them: with its batches of 1 MB, each of 100 producers takes a processor until
/// its CCD's 15 MB are sent. These make two requests.
const LARGE_BATCHES: &str = "batch.size=8388608";

/// What the program that starts brokers reports.
#[derive(Debug, Deserialize)]
struct Started {
    url: String,
    brokers: Vec<Broker>,
    /// The options with which a client connects.
    #[serde(default)]
    client: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Broker {
    pid: u32,
}

/// Brokers that run. Dropping it stops them.
pub(super) struct Brokers {
    command: String,
    folder: PathBuf,
    started: Started,
}

impl Brokers {
    /// Starts one or three; they stop with this process, too.
    pub(super) fn start(command: &str, dir: &Path, nodes: u16, tls: bool) -> CliResult<Self> {
        let folder = dir.join(format!("helio-alerts-brokers.{}", std::process::id()));
        let (nodes, owner) = (nodes.to_string(), std::process::id().to_string());
        let mut args = vec!["start", "--bench", "--json", "--nodes", &nodes, "--owner", &owner];
        args.extend(tls.then_some("--tls"));
        let output = run(command, &folder, &args)?;
        let started = serde_json::from_slice(&output.stdout)
            .map_err(|e| CliError::Failure(format!("{command} start: {e}")))?;
        Ok(Self { command: command.to_owned(), folder, started })
    }

    /// Their URL, with a cell's options, and large batches unless it has its own.
    pub(super) fn url(&self, options: &str) -> String {
        let client = self.started.client.iter().map(|(name, value)| format!("{name}={value}"));
        let given = (!options.is_empty()).then(|| options.to_owned());
        let large = (!options.contains("batch.size=")).then(|| LARGE_BATCHES.to_owned());
        let all: Vec<String> = client.chain(given).chain(large).collect();
        let mark = if self.started.url.contains('?') { '&' } else { '?' };
        format!("{}{mark}{}", self.started.url, all.join("&"))
    }

    /// Their processes.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.started.brokers.iter().map(|one| one.pid).collect()
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        if let Err(error) = run(&self.command, &self.folder, &["stop"]) {
            helio_bus::notify(&format!("brokers in {} stay: {error}", self.folder.display()));
        }
    }
}

fn run(command: &str, folder: &Path, args: &[&str]) -> CliResult<Output> {
    let failed = |cause: &dyn std::fmt::Display| {
        CliError::Failure(format!("{command} {}: {cause}", args[0]))
    };
    let mut words = command.split_whitespace();
    let mut program = Command::new(words.next().unwrap_or_default());
    program.args(words).args(args).arg("--dir").arg(folder);
    let output = program.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| failed(&e))?;
    if output.status.success() { Ok(output) } else { Err(failed(&output.status)) }
}
