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
    /// Kubernetes' control plane on a state store of this program, with simulated nodes.
    #[cfg(feature = "state")]
    #[command(subcommand)]
    Kube(KubeCommand),
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

/// Operations on Kubernetes. The first start builds it from its Go modules, which takes many
/// minutes; it needs Go 1.26, openssl and Python 3.11. Nothing runs in the pods.
#[cfg(feature = "state")]
#[derive(Debug, Subcommand)]
pub(crate) enum KubeCommand {
    /// Start a store, the control plane on it and nodes, and wait until they are ready.
    Start(KubeStartArgs),
    /// Stop the cluster and remove its data.
    Stop(PlaceArgs),
    /// Print the running processes and the store's URL.
    Status(StatusArgs),
}

/// `helio dev kube start`.
#[cfg(feature = "state")]
#[derive(Debug, Args)]
pub(crate) struct KubeStartArgs {
    /// When the store acknowledges a write: after it is on disk, or before (every 50 ms).
    #[arg(long, value_name = "DURABILITY", default_value = "disk",
        value_parser = ["disk", "interval"])]
    pub(crate) durability: String,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The engine's folder.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The engine's folder (default: one in $XDG_STATE_HOME/heliograph).
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
