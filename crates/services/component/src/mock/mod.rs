//! Simulated components: plausible values for any topic, at the rates of the table.

mod schedule;
mod values;

pub use schedule::{Due, MockSchedule};
pub use values::{MockValues, ValuesError};
