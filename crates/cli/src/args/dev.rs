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

/// Operations on Kafka. The first start downloads it (44 MB, from Maven Central or the repository
/// that HELIO_MAVEN_URL names); it needs Java 17 and Python 3.11.
#[derive(Debug, Subcommand)]
pub(crate) enum KafkaCommand {
    /// Start brokers, wait until they are ready, and print their URL.
    Start(StartArgs),
    /// Stop the brokers and remove their data.
    Stop(PlaceArgs),
    /// Print the running brokers and their URL.
    Status(StatusArgs),
}

/// `helio dev kafka start`.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Number of brokers: 1, or 3 with a replication factor of 3.
    #[arg(long, value_name = "N", default_value = "1", value_parser = ["1", "3"])]
    pub(crate) nodes: String,
    /// Give a broker the memory of Kafka's own scripts (1 GB), for benches and whole observatories.
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

/// The brokers' folder.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The brokers' folder (default: one in $XDG_STATE_HOME/heliograph).
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
