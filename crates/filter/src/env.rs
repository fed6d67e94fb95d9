//! The rows of a batch on which expressions are evaluated, each expression once.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array, ListArray, RecordBatch, UInt32Array};
use arrow_schema::DataType;
use arrow_select::take::take;

use crate::catalog::Catalog;
use crate::catalog::Named;
use crate::error::RunError;
use crate::kernel::{Value, apply};
use crate::points::Points;
use crate::tree::{NodeId, Op, Tree};

/// Where columns come from.
enum Rows<'a> {
    Batch(&'a RecordBatch),
    Of(&'a Env<'a>, UInt32Array),
    Absent,
}

/// The frame of a history column's points.
struct Frame {
    points: Points,
    list: ListArray,
    values: Values,
}

/// What was evaluated; few of a plan's expressions are, on few rows.
type Values = RefCell<HashMap<NodeId, Value>>;

/// A selection of rows, with what was evaluated for them.
pub(crate) struct Env<'a> {
    catalog: &'a Catalog,
    tree: &'a Tree,
    rows: usize,
    flat: Rows<'a>,
    history: Rows<'a>,
    columns: Vec<OnceCell<ArrayRef>>,
    frames: Vec<OnceCell<Rc<Frame>>>,
    values: Values,
}

impl<'a> Env<'a> {
    fn new(
        catalog: &'a Catalog,
        tree: &'a Tree,
        rows: usize,
        flat: Rows<'a>,
        history: Rows<'a>,
    ) -> Self {
        Self {
            catalog,
            tree,
            rows,
            flat,
            history,
            columns: (0..catalog.flat_count()).map(|_| OnceCell::new()).collect(),
            frames: (0..catalog.history_count()).map(|_| OnceCell::new()).collect(),
            values: Values::default(),
        }
    }

    /// A whole batch of flat columns.
    pub(crate) fn of_batch(catalog: &'a Catalog, tree: &'a Tree, batch: &'a RecordBatch) -> Self {
        Self::new(catalog, tree, batch.num_rows(), Rows::Batch(batch), Rows::Absent)
    }

    /// Some rows, in the flat and in the history columns.
    pub(crate) fn subset(&'a self, rows: UInt32Array) -> Self {
        let history = match self.history {
            Rows::Absent => Rows::Absent,
            _ => Rows::Of(self, rows.clone()),
        };
        Self::new(self.catalog, self.tree, rows.len(), Rows::Of(self, rows), history)
    }

    /// Some rows, with history columns that were read for just them.
    pub(crate) fn with_history(
        &'a self,
        rows: UInt32Array,
        history: Option<&'a RecordBatch>,
    ) -> Self {
        let history = history.map_or(Rows::Absent, Rows::Batch);
        Self::new(self.catalog, self.tree, rows.len(), Rows::Of(self, rows), history)
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// A flat column, of any type.
    pub(crate) fn column(&self, index: usize) -> Result<ArrayRef, RunError> {
        if let Some(column) = self.columns[index].get() {
            return Ok(column.clone());
        }
        let planned = self.catalog.flat(index);
        let column = match &self.flat {
            Rows::Batch(batch) => {
                find(batch, &planned.name, "flat_columns", |found| *found == planned.arrow)
                    .map_err(|error| error.planned(&planned.arrow))?
            }
            Rows::Of(env, rows) => take(&env.column(index)?, rows, None)?,
            Rows::Absent => return Err(no_column(&planned.name, "flat_columns")),
        };
        Ok(self.columns[index].get_or_init(|| column).clone())
    }

    fn list(&self, history: usize) -> Result<ListArray, RunError> {
        let name = &self.catalog.history(history).name;
        let array = match &self.history {
            Rows::Batch(batch) => {
                let is_list = |found: &DataType| {
                    matches!(found, DataType::List(item)
                        if matches!(item.data_type(), DataType::Struct(_)))
                };
                find(batch, name, "history_columns", is_list)
                    .map_err(|error| error.planned(&"a list of records"))?
            }
            Rows::Of(env, rows) => take(&env.list(history)?, rows, None)?,
            Rows::Absent => return Err(no_column(name, "history_columns")),
        };
        Ok(array.as_list::<i32>().clone())
    }

    /// The elements of a field of a history column.
    fn elements(
        &self,
        list: &ListArray,
        history: usize,
        field: usize,
    ) -> Result<ArrayRef, RunError> {
        let column = self.catalog.history(history);
        let planned = &column.fields[field];
        let name = || format!("{}.{}", column.name, planned.name);
        let records = list.values().as_struct();
        let found = records.column_by_name(&planned.name);
        let found = found.ok_or_else(|| no_column(&name(), "history_columns"))?;
        if *found.data_type() != planned.arrow {
            let (found, planned) = (found.data_type().to_string(), planned.arrow.to_string());
            return Err(RunError::ColumnType { name: name(), found, planned });
        }
        // A null record's fields are null, whatever lies beneath.
        Ok(match records.nulls() {
            Some(nulls) => {
                let is_null = arrow_array::BooleanArray::new(!nulls.inner(), None);
                arrow_select::nullif::nullif(found, &is_null)?
            }
            None => found.clone(),
        })
    }

    fn frame(&self, history: usize) -> Result<Rc<Frame>, RunError> {
        if let Some(frame) = self.frames[history].get() {
            return Ok(frame.clone());
        }
        let list = self.list(history)?;
        let layout = self.catalog.layout();
        let column = self.catalog.history(history);
        let field = column.time.ok_or_else(|| no_column(&column.name, "history_columns"))?;
        let point_times = self.elements(&list, history, field)?;
        let Some(Named::Flat(time)) = self.catalog.named(&layout.time) else {
            return Err(no_column(&layout.time, "flat_columns"));
        };
        let alert_times = self.column(time)?;
        let points = Points::new(&list, as_doubles(&point_times), as_doubles(&alert_times));
        let frame = Rc::new(Frame { points, list, values: Values::default() });
        Ok(self.frames[history].get_or_init(|| frame).clone())
    }

    /// Evaluates an expression; its parts stand in the tree before it.
    pub(crate) fn evaluate(&self, root: NodeId) -> Result<Value, RunError> {
        for id in self.pending(root, &self.values) {
            let value = self.evaluate_one(id)?;
            self.values.borrow_mut().insert(id, value);
        }
        Ok(self.values.borrow()[&root].clone())
    }

    /// The parts of an expression without a value, in their order. Light curves' parts have values
    /// a point, and are not among them.
    fn pending(&self, root: NodeId, values: &Values) -> BTreeSet<NodeId> {
        let values = values.borrow();
        let mut stack = vec![root];
        let mut pending = BTreeSet::new();
        while let Some(id) = stack.pop() {
            if values.contains_key(&id) || !pending.insert(id) {
                continue;
            }
            let node = self.tree.node(id);
            if !matches!(node.op, Op::Curve { .. }) {
                stack.extend(node.args.iter().copied());
            }
        }
        pending
    }

    fn evaluate_one(&self, id: NodeId) -> Result<Value, RunError> {
        let node = self.tree.node(id);
        match &node.op {
            Op::Column(index) => Ok(Value::each(self.column(*index)?)),
            Op::Const(literal) => Ok(Value::constant(literal, node.ty)),
            Op::Curve { function, history, days } => {
                let frame = self.frame(*history)?;
                let value = self.evaluate_points(&frame, node.args[0])?;
                Ok(frame.points.evaluate(*function, days.map(f64::from_bits), &value)?)
            }
            _ => {
                let values = self.values.borrow();
                let args = arguments(&values, &node.args);
                Ok(apply(node, &args, self.rows, self.catalog)?)
            }
        }
    }

    /// Evaluates an expression for each point of a history column.
    fn evaluate_points(&self, frame: &Frame, root: NodeId) -> Result<Value, RunError> {
        for id in self.pending(root, &frame.values) {
            let node = self.tree.node(id);
            let value = match &node.op {
                Op::Column(index) => {
                    let column = self.column(*index)?;
                    Value::each(take(&column, &frame.points.parents, None)?)
                }
                Op::Field { history, field } => {
                    let elements = self.elements(&frame.list, *history, *field)?;
                    Value::each(Points::field(&frame.list, &elements)?)
                }
                Op::Const(literal) => Value::constant(literal, node.ty),
                _ => {
                    let values = frame.values.borrow();
                    let args = arguments(&values, &node.args);
                    apply(node, &args, frame.points.len(), self.catalog)?
                }
            };
            frame.values.borrow_mut().insert(id, value);
        }
        Ok(frame.values.borrow()[&root].clone())
    }
}

/// Parts come before the whole.
fn arguments(values: &HashMap<NodeId, Value>, args: &[NodeId]) -> Vec<Value> {
    args.iter().map(|id| values[id].clone()).collect()
}

fn as_doubles(array: &ArrayRef) -> &Float64Array {
    array.as_primitive::<Float64Type>()
}

/// A column that is not as planned.
enum Misfit {
    Absent(RunError),
    Type { name: String, found: String },
}

impl Misfit {
    fn planned(self, planned: &impl ToString) -> RunError {
        match self {
            Self::Absent(error) => error,
            Self::Type { name, found } => {
                RunError::ColumnType { name, found, planned: planned.to_string() }
            }
        }
    }
}

fn find(
    batch: &RecordBatch,
    name: &str,
    needs: &'static str,
    fits: impl Fn(&DataType) -> bool,
) -> Result<ArrayRef, Misfit> {
    let column = batch.column_by_name(name);
    let column = column.ok_or_else(|| Misfit::Absent(no_column(name, needs)))?;
    if !fits(column.data_type()) {
        let (name, found) = (name.to_owned(), column.data_type().to_string());
        return Err(Misfit::Type { name, found });
    }
    Ok(column.clone())
}

fn no_column(name: &str, needs: &'static str) -> RunError {
    RunError::NoColumn { name: name.to_owned(), needs }
}
