//! Logging from C and C++: the implementation of `include/helio_log.h`, which is the manual.
//!
//! It knows `helio-logging` and C's types. It must not know how records are transported.
//!
//! Constraints. Nothing unwinds into C, and each argument of C may be NULL. Handles are never
//! freed, so that a C program cannot use a dangling one: a [`handle::Handle`] for each start and a
//! [`handle::CLogger`] for each name, both with a limit.
//!
//! Operation. `calls` has the functions of the header, `foreign` reads and writes C's memory,
//! `handle` has C's handles, `printf_precision` finds the lengths of texts with a precision.

mod calls;
mod foreign;
mod handle;
mod printf_precision;

pub use calls::*;
pub use foreign::{CData, COptions, CSite, CValue, Figures};
pub use handle::{CLogger, Handle};
