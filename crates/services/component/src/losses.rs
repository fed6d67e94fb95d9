//! What is missing among samples of somebody else's writers.
//!
//! The bus numbers what a producer publishes, and tells what is missing of it. Where a component's
//! samples come by another hand, such as a bridge's to SAL's own transport, or a recording's, that
//! says nothing of what the other hand never had: those samples have another producer than their
//! `private_identity`, and are counted by their `private_seqNum`. See [`protocol::numbers`].
//!
//! [`protocol::numbers`]: crate::protocol::numbers

use std::fmt;

use helio_bus::{Event, EventRef, Origin, SampleRef};
use helio_core::Schema;

use crate::protocol::numbers::{Arrival, NumberStats, Numbered, Numberer, Numbers};
use crate::sender::Sender;

/// Counts what is missing in one subscription to a component's topic.
#[derive(Debug)]
pub struct Losses {
    indexed: bool,
    numbers: Numbers,
    in_history: bool,
}

/// Samples that a writer numbered and that never came, or not yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The partition.
    pub partition: u32,
    /// How many.
    pub lost: u64,
    /// The first number that is missing.
    pub first: i32,
    /// The number that came instead.
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
        write!(f, "{lost} {samples} of {identity}, process {origin}, did not come: ")?;
        write!(f, "{next} came where {first} was due")
    }
}

impl Losses {
    /// For a topic of that schema.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        let indexed = schema.fields().first().is_some_and(|field| field.name == "salIndex");
        Self { indexed, numbers: Numbers::default(), in_history: false }
    }

    /// Looks at what the subscription hands out next; whoever looks must see all of it. What is
    /// told is lost before it.
    pub fn see(&mut self, event: &EventRef<'_>) -> Option<Loss> {
        match event {
            EventRef::Sample(sample) => self.sample(sample),
            EventRef::Other(other) => self.event(other),
        }
    }

    /// The same for an event of one's own.
    pub fn event(&mut self, event: &Event) -> Option<Loss> {
        match event {
            Event::Sample(sample) => self.sample(&sample.as_ref()),
            Event::Undecodable(wrong) => self.sample(&wrong.sample.as_ref()),
            // What the bus has counted must not be counted again.
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
            // The history has holes, and one between itself and the log.
            self.numbers.explain();
        }
        let from = Sender::read(self.indexed, sample.payload)?;
        if from.identity == sample.producer.name.as_str() {
            return None;
        }
        let of = Numberer { identity: from.identity, origin: from.origin, index: from.index };
        let numbered = Numbered { number: from.seq_num, sent_s: from.sent_s };
        match self.numbers.note(of, numbered) {
            Arrival::AfterHole { first, lost } => {
                let (partition, next, origin) = (sample.partition, from.seq_num, from.origin);
                let identity = from.identity.to_owned();
                Some(Loss { partition, lost, first, next, identity, origin })
            }
            Arrival::InOrder | Arrival::Late | Arrival::Repeated => None,
        }
    }

    /// What was counted so far. What came late was lost until then.
    #[must_use]
    pub fn stats(&self) -> NumberStats {
        self.numbers.stats()
    }
}
