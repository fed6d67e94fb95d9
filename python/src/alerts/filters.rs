//! Users' filters over packets in Arrow arrays, for engines that distribute batches themselves.
//!
//! Constraints. What a packet matches depends on the packet and the filters alone, so that any
//! split into batches and processes gives the same matches. The best alerts of a user and visit
//! are chosen by `helio_filter::cap`, as in the filter service.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::builder::{Int64Builder, StringBuilder, UInt32Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use helio_alerts::framing::Schemas;
use helio_alerts::layout::Layout as PacketLayout;
use helio_alerts::rubin::Version;
use helio_bus::transport::locked;
use helio_columns::{Decoder, Layout};
use helio_core::Schema as CoreSchema;
use helio_filter::cap::{Candidate, Mode, Top};
use helio_filter::{
    Catalog, Filter, Layout as SkyLayout, LiveWatchList, Matches, Plan, Rank, Region, WatchList,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::capsules::{self, Capsules, fault};
use crate::errors;
use crate::schema::Schema;

/// Packets that are read at once; it bounds the columns' memory.
const CHUNK: usize = 1_024;

/// A packet that could not be read: its row, and the reason.
type Rejected = (usize, String);

/// Filters of users, planned once.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawFilterSet")]
pub(crate) struct RawFilterSet(Mutex<FilterSet>);

/// Columns, by Arrow's capsule interface.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawColumns")]
pub(crate) struct RawColumns(RecordBatch);

struct FilterSet {
    schemas: Schemas,
    plan: Plan,
    flat: Decoder,
    history: Decoder,
    /// User and name of each of the plan's filters.
    filters: Vec<(String, String)>,
}

/// A packet without its frame.
struct Packet<'a> {
    row: usize,
    layout: Arc<PacketLayout>,
    datum: Cow<'a, [u8]>,
}

/// The columns of matches.
#[derive(Default)]
struct Found {
    row: UInt32Builder,
    visit: Int64Builder,
    user: StringBuilder,
    alert: Int64Builder,
    rank: StringBuilder,
    filter: StringBuilder,
}

fn invalid(error: &dyn std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// What filters name beside columns.
struct Lists {
    /// Name, positions (degrees) and radius (arcseconds).
    watch_lists: Vec<(String, Vec<[f64; 2]>, f64)>,
    /// Name, and ranges of nested cells of HEALPix's order 29, each without its end.
    regions: Vec<(String, Vec<[u64; 2]>)>,
}

impl Lists {
    fn add_to(self, mut catalog: Catalog) -> PyResult<Catalog> {
        for (name, positions, radius_arcsec) in self.watch_lists {
            let list = WatchList::new(positions, radius_arcsec)
                .map_err(|error| invalid(&format!("watch list {name}: {error}")))?;
            catalog = catalog.with_watch_list(name, Arc::new(LiveWatchList::new(list)));
        }
        for (name, ranges) in self.regions {
            let ranges = ranges.into_iter().map(|[start, end]| start..end).collect();
            let region =
                Region::new(ranges).map_err(|error| invalid(&format!("region {name}: {error}")))?;
            catalog = catalog.with_region(name, region);
        }
        Ok(catalog)
    }
}

impl FilterSet {
    fn new(
        given: Vec<(u32, CoreSchema)>,
        texts: Vec<(String, String, String)>,
        lists: Lists,
    ) -> PyResult<Self> {
        let mut schemas = Schemas::rubin();
        let mut all: Vec<CoreSchema> = given.iter().map(|(_, schema)| schema.clone()).collect();
        if all.is_empty() {
            all = Version::ALL.iter().map(|version| version.schema().clone()).collect();
        }
        given.iter().for_each(|(number, schema)| schemas.add(*number, schema));
        let no_columns = |error| errors::raise("SchemaError", &format!("{error}"));
        let whole = Layout::new(&all, &["*"]).map_err(no_columns)?;
        let is_ztf = all.iter().any(|schema| schema.field("candidate").is_some());
        let sky = if is_ztf { SkyLayout::ztf() } else { SkyLayout::rubin() };
        let catalog = Arc::new(lists.add_to(Catalog::new(whole.schema(), sky))?);
        let mut checked = BTreeMap::<String, Vec<(String, Filter)>>::new();
        for (user, name, text) in texts {
            let filter = Filter::check(&text, &catalog)
                .map_err(|error| invalid(&format!("filter {name} of {user}: {error}")))?;
            checked.entry(user).or_default().push((name, filter));
        }
        for (user, filters) in &checked {
            let named = filters.iter().map(|(name, filter)| (name.as_str(), filter));
            Mode::of(named).map_err(|error| invalid(&format!("user {user}: {error}")))?;
        }
        let filters = checked.iter().flat_map(|(user, filters)| {
            filters.iter().map(move |(name, filter)| (format!("{user}/{name}"), filter))
        });
        let filters: Vec<(String, &Filter)> = filters.collect();
        let named = filters.iter().map(|(name, filter)| (name.as_str(), *filter));
        let plan = Plan::new(Arc::clone(&catalog), named).map_err(|error| invalid(&error))?;
        let flat = Layout::new(&all, plan.flat_columns()).map_err(no_columns)?;
        let paths = plan.history_columns().iter().map(|path| path.replacen('.', "[].", 1));
        let history = Layout::new(&all, &paths.collect::<Vec<_>>()).map_err(no_columns)?;
        let (flat, history) = (Decoder::new(&flat), Decoder::new(&history));
        let filters = checked.into_iter().flat_map(|(user, filters)| {
            filters.into_iter().map(move |(name, _)| (user.clone(), name))
        });
        Ok(Self { schemas, plan, flat, history, filters: filters.collect() })
    }

    /// The matches of packets, and the packets that could not be read.
    fn run(&mut self, packets: &[Option<&[u8]>]) -> PyResult<(RecordBatch, Vec<Rejected>)> {
        let (mut found, mut rejected) = (Found::default(), Vec::new());
        let mut opened = Vec::new();
        for (row, packet) in packets.iter().enumerate() {
            let Some(packet) = packet else {
                rejected.push((row, "no packet".to_owned()));
                continue;
            };
            match self.schemas.open(packet) {
                Ok(packet) => opened.extend(packet.datums.into_iter().map(|datum| Packet {
                    row,
                    layout: Arc::clone(&packet.layout),
                    datum,
                })),
                Err(error) => rejected.push((row, error.to_string())),
            }
        }
        for chunk in opened.chunks(CHUNK) {
            self.run_chunk(chunk, &mut found, &mut rejected)?;
        }
        rejected.sort();
        Ok((found.finish()?, rejected))
    }

    /// Once more without a packet whose history cannot be read, which is found after its flat
    /// columns were.
    fn run_chunk(
        &mut self,
        packets: &[Packet<'_>],
        found: &mut Found,
        rejected: &mut Vec<Rejected>,
    ) -> PyResult<()> {
        let mut read: Vec<usize> = (0..packets.len()).collect();
        loop {
            let before = rejected.len();
            let (records, rows) = columns(&mut self.flat, packets, &read, rejected)?;
            let mut clock = || Duration::ZERO;
            let flat = self.plan.run_flat(records, &mut clock).map_err(|error| fault(&error))?;
            let needed = flat.rows_needing_history().iter().map(|row| rows[*row as usize]);
            let needed: Vec<usize> = needed.collect();
            let (history, known) = columns(&mut self.history, packets, &needed, rejected)?;
            if known.len() < needed.len() {
                let rows: BTreeSet<usize> = rejected[before..].iter().map(|one| one.0).collect();
                read.retain(|at| !rows.contains(&packets[*at].row));
                continue;
            }
            let history = (!needed.is_empty()).then_some(history);
            let matches = self.plan.run_history(flat, history, &mut clock);
            let matches = matches.map_err(|error| fault(&error))?;
            return self.take(&matches, packets, &rows, (found, rejected));
        }
    }

    fn take(
        &self,
        matches: &Matches,
        packets: &[Packet<'_>],
        rows: &[usize],
        into: (&mut Found, &mut Vec<Rejected>),
    ) -> PyResult<()> {
        let (found, rejected) = into;
        let mut nameless = BTreeSet::new();
        for (place, outcome) in matches.outcomes().iter().enumerate() {
            let ranks = self.plan.ranks(matches, place, &outcome.rows);
            let ranks = ranks.map_err(|error| fault(&error))?;
            for (row, rank) in outcome.rows.iter().zip(&ranks) {
                let packet = &packets[rows[*row as usize]];
                match named(packet) {
                    Ok(alert) => found.push(packet.row, alert, &self.filters[place], rank)?,
                    Err(reason) if nameless.insert(packet.row) => {
                        rejected.push((packet.row, reason));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// The alert's identifier, and its visit: 0 where the schema does not name one as Rubin's does.
fn named(packet: &Packet<'_>) -> Result<(i64, i64), String> {
    let id = packet.layout.alert_id(&packet.datum).map_err(|error| error.to_string())?;
    let id = id.ok_or("the schema has no identifier of alerts")?;
    let ccd = packet.layout.ccd(&packet.datum).map_err(|error| error.to_string())?;
    Ok((id, ccd.map_or(0, |ccd| ccd.visit)))
}

/// Reads columns of some packets; gives them with the packet of each row.
fn columns(
    decoder: &mut Decoder,
    packets: &[Packet<'_>],
    read: &[usize],
    rejected: &mut Vec<Rejected>,
) -> PyResult<(RecordBatch, Vec<usize>)> {
    for at in read {
        // Its reason is in the batch.
        _ = decoder.push(packets[*at].layout.schema(), &packets[*at].datum);
    }
    let batch = decoder.finish().map_err(|error| fault(&error))?;
    let reason =
        |one: &helio_columns::Rejected| (packets[read[one.position]].row, one.reason.to_string());
    rejected.extend(batch.rejected.iter().map(reason));
    if batch.positions.len() + batch.rejected.len() < read.len() {
        return Err(PyValueError::new_err("the columns of 1,024 packets exceed 2 GiB"));
    }
    let rows = batch.positions.iter().map(|position| read[*position]).collect();
    Ok((batch.records, rows))
}

impl Found {
    fn push(
        &mut self,
        row: usize,
        alert: (i64, i64),
        filter: &(String, String),
        rank: &Rank,
    ) -> PyResult<()> {
        self.row.append_value(u32::try_from(row).map_err(|error| invalid(&error))?);
        self.alert.append_value(alert.0);
        self.visit.append_value(alert.1);
        self.user.append_value(&filter.0);
        self.filter.append_value(&filter.1);
        self.rank.append_value(serde_json::to_string(rank).map_err(|error| fault(&error))?);
        Ok(())
    }

    fn finish(mut self) -> PyResult<RecordBatch> {
        let columns: [(&str, ArrayRef); 6] = [
            ("row", Arc::new(self.row.finish())),
            ("visit", Arc::new(self.visit.finish())),
            ("user", Arc::new(self.user.finish())),
            ("alert", Arc::new(self.alert.finish())),
            ("rank", Arc::new(self.rank.finish())),
            ("filter", Arc::new(self.filter.finish())),
        ];
        RecordBatch::try_from_iter(columns).map_err(|error| fault(&error))
    }
}

/// The texts of a column.
fn texts<'a>(records: &'a RecordBatch, name: &str) -> PyResult<Vec<&'a str>> {
    let wrong = || PyTypeError::new_err(format!("matches have a column of texts {name}"));
    let column = records.column_by_name(name).ok_or_else(wrong)?;
    let texts: Option<Vec<&str>> = match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().iter().collect(),
        DataType::LargeUtf8 => column.as_string::<i64>().iter().collect(),
        _ => None,
    };
    texts.ok_or_else(wrong)
}

fn numbers<'a>(records: &'a RecordBatch, name: &str) -> PyResult<&'a [i64]> {
    let column = records.column_by_name(name).filter(|column| column.null_count() == 0);
    let column = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    let wrong = || PyTypeError::new_err(format!("matches have a column of 64-bit integers {name}"));
    Ok(column.ok_or_else(wrong)?.values())
}

/// The best alerts of each visit and user, of matches or of such a choice among some of them.
fn best(all: &[RecordBatch]) -> PyResult<RecordBatch> {
    let mut tops = BTreeMap::<(i64, &str), Top>::new();
    for records in all {
        let (visits, alerts) = (numbers(records, "visit")?, numbers(records, "alert")?);
        let (users, ranks) = (texts(records, "user")?, texts(records, "rank")?);
        for (row, filter) in texts(records, "filter")?.into_iter().enumerate() {
            let rank: Rank = serde_json::from_str(ranks[row])
                .map_err(|error| invalid(&format!("the rank {:?}: {error}", ranks[row])))?;
            if rank.0.is_empty() {
                let first_come = "its filters have no ORDER BY, and the first alerts of all are \
                                  granted by the filter service alone";
                return Err(invalid(&format!("user {}: {first_come}", users[row])));
            }
            let filters = [filter.to_owned()].into();
            let candidate = Candidate { alert: alerts[row], rank, filters };
            tops.entry((visits[row], users[row])).or_default().insert(candidate);
        }
    }
    let mut found = Found::default();
    for ((visit, user), top) in &tops {
        for (place, candidate) in top.candidates().iter().enumerate() {
            for filter in &candidate.filters {
                let filter = ((*user).to_owned(), filter.clone());
                found.push(place, (candidate.alert, *visit), &filter, &candidate.rank)?;
            }
        }
    }
    found.finish()
}

/// The packets of a column of bytes.
fn packets(array: &ArrayRef) -> PyResult<Vec<Option<&[u8]>>> {
    match array.data_type() {
        DataType::Binary => Ok(array.as_binary::<i32>().iter().collect()),
        DataType::LargeBinary => Ok(array.as_binary::<i64>().iter().collect()),
        other => {
            Err(PyTypeError::new_err(format!("packets are a column of bytes, not of {other}")))
        }
    }
}

#[pymethods]
impl RawFilterSet {
    /// Checks and plans filters: user, name and text of each.
    #[new]
    fn new(
        py: Python<'_>,
        schemas: Vec<(u32, PyRef<'_, Schema>)>,
        filters: Vec<(String, String, String)>,
        watch_lists: Vec<(String, Vec<[f64; 2]>, f64)>,
        regions: Vec<(String, Vec<[u64; 2]>)>,
    ) -> PyResult<Self> {
        let lists = Lists { watch_lists, regions };
        let schemas: Vec<_> =
            schemas.iter().map(|(number, schema)| (*number, schema.schema().clone())).collect();
        py.detach(|| FilterSet::new(schemas, filters, lists)).map(|set| Self(Mutex::new(set)))
    }

    /// Runs all filters on a column of packets.
    fn run(
        &self,
        py: Python<'_>,
        column: &Bound<'_, PyAny>,
    ) -> PyResult<(RawColumns, Vec<Rejected>)> {
        let array = capsules::import(column)?;
        let found = py.detach(|| locked(&self.0).run(&packets(&array)?));
        found.map(|(records, rejected)| (RawColumns(records), rejected))
    }
}

#[pymethods]
impl RawColumns {
    /// The capsules of Arrow's PyCapsule interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Capsules<'py>> {
        drop(requested_schema);
        capsules::export(py, &self.0)
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }
}

/// The best alerts of each visit and user among matches.
#[pyfunction]
pub(super) fn best_matches(py: Python<'_>, all: Vec<Bound<'_, PyAny>>) -> PyResult<RawColumns> {
    let batches: PyResult<Vec<RecordBatch>> = all
        .iter()
        .map(|one| {
            let array = capsules::import(one)?;
            let columns = array.as_struct_opt();
            let wrong = || PyTypeError::new_err("matches are a record batch");
            columns.map(RecordBatch::from).ok_or_else(wrong)
        })
        .collect();
    let batches = batches?;
    py.detach(|| best(&batches)).map(RawColumns)
}
