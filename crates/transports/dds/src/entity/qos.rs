//! DDS's quality of service.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::time::Duration;

use cyclors::dds_qos_t;

use super::DdsError;
use super::error::text;

/// No limit.
const UNLIMITED: i32 = -1;

/// A set of policies; the others have DDS's defaults.
#[derive(Debug)]
pub struct Qos(*mut dds_qos_t);

// SAFETY: nothing is shared behind the pointer, and reading it changes nothing.
unsafe impl Send for Qos {}
// SAFETY: as above.
unsafe impl Sync for Qos {}

/// How a writer shows that it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveliness {
    /// By its process.
    Automatic,
    /// By writing, and by [`super::Writer::assert_alive`].
    ManualByTopic,
}

/// An encoding of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// The older one, for final types.
    Xcdr1,
    /// The newer one.
    Xcdr2,
}

/// A policy, by DDS's number of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Policy(u32);

impl Policy {
    pub(super) fn of(id: u32) -> Self {
        Self(id)
    }

    /// Its name in the field's words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            2 => "durability",
            3 => "presentation",
            4 => "deadline",
            5 => "latency budget",
            6 => "ownership",
            8 => "liveliness",
            10 => "partition",
            11 => "reliability",
            12 => "destination order",
            13 => "history",
            24 => "type consistency",
            25 => "data representation",
            _ => "another policy",
        }
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn depth_of(samples: u32) -> i32 {
    i32::try_from(samples).unwrap_or(i32::MAX)
}

impl Default for Qos {
    fn default() -> Self {
        Self::new()
    }
}

impl Qos {
    /// All defaults.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: the memory is ours until `drop`.
        Self(unsafe { cyclors::dds_create_qos() })
    }

    pub(super) fn native(&self) -> *const dds_qos_t {
        self.0
    }

    /// RELIABILITY reliable; a writer whose readers lag blocks for at most that time.
    #[must_use]
    pub fn reliable(self, wait: Duration) -> Self {
        let kind = cyclors::dds_reliability_kind_DDS_RELIABILITY_RELIABLE;
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_reliability(self.0, kind, nanos(wait)) };
        self
    }

    /// RELIABILITY best effort.
    #[must_use]
    pub fn best_effort(self) -> Self {
        let kind = cyclors::dds_reliability_kind_DDS_RELIABILITY_BEST_EFFORT;
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_reliability(self.0, kind, 0) };
        self
    }

    /// HISTORY keep all: a reader keeps samples until they are taken, a writer until they are
    /// acknowledged.
    #[must_use]
    pub fn keep_all(self) -> Self {
        let kind = cyclors::dds_history_kind_DDS_HISTORY_KEEP_ALL;
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_history(self.0, kind, 0) };
        self
    }

    /// HISTORY keep last: the newest `depth` samples of each key.
    #[must_use]
    pub fn keep_last(self, depth: u32) -> Self {
        let kind = cyclors::dds_history_kind_DDS_HISTORY_KEEP_LAST;
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_history(self.0, kind, depth_of(depth)) };
        self
    }

    /// DURABILITY transient-local: a writer keeps samples for late joiners while it lives, the
    /// newest `depth` of each key, or all. A reader requests them.
    #[must_use]
    pub fn transient_local(self, depth: Option<u32>) -> Self {
        let durability = cyclors::dds_durability_kind_DDS_DURABILITY_TRANSIENT_LOCAL;
        let (kind, depth) = match depth {
            Some(depth) => (cyclors::dds_history_kind_DDS_HISTORY_KEEP_LAST, depth_of(depth)),
            None => (cyclors::dds_history_kind_DDS_HISTORY_KEEP_ALL, 0),
        };
        let (qos, any) = (self.0, UNLIMITED);
        // SAFETY: the pointer is ours.
        unsafe {
            cyclors::dds_qset_durability(qos, durability);
            cyclors::dds_qset_durability_service(qos, 0, kind, depth, any, any, any);
        }
        self
    }

    /// The most samples in a reader, over all keys; further ones stay with their writers.
    #[must_use]
    pub fn max_samples(self, samples: u32) -> Self {
        let (qos, any) = (self.0, UNLIMITED);
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_resource_limits(qos, depth_of(samples), any, any) };
        self
    }

    /// The longest time between two samples of a key.
    #[must_use]
    pub fn deadline(self, period: Duration) -> Self {
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_deadline(self.0, nanos(period)) };
        self
    }

    /// LIFESPAN: how long a sample is valid.
    #[must_use]
    pub fn lifespan(self, lifespan: Duration) -> Self {
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_lifespan(self.0, nanos(lifespan)) };
        self
    }

    /// How a writer shows that it is alive, and how often at least.
    #[must_use]
    pub fn liveliness(self, how: Liveliness, lease: Duration) -> Self {
        let kind = match how {
            Liveliness::Automatic => cyclors::dds_liveliness_kind_DDS_LIVELINESS_AUTOMATIC,
            Liveliness::ManualByTopic => {
                cyclors::dds_liveliness_kind_DDS_LIVELINESS_MANUAL_BY_TOPIC
            }
        };
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_liveliness(self.0, kind, nanos(lease)) };
        self
    }

    /// OWNERSHIP exclusive: only the strongest writer of a key is read.
    #[must_use]
    pub fn exclusive(self, strength: i32) -> Self {
        let kind = cyclors::dds_ownership_kind_DDS_OWNERSHIP_EXCLUSIVE;
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_ownership(self.0, kind) };
        self.strength(strength)
    }

    /// OWNERSHIP_STRENGTH of such a writer.
    #[must_use]
    pub(super) fn strength(self, strength: i32) -> Self {
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_ownership_strength(self.0, strength) };
        self
    }

    /// The DDS partitions that it writes or reads; names may have wildcards for readers.
    ///
    /// # Errors
    /// A name with a zero byte in it.
    pub fn partitions(self, names: &[&str]) -> Result<Self, DdsError> {
        let names = names.iter().map(|name| text(name)).collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let count = u32::try_from(pointers.len()).unwrap_or(0);
        // SAFETY: the list has that length, and is copied.
        unsafe { cyclors::dds_qset_partition(self.0, count, pointers.as_mut_ptr()) };
        Ok(self)
    }

    /// USER_DATA: bytes for all that discover the entity.
    #[must_use]
    pub fn user_data(self, bytes: &[u8]) -> Self {
        let start = bytes.as_ptr().cast::<c_void>();
        // SAFETY: the slice has that length, and is copied.
        unsafe { cyclors::dds_qset_userdata(self.0, start, bytes.len()) };
        self
    }

    /// The encodings: a writer uses the first, a reader takes all of them.
    #[must_use]
    pub fn representations(self, allowed: &[Representation]) -> Self {
        let ids: Vec<i16> = allowed
            .iter()
            .map(|representation| match representation {
                Representation::Xcdr1 => 0,
                Representation::Xcdr2 => 2,
            })
            .collect();
        let count = u32::try_from(ids.len()).unwrap_or(0);
        // SAFETY: the list has that length, and is copied.
        unsafe { cyclors::dds_qset_data_representation(self.0, count, ids.as_ptr()) };
        self
    }

    /// A closed writer does not dispose of its instances.
    #[must_use]
    pub fn leave_instances(self) -> Self {
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_writer_data_lifecycle(self.0, false) };
        self
    }

    /// Samples of one participant do not reach its own readers.
    #[must_use]
    pub fn ignore_own_participant(self) -> Self {
        let kind = cyclors::dds_ignorelocal_kind_DDS_IGNORELOCAL_PARTICIPANT;
        // SAFETY: the pointer is ours.
        unsafe { cyclors::dds_qset_ignorelocal(self.0, kind) };
        self
    }
}

impl Drop for Qos {
    fn drop(&mut self) {
        // SAFETY: created in `new`, freed once.
        unsafe { cyclors::dds_delete_qos(self.0) };
    }
}
