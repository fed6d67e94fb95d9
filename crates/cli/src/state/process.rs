//! Processes of `helio state demo` and `bench`: commands of this program, stores of it, and foreign
//! programs. All die with their starter.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Parser as _;
use helio_state_etcd::ClientTls;
use helio_state_etcd::client::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ask::failed;
use crate::args::{Cli, Command as CliCommand};
use crate::error::{CliError, CliResult};
use crate::open::user_folder;
use crate::stop::{STOP_POLL_INTERVAL, Stop};
use crate::worker::Worker;

/// The kinds of workers, in [`crate::worker_kinds`].
const COMMAND: &str = "state-command";
const FOREIGN: &str = "state-foreign";
/// How long a foreign server may take to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Where a server of this program listens: at a free port.
pub(super) const LISTEN: &str = "127.0.0.1:0";
/// The folder of engines that tests build, in the user's cache.
const ENGINES: &str = "heliograph";

/// A command line of `helio state` in a worker.
pub(crate) fn run_command(arguments: &[String]) -> CliResult {
    let line = ["helio", "state"].map(str::to_owned).into_iter().chain(arguments.iter().cloned());
    let cli = Cli::try_parse_from(line).map_err(|error| CliError::Usage(error.to_string()))?;
    match &cli.command {
        CliCommand::State(command) => super::run(command, &Stop::on_signals()?),
        _ => Err(CliError::Usage("this is no command of helio state".to_owned())),
    }
}

/// Runs a command of `helio state` with `--json` in a process of its own, and gives its line.
pub(super) fn command(arguments: &[&str], stop: &Stop) -> CliResult<Value> {
    let mut worker = start(arguments, stop)?;
    let line = worker.reply()?;
    worker.finish()?;
    Ok(line)
}

fn start(arguments: &[&str], stop: &Stop) -> CliResult<Worker> {
    let task: Vec<_> = arguments.iter().copied().chain(["--json"]).collect();
    Worker::start(COMMAND, &format!("helio state {}", arguments.join(" ")), &task, stop)
}

/// A folder as an argument.
pub(super) fn path(path: &Path) -> CliResult<&str> {
    path.to_str().ok_or_else(|| CliError::Usage(format!("{} is no UTF-8", path.display())))
}

/// A running server with etcd's API; dropping it kills it.
pub(super) struct Server {
    worker: Worker,
    url: String,
}

impl Server {
    /// Its URL.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The number of its process.
    pub(super) fn id(&self) -> u32 {
        self.worker.id()
    }

    /// A client of it.
    pub(super) fn client(&self) -> CliResult<Client> {
        Client::connect(&self.url, &ClientTls::default()).map_err(failed)
    }

    /// Kills it (SIGKILL).
    pub(super) fn kill(&mut self) -> CliResult {
        self.worker.kill_now()
    }

    /// Starts `helio state serve` with a folder and a durability.
    pub(super) fn serve(
        folder: &Path,
        durability: &str,
        listen: &str,
        stop: &Stop,
    ) -> CliResult<Self> {
        let serve =
            ["serve", "--dir", path(folder)?, "--listen", listen, "--durability", durability];
        let mut worker = start(&serve, stop)?;
        let reply: Value = worker.reply()?;
        let url = reply["url"].as_str().unwrap_or_default().to_owned();
        Ok(Self { worker, url })
    }

    /// Starts a program with its files in a folder, and waits until it serves at a port.
    pub(super) fn foreign(
        program: &Path,
        arguments: Vec<String>,
        folder: &Path,
        port: u16,
        stop: &Stop,
    ) -> CliResult<Self> {
        std::fs::create_dir_all(folder).map_err(|error| CliError::file(folder, &error))?;
        let name = program.display().to_string();
        let task =
            ForeignTask { program: program.to_owned(), arguments, folder: folder.to_owned() };
        let worker = Worker::start(FOREIGN, &name, &task, stop)?;
        let mut server = Self { worker, url: format!("http://127.0.0.1:{port}") };
        server.wait(&name, &folder.join("log.txt"), stop)?;
        Ok(server)
    }

    /// Starts an etcd of one member.
    pub(super) fn etcd(
        program: &Path,
        more: &[&str],
        folder: &Path,
        stop: &Stop,
    ) -> CliResult<Self> {
        let (port, peers) = (free_port()?, free_port()?);
        let (url, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let arguments = [
            "--name=one".to_owned(),
            "--data-dir=data".to_owned(),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=one={peer}"),
        ];
        let more = more.iter().map(|&one| one.to_owned());
        Self::foreign(program, arguments.into_iter().chain(more).collect(), folder, port, stop)
    }

    fn wait(&mut self, name: &str, log: &Path, stop: &Stop) -> CliResult {
        let begun = Instant::now();
        loop {
            let answered = Client::connect(&self.url, &ClientTls::default())
                .and_then(|client| client.status());
            let Err(error) = answered else { return Ok(()) };
            stop.check()?;
            if self.worker.has_ended()? || begun.elapsed() > BEGIN_TIMEOUT {
                let log = std::fs::read_to_string(log).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                return Err(CliError::Failure(format!("{name} does not serve: {error}; {last}")));
            }
            std::thread::sleep(STOP_POLL_INTERVAL);
        }
    }
}

/// A foreign program, and where its output goes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ForeignTask {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
}

/// In a worker: becomes the foreign program.
pub(crate) fn become_foreign(task: &ForeignTask) -> CliResult {
    let log = task.folder.join("log.txt");
    let wrong = |error: std::io::Error| CliError::file(&log, &error);
    let out = File::create(&log).map_err(wrong)?;
    let errors = out.try_clone().map_err(wrong)?;
    let mut command = Command::new(&task.program);
    command.args(&task.arguments).current_dir(&task.folder).stdout(out).stderr(errors);
    Err(CliError::file(&task.program, &command.exec()))
}

/// A port that nobody listens at.
pub(super) fn free_port() -> CliResult<u16> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr());
    let address = address.map_err(|e| CliError::Failure(format!("no free port: {e}")))?;
    Ok(address.port())
}

/// A foreign program: the given file, or else the one in PATH, or that which tests have built.
pub(super) fn find_program(name: &str, given: Option<&Path>) -> CliResult<Option<PathBuf>> {
    if let Some(given) = given {
        return match given.is_file() {
            // It gets a folder of its own.
            true => std::path::absolute(given).map(Some).map_err(|e| CliError::file(given, &e)),
            false => Err(CliError::NotFound(format!("there is no file {}", given.display()))),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name));
    if let Some(file) = found.into_iter().find(|file| file.is_file()) {
        return Ok(Some(file));
    }
    let cache = user_folder("XDG_CACHE_HOME", ".cache")?.join(ENGINES);
    let built = std::fs::read_dir(cache).into_iter().flatten().flatten();
    let mut built: Vec<_> = built
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{name}-")))
        .map(|entry| entry.path().join(name))
        .filter(|file| file.is_file())
        .collect();
    built.sort();
    Ok(built.pop())
}
