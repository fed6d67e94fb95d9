//! Publishing rates of an observatory's topics: a table for simulations and estimates.
//!
//! SAL's interface files declare no rates, so the crate contains a table, `rates.yaml`; each line
//! names the source of its figure. Lines are patterns of topic names; the first match applies.

use std::sync::LazyLock;

use helio_core::name::fits;
use helio_core::sal::{Topic, TopicKind};
use serde::Deserialize;
use thiserror::Error;

/// The built-in table.
const STANDARD: &str = include_str!("rates.yaml");

/// The most lines of a table: each topic is compared with all of them, and the standard table has
/// about twenty.
pub const MAX_RATES: usize = 1_000;
/// The highest rate of a topic, in hertz: no single samples are faster.
pub const MAX_HZ: f64 = 1e6;

/// Why a table of rates was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RatesError {
    /// The text is not a list of `topic`, `hz` and `source`.
    #[error(
        "the rates are no list of topic, hz and source: {0}; see rates.yaml of helio-component"
    )]
    Yaml(String),
    /// An impossible rate.
    #[error("the rate of {topic} is {hz}; it must be 0 to {MAX_HZ} hertz")]
    Rate {
        /// The pattern of the line.
        topic: String,
        /// Its rate.
        hz: String,
    },
    /// There are more lines than [`MAX_RATES`].
    #[error("there are more than {MAX_RATES} rates; use patterns")]
    TooMany,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The topics: a name on the bus, in which `*` matches any text.
    pub topic: String,
    /// Samples per second and instance of a component; 0 for single samples only.
    pub hz: f64,
    /// The source of the figure.
    pub source: String,
}

/// A table of rates.
///
/// ```
/// use helio_component::Rates;
/// use helio_core::sal::TopicKind;
///
/// let rates = Rates::standard();
/// assert_eq!(rates.hz("MTMount", TopicKind::Command, "trackTarget"), 20.0);
/// assert_eq!(rates.hz("HVAC", TopicKind::Telemetry, "chiller01"), 1.0);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    lines: Vec<Rate>,
    scale: f64,
}

impl Rates {
    /// The built-in table of the Rubin Observatory.
    #[must_use]
    pub fn standard() -> Self {
        static TABLE: LazyLock<Rates> =
            LazyLock::new(|| Rates::parse(STANDARD).expect("a test reads the table"));
        TABLE.clone()
    }

    /// Parses a table in YAML, in the form of the standard one.
    ///
    /// # Errors
    /// [`RatesError`] for another form, or an impossible rate.
    pub fn parse(text: &str) -> Result<Self, RatesError> {
        let lines: Vec<Rate> =
            serde_saphyr::from_str(text).map_err(|e| RatesError::Yaml(e.to_string()))?;
        if lines.len() > MAX_RATES {
            return Err(RatesError::TooMany);
        }
        let wrong = lines.iter().find(|line| !(0.0..=MAX_HZ).contains(&line.hz));
        if let Some(Rate { topic, hz, .. }) = wrong {
            return Err(RatesError::Rate { topic: topic.clone(), hz: hz.to_string() });
        }
        Ok(Self { lines, scale: 1.0 })
    }

    /// The same table with every rate multiplied.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { scale: self.scale * factor, ..self }
    }

    /// The lines, in their order.
    #[must_use]
    pub fn lines(&self) -> &[Rate] {
        &self.lines
    }

    /// Samples per second of a component's topic; 0 if no line matches.
    #[must_use]
    pub fn hz(&self, component: &str, kind: TopicKind, topic: &str) -> f64 {
        match kind {
            TopicKind::Ack => self.hz_of(&format!("{component}/{}", kind.segment())),
            _ => self.hz_of(&format!("{component}/{}/{topic}", kind.segment())),
        }
    }

    /// Samples per second of a topic; 0 if no line matches.
    #[must_use]
    pub fn of(&self, topic: &Topic) -> f64 {
        self.hz_of(topic.topic_name().as_str())
    }

    fn hz_of(&self, name: &str) -> f64 {
        let line = self.lines.iter().find(|line| fits(&line.topic, name));
        line.map_or(0.0, |line| line.hz * self.scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_stand_above_rules() {
        let rates = Rates::standard();
        for (component, kind, topic, hz) in [
            ("MTM1M3", TopicKind::Telemetry, "forceActuatorData", 50.0),
            ("MTM1M3", TopicKind::Event, "forceActuatorFollowingErrorCounter", 1.0),
            ("MTM2", TopicKind::Telemetry, "axialForce", 50.0),
            ("MTM2", TopicKind::Telemetry, "temperature", 1.0),
            ("MTVMS", TopicKind::Telemetry, "data", 50.0),
            ("MTVMS", TopicKind::Telemetry, "psd", 1.0),
            ("MTMount", TopicKind::Telemetry, "elevation", 20.0),
            ("MTHexapod", TopicKind::Telemetry, "actuators", 20.0),
            ("ATHexapod", TopicKind::Telemetry, "positionStatus", 20.0),
            ("ATMCS", TopicKind::Command, "trackTarget", 20.0),
            ("MTRotator", TopicKind::Command, "track", 20.0),
            ("MTRotator", TopicKind::Command, "trackStart", 0.0),
            ("Scheduler", TopicKind::Event, "target", 0.016667),
            ("ESS", TopicKind::Event, "heartbeat", 1.0),
            ("ESS", TopicKind::Ack, "ackcmd", 0.0),
        ] {
            assert_eq!(rates.hz(component, kind, topic), hz, "{component} {topic}");
        }
        let fast = Rates::standard().scaled(2.0).scaled(3.0);
        assert_eq!(fast.hz("MTMount", TopicKind::Telemetry, "elevation"), 120.0);
    }

    #[test]
    fn every_line_has_a_source_and_is_reached() {
        let rates = Rates::standard();
        for (at, line) in rates.lines().iter().enumerate() {
            assert!(line.source.len() > 12, "{line:?}");
            let above = &rates.lines()[..at];
            assert!(above.iter().all(|other| !fits(&other.topic, &line.topic)), "{line:?}");
        }
    }

    #[test]
    fn a_wrong_table_is_told() {
        assert_eq!(Rates::parse("[]").map(|rates| rates.lines().len()), Ok(0));
        let line = |hz: &str| format!("- topic: a\n  hz: {hz}\n  source: b\n");
        assert!(Rates::parse(&line("3")).is_ok());
        for hz in ["-1", ".nan", ".inf", "2e6"] {
            assert!(matches!(Rates::parse(&line(hz)), Err(RatesError::Rate { .. })), "{hz}");
        }
        for text in ["topic: a", "- topic: a\n  hz: 1\n", &line("fast")] {
            assert!(matches!(Rates::parse(text), Err(RatesError::Yaml(_))), "{text}");
        }
        assert_eq!(Rates::parse(&line("1").repeat(1_001)), Err(RatesError::TooMany));
    }
}
