//! Filters of alerts in SQL, checked and run over Arrow record batches, and the cap of results a
//! user and visit; it knows no bus, no file and no clock.
//!
//! | module | content |
//! | --- | --- |
//! | `sql` | from text to the typed tree, by allow-list |
//! | `tree`, `types` | expressions of all filters, each once |
//! | `kernel`, `points` | operations over the rows of a batch, and over points of history |
//! | `env`, `plan` | evaluation of all filters on a batch |
//! | `sky`, `watch_list`, `catalog` | what filters may name |
//! | `cap` | at most 20 alerts a user and visit, as state machines over a log |
//!
//! ```
//! use std::sync::Arc;
//! use arrow_array::{Float32Array, Int64Array, RecordBatch};
//! use helio_filter::{Catalog, Filter, Layout, Plan};
//!
//! let batch = RecordBatch::try_from_iter([
//!     ("diaSourceId", Arc::new(Int64Array::from(vec![1, 2, 3])) as arrow_array::ArrayRef),
//!     ("diaSource.snr", Arc::new(Float32Array::from(vec![4.0, 12.5, f32::NAN]))),
//! ])?;
//! let catalog = Arc::new(Catalog::new(&batch.schema(), Layout::rubin()));
//! let text = "SELECT diaSourceId FROM alerts WHERE diaSource.snr BETWEEN 10 AND 100";
//! let filter = Filter::check(text, &catalog)?;
//! let plan = Plan::new(catalog, [("bright", &filter)])?;
//! let matches = plan.run(batch, &mut || std::time::Duration::ZERO)?;
//! assert_eq!(matches.outcomes()[0].rows, [1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cap;
mod catalog;
mod env;
mod error;
mod filter;
mod kernel;
pub mod limits;
mod plan;
mod points;
mod rank;
mod sky;
mod sql;
mod statistics;
mod tree;
mod types;
mod watch_list;

pub use catalog::{Catalog, Layout};
pub use error::{CheckError, PlanError, Position, Reason, RunError};
pub use filter::Filter;
pub use plan::{Clock, Flat, Matches, Outcome, Plan};
pub use rank::{Key, Rank};
pub use sky::{MOC_CELLS, MOC_ORDER, Region, RegionError, angular_distance_arcsec, healpix_cell};
pub use sql::{FUNCTIONS, Function};
pub use statistics::Statistics;
pub use types::Type;
pub use watch_list::{LiveWatchList, WatchList, WatchListError};
