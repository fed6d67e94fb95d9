//! The arguments of `helio-alerts filter`, `watch-list` and `region`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use helio_alert_filters::names::check_name;
use helio_alert_filters::{Content, FilterId, Format, Language};
use helio_alerts::reader::{Night, Start};
use helio_console::args::{ForArg, Output};
use helio_console::units;

use super::start::start;
use super::stream::StreamArg;

/// A user's filter, with or without a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterName {
    pub(crate) user: String,
    pub(crate) name: String,
    /// `None` is the newest one.
    pub(crate) version: Option<u32>,
}

impl FromStr for FilterName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('@') {
            let id: FilterId = text.parse().map_err(|error| format!("{error}"))?;
            return Ok(Self { user: id.user, name: id.name, version: Some(id.version) });
        }
        let (user, name) = text
            .split_once('/')
            .ok_or_else(|| format!("invalid filter {text:?}; write USER/NAME or USER/NAME@3"))?;
        for part in [user, name] {
            check_name(part).map_err(|error| error.to_string())?;
        }
        Ok(Self { user: user.to_owned(), name: name.to_owned(), version: None })
    }
}

/// The language of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LanguageArg {
    /// A query.
    Sql,
    /// A function over a batch.
    Python,
}

impl From<LanguageArg> for Language {
    fn from(arg: LanguageArg) -> Self {
        match arg {
            LanguageArg::Sql => Self::Sql,
            LanguageArg::Python => Self::Python,
        }
    }
}

/// The language of a text, if its file's name does not say it.
#[derive(Debug, Args)]
pub(crate) struct LanguageOption {
    /// The text's language (default: python of files `*.py`, else sql).
    #[arg(long, value_enum)]
    pub(crate) language: Option<LanguageArg>,
}

/// How filters in Python run.
#[derive(Debug, Args)]
pub(crate) struct PythonArg {
    /// The interpreter of filters in Python, which has numpy.
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    pub(crate) python: OsString,
}

/// `helio-alerts filter`.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    #[command(subcommand)]
    pub(crate) command: FilterCommand,
}

/// Commands of filters.
#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// Check a text against the stream's schemas, and show what it reads.
    Check(CheckArgs),
    /// Add a version of a filter, which activates nothing.
    Add(AddArgs),
    /// Run a filter over stored alerts, and report its matches and costs.
    DryRun(DryRunArgs),
    /// Activate a version, from the next visit on, if its dry run was within the limits.
    Activate(ActivateArgs),
    /// Deactivate a filter, from the next visit on.
    Deactivate(DeactivateArgs),
    /// List versions of filters.
    Versions(VersionsArgs),
    /// Show what filters did in decided visits.
    Stats(StatsArgs),
    /// Set how a user gets results.
    Deliver(DeliverArgs),
    /// Run a process of the filter service until a signal.
    Run(RunArgs),
}

/// `helio-alerts filter check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The text, or @FILE with it.
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) language: LanguageOption,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts filter add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The filter: USER/NAME.
    #[arg(value_name = "USER/NAME")]
    pub(crate) filter: FilterName,
    /// The text, or @FILE with it. The text of the newest version again is that version.
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) language: LanguageOption,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts filter dry-run`.
#[derive(Debug, Args)]
#[group(id = "tried", required = true, multiple = false, args = ["filter", "text"])]
pub(crate) struct DryRunArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The filter: USER/NAME or USER/NAME@VERSION. Its report is stored, for its activation.
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Option<FilterName>,
    /// A text, or @FILE with it, which is not stored.
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    #[command(flatten)]
    pub(crate) language: LanguageOption,
    /// The alerts of this night, by the date of its evening, such as 2026-11-25.
    #[arg(long, value_name = "DATE")]
    pub(crate) night: Option<Night>,
    /// The most alerts.
    #[arg(long, default_value = "1000000", value_name = "N")]
    pub(crate) max_alerts: u64,
    #[command(flatten)]
    pub(crate) python: PythonArg,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts filter activate`.
#[derive(Debug, Args)]
pub(crate) struct ActivateArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The filter: USER/NAME or USER/NAME@VERSION.
    #[arg(value_name = "FILTER")]
    pub(crate) filter: FilterName,
    /// Activate it without dry run, or with one beyond the limits.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts filter deactivate`.
#[derive(Debug, Args)]
pub(crate) struct DeactivateArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The filter: USER/NAME.
    #[arg(value_name = "USER/NAME")]
    pub(crate) filter: FilterName,
}

/// `helio-alerts filter versions`.
#[derive(Debug, Args)]
pub(crate) struct VersionsArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// Only filters of this user.
    pub(crate) user: Option<String>,
    /// Print the texts, too.
    #[arg(long)]
    pub(crate) texts: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts filter stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// Only filters of this user.
    pub(crate) user: Option<String>,
    /// Only this visit.
    #[arg(long, value_name = "VISIT")]
    pub(crate) visit: Option<i64>,
    /// The newest visits.
    #[arg(long, default_value = "10", value_name = "N", conflicts_with = "visit")]
    pub(crate) visits: usize,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The encoding of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// Avro, framed by the bus.
    Confluent,
    /// Avro without frame; the key is the schema.
    Fink,
    /// JSON.
    Json,
}

impl From<FormatArg> for Format {
    fn from(arg: FormatArg) -> Self {
        match arg {
            FormatArg::Confluent => Self::Confluent,
            FormatArg::Fink => Self::Fink,
            FormatArg::Json => Self::Json,
        }
    }
}

/// The content of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContentArg {
    /// The columns of SELECT, or the packet without stamps.
    Selected,
    /// The same, packets with stamps.
    WithStamps,
    /// The alert's place in the stream.
    Reference,
}

impl From<ContentArg> for Content {
    fn from(arg: ContentArg) -> Self {
        match arg {
            ContentArg::Selected => Self::Selected,
            ContentArg::WithStamps => Self::WithStamps,
            ContentArg::Reference => Self::Reference,
        }
    }
}

/// `helio-alerts filter deliver`.
#[derive(Debug, Args)]
pub(crate) struct DeliverArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The user.
    pub(crate) user: String,
    /// The encoding of the results.
    #[arg(long, value_enum, default_value = "confluent")]
    pub(crate) format: FormatArg,
    /// Their content.
    #[arg(long, value_enum, default_value = "selected")]
    pub(crate) content: ContentArg,
}

/// `helio-alerts filter run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The group of the processes that share the stream.
    #[arg(long, default_value = "alert-filters")]
    pub(crate) group: String,
    /// Where the group starts before its first commit: latest, earliest or time:….
    #[arg(long, default_value = "earliest", value_name = "START", value_parser = start)]
    pub(crate) from: Start,
    /// The time between two lines of counters.
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = units::interval)]
    pub(crate) every: Duration,
    /// The address of this process's counters for Prometheus, such as 127.0.0.1:9465.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    #[command(flatten)]
    pub(crate) python: PythonArg,
    #[command(flatten)]
    pub(crate) end: ForArg,
    /// The process's name (default: the bus's).
    #[arg(long)]
    pub(crate) producer: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts watch-list`.
#[derive(Debug, Args)]
pub(crate) struct WatchListArgs {
    #[command(subcommand)]
    pub(crate) command: WatchListCommand,
}

/// Commands of watch lists.
#[derive(Debug, Subcommand)]
pub(crate) enum WatchListCommand {
    /// Store a list, or replace it under the filters that use it.
    Put(PutWatchListArgs),
    /// List watch lists.
    List(ListArgs),
    /// Remove a list. Filters that name it do not run from then on.
    Remove(RemoveArgs),
}

/// `helio-alerts watch-list put`.
#[derive(Debug, Args)]
pub(crate) struct PutWatchListArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The name, as in `in_watchlist('name')`.
    pub(crate) name: String,
    /// Lines of right ascension and declination in degrees, separated by comma or blank. A first
    /// line of names, and lines that begin with #, are skipped.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The radius around each position, in arcseconds.
    #[arg(long, default_value = "2", value_name = "ARCSEC")]
    pub(crate) radius: f64,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts watch-list list` and `region list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio-alerts watch-list remove` and `region remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The name.
    pub(crate) name: String,
}

/// `helio-alerts region`.
#[derive(Debug, Args)]
pub(crate) struct RegionArgs {
    #[command(subcommand)]
    pub(crate) command: RegionCommand,
}

/// Commands of regions.
#[derive(Debug, Subcommand)]
pub(crate) enum RegionCommand {
    /// Store a region, or replace it.
    Put(PutRegionArgs),
    /// List regions.
    List(ListArgs),
    /// Remove a region. Filters that name it do not run from then on.
    Remove(RemoveArgs),
}

/// `helio-alerts region put`.
#[derive(Debug, Args)]
pub(crate) struct PutRegionArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The name, as in `in_moc('name')`.
    pub(crate) name: String,
    /// The region as an ASCII MOC of the IVOA, such as `3/1-5 8 4/20`.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_named_with_or_without_version() {
        let name = |text: &str| text.parse::<FilterName>().map(|n| (n.user, n.name, n.version));
        assert_eq!(name("ada/snr"), Ok(("ada".into(), "snr".into(), None)));
        assert_eq!(name("ada/snr@3"), Ok(("ada".into(), "snr".into(), Some(3))));
        for bad in ["ada", "ada/", "/snr", "ada/a b", "ada/snr@", "ada/snr@x", "a/b/c"] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}
