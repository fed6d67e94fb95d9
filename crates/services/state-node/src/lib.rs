//! The cluster state store on a log, in one process: batches, snapshots, restarts, and the API for
//! programs that hold the store themselves.
//!
//! It knows the bus's exclusive log and `helio-state`; it knows no transport and no gRPC.
//!
//! - [`store`]: opening, reads and writes. `batch`: group commit. `worker`: leases, snapshots.
//! - [`watch`]: streams of watches. [`slot`]: answers that are due.
//! - [`snapshot`]: the file of keys that were trimmed from the log; `map`: mapped files.
//! - `space`: what a full disk needs. `histogram`: times of syncs.
//!
//! ```
//! use std::sync::Arc;
//! use helio_bus::Bus;
//! use helio_state::{PutRequest, Previous, RangeRequest, WriteRequest};
//! use helio_state_node::{Options, Store};
//!
//! let bus = Bus::connect("memory:docs-of-state")?;
//! let folder = std::env::temp_dir().join(format!("helio-state-docs-{}", std::process::id()));
//! let store = Store::open(&bus, &folder, &Options::new("docs"))?;
//! let put = PutRequest {
//!     key: "a".into(),
//!     value: Some("1".into()),
//!     lease: Some(0),
//!     previous: Previous::Omit,
//! };
//! store.write(WriteRequest::Put(put)).wait()?;
//! let read = store.range(&RangeRequest { key: "a".into(), ..RangeRequest::default() })?;
//! assert_eq!(read.kvs[0].value(), "1");
//! store.close()?;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod histogram;
mod map;
pub mod slot;
pub mod snapshot;
mod space;
pub mod store;
pub mod watch;
mod worker;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use histogram::{Histogram, HistogramReading};
pub use slot::{Answer, Pending};
pub use snapshot::{Snapshot, SnapshotError};
pub use store::{OpenError, Options, Restore, Status, Store, restore};
pub use watch::Watcher;

/// Locks; a panic of another holder left the data whole, as each change is one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
