//! What a writer accepted of a batch, and how batches are split.

use super::Record;
use crate::error::PublishError;
use crate::receipts::Published;

/// A writer's answer to a batch: a prefix of its samples was accepted.
#[derive(Debug, Default)]
pub struct BatchAdmission {
    /// The accepted samples, in order.
    pub runs: Vec<AcceptedRun>,
    /// The error of the sample behind them. Later samples were not tried.
    pub failed: Option<PublishError>,
}

/// Samples that were accepted together: their sequences and offsets are consecutive.
#[derive(Debug)]
pub struct AcceptedRun {
    /// How many, at least one.
    pub samples: usize,
    /// The receipt of the last one. Its outcome is the outcome of each.
    pub last: Published,
}

impl BatchAdmission {
    /// The answer of a writer that accepted nothing.
    #[must_use]
    pub fn refused(cause: PublishError) -> Self {
        Self { runs: Vec::new(), failed: Some(cause) }
    }

    /// Adds accepted samples.
    pub fn accept(&mut self, samples: usize, last: Published) {
        self.runs.push(AcceptedRun { samples, last });
    }

    /// The number of accepted samples.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.runs.iter().map(|run| run.samples).sum()
    }
}

/// Splits a batch into parts of at most so many records and bytes. A record that is larger than
/// `max_bytes` is a part of its own.
pub(crate) fn parts<'r, 'a>(
    mut records: &'r [Record<'a>],
    max_records: usize,
    max_bytes: usize,
) -> impl Iterator<Item = &'r [Record<'a>]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |record: &&Record<'_>| {
            bytes += record.bytes();
            bytes <= max_bytes
        };
        let count = records.iter().take(max_records).take_while(fits).count();
        let (part, rest) = records.split_at_checked(count.max(1))?;
        records = rest;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use helio_core::{HeadersRef, SchemaId, Tai};

    use super::*;

    #[test]
    fn parts_are_bounded_by_records_and_bytes_and_leave_nothing_out() {
        let payload = [0; 100];
        let record = |bytes: usize| Record {
            key: &[],
            payload: &payload[..bytes],
            time: Tai::from_nanos(0),
            schema: SchemaId::default(),
            level: 0,
            trace: None,
            headers: HeadersRef::EMPTY,
        };
        let split = |sizes: &[usize], max_records, max_bytes| -> Vec<Vec<usize>> {
            let records: Vec<_> = sizes.iter().map(|bytes| record(*bytes)).collect();
            let sizes = |part: &[Record<'_>]| part.iter().map(Record::bytes).collect();
            parts(&records, max_records, max_bytes).map(sizes).collect()
        };
        assert_eq!(split(&[10, 20, 30, 40], 9, 60), [vec![10, 20, 30], vec![40]]);
        assert_eq!(split(&[70, 10, 70, 70], 9, 60), [vec![70], vec![10], vec![70], vec![70]]);
        assert_eq!(split(&[0; 5], 2, 60), [vec![0, 0], vec![0, 0], vec![0]]);
        assert!(split(&[], 2, 60).is_empty());
    }
}
