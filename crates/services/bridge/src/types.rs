//! Names of samples and producers that the modules share.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use helio_bus::{Bus, Forwarder, Producer, ProducerName, Sample, SampleRef, Tai};

/// A partition and an offset there.
pub(crate) type PartitionOffset = (u32, u64);
/// A partition, and who publishes into it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ProducerKey {
    pub(crate) partition: u32,
    pub(crate) producer: ProducerName,
}

impl ProducerKey {
    pub(crate) fn of(sample: &Sample) -> Self {
        Self { partition: sample.partition, producer: sample.header.producer.name.clone() }
    }
}

/// A producer's incarnation, and the number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProducerSequence {
    pub(crate) incarnation: u64,
    pub(crate) number: u64,
}

impl ProducerSequence {
    pub(crate) fn of(sample: SampleRef<'_>) -> Self {
        Self { incarnation: sample.producer.incarnation, number: sample.sequence }
    }
}

/// Who has published on a bus what has no producer of ours.
#[derive(Debug, Clone)]
pub(crate) struct AnonymousProducer {
    /// What they are called on other buses: the bus.
    pub(crate) name: ProducerName,
    /// What the engine calls them, which is the same on all its buses.
    stand_in: String,
}

impl AnonymousProducer {
    pub(crate) fn of(bus: &Bus, name: &str) -> Self {
        Self::new(name, &bus.capabilities().transport)
    }

    pub(crate) fn new(bus: &str, stand_in: &str) -> Self {
        let name = ProducerName::new(bus).or_else(|_| ProducerName::new(&escaped(bus)));
        let name = name.expect("letters, digits and what stands between them are a name");
        Self { name, stand_in: stand_in.to_owned() }
    }

    /// Whether these are who the engine calls so.
    pub(crate) fn matches(&self, name: &ProducerName) -> bool {
        name.as_str() == self.stand_in
    }

    /// What somebody is called on other buses.
    pub(crate) fn forwarded_name(&self, name: &ProducerName) -> ProducerName {
        if self.matches(name) { self.name.clone() } else { name.clone() }
    }
}

/// A bus's name as a producer's: what is not allowed there by its numbers.
fn escaped(bus: &str) -> String {
    let mut name = String::from("bus-");
    for byte in bus.bytes().take(MAX_BUS_NAME) {
        match byte {
            b'-' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => name.push(byte.into()),
            _ => name.push_str(&format!(":{byte:02x}")),
        }
    }
    name
}

/// How much of a bus's name is told where it is no producer's: with all by their numbers it fits.
const MAX_BUS_NAME: usize = 64;

/// Whose sample it is, as far as two buses agree on that.
#[derive(Debug, Clone)]
pub(crate) struct SampleIdentity {
    pub(crate) name: ProducerName,
    pub(crate) sequence: ProducerSequence,
    pub(crate) time: Tai,
    /// Who goes by the bus's own name has no numbers of his own.
    is_anonymous: bool,
}

impl SampleIdentity {
    pub(crate) fn of(sample: SampleRef<'_>, anonymous: &AnonymousProducer) -> Self {
        let sequence = ProducerSequence::of(sample);
        Self::new(&sample.producer.name, sequence, sample.time, anonymous)
    }

    /// Of a sample of the source, by the name there or by that on other buses.
    pub(crate) fn new(
        name: &ProducerName,
        sequence: ProducerSequence,
        time: Tai,
        anonymous: &AnonymousProducer,
    ) -> Self {
        let name = anonymous.forwarded_name(name);
        let is_anonymous = name == anonymous.name;
        Self { name, sequence, time, is_anonymous }
    }
}

impl PartialEq for SampleIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.time == other.time
            && (self.is_anonymous || self.sequence == other.sequence)
    }
}

/// Why a sample that the target had taken was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryFailure {
    /// It was too much, or its company was: it is given again alone.
    Refused,
    /// No permission, no room: no fault of the sample's, and waited for.
    Failed,
    /// Nobody knows whether the target has it.
    Unknown,
}

impl DeliveryFailure {
    /// Why it cannot be given again once later ones of its producer are there.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Refused | Self::Failed => REASON_SUPERSEDED,
            Self::Unknown => {
                "the target did not say whether it took it, and has later ones of its producer"
            }
        }
    }
}

/// The number of a sample that has none yet: theirs begin at 1.
pub(crate) const UNNUMBERED: u64 = 0;

/// Why a sample cannot be given once later ones of its producer are there.
pub(crate) const REASON_SUPERSEDED: &str =
    "the target did not take it, and has later ones of its producer";

/// Why a sample of a log that was cut cannot be given.
pub(crate) const REASON_SEQUENCE_TAKEN: &str = "the target has another sample of that number";

/// A producer's writer on the target.
pub(crate) struct OpenWriter {
    /// Locked while its lease is asserted in another thread.
    pub(crate) forwarder: Arc<Mutex<Forwarder>>,
    pub(crate) incarnation: u64,
    pub(crate) last_used: u64,
}

/// Who has samples on the target, and may live on the source without a word.
pub(crate) struct IdleProducer {
    pub(crate) partition: u32,
    pub(crate) producer: Producer,
    /// When that was found.
    pub(crate) since: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bus_is_somebody() {
        let buses = [("kafka-x.", "kafka-x."), ("dds/a b.", "bus-dds:2fa:20b:2e"), ("", "bus-")];
        for (bus, name) in buses {
            assert_eq!(AnonymousProducer::new(bus, "kafka").name.as_str(), name);
        }
        AnonymousProducer::new(&" ".repeat(500), "kafka");
    }
}
