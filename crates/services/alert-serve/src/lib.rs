//! A stream of alerts over HTTP: metrics for Prometheus, and stamps by URL.
//!
//! It knows the bus and how alerts are read. It must not know a transport, nor where it listens: a
//! program or a gateway mounts its routes.
//!
//! - [`observation`]: the state of a stream at a time. [`observer`]: threads that track it.
//! - `exposition`: that as text for Prometheus; `histogram`.
//! - [`stamps`]: stamps by the identifiers of their alerts; `range`: HTTP's ranges.
//! - [`routes`]: all of it as a router.

mod exposition;
mod histogram;
pub mod observation;
pub mod observer;
mod range;
pub mod routes;
pub mod stamps;

pub use exposition::{Counter, counters, exposition};
pub use observation::Observation;
pub use observer::Observer;
pub use routes::{CounterSource, Service, counters_router, router};
pub use stamps::StampStore;
