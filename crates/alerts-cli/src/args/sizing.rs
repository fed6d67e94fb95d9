//! The arguments of `helio-alerts sizing`.

use std::time::Duration;

use clap::Args;
use helio_console::args::Output;
use helio_console::units;

/// `helio-alerts sizing`.
#[derive(Debug, Args)]
pub(crate) struct SizingArgs {
    /// Alerts of a visit.
    #[arg(long, default_value = "10000", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) alerts: u64,
    /// The time from one visit to the next.
    #[arg(long, default_value = "39s", value_name = "TIME", value_parser = units::interval)]
    pub(crate) cadence: Duration,
    /// Visits of a night.
    #[arg(long, default_value = "1000", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) visits: u64,
    /// The time within which a visit is published, and read by each group.
    #[arg(long, default_value = "4s", value_name = "TIME", value_parser = units::interval)]
    pub(crate) burst: Duration,
    /// Groups that read the whole stream.
    #[arg(long, default_value = "11", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) groups: u64,
    /// Brokers.
    #[arg(long, default_value = "3", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) brokers: u64,
    /// Copies of each partition.
    #[arg(long, default_value = "3", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10))]
    pub(crate) replication: u64,
    /// Days for which packets are stored.
    #[arg(long, default_value = "7", value_name = "DAYS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3650))]
    pub(crate) days: u64,
    /// Bytes that one member of a group reads in a second.
    #[arg(long, default_value = "100M", value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) member_rate: usize,
    /// Bytes in a second of the network between brokers and a group.
    #[arg(long, default_value = "1132M", value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) network_rate: usize,
    /// Detectors whose alerts are generated and measured.
    #[arg(long, default_value = "4", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=189))]
    pub(crate) detectors: u16,
    /// Print a page of Markdown, as `docs/alerts-sizing.md` is.
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}
