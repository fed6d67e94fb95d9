//! Runs users' filters in Python in isolated processes; it knows batches as bytes, and neither a
//! bus nor Arrow.
//!
//! A [`Filter`] is one user's text and its process, the *worker*. A [`Batch`] is written once into
//! sealed memory that any number of workers map; a worker answers with a mask of the rows. Messages
//! and memory are described in `docs/formats/filter-batch.md`.
//!
//! Constraints: no user's text reaches a worker before seccomp and Landlock are proven to hold. A
//! worker ends at its limits of memory, processor and time. Each end is reported with its cause,
//! and costs other workers nothing. A worker outlives no supervisor.
//!
//! | module | contents |
//! | --- | --- |
//! | `filter` | [`Filter`]: starts, serves, restarts at a bounded rate |
//! | `worker` | a process: messages, limits, its end |
//! | `process` | starting a process, and its figures in `/proc` |
//! | `guards` | the allow-list of system calls, and the proof of the guards |
//! | `batch` | [`Column`]s to a [`Batch`] in sealed memory |
//! | `limits`, `error` | [`Limits`], [`Usage`], and what ends a filter |

mod batch;
mod error;
mod filter;
mod guards;
mod limits;
mod process;
mod worker;

pub use batch::{
    Batch, BatchError, Column, MAX_BATCH_BYTES, MAX_COLUMNS, MAX_ROWS, Number, Values,
};
pub use error::{Ended, FilterError, StartError};
pub use filter::{Filter, MAX_TEXT_BYTES, Mask};
pub use limits::{Limits, Usage};
pub use worker::{Launch, WORKER};
