//! Samples that were written before one that arrived, and did not arrive themselves.

use super::{NewestSequences, QueuedSample, ReorderQueue};
use crate::announcements::ProducerPosition;
use crate::envelope::{Header, OTHER_TOPIC};

/// Whether samples that were written before one did not arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ReaderBehind {
    /// None, or their numbers show it.
    #[default]
    No,
    /// Those since the producer's last sample that arrived: the reader was too slow.
    Since,
    /// It is the first of its producer's incarnation that came by its DDS topic.
    First,
    /// Those from a number on: the first that was written after the reader joined.
    From(u64),
}

impl ReorderQueue {
    /// Whether samples before one of a reliable writer did not arrive. `before` is the newest that
    /// came by the same DDS topic, where samples arrive in order.
    pub(super) fn behind(
        &mut self,
        header: &Header<'_>,
        topic_index: usize,
        before: Option<(u64, u64)>,
    ) -> ReaderBehind {
        if self.is_first(header, topic_index) {
            return ReaderBehind::First;
        }
        match before {
            Some((incarnation, sequence))
                if self.drops
                    && incarnation == header.incarnation
                    && (1..header.previous).contains(&sequence)
                    && header.flags & OTHER_TOPIC == 0 =>
            {
                ReaderBehind::Since
            }
            _ => ReaderBehind::No,
        }
    }

    /// Whether a recorded sample is the first of its incarnation on one DDS topic.
    fn is_first(&mut self, header: &Header<'_>, topic_index: usize) -> bool {
        let same = |seen: &&mut NewestSequences| {
            seen.partition == header.partition && seen.producer == header.producer
        };
        let Some(seen) = self.seen.iter_mut().find(same) else { return false };
        let is_first = seen.first[topic_index].0 < header.incarnation;
        if is_first {
            seen.first[topic_index] = header.order();
        }
        is_first
    }

    /// Whether samples were written after the reader joined and before a sample, its producer's
    /// first on one DDS topic, which is delivered now.
    pub(super) fn lost_since_join(&self, queued: &QueuedSample) -> ReaderBehind {
        let (partition, incarnation) = (queued.partition, queued.incarnation);
        let producer = queued.names().1;
        let of = |seen: &&NewestSequences| seen.partition == partition && seen.producer == producer;
        let Some(seen) = self.seen.iter().find(of).filter(|_| !self.forgot) else {
            return ReaderBehind::No;
        };
        let other = seen.first[1 - queued.topic_index];
        if other.0 == incarnation && other.1 < queued.sequence {
            // Their numbers show what is missing in between.
            return ReaderBehind::No;
        }
        let own = self.before.iter().filter(|position| {
            position.partition == partition && position.producer.as_str() == producer
        });
        let from = match own.map(ProducerPosition::order).max() {
            Some((joined, sequence)) if joined == incarnation => sequence + 1,
            Some((joined, _)) if joined > incarnation => return ReaderBehind::No,
            // It began after the reader.
            _ if incarnation > self.since => 1,
            _ => return ReaderBehind::No,
        };
        if from <= queued.previous { ReaderBehind::From(from) } else { ReaderBehind::No }
    }
}
