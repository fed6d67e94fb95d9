//! The control topic's records of the visits to export.

use std::collections::BTreeSet;

use helio_alerts::reader::starts;
use helio_alerts::topics::control_topic;
use helio_alerts::visit::{Closing, Control, Fact, Ledger, MAX_VISITS, Visit};
use helio_bus::{Bus, Topic};
use helio_core::Tai;
use helio_core::codec::Codec;
use helio_core::schema::HasSchema;

use crate::ExportError;
use crate::options::Selection;
use crate::reading::{Next, PartitionReader};

/// The visits to export.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    ledger: Ledger,
    /// Decided ones, in the order of their closing records.
    pub(crate) closed: Vec<i64>,
    /// Others.
    pub(crate) open: Vec<i64>,
}

impl Visits {
    /// Reads the control topic up to its end.
    pub(crate) fn read(bus: &Bus, alerts: &str, wanted: &Selection) -> Result<Self, ExportError> {
        let topic = control_topic(bus, alerts)?;
        let selected = selected(&topic, wanted)?;
        let mut found = Self::default();
        each_record(&topic, |record| {
            if selected.contains(&record.visit())
                && let Fact::Decided(closing) = found.ledger.take(record)
            {
                found.closed.push(closing.visit);
            }
        })?;
        if selected.iter().all(|visit| found.visit(*visit).is_none()) {
            let topic = topic.name().to_string();
            return Err(ExportError::NoVisits { topic, wanted: wanted.to_string() });
        }
        let is_open = |visit: &i64| found.closing(*visit).is_none();
        found.open = selected.iter().copied().filter(is_open).collect();
        Ok(found)
    }

    /// A visit's decision.
    pub(crate) fn closing(&self, visit: i64) -> Option<&Closing> {
        self.visit(visit).and_then(Visit::closing)
    }

    pub(crate) fn visit(&self, visit: i64) -> Option<&Visit> {
        self.ledger.visit(visit)
    }

    /// The positions before all alerts of some visits; the end of a partition that has none.
    pub(crate) fn start(&self, visits: &[i64], ends: &[u64]) -> Vec<u64> {
        let mut first = ends.to_vec();
        for visit in visits.iter().filter_map(|visit| self.visit(*visit)) {
            for (first, start) in first.iter_mut().zip(starts(visit, ends.len())) {
                if start.may_have_alerts {
                    *first = start.offset.min(*first);
                }
            }
        }
        first
    }
}

/// A position of a list, which may be shorter than the topic's partitions.
pub(crate) fn at(positions: &[u64], partition: usize) -> u64 {
    positions.get(partition).copied().unwrap_or(0)
}

/// The positions of a closing record.
pub(crate) fn positions(ends: &[i64]) -> Vec<u64> {
    ends.iter().map(|end| u64::try_from(*end).unwrap_or(0)).collect()
}

/// The visits of a night, or those that were named.
fn selected(topic: &Topic, wanted: &Selection) -> Result<BTreeSet<i64>, ExportError> {
    let night = match wanted {
        Selection::Visits(visits) => return limited(visits.clone()),
        Selection::Night(night) => night,
    };
    let (mut opened, mut visits) = (BTreeSet::new(), BTreeSet::new());
    each_record(topic, |record| {
        // The first opening record of a visit counts.
        if let Control::Opening(opening) = record
            && opened.insert(opening.visit)
            && night.contains(Tai::from_nanos(opening.shutter_close_ns))
        {
            visits.insert(opening.visit);
        }
    })?;
    limited(visits)
}

fn limited(visits: BTreeSet<i64>) -> Result<BTreeSet<i64>, ExportError> {
    let (found, limit) = (visits.len(), MAX_VISITS);
    if found > limit { Err(ExportError::TooManyVisits { found, limit }) } else { Ok(visits) }
}

/// Reads the records that are stored now.
fn each_record(topic: &Topic, mut each: impl FnMut(Control)) -> Result<(), ExportError> {
    let schema = Control::schema().expect("the records' schemas are compiled in");
    let codec = Codec::new(&schema);
    let log = topic.partitions()?.into_iter().next();
    let Some(log) = log.filter(|log| log.end > log.first) else { return Ok(()) };
    let mut reader = PartitionReader::open(topic, log.partition, log.first)?;
    while let Next::Sample(sample) = reader.next_before(log.end)? {
        // A record that cannot be read leaves its visit open, which is reported.
        if let Ok(record) = codec.deserialize(&sample.payload) {
            each(record);
        }
    }
    Ok(())
}
