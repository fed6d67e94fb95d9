//! Notices of a reader besides records: what is missing, and why.

use std::fmt;

use helio_bus::{Event, Producer};

use crate::level::Level;
use crate::packet::PacketError;

/// Records that this reader will never get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The level of the lane that they are missing from.
    pub lane: Level,
    /// The producer, if known.
    pub producer: Option<Producer>,
    /// The number of records, if known. For missing packets it follows from the next packet of each
    /// producer, which is reported as a gap of its own.
    pub records: Option<u64>,
    /// The position of the gap.
    pub span: GapRange,
    /// The cause.
    pub why: LossCause,
}

/// The position of a gap; `to` is the first that is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapRange {
    /// Records by their producer's numbers.
    Records {
        /// The first that is missing.
        from: u64,
        /// The first that is not.
        to: u64,
    },
    /// Packets by their offsets.
    Packets {
        /// The partition.
        partition: u32,
        /// The first that is missing.
        from: u64,
        /// The first that is not.
        to: u64,
    },
    /// The records never had a number.
    Unnumbered,
}

/// The cause of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// Their producer dropped them because its queues were full.
    Shed,
    /// Retention removed them before they were read.
    Retention,
    /// The reader was too slow and skips records.
    Overload,
    /// They were damaged, according to the engine, or because a packet is malformed.
    Damaged,
    /// Their producer numbered them, and they never arrived.
    Absent,
    /// This reader stood still, and their writer had no room to keep them for it.
    Behind,
    /// A newer incarnation of their producer has taken over; older records are dropped from here
    /// on.
    Fenced {
        /// The incarnation that took over.
        newer: u64,
    },
}

/// A sample of a log topic that is not a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The level of the lane.
    pub lane: Level,
    /// The producer.
    pub producer: Producer,
    /// The partition.
    pub partition: u32,
    /// The sample's offset.
    pub offset: u64,
    /// What is wrong.
    pub error: PacketError,
}

/// A record whose body is malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The level of the lane.
    pub lane: Level,
    /// The producer.
    pub producer: Producer,
    /// The record's number among its producer's in the lane.
    pub sequence: u64,
}

/// A reader's notices.
#[derive(Debug, Clone)]
pub enum News {
    /// Records are missing.
    Gap(Gap),
    /// A sample is not a packet. It is skipped.
    Damaged(Damaged),
    /// A record cannot be read. It is skipped.
    Malformed(Malformed),
    /// A notice of the bus about a lane's topic: an outage, an incompatible writer.
    Bus {
        /// The level of the lane.
        lane: Level,
        /// The notice.
        event: Event,
    },
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.lane)?;
        match (self.records, self.span) {
            (Some(1), _) => f.write_str("1 record")?,
            (Some(count), _) => write!(f, "{count} records")?,
            (None, GapRange::Packets { from, to, .. }) => write!(f, "{} packets", to - from)?,
            (None, _) => f.write_str("records")?,
        }
        if let Some(Producer { name, incarnation }) = &self.producer {
            write!(f, " of {name} (incarnation {incarnation})")?;
        }
        match self.span {
            GapRange::Records { from, to } => write!(f, ", numbers {from} to {},", to - 1)?,
            GapRange::Packets { partition, from, to } => {
                write!(f, ", offsets {from} to {} of partition {partition},", to - 1)?;
            }
            GapRange::Unnumbered => {}
        }
        let one = if self.records == Some(1) { "is" } else { "are" };
        write!(f, " {one} missing: {}", self.why)
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shed => f.write_str("their producer shed them; have it log less, or less often"),
            Self::Retention => f.write_str("retention removed them; read sooner, or keep more"),
            Self::Overload => f.write_str("this reader was too slow; read fewer levels, or faster"),
            Self::Damaged => f.write_str("they were damaged; look at the disk and at their sender"),
            Self::Behind => f.write_str(
                "this reader stood still, and their writers wait for no reader; read them from \
                 the archive or the durability service",
            ),
            Self::Absent => f.write_str("they never came; look at their producer's errors"),
            Self::Fenced { newer } => write!(
                f,
                "incarnation {newer} has taken over; give each running producer a name of its own"
            ),
        }
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Producer { name, incarnation } = &self.producer;
        write!(f, "{}: a sample of {name} (incarnation {incarnation}), ", self.lane)?;
        write!(f, "offset {} of partition {}: {}", self.offset, self.partition, self.error)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Producer { name, incarnation } = &self.producer;
        write!(f, "{}: record {} of {name} (incarnation {incarnation})", self.lane, self.sequence)?;
        f.write_str(" has a malformed body; its sender wrote it wrong")
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap(gap) => gap.fmt(f),
            Self::Damaged(damaged) => damaged.fmt(f),
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Bus { lane, event } => match event {
                Event::Outage(helio_bus::Outage::Lost { cause }) => {
                    write!(f, "{lane}: the bus cannot be reached: {cause}; it is tried again")
                }
                Event::Outage(helio_bus::Outage::Restored) => {
                    write!(f, "{lane}: the bus can be reached again")
                }
                event => write!(f, "{lane}: {event:?}"),
            },
        }
    }
}
