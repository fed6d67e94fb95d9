//! Errors as gRPC's statuses: clients match etcd's texts first, and codes second.

use helio_state::Error;
use tonic::{Code, Status};

/// The status of an error.
pub(crate) fn status(error: Error) -> Status {
    Status::new(Code::from_i32(error.code() as i32), error.text())
}

/// An answer to what is not served, with the reason and what to use instead.
pub(crate) fn not_served(what: &str) -> Status {
    Status::unimplemented(format!("{what}; see docs/state.md"))
}
