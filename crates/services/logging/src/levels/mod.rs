//! Levels at run time: a topic sets the levels of loggers, overriding their programs.
//!
//! Constraints. To set a level, a program needs to know no process. Every process reads the topic.
//! A setting applies to all processes, present and future, until it expires or is cleared. Other
//! samples in the topic are skipped and counted.
//!
//! Format. The key is the pattern of the loggers' names. The newest sample of each key counts
//! (`docs/formats/log.md`).

mod rules;
mod table;

use helio_core::schema::HasSchema as _;
use helio_core::{Codec, Tai};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::level::{Level, Threshold};
use crate::predicate::{Glob, GlobError};
pub(crate) use rules::{Rule, Rules};
pub(crate) use table::LevelsReader;
pub use table::{LevelList, LevelTable, LevelsError};

/// The most bytes of a pattern, which must be a valid key on every transport.
pub const MAX_PATTERN_BYTES: usize = 256;
/// The most patterns at a time: on each change every logger is matched with all of them.
pub const MAX_LEVEL_ENTRIES: usize = 1_024;
/// The most bytes of `who` and of `why`.
const MAX_REASON_BYTES: usize = 1_024;

/// The levels of the loggers of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelEntry {
    /// The loggers.
    pub pattern: Glob,
    /// The lowest level that they publish.
    pub remote: Level,
    /// The lowest level that their processes print to standard error, if set.
    pub local: Option<Threshold>,
    /// The time of expiry; none means until cleared.
    pub until: Option<Tai>,
    /// The author: `user@host`.
    pub who: String,
    /// The reason.
    pub why: String,
    /// The time of the setting.
    pub when: Tai,
}

impl LevelEntry {
    /// Whether the entry is in effect at a time.
    #[must_use]
    pub fn holds(&self, now: Tai) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Why a sample is not an entry.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LevelEntryError {
    /// The schema is another one.
    #[error("it cannot be read as a setting of levels: {0}")]
    Unreadable(String),
    /// The key is not the pattern.
    #[error("its key is not its pattern {0:?}")]
    Key(String),
    /// The pattern is invalid.
    #[error("{0}")]
    Pattern(#[from] GlobError),
    /// A value is out of its limits.
    #[error("{field} is {value}, {limit} is possible")]
    Limit {
        /// The field.
        field: &'static str,
        /// The value.
        value: i64,
        /// The allowed values.
        limit: String,
    },
}

/// A sample of the topic as an Avro record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LevelSample {
    pattern: String,
    remote: i32,
    local: i32,
    until: i64,
    who: String,
    why: String,
    when: i64,
}

helio_core::has_schema!(LevelSample, "helio.log.Levels", {
    pattern: String [description("the loggers, as in a predicate")],
    remote: i32 [description("lowest level that is published, 1 to 11; 0 where it is taken back")],
    local: i32 [description("lowest level that is printed, 1 to 11; 0 is none, -1 not said")],
    until: i64 [units("ns"), description("TAI since 1970; 0 is until it is taken back")],
    who: String [description("user@host")],
    why: String,
    when: i64 [units("ns"), description("TAI since 1970")],
});

/// The meaning of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LevelChange {
    /// Sets levels.
    Set(LevelEntry),
    /// Clears a pattern's levels.
    Cleared(Glob),
}

fn codec() -> Codec {
    Codec::new(&LevelSample::schema().expect("a test parses this constant"))
}

fn within(
    field: &'static str,
    value: i64,
    limit: std::ops::RangeInclusive<i64>,
) -> Result<(), LevelEntryError> {
    if limit.contains(&value) {
        return Ok(());
    }
    let limit = format!("{} to {}", limit.start(), limit.end());
    Err(LevelEntryError::Limit { field, value, limit })
}

impl LevelEntry {
    fn written(&self) -> LevelSample {
        LevelSample {
            pattern: self.pattern.to_string(),
            remote: self.remote.number().into(),
            local: match self.local {
                None => -1,
                Some(Threshold::Off) => 0,
                Some(Threshold::From(level)) => level.number().into(),
            },
            until: self.until.map_or(0, Tai::nanos),
            who: self.who.clone(),
            why: self.why.clone(),
            when: self.when.nanos(),
        }
    }

    /// Parses a sample of the topic: the entry, or none if it clears one.
    ///
    /// # Errors
    /// [`LevelEntryError`].
    pub fn parse(key: &[u8], payload: &[u8]) -> Result<Option<Self>, LevelEntryError> {
        LevelChange::read(&codec(), key, payload).map(|said| match said {
            LevelChange::Set(entry) => Some(entry),
            LevelChange::Cleared(_) => None,
        })
    }
}

impl LevelSample {
    fn check(&self) -> Result<(), LevelEntryError> {
        let most = |bytes: usize| 0..=bytes as i64;
        within("the pattern's length", self.pattern.len() as i64, most(MAX_PATTERN_BYTES))?;
        within("the length of who", self.who.len() as i64, most(MAX_REASON_BYTES))?;
        within("the length of why", self.why.len() as i64, most(MAX_REASON_BYTES))?;
        within("the level", self.remote.into(), 0..=11)?;
        within("the local level", self.local.into(), -1..=11)?;
        within("the end", self.until, 0..=i64::MAX)
    }

    /// The encoding that clears the entry.
    fn cleared(mut self) -> Self {
        (self.remote, self.local, self.until) = (0, -1, 0);
        self
    }

    fn bytes(&self, codec: &Codec) -> Result<Vec<u8>, LevelEntryError> {
        self.check()?;
        let mut bytes = Vec::new();
        let written = codec.serialize(self, &mut bytes);
        written.map(|()| bytes).map_err(|error| LevelEntryError::Unreadable(error.to_string()))
    }
}

impl LevelChange {
    fn read(codec: &Codec, key: &[u8], payload: &[u8]) -> Result<Self, LevelEntryError> {
        let written = codec.deserialize::<LevelSample>(payload);
        let written = written.map_err(|error| LevelEntryError::Unreadable(error.to_string()))?;
        written.check()?;
        if written.pattern.as_bytes() != key {
            return Err(LevelEntryError::Key(written.pattern));
        }
        let pattern: Glob = written.pattern.parse()?;
        let level = |number: i32| u8::try_from(number).ok().and_then(Level::new);
        let Some(remote) = level(written.remote) else { return Ok(Self::Cleared(pattern)) };
        let local = match written.local {
            -1 => None,
            number => Some(level(number).map_or(Threshold::Off, Threshold::From)),
        };
        Ok(Self::Set(LevelEntry {
            pattern,
            remote,
            local,
            until: (written.until > 0).then(|| Tai::from_nanos(written.until)),
            who: written.who,
            why: written.why,
            when: Tai::from_nanos(written.when),
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn entry(pattern: &str, remote: Level) -> LevelEntry {
        LevelEntry {
            pattern: pattern.parse().unwrap(),
            remote,
            local: None,
            until: None,
            who: "ops@dv11".to_owned(),
            why: String::new(),
            when: Tai::from_nanos(7),
        }
    }

    /// The schema's only source is above; those who have written it are read for ever.
    #[test]
    fn the_schema_stays_as_it_is() {
        let schema = LevelSample::schema().unwrap().to_string();
        assert_eq!(schema, include_str!("../../tests/golden/levels-1.avsc").trim_end());
        let bytes = entry("a/*", Level::DEBUG).written().bytes(&codec()).unwrap();
        let expected = *b"\x06a/*\x06\x01\x00\x10ops@dv11\x00\x0e";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_is_out_of_its_limits_is_told() {
        let bad = |change: fn(&mut LevelSample)| {
            let mut written = entry("a", Level::DEBUG).written();
            change(&mut written);
            let key = written.pattern.clone();
            let mut bytes = Vec::new();
            codec().serialize(&written, &mut bytes).unwrap();
            LevelEntry::parse(key.as_bytes(), &bytes).unwrap_err().to_string()
        };
        assert_eq!(bad(|w| w.remote = 12), "the level is 12, 0 to 11 is possible");
        assert!(bad(|w| w.local = -2).starts_with("the local level is -2"));
        assert!(bad(|w| w.until = -1).starts_with("the end is -1"));
        assert!(bad(|w| w.pattern = "x".repeat(257)).starts_with("the pattern's length is 257"));
        assert!(bad(|w| w.why = "x".repeat(1_025)).starts_with("the length of why is 1025"));
        assert!(bad(|w| w.pattern.clear()).starts_with("an empty pattern"));
        let bytes = entry("a", Level::DEBUG).written().bytes(&codec()).unwrap();
        assert_eq!(LevelEntry::parse(b"b", &bytes), Err(LevelEntryError::Key("a".to_owned())));
        assert!(matches!(LevelEntry::parse(b"a", b"no"), Err(LevelEntryError::Unreadable(_))));
        let cleared = entry("a", Level::DEBUG).written().cleared().bytes(&codec()).unwrap();
        assert_eq!(LevelEntry::parse(b"a", &cleared), Ok(None));
    }

    proptest! {
        #[test]
        fn entries_come_back(
            pattern in "[a-z*/]{1,20}",
            (remote, local) in (1_u8..=11, -1_i32..=11),
            (until, when) in (0..i64::MAX, any::<i64>()),
            (who, why) in (".{0,20}", ".{0,20}"),
        ) {
            let local = match local {
                -1 => None,
                0 => Some(Threshold::Off),
                level => Some(Threshold::From(Level::new(level as u8).unwrap())),
            };
            let until = (until > 0).then(|| Tai::from_nanos(until));
            let (remote, when) = (Level::new(remote).unwrap(), Tai::from_nanos(when));
            let pattern: Glob = pattern.parse().unwrap();
            let entry = LevelEntry { pattern, remote, local, until, who, why, when };
            let bytes = entry.written().bytes(&codec()).unwrap();
            let key = entry.pattern.as_str().as_bytes();
            prop_assert_eq!(LevelEntry::parse(key, &bytes), Ok(Some(entry.clone())));
            for cut in 0..bytes.len() {
                prop_assert!(LevelEntry::parse(key, &bytes[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_or_told(bytes: Vec<u8>, key: Vec<u8>) {
            _ = LevelEntry::parse(&key, &bytes);
        }
    }
}
