//! Options and statistics of a subscription.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use helio_core::Tai;
use helio_core::qos::Overload;

use crate::resolve::UndecodableReports;
use crate::transport::{Begin, Support};

/// Where a subscription starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the next published sample.
    Latest,
    /// With the oldest stored sample.
    Earliest,
    /// With the newest `n` samples of each key, 1 to [`MAX_LAST`](Self::MAX_LAST), then with the
    /// next published ones.
    Last(u32),
    /// At an offset of a partition, and with the oldest sample of the others.
    Offset {
        /// The partition.
        partition: u32,
        /// The offset.
        offset: u64,
    },
    /// With the first sample published at or after a time.
    Time(Tai),
}

impl Start {
    /// The most samples of each key with which a subscription starts, as a topic's history.
    pub const MAX_LAST: u32 = 255;

    pub(crate) fn begin(self) -> Begin {
        match self {
            Self::Latest => Begin::Latest,
            Self::Earliest => Begin::Earliest,
            Self::Last(n) => Begin::LastPerKey(n),
            Self::Offset { partition, offset } => Begin::Offset(partition, offset),
            Self::Time(time) => Begin::Time(time),
        }
    }
}

/// The policy for a subscription that falls behind. It affects no other reader or writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lagging {
    /// It reads everything, however late. Samples that retention removes first are a gap.
    Lossless,
    /// It skips the samples that are more than `depth` behind in a partition: a gap.
    DropOldest {
        /// Samples of a partition.
        depth: u64,
    },
    /// It receives only the newest unread sample of each key; the others are counted.
    Conflate,
    /// It skips and counts the lowest levels: level 0 beyond `depth` samples behind, level 1 beyond
    /// twice that, level 2 beyond four times.
    ShedByLevel {
        /// Samples over all partitions.
        depth: u64,
    },
}

impl Lagging {
    /// The depth of a topic's drop and shed policies, unless the subscription sets one.
    pub const DEFAULT_DEPTH: u64 = 65_536;

    /// The default of a topic's overload policy.
    #[must_use]
    pub fn of(overload: Overload) -> Self {
        match overload {
            Overload::DropOldest => Self::DropOldest { depth: Self::DEFAULT_DEPTH },
            Overload::ShedByLevel => Self::ShedByLevel { depth: Self::DEFAULT_DEPTH },
            Overload::Block | Overload::Refuse | Overload::DropNewest => Self::Lossless,
        }
    }
}

/// A subscription's key filter.
#[derive(Debug, Clone, Default)]
pub(crate) enum Keys {
    #[default]
    All,
    Exactly(HashSet<Bytes>),
    Prefix(Bytes),
}

impl Keys {
    pub(crate) fn wants(&self, key: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Exactly(keys) => keys.contains(key),
            Self::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}

/// Options of a subscription.
///
/// ```
/// # use helio_bus::{Start, Subscribe, Lagging};
/// let newest_of_two = Subscribe::from(Start::Last(1)).keys(["camera", "mount"]);
/// let worker = Subscribe::from(Start::Earliest).group("filters").lagging(Lagging::Lossless);
/// ```
#[derive(Debug, Clone)]
pub struct Subscribe {
    pub(crate) start: Start,
    pub(crate) keys: Keys,
    pub(crate) partitions: Option<Vec<u32>>,
    pub(crate) group: Option<String>,
    pub(crate) pinned_bytes: Option<u64>,
    pub(crate) lagging: Option<Lagging>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) lifespan: Option<Duration>,
    pub(crate) writers: Support,
    pub(crate) as_written: Support,
    pub(crate) undecodable: UndecodableReports,
}

impl Subscribe {
    /// A subscription from a start position.
    #[must_use]
    pub fn from(start: Start) -> Self {
        Self {
            start,
            keys: Keys::All,
            partitions: None,
            group: None,
            pinned_bytes: None,
            lagging: None,
            deadline: None,
            lifespan: None,
            writers: Support::No,
            as_written: Support::No,
            undecodable: UndecodableReports::Once,
        }
    }

    /// Only samples of these keys.
    #[must_use]
    pub fn keys<K: AsRef<[u8]>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        let keys = keys.into_iter().map(|key| Bytes::copy_from_slice(key.as_ref()));
        self.keys = Keys::Exactly(keys.collect());
        self
    }

    /// Only samples whose key begins with these bytes.
    #[must_use]
    pub fn key_prefix(mut self, prefix: &[u8]) -> Self {
        self.keys = Keys::Prefix(Bytes::copy_from_slice(prefix));
        self
    }

    /// Only these partitions: one at least, and none that the topic does not have.
    #[must_use]
    pub fn partitions(mut self, partitions: impl IntoIterator<Item = u32>) -> Self {
        self.partitions = Some(partitions.into_iter().collect());
        self
    }

    /// Joins a group, whose live members share the partitions. A partition is read from the group's
    /// committed position or, without one, from the start position.
    #[must_use]
    pub fn group(mut self, name: &str) -> Self {
        self.group = Some(name.to_owned());
        self
    }

    /// Delivers payloads of 16 KiB and more in the transport's memory instead of copies, where it
    /// can: on a journal that is open for writing. At most `max_bytes` of its storage are held for
    /// them, also beyond retention; whole segments count. Other payloads are copied.
    #[must_use]
    pub fn pinned(mut self, max_bytes: u64) -> Self {
        self.pinned_bytes = Some(max_bytes);
        self
    }

    /// The policy for falling behind; the topic's overload policy by default.
    #[must_use]
    pub fn lagging(mut self, lagging: Lagging) -> Self {
        self.lagging = Some(lagging);
        self
    }

    /// The longest time between two samples of a key; the topic's by default.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long a sample is valid; the topic's by default.
    #[must_use]
    pub fn lifespan(mut self, lifespan: Duration) -> Self {
        self.lifespan = Some(lifespan);
        self
    }

    /// Reports writers that appear or are gone.
    #[must_use]
    pub fn watch_writers(mut self) -> Self {
        self.writers = Support::Yes;
        self
    }

    /// Delivers payloads as they were written, whatever schema the topic was opened with.
    #[must_use]
    pub fn as_written(mut self) -> Self {
        self.as_written = Support::Yes;
        self
    }

    /// Reports each sample whose schema cannot be read, instead of only the first of each such
    /// schema. This is for readers that answer each sample, as components answer commands. The
    /// subscription opens whatever the topic's newest schema is.
    #[must_use]
    pub fn each_undecodable(mut self) -> Self {
        self.undecodable = UndecodableReports::Each;
        self
    }
}

/// A subscription's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Samples delivered.
    pub received: u64,
    /// Samples that it will never receive: retention, overload, damage, holes in a producer's
    /// sequence.
    pub lost: u64,
    /// Samples that a newer one of their key replaced before they were read.
    pub conflated: u64,
    /// Samples of replaced incarnations, dropped.
    pub fenced: u64,
    /// Samples received twice, or after a later one of their producer, dropped.
    pub duplicates: u64,
    /// Samples older than their lifespan, dropped.
    pub expired: u64,
    /// Samples dropped for their low level while the subscription was behind.
    pub shed: u64,
    /// Samples of keys outside the filter.
    pub filtered: u64,
    /// Samples that could not be read with its schema.
    pub undecodable: u64,
    /// Missed deadlines of keys.
    pub deadlines_missed: u64,
    /// Unread samples.
    pub lag: u64,
}
