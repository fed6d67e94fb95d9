//! Single fields of a quality of service, as text, for targets that cannot carry over the source's.

use std::str::FromStr;
use std::time::Duration;

use helio_core::Qos;
use helio_core::qos::{History, Liveliness};
use serde::de::DeserializeOwned;
use thiserror::Error;

/// A field and its value, such as `durability=transient_local`, `history=keep_last(1)`,
/// `retention.age=30d` or `deadline=none`. The fields are those of [`Qos`] without the number of
/// partitions, which a bridge keeps. Times are whole numbers with `ms`, `s`, `m`, `h` or `d`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    text: String,
}

/// The text is not a valid [`Override`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} cannot be used ({reason}); write it like durability=transient_local")]
pub struct OverrideError {
    text: String,
    reason: String,
}

impl FromStr for Override {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Self, OverrideError> {
        set(&mut Qos::telemetry(), text)
            .map_err(|reason| OverrideError { text: text.to_owned(), reason })?;
        Ok(Self { text: text.to_owned() })
    }
}

impl std::fmt::Display for Override {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Override {
    /// Sets the field.
    pub fn apply(&self, qos: &mut Qos) {
        let set = set(qos, &self.text);
        debug_assert!(set.is_ok(), "from_str has checked it");
    }
}

fn set(qos: &mut Qos, text: &str) -> Result<(), String> {
    let (field, value) = text.split_once('=').ok_or("no '='")?;
    match field {
        "reliability" => qos.reliability = word(value)?,
        "durability" => qos.durability = word(value)?,
        "ownership" => qos.ownership = word(value)?,
        "overload" => qos.overload = word(value)?,
        "guarantee" => qos.guarantee = word(value)?,
        "history" => {
            qos.history = match within(value, "keep_last") {
                None => word(value)?,
                Some(n) => match n.parse() {
                    Ok(n @ 1..) => History::KeepLast(n),
                    _ => return Err("keep_last takes a number from 1 to 255".to_owned()),
                },
            }
        }
        "liveliness" => {
            qos.liveliness = match within(value, "lease") {
                None => word(value)?,
                Some(lease) => Liveliness::Lease(time(lease)?),
            }
        }
        "retention.bytes" => {
            let number = |v: &str| v.parse().map_err(|_| "a number of bytes, or none".to_owned());
            qos.retention.bytes = optional(value, number)?;
            qos.retention.default = false;
        }
        "retention.age" => {
            qos.retention.age = optional(value, time)?;
            qos.retention.default = false;
        }
        "retention.last_value" => qos.retention.last_value = word_of(value)?,
        "deadline" => qos.deadline = optional(value, time)?,
        "lifespan" => qos.lifespan = optional(value, time)?,
        "partitions" => return Err("a bridge keeps the number of partitions".to_owned()),
        _ => return Err("there is no such field".to_owned()),
    }
    Ok(())
}

/// A value that is a string in JSON.
fn word<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    serde_json::from_value(value.into()).map_err(|error| error.to_string())
}

fn word_of<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    serde_json::from_str(value).map_err(|error| error.to_string())
}

/// The text between the brackets of `name(…)`.
fn within<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')
}

fn optional<T>(
    value: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if value == "none" { Ok(None) } else { parse(value).map(Some) }
}

fn time(value: &str) -> Result<Duration, String> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("a time such as 500ms, 10s or 30d".to_owned()),
    };
    let whole = number.parse::<u64>().ok().and_then(|number| number.checked_mul(ms));
    let whole = whole.filter(|ms| *ms > 0).ok_or("a time longer than zero")?;
    Ok(Duration::from_millis(whole))
}

#[cfg(test)]
mod tests {
    use helio_core::qos::{Durability, Guarantee, Overload};

    use super::*;

    #[test]
    fn every_field_but_the_partitions_can_be_chosen() {
        let mut qos = Qos::state();
        let texts = [
            "reliability=best_effort",
            "durability=transient_local",
            "history=keep_last(3)",
            "ownership=shared",
            "overload=drop_oldest",
            "retention.bytes=1000",
            "retention.age=30d",
            "retention.last_value=false",
            "guarantee=accepted",
            "liveliness=lease(1500ms)",
            "deadline=2s",
            "lifespan=none",
        ];
        for text in texts {
            text.parse::<Override>().unwrap().apply(&mut qos);
        }
        assert_eq!(qos.durability, Durability::TransientLocal);
        assert_eq!(qos.history, History::KeepLast(3));
        assert_eq!(qos.overload, Overload::DropOldest);
        assert_eq!(qos.guarantee, Guarantee::Accepted);
        assert_eq!(qos.liveliness, Liveliness::Lease(Duration::from_millis(1500)));
        assert_eq!(qos.retention.age, Some(Duration::from_secs(30 * 86_400)));
        assert_eq!((qos.retention.bytes, qos.retention.last_value), (Some(1000), false));
        assert_eq!((qos.deadline, qos.lifespan), (Some(Duration::from_secs(2)), None));
    }

    #[test]
    fn what_is_no_field_or_value_is_refused_by_name() {
        let cases = [
            ("durability", "no '='"),
            ("durability=eternal", "eternal"),
            ("partitions=3", "partitions"),
            ("history=keep_last(0)", "1 to 255"),
            ("deadline=soon", "a time"),
            ("lifespan=0s", "longer than zero"),
            ("colour=blue", "no such field"),
        ];
        for (text, named) in cases {
            let error = text.parse::<Override>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
