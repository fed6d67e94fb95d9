//! Identities of samples and producers, and producers' writers on the target.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use helio_bus::{Bus, Forwarder, Producer, ProducerName, Sample, SampleRef, Tai};

/// A partition and an offset in it.
pub(crate) type PartitionOffset = (u32, u64);
/// A producer in a partition.
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

/// A producer's incarnation and its sequence number.
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

/// The name of producers that carry none, such as plain Kafka clients.
#[derive(Debug, Clone)]
pub(crate) struct AnonymousProducer {
    /// Their name on other buses: this bus's.
    pub(crate) name: ProducerName,
    /// The engine's name for them, which is the same on all its buses.
    stand_in: String,
}

impl AnonymousProducer {
    pub(crate) fn of(bus: &Bus, name: &str) -> Self {
        Self::new(name, &bus.capabilities().transport)
    }

    pub(crate) fn new(bus: &str, stand_in: &str) -> Self {
        let name = ProducerName::new(bus).or_else(|_| ProducerName::new(&escaped(bus)));
        let name = name.expect("escaped bytes form a valid name");
        Self { name, stand_in: stand_in.to_owned() }
    }

    /// Whether `name` is the engine's stand-in.
    pub(crate) fn matches(&self, name: &ProducerName) -> bool {
        name.as_str() == self.stand_in
    }

    /// A producer's name on other buses.
    pub(crate) fn forwarded_name(&self, name: &ProducerName) -> ProducerName {
        if self.matches(name) { self.name.clone() } else { name.clone() }
    }
}

/// Escapes a bus's identity to a valid producer name.
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

/// How many bytes of a bus's identity are escaped: fully escaped they fit a producer name.
const MAX_BUS_NAME: usize = 64;

/// A sample's identity, as far as two buses agree on it.
#[derive(Debug, Clone)]
pub(crate) struct SampleIdentity {
    pub(crate) name: ProducerName,
    pub(crate) sequence: ProducerSequence,
    pub(crate) time: Tai,
    /// Producers without a name have no sequence of their own.
    is_anonymous: bool,
}

impl SampleIdentity {
    pub(crate) fn of(sample: SampleRef<'_>, anonymous: &AnonymousProducer) -> Self {
        let sequence = ProducerSequence::of(sample);
        Self::new(&sample.producer.name, sequence, sample.time, anonymous)
    }

    /// From a sample of the source, with its producer's name there or on other buses.
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

/// Why the target did not acknowledge a sample that it had accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryFailure {
    /// The sample or its batch was rejected, for its size for example; it is sent again alone.
    Refused,
    /// The target failed, for lack of permission or room for example; the bridge waits.
    Failed,
    /// The outcome is unknown.
    Unknown,
}

impl DeliveryFailure {
    /// Why the sample cannot be sent again once later ones of its producer are stored.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Refused | Self::Failed => REASON_SUPERSEDED,
            Self::Unknown => {
                "the target may not have taken it, and has later samples of its producer"
            }
        }
    }
}

/// The sequence of a sample that has none yet; assigned ones begin at 1.
pub(crate) const UNNUMBERED: u64 = 0;

/// A later sample of the producer is stored.
pub(crate) const REASON_SUPERSEDED: &str =
    "the target did not take it, and has later samples of its producer";

/// The target has the same producer's sequence from a log that was truncated or replaced.
pub(crate) const REASON_SEQUENCE_TAKEN: &str = "the target has another sample with its sequence";

/// A producer's writer on the target.
pub(crate) struct OpenWriter {
    /// Locked while another thread renews its lease.
    pub(crate) forwarder: Arc<Mutex<Forwarder>>,
    pub(crate) incarnation: u64,
    pub(crate) last_used: u64,
}

/// A producer that has samples on the target, and may be alive on the source without publishing.
pub(crate) struct IdleProducer {
    pub(crate) partition: u32,
    pub(crate) producer: Producer,
    /// When it was noticed.
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
