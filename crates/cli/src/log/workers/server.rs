//! `helio log serve` between producers and clients, as a process whose CPU time is measured.

use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::messages::Spent;
use crate::args::log::LogCommand;
use crate::args::{Cli, Command};
use crate::clock::{cpu_s, peak_rss_mb};
use crate::error::{CliError, CliResult};
use crate::log::serve;
use crate::stop::Stop;
use crate::worker::{Worker, say};

/// A rate far above a bench's, because the path is measured and not its limit.
const RATE: &str = "1e9";

/// The server's task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerTask {
    url: String,
    prefix: String,
}

/// A service that runs.
pub(crate) struct Server {
    worker: Worker,
    /// Its syslog address.
    pub(crate) address: String,
}

/// The service's final counts.
pub(crate) struct Served {
    /// Records dropped before they were in a topic; readers are notified of the others.
    pub(crate) dropped: u64,
    /// What it used.
    pub(crate) used: Spent,
}

impl Server {
    /// Starts the service; it is listening when this returns.
    pub(crate) fn start(url: &str, prefix: &str, stop: &Stop) -> CliResult<Self> {
        let task = ServerTask { url: url.to_owned(), prefix: prefix.to_owned() };
        let mut worker = Worker::start("log-server", "helio log serve", &task, stop)?;
        let begun: Value = worker.reply()?;
        let address = begun["listening"][0]["address"].as_str().unwrap_or_default().to_owned();
        Ok(Self { worker, address })
    }

    /// Has it publish its pending records and ends it.
    pub(crate) fn end(mut self) -> CliResult<Served> {
        self.worker.interrupt()?;
        let told: Value = self.worker.reply()?;
        let used = self.worker.reply()?;
        self.worker.finish()?;
        Ok(Served { dropped: dropped(&told["account"]["dropped"]), used })
    }
}

/// The sum of the drops without the shed records, which the next packet of a topic reports.
fn dropped(causes: &Value) -> u64 {
    let causes = causes.as_object().into_iter().flatten();
    causes.filter(|(cause, _)| *cause != "shed").filter_map(|(_, count)| count.as_u64()).sum()
}

/// Runs the process.
pub(crate) fn run(task: &ServerTask) -> CliResult {
    let stop = Stop::on_signals()?;
    let line = ["helio", "log", "serve", "--json", "--syslog-tcp", "127.0.0.1:0", "--rate", RATE];
    let cli = Cli::try_parse_from(line.into_iter().chain(["--prefix", &task.prefix]));
    let cli = cli.map_err(|error| CliError::Usage(error.to_string()))?;
    let Command::Log(LogCommand::Serve(args)) = &cli.command else {
        return Err(CliError::Usage("this is no service".to_owned()));
    };
    let cpu = cpu_s();
    serve::run(args, Some(&task.url), &stop)?;
    say(&Spent { cpu_s: cpu_s() - cpu, rss_mb: peak_rss_mb() })
}
