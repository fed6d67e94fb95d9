//! The alerts of a night in files, Parquet or Avro: resumable, and proved against the closing
//! records.
//!
//! It knows the bus, alerts, columns and filters, and no transport; it writes no topic.
//!
//! | module | contents |
//! | --- | --- |
//! | [`export`] | opening, running and resuming an export |
//! | [`options`] | what is exported, and how |
//! | `control` | the visits, from the control topic |
//! | `pass` | one reading of the log: batches, files, commits |
//! | `reading`, `alert` | partitions read up to an offset; alerts between log and files |
//! | `tally` | which alerts of a visit came before, and its digests |
//! | `matcher` | the alerts that a filter matches |
//! | `writer` | files in the making |
//! | `folder`, `manifest` | the target, and what is in which file |
//! | [`outcome`] | what an export reports |

mod alert;
mod control;
pub mod error;
pub mod export;
mod folder;
mod manifest;
mod matcher;
pub mod options;
pub mod outcome;
mod pass;
mod reading;
mod tally;
mod writer;

pub use error::ExportError;
pub use export::{Export, Job, Observer};
pub use helio_alerts::reader::Night;
pub use manifest::FILE_NAME;
pub use options::{Compression, ExportOptions, FilterQuery, Format, Selection, StampsChoice};
pub use outcome::{Ended, Finding, Outcome, Progress, Stage, VisitReport};
