//! What may be chosen for a subscription, and what it counts.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use helio_core::Tai;
use helio_core::qos::Overload;

use crate::resolve::UndecodableReports;
use crate::transport::{Begin, Support};

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With what is published from now on.
    Latest,
    /// With the oldest sample that is kept.
    Earliest,
    /// With the newest `n` samples of each key, then what is published from now on.
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

/// What happens where a subscription falls behind. Whatever it is, nobody else notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lagging {
    /// It reads everything, however late; what retention removes meanwhile is a gap.
    Lossless,
    /// It passes over the oldest samples that are more than `depth` behind in a partition: a gap.
    DropOldest {
        /// Samples of a partition.
        depth: u64,
    },
    /// It gets only the newest of what it has not read of each key; the others are counted.
    Conflate,
    /// It passes over the lowest levels, counted: level 0 beyond `depth` samples behind, level 1
    /// too beyond twice that, level 2 beyond four times, and so on.
    ShedByLevel {
        /// Samples over all partitions.
        depth: u64,
    },
}

impl Lagging {
    /// How far behind a subscription may fall where the topic's policy is to drop or to shed and
    /// the subscription names no depth.
    pub const DEFAULT_DEPTH: u64 = 65_536;

    /// What a topic's policy means for its subscribers.
    #[must_use]
    pub fn of(overload: Overload) -> Self {
        match overload {
            Overload::DropOldest => Self::DropOldest { depth: Self::DEFAULT_DEPTH },
            Overload::ShedByLevel => Self::ShedByLevel { depth: Self::DEFAULT_DEPTH },
            Overload::Block | Overload::Refuse | Overload::DropNewest => Self::Lossless,
        }
    }
}

/// Which keys a subscription wants.
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

/// What a subscription is to be.
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
    pub(crate) partitions: Vec<u32>,
    pub(crate) group: Option<String>,
    pub(crate) lagging: Option<Lagging>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) lifespan: Option<Duration>,
    pub(crate) writers: Support,
    pub(crate) as_written: Support,
    pub(crate) undecodable: UndecodableReports,
}

impl Subscribe {
    /// A subscription that begins there.
    #[must_use]
    pub fn from(start: Start) -> Self {
        Self {
            start,
            keys: Keys::All,
            partitions: Vec::new(),
            group: None,
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

    /// Only these partitions.
    #[must_use]
    pub fn partitions(mut self, partitions: impl IntoIterator<Item = u32>) -> Self {
        self.partitions = partitions.into_iter().collect();
        self
    }

    /// As a member of a group, whose live members share the partitions. It begins where the group
    /// has committed; where it has committed nothing, at the start.
    #[must_use]
    pub fn group(mut self, name: &str) -> Self {
        self.group = Some(name.to_owned());
        self
    }

    /// What happens where it falls behind, if not what the topic's overload policy says.
    #[must_use]
    pub fn lagging(mut self, lagging: Lagging) -> Self {
        self.lagging = Some(lagging);
        self
    }

    /// The longest time between two samples of a key, if not what the topic says.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long a sample is worth reading, if not what the topic says.
    #[must_use]
    pub fn lifespan(mut self, lifespan: Duration) -> Self {
        self.lifespan = Some(lifespan);
        self
    }

    /// Tells when writers come and go.
    #[must_use]
    pub fn watch_writers(mut self) -> Self {
        self.writers = Support::Yes;
        self
    }

    /// Hands out payloads as they were written, whatever schema the topic was opened with.
    #[must_use]
    pub fn as_written(mut self) -> Self {
        self.as_written = Support::Yes;
        self
    }

    /// Tells each sample whose schema cannot be read, not only the first of every such schema: for
    /// those who have to answer each, as a component answers commands. It is opened whatever the
    /// topic's newest schema is.
    #[must_use]
    pub fn each_undecodable(mut self) -> Self {
        self.undecodable = UndecodableReports::Each;
        self
    }
}

/// What a subscription has counted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Samples handed out.
    pub received: u64,
    /// Samples that it will never get: retention, overload, damage, holes in a producer's numbers.
    pub lost: u64,
    /// Samples that a newer one of their key replaced before they were read.
    pub conflated: u64,
    /// Samples of replaced incarnations, dropped.
    pub fenced: u64,
    /// Samples that came again, or after a later one of their producer, dropped.
    pub duplicates: u64,
    /// Samples that were older than their lifespan, dropped.
    pub expired: u64,
    /// Samples dropped for their low level while it was behind.
    pub shed: u64,
    /// Samples of keys that it does not want.
    pub filtered: u64,
    /// Samples that could not be read with its schema.
    pub undecodable: u64,
    /// Deadlines that keys have missed.
    pub deadlines_missed: u64,
    /// Samples that lie ahead, unread.
    pub lag: u64,
}
