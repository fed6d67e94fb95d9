//! The command lines of `helio log archive`, `search` and `export` as tables.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use helio_bus::Tai;
use helio_logging::Level;

use super::log::{From, LanesArgs};
use super::{ForArg, Output};
use crate::units;

/// The retention of records: the greatest age and size; forever by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) age: Option<Duration>,
    pub(crate) bytes: Option<u64>,
}

/// The retention of records of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeepLevel(pub(crate) Level, pub(crate) Retention);

impl FromStr for KeepLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "invalid retention {text:?}; write DEBUG=7d, DEBUG=8G, DEBUG=7d,8G or \
                 ALERT=forever"
            )
        };
        let (level, kept) = text.split_once('=').ok_or_else(wrong)?;
        let level = level.parse().map_err(|error| format!("{error}"))?;
        let mut keep = Retention::default();
        if kept == "forever" {
            return Ok(Self(level, keep));
        }
        for part in kept.split(',') {
            let is_size = part.ends_with(['k', 'K', 'M', 'G', 'B']);
            let set = match is_size {
                true => {
                    keep.bytes.replace(units::bytes(part).map_err(|_| wrong())? as u64).is_some()
                }
                false => keep.age.replace(units::duration(part).map_err(|_| wrong())?).is_some(),
            };
            if set {
                return Err(wrong());
            }
        }
        Ok(Self(level, keep))
    }
}

/// `helio log archive`.
#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    /// The archive's folder; created if missing.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// The retention of a level: an age, a number of bytes, or both, such as DEBUG=7d,8G or
    /// ALERT=forever; may be repeated. Defaults: below INFO 7d,8G, INFO and NOTICE 90d,32G, WARNING
    /// and ERROR 32G, CRITICAL and above forever.
    #[arg(long, value_name = "LEVEL=AGE,BYTES")]
    pub(crate) keep: Vec<KeepLevel>,
    /// The size of a segment, the unit of retention.
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, default_value = "128M")]
    pub(crate) segment: usize,
    /// Begin there instead of at the archive's end: earliest, latest, a time, a duration ago, a
    /// cursor. A new archive begins at the oldest records of the bus.
    #[arg(long, value_name = "START", allow_hyphen_values = true)]
    pub(crate) from: Option<From>,
    #[command(flatten)]
    pub(crate) time: ForArg,
    #[command(flatten)]
    pub(crate) lanes: LanesArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// This time.
    At(Tai),
    /// This long ago.
    Ago(Duration),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(From::Time(time)) => Ok(Self::At(time)),
            Ok(From::Ago(ago)) => Ok(Self::Ago(ago)),
            _ => Err(format!("invalid time {text:?}; write 2026-11-21T03:00:00Z or -15m")),
        }
    }
}

/// A selection of an archive's records.
#[derive(Debug, Args)]
pub(crate) struct WantedArgs {
    /// The archive's folder.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Only records that match: 'level >= WARNING and logger = CONTROL/** and not "lost lock"'.
    /// docs/logging.md has the grammar.
    #[arg(value_name = "PREDICATE")]
    pub(crate) predicate: Vec<String>,
    /// Only records since that time (2026-11-21T03:00:00Z), or since a duration ago (-15m).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<When>,
    /// Only records before that time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<When>,
    /// Only records of this level and above.
    #[arg(long, short, value_name = "LEVEL", default_value = "TRACE")]
    pub(crate) level: Level,
}

/// `helio log search`.
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(crate) wanted: WantedArgs,
    /// End after this many records, the earliest ones.
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Print only the number of records.
    #[arg(long, conflicts_with_all = ["xml", "limit"])]
    pub(crate) count: bool,
    /// Print an XML document of log entries, as ALMA's ACS has them.
    #[arg(long, conflicts_with = "json")]
    pub(crate) xml: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What `helio log export` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// A JSON object per line, with the complete record.
    Jsonl,
    /// A document of log entries, as ALMA's ACS has them.
    Xml,
    /// A line per record, for spreadsheets.
    Csv,
    /// A row per record in Apache Parquet, for analysis.
    Parquet,
}

/// `helio log export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) wanted: WantedArgs,
    /// The format.
    #[arg(long, value_enum)]
    pub(crate) format: FormatArg,
    /// The file; it appears when it is complete and replaces an existing one.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_an_age_or_a_size_or_both() {
        let keep = |text: &str| text.parse::<KeepLevel>().map(|KeepLevel(_, keep)| keep);
        let week = Some(Duration::from_secs(7 * 86_400));
        assert_eq!(keep("DEBUG=7d"), Ok(Retention { age: week, bytes: None }));
        assert_eq!(keep("DEBUG=8G"), Ok(Retention { age: None, bytes: Some(8 << 30) }));
        assert_eq!(keep("DEBUG=1k,7d"), Ok(Retention { age: week, bytes: Some(1024) }));
        assert_eq!(keep("ALERT=forever"), Ok(Retention::default()));
        for wrong in ["", "DEBUG", "LOUD=7d", "DEBUG=", "DEBUG=7d,8d", "DEBUG=soon", "DEBUG=7d,"] {
            assert!(keep(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!("-15m".parse(), Ok(When::Ago(Duration::from_secs(900))));
        assert!("earliest".parse::<When>().is_err());
    }
}
