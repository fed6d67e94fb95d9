//! All filters of a service in one plan: each expression once a batch, history for survivors only.
//!
//! A filter's conjuncts run in order of their cost, then of its text: cheap flat ones over whole
//! batches, costly flat ones (positions) and light curves over the rows that some filter still
//! needs. What a filter matches, and which of its alerts count as errors, depends on no other
//! filter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{Field, Schema};

use crate::catalog::{Catalog, Named};
use crate::env::Env;
use crate::error::{PlanError, RunError};
use crate::filter::Filter;
use crate::kernel::is_true;
use crate::limits::{MAX_BATCH_ROWS, MAX_FILTERS};
use crate::points::rows_of;
use crate::rank::{Rank, keys};
use crate::sql::{OrderKey, SelectColumn, Source};
use crate::tree::{Cost, NodeId, Op, Tree};

/// A reading of a clock, such as the thread's processor time; only differences count.
pub type Clock<'a> = &'a mut dyn FnMut() -> Duration;

/// Filters in one plan.
#[derive(Debug)]
pub struct Plan {
    catalog: Arc<Catalog>,
    tree: Tree,
    filters: Vec<Planned>,
    flat_columns: Vec<String>,
    history_columns: Vec<String>,
}

#[derive(Debug)]
struct Planned {
    name: String,
    cheap: Vec<NodeId>,
    costly: Vec<NodeId>,
    history: Vec<NodeId>,
    select: Vec<SelectColumn>,
    order: Vec<OrderKey>,
    /// Whether its results need history, though its conditions may not.
    shows_history: bool,
}

/// What a filter did with a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The rows of the batch that match, ascending.
    pub rows: Vec<u32>,
    /// The rows in which an operation failed, such as an integer division by zero, ascending.
    pub errors: Vec<u32>,
    /// The time by the given clock; work for several filters is shared evenly.
    pub time: Duration,
}

/// A filter's progress through its conjuncts.
#[derive(Debug, Clone)]
struct State {
    mask: BooleanBuffer,
    errors: BooleanBuffer,
    time: Duration,
}

/// A batch after the flat conjuncts.
#[derive(Debug)]
pub struct Flat {
    batch: RecordBatch,
    states: Vec<State>,
    rows: Vec<u32>,
}

impl Flat {
    /// The rows whose history columns [`Plan::run_history`] needs, ascending.
    #[must_use]
    pub fn rows_needing_history(&self) -> &[u32] {
        &self.rows
    }
}

/// A batch after all conjuncts.
#[derive(Debug)]
pub struct Matches {
    batch: RecordBatch,
    history: Option<RecordBatch>,
    /// The batch's rows in `history`.
    rows: Vec<u32>,
    outcomes: Vec<Outcome>,
}

impl Matches {
    /// The outcomes, in the order of the plan's filters.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }
}

/// Whether a conjunct is true, so far as it was evaluated.
struct Truth {
    covered: BooleanBuffer,
    is_true: BooleanBuffer,
    errors: BooleanBuffer,
}

impl Plan {
    /// Plans filters by their names.
    ///
    /// # Errors
    ///
    /// Too many filters, two of one name, or one that was checked against another schema.
    pub fn new<'f>(
        catalog: Arc<Catalog>,
        filters: impl IntoIterator<Item = (&'f str, &'f Filter)>,
    ) -> Result<Self, PlanError> {
        let mut plan = Self {
            catalog,
            tree: Tree::default(),
            filters: Vec::new(),
            flat_columns: Vec::new(),
            history_columns: Vec::new(),
        };
        let mut names = BTreeSet::new();
        for (name, filter) in filters {
            if !names.insert(name) {
                return Err(PlanError::Twice(name.to_owned()));
            }
            // Columns are known by their index: a catalog of another schema would mix them up.
            let filter = Filter::check(filter.text(), &plan.catalog)
                .map_err(|cause| PlanError::Stale { name: name.to_owned(), cause })?;
            plan.add(name, &filter);
        }
        let (found, limit) = (plan.filters.len(), MAX_FILTERS);
        if found > limit {
            return Err(PlanError::TooMany { found, limit });
        }
        plan.find_columns();
        Ok(plan)
    }

    fn add(&mut self, name: &str, filter: &Filter) {
        let parts = &filter.parts;
        let ids = self.tree.absorb(&parts.tree);
        let ours = |id: NodeId| ids[id.index()];
        let mut seen = BTreeSet::new();
        let conjuncts: Vec<NodeId> = parts.conjuncts.iter().map(|id| ours(*id)).collect();
        let of = |cost: Cost, tree: &Tree, seen: &mut BTreeSet<NodeId>| -> Vec<NodeId> {
            let of_cost = conjuncts.iter().filter(|id| tree.cost(**id) == cost);
            of_cost.copied().filter(|id| seen.insert(*id)).collect()
        };
        let select = parts.select.iter().flatten().map(|column| SelectColumn {
            name: column.name.clone(),
            source: match column.source {
                Source::Computed(node) => Source::Computed(ours(node)),
                column => column,
            },
        });
        let select: Vec<_> = select.collect();
        let order = parts.order.iter().map(|key| OrderKey { node: ours(key.node), ..*key });
        let order: Vec<_> = order.collect();
        let shown = select.iter().filter_map(|column| match column.source {
            Source::Computed(node) => Some(node),
            Source::Column(_) => None,
        });
        let mut shown = shown.chain(order.iter().map(|key| key.node));
        let shows_history = shown.any(|node| self.tree.cost(node) == Cost::History);
        let planned = Planned {
            name: name.to_owned(),
            cheap: of(Cost::Cheap, &self.tree, &mut seen),
            costly: of(Cost::Costly, &self.tree, &mut seen),
            history: of(Cost::History, &self.tree, &mut seen),
            select,
            order,
            shows_history,
        };
        self.filters.push(planned);
    }

    fn find_columns(&mut self) {
        let (mut flat, mut histories) = (BTreeSet::new(), BTreeSet::new());
        let mut roots = Vec::new();
        for filter in &self.filters {
            roots.extend(filter.cheap.iter().chain(&filter.costly).chain(&filter.history));
            roots.extend(filter.order.iter().map(|key| &key.node));
            for column in &filter.select {
                match &column.source {
                    Source::Computed(node) => roots.push(node),
                    Source::Column(index) => drop(flat.insert(*index)),
                }
            }
        }
        for id in self.tree.reachable(roots.into_iter().copied()) {
            match &self.tree.node(id).op {
                Op::Column(index) => drop(flat.insert(*index)),
                Op::Field { history, field } => drop(histories.insert((*history, *field))),
                Op::Curve { history, .. } => {
                    histories.extend(self.catalog.history(*history).time.map(|t| (*history, t)));
                    if let Some(Named::Flat(time)) = self.catalog.named(&self.catalog.layout().time)
                    {
                        flat.insert(time);
                    }
                }
                _ => {}
            }
        }
        self.flat_columns = flat.iter().map(|i| self.catalog.flat(*i).name.clone()).collect();
        let field = |(history, field): &(usize, usize)| {
            let column = self.catalog.history(*history);
            format!("{}.{}", column.name, column.fields[*field].name)
        };
        self.history_columns = histories.iter().map(field).collect();
    }

    /// The filters' names, in the order of [`Matches::outcomes`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.filters.iter().map(|filter| filter.name.as_str())
    }

    /// The columns that [`Plan::run_flat`] needs, in the schema's order.
    #[must_use]
    pub fn flat_columns(&self) -> &[String] {
        &self.flat_columns
    }

    /// The fields of history columns that [`Plan::run_history`] needs, such as
    /// `prvDiaSources.psfFlux`.
    #[must_use]
    pub fn history_columns(&self) -> &[String] {
        &self.history_columns
    }

    /// The number of different expressions of all filters.
    #[must_use]
    pub fn expressions(&self) -> usize {
        self.tree.len()
    }

    /// Evaluates the flat conjuncts on a batch that has [`Plan::flat_columns`], at least.
    ///
    /// # Errors
    ///
    /// A batch that lacks a column, has one of another type, or too many rows.
    pub fn run_flat(&self, batch: RecordBatch, clock: Clock<'_>) -> Result<Flat, RunError> {
        let rows = batch.num_rows();
        if rows > MAX_BATCH_ROWS {
            return Err(RunError::Rows { found: rows, takes: format!("at most {MAX_BATCH_ROWS}") });
        }
        let state = State {
            mask: BooleanBuffer::new_set(rows),
            errors: BooleanBuffer::new_unset(rows),
            time: Duration::ZERO,
        };
        let mut states = vec![state; self.filters.len()];
        let env = Env::of_batch(&self.catalog, &self.tree, &batch);
        self.run_conjuncts(&env, &mut states, |filter| &filter.cheap, clock)?;
        self.run_conjuncts(&env, &mut states, |filter| &filter.costly, clock)?;
        drop(env);
        let mut needed = BooleanBuffer::new_unset(rows);
        for (filter, state) in self.filters.iter().zip(&states) {
            if filter.shows_history || !filter.history.is_empty() {
                needed = &needed | &state.mask;
            }
        }
        Ok(Flat { rows: rows_of(&needed), batch, states })
    }

    /// Evaluates the light-curve conjuncts. The history batch has [`Plan::history_columns`] and
    /// one row for each of [`Flat::rows_needing_history`], in their order; it may be left out
    /// where there are none.
    ///
    /// # Errors
    ///
    /// As of [`Plan::run_flat`], and a batch with another number of rows.
    pub fn run_history(
        &self,
        flat: Flat,
        history: Option<RecordBatch>,
        clock: Clock<'_>,
    ) -> Result<Matches, RunError> {
        let Flat { batch, mut states, rows } = flat;
        let found = history.as_ref().map_or(0, RecordBatch::num_rows);
        if found != rows.len() {
            return Err(RunError::Rows { found, takes: format!("{} needed", rows.len()) });
        }
        let whole = Env::of_batch(&self.catalog, &self.tree, &batch);
        let env = whole.with_history(rows.clone().into(), history.as_ref());
        // In the rows that have history.
        let mut narrow: Vec<State> = states.iter().map(|state| state.gathered(&rows)).collect();
        self.run_conjuncts(&env, &mut narrow, |filter| &filter.history, clock)?;
        for ((filter, state), narrow) in self.filters.iter().zip(&mut states).zip(narrow) {
            if !filter.history.is_empty() {
                state.scatter(&narrow, &rows);
            }
            state.time = narrow.time;
        }
        drop(env);
        drop(whole);
        let outcomes = states.into_iter().map(State::outcome).collect();
        Ok(Matches { batch, history, rows, outcomes })
    }

    /// Evaluates both parts on a batch that has all columns, at least.
    ///
    /// # Errors
    ///
    /// As of [`Plan::run_flat`].
    pub fn run(&self, batch: RecordBatch, clock: Clock<'_>) -> Result<Matches, RunError> {
        let flat = self.run_flat(batch, clock)?;
        let rows = UInt32Array::from(flat.rows.clone());
        let history = self.history_of(&flat.batch, &rows)?;
        self.run_history(flat, history, clock)
    }

    fn history_of(
        &self,
        batch: &RecordBatch,
        rows: &UInt32Array,
    ) -> Result<Option<RecordBatch>, RunError> {
        if rows.is_empty() {
            return Ok(None);
        }
        let names: BTreeSet<&str> =
            self.history_columns.iter().filter_map(|name| Some(name.rsplit_once('.')?.0)).collect();
        let schema = batch.schema();
        let indices =
            names.iter().filter_map(|name| schema.index_of(name).ok()).collect::<Vec<_>>();
        let columns = batch.project(&indices)?;
        Ok(Some(arrow_select::take::take_record_batch(&columns, rows)?))
    }

    /// Runs the conjuncts of one cost: the first of every filter, then the second, and so on.
    fn run_conjuncts<'p>(
        &'p self,
        env: &Env<'_>,
        states: &mut [State],
        conjuncts: impl Fn(&'p Planned) -> &'p [NodeId],
        clock: Clock<'_>,
    ) -> Result<(), RunError> {
        let mut known: BTreeMap<NodeId, Truth> = BTreeMap::new();
        let rounds = self.filters.iter().map(|filter| conjuncts(filter).len()).max().unwrap_or(0);
        for round in 0..rounds {
            let mut users: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
            for (index, filter) in self.filters.iter().enumerate() {
                let is_empty = states[index].mask.count_set_bits() == 0;
                if let Some(id) = conjuncts(filter).get(round).filter(|_| !is_empty) {
                    users.entry(*id).or_default().push(index);
                }
            }
            for (id, users) in users {
                let truth = known.entry(id).or_insert_with(|| Truth::unknown(env.rows()));
                let before = clock();
                let wanted = users.iter().map(|user| &states[*user].mask);
                let wanted = wanted.fold(BooleanBuffer::new_unset(env.rows()), |all, m| &all | m);
                self.evaluate(env, id, &wanted, truth)?;
                for user in &users {
                    states[*user].narrow(truth);
                }
                let time = clock().saturating_sub(before) / users.len() as u32;
                for user in users {
                    states[user].time += time;
                }
            }
        }
        Ok(())
    }

    /// Evaluates a conjunct where it is wanted and not yet known.
    fn evaluate(
        &self,
        env: &Env<'_>,
        id: NodeId,
        wanted: &BooleanBuffer,
        truth: &mut Truth,
    ) -> Result<(), RunError> {
        let missing = wanted & &!&truth.covered;
        let count = missing.count_set_bits();
        if count == 0 {
            return Ok(());
        }
        // Taking rows costs about as much as a cheap operation: it pays for few of many rows.
        if self.tree.cost(id) == Cost::Cheap || count > env.rows() / FEW {
            let value = env.evaluate(id)?;
            let array = value.expanded(env.rows())?;
            truth.is_true = is_true(arrow_array::cast::AsArray::as_boolean(&array));
            truth.errors = value.errors.unwrap_or_else(|| BooleanBuffer::new_unset(env.rows()));
            truth.covered = BooleanBuffer::new_set(env.rows());
            return Ok(());
        }
        let rows = rows_of(&missing);
        let subset = env.subset(rows.clone().into());
        let value = subset.evaluate(id)?;
        let array = value.expanded(rows.len())?;
        let found = is_true(arrow_array::cast::AsArray::as_boolean(&array));
        truth.is_true = &truth.is_true | &scattered(&found, &rows, env.rows());
        if let Some(errors) = &value.errors {
            truth.errors = &truth.errors | &scattered(errors, &rows, env.rows());
        }
        truth.covered = &truth.covered | &missing;
        Ok(())
    }

    /// The ranks of some of a filter's matching rows by its ORDER BY; empty ranks without one.
    ///
    /// # Errors
    ///
    /// As of [`Plan::run_flat`].
    pub fn ranks(
        &self,
        matches: &Matches,
        filter: usize,
        rows: &[u32],
    ) -> Result<Vec<Rank>, RunError> {
        let mut ranks = vec![Rank::default(); rows.len()];
        let order = &self.filters[filter].order;
        if order.is_empty() {
            return Ok(ranks);
        }
        self.on_rows(matches, filter, rows, |env| {
            for key in order {
                let array = env.evaluate(key.node)?.expanded(rows.len())?;
                for (rank, key) in ranks.iter_mut().zip(keys(&array, key.is_descending)) {
                    rank.0.push(key);
                }
            }
            Ok(())
        })?;
        Ok(ranks)
    }

    /// The columns of a filter's SELECT for some of its matching rows; none for `SELECT *`.
    ///
    /// # Errors
    ///
    /// As of [`Plan::run_flat`].
    pub fn select(
        &self,
        matches: &Matches,
        filter: usize,
        rows: &[u32],
    ) -> Result<RecordBatch, RunError> {
        let select = &self.filters[filter].select;
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        self.on_rows(matches, filter, rows, |env| {
            for column in select {
                let array = match column.source {
                    Source::Computed(node) => env.evaluate(node)?.expanded(rows.len())?,
                    Source::Column(index) => env.column(index)?,
                };
                fields.push(Field::new(&column.name, array.data_type().clone(), true));
                arrays.push(array);
            }
            Ok(())
        })?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let schema = Arc::new(Schema::new(fields));
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }

    fn on_rows(
        &self,
        matches: &Matches,
        filter: usize,
        rows: &[u32],
        mut with: impl FnMut(&Env<'_>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let whole = Env::of_batch(&self.catalog, &self.tree, &matches.batch);
        if !self.filters[filter].shows_history {
            return with(&whole.subset(rows.to_vec().into()));
        }
        let places: Option<Vec<u32>> =
            rows.iter().map(|row| Some(matches.rows.binary_search(row).ok()? as u32)).collect();
        let places = places.ok_or_else(|| RunError::Rows {
            found: rows.len(),
            takes: "all of them rows that the filter matches".to_owned(),
        })?;
        let env = whole.with_history(matches.rows.clone().into(), matches.history.as_ref());
        with(&env.subset(places.into()))
    }
}

/// One row of so many, and fewer, are few.
const FEW: usize = 3;

impl Truth {
    fn unknown(rows: usize) -> Self {
        let none = || BooleanBuffer::new_unset(rows);
        Self { covered: none(), is_true: none(), errors: none() }
    }
}

impl State {
    fn narrow(&mut self, truth: &Truth) {
        if truth.errors.count_set_bits() > 0 {
            self.errors = &self.errors | &(&truth.errors & &self.mask);
        }
        self.mask = &self.mask & &truth.is_true;
    }

    fn gathered(&self, rows: &[u32]) -> Self {
        let of = |bits: &BooleanBuffer| {
            BooleanBuffer::collect_bool(rows.len(), |at| bits.value(rows[at] as usize))
        };
        Self { mask: of(&self.mask), errors: of(&self.errors), time: self.time }
    }

    fn scatter(&mut self, narrow: &Self, rows: &[u32]) {
        let all = self.mask.len();
        self.mask = scattered(&narrow.mask, rows, all);
        self.errors = &self.errors | &scattered(&narrow.errors, rows, all);
    }

    fn outcome(self) -> Outcome {
        Outcome { rows: rows_of(&self.mask), errors: rows_of(&self.errors), time: self.time }
    }
}

/// Bits of some rows as bits of all.
fn scattered(bits: &BooleanBuffer, rows: &[u32], all: usize) -> BooleanBuffer {
    let mut scattered = arrow_buffer::BooleanBufferBuilder::new(all);
    scattered.append_n(all, false);
    for at in bits.set_indices() {
        scattered.set_bit(rows[at] as usize, true);
    }
    scattered.finish()
}
