//! The records of the service's topics, as JSON.

use std::collections::BTreeMap;

use helio_filter::cap::Top;
use serde::{Deserialize, Serialize};

use crate::statistics::VisitStatistics;

/// The language of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// A query, see `docs/filters.md`.
    Sql,
    /// A function over a batch, see `docs/filters-python.md`.
    Python,
}

/// A version of a filter; it never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The user.
    pub user: String,
    /// The filter's name.
    pub name: String,
    /// The number, from 1.
    pub version: u32,
    /// The language.
    pub language: Language,
    /// The text.
    pub text: String,
    /// XXH3-128 of the text, 32 hexadecimal digits.
    pub hash: String,
    /// When it was added, TAI nanoseconds since 1970.
    pub added_ns: i64,
}

/// The encoding of a user's results.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Avro with its schema, framed as the bus frames it: by Confluent's five bytes on Kafka.
    #[default]
    Confluent,
    /// Avro without frame; the key is the schema's JSON.
    Fink,
    /// JSON.
    Json,
}

/// What a result contains.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// The columns of SELECT; of `SELECT *` and of filters in Python the packet without stamps.
    #[default]
    Selected,
    /// As selected, but whole packets have their stamps.
    WithStamps,
    /// The alert's id and where it is: nothing is read from the log.
    Reference,
}

/// How a user gets results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delivery {
    /// The encoding.
    pub format: Format,
    /// The content.
    pub content: Content,
}

/// A user's active filters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Active {
    /// The active version of each filter.
    pub filters: BTreeMap<String, u32>,
    /// How results are sent.
    pub delivery: Delivery,
}

/// Texts by user and label of a filter.
pub type Causes = BTreeMap<String, BTreeMap<String, String>>;

/// The characters of a cause in [`Causes`]; the rest is cut.
const MAX_CAUSE_CHARS: usize = 500;

/// Sets the cause of a filter, cut to its limit.
pub(crate) fn set_cause(causes: &mut Causes, user: &str, label: &str, cause: &str) {
    let of_user = causes.entry(user.to_owned()).or_default();
    of_user.insert(label.to_owned(), cause.chars().take(MAX_CAUSE_CHARS).collect());
}

/// The active filters of all users, of one visit.
pub type ActiveSet = BTreeMap<String, BTreeMap<String, u32>>;

/// A dry run of a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The alerts.
    pub alerts: u64,
    /// The alerts that matched.
    pub matches: u64,
    /// The alerts in which an operation failed.
    pub errors: u64,
    /// Packets that could not be read.
    pub rejected: u64,
    /// Alerts of the span that retention or damage removed while it was read.
    #[serde(default)]
    pub lost: u64,
    /// Before this time, TAI nanoseconds since 1970, retention has removed alerts of the span;
    /// `None` if it has all.
    #[serde(default)]
    pub removed_before_ns: Option<i64>,
    /// The visits.
    pub visits: u64,
    /// The most matches of a visit.
    pub most_matches: u64,
    /// Processor time of the filter alone, nanoseconds.
    pub cpu_ns: u64,
    /// Bytes of the packets.
    pub bytes: u64,
    /// Bytes of the columns that the filter reads.
    pub column_bytes: u64,
    /// The filter's cost class.
    pub cost: Cost,
    /// The last failure of a filter in Python.
    pub failure: Option<String>,
}

/// What a filter reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Flat columns.
    Flat,
    /// Light curves.
    History,
    /// Python.
    Python,
}

/// A record of the decisions: an object with one member, which is named by the kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The filters of a visit; the first of a visit counts.
    Begin {
        /// The visit.
        visit: i64,
        /// The active filters.
        active: ActiveSet,
    },
    /// Alerts claimed for users whose filters have no ORDER BY.
    Claims {
        /// The visit.
        visit: i64,
        /// The alerts' partition.
        partition: u32,
        /// The claims, in the order of the alerts.
        claims: Vec<Claimed>,
        /// Where the claimed alerts are.
        places: Vec<Place>,
    },
    /// A part of the best alerts of a partition. The first complete one of a visit and partition
    /// counts.
    Partial {
        /// The visit.
        visit: i64,
        /// The partition.
        partition: u32,
        /// The part, from 0.
        part: u32,
        /// The number of parts.
        parts: u32,
        /// The users' best alerts.
        users: BTreeMap<String, Top>,
        /// Where these alerts are.
        places: Vec<Place>,
        /// What each filter did, by user and label.
        statistics: BTreeMap<String, BTreeMap<String, VisitStatistics>>,
        /// Matches of each user that came after the visit's end, and before this record.
        late: BTreeMap<String, u64>,
        /// Why filters failed, the last cause of each.
        #[serde(default)]
        causes: Causes,
    },
}

/// An alert claimed for a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The user.
    pub user: String,
    /// The alert.
    pub alert: i64,
    /// The labels of the filters that it matches.
    pub filters: Vec<String>,
}

/// Where an alert is in its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The alert.
    pub alert: i64,
    /// The offset.
    pub offset: u64,
    /// When it was published, TAI nanoseconds since 1970.
    pub published_ns: i64,
}

/// A decided visit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The visit.
    pub visit: i64,
    /// When its last partial was read, TAI nanoseconds since 1970.
    pub decided_ns: i64,
    /// What each filter did, by user and label.
    pub filters: BTreeMap<String, BTreeMap<String, VisitStatistics>>,
    /// The results of each user.
    pub results: BTreeMap<String, u64>,
    /// The matches of each user that came after the visit's end, so far as they were known.
    pub late: BTreeMap<String, u64>,
    /// Why filters failed, or why their results were refused, the last cause of each.
    #[serde(default)]
    pub causes: Causes,
}

/// The publisher's checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Where to resume in the decisions.
    pub decisions: u64,
    /// The log's end at the time: finished visits have no known record from there on.
    #[serde(default)]
    pub end: u64,
    /// Visits that are finished.
    pub finished: Vec<i64>,
    /// Results of unfinished visits lie at or behind these offsets of the users' topics.
    pub targets: BTreeMap<String, u64>,
}

impl Decision {
    /// The visit.
    #[must_use]
    pub fn visit(&self) -> i64 {
        match self {
            Self::Begin { visit, .. }
            | Self::Claims { visit, .. }
            | Self::Partial { visit, .. } => *visit,
        }
    }

    /// Whether it is the last part of a partial.
    #[must_use]
    pub fn is_last_part(&self) -> bool {
        matches!(self, Self::Partial { part, parts, .. } if part + 1 == *parts)
    }

    /// The record's key: its kind, visit and partition, so that workers parse no others' claims.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Begin { visit, .. } => format!("begin/{visit}"),
            Self::Claims { visit, partition, .. } => format!("claims/{visit}/{partition}"),
            Self::Partial { visit, partition, .. } => {
                let last = if self.is_last_part() { "last" } else { "part" };
                format!("partial/{visit}/{partition}/{last}")
            }
        }
    }
}
