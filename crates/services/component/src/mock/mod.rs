//! Simulated components: plausible values for any topic, at the rates of the table.

mod values;

pub use values::{MockValues, ValuesError};
