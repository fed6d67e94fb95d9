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
    /// Whose they are, where that is known.
    pub producer: Option<Producer>,
    /// How many records, where that is known. Where packets are missing it is known from the next
    /// packet of each of their producers, which is told as a gap of its own.
    pub records: Option<u64>,
    /// Where they are missing.
    pub span: Span,
    /// Why.
    pub why: Why,
}

/// Where something is missing; `to` is the first that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Records by the numbers that their producer gave them.
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
    /// They never had a number.
    Unnumbered,
}

/// Why records are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Their producer dropped them, because there were more than it can get rid of.
    Shed,
    /// Retention removed them before they were read.
    Retention,
    /// The reader was too slow, and passes over what is too far behind.
    Overload,
    /// They were damaged: by the engine's word, or a packet was none.
    Damaged,
    /// Their producer numbered them, and they never came.
    Absent,
    /// A newer incarnation of their producer has taken over, so theirs are dropped from here on.
    Fenced {
        /// The incarnation that took over.
        newer: u64,
    },
}

/// A sample of a log topic that is no packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The level of the lane.
    pub lane: Level,
    /// Who sent it.
    pub producer: Producer,
    /// The partition.
    pub partition: u32,
    /// Its offset there.
    pub offset: u64,
    /// What is wrong.
    pub error: PacketError,
}

/// A record whose body cannot be read: its producer wrote it wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The level of the lane.
    pub lane: Level,
    /// Who sent it.
    pub producer: Producer,
    /// Its number among its producer's in the lane.
    pub sequence: u64,
}

/// What a reader is told besides records.
#[derive(Debug, Clone)]
pub enum News {
    /// Records are missing.
    Gap(Gap),
    /// A sample is no packet: it is passed over.
    Damaged(Damaged),
    /// A record cannot be read: it is passed over.
    Malformed(Malformed),
    /// What the bus tells of a lane's topic: an outage, a writer that does not fit.
    Bus {
        /// The level of the lane.
        lane: Level,
        /// What it tells.
        event: Event,
    },
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.lane)?;
        match (self.records, self.span) {
            (Some(1), _) => f.write_str("1 record")?,
            (Some(count), _) => write!(f, "{count} records")?,
            (None, Span::Packets { from, to, .. }) => write!(f, "{} packets", to - from)?,
            (None, _) => f.write_str("records")?,
        }
        if let Some(Producer { name, incarnation }) = &self.producer {
            write!(f, " of {name} (incarnation {incarnation})")?;
        }
        match self.span {
            Span::Records { from, to } => write!(f, ", numbers {from} to {},", to - 1)?,
            Span::Packets { partition, from, to } => {
                write!(f, ", offsets {from} to {} of partition {partition},", to - 1)?;
            }
            Span::Unnumbered => {}
        }
        let one = if self.records == Some(1) { "is" } else { "are" };
        write!(f, " {one} missing: {}", self.why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shed => f.write_str("their producer shed them; have it log less, or less often"),
            Self::Retention => f.write_str("retention removed them; read sooner, or keep more"),
            Self::Overload => f.write_str("this reader was too slow; read fewer levels, or faster"),
            Self::Damaged => f.write_str("they were damaged; look at the disk and at their sender"),
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
