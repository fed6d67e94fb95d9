//! The topics of a stream of alerts: names, headers, quality of service and retention.
//!
//! A stream `T` has the topic `T` with the packets, `T/control` with the records of visits,
//! `T/stamps` if stamps are split off, `T/checkpoints` with named positions, `T/digests` with what
//! the members of groups have read, and `T/services` with addresses. A topic is created by the
//! first that opens it, and opened as it is by all others.

use std::time::Duration;

use helio_bus::{Bus, Topic, TopicError, TopicName, TopicSpec};
use helio_core::Qos;
use helio_core::qos::Retention;
use helio_core::schema::{HasSchema, Schema};

use crate::visit::Control;

/// The header with the visit.
pub const VISIT_HEADER: &str = "visit";
/// The header with the detector.
pub const DETECTOR_HEADER: &str = "detector";
/// The header with the time of shutter close, TAI nanoseconds since 1970.
pub const SHUTTER_HEADER: &str = "shutter-close-ns";
/// The header with the time at which the producer received the packets, TAI nanoseconds since 1970.
pub const PRODUCED_HEADER: &str = "produced-ns";
/// The header with the place of an alert's stamps ([`Link`](crate::stamps::Link)). It is empty if
/// the stamps are split off and their place is unknown.
pub const LINK_HEADER: &str = "stamps";

/// What a topic of a stream has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The packets.
    Alerts,
    /// Openings, manifests and closing records.
    Control,
    /// Stamps.
    Stamps,
    /// Named positions.
    Checkpoints,
    /// What members of groups have read.
    Digests,
    /// Addresses of services.
    Services,
}

impl Part {
    /// Returns the name of the topic in a stream.
    ///
    /// # Errors
    /// [`TopicError::Name`].
    pub fn name(self, stream: &str) -> Result<TopicName, TopicError> {
        let suffix = match self {
            Self::Alerts => "",
            Self::Control => "/control",
            Self::Stamps => "/stamps",
            Self::Checkpoints => "/checkpoints",
            Self::Digests => "/digests",
            Self::Services => "/services",
        };
        Ok(TopicName::new(&format!("{stream}{suffix}"))?)
    }
}

/// How long packets and stamps are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// So many days.
    pub days: u32,
    /// At most so many bytes of a partition; `None` leaves the limit to the engine.
    pub partition_bytes: Option<u64>,
}

impl Keep {
    /// The days for which packets are stored by default, and the fewest of a survey.
    pub const DEFAULT_DAYS: u32 = 7;
    /// The most days of a survey; other values are possible.
    pub const MOST_DAYS: u32 = 30;

    fn retention(self) -> Retention {
        let age = Duration::from_secs(u64::from(self.days) * 24 * 3_600);
        // Only what nobody chose may be shortened by the engine.
        let default = self == Self::default();
        Retention { bytes: self.partition_bytes, age: Some(age), last_value: false, default }
    }
}

impl Default for Keep {
    /// Seven days.
    fn default() -> Self {
        Self { days: Self::DEFAULT_DAYS, partition_bytes: None }
    }
}

/// The quality of service of packets and stamps.
pub(crate) fn packets_qos(partitions: u32, keep: Keep) -> Qos {
    Qos { partitions, retention: keep.retention(), ..Qos::stream() }
}

/// Opens a topic as it is, or creates it.
pub(crate) fn open_or_create(
    bus: &Bus,
    spec: TopicSpec,
    qos: impl FnOnce() -> Qos,
) -> Result<Topic, TopicError> {
    match bus.topic(spec.clone()) {
        Err(TopicError::NoSuchTopic(_)) => bus.topic(spec.qos(qos())),
        found => found,
    }
}

/// The schema of a type whose schema is compiled in.
pub(crate) fn schema_of<T: HasSchema>() -> Schema {
    T::schema().expect("the records' schemas are compiled in")
}

/// Opens the control topic of a stream, or creates it. It has one partition.
///
/// # Errors
/// [`TopicError`].
pub fn control_topic(bus: &Bus, stream: &str) -> Result<Topic, TopicError> {
    let spec = TopicSpec::of(Part::Control.name(stream)?).schema(schema_of::<Control>());
    open_or_create(bus, spec, || Qos { partitions: 1, ..Qos::stream() })
}
