//! The command line of `helio component` as a table.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueHint};

use crate::args::Output;
use crate::units;

/// `helio component`.
#[derive(Debug, Subcommand)]
pub(crate) enum ComponentCommand {
    /// List the components of the bus, or those of a folder of interfaces.
    List(ListArgs),
    /// Show a component's interface: commands, events, telemetry, or one of them with its fields.
    Show(ShowArgs),
    /// Show what components do: a live table on a terminal, a line for each change elsewhere.
    Watch(WatchArgs),
    /// Print the states that components are in.
    States(StatesArgs),
    /// Print commands and what became of them.
    Audit(AuditArgs),
    /// Write typed Python stubs of components, for type checkers and editors.
    Stubs(StubsArgs),
}

/// Where interfaces are read from.
#[derive(Debug, Args)]
pub(crate) struct InterfacesArg {
    /// The folder of SAL interfaces (those that the program carries unless given).
    #[arg(long, env = "HELIO_INTERFACES", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) interfaces: Option<PathBuf>,
}

/// `helio component list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// A folder of SAL interfaces, whose components are listed instead of those of the bus.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The component.
    pub(crate) component: String,
    /// A topic of it, such as trackTarget or evt_summaryState, with its fields.
    pub(crate) topic: Option<String>,
    #[command(flatten)]
    pub(crate) interfaces: InterfacesArg,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Only these; `*` stands for anything, such as MT* or ESS:2.
    #[arg(value_name = "COMPONENT")]
    pub(crate) components: Vec<String>,
    /// On a terminal: the time from one drawing to the next.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) every: Duration,
    /// End after this time, such as 30s.
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl WatchArgs {
    /// When the time is over, counted from now.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.duration.and_then(|time| Instant::now().checked_add(time))
    }
}

/// `helio component states`.
#[derive(Debug, Args)]
pub(crate) struct StatesArgs {
    /// Only these; `*` stands for anything.
    #[arg(value_name = "COMPONENT")]
    pub(crate) components: Vec<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Only commands to these; `*` stands for anything.
    #[arg(value_name = "COMPONENT")]
    pub(crate) components: Vec<String>,
    /// Only these commands; `*` stands for anything.
    #[arg(long, value_name = "NAME")]
    pub(crate) command: Option<String>,
    /// Only those of these callers; `*` stands for anything.
    #[arg(long, value_name = "NAME")]
    pub(crate) caller: Option<String>,
    /// Only those that were not done.
    #[arg(long)]
    pub(crate) failed: bool,
    /// The newest so many.
    #[arg(long, default_value = "50", value_name = "N")]
    pub(crate) last: usize,
    /// Then print what comes.
    #[arg(long)]
    pub(crate) follow: bool,
    /// With --follow: end after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration, requires = "follow")]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio component stubs`.
#[derive(Debug, Args)]
pub(crate) struct StubsArgs {
    /// The folder of SAL interfaces.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Only these components (all of the folder unless given).
    #[arg(long, value_name = "NAME")]
    pub(crate) component: Vec<String>,
    /// Where to: a file for one component, a folder for several, each as its name in small letters
    /// with .pyi; standard output where nothing is said of one component.
    #[arg(short = 'o', long = "output", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) path: Option<PathBuf>,
}
