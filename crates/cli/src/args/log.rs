//! The command line of `helio log` as a table.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, value_parser};
use helio_bus::Tai;
use helio_logging::{Cursor, Glob, Level, Start, Threshold, Value};

use super::archive::{ArchiveArgs, ExportArgs, SearchArgs};
use super::{EndArgs, Output, RunArgs};
use crate::units;

/// `helio log`.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Print log records, stored ones and new ones.
    Tail(TailArgs),
    /// Publish a log record, or one per line of standard input.
    Emit(EmitArgs),
    /// Raise alarms when declared sequences of records appear or do not complete.
    Watch(WatchArgs),
    /// Run twenty producers, a flood and a stalled consumer, and account for every record.
    Demo(DemoArgs),
    /// Receive log records at sockets in foreign formats and publish them.
    Serve(Box<ServeArgs>),
    /// Store log records of the bus in files, and resume after a stop.
    Archive(ArchiveArgs),
    /// Print the records of an archive in order of time.
    Search(SearchArgs),
    /// Write the records of an archive to a file: JSON lines, XML, CSV or Parquet.
    Export(ExportArgs),
    /// Send log records to a receiver of OpenTelemetry's protocol, OTLP.
    Forward(ForwardArgs),
    /// Change the log levels of running programs, for a time or until cleared.
    #[command(subcommand)]
    Level(LevelCommand),
}

/// `helio log level`.
#[derive(Debug, Subcommand)]
pub(crate) enum LevelCommand {
    /// Set the levels of the loggers of a pattern, in all programs, within a second.
    Set(LevelSetArgs),
    /// List the levels that are set: by whom, until when, and why.
    List(LevelListArgs),
    /// Clear the level of a pattern.
    Clear(LevelClearArgs),
}

/// `helio log level set`.
#[derive(Debug, Args)]
pub(crate) struct LevelSetArgs {
    /// The loggers: 'CONTROL/DV11/*' matches all below CONTROL/DV11, '**/Mount' every Mount.
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Glob,
    /// The lowest level that they publish.
    #[arg(value_name = "LEVEL")]
    pub(crate) level: Level,
    /// The lowest level that their programs print to standard error; OFF prints none (default:
    /// unchanged).
    #[arg(long, value_name = "LEVEL")]
    pub(crate) local: Option<Threshold>,
    /// The time that the level holds, such as 10m or 2h (default: until cleared).
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub(crate) time: Option<Duration>,
    #[command(flatten)]
    pub(crate) why: LevelWhyArgs,
    #[command(flatten)]
    pub(crate) lanes: LanesArgs,
}

/// The reason of a change of levels.
#[derive(Debug, Args)]
pub(crate) struct LevelWhyArgs {
    /// The reason, for the list and for the audit record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

/// `helio log level list`.
#[derive(Debug, Args)]
pub(crate) struct LevelListArgs {
    #[command(flatten)]
    pub(crate) lanes: LanesArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio log level clear`.
#[derive(Debug, Args)]
pub(crate) struct LevelClearArgs {
    /// The pattern, as `helio log level list` shows it.
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Glob,
    #[command(flatten)]
    pub(crate) why: LevelWhyArgs,
    #[command(flatten)]
    pub(crate) lanes: LanesArgs,
}

/// The topics of the records.
#[derive(Debug, Args)]
pub(crate) struct LanesArgs {
    /// The prefix of the topics' names, such as log/INFO and log/WARNING.
    #[arg(long, default_value = "log", value_name = "NAME")]
    pub(crate) prefix: String,
    /// The bytes that the bus keeps of each level below ALERT, in topics that this command creates:
    /// 256M below INFO and 1G from INFO on by default.
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) retention: Option<usize>,
}

/// Where `helio log tail` begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum From {
    /// At the next record.
    Latest,
    /// At the oldest stored record.
    Earliest,
    /// At a time.
    Time(Tai),
    /// This long ago.
    Ago(Duration),
    /// At the cursor of an earlier run.
    Cursor(Cursor),
}

impl From {
    /// The start of a reader: the given one, or the default.
    pub(crate) fn start(given: Option<&Self>, follows: bool, now: Tai) -> Start {
        match given {
            Some(Self::Latest) => Start::Latest,
            Some(Self::Earliest) => Start::Earliest,
            Some(Self::Time(time)) => Start::Time(*time),
            Some(Self::Ago(ago)) => Start::Time(before(now, *ago)),
            Some(Self::Cursor(cursor)) => Start::Cursor(cursor.clone()),
            None if follows => Start::Latest,
            None => Start::Earliest,
        }
    }
}

/// A time minus a duration.
pub(crate) fn before(now: Tai, ago: Duration) -> Tai {
    let nanos = i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX);
    Tai::from_nanos(now.nanos().saturating_sub(nanos))
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latest" => return Ok(Self::Latest),
            "earliest" => return Ok(Self::Earliest),
            _ => {}
        }
        if let Some(ago) = text.strip_prefix('-') {
            return units::duration(ago).map(Self::Ago);
        }
        if text.starts_with("log") {
            return text.parse().map(Self::Cursor).map_err(|error| format!("{error}"));
        }
        text.parse().map(Self::Time).map_err(|_| {
            format!(
                "invalid start {text:?}; write earliest, latest, -15m, 2026-11-21T03:00:00Z, or a \
                 cursor of --show-cursor"
            )
        })
    }
}

/// `helio log tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// Only records that match: 'level >= WARNING and logger = CONTROL/** and not "lost lock"',
    /// 'view Operator'. docs/logging.md has the grammar.
    #[arg(value_name = "PREDICATE")]
    pub(crate) predicate: Vec<String>,
    /// Only records of this level and above.
    #[arg(long, short, value_name = "LEVEL", default_value = "TRACE")]
    pub(crate) level: Level,
    /// Where to begin: earliest, latest, a time (2026-11-21T03:00:00Z), a duration ago (-15m), or a
    /// cursor of --show-cursor (default: latest; with --no-follow earliest).
    #[arg(long, value_name = "START", allow_hyphen_values = true)]
    pub(crate) from: Option<From>,
    /// End when all stored records have been printed.
    #[arg(long, overrides_with = "follow")]
    pub(crate) no_follow: bool,
    /// Wait for new records (the default).
    #[arg(long, short, overrides_with = "no_follow")]
    pub(crate) follow: bool,
    /// At the end, print the cursor to standard error, for --from.
    #[arg(long)]
    pub(crate) show_cursor: bool,
    /// Print an XML document of log entries, as ALMA's ACS has them.
    #[arg(long, conflicts_with = "json")]
    pub(crate) xml: bool,
    #[command(flatten)]
    pub(crate) lanes: LanesArgs,
    #[command(flatten)]
    pub(crate) end: EndArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio log watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The state machines, a YAML file; docs/logging.md has its form.
    #[arg(value_name = "FILE")]
    pub(crate) machines: PathBuf,
    /// Check the file, print its errors, and end.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print alarms and publish none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// A file for the state, from which the next run resumes.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub(crate) keep: Option<PathBuf>,
    /// Where to begin: earliest, latest, a time (2026-11-21T03:00:00Z), a duration ago (-15m), or a
    /// cursor of --show-cursor (default: latest; with --no-follow earliest).
    #[arg(long, value_name = "START", allow_hyphen_values = true)]
    pub(crate) from: Option<From>,
    /// End when all stored records have been read.
    #[arg(long)]
    pub(crate) no_follow: bool,
    /// How long records are held to order those of all levels and producers by time.
    #[arg(long, default_value = "500ms", value_name = "TIME", value_parser = units::duration)]
    pub(crate) hold: Duration,
    #[command(flatten)]
    pub(crate) lanes: LanesArgs,
    #[command(flatten)]
    pub(crate) end: EndArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A typed value by name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair(pub(crate) String, pub(crate) Value);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').unwrap_or(("", ""));
        if name.is_empty() {
            return Err(format!("invalid pair {text:?}; write encoder=3 or state=TRACKING"));
        }
        let json = serde_json::from_str(value).ok();
        let value = json.and_then(value_of).unwrap_or_else(|| Value::Text(value.to_owned()));
        Ok(Self(name.to_owned(), value))
    }
}

/// A value of JSON; `None` if a number exceeds the range.
fn value_of(json: serde_json::Value) -> Option<Value> {
    Some(match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.is_u64()) {
            (Some(value), _) => Value::Int(value),
            (None, true) => return None,
            (None, false) => Value::Double(number.as_f64()?),
        },
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Array(values) => {
            Value::Array(values.into_iter().map(value_of).collect::<Option<_>>()?)
        }
        serde_json::Value::Object(pairs) => {
            let pair = |(name, value)| Some((name, value_of(value)?));
            Value::Map(pairs.into_iter().map(pair).collect::<Option<_>>()?)
        }
    })
}

/// `helio log emit`.
#[derive(Debug, Args)]
pub(crate) struct EmitArgs {
    /// The message; `-` reads one per line of standard input.
    #[arg(required = true, value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// The severity: TRACE, DELOUSE, DEBUG, INFO, NOTICE, WARNING, ERROR, CRITICAL, ALERT or
    /// EMERGENCY, or a number from 1 to 11.
    #[arg(long, short, value_name = "LEVEL", default_value = "INFO")]
    pub(crate) level: Level,
    /// The logger, with slashes between its parts.
    #[arg(long, value_name = "NAME", default_value = "helio")]
    pub(crate) logger: String,
    /// An audience, such as Operator; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) audience: Vec<String>,
    /// Address all audiences.
    #[arg(long, conflicts_with = "audience")]
    pub(crate) everyone: bool,
    /// A named value: JSON, else text; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) data: Vec<Pair>,
    /// The antenna that the record concerns.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) antenna: String,
    /// The array of antennas that the record concerns.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) array: String,
    /// A URI with further information.
    #[arg(long, value_name = "URI", default_value = "")]
    pub(crate) uri: String,
    /// The producer's name, which is stable over restarts.
    #[arg(long, value_name = "NAME")]
    pub(crate) producer: Option<String>,
    #[command(flatten)]
    pub(crate) lanes: LanesArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio log demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long the producers log, such as 10s.
    #[arg(long, default_value = "10", value_name = "TIME", value_parser = units::duration)]
    pub(crate) seconds: Duration,
    /// Records per second of all producers together.
    #[arg(long, default_value = "40000", value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: f64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The format of standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// Syslog messages, one per line or with octet counts.
    Syslog,
    /// XML as ALMA's `loggingClient` prints it.
    Acs,
    /// One JSON object per line.
    Json,
}

/// The offset of clocks from UTC in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset(pub(crate) i32);

impl FromStr for Offset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid offset {text:?}; write +02:00 or -03:00");
        let (sign, rest) = match text.split_at_checked(1) {
            Some(("+", rest)) => (1, rest),
            Some(("-", rest)) => (-1, rest),
            _ => return Err(wrong()),
        };
        let (hours, minutes) = rest.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str, most: i32| {
            let digits = text.len() == 2 && text.bytes().all(|c| c.is_ascii_digit());
            text.parse::<i32>().ok().filter(|number| digits && *number < most).ok_or_else(wrong)
        };
        Ok(Self(sign * (number(hours, 24)? * 3_600 + number(minutes, 60)? * 60)))
    }
}

/// `helio log serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Receive syslog by UDP at this address, such as 0.0.0.0:514; port 0 lets the system choose.
    /// Options for syslog, JSON and ACS may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) syslog_udp: Vec<String>,
    /// Receive syslog by TCP, with octet counts or in lines.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) syslog_tcp: Vec<String>,
    /// Receive syslog datagrams at a Unix socket, such as /dev/log.
    #[arg(long, value_name = "PATH")]
    pub(crate) syslog_unix: Vec<PathBuf>,
    /// Receive syslog by connections to a Unix socket.
    #[arg(long, value_name = "PATH")]
    pub(crate) syslog_unix_stream: Vec<PathBuf>,
    /// Receive JSON lines by TCP.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) json_tcp: Vec<String>,
    /// Receive JSON lines by connections to a Unix socket.
    #[arg(long, value_name = "PATH")]
    pub(crate) json_unix: Vec<PathBuf>,
    /// Receive ACS's log entries as XML by TCP.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) acs_tcp: Vec<String>,
    /// Receive OpenTelemetry's protocol over gRPC at one address, such as 0.0.0.0:4317.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) otlp_grpc: Option<String>,
    /// Receive OpenTelemetry's protocol over HTTP at one address, such as 0.0.0.0:4318.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) otlp_http: Option<String>,
    /// Read standard input. Without sockets, the service ends at the end of the input.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) input: Option<InputFormat>,
    /// The offset from UTC of syslog times without one.
    #[arg(long, value_name = "OFFSET", default_value = "+00:00", allow_hyphen_values = true)]
    pub(crate) syslog_offset: Offset,
    /// Records per second of one sender; ALERT and above have a further 1,000.
    #[arg(long, value_name = "HZ", value_parser = units::rate, default_value = "50000")]
    pub(crate) rate: f64,
    /// Records that a sender may send at once after a pause (default: twice the rate).
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u32).range(1..))]
    pub(crate) burst: Option<u32>,
    /// The largest accepted record.
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, default_value = "244k")]
    pub(crate) max_record: usize,
    /// The largest number of connections of all senders together.
    #[arg(long, value_name = "COUNT", default_value = "4096")]
    pub(crate) connections: usize,
    /// The largest number of connections of one sender.
    #[arg(long, value_name = "COUNT", default_value = "256")]
    pub(crate) connections_per_sender: usize,
    /// Close a connection that is silent for this time. A syslog sender may lose its next message
    /// then.
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "24h")]
    pub(crate) idle: Duration,
    /// Close a connection that needs longer for one message.
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "60s")]
    pub(crate) unfinished: Duration,
    /// Block stream and OTLP senders for this time while the bus accepts too little. After it,
    /// records are dropped by level until the bus recovers.
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1s")]
    pub(crate) hold: Duration,
    /// A file for records that the bus does not accept and memory cannot hold.
    #[arg(long, value_name = "FILE")]
    pub(crate) spill: Option<PathBuf>,
    /// The largest size of that file.
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, default_value = "1G")]
    pub(crate) spill_bytes: usize,
    /// The producer's name, which is stable over restarts.
    #[arg(long, value_name = "NAME")]
    pub(crate) producer: Option<String>,
    #[command(flatten)]
    pub(crate) lanes: LanesArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A header of each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header(pub(crate) String, pub(crate) String);

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self(name.to_owned(), value.to_owned())),
            _ => Err(format!("invalid header {text:?}; write authorization='Bearer ...'")),
        }
    }
}

/// The receiver of `helio log forward`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TargetArgs {
    /// A receiver over gRPC, such as http://localhost:4317; https:// uses TLS.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_grpc: Option<String>,
    /// A receiver over HTTP, such as http://localhost:4318; the default path is /v1/logs.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_http: Option<String>,
}

/// `helio log forward`.
#[derive(Debug, Args)]
pub(crate) struct ForwardArgs {
    /// Only records that match, as for helio log tail.
    #[arg(value_name = "PREDICATE")]
    pub(crate) predicate: Vec<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The file of the last acknowledged records, from which the next run resumes, also after a
    /// kill. It is created if missing.
    #[arg(long, value_name = "FILE")]
    pub(crate) cursor: PathBuf,
    /// Where to begin without such a file: earliest, latest, a time, a duration ago (-15m), or a
    /// cursor (default: latest; with --no-follow earliest).
    #[arg(long, value_name = "START", allow_hyphen_values = true)]
    pub(crate) from: Option<From>,
    /// A header for each request, such as authorization='Bearer ...'; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) header: Vec<Header>,
    /// End when all stored records have been sent.
    #[arg(long)]
    pub(crate) no_follow: bool,
    #[command(flatten)]
    pub(crate) lanes: LanesArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_parsed() {
        assert_eq!("earliest".parse(), Ok(From::Earliest));
        assert_eq!("-15m".parse(), Ok(From::Ago(Duration::from_secs(900))));
        let time = "2026-11-21T03:00:00Z";
        assert_eq!(time.parse(), Ok(From::Time(time.parse().unwrap())));
        let cursor = Cursor::default();
        assert_eq!(cursor.to_string().parse(), Ok(From::Cursor(cursor)));
        for wrong in ["", "-", "-soon", "noon", "log1.", "log2.AAAA"] {
            assert!(wrong.parse::<From>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn offsets_have_a_sign_hours_and_minutes() {
        assert_eq!("+02:00".parse(), Ok(Offset(7_200)));
        assert_eq!("-03:30".parse(), Ok(Offset(-12_600)));
        for wrong in ["", "2", "02:00", "+2:00", "+24:00", "+02:60", "+0200", "+-2:00", "\u{b0}"] {
            assert!(wrong.parse::<Offset>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn values_are_json_or_text() {
        let value = |text: &str| text.parse::<Pair>().unwrap().1;
        assert_eq!(value("a=3"), Value::Int(3));
        assert_eq!(value("a=0.5"), Value::Double(0.5));
        assert_eq!(value("a=on = off"), Value::Text("on = off".to_owned()));
        assert_eq!(value("a=18446744073709551615"), value("a=\"18446744073709551615\""));
        let pairs = vec![("b".to_owned(), Value::Array(vec![true.into(), Value::Null]))];
        assert_eq!(value("a={\"b\": [true, null]}"), Value::Map(pairs));
        assert!("a".parse::<Pair>().is_err() && "=3".parse::<Pair>().is_err());
    }
}
