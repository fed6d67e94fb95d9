//! Logging from C and C++: `include/helio_log.h` is the manual, this is behind it.
//!
//! It knows `helio-logging` and C's types; it must not know how records travel.
//!
//! Constraints. Nothing unwinds into C, and no argument of C's is believed to be there. What a C
//! program holds is never freed, so that it cannot hold what is gone: a [`handle::Handle`] for each
//! start and a [`handle::CLogger`] for each name, both with a limit.
//!
//! Operation. `calls` has the functions of the header, `foreign` reads and writes C's memory,
//! `handle` is what C holds, `places` says how far the texts reach that a message cuts short.

mod calls;
mod foreign;
mod handle;
mod printf_precision;

pub use calls::*;
pub use foreign::{CData, COptions, CSite, CValue, Figures};
pub use handle::{CLogger, Handle};
