//! The command line as a table, from which the help is generated.

mod export;
mod filter;
mod sizing;
mod start;
mod stream;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use helio_alerts::generator::History;
use helio_alerts::reader::{Stamps, Start};
use helio_alerts::rubin::Version;
use helio_alerts::topics::Keep;
use helio_console::args::{EXIT_CODES, ForArg, Output};
use helio_console::units;

use crate::demo::matrix::MatrixArgs;
use crate::demo::{DemoArgs, WorkerArgs};
pub(crate) use export::ExportArgs;
pub(crate) use filter::*;
pub(crate) use sizing::SizingArgs;
use start::start;
pub(crate) use stream::StreamArg;

/// The most detectors of a generated visit.
const MAX_DETECTORS: i64 = 256;

/// Produce, consume, audit and serve alerts of a survey telescope on a Heliograph bus.
#[derive(Debug, Parser)]
#[command(name = "helio-alerts", version, after_long_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The bus, such as `journal:/var/lib/helio/site` or `kafka://broker:9092`.
    ///
    /// The default is a journal in $XDG_STATE_HOME/heliograph/default, or in ~/.local/state where
    /// that variable is not set.
    #[arg(long, global = true, env = "HELIO_URL", value_name = "URL")]
    pub(crate) url: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publish visits of generated alerts, or alerts from files.
    Produce(ProduceArgs),
    /// Read alerts, verify them, and report what becomes of visits.
    Consume(ConsumeArgs),
    /// Compare the stored alerts of a visit, those of a group or of a copy, with the manifests.
    Audit(AuditArgs),
    /// Write the alerts of a night to files.
    Export(ExportArgs),
    /// Check, try, activate and run users' filters.
    Filter(FilterArgs),
    /// Lists of positions that filters name.
    WatchList(WatchListArgs),
    /// Regions of the sky that filters name.
    Region(RegionArgs),
    /// Name the present position of readers, for `consume --from checkpoint:NAME`.
    Checkpoint(CheckpointArgs),
    /// Move a group without live members to another start.
    Rewind(RewindArgs),
    /// Show rates, lag of groups, and the state of visits.
    Top(TopArgs),
    /// Serve metrics for Prometheus, and stamps by URL.
    Serve(ServeArgs),
    /// Measure packets, and compute what a deployment needs.
    Sizing(SizingArgs),
    /// A night of visits in separate processes that are killed and stalled, with an audit.
    Demo(Box<DemoArgs>),
    /// The experiments of LSST's testbed (DMTN-028), and one change at a time around them.
    Matrix(Box<MatrixArgs>),
    /// Run a task for another process of this program.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// Where stamps are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutArg {
    /// In the packets, as foreign clients expect.
    Inline,
    /// In a topic of their own.
    Split,
    /// In a topic of their own, compressed.
    SplitPacked,
}

/// `helio-alerts produce`.
#[derive(Debug, Args)]
pub(crate) struct ProduceArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The number of visits.
    #[arg(long, default_value = "1", value_name = "N", conflicts_with = "from")]
    pub(crate) visits: u32,
    /// Alerts of a visit.
    #[arg(long, default_value = "10000", value_name = "N", conflicts_with = "from")]
    pub(crate) alerts: u32,
    /// Detectors of the camera, over which a visit's alerts are spread.
    #[arg(long, default_value = "189", value_name = "N", conflicts_with = "from")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MAX_DETECTORS))]
    pub(crate) detectors: u16,
    /// The seed: equal alerts for an equal one.
    #[arg(long, default_value = "1", value_name = "N", conflicts_with = "from")]
    pub(crate) seed: u64,
    /// The number of the first visit.
    #[arg(long, default_value = "1000000", value_name = "VISIT", conflicts_with = "from")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..1 << 30))]
    pub(crate) first_visit: u32,
    /// The version of Rubin's schema.
    #[arg(long, default_value_t = Version::LATEST, value_name = "VERSION", conflicts_with = "from")]
    pub(crate) schema: Version,
    /// The past of each alert: `drawn` as a survey has it, `none`, or a number of points.
    #[arg(long, default_value = "drawn", value_parser = history, conflicts_with = "from")]
    pub(crate) history: History,
    /// Generate alerts without stamps.
    #[arg(long, conflicts_with = "from")]
    pub(crate) no_stamps: bool,
    /// Publish the packets of these files instead: Avro containers, or single framed packets.
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    pub(crate) from: Vec<PathBuf>,
    /// The files are spilled ones: publish them again, and remove each that is accepted. Visits are
    /// not opened.
    #[arg(long, requires = "from", conflicts_with_all = ["detector", "cadence"])]
    pub(crate) replay: bool,
    /// Only these detectors: one process a CCD. The visits are opened by another process, or with
    /// --open.
    #[arg(long, value_name = "D")]
    pub(crate) detector: Vec<i32>,
    /// Open the visits, though --detector names some detectors only.
    #[arg(long, requires = "detector")]
    pub(crate) open: bool,
    /// The time from one visit to the next, such as 39s (default: as fast as it goes).
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) cadence: Duration,
    /// How long after its opening record an incomplete visit may be closed.
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) window: Duration,
    /// How long a detector's alerts are tried to be published.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) retry_for: Duration,
    /// The folder for packets that the bus does not accept in that time.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) spill: Option<PathBuf>,
    /// Where stamps are published.
    #[arg(long, value_enum, default_value = "inline")]
    pub(crate) layout: LayoutArg,
    /// Partitions of the topics, if they are created.
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) partitions: u32,
    /// Days for which packets are stored, if the topics are created.
    #[arg(long, default_value_t = Keep::DEFAULT_DAYS, value_name = "DAYS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) keep_days: u32,
    /// The most bytes of a partition, such as 100G, if the topics are created (default: no limit
    /// but the engine's).
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) keep_bytes: Option<usize>,
    /// The producer's name, which is stable over restarts (default: ccd-D for one detector D).
    #[arg(long)]
    pub(crate) producer: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The stamps that a consumer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StampsArg {
    /// None: packets without stamps.
    None,
    /// Beside packets without stamps.
    Linked,
    /// In the packets.
    Inline,
}

impl From<StampsArg> for Stamps {
    fn from(arg: StampsArg) -> Self {
        match arg {
            StampsArg::None => Self::None,
            StampsArg::Linked => Self::Linked,
            StampsArg::Inline => Self::Inline,
        }
    }
}

/// Where reading begins.
#[derive(Debug, Args)]
pub(crate) struct StartArg {
    /// Where to start: latest, earliest, committed, visit:N, night:2026-11-25,
    /// time:2026-11-26T03:00:00Z, alert:ID or checkpoint:NAME.
    #[arg(long, value_name = "START", value_parser = start)]
    pub(crate) from: Option<Start>,
}

/// `helio-alerts consume`.
#[derive(Debug, Args)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The group whose members share the alerts. Its positions are committed.
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// The stamps to read.
    #[arg(long, value_enum, default_value = "none")]
    pub(crate) stamps: StampsArg,
    #[command(flatten)]
    pub(crate) start: StartArg,
    /// Compare the hash of every payload with the manifests; without a group, close visits, too.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print a line for each alert.
    #[arg(long)]
    pub(crate) list: bool,
    /// End after so many alerts.
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) count: Option<u64>,
    /// End when so many visits are decided.
    #[arg(long, value_name = "N")]
    pub(crate) visits: Option<u64>,
    #[command(flatten)]
    pub(crate) end: ForArg,
    /// The member's name (default: the bus's).
    #[arg(long)]
    pub(crate) producer: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts audit`.
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The visit.
    #[arg(long, value_name = "VISIT")]
    pub(crate) visit: i64,
    /// Audit what this group has read and committed.
    #[arg(long, conflicts_with = "copy")]
    pub(crate) group: Option<String>,
    /// Audit the stream's copy on another bus by this bus's manifests.
    #[arg(long, value_name = "URL")]
    pub(crate) copy: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts checkpoint`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    /// The name.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    #[command(flatten)]
    pub(crate) start: StartArg,
}

/// `helio-alerts rewind`.
#[derive(Debug, Args)]
pub(crate) struct RewindArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The group.
    #[arg(long)]
    pub(crate) group: String,
    #[command(flatten)]
    pub(crate) start: StartArg,
}

/// `helio-alerts top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The time between two updates.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = units::interval)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) end: ForArg,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The address to listen at.
    #[arg(long, default_value = "127.0.0.1:9464", value_name = "ADDRESS")]
    pub(crate) listen: String,
    /// The address under which readers reach the stamps, such as `https://alerts.example.org`
    /// (default: the one it listens at). It is published in the stream.
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Parses `drawn`, `none` or a number of points.
fn history(text: &str) -> Result<History, String> {
    match text {
        "drawn" => Ok(History::Drawn),
        "none" => Ok(History::None),
        points => points.parse().map(History::Points).map_err(|_| {
            format!("invalid history {text:?}; write drawn, none, or a number of points")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_are_parsed() {
        assert_eq!(history("drawn"), Ok(History::Drawn));
        assert_eq!(history("100"), Ok(History::Points(100)));
        assert!(history("-1").is_err() && history("all").is_err());
    }
}
