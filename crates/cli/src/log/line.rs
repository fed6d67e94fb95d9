//! A record as a line of text.

pub(crate) use helio_logging::{Colours, line};

/// Colours, if standard output shows them.
pub(crate) fn colours() -> Colours {
    Colours::of(&std::io::stdout())
}
