//! Simulated components: plausible values for any topic, at the rates of the table.

mod pointing;
mod run;
mod schedule;
mod values;

pub use run::{Mock, MockCounts, MockError, MockOptions, SkippedTopic, is_mocked};
pub use schedule::{Due, MockSchedule};
pub use values::{MockValues, ValuesError};
