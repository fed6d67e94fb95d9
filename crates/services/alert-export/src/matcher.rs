//! The alerts of a batch that a filter matches.
//!
//! A packet has what was known when it was published, so that a filter cannot see points of the
//! future; light-curve functions leave out points after the alert, too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use helio_columns::{Decoder, Layout};
use helio_core::Schema;
use helio_filter::{Catalog, Filter, Matches, Plan};

use crate::ExportError;
use crate::alert::Alert;
use crate::options::FilterQuery;

/// A filter and the columns that it reads.
pub(crate) struct Matcher {
    query: FilterQuery,
    schemas: Vec<Schema>,
    planned: Planned,
}

struct Planned {
    plan: Plan,
    is_packet: bool,
    flat: Decoder,
    history: Option<Decoder>,
}

/// The matches of a batch.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    /// The alerts that match, by their index.
    pub(crate) alerts: Vec<usize>,
    /// The alerts that cannot be read.
    pub(crate) unreadable: Vec<usize>,
    /// The columns of the SELECT for those that match; `None` for whole packets.
    pub(crate) columns: Option<RecordBatch>,
}

impl Matcher {
    /// Checks and plans a filter for the schemas of a topic.
    pub(crate) fn new(query: FilterQuery, schemas: Vec<Schema>) -> Result<Self, ExportError> {
        let planned = Planned::new(&query, &schemas)?;
        Ok(Self { query, schemas, planned })
    }

    /// Finds the alerts that match.
    pub(crate) fn run(&mut self, alerts: &[Alert]) -> Result<Matched, ExportError> {
        for alert in alerts {
            let schema = alert.layout.schema();
            if !self.schemas.iter().any(|known| known.id() == schema.id()) {
                self.schemas.push(schema.clone());
                self.planned = Planned::new(&self.query, &self.schemas)?;
            }
        }
        // An alert whose history cannot be read is found after the flat columns were: once more
        // without it. That is rare.
        let mut unreadable = BTreeSet::new();
        loop {
            let before = unreadable.len();
            let found = self.planned.run(alerts, &mut unreadable)?;
            if let Some(mut matched) = found {
                matched.unreadable = unreadable.into_iter().collect();
                return Ok(matched);
            }
            if unreadable.len() == before {
                return Err(ExportError::Fault("a filter's history has no rows".to_owned()));
            }
        }
    }
}

impl Planned {
    fn new(query: &FilterQuery, schemas: &[Schema]) -> Result<Self, ExportError> {
        let whole = Layout::new(schemas, &["*"])?;
        let is_ztf = schemas.iter().any(|schema| schema.field("candidate").is_some());
        let names =
            if is_ztf { helio_filter::Layout::ztf() } else { helio_filter::Layout::rubin() };
        let mut catalog = Catalog::new(whole.schema(), names);
        for (name, region) in &query.regions {
            catalog = catalog.with_region(name, region.clone());
        }
        for (name, list) in &query.watch_lists {
            catalog = catalog.with_watch_list(name, Arc::clone(list));
        }
        let filter = Filter::check(&query.text, &catalog)?;
        let plan = Plan::new(Arc::new(catalog), [("export", &filter)])?;
        let flat = Decoder::new(&Layout::new(schemas, plan.flat_columns())?);
        let history: Vec<_> =
            plan.history_columns().iter().map(|path| path.replacen('.', "[].", 1)).collect();
        let history = match history.is_empty() {
            true => None,
            false => Some(Decoder::new(&Layout::new(schemas, &history)?)),
        };
        Ok(Self { plan, is_packet: filter.is_packet(), flat, history })
    }

    /// The matches; `None` if further alerts cannot be read, which are added to those.
    fn run(
        &mut self,
        alerts: &[Alert],
        unreadable: &mut BTreeSet<usize>,
    ) -> Result<Option<Matched>, ExportError> {
        let read: Vec<_> = (0..alerts.len()).filter(|at| !unreadable.contains(at)).collect();
        let (records, rows) = columns(&mut self.flat, alerts, &read, unreadable)?;
        let mut clock = || Duration::ZERO;
        let flat = self.plan.run_flat(records, &mut clock)?;
        let needed: Vec<_> =
            flat.rows_needing_history().iter().map(|row| rows[*row as usize]).collect();
        let history = match &mut self.history {
            Some(history) if !needed.is_empty() => {
                let (records, found) = columns(history, alerts, &needed, unreadable)?;
                if found.len() < needed.len() {
                    return Ok(None);
                }
                Some(records)
            }
            _ => None,
        };
        let matches = self.plan.run_history(flat, history, &mut clock)?;
        let matching = &matches.outcomes()[0].rows;
        let alerts = matching.iter().map(|row| rows[*row as usize]).collect();
        let columns = self.selected(&matches, matching)?;
        Ok(Some(Matched { alerts, unreadable: Vec::new(), columns }))
    }

    fn selected(
        &self,
        matches: &Matches,
        rows: &[u32],
    ) -> Result<Option<RecordBatch>, ExportError> {
        if self.is_packet {
            return Ok(None);
        }
        Ok(Some(self.plan.select(matches, 0, rows)?))
    }
}

/// Reads columns of some alerts; returns them with the alert of each row, and adds those that
/// cannot be read.
pub(crate) fn columns(
    decoder: &mut Decoder,
    alerts: &[Alert],
    read: &[usize],
    unreadable: &mut BTreeSet<usize>,
) -> Result<(RecordBatch, Vec<usize>), ExportError> {
    for at in read {
        let alert = &alerts[*at];
        // Its reason is in the batch.
        _ = decoder.push(alert.layout.schema(), &alert.datum);
    }
    let batch = decoder.finish().map_err(|error| ExportError::Fault(error.to_string()))?;
    unreadable.extend(batch.rejected.iter().map(|rejected| read[rejected.position]));
    let rows: Vec<_> = batch.positions.iter().map(|position| read[*position]).collect();
    if rows.len() + batch.rejected.len() < read.len() {
        return Err(ExportError::Fault("a batch of alerts is larger than columns".to_owned()));
    }
    Ok((batch.records, rows))
}
