//! Publishes Python's log records on the bus.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helio_bus::{Bus, Clock as _, SystemClock, Tai};
use helio_logging::{
    Audiences, Body, Lanes, Level, LogError, LogOptions, Logger, Logging, Packet, Site, SiteNumber,
    Spill, Stack, Style, TextField, Value, formats,
};
use pyo3::exceptions::{PyException, PyRecursionError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyString, PyTuple,
};

use crate::errors;
use crate::fork::{Generation, Owned};
use crate::receipt::seconds;

const OBJECT: &str = "log handler";
/// The most cached loggers and call sites; others are looked up each time.
const CACHE_MAX: usize = 65_536;

/// The lowest level of Python for each of ACS's, the highest first.
const LEVELS: [(i64, Level); 10] = [
    (70, Level::EMERGENCY),
    (60, Level::ALERT),
    (50, Level::CRITICAL),
    (40, Level::ERROR),
    (30, Level::WARNING),
    (25, Level::NOTICE),
    (20, Level::INFO),
    (10, Level::DEBUG),
    (7, Level::DELOUSE),
    (i64::MIN, Level::TRACE),
];

fn level(number: i64) -> Level {
    let found = LEVELS.iter().find(|(from, _)| number >= *from);
    found.map_or(Level::TRACE, |(_, level)| *level)
}

/// The lowest of Python's levels that maps to a level or a higher one.
fn python_level(level: Level) -> i64 {
    let from = LEVELS.iter().rev().find(|(_, of_acs)| *of_acs >= level);
    from.map_or(LEVELS[0].0, |(from, _)| (*from).max(1))
}

/// The attributes of Python's records; all others come from `extra`.
const STANDARD_ATTRIBUTES: [&str; 24] = [
    "name",
    "msg",
    "args",
    "levelname",
    "levelno",
    "pathname",
    "filename",
    "module",
    "exc_info",
    "exc_text",
    "stack_info",
    "lineno",
    "funcName",
    "created",
    "msecs",
    "relativeCreated",
    "thread",
    "threadName",
    "processName",
    "process",
    "taskName",
    "message",
    "asctime",
    "audience",
];

/// The publisher of a process's log records, driven by `heliograph.logging.Handler`.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawLogging")]
pub(crate) struct RawLogging {
    logging: Mutex<Owned<OpenLogging>>,
    generation: Generation,
}

struct OpenLogging {
    logging: Arc<Logging>,
    loggers: HashMap<String, Logger>,
    sites: HashMap<(String, i64), (String, SiteNumber)>,
}

fn refused(error: &LogError) -> PyErr {
    match error {
        LogError::Connect(error) => errors::connect(error),
        LogError::Topic(error) => errors::topic(error, "PublishError"),
        LogError::Settings(_) => PyValueError::new_err(error.to_string()),
        LogError::Spill { .. } | LogError::Thread(_) => {
            errors::raise("StorageError", &error.to_string())
        }
    }
}

#[pymethods]
impl RawLogging {
    #[new]
    fn new(
        py: Python<'_>,
        url: &str,
        whose: (Option<String>, String),
        prefix: &str,
        batch_age: f64,
        spill: Option<(PathBuf, u64)>,
        settings: Option<PathBuf>,
    ) -> PyResult<Self> {
        let (producer, process) = whose;
        let age = Duration::try_from_secs_f64(batch_age);
        let age = age.map_err(|_| PyValueError::new_err(format!("batch_age={batch_age}")))?;
        let options = LogOptions {
            lanes: Lanes::default().prefix(prefix),
            process,
            batch_age: age,
            // Python's loggers and the handler decide which levels are enabled.
            level: Level::TRACE,
            spill: spill.map(|(file, bytes)| Spill { file, bytes }),
            settings,
            ..LogOptions::default()
        };
        let mut builder = Bus::builder();
        if let Some(producer) = producer {
            builder = builder.producer(&producer);
        }
        let started = py.detach(|| Logging::start(builder.connect(url)?, options));
        let logging = started.map_err(|error| refused(&error))?;
        let logging = Arc::new(logging);
        let open = OpenLogging { logging, loggers: HashMap::new(), sites: HashMap::new() };
        Ok(Self { logging: Mutex::new(Owned::new(open)), generation: Generation::current() })
    }

    /// Publishes a record of Python.
    ///
    /// A message that cannot be formatted is its template and the arguments' `repr`, and the data
    /// `logging.error` says why. Values of wrong types are published as text.
    fn emit(&self, py: Python<'_>, record: &Bound<'_, PyAny>, trace: Option<&str>) -> PyResult<()> {
        self.generation.check(OBJECT)?;
        let fields = record.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>()?;
        let name = text_at(&fields, intern!(py, "name"))?;
        let number = fields.get_item(intern!(py, "levelno"))?;
        let number = number.and_then(|number| number.extract().ok()).unwrap_or(20);
        let created = fields.get_item(intern!(py, "created"))?;
        let created = created.and_then(|at| at.extract::<f64>().ok());
        let template = fields.get_item(intern!(py, "msg"))?;
        let template = template.map(|msg| text_of(&msg)).transpose()?;
        let template = template.as_ref().map_or(Cow::Borrowed(""), |msg| msg.to_string_lossy());
        let args = fields.get_item(intern!(py, "args"))?;
        let args = args.filter(|args| args.is_truthy().unwrap_or(true));
        let audience = fields.get_item(intern!(py, "audience"))?;
        let to = audience.as_ref().and_then(|audience| audiences(audience).ok());
        let mut body = Body::new();
        let failure = message(record, &template, args.as_ref(), &mut body)?;
        if let Some(thread) =
            fields.get_item(intern!(py, "threadName"))?.filter(|thread| !thread.is_none())
        {
            body.member(TextField::Thread, &text_of(&thread)?.to_string_lossy());
        }
        extras(&fields, &mut body)?;
        if let Some(audience) = audience.as_ref().filter(|_| to.is_none()) {
            body.data("audience", &value(audience)?);
        }
        if let Some(failure) = failure {
            body.data("logging.error", &Value::from(failure.to_string()));
        }
        if let Some(trace) = trace {
            exception(&fields, trace, &mut body)?;
        }
        // No Python code runs from here on, as it could log.
        let mut guard = self.lock(py);
        let open = guard.get_mut(OBJECT)?;
        let site = open.site(py, &fields, if args.is_some() { &template } else { "" })?;
        let logger = match &name {
            Some(name) => open.logger(&name.to_string_lossy()),
            None => open.logger("root"),
        };
        drop(guard);
        let logger = to.map_or_else(|| logger.clone(), |audience| logger.to(&audience));
        // Python's clock is a floating-point number of seconds, exact to microseconds.
        let unix = created.map(|created| (created * 1e6).round() as i64);
        let time = unix.map(|unix| Tai::from_unix_nanos(unix.saturating_mul(1_000)));
        let time = time.unwrap_or_else(|| SystemClock::new().now());
        logger.record_at(time, level(number), site, |record| record.clone_from(&body));
        Ok(())
    }

    /// The number of level changes from outside.
    fn level_changes(&self, py: Python<'_>) -> PyResult<u64> {
        self.generation.check(OBJECT)?;
        Ok(self.lock(py).get(OBJECT)?.logging.wait_levels(0, Duration::ZERO))
    }

    /// The lowest of Python's levels that a pattern publishes of a logger; none without a pattern.
    fn ruled_level(&self, py: Python<'_>, name: &str) -> PyResult<Option<i64>> {
        self.generation.check(OBJECT)?;
        let logging = Arc::clone(&self.lock(py).get(OBJECT)?.logging);
        Ok(logging.ruled_level_of(&name.replace('.', "/")).map(python_level))
    }

    /// Waits until all records are published or shed; returns false after the timeout.
    fn flush(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        self.generation.check(OBJECT)?;
        let timeout = seconds(Some(timeout))?.unwrap_or_default();
        let logging = Arc::clone(&self.lock(py).get(OBJECT)?.logging);
        Ok(py.detach(|| logging.flush(timeout)))
    }

    /// Records offered, published, shed and waiting; and the bus's error, if any.
    fn figures(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, Option<String>)> {
        self.generation.check(OBJECT)?;
        let logging = Arc::clone(&self.lock(py).get(OBJECT)?.logging);
        let figures = logging.figures();
        let helio_logging::LogFigures { offered, published, shed, waiting, .. } = figures;
        Ok((offered, published, shed, waiting, logging.trouble()))
    }

    /// Publishes pending records, and closes.
    fn close(&self, py: Python<'_>) {
        if !self.generation.is_current() {
            return;
        }
        let open = self.lock(py).take();
        py.detach(|| drop(open));
    }
}

impl RawLogging {
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Owned<OpenLogging>> {
        self.logging.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenLogging {
    /// The logger of a name with dots, as in Python, or slashes.
    fn logger(&mut self, name: &str) -> Logger {
        if let Some(logger) = self.loggers.get(name) {
            return logger.clone();
        }
        let logger = self.logging.logger(&name.replace('.', "/"));
        if self.loggers.len() < CACHE_MAX {
            self.loggers.insert(name.to_owned(), logger.clone());
        }
        logger
    }

    fn site(
        &mut self,
        py: Python<'_>,
        fields: &Bound<'_, PyDict>,
        template: &str,
    ) -> PyResult<SiteNumber> {
        let file = text_at(fields, intern!(py, "pathname"))?;
        let file = file.as_ref().map_or(Cow::Borrowed(""), |file| file.to_string_lossy());
        let line = fields.get_item(intern!(py, "lineno"))?;
        let line: i64 = line.and_then(|line| line.extract().ok()).unwrap_or(0);
        let key = (file.into_owned(), line);
        if let Some((known, number)) = self.sites.get(&key)
            && known == template
        {
            return Ok(*number);
        }
        let routine = text_at(fields, intern!(py, "funcName"))?;
        let routine = routine.as_ref().map_or(Cow::Borrowed(""), |name| name.to_string_lossy());
        let number = self.logging.site(Site {
            template: template.to_owned(),
            style: Style::Percent,
            names: Vec::new(),
            file: key.0.clone(),
            line: u32::try_from(line).unwrap_or(0),
            routine: routine.into_owned(),
        });
        if self.sites.len() < CACHE_MAX || self.sites.contains_key(&key) {
            self.sites.insert(key, (template.to_owned(), number));
        }
        Ok(number)
    }
}

/// A name, `*` for everyone, or several names.
fn audiences(given: &Bound<'_, PyAny>) -> PyResult<Audiences> {
    if let Ok(name) = given.extract::<&str>() {
        return Ok(if name == "*" { Audiences::everyone() } else { Audiences::of([name]) });
    }
    Ok(Audiences::of(given.extract::<Vec<String>>()?))
}

/// Adds the message and its arguments; returns why the message cannot be formatted, if so.
fn message(
    record: &Bound<'_, PyAny>,
    template: &str,
    args: Option<&Bound<'_, PyAny>>,
    body: &mut Body,
) -> PyResult<Option<PyErr>> {
    let Some(args) = args else {
        body.text(template);
        return Ok(None);
    };
    let py = record.py();
    let text = record.call_method0(intern!(py, "getMessage"));
    let failure = match text.and_then(|text| Ok(text.cast_into::<PyString>()?)) {
        Ok(text) => {
            body.text(&text.to_string_lossy());
            None
        }
        Err(error) => {
            let error = recoverable(py, error)?;
            let args = or_else(py, args.repr(), || type_name(args))?;
            body.text(&format!("{template} {}", args.to_string_lossy()));
            Some(error)
        }
    };
    arguments(args, body)?;
    Ok(failure)
}

fn arguments(args: &Bound<'_, PyAny>, body: &mut Body) -> PyResult<()> {
    match args.cast::<PyTuple>() {
        Ok(args) => args.iter().try_for_each(|argument| {
            body.argument(&value(&argument)?);
            Ok(())
        }),
        // A mapping, whose values the message names.
        Err(_) => {
            body.argument(&value(args)?);
            Ok(())
        }
    }
}

/// Attributes from `extra`: fields of a record by name, others as data.
fn extras(fields: &Bound<'_, PyDict>, body: &mut Body) -> PyResult<()> {
    let py = fields.py();
    // Most records have none; a set's own method compares the names fastest.
    let standard = STANDARD_NAMES.get_or_try_init(py, || {
        let names = PyFrozenSet::new(py, STANDARD_ATTRIBUTES)?;
        PyResult::Ok(names.getattr("issuperset")?.unbind())
    })?;
    if standard.bind(py).call1((fields,))?.is_truthy()? {
        return Ok(());
    }
    for (name, given) in fields.iter() {
        extra(&text_of(&name)?.to_string_lossy(), &given, body)?;
    }
    Ok(())
}

/// `issuperset` of the set of Python's own attributes.
static STANDARD_NAMES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn extra(name: &str, given: &Bound<'_, PyAny>, body: &mut Body) -> PyResult<()> {
    if STANDARD_ATTRIBUTES.contains(&name) {
        return Ok(());
    }
    if name == "stack"
        && let Ok((id, level)) = given.extract()
    {
        body.stack(&Stack { id, level });
    } else if let Some(field) = TextField::of_name(name).filter(|field| field.is_in_body()) {
        body.member(field, &text_of(given)?.to_string_lossy());
    } else {
        body.data(name, &value(given)?);
    }
    Ok(())
}

/// The text of an attribute, if it is there and not None.
fn text_at<'py>(
    fields: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyString>>> {
    let given = fields.get_item(name)?.filter(|given| !given.is_none());
    given.map(|given| text_of(&given)).transpose()
}

/// The text of an object; its `repr` if that fails, and the name of its type if both do.
fn text_of<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(text.clone());
    }
    or_else(given.py(), given.str(), || or_else(given.py(), given.repr(), || type_name(given)))
}

fn type_name<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let name = given.get_type().name()?;
    Ok(PyString::new(given.py(), &format!("<{}>", name.to_string_lossy())))
}

fn or_else<'py>(
    py: Python<'py>,
    text: PyResult<Bound<'py, PyString>>,
    other: impl FnOnce() -> PyResult<Bound<'py, PyString>>,
) -> PyResult<Bound<'py, PyString>> {
    match text {
        Ok(text) => Ok(text),
        Err(error) => recoverable(py, error).and_then(|_| other()),
    }
}

/// An error of the record's own objects; an interrupt, for example, is not one.
fn recoverable(py: Python<'_>, error: PyErr) -> PyResult<PyErr> {
    let is_theirs =
        error.is_instance_of::<PyException>(py) && !error.is_instance_of::<PyRecursionError>(py);
    if is_theirs { Ok(error) } else { Err(error) }
}

/// An exception, with OpenTelemetry's names of its attributes.
fn exception(fields: &Bound<'_, PyDict>, trace: &str, body: &mut Body) -> PyResult<()> {
    let py = fields.py();
    if let Some(info) = fields.get_item(intern!(py, "exc_info"))?
        && let Ok((class, error)) =
            info.get_item(0).and_then(|class| Ok((class, info.get_item(1)?)))
        && !class.is_none()
    {
        let name = class.getattr(intern!(py, "__name__")).unwrap_or(class);
        for (field, text) in [("exception.type", name), ("exception.message", error)] {
            body.data(field, &Value::from(text_of(&text)?.to_string_lossy().into_owned()));
        }
    }
    body.data("exception.stacktrace", &Value::from(trace));
    Ok(())
}

/// A value with its type; other objects as their text.
fn value(given: &Bound<'_, PyAny>) -> PyResult<Value> {
    value_at(given, 1)
}

fn value_at(given: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let deeper = depth < helio_logging::MAX_DEPTH;
    if given.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(given) = given.cast::<PyString>() {
        return Ok(Value::from(given.to_string_lossy().into_owned()));
    }
    if let Ok(given) = given.cast::<PyBool>() {
        return Ok(Value::Bool(given.is_true()));
    }
    if let Ok(number) = given.cast::<PyInt>() {
        return Ok(number.extract::<i64>().map_or_else(
            |_| Value::from(number.str().map_or_else(|_| String::new(), |text| text.to_string())),
            Value::Int,
        ));
    }
    if let Ok(given) = given.cast::<PyFloat>() {
        return Ok(Value::Double(given.value()));
    }
    if let Ok(given) = given.cast::<PyBytes>() {
        return Ok(Value::Bytes(given.as_bytes().to_vec()));
    }
    if let Some(items) = given.cast::<PyList>().ok().map(|list| list.iter()).filter(|_| deeper) {
        let items = items.map(|item| value_at(&item, depth + 1));
        return Ok(Value::Array(items.collect::<PyResult<_>>()?));
    }
    if let Some(items) = given.cast::<PyDict>().ok().filter(|_| deeper) {
        let pairs = items.iter().map(|(name, item)| {
            Ok((text_of(&name)?.to_string_lossy().into_owned(), value_at(&item, depth + 1)?))
        });
        return Ok(Value::Map(pairs.collect::<PyResult<_>>()?));
    }
    Ok(Value::from(text_of(given)?.to_string_lossy().into_owned()))
}

/// The records of a packet, each as a line of JSON.
#[pyfunction]
pub(crate) fn log_records(payload: &[u8]) -> PyResult<Vec<String>> {
    let wrong = |error: &dyn std::fmt::Display| errors::raise("DecodeError", &error.to_string());
    let packet = Packet::parse(payload).map_err(|error| wrong(&error))?;
    let line = |record: helio_logging::RecordRef<'_>| {
        let record = record.to_record().map_err(|error| wrong(&error))?;
        let mut line = Vec::new();
        formats::json::write(&record, &mut line);
        String::from_utf8(line).map_err(|error| wrong(&error))
    };
    packet.records().map(line).collect()
}
