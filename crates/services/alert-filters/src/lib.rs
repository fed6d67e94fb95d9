//! The filter service: users' filters of alerts, run by any number of processes, with at most 20
//! results a user and visit; it knows the bus, and no transport.
//!
//! | module | content |
//! | --- | --- |
//! | [`names`] | topics, users, versions of filters |
//! | [`records`] | what the topics have, as JSON |
//! | [`store`] | versions, activations, watch lists and regions: [`FilterStore`] |
//! | [`dry_run`] | a filter over a stored night |
//! | `check`, `stream`, `engine`, `python` | texts, packets, and a set of filters on a batch |
//! | [`worker`] | alerts to claims and partials: [`FilterWorker`] |
//! | [`publisher`] | decisions to results: [`ResultPublisher`] |
//! | [`results`], [`targets`] | results' encodings and topics |
//! | `fetch`, `linked` | packets of the log, and their stamps |
//! | `decisions`, `result_topic` | the log of decisions, and topics of results |
//! | [`service`] | both in threads, restarted after failures |
//! | [`statistics`], [`totals`], [`counters`] | what filters and processes did |

pub mod check;
pub mod counters;
mod decisions;
pub mod dry_run;
mod engine;
pub mod error;
mod fetch;
mod linked;
mod lists;
pub mod names;
pub mod options;
pub mod publisher;
pub mod python;
pub mod records;
mod result_topic;
pub mod results;
pub mod service;
pub mod statistics;
pub mod store;
mod stream;
pub mod targets;
pub mod totals;
pub mod worker;

pub use check::Checked;
pub use counters::Counters;
pub use dry_run::Span;
pub use error::{ChangeError, CheckFailure, ServiceError};
pub use lists::{Contents, Head, ListKind, MAX_LISTS};
pub use names::{FilterId, Topics};
pub use options::Options;
pub use publisher::{ResultPublisher, summaries};
pub use python::PythonOptions;
pub use records::{Content, Delivery, Format, Language, Report, Version};
pub use results::Reference;
pub use service::Service;
pub use statistics::VisitStatistics;
pub use store::{FilterStore, Force};
pub use totals::FilterTotals;
pub use worker::{FilterWorker, Progress};
