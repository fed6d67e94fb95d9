//! Errors: each names the cause and the remedy.

use helio_alerts::reader::ReaderError;
use helio_bus::{PublishError, ReadError, TopicError, TransportError};
use helio_core::projection::ShapeError;
use helio_filter::cap::MixedModes;
use helio_filter::{CheckError, PlanError, RegionError, WatchListError};
use thiserror::Error;

use crate::names::{FilterId, NameError};

/// Why the service cannot continue. It is restarted from what the topics have.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A topic cannot be opened.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A topic cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The bus did not accept a record.
    #[error("the bus did not accept a record: {0}")]
    Publish(#[from] PublishError),
    /// The engine's error.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The topic's schemas do not fit together.
    #[error("the schemas of the alerts have no common columns: {0}")]
    Schemas(#[from] ShapeError),
    /// Stamps are stored, but cannot be read now.
    #[error("the stamps of results cannot be read at present: {0}")]
    Stamps(#[source] ReaderError),
    /// A batch cannot be filtered: a fault of this program.
    #[error("a batch cannot be filtered: {0}")]
    Batch(String),
}

/// Why a filter's text is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckFailure {
    /// The query is not in the language.
    #[error(transparent)]
    Sql(#[from] CheckError),
    /// The filter cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The text in Python names no columns.
    #[error(
        "a filter in Python begins with the columns that it reads, such as: # columns: \
         diaSource.snr, prvDiaSources.psfFlux"
    )]
    NoColumns,
    /// A column does not exist, or filters in Python cannot read its type.
    #[error("{column}: {reason}")]
    Column {
        /// The column.
        column: String,
        /// The cause.
        reason: String,
    },
    /// The text in Python failed.
    #[error(transparent)]
    Start(#[from] helio_sandbox::StartError),
}

/// Why a change of filters is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// A name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The text is refused.
    #[error(transparent)]
    Check(#[from] CheckFailure),
    /// The user has no such filter, or the filter no such version.
    #[error("there is no filter {0}; `versions` lists them")]
    Unknown(FilterId),
    /// The user has no such active filter.
    #[error("{user} has no active filter {name}")]
    NotActive {
        /// The user.
        user: String,
        /// The filter's name.
        name: String,
    },
    /// The user's active filters would rank in different ways.
    #[error(transparent)]
    Mixed(#[from] MixedModes),
    /// The filter was not tried.
    #[error("{0} had no dry run; run one, or use force")]
    NoReport(FilterId),
    /// The filter exceeded limits in its dry run.
    #[error("{id}: {}; use force, or mend it", .excesses.join("; "))]
    Excess {
        /// The filter.
        id: FilterId,
        /// The limits that it exceeded.
        excesses: Vec<String>,
    },
    /// A limit of users, filters or lists.
    #[error("{what}: {limit} at most")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// A watch list is invalid.
    #[error(transparent)]
    WatchList(#[from] WatchListError),
    /// A region is invalid.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A list is of the other kind.
    #[error("{0} is a list of the other kind; use another name")]
    OtherKind(String),
    /// A filter in use names the list.
    #[error("no list {0}")]
    NoList(String),
    /// Another process changes filters.
    #[error("another process changes filters at present ({0}); try again")]
    Busy(String),
    /// The topics cannot be read or written.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

macro_rules! through_service {
    ($($error:ty)*) => {$(
        impl From<$error> for ChangeError {
            fn from(error: $error) -> Self {
                Self::Service(error.into())
            }
        }
    )*};
}

through_service! { TopicError ReadError PublishError TransportError ShapeError }
