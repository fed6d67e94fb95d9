//! A record as a line for people.

pub(crate) use helio_logging::{Colours, line};

/// Colours where standard output shows them.
pub(crate) fn colours() -> Colours {
    Colours::of(&std::io::stdout())
}
