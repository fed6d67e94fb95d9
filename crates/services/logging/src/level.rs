//! Levels: ALMA's ACS's, 1 to 11, and their counterparts in OpenTelemetry and syslog.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A record's severity: ACS's number, 1 (trace) to 11 (emergency), as in the module `AcsLogLevels`
/// of its `logging_idl.idl`. 7 is reserved there; it is accepted and shown.
///
/// ```
/// use helio_logging::Level;
///
/// assert_eq!("warning".parse(), Ok(Level::WARNING));
/// assert!(Level::WARNING < Level::ERROR);
/// assert_eq!(Level::EMERGENCY.severity(), 21);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

/// An invalid name or number of a level.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no level; the levels are TRACE, DELOUSE, DEBUG, INFO, NOTICE, WARNING, ERROR, \
     CRITICAL, ALERT and EMERGENCY, or a number from 1 to 11"
)]
pub struct LevelError(pub String);

const NAMES: [&str; 11] = [
    "TRACE",
    "DELOUSE",
    "DEBUG",
    "INFO",
    "NOTICE",
    "WARNING",
    "LEVEL7",
    "ERROR",
    "CRITICAL",
    "ALERT",
    "EMERGENCY",
];
/// Other accepted names: syslog's, and those of common logging libraries.
const OTHERS: [(&str, Level); 6] = [
    ("WARN", Level::WARNING),
    ("ERR", Level::ERROR),
    ("CRIT", Level::CRITICAL),
    ("EMERG", Level::EMERGENCY),
    ("PANIC", Level::EMERGENCY),
    ("FATAL", Level::EMERGENCY),
];
/// No level at all.
const OFF: &str = "OFF";
/// OpenTelemetry's SeverityNumber of each level (logs data model, appendix B, for levels that
/// syslog has, too).
const SEVERITIES: [u8; 11] = [1, 3, 5, 9, 10, 13, 14, 17, 18, 19, 21];
/// Syslog's severity of each level (RFC 5424, table 2).
const SYSLOG: [u8; 11] = [7, 7, 7, 6, 5, 4, 4, 3, 2, 1, 0];

impl Level {
    /// Steps of a program.
    pub const TRACE: Self = Self(1);
    /// Coarser steps, for debugging a fault.
    pub const DELOUSE: Self = Self(2);
    /// For developers.
    pub const DEBUG: Self = Self(3);
    /// Normal operation.
    pub const INFO: Self = Self(4);
    /// Normal, but significant.
    pub const NOTICE: Self = Self(5);
    /// A possible error.
    pub const WARNING: Self = Self(6);
    /// Something failed.
    pub const ERROR: Self = Self(8);
    /// A failure that affects other parts.
    pub const CRITICAL: Self = Self(9);
    /// Immediate action is needed.
    pub const ALERT: Self = Self(10);
    /// The system is unusable.
    pub const EMERGENCY: Self = Self(11);

    /// All levels in rising order; the reserved one is not among them.
    pub const ALL: [Self; 10] = [
        Self::TRACE,
        Self::DELOUSE,
        Self::DEBUG,
        Self::INFO,
        Self::NOTICE,
        Self::WARNING,
        Self::ERROR,
        Self::CRITICAL,
        Self::ALERT,
        Self::EMERGENCY,
    ];

    /// The level of a number from 1 to 11.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if matches!(number, 1..=11) { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The name; `LEVEL7` for the reserved level.
    #[must_use]
    pub const fn name(self) -> &'static str {
        NAMES[self.place()]
    }

    /// OpenTelemetry's SeverityNumber (logs data model, "Field: SeverityNumber").
    #[must_use]
    pub const fn severity(self) -> u8 {
        SEVERITIES[self.place()]
    }

    /// The level of an OpenTelemetry SeverityNumber. 0 and numbers above 24 are INFO, as for
    /// records without a severity.
    #[must_use]
    pub const fn from_severity(number: i32) -> Self {
        match number {
            1..=2 => Self::TRACE,
            3..=4 => Self::DELOUSE,
            5..=8 => Self::DEBUG,
            10..=12 => Self::NOTICE,
            13..=16 => Self::WARNING,
            17 => Self::ERROR,
            18 => Self::CRITICAL,
            19..=20 => Self::ALERT,
            21..=24 => Self::EMERGENCY,
            _ => Self::INFO,
        }
    }

    /// Syslog's severity, 0 (emergency) to 7 (debug).
    #[must_use]
    pub const fn syslog(self) -> u8 {
        SYSLOG[self.place()]
    }

    /// The level of a syslog severity; only the lowest three bits count, as in a PRI.
    #[must_use]
    pub const fn from_syslog(severity: u8) -> Self {
        match severity & 7 {
            0 => Self::EMERGENCY,
            1 => Self::ALERT,
            2 => Self::CRITICAL,
            3 => Self::ERROR,
            4 => Self::WARNING,
            5 => Self::NOTICE,
            6 => Self::INFO,
            _ => Self::DEBUG,
        }
    }

    const fn place(self) -> usize {
        self.0 as usize - 1
    }
}

/// INFO, as in OpenTelemetry for records without a severity.
impl Default for Level {
    fn default() -> Self {
        Self::INFO
    }
}

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let same = |name: &str| name.eq_ignore_ascii_case(text);
        if let Some(place) = NAMES.iter().position(|name| same(name)) {
            return Ok(Self(place as u8 + 1));
        }
        if let Some((_, level)) = OTHERS.iter().find(|(name, _)| same(name)) {
            return Ok(*level);
        }
        let number = text.parse().ok().and_then(Self::new);
        number.ok_or_else(|| LevelError(text.to_owned()))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A lowest level, or OFF, which admits no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Threshold {
    /// Records of this level and above.
    From(Level),
    /// None.
    #[default]
    Off,
}

/// A text that is neither a level nor `OFF`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}; or OFF")]
pub struct ThresholdError(pub LevelError);

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        if text.eq_ignore_ascii_case(OFF) {
            return Ok(Self::Off);
        }
        text.parse().map(Self::From).map_err(ThresholdError)
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(level) => level.fmt(f),
            Self::Off => f.pad(OFF),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_levels_or_off() {
        assert_eq!("warn".parse(), Ok(Threshold::From(Level::WARNING)));
        for threshold in [Threshold::Off, Threshold::From(Level::ALERT)] {
            assert_eq!(threshold.to_string().to_lowercase().parse(), Ok(threshold));
        }
        let error = "NONE".parse::<Threshold>().unwrap_err().to_string();
        assert!(error.starts_with("\"NONE\" is no level") && error.ends_with("or OFF"), "{error}");
    }

    #[test]
    fn names_and_numbers_are_read_back() {
        for number in 1..=11 {
            let level = Level::new(number).unwrap();
            assert_eq!(level.name().to_lowercase().parse(), Ok(level));
            assert_eq!(number.to_string().parse(), Ok(level));
        }
        assert_eq!("Warn".parse(), Ok(Level::WARNING));
        for wrong in ["", "0", "12", "OFF", "-1", "INFORMATION"] {
            assert_eq!(wrong.parse::<Level>(), Err(LevelError(wrong.to_owned())));
        }
        assert_eq!((Level::new(0), Level::new(12)), (None, None));
    }

    #[test]
    fn every_level_comes_back_from_opentelemetry_and_the_eight_from_syslog() {
        for level in Level::ALL {
            assert_eq!(Level::from_severity(level.severity().into()), level);
            if level >= Level::DEBUG {
                assert_eq!(Level::from_syslog(level.syslog()), level);
            }
        }
        // The severities of the data model's own examples of syslog, appendix B.
        let appendix = [(0, 21), (1, 19), (2, 18), (3, 17), (4, 13), (5, 10), (6, 9), (7, 5)];
        for (syslog, severity) in appendix {
            assert_eq!(Level::from_syslog(syslog).severity(), severity);
        }
        assert_eq!(Level::from_severity(0), Level::INFO);
        assert_eq!(Level::from_severity(-3), Level::INFO);
    }

    #[test]
    fn the_reserved_level_lies_between_warning_and_error() {
        let reserved = Level::new(7).unwrap();
        assert!(Level::WARNING < reserved && reserved < Level::ERROR);
        assert_eq!(reserved.to_string(), "LEVEL7");
        assert!(!Level::ALL.contains(&reserved));
    }
}
