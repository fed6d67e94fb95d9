//! The arguments of `helio-alerts demo`, and of its hidden workers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use helio_console::args::Output;
use helio_console::error::{CliError, CliResult};
use helio_console::units;

/// The most users: each has a connection and a thread.
const MAX_USERS: u16 = 500;
/// The most groups.
const MAX_GROUPS: u16 = 20;
/// The most members of a group.
const MAX_MEMBERS: u16 = 10;

/// `helio-alerts demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// A small night of about a minute: 2 visits of 500 alerts, 20 producers, 3 groups, 20 users.
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Visits (default: 5).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) visits: Option<u16>,
    /// Alerts of a visit (default: 10,000).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) alerts: Option<u32>,
    /// Producers, one process for each detector (default: 189).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(4..=256))]
    pub(crate) producers: Option<u16>,
    /// Groups that read and verify everything (default: 6).
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_GROUPS)))]
    pub(crate) groups: Option<u16>,
    /// Members of a group, each a process.
    #[arg(long, default_value = "2", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_MEMBERS)))]
    pub(crate) members: u16,
    /// Users, each with a filter and a connection (default: 100).
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(10..=i64::from(MAX_USERS)))]
    pub(crate) users: Option<u16>,
    /// Processes of the filter service.
    #[arg(long, default_value = "1", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) filter_processes: u16,
    /// Partitions of the topic of alerts.
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) partitions: u32,
    /// The time from one shutter close to the next, such as 39s (default: as fast as it goes).
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = units::duration)]
    pub(crate) cadence: Duration,
    /// What is killed, and the alerts: equal ones for an equal seed (default: by the clock).
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The interpreter of filters in Python, which needs numpy.
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    pub(crate) python: OsString,
    /// The stream; it must not exist. It is removed at the end, except on Kafka.
    #[arg(long, default_value = "alerts-demo", value_name = "STREAM")]
    pub(crate) topic: String,
    /// The folder for the temporary journal (default: that for temporary files).
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "url")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The kind of worker.
    pub(crate) kind: String,
    /// Its task as JSON.
    pub(crate) task: String,
}

/// How large a night is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) visits: u16,
    pub(super) alerts: u32,
    pub(super) producers: u16,
    pub(super) groups: u16,
    pub(super) members: u16,
    pub(super) users: u16,
}

impl Sizes {
    pub(super) fn of(args: &DemoArgs) -> CliResult<Self> {
        let [visits, producers, groups, users] =
            if args.smoke { [2, 20, 3, 20] } else { [5, 189, 6, 100] };
        let alerts = if args.smoke { 500 } else { 10_000 };
        let sizes = Self {
            visits: args.visits.unwrap_or(visits),
            alerts: args.alerts.unwrap_or(alerts),
            producers: args.producers.unwrap_or(producers),
            groups: args.groups.unwrap_or(groups),
            members: args.members,
            users: args.users.unwrap_or(users),
        };
        if sizes.alerts < u32::from(sizes.producers) {
            let text = "--alerts is below --producers; a producer without alerts proves nothing";
            return Err(CliError::Usage(text.to_owned()));
        }
        Ok(sizes)
    }
}
