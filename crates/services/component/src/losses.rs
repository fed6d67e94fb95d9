//! Detection of missing samples of foreign writers.
//!
//! The bus numbers what a producer publishes, and reports missing samples. If another program
//! forwards a component's samples, such as a bridge from SAL's own transport, or a recording, these
//! numbers do not show earlier losses. Such samples have another producer than their
//! `private_identity`, and are counted by their `private_seqNum`. See [`protocol::sequence_gaps`].
//!
//! [`protocol::sequence_gaps`]: crate::protocol::sequence_gaps

use std::fmt;

use helio_bus::{Event, EventRef, Origin, SampleRef};
use helio_core::Schema;

use crate::protocol::sequence_gaps::{
    Arrival, SequenceSample, SequenceStats, SequenceTracker, WriterKey,
};
use crate::sender::{PrivatePlace, Sender};

/// Counts missing samples in one subscription to a component's topic.
#[derive(Debug)]
pub struct Losses {
    private: PrivatePlace,
    numbers: SequenceTracker,
    in_history: bool,
}

/// Samples that a writer numbered and that have not arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The partition.
    pub partition: u32,
    /// Their number.
    pub lost: u64,
    /// The first missing number.
    pub first: i32,
    /// The number that arrived instead.
    pub next: i32,
    /// The writer's `private_identity`.
    pub identity: String,
    /// The writer's process.
    pub origin: i32,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, first, next, identity, origin, .. } = self;
        let samples = if *lost == 1 { "sample" } else { "samples" };
        write!(f, "{lost} {samples} of {identity}, process {origin}, did not arrive: ")?;
        write!(f, "{next} arrived, {first} was expected")
    }
}

impl Losses {
    /// A counter for a topic of that schema.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        Self {
            private: PrivatePlace::of(schema),
            numbers: SequenceTracker::default(),
            in_history: false,
        }
    }

    /// Processes an event before the subscription returns it; it must see every event. The returned
    /// loss precedes the event.
    pub fn see(&mut self, event: &EventRef<'_>) -> Option<Loss> {
        match event {
            EventRef::Sample(sample) => self.sample(sample),
            EventRef::Other(other) => self.event(other),
        }
    }

    /// Like [`see`](Self::see), for an owned event.
    pub fn event(&mut self, event: &Event) -> Option<Loss> {
        match event {
            Event::Sample(sample) => self.sample(&sample.as_ref()),
            Event::Undecodable(wrong) => self.sample(&wrong.sample.as_ref()),
            // The bus has counted this loss already.
            Event::Gap(_) | Event::Assigned(_) => {
                self.numbers.explain();
                None
            }
            _ => None,
        }
    }

    fn sample(&mut self, sample: &SampleRef<'_>) -> Option<Loss> {
        let is_history = sample.origin == Origin::History;
        if is_history || std::mem::replace(&mut self.in_history, is_history) {
            // The history has gaps, and so has the boundary between it and the log.
            self.numbers.explain();
        }
        let from = Sender::read(&self.private, sample.payload)?;
        if from.identity == sample.producer.name.as_str() {
            return None;
        }
        let of = WriterKey { identity: from.identity, origin: from.origin, index: from.index };
        let numbered = SequenceSample { number: from.seq_num, sent_s: from.sent_s };
        match self.numbers.note(of, numbered) {
            Arrival::AfterGap { first, lost } => {
                let (partition, next, origin) = (sample.partition, from.seq_num, from.origin);
                let identity = from.identity.to_owned();
                Some(Loss { partition, lost, first, next, identity, origin })
            }
            Arrival::InOrder | Arrival::Late | Arrival::Repeated => None,
        }
    }

    /// The counts so far. A late sample counts as lost until it arrives.
    #[must_use]
    pub fn stats(&self) -> SequenceStats {
        self.numbers.stats()
    }
}
