//! A set of filters, prepared once and run on batches of packets.
//!
//! Operation. The flat columns of all filters are decoded at once. The plan names the packets whose
//! history it needs; only these are decoded again. Filters in Python get the same columns. A packet
//! that cannot be read is left out and named; a filter that fails is named, and the others stand.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use helio_columns::{Decoder, PushError};
use helio_filter::{Catalog, Filter, Matches, Plan, Rank};

use crate::check::{Checked, check};
use crate::counters::processor_time;
use crate::error::ServiceError;
use crate::names::FilterId;
use crate::python::{self, Pythons};
use crate::records::ActiveSet;
use crate::store::FilterStore;
use crate::stream::{Packet, Stream};

/// The limit of a batch's packets.
pub(crate) const MAX_BATCH_ALERTS: usize = 4_096;
/// The limit of the bytes of packets that are read again for their history: their columns take
/// about as much memory.
const MAX_HISTORY_BYTES: usize = 48 << 20;

/// A filter of a set.
#[derive(Debug, Clone)]
pub(crate) struct PreparedFilter {
    pub(crate) id: FilterId,
    /// Whether the user's filters rank.
    pub(crate) is_ranked: bool,
    /// Why it does not run.
    pub(crate) failure: Option<String>,
}

/// What a filter did with a batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// The matching packets by their index, with their ranks.
    pub(crate) matches: Vec<(usize, Rank)>,
    pub(crate) errors: u64,
    pub(crate) cpu: Duration,
    pub(crate) failure: Option<String>,
}

/// What a batch came to.
#[derive(Debug, Default)]
pub(crate) struct Evaluated {
    /// In the order of the filters.
    pub(crate) outcomes: Vec<Outcome>,
    /// Packets that could not be read.
    pub(crate) rejected: Vec<(usize, String)>,
    pub(crate) decode_cpu: Duration,
    /// Bytes of the decoded columns.
    pub(crate) column_bytes: u64,
}

/// A prepared set of filters.
pub(crate) struct Prepared {
    pub(crate) filters: Arc<[PreparedFilter]>,
    /// The filters in SQL, by their place in the plan.
    sql: Vec<usize>,
    python: Vec<usize>,
    plan: Plan,
    flat: Decoder,
    history: Decoder,
    /// The lists that filters in Python read, of all packets.
    python_lists: Option<Decoder>,
    python_columns: HashSet<String>,
}

/// Columns of a batch, and the index of each row's packet.
struct Rows {
    records: RecordBatch,
    packets: Vec<usize>,
}

impl Prepared {
    /// Prepares the active filters of all users. One that fails does not run.
    pub(crate) fn new(
        store: &mut FilterStore,
        active: &ActiveSet,
        pythons: &mut Pythons,
    ) -> Result<Self, ServiceError> {
        let catalog = store.catalog();
        let mut filters = Vec::new();
        let mut checked = Vec::new();
        for (user, versions) in active {
            let first = filters.len();
            for (name, version) in versions {
                let id = FilterId { user: user.clone(), name: name.clone(), version: *version };
                let found = prepare(store, &catalog, &id, pythons);
                let failure = found.as_ref().err().cloned();
                filters.push(PreparedFilter { id, is_ranked: false, failure });
                checked.push(found.ok());
            }
            set_mode(&mut filters[first..], &checked[first..]);
        }
        Self::plan(&store.stream, catalog, filters, &checked)
    }

    fn plan(
        stream: &Stream,
        catalog: Arc<Catalog>,
        filters: Vec<PreparedFilter>,
        checked: &[Option<Checked>],
    ) -> Result<Self, ServiceError> {
        let runs = |place: &usize| filters[*place].failure.is_none();
        let texts: Vec<Option<&Arc<Filter>>> =
            checked.iter().map(|text| text.as_ref().and_then(Checked::sql)).collect();
        let (sql, python): (Vec<usize>, Vec<usize>) =
            (0..filters.len()).filter(runs).partition(|place| texts[*place].is_some());
        let names: Vec<String> = filters.iter().map(|filter| filter.id.to_string()).collect();
        let named = sql.iter().filter_map(|place| Some((&*names[*place], &**texts[*place]?)));
        let plan = Plan::new(catalog, named);
        let plan = plan.map_err(|error| ServiceError::Batch(error.to_string()))?;
        let read = python.iter().filter_map(|place| checked[*place].as_ref());
        let read: BTreeSet<String> = read.flat_map(|text| text.columns.clone()).collect();
        let whole = stream.columns(&read.into_iter().collect::<Vec<_>>())?;
        let is_flat = |kind: &arrow_schema::DataType| !kind.is_nested();
        let fields = whole.schema().fields();
        let flat = fields.iter().filter(|field| is_flat(field.data_type()));
        let flat = flat.map(|field| field.name().clone());
        let flat: BTreeSet<String> = flat.chain(plan.flat_columns().iter().cloned()).collect();
        let has_lists = fields.iter().any(|field| !is_flat(field.data_type()));
        let python_lists = if has_lists { Some(Decoder::new(&whole)) } else { None };
        Ok(Self {
            python_columns: fields.iter().map(|field| field.name().clone()).collect(),
            flat: Decoder::new(&stream.columns(&flat.into_iter().collect::<Vec<_>>())?),
            history: Decoder::new(&stream.columns(plan.history_columns())?),
            python_lists,
            filters: filters.into(),
            sql,
            python,
            plan,
        })
    }

    /// Runs all filters on packets.
    pub(crate) fn run(
        &mut self,
        packets: &[Packet<'_>],
        pythons: &mut Pythons,
    ) -> Result<Evaluated, ServiceError> {
        let mut evaluated = Evaluated {
            outcomes: vec![Outcome::default(); self.filters.len()],
            ..Evaluated::default()
        };
        for (filter, outcome) in self.filters.iter().zip(&mut evaluated.outcomes) {
            outcome.failure.clone_from(&filter.failure);
        }
        let mut wanted: Vec<usize> = (0..packets.len()).collect();
        while !wanted.is_empty() {
            let chunk = wanted.len().min(MAX_BATCH_ALERTS);
            let rest = wanted.split_off(chunk);
            self.run_chunk(packets, wanted, pythons, &mut evaluated)?;
            wanted = rest;
        }
        evaluated.rejected.sort_unstable();
        evaluated.rejected.dedup_by_key(|(index, _)| *index);
        Ok(evaluated)
    }

    fn run_chunk(
        &mut self,
        packets: &[Packet<'_>],
        mut wanted: Vec<usize>,
        pythons: &mut Pythons,
        evaluated: &mut Evaluated,
    ) -> Result<(), ServiceError> {
        let before = processor_time();
        let rows = decode(&mut self.flat, packets, &wanted, &mut evaluated.rejected)?;
        evaluated.decode_cpu += processor_time().saturating_sub(before);
        let flat = self.plan.run_flat(rows.records.clone(), &mut processor_time);
        let flat = flat.map_err(failed)?;
        let needs = flat.rows_needing_history().iter().map(|row| rows.packets[*row as usize]);
        let needs: Vec<usize> = needs.collect();
        let lists = if self.python_lists.is_some() { &rows.packets } else { &needs };
        let bytes: usize = lists.iter().map(|index| packets[*index].metadata_bytes()).sum();
        if bytes > MAX_HISTORY_BYTES && wanted.len() > 1 {
            let half = wanted.split_off(wanted.len() / 2);
            self.run_chunk(packets, wanted, pythons, evaluated)?;
            return self.run_chunk(packets, half, pythons, evaluated);
        }
        let before = processor_time();
        let damaged = evaluated.rejected.len();
        let history = decode(&mut self.history, packets, &needs, &mut evaluated.rejected)?;
        let lists = match &mut self.python_lists {
            Some(decoder) => {
                Some(decode(decoder, packets, &rows.packets, &mut evaluated.rejected)?)
            }
            None => None,
        };
        evaluated.decode_cpu += processor_time().saturating_sub(before);
        if evaluated.rejected.len() > damaged {
            // What is damaged behind the flat columns: once more without these packets.
            let damaged: Vec<usize> = evaluated.rejected[damaged..].iter().map(|r| r.0).collect();
            wanted.retain(|index| !damaged.contains(index));
            return self.run_chunk(packets, wanted, pythons, evaluated);
        }
        let sizes =
            [Some(&rows.records), Some(&history.records), lists.as_ref().map(|l| &l.records)];
        let sizes = sizes.into_iter().flatten().map(RecordBatch::get_array_memory_size);
        evaluated.column_bytes += sizes.sum::<usize>() as u64;
        let records = (!needs.is_empty()).then_some(history.records);
        let matches = self.plan.run_history(flat, records, &mut processor_time);
        self.take_matches(&matches.map_err(failed)?, &rows, evaluated)?;
        self.run_python(&rows, lists.as_ref(), pythons, evaluated);
        Ok(())
    }

    fn take_matches(
        &self,
        matches: &Matches,
        rows: &Rows,
        evaluated: &mut Evaluated,
    ) -> Result<(), ServiceError> {
        for (place, found) in matches.outcomes().iter().enumerate() {
            let outcome = &mut evaluated.outcomes[self.sql[place]];
            outcome.cpu += found.time;
            outcome.errors += found.errors.len() as u64;
            if found.rows.is_empty() {
                continue;
            }
            let before = processor_time();
            let ranks = self.plan.ranks(matches, place, &found.rows).map_err(failed)?;
            outcome.cpu += processor_time().saturating_sub(before);
            let packets = found.rows.iter().map(|row| rows.packets[*row as usize]);
            outcome.matches.extend(packets.zip(ranks));
        }
        Ok(())
    }

    fn run_python(
        &self,
        rows: &Rows,
        lists: Option<&Rows>,
        pythons: &mut Pythons,
        evaluated: &mut Evaluated,
    ) {
        if self.python.is_empty() || rows.packets.is_empty() {
            return;
        }
        // The decoder of lists reads all columns of filters in Python.
        let batches = [&lists.unwrap_or(rows).records];
        let ids: Vec<&FilterId> = self.python.iter().map(|p| &self.filters[*p].id).collect();
        let selected = python::batch(&batches, &self.python_columns);
        let selected = match selected {
            Ok(batch) => pythons.select(&batch, &ids),
            Err(error) => ids.iter().map(|id| ((*id).clone(), Err(error.clone()))).collect(),
        };
        for (id, selected) in selected {
            let Some(place) = self.python.iter().find(|p| self.filters[**p].id == id) else {
                continue;
            };
            let outcome = &mut evaluated.outcomes[*place];
            match selected {
                Ok((mask, cpu)) => {
                    outcome.cpu += cpu;
                    let is_selected = |row: &usize| mask.is_selected(*row);
                    let found = (0..rows.packets.len()).filter(is_selected);
                    outcome.matches.extend(found.map(|r| (rows.packets[r], Rank::default())));
                }
                Err(failure) => outcome.failure = Some(failure),
            }
        }
    }
}

fn failed(error: helio_filter::RunError) -> ServiceError {
    ServiceError::Batch(error.to_string())
}

/// Checks a filter of a set, and starts one in Python.
fn prepare(
    store: &FilterStore,
    catalog: &Arc<Catalog>,
    id: &FilterId,
    pythons: &mut Pythons,
) -> Result<Checked, String> {
    let version = store.definitions().version(id).ok_or("there is no such version")?;
    let checked = check(version.language, &version.text, catalog, &store.stream);
    let checked = checked.map_err(|error| error.to_string())?;
    if checked.sql().is_none() {
        // One that cannot be started fails with each batch, until it can.
        pythons.start(id, &version.text);
    }
    Ok(checked)
}

/// Sets whether a user's filters rank. Those of a mix, which no activation admits, do not run.
fn set_mode(filters: &mut [PreparedFilter], checked: &[Option<Checked>]) {
    let running =
        filters.iter().zip(checked).filter(|(f, text)| f.failure.is_none() && text.is_some());
    let orders: BTreeSet<Option<&str>> =
        running.map(|(_, text)| text.as_ref().and_then(Checked::ranking)).collect();
    for filter in &mut *filters {
        filter.is_ranked = orders.iter().any(Option::is_some);
        if orders.len() > 1 {
            filter.failure = Some("the user's active filters rank in different ways".to_owned());
        }
    }
}

/// Decodes columns of packets; those that cannot be read are named.
fn decode(
    decoder: &mut Decoder,
    packets: &[Packet<'_>],
    wanted: &[usize],
    rejected: &mut Vec<(usize, String)>,
) -> Result<Rows, ServiceError> {
    for index in wanted {
        let packet = &packets[*index];
        match decoder.push(packet.schema(), &packet.datum) {
            Ok(()) | Err(PushError::Rejected(_)) => {}
            // The caller bounds the bytes of packets far below.
            Err(PushError::Full) => decoder.reject(helio_columns::Reason::Size(packet.datum.len())),
        }
    }
    let batch = decoder.finish().map_err(|error| ServiceError::Batch(error.to_string()))?;
    let reason = |one: helio_columns::Rejected| (wanted[one.position], one.reason.to_string());
    rejected.extend(batch.rejected.into_iter().map(reason));
    let packets = batch.positions.into_iter().map(|position| wanted[position]).collect();
    Ok(Rows { records: batch.records, packets })
}
