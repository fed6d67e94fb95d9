//! Filters in Python: Arrow's columns as batches of `helio-sandbox`, and the running processes.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use helio_bus::Bus;
use helio_sandbox::{Batch, Column, Filter, Launch, Limits, Mask, Number, Values};

use crate::names::FilterId;
use crate::stream::Stream;

/// The time until a filter that could not be started is started again: the system may have had no
/// memory or process for it.
const START_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// How filters in Python run.
#[derive(Debug, Clone)]
pub struct PythonOptions {
    /// How a process is started.
    pub launch: Launch,
    /// Its limits. A batch waits for the slowest filter.
    pub limits: Limits,
}

impl Default for PythonOptions {
    /// `python3` of the path; the limits of `helio-sandbox`, but 1 s of processor and 4 s of time
    /// for a batch, since all filters of a visit wait for it.
    fn default() -> Self {
        let (cpu, time) = (Duration::from_secs(1), Duration::from_secs(4));
        Self {
            launch: Launch::python("python3"),
            limits: Limits { cpu, time, ..Limits::default() },
        }
    }
}

impl PythonOptions {
    /// The default limits with another interpreter, which has numpy.
    #[must_use]
    pub fn of(interpreter: impl Into<std::ffi::OsString>) -> Self {
        Self { launch: Launch::python(interpreter), ..Self::default() }
    }
}

/// A column with buffers of its own.
struct Owned {
    name: String,
    data: Data,
    validity: Option<Vec<u8>>,
}

enum Data {
    Numbers(Number, Vec<u8>),
    Bools(Vec<u8>),
    Text(Vec<i32>, Vec<u8>),
    /// Lists are not nested.
    List(Vec<i32>, Vec<Owned>),
}

/// Checks that filters in Python can read a column.
pub(crate) fn check_column(stream: &Stream, name: &str) -> Result<(), String> {
    let columns = stream.columns(&[name.to_owned()]).map_err(|error| error.to_string())?;
    columns.schema().fields().iter().try_for_each(|field| is_readable(field.data_type(), true))
}

fn is_readable(kind: &DataType, with_lists: bool) -> Result<(), String> {
    let refused = || Err(format!("filters in Python cannot read {kind}"));
    match kind {
        DataType::Boolean
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8 => Ok(()),
        DataType::Dictionary(_, values) if **values == DataType::Utf8 => Ok(()),
        DataType::List(item) if with_lists => match item.data_type() {
            DataType::Struct(fields) => {
                fields.iter().try_for_each(|field| is_readable(field.data_type(), false))
            }
            plain => is_readable(plain, false),
        },
        _ => refused(),
    }
}

/// The batch of some columns of Arrow batches with equal rows.
pub(crate) fn batch(batches: &[&RecordBatch], wanted: &HashSet<String>) -> Result<Batch, String> {
    let rows = batches.first().map_or(0, |batch| batch.num_rows());
    let mut columns = Vec::new();
    for batch in batches {
        let schema = batch.schema_ref();
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            if wanted.contains(field.name()) {
                columns.push(owned(field.name(), array)?);
            }
        }
    }
    let fields: Vec<Vec<Column<'_>>> = columns.iter().map(Owned::fields).collect();
    let borrowed: Vec<_> = columns.iter().zip(&fields).map(|(c, f)| c.column(f)).collect();
    Batch::new(rows, &borrowed).map_err(|error| error.to_string())
}

impl Owned {
    fn fields(&self) -> Vec<Column<'_>> {
        match &self.data {
            Data::List(_, fields) => fields.iter().map(|field| field.column(&[])).collect(),
            _ => Vec::new(),
        }
    }

    fn column<'a>(&'a self, fields: &'a [Column<'a>]) -> Column<'a> {
        let values = match &self.data {
            Data::Numbers(kind, bytes) => Values::Numbers { kind: *kind, bytes },
            Data::Bools(bits) => Values::Bools(bits),
            Data::Text(offsets, bytes) => Values::Text { offsets, bytes },
            Data::List(offsets, _) => Values::List { offsets, fields },
        };
        Column { name: &self.name, values, validity: self.validity.as_deref() }
    }
}

fn owned(name: &str, array: &ArrayRef) -> Result<Owned, String> {
    let data = match array.data_type() {
        DataType::Int32 => numbers(Number::I32, array.as_primitive::<Int32Type>().values().inner()),
        DataType::Int64 => numbers(Number::I64, array.as_primitive::<Int64Type>().values().inner()),
        DataType::Float32 => {
            numbers(Number::F32, array.as_primitive::<Float32Type>().values().inner())
        }
        DataType::Float64 => {
            numbers(Number::F64, array.as_primitive::<Float64Type>().values().inner())
        }
        DataType::Boolean => Data::Bools(bits(array.as_boolean().values().iter())),
        DataType::Utf8 => texts(array.as_string::<i32>().iter()),
        DataType::Dictionary(..) => {
            let dictionary = array.as_dictionary::<Int32Type>();
            let texts_of = dictionary.downcast_dict::<arrow_array::StringArray>();
            texts(texts_of.ok_or("an enumeration without symbols")?.into_iter())
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.offsets().to_vec();
            let fields = match list.values().data_type() {
                DataType::Struct(fields) => {
                    let columns = list.values().as_struct().columns();
                    let named = fields.iter().zip(columns);
                    named.map(|(field, array)| owned(field.name(), array)).collect()
                }
                _ => owned("", list.values()).map(|values| vec![values]),
            };
            Data::List(offsets, fields?)
        }
        other => return Err(format!("{name}: filters in Python cannot read {other}")),
    };
    let validity = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    Ok(Owned { name: name.to_owned(), data, validity: validity.map(|nulls| valid(&nulls)) })
}

fn numbers(kind: Number, bytes: &arrow_buffer::Buffer) -> Data {
    Data::Numbers(kind, bytes.as_slice().to_vec())
}

fn texts<'t>(values: impl Iterator<Item = Option<&'t str>>) -> Data {
    let (mut offsets, mut bytes) = (vec![0], Vec::new());
    for value in values {
        bytes.extend_from_slice(value.unwrap_or_default().as_bytes());
        offsets.push(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    }
    Data::Text(offsets, bytes)
}

fn valid(nulls: &NullBuffer) -> Vec<u8> {
    bits(nulls.iter())
}

fn bits(values: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bits = Vec::new();
    for (place, value) in values.enumerate() {
        if place % 8 == 0 {
            bits.push(0);
        }
        if let Some(last) = bits.last_mut() {
            *last |= u8::from(value) << (place % 8);
        }
    }
    bits
}

/// What a filter in Python did with a batch: its mask and processor time, or how it failed.
pub(crate) type Selected = Result<(Mask, Duration), String>;

/// A filter in Python of a process.
struct Running {
    text: String,
    filter: Result<Filter, String>,
    /// When it was started last.
    started: Duration,
}

/// The running filters in Python of a process.
pub(crate) struct Pythons {
    bus: Bus,
    options: PythonOptions,
    running: BTreeMap<FilterId, Running>,
}

impl Pythons {
    /// `bus` has the clock.
    pub(crate) fn new(bus: &Bus, options: PythonOptions) -> Self {
        Self { bus: bus.clone(), options, running: BTreeMap::new() }
    }

    /// Starts a filter, unless it was started.
    pub(crate) fn start(&mut self, id: &FilterId, text: &str) {
        if !self.running.contains_key(id) {
            let (text, started) = (text.to_owned(), self.bus.clock().monotonic());
            let filter = start(&self.options, &text);
            self.running.insert(id.clone(), Running { text, filter, started });
        }
    }

    /// Why a filter could not be started.
    pub(crate) fn failure(&self, id: &FilterId) -> Option<String> {
        self.running.get(id)?.filter.as_ref().err().cloned()
    }

    /// Ends all filters but these.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&FilterId) -> bool) {
        self.running.retain(|id, _| is_wanted(id));
    }

    /// Has filters select rows of a batch, side by side. One that could not be started is started
    /// again after a while.
    pub(crate) fn select(&mut self, batch: &Batch, ids: &[&FilterId]) -> Vec<(FilterId, Selected)> {
        let (options, now) = (&self.options, self.bus.clock().monotonic());
        let wanted = self.running.iter_mut().filter(|(id, _)| ids.contains(id));
        std::thread::scope(|scope| {
            let started: Vec<_> = wanted
                .map(|(id, filter)| {
                    (id.clone(), scope.spawn(move || filter.select(options, now, batch)))
                })
                .collect();
            let join = |(id, thread): (FilterId, std::thread::ScopedJoinHandle<'_, Selected>)| {
                let selected = thread.join().unwrap_or_else(|_| Err("its thread ended".to_owned()));
                (id, selected)
            };
            started.into_iter().map(join).collect()
        })
    }
}

impl Running {
    fn select(&mut self, options: &PythonOptions, now: Duration, batch: &Batch) -> Selected {
        if self.filter.is_err() && now >= self.started + START_RETRY_INTERVAL {
            (self.filter, self.started) = (start(options, &self.text), now);
        }
        let filter = self.filter.as_mut().map_err(|error| error.clone())?;
        let (mask, usage) = filter.select(batch).map_err(|error| error.to_string())?;
        Ok((mask, usage.cpu))
    }
}

fn start(options: &PythonOptions, text: &str) -> Result<Filter, String> {
    let PythonOptions { launch, limits } = options;
    Filter::start(launch.clone(), text, *limits).map_err(|error| error.to_string())
}
