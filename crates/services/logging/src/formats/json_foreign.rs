//! JSON lines of other programs: whatever is an object becomes a record.
//!
//! Constraints. A line of ours yields the same record as [`json::read`]. A member that cannot be
//! what its name says becomes data; it never costs the record.
//!
//! Format: the names and times of zap, pino, Logstash and Python's JSON formatters, see
//! `docs/logging.md`, "JSON lines".

use helio_core::Tai;
use serde_json::Value as Json;

use super::json::{self, JsonError};
use crate::level::Level;
use crate::record::Record;

/// The other names of members that a line lacks, the preferred ones first.
const ALIASES: [(&str, &[&str]); 4] = [
    ("time", &["@timestamp", "timestamp", "ts"]),
    ("level", &["severity", "levelname", "log.level"]),
    ("message", &["msg"]),
    ("logger", &["logger_name"]),
];

/// Reads a record from any program's line, with or without its line end. One without a valid time
/// has the time of arrival; one without a known level is of INFO.
///
/// # Errors
/// [`JsonError::TooLarge`] and [`JsonError::Malformed`].
pub fn read(line: &[u8], arrival: Tai) -> Result<Record, JsonError> {
    let object = json::object(line)?;
    let own = |name: &str| {
        let alias = ALIASES.iter().find(|(own, others)| {
            let first = others.iter().find(|other| object.contains_key(**other));
            !object.contains_key(*own) && first.is_some_and(|first| *first == name)
        });
        alias.map_or(name, |(own, _)| own).to_owned()
    };
    let names: Vec<_> = object.keys().map(|name| own(name)).collect();
    let mut record = Record { time: arrival, level: Level::INFO, ..Record::default() };
    let mut filled = false;
    for (own, (name, value)) in names.into_iter().zip(object) {
        let read = match own.as_str() {
            "filled" if value.is_boolean() => {
                filled = value == Json::Bool(true);
                true
            }
            "time" => set(&mut record.time, time(&value)),
            "level" => set(&mut record.level, level(&value)),
            _ => json::read_member(&mut record, own, value.clone()).is_ok(),
        };
        if !read {
            record.data.push((name, json::value_of(value)));
        }
    }
    if filled {
        record.text = None;
    }
    Ok(record)
}

fn set<T>(member: &mut T, value: Option<T>) -> bool {
    let is_there = value.is_some();
    value.into_iter().for_each(|value| *member = value);
    is_there
}

/// A text, or a number since 1970 in the unit that makes it a time between 2001 and 5138: seconds,
/// milliseconds, microseconds or nanoseconds.
fn time(value: &Json) -> Option<Tai> {
    let Json::Number(number) = value else { return json::time("", value).ok() };
    const UNITS_NS: [(f64, i64); 4] =
        [(1e11, 1_000_000_000), (1e14, 1_000_000), (1e17, 1_000), (f64::INFINITY, 1)];
    let given = number.as_f64().filter(|given| *given >= 0.0)?;
    let (_, unit) = UNITS_NS.iter().find(|(below, _)| given < *below)?;
    let nanos = match number.as_i64() {
        Some(whole) => whole.checked_mul(*unit)?,
        // A double has microseconds of the present time.
        None => ((given * (*unit as f64) / 1e3).round() as i64).checked_mul(1_000)?,
    };
    Some(Tai::from_unix_nanos(nanos))
}

/// A level by its name or number, or by a name that other programs use.
fn level(value: &Json) -> Option<Level> {
    let name = value.as_str().map(str::trim);
    json::level("", value).ok().or_else(|| match name?.to_ascii_lowercase().as_str() {
        "verbose" | "finest" | "finer" => Some(Level::TRACE),
        "fine" => Some(Level::DEBUG),
        "information" | "informational" | "log" => Some(Level::INFO),
        "severe" => Some(Level::ERROR),
        "dpanic" => Some(Level::CRITICAL),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::tests::{any_records, same};
    use proptest::prelude::*;

    fn read(line: &str) -> Record {
        super::read(line.as_bytes(), Tai::from_nanos(7)).unwrap()
    }

    proptest! {
        #[test]
        fn our_own_lines_are_read_as_they_are(record in any_records()) {
            let mut line = Vec::new();
            json::write(&record, &mut line);
            let read = super::read(&line, Tai::from_nanos(7)).unwrap();
            prop_assert!(same(&read, &json::read(&line).unwrap()), "{:?}", read);
        }

        #[test]
        fn whatever_is_an_object_is_a_record(
            name in "time|level|msg|line|stack|trace_id|data|args|sequence|x",
            value in "-?(0|[1-9][0-9]{0,29})|\"[a-z]{0,5}\"|\\[1\\]|null|true|\\{\\}|1e300",
        ) {
            let line = format!("{{\"{name}\":{value}}}");
            prop_assert!(super::read(line.as_bytes(), Tai::from_nanos(7)).is_ok(), "{}", line);
        }
    }

    #[test]
    fn lines_of_others_lose_nothing() {
        let record = read(r#"{"message":"x"}"#);
        assert_eq!(
            (record.message(), record.time, record.level),
            ("x".into(), Tai::from_nanos(7), Level::INFO)
        );
        let zap = read(r#"{"level":"warn","ts":1790000000.25,"logger":"dome","msg":"open"}"#);
        assert_eq!(zap.time, Tai::from_unix_nanos(1_790_000_000_250_000_000));
        assert_eq!((zap.level, zap.message().as_ref()), (Level::WARNING, "open"));
        let pino = read(r#"{"level":30,"time":1790000000250,"msg":"open","pid":7}"#);
        assert_eq!(pino.time, zap.time);
        assert_eq!(pino.level, Level::INFO);
        assert_eq!(
            pino.data,
            [("level".to_owned(), 30_i64.into()), ("pid".to_owned(), 7_i64.into())]
        );
        let logstash = read(
            r#"{"@timestamp":"2026-11-21T03:00:00.5Z","severity":"FATAL","logger_name":"a.b"}"#,
        );
        assert_eq!(logstash.time, "2026-11-21T03:00:00.5Z".parse().unwrap());
        assert_eq!((logstash.level, logstash.logger.as_str()), (Level::EMERGENCY, "a.b"));
    }

    #[test]
    fn what_a_name_does_not_promise_is_data() {
        let line = r#"{"time":"noon","level":"odd","msg":"second","message":"first","line":-1,
            "trace_id":"0g","severity":"ERROR","stack":5}"#;
        let record = read(line);
        assert_eq!((record.time, record.level), (Tai::from_nanos(7), Level::INFO));
        assert_eq!(record.message(), "first");
        let mut names: Vec<_> = record.data.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["level", "line", "msg", "severity", "stack", "time", "trace_id"]);
    }

    #[test]
    fn numbers_are_times_in_the_unit_that_fits() {
        let expected = Tai::from_unix_nanos(1_790_000_000_123_000_000);
        for number in ["1790000000.123", "1790000000123", "1790000000123000", "1790000000123000000"]
        {
            assert_eq!(read(&format!("{{\"time\":{number}}}")).time, expected, "{number}");
        }
        assert_eq!(read(r#"{"time":-1}"#).data.len(), 1);
        assert_eq!(read(r#"{"time":1e300}"#).data.len(), 1);
    }
}
