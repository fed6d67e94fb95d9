//! Components of an observatory: commands with acknowledgements, events, telemetry, states.
//!
//! It knows SAL's interfaces and the bus; it must not know any transport. What a command goes
//! through is decided in [`protocol`], without I/O and without a clock, for every language alike.

mod mock;
pub mod protocol;
mod rates;

pub use mock::{Due, MockSchedule, MockValues, ValuesError};
pub use rates::{MAX_HZ, MAX_RATES, Rate, Rates, RatesError};
