//! The settings file: an operator's options for a process's logging, watched while it runs.
//!
//! Constraints. The file's values override the program's; missing values leave the program's. The
//! publishing thread checks the file, by default once a second, and reads it only if it has
//! changed. An invalid file changes nothing, and is reported with its line.
//!
//! Format. YAML:
//!
//! ```yaml
//! level: INFO               # the lowest level that is published
//! local: "OFF"              # and printed
//! loggers:                  # the same of some; the most specific pattern holds
//!   - {logger: "CONTROL/DV11/*", level: DEBUG, local: WARNING}
//! batch_age: 20ms
//! batch_records: 1000
//! suppress: {per_second: 1000, burst: 5000}
//! urgent: ALERT             # from here on at the start only
//! keep: DEBUG
//! ring_bytes: 1MiB
//! queue_bytes: 16MiB
//! spill: {file: /var/lib/helio/mount.spill, bytes: 1GiB}
//! ```

use std::fs::File;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};
use thiserror::Error;

use super::{LogOptions, Spill, Suppress};
use crate::level::{Level, Threshold};
use crate::levels::{MAX_LEVEL_ENTRIES, Rule};
use crate::packet::MAX_RECORDS;

/// The longest settings file, in bytes: as many patterns as there may be fit.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The longest batch age. With a longer one records would arrive too late to be useful.
const MAX_BATCH_AGE: Duration = Duration::from_secs(60);
/// The range of a queue's size: at least one record, and at most a machine's memory.
const QUEUE_BYTES_RANGE: RangeInclusive<u64> = 4 << 10..=1 << 40;

/// An error in a settings file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{}: {cause}; {remedy}", .file.display(), line_of(.line))]
pub struct SettingsError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1, if known.
    pub line: Option<u64>,
    /// The error.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
}

fn line_of(line: &Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    level: Option<Spanned<String>>,
    local: Option<Spanned<String>>,
    #[serde(default)]
    loggers: Vec<LoggerRow>,
    batch_age: Option<Spanned<String>>,
    batch_records: Option<Spanned<u64>>,
    suppress: Option<Spanned<Limits>>,
    urgent: Option<Spanned<String>>,
    keep: Option<Spanned<String>>,
    ring_bytes: Option<Spanned<String>>,
    queue_bytes: Option<Spanned<String>>,
    spill: Option<SpillRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoggerRow {
    logger: Spanned<String>,
    level: Option<Spanned<String>>,
    local: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    per_second: u32,
    burst: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpillRow {
    file: PathBuf,
    bytes: Spanned<String>,
}

/// The values of a file; missing ones are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Settings {
    pub(super) rules: Vec<Rule>,
    level: Option<Level>,
    local: Option<Threshold>,
    batch_age: Option<Duration>,
    batch_records: Option<usize>,
    suppress: Option<Suppress>,
    urgent: Option<Level>,
    keep: Option<Level>,
    ring_bytes: Option<usize>,
    queue_bytes: Option<usize>,
    spill: Option<Spill>,
}

/// Line, cause, remedy.
type Wrong = (Option<u64>, String, &'static str);

fn line(at: Location) -> Option<u64> {
    Some(at.line()).filter(|line| *line > 0)
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(
    text: &Option<Spanned<String>>,
) -> Result<Option<T>, Wrong> {
    let parse = |text: &Spanned<String>| {
        text.value
            .parse::<T>()
            .map_err(|error| (line(text.referenced), error.to_string(), "write one of these"))
    };
    text.as_ref().map(parse).transpose()
}

/// A number with a unit.
fn quantity(text: &Spanned<String>, units: &[(&str, u64)]) -> Result<u64, Wrong> {
    let value = &text.value;
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let scale = units.iter().find(|(name, _)| *name == unit.trim()).map(|(_, scale)| *scale);
    let number = number.parse::<u64>().ok().zip(scale).and_then(|(n, scale)| n.checked_mul(scale));
    number.ok_or_else(|| {
        let cause = format!("invalid quantity {value:?}");
        (line(text.referenced), cause, "write it like 20ms, 1s, 65536, 64KiB or 16MiB")
    })
}

fn within<T>(at: Location, name: &str, value: u64, limits: RangeInclusive<u64>) -> Result<T, Wrong>
where
    T: TryFrom<u64>,
{
    let (least, most) = (*limits.start(), *limits.end());
    let fits = Some(value).filter(|value| limits.contains(value));
    fits.and_then(|value| T::try_from(value).ok()).ok_or_else(|| {
        let cause = format!("{name} is {value}, from {least} to {most} is possible");
        (line(at), cause, "write a number between these")
    })
}

fn bytes(name: &str, text: &Option<Spanned<String>>) -> Result<Option<usize>, Wrong> {
    let Some(text) = text else { return Ok(None) };
    let units = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    within(text.referenced, name, quantity(text, &units)?, QUEUE_BYTES_RANGE).map(Some)
}

fn age(text: &Option<Spanned<String>>) -> Result<Option<Duration>, Wrong> {
    let Some(text) = text else { return Ok(None) };
    let micros = quantity(text, &[("us", 1), ("ms", 1_000), ("s", 1_000_000)])?;
    let most = MAX_BATCH_AGE.as_micros() as u64;
    let micros = within(text.referenced, "batch_age in microseconds", micros, 0..=most)?;
    Ok(Some(Duration::from_micros(micros)))
}

impl Settings {
    /// Reads a file's text.
    fn parse(text: &str) -> Result<Self, Wrong> {
        // A file of comments sets nothing.
        let has_text = |line: &str| !matches!(line.trim_start().chars().next(), None | Some('#'));
        if !text.lines().any(has_text) {
            return Ok(Self::default());
        }
        let document: Document = serde_saphyr::from_str(text).map_err(|error| {
            let at = error.location().map(|at| at.line());
            let cause = error.without_snippet().to_string();
            (at, cause, "docs/logging.md has what may be in it")
        })?;
        if document.loggers.len() > MAX_LEVEL_ENTRIES {
            let cause = format!("{} loggers are named", document.loggers.len());
            return Err((None, cause, "1,024 are possible; use patterns"));
        }
        let records = |records: &Spanned<u64>| {
            within(records.referenced, "batch_records", records.value, 1..=MAX_RECORDS as u64)
        };
        let suppress = |limits: &Spanned<Limits>| {
            let Limits { per_second, burst } = limits.value;
            let at_least_one = per_second.min(burst).into();
            within::<u64>(
                limits.referenced,
                "a limit of suppress",
                at_least_one,
                1..=u32::MAX.into(),
            )
            .map(|_| Suppress { per_second, burst })
        };
        Ok(Self {
            rules: document.loggers.iter().map(LoggerRow::rule).collect::<Result<_, _>>()?,
            level: parsed(&document.level)?,
            local: parsed(&document.local)?,
            batch_age: age(&document.batch_age)?,
            batch_records: document.batch_records.as_ref().map(records).transpose()?,
            suppress: document.suppress.as_ref().map(suppress).transpose()?,
            urgent: parsed(&document.urgent)?,
            keep: parsed(&document.keep)?,
            ring_bytes: bytes("ring_bytes", &document.ring_bytes)?,
            queue_bytes: bytes("queue_bytes", &document.queue_bytes)?,
            spill: document.spill.map(SpillRow::spill).transpose()?,
        })
    }

    /// A program's options, overridden by the file's.
    pub(super) fn over(&self, program: &LogOptions) -> LogOptions {
        let Self { level, local, batch_age, batch_records, suppress, urgent, keep, .. } = self;
        let mut options = program.clone();
        set(&mut options.level, level);
        set(&mut options.local, local);
        set(&mut options.batch_age, batch_age);
        set(&mut options.batch_records, batch_records);
        set(&mut options.ring_bytes, &self.ring_bytes);
        set(&mut options.queue_bytes, &self.queue_bytes);
        options.suppress = suppress.or(options.suppress);
        options.keep = keep.or(options.keep);
        options.spill = self.spill.clone().or(options.spill);
        if let Some(urgent) = urgent {
            options.lanes = options.lanes.urgent(*urgent);
        }
        options
    }
}

fn set<T: Clone>(to: &mut T, from: &Option<T>) {
    if let Some(from) = from {
        to.clone_from(from);
    }
}

impl LoggerRow {
    fn rule(&self) -> Result<Rule, Wrong> {
        let at = line(self.logger.referenced);
        let glob = self.logger.value.parse();
        let glob = glob.map_err(|error: crate::GlobError| {
            (at, error.to_string(), "write a logger's name, or a pattern like CONTROL/*")
        })?;
        let (remote, local) = (parsed(&self.level)?, parsed(&self.local)?);
        if remote.is_none() && local.is_none() {
            let cause = format!("nothing is said of {:?}", self.logger.value);
            return Err((at, cause, "give it a level, or a local one, or take the line out"));
        }
        Ok(Rule { glob, remote, local })
    }
}

impl SpillRow {
    fn spill(self) -> Result<Spill, Wrong> {
        let bytes = bytes("the spill's bytes", &Some(self.bytes))?;
        // The file is set.
        Ok(Spill { file: self.file, bytes: bytes.unwrap_or_default() as u64 })
    }
}

/// Identifies a file's state: another file of this name, or another text, has another stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp(Option<(u64, u64, i64, i64)>);

impl FileStamp {
    fn of(file: &Path) -> Self {
        let metadata = std::fs::metadata(file).ok();
        Self(metadata.map(|m| (m.ino(), m.size(), m.mtime(), m.mtime_nsec())))
    }
}

/// A file that is watched.
#[derive(Debug)]
pub(super) struct WatchedFile {
    file: PathBuf,
    stamp: FileStamp,
    looked: Instant,
    program: LogOptions,
}

impl WatchedFile {
    /// Reads the options' settings file, if any, and returns the resulting options.
    pub(super) fn begin(
        program: LogOptions,
    ) -> Result<(LogOptions, Option<(Self, Settings)>), SettingsError> {
        let Some(file) = program.settings.clone() else { return Ok((program, None)) };
        // Taken before the read: the next check sees what is written meanwhile.
        let stamp = FileStamp::of(&file);
        let settings = read(&file)?;
        let options = settings.over(&program);
        let watched = Self { file, stamp, looked: Instant::now(), program };
        Ok((options, Some((watched, settings))))
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The file's values and the resulting options, if a check is due and the file has changed.
    pub(super) fn look(&mut self) -> Option<Result<(Settings, LogOptions), SettingsError>> {
        if self.looked.elapsed() < self.program.settings_poll_interval {
            return None;
        }
        self.looked = Instant::now();
        let stamp = FileStamp::of(&self.file);
        if stamp == self.stamp {
            return None;
        }
        self.stamp = stamp;
        let settings = read(&self.file);
        Some(settings.map(|settings| {
            let options = settings.over(&self.program);
            (settings, options)
        }))
    }
}

fn read(file: &Path) -> Result<Settings, SettingsError> {
    let failed = |(line, cause, remedy): Wrong| SettingsError {
        file: file.to_owned(),
        line,
        cause,
        remedy: remedy.to_owned(),
    };
    let mut text = String::new();
    let read =
        File::open(file).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| {
        failed((None, error.to_string(), "write the settings there, as UTF-8 text"))
    })?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(failed((None, "it has more than 1 MiB".to_owned(), "use patterns")));
    }
    Settings::parse(&text).map_err(failed)
}

/// The names of changed options that take effect only after a restart.
pub(super) fn fixed(now: &LogOptions, new: &LogOptions) -> Vec<&'static str> {
    let spill = |options: &LogOptions| options.spill.clone();
    let differ = [
        ("urgent", now.lanes != new.lanes),
        ("keep", now.keep != new.keep),
        ("ring_bytes", now.ring_bytes != new.ring_bytes),
        ("queue_bytes", now.queue_bytes != new.queue_bytes),
        ("spill", spill(now) != spill(new)),
    ];
    differ.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: &str = "\
# how the mount logs
level: INFO
local: OFF
loggers:
  - {logger: \"CONTROL/DV11/*\", level: debug, local: WARNING}
  - logger: Dome
    local: OFF
batch_age: 50ms
batch_records: 500
suppress: {per_second: 100, burst: 200}
urgent: ERROR
keep: DEBUG
ring_bytes: 65536
queue_bytes: 32MiB
spill: {file: /var/lib/helio/mount.spill, bytes: 1GiB}
";

    #[test]
    fn all_that_may_be_said_is_read_and_goes_over_the_program() {
        let settings = Settings::parse(ALL).unwrap();
        assert_eq!(settings.rules.len(), 2);
        let warning = Some(Threshold::From(Level::WARNING));
        assert_eq!(
            (settings.rules[0].remote, settings.rules[0].local),
            (Some(Level::DEBUG), warning)
        );
        let program = LogOptions { process: "mount".to_owned(), ..LogOptions::default() };
        let options = settings.over(&program);
        assert_eq!((options.level, options.local), (Level::INFO, Threshold::Off));
        assert_eq!((options.batch_age, options.batch_records), (Duration::from_millis(50), 500));
        assert_eq!(options.suppress, Some(Suppress { per_second: 100, burst: 200 }));
        assert!(options.lanes.is_urgent(Level::ERROR));
        assert_eq!((options.keep, options.ring_bytes), (Some(Level::DEBUG), 65_536));
        assert_eq!((options.queue_bytes, options.process.as_str()), (32 << 20, "mount"));
        assert_eq!(options.spill.as_ref().map(|spill| spill.bytes), Some(1 << 30));
        let names = ["urgent", "keep", "ring_bytes", "queue_bytes", "spill"];
        assert_eq!(fixed(&program, &options), names);
        for nothing in ["", "# nothing\n\n  # at all\n"] {
            assert_eq!(Settings::parse(nothing), Ok(Settings::default()));
        }
        assert_eq!(fixed(&program, &Settings::default().over(&program)), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let wrong = [
            ("level: INFO\nlocal: LOUD\n", 2, "\"LOUD\" is no level"),
            ("level: OFF\n", 1, "\"OFF\" is no level"),
            ("batch_age: 20\n", 1, "invalid quantity"),
            ("\nbatch_age: 2000s\n", 2, "batch_age in microseconds is 2000000000"),
            ("batch_records: 0\n", 1, "batch_records is 0, from 1 to 65535"),
            ("ring_bytes: 1KiB\n", 1, "ring_bytes is 1024, from 4096"),
            ("queue_bytes: lots\n", 1, "invalid quantity"),
            ("queue_bytes: 99999999999999999999\n", 1, "invalid quantity"),
            ("suppress: {per_second: 0, burst: 5}\n", 1, "a limit of suppress is 0"),
            ("loggers:\n  - {logger: a, level: DEBUG}\n  - {logger: b}\n", 3, "nothing is said"),
            ("loggers:\n  - {logger: \"\", level: DEBUG}\n", 2, "an empty pattern"),
            ("levle: INFO\n", 1, "levle"),
            ("spill: {file: a, bytes: 1}\n", 1, "the spill's bytes is 1"),
        ];
        for (text, line, told) in wrong {
            let (at, cause, _) = Settings::parse(text).unwrap_err();
            assert_eq!((at, cause.contains(told)), (Some(line), true), "{text} {cause}");
        }
        let many = "  - {logger: a, level: DEBUG}\n".repeat(MAX_LEVEL_ENTRIES + 1);
        let (_, cause, _) = Settings::parse(&format!("loggers:\n{many}")).unwrap_err();
        assert_eq!(cause, "1025 loggers are named");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = read(Path::new("/nowhere/settings.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/settings.yaml: No such file"), "{error}");
        let error = SettingsError {
            file: "a.yaml".into(),
            line: Some(3),
            cause: "c".to_owned(),
            remedy: "r".to_owned(),
        };
        assert_eq!(error.to_string(), "a.yaml, line 3: c; r");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_told(cut in 0..=ALL.len(), put in ".{0,4}", at in 0..ALL.len()) {
            let text = [&ALL[..at.min(cut)], &put, &ALL[at.min(cut)..cut]].concat();
            _ = Settings::parse(&text);
        }
    }
}
