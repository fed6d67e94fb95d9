//! The command line of `helio dev` as a table.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::Output;

/// The engines.
#[derive(Debug, Subcommand)]
pub(crate) enum DevCommand {
    /// Apache Kafka, one broker or three, on this machine.
    #[command(subcommand)]
    Kafka(KafkaCommand),
}

/// What is done with Kafka. The first start downloads it (44 MB, from Maven Central or the
/// repository that HELIO_MAVEN_URL names); it needs Java 17 and Python 3.11.
#[derive(Debug, Subcommand)]
pub(crate) enum KafkaCommand {
    /// Start brokers, wait until they serve, and print their URL.
    Start(StartArgs),
    /// End the brokers, and remove all that they hold.
    Stop(PlaceArgs),
    /// Print what runs, and its URL.
    Status(StatusArgs),
}

/// `helio dev kafka start`.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// How many brokers: 1, or 3 with three copies of everything.
    #[arg(long, value_name = "N", default_value = "1", value_parser = ["1", "3"])]
    pub(crate) nodes: String,
    /// Give a broker what Kafka's own scripts do (1 GB): for benches, and for a whole observatory.
    #[arg(long)]
    pub(crate) bench: bool,
    /// A broker's property; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Which brokers.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Their folder; one of your own in $XDG_STATE_HOME/heliograph unless given.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// `helio dev kafka status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}
