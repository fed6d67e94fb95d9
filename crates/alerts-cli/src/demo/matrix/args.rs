//! The arguments of `helio-alerts matrix`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use helio_console::args::Output;

/// The most visits of a cell.
const MAX_VISITS: i64 = 1_000;

/// `helio-alerts matrix`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct MatrixArgs {
    /// The folder of the results and of temporary journals.
    #[arg(long, required = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    /// Where results are appended, a line of JSON for each cell. Cells that are there are skipped
    /// (default: alerts-matrix.jsonl in the folder).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
    /// All cells in miniature: fewer alerts, processes and visits. It takes minutes.
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Only cells whose names contain one of these texts.
    #[arg(long, value_name = "TEXT", num_args = 1.., value_delimiter = ',')]
    pub(crate) cells: Vec<String>,
    /// Visits of each cell (default: 3; 30 of those that show lag).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_VISITS))]
    pub(crate) visits: Option<u16>,
    /// Print the names of the cells, and which have results.
    #[arg(long)]
    pub(crate) list: bool,
    /// The program that starts Kafka's brokers for the cells that need them, as `helio dev kafka`
    /// and tests/engines/kafka do. Without it, and without --url, cells on brokers are left out.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) brokers: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(subcommand)]
    pub(crate) command: Option<MatrixCommand>,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum MatrixCommand {
    /// Run cells with two programs in turn (A B A B), and show by how much B is slower.
    Compare(CompareArgs),
}

/// `helio-alerts matrix compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The `helio-alerts` to compare with.
    #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
    pub(crate) before: PathBuf,
    /// The `helio-alerts` that is compared.
    #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
    pub(crate) after: PathBuf,
    /// The folder of temporary journals and of the results.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// The cells, as in `matrix`.
    #[arg(long, default_value = "journal/groups-4-stamps", value_name = "TEXT")]
    #[arg(num_args = 1.., value_delimiter = ',')]
    pub(crate) cells: Vec<String>,
    /// Cells in miniature.
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Visits of each run.
    #[arg(long, default_value = "3", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MAX_VISITS))]
    pub(crate) visits: u16,
    /// How often each program runs each cell.
    #[arg(long, default_value = "5", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) pairs: u16,
    /// By how many percent B may use more than A.
    #[arg(long, default_value = "10", value_name = "PERCENT")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    #[command(flatten)]
    pub(crate) output: Output,
}
